//! The support table: which Windows, platforms and versions dormer works with, and where each fact is from.
//!
//! Lint, preflight and the machine's own refusal read this one table, and `docs/support.md` is written from it.

pub mod page;
pub mod platform;
pub mod refusal;
pub mod version;
pub mod windows;

pub use refusal::Refusal;
