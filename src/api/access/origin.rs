//! Check of a request's origin, against pages of others that send requests in a person's name.

use crate::error::ApiError;
use axum::http::{
    HeaderMap,
    header::{HOST, ORIGIN},
};

/// Verdict on a request without an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithoutOrigin {
    /// A program sent it: browsers name the origin of whatever changes something.
    Allowed,
    /// It has a browser's session, so it has to name one.
    Refused,
}

/// Rejects a request from a page of another origin. Such a page cannot forge its origin.
pub(crate) fn check(headers: &HeaderMap, without: WithoutOrigin) -> Result<(), ApiError> {
    let Some(origin) = headers.get(ORIGIN) else {
        return match without {
            WithoutOrigin::Allowed => Ok(()),
            WithoutOrigin::Refused => Err(ApiError::foreign("nowhere")),
        };
    };
    let origin = origin.to_str().unwrap_or("unreadable");
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if authority.is_some() && authority == host {
        Ok(())
    } else {
        Err(ApiError::foreign(origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn accepted(origin: Option<&[u8]>, without: WithoutOrigin) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("dormer.example:7080"));
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_bytes(origin).expect("a value"));
        }
        check(&headers, without).is_ok()
    }

    #[test]
    fn only_dormers_own_pages_pass_and_programs_without_an_origin() {
        use WithoutOrigin::{Allowed, Refused};
        for without in [Allowed, Refused] {
            assert!(accepted(Some(b"https://dormer.example:7080"), without));
            assert!(!accepted(Some(b"https://other.example"), without));
            assert!(!accepted(Some(b"null"), without));
            // A header that is no text is no missing header.
            assert!(!accepted(Some(b"https://dormer.example:7080\xff"), without));
        }
        assert!(accepted(None, Allowed));
        assert!(!accepted(None, Refused));
    }
}
