//! Streams of a store: created with the required settings, or compared with them.

use super::options::OpenError;
use async_nats::jetstream::{
    self, ErrorCode,
    context::{CreateStreamErrorKind, GetStreamErrorKind},
    stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType},
};
use dormer_proto::subject::StreamSpec;

/// Default copies in a cluster.
const REPLICAS: usize = 3;
/// "replicas > 1 not supported in non-clustered mode".
const NOT_CLUSTERED: ErrorCode = ErrorCode(10_074);
/// "insufficient memory resources available". A server of its own counts the copies before it says that it makes none.
const NO_MEMORY: ErrorCode = ErrorCode(10_028);

/// Settings to request from the server.
fn config(spec: &StreamSpec, replicas: usize, first: Option<u64>) -> Config {
    let refuses = spec.refuse_when_full;
    Config {
        name: spec.name.clone(),
        subjects: spec.subjects.clone(),
        storage: if spec.in_memory {
            StorageType::Memory
        } else {
            StorageType::File
        },
        retention: if spec.work_queue {
            RetentionPolicy::WorkQueue
        } else {
            RetentionPolicy::Limits
        },
        discard: if refuses {
            DiscardPolicy::New
        } else {
            DiscardPolicy::Old
        },
        discard_new_per_subject: refuses && spec.per_subject_max > 0 && !spec.replaces,
        max_messages_per_subject: spec.per_subject_max,
        max_messages: spec.messages_max,
        max_bytes: spec.bytes_max,
        max_consumers: -1,
        num_replicas: replicas,
        allow_direct: true,
        allow_rollup: spec.schedules,
        allow_message_ttl: spec.schedules || spec.expires,
        allow_message_schedules: spec.schedules,
        first_sequence: first,
        ..Config::default()
    }
}

/// Reads the stream, if it exists.
pub(super) async fn find(js: &jetstream::Context, name: &str) -> Result<Option<Info>, OpenError> {
    match js.get_stream(name).await {
        Ok(stream) => Ok(Some(stream.cached_info().clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(e) if e.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Ok(None)
            }
            _ => Err(OpenError::server(format!("reading stream {name}"), error)),
        },
    }
}

/// Creates the stream if it is missing, otherwise compares it. `first` is the first sequence of a new one.
pub(super) async fn ensure(
    js: &jetstream::Context,
    spec: &StreamSpec,
    replicas: Option<usize>,
    first: Option<u64>,
) -> Result<Info, OpenError> {
    if let Some(found) = find(js, &spec.name).await? {
        let wanted = config(spec, replicas.unwrap_or(found.config.num_replicas), None);
        if took_everything(&found.config, &wanted) {
            let narrowed = Config {
                subjects: wanted.subjects.clone(),
                ..found.config
            };
            compare(&narrowed, &wanted)?;
            let updated = js.update_stream(narrowed).await;
            return updated.map_err(|error| {
                OpenError::server(format!("updating stream {}", spec.name), error)
            });
        }
        compare(&found.config, &wanted)?;
        return Ok(found);
    }
    let mut result = js
        .create_stream(config(spec, replicas.unwrap_or(REPLICAS), first))
        .await;
    if replicas.is_none() && matches!(&result, Err(e) if clusterless(&e.kind())) {
        result = js.create_stream(config(spec, 1, first)).await;
    }
    let stream = result
        .map_err(|error| OpenError::server(format!("creating stream {}", spec.name), error))?;
    Ok(stream.cached_info().clone())
}

/// Whether an earlier build made this stream for everything below the first two tokens of its subjects.
fn took_everything(found: &Config, wanted: &Config) -> bool {
    let [all] = &found.subjects[..] else {
        return false;
    };
    let below = all.strip_suffix('>');
    wanted.subjects.len() > 1
        && below.is_some_and(|below| wanted.subjects.iter().all(|it| it.starts_with(below)))
}

fn clusterless(kind: &CreateStreamErrorKind) -> bool {
    matches!(kind, CreateStreamErrorKind::JetStream(error)
        if error.error_code() == NOT_CLUSTERED || error.error_code() == NO_MEMORY)
}

/// Settings by which a server copies messages into a stream or out of it, whatever its users may do. dormer uses none.
fn copies(config: &Config) -> String {
    let sources = config.sources.as_deref().unwrap_or_default();
    let settings = [
        ("mirror", config.mirror.is_some()),
        ("sources", !sources.is_empty()),
        ("republish", config.republish.is_some()),
        ("subject_transform", config.subject_transform.is_some()),
    ];
    let used = settings.into_iter().filter(|(_, is_used)| *is_used);
    let names: Vec<&str> = used.map(|(name, _)| name).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// Compares every setting on which dormer's guarantees rest.
fn compare(found: &Config, wanted: &Config) -> Result<(), OpenError> {
    let rows = [
        (
            "subjects",
            format!("{:?}", found.subjects),
            format!("{:?}", wanted.subjects),
        ),
        (
            "storage",
            format!("{:?}", found.storage),
            format!("{:?}", wanted.storage),
        ),
        (
            "retention",
            format!("{:?}", found.retention),
            format!("{:?}", wanted.retention),
        ),
        (
            "discard",
            format!("{:?}", found.discard),
            format!("{:?}", wanted.discard),
        ),
        (
            "discard_new_per_subject",
            found.discard_new_per_subject.to_string(),
            wanted.discard_new_per_subject.to_string(),
        ),
        (
            "max_msgs_per_subject",
            found.max_messages_per_subject.to_string(),
            wanted.max_messages_per_subject.to_string(),
        ),
        (
            "max_msgs",
            found.max_messages.to_string(),
            wanted.max_messages.to_string(),
        ),
        (
            "max_bytes",
            found.max_bytes.to_string(),
            wanted.max_bytes.to_string(),
        ),
        (
            "max_age",
            format!("{:?}", found.max_age),
            format!("{:?}", wanted.max_age),
        ),
        (
            "num_replicas",
            found.num_replicas.to_string(),
            wanted.num_replicas.to_string(),
        ),
        (
            "allow_direct",
            found.allow_direct.to_string(),
            wanted.allow_direct.to_string(),
        ),
        (
            "allow_msg_ttl",
            found.allow_message_ttl.to_string(),
            wanted.allow_message_ttl.to_string(),
        ),
        (
            "allow_msg_schedules",
            found.allow_message_schedules.to_string(),
            wanted.allow_message_schedules.to_string(),
        ),
        (
            "persist_mode",
            format!("{:?}", found.persist_mode.unwrap_or_default()),
            format!("{:?}", wanted.persist_mode.unwrap_or_default()),
        ),
        ("copies by", copies(found), copies(wanted)),
    ];
    match rows.into_iter().find(|(_, found, wanted)| found != wanted) {
        None => Ok(()),
        Some((setting, is, must)) => Err(OpenError::Stream {
            stream: found.name.clone(),
            found: format!("{setting} {is}"),
            wanted: must,
        }),
    }
}
