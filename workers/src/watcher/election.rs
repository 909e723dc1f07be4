//! Election of the publishing watcher by a Kubernetes Lease. Two publishers at once are harmless, so it need not be
//! strict.

use super::{
    cluster::{ApiFailure, sentence},
    status::Status,
};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// The Lease's name.
pub(super) const LEASE: &str = "dormer-watcher";

/// Configuration of this process as a candidate.
#[derive(Debug, Clone)]
pub struct Election {
    /// Who it is, among all watchers: a pod's name.
    pub identity: String,
    /// Silence after which a holder counts as gone; at least 1 s.
    pub duration: Duration,
}

/// Campaigns until `stop`, and then releases the Lease.
pub(super) async fn campaign(
    client: Client,
    namespace: String,
    election: Option<Election>,
    status: Arc<watch::Sender<Status>>,
    stop: CancellationToken,
) {
    let Some(election) = election else {
        status.send_modify(|status| status.elected = true);
        return stop.cancelled().await;
    };
    let leases = Api::namespaced(client, &namespace);
    let duration = election.duration.max(Duration::from_secs(1));
    let mut candidate = Candidate {
        leases,
        identity: election.identity,
        duration,
        renewed: None,
        last_renewal: None,
        status,
        trouble: None,
    };
    let mut again = tokio::time::interval(duration / 5);
    again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = again.tick() => candidate.once().await,
        }
    }
    candidate.give_back().await;
}

struct Candidate {
    leases: Api<Lease>,
    identity: String,
    duration: Duration,
    /// When this process last wrote the Lease.
    renewed: Option<Instant>,
    /// The Lease's resourceVersion at the last read, and since when it is unchanged. Silence is measured by our own
    /// clock, never by the times in the object.
    last_renewal: Option<(String, Instant)>,
    status: Arc<watch::Sender<Status>>,
    /// What went wrong with the last try.
    trouble: Option<String>,
}

impl Candidate {
    /// Reads the Lease, and takes or renews it if that is due.
    async fn once(&mut self) {
        let began = Instant::now();
        let limit = self.duration / 3;
        let tried = tokio::time::timeout(limit, self.try_hold()).await;
        let slow =
            || ApiFailure("the Lease of the watchers: the API server is too slow".to_owned());
        match tried.unwrap_or_else(|_| Err(slow())) {
            Ok(Some(holder)) if holder == self.identity => {
                self.all_is_well();
                self.renewed = Some(began);
                self.show(true, Some(holder));
            }
            Ok(holder) => {
                self.all_is_well();
                self.renewed = None;
                self.show(false, holder);
            }
            Err(trouble) => {
                if self.trouble.as_ref() != Some(&trouble.0) {
                    tracing::warn!("{trouble}");
                }
                // A holder that cannot renew steps down. Another one may take over before, if this request took long: two
                // watchers that publish the same facts do no harm.
                let holds = self
                    .renewed
                    .is_some_and(|at| at.elapsed() < self.duration * 2 / 3);
                self.show(holds, holds.then(|| self.identity.clone()));
                self.status
                    .send_modify(|status| status.error = Some(trouble.0.clone()));
                self.trouble = Some(trouble.0);
            }
        }
    }

    fn all_is_well(&mut self) {
        let Some(trouble) = self.trouble.take() else {
            return;
        };
        self.status
            .send_if_modified(|status| status.error.take_if(|now| *now == trouble).is_some());
    }

    fn show(&self, elected: bool, holder: Option<String>) {
        self.status.send_if_modified(|status| {
            if (status.elected, &status.holder) == (elected, &holder) {
                return false;
            }
            if status.elected != elected {
                tracing::info!(elected, holder, "the watcher's leader changed");
            }
            status.elected = elected;
            status.holder = holder;
            true
        });
    }

    /// Who holds the Lease after this try.
    async fn try_hold(&mut self) -> Result<Option<String>, ApiFailure> {
        let what = "the Lease dormer-watcher";
        let found = self.leases.get_opt(LEASE).await;
        let Some(lease) = found.map_err(|error| sentence("get", what, &error))? else {
            let made = self
                .leases
                .create(&PostParams::default(), &self.mine(None))
                .await;
            return match made {
                Ok(_) => Ok(Some(self.identity.clone())),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
                Err(error) => Err(sentence("create", what, &error)),
            };
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        if let Some(holder) = &holder
            && *holder != self.identity
            && !self.silent(&lease, spec.lease_duration_seconds)
        {
            return Ok(Some(holder.clone()));
        }
        let replaced = self
            .leases
            .replace(LEASE, &PostParams::default(), &self.mine(Some(lease)))
            .await;
        match replaced {
            Ok(_) => Ok(Some(self.identity.clone())),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(sentence("update", what, &error)),
        }
    }

    /// Whether the Lease has not changed for as long as its holder promised to renew it.
    fn silent(&mut self, lease: &Lease, seconds: Option<i32>) -> bool {
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.last_renewal {
            Some((same, since)) if *same == version => *since,
            _ => {
                let now = Instant::now();
                self.last_renewal = Some((version, now));
                now
            }
        };
        let promised = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        since.elapsed() > promised.map_or(self.duration, Duration::from_secs)
    }

    /// The Lease as this process writes it, over `before`.
    fn mine(&self, before: Option<Lease>) -> Lease {
        let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
        let (metadata, old) = match before {
            Some(mut lease) => {
                lease.metadata.managed_fields = None;
                (lease.metadata, lease.spec.unwrap_or_default())
            }
            None => {
                let name = Some(LEASE.to_owned());
                (
                    ObjectMeta {
                        name,
                        ..ObjectMeta::default()
                    },
                    LeaseSpec::default(),
                )
            }
        };
        let same = old.holder_identity.as_deref() == Some(&*self.identity);
        let transitions = old.lease_transitions.unwrap_or_default();
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            acquire_time: if same {
                old.acquire_time
            } else {
                Some(now.clone())
            },
            renew_time: Some(now),
            lease_transitions: Some(if same {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        };
        Lease {
            metadata,
            spec: Some(spec),
        }
    }

    /// Lets the next watcher take over at once.
    async fn give_back(&mut self) {
        if self.renewed.is_none() {
            return;
        }
        self.show(false, None);
        let give = async {
            let lease = self.leases.get_opt(LEASE).await.ok().flatten()?;
            let holder = lease
                .spec
                .as_ref()
                .and_then(|spec| spec.holder_identity.clone());
            let mut free = self.mine(Some(lease));
            free.spec.as_mut()?.holder_identity = None;
            if holder.as_deref() == Some(&*self.identity) {
                self.leases
                    .replace(LEASE, &PostParams::default(), &free)
                    .await
                    .ok()?;
            }
            Some(())
        };
        let given = tokio::time::timeout(self.duration / 3, give).await;
        if !matches!(given, Ok(Some(()))) {
            tracing::info!("the Lease is not given back; it lapses");
        }
    }
}
