//! Heads of one history stream, cached for readers that poll.

use super::{
    head_headers::head,
    last_messages::{Followed, LastHeaders},
    link::Link,
};
use crate::port::{Head, StoreError};
use async_nats::Message;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};
use tokio::sync::Mutex;

/// Head in the last message of each subject. `None`: the message is no record.
type Heads = HashMap<String, Option<Head>>;

/// Heads of one stream.
#[derive(Default)]
pub(super) struct KeptHeads {
    /// Lock held while the stream is read, so that several callers cause one read.
    kept: Mutex<Option<(LastHeaders, Heads)>>,
    /// Nothing is kept any more: a consumer that is created now would stay on the server.
    ended: AtomicBool,
}

impl KeptHeads {
    /// Present heads of the history stream `index`.
    pub(super) async fn now(&self, link: &Link, index: u64) -> Result<Vec<Head>, StoreError> {
        let mut kept = self.kept.lock().await;
        if self.ended.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("the store is closed".into()));
        }
        // What fails or is cancelled half-way is read from the beginning by the next caller.
        if let Some((mut reader, mut heads)) = kept.take() {
            let see = |message: &Message, sequence| note(&mut heads, message, sequence);
            let followed = reader.follow(link, see).await;
            if let Ok(Followed::Current(subjects)) = followed
                && subjects.is_none_or(|subjects| !has_more(&heads, subjects))
            {
                let present = heads.values().flatten().cloned().collect();
                *kept = Some((reader, heads));
                return Ok(present);
            }
            reader.end(link).await;
            followed?;
        }
        let name = link.names.history_stream(index);
        let mut heads = Heads::new();
        let see = |message: &Message, sequence| note(&mut heads, message, sequence);
        let reader = LastHeaders::kept(link, &name, link.names.history_all(index), see).await?;
        let present = heads.values().flatten().cloned().collect();
        *kept = Some((reader, heads));
        Ok(present)
    }

    /// Ends the reading for good.
    pub(super) async fn end(&self, link: &Link) {
        self.ended.store(true, Ordering::Relaxed);
        let kept = self.kept.lock().await.take();
        if let Some((reader, _)) = kept {
            reader.end(link).await;
        }
    }
}

/// Whether runs of these heads were deleted: a deletion leaves no message.
fn has_more(heads: &Heads, subjects: u64) -> bool {
    u64::try_from(heads.len()).is_ok_and(|known| known > subjects)
}

fn note(heads: &mut Heads, message: &Message, sequence: u64) {
    heads.insert(message.subject.to_string(), head(message, sequence));
}
