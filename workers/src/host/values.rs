//! The values of one machine, as a rendering fills them in.

use super::{cluster::Bootstrap, platform};
use dormer_profile::{payload::Manifest, values::Values};
use dormer_proto::machine::{HostRef, Section};

/// Known values of a machine's Node.
#[derive(Debug, Clone, Default)]
pub struct NodeValues<'a> {
    /// The name that it has or will have.
    pub named: Option<String>,
    /// Its name, once it is there.
    pub node: Option<&'a str>,
    /// Subnet that hybrid-overlay assigned to the Node; `None` until it does.
    pub subnet: Option<String>,
}

/// The values of a machine in one section of its profile.
#[must_use]
pub fn values(
    bootstrap: &Bootstrap,
    host: &HostRef,
    section: Section,
    known: NodeValues<'_>,
    payload: &Manifest,
) -> Values {
    let mut values = Values {
        api_server: bootstrap.api_url.clone(),
        cluster_dns: bootstrap.cluster_dns.clone(),
        cluster_domain: bootstrap.cluster_domain.clone(),
        service_cidr: bootstrap.service_cidr.clone(),
        node_ip: host.address.clone(),
        platform: platform::platform_name(host),
        hostname: platform::hostname(host).unwrap_or_default(),
        cloud_provider: platform::cloud_provider(host).to_owned(),
        // The Windows build is part of the version already; profiles that name it get the payload's first.
        windows_build: payload.windows_builds.first().cloned().unwrap_or_default(),
        ..Values::default()
    };
    if platform::overrides(host) {
        values.hostname_override = known.named.unwrap_or_default();
    }
    if let (Section::Node, Some(node)) = (section, known.node) {
        node.clone_into(&mut values.node_name);
        values.subnet = known.subnet.unwrap_or_default();
    }
    values
}
