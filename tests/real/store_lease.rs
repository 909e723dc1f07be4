//! Lease of a dormer whose store is a folder: a second one with another folder is refused, and names the holder.

use super::{
    accounts,
    cluster::{Kind, PATIENCE, Site, the_plane},
};
use dormer_testkit::{
    KeyKind, Process, ProcessSpec, SshKey, TempDir, await_some, free_port, test_dir,
};
use std::{path::Path, process::Command};

const LEASE: Kind = ("coordination.k8s.io", "v1", "Lease");

/// Arguments of `dormer run` with the store in `folder`, under the name `name`.
fn arguments(site: &Site, home: &str, folder: &Path, name: &str) -> Vec<String> {
    let path = |file: &str| folder.join(file).display().to_string();
    let flags = [
        ("--kubeconfig", path("../kubeconfig")),
        ("--store", path("store")),
        ("--private-key", path("../key")),
        ("--namespace", home.to_owned()),
        ("--machine-namespace", site.machines.clone()),
        ("--listen", format!("127.0.0.1:{}", free_port())),
        ("--name", name.to_owned()),
    ];
    let flags = flags
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value]);
    std::iter::once("run".to_owned()).chain(flags).collect()
}

/// Starts all roles in one process, with this kubeconfig and a store below `folder`, where its log is, too.
pub(super) fn start_alone(
    site: &Site,
    folder: &TempDir,
    kubeconfig: &str,
    more: &[&str],
) -> Process {
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig).expect("written");
    SshKey::make(folder.path(), "key", KeyKind::Ed25519).expect("a key");
    let store = folder.path().join("alone");
    std::fs::create_dir_all(&store).expect("made");
    let mut args = arguments(site, &accounts::home(site), &store, "alone");
    args.extend(more.iter().map(ToString::to_string));
    start(folder, args, "log")
}

fn start(folder: &TempDir, args: Vec<String>, log: &str) -> Process {
    let spec = ProcessSpec {
        program: env!("CARGO_BIN_EXE_dormer").into(),
        args,
        env: Vec::new(),
        log: folder.path().join(log),
        folder: None,
    };
    Process::start(&spec).expect("dormer starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_dormer_with_another_folder_is_refused_and_one_on_the_same_folder_goes_on() {
    let plane = match the_plane() {
        Ok(plane) => plane,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let site = Site::new(plane, "store-lease").await;
    let home = accounts::home(&site);
    site.world.namespace(&home).await;
    let folder = test_dir("store-lease");
    let kubeconfig = plane.kubeconfig(&plane.admin());
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig).expect("written");
    SshKey::make(folder.path(), "key", KeyKind::Ed25519).expect("a key");
    for store in ["a", "b"] {
        std::fs::create_dir_all(folder.path().join(store)).expect("made");
    }
    let of = |store: &str, name: &str| arguments(&site, &home, &folder.path().join(store), name);
    let held_by = |name: &'static str| {
        let site = &site;
        let home = &home;
        await_some(name, PATIENCE, move || async move {
            let lease = site.world.get(LEASE, home, "dormer-watcher").await?;
            let holder = lease["spec"]["holderIdentity"].as_str()?;
            holder.starts_with(&format!("{name}/store-")).then_some(())
        })
    };
    let mut first = start(&folder, of("a", "first"), "log-first");
    held_by("first").await;

    let second = tokio::task::block_in_place(|| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormer"));
        command.args(of("b", "second")).output().expect("it ends")
    });
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    for part in [
        "another dormer runs for this cluster: first/store-",
        &format!("holds the Lease {home}/dormer-watcher since 20"),
        "End that dormer first",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }

    // A crash leaves the Lease behind. The same store is not waited for.
    first.kill();
    let mut again = start(&folder, of("a", "again"), "log-again");
    held_by("again").await;
    again.terminate().expect("it ends");
    let mut other = start(&folder, of("b", "other"), "log-other");
    held_by("other").await;
    other.terminate().expect("it ends");
}
