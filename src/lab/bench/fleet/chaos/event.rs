//! Events on the clock of the simulated cluster.

use super::engine::Message;
use dormer_proto::{
    id::{RunId, Timestamp},
    work::Order,
};

/// One thing that is to happen.
pub(super) enum WorldEvent {
    /// A message reaches its run.
    Message(Box<Message>),
    /// An alarm is due, unless it was replaced.
    Alarm(RunId, Timestamp),
    /// A worker does a task, at its end.
    Perform(Box<Order>),
    /// MachineSets are brought to their size.
    Sets,
    /// The kubelet of a Machine's host starts.
    Kubelet(String),
    /// A Node is what its kubelet has made of it by now.
    Reconcile(String),
    /// The instance of a deleted Machine is terminated, and its Node deleted.
    Terminate(String),
    /// People and networks do something.
    Chaos,
    /// Something that was done is undone.
    Undo(Undo),
    /// A payload is installed.
    Payload,
    /// An operator handles machines that wait for a person.
    Attend,
    /// WMCO does something.
    Wmco(WmcoStep),
}

/// What WMCO does.
#[derive(Clone, Copy)]
pub(super) enum WmcoStep {
    /// It is installed.
    Comes,
    /// It takes up the next Machine.
    Works,
    /// It is stopped.
    Goes,
}

/// Change that is reverted later.
pub(super) enum Undo {
    /// A node is uncordoned by the one who cordoned it.
    Cordon(String),
    /// A kubelet reaches the API server again.
    Cut(String),
    /// A kubelet is cut off again.
    Flap(String),
    /// The pool is there again.
    Prune,
    /// The label is taken away.
    Ignore(String),
    /// The host is restarted, and with it its kubelet.
    Restart(String),
    /// The providerID is written as it was.
    Rename(String),
    /// The watcher reads the Node again.
    Unseen(String),
    /// The rollout continues.
    Pause,
    /// The machine continues.
    Hold(RunId),
    /// A person gives up a dead host's Machine.
    GiveUp(String),
}
