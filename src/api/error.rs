//! Errors of the API: one sentence with the cause, and one with the remedy.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE},
    response::{IntoResponse, Response},
};
use dormer_engine::port::StoreError;
use dormer_proto::{
    envelope::{DecodeError, EncodeError},
    id::RunId,
};
use serde_json::json;

/// Error answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct ApiError {
    status: StatusCode,
    error: String,
    what_to_do: String,
}

impl ApiError {
    fn new(status: StatusCode, error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            what_to_do: what_to_do.into(),
        }
    }

    /// HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn what_and_remedy(&self) -> (&str, &str) {
        (&self.error, &self.what_to_do)
    }

    /// 413: the token does not fit into a cookie.
    pub fn too_long(error: &str) -> Self {
        let what_to_do = "log in with a shorter token (kubectl create token ACCOUNT makes one); \
        dormer's commands and other programs may send the long one as a bearer token";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error, what_to_do)
    }

    /// 404: the object does not exist.
    pub fn absent(what: &str, name: &str, where_it_is_listed: &str) -> Self {
        let what_to_do = format!("{where_it_is_listed} lists those that exist");
        Self::new(
            StatusCode::NOT_FOUND,
            format!("there is no {what} {name:?}"),
            what_to_do,
        )
    }

    /// 404: what the request names does not exist.
    pub fn missing(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error, what_to_do)
    }

    /// 400: the request is invalid.
    pub fn bad(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, what_to_do)
    }

    /// 403: a foreign page sends a request in a person's name.
    pub fn foreign(origin: &str) -> Self {
        let error = format!("requests from pages of {origin:?} are not accepted");
        let what_to_do = "use dormer's own console, or the command line";
        Self::new(StatusCode::FORBIDDEN, error, what_to_do)
    }

    /// 403: actions are not accepted from this address.
    pub fn far(from: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            format!("actions are accepted from this machine only, not from {from}"),
            "connect through kubectl port-forward; or start dormer with --authentication cluster, \
             which checks rights in the cluster",
        )
    }

    /// 500: a bug in dormer ended the request.
    pub(crate) fn broken(what: &str) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{what}, which is a bug in dormer"),
            "check with dormer why what was already done, and report the panic from dormer's log",
        )
    }

    /// 503: as many plans are made as this process makes at once.
    pub(crate) fn busy() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "other plans are being made",
            "try again in a few seconds",
        )
    }

    /// 429: this caller, or its address, has as much in progress as one may have.
    pub(crate) fn too_many(error: impl Into<String>) -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            error,
            "wait until some have ended, and try again",
        )
    }

    /// 503: nothing is done that cannot be audited.
    pub(crate) fn unaudited(why: &str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the audit log cannot be written, and nothing is done without it: {why}"),
            "make room, or mend the file of --audit-log; --audit-required=false works without it",
        )
    }

    /// 421: the request names a foreign host.
    pub(crate) fn misdirected(host: &str) -> Self {
        Self::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!("{host:?} is no name of this machine"),
            "open http://localhost or http://127.0.0.1; a proxy in front of dormer passes on one \
             of these as Host, or dormer is started with --authentication none behind it",
        )
    }

    /// 401: the caller is not authenticated. `how` describes the login.
    pub fn unknown(error: impl Into<String>, how: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, error, how)
    }

    /// 403: an authenticated user lacks a right.
    pub fn forbidden(error: impl Into<String>, how: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, error, how)
    }

    /// 503: the API server answers no review, so no caller is let in.
    pub fn unreviewed(why: &str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the cluster's API server does not answer access reviews: {why}"),
            "no one can log in until the API server answers; check its health, and that \
             dormer's account may create tokenreviews and subjectaccessreviews (deploy/rbac.yaml)",
        )
    }

    /// 415: only JSON is accepted, which no form of a foreign page can send.
    pub fn not_json() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the content type is not application/json",
            "send a body, at least `{}`, as application/json",
        )
    }

    /// 409: the present state does not permit the request.
    pub fn conflict(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, error, what_to_do)
    }

    /// 409: engines do not process the quarantined run, so no engine would take the request.
    pub fn quarantined(run: &RunId, code: &str, why: &str) -> Self {
        Self::conflict(
            format!("{run} is quarantined ({code}): {why}"),
            format!(
                "mend the cause (docs/runbook.md, DormerRunQuarantined), then dormer unquarantine \
                 {run}, and repeat the request"
            ),
        )
    }

    /// 504: the request is in the inbox, and no engine has recorded it yet.
    pub fn not_confirmed(id: &str) -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "no engine has recorded the request yet; it stays in the inbox",
            format!(
                "check that an engine runs (/readyz); repeating the request with the id {id:?} is \
                 harmless"
            ),
        )
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let what_to_do = match error {
            StoreError::Unavailable(_) => "try again; /readyz shows the state of the store",
            StoreError::Broken(_) => "stop dormer and restore the store from a backup",
        };
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            error.to_string(),
            what_to_do,
        )
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        let what_to_do =
            "ask a process of the newest build; if that fails too, the store is damaged";
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
            what_to_do,
        )
    }
}

impl From<EncodeError> for ApiError {
    fn from(error: EncodeError) -> Self {
        Self::bad(error.to_string(), "shorten the text")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({"error": self.error, "whatToDo": self.what_to_do});
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"dormer\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
