//! `dormer payload list`: payloads in folders.

use super::{Form, folders, size};
use clap::Args;
use dormer_client::{
    Failure,
    output::{Column, OutputFormat, optional, table},
};
use dormer_profile::payload::{Manifest, PayloadFile};
use dormer_workers::{catalog::order, packed::estimate, payload::Folder};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `dormer payload list`.
#[derive(Debug, Args)]
pub(crate) struct PayloadList {
    /// Folders with a payload, or with payloads in them
    #[arg(
        required = true,
        env = "DORMER_PAYLOAD",
        value_delimiter = ',',
        value_name = "DIR"
    )]
    folders: Vec<PathBuf>,
    #[command(flatten)]
    form: Form,
}

impl PayloadList {
    /// The list, and whether all of it can be read.
    pub(super) fn run(&self) -> Result<(String, bool), Failure> {
        let mut found = Vec::new();
        for folder in &self.folders {
            for folder in folders(folder)? {
                found.push(payload(folder));
            }
        }
        found.sort_by(|a, b| order(a.version(), b.version()));
        let good = found.iter().all(|it| it.problem.is_none());
        if let Some(text) = self.form.output.for_programs(&json!({"items": found}))? {
            return Ok((text, good));
        }
        let mut text = table(&found, COLUMNS, self.form.output == OutputFormat::Wide);
        let unread = found.iter().filter(|it| it.problem.is_some()).count();
        if unread > 0 {
            let are = if unread == 1 { "is" } else { "are" };
            text += &format!(
                "\n\n{unread} of {} {are} not readable; PROBLEM says why.",
                found.len()
            );
        }
        Ok((text, good))
    }
}

/// Listed payload folder. An unreadable one has only a problem.
#[derive(Debug, Serialize)]
struct PayloadRow {
    folder: String,
    #[serde(flatten)]
    payload: Option<PayloadLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Content of its manifest.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PayloadLine {
    version: String,
    kubelet: String,
    may_follow: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    expires: String,
    windows_builds: Vec<String>,
    platforms: Vec<String>,
    files: usize,
    size: String,
    sent: String,
}

impl PayloadRow {
    fn version(&self) -> &str {
        self.payload.as_ref().map_or("", |payload| &payload.version)
    }

    /// Text from the manifest; empty if it cannot be read.
    fn of(&self, text: impl FnOnce(&PayloadLine) -> String) -> String {
        self.payload.as_ref().map_or_else(String::new, text)
    }
}

const COLUMNS: &[Column<PayloadRow>] = &[
    Column::new("VERSION", |it| it.version().to_owned()),
    Column::new("KUBELET", |it| it.of(|payload| payload.kubelet.clone())),
    Column::new("MAY FOLLOW", |it| {
        it.of(|payload| payload.may_follow.join(", "))
    }),
    Column::new("WINDOWS BUILDS", |it| {
        it.of(|payload| payload.windows_builds.join(", "))
    }),
    Column::new("PLATFORMS", |it| {
        it.of(|payload| payload.platforms.join(", "))
    }),
    Column::wide("EXPIRES", |it| it.of(|payload| payload.expires.clone())),
    Column::wide("FILES", |it| it.of(|payload| payload.files.to_string())),
    Column::new("SIZE", |it| it.of(|payload| payload.size.clone())),
    Column::new("SENT", |it| it.of(|payload| payload.sent.clone())),
    Column::new("FOLDER", |it| it.folder.clone()),
    Column::new("PROBLEM", |it| optional(&it.problem)),
];

/// Approximate bytes sent to a host. Files that compress well count compressed, unreadable ones at full size.
fn sent(folder: &Path, manifest: &Manifest) -> u64 {
    let one = |file: &PayloadFile| {
        let opened = std::fs::File::open(folder.join(&file.name));
        opened
            .and_then(|mut from| estimate(&mut from, file.size))
            .unwrap_or(file.size)
    };
    manifest.files.iter().map(one).sum()
}

fn payload(folder: PathBuf) -> PayloadRow {
    let shown = folder.display().to_string();
    let whole = folder.clone();
    match Folder(folder).manifest() {
        Ok(manifest) => PayloadRow {
            folder: shown,
            payload: Some(described(&whole, manifest)),
            problem: None,
        },
        Err(error) => PayloadRow {
            folder: shown,
            payload: None,
            problem: Some(error.to_string()),
        },
    }
}

fn described(folder: &Path, manifest: Manifest) -> PayloadLine {
    let total = manifest.files.iter().map(|file| file.size).sum();
    let sent = sent(folder, &manifest);
    let platforms = match manifest.platforms.is_empty() {
        true => vec!["all".to_owned()],
        false => manifest.platforms,
    };
    PayloadLine {
        version: manifest.version,
        kubelet: manifest.kubelet,
        may_follow: manifest.may_follow,
        expires: manifest.expires,
        windows_builds: manifest.windows_builds,
        platforms,
        files: manifest.files.len(),
        size: size(total),
        sent: size(sent),
    }
}
