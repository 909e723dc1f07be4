//! What the converge script does to a host, without its PowerShell: the document against the state.

mod files;
mod network;
mod removal;
mod report;
mod service_items;

use std::sync::Arc;
use std::time::Duration;

use dormer_profile::answer::{
    Answer, Failure, FailureCode, ItemOutcome, ItemState, LastCall, Reboot,
};
use dormer_profile::document::{DOCUMENT_SCHEMA, Document, FENCE_FILE, Fence, Section};
use dormer_profile::invocation::{Call, DocumentRef, Mode, document_path, script_path};
use dormer_profile::item::{Item, What};
use tokio::time::Instant;

use super::computer::{Host, lock};
use super::counts::Execution;
use crate::faults::Fault;
use crate::world::Happened;

/// How long a call waits for the host-wide mutex.
const MUTEX_WAIT: Duration = Duration::from_secs(10);
/// How long a file in use is waited for.
const FILE_WAIT: Duration = Duration::from_secs(30);
/// Bytes per second at which the host hashes and copies.
const HASH_BYTES_PER_S: f64 = 400_000_000.0;

/// What became of one item.
pub(super) enum Step {
    /// As asked for.
    Ok,
    /// Made so.
    Changed(String),
    /// Not so, and left alone.
    Differs(String),
    /// So after a reboot.
    Reboot(String),
    /// Its content has to be uploaded first.
    Missing(String),
    /// Not possible.
    Failed(FailureCode, String),
}

/// One run of the script.
struct Run<'a> {
    host: &'a Arc<Host>,
    call: &'a Call,
    started: Instant,
    outcomes: Vec<ItemOutcome>,
    missing: Vec<String>,
    reboot: Vec<String>,
    reboot_asked: bool,
    failure: Option<Failure>,
}

impl Host {
    /// The built-in probe: facts, and our folders.
    pub(super) fn bootstrap(&self, task: String, attempt: u32) -> Answer {
        self.make_our_folders();
        self.note(&task, attempt, Mode::Probe, Vec::new(), None);
        Answer {
            schema: DOCUMENT_SCHEMA,
            task,
            attempt,
            mode: Mode::Probe,
            script: "probe".into(),
            facts: self.facts(),
            items: Vec::new(),
            missing_files: Vec::new(),
            reboot: self.reboot_state(),
            failure: None,
            took_ms: 0,
        }
    }

    /// Executes a call of the uploaded script; an error is what PowerShell says when it cannot run it.
    pub(super) async fn run_script(
        self: &Arc<Self>,
        call: &Call,
        pid: u32,
        long: bool,
    ) -> Result<Answer, String> {
        self.check_script(call)?;
        self.pause(150, 400).await;
        let mut run = Run {
            host: self,
            call,
            started: Instant::now(),
            outcomes: Vec::new(),
            missing: Vec::new(),
            reboot: Vec::new(),
            reboot_asked: false,
            failure: None,
        };
        if let Err((code, message)) = run.go(pid, long).await {
            run.fail(code, None, message);
        }
        {
            let mut state = self.state();
            if state.mutex == Some(pid) {
                state.mutex = None;
            }
        }
        Ok(run.answer())
    }

    fn check_script(&self, call: &Call) -> Result<(), String> {
        let path = script_path(&call.script);
        let body = self.state().disk.read_text_path(&path).map_err(|_| {
            format!("The argument '{path}' to the -File parameter does not exist.\r\n")
        })?;
        if body.sha256 != call.script || call.script != dormer_profile::script::hash() {
            tracing::error!(
                machine = self.name(),
                path,
                "a script that the simulated host does not know"
            );
            return Err(format!(
                "The simulated host does not know the script {path}.\r\n"
            ));
        }
        Ok(())
    }

    pub(super) fn note(
        &self,
        task: &str,
        attempt: u32,
        mode: Mode,
        changed: Vec<String>,
        failure: Option<String>,
    ) {
        let execution = Execution {
            task: task.to_owned(),
            attempt,
            mode: mode.as_str(),
            changed,
            failure,
        };
        lock(&self.counts).executed(execution);
    }

    /// The fence on file.
    pub fn fence(&self) -> Option<Fence> {
        let body = self.state().disk.read_text_path(FENCE_FILE).ok()?;
        serde_json::from_slice(body.bytes()?).ok()
    }
}

impl Run<'_> {
    async fn go(&mut self, pid: u32, long: bool) -> Result<(), (FailureCode, String)> {
        if self.call.mode == Mode::Probe {
            self.host.make_our_folders();
            return Ok(());
        }
        self.take_mutex(pid).await?;
        self.check_boot()?;
        if self.call.mode.changes() {
            self.take_fence()?;
            self.host
                .at(&format!("{} fence", self.call.mode.as_str()))
                .await;
        }
        match self.call.mode {
            Mode::Probe | Mode::Adopt => Ok(()),
            Mode::Reboot => self.ask_for_reboot().await,
            Mode::Plan | Mode::Apply => self.converge(long).await,
            Mode::Remove => self.remove().await,
        }
    }

    async fn take_mutex(&self, pid: u32) -> Result<(), (FailureCode, String)> {
        let mut waited = Duration::ZERO;
        loop {
            {
                let mut state = self.host.state();
                if state.mutex.is_none() {
                    state.mutex = Some(pid);
                    return Ok(());
                }
            }
            if waited >= MUTEX_WAIT {
                return Err((FailureCode::HostBusy, "another call holds the mutex".into()));
            }
            let step = Duration::from_millis(250);
            self.host.sleep(step).await;
            waited += step;
        }
    }

    fn check_boot(&self) -> Result<(), (FailureCode, String)> {
        let now = self.host.state().boot_id.to_string();
        match &self.call.expected_boot_id {
            Some(expected) if *expected != now => Err((
                FailureCode::BootChanged,
                format!("boot {now}, expected {expected}"),
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn take_fence(&self) -> Result<(), (FailureCode, String)> {
        let mine = self.call.fence;
        if let Some(theirs) = self.host.fence().filter(|theirs| *theirs > mine) {
            let said = format!("the fence is {}.{}", theirs.generation, theirs.seq);
            return Err((FailureCode::FenceTooOld, said));
        }
        let json = serde_json::to_vec(&mine).unwrap_or_default();
        let written = self.host.state().disk.put(FENCE_FILE, &json);
        written.map_err(|e| (FailureCode::DiskFull, e.to_string()))
    }

    async fn ask_for_reboot(&mut self) -> Result<(), (FailureCode, String)> {
        self.reboot_asked = true;
        self.host.reboot_in(Duration::from_secs(5)); // a second request finds the first: 1190
        self.host.at("reboot asked").await;
        Ok(())
    }

    async fn converge(&mut self, long: bool) -> Result<(), (FailureCode, String)> {
        let document = self.document()?;
        if self.call.mode == Mode::Apply && self.host.strike(Fault::ConfigureFails) {
            return Err((FailureCode::AccessDenied, "Access is denied.".into()));
        }
        if long {
            self.host.sleep(Host::script_goes_on()).await;
        }
        for item in &document.items {
            if self.failure.is_some() {
                self.outcome(item, ItemState::Skipped, String::new());
                continue;
            }
            let step = self.step_of(document.section, item).await;
            self.take(item, step);
        }
        if self.call.mode == Mode::Apply && self.failure.is_none() && self.missing.is_empty() {
            self.assert_files_stay(&document);
        }
        if self.call.mode == Mode::Apply && self.clean() {
            self.host
                .clear_parts(self.call.fence.seq, self.call.attempt);
            self.host
                .note_installed(document.section, &document.version, &self.call.task);
            self.host
                .at(&format!("{} answer", document.section.as_str()))
                .await;
        }
        Ok(())
    }

    /// What was right a moment ago is to be there still.
    fn assert_files_stay(&mut self, document: &Document) {
        let gone = document.items.iter().find_map(|item| match &item.what {
            What::File(what) => {
                let there = self.host.state().disk.read_text_path(&what.path).is_ok();
                (!there).then(|| (item.id.clone(), what.path.clone()))
            }
            _ => None,
        });
        if let Some((item, path)) = gone {
            let said = format!("{path} was right and is gone");
            self.fail(FailureCode::QuarantineSuspected, Some(item), said);
        }
    }

    fn clean(&self) -> bool {
        self.failure.is_none() && self.missing.is_empty() && self.reboot.is_empty()
    }

    fn document(&self) -> Result<Document, (FailureCode, String)> {
        let rejected = |why: String| (FailureCode::DocumentRejected, why);
        let bytes = match &self.call.document {
            Some(DocumentRef::Inline(bytes)) => bytes.clone(),
            Some(DocumentRef::Uploaded { section, sha256 }) => {
                let path = document_path(*section, sha256);
                let body = self.host.state().disk.read_text_path(&path);
                let body = body.map_err(|e| rejected(format!("{path}: {e}")))?;
                if body.sha256 != *sha256 {
                    return Err(rejected(format!("{path} has the hash {}", body.sha256)));
                }
                let whole = body.bytes().map(|bytes| bytes.to_vec());
                whole.ok_or_else(|| rejected(format!("{path} is longer than this host keeps")))?
            }
            None => return Err(rejected("no document".into())),
        };
        Document::from_bytes(&bytes).map_err(|e| rejected(e.to_string()))
    }

    /// One item, with the steps at which the power may fail.
    async fn step_of(&mut self, section: Section, item: &Item) -> Step {
        if self.call.mode != Mode::Apply {
            return self.step(item).await;
        }
        let named = format!("{} {}", section.as_str(), item.id);
        self.host.state().doing = Some(named.clone());
        let step = self.step(item).await;
        self.host.state().doing = None;
        if let What::File(what) = &item.what {
            let mut state = self.host.state();
            state
                .asked_for
                .insert(what.path.clone(), what.sha256.clone());
        }
        if matches!(step, Step::Changed(_) | Step::Reboot(_)) {
            if !matches!(item.what, What::Service(_)) {
                self.host.effect(&named);
            }
            self.host.at(&format!("{named} done")).await;
        }
        step
    }

    async fn step(&mut self, item: &Item) -> Step {
        let apply = self.call.mode == Mode::Apply;
        let host = self.host;
        match &item.what {
            What::Directory(what) => host.ensure_directory(what, apply),
            What::File(what) => host.ensure_file(what, apply).await,
            What::Feature(what) => host.ensure_feature(&what.name, apply).await,
            What::Hostname(what) => host.ensure_hostname(&what.name, apply),
            What::Environment(what) => host.ensure_environment(what, apply),
            What::Registry(what) => host.ensure_registry(what, apply),
            What::Service(what) => host.ensure_service(what, apply).await,
            What::Firewall(what) => host.ensure_firewall(what, apply).await,
            What::DefenderExclusion(what) => host.ensure_exclusion(&what.process, apply),
            What::Certificate(what) => host.ensure_certificate(&what.sha256, apply),
            What::HnsNetwork(what) => host.ensure_network(what, apply).await,
            What::HnsEndpoint(what) => host.ensure_endpoint(what, apply).await,
            What::NetworkFile(what) => host.ensure_network_file(what, apply).await,
            What::Route(what) => host.ensure_route(&what.prefix, apply),
            What::SteadyService(what) => host.check_steady(what, apply).await,
            What::Http(what) => host.check_http(what, apply).await,
            What::Sweep(what) => host.sweep(what, apply),
            What::OnlyFolders(what) => host.only_folders(what, apply),
            What::OnlyCertificates(what) => host.only_certificates(&what.keep, apply),
            What::Lingering(_) => Step::Ok,
        }
    }

    fn take(&mut self, item: &Item, step: Step) {
        match step {
            Step::Ok => self.outcome(item, ItemState::Ok, String::new()),
            Step::Changed(detail) => self.outcome(item, ItemState::Changed, detail),
            Step::Differs(detail) => self.outcome(item, ItemState::Differs, detail),
            Step::Reboot(detail) => {
                self.reboot.push(item.id.clone());
                self.outcome(item, ItemState::Differs, detail);
            }
            Step::Missing(path) => {
                self.missing.push(path);
                self.outcome(item, ItemState::Differs, "not uploaded".into());
                if self.call.mode == Mode::Apply {
                    let said = "a file is neither in place nor staged".to_owned();
                    self.fail(FailureCode::FileMissing, Some(item.id.clone()), said);
                }
            }
            Step::Failed(code, message) => {
                self.outcome(item, ItemState::Failed, message.clone());
                self.fail(code, Some(item.id.clone()), message);
            }
        }
    }

    fn outcome(&mut self, item: &Item, state: ItemState, detail: String) {
        self.outcomes.push(ItemOutcome {
            id: item.id.clone(),
            state,
            detail,
        });
    }

    fn fail(&mut self, code: FailureCode, item: Option<String>, message: String) {
        let about_a_service = matches!(
            code,
            FailureCode::ServiceStartTimeout
                | FailureCode::ServiceCrashed
                | FailureCode::NotHealthy
        );
        let log_tail = if about_a_service {
            super::services::log_tail(self.host, &message)
        } else {
            String::new()
        };
        self.failure = Some(Failure {
            code,
            item,
            message,
            log_tail,
            retry: code.retry(),
        });
    }

    fn answer(self) -> Answer {
        let changed: Vec<String> = self
            .outcomes
            .iter()
            .filter(|outcome| outcome.state == ItemState::Changed)
            .map(|outcome| outcome.id.clone())
            .collect();
        let failure = self.failure.as_ref().map(|failure| failure.code.as_str());
        let facts = self.host.facts(); // before this call counts as the last that ended
        self.remember(!changed.is_empty());
        self.host.note(
            &self.call.task,
            self.call.attempt,
            self.call.mode,
            changed,
            failure,
        );
        let reboot = if self.reboot_asked || self.host.state().shutting_down {
            Reboot::Pending
        } else if self.reboot.is_empty() {
            self.host.reboot_state()
        } else {
            Reboot::Needed { why: self.reboot }
        };
        let took = self.host.context.pace.simulated(self.started.elapsed());
        Answer {
            schema: DOCUMENT_SCHEMA,
            task: self.call.task.clone(),
            attempt: self.call.attempt,
            mode: self.call.mode,
            script: self.call.script.clone(),
            facts,
            items: self.outcomes,
            missing_files: self.missing,
            reboot,
            failure: self.failure,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Writes down what was done: on the host, and in the world's record.
    fn remember(&self, changed: bool) {
        let machine = self.host.uid().to_owned();
        let task = self.call.task.clone();
        let attempt = self.call.attempt;
        let mode = self.call.mode;
        let busy = self
            .failure
            .as_ref()
            .is_some_and(|f| f.code == FailureCode::HostBusy);
        if mode != Mode::Probe && !busy {
            let ok = self.failure.is_none();
            self.host.state().last_call = Some(LastCall {
                task: task.clone(),
                attempt,
                mode,
                ok,
            });
        }
        match mode {
            Mode::Apply => {
                let task = format!("{task}/{attempt}");
                self.host.context.record.push(Happened::Converged {
                    machine,
                    task,
                    changed,
                });
            }
            Mode::Remove => self
                .host
                .context
                .record
                .push(Happened::TornDown { machine }),
            Mode::Probe | Mode::Plan | Mode::Reboot | Mode::Adopt => {}
        }
    }
}
