//! A rollout for people: what is away and why, who waits, who holds a slot, and what stands against the next grant.

use super::state::State;

impl State {
    /// Why nothing is granted though there may be room: what failed, by name.
    #[must_use]
    pub fn halted(&self) -> Option<String> {
        let failures = self.failures();
        let first = failures.first()?;
        Some(format!("{first} failed"))
    }
}
