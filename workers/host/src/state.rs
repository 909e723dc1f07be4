//! State of the program on a host: fence, inventory, converged versions, and pending reboots.

use dormer_profile::{
    answer::{FailureCode, Installed, LastCall},
    document::{Fence, Section},
    item::Item,
};
use dormer_proto::boot::same_boot;
use serde::{Deserialize, Serialize};

use crate::{
    files,
    ops::{Host, LockRelease, LockTake, Start, Value},
    paths::{BIN, OLD_ROOT, ROOT, STAGING, STATE, same, state},
    problem::{Problem, Result},
    session::Session,
};

/// Longest wait of a worker's call for another call; the worker asks again.
pub(crate) const LOCK_WAIT_MS: u64 = 10_000;

/// One thing that the program made, by name; never its content, but what a removal restores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Made {
    /// A folder; `tree`: with its contents, else it is deleted only when empty.
    Directory {
        /// Full path on the host.
        path: String,
        /// Whether all in it is ours.
        tree: bool,
    },
    File {
        /// Full path on the host.
        path: String,
        /// SHA-256 of the content that dormer wrote.
        sha256: String,
    },
    Service {
        /// Name of the service, not its display name.
        name: String,
    },
    /// A service of others that dormer disabled.
    Disabled {
        /// Name of the service, not its display name.
        name: String,
        /// How it was started before.
        start: Start,
    },
    /// A variable of the machine's environment.
    Environment {
        /// Name of the variable.
        name: String,
    },
    /// A value in the registry.
    Registry {
        /// Key that holds the value.
        key: String,
        /// Name of the value within its key.
        name: String,
        /// Its value before. `None`: it was not there, or of a type that is not written here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Value>,
    },
    /// The range of dynamic ports of TCP.
    DynamicPorts {
        /// First port before.
        start: u16,
        /// How many ports before.
        count: u16,
    },
    /// A firewall rule.
    Firewall {
        /// Name under which dormer made the rule.
        name: String,
    },
    /// An exclusion of Windows Defender.
    Exclusion {
        /// The program.
        process: String,
    },
    /// A trusted root.
    Root {
        /// SHA-256 of its DER.
        sha256: String,
    },
    /// An HNS network.
    Network {
        /// Name under which dormer made the network.
        name: String,
    },
    /// An HNS endpoint.
    Endpoint {
        /// Name under which dormer made the endpoint.
        name: String,
    },
    /// Processes that a removal has to end.
    Lingering {
        /// Their name, without `.exe`.
        process: String,
    },
}

impl Made {
    /// Stable id of the object, as outputs show it: `service:kubelet`.
    pub fn id(&self) -> String {
        match self {
            Self::Directory { path, .. } => format!("directory:{path}"),
            Self::File { path, .. } => format!("file:{path}"),
            Self::Service { name } => format!("service:{name}"),
            Self::Disabled { name, .. } => format!("disabled:{name}"),
            Self::Environment { name } => format!("environment:{name}"),
            Self::Registry { key, name, .. } => format!(r"registry:{key}\{name}"),
            Self::DynamicPorts { .. } => "dynamic-ports:tcp".into(),
            Self::Firewall { name } => format!("firewall:{name}"),
            Self::Exclusion { process } => format!("exclusion:{process}"),
            Self::Root { sha256 } => format!("root:{sha256}"),
            Self::Network { name } => format!("network:{name}"),
            Self::Endpoint { name } => format!("endpoint:{name}"),
            Self::Lingering { process } => format!("lingering:{process}"),
        }
    }

    /// Whether two entries are about the same thing.
    pub fn is_about(&self, other: &Self) -> bool {
        same(&self.id(), &other.id())
    }
}

/// One entry of the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryEntry {
    /// Section that requires it.
    pub section: Section,
    /// The thing.
    #[serde(flatten)]
    pub made: Made,
}

/// Objects that the program created on a host, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    pub entries: Vec<InventoryEntry>,
}

impl Inventory {
    /// Whether it has an entry about this.
    pub fn has(&self, made: &Made) -> bool {
        self.noted(made).is_some()
    }

    /// What it says about this.
    pub fn noted(&self, made: &Made) -> Option<&Made> {
        let mut all = self.entries.iter().map(|entry| &entry.made);
        all.find(|noted| noted.is_about(made))
    }

    /// Notes a thing; false if nothing is new about it.
    pub fn note(&mut self, section: Section, made: Made) -> bool {
        if let Some(entry) = self
            .entries
            .iter_mut()
            .find(|entry| entry.made.is_about(&made))
        {
            let entry_is = entry.made == made && entry.section == section;
            entry.made = made;
            entry.section = section;
            return !entry_is;
        }
        self.entries.push(InventoryEntry { section, made });
        true
    }

    /// Forgets a thing.
    pub fn forget(&mut self, made: &Made) {
        self.entries.retain(|entry| !entry.made.is_about(made));
    }
}

/// Pending work and the boot in which it began: items that wait for a reboot, recorded because they may already read as
/// correct, and services that were stopped and have to start again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingWork {
    /// Boot in which the wait began.
    pub(crate) boot_id: String,
    /// Ids of items; names of services.
    pub(crate) items: Vec<String>,
}

/// Who holds the host lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) task: String,
    /// Present item.
    pub(crate) item: String,
    /// Since when, milliseconds since 1970 by the host's clock.
    pub(crate) since_ms: i64,
}

/// Objects that a boot deletes and the boot run restores, by section and in the document's order. No secrets: services
/// by name, items of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BootPlan {
    /// Of the section `host`.
    #[serde(default)]
    pub(crate) host: Vec<BootStep>,
    /// Of the section `node`.
    #[serde(default)]
    pub(crate) node: Vec<BootStep>,
}

/// One step of a boot run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum BootStep {
    /// A service that is started.
    Service {
        /// Name of the service, not its display name.
        service: String,
        /// Longest wait for it.
        start_timeout_ms: u64,
    },
    /// A network, an endpoint, a file with their addresses, a route.
    Item(Box<Item>),
}

/// How the last boot run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BootRun {
    /// Boot of the result.
    pub(crate) boot_id: String,
    /// Why it failed; empty when it did not.
    pub(crate) failure: String,
}

/// The file names in [`STATE`].
pub(crate) mod file {
    pub(crate) const LOCK: &str = "lock";
    pub(crate) const HOLDER: &str = "holder.json";
    pub(crate) const FENCE: &str = "fence.json";
    pub(crate) const INVENTORY: &str = "inventory.json";
    pub(crate) const INSTALLED: &str = "installed.json";
    pub(crate) const WAITING: &str = "reboot.json";
    pub(crate) const STOPPED: &str = "stopped.json";
    pub(crate) const LAST: &str = "last.json";
    pub(crate) const BOOT: &str = "boot.json";
    pub(crate) const BOOT_RUN: &str = "boot-run.json";
}

impl<H: Host> Session<H> {
    /// Our own folders. `state` is private from its first moment on.
    pub(crate) async fn make_our_folders(&mut self) -> Result<()> {
        for folder in [ROOT, BIN, STAGING, STATE] {
            files::make_folder(self, folder).await?;
        }
        Ok(())
    }

    /// Takes the host lock, or names the call that has held it.
    pub(crate) async fn lock(&mut self, task: &str, wait_ms: u64) -> Result<()> {
        let path = state(file::LOCK);
        let wait = self.wait("host_lock", wait_ms).await?;
        loop {
            let error = match self.ask(LockTake { path: path.clone() }).await {
                Ok(()) => break,
                Err(error) => error,
            };
            if error.number() != 32 {
                return Err(Problem::windows(
                    FailureCode::Other,
                    &format!("open {path}"),
                    &error,
                ));
            }
            if !self.again(&wait, 500).await? {
                return Err(self.busy().await);
            }
        }
        self.hold(task, "").await
    }

    /// Records the task and item for which the lock is held.
    pub(crate) async fn hold(&mut self, task: &str, item: &str) -> Result<()> {
        let holder = Holder {
            task: task.into(),
            item: item.into(),
            since_ms: self.clock().await?.now_ms,
        };
        self.write_json(&state(file::HOLDER), &holder).await
    }

    async fn busy(&mut self) -> Problem {
        let holder = self.read_json::<Holder>(&state(file::HOLDER)).await;
        let now = self.clock().await.map_or(0, |clock| clock.now_ms);
        let said = match holder {
            Ok(Some(Holder {
                task,
                item,
                since_ms,
            })) => {
                let item = if item.is_empty() {
                    String::new()
                } else {
                    format!(" at {item}")
                };
                format!(
                    "{task} works on this host{item}, for {} s",
                    (now - since_ms).max(0) / 1_000
                )
            }
            _ => "another call works on this host".into(),
        };
        Problem::new(FailureCode::HostBusy, said)
    }

    pub(crate) async fn unlock(&mut self) {
        let path = state(file::LOCK);
        let _ = self.ask(LockRelease { path }).await;
    }

    /// The largest fence on file, in our folder or in the one of earlier releases.
    pub(crate) async fn fence(&mut self) -> Result<Option<Fence>> {
        let ours: Option<Fence> = self.read_json(&state(file::FENCE)).await?;
        let old: Option<Fence> = self.read_json(&format!(r"{OLD_ROOT}\fence.json")).await?;
        Ok(ours.max(old))
    }

    /// Refuses a task older than the newest that changed this host; an equal one is a repeat.
    pub(crate) async fn take_fence(&mut self, mine: Fence) -> Result<()> {
        match self.fence().await? {
            Some(theirs) if theirs > mine => {
                let said = format!("the fence is {}.{}", theirs.generation, theirs.seq);
                Err(Problem::new(FailureCode::FenceTooOld, said))
            }
            _ => self.write_json(&state(file::FENCE), &mine).await,
        }
    }

    /// Converged versions: ours, or those that an earlier release's script noted.
    pub(crate) async fn installed(&mut self) -> Result<Vec<Installed>> {
        if let Some(ours) = self.read_json(&state(file::INSTALLED)).await? {
            return Ok(ours);
        }
        let old = format!(r"{OLD_ROOT}\installed.json");
        Ok(self.read_json(&old).await?.unwrap_or_default())
    }

    /// Takes over from an earlier release's script: keeps its notes, and deletes its folder with documents that contain
    /// tokens. The fence is on disk already: [`Session::take_fence`] wrote the larger one.
    pub(crate) async fn take_over(&mut self) -> Result<()> {
        if files::stat(self, OLD_ROOT).await?.is_none() {
            return Ok(());
        }
        let installed = self.installed().await?;
        if !installed.is_empty() {
            self.write_json(&state(file::INSTALLED), &installed).await?;
        }
        files::remove_tree(self, OLD_ROOT).await?;
        Ok(())
    }

    pub(crate) async fn inventory(&mut self) -> Result<Inventory> {
        Ok(self
            .read_json(&state(file::INVENTORY))
            .await?
            .unwrap_or_default())
    }

    pub(crate) async fn last(&mut self) -> Result<Option<LastCall>> {
        self.read_json(&state(file::LAST)).await
    }

    /// What waits for a reboot that has not happened yet.
    pub(crate) async fn waiting(&mut self, boot_id: &str) -> Result<Vec<String>> {
        let noted: Option<PendingWork> = self.read_json(&state(file::WAITING)).await?;
        Ok(noted
            .filter(|noted| same_boot(&noted.boot_id, boot_id))
            .unwrap_or_default()
            .items)
    }
}
