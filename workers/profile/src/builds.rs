//! Windows builds that cannot have what a profile and the cluster say.

use crate::{
    cluster_config::ClusterConfig,
    document::Section,
    payload::Manifest,
    profile::Profile,
    render::{self, Inputs},
    settings::{SERVER_2019, port_of_2019, vxlan_port},
    values,
    variables::Secrets,
};
use std::collections::BTreeMap;

/// Windows builds of a payload that cannot have what a profile and the cluster say, each with the reason. A payload may
/// be for several builds; the machine's own build decides (docs/field-notes.md, Ports of VXLAN and of clients).
#[must_use]
pub fn refused_builds(
    profile: &Profile,
    payload: &Manifest,
    cluster: &ClusterConfig,
) -> BTreeMap<String, String> {
    let mut values = values::Values::example("none");
    cluster.fill(&mut values);
    let inputs = Inputs {
        profile,
        payload,
        variables: &values.variables(),
        secrets: &Secrets::default(),
        keep: &[],
    };
    let port = [
        (Section::Host, &profile.host),
        (Section::Node, &profile.node),
    ]
    .into_iter()
    .find_map(|(section, spec)| {
        let commands = render::commands(&inputs, section, spec);
        commands
            .into_iter()
            .find_map(|words| vxlan_port(words.iter().map(String::as_str)))
    });
    let is_2019 = |build: &&String| *build == SERVER_2019;
    let builds = payload.windows_builds.iter().filter(is_2019);
    builds
        .filter_map(|build| Some((build.clone(), port_of_2019(port.as_ref()?))))
        .collect()
}
