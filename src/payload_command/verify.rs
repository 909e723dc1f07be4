//! `dormer payload verify`: compares a payload's files with its manifest by checksum.

use super::{Form, size};
use crate::profile_command::offline::built_in;
use clap::Args;
use dormer_client::{
    Failure,
    output::{Column, OutputFormat, optional, table},
};
use dormer_profile::{
    payload::{Manifest, SIGNATURE_FILE},
    profile::Profile,
};
use dormer_workers::{
    payload::{Folder, PayloadError, RELEASED},
    payload_keys::PayloadKeys,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `dormer payload verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Folder of the payload
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Also check that it has every file that this built-in profile needs: openshift or upstream
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Also check the signature of payload.yaml against this public key of minisign, the line of minisign.pub that begins
    /// with RW (may be given several times: a signature of one of them counts)
    #[arg(
        long = "payload-key",
        env = "DORMER_PAYLOAD_KEY",
        value_delimiter = ',',
        value_name = "KEY"
    )]
    payload_key: Vec<String>,
    #[command(flatten)]
    form: Form,
}

impl Verify {
    /// Report, and whether the payload is correct.
    pub(super) fn run(&self) -> Result<(String, bool), Failure> {
        let folder = Folder(self.folder.clone());
        super::has_manifest("DIR", &self.folder)?;
        let (manifest, signature) = self.manifest(&folder)?;
        let mut rows: Vec<FileRow> = manifest
            .files
            .iter()
            .map(|file| {
                let mut why = file.compare(&folder);
                if why.is_none() && RELEASED.contains(&file.name.as_str()) {
                    let checked = folder.check_release(&manifest, &file.name);
                    why = checked.err().map(|error| error.to_string());
                }
                let state = if why.is_none() { "right" } else { "wrong" };
                FileRow {
                    file: file.name.clone(),
                    state,
                    size: Some(file.size),
                    why: why.map(|why| why.to_string()),
                }
            })
            .collect();
        let extra = folder
            .extra(&manifest)
            .map_err(|error| Failure::refused(format!("{}: {error}", self.folder.display()), ""))?;
        for name in extra {
            let why = "not in the manifest, so dormer does not use it";
            rows.push(FileRow::unmatched(name, "extra", why));
        }
        if let Some(why) = &signature {
            rows.push(FileRow {
                file: SIGNATURE_FILE.to_owned(),
                state: if why.is_none() { "right" } else { "wrong" },
                size: None,
                why: why.clone(),
            });
        }
        for name in self.missing_files(&manifest)? {
            let why = "needed by the profile, but not in the manifest";
            rows.push(FileRow::unmatched(name, "lacking", why));
        }
        let wrong = rows.iter().filter(|row| !row.is_right()).count();
        let checked = signature.is_some();
        let report = report(&self.folder, &manifest, &rows, (wrong, checked));
        let text = match self.form.output.for_programs(&report)? {
            Some(text) => text,
            None => {
                let wide = self.form.output == OutputFormat::Wide;
                let text = for_people(&manifest, &rows, wrong, wide);
                match checked {
                    true => text,
                    false => format!("{text}\nThe signature was not checked: give --payload-key."),
                }
            }
        };
        Ok((text, wrong == 0))
    }

    /// The manifest; and, if there are keys, why none of them has signed it, or that one has. Files are compared with the
    /// manifest whose signature was checked.
    fn manifest(&self, folder: &Folder) -> Result<(Manifest, Option<Option<String>>), Failure> {
        if self.payload_key.is_empty() {
            return Ok((folder.manifest().map_err(unreadable)?, None));
        }
        let keys = PayloadKeys::parse(&self.payload_key)
            .map_err(|why| Failure::Usage(format!("--payload-key: {why}")))?;
        match folder.read(&keys) {
            Ok(signed) => Ok((signed.manifest, Some(None))),
            Err(PayloadError::Signature { why, .. }) => {
                Ok((folder.manifest().map_err(unreadable)?, Some(Some(why))))
            }
            Err(error) => Err(unreadable(error)),
        }
    }

    /// Files that the profile needs unconditionally and the manifest lacks.
    fn missing_files(&self, manifest: &Manifest) -> Result<Vec<String>, Failure> {
        let Some(name) = &self.profile else {
            return Ok(Vec::new());
        };
        let layer = built_in(name)?;
        let profile = dormer_profile::layers::stack(&[layer])
            .map_err(|e| Failure::refused(e.to_string(), ""))?;
        Ok(asked(&profile)
            .into_iter()
            .filter(|name| manifest.file(name).is_none())
            .collect())
    }
}

/// Result for one file.
#[derive(Debug, Serialize)]
struct FileRow {
    file: String,
    /// `right`, `wrong`, `extra` or `lacking`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    why: Option<String>,
}

impl FileRow {
    /// Row of a file that only one side has.
    fn unmatched(file: String, state: &'static str, why: &str) -> Self {
        Self {
            file,
            state,
            size: None,
            why: Some(why.to_owned()),
        }
    }

    fn is_right(&self) -> bool {
        self.state == "right"
    }
}

const COLUMNS: &[Column<FileRow>] = &[
    Column::new("FILE", |row| row.file.clone()),
    Column::new("STATE", |row| row.state.to_owned()),
    Column::new("WHY", |row| optional(&row.why)),
];

fn asked(profile: &Profile) -> Vec<String> {
    let both = profile.host.payload.iter().chain(&profile.node.payload);
    let always = both.filter(|(_, spec)| spec.when == Default::default());
    always.map(|(name, _)| name.clone()).collect()
}

fn unreadable(error: PayloadError) -> Failure {
    Failure::refused(
        error.to_string(),
        "`dormer profile schema payload` prints the manifest's schema",
    )
}

fn report(
    folder: &std::path::Path,
    manifest: &Manifest,
    rows: &[FileRow],
    (wrong, signature_checked): (usize, bool),
) -> Value {
    json!({
        "folder": folder.display().to_string(),
        "good": wrong == 0,
        "signatureChecked": signature_checked,
        "version": manifest.version,
        "kubelet": manifest.kubelet,
        "windowsBuilds": manifest.windows_builds,
        "platforms": manifest.platforms,
        "mayFollow": manifest.may_follow,
        "expires": manifest.expires,
        "canary": manifest.canary,
        "hostFolder": manifest.folder(),
        "files": rows,
    })
}

fn for_people(manifest: &Manifest, rows: &[FileRow], wrong: usize, wide: bool) -> String {
    let all = |list: &[String], none: &str| {
        if list.is_empty() {
            none.to_owned()
        } else {
            list.join(", ")
        }
    };
    let total = manifest.files.iter().map(|file| file.size).sum();
    let head = format!(
        "payload {}, kubelet {}, for Windows {} on {}; may follow {}\n{} files, {}; on a host in {}",
        manifest.version,
        manifest.kubelet,
        all(&manifest.windows_builds, "none"),
        all(&manifest.platforms, "every platform"),
        all(
            &manifest.may_follow,
            "no version: only new nodes get it, and no rollout upgrades to it"
        ),
        manifest.files.len(),
        size(total),
        manifest.folder(),
    );
    if wrong == 0 {
        return format!("{head}\nAll files match the manifest.");
    }
    let shown: Vec<&FileRow> = rows.iter().filter(|row| wide || !row.is_right()).collect();
    format!(
        "{head}\n\n{}\n\n{wrong} of them do not match.",
        table(shown, COLUMNS, wide)
    )
}
