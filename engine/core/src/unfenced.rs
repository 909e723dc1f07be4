//! Switches that take one fence away, in test builds alone: they show that the simulation can fail.

/// A rule whose absence the simulation must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// A report counts only for the present attempt.
    Attempt,
    /// A ring counts only if a deadline now on record has passed.
    Deadline,
    /// A signal is taken once per sender and id, and repeated until receipted.
    Receipt,
    /// An older epoch or version of an object is stale.
    Observation,
    /// An append expects the revision that was loaded.
    Revision,
    /// Effects follow the append.
    ActAfterStore,
    /// A drop is decided only on a run just read from the store's leader.
    RereadBeforeDrop,
    /// Every foreign load carries out what is outstanding.
    Outstanding,
    /// Tasks and signals carry the store's incarnation.
    Incarnation,
    /// Reports and receipts echo the checksum of the record that issued them.
    IssuingRecord,
    /// What a newer build wrote is left to one.
    Newer,
    /// Of two times for a run's alarm the earlier stays.
    EarlierAlarm,
}

#[cfg(feature = "unfenced")]
thread_local! {
    static OFF: std::cell::Cell<Option<Fence>> = const { std::cell::Cell::new(None) };
}

/// Takes `fence` away on this thread (`None`: all stand again).
#[cfg(feature = "unfenced")]
pub fn take_away(fence: Option<Fence>) {
    OFF.set(fence);
}

/// Whether `fence` stands. In every production build: yes.
#[must_use]
#[inline]
pub fn enforced(fence: Fence) -> bool {
    #[cfg(feature = "unfenced")]
    {
        OFF.get() != Some(fence)
    }
    #[cfg(not(feature = "unfenced"))]
    {
        let _ = fence;
        true
    }
}
