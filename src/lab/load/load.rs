//! Load generator of `dormer bench engine`.

use crate::{
    WorkerQueue,
    workflow::{Payload, STEPPING, STEPS},
};
use dormer_engine::{
    any::AnyPorts,
    port::{History, Inbox, Ports},
};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, RunId},
    message::{
        Inbound, InboxMessage, NoSignal, ObjectRef, Observation, TaskOrder, TaskReport, Version,
    },
};
use std::{collections::HashMap, time::Instant};

/// Load generator: executes the runs' tasks, and starts a new run for each that ends.
pub struct Load {
    ports: AnyPorts,
    queue: WorkerQueue,
    incarnation: Incarnation,
    begun: u64,
    reported: HashMap<RunId, (u8, Instant)>,
    steps: u64,
    latencies_us: Vec<u32>,
}

impl Load {
    /// Load on the engine behind `ports`, whose orders come out of `queue`.
    pub fn new(ports: AnyPorts, queue: WorkerQueue) -> Self {
        let reported = HashMap::new();
        let latencies_us = Vec::new();
        let incarnation = ports.history().incarnation();
        Self {
            ports,
            queue,
            incarnation,
            begun: 0,
            reported,
            steps: 0,
            latencies_us,
        }
    }

    /// Forgets what was measured, after the warm-up.
    pub fn forget_figures(&mut self) {
        self.steps = 0;
        self.latencies_us.clear();
    }

    /// Starts `count` runs.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn begin(&mut self, count: usize) -> anyhow::Result<()> {
        let mut messages = Vec::with_capacity(count);
        for _ in 0..count {
            self.begun += 1;
            let run = RunId::new(STEPPING, &self.begun.to_string())?;
            let object = ObjectRef {
                cluster: String::new(),
                kind: "Bench".into(),
                uid: run.key().into(),
            };
            let version = Version {
                epoch: Epoch(1),
                resource: self.begun,
            };
            let body: Inbound<u64, Payload, NoSignal> = Inbound::Observed(Observation {
                object,
                version,
                fact: Some(self.begun),
                may_start: true,
            });
            self.reported.insert(run.clone(), (0, Instant::now()));
            messages.push(self.message(run, body)?);
        }
        self.ports.inbox().put(messages).await?;
        Ok(())
    }

    fn message(
        &self,
        run: RunId,
        body: Inbound<u64, Payload, NoSignal>,
    ) -> anyhow::Result<(RunId, Vec<u8>)> {
        let message = InboxMessage {
            run: run.clone(),
            incarnation: Some(self.incarnation),
            body,
        };
        Ok((run, envelope::encode(&message, 1)?.0))
    }

    /// Executes tasks until `end`.
    ///
    /// # Errors
    /// Errors of the store, and an engine that makes no progress.
    pub async fn until(&mut self, end: Instant) -> anyhow::Result<()> {
        while Instant::now() < end {
            let orders = self.queue.take().await?;
            let mut messages = Vec::with_capacity(orders.len());
            let mut ended = 0;
            for order in orders {
                let (order, _) = envelope::decode::<TaskOrder<Payload>>(&order, 1)?;
                ended += usize::from(self.done(&order.task.run));
                messages.push(self.report(order)?);
            }
            // Repeats each report until it is receipted, as workers do.
            self.ports.inbox().tell(messages).await?;
            self.begin(ended).await?;
        }
        Ok(())
    }

    /// Handles an order, which proves that the step before it is durable. The answer is whether the run's last step
    /// has begun.
    fn done(&mut self, run: &RunId) -> bool {
        let Some((step, since)) = self.reported.get_mut(run) else {
            return false;
        };
        self.steps += 1;
        self.latencies_us
            .push(u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX));
        (*step, *since) = (*step + 1, Instant::now());
        let last = *step == STEPS;
        if last {
            self.reported.remove(run);
        }
        last
    }

    fn report(&self, order: TaskOrder<Payload>) -> anyhow::Result<(RunId, Vec<u8>)> {
        let TaskOrder {
            task,
            attempt,
            issued,
            ..
        } = order;
        let run = task.run.clone();
        let worker = "bench".to_owned();
        let report = TaskReport {
            task,
            attempt,
            issued,
            worker,
            result: Ok(Payload::full()),
        };
        self.message(run, Inbound::Reported(report))
    }

    /// Steps since the figures were forgotten.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Time from a step's report to the next order, in microseconds, ascending.
    pub fn latencies_us(&mut self) -> &[u32] {
        self.latencies_us.sort_unstable();
        &self.latencies_us
    }
}
