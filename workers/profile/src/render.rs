//! Rendering: a profile, a payload and one machine's values become the converge document of one section.
//!
//! ```
//! use dormer_profile::{builtin, document::Section, payload::Manifest, render::{Inputs, render}, variables::{Secrets, Variables}};
//! let profile = builtin::openshift();
//! let payload = Manifest::parse(dormer_profile::render::EXAMPLE_PAYLOAD).unwrap();
//! let mut variables = Variables::default();
//! for (name, value) in [
//!     ("API_SERVER_INTERNAL", "https://api-int.example:6443"), ("CLUSTER_DNS", "172.30.0.10"),
//!     ("CLUSTER_DOMAIN", "cluster.local"), ("NODE_IP", "10.0.0.9"), ("PLATFORM", "aws"),
//!     ("SERVICE_CIDR", "172.30.0.0/16"), ("WINDOWS_BUILD", "10.0.20348"),
//! ] {
//!     variables.set(name, value);
//! }
//! let mut secrets = Secrets::default();
//! for name in ["api-ca", "client-ca", "bootstrap-kubeconfig"] {
//!     secrets.set(name, "…");
//! }
//! let inputs = Inputs { profile: &profile, payload: &payload, variables: &variables, secrets: &secrets, keep: &[] };
//! let host = render(&inputs, Section::Host, "11.0.0-0123456789ab").unwrap();
//! // What `apply` may ask for by `missing_files`: payload files to be staged under their SHA-256.
//! assert!(host.payload.iter().any(|file| file.name == "kubelet.exe"));
//! assert!(host.document.to_bytes().unwrap().len() > 1_000);
//! ```

mod items;
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
    /// SHA-256 of its content: also its name in the staging folder on the host.
    pub sha256: String,
    /// Its size in bytes.
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
    let document =
        Document { schema: DOCUMENT_SCHEMA, section, version: version.to_owned(), items: found };
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
    items.routes(spec);
    items.services(spec, false);
    items.network(spec);
    items.services(spec, true);
    items.evidence(spec);
    items.lingering(spec);
}
