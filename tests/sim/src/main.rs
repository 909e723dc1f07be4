//! Runs seeds: `cargo run -p dormer-sim -- --seeds 0..1000000`.

use dormer_sim::{Options, report};
use std::process::ExitCode;

fn main() -> ExitCode {
    let text = std::env::args().skip_while(|word| word != "--seeds").nth(1);
    let ends = text.as_deref().and_then(|text| text.split_once(".."));
    let parsed = ends.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let Some((from, to)): Option<(u64, u64)> = parsed else {
        eprintln!("usage: dormer-sim --seeds FROM..TO");
        return ExitCode::from(2);
    };
    match (from..to).find_map(|seed| report(seed, Options::default())) {
        Some(report) => {
            eprintln!("{report}");
            ExitCode::FAILURE
        }
        None => {
            println!("seeds {from}..{to}: every law holds");
            ExitCode::SUCCESS
        }
    }
}
