//! Steps of the watcher.

use super::bench::Bench;
use crate::real::{
    accounts::home,
    cluster::{Kind, PATIENCE, executor},
    watcher::{bad_settings, candidate},
    watching::{Recorder, Watching, settings},
};
use dormer_proto::other_operator::OtherOperator;
use dormer_testkit::await_condition;
use dormer_workers::{
    host::cluster::Cluster,
    kubernetes::{changing, operators},
    watcher::SourceState,
};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::watch;

/// How the Windows builds of these steps begin, which no other test has.
const BUILD: &str = "10.77";

impl Bench {
    pub(super) async fn bad_setting(&self, number: u32) -> Result<(), String> {
        let before = bad_settings(&self.site).await.len();
        settings(&self.site, json!({"payload": format!("9.9.{number}")})).await;
        let watching = Watching::start(&self.site, self.watcher.clone());
        // The Event is written before this is said.
        watching
            .until_status("it is refused", |status| status.pool_refused.is_some())
            .await;
        watching.stop().await;
        settings(&self.site, json!({"payload": "installed"})).await;
        let result = bad_settings(&self.site).await.len() > before;
        if result {
            Ok(())
        } else {
            Err("there is no Event".into())
        }
    }

    /// A lock whose holder is gone: its Pod is looked for, too. It stops no watcher that may read it.
    pub(super) async fn finds_operators(&self) -> Result<(), String> {
        let lock = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "windows-machine-config-operator-lock", "namespace": home(&self.site)},
            "spec": {"holderIdentity": "windows-machine-config-operator-gone_1"}});
        // It is there after the first time.
        drop(self.site.world.try_create(lock).await);
        let seen = operators::check(&self.watcher).await;
        match seen.unread {
            Some(why) => Err(why),
            None if seen.neighbour == OtherOperator::Absent => Ok(()),
            None => Err(format!("{:?}", seen.neighbour)),
        }
    }

    /// What else changes the cluster, of kinds that this API server may not have at all.
    pub(super) async fn finds_changes(&self) -> Result<(), String> {
        let before = changing::ClusterChanges::default();
        let machines = Some(self.site.machines.as_str());
        let seen = changing::check(&self.watcher, machines, None, &before).await;
        seen.unread.map_or(Ok(()), Err)
    }

    /// The watcher reads the pool's layers itself, beside what it watches of the pool.
    pub(super) async fn reads_layers(&self) -> Result<(), String> {
        let executor = executor(self.watcher.clone(), home(&self.site));
        executor.read_cluster().await.layers.map(drop)
    }

    /// Each setting is watched, also those of kinds that this API server does not have.
    pub(super) async fn follows_settings(&self) -> Result<(), String> {
        let watching = Watching::start(&self.site, self.watcher.clone());
        let status = watching
            .until_status("their watches have begun", |status| {
                status.settings.is_some()
            })
            .await;
        watching.stop().await;
        match status.settings {
            Some(SourceState::Forbidden(why)) => Err(why),
            _ => Ok(()),
        }
    }

    /// The Lease is taken, and renewed once.
    pub(super) async fn is_elected(&self) -> Result<(), String> {
        const LEASE: Kind = ("coordination.k8s.io", "v1", "Lease");
        let home = home(&self.site);
        self.site.world.delete(LEASE, &home, "dormer-watcher").await;
        let record = Arc::new(Recorder(watch::Sender::default()));
        let options = candidate(&self.site, "one");
        let watching = Watching::with(self.watcher.clone(), options, record);
        let renewed = async {
            watching
                .until_status("it is elected", |status| status.elected)
                .await;
            let lease = || self.site.world.get(LEASE, &home, "dormer-watcher");
            let first = lease().await.expect("it is there");
            await_condition("it is renewed", PATIENCE, || async {
                lease()
                    .await
                    .is_some_and(|now| now["metadata"] != first["metadata"])
            })
            .await;
        };
        let trouble = watching.until_status("a trouble", |status| status.error.is_some());
        let done = tokio::select! {
            () = renewed => Ok(()),
            status = trouble => Err(status.error.unwrap_or_default()),
        };
        watching.stop().await;
        done
    }

    /// For the build of a node that it has not seen before.
    pub(super) async fn runtime_class(&self, number: u32) -> Result<(), String> {
        const CLASS: Kind = ("node.k8s.io", "v1", "RuntimeClass");
        self.alone().await;
        let build = format!("{BUILD}{number}.1");
        let labels =
            json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build});
        let name = format!("{}-built-{number}", self.site.name);
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels}});
        self.site.world.create(node).await;
        let watching = Watching::start(&self.site, self.watcher.clone());
        watching
            .until_status("it has listed", |status| status.listed.is_some())
            .await;
        let class = format!("windows-{build}");
        let made = await_condition(&class, PATIENCE, || async {
            self.site.world.get(CLASS, "", &class).await.is_some()
        });
        let made = tokio::time::timeout(std::time::Duration::from_secs(2), made).await;
        watching.stop().await;
        self.site.world.delete(("", "v1", "Node"), "", &name).await;
        made.map_err(|_| "there is no RuntimeClass".into())
    }

    /// The watchers of other tests see the same nodes: of these builds they may make no class.
    async fn alone(&self) {
        let who = format!("system:serviceaccount:{}:dormer-watcher", home(&self.site));
        let rule = format!(
            "!object.metadata.name.startsWith('windows-{BUILD}') || request.userInfo.username == '{who}'"
        );
        let classes = json!([{"apiGroups": ["node.k8s.io"], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"], "resources": ["runtimeclasses"]}]);
        let version = "admissionregistration.k8s.io/v1";
        let name = "rbac-classes";
        for (kind, spec) in [
            (
                "ValidatingAdmissionPolicy",
                json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": classes},
                    "validations": [{"expression": rule}]}),
            ),
            (
                "ValidatingAdmissionPolicyBinding",
                json!({"policyName": name, "validationActions": ["Deny"]}),
            ),
        ] {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name},
                "spec": spec});
            // It is there after the first time.
            drop(self.site.world.try_create(object).await);
        }
    }
}
