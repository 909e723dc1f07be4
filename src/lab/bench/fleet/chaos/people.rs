//! What other people, and the network, do to a fleet: nothing of it is dormer's, and none of it may make dormer take more
//! nodes than it is allowed.

use super::{
    event::{Undo, WorldEvent},
    world::{HOUR, MINUTE, SECOND, World},
};
use dormer_proto::{
    id::{RunId, Seq},
    machine,
    message::{Ask, Inbound, InboxMessage, Request},
    phase::MachinePhase,
    pool::Desired,
    rollout,
    work::{Signal, machine_run},
};
use dormer_workflows::State;

/// One trouble comes about so often for 20 machines.
const EVERY: u64 = 12 * MINUTE;

/// What happens, in so many of a hundred troubles.
const MIX: [(u64, IncidentKind); 15] = [
    (14, IncidentKind::Cordon),
    (8, IncidentKind::Uncordon),
    (12, IncidentKind::Partition),
    (10, IncidentKind::Flap),
    (4, IncidentKind::Dead),
    (6, IncidentKind::Prune),
    (6, IncidentKind::Ignore),
    (8, IncidentKind::DeleteMachine),
    (5, IncidentKind::DeleteNode),
    (6, IncidentKind::Scale),
    (5, IncidentKind::Rename),
    (6, IncidentKind::Unseen),
    (4, IncidentKind::Pause),
    (4, IncidentKind::Hold),
    (2, IncidentKind::Recreate),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IncidentKind {
    /// A person cordons some nodes.
    Cordon,
    /// A person uncordons one, no matter who cordoned it.
    Uncordon,
    /// Some kubelets do not reach the API server for a while.
    Partition,
    /// A kubelet does so three times in two minutes.
    Flap,
    /// A host loses its power for good.
    Dead,
    /// A GitOps tool prunes the pool.
    Prune,
    /// A person labels a Machine to be ignored.
    Ignore,
    /// A person deletes a Machine.
    DeleteMachine,
    /// A person deletes a Node; its host is restarted later.
    DeleteNode,
    /// A person makes a set larger or smaller by one.
    Scale,
    /// A Node's providerID is written in another case.
    Rename,
    /// The watcher does not see some Nodes.
    Unseen,
    /// A person pauses the rollout.
    Pause,
    /// A person holds a machine.
    Hold,
    /// A person requests a replacement.
    Recreate,
}

impl World {
    /// The next trouble.
    pub(super) fn chaos(&mut self) {
        let fleet = self.machines.len().max(1) as u64;
        let every = EVERY * 20 / fleet.max(20);
        let next = self.chance.between(every / 4, every * 7 / 4);
        self.later(next, WorldEvent::Chaos);
        let total = MIX.iter().map(|(share, _)| share).sum();
        let mut drawn = self.chance.below(total);
        for (share, kind) in MIX {
            if drawn < share {
                return self.strike(kind);
            }
            drawn -= share;
        }
    }

    fn strike(&mut self, kind: IncidentKind) {
        match kind {
            IncidentKind::Cordon => {
                for node in self.some_nodes() {
                    let lasts = self.chance.between(MINUTE, 2 * HOUR);
                    self.change_node(&node, |node| node.cordoned = true);
                    self.later(lasts, WorldEvent::Undo(Undo::Cordon(node)));
                }
            }
            IncidentKind::Uncordon => {
                if let Some(node) = self.a_node() {
                    self.change_node(&node, |node| node.cordoned = false);
                }
            }
            IncidentKind::Partition => {
                for node in self.some_nodes() {
                    let lasts = self.chance.between(30 * SECOND, 20 * MINUTE);
                    self.cut(&node, true);
                    self.later(lasts, WorldEvent::Undo(Undo::Cut(node)));
                }
            }
            IncidentKind::Flap => self.flap(),
            IncidentKind::Dead => self.dies(),
            IncidentKind::Prune => {
                if !std::mem::replace(&mut self.pruned, true) {
                    let lasts = self.chance.between(MINUTE, 30 * MINUTE);
                    self.later(lasts, WorldEvent::Undo(Undo::Prune));
                    self.pool_changed();
                }
            }
            IncidentKind::Ignore => {
                if let Some(uid) = self.a_machine() {
                    let lasts = self.chance.between(5 * MINUTE, HOUR);
                    self.ignore(&uid, true);
                    self.later(lasts, WorldEvent::Undo(Undo::Ignore(uid)));
                }
            }
            IncidentKind::DeleteMachine => {
                if let Some(uid) = self.a_machine() {
                    self.delete_machine(&uid);
                }
            }
            IncidentKind::DeleteNode => self.delete_a_node(),
            IncidentKind::Scale => self.scale(),
            IncidentKind::Rename => {
                if let Some(node) = self.a_node() {
                    let lasts = self.chance.between(5 * MINUTE, 30 * MINUTE);
                    self.change_node(&node, |node| node.other_case = true);
                    self.later(lasts, WorldEvent::Undo(Undo::Rename(node)));
                }
            }
            IncidentKind::Unseen => {
                for node in self.some_nodes() {
                    let lasts = self.chance.between(MINUTE, 20 * MINUTE);
                    self.change_node(&node, |node| node.unseen = true);
                    self.later(lasts, WorldEvent::Undo(Undo::Unseen(node)));
                }
            }
            IncidentKind::Pause => {
                let lasts = self.chance.between(MINUTE, HOUR);
                self.ask_rollout(rollout::Signal::Pause);
                self.later(lasts, WorldEvent::Undo(Undo::Pause));
            }
            IncidentKind::Hold => {
                let run = self.a_machine().and_then(|uid| machine_run(&uid).ok());
                if let Some(run) = run {
                    let lasts = self.chance.between(MINUTE, HOUR);
                    self.ask(run.clone(), machine::Signal::Hold);
                    self.later(lasts, WorldEvent::Undo(Undo::Hold(run)));
                }
            }
            IncidentKind::Recreate => {
                let run = self.a_machine().and_then(|uid| machine_run(&uid).ok());
                if let Some(run) = run {
                    self.ask(run, machine::Signal::Recreate);
                }
            }
        }
    }

    /// A Node whose connection is lost three times, for 70 seconds each.
    fn flap(&mut self) {
        if let Some(node) = self.a_node() {
            for n in 0..3 {
                let at = n * 120 * SECOND;
                self.later(at, WorldEvent::Undo(Undo::Flap(node.clone())));
                self.later(at + 70 * SECOND, WorldEvent::Undo(Undo::Cut(node.clone())));
            }
        }
    }

    /// Deletes a Node; its kubelet registers it again when it restarts.
    fn delete_a_node(&mut self) {
        if let Some(node) = self.a_node() {
            let machine = self.nodes.get(&node).map(|node| node.machine.clone());
            let after = self.chance.between(10 * MINUTE, 40 * MINUTE);
            self.delete_node(&node);
            if let Some(machine) = machine {
                self.later(after, WorldEvent::Undo(Undo::Restart(machine)));
            }
        }
    }

    pub(super) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Cordon(node) => self.change_node(&node, |node| node.cordoned = false),
            Undo::Cut(node) => self.cut(&node, false),
            Undo::Flap(node) => self.cut(&node, true),
            Undo::Prune => {
                self.pruned = false;
                self.pool_changed();
            }
            Undo::Ignore(uid) => self.ignore(&uid, false),
            Undo::Restart(uid) => self.later(MINUTE, WorldEvent::Kubelet(uid)),
            Undo::Rename(node) => self.change_node(&node, |node| node.other_case = false),
            Undo::Unseen(node) => self.change_node(&node, |node| node.unseen = false),
            Undo::Pause => self.ask_rollout(rollout::Signal::Resume),
            Undo::Hold(run) => self.ask(run, machine::Signal::Resume),
            Undo::GiveUp(uid) => self.delete_machine(&uid),
        }
    }

    /// A newer payload is installed, and the next one some hours later.
    pub(super) fn install(&mut self) {
        let next = self.chance.between(3 * HOUR, 8 * HOUR);
        self.later(next, WorldEvent::Payload);
        self.payloads += 1;
        let n = self.payloads;
        let desired = Desired {
            version: format!("v{n}"),
            payload: format!("{n}.0.0"),
        };
        self.settings.desired.insert("*".to_owned(), desired);
        self.pool_changed();
    }

    /// An operator retries failed machines.
    pub(super) fn attend(&mut self) {
        self.later(30 * MINUTE, WorldEvent::Attend);
        let failed = |state: &State| match state {
            State::Machine(machine) => machine.view().phase == MachinePhase::Failed,
            State::Rollout(_) | State::None => false,
        };
        let runs = self.engine.runs.values();
        let runs: Vec<RunId> = runs
            .filter(|run| run.closed.is_none() && failed(&run.state))
            .map(|run| run.id.clone())
            .collect();
        for run in runs {
            self.ask(run, machine::Signal::Retry);
        }
    }

    fn dies(&mut self) {
        let Some(uid) = self.a_machine() else {
            return;
        };
        let given_up = self.chance.between(2 * HOUR, 6 * HOUR);
        let Some(machine) = self.machines.get_mut(&uid) else {
            return;
        };
        machine.host.dead = true;
        let name = machine.name.clone();
        self.kubelet_changed(&name);
        self.later(given_up, WorldEvent::Undo(Undo::GiveUp(uid)));
    }

    fn scale(&mut self) {
        let at = usize::try_from(self.chance.below(self.sets.len() as u64)).unwrap_or(0);
        let more = self.chance.percent(50);
        let set = &mut self.sets[at];
        set.replicas = if more {
            set.replicas + 1
        } else {
            set.replicas.saturating_sub(1).max(2)
        };
        self.resized(at);
    }

    pub(super) fn cut(&mut self, node: &str, cut: bool) {
        if let Some(found) = self.nodes.get_mut(node) {
            found.cut = cut;
            self.kubelet_changed(node);
        }
    }

    fn ignore(&mut self, uid: &str, ignored: bool) {
        if let Some(machine) = self.machines.get_mut(uid) {
            machine.ignored = ignored;
            let node = machine.name.clone();
            self.touch(uid);
            self.change_node(&node, |_| {});
        }
    }

    pub(super) fn a_node(&mut self) -> Option<String> {
        let at = self.chance.below(self.nodes.len() as u64);
        let at = usize::try_from(at).ok()?;
        self.nodes.keys().nth(at).cloned()
    }

    pub(super) fn a_machine(&mut self) -> Option<String> {
        let at = self.chance.below(self.machines.len() as u64);
        let at = usize::try_from(at).ok()?;
        self.machines.keys().nth(at).cloned()
    }

    /// One node, or up to a third of them, or in one case of ten all. A large fleet has trouble more often, but not on
    /// more nodes at once, and on all of them as rarely as a small one: otherwise no payload would ever be rolled out
    /// there.
    fn some_nodes(&mut self) -> Vec<String> {
        let all = self.nodes.len() as u64;
        let count = match self.chance.below(10) {
            0..5 => 1,
            5..9 => self.chance.between(1, (all / 3).clamp(1, 8)),
            _ if all > 40 && self.chance.below(all / 20) > 0 => 1,
            _ => all,
        };
        let first = self.chance.below(all);
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let from = usize::try_from(first).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(0);
        let ring = names.iter().cycle().skip(from);
        ring.take(count.min(names.len())).cloned().collect()
    }

    fn ask_rollout(&mut self, signal: rollout::Signal) {
        let run = self.rollout.clone();
        self.request(run, Signal::Rollout(signal));
    }

    fn ask(&mut self, run: RunId, signal: machine::Signal) {
        self.request(run, Signal::Machine(signal));
    }

    fn request(&mut self, run: RunId, signal: Signal) {
        let request = Request {
            id: format!("{}-{}", self.now, self.chance.below(u64::MAX)),
            who: "ann".into(),
            why: "trouble".into(),
            against: Seq(0),
            ask: Ask::Signal(signal),
        };
        let message = InboxMessage {
            run,
            incarnation: None,
            body: Inbound::Requested(request),
        };
        self.later(20, WorldEvent::Message(Box::new(message)));
    }
}
