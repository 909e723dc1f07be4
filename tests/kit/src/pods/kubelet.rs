//! What the API server asks a kubelet for: the log of a container, and a command in it.

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
    pub(super) fn serve(self: &Arc<Self>, listener: TcpListener) -> Result<()> {
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
                let config = Arc::clone(&config);
                // A client that breaks off is not the Node's concern.
                std::thread::spawn(move || node.answer(&config, socket));
            }
        });
        Ok(())
    }

    fn answer(&self, config: &Arc<ServerConfig>, mut socket: TcpStream) -> Result<()> {
        let mut session = ServerConnection::new(Arc::clone(config))?;
        let mut stream = Stream::new(&mut session, &mut socket);
        let request = KubeletRequest::read(&mut BufReader::new(&mut stream))?;
        let words: Vec<&str> = request.path.split('/').skip(1).collect();
        match words[..] {
            ["exec", namespace, pod, container] => {
                self.exec(&request, [namespace, pod, container], &mut stream)?;
            }
            ["containerLogs", _, pod, _] => self.send_log(pod, &mut stream)?,
            _ => send("404 Not Found", &[], &mut stream)?,
        }
        stream.conn.send_close_notify();
        stream.flush()?;
        Ok(())
    }

    /// `GET /containerLogs/NAMESPACE/POD/CONTAINER`: the output of all containers of the pod, in one.
    fn send_log(&self, pod: &str, stream: &mut impl Write) -> Result<()> {
        match std::fs::read(self.log(pod)) {
            Ok(log) => send("200 OK", &log, stream),
            Err(_) => send("404 Not Found", &[], stream),
        }
    }
}

/// A request of the API server, without a body.
#[derive(Debug)]
pub(super) struct KubeletRequest {
    path: String,
    query: String,
    /// Names in lower case, and values.
    headers: Vec<(String, String)>,
}

impl KubeletRequest {
    fn read(from: &mut impl BufRead) -> Result<Self> {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let target = line.split(' ').nth(1).context("no path")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = Vec::new();
        loop {
            let mut header = String::new();
            if from.read_line(&mut header)? <= 2 {
                break;
            }
            if let Some((name, value)) = header.split_once(':') {
                headers.push((name.to_lowercase(), value.trim().to_owned()));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
        })
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(one, _)| one == name);
        found.map(|(_, value)| value.as_str())
    }

    /// All values of a parameter, in their order.
    pub(super) fn values(&self, name: &str) -> Vec<String> {
        let pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let values = pairs.filter(|(one, _)| *one == name);
        values.map(|(_, value)| decoded(value)).collect()
    }
}

/// A text of a query: `+` is a space, `%2F` a slash.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts
        .next()
        .unwrap_or_default()
        .replace('+', " ")
        .into_bytes();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(digits, 16));
        bytes.extend(rest.replace('+', " ").into_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn send(status: &str, body: &[u8], stream: &mut impl Write) -> Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    Ok(stream.write_all(body)?)
}

#[cfg(test)]
mod tests {
    use super::KubeletRequest;

    #[test]
    fn a_command_is_read_word_by_word() {
        let text = "POST /exec/a/b/c?command=%2Fagnhost&command=a+b%25&output=1 HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
        let request = KubeletRequest::read(&mut text.as_bytes()).expect("a request");
        assert_eq!(request.path, "/exec/a/b/c");
        assert_eq!(request.values("command"), ["/agnhost", "a b%"]);
        assert_eq!(request.header("upgrade"), Some("websocket"));
    }
}
