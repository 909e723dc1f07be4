//! Types that cross a process boundary: ids, NATS subjects, the envelope, and MessagePack messages.
//!
//! Everything that is sent is a MessagePack map with field names, in an envelope with version, kind and checksum
//! ([`envelope`]); unknown fields are ignored and new ones have defaults, so builds one version apart can talk. Apart
//! from that, [`lock`] has how every package locks what its threads share.

// A new task or message does not compile before every `match` names it.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod address;
pub mod boot;
pub mod checks;
pub mod code;
mod defaults;
pub mod duration;
pub mod envelope;
pub mod held_by;
pub mod id;
pub mod lock;
pub mod machine;
pub mod message;
pub mod other_operator;
pub mod phase;
pub mod pool;
pub mod requester;
pub mod rollout;
pub mod span;
pub mod subject;
pub mod token;
pub mod work;
