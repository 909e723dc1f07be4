//! Kubernetes Events on Machines, Nodes and the pool. An Event's name follows from its record, so each is written
//! once, whichever process writes it and however often.

use super::Settings;
use crate::{SharedRun, views::KnownMachines};
use dormer_engine_core::Run;
use dormer_proto::{
    id::{LeaseToken, RunId, Seq, Timestamp},
    phase::{Listed, MachineState, RolloutState},
    pool::with_remedy,
};
use dormer_workflows::{Dormer, State, machine, rollout};
use std::collections::{BTreeMap, BTreeSet};

/// Age limit of Events at the first poll of a process, in milliseconds. Older records were reported already, or are
/// only history.
const EVENT_AGE_MS_MAX: u64 = 600_000;
/// Namespace of Events about cluster-scoped objects.
const DEFAULT: &str = "default";
/// Longest object name within an Event's name, in bytes. Kubernetes limits the Event's name to 253.
const NAME_BYTES_MAX: usize = 190;

/// Object that an Event regards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventSubject {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: Option<String>,
}

/// Content of an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventText {
    pub(super) name: String,
    pub(super) about: EventSubject,
    pub(super) warning: bool,
    pub(super) reason: String,
    pub(super) note: String,
    pub(super) at: Timestamp,
}

impl EventText {
    pub(super) fn namespace(&self) -> &str {
        self.about.namespace.as_deref().unwrap_or(DEFAULT)
    }
}

/// Events that were already written.
#[derive(Debug, Default)]
pub(super) struct SentEvents {
    /// Record at which each run entered its state, as of the last poll.
    entered: BTreeMap<RunId, Seq>,
    tokens: BTreeSet<(RunId, LeaseToken)>,
}

impl SentEvents {
    /// New Events. They count as written from now on.
    pub(super) fn unsent(
        &mut self,
        runs: &[SharedRun],
        now: Timestamp,
        settings: &Settings,
    ) -> Vec<EventText> {
        let mut unsent = Vec::new();
        let names = crate::views::names(runs);
        for run in runs {
            let known = self.entered.insert(run.id.clone(), run.entered.seq);
            let recent = now.since_ms(run.entered.at) < EVENT_AGE_MS_MAX;
            let entered = known.map_or(recent, |seq| seq != run.entered.seq);
            match &run.state {
                State::Machine(state) => {
                    if entered {
                        unsent.extend(of_machine(run, state));
                    }
                }
                State::Rollout(state) => {
                    if entered {
                        unsent.extend(of_pool(run, state, settings));
                    }
                    unsent.extend(self.granted(run, state, now, settings, &names));
                }
                State::None => {}
            }
        }
        let there: BTreeSet<&RunId> = runs.iter().map(|run| &run.id).collect();
        self.entered.retain(|run, _| there.contains(run));
        unsent
    }

    fn granted(
        &mut self,
        run: &Run<Dormer>,
        state: &rollout::State,
        now: Timestamp,
        settings: &Settings,
        names: &KnownMachines,
    ) -> Vec<EventText> {
        let slots = state.view().slots;
        let held: BTreeSet<LeaseToken> = slots.iter().map(|slot| slot.token).collect();
        self.tokens
            .retain(|(of, token)| *of != run.id || held.contains(token));
        let fresh = slots.into_iter().filter(|slot| {
            let new = self.tokens.insert((run.id.clone(), slot.token));
            new && now.since_ms(slot.since) < EVENT_AGE_MS_MAX
        });
        let sent = fresh.map(|slot| {
            let holder = names.get(&slot.holder).unwrap_or(&slot.holder);
            EventText {
                name: format!("dormer-pool-{}.lease.{:x}", run.id.key(), slot.token.0),
                about: pool(run, settings),
                warning: false,
                reason: "LeaseGranted".into(),
                note: format!(
                    "{holder} holds the lease (token {}) until it, or its replacement, serves",
                    slot.token.0
                ),
                at: slot.since,
            }
        });
        sent.collect()
    }
}

fn of_machine(run: &Run<Dormer>, state: &machine::State) -> Vec<EventText> {
    let view = state.view();
    if view.name.is_empty() {
        return Vec::new();
    }
    let note = note(&view);
    let event = |about: EventSubject| {
        let uid = view.uid.get(..8).unwrap_or(&view.uid);
        let short = &about.name[..about.name.floor_char_boundary(NAME_BYTES_MAX)];
        EventText {
            name: format!("{short}.{uid}.{:x}", run.entered.seq.0),
            about,
            warning: view.phase.state() == MachineState::Failed,
            reason: view.phase.state().id().into(),
            note: note.clone(),
            at: run.entered.at,
        }
    };
    let machine = EventSubject {
        api_version: "machine.openshift.io/v1beta1",
        kind: "Machine",
        namespace: Some(view.namespace.clone()),
        name: view.name.clone(),
        uid: Some(view.uid.clone()),
    };
    let on_nodes = [
        MachineState::Joined,
        MachineState::Draining,
        MachineState::Failed,
    ];
    let node = state
        .node
        .as_ref()
        .filter(|_| on_nodes.contains(&view.phase.state()));
    // Kubernetes' components put a Node's name where other objects have the UID, and `kubectl describe node` searches
    // by it.
    let node = node.map(|node| EventSubject {
        api_version: "v1",
        kind: "Node",
        namespace: None,
        name: node.name.clone(),
        uid: Some(node.name.clone()),
    });
    std::iter::once(machine).chain(node).map(event).collect()
}

/// Text of the Event: the cause in words.
fn note(view: &machine::View) -> String {
    let name = &view.name;
    match (view.phase.state(), &view.reason, &view.waiting_for) {
        (MachineState::Joined, _, None) => format!(
            "serves as Node {} at {}",
            view.node.as_deref().unwrap_or("?"),
            view.version
                .as_deref()
                .unwrap_or("a version that is not known")
        ),
        (MachineState::Failed, Some(why), _) => format!("{why}. What to do: dormer why {name}"),
        (_, Some(why), Some(waits)) => format!("{why}; waits for {waits}"),
        (_, Some(one), None) => one.clone(),
        (_, None, Some(waits)) => format!("waits for {waits}"),
        (state, None, None) => state.id().to_owned(),
    }
}

fn of_pool(run: &Run<Dormer>, state: &rollout::State, settings: &Settings) -> Option<EventText> {
    let view = state.view();
    let label = view.state;
    let note = match label {
        RolloutState::Halted => view.halted?,
        RolloutState::Paused => {
            let cure = view.held_cure.as_deref();
            let held = view.held.as_deref().map(|why| with_remedy(why, cure));
            let why = view.paused.or(held)?;
            format!("no further machine is upgraded: {why}")
        }
        RolloutState::Open => "machines may be upgraded, within the pool's limit".into(),
        RolloutState::Enrolling => return None,
    };
    Some(EventText {
        name: format!("dormer-pool-{}.{:x}", run.id.key(), run.entered.seq.0),
        about: pool(run, settings),
        warning: label == RolloutState::Halted,
        reason: format!("Rollout{label}"),
        note,
        at: run.entered.at,
    })
}

fn pool(run: &Run<Dormer>, settings: &Settings) -> EventSubject {
    EventSubject {
        api_version: "dormer.io/v1beta1",
        kind: "WindowsPool",
        namespace: Some(settings.namespace.clone()),
        name: run.id.key().to_owned(),
        uid: None,
    }
}
