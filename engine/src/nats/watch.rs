//! Watch over the streams: at each reconnect, when no stream accepts a message, and at intervals, it checks that each
//! stream is still the same.
//!
//! A rebuildable stream holds a *marker*, a message that is never consumed. If it is missing or different, the stream
//! was recreated or lost its content, and `outstanding()` of every run must be carried out. The identity stream, which is
//! on file, has the markers of the streams for which that was done: a process that ends before leaves the work to the
//! next one. A history stream that ends before an acknowledged sequence breaks the store.

use super::{connect::ANSWER_MAX, link::Link, publish::PublishFault, streams::ensure};
use crate::port::StoreError;
use async_nats::{HeaderMap, jetstream::stream::LastRawMessageErrorKind};
use dormer_proto::subject::{HISTORY_STREAMS, META_WHOLE};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// Interval of the checks.
const POLL_EVERY: Duration = Duration::from_secs(60);
/// Answers that must agree before a history counts as lost.
const ANSWERS_MIN: usize = 3;
/// Time between them. A deposed leader notices within a few seconds.
const ANSWERS_APART: Duration = Duration::from_secs(2);
/// Least time between requested checks.
const CHECK_PAUSE: Duration = Duration::from_millis(200);

/// Markers of the rebuildable streams, by the stream's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamMarkers(BTreeMap<String, Vec<u8>>);

/// Checks until cancelled. `lost` counts the losses.
pub(super) async fn run_watch(
    link: Arc<Link>,
    replicas: Option<usize>,
    mut known: StreamMarkers,
    woken: Arc<Notify>,
    lost: watch::Sender<u64>,
) {
    loop {
        let doubted = async {
            tokio::select! { () = woken.notified() => {}, () = link.doubted.notified() => {} }
        };
        let _ = tokio::time::timeout(POLL_EVERY, doubted).await;
        check_history(&link).await;
        match check(&link, replicas, &mut known).await {
            Ok(true) => {
                tracing::warn!(
                    "a rebuildable stream was lost; outstanding work is carried out again"
                );
                lost.send_modify(|count| *count += 1);
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "cannot check the streams"),
        }
        tokio::time::sleep(CHECK_PAUSE).await;
    }
}

/// Whether a rebuildable stream was replaced. Missing streams are created again.
pub(super) async fn check(
    link: &Link,
    replicas: Option<usize>,
    known: &mut StreamMarkers,
) -> Result<bool, StoreError> {
    let specs = link.names.streams();
    let mut now = StreamMarkers::default();
    for (stream, subject) in link.names.markers() {
        if let Some(spec) = specs.iter().find(|spec| spec.name == stream) {
            ensure(&link.js, spec, replicas, None)
                .await
                .map_err(|e| StoreError::Unavailable(e.to_string()))?;
        }
        let found = match last(link, &stream, &subject).await? {
            Some(found) => found,
            None => plant(link, &stream, &subject).await?,
        };
        now.0.insert(stream, found);
    }
    // Known from here on: a check that failed above has reported nothing.
    let lost = now != *known;
    *known = now;
    Ok(lost)
}

/// Markers that the streams have now.
pub(super) async fn present(link: &Link) -> Result<StreamMarkers, StoreError> {
    let mut present = StreamMarkers::default();
    for (stream, subject) in link.names.markers() {
        if let Some(found) = last(link, &stream, &subject).await? {
            present.0.insert(stream, found);
        }
    }
    Ok(present)
}

/// Markers of the streams that hold all that is outstanding, by the note of who rebuilt them last.
pub(super) async fn whole(link: &Link) -> Result<StreamMarkers, StoreError> {
    let subject = link.names.meta(META_WHOLE);
    let noted = last(link, &link.names.meta_stream(), &subject).await?;
    // An unreadable note is none: the streams are rebuilt once too often.
    let read = noted.and_then(|noted| serde_json::from_slice(&noted).ok());
    Ok(read.unwrap_or_default())
}

/// Notes that the streams with these markers hold all that is outstanding.
pub(super) async fn note_whole(link: &Link, markers: &StreamMarkers) -> Result<(), StoreError> {
    let body = serde_json::to_vec(markers);
    let body = body.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let subject = link.names.meta(META_WHOLE);
    link.publish(subject, HeaderMap::new(), body.into()).await?;
    Ok(())
}

/// Last message of a subject.
async fn last(link: &Link, stream: &str, subject: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let failed = |e: String| StoreError::Unavailable(format!("reading {stream}: {e}"));
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

/// Writes a new marker, unless another process was faster. Returns the present one.
async fn plant(link: &Link, stream: &str, subject: &str) -> Result<Vec<u8>, StoreError> {
    let body = rand::random::<u64>().to_be_bytes().to_vec();
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Subject-Sequence", "0");
    match link.publish(subject.to_owned(), headers, body.into()).await {
        Ok(_) | Err(PublishFault::WrongSequence | PublishFault::SubjectFull) => {}
        Err(fault) => return Err(fault.into()),
    }
    last(link, stream, subject)
        .await?
        .ok_or_else(|| StoreError::Unavailable(format!("{stream} does not store its marker")))
}

/// Detects a history stream that ends before a sequence that it acknowledged to this process. A leader that was deposed
/// may answer for a moment, so one answer is not enough.
async fn check_history(link: &Link) {
    for (index, acknowledged) in (0..HISTORY_STREAMS).zip(&link.acknowledged) {
        let floor = acknowledged.load(Ordering::Acquire);
        let mut end = end_of(link, index).await;
        for _ in 1..ANSWERS_MIN {
            if end.is_none_or(|end| end >= floor) {
                break;
            }
            tokio::time::sleep(ANSWERS_APART).await;
            end = end_of(link, index).await;
        }
        if let Some(end) = end.filter(|end| *end < floor) {
            let name = link.names.history_stream(index);
            link.break_down(format!(
                "{name} acknowledged sequence {floor} and now ends at {end}"
            ));
        }
    }
}

/// Last sequence of a history stream, if the server answers. It also notes whether the stream has copies by now.
async fn end_of(link: &Link, index: u64) -> Option<u64> {
    let name = link.names.history_stream(index);
    let found = tokio::time::timeout(ANSWER_MAX, super::streams::find(&link.js, &name)).await;
    let found = found.ok()?.ok()?;
    if found
        .as_ref()
        .is_some_and(|info| info.config.num_replicas > 1)
        && link.single.swap(false, Ordering::AcqRel)
    {
        tracing::info!(
            name,
            "the store has copies by now: runs are read from each stream's leader"
        );
    }
    Some(found.map_or(0, |info| info.state.last_sequence))
}
