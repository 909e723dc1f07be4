//! Stream that keeps its first bytes: they show which program wrote text instead of SFTP.

use super::Io;
use dormer_proto::lock::Locked as _;
use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of bytes kept: enough for a line.
const FIRST_BYTES_MAX: usize = 120;
/// The kind of the packet that SFTP begins with, after four bytes of length.
const VERSION: u8 = 2;

/// First bytes of a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstBytes(Arc<Mutex<Vec<u8>>>);

impl FirstBytes {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.locked()
    }

    /// Whether nothing came.
    pub(super) fn nothing(&self) -> bool {
        self.bytes().is_empty()
    }

    /// What came, if it is not how SFTP begins.
    pub(super) fn text(&self) -> Option<String> {
        let bytes = self.bytes();
        let proper = bytes.get(4) == Some(&VERSION) && bytes.first() == Some(&0);
        let text = String::from_utf8_lossy(&bytes);
        let line = |text: &str| {
            text.trim()
                .split(char::is_control)
                .next()
                .map(str::to_owned)
        };
        let text = line(&text).unwrap_or_default();
        (!proper && !bytes.is_empty()).then_some(text)
    }
}

/// Stream whose first bytes are kept. It reads ahead; otherwise only SFTP's first four bytes arrive.
pub(super) struct PeekStream<S> {
    stream: S,
    first: FirstBytes,
    /// Bytes that were read ahead.
    ahead: VecDeque<u8>,
    full: bool,
}

impl<S> PeekStream<S> {
    pub(super) fn new(stream: S) -> (Self, FirstBytes) {
        let first = FirstBytes::default();
        (
            Self {
                stream,
                first: first.clone(),
                ahead: VecDeque::new(),
                full: false,
            },
            first,
        )
    }
}

impl<S: Io> AsyncRead for PeekStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() && self.full {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        if self.ahead.is_empty() {
            let mut some = [0; FIRST_BYTES_MAX];
            let mut some = ReadBuf::new(&mut some);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut some))?;
            self.ahead.extend(some.filled());
            let first = self.first.clone();
            let mut bytes = first.bytes();
            let room = FIRST_BYTES_MAX - bytes.len();
            bytes.extend(some.filled().iter().take(room));
            self.full = bytes.len() == FIRST_BYTES_MAX;
        }
        let count = self.ahead.len().min(buffer.remaining());
        for byte in self.ahead.drain(..count) {
            buffer.put_slice(&[byte]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Io> AsyncWrite for PeekStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_how_sftp_begins_is_quoted() {
        let first = FirstBytes::default();
        assert!(first.nothing() && first.text().is_none());
        first.bytes().extend(b"Loading personal profile\r\n");
        assert_eq!(first.text().as_deref(), Some("Loading personal profile"));
        let first = FirstBytes::default();
        first.bytes().extend([0, 0, 0, 5, VERSION, 0, 0, 0, 3]);
        assert_eq!(first.text(), None);
    }
}
