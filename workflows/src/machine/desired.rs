//! What a machine should become: its desired version, what bars it, and how the change is done.

use super::{
    change::ChangeStrategy,
    phase::Phase,
    state::{LeasedRequest, State},
};
use dormer_proto::{
    machine::ChangeClass,
    pool::{Approval, Desired, Strategy, payload_of},
};
use dormer_support::Refusal;

impl State {
    /// Desired version; `None` while its pool or its Windows build is unknown.
    #[must_use]
    pub fn desired(&self) -> Option<&Desired> {
        let build = self
            .host
            .facts
            .as_ref()
            .map_or("", |facts| facts.os_build.as_str());
        self.pool.as_ref()?.desired_for(build)
    }

    /// Whether its node has another version than the desired one.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.desired()
            .is_some_and(|desired| Some(&desired.version) != self.version.as_ref())
    }

    /// Whether another version is desired by now than the one in progress on the host.
    pub(super) fn retargeted(&self) -> bool {
        let desired = self.desired();
        desired.is_some_and(|desired| desired.version != self.target.version)
    }

    /// Why it cannot become a node of its pool: its Windows, its platform, or a payload that is for others. `None`: it
    /// may, or nothing is known of its host or its pool yet. A node that has served is left as it is.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let facts = self.host.facts.as_ref().filter(|_| self.first_bring_up())?;
        let build = facts.os_build.as_str();
        let of_host = Refusal::of_host(build, &facts.os_name);
        let pool = || self.pool.as_ref().filter(|pool| !pool.desired.is_empty());
        of_host.or_else(|| match self.desired() {
            Some(desired) => {
                let terms = pool()?.terms.get(&desired.payload)?;
                if let Some(why) = terms.refused_builds.get(build) {
                    return Some(Refusal::Setting {
                        build: build.to_owned(),
                        why: why.clone(),
                    });
                }
                let platform = &self.machine.as_ref()?.platform;
                Refusal::of_platform(platform, &desired.payload, &terms.platforms)
            }
            None => {
                let builds = pool()?.desired.keys().cloned().collect();
                let payload = &pool()?.desired.values().next()?.payload;
                Some(Refusal::of_payload(payload, build, builds))
            }
        })
    }

    /// Why the desired version is not allowed now: an upgrade needs an edge between the payloads, and a kubelet that
    /// fits the API servers. A fresh node, or one of unknown version, needs no edge.
    #[must_use]
    pub fn version_refusal(&self) -> Option<String> {
        if let Some(refusal) = self.refusal() {
            return Some(refusal.to_string());
        }
        let pool = self.pool.as_ref()?;
        let desired = self.desired()?;
        let terms = pool.terms.get(&desired.payload)?;
        let build = self.host.facts.as_ref().map(|facts| &facts.os_build);
        let refused = build.and_then(|build| terms.refused_builds.get(build));
        if let Some(why) = refused.or(terms.skew.as_ref()) {
            return Some(why.clone());
        }
        let from = payload_of(self.version.as_deref()?)?;
        let fresh = self.first_bring_up() || self.leased_request == Some(LeasedRequest::Recreate);
        if fresh {
            None
        } else {
            terms.bars(&desired.payload, from)
        }
    }

    /// Whether a change that it needs is barred. A drain installs nothing, and the present version is always allowed.
    #[must_use]
    pub fn change_refusal(&self) -> Option<String> {
        let changes = self.leased_request != Some(LeasedRequest::Drain)
            && (self.differs() || self.leased_request.is_some());
        let absent = self
            .pool
            .as_ref()
            .filter(|pool| pool.absent && self.counts());
        match absent {
            // A Node is restored with the version that the host has.
            _ if !changes || self.repairs() => None,
            Some(pool) => Some(
                pool.held
                    .clone()
                    .unwrap_or_else(|| "there is no pool".into()),
            ),
            None => self.version_refusal(),
        }
    }

    /// Whether the pool's pause delays changes that do not disturb pods. A comparison renews trusted certificates and
    /// tokens that end also then.
    #[must_use]
    pub(super) fn live_held(&self) -> bool {
        let pool = self.pool.as_ref();
        pool.is_some_and(|pool| pool.paused && pool.holds_live)
    }

    /// Method for a change of `class`, by the pool's strategy and a person's request.
    #[must_use]
    pub fn how(&self, class: ChangeClass) -> ChangeStrategy {
        let own = self.own_host();
        let in_place = self
            .pool
            .as_ref()
            .is_some_and(|pool| pool.strategy == Strategy::InPlace);
        match (self.leased_request, class) {
            // No controller recreates such a host.
            (Some(LeasedRequest::Recreate), _) if own => ChangeStrategy::InPlace,
            (None, ChangeClass::Drain | ChangeClass::Replace) if own => ChangeStrategy::InPlace,
            (Some(LeasedRequest::Recreate), _) => ChangeStrategy::Recreate,
            (Some(LeasedRequest::Drain), _) => ChangeStrategy::Drain,
            (None, ChangeClass::Live | ChangeClass::Restart) => ChangeStrategy::Restart,
            (None, ChangeClass::Drain) if in_place => ChangeStrategy::InPlace,
            (None, ChangeClass::Drain | ChangeClass::Replace) => ChangeStrategy::Recreate,
        }
    }

    /// Why a change of this kind skips the drain, if it does: an annotation on the Machine, named by its key. It concerns
    /// only Machines that are deleted, not hosts that stay, nor a drain that a person requests.
    #[must_use]
    pub fn drain_skipped(&self, how: ChangeStrategy) -> Option<String> {
        let machine = self.machine.as_ref();
        let machine = machine.filter(|it| it.exclude_drain && how == ChangeStrategy::Recreate)?;
        Some(match machine.drain_excluded_by.as_slice() {
            [] => "an annotation exclude-node-draining is set on the Machine".to_owned(),
            [key] => format!("the annotation {key} is set on the Machine"),
            keys => format!(
                "the annotations {} are set on the Machine",
                keys.join(" and ")
            ),
        })
    }

    /// Whether a change waits for a person's approval.
    #[must_use]
    pub fn needs_approval(&self) -> bool {
        let manual = self
            .pool
            .as_ref()
            .is_some_and(|pool| pool.approval == Approval::Manual);
        let desired = self.desired().map(|desired| &desired.version);
        let approved = self.approved && desired.is_some() && self.approved_for.as_ref() == desired;
        manual && !approved && self.leased_request.is_none()
    }

    /// Whether the change under the lease began before its approval was required. It continues.
    #[must_use]
    pub fn began_before_approval(&self) -> bool {
        let changes = matches!(
            self.under_lease,
            Some(ChangeStrategy::Recreate | ChangeStrategy::InPlace | ChangeStrategy::Restart)
        );
        // Restoring a Node needs no approval, and a change that is given up needs none any more.
        let ends = matches!(self.phase, Phase::Undoing | Phase::Closing);
        let goes_on = self.lease.token().is_some() && self.differs() && !ends;
        changes && goes_on && self.needs_approval() && !self.approved
    }

    /// Clears the approval after the change is done or given up: the next change needs another one.
    pub(super) fn clear_approval(&mut self) {
        (self.approved, self.approved_for) = (false, None);
    }
}
