//! What each row of the table gives to a node: the settings that its releases know, and none that they do not.

use dormer_profile::{
    document::Document,
    item::{FileSource, ItemKind, RegistryValue},
};

use super::node::{
    CONTAINERDS, Change, KUBELETS, NO_CHANGE, NODE, Node, PLATFORMS, SERVER_2019, SERVER_2022,
    SERVER_2025, at_least, command, file, further, json, payload, toml,
};

/// First cells of the rows below a title of docs/support.md whose cell `at` says that they are supported.
fn supported<'a>(page: &'a str, title: &str, at: usize) -> Vec<&'a str> {
    let (_, rest) = page.split_once(title).expect(title);
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let rows = section.lines().map(|line| line.split(" | "));
    rows.filter(|cells| cells.clone().nth(at) == Some("yes"))
        .filter_map(|mut cells| cells.next()?.strip_prefix("| "))
        .collect()
}

/// A release, a platform or a Windows build that comes into the support table comes into these tests, too.
#[test]
fn what_is_rendered_is_the_whole_support_table() {
    let page = include_str!("../../../../docs/support.md");
    assert_eq!(CONTAINERDS[0], "", "a manifest from before the field");
    assert_eq!(supported(page, "\n## containerd\n", 1), CONTAINERDS[1..]);
    assert_eq!(supported(page, "\n## Platforms\n", 1), PLATFORMS);
    let builds = [SERVER_2019, SERVER_2022, SERVER_2025];
    assert_eq!(supported(page, "\n## Windows\n", 2), builds);
    let [first, .., last] = KUBELETS;
    let range = format!("\nPlain Kubernetes: {first} to {last} (");
    assert!(page.contains(&range), "{range}");
    let minors = KUBELETS.map(|release| release.replace("1.", "").parse::<usize>().ok());
    let whole: Vec<_> = (33..33 + KUBELETS.len()).map(Some).collect();
    assert_eq!(minors[..], whole, "none is left out");
}

/// Every pair renders on every platform and Windows build, and containerd gets what its release understands.
#[test]
fn every_pair_of_the_support_table_renders_for_every_platform() {
    every_pair_renders(NO_CHANGE);
}

pub(crate) fn every_pair_renders(change: Change) {
    for profile in ["openshift", "upstream"] {
        for platform in PLATFORMS {
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

pub(crate) fn flags_reach_what_knows_them(change: Change) {
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

/// Pods that use all of the CPU do not make the node NotReady (docs/differences.md).
#[test]
fn a_kubelet_runs_above_normal_priority() {
    for profile in ["openshift", "upstream"] {
        let documents = Node { profile, ..NODE }.rendered();
        let line = command(&documents, "kubelet");
        let wanted = " --windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS ";
        assert!(line.contains(wanted), "{line}");
    }
}

/// Row 10: the folders of sig-windows-tools, and what is kept free for Windows.
#[test]
fn an_upstream_node_has_the_folders_that_its_daemon_sets_expect() {
    upstream_has_its_folders(NO_CHANGE);
}

pub(crate) fn upstream_has_its_folders(change: Change) {
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

pub(crate) fn windows_is_set(change: Change) {
    const STATE: &str = r"SYSTEM\CurrentControlSet\Services\hns\State";
    const OVERRIDES: &str =
        r"SYSTEM\CurrentControlSet\Policies\Microsoft\FeatureManagement\Overrides";
    const UPDATE: &str = r"SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU";
    const LAYERS: &str = r"SYSTEM\CurrentControlSet\Services\wcifs";
    let all = String::new;
    let only = |build: &str| build.to_owned();
    let static_builds = format!("{SERVER_2019} {SERVER_2025}");
    let wanted = [
        ("1114842764", OVERRIDES, 0_u32, only(SERVER_2022), false),
        ("520997518", OVERRIDES, 1, only(SERVER_2025), false),
        ("DeviceLessNicDisabled", STATE, 1, static_builds, true),
        ("EnableCompartmentNamespace", STATE, 1, all(), false),
        ("HNSControlFlag", STATE, 80, only(SERVER_2019), false),
        ("NoAutoUpdate", UPDATE, 1, all(), false),
        ("WcifsSOPCountDisabled", LAYERS, 0, only(SERVER_2019), false),
    ];
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
                ItemKind::Registry(value) => {
                    let RegistryValue::Dword(number) = value.value else {
                        panic!("{value:?}");
                    };
                    Some((
                        value.name.as_str(),
                        value.key.as_str(),
                        number,
                        value.windows_builds.join(" "),
                        value.static_address,
                    ))
                }
                _ => None,
            });
        let mut found: Vec<_> = items.collect();
        found.sort();
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

pub(crate) fn no_ctr(change: Change) {
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

pub(crate) fn pause_comes_with_the_payload(change: Change) {
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
            // The name is the one in containerd's configuration.
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

pub(crate) fn mirrors_are_read(change: Change) {
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

/// Row 13.
#[test]
fn another_port_of_vxlan_reaches_the_overlay() {
    vxlan_port_reaches_the_overlay(NO_CHANGE);
}

pub(crate) fn vxlan_port_reaches_the_overlay(change: Change) {
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
