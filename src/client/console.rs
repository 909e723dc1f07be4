//! `dormer console`: opens the way to the console for a browser, with a link that logs in once.

use super::{Failure, connector::Connector, server::Address};
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr},
};
use tokio::{io::copy_bidirectional, net::TcpListener};

/// Where a browser finds the console.
#[derive(Debug, Args)]
pub struct Console {
    /// The port on this machine that leads to a console elsewhere [default: any that is free]
    #[arg(
        long,
        default_value_t = 0,
        hide_default_value = true,
        value_name = "PORT"
    )]
    port: u16,
    #[command(flatten)]
    address: Address,
}

/// A link that logs in once.
#[derive(Debug, Deserialize)]
struct Link {
    /// Its path on the console.
    path: String,
}

impl Console {
    /// Prints the link. To a console in a cluster it forwards a port until somebody ends it.
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.address.server();
        let Link { path } = server.post("/links", &json!({})).await?;
        let (base, connector) = server.forwarded().await?;
        let Some(connector) = connector else {
            return Ok(format!("{base}{path}"));
        };
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let cannot = |why: std::io::Error| Failure::Usage(format!("--port {}: {why}", self.port));
        let listener = TcpListener::bind(local).await.map_err(cannot)?;
        let here = listener.local_addr().map_err(cannot)?;
        // Whoever reads this through a pipe has seen enough when it ends; the port is forwarded all the same.
        let _ = writeln!(std::io::stdout(), "http://{here}{path}");
        eprintln!(
            "The link works once, within a minute. The port is forwarded until you end this."
        );
        forward(listener, connector).await
    }
}

/// Each connection gets one of its own to the console.
async fn forward(listener: TcpListener, connector: Connector) -> Result<String, Failure> {
    loop {
        let Ok((mut near, _)) = listener.accept().await else {
            continue;
        };
        let connector = connector.clone();
        tokio::spawn(async move {
            match connector.connect().await {
                Ok(wire) => drop(copy_bidirectional(&mut near, &mut wire.into_inner()).await),
                Err(why) => eprintln!("dormer: a connection was not forwarded: {why}"),
            }
        });
    }
}
