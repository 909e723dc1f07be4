//! Login and logout for browsers: a one-time link, or a bearer token in a form.

use super::{
    Caller, Gate, KnownCaller, ShownBy,
    audit::{AuditEntry, AuditEvent, AuditOutcome},
    entry,
    origin::{self, WithoutOrigin},
    peer,
};
use crate::ApiError;
use axum::{
    Extension, Form, Json, Router,
    extract::{Query, State as Of},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, SET_COOKIE,
            X_CONTENT_TYPE_OPTIONS,
        },
        request::Parts,
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use maud::{DOCTYPE, Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Content security policy of the login pages: only dormer's style sheet and form.
const POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// Credential of the caller's request. A link made for the caller opens a session with the same credential.
#[derive(Clone)]
pub(super) struct SessionCredential(pub(super) Option<String>);

/// Routes that need no login.
pub(super) fn open(gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/login", get(by_link).post(by_form))
        .route("/logout", post(logout))
        .with_state(gate)
}

/// Routes that need a known caller.
pub(super) fn links(gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/api/v1/links", post(link))
        .with_state(gate)
}

#[derive(Deserialize)]
struct LoginToken {
    token: Option<String>,
}

async fn by_link(
    Of(gate): Of<Arc<Gate>>,
    method: Method,
    parts: Parts,
    Query(word): Query<LoginToken>,
) -> Response {
    // A HEAD request, as link checkers send it, does not use the link up.
    let Some(word) = word.token.filter(|_| method == Method::GET) else {
        return page(StatusCode::OK, form(gate.how_in_a_browser()));
    };
    let Some(behind) = gate.sessions.follow(&word) else {
        let used = "This link was used before, or it has expired. Each link works once.";
        let _ = noted(&gate, parts, "link", Err(used)).await;
        return page(
            StatusCode::UNAUTHORIZED,
            html! { p { (used) } (form(gate.how_in_a_browser())) },
        );
    };
    let known = match &behind {
        None => {
            gate.renew_link();
            Ok(KnownCaller::Holder)
        }
        Some(token) => gate.known(token, peer(&parts)).await,
    };
    begun(&gate, parts, "link", &behind, known).await
}

async fn by_form(
    Of(gate): Of<Arc<Gate>>,
    headers: HeaderMap,
    parts: Parts,
    Form(word): Form<LoginToken>,
) -> Response {
    if let Err(error) = origin::check(&headers, WithoutOrigin::Refused) {
        return refused(&error);
    }
    let token = word.token.unwrap_or_default().trim().to_owned();
    let known = gate.known(&token, peer(&parts)).await;
    begun(&gate, parts, "token", &Some(token), known).await
}

/// Begins the session of a known caller, once that is on record.
async fn begun(
    gate: &Gate,
    parts: Parts,
    by: &'static str,
    behind: &Option<String>,
    known: Result<KnownCaller, ApiError>,
) -> Response {
    let said = match &known {
        Ok(known) => Ok(known.name()),
        Err(error) => Err(error.what_and_remedy().0),
    };
    let written = noted(gate, parts, by, said).await;
    match known.and(written) {
        Ok(()) => entered(gate, behind),
        Err(error) => refused(&error),
    }
}

/// Audits a login, or the reason for its refusal.
async fn noted(
    gate: &Gate,
    mut parts: Parts,
    by: &'static str,
    who: Result<Option<String>, &str>,
) -> Result<(), ApiError> {
    parts.extensions.insert(ShownBy(by));
    let (outcome, error) = match who {
        Ok(name) => {
            if let Some(name) = name {
                parts.extensions.insert(Caller(name));
            }
            (AuditOutcome::Allowed, None)
        }
        Err(why) => (AuditOutcome::Refused, Some(why.to_owned())),
    };
    let entry = AuditEntry {
        error,
        ..entry(&parts, AuditEvent::Login, outcome)
    };
    gate.note(entry).await
}

/// A page with a link instead of a redirect: after a redirect from another site, browsers do not send a
/// `SameSite=Strict` cookie.
fn entered(gate: &Gate, behind: &Option<String>) -> Response {
    let cookie = match gate.sessions.open(behind) {
        Ok(cookie) => cookie,
        Err(long) => return refused(&ApiError::too_long(&long.to_string())),
    };
    let content = html! {
        meta http-equiv="refresh" content="0; url=/";
        p { "You are logged in. " a href="/" { "Continue" } }
    };
    let mut response = page(StatusCode::OK, content);
    set(&mut response, &cookie);
    response
}

async fn logout(Of(gate): Of<Arc<Gate>>, headers: HeaderMap, mut parts: Parts) -> Response {
    if let Err(error) = origin::check(&headers, WithoutOrigin::Refused) {
        return refused(&error);
    }
    if gate.sessions.of(&headers).is_some() {
        parts.extensions.insert(ShownBy("session"));
        // A session ends, whatever may be written.
        let _ = gate
            .note(entry(&parts, AuditEvent::Logout, AuditOutcome::Allowed))
            .await;
    }
    let mut response = page(StatusCode::OK, html! { p { "You are logged out." } });
    for cookie in gate.sessions.close(&headers) {
        set(&mut response, &cookie);
    }
    response
}

fn set(response: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
}

async fn link(
    Of(gate): Of<Arc<Gate>>,
    headers: HeaderMap,
    behind: Option<Extension<SessionCredential>>,
) -> Result<Json<Value>, ApiError> {
    if headers.contains_key(axum::http::header::ORIGIN) {
        origin::check(&headers, WithoutOrigin::Refused)?;
    }
    let path = match behind {
        Some(Extension(SessionCredential(behind))) => gate.sessions.link(behind),
        // This login mode needs no login.
        None => "/".to_owned(),
    };
    Ok(Json(
        json!({"path": path, "seconds": super::session::LINK.as_secs()}),
    ))
}

/// Page for a caller who is unknown or lacks a right.
pub(super) fn refused(error: &ApiError) -> Response {
    let (what, advice) = error.what_and_remedy();
    let asks = error.status() == StatusCode::UNAUTHORIZED;
    let content = html! {
        p { strong { (what) } }
        @if asks { (form(advice)) } @else { p { (advice) } }
    };
    page(error.status(), content)
}

fn form(how: &str) -> Markup {
    html! {
        p { (how) }
        form method="post" action="/login" {
            label for="token" { "Token" } " "
            input id="token" name="token" type="password" autocomplete="off" required autofocus;
            " " button { "Log in" }
        }
    }
}

fn page(status: StatusCode, content: Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "dormer: log in" }
                link rel="stylesheet" href="/console.css";
            }
            body { main { h1 { "dormer" } (content) } }
        }
    };
    let mut response = (status, page).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
