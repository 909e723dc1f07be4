//! Settings that not every release of the kubelet, kube-proxy and containerd understands, and the check of a rendered
//! section against the programs of its payload. [`page`] is the table for people.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{
    item::{File, FileSource, Item, Service, What},
    kubelet_pairs::contradictions,
    payload::Manifest,
    problem::Problem,
    release::Release,
};

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
    /// First release.
    pub first: Option<Release>,
    /// Last release.
    pub last: Option<Release>,
    /// What happens with another release.
    pub outside: &'static str,
    /// Source.
    pub source: &'static str,
}

/// Effect of a flag that kube-log-runner does not know.
const LOG_RUNNER_ENDS: &str =
    "a flag that is not known ends kube-log-runner before it starts its program";
const LOG_RUNNER: &str =
    "kubernetes v1.33.13 and v1.34.4 component-base/logs/kube-log-runner/kube-log-runner.go";

const CRI_1: &str = "io.containerd.grpc.v1.cri";
const CRI_RUNTIME: &str = "io.containerd.cri.v1.runtime";
const CRI_IMAGES: &str = "io.containerd.cri.v1.images";
const NRI: &str = "io.containerd.nri.v1.nri";

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
/// Windows Server 2025.
const SERVER_2025: &str = "10.0.26100";
/// First pause image for Windows Server 2025 (containerd#13156, windows-testing#557).
const PAUSE_2025: [u32; 3] = [3, 10, 2];
/// First kubelet that needs containerd 2 (kubernetes' container runtime requirements, 1.38).
const CONTAINERD_2_NEEDED: Release = Release::new(1, 38);

/// Settings of a kubelet that end it on Windows (kubernetes v1.33.13 and v1.37.2
/// `pkg/kubelet/apis/config/validation/validation_windows.go`).
const NOT_ON_WINDOWS: [&str; 3] = [
    "singleProcessOOMKill",
    "userNamespaces",
    "defaultPodSysctls",
];

/// Checks a rendered section against the programs of its payload.
pub(crate) fn check(items: &[Item], payload: &Manifest) -> Vec<Problem> {
    let mut found = Vec::new();
    for item in items {
        match &item.what {
            What::Service(service) => {
                flags(&item.id, service, payload, &mut found);
                if let Some(path) = containerd_config(&service.command)
                    && let Some(text) = items.iter().find_map(|item| content_of(item, &path))
                {
                    containerd(&path, &text, payload, &mut found);
                }
            }
            What::File(_) | What::NetworkFile(_) => kubernetes_config(item, payload, &mut found),
            _ => {}
        }
    }
    found
}

/// Path of the configuration on containerd's command line.
fn containerd_config(command: &str) -> Option<String> {
    let mut words = words(command).into_iter();
    words.find(|word| word.ends_with(r"\containerd.exe"))?;
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if matches!(name, "--config" | "-config" | "-c" | "--c") {
            return value.or_else(|| words.next());
        }
    }
    None
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

fn content_of(item: &Item, wanted: &str) -> Option<String> {
    match &item.what {
        What::File(file) if file.path.eq_ignore_ascii_case(wanted) => inline(file),
        _ => None,
    }
}

fn inline(file: &File) -> Option<String> {
    match &file.source {
        FileSource::Inline { base64 } => String::from_utf8(STANDARD.decode(base64).ok()?).ok(),
        FileSource::Staged { .. } => None,
    }
}

/// Reason against a setting of that reader in that release.
fn refused(setting: &Setting, release: Release) -> Option<String> {
    let early = setting.first.is_some_and(|first| release < first);
    let late = setting.last.is_some_and(|last| release > last);
    let range = match (setting.first, setting.last) {
        (Some(first), Some(last)) if first == last => format!("of {first} only"),
        (Some(first), Some(last)) => format!("of {first} to {last}"),
        (Some(first), None) => format!("of {first} and later"),
        (None, Some(last)) => format!("of {last} and earlier"),
        (None, None) => String::new(),
    };
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

fn flags(id: &str, service: &Service, payload: &Manifest, found: &mut Vec<Problem>) {
    let words = words(&service.command);
    let flags: Vec<String> = words.iter().filter_map(|word| flag_name(word)).collect();
    let programs = [
        (r"\kubelet.exe", Reader::KubeletFlag),
        (r"\kube-log-runner.exe", Reader::LogRunnerFlag),
    ];
    for (program, reader) in programs {
        if !words.iter().any(|word| word.ends_with(program)) {
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
    // Which build a host has is not known here (`builds.rs` says it of each); what the payload is for is.
    if payload.windows_builds == [SERVER_2019]
        && let Some(port) = vxlan_port(words.iter().map(String::as_str))
    {
        found.push(Problem::new(id, port_of_2019(&port)));
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
        What::File(file) => inline(file),
        What::NetworkFile(file) => Some(file.template.clone()),
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

fn containerd(path: &str, text: &str, payload: &Manifest, found: &mut Vec<Problem>) {
    let mut wrong = |reason: String| found.push(Problem::new(format!("file:{path}"), reason));
    let release = payload.containerd();
    if release.major < 2 && payload.kubelet() >= CONTAINERD_2_NEEDED {
        let kubelet = payload.kubelet();
        let has = match payload.containerd.is_empty() {
            true => format!("the manifest has no `containerd`, which counts as {release}"),
            false => format!("the payload has {release}"),
        };
        wrong(format!("kubelet {kubelet} needs containerd 2, and {has}"));
    }
    let config: toml::Table = match text.parse() {
        Ok(config) => config,
        Err(e) => {
            let first = e.to_string().lines().next().unwrap_or_default().to_owned();
            return wrong(format!("is no TOML: {first}"));
        }
    };
    let at = |path: &[&str]| -> Option<&toml::Value> {
        let (first, rest) = path.split_first()?;
        rest.iter()
            .try_fold(config.get(*first)?, |value, key| value.get(key))
    };
    for setting in of(Reader::Containerd) {
        let fits =
            |there: &toml::Value| setting.value.is_none_or(|value| there.to_string() == value);
        if at(setting.path).is_some_and(fits)
            && let Some(reason) = refused(setting, release)
        {
            wrong(reason);
        }
    }
    for plugin in [CRI_1, CRI_RUNTIME] {
        let both = at(&["plugins", plugin, "cni", "bin_dir"]).is_some()
            && at(&["plugins", plugin, "cni", "bin_dirs"]).is_some();
        if both {
            let reason = "`bin_dir` and `bin_dirs` are both there, which containerd refuses";
            wrong(format!("{reason} (containerd#11311)"));
        }
        let runtimes = at(&["plugins", plugin, "containerd", "runtimes"]);
        for (name, runtime) in runtimes
            .and_then(toml::Value::as_table)
            .into_iter()
            .flatten()
        {
            if release.major >= 2 && runtime.get("runtime_path").is_none() {
                let reason =
                    "has no `runtime_path`: a shim of that name on the PATH is taken first";
                wrong(format!("the runtime {name} {reason}"));
            }
        }
    }
    let nri_off = at(&["plugins", NRI, "disable"]).and_then(toml::Value::as_bool);
    if release.major >= 2 && nri_off != Some(true) {
        wrong(format!(
            "`plugins/{NRI}/disable` is not true: from 2.0 on NRI is on without it"
        ));
    }
    let pause = at(&["plugins", CRI_1, "sandbox_image"])
        .or_else(|| at(&["plugins", CRI_IMAGES, "pinned_images", "sandbox"]));
    let pause = pause.and_then(toml::Value::as_str).unwrap_or_default();
    let for_2025 = payload
        .windows_builds
        .iter()
        .any(|build| build == SERVER_2025);
    if for_2025 && pause_version(pause).is_some_and(|it| it < PAUSE_2025) {
        wrong(format!(
            "{pause} has no image for Windows Server 2025 ({SERVER_2025}); 3.10.2 is the first"
        ));
    }
}

/// Version in the tag of an image that is named `pause`, without what follows a dash. Microsoft's `3.10.1-3` has the images of
/// 3.10.2 (image-builder#1985).
fn pause_version(image: &str) -> Option<[u32; 3]> {
    let (name, tag) = image.split('@').next()?.rsplit_once(':')?;
    if !name.ends_with("/pause") {
        return None;
    }
    let (version, build) = tag.split_once('-').unwrap_or((tag, ""));
    let mut parts = version.split('.').map(str::parse);
    let mut next = || parts.next().unwrap_or(Ok(0)).ok();
    let version = [next()?, next()?, next()?];
    let microsofts = name.ends_with("/oss/v2/kubernetes/pause") && version == [3, 10, 1];
    match microsofts && build.parse::<u32>().is_ok_and(|build| build >= 3) {
        true => Some(PAUSE_2025),
        false => Some(version),
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

    #[test]
    fn the_configuration_of_containerd_is_found_however_it_is_written() {
        for (command, wanted) in [
            (
                r"C:\k\containerd.exe --config C:\k\c.toml",
                Some(r"C:\k\c.toml"),
            ),
            (
                r"C:\k\containerd.exe --config=C:\k\c.toml --run-service",
                Some(r"C:\k\c.toml"),
            ),
            (
                r#""C:\Program Files\containerd\containerd.exe" -c "C:\Program Files\containerd\config.toml""#,
                Some(r"C:\Program Files\containerd\config.toml"),
            ),
            (r"C:\k\containerd.exe --log-level=info", None),
            (r"C:\k\kubelet.exe --config C:\k\kubelet.conf", None),
        ] {
            assert_eq!(containerd_config(command).as_deref(), wanted, "{command}");
        }
    }

    #[test]
    fn a_pause_image_is_known_by_its_tag() {
        let table = [
            ("registry.k8s.io/pause:3.10.2", Some([3, 10, 2])),
            (
                "mcr.microsoft.com/oss/kubernetes/pause:3.9",
                Some([3, 9, 0]),
            ),
            ("m.example:5000/pause:3.10.1@sha256:00", Some([3, 10, 1])),
            ("mcr.example/pause:3.9-windows-1809-amd64", Some([3, 9, 0])),
            (
                "mcr.example/oss/v2/kubernetes/pause:3.10.1-3",
                Some([3, 10, 2]),
            ),
            (
                "mcr.example/oss/v2/kubernetes/pause:3.10.1-1",
                Some([3, 10, 1]),
            ),
            (
                "mcr.example/oss/kubernetes/pause:3.10.1-3",
                Some([3, 10, 1]),
            ),
            ("m.example:5000/pause", None),
            ("m.example/pause:windows", None),
            ("m.example/idle:3.9", None),
        ];
        for (image, wanted) in table {
            assert_eq!(pause_version(image), wanted, "{image}");
        }
    }
}
