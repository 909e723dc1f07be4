//! Relay that delays every byte and limits no rate.

use std::{io, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// Bytes read at once.
const PIECE: usize = 64 << 10;
/// Most pieces in transit in one direction: more than both sides' windows, so that the relay never limits the rate.
const PENDING_MAX: usize = 4096;

/// Running relay, ended on drop.
pub(super) struct Relay {
    pub(super) port: u16,
    _task: JoinSet<()>,
}

impl Relay {
    /// Starts a relay in front of a local port.
    pub(super) async fn before(port: u16, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((super::HERE, 0)).await?;
        let own = listener.local_addr()?.port();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut directions = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                directions.spawn(async move {
                    // A refused client sees the connection end.
                    let _ = join(near, port, delay).await;
                });
            }
        });
        Ok(Self {
            port: own,
            _task: task,
        })
    }
}

async fn join(near: TcpStream, port: u16, delay: Duration) -> io::Result<()> {
    let far = TcpStream::connect((super::HERE, port)).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    let (there, back) = tokio::join!(
        carry(near_read, far_write, delay),
        carry(far_read, near_write, delay)
    );
    there.and(back)
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) -> io::Result<()> {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PENDING_MAX);
    let read = async move {
        loop {
            let mut piece = vec![0; PIECE];
            let count = from.read(&mut piece).await?;
            piece.truncate(count);
            if count == 0 || sender.send((Instant::now() + delay, piece)).await.is_err() {
                return Ok::<_, io::Error>(());
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(drop)
}
