//! Alarms in memory: an alarm that is set late, from an older record, postpones nothing.

use dormer_engine::{
    local::{LocalAlarms, LocalInbox, deliver_due_timers},
    port::{Alarms, Clock, Inbox, SystemClock},
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
