//! Findings about the cluster's network: its type, the hybrid overlay, and the port of VXLAN.

use super::{Findings, platform_of};
use crate::preflight::survey::{ReadObject, Survey, name};
use dormer_support::{Refusal, platform};
use serde_json::Value;

/// Port of VXLAN where nothing else is set, and the only one of Windows Server 2019.
const VXLAN: u64 = 4_789;
const INSTALL_TIME: &str = "this is set when a cluster is installed and cannot be changed later: install a cluster with \
                            networkType OVNKubernetes and a hybridOverlayConfig";

pub(super) fn network(survey: &Survey, found: &mut Findings) {
    let platform = platform_of(survey);
    if let Some(refusal) = Refusal::of_platform(&platform, "", &[]) {
        found.error(
            "PlatformUnsupported",
            "Infrastructure cluster",
            refusal.to_string(),
            &refusal.mend(),
        );
    }
    let object = "Network cluster (config.openshift.io)";
    let Some(config) = survey.network.value() else {
        if survey.network == ReadObject::Absent {
            let todo = "without it dormer does not know the service network: restore it";
            found.error("NetworkAbsent", object, "there is none", todo);
        }
        return;
    };
    let of = |it: &Value, path: &str| it.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let kind = of(config, "/status/networkType").or_else(|| of(config, "/spec/networkType"));
    let kind = kind.unwrap_or_default();
    if let Some(plugin) = platform::plugin(&kind) {
        if let Some(why) = plugin.refused {
            found.error(
                "NetworkUnsupported",
                object,
                format!("the network is {kind}: {why}"),
                INSTALL_TIME,
            );
            return;
        }
    } else {
        let todo = "see docs/support.md, and the plugin's own pages about Windows nodes";
        found.warning(
            "NetworkUnknown",
            object,
            format!("dormer does not know the network {kind:?}"),
            todo,
        );
    }
    if config["spec"]["serviceNetwork"][0].as_str().is_none() {
        let todo = "name the services' network in spec.serviceNetwork";
        found.error(
            "ServiceNetworkAbsent",
            object,
            "it names no network of services",
            todo,
        );
    }
    if kind == "OVNKubernetes" {
        overlay(survey, config, &platform, found);
    }
}

fn overlay(survey: &Survey, config: &Value, platform: &str, found: &mut Findings) {
    let object = "Network cluster (operator.openshift.io)";
    let Some(operator) = survey.network_operator.value() else {
        if survey.network_operator == ReadObject::Absent {
            found.error("HybridOverlayAbsent", object, "there is none", INSTALL_TIME);
        }
        return;
    };
    let default = &operator["spec"]["defaultNetwork"];
    if let (Some(one), Some(other)) = (
        default["type"].as_str(),
        config["spec"]["networkType"].as_str(),
    ) && one != other
    {
        let message = format!("it says {one}, and the other Network object {other}");
        let todo = "wait for the network's migration to end: oc get clusteroperator network";
        found.error("NetworksDiffer", object, message, todo);
    }
    let hybrid = &default["ovnKubernetesConfig"]["hybridOverlayConfig"];
    let networks = hybrid["hybridClusterNetwork"].as_array();
    let Some(networks) = networks.filter(|it| !it.is_empty()) else {
        let message = "there is no hybridOverlayConfig with a hybridClusterNetwork, so pods on Windows nodes have no network";
        found.error("HybridOverlayAbsent", object, message, INSTALL_TIME);
        return;
    };
    let cidr = |it: &Value| it["cidr"].as_str().and_then(Cidr::parse);
    let of = |it: &Value| {
        it.as_array()
            .into_iter()
            .flatten()
            .filter_map(cidr)
            .collect::<Vec<_>>()
    };
    let services = config["spec"]["serviceNetwork"]
        .as_array()
        .into_iter()
        .flatten();
    let services = services.filter_map(|it| Cidr::parse(it.as_str()?));
    let others: Vec<Cidr> = of(&config["spec"]["clusterNetwork"])
        .into_iter()
        .chain(services)
        .collect();
    for network in networks.iter().filter_map(cidr) {
        if let Some(other) = others.iter().find(|it| it.overlaps(&network)) {
            let message = format!("the hybrid network {network} overlaps {other}");
            found.error("HybridOverlayOverlaps", object, message, INSTALL_TIME);
        }
    }
    let port = hybrid["hybridOverlayVXLANPort"].as_u64();
    if platform == "vsphere" && port.is_none_or(|port| port == VXLAN) {
        let message = format!(
            "the hybrid overlay uses VXLAN's port {VXLAN}, which vSphere's own network takes"
        );
        let todo = "set hybridOverlayVXLANPort to a free port, such as 9898, when the cluster is installed";
        found.error("VxlanPortTaken", object, message, todo);
    }
    let custom = port.filter(|port| *port != VXLAN);
    let old = survey.machine_sets.iter().find(|set| is_2019(set));
    if let (Some(port), Some(set)) = (custom, old) {
        let message = format!(
            "the hybrid overlay uses VXLAN's port {port}, and {} has images of Windows Server 2019, which knows {VXLAN} only",
            name(set)
        );
        let todo = "give the MachineSet an image of Windows Server 2022 or 2025";
        found.error("VxlanPort2019", object, message, todo);
    }
}

/// Whether a MachineSet's image is one of Windows Server 2019, by its name.
fn is_2019(set: &Value) -> bool {
    let value = &set["spec"]["template"]["spec"]["providerSpec"]["value"];
    let texts = [
        &value["image"]["sku"],
        &value["template"],
        &value["disks"][0]["image"],
    ];
    let labelled =
        set["spec"]["template"]["metadata"]["labels"]["machine.openshift.io/os-id"] == "Windows";
    labelled
        && texts
            .iter()
            .any(|it| it.as_str().is_some_and(|it| it.contains("2019")))
}

/// Network of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cidr {
    first: u32,
    bits: u32,
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: std::net::Ipv4Addr = address.parse().ok()?;
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32)?;
        let first = u32::from(address) & Self::mask(bits);
        Some(Self { first, bits })
    }

    fn mask(bits: u32) -> u32 {
        u32::MAX.checked_shl(32 - bits).unwrap_or(0)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let mask = Self::mask(self.bits.min(other.bits));
        self.first & mask == other.first & mask
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", std::net::Ipv4Addr::from(self.first), self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::Cidr;

    #[test]
    fn networks_overlap_where_one_has_the_others_first_address() {
        let cidr = |text| Cidr::parse(text).expect("a network");
        assert!(cidr("10.128.0.0/14").overlaps(&cidr("10.130.5.0/24")));
        assert!(!cidr("10.128.0.0/14").overlaps(&cidr("10.132.0.0/14")));
        assert!(cidr("0.0.0.0/0").overlaps(&cidr("192.0.2.1/32")));
        assert_eq!(Cidr::parse("10.0.0.0"), None);
    }
}
