//! `dormer payload copy`: brings a payload into another folder, as a pod's init container does.

use clap::Args;
use dormer_client::Failure;
use dormer_profile::payload::{MANIFEST_FILE, SIGNATURE_FILE};
use dormer_workers::{
    payload::{Folder, PayloadError},
    payload_keys::PayloadKeys,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Arguments of `dormer payload copy`.
#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// Folder of the payload
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// Folder that it is brought to, created if missing
    #[arg(value_name = "TO")]
    to: PathBuf,
}

impl Copy {
    /// Copies the files that the manifest names, its signature if there is one, and the manifest at the end. A second run
    /// ends what a first one began. No signature is checked: the dormer that uses the payload does that.
    pub(super) fn run(&self) -> Result<String, Failure> {
        super::has_manifest("DIR", &self.from)?;
        let unreadable = |error: PayloadError| Failure::refused(error.to_string(), "");
        // The manifest is read once: its files are those of the bytes that are written at the end.
        let read = Folder(self.from.clone()).read(&PayloadKeys::Unsigned);
        let read = read.map_err(unreadable)?;
        let manifest = read.manifest;
        let failed =
            |what: &Path, why: String| Failure::refused(format!("{}: {why}", what.display()), "");
        std::fs::create_dir_all(&self.to).map_err(|e| failed(&self.to, e.to_string()))?;
        let to = Folder(self.to.clone());
        for file in &manifest.files {
            if file.compare(&to).is_none() {
                continue;
            }
            let path = self.to.join(&file.name);
            std::fs::copy(self.from.join(&file.name), &path)
                .map_err(|e| failed(&path, e.to_string()))?;
            if let Some(why) = file.compare(&to) {
                return Err(failed(&path, why));
            }
        }
        let signature = self.to.join(SIGNATURE_FILE);
        match &read.signature {
            Some(text) => super::whole(&signature, text.as_bytes()),
            // One that was there is of another manifest.
            None => match std::fs::remove_file(&signature) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            },
        }
        .map_err(|e| failed(&signature, e.to_string()))?;
        super::whole(&self.to.join(MANIFEST_FILE), read.text.as_bytes())
            .map_err(|e| failed(&self.to, e.to_string()))?;
        Ok(format!(
            "payload {}: {} files are in {}",
            manifest.version,
            manifest.files.len(),
            self.to.display()
        ))
    }
}
