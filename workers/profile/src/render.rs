//! Rendering: a profile, a payload and one machine's values become the converge document of one section.
//!
//! ```
//! use dormer_profile::{
//!     builtin,
//!     document::Section,
//!     payload::Manifest,
//!     render::{EXAMPLE_PAYLOAD, Inputs, render},
//!     values::{Values, join_secrets},
//!     version::version,
//! };
//! // Once per pool and Windows build: what a node carries.
//! let profile = builtin::openshift();
//! let payload = Manifest::parse(EXAMPLE_PAYLOAD)?;
//! let version = version(&profile, &payload);
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
mod registry;
mod services;
pub(crate) mod text;

use crate::{
    document::{DOCUMENT_SCHEMA, Document, Section},
    payload::Manifest,
    problem::{Problem, Problems},
    profile::{CommandWord, Profile, SectionSpec},
    variables::{Secrets, Variables},
};
use items::Items;
use text::Values;

/// A payload manifest for examples and tests.
pub const EXAMPLE_PAYLOAD: &str = include_str!("builtin/example_payload.yaml");

/// Inputs of a rendering.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The layered profile.
    pub profile: &'a Profile,
    pub payload: &'a Manifest,
    /// The machine's and the cluster's values; see [`crate::variables::KNOWN`]. `PAYLOAD` and `PAYLOAD_DIR` are set
    /// by the rendering itself.
    pub variables: &'a Variables,
    /// Secrets and rotating material.
    pub secrets: &'a Secrets,
    /// Folders of earlier payloads that a sweep keeps, beside this one's.
    pub keep: &'a [String],
}

/// File of the payload with its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Its name in the payload's folder.
    pub name: String,
    /// Destination on the host, as in an answer's `missing_files`.
    pub destination: String,
    /// SHA-256 of its content: also its name in the staging folder on the host.
    pub sha256: String,
    /// Its size in bytes, uncompressed.
    pub size: u64,
}

/// Rendered section of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Desired state of the host. It may contain secrets, so it goes only to the host.
    pub document: Document,
    /// Files of the payload that it uses.
    pub payload: Vec<Staged>,
}

impl Rendered {
    /// Payload file with the destination `path` on the host.
    #[must_use]
    pub fn staged(&self, path: &str) -> Option<&Staged> {
        self.payload
            .iter()
            .find(|file| file.destination.eq_ignore_ascii_case(path))
    }

    /// SHA-256 of the rendering. It contains only the digests of secrets, because inline content is replaced by its
    /// digest.
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
/// All problems, each with its place: unknown variables, missing values, files that the payload lacks, circular
/// dependencies of services.
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
    let kept = std::mem::take(&mut items.kept);
    let (found, payload, mut problems) = items.done();
    if found.is_empty() && spec != &SectionSpec::default() {
        problems.push(Problem::new(section.as_str(), "nothing of it applies here"));
    }
    problems.extend(crate::settings::check(&found, &kept, inputs.payload));
    Problems::check(problems).map_err(|e| e.below(section.as_str()))?;
    let document = Document {
        schema: DOCUMENT_SCHEMA,
        section,
        version: version.to_owned(),
        items: found,
        kept,
    };
    Ok(Rendered { document, payload })
}

/// The command lines of a section's services, word by word, as far as they can be filled in.
pub(crate) fn commands(
    inputs: &Inputs<'_>,
    section: Section,
    spec: &SectionSpec,
) -> Vec<Vec<String>> {
    let values = Values::new(inputs, section);
    let services = spec.services.values();
    services
        .map(|service| {
            let words = service.command.iter().flat_map(|word| match word {
                CommandWord::Always(word) => std::slice::from_ref(word),
                CommandWord::Maybe(maybe) if values.holds(&maybe.when) => maybe.words.as_slice(),
                CommandWord::Maybe(_) => &[],
            });
            words.filter_map(|word| values.fill(word).ok()).collect()
        })
        .collect()
}

/// Adds the items in the order of work on the host: dependencies come first.
fn fill(items: &mut Items<'_>, spec: &SectionSpec) {
    items.disabled_services(spec);
    items.directories(spec);
    items.features(spec);
    items.hostname(spec);
    items.registry(spec);
    items.dynamic_ports(spec);
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
    items.newest_files(spec);
    items.lingering(spec);
}
