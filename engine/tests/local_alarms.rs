//! Alarms in memory: an alarm that is set late, from an older record, postpones nothing, and a due timer waits once.

use dormer_engine::{
    local::{LocalAlarms, LocalInbox, deliver_due_timers, timer_due},
    port::{Ack, Alarms, Clock, Inbox, SystemClock},
};
use dormer_proto::id::{Incarnation, RunId};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// Limit for an alarm, which takes milliseconds, on a busy computer. Far less than the later of the two times.
const IN_TIME: Duration = Duration::from_secs(20);

#[tokio::test]
async fn of_two_alarm_times_the_earlier_fires_whatever_the_order() {
    let alarms = Arc::new(LocalAlarms::default());
    let inbox = Arc::new(LocalInbox::default());
    let now = SystemClock.now();
    let soon = now.plus_ms(20);
    let late = now.plus_ms(3_600_000);
    for (key, order) in [("a", [soon, late]), ("b", [late, soon])] {
        let run = RunId::new("toy", key).expect("a run id");
        for at in order {
            alarms
                .set(vec![(run.clone(), Some(at))])
                .await
                .expect("set");
        }
    }
    let cleared = RunId::new("toy", "c").expect("a run id");
    for at in [Some(soon), None] {
        alarms.set(vec![(cleared.clone(), at)]).await.expect("set");
    }
    assert_eq!(alarms.set_for(), 2, "a run that waits for nothing has none");
    let delivering = deliver_due_timers(
        Arc::clone(&alarms),
        Arc::clone(&inbox),
        SystemClock,
        Incarnation(1),
    );
    let delivered = async {
        let mut fired = 0;
        while fired < 2 {
            fired += inbox.take(8).await.expect("letters").len();
        }
    };
    tokio::select! {
        () = delivering => {}
        delivered = timeout(IN_TIME, delivered) => delivered.expect("both ring in time"),
    }
    assert_eq!(alarms.set_for(), 0);
}

/// Puts a due timer of each of these runs.
async fn put_due(inbox: &LocalInbox, keys: &[&str]) {
    let messages = keys.iter().map(|key| {
        let run = RunId::new("toy", key).expect("a run id");
        let due = timer_due(&run, Incarnation(1)).expect("a message");
        (run, due)
    });
    inbox.put(messages.collect()).await.expect("put");
}

/// The shard waits for the later of two, and drops the earlier one when it comes again.
#[tokio::test]
async fn two_due_timers_that_a_newer_build_has_to_take_both_come_again() {
    let inbox = LocalInbox::default();
    let mut acks = Vec::new();
    for _ in 0..2 {
        put_due(&inbox, &["a"]).await;
        for taken in inbox.take(8).await.expect("messages") {
            acks.push((taken.token, Ack::Newer(0)));
        }
    }
    assert_eq!(acks.len(), 2);
    inbox.acknowledge(acks).await;
    assert_eq!(inbox.depth(), 2);
    let again = inbox.take(8).await.expect("messages");
    assert_eq!(again.len(), 2);
}

/// Messages with more deliveries come first into a batch.
#[tokio::test]
async fn a_due_timer_that_replaces_a_repeat_has_waited_as_long() {
    let inbox = LocalInbox::default();
    put_due(&inbox, &["a"]).await;
    for deliveries in 1..4 {
        let taken = inbox.take(8).await.expect("messages");
        assert_eq!((taken.len(), taken[0].deliveries), (1, deliveries));
        put_due(&inbox, &["a"]).await;
        inbox
            .acknowledge(vec![(taken[0].token, Ack::Again(0))])
            .await;
    }
    assert_eq!(inbox.depth(), 1);
}

/// The sweep puts it every minute, for as long as the run's outbox is full.
#[tokio::test]
async fn a_due_timer_waits_once_however_often_it_is_repeated() {
    let inbox = LocalInbox::default();
    let put = async |keys: &[&str]| put_due(&inbox, keys).await;
    put(&["a", "a", "b"]).await;
    put(&["a"]).await;
    let taken = inbox.take(8).await.expect("messages");
    assert_eq!((taken.len(), inbox.depth()), (2, 2));
    // The run may have another deadline by then.
    put(&["a", "a"]).await;
    assert_eq!(inbox.depth(), 3, "one in progress, and one that waits");
    let later = taken.iter().map(|it| (it.token, Ack::Again(60_000)));
    inbox.acknowledge(later.collect()).await;
    put(&["a", "b"]).await;
    assert_eq!(inbox.depth(), 2);
    let taken = inbox.take(8).await.expect("messages");
    assert_eq!(taken.len(), 1, "the other one comes later");
    inbox.acknowledge(vec![(taken[0].token, Ack::Done)]).await;
    put(&["a"]).await;
    assert_eq!(inbox.depth(), 2, "what is done is forgotten");
    // Only due timers are compared.
    let run = RunId::new("toy", "a").expect("a run id");
    inbox
        .put(vec![(run.clone(), vec![1]), (run, vec![1])])
        .await
        .expect("put");
    assert_eq!(inbox.depth(), 4);
}
