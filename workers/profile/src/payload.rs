//! Payload: Windows binaries in a folder with a manifest.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::{Problem, Problems};
use crate::release::Release;
use crate::windows_name;
use crate::yaml;

/// Name of the manifest in the payload's folder.
pub const MANIFEST_FILE: &str = "payload.yaml";
/// Name of the manifest's signature in the payload's folder.
pub const SIGNATURE_FILE: &str = "payload.yaml.minisig";
/// containerd of a payload whose manifest does not name one (WMCO 10.x and 11.0 ship 1.7.27).
pub const CONTAINERD_UNNAMED: Release = Release::new(1, 7);
/// Most files in one payload.
pub const PAYLOAD_FILES_MAX: usize = 500;
/// Most versions that one payload may follow.
pub const MAY_FOLLOW_MAX: usize = 32;
/// Most characters of the name of an image.
const IMAGE_MAX: usize = 512;
/// Largest file of a payload, in bytes.
pub const PAYLOAD_FILE_BYTES_MAX: u64 = 2 << 30;

/// Manifest of a payload: its files, and the versions and builds that it suits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version, for example `11.0.0`.
    pub version: String,
    /// Version of its kubelet, `major.minor`.
    pub kubelet: String,
    /// Version of its containerd, `major.minor`. Empty, as in manifests from before this field: see
    /// [`Manifest::containerd`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub containerd: String,
    /// Windows builds it runs on, for example `10.0.20348`.
    pub windows_builds: Vec<String>,
    /// Platforms it is for; empty: all.
    #[serde(default)]
    pub platforms: Vec<String>,
    /// Versions that it may follow in a rollout; a new node accepts any.
    #[serde(default)]
    pub may_follow: Vec<String>,
    /// First day, UTC, on which no upgrade to it begins any more (`2027-03-01`). Empty: it does not expire. New nodes and
    /// repairs get it also afterwards.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expires: String,
    /// Image of agnhost, Kubernetes' own program for tests, which a new node has to run before it counts as joined. Empty:
    /// no canary is made.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub canary: String,
    pub files: Vec<PayloadFile>,
}

/// One file of a payload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PayloadFile {
    /// Its name in the payload's folder and in profiles.
    pub name: String,
    /// SHA-256 of its content, 64 lower-case hex digits.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
    /// Destination, relative to the payload's folder on the host, with backslashes.
    pub destination: String,
}

/// Reader of a payload's files; the package that does the IO implements it.
///
/// # Contract
/// `digest` reads the whole file and answers its SHA-256 (lower-case hex) and size in bytes; an error is a sentence
/// for people.
pub trait PayloadReader {
    /// SHA-256 and size of one file.
    fn digest(&self, name: &str) -> Result<(String, u64), String>;
}

impl Manifest {
    /// Reads and checks a manifest (YAML, so JSON as well).
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let manifest: Self = yaml::from_str(text).map_err(|e| Problems::from_yaml(&e))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Checks the manifest, and returns all problems.
    pub fn check(&self) -> Result<(), Problems> {
        let mut found = Vec::new();
        check_version(&self.version, "version", &mut found);
        if minor(&self.kubelet).is_none() {
            found.push(Problem::new(
                "kubelet",
                format!("`{}` is not major.minor", self.kubelet),
            ));
        }
        if !self.containerd.is_empty() && self.containerd.parse::<Release>().is_err() {
            let reason = format!("`{}` is not major.minor", self.containerd);
            found.push(Problem::new("containerd", reason));
        }
        if self.windows_builds.is_empty() {
            found.push(Problem::new("windows_builds", "names no Windows build"));
        }
        if !self.expires.is_empty() && !is_day(&self.expires) {
            let reason = format!("`{}` is not a day such as 2027-03-01", self.expires);
            found.push(Problem::new("expires", reason));
        }
        if !self.canary.is_empty() && !is_image(&self.canary) {
            let reason = format!(
                "`{}` is not an image with a tag or a digest, such as registry.k8s.io/e2e-test-images/agnhost:2.63.0",
                self.canary
            );
            found.push(Problem::new("canary", reason));
        }
        for (n, version) in self.may_follow.iter().enumerate() {
            check_version(version, &format!("may_follow[{n}]"), &mut found);
        }
        if self.may_follow.len() > MAY_FOLLOW_MAX {
            let reason = format!(
                "{} versions, at most {MAY_FOLLOW_MAX}",
                self.may_follow.len()
            );
            found.push(Problem::new("may_follow", reason));
        }
        if self.files.len() > PAYLOAD_FILES_MAX {
            let reason = format!("{} files, at most {PAYLOAD_FILES_MAX}", self.files.len());
            found.push(Problem::new("files", reason));
        }
        let mut names = BTreeSet::new();
        let mut destinations = BTreeSet::new();
        for (n, file) in self.files.iter().enumerate() {
            file.check(&format!("files[{n}]"), &mut found);
            if !names.insert(&file.name) {
                let reason = format!("`{}` is there twice", file.name);
                found.push(Problem::new(format!("files[{n}].name"), reason));
            }
            if !destinations.insert(file.destination.to_ascii_lowercase()) {
                let reason = format!("`{}` is there twice", file.destination);
                found.push(Problem::new(format!("files[{n}].destination"), reason));
            }
        }
        Problems::check(found)
    }

    /// Compares the manifest with the files themselves.
    ///
    /// # Errors
    /// Every file that does not match the manifest.
    pub fn verify(&self, reader: &impl PayloadReader) -> Result<(), Problems> {
        let wrong = self.files.iter().filter_map(|file| {
            let why = file.compare(reader)?;
            Some(Problem::new(format!("files.{}", file.name), why))
        });
        Problems::check(wrong.collect())
    }

    pub fn file(&self, name: &str) -> Option<&PayloadFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// SHA-256 of the manifest, independent of the order of its lists.
    pub fn hash(&self) -> String {
        let mut sorted = self.clone();
        sorted.files.sort_by(|a, b| a.name.cmp(&b.name));
        sorted.windows_builds.sort();
        sorted.platforms.sort();
        sorted.may_follow.sort();
        crate::sha256_hex(&serde_json::to_vec(&sorted).unwrap_or_default())
    }

    /// Name of its folder on the host: version and the first eight digits of the hash of its
    /// files, so that two builds of one version never share a folder.
    pub fn folder(&self) -> String {
        let mut files: Vec<_> = self
            .files
            .iter()
            .map(|f| format!("{} {}\n", f.destination, f.sha256))
            .collect();
        files.sort();
        let hash = crate::sha256_hex(files.concat().as_bytes());
        format!("{}-{}", self.version, &hash[..8])
    }

    /// Release of its kubelet. (Of one that cannot be read, the oldest: [`Manifest::check`] refuses it.)
    pub fn kubelet(&self) -> Release {
        let text = self.kubelet.trim_start_matches('v');
        text.parse().unwrap_or(Release::new(0, 0))
    }

    /// Release of its containerd. A manifest without one is from the time when every payload had containerd 1.7, whose
    /// configuration later ones translate.
    pub fn containerd(&self) -> Release {
        self.containerd.parse().unwrap_or(CONTAINERD_UNNAMED)
    }

    /// Minor version of its kubelet.
    pub fn kubelet_minor(&self) -> Option<u32> {
        minor(&self.kubelet)
    }

    /// Whether no upgrade to it begins on `today` (`2027-03-01`, UTC). Days of this form are ordered as text.
    pub fn expired(&self, today: &str) -> bool {
        !self.expires.is_empty() && self.expires.as_str() <= today
    }

    /// Whether a rollout may go from `version` to this one. The same version may always follow
    /// itself (another build of it).
    pub fn follows(&self, version: &str) -> bool {
        self.version == version || self.may_follow.iter().any(|v| v == version)
    }

    /// Whether it suits that Windows build and that platform.
    pub fn fits(&self, windows_build: &str, platform: &str) -> bool {
        self.windows_builds
            .iter()
            .any(|build| build == windows_build)
            && (self.platforms.is_empty() || self.platforms.iter().any(|p| p == platform))
    }
}

/// Whether a text can be an image with a tag or a digest.
fn is_image(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@[]".contains(c);
    let last = text.rsplit('/').next().unwrap_or_default();
    let named = last
        .split_once([':', '@'])
        .is_some_and(|(name, rest)| !name.is_empty() && !rest.is_empty());
    named && text.len() <= IMAGE_MAX && text.chars().all(plain)
}

/// Whether a text is a day of the calendar in the form `2027-03-01`.
fn is_day(text: &str) -> bool {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = text.split('-').collect();
    let &[year, month, day] = parts.as_slice() else {
        return false;
    };
    if (year.len(), month.len(), day.len()) != (4, 2, 2) || !parts.iter().all(|part| digits(part)) {
        return false;
    }
    let number = |part: &str| part.parse::<u32>().unwrap_or(0);
    let leap = |year: u32| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let days = match number(month) {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap(number(year)) => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&number(day))
}

/// Minor versions that a kubelet may be older than the oldest API server (Kubernetes' skew
/// policy since 1.28).
pub const KUBELET_SKEW_MAX: u32 = 3;

/// Violation of the version skew policy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SkewError {
    /// The kubelet is newer than the oldest API server.
    #[error("kubelet 1.{kubelet} is newer than the oldest API server, 1.{api_server}")]
    TooNew {
        /// Minor of the kubelet.
        kubelet: u32,
        /// Minor of the oldest API server.
        api_server: u32,
    },
    /// The kubelet is older than the skew policy allows.
    #[error(
        "kubelet 1.{kubelet} is more than {KUBELET_SKEW_MAX} minor versions older than the API \
         server, 1.{api_server}"
    )]
    TooOld {
        /// Minor of the kubelet.
        kubelet: u32,
        /// Minor of the newest API server.
        api_server: u32,
    },
}

/// Checks a kubelet against the minors of the oldest and the newest API server.
pub fn check_skew(kubelet: u32, oldest: u32, newest: u32) -> Result<(), SkewError> {
    if kubelet > oldest {
        return Err(SkewError::TooNew {
            kubelet,
            api_server: oldest,
        });
    }
    if kubelet + KUBELET_SKEW_MAX < newest {
        return Err(SkewError::TooOld {
            kubelet,
            api_server: newest,
        });
    }
    Ok(())
}

impl PayloadFile {
    /// Difference between the file and its manifest entry. `None`: they match.
    pub fn compare(&self, reader: &impl PayloadReader) -> Option<String> {
        match reader.digest(&self.name) {
            Err(why) => Some(why),
            Ok((_, size)) if size != self.size => {
                Some(format!("{size} bytes, the manifest says {}", self.size))
            }
            Ok((sha256, _)) if sha256 != self.sha256 => Some(format!(
                "SHA-256 {sha256}, the manifest says {}",
                self.sha256
            )),
            Ok(_) => None,
        }
    }

    fn check(&self, location: &str, found: &mut Vec<Problem>) {
        let mut problem = |field: &str, reason: String| {
            found.push(Problem::new(format!("{location}.{field}"), reason))
        };
        let plain = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
                && !name.starts_with('.')
        };
        if !plain(&self.name) {
            problem("name", format!("`{}` is not a plain file name", self.name));
        }
        let manifests = [MANIFEST_FILE, SIGNATURE_FILE];
        if manifests.contains(&self.name.as_str()) {
            problem("name", format!("`{}` is the manifest's own", self.name));
        }
        if !self.destination.split('\\').all(plain) {
            let reason = format!(
                "`{}` is not a path below the payload's folder",
                self.destination
            );
            problem("destination", reason);
        } else if let Some(why) = self.destination.split('\\').find_map(windows_name::refused) {
            problem("destination", format!("`{}` {why}", self.destination));
        }
        if !crate::is_sha256(&self.sha256) {
            problem(
                "sha256",
                format!("`{}` is not 64 lower-case hex digits", self.sha256),
            );
        }
        if self.size == 0 || self.size > PAYLOAD_FILE_BYTES_MAX {
            problem(
                "size",
                format!("{} is not in 1..={PAYLOAD_FILE_BYTES_MAX}", self.size),
            );
        }
    }
}

fn check_version(version: &str, location: &str, found: &mut Vec<Problem>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    let ok = version.starts_with(|c: char| c.is_ascii_digit())
        && version.len() <= 40
        && version.chars().all(plain);
    if !ok {
        let reason = format!("`{version}` is not a version (a digit first, at most 40 characters)");
        found.push(Problem::new(location, reason));
    }
}

fn minor(version: &str) -> Option<u32> {
    let (major, minor) = version.trim_start_matches('v').split_once('.')?;
    let _: u32 = major.parse().ok()?;
    minor.parse().ok()
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
