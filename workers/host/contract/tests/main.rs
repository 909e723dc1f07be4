//! The contract's rows against the hosts that can be had here.

mod life;
mod page;
mod performer;
mod program;
mod recordings;
mod shipped;
mod simulated;
mod wine;

use dormer_contract::Scope;

/// Where the service programs lie.
const PROGRAMS: &str = r"C:\programs";
/// How they behave, by their names.
const MANNERS: [&str; 5] = ["plain", "linger", "slow", "early", "idle"];

/// Names for one run.
fn scope(name: &str) -> Scope {
    Scope {
        folder: format!(r"C:\{name}"),
        prefix: name.into(),
        programs: PROGRAMS.into(),
    }
}
