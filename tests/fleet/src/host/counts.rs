//! Counts of the operations on one host, by the host itself.

use std::collections::BTreeMap;

use serde::Serialize;

/// Most task executions that one host remembers.
pub const EXECUTIONS_MAX: usize = 4_096;

/// One call of the host program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// Task id that the program received.
    pub task: String,
    pub attempt: u32,
    /// `probe`, `plan`, `apply`, `remove`, `reboot`, `adopt`.
    pub mode: &'static str,
    /// Ids of items that it changed.
    pub changed: Vec<String>,
    /// The failure it ended with, as the answer spells it.
    pub failure: Option<String>,
}

/// Counts of the operations on one host since its creation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostCounts {
    /// Connections that reached sshd.
    pub connections: u64,
    /// Connections that authenticated.
    pub logins: u64,
    /// Commands run by SSH.
    pub remote_commands: u64,
    /// PowerShell processes that SSH started: shells, commands and SFTP under a PowerShell shell.
    pub powershell_starts: u64,
    pub sftp_sessions: u64,
    /// Files opened for writing.
    pub uploads: u32,
    pub bytes_uploaded: u64,
    /// Bytes of documents that calls of the host program were given.
    #[serde(skip)]
    pub bytes_of_documents: u64,
    /// Bytes of the answers of these calls.
    #[serde(skip)]
    pub bytes_of_answers: u64,
    /// Unknown commands: drift between product and simulation.
    pub unknown_commands: u64,
    /// Calls of the host program, oldest first.
    pub executions: Vec<Execution>,
    /// Steps that were reached, in the order of their first time: where [`crate::faults::Fault::PowerOff`] may strike.
    #[serde(skip)]
    pub steps: Vec<String>,
    /// Effects that outlive the power, in their order: files placed, services made, features, uploads.
    #[serde(skip)]
    pub effects: Vec<String>,
}

impl HostCounts {
    /// Writes down one call.
    pub fn executed(&mut self, execution: Execution) {
        if self.executions.len() < EXECUTIONS_MAX {
            self.executions.push(execution);
        }
    }

    /// Items changed by more than one (task, attempt) pair of the same task: work that was done twice.
    pub fn changed_twice(&self) -> Vec<(String, String)> {
        let mut by: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for run in &self.executions {
            for item in &run.changed {
                *by.entry((&run.task, item)).or_default() += 1;
            }
        }
        let twice = by.into_iter().filter(|(_, times)| *times > 1);
        twice
            .map(|((task, item), _)| (task.to_owned(), item.to_owned()))
            .collect()
    }
}
