//! One simulated Windows host, seen as a worker sees it: SSH, SFTP, the host program, reboots, a kubelet.

mod contract;
mod peer;
mod profile;

use std::time::Duration;

use dormer_fleet::Pace;
use dormer_fleet::host::HostPhase;
use dormer_profile::answer::{FailureCode, FeatureState, ItemState, Reboot};
use dormer_profile::document::{Fence, Section};
use dormer_profile::invocation::Mode;
use peer::{Bench, document, items};
use russh_sftp::protocol::{FileAttributes, OpenFlags, Packet, StatusCode};

#[tokio::test(start_paused = true)]
async fn every_default_shell_passes_the_programs_call_on() {
    for faults in [
        &[][..],
        &["shell-varies@*"],
        &["profile-noise@*"],
        &["code-page-850@*"],
    ] {
        let bench = Bench::start(faults).await;
        let client = bench.ready().await;
        let answer = client.probe("machine/a@1.0", 1).await;
        assert_eq!(answer.facts.os_build, "10.0.20348", "{faults:?}");
        assert!(
            answer
                .facts
                .node_ip
                .is_some_and(|ip| ip.starts_with("10.0."))
        );
        let (said, status) = client.exec("Get-Help").await;
        assert!(
            status != 0 && !said.ends_with(b"Get-Help"),
            "an unknown command fails loudly"
        );
        assert_eq!(bench.host().counts().unknown_commands, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_key_from_the_user_data_opens_the_host() {
    let bench = Bench::start(&[]).await;
    assert!(bench.login_with_another_key().await.is_none());
    assert!(bench.login().await.is_some());
    assert_eq!(
        (
            bench.host().counts().connections,
            bench.host().counts().logins
        ),
        (2, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_upload_lands_by_posix_rename_and_not_by_a_plain_one() {
    let bench = Bench::start(&[]).await;
    let client = bench.ready().await;
    let sftp = client.sftp().await;
    let staging = "C:/Windows/dormer/staging";
    peer::upload(&sftp, &format!("{staging}/new"), &vec![7; 600_000]).await;
    peer::upload(&sftp, &format!("{staging}/old"), b"old").await;
    let new = format!("{staging}/new");
    let old = format!("{staging}/OLD");
    assert!(
        sftp.rename(new.clone(), old.clone()).await.is_err(),
        "the target exists"
    );
    let names: Vec<u8> = [&new, &old]
        .iter()
        .flat_map(|name| peer::ssh_string(name))
        .collect();
    let renamed = sftp.extended("posix-rename@openssh.com", names).await;
    assert!(matches!(renamed, Ok(Packet::Status(s)) if s.status_code == StatusCode::Ok));
    let stat = sftp
        .stat(format!("{staging}/old"))
        .await
        .expect("it is there");
    assert_eq!(stat.attrs.size, Some(600_000));
    let real = sftp.realpath("C:\\k\\..\\k\\x").await.expect("a path");
    assert_eq!(real.files[0].filename, "/C:/k/x");
}

#[tokio::test(start_paused = true)]
async fn an_upload_takes_the_time_of_the_line() {
    let bench = Bench::start(&[]).await;
    let client = bench.ready().await;
    let sftp = client.sftp().await;
    let body = dormer_fleet::host::body::modelled_body("kubelet.exe v1.33.4", 65_536, 100_000_000);
    let start = tokio::time::Instant::now();
    peer::upload(&sftp, "C:/Windows/dormer/staging/kubelet.exe", &body).await;
    let took = start.elapsed().as_secs_f64();
    assert!(
        (4.9..5.3).contains(&took),
        "100 MB at 20 MB/s took {took} s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cut_upload_leaves_a_file_with_another_hash() {
    let bench = Bench::start(&["upload-cut@*"]).await;
    let client = bench.ready().await;
    let sftp = client.sftp().await;
    let path = "C:/Windows/dormer/staging/x";
    let flags = OpenFlags::CREATE | OpenFlags::WRITE | OpenFlags::TRUNCATE;
    let handle = sftp
        .open(path, flags, FileAttributes::empty())
        .await
        .expect("it opens")
        .handle;
    let body = vec![9; 100_000];
    sftp.write(handle.clone(), 0, body.clone())
        .await
        .expect("it is written");
    assert!(sftp.close(handle).await.is_err(), "the connection is cut");
    let left = bench
        .host()
        .state()
        .disk
        .read_text_path(path)
        .expect("an orphan is left");
    assert_eq!(left.size, 70_000);
    assert_ne!(left.sha256, dormer_profile::sha256_hex(&body));
}

#[tokio::test(start_paused = true)]
async fn a_document_is_planned_applied_and_then_found_right() {
    let bench = Bench::start(&[]).await;
    let client = bench.ready().await;
    let document = document(items::files());
    let plan = client
        .call(Mode::Plan, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(
        plan.failure.is_none() && plan.differing().count() == 3,
        "{plan:?}"
    );
    let done = client
        .call(Mode::Apply, "machine/a@4.0", 4, Some(&document))
        .await;
    assert!(done.converged(), "{done:?}");
    assert!(done.items.iter().all(|i| i.state == ItemState::Changed));
    let again = client
        .call(Mode::Apply, "machine/a@5.0", 5, Some(&document))
        .await;
    assert!(again.converged() && again.items.iter().all(|i| i.state == ItemState::Ok));
    let installed = &again.facts.installed[0];
    assert_eq!(
        (installed.section, installed.version.as_str()),
        (Section::Host, "v1")
    );
    let stale = client
        .call(Mode::Apply, "machine/a@2.0", 2, Some(&document))
        .await;
    assert_eq!(
        stale.failure.as_ref().map(|f| f.code),
        Some(FailureCode::FenceTooOld)
    );
    let fence = Fence {
        generation: 1,
        seq: 5,
    };
    assert_eq!(stale.facts.fence, Some(fence));
    let changed: usize = bench
        .host()
        .counts()
        .executions
        .iter()
        .map(|e| e.changed.len())
        .sum();
    assert_eq!(changed, 3);
    assert!(bench.host().counts().changed_twice().is_empty());
    let gone = client.call(Mode::Remove, "machine/a@6.0", 6, None).await;
    assert!(
        gone.failure.is_none() && gone.facts.installed.is_empty(),
        "{gone:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_feature_waits_for_exactly_one_reboot() {
    let bench = Bench::start(&["feature-needs-reboot@*"]).await;
    let client = bench.ready().await;
    let document = document(vec![items::feature()]);
    let first = client
        .call(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert_eq!(
        first.reboot,
        Reboot::Needed {
            why: vec!["feature:Containers".into()]
        }
    );
    let boot = first.facts.boot_id.clone();
    let asked = client.call(Mode::Reboot, "machine/a@4.0", 4, None).await;
    assert_eq!(asked.reboot, Reboot::Pending);
    bench.phase(HostPhase::Dropping).await;
    bench.phase(HostPhase::Up).await;
    let client = bench.connect().await;
    let after = client
        .call(Mode::Apply, "machine/a@5.0", 5, Some(&document))
        .await;
    assert!(after.converged(), "{after:?}");
    assert_ne!(after.facts.boot_id, boot);
    assert_eq!(after.facts.containers, FeatureState::Enabled);
}

#[tokio::test(start_paused = true)]
async fn a_program_goes_on_without_its_connection_and_holds_the_lock() {
    let bench = Bench::start(&["drop-during-script@*"]).await;
    let client = bench.ready().await;
    let document = document(items::files());
    let (said, _) = client
        .run(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(said.is_empty(), "the connection was cut");
    let retry = bench.connect().await;
    let busy = retry
        .call(Mode::Plan, "machine/a@4.0", 4, Some(&document))
        .await;
    assert_eq!(busy.failure.map(|f| f.code), Some(FailureCode::HostBusy));
    bench.pass(Duration::from_secs(120)).await;
    let later = retry
        .call(Mode::Plan, "machine/a@5.0", 5, Some(&document))
        .await;
    assert!(later.converged(), "{later:?}");
    assert_eq!(
        later.facts.last.map(|last| (last.task, last.ok)),
        Some(("machine/a@3.0".into(), true))
    );
}

#[tokio::test(start_paused = true)]
async fn each_phase_of_a_boot_is_visible_from_outside() {
    let bench = Bench::start(&["ssh-reset-in-kex@*", "auth-refused-a-while@*"]).await;
    let waited = bench.waited.as_secs();
    assert!(
        (60 + 40 + 240..=120 + 40 + 240 + 60).contains(&waited),
        "{waited} s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_start_of_kubelet_that_fails_with_1053_is_outlived_by_the_same_call() {
    let bench = Bench::start(&["kubelet-start-1053@*"]).await;
    let client = bench.ready().await;
    let document = document(items::node(&bench.world));
    let done = client
        .call(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(done.converged(), "{done:?}");
    let struck = bench.world.faults.struck();
    let struck: Vec<&str> = struck.iter().map(|(fault, ..)| fault.name()).collect();
    assert_eq!(struck, ["kubelet-start-1053"]);
}

/// The time of the world that it takes to start a node's services, each of which must run for a while.
async fn start_of_services(pace: Pace) -> Duration {
    let bench = Bench::start_at(pace).await;
    let client = bench.ready().await;
    let document = document(items::node(&bench.world));
    let began = bench.world.clock.elapsed();
    let done = client
        .call(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(done.converged(), "{done:?}");
    pace.simulated(bench.world.clock.elapsed() - began)
}

#[tokio::test(start_paused = true)]
async fn in_a_fast_world_the_program_waits_by_the_worlds_clock() {
    let life = start_of_services(Pace::LIFE).await;
    let fast = start_of_services(Pace::times_faster(150.0)).await;
    assert!(
        fast < life * 3,
        "{fast:?} of a fast world, {life:?} of life"
    );
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_joins_over_tls_and_goes_silent_with_the_power() {
    let bench = Bench::start(&[]).await;
    let client = bench.ready().await;
    let document = document(items::node(&bench.world));
    let done = client
        .call(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(done.converged(), "{done:?}");
    let node = bench.joined().await;
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.33.4");
    assert_eq!(
        node["status"]["nodeInfo"]["bootID"],
        done.facts.boot_id.as_str()
    );
    assert_eq!(
        node["metadata"]["labels"]["node.kubernetes.io/windows-build"],
        "10.0.20348"
    );
    assert_eq!(node["spec"]["taints"][0]["key"], "os");
    assert_eq!(
        node["spec"]["providerID"],
        bench.host().instance().provider_id.as_str()
    );
    bench.approve().await;
    let serving = r"C:\var\lib\kubelet\pki\kubelet-server-current.pem";
    bench
        .until("a serving certificate", || {
            bench.host().state().disk.read_text_path(serving).is_ok()
        })
        .await;
    bench.host().power_off();
    let before = bench.lease();
    bench.pass(Duration::from_secs(60)).await;
    assert_eq!(bench.lease(), before);
}

#[tokio::test]
async fn the_same_over_real_sockets() {
    let bench = Bench::start_on_loopback().await;
    let client = bench.ready().await;
    let document = document(items::node(&bench.world));
    let done = client
        .call(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(done.converged(), "{done:?}");
    let node = bench.joined().await;
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.33.4");
}

#[tokio::test(start_paused = true)]
async fn trouble_comes_by_name() {
    let bench = Bench::start(&["no-frame@*", "configure-fails@*"]).await;
    let client = bench.ready().await;
    let document = document(items::files());
    let (said, status) = client
        .run(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(said.is_empty() && status == 0, "exit 0 and no frame");
    let failed = client
        .call(Mode::Apply, "machine/a@4.0", 4, Some(&document))
        .await;
    assert_eq!(
        failed.failure.map(|f| (f.code, f.retry)),
        Some((FailureCode::AccessDenied, false))
    );
    let mended = client
        .call(Mode::Apply, "machine/a@5.0", 5, Some(&document))
        .await;
    assert!(mended.converged(), "{mended:?}");
    let struck: Vec<&str> = bench
        .world
        .faults
        .struck()
        .iter()
        .map(|(f, ..)| f.name())
        .collect();
    assert_eq!(struck, ["no-frame", "configure-fails"]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_host_answers_nobody() {
    let bench = Bench::unborn(&["dead@*"]).await;
    bench.pass(Duration::from_secs(1_800)).await;
    let authority = format!("{}:22", bench.host().internal_ip());
    let dialing = bench.world.host_dialer();
    let limit = Duration::from_secs(60);
    assert!(
        tokio::time::timeout(limit, dialing.dial(&authority))
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn stopping_containerd_stops_kubelet_first_and_its_file_stays_in_use_for_a_moment() {
    let bench = Bench::start(&[]).await;
    let client = bench.ready().await;
    let document = document(items::node(&bench.world));
    let done = client
        .call(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(done.converged(), "{done:?}");
    let host = bench.host();
    host.stop_service("containerd").await.expect("it stops");
    assert!(!host.state().scm.running("kubelet"));
    let sftp = client.sftp().await;
    let refused = sftp.remove("C:/k/containerd.exe").await;
    assert!(refused.is_err(), "a stopped process holds its file");
    bench.pass(Duration::from_secs(5)).await;
    assert!(sftp.remove("C:/k/containerd.exe").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_hybrid_overlay_gives_the_node_a_subnet_and_cuts_the_connection() {
    let bench = Bench::start(&["hns-kills-ssh@*"]).await;
    let client = bench.ready().await;
    let document = document(items::node(&bench.world));
    let done = client
        .call(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(done.converged(), "{done:?}");
    bench.joined().await;
    let all = [items::node(&bench.world), items::overlay()].concat();
    let overlay = peer::document(all);
    let (said, _) = client
        .run(Mode::Apply, "machine/a@4.0", 4, Some(&overlay))
        .await;
    assert!(said.is_empty(), "creating the network cuts the connection");
    bench.phase(HostPhase::Up).await;
    let again = bench.connect().await;
    let found = again
        .call(Mode::Apply, "machine/a@5.0", 5, Some(&overlay))
        .await;
    assert!(found.converged(), "{found:?}");
    let file = bench
        .host()
        .state()
        .disk
        .read_text_path(r"C:\k\cni\config\cni.conf");
    let node = bench.joined().await;
    let subnet = node["metadata"]["annotations"]["k8s.ovn.org/hybrid-overlay-node-subnet"].as_str();
    let subnet = subnet.expect("a subnet");
    assert_eq!(
        file.expect("a file").head.as_ref(),
        format!("subnet {subnet}").as_bytes()
    );
}

#[tokio::test(start_paused = true)]
async fn pods_run_on_the_node_and_end_when_they_are_deleted() {
    let bench = Bench::start(&[]).await;
    let client = bench.ready().await;
    let document = document(items::node(&bench.world));
    let done = client
        .call(Mode::Apply, "machine/a@3.0", 3, Some(&document))
        .await;
    assert!(done.converged(), "{done:?}");
    let node = bench.joined().await;
    let pod = bench.pod_on(node["metadata"]["name"].as_str().expect("a name"));
    bench
        .until("the pod runs", || {
            bench.pod_phase(&pod).as_deref() == Some("Running")
        })
        .await;
    bench.delete_pod(&pod).await;
    bench
        .until("the pod is gone", || bench.pod_phase(&pod).is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_fails_the_upload_once() {
    let bench = Bench::start(&["disk-full@*"]).await;
    let client = bench.ready().await;
    let sftp = client.sftp().await;
    let flags = OpenFlags::CREATE | OpenFlags::WRITE | OpenFlags::TRUNCATE;
    let path = "C:/Windows/dormer/staging/x";
    for fails in [true, false] {
        let opened = sftp.open(path, flags, FileAttributes::empty()).await;
        let handle = opened.expect("it opens").handle;
        sftp.write(handle.clone(), 0, vec![1; 50_000])
            .await
            .expect("it is written");
        assert_eq!(sftp.close(handle).await.is_err(), fails);
    }
}
