//! The machine as a member of its rollout: what its report says of it.

use super::{phase::Phase, policy, state::State};
use dormer_proto::rollout::{MemberReport, NotCompared};

impl State {
    /// Report to its rollout.
    #[must_use]
    pub fn report(&self) -> MemberReport {
        let Some(machine) = &self.machine else {
            return MemberReport::default();
        };
        let failed = matches!(self.phase, Phase::Failed { .. }) || self.failed_before_service();
        let stray = self.stray_token();
        let rests = self.removal_rests();
        let waits = self.removal_waits() || rests;
        let leaves = machine.deleting && !waits;
        let away = !rests && (!self.node_serves() || failed || leaves || stray.is_some());
        // A person cordoned the Node and removes the host: it may be granted over the limit.
        let out = waits && !rests && self.out_by_a_person();
        MemberReport {
            owner: self.owner().map(|owner| owner.uid.clone()),
            created: machine.created,
            had_node: self.counts(),
            unavailable: self.counts() && away,
            joined: self.counts() && self.phase.joined(),
            failed,
            deleting: leaves,
            deleted: machine.deleted.filter(|_| leaves),
            token: self.found_token(),
            barred: self.counts() && self.change_refusal().is_some() && !waits,
            cordoned: self.cordoned_by_others() && !rests,
            repair: self.counts() && !rests && (out || self.down.is_some_and(|down| down.long)),
            by_request: self.leased_request.is_some() || waits,
            not_compared: self.reports_not_compared().cloned(),
        }
    }

    /// Why its host cannot be compared, for its rollout. A host that does not answer while its Node is not Ready is
    /// simply down, which is not reported.
    fn reports_not_compared(&self) -> Option<&NotCompared> {
        let ready = self.node.as_ref().is_some_and(|node| node.ready);
        let down = |it: &&NotCompared| !ready && policy::is_unanswered(&it.code);
        self.not_compared
            .as_ref()
            .filter(|it| self.counts() && !down(it))
    }

    /// Whether it is a BYOH host that has served, whose entry is gone, and whose removal waits for the lease.
    /// Until then it serves as before.
    #[must_use]
    pub fn removal_waits(&self) -> bool {
        let deleting = self
            .machine
            .as_ref()
            .is_some_and(|machine| machine.deleting);
        let asks = self.phase == Phase::Leaving && self.lease.token().is_none();
        self.own_host() && deleting && self.in_service && asks
    }

    /// Whether a person keeps the Node of a host that leaves cordoned, as far as dormer knows of its own cordons.
    pub(super) fn out_by_a_person(&self) -> bool {
        let node = self.node.as_ref().filter(|node| node.cordoned);
        let cordoned = node.is_some_and(|node| node.token.is_none_or(|mark| !mark.open));
        cordoned && !self.removal.uncordoned && !self.removal.own_cordon
    }

    /// Whether its removal was given up and holds no lease. The host goes for good, so the rollout waits for no node:
    /// it does not count against the limit, and gets the lease last.
    fn removal_rests(&self) -> bool {
        let asks = self.phase == Phase::Leaving || self.phase.removal_failed();
        self.own_host() && self.removal.rounds > 0 && asks && self.lease.token().is_none()
    }

    /// Whether its node serves: Ready and schedulable.
    #[must_use]
    pub fn node_serves(&self) -> bool {
        self.node
            .as_ref()
            .is_some_and(|node| node.ready && !node.cordoned)
    }

    /// Whether another client keeps its Node cordoned. A cordon under a token, of this or an earlier store, is
    /// dormer's. A person who requests a recreation or drain of this machine overrides the cordon that was there.
    #[must_use]
    pub fn cordoned_by_others(&self) -> bool {
        let asked = self.asked_over_cordon() || self.removal_waits();
        self.counts() && self.is_cordoned_by_others() && !asked
    }

    /// Whether a person's request overrides the cordon of its Node.
    #[must_use]
    pub fn asked_over_cordon(&self) -> bool {
        // An older build kept no note of the cordon: then every request overrode it.
        self.leased_request.is_some()
            && (self.request_progress.over_cordon || self.request_progress.at.is_none())
    }

    /// Whether its Node is cordoned, and no token says that dormer did it.
    pub(super) fn is_cordoned_by_others(&self) -> bool {
        let cordoned = self.node.as_ref().is_some_and(|node| node.cordoned);
        cordoned && self.lease.token().is_none() && self.stray_token().is_none()
    }
}
