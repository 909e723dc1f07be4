//! Byte streams between the parts of the world: real sockets, or pipes in memory.

use std::{io, sync::Arc};

use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// Any two-way byte stream.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A two-way byte stream whose type does not matter.
pub type BoxIo = Box<dyn Io>;

/// Opens byte streams to `host:port`. Real sockets on the real clock; pipes in memory where the
/// whole world runs in one process on a paused clock.
pub trait Dial: Send + Sync + 'static {
    /// Opens a stream to `host:port`.
    ///
    /// # Contract
    /// Fails as a socket would: `ConnectionRefused`, `TimedOut`, `ConnectionReset`. A host that
    /// drops packets leaves the future pending; the caller has the time limit.
    fn dial(&self, authority: &str) -> BoxFuture<'static, io::Result<BoxIo>>;
}

/// A shared [`Dial`].
pub type Dialer = Arc<dyn Dial>;

/// Dials real sockets.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpDial;

impl Dial for TcpDial {
    fn dial(&self, authority: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let authority = authority.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(authority).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxIo)
        })
    }
}
