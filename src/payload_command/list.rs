//! `dormer payload list`: the payloads in folders.

use super::{Form, folders, size};
use clap::Args;
use dormer_client::{Failure, output::table};
use dormer_profile::payload::{Manifest, PayloadFile};
use dormer_workers::{
    catalog::{Folder, order},
    packed::estimate,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Which folders.
#[derive(Debug, Args)]
pub(crate) struct List {
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

impl List {
    pub(super) fn run(&self) -> Result<String, Failure> {
        let mut found = Vec::new();
        for folder in &self.folders {
            for folder in folders(folder)? {
                found.push(payload(folder));
            }
        }
        let version = |payload: &Value| payload["version"].as_str().unwrap_or_default().to_owned();
        found.sort_by(|a, b| order(&version(a), &version(b)));
        if let Some(text) = self.form.output.for_programs(&json!({"items": found}))? {
            return Ok(text);
        }
        let columns = [
            ("VERSION", "version", false),
            ("KUBELET", "kubelet", false),
            ("MAY FOLLOW", "mayFollow", false),
            ("WINDOWS BUILDS", "windowsBuilds", false),
            ("PLATFORMS", "platforms", false),
            ("FILES", "files", true),
            ("SIZE", "size", false),
            ("SENT", "sent", false),
            ("FOLDER", "folder", false),
            ("PROBLEM", "problem", false),
        ];
        let wide = self.form.output == dormer_client::output::Output::Wide;
        Ok(table(&found, &columns, wide))
    }
}

/// About how many bytes go to a host: what pays goes compressed. A file that cannot be read counts whole.
fn sent(folder: &Path, manifest: &Manifest) -> u64 {
    let one = |file: &PayloadFile| {
        let opened = std::fs::File::open(folder.join(&file.name));
        opened
            .and_then(|mut from| estimate(&mut from, file.size))
            .unwrap_or(file.size)
    };
    manifest.files.iter().map(one).sum()
}

fn payload(folder: PathBuf) -> Value {
    let folder_name = folder.display().to_string();
    let whole = folder.clone();
    match Folder(folder).manifest() {
        Ok(manifest) => json!({
            "version": manifest.version, "kubelet": manifest.kubelet,
            "mayFollow": manifest.may_follow, "windowsBuilds": manifest.windows_builds,
            "platforms": if manifest.platforms.is_empty() { vec!["all".to_owned()] } else { manifest.platforms.clone() },
            "files": manifest.files.len(), "folder": folder_name,
            "size": size(manifest.files.iter().map(|file| file.size).sum()),
            "sent": size(sent(&whole, &manifest)),
        }),
        Err(error) => json!({"folder": folder_name, "problem": error.to_string()}),
    }
}
