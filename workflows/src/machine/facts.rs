//! Facts from the watcher: Machine, Node, certificate requests and the pool's settings. This file handles what is the
//! same in every phase, and passes the rest to the stage's file as `PhaseObservation`.

use super::{
    draft::Draft,
    input::{NodeObservation, PhaseObservation},
    lease::Departure,
    phase::Phase,
    policy, removal,
};
use dormer_engine_core::Command;
use dormer_proto::{
    boot::same_boot,
    machine::{self, MachineFact, NodeFact, TokenMark},
    message::ObjectRef,
    pool::PoolSettings,
    work::Fact,
};

/// What the tokens on a machine's objects say.
struct Marks {
    /// A token that is not dormer's.
    forged: Option<String>,
    /// The open token of an earlier store.
    stray: Option<TokenMark>,
    /// An open token that this run has returned.
    restored: Option<TokenMark>,
}

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
                "CertificateSigningRequest" => drop(self.state.csrs.remove(&object.uid)),
                // The last published settings of the pool stay in force. Other kinds do not concern a machine.
                _ => {}
            },
        }
    }

    fn machine_observed(&mut self, mut machine: MachineFact) {
        let known = self.state.machine.as_ref().map(|m| m.neighbour.clone());
        machine.neighbour = machine.neighbour.after(&known.unwrap_or_default());
        let store = self.state.store();
        machine.store = machine.store.or(store);
        let marks = self.marks();
        let before = self.state.machine.replace(machine);
        self.marks_changed(marks);
        self.note_restore(store);
        if before.is_none() && self.state.node_name().is_some() {
            // It has a Node already, which may serve: adopted, not brought up (docs/decisions/0002-adoption.md).
            self.state.in_service = true;
            self.begin_episode("adoption");
        }
        let (deleting, ignored) = self
            .state
            .machine
            .as_ref()
            .map_or((false, false), |m| (m.deleting, m.ignored));
        self.node_named_is_absent();
        let moved = before.as_ref().and_then(|m| m.addresses.first())
            != self
                .state
                .machine
                .as_ref()
                .and_then(|m| m.addresses.first());
        if deleting {
            return self.machine_leaves();
        }
        if self.state.phase.leaving() {
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
        self.unclaimed_node_is_ours();
        self.approve_csrs();
        self.continue_refused();
        let failed = self
            .state
            .machine
            .as_ref()
            .is_some_and(|m| m.phase.as_deref() == Some("Failed"));
        self.observe(PhaseObservation::Machine { failed });
    }

    /// Handles a change of the label `ignore=true`. A change under the lease is undone if nothing is destroyed yet.
    /// After a tear-down the node is incomplete, so its configuration continues to the end.
    fn label_changed(&mut self, ignored: bool) {
        let held = self.state.lease.token().is_some();
        match (ignored, held) {
            (true, true) => {
                self.end_leased_request();
                self.observe(PhaseObservation::Ignored);
            }
            (true, false) => {
                self.end_leased_request();
                self.leave_queue();
                self.cancel_tasks();
                self.leave_rollout(Departure::RunRests);
            }
            // A comparison finds what happened meanwhile, as at an adoption.
            (false, false) => {
                // Others may have brought it up.
                self.state.host.configured = None;
                self.enter(Phase::Address);
            }
            // The lease is being returned, or the change finishes, and the machine joins the rollout again.
            (false, true) => {}
        }
    }

    /// Handles the arrival or departure of another operator. `ran`: it was there before.
    fn neighbour(&mut self, ran: bool) {
        match (ran, self.state.neighbour().is_some()) {
            (false, true) => {
                self.leave_queue();
                let drains = matches!(
                    self.state.phase,
                    Phase::Opening(_) | Phase::Evicting(..) | Phase::Drained | Phase::Deleting
                );
                if drains && !self.state.is_torn_down() {
                    // Nothing is known to be destroyed yet: the Node is uncordoned as it was.
                    self.give_back();
                } else if self.state.left_alone() {
                    self.cancel_tasks();
                }
            }
            (true, false) => {
                let row = self.state.phase.row();
                if row.even_paused || row.leaves {
                    return;
                }
                if self.state.phase == Phase::Serving {
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
        if self.state.phase == Phase::Deleting || self.state.phase.leaving() {
            return;
        }
        // A removal that failed for good waits for a person, however often the watcher repeats the object.
        if self.state.phase.removal_failed() {
            return removal::return_lease(self);
        }
        self.leave_queue();
        self.cancel_tasks();
        // Pods may run there, whether or not its bring-up has come to an end.
        self.state.in_service |= self.state.own_host() && self.state.node_serves();
        // A change under the lease may have cordoned it.
        self.state.removal.own_cordon |=
            self.state.own_host() && self.state.lease.token().is_some();
        self.begin_episode("removal");
        let note = if self.state.own_host() {
            "its entry was taken away"
        } else {
            "somebody else deletes the Machine"
        };
        self.state.note = Some(note.into());
        self.enter(Phase::Leaving);
    }

    fn machine_gone(&mut self) {
        self.state.machine_gone = true;
        if matches!(
            self.state.phase,
            Phase::ClosingGone | Phase::ReplacementWait
        ) {
            return;
        }
        let by_us = matches!(self.state.phase, Phase::Deleting | Phase::Vanishing);
        self.cancel_tasks();
        self.leave_queue();
        if self.state.lease.token().is_some() {
            return self.enter(Phase::ClosingGone);
        }
        let gap = self.state.counts() && !by_us;
        self.leave_rollout(Departure::MachineGone { gap });
        self.end_episode("gone");
        self.enter(Phase::Gone);
    }

    fn node_observed(&mut self, node: NodeFact) {
        let ours = self
            .state
            .machine
            .as_ref()
            .and_then(|m| m.provider_id.clone());
        if let (Some(ours), Some(theirs)) = (&ours, &node.provider_id)
            && !machine::same_provider_id(ours, theirs)
        {
            // An old Node of the same name (scenario 40).
            self.state.note = Some(format!(
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
            self.state.note = Some(format!(
                "the Node {} was there before its first certificate{unnamed}: it is not taken for this machine's",
                node.name
            ));
            self.state.unclaimed_node = Some(node);
            return;
        }
        self.state.unclaimed_node = None;
        let ready = node.ready;
        let cordoned = node.cordoned;
        let boot = node.boot_id.clone();
        let uid = node.uid.clone();
        let marks = self.marks();
        let before = self.state.node.replace(node);
        self.marks_changed(marks);
        self.state.node_is(ready, self.now.at);
        let served = before.as_ref().is_some_and(|n| n.ready && !n.cordoned);
        if self.state.node_serves() && !served {
            self.served_by_others();
        }
        self.approve_csrs();
        let rebooted = before
            .as_ref()
            .is_some_and(|n| !n.boot_id.is_empty() && !same_boot(&n.boot_id, &boot));
        // A Node that was deleted and registered again is schedulable.
        let anew = before.as_ref().is_none_or(|n| n.uid != uid);
        // What a kubelet said before its tear-down makes no Node Ready again.
        let silent = anew || before.as_ref().is_some_and(|n| !n.ready);
        self.state.host.stopped &= !(ready && silent);
        let was_cordoned = before.is_some_and(|n| n.cordoned);
        let uncordoned = !cordoned && (was_cordoned || anew);
        self.state.host.uncordoned |= uncordoned && self.state.lease.token().is_some();
        self.cordon_changed(cordoned, was_cordoned);
        self.observe(PhaseObservation::Node(NodeObservation {
            ready,
            cordoned,
            rebooted,
            uncordoned,
        }));
    }

    /// What the tokens on its objects say.
    fn marks(&self) -> Marks {
        Marks {
            forged: self
                .state
                .forged_token()
                .filter(|_| self.state.node.is_some()),
            stray: self.state.stray_token(),
            restored: self.state.restored_token(),
        }
    }

    /// Tells people of a token that dormer ignores, has an upgrade finished that an earlier store began, and closes a
    /// token that the restore of an older etcd brought back. That one was known to be closed: facts that are late show the
    /// last token open for a while after its close.
    fn marks_changed(&mut self, before: Marks) {
        let now = self.marks();
        if now.forged != before.forged && (now.forged.is_some() || self.state.note == before.forged)
        {
            self.state.note = now.forged;
        }
        if now.stray.is_some() && now.stray != before.stray {
            self.start_pending_change();
        }
        self.state.restored &= now.restored.is_some();
        if now.restored.is_some() && before.restored.is_none() {
            self.close_restored();
        }
    }

    /// A request overrides the cordon that its author knew. The fact of that one may come a moment later.
    fn cordon_changed(&mut self, cordoned: bool, was_cordoned: bool) {
        if !cordoned {
            self.state.request_progress.over_cordon = false;
        } else if !was_cordoned && self.state.is_cordoned_by_others() {
            let by_request = self
                .state
                .request_progress
                .at
                .filter(|_| self.state.leased_request.is_some());
            let meant =
                by_request.is_some_and(|at| self.now.at.since_ms(at) < policy::SAME_MOMENT_MS);
            self.state.request_progress.over_cordon |= meant;
        }
    }

    /// Whether a Node of the expected name is this Machine's. The provider id decides if both have one. Otherwise the
    /// Machine's `nodeRef` decides, or the Node appeared after its first certificate was approved.
    fn is_ours(&self, node: &NodeFact) -> bool {
        let machine = self.state.machine.as_ref();
        let provider = machine.and_then(|machine| machine.provider_id.as_ref());
        let linked = machine.and_then(|machine| machine.node.as_ref());
        let same = provider.is_some() && node.provider_id.is_some();
        let known = self
            .state
            .node
            .as_ref()
            .is_some_and(|known| known.uid == node.uid);
        same || known || linked == Some(&node.name) || self.state.host.certified
    }

    /// Takes the Node that was not known to be this Machine's, if something says so now: its `nodeRef`, or the answer about
    /// its first certificate. A watch shows the Node of a fast kubelet before them, and shows an unchanged Node only once.
    pub(super) fn unclaimed_node_is_ours(&mut self) {
        let unclaimed = self.state.unclaimed_node.clone();
        if let Some(node) = unclaimed.filter(|node| self.is_ours(node)) {
            self.node_observed(node);
        }
    }

    /// Handles a full list without the Node that `nodeRef` names, if `nodeRef` has no UID for the missing Node.
    fn node_named_is_absent(&mut self) {
        let machine = self.state.machine.as_ref();
        let absent = machine
            .filter(|machine| machine.node_absent)
            .and_then(|machine| machine.node.as_ref());
        let known = self.state.node.as_ref();
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
        let unclaimed = &mut self.state.unclaimed_node;
        drop(unclaimed.take_if(|node| node.uid == uid));
        if self.state.node.as_ref().is_none_or(|node| node.uid != uid) {
            // An older Node of its name may have blocked a certificate.
            return self.recheck_csrs();
        }
        self.state.node = None;
        self.state.node_is(false, self.now.at);
        self.observe(PhaseObservation::NodeGone);
    }

    /// Handles new settings while a change is being refused. If they hold nothing, the change is considered again as soon as
    /// the lease is returned.
    fn pool_may_allow(&mut self, before: Option<&PoolSettings>) {
        let pool = self.state.pool.as_ref();
        let Some(pool) = pool.filter(|pool| pool.held.is_none()) else {
            self.state.allowed_again = false;
            return;
        };
        // An older watcher names no UID: whether its pool was made again is not known.
        let another = |it: &PoolSettings| {
            let uids = it.uid.as_ref().zip(pool.uid.as_ref());
            uids.is_some_and(|(one, other)| one != other)
        };
        let refused = before.is_some_and(|it| it.held.is_some() || another(it));
        if std::mem::take(&mut self.state.refused_lately) {
            // Other holds of dormer name their cause.
            if self.state.held_why.is_none() {
                self.end_own_hold();
            }
        } else {
            // The answer of a worker that read the pool before may still come.
            self.state.allowed_again |= refused && self.state.lease.token().is_some();
        }
    }

    fn pool_observed(&mut self, pool: PoolSettings) {
        let known = self.state.pool.as_mut().filter(|known| !known.absent);
        if let (true, Some(known)) = (pool.absent, known) {
            // The last settings hold after the pool is gone: no serving node falls back to defaults.
            known.held = pool.held;
            known.held_cure = pool.held_cure;
            known.paused = true;
            self.state.allowed_again = false;
            return;
        }
        let rules = |pool: &PoolSettings| (pool.strategy, pool.approval);
        let drains = |pool: &PoolSettings| (pool.drain_timeout_ms, pool.after_timeout);
        let held = self.state.live_held();
        let before = self.state.pool.replace(pool);
        let resumed = held && !self.state.live_held();
        self.pool_may_allow(before.as_ref());
        let now = self.state.pool.as_ref();
        let differ = before.as_ref().zip(now);
        let (rules, drain) = differ.map_or((false, false), |(before, now)| {
            (rules(before) != rules(now), drains(before) != drains(now))
        });
        let wanted = self.state.desired().map(|desired| desired.version.clone());
        let retarget = wanted.is_some_and(|version| version != self.state.target.version);
        self.observe(PhaseObservation::Pool {
            retarget,
            rules,
            drain,
            resumed,
        });
    }
}
