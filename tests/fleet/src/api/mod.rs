//! The API server: Kubernetes' HTTP over an object store in memory.
//!
//! Where it differs from a real one: authorization is not enforced (every known user may do
//! everything); `managedFields` are not kept, and server-side apply neither tracks nor refuses
//! other managers' fields; objects are not checked against schemas beyond names and the little in
//! [`admission`]; bodies in protobuf are refused with 415 (kubectl's `create configmap NAME …` and
//! its like send them; `create -f`, `apply`, `edit`, `patch`, `scale` and `drain` do not); a paginated list goes on in the present state rather than in its first page's;
//! Events are forgotten by number, not by age.

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
pub mod reviews;
pub mod scale;
pub mod selector;
pub mod server;
pub mod status;
pub mod store;
pub mod table;
pub mod watch;

pub use auth::User;
pub use object::{Key, Meta, Object};
pub use server::{ApiServer, DeleteOptions, ListQuery, Part, WriteOptions};
pub use status::Refusal;
