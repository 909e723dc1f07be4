//! Identity of a store: its incarnation and number of streams, written once; and the allocation of epochs.

use super::{
    link::Link,
    options::OpenError,
    streams::{ensure, find},
};
use async_nats::{
    HeaderMap,
    jetstream::{self, stream::LastRawMessageErrorKind},
};
use dormer_proto::{
    address::Origin,
    id::{Epoch, Incarnation},
    subject::{HISTORY_STREAMS, Identity, META_EPOCH, META_IDENTITY, Names, PARTITIONS},
};

/// Identity on record, or a new one if there is no store yet and this process is an engine. `first_epoch` is the first
/// epoch of a new store.
pub(super) async fn establish(
    js: &jetstream::Context,
    names: &Names,
    origin: Origin,
    replicas: Option<usize>,
    first_epoch: Option<u64>,
) -> Result<Incarnation, OpenError> {
    let fresh = find(js, &names.meta_stream()).await?.is_none();
    let mut records = 0;
    let mut missing = Vec::new();
    for index in 0..HISTORY_STREAMS {
        match find(js, &names.history_stream(index)).await? {
            Some(info) => records += info.state.messages,
            None => missing.push(names.history_stream(index)),
        }
    }
    if fresh && records > 0 {
        return Err(OpenError::Identity(format!(
            "there is a history ({records} records) but no stream {}: restore a dump under \
             another prefix",
            names.meta_stream()
        )));
    }
    // The login of a console may not write the identity: every process would take it.
    if fresh && origin == Origin::Console {
        return Err(OpenError::NoStore);
    }
    let meta = names.meta_stream();
    if let Some(spec) = names.streams().iter().find(|spec| spec.name == meta) {
        ensure(js, spec, replicas, first_epoch).await?;
    }
    if let Some(identity) = read(js, names).await? {
        if identity.history_streams != HISTORY_STREAMS {
            return Err(OpenError::Identity(format!(
                "the store has {} history streams; this build reads {HISTORY_STREAMS}",
                identity.history_streams
            )));
        }
        if identity.partitions != PARTITIONS {
            return Err(OpenError::Identity(format!(
                "the store's inbox has {} partitions; this build reads {PARTITIONS}",
                identity.partitions
            )));
        }
        if !missing.is_empty() {
            return Err(OpenError::Identity(format!(
                "history is missing: the stream {} does not exist; restore a dump under another \
                 prefix",
                missing.join(", ")
            )));
        }
        return Ok(identity.incarnation);
    }
    if origin == Origin::Console {
        return Err(OpenError::NoStore);
    }
    // Histories first, identity last, so that an interrupted creation starts again. The stream of changes is no part of
    // the store, and may be missing.
    let changes = names.changes_stream();
    for spec in names.streams().iter().filter(|spec| spec.name != changes) {
        ensure(js, spec, replicas, None).await?;
    }
    write(js, names).await
}

async fn read(js: &jetstream::Context, names: &Names) -> Result<Option<Identity>, OpenError> {
    let failed = |why: String| OpenError::server("reading the store's identity", why);
    let stream = js
        .get_stream_no_info(names.meta_stream())
        .await
        .map_err(|e| failed(e.to_string()))?;
    match stream
        .get_last_raw_message_by_subject(&names.meta(META_IDENTITY))
        .await
    {
        Ok(message) => serde_json::from_slice(&message.payload)
            .map(Some)
            .map_err(|e| failed(e.to_string())),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Writes a new identity unless another process was faster, and returns the one on record.
async fn write(js: &jetstream::Context, names: &Names) -> Result<Incarnation, OpenError> {
    let failed = |why: String| OpenError::server("writing the store's identity", why);
    let identity = Identity {
        incarnation: Incarnation(rand::random()),
        history_streams: HISTORY_STREAMS,
        partitions: PARTITIONS,
    };
    let body = serde_json::to_vec(&identity).map_err(|e| failed(e.to_string()))?;
    let message = jetstream::message::PublishMessage::build()
        .payload(body.into())
        .expected_last_subject_sequence(0);
    let sent = js
        .send_publish(names.meta(META_IDENTITY), message)
        .await
        .map_err(|e| failed(e.to_string()))?;
    // After an error, another process's identity or this one's may be on record. The one on record counts.
    let _ = sent.await;
    read(js, names)
        .await?
        .map(|identity| identity.incarnation)
        .ok_or_else(|| failed("nothing is on record".into()))
}

/// Allocates the next epoch: the sequence of a message in the identity stream, which only grows.
pub(super) async fn next_epoch(link: &Link) -> Result<Epoch, crate::port::StoreError> {
    let sequence = link
        .publish(
            link.names.meta(META_EPOCH),
            HeaderMap::new(),
            bytes::Bytes::new(),
        )
        .await?;
    Ok(Epoch(sequence))
}
