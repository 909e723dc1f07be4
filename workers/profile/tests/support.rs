//! The support table: every pair of a kubelet and a containerd, for each platform, and what is refused.

mod conditions;
pub(crate) mod node;
mod page;
mod refused;
mod rows;
mod taken_away;
