//! Fixture: dormer as it runs in a cluster, with one process for each role, each under its own account, on NATS.

use super::{
    super::cluster::NODE,
    ground::{Ground, ROLES},
};
use crate::nats_users;
use dormer_fleet::payload::write_example;
use dormer_testkit::{NatsOptions, NatsServer, Process, ProcessSpec, Start, free_port};
use dormer_workers::kubernetes::Tokens;
use serde_json::Value;
use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// What takes longer than this will never come about: nothing here takes a minute on a machine that does nothing else.
const IN_TIME: Duration = Duration::from_secs(150);
/// How many of a machine's last steps a failed test shows.
const STEPS_SHOWN: usize = 40;
/// How often a condition is looked at.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// dormer's roles at work on a ground.
pub(crate) struct Crew<'a> {
    ground: &'a Ground,
    processes: Vec<Process>,
    console: u16,
    nats: NatsServer,
}

impl<'a> Crew<'a> {
    /// Starts all of them, on a store that knows nothing.
    pub(crate) fn start(ground: &'a Ground) -> Start<Self> {
        Self::on_new_store(ground, |_| ())
    }

    /// Starts all of them, on a new store from a dump.
    pub(super) fn restored(ground: &'a Ground, dump: &Path) -> Start<Self> {
        Self::on_new_store(ground, |nats| {
            let dump = dump.display().to_string();
            stored(ground, nats, &["restore", "--from", &dump]);
        })
    }

    fn on_new_store(ground: &'a Ground, prepare: impl FnOnce(&NatsServer)) -> Start<Self> {
        let options = NatsOptions {
            sync_always: true,
            monitor: true,
            login: nats_users::login(),
            ..NatsOptions::default()
        };
        let nats = match NatsServer::start(options) {
            Start::Started(nats) => nats,
            Start::Skipped(skipped) => return Start::Skipped(skipped),
        };
        make_keys(ground);
        prepare(&nats);
        let console = free_port();
        Start::Started(Self {
            ground,
            processes: processes(ground, &nats, console),
            console,
            nats,
        })
    }

    /// Writes a dump of the store while the roles work.
    pub(super) fn dump(&self, to: &Path) {
        stored(
            self.ground,
            &self.nats,
            &["dump", "--to", &to.display().to_string()],
        );
    }

    /// Kills every process at once, and starts all of them again on the same store.
    pub(crate) fn restart(&mut self) {
        self.processes.clear();
        self.processes = processes(self.ground, &self.nats, self.console);
    }

    /// Number of machines in the plan that the console makes, or why it makes none.
    pub(crate) fn planned(&self) -> Result<usize, String> {
        let said = self.ask(&["plan", "--pool", "windows", "-o", "json"])?;
        let plan: Value = serde_json::from_str(&said).map_err(|why| format!("{why}: {said}"))?;
        let items = plan["items"].as_array().ok_or("no items")?;
        Ok(items.len())
    }

    /// Whether `dormer status` has this finding about this object.
    pub(crate) fn finds(&self, code: &str, object: &str) -> bool {
        let said = self.ask(&["status", "-o", "json"]).unwrap_or_default();
        let status: Value = serde_json::from_str(&said).unwrap_or_default();
        let findings = status["findings"].as_array().into_iter().flatten();
        let mut found = findings.map(|it| (it["code"].as_str(), it["object"].as_str()));
        found.any(|it| it == (Some(code), Some(object)))
    }

    /// What dormer says of the rollout; null while the console does not answer.
    pub(crate) fn rollout(&self) -> Value {
        let said = self.ask(&["describe", "rollout", "windows", "-o", "json"]);
        serde_json::from_str(&said.unwrap_or_default()).unwrap_or_default()
    }

    /// Ends every role in order; each says that all was well, none was ever refused by the API server or by NATS, and none
    /// refused a message of another.
    pub(crate) fn end(mut self) {
        let log = std::fs::read_to_string(self.nats.folder().join("nats.log")).expect("a log");
        let refused: Vec<&str> = log.lines().filter(|it| it.contains("Violation")).collect();
        assert!(refused.is_empty(), "{refused:#?}");
        for (process, role) in self.processes.iter_mut().zip(ROLES) {
            process.terminate().expect("it ends");
            let log = std::fs::read_to_string(self.ground.path(&format!("{role}.log")));
            let log = log.expect("a log");
            let refused = log
                .lines()
                .find(|line| line.contains("may not ") || line.contains("forbidden"));
            assert_eq!(refused, None, "{role}");
            let refused = log
                .lines()
                .find(|line| line.contains("a message is refused"));
            assert_eq!(refused, None, "{role}");
        }
    }

    /// What dormer's own client says.
    pub(super) fn ask(&self, words: &[&str]) -> Result<String, String> {
        let said = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(words)
            .args(["--server", &format!("http://127.0.0.1:{}", self.console)])
            .output()
            .expect("dormer runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if said.status.success() {
            Ok(text(&said.stdout))
        } else {
            Err(text(&said.stderr))
        }
    }

    /// The machines that dormer knows and that are not over; none while the console does not answer.
    pub(crate) fn machines(&self) -> Vec<Value> {
        let said = self
            .ask(&["get", "machines", "-o", "json"])
            .unwrap_or_default();
        let mut machines: Vec<Value> = serde_json::from_str(&said).unwrap_or_default();
        machines.retain(|machine| machine["state"] != "Gone");
        machines
    }

    /// A person retries a machine, which continues with the step that failed.
    pub(crate) fn retry(&self, name: &str) {
        self.ask(&["retry", name, "--yes", "--why", "a person mended it"])
            .expect("it is taken");
    }

    /// Looks until it is so; says how all stands if it never is.
    pub(crate) async fn until(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let begun = Instant::now();
        let mut again = tokio::time::interval(POLL_EVERY);
        while !so().await {
            assert!(
                begun.elapsed() < IN_TIME,
                "never: {what}\n{}",
                self.report().await
            );
            again.tick().await;
        }
    }

    /// Waits until so many machines serve at a version, by the cluster's word and by dormer's, and no other machine is there.
    pub(crate) async fn until_all_serve(&self, count: usize, version: &str) {
        let what = format!("{count} serve at {version}");
        self.until(&what, async || {
            self.ground.served(version).await.len() == count
                && self.ground.all_machines().await.len() == count
        })
        .await;
        self.until(&format!("dormer says that {what}"), async || {
            let machines = self.machines();
            let at = |m: &Value| {
                m["version"]
                    .as_str()
                    .is_some_and(|v| v.starts_with(version))
            };
            machines.len() == count && machines.iter().all(|m| m["state"] == "Joined" && at(m))
        })
        .await;
    }

    /// For a failed test: who stands where, and what each role said last.
    async fn report(&self) -> String {
        let show = |m: &Value| {
            format!(
                "{} {} {}: {} {}",
                m["name"], m["state"], m["phase"], m["waitingFor"], m["reason"]
            )
        };
        let machines = self.machines();
        let mut lines: Vec<String> = machines.iter().map(show).collect();
        // The last steps of each: one that serves may not have begun what the test waits for.
        for name in machines.iter().filter_map(|it| it["name"].as_str()) {
            let history = self.ask(&["history", name, "--all"]);
            let history = history.unwrap_or_else(|why| why);
            let steps: Vec<&str> = history.lines().collect();
            let from = steps.len().saturating_sub(STEPS_SHOWN);
            lines.push(format!("--- {name}\n{}", steps[from..].join("\n")));
        }
        for machine in self.ground.all_machines().await {
            lines.push(format!(
                "{}: {}",
                machine["metadata"]["name"], machine["status"]
            ));
        }
        for node in self.ground.world.list(NODE, "").await {
            let about = &node["metadata"];
            lines.push(format!(
                "Node {} {}: {} {}",
                about["name"], about["uid"], node["spec"], about["labels"]
            ));
        }
        for (process, role) in self.processes.iter().zip(ROLES) {
            lines.push(format!("--- {role}\n{}", process.log_tail()));
        }
        lines.join("\n")
    }
}

/// Puts a payload beside those that are there: small files under the real ones' names.
pub(crate) fn install(ground: &Ground, version: &str) {
    write_example(&ground.path("payloads").join(version), version).expect("a payload");
}

/// Makes the keys of the roles and of the history. A second crew on the ground has those of the first.
fn make_keys(ground: &Ground) {
    let folder = ground.path("keys");
    if folder.exists() {
        return;
    }
    let made = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args(["keys", "make", "--output"])
        .arg(&folder)
        .output()
        .expect("dormer runs");
    assert!(made.status.success(), "{made:?}");
}

/// `dormer store WORDS` with the engine's login and keys, as docs/backup.md has it.
fn stored(ground: &Ground, nats: &NatsServer, words: &[&str]) {
    let keys = ground.path("keys");
    let done = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .arg("store")
        .args(words)
        .args(["--role", "engine", "--nats-user", "dormer-engine"])
        .args(["--store", &nats.url()])
        .args(["--nats-monitor", &nats.monitor_url().expect("a page")])
        .arg("--nats-keys")
        .arg(&keys)
        .arg("--history-keys")
        .arg(keys.join("history.keys"))
        .env("DORMER_NATS_PASSWORD", "engine")
        .output()
        .expect("dormer runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words:?}: {said}");
}

/// The variables of a role's process.
fn variables(ground: &Ground, role: &str) -> Vec<(String, String)> {
    let bootstrap = (ground.tokens == Tokens::Bootstrap).to_string();
    let account = (ground.tokens == Tokens::Account).to_string();
    let all = [
        ("DORMER_MACHINE_TOKENS", bootstrap),
        ("DORMER_ACCOUNT_TOKENS", account),
        ("DORMER_NATS_PASSWORD", role.to_owned()),
    ];
    // The Operator Lifecycle Manager gives it to every container.
    let condition = ground.operator_condition;
    let condition = condition.map(|name| ("OPERATOR_CONDITION_NAME", name.to_owned()));
    let all = all.into_iter().chain(condition);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A process a role, each under its own account, with the keys of all roles. Each takes its own.
fn processes(ground: &Ground, nats: &NatsServer, console: u16) -> Vec<Process> {
    let host_program = crate::host_program(&ground.path(""));
    let start = |role: &str| {
        // The engine has no way to the cluster, and needs none.
        let kubeconfig = if role == "engine" {
            "none".into()
        } else {
            format!("{role}.conf")
        };
        let port = if role == "console" {
            console
        } else {
            free_port()
        };
        let flags = [
            ("--role", role.to_owned()),
            ("--name", role.to_owned()),
            (
                "--kubeconfig",
                ground.path(&kubeconfig).display().to_string(),
            ),
            ("--store", nats.url()),
            ("--nats-user", format!("dormer-{role}")),
            ("--nats-monitor", nats.monitor_url().expect("a page")),
            ("--payload", ground.path("payloads").display().to_string()),
            ("--namespace", ground.home.clone()),
            ("--machine-namespace", ground.machine_namespace()),
            ("--host-program", host_program.clone()),
            ("--ssh-port", ground.ssh_port.to_string()),
            ("--listen", format!("127.0.0.1:{port}")),
        ];
        let namespace = ground.cluster_machines.clone();
        let of_cluster_api = namespace.map(|namespace| ("--cluster-api-namespace", namespace));
        // Plain Kubernetes does not say of itself how its nodes join.
        let plain = [
            ("--api-url", ground.api_url()),
            ("--service-cidr", "10.96.0.0/16".to_owned()),
        ];
        let plain = plain.into_iter().filter(|_| ground.plain);
        let keys = ground.path("keys");
        let of_history = keys.join("history.keys").display().to_string();
        let of_history = [("--history-keys", of_history)].into_iter();
        let keys = [("--nats-keys", keys.display().to_string())];
        let flags = flags
            .into_iter()
            .chain(of_cluster_api)
            .chain(plain)
            .chain(keys)
            .chain(of_history.filter(|_| role == "engine"))
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(["--payload-unsigned".to_owned()]);
        Process::start(&ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("run".to_owned()).chain(flags).collect(),
            env: variables(ground, role),
            log: ground.path(&format!("{role}.log")),
            folder: None,
        })
        .expect("dormer starts")
    };
    ROLES.map(start).into()
}
