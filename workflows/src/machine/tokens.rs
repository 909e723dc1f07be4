//! Tokens on a machine's objects: those of an earlier store, restored ones, and ones that another client wrote.

use super::state::State;
use dormer_proto::{
    id::LeaseToken,
    machine::{NodeFact, TokenMark},
};

impl State {
    /// Highest token on its Machine and Node that an earlier store wrote.
    #[must_use]
    pub fn found_token(&self) -> Option<TokenMark> {
        let machine = self.machine.as_ref().and_then(|machine| machine.token);
        let node = self.node.as_ref().and_then(|node| node.token);
        // dormer writes each token first on the Machine. A host may write annotations of its own Node.
        let node = node.filter(|node| machine.is_some_and(|it| node.token <= it.token));
        let highest = machine.max(node)?;
        let earlier = highest.token > self.closed && highest.token.is_plausible(self.closed);
        (earlier && self.lease.token().is_none()).then_some(highest)
    }

    /// What is wrong with a token on its Machine or Node that dormer ignores, if there is one.
    pub(super) fn forged_token(&self) -> Option<String> {
        let machine = self.machine.as_ref()?;
        let ours = self.closed.max(self.lease.token().unwrap_or_default());
        let on_machine = machine.token.map(|mark| mark.token).unwrap_or_default();
        if !on_machine.is_plausible(ours) {
            let name = &machine.machine.name;
            return Some(written_by_others(on_machine, &format!("Machine {name}")));
        }
        let node = self.node.as_ref()?;
        let on_node = node.token.filter(|it| it.token > ours.max(on_machine))?;
        if machine.token.is_none() && on_node.token.is_plausible(ours) {
            return self.left_token(node, on_node);
        }
        let name = format!("Node {}", node.name);
        Some(written_by_others(on_node.token, &name))
    }

    /// What is wrong with a Node's open token where the Machine has none: its object was made anew in the middle of a change,
    /// or the Node's host wrote the token. A closed one is what every change leaves behind.
    fn left_token(&self, node: &NodeFact, mark: TokenMark) -> Option<String> {
        if !mark.open {
            return None;
        }
        let name = &node.name;
        let token = mark.token;
        let object = match self.own_host() {
            true => "WindowsHost",
            false => "Machine",
        };
        let cordon = match node.cordoned {
            true => ". The Node is still cordoned: uncordon it, unless a person wants that",
            false => "",
        };
        Some(format!(
            "the Node {name} has the open token {token}, and its {object} has none: the {object} was \
             created anew in the middle of that change, or another client wrote the token. dormer does not continue the \
             change{cordon}"
        ))
    }

    /// Token of an open fence from an earlier store: an upgrade that the earlier store began.
    #[must_use]
    pub fn stray_token(&self) -> Option<TokenMark> {
        self.found_token().filter(|mark| mark.open)
    }

    /// Open token on its Machine and its Node that this run has returned: the restore of an older etcd brought it back, and
    /// with it a cordon of dormer's.
    pub(super) fn restored_token(&self) -> Option<TokenMark> {
        let machine = self.machine.as_ref()?.token.filter(|it| it.open)?;
        let node = self.node.as_ref()?.token.filter(|it| it.open)?;
        let ended = node.token <= machine.token && machine.token <= self.closed;
        (ended && self.lease.token().is_none()).then_some(machine)
    }

    /// Takes over the close of a restored token that an older build ordered: only the note of its record says so. Without
    /// that note the token is one that was just closed, and the facts are late.
    pub(super) fn take_over_restored(&mut self) {
        let token = self.restored_token().map(|mark| mark.token);
        self.restored |= token.is_some_and(|it| self.note == Some(older_restored_note(it)));
    }
}

/// [`restored_note`] as builds without [`State::restored`] have it in their records. It never changes.
fn older_restored_note(token: LeaseToken) -> String {
    format!(
        "token {token} is open on its objects once more, as by the restore of an older etcd: dormer closes it again"
    )
}

/// Note about a restored token that is closed again.
pub(super) fn restored_note(token: LeaseToken) -> String {
    format!(
        "token {token} is open again on its objects, as after a restore of etcd: dormer closes it again"
    )
}

/// Text about a token in the annotation of `object` that no rollout has granted.
fn written_by_others(token: LeaseToken, object: &str) -> String {
    format!(
        "another client wrote token {token} in the annotation dormer.io/fence of the {object}, and dormer ignores it: find out \
         who did"
    )
}
