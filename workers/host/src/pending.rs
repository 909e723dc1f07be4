//! Changes of Windows itself that wait for a reboot: the host's name, and servicing.

use dormer_profile::answer::FailureCode;

use crate::{
    ops::{Host, RegistryList, SystemRead},
    problem::{Doing as _, Result},
    session::Session,
};

/// Key of the host's names and domains.
pub(crate) const TCPIP: &str = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters";
const SERVICING: &str =
    r"SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending";

/// The host's name now, and the one after the next reboot where that is another.
///
/// The DNS host name, under which the kubelet registers (Go's `os.Hostname`), not the NetBIOS name. That has at most 15
/// characters: two host names may share it (docs/field-notes.md, Registry, roots, computer names).
pub(crate) async fn names<H: Host>(host: &mut Session<H>) -> Result<(String, Option<String>)> {
    let system = host.ask(SystemRead {}).await;
    let system = system.doing(FailureCode::Other, || "read the system's facts".into())?;
    let mut now = host.registry_text(TCPIP, "Hostname").await?;
    if now.is_empty() {
        now = system.dns_host_name;
    }
    let next = host.registry_text(TCPIP, "NV Hostname").await?;
    let next = (!next.is_empty() && !next.eq_ignore_ascii_case(&now)).then_some(next);
    Ok((now, next))
}

/// Whether servicing waits for a reboot: the one sign of Windows that holds anything up, and that DISM alone.
pub(crate) async fn servicing_waits<H: Host>(host: &mut Session<H>) -> Result<bool> {
    let key = RegistryList {
        key: SERVICING.into(),
    };
    match host.ask(key).await {
        Ok(_) => Ok(true),
        Err(error) if error.number() == 2 => Ok(false),
        Err(error) => Err(error).doing(FailureCode::Other, || format!("read {SERVICING}")),
    }
}
