//! Ports of workers and of the watcher: the source of orders, and the receivers of reports and facts.

use dormer_proto::{
    id::{Epoch, Incarnation},
    message::{Heartbeat, RemoteCommand},
    work::{FactMessage, Order, Report},
};
use std::future::Future;

/// Error of a port that did not answer; the same call may succeed later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the engine does not answer: {0}")]
pub struct PortError(pub String);

/// Order with the adapter's handle on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed<C> {
    /// The adapter's own handle of the claim: a heartbeat extends it, and a receipt ends it.
    pub claim: C,
    pub order: Order,
}

/// Source of a worker's orders, and receiver of its reports. Only machine runs have tasks.
///
/// # Contract
/// - `take` waits until there is an order and returns at most `limit` of them, never none. It is safe to cancel: an
///   order that was not returned is delivered again.
/// - An order may be delivered twice, also to two workers at once; the engine takes one report for each attempt.
/// - A claim that no `heartbeat` extends lapses, and its order is delivered again.
/// - `report` repeats the report until it has the engine's receipt, and only then ends the claim. An error means that no
///   receipt came: the worker calls it again.
pub trait Orders: Send + Sync + 'static {
    /// The adapter's hold on one order.
    type Claim: Send + Sync + 'static;
    /// Waits for orders.
    fn take(
        &self,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Claimed<Self::Claim>>, PortError>> + Send;
    /// Extends a claim, and shows people how far the attempt has come.
    fn heartbeat(
        &self,
        claim: &Self::Claim,
        heartbeat: Heartbeat,
    ) -> impl Future<Output = Result<(), PortError>> + Send;
    /// Publishes a finished remote command for people. It may be lost, and no one waits for it.
    fn show(&self, command: RemoteCommand) -> impl Future<Output = ()> + Send {
        drop(command);
        std::future::ready(())
    }
    /// Reports the result of an attempt.
    fn report(
        &self,
        claim: &Self::Claim,
        report: Report,
    ) -> impl Future<Output = Result<(), PortError>> + Send;
}

/// Data that the watcher needs before its first list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochStart {
    /// The store that the messages belong to.
    pub incarnation: Incarnation,
    /// A new epoch: larger than every one drawn from this store before.
    pub epoch: Epoch,
    /// UIDs of the machines whose runs have not ended. One that is missing from the full list is gone.
    pub live: Vec<String>,
}

/// Receiver of the watcher's facts.
///
/// # Contract
/// - `begin` draws the epoch from the store before the list that the epoch is for.
/// - `publish` succeeds only once every message is in the inbox for good. After an error some may be: publishing all
///   of them again is harmless, since facts say how things are.
pub trait Facts: Send + Sync + 'static {
    /// Begins a new epoch.
    fn begin(&self) -> impl Future<Output = Result<EpochStart, PortError>> + Send;
    /// Publishes messages.
    fn publish(
        &self,
        messages: Vec<FactMessage>,
    ) -> impl Future<Output = Result<(), PortError>> + Send;
}
