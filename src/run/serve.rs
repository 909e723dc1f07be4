//! Listener of health, readiness, API and console.

use super::{
    connections::{Accept, Limited},
    roles::{CONSOLE, Running},
    tls::Tls,
};
use anyhow::Context;
use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    http::{HeaderValue, StatusCode, header::CONNECTION},
    response::Response,
};
use dormer_telemetry::health::{self, Health, RoleStatus};
use futures::StreamExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Time limit of a request's headers, and of the pause before the next request of a connection.
const HEADERS_MAX: Duration = Duration::from_secs(60);
/// Time limit of a request's body, from the end of its headers.
const BODY_MAX: Duration = Duration::from_secs(60);

/// Binds the address before anything else starts, so that a second dormer on the same address fails here.
///
/// # Errors
///
/// The address is in use, or does not belong to this computer.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address}; give another address with --listen (port 0 is any free \
             port)"
        )
    })
}

/// Bound listener that is not served yet.
pub struct Front(ConnectionSource);

/// Source of a front's connections.
enum ConnectionSource {
    Plain(Limited),
    Tls(Tls),
}

impl Front {
    /// Front on `listener`, over TLS if there is a certificate.
    pub fn new(listener: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        let limited = Limited::new(listener);
        Self(match tls {
            Some(acceptor) => ConnectionSource::Tls(Tls::over(limited, acceptor)),
            None => ConnectionSource::Plain(limited),
        })
    }

    /// Serves `router` until the roles end.
    pub fn serve(mut self, running: &mut Running, router: Router) {
        running.health().set(CONSOLE, RoleStatus::Up);
        running.beside(CONSOLE, async move { match self.accept(router).await {} });
    }

    /// Serves the health endpoints alone while `starting` is not done, so that probes see what this process waits for.
    pub async fn meanwhile<T>(
        &mut self,
        health: Arc<Health>,
        starting: impl Future<Output = T>,
    ) -> T {
        // No connection of this time may last: the next request on it belongs to the whole router.
        let early = || async {
            let text = "dormer starts; /readyz shows what it waits for\n";
            (StatusCode::SERVICE_UNAVAILABLE, text)
        };
        let last = axum::middleware::map_response(async |mut response: Response| {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
            response
        });
        let router = health::router(health).fallback(early).layer(last);
        tokio::select! {
            started = starting => started,
            never = self.accept(router) => match never {},
        }
    }

    async fn accept(&mut self, router: Router) -> Infallible {
        match &mut self.0 {
            ConnectionSource::Plain(source) => accept(source, router).await,
            ConnectionSource::Tls(source) => accept(source, router).await,
        }
    }
}

/// Serves every connection, within the limits of this module.
async fn accept<A>(source: &mut A, router: Router) -> Infallible
where
    A: Accept<Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static>,
{
    loop {
        let (stream, peer, open) = source.accept().await;
        let router = router.clone();
        // With the peer's address, because not every caller may act.
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let mut request: Request = request.map(in_time);
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().oneshot(request)
        });
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_MAX)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, %peer, "a connection ended");
            }
            drop(open);
        });
    }
}

/// Body that fails if its end does not come within [`BODY_MAX`].
fn in_time(body: Incoming) -> Body {
    let body = Body::new(body);
    if axum::body::HttpBody::is_end_stream(&body) {
        return body;
    }
    let late = futures::stream::once(async {
        sleep(BODY_MAX).await;
        let why = format!("the body did not come within {} s", BODY_MAX.as_secs());
        Err(axum::Error::new(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            why,
        )))
    });
    // The deadline ends the stream by an error, the body's own end by `None`.
    let frames = body.into_data_stream().map(Some);
    let frames = frames.chain(futures::stream::once(async { None }));
    let either = futures::stream::select(frames, late.map(Some));
    Body::from_stream(
        either
            .take_while(|it| std::future::ready(it.is_some()))
            .filter_map(std::future::ready),
    )
}

#[cfg(test)]
mod tests {
    use super::{super::connections::tests::listener, *};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    #[tokio::test(start_paused = true)]
    async fn who_never_ends_the_headers_is_let_go() {
        let (mut listener, address) = listener(usize::MAX).await;
        tokio::spawn(async move { accept(&mut listener, Router::new()).await });
        let mut slow = TcpStream::connect(address).await.expect("connected");
        slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n")
            .await
            .expect("sent");
        let mut said = Vec::new();
        let ended = tokio::time::timeout(10 * HEADERS_MAX, slow.read_to_end(&mut said)).await;
        ended.expect("the connection ends").expect("read");
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_ends_the_body_is_let_go_and_who_ends_it_is_answered() {
        let (mut listener, address) = listener(usize::MAX).await;
        let echo = axum::routing::post(|body: String| async move { body });
        let router = Router::new().route("/", echo);
        tokio::spawn(async move { accept(&mut listener, router).await });
        let head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\n";
        for (body, expected, ending) in [
            ("hello", "HTTP/1.1 200", "hello"),
            ("hell", "HTTP/1.1 4", ""),
        ] {
            let mut peer = TcpStream::connect(address).await.expect("connected");
            peer.write_all(format!("{head}{body}").as_bytes())
                .await
                .expect("sent");
            let mut said = String::new();
            let ended = tokio::time::timeout(10 * BODY_MAX, peer.read_to_string(&mut said)).await;
            ended.expect("the connection ends").expect("read");
            assert!(
                said.starts_with(expected) && said.ends_with(ending),
                "{said}"
            );
        }
    }

    #[tokio::test]
    async fn while_a_role_waits_at_the_start_its_probes_are_answered_and_no_connection_stays() {
        let (limited, address) = listener(usize::MAX).await;
        let mut front = Front(ConnectionSource::Plain(limited));
        let health = Arc::<Health>::default();
        health.set(CONSOLE, RoleStatus::Waiting("no engine".into()));
        let asked = async {
            let mut answers = Vec::new();
            for path in ["/readyz", "/healthz", "/api/v1/machines"] {
                let mut peer = TcpStream::connect(address).await.expect("connected");
                let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
                peer.write_all(head.as_bytes()).await.expect("sent");
                let mut said = String::new();
                peer.read_to_string(&mut said).await.expect("it ends");
                answers.push(said);
            }
            answers
        };
        let answers = front.meanwhile(health, asked).await;
        for (said, (status, text)) in answers.iter().zip([
            ("HTTP/1.1 503", "no engine"),
            ("HTTP/1.1 200", "no engine"),
            ("HTTP/1.1 503", "/readyz shows"),
        ]) {
            assert!(said.starts_with(status) && said.contains(text), "{said}");
        }
    }

    #[tokio::test]
    async fn a_peer_beyond_its_limit_is_refused_until_one_of_its_connections_ends() {
        let (mut listener, address) = listener(2).await;
        tokio::spawn(async move { accept(&mut listener, Router::new()).await });
        let connected = || async { TcpStream::connect(address).await.expect("connected") };
        let head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let first = connected().await;
        let mut second = connected().await;
        let mut said = String::new();
        let mut third = connected().await;
        third.read_to_string(&mut said).await.expect("closed");
        assert_eq!(said, "");
        second.write_all(head).await.expect("sent");
        second.read_to_string(&mut said).await.expect("read");
        assert!(said.starts_with("HTTP/1.1 404"), "{said}");
        drop(first);
        // The end of a connection is noticed a little later.
        loop {
            let mut fourth = connected().await;
            let mut said = String::new();
            let sent = fourth.write_all(head).await;
            let read = fourth.read_to_string(&mut said).await;
            if sent.and(read.map(drop)).is_ok() && said.starts_with("HTTP/1.1 404") {
                break;
            }
        }
    }
}
