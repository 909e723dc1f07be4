//! Refusal of a machine: what about it is not supported, as a type with a code.

use crate::{platform, windows};
use std::fmt;

/// Why a machine cannot become a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Windows for workstations.
    Client {
        /// Product name.
        product: String,
    },
    /// Release of Windows that is not supported.
    Build {
        build: String,
        /// Name of the release.
        name: &'static str,
        /// Reason.
        why: &'static str,
        /// Last day of its updates.
        ended: &'static str,
    },
    /// Build that neither the table nor the payload knows.
    UnknownBuild { build: String },
    /// Supported build that the pool's payload is not for.
    PayloadBuild {
        /// Version of the payload.
        payload: String,
        build: String,
        /// Name of the release.
        name: &'static str,
        for_builds: Vec<String>,
    },
    /// Supported build that cannot have a setting of the cluster or of the profile.
    Setting {
        build: String,
        /// Reason.
        why: String,
    },
    /// Platform without Windows machines.
    Platform {
        /// Name, lower case.
        platform: String,
    },
    /// Platform that the pool's payload is not for.
    PayloadPlatform {
        /// Version of the payload.
        payload: String,
        /// Name, lower case.
        platform: String,
        for_platforms: Vec<String>,
    },
}

impl Refusal {
    /// Refusal of a host by the facts of the probe. `None`: this Windows is supported, or the table does not know it.
    #[must_use]
    pub fn of_host(build: &str, product: &str) -> Option<Self> {
        if windows::is_client(product) {
            return Some(Self::Client {
                product: product.to_owned(),
            });
        }
        let release = windows::release(build, product)?;
        release.refused.map(|why| Self::Build {
            build: build.to_owned(),
            name: release.name,
            why,
            ended: release.ends,
        })
    }

    /// Refusal of a host whose build the payload does not name.
    #[must_use]
    pub fn of_payload(payload: &str, build: &str, for_builds: Vec<String>) -> Self {
        match windows::release(build, "") {
            None => Self::UnknownBuild {
                build: build.to_owned(),
            },
            Some(release) => Self::PayloadBuild {
                payload: payload.to_owned(),
                build: build.to_owned(),
                name: release.name,
                for_builds,
            },
        }
    }

    /// Refusal of a platform, and of one that a payload is not for (an empty list is for all). `None`: it may be used.
    #[must_use]
    pub fn of_platform(name: &str, payload: &str, for_platforms: &[String]) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        if platform::named(&name).is_some_and(|it| it.windows == platform::Windows::No) {
            return Some(Self::Platform { platform: name });
        }
        let fits = for_platforms.is_empty() || for_platforms.contains(&name);
        (!fits && !name.is_empty()).then(|| Self::PayloadPlatform {
            payload: payload.to_owned(),
            platform: name,
            for_platforms: for_platforms.to_vec(),
        })
    }

    /// Stable code, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Client { .. } => "UnsupportedEdition",
            Self::Build { .. } | Self::UnknownBuild { .. } => "UnsupportedBuild",
            Self::PayloadBuild { .. } => "PayloadForOtherBuild",
            Self::Setting { .. } => "SettingForOtherBuild",
            Self::Platform { .. } => "UnsupportedPlatform",
            Self::PayloadPlatform { .. } => "PayloadForOtherPlatform",
        }
    }

    /// What to do, for people.
    #[must_use]
    pub fn mend(&self) -> String {
        match self {
            Self::Client { .. } | Self::Build { .. } | Self::UnknownBuild { .. } => format!(
                "Give its MachineSet an image of a supported Windows ({}), and delete this Machine.",
                windows::supported()
            ),
            Self::PayloadBuild { name, .. } => format!(
                "Install a payload for {name} and name it in the pool's spec.payload, or give the MachineSet an image \
                 that the present payload is for; dormer payload list DIR shows what each is for."
            ),
            Self::Setting { .. } => {
                "Give its MachineSet an image of a newer Windows Server, and delete this Machine; or change the setting."
                    .to_owned()
            }
            Self::Platform { .. } => {
                "Move its MachineSet to a supported platform; docs/support.md lists them."
                    .to_owned()
            }
            Self::PayloadPlatform { platform, .. } => format!(
                "Install a payload for {platform} and name it in the pool's spec.payload; dormer payload list DIR shows \
                 what each is for."
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client { product } => {
                write!(
                    f,
                    "{product} is no Windows Server, and nothing else can be a node"
                )
            }
            Self::Build {
                build,
                name,
                why,
                ended,
            } => {
                write!(f, "{name} ({build}) is not supported: {why}")?;
                match why.ends_with("ended") {
                    true => write!(f, " on {ended}"),
                    false => Ok(()),
                }
            }
            Self::UnknownBuild { build } => write!(
                f,
                "Windows {build} is not supported: neither the support table nor the payload knows this build"
            ),
            Self::PayloadBuild {
                payload,
                build,
                name,
                for_builds,
            } => write!(
                f,
                "payload {payload} is not for {name} ({build}); it is for {}",
                for_builds.join(", ")
            ),
            Self::Setting { why, .. } => f.write_str(why),
            Self::Platform { platform } => {
                write!(
                    f,
                    "the platform {platform} has no supported Windows machines"
                )
            }
            Self::PayloadPlatform {
                payload,
                platform,
                for_platforms,
            } => write!(
                f,
                "payload {payload} is not for the platform {platform}; it is for {}",
                for_platforms.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_supported_is_refused_by_its_name() {
        let of = |build: &str, product: &str| Refusal::of_host(build, product);
        assert_eq!(of("10.0.20348", "Windows Server 2022 Datacenter"), None);
        assert_eq!(of("10.0.29000", ""), None, "the payload decides");
        let table = [
            (
                of("10.0.18362", "Windows Server Datacenter"),
                "Windows Server, version 1903 (10.0.18362) is not supported: a semi-annual release whose updates ended \
                 on 2020-12-08",
            ),
            (
                of("10.0.17763", "Microsoft Windows Server Datacenter"),
                "Windows Server, version 1809 (10.0.17763) is not supported: a semi-annual release whose updates ended \
                 on 2020-11-10",
            ),
            (
                of("10.0.26100", "Microsoft Windows 11 Enterprise"),
                "Microsoft Windows 11 Enterprise is no Windows Server, and nothing else can be a node",
            ),
            (
                Some(Refusal::of_payload(
                    "11.0.0",
                    "10.0.26100",
                    vec!["10.0.20348".into()],
                )),
                "payload 11.0.0 is not for Windows Server 2025 (10.0.26100); it is for 10.0.20348",
            ),
            (
                Some(Refusal::of_payload(
                    "11.0.0",
                    "10.0.29000",
                    vec!["10.0.20348".into()],
                )),
                "Windows 10.0.29000 is not supported: neither the support table nor the payload knows this build",
            ),
            (
                Refusal::of_platform("PowerVS", "11.0.0", &[]),
                "the platform powervs has no supported Windows machines",
            ),
            (
                Refusal::of_platform("GCP", "11.0.0", &["aws".into(), "azure".into()]),
                "payload 11.0.0 is not for the platform gcp; it is for aws, azure",
            ),
        ];
        for (refusal, text) in table {
            let refusal = refusal.expect(text);
            assert_eq!(refusal.to_string(), text);
            assert!(!refusal.mend().is_empty() && !refusal.code().is_empty());
        }
        assert_eq!(Refusal::of_platform("AWS", "11.0.0", &[]), None);
        assert_eq!(Refusal::of_platform("", "11.0.0", &["aws".into()]), None);
    }
}
