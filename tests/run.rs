//! `dormer run` as a process of its own against the simulated cluster: two machines become nodes, it is ended, and a
//! second start finds everything as it is.
#![cfg(feature = "demo")]

use dormer_fleet::{Pace, World, WorldConfig, api::kinds};
use dormer_profile::{
    payload::{MANIFEST_FILE, Manifest, PayloadFile},
    render::EXAMPLE_PAYLOAD,
    sha256_hex,
};
use dormer_testkit::{Process, ProcessSpec, await_condition, free_port, test_dir};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

/// A bring-up takes seconds; a busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(180);
/// Where WMCO's Secret with the key is, and so dormer's settings.
const NAMESPACE: &str = "openshift-windows-machine-config-operator";

/// Starts `dormer run` in `folder`, on a store there.
fn dormer(folder: &Path, ssh_port: u16, port: u16) -> Process {
    let flags = [
        ("--kubeconfig", folder.join("kubeconfig").display().to_string()),
        ("--store", folder.join("store").display().to_string()),
        ("--payload", folder.join("payload").display().to_string()),
        ("--ssh-port", ssh_port.to_string()),
        ("--listen", format!("127.0.0.1:{port}")),
    ];
    let flags = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    let spec = ProcessSpec {
        program: env!("CARGO_BIN_EXE_dormer").into(),
        args: std::iter::once("run".to_owned()).chain(flags).collect(),
        env: Vec::new(),
        log: folder.join("log"),
        folder: None,
    };
    Process::start(&spec).expect("dormer starts")
}

/// A payload of small files under the real ones' names.
fn write_payload(folder: &Path) {
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    for file in &mut manifest.files {
        let bytes = format!("MZ {}", file.name).into_bytes();
        let path = folder.join(&file.name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, &bytes).expect("written");
        let (sha256, size) = (sha256_hex(&bytes), bytes.len() as u64);
        *file = PayloadFile { sha256, size, ..file.clone() };
    }
    let text = serde_json::to_string(&manifest).expect("json");
    std::fs::write(folder.join(MANIFEST_FILE), text).expect("written");
}

/// The status of a GET, and its body.
fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: dormer\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
}

/// Windows nodes that are ready, schedulable, and carry a version of ours.
fn served(world: &World) -> Vec<Value> {
    let serves = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
        node["metadata"]["annotations"]["dormer.io/version"].is_string()
            && conditions.iter().any(ready)
            && node["spec"]["unschedulable"] != true
    };
    let nodes = world.all(&kinds::NODE).into_iter().map(|node| node.value.clone());
    nodes.filter(serves).collect()
}

async fn await_served(world: &World, count: usize, process: &Process) {
    let deadline = Instant::now() + IN_TIME;
    await_condition("two nodes that serve", IN_TIME + Duration::from_secs(5), || async {
        let done = served(world).len() == count;
        assert!(done || Instant::now() < deadline, "no nodes:\n{}", process.log_tail());
        done
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_become_nodes_and_a_second_start_changes_nothing() {
    let folder = test_dir("run");
    let ssh_port = free_port();
    let config = WorldConfig { ssh_port, ..WorldConfig::on_loopback(2, Pace::times_faster(20.0)) };
    let world = World::start(config).await.expect("a world");
    world.write_kubeconfig(&folder.path().join("kubeconfig")).expect("written");
    std::fs::create_dir(folder.path().join("payload")).expect("made");
    write_payload(&folder.path().join("payload"));
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "dormer-pool-windows", "namespace": NAMESPACE},
        "data": {"soakSeconds": "1"},
    });
    world.create(settings).expect("settings of the pool");

    let port = free_port();
    let mut process = dormer(folder.path(), ssh_port, port);
    await_condition("readiness", IN_TIME, || async {
        get(port, "/readyz").is_some_and(|(status, _)| status == 200)
    })
    .await;
    await_served(&world, 2, &process).await;
    let (status, roles) = get(port, "/healthz").expect("an answer");
    assert_eq!(status, 200, "{roles}");
    process.terminate().expect("it ends");

    let before = (served(&world), world.record.converges());
    let mut process = dormer(folder.path(), ssh_port, port);
    await_condition("readiness", IN_TIME, || async {
        get(port, "/readyz").is_some_and(|(status, _)| status == 200)
    })
    .await;
    let names = |nodes: &[Value]| -> Vec<Value> {
        nodes.iter().map(|node| node["metadata"]["uid"].clone()).collect()
    };
    assert_eq!(names(&served(&world)), names(&before.0), "the same nodes serve");
    assert_eq!(world.record.converges(), before.1, "nothing was converged again");
    process.terminate().expect("it ends");
}
