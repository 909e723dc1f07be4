//! Versions of OpenShift, Kubernetes, containerd and OpenSSH.

use std::fmt;

/// Major and minor version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Shorthand of the tables.
const fn v(major: u32, minor: u32) -> Minor {
    Minor { major, minor }
}

impl Minor {
    /// Major and minor of `v1.36.3+abc`, `4.20.1` or `1.36`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().trim_start_matches('v').split('.');
        let number = |part: Option<&str>| -> Option<u32> {
            let part = part?;
            let digits = part
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(part.len());
            part[..digits].parse().ok()
        };
        Some(v(number(parts.next())?, number(parts.next())?))
    }
}

/// Version of OpenShift, with its Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenShift {
    /// OpenShift's version.
    pub version: Minor,
    pub kubernetes: Minor,
    /// Why it is not supported. `None`: it is.
    pub refused: Option<&'static str>,
}

const TOO_OLD: &str = "its Kubernetes is older than 1.33, the oldest that dormer supports";

/// The table of OpenShift's versions, the newest first.
pub const OPENSHIFT: [OpenShift; 8] = [
    OpenShift {
        version: v(5, 1),
        kubernetes: v(1, 36),
        refused: None,
    },
    OpenShift {
        version: v(5, 0),
        kubernetes: v(1, 36),
        refused: None,
    },
    OpenShift {
        version: v(4, 22),
        kubernetes: v(1, 35),
        refused: None,
    },
    OpenShift {
        version: v(4, 21),
        kubernetes: v(1, 34),
        refused: None,
    },
    OpenShift {
        version: v(4, 20),
        kubernetes: v(1, 33),
        refused: None,
    },
    OpenShift {
        version: v(4, 19),
        kubernetes: v(1, 32),
        refused: Some(TOO_OLD),
    },
    OpenShift {
        version: v(4, 18),
        kubernetes: v(1, 31),
        refused: Some(TOO_OLD),
    },
    OpenShift {
        version: v(4, 6),
        kubernetes: v(1, 19),
        refused: Some(TOO_OLD),
    },
];

/// Source of the table of OpenShift's versions.
pub const OPENSHIFT_SOURCE: &str =
    "WMCO release branches 4.6 to 5.2 (baseK8sVersion), tags up to WMCO 11.0.0";

/// Supported range of Kubernetes versions, oldest and newest.
pub const KUBERNETES: (Minor, Minor) = (v(1, 33), v(1, 37));
/// Source of that range.
pub const KUBERNETES_SOURCE: &str = "docs/testing.md: 1.33 is the oldest that tests run against; Kubernetes 1.37 of 2026-08-26 is the newest with a profile";

/// Whether an OpenShift version is supported; the reason if it is not.
///
/// # Errors
/// The reason, in words.
pub fn openshift(version: Minor) -> Result<(), String> {
    let oldest = v(4, 20);
    match OPENSHIFT.iter().find(|it| it.version == version) {
        Some(OpenShift { refused: None, .. }) => Ok(()),
        Some(OpenShift {
            refused: Some(why), ..
        }) => Err((*why).to_owned()),
        None if version < oldest => Err(TOO_OLD.to_owned()),
        None => Err(format!(
            "it is newer than {}, the newest that dormer knows",
            OPENSHIFT[0].version
        )),
    }
}

/// Whether a Kubernetes version is supported; the reason if it is not.
///
/// # Errors
/// The reason, in words.
pub fn kubernetes(version: Minor) -> Result<(), String> {
    let (oldest, newest) = KUBERNETES;
    if version < oldest {
        return Err(format!(
            "it is older than {oldest}, the oldest that dormer supports"
        ));
    }
    if version > newest {
        return Err(format!(
            "it is newer than {newest}, the newest that dormer knows"
        ));
    }
    Ok(())
}

/// Version of a program on the host, with its known state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Version, or a range as people write it.
    pub version: &'static str,
    /// Whether it may be used.
    pub supported: bool,
    /// Known facts.
    pub remark: &'static str,
    /// Where the fact is from.
    pub source: &'static str,
}

impl Program {
    /// Whether a version is one of this row.
    fn covers(&self, version: Minor) -> bool {
        let (first, last) = match self.version.strip_suffix(" and older") {
            Some(last) => (Some(v(0, 0)), Minor::parse(last)),
            None => {
                let (first, last) = match self.version.split_once(" to ") {
                    Some(range) => range,
                    None => (self.version, self.version),
                };
                (Minor::parse(first), Minor::parse(last))
            }
        };
        let range = first.zip(last);
        range.is_some_and(|(first, last)| (first..=last).contains(&version))
    }
}

/// Whether a version of containerd is supported; the reason if it is not. One that the table does not have is newer.
///
/// # Errors
/// The reason, in words.
pub fn containerd(version: Minor) -> Result<(), String> {
    let row = CONTAINERD.iter().find(|it| it.covers(version));
    match row {
        Some(row) if !row.supported => Err(row.remark.to_owned()),
        _ => Ok(()),
    }
}

/// Version of the sshd of Windows that calls itself `SSH-2.0-OpenSSH_for_Windows_9.5`, with what is known of it. `None`: it
/// is another program, or the table does not have it.
#[must_use]
pub fn openssh(id: &str) -> Option<(Minor, &'static Program)> {
    let version = id.trim().strip_prefix("SSH-2.0-OpenSSH_for_Windows_")?;
    let version = Minor::parse(version)?;
    let row = OPENSSH.iter().find(|it| it.covers(version))?;
    Some((version, row))
}

/// Where the ends of containerd's releases are from.
const CONTAINERD_RELEASES: &str = "containerd v2.4.2's table of releases";

/// The table of containerd's versions.
pub const CONTAINERD: [Program; 7] = [
    Program {
        version: "1.6 and older",
        supported: false,
        remark: "its updates ended on 2025-08-23",
        source: CONTAINERD_RELEASES,
    },
    Program {
        version: "1.7",
        supported: true,
        remark: "its updates ended in September 2026; WMCO still ships 1.7.27; not for a kubelet from 1.38 on",
        source: "containerd v2.4.2's table of releases; WMCO 11.0.0; KEP-4033 (kubernetes/enhancements#6087)",
    },
    Program {
        version: "2.0",
        supported: true,
        remark: "two maintainers extend its updates from 2025-11-07 until March 2027, for Kubernetes 1.33",
        source: CONTAINERD_RELEASES,
    },
    Program {
        version: "2.1",
        supported: true,
        remark: "its updates ended on 2026-07-03; CNI is configured by bin_dirs",
        source: "containerd v2.4.2's table of releases; containerd#11311",
    },
    Program {
        version: "2.2",
        supported: true,
        remark: "its updates ended on 2026-11-06",
        source: CONTAINERD_RELEASES,
    },
    Program {
        version: "2.3",
        supported: true,
        remark: "long-term until 2028-04-30; take 2.3.2 or newer",
        source: CONTAINERD_RELEASES,
    },
    Program {
        version: "2.4",
        supported: true,
        remark: "its updates end on 2027-05-16; CNI's bin_dir is gone",
        source: "containerd v2.4.2's table of releases; containerd#14166",
    },
];

/// The table of OpenSSH's versions on Windows.
pub const OPENSSH: [Program; 4] = [
    Program {
        version: "7.7",
        supported: true,
        remark: "of Windows Server 2019; no extension limits, no atomic rename",
        source: "PowerShell/openssh-portable",
    },
    Program {
        version: "8.1 to 9.4",
        supported: true,
        remark: "of Windows Server 2022 before its updates",
        source: "PowerShell/openssh-portable",
    },
    Program {
        version: "9.5",
        supported: true,
        remark: "since October 2024 it does not start where C:\\ProgramData\\ssh or its logs have loose rights; CVE-2026-69397 is mended by the updates of 8 September 2026",
        source: "Win32-OpenSSH#2282, #2287, #2299, #2455",
    },
    Program {
        version: "9.8",
        supported: true,
        remark: "throttles connections by MaxStartups",
        source: "Win32-OpenSSH#2297",
    },
];

/// The runtime that dormer does not use, and refuses to share a host with.
pub const DOCKER: &str = "Docker (the service docker) is no runtime of a node since Kubernetes 1.24, which took dockershim out; dormer installs containerd. Take an image without it, or stop and remove the service: sc.exe stop docker, sc.exe delete docker";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_servers_say() {
        for (text, minor) in [
            ("v1.36.3+abc", Some(v(1, 36))),
            ("4.20.1", Some(v(4, 20))),
            ("1.33", Some(v(1, 33))),
            ("1.34+", Some(v(1, 34))),
            ("latest", None),
            ("4", None),
        ] {
            assert_eq!(Minor::parse(text), minor, "{text}");
        }
    }

    /// A page of ours that takes it from this table would be its own source.
    #[test]
    fn the_source_of_a_row_is_no_page_of_ours() {
        for row in CONTAINERD.iter().chain(&OPENSSH) {
            let ours = row.source.contains("docs/") || row.source.is_empty();
            assert!(!ours, "{}: {}", row.version, row.source);
        }
    }

    #[test]
    fn each_row_of_a_program_covers_the_versions_that_it_names() {
        for row in CONTAINERD.iter().chain(&OPENSSH) {
            let first = row.version.split(' ').next().and_then(Minor::parse);
            assert!(first.is_some_and(|it| row.covers(it)), "{}", row.version);
        }
        for old in [v(1, 6), v(1, 5), v(0, 9)] {
            let why = containerd(old).expect_err("refused");
            assert!(why.contains("2025-08-23"), "{why}");
        }
        for good in [v(1, 7), v(2, 0), v(2, 4), v(3, 0)] {
            assert_eq!(containerd(good), Ok(()), "{good}");
        }
        let row = |id: &str| openssh(id).map(|(version, row)| (version, row.version));
        assert_eq!(
            row("SSH-2.0-OpenSSH_for_Windows_7.7"),
            Some((v(7, 7), "7.7"))
        );
        let old = row("SSH-2.0-OpenSSH_for_Windows_8.6");
        assert_eq!(old, Some((v(8, 6), "8.1 to 9.4")));
        assert_eq!(
            row("SSH-2.0-OpenSSH_for_Windows_9.5p1"),
            Some((v(9, 5), "9.5"))
        );
        for other in ["SSH-2.0-OpenSSH_9.6", "SSH-2.0-OpenSSH_for_Windows_6.0", ""] {
            assert_eq!(row(other), None, "{other}");
        }
    }

    #[test]
    fn old_and_unknown_versions_are_refused_with_a_reason() {
        assert_eq!(openshift(v(4, 20)), Ok(()));
        assert_eq!(openshift(v(5, 0)), Ok(()));
        for (version, why) in [
            (v(4, 6), "older than 1.33"),
            (v(4, 12), "older"),
            (v(6, 0), "newer"),
        ] {
            assert!(
                openshift(version).expect_err("refused").contains(why),
                "{version}"
            );
        }
        assert_eq!(kubernetes(v(1, 33)), Ok(()));
        assert!(kubernetes(v(1, 32)).is_err() && kubernetes(v(1, 38)).is_err());
        assert!(
            OPENSHIFT
                .windows(2)
                .all(|two| two[0].version > two[1].version)
        );
    }
}
