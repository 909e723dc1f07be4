//! Arguments of a call of the host program, and the meaning of its failures.

use super::{HostExecutor, cluster::Cluster, known_secrets::KnownSecrets, prepared::Prepared};
use crate::{
    progress::Progress,
    ssh::{Output, Session, SshError},
};
use dormer_profile::{answer, clixml, invocation::Mode};
use dormer_proto::{
    machine::{HostFence, HostRef},
    message::{Failure, cut_start},
    work::Order,
};
use std::sync::Arc;

/// Longest piece of a host's own words in a failure.
const SAID_CHARS_MAX: usize = 400;

/// The code of a call that ended without an answer.
pub(super) const NO_FRAME: &str = "NoFrame";

/// One attempt on one host: what each of its steps needs.
#[derive(Clone, Copy)]
pub(super) struct HostAttempt<'a> {
    pub(super) order: &'a Order,
    /// The host, with the pin that counts.
    pub(super) host: &'a HostRef,
    /// Fence of the task. A probe has none, and an adoption takes a new one on the way.
    pub(super) fence: HostFence,
    pub(super) progress: &'a Progress,
}

impl HostAttempt<'_> {
    /// Task and attempt as the host echoes them.
    pub(super) fn names(&self) -> (String, u32) {
        (
            self.order.task.to_string(),
            u32::try_from(self.order.attempt.0).unwrap_or(u32::MAX),
        )
    }

    /// Name of an upload that is under way to `path`; no other attempt uses it.
    pub(super) fn part(&self, path: &str) -> String {
        let (_, attempt) = self.names();
        let task = &self.order.task;
        format!("{path}.{}-{}-{attempt}.part", task.seq, task.ordinal)
    }
}

/// Command of the host program.
#[derive(Clone, Copy)]
pub(super) struct ProgramCommand<'a> {
    pub(super) mode: Mode,
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
    let log = known.clean_output(failure.log_tail.trim());
    let said = known.clean_output(failure.message.trim());
    // The cure of a code is in `dormer_views::explain`, not in the message.
    let message = format!("{item}{}", said.trim_end_matches('.'));
    let code = failure.code.as_str();
    Failure {
        retry: failure.retry,
        log: (!log.is_empty()).then(|| cut_start(log)),
        ..Failure::transient(code, message)
    }
}

pub(super) fn said(output: &Output, known: &KnownSecrets) -> String {
    let printed = if output.stderr.is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    // Without an interactive user, PowerShell writes its errors as XML (docs/field-notes.md, Output of PowerShell).
    let clean = known.clean_output(&clixml::readable(printed));
    let text: String = clean.trim().chars().take(SAID_CHARS_MAX).collect();
    let status = output
        .status
        .map(|status| format!(" (exit {status})"))
        .unwrap_or_default();
    if text.is_empty() {
        status
    } else {
        format!("{status}: {text}")
    }
}
