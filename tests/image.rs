//! The image: two builds of one commit give one digest, it holds nothing but what it should, and a release comes up from it
//! and from a payload's image.
//!
//! `DORMER_PROGRAM` and `DORMER_HOST_PROGRAM` name programs that are already built, as they do for the script itself; the
//! long tier then counts nothing as passed.

use crate::real::pods::a_release_comes_up_from_images;
use dormer_fleet::payload::write_example;
use dormer_testkit::{Skipped, long, test_dir};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

/// Builds the image into a folder in OCI's layout, and answers the digest of its manifest.
fn built(folder: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let done = Command::new(root.join("deploy/image/build.sh"))
        .arg("localhost/dormer:test")
        .arg(format!("oci:{}", folder.display()))
        .output()
        .expect("the script");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let index = json(&folder.join("index.json"));
    let digest = index["manifests"][0]["digest"].as_str();
    digest.expect("a digest").to_owned()
}

fn json(path: &Path) -> Value {
    let text = std::fs::read(path).expect("a file of the layout");
    serde_json::from_slice(&text).expect("JSON")
}

fn blob(folder: &Path, digest: &Value) -> PathBuf {
    let digest = digest.as_str().expect("a digest");
    let (_, sum) = digest.split_once(':').expect("its sum");
    folder.join("blobs/sha256").join(sum)
}

/// Builds a payload's image on dormer's, and writes it into a folder in OCI's layout.
fn payload_built(folder: &Path) -> PathBuf {
    let context = folder.join("11.0.0");
    let layout = folder.join("payload");
    write_example(&context, "11.0.0").expect("a payload");
    let buildah = |words: &[&str]| {
        let done = Command::new("buildah").args(words).output();
        let done = done.expect("buildah");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{words:?}: {said}");
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/image/payload.Containerfile");
    let tag = "localhost/dormer-payload:test";
    buildah(&[
        "build",
        "--isolation=chroot",
        "--build-arg=DORMER=localhost/dormer:test",
        &format!("--file={}", file.display()),
        &format!("--tag={tag}"),
        &context.display().to_string(),
    ]);
    buildah(&["push", "--quiet", tag, &format!("oci:{}", layout.display())]);
    layout
}

#[test]
fn a_program_that_needs_a_systems_c_library_is_put_into_no_image() {
    let readelf = Command::new("readelf").arg("--version").output();
    if !readelf.is_ok_and(|it| it.status.success()) {
        dormer_testkit::skip!(Skipped {
            server: "readelf".into(),
            reason: "it is not on the PATH".into(),
        });
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let done = Command::new(root.join("deploy/image/build.sh"))
        .arg("localhost/dormer:test")
        .env("DORMER_PROGRAM", "/bin/sh")
        .env_remove("DORMER_TARGET")
        .output()
        .expect("the script");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(
        said.contains("/bin/sh: this program needs the C library of its system"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_builds_give_one_image_with_nothing_superfluous_from_which_a_release_comes_up() {
    let part = long!("image");
    let first = test_dir("image");
    let second = test_dir("image");
    let digest = built(first.path());
    assert_eq!(digest, built(second.path()), "two builds give one digest");

    let manifest = json(&blob(first.path(), &digest.as_str().into()));
    let config = json(&blob(first.path(), &manifest["config"]["digest"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/dormer");
    let mut files = Vec::new();
    for layer in manifest["layers"].as_array().expect("layers") {
        let packed = File::open(blob(first.path(), &layer["digest"])).expect("a layer");
        let mut archive = tar::Archive::new(GzDecoder::new(packed));
        for entry in archive.entries().expect("files") {
            let entry = entry.expect("a file");
            assert_eq!(entry.header().mode().expect("a mode") & 0o6022, 0);
            if entry.header().entry_type().is_file() {
                let path = entry.path().expect("a path").into_owned();
                files.push((path, entry.size()));
            }
        }
    }
    files.sort();
    let names: Vec<&str> = files.iter().filter_map(|(path, _)| path.to_str()).collect();
    assert_eq!(
        names,
        [
            "etc/ssl/certs/ca-certificates.crt",
            "usr/bin/dormer",
            "usr/share/dormer/dormer-host.exe"
        ]
    );
    let folder = test_dir("image");
    let payload = payload_built(folder.path());
    a_release_comes_up_from_images(first.path(), &payload).await;
    if std::env::var_os("DORMER_PROGRAM").is_some() {
        // The figures are those of what a build from nothing makes.
        return;
    }
    let bytes: u64 = files.iter().map(|(_, size)| size).sum();
    part.passed(&[
        ("files", format!("{} MiB", bytes >> 20)),
        ("digest", digest),
    ]);
}
