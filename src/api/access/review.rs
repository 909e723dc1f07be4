//! TokenReview and SubjectAccessReview: which user a bearer token authenticates, and what that user may do.

use super::{
    cache::Cache,
    right::{GROUP, Object, Right},
};
use crate::ApiError;
use dormer_profile::sha256_hex;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use std::{fmt::Debug, future::Future, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::timeout};

/// Time limit of one review.
const REVIEW_MAX: Duration = Duration::from_secs(5);
/// Reviews in flight at once, so that strangers with invented tokens cannot flood the API server.
const ASKED_MAX: usize = 16;
/// Capacity of the cache of tokens and verdicts.
const KNOWN_MAX: usize = 4_096;
/// Longest time that a refusal is cached. It is short, so that a newly granted right works at once.
const NO_MAX: Duration = Duration::from_secs(2);
/// Longest token that is reviewed, in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Client of the API server's reviews, with a cache.
pub struct Reviews {
    client: Client,
    audiences: Option<Vec<String>>,
    /// How long a granted right is cached.
    kept_for: Duration,
    users: Cache<Option<Arc<UserInfo>>>,
    verdicts: Cache<bool>,
    asking: Semaphore,
}

impl Reviews {
    /// Reviews by the API server of `client`. With an audience, tokens must be issued for it. A granted right is
    /// cached for `kept_for`.
    pub fn by(client: Client, audience: Option<String>, kept_for: Duration) -> Self {
        Self {
            client,
            audiences: audience.map(|one| vec![one]),
            kept_for,
            users: Cache::new(KNOWN_MAX),
            verdicts: Cache::new(KNOWN_MAX),
            asking: Semaphore::new(ASKED_MAX),
        }
    }

    /// User whom the token authenticates. `None`: the API server rejects the token.
    ///
    /// # Errors
    /// The API server does not answer in time.
    pub(super) async fn user(&self, token: &str) -> Result<Option<Arc<UserInfo>>, ApiError> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            return Ok(None);
        }
        let key = sha256_hex(token.as_bytes());
        if let Some(known) = self.users.get(&key) {
            return Ok(known);
        }
        let spec = TokenReviewSpec {
            token: Some(token.into()),
            audiences: self.audiences.clone(),
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = self
            .ask(api.create(&PostParams::default(), &review))
            .await?;
        let status = answer.status.unwrap_or_default();
        // An API server that ignores audiences answers without any. The token is then rejected.
        let accepted = status.audiences.unwrap_or_default();
        let for_us = self
            .audiences
            .iter()
            .flatten()
            .all(|wanted| accepted.contains(wanted));
        let authenticated = status.authenticated == Some(true) && for_us;
        let user = status.user.filter(|_| authenticated).map(Arc::new);
        self.users
            .put(key, user.clone(), self.kept_for(user.is_some()));
        Ok(user)
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
            Object::All => None,
            Object::Called(name) => Some(name.clone()),
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
            .ask(api.create(&PostParams::default(), &review))
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
        asked: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApiError> {
        let asked = async {
            // The semaphore is never closed.
            let _slot = self.asking.acquire().await;
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
