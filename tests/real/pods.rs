//! The chart's pods on a Node that runs them: a release is installed, upgraded and taken away, with a simulated fleet under
//! it, and a pod is held to its security context.

use super::cluster::{NODE, POD, World, client, plane_without_ours};
use dormer_fleet::{
    Pace,
    cluster::mirror::Outside,
    payload::write_example,
    world::{OutsideConfig, OutsideWorld},
};
use dormer_testkit::{
    ControlPlane, Helm, PodImage, PodNode, Speaker, TempDir, await_some, free_port, skip, started,
    test_dir,
};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};

/// Longest wait for one thing: the fleet comes up in half a minute where nothing else is done.
const IN_TIME: Duration = Duration::from_secs(40);
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/chart");
const MACHINES: &str = "openshift-machine-api";
/// The user of the image, as deploy/image/Containerfile has it.
const USER: (u32, u32) = (65532, 65532);

/// Images in folders.
struct Images(TempDir);

impl Images {
    /// dormer's image: what deploy/image/Containerfile puts into it, with this build's program.
    fn dormer(&self, name: &str) -> PodImage {
        let root = self.0.path().join(name);
        std::fs::create_dir_all(&root).expect("written");
        let image = PodImage {
            root,
            entrypoint: vec!["/usr/bin/dormer".into()],
            env: vec!["SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt".into()],
            user: USER,
        };
        let program = Path::new(env!("CARGO_BIN_EXE_dormer"));
        image.program(program, "/usr/bin/dormer").expect("a file");
        let host_program = crate::host_program(self.0.path());
        image
            .file(
                Path::new(&host_program),
                "/usr/share/dormer/dormer-host.exe",
            )
            .expect("a file");
        image
    }

    /// A payload's image, which stands on dormer's.
    fn payload(&self, version: &str) -> PodImage {
        let image = self.dormer(&format!("payload-{version}"));
        write_example(&image.root.join("payload"), version).expect("a payload");
        image
    }
}

/// A cluster with a Node for pods, and a release of the chart in it.
struct Release {
    world: World,
    helm: Helm,
    kubeconfig: String,
    values: Vec<String>,
    node: PodNode,
    images: Images,
    folder: TempDir,
    plane: ControlPlane,
}

impl Release {
    fn helm(&self, arguments: &[&str]) -> String {
        self.helm
            .run(&self.kubeconfig, arguments)
            .unwrap_or_else(|why| panic!("{arguments:?}: {why}"))
    }

    /// `helm install` or `helm upgrade` with the release's own values and these.
    fn apply(&self, verb: &str, more: &[&str]) {
        let mut arguments = vec![verb, "dormer", CHART, "--namespace=dormer"];
        arguments.extend(self.values.iter().map(String::as_str));
        arguments.extend(more);
        self.helm(&arguments);
    }

    async fn pod(&self, name: &str) -> Option<Value> {
        self.world.get(POD, "dormer", name).await
    }

    /// Waits until a pod of this image is Ready.
    async fn ready(&self, name: &str, image: &str) -> Value {
        let what = format!("{name} is Ready with {image}");
        self.until(&what, async || {
            let pod = self.pod(name).await?;
            let ready = super::whole::ground::condition(&pod, "Ready");
            (ready && pod["spec"]["containers"][0]["image"] == image).then_some(pod)
        })
        .await
    }

    /// Waits for something; says how the pods stand if it never comes.
    async fn until<T>(&self, what: &str, mut so: impl AsyncFnMut() -> Option<T>) -> T {
        let begun = std::time::Instant::now();
        let mut again = tokio::time::interval(Duration::from_millis(100));
        loop {
            if let Some(found) = so().await {
                return found;
            }
            if begun.elapsed() > IN_TIME {
                let pods = self.world.list(POD, "dormer").await;
                let states: Vec<String> = pods
                    .iter()
                    .map(|pod| format!("{}", pod["status"]))
                    .collect();
                panic!("never: {what}\n{states:#?}\n{}", self.node.log("dormer-0"));
            }
            again.tick().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chart_runs_in_pods() {
    let helm = started!(Helm::start());
    let plane = match plane_without_ours() {
        Ok(plane) => plane,
        Err(skipped) => skip!(skipped),
    };
    let node = started!(PodNode::start(&plane, "linux-a"));
    let kubeconfig = plane.kubeconfig(&plane.admin());
    let world = World {
        admin: client(&kubeconfig).await,
    };
    let release = Release {
        values: vec![
            "--set=platform=upstream".into(),
            format!("--set=join.apiUrl={}", plane.url()),
            "--set=join.serviceCidr=10.96.0.0/16".into(),
            "--set=payloads[0].name=11.0.0".into(),
            "--set=payloads[0].image=payload:11.0.0".into(),
            "--set=pool.spec.soak=1s".into(),
        ],
        world,
        helm,
        kubeconfig,
        node,
        images: Images(test_dir("images")),
        folder: test_dir("volumes"),
        plane,
    };
    release.prepare().await;
    release
        .node
        .image("dormer:one", release.images.dormer("one"));
    release
        .node
        .image("payload:11.0.0", release.images.payload("11.0.0"));
    release.apply("install", &["--set=image.tag=one"]);
    release.ready("dormer-0", "dormer:one").await;
}

impl Release {
    /// What a person makes before the chart, and what a cluster's storage makes.
    async fn prepare(&self) {
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "dormer", "labels": labels}});
        self.world.create(namespace).await;
        let path = self.folder.path().join("store");
        std::fs::create_dir(&path).expect("written");
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "store"}, "spec": {"capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce"], "local": {"path": path},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
                    [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["linux-a"]}]}]}}}});
        self.world.create(volume).await;
    }
}
