//! Environment of the demonstration in one process: a simulated world, and dormer's own roles in it.

use super::{Options, Strategy, missed, people};
use crate::{
    clock::PacedClock,
    fleet,
    payload::{payload, program},
};
use anyhow::Context;
use dormer_api::{
    Api as PeopleApi, CommandFlags,
    access::{self, Gate},
    live::Live,
    plan::PlanRenderer,
    projection::{self, run_projection},
    views,
};
use dormer_engine::{embedded::EmbeddedStore, engine, local::Local, port::Clock as _};
use dormer_fleet::{Pace, World, WorldConfig, api::kinds, manifest::Sets, world::Record};
use dormer_run::{
    roles::{self, Parts, Running},
    serve::{self, Front},
    usage_error::checked,
};
use dormer_telemetry::{Telemetry, health, metrics, otlp::Export};
use dormer_views::machine::Machine;
use dormer_workers::{
    catalog::Catalog,
    execute::Executors,
    host::HostExecutor,
    kubernetes::{KUBELET_PORT, KubernetesExecutor, Settings},
    pool::{Installed, v1beta1::WindowsPool},
    ssh::{Key, Limits, TcpDial},
    watcher, worker,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Mutex;

/// dormer's namespace in the simulated cluster.
const NAMESPACE: &str = "dormer";
/// Name of the pool.
const POOL: &str = "windows";
/// Profile of the machines.
const PROFILE: &str = "openshift";
/// Soak time of a Ready node, in seconds of the world.
const SOAK_S: u32 = 10;

/// Shortest time limit of a connection to a host, in real time.
const DIAL_LEAST: Duration = Duration::from_millis(200);
/// Shortest silence before a keep-alive to a host, in real time.
const KEEPALIVE_LEAST: Duration = Duration::from_secs(1);

/// Store and queues.
pub(crate) type Ports = Local<EmbeddedStore, PacedClock>;

/// World with dormer in it.
pub(crate) struct Environment {
    world: Arc<World>,
    ports: Arc<Ports>,
    catalog: Catalog,
    client: Client,
    running: Mutex<Option<Running>>,
    versions: Vec<String>,
    strategy: Strategy,
    speed: f64,
    seed: u64,
    folder: StoreFolder,
    address: SocketAddr,
    otlp_endpoint: Option<String>,
    /// Dormer's API, once it is served.
    api: Option<Arc<PeopleApi>>,
}

impl Environment {
    /// Builds everything. Machines begin to boot at once.
    pub(crate) async fn set(options: &Options, sets: Sets) -> anyhow::Result<Self> {
        // Every TLS library here installs ring. A second installation fails, which is harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = StoreFolder::of(options)?;
        let listener = serve::listen(options.listen).await?;
        let world = Arc::new(fleet::started(config(options, sets)).await?);
        checked(fleet::check_aims(&world, &options.faults()))?;
        let client = client(&world).await?;
        let store = EmbeddedStore::open(&folder.path)?;
        let clock = PacedClock::of(&world);
        let ports = Arc::new(Local::new(Arc::new(store), clock));
        let catalog = Catalog::new(&[])?;
        catalog.add(payload(0));
        let mut environment = Self {
            versions: vec![version(&catalog)?],
            running: Mutex::new(None),
            world,
            ports,
            catalog,
            client,
            strategy: options.strategy,
            speed: options.speed,
            seed: options.seed,
            folder,
            address: reached_at(listener.local_addr()?),
            otlp_endpoint: options.otlp_endpoint.clone(),
            api: None,
        };
        environment.make_pool(options).await?;
        let live = Arc::<Live>::default();
        let mut running = environment.start_roles(&live)?;
        let api = PeopleApi::over(environment.ports(), live, Some(environment.renderer()));
        environment
            .world
            .write_kubeconfig(&environment.kubeconfig())?;
        api.set_command_flags(CommandFlags {
            server: format!("http://{}", environment.address),
            kubeconfig: environment.kubeconfig().display().to_string(),
        });
        environment.api = Some(Arc::clone(&api));
        let telemetry = running.telemetry();
        telemetry.asks(api.clone());
        let projecting =
            run_projection(api.clone(), environment.client(), environment.projection());
        running.beside(roles::CONSOLE, async move { match projecting.await {} });
        let pages = dormer_console::with_api(Arc::clone(&api));
        let pages = people::around(pages, Arc::clone(&environment.world), Arc::clone(&api));
        let people = access::around(pages, api, Gate::loopback());
        let router = health::router(running.health())
            .merge(metrics::router(telemetry, running.health()))
            .merge(people);
        Front::new(listener, None).serve(&mut running, router);
        *environment.running.lock().await = Some(running);
        Ok(environment)
    }

    /// Settings of the projection. In a faster world, deleted objects are restored sooner as well.
    fn projection(&self) -> projection::Settings {
        projection::Settings {
            namespace: NAMESPACE.into(),
            name: "demo".into(),
            operator_condition: None,
            read_every: projection::READ_EVERY.div_f64(self.speed),
        }
    }

    fn start_roles(&self, live: &Arc<Live>) -> anyhow::Result<Running> {
        let key = Key::read(&self.world.ssh_key.private_pem)?;
        let dialer = Arc::new(TcpDial {
            port: dormer_fleet::world::SSH_PORT,
        });
        let kubelets = Arc::new(TcpDial { port: KUBELET_PORT });
        let kubernetes =
            KubernetesExecutor::new(self.client.clone(), Settings::default()).reaching(kubelets);
        let host = HostExecutor::new(
            dialer,
            key,
            limits(self.speed),
            self.catalog.clone(),
            program()?,
            Arc::new(kubernetes.clone()),
        );
        let clock = self.ports.clock;
        let host = host.dated_by(Arc::new(move || {
            i64::try_from(clock.now().0).unwrap_or(i64::MAX)
        }));
        let executor = Arc::new(Executors { host, kubernetes });
        let export = Export::new(self.otlp_endpoint.as_deref(), "demo")?;
        let telemetry = Telemetry::by(self.ports.clock).exported(&export)?;
        let parts = Parts {
            ports: Arc::clone(&self.ports),
            executor,
            live: Arc::clone(live),
            engine: engine::Options::default(),
            worker: worker::Options {
                time_factor: self.speed,
                ..worker::Options::named("demo")
            },
        };
        let mut running = roles::start_observed(parts, Arc::new(telemetry));
        let options = watcher::Options {
            namespace: NAMESPACE.into(),
            pool: POOL.into(),
            // In a faster world, lost messages are found sooner as well.
            repeat: Duration::from_secs(60)
                .div_f64(self.speed)
                .max(Duration::from_secs(2)),
            ..watcher::Options::default()
        };
        let catalog = Arc::new(self.catalog.clone());
        running.watcher(
            self.client.clone(),
            roles::facts(&self.ports),
            catalog,
            options,
        );
        Ok(running)
    }

    async fn make_pool(&self, options: &Options) -> anyhow::Result<()> {
        let pool = json!({
            "apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": {"name": POOL, "namespace": NAMESPACE},
            "spec": {
                "profile": PROFILE, "payload": "installed", "soak": format!("{SOAK_S}s"),
                "strategy": {
                    "type": self.strategy.in_spec(), "maxUnavailable": options.max_unavailable,
                },
            },
        });
        let pool = serde_json::from_value(pool).context("the pool cannot be written")?;
        let post = kube::api::PostParams::default();
        let made = self.pools().create(&post, &pool).await;
        made.context("the WindowsPool cannot be made")?;
        Ok(())
    }

    fn pools(&self) -> Api<WindowsPool> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Edits the pool's spec as a person does.
    #[cfg(test)]
    pub(crate) async fn edit_pool(&self, spec: serde_json::Value) -> Result<(), kube::Error> {
        let change = Patch::Merge(json!({"spec": spec}));
        let params = PatchParams::default();
        self.pools().patch(POOL, &params, &change).await.map(drop)
    }

    /// Installs payload number `n`, which starts an upgrade.
    pub(crate) async fn install(&mut self, n: usize) -> anyhow::Result<()> {
        // The world's counters are not reset: from here on they include the upgrade.
        self.catalog.add(payload(n));
        self.versions.push(version(&self.catalog)?);
        let seen = json!({"metadata": {"annotations": {"dormer.io/demo": n.to_string()}}});
        self.pools()
            .patch(POOL, &PatchParams::default(), &Patch::Merge(&seen))
            .await?;
        Ok(())
    }

    /// Version of the payload installed as number `n`.
    pub(crate) fn version(&self, n: usize) -> &str {
        self.versions.get(n).map_or("", String::as_str)
    }

    /// Windows machines in the world, without those being deleted.
    pub(crate) fn machines(&self) -> usize {
        let all = self.world.all(&kinds::MACHINE);
        let windows = all.iter().filter(|machine| {
            let meta = &machine.value["metadata"];
            meta["labels"]["machine.openshift.io/os-id"] == "Windows"
                && meta["deletionTimestamp"].is_null()
        });
        windows.count()
    }

    /// Machines as people see them, without those that are gone.
    pub(crate) async fn shown_machines(&self) -> anyhow::Result<Vec<Machine>> {
        let Some(api) = &self.api else {
            return Ok(Vec::new());
        };
        let read = api.snapshot().await;
        let read = read.map_err(|error| anyhow::anyhow!("{}", error.what_and_remedy().0));
        let (runs, _, now) = read?;
        let open = runs.iter().filter(|run| run.closed.is_none());
        let shown = open.filter_map(|run| views::machine(run, api.live(), now));
        Ok(shown.collect())
    }

    /// Notes on the orders of faults that struck fewer machines than they say, for the end.
    pub(crate) fn missed(&self, orders: &[String]) -> Vec<String> {
        let faults = &self.world.faults;
        let orders = orders
            .iter()
            .filter_map(|it| it.parse().ok().map(|order| (it, order)));
        let notes = orders.filter_map(|(text, order)| {
            missed::at_the_end(text, &order, faults.struck_by(&order)?, faults.made())
        });
        notes.collect()
    }

    /// World's own record of events.
    pub(crate) fn record(&self) -> &Record {
        &self.world.record
    }

    pub(crate) fn ports(&self) -> Arc<Ports> {
        Arc::clone(&self.ports)
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(crate) fn speed(&self) -> f64 {
        self.speed
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Client of the world's administrator, as dormer uses here.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    fn renderer(&self) -> Arc<PlanRenderer> {
        let kubernetes = KubernetesExecutor::new(self.client.clone(), Settings::default());
        PlanRenderer::new(self.catalog.clone(), Arc::new(kubernetes))
    }

    /// Adds a layer to the profiles, which also starts an upgrade.
    #[cfg(test)]
    pub(super) fn lay(&mut self, layer: &str) {
        let layer = dormer_profile::layers::Layer::parse("user", layer).expect("a layer");
        self.catalog.set_layers(&[layer]).expect("it is taken");
        self.versions
            .push(version(&self.catalog).expect("a version"));
    }

    /// Notes a new version that a change of the cluster's settings caused. It gets the next number.
    #[cfg(test)]
    pub(super) fn note_version(&mut self) {
        self.versions
            .push(version(&self.catalog).expect("a version"));
    }

    /// Catalog of installed payloads.
    #[cfg(test)]
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// World that dormer works in.
    #[cfg(test)]
    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// Restarts dormer with an empty store in the same world. Its API is not served afterwards.
    #[cfg(test)]
    pub(super) async fn start_again_without_store(&mut self) -> anyhow::Result<()> {
        self.stop_dormer().await?;
        std::fs::remove_dir_all(&self.folder.path)?;
        self.start_again()
    }

    /// Stops dormer. The world continues.
    #[cfg(test)]
    pub(super) async fn stop_dormer(&self) -> anyhow::Result<()> {
        match self.running.lock().await.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    #[cfg(test)]
    fn start_again(&mut self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.folder.path)?;
        let store = EmbeddedStore::open(&self.folder.path)?;
        let clock = PacedClock::of(&self.world);
        self.ports = Arc::new(Local::new(Arc::new(store), clock));
        let running = self.start_roles(&Arc::default())?;
        *self.running.get_mut() = Some(running);
        Ok(())
    }

    /// Waits for `pause`. It fails early if a role of dormer ends.
    pub(crate) async fn pause(&self, pause: Duration) -> anyhow::Result<()> {
        let mut running = self.running.lock().await;
        let Some(running) = running.as_mut() else {
            return Ok(());
        };
        match tokio::time::timeout(pause, running.ended()).await {
            Ok(error) => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// Address of the API and the console.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// File with a kubeconfig of the world.
    fn kubeconfig(&self) -> PathBuf {
        let path = self.folder.path.join("kubeconfig");
        std::path::absolute(&path).unwrap_or(path)
    }

    /// Commands to explore the world while it is held.
    pub(crate) fn invitation(&self) -> String {
        format!(
            "The world runs until Ctrl-C.\n  kubectl --kubeconfig {} get machines,nodes -A\n  \
             dormer status --server http://{address}\n  the console: http://{address}/",
            self.kubeconfig().display(),
            address = self.address,
        )
    }

    /// Ends dormer, then the world.
    pub(crate) async fn clear(self) -> anyhow::Result<()> {
        if let Some(running) = self.running.lock().await.take() {
            running.stop().await?;
        }
        self.world.stop();
        Ok(())
    }
}

/// Address under which this computer reaches a listener: one that listens on all of its addresses has none of its own.
fn reached_at(listens: SocketAddr) -> SocketAddr {
    let ip = match listens.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listens.port())
}

/// Warning of a listener that other computers reach. `None`: only this one does.
pub(super) fn reached_by_others(listens: SocketAddr) -> Option<String> {
    (!listens.ip().to_canonical().is_loopback()).then(|| {
        format!(
            "--listen {listens}: everyone who reaches this computer can read the console and the API, without a login and \
             without TLS; actions are accepted from this computer alone"
        )
    })
}

fn config(options: &Options, sets: Sets) -> WorldConfig {
    let pace = Pace::times_faster(options.speed);
    // Without a number, the manifests' replicas count.
    let machines = options
        .machines
        .or(options.manifest.is_empty().then_some(super::MACHINES));
    WorldConfig {
        machines,
        manifests: options.manifest.clone(),
        sets,
        faults: options.faults(),
        seed: options.seed,
        own_clock: true,
        ..WorldConfig::on_loopback(0, pace)
    }
}

/// SSH limits in the world's time: a booting host drops packets.
fn limits(speed: f64) -> Limits {
    let usual = Limits::default();
    let scaled = |wait: Duration, least| wait.div_f64(speed).max(least).min(wait);
    Limits {
        dial: scaled(usual.dial, DIAL_LEAST),
        keepalive: scaled(usual.keepalive, KEEPALIVE_LEAST),
        ..usual
    }
}

async fn client(world: &World) -> anyhow::Result<Client> {
    let kubeconfig: Kubeconfig = serde_json::from_value(world.kubeconfig())?;
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Folder of the store. One that the demonstration made goes with it, however it ends.
struct StoreFolder {
    path: PathBuf,
    own: bool,
}

impl StoreFolder {
    fn of(options: &Options) -> anyhow::Result<Self> {
        let own = options.store.is_none();
        let path = match &options.store {
            Some(folder) => folder.clone(),
            None => fresh_folder(&std::env::temp_dir(), std::process::id())?,
        };
        if !own {
            std::fs::create_dir_all(&path)
                .with_context(|| format!("cannot make {}", path.display()))?;
            let mut there = std::fs::read_dir(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            checked(match there.next() {
                Some(_) => Err(anyhow::anyhow!(
                    "--store {}: the folder is not empty. Runs of an earlier demonstration are of no use to another one, whose \
                     machines are new: give another folder, or delete this one",
                    path.display()
                )),
                None => Ok(()),
            })?;
        }
        Ok(Self { path, own })
    }
}

/// Makes a folder that was not there. In a container a process often has the id of an earlier one, which left its folder if it
/// was killed.
fn fresh_folder(under: &Path, process: u32) -> anyhow::Result<PathBuf> {
    let mut path = under.join(format!("dormer-demo-{process}"));
    for number in 2_u64.. {
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => {
                made.with_context(|| format!("cannot make {}", path.display()))?;
                break;
            }
        }
        path.set_file_name(format!("dormer-demo-{process}-{number}"));
    }
    Ok(path)
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        if self.own {
            std::fs::remove_dir_all(&self.path).ok();
        }
    }
}

/// Version of the newest payload.
fn version(catalog: &Catalog) -> anyhow::Result<String> {
    let desired: BTreeMap<_, _> = catalog
        .desired(PROFILE, None)
        .map_err(|why| anyhow::anyhow!(why))?;
    let first = desired.into_values().next();
    Ok(first
        .context("the demonstration's payload supports no Windows build")?
        .version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_an_earlier_demonstration_is_no_store_for_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = |folder: &std::path::Path| {
            let line = ["demo".as_ref(), "--store".as_ref(), folder.as_os_str()];
            crate::demo::tests::options(&line)
        };
        assert!(StoreFolder::of(&line(folder.path())).is_ok());
        let new = folder.path().join("new");
        assert!(StoreFolder::of(&line(&new)).is_ok_and(|it| !it.own));
        // `new` is there now.
        let Err(refused) = StoreFolder::of(&line(folder.path())) else {
            panic!("it is taken")
        };
        assert!(refused.to_string().contains("is not empty"), "{refused}");
    }

    #[test]
    fn a_folder_that_a_killed_demonstration_left_is_not_taken_again() {
        let temporary = tempfile::tempdir().expect("a folder");
        let first = fresh_folder(temporary.path(), 7).expect("a folder");
        std::fs::write(first.join("runs"), "of then").expect("written");
        let others: Vec<PathBuf> = (0..2)
            .map(|_| fresh_folder(temporary.path(), 7).expect("a folder"))
            .collect();
        assert_ne!(others[0], others[1]);
        for other in others {
            assert_ne!(other, first);
            let mut there = std::fs::read_dir(&other).expect("it is there");
            assert!(there.next().is_none(), "{}", other.display());
        }
        assert!(fresh_folder(&temporary.path().join("missing"), 7).is_err());
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_by_loopback_and_by_others() {
        let of = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        for (listens, reached) in [
            ("0.0.0.0:7080", "127.0.0.1:7080"),
            ("[::]:7080", "[::1]:7080"),
            ("10.0.0.5:7080", "10.0.0.5:7080"),
        ] {
            assert_eq!(reached_at(of(listens)), of(reached));
            let warning = reached_by_others(of(listens)).unwrap_or_default();
            assert!(
                warning.contains("can read the console"),
                "{listens}: {warning}"
            );
        }
        assert_eq!(reached_by_others(of("127.0.0.1:0")), None);
        assert_eq!(reached_by_others(of("[::1]:7080")), None);
    }
}
