//! `dormer payload` on the command line: a correct folder, and each mistake that a folder can have.

use dormer_profile::{
    payload::{MANIFEST_FILE, Manifest, PayloadFile},
    render::EXAMPLE_PAYLOAD,
    sha256_hex,
};
use dormer_testkit::test_dir;
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output},
};

fn dormer(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormer"));
    command
        .arg("payload")
        .args(arguments)
        .output()
        .expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(folder: &Path, version: &str, may_follow: &[&str]) {
    std::fs::create_dir_all(folder).expect("made");
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    manifest.version = version.into();
    manifest.may_follow = may_follow
        .iter()
        .map(|version| (*version).to_owned())
        .collect();
    for file in &mut manifest.files {
        let bytes = format!("MZ {} {version}", file.name).into_bytes();
        std::fs::write(folder.join(&file.name), &bytes).expect("written");
        let sha256 = sha256_hex(&bytes);
        let size = bytes.len() as u64;
        *file = PayloadFile {
            sha256,
            size,
            ..file.clone()
        };
    }
    let text = serde_json::to_string(&manifest).expect("json");
    std::fs::write(folder.join(MANIFEST_FILE), text).expect("written");
}

#[test]
fn a_payload_that_is_as_its_manifest_says_is_good() {
    let folder = test_dir("payload");
    write(folder.path(), "11.1.0", &["11.0.0"]);
    let path = folder.path().display().to_string();
    let output = dormer(&["verify", &path, "--profile", "openshift"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("payload 11.1.0, kubelet 1.33"), "{said}");
    assert!(
        said.contains("may follow 11.0.0") && said.contains("All files match the manifest"),
        "{said}"
    );
    let output = dormer(&["verify", &path, "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["good"], &report["version"]),
        (&true.into(), &"11.1.0".into())
    );
    assert_eq!(report["files"].as_array().expect("files").len(), 10);
}

#[test]
fn each_problem_of_a_payload_is_reported_by_file() {
    let folder = test_dir("payload");
    write(folder.path(), "11.1.0", &[]);
    let at = |name: &str| folder.path().join(name);
    let kubelet = std::fs::read(at("kubelet.exe")).expect("bytes");
    std::fs::write(at("kubelet.exe"), kubelet.to_ascii_lowercase()).expect("written");
    std::fs::write(at("containerd.exe"), "MZ").expect("written");
    std::fs::remove_file(at("csi-proxy.exe")).expect("removed");
    std::fs::write(at("readme.txt"), "hello").expect("written");
    let path = folder.path().display().to_string();
    let output = dormer(&["verify", &path]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for wanted in [
        "kubelet.exe     wrong  SHA-256 ",
        "containerd.exe  wrong  2 bytes, the manifest says",
        "csi-proxy.exe   wrong  is not there",
        "readme.txt      extra  not in the manifest, so dormer",
        "4 of them do not match",
        "no rollout upgrades to it",
    ] {
        assert!(said.contains(wanted), "{wanted} is missing in\n{said}");
    }
    assert!(
        !said.contains("kube-proxy.exe"),
        "what is right is left out: {said}"
    );
}

#[test]
fn a_payload_without_what_a_profile_asks_for_is_not_good_for_it() {
    let folder = test_dir("payload");
    write(folder.path(), "11.1.0", &["11.0.0"]);
    let path = folder.path().join(MANIFEST_FILE);
    let mut manifest =
        Manifest::parse(&std::fs::read_to_string(&path).expect("text")).expect("a manifest");
    manifest.files.retain(|file| file.name != "csi-proxy.exe");
    std::fs::write(&path, serde_json::to_string(&manifest).expect("json")).expect("written");
    std::fs::remove_file(folder.path().join("csi-proxy.exe")).expect("removed");
    let path = folder.path().display().to_string();
    assert!(
        dormer(&["verify", &path]).status.success(),
        "by itself it is whole"
    );
    let output = dormer(&["verify", &path, "--profile", "openshift"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains("csi-proxy.exe  lacking"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn a_manifest_with_mistakes_is_refused_by_field() {
    let folder = test_dir("payload");
    write(folder.path(), "11.1.0", &["eleven"]);
    let output = dormer(&["verify", &folder.path().display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("may_follow[0]: `eleven` is not a version"),
        "{said}"
    );
    let output = dormer(&["verify", "/nowhere"]);
    assert!(
        text(&output.stderr).contains("/nowhere"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn payloads_are_listed_oldest_first_with_what_they_may_follow() {
    let folder = test_dir("payloads");
    write(&folder.path().join("b"), "11.10.0", &["11.9.0"]);
    write(&folder.path().join("a"), "11.9.0", &[]);
    std::fs::create_dir_all(folder.path().join("c")).expect("made");
    std::fs::write(folder.path().join("c").join(MANIFEST_FILE), "version: x").expect("written");
    let path = folder.path().display().to_string();
    let output = dormer(&["list", &path, "-o", "json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let items = listed["items"].as_array().expect("items");
    let versions: Vec<&str> = items
        .iter()
        .filter_map(|item| item["version"].as_str())
        .collect();
    assert_eq!(versions, ["11.9.0", "11.10.0"]);
    assert!(
        items[0]["problem"]
            .as_str()
            .expect("a problem")
            .contains("missing field")
    );
    let output = dormer(&["list", &path]);
    let said = text(&output.stdout);
    assert!(
        said.starts_with("VERSION") && said.contains("11.9.0"),
        "{said}"
    );
    assert!(
        said.contains("SENT"),
        "what goes over the wire is told: {said}"
    );
    let nothing = dormer(&["list", &folder.path().join("nowhere").display().to_string()]);
    assert_eq!(nothing.status.code(), Some(1));
}
