//! Settings that not every release of the kubelet, kube-proxy and containerd understands, and the check of a rendered
//! section against the programs of its payload. [`page`] is the table for people.

mod containerd;
mod fields;
mod flags;
mod gates;
mod known;
mod types;

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{
    item::{File, FileSource, Item, ItemKind, Service},
    kubelet_pairs::contradictions,
    payload::Manifest,
    problem::Problem,
    release::Release,
    variables::log_setting,
};
use containerd::{CRI_1, CRI_IMAGES, CRI_RUNTIME};

/// Program that reads a setting, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// The kubelet, in its `KubeletConfiguration`.
    Kubelet,
    /// The kubelet, on its command line.
    KubeletFlag,
    /// kube-proxy, in its `KubeProxyConfiguration`.
    KubeProxy,
    /// kube-log-runner, which is of the kubelet's release, on its command line.
    LogRunnerFlag,
    /// containerd, in its `config.toml`.
    Containerd,
}

impl Reader {
    const fn shown(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::KubeletFlag => "kubelet's flag",
            Self::KubeProxy => "kube-proxy",
            Self::LogRunnerFlag => "kube-log-runner's flag",
            Self::Containerd => "containerd",
        }
    }
}

/// Setting with the releases for which it is written.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Who reads it.
    pub reader: Reader,
    /// Its path in the configuration, or the flag.
    pub path: &'static [&'static str],
    /// The value that this row is about. `None`: any.
    pub value: Option<&'static str>,
    pub first: Option<Release>,
    pub last: Option<Release>,
    /// What happens with another release.
    pub outside: &'static str,
    pub source: &'static str,
}

/// Effect of a flag that kube-log-runner does not know.
const LOG_RUNNER_ENDS: &str =
    "a flag that is not known ends kube-log-runner before it starts its program";
const LOG_RUNNER: &str =
    "kubernetes v1.33.13 and v1.34.4 component-base/logs/kube-log-runner/kube-log-runner.go";

const fn release(major: u32, minor: u32) -> Option<Release> {
    Some(Release::new(major, minor))
}

/// Settings with a first or a last release. A profile that has one outside of its releases is refused.
pub const SETTINGS: &[Setting] = &[
    Setting {
        reader: Reader::Containerd,
        path: &["version"],
        value: Some("3"),
        first: release(2, 0),
        last: None,
        outside: "1.7 does not start: it knows version 2 only",
        source: "containerd v1.7.27 services/server/config/config.go; v2.0.5 version/version.go",
    },
    Setting {
        reader: Reader::Containerd,
        path: &["version"],
        value: Some("4"),
        first: release(2, 3),
        last: None,
        outside: "containerd does not start",
        source: "containerd v2.1.4 and v2.3.2 version/version.go",
    },
    Setting {
        reader: Reader::Containerd,
        path: &["plugins", CRI_1, "cni", "bin_dirs"],
        value: None,
        first: release(2, 1),
        last: None,
        outside: "it is ignored, no CNI plugin is found, and the node stays NotReady",
        source: "containerd v1.7.27 pkg/cri/config/config.go; v2.1.4 internal/cri/config/config.go; containerd#11311",
    },
    Setting {
        reader: Reader::Containerd,
        path: &["plugins", CRI_RUNTIME, "cni", "bin_dir"],
        value: None,
        first: release(2, 0),
        last: release(2, 0),
        outside: "1.7 ignores it; from 2.1 it is deprecated, and 2.4 ignores it: the node stays NotReady",
        source: "containerd v2.0.5, v2.1.4, v2.4.0 internal/cri/config/config.go; containerd#11311, #14166",
    },
    Setting {
        reader: Reader::Containerd,
        path: &["plugins", CRI_RUNTIME, "cni", "bin_dirs"],
        value: None,
        first: release(2, 1),
        last: None,
        outside: "it is ignored, no CNI plugin is found, and the node stays NotReady",
        source: "containerd v2.0.5 and v2.1.4 internal/cri/config/config.go; containerd#11311",
    },
    Setting {
        reader: Reader::Containerd,
        path: &["plugins", CRI_RUNTIME],
        value: None,
        first: release(2, 0),
        last: None,
        outside: "1.7 has this plugin under another name, and ignores the whole table",
        source: "containerd v1.7.27 and v2.0.5, the page about plugins",
    },
    Setting {
        reader: Reader::Containerd,
        path: &["plugins", CRI_IMAGES],
        value: None,
        first: release(2, 0),
        last: None,
        outside: "1.7 has this plugin under another name, and ignores the whole table",
        source: "containerd v1.7.27 and v2.0.5, the page about plugins",
    },
    Setting {
        reader: Reader::Kubelet,
        path: &["featureGates", "NodeLogQuery"],
        value: None,
        first: release(1, 27),
        last: release(1, 35),
        outside: "the gate is locked from 1.36 and goes in 1.39; a gate that is not known ends the kubelet",
        source: "kubernetes v1.36.3 pkg/features/kube_features.go",
    },
    Setting {
        reader: Reader::Kubelet,
        path: &["featureGates", "WindowsGracefulNodeShutdown"],
        value: None,
        first: release(1, 32),
        last: None,
        outside: "a gate that is not known ends the kubelet",
        source: "kubernetes v1.34.1 pkg/features/kube_features.go (on by default from 1.34); KEP-4802",
    },
    Setting {
        reader: Reader::KubeletFlag,
        path: &["--cloud-config"],
        value: None,
        first: None,
        last: release(1, 33),
        outside: "a flag that is not known ends the kubelet",
        source: "kubernetes v1.33.13 and v1.34.1 cmd/kubelet/app/options/options.go",
    },
    Setting {
        reader: Reader::KubeletFlag,
        path: &["--pod-infra-container-image"],
        value: None,
        first: None,
        last: release(1, 34),
        outside: "a flag that is not known ends the kubelet",
        source: "kubernetes v1.34.1 and v1.35.0 cmd/kubelet/app/server.go",
    },
    Setting {
        reader: Reader::LogRunnerFlag,
        path: &["-log-file-size"],
        value: None,
        first: release(1, 34),
        last: None,
        outside: LOG_RUNNER_ENDS,
        source: LOG_RUNNER,
    },
    Setting {
        reader: Reader::LogRunnerFlag,
        path: &["-log-file-age"],
        value: None,
        first: release(1, 34),
        last: None,
        outside: LOG_RUNNER_ENDS,
        source: LOG_RUNNER,
    },
    Setting {
        reader: Reader::LogRunnerFlag,
        path: &["-flush-interval"],
        value: None,
        first: release(1, 34),
        last: None,
        outside: LOG_RUNNER_ENDS,
        source: LOG_RUNNER,
    },
    Setting {
        reader: Reader::KubeProxy,
        path: &["featureGates", "WinDSR"],
        value: None,
        first: release(1, 14),
        last: release(1, 33),
        outside: "the gate is locked from 1.34 and may go from 1.37; a gate that is not known ends kube-proxy",
        source: "kubernetes v1.33.13, v1.34.1, v1.37.0 pkg/features/kube_features.go; kubernetes#141988",
    },
    Setting {
        reader: Reader::KubeProxy,
        path: &["featureGates", "TopologyAwareHints"],
        value: None,
        first: release(1, 21),
        last: release(1, 35),
        outside: "a gate that is not known ends kube-proxy",
        source: "kubernetes v1.35.4 and v1.36.3 pkg/features/kube_features.go",
    },
    Setting {
        reader: Reader::KubeProxy,
        path: &["featureGates", "WinOverlay"],
        value: None,
        first: release(1, 14),
        last: release(1, 33),
        outside: "the gate is locked from 1.34 and may go from 1.37; a gate that is not known ends kube-proxy",
        source: "kubernetes v1.33.13, v1.34.1, v1.37.0 pkg/features/kube_features.go; kubernetes#141988",
    },
];

/// The settings for people, a table in Markdown.
#[must_use]
pub fn page() -> String {
    let mut text =
        String::from("| read by | setting | first | last | with another release | source |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for setting in SETTINGS {
        let value = setting.value.map(|value| format!(" = {value}"));
        let shown = |release: Option<Release>| release.map_or("-".into(), |it| it.to_string());
        let _ = writeln!(
            text,
            "| {} | `{}{}` | {} | {} | {} | {} |",
            setting.reader.shown(),
            setting.path.join(" / "),
            value.unwrap_or_default(),
            shown(setting.first),
            shown(setting.last),
            setting.outside,
            setting.source
        );
    }
    text
}

/// Windows Server 2019, whose HNS cannot change the port of VXLAN (HNS 10.3 and later can; hcsshim hcnglobals.go).
pub(crate) const SERVER_2019: &str = "10.0.17763";
/// The one port of VXLAN there, and the usual one everywhere.
const VXLAN_PORT: &str = "4789";
/// hybrid-overlay-node's flag for it.
const VXLAN_FLAG: &str = "--hybrid-overlay-vxlan-port";
/// Settings of a kubelet that end it on Windows (kubernetes v1.33.13 and v1.37.2
/// `pkg/kubelet/apis/config/validation/validation_windows.go`).
const NOT_ON_WINDOWS: [&str; 3] = [
    "singleProcessOOMKill",
    "userNamespaces",
    "defaultPodSysctls",
];

/// Checks a rendered section against the programs of its payload. `kept` are its files that are not sent now.
pub(crate) fn check(items: &[Item], kept: &[String], payload: &Manifest) -> Vec<Problem> {
    let mut found = Vec::new();
    let rendered = containerd::Rendered {
        items,
        kept,
        payload,
    };
    for item in items {
        match &item.what {
            ItemKind::Service(service) => {
                command_line(&item.id, service, payload, &mut found);
                containerd::service(&item.id, &service.command, rendered, &mut found);
            }
            ItemKind::File(_) | ItemKind::NetworkFile(_) => {
                kubernetes_config(item, payload, &mut found)
            }
            _ => {}
        }
    }
    found
}

/// Whether a word of a command line is that program.
fn is_program(word: &str, name: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let file = word.rsplit(['\\', '/']).next().unwrap_or_default();
    file == name
}

/// Words of a command line without their quotes. A quoted word may have spaces.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in command.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Name of a flag without its dashes and its value. Go takes one dash or two, and pflag takes `_` for `-`.
fn flag_name(word: &str) -> Option<String> {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    let name = name.split('=').next().unwrap_or_default();
    Some(name.replace('_', "-"))
}

fn inline(file: &File) -> Option<String> {
    match &file.source {
        FileSource::Inline { base64 } => String::from_utf8(STANDARD.decode(base64).ok()?).ok(),
        FileSource::Staged { .. } => None,
    }
}

/// Releases between these two, in words.
fn range(first: Option<Release>, last: Option<Release>) -> String {
    match (first, last) {
        (Some(first), Some(last)) if first == last => format!("of {first} only"),
        (Some(first), Some(last)) => format!("of {first} to {last}"),
        (Some(first), None) => format!("of {first} and later"),
        (None, Some(last)) => format!("of {last} and earlier"),
        (None, None) => String::new(),
    }
}

/// Reason against a setting of that reader in that release.
fn refused(setting: &Setting, release: Release) -> Option<String> {
    let early = setting.first.is_some_and(|first| release < first);
    let late = setting.last.is_some_and(|last| release > last);
    let range = range(setting.first, setting.last);
    (early || late).then(|| {
        let value = setting.value.map(|value| format!(" = {value}"));
        format!(
            "`{}{}` is a setting {range}, and the payload has {release}: {}",
            setting.path.join("/"),
            value.unwrap_or_default(),
            setting.outside
        )
    })
}

fn of(reader: Reader) -> impl Iterator<Item = &'static Setting> {
    SETTINGS
        .iter()
        .filter(move |setting| setting.reader == reader)
}

fn command_line(id: &str, service: &Service, payload: &Manifest, found: &mut Vec<Problem>) {
    let words = words(&service.command);
    let flags: Vec<String> = words.iter().filter_map(|word| flag_name(word)).collect();
    let programs = [
        ("kubelet.exe", Reader::KubeletFlag),
        ("kube-log-runner.exe", Reader::LogRunnerFlag),
    ];
    for (program, reader) in programs {
        if !words.iter().any(|word| is_program(word, program)) {
            continue;
        }
        let has = |flag: &str| flag_name(flag).is_some_and(|name| flags.contains(&name));
        if reader == Reader::LogRunnerFlag && has("-log-file-age") && !has("-log-file-size") {
            let reason = "`LOG_FILE_AGE` without `LOG_FILE_SIZE` has no effect: kube-log-runner removes only logs that it \
                          rotates, and it rotates by size";
            found.push(Problem::new(id, reason));
        }
        for setting in of(reader) {
            if setting.path.iter().any(|flag| has(flag))
                && let Some(reason) = refused(setting, payload.kubelet())
            {
                found.push(Problem::new(id, reason));
            }
        }
    }
    let of_row = |name: &str| {
        SETTINGS
            .iter()
            .any(|setting| setting.path.last() == Some(&name))
    };
    let wrong = flags::wrong(&words, payload.kubelet(), of_row);
    found.extend(wrong.into_iter().map(|reason| Problem::new(id, reason)));
    values_of_flags(id, &words, found);
    // Which build a host has is not known here (`builds.rs` says it of each); what the payload is for is.
    if payload.windows_builds == [SERVER_2019]
        && let Some(port) = vxlan_port(words.iter().map(String::as_str))
    {
        found.push(Problem::new(id, port_of_2019(&port)));
    }
}

/// Value of a flag, in the same word or in the next.
fn value_of<'w>(words: &'w [String], flag: &str) -> Option<&'w str> {
    let at = words
        .iter()
        .position(|word| flag_name(word).as_deref() == Some(flag))?;
    match words.get(at)?.split_once('=') {
        Some((_, value)) => Some(value),
        None => words.get(at + 1).map(String::as_str),
    }
}

/// Flags whose values end their programs.
fn values_of_flags(id: &str, words: &[String], found: &mut Vec<Problem>) {
    let is_there = |program: &str| words.iter().any(|word| is_program(word, program));
    let mut wrong = |reason: String| found.push(Problem::new(id, reason));
    if is_there("kubelet.exe")
        && let Some(provider) = value_of(words, "cloud-provider")
        && !["", "external"].contains(&provider)
    {
        // kubernetes v1.33.13 cmd/kubelet/app/server.go
        wrong(format!(
            "`--cloud-provider={provider}`: the kubelet has no cloud provider of its own any more; `external` leaves the \
             cloud to a controller, and nothing means none"
        ));
    }
    if is_there("kube-log-runner.exe") {
        let settings = [
            ("log-file-size", "LOG_FILE_SIZE"),
            ("log-file-age", "LOG_FILE_AGE"),
            ("flush-interval", "LOG_FLUSH_INTERVAL"),
        ];
        for (flag, setting) in settings {
            if let Some(value) = value_of(words, flag)
                && let Some(Err(why)) = log_setting(setting, value)
            {
                wrong(format!("`-{flag}`: {why}"));
            }
        }
    }
    let flag = VXLAN_FLAG.trim_start_matches('-');
    if let Some(port) = value_of(words, flag)
        && !port.parse::<u16>().is_ok_and(|port| port > 0)
    {
        wrong(format!("`{VXLAN_FLAG}`: `{port}` is no port"));
    }
}

/// Port of VXLAN on a command line, where it is another than the usual one.
pub(crate) fn vxlan_port<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<String> {
    let mut words = words.into_iter();
    let said = words.find_map(|word| word.strip_prefix(VXLAN_FLAG))?;
    let port = match said.strip_prefix('=') {
        Some(port) => port,
        None if said.is_empty() => words.next()?,
        None => return None,
    };
    let port = port.trim_matches('"');
    (port != VXLAN_PORT).then(|| port.to_owned())
}

/// Refusal of another port of VXLAN on Windows Server 2019.
pub(crate) fn port_of_2019(port: &str) -> String {
    format!(
        "Windows Server 2019 ({SERVER_2019}) cannot change the port of VXLAN to {port}: only {VXLAN_PORT} works there"
    )
}

fn kubernetes_config(item: &Item, payload: &Manifest, found: &mut Vec<Problem>) {
    let text = match &item.what {
        ItemKind::File(file) => inline(file),
        ItemKind::NetworkFile(file) => Some(file.template.clone()),
        _ => None,
    };
    let Some(text) = text.filter(|text| text.contains("Configuration")) else {
        return;
    };
    let Ok(value) = crate::yaml::from_str::<Value>(&text) else {
        return;
    };
    let reader = match value["kind"].as_str() {
        Some("KubeletConfiguration") => Reader::Kubelet,
        Some("KubeProxyConfiguration") => Reader::KubeProxy,
        _ => return,
    };
    for setting in of(reader) {
        let there = setting
            .path
            .iter()
            .try_fold(&value, |value, key| value.get(key));
        if there.is_some()
            && let Some(reason) = refused(setting, payload.kubelet())
        {
            found.push(Problem::new(&item.id, reason));
        }
    }
    let program = match reader {
        Reader::KubeProxy => "kube-proxy",
        _ => "the kubelet",
    };
    let mut wrong = fields::wrong(reader, &value, payload.kubelet());
    wrong.extend(gates::of_config(&value).iter().filter_map(|gate| {
        let of_row = of(reader).any(|setting| setting.path.last() == Some(&gate.0.as_str()));
        gates::wrong(gate, program, payload.kubelet(), of_row)
    }));
    found.extend(
        wrong
            .into_iter()
            .map(|reason| Problem::new(&item.id, reason)),
    );
    if reader == Reader::Kubelet {
        let there = NOT_ON_WINDOWS
            .into_iter()
            .filter(|name| value.get(name).is_some_and(|it| !it.is_null()));
        found.extend(there.map(|name| {
            let reason =
                format!("the kubelet does not support `{name}` on Windows, and ends with it");
            Problem::new(&item.id, reason)
        }));
        let wrong = contradictions(|name| value.get(name));
        found.extend(
            wrong
                .into_iter()
                .map(|(_, reason)| Problem::new(&item.id, reason)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_vxlan_is_found_however_it_is_written() {
        let table = [
            (vec!["a.exe", VXLAN_FLAG, "9898"], Some("9898")),
            (vec!["--hybrid-overlay-vxlan-port=9898"], Some("9898")),
            (vec![VXLAN_FLAG, "4789"], None),
            (vec![VXLAN_FLAG], None),
            (vec!["a.exe", "--node", "9898"], None),
        ];
        for (words, wanted) in table {
            assert_eq!(vxlan_port(words.clone()).as_deref(), wanted, "{words:?}");
        }
    }
}
