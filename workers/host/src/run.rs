//! One call from its begin to its answer.

use dormer_profile::{
    answer::{
        Answer, Facts, Failure, FailureCode, Installed, ItemOutcome, ItemState, LastCall, Reboot,
    },
    document::{ChangeClass, DOCUMENT_SCHEMA, Document, Section},
    invocation::Mode as Asked,
    item::{Item, What},
};

use dormer_proto::boot::same_boot;

use crate::{
    arguments::{Call, Mode},
    boot_id,
    document::{self, Wanted},
    facts,
    items::{self, Step},
    ops::{FileRead, Host, RebootAsk},
    paths::state,
    problem::{Problem, Result},
    removal,
    session::Session,
    state::{Inventory, Made, Waiting, file},
};

/// Most bytes of log that a failure carries.
const LOG_BYTES_MAX: u64 = dormer_profile::answer::LOG_TAIL_BYTES_MAX as u64;

/// Everything that one call knows. What items need of each other passes through here.
pub(crate) struct Run<H> {
    pub(crate) host: Session<H>,
    pub(crate) call: Call,
    /// Things are changed, and not only compared.
    pub(crate) apply: bool,
    pub(crate) section: Section,
    pub(crate) boot_id: String,
    pub(crate) booted_ms: i64,
    pub(crate) inventory: Inventory,
    /// Items that wait for a reboot, those of earlier calls in this boot included.
    pub(crate) waiting: Vec<String>,
    /// Services that this call, or one of this boot that was killed, stopped and that have to run again, in that order.
    pub(crate) stopped: Vec<String>,
    /// SHA-256 of the roots in the store, read once a call.
    pub(crate) roots: Option<Vec<crate::ops::Root>>,
    /// The log of the service in hand.
    pub(crate) log: Option<String>,
    /// How deep the change of the item in hand cuts at least, where that is more than its kind says.
    pub(crate) deeper: Option<ChangeClass>,
    outcomes: Vec<ItemOutcome>,
    missing: Vec<String>,
    going_down: bool,
    reboot_asked: bool,
    entered: bool,
    failure: Option<Failure>,
}

/// Runs one call on a host and answers. `document` is what came on stdin, or why it is none of ours.
pub async fn run<H: Host>(
    call: Call,
    document: std::result::Result<Option<Vec<u8>>, String>,
    host: H,
) -> Answer {
    let changing = [
        Mode::Asked(Asked::Apply),
        Mode::Asked(Asked::Remove),
        Mode::Boot,
    ];
    let apply = changing.contains(&call.mode);
    let mut run = Run {
        host: Session::new(host),
        call,
        apply,
        section: Section::Host,
        boot_id: String::new(),
        booted_ms: 0,
        inventory: Inventory::default(),
        waiting: Vec::new(),
        stopped: Vec::new(),
        roots: None,
        log: None,
        deeper: None,
        outcomes: Vec::new(),
        missing: Vec::new(),
        going_down: false,
        reboot_asked: false,
        entered: false,
        failure: None,
    };
    let began = run.host.clock().await.map_or(0, |clock| clock.tick_ms);
    if let Err(problem) = run.go(document).await {
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
        let document = document.map_err(|why| Problem::new(FailureCode::DocumentRejected, why))?;
        let document = document.map(|bytes| document::read(&bytes)).transpose();
        let document = document.map_err(|why| Problem::new(FailureCode::DocumentRejected, why))?;
        if mode == Some(Asked::Probe) {
            if let Some(said) = crate::boot_run::failure(self).await? {
                self.said("boot", ItemState::Failed, &said);
            }
            return Ok(());
        }
        self.host.make_our_folders().await?;
        let task = self.call.task.clone();
        self.host.lock(&task).await?;
        self.entered = true;
        self.check_boot()?;
        if mode.is_some_and(Asked::changes) {
            self.host.take_fence(self.call.fence).await?;
            self.host.take_over().await?;
        }
        self.inventory = self.host.inventory().await?;
        self.waiting = self.host.waiting(&self.boot_id).await?;
        if self.apply {
            crate::services::stopped_before(self).await?;
        }
        let done = match (mode, document) {
            (None, _) => crate::boot_run::put_back(self).await,
            (Some(Asked::Plan | Asked::Apply), Some(document)) => self.converge(&document).await,
            (Some(Asked::Remove), _) => removal::everything(self).await,
            (Some(Asked::Reboot), _) => self.reboot().await,
            _ => Ok(()),
        };
        // Whatever became of the call: what it stopped on its way runs again.
        crate::services::start_again(self).await;
        done
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

    /// Asks Windows for a reboot. 1115: it has begun. 1190: one was asked for before, which may be a switching off, or
    /// hours ahead: it proves nothing, and the boot's identity decides as always.
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

    async fn converge(&mut self, wanted: &Wanted) -> Result<()> {
        let document = &wanted.document;
        self.section = document.section;
        for (n, item) in document.items.iter().enumerate() {
            self.own(wanted, n).await?;
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
        self.own(wanted, document.items.len()).await?;
        self.host.about("");
        if !self.apply {
            return Ok(());
        }
        if self.clean() {
            self.assert_files_stay(document).await?;
        }
        if self.clean() && self.waiting.is_empty() {
            removal::no_longer_wanted(self, wanted).await?;
            crate::boot_run::remember(self, document).await?;
            crate::leftovers::uploads(self, document).await;
            crate::leftovers::programs(self).await?;
            self.note_installed(Some(&document.version)).await?;
        }
        self.save_inventory().await
    }

    fn clean(&self) -> bool {
        self.failure.is_none() && self.missing.is_empty()
    }

    /// The program's own items that stand before the profile's item number `n`.
    async fn own(&mut self, wanted: &Wanted, n: usize) -> Result<()> {
        for own in wanted.own.iter().filter(|own| own.before == n) {
            if self.failure.is_some() {
                self.said(&own.id, ItemState::Skipped, "");
                continue;
            }
            self.host.about(&own.id);
            let step = items::converge_own(self, own).await;
            self.take(&own.id, step).await?;
        }
        Ok(())
    }

    async fn take(&mut self, id: &str, step: Result<Step>) -> Result<()> {
        match step {
            Ok(Step::Ok(detail)) => self.said(id, ItemState::Ok, &detail),
            Ok(Step::Changed(detail)) => self.said(id, ItemState::Changed, &detail),
            Ok(Step::Differs(detail)) => self.said(id, ItemState::Differs, &detail),
            Ok(Step::Reboot(detail)) => {
                self.said(id, ItemState::Differs, &detail);
                if self.apply {
                    self.wait_for_reboot(id).await?;
                } else if !self.waiting.iter().any(|waiting| waiting == id) {
                    self.waiting.push(id.to_owned());
                }
            }
            Ok(Step::Missing(path)) => {
                self.missing.push(path);
                self.said(id, ItemState::Differs, "not uploaded");
                if self.apply {
                    let said = "a file is neither in place nor staged";
                    let problem = Problem::new(FailureCode::FileMissing, said);
                    self.fail(Some(id), problem).await;
                }
            }
            Err(problem) => {
                self.said(id, ItemState::Failed, &problem.message);
                self.fail(Some(id), problem).await;
            }
        }
        Ok(())
    }

    /// Notes that an item waits for a reboot of this boot. Before the change: a call that dies in between asks for one
    /// reboot too many, never for one too few.
    pub(crate) async fn wait_for_reboot(&mut self, id: &str) -> Result<()> {
        if self.waiting.iter().any(|waiting| waiting == id) {
            return Ok(());
        }
        self.waiting.push(id.to_owned());
        let waiting = Waiting {
            boot_id: self.boot_id.clone(),
            items: self.waiting.clone(),
        };
        self.host.write_json(&state(file::WAITING), &waiting).await
    }

    /// Notes what is about to be made, before it is: what a cut call made is known all the same.
    pub(crate) async fn note(&mut self, made: Made) -> Result<()> {
        if self.inventory.note(self.section, made) {
            self.save_inventory().await?;
        }
        Ok(())
    }

    pub(crate) async fn save_inventory(&mut self) -> Result<()> {
        let path = state(file::INVENTORY);
        let there: Option<Inventory> = self.host.read_json(&path).await?;
        if there.as_ref() == Some(&self.inventory)
            || (there.is_none() && self.inventory.entries.is_empty())
        {
            return Ok(());
        }
        self.host.write_json(&path, &self.inventory).await
    }

    /// A virus scanner takes a file away some seconds after it came: what was right a moment ago is to be there still.
    async fn assert_files_stay(&mut self, document: &Document) -> Result<()> {
        for item in &document.items {
            let What::File(what) = &item.what else {
                continue;
            };
            if crate::placing::stat(&mut self.host, &what.path)
                .await?
                .is_none()
            {
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

    /// What was converged, by section; without a version nothing is.
    pub(crate) async fn note_installed(&mut self, version: Option<&str>) -> Result<()> {
        let before = self.host.installed().await?;
        let mut installed = before.clone();
        match version {
            None => installed.clear(),
            Some(version) => {
                installed.retain(|one| one.section != self.section);
                installed.push(Installed {
                    section: self.section,
                    version: version.to_owned(),
                    task: self.call.task.clone(),
                });
            }
        }
        self.host
            .write_json(&state(file::INSTALLED), &installed)
            .await
    }

    pub(crate) fn outcome(&mut self, item: &Item, state: ItemState, detail: &str) {
        self.said(&item.id, state, detail);
    }

    pub(crate) fn said(&mut self, id: &str, state: ItemState, detail: &str) {
        self.outcomes.push(ItemOutcome {
            id: id.to_owned(),
            state,
            detail: detail.to_owned(),
            change: self.deeper.take(),
        });
    }

    pub(crate) async fn fail(&mut self, item: Option<&str>, problem: Problem) {
        if self.failure.is_some() {
            return;
        }
        self.going_down |= problem.going_down;
        if let Some(why) = &problem.reboot
            && !self.waiting.contains(why)
        {
            self.waiting.push(why.clone());
        }
        let about_a_service = matches!(
            problem.code,
            FailureCode::ServiceStartTimeout
                | FailureCode::ServiceCrashed
                | FailureCode::NotHealthy
                | FailureCode::DependencyFailed
        );
        let log_tail = match (about_a_service, self.log.clone()) {
            (true, Some(path)) => self.log_tail(&path).await,
            _ => String::new(),
        };
        self.failure = Some(Failure {
            code: problem.code,
            item: item.map(str::to_owned),
            message: problem.message,
            log_tail,
            // A rename that is refused may be a file in use: that is no question of rights, and passes.
            retry: problem.code.retry(),
        });
    }

    /// The end of a log that a service may be writing.
    async fn log_tail(&mut self, path: &str) -> String {
        let read = FileRead {
            path: path.into(),
            most: LOG_BYTES_MAX,
            end: true,
        };
        match self.host.ask(read).await {
            Ok(content) => {
                let text = String::from_utf8_lossy(&content.bytes.0).into_owned();
                let lines: Vec<&str> = text.lines().collect();
                let from = lines
                    .len()
                    .saturating_sub(dormer_profile::answer::LOG_TAIL_LINES_MAX);
                lines[from..].join("\n").trim().to_owned()
            }
            Err(error) if error.is_any(&[2, 3]) => String::new(),
            Err(error) => format!("(the log could not be read: {error})"),
        }
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

/// Whether an item is left alone while a reboot is owed by an item of this document in this boot: a kubelet that starts
/// before it registers under the old name.
fn waits_for_a_reboot(what: &What) -> bool {
    matches!(
        what,
        What::Service(_)
            | What::HnsNetwork(_)
            | What::HnsEndpoint(_)
            | What::NetworkFile(_)
            | What::SteadyService(_)
            | What::Http(_)
    )
}
