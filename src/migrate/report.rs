//! What people and programs are shown of a move.

use super::{
    findings::MigrationFinding,
    pause,
    steps::MigrationStep,
    survey::{KeySecret, Survey, WindowsNode},
};
use dormer_client::output::{Column, table};
use dormer_lint::{Severity, counted};
use serde_json::{Value, json};

/// Report for people.
pub(super) fn text(survey: &Survey, found: &[MigrationFinding]) -> String {
    let mut lines = vec![format!(
        "Kubernetes {}, namespace {}",
        survey.kubernetes, survey.namespace
    )];
    lines.push("Windows Machine Config Operator (WMCO):".to_owned());
    lines.extend(
        there(survey)
            .into_iter()
            .map(|(what, is)| format!("  {what:<24}{is}")),
    );
    if !survey.nodes.is_empty() {
        lines.push(
            table(&survey.nodes, &columns(), false)
                .trim_end()
                .to_owned(),
        );
    }
    for finding in found {
        let severity = match finding.severity {
            Severity::Error => "ERROR  ",
            Severity::Warning => "warning",
        };
        let object = match finding.object.as_str() {
            "" => String::new(),
            object => format!("{object}: "),
        };
        lines.push(format!(
            "{severity} {}: {object}{}",
            finding.code, finding.message
        ));
        lines.push(format!("        do: {}", finding.what_to_do));
    }
    let errors = found
        .iter()
        .filter(|it| it.severity == Severity::Error)
        .count();
    lines.push(match found.len() {
        0 => "Nothing stands in the way. Nothing was changed. The next step: dormer migrate next"
            .to_owned(),
        all => format!(
            "{}, {}. Nothing was changed.",
            counted(errors, "error"),
            counted(all - errors, "warning")
        ),
    });
    lines.join("\n")
}

/// Report for programs.
pub(super) fn json(survey: &Survey, found: &[MigrationFinding]) -> Value {
    json!({"dormer": env!("CARGO_PKG_VERSION"), "cluster": survey, "findings": found})
}

fn or_none(all: &[String]) -> String {
    match all {
        [] => "none".to_owned(),
        all => all.join(", "),
    }
}

/// What is there, line by line.
fn there(survey: &Survey) -> Vec<(&'static str, String)> {
    let home = &survey.wmco_namespace;
    let key = |key: &KeySecret| match key {
        KeySecret::Absent => "none".to_owned(),
        KeySecret::Unusable(why) => format!("unusable: {why}"),
        KeySecret::There(hash) => format!("there, pub-key-hash {}", short(hash)),
    };
    let runs = match &survey.runs {
        Some(_) => "it runs",
        None => "it does not run",
    };
    let instances = survey.instances.map_or_else(
        || "none".to_owned(),
        |count| format!("{home}, {}", counted(count, "host")),
    );
    let account = match survey.daemon_account {
        true => "there",
        false => "none",
    };
    let deployment = survey.deployment.map_or_else(
        || "none".to_owned(),
        |replicas| format!("replicas: {replicas}"),
    );
    vec![
        ("namespace", format!("{home}, {runs}")),
        ("Deployment", deployment),
        (
            "holder of its lock",
            survey.lock_holder.clone().unwrap_or_else(|| "none".into()),
        ),
        ("Subscription", or_none(&survey.subscriptions)),
        (
            "ClusterServiceVersion",
            or_none(&survey.cluster_service_versions),
        ),
        ("windows-services", or_none(&survey.services)),
        ("windows-instances", instances),
        ("account of WICD", account.to_owned()),
        ("SSH key", key(&survey.key)),
        ("dormer's copy of it", key(&survey.key_copy)),
        ("pause image", pause::shown(survey)),
    ]
}

fn short(text: &str) -> String {
    text.chars().take(12).collect()
}

fn columns() -> [Column<WindowsNode>; 6] {
    [
        Column::new("NODE", |it: &WindowsNode| it.name.clone()),
        Column::new("MACHINE", |it| {
            let own = it.own_host.then(|| "(own host)".to_owned());
            it.machine.clone().or(own).unwrap_or_else(|| "-".into())
        }),
        Column::new("WMCO", |it| {
            it.version.clone().unwrap_or_else(|| "-".into())
        }),
        Column::new("PUB-KEY-HASH", |it| {
            let hash = it.key_hash.as_deref();
            hash.map_or_else(|| "-".to_owned(), short)
        }),
        Column::new("DORMER", |it| {
            it.dormer.clone().unwrap_or_else(|| "-".into())
        }),
        Column::new("STATE", |node| {
            let ignored = node.ignored.then(|| "ignored".to_owned());
            ignored
                .or_else(|| node.state.clone())
                .unwrap_or_else(|| "-".into())
        }),
    ]
}

/// All steps for people.
pub(super) fn steps(all: &[MigrationStep]) -> String {
    let next = all.iter().position(|step| !step.done);
    let mut lines = Vec::new();
    for (at, step) in all.iter().enumerate() {
        let state = match (step.done, next == Some(at)) {
            (true, _) => "done ",
            (false, true) => "NEXT ",
            (false, false) => "later",
        };
        lines.push(format!("{state} {:<15}{}", step.name, step.what));
        lines.push(format!("      {:<15}{}", "", step.why));
    }
    match next.and_then(|at| all.get(at)) {
        Some(step) => lines.extend(to_do(step)),
        None => lines.push("The move is finished.".to_owned()),
    }
    lines.join("\n")
}

/// The command of a step, and what follows it, each on its own line.
fn to_do(step: &MigrationStep) -> Vec<String> {
    let mut lines = vec![format!("do: {}", step.how)];
    if !step.after.is_empty() {
        lines.push(format!("then: {}", step.after));
    }
    lines
}

/// The next step for people, and why those before it count as done.
pub(super) fn next(all: &[MigrationStep]) -> String {
    let done = all.iter().take_while(|step| step.done);
    let mut lines: Vec<String> = done
        .map(|step| format!("done {}: {}", step.name, step.why))
        .collect();
    match all.iter().find(|step| !step.done) {
        Some(step) => {
            lines.push(format!("NEXT {}: {}", step.name, step.what));
            lines.push(format!("     open: {}", step.why));
            lines.extend(to_do(step).iter().map(|line| format!("     {line}")));
        }
        None => lines.push("The move is finished.".to_owned()),
    }
    lines.join("\n")
}
