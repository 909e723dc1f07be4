//! What the world says: Machine, Node, certificates and the pool's settings.

use super::{
    draft::Draft,
    state::{CSRS_MAX, Csr, Halt, Phase},
};
use dormer_proto::{
    machine::{self, CsrFact, MachineFact, NodeFact},
    message::ObjectRef,
    pool::PoolSettings,
    rollout,
    work::Fact,
};

impl Draft<'_> {
    pub(super) fn observed(&mut self, object: &ObjectRef, fact: Option<Fact>) {
        match fact {
            Some(Fact::Machine(machine::Fact::Machine(machine))) => self.machine_observed(machine),
            Some(Fact::Machine(machine::Fact::Node(node))) => self.on_node(node),
            Some(Fact::Machine(machine::Fact::Csr(csr))) => self.on_csr(&object.uid, csr),
            Some(Fact::Machine(machine::Fact::Pool(pool))) => self.on_pool(pool),
            Some(Fact::Rollout(_)) => {}
            None => match object.kind.as_str() {
                "Machine" => self.machine_gone(),
                "Node" => self.node_gone(&object.uid),
                "CertificateSigningRequest" => drop(self.s.csrs.remove(&object.uid)),
                _ => {}
            },
        }
    }

    fn machine_observed(&mut self, machine: MachineFact) {
        let before = self.s.machine.replace(machine);
        if before.is_none() && self.s.node_name().is_some() {
            // It has a Node already, which may serve: adopted, not brought up (design.md §3, Adoption).
            self.s.served = true;
            self.begin_episode("adoption");
        }
        let (deleting, ignored) = self
            .s
            .machine
            .as_ref()
            .map_or((false, false), |m| (m.deleting, m.ignored));
        let moved = before.as_ref().and_then(|m| m.addresses.first())
            != self.s.machine.as_ref().and_then(|m| m.addresses.first());
        if deleting {
            return self.machine_leaves();
        }
        self.ignored(ignored);
        if moved {
            self.address_changed();
        }
        self.certificates_may_fit_now(before.as_ref());
        let failed = self
            .s
            .machine
            .as_ref()
            .is_some_and(|m| m.phase.as_deref() == Some("Failed"));
        match self.s.phase.clone() {
            Phase::Address if failed => {
                let error = self.s.machine.as_ref().and_then(|m| m.error.clone());
                self.lasting(
                    "MachineFailed",
                    error.unwrap_or_else(|| "no reason given".into()),
                );
            }
            Phase::OwnerWait(change) => self.want(change),
            _ => {}
        }
    }

    fn ignored(&mut self, ignored: bool) {
        match (ignored, &self.s.halt) {
            (true, halt) if *halt != Some(Halt::Ignored) => {
                self.withdraw();
                self.s.halt = Some(Halt::Ignored);
                if self.s.lease.token().is_none() {
                    self.cancel_tasks();
                    self.leave_rollout(false, true);
                }
            }
            (false, Some(Halt::Ignored)) => {
                self.s.halt = None;
                // Whatever happened to it meanwhile is found out by looking, as at an adoption.
                self.enter(Phase::Address);
            }
            _ => {}
        }
    }

    /// A new address: what is under way goes to the old one.
    fn address_changed(&mut self) {
        match self.s.phase.clone() {
            Phase::Address => self.enter(Phase::Address),
            Phase::KeyWait { .. } => {
                self.cancel_tasks();
                self.enter(Phase::Probing);
            }
            Phase::Serving => {
                self.s.moved = true;
                self.enter(Phase::Checking);
            }
            Phase::Failed { from, .. } => self.go_on_from(*from),
            phase if on_the_host(&phase) => {
                self.cancel_tasks();
                self.enter(phase);
            }
            _ => {}
        }
    }

    /// A certificate that was refused for a name or address too many may fit the Machine as it is now.
    fn certificates_may_fit_now(&mut self, before: Option<&MachineFact>) {
        let same = |m: &MachineFact| {
            self.s
                .machine
                .as_ref()
                .is_some_and(|now| now.addresses == m.addresses && now.names == m.names)
        };
        if !before.is_some_and(same) {
            for csr in self.s.csrs.values_mut() {
                csr.refused = None;
            }
        }
        self.approve_csrs();
    }

    /// The Machine has a deletionTimestamp: by our own order, or by somebody else's.
    fn machine_leaves(&mut self) {
        if self.s.phase == Phase::Deleting || self.s.phase.leaving() {
            return;
        }
        self.withdraw();
        self.cancel_tasks();
        self.begin_episode("removal");
        self.s.note = Some("somebody else deletes the Machine".into());
        self.enter(Phase::Leaving);
    }

    fn machine_gone(&mut self) {
        if matches!(self.s.phase, Phase::ClosingGone | Phase::ReplacementWait) {
            return;
        }
        let by_us = matches!(self.s.phase, Phase::Deleting | Phase::Vanishing);
        self.cancel_tasks();
        self.withdraw();
        if self.s.lease.token().is_some() {
            return self.enter(Phase::ClosingGone);
        }
        self.leave_rollout(self.s.served && !by_us, false);
        self.end_episode("gone");
        self.enter(Phase::Gone);
    }

    /// The rollout hears that it is a member no more.
    /// `stays`: only the run ends, the Machine is still there.
    pub(super) fn leave_rollout(&mut self, gap: bool, stays: bool) {
        if self.s.reported.take().is_none() {
            return;
        }
        let machine = self.s.machine.as_ref();
        self.report_to_rollout(rollout::Signal::Left {
            owner: machine
                .and_then(|m| m.owner.as_ref())
                .map(|owner| owner.uid.clone()),
            gap,
            stays,
            token: self.s.lease.token(),
            deleted: machine.and_then(|m| m.deleted),
        });
    }

    fn on_node(&mut self, node: NodeFact) {
        let ours = self.s.machine.as_ref().and_then(|m| m.provider_id.clone());
        if let (Some(ours), Some(theirs)) = (&ours, &node.provider_id)
            && ours != theirs
        {
            // An old Node of the same name (field.md §5, 40).
            self.s.note = Some(format!(
                "the Node {} belongs to {theirs}, not {ours}",
                node.name
            ));
            return;
        }
        let ready = node.ready;
        let cordoned = node.cordoned;
        let boot = node.boot_id.clone();
        let before = self.s.node.replace(node);
        let rebooted = before
            .as_ref()
            .is_some_and(|n| !n.boot_id.is_empty() && n.boot_id != boot);
        match self.s.phase.clone() {
            Phase::NodeWait => self.enter(Phase::ConvergingNode),
            Phase::ReadyWait if ready => self.enter(Phase::Soaking),
            Phase::Soaking if !ready => self.enter(Phase::ReadyWait),
            // A repeat of Open: there is no other way to cordon (design.md §3).
            Phase::Evicting(change, _) if !cordoned => {
                self.s.note = Some("somebody uncordoned the Node; it is cordoned again".into());
                self.open(&change);
            }
            // The host rebooted by itself: whether everything still stands is found by looking.
            Phase::Serving if rebooted && !self.halted() => self.enter(Phase::Checking),
            Phase::Failed { from, .. } if rebooted => self.go_on_from(*from),
            _ => {}
        }
    }

    fn node_gone(&mut self, uid: &str) {
        if self.s.node.as_ref().is_none_or(|node| node.uid != uid) {
            return;
        }
        self.s.node = None;
        match self.s.phase {
            Phase::ConvergingNode | Phase::ReadyWait | Phase::Soaking | Phase::Marking => {
                self.cancel_tasks();
                self.enter(Phase::NodeWait);
            }
            Phase::Serving => self.enter(Phase::Serving),
            _ => {}
        }
    }

    fn on_csr(&mut self, uid: &str, csr: CsrFact) {
        if !csr.pending {
            self.s.csrs.remove(uid);
            return;
        }
        if self.s.csrs.len() >= CSRS_MAX && !self.s.csrs.contains_key(uid) {
            return;
        }
        let new = Csr {
            fact: csr.clone(),
            asked: false,
            refused: None,
        };
        self.s.csrs.entry(uid.to_owned()).or_insert(new).fact = csr;
        self.approve_csrs();
    }

    fn on_pool(&mut self, pool: PoolSettings) {
        let known = self.s.pool.as_mut().filter(|known| !known.absent);
        if let (true, Some(known)) = (pool.absent, known) {
            // What the pool said before it was gone holds: nothing that serves falls back to defaults.
            (known.held, known.paused) = (pool.held, true);
            return;
        }
        self.s.pool = Some(pool);
        let wanted = self.s.desired().map(|desired| desired.version.clone());
        let retarget = wanted.is_some_and(|version| version != self.s.target.version);
        match self.s.phase.clone() {
            Phase::Adopting => {
                self.cancel_tasks();
                self.enter(Phase::Adopting);
            }
            Phase::PoolWait => self.enter(Phase::ConvergingHost { rebooted: false }),
            Phase::Serving => self.consider(),
            // What was compared, and how it would be changed, may be otherwise now.
            Phase::ApprovalWait(_) | Phase::OwnerWait(_) => self.enter(Phase::Checking),
            Phase::LeaseWait(_) if retarget && self.s.wish.is_none() => {
                self.withdraw();
                self.enter(Phase::Checking);
            }
            Phase::Checking => {
                self.cancel_tasks();
                self.enter(Phase::Checking);
            }
            // The newest that is known is what a machine on its way comes up with; it is not drained twice.
            phase if retarget && converging(&phase) => {
                self.cancel_tasks();
                self.enter(Phase::ConvergingHost { rebooted: false });
            }
            Phase::Failed { from, .. } if retarget => self.go_on_from(*from),
            _ => {}
        }
    }
}

/// Whether a worker is, or will at once be, at the host.
fn on_the_host(phase: &Phase) -> bool {
    matches!(
        phase,
        Phase::Probing
            | Phase::Adopting
            | Phase::ConvergingHost { .. }
            | Phase::Rebooting { .. }
            | Phase::ConvergingNode
            | Phase::Checking
            | Phase::Applying { .. }
            | Phase::TearingDown
            | Phase::Reprobing
    )
}

/// Whether the machine is on its way to the version that it was last told.
fn converging(phase: &Phase) -> bool {
    matches!(
        phase,
        Phase::ConvergingHost { .. }
            | Phase::NodeWait
            | Phase::ConvergingNode
            | Phase::ReadyWait
            | Phase::Soaking
            | Phase::Marking
    )
}
