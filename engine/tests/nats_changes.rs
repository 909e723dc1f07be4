//! Stream of changes on a real nats-server: conditional publishes, expiry, and independence of the store.

use crate::nats_common;

use dormer_engine::nats::{NatsChanges, NatsStore, OpenError, PublishError, StateUpdate};
use dormer_proto::{
    id::{Seq, Sum},
    subject::Names,
};
use dormer_testkit::{Login, NatsOptions, NatsServer, NatsVersion, started};
use nats_common::{options, run};

fn update(key: &str, seq: Option<u64>, replaces: u64) -> StateUpdate {
    let mark = seq.map(|seq| (Seq(seq), Sum(seq + 100)));
    StateUpdate {
        run: run(key),
        mark,
        body: format!("{key} {seq:?}").into(),
        replaces,
    }
}

async fn publish(changes: &NatsChanges, one: StateUpdate) -> Result<u64, PublishError> {
    changes.publish(vec![one]).await.remove(0)
}

#[tokio::test]
async fn a_state_replaces_only_the_one_that_it_names() {
    for version in [NatsVersion::Current, NatsVersion::Oldest] {
        let server = started!(NatsServer::start(NatsOptions {
            version,
            ..NatsOptions::default()
        }));
        let store = NatsStore::open(&options(&server)).await.expect("a store");
        let changes = store.changes();
        assert_eq!(changes.extent().await.expect("told"), (0, 0));
        let first = publish(&changes, update("a", Some(1), 0))
            .await
            .expect("told");
        assert_eq!(
            publish(&changes, update("a", Some(1), 0)).await,
            Err(PublishError::Conflict)
        );
        let second = publish(&changes, update("a", Some(2), first))
            .await
            .expect("told");
        assert_eq!(
            publish(&changes, update("a", Some(1), first)).await,
            Err(PublishError::Conflict)
        );
        let other = publish(&changes, update("b", Some(7), 0))
            .await
            .expect("told");
        let contents = changes.contents().await.expect("read");
        let published = |key: &str| {
            contents
                .runs
                .get(&run(key))
                .map(|it| (it.sequence, it.mark))
        };
        assert_eq!(published("a"), Some((second, Some((Seq(2), Sum(102))))));
        assert_eq!(published("b"), Some((other, Some((Seq(7), Sum(107))))));
        assert!(contents.runs.len() == 2 && !contents.full);
        let gone = publish(&changes, update("a", None, second))
            .await
            .expect("told");
        let one = changes
            .one(&run("a"))
            .await
            .expect("read")
            .expect("what is left of it");
        assert_eq!((one.sequence, one.mark), (gone, None));
        assert_eq!(changes.one(&run("c")).await.expect("read"), None);
        assert_eq!(changes.extent().await.expect("told"), (2, gone));
    }
}

#[tokio::test]
async fn it_is_made_again_where_it_is_gone_and_another_of_its_name_ends_the_start() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let js = async_nats::jetstream::new(async_nats::connect(server.url()).await.expect("a client"));
    let name = Names::default().changes_stream();
    js.delete_stream(&name).await.expect("deleted");
    assert!(store.changes().extent().await.is_err());
    assert!(
        store
            .changes()
            .contents()
            .await
            .expect("made again")
            .runs
            .is_empty()
    );
    let mut other = js
        .get_stream(&name)
        .await
        .expect("a stream")
        .cached_info()
        .config
        .clone();
    other.max_messages_per_subject = 5;
    js.update_stream(other).await.expect("altered");
    let refused = NatsStore::open(&options(&server)).await.err();
    assert!(
        matches!(&refused, Some(OpenError::Stream { found, .. }) if found.contains("per_subject")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_server_without_room_for_it_has_a_store_nevertheless() {
    // It has room for the inbox.
    let lines = r#"accounts { A { jetstream { max_memory: 320M, max_file: 1G }
        users: [ { user: "d", password: "d" } ] } }
        no_auth_user: d
    "#;
    let login = Login::Lines(lines.into());
    let server = started!(NatsServer::start(NatsOptions {
        login,
        ..NatsOptions::default()
    }));
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    let missing = store
        .changes()
        .contents()
        .await
        .expect_err("no room")
        .to_string();
    assert!(
        missing.contains(&Names::default().changes_stream()),
        "{missing}"
    );
    NatsStore::open(&options(&server))
        .await
        .expect("and a second time");
}
