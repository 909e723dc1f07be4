//! Effects of many runs, carried out as one batch per port.

use crate::port::{Alarms, EndedTask, Inbox, OrderOut, Ports, StoreError, TaskQueue};
use dormer_engine_core::{Answer, Effects, Run, TaskKey, Workflow};
use dormer_proto::{
    envelope::{self, EncodeError},
    id::{Incarnation, RunId, SignalId, Sum, Timestamp},
    message::{Inbound, InboxMessage, NoSignal, ReportReceipt},
};

/// Effects gathered for one round of calls. Each is safe to repeat.
#[derive(Clone)]
pub(super) struct EffectBatch {
    incarnation: Incarnation,
    orders: Vec<OrderOut>,
    messages: Vec<(RunId, Vec<u8>)>,
    alarms: Vec<(RunId, Option<Timestamp>)>,
    receipts: Vec<ReportReceipt>,
    ended: Vec<EndedTask>,
    runs: Vec<RunId>,
}

impl EffectBatch {
    /// Empty batch for the store `incarnation`.
    pub(super) fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            orders: Vec::new(),
            messages: Vec::new(),
            alarms: Vec::new(),
            receipts: Vec::new(),
            ended: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Adds the effects of another batch.
    pub(super) fn merge(&mut self, other: Self) {
        self.orders.extend(other.orders);
        self.messages.extend(other.messages);
        self.alarms.extend(other.alarms);
        self.receipts.extend(other.receipts);
        self.ended.extend(other.ended);
        self.runs.extend(other.runs);
    }

    /// Adds one run's effects.
    pub(super) fn add<W: Workflow>(&mut self, run: &Run<W>, effects: Effects) {
        self.runs.push(run.id.clone());
        if let Some(alarm) = effects.alarm {
            self.alarms.push((run.id.clone(), alarm));
        }
        for key in effects.orders {
            self.order(run, key);
        }
        for (to, id) in effects.signals {
            self.signal(run, &to, id);
        }
        self.answers(effects.answers);
        let ended = effects.ended.into_iter().map(|(key, class)| EndedTask {
            task: run.task_id(key),
            class,
        });
        self.ended.extend(ended);
    }

    fn order<W: Workflow>(&mut self, run: &Run<W>, key: TaskKey) {
        let Some(order) = run.order(key, self.incarnation) else {
            return;
        };
        match envelope::encode(&order, W::SCHEMA) {
            Ok((bytes, _)) => self.orders.push(OrderOut {
                class: W::class(&order.body),
                task: order.task,
                attempt: order.attempt,
                bytes,
            }),
            Err(error) => tracing::error!(task = %order.task, %error, "an order cannot be written"),
        }
    }

    fn signal<W: Workflow>(&mut self, run: &Run<W>, to: &RunId, id: SignalId) {
        let Some(signal) = run.outbox.iter().find(|out| out.to == *to && out.id == id) else {
            return;
        };
        let message: InboxMessage<W::Fact, W::Outcome, W::Signal> =
            run.message(signal, self.incarnation);
        self.message(to.clone(), envelope::encode(&message, W::SCHEMA));
    }

    fn message(&mut self, to: RunId, encoded: Result<(Vec<u8>, Sum), EncodeError>) {
        match encoded {
            Ok((bytes, _)) => self.messages.push((to, bytes)),
            Err(error) => tracing::error!(run = %to, %error, "a message cannot be written"),
        }
    }

    /// Adds answers to senders.
    pub(super) fn answers(&mut self, answers: Vec<Answer>) {
        for answer in answers {
            match answer {
                Answer::Report(receipt) => self.receipts.push(receipt),
                Answer::Signal { to, answer } => {
                    let body: Inbound<(), (), NoSignal> = Inbound::Answered(answer);
                    let message = InboxMessage {
                        run: to.clone(),
                        incarnation: Some(self.incarnation),
                        body,
                    };
                    self.message(to, envelope::encode(&message, 0));
                }
            }
        }
    }

    /// Runs with effects in the batch, some more than once.
    pub(super) fn runs(&self) -> Vec<RunId> {
        self.runs.clone()
    }

    /// Sets a run's alarm.
    pub(super) fn alarm(&mut self, run: RunId, at: Option<Timestamp>) {
        self.runs.push(run.clone());
        self.alarms.push((run, at));
    }

    /// Carries out all effects. They are independent of each other.
    pub(super) async fn carry_out<P: Ports>(self, ports: &P) -> Result<(), StoreError> {
        let Self {
            orders,
            messages,
            alarms,
            receipts,
            ended,
            ..
        } = self;
        let ordered = async {
            if orders.is_empty() {
                Ok(())
            } else {
                ports.tasks().publish(orders).await
            }
        };
        let put = async {
            if messages.is_empty() {
                Ok(())
            } else {
                ports.inbox().put(messages).await
            }
        };
        let set = async {
            if alarms.is_empty() {
                Ok(())
            } else {
                ports.alarms().set(alarms).await
            }
        };
        let withdrawn = async {
            if !ended.is_empty() {
                ports.tasks().withdraw(ended).await;
            }
        };
        let (ordered, put, set, ()) = futures::join!(ordered, put, set, withdrawn);
        ordered.and(put).and(set)?;
        if !receipts.is_empty() {
            ports.tasks().receipt(receipts).await;
        }
        Ok(())
    }
}
