//! How long each step of a change took the last time, from the histories: what a plan may be expected to take.

use super::compare::ChangeMethod;
use dormer_views::timeline::{Episode, Phase};
use dormer_workflows::machine::How;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A step of a change: the phase's name, and whether only some changes run through it.
type Step = (&'static str, bool);

/// The fence and the drain.
const DRAIN: &[Step] = &[("opening the fence", false), ("evicting", false)];
/// The Machine goes; its MachineSet makes another.
const REPLACE: &[Step] = &[
    ("deleting the Machine", false),
    ("waiting for the Machine to be gone", false),
    ("waiting for an address", false),
    ("probing", false),
    ("waiting for the key to be accepted", true),
];
/// The host is emptied.
const EMPTY: &[Step] = &[
    ("tearing down", false),
    ("probing the torn-down host", false),
];
/// The host becomes a node.
const CONFIGURE: &[Step] = &[
    ("converging the host", false),
    ("rebooting", true),
    ("waiting for the Node", true),
    ("converging the node", false),
    ("waiting for Ready", true),
    ("soaking", false),
    ("marking the Node", false),
];
const CLOSE: &[Step] = &[("closing the fence", false)];
const LIVE: &[Step] = &[
    ("checking", false),
    ("applying in place", false),
    ("marking the Node", false),
];
const MARK: &[Step] = &[("checking", false), ("marking the Node", false)];
const OPEN: &[Step] = &[("opening the fence", false)];

/// Phases that say that the phase before did not succeed.
const FAILURES: [&str; 3] = ["failed", "undoing", "being deleted by somebody else"];

/// The steps of a change, in their order. The waits for approval and for the lease are none: they take what they take.
pub(crate) fn steps(method: ChangeMethod) -> Vec<Step> {
    let parts: &[&[Step]] = match method {
        ChangeMethod::Mark => &[MARK],
        ChangeMethod::Live => &[LIVE],
        ChangeMethod::Leased(How::Recreate) => &[DRAIN, REPLACE, CONFIGURE],
        ChangeMethod::Leased(How::InPlace) => &[DRAIN, EMPTY, CONFIGURE, CLOSE],
        ChangeMethod::Leased(How::Restart) => &[OPEN, CONFIGURE, CLOSE],
        ChangeMethod::Leased(How::Drain) => &[DRAIN],
    };
    parts.concat()
}

/// The last time that a step succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Took {
    /// Milliseconds.
    pub(crate) ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub(crate) at: u64,
    /// Whose step it was: the machine's name.
    pub(crate) machine: String,
}

/// The last times of each step, by the phase's name.
pub(crate) type Times = BTreeMap<String, Took>;

/// What a machine's life tells. Of an episode that came through a step more than once (before a reboot, and after)
/// the times are added; between episodes only what follows each other is.
pub(crate) fn times(episodes: &[Episode], machine: &str) -> Times {
    let mut times = Times::new();
    let lives: Vec<(usize, &Phase)> = episodes
        .iter()
        .enumerate()
        .flat_map(|(at, it)| it.phases.iter().map(move |p| (at, p)))
        .collect();
    let mut before: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (index, (episode, phase)) in lives.iter().enumerate() {
        let next = lives.get(index + 1).map(|(_, next)| next.phase.as_str());
        let failed = next.is_some_and(|next| FAILURES.contains(&next));
        let Some(to) = phase.to.filter(|_| !failed) else {
            continue;
        };
        let again = before
            .insert(&phase.phase, (*episode, index))
            .is_some_and(|(was, last)| {
                let named = episodes[*episode].kind != dormer_views::timeline::BETWEEN;
                was == *episode && (named || last + 1 == index)
            });
        let took = times
            .get(&phase.phase)
            .filter(|_| again)
            .map_or(0, |took| took.ms);
        let ms = took + to.saturating_sub(phase.from);
        times.insert(
            phase.phase.clone(),
            Took {
                ms,
                at: to,
                machine: machine.to_owned(),
            },
        );
    }
    times
}

/// Takes over what is newer.
pub(crate) fn merge(all: &mut Times, one: &Times) {
    for (step, took) in one {
        if all.get(step).is_none_or(|known| known.at < took.at) {
            all.insert(step.clone(), took.clone());
        }
    }
}

/// Tells a machine's plan its steps, each with its own last time or, without one, its pool's.
pub(crate) fn add_steps(shown: &mut Value, method: ChangeMethod, own: &Times, pool: &Times) {
    let mut shown_steps = Vec::new();
    for (step, optional) in steps(method) {
        let took = own.get(step).or_else(|| pool.get(step));
        if took.is_some() || !optional {
            shown_steps.push(json!({
                "step": step,
                "tookMs": took.map(|took| took.ms),
                "machine": took.map(|took| took.machine.as_str()),
                "at": took.map(|took| dormer_views::moment::time(dormer_proto::id::Timestamp(took.at))),
            }));
        }
    }
    let known: Vec<u64> = shown_steps
        .iter()
        .filter_map(|step| step["tookMs"].as_u64())
        .collect();
    shown["expectedMs"] = (!known.is_empty())
        .then(|| known.iter().sum::<u64>())
        .into();
    shown["unknownSteps"] = (shown_steps.len() - known.len()).into();
    shown["steps"] = shown_steps.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, from: u64, to: Option<u64>) -> Phase {
        let state = String::new();
        let phase = name.to_owned();
        Phase {
            state,
            phase,
            from,
            to,
            tasks: Vec::new(),
        }
    }

    fn episode(kind: &str, phases: Vec<Phase>) -> Episode {
        let from = phases[0].from;
        let to = phases.last().and_then(|last| last.to);
        Episode {
            kind: kind.into(),
            seq: from,
            from,
            to,
            result: String::new(),
            phases,
        }
    }

    fn ms(times: &Times, step: &str) -> Option<u64> {
        times.get(step).map(|took| took.ms)
    }

    #[test]
    fn the_last_successful_time_of_each_step_counts() {
        let bring_up = |from: u64, long: u64| {
            let host = from + long;
            let boot = from + 2 * long;
            let again = from + 3 * long;
            let phases = vec![
                phase("converging the host", from, Some(host)),
                phase("rebooting", host, Some(boot)),
                phase("converging the host", boot, Some(again)),
                phase("soaking", again, Some(again + 5)),
            ];
            episode("bring-up", phases)
        };
        let serving = episode(
            "serving",
            vec![
                phase("serving", 100, Some(200)),
                phase("checking", 200, Some(201)),
                phase("serving", 201, Some(300)),
                phase("checking", 300, Some(303)),
                phase("applying in place", 303, Some(304)),
                phase("applying in place", 304, Some(310)),
            ],
        );
        let broken = episode(
            "repair",
            vec![
                phase("rebooting", 900, Some(990)),
                phase("failed", 990, Some(995)),
                phase("soaking", 995, None),
            ],
        );
        let times = times(&[bring_up(0, 10), bring_up(50, 7), serving, broken], "a");
        let names = [
            "converging the host",
            "rebooting",
            "soaking",
            "checking",
            "applying in place",
        ];
        let times = names.map(|step| ms(&times, step));
        assert_eq!(times, [Some(14), Some(7), Some(5), Some(3), Some(7)]);
    }

    #[test]
    fn each_change_method_lists_its_own_times_or_else_the_pools() {
        let took = |ms, at, machine: &str| Took {
            ms,
            at,
            machine: machine.into(),
        };
        let own = Times::from([("evicting".to_owned(), took(5, 1, "a"))]);
        let mut pool = own.clone();
        merge(
            &mut pool,
            &Times::from([("evicting".to_owned(), took(9, 2, "b"))]),
        );
        merge(
            &mut pool,
            &Times::from([("opening the fence".to_owned(), took(2, 2, "b"))]),
        );
        merge(
            &mut pool,
            &Times::from([("evicting".to_owned(), took(7, 1, "c"))]),
        );
        assert_eq!(ms(&pool, "evicting"), Some(9));
        let mut shown = json!({});
        add_steps(&mut shown, ChangeMethod::Leased(How::Drain), &own, &pool);
        assert_eq!(
            (&shown["expectedMs"], &shown["unknownSteps"]),
            (&json!(7), &json!(0))
        );
        assert_eq!(shown["steps"][1]["machine"], "a");
        add_steps(&mut shown, ChangeMethod::Leased(How::Recreate), &own, &pool);
        assert_eq!(
            (&shown["expectedMs"], &shown["unknownSteps"]),
            (&json!(7), &json!(8))
        );
        add_steps(&mut shown, ChangeMethod::Mark, &Times::new(), &Times::new());
        assert_eq!(
            (&shown["expectedMs"], &shown["unknownSteps"]),
            (&Value::Null, &json!(2))
        );
    }

    #[test]
    fn every_step_is_a_phase() {
        use dormer_proto::machine::Section;
        use dormer_workflows::machine::{Change, Drain, Phase};
        let change = || Change {
            how: How::Drain,
            differs: Vec::new(),
        };
        let boot_id = String::new();
        let since = Default::default();
        let section = Section::Host;
        let phases = [
            Phase::Checking,
            Phase::Applying { section },
            Phase::Opening(change()),
            Phase::Evicting(change(), Drain::default()),
            Phase::Deleting,
            Phase::Vanishing,
            Phase::Address,
            Phase::Probing,
            Phase::KeyWait { since },
            Phase::TearingDown,
            Phase::Reprobing,
            Phase::ConvergingHost { rebooted: false },
            Phase::Rebooting {
                boot_id,
                asked: true,
            },
            Phase::NodeWait,
            Phase::ConvergingNode,
            Phase::ReadyWait,
            Phase::Soaking,
            Phase::Marking,
            Phase::Closing,
        ];
        let known: Vec<&str> = phases.iter().map(Phase::name).collect();
        let methods =
            [How::Recreate, How::InPlace, How::Restart, How::Drain].map(ChangeMethod::Leased);
        for method in methods
            .into_iter()
            .chain([ChangeMethod::Live, ChangeMethod::Mark])
        {
            for (step, _) in steps(method) {
                assert!(known.contains(&step), "{step} is no phase");
            }
        }
    }
}
