//! Result of the demonstration: one JSON object for programs, a sentence for people.

use serde::Serialize;

/// Figures of the demonstration. Those about the world come from the world's own record, not from dormer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DemoOutcome {
    /// Windows machines in the world at the end.
    pub(crate) machines: usize,
    /// Machines whose node serves.
    pub(crate) joined: usize,
    /// Machines that carry the upgrade's version.
    pub(crate) upgraded: usize,
    /// Machines that failed, were retried from the failed step, and served after it.
    pub(crate) failed_then_retried: usize,
    /// Most nodes out of service at one moment after they had served, by the world's record.
    pub(crate) max_unavailable_observed: usize,
    /// Most nodes in an upgrade at one moment: they served when it began, and are neither back nor replaced. Nodes
    /// that faults made NotReady do not count.
    pub(crate) max_taken_observed: usize,
    /// Total bring-ups: a recreated machine counts twice.
    pub(crate) bring_ups: usize,
    /// Commands over SSH per bring-up.
    pub(crate) remote_commands_per_node: f64,
    /// PowerShell processes per bring-up.
    pub(crate) powershell_starts_per_node: f64,
    /// SFTP sessions per bring-up.
    pub(crate) sftp_sessions_per_node: f64,
    /// Pods evicted within their budgets.
    pub(crate) pods_evicted: u64,
    /// Pods deleted without regard to a budget.
    pub(crate) pods_deleted: u64,
    /// Upgrade strategy.
    pub(crate) strategy: &'static str,
    /// Version at the end.
    pub(crate) version: String,
    /// Speed of the world relative to real time.
    pub(crate) speed: f64,
    /// Seed of the random numbers.
    pub(crate) seed: u64,
    /// Processor seconds of this process, including the simulated world.
    pub(crate) cpu_s: f64,
    /// Resident memory of this process in MiB, including the simulated world.
    pub(crate) rss_mib: f64,
    /// Real seconds from the first line to the last.
    pub(crate) seconds: f64,
}

impl DemoOutcome {
    /// Whether the demonstration showed all that it promises.
    pub(crate) fn good(&self, limit: usize) -> bool {
        self.joined == self.machines
            && self.upgraded == self.machines
            && self.max_taken_observed <= limit
    }

    /// Summary in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let retried = match self.failed_then_retried {
            0 => String::new(),
            1 => ", one that failed on the way was retried from its failed step".to_owned(),
            n => format!(", {n} that failed on the way were retried from their failed steps"),
        };
        let taken = self.max_taken_observed;
        let away = self.max_unavailable_observed;
        let by_faults = if away > taken {
            format!(" ({away} were away at once, with those that faults took)")
        } else {
            String::new()
        };
        format!(
            "{} of {} Windows machines became nodes{retried}, and {} were upgraded, never more than {taken} taken out of \
             service at once{by_faults}, in {:.0} s.",
            self.joined, self.machines, self.upgraded, self.seconds,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_too_many_that_was_taken_is_a_failure() {
        let outcome = |max_taken_observed| DemoOutcome {
            machines: 6,
            joined: 6,
            upgraded: 6,
            failed_then_retried: 0,
            // Of these, faults took five.
            max_unavailable_observed: 6,
            max_taken_observed,
            bring_ups: 12,
            remote_commands_per_node: 5.0,
            powershell_starts_per_node: 0.0,
            sftp_sessions_per_node: 1.0,
            pods_evicted: 0,
            pods_deleted: 0,
            strategy: "recreate",
            version: "1".into(),
            speed: 150.0,
            seed: 1,
            cpu_s: 1.0,
            rss_mib: 1.0,
            seconds: 1.0,
        };
        assert!(outcome(1).good(1));
        assert!(!outcome(2).good(1));
        assert!(outcome(2).good(2));
        let sentence = outcome(1).sentence();
        assert!(sentence.contains("never more than 1 taken"), "{sentence}");
        assert!(sentence.contains("6 were away at once"), "{sentence}");
    }
}
