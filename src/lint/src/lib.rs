//! Rules for manifests of Windows machines and their workloads: each finding with its line, why, and the mend.
//!
//! [`lint`] reads a text as `kubectl apply -f` does. It needs no cluster.

mod autoscaler;
mod common;
mod documents;
mod finding;
mod health_check;
mod instances;
mod machine_set;
mod names;
mod parts;
mod paste;
mod placeholders;
mod pool;
mod profile;
mod provider_fields;
mod providers;
mod rules;
mod runtime_class;
mod types;
mod workload;

pub mod page;

pub use finding::{Edit, Finding, apply};
pub use rules::{LintRule, RULES, Severity};

use common::Site;
use documents::Document;
use finding::sorted;
use parts::split;

/// Largest text that is read, in bytes.
pub const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Which taint Windows nodes have: that of the profile `openshift`, or of `upstream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flavour {
    /// `os=Windows:NoSchedule`.
    #[default]
    OpenShift,
    /// `os=windows:NoSchedule`.
    Upstream,
}

impl Flavour {
    /// Value of the taint `os`.
    #[must_use]
    pub fn taint(self) -> &'static str {
        match self {
            Self::OpenShift => "Windows",
            Self::Upstream => "windows",
        }
    }
}

/// Findings of a text, in the order of its lines.
#[must_use]
pub fn lint(text: &str, flavour: Flavour) -> Vec<Finding> {
    let mut found = Vec::new();
    let parts = split(text);
    let mut documents = Vec::new();
    for part in &parts {
        match Document::read(part, &mut found) {
            Some(document) => documents.extend(document.objects()),
            None => continue,
        }
    }
    let site = Site {
        flavour,
        objects: &documents,
        text,
    };
    for object in &documents {
        check(object, &site, &mut found);
    }
    sorted(found)
}

/// Text with all mechanical mends, and how many there were. Mends may uncover more, so it repeats until none is left.
#[must_use]
pub fn fix(text: &str, flavour: Flavour) -> (String, usize) {
    let mut text = text.to_owned();
    let mut mended = 0;
    // Each round mends at least one finding; a mend that brings its own finding back would continue for ever.
    for _ in 0..ROUNDS_MAX {
        let edits: Vec<Edit> = lint(&text, flavour)
            .into_iter()
            .filter_map(|it| it.fix)
            .collect();
        let (next, count) = apply(&text, edits);
        // A mend must never make a text worse: what could be read before must be readable after.
        if count == 0 || unreadable(&next) > unreadable(&text) {
            break;
        }
        (text, mended) = (next, mended + count);
    }
    (text, mended)
}

/// A count with its noun: `1 error`, `2 errors`.
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// How many documents of a text cannot be read.
fn unreadable(text: &str) -> usize {
    let mut found = Vec::new();
    let parts = split(text);
    let read = |part| Document::read(part, &mut found);
    parts.iter().map(read).filter(Option::is_none).count()
}

/// Most rounds of mends.
const ROUNDS_MAX: usize = 8;

fn check(object: &documents::Object<'_>, site: &Site<'_>, found: &mut Vec<Finding>) {
    let before = found.len();
    placeholders::placeholders(object, site, found);
    types::check(object, site, found);
    match (object.group(), object.kind.as_str()) {
        ("machine.openshift.io", "MachineSet") => machine_set::check(object, site, found),
        ("machine.openshift.io", "MachineHealthCheck") => health_check::check(object, site, found),
        ("autoscaling.openshift.io", "MachineAutoscaler") => autoscaler::check(object, site, found),
        ("autoscaling.openshift.io", "ClusterAutoscaler") => autoscaler::of_cluster(object, found),
        ("", "ConfigMap") => instances::check(object, site, found),
        (_, "WindowsPool") => pool::check(object, site, found),
        ("node.k8s.io", "RuntimeClass") => runtime_class::check(object, site, found),
        ("", "") => profile::check(object, site, found),
        _ => workload::check(object, site, found),
    }
    for finding in &mut found[before..] {
        finding.object = object.title();
    }
}
