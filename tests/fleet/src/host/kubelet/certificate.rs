//! Certificates of a kubelet: requested, awaited, stored on the disk (docs/field-notes.md, Certificate requests of
//! kubelets).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::api::{Api, KubeletIdentity};
use super::settings::{Settings, kubeconfig, text};
use crate::faults::Fault;
use crate::host::computer::Host;

/// Time that a kubelet waits for a certificate before it requests another one.
const PATIENCE: Duration = Duration::from_secs(900);
/// Poll interval.
const POLL: Duration = Duration::from_secs(1);
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// One certificate that is wanted.
struct CertificateOrder<'a> {
    signer: &'a str,
    node: &'a str,
    usage: &'a str,
    names: Vec<String>,
}

impl Host {
    /// A client with the kubelet's own certificate: the one on the disk, or a new one by TLS bootstrap.
    pub(super) async fn client_api(&self, settings: &Settings) -> Result<Api, String> {
        let bootstrap = kubeconfig(self, &settings.bootstrap);
        if let Ok(pem) = text(self, &settings.client_pem())
            && let Ok(known) = kubeconfig(self, &settings.kubeconfig)
        {
            let identity = KubeletIdentity::Certificate {
                cert_pem: pem.clone(),
                key_pem: pem,
            };
            let dialer = self.context.api_dialer.clone();
            return Api::new(dialer, &known.server, &known.ca_pem, &identity);
        }
        let bootstrap = bootstrap?;
        let token = bootstrap
            .identity
            .ok_or("the bootstrap kubeconfig has no token")?;
        let dialer = self.context.api_dialer.clone();
        let api = Api::new(dialer.clone(), &bootstrap.server, &bootstrap.ca_pem, &token)?;
        if self.strike(Fault::CsrWrongUser) {
            let other = wanted_client("somebody-else");
            let _ = self.ask(&api, &other).await?;
        }
        if self.strike(Fault::CsrTwice) {
            let _ = self.ask(&api, &wanted_client(&settings.node)).await?;
        }
        let (cert_pem, key_pem) = self.obtain(&api, &wanted_client(&settings.node)).await?;
        self.at("kubelet client certificate signed").await;
        self.keep_client(
            settings,
            &bootstrap.server,
            &bootstrap.ca_pem,
            &cert_pem,
            &key_pem,
        );
        self.at("kubelet client certificate kept").await;
        let identity = KubeletIdentity::Certificate { cert_pem, key_pem };
        Api::new(dialer, &bootstrap.server, &bootstrap.ca_pem, &identity)
    }

    fn keep_client(&self, settings: &Settings, server: &str, ca: &str, cert: &str, key: &str) {
        let pem = settings.client_pem();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "default-context",
            "clusters": [{"name": "default-cluster", "cluster": {
                "server": server, "certificate-authority-data": STANDARD.encode(ca)}}],
            "users": [{"name": "default-auth", "user": {
                "client-certificate": pem, "client-key": pem}}],
            "contexts": [{"name": "default-context", "context": {
                "cluster": "default-cluster", "user": "default-auth"}}],
        });
        let mut state = self.state();
        let _ = state.disk.put(&pem, format!("{cert}{key}").as_bytes());
        let _ = state
            .disk
            .put(&settings.kubeconfig, config.to_string().as_bytes());
    }

    /// Requests a certificate and waits until it is issued.
    async fn obtain(
        &self,
        api: &Api,
        wanted: &CertificateOrder<'_>,
    ) -> Result<(String, String), String> {
        let (name, key_pem) = self.ask(api, wanted).await?;
        self.at(&format!("kubelet {} asked for", wanted.usage))
            .await;
        let path = format!("{CSRS}/{name}");
        let mut waited = Duration::ZERO;
        while waited < PATIENCE {
            self.sleep(POLL).await;
            waited += POLL;
            let (code, csr) = api.get(&path).await?;
            if code == 404 || has_condition(&csr, "Denied") || has_condition(&csr, "Failed") {
                return Err(format!("the request {name} was not granted"));
            }
            if let Some(cert) = csr["status"]["certificate"].as_str() {
                let cert = STANDARD.decode(cert).map_err(|e| e.to_string())?;
                return Ok((String::from_utf8_lossy(&cert).into_owned(), key_pem));
            }
        }
        Err(format!("the request {name} was not answered"))
    }

    /// Posts a request; answers its name and the key, as PEM.
    async fn ask(
        &self,
        api: &Api,
        wanted: &CertificateOrder<'_>,
    ) -> Result<(String, String), String> {
        let (request, key_pem) = request(wanted).map_err(|e| e.to_string())?;
        let body = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "csr-"},
            "spec": {
                "request": STANDARD.encode(request),
                "signerName": wanted.signer,
                "usages": ["digital signature", wanted.usage],
            },
        });
        let (code, made) = api.post(CSRS, &body).await?;
        let name = made["metadata"]["name"].as_str();
        match name.filter(|_| code == 201) {
            Some(name) => Ok((name.to_owned(), key_pem)),
            None => Err(format!(
                "a certificate request was answered with {code}: {}",
                made["message"]
            )),
        }
    }

    /// Requests a serving certificate until there is one.
    pub(super) async fn serving_certificate(&self, api: &Api, settings: &Settings) {
        if !settings.serving || self.strike(Fault::ServingNever) {
            return;
        }
        let path = format!(r"{}\kubelet-server-current.pem", settings.cert_dir);
        if text(self, &path).is_ok() {
            return;
        }
        loop {
            let mut names = vec![settings.node.clone(), settings.ip.clone()];
            if self.strike(Fault::CsrExtraSan) {
                names.push("192.0.2.77".into());
                let wanted = wanted_serving(&settings.node, names);
                let _ = self.ask(api, &wanted).await;
                self.sleep(Duration::from_secs(30)).await;
                continue;
            }
            let wanted = wanted_serving(&settings.node, names);
            match self.obtain(api, &wanted).await {
                Ok((cert, key)) => {
                    self.at("kubelet serving certificate signed").await;
                    let _ = self
                        .state()
                        .disk
                        .put(&path, format!("{cert}{key}").as_bytes());
                    return;
                }
                Err(_) => self.sleep(super::AGAIN).await,
            }
        }
    }
}

fn wanted_client(node: &str) -> CertificateOrder<'_> {
    CertificateOrder {
        signer: CLIENT,
        node,
        usage: "client auth",
        names: Vec::new(),
    }
}

fn wanted_serving(node: &str, names: Vec<String>) -> CertificateOrder<'_> {
    CertificateOrder {
        signer: SERVING,
        node,
        usage: "server auth",
        names,
    }
}

fn request(wanted: &CertificateOrder<'_>) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(wanted.names.clone())?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "system:nodes");
    subject.push(DnType::CommonName, format!("system:node:{}", wanted.node));
    params.distinguished_name = subject;
    let key = KeyPair::generate()?;
    let request = params.serialize_request(&key)?.pem()?;
    Ok((request, key.serialize_pem()))
}

fn has_condition(csr: &Value, kind: &str) -> bool {
    let conditions = csr["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|condition| condition["type"] == kind))
}
