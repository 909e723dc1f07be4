//! Sources of machines: the machine APIs that the cluster serves, found by discovery. Each has a state of its own, and
//! one that is absent or forbidden stops no other.

use super::{
    cluster::{ApiFailure, ObjectChange, sentence},
    status::{Source, SourceState},
    view::Kind,
};
use crate::source;
use dormer_proto::machine::MachineApi;
use kube::Client;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::{sync::mpsc::Sender, time::Instant};

/// How long discovery may take.
const LIMIT: Duration = Duration::from_secs(30);

/// The machine APIs that are served now; of Cluster API the newer version.
pub(super) async fn served(client: &Client) -> Result<Vec<MachineApi>, ApiFailure> {
    let slow = |_| ApiFailure("discovery of the cluster's kinds takes over 30 s".to_owned());
    let served = tokio::time::timeout(LIMIT, source::served(client)).await;
    let served = served.map_err(slow)?;
    served.map_err(|error| sentence("list", "the groups of the API", &error))
}

/// Waits until other APIs are served than these, and calls that a gap: the next list is of them.
pub(super) async fn follow(
    client: Client,
    known: Vec<MachineApi>,
    every: Duration,
    to: Sender<ObjectChange>,
) {
    loop {
        tokio::select! {
            () = to.closed() => return,
            () = tokio::time::sleep(every) => {}
        }
        // An API that cannot be requested here is found by the lists.
        if let Ok(served) = served(&client).await
            && served != known
        {
            let other = ApiFailure("the cluster serves other kinds of machines now".to_owned());
            return drop(to.send(ObjectChange::Gap(other)).await);
        }
    }
}

/// States of the sources, by kind.
#[derive(Debug, Default)]
pub(super) struct Sources {
    states: BTreeMap<Kind, (String, SourceState)>,
    /// Groups that were served since this process began.
    groups: BTreeSet<&'static str>,
    /// Time of this process's first request.
    began: Option<Instant>,
}

impl Sources {
    /// Takes the APIs that are served before a list, and forgets the others. Answers whether to keep machines of a group
    /// that is not served now. It keeps those of a group that was served before. For `believed_after` after start it keeps
    /// those of every group, if none is served that clouds have. An API server that has just started, or an extension that is registered
    /// anew, lacks groups for a while (kubernetes#115241). A definition is removed after its objects, and the watches
    /// report those.
    pub(super) fn begin(&mut self, served: &[MachineApi], believed_after: Duration) -> bool {
        let gone = |kind: &Kind| match kind {
            Kind::Machine(api) | Kind::Set(api) => !served.contains(api),
            _ => false,
        };
        self.states.retain(|kind, _| !gone(kind));
        let now: BTreeSet<_> = served.iter().map(|api| api.group()).collect();
        let began = *self.began.get_or_insert_with(Instant::now);
        let lost: Vec<_> = self.groups.difference(&now).copied().collect();
        if !lost.is_empty() {
            let groups = lost.join(", ");
            tracing::warn!("the cluster serves {groups} no more: its machines are left alone");
        }
        let none = now.iter().all(|group| *group == MachineApi::Host.group());
        let early = none && began.elapsed() < believed_after;
        self.groups.extend(now);
        early || !lost.is_empty()
    }

    /// Records the state of a source. A forbidden one becomes a finding, and is logged once.
    pub(super) fn is(&mut self, kind: Kind, what: &str, state: SourceState) {
        let known = self.states.get(&kind).map(|(_, state)| state);
        if known == Some(&state) {
            return;
        }
        match &state {
            SourceState::Forbidden(why) => {
                tracing::warn!(
                    "machines of one kind cannot be listed; the other kinds are unaffected: {why}"
                );
            }
            SourceState::Absent => tracing::info!("the cluster has no {what}"),
            SourceState::Watched => {
                if known.is_some() {
                    tracing::info!("{what} are watched now");
                }
            }
        }
        self.states.insert(kind, (what.to_owned(), state));
    }

    /// The version of Cluster API whose Machines are watched.
    pub(super) fn cluster_api(&self) -> Option<MachineApi> {
        self.states
            .iter()
            .find_map(|(kind, (_, state))| match kind {
                Kind::Machine(api) if api.is_cluster() && *state == SourceState::Watched => {
                    Some(*api)
                }
                _ => None,
            })
    }

    /// All of them, as the status shows them.
    pub(super) fn all(&self) -> Vec<Source> {
        let optional =
            |kind: &Kind| matches!(kind, Kind::Machine(api) | Kind::Set(api) if api.is_cluster());
        let states = self.states.iter();
        let sources = states.map(|(kind, (what, state))| Source {
            what: what.clone(),
            state: state.clone(),
            expected: !optional(kind),
        });
        sources.collect()
    }
}
