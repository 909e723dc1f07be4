//! The workflows' integration tests, one module for each subject. One test binary links once.

#![allow(
    clippy::too_many_lines,
    reason = "a story or a table reads from top to bottom"
)]

mod actions;
mod common;
mod histories;
mod joined;
mod machine_guard;
mod machine_reopened;
mod machine_stories;
mod machine_table;
mod machine_walk;
mod meanwhile;
mod own_hosts;
mod renewal;
mod rollback;
mod rollout_common;
mod rollout_model;
mod rollout_size;
mod rollout_stories;
mod rollout_table;
mod rollout_trust;
