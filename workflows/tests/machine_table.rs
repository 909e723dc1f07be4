//! Generated transition table of the machine: every phase with every input, the next phase, and the commands.

use crate::common;

use common::{
    In, Story, carrying, converged, csr_is, evicted, machine, machine_gone, machine_is, node,
    node_gone, node_is, planned, pool_is, probed, ready, show, wanting,
};
use dormer_engine_core::{Command, Input, Sender};
use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine::{
        ChangeClass, CsrExpectation, FenceRefusal, Guard, HostRef, MachineFact, MachineRef,
        Outcome, Section, Signal, Task,
    },
    message::Failure,
    other_operator::OtherOperator,
    phase::Listed,
    pool::Desired,
    work,
};
use dormer_workflows::machine::{
    Change, ChangeStrategy, Drain, Lease, Length, Machine, PHASES, Phase, State, TaskKind, Timer,
};
use expect_test::expect_file;

fn change() -> Change {
    Change {
        how: ChangeStrategy::Recreate,
        differs: vec!["service kubelet".into()],
        repair: false,
        anew: false,
        asked: false,
    }
}

/// One of each phase.
fn phases() -> Vec<Phase> {
    let failed = |from: Phase| Phase::Failed {
        from: Box::new(from),
        failure: Failure::lasting("Broken", "it broke"),
    };
    vec![
        Phase::Address,
        Phase::Probing,
        Phase::KeyWait {
            since: Timestamp(0),
        },
        Phase::Adopting,
        Phase::PoolWait,
        Phase::ConvergingHost { rebooted: false },
        Phase::Rebooting {
            boot_id: "boot-1".into(),
            asked: true,
        },
        Phase::NodeWait,
        Phase::ConvergingNode,
        Phase::ReadyWait,
        Phase::Soaking,
        Phase::Marking,
        Phase::Serving,
        Phase::Checking,
        Phase::Applying {
            section: Section::Host,
        },
        Phase::ApprovalWait(change()),
        Phase::OwnerWait(change()),
        Phase::LeaseWait(change()),
        Phase::Closing,
        Phase::Opening(change()),
        Phase::Evicting(change(), Drain::default()),
        Phase::Drained,
        Phase::Deleting,
        Phase::Vanishing,
        Phase::TearingDown,
        Phase::Undoing,
        Phase::Leaving,
        Phase::Reprobing,
        Phase::ClosingGone,
        Phase::ReplacementWait,
        failed(Phase::ConvergingHost { rebooted: false }),
        failed(Phase::Evicting(change(), Drain::default())),
        Phase::Gone,
    ]
}

/// The run that stands in `phase`, with what it would know by then.
fn story_in(phase: Phase) -> Story {
    let early = matches!(
        phase,
        Phase::Address
            | Phase::Probing
            | Phase::KeyWait { .. }
            | Phase::PoolWait
            | Phase::ConvergingHost { .. }
            | Phase::Rebooting { .. }
            | Phase::NodeWait
    );
    let mut story = Story::joined(wanting("v1"));
    let known = std::mem::take(&mut story.state);
    let with_lease = matches!(
        phase,
        Phase::Closing
            | Phase::Opening(_)
            | Phase::Evicting(..)
            | Phase::Drained
            | Phase::Deleting
            | Phase::Vanishing
            | Phase::TearingDown
            | Phase::Undoing
            | Phase::Reprobing
            | Phase::ClosingGone
    );
    let lease = match &phase {
        _ if with_lease => Lease::Held {
            token: LeaseToken(7),
            over_limit: false,
        },
        Phase::Failed { from, .. } if matches!(**from, Phase::Evicting(..)) => Lease::Held {
            token: LeaseToken(7),
            over_limit: false,
        },
        Phase::LeaseWait(_) => Lease::Wanted,
        _ => Lease::None,
    };
    let fresh = early
        || matches!(&phase, Phase::Failed { from, .. } if matches!(**from, Phase::ConvergingHost { .. }));
    let adopting = phase == Phase::Adopting;
    let mut state = State {
        phase,
        lease,
        ..known
    };
    if fresh {
        state = State {
            node: None,
            machine: Some(machine()),
            in_service: false,
            version: None,
            ..state
        };
    }
    if state.phase == Phase::PoolWait {
        state.pool = None;
    }
    if state.phase == Phase::Address {
        state.machine = Some(MachineFact {
            addresses: Vec::new(),
            ..machine()
        });
    }
    if adopting {
        state.version = None;
    }
    state.reported = Some(state.report());
    story.state = state;
    story
}

fn host() -> HostRef {
    HostRef {
        address: "10.0.0.1".into(),
        ..HostRef::default()
    }
}

fn named(name: &str) -> Task {
    let machine = MachineRef::default();
    let token = LeaseToken(7);
    match name {
        "probe" => Task::Probe { host: host() },
        "converge-host" => Task::Converge {
            host: host(),
            section: Section::Host,
            desired: Desired::default(),
            generation: 1,
            node_name: None,
        },
        "plan" => Task::Plan {
            host: host(),
            desired: Desired::default(),
            node_name: None,
            adopt: false,
            generation: 1,
            renew: true,
        },
        "approve-csr" => Task::ApproveCsr {
            csr: "csr-1".into(),
            expect: CsrExpectation::default(),
        },
        "close-fence" => Task::CloseFence {
            machine,
            node: None,
            token,
        },
        _ => Task::DeleteMachine {
            machine,
            token,
            guard: Guard::default(),
        },
    }
}

/// One of each input, and the more telling ones in several kinds.
pub(crate) fn inputs() -> Vec<(String, In)> {
    let here = || MachineFact {
        node: Some("win-a".into()),
        ..machine()
    };
    let mut all: Vec<(String, In)> = vec![
        (
            "Machine: another address".into(),
            machine_is(MachineFact {
                addresses: vec!["10.0.0.2".into()],
                ..here()
            }),
        ),
        (
            "Machine: Failed".into(),
            machine_is(MachineFact {
                phase: Some("Failed".into()),
                error: Some("InvalidConfiguration: no such image".into()),
                ..here()
            }),
        ),
        (
            "Machine: being deleted".into(),
            machine_is(MachineFact {
                deleting: true,
                ..here()
            }),
        ),
        (
            "Machine: ignore=true".into(),
            machine_is(MachineFact {
                ignored: true,
                ..here()
            }),
        ),
        ("Machine: gone".into(), machine_gone()),
        ("Node: not Ready".into(), node_is(node())),
        ("Node: Ready".into(), node_is(ready())),
        (
            "Node: cordoned".into(),
            node_is(dormer_proto::machine::NodeFact {
                cordoned: true,
                ..carrying("v1")
            }),
        ),
        (
            "Node: another boot".into(),
            node_is(dormer_proto::machine::NodeFact {
                boot_id: "boot-2".into(),
                ..carrying("v1")
            }),
        ),
        (
            "Node: another machine's".into(),
            node_is(dormer_proto::machine::NodeFact {
                provider_id: Some("aws:///z".into()),
                ..ready()
            }),
        ),
        ("Node: gone".into(), node_gone()),
        ("CSR: pending".into(), csr_is(true)),
        ("CSR: settled".into(), csr_is(false)),
        ("Pool: wants v1".into(), pool_is(wanting("v1"))),
        ("Pool: wants v2".into(), pool_is(wanting("v2"))),
    ];
    let outcomes = [
        ("probed", probed()),
        ("probed after a boot", common::probed_at("boot-2")),
        ("converged", converged(Section::Host, false)),
        ("converged, reboot", converged(Section::Host, true)),
        ("reboot asked", Outcome::RebootAsked),
        ("planned: equal", planned(None)),
        ("planned: live", planned(Some(ChangeClass::Live))),
        ("planned: restart", planned(Some(ChangeClass::Restart))),
        ("planned: drain", planned(Some(ChangeClass::Drain))),
        ("torn down", Outcome::TornDown),
        (
            "csr approved",
            Outcome::CsrApproved {
                csr: "csr-1".into(),
            },
        ),
        ("node marked", Outcome::NodeMarked),
        (
            "fence opened",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        ),
        (
            "fence refused: the node serves",
            Outcome::FenceRefused {
                why: FenceRefusal::NodeServes,
                said: String::new(),
            },
        ),
        (
            "fence refused: gone",
            Outcome::FenceRefused {
                why: FenceRefusal::Gone,
                said: String::new(),
            },
        ),
        ("fence closed", Outcome::FenceClosed),
        ("evicted, 2 left", evicted(1, 2)),
        ("evicted, 0 left", evicted(1, 0)),
        ("fence closed meanwhile", Outcome::FenceClosedMeanwhile),
        ("machine deleted", Outcome::MachineDeleted),
        (
            "node found",
            Outcome::NodeFound {
                name: "win-a".into(),
            },
        ),
        ("node absent", Outcome::NodeAbsent),
    ];
    for (name, outcome) in outcomes {
        all.push((
            format!("done: {name}"),
            Input::Finished {
                task: named("delete-machine"),
                outcome,
            },
        ));
    }
    for name in [
        "probe",
        "converge-host",
        "plan",
        "approve-csr",
        "close-fence",
        "delete-machine",
    ] {
        let failure = Failure::lasting("Broken", "it broke");
        all.push((
            format!("given up: {name}"),
            Input::Exhausted {
                task: named(name),
                failure,
            },
        ));
    }
    for timer in [
        Timer::Again,
        Timer::Deadline,
        Timer::Soak,
        Timer::Drift,
        Timer::Drain,
    ] {
        all.push((format!("timer: {timer:?}"), Input::Fired(timer)));
    }
    let signals = [
        Signal::Retry,
        Signal::Pause,
        Signal::Resume,
        Signal::Hold,
        Signal::Drain,
        Signal::Recreate,
        Signal::Approve,
        Signal::Abort,
        Signal::Remove,
        Signal::TrustHostKey {
            fingerprint: "SHA256:new".into(),
        },
        Signal::Granted {
            token: LeaseToken(8),
            over_limit: false,
        },
        Signal::Enrol,
        Signal::Replaced { by: None },
    ];
    for signal in signals {
        let from = Sender::Person {
            who: "ada".into(),
            why: String::new(),
        };
        let word = format!("{signal:?}");
        let word = word.split([' ', '{']).next().unwrap_or_default().to_owned();
        all.push((
            format!("signal: {word}"),
            Input::Signalled {
                from,
                signal: work::Signal::Machine(signal),
            },
        ));
    }
    all
}

#[test]
fn every_phase_and_input_has_an_answer() {
    let mut text = String::from(
        "# Generated by tests/machine_table.rs. An input that is not listed leaves the phase as it is and asks for nothing.\n",
    );
    for phase in phases() {
        let origin = story_in(phase.clone());
        let label = phase.label();
        text += &format!("\n## {label}: {}\n", describe(&phase));
        for (name, input) in inputs() {
            let mut story = story_in(phase.clone());
            let commands = story.quietly(input);
            if story.state.phase == origin.state.phase && commands.is_empty() {
                continue;
            }
            let to = if story.state.phase == origin.state.phase {
                "(stays)".to_owned()
            } else {
                format!(
                    "{}: {}",
                    story.state.phase.label(),
                    describe(&story.state.phase)
                )
            };
            let asked: Vec<String> = commands.iter().map(show).collect();
            text += &format!("{name} → {to} | {}\n", asked.join("; "));
        }
    }
    expect_file!["machine_table.txt"].assert_eq(&text);
}

fn describe(phase: &Phase) -> String {
    match phase {
        Phase::Failed { from, .. } => format!("{} (from: {})", phase.name(), from.name()),
        phase => phase.name().to_owned(),
    }
}

/// No phase is left out of the tables.
#[test]
fn one_of_each_phase_is_tried() {
    for row in &PHASES {
        let tried = phases().iter().any(|phase| phase.id() == row.phase);
        assert!(tried, "{}", row.phase);
    }
}

/// The table of phases holds what the phases do: each task and timer that is asked for stands in the row of the phase
/// that asks for it.
#[test]
fn each_phase_asks_for_what_its_row_says() {
    for phase in phases() {
        for (name, input) in inputs() {
            let mut story = story_in(phase.clone());
            let commands = story.quietly(input);
            let row = story.state.phase.row();
            // A phase that is entered and left at once starts a timer, which is then cancelled.
            let cancelled = |timer: &Timer| commands.contains(&Command::CancelTimer(*timer));
            for command in &commands {
                let listed = match command {
                    Command::Run(task, _) => {
                        TaskKind::of(task).is_none_or(|kind| row.awaits.contains(&kind))
                    }
                    Command::StartTimer(timer, _) => {
                        row.length(*timer).is_some() || cancelled(timer)
                    }
                    _ => true,
                };
                let asked = show(command);
                assert!(listed, "{} on {name}: {asked}", describe(&phase));
            }
        }
    }
}

/// The table of phases, as people read it.
#[test]
fn the_phases_are_as_committed() {
    let flag = |on: bool, word: &'static str| on.then_some(word);
    let mut text = String::from(
        "# Generated by tests/machine_table.rs from src/machine/table.rs and proto/src/phase.rs.\n",
    );
    for row in &PHASES {
        let phase = row.phase;
        text += &format!("\n{}: {} ({})\n", phase.id(), phase.text(), phase.state());
        if !row.waits_for.is_empty() {
            text += &format!("  waits for {}\n", row.waits_for);
        }
        if !row.awaits.is_empty() {
            text += &format!("  awaits    {}\n", words(row.awaits));
        }
        for (timer, length) in row.timers {
            let length = match length {
                Length::Ms(ms) => format!("{} s", ms / 1_000),
                Length::PoolSoak => "the pool's soak".into(),
                Length::PoolDrainTimeout => "the pool's drain timeout".into(),
                Length::PoolRepairAfter => "the pool's repairAfter".into(),
                Length::Drift => "4 to 6 hours, by the run's id".into(),
            };
            text += &format!("  timer     {timer:?}: {length}\n");
        }
        let flags = [
            flag(row.disturbs, "disturbs a node"),
            flag(
                row.after_drain,
                "drains a node under the lease first if pods may run there",
            ),
            flag(row.leaves, "leaves"),
            flag(row.even_paused, "begins even when paused"),
        ];
        let flags: Vec<&str> = flags.into_iter().flatten().collect();
        if !flags.is_empty() {
            text += &format!("  {}\n", flags.join(", "));
        }
    }
    expect_file!["phases.txt"].assert_eq(&text);
}

fn words(kinds: &[TaskKind]) -> String {
    let words: Vec<String> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
    words.join(", ")
}

/// Nothing is left of a row's placeholders in what people read.
#[test]
fn what_a_phase_waits_for_is_a_sentence() {
    for phase in phases() {
        let waiting = story_in(phase.clone()).state.view().waiting_for;
        let whole = waiting
            .as_ref()
            .is_none_or(|text| !text.contains(['{', '}']));
        assert!(whole, "{}: {waiting:?}", describe(&phase));
    }
}

/// No input makes a run disturb a serving machine without the lease.
#[test]
fn nothing_disturbs_a_serving_node_without_the_lease() {
    for phase in phases() {
        let origin = story_in(phase.clone());
        if !origin.state.in_service || origin.state.lease.token().is_some() {
            continue;
        }
        for (name, input) in inputs() {
            let mut story = story_in(phase.clone());
            story.quietly(input);
            let served = story.state.in_service && story.state.lease.token().is_none();
            for task in &story.open {
                let disturbs = matches!(
                    task,
                    Task::Evict { .. }
                        | Task::DeleteMachine { .. }
                        | Task::TearDown { .. }
                        | Task::Reboot { .. }
                );
                assert!(
                    !(served && disturbs),
                    "{} on {name} asks for {}",
                    describe(&phase),
                    task.name()
                );
            }
        }
    }
}

/// While another operator runs, no input issues a task for a host or its Node, except closing a fence.
#[test]
fn beside_another_operator_only_a_fence_is_closed() {
    for phase in phases() {
        let mut beside = story_in(phase.clone());
        let fact = beside.state.machine.clone().expect("a Machine");
        let arrives = || {
            machine_is(MachineFact {
                neighbour: OtherOperator::Runs("another one runs".into()),
                ..fact.clone()
            })
        };
        let commands = beside.quietly(arrives());
        let asked = |commands: &[Command<Machine>]| -> Vec<&'static str> {
            let tasks = commands.iter().filter_map(|command| match command {
                // Of the API server alone: a fence is closed, and a kubelet that serves keeps its certificate
                // meanwhile.
                Command::Run(Task::CloseFence { .. } | Task::ApproveCsr { .. }, _) => None,
                Command::Run(task, _) => Some(task.name()),
                _ => None,
            });
            tasks.collect()
        };
        let none: [&str; 0] = [];
        assert_eq!(asked(&commands), none, "{}", describe(&phase));
        for (name, input) in inputs() {
            let mut story = story_in(phase.clone());
            story.quietly(arrives());
            let commands = story.quietly(input);
            assert_eq!(asked(&commands), none, "{} on {name}", describe(&phase));
        }
    }
}

/// Every holder returns the lease in the end: no phase forgets it.
#[test]
fn a_lease_is_only_dropped_by_release() {
    for phase in phases() {
        for (name, input) in inputs() {
            let mut story = story_in(phase.clone());
            let held = story.state.lease.token();
            let commands = story.quietly(input);
            if held.is_some() && story.state.lease.token().is_none() {
                let released = commands.iter().any(|c| show(c).contains("release"));
                assert!(released, "{} on {name} forgets the lease", describe(&phase));
            }
            let over = story.state.phase == Phase::Gone;
            assert!(
                !(over && story.state.lease.token().is_some()),
                "{} on {name}",
                describe(&phase)
            );
        }
    }
}
