//! What differs on a host, and what mending it asks for.

use crate::{
    answer::{Answer, ItemState},
    document::{ChangeClass, Document},
};

/// One item that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The item's id, for example `service:kubelet`.
    pub id: String,
    /// What a change of it asks for.
    pub change: ChangeClass,
    /// What differs, in words for people; never a secret.
    pub detail: String,
}

/// The items that a `plan` found different, in the document's order. An item that the document does not have (the
/// answer is for another document) asks for the highest class, so that it is never changed lightly.
#[must_use]
pub fn differences(document: &Document, answer: &Answer) -> Vec<Difference> {
    let class = |id: &str| {
        let item = document.items.iter().find(|item| item.id == id);
        item.map_or(ChangeClass::Replace, |item| item.change)
    };
    let differs = |state| matches!(state, ItemState::Differs | ItemState::Failed);
    let found = answer.items.iter().filter(|outcome| differs(outcome.state));
    found
        .map(|outcome| Difference {
            id: outcome.id.clone(),
            change: class(&outcome.id),
            detail: outcome.detail.clone(),
        })
        .collect()
}

/// What a change as a whole asks for: the highest class among its items; none when nothing differs.
#[must_use]
pub fn change_class(differences: &[Difference]) -> Option<ChangeClass> {
    differences.iter().map(|difference| difference.change).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        answer::{Facts, ItemOutcome, Reboot},
        document::{DOCUMENT_SCHEMA, Section},
        invocation::Mode,
        item::{Directory, Item, What},
    };

    fn item(id: &str, change: ChangeClass) -> Item {
        let what = What::Directory(Directory { path: r"C:\k".into(), keep: false });
        Item { id: id.into(), change, what }
    }

    fn answer(states: &[(&str, ItemState)]) -> Answer {
        let outcome = |(id, state): &(&str, ItemState)| ItemOutcome {
            id: (*id).into(),
            state: *state,
            detail: "differs".into(),
        };
        Answer {
            schema: DOCUMENT_SCHEMA,
            task: "machine/a@1.0".into(),
            attempt: 1,
            mode: Mode::Plan,
            script: String::new(),
            facts: Facts::default(),
            items: states.iter().map(outcome).collect(),
            missing_files: Vec::new(),
            reboot: Reboot::None,
            failure: None,
            took_ms: 0,
        }
    }

    #[test]
    fn a_change_takes_the_highest_class_of_its_items() {
        use ItemState::{Differs, Ok};
        let items = vec![
            item("a", ChangeClass::Live),
            item("b", ChangeClass::Drain),
            item("c", ChangeClass::Restart),
        ];
        let (schema, section) = (DOCUMENT_SCHEMA, Section::Host);
        let document = Document { schema, section, version: "v".into(), items };
        type Case<'a> = (&'a [(&'a str, ItemState)], Option<ChangeClass>);
        let table: [Case<'_>; 5] = [
            (&[("a", Ok), ("b", Ok), ("c", Ok)], None),
            (&[("a", Differs), ("b", Ok)], Some(ChangeClass::Live)),
            (&[("a", Differs), ("c", Differs)], Some(ChangeClass::Restart)),
            (&[("a", Differs), ("b", Differs), ("c", Differs)], Some(ChangeClass::Drain)),
            (&[("other", Differs)], Some(ChangeClass::Replace)),
        ];
        for (states, wanted) in table {
            let found = differences(&document, &answer(states));
            assert_eq!(change_class(&found), wanted, "{states:?}");
        }
    }
}
