//! Free TCP ports on the loopback address.

use std::net::TcpListener;

use rand::RngExt;

/// Below Linux' and Windows' ranges for outgoing connections (32768 and 49152), so that none of
/// those takes a port between our look and the server's bind, or while a server is restarted.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// A port of 127.0.0.1 that was free a moment ago. Drawn at random, so that test processes that run
/// side by side do not pick the same.
///
/// # Panics
/// When a thousand draws found none.
pub fn free_port() -> u16 {
    let mut rng = rand::rng();
    (0..1000)
        .map(|_| rng.random_range(PORTS))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port on the loopback address")
}
