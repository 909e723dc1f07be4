//! Ten thousand seeds hold every law, one seed twice gives the same bytes, and each fence is missed when it is away.

use dormer_engine_core::unfenced::{Fence, take_away};
use dormer_sim::{FAULTS_OF_LOST_RECORDS, Limits, Options, report, run};
use dormer_testkit::tier::sized;

fn seeds() -> (u64, u64) {
    let default = sized("0..1000", "0..10000");
    let text = std::env::var("DORMER_SEEDS").unwrap_or_else(|_| default.to_owned());
    let (from, to) = text.split_once("..").expect("DORMER_SEEDS=FROM..TO");
    (
        from.parse().expect("a number"),
        to.parse().expect("a number"),
    )
}

#[test]
fn every_law_holds_for_every_seed() {
    let (from, to) = seeds();
    let half = move |odd: u64| (from..to).filter(move |seed| seed % 2 == odd);
    let go = |odd| move || half(odd).find_map(|seed| report(seed, Options::default()));
    let threads = [0, 1].map(|odd| std::thread::spawn(go(odd)));
    for thread in threads {
        if let Some(report) = thread.join().expect("no panic") {
            panic!("{report}");
        }
    }
}

/// Seeds of one test of the parts `sim` and `sim-second-half`.
const SEEDS: u64 = 100_000;

/// Plays seeds on all processors. The answer is how many records were stored.
fn stored_by_seeds_from(first: u64) -> u64 {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let go = |thread: u64| {
        move || {
            let seeds = (first..first + SEEDS).filter(move |seed| seed % threads == thread);
            let stored = seeds.map(|seed| {
                let outcome = run(seed, Options::default());
                if outcome.violation.is_some() {
                    let report = report(seed, Options::default());
                    panic!("{}", report.unwrap_or_default());
                }
                outcome.history.len() as u64
            });
            stored.sum::<u64>()
        }
    };
    let threads: Vec<_> = (0..threads).map(|at| std::thread::spawn(go(at))).collect();
    let stored = threads
        .into_iter()
        .map(|thread| thread.join().expect("every law holds"));
    stored.sum()
}

/// An interrupted part continues at the first test that has not passed.
macro_rules! hundred_thousand_seeds {
    ($half:ident: $part:literal, $($name:ident: $first:literal;)*) => {
        mod $half {
            $(
                #[test]
                fn $name() {
                    let part = dormer_testkit::long!($part);
                    let stored = super::stored_by_seeds_from($first);
                    let seeds = super::SEEDS.to_string();
                    part.passed(&[("seeds", seeds), ("records", stored.to_string())]);
                }
            )*
        }
    };
}

hundred_thousand_seeds! {
    first_half: "sim",
    every_law_holds_from_seed_0: 0;
    every_law_holds_from_seed_100_000: 100_000;
    every_law_holds_from_seed_200_000: 200_000;
    every_law_holds_from_seed_300_000: 300_000;
    every_law_holds_from_seed_400_000: 400_000;
}

hundred_thousand_seeds! {
    second_half: "sim-second-half",
    every_law_holds_from_seed_500_000: 500_000;
    every_law_holds_from_seed_600_000: 600_000;
    every_law_holds_from_seed_700_000: 700_000;
    every_law_holds_from_seed_800_000: 800_000;
    every_law_holds_from_seed_900_000: 900_000;
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..20 {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()));
    }
}

/// An engine that stops between an append and the withdrawal of an ended task's orders leaves them in the queue until a
/// worker does them: its reports come late and change nothing, by every law. `the_attempt_is_missed` and
/// `the_issuing_record_is_missed` show that the laws would notice.
#[test]
fn orders_that_outlive_their_tasks_are_worked_on_and_change_nothing() {
    let outcomes = (0..200).map(|seed| run(seed, Options::default()));
    let mut left_over = 0;
    for outcome in outcomes {
        assert_eq!(outcome.violation, None);
        left_over += outcome.left_over;
    }
    assert!(left_over > 100, "{left_over} orders were left over");
}

/// Each limit of a count binds, alone and with the others, and every law holds. No simulated run reaches those of
/// production.
#[test]
fn every_law_holds_at_each_limit_of_a_count() {
    let none = Limits::default();
    let outbox = Some(1);
    let facts = Some(1);
    let events = Some(2);
    let table = [
        (Limits { outbox, ..none }, [true, false, false]),
        (Limits { facts, ..none }, [false, true, false]),
        (Limits { events, ..none }, [false, false, true]),
        (
            Limits {
                outbox,
                facts,
                events,
            },
            [true; 3],
        ),
    ];
    let seeds = sized(100, 1_000);
    for (limits, binds) in table {
        let options = Options {
            limits,
            ..Options::default()
        };
        let mut reached = [0; 3];
        for seed in 0..seeds {
            let outcome = run(seed, options);
            assert_eq!(outcome.violation, None, "seed {seed}, {limits:?}");
            for (sum, of) in reached.iter_mut().zip(outcome.reached) {
                *sum += of;
            }
        }
        let bound = reached.map(|times| times > seeds / 10);
        assert_eq!(bound, binds, "{limits:?}: {reached:?}");
    }
}

fn missed(fence: Fence) {
    missed_with(fence, Options::default());
}

fn missed_with(fence: Fence, options: Options) {
    take_away(Some(fence));
    let found = (0..8_000).find_map(|seed| Some((seed, run(seed, options).violation?)));
    take_away(None);
    let (seed, law) = found.unwrap_or_else(|| panic!("nobody noticed that {fence:?} was away"));
    assert_eq!(run(seed, options).violation, None, "with it, seed {seed}");
    println!("without {fence:?}, seed {seed}: {law}");
}

macro_rules! fences {
    ($($name:ident: $fence:ident,)*) => {
        $(
            #[test]
            fn $name() {
                missed(Fence::$fence);
            }
        )*
    };
}

fences! {
    the_attempt_is_missed: Attempt,
    the_deadline_is_missed: Deadline,
    the_receipt_is_missed: Receipt,
    asking_again_for_a_reused_id_is_missed: ReusedId,
    the_observations_version_is_missed: Observation,
    the_expected_revision_is_missed: Revision,
    acting_after_the_store_is_missed: EffectsAfterStore,
    reading_again_before_a_drop_is_missed: RereadBeforeDrop,
    what_is_outstanding_is_missed: Outstanding,
    the_incarnation_is_missed: Incarnation,
    the_issuing_record_is_missed: IssuingRecord,
    the_reporters_role_is_missed: Reporter,
    leaving_what_a_newer_build_wrote_is_missed: Newer,
    taking_a_request_once_is_missed: Request,
    the_earlier_of_two_alarms_is_missed: EarlierAlarm,
    the_last_record_that_an_engine_knows_is_missed: LastRecord,
    waiting_alone_for_a_lost_record_is_missed: DoubtAlone,
}

/// An engine misses the record and ends, and the next one gets a message to the run: few other faults, and more time.
#[test]
fn what_another_engine_missed_is_missed() {
    let options = Options {
        steps: 600,
        faults: FAULTS_OF_LOST_RECORDS,
        ..Options::default()
    };
    missed_with(Fence::NotedDoubt, options);
}
