//! The world: API server, controllers, hosts, clock, faults and record, put together.

mod clock;
mod cloud;
mod record;

pub use clock::{Pace, WorldClock, stamp};
pub use cloud::{CloudAct, CloudError, HostCloud, HostContext, HostOrder, Instance, Platform};
pub use record::{ENTRIES_MAX, Entry, Happened, Record, Tally, Unavailable};
