//! What workers say: an outcome in the phase that asked for it, or that no further attempt will be made.

use super::{
    draft::Draft,
    policy,
    state::{Change, Drain, How, LeasedRequest, Phase, Timer},
};
use dormer_proto::{
    machine::{Blocker, ChangeClass, FenceRefusal, HostFacts, Outcome, Section, Task},
    message::Failure,
    pool::Strategy,
};

/// Everything that a comparison found.
struct Comparison {
    class: Option<ChangeClass>,
    differs: Vec<String>,
    pods: u32,
}

impl Draft<'_> {
    pub(super) fn finished(&mut self, outcome: Outcome) {
        match (self.s.phase.clone(), outcome) {
            (_, Outcome::CsrApproved { csr }) => self.csr_answered(&csr, None),
            (_, Outcome::CsrRefused { csr, why }) => self.csr_answered(&csr, Some(why)),
            (
                phase,
                Outcome::Probed {
                    facts,
                    host_key,
                    node_name,
                },
            ) => {
                self.read(facts, host_key);
                self.s.host.node_name = Some(node_name);
                self.probed(phase);
            }
            (
                Phase::ConvergingHost { rebooted },
                Outcome::Converged {
                    reboot, boot_id, ..
                },
            ) => {
                self.host_converged(rebooted, reboot, boot_id);
            }
            (Phase::Rebooting { boot_id, .. }, Outcome::RebootAsked) => {
                self.enter(Phase::Rebooting {
                    boot_id,
                    asked: true,
                });
            }
            (Phase::ConvergingNode, Outcome::Converged { .. }) => self.enter(Phase::ReadyWait),
            (Phase::Applying { section }, Outcome::Converged { .. }) => match section {
                Section::Host => self.enter(Phase::Applying {
                    section: Section::Node,
                }),
                Section::Node => self.enter(Phase::Marking),
            },
            (Phase::Marking, Outcome::NodeMarked) => self.marked(),
            (
                phase,
                Outcome::Planned {
                    class,
                    differs,
                    facts,
                    host_key,
                    generation,
                    pods,
                    ..
                },
            ) => {
                self.read(facts, host_key);
                self.s.host.generation = generation;
                self.planned(
                    &phase,
                    Comparison {
                        class,
                        differs,
                        pods,
                    },
                );
            }
            (Phase::Opening(change), Outcome::FenceOpened { .. }) => self.opened(change),
            (Phase::Opening(_) | Phase::Evicting(..), Outcome::FenceRefused { why }) => {
                self.not_opened(why);
            }
            (
                Phase::Evicting(change, drain),
                Outcome::Evicted {
                    evicted,
                    left,
                    blockers,
                },
            ) => {
                self.evicted(change, drain, evicted, left, blockers);
            }
            (Phase::Evicting(..) | Phase::Deleting, Outcome::FenceClosedMeanwhile) => {
                self.s.note = Some("the token was closed by somebody else".into());
                self.enter(Phase::Undoing);
            }
            (Phase::Deleting, Outcome::MachineDeleted) => self.enter(Phase::Vanishing),
            (Phase::TearingDown, Outcome::TornDown) => self.enter(Phase::Reprobing),
            (Phase::Closing, Outcome::FenceClosed) => {
                self.s.approved = false;
                self.s.wish = None;
                self.closed("upgraded");
            }
            (Phase::Undoing, Outcome::FenceClosed) => self.closed("given up"),
            // A deletion that was asleep landed before the token was closed: the slot waits for the replacement.
            (Phase::Closing | Phase::Undoing, Outcome::MachineDeleted) => {
                self.enter(Phase::Vanishing);
            }
            (Phase::ClosingGone, Outcome::FenceClosed | Outcome::MachineDeleted) => {
                self.release(true);
                self.end_episode("recreated");
                self.enter(Phase::ReplacementWait);
            }
            // An answer to a step that was left meanwhile.
            _ => {}
        }
    }

    fn read(&mut self, facts: HostFacts, host_key: String) {
        if self.s.host.generation == 0 {
            // A host that an earlier run wrote to is taken over by the next generation.
            self.s.host.generation = facts.fence.generation + 1;
        }
        self.s.host.facts = Some(facts);
        self.s.host.pin = Some(host_key);
    }

    fn csr_answered(&mut self, name: &str, refused: Option<String>) {
        let Some((uid, csr)) = self
            .s
            .csrs
            .iter_mut()
            .find(|(_, csr)| csr.fact.name == name)
        else {
            return;
        };
        match refused {
            Some(why) => {
                self.s.note = Some(format!("{name} was not approved: {why}"));
                csr.asked = false;
                csr.refused = Some(why);
            }
            None => {
                let uid = uid.clone();
                self.s.csrs.remove(&uid);
            }
        }
    }

    // Provisioned and Reachable.

    fn probed(&mut self, phase: Phase) {
        let skew = self
            .s
            .host
            .facts
            .as_ref()
            .map_or(0, |facts| facts.clock_skew_ms);
        let skewed = skew.unsigned_abs() > policy::CLOCK_SKEW_MAX;
        match phase {
            Phase::Probing | Phase::KeyWait { .. } if skewed => {
                let message = format!("its clock is {} s off: run w32tm /resync", skew / 1_000);
                self.s.phase = Phase::Probing;
                self.lasting("ClockSkew", message);
            }
            Phase::Probing | Phase::KeyWait { .. } => {
                let has_node = self.s.node_name().is_some();
                self.approve_csrs();
                match has_node {
                    true => self.enter(Phase::Adopting),
                    false => self.enter(Phase::ConvergingHost { rebooted: false }),
                }
            }
            Phase::Reprobing => self.enter(Phase::ConvergingHost { rebooted: false }),
            Phase::Rebooting { boot_id, .. } => self.boot_checked(&boot_id),
            _ => {}
        }
    }

    fn boot_checked(&mut self, before: &str) {
        let same = self
            .s
            .host
            .facts
            .as_ref()
            .is_some_and(|facts| facts.boot_id == before);
        if same {
            self.timer(Timer::Again, policy::REBOOT_CHECK);
        } else {
            self.enter(Phase::ConvergingHost { rebooted: true });
        }
    }

    fn host_converged(&mut self, rebooted: bool, reboot: bool, boot_id: String) {
        match (reboot, rebooted) {
            (true, false) => self.enter(Phase::Rebooting {
                boot_id,
                asked: false,
            }),
            (true, true) => {
                let message = "the host asks for a second reboot; one is all a profile may need";
                self.lasting("RebootLoop", message);
            }
            (false, _) if self.s.node.is_some() => self.enter(Phase::ConvergingNode),
            (false, _) => self.enter(Phase::NodeWait),
        }
    }

    fn marked(&mut self) {
        self.s.version = Some(self.s.target.version.clone());
        self.s.note = None;
        self.s.moved = false;
        if self.s.lease.token().is_some() {
            self.enter(Phase::Closing);
        } else {
            self.end_episode("joined");
            self.enter(Phase::Serving);
        }
    }

    fn closed(&mut self, result: &str) {
        self.release(false);
        self.end_episode(result);
        if self.s.version.is_none() && !self.s.served {
            self.enter(Phase::Address);
        } else {
            self.enter(Phase::Serving);
        }
    }

    // Comparing.

    fn planned(&mut self, phase: &Phase, found: Comparison) {
        let desired = self.s.desired().cloned().unwrap_or_default();
        self.s.target = desired;
        match phase {
            Phase::Adopting => self.adopted(found),
            Phase::Checking => self.checked(found),
            _ => {}
        }
    }

    fn adopted(&mut self, found: Comparison) {
        let ready = self.s.node.as_ref().is_none_or(|node| node.ready);
        let open = self.s.stray_token().is_some();
        if !ready && found.pods == 0 && !open {
            // It serves nobody: it is configured without the lease (docs/decisions/0002-adoption.md).
            self.s.served = false;
            return self.enter(Phase::ConvergingHost { rebooted: false });
        }
        let installed = self
            .s
            .host
            .facts
            .as_ref()
            .and_then(|facts| facts.installed.clone());
        let carried = self.s.node.as_ref().and_then(|node| node.version.clone());
        self.s.version = carried.or(installed);
        self.s.served = true;
        self.end_episode("adopted");
        if open {
            let how = self.s.how(found.class.unwrap_or(ChangeClass::Restart));
            let differs = vec!["an upgrade that an earlier store began".into()];
            return self.want(Change { how, differs });
        }
        self.checked(found);
    }

    fn checked(&mut self, found: Comparison) {
        match found.class {
            None if self.s.differs() || self.unmarked() => self.enter(Phase::Marking),
            None => {
                self.s.moved = false;
                self.enter(Phase::Serving);
            }
            Some(_) if self.s.halt.is_some() => self.enter(Phase::Serving),
            Some(ChangeClass::Live) if self.s.barred().is_none() => self.enter(Phase::Applying {
                section: Section::Host,
            }),
            // A host with a new address is no change of the pool's: its services are told, nobody else is touched.
            Some(ChangeClass::Restart) if self.s.moved && !self.s.differs() => {
                self.enter(Phase::Applying {
                    section: Section::Host,
                });
            }
            Some(class) => {
                let how = self.s.how(class);
                self.want(Change {
                    how,
                    differs: found.differs,
                });
            }
        }
    }

    fn unmarked(&self) -> bool {
        let node = self.s.node.as_ref();
        node.is_some_and(|node| node.version.as_ref() != Some(&self.s.target.version))
    }

    // With the lease.

    fn opened(&mut self, change: Change) {
        let skip = self
            .s
            .machine
            .as_ref()
            .is_some_and(|machine| machine.exclude_drain);
        if change.how == How::Restart {
            return self.enter(Phase::ConvergingHost { rebooted: false });
        }
        if skip || self.s.node_name().is_none() {
            let why = if skip {
                "not drained: machine.openshift.io/exclude-node-draining is set on the Machine"
            } else {
                "not drained: it has no Node"
            };
            self.s.note = Some(why.into());
            return self.drained(change.how);
        }
        self.enter(Phase::Evicting(change, Drain::default()));
        match self.s.pool.as_ref().map_or(0, |pool| pool.drain_timeout_ms) {
            0 => {}
            ms => self.timer(Timer::Drain, ms),
        }
    }

    fn not_opened(&mut self, why: FenceRefusal) {
        match why {
            FenceRefusal::NodeServes => {
                self.s.note = Some("it was granted over the limit, and its Node serves".into());
                self.enter(Phase::Undoing);
            }
            FenceRefusal::Superseded => {
                self.s.note = Some("a newer token stands on its objects".into());
                self.enter(Phase::Undoing);
            }
            FenceRefusal::Gone => self.enter(Phase::Leaving),
        }
    }

    fn evicted(
        &mut self,
        change: Change,
        drain: Drain,
        evicted: u32,
        left: u32,
        blockers: Vec<Blocker>,
    ) {
        if left == 0 {
            return self.drained(change.how);
        }
        let evicted = drain.evicted.saturating_add(evicted);
        self.s.phase = Phase::Evicting(
            change,
            Drain {
                evicted,
                left,
                blockers,
                ..drain
            },
        );
        self.timer(Timer::Again, policy::EVICT_AGAIN);
    }

    fn drained(&mut self, how: How) {
        match how {
            How::Recreate => self.enter(Phase::Deleting),
            How::InPlace | How::Restart => self.enter(Phase::TearingDown),
            How::Drain => self.enter(Phase::Drained),
        }
    }

    // What was given up.

    pub(super) fn exhausted(&mut self, task: &Task, failure: Failure) {
        match (self.s.phase.clone(), task) {
            (_, Task::ApproveCsr { csr, .. }) => self.csr_answered(csr, Some(failure.message)),
            (Phase::Probing, Task::Probe { .. }) if failure.code == "AuthRejected" => {
                self.enter(Phase::KeyWait { since: self.now.at });
            }
            (Phase::KeyWait { since }, Task::Probe { .. }) => self.key_refused(since, failure),
            (phase @ (Phase::Probing | Phase::Adopting), task)
                if self.has_node() && asked(&phase, task) =>
            {
                self.adopted_unseen(failure);
            }
            (Phase::Checking, Task::Plan { .. }) => self.not_compared(failure),
            (Phase::Rebooting { .. }, Task::Probe { .. }) => {
                self.timer(Timer::Again, policy::REBOOT_CHECK);
            }
            (phase, task) if asked(&phase, task) => self.fail(failure),
            // A step that was left meanwhile.
            _ => {}
        }
    }

    fn has_node(&self) -> bool {
        self.s.node_name().is_some()
    }

    fn key_refused(&mut self, since: dormer_proto::id::Timestamp, failure: Failure) {
        let patient = self.now.at.since_ms(since) < policy::KEY_MAX;
        if patient && failure.code == "AuthRejected" {
            self.s.note = Some(failure.message);
            self.timer(Timer::Again, policy::KEY_AGAIN);
        } else {
            self.s.phase = Phase::Probing;
            self.fail(failure);
        }
    }

    /// A host that has a Node and does not answer is Joined at an unknown version, and says so.
    fn adopted_unseen(&mut self, failure: Failure) {
        self.s.version = self.s.node.as_ref().and_then(|node| node.version.clone());
        self.s.note = Some(format!(
            "adopted unseen: {}: {}",
            failure.code, failure.message
        ));
        self.end_episode("adopted unseen");
        self.s.served = true;
        self.enter_quietly();
    }

    /// Serving, without comparing at once what could not be compared just now.
    fn enter_quietly(&mut self) {
        self.s.phase = Phase::Serving;
        self.timer(Timer::Drift, policy::CHECK_AGAIN);
    }

    /// A host that cannot be compared can still be replaced, which needs no word from it.
    fn not_compared(&mut self, failure: Failure) {
        self.s.note = Some(format!(
            "not compared: {}: {}",
            failure.code, failure.message
        ));
        let recreate = self
            .s
            .pool
            .as_ref()
            .is_some_and(|pool| pool.strategy == Strategy::Recreate);
        if self.s.differs() && (recreate || self.s.wish == Some(LeasedRequest::Recreate)) {
            let differs = vec![format!(
                "the version, and the host does not answer: {}",
                failure.code
            )];
            self.want(Change {
                how: How::Recreate,
                differs,
            });
        } else {
            self.enter_quietly();
        }
    }
}

/// Whether `phase` is the one that waits for `task`.
fn asked(phase: &Phase, task: &Task) -> bool {
    match phase {
        Phase::Probing | Phase::KeyWait { .. } | Phase::Reprobing => {
            matches!(task, Task::Probe { .. })
        }
        Phase::Adopting | Phase::Checking => matches!(task, Task::Plan { .. }),
        Phase::ConvergingHost { .. } | Phase::ConvergingNode | Phase::Applying { .. } => {
            matches!(task, Task::Converge { .. })
        }
        Phase::Rebooting { .. } => matches!(task, Task::Reboot { .. }),
        Phase::Marking => matches!(task, Task::MarkNode { .. }),
        Phase::Opening(_) => matches!(task, Task::OpenFence { .. }),
        Phase::Evicting(..) => matches!(task, Task::Evict { .. } | Task::OpenFence { .. }),
        Phase::Deleting => matches!(task, Task::DeleteMachine { .. }),
        Phase::TearingDown => matches!(task, Task::TearDown { .. }),
        Phase::Closing | Phase::Undoing | Phase::ClosingGone => {
            matches!(task, Task::CloseFence { .. })
        }
        _ => false,
    }
}
