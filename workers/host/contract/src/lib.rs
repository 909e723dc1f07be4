//! Contract of the host interface: the answers of a Windows host, row by row, each with its source. A [`Row`] prepares
//! a host by operations, performs one, and checks the answer and the effect. It runs against every implementation of
//! [`Host`](dormer_host::ops::Host). Each row also has a *liar*: a wrong answer without an effect, which the row must
//! refuse. So no row accepts everything.

#![allow(clippy::too_many_lines, reason = "the rows of a subject are one table")]

mod files;
mod harmless;
mod hns;
mod images;
mod native;
mod network;
mod private;
mod processes;
pub mod recording;
mod registry;
mod row;
mod services;
mod system;

use serde::{Deserialize, Serialize};

pub use harmless::{clear, is_harmless};
pub use native::{Shown, run_here};
pub use private::StandIns;
pub use row::{Expected, Failed, Needs, OnWine, Row, Wanted, run, run_liar};

/// Names for one run of the rows, so that two runs on one host do not meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// A folder that is not there yet, directly below `C:\`.
    pub folder: String,
    /// The beginning of the names of services and registry keys.
    pub prefix: String,
    /// A folder with copies of the service program (`tests/wine/service.c`), each named after how it behaves: its first
    /// argument.
    pub programs: String,
}

impl Scope {
    /// Names for harmless rows on a host that stays in use.
    pub fn scratch() -> Self {
        Self {
            folder: r"C:\dormer-contract".into(),
            prefix: "dormer-contract".into(),
            programs: r"C:\dormer-contract\programs".into(),
        }
    }
}

/// All rows, in an order in which they can run on one host.
pub fn rows(scope: &Scope) -> Vec<Row> {
    [
        files::rows(scope),
        registry::rows(scope),
        system::rows(scope),
        network::rows(scope),
        hns::rows(scope),
        processes::rows(scope),
        services::rows(scope),
        images::rows(scope),
    ]
    .into_iter()
    .flatten()
    .collect()
}
