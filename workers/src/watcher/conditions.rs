//! Conditions of a Machine that the watcher finds by comparing objects: its own object does not have them.

use super::{
    objects::ObservedMachine,
    view::{NameOf, View},
};
use crate::kubernetes::csr::FirstAsker;
use dormer_proto::{
    machine::{ConditionFact, MachineRef, OTHER_NAME, OTHER_NAME_POSSIBLE, OWN_REQUEST},
    message::cut,
};

/// Most requests that are compared with one machine, beside those with a token of one machine's own, which have a limit of
/// their own for each token.
const ASTRAY_MAX: usize = 100;

/// Conditions of this machine, of a dormer in namespace `home`.
pub(super) fn of(view: &View, machine: &ObservedMachine, home: &str) -> Vec<ConditionFact> {
    let asked = asked_by_a_stranger(view, machine);
    let asked = asked.or_else(|| asked_in_another_name(view, machine, home));
    let all = [contested(view, machine), asked, released(view, machine)];
    all.into_iter().flatten().collect()
}

/// Two Machines whose Nodes would have the same name: neither receives certificate requests for it, and both report
/// why.
fn contested(view: &View, machine: &ObservedMachine) -> Option<ConditionFact> {
    let name = machine.expected.as_ref().or(machine.fact.node.as_ref())?;
    let other = view.rival(name, &machine.fact.machine.uid)?;
    let MachineRef {
        namespace,
        name: other,
        ..
    } = &other.fact.machine;
    Some(ConditionFact {
        kind: "OwnNodeName".to_owned(),
        status: "False".to_owned(),
        reason: "TwoMachines".to_owned(),
        message: cut(format!(
            "the Node {name} would be the Machine's {namespace}/{other}, too: dormer approves no certificate request in that name"
        )),
    })
}

/// A Machine that refers to a MachineSet whose selector does not match its labels: the set has made another in its place.
fn released(view: &View, machine: &ObservedMachine) -> Option<ConditionFact> {
    let refers = machine.fact.owner.as_ref()?;
    if view.owner_of(machine).is_some() {
        return None;
    }
    Some(ConditionFact {
        kind: "OwnedBySet".to_owned(),
        status: "False".to_owned(),
        reason: "LabelsDiffer".to_owned(),
        message: cut(format!(
            "its labels do not match the selector of the MachineSet {}, which would not replace it",
            refers.name
        )),
    })
}

/// A request in the name of a Node that does not exist yet, from a user that may not have its certificate. It stays
/// pending, and the machine's kubelet makes no other. Only the first one is reported.
fn asked_by_a_stranger(view: &View, machine: &ObservedMachine) -> Option<ConditionFact> {
    let name = machine.expected.as_ref()?;
    if view.node_of(machine).is_some() {
        return None;
    }
    let uid = view.stranger_names.get(name)?.first()?;
    let csr = view.csrs.get(uid)?;
    let user = &csr.unknown_requester.as_ref()?.user;
    Some(ConditionFact {
        kind: OWN_REQUEST.to_owned(),
        status: "False".to_owned(),
        reason: "WrongUser".to_owned(),
        message: cut(format!(
            "{} asks in the name of the Node {name} as the user {user:?}, who may not have its certificate: it is not \
             approved",
            csr.fact.name
        )),
    })
}

/// A request of a host that says it is another Node than its machine's. It is approved for no machine. What a request shows
/// of its host is the user: of a token for one machine alone that is the machine's; with any other, each machine that waits
/// for its Node may be the one. A request in its own name ends that. Only the oldest one is reported.
fn asked_in_another_name(
    view: &View,
    machine: &ObservedMachine,
    home: &str,
) -> Option<ConditionFact> {
    let name = machine.expected.as_ref()?;
    let uid = &machine.fact.machine.uid;
    let asks_itself = view.csrs_of(machine).any(|csr| csr.fact.pending);
    if view.node_of(machine).is_some() || asks_itself {
        return None;
    }
    // A machine's own token shows whose host asks. Many requests that any host may have made do not hide that one.
    let mut others = 0;
    let astray = view.astray.iter().filter(|(csr, _)| {
        let first = view.csrs.get(*csr).and_then(|it| it.first.as_ref());
        let own = matches!(first, Some(FirstAsker::Own(_)));
        others += usize::from(!own);
        own || others <= ASTRAY_MAX
    });
    let all = astray.filter_map(|(csr, name_of)| {
        let csr = view.csrs.get(csr)?;
        let asker = csr.first.as_ref()?;
        let other = csr.node.as_ref()?;
        let may_be = other != name && asker.may_be(home, uid);
        may_be.then_some((csr, asker, other, *name_of))
    });
    // A kubelet asks again after a while. The first of its requests stays the one that is named.
    let rank = |asker: &FirstAsker| !matches!(asker, FirstAsker::Own(_));
    let (csr, asker, other, name_of) =
        all.min_by_key(|(csr, asker, ..)| (rank(asker), csr.resource))?;
    let csr = &csr.fact.name;
    let whose = match name_of {
        NameOf::Node => "the Node of that name is there, and another host has it",
        NameOf::OtherMachine => "another machine's Node is to have that name",
        NameOf::Nobody => "no machine is to have that name",
    };
    let (reason, message) = match asker {
        FirstAsker::Own(_) => (
            OTHER_NAME,
            format!(
                "{csr} asks for the certificate of {other} with this machine's own token: its host says that it is \
                 {other}, not {name}. It is not approved: {whose}"
            ),
        ),
        FirstAsker::Account(_) | FirstAsker::Shared => (
            OTHER_NAME_POSSIBLE,
            format!(
                "{csr} asks for the certificate of {other} with a token that hosts join with, and is not approved: \
                 {whose}. If this machine's host asks so, it says that it is {other}, not {name}"
            ),
        ),
    };
    Some(ConditionFact {
        kind: OWN_REQUEST.to_owned(),
        status: "False".to_owned(),
        reason: reason.to_owned(),
        message: cut(message),
    })
}
