//! A Windows service of ours.

use std::collections::BTreeSet;

use dormer_profile::{
    answer::FailureCode,
    item::{Service, StartType},
};

use super::{ItemVerdict, Kind, Step, environment};
use crate::{
    files::stat,
    ops::{
        Host, Restarts, ServiceChange, ServiceConfig, ServiceCreate, ServiceDescribe,
        ServiceFailure, ServiceRead, ServiceSettings, ServiceState, ServiceStatus, Start, Value,
    },
    problem::{Doing as _, Problem, Result},
    progress::Run,
    services,
    session::Session,
    state::Made,
};

/// Time to wait for a deleted service of the same name to disappear, in milliseconds.
const MARKED_MS: u64 = 90_000;

/// Configuration and state of a service.
pub(crate) struct CurrentState {
    there: Option<InstalledService>,
    /// Priority class that an earlier build set by a debugger's key for the executable, which malware also uses.
    old_priority: Option<String>,
}

pub(crate) struct InstalledService {
    config: ServiceConfig,
    status: ServiceStatus,
    environment: BTreeSet<String>,
    marked: bool,
}

impl Kind for Service {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        run.log.clone_from(&self.log);
        let host = &mut run.host;
        let old_priority = old_priority(host, self).await?;
        let config = match host
            .ask(ServiceRead {
                name: self.name.clone(),
            })
            .await
        {
            Ok(config) => config,
            Err(error) if error.number() == 1060 => {
                return Ok(CurrentState {
                    there: None,
                    old_priority,
                });
            }
            Err(error) => {
                return Err(error).doing(FailureCode::Other, || {
                    format!("look at the service {}", self.name)
                });
            }
        };
        let Some(status) = services::status(host, &self.name).await? else {
            return Ok(CurrentState {
                there: None,
                old_priority,
            });
        };
        let environment = match host.registry(&key(&self.name), "Environment").await? {
            Some(Value::Texts(texts)) => texts.into_iter().collect(),
            _ => BTreeSet::new(),
        };
        let marked = services::is_marked(host, &self.name).await;
        let there = Some(InstalledService {
            config,
            status,
            environment,
            marked,
        });
        Ok(CurrentState {
            there,
            old_priority,
        })
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        let Some(there) = &found.there else {
            return ItemVerdict::wrong("is not there");
        };
        if there.marked {
            return ItemVerdict::wrong("is marked for deletion");
        }
        let mut differing = compare(self, there);
        if found.old_priority.is_some() {
            differing.push("priority");
        }
        if !differing.is_empty() {
            return ItemVerdict::wrong(format!("differs in {}", differing.join(", ")));
        }
        if self.running && there.status.state != ServiceState::Running {
            return ItemVerdict::wrong("is not running");
        }
        ItemVerdict::right()
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, id: &str, found: CurrentState) -> Result<Step> {
        let task = run.call.task.clone();
        run.host.hold(&task, id).await?;
        if let Some(executable) = &found.old_priority {
            environment::delete(&mut run.host, &priority_key(executable), PRIORITY).await?;
        }
        let there = found.there.filter(|there| !there.marked);
        match &there {
            None => create(&mut run.host, self).await?,
            Some(there) if !compare(self, there).is_empty() => {
                services::stop(run, &self.name).await?;
                change(&mut run.host, self).await?;
            }
            Some(_) => {}
        }
        rest(&mut run.host, self, there.as_ref()).await?;
        if !self.running {
            return Ok(Step::Changed("configured".into()));
        }
        let programs = executables(&self.command);
        for path in &programs {
            if stat(&mut run.host, path).await?.is_none() {
                let said = format!("{path} was put there and is gone");
                return Err(Problem::new(FailureCode::QuarantineSuspected, said));
            }
        }
        // A kubelet of another call's, or one that a wrapper left behind, holds the port.
        services::end_orphans_of_each_version(run, &programs).await?;
        services::start(run, &self.name, self.start_timeout_ms).await?;
        Ok(Step::Changed("started".into()))
    }

    fn made(&self, _: bool) -> Option<Made> {
        Some(Made::Service {
            name: self.name.clone(),
        })
    }
}

/// Settings for one call of the service control manager.
fn settings(item: &Service) -> ServiceSettings {
    ServiceSettings {
        command: Some(item.command.clone()),
        display: Some(display(item).to_owned()),
        start: Some(start(item)),
        depends: Some(item.depends.clone()),
        error_control: Some(1),
    }
}

/// Our services start on demand: at a boot the boot run puts the network back first, then starts them in order.
const fn start(item: &Service) -> Start {
    match item.start {
        StartType::Auto | StartType::Demand => Start::Demand,
        StartType::Disabled => Start::Disabled,
    }
}

/// Windows answers the name where no display name was set.
fn display(item: &Service) -> &str {
    if item.display.is_empty() {
        &item.name
    } else {
        &item.display
    }
}

/// Windows keeps no reset period without actions (sdk-api, `SERVICE_FAILURE_ACTIONSW`).
fn restarts(item: &Service) -> Restarts {
    let delays_ms = item.failure.restart_delays_ms.clone();
    Restarts {
        reset_seconds: if delays_ms.is_empty() {
            0
        } else {
            item.failure.reset_seconds
        },
        delays_ms,
        other: false,
    }
}

fn environment_of(item: &Service) -> BTreeSet<String> {
    let all = item.environment.iter();
    all.map(|(name, value)| format!("{name}={value}")).collect()
}

/// Names of the settings that differ. Settings that Windows does not return (124) never differ.
fn compare(item: &Service, there: &InstalledService) -> Vec<&'static str> {
    let config = &there.config;
    let mut differing = Vec::new();
    let mut differs = |name, so: bool| {
        if so {
            differing.push(name);
        }
    };
    differs("command", config.command != item.command);
    differs("display", config.display != display(item));
    differs("start", config.start != start(item));
    differs("depends", !same_names(&config.depends, &item.depends));
    differs(
        "description",
        config
            .description
            .as_ref()
            .is_some_and(|it| *it != item.description),
    );
    let failure = config.failure.as_ref().map(|failure| Restarts {
        reset_seconds: if failure.delays_ms.is_empty() {
            0
        } else {
            failure.reset_seconds
        },
        ..failure.clone()
    });
    differs("failure", failure.is_some_and(|it| it != restarts(item)));
    differs("environment", there.environment != environment_of(item));
    differing
}

fn same_names(one: &[String], other: &[String]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| crate::paths::same(one, other))
}

/// Creates a service. While another process holds a deleted service of this name open, and shortly after it closed the
/// last handle, Windows refuses with 1072 (wine, advapi32/tests/service.c): the function waits for that.
async fn create<H: Host>(host: &mut Session<H>, item: &Service) -> Result<()> {
    let wait = host
        .wait(format!("{}_can_be_made", item.name), MARKED_MS)
        .await?;
    loop {
        let create = ServiceCreate {
            name: item.name.clone(),
            settings: settings(item),
        };
        let error = match host.ask(create).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let doing = format!("make the service {}", item.name);
        match error.number() {
            // An interrupted call created it; its settings follow below.
            1073 => return change(host, item).await,
            1078 => {
                let said = format!(
                    "{doing}: another service bears the name `{}`",
                    display(item)
                );
                return Err(Problem::new(FailureCode::ServiceConfigFailed, said));
            }
            1072 => {
                if !host.again(&wait, 1_000).await? {
                    let said = format!("{doing}: one of that name is marked for deletion");
                    return Err(Problem::new(FailureCode::ServiceMarkedForDeletion, said));
                }
            }
            _ => {
                return Err(Problem::windows(
                    FailureCode::ServiceConfigFailed,
                    &doing,
                    &error,
                ));
            }
        }
    }
}

async fn change<H: Host>(host: &mut Session<H>, item: &Service) -> Result<()> {
    let change = ServiceChange {
        name: item.name.clone(),
        settings: settings(item),
    };
    configured(item, host.ask(change).await)
}

fn configured(item: &Service, done: std::result::Result<(), crate::ops::WinError>) -> Result<()> {
    done.map_err(|error| {
        let code = match error.number() {
            1072 => FailureCode::ServiceMarkedForDeletion,
            _ => FailureCode::ServiceConfigFailed,
        };
        Problem::windows(
            code,
            &format!("configure the service {}", item.name),
            &error,
        )
    })
}

/// Settings with calls of their own.
async fn rest<H: Host>(
    host: &mut Session<H>,
    item: &Service,
    there: Option<&InstalledService>,
) -> Result<()> {
    let differing = there.map(|there| compare(item, there));
    let differs = |name| differing.as_ref().is_none_or(|all| all.contains(&name));
    let name = || item.name.clone();
    if differs("description") {
        let description = item.description.clone();
        configured(
            item,
            host.ask(ServiceDescribe {
                name: name(),
                description,
            })
            .await,
        )?;
    }
    if differs("failure") {
        let actions = restarts(item);
        configured(
            item,
            host.ask(ServiceFailure {
                name: name(),
                actions,
            })
            .await,
        )?;
    }
    if differs("environment") {
        let wanted = environment_of(item);
        // A multi-string cannot hold an empty list (docs/field-notes.md, Registry, roots, computer names).
        if wanted.is_empty() {
            environment::delete(host, &key(&item.name), "Environment").await?;
        } else {
            let value = Value::Texts(wanted.into_iter().collect());
            environment::write(host, &key(&item.name), "Environment", value).await?;
        }
    }
    Ok(())
}

fn key(name: &str) -> String {
    format!(r"SYSTEM\CurrentControlSet\Services\{name}")
}

const PRIORITY: &str = "CpuPriorityClass";

fn priority_key(executable: &str) -> String {
    const OPTIONS: &str =
        r"SOFTWARE\Microsoft\Windows NT\CurrentVersion\Image File Execution Options";
    format!(r"{OPTIONS}\{executable}\PerfOptions")
}

/// The executable whose options hold a priority class. The kubelet has `--windows-priorityclass` for it; a debugger's
/// key for an executable is what malware sets.
async fn old_priority<H: Host>(host: &mut Session<H>, item: &Service) -> Result<Option<String>> {
    let Some(priority) = &item.priority else {
        return Ok(None);
    };
    let set = host
        .registry(&priority_key(&priority.executable), PRIORITY)
        .await?;
    Ok(set.map(|_| priority.executable.clone()))
}

/// Programs that a command line starts: the first word, and the program that a wrapper (kube-log-runner) starts.
pub(crate) fn executables(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = command.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        let bytes = word.as_bytes();
        let absolute = bytes.len() > 3 && bytes[0].is_ascii_alphabetic() && &bytes[1..3] == b":\\";
        if absolute && word.to_ascii_lowercase().ends_with(".exe") {
            found.push(word.to_owned());
        }
        rest = after.trim_start();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapper_and_its_program_are_found() {
        let command = r#""C:\k\v 1\kube-log-runner.exe" -log-file=C:\x.log C:\k\kubelet.exe --config=C:\k\y.exe.conf --z"#;
        assert_eq!(
            executables(command),
            [r"C:\k\v 1\kube-log-runner.exe", r"C:\k\kubelet.exe"]
        );
        assert_eq!(executables("svchost.exe -k"), Vec::<String>::new());
    }
}
