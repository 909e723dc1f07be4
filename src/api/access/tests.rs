//! Tests of the gate around a small router: response headers for browsers, and the audit's lines.

use super::*;
use crate::live::Live;
use audit::AuditTarget;
use axum::routing::{get, post};
use dormer_engine::{local::Local, memory::MemoryStore, port::SystemClock};
use dormer_proto::id::Incarnation;
use serde_json::Value;
use std::path::Path;
use tower::ServiceExt;

/// A machine's action and its configuration, and a page, behind a gate that knows the token `a-word-of-enough-letters`.
fn behind_a_gate(secure: bool, audit: Option<Arc<Audit>>) -> (Arc<Gate>, Router) {
    let act = post(|| async { "done" });
    let router = Router::new()
        .route("/", get(|| async { "page" }))
        .route("/api/v1/machines", get(|| async { "list" }))
        .route(
            "/api/v1/machines/{machine}/desired",
            get(|| async { "secret names" }),
        )
        .route("/api/v1/machines/{machine}/actions/{action}", act);
    gate_around(router, secure, audit)
}

fn gate_around(router: Router, secure: bool, audit: Option<Arc<Audit>>) -> (Arc<Gate>, Router) {
    let ports = Local::new(Arc::new(MemoryStore::new(Incarnation(1))), SystemClock);
    let api = Api::over(Arc::new(ports), Arc::<Live>::default(), None);
    let by = LoginMode::Token(Some(TOKEN.into()));
    let gate = Gate::new(
        by,
        RightNamespaces::default(),
        secure,
        &[],
        PROXY.parse().ok(),
        audit,
    );
    (Arc::clone(&gate), around(router, api, gate))
}

async fn answer(router: &Router, request: axum::http::request::Builder) -> Response {
    let mut request = request.body(Body::empty()).expect("a request");
    let peer = ConnectInfo::<SocketAddr>(([10, 0, 0, 7], 5_000).into());
    request.extensions_mut().insert(peer);
    let answered = router.clone().oneshot(request).await;
    answered.expect("an answer")
}

fn with_token(request: axum::http::request::Builder, token: &str) -> axum::http::request::Builder {
    request.header(AUTHORIZATION, format!("Bearer {token}"))
}

const TOKEN: &str = "a-word-of-enough-letters";
/// The proxy that may forward tokens.
const PROXY: &str = "10.0.0.9";

async fn answer_from(
    router: &Router,
    peer: &str,
    request: axum::http::request::Builder,
) -> Response {
    let mut request = request.body(Body::empty()).expect("a request");
    let peer = SocketAddr::new(peer.parse().expect("an address"), 5_000);
    request.extensions_mut().insert(ConnectInfo(peer));
    let answered = router.clone().oneshot(request).await;
    answered.expect("an answer")
}

#[tokio::test]
async fn one_proxy_forwards_tokens_and_for_actions_from_our_own_pages_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.log");
    let audit = Audit::open(&AuditTarget::File(file.clone()), true, None).expect("open");
    let (_, router) = behind_a_gate(false, Some(audit));
    let list = || Request::get("/api/v1/machines");
    let act = || Request::post("/api/v1/machines/win-1/actions/retry");
    let carrying = |request: axum::http::request::Builder, token: &str| {
        request
            .header(FORWARDED_TOKEN, token)
            .header(axum::http::header::HOST, "dormer.example")
    };
    let from = |request: axum::http::request::Builder, origin: &str| {
        request.header(axum::http::header::ORIGIN, origin)
    };
    let ours = "https://dormer.example";
    for (what, peer, request, status) in [
        ("a list", PROXY, carrying(list(), TOKEN), 200),
        (
            "the same, mapped",
            "::ffff:10.0.0.9",
            carrying(list(), TOKEN),
            200,
        ),
        ("another peer", "10.0.0.7", carrying(list(), TOKEN), 401),
        ("a wrong token", PROXY, carrying(list(), "wrong"), 401),
        ("no token", PROXY, carrying(list(), ""), 401),
        ("our page", PROXY, from(carrying(act(), TOKEN), ours), 200),
        (
            "a foreign page",
            PROXY,
            from(carrying(act(), TOKEN), "https://other.example"),
            403,
        ),
        ("no page", PROXY, carrying(act(), TOKEN), 403),
        (
            "our page by another peer",
            "10.0.0.7",
            from(carrying(act(), TOKEN), ours),
            401,
        ),
        (
            "a program's own token",
            PROXY,
            with_token(carrying(act(), "wrong"), TOKEN),
            200,
        ),
        (
            "a foreign page, by a proxy that forwards in Authorization",
            PROXY,
            with_token(from(carrying(act(), TOKEN), "https://other.example"), TOKEN),
            403,
        ),
    ] {
        let answered = answer_from(&router, peer, request).await;
        assert_eq!(answered.status().as_u16(), status, "{what}");
    }
    let acted = lines(&file);
    let by_proxy = acted.iter().find(|line| line["by"] == "proxy");
    let by_proxy = by_proxy.expect("the audit says who showed the token");
    assert_eq!(by_proxy["from"], PROXY, "{by_proxy}");
}

#[tokio::test]
async fn browsers_come_back_over_tls_only_where_there_is_tls_and_a_name_of_its_own() {
    for (secure, host, told) in [
        (true, "dormer.example", true),
        (true, "localhost:7080", false),
        (true, "10.0.0.1", false),
        (false, "dormer.example", false),
    ] {
        let (_, router) = behind_a_gate(secure, None);
        for path in ["/", "/login"] {
            let request = Request::get(path).header(axum::http::header::HOST, host);
            let response = answer(&router, request).await;
            let header = response.headers().get(STRICT_TRANSPORT_SECURITY);
            assert_eq!(header.is_some(), told, "{secure} {host} {path}");
        }
    }
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("a file");
    assert!(!text.contains(TOKEN) && !text.contains("token="), "{text}");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    lines.collect()
}

#[tokio::test]
async fn the_audit_holds_logins_refusals_confidential_reads_and_actions() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.log");
    let audit = Audit::open(&AuditTarget::File(file.clone()), true, None).expect("open");
    let (gate, router) = behind_a_gate(false, Some(audit));
    let act = "/api/v1/machines/win-1/actions/retry";
    let link = gate.sessions.file_link();
    for (request, status) in [
        // Neither a list nor a first visit is audited.
        (with_token(Request::get("/api/v1/machines"), TOKEN), 200),
        (Request::get("/"), 401),
        (
            with_token(Request::get("/api/v1/machines/win-1/desired"), TOKEN),
            200,
        ),
        (
            with_token(Request::post(act), TOKEN).header("x-forwarded-for", "192.0.2.1"),
            200,
        ),
        (with_token(Request::post(act), "wrong"), 401),
        (Request::get(&link), 200),
        (Request::get(&link), 401),
        (with_token(Request::post("/api/v1/links"), TOKEN), 200),
    ] {
        let answered = answer(&router, request).await;
        assert_eq!(answered.status().as_u16(), status);
    }
    let told: Vec<String> = lines(&file)
        .iter()
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
            let rights = line["rights"][0].as_str().unwrap_or("-");
            assert_eq!(line["from"], "10.0.0.7");
            let [event, outcome, by] = ["event", "outcome", "by"].map(text);
            let known = if line["user"].is_null() {
                "nobody"
            } else {
                "holder"
            };
            format!(
                "{event} {outcome} {known} by {by}: {rights} {}",
                line["status"]
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "confidential allowed holder by token: get machines win-1 null",
            "action allowed holder by token: retry machines win-1 null",
            "action answered holder by token: retry machines win-1 200",
            "action refused nobody by token: retry machines win-1 401",
            "login allowed holder by link: - null",
            "login refused nobody by link: - null",
            "link allowed holder by token: - null",
        ]
    );
    let all = lines(&file);
    assert_eq!(all[1]["id"], all[2]["id"], "both lines of one request");
    assert_eq!(all[1]["forwardedFor"], "192.0.2.1");
}

#[tokio::test]
async fn an_action_is_done_and_on_record_when_its_caller_goes_away_or_it_panics() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.log");
    let audit = Audit::open(&AuditTarget::File(file.clone()), true, None).expect("open");
    let gone = Arc::new(tokio::sync::Barrier::new(2));
    let waiting = Arc::clone(&gone);
    let act = post(move |raw: RawPathParams| async move {
        let action = raw.iter().last().map(|(_, value)| value.to_owned());
        assert_eq!(action.as_deref(), Some("retry"), "a bug");
        waiting.wait().await;
        "done"
    });
    let actions = "/api/v1/machines/{machine}/actions/{action}";
    let (_, router) = gate_around(Router::new().route(actions, act), false, Some(audit));
    let retry = with_token(Request::post("/api/v1/machines/win-1/actions/retry"), TOKEN);
    let mut asking = Box::pin(answer(&router, retry));
    // Once the first line is written, the action waits for the barrier.
    while lines(&file).is_empty() {
        assert!(futures::poll!(&mut asking).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(futures::poll!(&mut asking).is_pending());
    drop(asking);
    gone.wait().await;
    while lines(&file).len() < 2 {
        tokio::task::yield_now().await;
    }
    let broken = with_token(Request::post("/api/v1/machines/win-1/actions/abort"), TOKEN);
    assert_eq!(answer(&router, broken).await.status().as_u16(), 500);
    let results: Vec<Value> = lines(&file)
        .iter()
        .map(|line| line["status"].clone())
        .collect();
    assert_eq!(results, [Value::Null, 200.into(), Value::Null, 500.into()]);
}

#[tokio::test]
async fn nothing_is_done_that_cannot_be_audited_if_it_must_be() {
    for (required, expected) in [(true, 503), (false, 200)] {
        let audit = Audit::open(&AuditTarget::File("/dev/full".into()), required, None);
        let (gate, router) = behind_a_gate(false, Some(audit.expect("open")));
        let act = Request::post("/api/v1/machines/win-1/actions/retry");
        let read = Request::get("/api/v1/machines/win-1/desired");
        for request in [with_token(act, TOKEN), with_token(read, TOKEN)] {
            assert_eq!(answer(&router, request).await.status().as_u16(), expected);
        }
        let login = Request::get(gate.sessions.file_link());
        let entered = answer(&router, login).await;
        assert_eq!(entered.status().as_u16(), expected);
        assert_eq!(entered.headers().contains_key("set-cookie"), !required);
        let list = with_token(Request::get("/api/v1/machines"), TOKEN);
        assert_eq!(
            answer(&router, list).await.status().as_u16(),
            200,
            "lists go on"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_in_a_file_lives_for_minutes() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("link");
    let (gate, router) = behind_a_gate(false, None);
    assert!(gate.announce("http://here", file.clone()).expect("written"));
    let path = || {
        let link = std::fs::read_to_string(&file).expect("a file");
        link.trim()
            .strip_prefix("http://here")
            .expect("our link")
            .to_owned()
    };
    let first = path();
    tokio::time::advance(session::KEPT).await;
    assert_eq!(answer(&router, Request::get(&first)).await.status(), 401);
    gate.renew_link();
    let second = path();
    assert_eq!(answer(&router, Request::get(&second)).await.status(), 200);
    assert_ne!(path(), second, "a used link is replaced");
    gate.forget_link();
    assert!(!file.exists());
}
