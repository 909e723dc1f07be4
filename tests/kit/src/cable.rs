//! A network namespace with one address, at the end of a cable that can be cut without either end being told.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::nats::NatsNetwork;
use crate::skip::Skipped;

/// A namespace (`ip netns`) and a pair of addresses. Dropping it removes both.
#[derive(Debug)]
pub struct Cable {
    name: String,
    ours: String,
    theirs: String,
}

impl Cable {
    /// Lays a cable.
    ///
    /// # Errors
    /// This is not root, or there is no iproute2.
    pub fn lay() -> Result<Self, Skipped> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Four addresses each, out of a net that the tests have for themselves.
        let net = format!("10.214.{}.{{}}", pid % 250);
        let at = |host: u32| net.replace("{}", &(number % 60 * 4 + host).to_string());
        let cable = Self {
            name: format!("dmc{pid}x{number}"),
            ours: at(1),
            theirs: at(2),
        };
        let Self { name, ours, theirs } = &cable;
        ip(&format!("netns add {name}"))?;
        ip(&format!(
            "link add {name} type veth peer name eth0 netns {name}"
        ))?;
        ip(&format!("addr add {ours}/30 dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        ip(&format!("-n {name} addr add {theirs}/30 dev eth0"))?;
        ip(&format!("-n {name} link set eth0 up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        Ok(cable)
    }

    /// Where a server is to run.
    pub fn network(&self) -> NatsNetwork {
        NatsNetwork {
            namespace: self.name.clone(),
            address: self.theirs.clone(),
        }
    }

    /// Cuts the cable, or mends it. While it is cut, whatever is sent is lost without an answer.
    ///
    /// # Panics
    /// When the route cannot be changed.
    pub fn cut(&self, cut: bool) {
        let verb = if cut { "add" } else { "del" };
        ip(&format!(
            "-n {} route {verb} blackhole {}/32",
            self.name, self.ours
        ))
        .unwrap_or_else(|skipped| panic!("{}", skipped.reason));
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = ip(&format!("link del {}", self.name));
        let _ = ip(&format!("netns del {}", self.name));
    }
}

/// Runs iproute2's `ip` with these words.
pub(crate) fn ip(words: &str) -> Result<(), Skipped> {
    let skipped = |reason: String| Skipped {
        server: "ip netns".to_owned(),
        reason,
    };
    let done = Command::new("ip").args(words.split(' ')).output();
    let done = done.map_err(|error| skipped(format!("ip {words}: {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(skipped(format!("ip {words}: {said}")))
}
