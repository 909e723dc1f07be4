//! Plain Kubernetes: BYOH hosts and machines of Cluster API, on a real API server without any of OpenShift's kinds.

use super::{
    super::cluster::NODE,
    crew::{Crew, install},
    ground::{CLUSTER_MACHINE, CLUSTER_MACHINE_SET, Ground, WINDOWS_HOST, serves, uids},
    uninstall::{all_traces, uninstall, unwritten},
};
use dormer_fleet::written;
use dormer_testkit::{Helm, skip, started};
use serde_json::json;

const OWN: [&str; 2] = ["plain-own-1", "plain-own-2"];

/// Two BYOH hosts and three machines of Cluster API come up, are upgraded in one queue with never two away, and go. Then
/// dormer is taken out of the cluster. On the hosts only what docs/inventory.md says is left, and nothing in the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_hosts_and_machines_of_cluster_api_come_up_are_upgraded_and_go_without_openshift() {
    let helm = started!(Helm::start());
    let ground = match Ground::plain("plains", 3, helm).await {
        Ok(ground) => ground,
        Err(skipped) => skip!(skipped),
    };
    for name in OWN {
        ground.own_host(name).await;
    }
    let host = |name: &str| {
        let mut hosts = ground.hosts().into_iter();
        hosts.find(|host| host.name() == name).expect("a host")
    };
    let bare = OWN.map(|name| host(name).inventory());
    install(&ground, "11.0.0");
    let crew = started!(Crew::start(&ground));
    crew.until_all_serve(5, "11.0.0-").await;
    let machines = uids(&ground.world.list(CLUSTER_MACHINE, &ground.machines).await);
    let hosts = uids(&ground.world.list(WINDOWS_HOST, &ground.home).await);

    assert_eq!(unwritten(&ground.world.admin).await, Vec::<String>::new());

    install(&ground, "11.1.0");
    crew.until_all_serve(5, "11.1.0-").await;
    assert_eq!(
        ground.record.max_taken_observed(),
        1,
        "one queue, never two away"
    );
    let after = uids(&ground.world.list(CLUSTER_MACHINE, &ground.machines).await);
    let kept = after.iter().filter(|uid| machines.contains(uid)).count();
    assert_eq!(kept, 1, "the control plane's; the others were replaced");
    assert_eq!(
        uids(&ground.world.list(WINDOWS_HOST, &ground.home).await),
        hosts
    );

    // Without the web server, whose budget would hold the last nodes.
    let none = || json!({"spec": {"replicas": 0}});
    let web = ("apps", "v1", "Deployment");
    ground
        .world
        .patch(web, &ground.pods, "win-webserver", none())
        .await;
    for name in OWN {
        ground.world.delete(WINDOWS_HOST, &ground.home, name).await;
    }
    let set = format!("{}-windows", ground.pods);
    ground
        .world
        .patch(CLUSTER_MACHINE_SET, &ground.machines, &set, none())
        .await;
    crew.until("all are gone", async || {
        ground.all_machines().await.is_empty() && crew.machines().is_empty()
    })
    .await;
    let nodes = ground.world.list(NODE, "").await;
    assert!(!nodes.iter().any(|node| serves(node, "")), "{nodes:#?}");
    let rows = written::rows("## On a Windows host");
    for (name, bare) in OWN.iter().zip(bare) {
        let now = host(name).inventory();
        let mut left: Vec<&String> = now.difference(&bare).collect();
        // The person's own key for dormer.
        left.retain(|thing| !thing.ends_with("administrators_authorized_keys"));
        let left = written::unnamed(&rows, |fate| fate == "stays", left);
        assert_eq!(left, Vec::<&String>::new(), "{name}");
    }
    crew.end();
    let (code, said) = uninstall(&ground, &["--yes"]);
    assert!(
        code == 0 && said.contains("Nothing of dormer is left"),
        "{said}"
    );
    assert_eq!(all_traces(&ground.world.admin).await, Vec::<String>::new());
}
