//! A relay between us and sshd that a test may make bad: it swallows, cuts and slows down.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
    time::interval,
};

/// A slow relay lets bytes pass so often a second.
const PACE_A_SECOND: u64 = 50;

/// What is wrong with the way.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Whether bytes vanish, in both directions, with the connections open.
    pub(crate) swallows: AtomicBool,
    /// So many more bytes reach the host; then the connection that carries them is cut.
    pub(crate) bytes_until_cut: AtomicU64,
    /// Connections cut.
    pub(crate) cuts: AtomicU64,
    /// Bytes a second towards the host; 0 is as many as come.
    pub(crate) bytes_a_second: AtomicU64,
}

/// A running relay. It ends with the value.
pub(crate) struct Relay {
    pub(crate) port: u16,
    pub(crate) faults: Arc<Faults>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Stands before a port of this machine.
    pub(crate) async fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let faults = Arc::new(Faults {
            swallows: AtomicBool::new(false),
            bytes_until_cut: AtomicU64::new(u64::MAX),
            cuts: AtomicU64::new(0),
            bytes_a_second: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, port, Arc::clone(&faults)));
        Self {
            port: own,
            faults,
            _tasks: tasks,
        }
    }
}

async fn listen(listener: TcpListener, port: u16, faults: Arc<Faults>) {
    let mut directions = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let faults = Arc::clone(&faults);
        directions.spawn(async move {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else {
                return;
            };
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            tokio::select! {
                () = towards_host(near_read, far_write, &faults) => {}
                () = back(far_read, near_write, &faults) => {}
            }
        });
    }
}

async fn towards_host(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: &Faults) {
    let mut pace = interval(Duration::from_millis(1000 / PACE_A_SECOND));
    let mut buffer = vec![0; 16 << 10];
    loop {
        let rate = faults.bytes_a_second.load(SeqCst);
        let mut most = buffer.len();
        if rate > 0 {
            pace.tick().await;
            most = most.min(usize::try_from(rate / PACE_A_SECOND).unwrap_or(1).max(1));
        }
        let Ok(count @ 1..) = from.read(&mut buffer[..most]).await else {
            return;
        };
        if faults.swallows.load(SeqCst) {
            continue;
        }
        let left = faults.bytes_until_cut.load(SeqCst);
        if left < count as u64 {
            faults.bytes_until_cut.store(u64::MAX, SeqCst);
            faults.cuts.fetch_add(1, SeqCst);
            return;
        }
        if left < u64::MAX {
            faults.bytes_until_cut.store(left - count as u64, SeqCst);
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn back(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: &Faults) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        if !faults.swallows.load(SeqCst) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
