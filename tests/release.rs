//! Files of a release, as `deploy/release.sh` makes them, and the workflow that calls it.

use dormer_profile::{sha256_hex, yaml};
use dormer_testkit::{AMD64, Helm, Skipped, full, skip, started, test_dir, windows_program};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `deploy/release.sh WORDS`.
fn release(words: &[&Path]) -> Output {
    let mut script = Command::new(root().join("deploy/release.sh"));
    let script = script.args(words).env_remove("MINISIGN_KEY");
    let script = script.env_remove("DORMER_SIGN_CERTIFICATE");
    script.output().expect("the script")
}

fn made(words: &[&Path]) {
    let done = release(words);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words:?}: {said}");
}

/// Files of an archive, with their modes.
fn packed(archive: &Path) -> Vec<(PathBuf, u32)> {
    let file = fs::File::open(archive).expect("an archive");
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let entries = archive.entries().expect("entries");
    let files = entries.filter_map(|entry| {
        let entry = entry.expect("an entry");
        let header = entry.header();
        let mode = header.mode().expect("a mode");
        let path = entry.path().expect("a path").into_owned();
        header.entry_type().is_file().then_some((path, mode))
    });
    files.collect()
}

#[test]
fn an_archive_has_the_programs_and_equal_inputs_give_equal_sums() {
    full!();
    let folder = test_dir("release");
    let [dormer, host, perform] =
        ["dormer", "host.exe", "perform.exe"].map(|name| folder.path().join(name));
    fs::write(&dormer, "program").expect("written");
    fs::write(&host, "MZ program").expect("written");
    fs::write(&perform, "MZ for rows").expect("written");
    let target = Path::new("aarch64-unknown-linux-musl");
    let sums = ["one", "two"].map(|name| {
        let out = folder.path().join(name);
        made(&[Path::new("archive"), &out, target, &dormer, &host, &perform]);
        made(&[Path::new("sums"), &out]);
        fs::read_to_string(out.join("SHA256SUMS")).expect("sums")
    });
    assert_eq!(sums[0], sums[1]);
    let name = format!("dormer-{}-aarch64", env!("CARGO_PKG_VERSION"));
    let archive = folder.path().join("one").join(format!("{name}.tar.gz"));
    let sum = sha256_hex(&fs::read(&archive).expect("an archive"));
    assert_eq!(sums[0], format!("{sum}  {name}.tar.gz\n"));
    let wanted = [
        ("LICENSE", 0o644),
        ("README.md", 0o644),
        ("dormer", 0o755),
        ("dormer-host-perform.exe", 0o644),
        ("dormer-host.exe", 0o644),
    ];
    let wanted = wanted.map(|(file, mode)| (Path::new(&name).join(file), mode));
    assert_eq!(packed(&archive), wanted);
}

#[test]
fn the_host_program_is_signed_where_a_certificate_is_given() {
    full!();
    let signs = Command::new("osslsigncode").arg("--version").output();
    if let Err(error) = signs {
        skip!(Skipped {
            server: "osslsigncode".to_owned(),
            reason: error.to_string(),
        });
    }
    let folder = test_dir("release");
    let [host, certificate, key] =
        ["dormer-host.exe", "certificate.pem", "key.pem"].map(|name| folder.path().join(name));
    let program = windows_program(AMD64, None);
    fs::write(&host, &program).expect("written");
    made(&[Path::new("sign"), &host]);
    assert!(
        fs::read(&host).expect("a file") == program,
        "no certificate"
    );

    let pair = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::CodeSigning];
    let own = params.self_signed(&pair).expect("a certificate");
    fs::write(&certificate, own.pem()).expect("written");
    fs::write(&key, pair.serialize_pem()).expect("written");
    let sign = |key: Option<&Path>| {
        let mut script = Command::new(root().join("deploy/release.sh"));
        let script = script.arg("sign").arg(&host);
        for variable in ["KEY", "PASSWORD", "TIMESTAMP"] {
            script.env_remove(format!("DORMER_SIGN_{variable}"));
        }
        let script = script.env("DORMER_SIGN_CERTIFICATE", &certificate);
        let script = script.envs(key.map(|key| ("DORMER_SIGN_KEY", key)));
        script.output().expect("the script")
    };
    let refused = sign(None);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("DORMER_SIGN_KEY"),
        "{said}"
    );
    let done = sign(Some(&key));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let verified = || {
        let mut verify = Command::new("osslsigncode");
        let verify = verify.arg("verify").arg("-CAfile").arg(&certificate);
        let verify = verify.arg("-in").arg(&host).output();
        verify.expect("osslsigncode").status.success()
    };
    assert!(verified());
    let mut changed = fs::read(&host).expect("a file");
    // In the machine's kind, which the signature covers.
    changed[0x44] ^= 1;
    fs::write(&host, changed).expect("written");
    assert!(!verified(), "a changed program");
}

#[test]
fn the_chart_of_a_release_starts_the_host_program_of_that_release_alone() {
    let helm = started!(Helm::start());
    let folder = test_dir("release");
    let host = folder.path().join("dormer-host.exe");
    fs::write(&host, "MZ program").expect("written");
    made(&[Path::new("chart"), folder.path(), &host]);
    let chart = format!("dormer-chart-{}.tgz", env!("CARGO_PKG_VERSION"));
    let rendered = helm.template(&folder.path().join(chart), &["--namespace=dormer"]);
    let rendered = rendered.expect("a chart");
    let sum = sha256_hex(b"MZ program");
    let argument = format!("--host-program-sha256={sum}");
    assert!(rendered.contains(&argument), "{rendered}");
    // The same for people without Helm: as the chart puts it, and nothing else is changed.
    let program = "            - --host-program=/usr/share/dormer/dormer-host.exe\n";
    let committed = fs::read_to_string(root().join("deploy/install.yaml")).expect("text");
    assert_eq!(committed.matches(program).count(), 1);
    let wanted = committed.replace(program, &format!("{program}            - {argument}\n"));
    let released = fs::read_to_string(folder.path().join("install.yaml")).expect("text");
    assert!(released == wanted, "{released}");
}

/// Words of a command that name a file of the repository: those with a slash whose first part is a folder of it.
fn named(command: &str) -> BTreeSet<&str> {
    let words = command.split(|c: char| c.is_whitespace() || "'\"<>|;&()".contains(c));
    let ours = words.filter(|word| {
        let first = word.split_once('/').map(|(first, _)| first);
        first.is_some_and(|first| !first.is_empty() && root().join(first).is_dir())
    });
    ours.collect()
}

#[test]
fn every_file_that_a_workflow_names_is_there() {
    let mut found = BTreeSet::new();
    for file in fs::read_dir(root().join(".github/workflows")).expect("workflows") {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("text");
        let workflow: Value = yaml::from_str(&text).expect("YAML");
        let jobs = workflow["jobs"].as_object().expect("jobs");
        for job in jobs.values() {
            let needs = job["needs"].as_str();
            assert!(needs.is_none_or(|it| jobs.contains_key(it)), "{needs:?}");
            let steps = job["steps"].as_array().expect("steps");
            let commands = steps.iter().filter_map(|step| step["run"].as_str());
            for command in commands.clone() {
                let checked = Command::new("bash").args(["-n", "-c", command]).status();
                assert!(checked.expect("bash").success(), "{command}");
            }
            for word in commands
                .flat_map(named)
                .filter(|it| !it.starts_with("target/"))
            {
                assert!(root().join(word).exists(), "{}: {word}", path.display());
                found.insert(word.to_owned());
            }
        }
    }
    for script in [
        "deploy/image/build.sh",
        "deploy/release.sh",
        "workers/host/win32/build.sh",
    ] {
        assert!(found.contains(script), "{script}: {found:?}");
    }
}

#[test]
fn a_windows_runners_compiler_gets_debians_name_in_its_own_folder() {
    let text = fs::read_to_string(root().join(".github/workflows/windows.yml")).expect("text");
    let workflow: Value = yaml::from_str(&text).expect("YAML");
    let steps = workflow["jobs"]["contract"]["steps"].as_array();
    let mut steps = steps.expect("steps").iter();
    let step = steps.find(|step| step["name"] == "the tools under Debian's names");
    let command = step
        .and_then(|step| step["run"].as_str())
        .expect("commands");
    let mingw = test_dir("mingw");
    let tools = ["gcc", "windres", "dlltool"];
    for tool in tools {
        // Git's bash finds a program by its name without the ending.
        let program = mingw.path().join(tool);
        fs::write(&program, "").expect("a file");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::write(mingw.path().join(format!("{tool}.exe")), tool).expect("a file");
    }
    let elsewhere = test_dir("runner");
    let path = std::env::var("PATH").expect("a PATH");
    let done = Command::new("bash")
        .args(["-eo", "pipefail", "-c", command])
        .env("PATH", format!("{}:{path}", mingw.path().display()))
        .env("GITHUB_PATH", elsewhere.path().join("path"))
        .current_dir(elsewhere.path())
        .output()
        .expect("bash");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    for tool in tools {
        let named = mingw.path().join(format!("x86_64-w64-mingw32-{tool}.exe"));
        assert_eq!(fs::read_to_string(&named).ok().as_deref(), Some(tool));
    }
}
