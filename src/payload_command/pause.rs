//! Whether `pause.tar` has an image for every Windows build of a payload. A host imports what is there, under the name that
//! its configuration has; containerd asks no registry for a name that it knows.

use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
};

/// Its name in a payload.
pub(super) const PAUSE: &str = "pause.tar";
/// Largest file in it that is read: indices, manifests and configurations have a few KB.
const JSON_BYTES_MAX: u64 = 4 << 20;
/// Deepest nesting of indices, and most entries of all of them together. An index that is named twice counts twice.
const DEPTH_MAX: usize = 4;
const ENTRIES_MAX: usize = 1_000;
/// First bytes of what gzip and zstd compressed.
const COMPRESSED: [&[u8]; 2] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd]];
/// Files that the host needs in an archive.
const LAYOUT: [&str; 2] = ["oci-layout", "index.json"];
/// The list of images in an archive of Docker's own form.
const OF_DOCKER: &str = "manifest.json";
/// How one makes an archive that hosts can import.
const MAKE: &str =
    "`skopeo copy --all docker://IMAGE oci-archive:pause.tar` writes one that hosts can import";
/// Annotations with an image's name, as the host reads them.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// Reference to a blob, in an index or a manifest.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Descriptor {
    digest: String,
    platform: Option<ImagePlatform>,
    annotations: BTreeMap<String, String>,
}

/// System that an image is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct ImagePlatform {
    os: String,
    architecture: String,
    #[serde(rename = "os.version")]
    version: String,
}

/// An index or a manifest.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImageNames {
    manifests: Vec<Descriptor>,
    config: Option<Descriptor>,
    layers: Vec<Descriptor>,
}

/// An image in the archive.
#[derive(Debug)]
struct PauseImage {
    platform: ImagePlatform,
    /// Why no host can use it.
    wrong: Option<String>,
}

/// Files of an archive.
#[derive(Debug, Default)]
struct Files {
    /// Names of all of them.
    all: BTreeSet<String>,
    /// Content of the small ones.
    small: BTreeMap<String, Vec<u8>>,
}

/// Checks it against the Windows builds of the payload.
///
/// # Errors
/// Hosts cannot import it, or it has no image for a build, in a sentence.
pub(super) fn check(bytes: &[u8], builds: &[String]) -> Result<(), String> {
    if COMPRESSED.iter().any(|mark| bytes.starts_with(mark)) {
        return Err(
            "it is compressed, and hosts import a plain tar: unpack it with gunzip or unzstd"
                .into(),
        );
    }
    let files = files(bytes)?;
    if let Some(missing) = LAYOUT.iter().find(|name| !files.all.contains(**name)) {
        return Err(no_layout(&files, missing));
    }
    let index = files
        .small
        .get(LAYOUT[1])
        .ok_or("its index.json is too large")?;
    let top: ImageNames = read(index)?;
    let named = |one: &Descriptor| NAMES.iter().any(|key| one.annotations.contains_key(*key));
    if top.manifests.len() != 1 && !top.manifests.iter().any(named) {
        return Err(format!(
            "its index.json has {} images without a name, and hosts import one image; {MAKE}",
            top.manifests.len()
        ));
    }
    let mut found = Vec::new();
    images(&files, index, 0, &mut found, &mut 0)?;
    for build in builds {
        let fits = |it: &PauseImage| {
            let rest = it.platform.version.strip_prefix(build.as_str());
            it.wrong.is_none()
                && it.platform.os == "windows"
                && it.platform.architecture == "amd64"
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !found.iter().any(fits) {
            let has: Vec<String> = found.iter().map(shown).collect();
            let has = if has.is_empty() {
                "none".into()
            } else {
                has.join(", ")
            };
            return Err(format!(
                "it has no image for Windows {build}, only for {has}; `skopeo copy --all` takes those of all systems"
            ));
        }
    }
    Ok(())
}

/// Why an archive without that file is none that hosts can import.
fn no_layout(files: &Files, missing: &str) -> String {
    let inner = |name: &&String| name.ends_with(&format!("/{missing}"));
    if files.all.contains(OF_DOCKER) {
        format!(
            "it is an archive of Docker's own form (`docker save` before Docker 25), and hosts import an OCI layout; {MAKE}"
        )
    } else if let Some(inner) = files.all.iter().find(inner) {
        format!("no OCI layout: its {missing} is {inner}, and has to be at the top of the tar")
    } else {
        format!("no OCI layout: it has no {missing}; {MAKE}")
    }
}

fn shown(image: &PauseImage) -> String {
    let ImagePlatform {
        os,
        architecture,
        version,
    } = &image.platform;
    let system = format!("{os}/{architecture} {version}");
    let system = system.trim_end();
    match &image.wrong {
        None => system.to_owned(),
        Some(why) => format!("{system} ({why})"),
    }
}

fn files(bytes: &[u8]) -> Result<Files, String> {
    let broken = |error: std::io::Error| format!("it is no tar that can be read: {error}");
    let mut files = Files::default();
    let mut unpacked = 0;
    let mut archive = tar::Archive::new(bytes);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let name = entry.path().map_err(broken)?.to_string_lossy().into_owned();
        let name = name.trim_start_matches("./").to_owned();
        if entry.size() <= JSON_BYTES_MAX {
            unpacked += entry.size();
            // A sparse file has a length, and no bytes in the archive.
            if unpacked > bytes.len() as u64 {
                return Err(
                    "its files are longer than the archive: pack it without sparse files".into(),
                );
            }
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(broken)?;
            files.small.insert(name.clone(), content);
        }
        files.all.insert(name);
    }
    Ok(files)
}

/// Adds the images that an index references and that are there. `entries`: those of all indices so far.
fn images(
    files: &Files,
    index: &[u8],
    depth: usize,
    found: &mut Vec<PauseImage>,
    entries: &mut usize,
) -> Result<(), String> {
    let index: ImageNames = read(index)?;
    *entries += index.manifests.len();
    if *entries > ENTRIES_MAX {
        return Err(format!(
            "its indices have over {ENTRIES_MAX} entries, and an image for every system has a few dozen; {MAKE}"
        ));
    }
    for one in &index.manifests {
        // An index may reference images that are not there.
        let Some(bytes) = files.small.get(&path(&one.digest)) else {
            continue;
        };
        let names: ImageNames = read(bytes)?;
        let Some(config) = &names.config else {
            if depth < DEPTH_MAX {
                images(files, bytes, depth + 1, found, entries)?;
            }
            continue;
        };
        let own = files.small.get(&path(&config.digest));
        let own = own.and_then(|bytes| read(bytes).ok());
        let mut image = image(one.platform.clone().unwrap_or_default(), own);
        let mut blobs = names.config.iter().chain(&names.layers);
        if let Some(blob) = blobs.find(|blob| !files.all.contains(&path(&blob.digest))) {
            image.wrong = Some(format!("its blob {} is missing", blob.digest));
        }
        found.push(image);
    }
    Ok(())
}

/// System of an image, by the index that names it and by its own configuration. containerd goes by the index where that
/// says one, and Windows by what is in the image: both have to agree.
fn image(by_index: ImagePlatform, own: Option<ImagePlatform>) -> PauseImage {
    let own = own.unwrap_or_default();
    let mut wrong = None;
    let mut of = |what: &str, index: String, own: String| {
        if !index.is_empty() && !own.is_empty() && index != own {
            wrong = Some(format!("its own configuration has the {what} {own}"));
        }
        if index.is_empty() { own } else { index }
    };
    let platform = ImagePlatform {
        os: of("system", by_index.os, own.os),
        architecture: of("architecture", by_index.architecture, own.architecture),
        version: of("build", by_index.version, own.version),
    };
    PauseImage { platform, wrong }
}

fn path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn read<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("no OCI layout: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn tar_of(files: &[(&str, Value)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, value) in files {
            let bytes = value.to_string();
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            archive
                .append_data(&mut header, name, bytes.as_bytes())
                .expect("packed");
        }
        archive.into_inner().expect("packed")
    }

    /// An image: the system in the index, and the one in its own configuration.
    type System<'a> = (&'a Value, &'a Value);

    fn system(version: &str) -> Value {
        json!({"os": "windows", "architecture": "amd64", "os.version": version})
    }

    /// A layout with one image for each system, below an index of its own as `skopeo copy --all` writes it.
    fn layout(systems: &[System<'_>], change: impl Fn(&mut Vec<(&str, Value)>)) -> Vec<u8> {
        let names: Vec<_> = (0..systems.len())
            .map(|n| ["c", "m", "l"].map(|kind| format!("blobs/sha256/{kind}{n}")))
            .collect();
        let mut files = vec![("oci-layout", json!({"imageLayoutVersion": "1.0.0"}))];
        let mut manifests = Vec::new();
        for (n, (by_index, own)) in systems.iter().enumerate() {
            let digest = |kind: &str| format!("sha256:{kind}{n}");
            let manifest =
                json!({"config": {"digest": digest("c")}, "layers": [{"digest": digest("l")}]});
            let [config, of_manifest, layer] = &names[n];
            files.extend([
                (config.as_str(), (*own).clone()),
                (of_manifest, manifest),
                (layer, json!("a layer")),
            ]);
            manifests.push(json!({"digest": digest("m"), "platform": by_index}));
        }
        manifests.push(json!({"digest": "sha256:absent", "platform": {"os": "linux", "architecture": "arm64"}}));
        files.push(("blobs/sha256/i", json!({"manifests": manifests})));
        files.push(("index.json", json!({"manifests": [{"digest": "sha256:i"}]})));
        change(&mut files);
        tar_of(&files)
    }

    fn builds() -> [String; 2] {
        ["10.0.17763".to_owned(), "10.0.20348".to_owned()]
    }

    #[test]
    fn every_windows_build_needs_an_image() {
        let none = Value::Null;
        let linux = json!({"os": "linux", "architecture": "amd64"});
        let [old, new] = ["10.0.17763.8147", "10.0.20348.4529"].map(system);
        let plain = |_: &mut Vec<(&str, Value)>| {};
        // The build is in the index, in the image's own configuration, or in both.
        let bare = json!({"os": "windows", "architecture": "amd64"});
        for (by_index, own) in [(&none, &new), (&new, &bare), (&new, &new), (&bare, &new)] {
            let archive = layout(&[(&old, &old), (&linux, &linux), (by_index, own)], plain);
            assert_eq!(check(&archive, &builds()), Ok(()), "{by_index} {own}");
        }
        let other = system("10.0.177631");
        let table = [
            (
                layout(&[(&linux, &linux)], plain),
                "no image for Windows 10.0.17763, only for linux/amd64;",
            ),
            (
                layout(&[(&none, &old), (&linux, &linux)], plain),
                "no image for Windows 10.0.20348, only for windows/amd64 10.0.17763.8147,",
            ),
            (
                layout(&[(&none, &other)], plain),
                "no image for Windows 10.0.17763,",
            ),
            (
                layout(&[(&bare, &bare)], plain),
                "no image for Windows 10.0.17763, only for windows/amd64;",
            ),
            // What containerd would take for this build is another one inside.
            (
                layout(&[(&old, &new), (&new, &new)], plain),
                "no image for Windows 10.0.17763, only for windows/amd64 10.0.17763.8147 (its own configuration has the \
                 build 10.0.20348.4529), windows/amd64 10.0.20348.4529;",
            ),
            (
                layout(&[(&old, &old)], |files| {
                    files.retain(|(name, _)| *name != "blobs/sha256/l0");
                }),
                "no image for Windows 10.0.17763, only for windows/amd64 10.0.17763.8147 (its blob sha256:l0 is missing);",
            ),
        ];
        for (bytes, wanted) in table {
            let why = check(&bytes, &builds()).expect_err(wanted);
            assert!(why.contains(wanted), "{why}");
        }
    }

    #[test]
    fn what_no_host_can_import_is_said() {
        let old = system("10.0.17763.8147");
        let both = [(&old, &old), (&old, &old)];
        let packed = {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut gzip, &layout(&both, |_| {})).expect("packed");
            gzip.finish().expect("packed")
        };
        // Docker before 25: the manifest names files, and there is no index.
        let docker = json!([{"Config": "c.json", "RepoTags": ["registry.k8s.io/pause:3.10.2"], "Layers": ["l/layer.tar"]}]);
        let of_docker = tar_of(&[
            ("c.json", old.clone()),
            ("l/layer.tar", json!("a layer")),
            ("manifest.json", docker),
        ]);
        let in_folder = tar_of(&[
            ("pause/oci-layout", json!({})),
            ("pause/index.json", json!({})),
        ]);
        let table = [
            (packed, "it is compressed, and hosts import a plain tar"),
            (of_docker, "`docker save` before Docker 25"),
            (in_folder, "its oci-layout is pause/oci-layout"),
            (
                tar_of(&[("index.json", json!({}))]),
                "it has no oci-layout; `skopeo copy --all",
            ),
            (
                layout(&both, |files| {
                    let two = json!([{"digest": "sha256:m0"}, {"digest": "sha256:m1"}]);
                    files.retain(|(name, _)| *name != "index.json");
                    files.push(("index.json", json!({"manifests": two})));
                }),
                "its index.json has 2 images without a name",
            ),
            (b"no tar".to_vec(), "no"),
            (
                layout(&both, |files| {
                    for (name, value) in files {
                        if *name == "index.json" {
                            *value = json!("x");
                        }
                    }
                }),
                "no OCI layout: ",
            ),
        ];
        for (bytes, wanted) in table {
            let why = check(&bytes, &builds()).expect_err(wanted);
            assert!(why.contains(wanted), "wanted {wanted}, told {why}");
        }
        // Docker from 25 on writes both, and names the images.
        let archive = layout(&[(&old, &old)], |files| {
            let named = json!({"digest": "sha256:m0", "annotations": {"io.containerd.image.name": "registry.k8s.io/pause:3.10.2"}});
            let other = json!({"digest": "sha256:m0", "annotations": {"io.containerd.image.name": "other.example/x:1"}});
            files.retain(|(name, _)| *name != "index.json");
            files.push(("index.json", json!({"manifests": [named, other]})));
            files.push(("manifest.json", json!([])));
        });
        assert_eq!(check(&archive, &builds()[..1]), Ok(()));
    }
    /// An index in an index, five levels deep. `wide`: entries of each.
    fn nested(wide: usize) -> Vec<u8> {
        let old = system("10.0.17763.8147");
        layout(&[(&old, &old)], |files| {
            let same = |digest: &str| json!({"manifests": vec![json!({"digest": digest}); wide]});
            files.retain(|(name, _)| *name != "index.json");
            files.extend([
                ("blobs/sha256/1", same("sha256:2")),
                ("blobs/sha256/2", same("sha256:3")),
                ("blobs/sha256/3", same("sha256:i")),
                ("index.json", json!({"manifests": [{"digest": "sha256:1"}]})),
            ]);
        })
    }

    /// An archive with one file of zeros, which is stored by its length alone.
    fn sparse(length: u64) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_path("blobs/sha256/0").expect("a name");
        header.set_entry_type(tar::EntryType::GNUSparse);
        header.set_size(0);
        let gnu = header.as_gnu_mut().expect("a header");
        gnu.sparse[0].offset = format!("{length:011o}\0")
            .as_bytes()
            .try_into()
            .expect("12 digits");
        gnu.sparse[0].numbytes = *b"00000000000\0";
        gnu.realsize = gnu.sparse[0].offset;
        header.set_cksum();
        archive.append(&header, [].as_slice()).expect("packed");
        archive.into_inner().expect("packed")
    }

    #[test]
    fn an_archive_that_unpacks_to_far_more_than_it_has_is_refused() {
        assert_eq!(check(&nested(2), &builds()[..1]), Ok(()));
        for (bytes, wanted) in [
            (nested(20), "its indices have over 1000 entries"),
            (sparse(1 << 20), "its files are longer than the archive"),
        ] {
            let why = check(&bytes, &builds()[..1]).expect_err(wanted);
            assert!(why.contains(wanted), "wanted {wanted}, found {why}");
        }
    }
}
