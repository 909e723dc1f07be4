//! Images as folders of this computer.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::spec::{list, text};

/// An image: a folder of this computer, and what its configuration says.
#[derive(Debug, Clone, Default)]
pub struct PodImage {
    /// The root of its files.
    pub root: PathBuf,
    /// The program, before a container's arguments.
    pub entrypoint: Vec<String>,
    /// Variables, `NAME=VALUE`.
    pub env: Vec<String>,
    /// User and group, by number.
    pub user: (u32, u32),
}

impl PodImage {
    /// The image of a folder in OCI's layout, with its files unpacked at `root`. Its digests are not compared, and `Cmd` is
    /// passed over.
    ///
    /// # Errors
    /// A file of the layout cannot be had, or a layer takes files away.
    pub fn from_oci(layout: &Path, root: &Path) -> Result<Self> {
        let index = json(&layout.join("index.json"))?;
        let manifest = json(&blob(layout, &index["manifests"][0]["digest"])?)?;
        let config = json(&blob(layout, &manifest["config"]["digest"])?)?;
        let config = &config["config"];
        fs::create_dir_all(root)?;
        for layer in list(&manifest["layers"]) {
            let archive = blob(layout, &layer["digest"])?;
            let names = tar(&[
                OsStr::new("--list"),
                OsStr::new("--file"),
                archive.as_os_str(),
            ])?;
            let removes = names.lines().any(|name| name.contains(".wh."));
            ensure!(!removes, "a layer takes files away: {names}");
            tar(&[
                OsStr::new("--extract"),
                OsStr::new("--same-permissions"),
                OsStr::new("--file"),
                archive.as_os_str(),
                OsStr::new("--directory"),
                root.as_os_str(),
            ])?;
        }
        let texts = |value: &Value| list(value).iter().map(|it| text(it).to_owned()).collect();
        Ok(Self {
            root: root.to_owned(),
            entrypoint: texts(&config["Entrypoint"]),
            env: texts(&config["Env"]),
            user: user(text(&config["User"]))?,
        })
    }

    /// Puts a program of this computer at a path in the image, with the libraries that it loads. A static one has none.
    ///
    /// # Errors
    /// A file cannot be had, or the folder cannot be written.
    pub fn program(&self, program: &Path, at: &str) -> Result<()> {
        self.file(program, at)?;
        let said = Command::new("ldd").arg(program).output()?;
        for line in String::from_utf8_lossy(&said.stdout).lines() {
            let path = line.rsplit(" => ").next().unwrap_or_default().trim();
            let path = path.split(" (").next().unwrap_or_default();
            ensure!(!line.contains("not found"), "{line}");
            if path.starts_with('/') {
                self.file(Path::new(path), path)?;
            }
        }
        Ok(())
    }

    /// Puts a file of this computer at a path in the image, by a link where that is possible.
    ///
    /// # Errors
    /// The file cannot be had, or the folder cannot be written.
    pub fn file(&self, file: &Path, at: &str) -> Result<()> {
        let to = self.root.join(at.trim_start_matches('/'));
        if to.exists() {
            return Ok(());
        }
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        let real = fs::canonicalize(file)?;
        fs::hard_link(&real, &to)
            .or_else(|_| fs::copy(&real, &to).map(drop))
            .with_context(|| format!("{} in the image", file.display()))
    }
}

fn json(path: &Path) -> Result<Value> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// File of a layout, by its digest.
fn blob(layout: &Path, digest: &Value) -> Result<PathBuf> {
    let (kind, sum) = text(digest).split_once(':').context("no digest")?;
    Ok(layout.join("blobs").join(kind).join(sum))
}

/// Runs tar, which finds out itself how an archive is compressed, and returns its output.
fn tar(arguments: &[&OsStr]) -> Result<String> {
    let done = Command::new("tar").args(arguments).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "tar {arguments:?}: {said}");
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// User and group of an image, `USER[:GROUP]` by number. An image that names none runs as root.
fn user(named: &str) -> Result<(u32, u32)> {
    let number = |it: &str| match it {
        "" => Ok(0),
        it => it
            .parse()
            .with_context(|| format!("user {named}: not a number")),
    };
    let (user, group) = named.split_once(':').unwrap_or((named, ""));
    Ok((number(user)?, number(group)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{full, test_dir};
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_image_is_read_from_the_layout_of_oci() {
        full!();
        let folder = test_dir("oci");
        let path = |name: &str| folder.path().join(name);
        let blobs = path("layout/blobs/sha256");
        fs::create_dir_all(&blobs).expect("written");
        for (layer, file) in [("1", "usr/bin/dormer"), ("2", "payload/payload.yaml")] {
            let from = path(layer).join(file);
            fs::create_dir_all(from.parent().expect("a folder")).expect("written");
            fs::write(&from, layer).expect("written");
            fs::set_permissions(&from, fs::Permissions::from_mode(0o755)).expect("a mode");
            let made = Command::new("tar")
                .args(["--create", "--gzip", "--file"])
                .arg(blobs.join(layer))
                .arg("--directory")
                .arg(path(layer))
                .arg(".")
                .status();
            assert!(made.expect("tar").success());
        }
        let write = |name: &str, value: Value| {
            fs::write(path("layout").join(name), value.to_string()).expect("written");
        };
        write("index.json", json!({"manifests": [{"digest": "sha256:m"}]}));
        let layers = json!([{"digest": "sha256:1"}, {"digest": "sha256:2"}]);
        let manifest = json!({"config": {"digest": "sha256:c"}, "layers": layers});
        write("blobs/sha256/m", manifest);
        let config = json!({"Entrypoint": ["/usr/bin/dormer"], "Env": ["A=b"], "User": "65532:7"});
        write("blobs/sha256/c", json!({"config": config}));

        let image = PodImage::from_oci(&path("layout"), &path("root")).expect("an image");
        assert_eq!(image.entrypoint, ["/usr/bin/dormer"]);
        assert_eq!(
            (image.env, image.user),
            (vec!["A=b".to_owned()], (65532, 7))
        );
        for (layer, file) in [("1", "usr/bin/dormer"), ("2", "payload/payload.yaml")] {
            let at = image.root.join(file);
            assert_eq!(fs::read_to_string(&at).expect("a file"), layer);
            let mode = fs::metadata(&at).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o755);
        }
        assert_eq!(user("").expect("root"), (0, 0));
        assert!(user("nobody").is_err());
    }
}
