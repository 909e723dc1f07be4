//! Requests that are answered and not kept: who am I, may I, and tokens.

use serde_json::{Value, json};

use super::{auth::User, object::Key, server::ApiServer, status::Refusal};

/// Answers a review, if the path is one. Every known user may do everything.
///
/// # Errors
/// 400 for a body that is no JSON.
pub fn answer(
    server: &ApiServer,
    path: &str,
    user: &User,
    body: &[u8],
) -> Result<Option<Value>, Refusal> {
    let Some((_, plural)) = path.rsplit_once('/') else { return Ok(None) };
    let known = [
        "tokenreviews",
        "selfsubjectreviews",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "localsubjectaccessreviews",
    ];
    if !known.contains(&plural) || !path.starts_with("/apis/auth") {
        return Ok(None);
    }
    let mut review: Value =
        serde_json::from_slice(body).map_err(|e| Refusal::bad_request(e.to_string()))?;
    review["status"] = match plural {
        "tokenreviews" => {
            let token = review["spec"]["token"].as_str().unwrap_or_default();
            match server.tokens().user(token, server.store()) {
                Some(user) => json!({"authenticated": true, "user": info(&user)}),
                None => json!({"authenticated": false, "error": "unknown token"}),
            }
        }
        "selfsubjectreviews" => json!({"userInfo": info(user)}),
        _ => json!({"allowed": true, "reason": "the simulated server lets every user"}),
    };
    Ok(Some(review))
}

fn info(user: &User) -> Value {
    json!({"username": user.name, "uid": user.uid, "groups": user.groups})
}

/// Answers a TokenRequest for a service account.
///
/// # Errors
/// 404 for an unknown account.
pub fn token(server: &ApiServer, account: &Key, mut request: Value) -> Result<Value, Refusal> {
    server.get(&super::kinds::SERVICE_ACCOUNT, account)?;
    let token = format!("sa-{}", server.uid());
    server.tokens().add(&token, User::service_account(&account.namespace, &account.name));
    let lasts = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
    let ends = server.clock().now() + jiff::SignedDuration::from_secs(lasts);
    request["status"] = json!({"token": token, "expirationTimestamp": crate::world::stamp(ends)});
    Ok(request)
}
