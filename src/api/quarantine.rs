//! Quarantined runs: their list, and their release.

use super::{Api, ApiError, ask::Body, reads::run_id, run_cache::SharedRun, views};
use axum::{
    Json,
    extract::{Path, State as Of},
};
use dormer_proto::id::RunId;
use dormer_views::run::{List, QuarantinedRun};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Answers every quarantined run, ordered by id.
///
/// # Errors
/// The store does not answer.
pub async fn all(Of(api): Of<Arc<Api>>) -> Result<Json<List<QuarantinedRun>>, ApiError> {
    let runs: Vec<SharedRun> = api.run_cache.all().await?;
    api.run_cache.read_notes(Duration::ZERO).await?;
    let named = |id: &RunId| {
        let at = runs.binary_search_by(|run| run.id.cmp(id)).ok()?;
        Some(views::called(&runs[at]))
    };
    let notes = api.live.noted().into_iter();
    let items = notes.map(|note| QuarantinedRun {
        run: note.run.as_str().to_owned(),
        name: named(&note.run),
        quarantine: views::quarantine(note),
    });
    let items = items.collect();
    Ok(Json(List { items }))
}

/// Releases a run. Engines then try it again. A dry run ends after the check.
pub(super) async fn unquarantine(
    Of(api): Of<Arc<Api>>,
    Path((workflow, key)): Path<(String, String)>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let run = run_id(&workflow, &key)?;
    let released = !body.is_dry_run();
    let held = match released {
        true => api.ports.release(&run).await?,
        false => api.run_cache.quarantine(&run).await?.is_some(),
    };
    if !held {
        let error = format!("{run} is not quarantined");
        let what_to_do = "dormer get quarantine lists the runs that are";
        return Err(ApiError::conflict(error, what_to_do));
    }
    api.run_cache.read_notes(Duration::ZERO).await?;
    Ok(Json(json!({"run": run.as_str(), "released": released})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{live::Live, router};
    use axum::{
        Router,
        body::{Body as HttpBody, to_bytes},
        http::Request,
    };
    use dormer_engine::{
        local::Local,
        memory::MemoryStore,
        port::{DeadLetter, DeadLetters, Ports, Quarantine, QuarantineNote, SystemClock},
    };
    use dormer_proto::{
        id::{Incarnation, Timestamp},
        work::machine_run,
    };
    use tower::ServiceExt;

    async fn post(router: &Router, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::post(format!("/api/v1{path}"))
            .header("content-type", "application/json")
            .body(HttpBody::from(body.to_string()))
            .expect("a request");
        let answer = router.clone().oneshot(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await;
        (
            status,
            serde_json::from_slice(&body.expect("a body")).expect("JSON"),
        )
    }

    #[tokio::test]
    async fn a_dry_run_releases_no_run_and_moves_no_dead_letter() {
        let ports = Arc::new(Local::new(
            Arc::new(MemoryStore::new(Incarnation(1))),
            SystemClock,
        ));
        let note = QuarantineNote {
            run: machine_run("u1").expect("a run"),
            code: "RecordRefused".into(),
            why: "record message has 2000000 bytes".into(),
            at: Timestamp(1_000),
            builds: vec!["dormer 1".into()],
            released: None,
            missed: None,
            version: 0,
        };
        let put = Quarantine::put(ports.quarantine(), note).await;
        put.expect("a note");
        let letter = DeadLetter {
            id: 0,
            run: machine_run("u1").ok(),
            reason: "it says nothing that this build knows".into(),
            at: Timestamp(1_000),
            origin: "inbox 1".into(),
            bytes: b"nonsense".to_vec(),
        };
        let put = DeadLetters::put(ports.dead(), letter).await;
        put.expect("a dead letter");
        let letters = ports.dead().list(0, 1).await.expect("a list");
        let requeue = format!("/dead-letters/{}/requeue", letters[0].id);
        let release = "/runs/machine/u1/unquarantine";
        let router = router(Api::over(Arc::clone(&ports), Arc::<Live>::default(), None));
        // Twice dry, and then the deed: it finds what a dry run left alone.
        for (dry, done) in [(true, false), (true, false), (false, true)] {
            let body = json!({"dryRun": dry});
            let (status, answer) = post(&router, release, &body).await;
            assert_eq!((status, &answer["released"]), (200, &json!(done)));
            let (status, answer) = post(&router, &requeue, &body).await;
            assert_eq!((status, &answer["requeued"]), (200, &json!(done)));
        }
        // A dry run is refused as the deed would be.
        let dry = json!({"dryRun": true});
        assert_eq!(post(&router, release, &dry).await.0, 409);
        assert_eq!(post(&router, &requeue, &dry).await.0, 404);
    }
}
