//! Resource usage of this process: processor time and memory.

/// Processor seconds of this process, user and system.
pub(crate) fn cpu_seconds() -> f64 {
    cpu_seconds_of("self")
}

/// Processor seconds of a process, user and system (`/proc/PID/stat`; 100 ticks a second on Linux).
pub(crate) fn cpu_seconds_of(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |at: usize| -> f64 {
        after_name
            .split_whitespace()
            .nth(at)
            .and_then(|f| f.parse().ok())
            .unwrap_or(0.0)
    };
    (field(11) + field(12)) / 100.0
}

/// Resident memory of this process, in MiB.
pub(crate) fn rss_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap_or_default();
    line.split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1_024.0
}
