//! Table of the actions that people may ask for: the states from which they work, their signals, their need of the
//! lease, and their danger. `--help`, the API's document and its list of actions come from here.
//! `workflows/tests/actions.rs` compares the table with the decisions of the workflows.

use dormer_proto::{machine, rollout, work::Signal};

/// Kind of object that an action is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActionTarget {
    Machine,
    /// A pool's rollout.
    Rollout,
    /// A run of either workflow; the engine carries the action out.
    Run,
    DeadLetter,
}

impl ActionTarget {
    /// Name for people.
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
    /// It disturbs no node, and takes effect at once.
    No,
    /// It is recorded, and carried out once the lease is granted.
    Waits,
    /// It ends the change under the lease, and returns the lease.
    GivesBack,
}

impl Lease {
    /// Part of a sentence about the action.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::No => "needs no lease",
            Self::Waits => "waits for the rollout's lease",
            Self::GivesBack => "returns the rollout's lease",
        }
    }
}

/// Action that people may ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Name on the command line and in the API's paths.
    pub name: &'static str,
    /// Kind of its object.
    pub on: ActionTarget,
    /// Effect, in one sentence without a full stop.
    pub what: &'static str,
    /// Answer after the request is recorded: the finished action, or its acceptance if it takes effect later. For an
    /// action that names a payload or a record, that name follows.
    pub done: &'static str,
    /// States in which it has an effect. In others it is recorded and changes nothing. Empty: every state.
    pub from: &'static [&'static str],
    /// Further conditions, in words.
    pub when: &'static str,
    /// Its signal to the run. `None`: the engine or the inbox carries it out.
    pub signal: Option<Signal>,
    /// Whether it needs the lease.
    pub lease: Lease,
    /// Loss that a person must confirm first. `None`: nothing is lost.
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

    /// Conditions and consequences, in two sentences.
    #[must_use]
    pub fn terms(&self) -> String {
        let from = match (self.from, self.when) {
            ([], "") => "Works in every state".to_owned(),
            ([], when) => format!("Works {when}"),
            (states, "") => format!("Works in {}", states.join(", ")),
            (states, when) => format!("Works in {}, {when}", states.join(", ")),
        };
        let danger = self
            .danger
            .map_or_else(String::new, |what| format!("; dangerous: {what}"));
        format!("{from}. It {}{danger}.", self.lease.text())
    }
}

const fn of_machine(
    name: &'static str,
    signal: machine::Signal,
    what: &'static str,
    done: &'static str,
    from: &'static [&'static str],
) -> Action {
    Action {
        name,
        on: ActionTarget::Machine,
        what,
        done,
        from,
        when: "",
        signal: Some(Signal::Machine(signal)),
        lease: Lease::No,
        danger: None,
    }
}

/// Continue from the step that failed, or make the next attempt at once.
pub const RETRY: Action = of_machine(
    "retry",
    machine::Signal::Retry,
    "Continue from the step that failed, or make a step's next attempt now instead of later",
    "retried",
    &[],
)
.when("if it has failed, or waits for the next attempt of a step");
/// Start nothing new on a machine.
pub const PAUSE: Action = of_machine(
    "pause",
    machine::Signal::Pause,
    "Start nothing new on a machine; the current step finishes",
    "paused",
    &[],
)
.when("until the run has ended");
/// End a pause, a hold or a drain.
pub const RESUME: Action = of_machine(
    "resume",
    machine::Signal::Resume,
    "End a pause, a hold or a drain",
    "resumed",
    &[],
)
.when("if it was paused, held or drained");
/// Keep a machine as it is.
pub const HOLD: Action = of_machine(
    "hold",
    machine::Signal::Hold,
    "Keep a machine as it is, out of the rollout, until it is resumed",
    "held",
    &[],
)
.when("until the run has ended");
/// Cordon and drain a node.
pub const DRAIN: Action = of_machine(
    "drain",
    machine::Signal::Drain,
    "Cordon and drain a machine's node until it is resumed, once the rollout grants the lease",
    "drain accepted",
    &[],
)
.lease(Lease::Waits)
.danger("pods on its node are evicted");
/// Replace a machine.
pub const RECREATE: Action = of_machine(
    "recreate",
    machine::Signal::Recreate,
    "Replace a machine with a new one, once the rollout grants the lease",
    "replacement accepted",
    &[],
)
.when("if a MachineSet replaces it")
.lease(Lease::Waits)
.danger("its Machine is deleted");
/// Approve the upgrade of a machine.
pub const APPROVE: Action = of_machine(
    "approve",
    machine::Signal::Approve,
    "Approve a machine's upgrade to its present desired version; in pools whose upgrades need approval",
    "approved",
    &[],
)
.lease(Lease::Waits);
/// Abort an upgrade.
pub const ABORT: Action = of_machine(
    "abort",
    machine::Signal::Abort,
    "Abort an upgrade that runs or waits: the node is uncordoned, and the machine is held",
    "abort accepted",
    &["Joined", "Draining", "Failed"],
)
.when(
    "while its upgrade runs or waits for the lease or an approval, as long as nothing was deleted or torn down",
)
.lease(Lease::GivesBack);
/// Close a machine's run.
pub const REMOVE: Action = of_machine(
    "remove",
    machine::Signal::Remove,
    "Close a machine's run; the Machine stays, and dormer no longer changes it",
    "removed from dormer",
    &[],
)
.when("unless it holds the lease")
.danger("dormer forgets it, until a reset takes that back");
/// Trust a host's new key. Its signal names it.
pub const TRUST_HOST_KEY: Action = of_machine(
    "trust-host-key",
    machine::Signal::TrustHostKey {
        fingerprint: String::new(),
    },
    "Trust the host key with this fingerprint, because the host was reinstalled on purpose",
    "host key trusted",
    &[],
)
.when("until the run has ended")
.danger("anyone who has that key gets the machine's secrets");
/// Return to an earlier record.
pub const RESET: Action = Action {
    name: "reset",
    on: ActionTarget::Run,
    what: "Return to an earlier record of a run, and continue from there",
    done: "reset to record",
    from: &[],
    when: "as long as that record is kept and the Machine is not being deleted",
    signal: None,
    lease: Lease::No,
    danger: Some("the steps since then run again"),
};
/// Grant no new lease in a pool.
pub const PAUSE_POOL: Action = Action {
    name: "pause",
    on: ActionTarget::Rollout,
    what: "Grant no new lease in a pool; machines that hold one finish",
    done: "paused",
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
    done: "resumed",
    from: &["Paused"],
    when: "unless the pool's settings pause it as well",
    signal: Some(Signal::Rollout(rollout::Signal::Resume)),
    lease: Lease::No,
    danger: None,
};
/// Roll back to an earlier payload. Its signal names the payload.
pub const ROLLBACK: Action = Action {
    name: "rollback",
    on: ActionTarget::Rollout,
    what: "Roll back one step, to a payload from which the present one is an upgrade",
    done: "rolling back to",
    from: &[],
    when: "if that payload is installed",
    signal: Some(Signal::Rollout(rollout::Signal::Rollback {
        to: String::new(),
    })),
    lease: Lease::Waits,
    danger: Some("its machines are changed, one after the other"),
};
pub const END_ROLLBACK: Action = Action {
    name: "end-rollback",
    on: ActionTarget::Rollout,
    what: "End a rollback: the payload in the pool's spec applies again",
    done: "the rollback ends",
    from: &[],
    when: "while a rollback is in force",
    signal: Some(Signal::Rollout(rollout::Signal::EndRollback)),
    lease: Lease::Waits,
    danger: Some("its machines are changed, one after the other"),
};
/// Requeue a dead letter.
pub const REQUEUE: Action = Action {
    name: "requeue",
    on: ActionTarget::DeadLetter,
    what: "Put a dead letter back into the inbox: a newer build may understand it",
    done: "in the inbox again",
    from: &[],
    when: "",
    signal: None,
    lease: Lease::No,
    danger: None,
};

/// All actions.
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
    END_ROLLBACK,
    REQUEUE,
];

#[must_use]
pub fn action(on: ActionTarget, name: &str) -> Option<&'static Action> {
    ACTIONS
        .iter()
        .find(|action| action.on == on && action.name == name)
}
