//! A host that asks for a certificate in the name of another Node than its machine's, as the watcher found it.

use crate::machine::Machine;
use dormer_proto::machine::{OTHER_NAME, OTHER_NAME_POSSIBLE, OWN_REQUEST};

/// Request of a host that asks, or may ask, in the name of another Node than its machine's.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherName<'a> {
    /// Name of the request.
    pub(super) csr: &'a str,
    /// Whether the request shows that it is this machine's host.
    pub(super) sure: bool,
    /// What was seen.
    pub(super) text: &'a str,
}

/// The request in another Node's name that the watcher found for this machine.
pub(super) fn other_name(machine: &Machine) -> Option<OtherName<'_>> {
    let mut all = machine.machine_conditions.iter();
    let found = all.find(|it| {
        it.kind == OWN_REQUEST && [OTHER_NAME, OTHER_NAME_POSSIBLE].contains(&it.reason.as_str())
    })?;
    Some(OtherName {
        csr: found.message.split(' ').next()?,
        sure: found.reason == OTHER_NAME,
        text: &found.message,
    })
}
