//! The engine's integration tests, one module for each subject. One test binary links once.

mod builds;
mod conflict;
mod conformance;
mod embedded_basics;
mod embedded_common;
mod embedded_kill;
mod embedded_power;
mod embedded_room;
mod embedded_upkeep;
mod embedded_wal;
mod history_keys;
mod local_alarms;
mod nats_changes;
mod nats_cluster;
mod nats_common;
mod nats_credit;
#[cfg(feature = "nats-creds")]
mod nats_creds;
mod nats_engine;
mod nats_held;
mod nats_inventory;
mod nats_mid_page;
mod nats_moves;
mod nats_old_and_new;
mod nats_orders;
mod nats_outage;
mod nats_polls;
mod nats_ports;
mod nats_shares;
mod nats_signed;
mod nats_sweep;
mod old_and_new;
mod order;
#[expect(dead_code, reason = "the example's own program")]
#[path = "../examples/order.rs"]
mod order_example;
mod quarantine;
mod whole;
