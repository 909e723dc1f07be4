//! The life of one pod, from its binding to the end of its object.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::bundle::Bundle;
use super::container::{Container, now};
use super::spec::{list, text, understood};
use super::{Shared, locked, volume};
use crate::block_until;

/// How often a pod's containers are looked after.
const TICK: Duration = Duration::from_millis(50);
/// Pause after something of the pod could not be made ready.
const RETRY_EVERY: Duration = Duration::from_secs(1);

struct Life<'a> {
    node: &'a Shared,
    pod: &'a Value,
    uid: &'a str,
    folder: PathBuf,
    /// Namespace and address of its network.
    network: Option<(String, String)>,
    volumes: BTreeMap<String, PathBuf>,
    prepared: bool,
    retry: Instant,
    init: Vec<Container>,
    containers: Vec<Container>,
    conditions: BTreeMap<&'static str, (bool, String)>,
    written: Value,
}

/// Lives a pod's life. When it returns, nothing of the pod runs.
pub(super) fn live(node: &Arc<Shared>, pod: &Value) {
    let of = |field: &str| {
        list(&pod["spec"][field])
            .iter()
            .map(Container::new)
            .collect()
    };
    let uid = text(&pod["metadata"]["uid"]);
    let mut life = Life {
        node,
        pod,
        uid,
        folder: node.pod_folder(uid),
        network: None,
        volumes: BTreeMap::new(),
        prepared: false,
        retry: Instant::now(),
        init: of("initContainers"),
        containers: of("containers"),
        conditions: BTreeMap::new(),
        written: Value::Null,
    };
    if let Err(error) = understood(&pod["spec"]) {
        life.fail(&format!("{error:#}"));
    } else {
        life.run();
    }
    life.take_away();
    if let Some(known) = locked(&node.pods).get_mut(uid) {
        known.over = true;
        known.ready = false;
        known.address.clear();
    }
}

impl Life<'_> {
    fn run(&mut self) {
        while !self.node.stopped() {
            if let Some(grace) = self.deleted() {
                let node = self.node;
                self.all().for_each(|it| it.end(node, grace));
                if !self
                    .init
                    .iter()
                    .chain(&self.containers)
                    .any(Container::runs)
                {
                    self.write("Running");
                    self.delete();
                    return;
                }
                self.check();
            } else if self.prepared {
                self.advance();
                if let Some(phase) = self.ended() {
                    self.write(phase);
                    // The object stays until a client deletes it.
                    block_until(Duration::from_secs(3600), || {
                        self.node.stopped() || self.deleted().is_some()
                    });
                    self.delete();
                    return;
                }
                self.check();
            } else if Instant::now() >= self.retry {
                match self.prepare() {
                    Ok(()) => self.prepared = true,
                    Err(error) => {
                        self.retry = Instant::now() + RETRY_EVERY;
                        let said = format!("{error:#}");
                        self.all()
                            .for_each(|it| it.wait("ContainerCreating", &said));
                    }
                }
            }
            let begun = self.containers.iter().all(|it| it.starts > 0);
            self.write(if begun { "Running" } else { "Pending" });
            block_until(TICK, || false);
        }
        for container in self.node.containers(self.uid) {
            let _ = self.node.runc(&["delete", "--force", &container]);
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Container> {
        self.init.iter_mut().chain(&mut self.containers)
    }

    /// The grace that its deletion leaves it.
    fn deleted(&self) -> Option<Duration> {
        let pods = locked(&self.node.pods);
        let metadata = &pods.get(self.uid)?.pod["metadata"];
        metadata["deletionTimestamp"].as_str()?;
        let grace = metadata["deletionGracePeriodSeconds"]
            .as_u64()
            .unwrap_or(30);
        Some(Duration::from_secs(grace))
    }

    /// Network, volumes and files of the pod.
    fn prepare(&mut self) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        if self.network.is_none() {
            self.network = Some(self.node.network.attach()?);
        }
        let address = self.address().to_owned();
        for volume in list(&self.pod["spec"]["volumes"]) {
            let name = text(&volume["name"]);
            let made = volume::made(self.node, self.pod, volume, &self.folder.join("volumes"));
            let made = made.with_context(|| format!("volume {name}"))?;
            self.volumes.insert(name.to_owned(), made);
        }
        let name = text(&self.pod["metadata"]["name"]);
        let hosts = format!("127.0.0.1 localhost\n{address} {name}\n");
        for (file, content) in [
            ("hosts", hosts.as_str()),
            ("resolv.conf", ""),
            ("message", ""),
        ] {
            fs::write(self.folder.join(file), content)?;
        }
        if let Some(known) = locked(&self.node.pods).get_mut(self.uid) {
            known.address = address;
        }
        self.node.name_services();
        Ok(())
    }

    fn address(&self) -> &str {
        self.network.as_ref().map_or("", |(_, address)| address)
    }

    /// Starts what is to be started: one init container after the other, then all others.
    fn advance(&mut self) {
        if let Some(at) = self.init.iter().position(|it| it.ended != Some(0)) {
            return self.start(true, at);
        }
        for at in 0..self.containers.len() {
            self.start(false, at);
        }
    }

    fn start(&mut self, init: bool, at: usize) {
        let mut all = std::mem::take(if init {
            &mut self.init
        } else {
            &mut self.containers
        });
        let container = &mut all[at];
        let over = container.ended.is_some_and(|code| !self.restarts(code));
        if container.is_due() && !over {
            if let Err((reason, said)) = self.begin(container) {
                container.wait(reason, &said);
            }
        } else if !over {
            container.again();
        }
        *(if init {
            &mut self.init
        } else {
            &mut self.containers
        }) = all;
    }

    fn begin(&self, container: &mut Container) -> Result<(), (&'static str, String)> {
        let image = locked(&self.node.images).get(&container.image).cloned();
        let image =
            image.ok_or_else(|| ("ErrImagePull", format!("no image {}", container.image)))?;
        let bundle = Bundle {
            node: self.node,
            pod: self.pod,
            container: &container.spec,
            image: &image,
            volumes: &self.volumes,
            namespace: self.network.as_ref().map_or("", |(name, _)| name),
            folder: &self.folder,
        };
        let written = bundle.write(&container.next());
        let written =
            written.map_err(|error| ("CreateContainerConfigError", format!("{error:#}")))?;
        let log = self.node.log(text(&self.pod["metadata"]["name"]));
        let begun = container.start(self.node, self.uid, &written, &log);
        begun.map_err(|error| ("RunContainerError", format!("{error:#}")))
    }

    fn restarts(&self, code: i32) -> bool {
        match text(&self.pod["spec"]["restartPolicy"]) {
            "Never" => false,
            "OnFailure" => code != 0,
            _ => true,
        }
    }

    /// The phase of a pod whose containers have ended for good.
    fn ended(&self) -> Option<&'static str> {
        let over = |it: &Container| it.ended.is_some_and(|code| !self.restarts(code)) && !it.runs();
        let failed = |it: &Container| it.ended != Some(0);
        if self.init.iter().any(|it| over(it) && failed(it)) {
            return Some("Failed");
        }
        let all = self.containers.iter().all(over);
        let phase = if self.containers.iter().any(failed) {
            "Failed"
        } else {
            "Succeeded"
        };
        all.then_some(phase)
    }

    fn check(&mut self) {
        let address = self.address().to_owned();
        let grace = self.pod["spec"]["terminationGracePeriodSeconds"].as_u64();
        let grace = Duration::from_secs(grace.unwrap_or(30));
        let node = self.node;
        for container in self.all() {
            if let Err(error) = container.check(node, &address, grace) {
                container.wait("RunContainerError", &format!("{error:#}"));
            }
        }
        let ready = !self.containers.is_empty() && self.containers.iter().all(|it| it.ready);
        let ready = ready && self.deleted().is_none();
        if let Some(known) = locked(&self.node.pods).get_mut(self.uid) {
            known.ready = ready;
        }
    }

    /// The pod asks for what the Node cannot do.
    fn fail(&mut self, message: &str) {
        let status = json!({"phase": "Failed", "reason": "NotImplemented", "message": message});
        self.patch(&status);
        block_until(Duration::from_secs(3600), || {
            self.node.stopped() || self.deleted().is_some()
        });
        self.delete();
    }

    /// Writes the pod's status where it has changed.
    fn write(&mut self, phase: &str) {
        let begun = self.prepared && self.init.iter().all(|it| it.ended == Some(0));
        let ready = self.containers.iter().all(|it| it.ready) && self.deleted().is_none();
        for (kind, is) in [
            ("Initialized", begun),
            ("ContainersReady", ready),
            ("Ready", ready),
        ] {
            let entry = self.conditions.entry(kind).or_insert_with(|| (is, now()));
            if entry.0 != is {
                *entry = (is, now());
            }
        }
        let condition = |(kind, (is, since)): (&&str, &(bool, String))| {
            let status = if *is { "True" } else { "False" };
            json!({"type": kind, "status": status, "lastTransitionTime": since})
        };
        let conditions: Vec<Value> = self.conditions.iter().map(condition).collect();
        let statuses = |all: &[Container]| all.iter().map(Container::status).collect::<Vec<_>>();
        let mut status = json!({"phase": phase, "hostIP": self.node.network.address(1),
            "conditions": conditions, "containerStatuses": statuses(&self.containers)});
        if !self.init.is_empty() {
            status["initContainerStatuses"] = statuses(&self.init).into();
        }
        if !self.address().is_empty() {
            status["podIP"] = json!(self.address());
            status["podIPs"] = json!([{"ip": self.address()}]);
        }
        if status != self.written && self.patch(&status) {
            self.written = status;
        }
    }

    fn path(&self) -> String {
        let metadata = &self.pod["metadata"];
        format!(
            "/api/v1/namespaces/{}/pods/{}",
            text(&metadata["namespace"]),
            text(&metadata["name"])
        )
    }

    fn patch(&self, status: &Value) -> bool {
        let change = json!({"metadata": {"uid": self.uid}, "status": status});
        let path = format!("{}/status", self.path());
        let media = "application/strategic-merge-patch+json";
        self.node
            .api
            .object("PATCH", &path, Some((media, &change)))
            .is_ok()
    }

    /// The object goes, now that nothing of it runs.
    fn delete(&self) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": self.uid}});
        let body = Some(("application/json", &options));
        let _ = self.node.api.object("DELETE", &self.path(), body);
    }

    fn take_away(&mut self) {
        for container in self.node.containers(self.uid) {
            let _ = self.node.runc(&["delete", "--force", &container]);
        }
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for root in entries.filter(|it| it.file_name().to_string_lossy().starts_with("root-")) {
            let _ = Command::new("umount").arg(root.path()).output();
        }
        if let Some((name, address)) = self.network.take() {
            self.node.network.detach(&name, &address);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
