//! Rendering: a profile, a payload and one machine's values become the converge document of one section.
//!
//! ```
//! use dormer_profile::{
//!     builtin,
//!     document::Section,
//!     payload::Manifest,
//!     render::{EXAMPLE_PAYLOAD, Inputs, render},
//!     script,
//!     values::{Values, join_secrets},
//!     version::version,
//! };
//! // Once per pool and Windows build: what a node carries.
//! let profile = builtin::openshift();
//! let payload = Manifest::parse(EXAMPLE_PAYLOAD)?;
//! let version = version(&profile, &payload, script::hash());
//! assert!(version.starts_with("11.0.0-"));
//!
//! // Once per machine: its values, and what its kubelet joins with.
//! let values = Values {
//!     api_server: "https://api-int.example:6443".into(),
//!     cluster_dns: "172.30.0.10".into(),
//!     cluster_domain: "cluster.local".into(),
//!     service_cidr: "172.30.0.0/16".into(),
//!     node_ip: "10.0.0.9".into(),
//!     platform: "aws".into(),
//!     windows_build: "10.0.20348".into(),
//!     ..Values::default()
//! };
//! let variables = values.variables();
//! let secrets = join_secrets(&values.api_server, "the API's CA", "the clients' CA", "token");
//! let inputs = Inputs {
//!     profile: &profile,
//!     payload: &payload,
//!     variables: &variables,
//!     secrets: &secrets,
//!     keep: &[],
//! };
//! let host = render(&inputs, Section::Host, &version)?;
//! assert!(host.document.to_bytes().unwrap().len() > 1_000);
//! // A `plan` or an `apply` answers in `missing_files` the destinations of payload files that the host lacks. Each is
//! // uploaded as `STAGING\<sha256>` (or gzip-compressed as `<sha256>.gz`), and the call repeated.
//! let kubelet = host.payload.iter().find(|file| file.name == "kubelet.exe").unwrap();
//! assert!(kubelet.destination.ends_with(r"\kubelet.exe"));
//!
//! // Once the Node exists: the rest.
//! let values = Values { node_name: "win-1".into(), ..values };
//! let variables = values.variables();
//! let node = render(&Inputs { variables: &variables, ..inputs }, Section::Node, &version)?;
//! assert!(node.document.items.iter().any(|item| item.id == "service:kube-proxy"));
//! # Ok::<(), dormer_profile::problem::Problems>(())
//! ```

mod files;
mod items;
mod services;
mod text;

use crate::{
    document::{DOCUMENT_SCHEMA, Document, Section},
    payload::Manifest,
    problem::{Problem, Problems},
    profile::{Profile, SectionSpec},
    variables::{Secrets, Variables},
};
use items::Items;
use text::Values;

/// A payload manifest for examples and tests.
pub const EXAMPLE_PAYLOAD: &str = include_str!("builtin/example_payload.yaml");

/// Everything that a rendering is made from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The layered profile.
    pub profile: &'a Profile,
    /// The payload.
    pub payload: &'a Manifest,
    /// The machine's and the cluster's values; see [`crate::variables::KNOWN`]. `PAYLOAD` and `PAYLOAD_DIR` are set
    /// by the rendering itself.
    pub variables: &'a Variables,
    /// Secrets and rotating material.
    pub secrets: &'a Secrets,
    /// Folders of earlier payloads that a sweep leaves, beside this one's.
    pub keep: &'a [String],
}

/// A file of the payload, and where it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Its name in the payload's folder.
    pub name: String,
    /// Where it goes on the host: what an answer's `missing_files` says.
    pub destination: String,
    /// SHA-256 of its content: also its name in the staging folder on the host.
    pub sha256: String,
    /// Its size in bytes, uncompressed.
    pub size: u64,
}

/// One section for one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// What the host should be. It may hold secrets: it goes to the host, and nowhere else.
    pub document: Document,
    /// Files of the payload that it names.
    pub payload: Vec<Staged>,
}

impl Rendered {
    /// The payload file whose destination on the host is `path`.
    #[must_use]
    pub fn staged(&self, path: &str) -> Option<&Staged> {
        self.payload
            .iter()
            .find(|file| file.destination.eq_ignore_ascii_case(path))
    }

    /// SHA-256 of what was rendered. Secrets are in it by their digest only, since inline content is.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut plain = self.document.clone();
        plain.items.iter_mut().for_each(items::blank);
        crate::sha256_hex(&plain.to_bytes().unwrap_or_default())
    }
}

/// Renders one section. `version` is what [`crate::version::version`] says.
///
/// # Errors
/// Everything that is wrong, each with its place: unknown variables, missing values, files that the payload lacks,
/// services that depend on one another in a circle.
pub fn render(inputs: &Inputs<'_>, section: Section, version: &str) -> Result<Rendered, Problems> {
    let spec = match section {
        Section::Host => &inputs.profile.host,
        Section::Node => &inputs.profile.node,
    };
    let values = Values::new(inputs, section);
    let mut items = Items::new(values, inputs.payload);
    fill(&mut items, spec);
    if section == Section::Node {
        items.sweep(inputs);
    }
    let (found, payload, mut problems) = items.done();
    if found.is_empty() && spec != &SectionSpec::default() {
        problems.push(Problem::new(section.as_str(), "nothing of it applies here"));
    }
    Problems::check(problems).map_err(|e| e.below(section.as_str()))?;
    let document = Document {
        schema: DOCUMENT_SCHEMA,
        section,
        version: version.to_owned(),
        items: found,
    };
    Ok(Rendered { document, payload })
}

/// The order is the order of work on the host: what others need comes first.
fn fill(items: &mut Items<'_>, spec: &SectionSpec) {
    items.directories(spec);
    items.features(spec);
    items.hostname(spec);
    items.environment(spec);
    items.certificates(spec);
    items.firewall(spec);
    items.defender(spec);
    items.payload_files(spec);
    items.files(spec);
    items.mirrors(spec);
    items.services(spec, false);
    items.network(spec);
    // A new HNS network can make Windows forget a route (scenario 33).
    items.routes(spec);
    items.services(spec, true);
    items.evidence(spec);
    items.lingering(spec);
}
