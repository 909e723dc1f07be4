//! Executor for Windows hosts against a simulated host, over real SSH and SFTP in memory.

mod again;
pub(crate) mod bench;
mod faults;
mod packed;
mod program;
mod secrets;

use bench::{Bench, damaged, payload};
use dormer_fleet::api::kinds;
use dormer_proto::{
    id::LeaseToken,
    machine::{ChangeClass, Guard, HostRef, Outcome, Section, Task},
};
use dormer_workers::ssh::{Limits, fingerprint};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_fresh_host_becomes_a_node_and_is_torn_down() {
    let mut bench = Bench::start(&[]).await;
    let host = bench.host();
    let Outcome::Probed {
        facts,
        host_key,
        node_name,
    } = bench.does(Task::Probe { host }).await
    else {
        panic!("another outcome");
    };
    assert_eq!(facts.os_build, "10.0.20348");
    assert!(host_key.starts_with("ssh-"), "{host_key}");
    // AWS gives its computers other names than they have themselves, and kubelets follow AWS.
    assert_eq!(node_name, "ip-10-0-0-9.ec2.internal");
    assert_ne!(node_name, facts.hostname);
    assert_eq!(
        bench.cluster.noted.lock().expect("notes").last(),
        Some(&node_name)
    );

    let task = bench.converge(Section::Host, None);
    let Outcome::Converged {
        changed, reboot, ..
    } = bench.does(task).await
    else {
        panic!("another outcome");
    };
    assert!(changed > 10 && !reboot, "{changed}");
    let there = |bench: &Bench| {
        bench.approve();
        bench
            .world
            .all(&kinds::NODE)
            .iter()
            .any(|n| n.value["metadata"]["name"] == node_name)
    };
    bench.until("a node", there).await;

    let task = bench.converge(Section::Node, Some(node_name.clone()));
    bench.does(task).await;
    bench
        .until("a Ready node", |bench| {
            bench.ready_node() == Some(node_name.clone())
        })
        .await;
    let task = bench.plan(Some(node_name.clone()), false);
    let Outcome::Planned {
        class,
        differs,
        token,
        pods,
        ..
    } = bench.does(task).await
    else {
        panic!("another outcome");
    };
    assert_eq!(
        (class, differs, token, pods),
        (None, vec![], LeaseToken(3), 2)
    );

    let counts = bench.counts();
    assert_eq!(counts.unknown_commands, 0);
    assert_eq!(counts.sftp_sessions, 1);
    assert!(
        counts.remote_commands <= 10 && counts.powershell_starts <= 6,
        "{counts:?}"
    );

    let task = Task::TearDown {
        host: bench.host(),
        generation: 1,
        guard: Guard::default(),
    };
    assert_eq!(bench.does(task).await, Outcome::TornDown);
    let task = bench.plan(None, true);
    let Outcome::Planned {
        class, generation, ..
    } = bench.does(task).await
    else {
        panic!("another outcome");
    };
    assert_eq!((class, generation), (Some(ChangeClass::Drain), 2));
}

#[tokio::test(start_paused = true)]
async fn a_feature_takes_one_reboot_that_is_asked_for() {
    let mut bench = Bench::start(&["feature-needs-reboot"]).await;
    let host = bench.host();
    bench.does(Task::Probe { host }).await;
    let task = bench.converge(Section::Host, None);
    let Outcome::Converged {
        reboot: true,
        boot_id,
        owed,
        ..
    } = bench.does(task.clone()).await
    else {
        panic!("no reboot is asked for");
    };
    assert_eq!(owed, ["feature:Containers"]);
    let reboot = Task::Reboot {
        token: None,
        host: bench.host(),
        boot_id: boot_id.clone(),
        generation: 1,
    };
    assert_eq!(bench.does(reboot.clone()).await, Outcome::RebootAsked);
    let probed = loop {
        let host = bench.host();
        if let Outcome::Probed { facts, .. } = bench.does(Task::Probe { host }).await
            && facts.boot_id != boot_id
        {
            break facts;
        }
    };
    assert_ne!(probed.boot_id, boot_id);
    // Asked twice, it reboots once.
    assert_eq!(bench.does(reboot).await, Outcome::RebootAsked);
    let Outcome::Converged { reboot: false, .. } = bench.does(task).await else {
        panic!("another reboot is asked for");
    };
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_cut_is_done_again() {
    for fault in ["upload-cut", "drop-during-script"] {
        let mut bench = Bench::start(&[fault]).await;
        let host = bench.host();
        bench.does(Task::Probe { host }).await;
        let task = bench.converge(Section::Host, None);
        let Outcome::Converged { .. } = bench.does(task).await else {
            panic!("another outcome")
        };
        // People are shown what failed beside the commands: the connection while the host boots, and the upload.
        let failed = |name: &str, part: &str| {
            let mut shown = bench.shown.iter();
            shown.any(|(called, ended)| called == name && ended.contains(part))
        };
        assert!(failed("connect", "no answer"), "{:?}", bench.shown);
        let upload = failed("upload", "broke") || failed("send the host program", "broke");
        assert_eq!(upload, fault == "upload-cut", "{:?}", bench.shown);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_not_who_was_pinned_gets_no_command() {
    let mut bench = Bench::start(&[]).await;
    let host = HostRef {
        pin: Some("ssh-ed25519 AAAA".into()),
        ..bench.host()
    };
    let failure = bench
        .once_up(Task::Probe { host })
        .await
        .expect_err("another key");
    assert_eq!(
        (failure.code.as_str(), failure.retry),
        ("HostKeyChanged", false)
    );
    let counts = bench.counts();
    assert_eq!((counts.logins, counts.remote_commands), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_pin_on_the_machine_outlives_a_lost_store_and_ends_by_a_persons_word() {
    let mut bench = Bench::start(&[]).await;
    let host = bench.host();
    let Ok(Outcome::Probed { host_key, .. }) = bench.once_up(Task::Probe { host }).await else {
        panic!("it is looked at")
    };
    let before = bench.counts();
    // The host that was there first has another key; the run of a new store knows none.
    let earlier = "ssh-ed25519 AAAA".to_owned();
    let pin = |bench: &Bench, key: Option<&str>| {
        *bench.cluster.pinned.lock().expect("a pin") = key.map(str::to_owned);
    };
    pin(&bench, Some(&earlier));
    let host = bench.host();
    let converge = bench.converge(Section::Host, None);
    for task in [Task::Probe { host }, converge] {
        let name = task.name();
        let failure = bench.once_up(task).await.expect_err("another key");
        let found = (failure.code.as_str(), failure.retry);
        assert_eq!(found, ("HostKeyChanged", false), "{name}");
    }
    // Nor does one of the two overrule the other.
    let host = HostRef {
        pin: Some(host_key.clone()),
        ..bench.host()
    };
    let failure = bench
        .once_up(Task::Probe { host })
        .await
        .expect_err("which one?");
    assert_eq!(failure.code, "HostKeyChanged");
    assert!(failure.message.contains("dormer.io/host-key"));
    let after = bench.counts();
    assert_eq!(
        (after.logins, after.remote_commands),
        (before.logins, before.remote_commands),
        "nothing was sent to it"
    );
    // A person compared the key: that one, and no other.
    let shown = fingerprint(&host_key);
    let shown = shown.split(' ').nth(1).expect("a fingerprint");
    let trusting = |bench: &Bench, fingerprint: &str| Task::Probe {
        host: HostRef {
            pin: Some(fingerprint.to_owned()),
            ..bench.host()
        },
    };
    let end = if shown.ends_with('A') { 'B' } else { 'A' };
    let other = format!("{}{end}", &shown[..shown.len() - 1]);
    let other = trusting(&bench, &other);
    let failure = bench.once_up(other).await.expect_err("another one");
    assert_eq!(failure.code, "HostKeyChanged");
    let same = trusting(&bench, shown);
    let answer = bench.once_up(same).await;
    assert!(matches!(answer, Ok(Outcome::Probed { .. })), "{answer:?}");
    let pinned = bench.cluster.pinned.lock().expect("a pin").clone();
    assert_eq!(pinned, Some(host_key), "and it is pinned");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_refused_says_so() {
    let mut bench = Bench::start(&["auth-refused"]).await;
    let task = Task::Probe { host: bench.host() };
    let failure = bench.once_up(task).await.expect_err("refused");
    assert_eq!(
        (failure.code.as_str(), failure.retry),
        ("AuthRejected", false)
    );
}

#[tokio::test(start_paused = true)]
async fn an_older_task_is_refused_by_the_host() {
    let mut bench = Bench::start(&[]).await;
    let host = bench.host();
    bench.does(Task::Probe { host }).await;
    bench.seq = 9;
    let task = bench.converge(Section::Host, None);
    bench.does(task.clone()).await;
    bench.seq = 4;
    let failure = bench.attempt(1, task).await.expect_err("stale");
    assert_eq!(
        (failure.code.as_str(), failure.retry),
        ("fence_too_old", false)
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_when_nobody_uses_it_or_its_user_was_dropped() {
    let mut bench = Bench::start(&[]).await;
    let probe = Task::Probe { host: bench.host() };
    bench.does(probe.clone()).await;
    bench.does(probe.clone()).await;
    assert_eq!(bench.counts().logins, 1, "one connection serves two tasks");

    bench.pass(Limits::default().idle * 2).await;
    bench.does(probe.clone()).await;
    assert_eq!(bench.counts().logins, 2, "an idle one was closed");

    bench.seq += 1;
    let dropped = tokio::time::timeout(Duration::from_millis(1), bench.attempt(1, probe.clone()));
    assert!(dropped.await.is_err(), "it is dropped in the middle");
    bench.does(probe).await;
    assert_eq!(
        bench.counts().logins,
        3,
        "nobody knows what would still come on that one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_was_damaged_here_never_reaches_a_host() {
    let mut bench = Bench::start_with(&[], damaged(payload())).await;
    let host = bench.host();
    bench.does(Task::Probe { host }).await;
    let task = bench.converge(Section::Host, None);
    bench.seq += 1;
    let failure = bench.attempt(1, task).await.expect_err("damaged");
    assert_eq!(
        (failure.code.as_str(), failure.retry),
        ("PayloadDamaged", true)
    );
    assert!(
        bench
            .counts()
            .executions
            .iter()
            .all(|run| run.mode == "probe")
    );
}
