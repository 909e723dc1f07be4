//! A simulated cluster and simulated Windows hosts, for tests and the demo.
//!
//! Not a mock of dormer but a stand-in for the world behind the same sockets: [`api`] is an API
//! server that speaks Kubernetes' HTTP, [`cluster`] holds the controllers that a cluster has
//! (MachineSets, Machines, pods, budgets, certificates), [`host`] the Windows computers, [`wmco`] another operator for
//! them. [`world`] puts them together; [`faults`] makes trouble by name and by seed. [`written`] is the written inventory that tests compare
//! hosts and clusters with.

pub mod api;
pub mod cluster;
pub mod faults;
pub mod host;
pub mod manifest;
pub mod net;
pub mod payload;
pub mod wmco;
pub mod world;
pub mod written;

pub use faults::{Fault, Faults};
pub use world::{Pace, World, WorldClock, WorldConfig};
