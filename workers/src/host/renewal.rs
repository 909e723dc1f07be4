//! What a comparison renews on a host, whatever else waits: trusted certificates and tokens that end.

use super::prepared::{Prepared, bytes};
use dormer_profile::{
    document::{ChangeClass, Document},
    drift::{Difference, between},
    item::ItemKind,
    render::{Inputs, Rendered, render},
    values::CLOUD_TOKEN,
};
use dormer_proto::message::Failure;

impl Prepared {
    /// Those of these differences that are renewed whatever else waits: trusted certificates and tokens that end, where
    /// a new one disturbs no pod.
    pub(super) fn renewals(&self, differ: &[Difference]) -> Vec<String> {
        let ends = |one: &&Difference| {
            is_certificate(&self.rendered.document, &one.id) || self.due.contains(&one.id)
        };
        let live = differ.iter().filter(|one| one.change == ChangeClass::Live);
        live.filter(ends).map(|one| one.id.clone()).collect()
    }

    /// The same with these items alone.
    pub(super) fn only(mut self, items: &[String]) -> Result<Self, Failure> {
        let document = &mut self.rendered.document;
        document.items.retain(|item| items.contains(&item.id));
        self.bytes = bytes(document)?;
        Ok(self)
    }
}

/// Whether an item of the document is a certificate that hosts trust.
fn is_certificate(document: &Document, id: &str) -> bool {
    let mut items = document.items.iter();
    let item = items.find(|item| item.id == id);
    item.is_some_and(|item| {
        matches!(
            item.what,
            ItemKind::Certificate(_) | ItemKind::OnlyCertificates(_)
        )
    })
}

/// Items that the token of a cloud-node-manager is in: those that another token changes.
pub(super) fn with_token(inputs: &Inputs<'_>, rendered: &Rendered) -> Vec<String> {
    let document = &rendered.document;
    let mut secrets = inputs.secrets.clone();
    secrets.set(CLOUD_TOKEN, "another");
    let inputs = Inputs {
        secrets: &secrets,
        ..*inputs
    };
    let other = render(&inputs, document.section, &document.version);
    let other = other.map(|other| between(document, &other.document));
    let differ = other.unwrap_or_default().into_iter();
    differ.map(|one| one.id).collect()
}
