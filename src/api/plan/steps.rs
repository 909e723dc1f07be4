//! Last duration of each step of a change, from the histories: the basis of a plan's estimate.

use super::compare::ChangeMethod;
use dormer_proto::{id::Timestamp, phase::MachinePhase};
use dormer_views::{
    moment::Moment,
    plan::{MachinePlan, Step},
    timeline::{Episode, Phase},
    timing::{ChangePart, PhaseTiming, TIMINGS},
};
use dormer_workflows::machine::ChangeStrategy;
use std::collections::BTreeMap;

/// Steps of a change in their order.
fn steps(method: ChangeMethod) -> impl Iterator<Item = &'static PhaseTiming> {
    let of_part = |part: &'static ChangePart| {
        let rows = TIMINGS.iter();
        rows.filter(move |row| row.part == Some(*part))
    };
    parts(method).iter().flat_map(of_part)
}

/// Parts of a change in their order.
fn parts(method: ChangeMethod) -> &'static [ChangePart] {
    use ChangePart as C;
    match method {
        ChangeMethod::Mark => &[C::Check, C::Mark],
        ChangeMethod::Live => &[C::Check, C::Apply, C::Mark],
        ChangeMethod::Leased(ChangeStrategy::Recreate) => &[
            C::Fence,
            C::Drain,
            C::Delete,
            C::Provision,
            C::Configure,
            C::Mark,
        ],
        ChangeMethod::Leased(ChangeStrategy::InPlace) => &[
            C::Fence,
            C::Drain,
            C::TearDown,
            C::Configure,
            C::Mark,
            C::Close,
        ],
        ChangeMethod::Leased(ChangeStrategy::Restart) => {
            &[C::Fence, C::Configure, C::Mark, C::Close]
        }
        ChangeMethod::Leased(ChangeStrategy::Drain) => &[C::Fence, C::Drain],
    }
}

/// Sum of the last durations of a change's steps, in milliseconds. `None`: a step that every such change has is not known.
pub(crate) fn expected_ms(method: ChangeMethod, times: &Times) -> Option<u64> {
    let mut sum = 0;
    for step in steps(method) {
        match times.get(&step.phase) {
            Some(took) => sum += took.ms,
            None if step.optional => {}
            None => return None,
        }
    }
    Some(sum)
}

/// Last success of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepDuration {
    /// Duration in milliseconds.
    pub(crate) ms: u64,
    /// End, in milliseconds since 1970.
    pub(crate) at: u64,
    /// Name of the machine whose step it was.
    pub(crate) machine: String,
}

/// Last success of each step.
pub(crate) type Times = BTreeMap<MachinePhase, StepDuration>;

/// Step durations in a machine's episodes. Times of a step that one episode ran several times (before and after a
/// reboot) are added. Across two episodes only adjacent ones are.
pub(crate) fn times(episodes: &[Episode], machine: &str) -> Times {
    let mut times = Times::new();
    let lives: Vec<(usize, &Phase)> = episodes
        .iter()
        .enumerate()
        .flat_map(|(at, it)| it.phases.iter().map(move |p| (at, p)))
        .collect();
    let mut before: BTreeMap<MachinePhase, (usize, usize)> = BTreeMap::new();
    for (index, (episode, phase)) in lives.iter().enumerate() {
        let next = lives
            .get(index + 1)
            .and_then(|(_, next)| next.phase.known());
        let failed = next.is_some_and(|next| PhaseTiming::of(next).after_failure);
        let ended = phase.to.filter(|_| !failed);
        let (Some(to), Some(step)) = (ended, phase.phase.known()) else {
            continue;
        };
        let again = before
            .insert(step, (*episode, index))
            .is_some_and(|(was, last)| {
                let named = episodes[*episode].kind != dormer_views::timeline::BETWEEN;
                was == *episode && (named || last + 1 == index)
            });
        let took = times.get(&step).filter(|_| again).map_or(0, |took| took.ms);
        let took = StepDuration {
            ms: took + to.saturating_sub(phase.from),
            at: to,
            machine: machine.to_owned(),
        };
        times.insert(step, took);
    }
    times
}

/// Merges `one` into `all`, and keeps the newer time of each step.
pub(crate) fn merge(all: &mut Times, one: &Times) {
    for (step, took) in one {
        if all.get(step).is_none_or(|known| known.at < took.at) {
            all.insert(*step, took.clone());
        }
    }
}

/// Adds the steps to a machine's plan, each with the machine's last time or, without one, the pool's.
pub(crate) fn add_steps(plan: &mut MachinePlan, method: ChangeMethod, own: &Times, pool: &Times) {
    let drained = plan.drain_skipped.is_none();
    let taken = steps(method).filter(|step| drained || step.part != Some(ChangePart::Drain));
    for &PhaseTiming {
        phase, optional, ..
    } in taken
    {
        let took = own.get(&phase).or_else(|| pool.get(&phase));
        if took.is_some() || !optional {
            plan.steps.push(Step {
                phase: phase.into(),
                text: phase.text().to_owned(),
                took_ms: took.map(|took| took.ms),
                machine: took.map(|took| took.machine.clone()),
                at: took.map(|took| Moment(Timestamp(took.at))),
            });
        }
    }
    let known: Vec<u64> = plan.steps.iter().filter_map(|step| step.took_ms).collect();
    plan.expected_ms = (!known.is_empty()).then(|| known.iter().sum());
    plan.unknown_steps = (plan.steps.len() - known.len()) as u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::phase::Listed as _;

    fn phase(phase: MachinePhase, from: u64, to: Option<u64>) -> Phase {
        Phase {
            state: phase.state().into(),
            phase: phase.into(),
            text: phase.text().into(),
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

    fn ms(times: &Times, step: MachinePhase) -> Option<u64> {
        times.get(&step).map(|took| took.ms)
    }

    #[test]
    fn the_last_successful_time_of_each_step_counts() {
        let bring_up = |from: u64, long: u64| {
            let host = from + long;
            let boot = from + 2 * long;
            let again = from + 3 * long;
            let phases = vec![
                phase(MachinePhase::ConvergingHost, from, Some(host)),
                phase(MachinePhase::Rebooting, host, Some(boot)),
                phase(MachinePhase::ConvergingHost, boot, Some(again)),
                phase(MachinePhase::Soaking, again, Some(again + 5)),
            ];
            episode("bring-up", phases)
        };
        let serving = episode(
            "serving",
            vec![
                phase(MachinePhase::Serving, 100, Some(200)),
                phase(MachinePhase::Checking, 200, Some(201)),
                phase(MachinePhase::Serving, 201, Some(300)),
                phase(MachinePhase::Checking, 300, Some(303)),
                phase(MachinePhase::Applying, 303, Some(304)),
                phase(MachinePhase::Applying, 304, Some(310)),
            ],
        );
        let broken = episode(
            "repair",
            vec![
                phase(MachinePhase::Rebooting, 900, Some(990)),
                phase(MachinePhase::Failed, 990, Some(995)),
                phase(MachinePhase::Soaking, 995, None),
            ],
        );
        let times = times(&[bring_up(0, 10), bring_up(50, 7), serving, broken], "a");
        let steps = [
            MachinePhase::ConvergingHost,
            MachinePhase::Rebooting,
            MachinePhase::Soaking,
            MachinePhase::Checking,
            MachinePhase::Applying,
        ];
        let times = steps.map(|step| ms(&times, step));
        assert_eq!(times, [Some(14), Some(7), Some(5), Some(3), Some(7)]);
    }

    #[test]
    fn the_steps_of_each_change_are_in_their_order() {
        let listed = |method| -> Vec<String> {
            let text = |row: &PhaseTiming| {
                let mark = if row.optional { "?" } else { "" };
                format!("{}{mark}", row.phase)
            };
            steps(method).map(text).collect()
        };
        let configure = [
            "converging-host",
            "rebooting?",
            "node-wait?",
            "converging-node",
            "ready-wait?",
            "soaking",
            "marking",
        ];
        let replace = [
            "deleting",
            "vanishing",
            "address-wait?",
            "probing",
            "key-wait?",
        ];
        let drain = ["opening", "evicting"];
        let expected = [
            (ChangeMethod::Mark, vec!["checking", "marking"]),
            (ChangeMethod::Live, vec!["checking", "applying", "marking"]),
            (
                ChangeMethod::Leased(ChangeStrategy::Recreate),
                [&drain[..], &replace, &configure].concat(),
            ),
            (
                ChangeMethod::Leased(ChangeStrategy::InPlace),
                [
                    &drain[..],
                    &["tearing-down", "reprobing"],
                    &configure,
                    &["closing"],
                ]
                .concat(),
            ),
            (
                ChangeMethod::Leased(ChangeStrategy::Restart),
                [&["opening"][..], &configure, &["closing"]].concat(),
            ),
            (ChangeMethod::Leased(ChangeStrategy::Drain), drain.to_vec()),
        ];
        for (method, steps) in expected {
            assert_eq!(listed(method), steps);
        }
    }

    #[test]
    fn each_change_method_lists_its_own_times_or_else_the_pools() {
        let took = |ms, at, machine: &str| StepDuration {
            ms,
            at,
            machine: machine.into(),
        };
        let own = Times::from([(MachinePhase::Evicting, took(5, 1, "a"))]);
        let mut pool = own.clone();
        merge(
            &mut pool,
            &Times::from([(MachinePhase::Evicting, took(9, 2, "b"))]),
        );
        merge(
            &mut pool,
            &Times::from([(MachinePhase::Opening, took(2, 2, "b"))]),
        );
        merge(
            &mut pool,
            &Times::from([(MachinePhase::Evicting, took(7, 1, "c"))]),
        );
        assert_eq!(ms(&pool, MachinePhase::Evicting), Some(9));
        let plan = |method, own: &Times, pool: &Times| {
            let mut plan = MachinePlan::default();
            add_steps(&mut plan, method, own, pool);
            plan
        };
        let drain = plan(ChangeMethod::Leased(ChangeStrategy::Drain), &own, &pool);
        assert_eq!((drain.expected_ms, drain.unknown_steps), (Some(7), 0));
        assert_eq!(drain.steps[1].machine.as_deref(), Some("a"));
        // A turn is expected to last as long, before the first one has ended.
        assert_eq!(
            expected_ms(ChangeMethod::Leased(ChangeStrategy::Drain), &pool),
            Some(11)
        );
        assert_eq!(expected_ms(ChangeMethod::Mark, &pool), None);
        // Of a machine that was adopted, only the fence is known. That is no turn.
        assert_eq!(
            expected_ms(ChangeMethod::Leased(ChangeStrategy::InPlace), &pool),
            None,
            "a sum without the unknown steps is too short"
        );
        let mut all = pool.clone();
        for row in steps(ChangeMethod::Leased(ChangeStrategy::Restart)).filter(|row| !row.optional)
        {
            all.insert(row.phase, took(3, 3, "c"));
        }
        let restart = expected_ms(ChangeMethod::Leased(ChangeStrategy::Restart), &all);
        assert_eq!(restart, Some(18), "an optional step may be unknown");
        let recreate = plan(ChangeMethod::Leased(ChangeStrategy::Recreate), &own, &pool);
        assert_eq!((recreate.expected_ms, recreate.unknown_steps), (Some(7), 7));
        // Every Machine of the pool had its address when it was first seen: no step of a next one is unknown.
        let method = ChangeMethod::Leased(ChangeStrategy::Recreate);
        let taken = MachinePhase::ALL.iter().map(|it| (*it, took(3, 3, "c")));
        let addressed: Times = taken
            .filter(|(phase, _)| *phase != MachinePhase::AddressWait)
            .collect();
        assert_eq!(plan(method, &Times::new(), &addressed).unknown_steps, 0);
        assert!(expected_ms(method, &addressed).is_some());
        let mut skips = MachinePlan {
            drain_skipped: Some("the annotation a/b is set on the Machine".into()),
            ..MachinePlan::default()
        };
        add_steps(
            &mut skips,
            ChangeMethod::Leased(ChangeStrategy::Recreate),
            &own,
            &pool,
        );
        let names: Vec<&str> = skips.steps.iter().map(|it| it.text.as_str()).collect();
        assert!(!names.contains(&MachinePhase::Evicting.text()), "{names:?}");
        assert!(names.contains(&MachinePhase::Opening.text()), "{names:?}");
        let mark = plan(ChangeMethod::Mark, &Times::new(), &Times::new());
        assert_eq!((mark.expected_ms, mark.unknown_steps), (None, 2));
    }
}
