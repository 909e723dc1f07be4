//! Signals from members and from people.

use super::{
    draft::Draft,
    member::Flag,
    state::{Gap, Loss, Pause, Rollback, RollbackStep, Slot, WHY_BYTES_MAX},
    uid::Uid,
};
use dormer_engine_core::Sender;
use dormer_proto::{
    id::{LeaseToken, RunId, Timestamp},
    machine::{self, Task},
    message::{Failure, Refusal, cut_to},
    rollout::{MemberReport, Signal},
    work,
};

impl Draft<'_> {
    pub(super) fn on_signal(&mut self, from: Sender, signal: Signal) {
        let member = match &from {
            Sender::Run(run) => member(run),
            Sender::Person { .. } => None,
        };
        match (signal, member) {
            (Signal::Pause, _) => self.pause(from),
            // Who ends a pause has not said anything about the machines that are missing.
            (Signal::Resume, _) => match self.state.pause.take() {
                Some(_) => {}
                None => self.accept_fewer(),
            },
            (Signal::Rollback { to }, _) => self.roll_back(&from, to),
            (Signal::EndRollback, _) => self.end_rollback(&from),
            (Signal::Member(report), Some(uid)) => self.enrol(uid, &report),
            (Signal::Request { report }, Some(uid)) => self.requested(uid, &report),
            (Signal::Withdraw, Some(uid)) => self.withdrawn(&uid),
            (
                Signal::Release {
                    token,
                    replaced,
                    deleted,
                },
                Some(uid),
            ) => {
                self.released(&uid, token, replaced, deleted);
            }
            (
                Signal::Left {
                    owner,
                    gap,
                    stays,
                    never_served,
                    token,
                    deleted,
                },
                Some(uid),
            ) => {
                // The Machine was deleted even if it held the lease: a live run returns the lease first.
                let missing = owner.filter(|_| gap || token.is_some());
                self.left(&uid, missing.as_deref(), stays, deleted);
                if let Some(member) = self.state.members.get_mut(&uid) {
                    member.set(Flag::NeverServed, stays && never_served);
                }
            }
            // Only a machine's run can be a member.
            (_, None) => {}
        }
    }

    fn pause(&mut self, from: Sender) {
        let (who, why) = match from {
            Sender::Run(run) => (run.to_string(), String::new()),
            Sender::Person { who, why } => (who, why),
        };
        self.state.pause = Some(Pause {
            who: short(who),
            why: short(why),
            at: self.now.at,
        });
    }

    /// Rolls back one step: a worker writes the payload that overrides the spec's into the pool's status, where
    /// all readers find it. dormer does not write the spec.
    fn roll_back(&mut self, by: &Sender, to: String) {
        let wanted = self.state.payload.clone().unwrap_or_default();
        let from = wanted.payload.clone();
        let by = requester(by);
        let at = self.now.at;
        let step = match wanted.goes_back_to(&to) {
            Ok(()) => RollbackStep::Writing,
            Err(why) => RollbackStep::Refused(why),
        };
        let source = self.state.source.as_ref();
        let rollback = Rollback {
            from,
            to: short(to),
            by,
            at,
            step,
            instead: source.and_then(|source| source.spec_payload.clone()),
        };
        match rollback.step {
            RollbackStep::Writing => self.write_rollback(rollback),
            // A refused request changes nothing of the rollback that is in force, being written or being ended.
            RollbackStep::Refused(_) if self.state.rollback.as_ref().is_some_and(stands) => {}
            RollbackStep::Written
            | RollbackStep::Refused(_)
            | RollbackStep::Ending(_)
            | RollbackStep::Ended(_)
            | RollbackStep::NotEnded(_) => self.state.rollback = Some(rollback),
        }
    }

    /// Goes forward again: a worker takes the rollback out of the pool's status, and the spec's payload applies.
    fn end_rollback(&mut self, by: &Sender) {
        let Some(rollback) = self.state.rollback_in_force(self.now.at) else {
            return;
        };
        let Some(written) = rollback.instead.clone() else {
            return;
        };
        let by = requester(by);
        self.take_override(&written, by.clone());
        self.state.rollback = Some(Rollback {
            step: RollbackStep::Ending(by),
            ..rollback
        });
    }

    /// Issues the task that writes a rollback into the pool's status.
    pub(super) fn write_rollback(&mut self, rollback: Rollback) {
        self.run(Task::SetPayload {
            pool: self.now.run.key().to_owned(),
            payload: rollback.to.clone(),
            back_from: rollback.from.clone(),
            by: rollback.by.clone(),
            instead: rollback.instead.clone(),
        });
        self.state.rollback = Some(Rollback {
            step: RollbackStep::Writing,
            ..rollback
        });
    }

    /// Has a worker take a rollback that the spec's payload ended out of the pool's status. It would hold again as soon
    /// as the spec names the payload that was rolled back.
    pub(super) fn clear_override(&mut self, written: &str) {
        self.take_override(written, String::new());
    }

    fn take_override(&mut self, written: &str, by: String) {
        let written = written.to_owned();
        self.run(Task::SetPayload {
            pool: self.now.run.key().to_owned(),
            payload: written.clone(),
            back_from: written.clone(),
            by,
            instead: Some(written),
        });
    }

    /// Handles the result of that task.
    pub(super) fn payload_set(&mut self, task: &Task, failure: Option<Failure>) {
        let Task::SetPayload {
            payload,
            instead,
            by,
            ..
        } = task
        else {
            return;
        };
        if instead.as_ref() == Some(payload) && !by.is_empty() {
            return self.rollback_ended(by, failure);
        }
        if instead.as_ref() == Some(payload) {
            let Some(failure) = failure else {
                return;
            };
            let source = self.state.source.as_mut();
            if let Some(source) = source.filter(|it| it.spec_payload == *instead) {
                // The next settings request it again.
                source.override_ended &= failure.retry;
                if source.override_ended {
                    let written = payload.clone();
                    self.clear_override(&written);
                }
            }
            return;
        }
        let written = |it: &&mut Rollback| it.to == *payload && it.step == RollbackStep::Writing;
        if let Some(rollback) = self.state.rollback.as_mut().filter(written) {
            rollback.step = match failure {
                None => RollbackStep::Written,
                Some(failure) => RollbackStep::Refused(failure.message),
            };
        }
    }

    /// Handles the result of the task that ends a rollback as `by` requested.
    fn rollback_ended(&mut self, by: &str, failure: Option<Failure>) {
        let source = self.state.source.as_ref();
        let shown = source.is_some_and(|it| it.overridden_by.is_some());
        let ending = |it: &mut Rollback| it.step == RollbackStep::Ending(by.to_owned());
        let Some(rollback) = self.state.rollback.take_if(ending) else {
            return;
        };
        let step = match failure {
            None if !shown => return,
            None => RollbackStep::Ended(by.to_owned()),
            Some(failure) => RollbackStep::NotEnded(failure.message),
        };
        self.state.rollback = Some(Rollback { step, ..rollback });
    }

    /// Applies a member's report; `false`: there is no room for it.
    fn enrol(&mut self, uid: Uid, report: &MemberReport) {
        let report = &self.believed(report);
        if !self.room_for(&uid, true) {
            return self.turn_away(uid);
        }
        let tick = self.tick();
        // It left and is back (its Machine was ignored for a while): its reports count again from now on.
        self.state.departed.retain(|departed| *departed != uid);
        self.state.turned_away.retain(|turned| *turned != uid);
        if let Some(mark) = report.token {
            // New tokens are greater than every token on any object.
            self.state.token = self.state.token.max(mark.token);
        }
        let owner = report.owner.as_deref().map_or(0, |owner| self.owner(owner));
        let trouble = self.finding_number(report.not_compared.as_ref());
        if !report.deleting {
            // It exists: a grant that found no run was mistaken for its end.
            self.state.gaps.retain(|gap| gap.uid != uid);
        }
        // Who owns the Machine of a holder now replaces it.
        let mut slots = self.state.slots.iter_mut();
        if let Some(slot) = slots.find(|slot| slot.uid == uid && !slot.vacant && owner != 0) {
            slot.owner = owner;
        }
        let member = self.state.members.entry(uid.clone()).or_default();
        member.owner = owner;
        member.update(report, tick);
        member.set_trouble(trouble);
        if report.deleting {
            self.deletion_known(&uid, report.deleted);
        }
    }

    /// The report without a token that no rollout can have granted: with that, the tokens would be used up.
    fn believed(&self, report: &MemberReport) -> MemberReport {
        let known = self.state.token;
        let token = report.token.filter(|mark| mark.token.is_plausible(known));
        MemberReport {
            token,
            ..report.clone()
        }
    }

    /// Handles the deletion of a member's Machine: it leaves a gap, unless it holds a slot, which then itself waits for
    /// the replacement.
    pub(super) fn deletion_known(&mut self, uid: &Uid, deleted: Option<Timestamp>) {
        let tick = self.tick();
        if let Some(slot) = self.state.slots.iter_mut().find(|slot| slot.uid == *uid) {
            return learn(slot.loss.get_or_insert(Loss::at(tick, deleted)), deleted);
        }
        if let Some(gap) = self.state.gaps.iter_mut().find(|gap| gap.uid == *uid) {
            return learn(&mut gap.loss, deleted);
        }
        let Some(member) = self.state.members.get(uid) else {
            return;
        };
        if member.is(Flag::HadNode) && member.owner != 0 && !member.is(Flag::GapEnded) {
            let owner = member.owner;
            self.open_gap(uid, owner, deleted);
        }
    }

    fn requested(&mut self, uid: Uid, report: &MemberReport) {
        self.enrol(uid.clone(), report);
        let granted = self.state.slot_of(&uid).filter(|slot| !slot.vacant);
        if let Some((token, over_limit)) = granted.map(|slot| (slot.token, slot.over_limit)) {
            // It requests the lease that it holds: the grant is repeated, which the holder ignores.
            return self.send(&uid, machine::Signal::Granted { token, over_limit });
        }
        let tick = self.tick();
        if let Some(member) = self.state.members.get_mut(&uid)
            && member.wants == 0
            && !member.leaves()
        {
            member.wants = tick;
        }
    }

    fn withdrawn(&mut self, uid: &Uid) {
        match self.state.members.get_mut(uid) {
            Some(member) => member.wants = 0,
            None => self.ask_stranger(uid),
        }
    }

    fn released(
        &mut self,
        uid: &Uid,
        token: LeaseToken,
        replaced: bool,
        deleted: Option<Timestamp>,
    ) {
        // New tokens are greater than every token ever held, even unknown ones.
        self.state.token = self.state.token.max(token);
        let held = |slot: &Slot| slot.token == token && slot.uid == *uid && !slot.vacant;
        let Some(at) = self.state.slots.iter().position(held) else {
            return self.released_unknown(uid, token, replaced, deleted);
        };
        if replaced {
            return self.vacate(at, deleted);
        }
        let slot = self.state.slots.remove(at);
        if let Some(loss) = slot.loss {
            self.deletion_known(uid, loss.deleted);
        }
    }

    /// Handles a repeated release, or the release of a lease from a lost history.
    fn released_unknown(
        &mut self,
        uid: &Uid,
        token: LeaseToken,
        replaced: bool,
        deleted: Option<Timestamp>,
    ) {
        if replaced && !self.state.departed.contains(uid) {
            let owner = self.state.members.get(uid).map_or(0, |member| member.owner);
            self.state.gaps.retain(|gap| gap.uid != *uid);
            self.state.slots.push(self.slot(uid, token, owner));
            self.vacate(self.state.slots.len() - 1, deleted);
        } else if !replaced && !self.state.members.contains_key(uid) {
            self.ask_stranger(uid);
        }
    }

    /// Marks the holder of a slot as gone: from now on a replacement ends the slot.
    fn vacate(&mut self, at: usize, deleted: Option<Timestamp>) {
        let tick = self.tick();
        let slot = &mut self.state.slots[at];
        slot.vacant = true;
        learn(slot.loss.get_or_insert(Loss::at(tick, deleted)), deleted);
        let uid = slot.uid.clone();
        self.depart(&uid, true);
    }

    /// Handles the end of a member's run. `missing`: its owner, if its Machine was deleted and had a Node.
    fn left(&mut self, uid: &Uid, missing: Option<&str>, stays: bool, deleted: Option<Timestamp>) {
        let owner = missing.map(|owner| self.owner(owner));
        let held = self
            .state
            .slots
            .iter()
            .position(|slot| slot.uid == *uid && !slot.vacant);
        let known = self.state.members.get(uid);
        // A run that a person closes while its Machine is being deleted also leaves a gap.
        let going = known.filter(|m| m.leaves() && m.is(Flag::HadNode) && m.owner != 0);
        let owner = owner.or(going.map(|m| m.owner));
        let over = known.is_some_and(|m| m.is(Flag::GapEnded)) || self.state.departed.contains(uid);
        match (held, owner) {
            // It left with the lease.
            (Some(at), Some(owner)) => {
                self.state.slots[at].owner = owner;
                self.vacate(at, deleted);
            }
            // The grant never reached it.
            (Some(at), None) => drop(self.state.slots.remove(at)),
            (None, Some(owner)) if owner != 0 && !over => self.open_gap(uid, owner, deleted),
            // Its refusal of a grant was mistaken for its end: it only left.
            (None, None) => self.state.gaps.retain(|gap| gap.uid != *uid),
            (None, Some(_)) => {}
        }
        if let Some(gap) = self.state.gaps.iter_mut().find(|gap| gap.uid == *uid) {
            learn(&mut gap.loss, deleted);
        }
        self.depart(uid, !stays || owner.is_some());
    }

    /// Opens the gap that the deletion of `uid` leaves, unless it is open already.
    pub(super) fn open_gap(&mut self, uid: &Uid, owner: u16, deleted: Option<Timestamp>) {
        if self.state.gaps.iter().any(|gap| gap.uid == *uid) {
            return;
        }
        let loss = Loss::at(self.tick(), deleted);
        let seq = self.now.seq;
        let at = self.now.at;
        self.state.gaps.push(Gap {
            uid: uid.clone(),
            owner,
            seq,
            at,
            loss,
        });
    }

    /// Handles a signal that found no receiver.
    pub(super) fn refused(&mut self, to: &RunId, signal: &machine::Signal, why: Refusal) {
        let Some(uid) = member(to) else { return };
        match signal {
            machine::Signal::Granted { token, .. } => {
                let held = |slot: &Slot| slot.token == *token && slot.uid == uid && !slot.vacant;
                if self.state.slots.iter().any(held) {
                    self.closed(&uid);
                }
            }
            machine::Signal::Enrol if why == Refusal::Closed => {
                self.closed(&uid);
                self.ask_turned_away();
            }
            machine::Signal::Enrol => {
                let stays = self.state.members.get_mut(&uid).is_some_and(|member| {
                    // It starts when the watcher reports the Machine, and enrols then.
                    member.set(Flag::Asking, false);
                    !member.is_stranger()
                });
                // One that was turned away is no member.
                if !stays {
                    self.state.members.remove(&uid);
                    self.ask_turned_away();
                }
            }
            // Nothing depends on it: the machine is closed, or reports itself when it enrols.
            machine::Signal::Replaced { .. }
            | machine::Signal::Retry
            | machine::Signal::Pause
            | machine::Signal::Resume
            | machine::Signal::Hold
            | machine::Signal::Drain
            | machine::Signal::Recreate
            | machine::Signal::Approve
            | machine::Signal::Abort
            | machine::Signal::Remove
            | machine::Signal::TrustHostKey { .. } => {}
        }
    }

    /// Handles a run that has closed without a report. Its slot is free, but its Machine may be missing, as after a
    /// deletion by another client. If the Machine still exists (a person closed the run), the run reports that when it
    /// leaves.
    fn closed(&mut self, uid: &Uid) {
        let held = self
            .state
            .slots
            .iter()
            .position(|slot| slot.uid == *uid && !slot.vacant);
        let slot = held.map(|at| self.state.slots.remove(at));
        let member = self.state.members.get(uid).cloned().unwrap_or_default();
        // A former member will still report how it left.
        self.leave(uid, member.is(Flag::Enrolled));
        if member.is(Flag::HadNode) && member.owner != 0 && !member.is(Flag::GapEnded) {
            let deleted = slot
                .and_then(|slot| slot.loss)
                .and_then(|loss| loss.deleted);
            self.open_gap(uid, member.owner, deleted);
        }
    }
}

/// The machine whose run this is.
fn member(run: &RunId) -> Option<Uid> {
    (run.workflow() == work::MACHINE).then(|| Uid::new(run.key()))
}

/// Who requested something, and why.
fn requester(from: &Sender) -> String {
    short(match from {
        Sender::Run(run) => run.to_string(),
        Sender::Person { who, why } if why.is_empty() => who.clone(),
        Sender::Person { who, why } => format!("{who}: {why}"),
    })
}

/// Keeps the first reported time stamp.
fn learn(loss: &mut Loss, deleted: Option<Timestamp>) {
    loss.deleted = loss.deleted.or(deleted);
}

/// Beginning of a text from outside.
pub(super) fn short(text: String) -> String {
    cut_to(text, WHY_BYTES_MAX)
}

/// Whether the pool's status holds this rollback, or is about to be changed for it.
fn stands(rollback: &Rollback) -> bool {
    !matches!(rollback.step, RollbackStep::Refused(_))
}
