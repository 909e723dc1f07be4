//! The written inventory, docs/inventory.md, compared with hosts and a cluster.

use super::stage::{self, Scenario};
use dormer_fleet::{
    WorldConfig,
    api::kinds,
    host::Image,
    written::{NO_TRACES, fits, rows, traces, unnamed},
};
use std::collections::BTreeSet;

/// What speaks of dormer in the cluster.
pub(super) fn of_cluster(scenario: &Scenario) -> BTreeSet<String> {
    let kinds = kinds::ALL.iter();
    let kinds = kinds.filter(|kind| !NO_TRACES.contains(&kind.kind));
    let objects = kinds.flat_map(|kind| scenario.all(kind));
    objects.flat_map(|object| traces(&object)).collect()
}

/// What a BYOH host has once its node serves, and had not before.
async fn made_on_a_host(plain: bool) -> BTreeSet<String> {
    let base = if plain {
        WorldConfig::plain(0)
    } else {
        WorldConfig::in_memory(0)
    };
    let config = WorldConfig {
        linux: false,
        image: Image {
            containers: false,
            ..Image::default()
        },
        ..base
    };
    let mut scenario = Scenario::start_in(config).await;
    scenario.own_host("win-1").await;
    let host = scenario.host_of("win-1");
    let bare = host.inventory();
    scenario.until_all_serve("it serves", 1).await;
    let made = host.inventory();
    made.difference(&bare).cloned().collect()
}

#[test]
fn whatever_a_host_gets_is_written_down_and_each_row_names_something() {
    stage::on_a_virtual_clock(async {
        let rows = rows("## On a Windows host");
        let mut made = made_on_a_host(true).await;
        made.extend(made_on_a_host(false).await);
        // The person's own key for dormer.
        made.retain(|thing| !thing.ends_with("administrators_authorized_keys"));
        assert_eq!(unnamed(&rows, |_| true, &made), Vec::<&String>::new());
        let all = rows.iter().flat_map(|row| &row.things);
        let vain: Vec<_> = all
            .filter(|pattern| !made.iter().any(|thing| fits(pattern, thing)))
            .collect();
        assert_eq!(vain, Vec::<&String>::new(), "named and not there");
    });
}
