//! `dormer bench sftp` against the sshd of this computer, on a small scale.

use dormer_testkit::{Sshd, skip};
use std::process::Command;

#[test]
fn both_uploaders_send_everything_and_are_timed_side_by_side() {
    dormer_testkit::full!();
    if let Err(skipped) = Sshd::program() {
        skip!(skipped);
    }
    let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args([
            "bench",
            "sftp",
            "--mib",
            "4",
            "--files",
            "5",
            "--delay-ms",
            "20",
        ])
        .args(["--rounds", "2", "--json"])
        .output()
        .expect("dormer runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for rounds in ["openssh_s", "dormer_s"] {
        let rounds = figures[rounds].as_array().expect("a list");
        assert!(
            rounds.len() == 2 && rounds.iter().all(|s| s.as_f64() > Some(0.02)),
            "{figures}"
        );
    }
    assert!(figures["time_ratio"].as_f64() > Some(0.0), "{figures}");
}
