//! A machine's side of the rollout: its reports, and the lease that it requests and returns.

use super::{
    change::{Change, ChangeStrategy},
    draft::Draft,
    phase::Phase,
    state::{ASKED, Lease},
};
use dormer_engine_core::Command;
use dormer_proto::{
    machine::ChangeClass,
    pool::DEFAULT_POOL,
    rollout,
    work::{Signal, rollout_run},
};

impl Draft<'_> {
    pub(super) fn report_to_rollout(&mut self, signal: rollout::Signal) {
        let pool = self
            .s
            .pool
            .as_ref()
            .map_or(DEFAULT_POOL, |pool| pool.pool.as_str());
        // A pool's name is a Kubernetes name: short enough for a run id.
        if let Ok(to) = rollout_run(pool) {
            self.push(Command::Signal(to, Signal::Rollout(signal)));
        }
    }

    /// Checks whether a serving machine has to change.
    pub(super) fn consider(&mut self) {
        if self.s.phase != Phase::Serving || self.rests() || self.s.left_alone() {
            return;
        }
        if self.s.leased_request.is_some() {
            let how = self.s.how(ChangeClass::Drain);
            self.want(Change {
                how,
                differs: vec![ASKED.into()],
                repair: false,
                anew: false,
            });
        } else if self.s.stray_token().is_some()
            || self.s.differs()
            || (self.s.moved && self.s.desired().is_some())
        {
            self.enter(Phase::Checking);
        }
    }

    /// Requests what a person asked for, of a machine that does not serve.
    pub(super) fn want_replacement(&mut self) {
        let how = self.s.how(ChangeClass::Replace);
        self.want(Change {
            how,
            differs: vec![ASKED.into()],
            repair: false,
            anew: false,
        });
    }

    /// Requests the change to the desired version for a Node that is Ready before it ever served: its pods are drained.
    pub(super) fn want_version(&mut self) {
        let mut how = self.s.how(ChangeClass::Drain);
        if how == ChangeStrategy::Recreate && self.s.owner().is_none() {
            // No controller makes another, so it is configured in place.
            how = ChangeStrategy::InPlace;
        }
        self.want(Change {
            how,
            differs: vec!["the version; pods may run there, although it never served".into()],
            repair: false,
            anew: false,
        });
    }

    /// Requests a change under the lease, once nothing prevents it.
    pub(super) fn want(&mut self, change: Change) {
        if change.how == ChangeStrategy::Recreate && self.s.owner().is_none() {
            self.enter(Phase::OwnerWait(change));
        } else if self.s.needs_approval() && !change.repair {
            self.enter(Phase::ApprovalWait(change));
        } else {
            self.enter(Phase::LeaseWait(change));
        }
    }

    pub(super) fn request(&mut self) {
        let report = self.s.report();
        self.s.lease = Lease::Wanted;
        self.s.reported = Some(report.clone());
        self.report_to_rollout(rollout::Signal::Request { report });
    }

    /// Withdraws the request for the lease.
    pub(super) fn withdraw(&mut self) {
        if self.s.lease == Lease::Wanted {
            self.s.lease = Lease::None;
            self.report_to_rollout(rollout::Signal::Withdraw);
        }
    }

    /// Closes and returns a lease that is no longer needed. Only that frees the slot.
    pub(super) fn give_back(&mut self) {
        self.cancel_tasks();
        self.enter(Phase::Undoing);
    }

    /// Whether the change under the lease is to another version than the one that is desired now, and that the machine
    /// carries. What a person requested, and the repair of an absent Node, is for no version.
    pub(super) fn is_superseded(&self) -> bool {
        let (Phase::Opening(change) | Phase::Evicting(change, _)) = &self.s.phase else {
            return false;
        };
        !change.repair && self.s.leased_request.is_none() && !self.s.differs()
    }

    /// Undoes a drain for a version that is no longer desired.
    pub(super) fn went_back(&mut self) {
        let version = self.s.version.clone().unwrap_or_default();
        self.s.note = Some(format!(
            "the rollout went back to {version}, which it carries: its drain is undone"
        ));
        self.s.approval_is_spent();
        self.give_back();
    }

    /// Returns the slot; the token is closed on every object.
    pub(super) fn release(&mut self, replaced: bool) {
        if let Some(token) = self.s.lease.token() {
            let deleted = self.s.machine.as_ref().and_then(|machine| machine.deleted);
            self.s.lease = Lease::None;
            self.s.under_lease = None;
            self.s.closed = self.s.closed.max(token);
            self.report_to_rollout(rollout::Signal::Release {
                token,
                replaced,
                deleted,
            });
            if self.s.ignored() {
                self.leave_rollout(false, true);
            }
        }
    }

    /// Handles a closed fence while the Machine still exists: returns the slot. The machine serves, or continues its
    /// bring-up if it never served ([`Draft::enter`]).
    pub(super) fn fence_closed(&mut self, result: &str) {
        self.release(false);
        self.end_episode(result);
        self.enter(Phase::Serving);
    }

    /// Reports to the rollout that the machine is no longer a member. `stays`: only the run ends, or rests, and the
    /// Machine still exists.
    pub(super) fn leave_rollout(&mut self, gap: bool, stays: bool) {
        if self.s.reported.take().is_some() {
            let never_served = self.s.ignored() && self.s.first_bring_up() && !self.s.node_serves();
            self.left(gap, stays, never_served);
        }
    }

    /// Reports to the rollout that a person closed the run. The rollout then waits for no replacement of its Machine.
    pub(super) fn removed_from_rollout(&mut self) {
        if self.s.reported.take().is_some() || self.s.ignored() {
            self.left(false, true, false);
        }
    }

    /// Reports an ignored machine that another operator brought up to the rollout, as one that serves.
    pub(super) fn served_by_others(&mut self) {
        if self.s.ignored() && self.s.lease == Lease::None && self.s.first_bring_up() {
            self.left(false, true, false);
        }
    }

    fn left(&mut self, gap: bool, stays: bool, never_served: bool) {
        let deleted = self.s.machine.as_ref().and_then(|m| m.deleted);
        self.report_to_rollout(rollout::Signal::Left {
            owner: self.s.owner().map(|owner| owner.uid.clone()),
            gap,
            stays,
            never_served,
            token: self.s.lease.token(),
            deleted,
        });
    }
}
