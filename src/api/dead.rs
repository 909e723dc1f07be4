//! Dead letters as JSON, and their way back into the inbox.

use super::{ApiError, store::Store};
use dormer_engine::port::DeadLetter;
use dormer_engine_core::LetterOf;
use dormer_proto::{envelope, message::cut, work::SCHEMA};
use dormer_views::moment::time;
use dormer_workflows::Dormer;
use serde_json::{Value, json};

/// Dead letters shown at most.
const SHOWN_MAX: usize = 1_000;

/// All of them, oldest first.
pub(crate) async fn all(ports: &dyn Store) -> Result<Vec<Value>, ApiError> {
    let letters = ports.dead_letters(0, SHOWN_MAX).await?;
    Ok(letters.iter().map(head).collect())
}

/// One, with what it says.
pub(crate) async fn one(ports: &dyn Store, id: u64) -> Result<Value, ApiError> {
    let letter = find(ports, id).await?;
    let mut shown = head(&letter);
    shown["letter"] = says(&letter.bytes).into();
    Ok(shown)
}

/// Puts one into the inbox again; it is dead no more.
///
/// # Errors
/// 404: there is none of that id. 409: nobody knows whom it was for.
pub(crate) async fn requeue(ports: &dyn Store, id: u64) -> Result<Value, ApiError> {
    let letter = find(ports, id).await?;
    let Some(run) = letter.run.clone() else {
        return Err(ApiError::conflict(
            format!("dead letter {id} does not say whom it was for"),
            "it cannot be delivered; what it tells will be observed again",
        ));
    };
    ports.put(run.clone(), letter.bytes).await?;
    ports.remove_dead_letter(id).await?;
    Ok(json!({"id": id, "run": run.as_str(), "requeued": true}))
}

async fn find(ports: &dyn Store, id: u64) -> Result<DeadLetter, ApiError> {
    let letters = ports.dead_letters(id.saturating_sub(1), 1).await?;
    let letter = letters.into_iter().find(|letter| letter.id == id);
    letter.ok_or_else(|| ApiError::absent("dead letter", &id.to_string(), "dormer dead list"))
}

fn head(letter: &DeadLetter) -> Value {
    json!({
        "id": letter.id,
        "run": letter.run.as_ref().map(|run| run.as_str()),
        "reason": letter.reason,
        "at": time(letter.at),
        "origin": letter.origin,
        "bytes": letter.bytes.len(),
    })
}

/// What a letter says, as far as this build can read it.
fn says(bytes: &[u8]) -> String {
    match envelope::decode::<LetterOf<Dormer>>(bytes, SCHEMA) {
        Ok((letter, _)) => cut(format!("{:#?}", letter.body)),
        Err(error) => format!("it cannot be read: {error}"),
    }
}
