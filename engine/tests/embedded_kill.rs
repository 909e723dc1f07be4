//! Repeated SIGKILL of an appending process: the store opens, is sound, and has everything that it acknowledged.

use crate::embedded_common;

use dormer_engine::embedded::{EmbeddedStore, check};
use embedded_common::{closed, position, reopen_with, run, step};
use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

const FOLDER: &str = "DORMER_TEST_KILL_FOLDER";
const KILLS: u64 = 200;
const RUNS: u64 = 16;
/// Of the log: so small that it is full several times between two kills.
const SEGMENT: u64 = 64 << 10;

/// Body of the killed process, not a test by itself. Without the variable it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let store = Arc::new(EmbeddedStore::open_with(Path::new(&folder), SEGMENT).expect("opens"));
    let runs = (0..RUNS).map(|i| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let run = run(&i.to_string());
            let mut at = position(&*store, &run).await;
            loop {
                at = step(&*store, &run, at).await.expect("stored");
                let line = format!("\nacknowledged {i} {}\n", at.seq);
                std::io::stdout()
                    .write_all(line.as_bytes())
                    .expect("the parent reads");
            }
        })
    });
    futures::future::join_all(runs.collect::<Vec<_>>()).await;
}

/// Starts the process, kills it after `lines` acknowledgements, and notes all that it printed.
fn kill_after(folder: &Path, lines: usize, acknowledged: &mut HashMap<u64, u64>) {
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args([
            "--exact",
            "embedded_kill::the_process_that_is_killed",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let out = BufReader::new(child.stdout.take().expect("its output"));
    let mut found = 0;
    if lines == 0 {
        child.kill().expect("killed");
    }
    for line in out.lines().map_while(Result::ok) {
        // The last line may be cut short; a whole one has three words.
        let words: Vec<_> = line.split(' ').collect();
        if let ["acknowledged", run, seq] = words[..]
            && let (Ok(run), Ok(seq)) = (run.parse(), seq.parse::<u64>())
        {
            let last: &mut u64 = acknowledged.entry(run).or_default();
            *last = seq.max(*last);
            found += 1;
            if found == lines {
                child.kill().expect("killed");
            }
        }
    }
    child.wait().expect("ended");
}

#[tokio::test]
async fn two_hundred_kills_lose_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    closed(reopen_with(folder.path(), SEGMENT).await, folder.path()).await;
    let mut acknowledged = HashMap::new();
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..KILLS {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(kill);
        let lines = usize::try_from(chance >> 57).expect("small");
        kill_after(folder.path(), lines, &mut acknowledged);
        let store = reopen_with(folder.path(), SEGMENT).await;
        for (i, seq) in &acknowledged {
            let found = position(&store, &run(&i.to_string())).await.seq;
            assert!(
                found >= *seq,
                "kill {kill}: run {i} is at {found}, {seq} was acknowledged"
            );
        }
        drop(store);
        let report = loop {
            match check(folder.path()) {
                Err(dormer_engine::embedded::OpenError::InUse(_)) => tokio::task::yield_now().await,
                other => break other.expect("checks"),
            }
        };
        assert!(report.is_clean(), "kill {kill}: {report:?}");
    }
    let stored: u64 = acknowledged.values().sum();
    assert!(
        stored > KILLS * 10,
        "the process came to work: {stored} records"
    );
}
