//! The engine in the world: its loop, the ports, and their adapters.
//!
//! [`lane`] is the loop's five steps; [`engine`] runs several lanes side by side, the sweep and the shutdown;
//! [`port`] says what the world must offer. Two real adapters: NATS JetStream, and the embedded store over [`local`]
//! queues.

pub mod embedded;
pub mod engine;
pub mod lane;
mod lines;
pub mod local;
pub mod memory;
pub mod nats;
pub mod port;
pub mod witness;
