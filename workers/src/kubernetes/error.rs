//! Errors of the API server as failures that a person can act on.

use super::ANSWER_MAX;
use dormer_proto::message::Failure;
use kube::{Error, core::Status};

/// Code of a failure whose task may restart at once.
pub(super) const CONFLICT: &str = "Conflict";

/// The code of a failure to find something, or all of its kind.
pub(super) const NOT_FOUND: &str = "NotFound";

/// The code of a failure for want of a right.
pub(super) const FORBIDDEN: &str = "Forbidden";

/// Whether the API server answers that this very object does not exist. A 404 without an object comes from a proxy, or
/// from a server that does not serve Machines yet (kubernetes#115241), and proves nothing. If it counted, an open fence
/// would pass for closed.
pub(super) fn is_gone(error: &Error) -> bool {
    let Error::Api(status) = error else {
        return false;
    };
    let named = status
        .details
        .as_ref()
        .is_some_and(|details| !details.name.is_empty());
    status.code == 404 && status.reason == "NotFound" && named
}

/// Whether another client changed the object meanwhile.
pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 409)
}

/// Failure of an API call: the verb, the object, and the error.
pub(super) fn failure(verb: &str, what: &str, error: &Error) -> Failure {
    let Error::Api(status) = error else {
        let text = format!(
            "cannot {verb} {what}: the API server does not answer: {}",
            chain(error)
        );
        return Failure::transient("ApiUnreachable", text);
    };
    let failure_of = &status.message;
    match status.code {
        401 => Failure::transient(
            "Unauthorized",
            format!("the API server does not know dormer's credentials ({verb} {what})"),
        ),
        403 => Failure::transient(
            FORBIDDEN,
            format!("dormer may not {verb} {what}: {failure_of}"),
        ),
        404 if is_gone(error) => {
            Failure::transient(NOT_FOUND, format!("cannot {verb} {what}: it is not there"))
        }
        404 => Failure::transient(
            NOT_FOUND,
            format!("cannot {verb} {what}: the cluster does not serve it ({failure_of})"),
        ),
        409 => Failure {
            after_ms: Some(200),
            ..Failure::transient(
                CONFLICT,
                format!("{what} was changed meanwhile: {failure_of}"),
            )
        },
        422 => Failure::lasting("Invalid", format!("cannot {verb} {what}: {failure_of}")),
        429 => Failure {
            after_ms: retry_after_ms(status),
            ..Failure::transient(
                "TooManyRequests",
                format!("cannot {verb} {what} yet: {failure_of}"),
            )
        },
        code => Failure::transient(
            "ApiError",
            format!("cannot {verb} {what}: {failure_of} ({code})"),
        ),
    }
}

/// Pause that the server requests, in milliseconds.
fn retry_after_ms(status: &Status) -> Option<u64> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| u64::from(seconds) * 1_000)
}

/// An answer that did not come in time.
pub(super) fn silent(verb: &str, what: &str) -> Failure {
    Failure::transient(
        "ApiUnreachable",
        format!(
            "cannot {verb} {what}: no answer in {} s",
            ANSWER_MAX.as_secs()
        ),
    )
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::StatusDetails;

    fn failure_of(code: u16, after: u32) -> Failure {
        let details: StatusDetails =
            serde_json::from_value(serde_json::json!({"retryAfterSeconds": after}))
                .expect("details");
        let status = Status::failure("it says so", "Reason")
            .with_code(code)
            .with_details(details);
        failure("patch", "Node win-1", &Error::Api(Box::new(status)))
    }

    #[test]
    fn every_answer_is_a_sentence_with_a_code() {
        for (status, code, retry, after) in [
            (401, "Unauthorized", true, None),
            (403, "Forbidden", true, None),
            (404, "NotFound", true, None),
            (409, CONFLICT, true, Some(200)),
            (422, "Invalid", false, None),
            (429, "TooManyRequests", true, Some(7_000)),
            (500, "ApiError", true, None),
            (504, "ApiError", true, None),
        ] {
            let failure = failure_of(status, 7);
            assert_eq!(
                (failure.code.as_str(), failure.retry),
                (code, retry),
                "{status}"
            );
            assert_eq!(failure.after_ms, after, "{status}");
            assert!(failure.message.contains("Node win-1"), "{failure:?}");
        }
        assert_eq!(
            failure_of(403, 0).message,
            "dormer may not patch Node win-1: it says so"
        );
        assert_eq!(
            failure_of(429, 0).after_ms,
            None,
            "no wish: the policy's delay holds"
        );
    }

    #[test]
    fn only_a_404_that_names_the_object_says_that_it_is_gone() {
        let answer = |body: serde_json::Value| -> Error {
            let status: Status = serde_json::from_value(body).expect("a status");
            Error::Api(Box::new(status.with_code(404)))
        };
        let details = serde_json::json!({"name": "win-1", "kind": "nodes"});
        let missing = serde_json::json!({"reason": "NotFound", "details": details});
        assert!(is_gone(&answer(missing)));
        // As kube puts a page that is no Status.
        let page = serde_json::json!({"message": "404 page not found",
            "reason": "Failed to parse error data"});
        let unserved = serde_json::json!({"reason": "NotFound", "details": {},
            "message": "the server could not find the requested resource"});
        for other in [page, unserved] {
            let error = answer(other);
            assert!(!is_gone(&error), "{error:?}");
            let failure = failure("get", "Machine m/w", &error);
            assert!(
                failure.retry && failure.message.contains("does not serve it"),
                "{failure:?}"
            );
        }
    }
}
