//! A real control plane of Kubernetes: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
//!
//! As strict as a cluster in use: RBAC and the Node authorizer decide, `NodeRestriction` is on, every client
//! shows a certificate or a token, and the controller manager signs what is approved. Nodes are made by tests.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::certs::{Identity, TestCa};
use crate::etcd::Etcd;
use crate::https::Https;
use crate::minor::Kubernetes;
use crate::process::{Process, ProcessSpec};
use crate::skip::{Skipped, Start};
use crate::{block_until, free_port, source, test_dir};

/// The folder under `tests/servers` that pins OpenShift's API, and so its CRDs.
const OPENSHIFT: &str = "openshift-api-20260511";

/// The folder that pins the Prometheus Operator, and so its CRDs.
const MONITORING: &str = "prometheus-operator-0.90.1";

/// Address of the Service `kubernetes`: the first of the Services' network.
pub(crate) const SERVICE: &str = "10.96.0.1";

/// A control plane is up in about ten seconds; a busy machine gets this much for each of its servers.
const START_MAX: Duration = Duration::from_secs(120);
/// Most retries after another process took the port between our check and the server's bind.
const PORT_TRIES: usize = 3;

/// What of the controller manager runs: what dormer meets, and nothing that would change nodes without a kubelet.
const CONTROLLERS: &str = "bootstrap-signer-controller,certificatesigningrequest-approving-controller,\
certificatesigningrequest-signing-controller,daemonset-controller,deployment-controller,\
disruption-controller,garbage-collector-controller,namespace-controller,persistentvolume-binder-controller,\
replicaset-controller,root-ca-certificate-publisher-controller,serviceaccount-controller,statefulset-controller";

/// What runs beside where every Node has a kubelet that beats.
const NODE_CONTROLLERS: &str =
    "node-lifecycle-controller,pod-garbage-collector-controller,taint-eviction-controller";

/// Client identity for the API server.
#[derive(Debug, Clone)]
pub enum Speaker {
    /// The holder of this certificate.
    Certificate(Identity),
    /// The holder of this token: an account's, or a kubelet's bootstrap token.
    Token(String),
}

/// A running control plane. Dropping it kills all of it and removes its folders.
#[derive(Debug)]
pub struct ControlPlane {
    // In the order in which they end: callers before those that they call.
    /// Scheduler and controller manager.
    clients: Mutex<[Process; 2]>,
    api: Mutex<Process>,
    etcd: Mutex<Etcd>,
    plan: ServersPlan,
}

/// Parameters of the servers.
#[derive(Debug)]
struct ServersPlan {
    programs: [PathBuf; 3],
    ca: TestCa,
    admin: Identity,
    etcd: String,
    port: u16,
    folder: TempDir,
    controllers: String,
}

impl ControlPlane {
    /// Finds (or makes) the programs, and starts them on free ports. Blocks until all of them work.
    ///
    /// # Panics
    /// When there are programs but they do not come up: the log is in the message.
    pub fn start() -> Start<Self> {
        Self::start_with(CONTROLLERS.to_owned())
    }

    /// As [`ControlPlane::start`], and with the controllers that taint and untaint Nodes by their kubelets'
    /// heartbeats, and take the pods of Nodes away that are no more.
    ///
    /// # Panics
    /// As [`ControlPlane::start`].
    pub fn start_for_kubelets() -> Start<Self> {
        Self::start_with(format!("{CONTROLLERS},{NODE_CONTROLLERS}"))
    }

    fn start_with(controllers: String) -> Start<Self> {
        let programs = match programs() {
            Ok(programs) => programs,
            Err(skipped) => return Start::Skipped(skipped),
        };
        let etcd = match Etcd::start() {
            Start::Started(etcd) => etcd,
            Start::Skipped(skipped) => return Start::Skipped(skipped),
        };
        let plan = ServersPlan::new(programs, etcd.url(), controllers);
        let started = plan.and_then(|plan| Self::begin(plan, etcd));
        Start::Started(started.unwrap_or_else(|error| panic!("no control plane: {error:#}")))
    }

    fn begin(mut plan: ServersPlan, etcd: Etcd) -> Result<Self> {
        let api = plan.api_on_a_free_port()?;
        let manager = plan.manager()?;
        let scheduler = plan.scheduler()?;
        Ok(Self {
            clients: Mutex::new([scheduler, manager]),
            api: Mutex::new(api),
            etcd: Mutex::new(etcd),
            plan,
        })
    }

    /// `https://127.0.0.1:<port>`, the same after a restart.
    pub fn url(&self) -> String {
        self.plan.url()
    }

    /// The one authority of servers and clients, PEM.
    pub fn ca(&self) -> String {
        self.plan.ca.certificate()
    }

    /// The key with which accounts' tokens are signed (PKCS #8, PEM; ECDSA on P-256), for tokens that the API server does not grant.
    ///
    /// # Panics
    /// When its file cannot be read.
    pub fn accounts_key(&self) -> String {
        std::fs::read_to_string(self.plan.path("accounts.key")).expect("the accounts' key")
    }

    /// Who may do everything.
    pub fn admin(&self) -> Speaker {
        Speaker::Certificate(self.plan.admin.clone())
    }

    /// A user with a certificate of this name and, if any, this group.
    pub fn user(&self, name: &str, group: Option<&str>) -> Speaker {
        Speaker::Certificate(self.plan.ca.user(name, group))
    }

    /// A kubeconfig for a speaker (its files stay as long as the control plane).
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn kubeconfig(&self, speaker: &Speaker) -> String {
        self.plan
            .kubeconfig(speaker)
            .expect("the folder can be written")
    }

    /// A client of the API server for the kubelet of a Node, and the server's port.
    pub(crate) fn for_kubelet(&self, node: &str) -> Result<(Https, u16)> {
        let name = format!("system:node:{node}");
        let who = &self.plan.ca.user(&name, Some("system:nodes"));
        let port = self.plan.port;
        Ok((Https::new(port, &self.ca(), who)?, port))
    }

    /// Kills the API server; its clients are refused until [`ControlPlane::restart_api`].
    pub fn kill_api(&self) {
        self.api().kill();
    }

    /// Starts the API server again on its port, after a kill if it still runs.
    ///
    /// # Panics
    /// When it does not come back.
    pub fn restart_api(&self) {
        let mut api = self.api();
        api.kill();
        *api = self
            .plan
            .api()
            .unwrap_or_else(|error| panic!("it did not come back: {error:#}"));
    }

    /// Ends all servers for good: an idle control plane takes a tenth of a processor.
    pub fn stop(&self) {
        locked(&self.clients).iter_mut().for_each(Process::kill);
        self.kill_api();
        locked(&self.etcd).kill();
    }

    /// Makes etcd forget its history; present objects stay.
    pub fn compact(&self) {
        locked(&self.etcd).compact();
    }

    /// Keeps a copy of etcd's files, to go back to. The API server is away meanwhile.
    ///
    /// # Panics
    /// When something does not come back.
    pub fn back_up(&self) {
        self.kill_api();
        locked(&self.etcd).back_up();
        self.restart_api();
    }

    /// Restores etcd from the copy and starts the API server and its own clients anew, as the procedure for a restore
    /// demands. Everybody else keeps what they know.
    ///
    /// # Panics
    /// When something does not come back.
    pub fn restore(&self) {
        let mut clients = locked(&self.clients);
        clients.iter_mut().for_each(Process::kill);
        self.kill_api();
        locked(&self.etcd).restore();
        self.restart_api();
        let started = self
            .plan
            .scheduler()
            .and_then(|s| Ok([s, self.plan.manager()?]));
        *clients = started.unwrap_or_else(|error| panic!("they did not come back: {error:#}"));
    }

    /// The API server's last messages.
    pub fn log_tail(&self) -> String {
        self.api().log_tail()
    }

    fn api(&self) -> MutexGuard<'_, Process> {
        locked(&self.api)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One of OpenShift's CRDs as its module has it, by its path there.
///
/// # Errors
/// The module cannot be had here.
pub fn openshift_crd(path: &str) -> Result<String, Skipped> {
    let read = || {
        let folder = source::module_files(OPENSHIFT, "github.com/openshift/api")?;
        std::fs::read_to_string(folder.join(path)).with_context(|| format!("no {path}"))
    };
    read().map_err(|error| Skipped {
        server: "openshift-api".to_owned(),
        reason: format!("{error:#}"),
    })
}

/// A definition of the Prometheus Operator by its plural, such as `podmonitors`, as its module has it.
///
/// # Errors
/// The module cannot be had here.
pub fn monitoring_crd(plural: &str) -> Result<String, Skipped> {
    let read = || {
        let module = "github.com/prometheus-operator/prometheus-operator";
        let folder = source::module_files(MONITORING, module)?;
        let file = format!("example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml");
        std::fs::read_to_string(folder.join(&file)).with_context(|| format!("no {file}"))
    };
    read().map_err(|error| Skipped {
        server: "monitoring-crds".to_owned(),
        reason: format!("{error:#}"),
    })
}

fn programs() -> Result<[PathBuf; 3], Skipped> {
    let kubernetes = Kubernetes::chosen();
    let find = |name, variable| {
        Kubernetes::program(name).find(&kubernetes.release(kubernetes.version, variable))
    };
    Ok([
        find("kube-apiserver", "DORMER_KUBE_APISERVER")?,
        find("kube-controller-manager", "DORMER_KUBE_CONTROLLER_MANAGER")?,
        find("kube-scheduler", "DORMER_KUBE_SCHEDULER")?,
    ])
}

impl ServersPlan {
    /// Writes certificates and keys.
    fn new(programs: [PathBuf; 3], etcd: String, controllers: String) -> Result<Self> {
        let ca = TestCa::new();
        let admin = ca.user("admin", Some("system:masters"));
        let folder = test_dir("kubernetes");
        let plan = Self {
            programs,
            ca,
            admin,
            etcd,
            port: 0,
            folder,
            controllers,
        };
        let server = plan.ca.issue(
            "kube-apiserver",
            &["127.0.0.1", "localhost", SERVICE, "kubernetes.default.svc"],
        );
        // The accounts' keys are any key pair; this one comes with a certificate that is not used.
        let accounts = plan.ca.user("accounts", None);
        for (name, text) in [
            ("ca.pem", plan.ca.certificate()),
            ("ca.key", plan.ca.key()),
            ("server.pem", server.certificate),
            ("server.key", server.key),
            ("accounts.pem", accounts.certificate),
            ("accounts.key", accounts.key),
        ] {
            std::fs::write(plan.path(name), text)?;
        }
        Ok(plan)
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn kubeconfig(&self, speaker: &Speaker) -> Result<String> {
        let user = match speaker {
            Speaker::Token(token) => format!(r#"{{"token":"{token}"}}"#),
            Speaker::Certificate(identity) => {
                let name = format!("{:032x}", rand::random::<u128>());
                let pem = self.path(&format!("{name}.pem"));
                let key = self.path(&format!("{name}.key"));
                std::fs::write(&pem, &identity.certificate)?;
                std::fs::write(&key, &identity.key)?;
                format!(r#"{{"client-certificate":{pem:?},"client-key":{key:?}}}"#)
            }
        };
        let url = self.url();
        let ca = self.path("ca.pem");
        Ok(format!(
            r#"{{"apiVersion":"v1","kind":"Config","current-context":"test","clusters":[{{"name":"test","cluster":{{"server":"{url}","certificate-authority":{ca:?}}}}}],"contexts":[{{"name":"test","context":{{"cluster":"test","user":"test"}}}}],"users":[{{"name":"test","user":{user}}}]}}"#
        ))
    }

    fn https(&self) -> Result<Https> {
        Https::new(self.port, &self.ca.certificate(), &self.admin)
    }

    fn api_on_a_free_port(&mut self) -> Result<Process> {
        let mut last = None;
        for _ in 0..PORT_TRIES {
            self.port = free_port();
            match self.api() {
                Ok(api) => return Ok(api),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no try")?)
    }

    fn api(&self) -> Result<Process> {
        let mut args = vec![
            ("etcd-servers", self.etcd.clone()),
            ("bind-address", "127.0.0.1".into()),
            ("secure-port", self.port.to_string()),
            // An endpoint on the loopback address would be unreachable, so none is published.
            ("endpoint-reconciler-type", "none".into()),
            ("advertise-address", "127.0.0.1".into()),
            ("tls-cert-file", self.file("server.pem")),
            ("tls-private-key-file", self.file("server.key")),
            ("client-ca-file", self.file("ca.pem")),
            ("authorization-mode", "Node,RBAC".into()),
            // As every installer has it. What a pod may be is for its namespace's Pod Security to say.
            ("allow-privileged", "true".into()),
            ("enable-admission-plugins", "NodeRestriction".into()),
            ("enable-bootstrap-token-auth", "true".into()),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc".into(),
            ),
            ("service-account-key-file", self.file("accounts.pem")),
            (
                "service-account-signing-key-file",
                self.file("accounts.key"),
            ),
            ("service-cluster-ip-range", "10.96.0.0/16".into()),
        ];
        // Before 1.36 an API server passes a client's WebSocket on to a kubelet only without this gate (`pods/exec.rs`).
        if Kubernetes::chosen().minor() < 36 {
            let gate = "TranslateStreamCloseWebsocketRequests=false";
            args.push(("feature-gates", gate.into()));
        }
        let https = self.https()?;
        self.launch(0, &args, || {
            https.status("/readyz").is_ok_and(|status| status == 200)
        })
    }

    /// Ready once accounts and authorities of namespaces are made, which its controllers do.
    fn manager(&self) -> Result<Process> {
        let args = [
            ("kubeconfig", self.agent("system:kube-controller-manager")?),
            ("use-service-account-credentials", "true".into()),
            (
                "service-account-private-key-file",
                self.file("accounts.key"),
            ),
            ("root-ca-file", self.file("ca.pem")),
            ("cluster-signing-cert-file", self.file("ca.pem")),
            ("cluster-signing-key-file", self.file("ca.key")),
            ("controllers", self.controllers.clone()),
            ("leader-elect", "false".into()),
            ("bind-address", "127.0.0.1".into()),
            ("secure-port", "0".into()),
        ];
        let https = self.https()?;
        self.launch(1, &args, || {
            ["serviceaccounts/default", "configmaps/kube-root-ca.crt"]
                .iter()
                .all(|what| {
                    let path = format!("/api/v1/namespaces/kube-system/{what}");
                    https.status(&path).is_ok_and(|status| status == 200)
                })
        })
    }

    fn scheduler(&self) -> Result<Process> {
        let args = [
            ("kubeconfig", self.agent("system:kube-scheduler")?),
            ("leader-elect", "false".into()),
            ("bind-address", "127.0.0.1".into()),
            ("secure-port", "0".into()),
        ];
        // Pods wait for it, and so do tests with pods; no other test does.
        self.launch(2, &args, || true)
    }

    /// The kubeconfig's file of one of Kubernetes' own servers.
    fn agent(&self, user: &str) -> Result<String> {
        let speaker = Speaker::Certificate(self.ca.user(user, None));
        let file = self.path(&format!("{}.conf", user.trim_start_matches("system:")));
        std::fs::write(&file, self.kubeconfig(&speaker)?)?;
        Ok(file.display().to_string())
    }

    fn launch(
        &self,
        which: usize,
        args: &[(&str, String)],
        ready: impl Fn() -> bool,
    ) -> Result<Process> {
        let program = &self.programs[which];
        let mut process = Process::start(&ProcessSpec {
            program: program.clone(),
            args: args
                .iter()
                .map(|(flag, value)| format!("--{flag}={value}"))
                .collect(),
            env: vec![],
            log: self.path(&format!("{which}.log")),
            // The first of them takes the folder away if we cannot.
            folder: (which == 0).then(|| self.folder.path().to_path_buf()),
        })?;
        let comes = block_until(START_MAX, || !process.is_running() || ready());
        if comes && process.is_running() {
            return Ok(process);
        }
        anyhow::bail!(
            "{} does not come up:\n{}",
            program.display(),
            process.log_tail()
        )
    }
}
