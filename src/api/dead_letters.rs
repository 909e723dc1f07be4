//! Dead letters: listing, reading, and requeueing into the inbox.

use super::{ApiError, store::Store};
use dormer_engine::port;
use dormer_engine_core::InboxMessageOf;
use dormer_proto::{
    envelope,
    message::{Inbound, cut},
    work::SCHEMA,
};
use dormer_views::run::DeadLetter;
use dormer_workflows::Dormer;
use serde_json::{Value, json};

/// Most dead letters in one answer.
const SHOWN_MAX: usize = 1_000;

/// All dead letters, oldest first.
pub(crate) async fn all(ports: &dyn Store) -> Result<Vec<DeadLetter>, ApiError> {
    let dead_letters = ports.dead_letters(0, SHOWN_MAX).await?;
    Ok(dead_letters.iter().map(head).collect())
}

/// One dead letter with its content.
pub(crate) async fn one(ports: &dyn Store, id: u64) -> Result<DeadLetter, ApiError> {
    let dead_letter = find(ports, id).await?;
    Ok(DeadLetter {
        message: Some(says(&dead_letter.bytes)),
        ..head(&dead_letter)
    })
}

/// Moves a dead letter back into the inbox. A dry run ends after the checks.
///
/// # Errors
/// 404: the id is unknown. 409: the dead letter names no run, or is a person's request.
pub(crate) async fn requeue(ports: &dyn Store, id: u64, dry_run: bool) -> Result<Value, ApiError> {
    let dead_letter = find(ports, id).await?;
    let Some(run) = dead_letter.run.clone() else {
        return Err(ApiError::conflict(
            format!("dead letter {id} names no run"),
            "it cannot be requeued; no action is needed, because the watcher observes the same \
             fact again",
        ));
    };
    // A dead letter has no signature, and the request in it may be anybody's: its sender's name is only text.
    let asks = envelope::decode::<InboxMessageOf<Dormer>>(&dead_letter.bytes, SCHEMA)
        .is_ok_and(|(message, _)| matches!(message.body, Inbound::Requested(_)));
    if asks {
        return Err(ApiError::conflict(
            format!("dead letter {id} is a person's request"),
            "it cannot be requeued, because its sender cannot be verified; ask again: dormer help",
        ));
    }
    if !dry_run {
        ports.put(run.clone(), dead_letter.bytes).await?;
        ports.remove_dead_letter(id).await?;
    }
    Ok(json!({"id": id, "run": run.as_str(), "requeued": !dry_run}))
}

async fn find(ports: &dyn Store, id: u64) -> Result<port::DeadLetter, ApiError> {
    let dead_letters = ports.dead_letters(id.saturating_sub(1), 1).await?;
    let dead_letter = dead_letters
        .into_iter()
        .find(|dead_letter| dead_letter.id == id);
    dead_letter
        .ok_or_else(|| ApiError::absent("dead letter", &id.to_string(), "dormer dead-letters list"))
}

fn head(dead_letter: &port::DeadLetter) -> DeadLetter {
    DeadLetter {
        id: dead_letter.id,
        run: dead_letter.run.as_ref().map(|run| run.as_str().to_owned()),
        reason: dead_letter.reason.clone(),
        at: dead_letter.at.into(),
        origin: dead_letter.origin.clone(),
        bytes: dead_letter.bytes.len() as u64,
        message: None,
    }
}

/// Readable part of a message.
fn says(bytes: &[u8]) -> String {
    match envelope::decode::<InboxMessageOf<Dormer>>(bytes, SCHEMA) {
        Ok((dead_letter, _)) => cut(format!("{:#?}", dead_letter.body)),
        Err(error) => format!("it cannot be read: {error}"),
    }
}
