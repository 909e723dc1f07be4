//! Errors of the API server as failures that a person can act on.

use dormer_proto::message::Failure;
use kube::Error;

/// The code of a failure whose task may begin anew at once.
pub(super) const CONFLICT: &str = "Conflict";

/// Whether the object is not there.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

/// Whether somebody else changed the object meanwhile.
pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 409)
}

/// What was tried, and what came of it.
pub(super) fn failure(verb: &str, what: &str, error: &Error) -> Failure {
    let Error::Api(status) = error else {
        let text =
            format!("cannot {verb} {what}: the API server does not answer: {}", chain(error));
        return Failure::transient("ApiUnreachable", text);
    };
    let said = &status.message;
    match status.code {
        401 => Failure::transient(
            "Unauthorized",
            format!("the API server does not know dormer's credentials ({verb} {what})"),
        ),
        403 => Failure::transient("Forbidden", format!("dormer may not {verb} {what}: {said}")),
        404 => Failure::transient("NotFound", format!("cannot {verb} {what}: it is not there")),
        409 => Failure {
            after_ms: Some(200),
            ..Failure::transient(CONFLICT, format!("{what} was changed meanwhile: {said}"))
        },
        422 => Failure::lasting("Invalid", format!("cannot {verb} {what}: {said}")),
        429 => Failure {
            after_ms: status.details.as_ref().map(|d| u64::from(d.retry_after_seconds) * 1_000),
            ..Failure::transient("TooManyRequests", format!("cannot {verb} {what} yet: {said}"))
        },
        code => Failure::transient("ApiError", format!("cannot {verb} {what}: {said} ({code})")),
    }
}

/// An answer that did not come in time.
pub(super) fn silent(verb: &str, what: &str) -> Failure {
    Failure::transient("ApiUnreachable", format!("cannot {verb} {what}: no answer in 30 s"))
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
