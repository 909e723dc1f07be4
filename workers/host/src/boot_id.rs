//! Which boot this is: another identity proves a reboot.

use crate::{
    ops::{BootRead, Host},
    problem::{Doing as _, Result},
    session::Session,
};
use dormer_profile::answer::FailureCode;

const PREFETCH: &str =
    r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters";

/// Identity of this boot: the loader's counter from `KUSER_SHARED_DATA`, or its copy in the registry, which the kubelet
/// reports as `bootID`. Without both it is the second of the boot, which does not move when the clock is set.
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
