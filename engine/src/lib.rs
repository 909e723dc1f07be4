//! Engine with IO: its loop, the ports, and their adapters.
//!
//! [`shard`] has the loop's five steps. [`engine`] runs several shards, the sweep and the shutdown. [`port`] defines
//! the ports. Two real adapters implement them: NATS JetStream, and the embedded store with [`local`] queues.

pub mod any;
mod dump_format;
pub mod embedded;
pub mod engine;
mod head_row;
pub mod keyed;
pub mod local;
mod loose_json;
pub mod memory;
pub mod nats;
pub mod observer;
pub mod port;
pub mod quarantine;
pub mod rebuild;
pub mod shard;
pub mod supervise;
pub mod typed;

pub use dump_format::{LAYOUT as DUMP_LAYOUT, prove as prove_dump};
