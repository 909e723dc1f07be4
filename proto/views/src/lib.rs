//! What people are shown of machines and rollouts, shared by the API, the console and the commands.

pub mod explain;
pub mod export;
pub mod lacks;
pub mod moment;
pub mod secret;
pub mod timeline;
