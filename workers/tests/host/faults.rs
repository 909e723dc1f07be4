//! Every fault of a host, and how a bring-up ends that meets it.

use super::bench::Bench;
use dormer_fleet::api::kinds;
use dormer_proto::{
    machine::{HostRef, Outcome, Section, Task},
    message::Failure,
};
use std::collections::BTreeSet;

/// Attempts of one step, ten seconds apart: longer than any fault that ends by itself.
const ATTEMPTS_MAX: u64 = 120;

/// A bring-up, and what was met on the way.
struct Tale {
    bench: Bench,
    pin: Option<String>,
    met: BTreeSet<String>,
}

impl Tale {
    async fn step(&mut self, body: Task) -> Result<Outcome, Failure> {
        self.bench.seq += 1;
        let mut last = None;
        for attempt in 1..=ATTEMPTS_MAX {
            match self.bench.attempt(attempt, body.clone()).await {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => {
                    self.met.insert(failure.code.clone());
                    // The workflow waits a while for user data to bring the key.
                    if !failure.retry && failure.code != "AuthRejected" {
                        return Err(failure);
                    }
                    last = Some(failure);
                    self.bench.pause().await;
                }
            }
        }
        Err(last.expect("there was an attempt"))
    }

    fn host(&self) -> HostRef {
        HostRef {
            pin: self.pin.clone(),
            ..self.bench.host()
        }
    }

    async fn converge(&mut self, section: Section, node: Option<String>) -> Result<(), Failure> {
        let body = Task::Converge {
            host: self.host(),
            section,
            desired: self.bench.desired.clone(),
            generation: 1,
            node_name: node,
        };
        for _ in 0..3 {
            let Outcome::Converged {
                reboot, boot_id, ..
            } = self.step(body.clone()).await?
            else {
                panic!("another outcome");
            };
            if !reboot {
                return Ok(());
            }
            self.reboot(boot_id).await?;
        }
        panic!("it reboots again and again");
    }

    async fn reboot(&mut self, boot_id: String) -> Result<(), Failure> {
        let body = Task::Reboot {
            token: None,
            host: self.host(),
            boot_id: boot_id.clone(),
            generation: 1,
        };
        self.step(body).await?;
        for _ in 0..ATTEMPTS_MAX {
            let probe = Task::Probe { host: self.host() };
            if let Outcome::Probed { facts, .. } = self.step(probe).await?
                && facts.boot_id != boot_id
            {
                return Ok(());
            }
            self.bench.pause().await;
        }
        panic!("it never reboots");
    }

    async fn bring_up(&mut self) -> Result<(), Failure> {
        let probe = Task::Probe { host: self.host() };
        let Outcome::Probed {
            host_key,
            node_name,
            ..
        } = self.step(probe).await?
        else {
            panic!("another outcome");
        };
        self.pin = Some(host_key);
        self.converge(Section::Host, None).await?;
        let there = |bench: &Bench| {
            bench.approve();
            bench
                .world
                .all(&kinds::NODE)
                .iter()
                .any(|n| n.value["metadata"]["name"] == node_name)
        };
        self.bench.until("a Node", there).await;
        self.converge(Section::Node, Some(node_name)).await
    }
}

/// The faults, how it ends, and what has to be met on the way.
type Row = (
    &'static [&'static str],
    Result<(), &'static str>,
    &'static [&'static str],
);

/// What the host program outlives by itself in one attempt, such as a first start that fails with 1053, reaches no test of the worker.
#[tokio::test(start_paused = true)]
async fn each_fault_of_a_host_is_outlived_or_named() {
    let table: &[Row] = &[
        (&["ssh-reset-in-kex"], Ok(()), &["HandshakeFailed"]),
        (&["auth-refused-a-while"], Ok(()), &["AuthRejected"]),
        (&["shell-varies"], Ok(()), &[]),
        (
            &["drop-during-script"],
            Ok(()),
            &["ConnectionLost", "host_busy"],
        ),
        (&["half-open"], Ok(()), &["ConnectionLost"]),
        (&["upload-cut"], Ok(()), &["ConnectionLost"]),
        (&["exe-locked"], Ok(()), &["file_locked"]),
        (&["reboot-in-install"], Ok(()), &["ConnectionLost"]),
        (&["kubelet-start-1053"], Ok(()), &[]),
        (&["running-not-healthy"], Ok(()), &["not_healthy"]),
        (&["hns-kills-ssh"], Ok(()), &["ConnectionLost"]),
        (&["clock-skew"], Ok(()), &[]),
        (&["dead"], Err("ConnectTimeout"), &[]),
        (&["host-key-changed"], Err("HostKeyChanged"), &[]),
        (&["no-frame"], Ok(()), &["NoFrame"]),
        (&["code-page-850"], Ok(()), &[]),
        (&["max-startups"], Ok(()), &["HandshakeFailed"]),
        (&["profile-noise"], Err("SftpUnusable"), &[]),
        (
            &["sshd-dead-after-reboot", "feature-needs-reboot"],
            Err("ConnectRefused"),
            &[],
        ),
        (&["disk-full"], Ok(()), &["DiskFull"]),
        (&["scanner-deletes"], Err("quarantine_suspected"), &[]),
        (&["slow-upload"], Ok(()), &[]),
        (&["slow-reboot", "feature-needs-reboot"], Ok(()), &[]),
        (&["fast-reboot", "feature-needs-reboot"], Ok(()), &[]),
        (&["marked-for-deletion"], Ok(()), &[]),
        (&["old-bom"], Ok(()), &[]),
        (&["configure-fails"], Err("access_denied"), &[]),
        (&["applocker"], Err("ProgramBlockedByAppLocker"), &[]),
        (&["wdac"], Err("ProgramBlockedByWdac"), &[]),
        (&["scanner-blocks"], Err("ProgramQuarantined"), &[]),
        (&["other-processor"], Err("ProgramForOtherProcessor"), &[]),
        // Gone once it is sent anew; gone twice, another program deletes it.
        (&["program-vanishes"], Ok(()), &[]),
        (&["program-vanishesx2"], Err("ProgramQuarantined"), &[]),
        (&["sftp-missing"], Err("SftpMissing"), &[]),
        (
            &["applocker", "shell-varies"],
            Err("ProgramBlockedByAppLocker"),
            &[],
        ),
    ];
    for row in table {
        let bench = Bench::start(row.0).await;
        let tale = run_row(bench, row).await;
        assert_eq!(
            tale.counts().powershell_starts > 0,
            tale.simulated().image().shell.is_powershell(),
            "{:?}: no PowerShell but a default shell that is one",
            row.0
        );
    }
}

async fn run_row(bench: Bench, (faults, end, met): &Row) -> Bench {
    let mut tale = Tale {
        bench,
        pin: None,
        met: BTreeSet::new(),
    };
    let ended = tale.bring_up().await;
    println!(
        "{faults:?}: {ended:?}, met {:?}, {:?}",
        tale.met,
        tale.bench.counts()
    );
    let ended = ended.map_err(|failure| failure.code);
    assert_eq!(
        ended.as_ref().map(drop).map_err(String::as_str),
        *end,
        "{faults:?}"
    );
    let missed = met.iter().find(|code| !tale.met.contains(**code));
    assert_eq!(missed, None, "{faults:?} met only {:?}", tale.met);
    assert_eq!(tale.bench.counts().unknown_commands, 0, "{faults:?}");
    let struck = tale.bench.world.faults.struck();
    assert_eq!(struck.len(), faults.len(), "{faults:?} struck {struck:?}");
    if end.is_ok() {
        whole(&tale.bench, faults);
    }
    tale.bench
}

/// Every file that was asked for stands as it should, whatever came between, and nothing of an upload is left.
fn whole(bench: &Bench, faults: &[&str]) {
    let host = bench
        .world
        .hosts
        .as_ref()
        .expect("hosts")
        .all()
        .pop()
        .expect("a host");
    let state = host.state();
    assert!(
        state.asked_for.len() > 10,
        "{faults:?}: {} files",
        state.asked_for.len()
    );
    for (path, sha256) in &state.asked_for {
        let there = state
            .disk
            .read_text_path(path)
            .map(|body| body.sha256.clone());
        assert_eq!(there.as_ref().ok(), Some(sha256), "{faults:?}: {path}");
    }
    let half = |file: &&str| file.ends_with(".part") || file.contains(".exe.dormer-");
    assert_eq!(state.disk.files().find(half), None, "{faults:?}");
}
