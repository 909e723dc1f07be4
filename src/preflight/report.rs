//! Report of the inspection, step by step: for people, and to send to others.

use super::contract::Contract;
use dormer_contract::Scope;
use dormer_profile::answer::{Answer, Facts, ItemState};
use dormer_proto::message::Failure;
use dormer_workers::host::scrubbed;
use serde::Serialize;

/// Step and its result.
#[derive(Debug, Serialize)]
pub(super) struct PreflightStep {
    pub(super) name: &'static str,
    pub(super) ok: bool,
    /// Stable failure code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<String>,
    /// Finding or error.
    pub(super) said: String,
    pub(super) ms: u64,
}

/// Report. It contains nothing that identifies the host.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreflightReport {
    pub(super) dormer: &'static str,
    /// SHA-256 of the host program.
    pub(super) program: String,
    pub(super) profile: String,
    pub(super) steps: Vec<PreflightStep>,
    /// Files that were written, and whether each was removed.
    pub(super) written: Vec<WrittenFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) windows: Option<Windows>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<PreflightPlan>,
    /// Results of the contract's rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) contract: Option<Contract>,
    /// Whether the folder and the services of the contract's rows are gone; none: nothing was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scratch_removed: Option<bool>,
    /// Texts that must not appear in it.
    #[serde(skip)]
    pub(super) private: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct WrittenFile {
    pub(super) path: String,
    pub(super) removed: bool,
}

/// Version and settings of Windows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Windows {
    pub(super) build: String,
    pub(super) product: String,
    /// Installation language of Windows, a hexadecimal number (0409: English, United States).
    pub(super) language: Option<String>,
    /// Default shell of sshd. `None`: cmd.exe.
    pub(super) default_shell: Option<String>,
    pub(super) containers: String,
    pub(super) reboot_pending: bool,
    pub(super) free_bytes: u64,
    pub(super) defender: bool,
    pub(super) docker: bool,
}

impl Windows {
    pub(super) fn of(facts: &Facts) -> Self {
        Self {
            build: facts.os_build.clone(),
            product: facts.product.clone(),
            language: None,
            default_shell: facts.default_shell.clone(),
            containers: format!("{:?}", facts.containers).to_lowercase(),
            reboot_pending: facts.reboot_pending,
            free_bytes: facts.free_bytes,
            defender: facts.defender,
            docker: facts.docker,
        }
    }
}

/// Result of mode plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreflightPlan {
    items: usize,
    right: usize,
    /// Items that would change, with their present state; including services and features.
    would_change: Vec<ItemChange>,
    /// Missing files of the payload.
    missing_files: Vec<String>,
    took_ms: u64,
}

/// Item that would change.
#[derive(Debug, Serialize)]
struct ItemChange {
    id: String,
    detail: String,
}

impl PreflightPlan {
    pub(super) fn of(answer: &Answer) -> Self {
        let right = answer
            .items
            .iter()
            .filter(|item| item.state == ItemState::Ok)
            .count();
        let others = answer
            .items
            .iter()
            .filter(|item| item.state != ItemState::Ok);
        let change = |item: &dormer_profile::answer::ItemOutcome| {
            let state = match item.state {
                ItemState::Failed => "failed: ",
                ItemState::Skipped => "not checked",
                _ => "",
            };
            ItemChange {
                id: item.id.clone(),
                detail: format!("{state}{}", item.detail),
            }
        };
        Self {
            items: answer.items.len(),
            right,
            would_change: others.map(change).collect(),
            missing_files: answer.missing_files.clone(),
            took_ms: answer.took_ms,
        }
    }
}

/// What became of the folder and the services of the contract's rows.
fn scratch(removed: bool) -> String {
    let Scope { folder, prefix, .. } = Scope::scratch();
    let fate = if removed {
        "made and removed"
    } else {
        "MADE AND PERHAPS NOT REMOVED"
    };
    format!("{fate}: {folder}, services {prefix}-*")
}

impl PreflightReport {
    /// Adds a step.
    pub(super) fn step(&mut self, name: &'static str, ms: u64, done: Result<String, Failure>) {
        self.steps.push(match done {
            Ok(said) => PreflightStep {
                name,
                ok: true,
                code: None,
                said,
                ms,
            },
            Err(Failure { code, message, .. }) => PreflightStep {
                name,
                ok: false,
                code: Some(code),
                said: message,
                ms,
            },
        });
    }

    /// Whether every step succeeded and nothing was left behind.
    pub(super) fn good(&self) -> bool {
        self.steps.iter().all(|step| step.ok) && self.written.iter().all(|it| it.removed)
    }

    /// Report as JSON without private data.
    pub(super) fn json(&self) -> String {
        self.clean(&serde_json::to_string_pretty(self).unwrap_or_default())
    }

    /// Removes the host's names, and texts that look like secrets.
    fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for private in self.private.iter().filter(|it| it.len() > 2) {
            text = text.replace(private.as_str(), "[host]");
        }
        text.lines().map(scrubbed).collect::<Vec<_>>().join("\n")
    }

    /// Report for people.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!(
            "dormer {}, program {}, profile {}",
            self.dormer,
            &self.program[..self.program.len().min(16)],
            self.profile
        )];
        for PreflightStep {
            name,
            ok,
            code,
            said,
            ms,
        } in &self.steps
        {
            let state = if *ok { "ok    " } else { "FAILED" };
            let code = code
                .as_ref()
                .map(|code| format!("{code}: "))
                .unwrap_or_default();
            lines.push(format!("{state} {name:<28} {ms:>6} ms  {code}{said}"));
        }
        if let Some(it) = &self.windows {
            lines.push(format!(
                "\n{} ({}), language {}, default shell {}",
                it.product,
                it.build,
                it.language.as_deref().unwrap_or("unknown"),
                it.default_shell.as_deref().unwrap_or("cmd.exe"),
            ));
            lines.push(format!(
                "feature Containers {}, {}, {} MiB free on C:, Defender {}",
                it.containers,
                if it.reboot_pending {
                    "a reboot is pending"
                } else {
                    "no reboot is pending"
                },
                it.free_bytes >> 20,
                if it.defender { "runs" } else { "does not run" },
            ));
            if it.docker {
                lines.push(format!(
                    "Docker is installed. {}",
                    dormer_support::version::DOCKER
                ));
            }
        }
        if let Some(plan) = &self.plan {
            lines.push(format!(
                "\n{} items, of which {} are already correct; {} files of the payload are missing.",
                plan.items,
                plan.right,
                plan.missing_files.len()
            ));
            lines.extend(
                plan.would_change
                    .iter()
                    .map(|it| format!("  {} {}", it.id, it.detail)),
            );
        }
        lines.extend(self.contract.iter().flat_map(Contract::text));
        for WrittenFile { path, removed } in &self.written {
            let fate = if *removed {
                "written and removed"
            } else {
                "WRITTEN AND NOT REMOVED"
            };
            lines.push(format!("{fate}: {path}"));
        }
        lines.extend(self.scratch_removed.map(scratch));
        lines.push(
            "\nNothing else was changed. To share the report, send the file that --out FILE writes."
                .into(),
        );
        self.clean(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_rows_made_is_in_the_report_before_it_says_that_nothing_else_was_changed() {
        let text = |scratch_removed| {
            let report = PreflightReport {
                scratch_removed,
                ..PreflightReport::default()
            };
            report.text()
        };
        let none = text(None);
        let gone = text(Some(true));
        let left = text(Some(false));
        assert!(!none.contains("dormer-contract"), "{none}");
        assert!(
            gone.contains(r"made and removed: C:\dormer-contract, services dormer-contract-*"),
            "{gone}"
        );
        assert!(
            left.contains(r"MADE AND PERHAPS NOT REMOVED: C:\dormer-contract"),
            "{left}"
        );
    }
}
