//! All settings with their flag, variable and key in the file, and how the three sources are merged.

use anyhow::Context;
use clap::{Args, ValueEnum};
use dormer_nats::without_logins;
use dormer_views::secret::Secret;
use serde::{Deserialize, Serialize};
use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

/// Default listening address of health, readiness and the console.
pub(super) const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7080);
/// Default folder of the embedded store.
const STORE: &str = "dormer-store";
/// Default file of the login link.
const LOGIN_LINK: &str = "dormer-login-link";
/// Default Secret of the SSH private key: WMCO's name.
const KEY_SECRET: &str = "cloud-private-key";
/// Default namespace outside a pod. It is never WMCO's, whose Secret and machines are its own.
const NAMESPACE: &str = "dormer";
/// Namespace of Machines on OpenShift.
const MACHINE_NAMESPACE: &str = "openshift-machine-api";
/// Default namespace of Cluster API's machines, as OpenShift has it.
const CLUSTER_API_NAMESPACE: &str = "openshift-cluster-api";
/// File with the namespace of the process's pod.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Watches the cluster's objects and reports changes to the engine
    Watcher,
    /// Makes decisions and stores the history
    Engine,
    /// Executes tasks over SSH and through the Kubernetes API
    Worker,
    /// Approves kubelets' certificates and makes bootstrap tokens; it talks to no host
    Approver,
    /// Serves the HTTP API and the web console
    Console,
}

impl Role {
    /// All roles, in the order of what happens to a machine.
    pub const ALL: [Self; 5] = [
        Self::Watcher,
        Self::Engine,
        Self::Worker,
        Self::Approver,
        Self::Console,
    ];

    /// Name of the role, of its key and of the origin of its messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Watcher => "watcher",
            Self::Engine => "engine",
            Self::Worker => "worker",
            Self::Approver => "approver",
            Self::Console => "console",
        }
    }
}

/// Authentication and authorization mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authentication {
    /// No check: everyone may do everything; a proxy in front of dormer must authenticate
    None,
    /// Everyone may read; actions are accepted from this computer or pod only, which includes kubectl port-forward
    Loopback,
    /// Callers open the one-time link in the file of --login-link, or send the access token
    Token,
    /// The cluster decides: TokenReview authenticates, SubjectAccessReview on dormer.io authorizes
    Cluster,
}

/// All settings: each from a flag, its variable, or the key of the flag's name in the file.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's account]
    #[arg(long, env = "DORMER_KUBECONFIG", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,

    /// Context in the kubeconfig [default: its current context]
    #[arg(long, env = "DORMER_CONTEXT", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,

    /// Store of the history: a folder, which exactly one process uses [default: dormer-store], or a NATS server,
    /// nats://HOST:PORT or tls://…, several separated by commas
    #[arg(
        long,
        env = "DORMER_STORE",
        hide_env_values = true,
        value_name = "DIR|URL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,

    /// Roles of this process, separated by commas [default: all]; a subset needs a store on NATS
    #[arg(
        long = "role",
        env = "DORMER_ROLE",
        value_delimiter = ',',
        value_name = "ROLE"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub role: Vec<Role>,

    /// Folder with a payload, the files that are installed on hosts (may be given several times)
    #[arg(
        long,
        env = "DORMER_PAYLOAD",
        value_delimiter = ',',
        value_name = "DIR"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub payload: Vec<PathBuf>,

    /// Public key of minisign that payloads have to be signed with: the line of minisign.pub that begins with RW (may be
    /// given several times: a signature of one of them counts)
    #[arg(
        long,
        env = "DORMER_PAYLOAD_KEY",
        value_delimiter = ',',
        value_name = "KEY"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub payload_key: Vec<String>,

    /// Use payloads without a signature: anyone who can write to their folders then decides what hosts run
    #[arg(
        long, env = "DORMER_PAYLOAD_UNSIGNED",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_unsigned: Option<bool>,

    /// File with a layer over the built-in profile (may be given several times, later ones on top)
    #[arg(
        long,
        env = "DORMER_PROFILE_LAYER",
        value_delimiter = ',',
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile_layer: Vec<PathBuf>,

    /// File with dormer-host.exe of this release, the program that works on Windows hosts; each host gets it by SFTP.
    /// Without it, machines wait
    #[arg(long, env = "DORMER_HOST_PROGRAM", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_program: Option<PathBuf>,

    /// SHA-256 of --host-program, 64 hex digits: a worker whose file has another one does not start. Use it if
    /// you distribute the program and its hash separately
    #[arg(long, env = "DORMER_HOST_PROGRAM_SHA256", value_name = "SHA256")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_program_sha256: Option<String>,

    /// Namespace of the WindowsPool, the private key's Secret and the watchers' Lease [default: the pod's own, else
    /// dormer]
    #[arg(long, env = "DORMER_NAMESPACE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// Namespace of Machines and MachineSets; `*` means all namespaces [default: openshift-machine-api]
    #[arg(long, env = "DORMER_MACHINE_NAMESPACE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_namespace: Option<String>,

    /// Namespace of Cluster API's Machines and MachineSets; `*` means all namespaces [default: openshift-cluster-api]
    #[arg(long, env = "DORMER_CLUSTER_API_NAMESPACE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_api_namespace: Option<String>,

    /// Namespace of the canary pods that payloads name; you create it [default: none, and no canary is made]
    #[arg(long, env = "DORMER_CANARY_NAMESPACE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary_namespace: Option<String>,

    /// Address outside of the cluster to which canary pods have to connect, `HOST:PORT` [default: none, and that is not checked]
    #[arg(long, env = "DORMER_CANARY_OUTBOUND", value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary_outbound: Option<String>,

    /// Pool of machines that are upgraded together: windows, the only one that the cluster accepts [default: windows]
    #[arg(long, env = "DORMER_POOL", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,

    /// File with the private key for Windows hosts [default: the key in the Secret]
    #[arg(long, env = "DORMER_PRIVATE_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<PathBuf>,

    /// Secret with the private key under private-key.pem, and during a rotation the one before under
    /// previous-private-key.pem [default: cloud-private-key]
    #[arg(long, env = "DORMER_PRIVATE_KEY_SECRET", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key_secret: Option<String>,

    /// Socket of an ssh-agent that has the private key: dormer asks it for each login's signature, and never has the key
    /// itself. In place of --private-key and --private-key-secret
    #[arg(long, env = "DORMER_SSH_AGENT", value_name = "SOCKET")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_agent: Option<PathBuf>,

    /// With --ssh-agent: fingerprint of the key to use, as ssh-add -l prints it; while a key is replaced, a second one after a
    /// comma names the key before, for hosts that refuse the first [default: the agent's only key]
    #[arg(
        long,
        env = "DORMER_SSH_AGENT_KEY",
        value_delimiter = ',',
        value_name = "FINGERPRINT"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ssh_agent_key: Vec<String>,

    /// SSH port of Windows hosts [default: 22]
    #[arg(long, env = "DORMER_SSH_PORT", value_name = "PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_port: Option<u16>,

    /// Tasks executed at once in this process, at most 4096 [default: 256]
    #[arg(long, env = "DORMER_SLOTS", value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<usize>,

    /// Listening address of health, readiness and the console [default: 127.0.0.1:7080]
    #[arg(long, env = "DORMER_LISTEN", value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,

    /// Authentication and authorization mode [default: loopback on a loopback address, else cluster]
    #[arg(long, env = "DORMER_AUTHENTICATION", value_enum, value_name = "HOW")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
    /// With --authentication cluster: the audience that tokens must be issued for [default: dormer, or the API
    /// server's own]
    #[arg(long, env = "DORMER_AUDIENCE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Address of the one proxy whose header X-Forwarded-Access-Token counts as its caller's token, such as 127.0.0.1 for
    /// OpenShift's oauth-proxy in dormer's pod [default: none]
    #[arg(long, env = "DORMER_TOKEN_PROXY", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_proxy: Option<IpAddr>,
    /// With --authentication cluster: seconds for which a granted right is cached, at most 300 [default: 30]
    #[arg(long, env = "DORMER_REVIEW_SECONDS", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review_seconds: Option<u64>,
    /// With --authentication token: the bearer token that programs send; prefer the environment or the file to the
    /// command line
    #[arg(
        long,
        env = "DORMER_ACCESS_TOKEN",
        hide_env_values = true,
        value_name = "SECRET"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<Secret>,
    /// With --authentication token: file for the one-time link that logs a browser in; only its owner may read it, and a
    /// link lives for ten minutes [default: dormer-login-link]
    #[arg(long, env = "DORMER_LOGIN_LINK", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_link: Option<PathBuf>,
    /// Key that seals browser sessions: at least 32 random characters (openssl rand -hex 32). Give every console the
    /// same key, so that each accepts the others' sessions and users stay logged in after a restart. A second key after a comma
    /// only opens old sessions; deploy/people.yaml describes the rotation. Prefer the environment or the file to the
    /// command line [default: random at each start]
    #[arg(
        long,
        env = "DORMER_SESSION_KEY",
        hide_env_values = true,
        value_delimiter = ',',
        value_name = "SECRET"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub session_key: Vec<Secret>,
    /// Server certificate (PEM): health, metrics, API and console are then served over TLS
    #[arg(long, env = "DORMER_TLS_CERTIFICATE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    /// Private key of the server certificate (PEM)
    #[arg(long, env = "DORMER_TLS_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,

    /// Serve API and console without TLS beyond loopback: tokens and cookies can then be read on the network
    #[arg(
        long, env = "DORMER_PLAINTEXT",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plaintext: Option<bool>,

    /// Audit of the API and the console: who logged in, was refused, looked at what is confidential, and acted, as JSON
    /// lines; a file, which may be rotated by renaming it, or `-` for standard output [default: none]
    #[arg(long, env = "DORMER_AUDIT_LOG", value_name = "FILE|-")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_log: Option<PathBuf>,
    /// With --audit-log: refuse what cannot be written there, such as on a full disk [default: true]
    #[arg(
        long, env = "DORMER_AUDIT_REQUIRED",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_required: Option<bool>,

    /// Keys of the history, for engines: a file as `dormer keys make` writes it; each record gets a MAC by the first key,
    /// and a run whose last record has none, or a wrong one, is quarantined [default: none]
    #[arg(long, env = "DORMER_HISTORY_KEYS", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_keys: Option<PathBuf>,

    /// With --history-keys: believe records without a MAC, while keys are introduced
    #[arg(
        long, env = "DORMER_HISTORY_ACCEPT_UNKEYED",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_accept_unkeyed: Option<bool>,

    /// Unique name of this process, such as its pod's name [default: host name and process id]
    #[arg(long, env = "DORMER_NAME", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Collector that receives traces, metrics and the audit's lines by OTLP over HTTP (protobuf): http://HOST:PORT or
    /// https://HOST:PORT. OpenTelemetry's own variables work as well (OTEL_EXPORTER_OTLP_ENDPOINT, ..._HEADERS,
    /// ..._CERTIFICATE): see docs/telemetry.md [default: OTEL_EXPORTER_OTLP_ENDPOINT, else none]
    #[arg(long, env = "DORMER_OTLP_ENDPOINT", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,

    /// OperatorCondition of this installation; the console writes its condition Upgradeable [the Operator Lifecycle
    /// Manager sets this variable]
    #[arg(long, env = "OPERATOR_CONDITION_NAME", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_condition: Option<String>,

    #[command(flatten)]
    #[serde(skip_serializing_if = "is_default")]
    /// Settings for kubelets that join the cluster.
    pub join: JoinSettings,

    #[command(flatten)]
    #[serde(skip_serializing_if = "is_default")]
    /// Settings of the connection to a NATS store.
    pub nats: NatsSettings,
}

/// Settings for kubelets that join, in the file a table `[join]`. Missing ones are read from the cluster.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "How kubelets join")]
pub struct JoinSettings {
    /// URL of the API server for nodes [default: OpenShift's apiServerInternalURI]
    #[arg(long, env = "DORMER_API_URL", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,

    /// Secret with a bootstrap `token` and the API server's `ca.crt` [default:
    /// openshift-machine-config-operator/node-bootstrapper-token]
    #[arg(long, env = "DORMER_BOOTSTRAP_SECRET", value_name = "NAMESPACE/NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_secret: Option<String>,

    /// Create a bootstrap token in kube-system for each machine, valid until it has joined, instead of one for all;
    /// for plain Kubernetes, with the rules of deploy/machine-tokens.yaml
    #[arg(
        long, env = "DORMER_MACHINE_TOKENS",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_tokens: Option<bool>,

    /// Create a token of the service account dormer-bootstrapper for each machine, valid for an hour at most and until
    /// it has joined, instead of one for all; for OpenShift, with the rules of deploy/account-tokens.yaml
    #[arg(
        long, env = "DORMER_ACCOUNT_TOKENS",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_tokens: Option<bool>,

    /// ConfigMap and its key with the CA of client certificates [default:
    /// kube-system/extension-apiserver-authentication/client-ca-file]
    #[arg(long, env = "DORMER_CLIENT_CA", value_name = "NAMESPACE/NAME/KEY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<String>,

    /// Service network (CIDR) [default: from OpenShift's network configuration]
    #[arg(long, env = "DORMER_SERVICE_CIDR", value_name = "CIDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_cidr: Option<String>,

    /// Cluster domain [default: cluster.local]
    #[arg(long, env = "DORMER_CLUSTER_DOMAIN", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_domain: Option<String>,
}

/// Settings of the connection to a NATS store, in the file a table `[nats]` without the prefix `nats-`.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "With a NATS store")]
pub struct NatsSettings {
    /// Prefix of subjects and streams, if several stores share an account [default: dormer]
    #[arg(long = "nats-prefix", env = "DORMER_NATS_PREFIX", value_name = "WORD")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,

    /// Copies of each stream [default: 3 in a cluster, 1 on a single server]
    #[arg(
        long = "nats-replicas",
        env = "DORMER_NATS_REPLICAS",
        value_name = "COUNT"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<usize>,

    /// Accept a server that does not sync each write to disk: if all replicas stop at once, the newest history may be
    /// lost
    #[arg(
        long = "nats-accept-lazy-sync", env = "DORMER_NATS_ACCEPT_LAZY_SYNC",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_lazy_sync: Option<bool>,

    /// Folder of keys, as `dormer keys make` writes it: messages are signed by the roles of this process, and messages
    /// without the right signature are refused; needed with a server beyond loopback
    #[arg(long = "nats-keys", env = "DORMER_NATS_KEYS", value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<PathBuf>,

    /// Accept messages without a signature although there are keys, while keys are introduced
    #[arg(
        long = "nats-accept-unsigned", env = "DORMER_NATS_ACCEPT_UNSIGNED",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_unsigned: Option<bool>,

    /// Accept a server beyond loopback without TLS, without a login or without keys: anyone who reaches it then
    /// commands dormer
    #[arg(
        long = "nats-insecure", env = "DORMER_NATS_INSECURE",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,

    /// URL of the server's monitoring page, http://HOST:8222, which shows how it syncs
    #[arg(long = "nats-monitor", env = "DORMER_NATS_MONITOR", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<String>,

    /// User name for the server
    #[arg(long = "nats-user", env = "DORMER_NATS_USER", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,

    /// Password of the user; prefer the environment or the file to the command line
    #[arg(
        long = "nats-password",
        env = "DORMER_NATS_PASSWORD",
        hide_env_values = true,
        value_name = "SECRET"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,

    /// Token instead of user and password
    #[arg(
        long = "nats-token",
        env = "DORMER_NATS_TOKEN",
        hide_env_values = true,
        value_name = "SECRET"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,

    /// Credentials file (.creds) instead of user and password
    #[arg(
        long = "nats-credentials",
        env = "DORMER_NATS_CREDENTIALS",
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PathBuf>,

    /// File with CA certificates (PEM) to trust beside the system's
    #[arg(long = "nats-ca", env = "DORMER_NATS_CA", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,

    /// Client certificate (PEM), if the server requires one
    #[arg(
        long = "nats-certificate",
        env = "DORMER_NATS_CERTIFICATE",
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,

    /// Private key of the client certificate (PEM)
    #[arg(long = "nats-key", env = "DORMER_NATS_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

fn is_default<T: Default + PartialEq>(settings: &T) -> bool {
    *settings == T::default()
}

/// Merges two layers: a value of the upper one wins. One line per field.
macro_rules! over {
    ($upper:expr, $lower:expr; $($one:ident),*; $($many:ident),*) => {
        Self {
            $($one: $upper.$one.or($lower.$one),)*
            $($many: if $upper.$many.is_empty() { $lower.$many } else { $upper.$many },)*
            join: $upper.join.over($lower.join),
            nats: $upper.nats.over($lower.nats),
        }
    };
}

impl JoinSettings {
    fn over(self, lower: Self) -> Self {
        Self {
            api_url: self.api_url.or(lower.api_url),
            bootstrap_secret: self.bootstrap_secret.or(lower.bootstrap_secret),
            machine_tokens: self.machine_tokens.or(lower.machine_tokens),
            account_tokens: self.account_tokens.or(lower.account_tokens),
            client_ca: self.client_ca.or(lower.client_ca),
            service_cidr: self.service_cidr.or(lower.service_cidr),
            cluster_domain: self.cluster_domain.or(lower.cluster_domain),
        }
    }
}

impl NatsSettings {
    fn over(self, lower: Self) -> Self {
        Self {
            prefix: self.prefix.or(lower.prefix),
            replicas: self.replicas.or(lower.replicas),
            accept_lazy_sync: self.accept_lazy_sync.or(lower.accept_lazy_sync),
            keys: self.keys.or(lower.keys),
            accept_unsigned: self.accept_unsigned.or(lower.accept_unsigned),
            insecure: self.insecure.or(lower.insecure),
            monitor: self.monitor.or(lower.monitor),
            user: self.user.or(lower.user),
            password: self.password.or(lower.password),
            token: self.token.or(lower.token),
            credentials: self.credentials.or(lower.credentials),
            ca: self.ca.or(lower.ca),
            certificate: self.certificate.or(lower.certificate),
            key: self.key.or(lower.key),
        }
    }
}

impl Settings {
    /// Settings from a TOML file, whose keys are the flags' names.
    ///
    /// # Errors
    /// The file cannot be read; or the line and key that are wrong.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("--config {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("in --config {}", path.display()))
    }

    /// These settings, completed by the lower ones.
    pub fn over(self, lower: Self) -> Self {
        over!(self, lower;
            kubeconfig, context, store, host_program, host_program_sha256, namespace, machine_namespace,
            cluster_api_namespace, canary_namespace, canary_outbound, pool, private_key,
            private_key_secret, ssh_agent, ssh_port, slots, listen, authentication, audience, token_proxy, review_seconds, access_token, tls_certificate, tls_key, plaintext, login_link, audit_log, audit_required, history_keys,
            history_accept_unkeyed, name, payload_unsigned,
            otlp_endpoint, operator_condition;
            role, payload, payload_key, profile_layer, session_key, ssh_agent_key)
    }

    /// These settings, completed by the defaults.
    pub fn complete(self) -> Self {
        let elsewhere = self.private_key.is_some() || self.ssh_agent.is_some();
        let secret = (!elsewhere).then(|| KEY_SECRET.to_owned());
        self.over(Self {
            store: Some(STORE.into()),
            role: Role::ALL.into(),
            namespace: Some(pod_namespace().unwrap_or_else(|| NAMESPACE.into())),
            machine_namespace: Some(MACHINE_NAMESPACE.into()),
            cluster_api_namespace: Some(CLUSTER_API_NAMESPACE.into()),
            pool: Some(dormer_proto::pool::DEFAULT_POOL.into()),
            private_key_secret: secret,
            ssh_port: Some(22),
            slots: Some(256),
            listen: Some(LISTEN),
            review_seconds: Some(30),
            login_link: Some(LOGIN_LINK.into()),
            name: Some(process_name()),
            ..Self::default()
        })
    }

    /// Settings as an equivalent file, without secrets.
    ///
    /// # Errors
    /// A path that is not text.
    pub fn print(&self) -> anyhow::Result<String> {
        // A folder's name may have an `@`.
        let shown_store = |store: &str| match store.contains("://") {
            true => without_logins(store),
            false => store.to_owned(),
        };
        let shown = Self {
            store: self.store.as_deref().map(shown_store),
            ..self.clone()
        };
        Ok(toml::to_string(&shown)?)
    }
}

fn pod_namespace() -> Option<String> {
    let text = std::fs::read_to_string(POD_NAMESPACE).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

fn process_name() -> String {
    let given = std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty());
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = given.or_else(kernel).unwrap_or_else(|| "dormer".into());
    format!("{}-{}", host.trim(), std::process::id())
}
