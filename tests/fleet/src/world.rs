//! The world: API server, controllers, hosts, clock, faults and record, put together.

mod bare;
mod clock;
mod cloud;
mod outside;
mod own;
mod record;
mod remedy;
mod start;

pub use bare::BareCloud;
pub use clock::{Pace, WorldClock, stamp};
pub use cloud::{CloudAction, CloudError, HostCloud, HostContext, HostOrder, Instance, Platform};
pub use outside::{OutsideConfig, OutsideWorld, PLAIN_SITE};
pub use record::{ENTRIES_MAX, Entry, Happened, Record, Tally, Unavailable};
pub use remedy::Remedy;
pub use start::{SSH_PORT, World, WorldConfig, WorldError};
