//! Address of an inbox message: who sends it, of which kind it is, for which run, and which earlier message of its
//! sender it replaces.
//!
//! The inbox holds one message for each address. A repeat replaces its predecessor and so cannot pile up. A subject of
//! NATS spells the address, so that a server's permissions can narrow what each role may send.

use crate::{
    envelope,
    id::{RunId, SignalId, hash64},
    message::{Inbound, InboxMessage, Reporter},
    token::token,
};
use serde::de::IgnoredAny;

/// Longest name in an identity, in bytes. A longer one is replaced by its hash.
const IDENTITY_BYTES_MAX: usize = 128;

/// Role that sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Origin {
    #[default]
    Engine,
    Worker,
    Approver,
    Watcher,
    /// A console, with the API.
    Console,
    /// A command without a running dormer, such as the bench.
    Cli,
}

impl Origin {
    /// Every origin.
    pub const ALL: [Self; 6] = [
        Self::Engine,
        Self::Worker,
        Self::Approver,
        Self::Watcher,
        Self::Console,
        Self::Cli,
    ];

    /// Its token in a subject.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Worker => "worker",
            Self::Approver => "approver",
            Self::Watcher => "watcher",
            Self::Console => "console",
            Self::Cli => "cli",
        }
    }

    /// Whether an engine takes messages of this kind from this origin. Engines and consoles also put dead letters back,
    /// which are of any kind.
    #[must_use]
    pub fn may_send(self, kind: Kind) -> bool {
        match self {
            Self::Engine | Self::Console | Self::Cli => true,
            Self::Worker => matches!(kind, Kind::Report | Kind::Other),
            Self::Approver => matches!(kind, Kind::Approval | Kind::Other),
            Self::Watcher => matches!(kind, Kind::Fact | Kind::Other),
        }
    }

    /// Whether an engine takes messages of this kind with a signature of this origin. It is narrower than
    /// [`Origin::may_send`]: a console's key does not make reports or facts.
    #[must_use]
    pub fn may_sign(self, kind: Kind) -> bool {
        match self {
            Self::Engine => true,
            // What cannot be read waits for a newer build. Only engines may make others wait.
            Self::Console => kind == Kind::Request,
            Self::Worker | Self::Approver | Self::Watcher => {
                kind != Kind::Other && self.may_send(kind)
            }
            Self::Cli => false,
        }
    }
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A due timer.
    Timer,
    /// A fact about an object.
    Fact,
    /// Another run's signal.
    Signal,
    /// The answer to a signal.
    Answer,
    /// A worker's report.
    Report,
    /// An approver's report.
    Approval,
    /// A person's request.
    Request,
    /// A message that this build cannot read.
    Other,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Timer,
        Self::Fact,
        Self::Signal,
        Self::Answer,
        Self::Report,
        Self::Approval,
        Self::Request,
        Self::Other,
    ];

    /// Its token in a subject.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Fact => "fact",
            Self::Signal => "signal",
            Self::Answer => "answer",
            Self::Report => "report",
            Self::Approval => "approval",
            Self::Request => "request",
            Self::Other => "other",
        }
    }
}

/// Address of an inbox message, without its origin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    pub run: RunId,
    pub kind: Kind,
    /// Which of its kind: an object, a sender's signal, its answer, a task's attempt, a request. It is a token.
    pub identity: String,
}

impl Address {
    #[must_use]
    pub fn of<F, O, S>(message: &InboxMessage<F, O, S>) -> Self {
        let (kind, identity) = match &message.body {
            Inbound::TimerDue => (Kind::Timer, "due".to_owned()),
            Inbound::Observed(observation) => {
                let object = &observation.object;
                let name = format!("{}/{}/{}", object.cluster, object.kind, object.uid);
                (Kind::Fact, bounded(&name))
            }
            // The signal's id is part of it: a signal that replaced an older one is never repeated. A sender has at most
            // one signal in flight to each receiver, so the inbox stays small.
            Inbound::Signalled(signal) => (Kind::Signal, numbered(&signal.from, signal.id)),
            Inbound::Answered(answer) => (Kind::Answer, numbered(&answer.from, answer.id)),
            Inbound::Reported(report) => {
                let task = &report.task;
                let name = format!("{}-{}-{}", task.seq, task.ordinal, report.attempt);
                let kind = match report.by {
                    Reporter::Worker => Kind::Report,
                    Reporter::Approver => Kind::Approval,
                };
                (kind, name)
            }
            Inbound::Requested(request) => (Kind::Request, bounded(&request.id)),
        };
        Self {
            run: message.run.clone(),
            kind,
            identity,
        }
    }

    /// Address of an encoded message, of whatever workflow and schema. `None`: this build cannot read it.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        type AnyMessage = InboxMessage<IgnoredAny, IgnoredAny, IgnoredAny>;
        let (message, _) = envelope::decode::<AnyMessage>(bytes, u16::MAX).ok()?;
        Some(Self::of(&message))
    }

    /// Address of an encoded message for `run`. One that this build cannot read is replaced by an equal one only.
    #[must_use]
    pub fn of_bytes(run: &RunId, bytes: &[u8]) -> Self {
        let read = Self::read(bytes).filter(|address| address.run == *run);
        read.unwrap_or_else(|| Self {
            run: run.clone(),
            kind: Kind::Other,
            identity: format!("{:016x}", hash64(bytes)),
        })
    }
}

/// Identity of a signal, or of its answer, of this run.
fn numbered(from: &RunId, id: SignalId) -> String {
    format!("{}~{}-{}", bounded(from.as_str()), id.seq, id.ordinal)
}

/// Token of limited length for any text.
fn bounded(text: &str) -> String {
    let whole = token(text);
    if whole.is_empty() || whole.len() > IDENTITY_BYTES_MAX {
        // No token of a text contains this sign.
        return format!("~{:016x}", hash64(text.as_bytes()));
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::{Attempt, Epoch, Incarnation, Seq, Sum, TaskId},
        message::{
            Ask, ObjectRef, Observation, Request, SignalAnswer, Signalled, TaskReport, Version,
        },
    };

    type Body = Inbound<u32, u32, u32>;

    fn run(key: &str) -> RunId {
        RunId::new("machine", key).unwrap()
    }

    fn message(body: Body) -> InboxMessage<u32, u32, u32> {
        InboxMessage {
            run: run("a.b"),
            incarnation: Some(Incarnation(1)),
            body,
        }
    }

    fn fact(uid: &str, resource: u64) -> Body {
        Inbound::Observed(Observation {
            object: ObjectRef {
                cluster: String::new(),
                kind: "Node".into(),
                uid: uid.into(),
            },
            version: Version {
                epoch: Epoch(1),
                resource,
            },
            fact: Some(7),
            may_start: true,
        })
    }

    fn report(seq: u64, attempt: u64) -> Body {
        Inbound::Reported(TaskReport {
            task: TaskId {
                run: run("a.b"),
                seq: Seq(seq),
                ordinal: 2,
            },
            attempt: Attempt(attempt),
            issued: Sum(9),
            worker: "w".into(),
            by: Reporter::Worker,
            result: Ok(1),
        })
    }

    fn approval() -> Body {
        let Inbound::Reported(report) = report(12, 3) else {
            unreachable!("a report is a report");
        };
        Inbound::Reported(TaskReport {
            by: Reporter::Approver,
            ..report
        })
    }

    fn request(id: &str) -> Body {
        Inbound::Requested(Request {
            id: id.into(),
            who: "ada".into(),
            why: String::new(),
            against: Seq(0),
            ask: Ask::Signal(3),
        })
    }

    fn signal(from: &str, seq: u64) -> Body {
        let id = SignalId {
            seq: Seq(seq),
            ordinal: 0,
        };
        Inbound::Signalled(Signalled {
            from: run(from),
            id,
            issued: Sum(1),
            signal: 4,
        })
    }

    fn answer(from: &str) -> Body {
        Inbound::Answered(SignalAnswer {
            from: run(from),
            id: SignalId::default(),
            issued: Sum(1),
            refused: None,
            behind: None,
        })
    }

    #[test]
    fn each_kind_has_an_identity_of_its_own() {
        for (body, kind, identity) in [
            (Inbound::TimerDue, Kind::Timer, "due"),
            (fact("u-1", 5), Kind::Fact, "=2FNode=2Fu-1"),
            (signal("b", 3), Kind::Signal, "machine=2Fb~3-0"),
            (answer("b"), Kind::Answer, "machine=2Fb~0-0"),
            (report(12, 3), Kind::Report, "12-2-3"),
            (approval(), Kind::Approval, "12-2-3"),
            (request("r.1"), Kind::Request, "r=2E1"),
        ] {
            let message = message(body);
            let address = Address::of(&message);
            assert_eq!((address.kind, address.identity.as_str()), (kind, identity));
            let (bytes, _) = envelope::encode(&message, 40_000).unwrap();
            assert_eq!(Address::read(&bytes), Some(address), "whatever its schema");
        }
    }

    #[test]
    fn a_repeat_has_the_address_of_what_it_repeats_and_nothing_else_has() {
        let of = |body| Address::of(&message(body));
        assert_eq!(of(fact("u", 5)), of(fact("u", 6)));
        assert_eq!(of(signal("b", 3)), of(signal("b", 3)));
        assert_ne!(of(signal("b", 3)), of(signal("b", 4)));
        assert_ne!(of(fact("u", 5)), of(fact("v", 5)));
        assert_ne!(of(signal("b", 3)), of(signal("c", 3)));
        assert_ne!(of(signal("b", 3)), of(answer("b")));
        assert_ne!(of(report(1, 1)), of(report(1, 2)));
        assert_ne!(of(request("1")), of(request("2")));
        let long = |end: &str| of(request(&("x".repeat(500) + end)));
        assert_ne!(long("1"), long("2"));
        assert!(long("1").identity.len() <= IDENTITY_BYTES_MAX);
        assert!(!of(request("")).identity.is_empty());
    }

    #[test]
    fn what_cannot_be_read_replaces_only_its_equal() {
        let of = |bytes: &[u8]| Address::of_bytes(&run("a.b"), bytes);
        assert_eq!(of(b"x").kind, Kind::Other);
        assert_eq!(of(b"x"), of(b"x"));
        assert_ne!(of(b"x"), of(b"y"));
        let (bytes, _) = envelope::encode(&message(Inbound::TimerDue), 1).unwrap();
        let other = Address::of_bytes(&run("other"), &bytes);
        assert_eq!((other.run, other.kind), (run("other"), Kind::Other));
    }

    #[test]
    fn each_role_sends_its_own_kind() {
        for kind in Kind::ALL {
            let readable = kind != Kind::Other;
            let report = kind == Kind::Report;
            let fact = kind == Kind::Fact;
            assert_eq!(Origin::Worker.may_send(kind), report || !readable);
            assert_eq!(Origin::Watcher.may_send(kind), fact || !readable);
            assert_eq!(Origin::Worker.may_sign(kind), report);
            let approval = kind == Kind::Approval;
            assert_eq!(Origin::Approver.may_send(kind), approval || !readable);
            assert_eq!(Origin::Approver.may_sign(kind), approval);
            assert_eq!(Origin::Watcher.may_sign(kind), fact);
            let request = kind == Kind::Request;
            assert_eq!(Origin::Console.may_sign(kind), request);
            assert!(Origin::Engine.may_sign(kind) && !Origin::Cli.may_sign(kind));
        }
    }
}
