//! Views of machines and rollouts, shared by API, console and commands: the types of the API's answers, and sentences
//! made from them.

pub mod actions;
pub mod address;
pub mod any_run;
pub mod explain;
pub mod export;
pub mod finding;
pub mod kubeconfig;
pub mod machine;
pub mod moment;
pub mod numbers;
mod older_texts;
pub mod open_enum;
pub mod plan;
pub mod prerequisites;
pub mod record;
pub mod rollout;
pub mod run;
pub mod secret;
pub mod timeline;
pub mod timing;

/// Audience of tokens for dormer alone. `kubectl dormer --as-account` asks for it, and no API server takes such a token.
pub const AUDIENCE: &str = "dormer";

/// Machines that need attention, alone and by cause.
pub mod problem {
    pub use crate::explain::{
        groups::{Group, groups, requests},
        problem::*,
        rollout_among::{seconds_left, time_left, word_among},
        short::{in_short, in_short_on_page},
    };
}
