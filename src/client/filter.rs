//! Filters of lists: by pool, state and selector.

use super::{
    Failure, absent,
    items::{ATTENTION, LABEL, ListItem, machine_states},
    server::Server,
    short_names::one_that_ends_in,
};
use clap::{
    Args, Command,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use dormer_profile::suggestion::question;
use dormer_proto::{
    code,
    phase::{Listed, MachinePhase, MachineState},
};
use dormer_views::{
    moment::seconds,
    problem::{ROLLOUT_WORDS, Urgency},
};
use std::{collections::BTreeSet, str::FromStr};

/// Filter of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(crate) struct Filter {
    /// Only those of this pool
    #[arg(long)]
    pub(super) pool: Option<String>,
    /// Only those in this state, or in one of several (failed,slow); attention are those that are stuck, wait for a person
    /// or are slow; held, paused and ignored those that a person stopped, on-purpose those of them on which nothing
    /// waits. Gone also finds machines that are gone. Upper and lower case are one
    #[arg(long, value_parser = StateParser)]
    pub(super) state: Option<String>,
    /// Only those with these fields, comma-separated: KEY=VALUE or KEY!=VALUE; keys are name, kind, namespace, pool,
    /// state, phase, version, node, owner, zone, template (current, outdated), code (of the failure) and label.NAME, a label
    /// of the Machine or of its Node's template, as in label.team=blue
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(super) selector: Option<Selector>,
    /// Only machines that were created at least this long ago: 90s, 15m, 2h or 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(super) older_than: Option<u64>,
    /// Only machines that were created less than this long ago
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(super) younger_than: Option<u64>,
}

/// Parser of a state that offers all of them, for help and completions. Which ones the listed objects have is known only
/// with their kind: [`Filter::check`] refuses the others.
#[derive(Debug, Clone)]
struct StateParser;

impl TypedValueParser for StateParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(names().into_iter().map(PossibleValue::new)))
    }
}

/// Seconds of an age.
fn age(text: &str) -> Result<u64, String> {
    seconds(text).ok_or_else(|| format!("{text:?} is not an age: write 90s, 15m, 2h or 7d"))
}

/// Words that are separated by commas.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// Words of `--state` for the attention that an item needs: its urgency, and the one for all that need any.
fn attention(item: &impl ListItem) -> impl Iterator<Item = &str> {
    let urgency = item.urgency();
    let any = urgency.filter(|it| *it != Urgency::OnPurpose);
    urgency
        .map(Listed::id)
        .into_iter()
        .chain(any.map(|_| ATTENTION))
}

/// Every state of a machine or a rollout.
pub(super) fn names() -> Vec<&'static str> {
    let mut names = machine_states();
    for state in ROLLOUT_WORDS {
        // A rollout is Paused, and a machine paused: the parser ignores the case.
        if !names.iter().any(|name| name.eq_ignore_ascii_case(state)) {
            names.push(state);
        }
    }
    names
}

impl Filter {
    /// Whether it takes everything.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn takes(&self, item: &impl ListItem) -> bool {
        let state = |wanted: &str| {
            let words = item.state().into_iter().chain(attention(item));
            let mut words = words.chain(item.halts());
            words.any(|it| it.eq_ignore_ascii_case(wanted))
        };
        let pool = |wanted: &String| item.pool() == Some(wanted);
        self.pool.as_ref().is_none_or(pool)
            && self.state.as_ref().is_none_or(|all| words(all).any(state))
            && self.selector.as_ref().is_none_or(|it| it.takes(item))
            && self.takes_age(item)
    }

    fn takes_age(&self, item: &impl ListItem) -> bool {
        let age = item.age_seconds();
        let is = |wanted: Option<u64>, fits: fn(u64, u64) -> bool| {
            wanted.is_none_or(|wanted| age.is_some_and(|age| fits(age, wanted)))
        };
        is(self.older_than, |age, least| age >= least)
            && is(self.younger_than, |age, end| age < end)
    }

    /// Whether it asks for machines that are gone, which are listed only then.
    pub(super) fn wants_gone(&self) -> bool {
        let gone = |text: &str| text.eq_ignore_ascii_case(MachineState::Gone.id());
        let terms = self.selector.iter().flat_map(|it| &it.0);
        let mut terms =
            terms.filter(|it| it.equal && ["state", "phase"].contains(&it.key.as_str()));
        self.state
            .as_deref()
            .is_some_and(|all| words(all).any(gone))
            || terms.any(|it| gone(&it.value))
    }

    /// Refuses an unknown pool.
    ///
    /// # Errors
    ///
    /// [`Failure::Absent`] with the existing pools.
    pub(super) async fn check_pool(&self, server: &Server) -> Result<(), Failure> {
        let terms = self.selector.iter().flat_map(|it| &it.0);
        let selected = terms.filter(|it| it.key == "pool").map(|it| &it.value);
        for pool in self.pool.iter().chain(selected) {
            absent::check_pool(server, pool).await?;
        }
        Ok(())
    }

    /// The filter with each version that only begins one of those of `all` written out.
    ///
    /// # Errors
    /// [`Failure::Usage`]: several versions begin so.
    pub(super) fn for_items<T: ListItem>(&self, all: &[&T]) -> Result<Self, Failure> {
        let mut filter = self.clone();
        let terms = filter.selector.iter_mut().flat_map(|it| &mut it.0);
        for term in terms.filter(|it| it.key == "version") {
            if all.iter().any(|it| term.fits(*it)) {
                continue;
            }
            let found = all.iter().filter_map(|it| it.field("version"));
            let found: BTreeSet<String> = found.filter(|it| it.starts_with(&term.value)).collect();
            if found.len() > 1 {
                let found: Vec<String> = found.into_iter().collect();
                return Err(Failure::Usage(format!(
                    "--selector version={}: several versions begin so: {}",
                    term.value,
                    absent::listed(&found)
                )));
            }
            if let Some(only) = found.into_iter().next() {
                term.value = only;
            }
        }
        Ok(filter)
    }

    /// Reason for which no `what` matches: a value of the selector that none of `all` has, and the values that they have.
    /// `None`: each value occurs, but not in combination.
    pub(super) fn unmatched<T: ListItem>(&self, what: &str, all: &[&T]) -> Option<String> {
        let terms = self.selector.iter().flat_map(|it| &it.0);
        let mut wanted = terms.filter(|term| term.equal);
        let Term { key, value, .. } =
            wanted.find(|term| !all.is_empty() && !all.iter().any(|it| term.fits(*it)))?;
        let mut there: Vec<String> = all.iter().filter_map(|it| it.field(key)).collect();
        there.sort_unstable();
        there.dedup();
        let near = question(value, there.iter().map(String::as_str));
        Some(match there.as_slice() {
            [] => format!("--selector {key}={value}: no {what} has a {key}"),
            [only] => {
                format!("no {what} has the {key} {value}{near}\nthe only {key} now is {only}")
            }
            there if key.starts_with(LABEL) => {
                let listed = absent::listed(there);
                format!("no {what} has the {key} {value}{near}\nits values now are {listed}")
            }
            there => {
                let listed = absent::listed(there);
                format!("no {what} has the {key} {value}{near}\nthe {key}s now are {listed}")
            }
        })
    }

    /// Refuses a state, and a selector's value, that such items never have.
    ///
    /// # Errors
    /// [`Failure::Usage`] with the values that there are.
    pub(super) fn check<T: ListItem>(&self, what: &str) -> Result<(), Failure> {
        for Term { key, value, .. } in self.selector.iter().flat_map(|it| &it.0) {
            let values = T::values(key);
            if values.is_empty() || values.iter().any(|it| it.eq_ignore_ascii_case(value)) {
                continue;
            }
            let near = question(value, values.iter().copied());
            return Err(Failure::Usage(format!(
                "--selector {key}={value}: {what} have no such {key}{near}\nits values are: {}",
                values.join(", ")
            )));
        }
        if !T::HAS_AGE && self.older_than.or(self.younger_than).is_some() {
            return Err(Failure::Usage(format!(
                "--older-than and --younger-than are about machines: {what} have no age"
            )));
        }
        let Some(state) = &self.state else {
            return Ok(());
        };
        let own = T::states();
        let states = if own.is_empty() { names() } else { own };
        let known = |word: &str| states.iter().any(|it| it.eq_ignore_ascii_case(word));
        let Some(state) = words(state).find(|word| !known(word)) else {
            return Ok(());
        };
        let near = question(state, states.iter().copied());
        Err(Failure::Usage(format!(
            "--state {state}: {what} are never in that state{near}\ntheir states are: {}",
            states.join(", ")
        )))
    }
}

/// Id of a phase that is written as the tables show it (`waiting for the lease`). Other text is returned unchanged.
pub(super) fn phase_id(text: &str) -> &str {
    let mut phases = MachinePhase::ALL.iter();
    let shown = phases.find(|it| it.text().eq_ignore_ascii_case(text));
    shown.map_or(text, |phase| phase.id())
}

/// Selector over an item's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    key: String,
    value: String,
    equal: bool,
}

/// Keys of selectors.
const KEYS: [&str; 12] = [
    "name",
    "kind",
    "namespace",
    "pool",
    "state",
    "phase",
    "version",
    "node",
    "owner",
    "zone",
    "template",
    "code",
];

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let term = |text: &str| {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| format!("{text:?} is neither KEY=VALUE nor KEY!=VALUE"))?;
            let equal = !key.ends_with('!');
            let key = key.trim_end_matches('!').trim();
            let label = key.strip_prefix(LABEL).is_some_and(|it| !it.is_empty());
            if !label && !KEYS.contains(&key) {
                let near = question(key, KEYS);
                return Err(format!(
                    "there is no key {key:?}{near}\nthe keys are: {}, {LABEL}NAME",
                    KEYS.join(", ")
                ));
            }
            let value = value.trim_start_matches('=').trim();
            Ok(Term {
                key: key.to_owned(),
                value: match key {
                    "phase" => phase_id(value).to_owned(),
                    _ => value.to_owned(),
                },
                equal,
            })
        };
        text.split(',')
            .map(term)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Selector {
    fn takes(&self, item: &impl ListItem) -> bool {
        self.0.iter().all(|term| term.fits(item) == term.equal)
    }
}

impl Term {
    /// Whether the item's field has the value. A name also matches by its end, as commands take it, a version without
    /// the hash behind it, and a state by its urgency. [`Filter::for_items`] writes the beginning of a version out.
    fn fits(&self, item: &impl ListItem) -> bool {
        let found = item.field(&self.key).unwrap_or_default();
        let same = |text: &str| text.eq_ignore_ascii_case(&self.value);
        match self.key.as_str() {
            "code" => {
                let shown = item.shown_code();
                [Some(found), shown]
                    .iter()
                    .flatten()
                    .any(|it| code::same(it, &self.value))
            }
            // As Kubernetes compares labels.
            label if label.starts_with(LABEL) => found == self.value,
            "name" => same(&found) || one_that_ends_in(&self.value, &[found.as_str()]).is_some(),
            "state" => same(&found) || item.halts().into_iter().chain(attention(item)).any(same),
            "version" => {
                let before_hash = found.rsplit_once('-').map(|(number, _)| number);
                same(&found) || before_hash.is_some_and(same)
            }
            _ => same(&found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::Progress;
    use crate::samples::{machine_with, rollout_with};
    use serde_json::json;

    fn by(text: &str) -> Filter {
        Filter {
            selector: Some(text.parse().expect("a selector")),
            ..Filter::default()
        }
    }

    #[test]
    fn a_selector_compares_fields() {
        let machine = machine_with(
            json!({"version": "v1", "state": "Failed", "phase": "failed",
            "failure": {"code": "access_denied", "message": "", "phase": "probing", "phaseText": "probing"}}),
        );
        assert!(by("version=v1,state==failed").takes(&machine));
        for code in ["access_denied", "AccessDenied", "access-denied"] {
            let filter = by(&format!("code={code}"));
            assert!(filter.takes(&machine), "{code}");
        }
        assert!(!by("version!=v1").takes(&machine));
        assert!(!by("node=n1").takes(&machine));
        let wrong = "colour=red".parse::<Selector>().unwrap_err();
        assert!(wrong.contains("version"), "{wrong}");
        assert!("version".parse::<Selector>().is_err());
    }

    #[test]
    fn a_selector_knows_the_code_that_is_shown_and_the_one_of_the_group() {
        let task = json!({"task": "machine/u@9.0", "run": "machine/u", "name": "probe", "machine": null, "attempt": 3,
            "attemptsMax": 65_535, "phase": "waiting", "since": null, "sinceSeconds": null, "heartbeat": null,
            "until": "2026-11-21T07:06:00.000Z", "failure": {"code": "ConnectTimeout", "message": "no answer"}});
        let late = machine_with(
            json!({"phase": "probing", "phaseText": "probing", "state": "Provisioned",
            "since": "2026-11-21T06:00:00.000Z", "sinceSeconds": 7_200, "tasks": [task]}),
        );
        for code in ["ConnectTimeout", "connect_timeout", "probing"] {
            assert!(by(&format!("code={code}")).takes(&late), "{code}");
        }
        assert!(!by("code=DiskFull").takes(&late));
    }

    #[test]
    fn a_selector_takes_the_end_of_a_name_as_commands_do() {
        let machine = machine_with(json!({"name": "c-windows-a-9wgrh"}));
        assert!(by("name=9wgrh").takes(&machine));
        assert!(by("name=c-windows-a-9wgrh").takes(&machine));
        assert!(!by("name!=9wgrh").takes(&machine));
        assert!(!by("name=grh").takes(&machine), "too short");
        assert_eq!(by("name=9wgrh").unmatched("machine", &[&machine]), None);
    }

    #[test]
    fn a_value_that_no_machine_can_have_is_refused_and_one_that_none_has_is_named() {
        let machine = machine_with(json!({"version": "11.0.0-9fc46aca439d", "pool": "windows"}));
        assert!(by("version=11.0.0").takes(&machine));
        assert!(!by("version=11.0").takes(&machine));
        assert!(!by("version!=11.0.0").takes(&machine));
        let refused = |text: &str| {
            let checked = by(text).check::<dormer_views::machine::Machine>("machines");
            checked.err().map(|it| it.to_string())
        };
        let state = refused("state=Joind").expect("refused");
        assert!(
            state.contains("did you mean Joined?") && state.contains("Failed"),
            "{state}"
        );
        assert!(refused("phase!=probign").is_some_and(|it| it.contains("probing")));
        assert_eq!(refused("state=stuck"), None);
        assert_eq!(refused("version=12"), None, "any version may occur");
        let other = machine_with(json!({"version": "11.0.1-0a1b2c3d4e5f"}));
        let why = |text: &str, all: &[&dormer_views::machine::Machine]| {
            by(text).unmatched("machine", all).unwrap_or_default()
        };
        assert_eq!(
            why("version=12", &[&machine, &other]),
            "no machine has the version 12\nthe versions now are 11.0.0-9fc46aca439d, 11.0.1-0a1b2c3d4e5f"
        );
        assert_eq!(
            why("version=12", &[&machine]),
            "no machine has the version 12\nthe only version now is 11.0.0-9fc46aca439d"
        );
        assert_eq!(
            why("zone=a", &[&machine]),
            "--selector zone=a: no machine has a zone"
        );
        assert_eq!(why("version=11.0.0", &[&machine]), "");
    }

    #[test]
    fn a_label_is_compared_as_kubernetes_does() {
        let machine = machine_with(json!({"labels": {"team": "Blue", "site.example/rack": "7"}}));
        let other = machine_with(json!({"labels": {"team": "red"}}));
        let bare = machine_with(json!({}));
        let all = [&machine, &other, &bare];
        let takes = |text: &str| all.map(|it| by(text).takes(it));
        assert_eq!(takes("label.team=Blue"), [true, false, false]);
        assert_eq!(takes("label.team=blue"), [false; 3]);
        assert_eq!(takes("label.team!=Blue"), [false, true, true]);
        assert_eq!(takes("label.site.example/rack=7"), [true, false, false]);
        assert!("label.=x".parse::<Selector>().is_err());
        let why = by("label.team=green").unmatched("machine", &all);
        assert_eq!(
            why.as_deref(),
            Some("no machine has the label.team green\nits values now are Blue, red")
        );
        let none = by("label.tier=web").unmatched("machine", &all);
        assert_eq!(
            none.as_deref(),
            Some("--selector label.tier=web: no machine has a label.tier")
        );
    }

    #[test]
    fn machines_are_chosen_by_age_and_what_has_none_is_refused() {
        let created = |at: &str| {
            machine_with(
                json!({"created": at, "since": "2026-11-21T06:00:00.000Z", "sinceSeconds": 0}),
            )
        };
        let old = created("2026-11-14T06:00:00.000Z");
        let new = created("2026-11-21T05:00:01.000Z");
        let older = |text| Filter {
            older_than: Some(age(text).expect("an age")),
            ..Filter::default()
        };
        let younger = |text| Filter {
            younger_than: Some(age(text).expect("an age")),
            ..Filter::default()
        };
        assert!(older("7d").takes(&old) && !older("8d").takes(&old));
        assert!(!younger("7d").takes(&old) && younger("8d").takes(&old));
        assert!(younger("1h").takes(&new) && !older("1h").takes(&new));
        assert!(!older("1h").is_empty());
        assert!(age("7").is_err() && age("a week").is_err());
        let task = older("1h").check::<dormer_views::run::Task>("tasks");
        assert!(task.is_err_and(|it| it.to_string().contains("tasks have no age")));
        let machine = older("1h").check::<dormer_views::machine::Machine>("machines");
        assert!(machine.is_ok());
    }

    #[test]
    fn a_version_may_be_given_by_a_beginning_that_only_one_has() {
        let machines = [
            "11.0.0-9fc46aca439d",
            "11.0.1-0a1b2c3d4e5f",
            "10.9.0-37cb91f94d5f",
        ]
        .map(|it| machine_with(json!({"version": it})));
        let all: Vec<_> = machines.iter().collect();
        let takes = |text: &str| {
            let filter = by(text).for_items(&all).expect("a filter");
            machines.each_ref().map(|it| filter.takes(it))
        };
        assert_eq!(takes("version=10"), [false, false, true]);
        assert_eq!(takes("version=11.0.0-9fc4"), [true, false, false]);
        assert_eq!(takes("version!=10.9"), [true, true, false]);
        assert_eq!(
            takes("version=11.0.1"),
            [false, true, false],
            "before the hash"
        );
        assert_eq!(takes("version=12"), [false; 3]);
        let several = by("version=11").for_items(&all).unwrap_err().to_string();
        assert!(
            several.contains("11.0.0-9fc46aca439d, 11.0.1-0a1b2c3d4e5f"),
            "{several}"
        );
    }

    #[test]
    fn what_a_person_stopped_is_found_by_the_word_that_is_shown() {
        let halt = json!({"kind": "held", "by": "ann", "text": "held by ann"});
        let held = machine_with(json!({"state": "Joined", "phase": "serving", "halt": halt}));
        let of_state = |state: &str| Filter {
            state: Some(state.into()),
            ..Filter::default()
        };
        for state in ["held", "Held", "joined"] {
            let filter = of_state(state);
            assert!(filter.takes(&held), "{state}");
            let checked = filter.check::<dormer_views::machine::Machine>("machines");
            assert_eq!(checked, Ok(()), "{state}");
            assert!(by(&format!("state={state}")).takes(&held), "{state}");
        }
        for several in ["failed,held", "Failed, Joined"] {
            let filter = of_state(several);
            assert!(filter.takes(&held), "{several}");
            let checked = filter.check::<dormer_views::machine::Machine>("machines");
            assert_eq!(checked, Ok(()), "{several}");
        }
        assert!(!of_state("failed,stuck").takes(&held));
        assert!(!of_state("paused").takes(&held));
        let both = json!({"halt": {"kind": "paused", "by": "bob", "text": "paused by bob"},
            "alsoHalted": [{"kind": "held", "by": "ann", "text": "held by ann"}]});
        let both = machine_with(both);
        assert!(of_state("held").takes(&both) && of_state("paused").takes(&both));
        assert!(by("state=held").takes(&both));
        for word in ["held", "paused", "ignored", "Halted", "stuck", "Joined"] {
            assert!(names().contains(&word), "{word}");
        }
    }

    #[test]
    fn a_mistyped_state_gets_the_states_of_the_listed_objects_alone() {
        let filter = Filter {
            state: Some("idel".into()),
            ..Filter::default()
        };
        let refused = filter.check::<Progress>("rollouts").expect_err("refused");
        assert_eq!(
            refused.to_string(),
            "--state idel: rollouts are never in that state; did you mean Idle?\n\
             their states are: Idle, Running, Waiting, Stopped, Stuck, Enrolling, Paused, Halted"
        );
    }

    #[test]
    fn a_filter_that_asks_for_gone_machines_finds_them() {
        let of_state = |state: &str| Filter {
            state: Some(state.into()),
            ..Filter::default()
        };
        for filter in [
            of_state("Gone"),
            of_state("failed,gone"),
            by("state=gone"),
            by("phase=gone"),
        ] {
            assert!(filter.wants_gone(), "{filter:?}");
        }
        for filter in [of_state("Failed"), by("state!=Gone"), Filter::default()] {
            assert!(!filter.wants_gone(), "{filter:?}");
        }
    }

    #[test]
    fn one_word_finds_all_that_need_attention() {
        let attention = Filter {
            state: Some("attention".into()),
            ..Filter::default()
        };
        assert_eq!(
            attention.check::<dormer_views::machine::Machine>("machines"),
            Ok(())
        );
        let failed = machine_with(json!({"state": "Failed", "phase": "failed", "failure":
            {"code": "x_y", "message": "", "phase": "probing", "phaseText": "probing"}}));
        let waits = machine_with(json!({"state": "Joined", "phase": "approval-wait"}));
        let held = machine_with(json!({"state": "Joined", "phase": "serving", "halt":
            {"kind": "held", "by": "ann", "text": "held by ann"}}));
        for (machine, wanted) in [(&failed, true), (&waits, true), (&held, false)] {
            assert_eq!(attention.takes(machine), wanted, "{machine:?}");
            assert_eq!(by("state=attention").takes(machine), wanted, "{machine:?}");
        }
        assert!(!attention.takes(&machine_with(json!({}))));
    }

    #[test]
    fn stuck_is_a_state_of_machines_and_of_rollouts() {
        let stuck = Filter {
            state: Some("stuck".into()),
            ..Filter::default()
        };
        let failed = json!({"state": "Failed", "phase": "failed", "failure":
            {"code": "x_y", "message": "", "phase": "probing", "phaseText": "probing"}});
        assert!(stuck.takes(&machine_with(failed)));
        assert!(!stuck.takes(&machine_with(json!({}))));
        assert!(
            stuck
                .check::<dormer_views::machine::Machine>("machines")
                .is_ok()
        );
        assert!(stuck.check::<Progress>("rollouts").is_ok());
        let halted = rollout_with(json!({"halted": "win-x failed"}));
        assert!(stuck.takes(&Progress::of(halted, &[])));
        assert!(!stuck.takes(&Progress::of(rollout_with(json!({})), &[])));
        let idle = Filter {
            state: Some("idle".into()),
            ..Filter::default()
        };
        assert!(idle.takes(&Progress::of(rollout_with(json!({})), &[])));
    }
}
