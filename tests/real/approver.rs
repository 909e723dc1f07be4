//! "If an attacker controls a worker" (docs/threat-model.md): what approves is apart from what talks to hosts. With a worker's
//! account nothing is approved, and no token is read but those of machines that join. With the rights of earlier builds each
//! attack succeeds.

use super::{
    accounts::{apply, home, ours, unguarded, worker_beside},
    ask::{Ask, Kubelet, OPERATOR, bootstrap_token, csr_conditions},
    cluster::{CSR, Kind, PATIENCE, Site, World, executor_with_tokens, plane},
};
use dormer_proto::machine::MachineRef;
use dormer_testkit::await_condition;
use dormer_workers::{
    host::cluster::Cluster,
    kubernetes::{join, token},
};
use kube::{
    Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const SECRET: Kind = ("", "v1", "Secret");

/// What an attacker aims at in one part of the cluster.
struct Target {
    site: Site,
    /// A request for a certificate in the name of a node of the control plane.
    csr: String,
    /// The token of a machine that is not the attacker's.
    token: String,
}

impl Target {
    async fn of(site: Site) -> Self {
        let other = site.provisioned("win-2").await;
        let approver = site.client(&ours(&site, "dormer-approver").await).await;
        let approver = executor_with_tokens(approver, home(&site));
        approver.token(&other).await.expect("a token");
        let id = token::id(&home(&site), &other.uid, 0);
        let metadata = json!({"name": "node-bootstrapper-token", "namespace": OPERATOR});
        let shared = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "stringData": {"token": "shared"}});
        // It is there where another test was before.
        let _ = site.world.try_create(shared).await;
        let csr = format!("{}-master", site.name);
        let by = bootstrap_token(&site, &format!("{}0", &site.name[..5])).await;
        let ask = Ask::client(&format!("{}-master", site.name));
        Kubelet::new(&site)
            .ask(&by, &csr, ask)
            .await
            .expect("it may ask");
        Self {
            csr,
            token: format!("bootstrap-token-{id}"),
            site,
        }
    }

    /// The attacks that succeed with an account.
    async fn succeed(&self, attacker: &Client) -> Vec<&'static str> {
        let by = World {
            admin: attacker.clone(),
        };
        let mut done = Vec::new();
        let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True",
            "reason": "DormerApproved"}]}});
        let params = PatchParams::default();
        let approved = Patch::Merge(&approved);
        let requests = by.api(CSR, "");
        let patched = requests.patch_subresource("approval", &self.csr, &params, &approved);
        if patched.await.is_ok() {
            done.push("approves a request");
        }
        let reads = async |namespace: &str, name: &str| {
            let secret = by.api(SECRET, namespace).get(name).await;
            secret.is_ok_and(|secret| secret.data["data"].is_object())
        };
        if reads(OPERATOR, "node-bootstrapper-token").await {
            done.push("reads the token of all machines");
        }
        if reads("kube-system", &self.token).await {
            done.push("reads another machine's token");
        }
        let joins = by.api(SECRET, &join::namespace(&home(&self.site)));
        if joins.list(&ListParams::default()).await.is_ok() {
            done.push("lists what is handed over");
        }
        done
    }

    async fn end(self) {
        self.site
            .world
            .delete(SECRET, "kube-system", &self.token)
            .await;
        Kubelet::new(&self.site).forget_all().await;
    }
}

#[tokio::test]
async fn a_stolen_worker_approves_nothing_and_reads_no_token() {
    let all = [
        "approves a request",
        "reads the token of all machines",
        "reads another machine's token",
        "lists what is handed over",
    ];
    // As it was: one account has the rights of both.
    let open = Site::new(plane!(), "onerole").await;
    unguarded(&open, |_, _| true).await;
    for (role, namespace) in [
        ("dormer-approver", None),
        ("dormer-approver-bootstrap", Some(OPERATOR.to_owned())),
        ("dormer-approver-tokens", Some("kube-system".to_owned())),
        ("dormer-approver-join", Some(join::namespace(&home(&open)))),
    ] {
        let kind = if namespace.is_some() {
            "Role"
        } else {
            "ClusterRole"
        };
        let metadata =
            json!({"name": format!("{}-stolen-{role}", open.name), "namespace": namespace});
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind,
            "name": format!("{}-{role}", open.name)});
        let subject =
            json!({"kind": "ServiceAccount", "name": "dormer-worker", "namespace": home(&open)});
        open.world
            .create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
                "metadata": metadata, "roleRef": reference, "subjects": [subject]}))
            .await;
    }
    let target = Target::of(open).await;
    let worker = ours(&target.site, "dormer-worker").await;
    let worker = target.site.client(&worker).await;
    // The authorizer follows roles by a watch.
    await_condition("every attack succeeds", PATIENCE, || async {
        target.succeed(&worker).await == all
    })
    .await;
    await_condition("a certificate was issued", PATIENCE, || async {
        csr_conditions(&target.site, &target.csr).await.1
    })
    .await;
    target.end().await;

    let held = Site::new(plane!(), "tworoles").await;
    apply(&held, |_, _| true).await;
    let target = Target::of(held).await;
    let worker = ours(&target.site, "dormer-worker").await;
    let worker = target.site.client(&worker).await;
    assert_eq!(target.succeed(&worker).await, [""; 0]);
    let asked = csr_conditions(&target.site, &target.csr).await;
    assert_eq!(asked, (vec![], false));
    target.end().await;
}

/// Asks as a worker does, and says why the approver gives nothing.
async fn refusal(site: &Site, machine: &MachineRef) -> String {
    let worker = worker_beside(site).await;
    let failure = worker.token(machine).await.expect_err("no token");
    assert_eq!(failure.code, join::TOKEN_REFUSED, "{failure:?}");
    failure.message
}

#[tokio::test]
async fn a_stolen_worker_gets_no_token_for_what_does_not_join() {
    let site = Site::new(plane!(), "asked").await;
    apply(&site, |_, _| true).await;
    let client = site.client(&ours(&site, "dormer-approver").await).await;
    let approver = executor_with_tokens(client, home(&site)).of_approver();
    let giving = tokio::spawn(approver.run_token_grants(|_| ()));

    let joined = site.joined("win-1").await;
    let why = refusal(&site, &joined).await;
    assert!(why.contains("it has joined"), "{why}");
    let named = format!("{}-linux", site.name);
    let linux = json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
        "metadata": {"name": named, "namespace": site.machines}, "spec": {"providerSpec": {}}});
    let linux = site.world.create(linux).await;
    let linux = MachineRef {
        name: named,
        uid: text(&linux["metadata"]["uid"]),
        ..joined.clone()
    };
    let why = refusal(&site, &linux).await;
    assert!(why.contains("no label"), "{why}");
    let invented = MachineRef {
        uid: "1".into(),
        ..joined
    };
    let why = refusal(&site, &invented).await;
    assert!(why.contains("its Machine is gone"), "{why}");
    giving.abort();
}

/// No process runs the role: the attempt is given back with a code of its own, and does not count.
#[tokio::test]
async fn a_machine_waits_for_an_approver_that_nobody_runs() {
    let site = Site::new(plane!(), "nobody").await;
    apply(&site, |_, _| true).await;
    let machine = site.provisioned("win-1").await;
    let worker = worker_beside(&site).await;
    let failure = worker.token(&machine).await.expect_err("no token");
    assert_eq!(failure.code, join::TOKEN_AWAITED, "{failure:?}");
    assert!(failure.retry && failure.uncounted, "{failure:?}");
    assert!(failure.message.contains("the role approver"), "{failure:?}");
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
