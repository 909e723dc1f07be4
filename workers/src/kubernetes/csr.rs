//! Approval of certificate requests: only if every field matches the expectation.

use super::{
    KubernetesExecutor, Tokens, account_token,
    api::{MANAGER, call, call_if_there},
    csr_owner::{self, ClusterState},
    token::{self, GROUP},
};
use crate::machine_names::{dns, reached_by};
use dormer_proto::{
    machine::{CLIENT_SIGNER, CsrExpectation, Outcome, SERVING_SIGNER},
    message::{Failure, cut},
};
use k8s_openapi::{
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use serde_json::json;
use std::{collections::BTreeSet, net::IpAddr};
use x509_cert::{
    der::{
        Decode, DecodePem,
        oid::{AssociatedOid, ObjectIdentifier},
    },
    ext::pkix::{SubjectAltName, name::GeneralName},
    name::Name,
    request::{CertReq, ExtensionReq},
};

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const NODES: &str = "system:nodes";
/// Requestor of a node's first certificate, with its group: OpenShift's account, or the holder of a bootstrap token (a
/// prefix of the user's name).
const BOOTSTRAPPER: (&str, &str) = (
    "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
    "system:serviceaccounts:openshift-machine-config-operator",
);
const BOOTSTRAP_TOKEN: (&str, &str) = ("system:bootstrap:", "system:bootstrappers");

/// Accepted requestor of a node's first certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asker {
    /// OpenShift's account, or the holder of any bootstrap token: one is for all machines.
    Shared,
    /// Only this user: the holder of the machine's own token.
    Own(String),
    /// Only the holder of a token that was made for the machine: dormer's account, with one of these ids.
    Account { home: String, ids: Vec<String> },
}

/// Who asks for a node's first certificate, as far as the request shows whose host that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FirstAsker {
    /// Holder of the bootstrap token that dormer made for one machine, by the user's name.
    Own(String),
    /// Holder of some token of dormer's account, by the user's name. Which one's, only the approver may read.
    Account(String),
    /// Holder of what all hosts share.
    Shared,
}

impl FirstAsker {
    /// Whether the host of the machine with this UID may be the one that asks, for the dormer in namespace `home`.
    pub(crate) fn may_be(&self, home: &str, uid: &str) -> bool {
        match self {
            Self::Own(user) => token::users(home, uid).any(|it| it == *user),
            Self::Account(user) => account_token::user(home).0 == *user,
            Self::Shared => true,
        }
    }
}

/// The user of a request for a first certificate; `None`: a node that renews its own.
pub(crate) fn first_asker(user: &str, groups: &[String]) -> Option<FirstAsker> {
    let groups: Vec<_> = groups.iter().map(String::as_str).collect();
    if user.starts_with(BOOTSTRAP_TOKEN.0) && groups.contains(&GROUP) {
        return Some(FirstAsker::Own(user.to_owned()));
    }
    if account_token::may_hold(user, &groups) {
        return Some(FirstAsker::Account(user.to_owned()));
    }
    let shared = may_ask_first(user, &groups, &[], &Asker::Shared);
    shared.is_ok().then_some(FirstAsker::Shared)
}

/// How much older than its Machine a first request may be: control-plane nodes' clocks differ a little, and OpenShift's
/// own approver allows as much (docs/field-notes.md, Certificate requests of kubelets).
const OLDER_MAX_MS: i64 = 10_000;

impl KubernetesExecutor {
    pub(super) async fn approve(
        &self,
        name: &str,
        expect: &CsrExpectation,
        uid: &str,
    ) -> Result<Outcome, Failure> {
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let what = format!("certificate request {name}");
        let Some(csr) = call_if_there("get", &what, api.get(name)).await? else {
            // Expired and deleted. It was not approved, and must not count as approved.
            return Ok(Outcome::CsrRefused {
                csr: name.to_owned(),
                why: "it is gone: the kubelet asks again".to_owned(),
                foreign: None,
            });
        };
        let made = decision(&csr);
        let mut foreign = None;
        let why = match made {
            // The answer of an earlier attempt was lost.
            Some("Approved") if is_ours(&csr) => None,
            // A Node that comes by another client's approval is this machine's only if dormer would have approved it.
            Some("Approved") | None => {
                let asker = self.asker(&csr, uid).await?;
                let state = self.cluster_state(expect).await?;
                let why = check(&csr, expect, &asker, &state).err();
                foreign = csr_owner::foreign_node(expect, &state)
                    .filter(|it| why.as_ref() == Some(&it.to_string()));
                why.map(|why| match made {
                    Some(_) => format!("{}{why}", dormer_proto::machine::APPROVED_BY_OTHERS),
                    None => why,
                })
            }
            Some(other) => Some(format!("somebody else marked it {other}")),
        };
        if let Some(why) = why {
            let note = format!("Refused for Node {}: {why}", expect.node_name);
            self.events
                .warn(csr.object_ref(&()), "CertificateRefused", "Approve", note)
                .await;
            return Ok(Outcome::CsrRefused {
                csr: name.to_owned(),
                why: cut(why),
                foreign,
            });
        }
        if made.is_some() {
            return Ok(Outcome::CsrApproved {
                csr: name.to_owned(),
            });
        }
        let condition = CertificateSigningRequestCondition {
            type_: "Approved".into(),
            status: "True".into(),
            reason: Some(OUR_APPROVAL.into()),
            message: Some(format!("matches the Machine of Node {}", expect.node_name)),
            last_update_time: Some(Time(k8s_openapi::jiff::Timestamp::now())),
            last_transition_time: None,
        };
        // With the resourceVersion that was checked: the request is immutable, but others may decide it meanwhile.
        let change = json!({
            "metadata": {"resourceVersion": csr.metadata.resource_version, "uid": csr.metadata.uid},
            "status": {"conditions": [condition]},
        });
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..PatchParams::default()
        };
        let change = Patch::Merge(&change);
        call("approve", &what, api.patch_approval(name, &params, &change)).await?;
        Ok(Outcome::CsrApproved {
            csr: name.to_owned(),
        })
    }

    /// User that may request the first certificate of the machine with this UID.
    async fn asker(&self, csr: &CertificateSigningRequest, uid: &str) -> Result<Asker, Failure> {
        // Only a node itself requests a serving certificate, never the holder of a token.
        if csr.spec.signer_name != CLIENT_SIGNER {
            return Ok(Asker::Shared);
        }
        match self.settings.tokens {
            Tokens::Shared => Ok(Asker::Shared),
            Tokens::Bootstrap => self.token_user(uid).await.map(Asker::Own),
            Tokens::Account => Ok(Asker::Account {
                home: self.settings.namespace.clone(),
                ids: self.credentials_of(uid).await?,
            }),
        }
    }
}

/// Whether a user may have such a certificate in the name of this node at all.
pub(crate) fn may_ask(signer: &str, user: &str, groups: &[String], node: &str) -> bool {
    let groups: Vec<_> = groups.iter().map(String::as_str).collect();
    let itself = user == format!("system:node:{node}") && groups.contains(&NODES);
    let first = may_ask_first(user, &groups, &[], &Asker::Shared).is_ok()
        || account_token::may_hold(user, &groups);
    itself || (signer == CLIENT_SIGNER && first)
}

/// Reason of an approval by dormer.
const OUR_APPROVAL: &str = "DormerApproved";

/// Whether dormer approved it.
fn is_ours(csr: &CertificateSigningRequest) -> bool {
    let conditions = csr.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Approved" && it.reason.as_deref() == Some(OUR_APPROVAL))
}

/// Decision that was made already.
fn decision(csr: &CertificateSigningRequest) -> Option<&'static str> {
    let conditions = csr.status.as_ref()?.conditions.as_ref()?;
    let is = |kind: &str| {
        conditions
            .iter()
            .any(|c| c.type_ == kind && c.status == "True")
    };
    ["Denied", "Failed", "Approved"]
        .into_iter()
        .find(|kind| is(kind))
}

/// Compares a request field by field with the expectation, and with the present Machine and Node. The error names the
/// first mismatch.
pub(super) fn check(
    csr: &CertificateSigningRequest,
    expect: &CsrExpectation,
    asker: &Asker,
    cluster: &ClusterState,
) -> Result<(), String> {
    let request = read(&csr.spec.request.0)?;
    check_subject(&request.info.subject, expect)?;
    let names = names(&request)?;
    let first = match csr.spec.signer_name.as_str() {
        CLIENT_SIGNER => check_client(csr, expect, asker, &names)?,
        SERVING_SIGNER => {
            check_server(csr, expect, &names)?;
            false
        }
        other => return Err(format!("its signer {other} is none that a kubelet needs")),
    };
    csr_owner::check(expect, cluster, first)?;
    match csr.spec.signer_name.as_str() {
        SERVING_SIGNER => check_sans(expect, cluster, &names),
        _ => Ok(()),
    }
}

fn check_subject(subject: &Name, expect: &CsrExpectation) -> Result<(), String> {
    let all = |oid| -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        for part in subject.as_ref().iter().flat_map(|rdn| rdn.as_ref().iter()) {
            if part.oid == oid {
                let text = std::str::from_utf8(part.value.value());
                found.push(text.map_err(|_| "its subject is no text")?.to_owned());
            }
        }
        Ok(found)
    };
    let parts = subject
        .as_ref()
        .iter()
        .flat_map(|rdn| rdn.as_ref().iter())
        .count();
    let common = all(COMMON_NAME)?;
    let organizations = all(ORGANIZATION)?;
    let wanted = format!("system:node:{}", expect.node_name);
    if common != [wanted.as_str()] {
        return Err(format!(
            "its common name is {}, not {wanted}",
            quoted(&common)
        ));
    }
    if organizations != [NODES] {
        return Err(format!(
            "its organization is {}, not {NODES}",
            quoted(&organizations)
        ));
    }
    if parts != 2 {
        return Err("its subject says more than a common name and an organization".into());
    }
    Ok(())
}

/// Checks the user: a bootstrap token requests a node's first certificate, and a node renews its own.
fn check_client(
    csr: &CertificateSigningRequest,
    expect: &CsrExpectation,
    by: &Asker,
    names: &BTreeSet<String>,
) -> Result<bool, String> {
    if !names.is_empty() {
        return Err(format!("a client's request names {}", quoted(names)));
    }
    usages(csr, "client auth")?;
    let (user, groups) = requester(csr);
    if user == format!("system:node:{}", expect.node_name) {
        return in_group(&groups, NODES).map(|()| false);
    }
    may_ask_first(&user, &groups, credential_ids(csr), by)?;
    younger(csr, expect).map(|()| true)
}

/// Ids of the credential that asked, as the API server wrote them.
fn credential_ids(csr: &CertificateSigningRequest) -> &[String] {
    let extra = csr.spec.extra.as_ref();
    extra
        .and_then(|extra| extra.get(account_token::CREDENTIAL_ID))
        .map_or(&[], Vec::as_slice)
}

fn may_ask_first(
    user: &str,
    groups: &[&str],
    asked_with: &[String],
    by: &Asker,
) -> Result<(), String> {
    let may_not = format!("{user} may not ask for a node's first certificate");
    let (account, accounts) = BOOTSTRAPPER;
    let (prefix, holders) = BOOTSTRAP_TOKEN;
    match by {
        Asker::Own(own) if user == own => in_group(groups, GROUP),
        Asker::Own(own) => Err(format!("{may_not}: this machine's kubelet asks as {own}")),
        Asker::Account { home, ids } => {
            let (account, accounts) = account_token::user(home);
            if user != account {
                return Err(format!(
                    "{may_not}: this machine's kubelet asks as {account}"
                ));
            }
            in_group(groups, &accounts)?;
            match asked_with {
                [id] if ids.contains(id) => Ok(()),
                _ => Err(format!(
                    "{may_not} with a token that was not made for this machine"
                )),
            }
        }
        Asker::Shared => {
            let account = user == account && groups.contains(&accounts);
            let token = user.starts_with(prefix) && groups.contains(&holders);
            if account || token {
                Ok(())
            } else {
                Err(may_not)
            }
        }
    }
}

/// Whether the request was made after the Machine. Both times are the API server's.
fn younger(csr: &CertificateSigningRequest, expect: &CsrExpectation) -> Result<(), String> {
    let made = csr
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0.as_millisecond());
    let machine = i64::try_from(expect.machine_created.0).unwrap_or(i64::MAX);
    match made {
        None => Err("it does not say when it was made".into()),
        Some(made) if made < machine.saturating_sub(OLDER_MAX_MS) => {
            Err("it is older than the Machine".into())
        }
        Some(_) => Ok(()),
    }
}

fn check_server(
    csr: &CertificateSigningRequest,
    expect: &CsrExpectation,
    names: &BTreeSet<String>,
) -> Result<(), String> {
    usages(csr, "server auth")?;
    let (user, groups) = requester(csr);
    if user != format!("system:node:{}", expect.node_name) {
        return Err(format!(
            "{user} asks for the serving certificate of {}",
            expect.node_name
        ));
    }
    in_group(&groups, NODES)?;
    in_group(&groups, "system:authenticated")?;
    if names.is_empty() {
        return Err("a serving request names nothing".into());
    }
    Ok(())
}

/// Whether the Machine has every name and address that a serving certificate would have.
fn check_sans(
    expect: &CsrExpectation,
    cluster: &ClusterState,
    names: &BTreeSet<String>,
) -> Result<(), String> {
    let mut known = cluster.machine.as_ref().map(reached_by).unwrap_or_default();
    known.insert(dns(&expect.node_name));
    let foreign: BTreeSet<String> = names.difference(&known).cloned().collect();
    if foreign.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "the Machine does not have the address or name {}",
            quoted(&foreign)
        ))
    }
}

fn requester(csr: &CertificateSigningRequest) -> (String, Vec<&str>) {
    let user = csr.spec.username.clone().unwrap_or_default();
    let groups = csr
        .spec
        .groups
        .iter()
        .flatten()
        .map(String::as_str)
        .collect();
    (user, groups)
}

fn in_group(groups: &[&str], group: &str) -> Result<(), String> {
    if groups.contains(&group) {
        Ok(())
    } else {
        Err(format!("the requester is not in the group {group}"))
    }
}

/// Checks for exactly the usages of a kubelet's certificate. Key encipherment is for RSA keys only.
fn usages(csr: &CertificateSigningRequest, purpose: &str) -> Result<(), String> {
    let given: BTreeSet<&str> = csr
        .spec
        .usages
        .iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let wanted: BTreeSet<&str> = ["digital signature", purpose].into();
    let with_rsa: BTreeSet<&str> = ["digital signature", "key encipherment", purpose].into();
    if given == wanted || given == with_rsa {
        return Ok(());
    }
    let given: Vec<&str> = given.into_iter().collect();
    Err(format!("its usages are {}", given.join(", ")))
}

fn read(pem: &[u8]) -> Result<CertReq, String> {
    let pem = std::str::from_utf8(pem).map_err(|_| "it is no PEM text")?;
    CertReq::from_pem(pem).map_err(|error| format!("it cannot be read: {error}"))
}

/// DNS names and addresses that a request (PEM) asks for, as they are compared.
///
/// # Errors
/// It is no certificate request, or asks for a name of another kind, in a sentence.
pub fn requested_names(pem: &[u8]) -> Result<BTreeSet<String>, String> {
    names(&read(pem)?)
}

/// DNS names and addresses, as they are compared. Any other kind of name is refused.
fn names(request: &CertReq) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for attribute in request
        .info
        .attributes
        .iter()
        .filter(|one| one.oid == ExtensionReq::OID)
    {
        for value in attribute.values.iter() {
            let asked: ExtensionReq = value
                .decode_as()
                .map_err(|error| format!("its extensions: {error}"))?;
            for extension in asked
                .0
                .iter()
                .filter(|one| one.extn_id == SubjectAltName::OID)
            {
                let san = SubjectAltName::from_der(extension.extn_value.as_bytes())
                    .map_err(|error| format!("its names: {error}"))?;
                for name in &san.0 {
                    names.insert(text_of(name)?);
                }
            }
        }
    }
    Ok(names)
}

fn text_of(name: &GeneralName) -> Result<String, String> {
    match name {
        GeneralName::DnsName(name) => Ok(dns(name.as_str())),
        GeneralName::IpAddress(bytes) => address(bytes.as_bytes()),
        _ => Err("it names something that is neither a DNS name nor an address".into()),
    }
}

fn address(bytes: &[u8]) -> Result<String, String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or(v6)
        .map(|address| address.to_string())
        .map_err(|_| "it names no address".into())
}

/// What a request says, in quotation marks: its host chose it, and no part of it may read as dormer's own words.
fn quoted<'a>(said: impl IntoIterator<Item = &'a String>) -> String {
    let said = said.into_iter().map(|it| format!("{it:?}"));
    said.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "csr_tests.rs"]
mod tests;
