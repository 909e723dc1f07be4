//! The profiles' integration tests, one module for each subject. One test binary links once.

#![allow(clippy::too_many_lines, reason = "a table reads from top to bottom")]

mod golden;
mod lint;
mod real_programs;
mod support;
