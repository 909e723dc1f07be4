//! Bypasses of RBAC by who holds one of dormer's accounts: each succeeds without the admission policies of
//! `deploy/guard.yaml`, and the API server refuses it with them.

use super::{
    accounts::{apply, canaries, guard, home, ours, plain, unguarded},
    ask::{Ask, CLIENT, Kubelet},
    cluster::{
        CSR, Kind, MACHINE, NODE, PATIENCE, POD, Site, WINDOWS_MACHINE, WINDOWS_POOL, World,
        executor, plain_plane_with_cluster_api, plane, run,
    },
    watching::settings,
};
use dormer_profile::yaml;
use dormer_proto::machine::{MachineRef, Outcome, Task};
use dormer_testkit::{Helm, await_condition, await_some, started};
use dormer_workers::kubernetes::account_token;
use kube::{
    Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const SECRET: Kind = ("", "v1", "Secret");
const ACCOUNT: Kind = ("", "v1", "ServiceAccount");
const LEASE: Kind = ("coordination.k8s.io", "v1", "Lease");
const CLASS: Kind = ("node.k8s.io", "v1", "RuntimeClass");
const SLICE: Kind = ("discovery.k8s.io", "v1", "EndpointSlice");
const SERVICE: Kind = ("", "v1", "Service");
const CLUSTER_MACHINE: Kind = ("cluster.x-k8s.io", "v1beta2", "Machine");
const HOST: Kind = ("dormer.io", "v1beta1", "WindowsHost");

/// A write by one of dormer's accounts.
enum Write {
    Create(Value),
    Patch(Value),
    /// A patch of a part of the object, such as its status.
    Part(&'static str, Value),
    /// A TokenRequest for the account.
    Token(Value),
    Delete,
}
use Write::{Create, Delete, Part, Patch as Change, Token};

/// What an attacker tries with an account of dormer's.
struct Attack {
    account: &'static str,
    kind: Kind,
    namespace: String,
    name: String,
    write: Write,
    /// What the API server says when it refuses.
    refused: &'static str,
}

/// Everything that is tried in a part of the cluster.
fn attacks(site: &Site) -> Vec<Attack> {
    let site_name = site.name;
    let home = home(site);
    let machines = site.machines.clone();
    let windows = format!("{site_name}-win");
    let linux = format!("{site_name}-linux");
    let theirs = format!("{site_name}-theirs");
    let mut all = Vec::new();
    let mut add = |account, kind, namespace: &str, name: &str, write, refused| {
        all.push(Attack {
            account,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            write,
            refused,
        });
    };
    let labels = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    let note = |key: &str| json!({"metadata": {"annotations": {key: "1"}}});
    let cordon = || Change(json!({"spec": {"unschedulable": true}}));
    add(
        "dormer-worker",
        NODE,
        "",
        &windows,
        Change(labels.clone()),
        "adds labels of a machine's template",
    );
    for (key, value) in [
        ("kubernetes.io/os", Some("linux")),
        ("team", None),
        ("team", Some("red")),
        ("topology.kubernetes.io/zone", Some("b")),
    ] {
        add(
            "dormer-worker",
            NODE,
            "",
            &windows,
            Change(json!({"metadata": {"labels": {key: value}}})),
            "and changes none",
        );
    }
    for key in [
        "machine.openshift.io/machine",
        "k8s.ovn.org/hybrid-overlay-node-subnet",
        // What WMCO's is taken away, and never written.
        "windowsmachineconfig.openshift.io/reboot-required",
        "windowsmachineconfig.openshift.io/pub-key-hash",
    ] {
        add(
            "dormer-worker",
            NODE,
            "",
            &windows,
            Change(note(key)),
            "no annotation of a Node but",
        );
    }
    let taints = json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}});
    add(
        "dormer-worker",
        NODE,
        "",
        &windows,
        Change(taints),
        "nothing but unschedulable",
    );
    add(
        "dormer-worker",
        NODE,
        "",
        &linux,
        cordon(),
        "Windows nodes only",
    );
    let foreign = note("cluster.x-k8s.io/cluster-name");
    add(
        "dormer-worker",
        NODE,
        "",
        &windows,
        Change(foreign),
        "no annotation of a Node but",
    );

    let spec = json!({"spec": {"providerID": "aws:///else"}});
    add(
        "dormer-worker",
        MACHINE,
        &machines,
        &windows,
        Change(spec),
        "neither spec",
    );
    let freed = json!({"metadata": {"finalizers": null}});
    add(
        "dormer-worker",
        MACHINE,
        &machines,
        &windows,
        Change(freed),
        "neither spec",
    );
    let foreign = note("machine.openshift.io/exclude-node-draining");
    add(
        "dormer-worker",
        MACHINE,
        &machines,
        &windows,
        Change(foreign),
        "no annotation of a Machine but",
    );
    add(
        "dormer-worker",
        MACHINE,
        &machines,
        &windows,
        Delete,
        "under an open fence",
    );
    add(
        "dormer-worker",
        MACHINE,
        &machines,
        &linux,
        Delete,
        "Windows Machines only",
    );

    let secret = |namespace: &str, name: &str, kind: &str, data: Value| {
        Create(json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {"name": name, "namespace": namespace,
                "annotations": {"kubernetes.io/service-account.name": "default"},
                "labels": {"app.kubernetes.io/managed-by": "dormer"}},
            "stringData": data}))
    };
    // The controller of tokens fills it, and the approver may read it.
    let minted = format!("{site_name}-minted");
    let write = secret(
        "kube-system",
        &minted,
        "kubernetes.io/service-account-token",
        json!({}),
    );
    add(
        "dormer-approver",
        SECRET,
        "kube-system",
        &minted,
        write,
        "own bootstrap tokens only",
    );
    let id = if site_name == "guarded" {
        "guard1"
    } else {
        "guard0"
    };
    let bootstrap = format!("bootstrap-token-{id}");
    let data = json!({"token-id": id, "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token"});
    let write = secret(
        "kube-system",
        &bootstrap,
        "bootstrap.kubernetes.io/token",
        data,
    );
    add(
        "dormer-approver",
        SECRET,
        "kube-system",
        &bootstrap,
        write,
        "is of the group",
    );
    add(
        "dormer-approver",
        SECRET,
        "kube-system",
        &theirs,
        Delete,
        "own bootstrap tokens only",
    );
    let write = secret(
        &machines,
        &minted,
        "kubernetes.io/service-account-token",
        json!({}),
    );
    add(
        "dormer-worker",
        SECRET,
        &machines,
        &minted,
        write,
        "windows-user-data only",
    );
    let write = secret(
        &machines,
        "windows-user-data",
        "Opaque",
        json!({"userData": ""}),
    );
    add(
        "dormer-worker",
        SECRET,
        &machines,
        "windows-user-data",
        write,
        "has userData",
    );

    let join = format!("{home}-join");
    let write = secret(
        &join,
        "join-minted",
        "kubernetes.io/service-account-token",
        json!({}),
    );
    add(
        "dormer-worker",
        SECRET,
        &join,
        "join-minted",
        write,
        "of type dormer.io/join only",
    );
    let write = secret(
        &join,
        "join-written",
        "dormer.io/join",
        json!({"token": "a.b"}),
    );
    add(
        "dormer-worker",
        SECRET,
        &join,
        "join-written",
        write,
        "the approver writes it",
    );

    for (spec, refused) in [
        (
            json!({"expirationSeconds": 3_600}),
            "is bound to the Secret",
        ),
        (
            json!({"expirationSeconds": 86_400, "boundObjectRef": {"apiVersion": "v1",
                "kind": "Secret", "name": "join-written"}}),
            "ends within an hour",
        ),
    ] {
        let wish = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": spec});
        add(
            "dormer-approver",
            ACCOUNT,
            &join,
            account_token::ACCOUNT,
            Token(wish),
            refused,
        );
    }

    let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True",
        "reason": "DormerApproved"}]}});
    let csr = format!("{site_name}-person");
    add(
        "dormer-approver",
        CSR,
        "",
        &csr,
        Part("approval", approved),
        "a node or its bootstrapper",
    );
    let told = json!({"status": {"waitingFor": "nothing"}});
    add(
        "dormer-worker",
        WINDOWS_POOL,
        &home,
        "windows",
        Part("status", told),
        "nothing but the override",
    );

    let override_ = json!({"status": {"override": {"payload": "old", "from": "new", "insteadOf": "installed",
        "by": "nobody"}}});
    add(
        "dormer-console",
        WINDOWS_POOL,
        &home,
        "windows",
        Part("status", override_),
        "the override",
    );
    // Below it no order counts any more.
    let order = json!({"status": {"overrideOrder": "1/99999"}});
    add(
        "dormer-console",
        WINDOWS_POOL,
        &home,
        "windows",
        Part("status", order),
        "the override",
    );
    add(
        "dormer-console",
        NODE,
        "",
        &windows,
        Part("status", labels),
        "nothing beside it",
    );
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    add(
        "dormer-console",
        NODE,
        "",
        &windows,
        Part("status", ready),
        "its own condition",
    );
    let room = json!({"status": {"capacity": {"example.com/x": "7"}}});
    add(
        "dormer-console",
        NODE,
        "",
        &windows,
        Part("status", room),
        "its own condition",
    );
    let ours = json!({"status": {"conditions": [{"type": "DormerConfigured", "status": "True"}]}});
    add(
        "dormer-console",
        NODE,
        "",
        &linux,
        Part("status", ours),
        "on Windows nodes only",
    );
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "nats-0", "namespace": home,
            "labels": {"kubernetes.io/service-name": "nats"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.6.6.6"]}]});
    add(
        "dormer-console",
        SLICE,
        &home,
        "nats-0",
        Create(slice),
        "dormer-windows-exporter only",
    );
    add(
        "dormer-console",
        WINDOWS_MACHINE,
        &machines,
        &theirs,
        Delete,
        "its own dormer only",
    );

    let ours = json!({"dormer.io/canary-of": "node-1"});
    for (name, spec, refused) in [
        (
            "of-an-address",
            json!({"type": "NodePort", "selector": ours, "externalIPs": ["192.0.2.1"]}),
            "no address beside its own",
        ),
        (
            "of-a-balancer",
            json!({"type": "LoadBalancer", "selector": ours}),
            "type NodePort only",
        ),
        (
            "of-a-name",
            json!({"type": "ExternalName", "selector": ours, "externalName": "else.example"}),
            "type NodePort only",
        ),
        (
            "of-any-pod",
            json!({"type": "NodePort", "selector": {"app": "web"}}),
            "leads to a canary only",
        ),
    ] {
        let canaries = canaries(site);
        let write = Create(service(&canaries, name, spec));
        add("dormer-worker", SERVICE, &canaries, name, write, refused);
    }

    let privileged = json!({"securityContext": {"privileged": true}});
    let token = json!({"volumes": [{"name": "token",
        "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]});
    for (name, more, container, refused) in [
        (
            "on-its-network",
            json!({"hostNetwork": true}),
            json!({}),
            "uses neither files",
        ),
        (
            "with-its-files",
            json!({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}),
            json!({}),
            "uses neither files",
        ),
        (
            "with-a-disk-of-a-driver",
            json!({"volumes": [{"name": "disk", "csi": {"driver": "files.example"}}]}),
            json!({}),
            "uses neither files",
        ),
        ("with-a-token", token, json!({}), "uses neither files"),
        (
            "with-its-port",
            json!({}),
            json!({"ports": [{"containerPort": 8_080, "hostPort": 8_080}]}),
            "uses neither files",
        ),
        (
            "with-its-rights",
            json!({}),
            privileged,
            "has no rights on its node",
        ),
        (
            "with-a-capability",
            json!({}),
            json!({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
            "has no rights on its node",
        ),
        (
            "with-a-domain-account",
            json!({"securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "admins"}}}),
            json!({}),
            "has no rights on its node",
        ),
        (
            "with-a-free-context",
            json!({}),
            json!({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
            "has no rights on its node",
        ),
        (
            "with-an-account",
            json!({"automountServiceAccountToken": true}),
            json!({}),
            "has no account",
        ),
    ] {
        let canaries = canaries(site);
        let write = Create(pod(&canaries, name, &more, container));
        add("dormer-worker", POD, &canaries, name, write, refused);
    }

    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc",
        "metadata": {"name": format!("{site_name}-sandbox")}});
    add(
        "dormer-watcher",
        CLASS,
        "",
        &format!("{site_name}-sandbox"),
        Create(class),
        "Windows builds only",
    );
    let change = json!({"scheduling": {"nodeSelector": {"a": "b"}}});
    let of_others = format!("windows-{site_name}");
    add(
        "dormer-watcher",
        CLASS,
        "",
        &of_others,
        Change(change),
        "its own RuntimeClasses only",
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "another", "namespace": home}, "spec": {"holderIdentity": "me"}});
    add(
        "dormer-watcher",
        LEASE,
        &home,
        "another",
        Create(lease),
        "dormer-watcher only",
    );
    all
}

/// A Service with a port and this in its spec.
fn service(namespace: &str, name: &str, mut spec: Value) -> Value {
    spec["ports"] = json!([{"port": 8_080}]);
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": spec})
}

/// A pod without an account, and with this in its spec and in that of its one container.
fn pod(namespace: &str, name: &str, more: &Value, mut container: Value) -> Value {
    container["name"] = json!("c");
    container["image"] = json!("i");
    let mut spec = json!({"automountServiceAccountToken": false, "containers": [container]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": spec})
}

impl Attack {
    /// Tries it; with `dry_run` nothing is stored.
    async fn try_by(&self, client: &Client, dry_run: bool) -> Result<(), kube::Error> {
        let by = World {
            admin: client.clone(),
        };
        let api = by.api(self.kind, &self.namespace);
        let params = PatchParams {
            dry_run,
            ..PatchParams::default()
        };
        let name = self.name.as_str();
        match &self.write {
            Create(object) => {
                let object: DynamicObject =
                    serde_json::from_value(object.clone()).expect("an object");
                let params = PostParams {
                    dry_run,
                    ..PostParams::default()
                };
                api.create(&params, &object).await.map(drop)
            }
            // A strategic merge keeps the other entries of a list; only Kubernetes' own kinds know it.
            Change(change) => api
                .patch(name, &params, &Patch::Merge(change))
                .await
                .map(drop),
            Part(part, change) if self.kind == NODE => {
                let change = Patch::Strategic(change);
                api.patch_subresource(part, name, &params, &change)
                    .await
                    .map(drop)
            }
            Part(part, change) => {
                let change = Patch::Merge(change);
                api.patch_subresource(part, name, &params, &change)
                    .await
                    .map(drop)
            }
            Token(wish) => {
                let params = PostParams {
                    dry_run,
                    ..PostParams::default()
                };
                api.create_subresource::<Value, Value>("token", name, &params, wish)
                    .await
                    .map(drop)
            }
            Delete => {
                let params = DeleteParams {
                    dry_run,
                    ..DeleteParams::default()
                };
                api.delete(name, &params).await.map(drop)
            }
        }
    }

    fn what(&self) -> String {
        format!(
            "{} on {} {}: {}",
            self.account, self.kind.2, self.name, self.refused
        )
    }
}

/// Everything that the attacks aim at.
async fn targets(site: &Site) -> Vec<(&'static str, Client)> {
    let world = &site.world;
    settings(site, json!({})).await;
    site.joined("win").await;
    let labelled = json!({"metadata": {"labels": {"team": "blue"}}});
    let win = format!("{}-win", site.name);
    world.patch(NODE, "", &win, labelled).await;
    let linux = format!("{}-linux", site.name);
    let theirs = format!("{}-theirs", site.name);
    world
        .create(json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": linux, "labels": {"kubernetes.io/os": "linux"}}}))
        .await;
    world
        .create(
            json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
        "metadata": {"name": linux, "namespace": site.machines}, "spec": {"providerSpec": {}}}),
        )
        .await;
    world
        .create(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": theirs, "namespace": "kube-system"}}))
        .await;
    world
        .create(
            json!({"apiVersion": "dormer.io/v1alpha1", "kind": "WindowsMachine",
        "metadata": {"name": theirs, "namespace": site.machines}}),
        )
        .await;
    world
        .create(
            json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": format!("windows-{}", site.name)}, "handler": "runhcs-wcow-process"}),
        )
        .await;
    let person = Ask {
        signer: CLIENT,
        ..Ask::client(&linux)
    };
    let csr = format!("{}-person", site.name);
    Kubelet::new(site)
        .ask(&site.plane.admin(), &csr, person)
        .await
        .expect("a person asks");
    let mut clients = Vec::new();
    for account in [
        "dormer-watcher",
        "dormer-worker",
        "dormer-approver",
        "dormer-console",
    ] {
        clients.push((account, site.client(&ours(site, account).await).await));
    }
    clients
}

fn client_of<'a>(clients: &'a [(&str, Client)], account: &str) -> &'a Client {
    let found = clients.iter().find(|(name, _)| *name == account);
    &found.expect("an account of dormer's").1
}

#[tokio::test]
async fn each_bypass_succeeds_without_the_policies_and_is_refused_with_them() {
    let open = Site::new(plane!(), "unguarded").await;
    unguarded(&open, |_, _| true).await;
    let clients = targets(&open).await;
    for attack in attacks(&open) {
        let by = client_of(&clients, attack.account);
        // The authorizer follows roles by a watch.
        await_condition(&attack.what(), PATIENCE, || async {
            attack.try_by(by, true).await.is_ok()
        })
        .await;
        let done = attack.try_by(by, false).await;
        done.unwrap_or_else(|why| panic!("{} without the policy: {why}", attack.what()));
    }
    // What it is worth: a token of another account, which the approver reads.
    let approver = World {
        admin: client_of(&clients, "dormer-approver").clone(),
    };
    let minted = "unguarded-minted";
    await_some("a token of another account", PATIENCE, || async {
        let secret = approver.get(SECRET, "kube-system", minted).await?;
        secret["data"]["token"].as_str().map(str::to_owned)
    })
    .await;
    let gone = open
        .world
        .get(MACHINE, &open.machines, "unguarded-linux")
        .await;
    assert!(gone.is_none(), "the Linux Machine was deleted");
    open.world.delete(SECRET, "kube-system", minted).await;
    open.world
        .delete(SECRET, "kube-system", "bootstrap-token-guard0")
        .await;

    let held = Site::new(plane!(), "guarded").await;
    apply(&held, |_, _| true).await;
    let clients = targets(&held).await;
    for attack in attacks(&held) {
        let by = client_of(&clients, attack.account);
        // The API server follows policies by a watch, too, so it is asked without effect until it refuses.
        let refused = |said: &Result<(), kube::Error>| {
            said.as_ref().is_err_and(|why| {
                why.to_string().contains("guarded-guard-")
                    && why.to_string().contains(attack.refused)
            })
        };
        await_condition(&attack.what(), PATIENCE, || async {
            refused(&attack.try_by(by, true).await)
        })
        .await;
        let done = attack.try_by(by, false).await;
        assert!(refused(&done), "{}: {done:?}", attack.what());
    }
    // What the worker makes for a canary is no bypass, also if another program adds a volume to each pod.
    let canaries = canaries(&held);
    let volume = json!({"volumes": [{"name": "sockets", "emptyDir": {}}]});
    let dropping = json!({"securityContext": {"allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}});
    let peer = Attack {
        account: "dormer-worker",
        kind: POD,
        write: Create(pod(&canaries, "peer-of-canary-node-1", &volume, dropping)),
        namespace: canaries.clone(),
        name: "peer-of-canary-node-1".into(),
        refused: "",
    };
    let made = peer.try_by(client_of(&clients, peer.account), false);
    made.await.expect("the peer of a canary");
    let spec = json!({"type": "NodePort", "selector": {"dormer.io/canary-of": "node-1"}});
    let canary = Attack {
        account: "dormer-worker",
        kind: SERVICE,
        write: Create(service(&canaries, "canary-node-1", spec)),
        namespace: canaries,
        name: "canary-node-1".into(),
        refused: "",
    };
    let made = canary.try_by(client_of(&clients, canary.account), false);
    made.await.expect("the Service of a canary");
    // A fence is closed also on a Machine that has lost its label meanwhile, which is not deleted for that.
    held.world
        .create(
            json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
            "metadata": {"name": "guarded-unlabelled", "namespace": held.machines,
                "annotations": {"dormer.io/fence": "7 open"}}, "spec": {"providerSpec": {}}}),
        )
        .await;
    let unlabelled = |write| Attack {
        account: "dormer-worker",
        kind: MACHINE,
        namespace: held.machines.clone(),
        name: "guarded-unlabelled".into(),
        write,
        refused: "",
    };
    let worker = client_of(&clients, "dormer-worker");
    let deleted = unlabelled(Delete).try_by(worker, false).await;
    let why = deleted.expect_err("it is no Windows Machine").to_string();
    assert!(why.contains("Windows Machines only"), "{why}");
    let closed = json!({"metadata": {"annotations": {"dormer.io/fence": "7"}}});
    let closed = unlabelled(Change(closed)).try_by(worker, false).await;
    closed.expect("its fence is closed");
    let there = held
        .world
        .get(MACHINE, &held.machines, "guarded-linux")
        .await;
    assert!(there.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null()));
    assert!(
        held.world
            .get(SECRET, "kube-system", "guarded-minted")
            .await
            .is_none()
    );
    held.world
        .delete(SECRET, "kube-system", "guarded-theirs")
        .await;
    for site in [&open, &held] {
        Kubelet::new(site).forget_all().await;
    }
}

/// Cluster API adds the defaults of its release to a Machine of an earlier one with each write. By two annotations of a
/// WindowsHost the watcher deletes it, or gives it up.
#[tokio::test]
async fn a_worker_writes_beside_cluster_apis_defaults_and_not_what_ends_a_host() {
    let helm = started!(Helm::start());
    let plane = match plain_plane_with_cluster_api() {
        Ok(plane) => plane,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let site = Site::new(plane.plane(), "defaults").await;
    plain(&site, &helm).await;
    let home = home(&site);
    let worker = site.client(&ours(&site, "dormer-worker").await).await;
    let machine = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": "win", "namespace": site.machines,
            "labels": {"kubernetes.io/os": "windows"}},
        "spec": {"clusterName": "one", "deletion": {"nodeDrainTimeoutSeconds": 60}}});
    site.world.create(machine).await;
    let notes = json!({"dormer.io/from": "windows-instances", "dormer.io/host-pool": "windows"});
    let host = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsHost",
        "metadata": {"name": "192.0.2.9", "namespace": home, "annotations": notes},
        "spec": {"address": "192.0.2.9"}});
    site.world.create(host).await;
    let to_machine = |spec: Value, refused| Attack {
        account: "dormer-worker",
        kind: CLUSTER_MACHINE,
        namespace: site.machines.clone(),
        name: "win".into(),
        write: Change(
            json!({"metadata": {"annotations": {"dormer.io/node-name": "win"}},
            "spec": spec}),
        ),
        refused,
    };
    let to_host = |key: &str, value: Option<&str>, refused| Attack {
        account: "dormer-worker",
        kind: HOST,
        namespace: home.clone(),
        name: "192.0.2.9".into(),
        write: Change(json!({"metadata": {"annotations": {key: value}}})),
        refused,
    };
    let spec = "changes neither spec";
    let note = "no annotation of a WindowsHost but";
    for attack in [
        to_machine(json!({"clusterName": "two"}), spec),
        to_machine(json!({"deletion": {"nodeDrainTimeoutSeconds": 1}}), spec),
        to_machine(
            json!({"deletion": {"nodeVolumeDetachTimeoutSeconds": 1}}),
            spec,
        ),
        to_machine(json!({"deletion": null}), spec),
        to_host("dormer.io/from", None, note),
        to_host("dormer.io/host-pool", Some("another"), note),
        to_host("dormer.io/host-pool", None, note),
    ] {
        // The API server follows policies and roles by a watch.
        await_condition(&attack.what(), PATIENCE, || async {
            let done = attack.try_by(&worker, true).await;
            done.is_err_and(|why| why.to_string().contains(attack.refused))
        })
        .await;
    }
    let defaults = json!({"minReadySeconds": 0, "deletion": {"nodeDeletionTimeoutSeconds": 10}});
    for own in [
        to_machine(defaults, ""),
        to_host("dormer.io/node-name", Some("win"), ""),
    ] {
        let done = own.try_by(&worker, false).await;
        done.unwrap_or_else(|why| panic!("{}{why}", own.what()));
    }
    // What Cluster API has added is not dormer's to change.
    let changed = to_machine(json!({"minReadySeconds": 9}), spec);
    let done = changed.try_by(&worker, false).await;
    assert!(done.is_err_and(|why| why.to_string().contains(spec)));
}

/// A Machine's template reaches its Node where no controller links them, under the policies; a later template reaches new
/// Machines alone.
#[tokio::test]
async fn a_template_reaches_the_node_of_its_machine_and_of_no_other() {
    let site = Site::new(plane!(), "template").await;
    apply(&site, |_, _| true).await;
    settings(&site, json!({})).await;
    let worker = site.client(&ours(&site, "dormer-worker").await).await;
    let executor = executor(worker, home(&site));
    let template = |team: &str| {
        json!({"spec": {"metadata": {
            "labels": {"team": team, "node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "a"},
            "annotations": {"corp.example/owner": team, "k8s.ovn.org/x": "1"}}}})
    };
    let mark = |machine: &MachineRef| Task::MarkNode {
        machine: machine.clone(),
        node: machine.name.clone(),
        version: "v1".into(),
        pin: None,
        expect: None,
    };
    let marked = async |short: &str, team: &str| {
        let machine = site.joined(short).await;
        site.world
            .patch(MACHINE, &site.machines, &machine.name, template(team))
            .await;
        // The API server follows policies and roles by a watch.
        await_condition("the node is marked", PATIENCE, || async {
            run(&executor, mark(&machine)).await == Ok(Outcome::NodeMarked)
        })
        .await;
        machine
    };
    let old = marked("old", "blue").await;
    let new = marked("new", "green").await;
    for (machine, team) in [(&old, "blue"), (&new, "green")] {
        let node = site.node_now(machine).await;
        let (labels, notes) = (
            &node["metadata"]["labels"],
            &node["metadata"]["annotations"],
        );
        assert_eq!(labels["team"], team, "{node}");
        assert_eq!(labels["node-role.kubernetes.io/worker"], "", "{node}");
        assert_eq!(notes["corp.example/owner"], team, "{node}");
        assert!(labels["topology.kubernetes.io/zone"].is_null(), "{node}");
        assert!(notes["k8s.ovn.org/x"].is_null(), "{node}");
    }

    // A controller that links Machines and Nodes does it by itself.
    let linked = site.joined("linked").await;
    site.world
        .patch(MACHINE, &site.machines, &linked.name, template("red"))
        .await;
    let link = json!({"metadata": {"annotations": {"machine.openshift.io/machine": "a/b"}}});
    site.world.patch(NODE, "", &linked.name, link).await;
    assert_eq!(run(&executor, mark(&linked)).await, Ok(Outcome::NodeMarked));
    let node = site.node_now(&linked).await;
    assert!(node["metadata"]["labels"]["team"].is_null(), "{node}");
}

/// Who edits pools takes no brake off without the verb for it, and may change everything else.
#[tokio::test]
async fn who_takes_a_brake_off_a_pool_needs_its_verb() {
    let site = Site::new(plane!(), "brakes").await;
    unguarded(&site, |_, _| true).await;
    let home = home(&site);
    let people = yaml::documents(include_str!("../../deploy/people.yaml")).expect("objects");
    for (account, role) in [
        ("editor", "dormer-pool-editor"),
        ("administrator", "dormer-administrator"),
    ] {
        let shipped = people.iter().find(|it| it["metadata"]["name"] == role);
        let rules = shipped.expect("a role")["rules"].clone();
        let group = "rbac.authorization.k8s.io";
        let metadata = json!({"name": account, "namespace": home});
        let api_version = format!("{group}/v1");
        for object in [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules}),
            json!({"apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": account},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}]}),
        ] {
            site.world.create(object).await;
        }
    }
    let editor = site.client(&ours(&site, "editor").await).await;
    let administrator = site.client(&ours(&site, "administrator").await).await;
    let to = |write, refused| Attack {
        account: "editor",
        kind: WINDOWS_POOL,
        namespace: home.clone(),
        name: "windows".into(),
        write,
        refused,
    };
    let anew = |spec: Value, refused| {
        let metadata = json!({"name": "windows", "namespace": home});
        let pool = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": metadata, "spec": spec});
        to(Create(pool), refused)
    };
    let edit = |spec: Value, refused| to(Change(json!({"spec": spec})), refused);
    let force = "needs the verb force";
    let automatic = "needs the verb automatic";
    let forced = || json!({"drain": {"afterTimeout": "Force"}});
    let allowed = async |by: &Client, what: &Attack| {
        await_condition(&what.what(), PATIENCE, || async {
            what.try_by(by, true).await.is_ok()
        })
        .await;
    };
    // The API server follows policies and roles by a watch.
    let refused = async |what: &Attack| {
        await_condition(&what.what(), PATIENCE, || async {
            let said = what.try_by(&editor, true).await;
            said.is_err_and(|why| why.to_string().contains(what.refused))
        })
        .await;
        allowed(&administrator, what).await;
    };
    // Of a pool that is made anew, the default takes a brake off.
    let mut of_one = forced();
    of_one["approval"] = "Manual".into();
    let made = [anew(json!({}), automatic), anew(of_one, force)];
    let edited = [
        edit(forced(), force),
        edit(json!({"approval": "Automatic"}), automatic),
    ];
    for brake in &made {
        allowed(&editor, brake).await;
    }
    let pool = anew(json!({"approval": "Manual"}), "");
    let done = pool.try_by(&editor, false).await;
    done.expect("a pool with both brakes");
    for brake in &edited {
        allowed(&editor, brake).await;
    }
    guard(&site).await;
    for brake in &edited {
        refused(brake).await;
    }
    // Everything else is the editor's, also in a pool whose brakes an administrator took off.
    let off = json!({"approval": "Automatic", "drain": {"timeout": "2h", "afterTimeout": "Force"}});
    let done = edit(off, "").try_by(&administrator, false).await;
    done.expect("it has both verbs");
    allowed(&editor, &edit(json!({"soak": "45s"}), "")).await;
    let on = json!({"approval": "Manual", "drain": {"afterTimeout": "Wait"}});
    let done = edit(on, "").try_by(&editor, false).await;
    done.expect("who edits may put them on");
    let again = edited[0].try_by(&editor, false).await;
    assert!(again.is_err_and(|why| why.to_string().contains(force)));
    site.world.delete(WINDOWS_POOL, &home, "windows").await;
    for brake in &made {
        refused(brake).await;
    }
    allowed(&editor, &pool).await;
}
