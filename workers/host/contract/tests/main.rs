//! The contract's rows against the hosts that can be had here.

mod page;
mod performer;
mod wine;
