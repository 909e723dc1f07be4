//! A run for which another engine was faster: it is decided again in the same turn.

use crate::builds;

use builds::{new, new::New, run};
use dormer_engine::{
    local::Local,
    memory::MemoryStore,
    port::{Clock, History, Inbox},
    shard::Shard,
};
use dormer_engine_core::{InboxMessageOf, Record, Workflow};
use dormer_proto::{
    envelope,
    id::{Epoch, Incarnation, Timestamp},
    message::{Inbound, InboxMessage, ObjectRef, Observation, Version},
};
use std::sync::Arc;

#[derive(Clone, Copy)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp(1_000)
    }
}

type Site = Local<MemoryStore, Still>;

async fn turn(site: &Site, shard: &mut Shard<New, Site>, resource: u64) {
    let object = ObjectRef {
        cluster: String::new(),
        kind: "Page".into(),
        uid: "u".into(),
    };
    let version = Version {
        epoch: Epoch(1),
        resource,
    };
    let fact = new::Fact {
        size: u32::try_from(resource).expect("small"),
        colour: None,
    };
    let message: InboxMessageOf<New> = InboxMessage {
        run: run("a"),
        incarnation: Some(Incarnation(5)),
        body: Inbound::Observed(Observation {
            object,
            version,
            fact: Some(fact),
            may_start: true,
        }),
    };
    let (bytes, _) = envelope::encode(&message, New::SCHEMA).expect("a message");
    let put = site.inbox.put(vec![(run("a"), bytes)]).await;
    put.expect("put");
    let batch = site.inbox.take(10).await.expect("a message");
    shard.turn(batch).await.expect("the engine goes on");
}

#[tokio::test]
async fn a_conflict_is_decided_again_in_the_same_turn() {
    let store = Arc::new(MemoryStore::new(Incarnation(5)));
    let site = Arc::new(Local::new(Arc::clone(&store), Still));
    let mut one = Shard::<New, Site>::new(Arc::clone(&site), "one", 8);
    let mut other = Shard::<New, Site>::new(Arc::clone(&site), "other", 8);
    turn(&site, &mut one, 1).await;
    turn(&site, &mut other, 2).await;
    turn(&site, &mut one, 3).await;
    assert_eq!(one.counters.conflicts, 1, "the other was faster");
    assert_eq!(site.inbox.depth(), 0, "no message comes again");
    let stored = store.load(&[run("a")]).await.expect("loaded").remove(0);
    let stored = stored.expect("a record");
    let (record, _) = envelope::decode::<Record<New>>(&stored.bytes, New::SCHEMA).expect("read");
    assert_eq!((record.run.seq.0, record.run.state.size), (3, 3));
}
