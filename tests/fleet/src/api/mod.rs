//! The API server: Kubernetes' HTTP over an object store in memory.
