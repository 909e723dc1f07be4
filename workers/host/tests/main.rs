//! The core over the simulated host: each behaviour that the program is wanted for, and what is left when it is killed.

#![allow(clippy::too_many_lines, reason = "a story reads from top to bottom")]

mod cuts;
mod files;
mod generated;
mod guards;
mod harness;
mod images;
mod network;
mod real_containerd;
mod removal;
mod services;
mod system;
