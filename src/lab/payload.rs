//! Payloads of the demonstration: in transfer time and on the hosts' disks as large as real ones, but small in
//! memory.

use bytes::Bytes;
use dormer_fleet::host::{body::modelled_body, stand_in};
use dormer_profile::{
    payload::{Manifest, PayloadFile},
    sha256_hex,
};
use dormer_workers::{host::HostProgram, payload::Payload};
use std::{collections::BTreeMap, sync::Arc};

/// Bytes of each file that are really sent.
const ACTUAL: usize = 32 << 10;
/// Versions to install, in order, each with its kubelet.
const VERSIONS: [(&str, &str); 2] = [("11.0.0", "v1.33.4"), ("11.1.0", "v1.33.6")];
/// Name, path on the host, and size in MiB: 300 MB in total, like a Windows payload.
const FILES: [(&str, &str, u64); 10] = [
    ("containerd.exe", r"containerd\containerd.exe", 48),
    (
        "containerd-shim-runhcs-v1.exe",
        r"containerd\containerd-shim-runhcs-v1.exe",
        22,
    ),
    ("kubelet.exe", "kubelet.exe", 78),
    ("kube-log-runner.exe", "kube-log-runner.exe", 4),
    ("win-overlay.exe", r"cni\win-overlay.exe", 6),
    ("host-local.exe", r"cni\host-local.exe", 4),
    ("csi-proxy.exe", "csi-proxy.exe", 12),
    ("hybrid-overlay-node.exe", "hybrid-overlay-node.exe", 52),
    ("kube-proxy.exe", "kube-proxy.exe", 46),
    (
        "azure-cloud-node-manager.exe",
        "azure-cloud-node-manager.exe",
        28,
    ),
];

/// Program that simulated hosts accept as `dormer-host.exe`.
///
/// # Errors
///
/// None in practice: the stand-in has the headers of a Windows program.
pub(crate) fn program() -> anyhow::Result<Arc<HostProgram>> {
    Ok(Arc::new(HostProgram::of(stand_in())?))
}

/// Payload number `n`, counted from 0.
pub(crate) fn payload(n: usize) -> Payload {
    let (manifest, files) = contents(n);
    Payload::in_memory(manifest, files)
}

/// The same with the pause image, for hosts that reach no registry.
#[cfg(test)]
pub(crate) fn disconnected_payload(n: usize) -> Payload {
    use dormer_fleet::payload::{PAUSE_ARCHIVE, pause_archive};
    let (mut manifest, mut files) = contents(n);
    let bytes = Bytes::from(pause_archive());
    manifest.files.push(PayloadFile {
        name: PAUSE_ARCHIVE.into(),
        sha256: sha256_hex(&bytes),
        size: bytes.len() as u64,
        destination: PAUSE_ARCHIVE.into(),
    });
    files.insert(PAUSE_ARCHIVE.to_owned(), bytes);
    Payload::in_memory(manifest, files)
}

fn contents(n: usize) -> (Manifest, BTreeMap<String, Bytes>) {
    let (version, kubelet) = VERSIONS[n.min(VERSIONS.len() - 1)];
    let mut files = BTreeMap::new();
    let mut listed = Vec::new();
    for (name, destination, mib) in FILES {
        let bytes = body(name, kubelet, mib << 20);
        listed.push(PayloadFile {
            name: name.into(),
            sha256: sha256_hex(&bytes),
            size: bytes.len() as u64,
            destination: destination.into(),
        });
        files.insert(name.to_owned(), Bytes::from(bytes));
    }
    let manifest = Manifest {
        version: version.into(),
        kubelet: "1.33".into(),
        windows_builds: ["10.0.17763", "10.0.20348", "10.0.26100"]
            .map(str::to_owned)
            .to_vec(),
        may_follow: VERSIONS[..n.min(VERSIONS.len())]
            .iter()
            .map(|it| it.0.to_owned())
            .collect(),
        files: listed,
        ..Manifest::default()
    };
    (manifest, files)
}

/// The simulated kubelet reads its version from the first bytes of its own file.
fn body(name: &str, kubelet: &str, modelled: u64) -> Vec<u8> {
    modelled_body(&format!("{name} {kubelet}"), ACTUAL, modelled)
}
