//! Conditions of a Machine that show a problem.

use super::template::UP_TO_DATE;
use dormer_proto::{machine::ConditionFact, message::cut};
use serde_json::Value;

/// Most conditions that a fact takes over.
const CONDITIONS_MAX: usize = 8;
/// Longest type, status or reason, in bytes: longer ones are cut.
const WORD_BYTES_MAX: usize = 128;
/// Conditions whose normal value is False. `Paused` means that another API is authoritative; the others are those of
/// Cluster API's v1beta2 (kubernetes-sigs/cluster-api, `api/core/v1beta2/machine_types.go`).
const WELL_WHEN_FALSE: [&str; 3] = ["Paused", "Deleting", "Updating"];
/// What cloud SDKs put before the id of a request. An id differs at each try, which would make each try a change.
const REQUEST_IDS: [&str; 3] = ["request id: ", "RequestID: ", "Request ID: "];

/// Conditions of the Machine API's controllers, then those of its provider. AWS, Azure and GCP report a refused
/// creation (a quota) in `status.providerStatus.conditions`, and set `errorReason` only when another attempt cannot
/// help. Malformed entries are skipped.
pub(super) fn amiss(own: Option<&Value>, provider: Option<&Value>) -> Vec<ConditionFact> {
    let provider = provider.map(|status| &status["conditions"]);
    let listed = own
        .into_iter()
        .chain(provider)
        .filter_map(Value::as_array)
        .flatten();
    listed.filter_map(condition).take(CONDITIONS_MAX).collect()
}

fn condition(listed: &Value) -> Option<ConditionFact> {
    let text = |key: &str| listed[key].as_str().unwrap_or_default();
    let kind = text("type");
    let status = text("status");
    let well = if WELL_WHEN_FALSE.contains(&kind) {
        "False"
    } else {
        "True"
    };
    // An older Machine is healthy: the fact names its differences.
    let healthy = status == well || kind == UP_TO_DATE;
    let amiss = !kind.is_empty() && !status.is_empty() && !healthy;
    amiss.then(|| ConditionFact {
        kind: word(kind),
        status: word(status),
        reason: word(text("reason")),
        message: cut(without_ids(text("message").trim())),
    })
}

fn word(text: &str) -> String {
    text[..text.floor_char_boundary(WORD_BYTES_MAX)].to_owned()
}

/// The text with `…` instead of request ids.
pub(super) fn without_ids(text: &str) -> String {
    let mut left = text.to_owned();
    for before in REQUEST_IDS {
        let mut from = 0;
        while let Some(at) = left[from..].find(before) {
            let start = from + at + before.len();
            let is_of_id = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let end = left[start..]
                .find(|c| !is_of_id(c))
                .map_or(left.len(), |len| start + len);
            left.replace_range(start..end, "…");
            from = start;
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_not_as_it_should_be_is_taken_over() {
        let own = json!([
            {"type": "Drainable", "status": "True"},
            {"type": "InstanceExists", "status": "False", "severity": "Warning", "reason": "InstanceNotCreated",
             "message": "Instance has not been created", "lastTransitionTime": "2026-11-21T06:00:00Z"},
            {"type": "Paused", "status": "False", "reason": "AuthoritativeAPIMachineAPI"},
            {"type": "UpToDate", "status": "False", "reason": "NotUpToDate"},
            {"type": "", "status": "False"}, {"status": 7}, "nothing",
        ]);
        let quota = "VcpuLimitExceeded: 32 vCPU, request id: 0a1b-22, status code: 400";
        let provider = json!({"conditions": [{"type": "MachineCreation", "status": "False",
            "reason": "MachineCreationFailed", "message": quota}]});
        let observed = amiss(Some(&own), Some(&provider));
        let kinds: Vec<_> = observed
            .iter()
            .map(|it| (&*it.kind, &*it.reason, &*it.message))
            .collect();
        let quota = "VcpuLimitExceeded: 32 vCPU, request id: …, status code: 400";
        assert_eq!(
            kinds,
            [
                (
                    "InstanceExists",
                    "InstanceNotCreated",
                    "Instance has not been created"
                ),
                ("MachineCreation", "MachineCreationFailed", quota)
            ]
        );
        assert!(amiss(Some(&json!("odd")), Some(&json!([]))).is_empty());
        let many = json!(vec![
            json!({"type": "x".repeat(300), "status": "Unknown"});
            20
        ]);
        let observed = amiss(Some(&many), None);
        assert_eq!(
            (observed.len(), observed[0].kind.len()),
            (CONDITIONS_MAX, WORD_BYTES_MAX)
        );
    }
}
