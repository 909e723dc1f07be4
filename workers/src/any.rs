//! Ports and executors behind one type each, so that worker and watcher are compiled once and not once for each store.

use crate::{
    execute::Execute,
    pool::Installed,
    port::{Claimed, EpochStart, Facts, Orders, PortError},
    progress::Progress,
    watcher::{self, Status, WatchError},
    worker,
};
use dormer_proto::{
    machine::Outcome,
    message::{Failure, Heartbeat, RemoteCommand},
    work::{FactMessage, Order, Report},
};
use futures::future::BoxFuture;
use std::{any::Any, sync::Arc};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Claim of any adapter.
type AnyClaim = Box<dyn Any + Send + Sync>;

/// [`Orders`] with boxed futures and claims.
trait OrdersObject: Send + Sync + 'static {
    fn take(&self, limit: usize) -> BoxFuture<'_, Result<Vec<Claimed<AnyClaim>>, PortError>>;
    fn heartbeat<'a>(
        &'a self,
        claim: &'a AnyClaim,
        heartbeat: Heartbeat,
    ) -> BoxFuture<'a, Result<(), PortError>>;
    fn show(&self, command: RemoteCommand) -> BoxFuture<'_, ()>;
    fn report<'a>(
        &'a self,
        claim: &'a AnyClaim,
        report: Report,
    ) -> BoxFuture<'a, Result<(), PortError>>;
}

/// The adapter's own claim. Only its own `take` makes the claims that come back to it.
fn own<O: Orders>(claim: &AnyClaim) -> Result<&O::Claim, PortError> {
    claim
        .downcast_ref()
        .ok_or_else(|| PortError("a claim of another source of orders".into()))
}

impl<O: Orders> OrdersObject for O {
    fn take(&self, limit: usize) -> BoxFuture<'_, Result<Vec<Claimed<AnyClaim>>, PortError>> {
        Box::pin(async move {
            let taken = Orders::take(self, limit).await?;
            let boxed = taken.into_iter().map(|claimed| Claimed {
                claim: Box::new(claimed.claim) as AnyClaim,
                order: claimed.order,
            });
            Ok(boxed.collect())
        })
    }
    fn heartbeat<'a>(
        &'a self,
        claim: &'a AnyClaim,
        heartbeat: Heartbeat,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move { Orders::heartbeat(self, own::<O>(claim)?, heartbeat).await })
    }
    fn show(&self, command: RemoteCommand) -> BoxFuture<'_, ()> {
        Box::pin(Orders::show(self, command))
    }
    fn report<'a>(
        &'a self,
        claim: &'a AnyClaim,
        report: Report,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move { Orders::report(self, own::<O>(claim)?, report).await })
    }
}

/// Any source of orders.
struct AnyOrders(Arc<dyn OrdersObject>);

impl Orders for AnyOrders {
    type Claim = AnyClaim;
    async fn take(&self, limit: usize) -> Result<Vec<Claimed<AnyClaim>>, PortError> {
        self.0.take(limit).await
    }
    async fn heartbeat(&self, claim: &AnyClaim, heartbeat: Heartbeat) -> Result<(), PortError> {
        self.0.heartbeat(claim, heartbeat).await
    }
    async fn show(&self, command: RemoteCommand) {
        self.0.show(command).await;
    }
    async fn report(&self, claim: &AnyClaim, report: Report) -> Result<(), PortError> {
        self.0.report(claim, report).await
    }
}

/// [`Execute`] with boxed futures.
trait ExecuteObject: Send + Sync + 'static {
    fn ready<'a>(
        &'a self,
        order: &'a Order,
        progress: &'a Progress,
        time_factor: f64,
    ) -> BoxFuture<'a, Result<(), Failure>>;
    fn refuses<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Option<Outcome>, Failure>>;
    fn execute<'a>(
        &'a self,
        order: &'a Order,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Outcome, Failure>>;
}

impl<X: Execute> ExecuteObject for X {
    fn ready<'a>(
        &'a self,
        order: &'a Order,
        progress: &'a Progress,
        time_factor: f64,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(Execute::ready(self, order, progress, time_factor))
    }
    fn refuses<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Option<Outcome>, Failure>> {
        Box::pin(Execute::refuses(self, order))
    }
    fn execute<'a>(
        &'a self,
        order: &'a Order,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Outcome, Failure>> {
        Box::pin(Execute::execute(self, order, progress))
    }
}

struct AnyExecutor(Arc<dyn ExecuteObject>);

impl Execute for AnyExecutor {
    async fn ready(
        &self,
        order: &Order,
        progress: &Progress,
        time_factor: f64,
    ) -> Result<(), Failure> {
        self.0.ready(order, progress, time_factor).await
    }
    async fn refuses(&self, order: &Order) -> Result<Option<Outcome>, Failure> {
        self.0.refuses(order).await
    }
    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        self.0.execute(order, progress).await
    }
}

/// [`Facts`] with boxed futures.
trait FactsObject: Send + Sync + 'static {
    fn begin(&self) -> BoxFuture<'_, Result<EpochStart, PortError>>;
    fn publish(&self, messages: Vec<FactMessage>) -> BoxFuture<'_, Result<(), PortError>>;
}

impl<F: Facts> FactsObject for F {
    fn begin(&self) -> BoxFuture<'_, Result<EpochStart, PortError>> {
        Box::pin(Facts::begin(self))
    }
    fn publish(&self, messages: Vec<FactMessage>) -> BoxFuture<'_, Result<(), PortError>> {
        Box::pin(Facts::publish(self, messages))
    }
}

/// Any receiver of facts.
struct AnyFacts(Arc<dyn FactsObject>);

impl Facts for AnyFacts {
    async fn begin(&self) -> Result<EpochStart, PortError> {
        self.0.begin().await
    }
    async fn publish(&self, messages: Vec<FactMessage>) -> Result<(), PortError> {
        self.0.publish(messages).await
    }
}

/// Runs [`worker::run`] on any source of orders, with any executor.
pub fn work<O: Orders, X: Execute>(
    orders: Arc<O>,
    executor: Arc<X>,
    options: worker::Options,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    boxed_worker(AnyOrders(orders), AnyExecutor(executor), options, stop)
}

// Not generic, so that this package compiles it and its callers do not.
fn boxed_worker(
    orders: AnyOrders,
    executor: AnyExecutor,
    options: worker::Options,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(worker::run(
        Arc::new(orders),
        Arc::new(executor),
        options,
        stop,
    ))
}

/// Runs [`watcher::run`] with any receiver of facts.
///
/// The answer's errors are those of [`watcher::run`].
pub fn watch<F: Facts>(
    client: kube::Client,
    facts: Arc<F>,
    catalog: Arc<dyn Installed>,
    options: watcher::Options,
    status: watch::Sender<Status>,
    stop: CancellationToken,
) -> BoxFuture<'static, Result<(), WatchError>> {
    boxed_watcher(client, AnyFacts(facts), catalog, options, status, stop)
}

fn boxed_watcher(
    client: kube::Client,
    facts: AnyFacts,
    catalog: Arc<dyn Installed>,
    options: watcher::Options,
    status: watch::Sender<Status>,
    stop: CancellationToken,
) -> BoxFuture<'static, Result<(), WatchError>> {
    let facts = Arc::new(facts);
    let catalog = Arc::new(catalog);
    Box::pin(watcher::run(client, facts, catalog, options, status, stop))
}
