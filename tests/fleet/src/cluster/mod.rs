//! The controllers that a cluster has.
