//! Fences on real Machines and Nodes, by the worker's account.

use super::{
    accounts::{home, worker},
    cluster::{
        MACHINE, NODE, PATIENCE, POD, Site, WINDOWS_POOL, close, delete, evict, guarded, open,
        plane, run,
    },
    watching::settings,
};
use dormer_proto::{
    id::LeaseToken,
    machine::{FenceRefusal, Guard, MachineRef, Outcome, Task},
    message::Failure,
};
use dormer_testkit::await_condition;
use dormer_workers::kubernetes::keys;
use serde_json::{Value, json};

const OPENED: Outcome = Outcome::FenceOpened {
    was_cordoned: false,
};

fn refused(why: FenceRefusal) -> Outcome {
    Outcome::FenceRefused {
        why,
        said: String::new(),
    }
}

#[tokio::test]
async fn a_fence_opens_cordons_closes_and_never_opens_again() {
    let site = Site::new(plane!(), "fence").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    for _ in 0..2 {
        assert_eq!(
            run(&executor, open(m, 5)).await,
            Ok(OPENED),
            "the first, and a repeat"
        );
        assert_eq!(site.marks(m).await, [Some((5, true)); 2]);
        assert!(site.cordoned(m).await);
    }
    for _ in 0..2 {
        assert_eq!(run(&executor, close(m, 5)).await, Ok(Outcome::FenceClosed));
        assert_eq!(site.marks(m).await, [Some((5, false)); 2]);
        assert!(!site.cordoned(m).await);
    }
    assert_eq!(
        run(&executor, open(m, 5)).await,
        Ok(refused(FenceRefusal::Superseded))
    );
    assert_eq!(run(&executor, open(m, 6)).await, Ok(OPENED));
    assert_eq!(run(&executor, close(m, 5)).await, Ok(Outcome::FenceClosed));
    assert_eq!(
        site.marks(m).await,
        [Some((6, true)); 2],
        "an old close leaves a newer lease alone"
    );
}

#[tokio::test]
async fn a_node_that_a_person_cordoned_is_not_taken() {
    let site = Site::new(plane!(), "cordon").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    site.world
        .patch(NODE, "", &m.name, json!({"spec": {"unschedulable": true}}))
        .await;
    let outcome = run(&executor, open(m, 1)).await;
    let Ok(Outcome::FenceRefused { why, said }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(why, FenceRefusal::Cordoned);
    // The API server notes which program wrote the field, and when.
    assert!(said.contains(" (by "), "{said}");
    assert_eq!(site.marks(m).await, [None, None]);
    assert_eq!(run(&executor, close(m, 1)).await, Ok(Outcome::FenceClosed));
    assert!(site.cordoned(m).await);
}

#[tokio::test]
async fn a_machine_that_is_labelled_or_orphaned_under_its_token_is_not_deleted() {
    let site = Site::new(plane!(), "handsoff").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    site.owned(m).await;
    assert_eq!(run(&executor, open(m, 1)).await, Ok(OPENED));
    let refused = |outcome: Result<Outcome, Failure>| match outcome {
        Ok(Outcome::FenceRefused { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    let change = async |to: Value| site.world.patch(MACHINE, &m.namespace, &m.name, to).await;
    let label = |value: Value| json!({"metadata": {"labels": {keys::IGNORE: value}}});
    change(label("true".into())).await;
    assert_eq!(
        refused(run(&executor, delete(m, 1)).await),
        FenceRefusal::Ignored
    );
    change(label(Value::Null)).await;
    change(json!({"metadata": {"ownerReferences": null}})).await;
    assert_eq!(
        refused(run(&executor, delete(m, 1)).await),
        FenceRefusal::NoOwner
    );
    assert!(site.machine_now(m).await["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn a_machine_is_deleted_under_its_open_token_alone() {
    let site = Site::new(plane!(), "delete").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    site.owned(m).await;
    let closed = Ok(Outcome::FenceClosedMeanwhile);
    assert_eq!(run(&executor, delete(m, 1)).await, closed, "never opened");
    assert_eq!(run(&executor, open(m, 1)).await, Ok(OPENED));
    assert_eq!(run(&executor, delete(m, 2)).await, closed, "another token");
    assert_eq!(run(&executor, close(m, 1)).await, Ok(Outcome::FenceClosed));
    assert_eq!(run(&executor, delete(m, 1)).await, closed);
    assert_eq!(run(&executor, open(m, 2)).await, Ok(OPENED));
    let deleted = Ok(Outcome::MachineDeleted);
    for what in ["it goes", "a repeat"] {
        assert_eq!(run(&executor, delete(m, 2)).await, deleted, "{what}");
    }
    assert!(site.machine_now(m).await["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(
        run(&executor, close(m, 2)).await,
        deleted,
        "the slot waits for its replacement"
    );
    let free = json!({"metadata": {"finalizers": null}});
    site.world.patch(MACHINE, &m.namespace, &m.name, free).await;
    assert!(site.machine_now(m).await.is_null());
    assert_eq!(run(&executor, delete(m, 2)).await, deleted);
    assert_eq!(
        run(&executor, open(m, 2)).await,
        Ok(refused(FenceRefusal::Gone))
    );
}

#[tokio::test]
async fn another_machine_of_that_name_is_left_alone() {
    let site = Site::new(plane!(), "namesake").await;
    let executor = worker(&site).await;
    let m = site.joined("win-1").await;
    let uid = "00000000-0000-0000-0000-000000000000".to_owned();
    let old = MachineRef { uid, ..m.clone() };
    assert_eq!(
        run(&executor, open(&old, 1)).await,
        Ok(refused(FenceRefusal::Gone))
    );
    assert_eq!(
        run(&executor, delete(&old, 1)).await,
        Ok(Outcome::MachineDeleted)
    );
    assert_eq!(site.marks(&m).await, [None, None]);
    assert!(site.machine_now(&m).await["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn a_node_is_marked_and_one_that_is_gone_is_named() {
    let site = Site::new(plane!(), "mark").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    let mark = |node: &str| Task::MarkNode {
        machine: m.clone(),
        node: node.into(),
        version: "v1".into(),
        pin: Some("ssh-ed25519 AAAA".into()),
        expect: None,
    };
    assert_eq!(run(&executor, mark(&m.name)).await, Ok(Outcome::NodeMarked));
    let annotations = &site.node_now(m).await["metadata"]["annotations"];
    assert_eq!(annotations[dormer_workers::kubernetes::keys::VERSION], "v1");
    let failure = run(&executor, mark("mark-none"))
        .await
        .expect_err("there is no such Node");
    assert!(failure.retry && failure.code == "NodeGone", "{failure:?}");
}

#[tokio::test]
async fn a_fence_without_a_node_is_kept_on_the_machine() {
    let site = Site::new(plane!(), "alone").await;
    let executor = worker(&site).await;
    let m = &site.machine("win-1").await;
    let token = LeaseToken(1);
    let task = Task::OpenFence {
        machine: m.clone(),
        node: None,
        token,
        over_limit: false,
        cordon: true,
        guard: Guard::default(),
    };
    assert_eq!(run(&executor, task).await, Ok(OPENED));
    assert_eq!(site.marks(m).await, [Some((1, true)), None]);
    assert_eq!(
        run(&executor, open(m, 2)).await,
        Ok(OPENED),
        "a Node that is gone needs no fence"
    );
}

/// Reason of the refusal, with its text.
fn why(outcome: Result<Outcome, Failure>) -> (FenceRefusal, String) {
    match outcome {
        Ok(Outcome::FenceRefused { why, said }) => (why, said),
        other => panic!("not refused: {other:?}"),
    }
}

/// Nodes that are not this Machine's own Windows node: a host may claim any name, and a `nodeRef` may be stale.
#[tokio::test]
async fn a_node_that_is_no_windows_node_of_this_machine_is_left_alone() {
    let site = Site::new(plane!(), "foreign").await;
    let executor = worker(&site).await;
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let master = "node-role.kubernetes.io/control-plane";
    let table = [
        (
            "linux",
            labels(json!({"kubernetes.io/os": "linux"})),
            FenceRefusal::NotWindows,
            ("NodeNotWindows", false),
            "the Node foreign-linux is no Windows node: its label kubernetes.io/os says linux",
        ),
        (
            "master-0",
            labels(json!({master: ""})),
            FenceRefusal::ControlPlane,
            ("NodeIsControlPlane", false),
            "the Node foreign-master-0 is one of the control plane: it has the label \
             node-role.kubernetes.io/control-plane",
        ),
        (
            "other",
            Value::Null,
            FenceRefusal::NotItsNode,
            ("NotItsNode", true),
            "the Node foreign-other is not that of Machine foreign-other: its nodeRef has the UID ",
        ),
    ];
    for (short, change, refusal, (code, retry), says) in table {
        let m = &site.joined(short).await;
        let sound = &site.joined(&format!("sound-{short}")).await;
        assert_eq!(run(&executor, open(sound, 1)).await, Ok(OPENED));
        site.pod(sound, short, json!({})).await;
        for machine in [m, sound] {
            if change.is_null() {
                // Its Node was deleted, and another Node has the name now.
                site.world.delete(NODE, "", &machine.name).await;
                site.node(&machine.name).await;
            } else {
                site.world
                    .patch(NODE, "", &machine.name, change.clone())
                    .await;
            }
        }
        let (found, said) = why(run(&executor, open(m, 1)).await);
        assert_eq!(found, refusal);
        assert!(said.starts_with(says), "{said}");
        assert_eq!(site.marks(m).await, [None, None], "{short}");
        assert!(!site.cordoned(m).await);
        let mark = Task::MarkNode {
            machine: m.clone(),
            node: m.name.clone(),
            version: "v1".into(),
            pin: None,
            expect: None,
        };
        let failure = run(&executor, mark).await.expect_err("it is not marked");
        assert_eq!((failure.code.as_str(), failure.retry), (code, retry));
        assert!(failure.message.starts_with(says), "{failure:?}");
        let node = site.node_now(m).await;
        assert!(node["metadata"]["annotations"].is_null(), "{node}");
        // It became so under an open fence.
        let (found, _) = why(run(&executor, delete(sound, 1)).await);
        assert_eq!(found, refusal);
        assert!(site.machine_now(sound).await["metadata"]["deletionTimestamp"].is_null());
        if change.is_null() {
            // The new Node has no mark: its pods are not moved.
            let outcome = run(&executor, evict(sound, 1, true)).await;
            assert_eq!(outcome, Ok(Outcome::FenceClosedMeanwhile));
        } else {
            for force in [false, true] {
                let (found, _) = why(run(&executor, evict(sound, 1, force)).await);
                assert_eq!(found, refusal);
            }
        }
        assert!(site.world.get(POD, site.name, short).await.is_some());
    }
}

#[tokio::test]
async fn a_name_without_a_uid_needs_the_provider_id_too() {
    let site = Site::new(plane!(), "capi").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    let node_ref = json!({"kind": "Node", "name": m.name, "uid": null});
    site.world
        .status(MACHINE, &m.namespace, &m.name, json!({"nodeRef": node_ref}))
        .await;
    let id = |id: &str| json!({"spec": {"providerID": id}});
    site.world
        .patch(
            MACHINE,
            &m.namespace,
            &m.name,
            id("azure:///Subscriptions/s/vm-1"),
        )
        .await;
    let (found, said) = why(run(&executor, open(m, 1)).await);
    assert_eq!(found, FenceRefusal::NotItsNode);
    assert!(said.contains("azure:///Subscriptions/s/vm-1"), "{said}");
    site.world
        .patch(NODE, "", &m.name, id("azure:///subscriptions/s/vm-1"))
        .await;
    assert_eq!(
        run(&executor, open(m, 1)).await,
        Ok(OPENED),
        "as Azure writes it"
    );
}

/// Both times are the API server's: the condition's, and the one of its answer.
#[tokio::test]
async fn over_the_limit_only_a_node_that_is_down_for_long_and_stays_so_is_taken() {
    let site = Site::new(plane!(), "repair").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    site.pod(m, "stays", json!({})).await;
    let over = |task: Task| {
        let guard = Guard {
            down_ms: Some(600_000),
            ..Guard::default()
        };
        run(&executor, guarded(task, guard))
    };
    let (found, said) = why(over(open(m, 1)).await);
    assert_eq!(found, FenceRefusal::NodeServes);
    assert_eq!(
        said,
        "the lease is over the limit, and the Node repair-win-1 is Ready"
    );
    site.node_says_ready(m, "Unknown", 540).await;
    let failure = over(open(m, 1)).await.expect_err("nine minutes");
    assert!(
        failure.retry && failure.code == "NodeDownTooShort",
        "{failure:?}"
    );
    let wait = failure.after_ms.expect("a time");
    assert!((1..=61_000).contains(&wait), "{wait}");
    assert_eq!(site.marks(m).await, [None, None]);
    site.node_says_ready(m, "Unknown", 602).await;
    assert_eq!(over(open(m, 1)).await, Ok(OPENED));
    site.node_says_ready(m, "True", 0).await;
    for task in [
        evict(m, 1, false),
        evict(m, 1, true),
        delete(m, 1),
        open(m, 1),
    ] {
        let name = task.name();
        let (found, _) = why(over(task).await);
        assert_eq!(found, FenceRefusal::NodeServes, "{name}");
    }
    assert!(site.machine_now(m).await["metadata"]["deletionTimestamp"].is_null());
    assert!(site.world.get(POD, site.name, "stays").await.is_some());
    assert_eq!(run(&executor, close(m, 1)).await, Ok(Outcome::FenceClosed));
    assert!(!site.cordoned(m).await);
}

#[tokio::test]
async fn nothing_is_taken_while_the_pool_is_stopped_absent_or_unreadable() {
    let site = Site::new(plane!(), "stopped").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    let new = &site.joined("win-2").await;
    site.pod(m, "stays", json!({})).await;
    assert_eq!(run(&executor, open(m, 1)).await, Ok(OPENED));
    let all = || {
        [
            open(new, 1),
            open(m, 1),
            evict(m, 1, false),
            evict(m, 1, true),
            delete(m, 1),
        ]
    };
    settings(&site, json!({"stop": true})).await;
    for task in all() {
        let (found, said) = why(run(&executor, task).await);
        assert_eq!(found, FenceRefusal::Stopped);
        assert_eq!(
            said,
            "a person stopped it: WindowsPool stopped-home/windows has spec.stop"
        );
    }
    site.world
        .delete(WINDOWS_POOL, &home(&site), "windows")
        .await;
    for task in all() {
        let (found, said) = why(run(&executor, task).await);
        assert_eq!(found, FenceRefusal::Stopped);
        assert_eq!(said, "there is no WindowsPool stopped-home/windows");
    }
    settings(&site, json!({})).await;
    // Without the right to read it, nothing is known: the task is retried, and disturbs nothing meanwhile.
    let role = ("rbac.authorization.k8s.io", "v1", "Role");
    let name = "stopped-dormer-worker-pool";
    let none = json!({"rules": []});
    site.world.patch(role, &home(&site), name, none).await;
    await_condition("the right is gone", PATIENCE, || async {
        let outcome = run(&executor, open(m, 1)).await;
        outcome.is_err_and(|failure| failure.code == "Forbidden")
    })
    .await;
    for task in all() {
        let failure = run(&executor, task).await.expect_err("it cannot be read");
        assert!(failure.retry && failure.code == "Forbidden", "{failure:?}");
        assert!(failure.message.contains("WindowsPool"), "{failure:?}");
    }
    assert_eq!(site.marks(new).await, [None, None]);
    assert!(site.machine_now(m).await["metadata"]["deletionTimestamp"].is_null());
    assert!(site.world.get(POD, site.name, "stays").await.is_some());
    // What gives back is not held up.
    assert_eq!(run(&executor, close(m, 1)).await, Ok(Outcome::FenceClosed));
    assert!(!site.cordoned(m).await);
}

#[tokio::test]
async fn a_cordon_that_its_maker_lifts_in_mid_drain_is_not_restored() {
    let site = Site::new(plane!(), "lifted").await;
    let executor = worker(&site).await;
    let m = &site.joined("win-1").await;
    let cordon = |cordon: Value| {
        let change = json!({"spec": {"unschedulable": cordon}});
        site.world.patch(NODE, "", &m.name, change)
    };
    cordon(json!(true)).await;
    let found = |was_cordoned| Ok(Outcome::FenceOpened { was_cordoned });
    // A person asks for this machine, cordoned or not.
    let asked = || {
        let mut task = open(m, 1);
        if let Task::OpenFence { guard, .. } = &mut task {
            guard.asked = true;
        }
        task
    };
    assert_eq!(run(&executor, asked()).await, found(true));
    cordon(Value::Null).await;
    assert_eq!(run(&executor, asked()).await, found(false));
    assert!(site.cordoned(m).await, "the drain goes on");
    assert_eq!(run(&executor, close(m, 1)).await, Ok(Outcome::FenceClosed));
    assert!(!site.cordoned(m).await);
}
