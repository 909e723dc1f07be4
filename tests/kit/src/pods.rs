//! A Linux Node of a real control plane: it runs the pods that the scheduler binds to it, by runc.
//!
//! It has a kubelet's account and no other right. Each pod has a network namespace and an address of its own. What a
//! security context forbids is forbidden, and a field that is not implemented fails the pod by its name (`spec.rs`).
//!
//! What is not as in a cluster:
//! - images are folders of this computer or layouts of OCI, and nothing is pulled;
//! - names of Services stand in `/etc/hosts` and lead to one ready pod; there is no DNS and no balancing;
//! - network policies are not enforced, nor the seccomp profile `RuntimeDefault`, nor size limits of volumes;
//! - Secrets, ConfigMaps and tokens are read once, when the pod starts;
//! - a pod for Windows (`spec.os`) is run as Linux' own, without what `windowsOptions` asks for;
//! - the kubelet answers with the logs of all containers in one, and runs a command (`exec`) without a terminal or an input;
//! - simulated hosts listen on loopback addresses: `127.0.0.0/8` but for `127.0.0.1` leads from pods to this computer.

mod bundle;
mod container;
mod exec;
mod image;
mod kubelet;
mod life;
mod network;
mod probe;
mod spec;
mod volume;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::https::Https;
use crate::kubernetes::ControlPlane;
use crate::skip::{Skipped, Start};
use crate::{block_until, test_dir};
pub use image::PodImage;
use network::PodNetwork;

/// Poll interval of the Node's pods.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// Polls between two heartbeats of the Node, and between two reads of the Services.
const BEAT_POLLS: u32 = 25;

/// `$1` runc, `$2` its state, `$3` beginning of the network's names, `$4` the folder. It waits for the end of its input.
const WATCHDOG: &str = r#"trap '' INT HUP TERM; read -r _
for c in "$2"/*; do [ -d "$c" ] && "$1" --root "$2" delete --force "${c##*/}"; done
for n in $(ip netns list | cut -d' ' -f1); do case $n in "$3"*) ip netns del "$n";; esac; done
ip link del "$3"
for m in "$4"/pods/*/root-*; do [ -d "$m" ] && umount "$m"; done
rm -rf "$4""#;

/// A Node that runs pods. Dropping it kills them and takes their networks away; the Node's object stays.
#[derive(Debug)]
pub struct PodNode {
    shared: Arc<Shared>,
    watching: Option<JoinHandle<()>>,
    watchdog: Child,
    _folder: TempDir,
}

/// What all pods of a Node share.
#[derive(Debug)]
struct Shared {
    name: String,
    api: Https,
    api_port: u16,
    folder: PathBuf,
    runc: PathBuf,
    network: PodNetwork,
    /// Port on which the API server reaches its kubelet.
    kubelet: u16,
    images: Mutex<BTreeMap<String, PodImage>>,
    pods: Mutex<BTreeMap<String, Known>>,
    /// Names of Services with their selectors, by namespace.
    services: Mutex<Vec<Value>>,
    stop: AtomicBool,
}

/// What the Node knows of a pod while its thread lives.
#[derive(Debug, Default)]
struct Known {
    pod: Value,
    address: String,
    ready: bool,
    /// Whether its thread has ended: the object is over, too.
    over: bool,
    thread: Option<JoinHandle<()>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PodNode {
    /// Registers the Node and runs its pods from now on.
    ///
    /// # Panics
    /// When the API server does not take the Node.
    pub fn start(plane: &ControlPlane, name: &str) -> Start<Self> {
        let runc = ["/usr/sbin/runc", "/usr/bin/runc"].map(PathBuf::from);
        let Some(runc) = runc.into_iter().find(|path| path.exists()) else {
            return Start::Skipped(Skipped {
                server: "runc".to_owned(),
                reason: "neither in /usr/sbin nor in /usr/bin; Debian's package runc has it".into(),
            });
        };
        let network = match PodNetwork::make() {
            Ok(network) => network,
            Err(skipped) => return Start::Skipped(skipped),
        };
        let started = Self::begin(plane, name, runc, network);
        Start::Started(started.unwrap_or_else(|error| panic!("no Node: {error:#}")))
    }

    fn begin(plane: &ControlPlane, name: &str, runc: PathBuf, network: PodNetwork) -> Result<Self> {
        let folder = test_dir("pods");
        let (api, api_port) = plane.for_kubelet(name)?;
        network.gateway(api_port)?;
        let kubelet = TcpListener::bind((network.address(1), 0))?;
        for part in ["logs", "pods", "runc"] {
            std::fs::create_dir(folder.path().join(part))?;
        }
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .args([&runc, &folder.path().join("runc")])
            .arg(&network.name)
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            api,
            api_port,
            folder: folder.path().to_path_buf(),
            runc,
            network,
            kubelet: kubelet.local_addr()?.port(),
            images: Mutex::default(),
            pods: Mutex::default(),
            services: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        shared.serve(kubelet)?;
        shared.register()?;
        let of = Arc::clone(&shared);
        Ok(Self {
            shared,
            watching: Some(std::thread::spawn(move || of.watch())),
            watchdog,
            _folder: folder,
        })
    }

    /// Has the Node know an image.
    pub fn image(&self, name: &str, image: PodImage) {
        locked(&self.shared.images).insert(name.to_owned(), image);
    }

    /// Output of a pod's containers, over all restarts.
    pub fn log(&self, pod: &str) -> String {
        std::fs::read_to_string(self.shared.log(pod)).unwrap_or_default()
    }

    /// A port of 127.0.0.1 that leads to a port of a pod that is ready, as `kubectl port-forward` makes one.
    ///
    /// # Panics
    /// When there is no such pod.
    pub fn forward(&self, pod: &str, port: u16) -> u16 {
        let address = {
            let pods = locked(&self.shared.pods);
            let is = |it: &&Known| it.ready && it.pod["metadata"]["name"] == pod;
            let known = pods.values().find(is).expect("the pod is ready");
            known.address.clone()
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let local = listener.local_addr().expect("an address").port();
        network::forward(listener, format!("{address}:{port}"));
        local
    }

    /// Kills a pod's containers with SIGKILL, as the kernel does to one that takes too much memory.
    ///
    /// # Panics
    /// When there is no such pod.
    pub fn kill(&self, pod: &str) {
        let uid = {
            let pods = locked(&self.shared.pods);
            let is = |it: &(&String, &Known)| !it.1.over && it.1.pod["metadata"]["name"] == pod;
            pods.iter().find(is).expect("the pod runs").0.clone()
        };
        for container in self.shared.containers(&uid) {
            let _ = self.shared.runc(&["kill", &container, "KILL"]);
        }
    }
}

impl Drop for PodNode {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(watching) = self.watching.take() {
            let _ = watching.join();
        }
        let threads: Vec<_> = locked(&self.shared.pods)
            .values_mut()
            .filter_map(|known| known.thread.take())
            .collect();
        for thread in threads {
            let _ = thread.join();
        }
        // It takes away what is left.
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn log(&self, pod: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{pod}.log"))
    }

    /// Runs runc, and returns its output.
    fn runc(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.runc);
        command.arg("--root").arg(self.folder.join("runc"));
        let done = command.args(words).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        anyhow::ensure!(done.status.success(), "runc {words:?}: {}", said.trim());
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Names of the containers of a pod that runc knows.
    fn containers(&self, uid: &str) -> Vec<String> {
        let listed = std::fs::read_dir(self.folder.join("runc"));
        let names = listed.into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.contains(uid)).collect()
    }

    fn register(&self) -> Result<()> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name,
            "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": self.name}}});
        let json = "application/json";
        self.api
            .object("POST", "/api/v1/nodes", Some((json, &node)))?;
        self.beat()
    }

    /// A heartbeat: the Node's status and its Lease.
    fn beat(&self) -> Result<()> {
        let room =
            json!({"cpu": "16", "memory": "16Gi", "pods": "60", "ephemeral-storage": "50Gi"});
        let now = jiff::Timestamp::now();
        let stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let status = json!({"status": {"capacity": room, "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": self.network.address(1)}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet}},
            "declaredFeatures": [exec::DECLARED],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": stamp}],
            "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64", "osImage": "test",
                "kubeletVersion": "v1.36.0", "containerRuntimeVersion": "runc://1.1.5",
                "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
                "systemUUID": ""}}});
        let name = &self.name;
        let merge = "application/strategic-merge-patch+json";
        self.api.object(
            "PATCH",
            &format!("/api/v1/nodes/{name}/status"),
            Some((merge, &status)),
        )?;
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let one = format!("{leases}/{name}");
        let renewed = self.api.object("PATCH", &one, Some((merge, &lease)));
        renewed.or_else(|_| {
            self.api
                .object("POST", leases, Some(("application/json", &lease)))
        })?;
        Ok(())
    }

    /// Asks for the Node's pods again and again, and gives each a thread.
    fn watch(self: Arc<Self>) {
        let mut polls = 0;
        while !self.stopped() {
            // The API server may be away for a while.
            if polls % BEAT_POLLS == 0 {
                let _ = self.beat();
                if let Ok(list) = self.api.object("GET", "/api/v1/services", None) {
                    *locked(&self.services) = list["items"].as_array().cloned().unwrap_or_default();
                }
            }
            polls += 1;
            let path = format!("/api/v1/pods?fieldSelector=spec.nodeName={}", self.name);
            if let Ok(list) = self.api.object("GET", &path, None) {
                self.take(list["items"].as_array().map_or(&[][..], Vec::as_slice));
                self.name_services();
            }
            block_until(POLL_EVERY, || self.stopped());
        }
    }

    fn take(self: &Arc<Self>, pods: &[Value]) {
        let mut known = locked(&self.pods);
        for pod in pods {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            let entry = known.entry(uid.to_owned()).or_default();
            entry.pod = pod.clone();
            if entry.thread.is_none() && !entry.over {
                let of = Arc::clone(self);
                let pod = pod.clone();
                entry.thread = Some(std::thread::spawn(move || life::live(&of, &pod)));
            }
        }
        // An object that is gone ends its pod at once.
        for (uid, known) in known.iter_mut() {
            if !pods
                .iter()
                .any(|pod| pod["metadata"]["uid"] == uid.as_str())
            {
                known.pod["metadata"]["deletionTimestamp"] = json!("gone");
                known.pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            }
        }
    }

    /// Writes the names of Services into every pod's `/etc/hosts`: each leads to one ready pod.
    fn name_services(&self) {
        let pods = locked(&self.pods);
        let services = locked(&self.services);
        let mut lines = String::new();
        for service in services.iter() {
            let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
            let name = text("name");
            let namespace = text("namespace");
            let Some(selector) = service["spec"]["selector"].as_object() else {
                continue;
            };
            let fits = |known: &&Known| {
                let metadata = &known.pod["metadata"];
                let has = |(key, value)| &metadata["labels"][key as &String] == value;
                known.ready && metadata["namespace"] == namespace && selector.iter().all(has)
            };
            if let Some(known) = pods.values().find(fits) {
                let line = format!(
                    "{} {name} {name}.{namespace} {name}.{namespace}.svc {name}.{namespace}.svc.cluster.local\n",
                    known.address
                );
                lines.push_str(&line);
            }
        }
        for (uid, known) in pods.iter().filter(|(_, known)| !known.address.is_empty()) {
            let host = known.pod["metadata"]["name"].as_str().unwrap_or_default();
            let kubernetes = crate::kubernetes::SERVICE;
            let text = format!(
                "127.0.0.1 localhost\n{} {host}\n{kubernetes} kubernetes.default.svc kubernetes.default.svc.cluster.local\n{lines}",
                known.address
            );
            let _ = written_if_other(&self.pod_folder(uid).join("hosts"), &text);
        }
    }

    fn pod_folder(&self, uid: &str) -> PathBuf {
        self.folder.join("pods").join(uid)
    }

    /// An object of the API server.
    fn get(&self, path: &str) -> Result<Value> {
        self.api.object("GET", path, None).context("not read")
    }
}

/// Writes a file in its old place, as a mount shows the file and not its name.
fn written_if_other(path: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(path).ok().as_deref() != Some(text) {
        std::fs::write(path, text)?;
    }
    Ok(())
}
