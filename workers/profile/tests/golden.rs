//! The built-in profiles, rendered and committed: a change of what nodes get is seen in review.
//!
//! `UPDATE_EXPECT=1 cargo test -p dormer-profile --test integration golden` writes the files anew.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_profile::{
    builtin,
    cluster_config::{ClusterConfig, ClusterSnapshot, Revision},
    document::{Document, Section},
    ignition::KubeletFacts,
    item::{File, FileSource, Item, ItemKind, Service},
    layers::{Layer, stack},
    mirrors::{Credentials, Mirrored},
    payload::{Manifest, PayloadFile},
    profile::Profile,
    registry_sources::RegistrySources,
    render::{EXAMPLE_PAYLOAD, Inputs, Rendered, render},
    values::{Values, join_secrets},
    variables::Secrets,
};
use expect_test::expect_file;
use serde_json::json;

fn values(platform: &str) -> Values {
    Values {
        api_server: "https://api-int.example:6443".into(),
        cluster_dns: "172.30.0.10".into(),
        cluster_domain: "cluster.local".into(),
        service_cidr: "172.30.0.0/16".into(),
        node_ip: "10.0.0.9".into(),
        platform: platform.into(),
        windows_build: "10.0.20348".into(),
        node_name: "win-1".into(),
        ..Values::default()
    }
}

/// The example's payload, with the two files that only some clusters need.
fn payload() -> Manifest {
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    for name in ["windows_exporter.exe", "ecr-credential-provider.exe"] {
        let sha256 = dormer_profile::sha256_hex(name.as_bytes());
        let destination = name.to_owned();
        let name = name.to_owned();
        manifest.files.push(PayloadFile {
            name,
            sha256,
            size: 1,
            destination,
        });
    }
    manifest
}

fn profile(name: &str, user: &str) -> Profile {
    let mut layers = vec![builtin::layer(name).expect("a layer")];
    if !user.is_empty() {
        layers.push(Layer::parse("user", user).expect("a layer"));
    }
    stack(&layers).expect("a profile")
}

fn secrets() -> Secrets {
    join_secrets(
        "https://api-int.example:6443",
        "API CA\n",
        "CLIENT CA\n",
        "t0ken",
    )
}

fn rendered(profile: &Profile, values: &Values, secrets: &Secrets, section: Section) -> Rendered {
    rendered_for(&payload(), profile, values, secrets, section)
}

fn rendered_for(
    payload: &Manifest,
    profile: &Profile,
    values: &Values,
    secrets: &Secrets,
    section: Section,
) -> Rendered {
    let variables = values.variables();
    let keep = ["10.20.0-01234567".to_owned()];
    let inputs = Inputs {
        profile,
        payload,
        variables: &variables,
        secrets,
        keep: &keep,
    };
    render(&inputs, section, "11.0.0-0123456789ab").expect("it renders")
}

/// A document for people: one line an item, then what belongs to it.
fn shown(document: &Document) -> String {
    let mut text = String::new();
    for item in &document.items {
        let change = format!("{:?}", item.change).to_lowercase();
        let _ = writeln!(text, "{} [{change}]", item.id);
        details(item, &mut text);
    }
    text
}

fn details(item: &Item, text: &mut String) {
    let mut say = |line: &str| {
        let _ = writeln!(text, "    {line}");
    };
    match &item.what {
        ItemKind::Service(service) => {
            say(&service.command);
            say(&format!(
                "{}; after {:?}",
                service.description, service.depends
            ));
            say(&format!(
                "restarts after {:?} ms",
                service.failure.restart_delays_ms
            ));
        }
        ItemKind::File(File {
            source: FileSource::Inline { base64 },
            users,
            private,
            ..
        }) => {
            let bytes = STANDARD.decode(base64).expect("base64");
            let who = if *private { "private" } else { "readable" };
            say(&format!("{who}, read by {users:?}"));
            String::from_utf8(bytes)
                .expect("text")
                .lines()
                .for_each(|line| say(&format!("| {line}")));
        }
        ItemKind::NetworkFile(file) => {
            file.template
                .lines()
                .for_each(|line| say(&format!("| {line}")));
        }
        ItemKind::File(_) => say("of the payload"),
        ItemKind::Directory(directory) if directory.keep => say("stays"),
        ItemKind::Environment(variable) => say(&format!("{:?}", variable.value)),
        ItemKind::HnsNetwork(network) => say(&format!("waited for {} ms", network.wait_ms)),
        ItemKind::Registry(value) => {
            say(&format!(
                r"{}\{} is {:?}",
                value.key, value.name, value.value
            ));
            if !value.windows_builds.is_empty() {
                say(&format!("on {:?} only", value.windows_builds));
            }
            if value.static_address {
                say("where the address is static only");
            }
        }
        ItemKind::DynamicPorts(ports) => say(&format!("{} from {} on", ports.count, ports.start)),
        ItemKind::Image(image) => say(&format!("out of {} through {}", image.archive, image.pipe)),
        ItemKind::SteadyService(evidence) => say(&format!("{} ms", evidence.steady_ms)),
        ItemKind::Http(evidence) => say(&evidence.url),
        ItemKind::Sweep(sweep) => say(&format!("under {}, keeps {:?}", sweep.under, sweep.keep)),
        ItemKind::NewestFiles(newest) => say(&format!(
            r"{}\{}*{}: {} stay, and what {:?} is",
            newest.under, newest.prefix, newest.suffix, newest.keep, newest.current
        )),
        ItemKind::Hostname(hostname) => say(&hostname.name),
        ItemKind::OnlyFolders(only) => say(&format!("only {:?}", only.keep)),
        ItemKind::OnlyCertificates(only) => say(&format!("only {:?}", only.keep)),
        ItemKind::Firewall(rule) => say(&format!("{:?} {}", rule.protocol, rule.port)),
        _ => {}
    }
}

#[test]
fn an_openshift_node() {
    let profile = profile("openshift", "");
    let values = values("aws");
    let secrets = secrets();
    let host = rendered(&profile, &values, &secrets, Section::Host);
    let node = rendered(&profile, &values, &secrets, Section::Node);
    expect_file!["golden/openshift-host.txt"].assert_eq(&shown(&host.document));
    expect_file!["golden/openshift-node.txt"].assert_eq(&shown(&node.document));
}

#[test]
fn an_upstream_node() {
    let host = rendered(
        &profile("upstream", ""),
        &values("none"),
        &secrets(),
        Section::Host,
    );
    expect_file!["golden/upstream-host.txt"].assert_eq(&shown(&host.document));
}

/// The newest programs of the support table. Beside `openshift-host.txt`, `openshift-node.txt` and `upstream-host.txt`, which
/// are for the oldest, these files show what differs by release.
#[test]
fn a_node_of_the_newest_programs() {
    let newest = Manifest {
        kubelet: "1.37".into(),
        containerd: "2.4".into(),
        ..payload()
    };
    for (name, platform, section) in [
        ("openshift", "aws", Section::Host),
        ("openshift", "aws", Section::Node),
        ("upstream", "none", Section::Host),
    ] {
        let profile = profile(name, "");
        let node = rendered_for(&newest, &profile, &values(platform), &secrets(), section);
        let golden = format!("golden/newest-{name}-{}.txt", section.as_str());
        expect_file![golden].assert_eq(&shown(&node.document));
    }
}

/// A later Kubernetes with containerd 1.7: each setting is as its own program wants it.
#[test]
fn a_node_of_a_later_kubernetes_and_the_oldest_containerd() {
    let mixed = Manifest {
        kubelet: "1.36".into(),
        containerd: "1.7".into(),
        ..payload()
    };
    for section in [Section::Host, Section::Node] {
        let profile = profile("openshift", "");
        let node = rendered_for(&mixed, &profile, &values("aws"), &secrets(), section);
        let golden = format!("golden/mixed-openshift-{}.txt", section.as_str());
        expect_file![golden].assert_eq(&shown(&node.document));
    }
}

/// Clouds whose Nodes have a name of their own, and one whose Nodes have the computer's.
#[test]
fn an_upstream_node_on_a_cloud() {
    for (platform, hostname_override) in [("aws", "ip-10-0-0-9"), ("azure", "")] {
        let values = Values {
            cloud_provider: "external".into(),
            hostname_override: hostname_override.into(),
            ..values(platform)
        };
        let profile = profile("upstream", "");
        let host = rendered(&profile, &values, &secrets(), Section::Host);
        let golden = format!("golden/upstream-{platform}-host.txt");
        expect_file![golden].assert_eq(&shown(&host.document));
    }
}

/// The services of both sections, with paths as if there were no folder per payload.
fn services(platform: &str, secrets: &Secrets, values: &Values) -> Vec<Service> {
    let profile = profile("openshift", "");
    let folder = format!(r"C:\k\{}\", payload().folder());
    let values = Values {
        platform: platform.into(),
        ..values.clone()
    };
    let mut found = Vec::new();
    for section in [Section::Host, Section::Node] {
        for item in rendered(&profile, &values, secrets, section).document.items {
            if let ItemKind::Service(mut service) = item.what {
                let bare = folder.trim_end_matches('\\');
                service.command = service
                    .command
                    .replace(&folder, r"C:\k\")
                    .replace(bare, r"C:\k");
                found.push(service);
            }
        }
    }
    found
}

/// docs/field-notes.md, What WMCO has, and dormer keeps: word by word.
#[test]
fn the_services_are_those_of_wmco() {
    const WMCO: [(&str, &str, &str); 7] = [
        (
            "containerd",
            "",
            r"C:\k\containerd\containerd.exe --config C:\k\containerd\containerd_conf.toml --log-file C:\var\log\containerd\containerd.log --run-service --log-level info",
        ),
        (
            "kubelet",
            "containerd",
            r"C:\k\kube-log-runner.exe -log-file=C:\var\log\kubelet\kubelet.log C:\k\kubelet.exe --config=C:\k\kubelet.conf --bootstrap-kubeconfig=C:\k\bootstrap-kubeconfig --kubeconfig=C:\k\kubeconfig --cert-dir=c:\var\lib\kubelet\pki\ --windows-service --node-labels=node.openshift.io/os_id=Windows --windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS --v=2 --cloud-provider=external --cloud-config=C:\k\cloud.conf --hostname-override=ip-10-0-0-9 --node-ip=10.0.0.9 --image-credential-provider-bin-dir=C:\k --image-credential-provider-config=C:\k\credential-provider-config.yaml",
        ),
        (
            "windows_exporter",
            "",
            r"C:\k\windows_exporter.exe --collectors.enabled cpu,logical_disk,net,os,service,system,container,memory,cpu_info --web.config.file C:\k\tls\windows-exporter-webconfig.yaml --log.level info --log.file C:\var\log\windows_exporter\windows_exporter.log",
        ),
        (
            "hybrid-overlay-node",
            "kubelet",
            r"C:\k\hybrid-overlay-node.exe --node win-1 --bootstrap-kubeconfig=C:\k\kubeconfig --cert-dir=C:\k\cni\config --cert-duration=24h --windows-service --logfile C:\var\log\hybrid-overlay\hybrid-overlay.log --k8s-apiserver=https://api-int.example:6443 --k8s-cacert C:\k\bootstrap-ca.crt --hybrid-overlay-vxlan-port 9898",
        ),
        (
            "csi-proxy",
            "",
            r"C:\k\csi-proxy.exe -log_file=C:\var\log\csi-proxy\csi-proxy.log -logtostderr=false -windows-service --v=2",
        ),
        (
            "kube-proxy",
            "hybrid-overlay-node",
            r"C:\k\kube-log-runner.exe -log-file=C:\var\log\kube-proxy\kube-proxy.log C:\k\kube-proxy.exe --config C:\k\kube-proxy.conf --windows-service",
        ),
        (
            "cloud-node-manager",
            "",
            r"C:\k\azure-cloud-node-manager.exe --windows-service --node-name=win-1 --wait-routes=false --kubeconfig=C:\k\cloud-node-manager-kubeconfig",
        ),
    ];
    let mut secrets = secrets();
    for name in [
        "cloud-config",
        "ecr-config",
        "exporter-tls-crt",
        "exporter-tls-key",
    ] {
        secrets.set(name, "x");
    }
    let values = Values {
        cloud_provider: "external".into(),
        hostname_override: "ip-10-0-0-9".into(),
        vxlan_port: "9898".into(),
        ..values("aws")
    };
    let found = services("azure", &secrets, &values);
    assert_eq!(found.len(), WMCO.len());
    for (name, depends, command) in WMCO {
        let service = found
            .iter()
            .find(|service| service.name == name)
            .expect(name);
        assert_eq!(service.command, command, "{name}");
        assert_eq!(service.depends.join(","), depends, "{name}");
    }
}

#[test]
fn mirrors_become_hosts_toml_with_their_credentials() {
    let layer = r#"
host:
  mirrors:
    quay.io:
      server: https://quay.io
      mirrors:
        - { url: "https://mirror.example:5000/quay", resolve_tags: true }
        - { url: "https://second.example/v2", authorization: "Basic ${secret:second}" }
    registry.example:5000: { mirrors: [{ url: "https://mirror.example:5000" }] }
    "*": { mirrors: [{ url: "https://all.example" }] }
"#;
    let mut secrets = secrets();
    secrets.set("second", "dXNlcjpwYXNz");
    let host = rendered(
        &profile("openshift", layer),
        &values("aws"),
        &secrets,
        Section::Host,
    );
    let of_registries =
        |item: &&Item| item.id.contains("registries") && item.id.starts_with("file");
    let mut text = String::new();
    for item in host.document.items.iter().filter(of_registries) {
        let _ = writeln!(text, "{}", item.id);
        details(item, &mut text);
    }
    expect_file!["golden/mirrors.txt"].assert_eq(&text);
}

/// What a running dormer finds in a cluster: sets, a pull secret, and what becomes of them on a host.
#[test]
fn mirror_sets_of_a_cluster_become_hosts_toml() {
    let of = |source: &str, mirrors: &[&str]| Mirrored {
        source: source.into(),
        mirrors: mirrors.iter().map(|one| (*one).to_owned()).collect(),
        ..Mirrored::default()
    };
    let mirrors = vec![
        of(
            "registry.redhat.io/ubi8",
            &["mirror.example:5000/redhat/ubi8", "second.example/ubi8"],
        ),
        Mirrored {
            never_source: true,
            ..of("quay.io", &["mirror.example:5000/quay"])
        },
        Mirrored {
            tags: true,
            ..of("mcr.microsoft.com/oss", &["mirror.example:5000/oss"])
        },
        of("*.wild.example", &["mirror.example:5000"]),
        Mirrored {
            never_source: true,
            ..of("banned.example", &["mirror.example:x/a"])
        },
        of("quay.example:8443/a", &["mirror.example:5000/b"]),
    ];
    let auths = r#"{"auths": {"mirror.example:5000": {"auth": "dXNlcjpwYXNz"}, "quay.io": {"auth": "bjpv"}}}"#;
    let credentials = Credentials::parse(auths).expect("a pull secret");
    let pull_secret = Ok((Revision("7".into()), credentials));
    let snapshot = ClusterSnapshot {
        mirrors: Ok(mirrors),
        pull_secret,
        ..ClusterSnapshot::default()
    };
    let (cluster_config, warnings) = ClusterConfig::default().with(snapshot, true);
    let profile = stack(&[
        builtin::layer("openshift").expect("a layer"),
        cluster_config.layer(),
    ]);
    let mut secrets = secrets();
    cluster_config.secrets("aws", &mut secrets);
    let profile = profile.expect("a profile");
    let values = values("aws");
    let host = rendered(&profile, &values, &secrets, Section::Host);
    let mut text = warnings
        .iter()
        .fold(String::new(), |text, one| text + one + "\n");
    for item in host
        .document
        .items
        .iter()
        .filter(|item| item.id.contains("registries\\"))
    {
        let _ = writeln!(text, "{} [{:?}]", item.id, item.change);
        details(item, &mut text);
    }
    expect_file!["golden/cluster-mirrors.txt"].assert_eq(&text);
    assert!(
        !serde_json::to_string(&profile)
            .expect("JSON")
            .contains("dXNlcjpwYXNz")
    );
}

/// Registries that a cluster blocks, or whose certificates it does not check: the registry itself, and mirrors there.
#[test]
fn blocked_and_insecure_registries_of_a_cluster_become_hosts_toml() {
    let sources = json!({
        "blockedRegistries": ["bad.example", "quay.io/team"],
        "insecureRegistries": ["own.example:5000", "mirror.example:5000"],
        "allowedRegistries": ["quay.io"],
    });
    let mirrored = Mirrored {
        source: "quay.io/a".into(),
        mirrors: vec!["mirror.example:5000/x/a".into()],
        ..Mirrored::default()
    };
    let auths = r#"{"auths": {"mirror.example:5000": {"auth": "dXNlcjpwYXNz"}}}"#;
    let credentials = Credentials::parse(auths).expect("a pull secret");
    let snapshot = ClusterSnapshot {
        mirrors: Ok(vec![mirrored]),
        pull_secret: Ok((Revision("7".into()), credentials)),
        registry_sources: Ok(RegistrySources::parse(&sources)),
        ..ClusterSnapshot::default()
    };
    let (cluster_config, warnings) = ClusterConfig::default().with(snapshot, true);
    let mut secrets = secrets();
    cluster_config.secrets("aws", &mut secrets);
    let below = builtin::layer("openshift").expect("a layer");
    let profile = stack(&[below, cluster_config.layer()]).expect("a profile");
    let text = warnings.join("\n") + "\n" + &registries(&profile, &secrets);
    expect_file!["golden/cluster-registries.txt"].assert_eq(&text);
}

/// A list of the only registries that nodes may contact does not reach Windows nodes by itself. The layer that does it is in
/// docs/openshift.md.
#[test]
fn a_layer_bars_every_registry_but_those_that_it_names() {
    let layer = r#"
host:
  mirrors:
    "*": { blocked: true }
    registry.k8s.io: { server: "https://registry.k8s.io" }
    mcr.microsoft.com: { server: "https://mcr.microsoft.com" }
"#;
    let page = include_str!("../../../docs/openshift.md");
    assert!(
        page.contains(layer.trim()),
        "docs/openshift.md has this layer"
    );
    let told = registries(&profile("openshift", layer), &secrets());
    let wanted = [
        r"_default\hosts.toml",
        r#"server = "https://never-contact-source.invalid""#,
        r"registry.k8s.io\hosts.toml",
        r#"server = "https://registry.k8s.io""#,
    ];
    for part in wanted {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// The `hosts.toml` of an openshift node.
fn registries(profile: &Profile, secrets: &Secrets) -> String {
    let host = rendered(profile, &values("aws"), secrets, Section::Host);
    let of_registries = |item: &&Item| item.id.contains("registries\\");
    let mut text = String::new();
    for item in host.document.items.iter().filter(of_registries) {
        let _ = writeln!(text, "{} [{:?}]", item.id, item.change);
        details(item, &mut text);
    }
    text
}

/// The whole documents of each platform: the computer's name, the kubelet's flags, the cloud's own service, credentials
/// for ECR and routes differ. docs/differences.md lays them beside WMCO's.
#[test]
fn each_platform_has_its_own_rules() {
    let ecr = Some("{\"providers\": []}\n".to_owned());
    for platform in ["aws", "azure", "gcp", "vsphere", "nutanix", "none"] {
        let cloud_provider = Some(if platform == "none" { "" } else { "external" }.to_owned());
        let cloud_config = (platform == "azure").then(|| "{}\n".to_owned());
        // A machine config of AWS alone has it; elsewhere nothing would use it.
        let kubelet = KubeletFacts {
            cloud_provider,
            cloud_config,
            ecr_config: ecr.clone(),
            settings: None,
            unread: None,
        };
        let snapshot = ClusterSnapshot {
            kubelet: Ok(kubelet),
            ..ClusterSnapshot::default()
        };
        let (cluster_config, _) = ClusterConfig::default().with(snapshot, true);
        let mut values = Values::example(platform);
        let mut secrets = secrets();
        cluster_config.fill(&mut values);
        cluster_config.secrets(platform, &mut secrets);
        let profile = profile("openshift", "");
        let mut text = String::new();
        for section in [Section::Host, Section::Node] {
            let _ = writeln!(text, "# section {}", section.as_str());
            for item in rendered(&profile, &values, &secrets, section)
                .document
                .items
            {
                let change = format!("{:?}", item.change).to_lowercase();
                let _ = writeln!(text, "{} [{change}]", item.id);
                details(&item, &mut text);
            }
        }
        expect_file![format!("golden/platform-{platform}.txt")].assert_eq(&text);
    }
}

/// A proxy that is cleared is cleared on the host, too; each way takes a reboot, and so a drain.
#[test]
fn a_proxy_is_set_and_cleared_with_a_drain() {
    use dormer_profile::{document::ChangeClass, drift::between, proxy::Proxy};
    let profile = profile("openshift", "");
    let secrets = secrets();
    let mut proxied = values("aws");
    let proxy = Proxy::new("http://proxy.example", "", ".svc", "7");
    let snapshot = ClusterSnapshot {
        proxy: Ok(proxy),
        ..ClusterSnapshot::default()
    };
    ClusterConfig::default()
        .with(snapshot, true)
        .0
        .fill(&mut proxied);
    let plain = rendered(&profile, &values("aws"), &secrets, Section::Host).document;
    let through = rendered(&profile, &proxied, &secrets, Section::Host).document;
    for (from, to) in [(&plain, &through), (&through, &plain)] {
        let found: Vec<_> = between(from, to)
            .into_iter()
            .map(|it| (it.id, it.change))
            .collect();
        let named = |name: &str| (format!("environment:{name}"), ChangeClass::Drain);
        assert_eq!(found, [named("HTTP_PROXY"), named("NO_PROXY")]);
    }
    let values = plain.items.iter().filter_map(|item| match &item.what {
        ItemKind::Environment(variable) => Some(variable.value.clone()),
        _ => None,
    });
    assert_eq!(
        values.collect::<Vec<_>>(),
        [None, None, None],
        "they must not exist"
    );
}

#[test]
fn a_document_survives_its_transfer_to_the_host() {
    for (name, section) in [
        ("openshift", Section::Host),
        ("openshift", Section::Node),
        ("upstream", Section::Host),
    ] {
        let document = rendered(&profile(name, ""), &values("aws"), &secrets(), section).document;
        let bytes = document.to_bytes().expect("bytes");
        assert!(bytes.is_ascii());
        assert_eq!(Document::from_bytes(&bytes), Ok(document), "{name}");
    }
}

#[test]
fn a_secret_changes_the_digest_and_not_the_version_and_is_in_neither() {
    let profile = profile("openshift", "");
    let values = values("aws");
    let first = secrets();
    let mut other = secrets();
    other.set("bootstrap-kubeconfig", "another");
    let before = rendered(&profile, &values, &first, Section::Host);
    let after = rendered(&profile, &values, &other, Section::Host);
    assert_ne!(before.digest(), after.digest());
    assert_eq!(before.document.version, after.document.version);
    assert_eq!(
        before.digest(),
        rendered(&profile, &values, &first, Section::Host).digest()
    );
}

#[test]
fn a_file_of_a_secret_that_is_kept_back_is_left_out_and_nothing_else() {
    for name in ["openshift", "upstream"] {
        let profile = profile(name, "");
        let values = values("aws");
        let whole = rendered(&profile, &values, &secrets(), Section::Host).document;
        let mut kept = secrets();
        kept.withhold("bootstrap-kubeconfig");
        let without = rendered(&profile, &values, &kept, Section::Host).document;
        assert_eq!(whole.version, without.version);
        let left = whole
            .items
            .iter()
            .filter(|item| !without.items.contains(item));
        let left: Vec<&str> = left.map(|item| item.id.as_str()).collect();
        assert_eq!(left, [r"file:C:\k\bootstrap-kubeconfig"], "{name}");
        assert_eq!(without.kept, [r"C:\k\bootstrap-kubeconfig"], "{name}");
        assert!(whole.kept.is_empty(), "{name}");
        assert_eq!(whole.items.len(), without.items.len() + 1);
    }
}

#[test]
fn an_address_touches_the_rendering_of_one_machine_and_no_version() {
    let profile = profile("openshift", "");
    let values = values("aws");
    let moved = Values {
        node_ip: "10.0.0.10".into(),
        ..values.clone()
    };
    let before = rendered(&profile, &values, &secrets(), Section::Host).document;
    let after = rendered(&profile, &moved, &secrets(), Section::Host).document;
    let differing: Vec<&str> = before
        .items
        .iter()
        .zip(&after.items)
        .filter(|(one, other)| one != other)
        .map(|(one, _)| one.id.as_str())
        .collect();
    assert_eq!(differing, ["service:kubelet"]);
}

#[test]
fn a_missing_value_is_reported_by_its_name() {
    let profile = profile("openshift", "");
    let payload = payload();
    let secrets = Secrets::default();
    let variables = Values::default().variables();
    let inputs = Inputs {
        profile: &profile,
        payload: &payload,
        variables: &variables,
        secrets: &secrets,
        keep: &[],
    };
    let warnings = render(&inputs, Section::Host, "v")
        .expect_err("it is refused")
        .to_string();
    for wanted in [
        "no secret `api-ca`",
        "`NODE_IP` has no value",
        "`CLUSTER_DNS` has no value",
    ] {
        assert!(warnings.contains(wanted), "{warnings}");
    }
}

/// Another address is one machine's own matter: the version is the pool's, and only what names the address differs.
#[test]
fn another_address_changes_what_names_it_and_no_version() {
    use dormer_profile::{document::ChangeClass, drift::between};
    let profile = profile("openshift", "");
    let secrets = secrets();
    let moved = Values {
        node_ip: "10.0.0.10".into(),
        ..values("aws")
    };
    let differs = |section| {
        let before = rendered(&profile, &values("aws"), &secrets, section);
        let after = rendered(&profile, &moved, &secrets, section);
        assert_eq!(before.document.version, after.document.version);
        assert_ne!(before.digest() == after.digest(), section == Section::Host);
        let found = between(&before.document, &after.document).into_iter();
        found.map(|one| (one.id, one.change)).collect::<Vec<_>>()
    };
    assert_eq!(
        differs(Section::Host),
        [("service:kubelet".to_owned(), ChangeClass::Restart)]
    );
    assert_eq!(differs(Section::Node), []);
}

/// A kubelet's flag restarts, a containerd of another build drains: the highest class of what differs.
#[test]
fn a_flag_restarts_and_another_containerd_drains() {
    use dormer_profile::{
        document::ChangeClass,
        drift::{between, change_class},
    };
    let values = values("aws");
    let secrets = secrets();
    let before = rendered(&profile("openshift", ""), &values, &secrets, Section::Host);
    let flag = "host: {services: {kubelet: {environment: {TEAM: blue}}}}";
    let flagged = rendered(
        &profile("openshift", flag),
        &values,
        &secrets,
        Section::Host,
    );
    let found = between(&before.document, &flagged.document);
    assert_eq!(change_class(&found), Some(ChangeClass::Restart));
    assert_eq!(found.len(), 1, "{found:?}");
    let mut document = before.document.clone();
    for item in &mut document.items {
        if let ItemKind::File(file) = &mut item.what
            && file.path.ends_with(r"\containerd.exe")
        {
            file.sha256 = "0".repeat(64);
        }
    }
    let found = between(&before.document, &document);
    assert_eq!(change_class(&found), Some(ChangeClass::Drain));
    assert_eq!(found[0].detail, "another content");
}
