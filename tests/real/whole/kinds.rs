//! OpenShift with machines of every kind in one queue, on a real API server.

use super::{
    crew::{Crew, install},
    ground::{CLUSTER_MACHINE, Ground, MACHINE_SET, WINDOWS_HOST, uids},
};
use dormer_testkit::{Helm, long, skip, started};

const OWN: [&str; 3] = ["kinds-own-1", "kinds-own-2", "kinds-own-3"];

/// Machines of two MachineSets as the documents have them (AWS and Azure), three BYOH hosts and a set of Cluster API come up,
/// and are upgraded in one queue with never two away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_machine_sets_own_hosts_and_a_set_of_cluster_api_are_one_queue() {
    let part = long!("kinds");
    let helm = started!(Helm::start());
    let ground = match Ground::of_every_kind("kinds", 2, 2, helm).await {
        Ok(ground) => ground,
        Err(skipped) => skip!(skipped),
    };
    for name in OWN {
        ground.own_host(name).await;
    }
    install(&ground, "11.0.0");
    let crew = started!(Crew::start(&ground));
    crew.until_all_serve(7, "11.0.0-").await;
    let sets = ground.world.list(MACHINE_SET, &ground.machines).await;
    assert_eq!(sets.len(), 2, "one of AWS and one of Azure");
    let clusters = ground.cluster_machines.clone().expect("a namespace");
    let machines = uids(&ground.world.list(CLUSTER_MACHINE, &clusters).await);
    let hosts = uids(&ground.world.list(WINDOWS_HOST, &ground.home).await);

    install(&ground, "11.1.0");
    crew.until_all_serve(7, "11.1.0-").await;
    let taken = ground.record.max_taken_observed();
    assert_eq!(taken, 1, "one queue, never two away");
    let after = uids(&ground.world.list(CLUSTER_MACHINE, &clusters).await);
    let kept = after.iter().filter(|uid| machines.contains(uid)).count();
    assert_eq!(kept, 1, "the control plane's; the others were replaced");
    let still = uids(&ground.world.list(WINDOWS_HOST, &ground.home).await);
    assert_eq!(still, hosts, "a BYOH host is upgraded in place");
    crew.end();
    part.passed(&[
        ("machines", 7.to_string()),
        ("away at once", taken.to_string()),
    ]);
}
