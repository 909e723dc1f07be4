//! Comparison of a host with its desired state, and what it renews on the way: trusted certificates and tokens that end.

use super::{
    HostExecutor, SectionTarget,
    call::{HostAttempt, ProgramCommand},
    cluster::{Cluster, MachineInCluster},
    converged, facts,
    prepared::CloudTokenSent,
};
use dormer_profile::{
    drift::{change_class, differences},
    invocation::Mode,
};
use dormer_proto::{
    id::Seq,
    machine::{HostFence, NAMED_ITEMS_MAX, Outcome, Section},
    message::Failure,
    pool::Desired,
};

/// What a comparison is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanTarget<'a> {
    pub(super) desired: &'a Desired,
    pub(super) node: Option<&'a str>,
    /// Whether it takes a new generation of the host fence.
    pub(super) adopt: bool,
    /// Whether it renews certificates and tokens that end.
    pub(super) renew: bool,
}

impl<C: Cluster> HostExecutor<C> {
    pub(super) async fn plan(
        &self,
        mut on: HostAttempt<'_>,
        wanted: PlanTarget<'_>,
    ) -> Result<Outcome, Failure> {
        let PlanTarget {
            desired,
            node,
            adopt,
            renew,
        } = wanted;
        let machine = &on.host.machine;
        let in_cluster = self.cluster.machine_in_cluster(machine, node).await?;
        let session = self.session(on.host).await?;
        let mut found = Vec::new();
        let mut facts = None;
        let mut whole = None;
        let mut certificates = false;
        let mut renews = false;
        for section in sections(node) {
            let wanted = SectionTarget {
                desired,
                section,
                node,
                mode: Mode::Plan,
            };
            let prepared = self.prepare(on, wanted).await?;
            on.progress
                .step(format!("compare {}", prepared.section.as_str()), 0, "");
            let asked = ProgramCommand {
                mode: Mode::Plan,
                boot: None,
                rendered: Some(&prepared),
            };
            let answer = self.ask(on, &session, asked).await?;
            let mut differ = differences(&prepared.rendered.document, &answer);
            let due = prepared.renewals(&differ);
            if renew && self.renewed(on, wanted, &due).await {
                differ.retain(|one| !due.contains(&one.id));
            }
            certificates |= differ.iter().any(|one| due.contains(&one.id));
            renews |= !matches!(prepared.cloud, CloudTokenSent::None);
            found.extend(differ);
            facts = Some(answer.facts);
            whole.get_or_insert(prepared);
        }
        let facts = facts.unwrap_or_default();
        if adopt {
            on.fence = adopting(facts::fence(&facts), on.order.task.seq);
            let asked = ProgramCommand {
                mode: Mode::Adopt,
                boot: None,
                rendered: whole.as_ref(),
            };
            // Services of others that it disables differ no more.
            let answer = self.ask(on, &session, asked).await?;
            found.retain(|one| answer.items.iter().all(|done| done.id != one.id));
        }
        let class = change_class(&found).map(facts::class);
        let named = found.iter().take(NAMED_ITEMS_MAX);
        let differs = named
            .map(|one| format!("{} ({})", one.id, one.detail))
            .collect();
        let MachineInCluster { token, pods, .. } = in_cluster;
        Ok(Outcome::Planned {
            class,
            differs,
            facts: facts::of(&facts, (self.now_ms)()),
            host_key: session.host_key().to_owned(),
            generation: on.fence.generation,
            token,
            pods,
            certificates,
            renews,
        })
    }

    /// Whether these items of a section were renewed, if there are any. What cannot be renewed stays among what differs,
    /// and the next comparison tries again.
    async fn renewed(
        &self,
        on: HostAttempt<'_>,
        wanted: SectionTarget<'_>,
        due: &[String],
    ) -> bool {
        if due.is_empty() {
            return false;
        }
        match self.renew(on, wanted, due).await {
            Ok(()) => true,
            Err(Failure { code, message, .. }) => {
                tracing::warn!(
                    machine = on.host.machine.name,
                    code,
                    "not renewed: {message}"
                );
                false
            }
        }
    }

    /// Renews these items of a section, and leaves everything else on the host as it is.
    async fn renew(
        &self,
        on: HostAttempt<'_>,
        wanted: SectionTarget<'_>,
        due: &[String],
    ) -> Result<(), Failure> {
        let wanted = SectionTarget {
            mode: Mode::Renew,
            ..wanted
        };
        let prepared = self.prepare(on, wanted).await?.only(due)?;
        let session = self.session(on.host).await?;
        on.progress.step(format!("renew {}", due.join(", ")), 0, "");
        let asked = ProgramCommand {
            mode: Mode::Renew,
            boot: None,
            rendered: Some(&prepared),
        };
        let answer = self.ask(on, &session, asked).await?;
        converged(wanted.section, &answer)?;
        self.note_token(wanted.node, &prepared).await
    }
}

/// The next generation, or the one that an earlier attempt of the same task has already taken.
fn adopting(found: HostFence, seq: Seq) -> HostFence {
    let again = found.generation > 0 && found.seq == seq;
    HostFence {
        generation: found.generation + u64::from(!again),
        seq,
    }
}

fn sections(node: Option<&str>) -> Vec<Section> {
    match node {
        Some(_) => vec![Section::Host, Section::Node],
        None => vec![Section::Host],
    }
}
