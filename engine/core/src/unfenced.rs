//! Switches that remove one fence, in test builds only: they show that the simulation can fail.

/// Fence that a test build can switch off. The simulation must then find a broken law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// A report counts only for the present attempt.
    Attempt,
    /// A due timer counts only if a deadline now on record has passed.
    Deadline,
    /// A signal is accepted once per sender and id, and repeated until receipted.
    Receipt,
    /// A signal under an id that its sender used before is asked for under a new one.
    ReusedId,
    /// An older epoch or version of an object is stale.
    Observation,
    /// An append expects the revision that was loaded.
    Revision,
    /// Effects follow the append.
    EffectsAfterStore,
    /// A drop is final only on a run just read from the store's leader.
    RereadBeforeDrop,
    /// Every load of a foreign revision carries out what is outstanding.
    Outstanding,
    /// Tasks and signals carry the store's incarnation.
    Incarnation,
    /// A report counts only from the role that its task is for.
    Reporter,
    /// Reports and receipts echo the checksum of the record that issued them.
    IssuingRecord,
    /// Messages and records of a newer build are left to it.
    Newer,
    /// A request is taken once per id.
    Request,
    /// Of two times for a run's alarm the earlier one stays.
    EarlierAlarm,
    /// A run whose last known record is not there waits, and is quarantined if it stays so.
    LastRecord,
    /// An engine that begins knows which runs are in doubt.
    NotedDoubt,
    /// Such a run waits alone: the others of its batch continue.
    DoubtAlone,
}

#[cfg(feature = "unfenced")]
thread_local! {
    static OFF: std::cell::Cell<Option<Fence>> = const { std::cell::Cell::new(None) };
}

/// Removes `fence` on this thread (`None`: restores all).
#[cfg(feature = "unfenced")]
pub fn take_away(fence: Option<Fence>) {
    OFF.set(fence);
}

/// Whether `fence` is enforced. Always true in production builds.
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
