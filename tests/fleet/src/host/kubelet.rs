//! The kubelet of a host: TLS bootstrap, its Node, its pods, its silence when it stops.

mod api;
mod certificate;
mod node;
mod pods;
mod port;
mod settings;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use api::{Api, KubeletIdentity};
use serde_json::json;
use settings::Settings;

use super::computer::{Host, lock};
use crate::faults::Fault;
use crate::world::{Happened, Platform};

/// The port on which a kubelet answers (kubernetes v1.33, `pkg/cluster/ports/ports.go`, `KubeletPort`).
pub(crate) const KUBELET_PORT: u16 = 10_250;
/// How often a kubelet renews its Lease.
const RENEWAL: Duration = Duration::from_secs(10);
/// Beats of the Lease after which the whole status is posted again.
const STATUS_BEATS: u64 = 30;
/// How long it waits before it tries again what failed.
const AGAIN: Duration = Duration::from_secs(10);
/// How far the clock may be off before certificates are not valid.
const SKEW_MAX_MS: i64 = 300_000;
/// How long [`Fault::Partition`] lasts: longer than a node may be silent, shorter than its pods are tolerated.
const PARTITION: Duration = Duration::from_secs(90);
/// Where hybrid-overlay's subnet of a node stands.
const HYBRID_SUBNET: &str = "k8s.ovn.org/hybrid-overlay-node-subnet";

impl Host {
    /// Life of the kubelet; it ends when its service stops or the power fails.
    pub(super) async fn run_kubelet(self: Arc<Self>, command: String) {
        let again = std::mem::replace(&mut self.state().had_kubelet, true);
        let machine = self.uid().to_owned();
        self.context
            .record
            .push(Happened::KubeletStarted { machine, again });
        self.at("kubelet started").await;
        while self.state().clock_offset_ms.abs() > SKEW_MAX_MS {
            self.sleep(AGAIN).await; // "certificate is not yet valid", again and again
        }
        let settings = loop {
            match Settings::read(&self, &command) {
                Ok(settings) => break settings,
                Err(why) => self.complain("configuration", &why).await,
            }
        };
        let api = loop {
            match self.client_api(&settings).await {
                Ok(api) => break Arc::new(api.behind(self.cut.subscribe())),
                Err(why) => self.complain("bootstrap", &why).await,
            }
        };
        *lock(&self.kubelet_api) = Some((api.clone(), settings.node.clone()));
        while let Err(why) = self.register(&api, &settings).await {
            self.complain("registration", &why).await;
        }
        if self.order.platform == Platform::Own {
            // No Machine names its Node.
            let record = &self.context.record;
            record.node_of(self.uid(), &settings.node);
        }
        self.at("kubelet registered").await;
        let _ = self.ready.send_replace(false);
        tokio::join!(
            self.beat(&api, &settings),
            self.serving_certificate(&api, &settings),
            self.run_pods(&api, &settings),
            self.answer(&settings),
        );
    }

    async fn complain(&self, what: &str, why: &str) {
        tracing::debug!(machine = self.name(), what, why, "kubelet tries again");
        self.sleep(AGAIN).await;
    }

    /// Lease and status, for ever.
    async fn beat(&self, api: &Api, settings: &Settings) {
        let mut last_status = None;
        for beat in 0_u64.. {
            self.may_be_cut_off(api, settings).await;
            let ready = self.node_ready();
            let flap = ready.is_ok() && self.strike(Fault::Flapping);
            if flap {
                self.flap(api, settings).await;
            }
            if last_status.as_ref() != Some(&ready) || beat % STATUS_BEATS == 0 {
                let _ = self.ready.send_replace(ready.is_ok());
                if self.post_status(api, settings, &ready).await.is_ok() {
                    if ready.is_ok() {
                        self.at("node ready").await;
                    }
                    last_status = Some(ready);
                }
            }
            self.renew_lease(api, settings, beat).await;
            let quick = last_status.as_ref().is_none_or(Result::is_err);
            self.sleep(if quick { RENEWAL / 5 } else { RENEWAL }).await;
        }
    }

    async fn flap(&self, api: &Api, settings: &Settings) {
        for _ in 0..3 {
            let _ = self.post_status(api, settings, &Ok(())).await;
            self.sleep(Duration::from_secs(20)).await;
            let not = Err("container runtime is down".to_owned());
            let _ = self.post_status(api, settings, &not).await;
            self.sleep(Duration::from_secs(20)).await;
        }
    }

    /// Faults between a kubelet and its API server. A kubelet without a connection sends nothing and ends no pod; the
    /// containers of its node keep running.
    async fn may_be_cut_off(&self, api: &Api, settings: &Settings) {
        let lasts = |fault| self.context.faults.lasts(fault, self.name());
        if self.silent_in_drain(api, settings).await {
            self.cut_off(lasts(Fault::NotReadyInDrain));
        }
        if !*self.ready.borrow() || !self.context.record.upgrade_begun() {
            return;
        }
        if self.strike(Fault::Partition) {
            self.cut_off(Some(lasts(Fault::Partition).unwrap_or(PARTITION)));
        }
        if self.strike(Fault::DeadForGood) {
            self.power_off();
        }
    }

    /// Cuts the connection to the API server for a time or for good; a restart of the kubelet does not restore it.
    fn cut_off(&self, lasts: Option<Duration>) {
        self.cut.send_replace(true);
        let (Some(host), Some(lasts)) = (self.me.upgrade(), lasts) else {
            return;
        };
        tokio::spawn(async move {
            host.sleep(lasts).await;
            host.cut.send_replace(false);
        });
    }

    /// [`Fault::NotReadyInDrain`]: the kubelet falls silent when its node is cordoned and one of its pods is being
    /// deleted.
    async fn silent_in_drain(&self, api: &Api, settings: &Settings) -> bool {
        if !self.armed(Fault::NotReadyInDrain) {
            return false;
        }
        let Ok((200, node)) = api.get(&format!("/api/v1/nodes/{}", settings.node)).await else {
            return false;
        };
        let cordoned = node["spec"]["unschedulable"].as_bool() == Some(true);
        cordoned && self.strike(Fault::NotReadyInDrain)
    }

    async fn renew_lease(&self, api: &Api, settings: &Settings, beat: u64) {
        const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let spec = json!({
            "holderIdentity": settings.node,
            "leaseDurationSeconds": 40,
            "renewTime": self.context.clock.stamp_micro(),
        });
        let path = format!("{LEASES}/{}", settings.node);
        let renewed = api.merge(&path, &json!({"spec": spec})).await;
        if beat == 0 || matches!(renewed, Ok((404, _))) {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": settings.node, "namespace": "kube-node-lease"},
                "spec": spec,
            });
            let _ = api.post(LEASES, &lease).await;
        }
    }

    /// The node's hybrid-overlay subnet: allocated by the stand-in when the Node has none, once there is a Node.
    pub(super) async fn hybrid_overlay_subnet(&self) -> String {
        loop {
            let known = lock(&self.kubelet_api).clone();
            if let Some((api, node)) = known
                && let Some(subnet) = self.allocate_subnet(&api, &node).await
            {
                return subnet;
            }
            self.sleep(Duration::from_secs(2)).await;
        }
    }

    async fn allocate_subnet(&self, api: &Api, node: &str) -> Option<String> {
        let path = format!("/api/v1/nodes/{node}");
        let (200, found) = api.get(&path).await.ok()? else {
            return None;
        };
        if let Some(subnet) = found["metadata"]["annotations"][HYBRID_SUBNET].as_str() {
            return Some(subnet.to_owned());
        }
        let ip = self.internal_ip();
        let mut octets = ip.split('.').skip(2);
        let third: u16 = octets.next()?.parse().ok()?;
        let fourth: u16 = octets.next()?.parse().ok()?;
        let subnet = format!("10.{}.{fourth}.0/24", 132 + third % 64);
        let patch = json!({"metadata": {"annotations": {HYBRID_SUBNET: subnet}}});
        let (code, _) = api.merge(&path, &patch).await.ok()?;
        (code == 200).then_some(subnet)
    }

    /// Ends when the host's Node was posted as Ready.
    pub(super) async fn node_is_ready(&self) {
        let mut ready = self.ready.subscribe();
        let _ = ready.wait_for(|ready| *ready).await;
    }
}
