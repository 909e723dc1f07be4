//! The fleet's integration tests, one module for each subject. One test binary links once.

mod cluster;
mod cluster_api;
mod host;
mod http;
mod wmco;
mod world;
