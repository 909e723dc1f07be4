//! A machine of any API (`workers/src/source.rs`), converted into the fact for its run.

use super::{
    ADDRESSES_MAX, TEXT_BYTES_MAX, UnreadableObject, annotation, body,
    condition::{amiss, without_ids},
    label, resource, short,
    template::{SpecFields, not_up_to_date},
    time, token, uid,
};
use crate::{kubernetes::keys, source};
use dormer_proto::{
    machine::{ConditionFact, MachineApi, MachineFact, MachineRef, Owner, same_provider_id},
    message::cut,
    other_operator::OtherOperator,
};
use kube::api::{DynamicObject, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, net::Ipv4Addr};

/// Most labels of a machine that people choose by.
const LABELS_MAX: usize = 8;
/// Ends of the domains whose labels belong to Kubernetes, OpenShift and Cluster API.
const SYSTEM_DOMAINS: [&str; 4] = ["kubernetes.io", "k8s.io", "x-k8s.io", "openshift.io"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::watcher) struct ObservedMachine {
    pub(in crate::watcher) fact: MachineFact,
    /// Whether its label says Windows. A machine that lost the label is left alone.
    pub(in crate::watcher) windows: bool,
    /// Its labels: a MachineSet keeps only the Machines that its selector matches.
    pub(in crate::watcher) labels: BTreeMap<String, String>,
    /// Fields that the template of its MachineSet has, too.
    pub(in crate::watcher) fields: SpecFields,
    /// The name that its Node will have, as the probe wrote it.
    pub(in crate::watcher) expected: Option<String>,
    /// UID of the Node that `status.nodeRef` names.
    pub(in crate::watcher) node_uid: Option<String>,
    /// The authoritative API, if it is not this one (docs/field-notes.md, Machines of OpenShift).
    pub(in crate::watcher) elsewhere: Option<String>,
    /// Whether it names its authoritative API: another API may then show the same machine under the same name.
    pub(in crate::watcher) synced: bool,
    /// Whether the Machine API shows the same machine and is authoritative, so that this one does not count.
    pub(in crate::watcher) twin: bool,
    pub(in crate::watcher) resource: u64,
}

impl ObservedMachine {
    /// The fact for its run. A machine that does not count is marked as left alone.
    pub(in crate::watcher) fn published(&self) -> MachineFact {
        let mut fact = self.fact.clone();
        if self.twin {
            fact.ignored = true;
            fact.conditions.push(ConditionFact {
                kind: "AuthoritativeAPI".to_owned(),
                status: "False".to_owned(),
                reason: "MachineAPI".to_owned(),
                message: "the Machine API shows the same machine, and speaks for it".to_owned(),
            });
        }
        fact
    }

    /// Whether this machine of the Machine API is the same as `other` of Cluster API and is authoritative: by the
    /// provider id, or by the name if the two are synchronised (docs/kinds.md).
    pub(in crate::watcher) fn stands_for(&self, other: &Self) -> bool {
        let apis = (self.fact.machine.api, other.fact.machine.api.is_cluster());
        let theirs = self.elsewhere.as_deref() == Some("ClusterAPI");
        if apis != (MachineApi::OpenShift, true) || theirs {
            return false;
        }
        match (&self.fact.provider_id, &other.fact.provider_id) {
            (Some(one), Some(two)) => same_provider_id(one, two),
            _ => self.synced && self.fact.machine.name == other.fact.machine.name,
        }
    }

    /// Whether its API is authoritative: of two objects for the same machine, exactly one counts.
    pub(in crate::watcher) fn counts(&self) -> bool {
        self.elsewhere.is_none() && !self.twin
    }

    /// Whether a run may begin for it.
    pub(in crate::watcher) fn may_start(&self) -> bool {
        self.windows && !self.fact.ignored && self.counts()
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MachineAddress {
    r#type: String,
    address: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeRefBody {
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MachineSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    /// A WindowsHost's.
    user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MachineStatus {
    phase: Option<String>,
    addresses: Option<Vec<MachineAddress>>,
    node_ref: Option<NodeRefBody>,
    /// Cluster API's v1beta1 calls it `failureReason`.
    #[serde(alias = "failureReason")]
    error_reason: Option<String>,
    #[serde(alias = "failureMessage")]
    error_message: Option<String>,
    conditions: Option<Value>,
    provider_status: Option<Value>,
    #[serde(rename = "authoritativeAPI")]
    authoritative_api: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MachineBody {
    spec: Option<MachineSpec>,
    status: Option<MachineStatus>,
}

/// Reads a machine of this API.
pub(in crate::watcher) fn machine(
    api: MachineApi,
    object: DynamicObject,
) -> Result<ObservedMachine, UnreadableObject> {
    let DynamicObject {
        metadata: meta,
        data,
        ..
    } = object;
    let platform = platform(api, &data["spec"]);
    let zone = source::zone(api, &meta, &data)
        .filter(|zone| zone.len() <= TEXT_BYTES_MAX)
        .map(str::to_owned);
    let fields = SpecFields::of(api, &data["spec"]);
    let chosen_by = chosen_by(&meta, &data["spec"]["metadata"]["labels"]);
    let template = not_up_to_date(api, &data["status"]);
    let earlier = earlier_failure(&data["status"]);
    let body: MachineBody = body(data)?;
    let spec = body.spec.unwrap_or_default();
    let status = body.status.unwrap_or_default();
    let node = status.node_ref.unwrap_or_default();
    let listed = status.addresses.unwrap_or_default();
    let Addresses {
        addresses,
        names,
        reached_by,
    } = addresses(listed)?;
    let speaks = status.authoritative_api.filter(|api| !api.is_empty());
    let synced = speaks.is_some();
    let elsewhere = speaks.filter(|api| api.as_str() != "MachineAPI");
    let elsewhere = short("status.authoritativeAPI", elsewhere)?;
    let ignored = label(&meta, keys::IGNORE) == Some("true")
        || annotation(&meta, keys::IGNORE).is_some_and(|value| value == "true");
    let windows = source::is_windows(api, &meta);
    let drain_excluded_by = source::drain_excluded_by(&meta);
    let mut conditions = amiss(status.conditions.as_ref(), status.provider_status.as_ref());
    if !ignored {
        conditions.extend(ignored_in_other_words(&meta));
    }
    let fact = MachineFact {
        machine: MachineRef {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: uid(&meta)?,
            api,
        },
        created: time(meta.creation_timestamp.as_ref()).unwrap_or_default(),
        phase: short("status.phase", status.phase)?,
        provider_id: short("spec.providerID", spec.provider_id)?,
        addresses,
        names,
        reached_by,
        node: short("status.nodeRef.name", node.name)?,
        // Set by the writer of messages, which knows the Nodes.
        node_absent: false,
        deleting: meta.deletion_timestamp.is_some(),
        deleted: time(meta.deletion_timestamp.as_ref()),
        owner: owner(&meta),
        error: error(
            status.error_reason.or(earlier.0),
            status.error_message.or(earlier.1),
        ),
        conditions,
        ignored: ignored || elsewhere.is_some() || !windows,
        exclude_drain: !drain_excluded_by.is_empty(),
        drain_excluded_by,
        platform,
        zone,
        labels: chosen_by,
        user: short("spec.user", spec.user.filter(|_| api == MachineApi::Host))?,
        // The writer of messages adds the fields that differ from its MachineSet.
        template,
        token: token(&meta),
        // Not the object's: the writer of messages adds them.
        neighbour: OtherOperator::default(),
        store: None,
    };
    Ok(ObservedMachine {
        fact,
        windows,
        labels: meta.labels.clone().unwrap_or_default(),
        fields,
        expected: short("metadata.annotations", annotation(&meta, keys::NODE_NAME))?,
        node_uid: short("status.nodeRef.uid", node.uid)?,
        elsewhere,
        synced,
        twin: false,
        resource: resource(&meta)?,
    })
}

/// Labels by which people choose machines: those of its Node's template, and its own, which win.
fn chosen_by(meta: &ObjectMeta, template: &Value) -> BTreeMap<String, String> {
    let is_system = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let is_of = |it: &str| {
            let below = domain.strip_suffix(it);
            below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        SYSTEM_DOMAINS.iter().any(|it| is_of(it))
    };
    let template = template.as_object().into_iter().flatten();
    let template =
        template.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let mut all: BTreeMap<String, String> = template.collect();
    all.extend(meta.labels.clone().unwrap_or_default());
    let chosen = all.into_iter().filter(|(key, value)| {
        !is_system(key) && key.len() <= TEXT_BYTES_MAX && value.len() <= TEXT_BYTES_MAX
    });
    chosen.take(LABELS_MAX).collect()
}

/// A label value such as `True` instead of `true`, which neither WMCO nor dormer accepts.
fn ignored_in_other_words(meta: &ObjectMeta) -> Option<ConditionFact> {
    let annotated = annotation(meta, keys::IGNORE);
    let written = [label(meta, keys::IGNORE), annotated.as_deref()];
    let mut written = written.into_iter().flatten();
    let value = written.find(|value| value.trim().eq_ignore_ascii_case("true"))?;
    Some(ConditionFact {
        kind: "HandsOff".to_owned(),
        status: "False".to_owned(),
        reason: "NotTrue".to_owned(),
        message: cut(format!(
            "{} is {value}, and only true, in these letters, is obeyed",
            keys::IGNORE
        )),
    })
}

fn owner(meta: &ObjectMeta) -> Option<Owner> {
    let owners = meta.owner_references.as_ref()?;
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let kind = owner.kind.clone();
    let name = owner.name.clone();
    let uid = owner.uid.clone();
    Some(Owner { kind, name, uid })
}

/// Reason and message of a failure in Cluster API's v1beta2, which keeps both where its fields of v1beta1 are (cluster-api
/// ae7ff047d, `api/core/v1beta2/machine_types.go`, `MachineV1Beta1DeprecatedStatus`).
fn earlier_failure(status: &Value) -> (Option<String>, Option<String>) {
    let of = |field: &str| {
        let text = status["deprecated"]["v1beta1"][field].as_str();
        text.map(str::to_owned)
    };
    (of("failureReason"), of("failureMessage"))
}

fn error(reason: Option<String>, message: Option<String>) -> Option<String> {
    let message = message.as_deref().map(without_ids);
    match (reason, message) {
        (Some(reason), Some(message)) => Some(cut(format!("{reason}: {message}"))),
        (reason, message) => reason.or(message).map(cut),
    }
}

/// A Machine's addresses, in the object's order.
struct Addresses {
    /// InternalIPs (IPv4).
    addresses: Vec<String>,
    names: Vec<String>,
    reached_by: Vec<String>,
}

fn addresses(listed: Vec<MachineAddress>) -> Result<Addresses, UnreadableObject> {
    let mut addresses = Vec::new();
    let mut names = Vec::new();
    let mut reached_by = Vec::new();
    for MachineAddress { r#type, address } in listed {
        let Some(address) = short("status.addresses", Some(address))? else {
            continue;
        };
        match r#type.as_str() {
            "InternalIP" if address.parse::<Ipv4Addr>().is_ok() => addresses.push(address),
            "Hostname" | "InternalDNS" => names.push(address),
            "InternalIP" | "ExternalIP" | "ExternalDNS" => reached_by.push(address),
            _ => {}
        }
    }
    addresses.truncate(ADDRESSES_MAX);
    names.truncate(ADDRESSES_MAX);
    reached_by.truncate(ADDRESSES_MAX);
    Ok(Addresses {
        addresses,
        names,
        reached_by,
    })
}

/// Its platform, unless that is no word.
fn platform(api: MachineApi, spec: &Value) -> String {
    let platform = source::platform(api, spec);
    if platform.len() > TEXT_BYTES_MAX {
        String::new()
    } else {
        platform.to_owned()
    }
}
