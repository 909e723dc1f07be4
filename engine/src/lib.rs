//! The engine in the world: its loop, the ports, and their adapters.
//!
//! [`shard`] is the loop's five steps; [`engine`] runs several shards side by side, the sweep and the shutdown;
//! [`port`] says what the world must offer. Two real adapters: NATS JetStream, and the embedded store over [`local`]
//! queues.

mod dump_format;
pub mod embedded;
pub mod engine;
pub mod local;
pub mod memory;
pub mod nats;
pub mod observer;
pub mod port;
pub mod shard;
