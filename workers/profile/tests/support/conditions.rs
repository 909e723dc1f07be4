//! Settings with a condition, and what a layer adds to them.

use serde_json::json;

use super::node::{NODE, Node, SERVER_2022, SERVER_2025, file, json};

/// Conditions work on map entries, JSON keys, list elements and parts of `content`.
#[test]
fn a_condition_works_wherever_a_profile_has_one() {
    let layer = r#"
host:
  directories: { 'C:\only-2.4': { when: { containerd: ">=2.4" } } }
  environment: { ONLY_OLD: { value: x, when: { kubelet: "<1.34" } } }
  files:
    C:\k\j:
      json:
        key: { when: { kubelet: ">=1.36" }, value: { nested: "${PLATFORM}" } }
        list: [a, { when: { containerd: ">=2.4" }, value: b }, { when: { set: NO_PROXY }, value: c }]
    C:\k\c:
      content: ["a", { when: { containerd: ">=2.0 <2.1" }, text: "b" }, { when: { platform: [azure] }, text: "c" }]
"#;
    let told = |kubelet, containerd, build| {
        let documents = Node {
            kubelet,
            containerd,
            build,
            layer,
            ..NODE
        }
        .rendered();
        let has = |id: &str| documents[0].items.iter().any(|item| item.id == id);
        (
            has(r"directory:C:\only-2.4"),
            has("environment:ONLY_OLD"),
            json(&documents, r"C:\k\j").to_string(),
            file(&documents, r"C:\k\c").expect("a file"),
        )
    };
    let old = (false, true, r#"{"list":["a"]}"#.into(), "ac".into());
    assert_eq!(told("1.33", "1.7", SERVER_2022), old);
    let new = r#"{"key":{"nested":"azure"},"list":["a","b"]}"#.into();
    assert_eq!(
        told("1.36", "2.4", SERVER_2025),
        (true, false, new, "ac".into())
    );
    assert_eq!(told("1.36", "2.0", SERVER_2025).3, "abc");
}

/// A layer's gate is there beside the built-in ones, and for releases that those are not for.
#[test]
fn a_layer_adds_a_gate_to_those_of_a_release() {
    let layer = r"node: {network: {files: {'C:\k\kube-proxy.conf': {json: {featureGates: {ContextualLogging: true}}}}}}";
    let told = |kubelet| {
        let documents = Node {
            kubelet,
            layer,
            ..NODE
        }
        .rendered();
        json(&documents, r"C:\k\kube-proxy.conf")["featureGates"].clone()
    };
    let old = json!({"WinDSR": true, "WinOverlay": true, "ContextualLogging": true});
    assert_eq!(told("1.33"), old);
    assert_eq!(told("1.34"), json!({"ContextualLogging": true}));
}

/// WMCO switches NRI off by the list of plugins, which containerd 2 takes as well (2.3.7 and 2.4.2 leave its table out).
#[test]
fn nri_may_be_off_by_the_list_of_plugins() {
    let layer = r"
host:
  files:
    C:\k\containerd\containerd_conf.toml:
      content: |
        version = 3
        disabled_plugins = ['io.containerd.nri.v1.nri']
        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runhcs-wcow-process]
        runtime_path = 'C:\a.exe'
";
    let node = Node {
        containerd: "2.3",
        layer,
        ..NODE
    };
    node.render().expect("taken");
}
