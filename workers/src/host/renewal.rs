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

/// What the id of a root begins with that the host program made, and the document no longer has.
const ROOT: &str = "root:";

impl Prepared {
    /// Those of these differences that are renewed whatever else waits: trusted certificates and tokens that end, where
    /// a new one disturbs no pod.
    pub(super) fn renewals(&self, differ: &[Difference]) -> Vec<String> {
        renewals(&self.rendered.document, &self.due, differ)
    }

    /// The same with these items alone.
    pub(super) fn only(mut self, items: &[String]) -> Result<Self, Failure> {
        let document = &mut self.rendered.document;
        document.items.retain(|item| items.contains(&item.id));
        self.bytes = bytes(document)?;
        Ok(self)
    }
}

/// See [`Prepared::renewals`]. `due`: items with a token that ends.
fn renewals(document: &Document, due: &[String], differ: &[Difference]) -> Vec<String> {
    let live = || differ.iter().filter(|one| one.change == ChangeClass::Live);
    let swept = live().any(|one| is_sweep(document, &one.id));
    let ends = |one: &&Difference| {
        // The sweep of certificates takes the roots that are no longer wanted.
        is_certificate(document, &one.id)
            || due.contains(&one.id)
            || swept && one.id.starts_with(ROOT)
    };
    live().filter(ends).map(|one| one.id.clone()).collect()
}

/// Whether an item of the document deletes the certificates that are no longer wanted.
fn is_sweep(document: &Document, id: &str) -> bool {
    let mut items = document.items.iter();
    items.any(|item| item.id == id && matches!(item.what, ItemKind::OnlyCertificates(_)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_profile::{
        document::{DOCUMENT_SCHEMA, Section},
        item::{Item, OnlyCertificates},
    };

    /// Another bundle replaces a root: the old one is gone with the renewal, and does not wait for a change.
    #[test]
    fn a_root_that_a_new_bundle_drops_goes_with_the_renewal() {
        let only = ItemKind::OnlyCertificates(OnlyCertificates { keep: Vec::new() });
        let document = Document {
            schema: DOCUMENT_SCHEMA,
            section: Section::Host,
            version: "v2".into(),
            items: vec![Item {
                id: "only:certificates".into(),
                change: ChangeClass::Live,
                what: only,
            }],
            kept: Vec::new(),
        };
        let differs = |id: &str, change| Difference {
            id: id.into(),
            change,
            detail: String::new(),
        };
        let root = differs("root:aa", ChangeClass::Live);
        let service = differs("service:old", ChangeClass::Drain);
        let sweep = differs("only:certificates", ChangeClass::Live);
        let found = renewals(&document, &[], &[sweep, root.clone(), service]);
        assert_eq!(found, ["only:certificates", "root:aa"]);
        // Nothing takes it: it stays a difference.
        assert!(renewals(&document, &[], &[root]).is_empty());
    }
}
