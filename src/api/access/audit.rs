//! Audit of the API and the console: logins, refusals, reads of confidential data, and actions, each with the right
//! that permitted it and the caller's address. One JSON object a line.

use crate::{ApiError, run_cache::LastRecord};
use dormer_proto::{id::Timestamp, lock::Locked as _};
use dormer_telemetry::{AuditExport, AuditLine};
use dormer_views::moment::Moment;
use serde::Serialize;
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::oneshot;

/// Longest wait for a line to be written.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// Lines that wait for the disk. One more is not taken.
const QUEUE_MAX: usize = 1_024;
/// Most refusals of one caller that are written in a minute: of an authenticated user, else of an address. The rest is
/// counted in the next line, so that refused callers cannot fill the disk.
const REFUSALS_OF_ONE: u64 = 30;
/// Most refusals written in a minute for all unnamed callers together. Named users have their own limit.
const REFUSALS_OF_UNKNOWN: u64 = 300;
/// Most user names that are counted separately in a minute. Beyond that, users share the limit of unknown callers.
const RATE_LIMITED_USERS_MAX: usize = 1_024;
/// Most characters of values that a caller sends about itself.
const SAID_MAX: usize = 200;

/// Where the lines of the audit are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditTarget {
    /// Standard output.
    Output,
    /// A file, appended to.
    File(PathBuf),
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuditEvent {
    /// A browser's session began.
    Login,
    /// A browser's session ended.
    Logout,
    /// A one-time link was made for the caller.
    Link,
    /// Something was requested that changes something.
    Action,
    /// Something was looked at that may hold secrets or commands.
    Confidential,
    /// Any other request, which is written only if it is refused.
    Read,
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AuditOutcome {
    /// It was let in. This line is written before anything is done.
    Allowed,
    /// It was refused, and nothing was done.
    Refused,
    /// It was answered.
    Answered,
}

/// Line of the audit log.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditEntry {
    /// The same in the lines of one request.
    pub(super) id: String,
    pub(super) event: AuditEvent,
    pub(super) outcome: AuditOutcome,
    /// Authenticated name. `None`: the caller is unknown, or the mode does not authenticate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    /// How the caller showed who it is: `token`, `session`, `link`, or `none`.
    pub(super) by: &'static str,
    /// Address of the peer: of a proxy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    /// Addresses in the request's forwarding headers. A caller may write anything there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) forwarded_for: Option<String>,
    pub(super) method: String,
    /// Path without the query, which may hold a link's secret.
    pub(super) path: String,
    /// Rights that the request needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rights: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    /// Whether an answered action was only checked, by the field `dryRun` of its body.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) dry_run: bool,
    /// Last record of the run that an answered action was for. The history's owner cannot take it out of the audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) record: Option<LastRecord>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl AuditEntry {
    /// Text of a caller, cut.
    pub(super) fn said(text: &str) -> String {
        text.chars().take(SAID_MAX).collect()
    }
}

/// A line with the fields that the writer adds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: Moment,
    #[serde(flatten)]
    entry: &'a AuditEntry,
    /// Lines that could not be written, or were too many, since the last one.
    #[serde(skip_serializing_if = "is_zero")]
    unwritten: u64,
}

fn is_zero(it: &u64) -> bool {
    *it == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(it: &bool) -> bool {
    !it
}

/// Audit. A separate thread writes the lines, so that a disk that hangs blocks no other thread.
pub struct Audit {
    queue: SyncSender<Queued>,
    counts: Arc<Counts>,
    refusals: Mutex<Refusals>,
    /// Whether nothing is done that cannot be written.
    required: bool,
}

/// Queued line.
struct Queued {
    time: Moment,
    entry: AuditEntry,
    written: oneshot::Sender<io::Result<()>>,
}

/// State that callers and the writer share.
#[derive(Default)]
struct Counts {
    /// Lines that never reached the writer since its last one.
    dropped: AtomicU64,
    /// Lines that wait for the disk.
    pending: AtomicU64,
    /// Whether a line waited longer than [`WRITE_MAX`], and none was written since.
    late: AtomicBool,
}

impl Counts {
    /// Whether the disk hangs. With nothing pending it does not, whatever a caller noted last.
    fn hangs(&self) -> bool {
        self.late.load(Ordering::SeqCst) && self.pending.load(Ordering::SeqCst) > 0
    }
}

/// Refusals in the present minute.
#[derive(Default)]
struct Refusals {
    minute: u64,
    users: HashMap<String, u64>,
    /// Refusals of unnamed callers, by address. Only written ones are counted.
    addresses: HashMap<Option<String>, u64>,
    unknown: u64,
}

impl Refusals {
    /// Counts a refusal of `user`, or of an unknown caller at an address. Returns whether it exceeds the limit of this
    /// minute.
    fn is_a_flood(&mut self, minute: u64, user: Option<&str>, address: Option<&str>) -> bool {
        if self.minute != minute {
            *self = Self {
                minute,
                ..Self::default()
            };
        }
        if let Some(user) = user {
            let room = self.users.len() < RATE_LIMITED_USERS_MAX;
            if room || self.users.contains_key(user) {
                let count = self.users.entry(user.to_owned()).or_default();
                *count += 1;
                return *count > REFUSALS_OF_ONE;
            }
        }
        if self.unknown >= REFUSALS_OF_UNKNOWN {
            return true;
        }
        let count = self.addresses.entry(address.map(str::to_owned));
        let count = count.or_default();
        if *count >= REFUSALS_OF_ONE {
            return true;
        }
        *count += 1;
        self.unknown += 1;
        false
    }
}

/// Writer of lines.
struct Writer {
    target: Target,
    /// Export of the lines that were written.
    copies: Option<AuditExport>,
    counts: Arc<Counts>,
    /// Whether the last line may lack its end.
    torn: bool,
    /// Lines not written since the last one that was.
    unwritten: u64,
}

enum Target {
    Out(Box<dyn Write + Send>),
    File { path: PathBuf, file: File },
}

impl Audit {
    /// Audit at `target`. `required`: what cannot be written is not done. `copies` sends what was written to a
    /// collector.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(
        target: &AuditTarget,
        required: bool,
        copies: Option<AuditExport>,
    ) -> io::Result<Arc<Self>> {
        let target = match target {
            AuditTarget::Output => Target::Out(Box::new(io::stdout())),
            AuditTarget::File(path) => Target::File {
                path: path.clone(),
                file: opened(path)?,
            },
        };
        Ok(Arc::new(Self::over(target, required, copies)?))
    }

    fn over(target: Target, required: bool, copies: Option<AuditExport>) -> io::Result<Self> {
        let (queue, queued) = sync_channel(QUEUE_MAX);
        let counts = Arc::<Counts>::default();
        let writer = Writer {
            target,
            copies,
            counts: Arc::clone(&counts),
            torn: false,
            unwritten: 0,
        };
        std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || writer.write_until_closed(&queued))?;
        Ok(Self {
            queue,
            counts,
            refusals: Mutex::default(),
            required,
        })
    }

    /// Writes a line, and waits until it is written. If the audit is not required, nothing waits for a disk that
    /// hangs.
    ///
    /// # Errors
    /// 503: it cannot be written, and the audit is required.
    pub(super) async fn write(&self, entry: AuditEntry) -> Result<(), ApiError> {
        let why = match self.written(entry).await {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        tracing::error!(why, "the audit log cannot be written");
        match self.required {
            true => Err(ApiError::unaudited(&why)),
            false => Ok(()),
        }
    }

    async fn written(&self, entry: AuditEntry) -> Result<(), String> {
        let hung = || format!("no write ended within {} s", WRITE_MAX.as_secs());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        if entry.outcome == AuditOutcome::Refused {
            let mut refusals = self.refusals.locked();
            let user = entry.user.as_deref();
            let address = entry.from.as_deref();
            if refusals.is_a_flood(now.as_secs() / 60, user, address) {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
        }
        let hangs = self.counts.hangs();
        if hangs && self.required {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return Err(hung());
        }
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let (written, result) = oneshot::channel();
        let line = Queued {
            time: Moment(Timestamp(millis)),
            entry,
            written,
        };
        self.counts.pending.fetch_add(1, Ordering::SeqCst);
        if let Err(refused) = self.queue.try_send(line) {
            self.counts.pending.fetch_sub(1, Ordering::SeqCst);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return Err(match refused {
                TrySendError::Full(_) => format!("{QUEUE_MAX} lines wait for the disk already"),
                TrySendError::Disconnected(_) => "its writer has ended".into(),
            });
        }
        if hangs {
            return Ok(());
        }
        match tokio::time::timeout(WRITE_MAX, result).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(_)) => Err("its writer has ended".into()),
            Err(_) => {
                self.counts.late.store(true, Ordering::SeqCst);
                Err(hung())
            }
        }
    }
}

impl Writer {
    fn write_until_closed(mut self, queued: &Receiver<Queued>) {
        while let Ok(Queued {
            time,
            entry,
            written,
        }) = queued.recv()
        {
            let result = self.line(time, &entry);
            self.counts.late.store(false, Ordering::SeqCst);
            self.counts.pending.fetch_sub(1, Ordering::SeqCst);
            // The caller may wait no longer.
            let _ = written.send(result);
        }
    }

    fn line(&mut self, time: Moment, entry: &AuditEntry) -> io::Result<()> {
        self.unwritten += self.counts.dropped.swap(0, Ordering::Relaxed);
        let line = Line {
            time,
            entry,
            unwritten: self.unwritten,
        };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        let written = self.write(text.as_bytes());
        match &written {
            Ok(()) => {
                self.unwritten = 0;
                if let Some(copies) = &self.copies {
                    text.pop();
                    copies.send(AuditLine {
                        at: time.0,
                        refused: entry.outcome == AuditOutcome::Refused,
                        text,
                    });
                }
            }
            Err(_) => self.unwritten += 1,
        }
        written
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let out: &mut dyn Write = match &mut self.target {
            Target::Out(out) => out,
            Target::File { path, file } => {
                // Who rotates renames or removes the file: the next line then begins a new one.
                if !is_at(file, path) {
                    *file = opened(path)?;
                    self.torn = false;
                }
                file
            }
        };
        // A line that was cut short keeps the next one readable.
        let end: &[u8] = if self.torn { b"\n" } else { b"" };
        self.torn = true;
        out.write_all(&[end, line].concat())?;
        out.flush()?;
        self.torn = false;
        Ok(())
    }
}

/// Opens a file for appending, readable only by its owner.
fn opened(path: &PathBuf) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    options.open(path).map_err(named)
}

fn is_at(file: &File, path: &PathBuf) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else {
        return false;
    };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::os::unix::fs::PermissionsExt;

    fn entry(outcome: AuditOutcome, user: Option<&str>) -> AuditEntry {
        AuditEntry {
            id: "1".into(),
            event: AuditEvent::Action,
            outcome,
            user: user.map(str::to_owned),
            by: "token",
            from: Some("10.0.0.1".into()),
            forwarded_for: None,
            method: "POST".into(),
            path: "/api/v1/machines/win-1/actions/retry".into(),
            rights: vec!["retry machines win-1".into()],
            status: None,
            dry_run: false,
            record: None,
            error: None,
        }
    }

    fn lines(path: &std::path::Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).expect("a file");
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        lines.collect()
    }

    #[tokio::test]
    async fn a_file_that_is_rotated_away_is_begun_anew_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let audit = Audit::open(&AuditTarget::File(path.clone()), true, None).expect("open");
        let ann = || entry(AuditOutcome::Allowed, Some("ann"));
        audit.write(ann()).await.expect("written");
        let mode = std::fs::metadata(&path)
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let old = folder.path().join("audit.log.1");
        std::fs::rename(&path, &old).expect("rotated");
        audit.write(ann()).await.expect("written");
        std::fs::remove_file(&path).expect("removed");
        audit.write(ann()).await.expect("written");
        assert_eq!((lines(&old).len(), lines(&path).len()), (1, 1));
        let line = &lines(&path)[0];
        assert_eq!(line["event"], "action");
        assert_eq!(line["rights"][0], "retry machines win-1");
        assert!(
            line["time"].as_str().is_some_and(|it| it.ends_with('Z')),
            "{line}"
        );
    }

    #[tokio::test]
    async fn a_full_disk_stops_what_must_be_audited_and_nothing_else() {
        let full = AuditTarget::File("/dev/full".into());
        let ann = || entry(AuditOutcome::Allowed, Some("ann"));
        let required = Audit::open(&full, true, None).expect("open");
        let refused = required.write(ann()).await.expect_err("no room");
        assert_eq!(refused.status(), 503);
        let (what, remedy) = refused.what_and_remedy();
        assert!(what.contains("No space left on device"), "{what}");
        assert!(remedy.contains("--audit-required=false"), "{remedy}");
        let lax = Audit::open(&full, false, None).expect("open");
        assert_eq!(lax.write(ann()).await, Ok(()));
    }

    /// Disk with room for so many bytes, which may grow.
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().expect("a lock");
            let room = disk.1.saturating_sub(disk.0.len()).min(bytes.len());
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0.extend_from_slice(&bytes[..room]);
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn after_a_full_disk_lines_are_whole_again_and_say_how_many_are_missing() {
        let disk = Arc::new(Mutex::new((Vec::new(), 100)));
        let target = Target::Out(Box::new(Disk(Arc::clone(&disk))));
        let audit = Audit::over(target, false, None).expect("a thread");
        let ann = || entry(AuditOutcome::Allowed, Some("ann"));
        for _ in 0..3 {
            audit.write(ann()).await.expect("not required");
        }
        disk.lock().expect("a lock").1 = usize::MAX;
        audit.write(ann()).await.expect("written");
        let text = String::from_utf8(disk.lock().expect("a lock").0.clone()).expect("text");
        let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        assert_eq!(last["unwritten"], 3, "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn nobody_fills_the_disk_by_being_refused() {
        let mut refusals = Refusals::default();
        for n in 1..=1_000 {
            let flood = n > REFUSALS_OF_ONE;
            assert_eq!(refusals.is_a_flood(7, Some("ann"), Some("10.0.0.1")), flood);
            assert_eq!(refusals.is_a_flood(7, None, Some("10.0.0.1")), flood);
        }
        assert!(!refusals.is_a_flood(7, None, Some("10.0.0.2")), "another");
        let mut written = 0;
        for n in 0..10_000 {
            let address = format!("10.0.{}.{}", n / 250, n % 250);
            written += u64::from(!refusals.is_a_flood(7, None, Some(&address)));
        }
        assert_eq!(written, REFUSALS_OF_UNKNOWN - REFUSALS_OF_ONE - 1);
        assert!(
            !refusals.is_a_flood(7, Some("bob"), Some("10.0.0.1")),
            "users have their own"
        );
        let mut of_users = 0;
        for n in 0..10_000 {
            let user = format!("user-{n}");
            of_users += u64::from(!refusals.is_a_flood(7, Some(&user), Some("10.0.0.1")));
        }
        assert!(of_users < u64::try_from(RATE_LIMITED_USERS_MAX).expect("a number"));
        assert!(
            !refusals.is_a_flood(8, None, Some("10.0.0.1")),
            "the next minute"
        );
    }

    #[tokio::test]
    async fn refusals_beyond_the_limit_are_counted_in_the_next_line() {
        let disk = Arc::new(Mutex::new((Vec::new(), usize::MAX)));
        let target = Target::Out(Box::new(Disk(Arc::clone(&disk))));
        let audit = Audit::over(target, true, None).expect("a thread");
        for _ in 0..200 {
            let refused = audit.write(entry(AuditOutcome::Refused, Some("ann"))).await;
            refused.expect("written or counted");
        }
        let allowed = audit.write(entry(AuditOutcome::Allowed, Some("ann"))).await;
        allowed.expect("written");
        let text = String::from_utf8(disk.lock().expect("a lock").0.clone()).expect("text");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        let lines: Vec<Value> = lines.collect();
        let counted: u64 = lines
            .iter()
            .filter_map(|line| line["unwritten"].as_u64())
            .sum();
        assert_eq!(lines.len() as u64 + counted, 201, "{text}");
        // Another minute may have begun meanwhile.
        assert!(lines.len() as u64 <= 2 * REFUSALS_OF_ONE + 1, "{text}");
    }

    /// Disk on which no write ends while the other end of the channel is there.
    struct Hanging(std::sync::mpsc::Receiver<()>, Arc<AtomicU64>);

    impl Write for Hanging {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_takes_no_thread_and_delays_nobody_for_long() {
        let hanging = |required| {
            let (hold, held) = std::sync::mpsc::channel();
            let writes = Arc::<AtomicU64>::default();
            let disk = Hanging(held, Arc::clone(&writes));
            let audit = Audit::over(Target::Out(Box::new(disk)), required, None).expect("a thread");
            (audit, hold, writes)
        };
        let (required, hold_required, _) = hanging(true);
        let (lax, hold_lax, writes) = hanging(false);
        let ann = || entry(AuditOutcome::Allowed, Some("ann"));
        let refused = required.write(ann()).await.expect_err("hangs");
        assert_eq!(refused.status(), 503);
        assert_eq!(lax.write(ann()).await, Ok(()));
        let start = tokio::time::Instant::now();
        for _ in 0..3 * QUEUE_MAX {
            assert_eq!(lax.write(ann()).await, Ok(()));
            required.write(ann()).await.expect_err("hangs");
        }
        assert!(start.elapsed() < WRITE_MAX, "nobody waits for it again");
        drop((hold_required, hold_lax));
        tokio::time::resume();
        // The queued lines are written, and further ones after them.
        while writes.load(Ordering::Relaxed) < QUEUE_MAX as u64 || required.counts.hangs() {
            std::thread::yield_now();
        }
        required.write(ann()).await.expect("written");
    }
}
