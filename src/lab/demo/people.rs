//! What people do to the simulated world outside of dormer. No person can free the disk of a simulated host by hand: who
//! retries a machine is taken to have done on its host what `dormer why` says.

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Path, Request, State},
    http::{Method, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use dormer_api::{Api, reads};
use dormer_fleet::{World, world::Remedy};
use dormer_views::explain;
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
    guarded(request, next, |called: String| async move {
        people.do_what_is_said(called).await;
    })
    .await
}

/// Answers a request; before a retry that is accepted, `mend` is called with its machine. A check of the same request shows
/// whether it is: after the retry it would be too late, and the step would fail again.
async fn guarded<F: Future<Output = ()>>(
    request: Request,
    next: Next,
    mend: impl FnOnce(String) -> F,
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
        if !checked.status().is_success() {
            return checked;
        }
        mend(called).await;
    }
    next.run(Request::from_parts(parts, Body::from(bytes)))
        .await
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
    /// Does the steps outside of dormer. A machine that is not known is refused by the request itself.
    async fn do_what_is_said(&self, called: String) {
        let path = Path(called);
        let Ok(found) = reads::machine(State(Arc::clone(&self.api)), path).await else {
            return;
        };
        let machine = found.0;
        for step in explain::steps(&machine, None) {
            let kind = step.outside.filter(|_| !step.instead);
            let named = |kind: &str| Remedy::ALL.iter().find(|it| it.name() == kind);
            let Some(remedy) = kind.and_then(|kind| named(kind.id())) else {
                continue;
            };
            if let Err(refusal) = self.world.remedy(*remedy, &machine.name).await {
                eprintln!(
                    "dormer demo: the world refuses {}: {refusal}",
                    remedy.name()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which machines are mended by a retry with this body, from a server that accepts it or not.
    async fn mended(body: &'static str, accepts: bool) -> (StatusCode, Vec<String>) {
        use std::sync::Mutex;
        use tower::ServiceExt as _;
        let mended: Arc<Mutex<Vec<String>>> = Arc::default();
        let note = Arc::clone(&mended);
        let answer = move || async move {
            match accepts {
                true => StatusCode::OK,
                false => StatusCode::CONFLICT,
            }
        };
        let layer = middleware::from_fn(move |request: Request, next: Next| {
            let note = Arc::clone(&note);
            guarded(request, next, |called: String| async move {
                note.lock().expect("no panic").push(called);
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
        let status = answer.expect("an answer").status();
        let mended = mended.lock().expect("no panic").clone();
        (status, mended)
    }

    #[tokio::test]
    async fn only_a_retry_that_is_accepted_mends() {
        let (ok, conflict) = (StatusCode::OK, StatusCode::CONFLICT);
        assert_eq!(mended("{}", true).await, (ok, vec!["u-1".to_owned()]));
        assert_eq!(mended("{}", false).await, (conflict, Vec::new()));
        let check = r#"{"dryRun": true}"#;
        assert_eq!(mended(check, true).await, (ok, Vec::new()));
        assert_eq!(mended("[]", true).await, (ok, Vec::new()), "no request");
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
