//! The corpus of `fuzz/`, repeated; and the fuzzer itself, in the long tier.

use dormer_decoders::{ALL, Decoder};
use dormer_testkit::{Skipped, long, tier::Running};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// How long the fuzzer works on each decoder, in seconds, if `DORMER_FUZZ_SECONDS` says nothing.
const SECONDS: u32 = 60;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn inputs(decoder: &Decoder) -> Vec<PathBuf> {
    let folder = fuzz().join("corpus").join(decoder.name);
    let files = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files
}

#[test]
fn no_input_of_the_corpus_breaks_its_decoder() {
    for decoder in ALL {
        let inputs = inputs(&decoder);
        assert!(
            inputs.len() >= 3,
            "{}: {} inputs",
            decoder.name,
            inputs.len()
        );
        for file in inputs {
            let bytes = fs::read(&file).expect("a file of the corpus");
            let done = std::panic::catch_unwind(|| (decoder.decode)(&bytes));
            assert!(done.is_ok(), "{} breaks {}", file.display(), decoder.name);
        }
    }
}

#[test]
fn every_decoder_has_its_program_and_no_program_or_folder_is_left_over() {
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("fuzz/Cargo.toml");
    let programs = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("name = \""))
        .filter_map(|rest| rest.strip_suffix('"'))
        .filter(|name| *name != "dormer-fuzz");
    let programs: BTreeSet<String> = programs.map(str::to_owned).collect();
    let folders = fs::read_dir(fuzz().join("corpus")).expect("the corpus");
    let folders = folders.map(|one| one.expect("a folder").file_name());
    let folders: BTreeSet<String> = folders.map(|name| name.to_string_lossy().into()).collect();
    let decoders: BTreeSet<String> = ALL.iter().map(|one| one.name.to_owned()).collect();
    assert_eq!(programs, decoders);
    assert_eq!(folders, decoders);
}

/// `cargo fuzz`, if it is here.
fn fuzzer() -> Result<(), Skipped> {
    let asked = Command::new("cargo")
        .args(["+nightly", "fuzz", "--version"])
        .current_dir(fuzz())
        .output();
    match asked {
        Ok(answer) if answer.status.success() => Ok(()),
        other => Err(Skipped {
            server: "cargo-fuzz".to_owned(),
            reason: format!(
                "`cargo install cargo-fuzz` and `rustup toolchain install nightly` bring it ({other:?})"
            ),
        }),
    }
}

/// Searches for inputs that break one decoder, from its corpus on.
fn search(name: &str, part: &Running) {
    let seconds = std::env::var("DORMER_FUZZ_SECONDS");
    let seconds = seconds.map_or(SECONDS, |text| text.parse().expect("DORMER_FUZZ_SECONDS"));
    let done = Command::new("cargo")
        .args(["+nightly", "fuzz", "run", name, "--"])
        .args([
            format!("-max_total_time={seconds}"),
            "-timeout=10".to_owned(),
            "-rss_limit_mb=2048".to_owned(),
            "-print_final_stats=1".to_owned(),
        ])
        .current_dir(fuzz())
        .output()
        .expect("cargo fuzz");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}: {said}");
    let inputs = said
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
        .unwrap_or_else(|| panic!("{name}: no figures: {said}"));
    part.passed(&[
        ("searched", format!("{seconds} s")),
        ("inputs", inputs.trim().to_owned()),
    ]);
}

/// One test for each decoder, so that a search that was interrupted begins with those that are left.
macro_rules! searched {
    ($($test:ident $name:literal)*) => {
        $(
            #[test]
            fn $test() {
                let part = long!("fuzz");
                match fuzzer() {
                    Ok(()) => search($name, &part),
                    Err(skipped) => dormer_testkit::skip!(skipped),
                }
            }
        )*

        #[test]
        fn every_decoder_is_searched() {
            let decoders: Vec<_> = ALL.iter().map(|one| one.name).collect();
            assert_eq!(decoders, [$($name),*]);
        }
    };
}

searched! {
    fuzz_frame "frame"
    fuzz_answer "answer"
    fuzz_sign "sign"
    fuzz_stderr "stderr"
    fuzz_sftp "sftp"
    fuzz_keys "keys"
    fuzz_output "output"
    fuzz_document "document"
    fuzz_arguments "arguments"
    fuzz_containerd "containerd"
    fuzz_image "image"
    fuzz_envelope "envelope"
    fuzz_record "record"
    fuzz_inbox "inbox"
    fuzz_order "order"
    fuzz_subject "subject"
    fuzz_csr "csr"
    fuzz_pool "pool"
    fuzz_mark "mark"
    fuzz_instances "instances"
    fuzz_cluster_config "cluster-config"
    fuzz_pull_secret "pull-secret"
    fuzz_payload "payload"
    fuzz_program "program"
    fuzz_yaml "yaml"
    fuzz_cookie "cookie"
}
