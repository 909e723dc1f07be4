//! Refusals of a payload's manifest, and the decisions that follow from it.

use super::*;

fn file(name: &str) -> PayloadFile {
    PayloadFile {
        name: name.into(),
        sha256: crate::sha256_hex(name.as_bytes()),
        size: name.len() as u64,
        destination: name.into(),
    }
}

fn manifest() -> Manifest {
    Manifest {
        version: "11.0.0".into(),
        kubelet: "1.36".into(),
        containerd: String::new(),
        windows_builds: vec!["10.0.20348".into(), "10.0.26100".into()],
        platforms: vec![],
        may_follow: vec!["10.22.1".into()],
        expires: String::new(),
        canary: String::new(),
        files: vec![file("kubelet.exe"), file("containerd.exe")],
    }
}

struct Folder(Vec<(&'static str, &'static str)>);

impl PayloadReader for Folder {
    fn digest(&self, name: &str) -> Result<(String, u64), String> {
        let (_, text) = self.0.iter().find(|(n, _)| *n == name).ok_or("not there")?;
        Ok((crate::sha256_hex(text.as_bytes()), text.len() as u64))
    }
}

#[test]
fn a_manifest_survives_yaml() {
    let text = yaml::to_string(&manifest()).expect("YAML");
    assert_eq!(Manifest::parse(&text), Ok(manifest()));
}

#[test]
fn a_bad_manifest_is_refused_with_location_and_reason() {
    type Change = fn(&mut Manifest);
    let table: [(Change, &str); 16] = [
        (
            |m| m.version = "eleven".into(),
            "version: `eleven` is not a version",
        ),
        (
            |m| m.kubelet = "36".into(),
            "kubelet: `36` is not major.minor",
        ),
        (
            |m| m.windows_builds.clear(),
            "windows_builds: names no Windows build",
        ),
        (
            |m| m.may_follow[0] = "..".into(),
            "may_follow[0]: `..` is not a version",
        ),
        (
            |m| m.expires = "2027-02-29".into(),
            "expires: `2027-02-29` is not a day",
        ),
        (
            |m| m.expires = "2027-13-01".into(),
            "expires: `2027-13-01` is not a day",
        ),
        (
            |m| m.expires = "2027-3-1".into(),
            "expires: `2027-3-1` is not a day",
        ),
        (
            |m| m.expires = "+027-03-01".into(),
            "expires: `+027-03-01` is not a day",
        ),
        (
            |m| m.canary = "agnhost".into(),
            "canary: `agnhost` is not an image with a tag or a digest",
        ),
        (
            |m| m.canary = "registry:5000/agnhost".into(),
            "canary: `registry:5000/agnhost` is not",
        ),
        (
            |m| m.canary = "agnhost:1 --privileged".into(),
            "canary: `agnhost:1 --privileged` is not",
        ),
        (
            |m| m.files[1].name = "kubelet.exe".into(),
            "files[1].name: `kubelet.exe` is there twice",
        ),
        (
            |m| m.files[1].destination = "KUBELET.exe".into(),
            "files[1].destination: `KUBELET.exe`",
        ),
        (
            |m| m.files[0].destination = r"..\x".into(),
            "files[0].destination: `..\\x` is not a path",
        ),
        (
            |m| m.files[0].sha256 = "AB".repeat(32),
            "files[0].sha256: `ABAB",
        ),
        (|m| m.files[0].size = 0, "files[0].size: 0 is not in"),
    ];
    for (change, wanted) in table {
        let mut manifest = manifest();
        change(&mut manifest);
        let problems = manifest.check().expect_err(wanted).to_string();
        assert!(problems.starts_with(wanted), "{problems}");
    }
    let unknown = Manifest::parse("version: 1.0\nkubelett: 1.36\n").expect_err("refused");
    assert!(unknown.to_string().contains("kubelett"), "{unknown}");
}

#[test]
fn files_are_compared_with_the_manifest() {
    let manifest = manifest();
    let good = Folder(vec![
        ("kubelet.exe", "kubelet.exe"),
        ("containerd.exe", "containerd.exe"),
    ]);
    assert_eq!(manifest.verify(&good), Ok(()));
    let bad = Folder(vec![("kubelet.exe", "KUBELET.EXE")]);
    let problems = manifest.verify(&bad).expect_err("two problems").to_string();
    assert!(
        problems.contains("files.kubelet.exe: SHA-256"),
        "{problems}"
    );
    assert!(
        problems.contains("files.containerd.exe: not there"),
        "{problems}"
    );
    let short = Folder(vec![
        ("kubelet.exe", "k"),
        ("containerd.exe", "containerd.exe"),
    ]);
    let problems = manifest
        .verify(&short)
        .expect_err("one problem")
        .to_string();
    assert_eq!(problems, "files.kubelet.exe: 1 bytes, the manifest says 11");
}

#[test]
fn a_payload_expires_when_its_day_begins() {
    let mut manifest = manifest();
    let before = manifest.hash();
    assert!(!manifest.expired("9999-12-31"), "it names no day");
    manifest.expires = "2028-02-29".into();
    manifest.check().expect("2028 is a leap year");
    assert_ne!(manifest.hash(), before);
    let text = yaml::to_string(&manifest).expect("YAML");
    assert_eq!(Manifest::parse(&text), Ok(manifest.clone()));
    let table = [
        ("2027-12-31", false),
        ("2028-02-28", false),
        ("2028-02-29", true),
        ("2028-10-01", true),
    ];
    for (today, expired) in table {
        assert_eq!(manifest.expired(today), expired, "{today}");
    }
}

#[test]
fn a_rollout_goes_along_an_edge_only() {
    let manifest = manifest();
    assert!(manifest.follows("10.22.1") && manifest.follows("11.0.0"));
    assert!(!manifest.follows("10.21.0") && !manifest.follows(""));
    assert!(manifest.fits("10.0.20348", "aws") && !manifest.fits("10.0.17763", "aws"));
}

#[test]
fn a_kubelet_keeps_to_the_skew_policy() {
    assert_eq!(check_skew(36, 36, 37), Ok(()));
    assert_eq!(check_skew(34, 36, 37), Ok(()));
    let new = SkewError::TooNew {
        kubelet: 37,
        api_server: 36,
    };
    assert_eq!(check_skew(37, 36, 37), Err(new));
    let old = SkewError::TooOld {
        kubelet: 33,
        api_server: 37,
    };
    assert_eq!(check_skew(33, 36, 37), Err(old));
}

#[test]
fn order_does_not_count_and_content_does() {
    let mut turned = manifest();
    turned.files.reverse();
    assert_eq!(turned.hash(), manifest().hash());
    assert_eq!(turned.folder(), manifest().folder());
    assert!(manifest().folder().starts_with("11.0.0-"));
    turned.files[0].sha256 = "ab".repeat(32);
    assert_ne!(turned.folder(), manifest().folder());
}

#[test]
fn a_canary_is_an_image_with_a_tag_or_a_digest() {
    for image in [
        "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
        "registry:5000/mirror/agnhost:2.63.0",
        "agnhost@sha256:0123",
    ] {
        let mut manifest = manifest();
        manifest.canary = image.into();
        manifest.check().expect(image);
        let text = yaml::to_string(&manifest).expect("YAML");
        assert_eq!(Manifest::parse(&text), Ok(manifest));
    }
}
