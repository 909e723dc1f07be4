//! Rows about Windows as a whole, trusted roots, features.

use dormer_host::ops::{
    Answer, Ask, Boot, BootRead, Bytes, Clock, ClockRead, DismState, Domain, DomainRead,
    DynamicPortsRead, EnvironmentTell, FeatureEnable, FeatureRead, HostNameSet, Operation, Pause,
    PortRange, RegistryDelete, RegistryRead, RegistryWrite, Root, RootAdd, RootList, RootRemove,
    System, SystemRead, Value, WinError,
};

use crate::{
    Needs, Row, Scope,
    Wanted::{self, Done, Refused},
};

const DISM: &str = "dismapi.dll";

/// A root of our own, made for these rows: `openssl req -x509 -newkey ed25519 -subj /CN=dormer-contract`.
const ROOT: &[u8] = include_bytes!("root.der");

/// Where a group policy keeps that root, under its SHA-1 (win32 SecCrypto/system-store-locations).
const OF_A_POLICY: &str = r"SOFTWARE\Policies\Microsoft\SystemCertificates\Root\Certificates\F357808C5A6DCB7965043D050D7F5170410A6B96";
/// The value with the certificate.
const BLOB: &str = "Blob";

/// That root as a policy has it: the property 32 is the certificate itself, and 1 stands between its number and its length
/// (MS-GPEF, certificate blob).
fn by_policy() -> Operation {
    let length = u32::try_from(ROOT.len()).unwrap_or_default();
    let head = [32, 1, length].map(u32::to_le_bytes);
    RegistryWrite {
        key: OF_A_POLICY.into(),
        name: BLOB.into(),
        value: Value::Bytes(Bytes([head.as_flattened(), ROOT].concat())),
    }
    .operation()
}

fn roots(what: &'static str, so: impl Fn(&[Root]) -> bool + Send + 'static) -> Wanted {
    Wanted::Answer(
        what,
        Box::new(move |answer| matches!(answer, Answer::RootList(roots) if so(roots))),
    )
}

fn add_root(der: &[u8]) -> Operation {
    RootAdd {
        der: Bytes(der.to_vec()),
        name: "dormer contract".into(),
    }
    .operation()
}

fn remove_root() -> Operation {
    RootRemove {
        sha256: root_digest(),
    }
    .operation()
}

fn root_digest() -> String {
    dormer_host::content::digest(ROOT).map_or_else(|_| String::new(), |digest| digest.sha256)
}

fn feature(name: &str) -> Operation {
    FeatureRead { name: name.into() }.operation()
}

pub(crate) fn rows(scope: &Scope) -> Vec<Row> {
    let mut rows = of_windows(&format!("{}-contract-name", scope.prefix));
    rows.extend(of_roots());
    rows.extend(of_features());
    rows
}

fn of_windows(host_name: &str) -> Vec<Row> {
    let cut = host_name[..15].to_uppercase();
    let system = |dns_host_name: &str| {
        Answer::SystemRead(System {
            version: [10, 0, 20348],
            product_type: 3,
            architecture: 9,
            dns_host_name: dns_host_name.into(),
            administrator: true,
        })
    };
    vec![
        Row::new(
            "a Windows Server on x86-64 is told, to an administrator",
            vec![],
            SystemRead {}.operation(),
            Wanted::Answer(
                "10.0, a server, x86-64, an administrator",
                Box::new(|answer| {
                    let Answer::SystemRead(system) = answer else {
                        return false;
                    };
                    system.version[..2] == [10, 0]
                        && system.version[2] >= 17_763
                        && system.product_type != 1
                        && system.architecture == 9
                        && system.administrator
                        && !system.dns_host_name.is_empty()
                        && system.dns_host_name.len() <= 63
                }),
            ),
            "windows-driver-docs wdm nf-wdm-rtlgetversion; sdk-api nf-sysinfoapi-getcomputernameexw",
        )
        .liar(Ok(system(""))),
        Row::new(
            "the dynamic ports of TCP are told as numbers",
            vec![],
            DynamicPortsRead {}.operation(),
            Wanted::Answer(
                "at least 255 ports, from 1025 on",
                Box::new(|answer| {
                    matches!(answer, Answer::DynamicPortsRead(range) if range.start > 1_024 && range.count >= 255)
                }),
            ),
            "win32 desktop-src nettcpipprov/msft-nettcpsetting; KB 929851",
        )
        .liar(Ok(Answer::DynamicPortsRead(PortRange {
            start: 0,
            count: 0,
        })))
        .not_on_wine("has no ROOT\\StandardCimv2: 0x8004100E"),
        Row::new(
            "time goes on through a pause",
            vec![],
            ClockRead {}.operation(),
            Wanted::Answer(
                "a time after 2020, a time since the boot",
                Box::new(|answer| {
                    matches!(answer, Answer::ClockRead(clock) if clock.now_ms > 1_577_836_800_000 && clock.tick_ms > 0)
                }),
            ),
            "sdk-api nf-sysinfoapi-gettickcount64",
        )
        .then(Pause { ms: 20 }.operation(), Done)
        .liar(Ok(Answer::ClockRead(Clock {
            now_ms: 0,
            tick_ms: 0,
        }))),
        Row::new(
            "a boot has a time that nobody can set",
            vec![],
            BootRead {}.operation(),
            Wanted::Answer(
                "a boot after 2020",
                Box::new(|answer| {
                    matches!(answer, Answer::BootRead(boot) if boot.steady_ms > 1_577_836_800_000 && boot.booted_ms > 1_577_836_800_000)
                }),
            ),
            "phnt ntexapi.h, SYSTEM_TIMEOFDAY_INFORMATION",
        )
        .liar(Ok(Answer::BootRead(Boot {
            kuser_boot_id: 1,
            steady_ms: 0,
            booted_ms: 0,
        }))),
        Row::new(
            "a boot has a number",
            vec![],
            BootRead {}.operation(),
            Wanted::Answer(
                "not 0",
                Box::new(|answer| {
                    matches!(answer, Answer::BootRead(boot) if boot.kuser_boot_id != 0)
                }),
            ),
            "ntddk ns-ntddk-kuser_shared_data, BootId",
        )
        .not_on_wine("0: no boot is counted"),
        Row::new(
            "a host that is in no domain says so",
            vec![],
            DomainRead {}.operation(),
            Wanted::Answer(
                "no domain",
                Box::new(|answer| matches!(answer, Answer::DomainRead(domain) if domain.status != 3)),
            ),
            "sdk-api nf-lmjoin-netgetjoininformation",
        )
        .liar(Ok(Answer::DomainRead(Domain {
            status: 3,
            name: "example".into(),
        })))
        .needs(Needs::NoDomain),
        Row::new(
            "a name that no computer may have is refused",
            vec![],
            HostNameSet {
                name: "a;b".into(),
            }
            .operation(),
            Refused(&[87, 123]),
            "sdk-api nf-sysinfoapi-setcomputernameexw",
        )
        .not_on_wine("accepts every name"),
        Row::new(
            "a new name is written for the next boot, whole and cut",
            vec![],
            HostNameSet {
                name: host_name.into(),
            }
            .operation(),
            Done,
            "sdk-api nf-sysinfoapi-setcomputernameexw; reactos dll/win32/kernel32",
        )
        .then(
            RegistryRead {
                key: r"SYSTEM\CurrentControlSet\Control\ComputerName\ComputerName".into(),
                name: "ComputerName".into(),
            }
            .operation(),
            Wanted::Answer(
                "the first 15 characters in capitals",
                Box::new(move |answer| {
                    matches!(answer, Answer::RegistryRead(Value::Text(name)) if *name == cut)
                }),
            ),
        ),
        Row::new(
            "nobody need listen to a changed environment",
            vec![],
            EnvironmentTell {}.operation(),
            Done,
            "sdk-api nf-winuser-sendmessagetimeoutw",
        )
        .liar(Err(WinError::new(1460))),
    ]
}

fn of_roots() -> Vec<Row> {
    let ours = root_digest();
    let there = move |roots: &[Root]| {
        let found = roots.iter().find(|root| root.sha256 == ours);
        found.is_some_and(|root| root.own && root.name == "dormer contract")
    };
    let gone = |roots: &[Root]| !roots.iter().any(|root| root.sha256 == root_digest());
    let list = RootList {}.operation();
    vec![
        Row::new(
            "a root is added with its name, to the store's own part",
            vec![],
            add_root(ROOT),
            Done,
            "sdk-api nf-wincrypt-certaddcertificatecontexttostore; win32 SecCrypto/system-store-locations",
        )
        .cleared(remove_root())
        .then(list.clone(), roots("our root", there.clone()))
        .then(remove_root(), Done),
        Row::new(
            "a root that is there is somebody else's",
            vec![add_root(ROOT)],
            add_root(ROOT),
            Refused(&[0x8009_2005]),
            "sdk-api nf-wincrypt-certaddcertificatecontexttostore, CERT_STORE_ADD_NEW",
        )
        .cleared(remove_root())
        .then(remove_root(), Done),
        Row::new(
            "a root is removed",
            vec![add_root(ROOT)],
            remove_root(),
            Done,
            "sdk-api nf-wincrypt-certdeletecertificatefromstore",
        )
        .cleared(remove_root())
        .then(list, roots("not our root", gone))
        .then(remove_root(), Refused(&[0x8009_2004])),
        Row::new(
            "a root that is not there is not removed",
            vec![],
            RootRemove {
                sha256: "00".repeat(32),
            }
            .operation(),
            Refused(&[0x8009_2004]),
            "sdk-api wincrypt.h, CRYPT_E_NOT_FOUND",
        ),
        Row::new(
            "what is no certificate is no root",
            vec![],
            add_root(b"no certificate"),
            Refused(&[0x8009_310b, 0x8009_3102]),
            "sdk-api nf-wincrypt-certcreatecertificatecontext; measured on Wine 8",
        ),
        Row::new(
            "bytes behind a certificate are not taken",
            vec![],
            add_root(&[ROOT, b"x"].concat()),
            Refused(&[0x8009_310b]),
            "the interface's own promise: its SHA-256 would be another",
        ),
        // The last one: a host keeps the policy's root if the row fails.
        Row::new(
            "a root that a policy brings is added to the store's own part, too",
            vec![by_policy()],
            add_root(ROOT),
            Done,
            "sdk-api nf-wincrypt-certaddcertificatecontexttostore, CERT_STORE_ADD_NEW: a collection has links",
        )
        .cleared(remove_root())
        .then(RootList {}.operation(), roots("our root", there))
        .then(remove_root(), Done)
        .then(
            RegistryDelete {
                key: OF_A_POLICY.into(),
                name: BLOB.into(),
            }
            .operation(),
            Done,
        ),
    ]
}

fn of_features() -> Vec<Row> {
    vec![
        Row::new(
            "a feature has a state",
            vec![],
            feature("Containers"),
            Wanted::Answer(
                "a state",
                Box::new(|answer| matches!(answer, Answer::FeatureRead(_))),
            ),
            "dismapi.h, DismGetFeatureInfo",
        )
        .by_stand_in(DISM),
        Row::new(
            "a feature that Windows does not know",
            vec![],
            feature("Dormer-Nothing"),
            Refused(&[0x800f_080c]),
            "dismapi.h, DismGetFeatureInfo",
        )
        .by_stand_in(DISM),
        Row::new(
            "a feature that Windows does not know is not enabled",
            vec![],
            FeatureEnable {
                name: "Dormer-Nothing".into(),
            }
            .operation(),
            Refused(&[0x800f_080c]),
            "dismapi.h, DismEnableFeature",
        )
        .by_stand_in(DISM),
        Row::new(
            "an enabled feature is there, or waits for a reboot",
            vec![],
            FeatureEnable {
                name: "Containers".into(),
            }
            .operation(),
            Wanted::Answer(
                "0, 1 or 3010",
                Box::new(|answer| matches!(answer, Answer::FeatureEnable(0 | 1 | 3010))),
            ),
            "microsoft/WSL OptionalFeature.cpp; google/glazier#459",
        )
        .then(
            feature("Containers"),
            Wanted::Answer(
                "installed, or about to be",
                Box::new(|answer| {
                    use DismState::{InstallPending, Installed};
                    matches!(answer, Answer::FeatureRead(Installed | InstallPending))
                }),
            ),
        )
        .liar(Ok(Answer::FeatureEnable(0x2000_0001)))
        .by_stand_in(DISM),
    ]
}
