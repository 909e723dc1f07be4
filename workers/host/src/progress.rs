//! State of one call, and the notes of its items.

use dormer_profile::{
    answer::{
        Failure, FailureCode, Installed, ItemOutcome, ItemState, LOG_TAIL_BYTES_MAX,
        LOG_TAIL_LINES_MAX,
    },
    document::{ChangeClass, Section},
    item::Item,
};

use crate::{
    arguments::Call,
    ops::{FileRead, Host, Root},
    paths::state,
    problem::{Problem, Result},
    session::Session,
    state::{Inventory, Made, PendingWork, file},
};

/// Most bytes of log that a failure carries.
const LOG_BYTES_MAX: u64 = LOG_TAIL_BYTES_MAX as u64;

/// State of one call. Items exchange data through it.
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
    pub(crate) roots: Option<Vec<Root>>,
    /// End of the present service's log.
    pub(crate) log: Option<String>,
    /// Minimum change class of the present item, if its change disturbs more than the class of its kind.
    pub(crate) least_change_class: Option<ChangeClass>,
    /// Outcomes of the items so far.
    pub(crate) outcomes: Vec<ItemOutcome>,
    /// Files that are neither in place nor staged.
    pub(crate) missing: Vec<String>,
    /// Windows shuts down while the call runs.
    pub(crate) going_down: bool,
    pub(crate) reboot_asked: bool,
    /// The lock is held.
    pub(crate) entered: bool,
    /// The first failure.
    pub(crate) failure: Option<Failure>,
}

impl<H: Host> Run<H> {
    /// A call that has done nothing yet.
    pub(crate) fn new(host: H, call: Call, apply: bool) -> Self {
        Self {
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
            least_change_class: None,
            outcomes: Vec::new(),
            missing: Vec::new(),
            going_down: false,
            reboot_asked: false,
            entered: false,
            failure: None,
        }
    }

    /// Records that an item waits for a reboot of this boot, before the change: a call that dies in between then causes
    /// one reboot too many, never one too few.
    pub(crate) async fn wait_for_reboot(&mut self, id: &str) -> Result<()> {
        if self.waiting.iter().any(|waiting| waiting == id) {
            return Ok(());
        }
        self.waiting.push(id.to_owned());
        let waiting = PendingWork {
            boot_id: self.boot_id.clone(),
            items: self.waiting.clone(),
        };
        self.host.write_json(&state(file::WAITING), &waiting).await
    }

    /// Records an object before it is created, so that the inventory also has what an interrupted call created.
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

    /// Records the converged version by section; without a version nothing counts as converged.
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
        self.report_item(&item.id, state, detail);
    }

    pub(crate) fn report_item(&mut self, id: &str, state: ItemState, detail: &str) {
        self.outcomes.push(ItemOutcome {
            id: id.to_owned(),
            state,
            detail: detail.to_owned(),
            change: self.least_change_class.take(),
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
            retry: problem.code.retry() && !problem.lasting,
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
                let from = lines.len().saturating_sub(LOG_TAIL_LINES_MAX);
                lines[from..].join("\n").trim().to_owned()
            }
            Err(error) if error.is_any(&[2, 3]) => String::new(),
            Err(error) => format!("(the log could not be read: {error})"),
        }
    }
}
