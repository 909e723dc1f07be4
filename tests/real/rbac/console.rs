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

const OPENSHIFT: &str = "config.openshift.io";
const MACHINES: &str = "machine.openshift.io";
const AUTOSCALING: &str = "autoscaling.openshift.io";
/// Objects that a survey reads by their names.
const SURVEYED_BY_NAME: [(Kind, &str); 4] = [
    ((OPENSHIFT, "v1", "Infrastructure"), "cluster"),
    ((OPENSHIFT, "v1", "ClusterVersion"), "version"),
    ((OPENSHIFT, "v1", "Network"), "cluster"),
    (("operator.openshift.io", "v1", "Network"), "cluster"),
];
/// Kinds that a survey lists.
const SURVEYED: [Kind; 6] = [
    (MACHINES, "v1beta1", "MachineSet"),
    (MACHINES, "v1beta1", "MachineHealthCheck"),
    NODE,
    WINDOWS_POOL,
    (AUTOSCALING, "v1beta1", "MachineAutoscaler"),
    ("node.k8s.io", "v1", "RuntimeClass"),
];

/// A read that the survey gains without a right in `deploy/rbac.yaml` is left out, and nothing says so.
#[test]
fn a_survey_of_a_dormer_that_runs_reads_these_kinds() {
    let source = include_str!("../../../src/preflight/survey.rs");
    let body = |name: &str| {
        let (_, after) = source.split_once(name).expect("the function");
        after
            .split_once("\n    }\n")
            .map_or(after, |(body, _)| body)
    };
    let cluster = body("async fn cluster(");
    let (_, running) = source
        .split_once("async fn read_while_running(")
        .expect("the function");
    let (running, _) = running.split_once("\n}\n").expect("its end");
    // Only kinds are texts that begin so; versions and names are lower case.
    let texts = cluster.split('"').chain(running.split('"')).skip(1);
    let read: Vec<&str> = texts.filter(|it| is_kind(it)).collect();
    let by_name = SURVEYED_BY_NAME.iter().map(|(kind, _)| kind.2);
    let known: Vec<&str> = by_name.chain(SURVEYED.iter().map(|kind| kind.2)).collect();
    assert_eq!(read, known);
}

fn is_kind(text: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_uppercase())
        && text.chars().all(|it| it.is_ascii_alphabetic())
}

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

    /// Reads what a survey of a dormer that runs reads; the API server may have no such kind.
    pub(super) async fn surveys_the_cluster(&self) -> Result<(), kube::Error> {
        for (kind, name) in SURVEYED_BY_NAME {
            absent(self.console.api(kind, "").get(name).await)?;
        }
        for kind in SURVEYED {
            let namespace = match kind.0 {
                MACHINES | AUTOSCALING => self.site.machines.as_str(),
                _ => "",
            };
            let all = self.console.api(kind, namespace);
            absent(all.list(&ListParams::default()).await)?;
        }
        Ok(())
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

/// An object or a kind that is not there is none. Who may not read it is refused before that is looked up.
fn absent<T>(read: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match read {
        Err(kube::Error::Api(why)) if why.code == 404 => Ok(()),
        read => read.map(drop),
    }
}
