//! Laws of the model: what no grant and no call may lead to, and how it rests.

use super::{
    World,
    machine::{Machine, Phase},
    pool::{max_unavailable, uid},
};
use dormer_workflows::rollout::{Flag, Member, Slot, Uid};

impl World {
    /// A grant over the limit is the only one of its kind, and for a node that was down for long. None is for a node that
    /// a person keeps cordoned, as far as the rollout knows: a worker finds later changes when it opens the fence.
    pub(super) fn check_over_limit(&mut self, to: usize, over_limit: bool) {
        let slots = &self.rollout.state.slots;
        let members = &self.rollout.state.members;
        let received = self.machines[to].received;
        let served = self.machines[to].served;
        // A machine that never served ends the vacancy for which a slot waits.
        let stands = |slot: &&Slot| slot.over_limit && (served || !slot.vacant);
        if over_limit && slots.iter().filter(stands).count() > 1 {
            self.violation = Some("two leases over the limit");
        }
        if over_limit && served && !received.repair {
            self.violation = Some("a lease over the limit for a node that was just NotReady");
        }
        let known = |m: &Member| !m.is(Flag::Stranger);
        let is_member = |at: &usize| members.get(&Uid::new(&uid(*at))).is_some_and(known);
        let members = (0..self.machines.len()).filter(is_member);
        if members
            .filter(|at| self.machines[*at].received.not_compared)
            .count()
            > 1
        {
            self.violation = Some("a lease while hosts cannot be compared");
        }
        if received.cordoned {
            self.violation = Some("a lease for a node that a person cordoned");
        }
    }

    /// No grant while the Machine of a slot is being deleted or gone, and all that may replace it fail their checks, as far
    /// as the rollout knows, except to one of them.
    pub(super) fn check_failing(&mut self, to: usize) {
        let slots = &self.rollout.state.slots;
        for set in 0..self.replicas.len() {
            let ours = |slot: &&Slot| {
                let mut machines = self.machines.iter().enumerate();
                machines.any(|(at, m)| m.set == set && slot.uid == Uid::new(&uid(at)))
            };
            let waits = slots.iter().filter(ours).any(|slot| slot.loss.is_some());
            let newcomer = |m: &Machine| m.set == set && m.exists && !m.deleting && !m.served;
            let mut newcomers = self.machines.iter().filter(|m| newcomer(m)).peekable();
            let any = newcomers.peek().is_some();
            let all_fail = any && newcomers.all(|m| m.received.failed);
            if waits && all_fail && !newcomer(&self.machines[to]) {
                self.violation = Some("a lease while every replacement fails");
            }
        }
    }

    /// A grant within the limit, when every deletion is known: then all that the owner wants is there.
    pub(super) fn check_grant(&mut self) {
        if self.share.is_some() {
            return;
        }
        let members = &self.rollout.state.members;
        let known = |at: usize, m: &Machine| {
            let member = members.get(&Uid::new(&uid(at)));
            // The rollout counts no stranger as there.
            let counts = member.is_some_and(|m| !m.is_stranger() && !m.leaves());
            m.stays() || !m.served || !counts
        };
        let all_known = self.machines.iter().enumerate().all(|(at, m)| known(at, m));
        if all_known && (0..self.replicas.len()).any(|set| self.gaps(set) > 0) {
            self.violation = Some("a grant over a gap");
        }
    }

    /// Machines that serve no more, or not yet, of those that an owner wants.
    fn gaps(&self, set: usize) -> usize {
        let ours = self.machines.iter().filter(|m| m.set == set);
        let there = ours.filter(|m| m.stays()).count();
        let grown = if set == 0 { self.grown } else { 0 };
        (self.replicas[set] - grown).saturating_sub(there)
    }

    /// Most nodes that may be away at once by our doing: `maxUnavailable`, of the machines that serve or served.
    fn limit(&self) -> usize {
        let serve = self.machines.iter().filter(|m| m.stays()).count();
        max_unavailable(self.share).of(serve + self.owed)
    }

    /// A fence is opened on a Node as it is at that moment, whatever was reported to the rollout.
    pub(super) fn check_opened(&mut self, over_a_ready_one: bool, kept: bool) {
        if over_a_ready_one {
            self.violation = Some("a fence over the limit on a Node that is Ready");
        }
        if kept {
            self.violation = Some("a fence on a Node that a person cordoned");
        }
    }

    /// More nodes away at once, by our doing, than may be.
    pub(super) fn check_away(&mut self) {
        if self.violation.is_some() {
            return;
        }
        let cordoned = self
            .machines
            .iter()
            .filter(|m| m.exists && !m.deleting && m.disturbed)
            .count();
        let gaps: usize = (0..self.replicas.len()).map(|set| self.gaps(set)).sum();
        let owed = self.owed.min(gaps);
        if cordoned + owed > self.limit() {
            self.violation = Some("more nodes away by our doing than may be");
        }
    }

    /// Nothing is held, no machine waits, and every machine is as it should be.
    pub(crate) fn at_rest(&self) -> bool {
        let state = &self.rollout.state;
        let rests = |m: &Machine| match m.phase {
            Phase::Closed => true,
            Phase::Serving => m.upgraded && m.serves(),
            _ => false,
        };
        state.slots.is_empty()
            && state.gaps.is_empty()
            && state.queue().is_empty()
            && state.unavailable() == 0
            && self.machines.iter().all(rests)
    }
}
