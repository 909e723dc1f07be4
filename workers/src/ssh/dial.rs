//! Connections to hosts: TCP sockets, or a replacement for tests.

use futures::future::BoxFuture;
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// Any two-way byte stream.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Boxed two-way byte stream of any type.
pub type BoxIo = Box<dyn Io>;

/// Opens connections.
///
/// # Contract
/// Fails as a socket would. A host that drops packets leaves the future pending: the caller has the time limit.
pub trait Dial: Send + Sync + 'static {
    /// Opens a connection to the host with this InternalIP; the port is the dialer's matter.
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxIo>>;
}

/// A shared [`Dial`].
pub type Dialer = Arc<dyn Dial>;

/// Dials a port over TCP.
#[derive(Debug, Clone, Copy)]
pub struct TcpDial {
    /// Port of `--ssh-port`; 22 by default.
    pub port: u16,
}

impl Dial for TcpDial {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let authority = format!("{address}:{}", self.port);
        Box::pin(async move {
            let stream = TcpStream::connect(authority).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxIo)
        })
    }
}
