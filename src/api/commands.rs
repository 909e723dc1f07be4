//! `GET /machines/{machine}/commands`: the remote commands of a machine's tasks, as far as this process heard of them.

use super::{Api, ApiError};
use axum::{
    Json,
    extract::{Path, State as Of},
};
use dormer_proto::message::RemoteCommand;
use dormer_views::moment::time;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) async fn commands(
    Of(api): Of<Arc<Api>>,
    Path(called): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let run = api.run_cache.machine(&called).await?;
    let commands = api.live.commands(&run.id);
    Ok(Json(
        json!({"items": commands.iter().map(shown).collect::<Vec<_>>()}),
    ))
}

fn shown(command: &RemoteCommand) -> Value {
    json!({
        "task": command.task.to_string(),
        "attempt": command.attempt.0,
        "worker": command.worker,
        "number": command.number,
        "name": command.name,
        "line": command.line,
        "at": time(command.at),
        "tookMs": command.took_ms,
        "ended": command.ended,
        "head": command.head,
        "leftOutBytes": command.left_out,
        "tail": command.tail,
    })
}
