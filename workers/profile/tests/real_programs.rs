//! The documents of the support table, read by the programs themselves: the kubelet's and kube-proxy's own packages, built
//! for Windows and run on Wine, `kube-log-runner.exe`, and containerd.
//!
//! That takes minutes, so it is a part of the tier `long`. `golden/read-kubernetes.txt` and
//! `golden/read-containerd.txt` say which documents were read; a change of them fails here until the part has run again.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use dormer_testkit::{
    Containerd, KubernetesReader, Wine, containerds, kubernetes_readers, long, started, test_dir,
};
use expect_test::expect_file;
use serde_json::{Value, json};

use crate::support::node::{
    CONTAINERDS, KUBELETS, NODE, Node, PLATFORMS, SERVER_2022, command, file,
};

const LOGS: &str = "variables: {LOG_FILE_SIZE: 100Mi, LOG_FILE_AGE: 168h, LOG_FLUSH_INTERVAL: 5s}";

/// Configuration of the two programs of Kubernetes: files by name.
type Case = BTreeMap<&'static str, String>;

/// Every document that the support table comes to: the kubelet's minor and a case; containerd's release and its file.
struct Rendered {
    kubernetes: BTreeMap<String, (&'static str, Case)>,
    containerd: BTreeMap<String, (&'static str, String)>,
    /// What is before the kubelet on the command line, by its minor.
    log_runner: BTreeMap<&'static str, String>,
}

fn rendered() -> Rendered {
    let mut kubernetes = BTreeMap::new();
    let mut containerd = BTreeMap::new();
    let mut log_runner = BTreeMap::new();
    for profile in ["openshift", "upstream"] {
        for platform in PLATFORMS {
            for kubelet in KUBELETS {
                for release in CONTAINERDS
                    .into_iter()
                    .filter(|release| !release.is_empty())
                {
                    let node = Node {
                        profile,
                        platform,
                        kubelet,
                        containerd: release,
                        build: SERVER_2022,
                        layer: LOGS,
                        ..NODE
                    };
                    let documents = node.rendered();
                    let toml = file(&documents, r"C:\k\containerd\containerd_conf.toml");
                    let name = format!("{profile}-{platform}-{release}");
                    containerd.insert(name, (release, toml.expect("containerd's file")));
                    // containerd's release changes nothing for the two others.
                    let line = command(&documents, "kubelet");
                    let (before, words) = line.split_once("kubelet.exe ").expect("the kubelet");
                    let words: Vec<&str> = words.split(' ').collect();
                    let mut case = Case::new();
                    let config = file(&documents, r"C:\k\kubelet.conf").expect("its file");
                    case.insert("kubelet.conf", config);
                    case.insert("kubelet.json", json!(words).to_string());
                    if let Some(config) = file(&documents, r"C:\k\kube-proxy.conf") {
                        let config = config.replace("@{HNS_SUBNET}", "10.132.1.0/24");
                        let config = config.replace("@{HNS_ENDPOINT_IP}", "10.132.1.2");
                        case.insert("kube-proxy.conf", config);
                    }
                    log_runner.insert(kubelet, before.to_owned());
                    let name = format!("{profile}-{platform}-{kubelet}");
                    let known = kubernetes.insert(name.clone(), (kubelet, case.clone()));
                    assert!(known.is_none_or(|(_, known)| known == case), "{name}");
                }
            }
        }
    }
    Rendered {
        kubernetes,
        containerd,
        log_runner,
    }
}

/// Which program of those that are pinned reads what is for a release: its own, else the next newer one.
fn reader<'a, T>(all: &'a [T], version: impl Fn(&T) -> &'static str, release: &str) -> &'a T {
    let number = |text: &str| -> Vec<u32> {
        let parts = text.split('.').take(2);
        parts.filter_map(|part| part.parse().ok()).collect()
    };
    let newer = |one: &&T| number(version(one)) >= number(release);
    all.iter().find(newer).or(all.last()).expect("a program")
}

/// What was read: it changes with every byte of a document, and with the programs.
fn record(documents: usize, text: &str, programs: &str) -> String {
    format!(
        "Written by `UPDATE_EXPECT=1 cargo tier long configurations`, after every program has read every document.\n\n\
         documents: {documents}\nSHA-256 of all: {}\nread by: {programs}\n",
        dormer_profile::sha256_hex(text.as_bytes())
    )
}

/// The documents of the kubelet and of kube-proxy, for `golden/read-kubernetes.txt`.
fn record_of_kubernetes(rendered: &Rendered) -> String {
    let mut text = String::new();
    for (name, (_, case)) in &rendered.kubernetes {
        let _ = writeln!(text, "{name} {case:?}");
    }
    let _ = writeln!(text, "{:?}", rendered.log_runner);
    let programs = "Kubernetes 1.33.13, 1.34.4, 1.35.4, 1.36.3 and 1.37.2";
    record(rendered.kubernetes.len(), &text, programs)
}

/// The documents of containerd, for `golden/read-containerd.txt`.
fn record_of_containerd(rendered: &Rendered) -> String {
    let mut text = String::new();
    for (name, (_, toml)) in &rendered.containerd {
        let _ = writeln!(text, "{name} {toml:?}");
    }
    let programs = "containerd 1.7.35, 2.3.7 and 2.4.2";
    record(rendered.containerd.len(), &text, programs)
}

/// A change of a document is a change that the real programs have not read.
#[test]
fn every_document_was_read_by_the_real_programs() {
    let rendered = rendered();
    let both = [
        (
            include_str!("golden/read-kubernetes.txt"),
            record_of_kubernetes(&rendered),
        ),
        (
            include_str!("golden/read-containerd.txt"),
            record_of_containerd(&rendered),
        ),
    ];
    for (read, record) in both {
        assert_eq!(
            read, record,
            "the documents changed: UPDATE_EXPECT=1 cargo tier long configurations"
        );
    }
}

/// Runs the reader of one Kubernetes over cases, under its own `kube-log-runner.exe` with the flags of the service;
/// answers what it says.
fn read(
    wine: &Wine,
    reader: &KubernetesReader,
    cases: &[(&String, &Case)],
    log_runner: &BTreeMap<&str, String>,
) -> String {
    let folder = format!(r"C:\{}", reader.version);
    let put = |path: &str, text: &str| {
        let path = wine.file(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    put(r"C:\var\log\kubelet\kubelet.log", "");
    put(&format!(r"{folder}\cases\empty\none"), "");
    for (program, path) in [
        (&reader.read, "read.exe"),
        (&reader.log_runner, "runner.exe"),
    ] {
        let path = format!(r"{folder}\{path}");
        wine.install(program, &path).expect("installed");
    }
    for (name, case) in cases {
        for (file, text) in *case {
            put(&format!(r"{folder}\cases\{name}\{file}"), text);
        }
    }
    let minor = reader.version.rsplit_once('.').map(|(minor, _)| minor);
    let flags = &log_runner[minor.expect("a version")];
    let flags = flags.split(' ').filter(|word| word.starts_with('-'));
    let mut run = wine.command(&format!(r"{folder}\runner.exe"));
    run.args(flags)
        .arg(format!(r"{folder}\read.exe"))
        .arg(format!(r"{folder}\cases"))
        .stdin(Stdio::null());
    let output = run.output().expect("Wine runs");
    let log = std::fs::read_to_string(wine.file(r"C:\var\log\kubelet\kubelet.log"));
    std::fs::remove_dir_all(wine.file(&format!(r"{folder}\cases"))).expect("cleared");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    log.expect("the log") + &said + &String::from_utf8_lossy(&output.stdout)
}

/// Mistakes that the programs themselves refuse: the case, the file, what is replaced by what, and their words.
fn mistakes() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    vec![
        (
            "1.33",
            "kubelet.conf",
            json!({"maxPodss": 1}),
            "unknown field",
        ),
        (
            "1.37",
            "kubelet.conf",
            json!({"maxPodss": 1}),
            "unknown field",
        ),
        (
            "1.33",
            "kubelet.conf",
            json!({"maxPods": "x"}),
            "cannot unmarshal",
        ),
        // Row 6.
        (
            "1.37",
            "kubelet.conf",
            json!({"shutdownGracePeriodCriticalPods": "90s"}),
            "shutdownGracePeriodCriticalPods",
        ),
        // Row 9, each by the first release that no longer knows it.
        (
            "1.34",
            "kubelet.json",
            json!(["--cloud-config=x"]),
            "unknown flag: --cloud-config",
        ),
        (
            "1.35",
            "kubelet.json",
            json!(["--pod-infra-container-image=x"]),
            "unknown flag: --pod-infra",
        ),
        // Row 7, by the first release that has it locked, and by the newest.
        (
            "1.34",
            "kube-proxy.conf",
            json!({"featureGates": {"WinDSR": false}}),
            "WinDSR",
        ),
        (
            "1.37",
            "kube-proxy.conf",
            json!({"featureGates": {"WinDSR": false}}),
            "WinDSR",
        ),
        (
            "1.33",
            "kube-proxy.conf",
            json!({"winkernel": {"enableDsr": true}}),
            "unknown field",
        ),
        (
            "1.37",
            "kubelet.conf",
            json!({"featureGates": {"NodeSwapp": true}}),
            "NodeSwapp",
        ),
        (
            "1.37",
            "kubelet.json",
            json!(["--feature-gates=ImageVolume=false"]),
            "ImageVolume",
        ),
        (
            "1.33",
            "kubelet.json",
            json!(["--max-podss=9"]),
            "unknown flag: --max-podss",
        ),
        (
            "1.37",
            "kubelet.json",
            json!(["--max-pods=many"]),
            "invalid argument",
        ),
        (
            "1.37",
            "kubelet.json",
            json!(["-config=x"]),
            "unknown shorthand flag",
        ),
        (
            "1.37",
            "kube-proxy.conf",
            json!({"mode": "kernel"}),
            "must be kernelspace",
        ),
    ]
}

#[test]
fn real_kubernetes_reads_every_document_and_refuses_mistakes() {
    let part = long!("configurations");
    let readers = match kubernetes_readers() {
        Ok(readers) => readers,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let wine = started!(Wine::start());
    let rendered = rendered();
    let mut count = 0;
    for one in &readers {
        let mut cases: Vec<_> = Vec::new();
        for (name, (release, case)) in &rendered.kubernetes {
            if reader(&readers, |one| one.version, release).version == one.version {
                cases.push((name, case));
            }
        }
        let files: usize = cases.iter().map(|(_, case)| case.len()).sum();
        let said = read(&wine, one, &cases, &rendered.log_runner);
        let wanted = format!("read {files}, refused 0");
        assert!(
            said.lines().any(|line| line == wanted),
            "{}: {said}",
            one.version
        );
        assert!(
            !said.contains("refused openshift") && !said.contains("refused upstream"),
            "{said}"
        );
        count += files;
    }
    for (release, file, change, wanted) in mistakes() {
        let (_, case) = &rendered.kubernetes[&format!("openshift-azure-{release}")];
        let mut case = case.clone();
        let mut whole: Value = serde_json::from_str(&case[file]).expect("JSON");
        match (&mut whole, change) {
            (Value::Array(all), Value::Array(more)) => all.extend(more),
            (Value::Object(all), Value::Object(more)) => all.extend(more),
            other => panic!("{other:?}"),
        }
        case.insert(file, whole.to_string());
        let one = reader(&readers, |one| one.version, release);
        let name = "mistake".to_owned();
        let said = read(&wine, one, &[(&name, &case)], &rendered.log_runner);
        let refused = format!("refused mistake {file}: ");
        let told = said.lines().find(|line| line.starts_with(&refused));
        let told = told.unwrap_or_else(|| panic!("{release} {whole} was taken: {said}"));
        assert!(told.contains(wanted), "wanted {wanted}, told {told}");
    }
    // docs/settings.md names this gate as one that every release knows.
    for one in [&readers[0], &readers[readers.len() - 1]] {
        let name = "taken".to_owned();
        let mut case = Case::new();
        for (file, kind) in [
            ("kubelet.conf", "kubelet.config.k8s.io/v1beta1"),
            ("kube-proxy.conf", "kubeproxy.config.k8s.io/v1alpha1"),
        ] {
            let release = one.version.rsplit_once('.').expect("a version").0;
            let (_, rendered) = &rendered.kubernetes[&format!("openshift-azure-{release}")];
            let mut whole: Value = serde_json::from_str(&rendered[file]).expect("JSON");
            assert_eq!(whole["apiVersion"], kind);
            whole["featureGates"]["ContextualLogging"] = json!(true);
            whole["logging"] = json!({"format": "json"});
            case.insert(file, whole.to_string());
        }
        let said = read(&wine, one, &[(&name, &case)], &rendered.log_runner);
        assert!(
            said.contains("read 2, refused 0"),
            "{}: {said}",
            one.version
        );
    }
    // Rows 8 and 17: the service's flags of 1.34 before the kubelet of 1.33, and a wrong length of time.
    let flags = &rendered.log_runner["1.34"];
    let wrong = [
        (
            "1.33",
            flags.clone(),
            "flag provided but not defined: -log-file-size",
        ),
        (
            "1.34",
            flags.replace("168h", "notaduration"),
            "invalid value \"notaduration\" for flag -log-file-age",
        ),
    ];
    for (release, flags, wanted) in &wrong {
        let one = reader(&readers, |one| one.version, release);
        let (name, (_, case)) = rendered.kubernetes.iter().next().expect("a case");
        let flags = BTreeMap::from([(*release, flags.clone())]);
        let said = read(&wine, one, &[(name, case)], &flags);
        assert!(said.contains(wanted), "wanted {wanted}, told {said}");
    }
    part.passed(&[
        ("files", count.to_string()),
        ("mistakes", (mistakes().len() + wrong.len()).to_string()),
    ]);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let record = record_of_kubernetes(&rendered);
        expect_file!["golden/read-kubernetes.txt"].assert_eq(&record);
    }
}

/// What `containerd config dump` says of a file: its configuration with every default, and its warnings.
fn dumped(
    containerd: &Containerd,
    folder: &Path,
    text: &str,
) -> Result<(toml::Table, String), String> {
    let path = folder.join("config.toml");
    std::fs::write(&path, text).expect("written");
    let output = Command::new(&containerd.program)
        .arg("--config")
        .arg(&path)
        .args(["config", "dump"])
        .stdin(Stdio::null())
        .output()
        .expect("containerd runs");
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(warned + &String::from_utf8_lossy(&output.stdout));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok((text.parse().expect("TOML"), warned))
}

/// Every value of a file that containerd has not taken over: it is not in its whole configuration, or another there.
fn lost(wanted: &toml::Value, there: Option<&toml::Value>, at: &str, found: &mut Vec<String>) {
    match (wanted, there) {
        (toml::Value::Table(wanted), Some(toml::Value::Table(there))) => {
            for (key, value) in wanted {
                lost(value, there.get(key), &format!("{at}/{key}"), found);
            }
        }
        (wanted, Some(there)) if wanted == there => {}
        (wanted, there) => found.push(format!("{at}: {wanted}, not {there:?}")),
    }
}

/// Whether a text is a value somewhere.
fn has(value: &toml::Value, text: &str) -> bool {
    match value {
        toml::Value::Table(table) => table.values().any(|value| has(value, text)),
        toml::Value::Array(all) => all.iter().any(|value| has(value, text)),
        value => value.as_str() == Some(text),
    }
}

/// Whether a containerd takes a file as it is meant; else why not.
fn taken(containerd: &Containerd, folder: &Path, text: &str) -> Result<(), String> {
    let (whole, warned) = dumped(containerd, folder, text)?;
    let mut wanted: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
    // The version is the newest in a dump; the pipe's place moved in 2.3 (cmd/containerd/command/config.go).
    wanted.remove("version");
    let grpc = wanted.remove("grpc").expect("a pipe");
    let address = grpc["address"].as_str().expect("a text");
    let mut found = Vec::new();
    if !has(&toml::Value::Table(whole.clone()), address) {
        found.push(format!("the pipe {address} is not there"));
    }
    lost(
        &toml::Value::Table(wanted),
        Some(&toml::Value::Table(whole)),
        "",
        &mut found,
    );
    // Version 3 is what 2.0 to 2.2 read; newer ones translate it.
    let bad = |line: &&str| {
        (line.contains("level=warning") || line.contains("level=error"))
            && !line.contains("Configuration migrated from version 3")
    };
    found.extend(warned.lines().filter(bad).map(str::to_owned));
    if found.is_empty() {
        Ok(())
    } else {
        Err(found.join("\n"))
    }
}

#[test]
fn real_containerd_reads_every_document_and_refuses_mistakes() {
    let part = long!("configurations");
    let containerds = match containerds() {
        Ok(found) => found,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let folder = test_dir("containerd");
    let rendered = rendered();
    let of = |release: &str| reader(&containerds, |one| one.version, release);
    let mut known: Vec<(&str, &String)> = Vec::new();
    for (name, (release, text)) in &rendered.containerd {
        let containerd = of(release);
        if known.contains(&(containerd.version, text)) {
            continue;
        }
        match taken(containerd, folder.path(), text) {
            Ok(()) => {}
            // 2.3 reads `bin_dir` of 2.0 still, and says that it is deprecated: the document is for 2.0 alone.
            Err(why) if *release == "2.0" && why.lines().all(|line| line.contains("bin_dir")) => {}
            Err(why) => panic!("{name} by {}: {why}", containerd.version),
        }
        known.push((containerd.version, text));
    }
    // A document for another release, and a word that no release knows, by row.
    let text = |release: &str| &rendered.containerd[&format!("openshift-azure-{release}")].1;
    let table = [
        (1, "2.4", text("2.0").clone(), "bin_dir"),
        (
            1,
            "1.7",
            text("1.7").replace("bin_dir ", "bin_dirs "),
            "bin_dir",
        ),
        (2, "1.7", text("2.1").clone(), "version"),
        (
            3,
            "2.4",
            text("2.4").replace("disable = true", "disabled = true"),
            "disable",
        ),
        (
            4,
            "2.4",
            text("2.4").replace("runtime_path", "runtimepath"),
            "runtimepath",
        ),
        (
            5,
            "2.4",
            text("2.4").replace(".pinned_images]", ".pinned]"),
            "pinned",
        ),
        (
            5,
            "1.7",
            text("1.7").replace("sandbox_image", "sandbox"),
            "sandbox",
        ),
        (
            19,
            "2.4",
            text("2.4").replace("config_path", "configpath"),
            "configpath",
        ),
        (
            19,
            "1.7",
            text("1.7").replace("config_path", "configpath"),
            "configpath",
        ),
    ];
    for (row, release, text, wanted) in &table {
        let why = taken(of(release), folder.path(), text).expect_err(wanted);
        assert!(
            why.contains(wanted),
            "row {row}: wanted {wanted}, told {why}"
        );
    }
    for release in ["2.3", "2.4"] {
        old_file_is_translated(of(release), folder.path(), text("1.7"));
    }
    part.passed(&[
        ("files", known.len().to_string()),
        ("mistakes", table.len().to_string()),
    ]);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let record = record_of_containerd(&rendered);
        expect_file!["golden/read-containerd.txt"].assert_eq(&record);
    }
}

/// A manifest without `containerd:` counts as 1.7 (docs/settings.md), and a later containerd translates that file.
fn old_file_is_translated(containerd: &Containerd, folder: &Path, text: &str) {
    let config: toml::Table = text.parse().expect("TOML");
    let cri = &config["plugins"]["io.containerd.grpc.v1.cri"];
    let shim = &cri["containerd"]["runtimes"]["runhcs-wcow-process"]["runtime_path"];
    let (whole, _) = dumped(containerd, folder, text).expect("it is read");
    let whole = toml::Value::Table(whole);
    let cni = ["bin_dir", "conf_dir"].map(|key| &cri["cni"][key]);
    for value in [cni[0], cni[1], shim, &cri["sandbox_image"]] {
        let value = value.as_str().expect("a text");
        let version = containerd.version;
        assert!(has(&whole, value), "{version} has lost {value}");
    }
}

/// Introductions of the tables of what the programs know, by the first word of a line that `read.exe known` prints.
const TABLES: [(&str, &str); 4] = [
    ("kubelet-field", "Fields of KubeletConfiguration"),
    ("kube-proxy-field", "Fields of KubeProxyConfiguration"),
    ("kubelet-flag", "Flags of the kubelet on Windows"),
    ("gate", "Feature gates of the kubelet and of kube-proxy"),
];

/// A table of `workers/profile/src/settings`: each name with its values, the first of which is that of the oldest release.
fn table(word: &str, title: &str, said: &[(u32, String)]) -> String {
    let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for (at, (minor, text)) in said.iter().enumerate() {
        let lines = text.lines().filter_map(|line| line.strip_prefix(word));
        let now: BTreeMap<&str, &str> = lines
            .filter_map(|line| line.strip_prefix(' ')?.split_once(' '))
            .collect();
        let before: Vec<&str> = last.keys().copied().collect();
        for name in before.into_iter().chain(now.keys().copied()) {
            let value = now.get(name).copied().unwrap_or("-");
            if last.insert(name, value) == Some(value) {
                continue;
            }
            let since = match at {
                0 => value.to_owned(),
                _ => format!("{minor}:{value}"),
            };
            names.entry(name).or_default().push(since);
        }
    }
    let mut page = format!(
        "# {title} in Kubernetes 1.33.13, 1.34.4, 1.35.4, 1.36.3 and 1.37.2.\n\
         # Written by `UPDATE_EXPECT=1 cargo tier long configurations` out of what `tests/servers/kubernetes-*/read` prints.\n\
         # Behind a name stands its type, or, of a gate, `free` or the value to which it is locked. What changed after 1.33\n\
         # follows as `minor:value`; `-` means that the release does not have it.\n"
    );
    for (name, values) in names {
        let _ = writeln!(page, "{name} {}", values.join(" "));
    }
    page
}

#[test]
fn real_kubernetes_knows_what_the_tables_say() {
    let part = long!("configurations");
    let readers = match kubernetes_readers() {
        Ok(readers) => readers,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let wine = started!(Wine::start());
    let known = |reader: &KubernetesReader| {
        let program = format!(r"C:\known\{}.exe", reader.version);
        let folder = wine.file(r"C:\known");
        std::fs::create_dir_all(folder).expect("made");
        wine.install(&reader.read, &program).expect("installed");
        let mut run = wine.command(&program);
        let output = run.arg("known").stdin(Stdio::null()).output();
        let text = String::from_utf8(output.expect("Wine runs").stdout).expect("text");
        let minor = reader
            .version
            .split('.')
            .nth(1)
            .and_then(|it| it.parse().ok());
        (minor.expect("a version"), text.replace('\r', ""))
    };
    let said: Vec<(u32, String)> = readers.iter().map(known).collect();
    let [kubelet_fields, kube_proxy_fields, kubelet_flags, gates] =
        TABLES.map(|(word, title)| table(word, title, &said));
    let names = kubelet_fields.lines().count() + kube_proxy_fields.lines().count();
    assert!(names > 200, "{names} fields");
    expect_file!["../src/settings/kubelet_fields.txt"].assert_eq(&kubelet_fields);
    expect_file!["../src/settings/kube_proxy_fields.txt"].assert_eq(&kube_proxy_fields);
    expect_file!["../src/settings/kubelet_flags.txt"].assert_eq(&kubelet_flags);
    expect_file!["../src/settings/gates.txt"].assert_eq(&gates);
    part.passed(&[
        ("fields", names.to_string()),
        ("flags", kubelet_flags.lines().count().to_string()),
        ("gates", gates.lines().count().to_string()),
    ]);
}
