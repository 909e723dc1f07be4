//! Model of a cluster with Kubernetes and the Machine API: Machines, their hosts, Nodes and MachineSets, on a clock
//! that jumps from one event to the next. It follows their documented behaviour, not dormer's code; comments name the
//! sources.

use super::{
    engine::{Effect, Engine, Message, OURS},
    event::WorldEvent,
    wmco::Wmco,
};
use dormer_fleet::{
    faults::splitmix,
    world::{Happened, Pace, Record, Unavailable, WorldClock},
};
use dormer_proto::{
    id::{Epoch, RunId, Timestamp},
    machine::{self, HostFence, MachineFact, MachineRef, NodeFact, Owner, TokenMark},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
    pool::{Desired, MaxUnavailable, PoolSettings, Strategy},
    rollout::{self, OwnedMachine, OwnerFact},
    work::{Fact, machine_run, rollout_run},
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// How long a kubelet may be silent before its Node is not Ready any more (Kubernetes 1.33,
/// pkg/controller/nodelifecycle, `node-monitor-grace-period`: 50 s, and 40 s in older ones).
const GRACE: u64 = 50 * SECOND;
/// From the start of a kubelet to a Node that is Ready.
const READY_AFTER: u64 = 15 * SECOND;
/// Pods that a node which serves has.
const PODS: u32 = 5;
const POOL: &str = "windows";
const NAMESPACE: &str = "openshift-machine-api";

/// Chance that depends on nothing but the seed.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        splitmix(self.0) % n.max(1)
    }

    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub(super) struct Host {
    /// Time of SSH's first answer.
    pub(super) up_at: u64,
    /// It has lost its power for good.
    pub(super) dead: bool,
    pub(super) fence: HostFence,
    pub(super) installed: Option<String>,
    /// A kubelet runs.
    pub(super) kubelet: bool,
    pub(super) had_kubelet: bool,
}

pub(super) struct WorldMachine {
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) created: Timestamp,
    pub(super) deleted: Option<Timestamp>,
    pub(super) set: usize,
    /// `nodeRef`.
    pub(super) node: Option<String>,
    pub(super) fence: Option<TokenMark>,
    pub(super) ignored: bool,
    pub(super) host: Host,
}

pub(super) struct Node {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) machine: String,
    pub(super) ready: bool,
    pub(super) cordoned: bool,
    /// The kubelet does not reach the API server.
    pub(super) cut: bool,
    /// The watcher does not see it.
    pub(super) unseen: bool,
    /// Its providerID is written in another case than the Machine's.
    pub(super) other_case: bool,
    pub(super) fence: Option<TokenMark>,
    /// Note of an opened fence: whether another client had cordoned the node.
    pub(super) noted: Option<bool>,
    pub(super) version: Option<String>,
    pub(super) pods: u32,
    /// State in the last record.
    recorded: (bool, bool, bool),
}

pub(super) struct Set {
    pub(super) uid: String,
    pub(super) replicas: usize,
}

/// How a world is to be.
pub(super) struct Shape {
    pub(super) seed: u64,
    pub(super) machines: u32,
    pub(super) sets: usize,
    pub(super) strategy: Strategy,
    pub(super) limit: u32,
    pub(super) wmco: Beside,
}

/// Whether WMCO comes now and then.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    Wmco,
    /// It comes, and no run gets a fact about it.
    UnseenWmco,
}

pub(super) struct World {
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), WorldEvent>,
    ordinal: u64,
    pub(super) chance: Chance,
    pub(super) engine: Engine,
    /// What truly happened.
    pub(super) record: Record,
    pub(super) machines: BTreeMap<String, WorldMachine>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) sets: Vec<Set>,
    pub(super) settings: PoolSettings,
    pub(super) payloads: u64,
    /// Whether the pool was deleted.
    pub(super) pruned: bool,
    pub(super) wmco: Wmco,
    dirty: BTreeSet<String>,
    owners_dirty: bool,
    published: BTreeMap<String, BTreeMap<ObjectRef, Fact>>,
    published_rollout: BTreeMap<ObjectRef, Fact>,
    resource: u64,
    alarms: BTreeMap<RunId, Timestamp>,
    pub(super) rollout: RunId,
}

impl World {
    pub(super) fn new(shape: &Shape) -> Self {
        let version = Desired {
            version: "v1".into(),
            payload: "1.0.0".into(),
        };
        let settings = PoolSettings {
            desired: BTreeMap::from([("*".to_owned(), version)]),
            strategy: shape.strategy,
            max_unavailable: MaxUnavailable::Count(shape.limit),
            max_repairs: Some(1),
            repair_after_ms: Some(10 * MINUTE),
            spec_payload: Some("installed".into()),
            generation: 1,
            ..PoolSettings::default()
        };
        let share = shape.machines as usize / shape.sets;
        let sets = (0..shape.sets).map(|at| Set {
            uid: format!("set-{at}"),
            replicas: share + usize::from(at < shape.machines as usize % shape.sets),
        });
        let mut world = Self {
            now: DAY,
            queue: BTreeMap::new(),
            ordinal: 0,
            chance: Chance(splitmix(shape.seed)),
            engine: Engine::default(),
            record: Record::new(WorldClock::system(), Pace::LIFE),
            machines: BTreeMap::new(),
            nodes: BTreeMap::new(),
            sets: sets.collect(),
            settings,
            payloads: 1,
            pruned: false,
            wmco: Wmco::new(shape.wmco == Beside::UnseenWmco),
            dirty: BTreeSet::new(),
            owners_dirty: true,
            published: BTreeMap::new(),
            published_rollout: BTreeMap::new(),
            resource: 0,
            alarms: BTreeMap::new(),
            rollout: rollout_run(POOL).expect("a pool's name"),
        };
        for at in 0..world.sets.len() {
            world.resized(at);
        }
        world
    }

    /// Puts an event off by so many milliseconds.
    pub(super) fn later(&mut self, ms: u64, event: WorldEvent) {
        self.ordinal += 1;
        self.queue.insert((self.now + ms, self.ordinal), event);
    }

    /// The next event before `end`.
    pub(super) fn next(&mut self, end: u64) -> Option<WorldEvent> {
        let first = self.queue.first_entry()?;
        let at = first.key().0;
        if at >= end {
            return None;
        }
        self.now = at;
        Some(first.remove())
    }

    /// What holds of the world itself, for every caller: everything but people and workers.
    pub(super) fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Message(message) => self.deliver(*message),
            WorldEvent::Alarm(run, at) => self.alarm_due(run, at),
            WorldEvent::Perform(order) => self.perform(&order),
            WorldEvent::Sets => self.bring_to_size(),
            WorldEvent::Kubelet(uid) => self.kubelet_starts(&uid),
            WorldEvent::Reconcile(name) => self.reconcile_node(&name),
            WorldEvent::Terminate(uid) => self.terminate(&uid),
            WorldEvent::Chaos => self.chaos(),
            WorldEvent::Undo(undo) => self.undo(undo),
            WorldEvent::Payload => self.install(),
            WorldEvent::Attend => self.attend(),
            WorldEvent::Wmco(step) => self.wmco_does(step),
        }
        self.publish();
    }

    pub(super) fn at(&self) -> Timestamp {
        Timestamp(self.now)
    }

    fn alarm_due(&mut self, run: RunId, at: Timestamp) {
        if self.alarms.get(&run) != Some(&at) {
            return;
        }
        self.alarms.remove(&run);
        self.deliver(InboxMessage {
            run,
            incarnation: Some(OURS),
            body: Inbound::TimerDue,
        });
    }

    fn deliver(&mut self, message: Message) {
        let at = self.at();
        for effect in self.engine.take(at, message) {
            match effect {
                Effect::Message(message) => {
                    let late = self.chance.between(1, 50);
                    self.later(late, WorldEvent::Message(message));
                }
                Effect::Later(message) => self.later(500, WorldEvent::Message(message)),
                Effect::Order(order) => self.order(order),
                Effect::Alarm(run, None) => drop(self.alarms.remove(&run)),
                Effect::Alarm(run, Some(due)) => {
                    self.alarms.insert(run.clone(), due);
                    let wait = due.0.saturating_sub(self.now);
                    self.later(wait, WorldEvent::Alarm(run, due));
                }
            }
        }
    }

    // === facts that runs get ===

    /// Something about this Machine, or its Node, has changed.
    pub(super) fn touch(&mut self, uid: &str) {
        self.dirty.insert(uid.to_owned());
    }

    /// Publishes the changed pool.
    pub(super) fn pool_changed(&mut self) {
        self.dirty.extend(self.machines.keys().cloned());
        self.owners_dirty = true;
    }

    /// Settings as published to runs: those of the pool, or that there is none.
    fn published_settings(&self) -> PoolSettings {
        let held = "there is no pool".to_owned();
        let cure = "Create the pool".to_owned();
        let neighbour = self.wmco.fact();
        match self.pruned {
            false => PoolSettings {
                neighbour,
                ..self.settings.clone()
            },
            true => PoolSettings {
                neighbour,
                desired: self.settings.desired.clone(),
                absent: true,
                paused: true,
                held: Some(held),
                held_cure: Some(cure),
                ..PoolSettings::default()
            },
        }
    }

    fn publish(&mut self) {
        if self.dirty.is_empty() && !self.owners_dirty {
            return;
        }
        let settings = self.published_settings();
        for uid in std::mem::take(&mut self.dirty) {
            let Ok(run) = machine_run(&uid) else {
                continue;
            };
            let Some(machine) = self.machines.get(&uid) else {
                if self.published.remove(&uid).is_some() {
                    self.send_fact(&run, object("Machine", &uid), None);
                }
                continue;
            };
            let wanted = self.about(machine, &settings);
            let known = self
                .published
                .insert(uid, wanted.clone())
                .unwrap_or_default();
            self.send_differences(&run, &known, wanted);
        }
        if !std::mem::take(&mut self.owners_dirty) {
            return;
        }
        let wanted = self.about_rollout(settings);
        let known = std::mem::replace(&mut self.published_rollout, wanted.clone());
        let rollout = self.rollout.clone();
        self.send_differences(&rollout, &known, wanted);
    }

    fn send_differences(
        &mut self,
        run: &RunId,
        known: &BTreeMap<ObjectRef, Fact>,
        wanted: BTreeMap<ObjectRef, Fact>,
    ) {
        for gone in known.keys().filter(|object| !wanted.contains_key(*object)) {
            self.send_fact(run, gone.clone(), None);
        }
        for (object, fact) in wanted {
            if known.get(&object) != Some(&fact) {
                self.send_fact(run, object, Some(fact));
            }
        }
    }

    fn send_fact(&mut self, run: &RunId, object: ObjectRef, fact: Option<Fact>) {
        self.resource += 1;
        let version = Version {
            epoch: Epoch(1),
            resource: self.resource,
        };
        let first = fact.is_some() && matches!(object.kind.as_str(), "Machine" | "MachineSet");
        let message = InboxMessage {
            run: run.clone(),
            incarnation: Some(OURS),
            body: Inbound::Observed(Observation {
                object,
                version,
                fact,
                may_start: first || *run == self.rollout,
            }),
        };
        // A watch event takes its time, and messages overtake each other; what begins a run comes first.
        let late = if first {
            1
        } else {
            self.chance.between(2, 3_000)
        };
        self.later(late, WorldEvent::Message(Box::new(message)));
    }

    fn about(&self, machine: &WorldMachine, settings: &PoolSettings) -> BTreeMap<ObjectRef, Fact> {
        let set = &self.sets[machine.set];
        let fact = MachineFact {
            machine: machine.reference(),
            created: machine.created,
            phase: Some(machine.phase().to_owned()),
            provider_id: Some(machine.provider_id()),
            addresses: vec![format!("{}.example", machine.name)],
            names: vec![machine.name.clone()],
            node: machine.node.clone(),
            deleting: machine.deleted.is_some(),
            deleted: machine.deleted,
            owner: Some(Owner {
                kind: "MachineSet".into(),
                name: set.uid.clone(),
                uid: set.uid.clone(),
            }),
            ignored: machine.ignored,
            platform: "Azure".into(),
            token: machine.fence,
            neighbour: self.wmco.fact(),
            ..MachineFact::default()
        };
        let fact = machine::Fact::Machine(fact);
        let mut about = BTreeMap::from([(object("Machine", &machine.uid), Fact::Machine(fact))]);
        if let Some(settings) = settings.for_machine() {
            let fact = machine::Fact::Pool(settings);
            about.insert(object("Pool", POOL), Fact::Machine(fact));
        }
        let node = self.nodes.get(&machine.name);
        if let Some(node) = node.filter(|node| !node.unseen && node.machine == machine.uid) {
            let fact = machine::Fact::Node(node.fact(machine));
            about.insert(object("Node", &node.uid), Fact::Machine(fact));
        }
        about
    }

    fn about_rollout(&self, settings: PoolSettings) -> BTreeMap<ObjectRef, Fact> {
        let listed = rollout::Fact::Listed {
            with_node: Vec::new(),
            sets: Some(self.sets.iter().map(|set| set.uid.clone()).collect()),
        };
        let mut about = BTreeMap::from([
            (
                object("Pool", POOL),
                Fact::Rollout(rollout::Fact::Pool(settings)),
            ),
            (object("List", POOL), Fact::Rollout(listed)),
        ]);
        for (at, set) in self.sets.iter().enumerate() {
            let ours = self.machines.values().filter(|machine| machine.set == at);
            let machines = ours.map(|machine| OwnedMachine {
                uid: machine.uid.clone(),
                created: machine.created,
                deleting: machine.deleted.is_some(),
            });
            let fact = OwnerFact {
                autoscaled: false,
                uid: set.uid.clone(),
                name: set.uid.clone(),
                replicas: u32::try_from(set.replicas).unwrap_or(u32::MAX),
                ready: None,
                available: None,
                machines: machines.collect(),
            };
            let fact = Fact::Rollout(rollout::Fact::Owner(fact));
            about.insert(object("MachineSet", &set.uid), fact);
        }
        about
    }

    // === Machine API ===

    /// A set has another size now.
    pub(super) fn resized(&mut self, at: usize) {
        let set = &self.sets[at];
        self.record.set_size(&set.uid, Some(set.replicas));
        self.owners_dirty = true;
        self.later(2 * SECOND, WorldEvent::Sets);
    }

    /// MachineSet controller: creates missing Machines, and deletes surplus ones. A Machine that is being deleted does
    /// not count (machine-api-operator, pkg/controller/machineset/controller.go: `shouldExcludeMachine`).
    fn bring_to_size(&mut self) {
        for at in 0..self.sets.len() {
            let all = self.machines.values();
            let live = all.filter(|m| m.set == at && m.deleted.is_none());
            let live: Vec<String> = live.map(|m| m.uid.clone()).collect();
            let replicas = self.sets[at].replicas;
            for _ in live.len()..replicas {
                self.make(at);
            }
            for n in replicas..live.len() {
                let left = live.len() - (n - replicas);
                let at = self.chance.below(left as u64);
                let uid = live[usize::try_from(at).unwrap_or(0)].clone();
                self.delete_machine(&uid);
            }
        }
    }

    fn make(&mut self, set: usize) {
        self.ordinal += 1;
        let uid = format!("uid-{}", self.ordinal);
        let up_in = self.chance.between(90 * SECOND, 180 * SECOND);
        let machine = WorldMachine {
            name: format!("win-{}", self.ordinal),
            uid: uid.clone(),
            // The API server's clock has whole seconds.
            created: Timestamp(self.now / SECOND * SECOND),
            deleted: None,
            set,
            node: None,
            fence: None,
            ignored: false,
            host: Host {
                up_at: self.now + up_in,
                dead: false,
                fence: HostFence::default(),
                installed: None,
                kubelet: false,
                had_kubelet: false,
            },
        };
        self.machines.insert(uid.clone(), machine);
        self.owners_dirty = true;
        self.touch(&uid);
    }

    /// DELETE of a Machine: it stays until its node was drained and its instance is gone. The drain cordons
    /// (machine-api-operator, pkg/controller/machine/drain_controller.go: `RunCordonOrUncordon`).
    pub(super) fn delete_machine(&mut self, uid: &str) {
        let stamp = Timestamp(self.now / SECOND * SECOND);
        let Some(machine) = self.machines.get_mut(uid).filter(|m| m.deleted.is_none()) else {
            return;
        };
        machine.deleted = Some(stamp);
        let node = machine.name.clone();
        self.owners_dirty = true;
        self.touch(uid);
        self.change_node(&node, |node| node.cordoned = true);
        let takes = self.chance.between(30 * SECOND, 5 * MINUTE);
        self.later(takes, WorldEvent::Terminate(uid.to_owned()));
        self.later(2 * SECOND, WorldEvent::Sets);
    }

    fn terminate(&mut self, uid: &str) {
        let Some(machine) = self.machines.remove(uid) else {
            return;
        };
        self.delete_node(&machine.name);
        self.owners_dirty = true;
        self.touch(uid);
        self.later(2 * SECOND, WorldEvent::Sets);
    }

    /// Deletes a Node; its host keeps running.
    pub(super) fn delete_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.record.node_deleted(name, None);
            self.touch(&node.machine);
        }
    }

    // === kubelets and the node lifecycle controller ===

    /// A kubelet that starts makes its Node, or takes the one that is there; while it runs it makes none (Kubernetes 1.33,
    /// pkg/kubelet/kubelet_node_status.go: `registerWithAPIServer` runs once).
    fn kubelet_starts(&mut self, uid: &str) {
        self.ordinal += 1;
        let ordinal = self.ordinal;
        let Some(machine) = self.machines.get_mut(uid).filter(|m| !m.host.dead) else {
            return;
        };
        let again = std::mem::replace(&mut machine.host.had_kubelet, true);
        machine.host.kubelet = true;
        let name = machine.name.clone();
        // The nodelink controller.
        machine.node = Some(name.clone());
        let node = self.nodes.entry(name.clone()).or_insert_with(|| Node {
            name: name.clone(),
            uid: format!("node-{ordinal}"),
            machine: uid.to_owned(),
            ready: false,
            cordoned: false,
            cut: false,
            unseen: false,
            other_case: false,
            fence: None,
            noted: None,
            version: None,
            pods: 0,
            recorded: (false, false, false),
        });
        uid.clone_into(&mut node.machine);
        self.record.node_of(uid, &name);
        self.record.push(Happened::KubeletStarted {
            machine: uid.to_owned(),
            again,
        });
        self.change_node(&name, |_| {});
        self.touch(uid);
        self.later(READY_AFTER, WorldEvent::Reconcile(name));
    }

    /// A reachable kubelet makes its Node Ready at once; a silent one is detected after the grace period.
    pub(super) fn kubelet_changed(&mut self, name: &str) {
        let speaks = self.speaks(name);
        self.later(
            if speaks { SECOND } else { GRACE },
            WorldEvent::Reconcile(name.to_owned()),
        );
    }

    pub(super) fn speaks(&self, name: &str) -> bool {
        let Some(node) = self.nodes.get(name) else {
            return false;
        };
        let machine = self.machines.get(&node.machine);
        !node.cut && machine.is_some_and(|machine| machine.host.kubelet && !machine.host.dead)
    }

    fn reconcile_node(&mut self, name: &str) {
        let speaks = self.speaks(name);
        self.change_node(name, |node| node.ready = speaks);
    }

    /// Changes a Node, and records the effect, as an observer of the API server's writes does.
    pub(super) fn change_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        change(node);
        if node.ready && !node.cordoned {
            node.pods = PODS;
        }
        let fenced = node.fence.is_some_and(|mark| mark.open);
        let before = std::mem::replace(&mut node.recorded, (node.ready, node.cordoned, fenced));
        let mut reasons = BTreeSet::new();
        if !node.ready {
            reasons.insert(Unavailable::NotReady);
        }
        if node.cordoned {
            reasons.insert(Unavailable::Cordoned);
        }
        let machine = node.machine.clone();
        if fenced && !before.2 {
            self.record.node_fenced(name);
        }
        let ignored = self.machines.get(&machine).is_some_and(|m| m.ignored);
        let set = self.machines.get(&machine).map(|m| m.set);
        let set = set.map(|at| self.sets[at].uid.as_str());
        self.record.node_state(name, set, reasons, None);
        if !fenced {
            self.record.node_unfenced(name);
            // A person who labels a Machine manages its host from then on.
            if ignored {
                self.record.node_let_go(name);
            }
        }
        self.touch(&machine);
    }
}

impl WorldMachine {
    pub(super) fn reference(&self) -> MachineRef {
        MachineRef {
            namespace: NAMESPACE.into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            ..MachineRef::default()
        }
    }

    fn provider_id(&self) -> String {
        format!("azure:///subscriptions/s/resourceGroups/g/{}", self.name)
    }

    fn phase(&self) -> &'static str {
        match (&self.deleted, &self.node) {
            (Some(_), _) => "Deleting",
            (None, Some(_)) => "Running",
            (None, None) => "Provisioned",
        }
    }

    /// Whether SSH answers.
    pub(super) fn answers(&self, now: u64) -> bool {
        !self.host.dead && now >= self.host.up_at
    }
}

impl Node {
    fn fact(&self, machine: &WorldMachine) -> NodeFact {
        let id = machine.provider_id();
        NodeFact {
            name: self.name.clone(),
            uid: self.uid.clone(),
            ready: self.ready,
            cordoned: self.cordoned,
            provider_id: Some(if self.other_case {
                id.to_uppercase()
            } else {
                id
            }),
            boot_id: "1".into(),
            kubelet_version: "v1.33.0".into(),
            version: self.version.clone(),
            token: self.fence,
            ..NodeFact::default()
        }
    }
}

fn object(kind: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        cluster: String::new(),
        kind: kind.to_owned(),
        uid: uid.to_owned(),
    }
}
