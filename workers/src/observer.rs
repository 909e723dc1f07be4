//! Observer of a worker, for metrics, logs and traces. It never receives the content of commands, files or output,
//! which may hold secrets.

use dormer_proto::{
    id::{Attempt, Seq, TaskId},
    machine::Outcome,
    message::Failure,
    work::Order,
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

tokio::task_local! {
    static DOING: CurrentAttempt;
}

/// The attempt that an operation belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRef {
    pub task: TaskId,
    pub attempt: Attempt,
    /// The episode that the task belongs to.
    pub episode: Seq,
    /// The task's name: `probe`, `converge-host`.
    pub name: &'static str,
    /// The worker's name.
    pub worker: String,
}

/// Operation of an attempt on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Connected and logged in.
    Connect,
    /// Ran a remote command to its end.
    Command,
    /// Sent a file of so many bytes.
    Upload {
        /// Length of the file.
        bytes: u64,
    },
}

impl Operation {
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

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationEnd {
    /// Success.
    Done,
    Failed,
    /// It was cancelled: by a limit, a newer attempt, or the end of the worker.
    CutOff,
}

impl OperationEnd {
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

/// Observer of a worker's actions.
///
/// # Contract
///
/// An implementation returns at once, never blocks and never fails.
pub trait WorkerObserver: Send + Sync + 'static {
    /// An attempt begins here.
    fn began(&self, at: &AttemptRef, order: &Order);
    /// An attempt has ended after `took` and will be reported. `None`: it was cancelled, and another worker will take
    /// its order.
    fn ended(&self, at: &AttemptRef, took: Duration, result: Option<&Result<Outcome, Failure>>);
    /// An attempt did something.
    fn operation_ended(
        &self,
        at: &AttemptRef,
        operation: Operation,
        took: Duration,
        end: OperationEnd,
    );
    /// The number of connections to hosts changed by `by`.
    fn connections(&self, by: i64);
}

/// Optional observer.
#[derive(Clone, Default)]
pub struct ObserverHandle(Option<Arc<dyn WorkerObserver>>);

impl ObserverHandle {
    /// By this one.
    #[must_use]
    pub fn by(observer: Arc<dyn WorkerObserver>) -> Self {
        Self(Some(observer))
    }
}

impl fmt::Debug for ObserverHandle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(if self.0.is_some() {
            "Observed"
        } else {
            "Unobserved"
        })
    }
}

/// Attempt of the current async task, with its observer.
#[derive(Clone)]
struct CurrentAttempt {
    at: Arc<AttemptRef>,
    observer: Arc<dyn WorkerObserver>,
}

/// Guard of a running attempt. If dropped before [`AttemptGuard::ended`], it reports a cancelled attempt.
pub(crate) struct AttemptGuard {
    current: Option<CurrentAttempt>,
    begun: Instant,
}

impl AttemptGuard {
    /// Begins one.
    pub(crate) fn begin(observer: &ObserverHandle, order: &Order, worker: &str) -> Self {
        let current = observer.0.as_ref().map(|observer| {
            let at = AttemptRef {
                task: order.task.clone(),
                attempt: order.attempt,
                episode: order.episode,
                name: order.body.name(),
                worker: worker.to_owned(),
            };
            observer.began(&at, order);
            CurrentAttempt {
                at: Arc::new(at),
                observer: Arc::clone(observer),
            }
        });
        Self {
            current,
            begun: Instant::now(),
        }
    }

    /// Runs `work` as part of this attempt.
    pub(crate) async fn scope<T>(&self, work: impl Future<Output = T>) -> T {
        match &self.current {
            Some(current) => DOING.scope(current.clone(), work).await,
            None => work.await,
        }
    }

    /// Reports the end of the attempt with its result.
    pub(crate) fn ended(mut self, result: &Result<Outcome, Failure>) {
        if let Some(CurrentAttempt { at, observer }) = self.current.take() {
            observer.ended(&at, self.begun.elapsed(), Some(result));
        }
    }
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        if let Some(CurrentAttempt { at, observer }) = self.current.take() {
            observer.ended(&at, self.begun.elapsed(), None);
        }
    }
}

/// Guard of a running operation. If dropped before its end, it reports a cancelled operation.
pub(crate) struct OperationGuard {
    current: Option<CurrentAttempt>,
    operation: Operation,
    begun: Instant,
}

/// Begins an operation of the attempt that this async task works on.
pub(crate) fn begin(operation: Operation) -> OperationGuard {
    OperationGuard {
        current: DOING.try_with(CurrentAttempt::clone).ok(),
        operation,
        begun: Instant::now(),
    }
}

impl OperationGuard {
    /// Reports the end, and returns the result.
    pub(crate) fn ended<T, E>(mut self, result: Result<T, E>) -> Result<T, E> {
        self.report_end(if result.is_ok() {
            OperationEnd::Done
        } else {
            OperationEnd::Failed
        });
        result
    }

    fn report_end(&mut self, end: OperationEnd) {
        if let Some(CurrentAttempt { at, observer }) = self.current.take() {
            observer.operation_ended(&at, self.operation, self.begun.elapsed(), end);
        }
    }
}

impl Drop for OperationGuard {
    fn drop(&mut self) {
        self.report_end(OperationEnd::CutOff);
    }
}

/// Connection to a host, counted while it exists.
pub(crate) struct CountedConnection(Option<Arc<dyn WorkerObserver>>);

impl CountedConnection {
    /// Counts a connection that the present attempt made.
    pub(crate) fn begin() -> Self {
        let observer = DOING.try_with(|current| Arc::clone(&current.observer)).ok();
        if let Some(observer) = &observer {
            observer.connections(1);
        }
        Self(observer)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        if let Some(observer) = &self.0 {
            observer.connections(-1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::{
        id::{Incarnation, Sum, Timestamp},
        lock::Locked as _,
        machine::{HostRef, Task},
        work::machine_run,
    };
    use std::sync::Mutex;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl Recorder {
        fn note(&self, what: String) {
            self.0.locked().push(what);
        }
    }

    impl WorkerObserver for Recorder {
        fn began(&self, at: &AttemptRef, _: &Order) {
            self.note(format!("began {}", at.name));
        }
        fn ended(&self, _: &AttemptRef, _: Duration, result: Option<&Result<Outcome, Failure>>) {
            self.note(format!("ended {:?}", result.map(Result::is_ok)));
        }
        fn operation_ended(
            &self,
            _: &AttemptRef,
            operation: Operation,
            _: Duration,
            end: OperationEnd,
        ) {
            self.note(format!("{} {}", operation.name(), end.name()));
        }
        fn connections(&self, by: i64) {
            self.note(format!("connections {by:+}"));
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
    async fn an_attempt_and_its_operations_are_observed_even_when_cut_off() {
        let ear = Arc::new(Recorder::default());
        let observer = ObserverHandle::by(ear.clone());
        let order = probe();
        drop(begin(Operation::Command));
        let attempting = AttemptGuard::begin(&observer, &order, "w");
        attempting
            .scope(async {
                let connection = CountedConnection::begin();
                assert_eq!(begin(Operation::Connect).ended(Ok::<_, ()>(7)), Ok(7));
                assert_eq!(
                    begin(Operation::Command).ended(Err::<(), _>("no")),
                    Err("no")
                );
                drop(begin(Operation::Upload { bytes: 3 }));
                drop(connection);
            })
            .await;
        drop(attempting);
        let calls = ear.0.locked().join(", ");
        let expected = "began probe, connections +1, connect done, command failed, upload cut_off, \
                        connections -1, ended None";
        assert_eq!(calls, expected);
    }
}
