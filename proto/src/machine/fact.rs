//! Facts about a machine: its Machine, its Node, its certificate requests, its pool's settings.

use super::refs::{MachineRef, TokenMark};
use crate::{
    defaults::is_false,
    id::{Incarnation, Timestamp},
    other_operator::OtherOperator,
    pool::PoolSettings,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Signer of a kubelet's certificate as a client.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of a kubelet's certificate as a server.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Whether two provider ids name the same computer. Azure and vSphere write one id in several cases: Azure's cloud
/// provider writes the resource group's name in lower case (kubernetes-sigs/cloud-provider-azure,
/// `ConvertResourceGroupNameToLower`), and vSphere's compares UUIDs in lower case (kubernetes/cloud-provider-vsphere,
/// `GetUUIDFromProviderID`). Everywhere else the case counts.
#[must_use]
pub fn same_provider_id(one: &str, other: &str) -> bool {
    let anycase = |id: &str| {
        let scheme = id.split_once("://").map_or("", |(scheme, _)| scheme);
        ["azure", "vsphere"]
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
    };
    if anycase(one) && anycase(other) {
        one.trim().eq_ignore_ascii_case(other.trim())
    } else {
        one == other
    }
}

/// A Machine's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// `MachineSet`.
    pub kind: String,
    /// Name of the owner in the Machine's namespace.
    pub name: String,
    pub uid: String,
}

/// Type of a Machine's condition about the certificate request that its host should make. The message begins with the
/// name of the request that is not approved.
pub const OWN_REQUEST: &str = "OwnCertificateRequest";
/// Reason of that condition: the machine's host asks in the name of another Node.
pub const OTHER_NAME: &str = "OtherName";
/// Reason of that condition: a host asks so, and the request does not show whether it is this machine's.
pub const OTHER_NAME_POSSIBLE: &str = "OtherNamePossible";

/// Unhealthy condition of an object, without its times: a new time alone is no news.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConditionFact {
    /// Its type.
    pub kind: String,
    /// `False`, `Unknown`, or `True` if that is the unhealthy value.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// A field in which a Machine differs from the template of its MachineSet. A MachineSet changes no Machine that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateDifference {
    /// Path of the field, such as `spec.providerSpec.value.ami.id`; or a difference as Cluster API words it.
    pub field: String,
    /// Value of the Machine, as JSON; `None`: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Value of the template, as JSON; `None`: it has none. A difference in words has neither value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// Facts about a Machine object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineFact {
    /// Namespace, name and UID.
    pub machine: MachineRef,
    /// When it was created.
    pub created: Timestamp,
    /// `status.phase`. Unknown phases cause no action.
    pub phase: Option<String>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// InternalIPs (IPv4), in the object's order.
    pub addresses: Vec<String>,
    /// Hostname and InternalDNS addresses.
    pub names: Vec<String>,
    /// Other addresses: ExternalIPs, InternalIPs of IPv6, ExternalDNS names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached_by: Vec<String>,
    /// `status.nodeRef.name`.
    pub node: Option<String>,
    /// Whether the cluster has no Node of that name, where `nodeRef` has no UID (Cluster API's v1beta2).
    #[serde(default, skip_serializing_if = "is_false")]
    pub node_absent: bool,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
    /// That deletionTimestamp: the API server's clock, in whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Timestamp>,
    /// Its controller.
    pub owner: Option<Owner>,
    /// `errorReason: errorMessage`.
    pub error: Option<String>,
    /// Its unhealthy conditions, and its provider's: a cloud's refusal is often only there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionFact>,
    /// Whether `windowsmachineconfig.openshift.io/ignore=true` is set: dormer must not touch the machine.
    pub ignored: bool,
    /// `exclude-node-draining` is set: `machine.openshift.io/` or `machine.cluster.x-k8s.io/`.
    pub exclude_drain: bool,
    /// The annotations that say so; empty in records of earlier builds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drain_excluded_by: Vec<String>,
    /// The platform of its providerSpec: `AWS`, `Azure`, …
    pub platform: String,
    /// The zone of its cloud, as its machine API calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Labels by which people choose machines: its own and those of its Node's template, without those of Kubernetes and
    /// OpenShift. At most eight.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// User for the login, if the object names one; else the platform's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Fields in which it differs from its MachineSet's template: it was made from an earlier template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub template: Vec<TemplateDifference>,
    /// dormer's fence annotation.
    pub token: Option<TokenMark>,
    /// Another operator that configures hosts, in the whole cluster: while it runs, nothing is done on this one.
    #[serde(default, skip_serializing_if = "OtherOperator::is_unread")]
    pub neighbour: OtherOperator,
    /// Incarnation of the store that the watcher writes to: another one than before was restored from a dump. `None`: a
    /// watcher of an earlier build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Incarnation>,
}

/// Facts about a Node object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFact {
    /// Name of the Node, which need not be the Machine's.
    pub name: String,
    pub uid: String,
    /// Condition Ready is True.
    pub ready: bool,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet_version: String,
    /// dormer's version annotation.
    pub version: Option<String>,
    /// WMCO's version annotation: read, but never taken for dormer's.
    pub wmco_version: Option<String>,
    /// dormer's fence annotation.
    pub token: Option<TokenMark>,
    /// Subnet of the hybrid overlay.
    pub subnet: Option<String>,
    /// Who cordoned it, while it is cordoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned_by: Option<CordonedBy>,
}

/// Who cordoned a Node, by the API server's managed fields. They name programs, not persons.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CordonedBy {
    /// The program, such as `kubectl-cordon`.
    pub program: String,
    /// When, by the API server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A pending CSR that names this machine's node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CsrFact {
    /// Name of the request, such as `csr-x7k2p`: the API server makes it.
    pub name: String,
    /// `spec.signerName`.
    pub signer: String,
    /// Whether it is undecided: neither approved, denied nor failed.
    pub pending: bool,
    /// Validity of the certificate, once it is issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Validity>,
}

/// When a certificate is valid, by its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// From then on.
    pub from: Timestamp,
    /// Until then.
    pub until: Timestamp,
}

impl Validity {
    /// Time from which 5 % of the validity is left. A kubelet renews between 70 % and 90 % (client-go,
    /// `util/certificate/certificate_manager.go`, `jitteryDuration`), so it is then late by at least 5 %.
    #[must_use]
    pub fn late_from(self) -> Timestamp {
        let Timestamp(until) = self.until;
        Timestamp(until - until.saturating_sub(self.from.0) / 20)
    }
}

/// Fact for a machine's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    Machine(MachineFact),
    Node(NodeFact),
    /// A CSR that names its node.
    Csr(CsrFact),
    /// Its pool's accepted settings.
    Pool(PoolSettings),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_is_compared_as_its_platform_writes_it() {
        let azure = "azure:///subscriptions/S-1/resourceGroups/My-RG/providers/Microsoft.Compute/virtualMachines/win-a";
        let same = [
            (azure, azure.to_lowercase()),
            (
                "vsphere://4237ABCD-71f9-43a3-a770-56803bcd7baa",
                "vsphere://4237abcd-71f9-43a3-a770-56803bcd7baa".to_owned(),
            ),
            ("aws:///eu-1a/i-0abc", "aws:///eu-1a/i-0abc".to_owned()),
        ];
        for (one, other) in same {
            assert!(same_provider_id(one, &other), "{one}");
        }
        let different = [
            ("aws:///eu-1a/i-0abc", "aws:///eu-1a/I-0ABC"),
            ("gce://p/zone/win-a", "gce://p/zone/WIN-A"),
            ("vsphere://4237abcd", "vsphere://4237abce"),
            ("azure:///a", "vsphere:///a"),
            ("win-a", "WIN-A"),
        ];
        for (one, other) in different {
            assert!(!same_provider_id(one, other), "{one}");
        }
    }
}
