//! What people are shown of machines and rollouts, shared by the API, the console and the commands: the types of the
//! API's answers, and the sentences made of them.

pub mod any_run;
pub mod explain;
pub mod export;
pub mod lacks;
pub mod machine;
pub mod moment;
pub mod open_enum;
pub mod plan;
pub mod record;
pub mod rollout;
pub mod run;
pub mod secret;
pub mod timeline;
