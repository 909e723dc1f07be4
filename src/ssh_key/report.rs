//! What people and programs are shown of a rotation.

use super::cluster::KeyText;
use dormer_client::output::{Column, table};
use dormer_workers::watcher::logins::HostLogin;
use serde::Serialize;
use serde_json::{Value, json};

/// What came of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum KeyOutcome {
    /// It would be changed.
    Planned,
    /// It was changed, and a login proved it.
    Done,
    /// It was so before; a login proved it.
    Already,
    /// It was not changed.
    Failed,
    /// A person gave it up.
    LeftOut,
    /// dormer leaves the machine alone.
    LeftAlone,
}

impl KeyOutcome {
    fn text(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Done => "done",
            Self::Already => "already",
            Self::Failed => "FAILED",
            Self::LeftOut => "left out",
            Self::LeftAlone => "left alone",
        }
    }
}

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HostRow {
    pub(super) machine: String,
    pub(super) node: Option<String>,
    pub(super) address: Option<String>,
    pub(super) outcome: KeyOutcome,
    /// Cause.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) why: String,
    /// Remedy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) what_to_do: String,
    /// Whether the host refused the new key itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) refused: bool,
}

impl HostRow {
    pub(super) fn of(host: &HostLogin, outcome: KeyOutcome) -> Self {
        Self {
            machine: host.name.clone(),
            node: host.node.clone(),
            address: host.address.clone(),
            outcome,
            why: String::new(),
            what_to_do: String::new(),
            refused: false,
        }
    }

    pub(super) fn because(self, why: &str, what_to_do: String) -> Self {
        Self {
            why: why.to_owned(),
            what_to_do,
            ..self
        }
    }

    pub(super) fn failed(&self) -> bool {
        self.outcome == KeyOutcome::Failed
    }

    pub(super) fn good(&self) -> bool {
        matches!(self.outcome, KeyOutcome::Done | KeyOutcome::Already)
    }
}

/// Result of a command.
#[derive(Debug, Default)]
pub(super) struct KeyReport {
    /// First lines for people.
    head: String,
    /// Fingerprints of the key that leaves and of the one that stays.
    keys: Option<(String, String)>,
    /// What follows for a person.
    next: String,
    planned: bool,
    /// Whether the previous key goes.
    ends: bool,
    pub(super) rows: Vec<HostRow>,
    /// Whether it ended before anything was changed.
    pub(super) stopped: bool,
    /// Hosts that refused the new key, so that it is not dormer's.
    pub(super) refused: usize,
    /// Whether there was no user data that could be checked.
    pub(super) unchecked: bool,
    /// What was written into the Secret.
    pub(super) secret: Option<String>,
    /// What became of WMCO's annotations and key.
    pub(super) wmco: Option<String>,
}

impl KeyReport {
    /// Nothing had to be done.
    pub(super) fn nothing(head: String) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }

    pub(super) fn of_rotation(old: &KeyText, new: &KeyText, yes: bool) -> Self {
        Self {
            head: format!(
                "Old key: {}\nNew key: {}",
                old.fingerprint(),
                new.fingerprint()
            ),
            next: "dormer takes the new key within seconds, at the latest after five minutes, and the user data of new machines \
                   follows. Once all hosts have it: dormer ssh-key finish"
                .to_owned(),
            keys: Some((old.fingerprint(), new.fingerprint())),
            planned: !yes,
            ..Self::default()
        }
    }

    pub(super) fn of_end(old: &KeyText, new: &KeyText, yes: bool) -> Self {
        Self {
            head: format!(
                "Previous key: {}\nPresent key:  {}",
                old.fingerprint(),
                new.fingerprint()
            ),
            next: "The rotation is finished.".to_owned(),
            keys: Some((old.fingerprint(), new.fingerprint())),
            planned: !yes,
            ends: true,
            ..Self::default()
        }
    }

    /// Whether every host is as it should be.
    pub(super) fn good(&self) -> bool {
        self.rows.iter().all(|row| !row.failed())
    }

    fn count(&self, outcome: KeyOutcome) -> usize {
        let rows = self.rows.iter();
        rows.filter(|row| row.outcome == outcome).count()
    }

    fn tail(&self) -> String {
        let failed = self.count(KeyOutcome::Failed);
        if self.planned {
            return "Nothing was changed. Run the same command with --yes to do it.".to_owned();
        }
        if self.stopped {
            return format!(
                "Nothing was changed: {failed} of {} hosts do not have the new key. Run the command again, or give a host up \
                 with --leave-out MACHINE.",
                self.rows.len()
            );
        }
        if self.refused > 0 {
            return format!(
                "The old key is still dormer's, and opens every host: {} refused the new one. Mend them or give them up with \
                 --leave-out MACHINE, and run the command again; or take another kind of key.",
                self.refused
            );
        }
        let counts = format!(
            "{} done, {} already, {failed} failed.",
            self.count(KeyOutcome::Done),
            self.count(KeyOutcome::Already)
        );
        match (&self.secret, failed) {
            (Some(secret), 0) if self.ends => {
                format!("{counts}\n{secret}\n{}{}", self.next, self.behind())
            }
            (Some(secret), 0) => format!("{counts}\n{secret}\n{}", self.next),
            (Some(secret), _) => format!(
                "{counts}\n{secret}\nThe previous key still opens the hosts that failed. Run the same command again for them."
            ),
            (None, 0) => format!("{counts}\n{}", self.next),
            (None, _) => format!("{counts} Run the same command again for them."),
        }
    }

    /// Sentence about hosts that keep the previous key.
    fn behind(&self) -> String {
        let kept = [KeyOutcome::LeftOut, KeyOutcome::LeftAlone];
        let rows = self.rows.iter().filter(|row| kept.contains(&row.outcome));
        let names: Vec<&str> = rows.map(|row| row.machine.as_str()).collect();
        match names.as_slice() {
            [] => " No host lets the previous key in.".to_owned(),
            names => format!(
                " The previous key may still open {}: keep it until they are gone.",
                names.join(", ")
            ),
        }
    }

    /// Report for people.
    pub(super) fn text(&self) -> String {
        if self.keys.is_none() {
            return self.head.clone();
        }
        let mut lines = vec![self.head.clone()];
        if !self.rows.is_empty() {
            let rows = table(&self.rows, &columns(), false);
            lines.push(rows.trim_end().to_owned());
        }
        for row in self.rows.iter().filter(|row| !row.why.is_empty()) {
            lines.push(format!("{}: {}", row.machine, row.why));
            if !row.what_to_do.is_empty() {
                lines.push(format!("    do: {}", row.what_to_do));
            }
        }
        if self.unchecked {
            lines.push("There is no Secret windows-user-data, so user data of new machines was not checked.".to_owned());
        }
        lines.extend(self.wmco.clone());
        lines.push(self.tail());
        lines.join("\n")
    }

    /// Report for programs.
    pub(super) fn json(&self) -> Value {
        let (old, new) = self.keys.clone().unzip();
        json!({
            "oldKey": old,
            "newKey": new,
            "hosts": self.rows,
            "secret": self.secret,
            "wmco": self.wmco,
            "planned": self.planned,
            "stopped": self.stopped,
            "good": self.good(),
        })
    }
}

fn columns() -> [Column<HostRow>; 4] {
    [
        Column::new("MACHINE", |row: &HostRow| row.machine.clone()),
        Column::new("NODE", |row| row.node.clone().unwrap_or_else(|| "-".into())),
        Column::new("ADDRESS", |row| {
            row.address.clone().unwrap_or_else(|| "-".into())
        }),
        Column::new("RESULT", |row| row.outcome.text().to_owned()),
    ]
}
