//! NATS subjects, stream names and stream settings, all defined in this file.
//!
//! Kubernetes names contain dots, NATS tokens may not. So a run's key is one token, in which every byte that is not
//! an ASCII letter, digit, `-` or `_` is written `=XX`.

use crate::{
    address::{Address, Kind, Origin},
    id::{Attempt, Incarnation, RunId, TaskId, hash64},
    token::{text, token},
};
use serde::{Deserialize, Serialize};

/// Number of history streams. It is part of a store's identity, because it determines the stream of a run.
pub const HISTORY_STREAMS: u64 = 4;
/// Number of partitions of the inbox. It is part of a store's identity, because it determines the partition of a run.
/// It is a multiple of [`HISTORY_STREAMS`], so that the runs of a partition lie in one history stream.
pub const PARTITIONS: u64 = 64;
/// Bytes of the inbox in the server's memory. It refuses new messages when it is full, and their senders repeat them. A
/// machine has about 6 KiB there while none of its messages was taken, so it holds those of 40,000 machines.
pub const INBOX_BYTES_MAX: i64 = 256 << 20;
/// Oldest supported nats-server: it has message schedules, and the fixes after Jepsen's report.
pub const SERVER_OLDEST: (u64, u64, u64) = (2, 12, 3);
/// Header of a history message: the run's earliest deadline in milliseconds since the epoch; absent: none.
pub const DEADLINE_HEADER: &str = "Dormer-Deadline";
/// Header of a history message: the record's seq.
pub const SEQ_HEADER: &str = "Dormer-Seq";
/// Header of a history message: present when the run has ended, with the time of its end.
pub const CLOSED_HEADER: &str = "Dormer-Closed";
/// Header of a record whose run has at most its alarm outstanding. Its value is not read.
pub const QUIET_HEADER: &str = "Dormer-Quiet";
/// Header of a message in the stream of changes: the checksum of the record whose state it shows; with [`SEQ_HEADER`]
/// it identifies the record. The message of a forgotten run has neither.
pub const SUM_HEADER: &str = "Dormer-Sum";
/// Key in the identity stream of [`Identity`], as JSON.
pub const META_IDENTITY: &str = "identity";
/// Key in the identity stream for epochs: each message's sequence is an epoch.
pub const META_EPOCH: &str = "epoch";
/// Key in the identity stream of the markers of whole streams, as JSON. See [`Names::markers`].
pub const META_WHOLE: &str = "whole";
/// Name of the consumer of one class's orders, which all workers share.
#[must_use]
pub fn workers_consumer(class: &str) -> String {
    format!("workers-{}", token(class))
}
/// Task queue of tasks for Windows hosts.
pub const HOST_CLASS: &str = "host";
/// Task queue of tasks for the Kubernetes API.
pub const API_CLASS: &str = "api";
/// Task queues of the machine workflow.
pub const CLASSES: [&str; 3] = [HOST_CLASS, API_CLASS, APPROVALS];
/// Task queue of a workflow that names none.
pub const DEFAULT_CLASS: &str = "task";
/// Task queues of the role worker.
pub const WORKER_CLASSES: [&str; 2] = [HOST_CLASS, API_CLASS];
/// Task queue of the role approver.
pub const APPROVALS: &str = "approve";
/// Records stored per run: a month of drift checks every six hours, two records each.
pub const RECORDS_PER_RUN_MAX: i64 = 256;

/// Most dead letters. A store at the limit has a fault that a person must examine, and accepts no more.
pub const DEAD_LETTERS_MAX: i64 = 100_000;

/// Bytes of the stream of changes in the server's memory. Beyond it the oldest states are dropped. A machine takes
/// about 2 KiB, so it holds about 60,000 runs.
pub const CHANGES_BYTES_MAX: i64 = 128 << 20;
/// Time for which the stream of changes reports a forgotten run, in seconds. A reader that was away longer starts
/// over.
pub const FORGOTTEN_FOR_S: u64 = 24 * 3_600;

/// Identity of a store, written once when the store is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Which store this is.
    pub incarnation: Incarnation,
    /// Its number of history streams.
    #[serde(rename = "shards")]
    pub history_streams: u64,
    /// Number of partitions of its inbox. Absent: an earlier build created the store, and its inbox gets as many as the
    /// first build with partitions gave.
    #[serde(default = "first_partitions")]
    pub partitions: u64,
}

fn first_partitions() -> u64 {
    64
}

/// Settings of a stream, independent of the NATS client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSpec {
    /// Name on the server, with the installation's prefix.
    pub name: String,
    /// The subjects it holds.
    pub subjects: Vec<String>,
    /// Whether it is in memory, because the history can rebuild it. Otherwise it is on file.
    pub in_memory: bool,
    /// Whether an acknowledged message is deleted. Otherwise it stays within the limits.
    pub work_queue: bool,
    /// Messages kept per subject; -1: all.
    pub per_subject_max: i64,
    /// Total messages kept; -1: all.
    pub messages_max: i64,
    /// Total bytes kept; -1: all. The server reserves them.
    pub bytes_max: i64,
    /// Whether a full stream (or subject, if `per_subject_max` limits it) refuses the new message. Otherwise it drops
    /// the oldest. A stream with schedules cannot refuse.
    pub refuse_when_full: bool,
    /// Whether a full subject drops its oldest message, although a full stream refuses.
    pub replaces: bool,
    /// Whether it accepts message schedules and messages with a time to live.
    pub schedules: bool,
    /// Whether it accepts messages with a time to live.
    pub expires: bool,
}

/// The subjects and streams of one store. Several stores may share a NATS account by different prefixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            prefix: "dormer".into(),
        }
    }
}

impl Names {
    /// Names under another prefix: ASCII letters, digits, `-` and `_`; anything else is escaped.
    #[must_use]
    pub fn with_prefix(prefix: &str) -> Self {
        Self {
            prefix: token(prefix),
        }
    }

    /// Name of the history stream of `index`.
    #[must_use]
    pub fn history_stream(&self, index: u64) -> String {
        format!("{}-history-{index}", self.prefix)
    }

    /// Every subject of one history stream.
    #[must_use]
    pub fn history_all(&self, index: u64) -> String {
        format!("{}.history.{index}.>", self.prefix)
    }

    /// The histories of one workflow's runs in one stream.
    #[must_use]
    pub fn history_of(&self, index: u64, workflow: &str) -> String {
        format!("{}.history.{index}.{}.*", self.prefix, token(workflow))
    }

    /// Subject of one run's history.
    #[must_use]
    pub fn history(&self, run: &RunId) -> String {
        format!(
            "{}.history.{}.{}.{}",
            self.prefix,
            history_stream_of(run),
            token(run.workflow()),
            token(run.key())
        )
    }

    /// Name of the inbox stream.
    #[must_use]
    pub fn inbox_stream(&self) -> String {
        format!("{}-inbox2", self.prefix)
    }

    /// Every subject of the inbox stream.
    #[must_use]
    pub fn inbox_all(&self) -> String {
        format!("{}.inbox2.>", self.prefix)
    }

    /// Subject of a message: `inbox2.<partition>.<origin>.<kind>.<workflow>.<run>.<identity>`.
    #[must_use]
    pub fn message(&self, origin: Origin, address: &Address) -> String {
        format!(
            "{}.inbox2.{}.{}.{}.{}.{}.{}",
            self.prefix,
            partition_of(&address.run),
            origin.as_str(),
            address.kind.as_str(),
            token(address.run.workflow()),
            token(address.run.key()),
            address.identity
        )
    }

    /// Origin and address that the subject of a message spells. `None`: [`Names::message`] of this build did not write
    /// it.
    #[must_use]
    pub fn address_of(&self, subject: &str) -> Option<(Origin, Address)> {
        let mut tokens = subject.strip_prefix(&self.prefix)?.split('.');
        if (tokens.next()?, tokens.next()?) != ("", "inbox2") {
            return None;
        }
        let partition = tokens.next()?;
        let origin = tokens.next()?;
        let kind = tokens.next()?;
        let run = RunId::new(&text(tokens.next()?)?, &text(tokens.next()?)?).ok()?;
        let identity = tokens.next()?.to_owned();
        if tokens.next().is_some() || partition != partition_of(&run).to_string() {
            return None;
        }
        let origin = Origin::ALL.into_iter().find(|it| it.as_str() == origin)?;
        let kind = Kind::ALL.into_iter().find(|it| it.as_str() == kind)?;
        let address = Address {
            run,
            kind,
            identity,
        };
        Some((origin, address))
    }

    /// Name of the inbox stream of builds before the partitions. Engines read it while it exists.
    #[must_use]
    pub fn old_inbox_stream(&self) -> String {
        format!("{}-inbox", self.prefix)
    }

    /// Every subject of the old inbox stream.
    #[must_use]
    pub fn old_inbox_all(&self) -> String {
        format!("{}.inbox.>", self.prefix)
    }

    /// Subject of the old inbox stream's marker.
    #[must_use]
    pub fn old_inbox_marker(&self) -> String {
        format!("{}.inbox.canary", self.prefix)
    }

    /// Filter of consumers on the old inbox stream: its messages without the marker.
    #[must_use]
    pub fn old_inbox_messages(&self) -> String {
        format!("{}.inbox.*.*", self.prefix)
    }

    /// Name of the task stream.
    #[must_use]
    pub fn task_stream(&self) -> String {
        format!("{}-tasks", self.prefix)
    }

    /// Subjects of the task stream: those of each class that a role reads, and the marker's. Other orders find no stream,
    /// so that they cannot stay in it.
    fn task_subjects(&self) -> Vec<String> {
        let read = CLASSES.into_iter().chain([DEFAULT_CLASS]);
        let read = read.map(|class| format!("{}.>", self.tasks(class)));
        read.chain([self.markers()[1].1.clone()]).collect()
    }

    /// Subject of orders of one class (`host`: SSH work, `api`: Kubernetes work, `approve`: certificates).
    #[must_use]
    pub fn tasks(&self, class: &str) -> String {
        format!("{}.tasks.{}", self.prefix, token(class))
    }

    /// Name of the alarm stream. It holds schedules and due timers, because a schedule's target must be in its own
    /// stream.
    #[must_use]
    pub fn alarm_stream(&self) -> String {
        format!("{}-alarms", self.prefix)
    }

    /// Subject of one run's schedule.
    #[must_use]
    pub fn alarm(&self, run: &RunId) -> String {
        format!(
            "{}.alarms.at.{}.{}",
            self.prefix,
            token(run.workflow()),
            token(run.key())
        )
    }

    /// Every schedule.
    #[must_use]
    pub fn alarm_all(&self) -> String {
        format!("{}.alarms.at.>", self.prefix)
    }

    /// Subject of one run's due timer.
    #[must_use]
    pub fn timer_due(&self, run: &RunId) -> String {
        format!(
            "{}.alarms.ring.{}.{}",
            self.prefix,
            token(run.workflow()),
            token(run.key())
        )
    }

    /// Subject of all due timers.
    #[must_use]
    pub fn all_timers_due(&self) -> String {
        format!("{}.alarms.ring.>", self.prefix)
    }

    /// Name of the dead-letter stream.
    #[must_use]
    pub fn dead_stream(&self) -> String {
        format!("{}-dead", self.prefix)
    }

    /// Every dead letter.
    #[must_use]
    pub fn dead_all(&self) -> String {
        format!("{}.dead.>", self.prefix)
    }

    /// Subject of dead letters of one run.
    #[must_use]
    pub fn dead(&self, run: &RunId) -> String {
        format!(
            "{}.dead.{}.{}",
            self.prefix,
            token(run.workflow()),
            token(run.key())
        )
    }

    /// Name of the stream of the store's identity: incarnation, numbers of streams and partitions, epoch, whole streams.
    #[must_use]
    pub fn meta_stream(&self) -> String {
        format!("{}-meta", self.prefix)
    }

    /// Every subject of the identity stream.
    #[must_use]
    pub fn meta_all(&self) -> String {
        format!("{}.meta.>", self.prefix)
    }

    /// Subject of one key of the store's identity.
    #[must_use]
    pub fn meta(&self, word: &str) -> String {
        format!("{}.meta.{}", self.prefix, token(word))
    }

    /// Subject of the note about one quarantined run. It lies in the identity stream, which holds one message for each
    /// subject.
    #[must_use]
    pub fn quarantine(&self, run: &RunId) -> String {
        format!(
            "{}.meta.quarantine.{}.{}",
            self.prefix,
            token(run.workflow()),
            token(run.key())
        )
    }

    /// Subjects of the notes about all quarantined runs.
    #[must_use]
    pub fn quarantine_all(&self) -> String {
        format!("{}.meta.quarantine.>", self.prefix)
    }

    /// Name of the stream of changes: the last state of each run, for external readers.
    #[must_use]
    pub fn changes_stream(&self) -> String {
        format!("{}-changes", self.prefix)
    }

    /// Every subject of the stream of changes. The version is that of the bodies, as in the API's addresses.
    #[must_use]
    pub fn changes_all(&self) -> String {
        format!("{}.changes.v1.>", self.prefix)
    }

    /// Subject of one run's last state.
    #[must_use]
    pub fn change(&self, run: &RunId) -> String {
        format!(
            "{}.changes.v1.{}.{}",
            self.prefix,
            token(run.workflow()),
            token(run.key())
        )
    }

    /// Plain (not stored) subject of one worker's receipts.
    #[must_use]
    pub fn receipts(&self, worker: &str) -> String {
        format!("{}.receipts.{}", self.prefix, token(worker))
    }

    /// Plain (not stored) subject of heartbeats, for processes that show progress.
    #[must_use]
    pub fn heartbeats(&self) -> String {
        format!("{}.heartbeats", self.prefix)
    }

    /// Subjects of the inbox stream: those that an engine reads, and the marker's. A message to any other subject finds
    /// no stream, so that it can neither fill this one nor stay in it.
    fn inbox_subjects(&self) -> Vec<String> {
        let read = (0..PARTITIONS).map(|partition| self.inbox_partition(partition));
        read.chain([self.markers()[0].1.clone()]).collect()
    }

    /// Filter of the consumer of one partition.
    #[must_use]
    pub fn inbox_partition(&self, partition: u64) -> String {
        format!("{}.inbox2.{partition}.*.*.*.*.*", self.prefix)
    }

    /// Plain (not stored) subject of the engines' heartbeats to each other.
    #[must_use]
    pub fn engines(&self) -> String {
        format!("{}.engines", self.prefix)
    }

    /// Subject of one order. The stream holds at most one message per subject, so an attempt that is published again
    /// while its first order exists stays one order.
    #[must_use]
    pub fn order(&self, class: &str, task: &TaskId, attempt: Attempt) -> String {
        format!(
            "{}.{}.{attempt}",
            self.tasks(class),
            token(&task.to_string())
        )
    }

    /// Filter of the orders of one task, of whatever attempt.
    #[must_use]
    pub fn orders_of(&self, class: &str, task: &TaskId) -> String {
        format!("{}.{}.*", self.tasks(class), token(&task.to_string()))
    }

    /// Filter of a worker's consumer: every order of one class.
    #[must_use]
    pub fn orders(&self, class: &str) -> String {
        format!("{}.>", self.tasks(class))
    }

    /// Subjects of the markers, by which the loss of a rebuildable stream is detected. Each is in the memory of its
    /// stream, is never consumed, and disappears when the stream is recreated or emptied. A stream whose marker is not on
    /// record at [`META_WHOLE`] is not rebuilt yet.
    #[must_use]
    pub fn markers(&self) -> [(String, String); 3] {
        [
            (
                self.inbox_stream(),
                format!("{}.inbox2.canary", self.prefix),
            ),
            (self.task_stream(), format!("{}.tasks.canary", self.prefix)),
            (
                self.alarm_stream(),
                format!("{}.alarms.canary", self.prefix),
            ),
        ]
    }

    /// Every stream of a store, with its settings.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamSpec> {
        let spec = |name: String, subjects: Vec<String>| StreamSpec {
            name,
            subjects,
            in_memory: false,
            work_queue: false,
            per_subject_max: -1,
            messages_max: -1,
            bytes_max: -1,
            refuse_when_full: false,
            replaces: false,
            schedules: false,
            expires: false,
        };
        let queue = |name: String, subjects: Vec<String>| StreamSpec {
            in_memory: true,
            work_queue: true,
            ..spec(name, subjects)
        };
        let mut streams: Vec<StreamSpec> = (0..HISTORY_STREAMS)
            .map(|index| StreamSpec {
                per_subject_max: RECORDS_PER_RUN_MAX,
                ..spec(self.history_stream(index), vec![self.history_all(index)])
            })
            .collect();
        streams.push(StreamSpec {
            per_subject_max: 1,
            bytes_max: INBOX_BYTES_MAX,
            refuse_when_full: true,
            replaces: true,
            ..queue(self.inbox_stream(), self.inbox_subjects())
        });
        streams.push(StreamSpec {
            per_subject_max: 1,
            refuse_when_full: true,
            ..queue(self.task_stream(), self.task_subjects())
        });
        let alarms = vec![
            self.alarm_all(),
            self.all_timers_due(),
            self.markers()[2].1.clone(),
        ];
        streams.push(StreamSpec {
            schedules: true,
            ..queue(self.alarm_stream(), alarms)
        });
        streams.push(StreamSpec {
            messages_max: DEAD_LETTERS_MAX,
            refuse_when_full: true,
            ..spec(self.dead_stream(), vec![self.dead_all()])
        });
        streams.push(StreamSpec {
            per_subject_max: 1,
            ..spec(self.meta_stream(), vec![self.meta_all()])
        });
        streams.push(StreamSpec {
            in_memory: true,
            per_subject_max: 1,
            bytes_max: CHANGES_BYTES_MAX,
            expires: true,
            ..spec(self.changes_stream(), vec![self.changes_all()])
        });
        streams
    }

    /// The run that a subject's last two tokens name, as in [`Names::history`] and [`Names::timer_due`].
    #[must_use]
    pub fn run_of(subject: &str) -> Option<RunId> {
        let mut tokens = subject.rsplit('.');
        let key = tokens.next()?;
        let workflow = tokens.next()?;
        RunId::new(&text(workflow)?, &text(key)?).ok()
    }
}

/// Index of the history stream of `run`.
#[must_use]
pub fn history_stream_of(run: &RunId) -> u64 {
    hash64(run.as_str().as_bytes()) % HISTORY_STREAMS
}

/// Partition of `run` in the inbox.
#[must_use]
pub fn partition_of(run: &RunId) -> u64 {
    hash64(run.as_str().as_bytes()) % PARTITIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_one_token_and_back() {
        for name in ["win-1", "a.b.c", "*>", "日本", "", "x=y z"] {
            let one = token(name);
            assert!(!one.contains(['.', '*', '>', ' ']), "{one}");
            assert_eq!(text(&one).as_deref(), Some(name));
        }
        assert_eq!(text("=4"), None);
        assert_eq!(text("=ZZ"), None);
    }

    #[test]
    fn a_subject_names_its_run() {
        let run = RunId::new("machine", "ns/web.1").unwrap();
        let names = Names::default();
        for subject in [
            names.history(&run),
            names.timer_due(&run),
            names.dead(&run),
            names.quarantine(&run),
            names.change(&run),
        ] {
            assert_eq!(Names::run_of(&subject), Some(run.clone()), "{subject}");
        }
    }

    /// Engines of several builds, and the permissions of a server, rely on these names.
    #[test]
    fn a_subject_spells_the_address_of_its_message() {
        let names = Names::with_prefix("x.y");
        let run = RunId::new("machine", "ns/web.1").unwrap();
        assert_eq!((history_stream_of(&run), partition_of(&run)), (0, 8));
        for kind in Kind::ALL {
            for origin in Origin::ALL {
                let address = Address {
                    run: run.clone(),
                    kind,
                    identity: token("a.b"),
                };
                let subject = names.message(origin, &address);
                assert_eq!(
                    subject,
                    format!(
                        "x=2Ey.inbox2.8.{}.{}.machine.ns=2Fweb=2E1.a=2Eb",
                        origin.as_str(),
                        kind.as_str()
                    )
                );
                assert_eq!(names.address_of(&subject), Some((origin, address)));
            }
        }
        for foreign in [
            "x=2Ey.inbox2.canary",
            "x=2Ey.inbox.machine.a",
            "other.inbox2.8.engine.timer.machine.ns=2Fweb=2E1.due",
            "x=2Ey.inbox2.9.engine.timer.machine.ns=2Fweb=2E1.due",
            "x=2Ey.inbox2.8.nobody.timer.machine.ns=2Fweb=2E1.due",
            "x=2Ey.inbox2.8.engine.rumour.machine.ns=2Fweb=2E1.due",
            "x=2Ey.inbox2.8.engine.timer.machine.ns=2Fweb=2E1.due.more",
        ] {
            assert_eq!(names.address_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_run_keeps_its_partition_and_a_partition_its_history_stream() {
        let runs = (0..10_000).map(|n| RunId::new("machine", &format!("m-{n}")).unwrap());
        let mut sizes = [0_u32; 64];
        for run in runs {
            let partition = partition_of(&run);
            assert_eq!(partition % HISTORY_STREAMS, history_stream_of(&run));
            sizes[usize::try_from(partition).unwrap()] += 1;
        }
        assert!(
            sizes.iter().all(|size| (100..220).contains(size)),
            "{sizes:?}"
        );
    }

    #[test]
    fn the_identity_of_an_earlier_build_is_read() {
        #[derive(Serialize)]
        struct Earlier {
            incarnation: u64,
            shards: u64,
        }
        let earlier = Earlier {
            incarnation: 7,
            shards: 4,
        };
        let bytes = rmp_serde::to_vec_named(&earlier).unwrap();
        let read: Identity = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!((read.history_streams, read.partitions), (4, 64));
    }

    #[test]
    fn a_full_inbox_refuses_and_a_repeat_replaces() {
        let names = Names::default();
        let streams = names.streams();
        let inbox = streams.iter().find(|it| it.name == "dormer-inbox2");
        let inbox = inbox.expect("a stream");
        assert_eq!((inbox.per_subject_max, inbox.bytes_max), (1, 256 << 20));
        assert!(inbox.refuse_when_full && inbox.replaces && inbox.work_queue);
        let old = streams.iter().any(|it| it.name == names.old_inbox_stream());
        assert!(!old, "nobody creates it any more");
    }

    /// External readers rely on these names: docs/changes.md.
    #[test]
    fn the_stream_of_changes_is_called_as_its_document_says() {
        let run = RunId::new("machine", "ns/web.1").unwrap();
        let names = Names::default();
        assert_eq!(names.changes_stream(), "dormer-changes");
        assert_eq!(names.change(&run), "dormer.changes.v1.machine.ns=2Fweb=2E1");
        let streams = names.streams();
        let changes = streams
            .iter()
            .find(|it| it.name == "dormer-changes")
            .expect("a stream");
        assert_eq!(changes.subjects, ["dormer.changes.v1.>"]);
        assert!(!changes.work_queue, "a reader takes nothing away");
        assert!(!changes.refuse_when_full, "a full stream does not stop");
        assert_eq!((changes.per_subject_max, changes.bytes_max), (1, 128 << 20));
    }
}
