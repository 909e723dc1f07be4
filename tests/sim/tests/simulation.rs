//! Ten thousand seeds hold every law, one seed twice gives the same bytes, and each fence is missed when it is away.

use dormer_engine_core::unfenced::{Fence, take_away};
use dormer_sim::{Options, report, run};

fn seeds() -> (u64, u64) {
    let text = std::env::var("DORMER_SEEDS").unwrap_or_else(|_| "0..10000".to_owned());
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

fn missed(fence: Fence) {
    take_away(Some(fence));
    let found = (0..8_000).find_map(|seed| Some((seed, run(seed, Options::default()).violation?)));
    take_away(None);
    let (seed, law) = found.unwrap_or_else(|| panic!("nobody noticed that {fence:?} was away"));
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
    leaving_what_a_newer_build_wrote_is_missed: Newer,
    taking_a_request_once_is_missed: Request,
    the_earlier_of_two_alarms_is_missed: EarlierAlarm,
}
