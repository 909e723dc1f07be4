//! The network of a Node's pods: a bridge on this computer, and a namespace with one address for each pod.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use super::locked;
use crate::cable::ip;
use crate::kubernetes::SERVICE;
use crate::skip::Skipped;

/// Addresses of a Node's network, the bridge's among them.
const ADDRESSES: u32 = 62;

#[derive(Debug)]
pub(super) struct PodNetwork {
    /// The bridge's name, with which those of the namespaces begin.
    pub(super) name: String,
    front: String,
    first: u32,
    taken: Mutex<Vec<u32>>,
    attached: AtomicU32,
}

impl PodNetwork {
    /// Makes the bridge.
    ///
    /// # Errors
    /// This is not root, or there is no iproute2.
    pub(super) fn make() -> Result<Self, Skipped> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let network = Self {
            name: format!("dmp{pid}x{number}"),
            front: format!("10.215.{}", pid % 250),
            first: number % 4 * 64,
            taken: Mutex::default(),
            attached: AtomicU32::new(0),
        };
        let name = &network.name;
        ip(&format!("link add {name} type bridge"))?;
        ip(&format!("addr add {}/26 dev {name}", network.address(1)))?;
        ip(&format!("addr add {SERVICE}/32 dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        // Pods reach hosts on loopback addresses of this computer, and are answered from there.
        let file = format!("/proc/sys/net/ipv4/conf/{name}/route_localnet");
        std::fs::write(&file, "1").map_err(|error| Skipped {
            server: "ip netns".to_owned(),
            reason: format!("{file}: {error}"),
        })?;
        // Pods of one Node reach those of another.
        let file = format!("/proc/sys/net/ipv4/conf/{name}/forwarding");
        std::fs::write(&file, "1").map_err(|error| Skipped {
            server: "ip netns".to_owned(),
            reason: format!("{file}: {error}"),
        })?;
        Ok(network)
    }

    /// The address of a number; 1 is the bridge's.
    pub(super) fn address(&self, number: u32) -> String {
        format!("{}.{}", self.front, self.first + number)
    }

    /// Stands for the Service `kubernetes`: what connects to it is connected to the API server.
    pub(super) fn gateway(&self, port: u16) -> Result<()> {
        match TcpListener::bind((SERVICE, port)) {
            Ok(listener) => forward(listener, format!("127.0.0.1:{port}")),
            // Another Node of this control plane has it, and its listener lives on.
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(error).context("the Service's address"),
        }
        Ok(())
    }

    /// A namespace with an address: its name, and the address.
    pub(super) fn attach(&self) -> Result<(String, String)> {
        let number = {
            let mut taken = locked(&self.taken);
            let free = (2..ADDRESSES).find(|number| !taken.contains(number));
            let number = free.context("every address is taken")?;
            taken.push(number);
            number
        };
        let bridge = &self.name;
        let name = format!("{bridge}n{}", self.attached.fetch_add(1, Ordering::Relaxed));
        let link = format!("v{name}").replace("dmp", "");
        let address = self.address(number);
        let gate = self.address(1);
        let made = [
            format!("netns add {name}"),
            format!("link add {link} type veth peer name eth0 netns {name}"),
            format!("link set {link} master {bridge} up"),
            format!("-n {name} addr add {address}/26 dev eth0"),
            format!("-n {name} link set lo up"),
            format!("-n {name} link set eth0 up"),
            format!("-n {name} route add default via {gate}"),
            format!("netns exec {name} sysctl -qw net.ipv4.conf.eth0.route_localnet=1"),
            format!("-n {name} route del local 127.0.0.0/8 dev lo table local"),
            format!("-n {name} route add 127.0.0.0/8 via {gate} dev eth0 src {address}"),
        ];
        for words in made {
            ip(&words).map_err(|skipped| anyhow::anyhow!(skipped.reason))?;
        }
        Ok((name, address))
    }

    /// Takes a namespace away.
    pub(super) fn detach(&self, name: &str, address: &str) {
        let _ = ip(&format!("netns del {name}"));
        locked(&self.taken).retain(|number| self.address(*number) != address);
    }
}

/// Connects what connects to the listener, until the process ends.
pub(super) fn forward(listener: TcpListener, to: String) {
    std::thread::spawn(move || {
        for inner in listener.incoming().flatten() {
            let Ok(outer) = TcpStream::connect(&to) else {
                continue;
            };
            for (from, to) in [(&inner, &outer), (&outer, &inner)] {
                let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else {
                    continue;
                };
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                    let _ = from.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
}
