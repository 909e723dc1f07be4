//! The API server: Kubernetes' HTTP over an object store in memory.
//!
//! `tests/real` asks dormer's hands and watcher the same of a real one, plays whole stories on both, and compares their
//! refusals and tables word by word (`tests/real/both.rs`). Where this one differs:
//!
//! - Authorization is enforced only for users that a test confined ([`auth::Tokens::confine`]): every other known user
//!   may do everything, but for what `NodeRestriction` says of making Nodes and certificate requests. Reviews answer what a test has granted, not Roles.
//! - `managedFields` are not kept, and server-side apply neither tracks nor refuses other managers'
//!   fields.
//! - Objects are not checked against schemas beyond names and the little in [`admission`]. A pod that
//!   is made with a status keeps it; the real one drops it.
//! - A request for a certificate is not approved unless a fault orders it. The real controller
//!   manager approves client certificates by itself for users that may create
//!   `certificatesigningrequests/nodeclient`: administrators always, bootstrap tokens under kubeadm.
//! - A budget, an account of a namespace, a bootstrap token count at once; the real ones are computed,
//!   made or read by watches a moment later, and an eviction meanwhile is refused with 429.
//! - Every budget of a pod is counted when the pod changes; of several the real disruption controller counts one, and
//!   the others when a request touches them.
//! - No admission policy or webhook is asked; a real one may refuse an eviction with its own words.
//! - Bodies in protobuf are refused with 415 (kubectl's `create configmap NAME …` and its like send
//!   them; `create -f`, `apply`, `edit`, `patch`, `scale` and `drain` do not).
//! - A strategic merge patch is taken for every kind; the real one answers 415 for custom resources. A kind is served
//!   from the start; the real one answers 429 for a moment after its definition was established.
//! - A pod's eviction leaves no condition `DisruptionTarget` on it.
//! - A Node is unreachable after 40 s of the world's time; the real node controller counts 50 s of its own.
//! - A paginated list continues in the present state rather than in its first page's; Events are
//!   forgotten by number, not by age.

pub mod admission;
pub mod auth;
pub mod ca;
pub mod discovery;
pub mod events;
pub mod evict;
pub mod http;
pub mod kinds;
pub mod kubeconfig;
pub mod object;
pub mod patch;
pub mod portforward;
pub mod reviews;
pub mod scale;
pub mod selector;
pub mod server;
pub mod status;
pub mod store;
pub mod table;
pub mod watch;

pub use auth::{Grant, User};
pub use object::{Key, Meta, Object};
pub use server::{ApiServer, DeleteOptions, ListQuery, Part, WriteOptions};
pub use status::Refusal;
