//! The console: the fleet in a browser, rendered here from what the API answers, and live.
//!
//! Each page has one address. Asked for it, the server answers the page; asked for it as a stream of events, as the
//! page's own script does, it answers the page's content whenever that has changed. The browser computes nothing.

mod commands;
mod dead;
mod diagram;
mod fleet;
mod history;
mod item;
mod looks;
mod machine;
mod page;
#[cfg(test)]
mod palette;
mod picture;
mod rollout;
mod stream;

use crate::api::{self, Api, ApiError, reads};
use axum::{
    Router,
    extract::{Path, Query, State as Of},
    http::{
        HeaderMap, HeaderName, HeaderValue,
        header::{
            ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
    routing::get,
};
use dormer_engine::port::Ports;
use looks::{Drawn, Look, Looks};
use maud::Markup;
use serde_json::Value;
use std::sync::Arc;

/// Nothing but what this process serves: no script in the page, nothing from elsewhere, in nobody's frame. The one
/// form there is asks for a page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
    img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What the pages are made from.
pub(super) struct Console<P> {
    api: Arc<Api<P>>,
    looks: Arc<Looks>,
    /// Held while a page is drawn: those who want the same one draw it once.
    drawn: tokio::sync::Mutex<Drawn<Page>>,
}

type Asked<P> = Of<Arc<Console<P>>>;

/// A page, by its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Page {
    Fleet(fleet::Filter),
    Machine(String, history::Part),
    Rollout(String, history::Part),
    Dead,
}

/// A page's title and content.
struct Content {
    title: String,
    main: Markup,
}

/// The pages, and the API that they ask. Who may ask, [`api::access::around`] says.
pub(crate) fn with_api<P: Ports>(api: Arc<Api<P>>) -> Router {
    api::router(Arc::clone(&api)).merge(router(api))
}

/// The pages.
fn router<P: Ports>(api: Arc<Api<P>>) -> Router {
    let drawn = tokio::sync::Mutex::default();
    Router::new()
        .route("/", get(fleet_page))
        .route("/machines/{machine}", get(machine_page))
        .route("/rollouts/{pool}", get(rollout_page))
        .route("/dead", get(dead_page))
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
        .with_state(Arc::new(Console {
            api,
            looks: Arc::default(),
            drawn,
        }))
}

async fn fleet_page<P: Ports>(
    Of(console): Asked<P>,
    Query(filter): Query<fleet::Filter>,
    headers: HeaderMap,
) -> Response {
    console.answer(Page::Fleet(filter), &headers).await
}

async fn machine_page<P: Ports>(
    Of(console): Asked<P>,
    Path(called): Path<String>,
    Query(part): Query<history::Part>,
    headers: HeaderMap,
) -> Response {
    console.answer(Page::Machine(called, part), &headers).await
}

async fn rollout_page<P: Ports>(
    Of(console): Asked<P>,
    Path(pool): Path<String>,
    Query(part): Query<history::Part>,
    headers: HeaderMap,
) -> Response {
    console.answer(Page::Rollout(pool, part), &headers).await
}

async fn dead_page<P: Ports>(Of(console): Asked<P>, headers: HeaderMap) -> Response {
    console.answer(Page::Dead, &headers).await
}

impl<P: Ports> Console<P> {
    /// A page, the stream of its content, or the page that says why there is none.
    async fn answer(self: Arc<Self>, page: Page, headers: &HeaderMap) -> Response {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        if accept.is_some_and(|accept| accept.starts_with("text/event-stream")) {
            return stream::answer(self, page);
        }
        let drawn = match Look::at(&self.api).await {
            Ok(look) => self.draw(&page, &look).await,
            Err(error) => Err(error),
        };
        match drawn {
            Ok(content) => guarded([], page::page(&content.title, content.main)),
            Err(error) => {
                let failed = page::failed(&error);
                guarded([], (error.status(), page::page(&failed.title, failed.main)))
            }
        }
    }

    async fn draw(&self, page: &Page, look: &Look) -> Result<Content, ApiError> {
        match page {
            Page::Fleet(filter) => Ok(fleet::fleet(look, self.api.live(), filter)),
            Page::Machine(called, part) => machine::read(&self.api, look, called, *part).await,
            Page::Rollout(pool, part) => rollout::read(&self.api, look, pool, *part).await,
            Page::Dead => {
                let letters = reads::dead(Of(Arc::clone(&self.api))).await?.0;
                Ok(dead::dead(items(&letters)))
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

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use crate::api::tests::Site;
    use serde_json::json;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_fleet_leads_to_machines_and_these_tell_their_story() {
        let site = Site::new().await;
        let (status, policy, fleet) = site.page("/").await;
        assert_eq!(status, 200);
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(
            fleet.contains("<a href=\"/machines/u1\">win-u1</a>"),
            "{fleet}"
        );
        assert!(fleet.contains("data-state=\"Provisioned\""), "{fleet}");
        let (status, _, machine) = site.page("/machines/win-u1").await;
        assert_eq!(status, 200);
        for expected in [
            "the run began",
            "→ probe",
            "machines/u1/actions/pause",
            "SSH at 10.0.0.9",
            "<b>Next: </b>",
            "class=\"spot here\" data-state=\"Provisioned\"",
            "bring-up",
        ] {
            assert!(machine.contains(expected), "{expected}: {machine}");
        }
        let (status, _, rollout) = site.page("/rollouts/windows").await;
        assert!(
            status == 404 || rollout.contains("rollouts/windows/actions/pause"),
            "{rollout}"
        );
        for asset in ["/console.js", "/console.css", "/icon.svg"] {
            assert_eq!(site.page(asset).await.0, 200);
        }
        let (status, _, nobody) = site.page("/machines/nobody").await;
        assert!(
            status == 404 && nobody.contains("there is no machine"),
            "{nobody}"
        );
        assert!(site.page("/dead").await.2.contains("There are none."));
        site.end().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_list_is_searched_and_filtered() {
        let site = Site::new().await;
        for (query, found) in [
            ("?q=WIN-u", true),
            ("?q=10.0.0.9%20win", true),
            ("?q=nobody", false),
            ("?state=Joined", false),
            ("?state=Provisioned&pool=windows&page=7", true),
            ("?pool=linux", false),
            ("?q=&state=&page=x", true),
        ] {
            let (status, _, page) = site.page(&format!("/{query}")).await;
            assert_eq!(status, 200, "{query}");
            assert_eq!(
                page.contains("<tr data-key=\"u1\">"),
                found,
                "{query}: {page}"
            );
        }
        let (_, _, page) = site.page("/?q=%22%3E%3Cb%3E").await;
        assert!(page.contains("value=\"&quot;&gt;&lt;b&gt;\""), "{page}");
        site.end().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_people_write_is_text_on_a_page_and_nothing_more() {
        let site = Site::new().await;
        let why = json!({"who": "<b>ann</b>", "why": "<script>alert(1)</script>"});
        site.post("/machines/u1/actions/pause", &why).await;
        let (_, _, page) = site.page("/machines/u1").await;
        assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
        assert!(
            !page.contains("<script>alert") && !page.contains("<b>ann"),
            "{page}"
        );
        assert!(page.contains("machines/u1/actions/resume"), "{page}");
        site.end().await;
    }
}
