//! Folders of payloads as people, and attackers, leave them.

use super::*;
use dormer_profile::render::EXAMPLE_PAYLOAD;
use std::{process::Command, sync::mpsc, time::Duration};

#[test]
fn a_kubernetes_of_another_minor_than_the_manifest_says_is_not_installed() {
    let built = |version: &str| {
        let flag = format!("-X k8s.io/component-base/version.gitVersion={version}");
        let lines = format!("mod\tk8s.io/kubernetes\t(devel)\t\nbuild\t-ldflags=\"{flag}\"\n");
        dormer_testkit::go_program(&lines)
    };
    for name in [KUBELET, KUBE_PROXY] {
        let with = |version| {
            let of_manifest = |manifest: &mut Manifest| manifest.kubelet = "1.36".into();
            with_named(name, &built(version), of_manifest)
        };
        for right in ["v1.36.2", "v1.36.0-rc.1+abc", "0a1b2c3d"] {
            assert!(with(right).is_ok(), "{name} {right}");
        }
        let why = with("v1.37.0").expect_err("refused").to_string();
        let wanted = "its Go build information says v1.37.0, but the manifest says `kubelet: 1.36`";
        assert!(why.contains(name) && why.contains(wanted), "{why}");
    }
}

/// Within 2.0 to 2.2 the folders of CNI's programs are written in two ways, so that a release in between is another one.
#[test]
fn a_containerd_of_2_0_to_2_2_is_installed_as_what_it_is() {
    let module = "github.com/containerd/containerd/v2";
    let built = |version| dormer_testkit::go_program(&format!("mod\t{module}\t{version}\t\n"));
    let programs = [
        ("v2.0.7", "2.0"),
        ("v2.1.5", "2.1"),
        ("v2.2.1", "2.2"),
        ("v2.3.7", "2.3"),
    ];
    for (version, own) in programs {
        for (_, said) in programs {
            let taken = with_program(&built(version), said);
            assert_eq!(taken.is_ok(), said == own, "{version} {said}");
            if let Err(why) = taken {
                let wanted = format!(
                    "its Go build information says {version}, but the manifest says `containerd: {said}`"
                );
                assert!(why.to_string().contains(&wanted), "{why}");
            }
        }
        // A patch is no release.
        let patch = version.trim_start_matches('v');
        let why = with_program(&built(version), patch)
            .expect_err("refused")
            .to_string();
        assert!(
            why.contains(&format!("containerd: `{patch}` is not major.minor")),
            "{why}"
        );
    }
}

/// A folder whose containerd has that version resource, and whose manifest says that release.
fn with_containerd(version: Option<[u16; 4]>, said: &str) -> Result<Payload, PayloadError> {
    let bytes = dormer_testkit::windows_program(dormer_testkit::AMD64, version);
    with_program(&bytes, said)
}

fn with_program(bytes: &[u8], said: &str) -> Result<Payload, PayloadError> {
    with_named(CONTAINERD, bytes, |manifest| {
        said.clone_into(&mut manifest.containerd);
    })
}

fn with_named(
    name: &str,
    bytes: &[u8],
    change: impl FnOnce(&mut Manifest),
) -> Result<Payload, PayloadError> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), bytes).expect("written");
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    change(&mut manifest);
    manifest.files.retain(|file| file.name == name);
    manifest.files[0].size = bytes.len() as u64;
    manifest.files[0].sha256 = dormer_profile::sha256_hex(bytes);
    let text = dormer_profile::yaml::to_string(&manifest).expect("YAML");
    std::fs::write(folder.path().join(MANIFEST_FILE), text).expect("written");
    Payload::in_folder(folder.path(), &PayloadKeys::Unsigned)
}

#[test]
fn a_containerd_of_another_release_than_the_manifest_says_is_not_installed() {
    let taken = [
        (None, "1.7"),
        (None, ""),
        (Some([2, 4, 1, 0]), "2.4"),
        (Some([1, 7, 27, 0]), ""),
        // The configuration for 1.7 is translated by 2.0 to 2.3.
        (Some([2, 3, 2, 0]), ""),
    ];
    for (version, said) in taken {
        let payload = with_containerd(version, said);
        assert!(payload.is_ok(), "{version:?} {said}: {payload:?}");
    }
    let refused = [
        (
            [2, 4, 0, 0],
            "1.7",
            "says 2.4.0.0, but the manifest says `containerd: 1.7`",
        ),
        ([1, 7, 27, 0], "2.1", "says `containerd: 2.1`"),
        (
            [2, 4, 0, 0],
            "",
            "the manifest has no `containerd`, which counts as 1.7",
        ),
    ];
    for (version, said, wanted) in refused {
        let why = with_containerd(Some(version), said).expect_err(wanted);
        assert!(matches!(why, PayloadError::Release { .. }), "{why:?}");
        assert!(why.to_string().contains(wanted), "{why}");
    }
    // As containerd is built: without a resource, by Go.
    let module = "github.com/containerd/containerd/v2";
    let built = |version| dormer_testkit::go_program(&format!("mod\t{module}\t{version}\t\n"));
    assert!(with_program(&built("v2.4.2"), "2.4").is_ok());
    assert!(with_program(&built("v2.3.7"), "").is_ok());
    assert!(with_program(&built("(devel)"), "2.1").is_ok());
    for (version, said, wanted) in [
        (
            "v2.4.2",
            "2.1",
            "its Go build information says v2.4.2, but the manifest says",
        ),
        ("v2.4.2", "", "but the manifest has no `containerd`"),
        (
            "(devel)",
            "1.7",
            "its Go module is github.com/containerd/containerd/v2",
        ),
    ] {
        let why = with_program(&built(version), said).expect_err(wanted);
        assert!(why.to_string().contains(wanted), "{why}");
    }
}

#[test]
fn a_folder_without_its_files_is_refused_by_their_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing =
        Payload::in_folder(folder.path(), &PayloadKeys::Unsigned).expect_err("no manifest");
    assert!(
        missing
            .to_string()
            .contains(&*folder.path().to_string_lossy())
    );
    std::fs::write(folder.path().join(MANIFEST_FILE), EXAMPLE_PAYLOAD).expect("written");
    let missing = Payload::in_folder(folder.path(), &PayloadKeys::Unsigned).expect_err("no files");
    assert!(missing.to_string().contains("containerd"), "{missing}");
}
#[test]
fn a_file_with_other_content_of_the_same_size_is_refused_before_it_is_parsed() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = dormer_testkit::go_program("mod\tk8s.io/kubernetes\tv1.33.4\t\n");
    let path = folder.path().join(KUBELET);
    std::fs::write(&path, &program).expect("written");
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    manifest.files.retain(|file| file.name == KUBELET);
    manifest.files[0].size = program.len() as u64;
    manifest.files[0].sha256 = dormer_profile::sha256_hex(&program);
    let text = dormer_profile::yaml::to_string(&manifest).expect("YAML");
    std::fs::write(folder.path().join(MANIFEST_FILE), text).expect("written");
    let taken = || Payload::in_folder(folder.path(), &PayloadKeys::Unsigned);
    assert!(taken().is_ok(), "{:?}", taken());
    let mut other = program;
    *other.last_mut().expect("bytes") ^= 1;
    std::fs::write(&path, other).expect("written");
    let why = taken().expect_err("another file").to_string();
    assert!(why.contains("kubelet.exe: SHA-256 "), "{why}");
}

/// The answer of reading a folder, or a panic if it takes longer than any disk.
fn in_time<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(read()));
    told.recv_timeout(Duration::from_secs(60))
        .expect("it must not wait for a file without an end")
}

#[test]
fn what_is_no_regular_file_or_too_large_is_refused_at_once() {
    for name in [MANIFEST_FILE, SIGNATURE_FILE] {
        for what in ["pipe", "zero", "large"] {
            let folder = tempfile::tempdir().expect("a folder");
            let root = folder.path().to_owned();
            std::fs::write(root.join(MANIFEST_FILE), EXAMPLE_PAYLOAD).expect("written");
            let path = root.join(name);
            let _ = std::fs::remove_file(&path);
            match what {
                "pipe" => {
                    let made = Command::new("mkfifo").arg(&path).status();
                    assert!(made.expect("mkfifo").success());
                }
                "zero" => std::os::unix::fs::symlink("/dev/zero", &path).expect("linked"),
                _ => std::fs::write(&path, vec![b'#'; 5 << 20]).expect("written"),
            }
            let why = in_time(move || Folder(root).read(&PayloadKeys::Unsigned))
                .expect_err(what)
                .to_string();
            let wanted = match what {
                "large" => format!("{name} has more than"),
                _ => "it is no regular file".to_owned(),
            };
            assert!(why.contains(&wanted), "{name} {what}: {why}");
        }
    }
}
