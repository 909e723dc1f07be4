//! Services and processes, as the program asks for them.

use std::sync::Arc;
use std::time::Duration;

use dormer_host::ops::{
    Answer, Operation, Outcome, Process as Running, ProcessKey, Restarts, ServiceConfig,
    ServiceEntry, ServiceSettings, ServiceState as State, ServiceStatus, Start, WinError,
};
use dormer_profile::answer::FeatureState;
use dormer_profile::item::{FailureActions, Service, StartType};
use tokio::time::Instant;

use super::{Answered, ProgramProcess, refused};
use crate::faults::Fault;
use crate::host::computer::Host;
use crate::host::scm::{ScmError, ServiceState, executables};
use crate::host::services::Role;

/// How long [`Fault::MarkedForDeletion`] lasts.
const MARKED: Duration = Duration::from_secs(60);
/// Process ids of what lingers begin here: above those of services and commands.
const LINGERING_PIDS: u32 = 1 << 24;

pub(super) async fn answer(process: &mut ProgramProcess, operation: Operation) -> Answered {
    use Operation as O;
    let host = Arc::clone(&process.host);
    Ok(match operation {
        O::ServiceList(_) => {
            let state = host.state();
            let all = state.scm.iter().map(|entry| ServiceEntry {
                name: entry.config.name.clone(),
                state: state_of(entry.state),
                pid: entry.pid.unwrap_or(0),
                depends: entry.config.depends.clone(),
            });
            Ok(Answer::ServiceList(all.collect()))
        }
        O::ServiceRead(ask) => read(&host, &ask.name),
        O::ServiceStatusRead(ask) => status(&host, &ask.name),
        O::ServiceCreate(ask) => create(&host, &ask.name, ask.settings).await,
        O::ServiceChange(ask) => {
            host.pause(20, 80).await;
            configure(&host, &ask.name, ask.settings).map(Answer::ServiceChange)
        }
        O::ServiceDescribe(ask) => change(&host, &ask.name, |config| {
            config.description = ask.description;
        })
        .map(Answer::ServiceDescribe),
        O::ServiceFailure(ask) => change(&host, &ask.name, |config| {
            // Without actions Windows keeps no reset period either (sdk-api, SERVICE_FAILURE_ACTIONSW).
            let reset_seconds = if ask.actions.delays_ms.is_empty() {
                0
            } else {
                ask.actions.reset_seconds
            };
            config.failure = FailureActions {
                reset_seconds,
                restart_delays_ms: ask.actions.delays_ms,
            };
        })
        .map(Answer::ServiceFailure),
        O::ServiceStart(ask) => start(&host, &ask.name).await,
        O::ServiceStop(ask) => stop(&host, &ask.name).await,
        O::ServiceDelete(ask) => match host.state().scm.delete(&ask.name) {
            Ok(()) => Ok(Answer::ServiceDelete(())),
            Err(error) => refused(error.code()),
        },
        O::ProcessList(_) => Ok(Answer::ProcessList(processes(&host))),
        // Windows' own.
        O::ProcessHold(ask) if ask.pid == 4 => refused(5),
        O::ProcessHold(ask) => match processes(&host).iter().find(|it| it.pid == ask.pid) {
            Some(found) => {
                let created = found.created;
                process.held.push(ProcessKey {
                    pid: ask.pid,
                    created,
                });
                Ok(Answer::ProcessHold(created))
            }
            None => refused(87),
        },
        O::ProcessEnded(ask) => {
            if !process.held.contains(&ask.process) {
                return Ok(refused(6));
            }
            let there = processes(&host).iter().any(|it| is(it, ask.process));
            Ok(Answer::ProcessEnded(!there))
        }
        O::ProcessEnd(ask) if !process.held.contains(&ask.process) => refused(6),
        O::ProcessEnd(ask) => end(&host, ask.process).await,
        O::ProcessRelease(ask) => {
            process.held.retain(|held| *held != ask.process);
            Ok(Answer::ProcessRelease(()))
        }
        other => return Err(Box::new(other)),
    })
}

const fn state_of(state: ServiceState) -> State {
    match state {
        ServiceState::Stopped => State::Stopped,
        ServiceState::StartPending => State::StartPending,
        ServiceState::Running => State::Running,
        ServiceState::StopPending => State::StopPending,
    }
}

const fn start_of(start: StartType) -> Start {
    match start {
        StartType::Auto => Start::Auto,
        StartType::Demand => Start::Demand,
        StartType::Disabled => Start::Disabled,
    }
}

fn read(host: &Host, name: &str) -> Outcome {
    let state = host.state();
    let Some(entry) = state.scm.get(name) else {
        return refused(1060);
    };
    let config = &entry.config;
    Ok(Answer::ServiceRead(ServiceConfig {
        kind: 0x10,
        start: start_of(config.start),
        error_control: entry.error_control,
        command: config.command.clone(),
        display: if config.display.is_empty() {
            config.name.clone()
        } else {
            config.display.clone()
        },
        account: "LocalSystem".into(),
        depends: config.depends.clone(),
        description: Some(config.description.clone()),
        failure: Some(Restarts {
            reset_seconds: config.failure.reset_seconds,
            delays_ms: config.failure.restart_delays_ms.clone(),
            other: false,
        }),
        delayed: Some(false),
        failure_flag: Some(false),
    }))
}

fn status(host: &Host, name: &str) -> Outcome {
    let (state, pid, exit) = {
        let state = host.state();
        match state.scm.get(name) {
            Some(entry) => (state_of(entry.state), entry.pid.unwrap_or(0), entry.exit),
            // Windows' own services, as far as the program looks at them.
            None if name.eq_ignore_ascii_case("hns") && has_containers(&state.features) => {
                (State::Running, state.hns.pid, 0)
            }
            None if name.eq_ignore_ascii_case("WinDefend") && host.image.defender => {
                (State::Running, 1_234, 0)
            }
            None if name.eq_ignore_ascii_case("docker") && host.image.docker => {
                (State::Running, 2_345, 0)
            }
            None => return refused(1060),
        }
    };
    Ok(Answer::ServiceStatusRead(ServiceStatus {
        state,
        accepts: u32::from(state == State::Running),
        exit,
        service_exit: 0,
        checkpoint: 0,
        wait_hint_ms: 2_000,
        pid,
    }))
}

pub(super) fn has_containers(features: &std::collections::BTreeMap<String, FeatureState>) -> bool {
    features.get("Containers") == Some(&FeatureState::Enabled)
}

fn change(host: &Host, name: &str, work: impl FnOnce(&mut Service)) -> Result<(), WinError> {
    match host.state().scm.get_mut(name) {
        Some(entry) if entry.marked => refused(1072),
        Some(entry) => {
            work(&mut entry.config);
            Ok(())
        }
        None => refused(1060),
    }
}

fn configure(host: &Host, name: &str, settings: ServiceSettings) -> Result<(), WinError> {
    if let Some(display) = &settings.display
        && host.state().scm.is_shown(display, name)
    {
        return refused(1078);
    }
    let error_control = settings.error_control;
    change(host, name, |config| apply_settings(config, settings))?;
    if let (Some(number), Some(entry)) = (error_control, host.state().scm.get_mut(name)) {
        entry.error_control = number;
    }
    Ok(())
}

fn apply_settings(config: &mut Service, settings: ServiceSettings) {
    let ServiceSettings {
        command,
        display,
        start,
        depends,
        error_control: _,
    } = settings;
    if let Some(command) = command {
        config.command = command;
    }
    if let Some(display) = display {
        config.display = display;
    }
    if let Some(depends) = depends {
        config.depends = depends;
    }
    if let Some(start) = start {
        config.start = match start {
            Start::Boot | Start::System | Start::Auto => StartType::Auto,
            Start::Demand => StartType::Demand,
            Start::Disabled => StartType::Disabled,
        };
    }
}

async fn create(host: &Arc<Host>, name: &str, settings: ServiceSettings) -> Outcome {
    host.pause(100, 400).await;
    if name.is_empty() || name.contains(['/', '\\']) {
        return refused(123);
    }
    if settings.command.is_none() {
        return refused(87);
    }
    let there = host.state().scm.get(name).is_some();
    let display = settings.display.as_deref().unwrap_or(name);
    if !there && host.state().scm.is_shown(display, name) {
        return refused(1078);
    }
    let error_control = settings.error_control.unwrap_or(1);
    let mut config = Service {
        name: name.to_owned(),
        display: name.to_owned(),
        description: String::new(),
        command: String::new(),
        depends: Vec::new(),
        start: StartType::Demand,
        failure: FailureActions {
            reset_seconds: 0,
            restart_delays_ms: Vec::new(),
        },
        environment: std::collections::BTreeMap::new(),
        priority: None,
        running: false,
        start_timeout_ms: 0,
        log: None,
    };
    apply_settings(&mut config, settings);
    if Role::of(&config.command) == Role::Containerd && host.strike(Fault::RebootInInstall) {
        let _ = host.state().scm.create(config, Instant::now());
        host.reboot_in(Duration::ZERO);
        return std::future::pending().await;
    }
    if host.strike(Fault::MarkedForDeletion) {
        let until = Instant::now() + host.context.pace.real(MARKED);
        host.state().scm.mark_for_deletion(name, until);
    }
    let made = host.state().scm.create(config, Instant::now());
    if made.is_ok()
        && let Some(entry) = host.state().scm.get_mut(name)
    {
        entry.error_control = error_control;
    }
    match made {
        Ok(()) => Ok(Answer::ServiceCreate(())),
        Err(error) => refused(error.code()),
    }
}

/// `StartServiceW`: those that it depends on first; 1053 after 30 s.
async fn start(host: &Arc<Host>, name: &str) -> Outcome {
    if name.eq_ignore_ascii_case("hns") {
        return refused(1056);
    }
    let started = Box::pin(host.start_service(name)).await;
    match started {
        Ok(()) => Ok(Answer::ServiceStart(())),
        // The start itself succeeded; that its process then ended is the state's to say (sdk-api, StartServiceW).
        Err(ScmError::ProcessDied) => Ok(Answer::ServiceStart(())),
        Err(error) => refused(error.code()),
    }
}

async fn stop(host: &Host, name: &str) -> Outcome {
    let number = {
        let state = host.state();
        match state.scm.get(name) {
            None => Some(1060),
            Some(entry) => match entry.state {
                ServiceState::Stopped => Some(1062),
                ServiceState::StartPending => Some(1052),
                ServiceState::StopPending => Some(1061),
                ServiceState::Running if !state.scm.dependents(name).is_empty() => Some(1051),
                ServiceState::Running => None,
            },
        }
    };
    match number {
        Some(number) => refused(number),
        None => {
            host.stop_one(name).await;
            Ok(Answer::ServiceStop(()))
        }
    }
}

fn is(process: &Running, key: ProcessKey) -> bool {
    process.pid == key.pid && process.created == key.created
}

/// The processes of services, a wrapper's program as its child, and what lingers.
fn processes(host: &Host) -> Vec<Running> {
    let state = host.state();
    let mut all = Vec::new();
    for entry in state.scm.iter() {
        let Some(pid) = entry.pid else { continue };
        for (at, path) in (0_u32..).zip(executables(&entry.config.command)) {
            all.push(Running {
                pid: pid + at,
                created: u64::from(pid),
                parent: if at == 0 { 700 } else { pid },
                name: path.name().to_owned(),
                path: path.shown().to_owned(),
            });
        }
    }
    for (at, name) in (0_u32..).zip(&state.lingering) {
        all.push(Running {
            pid: LINGERING_PIDS + at,
            created: 1,
            parent: 4,
            name: format!("{name}.exe"),
            path: String::new(),
        });
    }
    all
}

/// Ends a process by force; the service that it belongs to is stopped.
async fn end(host: &Host, key: ProcessKey) -> Outcome {
    let Some(found) = processes(host).into_iter().find(|it| is(it, key)) else {
        return refused(5);
    };
    let service = {
        let mut state = host.state();
        if key.pid >= LINGERING_PIDS {
            let name = found.name.trim_end_matches(".exe").to_owned();
            state.lingering.remove(&name);
        }
        let mut all = state.scm.iter();
        all.find(|entry| {
            entry
                .pid
                .is_some_and(|pid| (pid..pid + 2).contains(&key.pid))
        })
        .map(|entry| entry.config.name.clone())
    };
    if let Some(service) = service {
        host.stop_one(&service).await;
    }
    Ok(Answer::ProcessEnd(()))
}
