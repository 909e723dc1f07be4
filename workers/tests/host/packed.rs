//! Payload files that go compressed: cut, torn, damaged, and never half there.

use super::bench::{Bench, damaged, payload_that_packs};
use dormer_proto::machine::{Outcome, Section, Task};
use dormer_workers::packed::Packer;
use std::{path::Path, sync::Arc};

async fn bench(faults: &[&str], folder: &Path) -> Bench {
    let mut bench = Bench::start_with(faults, payload_that_packs()).await;
    bench.executor = bench
        .executor
        .packing(Arc::new(Packer::new(folder.to_owned())));
    bench
}

/// Brings the first section about, whatever happens on the way.
async fn converged(bench: &mut Bench) {
    let probe = Task::Probe { host: bench.host() };
    bench.once_up(probe).await.expect("probed");
    let task = bench.converge(Section::Host, None);
    let Outcome::Converged { reboot: false, .. } = bench.once_up(task).await.expect("converged")
    else {
        panic!("another outcome");
    };
}

/// Every file of the payload stands as it should, and nothing of an upload is left.
fn all_unpacked(bench: &Bench, what: &str) {
    let (manifest, _) = payload_that_packs();
    let host = bench
        .world
        .hosts
        .as_ref()
        .expect("hosts")
        .all()
        .pop()
        .expect("a host");
    let state = host.state();
    let files: Vec<&str> = state.disk.files().collect();
    let mut unpacked = 0;
    for (path, sha256) in &state.asked_for {
        let there = state.disk.read_text_path(path).expect("read");
        assert_eq!(&there.sha256, sha256, "{what}: {path}");
        if let Some(file) = manifest.files.iter().find(|file| file.sha256 == *sha256) {
            assert_eq!(there.size, file.size, "{what}: {path}");
            unpacked += 1;
        }
    }
    assert!(unpacked > 5, "{what}: {unpacked} files of the payload");
    let left = files
        .iter()
        .find(|path| path.ends_with(".gz") || path.ends_with(".part"));
    assert_eq!(left, None, "{what}");
}

#[tokio::test(start_paused = true)]
async fn files_worth_compressing_are_packed_once_and_unpacked_on_each_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let plain: u64 = payload_that_packs()
        .0
        .files
        .iter()
        .map(|file| file.size)
        .sum();
    for round in 0..2 {
        let mut bench = bench(&[], folder.path()).await;
        converged(&mut bench).await;
        all_unpacked(&bench, "first");
        let sent = bench.counts().bytes_uploaded;
        assert!(
            sent * 2 < plain,
            "round {round}: {sent} of {plain} bytes were sent"
        );
    }
    let kept = std::fs::read_dir(folder.path()).expect("listed").count();
    assert!(
        (6..=payload_that_packs().0.files.len()).contains(&kept),
        "{kept} files are kept"
    );
}

#[tokio::test(start_paused = true)]
async fn trouble_between_upload_and_unpacking_leaves_nothing_half_there() {
    let folder = tempfile::tempdir().expect("a folder");
    for fault in [
        "upload-cut",
        "upload-cutx3",
        "disk-full",
        "exe-locked",
        "drop-during-script",
        "power-off/upload 4 half sent@1",
        "power-off/note fence.json file_rename@1",
        r"power-off/host file:C:\k\VERSION\kubelet.exe half written@1",
        r"power-off/host file:C:\k\VERSION\kubelet.exe file_rename@1",
    ] {
        let mut bench = bench(&[fault], folder.path()).await;
        converged(&mut bench).await;
        assert!(
            !bench.world.faults.struck().is_empty(),
            "{fault} never struck"
        );
        all_unpacked(&bench, fault);
    }
}

#[tokio::test(start_paused = true)]
async fn a_packed_file_that_was_changed_here_goes_as_it_is_and_a_damaged_payload_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bench = bench(&[], folder.path()).await;
    let probe = Task::Probe { host: bench.host() };
    bench.once_up(probe).await.expect("probed");
    // Packed by a first attempt that finds no host: then another process changes the files.
    let packer = Arc::new(Packer::new(folder.path().to_owned()));
    bench.executor = bench.executor.packing(Arc::clone(&packer));
    let mut other = self::bench(&[], folder.path()).await;
    other.executor = other.executor.packing(packer);
    converged(&mut other).await;
    for entry in std::fs::read_dir(folder.path()).expect("listed") {
        let path = entry.expect("a file").path();
        let mut bytes = std::fs::read(&path).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).expect("written");
    }
    let task = bench.converge(Section::Host, None);
    bench.once_up(task).await.expect("converged");
    all_unpacked(&bench, "changed here");

    let mut bench = Bench::start_with(&[], damaged(payload_that_packs())).await;
    bench.executor = bench
        .executor
        .packing(Arc::new(Packer::new(folder.path().join("other"))));
    let probe = Task::Probe { host: bench.host() };
    bench.once_up(probe).await.expect("probed");
    let task = bench.converge(Section::Host, None);
    let failure = bench.attempt(1, task).await.expect_err("damaged");
    assert_eq!(failure.code, "PayloadDamaged");
}
