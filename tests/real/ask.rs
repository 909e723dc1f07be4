//! Kubelets and impostors: certificate requests by real identities, as the API server accepts them.

use super::{
    accounts::token,
    cluster::{CSR, NODE, PATIENCE, SERVICE_ACCOUNT, Site, World},
};
use dormer_proto::machine::{CsrExpectation, MachineRef};
use dormer_testkit::{
    Identity, Speaker, await_some,
    rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType},
};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

pub(crate) const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(crate) const SERVING: &str = "kubernetes.io/kubelet-serving";
/// The namespace of OpenShift's bootstrapper.
pub(crate) const OPERATOR: &str = "openshift-machine-config-operator";

/// What a request says.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<&'static str>,
    /// Another part of the subject.
    pub(crate) unit: Option<&'static str>,
    pub(crate) sans: Vec<SanType>,
    pub(crate) signer: &'static str,
    pub(crate) usages: Vec<&'static str>,
    /// What becomes of the PEM text before it is sent.
    pub(crate) mangle: fn(String) -> String,
}

impl Ask {
    /// A kubelet's request for its client certificate.
    pub(crate) fn client(node: &str) -> Self {
        Self {
            common_name: format!("system:node:{node}"),
            organizations: vec!["system:nodes"],
            unit: None,
            sans: vec![],
            signer: CLIENT,
            usages: vec!["digital signature", "client auth"],
            mangle: |pem| pem,
        }
    }

    /// A kubelet's request for its serving certificate.
    pub(crate) fn serving(node: &str, names: &[&str]) -> Self {
        let usages = vec!["digital signature", "server auth"];
        let sans = names.iter().map(|name| san(name)).collect();
        Self {
            signer: SERVING,
            usages,
            sans,
            ..Self::client(node)
        }
    }

    fn pem(&self, key: &KeyPair) -> String {
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        // One of each kind is all that a name here holds; the second has its number instead.
        let kinds = [
            DnType::OrganizationName,
            DnType::CustomDnType(vec![2, 5, 4, 10]),
        ];
        for (kind, organization) in kinds.into_iter().zip(&self.organizations) {
            name.push(kind, *organization);
        }
        name.push(DnType::CommonName, self.common_name.as_str());
        if let Some(unit) = self.unit {
            name.push(DnType::OrganizationalUnitName, unit);
        }
        params.distinguished_name = name;
        params.subject_alt_names = self.sans.clone();
        let request = params.serialize_request(key).expect("a request");
        (self.mangle)(request.pem().expect("PEM"))
    }
}

/// An address, or else a DNS name.
pub(crate) fn san(text: &str) -> SanType {
    match text.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(text.try_into().expect("a name")),
    }
}

/// What a Machine's run expects of its kubelet, once it had the host configured.
pub(crate) fn expectation(machine: &MachineRef) -> CsrExpectation {
    CsrExpectation {
        node_name: machine.name.clone(),
        machine: Some(machine.clone()),
        configured: true,
        ..CsrExpectation::default()
    }
}

/// The same, once it has a Node that serves.
pub(crate) async fn served(site: &Site, machine: &MachineRef) -> CsrExpectation {
    let node = site.node_now(machine).await;
    let uid = node["metadata"]["uid"].as_str().expect("a Node");
    CsrExpectation {
        node_uid: Some(uid.into()),
        configured: false,
        served: true,
        ..expectation(machine)
    }
}

/// A kubelet, or a client that claims to be one.
pub(crate) struct Kubelet<'a> {
    site: &'a Site,
    key: KeyPair,
}

impl<'a> Kubelet<'a> {
    pub(crate) fn new(site: &'a Site) -> Self {
        Self {
            site,
            key: KeyPair::generate().expect("a key"),
        }
    }

    /// Makes a request as the given user.
    pub(crate) async fn ask(&self, who: &Speaker, name: &str, ask: Ask) -> Result<(), kube::Error> {
        self.ask_by(&self.site.client(who).await, name, &ask).await
    }

    /// Makes a request by a client that is there already. Its label is the test's name.
    pub(crate) async fn ask_by(
        &self,
        client: &Client,
        name: &str,
        ask: &Ask,
    ) -> Result<(), kube::Error> {
        let pem = ask.pem(&self.key).into_bytes();
        let spec = CertificateSigningRequestSpec {
            request: ByteString(pem),
            signer_name: ask.signer.into(),
            usages: Some(ask.usages.iter().map(ToString::to_string).collect()),
            ..CertificateSigningRequestSpec::default()
        };
        let labels = Some([("site".to_owned(), self.site.name.to_owned())].into());
        let metadata = ObjectMeta {
            name: Some(name.into()),
            labels,
            ..ObjectMeta::default()
        };
        let csr = CertificateSigningRequest {
            metadata,
            spec,
            status: None,
        };
        let api: Api<CertificateSigningRequest> = Api::all(client.clone());
        api.create(&PostParams::default(), &csr).await.map(drop)
    }

    /// The certificate that the signer gave, with the key to it.
    pub(crate) async fn identity(&self, name: &str) -> Speaker {
        let api: Api<CertificateSigningRequest> = Api::all(self.site.world.admin.clone());
        let certificate = await_some("the request is signed", PATIENCE, || async {
            let csr = api.get(name).await.expect("it is there");
            csr.status?.certificate
        });
        let certificate = String::from_utf8(certificate.await.0).expect("PEM");
        Speaker::Certificate(Identity {
            certificate,
            key: self.key.serialize_pem(),
        })
    }

    /// Forgets all requests of this test.
    pub(crate) async fn forget_all(&self) {
        let api: Api<CertificateSigningRequest> = Api::all(self.site.world.admin.clone());
        let ours = ListParams::default().labels(&format!("site={}", self.site.name));
        api.delete_collection(&DeleteParams::default(), &ours)
            .await
            .expect("they are deleted");
    }

    /// A person's decision about a request.
    pub(crate) async fn decide(&self, name: &str, condition: Value) {
        let api: Api<CertificateSigningRequest> = Api::all(self.site.world.admin.clone());
        let change = json!({"status": {"conditions": [condition]}});
        let params = PatchParams::default();
        let how = Patch::Merge(&change);
        api.patch_approval(name, &params, &how)
            .await
            .expect("it is decided");
    }
}

/// Makes a Node as the given user.
pub(crate) async fn make_node(client: &Client, name: &str) -> Result<Value, kube::Error> {
    // A kubelet labels its own Node so (docs/field-notes.md, Names and builds).
    let labels = json!({"kubernetes.io/os": "windows"});
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels}});
    World {
        admin: client.clone(),
    }
    .try_create(node)
    .await
}

/// A bootstrap token of Kubernetes' own; its six messages are the test's.
pub(crate) async fn bootstrap_token(site: &Site, id: &str) -> Speaker {
    may_ask(site).await;
    let secret = "0123456789abcdef";
    let object = json!({"apiVersion": "v1", "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {"token-id": id, "token-secret": secret,
            "usage-bootstrap-authentication": "true"}});
    site.world.create(object).await;
    let speaker = Speaker::Token(format!("{id}.{secret}"));
    known(site, &speaker, true).await;
    speaker
}

/// Waits until a bootstrap token is known, or no longer: the API server learns of it by a watch.
pub(crate) async fn known(site: &Site, token: &Speaker, wanted: bool) {
    let api: Api<CertificateSigningRequest> = Api::all(site.client(token).await);
    await_some("the token is known, or not", PATIENCE, || async {
        let answer = api.get("nothing").await;
        let stranger = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 401);
        (stranger != wanted).then_some(())
    })
    .await;
}

/// OpenShift's account for kubelets' first requests, or another in its namespace.
pub(crate) async fn account(site: &Site, namespace: &str, name: &str) -> Speaker {
    may_ask(site).await;
    if site
        .world
        .get(SERVICE_ACCOUNT, namespace, name)
        .await
        .is_none()
    {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace}});
        // Another test may be faster.
        let _ = site.world.try_create(account).await;
    }
    token(site, namespace, name).await
}

/// Who may make requests at all: what becomes of them is then dormer's to judge. None of these is an account of dormer's.
async fn may_ask(site: &Site) {
    let name = format!("{}-askers", site.name);
    if site.world.get(BINDING, "", &name).await.is_some() {
        return;
    }
    let subject = |kind: &str, name: &str| json!({"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    let groups = [
        "system:bootstrappers".to_owned(),
        format!("system:serviceaccounts:{OPERATOR}"),
        format!("system:serviceaccounts:{}", site.name),
    ];
    let users = [
        "mallory".to_owned(),
        "system:bootstrap:abcdef".to_owned(),
        format!("system:serviceaccount:{OPERATOR}:node-bootstrapper"),
        format!("system:node:{}-win-1", site.name),
    ];
    let groups = groups.iter().map(|name| subject("Group", name));
    let users = users.iter().map(|name| subject("User", name));
    let subjects: Vec<Value> = groups.chain(users).collect();
    site.world
        .create(json!({"apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "system:node-bootstrapper"},
            "subjects": subjects}))
        .await;
}

const BINDING: super::cluster::Kind = ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding");

/// Conditions of a request, and whether it was signed.
pub(crate) async fn csr_conditions(site: &Site, name: &str) -> (Vec<Value>, bool) {
    let csr = site.world.get(CSR, "", name).await.expect("it is there");
    let conditions = csr["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    (conditions, csr["status"]["certificate"].is_string())
}

/// Whether there is a Node of this name.
pub(crate) async fn there(site: &Site, node: &str) -> bool {
    site.world.get(NODE, "", node).await.is_some()
}
