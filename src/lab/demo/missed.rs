//! Orders of faults that strike fewer machines than they say, or none: without a word they would seem harmless.

use super::Strategy;
use dormer_fleet::faults::{Aim, FaultOrder};

/// Notes on orders for more machines than there are.
pub(super) fn at_the_start(orders: &[String], machines: usize, strategy: Strategy) -> Vec<String> {
    let there = counted(machines);
    // Of the machines that an upgrade leaves.
    let more = match strategy {
        Strategy::Recreate => machines,
        Strategy::InPlace => 0,
    };
    let notes = orders.iter().filter_map(|text| {
        let FaultOrder { aim, .. } = text.parse().ok()?;
        match aim {
            Aim::Seed(wanted) if wanted as usize > machines => Some(format!(
                "--faults {text}: it strikes {there}, as there are no more"
            )),
            Aim::Nth(nth) if nth as usize > machines + more => Some(format!(
                "--faults {text}: machine number {nth} is never made: the demonstration begins with {there}, and {}",
                match strategy {
                    Strategy::Recreate => "an upgrade makes at most as many again",
                    Strategy::InPlace => "an upgrade in place makes none",
                }
            )),
            Aim::Nth(nth) if nth as usize > machines => Some(format!(
                "--faults {text}: machine number {nth} is made only once an upgrade has replaced {} of {there}",
                nth as usize - machines
            )),
            _ => None,
        }
    });
    notes.collect()
}

fn counted(machines: usize) -> String {
    match machines {
        1 => "1 machine".to_owned(),
        _ => format!("{machines} machines"),
    }
}

/// Note on an order that has struck `struck` machines of the `made` ones. `None`: as many as it says.
pub(super) fn at_the_end(
    text: &str,
    order: &FaultOrder,
    struck: usize,
    made: usize,
) -> Option<String> {
    match order.aim {
        Aim::Nth(nth) if struck == 0 && nth as usize > made => Some(format!(
            "--faults {text}: it struck no machine, as only {made} {} made",
            if made == 1 { "was" } else { "were" }
        )),
        _ if struck == 0 => Some(format!(
            "--faults {text}: it struck no machine, as none came to the moment at which it strikes"
        )),
        Aim::Seed(wanted) if struck < wanted as usize => Some(format!(
            "--faults {text}: it struck {struck} of {}",
            counted(wanted as usize)
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_for_more_machines_than_there_are_is_reported_before_and_after() {
        let orders = [
            "dead=9",
            "dead=6",
            "disk-full@7",
            "disk-full@13",
            "disk-full@*",
        ];
        let orders = orders.map(str::to_owned);
        assert_eq!(
            at_the_start(&orders, 6, Strategy::Recreate),
            [
                "--faults dead=9: it strikes 6 machines, as there are no more",
                "--faults disk-full@7: machine number 7 is made only once an upgrade has replaced 1 of 6 machines",
                "--faults disk-full@13: machine number 13 is never made: the demonstration begins with 6 machines, and an \
                 upgrade makes at most as many again",
            ]
        );
        // In place no machine is made.
        assert_eq!(
            at_the_start(&orders[2..3], 6, Strategy::InPlace),
            [
                "--faults disk-full@7: machine number 7 is never made: the demonstration begins with 6 machines, and an upgrade \
                 in place makes none"
            ]
        );
        assert_eq!(
            at_the_start(&["dead=2".to_owned()], 1, Strategy::InPlace),
            ["--faults dead=2: it strikes 1 machine, as there are no more"]
        );
        let told = |text: &str, struck, made| {
            at_the_end(text, &text.parse().expect("an order"), struck, made)
        };
        assert_eq!(told("dead", 1, 6), None);
        assert_eq!(told("dead@*", 6, 6), None);
        let none = told("disk-full@7", 0, 6).unwrap_or_default();
        assert!(none.ends_with("as only 6 were made"), "{none}");
        let none = told("disk-full@7", 0, 1).unwrap_or_default();
        assert!(none.ends_with("as only 1 was made"), "{none}");
        let none = told("provider-id-case", 0, 6).unwrap_or_default();
        assert!(none.contains("struck no machine"), "{none}");
        let some = told("dead=9", 6, 6).unwrap_or_default();
        assert!(some.ends_with("it struck 6 of 9 machines"), "{some}");
    }
}
