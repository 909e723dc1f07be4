//! Random walks through a machine's life, seeded: whatever comes in whatever order, the laws of a machine hold.

use crate::{
    common::{
        In, Story, carrying, converged, evicted, in_place, machine, node_is, planned, pool_is,
        probed, probed_at, wanting,
    },
    machine_table::inputs,
};
use dormer_engine_core::{Command, Input};
use dormer_proto::{
    checks::{CheckResult, NodeCheck},
    id::LeaseToken,
    machine::{ChangeClass, FenceRefusal, Outcome, Section, Signal, Task},
    message::Failure,
    pool::{Approval, PoolSettings},
    work,
};
use dormer_workflows::machine::{ChangeStrategy, Lease, Machine, Phase, State};

const WALKS: u64 = 1_500;
const STEPS: u32 = 60;

/// A sequence that looks like chance and is the same every time (Marsaglia's xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).expect("it is below a usize")
    }
}

fn asked(commands: &[Command<Machine>]) -> impl Iterator<Item = &Task> {
    commands.iter().filter_map(|command| match command {
        Command::Run(task, _) => Some(task),
        _ => None,
    })
}

/// What pods on a node feel.
fn destroys(task: &Task) -> bool {
    matches!(
        task,
        Task::Evict { .. }
            | Task::DeleteMachine { .. }
            | Task::TearDown { .. }
            | Task::Reboot { .. }
    )
}

/// What is wrong with one step, from `before` to `after`.
fn broken(
    before: &State,
    after: &State,
    input: &str,
    commands: &[Command<Machine>],
) -> Option<&'static str> {
    let held = after.lease.token().is_some();
    if after.protected() && asked(commands).any(destroys) {
        return Some("a node that serves is disturbed without the lease");
    }
    if after.ignored() && !held && asked(commands).next().is_some() {
        return Some("something is done to a machine that is to be left alone");
    }
    let deletes = asked(commands).any(|task| matches!(task, Task::DeleteMachine { .. }));
    if deletes && after.ignored() {
        return Some("a Machine that is to be left alone is deleted");
    }
    if after.paused.is_some() && asked(commands).any(destroys) {
        return Some("a paused machine is disturbed");
    }
    let ends = after.phase == Phase::Gone && before.phase != Phase::Gone;
    if ends && !commands.contains(&Command::Complete) {
        return Some("a machine is gone, and its run never ends");
    }
    let moved = after.phase != before.phase && !before.phase.leaving();
    if after.paused.is_some() && input.starts_with("timer") && moved {
        return Some("a timer moves a paused machine");
    }
    let opens = asked(commands).any(|task| matches!(task, Task::OpenFence { .. }));
    let granted = opens && before.lease == Lease::Wanted;
    if let (true, Phase::Opening(change)) = (granted, &after.phase) {
        if !change.repair && after.needs_approval() {
            return Some("a change begins that nobody approved");
        }
        if change.how == ChangeStrategy::Recreate && after.owner().is_none() {
            return Some("a Machine is to be deleted that nobody replaces");
        }
        if after.change_refusal().is_some() {
            return Some("a change begins that is not allowed");
        }
    }
    let stays = !after.phase.leaving() && !matches!(after.phase, Phase::Failed { .. });
    (before.phase.leaving() && stays).then_some("a machine that leaves comes back")
}

/// Pods on the Node of a machine that holds the lease, as a person would follow them.
#[derive(Default)]
struct Pods {
    /// They may have come since the Node was drained.
    came: bool,
    /// No kubelet runs: the host was torn down, and is not set up again.
    stopped: bool,
}

impl Pods {
    /// One step, from `before` to `after`. What is wrong with it?
    fn broken(
        &mut self,
        before: &State,
        after: &State,
        input: &In,
        commands: &[Command<Machine>],
    ) -> Option<&'static str> {
        let held = after.lease.token();
        if held.is_none() || before.lease.token() != held {
            *self = Self::default();
        }
        let drains = |state: &State| matches!(state.phase, Phase::Opening(_) | Phase::Evicting(..));
        let drained = matches!(
            after.phase,
            Phase::TearingDown | Phase::Deleting | Phase::Drained
        );
        match input {
            Input::Finished {
                outcome: Outcome::TornDown,
                ..
            } if before.phase == Phase::TearingDown => {
                (self.came, self.stopped) = (false, true);
            }
            Input::Finished {
                outcome:
                    Outcome::Converged {
                        section: Section::Host,
                        reboot: false,
                        ..
                    },
                ..
            } => self.stopped = false,
            Input::Exhausted {
                task: Task::Converge { .. },
                ..
            } => self.stopped = false,
            Input::Finished { .. } | Input::Fired(_) if drains(before) && drained => {
                self.came = false;
            }
            _ => {}
        }
        let uid = |state: &State| state.node.as_ref().map(|node| node.uid.clone());
        let cordoned = |state: &State| state.node.as_ref().is_some_and(|node| node.cordoned);
        let schedulable = after.node.is_some() && !cordoned(after);
        self.came |=
            held.is_some() && schedulable && (cordoned(before) || uid(before) != uid(after));
        let is_ready = |state: &State| state.node.as_ref().is_some_and(|node| node.ready);
        let ready = is_ready(after);
        self.stopped &= is_ready(before) || !ready;
        let restarts = after.under_lease == Some(ChangeStrategy::Restart);
        let up = held.is_some() && ready && !self.stopped && !after.phase.leaving();
        // A change that disturbs no pod is applied by a host that serves.
        let up = up && !after.phase.joined();
        for task in asked(commands).filter(|_| up) {
            let wrong = match task {
                Task::Converge {
                    section: Section::Host,
                    ..
                } => self.came && !restarts,
                Task::Reboot { .. } => self.came || restarts,
                Task::TearDown { guard, .. } | Task::DeleteMachine { guard, .. } => {
                    self.came && !guard.anew
                }
                _ => false,
            };
            if wrong {
                return Some("a node is changed under pods that came since its drain");
            }
        }
        None
    }
}

/// What a worker may say of a task.
fn answers(task: &Task) -> Vec<Outcome> {
    let refused = |why| Outcome::FenceRefused {
        why,
        said: String::new(),
    };
    let stopped = || {
        [
            refused(FenceRefusal::NodeServes),
            refused(FenceRefusal::Stopped),
            Outcome::FenceClosedMeanwhile,
        ]
    };
    match task {
        Task::Probe { .. } => vec![probed(), probed_at("boot-2")],
        Task::Plan { .. } => vec![
            planned(None),
            planned(Some(ChangeClass::Live)),
            planned(Some(ChangeClass::Restart)),
            planned(Some(ChangeClass::Drain)),
            planned(Some(ChangeClass::Replace)),
        ],
        Task::Converge { section, .. } => {
            vec![converged(*section, false), converged(*section, true)]
        }
        Task::Reboot { .. } => vec![Outcome::RebootAsked],
        Task::MarkNode { expect: None, .. } => vec![Outcome::NodeMarked],
        Task::MarkNode { .. } => vec![
            Outcome::NodeChecked { checks: Vec::new() },
            Outcome::NodeChecked {
                checks: vec![NodeCheck {
                    check: "certificate".into(),
                    result: CheckResult::Failed,
                    said: String::new(),
                }],
            },
        ],
        Task::TearDown { .. } => [vec![Outcome::TornDown; 4], stopped().into()].concat(),
        Task::OpenFence { .. } => vec![
            Outcome::FenceOpened {
                was_cordoned: false,
            },
            Outcome::FenceOpened { was_cordoned: true },
            refused(FenceRefusal::NodeServes),
            refused(FenceRefusal::Stopped),
        ],
        Task::CloseFence { .. } => vec![Outcome::FenceClosed, Outcome::MachineDeleted],
        Task::Evict { .. } => [
            vec![evicted(1, 0); 4],
            vec![evicted(1, 2)],
            stopped().into(),
        ]
        .concat(),
        Task::DeleteMachine { .. } => [vec![Outcome::MachineDeleted; 4], stopped().into()].concat(),
        Task::ApproveCsr { csr, .. } => vec![Outcome::CsrApproved { csr: csr.clone() }],
        Task::FindNode { .. } => vec![
            Outcome::NodeAbsent,
            Outcome::NodeFound {
                name: "win-a".into(),
            },
        ],
        Task::SetPayload { .. } => vec![Outcome::PayloadSet],
        Task::ForgetHost { .. } => vec![Outcome::HostForgotten],
    }
}

/// What a worker says of an open task: most often how it went, now and then that it was given up.
fn answer(task: Task, chance: &mut Chance) -> (String, In) {
    let name = task.name();
    if chance.below(8) == 0 {
        let failure = Failure::lasting("ConnectTimeout", "the host does not answer");
        let input = Input::Exhausted { task, failure };
        return (format!("given up: {name}"), input);
    }
    let mut all = answers(&task);
    let outcome = all.swap_remove(chance.below(all.len()));
    let said = format!("{name}: {outcome:?}");
    (said, Input::Finished { task, outcome })
}

/// A grant with a newer token than the machine ever had.
fn grant(token: u64) -> (String, In) {
    let signal = Signal::Granted {
        token: LeaseToken(token),
        over_limit: token.is_multiple_of(3),
    };
    let from = dormer_engine_core::Sender::Run(work::rollout_run("windows").expect("short"));
    let signal = work::Signal::Machine(signal);
    ("the lease".into(), Input::Signalled { from, signal })
}

#[test]
fn the_laws_of_a_machine_hold_in_every_order() {
    let manual = PoolSettings {
        approval: Approval::Manual,
        ..in_place("v2")
    };
    let mut all = inputs();
    all.push(("Pool: v2 in place".into(), pool_is(in_place("v2"))));
    all.push(("Pool: v2 with approval".into(), pool_is(manual)));
    let soaking = PoolSettings {
        soak_ms: 60_000,
        verify: true,
        ..wanting("v2")
    };
    all.push(("Pool: v2 with a soak".into(), pool_is(soaking)));
    // What ends no life.
    let ends = ["Machine: being deleted", "Machine: gone", "signal: Remove"];
    let live = all
        .iter()
        .filter(|(name, _)| !ends.contains(&name.as_str()));
    let live: Vec<(String, In)> = live.cloned().collect();
    let mut phases = std::collections::BTreeSet::new();
    for seed in 1..=WALKS {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut story = match chance.below(4) {
            0 => Story::begin(machine()),
            _ => Story::joined(wanting("v1")),
        };
        let mut way = Vec::new();
        let mut pods = Pods::default();
        for step in 0..STEPS {
            // What a machine waits for comes more often than anything else.
            let open = story.open.len();
            let (name, input) = match chance.below(8) {
                0..2 if story.state.lease == Lease::Wanted => grant(u64::from(step) + 10),
                0..4 if open > 0 => {
                    let task = story.open.remove(chance.below(open));
                    answer(task, &mut chance)
                }
                4 => ("Node: Ready with v1".into(), node_is(carrying("v1"))),
                5 => live[chance.below(live.len())].clone(),
                _ => all[chance.below(all.len())].clone(),
            };
            let before = story.state.clone();
            way.push(name.clone());
            let commands = story.later_ms(60_000).quietly(input.clone());
            phases.insert(story.state.phase.id());
            let wrong = broken(&before, &story.state, &name, &commands);
            let wrong = wrong.or_else(|| pods.broken(&before, &story.state, &input, &commands));
            assert_eq!(wrong, None, "seed {seed}: {way:?}: {commands:?}");
            // A holder of the lease returns it in the end.
            let lost = before.lease.token().is_some() && story.state.lease.token().is_none();
            let told = commands
                .iter()
                .any(|command| matches!(command, Command::Signal(..)));
            assert!(
                !lost || told,
                "seed {seed}: {way:?}: the lease is forgotten"
            );
        }
    }
    assert!(phases.len() > 28, "the walks see little: {phases:?}");
}
