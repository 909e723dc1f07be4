//! `tests/kill.sh` with a small fleet: every process of dormer is killed in turn, and nothing is lost.

use dormer_testkit::{
    NatsServer, NatsVersion, Process, ProcessSpec, await_condition, skip, test_dir,
};
use std::{path::PathBuf, time::Duration};

/// The script takes under a minute; a busy machine gets this much.
const IN_TIME: Duration = Duration::from_secs(240);

#[tokio::test]
async fn killed_in_turn_dormer_brings_a_fleet_up_and_upgrades_it_one_at_a_time() {
    dormer_testkit::full!();
    let nats = match NatsServer::program(NatsVersion::Current) {
        Ok(nats) => nats,
        Err(skipped) => skip!(skipped),
    };
    let folder = test_dir("kill");
    let settings = [
        ("DORMER", env!("CARGO_BIN_EXE_dormer").to_owned()),
        ("NATS", nats.display().to_string()),
        ("TMPDIR", folder.path().display().to_string()),
        ("MACHINES", "4".to_owned()),
        ("SPEED", "200".to_owned()),
        ("EVERY", "2".to_owned()),
        ("STRATEGY", "InPlace".to_owned()),
        ("DEADLINE", "200".to_owned()),
        ("KEEP", String::new()),
    ];
    let log = folder.path().join("log");
    let mut script = Process::start(&ProcessSpec {
        program: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kill.sh"),
        args: Vec::new(),
        env: settings
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        log: log.clone(),
        folder: None,
    })
    .expect("bash runs the script");
    await_condition("the script's end", IN_TIME, || {
        let ended = !script.is_running();
        async move { ended }
    })
    .await;
    let said = std::fs::read_to_string(log).expect("what the script said");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("ok: 4 machines"), "{said}");
    let left = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(left, 1, "the script leaves nothing but what it said");
}
