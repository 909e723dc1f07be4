//! Tasks of a machine, with the arguments from the run's knowledge of Machine, host and lease.

use super::{
    change::{Change, ChangeStrategy},
    draft::{Draft, REPAIR_AFTER_MS},
    phase::{Phase, Timer},
    policy,
    state::Lease,
    tokens::restored_note,
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
            .state
            .machine
            .as_ref()
            .map(|m| m.platform.clone())
            .unwrap_or_default();
        let user = self.state.machine.as_ref().and_then(|m| m.user.clone());
        // Azure's images know `capi`, all others `Administrator`.
        let by_platform = if platform == "Azure" {
            "capi"
        } else {
            "Administrator"
        };
        HostRef {
            machine: self.state.machine_ref(),
            address: self.state.address().unwrap_or_default().to_owned(),
            user: user.unwrap_or_else(|| by_platform.to_owned()),
            pin: self.state.host.pin.clone(),
            platform,
        }
    }

    fn node(&self) -> Option<String> {
        self.state.node_name()
    }

    fn token(&self) -> LeaseToken {
        self.state.lease.token().unwrap_or_default()
    }

    /// Conditions that the worker checks before it disturbs a node.
    fn guard(&self) -> Guard {
        let pool = self.state.pool.as_ref();
        let over_limit = matches!(
            self.state.lease,
            Lease::Held {
                over_limit: true,
                ..
            }
        );
        let repair_after = pool.and_then(|pool| pool.repair_after_ms);
        // A person cordoned the Node and removes its host, so the Node may be Ready.
        let leaves = self.state.phase == Phase::Leaving;
        let out = leaves && self.state.removal.cordoned;
        Guard {
            pool: pool
                .map(|pool| pool.pool.clone())
                .filter(|pool| pool != DEFAULT_POOL),
            down_ms: (over_limit && !out && self.state.counts())
                .then(|| repair_after.unwrap_or(REPAIR_AFTER_MS)),
            recreate: false,
            unless_serving: leaves && (self.state.lease.token().is_none() || (over_limit && out)),
            token: None,
            asked: false,
            deletes: false,
            anew: false,
            begun: false,
            drain_ms: None,
        }
    }

    /// The guard of a tear-down. The other tasks under a lease carry its token themselves.
    fn tear_down_guard(&self) -> Guard {
        Guard {
            token: self.state.lease.token(),
            ..self.guard()
        }
    }

    /// Probes the host, unless the Machine API gave the machine up.
    pub(super) fn probe(&mut self) {
        if let Some(error) = self.state.given_up() {
            return self.lasting("MachineFailed", error);
        }
        let task = Task::Probe { host: self.host() };
        // The first probe of a machine in service is an adoption: its host is up.
        let adopting = self.state.in_service && self.state.phase == Phase::Probing;
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
            generation: self.state.host.generation,
            token: self.state.lease.token(),
        });
    }

    pub(super) fn plan(&mut self, adopt: bool) {
        let host = self.host();
        let generation = self.state.host.generation;
        match self.state.desired().cloned() {
            None if adopt => self.state.note = Some("its pool names no payload for it".into()),
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
    pub(super) fn renew_host_token(&mut self) {
        // The address of a machine without a Node may be another's by now.
        let may = self.state.node.is_some() && self.state.desired().is_some();
        match self.state.host.renews && may {
            true => self.plan(false),
            false => self.await_renewal(),
        }
    }

    /// Waits until the host is compared for its token, if it has one that ends.
    pub(super) fn await_renewal(&mut self) {
        if self.state.host.renews {
            self.wait(Timer::Drift);
        } else {
            // The timer was started while it served.
            self.push(Command::CancelTimer(Timer::Drift));
        }
    }

    pub(super) fn converge(&mut self, section: Section) {
        if section == Section::Host && !self.state.phase.joined() {
            // The host gets a bootstrap token.
            self.state.host.configured = Some(self.now.at);
            self.state.host.certified = false;
        }
        self.run(Task::Converge {
            host: self.host(),
            section,
            desired: self.state.target.clone(),
            generation: self.state.host.generation,
            node_name: self.node(),
        });
    }

    pub(super) fn tear_down(&mut self) {
        let token = self.state.lease.token();
        let before = std::mem::replace(&mut self.state.host.tearing, token);
        let begun = token.is_some() && before == token;
        let guard = Guard {
            begun,
            anew: self.state.host.uncordoned,
            ..self.tear_down_guard()
        };
        self.run(Task::TearDown {
            host: self.host(),
            generation: self.state.host.generation,
            guard,
        });
    }

    /// Probes a host with few attempts: it should answer, or it is being removed.
    pub(super) fn probe_briefly(&mut self) {
        let task = Task::Probe { host: self.host() };
        self.run_with(task, policy::ADOPTION_PROBE);
    }

    /// Removes everything that the profile installed from a leaving host. A host that does not answer is soon given up.
    pub(super) fn tear_down_for_good(&mut self) {
        let task = Task::TearDown {
            host: self.host(),
            generation: self.state.host.generation,
            guard: self.tear_down_guard(),
        };
        self.run_with(task, policy::REMOVAL);
    }

    /// Deletes the Node of a WindowsHost that is being removed, and releases its object.
    pub(super) fn forget_host(&mut self, debt: Option<String>) {
        self.run(Task::ForgetHost {
            machine: self.state.machine_ref(),
            node: self.node(),
            debt,
        });
    }

    /// Whether its Node is checked before it counts as joined. One that serves is only marked.
    pub(super) fn checks_node(&self) -> bool {
        let asked = self.state.pool.as_ref().is_some_and(|pool| pool.verify);
        asked && !self.state.protected()
    }

    fn node_expectation(&self) -> NodeExpectation {
        let pool = self.state.pool.as_ref();
        let terms = pool.and_then(|pool| pool.terms.get(&self.state.target.payload));
        let build = self.state.host.facts.as_ref().map(|it| it.os_build.clone());
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
                machine: self.state.machine_ref(),
                node,
                version: self.state.target.version.clone(),
                // A fingerprint is not a whole key, so the Node keeps its value.
                pin: self.state.host.pin.clone().filter(|pin| pin.contains(' ')),
                expect: self.checks_node().then(|| self.node_expectation()),
            });
        } else {
            self.enter(Phase::NodeWait);
        }
    }

    /// Searches for its Node at the API server, by every possible name and by its providerID.
    pub(super) fn find_node(&mut self) {
        let machine = self.state.machine.as_ref();
        let provider_id = machine.and_then(|machine| machine.provider_id.clone());
        let mut names: Vec<String> = self.node().into_iter().collect();
        names.extend(self.state.host.node_name.clone());
        names.dedup();
        self.run(Task::FindNode {
            machine: self.state.machine_ref(),
            names,
            provider_id,
        });
    }

    pub(super) fn open(&mut self, change: &Change) {
        // A Node that never served is not taken out of service, Ready or not.
        let over_limit = self.state.counts()
            && matches!(
                self.state.lease,
                Lease::Held {
                    over_limit: true,
                    ..
                }
            );
        let guard = Guard {
            asked: self.state.asked_over_cordon(),
            anew: change.anew,
            ..self.guard()
        };
        self.run(Task::OpenFence {
            machine: self.state.machine_ref(),
            node: self.node(),
            token: self.token(),
            over_limit,
            cordon: change.how != ChangeStrategy::Restart,
            guard,
        });
    }

    pub(super) fn evict(&mut self, how: ChangeStrategy, force: bool) {
        if let Some(node) = self.node() {
            let machine = self.state.machine_ref();
            let token = self.token();
            let limit = self.state.pool.as_ref().map(|pool| pool.drain_timeout_ms);
            let guard = Guard {
                drain_ms: limit.filter(|_| force),
                recreate: how == ChangeStrategy::Recreate && self.state.down.is_some(),
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
        let machine = self.state.machine_ref();
        let token = self.token();
        let guard = Guard {
            anew: self.state.host.uncordoned,
            ..self.guard()
        };
        self.run(Task::DeleteMachine {
            machine,
            token,
            guard,
        });
    }

    pub(super) fn close(&mut self) {
        self.close_under(self.token());
    }

    /// Closes a token that the restore of an older etcd brought back, and restores the cordon by its note.
    pub(super) fn close_restored(&mut self) {
        let Some(mark) = self.state.restored_token() else {
            return;
        };
        if self.state.ignored() || self.state.phase.leaving() {
            return;
        }
        self.state.restored = true;
        self.state.note = Some(restored_note(mark.token));
        self.close_under(self.state.closed);
    }

    fn close_under(&mut self, token: LeaseToken) {
        self.run(Task::CloseFence {
            machine: self.state.machine_ref(),
            node: self.node(),
            token,
        });
    }

    /// Whether it closed a token of another lease than the present one: no phase waits for that.
    pub(super) fn closes_another(&self, task: &Task) -> bool {
        matches!(task, Task::CloseFence { token, .. } if *token != self.token())
    }
}
