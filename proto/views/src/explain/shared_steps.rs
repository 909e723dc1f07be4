//! Steps that several phases share.

use super::step::Step;
use crate::{
    machine::{Machine, MachineKind},
    open_enum::OpenEnum,
};

/// What a person says of an uncordon.
pub(super) const UNCORDON: &str = "Uncordon the Node once it may be upgraded";

/// Label of a Machine that dormer leaves alone.
pub(super) const IGNORE: &str = "windowsmachineconfig.openshift.io/ignore";

/// Command of kubectl in the Machine's namespace.
pub(super) fn kubectl(machine: &Machine, say: &str, words: &[&str]) -> Step {
    let mut argv = vec!["kubectl"];
    if !machine.namespace.is_empty() {
        argv.extend(["-n", &machine.namespace]);
    }
    argv.extend(words);
    Step::command(say, &argv)
}

/// Look at the pools' own Events.
pub(super) fn pools() -> Step {
    pool_objects("See what was refused")
}

/// Look at the pools.
pub(super) fn pool_objects(say: &str) -> Step {
    Step::command(say, &["kubectl", "describe", "windowspool", "-A"])
}

/// What a command of kubectl selects by the name of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Selected {
    /// The pods on the Node.
    Pods,
    /// The pod that checks the Node from within.
    Canary,
    /// Events of that pod.
    CanaryEvents,
    /// The pod that connects to that pod.
    Peer,
}

impl Selected {
    const ALL: [Self; 4] = [Self::Pods, Self::Canary, Self::CanaryEvents, Self::Peer];

    /// Selector before the name of the Node.
    pub(super) fn before_node(self) -> &'static str {
        match self {
            Self::Pods => "spec.nodeName=",
            Self::Canary => "metadata.name=canary-",
            Self::CanaryEvents => "involvedObject.name=canary-",
            Self::Peer => "metadata.name=peer-of-canary-",
        }
    }

    /// The selection in a word of a command, and the name of the Node there.
    pub(super) fn in_word(word: &str) -> Option<(Self, &str)> {
        let mut all = Self::ALL.into_iter();
        all.find_map(|it| Some((it, word.strip_prefix(it.before_node())?)))
    }
}

/// Command that ends in a selector with the name of a Node.
pub(super) fn selected(what: Selected, node: &str, say: &str, argv: &[&str]) -> Step {
    let selector = format!("{}{node}", what.before_node());
    Step::command(say, &[argv, &[&selector]].concat())
}

/// Replacement by dormer.
pub(super) fn recreated(machine: &Machine) -> Step {
    Step::command("Replace it", &["dormer", "recreate", &machine.name])
}

/// Retry of a step that dormer tries again later by itself.
pub(super) fn at_once(machine: &Machine) -> Option<Step> {
    let retry = ["dormer", "retry", machine.name.as_str()];
    let say = "Try again at once, instead of waiting";
    machine
        .waits_for_attempt()
        .then(|| Step::command(say, &retry))
}

/// Replacement of a Machine that does not serve yet.
pub(super) fn deleted(machine: &Machine) -> Step {
    let say = match machine.kind.as_ref().and_then(OpenEnum::known) {
        Some(MachineKind::WindowsHost) => "Give the host up",
        _ => "Let its MachineSet create another",
    };
    kubectl(machine, say, &["delete", machine.resource(), &machine.name])
}

/// Owner of the Machine, for people.
pub(super) fn owner(machine: &Machine) -> &str {
    machine.owner.as_deref().unwrap_or("its MachineSet")
}

/// Name of its Node or, before there is one, the expected name.
pub(super) fn node(machine: &Machine) -> &str {
    known_node(machine).unwrap_or(&machine.name)
}

/// Name of its Node, or the expected one, if either is known.
pub(super) fn known_node(machine: &Machine) -> Option<&str> {
    machine.node.as_deref().or(machine.expected_node.as_deref())
}
