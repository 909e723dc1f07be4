//! A payload's folder: its manifest with its signature, and its files. Other people and programs write into it.

use crate::{payload_keys::PayloadKeys, program_file::Program, sha256::sum};
use bytes::Bytes;
use dormer_profile::{
    payload::{CONTAINERD_UNNAMED, MANIFEST_FILE, Manifest, PayloadReader, SIGNATURE_FILE},
    problem::Problems,
    release::Release,
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::io::AsyncRead;

/// Largest manifest that is read, in bytes.
const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Largest signature that is read, in bytes. minisign writes less than 1 KiB.
const SIGNATURE_BYTES_MAX: u64 = 8 << 10;
/// The container runtime, by its name in a payload.
pub const CONTAINERD: &str = "containerd.exe";
/// The kubelet, by its name in a payload.
pub const KUBELET: &str = "kubelet.exe";
/// kube-proxy, by its name in a payload.
pub const KUBE_PROXY: &str = "kube-proxy.exe";
/// kube-log-runner, by its name in a payload. Its flags are those of the kubelet's release.
pub const LOG_RUNNER: &str = "kube-log-runner.exe";
/// Programs whose release decides how their configuration is written.
pub const RELEASED: [&str; 4] = [CONTAINERD, KUBELET, KUBE_PROXY, LOG_RUNNER];
/// First containerd that a manifest has to name (docs/settings.md).
const CONTAINERD_NAMED_FROM: Release = Release::new(2, 4);

/// Why a payload is refused.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// The manifest has mistakes.
    #[error("{location}: {problems}")]
    Problems {
        /// Which folder.
        location: String,
        /// Mistakes, each with its location.
        problems: Problems,
    },
    /// No key that counts has signed the manifest.
    #[error("{location}: {why}")]
    Signature {
        /// Which folder.
        location: String,
        /// Why the signature does not count, and what to do.
        why: String,
    },
    /// A file cannot be read.
    #[error("{location}: {error}")]
    Io {
        location: String,
        /// Why not.
        error: io::Error,
    },
    /// A program is of another release than the manifest says, and its configuration would be for the wrong one.
    #[error("{location}: {is}, but the manifest {said}")]
    Release {
        /// The program.
        location: String,
        /// What the program says of its release.
        is: String,
        /// What the manifest says.
        said: String,
    },
}

/// Source of a payload's bytes.
#[derive(Debug, Clone)]
enum PayloadSource {
    Folder(PathBuf),
    Memory(Arc<BTreeMap<String, Bytes>>),
}

/// A payload: its manifest, and its files' bytes.
#[derive(Debug, Clone)]
pub struct Payload {
    pub manifest: Manifest,
    /// SHA-256 of the manifest, if a key signed it.
    pub(crate) build: Option<String>,
    source: PayloadSource,
}

impl Payload {
    /// The payload in a folder with a `payload.yaml`. Every file is read to its end, and compared with its checksum, before
    /// anything else is done with its bytes.
    ///
    /// # Errors
    /// None of `keys` has signed the manifest. It is missing, has mistakes, names a file that is not there or is another,
    /// or another release of the kubelet, kube-proxy or containerd than the program's own.
    pub fn in_folder(folder: &Path, keys: &PayloadKeys) -> Result<Self, PayloadError> {
        let whole = Folder(folder.to_owned());
        let manifest = whole.read(keys)?.manifest;
        for file in &manifest.files {
            let path = folder.join(&file.name);
            let failed = |error| PayloadError::Io {
                location: path.display().to_string(),
                error,
            };
            // A file that is half copied is not summed at each poll.
            let size = regular(&path).and_then(|file| file.metadata());
            let size = size.map_err(failed)?.len();
            let why = match size == file.size {
                true => file.compare(&whole),
                false => Some(format!("{size} bytes; the manifest says {}", file.size)),
            };
            if let Some(why) = why {
                return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        }
        for name in RELEASED {
            whole.check_release(&manifest, name)?;
        }
        Ok(Self {
            build: (!matches!(keys, PayloadKeys::Unsigned)).then(|| manifest.hash()),
            manifest,
            source: PayloadSource::Folder(folder.to_owned()),
        })
    }

    /// A payload whose files lie in memory.
    #[must_use]
    pub fn in_memory(manifest: Manifest, files: BTreeMap<String, Bytes>) -> Self {
        Self {
            manifest,
            build: None,
            source: PayloadSource::Memory(Arc::new(files)),
        }
    }

    /// The bytes of one of its files.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub async fn open(&self, name: &str) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
        match &self.source {
            PayloadSource::Folder(folder) => Ok(Box::new(tokio::fs::File::from_std(regular(
                &folder.join(name),
            )?))),
            PayloadSource::Memory(files) => {
                let bytes = files.get(name).cloned();
                let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                Ok(Box::new(io::Cursor::new(bytes)))
            }
        }
    }

    /// The same, blocking.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub fn read(&self, name: &str) -> io::Result<Box<dyn ReadSeek>> {
        match &self.source {
            PayloadSource::Folder(folder) => Ok(Box::new(regular(&folder.join(name))?)),
            PayloadSource::Memory(files) => {
                let bytes = files.get(name).cloned();
                let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                Ok(Box::new(io::Cursor::new(bytes)))
            }
        }
    }
}

/// Bytes that can be read from any position.
pub trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

/// A manifest, the text that it was parsed from, and the text of its signature.
#[derive(Debug, Clone)]
pub struct SignedManifest {
    pub manifest: Manifest,
    /// Its text: the signed bytes.
    pub text: String,
    /// Its signature, if there is a file of that.
    pub signature: Option<String>,
}

/// Opens a file that others may exchange. A named pipe or a device would hold the reader for ever, or have no end.
fn regular(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        let said = "it is no regular file";
        Err(io::Error::new(io::ErrorKind::InvalidData, said))
    }
}

/// A payload's folder, whose files are read to their ends.
#[derive(Debug, Clone)]
pub struct Folder(pub PathBuf);

impl PayloadReader for Folder {
    fn digest(&self, name: &str) -> Result<(String, u64), String> {
        let file = regular(&self.0.join(name)).map_err(|error| {
            let absent = error.kind() == io::ErrorKind::NotFound;
            if absent {
                "is not there".to_owned()
            } else {
                error.to_string()
            }
        })?;
        sum(file).map_err(|error| error.to_string())
    }
}

impl Folder {
    /// Its manifest, with a signature or without.
    ///
    /// # Errors
    /// It is not there, too large, or has mistakes.
    pub fn manifest(&self) -> Result<Manifest, PayloadError> {
        Ok(self.read(&PayloadKeys::Unsigned)?.manifest)
    }

    /// Reads manifest and signature once. One of `keys` has to have signed these bytes.
    ///
    /// # Errors
    /// The manifest is not there, not signed, or has mistakes; one of both is too large, or is no regular file.
    pub fn read(&self, keys: &PayloadKeys) -> Result<SignedManifest, PayloadError> {
        let location = self.0.display().to_string();
        let failed = |error| PayloadError::Io {
            location: location.clone(),
            error,
        };
        let text = self
            .text(MANIFEST_FILE, MANIFEST_BYTES_MAX)
            .map_err(failed)?;
        let signature = match self.text(SIGNATURE_FILE, SIGNATURE_BYTES_MAX) {
            Ok(signature) => Some(signature),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        keys.check(text.as_bytes(), signature.as_deref())
            .map_err(|why| PayloadError::Signature {
                location: location.clone(),
                why,
            })?;
        let manifest = Manifest::parse(&text).map_err(|problems| PayloadError::Problems {
            location: location.clone(),
            problems,
        })?;
        Ok(SignedManifest {
            manifest,
            text,
            signature,
        })
    }

    /// Text of a file of at most `max` bytes.
    fn text(&self, name: &str, max: u64) -> io::Result<String> {
        let mut text = String::new();
        let mut file = regular(&self.0.join(name))?.take(max + 1);
        file.read_to_string(&mut text)?;
        if text.len() as u64 > max {
            let said = format!("{name} has more than {max} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        Ok(text)
    }

    /// Compares the manifest's `kubelet` or `containerd` with what the program of that name says of its release. One that
    /// says nothing is what the manifest says.
    ///
    /// # Errors
    /// The program cannot be read, or is of another release.
    pub fn check_release(&self, manifest: &Manifest, name: &str) -> Result<(), PayloadError> {
        let Some(file) = manifest.file(name) else {
            return Ok(());
        };
        let path = self.0.join(name);
        let location = path.display().to_string();
        let mut bytes = Vec::new();
        let read = regular(&path).and_then(|opened| opened.take(file.size).read_to_end(&mut bytes));
        read.map_err(|error| PayloadError::Io {
            location: location.clone(),
            error,
        })?;
        // What is no program at all is refused by `payload make`, which sees all of them.
        let Some(program) = Program::parse(&bytes).ok() else {
            return Ok(());
        };
        let own = match name {
            CONTAINERD => program.containerd(),
            _ => program.kubernetes(),
        };
        let Some(own) = own else { return Ok(()) };
        let said = match manifest.containerd.is_empty() {
            _ if name != CONTAINERD && own.fits(manifest.kubelet()) => return Ok(()),
            _ if name != CONTAINERD => format!("says `kubelet: {}`", manifest.kubelet),
            true if own.release().is_none_or(|it| it < CONTAINERD_NAMED_FROM) => return Ok(()),
            true => format!("has no `containerd`, which counts as {CONTAINERD_UNNAMED}"),
            false if own.fits(manifest.containerd()) => return Ok(()),
            false => format!("says `containerd: {}`", manifest.containerd),
        };
        Err(PayloadError::Release {
            location,
            is: own.said,
            said,
        })
    }

    /// Files that are in the folder and not in the manifest, sorted by name.
    ///
    /// # Errors
    /// It cannot be listed.
    pub fn extra(&self, manifest: &Manifest) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let ours = [MANIFEST_FILE, SIGNATURE_FILE].contains(&name.as_str());
            if !ours && manifest.file(&name).is_none() {
                found.push(name);
            }
        }
        found.sort();
        Ok(found)
    }
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
