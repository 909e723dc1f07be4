//! The ports of workers and watcher over NATS JetStream.
//!
//! Subjects, streams and headers come from `dormer_proto::subject`; the engine creates the streams. A worker that
//! starts earlier waits. Each class of orders has one durable consumer that all workers share; a claim is kept by
//! progress acknowledgements and lapses after [`CLAIM`] without one.

mod facts;
mod link;
mod options;
mod orders;
mod pull;

pub use dormer_nats::{ConnectError, Login, Tls};
pub use facts::NatsFacts;
pub use link::{NatsLink, WorkerEvent};
pub use options::Options;
pub use orders::{NatsClaim, NatsOrders};
pub use pull::CLAIM;
