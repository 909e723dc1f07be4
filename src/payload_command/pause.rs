//! Whether `pause.tar` has an image for every Windows build of a payload. A host imports what is there, under the name that
//! its configuration has; containerd asks no registry for a name that it knows.

use serde::Deserialize;
use std::{collections::BTreeMap, io::Read};

/// Its name in a payload.
pub(super) const PAUSE: &str = "pause.tar";
/// Largest file in it that is read: indices, manifests and configurations have a few KB.
const JSON_BYTES_MAX: u64 = 4 << 20;
/// Deepest nesting of indices, and most descriptors in one.
const DEPTH_MAX: usize = 4;
const DESCRIPTORS_MAX: usize = 1_000;

/// Reference to a blob, in an index or a manifest.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Descriptor {
    digest: String,
    platform: Option<ImagePlatform>,
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
struct Names {
    manifests: Vec<Descriptor>,
    config: Option<Descriptor>,
}

/// Checks it against the Windows builds of the payload.
///
/// # Errors
/// It is no OCI layout, or has no image for a build, in a sentence.
pub(super) fn check(bytes: &[u8], builds: &[String]) -> Result<(), String> {
    let files = small_files(bytes)?;
    let index = files
        .get("index.json")
        .ok_or("no OCI layout: it has no index.json")?;
    let mut found = Vec::new();
    platforms(&files, index, 0, &mut found)?;
    for build in builds {
        let fits = |it: &ImagePlatform| {
            let rest = it.version.strip_prefix(build.as_str());
            it.os == "windows"
                && it.architecture == "amd64"
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !found.iter().any(fits) {
            let has: Vec<String> = found.iter().map(shown).collect();
            return Err(format!(
                "it has no image for Windows {build}, only for {}; `skopeo copy --all` takes those of all systems",
                has.join(", ")
            ));
        }
    }
    Ok(())
}

fn shown(platform: &ImagePlatform) -> String {
    let ImagePlatform {
        os,
        architecture,
        version,
    } = platform;
    format!("{os}/{architecture} {version}")
        .trim_end()
        .to_owned()
}

fn small_files(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let broken = |error: std::io::Error| format!("it is no tar that can be read: {error}");
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(bytes);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        if entry.size() > JSON_BYTES_MAX {
            continue;
        }
        let name = entry.path().map_err(broken)?.to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(broken)?;
        files.insert(name.trim_start_matches("./").to_owned(), content);
    }
    Ok(files)
}

/// Adds the systems of the images that an index references and that are there.
fn platforms(
    files: &BTreeMap<String, Vec<u8>>,
    index: &[u8],
    depth: usize,
    found: &mut Vec<ImagePlatform>,
) -> Result<(), String> {
    let index: Names = read(index)?;
    for one in index.manifests.iter().take(DESCRIPTORS_MAX) {
        // An index may reference images that are not there.
        let Some(bytes) = blob(files, &one.digest) else {
            continue;
        };
        let names: Names = read(bytes)?;
        let Some(config) = names.config else {
            if depth < DEPTH_MAX {
                platforms(files, bytes, depth + 1, found)?;
            }
            continue;
        };
        let own = blob(files, &config.digest).and_then(|bytes| read(bytes).ok());
        found.extend(own.or_else(|| one.platform.clone()));
    }
    Ok(())
}

fn blob<'f>(files: &'f BTreeMap<String, Vec<u8>>, digest: &str) -> Option<&'f [u8]> {
    let path = format!("blobs/{}", digest.replace(':', "/"));
    files.get(&path).map(Vec::as_slice)
}

fn read<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("no OCI layout: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A layout with one image for each system, below an index of its own as `skopeo copy --all` writes it, or directly.
    fn layout(systems: &[(&str, &str)], nested: bool) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut put = |name: &str, value: &Value| {
            let bytes = value.to_string();
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            archive
                .append_data(&mut header, name, bytes.as_bytes())
                .expect("packed");
        };
        let mut manifests = Vec::new();
        for (n, (os, version)) in systems.iter().enumerate() {
            let config = json!({"os": os, "architecture": "amd64", "os.version": version});
            put(&format!("blobs/sha256/c{n}"), &config);
            let manifest = json!({"config": {"digest": format!("sha256:c{n}")}, "layers": []});
            put(&format!("blobs/sha256/m{n}"), &manifest);
            manifests.push(json!({"digest": format!("sha256:m{n}")}));
        }
        manifests.push(json!({"digest": "sha256:absent", "platform": {"os": "linux", "architecture": "arm64"}}));
        let mut index = json!({"manifests": manifests});
        if nested {
            put("blobs/sha256/i", &index);
            index = json!({"manifests": [{"digest": "sha256:i"}]});
        }
        put("index.json", &index);
        archive.into_inner().expect("packed")
    }

    #[test]
    fn every_windows_build_needs_an_image() {
        let builds = ["10.0.17763".to_owned(), "10.0.20348".to_owned()];
        let both = [
            ("windows", "10.0.17763.8147"),
            ("linux", ""),
            ("windows", "10.0.20348.4529"),
        ];
        for nested in [false, true] {
            assert_eq!(check(&layout(&both, nested), &builds), Ok(()), "{nested}");
        }
        let table = [
            (
                layout(&[("linux", "")], false),
                "no image for Windows 10.0.17763, only for linux/amd64;",
            ),
            (
                layout(&both[..2], true),
                "no image for Windows 10.0.20348, only for windows/amd64 10.0.17763.8147,",
            ),
            (
                layout(&[("windows", "10.0.177631")], false),
                "no image for Windows 10.0.17763,",
            ),
            (b"no tar".to_vec(), "no"),
        ];
        for (bytes, wanted) in table {
            let why = check(&bytes, &builds).expect_err(wanted);
            assert!(why.contains(wanted), "{why}");
        }
    }
}
