//! The witness: told what a worker did, for metrics, logs and traces. It never hears what was sent or said: commands
//! and files may hold secrets.

use dormer_proto::{
    id::{Attempt, Seq, TaskId},
    machine::Outcome,
    message::Failure,
    work::Order,
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

tokio::task_local! {
    static DOING: Doing;
}

/// The attempt that a deed belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Which task.
    pub task: TaskId,
    /// Which attempt.
    pub attempt: Attempt,
    /// The episode that the task belongs to.
    pub episode: Seq,
    /// The task's name: `probe`, `converge-host`.
    pub name: &'static str,
    /// The worker's name.
    pub worker: String,
}

/// Something that an attempt did on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Connected and logged in.
    Connect,
    /// Ran a remote command to its end.
    Command,
    /// Sent a file of so many bytes.
    Upload {
        /// Its size.
        bytes: u64,
    },
}

impl Deed {
    /// Its name, for metrics and traces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Command => "command",
            Self::Upload { .. } => "upload",
        }
    }
}

/// How a deed ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Done,
    /// It failed.
    Failed,
    /// It was dropped in the middle: a limit, a newer attempt, the worker's end.
    CutOff,
}

impl End {
    /// Its name, for metrics and traces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::CutOff => "cut_off",
        }
    }
}

/// Who is told what a worker did.
///
/// # Contract
/// An implementation answers at once, never blocks, never fails.
pub trait Witness: Send + Sync + 'static {
    /// An attempt begins here.
    fn began(&self, at: &At, order: &Order);
    /// An attempt has ended after `took`, and is about to be reported. `None`: it was dropped, another worker will
    /// take its order.
    fn ended(&self, at: &At, took: Duration, result: Option<&Result<Outcome, Failure>>);
    /// An attempt did something.
    fn did(&self, at: &At, deed: Deed, took: Duration, end: End);
    /// The number of connections to hosts changed by `by`.
    fn connections(&self, by: i64);
}

/// A witness, or nobody.
#[derive(Clone, Default)]
pub struct Seen(Option<Arc<dyn Witness>>);

impl Seen {
    /// By this one.
    #[must_use]
    pub fn by(witness: Arc<dyn Witness>) -> Self {
        Self(Some(witness))
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(if self.0.is_some() { "Seen" } else { "Unseen" })
    }
}

/// The attempt that the present async task works on, and who is told of it.
#[derive(Clone)]
struct Doing {
    at: Arc<At>,
    witness: Arc<dyn Witness>,
}

/// An attempt while it goes on here. Dropped before [`Attempting::ended`], it tells that it was cut off.
pub(crate) struct Attempting {
    doing: Option<Doing>,
    begun: Instant,
}

impl Attempting {
    /// Begins one.
    pub(crate) fn begin(seen: &Seen, order: &Order, worker: &str) -> Self {
        let doing = seen.0.as_ref().map(|witness| {
            let at = At {
                task: order.task.clone(),
                attempt: order.attempt,
                episode: order.episode,
                name: order.body.name(),
                worker: worker.to_owned(),
            };
            witness.began(&at, order);
            Doing {
                at: Arc::new(at),
                witness: Arc::clone(witness),
            }
        });
        Self {
            doing,
            begun: Instant::now(),
        }
    }

    /// What `work` does counts as this attempt's.
    pub(crate) async fn scope<T>(&self, work: impl Future<Output = T>) -> T {
        match &self.doing {
            Some(doing) => DOING.scope(doing.clone(), work).await,
            None => work.await,
        }
    }

    /// It ended so.
    pub(crate) fn ended(mut self, result: &Result<Outcome, Failure>) {
        if let Some(Doing { at, witness }) = self.doing.take() {
            witness.ended(&at, self.begun.elapsed(), Some(result));
        }
    }
}

impl Drop for Attempting {
    fn drop(&mut self) {
        if let Some(Doing { at, witness }) = self.doing.take() {
            witness.ended(&at, self.begun.elapsed(), None);
        }
    }
}

/// A deed while it goes on. Dropped before its end, it tells that it was cut off.
pub(crate) struct InHand {
    doing: Option<Doing>,
    deed: Deed,
    begun: Instant,
}

/// Begins a deed of the attempt that this async task works on.
pub(crate) fn begin(deed: Deed) -> InHand {
    InHand {
        doing: DOING.try_with(Doing::clone).ok(),
        deed,
        begun: Instant::now(),
    }
}

impl InHand {
    /// It ended so; hands the result back.
    pub(crate) fn ended<T, E>(mut self, result: Result<T, E>) -> Result<T, E> {
        self.tell(if result.is_ok() {
            End::Done
        } else {
            End::Failed
        });
        result
    }

    fn tell(&mut self, end: End) {
        if let Some(Doing { at, witness }) = self.doing.take() {
            witness.did(&at, self.deed, self.begun.elapsed(), end);
        }
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.tell(End::CutOff);
    }
}

/// One connection to a host, counted for as long as it lives.
pub(crate) struct Counted(Option<Arc<dyn Witness>>);

impl Counted {
    /// Counts a connection that the present attempt made.
    pub(crate) fn begin() -> Self {
        let witness = DOING.try_with(|doing| Arc::clone(&doing.witness)).ok();
        if let Some(witness) = &witness {
            witness.connections(1);
        }
        Self(witness)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(witness) = &self.0 {
            witness.connections(-1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::{
        id::{Incarnation, Sum, Timestamp},
        machine::{HostRef, Task},
        work::machine_run,
    };
    use std::sync::{Mutex, PoisonError};

    #[derive(Default)]
    struct Ear(Mutex<Vec<String>>);

    impl Ear {
        fn hear(&self, what: String) {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(what);
        }
    }

    impl Witness for Ear {
        fn began(&self, at: &At, _: &Order) {
            self.hear(format!("began {}", at.name));
        }
        fn ended(&self, _: &At, _: Duration, result: Option<&Result<Outcome, Failure>>) {
            self.hear(format!("ended {:?}", result.map(Result::is_ok)));
        }
        fn did(&self, _: &At, deed: Deed, _: Duration, end: End) {
            self.hear(format!("{} {}", deed.name(), end.name()));
        }
        fn connections(&self, by: i64) {
            self.hear(format!("connections {by:+}"));
        }
    }

    fn probe() -> Order {
        Order {
            task: TaskId {
                run: machine_run("u1").expect("a run"),
                seq: Seq(1),
                ordinal: 0,
            },
            attempt: Attempt(1),
            incarnation: Incarnation(1),
            issued: Sum(1),
            episode: Seq(1),
            at: Timestamp(0),
            limit_ms: 1_000,
            body: Task::Probe {
                host: HostRef::default(),
            },
        }
    }

    #[tokio::test]
    async fn an_attempt_and_its_deeds_are_told_also_when_they_are_cut_off() {
        let ear = Arc::new(Ear::default());
        let seen = Seen::by(ear.clone());
        let order = probe();
        drop(begin(Deed::Command));
        let attempting = Attempting::begin(&seen, &order, "w");
        attempting
            .scope(async {
                let connection = Counted::begin();
                assert_eq!(begin(Deed::Connect).ended(Ok::<_, ()>(7)), Ok(7));
                assert_eq!(begin(Deed::Command).ended(Err::<(), _>("no")), Err("no"));
                drop(begin(Deed::Upload { bytes: 3 }));
                drop(connection);
            })
            .await;
        drop(attempting);
        let heard = ear
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join(", ");
        let expected = "began probe, connections +1, connect done, command failed, upload cut_off, \
                        connections -1, ended None";
        assert_eq!(heard, expected);
    }
}
