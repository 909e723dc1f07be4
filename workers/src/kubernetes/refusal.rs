//! Refusals of evictions: the reason, from the API server's answer.

use dormer_proto::message::listed;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::core::{Selector, SelectorExt, Status};
use std::fmt;

/// Most disruption budgets of one pod that a text names.
const BUDGETS_NAMED_MAX: usize = 5;

/// Most bytes of the text about one pod: webhooks may return any amount, and the history stores it.
const WHY_BYTES_MAX: usize = 600;

/// Reason for which a pod was not evicted. Each displays as a sentence, with the remedy where it is not obvious.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The disruption budget allows no eviction now: its name and numbers, in the API server's words.
    Budget(String),
    /// More than one budget matches it. The API server evicts no such pod, whatever they allow.
    Budgets {
        /// Their names, in order; empty where they cannot be read.
        names: Vec<String>,
        /// Reason for which they cannot be read, in the API server's words.
        said: String,
    },
    /// Its namespace is being deleted, and takes no eviction any more.
    NamespaceEnds,
    /// The cluster's rules do not let dormer evict it.
    NotAllowed(String),
    /// Refusal by an admission webhook or policy, or by a budget that cannot be computed.
    Denied(String),
    /// Failure of the API server, or of a webhook that it calls.
    Broken(String),
}

impl Refusal {
    /// Meaning of an answer to an eviction (or, without budgets, to a deletion) for this pod. `None`: the answer says
    /// nothing about the pod: the credentials are unknown, the server is overloaded, or an object changed meanwhile.
    pub(super) fn of(status: &Status) -> Option<Self> {
        let said = || status.message.clone();
        match status.code {
            // The API server gives no reason code here, only this message.
            500 if status.message.contains("more than one PodDisruptionBudget") => {
                Some(Self::Budgets {
                    names: Vec::new(),
                    said: said(),
                })
            }
            500 => Some(Self::Broken(said())),
            429 => cause(status, "DisruptionBudget").map(|why| Self::Budget(why.to_owned())),
            403 if cause(status, "NamespaceTerminating").is_some() => Some(Self::NamespaceEnds),
            403 if by_authorizer(status) => Some(Self::NotAllowed(said())),
            401 | 404 | 408 | 409 => None,
            400..=499 => Some(Self::Denied(said())),
            _ => None,
        }
    }
}

impl Refusal {
    /// Names of the budgets that keep the pod, where they are known. The API server has no field for the name: its
    /// message begins "The disruption budget NAME " (pkg/registry/core/pod/storage/eviction.go).
    pub(super) fn budgets(&self) -> Vec<String> {
        match self {
            Self::Budget(why) => {
                let name = why.strip_prefix("The disruption budget ");
                let name = name.and_then(|rest| rest.split(' ').next());
                name.map(str::to_owned).into_iter().collect()
            }
            Self::Budgets { names, .. } => names.iter().take(BUDGETS_NAMED_MAX).cloned().collect(),
            Self::NamespaceEnds | Self::NotAllowed(_) | Self::Denied(_) | Self::Broken(_) => {
                Vec::new()
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget(why) => f.write_str(&budget_text(why).unwrap_or_else(|| why.clone())),
            Self::Budgets { names, said } if names.is_empty() => {
                write!(f, "{said} Delete all of its budgets but one")
            }
            Self::Budgets { names, .. } => write!(
                f,
                "the disruption budgets {} match it, and no pod with more than one can be evicted: delete all of them \
                 but one",
                listed(names, BUDGETS_NAMED_MAX)
            ),
            Self::NamespaceEnds => f.write_str(
                "its namespace is being deleted and takes no eviction: it goes with the namespace",
            ),
            Self::NotAllowed(said) => {
                write!(f, "the cluster's rules do not let dormer move it: {said}")
            }
            Self::Denied(said) => write!(f, "the API server refuses: {said}"),
            Self::Broken(said) => write!(f, "the API server cannot evict it: {said}"),
        }
    }
}

/// A budget's refusal in words of one's own. The API server's sentence, "The disruption budget NAME needs N healthy pods and has
/// M currently", reads like a contradiction while pods that were just evicted still count as healthy (`status.disruptedPods`,
/// pkg/registry/core/pod/storage/eviction.go). `None`: another sentence.
fn budget_text(why: &str) -> Option<String> {
    let rest = why.strip_prefix("The disruption budget ")?;
    let (name, rest) = rest.split_once(" needs ")?;
    let (needs, rest) = rest.split_once(" healthy pods and has ")?;
    let has = rest.strip_suffix(" currently")?;
    let needed: u64 = needs.parse().ok()?;
    let healthy: u64 = has.parse().ok()?;
    let asks = match needed {
        1 => format!("the PodDisruptionBudget {name} asks for 1 healthy pod"),
        _ => format!("the PodDisruptionBudget {name} asks for {needed} healthy pods"),
    };
    Some(match healthy {
        _ if healthy > needed => {
            format!("{asks}; {healthy} were counted, and those that were just evicted still count")
        }
        1 => format!("{asks}, and 1 is healthy"),
        _ => format!("{asks}, and {healthy} are healthy"),
    })
}

/// The budgets that match a pod, by name and in order.
pub(super) fn matching(budgets: Vec<PodDisruptionBudget>, pod: &Pod) -> Vec<String> {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let matches = |budget: &PodDisruptionBudget| {
        // No selector matches nothing, an empty one everything.
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selector = selector.map(Selector::try_from);
        matches!(selector, Some(Ok(selector)) if selector.matches(&labels))
    };
    let mut names: Vec<String> = budgets
        .into_iter()
        .filter(matches)
        .filter_map(|budget| budget.metadata.name)
        .collect();
    names.sort();
    names
}

/// Beginning of the text about what holds a pod.
pub(super) fn short(mut why: String) -> String {
    if why.len() > WHY_BYTES_MAX {
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        why.push_str(" …");
    }
    why
}

/// Text of a cause in the answer.
fn cause<'a>(status: &'a Status, reason: &str) -> Option<&'a str> {
    let causes = status
        .details
        .as_ref()
        .map(|details| details.causes.as_slice());
    let cause = causes
        .unwrap_or_default()
        .iter()
        .find(|cause| cause.reason == reason)?;
    Some(if cause.message.is_empty() {
        &status.message
    } else {
        &cause.message
    })
}

/// Whether an authorizer (such as RBAC) refused, and not admission: only the former names user and verb.
fn by_authorizer(status: &Status) -> bool {
    status.message.contains("is forbidden: User \"") && status.message.contains("\" cannot ")
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
