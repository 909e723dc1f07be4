//! Steps of the worker.

use super::bench::{Bench, first_change};
use crate::real::{
    accounts::{canaries, home},
    cluster::{Kind, POD, WINDOWS_POOL, World, close, delete, evict, open},
    watching::settings,
};
use dormer_proto::{
    checks::{NodeCheck, NodeExpectation},
    machine::{Outcome, Task},
};
use dormer_workers::{
    host::cluster::Cluster,
    kubernetes::{KubernetesExecutor, Settings},
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use serde_json::{Value, json};

impl Bench {
    pub(super) async fn fence(&self, number: u32) -> Result<(), String> {
        let machine = self.site.joined(&format!("f{number}")).await;
        self.run(open(&machine, 1)).await?;
        self.run(close(&machine, 1)).await.map(drop)
    }

    /// A Node that has another name than its Machine knows is looked for among all.
    pub(super) async fn find_node(&self, number: u32) -> Result<(), String> {
        let machine = self.site.machine(&format!("n{number}")).await;
        let task = Task::FindNode {
            machine,
            names: Vec::new(),
            provider_id: Some(format!("none:///{number}")),
        };
        match self.run(task).await? {
            Outcome::NodeAbsent => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// A canary is made, judged with its log, and made again. No kubelet runs it: what one says is written here.
    pub(super) async fn canary(&self, number: u32) -> Result<(), String> {
        let world = &self.site.world;
        let namespace = canaries(&self.site);
        let node = self.site.joined(&format!("y{number}")).await.name;
        let settings = Settings {
            canaries: Some(namespace.clone()),
            ..Settings::default()
        };
        let executor = KubernetesExecutor::new(self.worker.clone(), settings);
        let expect = NodeExpectation {
            canary: Some("registry.example/agnhost:1".into()),
            ..NodeExpectation::default()
        };
        // What a pass says of its parts; without a right, what is missing.
        let pass = async || {
            let checks = executor.verify_node(&node, &expect).await;
            let checks = checks.map_err(|failure| failure.message)?;
            let of_canary = |check: &NodeCheck| {
                ["canary", "logs", "exec", "node-port"].contains(&check.check.as_str())
            };
            let said = checks.into_iter().filter(of_canary).map(|check| check.said);
            let said: Vec<String> = said.collect();
            let said = said.join("; ");
            match said.contains("may not") {
                true => Err(said),
                false => Ok(said),
            }
        };
        let has = |said: String, part: &str| match said.contains(part) {
            true => Ok(()),
            false => Err(said),
        };
        has(pass().await?, "was created")?;
        let pod = format!("canary-{node}");
        let on = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        // The scheduler may have been faster.
        let bound = world
            .api(POD, &namespace)
            .create_subresource::<Value, Value>("binding", &pod, &PostParams::default(), &on)
            .await;
        drop(bound);
        let container = |name: &str, state: Value| {
            json!({"name": name, "image": "agnhost", "imageID": "a", "ready": name == "answers",
                "restartCount": 0, "state": state})
        };
        let done = || json!({"terminated": {"exitCode": 0}});
        let runs = json!({"phase": "Running", "podIP": "10.1.2.3", "containerStatuses": [
            container("answers", json!({"running": {}})),
            container("service-ip", done()),
            container("service-dns", done())]});
        world.status(POD, &namespace, &pod, runs).await;
        has(pass().await?, "Service")?;
        let failed = json!({"phase": "Failed"});
        world.status(POD, &namespace, &pod, failed).await;
        has(pass().await?, "is made again")
    }

    pub(super) async fn drain(&self, number: u32, force: bool) -> Result<(), String> {
        let machine = self.site.joined(&format!("d{number}")).await;
        self.run(open(&machine, 1)).await?;
        self.site
            .pod(&machine, &format!("pod-{number}"), json!({}))
            .await;
        match self.run(evict(&machine, 1, force)).await? {
            Outcome::Evicted { evicted: 1, .. } => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// What the cluster says of its nodes; and what it names there, as a look reads it when it is named.
    pub(super) async fn reads_cluster(&self) -> Result<(), String> {
        let snapshot = self.executor.read_cluster().await;
        let unread = [
            snapshot.mirrors.err(),
            snapshot.proxy.err(),
            snapshot.trusted_ca.err(),
            snapshot.kubelet.err(),
            snapshot.exporter.err(),
            snapshot.vxlan_port.err(),
            snapshot.kubelet_configs.err(),
            snapshot.layers.err(),
        ];
        if let Some(why) = unread.into_iter().flatten().next() {
            return Err(why);
        }
        for (kind, namespace, name) in [
            (("", "v1", "Secret"), "openshift-config", "pull-secret"),
            (
                ("", "v1", "ConfigMap"),
                "openshift-config",
                "user-ca-bundle",
            ),
            (
                ("machineconfiguration.openshift.io", "v1", "MachineConfig"),
                "",
                "rendered-worker-1",
            ),
        ] {
            let world = World {
                admin: self.worker.clone(),
            };
            match world.api(kind, namespace).get(name).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                read => drop(read.map_err(|error| error.to_string())?),
            }
        }
        Ok(())
    }

    /// Twice on a pool; its spec stays people's.
    pub(super) async fn roll_back(&self) -> Result<(), String> {
        settings(&self.site, json!({"payload": "installed"})).await;
        for payload in ["1.0.0", "0.9.0"] {
            self.run(Task::SetPayload {
                pool: "windows".to_owned(),
                payload: payload.to_owned(),
                back_from: "2.0.0".to_owned(),
                by: "somebody".to_owned(),
                instead: Some("installed".to_owned()),
            })
            .await?;
        }
        let home = home(&self.site);
        let pool = self.site.world.get(WINDOWS_POOL, &home, "windows").await;
        let pool = pool.expect("it is there");
        assert_eq!(pool["status"]["override"]["payload"], "0.9.0");
        assert_eq!(pool["spec"]["payload"], "installed");
        let taken_away = |written: &str| Task::SetPayload {
            pool: "windows".to_owned(),
            payload: written.to_owned(),
            back_from: written.to_owned(),
            by: String::new(),
            instead: Some(written.to_owned()),
        };
        // The rollback still holds, so it stays.
        self.run(taken_away("installed")).await?;
        let pool = self.site.world.get(WINDOWS_POOL, &home, "windows").await;
        let pool = pool.expect("it is there");
        assert_eq!(pool["status"]["override"]["payload"], "0.9.0");
        settings(&self.site, json!({"payload": "3.0.0"})).await;
        self.run(taken_away("3.0.0")).await?;
        let pool = self.site.world.get(WINDOWS_POOL, &home, "windows").await;
        let pool = pool.expect("it is there");
        assert_eq!(pool["status"].get("override"), None, "it has ended");
        // The other steps want the newest.
        settings(&self.site, json!({"payload": "installed"})).await;
        Ok(())
    }

    pub(super) async fn delete(&self, number: u32) -> Result<(), String> {
        let machine = self.site.joined(&format!("x{number}")).await;
        self.site.owned(&machine).await;
        self.run(open(&machine, 1)).await?;
        self.run(delete(&machine, 1)).await.map(drop)
    }

    /// Looks for the Secret, makes it, mends it, and watches it.
    pub(super) async fn user_data(&self) -> Result<(), kube::Error> {
        const SECRET: Kind = ("", "v1", "Secret");
        let name = "windows-user-data";
        let machines = &self.site.machines;
        self.site.world.delete(SECRET, machines, name).await;
        let api: Api<Secret> = Api::namespaced(self.worker.clone(), machines);
        api.get_opt(name).await?;
        let metadata = ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        };
        let text = ByteString(b"<powershell>".to_vec());
        let made = Secret {
            metadata,
            data: Some([("userData".to_owned(), text)].into()),
            ..Secret::default()
        };
        let made = api.create(&PostParams::default(), &made).await?;
        api.replace(name, &PostParams::default(), &made).await?;
        first_change(&api, name).await
    }

    /// A pod of two budgets, which are named.
    pub(super) async fn two_budgets(&self, number: u32) -> Result<(), String> {
        let machine = self.site.joined(&format!("b{number}")).await;
        self.run(open(&machine, 1)).await?;
        let app = format!("twice-{number}");
        self.site.pod(&machine, &app, json!({})).await;
        let names = ["first", "second"].map(|name| format!("{name}-{number}"));
        for name in &names {
            let selector = json!({"matchLabels": {"app": app}});
            let metadata = json!({"name": name, "namespace": self.site.name});
            let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": metadata, "spec": {"minAvailable": 0, "selector": selector}});
            self.site.world.create(budget).await;
        }
        // Whether a budget matches is not computed: it is so at once.
        let done = self.run(evict(&machine, 1, false)).await?;
        let Outcome::Evicted { blockers, .. } = &done else {
            panic!("{done:?}")
        };
        let why = blockers.first().map(|b| b.why.clone()).unwrap_or_default();
        if names.iter().all(|name| why.contains(name)) {
            Ok(())
        } else {
            Err(why)
        }
    }
}
