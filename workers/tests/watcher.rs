//! The watcher against the simulated cluster: what it tells runs, in which epoch, and what it keeps to itself.

mod watcher {
    pub(crate) mod bench;
}

use dormer_fleet::{
    Pace, World, WorldConfig,
    api::{DeleteOptions, Key, Meta, User, kinds},
    world::BareCloud,
};
use dormer_proto::{machine, rollout, work::Fact};
use serde_json::json;
use watcher::bench::{Bench, Pool, note};

async fn world(machines: u32) -> World {
    let config = WorldConfig::on_loopback(machines, Pace::times_faster(100.0));
    let made = World::start_with(config, |context, api| BareCloud::new(api, context.pace)).await;
    made.expect("a world")
}

fn is_node_of(fact: &Fact, machine: &str) -> bool {
    matches!(fact, Fact::Machine(machine::Fact::Node(node)) if node.name == machine && node.ready)
}

#[tokio::test]
async fn every_windows_machine_is_told_about_itself() {
    let world = world(3).await;
    let bench = Bench::start(&world, Pool::newest()).await;
    let uids = bench.until("three machines serve", |seen| {
        let uids = seen.machines();
        let serving = |uid: &&String| {
            let facts = seen.facts(&note(uid));
            let has = |is: &dyn Fn(&Fact) -> bool| facts.values().any(|f| is(f));
            has(&|f| matches!(f, Fact::Machine(machine::Fact::Machine(m)) if !m.addresses.is_empty()))
                && has(&|f| matches!(f, Fact::Machine(machine::Fact::Node(n)) if n.ready))
                && has(&|f| matches!(f, Fact::Machine(machine::Fact::Pool(p)) if p.desired.contains_key("*")))
        };
        (uids.len() == 3 && uids.iter().filter(serving).count() == 3).then_some(uids)
    });
    let uids = uids.await;
    let linux = world
        .all(&kinds::MACHINE)
        .into_iter()
        .filter(|m| !uids.contains(&m.value.uid().to_owned()));
    assert_eq!(linux.count(), 4, "control plane and infra are nobody's run");
    let rollout = bench.until("the rollout knows pool and owner", |seen| {
        let facts = seen.facts("rollout/windows");
        let pool = facts.values().any(|f| matches!(f, Fact::Rollout(rollout::Fact::Pool(_))));
        let owners: Vec<_> = facts
            .values()
            .filter_map(|f| match f {
                Fact::Rollout(rollout::Fact::Owner(owner)) => Some(owner.clone()),
                _ => None,
            })
            .collect();
        (pool && owners.len() == 1 && owners[0].machines.len() == 3).then_some(owners)
    });
    assert_eq!(rollout.await[0].replicas, 3);
    bench.stop().await;
}
