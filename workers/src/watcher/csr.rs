//! Fields of a CertificateSigningRequest that the watcher reads: its signer, whether it is pending, and its node.

use super::objects::{UnreadableObject, resource, uid};
use crate::kubernetes::csr::{FirstAsker, first_asker, may_ask};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use dormer_proto::{
    id::Timestamp,
    machine::{CLIENT_SIGNER, CsrFact, SERVING_SIGNER, Validity},
};
use kube::api::DynamicObject;
use serde::Deserialize;
use x509_cert::{
    Certificate,
    attr::AttributeTypeAndValue,
    der::{
        DecodePem, Tagged,
        asn1::{ObjectIdentifier, PrintableStringRef, Utf8StringRef},
    },
    request::CertReq,
};

/// Longest PKCS#10 request that is looked into, in bytes of base64.
pub(super) const REQUEST_BYTES_MAX: usize = 64 << 10;
/// The signers whose requests are a machine's business (docs/field-notes.md, Certificate requests of kubelets).
pub(super) const SIGNERS: [&str; 2] = [CLIENT_SIGNER, SERVING_SIGNER];

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const NODE_PREFIX: &str = "system:node:";

/// Stored part of a pending CSR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObservedCsr {
    pub(super) uid: String,
    pub(super) fact: CsrFact,
    /// Name after `system:node:` in its subject. It is used only for routing: the worker checks the user.
    pub(super) node: Option<String>,
    /// User that requests in a node's name and may never have such a certificate. The request is routed to no machine.
    pub(super) unknown_requester: Option<UnknownRequester>,
    /// User of a pending request for a node's first certificate. A host may ask in another node's name than its machine's.
    pub(super) first: Option<FirstAsker>,
    pub(super) resource: u64,
}

/// User that requests a certificate reserved for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnknownRequester {
    /// The node named in the request.
    pub(super) node: String,
    /// Name of the user.
    pub(super) user: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    signer_name: String,
    request: String,
    username: String,
    groups: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Option<Vec<Condition>>,
    certificate: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CsrBody {
    spec: Spec,
    status: Option<Status>,
}

/// Reads a CSR; `None` when its signer is none of a kubelet's.
pub(super) fn csr(object: DynamicObject) -> Result<Option<ObservedCsr>, UnreadableObject> {
    let DynamicObject {
        metadata: meta,
        data,
        ..
    } = object;
    let odd = |field, problem| UnreadableObject { field, problem };
    let body: CsrBody =
        serde_json::from_value(data).map_err(|error| odd("spec or status", error.to_string()))?;
    if !SIGNERS.contains(&body.spec.signer_name.as_str()) {
        return Ok(None);
    }
    let status = body.status.unwrap_or_default();
    let issued = status.certificate.as_deref().and_then(issued);
    let decided = ["Approved", "Denied", "Failed"];
    let conditions = status.conditions.unwrap_or_default();
    let pending = status
        .certificate
        .is_none_or(|certificate| certificate.is_empty())
        && !conditions
            .iter()
            .any(|c| decided.contains(&c.r#type.as_str()));
    // A decided request matters only by its UID, and by the certificate that was issued for it. A request of a user that
    // may never have such a certificate belongs to no machine.
    let named = match pending {
        true => node_of(&body.spec.request)?,
        false => None,
    };
    let groups = body.spec.groups.unwrap_or_default();
    let user = body.spec.username;
    let (node, unknown_requester) = match named {
        None => (issued.as_ref().map(|(node, _)| node.clone()), None),
        Some(node) if may_ask(&body.spec.signer_name, &user, &groups, &node) => (Some(node), None),
        Some(node) => {
            let user = user.clone();
            (None, Some(UnknownRequester { node, user }))
        }
    };
    let first = (pending && node.is_some() && body.spec.signer_name == CLIENT_SIGNER)
        .then(|| first_asker(&user, &groups))
        .flatten();
    let name = meta.name.clone().unwrap_or_default();
    let fact = CsrFact {
        name,
        signer: body.spec.signer_name,
        pending,
        issued: issued.map(|(_, validity)| validity),
    };
    Ok(Some(ObservedCsr {
        uid: uid(&meta)?,
        fact,
        node,
        unknown_requester,
        first,
        resource: resource(&meta)?,
    }))
}

/// The node that the subject of a request names: exactly one common name, `system:node:<name>`.
fn node_of(request: &str) -> Result<Option<String>, UnreadableObject> {
    let odd = |problem: &str| UnreadableObject {
        field: "spec.request",
        problem: problem.to_owned(),
    };
    if request.len() > REQUEST_BYTES_MAX {
        return Err(odd("is longer than 64 KiB"));
    }
    let pem = STANDARD.decode(request).map_err(|_| odd("is not base64"))?;
    let parsed = CertReq::from_pem(pem).map_err(|_| odd("is no PKCS#10 request in PEM"))?;
    node_named(parsed.info.subject.iter()).map_err(|problem| odd(&problem))
}

/// The node of the certificate that was issued, and when that is valid; `None`: it cannot be read, or is no node's.
fn issued(certificate: &str) -> Option<(String, Validity)> {
    if certificate.len() > REQUEST_BYTES_MAX {
        return None;
    }
    let pem = STANDARD.decode(certificate).ok()?;
    let chain = Certificate::load_pem_chain(&pem).ok()?;
    let body = chain.first()?.tbs_certificate();
    let node = node_named(body.subject().iter()).ok()??;
    let time = |time: &x509_cert::time::Time| {
        let ms = time.to_unix_duration().as_millis();
        u64::try_from(ms).map(Timestamp).ok()
    };
    let validity = body.validity();
    let from = time(&validity.not_before)?;
    let until = time(&validity.not_after)?;
    Some((node, Validity { from, until }))
}

/// The node that a subject names: exactly one common name, `system:node:<name>`.
///
/// # Errors
/// The common name is of another type than text.
fn node_named<'a>(
    subject: impl Iterator<Item = &'a AttributeTypeAndValue>,
) -> Result<Option<String>, String> {
    let mut names = subject.filter(|attribute| attribute.oid == COMMON_NAME);
    let (Some(only), None) = (names.next(), names.next()) else {
        return Ok(None);
    };
    let value = &only.value;
    let utf8 = value
        .decode_as::<Utf8StringRef<'_>>()
        .map(|text| text.as_str().to_owned());
    let text = utf8.or_else(|_| {
        value
            .decode_as::<PrintableStringRef<'_>>()
            .map(|text| text.as_str().to_owned())
    });
    let text = text.map_err(|_| format!("has a common name of type {}", value.tag()))?;
    Ok(text
        .strip_prefix(NODE_PREFIX)
        .filter(|node| !node.is_empty())
        .map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(names: &[&str]) -> String {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in names {
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, *name);
        }
        let pem = params
            .serialize_request(&key)
            .expect("a request")
            .pem()
            .expect("PEM");
        STANDARD.encode(pem)
    }

    fn observed(
        signer: &str,
        request: &str,
        status: serde_json::Value,
    ) -> Result<Option<ObservedCsr>, UnreadableObject> {
        let value = json!({
            "metadata": {"name": "csr-1", "uid": "c-1", "resourceVersion": "4"},
            "spec": {"signerName": signer, "request": request, "username": "system:bootstrap:abcdef",
                "groups": ["system:bootstrappers"]}, "status": status});
        csr(serde_json::from_value(value).expect("an object"))
    }

    #[test]
    fn a_pending_request_names_its_node() {
        let request = request(&["system:node:win-1"]);
        let observed_one = observed(SIGNERS[0], &request, json!({}))
            .expect("readable")
            .expect("a kubelet's");
        assert_eq!(
            (observed_one.node.as_deref(), observed_one.fact.pending),
            (Some("win-1"), true)
        );
        assert_eq!(observed_one.first, Some(FirstAsker::Shared));
        let status = json!({"conditions": [{"type": "Approved"}]});
        let decided = observed(SIGNERS[0], &request, status)
            .expect("readable")
            .expect("a kubelet's");
        assert_eq!((decided.node, decided.fact.pending), (None, false));
        assert_eq!(
            observed("kubernetes.io/legacy-unknown", &request, json!({})),
            Ok(None)
        );
    }

    /// Also a request that the watcher never saw undecided: it was away, or another approver was faster.
    #[test]
    fn an_issued_certificate_names_its_node_and_its_end() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        let common = rcgen::DnType::CommonName;
        params.distinguished_name.push(common, "system:node:win-1");
        params.not_before = rcgen::date_time_ymd(2026, 11, 1);
        params.not_after = rcgen::date_time_ymd(2026, 12, 1);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let status =
            json!({"conditions": [{"type": "Approved"}], "certificate": STANDARD.encode(&pem)});
        let request = request(&["system:node:win-1"]);
        let found = observed(SIGNERS[1], &request, status).expect("readable");
        let found = found.expect("a kubelet's");
        let validity = Validity {
            from: Timestamp(1_793_491_200_000),
            until: Timestamp(1_796_083_200_000),
        };
        assert_eq!(found.node.as_deref(), Some("win-1"));
        assert_eq!(
            (found.fact.pending, found.fact.issued),
            (false, Some(validity))
        );
        for unread in ["", "no base64!", &STANDARD.encode("no PEM")] {
            let status = json!({"conditions": [{"type": "Approved"}], "certificate": unread});
            let found = observed(SIGNERS[1], &request, status).expect("readable");
            let found = found.expect("a kubelet's");
            assert_eq!((found.node, found.fact.issued), (None, None), "{unread}");
        }
    }

    #[test]
    fn who_may_never_have_it_names_no_node() {
        const ACCOUNT: &str =
            "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
        const ACCOUNTS: &str = "system:serviceaccounts:openshift-machine-config-operator";
        let [first, serving] = SIGNERS;
        let table = [
            (first, ACCOUNT, ACCOUNTS, true),
            (first, ACCOUNT, "system:authenticated", false),
            (
                first,
                "system:bootstrap:abcdef",
                "system:bootstrappers",
                true,
            ),
            (first, "system:bootstrap:abcdef", "system:nodes", false),
            (first, "system:node:win-1", "system:nodes", true),
            (serving, "system:node:win-1", "system:nodes", true),
            (serving, "system:node:win-1", "system:authenticated", false),
            (
                serving,
                "system:bootstrap:abcdef",
                "system:bootstrappers",
                false,
            ),
            (serving, "system:node:win-10", "system:nodes", false),
            (first, "mallory", "system:masters", false),
        ];
        let request = request(&["system:node:win-1"]);
        for (signer, user, group, so) in table {
            let value = json!({
                "metadata": {"name": "csr-1", "uid": "c-1", "resourceVersion": "4"},
                "spec": {"signerName": signer, "request": request, "username": user,
                    "groups": [group]}});
            let observed = csr(serde_json::from_value(value).expect("an object"));
            let observed = observed.expect("readable").expect("a kubelet's");
            assert!(observed.fact.pending);
            assert_eq!(observed.node.is_some(), so, "{signer} {user} {group}");
            let unknown_requester = observed.unknown_requester.map(|it| (it.node, it.user));
            let told = (!so).then(|| ("win-1".to_owned(), user.to_owned()));
            assert_eq!(unknown_requester, told, "{signer} {user} {group}");
        }
    }

    #[test]
    fn other_subjects_name_no_node() {
        for name in [
            "win-1",
            "system:node:",
            "xsystem:node:win-1",
            "system:NODE:win-1",
        ] {
            let observed = observed(SIGNERS[0], &request(&[name]), json!({})).expect("readable");
            assert_eq!(observed.expect("a kubelet's").node, None, "{name}");
        }
    }

    #[test]
    fn what_is_no_request_is_odd() {
        for request in ["", "%", "aGVsbG8=", &"A".repeat(REQUEST_BYTES_MAX + 4)] {
            let odd = observed(SIGNERS[0], request, json!({})).expect_err("odd");
            assert_eq!(odd.field, "spec.request");
        }
    }
}
