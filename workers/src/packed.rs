//! Compressed payload files for uploads, once for each content, in a bounded folder. Files of 256 KiB or more are
//! compressed when samples show at least 15 % savings.

use crate::{
    payload::Payload,
    progress::Progress,
    sha256::{PIECE_BYTES, sum},
};
use dormer_profile::hex;
use dormer_proto::lock::Locked as _;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{OnceCell, Semaphore},
    time::{Instant, interval},
};

/// Smaller files are sent uncompressed, because compression would save less than a round trip.
pub const PACK_BYTES_MIN: u64 = 256 << 10;
/// Most bytes of compressed files in the folder: about four payloads. Above that the oldest are deleted.
pub const CACHE_BYTES_MAX: u64 = 1 << 30;
/// Least savings, in percent of the file: a host unpacks at about 100 MB/s.
const SAVED_PERCENT_MIN: u64 = 15;
/// Bytes of each of the three samples: at the file's start, middle and end.
const SAMPLE_BYTES: u64 = 128 << 10;
/// Files that are compressed at once: the other processors are for sessions.
const PACKED_AT_ONCE: usize = 2;
/// Pause after a failure, such as a full disk, before a file is packed again. Meanwhile it goes unpacked.
const AGAIN_AFTER: Duration = Duration::from_secs(5 * 60);
/// Prefix of unfinished files; one that is older than a day is abandoned.
const UNFINISHED: &str = ".unfinished";
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// A packed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Where it lies.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// SHA-256 of the packed bytes.
    pub sha256: String,
}

type Cell = Arc<OnceCell<Option<Arc<Packed>>>>;

/// Packs files and keeps them. Several processes may share its folder.
pub struct Packer {
    folder: PathBuf,
    bytes_max: u64,
    /// By the SHA-256 of the unpacked content. A lock: held for a map operation, never across an await.
    known: Mutex<HashMap<String, Cell>>,
    /// Time of the last failure, by the SHA-256 of the unpacked content. Lock held for one map operation.
    failed: Mutex<HashMap<String, Instant>>,
    turns: Semaphore,
}

/// The file could not be packed or kept just now.
struct PackLater;

impl Default for Packer {
    fn default() -> Self {
        Self::new(std::env::temp_dir().join("dormer-packed"))
    }
}

impl Packer {
    /// One that keeps its files in `folder`, which it makes when it needs it.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        let known = Mutex::default();
        let failed = Mutex::default();
        let turns = Semaphore::new(PACKED_AT_ONCE);
        Self {
            folder,
            bytes_max: CACHE_BYTES_MAX,
            known,
            failed,
            turns,
        }
    }

    /// The same with another limit for its folder, in bytes.
    #[must_use]
    pub fn with_bytes_max(self, bytes_max: u64) -> Self {
        Self { bytes_max, ..self }
    }

    fn failed(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.failed.locked()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Cell>> {
        self.known.locked()
    }

    /// Compressed form of a payload's file; `None`: the savings are too small, or it cannot be stored, and the file is
    /// sent uncompressed. Reports each processed byte to `progress`.
    pub async fn packed(
        &self,
        payload: &Payload,
        name: &str,
        sha256: &str,
        size: u64,
        progress: &Progress,
    ) -> Option<Arc<Packed>> {
        if size < PACK_BYTES_MIN {
            return None;
        }
        let cell = Arc::clone(self.known().entry(sha256.to_owned()).or_default());
        let making = cell.get_or_try_init(|| self.make(payload, name, sha256, size));
        let packed = alive(making, progress).await.cloned();
        progress.advance(size);
        packed.unwrap_or_default()
    }

    /// Forgets a compressed file that has changed.
    pub fn forget(&self, sha256: &str, packed: &Packed) {
        tracing::warn!(file = %packed.path.display(), "a packed file was changed or taken away: made anew");
        let _ = fs::remove_file(&packed.path);
        self.known().remove(sha256);
    }

    async fn make(
        &self,
        payload: &Payload,
        name: &str,
        sha256: &str,
        size: u64,
    ) -> Result<Option<Arc<Packed>>, PackLater> {
        // It is never closed.
        let _turn = self.turns.acquire().await;
        let lately = |at: &Instant| at.elapsed() < AGAIN_AFTER;
        if self.failed().get(sha256).is_some_and(lately) {
            return Err(PackLater);
        }
        let folder = self.folder.clone();
        let bytes_max = self.bytes_max;
        let payload = payload.clone();
        let name = name.to_owned();
        let content = sha256.to_owned();
        let work = move || make(&folder, bytes_max, &payload, &name, &content, size);
        let made = tokio::task::spawn_blocking(work).await;
        let made = made.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        made.map(|packed| packed.map(Arc::new)).map_err(|error| {
            tracing::warn!(folder = %self.folder.display(), %error, "a payload file is sent uncompressed for five minutes");
            self.failed().insert(sha256.to_owned(), Instant::now());
            PackLater
        })
    }
}

/// Awaits work that the size of a file bounds, and reports progress meanwhile.
async fn alive<T>(making: impl Future<Output = T>, progress: &Progress) -> T {
    let mut again = interval(Duration::from_secs(5));
    let mut making = std::pin::pin!(making);
    loop {
        tokio::select! {
            done = &mut making => return done,
            _ = again.tick() => progress.advance(0),
        }
    }
}

fn make(
    folder: &Path,
    bytes_max: u64,
    payload: &Payload,
    name: &str,
    sha256: &str,
    size: u64,
) -> io::Result<Option<Packed>> {
    let mut from = payload.read(name)?;
    if !pays(&mut from, size)? {
        return Ok(None);
    }
    private(folder)?;
    if let Some(found) = find(folder, sha256)? {
        return Ok(Some(found));
    }
    from.seek(SeekFrom::Start(0))?;
    let unfinished = Unfinished::in_folder(folder, sha256);
    let mut to = File::create_new(&unfinished.0)?;
    let done = pack(&mut from, &mut to)?;
    // The upload finds and names a file that differs from its manifest.
    if done.plain != sha256 || !saves(done.size, size) || done.size > bytes_max {
        return Ok(None);
    }
    make_room(folder, bytes_max, done.size)?;
    let path = folder.join(format!("{sha256}-{}.gz", done.packed));
    fs::rename(&unfinished.0, &path)?;
    Ok(Some(Packed {
        path,
        size: done.size,
        sha256: done.packed,
    }))
}

/// Temporary file, deleted on drop unless it was renamed.
struct Unfinished(PathBuf);

impl Unfinished {
    fn in_folder(folder: &Path, sha256: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let process = std::process::id();
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let name = format!("{sha256}.{process}-{nth}-{}{UNFINISHED}", now.as_nanos());
        Self(folder.join(name))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Whether three samples of a content of `size` bytes show enough savings.
///
/// # Errors
/// The content cannot be read.
pub fn pays(from: &mut (impl Read + Seek), size: u64) -> io::Result<bool> {
    let (sampled, packed) = sample(from, size)?;
    Ok(size >= PACK_BYTES_MIN && saves(packed, sampled))
}

/// About how many bytes of a content of `size` bytes go over the wire, by the same samples.
///
/// # Errors
/// The content cannot be read.
pub fn estimate(from: &mut (impl Read + Seek), size: u64) -> io::Result<u64> {
    let (sampled, packed) = sample(from, size)?;
    let pays = size >= PACK_BYTES_MIN && saves(packed, sampled);
    Ok(if pays {
        size.saturating_mul(packed) / sampled.max(1)
    } else {
        size
    })
}

/// Number of sampled bytes, and their compressed size.
fn sample(from: &mut (impl Read + Seek), size: u64) -> io::Result<(u64, u64)> {
    let mut sampled = 0;
    let mut packed = 0;
    for start in [
        0,
        (size / 2).saturating_sub(SAMPLE_BYTES / 2),
        size.saturating_sub(SAMPLE_BYTES),
    ] {
        from.seek(SeekFrom::Start(start))?;
        let mut part = Vec::new();
        from.by_ref().take(SAMPLE_BYTES).read_to_end(&mut part)?;
        let mut packer = GzEncoder::new(Counted::default(), Compression::fast());
        packer.write_all(&part)?;
        sampled += part.len() as u64;
        packed += packer.finish()?.bytes;
    }
    Ok((sampled, packed))
}

fn saves(packed: u64, plain: u64) -> bool {
    plain > 0 && packed.saturating_mul(100) <= plain.saturating_mul(100 - SAVED_PERCENT_MIN)
}

/// SHA-256 of a content and of its packed form, and that form's size in bytes.
struct PackedDigests {
    plain: String,
    packed: String,
    size: u64,
}

/// Packs all of `from` into `to`.
fn pack(from: &mut impl Read, to: &mut File) -> io::Result<PackedDigests> {
    let mut packer = GzEncoder::new(Counted::to(to), Compression::default());
    let mut plain = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece)? {
            0 => break,
            read => {
                plain.update(&piece[..read]);
                packer.write_all(&piece[..read])?;
            }
        }
    }
    let Counted { bytes, sum, .. } = packer.finish()?;
    Ok(PackedDigests {
        plain: hex(&plain.finalize()),
        packed: hex(&sum.finalize()),
        size: bytes,
    })
}

/// Counts and sums what passes through.
#[derive(Default)]
struct Counted<'a> {
    to: Option<&'a mut File>,
    bytes: u64,
    sum: Sha256,
}

impl<'a> Counted<'a> {
    fn to(to: &'a mut File) -> Self {
        Self {
            to: Some(to),
            ..Self::default()
        }
    }
}

impl Write for Counted<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if let Some(to) = &mut self.to {
            to.write_all(data)?;
            self.sum.update(data);
        }
        self.bytes += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.as_mut().map_or(Ok(()), |to| to.flush())
    }
}

/// Compressed file of an earlier process, if its content still matches its name.
fn find(folder: &Path, sha256: &str) -> io::Result<Option<Packed>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let rest = name
            .strip_prefix(sha256)
            .and_then(|rest| rest.strip_prefix('-'));
        let Some(packed) = rest.and_then(|rest| rest.strip_suffix(".gz")) else {
            continue;
        };
        let Some(file) = still_there(File::open(&path))? else {
            continue;
        };
        let (found, size) = sum(&file)?;
        // Others may write into the temporary folder, so the unpacked content decides, not the name.
        (&file).rewind()?;
        let unpacked = sum(GzDecoder::new(&file));
        if found == packed && unpacked.is_ok_and(|(plain, _)| plain == sha256) {
            let now = SystemTime::now();
            let _ = File::options()
                .append(true)
                .open(&path)
                .and_then(|it| it.set_modified(now));
            let sha256 = packed.to_owned();
            return Ok(Some(Packed { path, size, sha256 }));
        }
        let _ = fs::remove_file(&path);
    }
    Ok(None)
}

/// Removes abandoned files, and the oldest files until `more` bytes fit.
fn make_room(folder: &Path, bytes_max: u64, more: u64) -> io::Result<()> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    make_room_among(paths.collect::<io::Result<_>>()?, bytes_max, more)
}

/// The same among these files. Another task or process may rename or remove any of them meanwhile.
fn make_room_among(paths: Vec<PathBuf>, bytes_max: u64, more: u64) -> io::Result<()> {
    let mut all = Vec::new();
    let now = SystemTime::now();
    for path in paths {
        let Some(meta) = still_there(fs::symlink_metadata(&path))? else {
            continue;
        };
        let modified = meta.modified()?;
        let unfinished = path.to_string_lossy().ends_with(UNFINISHED);
        let left = now
            .duration_since(modified)
            .is_ok_and(|age| age > LEFT_AFTER);
        if unfinished && left {
            let _ = fs::remove_file(&path);
        } else if !unfinished {
            all.push((modified, meta.len(), path));
        }
    }
    all.sort();
    let mut bytes: u64 = all.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in all {
        if bytes.saturating_add(more) <= bytes_max {
            return Ok(());
        }
        still_there(fs::remove_file(path))?;
        bytes -= size;
    }
    Ok(())
}

/// `None` for a file that is gone.
fn still_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Makes the folder, for this user alone.
fn private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use dormer_profile::{payload::Manifest, sha256_hex};
    use std::{collections::BTreeMap, io::Cursor};

    /// Half of it repeats.
    fn text(nth: u32) -> Vec<u8> {
        let line = |n: u32| {
            format!(
                "{nth} {:08x} the same again and again\n",
                n.wrapping_mul(2_654_435_761)
            )
        };
        (0..20_000).flat_map(|n| line(n).into_bytes()).collect()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        (0..bytes / 8).flat_map(|_| next()).collect()
    }

    fn payload(files: &[(&str, &[u8])]) -> Payload {
        let files = files
            .iter()
            .map(|(name, it)| ((*name).to_owned(), Bytes::copy_from_slice(it)));
        Payload::in_memory(Manifest::default(), files.collect::<BTreeMap<_, _>>())
    }

    async fn packed(packer: &Packer, payload: &Payload, bytes: &[u8]) -> Option<Arc<Packed>> {
        let sum = sha256_hex(bytes);
        let size = bytes.len() as u64;
        packer
            .packed(payload, "a", &sum, size, &Progress::default())
            .await
    }

    #[test]
    fn three_samples_say_what_pays() {
        let half = [noise(600_000), text(1)].concat();
        let gzip = {
            let mut packer = GzEncoder::new(Vec::new(), Compression::default());
            packer
                .write_all(&[text(1), text(2), text(3), text(4), text(5)].concat())
                .unwrap();
            packer.finish().unwrap()
        };
        for (bytes, says) in [
            (text(1), true),
            (noise(900_000), false),
            (half, true),
            (gzip, false),
            (text(1)[..9_000].to_vec(), false),
        ] {
            let size = bytes.len() as u64;
            let sent = estimate(&mut Cursor::new(&bytes), size).unwrap();
            assert_eq!(sent < size, says, "{sent} of {size} bytes");
            assert_eq!(
                pays(&mut Cursor::new(bytes), size).unwrap(),
                says,
                "{size} bytes"
            );
        }
    }

    #[tokio::test]
    async fn a_file_is_packed_once_and_found_again_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let content = text(1);
        let there = payload(&[("a", &content)]);
        let packer = Packer::new(folder.path().join("packed"));
        let first = packed(&packer, &there, &content).await.expect("it pays");
        assert!(
            first.size * 2 < content.len() as u64,
            "{} of {}",
            first.size,
            content.len()
        );
        let mut unpacked = Vec::new();
        let file = File::open(&first.path).unwrap();
        GzDecoder::new(file).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, content);
        let made = fs::metadata(&first.path).unwrap().created().ok();
        let next = Packer::new(folder.path().join("packed"));
        assert_eq!(
            packed(&next, &there, &content).await,
            Some(Arc::clone(&first))
        );
        assert_eq!(
            fs::metadata(&first.path).unwrap().created().ok(),
            made,
            "not made anew"
        );

        fs::write(&first.path, "something else").unwrap();
        let next = Packer::new(folder.path().join("packed"));
        assert_eq!(
            packed(&next, &there, &content).await,
            Some(first),
            "made anew"
        );
    }

    #[tokio::test]
    async fn what_is_not_what_it_should_be_goes_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let packer = Packer::new(folder.path().to_owned());
        let damaged = payload(&[("a", &text(2))]);
        assert_eq!(
            packed(&packer, &damaged, &text(1)).await,
            None,
            "another content"
        );
        let absent = payload(&[]);
        assert_eq!(packed(&packer, &absent, &text(3)).await, None, "no content");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            0,
            "nothing is left behind"
        );
        let nowhere = Packer::new(PathBuf::from("/proc/no-such-folder"));
        let there = payload(&[("a", &text(1))]);
        assert_eq!(
            packed(&nowhere, &there, &text(1)).await,
            None,
            "nowhere to keep it"
        );
    }

    #[tokio::test]
    async fn the_folder_stays_within_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let one = {
            let packer = Packer::new(folder.path().to_owned());
            packed(&packer, &payload(&[("a", &text(1))]), &text(1))
                .await
                .expect("packed")
                .size
        };
        let packer = Packer::new(folder.path().to_owned()).with_bytes_max(one * 5 / 2);
        for nth in 2..8 {
            let found = packed(&packer, &payload(&[("a", &text(nth))]), &text(nth)).await;
            assert!(found.expect("packed").path.exists(), "the newest stays");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let small = Packer::new(folder.path().to_owned()).with_bytes_max(one / 2);
        assert_eq!(
            packed(&small, &payload(&[("a", &text(9))]), &text(9)).await,
            None
        );
    }

    #[test]
    fn a_file_that_another_task_takes_away_meanwhile_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("old.gz");
        fs::write(&old, [0; 600]).unwrap();
        let gone = folder.path().join(format!("gone{UNFINISHED}"));
        make_room_among(vec![gone, old.clone()], 1_000, 500).unwrap();
        assert!(!old.exists(), "room was made");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_could_not_be_kept_is_packed_again_some_minutes_later() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("packed");
        fs::write(&place, "a file in place of the folder").unwrap();
        let there = payload(&[("a", &text(1))]);
        let packer = Packer::new(place.clone());
        assert_eq!(packed(&packer, &there, &text(1)).await, None);
        fs::remove_file(&place).unwrap();
        assert_eq!(packed(&packer, &there, &text(1)).await, None, "too soon");
        tokio::time::advance(AGAIN_AFTER).await;
        assert!(packed(&packer, &there, &text(1)).await.is_some());
    }
}
