//! Web console: live pages about the fleet, rendered on the server from the API's views.
//!
//! Each page has one URL. A browser gets the page. The page's own script requests a stream of events from the same
//! URL, and receives the content whenever it changes. The browser computes nothing.

mod actions;
mod activity;
mod commands;
mod dead_letters;
mod diagram;
mod fleet;
mod history;
mod item;
mod machine;
mod page;
#[cfg(test)]
mod palette;
mod picture;
mod plan;
mod rollout;
mod rollouts;
mod settings;
mod snapshot;
mod stream;

use axum::{
    Router,
    extract::{Path, Query, State as Of},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode, Uri,
        header::{
            ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
    routing::get,
};
use dormer_api::{Api, ApiError, reads};
use maud::Markup;
use snapshot::{PageCache, Snapshot, SnapshotFeed};
use std::sync::Arc;

/// Content security policy: only what this process serves, no inline script, no framing. The only form requests a
/// page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
    img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// State behind the pages.
struct Console {
    api: Arc<Api>,
    snapshots: Arc<SnapshotFeed>,
    /// Lock held while a page is rendered, so that concurrent requests render it once.
    drawn: tokio::sync::Mutex<PageCache<Page>>,
    activity: activity::RequestCache,
}

type ConsoleState = Of<Arc<Console>>;

/// Page by its URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Page {
    Fleet(fleet::Filter),
    Machine(String, history::HistoryPart),
    Rollouts,
    Rollout(String, history::HistoryPart),
    Plan(plan::PlanQuery),
    Activity,
    Settings,
    Dead,
}

impl Page {
    /// What is shown in its place.
    fn without(&self, error: &ApiError) -> PageContent {
        match self {
            Self::Machine(called, _) if error.status() == StatusCode::NOT_FOUND => {
                page::no_machine(called, error)
            }
            _ => page::failed(error),
        }
    }
}

/// Title and content of a page.
struct PageContent {
    title: String,
    section: page::Section,
    main: Markup,
}

/// Router of the pages and the API. [`dormer_api::access::around`] adds authorization.
pub fn with_api(api: Arc<Api>) -> Router {
    dormer_api::router(Arc::clone(&api)).merge(router(api))
}

/// Router of the pages.
fn router(api: Arc<Api>) -> Router {
    let drawn = tokio::sync::Mutex::default();
    Router::new()
        .route("/", get(fleet_page))
        .route("/machines/{machine}", get(machine_page))
        .route("/rollouts", get(rollouts_page))
        .route("/rollouts/{pool}", get(rollout_page))
        .route("/plan", get(plan_page))
        .route("/activity", get(activity_page))
        .route("/settings", get(settings_page))
        .route("/dead-letters", get(dead_page))
        .route(
            "/console.css",
            get(|| async { asset("text/css", page::STYLE) }),
        )
        .route(
            "/console.js",
            get(|| async { asset("text/javascript", page::SCRIPT) }),
        )
        .route(
            "/icon.svg",
            get(|| async { asset("image/svg+xml", page::ICON) }),
        )
        .fallback(no_page)
        .with_state(Arc::new(Console {
            api,
            snapshots: Arc::default(),
            drawn,
            activity: activity::RequestCache::default(),
        }))
}

/// Answers an address that no page has.
async fn no_page(uri: Uri) -> Response {
    let content = page::no_page(uri.path());
    guarded([], (StatusCode::NOT_FOUND, page::page(content)))
}

async fn fleet_page(
    Of(console): ConsoleState,
    Query(filter): Query<fleet::Filter>,
    headers: HeaderMap,
) -> Response {
    console.answer(Page::Fleet(filter), &headers).await
}

async fn machine_page(
    Of(console): ConsoleState,
    Path(called): Path<String>,
    Query(part): Query<history::HistoryPart>,
    headers: HeaderMap,
) -> Response {
    console.answer(Page::Machine(called, part), &headers).await
}

async fn rollout_page(
    Of(console): ConsoleState,
    Path(pool): Path<String>,
    Query(part): Query<history::HistoryPart>,
    headers: HeaderMap,
) -> Response {
    console.answer(Page::Rollout(pool, part), &headers).await
}

async fn rollouts_page(Of(console): ConsoleState, headers: HeaderMap) -> Response {
    console.answer(Page::Rollouts, &headers).await
}

async fn plan_page(
    Of(console): ConsoleState,
    Query(chosen): Query<plan::PlanQuery>,
    headers: HeaderMap,
) -> Response {
    console.answer(Page::Plan(chosen), &headers).await
}

async fn activity_page(Of(console): ConsoleState, headers: HeaderMap) -> Response {
    console.answer(Page::Activity, &headers).await
}

async fn settings_page(Of(console): ConsoleState, headers: HeaderMap) -> Response {
    console.answer(Page::Settings, &headers).await
}

async fn dead_page(Of(console): ConsoleState, headers: HeaderMap) -> Response {
    console.answer(Page::Dead, &headers).await
}

impl Console {
    /// Answers a page, the stream of its content, or an error page.
    async fn answer(self: Arc<Self>, page: Page, headers: &HeaderMap) -> Response {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        if accept.is_some_and(|accept| accept.starts_with("text/event-stream")) {
            return stream::answer(self, page);
        }
        let drawn = match Snapshot::at(&self.api).await {
            Ok(snapshot) => self.draw(&page, &snapshot).await,
            Err(error) => Err(error),
        };
        match drawn {
            Ok(content) => guarded([], page::page(content)),
            Err(error) => {
                let failed = page.without(&error);
                guarded([], (error.status(), page::page(failed)))
            }
        }
    }

    async fn draw(&self, page: &Page, snapshot: &Snapshot) -> Result<PageContent, ApiError> {
        match page {
            Page::Fleet(filter) => Ok(fleet::fleet(
                &self.api,
                snapshot,
                &self.snapshots.items,
                filter,
            )),
            Page::Machine(called, part) => machine::read(&self.api, snapshot, called, *part).await,
            Page::Rollout(pool, part) => rollout::read(&self.api, snapshot, pool, *part).await,
            Page::Rollouts => rollouts::read(&self.api, snapshot).await,
            Page::Plan(chosen) => Ok(plan::read(&self.api, snapshot, chosen).await),
            Page::Activity => activity::read(&self.api, snapshot, &self.activity).await,
            Page::Settings => Ok(settings::settings(&self.api, snapshot)),
            Page::Dead => {
                let list = reads::dead(Of(Arc::clone(&self.api))).await?.0;
                Ok(dead_letters::dead(&list.items))
            }
        }
    }
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
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    response
}
