//! Services: stopped with all that belongs to them, started again, configured as Windows keeps it.

use dormer_host::ops::{
    Ask as _, Host as _, OperationRequest, Restarts, Security, ServiceFailure, ServiceSettings,
    ServiceState, Start, Step, Value,
};
use dormer_host_sim::{Behaviour, SimulatedHost};
use dormer_profile::{
    answer::{FailureCode, ItemState},
    item::{ItemKind, Priority, PriorityClass},
};

use crate::harness::{
    apply, assert_as_asked, assert_converged, code, deaf, detail, file, file_for, folder,
    foreign_service, node, of, plan, service, state,
};

/// Where a call notes the services that it stopped.
const STOPPED: &str = r"C:\Windows\dormer\state\stopped.json";
const CONTAINERD: &str = r"C:\k\v1\containerd.exe";

fn running(host: &SimulatedHost, name: &str) -> bool {
    host.service_state(name) == Some(ServiceState::Running)
}

/// A host on which the small node was converged.
fn converged() -> SimulatedHost {
    let mut host = SimulatedHost::new();
    assert_converged(&apply(&mut host, &node("v1")));
    host
}

#[test]
fn what_depends_on_a_service_stops_before_it_and_runs_again_whoever_it_belongs_to() {
    let mut host = converged();
    foreign_service(&mut host, "agent", &["kubelet"]);
    let mut changed = node("v1");
    changed.items[8] = service(
        "containerd",
        &format!("{CONTAINERD} --run-service --debug"),
        &[],
    );
    let answer = apply(&mut host, &changed);
    assert_converged(&answer);
    assert_eq!(host.stops(), ["agent", "kubelet", "containerd"]);
    host.pass(1_000);
    for name in ["agent", "kubelet", "containerd"] {
        assert!(running(&host, name), "{name}");
    }
}

#[test]
fn what_was_stopped_runs_again_when_the_call_fails() {
    let mut host = converged();
    foreign_service(&mut host, "agent", &["kubelet"]);
    // The new configuration cannot be put in its place, and kubelet was stopped for it.
    host.hold(r"C:\k\kubelet.conf", None, false);
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    let answer = apply(&mut host, &changed);
    assert_eq!(code(&answer), Some(FailureCode::FileLocked));
    assert_eq!(host.stops(), ["agent", "kubelet"]);
    host.pass(1_000);
    assert!(running(&host, "kubelet") && running(&host, "agent"));
}

#[test]
fn a_stopped_service_is_free_only_when_its_processes_have_ended() {
    let mut host = SimulatedHost::new();
    let lingers = Behaviour {
        linger_ms: 9_000,
        ..Behaviour::default()
    };
    host.behave("kubelet.exe", lingers);
    assert_converged(&apply(&mut host, &node("v1")));
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    let before = host.process_of("kubelet");
    assert_converged(&apply(&mut host, &changed));
    assert_ne!(host.process_of("kubelet"), before);
    let kubelets = host
        .programs()
        .iter()
        .filter(|path| path.ends_with(r"\kubelet.exe"))
        .count();
    assert_eq!(kubelets, 1, "the one that shuts down was waited for");
}

#[test]
fn another_services_process_of_the_same_program_is_left_alone() {
    let mut host = converged();
    // Another service's logging, by the same wrapper.
    let settings = ServiceSettings {
        command: Some(
            r"C:\k\v1\kube-log-runner.exe -log-file=C:\x.log C:\Program Files\agent\agent.exe"
                .into(),
        ),
        ..ServiceSettings::default()
    };
    host.install("agent", &settings);
    assert!(host.start("agent"));
    let agent = host.process_of("agent");
    host.behave("kubelet.exe", deaf());
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    assert_converged(&apply(&mut host, &changed));
    assert_eq!(host.process_of("agent"), agent);
    assert!(running(&host, "agent"));
}

#[test]
fn an_orphan_is_ended_before_a_start() {
    let mut host = converged();
    host.spawn(r"C:\k\v1\kubelet.exe");
    let stranger = r"c:\tools\kubelet.exe";
    host.spawn(stranger);
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    assert_converged(&apply(&mut host, &changed));
    host.pass(1_000);
    let programs = host.programs();
    assert_eq!(
        programs
            .iter()
            .filter(|path| *path == r"c:\k\v1\kubelet.exe")
            .count(),
        1
    );
    assert!(
        programs.contains(&stranger.to_owned()),
        "only those of our own folders"
    );
}

/// A person may run a tool of one version while the folder of another is replaced.
#[test]
fn what_runs_below_a_folder_that_is_put_aside_is_ended_and_its_namesake_is_not() {
    let mut host = SimulatedHost::new();
    let old = r"C:\k\v1\crictl.exe";
    let new = r"C:\k\v2\crictl.exe";
    let document = of(vec![
        folder(r"C:\k\v1"),
        folder(r"C:\k\v2"),
        file(old, "MZ"),
        file(new, "MZ"),
    ]);
    assert_converged(&apply(&mut host, &document));
    host.spawn(old);
    host.spawn(new);
    let found = host.security(r"C:\k\v1").expect("rights");
    let theirs = Security {
        owner: "S-1-5-21-1-2-3-1001".into(),
        ..found
    };
    host.set_security(r"C:\k\v1", theirs);
    assert_converged(&apply(&mut host, &document));
    host.pass(1_000);
    let programs = host.programs();
    let left: Vec<&String> = programs
        .iter()
        .filter(|path| path.ends_with("crictl.exe"))
        .collect();
    assert_eq!(left, [&new.to_lowercase()]);
}

#[test]
fn an_orphan_of_the_version_before_is_ended_before_a_start() {
    let mut host = converged();
    // Its wrapper died, so Windows takes the service for stopped, and the port is held.
    host.kill("kubelet");
    host.pass(1_000);
    host.spawn(r"C:\k\v1\kubelet.exe");
    let of_others = r"c:\tools\v1\kubelet.exe";
    host.spawn(of_others);
    assert_converged(&apply(&mut host, &node("v2")));
    host.pass(1_000);
    let programs = host.programs();
    let kubelets: Vec<&String> = programs
        .iter()
        .filter(|path| path.ends_with(r"\kubelet.exe"))
        .collect();
    assert_eq!(kubelets.len(), 2, "{kubelets:?}");
    for left in [of_others, r"c:\k\v2\kubelet.exe"] {
        assert!(programs.iter().any(|path| path == left), "{programs:?}");
    }
}

/// Sets the failure actions of a service, as another process would.
fn set_failure(host: &mut SimulatedHost, name: &str, actions: &Restarts) {
    let set = ServiceFailure {
        name: name.into(),
        actions: actions.clone(),
    };
    let request = OperationRequest {
        step: Step::default(),
        operation: set.operation(),
    };
    dormer_host::block_on(host.perform(request)).expect("they are set");
}

/// Actions of which some are no restarts.
fn reboots() -> Restarts {
    Restarts {
        reset_seconds: 60,
        delays_ms: vec![1_000],
        other: true,
    }
}

#[test]
fn a_service_whose_end_by_force_reboots_the_host_is_not_ended_so() {
    let mut host = converged();
    host.behave("agent.exe", deaf());
    foreign_service(&mut host, "agent", &["kubelet"]);
    set_failure(&mut host, "agent", &reboots());
    let process = host.process_of("agent");
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    let answer = apply(&mut host, &changed);
    let failure = answer.failure.as_ref().expect("a failure");
    assert_eq!(failure.code, FailureCode::ServiceStopTimeout);
    // Nothing starts it, and nothing says that it does not run: it does not stop.
    assert_eq!(detail(&answer, "service:agent"), "agent does not stop");
    assert!(
        failure.message.contains("agent does not end") && failure.message.contains("reboot"),
        "{}",
        failure.message
    );
    assert_eq!(host.process_of("agent"), process);
    let kept = host.service("agent").and_then(|config| config.failure);
    assert_eq!(kept, Some(reboots()));
    // Once it has ended, the next call starts it again.
    set_failure(&mut host, "agent", &Restarts::default());
    host.kill("agent");
    assert_converged(&apply(&mut host, &changed));
    assert!(running(&host, "agent"));
    // One of ours gets the actions of its item.
    let mut host = SimulatedHost::new();
    host.behave("kubelet.exe", deaf());
    assert_converged(&apply(&mut host, &node("v1")));
    set_failure(&mut host, "kubelet", &reboots());
    assert_converged(&apply(&mut host, &changed));
    assert_as_asked(&mut host, &changed);
}

/// Windows does not say that it has no actions: one of them may reboot the host.
#[test]
fn a_service_whose_failure_actions_are_not_returned_is_not_ended_by_force() {
    let mut host = converged();
    host.behave("agent.exe", deaf());
    foreign_service(&mut host, "agent", &["kubelet"]);
    host.hide_failure_actions("agent");
    let process = host.process_of("agent");
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    let answer = apply(&mut host, &changed);
    assert_eq!(code(&answer), Some(FailureCode::ServiceStopTimeout));
    assert_eq!(host.process_of("agent"), process);
    // One of ours is ended by force.
    let mut host = SimulatedHost::new();
    host.behave("kubelet.exe", deaf());
    assert_converged(&apply(&mut host, &node("v1")));
    host.hide_failure_actions("kubelet");
    assert_converged(&apply(&mut host, &changed));
}

/// A renewal's document has no services, so no item sets the actions of kubelet again.
#[test]
fn a_renewal_that_ends_kubelet_by_force_leaves_its_restarts() {
    use dormer_profile::invocation::Mode;
    let mut host = SimulatedHost::new();
    host.behave("kubelet.exe", deaf());
    assert_converged(&apply(&mut host, &node("v1")));
    set_failure(&mut host, "kubelet", &reboots());
    let renewed = of(vec![file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"])]);
    let call = crate::harness::call(Mode::Renew, 1);
    assert_converged(&crate::harness::ask(&mut host, call, Some(&renewed)));
    let kept = host.service("kubelet").and_then(|config| config.failure);
    let restarts = Restarts {
        other: false,
        ..reboots()
    };
    assert_eq!(kept, Some(restarts));
    host.kill("kubelet");
    host.pass(5_000);
    assert!(running(&host, "kubelet"));
    // The next whole document sets what its item says.
    let mut document = node("v1");
    document.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    assert_converged(&apply(&mut host, &document));
    let kept = host.service("kubelet").and_then(|config| config.failure);
    assert_eq!(kept.map(|it| it.delays_ms), Some(vec![5_000]));
}

#[test]
fn a_service_that_still_stops_is_started_when_it_has_stopped() {
    let mut host = converged();
    let slow = Behaviour {
        stop_ms: 70_000,
        ..Behaviour::default()
    };
    host.behave("agent.exe", slow);
    foreign_service(&mut host, "agent", &["kubelet"]);
    set_failure(&mut host, "agent", &reboots());
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    let answer = apply(&mut host, &changed);
    assert_eq!(code(&answer), Some(FailureCode::ServiceStopTimeout));
    assert!(running(&host, "agent"), "{answer:#?}");
    assert_eq!(detail(&answer, "service:agent"), "");
}

#[test]
fn a_stop_may_last_as_long_as_the_service_asks_for() {
    let mut host = converged();
    let slow = Behaviour {
        stop_ms: 150_000,
        wait_hint_ms: 200_000,
        ..Behaviour::default()
    };
    host.behave("agent.exe", slow);
    foreign_service(&mut host, "agent", &["kubelet"]);
    // An end by force would reboot the host, so it fails the call.
    set_failure(&mut host, "agent", &reboots());
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    let answer = apply(&mut host, &changed);
    assert_converged(&answer);
    assert!(answer.took_ms > 150_000, "{}", answer.took_ms);
    host.pass(1_000);
    assert!(running(&host, "agent"));
}

#[test]
fn a_service_that_asks_for_weeks_is_ended_after_the_longest_stop() {
    let mut host = converged();
    let endless = Behaviour {
        wait_hint_ms: u32::MAX,
        ..deaf()
    };
    host.behave("kubelet.exe", endless);
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    let answer = apply(&mut host, &changed);
    assert_converged(&answer);
    let minutes = answer.took_ms / 60_000;
    assert_eq!(minutes, 10, "{} ms", answer.took_ms);
}

#[test]
fn a_note_that_cannot_be_written_does_not_hide_why_a_service_does_not_start() {
    let mut host = converged();
    foreign_service(&mut host, "agent", &["kubelet"]);
    let refuses = Behaviour {
        refuses_start: vec![1053; 9],
        ..Behaviour::default()
    };
    host.behave("agent.exe", refuses);
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    for _ in 0..2 {
        let answer = apply(&mut host, &changed);
        assert_eq!(code(&answer), Some(FailureCode::ServiceStartTimeout));
        host.hold(STOPPED, None, false);
    }
}

#[test]
fn a_service_of_others_that_does_not_start_again_is_named_until_it_runs() {
    let mut host = converged();
    foreign_service(&mut host, "agent", &["kubelet"]);
    let refuses = |times| Behaviour {
        refuses_start: vec![1053; times],
        ..Behaviour::default()
    };
    host.behave("agent.exe", refuses(9));
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    // The second call finds everything right but what the first one has stopped.
    for call in ["first", "second"] {
        let answer = apply(&mut host, &changed);
        assert_eq!(state(&answer, "service:agent"), ItemState::Failed, "{call}");
        let failure = answer.failure.expect("a failure");
        assert_eq!(failure.code, FailureCode::ServiceStartTimeout, "{call}");
        assert!(
            failure.message.contains("(1053)") && failure.message.contains("service agent"),
            "{}",
            failure.message
        );
        assert!(failure.retry && running(&host, "kubelet"), "{call}");
    }
    host.behave("agent.exe", Behaviour::default());
    assert_converged(&apply(&mut host, &changed));
    assert!(running(&host, "agent"));
}

#[test]
fn a_service_that_somebody_disabled_meanwhile_is_not_started_again() {
    let mut host = converged();
    foreign_service(&mut host, "agent", &["kubelet"]);
    let refuses = Behaviour {
        refuses_start: vec![193; 9],
        ..Behaviour::default()
    };
    host.behave("agent.exe", refuses);
    let mut changed = node("v1");
    changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
    assert_eq!(
        code(&apply(&mut host, &changed)),
        Some(FailureCode::ServiceConfigFailed)
    );
    let disabled = ServiceSettings {
        start: Some(Start::Disabled),
        ..ServiceSettings::default()
    };
    host.configure("agent", &disabled);
    assert_converged(&apply(&mut host, &changed));
    assert!(!running(&host, "agent"));
}

#[test]
fn before_a_forced_end_the_restarts_are_off_and_come_back_after_it() {
    let mut host = SimulatedHost::new();
    host.behave("containerd.exe", deaf());
    let document = |config| {
        of(vec![
            file(CONTAINERD, "MZ containerd"),
            file_for(r"C:\k\containerd.toml", config, &["containerd"]),
            service("containerd", &format!("{CONTAINERD} --run-service"), &[]),
        ])
    };
    assert_converged(&apply(&mut host, &document("one")));
    // Its configuration takes longer to replace than Windows waits before a restart.
    host.scanner(20_000);
    let answer = apply(&mut host, &document("two"));
    assert_converged(&answer);
    let started = (ItemState::Changed, "started");
    let of_service = (
        state(&answer, "service:containerd"),
        detail(&answer, "service:containerd"),
    );
    assert_eq!(
        of_service, started,
        "its own item started it, and no restart of Windows'"
    );
    let failure = host.service("containerd").and_then(|config| config.failure);
    let wanted = Restarts {
        reset_seconds: 86_400,
        delays_ms: vec![5_000],
        other: false,
    };
    assert_eq!(failure, Some(wanted));
}

#[test]
fn a_plan_after_an_apply_is_empty_without_a_display_name() {
    let mut host = converged();
    let kubelet = host.service("kubelet").expect("kubelet");
    assert_eq!(
        (kubelet.display.as_str(), kubelet.start),
        ("kubelet", Start::Demand)
    );
    assert_eq!(kubelet.description.as_deref(), Some("kubelet of ours"));
    assert_as_asked(&mut host, &node("v1"));
    let answer = apply(&mut host, &node("v1"));
    assert!(
        answer.items.iter().all(|item| item.state == ItemState::Ok),
        "{:#?}",
        answer.items
    );
}

#[test]
fn a_display_name_that_is_another_services_is_named() {
    let mut host = SimulatedHost::new();
    let settings = ServiceSettings {
        command: Some(r"C:\x.exe".into()),
        display: Some("kubelet".into()),
        ..ServiceSettings::default()
    };
    host.install("somebody", &settings);
    let answer = apply(&mut host, &node("v1"));
    assert_eq!(code(&answer), Some(FailureCode::ServiceConfigFailed));
    assert!(
        detail(&answer, "service:kubelet").contains("bears the name `kubelet`"),
        "{:#?}",
        answer.items
    );
}

#[test]
fn a_service_that_is_marked_for_deletion_is_waited_for_and_made_anew() {
    let mut host = converged();
    host.hold_service("kubelet", 40_000);
    host.delete_service("kubelet");
    host.set_registry(
        r"SYSTEM\CurrentControlSet\Services\kubelet",
        "DeleteFlag",
        Value::Number(1),
    );
    host.kill("kubelet");
    let differs = plan(&mut host, &node("v1"));
    assert_eq!(
        detail(&differs, "service:kubelet"),
        "is marked for deletion"
    );
    // The flag goes with the record.
    host.pass(40_000);
    host.set_registry(
        r"SYSTEM\CurrentControlSet\Services\kubelet",
        "DeleteFlag",
        Value::Number(0),
    );
    assert_converged(&apply(&mut host, &node("v1")));
}

#[test]
fn one_that_stays_marked_is_named_so_and_not_as_disabled() {
    let mut host = converged();
    host.hold_service("kubelet", 400_000);
    host.delete_service("kubelet");
    host.set_registry(
        r"SYSTEM\CurrentControlSet\Services\kubelet",
        "DeleteFlag",
        Value::Number(1),
    );
    host.kill("kubelet");
    let answer = apply(&mut host, &node("v1"));
    assert_eq!(code(&answer), Some(FailureCode::ServiceMarkedForDeletion));
}

#[test]
fn the_removal_of_a_service_ends_when_it_is_gone() {
    let mut host = converged();
    host.hold_service("kubelet", 20_000);
    let answer = crate::harness::remove(&mut host);
    assert_eq!(answer.failure, None);
    assert_eq!(host.services(), Vec::<String>::new());
}

#[test]
fn the_old_priority_goes_and_no_debuggers_key_comes() {
    let key = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion\Image File Execution Options\kubelet.exe\PerfOptions";
    let mut host = converged();
    let mut document = node("v1");
    if let ItemKind::Service(what) = &mut document.items[9].what {
        what.priority = Some(Priority {
            executable: "kubelet.exe".into(),
            class: PriorityClass::AboveNormal,
        });
    }
    assert_as_asked(&mut host, &document);
    host.set_registry(key, "CpuPriorityClass", Value::Number(6));
    assert_eq!(
        detail(&plan(&mut host, &document), "service:kubelet"),
        "differs in priority"
    );
    assert_converged(&apply(&mut host, &document));
    assert_eq!(host.registry(key, "CpuPriorityClass"), None);
}

#[test]
fn a_start_that_fails_says_why() {
    let mut host = SimulatedHost::new();
    let crashes = Behaviour {
        fails: Some(3),
        ..Behaviour::default()
    };
    host.behave("kubelet.exe", crashes);
    host.put(
        r"C:\var\log\kubelet\kubelet.log",
        b"first\r\nno node-ip\r\n",
    );
    let mut document = node("v1");
    if let ItemKind::Service(what) = &mut document.items[9].what {
        what.log = Some(r"C:\var\log\kubelet\kubelet.log".into());
    }
    let failure = apply(&mut host, &document).failure.expect("a failure");
    assert_eq!(failure.code, FailureCode::ServiceCrashed);
    assert_eq!(failure.message, "kubelet ended with 3");
    assert_eq!(failure.log_tail, "first\nno node-ip");
}

#[test]
fn a_dependency_that_does_not_start_is_named() {
    let mut host = converged();
    host.kill("containerd");
    host.kill("kubelet");
    host.behave(
        "containerd.exe",
        Behaviour {
            refuses_start: vec![193; 9],
            ..Behaviour::default()
        },
    );
    let only_kubelet = of(vec![node("v1").items[9].clone()]);
    let failure = apply(&mut host, &only_kubelet).failure.expect("a failure");
    assert_eq!(failure.code, FailureCode::DependencyFailed);
    assert!(
        failure.message.contains("containerd does not run"),
        "{}",
        failure.message
    );
}

#[test]
fn a_start_that_takes_windows_too_long_is_tried_once_more() {
    let mut host = SimulatedHost::new();
    let busy = |times| Behaviour {
        refuses_start: vec![1053; times],
        ..Behaviour::default()
    };
    host.behave("containerd.exe", busy(1));
    assert_converged(&apply(&mut host, &node("v1")));
    let mut host = SimulatedHost::new();
    host.behave("containerd.exe", busy(2));
    assert_eq!(
        code(&apply(&mut host, &node("v1"))),
        Some(FailureCode::ServiceStartTimeout)
    );
}

#[test]
fn a_program_that_is_gone_before_its_start_was_taken() {
    let mut host = SimulatedHost::new();
    let mut document = node("v1");
    document.items.remove(3);
    let answer = apply(&mut host, &document);
    assert_eq!(code(&answer), Some(FailureCode::QuarantineSuspected));
    assert_eq!(state(&answer, "service:kubelet"), ItemState::Skipped);
}

#[test]
fn a_busy_service_manager_is_asked_again() {
    for number in [1061, 1052, 1053, 109, 232] {
        let mut host = converged();
        host.refuse("service_stop", 2, number);
        let mut changed = node("v1");
        changed.items[6] = file_for(r"C:\k\kubelet.conf", "v2", &["kubelet"]);
        assert_converged(&apply(&mut host, &changed));
        assert_eq!(host.stops(), ["kubelet"], "{number}");
    }
}

/// A document out of JSON.
fn with_own(items: serde_json::Value) -> Vec<u8> {
    let document =
        serde_json::json!({ "schema": 1, "section": "host", "version": "v1", "items": items });
    document.to_string().into_bytes()
}

fn own(
    host: &mut SimulatedHost,
    mode: dormer_profile::invocation::Mode,
    items: &serde_json::Value,
) -> dormer_profile::answer::Answer {
    let document = Ok(Some(with_own(items.clone())));
    let call = crate::harness::call(mode, 1);
    let answer = dormer_host_sim::until_cut(dormer_host::run(call, document, &mut *host))
        .expect("an answer");
    host.process_ended();
    answer
}

#[test]
fn a_disabled_service_of_somebody_else_stays_stopped_and_is_restored() {
    use dormer_profile::invocation::Mode;
    let mut host = SimulatedHost::new();
    let wicd = "windows-instance-config-daemon";
    foreign_service(&mut host, wicd, &[]);
    let change = ServiceSettings {
        start: Some(Start::Auto),
        ..ServiceSettings::default()
    };
    host.configure(wicd, &change);
    let items = serde_json::json!([
        { "id": "directory", "change": "live", "kind": "directory", "path": r"C:\k" },
        { "id": "wicd", "change": "live", "kind": "disabled_service", "name": wicd },
        { "id": "gone", "change": "live", "kind": "disabled_service", "name": "not-there" },
    ]);
    let differs = own(&mut host, Mode::Plan, &items);
    assert_eq!(detail(&differs, "wicd"), "is not disabled");
    let answer = own(&mut host, Mode::Apply, &items);
    assert_converged(&answer);
    let ids: Vec<&str> = answer.items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!(
        ids,
        ["directory", "wicd", "gone"],
        "in the order of the document"
    );
    host.pass(60_000);
    let start = |host: &SimulatedHost| host.service(wicd).map(|config| config.start);
    assert_eq!(
        (start(&host), running(&host, wicd)),
        (Some(Start::Disabled), false)
    );
    assert!(
        own(&mut host, Mode::Apply, &items)
            .items
            .iter()
            .all(|item| item.state == ItemState::Ok)
    );
    // Going back.
    assert_eq!(crate::harness::remove(&mut host).failure, None);
    assert_eq!(start(&host), Some(Start::Auto));
}

#[test]
fn adoption_disables_a_service_of_somebody_else_and_a_release_starts_it_again() {
    use dormer_profile::invocation::Mode;
    let mut host = SimulatedHost::new();
    let wicd = "windows-instance-config-daemon";
    foreign_service(&mut host, wicd, &[]);
    let change = ServiceSettings {
        start: Some(Start::Auto),
        ..ServiceSettings::default()
    };
    host.configure(wicd, &change);
    let items = serde_json::json!([
        { "id": "disabled:wicd", "change": "live", "kind": "disabled_service", "name": wicd },
        { "id": "directory", "change": "live", "kind": "directory", "path": r"C:\k" },
    ]);
    let answer = own(&mut host, Mode::Adopt, &items);
    assert_eq!(answer.failure, None);
    let changed: Vec<&str> = answer.items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!(changed, ["disabled:wicd"], "nothing else is touched");
    let is = |host: &SimulatedHost| {
        let start = host.service(wicd).map(|config| config.start);
        (start, running(host, wicd))
    };
    assert_eq!(is(&host), (Some(Start::Disabled), false));
    assert_eq!(host.paths(r"C:\k"), [""; 0]);
    // Again, as another dormer would: nothing is left to do, and the note of the first time stays.
    assert!(own(&mut host, Mode::Adopt, &items).items.is_empty());
    // The whole document keeps it so; a release restores it, and leaves what dormer made.
    assert_converged(&own(&mut host, Mode::Apply, &items));
    assert_eq!(is(&host), (Some(Start::Disabled), false));
    let released = crate::harness::ask(&mut host, crate::harness::call(Mode::Release, 2), None);
    assert_eq!(released.failure, None);
    host.pass(60_000);
    assert_eq!(is(&host), (Some(Start::Auto), true));
    let again = crate::harness::ask(&mut host, crate::harness::call(Mode::Release, 2), None);
    assert_eq!(again.items, [], "a release of nothing changes nothing");
    assert_eq!(is(&host), (Some(Start::Auto), true));
}

#[test]
fn the_newest_certificates_and_the_one_in_use_stay() {
    use dormer_profile::invocation::Mode;
    let mut host = SimulatedHost::new();
    let path = |name: &str| format!(r"C:\k\cni\config\ovnkube-client-{name}.pem");
    for name in ["2026-01", "2026-02", "2026-03", "2026-04"] {
        host.put(&path(name), name.as_bytes());
        host.pass(1_000);
    }
    host.put(&path("current"), b"2026-01");
    host.put(r"C:\k\cni\config\cni.conf", b"");
    let items = serde_json::json!([{
        "id": "pem", "change": "live", "kind": "newest_files", "under": r"C:\k\cni\config",
        "prefix": "ovnkube-client-", "suffix": ".pem", "keep": 2, "current": "ovnkube-client-current.pem",
    }]);
    assert_converged(&own(&mut host, Mode::Apply, &items));
    let left = host.paths(r"C:\k\cni\config\");
    let wanted: Vec<String> = ["2026-01", "2026-03", "2026-04", "current"]
        .iter()
        .map(|name| path(name))
        .collect();
    assert_eq!(
        left,
        [vec![r"C:\k\cni\config\cni.conf".to_owned()], wanted].concat()
    );
}
