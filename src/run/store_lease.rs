//! Kubernetes Lease of a process whose store is a folder. Two such processes with different folders would both manage
//! the cluster without knowing each other's leases and fences. It is the Lease of the elected watcher, which such a
//! process renews as a watcher (`workers/src/watcher/election.rs`).

use anyhow::{Context, bail};
use dormer_proto::id::Incarnation;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use std::{os::unix::fs::MetadataExt, path::Path, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};

/// The Lease's name.
const LEASE: &str = "dormer-watcher";
/// Additional silence after which a holder counts as ended, beyond the promised duration, for a slow API server.
const SLOW: Duration = Duration::from_secs(5);
/// Interval of reading a held Lease.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Time limit of one call to the API server.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Prefix in a holder's name before the id of its store.
const STORE: &str = "/store-";

/// Proof that a Lease is still held: when it was last read under this process's name.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    read: watch::Receiver<Instant>,
    max: Duration,
}

/// Writer of a [`Proof`].
#[derive(Debug)]
pub(crate) struct Prove(watch::Sender<Instant>);

/// Proof that stays fresh for `max`, beginning now.
pub(crate) fn proof(max: Duration) -> (Prove, Proof) {
    let (prove, read) = watch::channel(Instant::now());
    (Prove(prove), Proof { read, max })
}

impl Prove {
    /// Notes that the Lease was read just now.
    pub(crate) fn now(&self) {
        self.0.send_replace(Instant::now());
    }
}

impl Proof {
    /// Time since the Lease was read.
    pub(crate) fn age(&self) -> Duration {
        self.read.borrow().elapsed()
    }

    /// Whether no other process can have taken the Lease. A process that waits for its expiry waits longer.
    pub(crate) fn is_fresh(&self) -> bool {
        self.age() < self.max
    }

    /// Returns once the Lease was read again.
    pub(crate) async fn fresh(&self) {
        let mut read = self.read.clone();
        if read.wait_for(|at| at.elapsed() < self.max).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Lease of this process.
pub(crate) struct StoreLease {
    leases: Api<Lease>,
    namespace: String,
    identity: String,
    duration: Duration,
}

impl StoreLease {
    /// Lease for the process `name` with the store `incarnation` in `folder`. One process at a time opens that folder.
    pub(crate) fn new(
        client: &Client,
        namespace: &str,
        name: &str,
        (incarnation, folder): (Incarnation, &Path),
        duration: Duration,
    ) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            identity: format!("{name}{STORE}{:016x}@{}", incarnation.0, location(folder)),
            duration,
        }
    }

    /// Name under which this process holds the Lease.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Takes the Lease. A holder that does not renew it within its time has ended. dormer does not wait for a process
    /// that ended on this same store.
    ///
    /// # Errors
    /// Another process renews the Lease, or the API server refuses.
    pub(crate) async fn take(&self) -> anyhow::Result<()> {
        let mut every = tokio::time::interval(READ_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut waited: Option<(Option<String>, Instant)> = None;
        loop {
            every.tick().await;
            let Some(lease) = self.read().await? else {
                if self.written(None).await? {
                    return Ok(());
                }
                continue;
            };
            let spec = lease.spec.clone().unwrap_or_default();
            let holder = spec.holder_identity.clone().unwrap_or_default();
            if holder.is_empty() || store_of(&holder) == store_of(&self.identity) {
                if self.written(Some(lease)).await? {
                    return Ok(());
                }
                continue;
            }
            let version = lease.metadata.resource_version.clone();
            let promised = spec.lease_duration_seconds.unwrap_or_default();
            let promised = Duration::from_secs(u64::try_from(promised).unwrap_or_default());
            let silence = promised.max(self.duration) + SLOW;
            match &waited {
                None => {
                    tracing::warn!(
                        holder,
                        "another dormer may run for this cluster; waiting up to {} s for a sign of life",
                        silence.as_secs()
                    );
                    waited = Some((version, Instant::now()));
                }
                // Clocks are not compared: a live holder writes the Lease again.
                Some((before, _)) if *before != version => bail!(self.refusal(&spec)),
                Some((_, since)) if since.elapsed() > silence => {
                    if self.written(Some(lease)).await? {
                        tracing::warn!(holder, "its Lease lapsed: this dormer takes over");
                        return Ok(());
                    }
                    waited = None;
                }
                Some(_) => {}
            }
        }
    }

    /// Returns when another process has the Lease: this one could not renew it, and was taken for ended. A process that
    /// was cut off from the API server can write nothing there; once it answers again, the Lease is read within a
    /// fifth of its duration.
    /// Each reading renews the proof.
    pub(crate) async fn lost(&self, prove: &Prove) -> anyhow::Result<()> {
        let mut every = tokio::time::interval(self.duration / 5);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            // Without an answer no new work begins, and the watcher reports the problem.
            let Ok(Some(lease)) = self.read().await else {
                continue;
            };
            let spec = lease.spec.unwrap_or_default();
            let holder = spec.holder_identity.clone().unwrap_or_default();
            if holder == self.identity {
                prove.now();
            } else if !holder.is_empty() {
                bail!(self.refusal(&spec));
            }
        }
    }

    /// Who holds the Lease, since when, and what to do.
    fn refusal(&self, spec: &LeaseSpec) -> String {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let since = spec.acquire_time.as_ref();
        let since = since.map_or_else(
            || "a time that it does not say".to_owned(),
            |MicroTime(at)| format!("{at:.0}"),
        );
        let namespace = &self.namespace;
        format!(
            "another dormer runs for this cluster: {holder} holds the Lease {namespace}/{LEASE} since {since}, and renews \
             it. Two stores would give every node to two rollouts. End that dormer first (kubectl -n {namespace} get \
             pods, or the process of that name), or use its store (--store nats://HOST:PORT for several processes)"
        )
    }

    async fn read(&self) -> anyhow::Result<Option<Lease>> {
        let asked = tokio::time::timeout(ANSWER_MAX, self.leases.get_opt(LEASE)).await;
        let failed = || format!("the Lease {}/{LEASE} cannot be read", self.namespace);
        asked
            .context("no answer within 10 s")
            .with_context(failed)?
            .with_context(failed)
    }

    /// Writes the Lease over `before`. `false`: another process was faster.
    async fn written(&self, before: Option<Lease>) -> anyhow::Result<bool> {
        let params = PostParams::default();
        let lease = self.mine(before);
        let write = async {
            match lease.metadata.resource_version {
                Some(_) => self.leases.replace(LEASE, &params, &lease).await,
                None => self.leases.create(&params, &lease).await,
            }
        };
        let asked = tokio::time::timeout(ANSWER_MAX, write).await;
        let namespace = &self.namespace;
        let failed = || {
            format!(
                "the Lease {namespace}/{LEASE} cannot be written. It keeps a second dormer away: the namespace must be \
                 there (--namespace), and the account needs get, create and update on leases in it (deploy/rbac.yaml)"
            )
        };
        match asked
            .context("no answer within 10 s")
            .with_context(failed)?
        {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error).with_context(failed),
        }
    }

    /// The Lease as this process writes it, over `before`.
    fn mine(&self, before: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let before = before.unwrap_or_default();
        let old = before.spec.unwrap_or_default();
        let transitions = old.lease_transitions.unwrap_or_default();
        let metadata = ObjectMeta {
            name: Some(LEASE.to_owned()),
            managed_fields: None,
            ..before.metadata
        };
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions.saturating_add(1)),
            ..LeaseSpec::default()
        };
        Lease {
            metadata,
            spec: Some(spec),
        }
    }
}

/// Where a folder lies: host, boot of the host, file system and inode, path. A copy of a store has its incarnation, and
/// lies elsewhere; two containers of one host may have the same name and path.
fn location(folder: &Path) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let host = read("/proc/sys/kernel/hostname");
    let boot = read("/proc/sys/kernel/random/boot_id");
    let boot = boot.split('-').next().unwrap_or_default();
    let about = std::fs::metadata(folder);
    let inode = about.map_or_else(
        |_| String::new(),
        |about| format!("{:x}-{:x}", about.dev(), about.ino()),
    );
    let folder = folder.canonicalize();
    let folder = folder.map_or_else(|_| String::new(), |it| it.display().to_string());
    format!("{}-{}-{inode}{folder}", host.trim(), boot.trim())
}

/// Store in a holder's name, and where it lies. `None`: a watcher whose store is NATS.
fn store_of(holder: &str) -> Option<&str> {
    holder.rsplit_once(STORE).map(|(_, store)| store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_says_which_store_it_has() {
        assert_eq!(store_of("pc-71/store-00ff"), Some("00ff"));
        assert_eq!(store_of("dormer-watcher-abc"), None);
    }

    #[test]
    fn a_copy_of_a_store_is_another_holder() {
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let [here, copy] = folders.each_ref().map(|folder| location(folder.path()));
        assert_ne!(here, copy);
        assert_eq!(here, location(folders[0].path()));
        assert!(
            here.ends_with(
                &folders[0]
                    .path()
                    .canonicalize()
                    .expect("a path")
                    .display()
                    .to_string()
            )
        );
    }
}
