//! The cluster's settings for nodes reach Windows nodes: mirrors, credentials and authorities in place, a proxy with a
//! drain.

use super::{DemoScenario, NAMESPACE};
use dormer_fleet::{
    api::kinds,
    host::Host,
    world::{Entry, Happened},
};
use dormer_profile::sha256_hex;
use http_body_util::BodyExt;
use hyper::Request;
use hyper_util::{client::legacy::Client as HttpClient, rt::TokioExecutor};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use std::sync::Arc;

const PROXY: &str = "http://u:marked-password@proxy.example:3128";
const QUAY: &str = r"C:\k\containerd\registries\quay.io\hosts.toml";

impl DemoScenario {
    /// The hosts of the machines that there are.
    fn hosts(&self) -> Vec<Arc<Host>> {
        self.environment
            .world()
            .hosts
            .as_ref()
            .expect("simulated hosts")
            .all()
    }

    /// Patches an existing object.
    async fn patch(&self, kind: &kinds::Kind, name: (&str, &str), change: &Value) {
        let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
        let client = self.environment.client();
        let api: Api<DynamicObject> = match name.0 {
            "" => Api::all_with(client, &resource),
            namespace => Api::namespaced_with(client, namespace, &resource),
        };
        api.patch(name.1, &PatchParams::default(), &Patch::Merge(change))
            .await
            .unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }

    /// The text of a file on each host, empty where there is none.
    fn files(&self, path: &str) -> Vec<String> {
        let text = |host: &Arc<Host>| {
            let body = host.state().disk.read_text_path(path).ok()?;
            String::from_utf8(body.bytes()?.to_vec()).ok()
        };
        self.hosts()
            .iter()
            .map(|host| text(host).unwrap_or_default())
            .collect()
    }

    /// What the API answers to a GET.
    async fn asked(&self, path: &str) -> String {
        let request = Request::get(format!(
            "http://{}/api/v1/{path}",
            self.environment.address()
        ));
        let request = request.body(String::new()).expect("a request");
        let client = HttpClient::builder(TokioExecutor::new()).build_http::<String>();
        let answer = client.request(request).await.expect("an answer");
        assert_eq!(answer.status(), 200, "{path}");
        let body = answer.into_body().collect().await.expect("a body");
        String::from_utf8(body.to_bytes().to_vec()).expect("text")
    }

    fn an_event_says(&self, words: &str) -> bool {
        self.environment
            .world()
            .all(&kinds::EVENT)
            .iter()
            .any(|event| {
                let note = event.value["note"].as_str();
                let note = note.or(event.value["message"].as_str());
                note.is_some_and(|note| note.contains(words))
            })
    }

    fn all_trust(&self, sha256: &str) -> bool {
        self.hosts()
            .iter()
            .all(|host| host.state().certificates.contains(sha256))
    }

    fn nobody_trusts(&self, sha256: &str) -> bool {
        !self
            .hosts()
            .iter()
            .any(|host| host.state().certificates.contains(sha256))
    }
}

fn mirror_set(mirrors: &[&str]) -> Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "ImageDigestMirrorSet", "metadata": {"name": "ours"},
        "spec": {"imageDigestMirrors": [{"source": "quay.io", "mirrors": mirrors}]}})
}

fn pull_secret(auth: &str) -> Value {
    let text = json!({"auths": {"mirror.example:5000": {"auth": auth}}}).to_string();
    json!({"stringData": {".dockerconfigjson": text}})
}

/// A certificate as PEM, and the hash of its bytes.
fn authority(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate");
    (made.cert.pem(), sha256_hex(made.cert.der()))
}

/// How often a host was converged with a change.
fn changes(scenario: &DemoScenario) -> usize {
    let all = scenario.environment.record().entries();
    let changed =
        |entry: &&Entry| matches!(entry.happened, Happened::Converged { changed: true, .. });
    all.iter().filter(changed).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirrors_and_authorities_reach_all_nodes_in_place_and_a_proxy_by_the_lease() {
    let mut scenario = DemoScenario::all_joined(2).await;
    let world = |scenario: &DemoScenario, object: Value| {
        drop(scenario.environment.world().create(object).expect("made"))
    };
    let before = (scenario.environment.record().tally(), changes(&scenario));
    let (one, one_hash) = authority("one.example");
    let (two, two_hash) = authority("two.example");
    let (other, other_hash) = authority("other.example");
    let bundle = |pem: &str| json!({"data": {"ca-bundle.crt": pem}});

    // Two authorities and a mirror at once.
    let pull = ("openshift-config", "pull-secret");
    scenario
        .patch(&kinds::SECRET, pull, &pull_secret("dTpmaXJzdA=="))
        .await;
    let mut map = bundle(&format!("{one}{two}"));
    map["apiVersion"] = "v1".into();
    map["kind"] = "ConfigMap".into();
    map["metadata"] = json!({"name": "trusted-ca", "namespace": NAMESPACE});
    world(&scenario, map);
    world(&scenario, mirror_set(&["mirror.example:5000/quay"]));
    scenario
        .until("the mirror is on all hosts", |scenario| {
            scenario
                .files(QUAY)
                .iter()
                .all(|text| text.contains("Basic dTpmaXJzdA=="))
                && scenario.all_trust(&one_hash)
                && scenario.all_trust(&two_hash)
                && changes(scenario) >= before.1 + 2
        })
        .await;
    // Each host was converged once; twice, where the watcher looked between the two.
    let count = changes(&scenario) - before.1;
    assert!(count <= 4, "{count}");
    let text = scenario.files(QUAY).remove(0);
    assert!(
        text.contains(r#"[host."https://mirror.example:5000/v2/quay"]"#),
        "{text}"
    );

    // A rotated pull secret, and a bundle without one of the certificates.
    scenario
        .patch(&kinds::SECRET, pull, &pull_secret("dTpzZWNvbmQ="))
        .await;
    let trusted = (NAMESPACE, "trusted-ca");
    scenario
        .patch(
            &kinds::CONFIG_MAP,
            trusted,
            &bundle(&format!("{two}{other}")),
        )
        .await;
    scenario
        .until("the new ones are on all hosts", |scenario| {
            scenario
                .files(QUAY)
                .iter()
                .all(|text| text.contains("Basic dTpzZWNvbmQ="))
                && scenario.all_trust(&two_hash)
                && scenario.all_trust(&other_hash)
                && scenario.nobody_trusts(&one_hash)
        })
        .await;

    // An unreadable bundle is reported, and the old one stays in force.
    scenario
        .patch(&kinds::CONFIG_MAP, trusted, &bundle("no certificate"))
        .await;
    scenario
        .until("it is told", |scenario| {
            scenario.an_event_says("ConfigMap dormer/trusted-ca: ca-bundle.crt cannot be read")
        })
        .await;
    assert!(scenario.all_trust(&two_hash) && scenario.all_trust(&other_hash));
    scenario
        .patch(
            &kinds::CONFIG_MAP,
            trusted,
            &bundle(&format!("{two}{other}")),
        )
        .await;

    // The mirror set is deleted, and the file with it.
    let gone = json!({"spec": {"imageDigestMirrors": []}});
    scenario
        .patch(&kinds::IMAGE_DIGEST_MIRROR_SET, ("", "ours"), &gone)
        .await;
    scenario
        .until("the file is gone", |scenario| {
            scenario.files(QUAY).iter().all(String::is_empty)
        })
        .await;
    scenario.environment.note_version();
    scenario.until_all_serve(1).await;

    // All of that moved no pod, took no lease and restarted no kubelet: at most a converge for each change and host.
    let after = scenario.environment.record().tally();
    assert_eq!(
        scenario.rollout().await.map(|view| view.token.0),
        Some(0),
        "no lease"
    );
    assert_eq!(after.pods_evicted, before.0.pods_evicted);
    assert_eq!(after.machines_deleted, before.0.machines_deleted);
    assert_eq!(after.kubelet_restarts, before.0.kubelet_restarts);

    a_proxy_takes_the_lease(&mut scenario).await;
    nobody_is_shown_the_proxys_password(&scenario).await;
    scenario.end().await;
}

/// A file that no program reads, in a layer of the pool.
const TEAM: &str = r"C:\k\team.txt";

fn team(name: &str) -> Value {
    let layer = json!({"host": {"files": {TEAM: {"content": name}}}});
    json!({"data": {"layer.yaml": layer.to_string()}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_of_the_pool_reaches_all_nodes_and_a_wrong_one_none() {
    let mut scenario = DemoScenario::all_joined(2).await;
    let named = (NAMESPACE, "team");
    let mut map = team("red");
    map["apiVersion"] = "v1".into();
    map["kind"] = "ConfigMap".into();
    map["metadata"] = json!({"name": named.1, "namespace": named.0});
    drop(scenario.environment.world().create(map).expect("made"));
    let pool = (NAMESPACE, "windows");
    let layers = json!({"spec": {"layers": [named.1]}});
    scenario.patch(&kinds::WINDOWS_POOL, pool, &layers).await;
    let has = |scenario: &DemoScenario, name: &str| {
        let files = scenario.files(TEAM);
        files.iter().all(|text| text == name)
    };
    scenario
        .until("the layer is on all hosts", |scenario| has(scenario, "red"))
        .await;

    let wrong = json!({"data": {"layer.yaml": "host: {hostname: '${NOPE}'}"}});
    scenario.patch(&kinds::CONFIG_MAP, named, &wrong).await;
    scenario
        .until("an Event names it", |scenario| {
            scenario.an_event_says("ConfigMap dormer/team")
        })
        .await;
    assert!(has(&scenario, "red"), "the last reading holds");
    scenario
        .patch(&kinds::CONFIG_MAP, named, &team("blue"))
        .await;
    scenario
        .until("the other one is on all hosts", |scenario| {
            has(scenario, "blue")
        })
        .await;
    scenario.environment.note_version();
    scenario.until_all_serve(1).await;
    scenario.end().await;
}

/// A proxy needs a reboot, so the hosts are drained one at a time.
async fn a_proxy_takes_the_lease(scenario: &mut DemoScenario) {
    let proxy = json!({"apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": {"name": "cluster"},
            "spec": {}, "status": {"httpProxy": PROXY, "noProxy": ".svc,10.0.0.0/8"}});
    drop(scenario.environment.world().create(proxy).expect("made"));
    let proxied = |host: &Arc<Host>| {
        let value = host.state().environment.get("HTTP_PROXY").cloned();
        value.as_deref() == Some(PROXY)
    };
    scenario
        .until_rollout("both had the lease", |view| {
            view.token.0 == 2 && view.slots.is_empty()
        })
        .await;
    scenario.environment.note_version();
    scenario.until_all_serve(2).await;
    assert!(scenario.hosts().iter().all(proxied));
    assert_eq!(
        scenario.environment.record().max_unavailable_observed(),
        1,
        "one at a time"
    );
}

/// What the API answers about each machine: the desired configuration has the proxy, and nothing has its password.
async fn nobody_is_shown_the_proxys_password(scenario: &DemoScenario) {
    let password = "marked-password";
    assert!(PROXY.contains(password));
    for name in scenario.names() {
        let desired = scenario.asked(&format!("machines/{name}/desired")).await;
        assert!(
            desired.contains("http://u:***@proxy.example:3128"),
            "{desired}"
        );
        for part in ["", "/history", "/commands", "/desired"] {
            let said = scenario.asked(&format!("machines/{name}{part}")).await;
            assert!(!said.contains(password), "{part}: {said}");
        }
    }
    for path in ["runs", "tasks", "pools/windows", "pools/windows/plan"] {
        let said = scenario.asked(path).await;
        assert!(!said.contains(password), "{path}: {said}");
    }
}
