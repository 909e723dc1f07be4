//! `GET /machines/{machine}/commands`: the remote commands of a machine's tasks that this process received.

use super::{Api, ApiError, views::remote_command};
use axum::{
    Json,
    extract::{Path, State as Of},
};
use dormer_views::run::{List, RemoteCommand};
use std::sync::Arc;

pub(super) async fn commands(
    Of(api): Of<Arc<Api>>,
    Path(called): Path<String>,
) -> Result<Json<List<RemoteCommand>>, ApiError> {
    let run = api.run_cache.machine(&called).await?;
    let commands = api.live.commands(&run.id);
    let items = commands.iter().map(remote_command).collect();
    Ok(Json(List { items }))
}
