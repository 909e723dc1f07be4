//! A container of a pod: started, probed, ended, and started again.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::Shared;
use super::probe::Probe;
use super::spec::text;

/// The first pause before a container is started again, doubled each time; the very first start again is at once.
const BACK_OFF: Duration = Duration::from_secs(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Container {
    pub(super) spec: Value,
    pub(super) image: String,
    /// Its name for runc, while it has one.
    pub(super) id: String,
    pub(super) starts: u32,
    child: Option<Child>,
    state: Value,
    last: Value,
    due: Instant,
    /// When it is killed, after it was asked to end.
    ending: Option<Instant>,
    probes: [Option<Probe>; 3],
    started: bool,
    pub(super) ready: bool,
    /// The code with which it ended last.
    pub(super) ended: Option<i32>,
}

pub(super) fn now() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

impl Container {
    pub(super) fn new(spec: &Value) -> Self {
        Self {
            image: text(&spec["image"]).to_owned(),
            spec: spec.clone(),
            id: String::new(),
            starts: 0,
            child: None,
            state: json!({"waiting": {"reason": "ContainerCreating"}}),
            last: json!({}),
            due: Instant::now(),
            ending: None,
            probes: [None, None, None],
            started: false,
            ready: false,
            ended: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        text(&self.spec["name"])
    }

    pub(super) fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// Whether it is to be started now.
    pub(super) fn is_due(&self) -> bool {
        self.child.is_none() && Instant::now() >= self.due
    }

    /// The name of its next start.
    pub(super) fn next(&self) -> String {
        format!("{}-{}", self.name(), self.starts)
    }

    /// It cannot be started now.
    pub(super) fn wait(&mut self, reason: &str, message: &str) {
        self.state = json!({"waiting": {"reason": reason, "message": message}});
        self.due = Instant::now() + Duration::from_secs(1);
    }

    /// Starts it from its bundle.
    pub(super) fn start(
        &mut self,
        node: &Shared,
        uid: &str,
        bundle: &Path,
        log: &Path,
    ) -> Result<()> {
        self.id = format!("{uid}-{}", self.next());
        let log = File::options().create(true).append(true).open(log)?;
        let child = Command::new(&node.runc)
            .arg("--root")
            .arg(node.folder.join("runc"))
            .arg("run")
            .arg("--bundle")
            .arg(bundle)
            .arg(&self.id)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.child = Some(child);
        self.starts += 1;
        self.ending = None;
        self.ended = None;
        self.state = json!({"running": {"startedAt": now()}});
        self.probes = ["startupProbe", "livenessProbe", "readinessProbe"]
            .map(|name| Probe::of(&self.spec, name));
        self.started = self.probes[0].is_none();
        self.ready = self.started && self.probes[2].is_none();
        Ok(())
    }

    /// Asks it to end, and kills it after the grace.
    pub(super) fn end(&mut self, node: &Shared, grace: Duration) {
        if self.runs() && self.ending.is_none() {
            let signal = if grace.is_zero() { "KILL" } else { "TERM" };
            let _ = node.runc(&["kill", &self.id, signal]);
            self.ending = Some(Instant::now() + grace);
        }
    }

    /// Looks after one that runs: whether it has ended, and its probes.
    pub(super) fn check(&mut self, node: &Shared, address: &str, grace: Duration) -> Result<()> {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        if let Some(status) = child.try_wait()? {
            self.over(status.code().unwrap_or(-1), node);
            return Ok(());
        }
        match self.ending {
            Some(until) if Instant::now() >= until => {
                let _ = node.runc(&["kill", &self.id, "KILL"]);
            }
            Some(_) => {}
            None => self.probe(node, address, grace),
        }
        Ok(())
    }

    fn probe(&mut self, node: &Shared, address: &str, grace: Duration) {
        let mut ask = |which: usize| {
            self.probes[which]
                .as_mut()
                .and_then(|probe| probe.check(node, &self.spec, &self.id, address))
        };
        if !self.started {
            match ask(0) {
                Some(true) => {
                    self.started = true;
                    self.ready = self.probes[2].is_none();
                }
                Some(false) => self.end(node, grace),
                None => {}
            }
            return;
        }
        let ready = ask(2);
        let dead = ask(1) == Some(false);
        self.ready = ready.unwrap_or(self.ready);
        if dead {
            self.end(node, grace);
        }
    }

    fn over(&mut self, code: i32, node: &Shared) {
        let _ = node.runc(&["delete", "--force", &self.id]);
        let started = self.state["running"]["startedAt"].clone();
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.last = json!({"terminated": {"exitCode": code, "reason": reason,
            "startedAt": started, "finishedAt": now()}});
        self.state = self.last.clone();
        self.child = None;
        self.ready = false;
        self.started = false;
        self.ended = Some(code);
        let pause = match self.starts {
            1 => Duration::ZERO,
            more => (BACK_OFF * 2_u32.pow((more - 2).min(8))).min(BACK_OFF_MAX),
        };
        self.due = Instant::now() + pause;
    }

    /// It ended, and is to be started again after the pause.
    pub(super) fn again(&mut self) {
        if self.state["terminated"].is_object() && !self.is_due() {
            self.state = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        }
    }

    pub(super) fn status(&self) -> Value {
        json!({"name": self.name(), "image": self.image, "imageID": self.image,
            "ready": self.ready, "started": self.started && self.runs(),
            "restartCount": self.starts.saturating_sub(1),
            "state": self.state, "lastState": if self.starts > 1 { self.last.clone() } else { json!({}) }})
    }
}
