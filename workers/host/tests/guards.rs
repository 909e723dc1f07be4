//! Guards before a call's first change: our folders, the lock, the boot, the fence, what the script left.

use dormer_host::arguments::Mode;
use dormer_host_sim::SimulatedHost;
use dormer_profile::{
    answer::{FailureCode, LastCall, Reboot},
    document::{Document, Fence},
    invocation::Mode as Asked,
};

use crate::harness::{
    apply, ask, assert_converged, call, code, file, foreign_service, node, of, service, staged,
};

const LOCK: &str = r"C:\Windows\dormer\state\lock";

#[test]
fn a_probe_of_a_new_host_changes_nothing() {
    let mut host = SimulatedHost::new();
    let before = host.snapshot();
    let answer = ask(&mut host, call(Asked::Probe, 1), None);
    assert_eq!(answer.failure, None);
    assert_eq!(host.snapshot(), before);
    let facts = answer.facts;
    assert_eq!(facts.os_build, "10.0.20348");
    assert_eq!(facts.product, "Microsoft Windows Server 2022 Datacenter");
    assert_eq!(facts.hostname, "WIN-FRESH");
    assert_eq!(facts.boot_id, "7");
    assert_eq!(facts.node_ip.as_deref(), Some("10.0.0.11"));
    assert_eq!(facts.fence, None);
    assert!(!facts.reboot_pending);
}

#[test]
fn docker_on_a_host_is_named() {
    let mut host = SimulatedHost::new();
    assert!(!ask(&mut host, call(Asked::Probe, 1), None).facts.docker);
    foreign_service(&mut host, "docker", &[]);
    assert!(ask(&mut host, call(Asked::Probe, 2), None).facts.docker);
}

#[test]
fn a_call_may_be_driven_by_any_thread() {
    fn sent<T: Send>(it: T) -> T {
        it
    }
    let mut host = SimulatedHost::new();
    let asked = sent(dormer_host::run(call(Asked::Probe, 1), Ok(None), &mut host));
    assert_eq!(dormer_host::block_on(asked).failure, None);
}

#[test]
fn one_call_works_on_a_host_and_another_learns_which() {
    let mut host = SimulatedHost::new();
    assert_converged(&apply(&mut host, &node("v1")));
    host.lock_by_another(LOCK);
    host.pass(60_000);
    let failure = apply(&mut host, &node("v1")).failure.expect("a failure");
    assert_eq!((failure.code, failure.retry), (FailureCode::HostBusy, true));
    assert!(
        failure.message.contains("machine/1@1.0 works on this host"),
        "{}",
        failure.message
    );
    assert!(failure.message.contains("for 7"), "{}", failure.message);
    // It ended, and its lock with it.
    host.reboot();
    assert_eq!(apply(&mut host, &node("v1")).failure, None);
}

#[test]
fn an_older_task_changes_nothing_any_more() {
    let mut host = SimulatedHost::new();
    let newer = ask(&mut host, call(Asked::Adopt, 9), None);
    assert_eq!(newer.failure, None);
    let before = host.snapshot();
    let answer = ask(&mut host, call(Asked::Apply, 8), Some(&node("v1")));
    assert_eq!(code(&answer), Some(FailureCode::FenceTooOld));
    assert_eq!(
        answer.facts.fence,
        Some(Fence {
            generation: 1,
            seq: 9
        })
    );
    let state = |line: &String| line.contains(r"C:\Windows\dormer\state");
    let left = |all: Vec<String>| {
        all.into_iter()
            .filter(|line| !state(line))
            .collect::<Vec<_>>()
    };
    assert_eq!(left(host.snapshot()), left(before));
    // An equal one is a repeat; a plan changes nothing and needs none.
    assert_eq!(ask(&mut host, call(Asked::Adopt, 9), None).failure, None);
    assert_eq!(
        ask(&mut host, call(Asked::Plan, 1), Some(&node("v1"))).failure,
        None
    );
}

#[test]
fn what_the_script_left_is_taken_over_and_its_documents_go() {
    let mut host = SimulatedHost::new();
    host.put(
        r"C:\ProgramData\dormer\fence.json",
        b"\xef\xbb\xbf{\"generation\":4,\"seq\":20}",
    );
    let installed = br#"[{"section":"node","version":"old","task":"machine/1@3.0"}]"#;
    host.put(r"C:\ProgramData\dormer\installed.json", installed);
    host.put(
        r"C:\ProgramData\dormer\documents\host-ab.json",
        b"token: s3cret",
    );
    let probed = ask(&mut host, call(Asked::Probe, 1), None).facts;
    assert_eq!(
        probed.fence,
        Some(Fence {
            generation: 4,
            seq: 20
        })
    );
    // The larger fence holds.
    assert_eq!(
        code(&apply(&mut host, &node("v1"))),
        Some(FailureCode::FenceTooOld)
    );
    assert!(host.has_folder(r"C:\ProgramData\dormer"));
    let mut newer = call(Asked::Apply, 21);
    newer.fence.generation = 4;
    let answer = ask(&mut host, newer, Some(&node("v1")));
    assert_converged(&answer);
    assert!(!host.has_folder(r"C:\ProgramData\dormer"));
    let versions: Vec<&str> = answer
        .facts
        .installed
        .iter()
        .map(|one| one.version.as_str())
        .collect();
    assert_eq!(versions, ["old", "v1"]);
    assert_eq!(
        answer.facts.fence,
        Some(Fence {
            generation: 4,
            seq: 21
        })
    );
}

#[test]
fn a_call_for_another_boot_does_nothing() {
    let mut host = SimulatedHost::new();
    let mut asked = call(Asked::Reboot, 1);
    asked.boot = Some("6".into());
    let answer = ask(&mut host, asked.clone(), None);
    assert_eq!(code(&answer), Some(FailureCode::BootChanged));
    assert!(!host.reboot_was_asked());
    asked.boot = Some("7".into());
    let answer = ask(&mut host, asked.clone(), None);
    assert_eq!((answer.failure, answer.reboot), (None, Reboot::Pending));
    // 1190: one was asked for already.
    let answer = ask(&mut host, asked, None);
    assert_eq!((answer.failure, answer.reboot), (None, Reboot::Pending));
    host.reboot();
    assert_eq!(
        ask(&mut host, call(Asked::Probe, 1), None).facts.boot_id,
        "8"
    );
}

#[test]
fn a_host_that_goes_down_is_asked_again_later() {
    let mut host = SimulatedHost::new();
    assert_converged(&apply(&mut host, &node("v1")));
    host.begin_shutdown();
    let answer = apply(&mut host, &node("v1"));
    let failure = answer.failure.expect("a failure");
    assert_eq!(
        (failure.code, failure.retry),
        (FailureCode::RebootPending, true)
    );
    assert_eq!(answer.reboot, Reboot::Pending);
}

#[test]
fn the_next_call_knows_how_the_last_one_ended() {
    let mut host = SimulatedHost::new();
    assert_converged(&apply(&mut host, &of(vec![file(r"C:\k\x", "x")])));
    let last = ask(&mut host, call(Asked::Probe, 2), None).facts.last;
    let wanted = LastCall {
        task: "machine/1@1.0".into(),
        attempt: 1,
        mode: Asked::Apply,
        ok: true,
    };
    assert_eq!(last, Some(wanted));
}

/// A token or a certificate is renewed while other changes wait: those of the same section, too.
#[test]
fn a_renewal_changes_its_items_and_leaves_everything_else() {
    let mut host = SimulatedHost::new();
    let token = r"C:\k\token";
    let both = of(vec![file(token, "old"), file(r"C:\k\x", "x")]);
    assert_converged(&apply(&mut host, &both));
    let newer = Document {
        version: "v2".into(),
        ..of(vec![file(token, "new")])
    };
    let answer = ask(&mut host, call(Asked::Renew, 2), Some(&newer));
    assert_converged(&answer);
    let changed: Vec<&str> = answer.items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!(changed, [r"file:C:\k\token"]);
    assert_eq!(host.file(token).as_deref(), Some(b"new".as_slice()));
    let other = host.file(r"C:\k\x");
    assert_eq!(other.as_deref(), Some(b"x".as_slice()), "it is not removed");
    let facts = ask(&mut host, call(Asked::Probe, 3), None).facts;
    let installed = facts.installed.iter().map(|it| it.version.as_str());
    let installed: Vec<&str> = installed.collect();
    assert_eq!(installed, ["v1"], "nor is v2 installed");
    // A later version removes both, as before.
    assert_eq!(ask(&mut host, call(Asked::Remove, 4), None).failure, None);
    assert_eq!(host.paths(r"C:\k\"), [""; 0]);

    let before = host.paths(r"C:\k\");
    let staged = of(vec![staged(r"C:\k\kubelet.exe", b"MZ")]);
    for document in [of(vec![service("kubelet", "kubelet.exe", &[])]), staged] {
        let answer = ask(&mut host, call(Asked::Renew, 5), Some(&document));
        assert_eq!(code(&answer), Some(FailureCode::DocumentRejected));
    }
    assert_eq!(host.paths(r"C:\k\"), before);
    let late = ask(&mut host, call(Asked::Renew, 1), Some(&newer));
    assert_eq!(code(&late), Some(FailureCode::FenceTooOld));
}

#[test]
fn what_came_on_stdin_and_is_no_document_of_ours_changes_nothing() {
    let mut host = SimulatedHost::new();
    let before = host.snapshot();
    let bad = [
        Err("the document ends after 5 of 12 bytes".to_owned()),
        Ok(Some(b"{}".to_vec())),
        Ok(Some(
            br#"{"schema":9,"section":"host","version":"v","items":[]}"#.to_vec(),
        )),
    ];
    for document in bad {
        let run = dormer_host::run(call(Asked::Apply, 1), document, &mut host);
        let answer = dormer_host_sim::until_cut(run).expect("an answer");
        assert_eq!(code(&answer), Some(FailureCode::DocumentRejected));
        assert_eq!(host.snapshot(), before);
    }
    assert_eq!(call(Asked::Plan, 1).mode, Mode::Asked(Asked::Plan));
}

#[test]
fn programs_and_uploads_that_nobody_uses_go() {
    let mut host = SimulatedHost::new();
    let program = |digits: &str| {
        format!(
            r"C:\Windows\dormer\bin\dormer-host-{}.exe",
            digits.repeat(8)
        )
    };
    let bin = |host: &SimulatedHost| host.paths(r"C:\Windows\dormer\bin\");
    for digits in ["11", "22", "33", "44", "ab"] {
        host.put(&program(digits), b"MZ");
    }
    host.pass(25 * 3_600 * 1_000);
    // It was uploaded for a call that is about to begin.
    host.put(&program("55"), b"MZ");
    let part = |name: &str| format!(r"C:\Windows\dormer\staging\{name}.part");
    for name in ["x.0-0-9", "x.1-0-1", "x.1-0-2", "x.2-0-1"] {
        host.put(&part(name), b"half");
    }
    let used =
        br#"{"programs":["dormer-host-2222222222222222.exe","dormer-host-3333333333333333.exe"]}"#;
    host.put(r"C:\Windows\dormer\state\programs.json", used);
    assert_converged(&apply(&mut host, &of(vec![file(r"C:\k\x", "x")])));
    assert_eq!(
        bin(&host),
        [program("22"), program("33"), program("55"), program("ab")]
    );
    let left = host.paths(r"C:\Windows\dormer\staging\");
    assert_eq!(left, [part("x.1-0-2"), part("x.2-0-1")]);
}

#[test]
fn no_secret_is_in_an_answer_or_in_what_we_remember() {
    let mut host = SimulatedHost::new();
    let answer = apply(&mut host, &node("v1"));
    let said = serde_json::to_string(&answer).expect("an answer");
    let encoded = "dG9rZW46IHMzY3JldA";
    assert!(!said.contains("s3cret") && !said.contains(encoded));
    for path in host.paths(r"C:\Windows\dormer\") {
        let text = String::from_utf8_lossy(&host.file(&path).unwrap_or_default()).into_owned();
        assert!(
            !text.contains("s3cret") && !text.contains(encoded),
            "{path}"
        );
    }
}
