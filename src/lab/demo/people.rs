//! What people do to the simulated world outside of dormer. No person can free the disk of a simulated host by hand: who
//! retries a machine is taken to have done on its host what `dormer why` says.

use axum::{
    Router,
    extract::{Path, Request, State},
    http::Method,
    middleware::{self, Next},
    response::Response,
};
use dormer_api::{Api, reads};
use dormer_fleet::{World, world::Remedy};
use dormer_views::explain;
use std::sync::Arc;

/// World and API that a retry needs.
#[derive(Clone)]
struct People {
    world: Arc<World>,
    api: Arc<Api>,
}

/// The pages and the API, with the deeds of people before each retry.
pub(super) fn around(inner: Router, world: Arc<World>, api: Arc<Api>) -> Router {
    inner.layer(middleware::from_fn_with_state(People { world, api }, mend))
}

async fn mend(State(people): State<People>, request: Request, next: Next) -> Response {
    if request.method() == Method::POST
        && let Some(called) = retried(request.uri().path())
    {
        people.do_what_is_said(called).await;
    }
    next.run(request).await
}

/// What the machine of a retry is called in the path of its request.
fn retried(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/api/v1/machines/")?;
    rest.strip_suffix("/actions/retry")
}

impl People {
    /// Does the steps outside of dormer. A machine that is not known is refused by the request itself.
    async fn do_what_is_said(&self, called: &str) {
        let path = Path(called.to_owned());
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
