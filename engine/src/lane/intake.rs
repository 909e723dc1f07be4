//! Intake: a batch of deliveries, decoded and sorted by run, in the order in which they came.

use super::newer::read_up_to;
use crate::port::Delivery;
use dormer_engine_core::{LetterOf, Workflow};
use dormer_proto::{
    envelope::{self, DecodeError},
    id::RunId,
    message::{Inbound, Letter},
};
use std::collections::BTreeMap;

/// A letter with what is needed to settle it.
pub(super) struct Mail<W: Workflow> {
    pub(super) letter: LetterOf<W>,
    pub(super) token: u64,
    pub(super) cause: String,
}

impl<W: Workflow> Mail<W> {
    /// The letter, whose verdict will be final: on a run just read it is not decided twice.
    pub(super) fn spend(&mut self) -> LetterOf<W> {
        let body = std::mem::replace(&mut self.letter.body, Inbound::Rang);
        Letter {
            run: self.letter.run.clone(),
            incarnation: self.letter.incarnation,
            body,
        }
    }
}

/// A delivery that was opened once, on its way to the lane that owns its run.
pub struct Arrived<W: Workflow> {
    delivery: Delivery,
    letter: Result<LetterOf<W>, DecodeError>,
}

impl<W: Workflow> Arrived<W> {
    /// Opens a delivery.
    #[must_use]
    pub fn open(delivery: Delivery) -> Self {
        let letter = envelope::decode::<LetterOf<W>>(&delivery.bytes, read_up_to(W::SCHEMA));
        Self {
            letter: letter.map(|(letter, _)| letter),
            delivery,
        }
    }

    /// Whom it is for; `None` if it cannot be read.
    #[must_use]
    pub fn run(&self) -> Option<&RunId> {
        self.letter.as_ref().ok().map(|letter| &letter.run)
    }

    /// What settles it.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.delivery.token
    }
}

/// A batch, sorted.
pub(super) struct Sorted<W: Workflow> {
    pub(super) mail: BTreeMap<RunId, Vec<Mail<W>>>,
    pub(super) unreadable: Vec<(Delivery, DecodeError)>,
}

pub(super) fn sort<W: Workflow>(batch: Vec<Arrived<W>>) -> Sorted<W> {
    let mut sorted = Sorted {
        mail: BTreeMap::new(),
        unreadable: Vec::new(),
    };
    for Arrived { delivery, letter } in batch {
        match letter {
            Ok(letter) => {
                let mail = Mail {
                    token: delivery.token,
                    cause: delivery.cause,
                    letter,
                };
                sorted
                    .mail
                    .entry(mail.letter.run.clone())
                    .or_default()
                    .push(mail);
            }
            Err(error) => sorted.unreadable.push((delivery, error)),
        }
    }
    sorted
}
