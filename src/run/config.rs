//! Configuration of `dormer run`: flags, environment variables and a file, in this order of precedence, with checks
//! that they are consistent.

#[cfg(test)]
mod page;
mod settings;

pub use settings::{Authentication, NatsSettings, Role, Settings};

use anyhow::{Context, bail, ensure};
use dormer_api::access::audit::AuditTarget;
use dormer_nats::{history_keys::HistoryKeys, signing::Keys, without_logins};
use dormer_proto::pool::DEFAULT_POOL;
use dormer_views::secret::Secret;
use dormer_workers::{
    kubernetes::{Settings as Join, Tokens},
    payload_keys::PayloadKeys,
    ssh::is_fingerprint,
};
use settings::{JoinSettings, LISTEN};
use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// Most attempts at once in one process: each holds a connection and some memory.
const SLOTS_MAX: usize = 4_096;

/// Longest time that a granted right is cached, in seconds.
const REVIEW_SECONDS_MAX: u64 = 300;
/// Most keys of an ssh-agent: the present one and the one before.
const AGENT_KEYS_MAX: usize = 2;
/// Shortest access token, in bytes.
const ACCESS_TOKEN_MIN: usize = 16;
/// Shortest session key, in bytes.
const SESSION_KEY_MIN: usize = 32;
/// Most session keys: the present one and the previous one.
const SESSION_KEYS_MAX: usize = 2;

/// Location of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// A folder that exactly one process uses.
    Folder(PathBuf),
    /// NATS servers, by URL.
    Nats(String),
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Nats(servers) => f.write_str(&without_logins(servers)),
        }
    }
}

/// Location of the SSH private key for Windows hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyLocation {
    File(PathBuf),
    /// In a Secret of this name.
    Secret(String),
    /// In an ssh-agent: never in this process.
    Agent {
        socket: PathBuf,
        /// Fingerprints of the present key and of the one before, as far as they are named.
        keys: Vec<String>,
    },
}

/// Consistent settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Kubeconfig file from the flag.
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    pub context: Option<String>,
    /// Location of the history.
    pub store: StoreLocation,
    /// Roles of this process.
    pub roles: BTreeSet<Role>,
    /// Folders of payloads.
    pub payloads: Vec<PathBuf>,
    /// Keys whose payloads are used.
    pub payload_keys: PayloadKeys,
    /// Files of profile layers, topmost last.
    pub layers: Vec<PathBuf>,
    /// File with the program that works on hosts.
    pub host_program: Option<PathBuf>,
    /// SHA-256 that it must have, 64 lower-case hex digits.
    pub host_program_sha256: Option<String>,
    /// Namespace of dormer.
    pub namespace: String,
    /// Namespace of the Machines. `None`: all namespaces.
    pub machine_namespace: Option<String>,
    /// Namespace of Cluster API's machines; `None`: all namespaces.
    pub cluster_api_namespace: Option<String>,
    /// Namespace of canary pods; `None`: none is made.
    pub canary_namespace: Option<String>,
    /// What canary pods connect to outside of the cluster; `None`: it is not checked.
    pub canary_outbound: Option<String>,
    /// Name of the pool.
    pub pool: String,
    /// SSH private key for Windows hosts.
    pub key: KeyLocation,
    pub ssh_port: u16,
    /// Tasks executed at once.
    pub slots: usize,
    /// Listening address of the endpoints.
    pub listen: SocketAddr,
    /// Authentication and authorization mode.
    pub authentication: Authentication,
    /// Required audience of bearer tokens.
    pub audience: Option<String>,
    /// The one proxy that may forward a token of its caller's.
    pub token_proxy: Option<IpAddr>,
    /// How long a granted right is cached.
    pub review_kept_for: Duration,
    /// Bearer token for programs in token mode.
    pub access_token: Option<String>,
    /// File of the login link in token mode.
    pub login_link: PathBuf,
    /// Target of the audit, and whether actions are refused without it.
    pub audit: Option<(AuditTarget, bool)>,
    /// Keys that seal browser sessions, the present one first. Empty: a random key at each start.
    pub session_keys: Vec<String>,
    /// Certificate and key of the listener.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Name of this process.
    pub name: String,
    /// Collector of traces and metrics. `OTEL_*` variables may name one as well.
    pub otlp_endpoint: Option<String>,
    /// Name of this installation's OperatorCondition of the Operator Lifecycle Manager.
    pub operator_condition: Option<String>,
    /// Settings for kubelets that join.
    pub join: Join,
    /// Settings of the NATS connection.
    pub nats: NatsSettings,
    /// Keys that sign and verify messages over NATS.
    pub keys: Option<Arc<Keys>>,
    /// Keys of the history, if this process is an engine.
    pub history_keys: Option<Arc<HistoryKeys>>,
}

impl Config {
    /// Checks that the settings are consistent.
    ///
    /// # Errors
    ///
    /// One sentence: the inconsistency and its remedy.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let Settings {
            kubeconfig,
            context,
            payload,
            profile_layer,
            join,
            nats,
            ..
        } = settings.clone();
        let all = settings.complete();
        let roles: BTreeSet<Role> = all.role.iter().copied().collect();
        let key = key_location(&all)?;
        let store = store(&all.store.unwrap_or_default(), &roles)?;
        check_login(&nats)?;
        let mut keys = None;
        if let StoreLocation::Nats(servers) = &store {
            check_nats(&nats, servers)?;
            keys = read_keys(&nats, &roles)?;
        }
        let unkeyed = all.history_accept_unkeyed.unwrap_or_default();
        let keys_path = all.history_keys.filter(|_| roles.contains(&Role::Engine));
        let opened = keys_path.map(|path| HistoryKeys::open(&path, unkeyed));
        let history_keys = opened.transpose().context("--history-keys")?;
        let slots = slots(all.slots)?;
        check_pool(all.pool.as_deref())?;
        let listen = all.listen.unwrap_or(LISTEN);
        let authentication = all
            .authentication
            .unwrap_or(match listen.ip().is_loopback() {
                true => Authentication::Loopback,
                false => Authentication::Cluster,
            });
        check_access_token(all.access_token.as_ref())?;
        let session_keys = session_keys(&all.session_key)?;
        let tls = tls(all.tls_certificate, all.tls_key)?;
        ensure!(
            tls.is_some()
                || all.plaintext.unwrap_or_default()
                || listen.ip().to_canonical().is_loopback()
                || !roles.contains(&Role::Console),
            "--listen {listen} without TLS: anyone on the network can read the tokens and cookies \
             of callers. Give --tls-certificate and --tls-key, or --plaintext where a proxy in \
             front of dormer has TLS"
        );
        Ok(Self {
            kubeconfig,
            context,
            store,
            roles,
            payload_keys: payload_keys(
                &all.payload_key,
                all.payload_unsigned,
                !payload.is_empty(),
            )?,
            payloads: payload,
            layers: profile_layer,
            host_program_sha256: program_sum(all.host_program_sha256, all.host_program.is_some())?,
            host_program: all.host_program,
            namespace: all.namespace.unwrap_or_default(),
            machine_namespace: all.machine_namespace.filter(|name| name != "*"),
            cluster_api_namespace: all.cluster_api_namespace.filter(|name| name != "*"),
            canary_namespace: all.canary_namespace,
            canary_outbound: all.canary_outbound,
            pool: all.pool.unwrap_or_default(),
            key,
            ssh_port: all.ssh_port.unwrap_or_default(),
            slots,
            listen,
            authentication,
            audience: all.audience,
            token_proxy: all.token_proxy,
            review_kept_for: review_kept_for(all.review_seconds)?,
            access_token: all.access_token.map(|secret| secret.reveal().to_owned()),
            login_link: all.login_link.unwrap_or_default(),
            audit: audit(all.audit_log, all.audit_required)?,
            session_keys,
            tls,
            name: all.name.unwrap_or_default(),
            otlp_endpoint: all.otlp_endpoint,
            operator_condition: all.operator_condition,
            join: resolved(join)?,
            nats,
            keys,
            history_keys: history_keys.map(Arc::new),
        })
    }

    /// Whether this process has the role.
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

fn slots(number: Option<usize>) -> anyhow::Result<usize> {
    let slots = number.unwrap_or_default();
    ensure!(
        (1..=SLOTS_MAX).contains(&slots),
        "--slots {slots}: it must be 1 to {SLOTS_MAX}"
    );
    Ok(slots)
}

fn review_kept_for(seconds: Option<u64>) -> anyhow::Result<Duration> {
    let seconds = seconds.unwrap_or_default();
    ensure!(
        seconds <= REVIEW_SECONDS_MAX,
        "--review-seconds {seconds}: it must be at most {REVIEW_SECONDS_MAX}, because \
         a revoked right works until then"
    );
    Ok(Duration::from_secs(seconds))
}

fn check_access_token(token: Option<&Secret>) -> anyhow::Result<()> {
    let short = token.is_some_and(|it| it.reveal().len() < ACCESS_TOKEN_MIN);
    ensure!(
        !short,
        "--access-token: it needs at least {ACCESS_TOKEN_MIN} characters (openssl rand -hex \
         32 makes one)"
    );
    Ok(())
}

fn payload_keys(
    keys: &[String],
    unsigned: Option<bool>,
    are_payloads: bool,
) -> anyhow::Result<PayloadKeys> {
    let unsigned = unsigned.unwrap_or_default();
    ensure!(
        keys.is_empty() || !unsigned,
        "--payload-key and --payload-unsigned exclude each other: give only one"
    );
    ensure!(
        !are_payloads || unsigned || !keys.is_empty(),
        "--payload without --payload-key: anyone who can write to that folder would decide what hosts run. Sign \
         payload.yaml with minisign and give its public key with --payload-key, or accept unsigned payloads with \
         --payload-unsigned"
    );
    match unsigned {
        true => Ok(PayloadKeys::Unsigned),
        false => PayloadKeys::parse(keys).map_err(|why| anyhow::anyhow!("--payload-key: {why}")),
    }
}

fn key_location(all: &Settings) -> anyhow::Result<KeyLocation> {
    let keys = &all.ssh_agent_key;
    ensure!(
        all.ssh_agent.is_some() || keys.is_empty(),
        "--ssh-agent-key names a key of an ssh-agent: give its socket with --ssh-agent"
    );
    match (&all.private_key, &all.private_key_secret, &all.ssh_agent) {
        (Some(file), None, None) => Ok(KeyLocation::File(file.clone())),
        (None, Some(secret), None) => Ok(KeyLocation::Secret(secret.clone())),
        (None, None, Some(socket)) => {
            ensure!(
                keys.len() <= AGENT_KEYS_MAX,
                "--ssh-agent-key: give at most {AGENT_KEYS_MAX}, the present one and the one before"
            );
            let other = keys.iter().find(|key| !is_fingerprint(key));
            if let Some(key) = other {
                bail!("--ssh-agent-key {key}: it must be SHA256:…, as ssh-add -l prints it");
            }
            Ok(KeyLocation::Agent {
                socket: socket.clone(),
                keys: keys.clone(),
            })
        }
        (None, None, None) => bail!(
            "no private key for Windows hosts is given: set --private-key, --private-key-secret or --ssh-agent"
        ),
        _ => bail!(
            "--private-key, --private-key-secret and --ssh-agent exclude each other: give only one"
        ),
    }
}

fn tls(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => {
            bail!("--tls-certificate and --tls-key: give both or neither")
        }
    }
}

fn store(text: &str, roles: &BTreeSet<Role>) -> anyhow::Result<StoreLocation> {
    let first = text.split(',').next().unwrap_or_default().trim();
    match first.split_once("://") {
        Some(("nats" | "tls" | "ws" | "wss", _)) => Ok(StoreLocation::Nats(text.to_owned())),
        Some((scheme, _)) => bail!("--store {scheme}://…: it must be a folder or nats://HOST:PORT"),
        None if text.is_empty() => bail!("--store: it must be a folder or nats://HOST:PORT"),
        None => {
            let missing = [Role::Watcher, Role::Engine, Role::Worker, Role::Approver];
            ensure!(
                missing.iter().all(|role| roles.contains(role)),
                "--role with the store in {text}: one process owns a folder and needs the roles \
                 watcher, engine, worker and approver, because their queues are in its memory. Remove \
                 --role, or put the store on NATS (--store nats://HOST:PORT) to split the roles \
                 over pods"
            );
            Ok(StoreLocation::Folder(PathBuf::from(text)))
        }
    }
}

fn program_sum(sum: Option<String>, program: bool) -> anyhow::Result<Option<String>> {
    let Some(sum) = sum.map(|sum| sum.trim().to_ascii_lowercase()) else {
        return Ok(None);
    };
    ensure!(
        sum.len() == 64 && sum.bytes().all(|it| it.is_ascii_hexdigit()),
        "--host-program-sha256 {sum}: it must be 64 hex digits (sha256sum FILE prints them)"
    );
    ensure!(
        program,
        "--host-program-sha256: name the file by --host-program"
    );
    Ok(Some(sum))
}

fn audit(
    place: Option<PathBuf>,
    required: Option<bool>,
) -> anyhow::Result<Option<(AuditTarget, bool)>> {
    let Some(place) = place else {
        ensure!(
            required != Some(true),
            "--audit-required: name the place by --audit-log"
        );
        return Ok(None);
    };
    let place = match place.as_os_str() == "-" {
        true => AuditTarget::Output,
        false => AuditTarget::File(place),
    };
    Ok(Some((place, required.unwrap_or(true))))
}

fn session_keys(keys: &[Secret]) -> anyhow::Result<Vec<String>> {
    // A trailing newline in a Secret's value is not part of the key.
    let keys: Vec<String> = keys
        .iter()
        .map(|key| key.reveal().trim().to_owned())
        .collect();
    ensure!(
        keys.iter().all(|key| key.len() >= SESSION_KEY_MIN),
        "--session-key: each needs at least {SESSION_KEY_MIN} characters (openssl rand -hex 32 \
         makes one)"
    );
    ensure!(
        keys.len() <= SESSION_KEYS_MAX,
        "--session-key: give at most {SESSION_KEYS_MAX}, the present one and the previous one"
    );
    Ok(keys)
}

/// Join settings in the form of the worker's executors.
///
/// # Errors
/// A name with too few or too many parts.
fn resolved(settings: JoinSettings) -> anyhow::Result<Join> {
    let mut join = Join {
        api_url: settings.api_url,
        ..Join::default()
    };
    join.service_cidr = settings.service_cidr;
    join.cluster_domain = settings.cluster_domain.unwrap_or(join.cluster_domain);
    let of_account = settings.account_tokens.unwrap_or_default();
    join.tokens = match (settings.machine_tokens.unwrap_or_default(), of_account) {
        (true, true) => bail!(
            "--machine-tokens and --account-tokens exclude each other: a machine has one token"
        ),
        (true, false) => Tokens::Bootstrap,
        (false, true) => Tokens::Account,
        (false, false) => Tokens::Shared,
    };
    ensure!(
        join.tokens == Tokens::Shared || settings.bootstrap_secret.is_none(),
        "--bootstrap-secret excludes --machine-tokens and --account-tokens: use a token for each \
         machine, or one for all"
    );
    if let Some(text) = settings.bootstrap_secret {
        let parts = text.split_once('/').filter(|(_, name)| !name.contains('/'));
        let (namespace, name) =
            parts.with_context(|| format!("--bootstrap-secret {text}: NAMESPACE/NAME"))?;
        join.bootstrap = (namespace.into(), name.into());
    }
    if let Some(text) = settings.client_ca {
        let parts: Vec<&str> = text.split('/').collect();
        let [namespace, name, key] = parts[..] else {
            bail!("--client-ca {text}: NAMESPACE/NAME/KEY")
        };
        join.client_ca = (namespace.into(), name.into(), key.into());
    }
    Ok(join)
}

/// Refuses a pool that cannot exist: the API server refuses a WindowsPool of another name, so no lease would be granted.
fn check_pool(name: Option<&str>) -> anyhow::Result<()> {
    if let Some(name) = name.filter(|name| *name != DEFAULT_POOL) {
        bail!(
            "--pool {name}: there is one pool, and its name is {DEFAULT_POOL}. A second dormer needs a namespace of its own"
        );
    }
    Ok(())
}

/// Refuses a server beyond loopback that admits every client, or whose connection is not protected against reading and
/// changes: its messages are orders for hosts and nodes.
fn check_nats(nats: &NatsSettings, servers: &str) -> anyhow::Result<()> {
    let login = nats.user.is_some()
        || nats.token.is_some()
        || nats.credentials.is_some()
        || nats.certificate.is_some();
    for server in servers.split(',').map(str::trim) {
        let (scheme, rest) = server.split_once("://").unwrap_or(("nats", server));
        let (user, place) = match rest.rsplit_once('@') {
            Some((_, place)) => (true, place),
            None => (false, rest),
        };
        let lacks = match () {
            () if is_here(place) || nats.insecure.unwrap_or_default() => continue,
            () if !matches!(scheme, "tls" | "wss") && nats.ca.is_none() => {
                "TLS: write tls://HOST:PORT, or name its CA with --nats-ca"
            }
            () if !login && !user => {
                "a login: --nats-user, --nats-token, --nats-credentials or --nats-certificate"
            }
            () if nats.keys.is_none() => {
                "keys: make them with `dormer keys make`, and name their folder with --nats-keys"
            }
            () if nats.accept_unsigned.unwrap_or_default() => {
                "signatures while --nats-accept-unsigned is there"
            }
            () => continue,
        };
        bail!(
            "--store {scheme}://{place} lacks {lacks}. Anyone who reaches such a server commands \
             dormer; --nats-insecure accepts that"
        );
    }
    Ok(())
}

/// Reads the private keys of this process's roles, and the public keys of all.
fn read_keys(nats: &NatsSettings, roles: &BTreeSet<Role>) -> anyhow::Result<Option<Arc<Keys>>> {
    let unsigned = nats.accept_unsigned.unwrap_or_default();
    let Some(folder) = &nats.keys else {
        ensure!(!unsigned, "--nats-accept-unsigned needs --nats-keys");
        return Ok(None);
    };
    let roles: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
    let keys = Keys::open(folder, &roles, unsigned).context("--nats-keys")?;
    check_public_keys(&keys).context("--nats-keys: the public keys")?;
    Ok(Some(Arc::new(keys)))
}

/// Refuses public keys of roles that dormer does not have, and roles without a key: nothing of theirs would be taken.
fn check_public_keys(keys: &Keys) -> anyhow::Result<()> {
    let roles = Role::ALL;
    let there = keys.roles();
    let unknown = there
        .iter()
        .find(|word| roles.iter().all(|role| role.as_str() != **word));
    if let Some(word) = unknown {
        let known: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        bail!("dormer has no role `{word}`; it has {}", known.join(", "));
    }
    let without = roles.iter().find(|role| !there.contains(role.as_str()));
    if let Some(role) = without {
        bail!(
            "the role {role} has no key, so nothing of it would be taken: make them with \
             `dormer keys make --output NEW --keep OLD/public.keys`",
            role = role.as_str()
        );
    }
    Ok(())
}

/// Whether `HOST:PORT` is this computer.
fn is_here(place: &str) -> bool {
    let place = place.split('/').next().unwrap_or_default();
    let host = match place.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => place,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>();
    bare.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|it| it.to_canonical().is_loopback())
}

fn check_login(nats: &NatsSettings) -> anyhow::Result<()> {
    let sources = [
        nats.user.is_some(),
        nats.token.is_some(),
        nats.credentials.is_some(),
    ];
    ensure!(
        sources.iter().filter(|given| **given).count() <= 1,
        "--nats-user, --nats-token and --nats-credentials exclude each other: give only one"
    );
    ensure!(
        nats.user.is_some() == nats.password.is_some(),
        "--nats-user and --nats-password: give both or neither"
    );
    ensure!(
        nats.certificate.is_some() == nats.key.is_some(),
        "--nats-certificate and --nats-key: give both or neither"
    );
    ensure!(
        nats.credentials.is_none() || cfg!(feature = "nats-creds"),
        "--nats-credentials: this build cannot read credentials files (it lacks the feature nats-creds)"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use dormer_nats::signing::make;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).expect("settings")
    }

    fn refusal(text: &str) -> String {
        let why = Config::new(settings(text)).expect_err("a refusal");
        format!("{why:#}")
    }

    #[test]
    fn an_audit_is_required_where_one_is_kept_unless_said_otherwise() {
        let of = |text: &str| Config::new(settings(text)).expect("a configuration").audit;
        assert_eq!(of(""), None);
        assert_eq!(of("audit-log = '-'"), Some((AuditTarget::Output, true)));
        let file = AuditTarget::File("a/b".into());
        let lax = "audit-log = 'a/b'\naudit-required = false";
        assert_eq!(of(lax), Some((file, false)));
        assert!(refusal("audit-required = true").contains("--audit-log"));
    }

    #[test]
    fn a_sum_of_the_host_program_is_one_and_has_a_program() {
        let sum = "Ab".repeat(32);
        let text = format!("host-program = 'f'\nhost-program-sha256 = '{sum}'");
        let config = Config::new(settings(&text)).expect("a configuration");
        assert_eq!(config.host_program_sha256, Some("ab".repeat(32)));
        let alone = format!("host-program-sha256 = '{sum}'");
        assert!(refusal(&alone).contains("--host-program"));
        assert!(refusal("host-program-sha256 = 'abc'").contains("64 hex digits"));
    }

    #[test]
    fn payloads_need_a_key_or_the_word_that_they_have_none() {
        let key = "payload-key = ['RWSTP/jCGkh8TMB1thTmpyb28qo9J9hCqDMi9M3TR6D73oOg18MtgdUI']";
        let unsigned = "payload-unsigned = true";
        for (text, says) in [
            ("payload = ['p']", "--payload-unsigned"),
            ("payload = ['p']\npayload-unsigned = false", "--payload-key"),
            (
                "payload = ['p']\npayload-key = ['minisign.pub']",
                "begins with RW",
            ),
            (
                &format!("payload = ['p']\n{key}\n{unsigned}"),
                "give only one",
            ),
        ] {
            assert!(refusal(text).contains(says), "{text}: {}", refusal(text));
        }
        for text in [key, unsigned] {
            Config::new(settings(&format!("payload = ['p']\n{text}"))).expect("a configuration");
        }
        // An engine has no payloads.
        Config::new(settings("")).expect("a configuration");
    }

    #[test]
    fn upper_settings_win_and_lower_ones_fill_the_gaps() {
        let flags = settings("store = 'here'\n[nats]\nuser = 'a'");
        let file = settings(
            "store = 'there'\nslots = 7\npayload = ['p']\n[nats]\nuser = 'b'\nprefix = 'x'",
        );
        let both = flags.over(file);
        assert_eq!((both.store.as_deref(), both.slots), (Some("here"), Some(7)));
        assert_eq!(both.payload, [PathBuf::from("p")]);
        assert_eq!(
            (both.nats.user.as_deref(), both.nats.prefix.as_deref()),
            (Some("a"), Some("x"))
        );
    }

    #[test]
    fn defaults_make_one_process_with_every_role() {
        let config = Config::new(Settings::default()).expect("a configuration");
        assert_eq!(config.store, StoreLocation::Folder("dormer-store".into()));
        assert_eq!(config.roles.len(), 5);
        assert_eq!(config.key, KeyLocation::Secret("cloud-private-key".into()));
        assert_eq!((config.ssh_port, config.pool.as_str()), (22, "windows"));
        assert!(
            config.listen.ip().is_loopback(),
            "nobody else is let in unasked"
        );
        assert_eq!(config.authentication, Authentication::Loopback);
        let wide = Config::new(settings("listen = '0.0.0.0:7080'\nplaintext = true"))
            .expect("a configuration");
        assert_eq!(
            wide.authentication,
            Authentication::Cluster,
            "a process that others reach asks who they are"
        );
    }

    #[test]
    fn a_key_in_an_agent_is_no_key_in_a_secret_or_a_file() {
        let agent = "ssh-agent = '/run/agent'";
        let of = |text: &str| Config::new(settings(text)).expect("a configuration").key;
        let socket = PathBuf::from("/run/agent");
        let keys = Vec::new();
        assert_eq!(
            of(agent),
            KeyLocation::Agent {
                socket: socket.clone(),
                keys
            }
        );
        let named = format!("{agent}\nssh-agent-key = ['SHA256:a', 'SHA256:b']");
        let keys = vec!["SHA256:a".to_owned(), "SHA256:b".to_owned()];
        assert_eq!(of(&named), KeyLocation::Agent { socket, keys });
        for (text, says) in [
            (&*format!("{agent}\nprivate-key = 'k'"), "give only one"),
            (
                &format!("{agent}\nprivate-key-secret = 'k'"),
                "give only one",
            ),
            (
                &format!("{agent}\nssh-agent-key = ['a', 'b', 'c']"),
                "the one before",
            ),
            (
                &format!("{agent}\nssh-agent-key = ['id.pub']"),
                "ssh-add -l",
            ),
            ("ssh-agent-key = ['SHA256:a']", "--ssh-agent"),
        ] {
            assert!(refusal(text).contains(says), "{text}: {}", refusal(text));
        }
        let printed = settings(agent).complete().print().expect("a file");
        assert!(!printed.contains("private-key-secret"), "{printed}");
        settings(&printed);
    }

    #[test]
    fn a_folder_with_some_roles_is_refused_with_the_reason() {
        assert!(refusal("role = ['worker']").contains("one process owns a folder"));
        let split = settings(
            "role = ['worker']\nstore = 'nats://n1:4222,nats://n2:4222'\n[nats]\ninsecure = true",
        );
        let config = Config::new(split).expect("a configuration");
        assert!(config.is(Role::Worker) && !config.is(Role::Engine));
        assert!(refusal("store = 'postgres://db'").contains("nats://HOST:PORT"));
    }

    #[test]
    fn beyond_loopback_nothing_is_served_or_joined_in_plain_unless_a_person_says_so() {
        assert!(refusal("listen = '0.0.0.0:7080'").contains("without TLS"));
        let engine = "listen = '0.0.0.0:7080'\nrole = ['engine']\nstore = 'nats://[::1]:4222'";
        Config::new(settings(engine)).expect("an engine has no callers, and NATS is here");
        let tls = "listen = '[::]:7080'\ntls-certificate = 'c'\ntls-key = 'k'";
        Config::new(settings(tls)).expect("over TLS");

        let store = |store: &str, nats: &str| {
            Config::new(settings(&format!("store = '{store}'\n[nats]\n{nats}")))
                .map(drop)
                .map_err(|why| why.to_string())
        };
        let user = "user = 'a'\npassword = 'p'";
        for (url, nats, lacks) in [
            ("nats://nats:4222", "", "lacks TLS"),
            ("nats://nats:4222", user, "lacks TLS"),
            ("nats://a:p@nats:4222", "", "lacks TLS"),
            ("nats://127.0.0.1:4222,nats://nats:4222", user, "lacks TLS"),
            ("nats://127.0.0.1.example:4222", user, "lacks TLS"),
            ("tls://nats:4222", "", "lacks a login"),
            ("nats://nats", "ca = 'ca.crt'", "lacks a login"),
            ("tls://nats:4222", user, "lacks keys"),
        ] {
            let why = store(url, nats).expect_err(url);
            assert!(
                why.contains(lacks) && why.contains("--nats-insecure"),
                "{url}: {why}"
            );
            assert!(!why.contains(":p@"), "{why}");
            let insecure = format!("{nats}\ninsecure = true");
            assert_eq!(store(url, &insecure), Ok(()), "{url}");
        }
        for (url, nats) in [
            ("nats://127.0.0.1:4222", ""),
            ("nats://localhost", ""),
            ("nats://[::ffff:127.0.0.1]:4222", ""),
        ] {
            assert_eq!(store(url, nats), Ok(()), "{url}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("keys");
        let roles = Role::value_variants().iter().map(|role| role.as_str());
        make(&folder, &roles.collect::<Vec<_>>(), None).expect("keys");
        for (url, nats) in [
            ("tls://nats:4222", user),
            ("tls://a:p@nats:4222", ""),
            ("nats://nats:4222", "ca = 'ca.crt'\ntoken = 't'"),
            ("tls://nats:4222", "certificate = 'c'\nkey = 'k'"),
        ] {
            let keys = format!("{nats}\nkeys = '{}'", folder.display());
            assert_eq!(store(url, &keys), Ok(()), "{url}");
            let lax = format!("{keys}\naccept-unsigned = true");
            let why = store(url, &lax).expect_err("a refusal");
            assert!(why.contains("--nats-accept-unsigned") && why.contains("--nats-insecure"));
            assert_eq!(store(url, &format!("{lax}\ninsecure = true")), Ok(()));
        }
        for (roles, says) in [
            (
                &["watcher", "engine", "worker", "console"][..],
                "the role approver has no key",
            ),
            (
                &[
                    "watcher", "engine", "worker", "approver", "console", "enigne",
                ],
                "no role `enigne`",
            ),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let folder = folder.path().join("keys");
            make(&folder, roles, None).expect("keys");
            let nats = format!("[nats]\nkeys = '{}'", folder.display());
            let engine = format!("role = ['engine']\nstore = 'nats://[::1]:4222'\n{nats}");
            let why = refusal(&engine);
            assert!(why.contains(says), "{why}");
        }
        let missing = store("nats://[::1]:4222", "keys = '/no/such/folder'");
        let why = missing.expect_err("a refusal");
        assert!(why.contains("--nats-keys"), "{why}");
        let alone = store("nats://[::1]:4222", "accept-unsigned = true");
        assert!(alone.expect_err("a refusal").contains("--nats-keys"));
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        assert!(refusal("slots = 0").contains("--slots"));
        assert!(refusal("pool = 'blue'").contains("there is one pool, and its name is windows"));
        settings("pool = 'windows'");
        assert!(refusal("[nats]\nuser = 'a'").contains("--nats-password"));
        assert!(
            refusal("[nats]\ntoken = 't'\nuser = 'a'\npassword = 'p'").contains("give only one")
        );
        assert!(refusal("[join]\nclient-ca = 'a/b'").contains("NAMESPACE/NAME/KEY"));
        let both = "[join]\nmachine-tokens = true\nbootstrap-secret = 'a/b'";
        assert!(refusal(both).contains("a token for each machine, or one for all"));
        let both = "[join]\naccount-tokens = true\nbootstrap-secret = 'a/b'";
        assert!(refusal(both).contains("a token for each machine, or one for all"));
        let both = "[join]\naccount-tokens = true\nmachine-tokens = true";
        assert!(refusal(both).contains("a machine has one token"));
        assert!(refusal("review-seconds = 900").contains("--review-seconds"));
        assert!(refusal("access-token = 'short'").contains("--access-token"));
        assert!(refusal("session-key = ['short']").contains("--session-key"));
        let three = format!("session-key = ['{0}', '{0}', '{0}']", "k".repeat(32));
        assert!(refusal(&three).contains("the previous one"));
        assert!(refusal("tls-key = 'k.pem'").contains("give both or neither"));
        let unknown = toml::from_str::<Settings>("slotz = 3")
            .expect_err("no such key")
            .to_string();
        assert!(
            unknown.contains("slotz") && unknown.contains("line 1"),
            "{unknown}"
        );
    }

    #[test]
    fn a_login_in_the_stores_address_is_in_no_log_and_not_printed() {
        let url = "nats://a:s3cret@127.0.0.1:4222,b:t0ken@127.0.0.2";
        let shown = "nats://***@127.0.0.1:4222,***@127.0.0.2";
        assert_eq!(StoreLocation::Nats(url.into()).to_string(), shown);
        let printed = settings(&format!("store = '{url}'")).print();
        let printed = printed.expect("a file");
        assert!(printed.contains(shown), "{printed}");
        assert!(!printed.contains("s3cret") && !printed.contains("t0ken"));
        let folder = StoreLocation::Folder("/srv/win@site".into());
        assert_eq!(folder.to_string(), "/srv/win@site");
        let printed = settings("store = '/srv/win@site'").print();
        let read = settings(&printed.expect("a file"));
        assert_eq!(read.store.as_deref(), Some("/srv/win@site"));
    }

    #[test]
    fn what_is_printed_can_be_read_again_and_says_no_secret() {
        let text = "slots = 9\nprivate-key = 'k.pem'\n[nats]\nuser = 'a'\npassword = 's3cret'";
        let printed = settings(text).complete().print().expect("a file");
        assert!(
            printed.contains("slots = 9") && printed.contains("password = \"***\""),
            "{printed}"
        );
        assert!(
            !printed.contains("s3cret") && !printed.contains("private-key-secret"),
            "{printed}"
        );
        settings(&printed);
    }
}
