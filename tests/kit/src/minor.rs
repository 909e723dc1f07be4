//! Which Kubernetes the tests' control plane is: a current one, or the oldest or newest that dormer promises.

use std::path::PathBuf;

use crate::pinned::{GoModule, Program, Release};
use crate::skip::Skipped;

/// The environment variable that chooses: `current` (also when it is not set), `oldest` or `newest`.
const VARIABLE: &str = "DORMER_KUBERNETES";

/// One Kubernetes of the tests: its version, and that of the etcd that its module comes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kubernetes {
    /// Such as `1.36.3`.
    pub version: &'static str,
    /// Such as `3.6.8`.
    pub etcd: &'static str,
    /// The module that all of its servers, etcd too, are built from. The linker's flags are what `/version` answers:
    /// a server without them says that it is no version at all.
    module: &'static GoModule,
    /// Whether a newer one that is at hand serves as well.
    newer_will_do: bool,
}

/// The programs that each of the modules makes.
const PROGRAMS: &[(&str, &str)] = &[
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    (
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
];

/// What the tests run against when nothing is said.
const CURRENT: Kubernetes = Kubernetes {
    version: "1.36.3",
    etcd: "3.6.8",
    module: &GoModule {
        folder: "kubernetes-1.36.3",
        programs: PROGRAMS,
        linker_flags: "-X k8s.io/component-base/version.gitVersion=v1.36.3 \
                       -X k8s.io/component-base/version.gitMajor=1 \
                       -X k8s.io/component-base/version.gitMinor=36",
    },
    newer_will_do: true,
};

/// The oldest minor that README promises.
const OLDEST: Kubernetes = Kubernetes {
    version: "1.33.13",
    etcd: "3.5.21",
    module: &GoModule {
        folder: "kubernetes-1.33.13",
        programs: PROGRAMS,
        linker_flags: "-X k8s.io/component-base/version.gitVersion=v1.33.13 \
                       -X k8s.io/component-base/version.gitMajor=1 \
                       -X k8s.io/component-base/version.gitMinor=33",
    },
    newer_will_do: false,
};

/// The newest minor that docs/support.md lists.
const NEWEST: Kubernetes = Kubernetes {
    version: "1.37.2",
    etcd: "3.7.0",
    module: &GoModule {
        folder: "kubernetes-1.37.2",
        programs: PROGRAMS,
        linker_flags: "-X k8s.io/component-base/version.gitVersion=v1.37.2 \
                       -X k8s.io/component-base/version.gitMajor=1 \
                       -X k8s.io/component-base/version.gitMinor=37",
    },
    newer_will_do: false,
};

impl Kubernetes {
    /// The one that `DORMER_KUBERNETES` names.
    ///
    /// # Panics
    /// When it names none of them.
    pub fn chosen() -> Self {
        Self::named(std::env::var(VARIABLE).ok().as_deref())
    }

    /// The oldest that dormer promises.
    pub fn oldest() -> Self {
        OLDEST
    }

    /// The newest that dormer promises.
    pub fn newest() -> Self {
        NEWEST
    }

    /// Where the chosen one's API server is, found or made.
    ///
    /// # Errors
    /// It cannot be had here.
    pub fn api_server() -> Result<PathBuf, Skipped> {
        let kubernetes = Self::chosen();
        let release = kubernetes.release(kubernetes.version, "DORMER_KUBE_APISERVER");
        Self::program("kube-apiserver").find(&release)
    }

    fn named(name: Option<&str>) -> Self {
        match name {
            None | Some("" | "current") => CURRENT,
            Some("oldest") => OLDEST,
            Some("newest") => NEWEST,
            Some(other) => panic!("{VARIABLE} is current, oldest or newest, not {other:?}"),
        }
    }

    /// The minor of a version, such as 36.
    pub fn minor(&self) -> u32 {
        let minor = self
            .version
            .split('.')
            .nth(1)
            .and_then(|minor| minor.parse().ok());
        minor.expect("a version has a minor")
    }

    /// Whether a newer one that is at hand serves as well.
    pub fn newer_will_do(&self) -> bool {
        self.newer_will_do
    }

    /// One of the servers, by the name of its program.
    pub(crate) fn program(name: &'static str) -> Program {
        Program {
            name,
            version_arg: "--version",
            wheel: None,
        }
    }

    /// Which version of a program serves, and the variable that names another.
    pub(crate) fn release(&self, version: &'static str, variable: &'static str) -> Release {
        Release {
            version,
            module: Some(self.module),
            wheel_version: "",
            variable,
            newer_will_do: self.newer_will_do,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_chooses_and_a_wrong_one_is_refused() {
        assert_eq!(Kubernetes::named(None), CURRENT);
        assert_eq!(Kubernetes::named(Some("")), CURRENT);
        assert_eq!(Kubernetes::named(Some("oldest")), OLDEST);
        assert_eq!(Kubernetes::named(Some("newest")), NEWEST);
        assert!(std::panic::catch_unwind(|| Kubernetes::named(Some("latest"))).is_err());
    }

    #[test]
    fn what_is_written_down_agrees() {
        let servers = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers");
        for one in [CURRENT, OLDEST, NEWEST] {
            let text = std::fs::read_to_string(servers.join(one.module.folder).join("go.mod"));
            let text = text.expect("its module");
            let pinned = |module: &str, version: &str| {
                text.lines().any(|line| {
                    line.trim().trim_end_matches(" // indirect") == format!("{module} v{version}")
                })
            };
            assert!(pinned("k8s.io/kubernetes", one.version), "{one:?}");
            assert!(pinned("go.etcd.io/etcd/server/v3", one.etcd), "{one:?}");
            assert!(
                one.module
                    .linker_flags
                    .contains(&format!("gitVersion=v{} ", one.version))
            );
            assert!(
                one.module
                    .linker_flags
                    .ends_with(&format!("gitMinor={}", one.minor()))
            );
        }
        let readme = std::fs::read_to_string(servers.join("../../README.md")).expect("README");
        let promise = format!("Kubernetes 1.{} or newer", OLDEST.minor());
        assert!(readme.contains(&promise), "README promises {promise}");
    }
}
