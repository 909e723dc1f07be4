//! View of a machine's run, for people and programs.

use super::{
    change::{Change, ChangeStrategy, Drain},
    halt::Halt,
    issued::KubeletCertificates,
    phase::Phase,
    state::{Lease, LeasedRequest, Retried, State},
};
use dormer_proto::{
    checks::NodeCheck,
    duration::span,
    id::Timestamp,
    machine::{
        Blocker, ConditionFact, CordonedBy, ForeignNode, MachineApi, OTHER_NAME_POSSIBLE,
        TemplateDifference, in_brief, to_change,
    },
    message::{Failure, cause},
    other_operator,
    phase::MachinePhase,
    rollout::NotCompared,
};
use dormer_support::{Refusal, version::DOCKER};
use std::collections::BTreeMap;

/// View of a machine, without the engine's part (attempt, since, run).
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// API of its object.
    pub api: MachineApi,
    /// The Machine's name.
    pub name: String,
    pub namespace: String,
    pub uid: String,
    /// Phase, and with it the state.
    pub phase: MachinePhase,
    /// When it entered the phase, if that is known.
    pub phase_since: Option<Timestamp>,
    /// Reason for its state, if there is more to say.
    pub reason: Option<String>,
    /// Failed step and its failure, of a machine that is Failed.
    pub failure: Option<(MachinePhase, Failure)>,
    /// Change that waits for approval, for an owner or for the lease.
    pub change: Option<Change>,
    /// Progress of the drain, while pods are evicted.
    pub drain: Option<Drain>,
    /// Condition that it waits for.
    pub waiting_for: Option<String>,
    /// The version that its node carries.
    pub version: Option<String>,
    /// The version that it should carry.
    pub desired_version: Option<String>,
    pub node: Option<String>,
    /// Name that its Node is to have, until there is one.
    pub expected_node: Option<String>,
    pub address: Option<String>,
    pub pool: String,
    /// The lease's token, while it holds it.
    pub token: Option<u64>,
    /// Zone of its cloud.
    pub zone: Option<String>,
    /// Labels by which people choose machines.
    pub labels: BTreeMap<String, String>,
    /// Fields in which it differs from the template of its MachineSet.
    pub template: Vec<TemplateDifference>,
    /// Whether its Machine is being deleted.
    pub deleting: bool,
    /// The Machine's own phase.
    pub machine_phase: Option<String>,
    /// The Machine's own error.
    pub machine_error: Option<String>,
    /// Unhealthy conditions of the Machine.
    pub machine_conditions: Vec<ConditionFact>,
    /// Who owns the Machine: `MachineSet/name`.
    pub owner: Option<String>,
    /// Reason that nothing new starts on it, the strongest of them.
    pub halt: Option<Halt>,
    /// When that began, if it is known.
    pub halted_since: Option<Timestamp>,
    /// Further reasons, and when they began.
    pub also_halted: Vec<(Halt, Option<Timestamp>)>,
    /// What a person asked for, and dormer has not ended yet.
    pub asked: Option<PendingRequest>,
    /// Failure of the step that is tried again.
    pub retried: Option<Retried>,
    /// Why its host could not be compared the last time.
    pub not_compared: Option<NotCompared>,
    /// First check that its Node fails, while it is checked before it counts as joined.
    pub unserved: Option<NodeCheck>,
    /// Another operator that configures hosts; dormer ignores the host while it runs.
    pub neighbour: Option<String>,
    /// Why it cannot become a node: its Windows, its platform, or a payload that is for others.
    pub refused: Option<Refusal>,
    /// Why a certificate request of its kubelet was not approved.
    pub certificate_refused: Option<String>,
    /// The Node of another instance that has its name, if that is why.
    pub foreign_node: Option<ForeignNode>,
    /// What was found on its host that a node does not need, and what to do about it.
    pub host_remarks: Vec<String>,
    /// Certificates of its kubelet, as far as they were seen issued.
    pub certificates: KubeletCertificates,
    /// Who cordoned its Node, while another client keeps it so.
    pub cordoned_by: Option<CordonedBy>,
    /// Since when its Node, which served, has not been Ready.
    pub down_since: Option<Timestamp>,
    /// Whether its Node has served: from then on disturbing it needs the lease.
    pub served: bool,
    /// When the Machine was created, by the API server's clock.
    pub created: Option<Timestamp>,
}

/// Request of a person that needs the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRequest {
    /// What is to be done.
    pub what: LeasedRequest,
    /// Person, and reason; `None`: an older build took the request.
    pub by: Option<String>,
    /// The person, where that text alone would be misread.
    pub who: Option<String>,
    /// When.
    pub at: Option<Timestamp>,
    /// Whether the change under the lease is what was asked for.
    pub begun: bool,
}

impl State {
    /// View of this machine.
    #[must_use]
    pub fn view(&self) -> View {
        let machine = self.machine.as_ref();
        let reference = self.machine_ref();
        // Nothing keeps a machine that is gone.
        let gone = matches!(self.phase, Phase::Gone);
        let halts = if gone { Vec::new() } else { self.halts_since() };
        let mut halts = halts.into_iter();
        let (halt, halted_since) = halts.next().unzip();
        let halted_since = halted_since.flatten();
        View {
            api: reference.api,
            name: reference.name,
            namespace: reference.namespace,
            uid: reference.uid,
            phase: self.phase.id(),
            phase_since: self.phase_since,
            reason: self.reason(),
            failure: self
                .phase
                .failed()
                .map(|(from, failure)| (from.id(), failure.clone())),
            change: self.phase.awaited_change().cloned(),
            drain: self.phase.drain().cloned(),
            waiting_for: self.waiting_for().map(|text| self.beyond_approval(text)),
            version: self.version.clone(),
            desired_version: self.desired().map(|desired| desired.version.clone()),
            node: self.node_name(),
            expected_node: match self.node_name() {
                Some(_) => None,
                None => self.host.node_name.clone(),
            },
            address: self.address().map(str::to_owned),
            pool: self.pool.as_ref().map_or_else(
                || dormer_proto::pool::DEFAULT_POOL.to_owned(),
                |p| p.pool.clone(),
            ),
            token: self.lease.token().map(|token| token.0),
            zone: machine.and_then(|m| m.zone.clone()),
            labels: machine.map(|m| m.labels.clone()).unwrap_or_default(),
            template: machine.map(|m| m.template.clone()).unwrap_or_default(),
            deleting: machine.is_some_and(|m| m.deleting),
            machine_phase: machine.and_then(|m| m.phase.clone()),
            machine_error: machine.and_then(|m| m.error.clone()),
            machine_conditions: machine
                .map_or_else(Vec::new, |m| self.shown_conditions(&m.conditions)),
            owner: machine
                .and_then(|m| m.owner.as_ref())
                .map(|owner| format!("{}/{}", owner.kind, owner.name)),
            halt,
            halted_since,
            also_halted: halts.collect(),
            asked: self.asked(),
            retried: self.retried.clone(),
            not_compared: self.not_compared.clone(),
            unserved: self.unserved().cloned(),
            neighbour: self
                .neighbour()
                .filter(|_| self.left_alone())
                .map(str::to_owned),
            refused: self.refused(),
            certificate_refused: self.refused_csr().and_then(|csr| csr.refused.clone()),
            foreign_node: self.refused_csr().and_then(|csr| csr.foreign.clone()),
            host_remarks: self.host_remarks(),
            certificates: self.host.certificates,
            cordoned_by: self
                .node
                .as_ref()
                .filter(|_| self.cordoned_by_others())
                .and_then(|node| node.cordoned_by.clone()),
            down_since: self.down.map(|down| down.since),
            served: self.in_service,
            created: machine.map(|m| m.created),
        }
    }

    fn host_remarks(&self) -> Vec<String> {
        let docker = self.host.facts.as_ref().is_some_and(|it| it.docker);
        docker.then(|| DOCKER.to_owned()).into_iter().collect()
    }

    fn asked(&self) -> Option<PendingRequest> {
        let what = self.leased_request?;
        let how = self.under_lease.filter(|_| self.lease.token().is_some());
        let begun = match what {
            LeasedRequest::Drain => how == Some(ChangeStrategy::Drain),
            LeasedRequest::Recreate => matches!(
                how,
                Some(ChangeStrategy::Recreate | ChangeStrategy::InPlace)
            ),
        };
        Some(PendingRequest {
            what,
            by: self.request_progress.by.clone(),
            who: self.request_progress.who.clone(),
            at: self.request_progress.at,
            begun,
        })
    }

    /// Its Machine's unhealthy conditions. That a host may ask in another Node's name concerns a machine only while it
    /// waits for its Node: before that, the other machines have this condition, too.
    fn shown_conditions(&self, all: &[ConditionFact]) -> Vec<ConditionFact> {
        let waits = |phase: &Phase| matches!(phase, Phase::NodeWait);
        let waits = waits(&self.phase) || self.phase.failed().is_some_and(|(from, _)| waits(from));
        let is_shown = |it: &&ConditionFact| waits || it.reason != OTHER_NAME_POSSIBLE;
        all.iter().filter(is_shown).cloned().collect()
    }

    fn unserved(&self) -> Option<&NodeCheck> {
        let mut checks = self.checks.iter();
        let failed = checks.find(|check| check.failed());
        failed.filter(|_| matches!(self.phase, Phase::Marking))
    }

    /// Refusal of a machine that waits because of it.
    fn refused(&self) -> Option<Refusal> {
        let waits = matches!(self.phase, Phase::PoolWait);
        self.refusal().filter(|_| waits)
    }

    fn reason(&self) -> Option<String> {
        if let Some(refusal) = self.refused() {
            return Some(format!("{}: {refusal}", refusal.code()));
        }
        if let Some((from, failure)) = self.phase.failed() {
            return Some(cause(&failure.code, Some(from.name()), &failure.message));
        }
        if let Some(change) = self.phase.awaited_change() {
            return Some(to_change(&change.differs));
        }
        let leaves = matches!(
            self.phase,
            Phase::Deleting
                | Phase::Vanishing
                | Phase::ClosingGone
                | Phase::ReplacementWait
                | Phase::Gone
        );
        if let Some(why) = self.replaced_for.as_ref().filter(|_| leaves) {
            let what = self.note.as_deref().unwrap_or("its Machine is replaced");
            return Some(format!("{what} ({})", in_brief(why)));
        }
        let blockers = self.phase.drain().map_or(&[][..], |drain| &drain.blockers);
        if blockers.is_empty() {
            return self.note.clone();
        }
        let named = blockers.iter().map(held);
        Some(named.collect::<Vec<_>>().join("; "))
    }

    /// Text for a machine that manual approval no longer reaches.
    fn beyond_approval(&self, text: String) -> String {
        match self.began_before_approval() {
            true => format!("{text} (it began before approval became manual, and continues)"),
            false => text,
        }
    }

    fn comparison(&self, not_compared: &NotCompared) -> String {
        let host = self.address().unwrap_or("?");
        let NotCompared { code, message, .. } = not_compared;
        format!("{host} to be compared: {}", cause(code, None, message))
    }

    fn waiting_for(&self) -> Option<String> {
        if matches!(self.phase, Phase::Gone) {
            return None;
        }
        if let Some(runs) = self.neighbour().filter(|_| self.left_alone()) {
            let (what, _) = other_operator::parts(runs);
            return Some(format!("the hosts to be dormer's alone: {what}"));
        }
        let halts: Vec<String> = self.halts().iter().map(Halt::to_string).collect();
        if !halts.is_empty() {
            return Some(format!("resume ({})", halts.join("; ")));
        }
        if let (Phase::LeaseWait(_) | Phase::ApprovalWait(_), Some(why)) =
            (&self.phase, self.change_refusal())
        {
            return Some(format!("an upgrade that is allowed: {why}"));
        }
        // Details that some phases add to their row of the table.
        match &self.phase {
            Phase::Gone => return None,
            Phase::Serving if self.differs() && self.not_compared.is_some() => {
                return self.not_compared.as_ref().map(|it| self.comparison(it));
            }
            Phase::Serving if self.node_serves() => return None,
            Phase::Adopting | Phase::Checking if self.pool.is_none() => {
                return Some("the pool's settings".into());
            }
            Phase::PoolWait => {
                if let Some(refusal) = self.refused() {
                    return Some(format!("a machine that fits: {refusal}"));
                }
                if let Some(why) = self.version_refusal() {
                    return Some(format!("a payload that fits: {why}"));
                }
            }
            Phase::Leaving if self.lease == Lease::Wanted => {
                return Some("the rollout's lease, for its removal".into());
            }
            Phase::LeaseWait(_) if self.lease != Lease::Wanted => {
                return Some("a chance to ask for the lease".into());
            }
            Phase::Evicting(_, drain) => {
                let limit = self.pool.as_ref().map(|pool| pool.drain_timeout_ms);
                return Some(leaving(drain, limit.filter(|_| drain.overdue)));
            }
            Phase::Marking => {
                if let Some(NodeCheck { check, said, .. }) = self.unserved() {
                    return Some(format!("its Node to serve: {check}: {said}"));
                }
            }
            Phase::Address
            | Phase::Probing
            | Phase::KeyWait { .. }
            | Phase::Adopting
            | Phase::ConvergingHost { .. }
            | Phase::Rebooting { .. }
            | Phase::NodeWait
            | Phase::ConvergingNode
            | Phase::ReadyWait
            | Phase::Soaking
            | Phase::Serving
            | Phase::Checking
            | Phase::Applying { .. }
            | Phase::ApprovalWait(_)
            | Phase::OwnerWait(_)
            | Phase::LeaseWait(_)
            | Phase::Closing
            | Phase::Opening(_)
            | Phase::Drained
            | Phase::Deleting
            | Phase::Vanishing
            | Phase::TearingDown
            | Phase::Undoing
            | Phase::Leaving
            | Phase::Reprobing
            | Phase::ClosingGone
            | Phase::ReplacementWait
            | Phase::Failed { .. } => {}
        }
        let text = self.phase.row().waits_for;
        let text = text.replace("{host}", self.address().unwrap_or("?"));
        Some(text.replace("{node}", self.host.node_name.as_deref().unwrap_or("?")))
    }
}

/// Pod that stays, and why.
fn held(blocker: &Blocker) -> String {
    format!("{} ({})", blocker.pod, blocker.why)
}

/// Number of pods that a drain waits for, how many of them are blocked unless all are, and the first of those with its
/// blocker; [`View::reason`] has the others.
/// `past_ms`: the pool's limit, which has passed.
fn leaving(drain: &Drain, past_ms: Option<u64>) -> String {
    let pods = match drain.left {
        // The pods were not counted yet.
        0 => "its pods".to_owned(),
        1 => "1 pod".to_owned(),
        left => format!("{left} pods"),
    };
    let past = past_ms.map_or_else(String::new, |ms| {
        format!(", past the drain's limit of {}", span(ms.div_ceil(1_000)))
    });
    let blocked = drain.blockers.len();
    let some = blocked > 0 && (blocked as u64) < u64::from(drain.left);
    let some = some.then(|| format!(", {blocked} of them held up"));
    let pods = format!("{pods} to leave{past}{}", some.unwrap_or_default());
    match drain.blockers.split_first() {
        None => pods,
        Some((first, [])) => format!("{pods}: {}", held(first)),
        Some((first, [_])) => format!("{pods}: {} and 1 more pod", held(first)),
        Some((first, more)) => format!("{pods}: {} and {} more pods", held(first), more.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_that_has_just_begun_has_not_counted_its_pods() {
        assert_eq!(leaving(&Drain::default(), None), "its pods to leave");
    }

    #[test]
    fn the_pods_that_a_drain_waits_for_add_up() {
        let blocker = |pod: &str| Blocker {
            pod: pod.into(),
            why: "no".into(),
            budgets: Vec::new(),
            until_off: false,
            finalizers: Vec::new(),
        };
        let waits = |left, pods: &[&str]| {
            let drain = Drain {
                left,
                blockers: pods.iter().map(|pod| blocker(pod)).collect(),
                ..Drain::default()
            };
            leaving(&drain, None)
        };
        let five = ["a/1", "a/2", "a/3", "a/4", "a/5"];
        assert_eq!(waits(5, &five), "5 pods to leave: a/1 (no) and 4 more pods");
        assert_eq!(
            waits(6, &five),
            "6 pods to leave, 5 of them held up: a/1 (no) and 4 more pods"
        );
        assert_eq!(
            waits(2, &["a/1"]),
            "2 pods to leave, 1 of them held up: a/1 (no)"
        );
    }
}
