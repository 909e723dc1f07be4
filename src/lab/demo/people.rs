//! What people do to the simulated world outside of dormer. No person can free the disk of a simulated host by hand: who
//! retries a machine is taken to have done on its host what `dormer why` says.

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Path, Request, State},
    http::{Method, StatusCode, header::CONTENT_LENGTH},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use dormer_api::{Api, reads};
use dormer_fleet::{World, world::Remedy};
use dormer_proto::phase::MachineState;
use dormer_views::{
    explain::{self, Step},
    machine::Machine,
    problem::{heals_by, problem},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Largest body of a retry, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// World and API that a retry needs.
#[derive(Clone)]
struct People {
    world: Arc<World>,
    api: Arc<Api>,
}

/// The pages and the API, with what people do before each retry that is accepted.
pub(super) fn around(inner: Router, world: Arc<World>, api: Arc<Api>) -> Router {
    inner.layer(middleware::from_fn_with_state(People { world, api }, mend))
}

async fn mend(State(people): State<People>, request: Request, next: Next) -> Response {
    guarded(request, next, |called: String, accepted| async move {
        people.do_what_is_said(called, accepted).await
    })
    .await
}

/// Answers a request; before a retry, `mend` is called with its machine, and whether the retry is accepted. It answers with
/// what it did. A check of the same request shows whether it is: after the retry it would be too late, and the step would
/// fail again.
async fn guarded<F: Future<Output = Vec<&'static str>>>(
    request: Request,
    next: Next,
    mend: impl FnOnce(String, bool) -> F,
) -> Response {
    let called = retried(request.uri().path()).filter(|_| *request.method() == Method::POST);
    let Some(called) = called.map(str::to_owned) else {
        return next.run(request).await;
    };
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, BODY_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if let Some(check) = as_check(&bytes) {
        let check = Request::from_parts(parts.clone(), Body::from(check));
        let checked = next.clone().run(check).await;
        let accepted = checked.status().is_success();
        if !accepted && !may_have_no_failure(checked.status(), &bytes) {
            return checked;
        }
        let done = mend(called, accepted).await;
        if !accepted {
            return noted(checked, &done).await;
        }
    }
    next.run(Request::from_parts(parts, Body::from(bytes)))
        .await
}

/// Whether a retry with this body may be refused because nothing has failed. A person without the right, or one whose machine
/// has left the state that they saw, is refused for that.
fn may_have_no_failure(status: StatusCode, body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    status == StatusCode::CONFLICT && body.get("against").is_none_or(Value::is_null)
}

/// A refusal, with what was done on the world nevertheless: nothing had failed, and nothing is to be retried.
async fn noted(refusal: Response, done: &[&str]) -> Response {
    if done.is_empty() {
        return refusal;
    }
    let (mut parts, body) = refusal.into_parts();
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
    let Ok(mut body) = serde_json::from_slice::<Value>(&bytes) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    body["whatToDo"] = json!(format!(
        "nothing more: the demonstration has done on the simulated world what dormer why says ({}), and the machine \
         continues by itself",
        done.join(", ")
    ));
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body.to_string()))
}

/// The body of a request that is only checked. `None`: it is one already, or no request.
fn as_check(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body: Value = serde_json::from_slice(bytes).ok()?;
    let fields = body.as_object_mut()?;
    let is_check = fields.insert("dryRun".into(), json!(true)) == Some(json!(true));
    (!is_check).then(|| body.to_string().into_bytes())
}

/// What the machine of a retry is called in the path of its request.
fn retried(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/api/v1/machines/")?;
    rest.strip_suffix("/actions/retry")
}

impl People {
    /// Does the steps outside of dormer, and answers with their names. A machine that is not known is refused by the request
    /// itself. Of a machine that has not failed only a trouble that needs a person is mended.
    async fn do_what_is_said(&self, called: String, accepted: bool) -> Vec<&'static str> {
        let path = Path(called);
        let Ok(found) = reads::machine(State(Arc::clone(&self.api)), path).await else {
            return Vec::new();
        };
        let machine = found.0;
        if !accepted && !needs_a_person(&machine) {
            return Vec::new();
        }
        let mut done = Vec::new();
        for remedy in remedies(&explain::steps(&machine, None)) {
            match self.world.remedy(remedy, &machine.name).await {
                Ok(()) => done.push(remedy.name()),
                Err(refusal) => eprintln!(
                    "dormer demo: the world refuses {}: {refusal}",
                    remedy.name()
                ),
            }
        }
        done
    }
}

/// Whether the machine has a trouble that a person ends outside of dormer, and after which it continues by itself.
fn needs_a_person(machine: &Machine) -> bool {
    let stays = machine.state == MachineState::Failed
        || machine.halt.is_some()
        || machine.status.quarantine.is_some()
        || machine.status.closed.is_some();
    !stays && problem(machine).is_some() && heals_by(machine).is_none()
}

/// What a retry does on the simulated world: the steps outside of dormer. Only a person compares a host key, or trusts
/// one.
pub(super) fn remedies(steps: &[Step]) -> Vec<Remedy> {
    let of_step = |step: &Step| {
        let named = |name: &str| Remedy::ALL.iter().copied().find(|it| it.name() == name);
        let outside = step.outside.as_ref().filter(|_| !step.instead)?;
        named(outside.id())
    };
    let all = steps.iter().filter_map(of_step);
    all.filter(|it| ![Remedy::CompareHostKey, Remedy::TrustHostKey].contains(it))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::sequence::tests::machine_with;

    /// Which machines are mended by a retry with this body, from a server that answers with this status; and the answer's body.
    async fn answered(body: &'static str, status: StatusCode) -> (StatusCode, Vec<String>, String) {
        use std::sync::Mutex;
        use tower::ServiceExt as _;
        let mended: Arc<Mutex<Vec<String>>> = Arc::default();
        let note = Arc::clone(&mended);
        let answer =
            move || async move { (status, r#"{"error": "it has not failed", "whatToDo": ""}"#) };
        let layer = middleware::from_fn(move |request: Request, next: Next| {
            let note = Arc::clone(&note);
            guarded(request, next, |called: String, accepted| async move {
                let text = format!("{called}{}", if accepted { "" } else { ", refused" });
                note.lock().expect("no panic").push(text);
                vec!["make-room"]
            })
        });
        let router = Router::new()
            .route(
                "/api/v1/machines/{called}/actions/retry",
                axum::routing::post(answer),
            )
            .layer(layer);
        let request = Request::post("/api/v1/machines/u-1/actions/retry").body(Body::from(body));
        let answer = router.oneshot(request.expect("a request")).await;
        let answer = answer.expect("an answer");
        let status = answer.status();
        let body = to_bytes(answer.into_body(), BODY_BYTES_MAX).await;
        let body = String::from_utf8_lossy(&body.expect("a body")).into_owned();
        let mended = mended.lock().expect("no panic").clone();
        (status, mended, body)
    }

    async fn mended(body: &'static str, status: StatusCode) -> (StatusCode, Vec<String>) {
        let (status, mended, _) = answered(body, status).await;
        (status, mended)
    }

    #[tokio::test]
    async fn a_retry_mends_and_a_refused_one_says_so() {
        let ok = StatusCode::OK;
        let conflict = StatusCode::CONFLICT;
        assert_eq!(mended("{}", ok).await, (ok, vec!["u-1".to_owned()]));
        let (status, mended_too, body) = answered("{}", conflict).await;
        assert_eq!(
            (status, mended_too),
            (conflict, vec!["u-1, refused".to_owned()])
        );
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["error"], "it has not failed");
        let to_do = body["whatToDo"].as_str().unwrap_or_default();
        assert!(to_do.contains("(make-room)"), "{to_do}");
        let check = r#"{"dryRun": true}"#;
        assert_eq!(mended(check, ok).await, (ok, Vec::new()));
        assert_eq!(mended("[]", ok).await, (ok, Vec::new()), "no request");
    }

    #[tokio::test]
    async fn a_retry_that_is_refused_for_its_person_or_its_record_does_nothing() {
        for (body, status) in [
            ("{}", StatusCode::UNAUTHORIZED),
            ("{}", StatusCode::FORBIDDEN),
            ("{}", StatusCode::SERVICE_UNAVAILABLE),
            (r#"{"against": 3}"#, StatusCode::CONFLICT),
        ] {
            let (answered, mended, said) = answered(body, status).await;
            assert_eq!((answered, mended), (status, Vec::new()), "{body}");
            assert!(!said.contains("continues by itself"), "{said}");
        }
    }

    #[test]
    fn a_machine_that_does_not_continue_by_itself_is_not_mended_by_a_refused_retry() {
        let stuck = json!({"phase": "address-wait", "phaseText": "waiting for an address", "state": "Provisioned",
            "machineConditions": [{"kind": "MachineCreated", "status": "False", "reason": "MachineCreationFailed",
            "message": "InstanceLimitExceeded"}]});
        assert!(needs_a_person(&machine_with(stuck.clone())));
        let quarantine = json!({"code": "Undecidable", "why": "no", "since": "2026-11-21T07:00:00.000Z", "builds": []});
        for (field, value) in [
            (
                "halt",
                json!({"kind": "held", "by": "ann", "text": "held by ann"}),
            ),
            ("quarantine", quarantine),
            ("closed", json!("2026-11-21T07:00:00.000Z")),
        ] {
            let mut fields = stuck.clone();
            fields[field] = value;
            assert!(!needs_a_person(&machine_with(fields)), "{field}");
        }
    }

    #[test]
    fn only_a_retry_of_a_machine_is_one() {
        assert_eq!(retried("/api/v1/machines/u-1/actions/retry"), Some("u-1"));
        for other in [
            "/api/v1/machines/u-1/actions/hold",
            "/api/v1/machines/u-1",
            "/machines/u-1/actions/retry",
        ] {
            assert_eq!(retried(other), None, "{other}");
        }
    }
}
