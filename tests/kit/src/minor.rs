//! Which Kubernetes the tests' control plane is: a current one, or the oldest that dormer promises.

use crate::program::{Program, Release};

/// The environment variable that chooses: `current` (also when it is not set), or `oldest`.
const VARIABLE: &str = "DORMER_KUBERNETES";

/// One Kubernetes of the tests: its version, and that of the etcd that its module comes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kubernetes {
    /// Such as `1.36.3`.
    pub version: &'static str,
    /// Such as `3.6.8`.
    pub etcd: &'static str,
    /// The folder under `tests/servers` of the module that all of its servers, etcd too, are built from.
    module: &'static str,
    /// What `/version` answers; a server that was not told says that it is nothing and nobody.
    linker_flags: &'static str,
    /// Whether a newer one that is at hand serves as well.
    newer_will_do: bool,
}

/// What the tests run against when nothing is said.
const CURRENT: Kubernetes = Kubernetes {
    version: "1.36.3",
    etcd: "3.6.8",
    module: "kubernetes-1.36.3",
    linker_flags: "-X k8s.io/component-base/version.gitVersion=v1.36.3 \
                   -X k8s.io/component-base/version.gitMajor=1 \
                   -X k8s.io/component-base/version.gitMinor=36",
    newer_will_do: true,
};

/// The oldest minor that README promises.
const OLDEST: Kubernetes = Kubernetes {
    version: "1.33.13",
    etcd: "3.5.21",
    module: "kubernetes-1.33.13",
    linker_flags: "-X k8s.io/component-base/version.gitVersion=v1.33.13 \
                   -X k8s.io/component-base/version.gitMajor=1 \
                   -X k8s.io/component-base/version.gitMinor=33",
    newer_will_do: false,
};

impl Kubernetes {
    /// The one that `DORMER_KUBERNETES` names.
    ///
    /// # Panics
    /// When it names neither.
    pub fn chosen() -> Self {
        Self::named(std::env::var(VARIABLE).ok().as_deref())
    }

    /// The oldest that dormer promises.
    pub fn oldest() -> Self {
        OLDEST
    }

    fn named(name: Option<&str>) -> Self {
        match name {
            None | Some("" | "current") => CURRENT,
            Some("oldest") => OLDEST,
            Some(other) => panic!("{VARIABLE} is current or oldest, not {other:?}"),
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

    /// One of Kubernetes' own servers.
    pub(crate) fn program(&self, name: &'static str, package: &'static str) -> Program {
        Program {
            name,
            version_arg: "--version",
            go_package: Some(package),
            go_module: Some(self.module),
            go_linker_flags: self.linker_flags,
            wheel: None,
        }
    }

    /// The etcd that belongs to it.
    pub(crate) fn etcd_program(&self) -> Program {
        Program {
            go_linker_flags: "",
            ..self.program("etcd", "go.etcd.io/etcd/server/v3")
        }
    }

    /// Which version of a program serves, and the variable that names another.
    pub(crate) fn release(&self, version: &'static str, variable: &'static str) -> Release {
        Release {
            version,
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
        assert!(std::panic::catch_unwind(|| Kubernetes::named(Some("newest"))).is_err());
    }

    #[test]
    fn what_is_written_down_agrees() {
        let servers = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers");
        for one in [CURRENT, OLDEST] {
            let text = std::fs::read_to_string(servers.join(one.module).join("go.mod"));
            let text = text.expect("its module");
            assert!(
                text.contains(&format!("k8s.io/kubernetes v{} ", one.version)),
                "{one:?}"
            );
            assert!(text.contains(&format!("go.etcd.io/etcd/server/v3 v{} ", one.etcd)));
            assert!(
                one.linker_flags
                    .contains(&format!("gitVersion=v{} ", one.version))
            );
            assert!(
                one.linker_flags
                    .ends_with(&format!("gitMinor={}", one.minor()))
            );
        }
        let readme = std::fs::read_to_string(servers.join("../../README.md")).expect("README");
        let promise = format!("Kubernetes 1.{} or newer", OLDEST.minor());
        assert!(readme.contains(&promise), "README promises {promise}");
    }
}
