//! `dormer console`: prints a one-time login link to the console, and forwards a port if needed.

use super::{Failure, connector::Connector, server::ServerAddress, terminal};
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::{io::copy_bidirectional, net::TcpListener};

/// Arguments of `dormer console`.
#[derive(Debug, Args)]
pub struct Console {
    /// Local port to forward to a console in a cluster [default: any free port]
    #[arg(
        long,
        default_value_t = 0,
        hide_default_value = true,
        value_name = "PORT"
    )]
    port: u16,
    #[command(flatten)]
    address: ServerAddress,
}

/// One-time login link.
#[derive(Debug, Deserialize)]
struct LoginLink {
    /// Path on the console.
    path: String,
}

impl Console {
    /// Prints the link. For a console in a cluster it forwards a port until the user stops it.
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.address.server();
        let LoginLink { path } = server.post("/links", &json!({})).await?;
        let (base, connector) = server.forwarded().await?;
        let Some(connector) = connector else {
            return Ok(format!("{base}{path}"));
        };
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let cannot = |why: std::io::Error| Failure::Usage(format!("--port {}: {why}", self.port));
        let listener = TcpListener::bind(local).await.map_err(cannot)?;
        let here = listener.local_addr().map_err(cannot)?;
        // A closed output pipe is no error: the port is still forwarded.
        let _ = terminal::say(&format!("http://{here}{path}"));
        terminal::ask("The link works once, within a minute. Press Ctrl-C to stop forwarding.\n");
        forward(listener, connector).await
    }
}

/// Forwards each connection over a connection of its own.
async fn forward(listener: TcpListener, connector: Connector) -> Result<String, Failure> {
    loop {
        let Ok((mut near, _)) = listener.accept().await else {
            continue;
        };
        let connector = connector.clone();
        tokio::spawn(async move {
            match connector.connect().await {
                Ok(wire) => drop(copy_bidirectional(&mut near, &mut wire.into_inner()).await),
                Err(why) => terminal::warn(format_args!("a connection was not forwarded: {why}")),
            }
        });
    }
}
