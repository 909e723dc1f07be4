//! Probes of a container.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustls::{ClientConnection, Stream};
use serde_json::Value;

use super::Shared;
use super::spec::{list, text};
use crate::https::trusting;

/// A probe and what it came to so far.
#[derive(Debug)]
pub(super) struct Probe {
    spec: Value,
    due: Instant,
    failures: u64,
    successes: u64,
}

impl Probe {
    /// The probe of a container that starts now, if it has one of this name.
    pub(super) fn of(container: &Value, name: &str) -> Option<Self> {
        let spec = container[name].clone();
        let delay = Duration::from_secs(spec["initialDelaySeconds"].as_u64().unwrap_or(0));
        spec.is_object().then(|| Self {
            spec,
            due: Instant::now() + delay,
            failures: 0,
            successes: 0,
        })
    }

    /// Asks if it is time to; answers once so many answers were alike as the thresholds say.
    pub(super) fn check(
        &mut self,
        node: &Shared,
        container: &Value,
        id: &str,
        address: &str,
    ) -> Option<bool> {
        if Instant::now() < self.due {
            return None;
        }
        let number = |field: &str, default: u64| self.spec[field].as_u64().unwrap_or(default);
        let (period, failures, successes) = (
            Duration::from_secs(number("periodSeconds", 10)),
            number("failureThreshold", 3),
            number("successThreshold", 1),
        );
        let well = self.asked(node, container, id, address);
        self.due = Instant::now() + period;
        (self.failures, self.successes) = match well {
            true => (0, self.successes + 1),
            false => (self.failures + 1, 0),
        };
        match well {
            true => (self.successes >= successes).then_some(true),
            false => (self.failures >= failures).then_some(false),
        }
    }

    fn asked(&self, node: &Shared, container: &Value, id: &str, address: &str) -> bool {
        let limit = Duration::from_secs(self.spec["timeoutSeconds"].as_u64().unwrap_or(1));
        if self.spec["exec"].is_object() {
            let command = list(&self.spec["exec"]["command"]).iter().map(text);
            let words: Vec<&str> = ["exec", id].into_iter().chain(command).collect();
            return node.runc(&words).is_ok();
        }
        let get = &self.spec["httpGet"];
        let ports = list(&container["ports"]);
        let named = || ports.iter().find(|port| port["name"] == get["port"]);
        let port = get["port"]
            .as_u64()
            .or_else(|| named()?["containerPort"].as_u64());
        let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else {
            return false;
        };
        let path = get["path"].as_str().unwrap_or("/");
        let scheme = text(&get["scheme"]);
        let status = answered(address, port, scheme, path, limit);
        status.is_ok_and(|status| (200..400).contains(&status))
    }
}

/// The status of the answer to `GET path` within a limit.
fn answered(address: &str, port: u16, scheme: &str, path: &str, limit: Duration) -> Result<u16> {
    let to = SocketAddr::new(address.parse()?, port);
    let mut socket = TcpStream::connect_timeout(&to, limit)?;
    socket.set_read_timeout(Some(limit))?;
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: {address}:{port}\r\nConnection: close\r\n\r\n");
    let mut status = [0; 12];
    if scheme == "HTTPS" {
        let mut session = ClientConnection::new(trusting()?, to.ip().into())?;
        let mut stream = Stream::new(&mut session, &mut socket);
        stream.write_all(head.as_bytes())?;
        stream.read_exact(&mut status)?;
    } else {
        socket.write_all(head.as_bytes())?;
        socket.read_exact(&mut status)?;
    }
    let status = std::str::from_utf8(&status)?.split(' ').nth(1);
    Ok(status.context("no HTTP answer")?.parse()?)
}
