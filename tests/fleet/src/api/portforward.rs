//! A port forwarded to a pod: a websocket whose frames begin with the number of their channel.
//!
//! The pod's `status.podIP` is dialled, on which a test listens. Of the real one this lacks SPDY, several ports over
//! one websocket, what goes wrong in the pod on the error channel, and that kubelet dials the pod's own loopback.

use futures::{SinkExt, StreamExt};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{
        CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
    },
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

use super::{kinds, object::Key, server::ApiServer, status::Refusal};

/// How frames begin with their channel.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// Bytes of the pod in one frame.
const FRAME_MAX: usize = 16 << 10;

/// Whether a path asks for a forwarded port.
pub fn is_asked(path: &str) -> bool {
    path.starts_with("/api/v1/namespaces/") && path.ends_with("/portforward")
}

/// Answers the handshake, and forwards from then on.
///
/// # Errors
/// 404: no such pod. 400: no websocket, no port, or a pod without an address.
pub fn answer(server: &ApiServer, mut request: Request<Incoming>) -> Result<Response<()>, Refusal> {
    let path = request.uri().path().to_owned();
    let [_, _, _, _, namespace, "pods", name, _] = path.split('/').collect::<Vec<_>>()[..] else {
        return Err(Refusal::no_such_path());
    };
    let pod = server.get(&kinds::POD, &Key::new(namespace, name))?;
    let query = request.uri().query().unwrap_or_default();
    let port = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("ports="));
    let port: Option<u16> = port.and_then(|port| port.parse().ok());
    let key = request.headers().get(SEC_WEBSOCKET_KEY).cloned();
    let (Some(port), Some(key)) = (port, key) else {
        return Err(Refusal::bad_request("a websocket, and one port"));
    };
    let address = pod.value["status"]["podIP"].as_str().map(str::to_owned);
    let address = address.ok_or_else(|| Refusal::bad_request("the pod has no address"))?;
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let (Ok(io), Ok(pod)) = (
            upgraded.await,
            TcpStream::connect((address.as_str(), port)).await,
        ) {
            forward(io, pod, port).await;
        }
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes()))
        .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .body(())
        .map_err(|error| Refusal::bad_request(error.to_string()))
}

/// Channel 0 carries bytes, channel 1 errors; the first frame of each names the port.
async fn forward(io: Upgraded, mut pod: TcpStream, port: u16) {
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(io), Role::Server, None).await;
    let (mut to_client, mut from_client) = socket.split();
    for channel in [0, 1] {
        let [low, high] = port.to_le_bytes();
        let first = Message::Binary(vec![channel, low, high].into());
        if to_client.send(first).await.is_err() {
            return;
        }
    }
    let mut buffer = vec![0; FRAME_MAX];
    loop {
        tokio::select! {
            read = pod.read(&mut buffer) => match read {
                Ok(count) if count > 0 => {
                    let frame = [&[0], &buffer[..count]].concat();
                    if to_client.send(Message::Binary(frame.into())).await.is_err() {
                        return;
                    }
                }
                _ => return drop(to_client.close().await),
            },
            frame = from_client.next() => match frame {
                Some(Ok(Message::Binary(frame))) if frame.len() > 1 => {
                    if pod.write_all(&frame[1..]).await.is_err() {
                        return;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
}
