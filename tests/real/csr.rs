//! Joining kubelets: dormer approves their requests, the real signer signs them, and the certificates are used.

use super::{
    accounts::{approver, ours, worker_beside},
    ask::{
        Ask, Kubelet, OPERATOR, account, bootstrap_token, csr_conditions, expectation, make_node,
        served, there,
    },
    cluster::{MACHINE, NODE, Site, open, plane, run},
    watching::{PublishedMessages, Recorder, Watching, options, settings},
};
use dormer_engine_core::{Command, Decision, Input, Now, Workflow};
use dormer_proto::{
    id::{LeaseToken, Seq, Timestamp},
    machine::{CsrExpectation, Fact, MachineFact, MachineRef, Outcome, Task},
    message::ObjectRef,
    work,
};
use dormer_workers::{
    host::cluster::Cluster,
    kubernetes::{KubernetesExecutor, keys},
    watcher::Options,
};
use dormer_workflows::machine::{CSRS_MAX, Host, Machine, Phase, State};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

#[tokio::test]
async fn a_kubelet_joins_by_a_bootstrap_token_and_asks_for_its_serving_certificate() {
    let site = Site::new(plane!(), "join").await;
    let executor = approver(&site).await;
    let kubelet = Kubelet::new(&site);
    let token = bootstrap_token(&site, "join01").await;
    let machine = site.provisioned("win-1").await;
    let expect = expectation(&machine);
    let approve = |csr: &str| Task::ApproveCsr {
        csr: csr.into(),
        expect: expect.clone(),
    };
    let approved = |csr: &str| Ok(Outcome::CsrApproved { csr: csr.into() });

    kubelet
        .ask(&token, "join-client", Ask::client("join-win-1"))
        .await
        .expect("it may ask");
    assert_eq!(
        csr_conditions(&site, "join-client").await,
        (vec![], false),
        "nobody else approves it"
    );
    assert_eq!(
        run(&executor, approve("join-client")).await,
        approved("join-client")
    );
    let node = kubelet.identity("join-client").await;
    assert_eq!(
        run(&executor, approve("join-client")).await,
        approved("join-client"),
        "a repeat"
    );
    assert_eq!(csr_conditions(&site, "join-client").await.0.len(), 1);

    let me = site.client(&node).await;
    make_node(&me, "join-win-1")
        .await
        .expect("NodeRestriction lets a kubelet make its own Node");
    assert!(there(&site, "join-win-1").await);
    make_node(&me, "join-win-2")
        .await
        .expect_err("and no other");

    let serving = Ask::serving("join-win-1", &["join-win-1", "10.0.0.7"]);
    kubelet
        .ask(&node, "join-serving", serving)
        .await
        .expect("it may ask");
    let unknown = run(&executor, approve("join-serving")).await;
    assert!(
        matches!(&unknown, Ok(Outcome::CsrRefused { why, .. }) if why.contains("nothing says")),
        "the run has not seen its Node: {unknown:?}"
    );
    let serves = Task::ApproveCsr {
        csr: "join-serving".into(),
        expect: served(&site, &machine).await,
    };
    assert_eq!(run(&executor, serves).await, approved("join-serving"));
    kubelet.identity("join-serving").await;

    // The Node exists: it renews its certificate itself, and a bootstrap token asks in vain.
    let renewal = served(&site, &machine).await;
    let again = |csr: &str| Task::ApproveCsr {
        csr: csr.into(),
        expect: renewal.clone(),
    };
    kubelet
        .ask(&node, "join-renewal", Ask::client("join-win-1"))
        .await
        .expect("it may ask");
    assert_eq!(
        run(&executor, again("join-renewal")).await,
        approved("join-renewal")
    );
    kubelet
        .ask(&token, "join-late", Ask::client("join-win-1"))
        .await
        .expect("it may ask");
    let refused = run(&executor, again("join-late")).await;
    assert!(
        matches!(&refused, Ok(Outcome::CsrRefused { why, .. }) if why.contains("not configured"))
    );
    // Also while its host is configured again, until it is torn down under the lease.
    let in_place = |token| Task::ApproveCsr {
        csr: "join-late".into(),
        expect: CsrExpectation {
            configured: true,
            torn_down: token,
            ..renewal.clone()
        },
    };
    let refused = run(&executor, in_place(None)).await;
    assert!(
        matches!(&refused, Ok(Outcome::CsrRefused { why, .. }) if why.contains("the Node exists"))
    );
    site.link(&machine).await;
    // Without a pool nothing is taken away.
    settings(&site, json!({})).await;
    let opened = run(&worker_beside(&site).await, open(&machine, 7)).await;
    assert!(
        matches!(opened, Ok(Outcome::FenceOpened { .. })),
        "{opened:?}"
    );
    let refused = run(&executor, in_place(Some(LeaseToken(6)))).await;
    assert!(matches!(&refused, Ok(Outcome::CsrRefused { .. })));
    assert_eq!(
        run(&executor, in_place(Some(LeaseToken(7)))).await,
        approved("join-late")
    );
}

#[tokio::test]
async fn a_kubelet_joins_by_openshifts_account() {
    let site = Site::new(plane!(), "account").await;
    let executor = approver(&site).await;
    let kubelet = Kubelet::new(&site);
    let asker = account(&site, OPERATOR, "node-bootstrapper").await;
    kubelet
        .ask(&asker, "account-client", Ask::client("account-win-1"))
        .await
        .expect("it may ask");
    let expect = expectation(&site.provisioned("win-1").await);
    let task = Task::ApproveCsr {
        csr: "account-client".into(),
        expect,
    };
    let approved = Outcome::CsrApproved {
        csr: "account-client".into(),
    };
    assert_eq!(run(&executor, task).await, Ok(approved));
    kubelet.identity("account-client").await;
}

#[tokio::test]
async fn a_denial_is_final_and_a_vanished_request_is_made_again() {
    let site = Site::new(plane!(), "denied").await;
    let executor = approver(&site).await;
    let kubelet = Kubelet::new(&site);
    let token = bootstrap_token(&site, "denied").await;
    kubelet
        .ask(&token, "denied-client", Ask::client("denied-win-1"))
        .await
        .expect("it may ask");
    let condition = json!({"type": "Denied", "status": "True", "reason": "ByAPerson"});
    kubelet.decide("denied-client", condition).await;
    let machine = site.provisioned("win-1").await;
    let task = |csr: &str| Task::ApproveCsr {
        csr: csr.into(),
        expect: expectation(&machine),
    };
    let outcome = run(&executor, task("denied-client")).await;
    assert!(matches!(&outcome, Ok(Outcome::CsrRefused { why, .. }) if why.contains("Denied")));
    let gone = run(&executor, task("denied-none")).await;
    assert!(matches!(&gone, Ok(Outcome::CsrRefused { why, .. }) if why.contains("it is gone")));
}

/// Waits until so many requests belong to no machine, and checks that none of them was reported to the machine.
async fn nobodys(watching: &Watching, count: usize, csr: &str) {
    watching
        .until_status("it is nobody's", |status| status.foreign_csrs >= count)
        .await;
    // A Machine whose Node is not there yet may say who asks in its name. The request itself is routed to no machine.
    let published = watching.published.0.borrow();
    let routed = published.messages.iter().any(|(_, observation)| {
        matches!(&observation.fact, Some(dormer_proto::work::Fact::Machine(Fact::Csr(it))) if it.name == csr)
    });
    assert!(!routed, "{csr} was told to somebody");
}

#[tokio::test]
async fn a_stolen_token_and_a_kubelet_whose_machine_is_gone_get_nothing() {
    let site = Site::new(plane!(), "stories").await;
    let executor = approver(&site).await;
    let token = bootstrap_token(&site, "stolen").await;
    let machine = site.provisioned("win-1").await;
    let name = json!({"metadata": {"annotations": {keys::NODE_NAME: machine.name}}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, name)
        .await;
    let client = site.client(&ours(&site, "dormer-watcher").await).await;
    let watching = Watching::start(&site, client);
    let task = |csr: &str| Task::ApproveCsr {
        csr: csr.into(),
        expect: expectation(&machine),
    };

    // The kubelet joins as it should.
    let kubelet = Kubelet::new(&site);
    kubelet
        .ask(&token, "stories-first", Ask::client(&machine.name))
        .await
        .expect("it may ask");
    let published = |csr: &'static str| {
        let uid = machine.uid.clone();
        move |published: &super::watching::PublishedMessages| {
            published.machine(
                &uid,
                |fact| matches!(fact, Fact::Csr(seen) if seen.name == csr),
            )
        }
    };
    watching
        .until("the first", published("stories-first"))
        .await
        .expect("it is told");
    run(&executor, task("stories-first"))
        .await
        .expect("approved");
    let node = kubelet.identity("stories-first").await;
    make_node(&site.client(&node).await, &machine.name)
        .await
        .expect("its own Node");

    // A thief of its bootstrap token requests the name of a control-plane node: no machine receives that.
    let thief = Kubelet::new(&site);
    thief
        .ask(&token, "stories-thief", Ask::client("stories-master-0"))
        .await
        .expect("it may ask");
    nobodys(&watching, 1, "stories-thief").await;
    // And the name of the serving node: the run receives it, and the worker refuses.
    thief
        .ask(&token, "stories-again", Ask::client(&machine.name))
        .await
        .expect("it may ask");
    watching
        .until("the second", published("stories-again"))
        .await
        .expect("it is told");
    let again = Task::ApproveCsr {
        csr: "stories-again".into(),
        expect: CsrExpectation {
            configured: true,
            ..served(&site, &machine).await
        },
    };
    let refused = run(&executor, again).await;
    assert!(
        matches!(&refused, Ok(Outcome::CsrRefused { why, .. }) if why.contains("the Node exists"))
    );

    // The Machine goes, and its kubelet, which still has its certificate, would like another.
    let free = json!({"metadata": {"finalizers": null}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, free)
        .await;
    site.world
        .delete(MACHINE, &machine.namespace, &machine.name)
        .await;
    watching
        .until("it is gone", |published| published.machines().is_empty())
        .await
        .expect("it is told");
    let serving = Ask::serving(&machine.name, &[&machine.name]);
    kubelet
        .ask(&node, "stories-renewal", Ask::client(&machine.name))
        .await
        .expect("it may ask");
    kubelet
        .ask(&node, "stories-serving", serving)
        .await
        .expect("it may ask");
    nobodys(&watching, 3, "stories-renewal").await;
    for csr in [
        "stories-thief",
        "stories-again",
        "stories-renewal",
        "stories-serving",
    ] {
        let (conditions, signed) = csr_conditions(&site, csr).await;
        assert!(
            !conditions.iter().any(|c| c["type"] == "Approved") && !signed,
            "{csr}"
        );
    }
    watching.stop().await;
    kubelet.forget_all().await;
}

/// Requests that are never approved, and how many of them are made at once.
const JUNK: (usize, usize) = (1_000, 16);
/// How long one that should be approved may take with all of them waiting, from its making to its certificate.
const USUAL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_thousand_junk_requests_do_not_hold_up_a_good_one() {
    let site = Site::new(plane!(), "junk").await;
    let executor = approver(&site).await;
    let token = bootstrap_token(&site, "junk00").await;
    let machine = site.provisioned("win-1").await;
    let name = json!({"metadata": {"annotations": {keys::NODE_NAME: machine.name}}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, name)
        .await;
    let client = site.client(&ours(&site, "dormer-watcher").await).await;
    let watching = Watching::start(&site, client);
    let kubelet = Kubelet::new(&site);
    let asker = site.client(&token).await;
    let ask = Ask::client("junk-win-10");
    let made = stream::iter(0..JUNK.0).map(|n| {
        let kubelet = &kubelet;
        let asker = &asker;
        let ask = &ask;
        async move {
            kubelet
                .ask_by(asker, &format!("junk-{n}"), ask)
                .await
                .expect("it may ask")
        }
    });
    made.buffer_unordered(JUNK.1).collect::<Vec<()>>().await;
    watching
        .until_status("they are counted", |status| status.foreign_csrs >= JUNK.0)
        .await;
    let began = Instant::now();
    let good = Ask::client(&machine.name);
    kubelet
        .ask_by(&asker, "junk-good", &good)
        .await
        .expect("it may ask");
    let published = watching.until("the good one", |published| {
        published.machine(
            &machine.uid,
            |fact| matches!(fact, Fact::Csr(csr) if csr.name == "junk-good"),
        )
    });
    published.await.expect("it is told");
    let task = Task::ApproveCsr {
        csr: "junk-good".into(),
        expect: expectation(&machine),
    };
    let approved = Outcome::CsrApproved {
        csr: "junk-good".into(),
    };
    assert_eq!(run(&executor, task).await, Ok(approved));
    kubelet.identity("junk-good").await;
    assert!(began.elapsed() < USUAL, "it took {:?}", began.elapsed());
    let messages = format!("{:?}", watching.published.0.borrow().messages);
    assert!(
        !messages.contains("junk-999"),
        "the others are nobody's business"
    );
    watching.stop().await;
    kubelet.forget_all().await;
}

/// A host that is not what it says: with what its request is refused, as the cluster stands.
struct Impostor<'a> {
    site: &'a Site,
    executor: KubernetesExecutor,
    token: dormer_testkit::Speaker,
}

impl Impostor<'_> {
    /// Asks for the first certificate of `expect`'s Node, which is refused for this reason.
    async fn is_refused(&self, csr: &str, expect: CsrExpectation, word: &str) {
        let kubelet = Kubelet::new(self.site);
        let ask = Ask::client(&expect.node_name);
        kubelet
            .ask(&self.token, csr, ask)
            .await
            .expect("it may ask");
        let task = Task::ApproveCsr {
            csr: csr.into(),
            expect,
        };
        let answer = run(&self.executor, task).await;
        let Ok(Outcome::CsrRefused { why, .. }) = &answer else {
            panic!("{csr}: {answer:?}")
        };
        assert!(why.contains(word), "{csr}: {why}");
        let (conditions, signed) = csr_conditions(self.site, csr).await;
        assert!(conditions.is_empty() && !signed, "{csr}: {conditions:?}");
    }

    /// A Node that is Ready.
    async fn node(&self, name: &str, labels: Value, provider: Option<&str>) {
        let world = &self.site.world;
        world
            .create(json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": labels}, "spec": {"providerID": provider}}))
            .await;
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
        world
            .status(NODE, "", name, json!({"conditions": [ready]}))
            .await;
    }

    /// What the Machine's platform says of it.
    async fn platform(&self, machine: &MachineRef, kind: &str, provider: &str) {
        let spec = json!({"spec": {"providerID": provider,
            "providerSpec": {"value": {"kind": kind}}}});
        let world = &self.site.world;
        world
            .patch(MACHINE, &machine.namespace, &machine.name, spec)
            .await;
    }
}

fn named(machine: &MachineRef, name: &str, pattern: Option<&str>) -> CsrExpectation {
    CsrExpectation {
        node_name: name.into(),
        node_names: pattern.map(str::to_owned),
        ..expectation(machine)
    }
}

#[tokio::test]
async fn a_host_does_not_become_another_node_by_saying_so() {
    let site = Site::new(plane!(), "claims").await;
    let host = Impostor {
        executor: approver(&site).await,
        token: bootstrap_token(&site, "claims").await,
        site: &site,
    };
    let windows = json!({"kubernetes.io/os": "windows"});
    let machine = site.provisioned("win-1").await;
    host.platform(&machine, "NoneMachineProviderSpec", "none:///1")
        .await;

    // It says MASTER-0, next to a Ready master-0 of another instance.
    let master = "claims-master-0";
    host.node(master, windows.clone(), Some("none:///0")).await;
    let says = named(&machine, master, None);
    host.is_refused("claims-1", says, "not its Machine's name")
        .await;
    let says = named(&machine, master, Some("win-*"));
    host.is_refused("claims-2", says, "does not fit").await;
    let says = named(&machine, master, Some("claims-*"));
    host.is_refused("claims-3", says, "belongs to none:///0")
        .await;
    // A Node without a known owner is still not this Machine's.
    host.node("claims-old", windows.clone(), None).await;
    let says = named(&machine, "claims-old", Some("claims-*"));
    host.is_refused("claims-4", says, "nothing says").await;
    // A Linux node, and one of the control plane.
    let linux = json!({"kubernetes.io/os": "linux"});
    host.node("claims-linux", linux, None).await;
    let says = named(&machine, "claims-linux", Some("claims-*"));
    host.is_refused("claims-5", says, "runs linux").await;
    let mut labels = windows.clone();
    labels["node-role.kubernetes.io/control-plane"] = "".into();
    host.node("claims-plane", labels, None).await;
    let says = named(&machine, "claims-plane", Some("claims-*"));
    host.is_refused("claims-6", says, "control plane").await;

    // Another machine's name: its own, the one that its platform gives it, the one that its host said first.
    let other = site.provisioned("win-2").await;
    let says = named(&machine, &other.name, Some("claims-*"));
    host.is_refused("claims-7", says, &other.name).await;
    let third = site.provisioned("win-3").await;
    let addresses = json!([{"type": "Hostname", "address": "CLAIMS-HOST-3"}]);
    let status = json!({"phase": "Provisioned", "addresses": addresses});
    site.world
        .status(MACHINE, &third.namespace, &third.name, status)
        .await;
    let says = named(&machine, "claims-host-3", Some("claims-*"));
    host.is_refused("claims-8", says, &third.name).await;
    let worker = worker_beside(&site).await;
    worker
        .note(&other, "claims-host-2", "key")
        .await
        .expect("it is noted");
    let says = named(&machine, "claims-host-2", Some("claims-*"));
    host.is_refused("claims-9", says, &other.name).await;

    // A name that changes.
    let changed = worker.note(&other, master, "key").await;
    let failure = changed.expect_err("it stays");
    assert_eq!(
        (failure.code.as_str(), failure.retry),
        ("NameChanged", false)
    );
    let noted = site.machine_now(&other).await;
    assert_eq!(
        noted["metadata"]["annotations"][keys::NODE_NAME],
        "claims-host-2"
    );
    Kubelet::new(&site).forget_all().await;
}

#[tokio::test]
async fn a_machine_of_a_cloud_has_its_clouds_name_and_no_other() {
    let site = Site::new(plane!(), "clouds").await;
    let host = Impostor {
        executor: approver(&site).await,
        token: bootstrap_token(&site, "clouds").await,
        site: &site,
    };
    let machine = site.machine("win-1").await;
    host.platform(&machine, "AWSMachineProviderConfig", "aws:///a/i-1")
        .await;
    let own = "ip-10-0-0-7.clouds.internal";
    let status = |linked: Value| {
        json!({"phase": "Running", "nodeRef": linked, "addresses": [
            {"type": "InternalIP", "address": "10.0.0.7"}, {"type": "InternalDNS", "address": own}]})
    };
    let set = |linked: Value| {
        let status = status(linked);
        let world = &site.world;
        let machine = &machine;
        async move {
            world
                .status(MACHINE, &machine.namespace, &machine.name, status)
                .await;
        }
    };
    set(json!(null)).await;
    let says = named(&machine, "clouds-master-0", Some("clouds-*"));
    host.is_refused("clouds-1", says, "none of its Machine's names")
        .await;
    // It is linked to a Node that is gone: of another name, and of its own.
    set(json!({"kind": "Node", "name": "clouds-old", "uid": "u"})).await;
    let says = named(&machine, own, None);
    host.is_refused("clouds-2", says, "another Node, clouds-old")
        .await;
    set(json!({"kind": "Node", "name": own, "uid": "u"})).await;
    let says = named(&machine, own, None);
    host.is_refused("clouds-3", says, "which is gone").await;
    // And without all that it joins.
    set(json!(null)).await;
    let task = Task::ApproveCsr {
        csr: "clouds-3".into(),
        expect: named(&machine, own, None),
    };
    let approved = Outcome::CsrApproved {
        csr: "clouds-3".into(),
    };
    assert_eq!(run(&host.executor, task).await, Ok(approved));
    Kubelet::new(&site).forget_all().await;
}

/// A machine's run that waits for its Node, fed with what the watcher tells it of certificate requests. What it knows
/// is no news to it, as in the engine.
struct Waiting {
    uid: String,
    state: State,
    known: BTreeMap<ObjectRef, Option<work::Fact>>,
    read: usize,
    asked: Vec<Task>,
}

impl Waiting {
    fn of(machine: &MachineRef) -> Self {
        let host = Host {
            node_name: Some(machine.name.clone()),
            configured: Some(Timestamp(1)),
            ..Host::default()
        };
        let fact = MachineFact {
            machine: machine.clone(),
            ..MachineFact::default()
        };
        Self {
            uid: machine.uid.clone(),
            state: State {
                phase: Phase::NodeWait,
                machine: Some(fact),
                host,
                ..State::default()
            },
            known: BTreeMap::new(),
            read: 0,
            asked: Vec::new(),
        }
    }

    fn read(&mut self, published: &PublishedMessages) {
        let run = format!("machine/{}", self.uid);
        let new = published.messages.iter().skip(self.read);
        let about = |kind: &str| kind == "CertificateSigningRequest";
        let ours = new.filter(|(to, it)| *to == run && about(&it.object.kind));
        for (_, it) in ours {
            let known = self.known.insert(it.object.clone(), it.fact.clone());
            if known.as_ref() != Some(&it.fact) {
                self.decide(Input::Observed {
                    object: it.object.clone(),
                    fact: it.fact.clone(),
                });
            }
        }
        self.read = published.messages.len();
    }

    fn decide(&mut self, input: Input<Machine>) {
        let run = work::machine_run(&self.uid).expect("a run");
        let now = Now {
            run: &run,
            seq: Seq(1),
            at: Timestamp(2),
        };
        let state = std::mem::take(&mut self.state);
        let Decision { state, commands } = Machine::decide(now, state, input);
        self.state = state;
        for command in commands {
            match command {
                Command::Run(task, _) => self.asked.push(task),
                Command::ForgetFact(object) => drop(self.known.remove(&object)),
                _ => {}
            }
        }
    }

    fn asks_for(&self, name: &str) -> bool {
        let is = |task: &Task| matches!(task, Task::ApproveCsr { csr, .. } if csr == name);
        self.asked.iter().any(is)
    }
}

#[tokio::test]
async fn twenty_junk_requests_in_a_nodes_name_do_not_keep_the_true_one_out() {
    const JUNK: usize = 20;
    let site = Site::new(plane!(), "crowd").await;
    let executor = approver(&site).await;
    let token = bootstrap_token(&site, "crowd0").await;
    let machine = site.provisioned("win-1").await;
    let name = json!({"metadata": {"annotations": {keys::NODE_NAME: machine.name}}});
    site.world
        .patch(MACHINE, &machine.namespace, &machine.name, name)
        .await;
    let client = site.client(&ours(&site, "dormer-watcher").await).await;
    let options = Options {
        repeat: Duration::from_secs(1),
        ..options(&site)
    };
    let record = Arc::new(Recorder(tokio::sync::watch::Sender::default()));
    let watching = Watching::with(client, options, record);
    let kubelet = Kubelet::new(&site);
    let told = |name: String| {
        let uid = machine.uid.clone();
        move |published: &PublishedMessages| {
            published.machine(
                &uid,
                |fact| matches!(fact, Fact::Csr(csr) if csr.name == name),
            )
        }
    };
    for n in 0..JUNK {
        let mut junk = Ask::client(&machine.name);
        junk.usages.push("cert sign");
        let name = format!("crowd-{n}");
        kubelet.ask(&token, &name, junk).await.expect("it may ask");
        watching
            .until("junk", told(name))
            .await
            .expect("it is told");
    }
    // A request by an identity that may never have it reaches no machine.
    let mallory = site.plane.user("mallory", Some("system:bootstrappers"));
    kubelet
        .ask(&mallory, "crowd-mallory", Ask::client(&machine.name))
        .await
        .expect("it may ask");
    nobodys(&watching, 1, "crowd-mallory").await;
    let mut run_of_requests = Waiting::of(&machine);
    run_of_requests.read(&watching.published.0.borrow());
    assert_eq!(run_of_requests.asked.len(), CSRS_MAX);
    let good = "crowd-good";
    kubelet
        .ask(&token, good, Ask::client(&machine.name))
        .await
        .expect("it may ask");
    watching
        .until("the good one", told(good.to_owned()))
        .await
        .expect("it is told");
    run_of_requests.read(&watching.published.0.borrow());
    assert!(
        !run_of_requests.asks_for(good),
        "a worker is at all of them"
    );
    for task in std::mem::take(&mut run_of_requests.asked) {
        let outcome = run(&executor, task.clone()).await.expect("an answer");
        assert!(matches!(outcome, Outcome::CsrRefused { .. }));
        run_of_requests.decide(Input::Finished { task, outcome });
    }
    watching
        .until("it is told again, and looked at", |published| {
            run_of_requests.read(published);
            run_of_requests.asks_for(good)
        })
        .await
        .expect("it is asked for");
    let mut tasks = run_of_requests.asked.into_iter();
    let task = tasks.find(|task| matches!(task, Task::ApproveCsr { csr, .. } if csr == good));
    let approved = Outcome::CsrApproved { csr: good.into() };
    assert_eq!(run(&executor, task.expect("it")).await, Ok(approved));
    kubelet.identity(good).await;
    watching.stop().await;
    kubelet.forget_all().await;
}
