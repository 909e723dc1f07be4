//! Quarantine of runs that cannot continue: what a shard notes about them, and what becomes of their messages.

use super::{Shard, UNAVAILABLE_AGAIN_MS, fault::RunFault, intake::Received};
use crate::{
    observer::EngineObserver,
    port::{Ack, Clock, MissedRecord, Ports, Quarantine, QuarantineNote, TaskQueue},
    quarantine::release,
};
use dormer_engine_core::{
    Workflow,
    unfenced::{Fence, enforced},
};
use dormer_proto::{
    id::RunId,
    message::{Inbound, ReceiptStatus, ReportReceipt, cut},
};
use std::{collections::BTreeMap, slice};

/// Most builds that a note names.
const BUILDS_MAX: usize = 16;

impl<W: Workflow, P: Ports, E: EngineObserver<W>> Shard<W, P, E> {
    /// Takes away the messages to quarantined runs. A note in memory is only a reason to read the store's note, since a
    /// person may have released the run.
    pub(super) async fn without_quarantined(
        &mut self,
        mut received: BTreeMap<RunId, Vec<Received<W>>>,
        acks: &mut Vec<(u64, Ack)>,
    ) -> BTreeMap<RunId, Vec<Received<W>>> {
        let noted = self.quarantine_notes.of(received.keys());
        if noted.is_empty() {
            return received;
        }
        let notes = self.ports.quarantine().notes_of(&noted).await;
        let Ok(notes) = notes else {
            for run in noted {
                let messages = received.remove(&run).into_iter().flatten();
                acks.extend(messages.map(|it| (it.token, Ack::Again(UNAVAILABLE_AGAIN_MS))));
            }
            return received;
        };
        let now = self.ports.clock().now();
        for (run, note) in noted.into_iter().zip(notes) {
            let note = note.filter(|note| note.released.is_none());
            if let Some((record, since)) = note.as_ref().and_then(|it| Some((it.missed?, it.at))) {
                self.quarantine_notes.set(&run, note);
                if enforced(Fence::NotedDoubt) && !self.cache.suspect(&run, record, since.min(now))
                {
                    self.doubt(&run, None);
                }
                continue;
            }
            let held = note.as_ref().is_some_and(|note| note.holds(&self.build));
            self.quarantine_notes.set(&run, note);
            if held && let Some(messages) = received.remove(&run) {
                self.cache.forget_entirely(&run);
                self.take_away(messages, acks).await;
            }
        }
        received
    }

    /// Notes a run that cannot continue, and takes its messages away. Without a note they come again.
    pub(super) async fn quarantine(
        &mut self,
        run: &RunId,
        fault: RunFault,
        messages: Vec<Received<W>>,
        acks: &mut Vec<(u64, Ack)>,
    ) {
        self.cache.forget(run);
        // An engine that has just begun does not know the notes yet. A release lets every build try again.
        let noted = self.ports.quarantine().notes_of(slice::from_ref(run)).await;
        let before = noted.map_or_else(
            |_| self.quarantine_notes.get(run),
            |mut notes| notes.pop().flatten(),
        );
        let version = before.as_ref().map_or(0, |note| note.version);
        let before = before.filter(|note| note.released.is_none());
        let mut builds = before.map(|note| note.builds).unwrap_or_default();
        builds.retain(|build| *build != self.build);
        builds.push(self.build.clone());
        builds.drain(..builds.len().saturating_sub(BUILDS_MAX));
        let mut note = QuarantineNote {
            run: run.clone(),
            code: fault.code.to_owned(),
            why: cut(fault.why),
            at: self.ports.clock().now(),
            builds,
            released: None,
            missed: None,
            version,
        };
        match self.ports.quarantine().put(note.clone()).await {
            Ok(version) => note.version = version,
            Err(error) => {
                tracing::debug!(%run, %error, "a quarantine could not be noted; the messages come again");
                let messages = messages.iter();
                acks.extend(messages.map(|it| (it.token, Ack::Again(UNAVAILABLE_AGAIN_MS))));
                return;
            }
        }
        tracing::warn!(%run, code = note.code, why = note.why, "a run is quarantined");
        self.cache.forget_entirely(run);
        self.counters.quarantined += 1;
        self.notify(|observer| observer.quarantined(run, &note.code, &note.why));
        self.quarantine_notes.set(run, Some(note));
        self.take_away(messages, acks).await;
    }

    /// Notes at the end of the turn that a run is in doubt from now on, or no more.
    pub(super) fn doubt(&mut self, run: &RunId, missed: Option<MissedRecord>) {
        if missed.is_none() {
            self.quarantine_notes.set(run, None);
        }
        self.notes_to_write.insert(run.clone(), missed);
    }

    /// Writes down which runs are in doubt, for an engine that begins before they are quarantined, and removes the notes
    /// of those that are in doubt no more. Without an answer this engine alone knows, and the next turn tries again.
    pub(super) async fn note_doubts(&mut self) {
        while let Some((run, missed)) = self.notes_to_write.pop_first() {
            let noted = self
                .ports
                .quarantine()
                .notes_of(slice::from_ref(&run))
                .await;
            let result = match (missed, noted.map(|mut notes| notes.pop().flatten())) {
                (Some(missed), Ok(None)) => {
                    let note = QuarantineNote {
                        run: run.clone(),
                        code: "RecordMissed".to_owned(),
                        why: format!("revision {} was not found", missed.revision),
                        at: self.ports.clock().now(),
                        builds: Vec::new(),
                        released: None,
                        missed: Some(missed),
                        version: 0,
                    };
                    self.ports.quarantine().put(note).await.map(drop)
                }
                (None, Ok(Some(note))) if note.missed.is_some() => {
                    self.ports.quarantine().remove(&run, note.version).await
                }
                (_, Ok(_)) => Ok(()),
                (_, Err(error)) => Err(error),
            };
            if let Err(error) = result {
                tracing::debug!(%run, %error, "a doubt is not noted; the next turn tries again");
                self.notes_to_write.entry(run).or_insert(missed);
                return;
            }
        }
    }

    /// Takes messages to a quarantined run out of the inbox. Facts, due timers and answers are repeated by themselves,
    /// or follow from the history. A worker lets go of its task. A signal gets no answer, so that its sender keeps it.
    /// The API refuses a person's request while there is a note.
    async fn take_away(&mut self, messages: Vec<Received<W>>, acks: &mut Vec<(u64, Ack)>) {
        let mut receipts = Vec::new();
        for received in messages {
            self.counters.taken_away += 1;
            acks.push((received.token, Ack::Done));
            if let Inbound::Reported(report) = received.original().body {
                receipts.push(ReportReceipt {
                    task: report.task,
                    attempt: report.attempt,
                    worker: report.worker,
                    fate: ReceiptStatus::Unknown,
                });
            }
        }
        if !receipts.is_empty() {
            self.ports.tasks().receipt(receipts).await;
        }
    }

    /// Releases runs of which a record was stored although another build had noted them.
    pub(super) async fn free(&mut self, stored: Vec<RunId>) {
        for run in stored {
            match release(self.ports.as_ref(), &run).await {
                Ok(_) => self.quarantine_notes.set(&run, None),
                Err(error) => tracing::debug!(%run, %error, "the note stays for now"),
            }
        }
    }
}
