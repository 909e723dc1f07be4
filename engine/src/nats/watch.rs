//! Watching over the streams: at each reconnect and now and then, is each still the one it was?
//!
//! A rebuildable stream holds a *canary*, a message that nobody consumes. When it is missing or another, the stream
//! was created anew or lost what it held, and `outstanding()` of every run has to be carried out. A history stream
//! that ends before what it acknowledged ends the store.

use super::{
    connect::ANSWER_MAX,
    link::{Fault, Link},
    streams::ensure,
};
use crate::port::StoreError;
use async_nats::{HeaderMap, jetstream::stream::LastRawMessageErrorKind};
use dormer_proto::subject::HISTORY_STREAMS;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// How often the streams are looked at when nothing happens.
const POLL_EVERY: Duration = Duration::from_secs(15);
/// Looks that something asked for come no closer together than this.
const CHECK_PAUSE: Duration = Duration::from_millis(200);

/// What the canaries were when last seen; `None`: not seen yet.
pub(super) type Canaries = [Option<Vec<u8>>; 3];

/// Looks for ever; `lost` counts the losses.
pub(super) async fn watch_for_ever(
    link: Arc<Link>,
    replicas: Option<usize>,
    mut known: Canaries,
    woken: Arc<Notify>,
    lost: watch::Sender<u64>,
) {
    loop {
        let _ = tokio::time::timeout(POLL_EVERY, woken.notified()).await;
        check_history(&link).await;
        match check(&link, replicas, &mut known).await {
            Ok(true) => {
                tracing::warn!(
                    "a rebuildable stream was lost; what is outstanding is carried out again"
                );
                lost.send_modify(|count| *count += 1);
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "cannot look at the streams"),
        }
        tokio::time::sleep(CHECK_PAUSE).await;
    }
}

/// Whether a rebuildable stream is another than it was. Missing streams are created again.
pub(super) async fn check(
    link: &Link,
    replicas: Option<usize>,
    known: &mut Canaries,
) -> Result<bool, StoreError> {
    let specs = link.names.streams();
    let mut lost = false;
    for (at, (stream, subject)) in link.names.canaries().into_iter().enumerate() {
        if let Some(spec) = specs.iter().find(|spec| spec.name == stream) {
            ensure(&link.js, spec, replicas, None)
                .await
                .map_err(|e| StoreError::Unavailable(e.to_string()))?;
        }
        let now = match canary(link, &stream, &subject).await? {
            Some(found) => found,
            None => plant(link, &stream, &subject).await?,
        };
        if known[at].as_ref() != Some(&now) {
            lost = true;
            known[at] = Some(now);
        }
    }
    Ok(lost)
}

/// What is on record when a store is opened, so that a whole and known stream is not taken for a lost one: a canary
/// that is there vouches for what lies in the stream beside it.
pub(super) async fn first_check(link: &Link) -> Result<Canaries, StoreError> {
    let mut known = Canaries::default();
    for (at, (stream, subject)) in link.names.canaries().into_iter().enumerate() {
        known[at] = canary(link, &stream, &subject).await?;
    }
    Ok(known)
}

async fn canary(link: &Link, stream: &str, subject: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let failed = |e: String| StoreError::Unavailable(format!("looking at {stream}: {e}"));
    let handle = link
        .js
        .get_stream_no_info(stream)
        .await
        .map_err(|e| failed(e.to_string()))?;
    match handle.get_last_raw_message_by_subject(subject).await {
        Ok(message) => Ok(Some(message.payload.to_vec())),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Puts a new canary, unless another process was faster; answers the one that lives.
async fn plant(link: &Link, stream: &str, subject: &str) -> Result<Vec<u8>, StoreError> {
    let body = rand::random::<u64>().to_be_bytes().to_vec();
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Subject-Sequence", "0");
    match link.publish(subject.to_owned(), headers, body.into()).await {
        Ok(_) | Err(Fault::WrongSequence | Fault::SubjectFull) => {}
        Err(fault) => return Err(fault.into()),
    }
    canary(link, stream, subject)
        .await?
        .ok_or_else(|| StoreError::Unavailable(format!("{stream} keeps no canary")))
}

/// A history stream that ends before what it acknowledged to us is not the one that it was.
async fn check_history(link: &Link) {
    for (index, acknowledged) in (0..HISTORY_STREAMS).zip(&link.acknowledged) {
        let floor = acknowledged.load(Ordering::Acquire);
        let name = link.names.history_stream(index);
        let found_stream =
            tokio::time::timeout(ANSWER_MAX, super::streams::find(&link.js, &name)).await;
        let Ok(Ok(found)) = found_stream else {
            continue;
        };
        let end = found.map_or(0, |info| info.state.last_sequence);
        if end < floor {
            link.break_down(format!(
                "{name} acknowledged sequence {floor} and now ends at {end}"
            ));
        }
    }
}
