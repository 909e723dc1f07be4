//! The support table: every pair of a kubelet and a containerd, for each platform, and what is refused.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_profile::{
    builtin,
    cluster_config::{ClusterConfig, ClusterSnapshot, Revision},
    document::{Document, Section},
    item::{File, FileSource, ItemKind},
    kubelet_config::KubeletConfig,
    layers::{Layer, stack},
    mirrors::{Credentials, Mirrored},
    payload::{Manifest, PayloadFile},
    problem::Problems,
    render::{EXAMPLE_PAYLOAD, Inputs, render},
    settings,
    values::{Values, join_secrets},
};
use expect_test::expect_file;
use serde_json::{Value, json};

/// Kubernetes minors that are supported; of 1.37 the newest is of August 2026.
pub(crate) const KUBELETS: [&str; 5] = ["1.33", "1.34", "1.35", "1.36", "1.37"];
/// containerd releases that are supported. The empty one is a manifest from before the field.
pub(crate) const CONTAINERDS: [&str; 7] = ["", "1.7", "2.0", "2.1", "2.2", "2.3", "2.4"];
const SERVER_2019: &str = "10.0.17763";
pub(crate) const SERVER_2022: &str = "10.0.20348";
const SERVER_2025: &str = "10.0.26100";

fn payload(kubelet: &str, containerd: &str, build: &str) -> Manifest {
    let mut manifest = Manifest {
        kubelet: kubelet.into(),
        containerd: containerd.into(),
        windows_builds: vec![build.into()],
        ..Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest")
    };
    let names = ["windows_exporter.exe", "ecr-credential-provider.exe"];
    manifest.files.extend(names.map(further));
    manifest
}

fn further(name: &str) -> PayloadFile {
    PayloadFile {
        name: name.into(),
        sha256: dormer_profile::sha256_hex(name.as_bytes()),
        size: 1,
        destination: name.into(),
    }
}

/// Text of a built-in profile, and what it is replaced by, so that a row is not there.
pub(crate) type Change = (&'static str, &'static str);
const NO_CHANGE: Change = ("", "");

/// One node, with every secret that a cluster can have.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(crate) profile: &'a str,
    pub(crate) kubelet: &'a str,
    pub(crate) containerd: &'a str,
    pub(crate) platform: &'a str,
    pub(crate) build: &'a str,
    pub(crate) layer: &'a str,
    pub(crate) vxlan_port: &'a str,
    pub(crate) change: Change,
}

pub(crate) const NODE: Node<'static> = Node {
    profile: "openshift",
    kubelet: "1.33",
    containerd: "1.7",
    platform: "azure",
    build: SERVER_2022,
    layer: "",
    vxlan_port: "",
    change: NO_CHANGE,
};

impl Node<'_> {
    fn render(&self) -> Result<[Document; 2], Problems> {
        self.render_with(&payload(self.kubelet, self.containerd, self.build))
    }

    fn render_with(&self, payload: &Manifest) -> Result<[Document; 2], Problems> {
        let text = match self.profile {
            "upstream" => builtin::UPSTREAM,
            _ => builtin::OPENSHIFT,
        };
        let (from, to) = self.change;
        let mut layers = vec![match from {
            "" => builtin::layer(self.profile)?,
            from => Layer::parse(self.profile, &text.replace(from, to))?,
        }];
        if !self.layer.is_empty() {
            layers.push(Layer::parse("user", self.layer)?);
        }
        let profile = stack(&layers)?;
        let values = Values {
            windows_build: self.build.into(),
            vxlan_port: self.vxlan_port.into(),
            ..Values::example(self.platform)
        };
        let mut secrets = join_secrets(&values.api_server, "API CA", "CLIENT CA", "t0ken");
        for name in [
            "cloud-config",
            "ecr-config",
            "exporter-tls-crt",
            "exporter-tls-key",
        ] {
            secrets.set(name, "x");
        }
        let variables = values.variables();
        let inputs = Inputs {
            profile: &profile,
            payload,
            variables: &variables,
            secrets: &secrets,
            keep: &[],
        };
        let one = |section| Ok(render(&inputs, section, "v")?.document);
        Ok([one(Section::Host)?, one(Section::Node)?])
    }

    pub(crate) fn rendered(&self) -> [Document; 2] {
        let Self {
            profile,
            kubelet,
            containerd,
            platform,
            build,
            ..
        } = self;
        self.render()
            .unwrap_or_else(|e| panic!("{profile} {kubelet} {containerd} {platform} {build}: {e}"))
    }
}

pub(crate) fn file(documents: &[Document], path: &str) -> Option<String> {
    let items = documents.iter().flat_map(|document| &document.items);
    items.into_iter().find_map(|item| match &item.what {
        ItemKind::File(File {
            path: there,
            source: FileSource::Inline { base64 },
            ..
        }) if there == path => {
            let bytes = STANDARD.decode(base64).expect("base64");
            Some(String::from_utf8(bytes).expect("text"))
        }
        ItemKind::NetworkFile(file) if file.path == path => Some(file.template.clone()),
        _ => None,
    })
}

fn json(documents: &[Document], path: &str) -> Value {
    serde_json::from_str(&file(documents, path).expect(path)).expect("JSON")
}

pub(crate) fn command(documents: &[Document], name: &str) -> String {
    let mut items = documents.iter().flat_map(|document| &document.items);
    items
        .find_map(|item| match &item.what {
            ItemKind::Service(service) if service.name == name => Some(service.command.clone()),
            _ => None,
        })
        .expect(name)
}

fn at_least(release: &str, major: u32, minor: u32) -> bool {
    let release: dormer_profile::release::Release = release.parse().expect("a release");
    release >= dormer_profile::release::Release::new(major, minor)
}

fn toml(documents: &[Document]) -> toml::Table {
    let text = file(documents, r"C:\k\containerd\containerd_conf.toml").expect("a configuration");
    text.parse().expect("TOML")
}

/// Every pair renders on every platform and Windows build, and containerd is told what its release understands.
#[test]
fn every_pair_of_the_support_table_renders_for_every_platform() {
    every_pair_renders(NO_CHANGE);
}

fn every_pair_renders(change: Change) {
    for profile in ["openshift", "upstream"] {
        for platform in ["aws", "azure", "gcp", "vsphere", "none"] {
            // What a Windows build changes is the same on every platform.
            let builds: &[_] = match platform {
                "azure" => &[SERVER_2019, SERVER_2022, SERVER_2025],
                _ => &[SERVER_2022],
            };
            for build in builds {
                for kubelet in KUBELETS {
                    for containerd in CONTAINERDS {
                        let node = Node {
                            profile,
                            kubelet,
                            containerd,
                            platform,
                            build,
                            change,
                            ..NODE
                        };
                        let documents = node.rendered();
                        let containerd = if containerd.is_empty() {
                            "1.7"
                        } else {
                            containerd
                        };
                        containerd_gets_what_it_knows(&toml(&documents), containerd);
                        kubelet_gets_what_it_knows(&documents, kubelet);
                        if profile == "openshift" {
                            kube_proxy_gets_what_it_knows(&documents, kubelet);
                        }
                    }
                }
            }
        }
    }
}

/// Rows 1 to 5.
fn containerd_gets_what_it_knows(config: &toml::Table, release: &str) {
    let two = at_least(release, 2, 0);
    assert_eq!(
        config["version"].as_integer(),
        Some(if two { 3 } else { 2 }),
        "{release}"
    );
    let plugins = &config["plugins"];
    let (runtime, pause) = if two {
        let pinned = &plugins["io.containerd.cri.v1.images"]["pinned_images"];
        assert_eq!(
            plugins["io.containerd.nri.v1.nri"]["disable"].as_bool(),
            Some(true)
        );
        assert!(plugins.get("io.containerd.grpc.v1.cri").is_none());
        (&plugins["io.containerd.cri.v1.runtime"], &pinned["sandbox"])
    } else {
        let cri = &plugins["io.containerd.grpc.v1.cri"];
        assert_eq!(
            plugins.as_table().map(toml::Table::len),
            Some(1),
            "no plugin of 2.0"
        );
        (cri, &cri["sandbox_image"])
    };
    assert_eq!(pause.as_str(), Some("registry.k8s.io/pause:3.10.2"));
    shims_get_what_they_know(&runtime["containerd"]["runtimes"], two);
    let cni = runtime["cni"].as_table().expect("a table");
    let dirs = at_least(release, 2, 1);
    assert_eq!(
        (cni.contains_key("bin_dir"), cni.contains_key("bin_dirs")),
        (!dirs, dirs)
    );
}

/// Row 4. containerd 1.7 knows of a runtime only what its file says. From 2.0 on its own defaults stay beside that
/// (go-toml v1.9.5 makes a new map, v2.2.3 fills the one that is there).
fn shims_get_what_they_know(runtimes: &toml::Value, two: bool) {
    let runtimes = runtimes.as_table().expect("runtimes");
    assert_eq!(runtimes.contains_key("runhcs-wcow-hypervisor"), two);
    for (name, runtime) in runtimes {
        let shim = runtime["runtime_path"].as_str().expect(name);
        assert!(shim.ends_with(r"\containerd-shim-runhcs-v1.exe"), "{shim}");
        assert_eq!(runtime["options"]["ScrubLogs"].as_bool(), Some(true));
    }
    let annotations = runtimes["runhcs-wcow-process"].get("container_annotations");
    let annotations = annotations.map(ToString::to_string);
    let wanted = r#"["io.microsoft.container.*"]"#.to_owned();
    assert_eq!(annotations, (!two).then_some(wanted));
}

/// Rows 6 and 9.
fn kubelet_gets_what_it_knows(documents: &[Document], release: &str) {
    let config = json(documents, r"C:\k\kubelet.conf");
    let graceful = at_least(release, 1, 34);
    for name in ["shutdownGracePeriod", "shutdownGracePeriodCriticalPods"] {
        assert_eq!(config.get(name).is_some(), graceful, "{release}: {name}");
    }
    let gate = config["featureGates"].get("NodeLogQuery");
    assert!(gate.is_none() || !at_least(release, 1, 36), "{release}");
    let command = command(documents, "kubelet");
    assert!(
        !command.contains("--cloud-config") || !at_least(release, 1, 34),
        "{command}"
    );
    assert!(
        !command.contains("--pod-infra-container-image"),
        "{command}"
    );
}

/// Row 7.
fn kube_proxy_gets_what_it_knows(documents: &[Document], release: &str) {
    let config = json(documents, r"C:\k\kube-proxy.conf");
    assert_eq!(
        config.get("featureGates").is_some(),
        !at_least(release, 1, 34),
        "{release}"
    );
    assert_eq!(config["winkernel"]["enableDSR"], true);
}

/// Where it still has a meaning, it is there (row 9), and the logs of both are turned over (row 8).
#[test]
fn a_flag_of_old_kubelets_and_the_settings_of_logs_reach_them() {
    flags_reach_what_knows_them(NO_CHANGE);
}

fn flags_reach_what_knows_them(change: Change) {
    let node = Node { change, ..NODE };
    let old = command(&node.rendered(), "kubelet");
    assert!(old.contains(r"--cloud-config=C:\k\cloud.conf"), "{old}");
    assert!(file(&node.rendered(), r"C:\k\cloud.conf").is_some());
    let new = Node {
        kubelet: "1.34",
        ..node
    }
    .rendered();
    assert!(file(&new, r"C:\k\cloud.conf").is_none(), "nobody reads it");
    let layer = "variables: {LOG_FILE_SIZE: ' 100Mi ', LOG_FILE_AGE: 168h, LOG_FLUSH_INTERVAL: 5s}";
    let kubelet = "1.34";
    let documents = Node {
        kubelet,
        layer,
        ..node
    }
    .rendered();
    // kube-log-runner of 1.33 ends with them.
    let oldest = Node { layer, ..node }.rendered();
    for name in ["kubelet", "kube-proxy"] {
        let told = command(&documents, name);
        let wanted = " -log-file-size=100Mi -log-file-age=168h -flush-interval=5s ";
        assert!(told.contains(wanted), "{told}");
        let told = command(&oldest, name);
        assert!(told.contains(".log C:") && !told.contains("168h"), "{told}");
    }
}

/// Row 10: the folders of sig-windows-tools, and what is kept free for Windows.
#[test]
fn an_upstream_node_has_the_folders_that_its_daemon_sets_expect() {
    upstream_has_its_folders(NO_CHANGE);
}

fn upstream_has_its_folders(change: Change) {
    let documents = Node {
        profile: "upstream",
        platform: "none",
        change,
        ..NODE
    }
    .rendered();
    for name in ["pki", "manifests"] {
        let id = format!(r"directory:C:\etc\kubernetes\{name}");
        assert!(documents[0].items.iter().any(|item| item.id == id), "{id}");
    }
    let config = json(&documents, r"C:\k\kubelet.conf");
    assert_eq!(
        config["authentication"]["x509"]["clientCAFile"],
        r"C:\etc\kubernetes\pki\ca.crt"
    );
    assert_eq!(config["systemReserved"]["memory"], "2Gi");
}

/// Rows 11 and 21: by the build of Windows, which the host itself compares.
#[test]
fn windows_itself_is_set_by_its_build() {
    windows_is_set(NO_CHANGE);
}

fn windows_is_set(change: Change) {
    for profile in ["openshift", "upstream"] {
        let documents = Node {
            profile,
            change,
            ..NODE
        }
        .rendered();
        let items = documents[0]
            .items
            .iter()
            .filter_map(|item| match &item.what {
                ItemKind::Registry(value) => Some((
                    value.name.as_str(),
                    value.windows_builds.join(" "),
                    value.static_address,
                )),
                _ => None,
            });
        let mut found: Vec<_> = items.collect();
        found.sort();
        let all = String::new;
        let wanted = [
            ("1114842764", SERVER_2022.to_owned(), false),
            ("520997518", SERVER_2025.to_owned(), false),
            (
                "DeviceLessNicDisabled",
                format!("{SERVER_2019} {SERVER_2025}"),
                true,
            ),
            ("EnableCompartmentNamespace", all(), false),
            ("HNSControlFlag", SERVER_2019.to_owned(), false),
            ("NoAutoUpdate", all(), false),
            ("WcifsSOPCountDisabled", SERVER_2019.to_owned(), false),
        ];
        assert_eq!(found, wanted, "{profile}");
        let ports = documents[0].items.iter().find_map(|item| match &item.what {
            ItemKind::DynamicPorts(ports) => Some((ports.start, ports.count)),
            _ => None,
        });
        assert_eq!(ports, Some((34_000, 31_536)), "{profile}");
    }
}

/// Row 12: a tool that starts containers past the kubelet stays away.
#[test]
fn ctr_is_not_installed() {
    no_ctr(NO_CHANGE);
}

fn no_ctr(change: Change) {
    for profile in ["openshift", "upstream"] {
        let node = Node {
            profile,
            change,
            ..NODE
        };
        let mut manifest = payload(node.kubelet, node.containerd, node.build);
        manifest.files.push(further("ctr.exe"));
        let documents = node.render_with(&manifest).expect("it renders");
        let text = serde_json::to_string(&documents).expect("JSON");
        assert!(!text.contains("ctr.exe"), "{profile}");
    }
}

/// Row 5: a payload with the pause image brings it to the host, before the kubelet starts; one without it asks a registry.
#[test]
fn the_pause_image_comes_with_the_payload_where_that_has_it() {
    pause_comes_with_the_payload(NO_CHANGE);
}

fn pause_comes_with_the_payload(change: Change) {
    for profile in ["openshift", "upstream"] {
        for pause in [
            "registry.k8s.io/pause:3.10.2",
            "mirror.example:5000/pause:3.11",
        ] {
            let layer = format!("variables: {{PAUSE_IMAGE: '{pause}'}}");
            let node = Node {
                profile,
                layer: &layer,
                change,
                ..NODE
            };
            let without = node.rendered();
            let images = |documents: &[Document]| {
                let items = documents[0].items.iter();
                let image = |what: &ItemKind| matches!(what, ItemKind::Image(_));
                items.filter(|item| image(&item.what)).count()
            };
            assert_eq!(images(&without), 0);
            let mut manifest = payload(node.kubelet, node.containerd, node.build);
            manifest.files.push(further("pause.tar"));
            let with = node.render_with(&manifest).expect("it renders");
            let ids: Vec<&str> = with[0].items.iter().map(|item| item.id.as_str()).collect();
            let at = |id: &str| ids.iter().position(|one| *one == id).expect("it is there");
            let image = at(&format!("image:{pause}"));
            assert!(at("service:containerd") < image && image < at("service:kubelet"));
            let ItemKind::Image(what) = &with[0].items[image].what else {
                panic!("an image")
            };
            let file = with[0].items.iter().find_map(|item| match &item.what {
                ItemKind::File(file) if file.path == what.archive => Some(&file.source),
                _ => None,
            });
            assert!(
                matches!(file, Some(FileSource::Staged { .. })),
                "it is uploaded"
            );
            // The name is the one that containerd is told to use.
            let config = file_of_containerd(&with);
            assert!(config.contains(&format!("\"{}\"", what.name)), "{config}");
            assert!(
                config.contains(what.pipe.trim_start_matches(r"\\.")),
                "{config}"
            );
        }
    }
}

fn file_of_containerd(documents: &[Document]) -> String {
    file(documents, r"C:\k\containerd\containerd_conf.toml").expect("a configuration")
}

/// Row 19: what a layer says of registries is where every containerd looks for it.
#[test]
fn mirrors_of_a_layer_are_read_by_every_containerd() {
    mirrors_are_read(NO_CHANGE);
}

fn mirrors_are_read(change: Change) {
    let layer = "host: {mirrors: {quay.io: {blocked: true}}}";
    for profile in ["openshift", "upstream"] {
        for containerd in CONTAINERDS {
            let documents = Node {
                profile,
                containerd,
                layer,
                change,
                ..NODE
            }
            .rendered();
            let plugins = &toml(&documents)["plugins"];
            let plugin = match plugins.get("io.containerd.cri.v1.images") {
                Some(images) => images,
                None => &plugins["io.containerd.grpc.v1.cri"],
            };
            let folder = plugin["registry"]["config_path"].as_str();
            let hosts = format!(r"{}\quay.io\hosts.toml", folder.expect("a folder"));
            let text = file(&documents, &hosts).expect(&hosts);
            assert_eq!(text, "server = \"https://never-contact-source.invalid\"\n");
        }
    }
}

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

/// One mistake for each row that a release, a build or a layer can make.
#[test]
fn one_planted_mistake_for_each_row_is_refused() {
    let toml = |text: &str| {
        let text = text.replace('\n', "\n        ");
        format!(
            "host:\n  files:\n    C:\\k\\containerd\\containerd_conf.toml:\n      content: |\n        {text}\n"
        )
    };
    let runtime = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.a]\n  runtime_path = 'C:\\a.exe'\n";
    let nri = "[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n";
    let cni = |text: &str| {
        toml(&format!(
            "version = 3\n{nri}{runtime}[plugins.'io.containerd.cri.v1.runtime'.cni]\n{text}"
        ))
    };
    let blocked_file = |text: &str| {
        let cri = "[plugins.'io.containerd.grpc.v1.cri'.registry]\nconfig_path = 'C:\\k\\containerd\\registries'";
        let file = toml(&format!("{text}\n{cri}"));
        format!("{file}  mirrors: {{quay.io: {{blocked: true}}}}\n")
    };
    let both = cni("bin_dir = 'C:\\a'\nbin_dirs = ['C:\\a']");
    let single = cni("bin_dir = 'C:\\a'");
    let list = cni("bin_dirs = ['C:\\a']");
    let old_list =
        toml("version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dirs = ['C:\\a']");
    let three = toml("version = 3");
    let four = toml("version = 4");
    let on = toml(&format!("version = 3\n{runtime}"));
    let path = toml(&format!(
        "version = 3\n{nri}[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.a]\nruntime_type = 'x'"
    ));
    let broken = toml("version = ");
    let versionless = blocked_file("");
    let first = blocked_file("version = 1");
    let unnamed = toml(&format!("version = 3\n{nri}{runtime}"));
    let images = |pinned: &str| {
        toml(&format!(
            "version = 3\n{nri}{runtime}[plugins.'io.containerd.cri.v1.images'.pinned_images]\n{pinned}"
        ))
    };
    let [no_pause, empty_pause, bare_pause] =
        ["", "sandbox = ''", "sandbox = 'registry.k8s.io/pause'"].map(images);
    let misspelt_cni = cni("bin_dirz = ['C:\\a']");
    let part = "host: {mirrors: {quay.io/team: {blocked: true}}}";
    let wildcard = "host: {mirrors: {'*.example': {blocked: true}}}";
    let url = "host: {mirrors: {'https://quay.io': {blocked: true}}}";
    let cloud_variable = "variables: {CLOUD_PROVIDER: aws}";
    let port = "variables: {VXLAN_PORT: '70000'}";
    let port_of_letters = "variables: {VXLAN_PORT: abc}";
    let indirect = "variables: {X: notaduration, LOG_FLUSH_INTERVAL: '${X}'}";
    let literal = r"host: {services: {kubelet: {command: ['C:\k\kube-log-runner.exe', '-flush-interval=nope', 'C:\k\kubelet.exe']}}}";
    let upper = "host: {services: {csi-proxy: {depends: [Kube-Proxy]}}}";
    let round = "host: {services: {containerd: {depends: [Kubelet]}}}";
    let platform = "host: {directories: {'C:\\a': {when: {platform: [awss]}}}}";
    let build =
        r"host: {registry: {a: {key: SOFTWARE\a, name: a, dword: 1, windows_builds: ['20348']}}}";
    let old_path = toml(
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.a]\nruntime_type = 'x'",
    );
    let elsewhere = "host: {services: {containerd: {command: ['C:\\k\\Containerd.exe', --config, 'C:\\my.toml']}}}";
    let nowhere = "host: {services: {containerd: {command: ['C:\\k\\containerd.exe']}}}";
    let blocked = |text: &str| format!("{}  mirrors: {{quay.io: {{blocked: true}}}}\n", toml(text));
    let unread_1 = blocked("version = 2");
    let unread_2 = blocked(&format!(
        "version = 3\n{nri}{runtime}[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = 'C:\\certs.d'"
    ));
    let misspelt = r"host: {files: {'C:\k\kubelet.conf': {json: {maxPodss: 9}}}}";
    let curves = r"host: {files: {'C:\k\kubelet.conf': {json: {tlsCurvePreferences: [29]}}}}";
    let proxy = r"node: {network: {files: {'C:\k\kube-proxy.conf': {json: {winkernel: {enableDsr: true}}}}}}";
    let gates = r"node: {network: {files: {'C:\k\kube-proxy.conf': {json: {featureGates: {WinDSR: true}}}}}}";
    let flag = |flag: &str| {
        format!("host: {{services: {{kubelet: {{command: ['C:\\k\\kubelet.exe', '{flag}']}}}}}}")
    };
    let turned = r"host: {services: {kubelet: {command: ['C:\k\kube-log-runner.exe', '-log-file-size=1Gi', 'C:\k\kubelet.exe']}}}";
    let cloud = flag(r"--cloud-config=C:\k\cloud.conf");
    let infra = flag("--pod-infra-container-image=pause");
    let log_query =
        r"host: {files: {'C:\k\kubelet.conf': {json: {featureGates: {NodeLogQuery: true}}}}}";
    let periods = r"host: {files: {'C:\k\kubelet.conf': {json: {shutdownGracePeriod: {when: {platform: [aws]}, value: 30s}}}}}";
    let pause = "variables: {PAUSE_IMAGE: 'mcr.microsoft.com/oss/kubernetes/pause:3.9'}";
    let depends = "host: {services: {csi-proxy: {depends: [kube-proxy]}}}";
    let logs = "variables: {LOG_FILE_AGE: notaduration}";
    let of_2 = |layer| Node {
        containerd: "2.3",
        layer,
        ..NODE
    };
    let of_1 = |layer| Node { layer, ..NODE };
    let on_2025 = |layer| Node {
        build: SERVER_2025,
        ..of_2(layer)
    };
    let kubelet_json =
        |json: &str| format!(r"host: {{files: {{'C:\k\kubelet.conf': {{json: {json}}}}}}}");
    let text_for_number = kubelet_json("{maxPods: x}");
    let bare_seconds = kubelet_json("{nodeStatusUpdateFrequency: '10'}");
    let unknown_gate = kubelet_json("{featureGates: {NodeSwapp: true}}");
    let locked_gate = kubelet_json("{featureGates: {ImageVolume: false}}");
    let early_gate = kubelet_json("{featureGates: {KubeletPSI: 'yes'}}");
    let gate_flag = flag("--feature-gates=NodeSwapp=true");
    let misspelt_flag = flag("--max-podss=9");
    let flag_of_letters = flag("--max-pods=many");
    let proxy_flag =
        r"node: {services: {kube-proxy: {command: ['C:\k\kube-proxy.exe', '--node-ip=10.0.0.9']}}}";
    let on_37 = |layer| Node {
        kubelet: "1.37",
        ..of_2(layer)
    };
    let table = [
        (
            14,
            of_1(&text_for_number),
            "`maxPods` is \"x\", and the kubelet wants a whole number",
        ),
        (
            14,
            of_1(&bare_seconds),
            "`nodeStatusUpdateFrequency` is \"10\", and the kubelet wants a length of time",
        ),
        (
            7,
            of_1(&unknown_gate),
            "`featureGates/NodeSwapp` is no feature gate, and the kubelet ends with one that is not known; did you mean \
             NodeSwap?",
        ),
        (
            7,
            on_37(&locked_gate),
            "`featureGates/ImageVolume` is locked to true",
        ),
        (
            7,
            of_1(&early_gate),
            "`featureGates.KubeletPSI` is \"yes\", and the kubelet wants true or false",
        ),
        (
            7,
            of_1(&gate_flag),
            "`featureGates/NodeSwapp` is no feature gate",
        ),
        (
            9,
            of_1(&misspelt_flag),
            "`--max-podss` is no flag of the kubelet",
        ),
        (
            9,
            of_1(&flag_of_letters),
            "`--max-pods=many`: the kubelet wants a whole number",
        ),
        (9, of_1(proxy_flag), "`--node-ip` is no flag of kube-proxy"),
        (
            1,
            Node {
                containerd: "2.1",
                ..of_2(&both)
            },
            "are both there, which containerd refuses",
        ),
        (
            1,
            Node {
                containerd: "2.4",
                ..of_2(&both)
            },
            "are both there, which containerd refuses",
        ),
        (2, of_1(&versionless), "has no `version`"),
        (2, of_1(&first), "`version = 1` is of containerd before 1.3"),
        (
            4,
            of_2(&unnamed),
            "the runtime runhcs-wcow-process, the default one, is not named",
        ),
        (5, on_2025(&no_pause), "names no pause image"),
        (5, of_2(&empty_pause), "the pause image is empty"),
        (5, of_2(&bare_pause), "registry.k8s.io/pause has no tag"),
        (
            1,
            of_2(&misspelt_cni),
            "`cni.bin_dirz` is no setting of containerd; did you mean bin_dir",
        ),
        (
            19,
            of_1(part),
            "mirrors.quay.io/team: containerd knows whole registries only",
        ),
        (
            19,
            of_1(wildcard),
            "mirrors.*.example: containerd knows registries by their whole names",
        ),
        (19, of_1(url), "mirrors.https://quay.io: it is a URL"),
        (
            9,
            // A cluster on a cloud has its own word, which goes before the layer's.
            Node {
                platform: "none",
                ..of_1(cloud_variable)
            },
            "`--cloud-provider=aws`: the kubelet has no cloud provider of its own any more",
        ),
        (13, of_1(port), "`70000` is no port"),
        (13, of_1(port_of_letters), "`abc` is no port"),
        (
            17,
            Node {
                kubelet: "1.34",
                ..of_1(indirect)
            },
            "`notaduration` is no duration",
        ),
        (
            17,
            Node {
                kubelet: "1.34",
                ..of_1(literal)
            },
            "`-flush-interval`: `nope` is no duration",
        ),
        (
            18,
            of_1(upper),
            "`Kube-Proxy` is a service of the node section",
        ),
        (18, of_1(round), "is a circle"),
        (
            0,
            of_1(platform),
            "there is no platform `awss`; did you mean aws?",
        ),
        (
            11,
            of_1(build),
            "`20348` is no Windows build, such as 10.0.20348",
        ),
        (
            1,
            Node {
                containerd: "2.3",
                layer: &both,
                ..NODE
            },
            "are both there, which containerd refuses",
        ),
        (
            1,
            Node {
                containerd: "2.4",
                layer: &single,
                ..NODE
            },
            "a setting of 2.0 only",
        ),
        (
            1,
            Node {
                containerd: "2.1",
                layer: &single,
                ..NODE
            },
            "a setting of 2.0 only",
        ),
        (
            1,
            Node {
                containerd: "2.2",
                layer: &both,
                ..NODE
            },
            "are both there, which containerd refuses",
        ),
        (
            1,
            Node {
                containerd: "2.0",
                layer: &list,
                ..NODE
            },
            "a setting of 2.1 and later",
        ),
        (
            1,
            Node {
                layer: &old_list,
                ..NODE
            },
            "`plugins/io.containerd.grpc.v1.cri/cni/bin_dirs` is a setting of 2.1 and later",
        ),
        (
            2,
            Node {
                containerd: "2.2",
                layer: &four,
                ..NODE
            },
            "`version = 4` is a setting of 2.3 and later",
        ),
        (
            2,
            Node {
                containerd: "1.7",
                layer: &three,
                ..NODE
            },
            "`version = 3` is a setting of 2.0 and later",
        ),
        (
            2,
            Node {
                containerd: "2.4",
                layer: &broken,
                ..NODE
            },
            "is no TOML",
        ),
        (
            3,
            Node {
                containerd: "2.3",
                layer: &on,
                ..NODE
            },
            "NRI is on without it",
        ),
        (
            4,
            Node {
                containerd: "2.3",
                layer: &path,
                ..NODE
            },
            "has no `runtime_path`",
        ),
        (
            4,
            Node {
                layer: &old_path,
                ..NODE
            },
            "the runtime a has no `runtime_path`",
        ),
        (
            2,
            Node {
                layer: elsewhere,
                ..NODE
            },
            r"service:containerd: containerd reads C:\my.toml, which is not among this section's `files`",
        ),
        (
            2,
            Node {
                layer: nowhere,
                ..NODE
            },
            r"containerd reads C:\Program Files\containerd\config.toml, which is not among",
        ),
        (
            19,
            Node {
                layer: &unread_1,
                ..NODE
            },
            r#"write `config_path = 'C:\k\containerd\registries'` below `[plugins."io.containerd.grpc.v1.cri".registry]`"#,
        ),
        (
            19,
            Node {
                profile: "upstream",
                containerd: "2.4",
                layer: &unread_2,
                ..NODE
            },
            "containerd would read none of the profile's `mirrors`, and a blocked registry would be open",
        ),
        (
            14,
            Node {
                layer: misspelt,
                ..NODE
            },
            "`maxPodss` is no field of a KubeletConfiguration, and the kubelet would ignore it; did you mean maxPods?",
        ),
        (
            14,
            Node {
                kubelet: "1.35",
                layer: curves,
                ..NODE
            },
            "`tlsCurvePreferences` is a field of 1.36 and later, and the payload has 1.35",
        ),
        (
            7,
            Node {
                kubelet: "1.37",
                layer: proxy,
                ..NODE
            },
            "`winkernel.enableDsr` is no field of a KubeProxyConfiguration",
        ),
        (
            5,
            Node {
                build: SERVER_2025,
                layer: pause,
                ..NODE
            },
            "has no image for Windows Server 2025",
        ),
        (
            6,
            Node {
                kubelet: "1.38",
                ..NODE
            },
            "kubelet 1.38 needs containerd 2, and the payload has 1.7",
        ),
        (
            6,
            Node {
                kubelet: "1.38",
                containerd: "",
                ..NODE
            },
            "and the manifest has no `containerd`, which counts as 1.7",
        ),
        (
            7,
            Node {
                kubelet: "1.37",
                layer: gates,
                ..NODE
            },
            "`featureGates/WinDSR` is a setting of 1.14 to 1.33",
        ),
        (
            8,
            Node {
                layer: turned,
                ..NODE
            },
            "`-log-file-size` is a setting of 1.34 and later",
        ),
        (
            9,
            Node {
                kubelet: "1.34",
                layer: &cloud,
                ..NODE
            },
            "`--cloud-config` is a setting of 1.33 and earlier",
        ),
        (
            9,
            Node {
                kubelet: "1.35",
                layer: &infra,
                ..NODE
            },
            "`--pod-infra-container-image`",
        ),
        (
            6,
            Node {
                kubelet: "1.36",
                layer: log_query,
                ..NODE
            },
            "`featureGates/NodeLogQuery`",
        ),
        (
            6,
            Node {
                kubelet: "1.34",
                layer: periods,
                ..NODE
            },
            "`shutdownGracePeriodCriticalPods` (20s) is longer than `shutdownGracePeriod` (0s)",
        ),
        (
            10,
            Node {
                profile: "upstream",
                layer: r"host: {directories: {'C:etc\kubernetes\pki': {}}}",
                ..NODE
            },
            "is not an absolute path with a drive",
        ),
        (
            11,
            Node {
                layer: "host: {dynamic_ports: {start: 34000, count: 31537}}",
                ..NODE
            },
            "31537 ports from 34000 on: Windows takes",
        ),
        (
            11,
            Node {
                layer: "host: {dynamic_ports: {start: 32767, count: 255}}",
                ..NODE
            },
            "255 ports from 32767 on: NodePorts are 30000 to 32767",
        ),
        (
            11,
            Node {
                layer: "host: {dynamic_ports: {start: 29000, count: 1001}}",
                ..NODE
            },
            "1001 ports from 29000 on: NodePorts are 30000 to 32767",
        ),
        (
            11,
            Node {
                layer: "host: {registry: {no-auto-update: {dword: '1'}}}",
                ..NODE
            },
            "host.registry.no-auto-update.dword",
        ),
        (
            11,
            Node {
                layer: "host: {registry: {no-auto-update: {text: '1'}}}",
                ..NODE
            },
            "has to have one of `dword`",
        ),
        (
            12,
            Node {
                layer: "host: {payload: {ctr.exe: {}}}",
                ..NODE
            },
            "payload.ctr.exe: the payload has no such file",
        ),
        (
            21,
            Node {
                layer: r"host: {registry: {static-address: {key: 'HKLM\SYSTEM\CurrentControlSet\Services\hns\State'}}}",
                ..NODE
            },
            "the key is written without its root",
        ),
        (
            13,
            Node {
                build: SERVER_2019,
                vxlan_port: "9898",
                ..NODE
            },
            "cannot change the port of VXLAN",
        ),
        (
            17,
            Node {
                layer: logs,
                ..NODE
            },
            "`notaduration` is no duration",
        ),
        (
            18,
            Node {
                layer: depends,
                ..NODE
            },
            "`kube-proxy` is a service of the node section",
        ),
    ];
    for (row, node, wanted) in table {
        let why = node.render().expect_err(wanted).to_string();
        assert!(
            why.contains(wanted),
            "row {row}\nwanted {wanted}\ntold {why}"
        );
    }
    // The same on a build that has the image, and on one that can change the port.
    assert!(
        Node {
            layer: pause,
            ..NODE
        }
        .render()
        .is_ok()
    );
    vxlan_port_reaches_the_overlay(NO_CHANGE);
}

/// Row 13.
fn vxlan_port_reaches_the_overlay(change: Change) {
    let documents = Node {
        vxlan_port: "9898",
        change,
        ..NODE
    }
    .rendered();
    let command = command(&documents, "hybrid-overlay-node");
    assert!(
        command.ends_with("--hybrid-overlay-vxlan-port 9898"),
        "{command}"
    );
}

/// A row that is taken out of a built-in profile is missed by the row's own test. (Of the rows 14 to 20, only 19 is part of a
/// profile.)
#[test]
fn a_row_that_is_taken_away_is_missed() {
    type Check = fn(Change);
    const SHIM: &str = r"runtime_path = '${PAYLOAD_DIR}\containerd\containerd-shim-runhcs-v1.exe'";
    let table: [(u32, Check, Change); 31] = [
        (1, every_pair_renders, ("bin_dirs = [", "dirs = [")),
        (
            1,
            every_pair_renders,
            ("containerd: \">=2.0 <2.1\"", "containerd: \">=2.0\""),
        ),
        (
            1,
            every_pair_renders,
            ("containerd: \">=2.0 <2.1\"", "containerd: \">=2.0 <2.2\""),
        ),
        (
            1,
            every_pair_renders,
            (
                "- when: { containerd: \">=2.1\" }",
                "- when: { containerd: \">=2.2\" }",
            ),
        ),
        (2, every_pair_renders, ("version = 3", "version = 2")),
        (2, every_pair_renders, ("version = 2", "version = 3")),
        (3, every_pair_renders, ("disable = true", "disable = false")),
        (4, every_pair_renders, (SHIM, "")),
        (
            4,
            every_pair_renders,
            ("ScrubLogs = true", "ScrubLogs = false"),
        ),
        (
            4,
            every_pair_renders,
            ("container_annotations = [\"io.microsoft.container.*\"]", ""),
        ),
        (5, every_pair_renders, ("pause:3.10.2", "pause:3.10.1")),
        (
            5,
            pause_comes_with_the_payload,
            (
                "archive: pause.tar, when: { payload: pause.tar }",
                "archive: pause.tar, when: { payload: p.tar }",
            ),
        ),
        (
            5,
            pause_comes_with_the_payload,
            (
                "sandbox_image = \"${PAUSE_IMAGE}\"",
                "sandbox_image = \"a/pause:3.10.2\"",
            ),
        ),
        (
            6,
            every_pair_renders,
            (
                "shutdownGracePeriod: { when: { kubelet: \">=1.34\" }",
                "shutdownGracePeriod: { when: { kubelet: \">=1.35\" }",
            ),
        ),
        (
            6,
            every_pair_renders,
            (
                "NodeLogQuery: { when: { kubelet: \"<1.36\" }",
                "NodeLogQuery: { when: { kubelet: \"<1.37\" }",
            ),
        ),
        (
            7,
            every_pair_renders,
            (
                "featureGates: { when: { kubelet: \"<1.34\" }",
                "featureGates: { when: { kubelet: \"<1.35\" }",
            ),
        ),
        (
            7,
            every_pair_renders,
            (
                "featureGates: { when: { kubelet: \"<1.34\" }",
                "featureGates: { when: { kubelet: \"<1.33\" }",
            ),
        ),
        (
            8,
            flags_reach_what_knows_them,
            ("words: [\"-log-file-age=${LOG_FILE_AGE}\"]", "words: []"),
        ),
        (
            8,
            flags_reach_what_knows_them,
            (
                "set: LOG_FILE_SIZE, kubelet: \">=1.34\"",
                "set: LOG_FILE_SIZE",
            ),
        ),
        (
            9,
            flags_reach_what_knows_them,
            (r"words: ['--cloud-config=C:\k\cloud.conf']", "words: []"),
        ),
        (
            9,
            every_pair_renders,
            (
                "secret: cloud-config, kubelet: \"<1.34\"",
                "secret: cloud-config",
            ),
        ),
        (
            10,
            upstream_has_its_folders,
            (r"    C:\etc\kubernetes\manifests: {}", ""),
        ),
        (
            10,
            upstream_has_its_folders,
            ("systemReserved:", "kubeReserved:"),
        ),
        (
            11,
            windows_is_set,
            ("name: NoAutoUpdate", "name: AutoUpdate"),
        ),
        (
            11,
            windows_is_set,
            (
                "windows_builds: [10.0.20348]",
                "windows_builds: [10.0.26100]",
            ),
        ),
        (11, windows_is_set, ("count: 31536", "count: 16384")),
        (
            12,
            no_ctr,
            (
                "containerd.exe: { change: drain }",
                "containerd.exe: { change: drain }\n    ctr.exe: {}",
            ),
        ),
        (
            13,
            vxlan_port_reaches_the_overlay,
            ("set: VXLAN_PORT", "set: NO_PROXY"),
        ),
        (
            19,
            mirrors_are_read,
            (r"config_path = 'C:\k\containerd\registries'", ""),
        ),
        (
            19,
            mirrors_are_read,
            (
                "[plugins.\"io.containerd.cri.v1.images\".registry]",
                "[plugins.\"io.containerd.cri.v1.images\".registries]",
            ),
        ),
        (
            21,
            windows_is_set,
            ("static_address: true", "static_address: false"),
        ),
    ];
    for (row, check, change) in table {
        let texts = [builtin::OPENSHIFT, builtin::UPSTREAM];
        let mut changed = texts
            .iter()
            .filter(|text| text.contains(change.0))
            .peekable();
        assert!(changed.peek().is_some(), "row {row}: {change:?}");
        // It is a profile still: another one than it should be.
        for text in changed {
            let layer = Layer::parse("changed", &text.replace(change.0, change.1));
            let profile = layer.and_then(|layer| stack(&[layer]));
            assert!(profile.is_ok(), "row {row}: {change:?}: {profile:?}");
        }
        let missed = std::panic::catch_unwind(|| check(change)).is_err();
        assert!(missed, "row {row} can go, and no test sees it: {change:?}");
    }
}

/// Rows of nodes' configuration: the tests that fail without them, a mistake that is planted, and the program that refuses
/// it, or why none can.
struct Row {
    number: u32,
    setting: &'static str,
    /// File of each test, and its name.
    tests: &'static [(&'static str, &'static str)],
    mistake: &'static str,
    program: &'static str,
}

const SUPPORT: &str = "workers/profile/tests/support.rs";
const PAIRS: (&str, &str) = (
    SUPPORT,
    "every_pair_of_the_support_table_renders_for_every_platform",
);
const FLAGS: (&str, &str) = (
    SUPPORT,
    "a_flag_of_old_kubelets_and_the_settings_of_logs_reach_them",
);
const WINDOWS: (&str, &str) = (SUPPORT, "windows_itself_is_set_by_its_build");
const OF_THE_CLUSTER: &str = "workers/tests/kubernetes/cluster_config.rs";
const NO_PROGRAM: &str = "none: Windows takes any value; a simulated and a Wine host read it back";
const OF_DORMER: &str = "none: dormer alone reads it";

const ROWS: &[Row] = &[
    Row {
        number: 1,
        setting: "containerd's CNI folders",
        tests: &[PAIRS],
        mistake: "the wrong one for 1.7, 2.0, 2.1 and 2.4; both for 2.2 and 2.3",
        program: "containerd 1.7 and 2.4",
    },
    Row {
        number: 2,
        setting: "containerd's version of its file",
        tests: &[PAIRS],
        mistake: "3 for 1.7, 4 for 2.2, no TOML; a file that the profile does not have",
        program: "containerd 1.7",
    },
    Row {
        number: 3,
        setting: "NRI is off",
        tests: &[PAIRS],
        mistake: "on in 2.3",
        program: "containerd 2.4, a misspelt key",
    },
    Row {
        number: 4,
        setting: "the shim's path, and what it keeps out of its log",
        tests: &[PAIRS],
        mistake: "none in 1.7 and 2.3",
        program: "containerd 2.4, a misspelt key",
    },
    Row {
        number: 5,
        setting: "the pause image",
        tests: &[
            PAIRS,
            (
                SUPPORT,
                "the_pause_image_comes_with_the_payload_where_that_has_it",
            ),
            (
                "tests/fleet/tests/host/profile.rs",
                "a_host_without_egress_starts_pods_where_the_payload_or_a_mirror_has_the_pause_image",
            ),
            (
                "src/payload_command/pause.rs",
                "every_windows_build_needs_an_image",
            ),
        ],
        mistake: "3.9 for Server 2025; a tar without the build, of Docker's form, or compressed",
        program: "containerd 1.7 and 2.4, a misspelt table",
    },
    Row {
        number: 6,
        setting: "Kubernetes 1.33 to 1.37, grace periods",
        tests: &[PAIRS],
        mistake: "1.38 with containerd 1.7; a period for one of two platforms; NodeLogQuery in 1.36",
        program: "the kubelet of 1.37",
    },
    Row {
        number: 7,
        setting: "kube-proxy's gates",
        tests: &[PAIRS],
        mistake: "WinDSR in 1.37; a misspelt field; a gate that no release has, a locked one, and one on the command line",
        program: "kube-proxy of 1.34 and 1.37; a misspelt field its strict reader only",
    },
    Row {
        number: 8,
        setting: "log rotation",
        tests: &[FLAGS],
        mistake: "a flag in 1.33",
        program: "kube-log-runner of 1.33",
    },
    Row {
        number: 9,
        setting: "`--cloud-config`, `--cloud-provider`",
        tests: &[PAIRS, FLAGS],
        mistake: "the flag in 1.34, another in 1.35; a misspelt flag; letters for a number",
        program: "the kubelet of 1.34 and 1.35",
    },
    Row {
        number: 10,
        setting: "paths of an upstream node, what is kept for Windows",
        tests: &[(
            SUPPORT,
            "an_upstream_node_has_the_folders_that_its_daemon_sets_expect",
        )],
        mistake: "a path without a root",
        program: "none: a path is any text to them",
    },
    Row {
        number: 11,
        setting: "the registry, by build; dynamic ports",
        tests: &[
            WINDOWS,
            (
                "workers/host/tests/system.rs",
                "a_value_of_the_registry_is_made_mended_and_removed_and_one_of_somebody_else_stays",
            ),
        ],
        mistake: "too many ports; NodePorts; a number as a text",
        program: NO_PROGRAM,
    },
    Row {
        number: 12,
        setting: "no `ctr.exe`",
        tests: &[(SUPPORT, "ctr_is_not_installed")],
        mistake: "a layer wants it, and the payload has none",
        program: "none: a program that is not there",
    },
    Row {
        number: 13,
        setting: "port of VXLAN",
        tests: &[
            (SUPPORT, "one_planted_mistake_for_each_row_is_refused"),
            (OF_THE_CLUSTER, "what_openshift_says_of_its_nodes_is_read"),
        ],
        mistake: "another on Server 2019; 70000",
        program: "none: hybrid-overlay-node has no strict reader",
    },
    Row {
        number: 14,
        setting: "KubeletConfigs",
        tests: &[
            (
                "workers/profile/src/kubelet_config.rs",
                "what_means_the_same_reaches_windows_and_the_rest_is_named",
            ),
            (
                "workers/profile/src/kubelet_config.rs",
                "a_duration_that_is_not_rendered_yet_is_not_taken_for_zero",
            ),
            (OF_THE_CLUSTER, "of_a_pool_counts_what_all_its_nodes_have"),
        ],
        mistake: "cpuManagerPolicy; a pair that a layer contradicts; a misspelt field; one of a later release; a text for a number",
        program: "the kubelet of 1.33, a wrong type; of 1.33 and 1.37, a misspelt field by the strict reader only",
    },
    Row {
        number: 15,
        setting: "ImageContentSourcePolicy",
        tests: &[(OF_THE_CLUSTER, "what_openshift_says_of_its_nodes_is_read")],
        mistake: "a mirror that is a URL",
        program: OF_DORMER,
    },
    Row {
        number: 16,
        setting: "cluster DNS",
        tests: &[(
            "workers/src/kubernetes/cluster.rs",
            "the_dns_is_the_tenth_of_the_network_that_an_address_lies_in",
        )],
        mistake: "/32, no mask, IPv6",
        program: "none: any address is valid",
    },
    Row {
        number: 17,
        setting: "settings of logs are trimmed and checked",
        tests: &[
            FLAGS,
            (
                "workers/profile/src/variables.rs",
                "log_settings_are_trimmed_and_read_as_go_reads_them",
            ),
        ],
        mistake: "`notaduration`",
        program: "kube-log-runner of 1.34",
    },
    Row {
        number: 18,
        setting: "services of the two sections",
        tests: &[(SUPPORT, "one_planted_mistake_for_each_row_is_refused")],
        mistake: "csi-proxy depends on kube-proxy",
        program: OF_DORMER,
    },
    Row {
        number: 19,
        setting: "NeverContactSource without a mirror",
        tests: &[
            (
                "workers/profile/src/mirrors.rs",
                "a_ban_outlives_its_mirrors",
            ),
            (SUPPORT, "mirrors_of_a_layer_are_read_by_every_containerd"),
        ],
        mistake: "every mirror is left out; a ban of a path; a file of containerd without the mirrors' folder",
        program: "containerd 1.7, 2.3 and 2.4 read the folder's path; what is in it dormer alone reads",
    },
    Row {
        number: 20,
        setting: "pull secrets",
        tests: &[
            (
                "workers/profile/src/mirrors.rs",
                "credentials_for_a_repository_are_found_by_its_mirror",
            ),
            (
                "workers/profile/src/mirrors.rs",
                "of_docker_hubs_names_the_one_of_images_comes_first",
            ),
            (
                "workers/profile/src/mirrors.rs",
                "an_entry_with_a_pattern_is_for_the_hosts_that_fit",
            ),
        ],
        mistake: "two repositories of one mirror; no base64; a pattern of hosts that does not fit",
        program: OF_DORMER,
    },
    Row {
        number: 21,
        setting: "a static address",
        tests: &[
            WINDOWS,
            (
                "workers/host/tests/system.rs",
                "a_value_for_static_addresses_is_set_on_hosts_that_have_one",
            ),
        ],
        mistake: "a key with its root",
        program: NO_PROGRAM,
    },
];

/// The rows for people. Each test that they name is there.
fn rows() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = String::from(
        "| row | what | test that fails without it | planted mistakes that are refused | real program that refuses one |\n\
         |---|---|---|---|---|\n",
    );
    for row in ROWS {
        let names = row.tests.iter().map(|(path, name)| {
            let source = std::fs::read_to_string(root.join(path)).expect(path);
            assert!(
                source.contains(&format!("fn {name}(")),
                "row {}: {path} has no {name}",
                row.number
            );
            format!("`{name}`")
        });
        let names: Vec<String> = names.collect();
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            row.number,
            row.setting,
            names.join(", "),
            row.mistake,
            row.program
        );
    }
    text
}

/// The same for rows that come out of the cluster's objects: what is wrong there is named, and reaches no node.
#[test]
fn one_planted_mistake_for_each_row_of_the_cluster_is_named() {
    let of = |source: &str, mirror: &str, never_source| Mirrored {
        source: source.into(),
        mirrors: vec![mirror.into()],
        never_source,
        ..Mirrored::default()
    };
    let kubelet = json!({"maxPods": 99, "cpuManagerPolicy": "static"});
    let pull_secret = |auths: &str| {
        let text = format!(r#"{{"auths": {{{auths}}}}}"#);
        let credentials = Credentials::parse(&text).expect("a pull secret");
        Ok((Revision("1".into()), credentials))
    };
    let plain = ClusterSnapshot::default;
    let table = [
        (
            13,
            ClusterSnapshot {
                vxlan_port: Err("hybridOverlayVXLANPort is 70000, no port".into()),
                ..plain()
            },
            "hybrid overlay: hybridOverlayVXLANPort is 70000, no port",
        ),
        (
            14,
            ClusterSnapshot {
                kubelet_configs: Ok(vec![KubeletConfig {
                    name: "pods".into(),
                    settings: kubelet,
                    ..KubeletConfig::default()
                }]),
                ..plain()
            },
            "KubeletConfig pods: cpuManagerPolicy do not reach Windows nodes",
        ),
        // The API server compares the two newer sets with a pattern, an ImageContentSourcePolicy with none.
        (
            15,
            ClusterSnapshot {
                mirrors: Ok(vec![of(
                    "quay.io/team/one",
                    "https://mirror.example/team/one",
                    false,
                )]),
                ..plain()
            },
            "the mirror https://mirror.example/team/one of quay.io/team/one is left out: it is a URL",
        ),
        (
            19,
            ClusterSnapshot {
                mirrors: Ok(vec![of("quay.io/team", "mirror.example:x/team", true)]),
                ..plain()
            },
            "NeverContactSource of quay.io/team: containerd knows whole registries only",
        ),
        // Two repositories of one mirror, each with a robot's account of its own.
        (
            20,
            ClusterSnapshot {
                mirrors: Ok(vec![
                    of("quay.io/team/one", "mirror.example/team/one", false),
                    of("quay.io/team/two", "mirror.example/team/two", false),
                ]),
                pull_secret: pull_secret(
                    r#""mirror.example/team/one": {"auth": "b25lOnA="}, "mirror.example/team/two": {"auth": "dHdvOnA="}"#,
                ),
                ..plain()
            },
            "the credentials for mirror.example/team/two are left out",
        ),
        // Written by hand, and not in base64.
        (
            20,
            ClusterSnapshot {
                mirrors: Ok(vec![of(
                    "quay.io/team/one",
                    "mirror.example/team/one",
                    false,
                )]),
                pull_secret: pull_secret(
                    r#""mirror.example/team/one": {"auth": "robot:passw0rd"}"#,
                ),
                ..plain()
            },
            "the credentials for mirror.example/team/one are left out: its `auth` is no base64",
        ),
    ];
    for (row, snapshot, wanted) in table {
        let (cluster, warnings) = ClusterConfig::default().with(snapshot, true);
        let said = warnings.join("\n");
        assert!(
            said.contains(wanted),
            "row {row}\nwanted {wanted}\ntold {said}"
        );
        let layers = [
            builtin::layer("openshift").expect("a layer"),
            cluster.layer(),
        ];
        let profile = stack(&layers).expect("a profile");
        let told = serde_json::to_string(&profile).expect("JSON");
        assert!(
            !told.contains("cpuManagerPolicy")
                && !told.contains("https://https")
                && !said.contains("passw0rd"),
            "row {row}: {told}"
        );
        // Without any mirror that can be used the registry stays banned.
        let banned = profile.host.mirrors.values().any(|it| it.blocked);
        assert_eq!(banned, row == 19, "row {row}");
    }
}

#[test]
fn the_page_of_settings_has_every_row() {
    let introduction = "\
# Settings and the releases that understand them

A profile writes a setting only for the programs that understand it. The payload's manifest says which those are:
`kubelet:` (kube-proxy is of the same release) and `containerd:`. A manifest without `containerd:` is read as
containerd 1.7. Later ones translate that file when they start (containerd v2.4.2 `plugins/cri/runtime/plugin.go`), and NRI is on
there. From 2.4 on dormer asks for the name.

`dormer payload make` reads the release of containerd out of the program: the version of its Go module, the version that its
Makefile sets (`-X …/version.Version`), its version resource, or the module's name, which tells 1 from 2 (containerd v2.4.2
`Makefile.windows` writes no resource; a vendor's may have the vendor's own numbers). dormer refuses a payload whose manifest
says another release than containerd, the kubelet or kube-proxy, also within 2.0 to 2.2. After the join the check `runtime`
compares the manifest with `containerRuntimeVersion` of the Node.

A layer that has one of these settings for another release is refused when it is rendered, with the reason.

containerd 1.7 knows of a runtime only what its file says, and has no other one; from 2.0 on its own defaults stay. So a file for
1.7 has `container_annotations`. `ScrubLogs` is there for all releases: containerd's default has it only since 1.7.35, 2.2.7, 2.3.4
and 2.4.0, and the shim's since hcsshim 0.15.0-rc.2. From 2.0 on `runhcs-wcow-hypervisor` has its `runtime_path`, too.

";
    let after = "
Also refused:

- `bin_dir` and `bin_dirs` together (containerd#11311). containerd refuses that when its plugin starts, which `containerd
  config dump` does not do;
- a service of containerd whose file (`--config`) is not among the `files` of its section;
- `mirrors` where that file does not name their folder as the registries' `config_path`: a blocked registry would be open;
- a runtime of containerd without `runtime_path`, and from 2.0 on NRI that is not disabled;
- a field that the kubelet or kube-proxy of that release does not have, such as `maxPodss`. The programs themselves warn, and
  ignore it (kubernetes v1.33.13 and v1.37.2 `pkg/kubelet/kubeletconfig/util/codec/codec.go`, `cmd/kube-proxy/app/options.go`).
  `workers/profile/src/settings/kubelet_fields.txt` and `kube_proxy_fields.txt` have the fields of 1.33 to 1.37;
- a value of another type, such as `maxPods: \"x\"`, or a length of time without its unit: it ends them;
- a feature gate that the release does not have, or that it has locked to another value, in `featureGates` and in
  `--feature-gates` (`gates.txt` there);
- a flag that the kubelet or kube-proxy of that release does not have, or whose value is of another type
  (`kubelet_flags.txt` and `kube_proxy_flags.txt` there). Flags of several letters have two dashes;
- a pause image below 3.10.2 in a payload for Windows Server 2025 (containerd#13156, windows-testing#557);
- another port of VXLAN than 4789 in a payload for Windows Server 2019 only (hcsshim `hcnglobals.go`: HNS 10.3 and
  later). Where a payload is for other builds, too, the machines of Server 2019 wait with that reason, and the others go
  on;
- dynamic ports that Windows does not take: fewer than 255, or below 1025. And those that NodePorts need:
  30000 to 32767 (kubernetes v1.37.2 `pkg/kubeapiserver/options/options.go`). dormer does not read the API server's
  `--service-node-port-range`;
- containerd 1.7 for a kubelet from 1.38 on;
- `singleProcessOOMKill`, `userNamespaces` and `defaultPodSysctls`, which end a kubelet on Windows (`validation_windows.go`
  there);
- an age of logs without a size: kube-log-runner rotates, and removes, only files that have a size limit (kubernetes v1.34.4
  component-base `logs/kube-log-runner/logrotation.go`);
- settings of a kubelet that contradict each other, and would end it (kubernetes v1.33.13 and v1.37.2
  `pkg/kubelet/apis/config/validation/validation.go`): a `shutdownGracePeriodCriticalPods` longer than
  `shutdownGracePeriod`, or a period below 1s; an `imageGCLowThresholdPercent` that is not below
  `imageGCHighThresholdPercent`; an `imageMaximumGCAge` that is not longer than `imageMinimumGCAge`;
  `maxParallelImagePulls` above 1 with `serializeImagePulls: true`; `shutdownGracePeriodByPodPriority` beside one of the two
  periods above 0. A setting that is missing counts with the kubelet's
  default. To switch the graceful shutdown off, set both periods to `0s`. Where the cluster's KubeletConfig has one of a pair
  and a layer the other, the layer counts, the cluster's is left out, and an Event says so.

## How a profile says so

```yaml
host:
  directories: { 'C:\\logs': { when: { platform: [aws] } } }      # an entry of a map
  files:
    C:\\k\\kubelet.conf:
      json:
        featureGates:
          NodeLogQuery: { when: { kubelet: \"<1.36\" }, value: true }   # a key of JSON, or an element of a list
    C:\\k\\containerd\\containerd_conf.toml:
      content:                                                   # parts of a text
        - { when: { containerd: \"<2.0\" }, text: \"version = 2\\n\" }
        - { when: { containerd: \">=2.0\" }, text: \"version = 3\\n\" }
```

A range is `>=2.1`, `<1.34`, `>=2.0 <2.1`, or one release. `platform`, `set` and `secret` are conditions, too. All given
conditions must hold. A value of the registry can be for some Windows builds only (`windows_builds`); the host compares.

### A layer over a value with a condition

| the layer has | what comes out |
|---|---|
| `KEY: {when: …, value: …}` | this replaces what is below, on every machine: where its condition does not hold, nothing is there |
| `KEY: {A: 1}` over `KEY: {when: …, value: {B: 2}}` | `A` is always there, and `B` under the condition that it has |
| `KEY: {value: …}` or `KEY: {when: …}` | the value alone, or the condition alone, is changed |
| `KEY: {when: null}` | the value is there without a condition |
| `KEY: 1`, `KEY: null` | as everywhere: it replaces, it removes |

So a gate more for kube-proxy is `featureGates: { ContextualLogging: true }`, for every release (1.33 to 1.37 know it). An object with `when`,
`value` and another key is refused, and so is one with a `when` and no `value`.

## What holds each row

Each row of a node's configuration has a test that fails when the row is taken away
(`a_row_that_is_taken_away_is_missed` takes them out of the profiles), and mistakes that are planted and refused. The real
programs read every document, and refuse the mistakes that they can see ([Tests](testing.md)).

";
    let page = format!("{introduction}{}{after}{}", settings::page(), rows());
    expect_file!["../../../docs/settings.md"].assert_eq(&page);
}
