//! Stories of a host whose clock goes wrong while its machine waits for its turn: it is looked at before a drain after
//! which the host gets a new certificate.

use crate::common::{
    Story, carrying, converged, evicted, facts, in_place, machine, machine_is, node_gone, node_is,
    planned, pool_is, probed, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::{
    machine::{ChangeClass, MachineApi, MachineFact, MachineRef, Outcome, Section, Signal},
    pool::PoolSettings,
};
use dormer_workflows::machine::{ChangeStrategy, Phase, Timer};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// A host that answers with a clock that is off by so many milliseconds.
fn off_by(ms: i64) -> Outcome {
    let mut facts = facts("boot-1");
    facts.clock_skew_ms = ms;
    Outcome::Probed {
        facts,
        host_key: "key-a".into(),
        node_name: "win-a".into(),
    }
}

const WRONG: i64 = 6 * 60_000;

/// A machine that waits for the lease, and was compared an hour ago.
fn waits_for_an_hour(pool: fn(&str) -> PoolSettings, class: ChangeClass) -> Story {
    let mut story = Story::joined(pool("v1"));
    story
        .feed("v2 is wanted", pool_is(pool("v2")))
        .done("plan", planned(Some(class)));
    waits(&story);
    story.later_ms(HOUR);
    story
}

fn waits(story: &Story) {
    let waits = matches!(story.state.phase, Phase::LeaseWait(_));
    assert!(waits, "{}", story.text);
}

fn opened() -> Outcome {
    Outcome::FenceOpened {
        was_cordoned: false,
    }
}

#[test]
fn a_host_whose_clock_went_wrong_in_the_queue_is_not_drained() {
    let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
    story.granted(7, false);
    assert_eq!(story.names(), ["probe"], "{}", story.text);
    story.done("probe", off_by(WRONG));
    assert_eq!(story.names(), ["close-fence"], "{}", story.text);
    let note = story.state.note.clone().expect("it says why");
    assert!(note.contains("6m ahead"), "{note}");
    story.done("close-fence", Outcome::FenceClosed);
    // It serves, and is compared again until its clock is right.
    assert_eq!(story.names(), ["plan"], "{}", story.text);
    let mut wrong = planned(Some(ChangeClass::Drain));
    if let Outcome::Planned { facts, .. } = &mut wrong {
        facts.clock_skew_ms = WRONG;
    }
    story.done("plan", wrong);
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    let why = story.state.report().not_compared;
    assert_eq!(why.expect("its rollout knows").code, "ClockSkew");
    story
        .feed("ten minutes later", Input::Fired(Timer::Drift))
        .done("plan", planned(Some(ChangeClass::Drain)));
    waits(&story);
    // It has just said that its clock is right.
    story.granted(8, false);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
}

#[test]
fn a_host_whose_clock_is_right_when_its_turn_comes_is_drained() {
    let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
    story.granted(7, false).done("probe", off_by(MINUTE as i64));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    story
        .done("open-fence", opened())
        .done("evict", evicted(0, 0));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
}

/// A comparison that renews a token in the queue says what the clock shows, and that counts for ten minutes only.
#[test]
fn a_clock_that_was_wrong_in_the_queue_is_read_again_for_the_grant() {
    let mut story = Story::joined(in_place("v1"));
    let renews = |skew| {
        let mut outcome = planned(Some(ChangeClass::Drain));
        if let Outcome::Planned { facts, renews, .. } = &mut outcome {
            facts.clock_skew_ms = skew;
            *renews = true;
        }
        outcome
    };
    story
        .feed("v2 is wanted", pool_is(in_place("v2")))
        .done("plan", renews(0));
    story
        .later_ms(6 * HOUR)
        .feed("its token is renewed", Input::Fired(Timer::Drift))
        .done("plan", renews(WRONG));
    waits(&story);
    story.granted(7, false).done("probe", off_by(0));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
}

#[test]
fn a_host_that_does_not_let_dormer_in_is_not_drained() {
    for code in ["ConnectTimeout", "AuthRejected", "HostKeyChanged"] {
        let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
        story.granted(7, false).given_up("probe", code);
        assert_eq!(story.names(), ["close-fence"], "{}", story.text);
        story
            .done("close-fence", Outcome::FenceClosed)
            .given_up("plan", code);
        assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
        let report = story.state.report();
        assert!(!report.failed && !report.unavailable, "{report:?}");
        assert_eq!(report.not_compared.expect("its rollout knows").code, code);
    }
}

/// A probe would fail with the lease held, and the rollout would stop for a host that is gone.
#[test]
fn a_host_that_the_machine_api_gave_up_in_the_queue_returns_the_lease() {
    for over_limit in [false, true] {
        let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
        let vanished = MachineFact {
            node: Some("win-a".into()),
            phase: Some("Failed".into()),
            error: Some("the instance is gone".into()),
            ..machine()
        };
        story
            .feed("its instance vanishes", machine_is(vanished))
            .granted(7, over_limit);
        assert_eq!(story.names(), ["close-fence"], "{}", story.text);
        let note = story.state.note.clone().expect("it says why");
        assert!(note.contains("the instance is gone"), "{note}");
        story.done("close-fence", Outcome::FenceClosed);
        assert!(!story.state.report().failed, "{}", story.text);
    }
}

/// Another machine comes, the host keeps its certificate, or it has no Node that could be drained.
#[test]
fn no_other_change_reads_the_clock() {
    let mut story = waits_for_an_hour(wanting, ChangeClass::Drain);
    story.granted(7, false);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);

    let mut story = waits_for_an_hour(in_place, ChangeClass::Restart);
    story.granted(7, false);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);

    let mut story = Story::joined(in_place("v1"));
    story.later_ms(HOUR).person(Signal::Drain).granted(7, false);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);

    let mut story = Story::joined(in_place("v1"));
    story
        .feed("its Node is gone", node_gone())
        .later_ms(HOUR)
        .feed("ten minutes later", Input::Fired(Timer::Deadline))
        .done("find-node", Outcome::NodeAbsent)
        .granted(7, false);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
}

fn own_host() -> MachineFact {
    let machine = machine();
    MachineFact {
        machine: MachineRef {
            api: MachineApi::Host,
            ..machine.machine.clone()
        },
        owner: None,
        node: Some("win-a".into()),
        ..machine
    }
}

/// Without a wait it would ask for the lease again at once, and keep it from others.
#[test]
fn a_host_that_a_person_wants_made_anew_waits_ten_minutes_for_its_clock() {
    let mut story = Story::begin(own_host());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .feed("its Node is seen", node_is(carrying("v1")))
        .done("probe", probed())
        .done("plan", planned(None))
        .later_ms(HOUR)
        .person(Signal::Recreate);
    let change = match &story.state.phase {
        Phase::LeaseWait(change) => change,
        other => panic!("{other:?}\n{}", story.text),
    };
    assert_eq!(change.how, ChangeStrategy::InPlace);
    story
        .granted(7, false)
        .done("probe", off_by(-WRONG))
        .done("close-fence", Outcome::FenceClosed);
    assert_eq!(story.state.phase, Phase::Serving, "{}", story.text);
    let held = story.state.held.clone().expect("dormer holds it");
    assert!(held.contains("6m behind"), "{held}");
    story
        .later_ms(10 * MINUTE)
        .feed("ten minutes later", Input::Fired(Timer::Drift))
        .granted(8, false)
        .done("probe", off_by(0));
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);
}

#[test]
fn a_machine_that_is_paused_or_moves_while_its_clock_is_read() {
    let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
    story
        .granted(7, false)
        .person(Signal::Pause)
        .done("probe", off_by(0));
    assert!(story.names().is_empty(), "{}", story.text);
    story.person(Signal::Resume);
    assert_eq!(story.names(), ["open-fence"], "{}", story.text);

    let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
    story.granted(7, false);
    let moved = MachineFact {
        addresses: vec!["10.0.0.2".into()],
        node: Some("win-a".into()),
        ..machine()
    };
    story.feed("it has another address", machine_is(moved));
    assert_eq!(story.names(), ["probe"], "{}", story.text);
    let host = story.task("probe").host().map(|it| it.address.clone());
    assert_eq!(host.as_deref(), Some("10.0.0.2"));
}

/// A host that answers with another name. The worker finds that out first, by the name on the Machine, if that is there.
fn renamed(story: &mut Story, by_worker: bool) {
    match by_worker {
        true => story.given_up("probe", "NameChanged"),
        false => story.done(
            "probe",
            Outcome::Probed {
                facts: facts("boot-1"),
                host_key: "key-a".into(),
                node_name: "win-b".into(),
            },
        ),
    };
}

/// Its certificates were approved for the other name: its Node is not drained, and the rollout continues without it.
#[test]
fn a_host_that_was_renamed_in_the_queue_returns_the_lease_and_is_not_drained() {
    for by_worker in [true, false] {
        let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
        story.granted(7, false);
        renamed(&mut story, by_worker);
        assert_eq!(story.names(), ["close-fence"], "{}", story.text);
        let note = story.state.note.clone().expect("it says why");
        assert!(note.contains("the lease is returned"), "{note}");
        story.done("close-fence", Outcome::FenceClosed);
        assert!(!story.state.report().failed, "{}", story.text);
        let held = story.state.held.clone().expect("dormer holds it");
        assert!(held.contains("NameChanged"), "{held}");
        // It asks again every ten minutes, and its comparison knows nothing of names.
        story
            .later_ms(10 * MINUTE)
            .feed("ten minutes later", Input::Fired(Timer::Drift))
            .done("plan", planned(Some(ChangeClass::Drain)))
            .granted(8, false);
        assert_eq!(story.names(), ["probe"], "{}", story.text);
        renamed(&mut story, by_worker);
        assert_eq!(story.names(), ["close-fence"], "{}", story.text);
        story
            .done("close-fence", Outcome::FenceClosed)
            .later_ms(10 * MINUTE)
            .feed("ten minutes later", Input::Fired(Timer::Drift))
            .done("plan", planned(Some(ChangeClass::Drain)))
            .granted(9, false)
            .done("probe", probed());
        assert_eq!(story.names(), ["open-fence"], "{}", story.text);
    }
}

/// What its clock showed before it was configured is dated: it may have been set meanwhile.
#[test]
fn a_node_that_does_not_come_names_the_clock_with_the_time_of_its_answer() {
    let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
    story
        .granted(7, false)
        .done("probe", probed())
        .done("open-fence", opened())
        .done("evict", evicted(0, 0))
        .done("tear-down", Outcome::TornDown)
        .feed("its Node goes", node_gone())
        .done("probe", off_by(-WRONG))
        .done("converge-host", converged(Section::Host, false))
        .later_ms(20 * MINUTE)
        .feed("no Node for twenty minutes", Input::Fired(Timer::Deadline));
    let Phase::Failed { failure, .. } = &story.state.phase else {
        panic!("{}", story.text)
    };
    assert_eq!(failure.code, "NodeOverdue");
    assert_eq!(
        failure.message,
        "no Node win-a appeared; when the host last answered, 20m ago, its clock was 6m behind, and 5m is the limit: \
         run w32tm /resync on the host"
    );
}

/// A budget held the drain for hours. Nothing is destroyed yet, so the Node can be given back.
#[test]
fn a_clock_that_went_wrong_in_a_long_drain_is_read_before_the_tear_down() {
    for (skew, next) in [(WRONG, "close-fence"), (0, "open-fence")] {
        let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
        story
            .granted(7, false)
            .done("probe", probed())
            .done("open-fence", opened())
            .done("evict", evicted(3, 1))
            .later_ms(3 * HOUR)
            .feed("five seconds later", Input::Fired(Timer::Again))
            .done("evict", evicted(1, 0));
        assert_eq!(story.names(), ["probe"], "{}", story.text);
        story.done("probe", off_by(skew));
        assert_eq!(story.names(), [next], "{}", story.text);
    }
    let mut story = waits_for_an_hour(in_place, ChangeClass::Drain);
    story
        .granted(7, false)
        .done("probe", probed())
        .done("open-fence", opened())
        .done("evict", evicted(3, 1))
        .later_ms(3 * HOUR)
        .feed("five seconds later", Input::Fired(Timer::Again))
        .done("evict", evicted(1, 0))
        .done("probe", probed())
        .done("open-fence", opened())
        .done("evict", evicted(0, 0));
    assert_eq!(story.names(), ["tear-down"], "{}", story.text);
}
