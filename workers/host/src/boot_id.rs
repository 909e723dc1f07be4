//! Which boot this is: another identity proves a reboot.

use crate::{
    ops::{BootRead, Host},
    problem::{Doing as _, Result},
    session::Session,
};
use dormer_profile::answer::FailureCode;

const PREFETCH: &str =
    r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters";
/// A boot's time as two readers see it can differ by so many seconds: clocks are set, and rounded.
const SLACK_SECONDS: u64 = 60;

/// Whether two boot identities are of one boot. Windows' own number, in decimal, is compared as it is; `t` and the second
/// of the boot, where Windows has no number, with slack. A number and a second say nothing about each other: not the same.
pub fn same_boot(one: &str, other: &str) -> bool {
    let second = |text: &str| text.strip_prefix('t').and_then(|n| n.parse::<u64>().ok());
    match (second(one), second(other)) {
        (Some(one), Some(other)) => one.abs_diff(other) <= SLACK_SECONDS,
        _ => one == other,
    }
}

/// The identity of this boot: the loader's counter (`KUSER_SHARED_DATA`, then the registry's copy of it, which the
/// kubelet reports as `bootID`), else the second of the boot, which does not move when the clock is set.
pub(crate) async fn read<H: Host>(host: &mut Session<H>) -> Result<(String, i64)> {
    let boot = host.ask(BootRead {}).await;
    let boot = boot.doing(FailureCode::Other, || "read the boot's identity".into())?;
    let number = match boot.kuser_boot_id {
        0 => host.registry_number(PREFETCH, "BootId").await?,
        number => Some(number),
    };
    let id = match number {
        Some(number) => number.to_string(),
        None => format!("t{}", boot.steady_ms.div_euclid(1_000)),
    };
    Ok((id, boot.booted_ms))
}

#[cfg(test)]
mod tests {
    use super::same_boot;

    #[test]
    fn a_moved_second_is_no_reboot_and_another_number_is() {
        assert!(same_boot("42", "42"));
        assert!(!same_boot("42", "43"));
        assert!(same_boot("t1700000000", "t1700000060"));
        assert!(same_boot("t1700000060", "t1700000000"));
        assert!(!same_boot("t1700000000", "t1700000061"));
        assert!(!same_boot("42", "t42"));
        assert!(!same_boot("t42", "42"));
        assert!(same_boot("tx", "tx"));
    }
}
