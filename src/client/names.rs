//! Names for the completion of a shell: `dormer __complete`.

use super::{Failure, server::Address};
use clap::Args;
use dormer_views::machine::Machines;
use std::time::Duration;

/// Time limit: a person waits at the keyboard.
const AT_MOST: Duration = Duration::from_secs(2);

/// Arguments of `dormer __complete`.
#[derive(Debug, Args)]
pub struct Names {
    #[command(flatten)]
    address: Address,
}

impl Names {
    /// Names of all machines, one on a line.
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.address.server();
        let asked = tokio::time::timeout(AT_MOST, server.get::<Machines>("/machines"));
        let Ok(answer) = asked.await else {
            return Ok(String::new());
        };
        let machines = answer?.items.into_iter();
        let names: Vec<String> = machines.map(|machine| machine.name).collect();
        Ok(names.join("\n"))
    }
}
