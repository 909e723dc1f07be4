//! Steps of the console.

use super::bench::Bench;
use crate::real::{
    accounts::home,
    cluster::{Kind, NODE, WINDOWS_POOL},
    watching::settings,
};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

impl Bench {
    /// All that the console does with an object of its own, in the order in which it does it, and an Event beside.
    pub(super) async fn shows(
        &self,
        kind: Kind,
        listed: &str,
        (namespace, name): &(String, String),
    ) -> Result<(), kube::Error> {
        let api = self.console.api(kind, namespace);
        self.console
            .api(kind, listed)
            .list(&ListParams::default())
            .await?;
        let labels = json!({"app.kubernetes.io/managed-by": "dormer",
            "app.kubernetes.io/instance": home(&self.site)});
        let object = json!({"apiVersion": format!("{}/{}", kind.0, kind.1), "kind": kind.2,
            "metadata": {"name": name, "namespace": namespace, "labels": labels}});
        self.console.try_create(object).await?;
        let status = Patch::Merge(json!({"status": {"waitingFor": "nothing"}}));
        api.patch_status(name, &PatchParams::default(), &status)
            .await?;
        api.delete(name, &DeleteParams::default()).await?;
        self.reports(namespace, kind, name).await
    }

    /// The status of people's pool, which the console neither makes nor deletes, and an Event beside.
    pub(super) async fn shows_the_pool(&self, number: u32) -> Result<(), kube::Error> {
        let home = home(&self.site);
        settings(&self.site, json!({"paused": false})).await;
        let api = self.console.api(WINDOWS_POOL, &home);
        api.list(&ListParams::default()).await?;
        let status = Patch::Merge(json!({"status": {"waitingFor": format!("number {number}")}}));
        api.patch_status("windows", &PatchParams::default(), &status)
            .await?;
        self.reports(&home, WINDOWS_POOL, "windows").await
    }

    pub(super) async fn reports_a_node(&self, name: &str) -> Result<(), kube::Error> {
        let condition = json!({"type": "DormerConfigured", "status": "True"});
        let status = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let nodes: Api<Node> = Api::all(self.console.admin.clone());
        nodes
            .patch_status(name, &PatchParams::default(), &status)
            .await?;
        self.reports("default", NODE, name).await
    }

    /// Looks whether anybody scrapes, and makes, changes and removes an EndpointSlice.
    pub(super) async fn lists_exporters(&self) -> Result<(), kube::Error> {
        const SLICE: Kind = ("discovery.k8s.io", "v1", "EndpointSlice");
        let home = home(&self.site);
        let name = "dormer-windows-exporter-0";
        let api = self.console.api(SLICE, &home);
        self.console
            .api(("", "v1", "Service"), &home)
            .get_opt("dormer-windows-exporter")
            .await?;
        api.list(&ListParams::default()).await?;
        for address in ["10.0.0.1", "10.0.0.2"] {
            let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": name, "labels": {
                    "kubernetes.io/service-name": "dormer-windows-exporter"}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [address]}]});
            let params = PatchParams::apply("dormer-console").force();
            api.patch(name, &params, &Patch::Apply(slice)).await?;
        }
        api.delete(name, &DeleteParams::default()).await.map(drop)
    }

    async fn reports(&self, namespace: &str, of: Kind, name: &str) -> Result<(), kube::Error> {
        let version = if of.0.is_empty() {
            of.1.into()
        } else {
            format!("{}/{}", of.0, of.1)
        };
        let mut about = json!({"apiVersion": version, "kind": of.2, "name": name});
        if namespace != "default" {
            about["namespace"] = namespace.into();
        }
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"generateName": "shown-", "namespace": namespace},
            "eventTime": "2026-11-21T13:00:00.000000Z", "type": "Normal", "reason": "Joined",
            "action": "Joined", "regarding": about, "reportingController": "dormer.io/console",
            "reportingInstance": "one"});
        self.console.try_create(event).await.map(drop)
    }
}
