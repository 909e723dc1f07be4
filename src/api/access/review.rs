//! TokenReview and SubjectAccessReview: which user a bearer token authenticates, and what that user may do.

use super::{
    cache::Cache,
    right::{GROUP, Right, RightObject},
};
use crate::ApiError;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use dormer_profile::sha256_hex;
use dormer_proto::lock::Locked as _;
use dormer_views::AUDIENCE;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use serde::Deserialize;
use std::{
    collections::HashMap,
    fmt::Debug,
    future::Future,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::Semaphore, time::timeout};

/// Time limit of one review.
const REVIEW_MAX: Duration = Duration::from_secs(5);
/// Reviews in flight at once for users who are known, so that they cannot flood the API server.
const ASKED_MAX: usize = 16;
/// Concurrent reviews of unknown tokens. They have slots of their own, so that invented tokens delay no known user.
const STRANGERS_MAX: usize = 8;
/// Such reviews of one peer, waiting ones included: fewer than the slots, so that one peer cannot use all of them.
const STRANGERS_OF_PEER_MAX: usize = 4;
/// How long a token that was once vouched for is reviewed among the known ones.
const PROVEN: Duration = Duration::from_secs(8 * 3_600);
/// Capacity of the cache of tokens and verdicts.
const KNOWN_MAX: usize = 4_096;
/// Longest time that a refusal is cached. It is short, so that a newly granted right works at once.
const NO_MAX: Duration = Duration::from_secs(2);
/// Longest token that is reviewed, in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Client of the API server's reviews, with a cache.
pub struct Reviews {
    client: Client,
    /// The audience that tokens must be issued for; `None`: [`AUDIENCE`], or the API server's own.
    audience: Option<String>,
    /// How long a granted right is cached.
    kept_for: Duration,
    users: Cache<Arc<UserInfo>>,
    /// Refused tokens, in a cache of their own: invented tokens then evict no user from the other one.
    refused: Cache<()>,
    /// Tokens that were accepted within [`PROVEN`].
    proven: Cache<()>,
    verdicts: Cache<bool>,
    asking: Semaphore,
    strangers: Semaphore,
    /// Reviews of unknown tokens by peer. Lock held for one map operation, never across an await.
    peers: Mutex<HashMap<Option<IpAddr>, usize>>,
}

/// Slot of a stranger's review among its peer's. It counts until it is dropped.
struct ReviewSlot<'a> {
    peers: &'a Mutex<HashMap<Option<IpAddr>, usize>>,
    peer: Option<IpAddr>,
}

impl Drop for ReviewSlot<'_> {
    fn drop(&mut self) {
        let mut all = self.peers.locked();
        let Some(count) = all.get_mut(&self.peer) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            all.remove(&self.peer);
        }
    }
}

/// Whether a token says that it is for this audience. Nothing is believed: the API server verifies the token for the
/// audience that it is then asked for.
fn says_audience(token: &str, audience: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audiences {
        One(String),
        Several(Vec<String>),
    }
    #[derive(Deserialize)]
    struct Claims {
        aud: Audiences,
    }
    let claims = token.split('.').nth(1).map(|it| URL_SAFE_NO_PAD.decode(it));
    let Some(Ok(claims)) = claims else {
        return false;
    };
    match serde_json::from_slice(&claims) {
        Ok(Claims {
            aud: Audiences::One(one),
        }) => one == audience,
        Ok(Claims {
            aud: Audiences::Several(all),
        }) => all.iter().any(|one| one == audience),
        Err(_) => false,
    }
}

impl Reviews {
    /// Reviews by the API server of `client`. With an audience, tokens must be issued for it; without, for [`AUDIENCE`]
    /// or for the API server itself. A granted right is cached for `kept_for`.
    pub fn by(client: Client, audience: Option<String>, kept_for: Duration) -> Self {
        Self {
            client,
            audience,
            kept_for,
            users: Cache::new(KNOWN_MAX),
            refused: Cache::new(KNOWN_MAX),
            proven: Cache::new(KNOWN_MAX),
            verdicts: Cache::new(KNOWN_MAX),
            asking: Semaphore::new(ASKED_MAX),
            strangers: Semaphore::new(STRANGERS_MAX),
            peers: Mutex::default(),
        }
    }

    /// User of a token that `peer` sent. `None`: the API server rejects the token.
    ///
    /// # Errors
    ///
    /// The API server does not answer in time, or the peer has too many unknown tokens under review.
    pub(super) async fn user(
        &self,
        token: &str,
        peer: Option<IpAddr>,
    ) -> Result<Option<Arc<UserInfo>>, ApiError> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            return Ok(None);
        }
        let key = sha256_hex(token.as_bytes());
        if let Some(known) = self.users.get(&key) {
            return Ok(Some(known));
        }
        if self.refused.get(&key).is_some() {
            return Ok(None);
        }
        let proven = self.proven.get(&key).is_some();
        let (slots, _slot) = match proven {
            true => (&self.asking, None),
            false => (&self.strangers, Some(self.slot(peer)?)),
        };
        let wanted = self.wanted(token);
        let spec = TokenReviewSpec {
            token: Some(token.into()),
            audiences: wanted.clone().map(|one| vec![one]),
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = self
            .ask(slots, api.create(&PostParams::default(), &review))
            .await?;
        let status = answer.status.unwrap_or_default();
        // An API server that ignores audiences answers without any. The token is then rejected.
        let accepted = status.audiences.unwrap_or_default();
        let for_us = wanted.is_none_or(|wanted| accepted.contains(&wanted));
        let authenticated = status.authenticated == Some(true) && for_us;
        let user = status.user.filter(|_| authenticated).map(Arc::new);
        let long = self.kept_for(user.is_some());
        match &user {
            Some(known) => {
                self.proven.put(key.clone(), (), PROVEN);
                self.users.put(key, Arc::clone(known), long);
            }
            None => self.refused.put(key, (), long),
        }
        Ok(user)
    }

    /// Audience that the API server is asked for; `None`: its own.
    fn wanted(&self, token: &str) -> Option<String> {
        let own = || says_audience(token, AUDIENCE).then(|| AUDIENCE.to_owned());
        self.audience.clone().or_else(own)
    }

    /// Slot for the review of an unknown token from `peer`.
    ///
    /// # Errors
    /// 429: the peer has as many as one may have.
    fn slot(&self, peer: Option<IpAddr>) -> Result<ReviewSlot<'_>, ApiError> {
        let peer = peer.map(|peer| peer.to_canonical());
        let mut all = self.peers.locked();
        let count = all.entry(peer).or_default();
        if *count >= STRANGERS_OF_PEER_MAX {
            return Err(ApiError::too_many(
                "too many unknown tokens from this address are under review",
            ));
        }
        *count += 1;
        drop(all);
        Ok(ReviewSlot {
            peers: &self.peers,
            peer,
        })
    }

    /// Whether the user has the right on an object in the namespace. An empty namespace means all namespaces.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn may(
        &self,
        user: &UserInfo,
        right: &Right,
        namespace: &str,
    ) -> Result<bool, ApiError> {
        let name = match &right.object {
            RightObject::All => None,
            RightObject::Called(name) => Some(name.clone()),
        };
        let attributes = ResourceAttributes {
            group: Some(GROUP.into()),
            resource: Some(right.resource.name().into()),
            verb: Some(right.verb.clone()),
            version: Some("v1".into()),
            namespace: Some(namespace.to_owned()),
            name,
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: user.username.clone(),
            groups: user.groups.clone(),
            uid: user.uid.clone(),
            extra: user.extra.clone(),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let key = sha256_hex(&serde_json::to_vec(&spec).unwrap_or_default());
        if let Some(known) = self.verdicts.get(&key) {
            return Ok(known);
        }
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = self
            .ask(&self.asking, api.create(&PostParams::default(), &review))
            .await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.verdicts.put(key, allowed, self.kept_for(allowed));
        Ok(allowed)
    }

    fn kept_for(&self, yes: bool) -> Duration {
        if yes {
            self.kept_for
        } else {
            self.kept_for.min(NO_MAX)
        }
    }

    async fn ask<T: Debug>(
        &self,
        slots: &Semaphore,
        asked: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApiError> {
        let asked = async {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            asked.await
        };
        match timeout(REVIEW_MAX, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                Err(ApiError::unreviewed(&format!(
                    "dormer's own account may not create reviews: {}",
                    status.message
                )))
            }
            Ok(Err(error)) => Err(ApiError::unreviewed(&error.to_string())),
            Err(_) => Err(ApiError::unreviewed(
                "the API server did not answer in time",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Request, Response};
    use futures::future::join_all;
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::convert::Infallible;
    use tokio::sync::watch;

    const KNOWN: &str = "a-known-token";

    /// Reviews by an API server that knows [`KNOWN`], and answers about other tokens only after `open` is true.
    fn reviews(open: watch::Receiver<bool>) -> Reviews {
        let server = tower::service_fn(move |request: Request<Body>| {
            let mut open = open.clone();
            async move {
                let body = request.into_body().collect_bytes().await.expect("a body");
                let asked: Value = serde_json::from_slice(&body).expect("JSON");
                let known = asked["spec"]["token"] == KNOWN;
                if !known {
                    open.wait_for(|open| *open).await.expect("a test");
                }
                let user = json!({"username": "ann"});
                let answer = json!({
                    "apiVersion": asked["apiVersion"], "kind": asked["kind"],
                    "metadata": {}, "spec": asked["spec"],
                    "status": {"authenticated": known, "user": user},
                });
                Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        Reviews::by(Client::new(server, "default"), None, Duration::ZERO)
    }

    fn peer(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[tokio::test(start_paused = true)]
    async fn invented_tokens_keep_neither_known_users_nor_other_peers_waiting() {
        let (open, opened) = watch::channel(false);
        let reviews = reviews(opened);
        // Nothing is cached here, so that each request of a known user is reviewed again.
        let known = reviews.user(KNOWN, peer(9)).await.expect("an answer");
        assert_eq!(known.expect("ann").username.as_deref(), Some("ann"));

        let one_peer = (0..100).map(|n| format!("invented-{n}"));
        let one_peer: Vec<String> = one_peer.collect();
        let mut flood = Box::pin(join_all(
            one_peer.iter().map(|it| reviews.user(it, peer(1))),
        ));
        assert!(futures::poll!(flood.as_mut()).is_pending());
        let first = timeout(REVIEW_MAX / 2, reviews.user(KNOWN, peer(9))).await;
        assert!(first.expect("at once").expect("an answer").is_some());
        let same = timeout(REVIEW_MAX / 2, reviews.user(KNOWN, peer(1))).await;
        assert!(
            same.expect("at once").expect("an answer").is_some(),
            "known, from there too"
        );
        let fresh = format!("{KNOWN}-not");
        let mut other = Box::pin(reviews.user(&fresh, peer(2)));
        assert!(
            futures::poll!(other.as_mut()).is_pending(),
            "it has a slot, and is asked"
        );
        assert!(
            reviews.strangers.available_permits() > 0,
            "one peer has not all of them"
        );

        // Many peers together take the strangers' slots, and no known user's.
        let many: Vec<_> = (10..60).map(|n| (format!("of-{n}"), peer(n))).collect();
        let mut botnet = Box::pin(join_all(many.iter().map(|(it, at)| reviews.user(it, *at))));
        assert!(futures::poll!(botnet.as_mut()).is_pending());
        let second = timeout(REVIEW_MAX / 2, reviews.user(KNOWN, peer(9))).await;
        assert!(second.expect("at once").expect("an answer").is_some());

        open.send_replace(true);
        let answers = flood.await;
        let refused = |it: &&Result<_, ApiError>| it.as_ref().is_err_and(|e| e.status() == 429);
        let turned_away = answers.iter().filter(refused).count();
        assert_eq!(turned_away, one_peer.len() - STRANGERS_OF_PEER_MAX);
        drop((other, botnet));
        let left = reviews.peers.lock().expect("a lock").len();
        assert_eq!(left, 0, "nothing is kept of who has gone");
    }

    #[tokio::test]
    async fn invented_tokens_drop_no_user_out_of_the_cache() {
        let (_open, opened) = watch::channel(true);
        let mut reviews = reviews(opened);
        reviews.kept_for = Duration::from_secs(60);
        assert!(
            reviews
                .user(KNOWN, peer(9))
                .await
                .expect("an answer")
                .is_some()
        );
        for n in 0..=KNOWN_MAX {
            let invented = format!("invented-{n}");
            assert!(
                reviews
                    .user(&invented, peer(1))
                    .await
                    .expect("one")
                    .is_none()
            );
        }
        assert!(reviews.users.get(&sha256_hex(KNOWN.as_bytes())).is_some());
    }
}
