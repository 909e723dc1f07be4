//! The bundle and the catalog for the Operator Lifecycle Manager: rendered from the chart, and read by the libraries of
//! the operator framework.
//!
//! People write `deploy/olm/csv.yaml` and `deploy/olm/values.yaml`. The rest of `deploy/olm/{bundle,catalog}`,
//! `beside.yaml` and `console-link.yaml` is rendered: `UPDATE_EXPECT=1 cargo test --test integration olm::`.

use crate::chart::{configured, deploy, objects, pods, rendered, same, tidied};
use base64::{Engine, engine::general_purpose::STANDARD};
use dormer_profile::{sha256_hex, yaml};
use dormer_testkit::{Helm, OperatorFramework, TempDir, long, started, test_dir};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

const HEAD: &str = "# Rendered from deploy/chart and deploy/olm by a test: UPDATE_EXPECT=1 cargo test --test integration olm::\n";
/// Namespace of the bundle, and of its accounts.
const HOME: &str = "dormer";
/// Stand-in for a digest that only a release has.
const ZEROS: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Version of the bundle, and the one that it is an update of.
#[derive(Clone, Copy)]
struct Edge {
    version: &'static str,
    /// Of the release before; `None`: there is none.
    before: Option<&'static str>,
}

/// The bundle in the repository. A change of the version names the one before it here.
const PRESENT: Edge = Edge {
    version: VERSION,
    before: None,
};

/// Kinds of a bundle that the manager installs in the bundle's own namespace.
const CARRIED: [&str; 7] = [
    "ConfigMap",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
];

fn read(file: &str) -> String {
    std::fs::read_to_string(deploy().join(file)).unwrap_or_else(|why| panic!("{file}: {why}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// The chart's rendering with the bundle's values.
fn chart(helm: &Helm) -> String {
    chart_with(helm, &[])
}

/// The same, with further values.
fn chart_with(helm: &Helm, values: &[&str]) -> String {
    let file = format!("--values={}", deploy().join("olm/values.yaml").display());
    let mut all = vec![file.as_str()];
    all.extend(values);
    rendered(helm, HOME, &all)
}

/// The link in OpenShift's console. A bundle does not know the address, so people apply it with theirs.
fn console_link(helm: &Helm) -> String {
    let url = "--set=consoleLink.url=https://dormer.apps.example";
    let all = documents(&chart_with(helm, &[url])).into_iter();
    let links = all.filter(|(object, _)| object["kind"] == "ConsoleLink");
    links.map(|(_, text)| text).collect()
}

/// The objects of a rendering, each with its text without what only Helm reads.
fn documents(rendering: &str) -> Vec<(Value, String)> {
    let parts = tidied(rendering);
    let parts = parts.split("\n---\n").filter_map(|part| {
        let part = part
            .replace("  annotations:\n    helm.sh/resource-policy: keep\n", "")
            .lines()
            .filter(|line| line.trim() != "app.kubernetes.io/managed-by: Helm")
            .fold(String::new(), |all, line| all + line + "\n");
        let object = objects(&part).into_iter().next()?;
        Some((object, part))
    });
    parts.collect()
}

/// What the chart renders, by who installs it.
#[derive(Default)]
struct Parts {
    /// Deployments, which the ClusterServiceVersion has.
    deployments: Vec<Value>,
    /// Rules in the whole cluster of each Deployment's account, which it has as well.
    rules: BTreeMap<String, Vec<Value>>,
    /// The bundle's other objects.
    carried: Vec<(Value, String)>,
    /// What a person applies.
    beside: String,
}

fn parts(rendering: &str) -> Parts {
    let all = documents(rendering);
    let mut parts = Parts::default();
    for (object, _) in all.iter().filter(|(it, _)| it["kind"] == "Deployment") {
        let account = &object["spec"]["template"]["spec"]["serviceAccountName"];
        parts.rules.insert(text(account).to_owned(), Vec::new());
        parts.deployments.push(moved_to_variables(object.clone()));
    }
    let of_deployments = |binding: &Value| {
        binding["kind"] == "ClusterRoleBinding"
            && list(&binding["subjects"])
                .iter()
                .all(|it| parts.rules.contains_key(text(&it["name"])))
    };
    let bindings: Vec<&Value> = all
        .iter()
        .map(|(it, _)| it)
        .filter(|it| of_deployments(it))
        .collect();
    let in_rules = |object: &Value| {
        bindings.iter().any(|it| {
            it["metadata"]["name"] == object["metadata"]["name"]
                || it["roleRef"]["name"] == object["metadata"]["name"]
        })
    };
    let mut rules: Vec<(String, Value)> = Vec::new();
    for binding in &bindings {
        let role = &binding["roleRef"]["name"];
        let role = all
            .iter()
            .find(|(it, _)| it["kind"] == "ClusterRole" && &it["metadata"]["name"] == role);
        let (role, _) = role.expect("the role of a binding");
        for subject in list(&binding["subjects"]) {
            let of_role = list(&role["rules"]).iter().cloned();
            rules.extend(of_role.map(|rule| (text(&subject["name"]).to_owned(), rule)));
        }
    }
    for (object, part) in &all {
        let kind = text(&object["kind"]);
        let of_cluster = kind.starts_with("ClusterRole");
        let made = kind == "Deployment"
            || (kind == "ServiceAccount" && parts.rules.contains_key(name(object)))
            || (of_cluster && in_rules(object));
        let at_home = |it: &Value| it["namespace"] == HOME;
        let carried = kind == "CustomResourceDefinition"
            || (CARRIED.contains(&kind) && at_home(&object["metadata"]))
            || (of_cluster && list(&object["subjects"]).iter().all(at_home));
        if carried && !made {
            // The manager gives it the bundle's namespace.
            let part = part.replacen("\n  namespace: dormer\n", "\n", 1);
            parts.carried.push((object.clone(), part));
        } else if !made {
            let line = if parts.beside.is_empty() { "" } else { "---\n" };
            parts.beside += &format!("{line}{part}");
        }
    }
    for (account, rule) in rules {
        parts.rules.entry(account).or_default().push(rule);
    }
    parts
}

/// A Subscription sets variables and no arguments, and an argument wins over a variable.
fn moved_to_variables(mut deployment: Value) -> Value {
    deployment["metadata"] =
        json!({"name": deployment["metadata"]["name"], "labels": deployment["metadata"]["labels"]});
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array_mut().expect("arguments");
    let store = arguments
        .iter()
        .position(|it| text(it).starts_with("--store="));
    let store = arguments.remove(store.expect("a store"));
    let url = text(&store).trim_start_matches("--store=").to_owned();
    let variables = container["env"].as_array_mut().expect("variables");
    variables.push(json!({"name": "DORMER_STORE", "value": url}));
    deployment
}

/// The pool and a host as people create them.
fn examples() -> Value {
    let of = |file: &str| objects(&read(file)).into_iter();
    of("pool.yaml").chain(of("host.yaml")).collect()
}

fn version_name(version: &str) -> String {
    format!("dormer.v{version}")
}

fn icon() -> Value {
    json!({"base64data": STANDARD.encode(read("olm/icon.svg")), "mediatype": "image/svg+xml"})
}

/// The ClusterServiceVersion: what people wrote, with the chart's Deployments and rights.
fn csv(parts: &Parts, edge: Edge) -> Value {
    let mut csv = objects(&read("olm/csv.yaml")).remove(0);
    let version = edge.version;
    csv["metadata"]["name"] = version_name(version).into();
    let images: BTreeSet<&str> = parts
        .deployments
        .iter()
        .map(|it| text(&it["spec"]["template"]["spec"]["containers"][0]["image"]))
        .collect();
    let examples = serde_json::to_string_pretty(&examples()).expect("JSON");
    let annotations = &mut csv["metadata"]["annotations"];
    annotations["alm-examples"] = examples.into();
    annotations["containerImage"] = images.first().copied().into();
    if let Some(before) = edge.before {
        // Versions between the two are skipped.
        annotations["olm.skipRange"] = format!(">={before} <{version}").into();
    }
    let deployments = parts.deployments.iter().map(|it| {
        json!({"name": it["metadata"]["name"], "label": it["metadata"]["labels"], "spec": it["spec"]})
    });
    let rights = parts
        .rules
        .iter()
        .map(|(account, rules)| json!({"serviceAccountName": account, "rules": rules}));
    let spec = &mut csv["spec"];
    spec["version"] = version.into();
    if let Some(before) = edge.before {
        spec["replaces"] = version_name(before).into();
    }
    spec["icon"] = json!([icon()]);
    spec["install"] = json!({"strategy": "deployment", "spec": {
        "deployments": deployments.collect::<Value>(), "clusterPermissions": rights.collect::<Value>(),
    }});
    let related = images
        .iter()
        .map(|it| json!({"name": "dormer", "image": it}));
    spec["relatedImages"] = related.collect();
    csv
}

/// The file-based catalog with this one version.
fn catalog(csv: &Value) -> Vec<Value> {
    let spec = &csv["spec"];
    let owned = &spec["customresourcedefinitions"];
    let property = |kind: &str, value: Value| json!({"type": kind, "value": value});
    let kinds = list(&owned["owned"]).iter().map(|it| {
        let value = json!({"group": "dormer.io", "kind": it["kind"], "version": it["version"]});
        property("olm.gvk", value)
    });
    let mut about = json!({
        "annotations": csv["metadata"]["annotations"],
        "labels": csv["metadata"]["labels"],
        "crdDescriptions": owned,
    });
    for field in [
        "description",
        "displayName",
        "installModes",
        "keywords",
        "links",
        "maintainers",
        "maturity",
        "minKubeVersion",
        "provider",
    ] {
        about[field] = spec[field].clone();
    }
    let package = property(
        "olm.package",
        json!({"packageName": "dormer", "version": spec["version"]}),
    );
    let mut properties: Vec<Value> = kinds.collect();
    properties.extend([package, property("olm.csv.metadata", about)]);
    let image = format!("registry.example/dormer-bundle@{ZEROS}");
    let mut related = list(&spec["relatedImages"]).to_vec();
    related.push(json!({"name": "", "image": image}));
    let mut entry = json!({"name": csv["metadata"]["name"]});
    if spec["replaces"].is_string() {
        entry["replaces"] = spec["replaces"].clone();
        entry["skipRange"] = csv["metadata"]["annotations"]["olm.skipRange"].clone();
    }
    vec![
        json!({"schema": "olm.package", "name": "dormer", "defaultChannel": "stable", "icon": icon(),
            "description": csv["metadata"]["annotations"]["description"]}),
        json!({"schema": "olm.channel", "package": "dormer", "name": "stable", "entries": [entry]}),
        json!({"schema": "olm.bundle", "package": "dormer", "name": csv["metadata"]["name"], "image": image,
            "properties": properties, "relatedImages": related}),
    ]
}

fn written(values: &[Value]) -> String {
    let texts: Vec<String> = values
        .iter()
        .map(|it| yaml::to_string(it).expect("YAML"))
        .collect();
    format!("{HEAD}{}", texts.join("---\n"))
}

/// File of a bundle's object.
fn file_of(object: &Value) -> String {
    let kind = text(&object["kind"]).to_lowercase();
    format!("{}.{kind}.yaml", name(object))
}

#[test]
fn the_bundle_and_the_catalog_are_fresh() {
    let helm = started!(Helm::start());
    let parts = parts(&chart(&helm));
    let csv = csv(&parts, PRESENT);
    let manifests = "olm/bundle/manifests";
    let mut files = BTreeSet::from(["dormer.clusterserviceversion.yaml".to_owned()]);
    std::fs::create_dir_all(deploy().join(manifests)).expect("a folder");
    std::fs::create_dir_all(deploy().join("olm/catalog")).expect("a folder");
    for (object, part) in &parts.carried {
        let file = file_of(object);
        same(&format!("{manifests}/{file}"), &format!("{HEAD}{part}"));
        assert!(files.insert(file), "two objects have one name: {object}");
    }
    let file = format!("{manifests}/dormer.clusterserviceversion.yaml");
    same(&file, &written(std::slice::from_ref(&csv)));
    same("olm/catalog/catalog.yaml", &written(&catalog(&csv)));
    same("olm/beside.yaml", &format!("{HEAD}{}", parts.beside));
    let link = console_link(&helm);
    same("olm/console-link.yaml", &format!("{HEAD}{link}"));
    let found = std::fs::read_dir(deploy().join(manifests)).expect("a folder");
    let found = found.map(|it| it.expect("an entry").file_name().display().to_string());
    assert_eq!(
        found.collect::<BTreeSet<_>>(),
        files,
        "a file too many, or too few"
    );
}

/// A version after `before`, with the chart's present objects.
fn next_csv(helm: &Helm) -> Value {
    let edge = Edge {
        version: "9.2.0",
        before: Some("9.1.0"),
    };
    csv(&parts(&chart(helm)), edge)
}

#[test]
fn a_later_version_replaces_the_one_before_it_and_skips_what_is_between() {
    let helm = started!(Helm::start());
    let csv = next_csv(&helm);
    assert_eq!(name(&csv), "dormer.v9.2.0");
    assert_eq!(csv["spec"]["replaces"], "dormer.v9.1.0");
    let range = ">=9.1.0 <9.2.0";
    assert_eq!(csv["metadata"]["annotations"]["olm.skipRange"], range);
    let catalog = catalog(&csv);
    let channel = catalog.iter().find(|it| it["schema"] == "olm.channel");
    assert_eq!(
        channel.expect("a channel")["entries"],
        json!([{"name": "dormer.v9.2.0", "replaces": "dormer.v9.1.0", "skipRange": range}])
    );
    let bundle = catalog.iter().find(|it| it["schema"] == "olm.bundle");
    let properties = &bundle.expect("a bundle")["properties"];
    let package = list(properties)
        .iter()
        .find(|it| it["type"] == "olm.package");
    assert_eq!(package.expect("its package")["value"]["version"], "9.2.0");
}

/// Each right as the account, its namespace (none: the whole cluster) and the rule.
type Rights = BTreeSet<(String, String, String)>;

/// What bindings among these objects grant.
fn granted(all: &[Value]) -> Rights {
    let mut rights = Rights::new();
    for binding in all
        .iter()
        .filter(|it| text(&it["kind"]).ends_with("Binding") && it["roleRef"].is_object())
    {
        let role = &binding["roleRef"];
        let role = all.iter().find(|it| {
            it["kind"] == role["kind"]
                && it["metadata"]["name"] == role["name"]
                && (role["kind"] == "ClusterRole"
                    || it["metadata"]["namespace"] == binding["metadata"]["namespace"])
        });
        let scope = text(&binding["metadata"]["namespace"]);
        for subject in list(&binding["subjects"]) {
            let who = format!("{}/{}", text(&subject["namespace"]), text(&subject["name"]));
            // A role of Kubernetes' own is there already.
            let rules = role.map_or(vec![binding["roleRef"].clone()], |it| {
                list(&it["rules"]).to_vec()
            });
            rights.extend(
                rules
                    .iter()
                    .map(|rule| (who.clone(), scope.to_owned(), rule.to_string())),
            );
        }
    }
    rights
}

/// The committed objects: the bundle's without the ClusterServiceVersion, and those beside it.
fn committed() -> Vec<Value> {
    let folder = std::fs::read_dir(deploy().join("olm/bundle/manifests")).expect("the bundle");
    let bundle = folder.flat_map(|it| {
        let path = it.expect("an entry").path();
        let mut all = objects(&std::fs::read_to_string(path).expect("a file"));
        for object in &mut all {
            if CARRIED.contains(&text(&object["kind"])) {
                object["metadata"]["namespace"] = HOME.into();
            }
        }
        all
    });
    let all = bundle.filter(|it| it["kind"] != "ClusterServiceVersion");
    all.chain(objects(&read("olm/beside.yaml"))).collect()
}

fn committed_csv() -> Value {
    objects(&read(
        "olm/bundle/manifests/dormer.clusterserviceversion.yaml",
    ))
    .remove(0)
}

/// `permissions` would not do: for an installation in all namespaces the manager makes them rights in the whole cluster.
#[test]
fn the_bundle_gives_each_account_the_rights_that_the_chart_gives_it() {
    let helm = started!(Helm::start());
    let wanted = granted(&objects(&chart(&helm)));
    assert!(wanted.len() > 60, "{}", wanted.len());
    let csv = committed_csv();
    let spec = &csv["spec"]["install"]["spec"];
    assert!(spec["permissions"].is_null());
    let mut found = granted(&committed());
    for account in list(&spec["clusterPermissions"]) {
        let who = format!("{HOME}/{}", text(&account["serviceAccountName"]));
        let rules = list(&account["rules"]).iter();
        found.extend(rules.map(|rule| (who.clone(), String::new(), rule.to_string())));
    }
    let missing: Vec<_> = wanted.difference(&found).collect();
    let further: Vec<_> = found.difference(&wanted).collect();
    assert!(
        missing.is_empty() && further.is_empty(),
        "missing: {missing:#?}\nfurther: {further:#?}"
    );
}

#[test]
fn every_object_of_the_chart_is_in_the_bundle_or_beside_it() {
    let helm = started!(Helm::start());
    let key = |it: &Value| {
        let of = |field: &str| text(&it["metadata"][field]).to_owned();
        (text(&it["kind"]).to_owned(), of("namespace"), of("name"))
    };
    let found = committed();
    let csv = committed_csv();
    let made = list(&csv["spec"]["install"]["spec"]["clusterPermissions"]);
    let accounts: Vec<&str> = made
        .iter()
        .map(|it| text(&it["serviceAccountName"]))
        .collect();
    let keys: BTreeSet<_> = found.iter().map(key).collect();
    let all = objects(&chart(&helm));
    let bound = |role: &Value| {
        let mut bindings = all.iter().filter(|it| it["kind"] == "ClusterRoleBinding");
        bindings.any(|it| it["roleRef"]["name"] == role["metadata"]["name"])
    };
    for object in &all {
        // The manager makes these of the ClusterServiceVersion; the test above compares the rights.
        let of_csv = match text(&object["kind"]) {
            "Deployment" | "ClusterRoleBinding" => true,
            "ClusterRole" => bound(object),
            "ServiceAccount" => accounts.contains(&name(object)),
            _ => false,
        };
        assert!(of_csv || keys.contains(&key(object)), "{object}");
    }
    let deployments = list(&csv["spec"]["install"]["spec"]["deployments"]);
    assert_eq!(deployments.len(), 5, "one for each role");
    assert_eq!(accounts.len(), 5, "the engine's has no right, and exists");
}

/// A Deployment's container where the keys, which Secrets have in a cluster, are in a folder.
fn with_keys(mut deployment: Value, keys: &Path) -> Value {
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    for argument in container["args"].as_array_mut().expect("arguments") {
        let folder = keys.display().to_string();
        let there = text(argument)
            .replace("/etc/dormer/keys", &folder)
            .replace("/etc/dormer/history", &folder);
        *argument = there.into();
    }
    deployment
}

/// Adds a variable, or replaces the one of its name, as the manager does.
fn set(deployment: &mut Value, variable: &Value) {
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array_mut().expect("variables");
    variables.retain(|it| it["name"] != variable["name"]);
    variables.push(variable.clone());
}

/// The manager adds OPERATOR_CONDITION_NAME to each container, and the Subscription's variables.
#[test]
fn this_build_takes_the_bundles_arguments_and_the_variables_of_a_subscription() {
    let folder = test_dir("olm-keys");
    let keys = folder.path().join("keys");
    let mut make = Command::new(env!("CARGO_BIN_EXE_dormer"));
    let made = make.args(["keys", "make", "--output"]).arg(&keys).output();
    assert!(made.expect("dormer").status.success());
    let csv = committed_csv();
    let deployments = list(&csv["spec"]["install"]["spec"]["deployments"]);
    let all = deployments.iter().map(|it| with_keys(it.clone(), &keys));
    let mut all: Vec<Value> = all.collect();
    let printed = |all: &[Value]| -> Vec<(String, String)> {
        let pods = pods(all).into_iter();
        let printed =
            pods.map(|(role, pod)| (role, configured(&pod["containers"][0], "the bundle")));
        printed.collect()
    };
    for (role, printed) in printed(&all) {
        let own = "store = \"tls://nats:4222\"";
        assert!(printed.lines().any(|it| it == own), "{role}: {printed}");
    }
    let example = objects(&read("olm/subscribe.yaml"));
    let subscription = example.iter().find(|it| it["kind"] == "Subscription");
    let further = list(&subscription.expect("one")["spec"]["config"]["env"]);
    let key = "RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaV";
    for deployment in &mut all {
        set(
            deployment,
            &json!({"name": "OPERATOR_CONDITION_NAME", "value": name(&csv)}),
        );
        further.iter().for_each(|it| set(deployment, it));
        set(
            deployment,
            &json!({"name": "DORMER_PAYLOAD_KEY", "value": key}),
        );
    }
    let printed = printed(&all);
    assert_eq!(printed.len(), 5);
    for (role, printed) in printed {
        for line in [
            format!("role = [\"{role}\"]"),
            format!("operator-condition = \"{}\"", version_name(VERSION)),
            "store = \"tls://nats.nats.svc:4222\"".to_owned(),
            format!("payload-key = [\"{key}\"]"),
        ] {
            let there = printed.lines().any(|it| it == line);
            assert!(there, "{role}, {line}: {printed}");
        }
        assert!(printed.contains("/payloads/11.0.0"), "{role}: {printed}");
    }
}

#[test]
fn descriptors_name_fields_that_exist() {
    let csv = committed_csv();
    let kinds = objects(&read("crd.yaml"));
    let owned = list(&csv["spec"]["customresourcedefinitions"]["owned"]);
    assert_eq!(owned.len(), kinds.len());
    for one in owned {
        let kind = kinds
            .iter()
            .find(|it| it["metadata"]["name"] == one["name"])
            .expect("its definition");
        let versions = list(&kind["spec"]["versions"]);
        let version = versions
            .iter()
            .find(|it| it["name"] == one["version"])
            .expect("its version");
        let schema = &version["schema"]["openAPIV3Schema"]["properties"];
        for (part, descriptors) in [("spec", "specDescriptors"), ("status", "statusDescriptors")] {
            for descriptor in list(&one[descriptors]) {
                let path = text(&descriptor["path"]);
                let field = path
                    .split('.')
                    .fold(&schema[part], |it, step| &it["properties"][step]);
                assert!(field.is_object(), "{}: {part}.{path}", one["kind"]);
            }
        }
    }
}

#[test]
fn the_images_labels_are_the_bundles_annotations() {
    let annotations = &objects(&read("olm/bundle/metadata/annotations.yaml"))[0]["annotations"];
    let file = read("olm/bundle.Containerfile");
    let labels = file
        .lines()
        .filter_map(|line| line.strip_prefix("LABEL ")?.split_once('='));
    let labels: BTreeMap<&str, &str> = labels.collect();
    let annotations = annotations.as_object().expect("annotations").iter();
    let annotations: BTreeMap<&str, &str> = annotations
        .map(|(key, value)| (key.as_str(), text(value)))
        .collect();
    assert_eq!(labels, annotations);
}

/// It owns what is in the namespace, and gives objects of the whole cluster no owner.
#[test]
fn the_page_names_what_the_manager_leaves_in_the_cluster() {
    let page = std::fs::read_to_string(deploy().join("../docs/uninstall.md")).expect("a page");
    let mut seen = 0;
    for object in committed() {
        let kind = text(&object["kind"]).to_lowercase();
        let bundled = deploy().join("olm/bundle/manifests").join(file_of(&object));
        if kind.starts_with("clusterrole") && bundled.exists() {
            let command = format!("kubectl delete {kind} ");
            let mut commands = page.lines().filter_map(|line| line.strip_prefix(&command));
            let there = commands.any(|names| names.split(' ').any(|it| it == name(&object)));
            assert!(there, "{kind} {}", name(&object));
            seen += 1;
        }
    }
    assert_eq!(seen, 7);
}

const HOST_PROGRAM: &[u8] = b"MZ program";

fn host_program(folder: &TempDir) -> PathBuf {
    let file = folder.path().join("dormer-host.exe");
    std::fs::write(&file, HOST_PROGRAM).expect("written");
    file
}

/// The bundle and the catalog as `release.sh` copies them.
fn released(bundle: Option<&str>) -> TempDir {
    let folder = test_dir("olm");
    let program = test_dir("olm-program");
    let output = Command::new(deploy().join("olm/release.sh"))
        .arg(folder.path())
        .arg(host_program(&program))
        .arg(format!(
            "quay.example/team/dormer@sha256:{}",
            "1".repeat(64)
        ))
        .args(bundle)
        .output()
        .expect("release.sh");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    folder
}

#[test]
fn the_operator_framework_accepts_a_release() {
    let part = long!("olm");
    let framework = started!(OperatorFramework::start());
    let bundle = format!("quay.example/team/dormer-bundle@sha256:{}", "2".repeat(64));
    let folder = released(Some(&bundle));
    let found = framework.findings("bundle", &folder.path().join("bundle"));
    // People create no WindowsMachine.
    assert_eq!(found.len(), 1, "{found:#?}");
    let warning = "Kind=WindowsMachine: provided API should have an example annotation";
    assert!(
        found[0].starts_with("warning: ") && found[0].ends_with(warning),
        "{found:?}"
    );
    let found = framework.findings("catalog", &folder.path().join("catalog"));
    assert_eq!(found, Vec::<String>::new());
    // The version after it.
    let helm = started!(Helm::start());
    let next = catalog(&next_csv(&helm));
    std::fs::write(folder.path().join(CATALOG), written(&next)).expect("written");
    let found = framework.findings("catalog", &folder.path().join("catalog"));
    assert_eq!(found, Vec::<String>::new(), "an update");
    part.passed(&[]);
}

#[test]
fn a_release_names_its_images_by_digest() {
    let bundle = format!("quay.example/team/dormer-bundle@sha256:{}", "2".repeat(64));
    let folder = released(Some(&bundle));
    let files = [
        "bundle/manifests/dormer.clusterserviceversion.yaml",
        "catalog/catalog.yaml",
    ];
    for file in files {
        let text = std::fs::read_to_string(folder.path().join(file)).expect("a file");
        assert!(
            !text.contains("sha256:0000") && text.contains("sha256:1111"),
            "{file}"
        );
    }
    let early = released(None);
    assert!(
        !early.path().join("catalog").exists(),
        "nobody knows the bundle's digest yet"
    );
    let folder = test_dir("olm-tag");
    let mut tagged = Command::new(deploy().join("olm/release.sh"));
    let refused = tagged
        .arg(folder.path())
        .arg(host_program(&folder))
        .arg("quay.example/dormer:0.1.0")
        .output();
    assert_eq!(
        refused.expect("release.sh").status.code(),
        Some(2),
        "a tag is no digest"
    );
}

/// As the chart of a release does: a worker starts no other program on a host.
#[test]
fn the_bundle_of_a_release_starts_the_host_program_of_that_release_alone() {
    let folder = released(None);
    let csv = std::fs::read_to_string(folder.path().join(CSV)).expect("the bundle");
    let csv = objects(&csv).remove(0);
    let program = "--host-program=/usr/share/dormer/dormer-host.exe";
    let wanted = format!("--host-program-sha256={}", sha256_hex(HOST_PROGRAM));
    let mut roles = Vec::new();
    for deployment in list(&csv["spec"]["install"]["spec"]["deployments"]) {
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let arguments: Vec<&str> = list(&container["args"]).iter().map(text).collect();
        if arguments.contains(&program) {
            assert!(arguments.contains(&wanted.as_str()), "{arguments:?}");
            roles.push(text(&deployment["name"]));
        }
    }
    assert!(roles.contains(&"dormer-worker"), "{roles:?}");
}

/// A mistake: where, what, and a word of what is said.
struct Mistake {
    file: &'static str,
    change: fn(&mut Value),
    says: &'static str,
}

const CSV: &str = "bundle/manifests/dormer.clusterserviceversion.yaml";
const POOLS: &str = "bundle/manifests/windowspools.dormer.io.customresourcedefinition.yaml";
const SERVICE: &str = "bundle/manifests/dormer.service.yaml";
const CATALOG: &str = "catalog/catalog.yaml";

const MISTAKES: [Mistake; 11] = [
    Mistake {
        file: CSV,
        change: |it| it["spec"]["installModes"] = json!([]),
        says: "install modes not found",
    },
    Mistake {
        file: CSV,
        change: |it| it["spec"]["minKubeVersion"] = "1.33".into(),
        says: "MinKubeVersion",
    },
    Mistake {
        file: CSV,
        change: |it| {
            it["metadata"]["annotations"]["alm-examples"] = "[{\"kind\": \"WindowsPol\"}]".into()
        },
        says: "example must have a provided API",
    },
    Mistake {
        file: CSV,
        change: |it| {
            it["spec"]["customresourcedefinitions"]["owned"][0]["kind"] = "WindowsPol".into()
        },
        says: "not found in bundle",
    },
    Mistake {
        file: CSV,
        change: |it| {
            it["spec"]["relatedImages"][0]["image"] = "registry.example/dormer@sha256:0".into()
        },
        says: "invalid image pullspec",
    },
    Mistake {
        file: POOLS,
        change: |it| it["spec"]["names"]["plural"] = "windowspool".into(),
        says: "spec.names.plural",
    },
    Mistake {
        file: POOLS,
        change: |it| {
            it["spec"]["versions"][0]["storage"] =
                (it["spec"]["versions"][0]["storage"] == false).into()
        },
        says: "exactly one version marked as storage version",
    },
    Mistake {
        file: SERVICE,
        change: |it| {
            *it = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dormer-join"}});
        },
        says: "Namespace is not supported type",
    },
    Mistake {
        file: SERVICE,
        change: |it| {
            *it = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "dormer-worker"}});
        },
        says: "invalid service account found in bundle",
    },
    Mistake {
        file: "bundle/metadata/annotations.yaml",
        change: |it| {
            let annotations = it["annotations"].as_object_mut().expect("annotations");
            annotations.remove("operators.operatorframework.io.bundle.package.v1");
        },
        says: "Missing annotation",
    },
    Mistake {
        file: CATALOG,
        change: |it| it["entries"] = json!([{"name": "dormer.v9.9.9"}]),
        says: "not found in any channel entries",
    },
];

/// Changes the document of a file that has what the change is about; the others stay.
fn planted(folder: &Path, mistake: &Mistake) {
    let path = folder.join(mistake.file);
    let mut all = objects(&std::fs::read_to_string(&path).expect("a file"));
    let at = all
        .iter()
        .position(|it| it["schema"].is_null() || it["schema"] == "olm.channel");
    (mistake.change)(&mut all[at.expect("a document")]);
    std::fs::write(&path, written(&all)).expect("written");
}

#[test]
fn the_operator_framework_refuses_each_kind_of_mistake() {
    let part = long!("olm");
    let framework = started!(OperatorFramework::start());
    let bundle = format!("quay.example/team/dormer-bundle@sha256:{}", "2".repeat(64));
    for mistake in MISTAKES {
        let folder = released(Some(&bundle));
        planted(folder.path(), &mistake);
        let what = if mistake.file == CATALOG {
            "catalog"
        } else {
            "bundle"
        };
        let found = framework.findings(what, &folder.path().join(what));
        let refused = found.iter().filter(|it| it.starts_with("error: "));
        let refused: Vec<&String> = refused.collect();
        let said = refused.iter().any(|it| it.contains(mistake.says));
        assert!(said, "{}, {}: {found:#?}", mistake.file, mistake.says);
    }
    part.passed(&[("mistakes", MISTAKES.len().to_string())]);
}
