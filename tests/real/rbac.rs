//! Least privilege, proven: with the rules as `deploy/rbac.yaml` ships them every step passes; without any one of
//! them the step that needs it fails and says what it may not do; and what is not granted is refused.

use super::{
    accounts::{apply, home, moved, ours, shipped},
    ask::{Ask, Kubelet, OPERATOR, bootstrap_token, expectation},
    cluster::{
        Kind, NODE, Site, WINDOWS_MACHINE, WINDOWS_POOL, World, client, close, delete, evict,
        hands, open, plane, run,
    },
    watcher::{bad_settings, candidate},
    watching::{Recorder, Watching, everything_is_seen, settings},
};
use dormer_proto::machine::{Outcome, Task};
use dormer_testkit::{Speaker, await_condition};
use dormer_workers::{host::cluster::Cluster, kubernetes::KubernetesHands};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use tokio::sync::watch;

/// The smallest part of the rules: one verb on one resource, of one name where names are told.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Right {
    role: String,
    /// The namespace of the role, as shipped; `None`: the whole cluster.
    namespace: Option<String>,
    group: String,
    resource: String,
    name: Option<String>,
    verb: String,
}

/// Every right that the manifest gives.
fn rights() -> Vec<Right> {
    let mut rights = Vec::new();
    for object in shipped() {
        for rule in object["rules"].as_array().into_iter().flatten() {
            for (group, resource, name, verb) in atoms(rule) {
                let text = |key: &str| object["metadata"][key].as_str().map(str::to_owned);
                let (role, namespace) = (text("name").expect("a name"), text("namespace"));
                rights.push(Right { role, namespace, group, resource, name, verb });
            }
        }
    }
    rights
}

fn texts(rule: &Value, key: &str) -> Vec<String> {
    let all = rule[key].as_array().into_iter().flatten();
    all.map(|one| one.as_str().expect("a text").to_owned()).collect()
}

fn atoms(rule: &Value) -> Vec<(String, String, Option<String>, String)> {
    let mut names: Vec<_> = texts(rule, "resourceNames").into_iter().map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    let mut atoms = Vec::new();
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for name in &names {
                for verb in texts(rule, "verbs") {
                    atoms.push((group.clone(), resource.clone(), name.clone(), verb));
                }
            }
        }
    }
    atoms
}

/// Something that dormer does. Each needs some rights, and all of them together need every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    SeesEverything,
    AnswersABadSetting,
    IsElected,
    MakesARuntimeClass,
    FencesANode,
    DrainsANode,
    DrainsByForce,
    DeletesAMachine,
    ApprovesAClient,
    ApprovesAServer,
    TellsOfARefusal,
    RollsAPoolBack,
    LearnsHowToJoin,
    ReadsTheKey,
    KeepsUserData,
    ShowsAMachine,
    ShowsThePool,
    TellsOfANode,
    TellsOfExporters,
}

use Step::{
    AnswersABadSetting, ApprovesAClient, ApprovesAServer, DeletesAMachine, DrainsANode,
    DrainsByForce, FencesANode, IsElected, KeepsUserData, LearnsHowToJoin, MakesARuntimeClass,
    ReadsTheKey, RollsAPoolBack, SeesEverything, ShowsAMachine, ShowsThePool, TellsOfANode,
    TellsOfARefusal, TellsOfExporters,
};

const STEPS: [Step; 19] = [
    SeesEverything,
    AnswersABadSetting,
    IsElected,
    MakesARuntimeClass,
    FencesANode,
    DrainsANode,
    DrainsByForce,
    DeletesAMachine,
    ApprovesAClient,
    ApprovesAServer,
    TellsOfARefusal,
    RollsAPoolBack,
    LearnsHowToJoin,
    ReadsTheKey,
    KeepsUserData,
    ShowsAMachine,
    ShowsThePool,
    TellsOfANode,
    TellsOfExporters,
];

/// Which step fails without a right, and what it says then.
fn needed_by(right: &Right) -> (Step, String) {
    let may_not = |what: &str| format!("may not {} {what}", right.verb);
    let role = right.role.trim_start_matches("dormer-");
    let name = right.name.as_deref().unwrap_or_default();
    match (role, right.resource.as_str(), right.verb.as_str()) {
        ("watcher", "runtimeclasses", _) => (MakesARuntimeClass, "there is no RuntimeClass".into()),
        ("watcher" | "watcher-machines", what, _) => (SeesEverything, may_not(what)),
        ("watcher-home", "configmaps", _) => (SeesEverything, may_not("configmaps")),
        ("watcher-home", "events", _) => (AnswersABadSetting, "there is no Event".into()),
        ("watcher-home", "leases", _) => (IsElected, may_not("the Lease")),
        ("worker", "nodes", _) => (FencesANode, may_not("Node")),
        ("worker", "pods", _) => (DrainsANode, may_not("pods of Node")),
        ("worker", "pods/eviction", _) => (DrainsANode, "cannot create resource".into()),
        ("worker-force", "pods", _) => (DrainsByForce, "cannot delete resource".into()),
        ("worker-machines", "machines", "delete") => (DeletesAMachine, may_not("Machine")),
        ("worker-machines", "machines", _) => (FencesANode, may_not("Machine")),
        ("worker", "certificatesigningrequests", _) => {
            (ApprovesAClient, may_not("certificate request"))
        }
        ("worker", "certificatesigningrequests/approval", _) => {
            (ApprovesAClient, "may not approve certificate request".into())
        }
        ("worker", "signers", _) if name.ends_with("client-kubelet") => {
            (ApprovesAClient, "user not permitted to approve".into())
        }
        ("worker", "signers", _) => (ApprovesAServer, "user not permitted to approve".into()),
        ("worker", "infrastructures" | "networks", _) => {
            (LearnsHowToJoin, may_not(&right.resource))
        }
        ("worker-pool", "configmaps", _) => (RollsAPoolBack, may_not("ConfigMap")),
        ("worker-bootstrap", "secrets", _) => (LearnsHowToJoin, may_not("Secret")),
        ("worker-authorities", "configmaps", _) => {
            (LearnsHowToJoin, may_not(&format!("ConfigMap kube-system/{name}")))
        }
        ("worker-user-data", "secrets", verb) => (KeepsUserData, format!("cannot {verb} resource")),
        ("worker-key", "secrets", _) if name.contains("exporter") => {
            (LearnsHowToJoin, may_not("Secret"))
        }
        ("worker-key", "secrets", _) => (ReadsTheKey, "cannot get resource".into()),
        ("worker-events", "events", "create") => (TellsOfARefusal, "there is no Event".into()),
        ("worker-events", "events", _) => (TellsOfARefusal, "it is not counted".into()),
        (console, what, verb) if console.starts_with("console") => {
            let step = match (console, what) {
                (_, "windowsmachines" | "windowsmachines/status") => ShowsAMachine,
                ("console-machines", _) => ShowsAMachine,
                ("console-home", "services" | "endpointslices") => TellsOfExporters,
                ("console-home", _) => ShowsThePool,
                _ => TellsOfANode,
            };
            (step, format!(r#"cannot {verb} resource "{what}""#))
        }
        other => panic!("no step needs {other:?}: it should not be granted"),
    }
}

/// dormer's accounts at work in a test's part of the cluster.
struct Bench {
    site: Site,
    watcher: Client,
    worker: Client,
    console: World,
    hands: KubernetesHands,
    token: Speaker,
    node: AtomicU32,
}

impl Bench {
    async fn new(site: Site) -> Self {
        apply(&site, |_, _| true).await;
        let watcher = site.client(&ours(&site, "dormer-watcher").await).await;
        let worker = site.client(&ours(&site, "dormer-worker").await).await;
        let console = World { admin: site.client(&ours(&site, "dormer-console").await).await };
        let token = bootstrap_token(&site, "rbac00").await;
        // Without an authority, so that Kubernetes' own is needed.
        let (key, text) = ("cloud-private-key", json!({"private-key.pem": "a key"}));
        for (namespace, name, data) in [
            (OPERATOR.to_owned(), "node-bootstrapper-token", json!({"token": "a token"})),
            (home(&site), key, text),
        ] {
            let metadata = json!({"name": name, "namespace": namespace});
            site.world
                .create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
                    "stringData": data}))
                .await;
        }
        let (hands, node) = (hands(worker.clone(), home(&site)), AtomicU32::new(0));
        Self { site, watcher, worker, console, hands, token, node }
    }

    /// A number that no other step has.
    fn next(&self) -> u32 {
        self.node.fetch_add(1, Ordering::Relaxed)
    }

    /// Does a step; an error is what dormer says, or that nothing came of it.
    async fn step(&self, step: Step) -> Result<(), String> {
        let number = self.next();
        match step {
            SeesEverything => {
                everything_is_seen(&self.site, self.watcher.clone(), &self.token, number).await
            }
            AnswersABadSetting => self.bad_setting(number).await,
            IsElected => self.is_elected().await,
            MakesARuntimeClass => self.runtime_class(number).await,
            FencesANode => self.fence(number).await,
            DrainsANode => self.drain(number, false).await,
            DrainsByForce => self.drain(number, true).await,
            DeletesAMachine => self.delete(number).await,
            ApprovesAClient => {
                let node = format!("rbac-c{number}");
                self.approve(&self.token, Ask::client(&node), &node).await
            }
            ApprovesAServer => {
                let node = format!("rbac-s{number}");
                let by = self.site.plane.user(&format!("system:node:{node}"), Some("system:nodes"));
                self.approve(&by, Ask::serving(&node, &[&node]), &node).await
            }
            TellsOfARefusal => self.refusal(number).await,
            RollsAPoolBack => self.roll_back().await,
            LearnsHowToJoin => self.hands.bootstrap().await.map(drop).map_err(|f| f.message),
            ReadsTheKey => {
                let api: Api<Secret> = Api::namespaced(self.worker.clone(), &home(&self.site));
                let found = api.get("cloud-private-key").await;
                found.map(drop).map_err(|error| error.to_string())
            }
            ShowsAMachine => {
                let place = (self.site.machines.clone(), format!("shown-{number}"));
                self.shows(WINDOWS_MACHINE, "", &place).await.map_err(|error| error.to_string())
            }
            ShowsThePool => {
                let place = (home(&self.site), format!("shown-{number}"));
                let within = home(&self.site);
                let shown = self.shows(WINDOWS_POOL, &within, &place).await;
                shown.map_err(|error| error.to_string())
            }
            TellsOfANode => {
                let machine = self.site.joined(&format!("t{number}")).await;
                let told = self.tells_of_a_node(&machine.name).await;
                told.map_err(|error| error.to_string())
            }
            KeepsUserData => self.user_data().await.map_err(|error| error.to_string()),
            TellsOfExporters => self.tells_of_exporters().await.map_err(|error| error.to_string()),
        }
    }

    /// All that the console does with an object of its own, in the order in which it does it, and an Event beside.
    async fn shows(
        &self,
        kind: Kind,
        listed: &str,
        (namespace, name): &(String, String),
    ) -> Result<(), kube::Error> {
        let api = self.console.api(kind, namespace);
        self.console.api(kind, listed).list(&ListParams::default()).await?;
        let object = json!({"apiVersion": format!("{}/{}", kind.0, kind.1), "kind": kind.2,
            "metadata": {"name": name, "namespace": namespace}});
        self.console.try_create(object).await?;
        let status = Patch::Merge(json!({"status": {"waitingFor": "nothing"}}));
        api.patch_status(name, &PatchParams::default(), &status).await?;
        api.delete(name, &DeleteParams::default()).await?;
        self.tells(namespace, kind, name).await
    }

    async fn tells_of_a_node(&self, name: &str) -> Result<(), kube::Error> {
        let condition = json!({"type": "Dormer", "status": "True"});
        let status = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let nodes: Api<Node> = Api::all(self.console.admin.clone());
        nodes.patch_status(name, &PatchParams::default(), &status).await?;
        self.tells("default", NODE, name).await
    }

    /// Looks for the Secret, makes it, and mends it.
    async fn user_data(&self) -> Result<(), kube::Error> {
        const SECRET: Kind = ("", "v1", "Secret");
        let (name, machines) = ("windows-user-data", &self.site.machines);
        self.site.world.delete(SECRET, machines, name).await;
        let api: Api<Secret> = Api::namespaced(self.worker.clone(), machines);
        api.get_opt(name).await?;
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        let made = Secret { metadata, ..Secret::default() };
        let made = api.create(&PostParams::default(), &made).await?;
        api.replace(name, &PostParams::default(), &made).await.map(drop)
    }

    /// Looks whether anybody scrapes, and makes, changes and removes an EndpointSlice.
    async fn tells_of_exporters(&self) -> Result<(), kube::Error> {
        const SLICE: Kind = ("discovery.k8s.io", "v1", "EndpointSlice");
        let (home, name) = (home(&self.site), "dormer-windows-exporter-0");
        let api = self.console.api(SLICE, &home);
        self.console.api(("", "v1", "Service"), &home).get_opt("dormer-windows-exporter").await?;
        api.list(&ListParams::default()).await?;
        for address in ["10.0.0.1", "10.0.0.2"] {
            let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": name}, "addressType": "IPv4",
                "endpoints": [{"addresses": [address]}]});
            let params = PatchParams::apply("dormer-console").force();
            api.patch(name, &params, &Patch::Apply(slice)).await?;
        }
        api.delete(name, &DeleteParams::default()).await.map(drop)
    }

    async fn tells(&self, namespace: &str, of: Kind, name: &str) -> Result<(), kube::Error> {
        let version = if of.0.is_empty() { of.1.into() } else { format!("{}/{}", of.0, of.1) };
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

    async fn run(&self, task: Task) -> Result<Outcome, String> {
        run(&self.hands, task).await.map_err(|failure| failure.message)
    }

    async fn bad_setting(&self, number: u32) -> Result<(), String> {
        let before = bad_settings(&self.site).await.len();
        settings(&self.site, json!({"soakSeconds": format!("bad {number}")})).await;
        let watching = Watching::start(&self.site, self.watcher.clone());
        // The Event is written before this is said.
        watching.until_status("it is refused", |status| status.pool_refused.is_some()).await;
        watching.stop().await;
        settings(&self.site, json!({"soakSeconds": "30"})).await;
        let told = bad_settings(&self.site).await.len() > before;
        if told { Ok(()) } else { Err("there is no Event".into()) }
    }

    /// The Lease is taken, and renewed once.
    async fn is_elected(&self) -> Result<(), String> {
        const LEASE: super::cluster::Kind = ("coordination.k8s.io", "v1", "Lease");
        let home = home(&self.site);
        self.site.world.delete(LEASE, &home, "dormer-watcher").await;
        let record = Arc::new(Recorder(watch::Sender::default()));
        let options = candidate(&self.site, "one");
        let watching = Watching::with(self.watcher.clone(), options, record);
        let renewed = async {
            watching.until_status("it is elected", |status| status.elected).await;
            let lease = || self.site.world.get(LEASE, &home, "dormer-watcher");
            let first = lease().await.expect("it is there");
            await_condition("it is renewed", super::cluster::PATIENCE, || async {
                lease().await.is_some_and(|now| now["metadata"] != first["metadata"])
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
    async fn runtime_class(&self, number: u32) -> Result<(), String> {
        const CLASS: super::cluster::Kind = ("node.k8s.io", "v1", "RuntimeClass");
        let build = format!("10.{number}.1");
        let labels =
            json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build});
        let name = format!("{}-built-{number}", self.site.name);
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels}});
        self.site.world.create(node).await;
        let watching = Watching::start(&self.site, self.watcher.clone());
        watching.until_status("it has listed", |status| status.listed.is_some()).await;
        let class = format!("windows-{build}");
        let made = await_condition(&class, super::cluster::PATIENCE, || async {
            self.site.world.get(CLASS, "", &class).await.is_some()
        });
        let made = tokio::time::timeout(std::time::Duration::from_secs(2), made).await;
        watching.stop().await;
        self.site.world.delete(("", "v1", "Node"), "", &name).await;
        made.map_err(|_| "there is no RuntimeClass".into())
    }

    async fn fence(&self, number: u32) -> Result<(), String> {
        let machine = self.site.joined(&format!("f{number}")).await;
        self.run(open(&machine, 1)).await?;
        self.run(close(&machine, 1)).await.map(drop)
    }

    async fn drain(&self, number: u32, force: bool) -> Result<(), String> {
        let machine = self.site.joined(&format!("d{number}")).await;
        self.run(open(&machine, 1)).await?;
        self.site.pod(&machine, &format!("pod-{number}"), json!({})).await;
        match self.run(evict(&machine, 1, force)).await? {
            Outcome::Evicted { evicted: 1, .. } => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// On a pool without settings, and once more on those that it has then.
    async fn roll_back(&self) -> Result<(), String> {
        const MAP: super::cluster::Kind = ("", "v1", "ConfigMap");
        let home = home(&self.site);
        self.site.world.delete(MAP, &home, "dormer-pool-windows").await;
        for payload in ["1.0.0", "0.9.0"] {
            let (payload, back_from) = (payload.to_owned(), "2.0.0".to_owned());
            let (pool, by) = ("windows".to_owned(), "somebody".to_owned());
            self.run(Task::SetPayload { pool, payload, back_from, by }).await?;
        }
        let map = self.site.world.get(MAP, &home, "dormer-pool-windows").await;
        assert_eq!(map.expect("it is there")["data"]["payload"], "0.9.0");
        self.site.world.delete(MAP, &home, "dormer-pool-windows").await;
        Ok(())
    }

    async fn delete(&self, number: u32) -> Result<(), String> {
        let machine = self.site.joined(&format!("x{number}")).await;
        self.run(open(&machine, 1)).await?;
        self.run(delete(&machine, 1)).await.map(drop)
    }

    async fn approve(&self, by: &Speaker, ask: Ask, node: &str) -> Result<(), String> {
        let kubelet = Kubelet::new(&self.site);
        kubelet.ask(by, node, ask).await.expect("it may ask");
        let expect = expectation(node);
        let done = self.run(Task::ApproveCsr { csr: node.into(), expect }).await?;
        assert_eq!(done, Outcome::CsrApproved { csr: node.into() });
        Ok(())
    }

    /// Two refusals of one request: an Event, and its count.
    async fn refusal(&self, number: u32) -> Result<(), String> {
        let name = format!("rbac-r{number}");
        let kubelet = Kubelet::new(&self.site);
        kubelet.ask(&self.token, &name, Ask::client("rbac-other")).await.expect("it may ask");
        let task = Task::ApproveCsr { csr: name.clone(), expect: expectation(&name) };
        // Events are counted by the hands that wrote them: these know of none yet.
        let hands = hands(self.worker.clone(), home(&self.site));
        for _ in 0..2 {
            let done = run(&hands, task.clone()).await.map_err(|failure| failure.message)?;
            assert!(matches!(done, Outcome::CsrRefused { .. }), "{done:?}");
        }
        let events = self.site.world.list(("events.k8s.io", "v1", "Event"), "default").await;
        let event = events.into_iter().find(|event| event["regarding"]["name"] == name.as_str());
        match event {
            None => Err("there is no Event".into()),
            Some(event) if event["series"]["count"] == 2 => Ok(()),
            Some(event) => Err(format!("it is not counted: {event}")),
        }
    }

    /// Gives a role all its rights but this one (or all of them), and waits until the API server knows.
    async fn grant(&self, role: &Right, without: Option<&Right>) {
        let all = rights().into_iter().filter(|right| right.role == role.role);
        let rules: Vec<Value> = all.filter(|right| Some(right) != without).map(rule).collect();
        let kind = if role.namespace.is_some() { "Role" } else { "ClusterRole" };
        let namespace =
            role.namespace.as_deref().map(|name| moved(&self.site, name)).unwrap_or_default();
        let name = format!("{}-{}", self.site.name, role.role);
        let kind = ("rbac.authorization.k8s.io", "v1", kind);
        self.site.world.patch(kind, &namespace, &name, json!({"rules": rules})).await;
        let account = match &role.role {
            name if name.starts_with("dormer-watcher") => &self.watcher,
            name if name.starts_with("dormer-console") => &self.console.admin,
            _ => &self.worker,
        };
        let wish = self.wish(role);
        let what = format!("{role:?} is {}", if without.is_none() { "given" } else { "taken" });
        await_condition(&what, super::cluster::PATIENCE, || async {
            allowed(account, &wish).await == without.is_none()
        })
        .await;
    }

    /// A right as it is asked for in a review.
    fn wish(&self, right: &Right) -> Value {
        let (resource, part) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
        let namespace = right.namespace.as_deref().map(|name| moved(&self.site, name));
        json!({"namespace": namespace, "group": right.group, "resource": resource,
            "subresource": part, "name": right.name, "verb": right.verb})
    }
}

/// A right as a rule of its own.
fn rule(right: Right) -> Value {
    let names: Vec<String> = right.name.into_iter().collect();
    json!({"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb],
        "resourceNames": names})
}

/// What the API server says when an account asks whether it may.
async fn allowed(account: &Client, wish: &Value) -> bool {
    let review = json!({"apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": wish}});
    let answer = World { admin: account.clone() }.create(review).await;
    answer["status"]["allowed"] == true
}

#[tokio::test]
async fn each_rule_is_needed_and_together_they_suffice() {
    let bench = Bench::new(Site::new(plane!(), "rbac").await).await;
    for step in STEPS {
        bench.step(step).await.unwrap_or_else(|why| panic!("{step:?} with all its rules: {why}"));
    }
    let all = rights();
    assert!(all.len() >= 30, "{}", all.len());
    for right in &all {
        let (step, says) = needed_by(right);
        bench.grant(right, Some(right)).await;
        let done = bench.step(step).await;
        let said = done.expect_err(&format!("{step:?} passes without {right:?}"));
        assert!(said.contains(&says), "{step:?} without {right:?} says {said}");
        bench.grant(right, None).await;
    }
    for step in STEPS {
        assert!(all.iter().any(|right| needed_by(right).0 == step), "{step:?} needs nothing");
        bench.step(step).await.unwrap_or_else(|why| panic!("{step:?} in the end: {why}"));
    }
}

/// What nobody of dormer may, beside what the others may: namespace (`""`: cluster-wide), group, resource, name, verb.
const FORBIDDEN: [(&str, &str, &str, &str, &str); 34] = [
    ("", "*", "*", "", "*"),
    ("", "", "secrets", "", "list"),
    ("", "", "secrets", "", "watch"),
    ("kube-system", "", "secrets", "", "list"),
    ("kube-system", "", "secrets", "bootstrap-token-abcdef", "get"),
    (OPERATOR, "", "secrets", "another", "get"),
    (OPERATOR, "", "secrets", "node-bootstrapper-token", "update"),
    ("", "", "nodes", "", "create"),
    ("", "", "nodes", "win-1", "delete"),
    ("", "", "nodes", "win-1", "update"),
    ("", "", "nodes/status", "win-1", "patch"),
    ("", "", "nodes/proxy", "win-1", "get"),
    ("default", "", "pods", "", "create"),
    ("default", "", "pods", "p", "patch"),
    ("default", "", "pods", "", "deletecollection"),
    ("default", "", "pods/exec", "p", "create"),
    ("default", "", "pods/log", "p", "get"),
    ("", "", "namespaces", "default", "delete"),
    ("kube-system", "", "configmaps", "", "list"),
    ("kube-system", "", "configmaps", "extension-apiserver-authentication", "update"),
    ("default", "", "serviceaccounts/token", "default", "create"),
    ("default", "", "serviceaccounts", "default", "impersonate"),
    ("", "", "users", "system:admin", "impersonate"),
    ("", "certificates.k8s.io", "certificatesigningrequests", "", "create"),
    ("", "certificates.k8s.io", "certificatesigningrequests", "c", "delete"),
    ("", "certificates.k8s.io", "certificatesigningrequests/status", "c", "patch"),
    ("", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client", "approve"),
    ("", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving", "sign"),
    ("openshift-machine-api", "machine.openshift.io", "machines", "m", "delete"),
    ("", "machine.openshift.io", "machines", "", "create"),
    ("", "policy", "poddisruptionbudgets", "", "delete"),
    ("", "rbac.authorization.k8s.io", "clusterroles", "", "escalate"),
    ("", "rbac.authorization.k8s.io", "clusterrolebindings", "", "create"),
    ("", "config.openshift.io", "infrastructures", "cluster", "patch"),
];

fn asked(one: (&str, &str, &str, &str, &str)) -> Value {
    let (namespace, group, resource, name, verb) = one;
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    json!({"namespace": namespace, "group": group, "resource": resource, "subresource": part,
        "name": name, "verb": verb})
}

#[tokio::test]
async fn what_is_not_granted_is_refused_and_the_engine_may_nothing() {
    let site = Site::new(plane!(), "refused").await;
    apply(&site, |_, _| true).await;
    let mut clients = Vec::new();
    for account in ["dormer-watcher", "dormer-worker", "dormer-engine", "dormer-console"] {
        clients.push((account, client(&site.plane.kubeconfig(&ours(&site, account).await)).await));
    }
    for (account, client) in &clients {
        for one in FORBIDDEN {
            // The console's condition on Nodes, and nothing else there.
            if *account == "dormer-console" && one.2 == "nodes/status" {
                continue;
            }
            assert!(!allowed(client, &asked(one)).await, "{account} may {one:?}");
        }
    }
    // The watcher writes to nothing that it watches, and the worker lists no more than pods.
    for one in [
        ("refused-machines", "machine.openshift.io", "machines", "m", "patch"),
        ("", "", "nodes", "n", "patch"),
        ("", "", "pods", "", "list"),
        ("", "certificates.k8s.io", "certificatesigningrequests/approval", "c", "patch"),
    ] {
        assert!(!allowed(&clients[0].1, &asked(one)).await, "the watcher may {one:?}");
        assert!(allowed(&clients[1].1, &asked(one)).await, "the worker may not {one:?}");
    }
    for one in [
        ("", "", "nodes", "", "list"),
        ("refused-machines", "machine.openshift.io", "machines", "", "list"),
        ("refused-home", "", "configmaps", "dormer-pool-windows", "list"),
    ] {
        assert!(allowed(&clients[0].1, &asked(one)).await, "the watcher may not {one:?}");
        assert!(!allowed(&clients[1].1, &asked(one)).await, "the worker may {one:?}");
    }
    for right in rights() {
        let namespace = right.namespace.clone().unwrap_or_default();
        let name = right.name.clone().unwrap_or_default();
        let wish = asked((&namespace, &right.group, &right.resource, &name, &right.verb));
        assert!(!allowed(&clients[2].1, &wish).await, "the engine may {right:?}");
        let consoles = right.role.starts_with("dormer-console");
        // Some of it others may, too.
        if !consoles && right.resource != "events" {
            assert!(!allowed(&clients[3].1, &wish).await, "the console may {right:?}");
        }
        if consoles {
            let namespace = right.namespace.as_deref().map(|name| moved(&site, name));
            let wish = asked((
                &namespace.unwrap_or_default(),
                &right.group,
                &right.resource,
                &name,
                &right.verb,
            ));
            assert!(allowed(&clients[3].1, &wish).await, "the console may not {right:?}");
        }
    }
}
