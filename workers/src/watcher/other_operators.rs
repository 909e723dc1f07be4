//! Other operators for Windows hosts: a finding holds until a live list lacks the operator.

use crate::kubernetes::operators;
use dormer_proto::other_operator::OtherOperator;
use kube::Client;

/// State of the search for other operators.
#[derive(Debug, Default)]
pub(super) struct OtherOperators {
    known: OtherOperator,
    unread: Option<String>,
    /// Last report about an operator that is installed and does not run.
    idle: Option<String>,
}

impl OtherOperators {
    /// Searches again. An unreadable kind changes nothing.
    pub(super) async fn refresh(&mut self, client: &Client) -> &OtherOperator {
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

    /// Reason for which the last search was incomplete.
    pub(super) fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }
}
