//! Differences between a host and its document, and the class of their repair.

use crate::{
    answer::{Answer, ItemOutcome, ItemState},
    document::{ChangeClass, Document},
    item::ItemKind,
};

/// Item that does not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The item's id, for example `service:kubelet`.
    pub id: String,
    pub change: ChangeClass,
    /// Difference in words for people; never a secret.
    pub detail: String,
}

/// Items that a `plan` found different, in the document's order. The host gives the class of what the document does not
/// have any more. Where it gives none, the answer is for another document: the item has the highest class, so that it is
/// never changed without care.
#[must_use]
pub fn differences(document: &Document, answer: &Answer) -> Vec<Difference> {
    let class = |outcome: &ItemOutcome| {
        let item = document.items.iter().find(|item| item.id == outcome.id);
        match item {
            Some(item) => item.change.max(outcome.change.unwrap_or_default()),
            None => outcome.change.unwrap_or(ChangeClass::Replace),
        }
    };
    let differs = |state| matches!(state, ItemState::Differs | ItemState::Failed);
    let found = answer.items.iter().filter(|outcome| differs(outcome.state));
    found
        .map(|outcome| Difference {
            id: outcome.id.clone(),
            change: class(outcome),
            detail: outcome.detail.clone(),
        })
        .collect()
}

/// Differences that a `plan` of `to` would find on a host that matches `from`. Of what only `from` has, it names what pods
/// use: that takes a drain, and the rest goes live.
#[must_use]
pub fn between(from: &Document, to: &Document) -> Vec<Difference> {
    let before = |id: &str| from.items.iter().find(|item| item.id == id);
    let differs = to.items.iter().filter_map(|item| {
        let detail = match before(&item.id) {
            None => missing(&item.what).to_owned(),
            Some(before) if before.what == item.what => return None,
            Some(before) => fields(&before.what, &item.what),
        };
        Some(Difference {
            id: item.id.clone(),
            change: item.change,
            detail,
        })
    });
    let kept = |used| to.items.iter().any(|item| used_by_pods(&item.what) == used);
    let used = from.items.iter().map(|item| used_by_pods(&item.what));
    let dropped = used.filter(|used| !kept(*used)).flatten();
    let dropped = dropped.map(|(kind, name)| Difference {
        id: format!("{kind}:{name}"),
        change: ChangeClass::Drain,
        detail: "is no longer wanted".to_owned(),
    });
    differs.chain(dropped).collect()
}

/// Kind and name of what pods may use: its removal takes a drain, as the host program says.
fn used_by_pods(what: &ItemKind) -> Option<(&'static str, &str)> {
    match what {
        ItemKind::Service(what) => Some(("service", &what.name)),
        ItemKind::Lingering(what) => Some(("lingering", &what.process)),
        ItemKind::HnsEndpoint(what) => Some(("endpoint", &what.name)),
        ItemKind::HnsNetwork(what) => Some(("network", &what.name)),
        _ => None,
    }
}

/// What a host that lacks the item is found to be, in the host program's words.
fn missing(what: &ItemKind) -> &'static str {
    match what {
        ItemKind::DefenderExclusion(_) => "is not excluded",
        ItemKind::DisabledService(_) => "is not disabled",
        ItemKind::Feature(_) => "is not enabled",
        ItemKind::File(_) => "not uploaded",
        ItemKind::Image(_) => "is not in containerd's store",
        _ => "is not there",
    }
}

/// Names of the fields in which two items differ; never their values, which may be secrets.
fn fields(from: &ItemKind, to: &ItemKind) -> String {
    let object = |what: &ItemKind| match serde_json::to_value(what) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let from = object(from);
    let to = object(to);
    let differs = to
        .iter()
        .filter(|(name, value)| from.get(*name) != Some(value));
    let names: Vec<&str> = differs.map(|(name, _)| name.as_str()).collect();
    // Content and its digest change together; one of them is enough for people.
    if names.contains(&"sha256") {
        "another content".to_owned()
    } else {
        format!("another {}", names.join(", "))
    }
}

/// Class of a whole change: the highest among its items. `None`: nothing differs.
#[must_use]
pub fn change_class(differences: &[Difference]) -> Option<ChangeClass> {
    differences.iter().map(|difference| difference.change).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        answer::{Facts, Reboot},
        document::{DOCUMENT_SCHEMA, Section},
        invocation::Mode,
        item::{Directory, Item, ItemKind, Lingering},
    };

    fn item(id: &str, change: ChangeClass) -> Item {
        let what = ItemKind::Directory(Directory {
            path: r"C:\k".into(),
            keep: false,
        });
        Item {
            id: id.into(),
            change,
            what,
        }
    }

    fn answer(states: &[(&str, ItemState)]) -> Answer {
        let outcome = |(id, state): &(&str, ItemState)| ItemOutcome {
            id: (*id).into(),
            state: *state,
            detail: "differs".into(),
            change: None,
        };
        Answer {
            schema: DOCUMENT_SCHEMA,
            task: "machine/a@1.0".into(),
            attempt: 1,
            mode: Mode::Plan,
            program: String::new(),
            facts: Facts::default(),
            items: states.iter().map(outcome).collect(),
            missing_files: Vec::new(),
            reboot: Reboot::None,
            failure: None,
            took_ms: 0,
        }
    }

    #[test]
    fn two_documents_differ_in_what_a_plan_would_find() {
        let document = |items| Document {
            schema: DOCUMENT_SCHEMA,
            section: Section::Host,
            version: "v".into(),
            items,
            kept: Vec::new(),
        };
        let mut kept = item("b", ChangeClass::Drain);
        let from = document(vec![item("a", ChangeClass::Live), kept.clone()]);
        kept.what = ItemKind::Directory(Directory {
            path: r"C:\k".into(),
            keep: true,
        });
        let to = document(vec![kept, item("c", ChangeClass::Restart)]);
        let found = between(&from, &to);
        let names: Vec<_> = found
            .iter()
            .map(|one| (one.id.as_str(), one.change, one.detail.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                ("b", ChangeClass::Drain, "another keep"),
                ("c", ChangeClass::Restart, "is not there")
            ]
        );
        assert!(between(&to, &to).is_empty());
        // Processes that a removal has to end.
        let mut process = item("lingering:a", ChangeClass::Live);
        process.what = ItemKind::Lingering(Lingering {
            process: "a".into(),
        });
        let mut used = to.clone();
        used.items.push(process);
        let found = between(&used, &to);
        let dropped = Difference {
            id: "lingering:a".into(),
            change: ChangeClass::Drain,
            detail: "is no longer wanted".into(),
        };
        assert_eq!(found, [dropped]);
    }

    #[test]
    fn a_change_takes_the_highest_class_of_its_items() {
        use ItemState::{Differs, Ok};
        let items = vec![
            item("a", ChangeClass::Live),
            item("b", ChangeClass::Drain),
            item("c", ChangeClass::Restart),
        ];
        let schema = DOCUMENT_SCHEMA;
        let section = Section::Host;
        let document = Document {
            schema,
            section,
            version: "v".into(),
            items,
            kept: Vec::new(),
        };
        type Case<'a> = (&'a [(&'a str, ItemState)], Option<ChangeClass>);
        let table: [Case<'_>; 5] = [
            (&[("a", Ok), ("b", Ok), ("c", Ok)], None),
            (&[("a", Differs), ("b", Ok)], Some(ChangeClass::Live)),
            (
                &[("a", Differs), ("c", Differs)],
                Some(ChangeClass::Restart),
            ),
            (
                &[("a", Differs), ("b", Differs), ("c", Differs)],
                Some(ChangeClass::Drain),
            ),
            (&[("other", Differs)], Some(ChangeClass::Replace)),
        ];
        for (states, wanted) in table {
            let found = differences(&document, &answer(states));
            assert_eq!(change_class(&found), wanted, "{states:?}");
        }
        // What the document has no longer: the host knows what that disturbs.
        let mut dropped = answer(&[("service:old", Differs)]);
        for change in [ChangeClass::Live, ChangeClass::Drain] {
            dropped.items[0].change = Some(change);
            assert_eq!(
                change_class(&differences(&document, &dropped)),
                Some(change)
            );
        }
    }
}
