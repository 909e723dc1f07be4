//! Grants of the lease: the queue, the next grant, and what prevents it.

use super::{
    draft::Draft,
    member::{Flag, Member},
    state::{Enrolment, Slot, State},
    uid::Uid,
};
use dormer_proto::machine;

/// Most grants of one decision. The next decision makes more.
const GRANTS_MAX: usize = 256;
/// Default of how many leases over the limit may be held at once.
const REPAIRS_MAX: usize = 1;

/// Rank in the queue: the smallest is first.
type Rank = (bool, bool, u64);

impl State {
    /// The queue, first to last.
    #[must_use]
    pub fn queue(&self) -> Vec<&Uid> {
        let waiting = self
            .members
            .iter()
            .filter(|(uid, m)| m.waits() && self.slot_of(uid).is_none());
        let mut queue: Vec<(Rank, &Uid)> = waiting.map(|(uid, m)| (rank(m), uid)).collect();
        queue.sort();
        queue.into_iter().map(|(_, uid)| uid).collect()
    }

    /// Failures that stop the rollout: failed holders, and the candidates of a slot or gap if all of them failed. A
    /// finalizer may keep the holder's Machine for hours, while its replacement fails already.
    #[must_use]
    pub fn failures(&self) -> Vec<&Uid> {
        let holders = self
            .slots
            .iter()
            .filter(|slot| !slot.vacant)
            .map(|slot| &slot.uid);
        let holders =
            holders.filter(|uid| self.members.get(uid).is_some_and(|m| m.is(Flag::Failed)));
        let mut failures: Vec<&Uid> = holders.collect();
        for vacancy in &self.expected_vacancies() {
            let uids: Vec<Uid> = self
                .candidates(vacancy)
                .map(|(uid, _)| uid.clone())
                .collect();
            let failed = |uid: &Uid| self.members.get(uid).is_some_and(|m| m.is(Flag::Failed));
            if uids.iter().all(failed) {
                failures.extend(self.members.keys().filter(|uid| uids.contains(uid)));
            }
        }
        failures.sort();
        failures.dedup();
        failures
    }

    /// Members with an open token that an earlier store granted.
    pub(super) fn carriers(&self) -> impl Iterator<Item = (&Uid, &Member)> {
        self.members
            .iter()
            .filter(|(_, m)| m.is(Flag::Enrolled) && m.is(Flag::Open))
    }

    /// Whether the change that a member needs is allowed. An upgrade that has begun is finished, whatever the desired
    /// version is now.
    pub(super) fn may_go(&self, uid: &Uid) -> bool {
        self.members
            .get(uid)
            .is_none_or(|m| !m.is(Flag::ChangeNotAllowed) || m.is(Flag::Open))
    }

    /// Whether another client keeps its Node cordoned. A change that began under dormer's own token is finished anyway.
    pub(super) fn kept_by_a_person(&self, member: &Member) -> bool {
        member.is(Flag::Cordoned) && !member.is(Flag::Open)
    }

    /// The next grant, and whether it is over the limit.
    fn next_grant(&self) -> Option<(Uid, bool)> {
        let limit = self.limit()?;
        let stopped = self.paused() || self.rollback_not_in_settings().is_some();
        if stopped || self.enrolment != Enrolment::Complete {
            return None;
        }
        // While another operation changes the cluster, only machines that do not serve are repaired, as over the limit.
        let changes = self.waits_for_cluster().is_some();
        let over = self.unavailable() >= limit || changes;
        // One that is unavailable itself takes no further machine out of service. A person asks for its removal or replacement.
        let alone = |member: &Member| {
            let asked =
                member.is(Flag::RequestedByPerson) && member.unavailable() && !member.repairable();
            asked && !changes && self.unavailable() <= limit
        };
        // A machine that never served ends the vacancy for which a slot waits, so that slot does not stand in its way.
        let repairs = |member: &Member| {
            let counts =
                |slot: &&Slot| slot.over_limit && (member.is(Flag::HadNode) || !slot.vacant);
            self.slots.iter().filter(counts).count()
        };
        let most = self.settings.and_then(|settings| settings.max_repairs);
        let most = most.map_or(REPAIRS_MAX, |most| most as usize);
        let failures = self.failures();
        let finding = self.finding().is_some();
        let carried = self.carriers().next().is_some();
        let may = |uid: &Uid, member: &Member| {
            let first = !carried || member.is(Flag::Open);
            let halted = !failures.is_empty() && !failures.contains(&uid);
            // A person who requests this machine overrides the finding.
            let held = finding && !member.is(Flag::RequestedByPerson);
            // An upgrade that has begun is finished: dormer has already taken its node out of service.
            let repaired = member.is(Flag::Open) || (member.repairable() && repairs(member) < most);
            let room = !over || repaired || alone(member);
            first && self.may_go(uid) && !halted && !held && room && !self.kept_by_a_person(member)
        };
        if self.slots.iter().any(|slot| slot.first) {
            return None;
        }
        let next = self
            .queue()
            .into_iter()
            .find(|uid| may(uid, &self.members[*uid]))?;
        Some((next.clone(), over && !alone(&self.members[next])))
    }
}

/// Order of the queue: upgrades that have begun, then nodes that have not served for long, then the time of the
/// request. Returning a lease over the limit gives no precedence. Otherwise a host that does not answer would delay all
/// others.
fn rank(member: &Member) -> Rank {
    (!member.is(Flag::Open), !member.repairable(), member.wants)
}

impl Draft<'_> {
    /// Grants all leases that are allowed now.
    pub(super) fn grant(&mut self) {
        for _ in 0..GRANTS_MAX {
            let Some((uid, over_limit)) = self.state.next_grant() else {
                return;
            };
            self.grant_to(&uid, over_limit);
        }
    }

    fn grant_to(&mut self, uid: &Uid, over_limit: bool) {
        self.state.token = self.state.token.next();
        let token = self.state.token;
        let Some(member) = self.state.members.get_mut(uid) else {
            return;
        };
        member.wants = 0;
        let owner = member.owner;
        let first = member.is(Flag::Open);
        let slot = Slot {
            over_limit,
            first,
            ..self.slot(uid, token, owner)
        };
        self.state.slots.push(slot);
        self.send(uid, machine::Signal::Granted { token, over_limit });
    }
}
