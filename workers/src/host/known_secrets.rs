//! Secrets that this worker knows, which are removed from every text of a host before people read it.

use super::scrub::{SCRUBBED_BYTES_MAX, Scrub, clean};
use dormer_profile::document::Document;
use dormer_proto::{lock::Locked as _, machine::Outcome, message::Failure};
use std::sync::{Mutex, MutexGuard};

/// Secrets and pieces of documents that are known at once; beyond it those of before are forgotten. The documents of
/// one version differ by a few lines, so these are the documents of a dozen versions.
const PIECES_MAX: usize = 100_000;

/// The known secrets, only in memory.
#[derive(Debug, Default)]
pub(super) struct KnownSecrets {
    /// Lock held to learn a document or to search 64 KiB, never across an await.
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// Keys and tokens.
    values: Scrub,
    /// What documents say inline.
    documents: Scrub,
    /// The same, of before.
    older: Scrub,
}

impl KnownSecrets {
    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.locked()
    }

    /// A key or a token, which is a secret wherever it appears.
    pub(super) fn value(&self, secret: &str) {
        let mut pieces = self.pieces();
        if pieces.values.len() >= PIECES_MAX {
            pieces.values = Scrub::default();
        }
        // The first line of a key names only its type.
        let lines: Vec<&str> = secret
            .lines()
            .filter(|it| !it.starts_with("-----"))
            .collect();
        pieces.values.learn(&lines.join("\n"), "");
    }

    /// Learns the inline contents of a document as secrets, except words that the document also shows openly and the
    /// `open` values of its variables (names and addresses).
    pub(super) fn document<'a>(
        &self,
        document: &Document,
        open: impl IntoIterator<Item = &'a str>,
    ) {
        let mut pieces = self.pieces();
        if pieces.documents.len() >= PIECES_MAX {
            pieces.older = std::mem::take(&mut pieces.documents);
        }
        pieces.documents.learn_document(document, open);
    }

    /// Text of a host or about a host without keys, tokens and the contents of documents.
    pub(super) fn clean_output(&self, text: &str) -> String {
        if text.len() > SCRUBBED_BYTES_MAX {
            return format!(
                "[{} bytes: too many to be looked through for secrets]",
                text.len()
            );
        }
        let Pieces {
            values,
            documents,
            older,
        } = &*self.pieces();
        clean(&[values, documents, older], text)
    }

    /// A sentence of ours that may repeat a host's words: without keys and tokens.
    fn clean_sentence(&self, text: &str) -> String {
        clean(&[&self.pieces().values], text)
    }

    /// Report of an attempt, which the history keeps, without secrets.
    pub(super) fn clean_report(
        &self,
        report: Result<Outcome, Failure>,
    ) -> Result<Outcome, Failure> {
        match report {
            Err(failure) => Err(Failure {
                message: self.clean_sentence(&failure.message),
                log: failure.log.map(|log| self.clean_sentence(&log)),
                ..failure
            }),
            Ok(Outcome::Planned {
                class,
                differs,
                facts,
                host_key,
                generation,
                token,
                pods,
                certificates,
                renews,
            }) => {
                let differs = differs.iter().map(|it| self.clean_sentence(it)).collect();
                Ok(Outcome::Planned {
                    class,
                    differs,
                    facts,
                    host_key,
                    generation,
                    token,
                    pods,
                    certificates,
                    renews,
                })
            }
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_profile::document::{DOCUMENT_SCHEMA, Section};

    #[test]
    fn a_private_key_is_recognised_line_by_line_and_removed_from_reports() {
        let known = KnownSecrets::default();
        known.value("-----BEGIN KEY-----\nmarked-line-one\nmarked-line-two\n-----END KEY-----");
        let said = "-----BEGIN KEY----- marked-line-one\r\nmarked-li\r\nne-two, and more";
        let clean = "-----BEGIN KEY----- [secret], and more";
        assert_eq!(known.clean_output(said), clean);
        let failed = known.clean_report(Err(Failure::lasting("NoFrame", said)));
        assert_eq!(failed.unwrap_err().message, clean);
        let long = known.clean_output(&"x".repeat(SCRUBBED_BYTES_MAX + 1));
        assert!(long.contains("too many"), "{long}");
    }

    #[test]
    fn what_is_learned_is_bounded() {
        let known = KnownSecrets::default();
        for number in 0..PIECES_MAX / 5 {
            known.value(&format!("marked-value-{number:08}"));
        }
        assert!(known.pieces().values.len() <= PIECES_MAX + 10);
        let version = "v".to_owned();
        let section = Section::Host;
        let empty = Document {
            schema: DOCUMENT_SCHEMA,
            section,
            version,
            items: Vec::new(),
            kept: Vec::new(),
        };
        known.document(&empty, ["name"]);
        assert_eq!(known.pieces().documents.len(), 0);
    }
}
