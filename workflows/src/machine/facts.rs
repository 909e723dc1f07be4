//! Facts from the watcher: Machine, Node, certificate requests and the pool's settings. This file handles what is the
//! same in every phase, and passes the rest to the stage's file as `PhaseObservation`.

use super::{draft::Draft, input::PhaseObservation, phase::Phase, policy, removal};
use dormer_engine_core::Command;
use dormer_proto::{
    boot::same_boot,
    machine::{self, MachineFact, NodeFact, TokenMark},
    message::ObjectRef,
    pool::PoolSettings,
    work::Fact,
};

impl Draft<'_> {
    pub(super) fn observed(&mut self, object: &ObjectRef, fact: Option<Fact>) {
        match fact {
            Some(Fact::Machine(machine::Fact::Machine(machine))) => self.machine_observed(machine),
            Some(Fact::Machine(machine::Fact::Node(node))) => self.node_observed(node),
            Some(Fact::Machine(machine::Fact::Csr(csr))) => self.on_csr(object, csr),
            Some(Fact::Machine(machine::Fact::Pool(pool))) => self.pool_observed(pool),
            // Facts for rollouts, which a machine never receives.
            Some(Fact::Rollout(_)) => {}
            None => match object.kind.as_str() {
                "Machine" => self.machine_gone(),
                "Node" => self.node_gone(&object.uid),
                "CertificateSigningRequest" => drop(self.s.csrs.remove(&object.uid)),
                // The last published settings of the pool stay in force. Other kinds do not concern a machine.
                _ => {}
            },
        }
    }

    fn machine_observed(&mut self, mut machine: MachineFact) {
        let known = self.s.machine.as_ref().map(|m| m.neighbour.clone());
        machine.neighbour = machine.neighbour.after(&known.unwrap_or_default());
        let marks = self.marks();
        let before = self.s.machine.replace(machine);
        self.marks_changed(marks);
        if before.is_none() && self.s.node_name().is_some() {
            // It has a Node already, which may serve: adopted, not brought up (docs/decisions/0002-adoption.md).
            self.s.in_service = true;
            self.begin_episode("adoption");
        }
        let (deleting, ignored) = self
            .s
            .machine
            .as_ref()
            .map_or((false, false), |m| (m.deleting, m.ignored));
        self.node_named_is_absent();
        let moved = before.as_ref().and_then(|m| m.addresses.first())
            != self.s.machine.as_ref().and_then(|m| m.addresses.first());
        if deleting {
            return self.machine_leaves();
        }
        if self.s.phase.leaving() {
            // An outdated fact of a Machine that is being deleted.
            return;
        }
        if ignored != before.as_ref().is_some_and(|m| m.ignored) {
            self.label_changed(ignored);
        }
        self.neighbour(
            before
                .as_ref()
                .is_some_and(|m| m.neighbour.runs().is_some()),
        );
        if moved {
            self.observe(PhaseObservation::Address);
        }
        self.approve_csrs();
        let failed = self
            .s
            .machine
            .as_ref()
            .is_some_and(|m| m.phase.as_deref() == Some("Failed"));
        self.observe(PhaseObservation::Machine { failed });
    }

    /// Handles a change of the label `ignore=true`. A change under the lease is undone if nothing is destroyed yet.
    /// After a tear-down the node is incomplete, so its configuration continues to the end.
    fn label_changed(&mut self, ignored: bool) {
        let held = self.s.lease.token().is_some();
        match (ignored, held) {
            (true, true) => {
                self.end_leased_request();
                self.observe(PhaseObservation::Ignored);
            }
            (true, false) => {
                self.end_leased_request();
                self.withdraw();
                self.cancel_tasks();
                self.leave_rollout(false, true);
            }
            // A comparison finds what happened meanwhile, as at an adoption.
            (false, false) => {
                // Others may have brought it up.
                self.s.host.configured = None;
                self.enter(Phase::Address);
            }
            // The lease is being returned, or the change finishes, and the machine joins the rollout again.
            (false, true) => {}
        }
    }

    /// Handles the arrival or departure of another operator. `ran`: it was there before.
    fn neighbour(&mut self, ran: bool) {
        match (ran, self.s.neighbour().is_some()) {
            (false, true) => {
                self.withdraw();
                let whole = matches!(
                    self.s.phase,
                    Phase::Opening(_) | Phase::Evicting(..) | Phase::Drained | Phase::Deleting
                );
                if whole {
                    // Nothing is known to be destroyed yet: the Node is uncordoned as it was.
                    self.give_back();
                } else if self.s.left_alone() {
                    self.cancel_tasks();
                }
            }
            (true, false) => {
                let row = self.s.phase.row();
                if row.even_paused || row.leaves {
                    return;
                }
                if self.s.phase == Phase::Serving {
                    // A comparison shows what others did to the host meanwhile.
                    self.enter(Phase::Checking);
                } else {
                    self.begin_again();
                }
            }
            (false, false) | (true, true) => {}
        }
    }

    /// Handles the Machine's deletionTimestamp, from our own order or another client.
    fn machine_leaves(&mut self) {
        if self.s.phase == Phase::Deleting || self.s.phase.leaving() {
            return;
        }
        // A removal that failed for good waits for a person, however often the watcher repeats the object.
        if self.s.phase.removal_failed() {
            return removal::return_lease(self);
        }
        self.withdraw();
        self.cancel_tasks();
        // Pods may run there, whether or not its bring-up has come to an end.
        self.s.in_service |= self.s.own_host() && self.s.node_serves();
        self.begin_episode("removal");
        let note = if self.s.own_host() {
            "its entry was taken away"
        } else {
            "somebody else deletes the Machine"
        };
        self.s.note = Some(note.into());
        self.enter(Phase::Leaving);
    }

    fn machine_gone(&mut self) {
        self.s.machine_gone = true;
        if matches!(self.s.phase, Phase::ClosingGone | Phase::ReplacementWait) {
            return;
        }
        let by_us = matches!(self.s.phase, Phase::Deleting | Phase::Vanishing);
        self.cancel_tasks();
        self.withdraw();
        if self.s.lease.token().is_some() {
            return self.enter(Phase::ClosingGone);
        }
        self.leave_rollout(self.s.counts() && !by_us, false);
        self.end_episode("gone");
        self.enter(Phase::Gone);
    }

    fn node_observed(&mut self, node: NodeFact) {
        let ours = self.s.machine.as_ref().and_then(|m| m.provider_id.clone());
        if let (Some(ours), Some(theirs)) = (&ours, &node.provider_id)
            && !machine::same_provider_id(ours, theirs)
        {
            // An old Node of the same name (scenario 40).
            self.s.note = Some(format!(
                "the Node {} belongs to {theirs}, not {ours}",
                node.name
            ));
            return;
        }
        if !self.is_ours(&node) {
            // Another machine's Node, with the name that this host claims (scenario 40).
            let unnamed = match (ours, &node.provider_id) {
                (Some(ours), None) => format!(", and has no providerID: this machine's is {ours}"),
                _ => String::new(),
            };
            self.s.note = Some(format!(
                "the Node {} was there before its first certificate{unnamed}: it is not taken for this machine's",
                node.name
            ));
            return;
        }
        let ready = node.ready;
        let cordoned = node.cordoned;
        let boot = node.boot_id.clone();
        let marks = self.marks();
        let before = self.s.node.replace(node);
        self.marks_changed(marks);
        self.s.node_is(ready, self.now.at);
        let served = before.as_ref().is_some_and(|n| n.ready && !n.cordoned);
        if self.s.node_serves() && !served {
            self.served_by_others();
        }
        self.approve_csrs();
        let rebooted = before
            .as_ref()
            .is_some_and(|n| !n.boot_id.is_empty() && !same_boot(&n.boot_id, &boot));
        let was_cordoned = before.is_some_and(|n| n.cordoned);
        let uncordoned = !cordoned && was_cordoned;
        self.cordon_changed(cordoned, was_cordoned);
        self.observe(PhaseObservation::Node {
            ready,
            cordoned,
            rebooted,
            uncordoned,
        });
    }

    /// What the tokens on its objects say: a token that is not dormer's, and the open one of an earlier store.
    fn marks(&self) -> (Option<String>, Option<TokenMark>) {
        let forged = self.s.forged_token().filter(|_| self.s.node.is_some());
        (forged, self.s.stray_token())
    }

    /// Tells people of a token that another client wrote, and has an upgrade finished that an earlier store began.
    fn marks_changed(
        &mut self,
        (forged_before, stray_before): (Option<String>, Option<TokenMark>),
    ) {
        let (forged, stray) = self.marks();
        if forged.is_some() && forged != forged_before {
            self.s.note = forged;
        }
        if stray.is_some() && stray != stray_before {
            self.consider();
        }
    }

    /// A request overrides the cordon that its author knew. The fact of that one may come a moment later.
    fn cordon_changed(&mut self, cordoned: bool, was_cordoned: bool) {
        if !cordoned {
            self.s.request_progress.over_cordon = false;
        } else if !was_cordoned && self.s.is_cordoned_by_others() {
            let by_request = self
                .s
                .request_progress
                .at
                .filter(|_| self.s.leased_request.is_some());
            let meant =
                by_request.is_some_and(|at| self.now.at.since_ms(at) < policy::SAME_MOMENT_MS);
            self.s.request_progress.over_cordon |= meant;
        }
    }

    /// Whether a Node of the expected name is this Machine's. The provider id decides if both have one. Otherwise the
    /// Machine's `nodeRef` decides, or the Node appeared after its first certificate was approved.
    fn is_ours(&self, node: &NodeFact) -> bool {
        let machine = self.s.machine.as_ref();
        let provider = machine.and_then(|machine| machine.provider_id.as_ref());
        let linked = machine.and_then(|machine| machine.node.as_ref());
        let same = provider.is_some() && node.provider_id.is_some();
        let known = self
            .s
            .node
            .as_ref()
            .is_some_and(|known| known.uid == node.uid);
        same || known || linked == Some(&node.name) || self.s.host.certified
    }

    /// Handles a full list without the Node that `nodeRef` names, if `nodeRef` has no UID for the missing Node.
    fn node_named_is_absent(&mut self) {
        let machine = self.s.machine.as_ref();
        let absent = machine
            .filter(|machine| machine.node_absent)
            .and_then(|machine| machine.node.as_ref());
        let known = self.s.node.as_ref();
        let Some(node) = known.filter(|node| absent == Some(&node.name)) else {
            return;
        };
        let uid = node.uid.clone();
        // If the Node exists after all, its next fact counts as new.
        self.push(Command::ForgetFact(ObjectRef {
            cluster: String::new(),
            kind: "Node".to_owned(),
            uid: uid.clone(),
        }));
        self.node_gone(&uid);
    }

    fn node_gone(&mut self, uid: &str) {
        if self.s.node.as_ref().is_none_or(|node| node.uid != uid) {
            // An older Node of its name may have blocked a certificate.
            return self.recheck_csrs();
        }
        self.s.node = None;
        self.s.node_is(false, self.now.at);
        self.observe(PhaseObservation::NodeGone);
    }

    fn pool_observed(&mut self, pool: PoolSettings) {
        let known = self.s.pool.as_mut().filter(|known| !known.absent);
        if let (true, Some(known)) = (pool.absent, known) {
            // The last settings hold after the pool is gone: no serving node falls back to defaults.
            known.held = pool.held;
            known.held_cure = pool.held_cure;
            known.paused = true;
            return;
        }
        let rules = |pool: &PoolSettings| (pool.strategy, pool.approval);
        let drains = |pool: &PoolSettings| (pool.drain_timeout_ms, pool.after_timeout);
        let held = self.s.live_held();
        let before = self.s.pool.replace(pool);
        let resumed = held && !self.s.live_held();
        let now = self.s.pool.as_ref();
        let differ = before.as_ref().zip(now);
        let (rules, drain) = differ.map_or((false, false), |(before, now)| {
            (rules(before) != rules(now), drains(before) != drains(now))
        });
        let wanted = self.s.desired().map(|desired| desired.version.clone());
        let retarget = wanted.is_some_and(|version| version != self.s.target.version);
        self.observe(PhaseObservation::Pool {
            retarget,
            rules,
            drain,
            resumed,
        });
    }
}
