//! The host program on a simulated host: sent, run, followed and swept; from the first look to the removal.

use super::bench::Bench;
use dormer_fleet::api::kinds;
use dormer_host::paths::{BIN, ROOT, STAGING, program_path};
use dormer_proto::{
    id::LeaseToken,
    machine::{ChangeClass, Guard, HostFence, Outcome, Section, Task},
    message::Failure,
};
use dormer_testkit::tier::sized;
use dormer_workers::host::HostProgram;
use futures::future::join_all;
use std::time::Duration;
use tokio::time::Instant;

async fn brought_up(faults: &[&str]) -> (Bench, String) {
    let mut bench = Bench::start(faults).await;
    let node_name = bring_up(&mut bench).await;
    (bench, node_name)
}

/// Makes a host a Ready node, and answers its name.
async fn bring_up(bench: &mut Bench) -> String {
    let host = bench.host();
    let Outcome::Probed { node_name, .. } = bench.does(Task::Probe { host }).await else {
        panic!("another outcome");
    };
    let task = bench.converge(Section::Host, None);
    bench.does(task).await;
    let there = |bench: &Bench| {
        bench.approve();
        bench
            .world
            .all(&kinds::NODE)
            .iter()
            .any(|n| n.value["metadata"]["name"] == node_name)
    };
    bench.until("a node", there).await;
    let task = bench.converge(Section::Node, Some(node_name.clone()));
    bench.does(task).await;
    let ready = |bench: &Bench| bench.is_ready(&node_name);
    bench.until("a Ready node", ready).await;
    node_name
}

/// Classes and items that differ.
async fn plan(bench: &mut Bench, node: Option<&str>) -> (Option<ChangeClass>, Vec<String>) {
    let task = bench.plan(node.map(str::to_owned), false);
    let Outcome::Planned { class, differs, .. } = bench.does(task).await else {
        panic!("another outcome");
    };
    (class, differs)
}

#[tokio::test(start_paused = true)]
async fn a_fresh_host_becomes_a_node_and_is_torn_down() {
    let (mut bench, node_name) = brought_up(&[]).await;
    let planned = bench.plan(Some(node_name.clone()), false);
    let Outcome::Planned {
        class,
        differs,
        token,
        facts,
        ..
    } = bench.does(planned).await
    else {
        panic!("another outcome");
    };
    assert_eq!((class, differs), (None, vec![]));
    assert_eq!((token, facts.kubelet), (LeaseToken(3), true));

    let counts = bench.counts();
    assert_eq!((counts.unknown_commands, counts.powershell_starts), (0, 0));
    // A look, both sections, and the comparison of both; a network that is made cuts the connection of one.
    let called = counts.remote_commands;
    assert!((5..=6).contains(&called), "{:?}", counts.executions);
    assert!(counts.logins <= 2, "{counts:?}");
    let program = HostProgram::of(dormer_fleet::host::stand_in()).expect("a program");
    let files = |bench: &Bench, under: &str| -> Vec<String> {
        let host = bench.simulated();
        let state = host.state();
        let files = state.disk.files().filter(|file| file.starts_with(under));
        files.map(str::to_owned).collect()
    };
    assert_eq!(files(&bench, BIN), [program_path(program.sha256())]);
    assert_eq!(files(&bench, STAGING), Vec::<String>::new());
    let ours = files(&bench, ROOT);
    assert!(ours.iter().all(|file| !file.ends_with(".part")), "{ours:?}");

    let task = Task::TearDown {
        host: bench.host(),
        generation: 1,
        guard: Guard::default(),
    };
    assert_eq!(bench.does(task).await, Outcome::TornDown);
    assert_eq!(files(&bench, r"C:\k\"), Vec::<String>::new());
    {
        let host = bench.simulated();
        let state = host.state();
        let services: Vec<&str> = state.scm.iter().map(|it| it.config.name.as_str()).collect();
        assert_eq!(services, Vec::<&str>::new());
        assert!(state.firewall.is_empty() && state.exclusions.is_empty());
        assert!(state.hns.networks.is_empty(), "{:?}", state.hns);
    }
    assert_eq!(plan(&mut bench, None).await.0, Some(ChangeClass::Drain));
}

#[tokio::test(start_paused = true)]
async fn a_node_serves_again_after_a_boot_without_us() {
    let (mut bench, node_name) = brought_up(&[]).await;
    let host = bench.simulated();
    let before = host.state().boot_id;
    host.power_off();
    bench
        .until("no power", |bench| bench.ready_node().is_some())
        .await;
    host.power_on();
    // No worker calls it: its boot service puts back what the boot took, and starts our services.
    let up = |_: &Bench| {
        let state = host.state();
        state.boot_id > before && state.scm.running("kubelet")
    };
    bench.until("a kubelet", up).await;
    let ended = |_: &Bench| !host.state().scm.running(dormer_host::BOOT_SERVICE);
    bench.until("the boot service has stopped", ended).await;
    let serves = |bench: &Bench| bench.ready_node() == Some(node_name.clone());
    bench.until("a Ready node", serves).await;
    assert_eq!(plan(&mut bench, Some(&node_name)).await, (None, vec![]));
}

/// Hosts that lose their power within a minute.
const MANY: u32 = 50;
/// Longest time from a host's power to its Services, in seconds of its clock.
const SERVES_WITHIN: u64 = 300;

/// Reboots a host without a worker. Answers the seconds until its Services answer again: kube-proxy runs, its source
/// address is on a card, and the Node is Ready.
async fn serves_again(bench: &Bench, node: &str, second: u64) -> u64 {
    let host = bench.simulated();
    bench.pass(Duration::from_secs(second)).await;
    let before = host.state().boot_id;
    host.power_off();
    host.power_on();
    let began = Instant::now();
    let serves = |bench: &Bench| {
        let state = host.state();
        let runs = |service| state.scm.running(service);
        let proxies = runs("kubelet") && runs("kube-proxy") && !state.hns.endpoints.is_empty();
        state.boot_id > before && proxies && bench.is_ready(node)
    };
    bench.until("Services", serves).await;
    began.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn fifty_nodes_serve_again_after_boots_within_a_minute_while_dormer_is_down() {
    // Ten of them, in the same minute, in the tier `fast`.
    let many = sized(10, MANY);
    let mut benches = Bench::start_many(many).await;
    for bench in &mut benches {
        bench.platform = "None";
    }
    let nodes = join_all(benches.iter_mut().map(bring_up)).await;
    let calls = |bench: &Bench| bench.simulated().counts().remote_commands;
    let before: Vec<u64> = benches.iter().map(calls).collect();
    let boots = benches.iter().zip(&nodes).zip(0..);
    let boots = boots
        .map(|((bench, node), n)| serves_again(bench, node, 1 + n * 59 / (u64::from(many) - 1)));
    let mut seconds = join_all(boots).await;
    // The rest of the hour changes nothing.
    benches[0].pass(Duration::from_secs(3_600)).await;
    let after: Vec<u64> = benches.iter().map(calls).collect();
    assert_eq!(before, after, "no worker called");
    for (bench, node) in benches.iter_mut().zip(&nodes) {
        assert!(bench.is_ready(node), "{node}");
        assert_eq!(plan(bench, Some(node)).await, (None, vec![]), "{node}");
    }
    seconds.sort_unstable();
    println!("seconds until Services answer: {seconds:?}");
    assert!(seconds[many as usize - 1] <= SERVES_WITHIN, "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_on_which_another_call_works_uses_up_no_attempt() {
    let mut bench = Bench::start(&[]).await;
    let host = bench.host();
    bench.does(Task::Probe { host }).await;
    bench.simulated().state().mutex = Some(1);
    let task = bench.converge(Section::Host, None);
    bench.seq += 1;
    let failure = bench.attempt(1, task.clone()).await.expect_err("busy");
    let Failure {
        code,
        retry,
        uncounted,
        after_ms,
        ..
    } = failure;
    assert_eq!((code.as_str(), retry, uncounted), ("host_busy", true, true));
    assert!(after_ms.is_some());
    bench.simulated().state().mutex = None;
    bench.does(task).await;
}

#[tokio::test(start_paused = true)]
async fn an_older_task_is_refused_and_adoption_raises_the_fence() {
    let mut bench = Bench::start(&[]).await;
    let host = bench.host();
    bench.does(Task::Probe { host }).await;
    bench.seq = 9;
    let task = bench.converge(Section::Host, None);
    bench.does(task.clone()).await;
    bench.seq = 4;
    let failure = bench.attempt(1, task).await.expect_err("stale");
    let found = (failure.code.as_str(), failure.retry);
    assert_eq!(found, ("fence_too_old", false));
    let adopting = bench.plan(None, true);
    let Outcome::Planned {
        generation, facts, ..
    } = bench.does(adopting).await
    else {
        panic!("another outcome");
    };
    assert_eq!(generation, 2);
    assert!(facts.fence > HostFence::default());
}

#[tokio::test(start_paused = true)]
async fn the_fence_of_an_earlier_release_is_taken_over_and_its_folder_goes() {
    let mut bench = Bench::start(&[]).await;
    let host = bench.host();
    bench.does(Task::Probe { host }).await;
    let left = |name: &str, text: &str| {
        let path = format!(r"C:\ProgramData\dormer\{name}");
        let host = bench.simulated();
        let written = host.state().disk.put(&path, text.as_bytes());
        written.expect("written");
    };
    left("fence.json", r#"{"generation":2,"seq":20}"#);
    left(r"documents\host-01ab.json", r#"{"token":"t"}"#);
    bench.seq = 4;
    let task = bench.converge(Section::Host, None);
    let failure = bench.attempt(1, task).await.expect_err("stale");
    assert_eq!(failure.code, "fence_too_old");
    let adopting = bench.plan(None, true);
    let Outcome::Planned { generation, .. } = bench.does(adopting).await else {
        panic!("another outcome");
    };
    assert_eq!(generation, 3);
    let old = |file: &&str| file.starts_with(r"C:\ProgramData\dormer\");
    let host = bench.simulated();
    assert_eq!(host.state().disk.files().find(old), None);
}
