//! The service control manager and the processes, with Windows' states and numbers.
//!
//! Sources: docs/field-notes.md, Services and processes (MicrosoftDocs sdk-api `winsvc`, MS-SCMR, wine advapi32/tests/service.c, kubernetes
//! `pkg/windows/service/service.go`, kube-log-runner).

use std::collections::BTreeMap;

use dormer_host::ops::{
    Process, ProcessKey, Restarts, ServiceConfig, ServiceEntry, ServiceSettings, ServiceState,
    ServiceStatus, Start,
};

use crate::disk::{Result, refused};

/// How a program behaves as a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// From the start to RUNNING.
    pub start_ms: u64,
    /// From STOP to STOPPED.
    pub stop_ms: u64,
    /// From STOPPED to the end of its process: kubelet reports STOPPED while it still shuts down.
    pub linger_ms: u64,
    /// How long it says that a pending state may last.
    pub wait_hint_ms: u32,
    /// Exit code with which it ends instead of running.
    pub fails: Option<u32>,
    /// It stays in STOP_PENDING until its process is ended by force.
    pub ignores_stop: bool,
    /// Programs that it starts as children.
    pub children: Vec<String>,
    /// Its children end with it; those of containerd, its shims, do not.
    pub takes_children: bool,
    /// A start is refused with this number, so many times.
    pub refuses_start: Vec<u32>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            start_ms: 100,
            stop_ms: 100,
            linger_ms: 50,
            wait_hint_ms: 2_000,
            fails: None,
            ignores_stop: false,
            children: Vec::new(),
            takes_children: true,
            refuses_start: Vec::new(),
        }
    }
}

/// A service's record and state.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) config: ServiceConfig,
    pub(crate) state: ServiceState,
    exit: u32,
    process: Option<ProcessKey>,
    /// When the present state passes.
    due: Option<u64>,
    checkpoint: u32,
    pub(crate) marked: bool,
    /// Time until which another process (services.msc, an agent) holds it open.
    held_until: u64,
    failures: usize,
    /// Queued restart actions, which cannot be cancelled.
    restarts: Vec<u64>,
}

/// A process.
#[derive(Debug, Clone)]
pub(crate) struct RunningService {
    created: u64,
    parent: u32,
    pub(crate) path: String,
    /// The file that it runs from, under the name that it has now: one that runs can be renamed.
    mapped: String,
    /// It ends then.
    ends: Option<u64>,
    ended: bool,
}

/// All services and processes of a host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scm {
    pub(crate) services: BTreeMap<String, Service>,
    pub(crate) processes: BTreeMap<u32, RunningService>,
    held: Vec<ProcessKey>,
    next_pid: u32,
    pub(crate) tick_ms: u64,
    /// How programs behave, by file name in lower case.
    pub(crate) behaviours: BTreeMap<String, Behaviour>,
    /// A shutdown has begun: nearly everything answers 1115.
    pub(crate) going_down: bool,
    /// Names of services in the order in which they were stopped.
    pub(crate) stops: Vec<String>,
}

fn lower(name: &str) -> String {
    name.to_lowercase()
}

fn file_name(path: &str) -> String {
    lower(path.rsplit('\\').next().unwrap_or(path))
}

fn has_process(state: ServiceState) -> bool {
    state != ServiceState::Stopped
}

impl Scm {
    pub(crate) fn new() -> Self {
        Self {
            next_pid: 4,
            ..Self::default()
        }
    }

    fn alive(&self) -> Result<()> {
        if self.going_down {
            refused(1115)
        } else {
            Ok(())
        }
    }

    fn find(&self, name: &str) -> Result<&Service> {
        self.alive()?;
        match self.services.get(&lower(name)) {
            Some(service) => Ok(service),
            None => refused(1060),
        }
    }

    fn find_mut(&mut self, name: &str) -> Result<&mut Service> {
        self.find(name)?;
        match self.services.get_mut(&lower(name)) {
            Some(service) => Ok(service),
            None => refused(1060),
        }
    }

    /// A record that is marked for deletion opens; a change is refused with 1072 (MS-SCMR, ROpenServiceW).
    fn unmarked(&mut self, name: &str) -> Result<&mut Service> {
        let service = self.find_mut(name)?;
        if service.marked {
            refused(1072)
        } else {
            Ok(service)
        }
    }

    pub(crate) fn list(&self) -> Result<Vec<ServiceEntry>> {
        self.alive()?;
        let all = self.services.values().map(|service| ServiceEntry {
            name: service.name.clone(),
            state: service.state,
            pid: self.pid(service),
            depends: service.config.depends.clone(),
        });
        Ok(all.collect())
    }

    /// The process id is valid while the service runs, and not in the pending states before and after it.
    fn pid(&self, service: &Service) -> u32 {
        match service.state {
            ServiceState::Running => service.process.map_or(0, |process| process.pid),
            _ => 0,
        }
    }

    pub(crate) fn read(&self, name: &str) -> Result<ServiceConfig> {
        self.find(name).map(|service| service.config.clone())
    }

    pub(crate) fn status(&self, name: &str) -> Result<ServiceStatus> {
        let service = self.find(name)?;
        Ok(ServiceStatus {
            state: service.state,
            accepts: u32::from(service.state == ServiceState::Running),
            exit: service.exit,
            service_exit: 0,
            checkpoint: service.checkpoint,
            wait_hint_ms: self.behaviour_of(name).wait_hint_ms,
            pid: self.pid(service),
        })
    }

    /// The order of the numbers is the one that wine's tests prove: 123, then 1073, then 1078; a display name may equal
    /// no service's name or display name.
    pub(crate) fn create(&mut self, name: &str, settings: &ServiceSettings) -> Result<()> {
        self.alive()?;
        if name.is_empty() || name.len() > 256 || name.contains(['/', '\\']) {
            return refused(123);
        }
        if let Some(there) = self.services.get(&lower(name)) {
            return refused(if there.marked { 1072 } else { 1073 });
        }
        let display = settings.display.clone().unwrap_or_else(|| name.to_owned());
        self.display_is_free(name, &display)?;
        let config = ServiceConfig {
            kind: 0x10,
            start: settings.start.unwrap_or(Start::Demand),
            error_control: settings.error_control.unwrap_or(1),
            command: settings.command.clone().unwrap_or_default(),
            display,
            account: "LocalSystem".into(),
            depends: settings.depends.clone().unwrap_or_default(),
            description: Some(String::new()),
            failure: Some(Restarts::default()),
            delayed: Some(false),
            failure_flag: Some(false),
        };
        let service = Service {
            name: name.to_owned(),
            config,
            state: ServiceState::Stopped,
            // Never started in this boot.
            exit: 1077,
            process: None,
            due: None,
            checkpoint: 0,
            marked: false,
            held_until: 0,
            failures: 0,
            restarts: Vec::new(),
        };
        self.services.insert(lower(name), service);
        Ok(())
    }

    fn display_is_free(&self, name: &str, display: &str) -> Result<()> {
        let taken = self.services.iter().any(|(key, service)| {
            *key != lower(name)
                && (lower(&service.config.display) == lower(display) || *key == lower(display))
        });
        if taken { refused(1078) } else { Ok(()) }
    }

    pub(crate) fn change(&mut self, name: &str, settings: &ServiceSettings) -> Result<()> {
        self.unmarked(name)?;
        if let Some(display) = &settings.display {
            self.display_is_free(name, display)?;
        }
        let config = &mut self.unmarked(name)?.config;
        let ServiceSettings {
            command,
            display,
            start,
            depends,
            error_control,
        } = settings.clone();
        config.command = command.unwrap_or_else(|| config.command.clone());
        config.display = display.unwrap_or_else(|| config.display.clone());
        config.start = start.unwrap_or(config.start);
        config.depends = depends.unwrap_or_else(|| config.depends.clone());
        config.error_control = error_control.unwrap_or(config.error_control);
        Ok(())
    }

    pub(crate) fn describe(&mut self, name: &str, description: &str) -> Result<()> {
        self.unmarked(name)?.config.description = Some(description.to_owned());
        Ok(())
    }

    /// Without actions Windows keeps no reset period either (sdk-api, SERVICE_FAILURE_ACTIONSW).
    pub(crate) fn set_failure(&mut self, name: &str, actions: &Restarts) -> Result<()> {
        let kept = if actions.delays_ms.is_empty() {
            Restarts::default()
        } else {
            actions.clone()
        };
        self.unmarked(name)?.config.failure = Some(kept);
        Ok(())
    }

    /// Starts a service after those that it depends on. `exists`: whether a program is on the disk.
    pub(crate) fn start(&mut self, name: &str, exists: &dyn Fn(&str) -> Option<u32>) -> Result<()> {
        let service = self.find(name)?;
        // 1058 comes before 1072: a deletion sets the start type to disabled (safing/portmaster#200).
        if service.config.start == Start::Disabled || service.marked {
            return refused(1058);
        }
        if service.state != ServiceState::Stopped {
            return refused(1056);
        }
        for on in service.config.depends.clone() {
            match self.services.get(&lower(&on)) {
                None => return refused(1075),
                Some(needed) if needed.marked => return refused(1075),
                Some(needed) if needed.state == ServiceState::Stopped => {
                    if self.start(&on, exists).is_err() {
                        return refused(1068);
                    }
                    self.finish_start(&on);
                    if self.status(&on).map(|it| it.state) != Ok(ServiceState::Running) {
                        return refused(1068);
                    }
                }
                Some(_) => {}
            }
        }
        self.launch(name, exists)
    }

    /// A dependency runs before what needs it starts: Windows waits for it.
    fn finish_start(&mut self, name: &str) {
        let tick = self.tick_ms;
        if let Some(service) = self.services.get_mut(&lower(name))
            && service.state == ServiceState::StartPending
        {
            service.due = Some(tick);
        }
        self.advance(tick);
    }

    fn launch(&mut self, name: &str, exists: &dyn Fn(&str) -> Option<u32>) -> Result<()> {
        let command = self.find(name)?.config.command.clone();
        let programs = programs(&command);
        let Some(first) = programs.first().cloned() else {
            return refused(2);
        };
        if let Some(code) = exists(&first) {
            return refused(code);
        }
        let own = programs.last().cloned().unwrap_or_else(|| first.clone());
        let behaviour = self.behaviours.entry(file_name(&own)).or_default();
        if !behaviour.refuses_start.is_empty() {
            let code = behaviour.refuses_start.remove(0);
            return refused(code);
        }
        let behaviour = behaviour.clone();
        let pid = self.spawn(4, &first);
        let mut last = pid;
        if own != first {
            last = self.spawn(pid, &own);
        }
        for child in &behaviour.children {
            self.spawn(last, child);
        }
        let created = self
            .processes
            .get(&pid)
            .map_or(0, |process| process.created);
        let due = self.tick_ms + behaviour.start_ms;
        let service = self.find_mut(name)?;
        service.state = ServiceState::StartPending;
        service.process = Some(ProcessKey { pid, created });
        service.exit = 0;
        service.checkpoint = 0;
        service.due = Some(due);
        Ok(())
    }

    /// A new process. Its id may be that of an ended one without an open handle.
    pub(crate) fn spawn(&mut self, parent: u32, path: &str) -> u32 {
        self.next_pid += 4;
        let running = RunningService {
            created: self.tick_ms + 1,
            parent,
            path: path.to_owned(),
            mapped: lower(path),
            ends: None,
            ended: false,
        };
        self.processes.insert(self.next_pid, running);
        self.next_pid
    }

    pub(crate) fn stop(&mut self, name: &str) -> Result<()> {
        let service = self.find(name)?;
        match service.state {
            ServiceState::Stopped => return refused(1062),
            ServiceState::StopPending => return refused(1061),
            // Delivered only to a service that accepts it yet (sdk-api, ControlService).
            ServiceState::StartPending => return refused(1052),
            _ => {}
        }
        let own = lower(name);
        let needed = self.services.values().any(|other| {
            other.state != ServiceState::Stopped
                && other.config.depends.iter().any(|on| lower(on) == own)
        });
        if needed {
            return refused(1051);
        }
        let behaviour = self.behaviour_of(name);
        let due = (!behaviour.ignores_stop).then_some(self.tick_ms + behaviour.stop_ms);
        self.stops.push(name.to_owned());
        let service = self.find_mut(name)?;
        service.state = ServiceState::StopPending;
        service.due = due;
        Ok(())
    }

    fn behaviour_of(&self, name: &str) -> Behaviour {
        let command = self
            .services
            .get(&lower(name))
            .map(|service| service.config.command.clone());
        let own = programs(&command.unwrap_or_default()).pop();
        own.and_then(|own| self.behaviours.get(&file_name(&own)).cloned())
            .unwrap_or_default()
    }

    /// MS-SCMR RDeleteService: the start type becomes disabled, and the record is deleted when the last handle is
    /// closed and the service has stopped.
    pub(crate) fn delete(&mut self, name: &str) -> Result<()> {
        let service = self.unmarked(name)?;
        service.marked = true;
        service.config.start = Start::Disabled;
        self.advance(self.tick_ms);
        Ok(())
    }

    pub(crate) fn list_processes(&self) -> Vec<Process> {
        let all = self.processes.iter().filter(|(_, process)| !process.ended);
        let all = all.map(|(pid, process)| Process {
            pid: *pid,
            created: process.created,
            parent: process.parent,
            name: process
                .path
                .rsplit('\\')
                .next()
                .unwrap_or_default()
                .to_owned(),
            path: process.path.clone(),
        });
        all.collect()
    }

    pub(crate) fn hold_process(&mut self, pid: u32) -> Result<u64> {
        match self.processes.get(&pid) {
            Some(process) if !process.ended => {
                let created = process.created;
                self.held.push(ProcessKey { pid, created });
                Ok(created)
            }
            _ => refused(87),
        }
    }

    pub(crate) fn has_ended(&self, process: ProcessKey) -> Result<bool> {
        if !self.held.contains(&process) {
            return refused(6);
        }
        Ok(!self
            .processes
            .get(&process.pid)
            .is_some_and(|one| one.created == process.created && !one.ended))
    }

    /// On a process that has ended: 5 (sdk-api, TerminateProcess). Its children continue (win32, terminating-a-process).
    pub(crate) fn end_process(&mut self, process: ProcessKey) -> Result<()> {
        if self.has_ended(process)? {
            return refused(5);
        }
        let tick = self.tick_ms;
        if let Some(running) = self.processes.get_mut(&process.pid) {
            running.ends = Some(tick + 20);
        }
        Ok(())
    }

    pub(crate) fn release(&mut self, process: ProcessKey) {
        self.held.retain(|held| *held != process);
    }

    pub(crate) fn forget_handles(&mut self) {
        self.held.clear();
    }

    /// Lets time pass up to `tick`.
    pub(crate) fn advance(&mut self, tick: u64) {
        self.tick_ms = tick;
        for name in self.services.keys().cloned().collect::<Vec<_>>() {
            self.advance_service(&name);
        }
        let ended: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, process)| !process.ended && process.ends.is_some_and(|at| at <= tick))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in ended {
            self.process_ended(pid);
        }
        self.services.retain(|_, service| {
            !(service.marked
                && service.state == ServiceState::Stopped
                && service.held_until <= tick)
        });
    }

    fn advance_service(&mut self, key: &str) {
        let tick = self.tick_ms;
        let behaviour = self.behaviour_of(key);
        let Some(service) = self.services.get_mut(key) else {
            return;
        };
        if service.due.is_some_and(|due| due <= tick) {
            service.due = None;
            match service.state {
                ServiceState::StartPending => match behaviour.fails {
                    None => service.state = ServiceState::Running,
                    Some(exit) => {
                        service.state = ServiceState::Stopped;
                        service.exit = exit;
                        let process = service.process.take();
                        self.end_tree(process, &behaviour, tick);
                        return;
                    }
                },
                ServiceState::StopPending => {
                    service.state = ServiceState::Stopped;
                    service.exit = 0;
                    let process = service.process.take();
                    self.end_tree(process, &behaviour, tick + behaviour.linger_ms);
                    return;
                }
                _ => {}
            }
        }
        let restart = service.restarts.iter().any(|at| *at <= tick);
        if restart {
            service.restarts.retain(|at| *at > tick);
            let name = service.name.clone();
            if service.state == ServiceState::Stopped
                && !service.marked
                && service.config.start != Start::Disabled
            {
                let _ = self.launch(&name, &|_| None);
            }
        }
    }

    fn end_tree(&mut self, process: Option<ProcessKey>, behaviour: &Behaviour, at: u64) {
        let Some(process) = process else {
            return;
        };
        let mut tree = vec![process.pid];
        let mut n = 0;
        while n < tree.len() {
            let parent = tree[n];
            n += 1;
            for (pid, child) in &self.processes {
                let shim = file_name(&child.path).starts_with("containerd-shim");
                if child.parent == parent && !child.ended && !shim && behaviour.takes_children {
                    tree.push(*pid);
                }
            }
        }
        for pid in tree {
            if let Some(running) = self.processes.get_mut(&pid) {
                running.ends = Some(running.ends.map_or(at, |ends| ends.min(at)));
            }
        }
    }

    /// A process that ends before its service reported STOPPED counts as a crash, whatever ended it: 1067, and the
    /// failure actions (sdk-api, SERVICE_FAILURE_ACTIONS_FLAG).
    fn process_ended(&mut self, pid: u32) {
        let tick = self.tick_ms;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        process.ended = true;
        let key = ProcessKey {
            pid,
            created: process.created,
        };
        let of = self
            .services
            .values_mut()
            .find(|service| service.process == Some(key) && has_process(service.state));
        if let Some(service) = of {
            service.state = ServiceState::Stopped;
            service.exit = 1067;
            service.process = None;
            service.due = None;
            let delays = service.config.failure.clone().unwrap_or_default().delays_ms;
            if let Some(delay) = delays.get(service.failures).or(delays.last()) {
                service.restarts.push(tick + u64::from(*delay));
            }
            service.failures += 1;
        }
        if !self.held.contains(&key) {
            self.processes.remove(&pid);
        }
    }

    // What tests do to services beside the interface.

    pub(crate) fn hold_open(&mut self, name: &str, ms: u64) {
        let until = self.tick_ms + ms;
        if let Some(service) = self.services.get_mut(&lower(name)) {
            service.held_until = until;
        }
    }

    pub(crate) fn running_programs(&self) -> Vec<String> {
        let alive = self.processes.values().filter(|process| !process.ended);
        alive.map(|process| lower(&process.path)).collect()
    }

    /// The files that processes run from, by path in lower case.
    pub(crate) fn mapped_files(&self) -> Vec<String> {
        let alive = self.processes.values().filter(|process| !process.ended);
        alive.map(|process| process.mapped.clone()).collect()
    }

    /// A file that processes run from was renamed.
    pub(crate) fn renamed(&mut self, from: &str, to: &str) {
        let from = lower(from);
        let to = lower(to);
        for process in self.processes.values_mut() {
            if process.mapped == from {
                process.mapped.clone_from(&to);
            }
        }
    }

    /// A boot: all processes end, marked records are deleted, automatic services start.
    pub(crate) fn boot(&mut self) {
        self.processes.clear();
        self.held.clear();
        self.going_down = false;
        self.services.retain(|_, service| !service.marked);
        for service in self.services.values_mut() {
            service.state = ServiceState::Stopped;
            service.exit = 1077;
            service.process = None;
            service.due = None;
            service.failures = 0;
            service.restarts.clear();
            service.held_until = 0;
        }
    }

    /// Ends the process of a service from outside.
    pub(crate) fn kill(&mut self, name: &str) {
        let process = self
            .services
            .get(&lower(name))
            .and_then(|service| service.process);
        if let Some(process) = process {
            self.process_ended(process.pid);
        }
    }

    pub(crate) fn process_of(&self, name: &str) -> Option<ProcessKey> {
        self.services
            .get(&lower(name))
            .and_then(|service| service.process)
    }
}

/// The programs of a command line: the one that Windows starts, and the one that a wrapper starts in turn.
fn programs(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = command.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        if word.get(1..3) == Some(":\\") && word.to_lowercase().ends_with(".exe") {
            found.push(word.to_owned());
        }
        rest = after.trim_start();
    }
    let wrapped = found
        .first()
        .is_some_and(|first| file_name(first) == "kube-log-runner.exe");
    found.truncate(if wrapped { 2 } else { 1 });
    found
}
