//! Roles of a process: started from their parts, watched, and stopped in order.

use crate::embedded::{LocalFacts, LocalOrders, OwnStore};
use anyhow::Context;
use dormer_api::live::Live;
use dormer_engine::{
    any::AnyPorts,
    engine,
    local::{Local, deliver_due_timers},
    port::{Clock, History, Ports},
    shard::Counters,
    supervise::supervised,
};
use dormer_proto::id::RunId;
use dormer_telemetry::{
    Telemetry,
    health::{Health, RoleStatus},
};
use dormer_workers::{
    any,
    execute::Execute,
    observer::ObserverHandle,
    pool::Installed,
    port::{Facts, Orders},
    watcher::{self, Status},
    worker,
};
use futures::future::BoxFuture;
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::{Id, JoinError, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Interval of the store's health check.
const STORE_ASKED_EVERY: Duration = Duration::from_secs(10);
/// Time limit of the store's health check.
const STORE_ANSWER_MAX: Duration = Duration::from_secs(5);

/// Time limit of each action at the end of shutdown.
const CLOSING_MAX: Duration = Duration::from_secs(10);

/// What grants the rights that every installation has.
const GRANTS: &str =
    "kubectl apply -f deploy/rbac.yaml grants it, or upgrade the chart together with dormer";

/// Name of the engine role, as in `--role`.
pub const ENGINE: &str = "engine";
/// Name of the worker role.
pub const WORKER: &str = "worker";
/// Name of the approver role.
pub const APPROVER: &str = "approver";
/// Name of the watcher role.
pub const WATCHER: &str = "watcher";
/// Name of the console role.
pub const CONSOLE: &str = "console";

/// Parts of a process with all roles, on a store that it owns.
pub struct Parts<S, C, X> {
    /// Store and queues.
    pub ports: Arc<Local<S, C>>,
    /// Executor of the worker.
    pub executor: Arc<X>,
    /// Heartbeats for people.
    pub live: Arc<Live>,
    pub engine: engine::Options,
    pub worker: worker::Options,
}

/// Starts engine and worker on this process's own store. The caller adds a watcher, by [`facts`] and
/// [`Running::watcher`].
pub fn start<S, C, X>(parts: Parts<S, C, X>) -> Running
where
    S: OwnStore,
    C: Clock + Clone,
    X: Execute,
{
    let telemetry = Telemetry::by(parts.ports.clock.clone());
    start_observed(parts, Arc::new(telemetry))
}

/// Starts engine and worker on this process's own store, observed by `telemetry`. The caller adds a watcher.
pub fn start_observed<S, C, X>(parts: Parts<S, C, X>, telemetry: Arc<Telemetry>) -> Running
where
    S: OwnStore,
    C: Clock + Clone,
    X: Execute,
{
    let Parts {
        ports,
        executor,
        live,
        engine,
        worker,
    } = parts;
    let mut running = Running::observed_by(telemetry);
    running.local_engine(Arc::clone(&ports), engine);
    let orders = LocalOrders::new(Arc::clone(&ports.tasks), Arc::clone(&ports.inbox), live);
    running.worker(Arc::new(orders), executor, worker);
    running
}

/// Facts port into this process's own store.
pub fn facts<S: OwnStore, C>(ports: &Local<S, C>) -> Arc<LocalFacts<S>> {
    Arc::new(LocalFacts::new(
        Arc::clone(&ports.store),
        Arc::clone(&ports.inbox),
    ))
}

/// Running roles.
pub struct Running {
    health: Arc<Health>,
    telemetry: Arc<Telemetry>,
    /// Signal that ends watcher and worker.
    leave: CancellationToken,
    /// Signal that ends the engine, which must outlive them: it receipts their last reports.
    halt: watch::Sender<bool>,
    front: Roles,
    back: Roles,
    closing: Vec<BoxFuture<'static, ()>>,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            health: Arc::default(),
            telemetry: Arc::default(),
            leave: CancellationToken::new(),
            halt: watch::Sender::new(false),
            front: Roles::default(),
            back: Roles::default(),
            closing: Vec::new(),
        }
    }
}

/// Tasks with the role of each.
#[derive(Default)]
struct Roles {
    tasks: JoinSet<anyhow::Result<()>>,
    names: Vec<(Id, &'static str)>,
}

impl Roles {
    fn add(
        &mut self,
        role: &'static str,
        doing: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(doing).id();
        self.names.push((id, role));
    }

    fn role(&self, id: Id) -> &'static str {
        self.names
            .iter()
            .find(|(known, _)| *known == id)
            .map_or("role", |(_, role)| role)
    }

    /// Role and result of the next task that ends. It never returns if there is no task.
    async fn next(&mut self) -> (&'static str, anyhow::Result<()>) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, result))) => (self.role(id), result),
            Some(Err(error)) => (self.role(error.id()), Err(panicked(error))),
            None => std::future::pending().await,
        }
    }

    async fn all(&mut self) -> anyhow::Result<()> {
        let mut first = Ok(());
        while !self.tasks.is_empty() {
            let (role, result) = self.next().await;
            first = first.and(result.with_context(|| format!("the {role}")));
        }
        first
    }
}

fn panicked(error: JoinError) -> anyhow::Error {
    anyhow::anyhow!("it panicked, which is a bug in dormer: {error}")
}

impl Running {
    /// Empty set of roles that `telemetry` observes.
    pub fn observed_by(telemetry: Arc<Telemetry>) -> Self {
        Self {
            telemetry,
            ..Self::default()
        }
    }

    /// Observer of the roles.
    pub fn telemetry(&self) -> Arc<Telemetry> {
        Arc::clone(&self.telemetry)
    }

    /// Health of the roles.
    pub fn health(&self) -> Arc<Health> {
        Arc::clone(&self.health)
    }

    /// Adds an engine on this process's queues, and the task that fires its alarms.
    pub fn local_engine<S: OwnStore, C: Clock + Clone>(
        &mut self,
        ports: Arc<Local<S, C>>,
        options: engine::Options,
    ) {
        let incarnation = ports.store.incarnation();
        let alarms = Arc::clone(&ports.alarms);
        let inbox = Arc::clone(&ports.inbox);
        let delivering = deliver_due_timers(alarms, inbox, ports.clock.clone(), incarnation);
        self.beside(ENGINE, async move {
            delivering.await;
            Ok(())
        });
        self.engine(S::any(&ports), options);
    }

    /// Adds an engine.
    pub fn engine(&mut self, ports: AnyPorts, options: engine::Options) {
        let stop = self.halt.subscribe();
        let health = Arc::clone(&self.health);
        let telemetry = self.telemetry();
        telemetry.reads(Arc::new(ports.clone()));
        health.set(
            ENGINE,
            RoleStatus::Waiting("the store has not answered yet".into()),
        );
        self.back.add(ENGINE, async move {
            let observer = Arc::clone(&telemetry);
            let running = dormer_loop::run(ports.clone(), options, observer, stop);
            let tally: Counters = tokio::select! {
                tally = running => tally?,
                never = run_store_probe(&ports, &health, &telemetry) => match never {},
            };
            tracing::info!(?tally, "the engine has ended");
            Ok(())
        });
    }

    /// Adds a background task of a role. It must run until shutdown.
    pub fn beside(
        &mut self,
        role: &'static str,
        doing: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let mut halted = self.halt.subscribe();
        self.back.add(role, async move {
            tokio::select! {
                _ = halted.wait_for(|halt| *halt) => Ok(()),
                result = doing => result,
            }
        });
    }

    /// Adds a background task of a role that begins again after a panic. `what` names it in the log and the metrics.
    pub fn supervised<F>(
        &mut self,
        role: &'static str,
        what: &'static str,
        begin: impl Fn() -> F + Send + 'static,
    ) where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let telemetry = self.telemetry();
        let panicked = move |what| telemetry.background_panicked(what);
        self.beside(role, supervised(what, begin, panicked));
    }

    /// Adds an action for the end of shutdown. The action that was added last comes first: it may use what an earlier one
    /// closes. Each has `CLOSING_MAX`.
    pub fn at_end(&mut self, doing: impl Future<Output = ()> + Send + 'static) {
        self.closing.push(Box::pin(doing));
    }

    /// Adds a worker.
    pub fn worker<O: Orders, X: Execute>(
        &mut self,
        orders: Arc<O>,
        executor: Arc<X>,
        options: worker::Options,
    ) {
        self.takes_orders(WORKER, orders, executor, options);
    }

    /// Adds an approver, which takes its orders as a worker does.
    pub fn approver<O: Orders, X: Execute>(
        &mut self,
        orders: Arc<O>,
        executor: Arc<X>,
        options: worker::Options,
    ) {
        self.takes_orders(APPROVER, orders, executor, options);
    }

    fn takes_orders<O: Orders, X: Execute>(
        &mut self,
        role: &'static str,
        orders: Arc<O>,
        executor: Arc<X>,
        options: worker::Options,
    ) {
        self.health.set(role, RoleStatus::Up);
        let options = worker::Options {
            observer: ObserverHandle::by(self.telemetry()),
            ..options
        };
        let stop = self.leave.clone();
        self.front.add(role, async move {
            any::work(orders, executor, options, stop).await;
            Ok(())
        });
    }

    /// Adds a watcher, and returns its status for display. The watcher is waiting until its first list.
    pub fn watcher<F: Facts, I: Installed>(
        &mut self,
        client: kube::Client,
        facts: Arc<F>,
        catalog: Arc<I>,
        options: watcher::Options,
    ) -> watch::Receiver<Status> {
        let (status_sender, status) = watch::channel(Status::default());
        let stop = self.leave.clone();
        let health = Arc::clone(&self.health);
        health.set(WATCHER, watcher_status(&Status::default()));
        let mut updates = status.clone();
        self.telemetry.follow_watcher(status.clone());
        self.front.add(WATCHER, async move {
            let watching = any::watch(client, facts, catalog, options, status_sender, stop);
            let reporting = async {
                while updates.changed().await.is_ok() {
                    let status = watcher_status(&updates.borrow_and_update());
                    health.set(WATCHER, status);
                }
                std::future::pending::<std::convert::Infallible>().await
            };
            tokio::select! {
                ended = watching => ended.map_err(anyhow::Error::from),
                never = reporting => match never {},
            }
        });
        status
    }

    /// Waits until a role ends by itself, which is an error, and returns the reason.
    pub async fn ended(&mut self) -> anyhow::Error {
        let (role, result) = tokio::select! {
            ended = self.front.next() => ended,
            ended = self.back.next() => ended,
        };
        let error = result
            .err()
            .unwrap_or_else(|| anyhow::anyhow!("it ended without a reason"));
        self.health
            .set(role, RoleStatus::Ended(format!("{error:#}")));
        error.context(format!("the {role}"))
    }

    /// Stops the roles: watcher and worker first, then the engine, which receipts the worker's last reports.
    ///
    /// # Errors
    /// The first error of a role.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.leave.cancel();
        let front = self.front.all().await;
        self.halt.send_replace(true);
        let back = self.back.all().await;
        for closing in self.closing.into_iter().rev() {
            if timeout(CLOSING_MAX, closing).await.is_err() {
                let seconds = CLOSING_MAX.as_secs();
                tracing::warn!("an action at the end of shutdown was given up after {seconds} s");
            }
        }
        self.telemetry.flush().await;
        front.and(back)
    }
}

fn watcher_status(status: &Status) -> RoleStatus {
    match (&status.error, status.lacks()) {
        (_, Some(lacks)) if status.ready() => RoleStatus::Hindered(format!("{lacks}; {GRANTS}")),
        _ if status.ready() => RoleStatus::Up,
        (Some(error), _) => RoleStatus::Waiting(error.clone()),
        (None, _) => RoleStatus::Waiting("the first list".into()),
    }
}

/// Id of a run that never exists. Reading it asks the store's leader and finds nothing.
fn nobody() -> Option<RunId> {
    RunId::new("nobody", "asks").ok()
}

async fn run_store_probe(
    ports: &AnyPorts,
    health: &Health,
    telemetry: &Telemetry,
) -> std::convert::Infallible {
    let nobody: Vec<RunId> = nobody().into_iter().collect();
    loop {
        let asked = tokio::time::timeout(STORE_ANSWER_MAX, ports.history().load(&nobody)).await;
        let status = match asked {
            Ok(Ok(_)) => RoleStatus::Up,
            Ok(Err(error)) => RoleStatus::Waiting(error.to_string()),
            Err(_) => RoleStatus::Waiting("the store did not answer within 5 s".into()),
        };
        telemetry.store_answered(status == RoleStatus::Up);
        health.set(ENGINE, status);
        tokio::time::sleep(STORE_ASKED_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    };
    use tokio::sync::Notify;

    #[tokio::test(start_paused = true)]
    async fn background_work_that_panics_is_counted_and_begins_again_and_its_role_goes_on() {
        let mut running = Running::default();
        let begun = AtomicU32::new(0);
        let sound = Arc::new(Notify::new());
        let told = Arc::clone(&sound);
        running.supervised(ENGINE, "a test", move || {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            let told = Arc::clone(&told);
            async move {
                assert!(number >= 2, "nobody expected this");
                told.notify_one();
                std::future::pending().await
            }
        });
        tokio::select! {
            error = running.ended() => panic!("the role ended: {error:#}"),
            () = sound.notified() => {}
        }
        let page = running.telemetry().metrics().page();
        let line = "dormer_background_panics_total{work=\"a test\"} 2";
        assert!(page.contains(line), "{page}");
        running.stop().await.expect("stopped");
    }

    #[test]
    fn a_watcher_that_may_not_list_machines_is_hindered_with_its_remedy() {
        let status = |expected: bool| Status {
            elected: true,
            listed: Some(jiff::Timestamp::now()),
            sources: vec![watcher::Source {
                what: "machines".to_owned(),
                state: watcher::SourceState::Forbidden("dormer may not list machines".to_owned()),
                expected,
            }],
            ..Status::default()
        };
        assert_eq!(watcher_status(&status(false)), RoleStatus::Up);
        let RoleStatus::Hindered(why) = watcher_status(&status(true)) else {
            panic!("it is not hindered");
        };
        let remedy = "dormer may not list machines; kubectl apply -f deploy/rbac.yaml";
        assert!(why.starts_with(remedy), "{why}");
        let waiting = Status {
            listed: None,
            ..status(true)
        };
        assert_eq!(
            watcher_status(&waiting),
            RoleStatus::Waiting("the first list".into())
        );
    }

    /// A server that does not answer delays the end for a while, and not for ever.
    #[tokio::test(start_paused = true)]
    async fn what_was_added_last_ends_first_and_nothing_ends_shutdown_never() {
        let mut running = Running::default();
        let done = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let done = Arc::clone(&done);
            async move { done.lock().expect("a list").push(what) }
        };
        running.at_end(note("the store is closed"));
        running.at_end(std::future::pending());
        running.at_end(note("the last metrics are sent"));
        let began = tokio::time::Instant::now();
        running.stop().await.expect("stopped");
        assert_eq!(
            *done.lock().expect("a list"),
            ["the last metrics are sent", "the store is closed"]
        );
        assert_eq!(began.elapsed(), CLOSING_MAX);
    }
}
