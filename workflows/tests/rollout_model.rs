//! Model check of the lease in every order of events: the real rollout, machine runs, and workers that sleep between
//! calls. dormer never takes more nodes away than `maxUnavailable`. A free slot with a waiter is granted. No slot is lost: when
//! nothing more can happen, all slots have ended. Without closing the fence, the first rule does not hold.

mod world;

use dormer_testkit::long;
use stateright::{Checker, HasDiscoveries, Model, Property};
use world::{Close, Faults, Phase, Withheld, World};

const AWAY: &str = "never more away by our doing";
const AT_REST: &str = "where nothing more happens, all has settled";

/// What is checked.
#[derive(Clone, Copy, Debug)]
struct Lease {
    /// Machines of the first owner.
    replicas: usize,
    /// Machines of the second owner; 0: there is none.
    others: usize,
    /// How many of them want to be upgraded.
    upgrades: usize,
    in_place: bool,
    close: Close,
    /// Whether facts may be outdated on arrival.
    stale: bool,
    /// The pool's `maxUnavailable`, in percent; `None`: it is 1.
    share: Option<u8>,
    /// The pool's `maxRepairs`.
    max_repairs: Option<u32>,
    /// What is kept from the rollout.
    withheld: Withheld,
    faults: Faults,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A machine's oldest signal reaches the rollout.
    Deliver(usize),
    /// The rollout's oldest signal reaches a machine.
    Receive(usize),
    /// The watcher lists the owner and its Machines.
    Read,
    /// … and tells.
    Publish,
    /// A worker makes its next call.
    Wake(usize),
    /// A machine differs from what it should be, and asks for the lease.
    Want(usize),
    /// A new machine serves.
    Join(usize),
    /// A host has been set up again.
    Worked(usize),
    /// A run sees that its Machine is being deleted, or gone.
    See(usize),
    /// A Machine that is being deleted goes.
    Vanish(usize),
    /// An owner makes one more.
    Create(usize),
    /// Its owner deletes one too many.
    TooMany(usize),
    /// A failed one is tried again.
    Retry(usize),
    /// A Node is Ready again.
    Recover(usize),
    /// A Node has been NotReady for as long as the pool's `repairAfter`.
    StaysDown(usize),
    /// A person uncordons a Node.
    Uncordon(usize),
    /// A host can be compared again.
    Mend(usize),
    // Faults.
    Repeat(usize),
    Abort(usize),
    Delete(usize),
    Shrink,
    Grow,
    Fail(usize),
    Overtake(usize),
    Outage(usize),
    Remove(usize),
    Ask(usize),
    Cordon(usize),
    Puzzle(usize),
}

impl Lease {
    /// What happens by itself, sooner or later.
    fn due(&self, world: &World, events: &mut Vec<Event>) {
        if world.may_read() {
            events.push(Event::Read);
        }
        if world.reading.is_some() {
            events.push(Event::Publish);
        }
        let lacks = |set: &usize| world.live(*set) < world.replicas[*set];
        let lacking = (0..world.replicas.len()).filter(lacks);
        events.extend(lacking.map(Event::Create));
        events.extend((0..world.workers.len()).map(Event::Wake));
        for at in 0..world.machines.len() {
            self.due_for(world, at, events);
        }
    }

    fn due_for(&self, world: &World, at: usize, events: &mut Vec<Event>) {
        use Phase::{Closed, ClosingGone, Coming, Deleting, Failed, Leaving, Replaced, Serving};
        use Phase::{Vanishing, Working};
        let m = &world.machines[at];
        let gone = matches!(m.phase, ClosingGone | Replaced | Closed);
        let going = gone || matches!(m.phase, Leaving | Deleting | Vanishing);
        // The machines of the beginning are alike: the first that asks is called the first.
        let first = world.machines[..at]
            .iter()
            .all(|m| m.phase != Serving || m.upgraded);
        let due = [
            (!m.to_rollout.is_empty(), Event::Deliver(at)),
            (!m.from_rollout.is_empty(), Event::Receive(at)),
            (
                m.phase == Serving && !m.upgraded && m.exists && first,
                Event::Want(at),
            ),
            (
                m.phase == Coming && m.exists && !m.deleting,
                Event::Join(at),
            ),
            (m.phase == Working, Event::Worked(at)),
            (!m.exists && !gone, Event::See(at)),
            (m.exists && m.deleting && !going, Event::See(at)),
            (m.exists && m.deleting, Event::Vanish(at)),
            (
                m.exists && !m.deleting && world.live(m.set) > world.replicas[m.set],
                Event::TooMany(at),
            ),
            (
                m.phase == Failed && m.exists && !m.deleting,
                Event::Retry(at),
            ),
            (m.exists && m.served && !m.ready, Event::Recover(at)),
            (
                m.exists && m.served && !m.ready && !m.long_down,
                Event::StaysDown(at),
            ),
            (m.exists && m.kept, Event::Uncordon(at)),
            (m.exists && m.not_compared, Event::Mend(at)),
        ];
        events.extend(
            due.into_iter()
                .filter(|(due, _)| *due)
                .map(|(_, event)| event),
        );
    }

    /// What may go wrong.
    fn faults(&self, world: &World, events: &mut Vec<Event>) {
        let left = world.faults;
        if left.shrinks > 0 {
            events.push(Event::Shrink);
        }
        if left.grows > 0 {
            events.push(Event::Grow);
        }
        if left.repeats > 0 {
            let fresh = |at: &usize| {
                let worker = world.workers[*at];
                worker.task == world.machines[worker.who].task
            };
            events.extend((0..world.workers.len()).filter(fresh).map(Event::Repeat));
        }
        for (at, m) in world.machines.iter().enumerate() {
            let lives = m.exists && !m.deleting;
            let undoes = matches!(m.phase, Phase::Opening | Phase::Deleting);
            let idle = m.lease == 0 && matches!(m.phase, Phase::Serving | Phase::Wanting);
            let faults = [
                (left.aborts > 0 && undoes, Event::Abort(at)),
                (left.deletions > 0 && lives, Event::Delete(at)),
                (
                    left.failures > 0 && lives && m.phase == Phase::Coming,
                    Event::Fail(at),
                ),
                (
                    left.overtakes > 0 && lives && m.phase == Phase::Failed && !m.served,
                    Event::Overtake(at),
                ),
                (
                    left.outages > 0 && lives && m.served && m.ready,
                    Event::Outage(at),
                ),
                (left.removals > 0 && lives && idle, Event::Remove(at)),
                (left.asks > 0 && m.phase != Phase::Closed, Event::Ask(at)),
                (
                    left.cordons > 0 && lives && m.served && !m.kept && !m.cordoned,
                    Event::Cordon(at),
                ),
                (
                    left.troubles > 0 && lives && m.served && !m.not_compared,
                    Event::Puzzle(at),
                ),
            ];
            events.extend(
                faults
                    .into_iter()
                    .filter(|(may, _)| *may)
                    .map(|(_, event)| event),
            );
        }
    }
}

impl Model for Lease {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let all = [self.replicas, self.others];
        let owners = if self.others == 0 { &all[..1] } else { &all };
        let world = World::new(
            owners,
            self.upgrades,
            (self.share, self.max_repairs),
            self.faults,
        );
        vec![World {
            withheld: self.withheld,
            ..world
        }]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        if world.violation.is_none() {
            self.due(world, events);
            self.faults(world, events);
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut world = world.clone();
        match event {
            Event::Deliver(at) => world.deliver(at),
            Event::Receive(at) => world.receive(at),
            Event::Read => {
                world.read();
                if !self.stale {
                    world.publish();
                }
            }
            Event::Publish => world.publish(),
            Event::Wake(at) => world.wake(at, self.in_place, self.close),
            Event::Want(at) => world.wants(at),
            Event::Join(at) => world.joins(at),
            Event::Worked(at) => world.worked(at),
            Event::See(at) => world.sees(at),
            Event::Vanish(at) => world.vanish(at),
            Event::Create(set) => world.create(set),
            Event::TooMany(at) => world.delete(at),
            Event::Retry(at) => world.fail(at, Phase::Coming),
            Event::Recover(at) => world.ready(at, true),
            Event::StaysDown(at) => world.stays_down(at),
            Event::Uncordon(at) => world.keep(at, false),
            Event::Cordon(at) => {
                world.faults.cordons -= 1;
                world.keep(at, true);
            }
            Event::Mend(at) => world.puzzle(at, false),
            Event::Puzzle(at) => {
                world.faults.troubles -= 1;
                world.puzzle(at, true);
            }
            Event::Repeat(at) => {
                world.faults.repeats -= 1;
                world.repeat(at);
            }
            Event::Abort(at) => {
                world.faults.aborts -= 1;
                world.abort(at);
            }
            Event::Delete(at) => {
                world.faults.deletions -= 1;
                world.delete(at);
            }
            Event::Shrink => {
                world.faults.shrinks -= 1;
                world.replicas[0] -= 1;
            }
            Event::Grow => {
                world.faults.grows -= 1;
                world.grow();
            }
            Event::Overtake(at) => {
                world.faults.overtakes -= 1;
                world.wants(at);
            }
            Event::Fail(at) => {
                world.faults.failures -= 1;
                world.fail(at, Phase::Failed);
            }
            Event::Outage(at) => {
                world.faults.outages -= 1;
                world.ready(at, false);
            }
            Event::Remove(at) => {
                world.faults.removals -= 1;
                world.remove(at);
            }
            Event::Ask(at) => {
                world.faults.asks -= 1;
                world.ask(at);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(AWAY, |_: &Self, world: &World| world.violation.is_none()),
            Property::always(AT_REST, |lease: &Self, world: &World| {
                let mut due = Vec::new();
                lease.due(world, &mut due);
                !due.is_empty() || world.violation.is_some() || world.at_rest()
            }),
            Property::sometimes("all machines are upgraded", |_: &Self, world: &World| {
                world.at_rest() && world.machines.iter().all(|m| m.upgraded || !m.exists)
            }),
        ]
    }
}

fn explore(lease: Lease, until: HasDiscoveries) -> impl Checker<Lease> {
    lease
        .checker()
        .threads(2)
        .finish_when(until)
        .spawn_bfs()
        .join()
}

/// Checks `lease` in every order of events, and returns the number of states.
fn holds(name: &str, lease: Lease) -> usize {
    let checker = explore(lease, HasDiscoveries::AnyFailures);
    println!(
        "{name}: {} states, {} deep",
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
    checker.unique_state_count()
}

const CALM: Faults = Faults {
    repeats: 0,
    aborts: 0,
    deletions: 0,
    shrinks: 0,
    failures: 0,
    overtakes: 0,
    grows: 0,
    outages: 0,
    removals: 0,
    asks: 0,
    cordons: 0,
    troubles: 0,
};

const RECREATE: Lease = Lease {
    replicas: 2,
    others: 0,
    upgrades: 2,
    in_place: false,
    close: Close::Reports,
    stale: false,
    share: None,
    max_repairs: None,
    withheld: Withheld::Nothing,
    faults: CALM,
};

const IN_PLACE: Lease = Lease {
    in_place: true,
    ..RECREATE
};

/// Both machines may be taken at once, and a replacement fails.
const FAILS: Lease = Lease {
    share: Some(100),
    faults: Faults {
        failures: 1,
        ..CALM
    },
    ..RECREATE
};

/// Two replacements in a row fail, and a newer version overtakes each.
const OVERTAKEN: Lease = Lease {
    upgrades: 1,
    faults: Faults {
        failures: 2,
        overtakes: 2,
        ..CALM
    },
    ..RECREATE
};

/// One of two machines may be taken, and two of three.
const GROWS: Lease = Lease {
    share: Some(67),
    faults: Faults { grows: 1, ..CALM },
    ..IN_PLACE
};

#[test]
fn workers_that_sleep_and_tasks_that_are_given_up_in_place() {
    let faults = Faults {
        repeats: 2,
        aborts: 1,
        ..CALM
    };
    holds(
        "in place, two repeats, one given up",
        Lease { faults, ..IN_PLACE },
    );
}

#[test]
fn workers_that_sleep_while_machines_are_replaced() {
    let faults = Faults { repeats: 1, ..CALM };
    holds("recreate, one repeat", Lease { faults, ..RECREATE });
    let faults = Faults { aborts: 1, ..CALM };
    holds("recreate, one given up", Lease { faults, ..RECREATE });
}

#[test]
fn three_machines() {
    let faults = Faults { aborts: 1, ..CALM };
    let replicas = 3;
    holds(
        "in place, three",
        Lease {
            replicas,
            upgrades: 3,
            faults,
            ..IN_PLACE
        },
    );
}

#[test]
fn somebody_else_deletes_a_machine() {
    let faults = Faults {
        deletions: 1,
        ..CALM
    };
    holds(
        "recreate, one deletion",
        Lease {
            upgrades: 1,
            faults,
            ..RECREATE
        },
    );
    holds(
        "in place, one deletion",
        Lease {
            upgrades: 1,
            stale: true,
            faults,
            ..IN_PLACE
        },
    );
}

#[test]
fn the_pool_shrinks() {
    let faults = Faults { shrinks: 1, ..CALM };
    holds(
        "recreate, one fewer",
        Lease {
            upgrades: 1,
            stale: true,
            faults,
            ..RECREATE
        },
    );
    holds("in place, one fewer", Lease { faults, ..IN_PLACE });
}

#[test]
fn a_replacement_fails() {
    let faults = Faults {
        failures: 1,
        ..CALM
    };
    holds("recreate, one failure", Lease { faults, ..RECREATE });
}

/// Each newer version replaces it, although the slot of the last one still waits.
#[test]
fn a_replacement_that_fails_is_overtaken_twice() {
    holds("recreate, two failures, two newer versions", OVERTAKEN);
}

/// A share of the pool: a machine that has not served yet allows no other one to be away.
#[test]
fn a_share_of_the_pool_may_be_away_while_it_grows() {
    holds("in place, a share, one more", GROWS);
}

#[test]
fn a_node_is_not_ready_for_a_while() {
    let faults = Faults { outages: 1, ..CALM };
    holds("in place, one outage", Lease { faults, ..IN_PLACE });
    holds(
        "recreate, one outage",
        Lease {
            upgrades: 1,
            stale: true,
            faults,
            ..RECREATE
        },
    );
}

#[test]
fn nodes_are_not_ready_and_cordoned_by_people() {
    let partition = Faults { outages: 2, ..CALM };
    holds(
        "in place, two outages",
        Lease {
            faults: partition,
            ..IN_PLACE
        },
    );
    let cordons = Faults { cordons: 2, ..CALM };
    holds(
        "recreate, two cordons",
        Lease {
            faults: cordons,
            ..RECREATE
        },
    );
    let both = Faults {
        cordons: 1,
        outages: 1,
        ..CALM
    };
    holds(
        "in place, three, a cordon and an outage",
        Lease {
            replicas: 3,
            upgrades: 2,
            faults: both,
            ..IN_PLACE
        },
    );
}

#[test]
fn hosts_cannot_be_compared_for_a_while() {
    let faults = Faults {
        troubles: 2,
        ..CALM
    };
    holds("in place, two troubles", Lease { faults, ..IN_PLACE });
}

#[test]
fn a_person_closes_a_run() {
    let faults = Faults {
        removals: 1,
        ..CALM
    };
    holds("recreate, one removal", Lease { faults, ..RECREATE });
}

#[test]
fn what_was_said_is_said_again() {
    let faults = Faults {
        asks: 2,
        aborts: 1,
        ..CALM
    };
    holds("in place, asked twice", Lease { faults, ..IN_PLACE });
}

/// A pool with machines of two owners: the limit is the pool's, and each owner replaces its own.
#[test]
fn machines_of_two_owners() {
    let two = Lease {
        replicas: 1,
        others: 1,
        ..RECREATE
    };
    let deletion = Faults {
        deletions: 1,
        ..CALM
    };
    let outage = Faults { outages: 1, ..CALM };
    let repeats = Faults { repeats: 1, ..CALM };
    let cordon = Faults { cordons: 1, ..CALM };
    holds("two owners, recreate", Lease { stale: true, ..two });
    for (name, faults) in [
        ("two owners, one deletion", deletion),
        ("two owners, one outage", outage),
        ("two owners, one repeat", repeats),
        ("two owners, one cordon", cordon),
    ] {
        let upgrades = if faults == repeats || faults == cordon {
            2
        } else {
            1
        };
        holds(
            name,
            Lease {
                upgrades,
                faults,
                ..two
            },
        );
    }
    // The second one is down for long, and goes over the limit.
    holds(
        "two owners, in place, one outage and one cordon",
        Lease {
            in_place: true,
            faults: Faults {
                cordons: 1,
                ..outage
            },
            ..two
        },
    );
    let shrinks = Faults { shrinks: 1, ..CALM };
    holds(
        "two owners, in place, one fewer",
        Lease {
            in_place: true,
            replicas: 2,
            upgrades: 1,
            faults: shrinks,
            ..two
        },
    );
}

#[test]
fn larger_bounds() {
    let part = long!("rollout-model");
    let mut states = 0;
    let two = |faults| Lease { faults, ..RECREATE };
    let old = |faults| Lease {
        stale: true,
        upgrades: 1,
        faults,
        ..RECREATE
    };
    states += holds(
        "calm, old views",
        Lease {
            stale: true,
            ..RECREATE
        },
    );
    states += holds(
        "failure, old views",
        Lease {
            stale: true,
            ..two(Faults {
                failures: 1,
                ..CALM
            })
        },
    );
    states += holds("two repeats", two(Faults { repeats: 2, ..CALM }));
    states += holds(
        "repeat and given up",
        two(Faults {
            repeats: 1,
            aborts: 1,
            ..CALM
        }),
    );
    states += holds("outage", two(Faults { outages: 1, ..CALM }));
    states += holds("one fewer", two(Faults { shrinks: 1, ..CALM }));
    states += holds(
        "deletion",
        two(Faults {
            deletions: 1,
            ..CALM
        }),
    );
    // With room for a second node: it is not taken before a replacement serves, or another one comes.
    states += holds("all at once, failure", FAILS);
    states += holds(
        "deletion, old views",
        old(Faults {
            deletions: 1,
            ..CALM
        }),
    );
    part.passed(&[("states", states.to_string())]);
}

/// An upgrade is given up while a worker sleeps before its DELETE. The close comes too late to stop it, and has to say
/// so, or the slot would be given back without a replacement.
#[test]
fn a_close_without_the_deletion_time_is_not_enough() {
    let faults = Faults { aborts: 1, ..CALM };
    let lease = Lease {
        close: Close::TellsNothing,
        faults,
        ..RECREATE
    };
    let checker = explore(lease, HasDiscoveries::AnyOf([AWAY].into()));
    checker.assert_any_discovery(AWAY);
}

/// The proof that the check can fail: a Close that only undoes the cordon leaves the door open to a worker that slept.
#[test]
fn without_close_two_nodes_are_away() {
    let faults = Faults { repeats: 1, ..CALM };
    for lease in [IN_PLACE, RECREATE] {
        let faults = if lease.in_place {
            faults
        } else {
            Faults {
                aborts: 1,
                ..faults
            }
        };
        let lease = Lease {
            close: Close::WritesNothing,
            faults,
            ..lease
        };
        let checker = explore(lease, HasDiscoveries::AnyOf([AWAY].into()));
        let path = checker.discovery(AWAY).expect("the check cannot fail");
        assert_eq!(
            path.last_state().violation,
            Some("more nodes away by our doing than may be"),
            "{lease:?}"
        );
    }
}

/// The laws of grants can fail: each does where the rollout does not get what the law is about.
#[test]
fn each_law_of_grants_breaks_where_its_cause_is_hidden() {
    // A cordoned Node is away, so that it may be granted over the limit alone.
    let cordon = Faults {
        cordons: 1,
        outages: 1,
        ..CALM
    };
    let outage = Faults { outages: 2, ..CALM };
    let trouble = Faults {
        troubles: 2,
        ..CALM
    };
    let deletion = Faults {
        deletions: 1,
        ..CALM
    };
    let three = Lease {
        replicas: 3,
        ..IN_PLACE
    };
    let laws = [
        (
            "a lease for a node that a person cordoned",
            Lease {
                withheld: Withheld::Cordons,
                faults: cordon,
                ..IN_PLACE
            },
        ),
        (
            "a lease over the limit for a node that was just NotReady",
            Lease {
                withheld: Withheld::Downtime,
                faults: outage,
                ..three
            },
        ),
        (
            "a lease while hosts cannot be compared",
            Lease {
                withheld: Withheld::Troubles,
                faults: trouble,
                ..three
            },
        ),
        (
            "two leases over the limit",
            Lease {
                max_repairs: Some(2),
                faults: outage,
                ..three
            },
        ),
        (
            "a grant over a gap",
            Lease {
                withheld: Withheld::Deletions,
                faults: deletion,
                ..RECREATE
            },
        ),
        (
            "a lease while every replacement fails",
            Lease {
                withheld: Withheld::Failures,
                ..FAILS
            },
        ),
        (
            "more nodes away by our doing than may be",
            Lease {
                withheld: Withheld::Newcomers,
                ..GROWS
            },
        ),
        (
            "a fence over the limit on a Node that is Ready",
            Lease {
                withheld: Withheld::LiveRead,
                faults: Faults { outages: 1, ..CALM },
                ..IN_PLACE
            },
        ),
        (
            "a fence on a Node that a person cordoned",
            Lease {
                withheld: Withheld::LiveRead,
                faults: Faults { cordons: 1, ..CALM },
                ..IN_PLACE
            },
        ),
    ];
    let found = laws.map(|(_, lease)| {
        let checker = explore(lease, HasDiscoveries::AnyOf([AWAY].into()));
        let path = checker.discovery(AWAY);
        path.and_then(|path| path.last_state().violation)
    });
    assert_eq!(found, laws.map(|(law, _)| Some(law)));
}

/// A slot that is never given back holds the pool for ever.
#[test]
fn a_release_that_is_lost_is_found() {
    let lease = Lease {
        withheld: Withheld::Releases,
        ..IN_PLACE
    };
    assert_never_rests(lease);
}

/// A replacement waits for the lease for ever, behind the slot that waits for it.
#[test]
fn a_slot_that_keeps_its_own_replacement_waiting_is_found() {
    assert_never_rests(Lease {
        withheld: Withheld::Rounds,
        ..OVERTAKEN
    });
}

fn assert_never_rests(lease: Lease) {
    let checker = explore(lease, HasDiscoveries::AnyOf([AT_REST].into()));
    assert!(
        checker.discovery(AT_REST).is_some(),
        "the check cannot fail"
    );
}
