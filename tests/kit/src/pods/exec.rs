//! A command that the API server has the kubelet run in a container, over a WebSocket.
//!
//! The API server forwards a client's WebSocket to a kubelet whose Node declares that it takes one. To any other it speaks
//! SPDY, which is not implemented here (kubernetes v1.36 `pkg/registry/core/pod/rest/subresources.go`).

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use super::kubelet::KubeletRequest;
use super::{Shared, locked};

/// What a Node declares whose kubelet takes WebSockets.
pub(super) const DECLARED: &str = "ExtendWebSocketsToKubelet";
/// The protocol of the streams: the first byte of a message is its channel (kubernetes v1.36
/// `staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go`).
const PROTOCOL: &str = "v5.channel.k8s.io";
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
/// The channel of the command's end.
const ERROR: u8 = 3;

impl Shared {
    /// `GET /exec/NAMESPACE/POD/CONTAINER?command=…`: runs the command, and sends its output and its end.
    pub(super) fn exec(
        &self,
        request: &KubeletRequest,
        of: [&str; 3],
        stream: &mut (impl Read + Write),
    ) -> Result<()> {
        let key = request.header("sec-websocket-key");
        let offered = request.header("sec-websocket-protocol").unwrap_or_default();
        let (Some(key), true) = (key, offered.contains(PROTOCOL)) else {
            write!(
                stream,
                "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )?;
            return Ok(());
        };
        write!(
            stream,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n",
            derive_accept_key(key.as_bytes())
        )?;
        stream.flush()?;
        let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
        let ended = self.run(of, &request.values("command"));
        let (stdout, stderr, end) = match ended {
            Ok(ended) => (ended.stdout.clone(), ended.stderr.clone(), end_of(&ended)),
            Err(error) => (Vec::new(), Vec::new(), internal(&error.to_string())),
        };
        for (channel, bytes) in [
            (STDOUT, stdout),
            (STDERR, stderr),
            (ERROR, end.to_string().into_bytes()),
        ] {
            if !bytes.is_empty() {
                let message: Vec<u8> = std::iter::once(channel).chain(bytes).collect();
                socket.send(Message::Binary(message.into()))?;
            }
        }
        socket.close(None)?;
        // Until the client has closed, too.
        while socket.read().is_ok() {}
        Ok(())
    }

    fn run(&self, [namespace, pod, container]: [&str; 3], words: &[String]) -> Result<Output> {
        let id = self
            .running(namespace, pod, container)
            .with_context(|| format!("container {container} of {namespace}/{pod} does not run"))?;
        let mut command = Command::new(&self.runc);
        command.arg("--root").arg(self.folder.join("runc"));
        command.arg("exec").arg(id).args(words);
        Ok(command.stdin(Stdio::null()).output()?)
    }

    /// Name for runc of a pod's container that runs.
    fn running(&self, namespace: &str, pod: &str, container: &str) -> Option<String> {
        let pods = locked(&self.pods);
        let is = |metadata: &Value| metadata["namespace"] == namespace && metadata["name"] == pod;
        let (uid, _) = pods
            .iter()
            .find(|(_, known)| !known.over && is(&known.pod["metadata"]))?;
        let start = format!("{uid}-{container}-");
        self.containers(uid).into_iter().find(|id| {
            let number = id.strip_prefix(&start);
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        })
    }
}

/// What is said at a command's end (kubernetes v1.36 `staging/src/k8s.io/apiserver/pkg/util/proxy/streamtranslator.go`).
fn end_of(ended: &Output) -> Value {
    match ended.status.code() {
        Some(0) => json!({"metadata": {}, "status": "Success"}),
        code => {
            let code = code.unwrap_or(-1).to_string();
            json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code}]}})
        }
    }
}

fn internal(why: &str) -> Value {
    json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": why, "code": 500})
}
