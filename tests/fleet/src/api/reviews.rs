//! Requests that are answered and not kept: who am I, may I, and tokens.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{auth::User, object::Key, server::ApiServer, status::Refusal};

/// The audience of tokens that were made for no other.
const OWN_AUDIENCE: &str = "https://kubernetes.default.svc";

/// Answers a review, if the path is one. A user without grants may do everything.
///
/// # Errors
/// 400 for a body that is no JSON.
pub fn answer(
    server: &ApiServer,
    path: &str,
    user: &User,
    body: &[u8],
) -> Result<Option<Value>, Refusal> {
    let Some((_, plural)) = path.rsplit_once('/') else {
        return Ok(None);
    };
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
        "tokenreviews" => reviewed(server, &review["spec"]),
        "selfsubjectreviews" => json!({"userInfo": info(user)}),
        of_subject => {
            let spec = &review["spec"];
            let own = of_subject.starts_with("self");
            let who = if own {
                user.name.as_str()
            } else {
                spec["user"].as_str().unwrap_or("")
            };
            let allowed = server.tokens().allows(who, &spec["resourceAttributes"]);
            json!({"allowed": allowed, "reason": "what was granted to the user"})
        }
    };
    Ok(Some(review))
}

/// A TokenReview's status.
fn reviewed(server: &ApiServer, spec: &Value) -> Value {
    let token = spec["token"].as_str().unwrap_or_default();
    let own = || vec![OWN_AUDIENCE.to_owned()];
    let texts = |list: &Value| -> Vec<String> {
        list.as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| Some(it.as_str()?.into()))
            .collect()
    };
    let or_own = |list: Vec<String>| if list.is_empty() { own() } else { list };
    let wanted = or_own(texts(&spec["audiences"]));
    let made = or_own(server.tokens().audiences(token));
    let both: Vec<&String> = wanted.iter().filter(|it| made.contains(it)).collect();
    match server.tokens().user(token, server.store()) {
        Some(_) if both.is_empty() => {
            json!({"authenticated": false, "error": "the token is for other audiences"})
        }
        Some(user) => json!({"authenticated": true, "user": info(&user), "audiences": both}),
        None => json!({"authenticated": false, "error": "unknown token"}),
    }
}

fn info(user: &User) -> Value {
    json!({"username": user.name, "uid": user.uid, "groups": user.groups})
}

/// A token of an account: its id and its audiences, as real ones say them, and no signature.
fn shaped(id: &str, audiences: &[String]) -> String {
    let own = [OWN_AUDIENCE.to_owned()];
    let audiences = if audiences.is_empty() {
        &own
    } else {
        audiences
    };
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = part(json!({"alg": "none", "typ": "JWT"}));
    format!("{head}.{}.", part(json!({"jti": id, "aud": audiences})))
}

/// Answers a TokenRequest for a service account.
///
/// # Errors
/// 404 for an unknown account.
pub fn token(server: &ApiServer, account: &Key, mut request: Value) -> Result<Value, Refusal> {
    server.get(&super::kinds::SERVICE_ACCOUNT, account)?;
    let audiences = request["spec"]["audiences"]
        .as_array()
        .into_iter()
        .flatten();
    let audiences: Vec<String> = audiences
        .filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect();
    let token = shaped(&server.uid(), &audiences);
    let user = User::service_account(&account.namespace, &account.name);
    server.tokens().add_for(&token, user, audiences);
    let lasts = request["spec"]["expirationSeconds"]
        .as_i64()
        .unwrap_or(3600);
    let ends = server.clock().now() + jiff::SignedDuration::from_secs(lasts);
    request["status"] = json!({"token": token, "expirationTimestamp": crate::world::stamp(ends)});
    Ok(request)
}
