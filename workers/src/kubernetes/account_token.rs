//! Tokens of the account by which kubelets ask for their first certificate, where no bootstrap tokens are made in
//! kube-system (OpenShift). Each machine has its own, for at most an hour, bound to the Secret that hands it over: without
//! that Secret the API server refuses the token. The ids of a machine's tokens are kept beside it, and the request of one
//! machine's kubelet is held to them (`csr.rs`).

use super::{
    KubernetesExecutor,
    join::{self, CREDENTIALS, TokenSecret},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use dormer_proto::message::Failure;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde::Deserialize;
use std::fmt::Write;
use zeroize::Zeroizing;

/// The account, in the namespace where tokens are handed over (`deploy/chart/templates/account-tokens.yaml`).
pub const ACCOUNT: &str = "dormer-bootstrapper";
/// Field of a request's user in which the API server writes the id of the token that asked.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Requested lifetime of a token, in seconds. It begins again with each order to configure the host.
const LIFE_S: i64 = 3_600;
/// A token with less remaining lifetime is replaced before a host gets it.
const LEFT_MIN: SignedDuration = SignedDuration::from_mins(30);
/// How long an id counts after its token's end: a kubelet may have asked in the last second, and the approver was down.
const LATE: SignedDuration = SignedDuration::from_hours(1);
/// Code of a token that cannot be used.
const UNUSABLE: &str = "BootstrapUnusable";
/// Most ids of one machine. By the two lengths above there are five at most.
const KEPT_MAX: usize = 8;

/// Id of a token that was made for a machine, as requests carry it, and that token's end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Credential {
    id: String,
    until: Timestamp,
}

/// User name and group of who holds a token of the dormer in namespace `home`.
pub(super) fn user(home: &str) -> (String, String) {
    let namespace = join::namespace(home);
    (
        format!("system:serviceaccount:{namespace}:{ACCOUNT}"),
        format!("system:serviceaccounts:{namespace}"),
    )
}

/// Whether a user may hold a token of some dormer's account. Which one's, the approver compares.
pub(super) fn may_hold(user: &str, groups: &[&str]) -> bool {
    let account = user.strip_prefix("system:serviceaccount:");
    let Some((namespace, ACCOUNT)) = account.and_then(|account| account.split_once(':')) else {
        return false;
    };
    let group = format!("system:serviceaccounts:{namespace}");
    namespace.ends_with("-join") && groups.contains(&group.as_str())
}

impl KubernetesExecutor {
    /// Token for the machine of a Secret: the one that is there while it lasts, else a new one.
    pub(super) async fn account_token(&self, secret: &Secret) -> Result<TokenSecret, Failure> {
        let now = Timestamp::now();
        let mut known = credentials(secret);
        known.retain(|one| one.until + LATE > now);
        let last = known.last().map(|one| one.until);
        let present = join::token_in(secret).filter(|_| last.is_some_and(|it| it > now + LEFT_MIN));
        let token = match present {
            Some(token) => token,
            None => {
                let (token, credential) = self.new_account_token(secret).await?;
                known.push(credential);
                token
            }
        };
        let surplus = known.len().saturating_sub(KEPT_MAX);
        Ok(TokenSecret {
            token,
            credentials: Some(written(&known[surplus..])),
        })
    }

    async fn new_account_token(
        &self,
        secret: &Secret,
    ) -> Result<(Zeroizing<String>, Credential), Failure> {
        let namespace = join::namespace(&self.settings.namespace);
        let account = (namespace.as_str(), ACCOUNT);
        let given = self.bound_token(account, secret, LIFE_S, UNUSABLE).await?;
        let token = Zeroizing::new(given.token);
        let id = credential_id(&token).ok_or_else(|| {
            let why = "has no id (jti), so no request could be held to it";
            let message = format!("a token of ServiceAccount {namespace}/{ACCOUNT} {why}");
            Failure::transient(UNUSABLE, message)
        })?;
        let until = given.expiration_timestamp.0;
        Ok((token, Credential { id, until }))
    }

    /// Ids of the tokens that were made for the machine with this UID, late requests' included.
    pub(super) async fn credentials_of(&self, uid: &str) -> Result<Vec<String>, Failure> {
        let now = Timestamp::now();
        let secret = self.join_secret(uid).await?;
        let made = secret.as_ref().map(credentials).unwrap_or_default();
        let usable = made.into_iter().filter(|one| one.until + LATE > now);
        Ok(usable.map(|one| one.id).collect())
    }
}

/// Id of a token, as requests carry it. The API server wrote the token, so that nothing of it is verified here.
fn credential_id(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        jti: String,
    }
    let claims = token.split('.').nth(1)?;
    let claims = Zeroizing::new(URL_SAFE_NO_PAD.decode(claims).ok()?);
    let Claims { jti } = serde_json::from_slice(&claims).ok()?;
    (!jti.is_empty()).then(|| format!("JTI={jti}"))
}

/// The ids in a Secret, oldest first: a line each, with the token's end. A line that cannot be read counts for nothing.
fn credentials(secret: &Secret) -> Vec<Credential> {
    let data = secret.data.as_ref().and_then(|data| data.get(CREDENTIALS));
    let text = data.and_then(|ByteString(bytes)| std::str::from_utf8(bytes).ok());
    let lines = text.unwrap_or_default().lines();
    lines
        .filter_map(|line| {
            let (id, until) = line.split_once(' ')?;
            Some(Credential {
                id: id.to_owned(),
                until: until.parse().ok()?,
            })
        })
        .collect()
}

fn written(all: &[Credential]) -> String {
    all.iter().fold(String::new(), |mut text, one| {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{} {}", one.id, one.until);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_the_id_of_its_claims() {
        let token = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        let id = |claims: &str| credential_id(&token(claims));
        assert_eq!(id(r#"{"jti":"a-1","sub":"s"}"#), Some("JTI=a-1".into()));
        for none in ["{}", r#"{"jti":""}"#, r#"{"jti":7}"#, "no JSON"] {
            assert_eq!(id(none), None, "{none}");
        }
        for none in ["", "abcdef.0123456789abcdef", "a.!.b"] {
            assert_eq!(credential_id(none), None, "{none}");
        }
    }

    #[test]
    fn ids_are_read_as_they_were_written() {
        let until = |text: &str| text.parse().expect("a time");
        let all = [
            ("JTI=a", "2026-11-27T10:00:00Z"),
            ("JTI=b", "2026-11-27T10:30:00Z"),
        ];
        let all = all.map(|(id, end)| Credential {
            id: id.into(),
            until: until(end),
        });
        let secret = |text: &str| Secret {
            data: Some([(CREDENTIALS.to_owned(), ByteString(text.into()))].into()),
            ..Secret::default()
        };
        assert_eq!(credentials(&secret(&written(&all))), all);
        assert_eq!(credentials(&Secret::default()), []);
        let torn = "JTI=a\nJTI=b tomorrow\nJTI=c 2026-11-27T10:00:00Z";
        let found = credentials(&secret(torn));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].id, "JTI=c");
    }

    #[test]
    fn only_an_account_of_dormers_name_may_hold_such_a_token() {
        let (name, group) = user("dormer");
        assert!(may_hold(&name, &[&group]));
        for (name, groups) in [
            (name.as_str(), vec![]),
            (name.as_str(), vec!["system:serviceaccounts:other-join"]),
            (
                "system:serviceaccount:dormer-join:default",
                vec![group.as_str()],
            ),
            (
                "system:serviceaccount:dormer:dormer-bootstrapper",
                vec!["system:serviceaccounts:dormer"],
            ),
            ("dormer-bootstrapper", vec![group.as_str()]),
        ] {
            assert!(!may_hold(name, &groups), "{name} {groups:?}");
        }
    }
}
