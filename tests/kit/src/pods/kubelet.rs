//! What the API server asks a kubelet for: the log of a container.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

use super::Shared;
use crate::certs::TestCa;

impl Shared {
    /// Answers on a port of the Node's address, until the process ends. The API servers of the tests check no kubelet's
    /// certificate.
    pub(super) fn serve_logs(self: &Arc<Self>, listener: TcpListener) -> Result<()> {
        let identity = TestCa::new().issue(&self.name, &[&self.network.address(1)]);
        let chain = vec![CertificateDer::from_pem_slice(
            identity.certificate.as_bytes(),
        )?];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let config = Arc::new(config);
        let of = Arc::downgrade(self);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let Some(node) = of.upgrade() else { return };
                // A client that breaks off is not the Node's concern.
                let _ = node.answer(&config, socket);
            }
        });
        Ok(())
    }

    /// `GET /containerLogs/NAMESPACE/POD/CONTAINER`: the output of all containers of the pod, in one.
    fn answer(&self, config: &Arc<ServerConfig>, mut socket: TcpStream) -> Result<()> {
        let mut session = ServerConnection::new(Arc::clone(config))?;
        let mut stream = Stream::new(&mut session, &mut socket);
        let mut line = String::new();
        let mut reader = BufReader::new(&mut stream);
        reader.read_line(&mut line)?;
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            header.clear();
        }
        let path = line.split(' ').nth(1).context("no path")?;
        let path = path.split('?').next().unwrap_or_default();
        let words: Vec<&str> = path.split('/').skip(1).collect();
        let found = match words[..] {
            ["containerLogs", _, pod, _] => std::fs::read(self.log(pod)).ok(),
            _ => None,
        };
        let status = if found.is_some() {
            "200 OK"
        } else {
            "404 Not Found"
        };
        let body = found.unwrap_or_default();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(&body)?;
        stream.conn.send_close_notify();
        stream.flush()?;
        Ok(())
    }
}
