//! Check of containerd's configuration: its release understands it, and it has the folder of the registries' mirrors.

use super::{Reader, inline, is_program, of, refused, words};
use crate::{
    item::{Item, ItemKind, OnlyFolders},
    payload::Manifest,
    problem::Problem,
    release::Release,
    suggestion::question,
};

pub(super) const CRI_1: &str = "io.containerd.grpc.v1.cri";
pub(super) const CRI_RUNTIME: &str = "io.containerd.cri.v1.runtime";
pub(super) const CRI_IMAGES: &str = "io.containerd.cri.v1.images";
const NRI: &str = "io.containerd.nri.v1.nri";

/// Windows Server 2025.
const SERVER_2025: &str = "10.0.26100";
/// First pause image for Windows Server 2025 (containerd#13156, windows-testing#557).
const PAUSE_2025: [u32; 3] = [3, 10, 2];
/// First kubelet that needs containerd 2 (KEP-4033: 1.7 does not answer `RuntimeConfig`, and there is no fallback any more).
const CONTAINERD_2_NEEDED: Release = Release::new(1, 38);
/// The runtime of pods that name none, where the configuration does not say (containerd v1.7.35 `pkg/cri/config/config_windows.go`,
/// v2.4.2 `internal/cri/config/config_windows.go`).
const DEFAULT_RUNTIME: &str = "runhcs-wcow-process";
/// Settings of `cni` (`CniConfig` in `config.go` of the same folders).
const CNI: [&str; 8] = [
    "bin_dir",
    "bin_dirs",
    "conf_dir",
    "conf_template",
    "ip_pref",
    "max_conf_num",
    "setup_serially",
    "use_internal_loopback",
];
/// What containerd reads without `--config` (containerd v1.7.35 and v2.4.2 `defaults/defaults_windows.go`).
const DEFAULT_CONFIG: &str = r"C:\Program Files\containerd\config.toml";

/// A rendered section, as far as it is about containerd.
#[derive(Clone, Copy)]
pub(super) struct Rendered<'a> {
    pub(super) items: &'a [Item],
    /// Files whose content is not sent now.
    pub(super) kept: &'a [String],
    pub(super) payload: &'a Manifest,
}

/// Checks the service if its command line is containerd's.
pub(super) fn service(id: &str, command: &str, rendered: Rendered<'_>, found: &mut Vec<Problem>) {
    let Some(path) = config_path(command) else {
        return;
    };
    if rendered.kept.iter().any(|kept| is_path(kept, &path)) {
        return;
    }
    match rendered.items.iter().find_map(|item| text_of(item, &path)) {
        Some(text) => config(&path, &text, rendered, found),
        None => {
            let reason = format!(
                "containerd reads {path}, which is not among this section's `files`: dormer could neither check nor mend it"
            );
            found.push(Problem::new(id, reason));
        }
    }
}

/// File that containerd reads, if the command line is containerd's.
fn config_path(command: &str) -> Option<String> {
    let mut words = words(command).into_iter();
    words.find(|word| is_program(word, "containerd.exe"))?;
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if matches!(name, "--config" | "-config" | "-c" | "--c") {
            return value.or_else(|| words.next());
        }
    }
    Some(DEFAULT_CONFIG.to_owned())
}

/// Whether Windows takes both for one path.
fn is_path(one: &str, other: &str) -> bool {
    let plain = |path: &str| {
        path.replace('/', r"\")
            .trim_end_matches('\\')
            .to_lowercase()
    };
    plain(one) == plain(other)
}

fn text_of(item: &Item, wanted: &str) -> Option<String> {
    match &item.what {
        ItemKind::File(file) if is_path(&file.path, wanted) => inline(file),
        _ => None,
    }
}

fn config(path: &str, text: &str, rendered: Rendered<'_>, found: &mut Vec<Problem>) {
    let payload = rendered.payload;
    let mut reasons = Vec::new();
    let release = payload.containerd();
    if release.major < 2 && payload.kubelet() >= CONTAINERD_2_NEEDED {
        let kubelet = payload.kubelet();
        let has = match payload.containerd.is_empty() {
            true => format!("the manifest has no `containerd`, which counts as {release}"),
            false => format!("the payload has {release}"),
        };
        reasons.push(format!("kubelet {kubelet} needs containerd 2, and {has}"));
    }
    match text.parse() {
        Ok(table) => {
            let config = Config { table, release };
            reasons.extend(config.version());
            reasons.extend(config.settings());
            reasons.extend(config.plugins());
            reasons.extend(config.mirrors(rendered.items));
            reasons.extend(config.pause(&payload.windows_builds));
        }
        Err(e) => {
            let first = e.to_string().lines().next().unwrap_or_default().to_owned();
            reasons.push(format!("is no TOML: {first}"));
        }
    }
    let problem = |reason| Problem::new(format!("file:{path}"), reason);
    found.extend(reasons.into_iter().map(problem));
}

/// A configuration, and the release that reads it. Each method says what is wrong.
struct Config {
    table: toml::Table,
    release: Release,
}

impl Config {
    fn at(&self, path: &[&str]) -> Option<&toml::Value> {
        let (first, rest) = path.split_first()?;
        rest.iter()
            .try_fold(self.table.get(*first)?, |value, key| value.get(key))
    }

    /// Settings of other releases.
    fn settings(&self) -> Vec<String> {
        let there = of(Reader::Containerd).filter(|setting| {
            let fits =
                |there: &toml::Value| setting.value.is_none_or(|value| there.to_string() == value);
            self.at(setting.path).is_some_and(fits)
        });
        there
            .filter_map(|setting| refused(setting, self.release))
            .collect()
    }

    /// A file whose tables containerd would not read. Without a version 1.7.35 takes it as version 1 and leaves out what is
    /// written for the CRI plugin: its folders, its mirrors, and so what is blocked.
    fn version(&self) -> Option<String> {
        let newest = if self.release.major < 2 { 2 } else { 3 };
        match self.table.get("version").map(toml::Value::as_integer) {
            None => Some(format!(
                "has no `version`, and containerd would read none of its tables for pods: write `version = {newest}`"
            )),
            Some(Some(2..=4)) => None,
            Some(Some(1)) => Some(format!(
                "`version = 1` is of containerd before 1.3: write `version = {newest}`, and its tables by their names there"
            )),
            Some(_) => Some(format!(
                "its `version` is none that containerd knows: write `version = {newest}`"
            )),
        }
    }

    /// The plugin that runs pods, by its name in a file of this version.
    fn runtime_plugin(&self) -> &'static str {
        match self.table.get("version").and_then(toml::Value::as_integer) {
            Some(3..) => CRI_RUNTIME,
            _ => CRI_1,
        }
    }

    /// The runtime of pods that name none has to be named with its shim.
    fn default_runtime(&self) -> Option<String> {
        let plugin = self.runtime_plugin();
        let value = self.at(&["plugins", plugin, "containerd", "default_runtime_name"]);
        let written = value.and_then(toml::Value::as_str);
        let name = written
            .filter(|name| !name.is_empty())
            .unwrap_or(DEFAULT_RUNTIME);
        let named = self.at(&["plugins", plugin, "containerd", "runtimes", name]);
        named.is_none().then(|| {
            format!(
                "the runtime {name}, the default one, is not named: a shim on the PATH would be taken. Write its \
                 `runtime_path` below `[plugins.\"{plugin}\".containerd.runtimes.{name}]`"
            )
        })
    }

    fn plugins(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        reasons.extend(self.default_runtime());
        for plugin in [CRI_1, CRI_RUNTIME] {
            let both = self.at(&["plugins", plugin, "cni", "bin_dir"]).is_some()
                && self.at(&["plugins", plugin, "cni", "bin_dirs"]).is_some();
            if both {
                let reason = "`bin_dir` and `bin_dirs` are both there, which containerd refuses";
                reasons.push(format!("{reason} (containerd#11311)"));
            }
            let cni = self.at(&["plugins", plugin, "cni"]);
            let cni = cni.and_then(toml::Value::as_table);
            for name in cni.into_iter().flat_map(toml::Table::keys) {
                if !CNI.contains(&name.as_str()) {
                    let near = question(name, CNI);
                    reasons.push(format!("`cni.{name}` is no setting of containerd{near}"));
                }
            }
            let runtimes = self.at(&["plugins", plugin, "containerd", "runtimes"]);
            let runtimes = runtimes.and_then(toml::Value::as_table);
            for (name, runtime) in runtimes.into_iter().flatten() {
                let path = runtime.get("runtime_path").and_then(toml::Value::as_str);
                if path.is_none_or(str::is_empty) {
                    let reason =
                        "has no `runtime_path`: a shim of that name on the PATH is taken first";
                    reasons.push(format!("the runtime {name} {reason}"));
                }
            }
        }
        let nri_off = self.at(&["plugins", NRI, "disable"]);
        let listed = self
            .at(&["disabled_plugins"])
            .and_then(toml::Value::as_array);
        let listed = listed.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(NRI)));
        let nri_off = listed || nri_off.and_then(toml::Value::as_bool) == Some(true);
        if self.release.major >= 2 && !nri_off {
            reasons.push(format!(
                "`plugins/{NRI}/disable` is not true: from 2.0 on NRI is on without it"
            ));
        }
        reasons
    }

    /// Mirrors that containerd does not read. A registry that is blocked would be open.
    fn mirrors(&self, items: &[Item]) -> Option<String> {
        let folder = items.iter().find_map(mirrors_folder)?;
        let read = [CRI_1, CRI_IMAGES]
            .into_iter()
            .filter_map(|plugin| {
                self.at(&["plugins", plugin, "registry", "config_path"])?
                    .as_str()
            })
            .flat_map(|folders| folders.split(';'))
            .any(|one| is_path(one, folder));
        let plugin = if self.release.major < 2 {
            CRI_1
        } else {
            CRI_IMAGES
        };
        (!read).then(|| {
            format!(
                "containerd would read none of the profile's `mirrors`, and a blocked registry would be open: write \
                 `config_path = '{folder}'` below `[plugins.\"{plugin}\".registry]`"
            )
        })
    }

    fn pause(&self, windows_builds: &[String]) -> Option<String> {
        let pause = self
            .at(&["plugins", CRI_1, "sandbox_image"])
            .or_else(|| self.at(&["plugins", CRI_IMAGES, "pinned_images", "sandbox"]));
        let for_2025 = windows_builds.iter().any(|build| build == SERVER_2025);
        let Some(pause) = pause else {
            return for_2025.then(|| {
                format!(
                    "names no pause image, and containerd's own may have none for Windows Server 2025 ({SERVER_2025}); \
                     3.10.2 is the first"
                )
            });
        };
        let pause = pause.as_str().unwrap_or_default();
        if pause.is_empty() {
            return Some("the pause image is empty: no pod could start".to_owned());
        }
        let last = pause.rsplit('/').next().unwrap_or_default();
        if !last.contains([':', '@']) {
            return Some(format!(
                "the pause image {pause} has no tag: containerd would ask for `latest`"
            ));
        }
        let old = for_2025 && pause_version(pause).is_some_and(|it| it < PAUSE_2025);
        old.then(|| {
            format!(
                "{pause} has no image for Windows Server 2025 ({SERVER_2025}); 3.10.2 is the first"
            )
        })
    }
}

/// Folder with the files of registries, where there is at least one.
fn mirrors_folder(item: &Item) -> Option<&str> {
    match &item.what {
        ItemKind::OnlyFolders(OnlyFolders { under, keep }) if !keep.is_empty() => Some(under),
        _ => None,
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
            (
                r"C:\k\Containerd.EXE --log-level=info",
                Some(DEFAULT_CONFIG),
            ),
            (r"C:\k\kubelet.exe --config C:\k\kubelet.conf", None),
        ] {
            assert_eq!(config_path(command).as_deref(), wanted, "{command}");
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
