//! Limits of counts, which a test build can lower so that a simulation reaches them.

/// What is counted. No simulated run reaches the limits of production.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountLimit {
    /// Signals of a run without a receipt ([`crate::OUTBOX_MAX`]).
    Outbox,
    /// Objects that a run remembers ([`crate::FACTS_MAX`]).
    Facts,
    /// Events of a record ([`crate::EVENTS_PER_RECORD_MAX`]).
    Events,
}

#[cfg(feature = "unfenced")]
thread_local! {
    static LOWERED: std::cell::Cell<[Option<usize>; 3]> = const { std::cell::Cell::new([None; 3]) };
    static REACHED: std::cell::Cell<[u64; 3]> = const { std::cell::Cell::new([0; 3]) };
}

/// Lowers a limit on this thread (`None`: it is as in production), and forgets how often it was reached.
#[cfg(feature = "unfenced")]
pub fn lower(limit: CountLimit, to: Option<usize>) {
    let at = limit as usize;
    let mut all = LOWERED.get();
    all[at] = to;
    LOWERED.set(all);
    let mut reached = REACHED.get();
    reached[at] = 0;
    REACHED.set(reached);
}

/// How often a limit was reached on this thread since it was lowered.
#[cfg(feature = "unfenced")]
#[must_use]
pub fn times_reached(limit: CountLimit) -> u64 {
    REACHED.get()[limit as usize]
}

/// Value of a lowered limit on this thread.
#[cfg(feature = "unfenced")]
#[must_use]
pub fn lowered(limit: CountLimit) -> Option<usize> {
    LOWERED.get()[limit as usize]
}

/// Whether a count has reached `times` the limit, which is `most` in production builds.
#[must_use]
#[inline]
pub fn is_reached(limit: CountLimit, count: usize, times: usize, most: usize) -> bool {
    #[cfg(feature = "unfenced")]
    {
        let reached = count >= times * lowered(limit).unwrap_or(most);
        let mut all = REACHED.get();
        all[limit as usize] += u64::from(reached);
        REACHED.set(all);
        reached
    }
    #[cfg(not(feature = "unfenced"))]
    {
        let _ = limit;
        count >= times * most
    }
}
