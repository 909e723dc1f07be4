//! The streams of a store in NATS, as `docs/inventory.md` lists them for the person who deletes them.

use crate::nats_common::options;
use async_nats::jetstream;
use dormer_engine::nats::{NatsStore, Options};
use dormer_testkit::{NatsOptions, NatsServer, started};
use futures::TryStreamExt;

const PAGE: &str = include_str!("../../docs/inventory.md");

/// Streams in the page's table, each in the first column.
fn listed() -> Vec<String> {
    let (_, section) = PAGE.split_once("## In NATS").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split(['`', ',', ' ']));
    let mut names: Vec<String> = names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

/// Prefix of another dormer's store in the same account.
const ANOTHERS: &str = "another";

#[tokio::test]
async fn the_page_lists_every_stream_and_its_deletion_leaves_nothing_but_another_dormers_store() {
    let server = started!(NatsServer::start(NatsOptions::default()));
    let client = async_nats::connect(server.url()).await.expect("a client");
    let context = jetstream::new(client);
    let there = async || {
        let names = context.stream_names().try_collect::<Vec<_>>().await;
        let mut names = names.expect("the streams");
        names.sort();
        names
    };
    assert_eq!(there().await, Vec::<String>::new());
    let store = NatsStore::open(&options(&server)).await.expect("a store");
    assert_eq!(there().await, listed());
    drop(store);
    let anothers_options = Options {
        prefix: Some(ANOTHERS.into()),
        ..options(&server)
    };
    let store = NatsStore::open(&anothers_options).await.expect("a store");
    let incarnation = store.incarnation();
    drop(store);
    assert_eq!(there().await.len(), 2 * listed().len());
    // As the page says.
    for name in listed() {
        context.delete_stream(name).await.expect("deleted");
    }
    let with_its_prefix = |name: &String| match name.strip_prefix("dormer-") {
        Some(rest) => format!("{ANOTHERS}-{rest}"),
        None => panic!("{name} has no prefix"),
    };
    let anothers: Vec<String> = listed().iter().map(with_its_prefix).collect();
    assert_eq!(there().await, anothers, "the page says how its names begin");
    assert!(PAGE.contains("each name begins with `PREFIX-` in place of `dormer-`"));
    let store = NatsStore::open(&anothers_options).await.expect("a store");
    assert_eq!(store.incarnation(), incarnation, "it is whole");
    drop(store);
    for name in anothers {
        context.delete_stream(name).await.expect("deleted");
    }
    let account = context.query_account().await.expect("the account");
    assert_eq!(
        (account.streams, account.consumers, account.storage),
        (0, 0, 0)
    );
}
