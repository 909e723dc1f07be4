//! Numbers of a fleet, each counted in one way: `dormer status`, `dormer get rollouts` and the console show these.
//! docs/glossary.md says in words what they count.

use crate::machine::Machine;
use dormer_proto::phase::{MachinePhase, MachineState};
use std::{cmp::Reverse, collections::BTreeMap};

/// Numbers of some machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// Machines. One that goes and the one in its place count once.
    pub machines: u64,
    /// Machines that serve.
    pub serving: u64,
    /// Machines that have served and carry the version that they should carry.
    pub updated: u64,
    /// Machines that failed.
    pub failed: u64,
}

impl Numbers {
    /// Numbers of these machines; ended ones do not count.
    pub fn of<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Self {
        let open = |it: &&Machine| it.status.closed.is_none();
        let open: Vec<&Machine> = machines.into_iter().filter(open).collect();
        let mut numbers = Self::default();
        for machine in &open {
            numbers.serving += u64::from(machine.serves());
            numbers.updated += u64::from(machine.is_updated());
            numbers.failed += u64::from(machine.state == MachineState::Failed);
        }
        numbers.machines = (open.len() - replaced(open).len()) as u64;
        numbers
    }

    /// Numbers of the machines of one pool.
    pub fn of_pool<'a>(machines: impl IntoIterator<Item = &'a Machine>, pool: &str) -> Self {
        Self::of(machines.into_iter().filter(|it| it.pool == pool))
    }
}

/// Machines of one owner, in an upgrade.
#[derive(Default)]
struct OwnerMachines<'a> {
    going: Vec<&'a Machine>,
    others: Vec<&'a Machine>,
}

/// Machines that go and have another in their place already, of the same owner. No controller puts one in the place of a
/// machine without an owner.
pub fn replaced<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Vec<&'a Machine> {
    let mut changes: BTreeMap<&str, OwnerMachines<'a>> = BTreeMap::new();
    for machine in machines {
        let Some(owner) = machine.owner.as_deref() else {
            continue;
        };
        let OwnerMachines { going, others } = changes.entry(owner).or_default();
        match goes(machine) {
            true => going.push(machine),
            false => others.push(machine),
        }
    }
    changes
        .into_values()
        .flat_map(OwnerMachines::replaced)
        .collect()
}

impl<'a> OwnerMachines<'a> {
    /// Those that go, each with another machine in its place. The one that was deleted last has the fewest to choose from,
    /// and chooses first.
    fn replaced(mut self) -> Vec<&'a Machine> {
        self.going.sort_by_key(|it| Reverse(it.deleted));
        let mut replaced = Vec::new();
        for goes in self.going {
            if let Some(at) = self.others.iter().position(|it| comes_for(it, goes)) {
                self.others.swap_remove(at);
                replaced.push(goes);
            }
        }
        replaced
    }
}

/// Whether a machine may be in the place of one that goes. One that serves already is not older than the deletion: the run of
/// the other may still wait for the word that it serves.
fn comes_for(machine: &Machine, goes: &Machine) -> bool {
    let later = goes.deleted.is_some() && machine.created >= goes.deleted;
    !machine.served || later
}

/// Whether its Machine is being deleted, or is gone.
fn goes(machine: &Machine) -> bool {
    let gone = [MachinePhase::ClosingGone, MachinePhase::ReplacementWait];
    machine.deleting || gone.iter().any(|phase| machine.phase == *phase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        explain::tests::machine_in,
        machine::{Halt, HaltKind},
        moment::Moment,
    };
    use dormer_proto::id::Timestamp;

    fn updated(phase: MachinePhase) -> Machine {
        Machine {
            served: true,
            version: Some("v2".into()),
            desired_version: Some("v2".into()),
            owner: Some("MachineSet/windows".into()),
            ..machine_in(phase)
        }
    }

    #[test]
    fn a_machine_that_is_held_serves() {
        let held = Machine {
            halt: Some(Halt {
                kind: HaltKind::Held.into(),
                by: Some("ann".into()),
                own: None,
                who: None,
                why: None,
                text: "held by ann".into(),
                since: None,
            }),
            waiting_for: Some("resume (held by ann)".into()),
            ..updated(MachinePhase::Serving)
        };
        let numbers = Numbers::of(&[updated(MachinePhase::LeaseWait), held]);
        assert_eq!(
            (numbers.serving, numbers.updated, numbers.machines),
            (2, 2, 2)
        );
    }

    #[test]
    fn a_machine_whose_node_is_down_does_not_serve() {
        let down = Machine {
            down_since: Some(machine_in(MachinePhase::Serving).status.since),
            ..updated(MachinePhase::Serving)
        };
        let numbers = Numbers::of(&[down, updated(MachinePhase::Checking)]);
        assert_eq!(
            (numbers.serving, numbers.updated, numbers.machines),
            (1, 2, 2)
        );
    }

    #[test]
    fn a_machine_and_its_replacement_count_once() {
        let gone = updated(MachinePhase::ReplacementWait);
        let serves = updated(MachinePhase::Serving);
        let comes = Machine {
            served: false,
            ..updated(MachinePhase::Probing)
        };
        let of = |machines: &[&Machine]| Numbers::of(machines.iter().copied()).machines;
        assert_eq!(of(&[&serves, &gone]), 2, "nothing is in its place yet");
        assert_eq!(of(&[&serves, &gone, &comes]), 2);
        assert_eq!(
            of(&[&serves, &gone, &comes, &comes]),
            3,
            "one more than before"
        );
        let deleted = Machine {
            deleting: true,
            ..updated(MachinePhase::Vanishing)
        };
        assert_eq!(of(&[&serves, &deleted, &comes]), 2);
        let other = Machine {
            owner: Some("MachineSet/other".into()),
            ..comes.clone()
        };
        assert_eq!(of(&[&serves, &gone, &other]), 3, "it is in nobody's place");
        let host = |machine: &Machine| Machine {
            owner: None,
            ..machine.clone()
        };
        let going = host(&deleted);
        let comes = host(&comes);
        assert_eq!(of(&[&serves, &going, &comes]), 3, "BYOH hosts");
    }

    #[test]
    fn a_replacement_that_serves_counts_once_while_the_old_run_still_waits() {
        let at = |seconds: u64| Some(Moment(Timestamp(1_763_708_400_000 + seconds * 1_000)));
        let made = |seconds: u64| Machine {
            created: at(seconds),
            ..updated(MachinePhase::Serving)
        };
        let gone = |seconds: u64| Machine {
            created: at(0),
            deleted: at(seconds),
            ..updated(MachinePhase::ReplacementWait)
        };
        let of = |machines: &[Machine]| Numbers::of(machines).machines;
        // The first two have replaced others before.
        assert_eq!(of(&[made(10), made(20), gone(30)]), 3, "none came yet");
        let all = [made(10), made(20), gone(30), made(30)];
        assert_eq!(of(&all), 3, "it serves");
        let two = [made(10), gone(30), gone(40), made(45), made(35)];
        assert_eq!(of(&two), 3);
        let one_missing = [made(10), gone(30), gone(40), made(35)];
        assert_eq!(of(&one_missing), 3, "for that of 30 alone");
        let unknown = Machine {
            deleted: None,
            ..gone(0)
        };
        assert_eq!(of(&[made(10), unknown]), 2, "no time was seen");
    }

    #[test]
    fn ended_machines_and_other_pools_do_not_count() {
        let mut ended = updated(MachinePhase::Gone);
        ended.status.closed = Some(ended.status.since);
        let other = Machine {
            pool: "other".into(),
            ..updated(MachinePhase::Serving)
        };
        let all = [ended, other, machine_in(MachinePhase::Failed)];
        let numbers = Numbers::of_pool(&all, "windows");
        assert_eq!((numbers.machines, numbers.failed), (1, 1));
    }
}
