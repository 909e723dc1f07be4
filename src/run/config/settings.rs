//! Every setting by its flag, its variable and its place in the file, and how they are laid over each other.

use anyhow::Context;
use clap::{Args, ValueEnum};
use dormer_views::secret::Secret;
use serde::{Deserialize, Serialize};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// The port that health, readiness and the console listen on.
pub(super) const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7080);
/// The folder of the embedded store, unless told otherwise.
const STORE: &str = "dormer-store";
/// The Secret with the key for Windows hosts, as WMCO has it.
const KEY_SECRET: &str = "cloud-private-key";
/// dormer's namespace where it runs in no pod. Never WMCO's: its Secret and its machines are its own.
const NAMESPACE: &str = "dormer";
/// Where Machines are on OpenShift.
const MACHINE_NAMESPACE: &str = "openshift-machine-api";
/// The namespace of the pod that we run in.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// What a process may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Tells how the cluster's objects stand
    Watcher,
    /// Decides, and keeps the history
    Engine,
    /// Does what the engine asks, over SSH and at the Kubernetes API
    Worker,
    /// Answers people: HTTP API and web pages
    Console,
}

/// Who says who may look and act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authentication {
    /// Nobody: everybody may do everything, and something in front of dormer must know who may
    None,
    /// Everybody may look; actions are taken from this machine or pod, which includes kubectl port-forward
    Loopback,
    /// Whoever opens the printed link, which works once, or sends the access token
    Token,
    /// The cluster: TokenReview for who asks, SubjectAccessReview on dormer.io for what they may
    Cluster,
}

/// Every setting, each from a flag, from its variable, or from the file under the flag's name.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// A kubeconfig file; without one $KUBECONFIG, ~/.kube/config, or the pod's own account
    #[arg(long, env = "DORMER_KUBECONFIG", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,

    /// The context in the kubeconfig; without one its current context
    #[arg(long, env = "DORMER_CONTEXT", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,

    /// Where the history is: a folder, which belongs to one process [default: dormer-store], or a NATS server,
    /// nats://HOST:PORT or tls://…, several with commas between them
    #[arg(long, env = "DORMER_STORE", value_name = "DIR|URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,

    /// What this process does, several with commas between them [default: all]; some of them only with NATS
    #[arg(
        long = "role",
        env = "DORMER_ROLE",
        value_delimiter = ',',
        value_name = "ROLE"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub role: Vec<Role>,

    /// A folder with a payload, what is installed on hosts (may be given several times)
    #[arg(
        long,
        env = "DORMER_PAYLOAD",
        value_delimiter = ',',
        value_name = "DIR"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub payload: Vec<PathBuf>,

    /// A file that is laid over the built-in profile (may be given several times, later ones on top)
    #[arg(
        long,
        env = "DORMER_PROFILE_LAYER",
        value_delimiter = ',',
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile_layer: Vec<PathBuf>,

    /// The namespace of the WindowsPool, of the key's Secret and of the watchers' Lease [default: the pod's own, else
    /// dormer]
    #[arg(long, env = "DORMER_NAMESPACE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// The namespace of Machines and MachineSets; `*` is every namespace [default: openshift-machine-api]
    #[arg(long, env = "DORMER_MACHINE_NAMESPACE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_namespace: Option<String>,

    /// The pool of machines that are upgraded together [default: windows]
    #[arg(long, env = "DORMER_POOL", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,

    /// A file with the private key for Windows hosts; without one it is read from the Secret when it is needed
    #[arg(long, env = "DORMER_PRIVATE_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<PathBuf>,

    /// The Secret with that key under private-key.pem [default: cloud-private-key]
    #[arg(long, env = "DORMER_PRIVATE_KEY_SECRET", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key_secret: Option<String>,

    /// The port of SSH on Windows hosts [default: 22]
    #[arg(long, env = "DORMER_SSH_PORT", value_name = "PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_port: Option<u16>,

    /// Tasks at once in this process, at most 4096 [default: 256]
    #[arg(long, env = "DORMER_SLOTS", value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<usize>,

    /// Where health, readiness and the console listen [default: 127.0.0.1:7080]
    #[arg(long, env = "DORMER_LISTEN", value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,

    /// Who says who may look and act [default: loopback on a loopback address, else cluster]
    #[arg(long, env = "DORMER_AUTHENTICATION", value_enum, value_name = "HOW")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
    /// With --authentication cluster: the audience that tokens must be made for [default: the API server's own]
    #[arg(long, env = "DORMER_AUDIENCE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// With --authentication cluster: how many seconds a yes of the API server is remembered, at most 300 [default: 30]
    #[arg(long, env = "DORMER_REVIEW_SECONDS", value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review_seconds: Option<u64>,
    /// With --authentication token: the bearer token that programs send; better in the environment or the file than on
    /// the command line
    #[arg(
        long,
        env = "DORMER_ACCESS_TOKEN",
        hide_env_values = true,
        value_name = "SECRET"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<Secret>,
    /// What browsers' sessions are sealed with, the same in every console, so that whichever is asked knows them and a
    /// restart logs nobody out: at least 32 random characters (openssl rand -hex 32). A second, after a comma, is only
    /// opened with: deploy/people.yaml says how it is changed. Better in the environment or the file than on the
    /// command line [default: drawn at each start]
    #[arg(
        long,
        env = "DORMER_SESSION_KEY",
        hide_env_values = true,
        value_delimiter = ',',
        value_name = "SECRET"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub session_key: Vec<Secret>,
    /// Our certificate (PEM): health, metrics, API and console are then answered over TLS
    #[arg(long, env = "DORMER_TLS_CERTIFICATE", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    /// That certificate's key (PEM)
    #[arg(long, env = "DORMER_TLS_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,

    /// This process' name among all of dormer's, such as its pod's name [default: host name and process id]
    #[arg(long, env = "DORMER_NAME", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// A collector that takes traces and metrics by OTLP over HTTP (protobuf): http://HOST:PORT or https://HOST:PORT.
    /// OpenTelemetry's own variables work, too (OTEL_EXPORTER_OTLP_ENDPOINT, ..._HEADERS, ..._CERTIFICATE): see
    /// docs/telemetry.md [default: OTEL_EXPORTER_OTLP_ENDPOINT, else none]
    #[arg(long, env = "DORMER_OTLP_ENDPOINT", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,

    /// The OperatorCondition of this installation, whose condition Upgradeable the console writes [the Operator
    /// Lifecycle Manager sets the variable]
    #[arg(long, env = "OPERATOR_CONDITION_NAME", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_condition: Option<String>,

    #[command(flatten)]
    #[serde(skip_serializing_if = "is_default")]
    /// How kubelets join the cluster.
    pub join: JoinSettings,

    #[command(flatten)]
    #[serde(skip_serializing_if = "is_default")]
    /// How a NATS store is reached.
    pub nats: NatsSettings,
}

/// How kubelets join; in the file a table `[join]`. What is left away is read from the cluster.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "How kubelets join")]
pub struct JoinSettings {
    /// The API server's URL as nodes reach it [default: OpenShift's apiServerInternalURI]
    #[arg(long, env = "DORMER_API_URL", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,

    /// The Secret with a bootstrap `token` and the API server's `ca.crt` [default:
    /// openshift-machine-config-operator/node-bootstrapper-token]
    #[arg(long, env = "DORMER_BOOTSTRAP_SECRET", value_name = "NAMESPACE/NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_secret: Option<String>,

    /// Makes each machine a bootstrap token of its own in kube-system, which ends with its joining, in place of one
    /// for all. For plain Kubernetes, with the rules of deploy/machine-tokens.yaml
    #[arg(
        long, env = "DORMER_MACHINE_TOKENS",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_tokens: Option<bool>,

    /// The ConfigMap and its key with the authority of client certificates [default:
    /// kube-system/extension-apiserver-authentication/client-ca-file]
    #[arg(long, env = "DORMER_CLIENT_CA", value_name = "NAMESPACE/NAME/KEY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<String>,

    /// The services' network [default: what OpenShift's network configuration says]
    #[arg(long, env = "DORMER_SERVICE_CIDR", value_name = "CIDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_cidr: Option<String>,

    /// The cluster's domain [default: cluster.local]
    #[arg(long, env = "DORMER_CLUSTER_DOMAIN", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_domain: Option<String>,
}

/// How a NATS store is reached; in the file a table `[nats]`, without the prefix `nats-`.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "With a NATS store")]
pub struct NatsSettings {
    /// What subjects and streams begin with, where several stores share an account [default: dormer]
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

    /// Accept a server that syncs lazily: the newest history may be lost when all its replicas stop
    #[arg(
        long = "nats-accept-lazy-sync", env = "DORMER_NATS_ACCEPT_LAZY_SYNC",
        num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_lazy_sync: Option<bool>,

    /// The server's monitoring page, http://HOST:8222, which tells how it syncs
    #[arg(long = "nats-monitor", env = "DORMER_NATS_MONITOR", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<String>,

    /// A user of the server
    #[arg(long = "nats-user", env = "DORMER_NATS_USER", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,

    /// The user's password; better in the environment or the file than on the command line
    #[arg(
        long = "nats-password",
        env = "DORMER_NATS_PASSWORD",
        hide_env_values = true,
        value_name = "SECRET"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,

    /// A token in place of user and password
    #[arg(
        long = "nats-token",
        env = "DORMER_NATS_TOKEN",
        hide_env_values = true,
        value_name = "SECRET"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,

    /// A credentials file (.creds) in place of user and password; in builds with the feature nats-creds
    #[arg(
        long = "nats-credentials",
        env = "DORMER_NATS_CREDENTIALS",
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PathBuf>,

    /// Authorities (PEM) to trust beside the system's
    #[arg(long = "nats-ca", env = "DORMER_NATS_CA", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,

    /// Our certificate (PEM), where the server wants one
    #[arg(
        long = "nats-certificate",
        env = "DORMER_NATS_CERTIFICATE",
        value_name = "FILE"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,

    /// That certificate's key (PEM)
    #[arg(long = "nats-key", env = "DORMER_NATS_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

fn is_default<T: Default + PartialEq>(settings: &T) -> bool {
    *settings == T::default()
}

/// The upper settings where they say something, else the lower ones; one line a field.
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
    /// The file cannot be read, or line and key that are wrong.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("in {}", path.display()))
    }

    /// These settings, and the lower ones where these say nothing.
    pub fn over(self, lower: Self) -> Self {
        over!(self, lower;
            kubeconfig, context, store, namespace, machine_namespace, pool, private_key, private_key_secret,
            ssh_port, slots, listen, authentication, audience, review_seconds, access_token, tls_certificate, tls_key, name,
            otlp_endpoint, operator_condition;
            role, payload, profile_layer, session_key)
    }

    /// These settings, and the defaults where they say nothing.
    pub fn complete(self) -> Self {
        let secret = self.private_key.is_none().then(|| KEY_SECRET.to_owned());
        let roles = [Role::Watcher, Role::Engine, Role::Worker, Role::Console];
        self.over(Self {
            store: Some(STORE.into()),
            role: roles.into(),
            namespace: Some(pod_namespace().unwrap_or_else(|| NAMESPACE.into())),
            machine_namespace: Some(MACHINE_NAMESPACE.into()),
            pool: Some(dormer_proto::pool::DEFAULT_POOL.into()),
            private_key_secret: secret,
            ssh_port: Some(22),
            slots: Some(256),
            listen: Some(LISTEN),
            review_seconds: Some(30),
            name: Some(process_name()),
            ..Self::default()
        })
    }

    /// The settings as a file that says the same, without its secrets.
    ///
    /// # Errors
    /// A path that is not text.
    pub fn print(&self) -> anyhow::Result<String> {
        Ok(toml::to_string(self)?)
    }
}

fn pod_namespace() -> Option<String> {
    let text = std::fs::read_to_string(POD_NAMESPACE).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

fn process_name() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.unwrap_or_else(|| "dormer".into());
    format!("{}-{}", host.trim(), std::process::id())
}
