//! One call from its begin to its answer.

use dormer_profile::{
    answer::{Answer, Facts, FailureCode, ItemState, LastCall, Reboot},
    document::{DOCUMENT_SCHEMA, Document, Section},
    invocation::Mode as Asked,
    item::{FileSource, ItemKind},
};

use dormer_proto::boot::same_boot;

use crate::{
    arguments::{Call, Mode},
    boot_id, boot_run, document, facts, files,
    items::{self, Step},
    leftovers,
    ops::{Host, RebootAsk},
    paths::state,
    problem::{Problem, Result},
    progress::Run,
    removal, services,
    state::{LOCK_WAIT_MS, file},
};

/// Runs one call on a host and answers. `document` is what came on stdin, or why it is none of ours.
pub async fn run<H: Host>(
    call: Call,
    document: std::result::Result<Option<Vec<u8>>, String>,
    host: H,
) -> Answer {
    let changing = [
        Mode::Asked(Asked::Apply),
        Mode::Asked(Asked::Renew),
        Mode::Asked(Asked::Remove),
        Mode::Asked(Asked::Release),
        Mode::Boot,
    ];
    let apply = changing.contains(&call.mode);
    let mut run = Run::new(host, call, apply);
    let began = run.host.clock().await.map_or(0, |clock| clock.tick_ms);
    if let Err(problem) = run.go(document).await {
        if run.call.mode == Mode::Boot {
            boot_run::note(&mut run, Some(&problem)).await;
        }
        run.fail(None, problem).await;
    }
    run.answer(began).await
}

impl<H: Host> Run<H> {
    async fn go(&mut self, document: std::result::Result<Option<Vec<u8>>, String>) -> Result<()> {
        (self.boot_id, self.booted_ms) = boot_id::read(&mut self.host).await?;
        let mode = match self.call.mode {
            Mode::Boot => None,
            Mode::Asked(mode) => Some(mode),
        };
        let bytes = document.map_err(|why| Problem::new(FailureCode::DocumentRejected, why))?;
        let read = bytes.map(|bytes| document::read(&bytes)).transpose();
        let document = read.map_err(|why| Problem::new(FailureCode::DocumentRejected, why))?;
        if mode == Some(Asked::Probe) {
            if let Some(said) = boot_run::failure(self).await? {
                self.report_item("boot", ItemState::Failed, &said);
            }
            return Ok(());
        }
        self.host.make_our_folders().await?;
        let task = self.call.task.clone();
        // The boot run is asked for once, and until it is done no service of ours runs.
        let wait_ms = match mode {
            None => boot_run::TRIES_MS,
            Some(_) => LOCK_WAIT_MS,
        };
        self.host.lock(&task, wait_ms).await?;
        self.entered = true;
        self.check_boot()?;
        if mode.is_some_and(Asked::changes) {
            self.host.take_fence(self.call.fence).await?;
            self.host.take_over().await?;
        }
        self.inventory = self.host.inventory().await?;
        self.waiting = self.host.waiting(&self.boot_id).await?;
        if self.apply {
            services::stopped_before(self).await?;
        }
        let done = match (mode, document) {
            (None, _) => boot_run::put_back(self).await,
            (Some(Asked::Plan | Asked::Apply), Some(document)) => self.converge(&document).await,
            (Some(Asked::Renew), Some(document)) => self.renew(&document).await,
            (Some(Asked::Adopt), Some(document)) => self.disable_others(&document).await,
            (Some(Asked::Remove), _) => removal::everything(self).await,
            (Some(Asked::Release), _) => removal::of_others(self).await,
            (Some(Asked::Reboot), _) => self.reboot().await,
            _ => Ok(()),
        };
        // Services that the call stopped are started again, whatever its outcome.
        let again = services::start_again(self).await;
        // What is removed is gone, whether or not services of others run after it.
        match mode {
            Some(Asked::Remove | Asked::Release) => done,
            _ => done.and(again),
        }
    }

    fn check_boot(&self) -> Result<()> {
        match &self.call.boot {
            Some(expected) if !same_boot(expected, &self.boot_id) => Err(Problem::new(
                FailureCode::BootChanged,
                format!("boot {}, expected {expected}", self.boot_id),
            )),
            _ => Ok(()),
        }
    }

    /// Requests a reboot from Windows. 1115: it has begun. 1190: an earlier request exists, which may be a shutdown or
    /// hours ahead, so it proves nothing. The identity of the boot shows whether the host rebooted.
    async fn reboot(&mut self) -> Result<()> {
        let ask = RebootAsk {
            grace_seconds: 5,
            reason: "dormer: this node needs a reboot".into(),
        };
        match self.host.ask(ask).await {
            Ok(()) => {}
            Err(error) if error.is_any(&[1115, 1190]) => {}
            Err(error) => {
                return Err(Problem::windows(
                    FailureCode::RebootRefused,
                    "ask for a reboot",
                    &error,
                ));
            }
        }
        self.reboot_asked = true;
        Ok(())
    }

    /// Stops and disables the services of others that a document names. Where all of them are so, nothing is changed.
    async fn disable_others(&mut self, document: &Document) -> Result<()> {
        self.section = document.section;
        let items = document.items.iter();
        let mut differing = Vec::new();
        for item in items.filter(|item| matches!(item.what, ItemKind::DisabledService(_))) {
            if matches!(items::converge(self, item).await?, Step::Differs(_)) {
                differing.push(item);
            }
        }
        if differing.is_empty() {
            return Ok(());
        }
        self.apply = true;
        crate::services::stopped_before(self).await?;
        for item in differing {
            self.host.about(&item.id);
            let step = items::converge(self, item).await;
            self.take(&item.id, step).await?;
        }
        self.host.about("");
        self.save_inventory().await
    }

    /// Applies certificates and written files, and nothing else: the document says nothing of the other items of its
    /// section, which stay as they are.
    async fn renew(&mut self, document: &Document) -> Result<()> {
        self.section = document.section;
        if let Some(other) = document.items.iter().find(|item| !renewable(&item.what)) {
            let said = format!("{} is not renewed", other.id);
            return Err(Problem::new(FailureCode::DocumentRejected, said));
        }
        for item in &document.items {
            self.host.about(&item.id);
            let step = items::converge(self, item).await;
            self.take(&item.id, step).await?;
        }
        self.host.about("");
        self.save_inventory().await
    }

    async fn converge(&mut self, document: &Document) -> Result<()> {
        self.section = document.section;
        if self.apply && self.section == Section::Host {
            leftovers::cni_state(self).await?;
        }
        for item in &document.items {
            if self.failure.is_some() {
                self.outcome(item, ItemState::Skipped, "");
            } else if self.apply && !self.waiting.is_empty() && waits_for_a_reboot(&item.what) {
                self.outcome(item, ItemState::Skipped, "waits for a reboot");
            } else {
                self.log = None;
                self.host.about(&item.id);
                let step = items::converge(self, item).await;
                self.take(&item.id, step).await?;
            }
        }
        self.host.about("");
        if self.apply && self.clean() {
            self.assert_files_stay(document).await?;
        }
        if !self.apply || self.clean() && self.waiting.is_empty() {
            removal::no_longer_wanted(self, document).await?;
        }
        if self.apply && self.clean() && self.waiting.is_empty() {
            boot_run::remember(self, document).await?;
            leftovers::uploads(self, document).await;
            leftovers::programs(self).await?;
            self.note_installed(Some(&document.version)).await?;
        }
        self.save_inventory().await
    }

    fn clean(&self) -> bool {
        self.failure.is_none() && self.missing.is_empty()
    }

    async fn take(&mut self, id: &str, step: Result<Step>) -> Result<()> {
        match step {
            Ok(Step::Ok(detail)) => self.report_item(id, ItemState::Ok, &detail),
            Ok(Step::Changed(detail)) => self.report_item(id, ItemState::Changed, &detail),
            Ok(Step::Differs(detail)) => self.report_item(id, ItemState::Differs, &detail),
            Ok(Step::Reboot(detail)) => {
                self.report_item(id, ItemState::Differs, &detail);
                if self.apply {
                    self.wait_for_reboot(id).await?;
                } else if !self.waiting.iter().any(|waiting| waiting == id) {
                    self.waiting.push(id.to_owned());
                }
            }
            Ok(Step::Missing(path)) => {
                self.missing.push(path);
                self.report_item(id, ItemState::Differs, "not uploaded");
                if self.apply {
                    let said = "a file is neither in place nor staged";
                    let problem = Problem::new(FailureCode::FileMissing, said);
                    self.fail(Some(id), problem).await;
                }
            }
            Err(problem) => {
                self.report_item(id, ItemState::Failed, &problem.message);
                self.fail(Some(id), problem).await;
            }
        }
        Ok(())
    }

    /// Checks files again at the end: a virus scanner removes a file some seconds after its creation.
    async fn assert_files_stay(&mut self, document: &Document) -> Result<()> {
        for item in &document.items {
            let ItemKind::File(what) = &item.what else {
                continue;
            };
            if files::stat(&mut self.host, &what.path).await?.is_none() {
                let said = format!("{} was right and is gone", what.path);
                self.fail(
                    Some(&item.id),
                    Problem::new(FailureCode::QuarantineSuspected, said),
                )
                .await;
                return Ok(());
            }
        }
        Ok(())
    }

    async fn answer(mut self, began: u64) -> Answer {
        let facts = match facts::read(&mut self.host, &self.boot_id, self.booted_ms).await {
            Ok(facts) => facts,
            Err(problem) => {
                let message = format!("no facts: {}", problem.message);
                self.fail(None, Problem { message, ..problem }).await;
                Facts {
                    boot_id: self.boot_id.clone(),
                    ..Facts::default()
                }
            }
        };
        let mode = match self.call.mode {
            Mode::Asked(mode) => mode,
            Mode::Boot => Asked::Apply,
        };
        if self.entered {
            if self.call.mode != Mode::Boot {
                let last = LastCall {
                    task: self.call.task.clone(),
                    attempt: self.call.attempt,
                    mode,
                    ok: self.failure.is_none(),
                };
                if let Err(problem) = self.host.write_json(&state(file::LAST), &last).await {
                    self.fail(None, problem).await;
                }
            }
            self.host.unlock().await;
        }
        let ended = self.host.clock().await.map_or(began, |clock| clock.tick_ms);
        Answer {
            schema: DOCUMENT_SCHEMA,
            task: self.call.task.clone(),
            attempt: self.call.attempt,
            mode,
            program: self.call.program.clone(),
            reboot: self.reboot_owed(&facts),
            facts,
            items: self.outcomes,
            missing_files: self.missing,
            failure: self.failure,
            took_ms: ended.saturating_sub(began),
        }
    }

    fn reboot_owed(&self, facts: &Facts) -> Reboot {
        if self.reboot_asked || self.going_down {
            return Reboot::Pending;
        }
        let mut why = self.waiting.clone();
        if why.is_empty() {
            why.extend(
                facts
                    .hostname_pending
                    .iter()
                    .map(|name| format!("hostname:{name}")),
            );
        }
        match why.as_slice() {
            [] => Reboot::None,
            _ => Reboot::Needed { why },
        }
    }
}

/// Whether an item is one that [`Asked::Renew`] applies.
fn renewable(what: &ItemKind) -> bool {
    match what {
        ItemKind::Certificate(_) | ItemKind::OnlyCertificates(_) => true,
        ItemKind::File(file) => !matches!(file.source, FileSource::Staged { .. }),
        _ => false,
    }
}

/// Whether an item is left alone while a reboot is owed by an item of this document in this boot: a kubelet that starts
/// before it registers under the old name.
fn waits_for_a_reboot(what: &ItemKind) -> bool {
    matches!(
        what,
        ItemKind::Service(_)
            | ItemKind::Image(_)
            | ItemKind::HnsNetwork(_)
            | ItemKind::HnsEndpoint(_)
            | ItemKind::NetworkFile(_)
            | ItemKind::SteadyService(_)
            | ItemKind::Http(_)
    )
}
