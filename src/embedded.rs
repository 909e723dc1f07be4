//! The workers' ports over the queues of this process: orders, reports and facts without a server.

use crate::live::Live;
use dormer_engine::{
    embedded::EmbeddedStore,
    local::{LocalInbox, LocalTasks},
    memory::MemoryStore,
    port::{DeadLetters, History, HistoryReader, Inbox, OrderOut, StoreError},
};
use dormer_proto::{
    id::{Epoch, Incarnation, RunId},
    message::{Heartbeat, RemoteCommand},
    work::{FactLetter, MACHINE, Report},
};
use dormer_workers::{
    letter,
    port::{Beginning, Claimed, Facts, Orders, PortError},
};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// A report that is not receipted for so long is repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(3);
/// Runs looked at in one step when the live ones are gathered.
const HEADS_PAGE: usize = 2_000;
/// Letters that may wait in memory before the watcher has to.
const LETTERS_MAX: usize = 50_000;
/// How often a full inbox is looked at again.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// A store that one process owns, and from which it draws epochs.
pub(crate) trait OwnStore: History + HistoryReader + DeadLetters {
    /// Draws the next epoch; it only grows.
    fn draw_epoch(&self) -> impl Future<Output = Result<Epoch, StoreError>> + Send;
}

impl OwnStore for EmbeddedStore {
    async fn draw_epoch(&self) -> Result<Epoch, StoreError> {
        self.next_epoch().await
    }
}

impl OwnStore for MemoryStore {
    async fn draw_epoch(&self) -> Result<Epoch, StoreError> {
        Ok(self.next_epoch())
    }
}

fn failed(error: impl std::fmt::Display) -> PortError {
    PortError(error.to_string())
}

/// Orders of this process.
pub(crate) struct LocalOrders {
    tasks: Arc<LocalTasks>,
    inbox: Arc<LocalInbox>,
    live: Arc<Live>,
}

impl LocalOrders {
    /// Orders from `tasks`, reports to `inbox`, heartbeats to `live`.
    pub(crate) fn new(tasks: Arc<LocalTasks>, inbox: Arc<LocalInbox>, live: Arc<Live>) -> Self {
        Self { tasks, inbox, live }
    }

    fn claim(&self, out: OrderOut) -> Option<Claimed<LocalClaim>> {
        match letter::order(&out.bytes) {
            Ok(order) => {
                let incarnation = order.incarnation;
                let claim = LocalClaim {
                    out: Some(out),
                    incarnation,
                    tasks: Arc::clone(&self.tasks),
                    ended: AtomicBool::new(false),
                };
                Some(Claimed { claim, order })
            }
            Err(error) => {
                // Written by this very process: its attempt's deadline will end it.
                tracing::error!(task = %out.task, %error, "an order cannot be read");
                None
            }
        }
    }
}

/// The hold on one order. Dropped before its end, it gives the order back.
pub(crate) struct LocalClaim {
    out: Option<OrderOut>,
    incarnation: Incarnation,
    tasks: Arc<LocalTasks>,
    ended: AtomicBool,
}

impl Drop for LocalClaim {
    fn drop(&mut self) {
        if let Some(out) = self.out.take()
            && !self.ended.load(Ordering::Acquire)
        {
            self.tasks.give_back(out);
        }
    }
}

impl Orders for LocalOrders {
    type Claim = LocalClaim;

    async fn take(&self, limit: usize) -> Result<Vec<Claimed<LocalClaim>>, PortError> {
        loop {
            let taken = self.tasks.take(limit.max(1)).await;
            let claimed: Vec<_> = taken
                .into_iter()
                .filter_map(|out| self.claim(out))
                .collect();
            if !claimed.is_empty() {
                return Ok(claimed);
            }
        }
    }

    async fn heartbeat(&self, _claim: &LocalClaim, heartbeat: Heartbeat) -> Result<(), PortError> {
        self.live.beat(heartbeat);
        Ok(())
    }

    async fn show(&self, command: RemoteCommand) {
        self.live.ran(command);
    }

    async fn report(&self, claim: &LocalClaim, report: Report) -> Result<(), PortError> {
        let run = report.task.run.clone();
        let key = (report.task.clone(), report.attempt);
        let bytes = letter::report(report, claim.incarnation).map_err(failed)?;
        loop {
            self.inbox
                .put(vec![(run.clone(), bytes.clone())])
                .await
                .map_err(failed)?;
            let receipt = tokio::time::timeout(REPEAT_AFTER, self.tasks.receipt_of(&key)).await;
            if let Ok(receipt) = receipt {
                tracing::debug!(fate = ?receipt.fate, "the report is receipted");
                claim.ended.store(true, Ordering::Release);
                self.live.ended(&key.0);
                return Ok(());
            }
        }
    }
}

/// Facts of this process.
pub(crate) struct LocalFacts<S> {
    store: Arc<S>,
    inbox: Arc<LocalInbox>,
}

impl<S: OwnStore> LocalFacts<S> {
    /// Facts to `inbox`; epochs and live machines from `store`.
    pub(crate) fn new(store: Arc<S>, inbox: Arc<LocalInbox>) -> Self {
        Self { store, inbox }
    }
}

/// UIDs of the machines whose runs have not ended.
pub(crate) async fn live_machines<R: HistoryReader>(reader: &R) -> Result<Vec<String>, StoreError> {
    let mut live = Vec::new();
    let mut after: Option<RunId> = None;
    loop {
        let heads = reader.heads(after.as_ref(), HEADS_PAGE).await?;
        let Some(last) = heads.last() else {
            return Ok(live);
        };
        after = Some(last.run.clone());
        let open = heads.iter().filter(|head| head.closed.is_none());
        let ours = open.filter(|head| head.run.workflow() == MACHINE);
        live.extend(ours.map(|head| head.run.key().to_owned()));
    }
}

impl<S: OwnStore> Facts for LocalFacts<S> {
    async fn begin(&self) -> Result<Beginning, PortError> {
        let epoch = self.store.draw_epoch().await.map_err(failed)?;
        let live = live_machines(self.store.as_ref()).await.map_err(failed)?;
        Ok(Beginning {
            incarnation: self.store.incarnation(),
            epoch,
            live,
        })
    }

    async fn publish(&self, letters: Vec<FactLetter>) -> Result<(), PortError> {
        while self.inbox.depth() > LETTERS_MAX {
            tokio::time::sleep(FULL_PAUSE).await;
        }
        let mut encoded = Vec::with_capacity(letters.len());
        for one in letters {
            match letter::fact(&one) {
                Ok(bytes) => encoded.push((one.run, bytes)),
                Err(error) => tracing::error!(run = %one.run, %error, "a fact cannot be written"),
            }
        }
        self.inbox.put(encoded).await.map_err(failed)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::roles::{self, Parts};
    use dormer_engine::{engine, local::Local, port::SystemClock};
    use dormer_proto::{
        machine::{self, MachineFact, MachineRef, Outcome},
        message::{Failure, Inbound, Letter, ObjectRef, Observation, Version},
        work::{Fact, Order, machine_run},
    };
    use dormer_workers::{execute::Execute, progress::Progress, worker};
    use tokio::sync::mpsc;

    /// Hands that only say what they were asked.
    pub(crate) struct Telling(pub(crate) mpsc::UnboundedSender<String>);

    impl Execute for Telling {
        async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
            progress.step("tell", 1, "words");
            let _ = self
                .0
                .send(format!("{} {}", order.task.run, order.body.name()));
            Err(Failure::transient("NotToday", "these hands do nothing"))
        }
    }

    pub(crate) fn machine_seen(uid: &str, beginning: &Beginning, gone: bool) -> FactLetter {
        let fact = MachineFact {
            machine: MachineRef {
                namespace: "openshift-machine-api".into(),
                name: format!("win-{uid}"),
                uid: uid.into(),
            },
            addresses: vec!["10.0.0.9".into()],
            ..MachineFact::default()
        };
        let fact = Fact::Machine(machine::Fact::Machine(fact));
        let seen = Observation {
            object: ObjectRef {
                cluster: String::new(),
                kind: "Machine".into(),
                uid: uid.into(),
            },
            version: Version {
                epoch: beginning.epoch,
                resource: 1,
            },
            fact: (!gone).then_some(fact),
            may_start: true,
        };
        let run = machine_run(uid).expect("a run");
        Letter {
            run,
            incarnation: Some(beginning.incarnation),
            body: Inbound::Observed(seen),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_fact_becomes_an_order_the_order_a_report_and_the_run_is_live_until_it_is_gone() {
        let store = Arc::new(MemoryStore::new(Incarnation(3)));
        let ports = Arc::new(Local::new(store, SystemClock));
        let (told, mut tasks) = mpsc::unbounded_channel();
        let running = roles::start(Parts {
            ports: Arc::clone(&ports),
            hands: Arc::new(Telling(told)),
            live: Arc::default(),
            engine: engine::Options::default(),
            worker: worker::Options::named("w"),
        });
        let facts = roles::facts(&ports);
        let first = facts.begin().await.expect("an epoch");
        assert_eq!((first.incarnation, first.live.len()), (Incarnation(3), 0));
        facts
            .publish(vec![machine_seen("u1", &first, false)])
            .await
            .expect("published");
        for _ in 0..2 {
            // The second is another attempt: the first one's report was taken.
            let told = tokio::time::timeout(Duration::from_secs(20), tasks.recv()).await;
            assert_eq!(told.expect("in time").expect("a task"), "machine/u1 probe");
        }
        let second = facts.begin().await.expect("an epoch");
        assert!(second.epoch > first.epoch);
        assert_eq!(second.live, ["u1"]);
        facts
            .publish(vec![machine_seen("u1", &second, true)])
            .await
            .expect("published");
        let gone = async {
            while !facts.begin().await.expect("an epoch").live.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone)
            .await
            .expect("the run ends");
        running.stop().await.expect("an orderly end");
    }
}
