//! `dormer profile` on the command line: schemas, renderings without a running dormer, and mistakes with their
//! location.

use dormer_testkit::{TempDir, test_dir};
use serde_json::Value;
use std::process::{Command, Output};

fn dormer(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormer"));
    command
        .args(["profile"])
        .args(arguments)
        .output()
        .expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(arguments: &[&str]) -> Value {
    let output = dormer(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn rendered(arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["render", "-o", "json"]
        .into_iter()
        .chain(arguments.to_vec())
        .collect();
    json(&all)
}

/// A folder with one file.
fn file(content: &str) -> (TempDir, String) {
    let folder = test_dir("profile");
    let path = folder.path().join("file.yaml");
    std::fs::write(&path, content).expect("written");
    (folder, path.display().to_string())
}

fn items(rendered: &Value, section: &str) -> Vec<Value> {
    rendered[section]["items"]
        .as_array()
        .expect("items")
        .clone()
}

fn item(rendered: &Value, section: &str, id: &str) -> Value {
    let found = items(rendered, section)
        .into_iter()
        .find(|item| item["id"] == id);
    found.unwrap_or_else(|| panic!("{section} has no {id}"))
}

#[test]
fn every_document_that_people_write_has_a_schema() {
    let profile = json(&["schema"]);
    assert!(profile["properties"]["host"].is_object(), "{profile}");
    let services = &profile["$defs"]["SectionSpec"]["properties"]["services"];
    let entries = services["additionalProperties"]["anyOf"]
        .as_array()
        .expect("either or");
    assert!(
        entries.iter().any(|one| one["type"] == "null"),
        "null removes: {services}"
    );
    assert_eq!(
        profile["$defs"]["ServiceSpec"]["additionalProperties"],
        false
    );
    for (of, field) in [
        ("payload", "may_follow"),
        ("facts", "node_ip"),
        ("document", "items"),
    ] {
        let schema = json(&["schema", of]);
        assert!(schema["properties"][field].is_object(), "{of}: {schema}");
    }
}

#[test]
fn a_node_is_rendered_in_two_sections_for_each_platform() {
    let aws = rendered(&["--platform", "aws"]);
    let kubelet = item(&aws, "host", "service:kubelet");
    let command = kubelet["command"].as_str().expect("a command line");
    assert!(command.contains("--cloud-provider=external"), "{command}");
    assert!(
        command.contains("--hostname-override=win-example"),
        "{command}"
    );
    assert!(
        items(&aws, "node")
            .iter()
            .any(|item| item["id"] == "service:kube-proxy")
    );
    let none = rendered(&[]);
    let command = item(&none, "host", "service:kubelet")["command"].to_string();
    assert!(!command.contains("--cloud-provider"), "{command}");
    let vsphere = rendered(&["--platform", "vsphere"]);
    assert_eq!(item(&vsphere, "host", "hostname")["name"], "win-example");
    assert_eq!(none["profile"], "openshift");
    assert_eq!(
        aws["version"], none["version"],
        "a platform is a machine's value, no version"
    );
    let upstream = rendered(&["--profile", "upstream", "--section", "host"]);
    assert!(upstream["host"].is_object() && upstream["node"].is_null());
}

#[test]
fn people_read_texts_and_never_a_secret() {
    let output = dormer(&["render"]);
    let yaml = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        yaml.contains("${secret:bootstrap-kubeconfig}") && yaml.contains("KubeletConfiguration")
    );
    assert!(!yaml.contains("base64"), "{yaml}");
    let none = rendered(&[]);
    assert!(
        !items(&none, "host")
            .iter()
            .any(|item| item["id"] == "service:windows_exporter")
    );
}

#[test]
fn facts_and_layers_are_a_persons_own() {
    let (_folder, facts) = file("node_ip: 10.1.2.3\nwindows_build: 10.0.17763\n");
    let own = rendered(&["--platform", "azure", "--facts", &facts]);
    let command = item(&own, "host", "service:kubelet")["command"].to_string();
    assert!(command.contains("--node-ip=10.1.2.3"), "{command}");
    let (_folder, layer) = file(
        "host:\n  services:\n    kubelet:\n      environment: {TEAM: blue}\n  firewall:\n    \
         mine: {port: 9999}\n",
    );
    let layered = rendered(&["--layer", &layer]);
    assert_eq!(
        item(&layered, "host", "service:kubelet")["environment"]["TEAM"],
        "blue"
    );
    assert_eq!(item(&layered, "host", "firewall:mine")["port"], 9_999);
    assert_ne!(
        layered["version"],
        rendered(&[])["version"],
        "a layer makes another version"
    );
}

#[test]
fn a_mistake_in_a_profile_is_reported_with_location_and_reason() {
    let table = [
        (
            "host: {services: {a: {command: [x], depends: [b]}, b: {command: [x], depends: [a]}}}",
            "services: a → b → a is a circle",
        ),
        (
            "host: {hostname: '${NOPE}'}",
            "host.hostname: there is no variable `NOPE`",
        ),
        (
            "host: {files: {'C:\\k\\X': {content: a}, 'c:\\k\\x': {content: b}}}",
            "host.files.c:\\k\\x: is the same path as host.files.C:\\k\\X",
        ),
        (
            "host:\n  firewal: {}\n",
            "line 2 column 3: host: unknown field `firewal`",
        ),
        (
            "host: {files: {'C:\\a': {content: '${secret:mine}'}}}",
            "host: files.C:\\a: no secret `mine`",
        ),
        (
            "host: {payload: {nothing.exe: {}}}",
            "payload.nothing.exe: the payload has no such file",
        ),
    ];
    for (layer, wanted) in table {
        let (_folder, path) = file(layer);
        let output = dormer(&["render", "--layer", &path]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{layer}: {said}");
        assert!(
            said.contains(wanted),
            "{layer}\nsaid: {said}\nwanted: {wanted}"
        );
    }
    let (folder, _) = file("");
    let manifest = "version: 11.0.0\nkubelet: '1.33'\nwindows_builds: [10.0.20348]\nfiles:\n- \
                    {name: kubelet.exe, sha256: ABC, size: 1, destination: kubelet.exe}\n";
    std::fs::write(folder.path().join("payload.yaml"), manifest).expect("written");
    let output = dormer(&["render", "--payload", &folder.path().display().to_string()]);
    let said = text(&output.stderr);
    assert!(
        said.contains("payload.yaml: files[0].sha256: `ABC` is not 64"),
        "{said}"
    );
    let output = dormer(&["render", "--profile", "gentoo"]);
    assert!(
        text(&output.stderr).contains("no profile is named gentoo"),
        "names what there is"
    );
}

#[test]
fn a_secret_that_a_layer_needs_can_be_said_to_exist() {
    let (_folder, layer) = file("host: {files: {'C:\\a': {content: '<${secret:mine}>'}}}");
    let named = rendered(&["--layer", &layer, "--secret", "mine"]);
    assert_eq!(
        item(&named, "host", "file:C:\\a")["source"]["text"],
        "<${secret:mine}>"
    );
    let (_other, content) = file("hello");
    let said = format!("mine={content}");
    let given = rendered(&["--layer", &layer, "--secret", &said]);
    assert_eq!(
        item(&given, "host", "file:C:\\a")["source"]["text"],
        "<hello>"
    );
}

#[test]
fn releases_that_no_payload_says_are_named() {
    let told = "dormer: no --payload, so this is for kubelet 1.33 and containerd 1.7\n";
    for arguments in [
        &["render"][..],
        &["render", "--section", "host", "-o", "document"],
    ] {
        let output = dormer(arguments);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(text(&output.stderr), told);
    }
    let folder = test_dir("payload");
    let manifest = dormer_profile::render::EXAMPLE_PAYLOAD;
    std::fs::write(folder.path().join("payload.yaml"), manifest).expect("written");
    let output = dormer(&["render", "--payload", &folder.path().display().to_string()]);
    assert_eq!(
        (output.status.success(), text(&output.stderr)),
        (true, String::new())
    );
}

#[test]
fn a_document_is_what_the_program_on_a_host_reads() {
    use dormer_profile::document::{Document, Section};
    let output = dormer(&["render", "--section", "node", "-o", "document"]);
    assert!(output.status.success(), "{output:?}");
    let document = Document::from_bytes(&output.stdout).expect("a document");
    assert_eq!(document.section, Section::Node);
    let shown = rendered(&["--section", "node"]);
    let ids: Vec<&str> = document.items.iter().map(|item| item.id.as_str()).collect();
    let listed = items(&shown, "node");
    let listed: Vec<&str> = listed
        .iter()
        .filter_map(|item| item["id"].as_str())
        .collect();
    assert_eq!(ids, listed);
    let output = dormer(&["render", "-o", "document"]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "both sections are two documents"
    );
}
