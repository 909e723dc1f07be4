//! An image in a tar: an OCI layout (image-spec v1.1, chapter Image Layout), as `ctr images export`, `skopeo copy … oci-archive:`
//! and `docker save` since Docker 25 write it. Not compressed: blobs are read where they lie.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Seek, SeekFrom},
};

use serde::Deserialize;

use super::wrong;
use crate::ops::WinError;

/// Most files in an archive, and most bytes of one that is read as JSON.
const FILES_MAX: usize = 10_000;
const JSON_BYTES_MAX: u64 = 4 << 20;
/// Deepest nesting of indices.
const DEPTH_MAX: usize = 4;

const BLOCK: u64 = 512;

/// Media types (image-spec v1.1, chapter Media Types; Docker's of distribution/spec).
const INDICES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
const MANIFESTS: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// Largest size of one file, in bytes. Beyond it the sums of places overflow.
const SIZE_MAX: u64 = 1 << 48;

/// Where containerd, and where others, write an image's name in `index.json`.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// One blob, as its parent describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blob {
    pub(super) media_type: String,
    /// `sha256:` and 64 digits.
    pub(super) digest: String,
    /// Its bytes.
    pub(super) size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    /// Labels by which containerd's garbage collector follows references (containerd, the page about garbage
    /// collection).
    #[serde(skip)]
    pub(super) labels: Vec<(String, String)>,
}

/// References in an index or a manifest.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ArchiveNames {
    manifests: Vec<Blob>,
    config: Option<Blob>,
    layers: Vec<Blob>,
}

/// An archive: where each of its files lies.
pub(super) struct Archive<A> {
    file: A,
    files: BTreeMap<String, (u64, u64)>,
}

impl<A: Read + Seek> Archive<A> {
    /// Reads the table of contents.
    pub(super) fn read(mut file: A) -> Result<Self, WinError> {
        let mut files = BTreeMap::new();
        let mut at = 0;
        let mut entries = 0;
        loop {
            let mut block = [0; 512];
            file.seek(SeekFrom::Start(at))
                .map_err(|error| number(&error))?;
            file.read_exact(&mut block)
                .map_err(|_| wrong("the archive ends in the middle, or is no tar"))?;
            if block.iter().all(|byte| *byte == 0) {
                break;
            }
            let (name, size, kind) = entry(&block).ok_or_else(|| wrong("is no tar"))?;
            if matches!(kind, 0 | b'0') {
                files.insert(name, (at + BLOCK, size));
            }
            entries += 1;
            if entries > FILES_MAX {
                return Err(wrong(format!("more than {FILES_MAX} files")));
            }
            at += BLOCK + size.div_ceil(BLOCK) * BLOCK;
        }
        if !files.contains_key("oci-layout") || !files.contains_key("index.json") {
            return Err(wrong(
                "no OCI layout: it has no oci-layout and index.json (ctr images export writes one)",
            ));
        }
        Ok(Self { file, files })
    }

    /// The image of that name: the one image that is there, or the one that carries the name.
    pub(super) fn target(&mut self, name: &str) -> Result<Blob, WinError> {
        let index: ArchiveNames = self.json("index.json")?;
        let named = |blob: &&Blob| {
            let mut names = NAMES.iter().filter_map(|key| blob.annotations.get(*key));
            names.any(|found| found == name)
        };
        let all = &index.manifests;
        let target = match all.as_slice() {
            [only] => Some(only),
            _ => all.iter().find(named),
        };
        let count = all.len();
        let target = target.ok_or_else(|| wrong(format!("{count} images, and none is {name}")))?;
        if !self.has(target) {
            return Err(wrong(format!("its blob {} is missing", target.digest)));
        }
        Ok(target.clone())
    }

    /// The image and all blobs that it references and the archive has, each after those that it references. An index
    /// may reference images of other systems that the archive lacks.
    pub(super) fn blobs(&mut self, target: &Blob) -> Result<Vec<Blob>, WinError> {
        let mut found = Vec::new();
        self.visit(target, 0, &mut BTreeSet::new(), &mut found)?;
        if !found
            .iter()
            .any(|blob| MANIFESTS.contains(&&*blob.media_type))
        {
            return Err(wrong("no manifest of an image in it"));
        }
        Ok(found)
    }

    /// Adds a blob and its references to `found`. Each is read once, even if several blobs reference it, or it
    /// references itself.
    fn visit(
        &mut self,
        blob: &Blob,
        depth: usize,
        seen: &mut BTreeSet<String>,
        found: &mut Vec<Blob>,
    ) -> Result<(), WinError> {
        if !seen.insert(blob.digest.clone()) {
            return Ok(());
        }
        let mut blob = blob.clone();
        let is_index = INDICES.contains(&&*blob.media_type);
        let is_manifest = MANIFESTS.contains(&&*blob.media_type);
        if is_index || is_manifest {
            if depth > DEPTH_MAX {
                return Err(wrong("an index in an index in an index"));
            }
            let names: ArchiveNames = self.json(&path(&blob.digest)?)?;
            let numbered = |kind: &'static str, blobs: Vec<Blob>| {
                let label =
                    move |(n, blob)| (format!("containerd.io/gc.ref.content.{kind}.{n}"), blob);
                blobs.into_iter().enumerate().map(label)
            };
            let config = names.config.into_iter();
            let config = config.map(|blob| ("containerd.io/gc.ref.content.config".into(), blob));
            let children = numbered("m", names.manifests)
                .chain(config)
                .chain(numbered("l", names.layers));
            for (label, child) in children {
                if self.has(&child) {
                    self.visit(&child, depth + 1, seen, found)?;
                    blob.labels.push((label, child.digest));
                } else if is_manifest {
                    return Err(wrong(format!("its blob {} is missing", child.digest)));
                }
            }
        }
        found.push(blob);
        Ok(())
    }

    fn has(&self, blob: &Blob) -> bool {
        let there = path(&blob.digest)
            .ok()
            .and_then(|path| self.files.get(&path));
        there.is_some_and(|(_, size)| *size == blob.size)
    }

    /// A piece of a blob.
    pub(super) fn piece(
        &mut self,
        blob: &Blob,
        offset: u64,
        most: usize,
    ) -> Result<Vec<u8>, WinError> {
        let path = path(&blob.digest)?;
        let (begin, size) = *self
            .files
            .get(&path)
            .ok_or_else(|| wrong("a blob is missing"))?;
        let count = usize::try_from(size.saturating_sub(offset))
            .unwrap_or(most)
            .min(most);
        self.bytes(begin + offset, count)
    }

    fn json<T: for<'de> Deserialize<'de>>(&mut self, name: &str) -> Result<T, WinError> {
        let (begin, size) = *self
            .files
            .get(name)
            .ok_or_else(|| wrong(format!("no {name}")))?;
        let size = usize::try_from(size.min(JSON_BYTES_MAX)).unwrap_or(0);
        let bytes = self.bytes(begin, size)?;
        serde_json::from_slice(&bytes).map_err(|error| wrong(format!("{name}: {error}")))
    }

    fn bytes(&mut self, begin: u64, count: usize) -> Result<Vec<u8>, WinError> {
        let mut bytes = vec![0; count];
        self.file
            .seek(SeekFrom::Start(begin))
            .map_err(|error| number(&error))?;
        self.file
            .read_exact(&mut bytes)
            .map_err(|_| wrong("the archive ends in the middle"))?;
        Ok(bytes)
    }
}

/// Where the blob of a digest lies.
fn path(digest: &str) -> Result<String, WinError> {
    let hex = digest
        .strip_prefix("sha256:")
        .filter(|hex| dormer_profile::is_sha256(hex));
    hex.map(|hex| format!("blobs/sha256/{hex}"))
        .ok_or_else(|| wrong(format!("`{digest}` is no SHA-256")))
}

/// Name, size and kind of one entry (POSIX.1-1988, `ustar`; GNU's numbers in base 256).
fn entry(block: &[u8; 512]) -> Option<(String, u64, u8)> {
    let sum: u64 = block
        .iter()
        .enumerate()
        .map(|(n, byte)| {
            if (148..156).contains(&n) {
                32
            } else {
                u64::from(*byte)
            }
        })
        .sum();
    let checksum = octal(&block[148..156])?;
    let until_nul = |bytes: &[u8]| {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    let last = until_nul(&block[..100]);
    let prefix = if &block[257..262] == b"ustar" && block[262] == 0 {
        until_nul(&block[345..500])
    } else {
        String::new()
    };
    let whole = if prefix.is_empty() {
        last
    } else {
        format!("{prefix}/{last}")
    };
    let name = whole.strip_prefix("./").unwrap_or(&whole).to_owned();
    let size = match block[124] {
        0x80 => u64::from_be_bytes(*block[128..136].first_chunk()?),
        _ => octal(&block[124..136])?,
    };
    (sum == checksum && size <= SIZE_MAX).then_some((name, size, block[156]))
}

fn octal(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let digits = text.trim_matches(|c: char| c == '\0' || c == ' ');
    if digits.is_empty() {
        return Some(0);
    }
    u64::from_str_radix(digits, 8).ok()
}

fn number(error: &std::io::Error) -> WinError {
    let code = error
        .raw_os_error()
        .and_then(|code| u32::try_from(code).ok());
    WinError {
        code: code.unwrap_or(super::NO_DATA),
        text: error.to_string(),
    }
}
