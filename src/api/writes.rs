//! Endpoints of actions.

use super::{
    Api, ApiError,
    ask::{self, Body},
    dead_letters,
    reads::run_id,
    run_cache::SharedRun,
};
use axum::{
    Json,
    extract::{Path, State as Of},
};
use dormer_engine_core::Record;
use dormer_proto::{
    envelope,
    id::{RunId, Seq},
    message::Ask,
    phase::MachinePhase,
    rollout,
    work::{SCHEMA, Signal},
};
use dormer_views::{
    actions::{END_ROLLBACK, HOLD, RESUME},
    any_run::AnyRun,
    machine::Machine,
    rollout::Rollout,
};
use dormer_workflows::{Dormer, State, machine::Halt, rollout::TargetPayload};
use serde_json::Value;
use std::sync::Arc;

type Answer<T> = Result<Json<T>, ApiError>;

pub(super) async fn machine(
    Of(api): Of<Arc<Api>>,
    Path((called, action)): Path<(String, String)>,
    body: Body,
) -> Answer<Machine> {
    let signal = ask::asked_of_machine(&action, &body)?;
    let run = api.run_cache.machine(&called).await?;
    let before = stops(&run);
    // A hold ends what people asked for and has not begun.
    let asked = match action == HOLD.name {
        true => api.shown_machine(&run)?.0.asked.map(|it| it.text()),
        false => None,
    };
    let is_dry_run = body.is_dry_run();
    let others = match (action == RESUME.name, body.is_dry_run()) {
        (true, true) => ask::ends_of_others(&run, api.ports.now(), &body),
        _ => Vec::new(),
    };
    let run = ask::ask(
        api.ports.as_ref(),
        &api.run_cache,
        run,
        Ask::Signal(signal),
        body,
    )
    .await?;
    let Json(mut shown) = api.shown_machine(&run)?;
    let ends = shown.halts().filter(|it| others.contains(&it.text));
    shown.would_end = ends.map(|it| it.text_at(api.ports.now())).collect();
    if action == HOLD.name && is_dry_run {
        shown.would_end = asked.into_iter().collect();
    } else if action == HOLD.name && shown.asked.is_none() {
        shown.ended = asked.into_iter().collect();
    }
    if action == RESUME.name {
        let still = stops(&run);
        shown.ended = before
            .into_iter()
            .filter(|it| !still.contains(it))
            .collect();
    }
    Ok(Json(shown))
}

/// What a resume may end: the pause, the hold and the drain of a machine, each with its person.
fn stops(run: &SharedRun) -> Vec<String> {
    let Some(state) = run.state.machine() else {
        return Vec::new();
    };
    let halts = state.halts().into_iter();
    let halts = halts.filter(|it| *it != Halt::Ignored);
    let mut stops: Vec<String> = halts.map(|it| it.to_string()).collect();
    if state.phase.id() == MachinePhase::Drained {
        let by = state.request_progress.by.as_deref().unwrap_or("a person");
        stops.push(format!("drained by {by}"));
    }
    stops
}

pub(super) async fn rollout(
    Of(api): Of<Arc<Api>>,
    Path((pool, action)): Path<(String, String)>,
    body: Body,
) -> Answer<Rollout> {
    let signal = ask::of_rollout(&action)
        .ok_or_else(|| ApiError::absent("action on rollouts", &action, "dormer help"))?;
    let run = api.found_rollout(&pool).await?;
    if action == END_ROLLBACK.name {
        body.ends_what_was_shown(&run, api.ports.now())?;
    }
    let run = ask::ask(
        api.ports.as_ref(),
        &api.run_cache,
        run,
        Ask::Signal(signal),
        body,
    )
    .await?;
    api.shown_rollout(&run).await
}

/// Rollback: its payload replaces the one in the pool's spec.
pub(super) async fn rollback(
    Of(api): Of<Arc<Api>>,
    Path(pool): Path<String>,
    body: Body,
) -> Answer<Rollout> {
    let to = body.payload()?;
    let run = api.found_rollout(&pool).await?;
    if let State::Rollout(state) = &run.state {
        // The rollout would refuse it as well. Checked here because a person waits for the answer.
        let wanted = state.payload.clone().unwrap_or_default();
        let forward = state.rollback_in_force(api.ports.now());
        let forward = forward.filter(|it| it.from == to || it.instead.as_ref() == Some(&to));
        wanted.goes_back_to(&to).map_err(|why| {
            if let Some(back) = &forward {
                let why = format!("{to} is what it was rolled back from, to {}", back.to);
                let to_do = format!("to go forward again: dormer rollback --pool {pool} --end");
                return ApiError::conflict(why, to_do);
            }
            let why = not_earlier(&wanted, &to).unwrap_or(why);
            let to_do = format!("dormer rollback --pool {pool} shows what it can go back to");
            ApiError::conflict(why, to_do)
        })?;
    }
    let signal = Signal::Rollout(rollout::Signal::Rollback { to });
    let run = ask::ask(
        api.ports.as_ref(),
        &api.run_cache,
        run,
        Ask::Signal(signal),
        body,
    )
    .await?;
    api.shown_rollout(&run).await
}

/// Error text of a rollback to the present payload, or of a pool without a payload to roll back to. `None`: neither.
fn not_earlier(wanted: &TargetPayload, to: &str) -> Option<String> {
    let TargetPayload { payload, terms } = wanted;
    if payload == to {
        return Some(format!("the pool's payload is {to} already"));
    }
    terms.may_follow.is_empty().then(|| match payload.as_str() {
        "" => "there is no way back: the pool names no payload".to_owned(),
        from => format!("from {from} there is no way back: it names no payload that it may follow"),
    })
}

pub(super) async fn reset(
    Of(api): Of<Arc<Api>>,
    Path((workflow, key)): Path<(String, String)>,
    body: Body,
) -> Answer<AnyRun> {
    let to = body.reset().ok_or_else(|| {
        ApiError::bad(
            "`to` is missing",
            "name the record to go back to; dormer history lists them",
        )
    })?;
    let run = api.found(&run_id(&workflow, &key)?).await?;
    // The engine would drop the request. Checked here because a person waits for the answer. Of a record that is not stored
    // any more, the store has the first one behind it.
    let stored = api.ports.records(&run.id, to, 1).await?;
    let first = match stored.first() {
        Some(bytes) => Some(envelope::decode::<Record<Dormer>>(bytes, SCHEMA)?.0.run.seq),
        None => None,
    };
    is_stored(&run.id, to, first, run.seq)?;
    let run = ask::ask(
        api.ports.as_ref(),
        &api.run_cache,
        run,
        Ask::Reset { to },
        body,
    )
    .await?;
    Ok(Json(api.shown(&run).await?))
}

/// Whether a run whose last record is `last` has the record `to`; `first`: the first stored one from there on.
///
/// # Errors
/// It has no such record, or not any more.
fn is_stored(run: &RunId, to: Seq, first: Option<Seq>, last: Seq) -> Result<(), ApiError> {
    let error = match first {
        Some(first) if first == to && to <= last => return Ok(()),
        Some(first) if first > to && to > Seq(0) => format!(
            "record {to} of {run} is no longer stored: of its history the records up to {} are trimmed",
            first.0 - 1
        ),
        _ => format!("{run} has no record {to}: its history ends at record {last}"),
    };
    Err(ApiError::missing(
        error,
        "dormer history lists the stored records",
    ))
}

pub(super) async fn requeue(
    Of(api): Of<Arc<Api>>,
    Path(id): Path<u64>,
    body: Body,
) -> Answer<Value> {
    dead_letters::requeue(api.ports.as_ref(), id, body.is_dry_run())
        .await
        .map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    /// Scripts tell a record that is not there (404, exit code 3) from wrong usage.
    #[test]
    fn a_reset_to_a_record_that_is_trimmed_or_still_to_come_names_no_record() {
        let run = dormer_proto::work::machine_run("u1").expect("an id");
        let asked = |to, first: Option<u64>| {
            let answer = is_stored(&run, Seq(to), first.map(Seq), Seq(300));
            answer.map_err(|refused| (refused.status(), refused.what_and_remedy().0.to_owned()))
        };
        assert_eq!(asked(45, Some(45)), Ok(()));
        let trimmed = "record 3 of machine/u1 is no longer stored: of its history the records up to 44 are trimmed";
        assert_eq!(
            asked(3, Some(45)),
            Err((StatusCode::NOT_FOUND, trimmed.to_owned()))
        );
        let none = "machine/u1 has no record 999: its history ends at record 300";
        assert_eq!(
            asked(999, None),
            Err((StatusCode::NOT_FOUND, none.to_owned()))
        );
    }

    #[test]
    fn a_payload_without_predecessors_has_no_earlier_payload() {
        let mut wanted = TargetPayload::default();
        let said = |wanted: &TargetPayload| not_earlier(wanted, "10.9.0").unwrap_or_default();
        assert!(said(&wanted).contains("the pool names no payload"));
        wanted.payload = "11.0.0".into();
        assert!(said(&wanted).starts_with("from 11.0.0 there is no way back"));
        wanted.terms.may_follow = vec!["10.9.0".into()];
        assert_eq!(not_earlier(&wanted, "10.9.0"), None);
        assert_eq!(
            not_earlier(&wanted, "11.0.0").as_deref(),
            Some("the pool's payload is 11.0.0 already")
        );
    }
}
