//! The report about a cluster, and the step in it that a host's report has: whether another operator is there.

use super::{findings::PreflightFinding, survey::Survey};
use dormer_lint::{Severity, counted};
use dormer_proto::{message::Failure, other_operator::OtherOperator};
use dormer_workers::kubernetes::operators;
use kube::Client;
use serde_json::json;

/// Report for people.
pub(super) fn text(survey: &Survey, found: &[PreflightFinding]) -> String {
    let mut lines = vec![format!(
        "Kubernetes {}, namespace {}",
        survey.api_server, survey.namespace
    )];
    for PreflightFinding {
        code,
        severity,
        object,
        message,
        what_to_do,
    } in found
    {
        let severity = match severity {
            Severity::Error => "ERROR  ",
            Severity::Warning => "warning",
        };
        let object = match object.as_str() {
            "" => String::new(),
            object => format!("{object}: "),
        };
        lines.push(format!("{severity} {code}: {object}{message}"));
        lines.push(format!("        do: {what_to_do}"));
    }
    let errors = found
        .iter()
        .filter(|it| it.severity == Severity::Error)
        .count();
    lines.push(match found.len() {
        0 => "Nothing in this cluster prevents dormer. Nothing was changed.".to_owned(),
        all => format!(
            "{}, {}. Nothing was changed.",
            counted(errors, "error"),
            counted(all - errors, "warning")
        ),
    });
    lines.join("\n")
}

/// Report for programs.
pub(super) fn json(survey: &Survey, found: &[PreflightFinding]) -> String {
    let whole = json!({
        "dormer": env!("CARGO_PKG_VERSION"),
        "kubernetes": survey.api_server,
        "namespace": survey.namespace,
        "findings": found,
    });
    serde_json::to_string_pretty(&whole).unwrap_or_default()
}

/// Looks in that cluster. An operator that runs fails the step; one that is only installed is reported.
pub(super) async fn check(
    client: Result<Client, dormer_client::Failure>,
) -> Result<String, Failure> {
    let unread = |why: String| Failure::lasting("ClusterUnread", why);
    let client = client.map_err(|why| unread(why.to_string()))?;
    let search = operators::check(&client).await;
    match search.neighbour {
        OtherOperator::Runs(what) => return Err(Failure::lasting("AnotherOperatorRuns", what)),
        OtherOperator::Unread => {
            let why = "it could not be read";
            return Err(unread(search.unread.unwrap_or_else(|| why.to_owned())));
        }
        OtherOperator::Absent => {}
    }
    let installed = match operators::installed(&client).await {
        Ok(found) if found.is_empty() => None,
        Ok(found) => Some(format!(
            "the Windows Machine Config Operator is installed (ClusterServiceVersion {}) and does not run",
            found.join(", ")
        )),
        // Only an operator that runs is a finding.
        Err(why) => Some(format!("whether one is installed is unknown: {why}")),
    };
    let sentences: Vec<String> = search.idle.into_iter().chain(installed).collect();
    Ok(match sentences.is_empty() {
        true => "no other operator for Windows hosts".to_owned(),
        false => sentences.join("; "),
    })
}
