//! A kubelet's small HTTPS client: one kept connection, JSON in and out.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::Value;
use tokio::sync::{Mutex, watch};
use tokio_rustls::TlsConnector;

use crate::net::Dialer;

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Who the client says it is.
#[derive(Clone)]
pub(crate) enum KubeletIdentity {
    /// A bearer token.
    Token(String),
    /// A client certificate with its key, both PEM.
    Certificate {
        /// Certificates, the client's own first.
        cert_pem: String,
        key_pem: String,
    },
}

/// A connection to an API server.
pub(crate) struct Api {
    dialer: Dialer,
    authority: String,
    tls: Arc<ClientConfig>,
    token: Option<String>,
    kept: Mutex<Option<SendRequest<Full<Bytes>>>>,
    /// Whether the way to the server is cut: requests then wait until it is not.
    cut: Option<watch::Receiver<bool>>,
}

impl Api {
    /// A client of the server at `url` whose certificate `ca_pem` vouches for.
    ///
    /// # Errors
    /// What does not fit together, in words.
    pub(crate) fn new(
        dialer: Dialer,
        url: &str,
        ca_pem: &str,
        identity: &KubeletIdentity,
    ) -> Result<Self, String> {
        let rest = url
            .strip_prefix("https://")
            .ok_or_else(|| format!("{url} is not https"))?;
        let host = rest.split('/').next().unwrap_or_default();
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port {
            host.to_owned()
        } else {
            format!("{host}:443")
        };
        let tls = Arc::new(tls_config(ca_pem, identity)?);
        let token = match identity {
            KubeletIdentity::Token(token) => Some(token.clone()),
            KubeletIdentity::Certificate { .. } => None,
        };
        Ok(Self {
            dialer,
            authority,
            tls,
            token,
            kept: Mutex::default(),
            cut: None,
        })
    }

    /// The same, of a host whose way to the server may be cut.
    pub(crate) fn behind(self, cut: watch::Receiver<bool>) -> Self {
        let cut = Some(cut);
        Self { cut, ..self }
    }

    /// Packets of a host that is cut off are dropped, and its kubelet tries again until they are not.
    async fn until_connected(&self) {
        let Some(mut cut) = self.cut.clone() else {
            return;
        };
        if cut.wait_for(|cut| !*cut).await.is_err() {
            // The host is gone, and with it the caller.
            std::future::pending().await
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let io = self
            .dialer
            .dial(&self.authority)
            .await
            .map_err(|e| e.to_string())?;
        let host = self
            .authority
            .rsplit_once(':')
            .map_or(self.authority.as_str(), |(h, _)| h);
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(|e| e.to_string())?;
        let tls = TlsConnector::from(self.tls.clone());
        let stream = tls.connect(name, io).await.map_err(|e| e.to_string())?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|e| e.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, String> {
        let bytes = body
            .map(|body| body.to_string().into_bytes())
            .unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.authority)
            .header("user-agent", "kubelet.exe")
            .header("accept", "application/json")
            .header("content-type", kind);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request
            .body(Full::new(bytes.into()))
            .map_err(|e| e.to_string())
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        self.until_connected().await;
        let mut kept = self.kept.lock().await;
        let mut sender = match kept.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await.map_err(|e| e.to_string())?;
        let request = self.request(method, path, kind, body)?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|e| e.to_string())?;
        let code = response.status().as_u16();
        let limited = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let bytes = limited
            .collect()
            .await
            .map_err(|e| e.to_string())?
            .to_bytes();
        *kept = Some(sender);
        Ok((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<(u16, Value), String> {
        self.call("GET", path, "application/json", None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<(u16, Value), String> {
        self.call("POST", path, "application/json", Some(body))
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<(u16, Value), String> {
        self.call("PUT", path, "application/json", Some(body)).await
    }

    /// PATCH as a JSON merge patch.
    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Result<(u16, Value), String> {
        self.call("PATCH", path, "application/merge-patch+json", Some(body))
            .await
    }

    /// DELETE with options.
    pub(crate) async fn delete(&self, path: &str, body: &Value) -> Result<(u16, Value), String> {
        self.call("DELETE", path, "application/json", Some(body))
            .await
    }

    /// GET on a connection of its own, to be read as it comes: a watch.
    pub(crate) async fn stream(&self, path: &str) -> Result<Response<Incoming>, String> {
        self.until_connected().await;
        let mut sender = self.connect().await?;
        let request = self.request("GET", path, "application/json", None)?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|e| e.to_string())?;
        match response.status().as_u16() {
            200 => Ok(response),
            code => Err(format!("watch: {code}")),
        }
    }
}

fn tls_config(ca_pem: &str, identity: &KubeletIdentity) -> Result<ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots
            .add(cert.map_err(|e| e.to_string())?)
            .map_err(|e| e.to_string())?;
    }
    if roots.is_empty() {
        return Err("the kubeconfig names no certificate authority".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots);
    match identity {
        KubeletIdentity::Token(_) => Ok(builder.with_no_client_auth()),
        KubeletIdentity::Certificate { cert_pem, key_pem } => {
            let chain: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(cert_pem.as_bytes()).collect();
            let key =
                PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|e| e.to_string())?;
            let chain = chain.map_err(|e| e.to_string())?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| e.to_string())
        }
    }
}
