//! Stopping services with all that belongs to them, and starting them again.
//!
//! Process id, handle and creation time are taken before STOP: a stopped service has no process id (sdk-api,
//! `QueryServiceStatusEx`), and kubelet reports STOPPED while it still shuts down (kubernetes
//! `pkg/windows/service/service.go`). A process is never found by its path while its service runs.

use std::collections::BTreeSet;

use dormer_profile::answer::{FailureCode, ItemState};
use dormer_proto::boot::same_boot;

use crate::{
    files,
    ops::{
        Host, Process, ProcessEnd, ProcessEnded, ProcessHold, ProcessKey, ProcessList,
        ProcessRelease, Restarts, ServiceDelete, ServiceEntry, ServiceFailure, ServiceList,
        ServiceRead, ServiceStart, ServiceState, ServiceStatus, ServiceStatusRead, ServiceStop,
        Start, WinError,
    },
    paths::{name as file_name, same, state, within},
    problem::{Doing as _, Problem, Result},
    progress::Run,
    session::Session,
    state::{Made, PendingWork, file},
};

/// Longest time without progress while a service stops, unless it requests more, in milliseconds.
const STOP_MS: u64 = 60_000;
/// Longest stop in all.
const STOP_MAX_MS: u64 = 600_000;
/// Longest wait for processes that were ended by force.
const END_MS: u64 = 15_000;
/// Longest start of a service that was stopped on the way.
const AGAIN_MS: u64 = 60_000;
/// Longest wait for a service that is marked for deletion.
const MARKED_MS: u64 = 90_000;
/// Times that dependents are looked for again, because some came up meanwhile.
const ROUNDS_MAX: u32 = 5;
/// Starts its program as a child and stays: its process, not kubelet's, is the one that Windows started.
const WRAPPER: &str = "kube-log-runner.exe";
/// Outlives containerd by design, and holds its containers (containerd#5621).
const SHIM: &str = "containerd-shim-runhcs-v1.exe";
/// The same, as processes are named in documents.
pub(crate) const SHIM_NAME: &str = "containerd-shim-runhcs-v1";
/// Programs that a stop never waits for or ends, whatever started them.
const LEFT_ALONE: [&str; 6] = [
    SHIM,
    "vmwp.exe",
    "vmcompute.exe",
    "services.exe",
    "sshd.exe",
    "svchost.exe",
];

/// State of a service; `None` if there is no such service.
pub(crate) async fn status<H: Host>(
    host: &mut Session<H>,
    name: &str,
) -> Result<Option<ServiceStatus>> {
    match host.ask(ServiceStatusRead { name: name.into() }).await {
        Ok(status) => Ok(Some(status)),
        Err(error) if error.number() == 1060 => Ok(None),
        Err(error) => {
            Err(error).doing(FailureCode::Other, || format!("look at the service {name}"))
        }
    }
}

async fn list<H: Host>(host: &mut Session<H>) -> Result<Vec<ServiceEntry>> {
    let listed = host.ask(ServiceList {}).await;
    listed.doing(FailureCode::Other, || "list the services".into())
}

/// Running services that depend on `name`, directly or not, the deepest first. They come from every service's
/// configuration, because no document says whether `EnumDependentServices` goes below the first level.
pub(crate) fn dependents(all: &[ServiceEntry], name: &str) -> Vec<String> {
    fn visit(
        all: &[ServiceEntry],
        name: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<String>,
    ) {
        for service in all {
            let depends = service.depends.iter().any(|on| same(on, name));
            if depends && seen.insert(service.name.to_ascii_lowercase()) {
                visit(all, &service.name, seen, order);
                if service.state != ServiceState::Stopped {
                    order.push(service.name.clone());
                }
            }
        }
    }
    let mut order = Vec::new();
    visit(
        all,
        name,
        &mut BTreeSet::from([name.to_ascii_lowercase()]),
        &mut order,
    );
    order
}

/// Stops a service after those that depend on it, and waits until its processes have ended. This call later starts
/// again what ran before, also services of others.
pub(crate) async fn stop<H: Host>(run: &mut Run<H>, name: &str) -> Result<()> {
    for _ in 0..ROUNDS_MAX {
        let all = list(&mut run.host).await?;
        for dependent in dependents(&all, name) {
            stop_one(run, &dependent).await?;
        }
        if stop_one(run, name).await? {
            return Ok(());
        }
    }
    let said = format!("services that depend on {name} keep coming up");
    Err(Problem::new(FailureCode::ServiceStopTimeout, said))
}

/// Stops one service; false when others that depend on it run.
async fn stop_one<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    let Some(before) = status(&mut run.host, name).await? else {
        return Ok(true);
    };
    if before.state == ServiceState::Stopped {
        return Ok(true);
    }
    let mut tree = Tree::default();
    tree.take(&mut run.host, before.pid).await?;
    let stopped = stop_and_wait(run, name, &mut tree).await;
    for process in &tree.held {
        let _ = run.host.ask(ProcessRelease { process: *process }).await;
    }
    stopped
}

/// Stops a service and waits for its end, and ends its processes after the time limit.
async fn stop_and_wait<H: Host>(run: &mut Run<H>, name: &str, tree: &mut Tree) -> Result<bool> {
    let mut wait = run.host.wait(format!("{name}_stops"), STOP_MS).await?;
    let began = run.host.clock().await?.tick_ms;
    let mut noted = false;
    let mut ordered = false;
    let mut reported = (0, STOP_MS);
    loop {
        let Some(now) = status(&mut run.host, name).await? else {
            break;
        };
        let stopped = now.state == ServiceState::Stopped;
        if stopped && tree.ended(&mut run.host).await? {
            return Ok(true);
        }
        if !noted {
            noted = true;
            remember(run, name).await?;
        }
        tree.take(&mut run.host, now.pid).await?;
        if !stopped && !ordered {
            match run.host.ask(ServiceStop { name: name.into() }).await {
                Ok(()) => ordered = true,
                Err(error) if error.number() == 1051 => return Ok(false),
                Err(error) if passes_by_itself(&error) => {}
                Err(error) => {
                    let doing = || format!("stop the service {name}");
                    return Err(error).doing(FailureCode::ServiceConfigFailed, doing);
                }
            }
        }
        let at = run.host.clock().await?.tick_ms;
        let reports = (now.checkpoint, stop_limit_ms(&now));
        if reports != reported {
            reported = reports;
            let left_ms = (began + STOP_MAX_MS).saturating_sub(at);
            wait.extend(at, reports.1.min(left_ms));
        }
        if !run.host.again(&wait, 250).await? {
            break;
        }
    }
    force(run, name, tree).await
}

/// Time until the next report of a service is due: in a pending state its own wait hint, also if it counts no checkpoints
/// (sdk-api, `SERVICE_STATUS_PROCESS`). In another state the hint is of a change that has ended.
fn stop_limit_ms(now: &ServiceStatus) -> u64 {
    let hint_ms = match now.state {
        ServiceState::Running | ServiceState::Stopped | ServiceState::Paused => 0,
        ServiceState::StartPending
        | ServiceState::StopPending
        | ServiceState::ContinuePending
        | ServiceState::PausePending => now.wait_hint_ms,
    };
    STOP_MS.max(u64::from(hint_ms))
}

/// 1061: it takes no orders now; 1062: it no longer runs; 1052: it is starting; 109 and 232: its process ends; 1053:
/// its handler or the service control manager is busy. All of these mean "check again" (Win32-OpenSSH#1231, sdk-api
/// `ControlService`).
fn passes_by_itself(error: &WinError) -> bool {
    error.is_any(&[1061, 1062, 1052, 1053, 109, 232])
}

/// Ends what does not end. Before it the failure actions go: Windows takes a process that ends so for a failure, and "a
/// queued restart action cannot be canceled" (sdk-api, `ChangeServiceConfig2W`).
async fn force<H: Host>(run: &mut Run<H>, name: &str, tree: &mut Tree) -> Result<bool> {
    let actions = match run.host.ask(ServiceRead { name: name.into() }).await {
        Ok(config) => config.failure,
        Err(error) if error.is_any(&[1060]) => Some(Restarts::default()),
        Err(error) => {
            let doing = || format!("read the failure actions of {name}");
            return Err(error).doing(FailureCode::ServiceConfigFailed, doing);
        }
    };
    // A command or a reboot could not be set again, and actions that Windows does not return may be such. One of ours
    // gets its own actions from its item.
    let other = actions.as_ref().is_none_or(|it| it.other);
    let ours = |made: &Made| matches!(made, Made::Service { name: it } if same(it, name));
    if other && !run.inventory.entries.iter().any(|it| ours(&it.made)) {
        let said =
            format!("{name} does not end, and its end by force starts a command or a reboot");
        return Err(Problem::new(FailureCode::ServiceStopTimeout, said));
    }
    let actions = actions.filter(|it| it.other || !it.delays_ms.is_empty());
    if actions.is_some() {
        let off = ServiceFailure {
            name: name.into(),
            actions: Restarts::default(),
        };
        let off = run.host.ask(off).await;
        off.doing(FailureCode::ServiceConfigFailed, || {
            format!("turn off the restarts of {name}")
        })?;
    }
    for process in tree.held.clone().into_iter().rev() {
        // Error 5 for an ended process means nothing.
        let _ = run.host.ask(ProcessEnd { process }).await;
    }
    let wait = run.host.wait(format!("{name}_ends"), END_MS).await?;
    let gone = loop {
        let now = status(&mut run.host, name).await?;
        let stopped = now.is_none_or(|now| now.state == ServiceState::Stopped);
        if stopped && tree.ended(&mut run.host).await? {
            break true;
        }
        if !run.host.again(&wait, 250).await? {
            break false;
        }
    };
    // Not every call has the item of a service that it stops: until one has, ours keeps its restarts.
    if let Some(actions) = actions {
        let on = ServiceFailure {
            name: name.into(),
            actions: Restarts {
                other: false,
                ..actions
            },
        };
        let _ = run.host.ask(on).await;
    }
    if gone {
        return Ok(true);
    }
    let said = format!("{name}, or a process of it, does not end");
    Err(Problem::new(FailureCode::ServiceStopTimeout, said))
}

/// Records that a service has to run again, before it is stopped: if this call is killed, the next one starts it.
async fn remember<H: Host>(run: &mut Run<H>, name: &str) -> Result<()> {
    if run.stopped.iter().any(|stopped| same(stopped, name)) {
        return Ok(());
    }
    run.stopped.push(name.to_owned());
    note_stopped(run).await
}

async fn note_stopped<H: Host>(run: &mut Run<H>) -> Result<()> {
    let noted = PendingWork {
        boot_id: run.boot_id.clone(),
        items: run.stopped.clone(),
    };
    run.host.write_json(&state(file::STOPPED), &noted).await
}

/// Services that an earlier call of this boot stopped and could not start again because it was killed. Only calls that
/// change a host use it.
pub(crate) async fn stopped_before<H: Host>(run: &mut Run<H>) -> Result<()> {
    let noted: Option<PendingWork> = run.host.read_json(&state(file::STOPPED)).await?;
    // After a boot Windows starts automatic services, and the boot run starts ours.
    let noted = noted.filter(|noted| same_boot(&noted.boot_id, &run.boot_id));
    run.stopped = noted.unwrap_or_default().items;
    Ok(())
}

/// Starts services that this call stopped and that do not run yet, the last stopped first, and waits until they run. One
/// that does not stays noted, so that the next call tries again, and its failure is this call's, unless that has its own.
pub(crate) async fn start_again<H: Host>(run: &mut Run<H>) -> Result<()> {
    let mut done = Ok(());
    let mut left = Vec::new();
    while let Some(name) = run.stopped.pop() {
        let Err(problem) = runs_again(run, &name).await else {
            continue;
        };
        let id = format!("service:{name}");
        if !run.outcomes.iter().any(|item| item.id == id) {
            run.report_item(&id, ItemState::Failed, &problem.message);
        }
        left.insert(0, name);
        done = done.and(Err(problem));
    }
    run.stopped = left;
    if !run.stopped.is_empty() {
        done = done.and(note_stopped(run).await);
    } else if run.apply {
        // Left there, it is read again, and what runs is not started.
        let _ = files::delete(&mut run.host, &state(file::STOPPED)).await;
    }
    done
}

async fn runs_again<H: Host>(run: &mut Run<H>, name: &str) -> Result<()> {
    let there = status(&mut run.host, name).await?;
    let stopped = [ServiceState::Stopped, ServiceState::StopPending];
    if there.is_none_or(|there| !stopped.contains(&there.state)) {
        return Ok(());
    }
    let Err(problem) = start(run, name, AGAIN_MS).await else {
        return Ok(());
    };
    let Ok(config) = run.host.ask(ServiceRead { name: name.into() }).await else {
        return Err(problem);
    };
    // Disabled meanwhile: a person wants it so.
    if config.start == Start::Disabled {
        return Ok(());
    }
    for on in config.depends {
        let needed = run.host.ask(ServiceRead { name: on.clone() }).await;
        let lost = match &needed {
            Ok(needed) => needed.start == Start::Disabled,
            Err(error) => error.is_any(&[1060]),
        };
        // No further call starts it either: what it needs was removed or disabled.
        if lost || is_marked(&mut run.host, &on).await {
            let said = format!("it stays stopped: it needs {on}");
            run.report_item(&format!("service:{name}"), ItemState::Ok, &said);
            return Ok(());
        }
    }
    Err(problem)
}

/// The processes of a service, each held by a handle, so that its id stays its own.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    held: Vec<ProcessKey>,
}

impl Tree {
    /// Adds a process, its wrapper if it has one, and all that they made; again until nothing is new.
    async fn take<H: Host>(&mut self, host: &mut Session<H>, pid: u32) -> Result<()> {
        let all = processes(host).await?;
        let mut wanted: Vec<ProcessKey> = Vec::new();
        if let Some(process) = all.iter().find(|process| pid != 0 && process.pid == pid) {
            wanted.push(key(process));
            let parent = all
                .iter()
                .find(|one| one.pid == process.parent && one.created <= process.created);
            wanted.extend(parent.filter(|parent| same(&parent.name, WRAPPER)).map(key));
        }
        for process in wanted {
            self.hold(host, process).await;
        }
        let mut at = 0;
        while at < self.held.len() {
            let parent = self.held[at];
            at += 1;
            for child in children(&all, parent) {
                self.hold(host, key(child)).await;
            }
        }
        Ok(())
    }

    async fn hold<H: Host>(&mut self, host: &mut Session<H>, process: ProcessKey) {
        if self.held.contains(&process) {
            return;
        }
        // Another creation time is another process, that got the id since.
        match host.ask(ProcessHold { pid: process.pid }).await {
            Ok(created) if created == process.created => self.held.push(process),
            Ok(created) => {
                let process = ProcessKey { created, ..process };
                let _ = host.ask(ProcessRelease { process }).await;
            }
            Err(_) => {}
        }
    }

    async fn ended<H: Host>(&self, host: &mut Session<H>) -> Result<bool> {
        for process in &self.held {
            let ended = host.ask(ProcessEnded { process: *process }).await;
            if !ended.doing(FailureCode::Other, || {
                format!("look at process {}", process.pid)
            })? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

pub(crate) async fn processes<H: Host>(host: &mut Session<H>) -> Result<Vec<Process>> {
    let listed = host.ask(ProcessList {}).await;
    listed.doing(FailureCode::Other, || "list the processes".into())
}

fn key(process: &Process) -> ProcessKey {
    ProcessKey {
        pid: process.pid,
        created: process.created,
    }
}

/// Child processes of a process. A parent's id alone proves nothing: Windows uses ids again (Microsoft Learn,
/// `Win32_Process.ParentProcessId`), so a child is never older than its parent.
fn children(all: &[Process], parent: ProcessKey) -> impl Iterator<Item = &Process> {
    all.iter().filter(move |process| {
        process.parent == parent.pid
            && process.pid != parent.pid
            && process.created >= parent.created
            && !LEFT_ALONE.iter().any(|name| same(name, &process.name))
    })
}

/// Stops the services that run a program below a folder, with those that depend on them, and ends orphaned processes
/// below it. Windows does not rename a folder with a running program (MS-FSCC, FileRenameInformation). The services are
/// started again, as after any other stop.
pub(crate) async fn stop_below<H: Host>(run: &mut Run<H>, folder: &str) -> Result<()> {
    let all = processes(&mut run.host).await?;
    for service in list(&mut run.host).await? {
        if service.pid != 0 && runs_below(&all, service.pid, folder) {
            stop(run, &service.name).await?;
        }
    }
    let left = processes(&mut run.host).await?.into_iter();
    let left = left.filter(|process| {
        within(&process.path, folder) && !LEFT_ALONE.iter().any(|name| same(name, &process.name))
    });
    let programs: Vec<String> = left.map(|process| process.path).collect();
    end_orphans(run, &programs).await.map(drop)
}

/// Whether a process, its wrapper, or one that they made is a program below a folder.
fn runs_below(all: &[Process], pid: u32, folder: &str) -> bool {
    let mut tree: Vec<&Process> = all.iter().filter(|process| process.pid == pid).collect();
    let parent = tree.first().and_then(|first| {
        all.iter()
            .find(|one| one.pid == first.parent && one.created <= first.created)
    });
    tree.extend(parent.filter(|parent| same(&parent.name, WRAPPER)));
    let mut at = 0;
    while let Some(process) = tree.get(at).copied() {
        at += 1;
        if within(&process.path, folder) {
            return true;
        }
        for child in children(all, key(process)) {
            if !tree.iter().any(|known| known.pid == child.pid) {
                tree.push(child);
            }
        }
    }
    false
}

/// Ends orphans of these programs, and of what an earlier version made under their names.
pub(crate) async fn end_orphans_of_each_version<H: Host>(
    run: &mut Run<H>,
    programs: &[String],
) -> Result<u32> {
    let mut all = programs.to_vec();
    for entry in &run.inventory.entries {
        if let Made::File { path, .. } = &entry.made
            && programs
                .iter()
                .any(|it| same(file_name(it), file_name(path)))
        {
            all.push(path.clone());
        }
    }
    end_orphans(run, &all).await
}

/// Ends orphans: processes of these programs that are in no running service's tree.
pub(crate) async fn end_orphans<H: Host>(run: &mut Run<H>, programs: &[String]) -> Result<u32> {
    let services = list(&mut run.host).await?;
    let all = processes(&mut run.host).await?;
    let mut owned: BTreeSet<u32> = BTreeSet::new();
    let mut next: Vec<&Process> = Vec::new();
    for service in &services {
        if let Some(process) = all
            .iter()
            .find(|process| service.pid != 0 && process.pid == service.pid)
        {
            next.push(process);
            let parent = all
                .iter()
                .find(|one| one.pid == process.parent && one.created <= process.created);
            next.extend(parent.filter(|parent| same(&parent.name, WRAPPER)));
        }
    }
    while let Some(process) = next.pop() {
        if owned.insert(process.pid) {
            next.extend(children(&all, key(process)));
        }
    }
    let of_these = |process: &&Process| {
        !owned.contains(&process.pid) && programs.iter().any(|it| same(it, &process.path))
    };
    let orphans: Vec<ProcessKey> = all.iter().filter(of_these).map(key).collect();
    end(run, &orphans).await
}

/// Ends processes by name, and waits.
pub(crate) async fn end_named<H: Host>(run: &mut Run<H>, name: &str) -> Result<u32> {
    let found = named(run, name).await?;
    end(run, &found).await
}

/// Whether a process of this name runs.
pub(crate) async fn runs_named<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    Ok(!named(run, name).await?.is_empty())
}

async fn named<H: Host>(run: &mut Run<H>, name: &str) -> Result<Vec<ProcessKey>> {
    let wanted = format!("{name}.exe");
    let all = processes(&mut run.host).await?;
    let found = all
        .iter()
        .filter(|process| same(&process.name, &wanted) || same(file_name(&process.path), &wanted));
    Ok(found.map(key).collect())
}

async fn end<H: Host>(run: &mut Run<H>, processes: &[ProcessKey]) -> Result<u32> {
    let mut tree = Tree::default();
    for process in processes {
        tree.hold(&mut run.host, *process).await;
    }
    for process in tree.held.clone() {
        let _ = run.host.ask(ProcessEnd { process }).await;
    }
    let wait = run.host.wait("processes_end", END_MS).await?;
    let gone = loop {
        if tree.ended(&mut run.host).await? {
            break true;
        }
        if !run.host.again(&wait, 250).await? {
            break false;
        }
    };
    for process in &tree.held {
        let _ = run.host.ask(ProcessRelease { process: *process }).await;
    }
    if gone {
        return Ok(u32::try_from(tree.held.len()).unwrap_or(u32::MAX));
    }
    let said = "a process of ours that belongs to no service does not end";
    Err(Problem::new(FailureCode::ServiceStopTimeout, said))
}

/// Waits until a service runs.
pub(crate) async fn until_running<H: Host>(
    run: &mut Run<H>,
    name: &str,
    limit_ms: u64,
) -> Result<()> {
    let wait = run.host.wait(format!("{name}_starts"), limit_ms).await?;
    loop {
        let Some(now) = status(&mut run.host, name).await? else {
            return Err(Problem::new(
                FailureCode::ServiceCrashed,
                format!("{name} is gone"),
            ));
        };
        match now.state {
            ServiceState::Running => return Ok(()),
            ServiceState::Stopped => {
                let exit = if now.exit == 1066 {
                    now.service_exit
                } else {
                    now.exit
                };
                let said = format!("{name} ended with {exit}");
                return Err(Problem::new(FailureCode::ServiceCrashed, said));
            }
            _ => {}
        }
        if !run.host.again(&wait, 250).await? {
            let said = format!("{name} does not run after {limit_ms} ms");
            return Err(Problem::new(FailureCode::ServiceStartTimeout, said));
        }
    }
}

/// Waits until a service that stops has stopped; false if it does not stop.
async fn stops<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    let wait = run.host.wait(format!("{name}_stops"), AGAIN_MS).await?;
    let mut stops = false;
    while let Some(ServiceState::StopPending) =
        status(&mut run.host, name).await?.map(|it| it.state)
    {
        stops = true;
        if !run.host.again(&wait, 250).await? {
            let said = format!("{name} does not stop");
            return Err(Problem::new(FailureCode::ServiceStopTimeout, said));
        }
    }
    Ok(stops)
}

/// Starts a service and waits until it runs, which says nothing about its health.
pub(crate) async fn start<H: Host>(run: &mut Run<H>, name: &str, limit_ms: u64) -> Result<()> {
    run.stopped.retain(|stopped| !same(stopped, name));
    let mut retried = false;
    let mut waited = false;
    loop {
        let error = match run.host.ask(ServiceStart { name: name.into() }).await {
            Ok(()) => break,
            Err(error) => error,
        };
        match error.number() {
            // It still stops, runs, or starts already.
            1056 if !waited && stops(run, name).await? => waited = true,
            1056 => break,
            // containerd reconnects its shims before it reports for service (containerd#3659).
            1053 if !retried => retried = true,
            number => return Err(refused_start(run, name, number, &error).await),
        }
    }
    until_running(run, name, limit_ms).await
}

/// Why a service does not start.
async fn refused_start<H: Host>(
    run: &mut Run<H>,
    name: &str,
    number: u32,
    error: &WinError,
) -> Problem {
    let code = match number {
        1053 => FailureCode::ServiceStartTimeout,
        1067 => FailureCode::ServiceCrashed,
        1068 | 1075 => FailureCode::DependencyFailed,
        1072 => FailureCode::ServiceMarkedForDeletion,
        1058 if is_marked(&mut run.host, name).await => FailureCode::ServiceMarkedForDeletion,
        2 | 3 | 225 | 226 => FailureCode::QuarantineSuspected,
        _ => FailureCode::ServiceConfigFailed,
    };
    let culprit = match number {
        1068 | 1075 => culprit(run, name).await.unwrap_or_default(),
        _ => String::new(),
    };
    let doing = format!("start the service {name}{culprit}");
    let mut problem = Problem::windows(code, &doing, error);
    if matches!(number, 2 | 3 | 225 | 226) {
        problem.code = FailureCode::QuarantineSuspected;
    }
    problem
}

/// Whether a service is marked for deletion. Windows answers 1058 to a start of such a one, because it sets the start
/// type to disabled first (MS-SCMR, RDeleteService; safing/portmaster#200).
pub(crate) async fn is_marked<H: Host>(host: &mut Session<H>, name: &str) -> bool {
    let key = format!(r"SYSTEM\CurrentControlSet\Services\{name}");
    matches!(host.registry_number(&key, "DeleteFlag").await, Ok(Some(flag)) if flag != 0)
}

/// The first of a service's dependencies that does not run.
async fn culprit<H: Host>(run: &mut Run<H>, name: &str) -> Option<String> {
    let config = run.host.ask(ServiceRead { name: name.into() }).await.ok()?;
    for on in config.depends {
        match status(&mut run.host, &on).await.ok()? {
            None => return Some(format!(", {on} is not there")),
            Some(now) if now.state != ServiceState::Running => {
                return Some(format!(", {on} does not run ({})", now.exit));
            }
            Some(_) => {}
        }
    }
    None
}

/// Stops and deletes a service; `false` if there was none. Windows keeps the record until the last handle is closed,
/// without a notification, so it is polled until 1060.
pub(crate) async fn remove<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    if status(&mut run.host, name).await?.is_none() {
        return Ok(false);
    }
    stop(run, name).await?;
    run.stopped.retain(|stopped| !same(stopped, name));
    match run.host.ask(ServiceDelete { name: name.into() }).await {
        Ok(()) => {}
        Err(error) if error.is_any(&[1060, 1072]) => {}
        Err(error) => {
            let doing = format!("delete the service {name}");
            return Err(Problem::windows(
                FailureCode::ServiceConfigFailed,
                &doing,
                &error,
            ));
        }
    }
    let wait = run.host.wait(format!("{name}_goes"), MARKED_MS).await?;
    while status(&mut run.host, name).await?.is_some() {
        if !run.host.again(&wait, 1_000).await? {
            let said =
                format!("{name} is marked for deletion, and another program still has it open");
            return Err(Problem::new(FailureCode::ServiceMarkedForDeletion, said));
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, running: bool, depends: &[&str]) -> ServiceEntry {
        ServiceEntry {
            name: name.into(),
            state: if running {
                ServiceState::Running
            } else {
                ServiceState::Stopped
            },
            pid: 0,
            depends: depends.iter().map(|on| (*on).to_owned()).collect(),
        }
    }

    #[test]
    fn dependents_stop_before_what_they_depend_on() {
        let all = [
            listed("containerd", true, &[]),
            listed("kubelet", true, &["Containerd"]),
            listed("hybrid-overlay-node", false, &["kubelet"]),
            listed("kube-proxy", true, &["hybrid-overlay-node"]),
            listed("agent", true, &["containerd", "kube-proxy"]),
            listed("circle", true, &["containerd", "circle"]),
        ];
        // A stopped service is traversed, a running one is stopped once, and a cycle ends.
        assert_eq!(
            dependents(&all, "containerd"),
            ["agent", "kube-proxy", "kubelet", "circle"]
        );
        assert_eq!(dependents(&all, "agent"), Vec::<String>::new());
    }

    #[test]
    fn a_wait_hint_counts_while_its_state_is_pending() {
        let limit = |state: ServiceState| {
            stop_limit_ms(&ServiceStatus {
                state,
                accepts: 1,
                exit: 0,
                service_exit: 0,
                checkpoint: 0,
                wait_hint_ms: 200_000,
                pid: 7,
            })
        };
        assert_eq!(limit(ServiceState::StopPending), 200_000);
        // Its processes may outlive the service.
        assert_eq!(limit(ServiceState::Stopped), STOP_MS);
        assert_eq!(limit(ServiceState::Running), STOP_MS);
    }
}
