//! Names and addresses of a Machine that its platform assigns, from its status.

use crate::source;
use dormer_profile::platform;
use dormer_proto::machine::MachineApi;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;
use std::{collections::BTreeSet, net::IpAddr};

/// Longest Node name: GCP's own names may be longer, and are cut to their first label (docs/field-notes.md, Names and
/// builds).
pub(crate) const NODE_NAME_CHARS_MAX: usize = 63;

/// Normalised DNS name: lower case, without the final dot.
pub(crate) fn dns(name: &str) -> String {
    let name = name.to_lowercase();
    name.strip_suffix('.').unwrap_or(&name).to_owned()
}

/// Normalised name or address: the canonical spelling of an address, otherwise a DNS name.
pub(crate) fn comparable(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => dns(text),
    }
}

/// Names that the platform assigns to a Machine, normalised. On vSphere and Nutanix they include the Machine's own
/// name, because its host gets that name.
pub(crate) fn names(machine: &DynamicObject) -> BTreeSet<String> {
    let given = of_types(machine, &["Hostname", "InternalDNS", "ExternalDNS"]);
    let mut names: BTreeSet<String> = given.map(dns).collect();
    let platform = platform_of(machine);
    if platform == "gcp" {
        let long = names.iter().filter(|it| it.len() > NODE_NAME_CHARS_MAX);
        let cut: Vec<_> = long
            .filter_map(|name| name.split('.').next().map(str::to_owned))
            .collect();
        names.extend(cut);
    }
    if platform::names_the_host(&platform) {
        names.insert(machine.name_any().to_lowercase());
    }
    names
}

/// Names and addresses of all five types at which a Machine may be reached, normalised.
pub(crate) fn reached_by(machine: &DynamicObject) -> BTreeSet<String> {
    let types = [
        "InternalIP",
        "ExternalIP",
        "Hostname",
        "InternalDNS",
        "ExternalDNS",
    ];
    of_types(machine, &types).map(comparable).collect()
}

/// The platform's name as profiles write it: `aws` of `AWSMachineProviderConfig`.
fn platform_of(machine: &DynamicObject) -> String {
    let types = machine.types.as_ref();
    let api = types.map_or_else(MachineApi::default, |it| source::api_of(&it.api_version));
    source::platform(api, &machine.data["spec"]).to_lowercase()
}

fn of_types<'a>(machine: &'a DynamicObject, types: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let all = machine.data["status"]["addresses"].as_array();
    let all = all.into_iter().flatten();
    let fitting =
        all.filter(|one: &&Value| one["type"].as_str().is_some_and(|it| types.contains(&it)));
    fitting.filter_map(|one| one["address"].as_str().filter(|text| !text.is_empty()))
}
