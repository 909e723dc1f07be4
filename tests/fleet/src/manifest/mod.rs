//! Manifests: the seeds' MachineSets and the demo's world.
