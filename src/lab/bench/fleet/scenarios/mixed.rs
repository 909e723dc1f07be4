//! Machines of all kinds in one queue: those of either machine API, and BYOH hosts.

use super::{
    inventory,
    stage::{self, Scenario},
};
use dormer_fleet::{
    WorldConfig,
    api::{DeleteOptions, Key, Meta, kinds, kinds::Kind},
    cluster::cluster_api,
    manifest::demo::{CLUSTERS, DORMER},
    written::{rows, unnamed},
};
use serde_json::{Value, json};

fn node(scenario: &Scenario, name: &str) -> Value {
    let found = scenario
        .world()
        .api
        .get(&kinds::NODE, &Key::new("", name.to_lowercase()));
    found.expect(name).value.clone()
}

/// Windows machines of Cluster API: names, without those that go.
fn cluster_machines(scenario: &Scenario) -> Vec<String> {
    let machines = scenario.all(&kinds::CLUSTER_MACHINE);
    let windows = machines
        .iter()
        .filter(|it| cluster_api::is_windows(it) && !it.deleting());
    windows.map(|it| it.name().to_owned()).collect()
}

async fn delete(scenario: &Scenario, kind: &'static Kind, namespace: &str, name: &str) {
    let options = DeleteOptions::default();
    let key = Key::new(namespace, name);
    let deleted = scenario.admin().delete(kind, &key, &options).await;
    deleted.expect("deleted");
}

async fn scale_to_none(scenario: &Scenario, kind: &'static Kind, namespace: &str, name: &str) {
    let none = json!({"spec": {"replicas": 0}});
    let key = Key::new(namespace, name);
    let scaled = scenario.admin().merge(kind, &key, &none).await;
    scaled.expect("scaled");
}

/// So many WindowsHosts with a host each, all set up by a person.
async fn own_hosts(scenario: &Scenario, count: usize) -> Vec<String> {
    let names: Vec<String> = (1..=count).map(|n| format!("win-{n}")).collect();
    for name in &names {
        scenario.own_host(name).await;
    }
    names
}

/// Two BYOH hosts and three machines of Cluster API come up without any of OpenShift's kinds, are upgraded in one queue,
/// and go.
#[test]
fn on_plain_kubernetes_own_hosts_and_machines_of_cluster_api_come_up_are_upgraded_and_go() {
    stage::on_a_virtual_clock(async {
        let mut scenario = Scenario::start_in(WorldConfig::plain(3)).await;
        let own = own_hosts(&scenario, 2).await;
        let bare: Vec<_> = own
            .iter()
            .map(|it| scenario.host_of(it).inventory())
            .collect();
        scenario.until_all_serve("all five serve", 5).await;
        let before = cluster_machines(&scenario);
        assert_eq!(before.len(), 3);
        // Each kind's labels reach its Node: Cluster API's controller writes its own, dormer those of a WindowsHost.
        let machines = scenario.all(&kinds::CLUSTER_MACHINE);
        let machine = machines.iter().find(|it| it.name() == before[0]);
        let linked = machine.expect("a Machine")["status"]["nodeRef"]["name"].clone();
        let linked = node(&scenario, linked.as_str().expect("a Node's name"));
        assert_eq!(linked.label("node.cluster.x-k8s.io/pool"), Some("windows"));
        assert_eq!(node(&scenario, "win-1").label("team"), Some("blue"));

        let in_cluster = rows("## In the cluster");
        let there = inventory::of_cluster(&scenario);
        let unknown = unnamed(&in_cluster, |_| true, &there);
        assert_eq!(unknown, Vec::<&String>::new());

        scenario.upgrade().await;
        scenario
            .until_all_serve("all five serve the new version", 5)
            .await;
        assert_eq!(scenario.max_taken(), 1, "one queue, never two away");
        // A machine of Cluster API is replaced, and a BYOH host is upgraded in place.
        let after = cluster_machines(&scenario);
        assert!(after.iter().all(|name| !before.contains(name)), "{after:?}");
        for name in &own {
            assert_eq!(scenario.host_of(name).state().boots, 1, "{name}");
        }

        // Without the web server, whose budget would hold the last nodes.
        scale_to_none(&scenario, &kinds::DEPLOYMENT, "default", "win-webserver").await;
        for name in &own {
            delete(&scenario, &kinds::WINDOWS_HOST, DORMER, name).await;
        }
        scale_to_none(
            &scenario,
            &kinds::CLUSTER_MACHINE_SET,
            CLUSTERS,
            "blue-windows",
        )
        .await;
        scenario
            .until("all are gone", |scenario, statuses| {
                let hosts = scenario.all(&kinds::WINDOWS_HOST);
                statuses.is_empty() && hosts.is_empty() && cluster_machines(scenario).is_empty()
            })
            .await;
        let nodes = scenario.all(&kinds::NODE);
        let nodes: Vec<&str> = nodes.iter().map(Meta::name).collect();
        assert_eq!(nodes, ["blue-control-plane"]);
        let on_hosts = rows("## On a Windows host");
        for (name, bare) in own.iter().zip(bare) {
            let now = scenario.host_of(name).inventory();
            let mut left: Vec<_> = now.difference(&bare).collect();
            // The person's own key for dormer.
            left.retain(|thing| !thing.ends_with("administrators_authorized_keys"));
            let left = unnamed(&on_hosts, |fate| fate == "stays", left);
            assert_eq!(left, Vec::<&String>::new(), "{name}");
        }
        let left = inventory::of_cluster(&scenario);
        let left = unnamed(&in_cluster, |fate| fate != "the machine", &left);
        assert_eq!(left, Vec::<&String>::new());
    });
}

/// Machines of two MachineSets as the documents have them, three BYOH hosts and a set of Cluster API are one queue.
#[test]
fn on_openshift_two_machine_sets_own_hosts_and_a_set_of_cluster_api_are_one_queue() {
    stage::on_a_virtual_clock(async {
        let config = WorldConfig {
            two_sets: true,
            linux: false,
            cluster_api: Some(2),
            ..WorldConfig::in_memory(2)
        };
        let mut scenario = Scenario::start_in(config).await;
        let own = own_hosts(&scenario, 3).await;
        scenario.until_all_serve("all seven serve", 7).await;
        let sets = scenario.all(&kinds::MACHINE_SET);
        assert_eq!(sets.len(), 2, "one of AWS and one of Azure");
        assert!(sets.iter().all(|it| it["status"]["readyReplicas"] == 1));
        let before = cluster_machines(&scenario);
        scenario.upgrade().await;
        scenario
            .until_all_serve("all seven serve the new version", 7)
            .await;
        assert_eq!(scenario.max_taken(), 1, "one queue, never two away");
        let after = cluster_machines(&scenario);
        assert!(after.iter().all(|name| !before.contains(name)), "{after:?}");
        for name in &own {
            assert_eq!(scenario.host_of(name).name(), name);
        }
    });
}
