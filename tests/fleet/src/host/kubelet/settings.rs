//! Settings of a kubelet: its command line, its configuration file, its kubeconfigs on the disk.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormer_profile::yaml;
use serde_json::Value;

use super::api::KubeletIdentity;
use crate::faults::Fault;
use crate::host::computer::Host;
use crate::host::scm::flag;

/// Settings of a kubelet.
#[derive(Clone)]
pub(super) struct Settings {
    /// Name of its Node.
    pub(super) node: String,
    /// Its address.
    pub(super) ip: String,
    /// Labels from `--node-labels`.
    pub(super) labels: Vec<(String, String)>,
    /// `registerWithTaints` of the configuration.
    pub(super) taints: Value,
    /// Path of the bootstrap kubeconfig.
    pub(super) bootstrap: String,
    /// Path of the kubeconfig.
    pub(super) kubeconfig: String,
    /// Folder of its certificates, without a trailing backslash.
    pub(super) cert_dir: String,
    /// Whether it requests a serving certificate.
    pub(super) serving: bool,
    /// Pods that it takes.
    pub(super) pods_max: u64,
}

/// The part of a kubeconfig that a kubelet needs.
pub(super) struct Kubeconfig {
    /// URL of the server.
    pub(super) server: String,
    /// Its certificate authority as PEM.
    pub(super) ca_pem: String,
    /// Who the kubelet is.
    pub(super) identity: Option<KubeletIdentity>,
}

impl Settings {
    /// Reads the command line and the configuration file that it names.
    pub(super) fn read(host: &Host, command: &str) -> Result<Self, String> {
        let needed = |name: &str| flag(command, name).ok_or_else(|| format!("no --{name}"));
        let config = text(host, &needed("config")?)?;
        let config: Value = yaml::from_str(&config).map_err(|e| e.to_string())?;
        let hostname = host.state().hostname.to_lowercase();
        let mut node = flag(command, "hostname-override").unwrap_or(hostname);
        if host.armed(Fault::NameMismatch) && host.strike(Fault::NameMismatch) {
            node.push_str("-other");
        }
        if host.state().claims_name {
            // It reports this name whatever its settings say.
            node = host.state().hostname.to_lowercase();
        }
        let labels = flag(command, "node-labels").unwrap_or_default();
        let labels = labels.split(',').filter_map(|one| one.split_once('='));
        let cert_dir = flag(command, "cert-dir").unwrap_or(r"C:\var\lib\kubelet\pki".into());
        Ok(Self {
            node,
            ip: flag(command, "node-ip").unwrap_or_else(|| host.internal_ip()),
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            taints: config["registerWithTaints"].clone(),
            bootstrap: needed("bootstrap-kubeconfig")?,
            kubeconfig: needed("kubeconfig")?,
            cert_dir: cert_dir
                .replace('/', "\\")
                .trim_end_matches('\\')
                .to_owned(),
            serving: config["serverTLSBootstrap"].as_bool() == Some(true),
            pods_max: config["maxPods"].as_u64().unwrap_or(110),
        })
    }

    /// File that holds the client certificate and its key.
    pub(super) fn client_pem(&self) -> String {
        format!(r"{}\kubelet-client-current.pem", self.cert_dir)
    }
}

/// A text file of the host; refused with a byte-order mark.
pub(super) fn text(host: &Host, path: &str) -> Result<String, String> {
    let body = host
        .state()
        .disk
        .read_text_path(path)
        .map_err(|e| format!("{path}: {e}"))?;
    let bytes = body.bytes().ok_or_else(|| format!("{path} is too long"))?;
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
        return Err(format!("{path} begins with a byte-order mark"));
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| format!("{path} is not UTF-8"))
}

/// Reads a kubeconfig from the disk of the host.
pub(super) fn kubeconfig(host: &Host, path: &str) -> Result<Kubeconfig, String> {
    let config: Value = yaml::from_str(&text(host, path)?).map_err(|e| e.to_string())?;
    let cluster = &config["clusters"][0]["cluster"];
    let user = &config["users"][0]["user"];
    let server = cluster["server"]
        .as_str()
        .ok_or_else(|| format!("{path} names no server"))?;
    let ca_pem = inline_or_file(host, cluster, "certificate-authority")?;
    let token = match (user["token"].as_str(), user["tokenFile"].as_str()) {
        (Some(token), _) => Some(token.to_owned()),
        (None, Some(file)) => Some(text(host, file)?.trim().to_owned()),
        (None, None) => None,
    };
    Ok(Kubeconfig {
        server: server.to_owned(),
        ca_pem: ca_pem.unwrap_or_default(),
        identity: token.map(KubeletIdentity::Token),
    })
}

fn inline_or_file(host: &Host, object: &Value, name: &str) -> Result<Option<String>, String> {
    if let Some(data) = object[format!("{name}-data").as_str()].as_str() {
        let bytes = STANDARD.decode(data).map_err(|e| e.to_string())?;
        return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
    }
    object[name]
        .as_str()
        .map(|path| text(host, path))
        .transpose()
}
