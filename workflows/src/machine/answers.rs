//! Outcomes of tasks. Facts about the host are stored in any phase; the stage's file handles the rest.

use super::{draft::Draft, phase::Phase, policy, table::TaskKind};
use dormer_proto::{
    machine::{HostFacts, Outcome, Section, Task},
    message::Failure,
};

/// Code of a call that the API server did not answer (`workers/src/kubernetes/error.rs`).
const API_UNREACHABLE: &str = "ApiUnreachable";

impl Draft<'_> {
    /// A worker did a task.
    pub(super) fn finished(&mut self, task: &Task, outcome: Outcome) {
        if self.closes_another(task) {
            return;
        }
        match &outcome {
            Outcome::CsrApproved { csr } => return self.csr_answered(csr, None),
            Outcome::CsrRefused { csr, why, foreign } => {
                return self.csr_answered(csr, Some((why.clone(), foreign.clone())));
            }
            Outcome::Probed {
                facts,
                host_key,
                node_name,
            } => {
                self.read(facts, host_key);
                self.state.not_compared = None;
                let renamed = self.renamed(node_name);
                // One that leaves is torn down, whatever it is called.
                if let Some(frozen) = renamed.filter(|_| !self.state.phase.leaving()) {
                    let message = format!(
                        "the host's Node was to be named {frozen}, and now it says {node_name}: give it its name back, or \
                         recreate the Machine"
                    );
                    let failure = Failure::lasting(policy::NAME_CHANGED, message);
                    if matches!(self.state.phase, Phase::Opening(_)) {
                        return self.gave_up(TaskKind::Probe, failure);
                    }
                    return self.fail(failure);
                }
                self.state.host.node_name = Some(node_name.clone());
                self.state.host.renamed = false;
            }
            Outcome::Planned {
                facts,
                host_key,
                generation,
                certificates,
                renews,
                ..
            } => {
                self.read(facts, host_key);
                self.state.not_compared = None;
                self.state.host.renews = *renews || *certificates;
                // A late comparison says nothing about changes that began after it.
                if matches!(self.state.phase, Phase::Adopting | Phase::Checking) {
                    self.state.host.generation = self.compared_generation(*generation);
                    self.state.host.half_changed = false;
                    self.state.target = self.state.desired().cloned().unwrap_or_default();
                }
            }
            Outcome::Converged {
                section, reboot, ..
            } => {
                self.state.host.restored = false;
                if *section == Section::Host && !self.state.phase.joined() {
                    self.state.host.configured = Some(self.now.at);
                    // What waits for a reboot starts no service.
                    self.state.host.stopped &= *reboot;
                    self.approve_csrs();
                }
            }
            Outcome::TornDown => {
                self.state.host.restored = false;
                self.state.host.torn_down = self.state.lease.token();
                // Whatever came has ended with its kubelet. To a Node that is schedulable pods come again once it is Ready.
                let schedulable = self.state.node.as_ref().is_some_and(|it| !it.cordoned);
                (self.state.host.stopped, self.state.host.uncordoned) = (true, schedulable);
            }
            // They report no lasting fact about the host.
            Outcome::RebootAsked
            | Outcome::NodeMarked
            | Outcome::NodeChecked { .. }
            | Outcome::FenceOpened { .. }
            | Outcome::FenceRefused { .. }
            | Outcome::FenceClosed
            | Outcome::Evicted { .. }
            | Outcome::PayloadSet
            | Outcome::FenceClosedMeanwhile
            | Outcome::NodeFound { .. }
            | Outcome::NodeAbsent
            | Outcome::HostForgotten
            | Outcome::MachineDeleted => {}
        }
        self.answered(outcome);
    }

    /// Handles a task that will not be tried again.
    pub(super) fn exhausted(&mut self, task: &Task, failure: Failure) {
        if let Task::ApproveCsr { csr, .. } = task {
            let why = match failure.code.as_str() {
                // All attempts passed their limits without an answer.
                "NoAnswer" => {
                    "no approver has reported on it in time: is a dormer with the role approver running?".into()
                }
                _ => failure.message,
            };
            return self.csr_answered(csr, Some((why, None)));
        }
        // Any other task belongs to an earlier step.
        if let Some(kind) = TaskKind::of(task)
            && self.state.phase.row().awaits.contains(&kind)
            && !self.closes_another(task)
        {
            // The machine is as it was. An API server that is away for hours is one trouble of the cluster, and no
            // person should have to mend it machine by machine.
            if failure.retry && failure.code == API_UNREACHABLE {
                // The host may be half torn down by the earlier order.
                if kind == TaskKind::TearDown && self.state.phase == Phase::TearingDown {
                    return self.tear_down();
                }
                return self.run(task.clone());
            }
            if self.ordered_again(task, &failure) {
                return;
            }
            self.gave_up(kind, failure);
        }
    }

    /// Expected name of its Node, if this name differs. A name from the platform may change; a host's own claim does
    /// not change it.
    fn renamed(&self, node_name: &str) -> Option<String> {
        let frozen = self.state.host.node_name.as_deref()?;
        let names = self.state.machine.as_ref().map(|machine| &machine.names);
        let by_platform = |name: &str| {
            names.is_some_and(|all| all.iter().any(|one| one.eq_ignore_ascii_case(name)))
        };
        let follows = by_platform(node_name) && !by_platform(frozen);
        (frozen != node_name && !follows).then(|| frozen.to_owned())
    }

    fn read(&mut self, facts: &HostFacts, host_key: &str) {
        if self.state.host.generation == 0 {
            // A host that an earlier run wrote to is taken over by the next generation.
            self.state.host.generation = facts.fence.generation + 1;
        }
        self.state.host.facts = Some(facts.clone());
        self.state.host.facts_at = Some(self.now.at);
        self.state.host.pin = Some(host_key.to_owned());
    }
}
