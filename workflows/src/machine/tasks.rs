//! Tasks of a machine, with the arguments from the run's knowledge of Machine, host and lease.

use super::{
    change::{Change, ChangeStrategy},
    draft::{Draft, REPAIR_AFTER_MS},
    phase::{Phase, Timer},
    policy,
    state::Lease,
};
use dormer_engine_core::Command;
use dormer_proto::{
    checks::NodeExpectation,
    id::LeaseToken,
    machine::{Guard, HostRef, Section, Task},
    pool::DEFAULT_POOL,
};

impl Draft<'_> {
    fn host(&self) -> HostRef {
        let platform = self
            .s
            .machine
            .as_ref()
            .map(|m| m.platform.clone())
            .unwrap_or_default();
        let user = self.s.machine.as_ref().and_then(|m| m.user.clone());
        // Azure's images know `capi`, all others `Administrator`.
        let by_platform = if platform == "Azure" {
            "capi"
        } else {
            "Administrator"
        };
        HostRef {
            machine: self.s.machine_ref(),
            address: self.s.address().unwrap_or_default().to_owned(),
            user: user.unwrap_or_else(|| by_platform.to_owned()),
            pin: self.s.host.pin.clone(),
            platform,
        }
    }

    fn node(&self) -> Option<String> {
        self.s.node_name()
    }

    fn token(&self) -> LeaseToken {
        self.s.lease.token().unwrap_or_default()
    }

    /// Conditions that the worker checks before it disturbs a node.
    fn guard(&self) -> Guard {
        let pool = self.s.pool.as_ref();
        let over_limit = matches!(
            self.s.lease,
            Lease::Held {
                over_limit: true,
                ..
            }
        );
        let repair_after = pool.and_then(|pool| pool.repair_after_ms);
        // A person cordoned the Node and removes its host, so the Node may be Ready.
        let leaves = self.s.phase == Phase::Leaving;
        let out = leaves && self.s.removal.cordoned;
        Guard {
            pool: pool
                .map(|pool| pool.pool.clone())
                .filter(|pool| pool != DEFAULT_POOL),
            down_ms: (over_limit && !out && self.s.counts())
                .then(|| repair_after.unwrap_or(REPAIR_AFTER_MS)),
            recreate: false,
            unless_serving: leaves && (self.s.lease.token().is_none() || (over_limit && out)),
            token: None,
            asked: false,
            deletes: false,
            anew: false,
            begun: false,
        }
    }

    /// The guard of a tear-down. The other tasks under a lease carry its token themselves.
    fn tear_down_guard(&self) -> Guard {
        Guard {
            token: self.s.lease.token(),
            ..self.guard()
        }
    }

    /// Probes the host, unless the Machine API gave the machine up.
    pub(super) fn probe(&mut self) {
        if let Some(error) = self.s.given_up() {
            return self.lasting("MachineFailed", error);
        }
        let task = Task::Probe { host: self.host() };
        // The first probe of a machine in service is an adoption: its host is up.
        let adopting = self.s.in_service && self.s.phase == Phase::Probing;
        let policy = if adopting {
            policy::ADOPTION_PROBE
        } else {
            policy::of(&task)
        };
        self.run_with(task, policy);
    }

    pub(super) fn reboot(&mut self, boot_id: String) {
        self.run(Task::Reboot {
            host: self.host(),
            boot_id,
            generation: self.s.host.generation,
            token: self.s.lease.token(),
        });
    }

    pub(super) fn plan(&mut self, adopt: bool) {
        let host = self.host();
        let generation = self.s.host.generation;
        match self.s.desired().cloned() {
            None if adopt => self.s.note = Some("the pool does not say what it should be".into()),
            None => self.enter(Phase::Serving),
            Some(desired) => {
                let node_name = self.node();
                self.run(Task::Plan {
                    host,
                    desired,
                    node_name,
                    adopt,
                    generation,
                    renew: !adopt,
                });
            }
        }
    }

    /// Compares a host that waits for a change, so that the token on it is renewed.
    pub(super) fn renew(&mut self) {
        // The address of a machine without a Node may be another's by now.
        let may = self.s.node.is_some() && self.s.desired().is_some();
        match self.s.host.renews && may {
            true => self.plan(false),
            false => self.await_renewal(),
        }
    }

    /// Waits until the host is compared for its token, if it has one that ends.
    pub(super) fn await_renewal(&mut self) {
        if self.s.host.renews {
            self.wait(Timer::Drift);
        } else {
            // That of the time when it served.
            self.push(Command::CancelTimer(Timer::Drift));
        }
    }

    pub(super) fn converge(&mut self, section: Section) {
        if section == Section::Host && !self.s.phase.joined() {
            // The host gets a bootstrap token.
            self.s.host.configured = Some(self.now.at);
            self.s.host.certified = false;
        }
        self.run(Task::Converge {
            host: self.host(),
            section,
            desired: self.s.target.clone(),
            generation: self.s.host.generation,
            node_name: self.node(),
        });
    }

    pub(super) fn tear_down(&mut self) {
        let token = self.s.lease.token();
        let before = std::mem::replace(&mut self.s.host.tearing, token);
        let begun = token.is_some() && before == token;
        self.s.host.uncordoned &= begun;
        let guard = Guard {
            begun,
            anew: self.s.host.uncordoned,
            ..self.tear_down_guard()
        };
        self.run(Task::TearDown {
            host: self.host(),
            generation: self.s.host.generation,
            guard,
        });
    }

    /// Logs in to a leaving host about which nothing is known.
    pub(super) fn probe_for_removal(&mut self) {
        let task = Task::Probe { host: self.host() };
        self.run_with(task, policy::ADOPTION_PROBE);
    }

    /// Removes everything that the profile installed from a leaving host. A host that does not answer is soon given up.
    pub(super) fn tear_down_for_good(&mut self) {
        let task = Task::TearDown {
            host: self.host(),
            generation: self.s.host.generation,
            guard: self.tear_down_guard(),
        };
        self.run_with(task, policy::REMOVAL);
    }

    /// Deletes the Node of a WindowsHost that is being removed, and releases its object.
    pub(super) fn forget_host(&mut self, debt: Option<String>) {
        self.run(Task::ForgetHost {
            machine: self.s.machine_ref(),
            node: self.node(),
            debt,
        });
    }

    /// Whether its Node is checked before it counts as joined. One that serves is only marked.
    pub(super) fn checks_node(&self) -> bool {
        let asked = self.s.pool.as_ref().is_some_and(|pool| pool.verify);
        asked && !self.s.protected()
    }

    fn node_expectation(&self) -> NodeExpectation {
        let pool = self.s.pool.as_ref();
        let terms = pool.and_then(|pool| pool.terms.get(&self.s.target.payload));
        let build = self.s.host.facts.as_ref().map(|it| it.os_build.clone());
        NodeExpectation {
            kubelet_minor: terms.and_then(|terms| terms.kubelet),
            containerd: terms.and_then(|terms| terms.containerd.clone()),
            canary: terms.and_then(|terms| terms.canary.clone()),
            os_build: build.filter(|build| !build.is_empty()),
            soak_ms: pool.map_or(0, |pool| pool.soak_ms),
        }
    }

    pub(super) fn mark(&mut self) {
        if let Some(node) = self.node() {
            self.run(Task::MarkNode {
                machine: self.s.machine_ref(),
                node,
                version: self.s.target.version.clone(),
                // A fingerprint is not a whole key, so the Node keeps its value.
                pin: self.s.host.pin.clone().filter(|pin| pin.contains(' ')),
                expect: self.checks_node().then(|| self.node_expectation()),
            });
        } else {
            self.enter(Phase::NodeWait);
        }
    }

    /// Searches for its Node at the API server, by every possible name and by its providerID.
    pub(super) fn find_node(&mut self) {
        let machine = self.s.machine.as_ref();
        let provider_id = machine.and_then(|machine| machine.provider_id.clone());
        let mut names: Vec<String> = self.node().into_iter().collect();
        names.extend(self.s.host.node_name.clone());
        names.dedup();
        self.run(Task::FindNode {
            machine: self.s.machine_ref(),
            names,
            provider_id,
        });
    }

    pub(super) fn open(&mut self, change: &Change) {
        // A Node that never served is not taken out of service, Ready or not.
        let over_limit = self.s.counts()
            && matches!(
                self.s.lease,
                Lease::Held {
                    over_limit: true,
                    ..
                }
            );
        let guard = Guard {
            asked: self.s.asked_over_cordon(),
            anew: change.anew,
            ..self.guard()
        };
        self.run(Task::OpenFence {
            machine: self.s.machine_ref(),
            node: self.node(),
            token: self.token(),
            over_limit,
            cordon: change.how != ChangeStrategy::Restart,
            guard,
        });
    }

    pub(super) fn evict(&mut self, how: ChangeStrategy, force: bool) {
        if let Some(node) = self.node() {
            let machine = self.s.machine_ref();
            let token = self.token();
            let guard = Guard {
                recreate: how == ChangeStrategy::Recreate && self.s.down.is_some(),
                deletes: how == ChangeStrategy::Recreate,
                ..self.guard()
            };
            self.run(Task::Evict {
                machine,
                node,
                token,
                force,
                guard,
            });
        }
    }

    pub(super) fn delete(&mut self) {
        let machine = self.s.machine_ref();
        let token = self.token();
        let guard = Guard {
            anew: self.s.host.uncordoned,
            ..self.guard()
        };
        self.run(Task::DeleteMachine {
            machine,
            token,
            guard,
        });
    }

    pub(super) fn close(&mut self) {
        let machine = self.s.machine_ref();
        let token = self.token();
        self.run(Task::CloseFence {
            machine,
            node: self.node(),
            token,
        });
    }
}
