//! What is right is left alone, and what has drifted is named: the second converge, and `plan`.

use std::time::Duration;

use crate::host::bench::Bench;
use dormer_fleet::{api::kinds, host::HostCounts};
use dormer_proto::machine::{ChangeClass, Guard, Outcome, Section, Task};

impl Bench {
    /// Both sections converged; the name of the node.
    async fn joined(&mut self) -> String {
        let host = self.host();
        let Outcome::Probed { node_name, .. } = self.does(Task::Probe { host }).await else {
            panic!("another outcome");
        };
        let task = self.converge(Section::Host, None);
        self.does(task).await;
        let there = |bench: &Bench| {
            bench.approve();
            bench
                .world
                .all(&kinds::NODE)
                .iter()
                .any(|n| n.value["metadata"]["name"] == node_name)
        };
        self.until("a node", there).await;
        let task = self.converge(Section::Node, Some(node_name.clone()));
        self.does(task).await;
        self.until("a Ready node", |bench| bench.ready_node().is_some())
            .await;
        node_name
    }

    /// What a plan finds: the class, and the items without their details.
    async fn found(&mut self, task: Task) -> (Option<ChangeClass>, Vec<String>) {
        let Outcome::Planned { class, differs, .. } = self.does(task).await else {
            panic!("another outcome");
        };
        let id = |text: String| text.split(" (").next().unwrap_or_default().to_owned();
        (class, differs.into_iter().map(id).collect())
    }
}

/// Most that a plan without changes sends and is answered, for both sections together.
const KIBIBYTES_SENT_MAX: u64 = 64;
const KIBIBYTES_ANSWERED_MAX: u64 = 32;

/// What was done between two counts: commands, bytes sent, SFTP sessions, items changed.
fn done(before: &HostCounts, after: &HostCounts) -> (u64, u64, u64, usize) {
    let changed = after.executions[before.executions.len()..]
        .iter()
        .map(|run| run.changed.len());
    (
        after.remote_commands - before.remote_commands,
        after.bytes_uploaded - before.bytes_uploaded,
        after.sftp_sessions - before.sftp_sessions,
        changed.sum(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_second_converge_of_what_is_right_is_one_command_and_changes_and_sends_nothing() {
    let mut bench = Bench::start(&[]).await;
    let node = bench.joined().await;
    let counts = bench.counts();
    assert!(
        counts.bytes_uploaded > 1_000_000,
        "the payload was sent: {counts:?}"
    );
    for (section, node) in [(Section::Host, None), (Section::Node, Some(node.clone()))] {
        let before = bench.counts();
        let task = bench.converge(section, node);
        let Outcome::Converged {
            changed, reboot, ..
        } = bench.does(task).await
        else {
            panic!("another outcome");
        };
        assert_eq!((changed, reboot), (0, false), "{section:?}");
        assert_eq!(done(&before, &bench.counts()), (1, 0, 0, 0), "{section:?}");
    }
    let before = bench.counts();
    let began = tokio::time::Instant::now();
    let task = bench.plan(Some(node), false);
    assert_eq!(bench.found(task).await, (None, vec![]));
    let took = began.elapsed();
    let after = bench.counts();
    assert_eq!(done(&before, &after), (2, 0, 0, 0), "one command a section");
    let sent = after.bytes_of_documents - before.bytes_of_documents;
    let answered = after.bytes_of_answers - before.bytes_of_answers;
    // docs/benchmarks.md, A fleet.
    println!("a plan without changes: {sent} bytes sent, {answered} answered, {took:?}");
    assert!((1..=KIBIBYTES_SENT_MAX << 10).contains(&sent), "{sent}");
    let most = KIBIBYTES_ANSWERED_MAX << 10;
    assert!((1..=most).contains(&answered), "{answered}");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_on_a_host_that_drifted_names_exactly_what_drifted() {
    let mut bench = Bench::start(&[]).await;
    let node = bench.joined().await;
    {
        let host = bench
            .world
            .hosts
            .as_ref()
            .expect("hosts")
            .all()
            .pop()
            .expect("a host");
        let mut state = host.state();
        state
            .firewall
            .remove("dormer-kubelet")
            .expect("it was there");
        state.exclusions.clear();
        let kubelet = state.scm.get_mut("kubelet").expect("a service");
        kubelet.config.command.push_str(" --v=9");
        state
            .disk
            .put(r"C:\k\kubelet.conf", b"{}")
            .expect("written");
    }
    let before = bench.counts();
    let task = bench.plan(Some(node.clone()), false);
    let (class, differs) = bench.found(task).await;
    assert_eq!(class, Some(ChangeClass::Restart), "the highest of them");
    let wanted = [
        "firewall:dormer-kubelet",
        "defender:",
        r"file:C:\k\kubelet.conf",
        "service:kubelet",
    ];
    assert_eq!(differs.len(), wanted.len(), "{differs:?}");
    let pairs = differs.iter().zip(wanted);
    assert!(
        pairs.into_iter().all(|(id, wanted)| id.starts_with(wanted)),
        "{differs:?}"
    );
    assert_eq!(
        done(&before, &bench.counts()),
        (2, 0, 0, 0),
        "a plan changes nothing"
    );

    // Converged again, exactly those are changed, and nothing is left.
    let task = bench.converge(Section::Host, None);
    let before = bench.counts();
    bench.does(task).await;
    let counts = bench.counts();
    let runs = counts.executions[before.executions.len()..].iter();
    let changed: Vec<&String> = runs.flat_map(|run| &run.changed).collect();
    assert!(
        differs.iter().all(|id| changed.contains(&id)),
        "{changed:?}"
    );
    // What depends on the kubelet was stopped with it: the other section starts it again.
    let task = bench.converge(Section::Node, Some(node.clone()));
    bench.does(task).await;
    let task = bench.plan(Some(node), false);
    assert_eq!(bench.found(task).await, (None, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_given_no_token_and_what_it_has_of_one_is_no_difference() {
    let mut bench = Bench::start(&[]).await;
    bench.cluster.own_token();
    let node = bench.joined().await;
    let kubeconfig = |bench: &Bench| {
        let host = bench
            .world
            .hosts
            .as_ref()
            .expect("hosts")
            .all()
            .pop()
            .expect("a host");
        let state = host.state();
        let file = state
            .disk
            .read_text_path(r"C:\k\bootstrap-kubeconfig")
            .ok()?;
        Some(String::from_utf8_lossy(file.bytes().expect("in memory")).into_owned())
    };
    let asked = |bench: &Bench| {
        bench
            .cluster
            .change_own(|own| own.as_ref().expect("one").asked)
    };
    assert_eq!(
        asked(&bench),
        1,
        "when the host was configured, and then no more"
    );
    let first = kubeconfig(&bench).expect("it is there");

    // The present token is not needed.
    bench.cluster.change_own(|own| {
        let own = own.as_mut().expect("one");
        (own.text, own.joined) = ("t0ken2.0123456789abcdef".into(), true);
    });
    let task = bench.plan(Some(node.clone()), false);
    assert_eq!(bench.found(task).await, (None, vec![]));
    let before = bench.counts();
    let task = bench.converge(Section::Host, Some(node.clone()));
    bench.does(task).await;
    assert_eq!(done(&before, &bench.counts()), (1, 0, 0, 0));
    assert_eq!(
        (asked(&bench), kubeconfig(&bench).as_ref()),
        (1, Some(&first))
    );

    // It is configured anew: it is given the one that it has now, and a plan asks for none.
    bench
        .cluster
        .change_own(|own| own.as_mut().expect("one").joined = false);
    let task = bench.plan(Some(node.clone()), false);
    assert_eq!(bench.found(task).await, (None, vec![]));
    let before = bench.counts();
    let task = bench.converge(Section::Host, Some(node));
    bench.does(task).await;
    let counts = bench.counts();
    let runs = counts.executions[before.executions.len()..].iter();
    let changed: Vec<&String> = runs.flat_map(|run| &run.changed).collect();
    assert_eq!(changed, [r"file:C:\k\bootstrap-kubeconfig"]);
    assert_eq!(asked(&bench), 2);
    assert!(
        kubeconfig(&bench)
            .expect("it is there")
            .contains("t0ken2.0123456789abcdef")
    );

    // A removal names the file, and needs no token for it.
    let task = Task::TearDown {
        host: bench.host(),
        generation: 1,
        guard: Guard::default(),
    };
    assert_eq!(bench.does(task).await, Outcome::TornDown);
    assert_eq!((asked(&bench), kubeconfig(&bench)), (2, None));
}

#[tokio::test(start_paused = true)]
async fn a_cloud_node_manager_has_its_own_token_and_another_before_that_ends() {
    let mut bench = Bench::start(&[]).await;
    bench.platform = "Azure";
    let node = bench.joined().await;
    let text = |bench: &Bench, path: &str| {
        let host = bench.simulated();
        let state = host.state();
        let file = state.disk.read_text_path(path).ok()?;
        Some(String::from_utf8_lossy(file.bytes().expect("in memory")).into_owned())
    };
    let path = r"C:\k\cloud-node-manager-token";
    let given = |bench: &Bench| bench.cluster.cloud.lock().expect("tokens").given;
    let token = |bench: &Bench| Some(format!("cloud-t0ken-{}-of-{node}", given(bench)));
    // Each attempt gave one: while the host waited for its network there were some.
    let first = given(&bench);
    assert!(first > 0, "none was given");
    assert_eq!(text(&bench, path), token(&bench));
    let kubeconfig = text(&bench, r"C:\k\cloud-node-manager-kubeconfig").expect("it is there");
    assert!(
        kubeconfig.contains("cloud-node-manager-token") && !kubeconfig.contains("t0ken"),
        "{kubeconfig}"
    );

    // One that lasts is no difference, and a plan asks for none.
    let task = bench.plan(Some(node.clone()), false);
    assert_eq!(bench.found(task).await, (None, vec![]));
    bench.cluster.cloud.lock().expect("tokens").lasts = false;
    let task = bench.plan(Some(node.clone()), false);
    let due = vec![format!("file:{path}")];
    assert_eq!(bench.found(task).await, (Some(ChangeClass::Live), due));
    assert_eq!(given(&bench), first, "a plan gives none");
    let task = bench.plan(Some(node.clone()), false);
    let found = bench.does(task).await;
    assert!(
        matches!(
            found,
            Outcome::Planned {
                certificates: true,
                ..
            }
        ),
        "it does not wait for the end of a pause: {found:?}"
    );

    // A host that never got its new token still needs one.
    let Task::Converge {
        host,
        section,
        desired,
        node_name,
        ..
    } = bench.converge(Section::Node, Some(node.clone()))
    else {
        panic!("a converge")
    };
    let stale = Task::Converge {
        host,
        section,
        desired,
        node_name,
        generation: 0,
    };
    assert!(
        bench.attempt(1, stale).await.is_err(),
        "its host refuses it"
    );
    let task = bench.plan(Some(node.clone()), false);
    let due = vec![format!("file:{path}")];
    assert_eq!(bench.found(task).await, (Some(ChangeClass::Live), due));

    let task = bench.converge(Section::Node, Some(node.clone()));
    let before = bench.counts();
    bench.does(task).await;
    let counts = bench.counts();
    let runs = counts.executions[before.executions.len()..].iter();
    let changed: Vec<&String> = runs.flat_map(|run| &run.changed).collect();
    assert_eq!(changed, [&format!("file:{path}")], "nothing restarts");
    assert!(given(&bench) > first + 1);
    assert_eq!(text(&bench, path), token(&bench));
    let task = bench.plan(Some(node.clone()), false);
    assert_eq!(bench.found(task).await, (None, vec![]));
}

/// Other differences may wait for a lease, or for the end of a pause.
#[tokio::test(start_paused = true)]
async fn a_comparison_renews_a_token_that_is_due_and_changes_nothing_else() {
    let mut bench = Bench::start(&[]).await;
    bench.platform = "Azure";
    let node = bench.joined().await;
    let text = |bench: &Bench, path: &str| {
        let host = bench.simulated();
        let state = host.state();
        let file = state.disk.read_text_path(path).ok()?;
        Some(String::from_utf8_lossy(file.bytes().expect("in memory")).into_owned())
    };
    let token = r"C:\k\cloud-node-manager-token";
    let firewall = "dormer-kubelet";
    let ca = r"C:\k\cloud-node-manager-ca.crt";
    {
        let host = bench.simulated();
        let mut state = host.state();
        // A live difference in the other section, and one that restarts a service in the same.
        state.firewall.remove(firewall).expect("it was there");
        state.disk.put(ca, b"old").expect("written");
    }
    bench.cluster.cloud.lock().expect("tokens").lasts = false;
    let before = (bench.counts(), text(&bench, token));
    let task = bench.plan_and_renew(&node);
    let Outcome::Planned {
        class,
        differs,
        certificates,
        renews,
        ..
    } = bench.does(task).await
    else {
        panic!("a comparison")
    };
    assert!(renews && !certificates, "it was renewed");
    assert_eq!(class, Some(ChangeClass::Restart));
    assert_eq!(differs.len(), 2, "{differs:?}");
    assert!(differs[0].starts_with("firewall:"), "{differs:?}");
    assert!(differs[1].starts_with(&format!("file:{ca}")), "{differs:?}");
    let given = bench.cluster.cloud.lock().expect("tokens").given;
    let last = Some(format!("cloud-t0ken-{given}-of-{node}"));
    assert_eq!(text(&bench, token), last);
    assert_ne!(before.1, last);
    assert_eq!(text(&bench, ca).as_deref(), Some("old"));
    assert!(!bench.simulated().state().firewall.contains_key(firewall));
    let counts = bench.counts();
    let runs = counts.executions[before.0.executions.len()..].iter();
    let changed: Vec<&String> = runs.flat_map(|run| &run.changed).collect();
    assert_eq!(changed, [&format!("file:{token}")]);

    // It lasts now, and the next comparison sends nothing.
    let before = bench.counts();
    let task = bench.plan_and_renew(&node);
    bench.does(task).await;
    assert_eq!(done(&before, &bench.counts()), (2, 0, 0, 0));
}

/// The old program knows of no renewal, or the host refuses it: the comparison is made without it.
#[tokio::test(start_paused = true)]
async fn a_token_that_cannot_be_renewed_stays_a_difference() {
    let mut bench = Bench::start(&[]).await;
    bench.platform = "Azure";
    let node = bench.joined().await;
    bench.cluster.cloud.lock().expect("tokens").lasts = false;
    let Task::Plan {
        host,
        desired,
        node_name,
        adopt,
        renew,
        ..
    } = bench.plan_and_renew(&node)
    else {
        panic!("a comparison")
    };
    let stale = Task::Plan {
        host,
        desired,
        node_name,
        adopt,
        renew,
        generation: 0,
    };
    let Outcome::Planned {
        class,
        differs,
        certificates,
        renews,
        ..
    } = bench.does(stale).await
    else {
        panic!("a comparison")
    };
    assert!(certificates && renews);
    assert_eq!((class, differs.len()), (Some(ChangeClass::Live), 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_the_same_to_the_program_of_a_later_dormer() {
    let mut bench = Bench::start(&[]).await;
    let node = bench.joined().await;
    let program = bench.updated();
    let has = |bench: &Bench| {
        let host = bench.simulated();
        let state = host.state();
        state.disk.read_text_path(&program).is_ok()
    };
    assert!(!has(&bench), "it is another one: {program}");
    let task = bench.plan(Some(node.clone()), false);
    assert_eq!(bench.found(task).await, (None, vec![]));
    assert!(has(&bench), "{program} made the plan");
    let before = bench.counts();
    for section in [Section::Host, Section::Node] {
        let task = bench.converge(section, Some(node.clone()));
        bench.does(task).await;
    }
    // Nothing is changed, no service restarts, and no file of the payload is sent again.
    assert_eq!(done(&before, &bench.counts()), (2, 0, 0, 0));
}
