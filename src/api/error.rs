//! What the API answers when it cannot do what was asked: one sentence of what, one of what to do.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE},
    response::{IntoResponse, Response},
};
use dormer_engine::port::StoreError;
use dormer_proto::envelope::{DecodeError, EncodeError};
use serde_json::json;

/// Why a request got no answer.
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

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What went wrong, and what to do.
    pub fn what_and_remedy(&self) -> (&str, &str) {
        (&self.error, &self.what_to_do)
    }

    /// 413: a token that no cookie has room for.
    pub fn too_long(error: &str) -> Self {
        let what_to_do = "log in with a shorter token (kubectl create token ACCOUNT makes one), or send it yourself: \
            dormer's commands and other programs may send it as it is";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error, what_to_do)
    }

    /// 404: there is no such thing.
    pub fn absent(what: &str, name: &str, where_it_is_listed: &str) -> Self {
        let what_to_do = format!("{where_it_is_listed} lists what there is");
        Self::new(
            StatusCode::NOT_FOUND,
            format!("there is no {what} {name:?}"),
            what_to_do,
        )
    }

    /// 400: the question makes no sense.
    pub fn bad(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, what_to_do)
    }

    /// 403: a page of somebody else's asks in a person's name.
    pub fn foreign(origin: &str) -> Self {
        let error = format!("requests from pages of {origin:?} are not taken");
        let what_to_do = "use dormer's own console, or the command line";
        Self::new(StatusCode::FORBIDDEN, error, what_to_do)
    }

    /// 403: actions are not taken from there.
    pub fn far(from: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            format!("actions are taken from this machine alone, not from {from}"),
            "come through kubectl port-forward; or start dormer with --authentication cluster, \
             which asks the cluster who may",
        )
    }

    /// 401: nobody known asks. `how` says how to be known.
    pub fn unknown(error: impl Into<String>, how: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, error, how)
    }

    /// 403: a known user lacks a right.
    pub fn forbidden(error: impl Into<String>, how: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, error, how)
    }

    /// 503: nobody says who asks, or what they may; so nobody is let in.
    pub fn unreviewed(why: &str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the cluster's API server does not say who may: {why}"),
            "nobody is let in meanwhile; see whether the API server answers, and whether dormer's account may create \
             tokenreviews and subjectaccessreviews (deploy/rbac.yaml)",
        )
    }

    /// 415: only JSON is taken, which no form of a foreign page can send.
    pub fn not_json() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the content type is not application/json",
            "send the body, `{}` at least, as application/json",
        )
    }

    /// 409: things are not as the asker thinks.
    pub fn conflict(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, error, what_to_do)
    }

    /// 504: it was put into the inbox, and nobody has taken it yet.
    pub fn not_confirmed(id: &str) -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "no engine has taken the request yet; it stays in the inbox",
            format!(
                "see whether an engine runs (/readyz); a repeat with the id {id:?} is harmless"
            ),
        )
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let what_to_do = match error {
            StoreError::Unavailable(_) => "try again; /readyz says how the store does",
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
        let what_to_do = "ask a process of the newest build; else the store is damaged";
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
            what_to_do,
        )
    }
}

impl From<EncodeError> for ApiError {
    fn from(error: EncodeError) -> Self {
        Self::bad(error.to_string(), "say it in fewer words")
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
