//! The console: the fleet in a browser, rendered here from what the API answers, and live.

mod board;
mod machine;
mod page;
mod rollout;

use crate::api::{self, ActionsFrom, Api, ApiError, reads};
use axum::{
    Router,
    extract::{Path, Query, State as Of},
    http::{
        HeaderName, HeaderValue,
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use dormer_engine::port::Ports;
use maud::Markup;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Records that a page shows, the newest.
const RECORDS_SHOWN: u64 = 200;
/// Nothing but what this process serves: no script in the page, nothing from elsewhere, in nobody's frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
    img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

type Asked<P> = Of<Arc<Api<P>>>;

/// The pages, and the API that they ask; actions are taken `from` there.
pub(crate) fn with_api<P: Ports>(api: Arc<Api<P>>, from: ActionsFrom) -> Router {
    api::router(Arc::clone(&api), from).merge(router(api))
}

/// The pages.
fn router<P: Ports>(api: Arc<Api<P>>) -> Router {
    Router::new()
        .route("/", get(fleet))
        .route("/machines/{machine}", get(one))
        .route("/rollouts/{pool}", get(pool))
        .route("/dead", get(dead))
        .route("/console.css", get(|| async { asset("text/css", page::STYLE) }))
        .route("/console.js", get(|| async { asset("text/javascript", page::SCRIPT) }))
        .with_state(api)
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    guarded([(CONTENT_TYPE, HeaderValue::from_static(kind))], text)
}

fn guarded(
    more: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    body: impl IntoResponse,
) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.extend(more);
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A page, or the page that says why there is none.
fn shown(page: Result<Markup, ApiError>) -> Response {
    match page {
        Ok(page) => guarded([], page),
        Err(error) => {
            let status = error.status();
            let (what, advice) = error.told();
            guarded([], (status, page::failed(what, advice)))
        }
    }
}

/// Which machines the board has.
#[derive(Debug, Deserialize)]
struct Only {
    state: Option<String>,
}

async fn fleet<P: Ports>(Of(api): Asked<P>, Query(only): Query<Only>) -> Response {
    shown(fleet_page(api, only.state.as_deref()).await)
}

async fn fleet_page<P: Ports>(api: Arc<Api<P>>, only: Option<&str>) -> Result<Markup, ApiError> {
    let machines = reads::machines(Of(Arc::clone(&api)), Query::default()).await?.0;
    let rollouts = reads::rollouts(Of(Arc::clone(&api))).await?.0;
    let dead = reads::dead(Of(api)).await?.0;
    let content = board::fleet(items(&machines), items(&rollouts), items(&dead).len(), only);
    Ok(page::page("Windows nodes", content))
}

async fn one<P: Ports>(Of(api): Asked<P>, Path(called): Path<String>) -> Response {
    shown(machine_page(api, called).await)
}

async fn machine_page<P: Ports>(api: Arc<Api<P>>, called: String) -> Result<Markup, ApiError> {
    let machine = reads::machine(Of(Arc::clone(&api)), Path(called)).await?.0;
    let uid = machine["uid"].as_str().unwrap_or_default().to_owned();
    let part = newest(&machine);
    let history = reads::machine_history(Of(api), Path(uid), Query(part)).await?.0;
    let name = machine["name"].as_str().unwrap_or("a machine");
    Ok(page::page(name, machine::machine(&machine, items(&history))))
}

async fn pool<P: Ports>(Of(api): Asked<P>, Path(pool): Path<String>) -> Response {
    shown(rollout_page(api, pool).await)
}

async fn rollout_page<P: Ports>(api: Arc<Api<P>>, pool: String) -> Result<Markup, ApiError> {
    let rollout = reads::rollout(Of(Arc::clone(&api)), Path(pool.clone())).await?.0;
    let part = newest(&rollout);
    let history = reads::rollout_history(Of(api), Path(pool.clone()), Query(part)).await?.0;
    Ok(page::page(&format!("Rollout {pool}"), rollout::rollout(&rollout, items(&history))))
}

async fn dead<P: Ports>(Of(api): Asked<P>) -> Response {
    let letters = reads::dead(Of(api)).await;
    shown(letters.map(|letters| page::page("Dead letters", board::dead(items(&letters.0)))))
}

/// The part of a run's history that a page shows.
fn newest(run: &Value) -> reads::Part {
    let seq = run["seq"].as_u64().unwrap_or(1);
    reads::Part::new(seq.saturating_sub(RECORDS_SHOWN - 1).max(1), RECORDS_SHOWN as usize)
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use crate::api::tests::Site;
    use serde_json::json;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_board_leads_to_machines_and_these_tell_their_story() {
        let site = Site::new().await;
        let (status, policy, board) = site.page("/").await;
        assert_eq!(status, 200);
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(board.contains("<a href=\"/machines/u1\">win-u1</a>"), "{board}");
        assert!(board.contains("data-state=\"Provisioned\""), "{board}");
        let (status, _, machine) = site.page("/machines/win-u1").await;
        assert_eq!(status, 200);
        for expected in ["the run began", "→ probe", "machines/u1/actions/pause", "SSH at 10.0.0.9"]
        {
            assert!(machine.contains(expected), "{expected}: {machine}");
        }
        let (status, _, rollout) = site.page("/rollouts/windows").await;
        assert!(status == 404 || rollout.contains("rollouts/windows/actions/pause"), "{rollout}");
        assert_eq!(site.page("/console.js").await.0, 200);
        assert_eq!(site.page("/console.css").await.0, 200);
        let (status, _, nobody) = site.page("/machines/nobody").await;
        assert!(status == 404 && nobody.contains("there is no machine"), "{nobody}");
        assert!(site.page("/dead").await.2.contains("There are none."));
        site.end().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_people_write_is_text_on_a_page_and_nothing_more() {
        let site = Site::new().await;
        let why = json!({"who": "<b>ann</b>", "why": "<script>alert(1)</script>"});
        site.post("/machines/u1/actions/pause", &why).await;
        let (_, _, page) = site.page("/machines/u1").await;
        assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
        assert!(!page.contains("<script>alert") && !page.contains("<b>ann"), "{page}");
        assert!(page.contains("machines/u1/actions/resume"), "{page}");
        site.end().await;
    }
}
