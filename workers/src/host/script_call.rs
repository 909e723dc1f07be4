//! One call of the script on a host: a command out, a framed answer back, and nothing else believed.

use super::{
    HostExecutor, cluster::Cluster, known_secrets::KnownSecrets, prepare::Prepared,
    remote_command::Running, script_fence,
};
use crate::{
    observer::{self, Operation},
    progress::Progress,
    ssh::{Output, Session, SshError},
};
use dormer_profile::{
    answer::{self, Answer},
    clixml, frame,
    invocation::{Call, Mode, command_line},
    script,
};
use dormer_proto::{
    machine::{HostFence, HostRef},
    message::Failure,
    work::Order,
};
use std::sync::Arc;

/// Longest piece of a host's own words in a failure.
const SAID_CHARS_MAX: usize = 400;

/// The code of a call that ended without an answer.
pub(super) const NO_FRAME: &str = "NoFrame";

/// What the script is asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) mode: Mode,
    pub(super) fence: HostFence,
    pub(super) boot: Option<&'a str>,
    pub(super) rendered: Option<&'a Prepared>,
}

impl<C: Cluster> HostExecutor<C> {
    /// The connection to a host.
    pub(super) async fn session(&self, host: &HostRef) -> Result<Arc<Session>, Failure> {
        Ok(self.pool.session(host).await?)
    }

    /// An error of a connection: the next attempt makes a new one.
    pub(super) fn failed(&self, host: &HostRef, error: SshError) -> Failure {
        if error.breaks() {
            self.pool.drop_session(host);
        }
        error.into()
    }

    /// A look at a host of which nothing is known yet: by the program, else by the built-in probe, which needs nothing on
    /// the host.
    pub(super) async fn bootstrap(
        &self,
        order: &Order,
        host: &HostRef,
        session: &Session,
        progress: &Progress,
    ) -> Result<Answer, Failure> {
        if self.program.is_some() {
            let asked = Asked {
                mode: Mode::Probe,
                fence: HostFence::default(),
                boot: None,
                rendered: None,
            };
            return self.ask(order, host, session, asked, progress).await;
        }
        let (task, attempt) = names(order);
        let line = script::bootstrap_line(&task, attempt).map_err(unusable)?;
        let running = Running::begin(
            order,
            "probe".into(),
            &line,
            progress,
            &self.now_ms,
            &self.known,
        );
        let output = self.exec(host, session, &line, running, progress).await?;
        self.answered(&output, &task, attempt)
    }

    /// One call of the program, or of the converge script; either is sent first if it is not there.
    pub(super) async fn ask(
        &self,
        order: &Order,
        host: &HostRef,
        session: &Session,
        asked: Asked<'_>,
        progress: &Progress,
    ) -> Result<Answer, Failure> {
        if let Some(program) = &self.program {
            return self
                .ask_program(program, order, host, session, asked, progress)
                .await;
        }
        self.send_script(order, host, session, asked.rendered)
            .await?;
        let (task, attempt) = names(order);
        let call = Call {
            mode: asked.mode,
            task: task.clone(),
            attempt,
            fence: script_fence(asked.fence),
            expected_boot_id: asked.boot.map(str::to_owned),
            document: asked.rendered.map(Prepared::document_ref),
            script: script::hash().to_owned(),
        };
        let line = command_line(&call).map_err(unusable)?;
        let name = match asked.rendered {
            Some(prepared) => format!("{} {}", asked.mode, prepared.section.as_str()),
            None => asked.mode.to_string(),
        };
        let running = Running::begin(order, name, &line, progress, &self.now_ms, &self.known);
        let output = self.exec(host, session, &line, running, progress).await?;
        let answer = self.answered(&output, &task, attempt);
        if answer
            .as_ref()
            .is_err_and(|failure| failure.code == NO_FRAME)
        {
            // Perhaps there is no script to run: the next attempt looks.
            self.sent.forget(host);
        }
        answer
    }

    async fn exec(
        &self,
        host: &HostRef,
        session: &Session,
        line: &str,
        running: Running,
        progress: &Progress,
    ) -> Result<Output, Failure> {
        let operation = observer::begin(Operation::Command);
        let output = operation.ended(session.exec(line, |_| progress.advance(0)).await);
        running.ended(&output, &self.known);
        output.map_err(|error| self.failed(host, error))
    }

    /// The answer to this very attempt. Whatever else the host says is a hint for people, without secrets.
    fn answered(&self, output: &Output, task: &str, attempt: u32) -> Result<Answer, Failure> {
        let answer = frame::extract(&output.stdout, task, attempt).map_err(|error| {
            let said = said(output, &self.known);
            Failure::transient(
                NO_FRAME,
                format!("{error}{said}; the host is looked at anew"),
            )
        })?;
        match &answer.failure {
            None => Ok(answer),
            Some(failure) => Err(of_host(failure, &self.known)),
        }
    }
}

/// Task and attempt as the host echoes them.
pub(super) fn names(order: &Order) -> (String, u32) {
    (
        order.task.to_string(),
        u32::try_from(order.attempt.0).unwrap_or(u32::MAX),
    )
}

pub(super) fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::lasting("CommandUnusable", error.to_string())
}

pub(super) fn of_host(failure: &answer::Failure, known: &KnownSecrets) -> Failure {
    let item = failure
        .item
        .as_ref()
        .map(|item| format!("{item}: "))
        .unwrap_or_default();
    let tail = known.clean_output(failure.log_tail.trim());
    let tail = match tail.as_str() {
        "" => String::new(),
        tail => format!("; its log ends with: {tail}"),
    };
    let said = known.clean_output(failure.message.trim());
    let message = format!("{item}{said} {}{tail}", failure.code.advice());
    let code = failure.code.as_str();
    if failure.retry {
        Failure::transient(code, message)
    } else {
        Failure::lasting(code, message)
    }
}

pub(super) fn said(output: &Output, known: &KnownSecrets) -> String {
    let text = if output.stderr.is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    // PowerShell writes its errors as XML when nobody sits before it (docs/field-notes.md, Output of PowerShell).
    let text = known.clean_output(&clixml::readable(text));
    let text: String = text.trim().chars().take(SAID_CHARS_MAX).collect();
    let status = output
        .status
        .map(|status| format!(" (exit {status})"))
        .unwrap_or_default();
    if text.is_empty() {
        status
    } else {
        format!("{status}, but: {text}")
    }
}
