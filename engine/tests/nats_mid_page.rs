//! A pass over the store whose connection breaks in mid-page ends with an error, and the next one is complete.

use crate::nats_common;

use dormer_engine::{
    nats::{NatsStore, Options},
    port::{Expected, History, HistoryReader, Ports, StoreError},
};
use dormer_testkit::{NatsOptions, NatsServer, await_condition, started};
use nats_common::{append, options, run};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const SOON: Duration = Duration::from_secs(60);
const RUNS: usize = 2_000;

/// Carries connections to the server. Once `left` bytes of its answers have passed, it cuts the connection.
async fn carry(listener: TcpListener, port: u16, left: Arc<AtomicI64>) {
    while let Ok((near, _)) = listener.accept().await {
        let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else {
            continue;
        };
        let left = Arc::clone(&left);
        tokio::spawn(async move {
            let (mut near_read, mut near_write) = near.into_split();
            let (mut far_read, mut far_write) = far.into_split();
            let asking = tokio::io::copy(&mut near_read, &mut far_write);
            let answering = async {
                let mut bytes = vec![0; 4_096];
                loop {
                    let count = far_read.read(&mut bytes).await.unwrap_or(0);
                    let taken = i64::try_from(count).unwrap_or(0);
                    let before = left.fetch_sub(taken, Ordering::SeqCst);
                    if count == 0 || before < taken {
                        return;
                    }
                    if near_write.write_all(&bytes[..count]).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! { _ = asking => {}, () = answering => {} }
        });
    }
}

#[tokio::test]
async fn a_pass_that_is_cut_off_in_mid_page_ends_and_the_next_is_complete() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let left = Arc::new(AtomicI64::new(i64::MAX));
    let carrying = tokio::spawn(carry(listener, server.port(), Arc::clone(&left)));
    let options = Options {
        servers: format!("nats://127.0.0.1:{port}"),
        ..options(&server)
    };
    let store = NatsStore::open(&options).await.expect("a store");
    let batch = (0..RUNS).map(|n| append(&run(&format!("r{n}")), Expected::Nothing, 1, None));
    let stored = store.history().append(batch.collect()).await;
    assert!(stored.iter().all(Result::is_ok));

    // Some pages of headers, and then no server.
    left.store(100_000, Ordering::SeqCst);
    let cut = tokio::time::timeout(SOON, store.reader().heads(None, RUNS)).await;
    let cut = cut.expect("the pass ends");
    assert!(matches!(cut, Err(StoreError::Unavailable(_))), "{cut:?}");

    left.store(i64::MAX, Ordering::SeqCst);
    await_condition("a complete pass", SOON, || async {
        let heads = store.reader().heads(None, RUNS + 1).await;
        heads.is_ok_and(|heads| heads.len() == RUNS)
    })
    .await;
    carrying.abort();
}
