//! The cloud of simulated hosts: makes them for Machines, takes them away, and says how to reach them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;

use super::computer::{Host, HostPhase, lock};
use super::counts::HostCounts;
use super::kubelet::KUBELET_PORT;
use super::profile::{Image, ServerRelease};
use crate::net::{BoxIo, Dial};
use crate::world::{
    CloudAction, CloudError, HostCloud, HostContext, HostOrder, Instance, Platform,
};

/// Bytes that a pipe in memory holds.
const PIPE_BYTES: usize = 256 << 10;
/// Hosts that one cloud may have.
pub const HOSTS_MAX: usize = 60_000;

/// How hosts are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// By pipes in memory, through [`Hosts::dial`]; addresses are `10.0.x.y`. Port 10250 is the kubelet's, any other sshd's.
    Memory,
    /// By real sockets: each host has an address `127.n.x.y` of its own (`n` is 80, or the next that no other world
    /// on this computer has) and listens on this port, so that a worker in another process dials a Machine's
    /// InternalIP as it stands. Its kubelet listens on 10250.
    Loopback {
        /// The port that stands for 22.
        port: u16,
    },
}

/// The cloud of simulated hosts. Clones share it.
#[derive(Clone)]
pub struct Hosts {
    context: HostContext,
    reach: Reach,
    image: Image,
    network: Arc<HostNetwork>,
    inner: Arc<Mutex<Inner>>,
}

/// The two front parts of every address, ours as long as this lives.
struct HostNetwork {
    front: String,
    _claim: Vec<TcpListener>,
}

impl HostNetwork {
    /// Two worlds on one computer must not answer for each other's hosts: a network is claimed by listening on its
    /// last address.
    fn of(reach: Reach) -> Self {
        let Reach::Loopback { port } = reach else {
            return Self {
                front: "10.0".into(),
                _claim: Vec::new(),
            };
        };
        let claimed = (80..=250).find_map(|n| {
            let claim = |port| TcpListener::bind((Ipv4Addr::new(127, n, 255, 254), port));
            let both = [claim(port).ok()?, claim(KUBELET_PORT).ok()?];
            Some(Self {
                front: format!("127.{n}"),
                _claim: both.into(),
            })
        });
        claimed.unwrap_or_else(|| Self {
            front: "127.80".into(),
            _claim: Vec::new(),
        })
    }
}

#[derive(Default)]
struct Inner {
    hosts: BTreeMap<String, Arc<Host>>,
    linux: BTreeMap<String, Instance>,
    gone: Vec<(String, HostCounts)>,
    addresses: u32,
}

impl Hosts {
    /// A cloud without hosts; they are made from `image`.
    pub fn new(context: HostContext, reach: Reach, image: Image) -> Self {
        let network = Arc::new(HostNetwork::of(reach));
        Self {
            context,
            reach,
            image,
            network,
            inner: Arc::default(),
        }
    }

    /// The host of a Machine.
    pub fn host(&self, uid: &str) -> Option<Arc<Host>> {
        lock(&self.inner).hosts.get(uid).cloned()
    }

    /// All hosts that are there.
    pub fn all(&self) -> Vec<Arc<Host>> {
        lock(&self.inner).hosts.values().cloned().collect()
    }

    /// What was done to each host, those included that are gone: pairs of the Machine's name and its counts.
    pub fn counts(&self) -> Vec<(String, HostCounts)> {
        let inner = lock(&self.inner);
        let mut counts = inner.gone.clone();
        counts.extend(
            inner
                .hosts
                .values()
                .map(|host| (host.name().to_owned(), host.counts())),
        );
        counts
    }

    /// How a worker reaches the hosts: dials `InternalIP:port`.
    pub fn dialer(&self) -> Arc<dyn Dial> {
        Arc::new(self.clone())
    }

    fn by_address(&self, address: &str) -> Option<Arc<Host>> {
        lock(&self.inner)
            .hosts
            .values()
            .find(|host| host.internal_ip() == address)
            .cloned()
    }

    fn next_address(&self, inner: &mut Inner) -> String {
        inner.addresses += 1;
        let n = inner.addresses;
        format!("{}.{}.{}", self.network.front, n / 250, n % 250 + 2)
    }

    fn make(&self, order: HostOrder) -> Result<Instance, CloudError> {
        let mut inner = lock(&self.inner);
        if let Some(host) = inner.hosts.get(&order.uid) {
            return Ok(host.instance());
        }
        if let Some(instance) = inner.linux.get(&order.uid) {
            return Ok(instance.clone());
        }
        if inner.hosts.len() >= HOSTS_MAX {
            return Err(CloudError::Quota(format!("{HOSTS_MAX} instances")));
        }
        let address = self.next_address(&mut inner);
        let mut instance = instance(&order, &address);
        if !order.windows {
            inner.linux.insert(order.uid, instance.clone());
            return Ok(instance);
        }
        let image = Image {
            release: ServerRelease::of_image(&order.image),
            user: user_of(order.platform, &self.image.user),
            ..self.image.clone()
        };
        let host = Host::new(order.clone(), self.context.clone(), image, instance.clone());
        let name = host.state().hostname.to_lowercase();
        instance.addresses.push(("Hostname".into(), name));
        host.set_addresses(instance.addresses.clone());
        inner.hosts.insert(order.uid, host.clone());
        drop(inner);
        self.listen(&host);
        host.power_on();
        Ok(instance)
    }

    fn listen(&self, host: &Arc<Host>) {
        if let Reach::Loopback { port } = self.reach
            && let Ok(ip) = host.internal_ip().parse::<IpAddr>()
        {
            tokio::spawn(super::listener::listen(
                host.clone(),
                SocketAddr::new(ip, port),
            ));
        }
    }

    fn change_address(&self, host: &Arc<Host>) -> Instance {
        let address = self.next_address(&mut lock(&self.inner));
        let mut addresses = host.instance().addresses;
        for (kind, value) in &mut addresses {
            if kind == "InternalIP" {
                value.clone_from(&address);
            }
        }
        host.set_addresses(addresses);
        host.cut_connections();
        self.listen(host);
        host.instance()
    }
}

impl HostCloud for Hosts {
    fn provision(&self, order: HostOrder) -> BoxFuture<'_, Result<Instance, CloudError>> {
        Box::pin(async move { self.make(order) })
    }

    fn delete<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut inner = lock(&self.inner);
            inner.linux.remove(uid);
            if let Some(host) = inner.hosts.remove(uid) {
                inner.gone.push((host.name().to_owned(), host.counts()));
                drop(inner);
                host.power_off();
            }
        })
    }

    fn perform<'a>(&'a self, uid: &'a str, action: CloudAction) -> BoxFuture<'a, Option<Instance>> {
        Box::pin(async move {
            let Some(host) = self.host(uid) else {
                return lock(&self.inner).linux.get(uid).cloned();
            };
            match action {
                CloudAction::PowerOff => host.power_off(),
                CloudAction::PowerOn => host.power_on(),
                CloudAction::ChangeAddress => return Some(self.change_address(&host)),
                CloudAction::Read => {}
            }
            Some(host.instance())
        })
    }
}

impl Dial for Hosts {
    fn dial(&self, authority: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let (address, asked) = authority.rsplit_once(':').unwrap_or((authority, ""));
        let kubelet = asked == KUBELET_PORT.to_string();
        let host = self.by_address(address);
        let reach = self.reach;
        let target = address.to_owned();
        Box::pin(async move {
            if let Reach::Loopback { port } = reach {
                let port = if kubelet { KUBELET_PORT } else { port };
                return crate::net::TcpDial.dial(&format!("{target}:{port}")).await;
            }
            match host {
                None => std::future::pending().await,
                Some(host) if kubelet => dial_kubelet(&host).await,
                Some(host) => dial_pipe(&host).await,
            }
        })
    }
}

async fn dial_pipe(host: &Arc<Host>) -> io::Result<BoxIo> {
    match host.phase() {
        HostPhase::Off | HostPhase::Dropping => std::future::pending().await,
        HostPhase::Refusing => Err(io::ErrorKind::ConnectionRefused.into()),
        HostPhase::Resetting | HostPhase::AuthFailing | HostPhase::Up => {
            let (near, far) = tokio::io::duplex(PIPE_BYTES);
            host.serve(far);
            Ok(Box::new(near))
        }
    }
}

async fn dial_kubelet(host: &Arc<Host>) -> io::Result<BoxIo> {
    if matches!(host.phase(), HostPhase::Off | HostPhase::Dropping) {
        return std::future::pending().await;
    }
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    host.dial_kubelet(Box::new(far)).await?;
    Ok(Box::new(near))
}

/// The account that user data prepares: `capi` on Azure (docs/field-notes.md, Logins and host keys).
fn user_of(platform: Platform, default: &str) -> String {
    if platform == Platform::Azure {
        "capi".into()
    } else {
        default.to_owned()
    }
}

fn instance(order: &HostOrder, address: &str) -> Instance {
    let id = super::computer::fold(0, &order.uid);
    let provider_id = match order.platform {
        Platform::Aws => format!("aws:///us-east-1a/i-{id:017x}"),
        Platform::Azure => format!(
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/{}",
            order.name
        ),
        Platform::VSphere => format!(
            "vsphere://{:08x}-0000-4000-8000-{:012x}",
            id >> 32,
            id & 0xffff_ffff_ffff
        ),
        Platform::Own => String::new(),
        Platform::Other => format!("fleet:///{id:016x}"),
    };
    let mut addresses = vec![("InternalIP".to_owned(), address.to_owned())];
    if order.platform == Platform::Aws {
        let name = format!("ip-{}.ec2.internal", address.replace('.', "-"));
        addresses.push(("InternalDNS".into(), name));
    }
    if order.platform == Platform::VSphere {
        // The virtual machine's name, whatever its Windows calls itself.
        addresses.push(("InternalDNS".into(), order.name.clone()));
    }
    Instance {
        provider_id,
        addresses,
    }
}
