//! One simulated Windows host: its identity, its state, its connections and its luck.

use dormer_proto::lock::Locked as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use dormer_profile::answer::FeatureState;
use rand::SeedableRng as _;
use russh::keys::{Algorithm, EcdsaCurve, PrivateKey};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::counts::HostCounts;
use super::link::Link;
use super::profile::Image;
use super::shell::Shell;
use super::state::HostState;
use crate::faults::{Fault, splitmix};
use crate::net::BoxIo;
use crate::world::{Happened, HostContext, HostOrder, Instance, Platform};

/// Externally visible states of a host, in the order of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostPhase {
    /// Gone or without power: packets vanish.
    Off,
    /// Booting: packets vanish.
    Dropping,
    /// The network is up, sshd is not: refused.
    Refusing,
    /// sshd accepts and resets during key exchange.
    Resetting,
    /// sshd runs, user data has not written the keys yet.
    AuthFailing,
    /// Commands run; services may still be starting.
    Up,
}

/// One connection that sshd has.
pub(super) struct SshSession {
    pub(super) link: Link,
    pub(super) authenticated: bool,
}

/// One simulated Windows host. Held in an `Arc`; its tasks end with its power.
pub struct Host {
    pub(super) order: HostOrder,
    pub(super) context: HostContext,
    pub(super) image: Image,
    pub(super) me: Weak<Host>,
    pub(super) keys: Mutex<Vec<PrivateKey>>,
    pub(super) sessions: Mutex<Vec<(u64, SshSession)>>,
    pub(super) counts: Mutex<HostCounts>,
    pub(super) phase: watch::Sender<HostPhase>,
    pub(super) power: Mutex<CancellationToken>,
    /// When the host's network line is free again for the next bytes of an upload.
    pub(super) line_free: Mutex<Option<tokio::time::Instant>>,
    /// The kubelet's client and the name of its Node, once it has them.
    pub(super) kubelet_api: Mutex<Option<(Arc<super::kubelet::Api>, String)>>,
    /// Receiver of connections to the kubelet's port; there is none while it does not run.
    pub(super) kubelet_door: Mutex<Option<mpsc::Sender<BoxIo>>>,
    /// Whether the Node was last posted as Ready.
    pub(super) ready: watch::Sender<bool>,
    /// Whether its kubelet is cut off from the API server.
    pub(super) cut: watch::Sender<bool>,
    instance: Mutex<Instance>,
    state: Mutex<HostState>,
    draws: AtomicU64,
    /// How far its steady clock is ahead of the world's: see [`Host::tick`].
    ahead: Mutex<Duration>,
    seed: u64,
}

/// Locks without minding a panic elsewhere: the data stays usable.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.locked()
}

impl Host {
    /// Host that is off. Keys, names and random draws derive from the world's seed and the Machine's name and UID.
    pub fn new(
        order: HostOrder,
        context: HostContext,
        mut image: Image,
        instance: Instance,
    ) -> Arc<Self> {
        let seed = fold(context.seed, &format!("{} {}", order.name, order.uid));
        shape_image(&mut image, &order, &context, seed);
        let keys = host_keys(seed);
        let state = first_state(&order, &image, seed);
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            keys: Mutex::new(keys),
            sessions: Mutex::default(),
            counts: Mutex::default(),
            phase: watch::Sender::new(HostPhase::Off),
            power: Mutex::new(cancelled()),
            line_free: Mutex::default(),
            kubelet_api: Mutex::default(),
            kubelet_door: Mutex::default(),
            ready: watch::Sender::new(false),
            cut: watch::Sender::new(false),
            instance: Mutex::new(instance),
            state: Mutex::new(state),
            draws: AtomicU64::new(0),
            ahead: Mutex::default(),
            seed,
            order,
            context,
            image,
        })
    }

    /// UID of its Machine.
    pub fn uid(&self) -> &str {
        &self.order.uid
    }

    /// Name of its Machine.
    pub fn name(&self) -> &str {
        &self.order.name
    }

    /// How its image was made.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The instance as the cloud shows it.
    pub fn instance(&self) -> Instance {
        lock(&self.instance).clone()
    }

    /// Changes the instance's addresses.
    pub(super) fn set_addresses(&self, addresses: Vec<(String, String)>) {
        lock(&self.instance).addresses = addresses;
    }

    /// Its first InternalIP.
    pub fn internal_ip(&self) -> String {
        let instance = lock(&self.instance);
        let mut found = instance
            .addresses
            .iter()
            .filter(|(kind, _)| kind == "InternalIP");
        found
            .next()
            .map(|(_, address)| address.clone())
            .unwrap_or_default()
    }

    /// Name that its image gave it.
    pub(super) fn own_name(&self) -> String {
        computer_name(&self.order, self.seed)
    }

    /// What can be seen of it from outside.
    pub fn phase(&self) -> HostPhase {
        *self.phase.borrow()
    }

    /// Follows its phase.
    pub fn watch_phase(&self) -> watch::Receiver<HostPhase> {
        self.phase.subscribe()
    }

    /// Counts of the operations on it so far.
    pub fn counts(&self) -> HostCounts {
        lock(&self.counts).clone()
    }

    /// Its state, to read or prepare in a test. Do not hold it over an `await`.
    pub fn state(&self) -> MutexGuard<'_, HostState> {
        let mut state = lock(&self.state);
        let seconds = self.now_ms_with(state.clock_offset_ms) / 1_000;
        state.disk.set_now(u32::try_from(seconds).unwrap_or(0));
        state
    }

    /// The host's own clock, milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        let offset = lock(&self.state).clock_offset_ms;
        self.now_ms_with(offset)
    }

    fn now_ms_with(&self, offset_ms: i64) -> i64 {
        self.context
            .clock
            .system_now()
            .as_millisecond()
            .saturating_add(offset_ms)
    }

    /// Public parts of its host keys in OpenSSH's form.
    pub fn host_keys(&self) -> Vec<String> {
        let keys = lock(&self.keys);
        keys.iter()
            .filter_map(|key| key.public_key().to_openssh().ok())
            .collect()
    }

    /// Replaces the host keys under the same Machine (scenario 6).
    pub(super) fn change_host_keys(&self) {
        *lock(&self.keys) = host_keys(self.draw());
    }

    /// The next number of its luck.
    pub(super) fn draw(&self) -> u64 {
        let n = self.draws.fetch_add(1, Ordering::Relaxed);
        splitmix(self.seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A duration between two bounds in milliseconds.
    pub(super) fn between(&self, low_ms: u64, high_ms: u64) -> Duration {
        Duration::from_millis(low_ms + self.draw() % (high_ms.saturating_sub(low_ms) + 1))
    }

    /// Waits for a duration of the world.
    pub(super) async fn sleep(&self, simulated: Duration) {
        let until = self.tick() + simulated;
        self.context.pace.sleep(simulated).await;
        let now = self.context.clock.elapsed();
        let mut ahead = lock(&self.ahead);
        *ahead = (*ahead).max(until.saturating_sub(now));
    }

    /// Its steady clock, which only grows: time since the world began.
    ///
    /// Waiting moves it by the world's time and work by real time. In a fast world a program that waits 3 s of the
    /// world thus reads 3 s, and a busy computer that runs the simulation does not use up a program's limits.
    pub(super) fn tick(&self) -> Duration {
        self.context.clock.elapsed() + *lock(&self.ahead)
    }

    /// Waits for something between two bounds in milliseconds.
    pub(super) async fn pause(&self, low_ms: u64, high_ms: u64) {
        self.sleep(self.between(low_ms, high_ms)).await;
    }

    /// Whether a fault is still to strike this host.
    pub(super) fn armed(&self, fault: Fault) -> bool {
        self.context.faults.armed(fault, &self.order.name)
    }

    /// Lets a fault strike, and writes it down.
    pub(super) fn strike(&self, fault: Fault) -> bool {
        let struck = self.context.faults.strike(fault, &self.order.name);
        if struck {
            let machine = self.order.name.clone();
            self.context.record.push(Happened::FaultStruck {
                fault: fault.name(),
                machine,
            });
        }
        struck
    }

    /// Numbers the uploads of this host's life, from 1.
    pub(super) fn next_upload(&self) -> u32 {
        let mut counts = lock(&self.counts);
        counts.uploads += 1;
        counts.uploads
    }

    /// The token that ends with the present power-on period.
    pub(super) fn power_token(&self) -> CancellationToken {
        lock(&self.power).clone()
    }

    /// Runs `work` until it is done or the power fails.
    pub(super) fn spawn_powered(&self, work: impl Future<Output = ()> + Send + 'static) {
        let token = self.power_token();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = work => {}
            }
        });
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("machine", &self.order.name)
            .field("phase", &self.phase())
            .finish()
    }
}

fn cancelled() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

/// Mixes a text into a seed.
pub(super) fn fold(seed: u64, text: &str) -> u64 {
    text.bytes().fold(splitmix(seed), |state, byte| {
        splitmix(state ^ u64::from(byte))
    })
}

/// Ed25519 and ECDSA keys. A real host has an RSA key too; making one costs seconds, so it is left out.
fn host_keys(seed: u64) -> Vec<PrivateKey> {
    let mut chance = rand::rngs::StdRng::seed_from_u64(seed);
    let kinds = [
        Algorithm::Ed25519,
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP256,
        },
    ];
    kinds
        .into_iter()
        .filter_map(|kind| PrivateKey::random(&mut chance, kind).ok())
        .collect()
}

fn shape_image(image: &mut Image, order: &HostOrder, context: &HostContext, seed: u64) {
    let strike = |fault: Fault| {
        let struck = context.faults.strike(fault, &order.name);
        if struck {
            let machine = order.name.clone();
            context.record.push(Happened::FaultStruck {
                fault: fault.name(),
                machine,
            });
        }
        struck
    };
    if strike(Fault::ShellVaries) {
        image.shell = if seed.is_multiple_of(2) {
            Shell::PowerShell
        } else {
            Shell::Pwsh
        };
    }
    if strike(Fault::ProfileNoise) {
        image.profile_noise = true;
        image.shell = Shell::PowerShell;
    }
    if strike(Fault::CodePage850) {
        image.code_page = 850;
    }
    if strike(Fault::FeatureNeedsReboot) {
        image.containers = false;
    }
}

fn first_state(order: &HostOrder, image: &Image, seed: u64) -> HostState {
    let mut state = HostState {
        hostname: computer_name(order, seed),
        boot_id: 1 + seed % 5,
        egress_closed: image.egress_closed,
        ..HostState::default()
    };
    let containers = if image.containers {
        FeatureState::Enabled
    } else {
        FeatureState::Disabled
    };
    state.features.insert("Containers".into(), containers);
    state.routes.insert("169.254.169.254/32".into());
    state
        .disk
        .make_folders(&format!(r"C:\Users\{}", image.user));
    state
}

/// Computer name that the image sets: at most 15 characters (docs/field-notes.md, Names and builds).
fn computer_name(order: &HostOrder, seed: u64) -> String {
    let messages = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let tail: String = (0..7)
        .map(|n| char::from(messages[(splitmix(seed ^ n) % 36) as usize]))
        .collect();
    match order.platform {
        Platform::Aws => format!("EC2AMAZ-{tail}"),
        // A clone of a generalised template.
        Platform::VSphere => format!("WIN-{tail}"),
        Platform::Azure | Platform::Own | Platform::Other => {
            let name: String = order.name.chars().rev().take(15).collect();
            let name: String = name.chars().rev().collect();
            name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric())
                .to_owned()
        }
    }
}
