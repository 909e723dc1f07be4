//! Fixture: dormer as it runs in a cluster, with one process for each role, each under its own account, on NATS.

use super::ground::{Ground, ROLES};
use crate::nats_users;
use dormer_fleet::payload::write_example;
use dormer_testkit::{NatsOptions, NatsServer, Process, ProcessSpec, Start, free_port};
use dormer_workers::kubernetes::Tokens;
use serde_json::Value;
use std::{
    process::Command,
    time::{Duration, Instant},
};

/// What takes longer than this will never come about: nothing here takes a minute on a machine that does nothing else.
const IN_TIME: Duration = Duration::from_secs(150);
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
        let console = free_port();
        Start::Started(Self {
            ground,
            processes: processes(ground, &nats, console),
            console,
            nats,
        })
    }

    /// Kills every process at once, and starts all of them again on the same store.
    pub(crate) fn restart(&mut self) {
        self.processes.clear();
        self.processes = processes(self.ground, &self.nats, self.console);
    }

    /// What dormer says of the rollout; null while the console does not answer.
    pub(crate) fn rollout(&self) -> Value {
        let said = self.ask(&["describe", "rollout", "windows", "-o", "json"]);
        serde_json::from_str(&said.unwrap_or_default()).unwrap_or_default()
    }

    /// Ends every role in order; each says that all was well, and none was ever refused by the API server or by NATS.
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
        }
    }

    /// What dormer's own client says.
    fn ask(&self, words: &[&str]) -> Result<String, String> {
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

    /// A person asks for a machine to go on from where it failed.
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
        let mut lines: Vec<String> = self.machines().iter().map(show).collect();
        for machine in self.ground.all_machines().await {
            lines.push(format!(
                "{}: {}",
                machine["metadata"]["name"], machine["status"]
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

/// A process a role, each under its own account.
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
            ("--machine-namespace", ground.machines.clone()),
            ("--host-program", host_program.clone()),
            ("--ssh-port", ground.ssh_port.to_string()),
            ("--listen", format!("127.0.0.1:{port}")),
        ];
        let flags = flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(["--payload-unsigned".to_owned()]);
        Process::start(&ProcessSpec {
            program: env!("CARGO_BIN_EXE_dormer").into(),
            args: std::iter::once("run".to_owned()).chain(flags).collect(),
            env: vec![
                (
                    "DORMER_MACHINE_TOKENS".into(),
                    (ground.tokens == Tokens::Bootstrap).to_string(),
                ),
                (
                    "DORMER_ACCOUNT_TOKENS".into(),
                    (ground.tokens == Tokens::Account).to_string(),
                ),
                ("DORMER_NATS_PASSWORD".into(), role.to_owned()),
            ],
            log: ground.path(&format!("{role}.log")),
            folder: None,
        })
        .expect("dormer starts")
    };
    ROLES.map(start).into()
}
