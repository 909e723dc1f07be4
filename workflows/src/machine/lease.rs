//! A machine's side of the rollout: its reports, and the lease that it requests and returns.

use super::{
    change::{Change, ChangeStrategy},
    draft::Draft,
    phase::Phase,
    serve::serve_unchecked,
    state::Lease,
};
use dormer_engine_core::Command;
use dormer_proto::{
    machine::ChangeClass,
    pool::DEFAULT_POOL,
    rollout,
    work::{Signal, rollout_run},
};

/// How a machine leaves its rollout.
#[derive(Clone, Copy)]
pub(super) enum Departure {
    /// Only its run ends, or rests: the Machine still exists.
    RunRests,
    /// Its Machine is gone. `gap`: it served, and another client deleted it.
    MachineGone { gap: bool },
}

impl Draft<'_> {
    pub(super) fn report_to_rollout(&mut self, signal: rollout::Signal) {
        let pool = self
            .state
            .pool
            .as_ref()
            .map_or(DEFAULT_POOL, |pool| pool.pool.as_str());
        // A pool's name is a Kubernetes name: short enough for a run id.
        if let Ok(to) = rollout_run(pool) {
            self.push(Command::Signal(to, Signal::Rollout(signal)));
        }
    }

    /// Checks whether a serving machine has to change.
    pub(super) fn start_pending_change(&mut self) {
        if self.state.phase != Phase::Serving
            || self.is_stopped_by_person()
            || self.state.left_alone()
        {
            return;
        }
        if self.state.leased_request.is_some() {
            let how = self.state.how(ChangeClass::Drain);
            self.queue_for(Change::asked(how));
        } else if self.state.stray_token().is_some()
            || self.state.differs()
            || ((self.state.moved || self.state.host.half_changed)
                && self.state.desired().is_some())
        {
            self.enter(Phase::Checking);
        }
    }

    /// Requests what a person asked for, of a machine that does not serve.
    pub(super) fn want_replacement(&mut self) {
        let how = self.state.how(ChangeClass::Replace);
        self.queue_for(Change::asked(how));
    }

    /// Requests the change to the desired version for a Node that is Ready before it ever served: its pods are drained.
    pub(super) fn queue_for_version(&mut self) {
        self.enter(self.wait_for_version());
    }

    /// Phase in which such a machine waits for that change.
    pub(super) fn wait_for_version(&self) -> Phase {
        let mut how = self.state.how(ChangeClass::Drain);
        if how == ChangeStrategy::Recreate && self.state.owner().is_none() {
            // No controller makes another, so it is configured in place.
            how = ChangeStrategy::InPlace;
        }
        self.wait_for(Change {
            how,
            differs: vec!["the version; pods may run there, although it never served".into()],
            repair: false,
            anew: false,
            asked: false,
        })
    }

    /// Requests a change under the lease, once nothing prevents it.
    pub(super) fn queue_for(&mut self, change: Change) {
        self.enter(self.wait_for(change));
    }

    /// Phase in which a change waits for what it needs first.
    fn wait_for(&self, change: Change) -> Phase {
        if change.how == ChangeStrategy::Recreate && self.state.owner().is_none() {
            Phase::OwnerWait(change)
        } else if self.state.needs_approval() && !change.repair {
            Phase::ApprovalWait(change)
        } else {
            Phase::LeaseWait(change)
        }
    }

    pub(super) fn request(&mut self) {
        let report = self.state.report();
        self.state.lease = Lease::Wanted;
        self.state.reported = Some(report.clone());
        self.report_to_rollout(rollout::Signal::Request { report });
    }

    /// Withdraws the request for the lease.
    pub(super) fn leave_queue(&mut self) {
        if self.state.lease == Lease::Wanted {
            self.state.lease = Lease::None;
            self.report_to_rollout(rollout::Signal::Withdraw);
        }
    }

    /// Closes and returns a lease that is no longer needed. Only that frees the slot.
    pub(super) fn give_back(&mut self) {
        self.cancel_tasks();
        self.enter(Phase::Undoing);
    }

    /// Whether the change under the lease is to another version than the one that is desired now, and that the machine
    /// carries. What a person requested, and the repair of an absent Node, is for no version. A host that was torn down
    /// carries none.
    pub(super) fn is_superseded(&self) -> bool {
        let (Phase::Opening(change) | Phase::Evicting(change, _)) = &self.state.phase else {
            return false;
        };
        let carries = !self.state.is_torn_down() && !self.state.differs();
        carries && !change.repair && self.state.leased_request.is_none()
    }

    /// Undoes a drain for a version that is no longer desired.
    pub(super) fn went_back(&mut self) {
        let version = self.state.version.clone().unwrap_or_default();
        self.state.note = Some(format!(
            "the rollout went back to {version}, which it carries: its drain is undone"
        ));
        self.state.clear_approval();
        self.give_back();
    }

    /// Returns the slot; the token is closed on every object.
    pub(super) fn release(&mut self, replaced: bool) {
        if let Some(token) = self.state.lease.token() {
            let deleted = self
                .state
                .machine
                .as_ref()
                .and_then(|machine| machine.deleted);
            self.state.lease = Lease::None;
            self.state.under_lease = None;
            self.state.allowed_again = false;
            self.state.closed = self.state.closed.max(token);
            self.report_to_rollout(rollout::Signal::Release {
                token,
                replaced,
                deleted,
            });
            if self.state.ignored() {
                self.leave_rollout(Departure::RunRests);
            }
        }
    }

    /// Handles a closed fence while the Machine still exists: returns the slot. The machine serves, or continues its
    /// bring-up if it never served ([`Draft::enter`]).
    ///
    /// After a refusal that its facts do not explain it would ask for the lease again at once, and again be refused.
    pub(super) fn fence_closed(&mut self, result: &str) {
        self.release(false);
        self.end_episode(result);
        match std::mem::take(&mut self.state.refused_lately) && self.state.in_service {
            true => serve_unchecked(self),
            false => self.enter(Phase::Serving),
        }
    }

    /// Reports to the rollout that the machine is no longer a member.
    pub(super) fn leave_rollout(&mut self, how: Departure) {
        if self.state.reported.take().is_some() {
            let never_served =
                self.state.ignored() && self.state.first_bring_up() && !self.state.node_serves();
            self.report_departure(how, never_served);
        }
    }

    /// Reports to the rollout that a person closed the run. The rollout then waits for no replacement of its Machine.
    pub(super) fn removed_from_rollout(&mut self) {
        if self.state.reported.take().is_some() || self.state.ignored() {
            self.report_departure(Departure::RunRests, false);
        }
    }

    /// Reports an ignored machine that another operator brought up to the rollout, as one that serves.
    pub(super) fn served_by_others(&mut self) {
        if self.state.ignored() && self.state.lease == Lease::None && self.state.first_bring_up() {
            self.report_departure(Departure::RunRests, false);
        }
    }

    /// `never_served`: it leaves because its label says so, and is no replacement.
    fn report_departure(&mut self, how: Departure, never_served: bool) {
        let (gap, stays) = match how {
            Departure::RunRests => (false, true),
            Departure::MachineGone { gap } => (gap, false),
        };
        let deleted = self.state.machine.as_ref().and_then(|m| m.deleted);
        self.report_to_rollout(rollout::Signal::Left {
            owner: self.state.owner().map(|owner| owner.uid.clone()),
            gap,
            stays,
            never_served,
            token: self.state.lease.token(),
            deleted,
        });
    }
}
