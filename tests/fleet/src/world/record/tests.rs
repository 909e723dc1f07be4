//! What counts as unavailable, and what as taken.

use super::*;

fn record() -> Record {
    Record::new(WorldClock::system(), Pace::LIFE)
}

fn because(reasons: &[Unavailable]) -> BTreeSet<Unavailable> {
    reasons.iter().copied().collect()
}

#[tokio::test]
async fn a_first_bring_up_never_counts() {
    let record = record();
    let cordoned = [Unavailable::NotReady, Unavailable::Cordoned];
    record.node_state("a", None, because(&[Unavailable::NotReady]), None);
    record.node_state("b", None, because(&cordoned), None);
    assert_eq!(record.max_unavailable_observed(), 0);
    record.node_state("a", None, because(&[]), None);
    record.node_state("a", None, because(&[Unavailable::Cordoned]), Some("dormer"));
    record.node_state("a", None, because(&cordoned), None);
    assert_eq!(
        (record.max_unavailable_observed(), record.unavailable_now()),
        (1, 1)
    );
    record.node_state("a", None, because(&[]), None);
    assert_eq!(
        (record.max_unavailable_observed(), record.unavailable_now()),
        (1, 0)
    );
}

#[tokio::test]
async fn a_removed_node_counts_until_it_is_replaced() {
    let record = record();
    record.set_size("s", Some(2));
    for node in ["a", "b"] {
        record.node_state(node, Some("s"), because(&[]), None);
    }
    record.node_state("a", None, because(&[Unavailable::Cordoned]), Some("dormer"));
    record.node_deleted("a", None);
    assert_eq!(record.unavailable_now(), 1);
    record.node_state("c", Some("s"), because(&[]), None);
    record.node_state("b", None, because(&[Unavailable::Cordoned]), Some("dormer"));
    assert_eq!(
        (record.unavailable_now(), record.max_unavailable_observed()),
        (1, 1)
    );
    record.node_deleted("b", None);
    record.set_size("s", Some(1));
    assert_eq!(
        (record.unavailable_now(), record.max_unavailable_observed()),
        (0, 1)
    );
}

#[tokio::test]
async fn only_a_node_that_served_is_taken_until_it_is_replaced() {
    let record = record();
    record.set_size("s", Some(3));
    for node in ["a", "b", "c"] {
        record.node_state(node, Some("s"), because(&[]), None);
    }
    // Down by itself, and then repaired.
    record.node_state("b", None, because(&[Unavailable::NotReady]), None);
    record.node_fenced("b");
    assert_eq!(record.max_taken_observed(), 0);
    record.node_fenced("a");
    record.node_state("a", None, because(&[Unavailable::Cordoned]), None);
    assert_eq!(record.max_taken_nodes(), ["a"]);
    record.node_deleted("a", None);
    // Its replacement serves, and the next one is taken: never two.
    record.node_state("d", Some("s"), because(&[]), None);
    record.node_fenced("c");
    assert_eq!(record.max_taken_observed(), 1);
    record.node_state("c", None, because(&[Unavailable::Cordoned]), None);
    record.node_unfenced("c");
    record.node_fenced("d");
    assert_eq!(record.max_taken_observed(), 2, "c is cordoned still");
}

#[tokio::test]
async fn a_replacement_that_serves_before_the_old_node_goes_leaves_no_gap() {
    let record = record();
    record.set_size("s", Some(2));
    for node in ["a", "b"] {
        record.node_state(node, Some("s"), because(&[]), None);
    }
    record.node_fenced("a");
    record.node_state("a", None, because(&[Unavailable::Cordoned]), None);
    record.node_state("c", Some("s"), because(&[]), None);
    record.node_deleted("a", None);
    assert_eq!(record.unavailable_now(), 0);
    record.node_fenced("b");
    record.node_state("b", None, because(&[Unavailable::Cordoned]), None);
    assert_eq!(
        (record.max_taken_observed(), record.unavailable_now()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_set_that_was_made_larger_meanwhile_lacks_nobody_that_was_taken() {
    let record = record();
    record.set_size("s", Some(2));
    for node in ["a", "b"] {
        record.node_state(node, Some("s"), because(&[]), None);
    }
    record.set_size("s", Some(3));
    record.node_fenced("a");
    record.node_state("a", None, because(&[Unavailable::Cordoned]), None);
    record.node_state("c", Some("s"), because(&[]), None);
    record.node_deleted("a", None);
    // The third has never served, and c serves in a's place.
    assert_eq!(record.unavailable_now(), 0);
    record.node_fenced("b");
    record.node_state("b", None, because(&[Unavailable::Cordoned]), None);
    assert_eq!(record.max_taken_observed(), 1);
    // b goes, and no machine serves in its place yet: the third one taken is the second at once.
    record.node_deleted("b", None);
    record.node_fenced("c");
    assert_eq!(record.max_taken_observed(), 2);
}

#[tokio::test]
async fn a_set_that_was_made_smaller_owes_no_replacement_for_who_is_down_by_themselves() {
    let record = record();
    record.set_size("s", Some(4));
    for node in ["a", "b", "c", "d"] {
        record.node_state(node, Some("s"), because(&[]), None);
    }
    record.node_state("d", None, because(&[Unavailable::NotReady]), None);
    record.node_fenced("a");
    record.node_state("a", None, because(&[Unavailable::Cordoned]), None);
    record.node_deleted("a", None);
    record.set_size("s", Some(4));
    record.node_fenced("b");
    assert_eq!(record.max_taken_observed(), 2, "a's place is still empty");
    record.node_unfenced("b");
    // b, c and d are all that are wanted.
    record.set_size("s", Some(3));
    assert_eq!(record.unavailable_now(), 1, "d alone");
}

#[tokio::test]
async fn who_is_let_go_is_taken_no_more_unless_it_was_torn_down() {
    let record = record();
    for node in ["a", "b", "c"] {
        record.node_state(node, None, because(&[]), None);
        record.node_of(&format!("m-{node}"), node);
    }
    // a's host dies in the upgrade, which is undone; then its Machine is labelled to be ignored.
    record.node_fenced("a");
    record.node_state("a", None, because(&[Unavailable::NotReady]), None);
    record.node_unfenced("a");
    record.node_let_go("a");
    record.node_fenced("b");
    record.push(Happened::TornDown {
        machine: "m-b".into(),
    });
    assert_eq!(record.max_taken_observed(), 1);
    record.node_let_go("b");
    record.node_fenced("c");
    assert_eq!(record.max_taken_observed(), 2);
}

#[tokio::test]
async fn two_at_once_are_two_and_a_teardown_counts() {
    let record = record();
    for node in ["a", "b"] {
        record.node_state(node, None, because(&[]), None);
    }
    record.node_of("m", "b");
    record.node_state("a", None, because(&[Unavailable::NotReady]), None);
    record.push(Happened::TornDown {
        machine: "m".into(),
    });
    assert_eq!(record.max_unavailable_observed(), 2);
    assert_eq!(record.max_unavailable_nodes(), ["a", "b"]);
    record.push(Happened::KubeletStarted {
        machine: "m".into(),
        again: true,
    });
    assert_eq!(record.unavailable_now(), 1);
}
