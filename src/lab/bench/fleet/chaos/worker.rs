//! What workers do to this cluster and its hosts: each task as its words in `proto` and the decision about fences say
//! it, late, twice, or with an answer that is lost.

use super::{
    engine::OURS,
    event::WorldEvent,
    world::{MINUTE, Node, SECOND, World, WorldMachine},
};
use dormer_fleet::world::Happened;
use dormer_proto::{
    id::{Attempt, LeaseToken},
    machine::{
        Blocker, ChangeClass, FenceRefusal, Guard, HostFacts, HostFence, Outcome, Section, Task,
        TokenMark,
    },
    message::{Failure, Inbound, InboxMessage, TaskReport},
    pool::Desired,
    work::Order,
};

/// Answers in a hundred that are lost; the attempt's limit then passes.
const LOST: u64 = 2;
/// Tasks in a hundred that fail before they did anything.
const FAILED: u64 = 4;
/// Tasks in a hundred that are done twice, the second time late: a worker that slept.
const TWICE: u64 = 4;

type Done = Result<Outcome, Failure>;

impl World {
    /// An order reaches a worker, who is done with it some time later.
    pub(super) fn order(&mut self, order: Box<Order>) {
        self.judge_beside_wmco(&order);
        let (low, high) = match &order.body {
            Task::Converge { .. } => (MINUTE, 4 * MINUTE),
            Task::TearDown { .. } => (20 * SECOND, MINUTE),
            Task::Probe { .. } | Task::Plan { .. } | Task::Reboot { .. } => (SECOND, 8 * SECOND),
            Task::ApproveCsr { .. }
            | Task::MarkNode { .. }
            | Task::OpenFence { .. }
            | Task::CloseFence { .. }
            | Task::Evict { .. }
            | Task::SetPayload { .. }
            | Task::FindNode { .. }
            | Task::ForgetHost { .. }
            | Task::DeleteMachine { .. } => (50, 2 * SECOND),
        };
        let takes = self.chance.between(low, high);
        if self.chance.percent(TWICE) {
            let sleeps = self.chance.between(SECOND, 20 * MINUTE);
            self.later(takes + sleeps, WorldEvent::Perform(order.clone()));
        }
        self.later(takes, WorldEvent::Perform(order));
    }

    /// A worker does it now, and reports.
    pub(super) fn perform(&mut self, order: &Order) {
        let result = if self.chance.percent(FAILED) {
            Err(Failure::transient(
                "Timeout",
                "the API server did not answer",
            ))
        } else {
            self.work(order)
        };
        if self.chance.percent(LOST) {
            return;
        }
        let report = TaskReport {
            task: order.task.clone(),
            attempt: order.attempt,
            issued: order.issued,
            worker: "trouble".into(),
            by: order.body.reporter(),
            result,
        };
        let message = InboxMessage {
            run: order.task.run.clone(),
            incarnation: Some(OURS),
            body: Inbound::Reported(report),
        };
        self.later(20, WorldEvent::Message(Box::new(message)));
    }

    fn work(&mut self, order: &Order) -> Done {
        let uid = order.task.run.key().to_owned();
        let seq = order.task.seq;
        let fence = |generation: &u64| HostFence {
            generation: *generation,
            seq,
        };
        match &order.body {
            Task::Probe { .. } => self.probe(&uid),
            Task::Plan {
                desired,
                adopt,
                generation,
                ..
            } => self.plan(&uid, desired, *adopt, *generation),
            Task::Converge {
                section,
                desired,
                generation,
                ..
            } => self.converge(&uid, *section, desired, fence(generation)),
            // As `Executors::execute`: checked before the host is contacted.
            Task::TearDown { guard, .. } if self.refusal(&uid, guard).is_some() => {
                let why = self.refusal(&uid, guard);
                Ok(why.unwrap_or(Outcome::FenceClosedMeanwhile))
            }
            Task::TearDown { guard, .. } if self.serves_again(&uid, guard) => {
                match guard.begun || order.attempt > Attempt(1) {
                    true => Err(Failure::transient("NodeUncordoned", "it was uncordoned")),
                    false => Ok(refused(FenceRefusal::Uncordoned, "it was uncordoned")),
                }
            }
            Task::TearDown { generation, .. } => self.tear_down(&uid, fence(generation)),
            Task::Reboot { token, .. } if token.is_some_and(|it| self.has_ended(&uid, it)) => {
                let why = "the lease has ended";
                Err(Failure::lasting("Superseded", why))
            }
            Task::Reboot { .. } => Ok(Outcome::RebootAsked),
            // This world has no BYOH hosts.
            Task::ForgetHost { .. } => Ok(Outcome::HostForgotten),
            Task::ApproveCsr { csr, .. } => Ok(Outcome::CsrApproved { csr: csr.clone() }),
            Task::MarkNode { node, version, .. } => self.mark(node, version),
            Task::OpenFence {
                node,
                token,
                over_limit,
                cordon,
                guard,
                ..
            } => Ok(self.stopped(guard).unwrap_or_else(|| {
                self.open(
                    &uid,
                    node.as_deref(),
                    *token,
                    (*over_limit, guard.asked),
                    *cordon,
                )
            })),
            Task::CloseFence { node, token, .. } => Ok(self.close(&uid, node.as_deref(), *token)),
            Task::Evict {
                node,
                token,
                force,
                guard,
                ..
            } => Ok(self
                .refusal(&uid, guard)
                .unwrap_or_else(|| self.evict(&uid, node, *token, *force))),
            Task::DeleteMachine { token, guard, .. } => Ok(self
                .refusal(&uid, guard)
                .unwrap_or_else(|| self.delete(&uid, *token))),
            Task::FindNode { .. } => Ok(self.find_node(&uid)),
            Task::SetPayload { .. } => Ok(Outcome::PayloadSet),
        }
    }

    // === the host, over SSH ===

    fn host(&mut self, uid: &str) -> Result<&mut WorldMachine, Failure> {
        let now = self.now;
        let machine = self.machines.get_mut(uid);
        machine
            .filter(|machine| machine.answers(now))
            .ok_or_else(|| Failure::transient("ConnectTimeout", "the host does not answer"))
    }

    /// A writer that an earlier order sent is refused by the host itself.
    fn enter_host(&mut self, uid: &str, fence: HostFence) -> Result<&mut WorldMachine, Failure> {
        let machine = self.host(uid)?;
        if fence < machine.host.fence {
            let why = "a later order has written there";
            return Err(Failure::lasting("Superseded", why));
        }
        machine.host.fence = fence;
        Ok(machine)
    }

    fn probe(&mut self, uid: &str) -> Done {
        let machine = self.host(uid)?;
        Ok(Outcome::Probed {
            facts: machine.facts(),
            host_key: machine.host_key(),
            node_name: machine.name.clone(),
        })
    }

    fn plan(&mut self, uid: &str, desired: &Desired, adopt: bool, generation: u64) -> Done {
        let known = self.machines.get(uid);
        let node = known.and_then(|machine| self.nodes.get(&machine.name));
        let pods = node.map_or(0, |node| node.pods);
        let token = self.token_on(uid);
        let machine = self.host(uid)?;
        let facts = machine.facts();
        let differs = machine.host.installed.as_ref() != Some(&desired.version);
        let generation = if adopt {
            machine.host.fence.generation += 1;
            machine.host.fence.generation
        } else {
            generation
        };
        Ok(Outcome::Planned {
            class: differs.then_some(ChangeClass::Drain),
            differs: if differs {
                vec!["kubelet.exe".into()]
            } else {
                Vec::new()
            },
            facts,
            host_key: machine.host_key(),
            generation,
            token,
            pods,
            certificates: false,
            renews: false,
        })
    }

    /// The highest token on Machine and Node.
    fn token_on(&self, uid: &str) -> LeaseToken {
        let machine = self.machines.get(uid);
        let node = machine.and_then(|machine| self.nodes.get(&machine.name));
        let marks = [
            machine.and_then(|machine| machine.fence),
            node.and_then(|node| node.fence),
        ];
        let tokens = marks.into_iter().flatten().map(|mark| mark.token);
        tokens.max().unwrap_or_default()
    }

    fn converge(
        &mut self,
        uid: &str,
        section: Section,
        desired: &Desired,
        fence: HostFence,
    ) -> Done {
        let starts = self.chance.between(10 * SECOND, 30 * SECOND);
        let machine = self.enter_host(uid, fence)?;
        let starts_kubelet = section == Section::Host && !machine.host.kubelet;
        machine.host.installed = Some(desired.version.clone());
        if starts_kubelet {
            self.later(starts, WorldEvent::Kubelet(uid.to_owned()));
        }
        Ok(Outcome::Converged {
            section,
            changed: 1,
            reboot: false,
            boot_id: "1".into(),
            owed: Vec::new(),
        })
    }

    fn tear_down(&mut self, uid: &str, fence: HostFence) -> Done {
        let machine = self.enter_host(uid, fence)?;
        machine.host.kubelet = false;
        machine.host.installed = None;
        let name = machine.name.clone();
        self.record.push(Happened::TornDown {
            machine: uid.to_owned(),
        });
        self.kubelet_changed(&name);
        Ok(Outcome::TornDown)
    }

    // === the API server ===

    /// Result of a live read of the pool before a disturbance: a deleted pool stops everything.
    fn stopped(&self, _guard: &Guard) -> Option<Outcome> {
        self.pruned
            .then(|| refused(FenceRefusal::Stopped, "the pool is gone"))
    }

    /// Result of a live read of pool and Node before each write under a lease: over the limit, a Node that is Ready
    /// again is not taken.
    fn refusal(&self, uid: &str, guard: &Guard) -> Option<Outcome> {
        let ready = self
            .nodes
            .values()
            .any(|node| node.machine == uid && node.ready);
        let back = guard.down_ms.is_some() && ready;
        let ended = guard.token.is_some_and(|token| self.has_ended(uid, token));
        ended
            .then(|| refused(FenceRefusal::Superseded, "the lease has ended"))
            .or_else(|| self.stopped(guard))
            .or_else(|| back.then(|| refused(FenceRefusal::NodeServes, "its Node is Ready again")))
    }

    /// Whether the Node that was drained under this lease is Ready and schedulable.
    fn serves_again(&self, uid: &str, guard: &Guard) -> bool {
        let ours = |node: &Node| {
            node.fence
                .is_some_and(|it| it.open && guard.token == Some(it.token))
        };
        let mut nodes = self.nodes.values().filter(|node| node.machine == uid);
        nodes.any(|node| ours(node) && node.ready && !node.cordoned)
    }

    /// Whether Machine or Node carry a later lease, or this one closed.
    fn has_ended(&self, uid: &str, token: LeaseToken) -> bool {
        let machine = self.machines.get(uid);
        let node = machine.and_then(|machine| self.nodes.get(&machine.name));
        let marks = [
            machine.and_then(|machine| machine.fence),
            node.and_then(|node| node.fence),
        ];
        let ended = |mark: &TokenMark| mark.token > token || (mark.token == token && !mark.open);
        marks.iter().flatten().any(ended)
    }

    /// Node of a Machine by its provider id, whatever its present name, and independently of a watch.
    fn find_node(&self, uid: &str) -> Outcome {
        let mut nodes = self.nodes.iter();
        match nodes.find(|(_, node)| node.machine == uid) {
            Some((name, _)) => Outcome::NodeFound { name: name.clone() },
            None => Outcome::NodeAbsent,
        }
    }

    fn mark(&mut self, node: &str, version: &str) -> Done {
        if !self.nodes.contains_key(node) {
            return Err(Failure::transient("NodeGone", "the Node is not there"));
        }
        self.change_node(node, |node| node.version = Some(version.to_owned()));
        Ok(Outcome::NodeMarked)
    }

    fn open(
        &mut self,
        uid: &str,
        node: Option<&str>,
        token: LeaseToken,
        (over_limit, asked): (bool, bool),
        cordon: bool,
    ) -> Outcome {
        let refused = |why| refused(why, "");
        let Some(machine) = self.machines.get(uid) else {
            return refused(FenceRefusal::Gone);
        };
        let found = node.and_then(|name| self.nodes.get(name));
        let newer = |mark: Option<TokenMark>| {
            mark.is_some_and(|mark| mark.token > token || (mark.token == token && !mark.open))
        };
        if newer(machine.fence) || newer(found.and_then(|node| node.fence)) {
            return refused(FenceRefusal::Superseded);
        }
        let ours = |node: &Node| node.fence.is_some_and(|mark| mark.open) && node.noted.is_some();
        let serves = |node: &Node| node.ready && (!ours(node) || !node.cordoned);
        if over_limit && found.is_some_and(serves) {
            return refused(FenceRefusal::NodeServes);
        }
        let taken = |node: &Node| {
            node.fence
                .is_some_and(|mark| mark.open && mark.token <= token)
        };
        if !asked && found.is_some_and(|node| node.cordoned && !taken(node)) {
            return refused(FenceRefusal::Cordoned);
        }
        let mark = Some(TokenMark { token, open: true });
        let mut was_cordoned = false;
        if let Some(machine) = self.machines.get_mut(uid) {
            machine.fence = mark;
        }
        if let Some(name) = node {
            self.change_node(name, |node| {
                was_cordoned = match node.noted {
                    Some(noted) if node.fence.is_some_and(|mark| mark.open) => noted,
                    _ => node.cordoned,
                };
                node.fence = mark;
                if cordon {
                    node.noted = Some(was_cordoned);
                    node.cordoned = true;
                }
            });
        }
        self.touch(uid);
        Outcome::FenceOpened { was_cordoned }
    }

    fn close(&mut self, uid: &str, node: Option<&str>, token: LeaseToken) -> Outcome {
        let older = |mark: Option<TokenMark>| {
            mark.is_none_or(|mark| mark.token < token || (mark.token == token && mark.open))
        };
        let closed = Some(TokenMark { token, open: false });
        let mut leaves = true;
        if let Some(machine) = self.machines.get_mut(uid) {
            if older(machine.fence) {
                machine.fence = closed;
            }
            leaves = machine.deleted.is_some();
        }
        if let Some(name) = node {
            self.change_node(name, |node| {
                if older(node.fence) {
                    node.fence = closed;
                    if let Some(noted) = node.noted.take() {
                        node.cordoned = noted;
                    }
                }
            });
        }
        self.touch(uid);
        if leaves {
            Outcome::MachineDeleted
        } else {
            Outcome::FenceClosed
        }
    }

    fn holds_open_token(&self, uid: &str, token: LeaseToken) -> bool {
        let open = Some(TokenMark { token, open: true });
        self.machines
            .get(uid)
            .is_some_and(|machine| machine.fence == open)
    }

    /// One pass. An evicted pod ends if its kubelet is reachable; otherwise it stays Terminating (Kubernetes 1.33: the
    /// kubelet removes the object, the API server never by itself).
    fn evict(&mut self, uid: &str, node: &str, token: LeaseToken, force: bool) -> Outcome {
        if !self.holds_open_token(uid, token) {
            return Outcome::FenceClosedMeanwhile;
        }
        let speaks = self.speaks(node);
        let pods = self.nodes.get(node).map_or(0, |node| node.pods);
        let most = u64::from(if force { 1 } else { pods });
        let goes = u32::try_from(self.chance.between(u64::from(pods > 0), most)).unwrap_or(0);
        let evicted = if speaks { goes.min(pods) } else { 0 };
        self.change_node(node, |node| node.pods = pods - evicted);
        let left = pods - evicted;
        let why = if speaks {
            "a disruption budget"
        } else {
            "it is Terminating, and its node does not answer"
        };
        let blocker = Blocker {
            pod: "shop/web".into(),
            why: why.into(),
            budgets: Vec::new(),
            until_off: false,
            finalizers: Vec::new(),
        };
        Outcome::Evicted {
            evicted,
            left,
            blockers: if left > 0 { vec![blocker] } else { Vec::new() },
            skipped: Vec::new(),
        }
    }

    fn delete(&mut self, uid: &str, token: LeaseToken) -> Outcome {
        let deleted = |machine: &WorldMachine| machine.deleted.is_some();
        if self.machines.get(uid).is_none_or(deleted) {
            return Outcome::MachineDeleted;
        }
        if !self.holds_open_token(uid, token) {
            return Outcome::FenceClosedMeanwhile;
        }
        self.delete_machine(uid);
        Outcome::MachineDeleted
    }
}

fn refused(why: FenceRefusal, said: &str) -> Outcome {
    let said = said.to_owned();
    Outcome::FenceRefused { why, said }
}

impl WorldMachine {
    fn facts(&self) -> HostFacts {
        HostFacts {
            os_build: "10.0.20348".into(),
            os_name: "Windows Server 2022 Datacenter".into(),
            hostname: self.name.clone(),
            boot_id: "1".into(),
            shell: "cmd".into(),
            installed: self.host.installed.clone(),
            fence: self.host.fence,
            kubelet: self.host.kubelet,
            ..HostFacts::default()
        }
    }

    fn host_key(&self) -> String {
        format!("ssh-ed25519 {}", self.uid)
    }
}
