//! A kubelet's pods: those bound to its node run, and end when they are deleted.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::api::Api;
use super::settings::Settings;
use crate::host::computer::{Host, lock};
use crate::host::scm::flag;
use crate::host::services::Role;

/// Longest line of a watch, in bytes.
const LINE_BYTES_MAX: usize = 4 << 20;
/// How long a pod needs to end when it heeds the request, in milliseconds.
const ENDING_MS: (u64, u64) = (1_000, 4_000);

/// How long a kubelet waits before it tries a sandbox again that failed.
const SANDBOX_AGAIN: Duration = Duration::from_secs(10);

/// Pods that have a task already, by UID and what it does.
type Busy = Arc<Mutex<HashSet<(String, bool)>>>;

impl Host {
    /// Follows the pods of the node, for ever.
    pub(super) async fn run_pods(&self, api: &Arc<Api>, settings: &Settings) {
        let busy = Busy::default();
        loop {
            if let Err(why) = self.follow_pods(api, settings, &busy).await {
                tracing::debug!(machine = self.name(), why, "pods are listed anew");
            }
            self.sleep(Duration::from_secs(2)).await;
        }
    }

    async fn follow_pods(
        &self,
        api: &Arc<Api>,
        settings: &Settings,
        busy: &Busy,
    ) -> Result<(), String> {
        let query = format!(
            "/api/v1/pods?fieldSelector=spec.nodeName%3D{}",
            settings.node
        );
        let (code, list) = api.get(&query).await?;
        if code != 200 {
            return Err(format!("pods: {code}"));
        }
        for pod in list["items"].as_array().into_iter().flatten() {
            self.tend(api, settings, busy, pod);
        }
        let from = list["metadata"]["resourceVersion"].as_str().unwrap_or("0");
        let response = api
            .stream(&format!("{query}&watch=1&resourceVersion={from}"))
            .await?;
        let mut body = response.into_body();
        let mut line = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| e.to_string())?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            for byte in data {
                if *byte != b'\n' {
                    line.push(*byte);
                    continue;
                }
                let event: Value = serde_json::from_slice(&line).unwrap_or(Value::Null);
                line.clear();
                match event["type"].as_str() {
                    Some("ADDED" | "MODIFIED") => self.tend(api, settings, busy, &event["object"]),
                    Some("ERROR") => return Err(event["object"]["message"].to_string()),
                    _ => {}
                }
            }
            if line.len() > LINE_BYTES_MAX {
                return Err("a watch line is too long".into());
            }
        }
        Ok(())
    }

    /// Starts a pod that waits, ends one that is being deleted.
    fn tend(&self, api: &Arc<Api>, settings: &Settings, busy: &Busy, pod: &Value) {
        let ending = !pod["metadata"]["deletionTimestamp"].is_null();
        let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
        if !ending && phase != "Pending" {
            return;
        }
        let uid = pod["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if !lock(busy).insert((uid.clone(), ending)) {
            return;
        }
        let Some(host) = self.me.upgrade() else {
            return;
        };
        let api = api.clone();
        let pod = pod.clone();
        let settings = settings.clone();
        let busy = busy.clone();
        let life = self.kubelet_life();
        tokio::spawn(async move {
            let work = async {
                if ending {
                    // A drain of a few seconds lies between two beats.
                    host.may_be_cut_off(&api, &settings).await;
                    host.end_pod(&api, &pod).await
                } else {
                    host.start_pod(&api, &pod, &settings.ip).await
                }
            };
            tokio::select! {
                () = life.cancelled() => {}
                () = work => {}
            }
            lock(&busy).remove(&(uid, ending));
        });
    }

    /// The token of the kubelet's process.
    fn kubelet_life(&self) -> tokio_util::sync::CancellationToken {
        let state = self.state();
        let mut kubelets = state
            .scm
            .iter()
            .filter(|e| Role::of(&e.config.command) == Role::Kubelet);
        kubelets
            .next()
            .map_or_else(|| self.power_token(), |entry| entry.life.clone())
    }

    /// Whether containerd has the image of a pod's sandbox, or gets it: no pod of the node starts without (containerd
    /// v2.4.2, `internal/cri/server/podsandbox/sandbox_run.go`).
    fn sandbox_image(&self) -> Result<(), String> {
        let state = self.state();
        if !state.egress_closed {
            return Ok(());
        }
        let mut services = state.scm.iter().map(|entry| &entry.config.command);
        let command = services.find(|command| Role::of(command) == Role::Containerd);
        let path = command.and_then(|command| flag(command, "config"));
        let body = path.and_then(|path| state.disk.read_text_path(&path).ok());
        let body = body.ok_or("containerd has no configuration")?;
        let text = String::from_utf8_lossy(&body.head);
        let value = |names: &[&str]| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(" = "));
            let found = pairs.find(|(name, _)| names.contains(&name.trim()));
            found.map(|(_, value)| value.trim().trim_matches(['"', '\'']).to_owned())
        };
        let image = value(&["sandbox", "sandbox_image"]).ok_or("no image of a sandbox")?;
        if state.images.contains_key(&image) {
            return Ok(());
        }
        let registry = image.split('/').next().unwrap_or_default();
        let mirrors =
            value(&["config_path"]).map(|folder| format!(r"{folder}\{registry}\hosts.toml"));
        let mirrors = mirrors.and_then(|path| state.disk.read_text_path(&path).ok());
        if mirrors.is_some_and(|body| String::from_utf8_lossy(&body.head).contains("[host.")) {
            return Ok(());
        }
        Err(format!(
            "failed to get sandbox image \"{image}\": failed to do request: dial tcp: lookup {registry}: no such host"
        ))
    }

    async fn start_pod(&self, api: &Api, pod: &Value, ip: &str) {
        while let Err(why) = self.sandbox_image() {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let waiting = containers.map(|container| {
                json!({"name": container["name"], "image": container["image"], "imageID": "",
                    "ready": false, "started": false, "restartCount": 0,
                    "state": {"waiting": {"reason": "ContainerCreating", "message": why}}})
            });
            let waiting: Vec<Value> = waiting.collect();
            let status = json!({"status": {"phase": "Pending", "containerStatuses": waiting}});
            let path = format!("{}/status", path_of(pod));
            let _ = api.merge(&path, &status).await;
            self.sleep(SANDBOX_AGAIN).await;
        }
        self.pause(2_000, 6_000).await;
        let stamp = self.context.clock.stamp();
        let is_true =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": stamp});
        let running = |container: &Value| {
            json!({"name": container["name"], "image": container["image"], "imageID": "",
                "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": stamp}}})
        };
        let containers = pod["spec"]["containers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let kinds = ["Initialized", "Ready", "ContainersReady", "PodScheduled"];
        let pod_ip = format!("10.244.{}.{}", self.draw() % 255, self.draw() % 254 + 1);
        let status = json!({"status": {
            "phase": "Running", "hostIP": ip, "podIP": pod_ip, "startTime": stamp,
            "conditions": kinds.map(is_true),
            "containerStatuses": containers.iter().map(running).collect::<Vec<_>>(),
        }});
        let _ = api
            .merge(&format!("{}/status", path_of(pod)), &status)
            .await;
    }

    /// Ends a pod within its grace period, then removes the object for good.
    async fn end_pod(&self, api: &Api, pod: &Value) {
        let grace = pod["metadata"]["deletionGracePeriodSeconds"]
            .as_u64()
            .unwrap_or(30);
        let ending = self.between(ENDING_MS.0, ENDING_MS.1);
        self.sleep(ending.min(Duration::from_secs(grace))).await;
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod["metadata"]["uid"]},
        });
        for _ in 0..5 {
            match api.delete(&path_of(pod), &options).await {
                Ok((200 | 202 | 404 | 409, _)) => return,
                Ok(_) | Err(_) => self.sleep(Duration::from_secs(2)).await,
            }
        }
    }
}

fn path_of(pod: &Value) -> String {
    let word = |name: &str| {
        pod["metadata"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    format!(
        "/api/v1/namespaces/{}/pods/{}",
        word("namespace"),
        word("name")
    )
}
