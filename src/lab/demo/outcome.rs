//! What the demonstration showed: one JSON object for programs, a table and a sentence for people.

use super::board::MachineRun;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

/// The figures. Those about the world are the world's own record, not dormer's.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    /// Windows machines in the world at the end.
    pub(crate) machines: usize,
    /// Of them, those whose node serves.
    pub(crate) joined: usize,
    /// Of them, those that carry the version which the upgrade brought.
    pub(crate) upgraded: usize,
    /// Machines that failed, were retried from the failed step, and served after it.
    pub(crate) failed_then_retried: usize,
    /// Most nodes that did not serve at one moment once they had, by the world's record.
    pub(crate) max_unavailable_observed: usize,
    /// Bring-ups in all: a recreated machine is two.
    pub(crate) bring_ups: usize,
    /// Commands run over SSH, per bring-up.
    pub(crate) remote_commands_per_node: f64,
    /// PowerShell processes started by them, per bring-up.
    pub(crate) powershell_starts_per_node: f64,
    /// SFTP sessions, per bring-up.
    pub(crate) sftp_sessions_per_node: f64,
    /// Pods evicted within their budgets.
    pub(crate) pods_evicted: u64,
    /// Pods deleted without asking a budget.
    pub(crate) pods_deleted: u64,
    /// How upgrades were done.
    pub(crate) strategy: &'static str,
    /// The version at the end.
    pub(crate) version: String,
    /// How many times as fast as life the world ran.
    pub(crate) speed: f64,
    /// Where chance came from.
    pub(crate) seed: u64,
    /// Processor seconds of this process, the simulated world's included.
    pub(crate) cpu_s: f64,
    /// Resident memory of this process in MiB, the simulated world's included.
    pub(crate) rss_mib: f64,
    /// Real seconds from the first line to the last.
    pub(crate) seconds: f64,
}

impl Outcome {
    /// Whether everything that was promised was seen.
    pub(crate) fn good(&self, limit: usize) -> bool {
        self.joined == self.machines
            && self.upgraded == self.machines
            && self.max_unavailable_observed <= limit
    }

    /// The sentence for a stranger.
    pub(crate) fn sentence(&self) -> String {
        let retried = match self.failed_then_retried {
            0 => String::new(),
            1 => ", one that failed on the way was retried from its failed step".to_owned(),
            n => format!(", {n} that failed on the way were retried from their failed steps"),
        };
        format!(
            "{} of {} Windows machines became nodes{retried}, and {} were upgraded with never more than {} away \
             at once, in {:.0} s.",
            self.joined, self.machines, self.upgraded, self.max_unavailable_observed, self.seconds,
        )
    }
}

/// The machines as a table.
pub(crate) fn table<'a>(machines: impl Iterator<Item = &'a MachineRun>) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "MACHINE",
        "STATE",
        "NODE",
        "VERSION",
        "ADDRESS",
        "WAITING FOR",
    ]);
    let mut rows: Vec<&MachineRun> = machines.collect();
    rows.sort_by(|a, b| a.view.name.cmp(&b.view.name));
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    for machine_run in rows {
        let view = &machine_run.view;
        table.add_row([
            view.name.clone(),
            view.phase.state().to_string(),
            dash(&view.node),
            dash(&view.version),
            dash(&view.address),
            dash(&view.waiting_for),
        ]);
    }
    table.to_string()
}
