//! Programs that read configurations of nodes: Kubernetes' own packages as a program for Windows, and containerd.

use std::path::PathBuf;

use crate::pinned::{GoModule, Program, Release};
use crate::skip::Skipped;

/// The programs of a Kubernetes module that run on Windows, in its folder beside its servers.
const KUBERNETES: &[(&str, &str)] = &[
    ("read.exe", "./read"),
    (
        "kube-log-runner.exe",
        "k8s.io/component-base/logs/kube-log-runner",
    ),
];

/// The Kubernetes with a profile.
const MINORS: [(&str, GoModule); 5] = [
    ("1.33.13", kubernetes("kubernetes-1.33.13")),
    ("1.34.4", kubernetes("kubernetes-1.34.4")),
    ("1.35.4", kubernetes("kubernetes-1.35.4")),
    ("1.36.3", kubernetes("kubernetes-1.36.3")),
    ("1.37.2", kubernetes("kubernetes-1.37.2")),
];

/// containerd 1.7, the long-term release, and the newest.
const CONTAINERDS: [(&str, GoModule); 3] = [
    (
        "1.7.35",
        containerd_module("containerd-1.7.35", CONTAINERD_1),
    ),
    ("2.3.7", containerd_module("containerd-2.3.7", CONTAINERD_2)),
    ("2.4.2", containerd_module("containerd-2.4.2", CONTAINERD_2)),
];

const CONTAINERD_1: &[(&str, &str)] = &[(
    "containerd",
    "github.com/containerd/containerd/cmd/containerd",
)];
const CONTAINERD_2: &[(&str, &str)] = &[(
    "containerd",
    "github.com/containerd/containerd/v2/cmd/containerd",
)];

const fn kubernetes(folder: &'static str) -> GoModule {
    GoModule {
        folder,
        programs: KUBERNETES,
        linker_flags: "",
    }
}

const fn containerd_module(
    folder: &'static str,
    programs: &'static [(&'static str, &'static str)],
) -> GoModule {
    GoModule {
        folder,
        programs,
        linker_flags: "",
    }
}

/// Programs for Windows of one Kubernetes.
#[derive(Debug, Clone)]
pub struct KubernetesReader {
    /// Its version, such as `1.37.2`.
    pub version: &'static str,
    /// Reads configurations of the kubelet and kube-proxy (`tests/servers/shared/read/main.go`).
    pub read: PathBuf,
    /// Its `kube-log-runner.exe`.
    pub log_runner: PathBuf,
}

/// One containerd, for this machine.
#[derive(Debug, Clone)]
pub struct Containerd {
    /// Its version, such as `2.4.2`.
    pub version: &'static str,
    pub program: PathBuf,
}

fn found(
    name: &'static str,
    version: &'static str,
    module: &'static GoModule,
) -> Result<PathBuf, Skipped> {
    let program = Program {
        name,
        version_arg: "--version",
        wheel: None,
    };
    program.find(&Release {
        version,
        module: Some(module),
        wheel_version: "",
        variable: "",
        newer_will_do: false,
    })
}

/// The readers of each Kubernetes, the oldest first.
///
/// # Errors
/// They cannot be had here.
pub fn kubernetes_readers() -> Result<Vec<KubernetesReader>, Skipped> {
    static MODULES: &[(&str, GoModule)] = &MINORS;
    let reader = |(version, module): &'static (&'static str, GoModule)| {
        Ok(KubernetesReader {
            version,
            read: found("read.exe", version, module)?,
            log_runner: found("kube-log-runner.exe", version, module)?,
        })
    };
    MODULES.iter().map(reader).collect()
}

/// containerd of each release that changed its configuration.
///
/// # Errors
/// It cannot be had here.
pub fn containerds() -> Result<Vec<Containerd>, Skipped> {
    static MODULES: &[(&str, GoModule)] = &CONTAINERDS;
    let one = |(version, module): &'static (&'static str, GoModule)| {
        let program = found("containerd", version, module)?;
        Ok(Containerd { version, program })
    };
    MODULES.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_that_of_its_module() {
        let servers = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers");
        let read = |path: PathBuf| std::fs::read_to_string(&path).expect("a file of its module");
        for (version, module) in MINORS {
            let pinned = format!("k8s.io/kubernetes v{version}");
            let text = read(servers.join(module.folder).join("go.mod"));
            assert!(text.contains(&pinned), "{pinned}");
        }
        for (version, module) in CONTAINERDS {
            let text = read(servers.join(module.folder).join("go.mod"));
            let pinned = format!("v{version}");
            assert!(
                text.split_whitespace().any(|word| word == pinned),
                "{pinned}"
            );
        }
    }
}
