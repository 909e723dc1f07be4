//! The ports of workers and watcher over NATS JetStream.
