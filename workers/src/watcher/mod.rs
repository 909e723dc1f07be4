//! The watcher: what the cluster is like, told to runs as facts.
