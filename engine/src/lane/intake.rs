//! Intake: a batch of deliveries, decoded and sorted by run, in the order in which they came.

use crate::port::Delivery;
use dormer_engine_core::{LetterOf, Workflow};
use dormer_proto::{
    envelope::{self, DecodeError},
    id::RunId,
};
use std::collections::BTreeMap;

/// A letter with what is needed to settle it.
pub(super) struct Mail<W: Workflow> {
    pub(super) letter: LetterOf<W>,
    pub(super) token: u64,
    pub(super) cause: String,
}

/// A batch, sorted.
pub(super) struct Sorted<W: Workflow> {
    pub(super) mail: BTreeMap<RunId, Vec<Mail<W>>>,
    pub(super) unreadable: Vec<(Delivery, DecodeError)>,
}

pub(super) fn sort<W: Workflow>(batch: Vec<Delivery>) -> Sorted<W> {
    let mut sorted = Sorted { mail: BTreeMap::new(), unreadable: Vec::new() };
    for delivery in batch {
        match envelope::decode::<LetterOf<W>>(&delivery.bytes, W::SCHEMA) {
            Ok((letter, _)) => {
                let mail = Mail { token: delivery.token, cause: delivery.cause, letter };
                sorted.mail.entry(mail.letter.run.clone()).or_default().push(mail);
            }
            Err(error) => sorted.unreadable.push((delivery, error)),
        }
    }
    sorted
}
