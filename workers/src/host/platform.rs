//! Settings that follow from the platform: the computer's name, the Node's name, and the source of the Node's addresses
//! and provider id.

use super::cluster::MachineInCluster;
use crate::machine_names::{NODE_NAME_CHARS_MAX, dns};
use dormer_profile::platform;
use dormer_proto::machine::HostRef;

/// The name that this computer has to bear: on vSphere and Nutanix its Machine's, elsewhere the one it has.
pub(super) fn hostname(host: &HostRef) -> Option<String> {
    platform::names_the_host(&platform_name(host)).then(|| host.machine.name.to_lowercase())
}

/// Whether the kubelet gets `--hostname-override`, since the cloud's name for the Node is not the computer's name.
pub(super) fn overrides(host: &HostRef) -> bool {
    platform::overrides(&platform_name(host))
}

/// The name that the Node will have, unless it is the present computer name in lower case.
pub(super) fn node_name(host: &HostRef, in_cluster: &MachineInCluster) -> Option<String> {
    if !overrides(host) {
        return hostname(host);
    }
    let name = dns(in_cluster.names.first()?);
    if name.len() <= NODE_NAME_CHARS_MAX {
        return Some(name);
    }
    name.split('.').next().map(str::to_owned)
}

/// The kubelet's `--cloud-provider`: `external` where a cloud controller manager sets addresses and provider id.
pub(super) fn cloud_provider(host: &HostRef) -> &'static str {
    platform::cloud_provider(&platform_name(host))
}

/// The platform's name as profiles write it.
pub(super) fn platform_name(host: &HostRef) -> String {
    host.platform.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::machine::MachineRef;

    fn named(platform: &str, dns: &str) -> Option<String> {
        let machine = MachineRef {
            name: "Win-A".into(),
            ..MachineRef::default()
        };
        let host = HostRef {
            machine,
            platform: platform.into(),
            ..HostRef::default()
        };
        let names = (!dns.is_empty())
            .then(|| dns.to_owned())
            .into_iter()
            .collect();
        node_name(
            &host,
            &MachineInCluster {
                names,
                ..MachineInCluster::default()
            },
        )
    }

    #[test]
    fn each_platform_names_its_nodes() {
        let long = format!("win-a.{}.internal", "x".repeat(60));
        let table = [
            (
                "AWS",
                "IP-10-0-0-9.ec2.internal",
                Some("ip-10-0-0-9.ec2.internal"),
            ),
            ("AWS", "", None),
            (
                "GCP",
                "win-a.zone.c.project.internal",
                Some("win-a.zone.c.project.internal"),
            ),
            ("GCP", long.as_str(), Some("win-a")),
            ("VSphere", "other.example", Some("win-a")),
            ("Nutanix", "", Some("win-a")),
            ("Azure", "win-a.internal.cloudapp.net", None),
            ("None", "win-a.example", None),
        ];
        for (platform, dns, name) in table {
            assert_eq!(named(platform, dns).as_deref(), name, "{platform} {dns}");
        }
    }
}
