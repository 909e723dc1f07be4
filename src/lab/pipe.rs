//! In-memory pipes for kube's client and dormer's SSH: on a paused clock, waiting for a real socket would let time
//! jump.

use axum::http::{HeaderValue, Request, Uri, header::AUTHORIZATION};
use dormer_fleet::net;
use dormer_workers::ssh::{BoxIo, Dial};
use futures::future::BoxFuture;
use hyper_util::{
    client::legacy::{
        Client as HyperClient,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo},
};
use kube::{Client, client::Body};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::{ServiceBuilder, service_fn};

/// A port of hosts in memory, by their InternalIP.
pub struct Reach {
    /// Opens pipes to hosts.
    pub dialer: net::Dialer,
    /// Their port.
    pub port: u16,
}

impl Dial for Reach {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let dialled = self.dialer.dial(&format!("{address}:{}", self.port));
        Box::pin(async move { Ok(Box::new(dialled.await?) as BoxIo) })
    }
}

/// A pipe to the API server, as hyper wants connections.
struct Pipe(net::BoxIo);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Client for the API server behind `dialer`, by plain HTTP: a pipe cannot be intercepted.
///
/// # Errors
/// The token has characters that no header has.
pub fn client(dialer: net::Dialer, token: &str) -> anyhow::Result<Client> {
    let connector = service_fn(move |_: Uri| {
        let dialled = dialer.dial("localhost:6443");
        Box::pin(async move { Ok::<_, io::Error>(TokioIo::new(Pipe(dialled.await?))) })
    });
    let http: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new()).build(connector);
    let bearer = HeaderValue::from_str(&format!("Bearer {token}"))?;
    let service = ServiceBuilder::new()
        .map_request(move |mut request: Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
            let path = request
                .uri()
                .path_and_query()
                .map_or("/", |path| path.as_str());
            // An invalid URI stays invalid; the server rejects it.
            if let Ok(uri) = format!("http://localhost{path}").parse() {
                *request.uri_mut() = uri;
            }
            request
        })
        .service(http);
    Ok(Client::new(service, "default"))
}
