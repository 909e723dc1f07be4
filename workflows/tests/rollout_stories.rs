//! Transcripts of the rollout: one for each rule of the lease, of gaps and of adoption.

use crate::rollout_common;

use dormer_proto::{
    id::{LeaseToken, Timestamp},
    machine::{self, TokenMark},
    message::{Failure, Refusal},
    other_operator::OtherOperator,
    pool::{MaxUnavailable, PoolSettings, Terms},
    rollout::{Fact, MemberReport, OwnedMachine, OwnerFact, Signal},
};
use dormer_workflows::rollout::{Flag, Timer, Uid};
use expect_test::{ExpectFile, expect_file};
use rollout_common::{
    Pool, SET, barred, carrying, coming, cordoned, down, failed, going, granted, long_down,
    not_compared, observed, serving, terms, wanting,
};

fn holds(pool: &Pool, expected: ExpectFile) {
    expected.assert_eq(&pool.text);
}

#[test]
fn one_at_a_time() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.request("a").request("b").request("c");
    pool.member("a", down())
        .member("a", serving())
        .release("a", 1);
    pool.release("b", 2).release("c", 3);
    holds(&pool, expect_file!["rollout_stories/one_at_a_time.txt"]);
}

#[test]
fn who_is_first() {
    let mut pool = Pool::of(&["a", "b", "c", "d"]);
    pool.request("a").request("b").request("c");
    // One that has not served for long comes before all others, though it asks last.
    pool.member("d", down()).request_as("d", down());
    pool.member("d", long_down());
    // Its node serves after all: given back, and it waits its turn.
    pool.member("d", serving()).release("d", 2).request("d");
    pool.release("a", 1).release("b", 3);
    pool.release("c", 4).release("d", 5);
    holds(&pool, expect_file!["rollout_stories/who_is_first.txt"]);
}

#[test]
fn as_many_as_the_settings_say() {
    let mut pool = Pool::of(&["a", "b", "c", "d"]);
    pool.limit(MaxUnavailable::Percent(50));
    pool.request("a").request("b").request("c");
    pool.limit(MaxUnavailable::Count(3))
        .limit(MaxUnavailable::Count(1));
    pool.release("a", 1)
        .release("b", 2)
        .request("d")
        .release("c", 3);
    holds(&pool, expect_file!["rollout_stories/as_many.txt"]);
}

#[test]
fn a_member_that_is_away_uses_up_the_room() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.member("a", down()).request("b").member("a", serving());
    holds(&pool, expect_file!["rollout_stories/away.txt"]);
}

/// A person cordons two of four nodes, and a payload comes: dormer takes neither, and nothing over the limit.
#[test]
fn what_a_person_cordoned_is_not_taken() {
    let mut pool = Pool::of(&["a", "b", "c", "d"]);
    pool.member("a", cordoned()).member("b", cordoned());
    for who in ["a", "b"] {
        pool.request_as(who, cordoned());
    }
    pool.request("c").request("d");
    // One is uncordoned; with the other still away there is no room.
    pool.member("a", serving());
    pool.limit(MaxUnavailable::Count(2));
    pool.member("b", serving()).release("a", 1);
    holds(&pool, expect_file!["rollout_stories/cordoned.txt"]);
}

/// dormer's key was exchanged: hosts say so one after the other, and nothing is taken until the second host is mended.
#[test]
fn several_hosts_that_cannot_be_compared_hold_every_grant() {
    let mut pool = Pool::of(&["a", "b", "c", "d", "e"]);
    // The trouble of one host holds no other machine.
    pool.member("a", not_compared("AuthRejected")).request("e");
    pool.member("b", not_compared("HostKeyChanged"));
    pool.member("c", not_compared("AuthRejected")).request("d");
    pool.release("e", 1);
    // A request for this machine overrides the finding.
    let by_request = MemberReport {
        by_request: true,
        ..not_compared("AuthRejected")
    };
    pool.request_as("c", by_request).release("c", 2);
    // The key fits again: c is mended, and a's trouble holds a alone.
    pool.member("c", serving()).release("d", 3);
    holds(&pool, expect_file!["rollout_stories/not_compared.txt"]);
}

/// A BYOH host that leaves is Ready, and dormer's own removal has cordoned it: it is the only one that is unavailable.
#[test]
fn a_removal_does_not_wait_for_itself() {
    let leaves = MemberReport {
        by_request: true,
        ..down()
    };
    let mut pool = Pool::of(&["a", "b"]);
    pool.request_as("a", leaves.clone());
    let over: Vec<bool> = pool
        .state
        .slots
        .iter()
        .map(|slot| slot.over_limit)
        .collect();
    assert_eq!(over, [false], "{}", pool.text);
    // Beside another one that is unavailable it waits.
    let mut pool = Pool::of(&["a", "b"]);
    pool.member("b", down()).request_as("a", leaves);
    assert!(pool.state.slots.is_empty(), "{}", pool.text);
}

/// A profile is the whole pool's: the first host that meets it holds every grant.
#[test]
fn trouble_that_all_hosts_share_is_a_finding_at_the_first() {
    let shared = [
        "ProfileUnusable",
        "Forbidden",
        "VersionNotHere",
        "KeyUnreadable",
    ];
    for code in shared {
        let mut pool = Pool::of(&["a", "b"]);
        pool.member("a", not_compared(code)).request("b");
        assert!(pool.state.slots.is_empty(), "{code}");
        let says = format!("1 host cannot be compared: a: it did not work ({code})");
        assert_eq!(pool.state.view().halted, Some(says));
        pool.member("a", serving());
        assert_eq!(pool.state.slots.len(), 1, "{code}");
    }
}

/// More kinds of trouble than have numbers: the last number is all others', and every one of them counts.
#[test]
fn no_trouble_is_lost_among_many() {
    let names: Vec<String> = (0..40).map(|at| format!("m{at}")).collect();
    let members: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut pool = Pool::of(&members);
    for (at, who) in members.iter().enumerate() {
        pool.member(who, not_compared(&format!("Code{at}")));
    }
    let finding = pool.state.finding().expect("nine share a number");
    assert_eq!(finding.uids.len(), 10);
    for who in &members {
        pool.member(who, serving());
    }
    assert_eq!(pool.state.finding(), None);
}

/// For a minute no kubelet reaches the API server: the whole queue is NotReady, and nothing is granted for that.
#[test]
fn a_partition_grants_nothing() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    for who in ["a", "b", "c"] {
        pool.member(who, down());
        pool.request_as(who, down());
    }
    for who in ["a", "b", "c"] {
        pool.member(who, serving());
    }
    pool.release("a", 1);
    holds(&pool, expect_file!["rollout_stories/partition.txt"]);
}

/// Three nodes are down for good: they are repaired one after the other, over the limit.
#[test]
fn dead_nodes_are_repaired_one_by_one() {
    let mut pool = Pool::of(&["a", "b", "c", "d"]);
    for who in ["a", "b", "c"] {
        pool.member(who, down());
        pool.request_as(who, down());
    }
    for who in ["c", "b", "a"] {
        pool.member(who, long_down());
    }
    // The first does not answer: it gives the lease back, asks again, and is the last.
    pool.release("c", 1).request_as("c", long_down());
    pool.release("a", 2).release("b", 3);
    holds(&pool, expect_file!["rollout_stories/dead_nodes.txt"]);
}

#[test]
fn a_machine_is_replaced() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.request("a").request("b").member("a", going());
    // The replacement is there before the old Machine is gone, and claims nothing yet.
    pool.owner(3, &["b", "c", "r@20"], &["a"])
        .member("r@20", coming(20));
    pool.replace("a", 1, 20_000)
        .owner(3, &["b", "c", "r@20"], &[]);
    pool.member(
        "r@20",
        MemberReport {
            created: Timestamp(20_000),
            ..serving()
        },
    );
    holds(&pool, expect_file!["rollout_stories/replaced.txt"]);
}

/// A person labels the replacement to be ignored before it ever served: the node that it was made for is still missing.
#[test]
fn a_replacement_that_is_to_be_ignored_ends_nothing_before_it_serves() {
    let replaced = || {
        let mut pool = Pool::of(&["a", "b", "c"]);
        pool.request("a").request("b").member("a", going());
        pool.owner(3, &["b", "c", "r@20"], &["a"])
            .member("r@20", coming(20))
            .ignored("r@20", true);
        pool.replace("a", 1, 20_000)
            .owner(3, &["b", "c", "r@20"], &[]);
        assert_eq!(pool.state.slots.len(), 1, "a is not replaced");
        pool
    };
    let serves = MemberReport {
        created: Timestamp(20_000),
        ..serving()
    };
    // The label goes, and dormer brings it up.
    let mut pool = replaced();
    let waits = pool.state.view().slots[0].waits_for.clone();
    pool.member("r@20", coming(20)).member("r@20", serves);
    holds(
        &pool,
        expect_file!["rollout_stories/ignored_replacement.txt"],
    );
    let says =
        "r@20, whose Machine has the label ignore=true: remove the label, or delete the Machine";
    assert_eq!(waits.as_deref(), Some(says));
    // From then on it counts: no machine is missing once the set is made smaller.
    pool.member("b", going())
        .replace("b", 2, 40_000)
        .owner(2, &["c", "r@20"], &[]);
    assert!(pool.state.slots.is_empty(), "{:?}", pool.state.slots);
    // Other hands bring it up.
    let mut pool = replaced();
    pool.ignored("r@20", false);
    assert!(pool.state.slot_of(&Uid::new("b")).is_some());
    // It is deleted, and another comes.
    let mut pool = replaced();
    pool.owner(3, &["b", "c", "s@30"], &["r@20"]);
    pool.owner(3, &["b", "c", "s@30"], &[]);
    assert!(pool.state.slot_of(&Uid::new("b")).is_none());
    pool.member("s@30", coming(30));
    let serves = MemberReport {
        created: Timestamp(30_000),
        ..serving()
    };
    pool.member("s@30", serves);
    assert!(pool.state.slot_of(&Uid::new("b")).is_some());
    // The set is made smaller: no machine is missing.
    let mut pool = replaced();
    pool.owner(2, &["b", "c", "r@20"], &[]);
    assert!(pool.state.slot_of(&Uid::new("b")).is_some());
}

/// A person moves the Machine to another set under the lease: that set replaces it. The first set makes one, too, for
/// the machine that it lost.
#[test]
fn a_machine_that_gets_another_owner_under_the_lease_is_replaced_by_that_one() {
    let other = |report| MemberReport {
        owner: Some("other".into()),
        ..report
    };
    let has = |machines: &[(&str, u64)]| {
        let machines = machines.iter().map(|(uid, at)| OwnedMachine {
            uid: (*uid).to_owned(),
            created: Timestamp(at * 1_000),
            deleting: false,
        });
        observed(Fact::Owner(OwnerFact {
            autoscaled: false,
            uid: "other".into(),
            name: "other".into(),
            replicas: 1,
            machines: machines.collect(),
            ready: None,
            available: None,
        }))
    };
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.request("a").request("b");
    pool.feed("it is another set's", has(&[("a", 1)]))
        .member("a", other(serving()))
        .owner(3, &["b", "c", "n@5"], &[])
        .member("n@5", coming(5))
        .member("a", other(going()));
    pool.replace("a", 1, 20_000)
        .feed("that set has none", has(&[]));
    let waits = |pool: &Pool| pool.state.slot_of(&Uid::new("b")).is_none();
    assert!(waits(&pool), "{}", pool.text);
    pool.feed("it makes one", has(&[("r@20", 20)]))
        .member("r@20", other(coming(20)));
    assert!(waits(&pool), "{}", pool.text);
    let serves = MemberReport {
        created: Timestamp(20_000),
        ..other(serving())
    };
    pool.member("r@20", serves);
    assert!(!waits(&pool), "{}", pool.text);
}

/// It left for good, or it rests: labelled to be ignored before it served.
fn never_served(owner: &str, stays: bool) -> Signal {
    Signal::Left {
        owner: Some(owner.into()),
        gap: false,
        stays,
        never_served: true,
        token: None,
        deleted: None,
    }
}

/// Labelled and deleted at once: its owner names it still, and its label cannot be removed.
#[test]
fn a_vacancy_names_no_ignored_machine_that_is_gone() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.request("a").member("a", going());
    pool.owner(2, &["b", "r@20"], &["a"])
        .member("r@20", coming(20))
        .replace("a", 1, 20_000)
        .owner(2, &["b", "r@20"], &[])
        .signal("r@20", "left, never served", never_served(SET, false));
    let waits = pool.state.view().slots[0].waits_for.clone();
    assert_eq!(waits.as_deref(), Some("winset to create a Machine"));
}

#[test]
fn a_vacancy_names_no_ignored_machine_of_another_owner() {
    let mut pool = Pool::of(&["a", "b"]);
    let others = MemberReport {
        owner: Some("other".into()),
        ..coming(20)
    };
    pool.request("a").member("x", others).signal(
        "x",
        "left, never served",
        never_served("other", true),
    );
    pool.replace("a", 1, 20_000).owner(2, &["b"], &[]);
    let waits = pool.state.view().slots[0].waits_for.clone();
    assert_eq!(waits.as_deref(), Some("winset to create a Machine"));
}

#[test]
fn a_replacement_that_serves_before_the_old_machine_is_gone() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.request("a").request("b").member("a", going());
    pool.owner(2, &["b", "r@20"], &["a"])
        .member("r@20", coming(20));
    pool.member(
        "r@20",
        MemberReport {
            created: Timestamp(20_000),
            ..serving()
        },
    );
    pool.replace("a", 1, 20_000);
    holds(&pool, expect_file!["rollout_stories/replaced_early.txt"]);
}

/// The cluster autoscaler takes back a replacement whose Node comes too late, and lowers the number of the set.
#[test]
fn a_replacement_that_the_autoscaler_takes_back_ends_no_slot() {
    let before_in = |autoscaled| {
        let mut pool = Pool::of(&["a", "b", "c"]);
        pool.autoscaled = autoscaled;
        pool.request("a").request("b").replace("a", 1, 20_000);
        pool.owner(3, &["b", "c", "r@20"], &[]);
        pool
    };
    let before = || before_in(true);
    let mut pool = before();
    pool.owner(2, &["b", "c"], &["r@20"])
        .owner(2, &["b", "c"], &[]);
    assert_eq!(pool.state.slots.len(), 1, "b waits: {}", pool.text);
    let waits = pool.state.view().slots[0].waits_for.clone();
    let says = "winset to have 3 replicas again: it has 2 since";
    assert!(
        waits.as_deref().is_some_and(|it| it.starts_with(says)),
        "{waits:?}"
    );
    // A person raises the number again, and the replacement serves.
    pool.owner(3, &["b", "c", "s@30"], &[]);
    let serves = MemberReport {
        created: Timestamp(30_000),
        ..serving()
    };
    pool.member("s@30", serves);
    holds(&pool, expect_file!["rollout_stories/autoscaler.txt"]);

    // Or says that fewer are wanted. Also one that enrolled and is gone altogether counts as lost.
    let mut pool = before();
    pool.member("r@20", coming(20))
        .owner(2, &["b", "c", "r@20"], &[])
        .left("r@20", false, 30_000)
        .owner(2, &["b", "c"], &[]);
    let granted = |pool: &Pool| {
        pool.state
            .slots
            .iter()
            .any(|slot| slot.uid == Uid::new("b"))
    };
    assert!(!granted(&pool), "{}", pool.text);
    pool.person(Signal::Resume);
    assert!(granted(&pool), "{}", pool.text);

    // The number of a set without an autoscaler is a person's.
    let mut pool = before_in(false);
    pool.owner(2, &["b", "c"], &["r@20"]);
    assert!(granted(&pool), "{}", pool.text);

    // One that a person deletes, and that the set makes again, is none of this.
    let mut pool = before();
    pool.owner(3, &["b", "c"], &["r@20"])
        .owner(3, &["b", "c", "s@30"], &[]);
    let waits = pool.state.view().slots[0].waits_for.clone();
    assert_eq!(waits.as_deref(), Some("s@30 to be Joined"));
}

#[test]
fn the_pool_shrinks_meanwhile() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.request("a")
        .request("b")
        .request("c")
        .replace("a", 1, 20_000);
    // An owner that has not yet noticed is not believed to be content.
    pool.owner(3, &["a", "b", "c"], &[])
        .owner(3, &["b", "c"], &[]);
    pool.owner(2, &["b", "c"], &[]);
    // A waiting machine is deleted: its request goes with it, and no replacement comes.
    pool.owner(1, &["b"], &["c"])
        .member("c", going())
        .left("c", true, 30_000);
    pool.release("b", 2);
    holds(&pool, expect_file!["rollout_stories/shrinks.txt"]);
}

#[test]
fn a_health_check_deletes_a_member() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.member("a", down()).request("b");
    pool.member("a", going()).left("a", true, 20_000);
    pool.owner(3, &["b", "c", "r@20"], &[])
        .member("r@20", coming(20));
    pool.member(
        "r@20",
        MemberReport {
            created: Timestamp(20_000),
            ..serving()
        },
    );
    holds(&pool, expect_file!["rollout_stories/health_check.txt"]);
}

#[test]
fn a_deletion_that_the_owner_knows_of_first() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.owner(2, &["b"], &["a"])
        .request("b")
        .member("r@20", coming(20));
    pool.owner(2, &["b", "r@20"], &["a"]);
    pool.member(
        "r@20",
        MemberReport {
            created: Timestamp(20_000),
            ..serving()
        },
    );
    // The gap has ended; the old Machine still counts until it is gone, and leaves no second one.
    pool.member("a", going()).left("a", true, 20_000);
    holds(&pool, expect_file!["rollout_stories/owner_first.txt"]);
}

#[test]
fn all_of_one_second() {
    // Whole seconds do not tell a replacement from a member of the same second; having served before does.
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.request("a").request("b").replace("a", 1, 1_000);
    pool.owner(3, &["b", "c", "r"], &[]);
    pool.member("b", serving())
        .member("r", coming(1))
        .member("r", serving());
    holds(&pool, expect_file!["rollout_stories/one_second.txt"]);
}

#[test]
fn each_replacement_ends_one() {
    let mut pool = Pool::of(&["a", "b", "c", "d"]);
    pool.request("d").replace("d", 1, 20_000);
    pool.left("a", true, 60_000).request("b");
    pool.owner(4, &["b", "c", "r@20", "s@60"], &[]);
    pool.member("r@20", coming(20)).member("s@60", coming(60));
    // The younger one fits both, and ends the one that the other does not fit.
    pool.member(
        "s@60",
        MemberReport {
            created: Timestamp(60_000),
            ..serving()
        },
    );
    pool.member(
        "s@60",
        MemberReport {
            created: Timestamp(60_000),
            ..serving()
        },
    );
    pool.member(
        "r@20",
        MemberReport {
            created: Timestamp(20_000),
            ..serving()
        },
    );
    holds(&pool, expect_file!["rollout_stories/each_ends_one.txt"]);
}

#[test]
fn the_candidates_fail() {
    let fails = |at| MemberReport {
        failed: true,
        ..coming(at)
    };
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.request("a").request("b").replace("a", 1, 20_000);
    pool.owner(3, &["b", "c", "r@20"], &[])
        .member("r@20", fails(20));
    // A retry.
    pool.member("r@20", coming(20)).member("r@20", fails(20));
    // Another candidate.
    pool.owner(3, &["b", "c", "s@40"], &["r@20"])
        .member("s@40", fails(40));
    // The failed one is away anyhow, and may be replaced though the rollout is halted.
    pool.request_as("s@40", fails(40))
        .member("s@40", coming(40))
        .replace("s@40", 2, 60_000);
    pool.owner(3, &["b", "c", "t@60"], &[])
        .member("t@60", coming(60));
    pool.member(
        "t@60",
        MemberReport {
            created: Timestamp(60_000),
            ..serving()
        },
    );
    holds(&pool, expect_file!["rollout_stories/candidates_fail.txt"]);
}

#[test]
fn the_holder_fails() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.limit(MaxUnavailable::Count(2));
    pool.request("a").member("a", failed()).request("b");
    pool.member("a", down());
    holds(&pool, expect_file!["rollout_stories/holder_fails.txt"]);
}

#[test]
fn the_holder_is_deleted_by_somebody_else() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.request("a").request("b").member("a", going());
    pool.replace("a", 1, 20_000).owner(2, &["b", "r@20"], &[]);
    pool.member(
        "r@20",
        MemberReport {
            created: Timestamp(20_000),
            ..serving()
        },
    );
    holds(&pool, expect_file!["rollout_stories/holder_deleted.txt"]);
}

#[test]
fn the_holder_leaves_before_the_grant_reaches_it() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.request("a").request("b").left("a", true, 20_000);
    pool.refused("a", granted(1), Refusal::Closed);
    pool.owner(2, &["b", "r@20"], &[]);
    pool.member(
        "r@20",
        MemberReport {
            created: Timestamp(20_000),
            ..serving()
        },
    );
    holds(&pool, expect_file!["rollout_stories/left_before_grant.txt"]);
}

#[test]
fn a_grant_that_finds_no_taker() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.request("a").request("b");
    // It may have been deleted: a gap, until it is known that a person only closed the run.
    pool.refused("a", granted(1), Refusal::Closed).closed("a");
    // The run is not there (yet): it enrols when it is, and then there is no gap.
    pool.refused("b", granted(2), Refusal::Unknown)
        .member("b", serving());
    holds(&pool, expect_file!["rollout_stories/no_taker.txt"]);
}

#[test]
fn a_machine_without_owner() {
    let alone = || MemberReport {
        owner: None,
        ..serving()
    };
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.member("b", alone())
        .member("c", alone())
        .request("a")
        .request_as("b", alone());
    // No controller replaces it: no gap, no wait.
    let left = Signal::Left {
        owner: None,
        gap: true,
        stays: false,
        never_served: false,
        token: None,
        deleted: None,
    };
    pool.signal("c", "left, a gap, ownerless", left);
    pool.release("a", 1).replace("b", 2, 20_000);
    holds(&pool, expect_file!["rollout_stories/ownerless.txt"]);
}

#[test]
fn an_unknown_owner() {
    let mut pool = Pool::of(&["a", "b"]);
    let other = || MemberReport {
        owner: Some("other".into()),
        ..serving()
    };
    pool.member("a", other())
        .request_as("a", other())
        .request("b")
        .replace("a", 1, 20_000);
    // The sets were not listed: it is unknown, and not gone.
    pool.wait_ms(16 * 60_000).fired(Timer::OwnerCheck);
    // One list has it, though its fact has not come; the next one has not.
    pool.listed_sets(&["b"], &[SET, "other"])
        .wait_ms(16 * 60_000)
        .fired(Timer::OwnerCheck);
    pool.listed_sets(&["b"], &[SET])
        .wait_ms(16 * 60_000)
        .fired(Timer::OwnerCheck);
    holds(&pool, expect_file!["rollout_stories/owner_unknown.txt"]);
}

#[test]
fn an_owner_that_is_deleted_with_its_machines() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.request("a")
        .owner_gone()
        .member("b", going())
        .left("b", true, 20_000);
    pool.replace("a", 1, 20_000);
    holds(&pool, expect_file!["rollout_stories/owner_gone.txt"]);
}

/// As after a restart of the watcher, or the restore of dormer's store beside another cluster: no watcher reports that the
/// owner was deleted.
#[test]
fn an_owner_that_a_full_list_lacks_replaces_no_machine() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.request("a")
        .left("b", true, 20_000)
        .replace("a", 1, 20_000);
    let waits = |pool: &Pool| (pool.state.slots.len(), pool.state.gaps.len());
    pool.listed_sets(&[], &[SET, "new"]);
    assert_eq!(waits(&pool), (1, 1), "{}", pool.text);
    pool.listed_sets(&[], &["new"]);
    assert_eq!(waits(&pool), (0, 0), "{}", pool.text);
    assert!(
        pool.text.contains("not taken in: MachineSet set"),
        "a set that exists after all is known again by its next fact: {}",
        pool.text
    );
    let of_new = || MemberReport {
        owner: Some("new".into()),
        ..serving()
    };
    pool.member("c", of_new()).request_as("c", of_new());
    assert!(
        pool.state
            .slots
            .iter()
            .any(|slot| slot.uid == Uid::new("c")),
        "{}",
        pool.text
    );
}

#[test]
fn a_pause() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.request("a")
        .request("b")
        .person(Signal::Pause)
        .release("a", 1);
    // Even one that is away is not granted.
    pool.request_as("c", down()).person(Signal::Resume);
    pool.settings(PoolSettings {
        paused: true,
        ..PoolSettings::default()
    });
    pool.release("c", 2)
        .member("c", serving())
        .settings(PoolSettings::default());
    holds(&pool, expect_file!["rollout_stories/pause.txt"]);
}

#[test]
fn without_history() {
    let closed = |token| TokenMark {
        token: LeaseToken(token),
        open: false,
    };
    let mut pool = Pool::new();
    // A machine's signal may begin it.
    pool.request("a").settings(PoolSettings::default());
    pool.listed(&["a", "b", "c", "d"]);
    pool.member(
        "b",
        MemberReport {
            token: Some(closed(41)),
            ..serving()
        },
    );
    // Before it is adopted it says nothing of the Node that it has.
    pool.member("c", coming(1))
        .wait_ms(30_000)
        .fired(Timer::Ask);
    pool.refused("d", machine::Signal::Enrol, Refusal::Closed);
    pool.member("c", carrying(43)).request_as("c", carrying(43));
    pool.member("c", down())
        .member("c", serving())
        .release("c", 44);
    holds(&pool, expect_file!["rollout_stories/without_history.txt"]);
}

#[test]
fn an_open_token_is_finished_first() {
    let mut pool = Pool::new();
    pool.limit(MaxUnavailable::Count(3))
        .listed(&["a", "b", "c"]);
    pool.member("a", serving())
        .member("b", carrying(7))
        .member("c", carrying(9));
    pool.request("a")
        .request_as("c", carrying(9))
        .request_as("b", carrying(7));
    pool.member("c", down())
        .release("c", 10)
        .member("c", serving());
    pool.member("b", down()).release("b", 11);
    holds(&pool, expect_file!["rollout_stories/open_token.txt"]);
}

#[test]
fn repeats_and_strangers() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.request("a").request("a").request("b").request("b");
    pool.release("b", 1)
        .release("a", 1)
        .release("a", 1)
        .release("b", 2);
    // The wish is taken back, twice, and before the grant was known.
    pool.request("a").request("b");
    pool.signal("b", "withdraw", Signal::Withdraw)
        .signal("b", "withdraw", Signal::Withdraw);
    pool.signal("a", "withdraw", Signal::Withdraw)
        .release("a", 3);
    // A stranger is asked who it is; what it held is above what is granted next.
    pool.signal("x", "withdraw", Signal::Withdraw)
        .release("x", 50)
        .request("a");
    // A machine that is gone leaves once.
    pool.left("b", false, 0).left("b", true, 20_000);
    holds(&pool, expect_file!["rollout_stories/repeats.txt"]);
}

/// After the loss of its history every machine is a stranger to the rollout. A record with a question to each of thousands
/// would not fit into a message.
#[test]
fn strangers_are_asked_to_enrol_a_part_at_a_time() {
    let mut pool = Pool::of(&["a"]);
    let asked = |pool: &Pool| pool.text.matches(": enrol\n").count();
    for at in 0..300 {
        pool.signal(&format!("w{at}"), "withdraw", Signal::Withdraw)
            .release(&format!("r{at}"), 1);
    }
    // ASKING_MAX in workflows/src/rollout/draft.rs.
    assert_eq!(asked(&pool), 256);
    // Who repeats itself is asked once.
    pool.signal("w0", "withdraw", Signal::Withdraw)
        .release("r0", 1)
        .fired(Timer::Ask);
    assert_eq!(asked(&pool), 256, "nobody has answered");
    for at in 0..50 {
        pool.member(&format!("w{at}"), serving());
    }
    pool.refused("r0", machine::Signal::Enrol, Refusal::Unknown)
        .refused("r1", machine::Signal::Enrol, Refusal::Closed)
        .fired(Timer::Ask);
    assert_eq!(asked(&pool), 256 + 52);
    assert_eq!(pool.state.enrolled(), 51);
    let forgotten = ["r0", "r1"].map(|uid| pool.state.members.contains_key(&Uid::new(uid)));
    assert_eq!(forgotten, [false, false]);
}

#[test]
fn a_list_at_the_start_forgets_no_stranger_that_is_being_asked() {
    let mut pool = Pool::new();
    pool.settings(PoolSettings::default())
        .signal("x", "withdraw", Signal::Withdraw)
        .listed(&["a"])
        .signal("x", "withdraw", Signal::Withdraw);
    assert_eq!(pool.text.matches("x: enrol\n").count(), 1, "{}", pool.text);
}

/// An earlier build that ran meanwhile knows no strangers, and leaves the flag as it is when one enrols.
#[test]
fn a_member_that_kept_the_flag_of_a_stranger_stays_when_its_run_is_not_found() {
    let mut pool = Pool::new();
    pool.listed(&["a"]).member("a", serving());
    let uid = Uid::new("a");
    let member = pool.state.members.get_mut(&uid).expect("a member");
    member.flags |= Flag::Stranger as u32;
    pool.refused("a", machine::Signal::Enrol, Refusal::Unknown);
    assert_eq!(pool.state.enrolled(), 1);
}

#[test]
fn a_release_of_a_lost_history() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.replace("a", 9, 20_000).request("b");
    pool.owner(3, &["b", "c", "r@20"], &[]);
    pool.member(
        "r@20",
        MemberReport {
            created: Timestamp(20_000),
            ..serving()
        },
    );
    holds(&pool, expect_file!["rollout_stories/lost_release.txt"]);
}

#[test]
fn a_payload_comes_along_its_edges_only() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.settings(wanting(terms()));
    // A machine that skipped a version waits, and others pass it in the queue.
    pool.request_as("a", barred()).request("b").release("b", 1);
    // One that does not serve is no exception; an upgrade that was begun is.
    pool.member("c", down()).request_as(
        "c",
        MemberReport {
            barred: true,
            ..down()
        },
    );
    pool.member(
        "c",
        MemberReport {
            barred: true,
            ..carrying(7)
        },
    );
    pool.release("c", 8).member("c", serving());
    // A payload that may follow what it carries: the machine says so.
    pool.member("a", serving());
    holds(&pool, expect_file!["rollout_stories/edges.txt"]);
}

#[test]
fn a_kubelet_that_does_not_fit_the_api_servers_waits_for_them() {
    let mut pool = Pool::of(&["a", "b"]);
    let skew = "kubelet 1.34 is newer than the oldest API server, 1.33";
    pool.settings(wanting(Terms {
        skew: Some(skew.into()),
        ..terms()
    }));
    pool.request_as("a", barred()).request_as("b", barred());
    // The last API server was upgraded.
    pool.settings(wanting(terms()))
        .member("a", serving())
        .member("b", serving());
    holds(&pool, expect_file!["rollout_stories/skew.txt"]);
}

#[test]
fn an_expired_payload_is_named_as_what_the_rollout_waits_for() {
    let mut pool = Pool::of(&["a", "b"]);
    let expired = "payload 11.1.0 expired on 2027-03-01, and no upgrade to it begins";
    pool.settings(wanting(Terms {
        expired: Some(expired.into()),
        ..terms()
    }));
    pool.request_as("a", barred()).request_as("b", barred());
    holds(&pool, expect_file!["rollout_stories/expired.txt"]);
}

#[test]
fn the_builds_of_the_oldest_versions_are_forgotten_and_those_of_new_ones_are_remembered() {
    let mut pool = Pool::of(&["a", "b"]);
    let build = |number: usize, build: &str| {
        let mut settings = wanting(terms());
        let version = format!("11.{number}.0");
        let terms = Terms {
            build: Some(build.into()),
            ..terms()
        };
        settings.terms = [(version.clone(), terms)].into();
        for desired in settings.desired.values_mut() {
            desired.payload.clone_from(&version);
        }
        settings
    };
    for number in 0..70 {
        pool.settings(build(number, "its own"));
    }
    assert_eq!(pool.state.builds.len(), 64);
    assert!(!pool.state.builds.contains_key("11.5.0"));
    assert!(pool.state.builds.contains_key("11.6.0"));
    pool.settings(build(69, "another"));
    let held = pool.state.held().expect("nothing is granted");
    assert!(held.contains("payload 11.69.0 is another build"), "{held}");
}

/// As after a restart, with another signed build in the folder of the payload.
#[test]
fn another_build_of_a_version_is_not_granted_though_another_version_came_between() {
    let mut pool = Pool::of(&["a", "b"]);
    let build = |version: &str, build: &str| {
        let mut settings = wanting(terms());
        let terms = Terms {
            build: Some(build.into()),
            ..terms()
        };
        settings.terms = [(version.to_owned(), terms)].into();
        for desired in settings.desired.values_mut() {
            desired.payload = version.into();
        }
        settings
    };
    pool.settings(build("11.1.0", "newer"))
        .settings(build("11.2.0", "its own"))
        .settings(build("11.1.0", "older"))
        .request("a");
    let held = pool.state.held().expect("nothing is granted");
    assert!(held.contains("payload 11.1.0 is another build"), "{held}");
    let cure = pool.state.held_cure().expect("a remedy");
    assert!(cure.contains("a version of its own"), "{cure}");
    assert!(pool.state.slots.is_empty(), "{:?}", pool.state.slots);
    let wanted = pool.state.payload.as_ref().map(|it| it.payload.as_str());
    assert_eq!(wanted, Some("11.2.0"), "the settings before it hold");
    // The build that is known by the version.
    pool.settings(build("11.1.0", "newer"));
    assert_eq!(pool.state.held(), None);
    assert_eq!(pool.state.slots.len(), 1);
    // What no key signed has no build, and is not compared.
    let mut unsigned = build("11.1.0", "newer");
    unsigned.terms = [("11.1.0".to_owned(), terms())].into();
    pool.settings(unsigned);
    assert_eq!(pool.state.held(), None);
}

#[test]
fn an_upgrade_without_an_edge_names_the_payloads_that_lead_there() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.settings(wanting(Terms {
        paths: [
            (
                "10.8.0".to_owned(),
                vec!["10.9.0".to_owned(), "11.0.0".to_owned()],
            ),
            ("10.9.0".to_owned(), vec!["11.0.0".to_owned()]),
        ]
        .into(),
        ..terms()
    }));
    pool.request_as("a", barred());
    let waits = pool.state.view().waiting_for.expect("it waits");
    assert!(
        waits.ends_with("may follow 11.0.0; for machines at 10.8.0: installed payloads lead there \
             (10.8.0 → 10.9.0 → 11.0.0 → 11.1.0): set spec.payload to 10.9.0 first; for machines at 10.9.0: installed payloads lead there \
             (10.9.0 → 11.0.0 → 11.1.0): set spec.payload to 11.0.0 first"),
        "{waits}"
    );
}

#[test]
fn one_step_back_is_written_into_the_settings() {
    let mut pool = Pool::of(&["a", "b"]);
    pool.settings(wanting(terms()));
    pool.person(Signal::Rollback {
        to: "10.9.0".into(),
    });
    pool.person(Signal::Rollback {
        to: "11.0.0".into(),
    })
    .written("11.0.0", Some("no rights"));
    pool.person(Signal::Rollback {
        to: "11.0.0".into(),
    })
    .written("11.0.0", None);
    let mut back = wanting(Terms {
        back_from: Some("11.1.0".into()),
        ..Terms::default()
    });
    let old = "11.0.0".to_owned();
    back.terms = [(old.clone(), back.terms["11.1.0"].clone())].into();
    back.desired
        .values_mut()
        .for_each(|desired| desired.payload.clone_from(&old));
    pool.settings(back).request("a");
    // Another payload is wanted: the step back is over.
    let mut next = wanting(Terms {
        may_follow: vec![old],
        ..Terms::default()
    });
    next.desired
        .values_mut()
        .for_each(|desired| desired.payload = "11.2.0".into());
    pool.settings(next);
    holds(&pool, expect_file!["rollout_stories/back.txt"]);
}

/// What the watcher tells of a pool that is not there.
fn absent(why: &str) -> PoolSettings {
    PoolSettings {
        absent: true,
        paused: true,
        held: Some(why.into()),
        ..wanting(Terms::default())
    }
}

#[test]
fn without_a_pool_nothing_is_granted_and_who_holds_a_lease_finishes() {
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.settings(PoolSettings {
        max_unavailable: MaxUnavailable::Count(2),
        ..wanting(terms())
    });
    pool.request("a")
        .settings(absent("there is no WindowsPool dormer/windows"))
        .request("b")
        .release("a", 1);
    // Nor over the limit, for one that does not serve.
    let dead = MemberReport {
        repair: true,
        ..down()
    };
    pool.request_as("c", dead);
    pool.settings(PoolSettings {
        held: Some("spec.stop of the WindowsPool dormer/windows is true".into()),
        paused: true,
        ..wanting(terms())
    });
    pool.settings(wanting(terms()));
    holds(&pool, expect_file!["rollout_stories/no_pool.txt"]);
}

#[test]
fn so_many_repairs_stand_at_once_and_no_more() {
    let with = |most| PoolSettings {
        max_repairs: Some(most),
        ..PoolSettings::default()
    };
    let mut pool = Pool::of(&["a", "b", "c", "d"]);
    pool.settings(with(0)).request("a");
    let dead = || MemberReport {
        repair: true,
        ..down()
    };
    pool.request_as("b", dead()).request_as("c", dead());
    pool.settings(with(1)).settings(with(2));
    holds(&pool, expect_file!["rollout_stories/repairs.txt"]);
}

#[test]
fn a_rollback_outlives_the_status_and_ends_with_the_specs_payload() {
    let written = |payload: &str| PoolSettings {
        spec_payload: Some(payload.into()),
        ..wanting(terms())
    };
    let mut pool = Pool::of(&["a", "b"]);
    pool.settings(written("installed"));
    pool.person(Signal::Rollback {
        to: "11.0.0".into(),
    })
    .written("11.0.0", None);
    // The pool was deleted, and created again from Git.
    pool.settings(absent("there is no WindowsPool dormer/windows"));
    pool.settings(written("installed"))
        .request("a")
        .written("11.0.0", None);
    let mut back = written("installed");
    back.overridden_by = Some("ann: the weekend".into());
    back.desired
        .values_mut()
        .for_each(|desired| desired.payload = "11.0.0".into());
    pool.settings(back);
    // The status keeps the rollback until a worker takes it away.
    let ended = || PoolSettings {
        override_ended: true,
        ..written("11.1.0")
    };
    pool.settings(ended()).settings(ended());
    let away = Failure::transient("ApiUnreachable", "no answer");
    let forbidden = Failure::lasting("Forbidden", "the API server said no");
    pool.cleared("11.1.0", Some(away));
    pool.cleared("11.1.0", Some(forbidden)).settings(ended());
    pool.cleared("11.1.0", None);
    pool.settings(written("11.1.0"));
    // The payload that was rolled back is wanted again, and holds.
    pool.settings(written("installed"));
    holds(&pool, expect_file!["rollout_stories/override.txt"]);
}

#[test]
fn a_person_ends_a_rollback_without_a_change_of_the_spec() {
    let written = || PoolSettings {
        spec_payload: Some("installed".into()),
        ..wanting(terms())
    };
    let back = || {
        let mut back = PoolSettings {
            overridden_by: Some("bob".into()),
            ..written()
        };
        let desired = back.desired.values_mut();
        desired.for_each(|desired| desired.payload = "11.0.0".into());
        back
    };
    let mut pool = Pool::of(&["a", "b"]);
    // There is none.
    pool.settings(written()).person(Signal::EndRollback);
    pool.person(Signal::Rollback {
        to: "11.0.0".into(),
    });
    // Its end is requested before the status has it.
    pool.person(Signal::EndRollback)
        .written("11.0.0", None)
        .ended("installed", None);
    // One that the status alone has: the history began anew.
    pool.settings(back())
        .person(Signal::EndRollback)
        .person(Signal::EndRollback)
        .request("a");
    let forbidden = Failure::lasting("Forbidden", "the API server said no");
    pool.ended("installed", Some(forbidden))
        .release("a", 1)
        .person(Signal::EndRollback)
        .ended("installed", None)
        .request("b")
        .settings(written());
    holds(&pool, expect_file!["rollout_stories/end_rollback.txt"]);
}

#[test]
fn beside_another_operator_nothing_is_granted_until_a_live_list_shows_it_gone() {
    let beside = |neighbour| PoolSettings {
        neighbour,
        ..PoolSettings::default()
    };
    let runs = || OtherOperator::Runs("another operator runs (Pod winc/wmco-1)".into());
    let mut pool = Pool::of(&["a", "b"]);
    pool.settings(beside(runs())).request("a");
    let dead = MemberReport {
        repair: true,
        ..down()
    };
    pool.request_as("b", dead)
        // What cannot be read is not gone.
        .settings(beside(OtherOperator::Unread))
        .settings(beside(OtherOperator::Absent));
    holds(&pool, expect_file!["rollout_stories/beside.txt"]);
}

#[test]
fn while_something_else_changes_the_cluster_only_what_does_not_serve_is_mended() {
    let with = |waits: Option<&str>| PoolSettings {
        max_unavailable: MaxUnavailable::Count(2),
        waits: waits.map(str::to_owned),
        ..PoolSettings::default()
    };
    let mut pool = Pool::of(&["a", "b", "c"]);
    pool.settings(with(Some("the cluster is being upgraded")))
        .request("a");
    let dead = MemberReport {
        repair: true,
        ..down()
    };
    pool.request_as("b", dead);
    let waits = pool.state.view().waiting_for.expect("it waits");
    assert!(waits.contains("the cluster is being upgraded"), "{waits}");
    pool.settings(with(None));
    holds(&pool, expect_file!["rollout_stories/waits.txt"]);
}
