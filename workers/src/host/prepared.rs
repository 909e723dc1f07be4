//! A rendered document for one host, with the payload files that belong to it.

use crate::payload::Payload;
use dormer_profile::{
    document::{Document, Section},
    render::{Rendered, Staged},
};
use dormer_proto::{id::Timestamp, message::Failure};
use std::sync::Arc;

/// A rendered document and the payload files that belong to it.
pub(super) struct Prepared {
    pub(super) section: Section,
    pub(super) rendered: Rendered,
    pub(super) payload: Arc<Payload>,
    pub(super) bytes: Vec<u8>,
    /// What the document says of the Node's token of its cloud-node-manager.
    pub(super) cloud: CloudTokenSent,
    /// Items that contain this token, if the host needs another one.
    pub(super) due: Vec<String>,
}

/// What a document says of a cloud-node-manager's token.
#[derive(Clone)]
pub(super) enum CloudTokenSent {
    /// Nothing: its hosts have none.
    None,
    /// The host keeps the one that it has.
    Lasts,
    /// The host needs another one.
    Due,
    /// It has a new one, bound to this Node, which has to be replaced then.
    New {
        node_uid: String,
        /// When.
        due: Timestamp,
    },
}

impl Prepared {
    /// The document as bytes for the host.
    pub(super) fn document(&self) -> &[u8] {
        &self.bytes
    }

    /// Mark which notes that every file of this payload was in place on a host.
    pub(super) fn payload_mark(&self) -> String {
        format!(
            "payload {} {}",
            self.section.as_str(),
            self.payload.manifest.folder()
        )
    }

    /// The payload files at these destinations.
    pub(super) fn missing(&self, destinations: &[String]) -> Result<Vec<Staged>, Failure> {
        let found = destinations.iter().map(|path| {
            self.rendered.staged(path).cloned().ok_or_else(|| {
                let message = format!("the host asks for {path}, which is no file of the payload");
                Failure::lasting("UnknownFile", message)
            })
        });
        found.collect()
    }
}

/// A document as bytes for the host.
pub(super) fn bytes(document: &Document) -> Result<Vec<u8>, Failure> {
    document
        .to_bytes()
        .map_err(|error| Failure::lasting("DocumentUnusable", error.to_string()))
}
