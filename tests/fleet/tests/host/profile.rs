//! The built-in profiles, rendered and converged: a simulated host joins with nothing but them.

use std::time::Duration;

use crate::host::peer::{self, Bench, Peer};
use dormer_fleet::{
    api::kinds,
    payload::{PAUSE_ARCHIVE, pause_archive},
};
use dormer_host::paths::STAGING;
use dormer_profile::{
    answer::{Answer, ItemState},
    builtin,
    document::Section,
    invocation::Mode,
    layers::{Layer, stack},
    payload::{Manifest, PayloadFile},
    profile::Profile,
    render::{EXAMPLE_PAYLOAD, Inputs, Rendered, render},
    values::{Values, join_secrets},
    version::version,
};

/// A small payload: the example's files with content of our own.
fn payload() -> Manifest {
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
    for file in &mut manifest.files {
        let content = content(&file.name);
        file.sha256 = dormer_profile::sha256_hex(content.as_bytes());
        file.size = content.len() as u64;
    }
    manifest
}

fn content(name: &str) -> String {
    if name == PAUSE_ARCHIVE {
        return pause_archive();
    }
    format!("MZ {name} v1.33.4\n")
}

/// The same payload with the pause image.
fn with_pause(mut manifest: Manifest) -> Manifest {
    let content = pause_archive();
    manifest.files.push(PayloadFile {
        name: PAUSE_ARCHIVE.into(),
        sha256: dormer_profile::sha256_hex(content.as_bytes()),
        size: content.len() as u64,
        destination: PAUSE_ARCHIVE.into(),
    });
    manifest
}

/// The bootstrap token of the world, from its secret.
fn token(bench: &Bench) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let secrets = bench.world.all(&kinds::SECRET);
    let found = secrets
        .iter()
        .find(|s| s.value["metadata"]["name"] == "node-bootstrapper-token");
    let data = &found.expect("the secret").value["data"]["token"];
    let bytes = STANDARD
        .decode(data.as_str().expect("a token"))
        .expect("base64");
    String::from_utf8(bytes).expect("text")
}

struct Site {
    profile: Profile,
    payload: Manifest,
    values: Values,
}

impl Site {
    fn new(bench: &Bench, profile: &str) -> Self {
        let layer = builtin::layer(profile).expect("a layer");
        let values = Values {
            api_server: bench.world.api_url.to_string(),
            cluster_dns: "172.30.0.10".into(),
            cluster_domain: "cluster.local".into(),
            service_cidr: "172.30.0.0/16".into(),
            node_ip: bench.host().internal_ip(),
            platform: "aws".into(),
            windows_build: "10.0.20348".into(),
            ..Values::default()
        };
        Self {
            profile: stack(&[layer]).expect("a profile"),
            payload: payload(),
            values,
        }
    }

    fn render(&self, bench: &Bench, section: Section, node: &str) -> Rendered {
        let values = Values {
            node_name: node.into(),
            ..self.values.clone()
        };
        let ca = bench.world.api.ca().pem().to_string();
        let inputs = Inputs {
            profile: &self.profile,
            payload: &self.payload,
            variables: &values.variables(),
            secrets: &join_secrets(&values.api_server, &ca, &ca, &token(bench)),
            keep: &[],
        };
        let version = version(&self.profile, &self.payload);
        render(&inputs, section, &version).expect("it renders")
    }
}

/// Uploads what an answer asks for.
async fn upload_missing(peer: &Peer, rendered: &Rendered, answer: &Answer) {
    let sftp = peer.sftp().await;
    for path in &answer.missing_files {
        let file = rendered.staged(path).expect("a file of the payload");
        let bytes = content(&file.name);
        peer::upload(
            &sftp,
            &format!("{STAGING}\\{}", file.sha256),
            bytes.as_bytes(),
        )
        .await;
    }
}

/// `plan`, upload, `apply`: the host section.
async fn converge_host(peer: &Peer, host: &Rendered) {
    let plan = peer
        .call(Mode::Plan, "machine/a@3.0", 3, Some(&host.document))
        .await;
    assert_eq!(plan.missing_files.len(), host.payload.len(), "{plan:?}");
    upload_missing(peer, host, &plan).await;
    let done = peer
        .call(Mode::Apply, "machine/a@4.0", 4, Some(&host.document))
        .await;
    assert!(done.converged(), "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn an_openshift_node_joins_with_both_sections_and_stays_right() {
    let bench = Bench::start(&[]).await;
    let peer = bench.ready().await;
    let site = Site::new(&bench, "openshift");
    let host = site.render(&bench, Section::Host, "");
    converge_host(&peer, &host).await;
    let node = appeared(&bench).await;
    let rest = site.render(&bench, Section::Node, &node);
    let (peer, done) = apply_through_the_cut(&bench, peer, &rest).await;
    assert!(done.converged(), "{done:?}");
    assert_eq!(done.facts.installed.len(), 2, "{:?}", done.facts.installed);
    let joined = bench.joined().await;
    assert_eq!(joined["spec"]["taints"][0]["key"], "os");
    assert_eq!(
        joined["metadata"]["labels"]["node.openshift.io/os_id"],
        "Windows"
    );
    for (rendered, seq) in [(&host, 20), (&rest, 21)] {
        let task = format!("machine/a@{seq}.0");
        let again = peer
            .call(Mode::Plan, &task, seq, Some(&rendered.document))
            .await;
        let states: Vec<_> = again
            .items
            .iter()
            .filter(|i| i.state != ItemState::Ok)
            .collect();
        assert!(
            states.is_empty() && again.missing_files.is_empty(),
            "{states:?}"
        );
    }
}

/// The name of the Node, once the kubelet's requests are approved and it is there.
async fn appeared(bench: &Bench) -> String {
    let mut poll = tokio::time::interval(Duration::from_millis(200));
    for _ in 0..3_000 {
        poll.tick().await;
        bench.approve().await;
        if let Some(node) = bench.world.all(&kinds::NODE).first() {
            return node.value["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
        }
    }
    panic!("the Node never appeared");
}

/// The node section makes HNS networks, which cuts the connection: the call is repeated on a new one.
async fn apply_through_the_cut(bench: &Bench, peer: Peer, rest: &Rendered) -> (Peer, Answer) {
    let _ = peer
        .run(Mode::Apply, "machine/a@10.0", 10, Some(&rest.document))
        .await;
    bench.phase(dormer_fleet::host::HostPhase::Up).await;
    let peer = bench.connect().await;
    let done = peer
        .call(Mode::Apply, "machine/a@11.0", 11, Some(&rest.document))
        .await;
    (peer, done)
}

#[tokio::test(start_paused = true)]
async fn a_teardown_leaves_nothing_but_logs_and_the_next_apply_starts_anew() {
    let bench = Bench::start(&[]).await;
    let peer = bench.ready().await;
    let site = Site::new(&bench, "openshift");
    let host = site.render(&bench, Section::Host, "");
    converge_host(&peer, &host).await;
    let gone = peer.call(Mode::Remove, "machine/a@30.0", 30, None).await;
    assert!(
        gone.failure.is_none() && gone.facts.installed.is_empty(),
        "{gone:?}"
    );
    let there = |path: &str| bench.host().state().disk.read_text_path(path).is_ok();
    for path in [r"C:\k\bootstrap-kubeconfig", r"C:\k\kubelet.conf"] {
        assert!(!there(path), "{path}");
    }
    let plan = peer
        .call(Mode::Plan, "machine/a@31.0", 31, Some(&host.document))
        .await;
    assert_eq!(plan.missing_files.len(), host.payload.len());
    upload_missing(&peer, &host, &plan).await;
    let again = peer
        .call(Mode::Apply, "machine/a@32.0", 32, Some(&host.document))
        .await;
    assert!(again.converged(), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_node_joins_with_the_host_section_alone() {
    let bench = Bench::start(&[]).await;
    let peer = bench.ready().await;
    let site = Site::new(&bench, "upstream");
    let host = site.render(&bench, Section::Host, "");
    converge_host(&peer, &host).await;
    let joined = bench.joined().await;
    assert_eq!(joined["spec"]["taints"][0]["value"], "windows");
}

/// How a pod comes to a host that reaches only the worker, the API server and mirrors: whether it runs, and why not.
async fn pod_without_egress(profile: &str, layer: &str, payload: Manifest) -> Result<(), String> {
    let bench = Bench::start(&[]).await;
    bench.host().state().egress_closed = true;
    let peer = bench.ready().await;
    let mut site = Site::new(&bench, profile);
    let mut layers = vec![Layer::of(&site.profile)];
    if !layer.is_empty() {
        layers.push(Layer::parse("user", layer).expect("a layer"));
    }
    site.profile = stack(&layers).expect("a profile");
    site.payload = payload;
    let host = site.render(&bench, Section::Host, "");
    converge_host(&peer, &host).await;
    // An upstream node is complete with its host section.
    if profile == "openshift" {
        let node = appeared(&bench).await;
        let rest = site.render(&bench, Section::Node, &node);
        let (_, done) = apply_through_the_cut(&bench, peer, &rest).await;
        assert!(done.converged(), "{done:?}");
    }
    let joined = bench.joined().await;
    let key = bench.pod_on(joined["metadata"]["name"].as_str().expect("a name"));
    let mut poll = tokio::time::interval(Duration::from_millis(200));
    for _ in 0..3_000 {
        poll.tick().await;
        if bench.pod_phase(&key).as_deref() == Some("Running") {
            return Ok(());
        }
        let why = bench.pod_waits(&key);
        if !why.is_empty() {
            return Err(why);
        }
    }
    panic!("the pod neither runs nor says why");
}

/// A disconnected cluster brings the pause image with the payload, or
/// mirrors its registry. Where it does neither, the node is Ready and no pod starts.
#[tokio::test(start_paused = true)]
async fn a_host_without_egress_starts_pods_where_the_payload_or_a_mirror_has_the_pause_image() {
    let with_containerd = |release: &str| Manifest {
        containerd: release.into(),
        ..payload()
    };
    // The mirrors' folder and the image's name stand in other tables for 2.x.
    for (profile, payload) in [
        ("openshift", payload()),
        ("upstream", with_containerd("2.1")),
        ("upstream", with_containerd("2.4")),
    ] {
        let why = pod_without_egress(profile, "", payload.clone())
            .await
            .expect_err("no image");
        assert!(why.contains("failed to get sandbox image"), "{why}");
        assert!(why.contains("registry.k8s.io/pause:3.10.2"), "{why}");
        pod_without_egress(profile, "", with_pause(payload.clone()))
            .await
            .expect("the payload has it");
        let mirror = "host: {mirrors: {registry.k8s.io: {mirrors: [{url: 'https://m.example/k8s', resolve_tags: true}]}}}";
        pod_without_egress(profile, mirror, payload)
            .await
            .expect("a mirror has it");
    }
}
