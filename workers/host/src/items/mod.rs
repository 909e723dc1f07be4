//! Kinds of items, one file each, with the same four functions: read the present state (`read`), compare it
//! (`differs`), correct it (`make`), delete it (`remove`). Plan, apply, drift and removal consist of these.

pub(crate) mod certificate;
pub(crate) mod defender;
pub(crate) mod directory;
pub(crate) mod disabled;
pub(crate) mod dynamic_ports;
pub(crate) mod endpoint;
pub(crate) mod environment;
pub(crate) mod evidence;
pub(crate) mod feature;
pub(crate) mod file;
pub(crate) mod firewall;
pub(crate) mod hns;
pub(crate) mod hostname;
pub(crate) mod image;
pub(crate) mod network;
pub(crate) mod network_file;
pub(crate) mod registry;
pub(crate) mod route;
pub(crate) mod service;
pub(crate) mod sweep;

use std::future::Future;

use dormer_profile::{
    document::ChangeClass,
    item::{Item, ItemKind},
};

use crate::{ops::Host, problem::Result, progress::Run, state::Made};

/// Outcome of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// As desired, perhaps with a note.
    Ok(String),
    /// It differed, and was corrected.
    Changed(String),
    /// It differs, and was not changed.
    Differs(String),
    /// It matches only after a reboot.
    Reboot(String),
    /// Its content must be uploaded first; this is the path.
    Missing(String),
}

/// Result of `differs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ItemVerdict {
    /// As desired, perhaps with a note.
    Right(String),
    /// It differs.
    Wrong(String),
    /// It matches only after a reboot.
    AfterReboot(String),
    /// It differs, and its content must be uploaded first; this is the path.
    Missing(String),
}

impl ItemVerdict {
    pub(crate) const fn right() -> Self {
        Self::Right(String::new())
    }

    pub(crate) fn wrong(detail: impl Into<String>) -> Self {
        Self::Wrong(detail.into())
    }
}

/// One kind of item.
pub(crate) trait Kind: Sync {
    /// Present state.
    type CurrentState: Send;

    /// Reads the present state; changes nothing.
    fn read<H: Host>(
        &self,
        run: &mut Run<H>,
    ) -> impl Future<Output = Result<Self::CurrentState>> + Send;

    /// Compares without a request to the host.
    fn differs(&self, found: &Self::CurrentState) -> ItemVerdict;

    /// Makes the item as desired.
    fn make<H: Host>(
        &self,
        run: &mut Run<H>,
        id: &str,
        found: Self::CurrentState,
    ) -> impl Future<Output = Result<Step>> + Send;

    /// Minimum change class of making the item on this host, if that disturbs more than the item's own class.
    fn least_change_class(&self, _found: &Self::CurrentState) -> Option<ChangeClass> {
        None
    }

    /// Inventory entry of an item that is correct, or is about to be made; `None` if dormer must not remove it.
    /// `found`: it existed and was correct before this call.
    fn made(&self, found: bool) -> Option<Made>;
}

/// Converges one item, or reports its difference.
pub(crate) async fn converge<H: Host>(run: &mut Run<H>, item: &Item) -> Result<Step> {
    let id = &item.id;
    let of_hns = matches!(
        item.what,
        ItemKind::HnsNetwork(_) | ItemKind::HnsEndpoint(_) | ItemKind::NetworkFile(_)
    );
    if of_hns && hns::rests(run).await? {
        return Ok(Step::Ok("hns does not run: not compared".into()));
    }
    match &item.what {
        ItemKind::Directory(what) => one(run, id, what).await,
        ItemKind::File(what) => one(run, id, what).await,
        ItemKind::Feature(what) => one(run, id, what).await,
        ItemKind::Hostname(what) => one(run, id, what).await,
        ItemKind::Environment(what) => one(run, id, what).await,
        ItemKind::Registry(what) => one(run, id, what).await,
        ItemKind::DynamicPorts(what) => one(run, id, what).await,
        ItemKind::Service(what) => one(run, id, what).await,
        ItemKind::Image(what) => one(run, id, what).await,
        ItemKind::Firewall(what) => one(run, id, what).await,
        ItemKind::DefenderExclusion(what) => one(run, id, what).await,
        ItemKind::Certificate(what) => one(run, id, what).await,
        ItemKind::HnsNetwork(what) => one(run, id, what).await,
        ItemKind::HnsEndpoint(what) => one(run, id, what).await,
        ItemKind::NetworkFile(what) => one(run, id, what).await,
        ItemKind::Route(what) => one(run, id, what).await,
        ItemKind::SteadyService(what) => evidence::steady(run, what).await,
        ItemKind::Http(what) => evidence::http(run, what).await,
        ItemKind::Sweep(what) => sweep::versions(run, what).await,
        ItemKind::OnlyFolders(what) => sweep::folders(run, what).await,
        ItemKind::OnlyCertificates(what) => sweep::certificates(run, what).await,
        ItemKind::NewestFiles(what) => sweep::newest(run, what).await,
        ItemKind::DisabledService(what) => one(run, id, what).await,
        ItemKind::Lingering(what) => {
            if run.apply {
                let process = what.process.clone();
                run.note(Made::Lingering { process }).await?;
            }
            Ok(Step::Ok(String::new()))
        }
    }
}

async fn one<H: Host, K: Kind>(run: &mut Run<H>, id: &str, kind: &K) -> Result<Step> {
    let found = kind.read(run).await?;
    match kind.differs(&found) {
        ItemVerdict::Right(detail) => {
            if run.apply {
                claim(run, kind.made(true)).await?;
            }
            Ok(Step::Ok(detail))
        }
        ItemVerdict::AfterReboot(detail) => Ok(Step::Reboot(detail)),
        ItemVerdict::Missing(path) => Ok(Step::Missing(path)),
        ItemVerdict::Wrong(detail) if !run.apply => {
            run.least_change_class = kind.least_change_class(&found);
            Ok(Step::Differs(detail))
        }
        ItemVerdict::Wrong(_) => {
            claim(run, kind.made(false)).await?;
            kind.make(run, id, found).await
        }
    }
}

async fn claim<H: Host>(run: &mut Run<H>, made: Option<Made>) -> Result<()> {
    match made {
        Some(made) => run.note(made).await,
        None => Ok(()),
    }
}
