//! Machine in the list of the fleet's page: its view, and its trouble.

use dormer_api::{SharedRun, live::Live, views};
use dormer_proto::{code, id::Timestamp, lock::Locked as _, phase::MachineState};
use dormer_views::{
    machine::Machine,
    problem::{MachineProblem, Urgency, in_short_on_page, problem},
};
use std::{
    cmp::Ordering,
    sync::{Arc, Mutex},
};

/// States in the list's order: those that need a person come first.
pub(super) const STATES: [MachineState; 8] = [
    MachineState::Failed,
    MachineState::Provisioned,
    MachineState::Reachable,
    MachineState::Configured,
    MachineState::Draining,
    MachineState::Recreated,
    MachineState::Joined,
    MachineState::Gone,
];

/// Fewest bytes of a word of a search that may be the beginning of a UID. A few hexadecimal digits begin many of them.
const UID_WORD_MIN: usize = 8;

/// Column by which the list is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ItemColumn {
    Name,
    State,
    Since,
    Version,
    Node,
}

impl ItemColumn {
    pub(super) const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Name, "name", "Machine"),
        (Self::State, "state", "State"),
        (Self::Since, "since", "Since"),
        (Self::Version, "version", "Version"),
        (Self::Node, "node", "Node"),
    ];

    pub(super) fn of_id(id: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, known, _)| *known == id);
        found.map(|(column, _, _)| *column)
    }
}

/// Row of the list.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) machine: Machine,
    pub(super) problem: Option<MachineProblem>,
}

impl Item {
    /// Row of a run. `None`: the run is not a machine's, or has ended.
    pub(super) fn of(run: &SharedRun, live: &Live, now: Timestamp) -> Option<Self> {
        if run.closed.is_some() {
            return None;
        }
        let machine = views::machine(run, live, now)?;
        let problem = problem(&machine);
        Some(Self { machine, problem })
    }

    /// Whether it does not continue by itself.
    pub(super) fn is_stuck(&self) -> bool {
        self.urgency() == Some(Urgency::Stuck)
    }

    /// Urgency of its trouble.
    pub(super) fn urgency(&self) -> Option<Urgency> {
        self.problem.as_ref().map(|it| it.urgency)
    }

    /// Code of its trouble.
    pub(super) fn code(&self) -> Option<&str> {
        self.problem.as_ref().map(|it| it.code.as_str())
    }

    /// Order of the list: by `column` or, without one, machines in trouble first, then by state, then by name.
    pub(super) fn order(&self, other: &Self, column: Option<ItemColumn>) -> Ordering {
        let one = &self.machine;
        let two = &other.machine;
        let by = match column {
            None => self.rank().cmp(&other.rank()),
            Some(ItemColumn::Name) => Ordering::Equal,
            Some(ItemColumn::State) => state_rank(one).cmp(&state_rank(two)),
            Some(ItemColumn::Since) => one.status.since_seconds.cmp(&two.status.since_seconds),
            Some(ItemColumn::Version) => one.version.cmp(&two.version),
            Some(ItemColumn::Node) => one.node.cmp(&two.node),
        };
        by.then_with(|| one.name.cmp(&two.name))
    }

    fn rank(&self) -> (bool, Option<Urgency>, usize) {
        (
            self.problem.is_none(),
            self.urgency(),
            state_rank(&self.machine),
        )
    }

    /// Whether all words of a search occur in its searchable fields.
    pub(super) fn is_called(&self, words: &[String]) -> bool {
        if words.is_empty() {
            return true;
        }
        let machine = &self.machine;
        let cause = self.problem.as_ref();
        let texts = [
            Some(&machine.name),
            machine.node.as_ref(),
            machine.address.as_ref(),
            machine.owner.as_ref(),
            machine.version.as_ref(),
            machine.reason.as_ref(),
            Some(&machine.phase_text),
            cause.map(|it| &it.cause),
            cause.map(|it| &it.code),
        ];
        // As earlier builds wrote it, too.
        let is_cause = |word: &str| cause.is_some_and(|it| code::same(&it.code, word));
        // A UID is not shown in the list: digits inside it would find machines that have nothing to do with the search.
        let begins_uid = |word: &str| {
            let begin = machine.uid.get(..word.len());
            word.len() >= UID_WORD_MIN && begin.is_some_and(|it| it.eq_ignore_ascii_case(word))
        };
        let texts: Vec<&str> = texts
            .into_iter()
            .flatten()
            .map(String::as_str)
            .chain([machine.state.id()])
            .collect();
        words.iter().all(|word| {
            texts.iter().any(|text| has(text, word)) || begins_uid(word) || is_cause(word)
        })
    }

    /// A few words about it: its trouble, its planned changes, or what it waits for.
    pub(super) fn reason_text(&self) -> Option<String> {
        in_short_on_page(&self.machine)
    }
}

/// Rows of the newest snapshot. Each letter of a search asks for a list, which only filters them.
#[derive(Default)]
pub(super) struct ItemCache {
    /// Number of the snapshot, and its rows in the list's order. Lock held for a copy, never while rows are made.
    kept: Mutex<Option<(u64, Arc<Vec<Item>>)>>,
}

impl ItemCache {
    /// Rows of the snapshot of this number in the list's order. Those of number 0 are not kept.
    pub(super) fn items(
        &self,
        number: u64,
        runs: &[SharedRun],
        now: Timestamp,
        live: &Live,
    ) -> Arc<Vec<Item>> {
        let kept = self.kept.locked().clone();
        if let Some((_, items)) = kept.filter(|(of, _)| *of == number) {
            return items;
        }
        let runs = runs.iter();
        let mut items: Vec<Item> = runs.filter_map(|run| Item::of(run, live, now)).collect();
        items.sort_by(|one, other| one.order(other, None));
        let items = Arc::new(items);
        if number > 0 {
            *self.kept.locked() = Some((number, Arc::clone(&items)));
        }
        items
    }

    /// Drops the rows, when no page needs them.
    pub(super) fn clear(&self) {
        *self.kept.locked() = None;
    }
}

/// Whether `text` has `word`, which is in lower case. Most texts are in lower case themselves, and are not copied.
fn has(text: &str, word: &str) -> bool {
    let upper = || text.chars().any(char::is_uppercase);
    text.contains(word) || (upper() && text.to_lowercase().contains(word))
}

/// Rank of its state in the list's order.
fn state_rank(machine: &Machine) -> usize {
    let rank = STATES.iter().position(|state| machine.state == *state);
    rank.unwrap_or(STATES.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::tests::machine_in;
    use dormer_proto::phase::{Listed, MachinePhase};

    fn item(name: &str, phase: MachinePhase, seconds: u64) -> Item {
        let mut machine = machine_in(phase);
        machine.name = name.into();
        machine.status.since_seconds = seconds;
        let problem = problem(&machine);
        Item { machine, problem }
    }

    #[test]
    fn the_list_has_every_state() {
        assert!(MachineState::ALL.iter().all(|state| STATES.contains(state)));
    }

    #[test]
    fn who_does_not_go_on_comes_first_and_a_column_sorts_as_it_says() {
        let mut items = [
            item("serves", MachinePhase::Serving, 10),
            item("silent", MachinePhase::Probing, 3_600),
            item("asked", MachinePhase::ApprovalWait, 5),
            item("boots", MachinePhase::Probing, 20),
        ];
        let names = |items: &[Item]| -> Vec<String> {
            items.iter().map(|it| it.machine.name.clone()).collect()
        };
        items.sort_by(|one, two| one.order(two, None));
        assert_eq!(names(&items), ["silent", "asked", "boots", "serves"]);
        items.sort_by(|one, two| one.order(two, Some(ItemColumn::Since)));
        assert_eq!(names(&items), ["asked", "serves", "boots", "silent"]);
        items.sort_by(|one, two| one.order(two, Some(ItemColumn::Name)));
        assert_eq!(names(&items), ["asked", "boots", "serves", "silent"]);
    }

    #[test]
    fn a_cause_is_found_by_its_words_and_by_its_code() {
        let silent = item("silent", MachinePhase::Probing, 3_600);
        let words = |text: &str| vec![text.to_owned()];
        assert!(silent.is_stuck() && silent.code() == Some("Probing"));
        assert!(silent.is_called(&words("prob")) && !silent.is_called(&words("serving")));
    }

    #[test]
    fn rows_are_made_once_for_a_snapshot_and_anew_for_one_without_a_number() {
        let cache = ItemCache::default();
        let live = Live::default();
        let items = |number| cache.items(number, &[], Timestamp(0), &live);
        let first = items(1);
        assert!(Arc::ptr_eq(&first, &items(1)));
        assert!(!Arc::ptr_eq(&first, &items(2)));
        let unnumbered = items(0);
        assert!(!Arc::ptr_eq(&unnumbered, &items(0)));
    }

    #[test]
    fn a_number_finds_the_machine_that_has_it_and_a_uid_is_found_by_its_beginning() {
        let mut other = item("worker-04992", MachinePhase::Serving, 10);
        other.machine.uid = "00001380-9003-49FF-8ec4-b416090ac595".into();
        let finds = |text: &str| other.is_called(&[text.to_owned()]);
        assert!(finds("04992") && finds("00001380-9003-49ff"));
        assert!(!finds("01380"), "digits inside its UID");
        assert!(
            finds("00001380") && !finds("0000138"),
            "too short for a UID"
        );
    }
}
