//! WMCO beside dormer, as far as the world remembers it.

use dormer_proto::other_operator::OtherOperator;

/// WMCO in this cluster.
#[derive(Debug, Default)]
pub(super) struct Wmco {
    /// Start of the one that runs.
    pub(super) since: Option<u64>,
    /// How often one came.
    pub(super) came: u64,
    /// Whether the watcher is kept from seeing it, to prove that the law about it can fail.
    unseen: bool,
    /// First order to a host while it ran and every run knew that.
    pub(super) disturbed: Option<String>,
}

impl Wmco {
    pub(super) fn new(unseen: bool) -> Self {
        Self {
            unseen,
            ..Self::default()
        }
    }

    /// What a watcher knows. Before the first one it says nothing, like a watcher that does not look.
    pub(super) fn fact(&self) -> OtherOperator {
        match self.since {
            _ if self.unseen || self.came == 0 => OtherOperator::Unread,
            Some(_) => OtherOperator::Runs("WMCO runs (Pod winc/wmco-1)".into()),
            None => OtherOperator::Absent,
        }
    }
}
