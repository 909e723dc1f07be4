//! Other operators for Windows hosts, as the watcher follows them: a sighting holds until a live list lacks the
//! operator.

use crate::kubernetes::operators;
use dormer_proto::neighbour::Neighbour;
use kube::Client;

/// What is known of other operators.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    known: Neighbour,
    unread: Option<String>,
    /// What was said last of one that is installed and does not run.
    idle: Option<String>,
}

impl Neighbours {
    /// Looks again. What cannot be read changes nothing.
    pub(super) async fn refresh(&mut self, client: &Client) -> &Neighbour {
        let seen = operators::check(client).await;
        if let Some(why) = seen.unread.as_ref().filter(|_| seen.unread != self.unread) {
            tracing::warn!("whether another operator configures Windows hosts is unknown: {why}");
        }
        if let Some(idle) = seen.idle.as_ref().filter(|_| seen.idle != self.idle) {
            tracing::warn!("{idle}");
        }
        let known = seen.neighbour.after(&self.known);
        match (self.known.runs(), known.runs()) {
            (before, Some(runs)) if before != Some(runs) => {
                tracing::warn!("dormer leaves every Windows host alone: {runs}");
            }
            (Some(_), None) => {
                tracing::info!("no other operator for Windows hosts runs any more");
            }
            _ => {}
        }
        (self.unread, self.idle, self.known) = (seen.unread, seen.idle, known);
        &self.known
    }

    /// Why the last look could not see everything.
    pub(super) fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }
}
