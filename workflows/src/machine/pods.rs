//! Pods under the lease: whether they may run on a Node that was drained, and the drain that then comes first.

use super::{
    change::{Change, ChangeStrategy},
    draft::Draft,
    phase::Phase,
};
use dormer_proto::machine::ChangeClass;

impl Draft<'_> {
    /// Whether pods may run on its Node now, although the machine holds the lease.
    ///
    /// A change without a drain leaves them there. To a Node that was drained they come after another client has uncordoned
    /// it, or after it has registered anew, and they stay when it is cordoned again. None run while the kubelet is stopped, and
    /// those of a Node that is down for long do not count: its drain would wait for a kubelet that only the change brings back.
    pub(super) fn pods_may_run(&self) -> bool {
        let held = self.state.lease.token().is_some();
        let restarts = self.state.under_lease == Some(ChangeStrategy::Restart);
        let host = &self.state.host;
        // A kubelet that was just restarted is silent for a moment.
        let up = self.state.node.is_some() && !host.stopped && !self.is_down_for_long();
        held && up && (restarts || host.uncordoned)
    }

    /// Phase that follows under the lease, however the run enters `phase` (an answer, a new version, a retry, a reset): the drain
    /// comes first where the table says so and pods may run.
    pub(super) fn drained_before(&mut self, phase: Phase) -> Phase {
        let restarts = self.state.under_lease == Some(ChangeStrategy::Restart);
        // The change was planned without a drain.
        let planned = restarts && matches!(phase, Phase::ConvergingHost { .. });
        let begun = planned || matches!(phase, Phase::Rebooting { asked: true, .. });
        if begun || !phase.row().after_drain || !self.pods_may_run() {
            return phase;
        }
        self.state.note = Some("pods may run on its Node, so it is drained first".into());
        self.opening_anew()
    }

    /// The drain of a Node on which pods may run again, or still.
    pub(super) fn opening_anew(&mut self) -> Phase {
        let restarts = self.state.under_lease == Some(ChangeStrategy::Restart);
        let how = match self.state.under_lease {
            Some(ChangeStrategy::Restart) => self.drain_method(),
            Some(how) => how,
            None => ChangeStrategy::InPlace,
        };
        self.state.under_lease = Some(how);
        let token = self.state.lease.token();
        let host = &mut self.state.host;
        // A tear-down that was refused before it began has changed nothing.
        if restarts || host.tearing == token || host.torn_down == token {
            (host.half_changed, host.half_changed_under) = (true, token);
        }
        Phase::Opening(Change {
            how,
            differs: vec!["its pods may have come back".into()],
            repair: false,
            anew: true,
            asked: false,
        })
    }

    /// Step that a drain in the middle of a change has interrupted, if its Node has been down for long by now: the drain would
    /// wait for a kubelet that only this step brings back. A drain that was planned before the change waits, and so does one
    /// that ends in no configuration: that of a person, and that of a Machine that is replaced.
    pub(super) fn interrupted_step(&self) -> Option<Phase> {
        let token = self.state.lease.token();
        let host = &self.state.host;
        let down = self.state.node.is_some() && self.is_down_for_long();
        let torn_down = self.state.was_torn_down();
        let interrupted = host.half_changed && (torn_down || host.half_changed_under == token);
        let configures = matches!(
            self.state.under_lease,
            Some(ChangeStrategy::InPlace | ChangeStrategy::Restart)
        );
        // A host without its kubelet is set up first, whatever a person has asked for meanwhile.
        let asked = self.state.leased_request.is_some() && !torn_down && host.tearing != token;
        if token.is_none() || !down || !interrupted || !configures || asked {
            return None;
        }
        Some(match host.tearing == token && !torn_down {
            true => Phase::TearingDown,
            false => Phase::ConvergingHost { rebooted: false },
        })
    }

    /// Method of a change that drains the Node.
    pub(super) fn drain_method(&self) -> ChangeStrategy {
        let how = self.state.how(ChangeClass::Drain);
        // No controller makes another, so it is configured in place.
        if how == ChangeStrategy::Recreate && self.state.owner().is_none() {
            return ChangeStrategy::InPlace;
        }
        how
    }
}
