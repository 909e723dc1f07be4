//! Ledgers of nodes and their sets: which serve, which are missing, and which an upgrade has taken.

use std::collections::BTreeSet;

use super::Unavailable;

#[derive(Default)]
pub(super) struct NodeLedger {
    pub(super) served: bool,
    pub(super) torn_down: bool,
    /// It served when an upgrade began on it, and neither it nor its replacement has served since.
    pub(super) taken: bool,
    pub(super) set: Option<String>,
    pub(super) reasons: BTreeSet<Unavailable>,
}

impl NodeLedger {
    pub(super) fn up(&self) -> bool {
        self.reasons.is_empty() && !self.torn_down
    }
}

/// What a MachineSet should have, and has: a removed node counts as unavailable until another
/// serves in its place, or its set is smaller.
#[derive(Default)]
pub(super) struct SetLedger {
    /// `None`: no controller replaces; every node down counts.
    pub(super) replicas: Option<usize>,
    pub(super) up: usize,
    pub(super) down: usize,
    pub(super) gaps: usize,
    /// Gaps that nodes left which were taken.
    pub(super) taken_gaps: usize,
    /// New nodes that serve already for ones that are taken and still there.
    pub(super) early: usize,
}

impl SetLedger {
    pub(super) fn missing(&self) -> usize {
        self.replicas
            .map_or(usize::MAX, |want| want.saturating_sub(self.up))
    }

    /// Whether a node that goes leaves a gap: its replacement may have served before it went, and a smaller set misses
    /// no node.
    pub(super) fn lacks_one(&self) -> bool {
        let there = self.up + self.down + self.gaps;
        self.replicas.is_none_or(|want| there < want)
    }

    pub(super) fn unavailable(&self) -> usize {
        (self.down + self.gaps).min(self.missing())
    }

    pub(super) fn taken(&self) -> usize {
        self.taken_gaps.min(self.missing())
    }

    pub(super) fn count_out(&mut self, up: bool) {
        let side = if up { &mut self.up } else { &mut self.down };
        *side = side.saturating_sub(1);
    }

    /// `taken`: how many nodes of the set are taken now, and still there.
    pub(super) fn count_in(&mut self, up: bool, first: bool, taken: usize) {
        self.early = self.early.min(taken);
        if up {
            self.up += 1;
            // A new node that serves takes the place of one that was removed, or that goes.
            let goes = first && self.gaps == 0 && self.early < taken;
            self.early += usize::from(goes);
            self.gaps = self.gaps.saturating_sub(usize::from(first));
            self.taken_gaps = self.taken_gaps.saturating_sub(usize::from(first));
        } else {
            self.down += 1;
        }
    }
}
