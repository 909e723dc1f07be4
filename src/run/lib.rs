//! `dormer run`: all roles in one process, or some of them.

pub mod config;
mod connections;
pub mod embedded;
mod executors;
mod key;
pub mod nats;
pub mod outside;
pub mod payloads;
pub mod roles;
pub mod serve;
mod store_lease;
mod tls;
pub mod usage_error;
mod userdata;
mod while_held;

use anyhow::Context;
use axum::Router;
use clap::Args;
use config::{Authentication, Config, Role, Settings, StoreLocation};
use dormer_api::{
    Api,
    access::{self, Gate, LoginMode, Reviews, RightNamespaces, audit::Audit},
    live::Live,
    plan::PlanRenderer,
    projection,
};
use dormer_engine::{
    embedded::EmbeddedStore,
    engine,
    local::Local,
    nats::NatsChanges,
    port::{History as _, Ports, SystemClock},
};
use dormer_nats::signing::Refusal;
use dormer_proto::message::Reporter;
use dormer_telemetry::{
    AuditExport, Pushing, Telemetry,
    health::{self, RoleStatus},
    metrics,
    otlp::Export,
};
use dormer_views::finding::Finding;
use dormer_workers::{
    catalog::Catalog,
    kubernetes::{KubernetesExecutor, Tokens},
    nats::{NatsFacts, NatsOrders},
    port::Facts,
    watcher::{self, Election},
    worker,
};
use futures::future::{BoxFuture, LocalBoxFuture};
pub use key::{PREVIOUS_KEY, SECRET_KEY};
use payloads::Payloads;
use roles::{APPROVER, CONSOLE, Parts, Running, WATCHER, WORKER};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};
use store_lease::StoreLease;
use userdata::Keeper;
use while_held::WhileHeld;

/// Duration of the watchers' Lease: after this silence another watcher takes over.
const LEASE: Duration = Duration::from_secs(15);

/// Name of the metrics exporter in health reports.
const METRICS: &str = "metrics";
/// Name of the payload watcher in health reports.
const PAYLOADS: &str = "payloads";

/// Arguments of `dormer run`.
#[derive(Debug, Args)]
pub struct Options {
    /// TOML file with settings under the names of these flags; flags and variables override it
    #[arg(long, env = "DORMER_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the resulting settings as such a file, without secrets, and exit
    #[arg(long)]
    print_config: bool,

    #[command(flatten)]
    settings: Settings,
    /// Survey of the cluster around, which is the program's own.
    #[arg(skip)]
    survey: Option<ClusterSurvey>,
}

/// Survey of a cluster by a client, for the dormer of a namespace.
pub type ClusterSurvey = fn(kube::Client, String) -> BoxFuture<'static, Vec<Finding>>;

impl Options {
    /// The same, with this survey of the cluster while dormer runs.
    #[must_use]
    pub fn surveyed_by(self, survey: ClusterSurvey) -> Self {
        Self {
            survey: Some(survey),
            ..self
        }
    }

    fn resolve(self) -> anyhow::Result<Settings> {
        match &self.config {
            Some(path) => Ok(self
                .settings
                .over(usage_error::checked(Settings::read(path))?)),
            None => Ok(self.settings),
        }
    }
}

/// Runs until SIGTERM or SIGINT, or until a role fails.
pub fn run(options: Options) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    // Boxed here, so that this package compiles the future and its callers do not compile it again.
    Box::pin(run_until_stopped(options))
}

async fn run_until_stopped(options: Options) -> anyhow::Result<ExitCode> {
    let print = options.print_config;
    let survey = options.survey;
    let settings = options.resolve()?;
    let config = usage_error::checked(Config::new(settings.clone()))?;
    if print {
        print!("{}", settings.complete().print()?);
        return Ok(ExitCode::SUCCESS);
    }
    // Every TLS library here installs ring. A second installation fails, which is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut signals = outside::StopSignals::listen()?;
    let mut running = tokio::select! {
        started = start(&config, survey) => started?,
        signal = signals.next() => {
            tracing::info!(signal, "dormer ends before it has started");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let why = tokio::select! {
        signal = signals.next() => Ok(signal),
        error = running.ended() => Err(error),
    };
    if let Ok(signal) = &why {
        tracing::info!(signal, "dormer shuts down; a second signal ends it at once");
    }
    let stopped = tokio::select! {
        stopped = running.stop() => stopped,
        _ = outside::StopSignals::again() => Err(anyhow::anyhow!("ended at once, at a second signal")),
    };
    why.and(stopped.map(|()| ExitCode::SUCCESS))
}

async fn start(config: &Config, survey: Option<ClusterSurvey>) -> anyhow::Result<Running> {
    let export = Export::new(config.otlp_endpoint.as_deref(), &config.name)?;
    let listener = serve::listen(config.listen).await?;
    let tls = config
        .tls
        .as_ref()
        .map(|(certificate, key)| tls::acceptor(certificate, key));
    let (tls, renewed) = tls.transpose()?.unzip();
    let address = listener.local_addr()?;
    let mut front = serve::Front::new(listener, tls);
    let client = client(config).await?;
    let catalog = Arc::new(outside::catalog(config)?);
    let payloads = Payloads::load(&config.payloads, &config.payload_keys, &catalog)?;
    let user_data_of = client.clone();
    let audited = config.audit.as_ref().map(|_| AuditExport::new(&export));
    let cluster = ServedCluster {
        config,
        client,
        catalog: Arc::clone(&catalog),
        audit_copies: audited.transpose()?.flatten(),
        export,
        gate: OnceLock::new(),
        survey,
    };
    let live = Arc::<Live>::default();
    let (mut running, people) = match &config.store {
        StoreLocation::Folder(folder) => cluster.on_folder(folder, &live).await?,
        StoreLocation::Nats(servers) => cluster.on_nats(servers, &live, &mut front).await?,
    };
    running.beside(PAYLOADS, async move {
        payloads.follow(catalog.as_ref().clone()).await;
        Ok(())
    });
    if let (true, Some(client)) = (config.is(Role::Worker), user_data_of) {
        let source = executors::source(config, &client);
        let keeper = Keeper::new(client, source, config.machine_namespace.clone());
        running.beside(WORKER, async move { match keeper.run().await {} });
    }
    let ours = [
        (
            "listen",
            config.tls.as_ref().map(|(certificate, _)| certificate),
        ),
        ("nats", config.nats.certificate.as_ref()),
    ];
    for (name, file) in ours {
        if let Some(file) = file {
            running.telemetry().metrics().certificates.used(name, file);
        }
    }
    if let (Some(mut renewed), Some((file, _))) = (renewed, config.tls.clone()) {
        let telemetry = running.telemetry();
        running.beside(CONSOLE, async move {
            while renewed.changed().await.is_ok() {
                telemetry.metrics().certificates.used("listen", &file);
            }
            std::future::pending().await
        });
    }
    push_metrics(&mut running, &cluster.export)?;
    if let Some(copies) = cluster.audit_copies.clone() {
        running.at_end(async move { copies.flush().await });
    }
    let router = health::router(running.health())
        .merge(metrics::router(running.telemetry(), running.health()))
        .merge(people);
    front.serve(&mut running, router);
    if let Some(gate) = cluster.gate.get() {
        let scheme = if config.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let url = format!("{scheme}://{address}");
        if gate.announce(&url, config.login_link.clone())? {
            let renewed = Arc::clone(gate);
            running.beside(
                CONSOLE,
                async move { match renewed.run_link_renewal().await {} },
            );
            let gone = Arc::clone(gate);
            running.at_end(async move { gone.forget_link() });
        }
    }
    let names: Vec<&str> = config.roles.iter().map(|role| role.as_str()).collect();
    tracing::info!(%address, roles = %names.join(","), store = %config.store, "dormer runs");
    Ok(running)
}

/// Exports metrics to the collector at an interval and at shutdown, if an exporter is configured.
fn push_metrics(running: &mut Running, export: &Export) -> anyhow::Result<()> {
    let pushing = Pushing::new(running.telemetry(), running.health(), export)?;
    if let Some(pushing) = pushing {
        let last = Arc::clone(&pushing);
        running.beside(METRICS, async move { match pushing.run().await {} });
        running.at_end(async move { last.last().await });
    }
    Ok(())
}

/// Adds the worker's missing prerequisites to the health report.
fn report_lack(running: &mut Running, executor: &executors::HostAndKubernetes) {
    let health = running.health();
    let reporting = executor.host.reporting(move |lack| {
        health.set(WORKER, lack.map_or(RoleStatus::Up, RoleStatus::Hindered));
    });
    running.beside(WORKER, async move {
        reporting.await;
        std::future::pending().await
    });
}

/// Client of the cluster, if a role needs one. An engine never does; a console without one answers no plans.
async fn client(config: &Config) -> anyhow::Result<Option<kube::Client>> {
    let needed = [Role::Watcher, Role::Worker, Role::Approver];
    if needed.into_iter().any(|role| config.is(role)) {
        return outside::client(config).await.map(Some);
    }
    if !config.is(Role::Console) {
        return Ok(None);
    }
    let client = outside::client(config).await;
    if let Err(why) = &client {
        tracing::info!(
            why = format!("{why:#}"),
            "this console answers no plans: it has no access to the cluster"
        );
    }
    Ok(client.ok())
}

/// Cluster that dormer runs for, and its payloads and profiles.
struct ServedCluster<'a> {
    config: &'a Config,
    client: Option<kube::Client>,
    catalog: Arc<Catalog>,
    /// Exporter to a collector.
    export: Export,
    /// Export of the audit's lines to a collector.
    audit_copies: Option<AuditExport>,
    /// Gate of the API and the console, created with the console.
    gate: OnceLock<Arc<Gate>>,
    /// Survey of the cluster around.
    survey: Option<ClusterSurvey>,
}

impl ServedCluster<'_> {
    /// Starts all roles on a folder that no other process may open.
    async fn on_folder(
        &self,
        folder: &Path,
        live: &Arc<Live>,
    ) -> anyhow::Result<(Running, Router)> {
        let store = EmbeddedStore::open(folder)?;
        let incarnation = store.incarnation();
        let lease = StoreLease::new(
            self.client()?,
            &self.config.namespace,
            &self.config.name,
            (incarnation, folder),
            LEASE,
        );
        lease.take().await?;
        self.warn_of_unkeyed();
        let keys = self.config.history_keys.clone();
        let ports = Local::new(Arc::new(store), SystemClock).keyed_by(keys);
        let ports = Arc::new(ports);
        let executor = self.executor().await?;
        let (prove, proof) = store_lease::proof(LEASE);
        let parts = Parts {
            ports: Arc::clone(&ports),
            executor: Arc::new(WhileHeld::new(Arc::clone(&executor), proof)),
            live: Arc::clone(live),
            engine: engine::Options::default(),
            worker: self.worker(),
        };
        let mut running = roles::start_observed(parts, self.telemetry()?);
        report_lack(&mut running, &executor);
        if self.config.join.tokens == Tokens::Account {
            // The worker answers its own questions. Here end the Secrets of machines that never joined.
            Self::give_tokens(
                &mut running,
                executors::kubernetes(self.config, self.client()?),
            );
        }
        let election = Election {
            identity: lease.identity().to_owned(),
            duration: LEASE,
        };
        self.watch(&mut running, roles::facts(&ports), Some(election))?;
        running.beside(WATCHER, async move { lease.lost(&prove).await });
        let people = self.people(&mut running, ports, live, None)?;
        Ok((running, people))
    }

    fn warn_of_unkeyed(&self) {
        let keys = self.config.history_keys.as_ref();
        if keys.is_some_and(|keys| keys.accepts_unkeyed()) {
            tracing::warn!(
                "records without a MAC are believed: run `dormer store key` when every engine has \
                 keys, and remove --history-accept-unkeyed"
            );
        }
    }

    /// Starts the configured roles on a NATS store, which other processes share.
    async fn on_nats(
        &self,
        servers: &str,
        live: &Arc<Live>,
        front: &mut serve::Front,
    ) -> anyhow::Result<(Running, Router)> {
        let mut running = Running::observed_by(self.telemetry()?);
        if let Some(keys) = &self.config.keys {
            let telemetry = running.telemetry();
            telemetry
                .metrics()
                .messages_refusable(Refusal::ALL.map(Refusal::as_str));
            let counted = Arc::clone(&telemetry);
            keys.count_with(move |refusal| counted.metrics().message_refused(refusal.as_str()));
            keys.count_unsigned_with(move || telemetry.metrics().message_unsigned());
        }
        self.warn_of_unkeyed();
        if self.config.nats.accept_unsigned == Some(true) {
            tracing::warn!(
                "messages without a signature are accepted: remove --nats-accept-unsigned when \
                 every role has keys"
            );
        }
        let mut people = Router::new();
        if nats::needs_store(self.config) {
            let health = running.health();
            let opening = nats::open_for_role(self.config, servers, &health);
            let store = front.meanwhile(running.health(), opening).await?;
            if self.config.is(Role::Engine) {
                nats::engine(&mut running, &store, engine::Options::default());
            }
            let closed = Arc::clone(&store);
            running.at_end(async move { closed.close().await });
            let changes = store.changes();
            people = self.people(&mut running, store, live, Some(changes))?;
        }
        let link = nats::connect(self.config, servers).await?;
        if self.config.is(Role::Worker) {
            let orders =
                NatsOrders::open(Arc::clone(&link), &self.config.name, Reporter::Worker).await?;
            let orders = Arc::new(orders);
            let executor = self.executor().await?;
            running.worker(Arc::clone(&orders), Arc::clone(&executor), self.worker());
            let cluster = executors::kubernetes(self.config, self.client()?);
            nats::publish_settings(&mut running, orders, cluster, Arc::clone(&self.catalog));
            report_lack(&mut running, &executor);
            if !self.config.is(Role::Approver) {
                tracing::info!(
                    "this worker approves no certificates and makes no bootstrap tokens: machines \
                     join while a dormer with the role approver runs"
                );
            }
        }
        if self.config.is(Role::Approver) {
            let orders =
                NatsOrders::open(Arc::clone(&link), &self.config.name, Reporter::Approver).await?;
            self.approve(&mut running, orders)?;
        }
        if self.config.is(Role::Watcher) {
            let election = Election {
                identity: self.config.name.clone(),
                duration: LEASE,
            };
            let facts = Arc::new(NatsFacts::new(Arc::clone(&link)));
            self.watch(&mut running, facts, Some(election))?;
        }
        if self.config.is(Role::Console) {
            nats::listen(&mut running, &link, Arc::clone(live)).await?;
        }
        Ok((running, people))
    }

    /// Starts the approver: it takes its orders, and answers workers' questions for tokens.
    fn approve(&self, running: &mut Running, orders: NatsOrders) -> anyhow::Result<()> {
        let executor = executors::approver(self.config, self.client()?);
        running.approver(Arc::new(orders), Arc::new(executor.clone()), self.worker());
        Self::give_tokens(running, executor);
        Ok(())
    }

    /// Answers questions for tokens, and deletes the Secrets whose time is over.
    fn give_tokens(running: &mut Running, executor: KubernetesExecutor) {
        let health = running.health();
        let giving = executor.run_token_grants(move |lack| {
            health.set(APPROVER, lack.map_or(RoleStatus::Up, RoleStatus::Hindered));
        });
        running.beside(APPROVER, async move { match giving.await {} });
    }

    /// Starts API, console and projection, if this process has the role console.
    fn people<P: Ports>(
        &self,
        running: &mut Running,
        ports: Arc<P>,
        live: &Arc<Live>,
        changes: Option<NatsChanges>,
    ) -> anyhow::Result<Router> {
        if !self.config.is(Role::Console) {
            return Ok(Router::new());
        }
        let api = Api::over(ports, Arc::clone(live), self.renderer(live));
        running.telemetry().asks(api.clone());
        if let Some(changes) = changes {
            nats::publish_changes(running, Arc::clone(&api), changes);
        }
        if let Some(client) = &self.client {
            let settings = projection::Settings {
                namespace: self.config.namespace.clone(),
                name: self.config.name.clone(),
                operator_condition: self.config.operator_condition.clone(),
                read_every: projection::READ_EVERY,
            };
            let projecting = projection::run_projection(Arc::clone(&api), client.clone(), settings);
            running.beside(CONSOLE, async move { match projecting.await {} });
        }
        if let (Some(client), Some(survey)) = (&self.client, self.survey) {
            let namespace = self.config.namespace.clone();
            let client = client.clone();
            let api = Arc::clone(&api);
            running.beside(CONSOLE, async move {
                let survey = move || survey(client.clone(), namespace.clone());
                match api.run_survey(&survey).await {}
            });
        }
        let pages = dormer_console::with_api(Arc::clone(&api));
        Ok(access::around(pages, api, self.gate()?))
    }

    /// Builds the gate of the API and the console.
    fn gate(&self) -> anyhow::Result<Arc<Gate>> {
        let by = match self.config.authentication {
            Authentication::None => LoginMode::Nobody,
            Authentication::Loopback => LoginMode::Loopback,
            Authentication::Token => LoginMode::Token(self.config.access_token.clone()),
            Authentication::Cluster => {
                let client = self.client.clone().context(
                    "--authentication cluster: this process has no access to the cluster for \
                     reviews; give the console an account, or choose another --authentication",
                )?;
                let audience = self.config.audience.clone();
                let kept_for = self.config.review_kept_for;
                LoginMode::Cluster(Box::new(Reviews::by(client, audience, kept_for)))
            }
        };
        let homes = RightNamespaces {
            machines: self.config.machine_namespace.clone(),
            own: self.config.namespace.clone(),
        };
        let configured = self.config.audit.as_ref();
        let opened = configured.map(|(target, required)| {
            let copies = self.audit_copies.clone();
            Audit::open(target, *required, copies).context("--audit-log cannot be opened")
        });
        let audit = opened.transpose()?;
        let secure = self.config.tls.is_some();
        let keys = &self.config.session_keys;
        Ok(self
            .gate
            .get_or_init(|| Gate::new(by, homes, secure, keys, self.config.token_proxy, audit))
            .clone())
    }

    /// Builds the observer of this process's roles.
    fn telemetry(&self) -> anyhow::Result<Arc<Telemetry>> {
        let telemetry = Telemetry::by(SystemClock).exported(&self.export)?;
        Ok(Arc::new(telemetry))
    }

    fn worker(&self) -> worker::Options {
        worker::Options {
            slots: self.config.slots,
            ..worker::Options::named(&self.config.name)
        }
    }

    fn watch<F: Facts>(
        &self,
        running: &mut Running,
        facts: Arc<F>,
        election: Option<Election>,
    ) -> anyhow::Result<()> {
        let options = watcher::Options {
            machines: self.config.machine_namespace.clone(),
            cluster_machines: self.config.cluster_api_namespace.clone(),
            namespace: self.config.namespace.clone(),
            pool: self.config.pool.clone(),
            election,
            ..watcher::Options::default()
        };
        running.watcher(
            self.client()?.clone(),
            facts,
            Arc::clone(&self.catalog),
            options,
        );
        Ok(())
    }

    /// Builds the renderer of plans. A console by itself may not read how nodes join, and gets it from a worker.
    fn renderer(&self, live: &Arc<Live>) -> Option<Arc<PlanRenderer>> {
        let client = self.client.as_ref()?;
        let catalog = self.catalog.as_ref().clone();
        if !self.config.is(Role::Worker) {
            let watches = self.config.is(Role::Watcher);
            return Some(PlanRenderer::published(catalog, Arc::clone(live), watches));
        }
        let cluster = executors::kubernetes(self.config, client);
        Some(PlanRenderer::new(catalog, Arc::new(cluster)))
    }

    async fn executor(&self) -> anyhow::Result<Arc<executors::HostAndKubernetes>> {
        Ok(Arc::new(
            executors::both(self.config, self.client()?, &self.catalog).await?,
        ))
    }

    fn client(&self) -> anyhow::Result<&kube::Client> {
        self.client
            .as_ref()
            .context("watcher, worker and approver need access to the cluster")
    }
}
