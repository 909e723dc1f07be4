//! The integration tests of the lint.

mod cases;
mod manifests;
