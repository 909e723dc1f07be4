//! Session with a host: executes operations, names the present activity, waits by the host's clock, and reads and
//! writes small files.

use dormer_profile::answer::FailureCode;
use serde::de::DeserializeOwned;

use crate::{
    ops::{
        Answer, Ask, Clock, ClockRead, FileRead, Host, Operation, OperationRequest, Pause,
        QUICK_MS, RegistryRead, Step, Value, WinError,
    },
    problem::{Doing as _, Problem, Result},
};

/// A host in use.
pub(crate) struct Session<H> {
    host: H,
    item: String,
}

/// A wait that spans several operations.
#[derive(Debug, Clone)]
pub(crate) struct Wait {
    doing: String,
    began: u64,
    limit_ms: u64,
}

impl Wait {
    /// Extends the limit to `limit_ms` from `now`, after progress.
    pub(crate) fn extend(&mut self, now: u64, limit_ms: u64) {
        self.limit_ms = now.saturating_sub(self.began) + limit_ms;
    }
}

/// Most bytes of a file of ours that is read as a whole.
const STATE_BYTES_MAX: u64 = 4 << 20;

impl<H: Host> Session<H> {
    pub(crate) fn new(host: H) -> Self {
        Self {
            host,
            item: String::new(),
        }
    }

    /// What follows is done for this item.
    pub(crate) fn about(&mut self, item: &str) {
        item.clone_into(&mut self.item);
    }

    /// One operation.
    pub(crate) fn ask<A: Ask>(
        &mut self,
        ask: A,
    ) -> impl Future<Output = std::result::Result<A::Answer, WinError>> + Send {
        let step = self.step(A::NAME, 0, ask.limit_ms());
        self.ask_as(step, ask)
    }

    /// What differs by the operation is done outside of its wait, which there is one of for each: every host is sent this
    /// program.
    fn ask_as<A: Ask>(
        &mut self,
        step: Step,
        ask: A,
    ) -> impl Future<Output = std::result::Result<A::Answer, WinError>> + Send {
        let asked = self.perform(step, ask.operation());
        async move {
            let answer = asked.await?;
            let name = answer.name();
            A::answer(answer).ok_or_else(|| another_answer(A::NAME, name))
        }
    }

    fn step(&self, doing: &str, since_ms: u64, limit_ms: u64) -> Step {
        Step {
            item: self.item.clone(),
            doing: doing.to_owned(),
            since_ms,
            limit_ms,
        }
    }

    /// In one place, not once for each kind of operation: every host is sent this program.
    #[inline(never)]
    async fn perform(
        &mut self,
        step: Step,
        operation: Operation,
    ) -> std::result::Result<Answer, WinError> {
        self.host
            .perform(OperationRequest { step, operation })
            .await
    }

    pub(crate) async fn clock(&mut self) -> Result<Clock> {
        let clock = self.ask(ClockRead {}).await;
        clock.doing(FailureCode::Other, || "read the clock".into())
    }

    /// Begins a wait.
    pub(crate) async fn wait(&mut self, doing: impl Into<String>, limit_ms: u64) -> Result<Wait> {
        Ok(Wait {
            doing: doing.into(),
            began: self.clock().await?.tick_ms,
            limit_ms,
        })
    }

    /// Pauses; false when the wait has lasted long enough.
    pub(crate) async fn again(&mut self, wait: &Wait, pause_ms: u64) -> Result<bool> {
        let waited = self.clock().await?.tick_ms.saturating_sub(wait.began);
        if waited >= wait.limit_ms {
            return Ok(false);
        }
        let pause = Pause {
            ms: pause_ms.min(wait.limit_ms - waited).max(1),
        };
        let step = self.step(&wait.doing, wait.began, wait.limit_ms + QUICK_MS);
        let paused = self.ask_as(step, pause).await;
        paused.doing(FailureCode::Other, || "wait".into())?;
        Ok(true)
    }

    /// A value of the registry; none if there is no such key or value.
    pub(crate) async fn registry(&mut self, key: &str, name: &str) -> Result<Option<Value>> {
        let read = RegistryRead {
            key: key.into(),
            name: name.into(),
        };
        match self.ask(read).await {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.number() == 2 => Ok(None),
            Err(error) => Err(Problem::windows(
                FailureCode::Other,
                &format!("read {key}\\{name}"),
                &error,
            )),
        }
    }

    /// A text of the registry; empty if there is none, or it is no text.
    pub(crate) async fn registry_text(&mut self, key: &str, name: &str) -> Result<String> {
        Ok(match self.registry(key, name).await? {
            Some(Value::Text(text) | Value::Expand(text)) => text,
            _ => String::new(),
        })
    }

    pub(crate) async fn registry_number(&mut self, key: &str, name: &str) -> Result<Option<u32>> {
        Ok(match self.registry(key, name).await? {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        })
    }

    /// JSON file of ours, if it exists. An unreadable file counts as absent: our files are written as a whole, so
    /// another program wrote it.
    pub(crate) async fn read_json<T: DeserializeOwned>(&mut self, path: &str) -> Result<Option<T>> {
        let text = self.read_state(path).await?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// A file of our own, without its byte order mark; none if there is none.
    async fn read_state(&mut self, path: &str) -> Result<Option<Vec<u8>>> {
        let read = FileRead {
            path: path.into(),
            most: STATE_BYTES_MAX,
            end: false,
        };
        match self.ask(read).await {
            Ok(content) => {
                let bytes = content.bytes.0;
                let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
                Ok(Some(text.to_vec()))
            }
            Err(error) if error.is_any(&[2, 3]) => Ok(None),
            Err(error) => Err(Problem::windows(
                FailureCode::Other,
                &format!("read {path}"),
                &error,
            )),
        }
    }
}

/// A host that answers one operation with another's answer.
fn another_answer(asked: &str, answered: &str) -> WinError {
    WinError {
        code: 13, // ERROR_INVALID_DATA
        text: format!("the host answered {asked} with {answered}"),
    }
}
