//! Kubernetes' Status object: the API server's answer to a refused request.

use serde_json::{Value, json};

use super::kinds::Kind;

/// A refusal, as Kubernetes words it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message} ({reason}, {code})")]
pub struct Refusal {
    /// HTTP status code.
    pub code: u16,
    /// `reason`: one CamelCase word that programs match on.
    pub reason: &'static str,
    /// `message`: for people.
    pub message: String,
    /// `details`, or null.
    pub details: Value,
}

impl Refusal {
    /// A refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
        }
    }

    /// The object is not there.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified());
        Self {
            details: details(kind, name),
            ..Self::new(404, "NotFound", message)
        }
    }

    /// There is nothing at this path.
    pub fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// An object of this name is there already.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified());
        Self {
            details: details(kind, name),
            ..Self::new(409, "AlreadyExists", message)
        }
    }

    /// The resourceVersion is not the present one.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.qualified()
        );
        Self {
            details: details(kind, name),
            ..Self::new(409, "Conflict", message)
        }
    }

    /// The object is not what its kind must be.
    pub fn invalid(kind: &Kind, name: &str, field: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is invalid: {field}: {why}", kind.kind);
        let mut details = details(kind, name);
        details["kind"] = json!(kind.kind);
        details["causes"] =
            json!([{"reason": "FieldValueInvalid", "message": why, "field": field}]);
        Self {
            details,
            ..Self::new(422, "Invalid", message)
        }
    }

    /// The request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The watch or list starts before the oldest kept revision.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The user is unknown.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// The request is of a kind that is refused.
    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified());
        Self {
            details: details(kind, name),
            ..Self::new(403, "Forbidden", message)
        }
    }

    /// The method is none of this path's.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    /// The same with another `details`.
    pub fn with_details(self, details: Value) -> Self {
        Self { details, ..self }
    }

    /// The Status object.
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }

    /// Reads a Status object that a server sent with this HTTP code.
    pub fn from_value(code: u16, status: &Value) -> Self {
        let reason = match status["reason"].as_str().unwrap_or_default() {
            "NotFound" => "NotFound",
            "AlreadyExists" => "AlreadyExists",
            "Conflict" => "Conflict",
            "Invalid" => "Invalid",
            "Expired" | "Gone" => "Expired",
            "TooManyRequests" => "TooManyRequests",
            "Forbidden" => "Forbidden",
            "Unauthorized" => "Unauthorized",
            "BadRequest" => "BadRequest",
            _ => "Unknown",
        };
        let message = status["message"]
            .as_str()
            .unwrap_or("no message")
            .to_owned();
        let code = status["code"]
            .as_u64()
            .and_then(|c| c.try_into().ok())
            .unwrap_or(code);
        Self {
            code,
            reason,
            message,
            details: status["details"].clone(),
        }
    }
}

fn details(kind: &Kind, name: &str) -> Value {
    let mut details = json!({"name": name, "kind": kind.plural});
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    details
}

/// The Status object of a success.
pub fn success(details: Value) -> Value {
    let mut status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if !details.is_null() {
        status["details"] = details;
    }
    status
}
