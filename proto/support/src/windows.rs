//! Windows builds: their names, whether they are supported, and when they end.

use crate::version::Minor;

/// Build of Windows Server 2019, and of version 1809.
pub const SERVER_2019: &str = "10.0.17763";
/// Build of Windows Server 2022.
pub const SERVER_2022: &str = "10.0.20348";
/// Build of Windows Server 2025.
pub const SERVER_2025: &str = "10.0.26100";

/// Release of Windows, and whether dormer supports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowsRelease {
    /// `10.0.20348`: major, minor, build, as the label `node.kubernetes.io/windows-build` has it.
    pub build: &'static str,
    /// Name, as Microsoft writes it.
    pub name: &'static str,
    /// Why it is not supported. `None`: it is.
    pub refused: Option<&'static str>,
    /// Last day of Microsoft's updates, as `2029-01-09`.
    pub ends: &'static str,
    /// Remark for the page.
    pub remark: &'static str,
    /// Where the facts are from.
    pub source: &'static str,
}

const LIFECYCLE: &str = "Microsoft: Windows Server release information";
const SEMI_ANNUAL: &str = "a semi-annual release whose updates ended";

/// Version 1809 has the build of Server 2019; only its edition tells them apart.
const VERSION_1809: WindowsRelease = WindowsRelease {
    build: SERVER_2019,
    name: "Windows Server, version 1809",
    refused: Some(SEMI_ANNUAL),
    ends: "2020-11-10",
    remark: "the build of Windows Server 2019; its product name has no year",
    source: LIFECYCLE,
};

impl WindowsRelease {
    /// Days until Microsoft's updates end, negative after that, on a day such as `2026-11-28`. `None`: that is no day.
    #[must_use]
    pub fn days_left(&self, today: &str) -> Option<i64> {
        Some(day(self.ends)? - day(today)?)
    }
}

/// Number of a day such as `2026-11-28`, counted from any fixed one.
fn day(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, '-').map(str::parse::<i64>);
    let mut part = || parts.next()?.ok();
    let year = part()?;
    let month = part()?;
    let day = part()?;
    if !(1..=9_999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin with March, so that the leap day is their last one.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    Some(365 * year + leap_days + (153 * month + 2) / 5 + day)
}

/// The table of releases, supported ones first.
pub const RELEASES: [WindowsRelease; 12] = [
    WindowsRelease {
        build: SERVER_2019,
        name: "Windows Server 2019",
        refused: None,
        ends: "2029-01-09",
        remark: "ports of VXLAN other than 4789 do not work; from Kubernetes 1.37 on its documents name 2022 and 2025 only",
        source: "Microsoft: Windows Server release information; hcsshim hcnglobals.go; Kubernetes 1.37, Windows OS version compatibility",
    },
    WindowsRelease {
        build: SERVER_2022,
        name: "Windows Server 2022",
        refused: None,
        ends: "2031-10-14",
        remark: "mainstream support ended on 2026-10-13",
        source: LIFECYCLE,
    },
    WindowsRelease {
        build: SERVER_2025,
        name: "Windows Server 2025",
        refused: None,
        ends: "2034-11-14",
        remark: "needs the pause image 3.10.2 or newer; WMCO knows it from 10.22 on",
        source: "Microsoft: lifecycle of Windows Server 2025; containerd#13156; WMCO 10.22 release notes",
    },
    VERSION_1809,
    WindowsRelease {
        build: "10.0.14393",
        name: "Windows Server 2016",
        refused: Some("no kubelet and no containerd of today runs Windows containers on it"),
        ends: "2027-01-12",
        remark: "",
        source: "Kubernetes 1.19, Windows OS version compatibility",
    },
    WindowsRelease {
        build: "10.0.16299",
        name: "Windows Server, version 1709",
        refused: Some(SEMI_ANNUAL),
        ends: "2019-04-09",
        remark: "",
        source: LIFECYCLE,
    },
    WindowsRelease {
        build: "10.0.17134",
        name: "Windows Server, version 1803",
        refused: Some(SEMI_ANNUAL),
        ends: "2019-11-12",
        remark: "",
        source: LIFECYCLE,
    },
    WindowsRelease {
        build: "10.0.18362",
        name: "Windows Server, version 1903",
        refused: Some(SEMI_ANNUAL),
        ends: "2020-12-08",
        remark: "old guides to scheduling still name it",
        source: LIFECYCLE,
    },
    WindowsRelease {
        build: "10.0.18363",
        name: "Windows Server, version 1909",
        refused: Some(SEMI_ANNUAL),
        ends: "2021-05-11",
        remark: "",
        source: LIFECYCLE,
    },
    WindowsRelease {
        build: "10.0.19041",
        name: "Windows Server, version 2004",
        refused: Some(SEMI_ANNUAL),
        ends: "2021-12-14",
        remark: "",
        source: LIFECYCLE,
    },
    WindowsRelease {
        build: "10.0.19042",
        name: "Windows Server, version 20H2",
        refused: Some(SEMI_ANNUAL),
        ends: "2022-08-09",
        remark: "",
        source: LIFECYCLE,
    },
    WindowsRelease {
        build: "10.0.25398",
        name: "Windows Server, version 23H2",
        refused: Some("an annual release whose updates ended"),
        ends: "2025-10-24",
        remark: "",
        source: "Microsoft: Windows Server annual channel",
    },
];

/// Release of a host by its build and its product name (which may be empty). `None`: the table has no such build.
#[must_use]
pub fn release(build: &str, product: &str) -> Option<&'static WindowsRelease> {
    let of_build = || RELEASES.iter().filter(|it| it.build == build);
    if build == SERVER_2019 && is_server_without_a_year(product) {
        return of_build().find(|it| it.refused.is_some());
    }
    of_build().next()
}

/// Supported builds with their names, as a sentence lists them.
#[must_use]
pub fn supported() -> String {
    let all = RELEASES.iter().filter(|it| it.refused.is_none());
    let all: Vec<String> = all
        .map(|it| format!("{} ({})", it.name, it.build))
        .collect();
    all.join(", ")
}

/// Whether a product name is one of Windows for workstations.
#[must_use]
pub fn is_client(product: &str) -> bool {
    product.contains("Windows 10") || product.contains("Windows 11")
}

/// A semi-annual release is called `Windows Server Datacenter`; a long-term one has its year in its name.
fn is_server_without_a_year(product: &str) -> bool {
    let year = |word: &str| word.len() == 4 && word.starts_with("20");
    product.contains("Server") && !product.split(' ').any(year)
}

/// Update that is known to break nodes, by the full build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadBuild {
    /// Last update of that Windows without the fault, as `17763.1457`.
    pub good_until: &'static str,
    /// Kubelet whose node programs work with later updates again.
    pub mended_from: Minor,
    /// What happens.
    pub what: &'static str,
    /// What to do.
    pub mend: &'static str,
    /// Where the fact is from.
    pub source: &'static str,
}

/// Known-bad updates, the oldest first.
pub const BAD_BUILDS: [BadBuild; 1] = [BadBuild {
    good_until: "17763.1457",
    mended_from: Minor {
        major: 1,
        minor: 20,
    },
    what: "Services of type LoadBalancer with endpoints on several Windows nodes answer unreliably",
    mend: "take a payload of WMCO 1.0.4 or later, with which later updates work again",
    source: "BZ#1942630; WMCO 1.0.4 release notes, RHBA-2021:1061",
}];

/// The known fault of a node with this update of Windows (`10.0.17763.1500`) and this kubelet.
#[must_use]
pub fn bad_build(kernel: &str, kubelet: Minor) -> Option<&'static BadBuild> {
    let parts = |text: &str| -> Option<(u32, u32)> {
        let (build, revision) = text.split_once('.')?;
        Some((build.parse().ok()?, revision.parse().ok()?))
    };
    let (build, revision) = parts(kernel.strip_prefix("10.0.")?)?;
    BAD_BUILDS.iter().find(|bad| {
        let good = parts(bad.good_until);
        let is_later = good.is_some_and(|(of, last)| of == build && revision > last);
        is_later && kubelet < bad.mended_from
    })
}

/// Certificate of Secure Boot whose end a server does not survive by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootCertificate {
    pub name: &'static str,
    /// Last day, as `2026-06-24`.
    pub ends: &'static str,
    /// What replaces it.
    pub next: &'static str,
    /// Certificates that it signs.
    pub signs: &'static str,
}

/// Certificates of 2011. A server gets the new ones by a manual action only; without them it boots, and gets no more
/// protection of its boot.
pub const BOOT_CERTIFICATES: [BootCertificate; 3] = [
    BootCertificate {
        name: "Microsoft Corporation KEK CA 2011",
        ends: "2026-06-24",
        next: "Microsoft Corporation KEK 2K CA 2023",
        signs: "updates of the databases DB and DBX",
    },
    BootCertificate {
        name: "Microsoft UEFI CA 2011",
        ends: "2026-06-27",
        next: "Microsoft UEFI CA 2023, Microsoft Option ROM UEFI CA 2023",
        signs: "boot loaders of others, option ROMs",
    },
    BootCertificate {
        name: "Microsoft Windows Production PCA 2011",
        ends: "2026-10-19",
        next: "Windows UEFI CA 2023",
        signs: "the boot loader of Windows",
    },
];

/// Where the facts about Secure Boot are from.
pub const BOOT_SOURCE: &str = "Microsoft KB5062710";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1809_differs_from_2019_by_its_edition() {
        let table = [
            (
                "Microsoft Windows Server 2019 Datacenter",
                "Windows Server 2019",
            ),
            (
                "Windows Server 2019 Standard Evaluation",
                "Windows Server 2019",
            ),
            (
                "Microsoft Windows Server Datacenter",
                "Windows Server, version 1809",
            ),
            ("Windows Server Standard", "Windows Server, version 1809"),
            ("", "Windows Server 2019"),
        ];
        for (product, name) in table {
            let found = release(SERVER_2019, product).expect("a release");
            assert_eq!(found.name, name, "{product}");
        }
    }

    /// Microsoft's page of each product. Windows 11 LTSC has the build of Server 2025, and ends in October 2034.
    #[test]
    fn updates_of_supported_releases_end_on_the_days_of_the_servers_own_pages() {
        for (build, ends) in [
            (SERVER_2019, "2029-01-09"),
            (SERVER_2022, "2031-10-14"),
            (SERVER_2025, "2034-11-14"),
        ] {
            let found = release(build, "").expect("a release");
            assert_eq!(found.ends, ends, "{}", found.name);
        }
    }

    #[test]
    fn the_days_until_updates_end_are_counted_by_the_calendar() {
        let left = |today| RELEASES[0].days_left(today);
        for (today, days) in [
            ("2029-01-09", 0),
            ("2029-01-08", 1),
            ("2029-01-10", -1),
            ("2028-07-13", 180),
            ("2028-02-29", 315),
            ("2028-03-01", 314),
            ("2027-01-09", 731),
        ] {
            assert_eq!(left(today), Some(days), "{today}");
        }
        for odd in ["", "2029-13-01", "2029-01", "soon", "2029-01-32"] {
            assert_eq!(left(odd), None, "{odd}");
        }
    }

    #[test]
    fn an_update_is_bad_with_the_node_programs_of_its_time_alone() {
        let kubelet = |minor| Minor { major: 1, minor };
        let bad = |kernel, minor| bad_build(kernel, kubelet(minor)).is_some();
        assert!(bad("10.0.17763.1458", 19));
        assert!(!bad("10.0.17763.1457", 19), "the last good one");
        assert!(!bad("10.0.17763.7919", 33), "later programs work with it");
        assert!(!bad("10.0.20348.3207", 19), "another Windows");
        assert!(!bad("5.14.0-570", 19) && !bad("10.0.17763", 19));
    }

    #[test]
    fn each_build_but_1809_is_there_once_and_ends_on_a_day() {
        for one in &RELEASES {
            let same = RELEASES.iter().filter(|it| it.build == one.build).count();
            let wanted = if one.build == SERVER_2019 { 2 } else { 1 };
            assert_eq!(same, wanted, "{}", one.name);
            let day: Vec<&str> = one.ends.split('-').collect();
            assert_eq!(day.iter().map(|it| it.len()).collect::<Vec<_>>(), [4, 2, 2]);
            assert!(!one.source.is_empty(), "{}", one.name);
        }
        assert_eq!(release("10.0.99999", ""), None);
    }
}
