//! Network connection to a host, which can be cut, or fall silent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The host's hold on one connection. Clones hold the same one.
#[derive(Debug, Clone, Default)]
pub struct Link {
    cut: CancellationToken,
    silent: Arc<AtomicBool>,
}

impl Link {
    /// Resets the connection.
    pub fn cut(&self) {
        self.cut.cancel();
    }

    /// Ends when the connection is cut.
    pub fn when_cut(&self) -> WaitForCancellationFutureOwned {
        self.cut.clone().cancelled_owned()
    }

    /// Whether the connection is cut.
    pub fn is_cut(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// From now on no data passes in either direction, and neither end is notified (scenario 13).
    pub fn silence(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }
}

/// A byte stream under the control of a [`Link`].
pub struct Wire<I> {
    io: I,
    link: Link,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<I> Wire<I> {
    /// Puts `io` under the control of `link`.
    pub fn new(io: I, link: Link) -> Self {
        let cut = Box::pin(link.when_cut());
        Self { io, link, cut }
    }

    fn poll_state(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(self.link.silent.load(Ordering::Relaxed)))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Wire<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.poll_state(context) {
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(true)) | Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(false)) => {}
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        if self.link.silent.load(Ordering::Relaxed) {
            buffer.set_filled(before);
            return Poll::Pending;
        }
        polled
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Wire<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.poll_state(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(true)) => Poll::Ready(Ok(bytes.len())),
            _ => Pin::new(&mut self.io).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_cut_wakes_a_waiting_reader() {
        let (near, _far) = tokio::io::duplex(64);
        let link = Link::default();
        let mut wire = Wire::new(near, link.clone());
        let reading = tokio::spawn(async move { wire.read_u8().await.map_err(|e| e.kind()) });
        tokio::task::yield_now().await;
        link.cut();
        assert_eq!(
            reading.await.ok(),
            Some(Err(io::ErrorKind::ConnectionReset))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_link_swallows_everything() {
        let (near, mut far) = tokio::io::duplex(64);
        let link = Link::default();
        let mut wire = Wire::new(near, link.clone());
        link.silence();
        assert!(wire.write_all(b"lost").await.is_ok());
        assert!(far.write_all(b"lost too").await.is_ok());
        let quiet = std::time::Duration::from_secs(60);
        assert!(tokio::time::timeout(quiet, wire.read_u8()).await.is_err());
        assert!(tokio::time::timeout(quiet, far.read_u8()).await.is_err());
    }
}
