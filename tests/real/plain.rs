//! Plain Kubernetes, without OpenShift's kinds: BYOH hosts, and Cluster API once it is installed.

use super::{
    accounts::home,
    cluster::{Kind, NODE, PATIENCE, Site, executor, plain_plane, run},
    watching::{Recorder, Watching, options},
};
use dormer_proto::machine::{Fact, MachineApi, MachineRef, Outcome, Task};
use dormer_testkit::await_some;
use dormer_workers::watcher::Options;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

const HOST: Kind = ("dormer.io", "v1beta1", "WindowsHost");
const MAP: Kind = ("", "v1", "ConfigMap");

/// Cluster API's Machine as far as a control plane without its controllers needs it: any field is kept.
const CLUSTER_API: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machines.cluster.x-k8s.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: cluster.x-k8s.io
  names: {kind: Machine, plural: machines}
  scope: Namespaced
  versions:
    - name: v1beta2
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test]
async fn hosts_of_ones_own_come_and_go_and_cluster_api_is_found_when_it_comes() {
    let plane = match plain_plane() {
        Ok(plane) => plane,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let site = Site::new(plane.plane(), "plain").await;
    let home = home(&site);
    site.world.namespace(&home).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "windows-instances", "namespace": home},
        "data": {"192.0.2.7": "username=core", "192.0.2.8": "user=core"}});
    site.world.create(map).await;
    let options = Options {
        cluster_machines: Some(site.machines.clone()),
        repeat: Duration::from_secs(6),
        ..options(&site)
    };
    let record = Arc::new(Recorder(watch::Sender::default()));
    let watching = Watching::with(site.world.admin.clone(), options, record);
    let status = watching
        .until_status("the bad entry is named", |status| {
            status.hosts_amiss.contains_key("192.0.2.8")
        })
        .await;
    assert_eq!(status.error, None);
    let host = await_some(
        "the good entry is a host with an address",
        PATIENCE,
        || async {
            let host = site.world.get(HOST, &home, "192.0.2.7").await?;
            (host["status"]["conditions"][0]["status"] == "True").then_some(host)
        },
    );
    let host = host.await;
    let uid = host["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let told = |fact: &Fact| {
        matches!(fact, Fact::Machine(machine) if machine.machine.api == MachineApi::Host
            && machine.addresses == ["192.0.2.7"] && machine.user.as_deref() == Some("core"))
    };
    watching
        .until("its run", |published| published.machine(&uid, told))
        .await
        .expect("it is told");

    // Its kubelet has registered.
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "plain-win", "labels": {"kubernetes.io/os": "windows"}}});
    site.world.create(node).await;
    let address = json!({"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]});
    site.world.status(NODE, "", "plain-win", address).await;
    let linked = |fact: &Fact| matches!(fact, Fact::Machine(machine) if machine.node.as_deref() == Some("plain-win"));
    watching
        .until("its Node", |published| published.machine(&uid, linked))
        .await
        .expect("it is told");

    site.world.define(CLUSTER_API).await;
    let machine = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": "win-b", "namespace": site.machines,
            "labels": {"kubernetes.io/os": "windows"}}});
    let created = await_some("it can be created", PATIENCE, || async {
        site.world.try_create(machine.clone()).await.ok()
    });
    let created = created.await;
    let other = created["metadata"]["uid"]
        .as_str()
        .expect("a UID")
        .to_owned();
    watching
        .until_published("Cluster API's Machine", |published| {
            published.machines().contains(&other)
        })
        .await;

    // A login has given the host its Node's name.
    let noted = json!({"metadata": {"annotations": {"dormer.io/node-name": "plain-win"}}});
    site.world.patch(HOST, &home, "192.0.2.7", noted).await;
    // No controller links the Node: dormer gives it the labels that the host names.
    let labels = json!({"spec": {"labels": {"team": "blue", "kubernetes.io/arch": "arm64"}}});
    site.world.patch(HOST, &home, "192.0.2.7", labels).await;
    let host = MachineRef {
        namespace: home.clone(),
        name: "192.0.2.7".into(),
        uid: uid.clone(),
        api: MachineApi::Host,
    };
    let worker = executor(site.world.admin.clone(), home.clone());
    let mark = Task::MarkNode {
        machine: host.clone(),
        node: "plain-win".into(),
        version: "v1".into(),
        pin: None,
        expect: None,
    };
    let marked = run(&worker, mark).await;
    assert_eq!(marked.expect("it is marked"), Outcome::NodeMarked);
    let node = site.world.get(NODE, "", "plain-win").await;
    let node = node.expect("its Node");
    assert_eq!(node["metadata"]["labels"]["team"], "blue", "{node}");
    assert!(node["metadata"]["labels"]["kubernetes.io/arch"].is_null());

    // The entry goes: the object waits for the end of its removal, and takes its Node with it.
    let gone = json!({"data": {"192.0.2.7": null}});
    site.world
        .patch(MAP, &home, "windows-instances", gone)
        .await;
    await_some("it is being deleted", PATIENCE, || async {
        let host = site.world.get(HOST, &home, "192.0.2.7").await?;
        host["metadata"]["deletionTimestamp"].as_str().map(drop)
    })
    .await;
    let task = Task::ForgetHost {
        machine: host,
        node: Some("plain-win".into()),
        debt: Some("the host did not answer".into()),
    };
    for _ in 0..2 {
        let done = run(&worker, task.clone()).await;
        assert_eq!(done.expect("it is done"), Outcome::HostForgotten);
    }
    assert_eq!(site.world.get(HOST, &home, "192.0.2.7").await, None);
    assert_eq!(site.world.get(NODE, "", "plain-win").await, None);
    watching
        .until_published("its run ends", |published| {
            !published.machines().contains(&uid)
        })
        .await;
    watching.stop().await;
}
