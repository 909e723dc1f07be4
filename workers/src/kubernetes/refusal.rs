//! Refusals of evictions: the reason, from the API server's answer.

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::core::{Selector, SelectorExt, Status};
use std::fmt;

/// Budgets of one pod that are named; who has more has read enough.
const BUDGETS_NAMED_MAX: usize = 5;

/// Most bytes of the text about one pod: webhooks may return any amount, and the history stores it.
const WHY_BYTES_MAX: usize = 600;

/// Why a pod stays where it is. Each reads as a sentence that says what mends it, where that is not plain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its budget allows none now: the budget's name and numbers, as the API server says them.
    Budget(String),
    /// More than one budget matches it. The API server evicts no such pod, whatever they allow.
    Budgets {
        /// Their names, in order; empty where they cannot be read.
        names: Vec<String>,
        /// Why they cannot be read, or what the API server says.
        said: String,
    },
    /// Its namespace is being deleted, and takes no eviction any more.
    NamespaceEnds,
    /// The cluster's rules do not let dormer evict it.
    NotAllowed(String),
    /// An admission webhook or policy, or a budget that cannot be counted, said no.
    Denied(String),
    /// The API server, or a webhook that it asks, failed.
    Broken(String),
}

impl Refusal {
    /// What an answer to an eviction (or, without budgets, to a deletion) means for this one pod; `None` where it says
    /// nothing about the pod: the credentials are unknown, the server has too much to do, something changed meanwhile.
    pub(super) fn of(status: &Status) -> Option<Self> {
        let said = || status.message.clone();
        match status.code {
            // The server puts no reason to it, only these words.
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget(why) => f.write_str(why),
            Self::Budgets { names, said } if names.is_empty() => {
                write!(f, "{said} Delete all of its budgets but one")
            }
            Self::Budgets { names, .. } => {
                let named: Vec<&str> = names
                    .iter()
                    .take(BUDGETS_NAMED_MAX)
                    .map(String::as_str)
                    .collect();
                let more = names.len() - named.len();
                let more = if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                };
                write!(
                    f,
                    "the disruption budgets {}{more} match it, and no pod with more than one can be evicted: \
                     delete all of them but one",
                    named.join(", ")
                )
            }
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

/// The text of a cause that the answer gives.
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

/// Whether an authorizer (RBAC is one) refused, and not admission: it alone says who cannot do what.
fn by_authorizer(status: &Status) -> bool {
    status.message.contains("is forbidden: User \"") && status.message.contains("\" cannot ")
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
