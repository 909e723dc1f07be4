//! The one table of what people may ask for: from which states, what it tells the run, whether it needs the lease, and
//! what comes of it. `--help`, the API's document and its list of actions come from here, and `tests/actions.rs` holds
//! it against what the workflows decide.

use dormer_proto::{machine, rollout, work::Signal};

/// On what an action is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionTarget {
    /// A machine.
    Machine,
    /// A pool's rollout.
    Rollout,
    /// A run of either workflow: the engine's own doing.
    Run,
    /// A dead letter.
    DeadLetter,
}

impl ActionTarget {
    /// Its name, as people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Rollout => "rollout",
            Self::Run => "run",
            Self::DeadLetter => "dead letter",
        }
    }
}

/// Whether an action needs the rollout's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// It disturbs nobody, and takes effect at once.
    No,
    /// It is noted, and carried out once the lease is granted.
    Waits,
    /// It ends what goes on under the lease, and gives the lease back.
    GivesBack,
}

impl Lease {
    /// In a sentence.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::No => "needs no lease",
            Self::Waits => "waits for the rollout's lease",
            Self::GivesBack => "gives the rollout's lease back",
        }
    }
}

/// Something that people may ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Its word, on the command line and in the API's paths.
    pub name: &'static str,
    /// On what.
    pub on: ActionTarget,
    /// What it does, in one sentence without a full stop.
    pub what: &'static str,
    /// In which states it does something. In others it is on record and changes nothing. Empty: in every one.
    pub from: &'static [&'static str],
    /// What else has to hold, in words.
    pub when: &'static str,
    /// What it tells the run. `None`: the engine, or the inbox, does it.
    pub signal: Option<Signal>,
    /// Whether it needs the lease.
    pub lease: Lease,
    /// What a person should have meant: asked about before. `None`: nothing is lost by it.
    pub danger: Option<&'static str>,
}

impl Action {
    const fn when(mut self, when: &'static str) -> Self {
        self.when = when;
        self
    }

    const fn lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    const fn danger(mut self, what: &'static str) -> Self {
        self.danger = Some(what);
        self
    }

    /// Where it works, and at what price, in two sentences.
    #[must_use]
    pub fn terms(&self) -> String {
        let from = match self.from {
            [] => "Works in every state".to_owned(),
            states => format!("Works in {}", states.join(", ")),
        };
        let when = if self.when.is_empty() {
            String::new()
        } else {
            format!(", {}", self.when)
        };
        let danger = self
            .danger
            .map_or_else(String::new, |what| format!("; dangerous: {what}"));
        format!("{from}{when}. It {}{danger}.", self.lease.text())
    }
}

const fn of_machine(
    name: &'static str,
    signal: machine::Signal,
    what: &'static str,
    from: &'static [&'static str],
) -> Action {
    let signal = Some(Signal::Machine(signal));
    let when = "";
    let lease = Lease::No;
    let danger = None;
    Action {
        name,
        on: ActionTarget::Machine,
        what,
        from,
        when,
        signal,
        lease,
        danger,
    }
}

/// Go on from the step that failed.
pub const RETRY: Action = of_machine(
    "retry",
    machine::Signal::Retry,
    "Go on from the step that failed",
    &["Failed"],
);
/// Start nothing new on a machine.
pub const PAUSE: Action = of_machine(
    "pause",
    machine::Signal::Pause,
    "Start nothing new on a machine; the step that is under way goes on to its end",
    &[],
)
.when("until the run has ended");
/// End a pause, a hold or a drain.
pub const RESUME: Action = of_machine(
    "resume",
    machine::Signal::Resume,
    "End a pause, a hold or a drain",
    &[],
)
.when("if it was paused, held or drained");
/// Leave a machine as it is.
pub const HOLD: Action = of_machine(
    "hold",
    machine::Signal::Hold,
    "Leave a machine as it is, out of the rollout, until it is resumed",
    &[],
)
.when("until the run has ended");
/// Cordon and drain a node.
pub const DRAIN: Action = of_machine(
    "drain",
    machine::Signal::Drain,
    "Cordon and drain a machine's node until it is resumed, when the rollout lets it",
    &[],
)
.lease(Lease::Waits)
.danger("pods on its node are evicted");
/// Replace a machine.
pub const RECREATE: Action = of_machine(
    "recreate",
    machine::Signal::Recreate,
    "Replace a machine by a new one, when the rollout lets it",
    &[],
)
.when("if a MachineSet replaces it")
.lease(Lease::Waits)
.danger("its Machine is deleted");
/// Let a machine be upgraded.
pub const APPROVE: Action = of_machine(
    "approve",
    machine::Signal::Approve,
    "Let a machine be upgraded to what is wanted now, in a pool whose upgrades need approval",
    &[],
)
.lease(Lease::Waits);
/// Give up an upgrade.
pub const ABORT: Action = of_machine(
    "abort",
    machine::Signal::Abort,
    "Give up an upgrade that is going on: the node is uncordoned, and the machine held",
    &["Joined", "Draining", "Failed"],
)
.when("as long as nothing was deleted or torn down")
.lease(Lease::GivesBack);
/// Close a machine's run.
pub const REMOVE: Action = of_machine(
    "remove",
    machine::Signal::Remove,
    "Close a machine's run; the Machine stays, and dormer touches it no more",
    &[],
)
.when("unless it holds the lease")
.danger("dormer forgets it");
/// Trust a host's new key. Its signal names it.
pub const TRUST_HOST_KEY: Action = of_machine(
    "trust-host-key",
    machine::Signal::TrustHostKey {
        fingerprint: String::new(),
    },
    "Trust the host key of this fingerprint, since the host was rightfully installed anew",
    &[],
)
.when("until the run has ended")
.danger("whoever has that key gets the machine's secrets");
/// Go back to an earlier record.
pub const RESET: Action = Action {
    name: "reset",
    on: ActionTarget::Run,
    what: "Go back to an earlier record of a run, and go on from there",
    from: &[],
    when: "as long as that record is kept and the Machine is not being deleted",
    signal: None,
    lease: Lease::No,
    danger: Some("steps since then are done again"),
};
/// Grant nothing new in a pool.
pub const PAUSE_POOL: Action = Action {
    name: "pause",
    on: ActionTarget::Rollout,
    what: "Grant nothing new in a pool; whoever has the lease finishes",
    from: &[],
    when: "",
    signal: Some(Signal::Rollout(rollout::Signal::Pause)),
    lease: Lease::No,
    danger: None,
};
/// Grant again.
pub const RESUME_POOL: Action = Action {
    name: "resume",
    on: ActionTarget::Rollout,
    what: "End a pool's pause",
    from: &["Paused"],
    when: "unless the pool's settings pause it, too",
    signal: Some(Signal::Rollout(rollout::Signal::Resume)),
    lease: Lease::No,
    danger: None,
};
/// Go back one step. Its signal names the payload.
pub const ROLLBACK: Action = Action {
    name: "rollback",
    on: ActionTarget::Rollout,
    what: "Go back one step, to a payload that the present one may follow",
    from: &[],
    when: "if that payload is installed",
    signal: Some(Signal::Rollout(rollout::Signal::Rollback {
        to: String::new(),
    })),
    lease: Lease::Waits,
    danger: Some("its machines are changed, one after another"),
};
/// Put a dead letter back.
pub const REQUEUE: Action = Action {
    name: "requeue",
    on: ActionTarget::DeadLetter,
    what: "Put a dead letter back into the inbox: a newer build may understand it",
    from: &[],
    when: "",
    signal: None,
    lease: Lease::No,
    danger: None,
};

/// All of them.
pub const ACTIONS: &[Action] = &[
    RETRY,
    PAUSE,
    RESUME,
    HOLD,
    DRAIN,
    RECREATE,
    APPROVE,
    ABORT,
    REMOVE,
    TRUST_HOST_KEY,
    RESET,
    PAUSE_POOL,
    RESUME_POOL,
    ROLLBACK,
    REQUEUE,
];

/// The action of this word.
#[must_use]
pub fn action(on: ActionTarget, name: &str) -> Option<&'static Action> {
    ACTIONS
        .iter()
        .find(|action| action.on == on && action.name == name)
}
