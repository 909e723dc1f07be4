//! `dormer payload` on the command line: a correct folder, and each mistake that a folder can have.

use dormer_profile::{
    payload::{MANIFEST_FILE, Manifest, PayloadFile},
    render::EXAMPLE_PAYLOAD,
    sha256_hex,
};
use dormer_testkit::{AMD64, ARM64, go_program, test_dir, windows_program as program};
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
    assert_eq!(nothing.status.code(), Some(2));
}

const NEEDED: [&str; 4] = [
    "containerd.exe",
    "containerd-shim-runhcs-v1.exe",
    "kubelet.exe",
    "kube-log-runner.exe",
];

fn programs(folder: &Path) {
    for name in NEEDED {
        let bytes = match name {
            "kubelet.exe" => program(AMD64, Some([1, 35, 2, 0])),
            "containerd.exe" => containerd("github.com/containerd/containerd", "v1.7.35"),
            _ => program(AMD64, None),
        };
        std::fs::write(folder.join(name), bytes).expect("written");
    }
}

/// As containerd's Makefile builds it: without a version resource.
fn containerd(module: &str, version: &str) -> Vec<u8> {
    go_program(&format!(
        "path\t{module}/cmd/containerd\nmod\t{module}\t{version}\t\n"
    ))
}

fn make(folder: &Path, more: &[&str]) -> Output {
    let shown = folder.display().to_string();
    let mut arguments = vec!["make", &shown, "--version=11.1.0", "--kubelet=1.35"];
    arguments.extend(more);
    dormer(&arguments)
}

#[test]
fn a_payload_is_made_of_programs_and_verified() {
    let folder = test_dir("payload");
    programs(folder.path());
    let made = make(
        folder.path(),
        &["--profile=upstream", "--may-follow=11.0.0"],
    );
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(
        text(&made.stdout).contains("4 files"),
        "{}",
        text(&made.stdout)
    );
    let path = folder.path().display().to_string();
    let verified = dormer(&["verify", &path, "--profile", "upstream", "-o", "json"]);
    let report: Value = serde_json::from_slice(&verified.stdout).expect("JSON");
    assert_eq!(report["good"], true, "{report}");
    assert_eq!(report["mayFollow"][0], "11.0.0");
    let manifest = std::fs::read_to_string(folder.path().join(MANIFEST_FILE)).expect("written");
    let manifest = Manifest::parse(&manifest).expect("a manifest");
    let shim = manifest.file("containerd-shim-runhcs-v1.exe").expect("it");
    assert_eq!(
        shim.destination,
        r"containerd\containerd-shim-runhcs-v1.exe"
    );

    // And brought to a pod's volume, twice as after a crash.
    let to = folder.path().join("copied");
    let shown = to.display().to_string();
    for _ in 0..2 {
        let copied = dormer(&["copy", &path, &shown]);
        assert!(copied.status.success(), "{}", text(&copied.stderr));
        std::fs::write(to.join("kubelet.exe"), "torn").expect("written");
    }
    let copied = dormer(&["copy", &path, &shown]);
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    assert!(dormer(&["verify", &shown]).status.success());
}

#[test]
fn the_manifest_names_containerd_by_what_the_program_says() {
    let folder = test_dir("payload");
    programs(folder.path());
    let made_with = |bytes: Vec<u8>, more: &[&str]| {
        std::fs::write(folder.path().join("containerd.exe"), bytes).expect("written");
        let made = make(folder.path(), &[&["--profile=upstream"], more].concat());
        let text_of = std::fs::read_to_string(folder.path().join(MANIFEST_FILE));
        let manifest = Manifest::parse(&text_of.expect("written")).expect("a manifest");
        (made, manifest.containerd)
    };
    let two = |version| containerd("github.com/containerd/containerd/v2", version);
    let resource = |version| program(AMD64, Some(version));
    // A program that says nothing is what a person says.
    for (bytes, more, wanted) in [
        (program(AMD64, None), &["--containerd=2.1"][..], "2.1"),
        (two("v2.4.2"), &[][..], "2.4"),
        (two("(devel)"), &["--containerd=2.1"][..], "2.1"),
        (resource([2, 3, 1, 0]), &[][..], "2.3"),
        (resource([2, 3, 1, 0]), &["--containerd=2.3"][..], "2.3"),
    ] {
        let (made, written) = made_with(bytes, more);
        assert!(made.status.success(), "{}", text(&made.stderr));
        assert_eq!(written, wanted);
    }
    for (bytes, more, why) in [
        (
            resource([2, 4, 0, 0]),
            &["--containerd=2.3"][..],
            "2.4.0.0, but --containerd says 2.3",
        ),
        (
            two("v2.4.2"),
            &["--containerd=2.1"][..],
            "its Go build information says v2.4.2, but --containerd says 2.1",
        ),
        (
            two("(devel)"),
            &["--containerd=1.7"][..],
            "its Go module is github.com/containerd/containerd/v2",
        ),
        (two("(devel)"), &[][..], "name it with --containerd"),
        (program(AMD64, None), &[][..], "does not say which release"),
        (
            program(AMD64, None),
            &["--containerd=newest"][..],
            "not major.minor",
        ),
    ] {
        let (made, before) = made_with(bytes, more);
        assert!(!made.status.success(), "{why}");
        assert!(text(&made.stderr).contains(why), "{}", text(&made.stderr));
        assert_eq!(before, "2.3", "the manifest from before stays");
    }
}

#[test]
fn a_manifest_that_says_another_containerd_than_the_program_is_wrong() {
    let folder = test_dir("payload");
    programs(folder.path());
    let path = folder.path().display().to_string();
    let bytes = program(AMD64, Some([2, 4, 0, 0]));
    std::fs::write(folder.path().join("containerd.exe"), bytes).expect("written");
    let made = make(folder.path(), &["--profile=upstream"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(dormer(&["verify", &path]).status.success());
    let manifest = folder.path().join(MANIFEST_FILE);
    let said = std::fs::read_to_string(&manifest).expect("read");
    let said = said.replace("2.4", "1.7");
    std::fs::write(&manifest, said).expect("written");
    let verified = dormer(&["verify", &path]);
    assert!(!verified.status.success());
    let shown = text(&verified.stdout);
    assert!(
        shown.contains("says 2.4.0.0, but the manifest says"),
        "{shown}"
    );
    // And another kubelet.
    let said = std::fs::read_to_string(&manifest).expect("read");
    let said = said.replace("1.7", "2.4").replace("1.35", "1.36");
    std::fs::write(&manifest, said).expect("written");
    let verified = dormer(&["verify", &path]);
    assert!(!verified.status.success());
    let shown = text(&verified.stdout);
    assert!(
        shown.contains("says 1.35.2.0, but the manifest says `kubelet: 1.36`"),
        "{shown}"
    );
}

#[test]
fn what_is_no_program_for_these_hosts_makes_no_payload() {
    let kubelet = |version| program(AMD64, Some(version));
    let mut library = program(AMD64, None);
    library[0x44 + 18..0x44 + 20].copy_from_slice(&0x2022_u16.to_le_bytes());
    for (bytes, says) in [
        (b"#!/bin/sh\n".to_vec(), "no 64-bit program for Windows"),
        (program(ARM64, None), "0xaa64"),
        (library, "a library"),
        (kubelet([1, 34, 9, 0]), "1.34.9.0, but --kubelet says 1.35"),
    ] {
        let folder = test_dir("payload");
        programs(folder.path());
        std::fs::write(folder.path().join("kubelet.exe"), bytes).expect("written");
        let made = make(folder.path(), &["--profile=upstream"]);
        assert!(!made.status.success(), "{says}");
        assert!(text(&made.stderr).contains(says), "{}", text(&made.stderr));
        assert!(!folder.path().join(MANIFEST_FILE).exists(), "{says}");
    }
    let folder = test_dir("payload");
    programs(folder.path());
    std::fs::remove_file(folder.path().join("containerd.exe")).expect("removed");
    let made = make(folder.path(), &["--profile=upstream"]);
    assert!(
        text(&made.stderr).contains("not there: containerd.exe"),
        "{}",
        text(&made.stderr)
    );
}

#[test]
fn a_payload_is_made_from_the_image_of_wmco() {
    // As openshift/windows-machine-config-operator lays it out: the Containerfile of 10.20 has programs in folders, and
    // later images have archives.
    let image = test_dir("image");
    let at = |path: &str| {
        let path = image.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        path
    };
    let kubelet = program(AMD64, Some([1, 35, 2, 0]));
    for name in [
        "windows-instance-config-daemon.exe",
        "hybrid-overlay-node.exe",
        "cni/host-local.exe",
        "cni/win-overlay.exe",
        "cni/win-bridge.exe",
        "csi-proxy/csi-proxy.exe",
        "kube-node/kubelet.exe",
        "kube-node/kube-log-runner.exe",
        "kube-node/kube-proxy.exe",
        "azure-cloud-node-manager.exe",
    ] {
        std::fs::write(at(name), &kubelet).expect("written");
    }
    let containerd = program(AMD64, Some([1, 7, 27, 0]));
    std::fs::write(at("containerd/containerd.exe"), containerd).expect("written");
    std::fs::write(at("powershell/hns.psm1"), "# a script").expect("written");
    let archive = at("containerd/containerd-shim-runhcs-v1.exe.tar.gz");
    let file = std::fs::File::create(archive).expect("made");
    let packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    let mut archive = tar::Builder::new(packed);
    let mut header = tar::Header::new_gnu();
    header.set_size(kubelet.len() as u64);
    archive
        .append_data(&mut header, "containerd-shim-runhcs-v1.exe", &kubelet[..])
        .expect("packed");
    archive
        .into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .expect("packed");

    let folder = test_dir("payload");
    let from = format!("--from-wmco={}", image.path().display());
    let made = make(folder.path(), &[&from, "--platform=azure"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let manifest = std::fs::read_to_string(folder.path().join(MANIFEST_FILE)).expect("written");
    let manifest = Manifest::parse(&manifest).expect("a manifest");
    let names: Vec<&str> = manifest
        .files
        .iter()
        .map(|file| file.name.as_str())
        .collect();
    assert_eq!(names.len(), 10, "{names:?}");
    assert_eq!(manifest.containerd, "1.7");
    assert!(
        names.contains(&"containerd-shim-runhcs-v1.exe"),
        "{names:?}"
    );
    assert!(
        !names.contains(&"windows-instance-config-daemon.exe"),
        "{names:?}"
    );
    let again = make(folder.path(), &[&from]);
    assert!(text(&again.stderr).contains("must not change"));

    // On Azure its cloud node manager is needed as well.
    std::fs::remove_file(image.path().join("azure-cloud-node-manager.exe")).expect("removed");
    let other = test_dir("payload");
    let made = make(other.path(), &[&from, "--platform=azure"]);
    assert!(text(&made.stderr).contains("azure-cloud-node-manager.exe"));
    assert!(make(other.path(), &[&from]).status.success());
}
