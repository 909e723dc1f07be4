//! A relay between browser and dormer that can cut its connections, or let them fall silent.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

/// What its threads share.
#[derive(Default)]
struct Shared {
    /// No new connection is taken.
    closed: AtomicBool,
    /// Connections taken before that number carry nothing any more, and do not end either.
    frozen: AtomicU64,
    taken: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

/// The relay. Its threads end with the test's process.
pub(crate) struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

impl Relay {
    /// Relays from a free port to `to`, both on loopback.
    pub(crate) fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::<Shared>::default();
        let ours = Arc::clone(&shared);
        thread::spawn(move || {
            for browser in listener.incoming().flatten() {
                if ours.closed.load(SeqCst) {
                    continue;
                }
                let Ok(dormer) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                let number = ours.taken.fetch_add(1, SeqCst);
                let copies = || Some((browser.try_clone().ok()?, dormer.try_clone().ok()?));
                let (Some((one, other)), Some(kept)) = (copies(), copies()) else {
                    continue;
                };
                ours.open
                    .lock()
                    .expect("unpoisoned")
                    .extend([kept.0, kept.1]);
                for (from, to) in [(browser, other), (dormer, one)] {
                    let shared = Arc::clone(&ours);
                    thread::spawn(move || carry(from, to, number, &shared));
                }
            }
        });
        Self { port, shared }
    }

    /// Where the browser goes.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Ends every connection, and takes no new one.
    pub(crate) fn cut(&self) {
        self.shared.closed.store(true, SeqCst);
        for stream in self.shared.open.lock().expect("unpoisoned").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Takes connections again.
    pub(crate) fn restore(&self) {
        self.shared.closed.store(false, SeqCst);
    }

    /// Those that are open carry nothing any more; new ones do.
    pub(crate) fn freeze(&self) {
        self.shared
            .frozen
            .store(self.shared.taken.load(SeqCst), SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, number: u64, shared: &Shared) {
    let mut part = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut part) {
        let frozen = number < shared.frozen.load(SeqCst);
        if !frozen && to.write_all(&part[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
