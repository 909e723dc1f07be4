//! Bootstrap token of a machine: created by the approver when its host is configured, extended while it joins, then
//! deleted. A user with such a token has the token's name, so a kubelet's first request is attributed exactly
//! (`csr.rs`). The token's id follows from the machine's UID and dormer's namespace: every approver, and every attempt,
//! finds the same Secret. A token that is not deleted expires, and the cluster's token cleaner deletes it.

use super::{
    Duty, KubernetesExecutor, Tokens,
    api::{call, call_if_there},
    error::CONFLICT,
    keys,
};
use dormer_proto::{machine::MachineRef, message::Failure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};
use rand::{TryRng, rngs::SysRng};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Group of users with a token of dormer's, besides `system:bootstrappers`.
pub const GROUP: &str = "system:bootstrappers:dormer";
/// Namespace in which the API server reads tokens, and the type of their Secrets.
const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// Lifetime of a token from its creation or extension: twice a bring-up with its reboots.
const LIFE: SignedDuration = SignedDuration::from_hours(2);
/// A token with less remaining lifetime is extended before a host gets it. The API server's clock, which decides, may
/// be ahead of ours by that much.
const LEFT_MIN: SignedDuration = SignedDuration::from_hours(1);
/// Lengths of a token's two halves, in characters.
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// Characters of both halves.
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Number of ids that a machine may have, in case Secrets of others already have the first ones' names.
const IDS_MAX: u32 = 4;
/// Most restarts after another approver created or changed the Secret.
const ROUNDS_MAX: u32 = 4;

/// The `nth` id that a machine's token may have. Not a secret: it is part of a user's name.
#[must_use]
pub fn id(home: &str, uid: &str, nth: u32) -> String {
    let sum = Sha256::digest(format!("bootstrap token\n{home}\n{uid}\n{nth}"));
    sum.iter()
        .take(ID_LENGTH)
        .map(|byte| character(usize::from(*byte)))
        .collect()
}

/// User name of the holder of the token with this id.
#[must_use]
pub fn user(id: &str) -> String {
    format!("system:bootstrap:{id}")
}

/// User names that the holder of a machine's token may have.
pub(super) fn users(home: &str, uid: &str) -> impl Iterator<Item = String> {
    (0..IDS_MAX).map(move |nth| user(&id(home, uid, nth)))
}

fn character(number: usize) -> char {
    char::from(ALPHABET[number % ALPHABET.len()])
}

/// New secret half, from the operating system's random source.
fn random_secret() -> Result<Zeroizing<String>, Failure> {
    // Of 256 values 252 (7 × 36) are used, so that every character is equally likely.
    const EVEN: u8 = 252;
    let mut text = Zeroizing::new(String::with_capacity(SECRET_LENGTH));
    while text.len() < SECRET_LENGTH {
        let mut bytes = Zeroizing::new([0_u8; SECRET_LENGTH]);
        SysRng
            .try_fill_bytes(bytes.as_mut_slice())
            .map_err(|error| {
                Failure::transient(
                    "BootstrapUnusable",
                    format!("the system has no chance: {error}"),
                )
            })?;
        let fit = bytes.iter().filter(|byte| **byte < EVEN);
        let wanted = SECRET_LENGTH - text.len();
        text.extend(fit.take(wanted).map(|byte| character(usize::from(*byte))));
    }
    Ok(text)
}

impl KubernetesExecutor {
    /// Token of a machine: the present one while it is valid, else a new one.
    pub(super) async fn token_of(
        &self,
        machine: &MachineRef,
    ) -> Result<Zeroizing<String>, Failure> {
        for _ in 1..ROUNDS_MAX {
            match self.token_once(machine).await {
                Err(failure) if failure.code == CONFLICT => {}
                done => return done,
            }
        }
        self.token_once(machine).await
    }

    async fn token_once(&self, machine: &MachineRef) -> Result<Zeroizing<String>, Failure> {
        let (id, found) = self.token_secret(&machine.uid).await?;
        let now = Timestamp::now();
        let lasting = found.as_ref().and_then(|secret| lasting(secret, &id, now));
        if let Some((half, until)) = &lasting
            && until.duration_since(now) > LEFT_MIN
        {
            return Ok(whole(&id, half));
        }
        // An extended token keeps its secret: the host may have it already.
        let half = match lasting {
            Some((half, _)) => half,
            None => random_secret()?,
        };
        let what = what(&id);
        let made = self.secret(machine, &id, &half, now, found.as_ref());
        let params = PostParams::default();
        let api = self.tokens();
        match found {
            Some(_) => {
                call(
                    "update",
                    &what,
                    api.replace(&made.name_any(), &params, &made),
                )
                .await?
            }
            None => call("create", &what, api.create(&params, &made)).await?,
        };
        Ok(whole(&id, &half))
    }

    /// Deletes a machine's token: it is a node now, or gone.
    pub(super) async fn forget_token(&self, machine: &MachineRef) {
        match (self.duty, self.settings.tokens) {
            // A token of an account ends with the Secret that it is bound to.
            (Duty::Worker, _) | (_, Tokens::Account) => self.end_join(machine).await,
            (Duty::Both | Duty::Approver, _) => self.revoke_token(machine).await,
        }
    }

    /// Takes a machine's token away. One that cannot be taken ends by itself, so that fails nothing.
    async fn revoke_token(&self, machine: &MachineRef) {
        if self.settings.tokens != Tokens::Bootstrap {
            return;
        }
        if let Err(failure) = self.forget_once(machine).await {
            let machine = &machine.name;
            let why = failure.message;
            tracing::warn!(
                machine,
                why,
                "its bootstrap token stays until it ends by itself"
            );
        }
    }

    pub(super) async fn forget_once(&self, machine: &MachineRef) -> Result<(), Failure> {
        let (id, Some(found)) = self.token_secret(&machine.uid).await? else {
            return Ok(());
        };
        let preconditions = Preconditions {
            uid: found.uid(),
            resource_version: found.resource_version(),
        };
        let params = DeleteParams::default().preconditions(preconditions);
        let api = self.tokens();
        call_if_there("delete", &what(&id), api.delete(&found.name_any(), &params))
            .await
            .map(drop)
    }

    /// User name of the token of the machine with this UID.
    pub(super) async fn token_user(&self, uid: &str) -> Result<String, Failure> {
        let (id, _) = self.token_secret(uid).await?;
        Ok(user(&id))
    }

    /// The id of a machine's token, and its Secret where there is one. A Secret of that name that is not this
    /// machine's is left alone, and the next id is the machine's.
    async fn token_secret(&self, uid: &str) -> Result<(String, Option<Secret>), Failure> {
        let api = self.tokens();
        let home = &self.settings.namespace;
        let mut free = None;
        for nth in 0..IDS_MAX {
            let id = id(home, uid, nth);
            let found = call_if_there("get", &what(&id), api.get(&name(&id))).await?;
            match found {
                Some(secret) if self.is_of(&secret, uid) => return Ok((id, Some(secret))),
                // A token with a later id may have been created while another machine's token had this name.
                None if free.is_none() => free = Some(id),
                _ => {}
            }
        }
        free.map(|id| (id, None)).ok_or_else(|| {
            let first = name(&id(home, uid, 0));
            let message = format!(
                "{IDS_MAX} Secrets in {NAMESPACE} have the names that this machine's bootstrap token could have, \
                 {first} among them, and none is dormer's"
            );
            Failure::transient("BootstrapUnusable", message)
        })
    }

    fn is_of(&self, secret: &Secret, uid: &str) -> bool {
        let labels = secret.labels();
        labels_of(&self.settings.namespace, uid)
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    }

    fn tokens(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Desired Secret, with the resourceVersion of the one that was found.
    fn secret(
        &self,
        machine: &MachineRef,
        id: &str,
        half: &str,
        now: Timestamp,
        found: Option<&Secret>,
    ) -> Secret {
        let MachineRef {
            namespace,
            name: machine_name,
            uid,
            ..
        } = machine;
        // Whole seconds, as Kubernetes writes times.
        let until = Timestamp::from_second((now + LIFE).as_second()).unwrap_or(now);
        let description =
            format!("dormer's, for the kubelet of Machine {namespace}/{machine_name}");
        let data = [
            ("token-id", id),
            ("token-secret", half),
            ("expiration", &until.to_string()),
            ("usage-bootstrap-authentication", "true"),
            ("usage-bootstrap-signing", "false"),
            ("auth-extra-groups", GROUP),
            ("description", &description),
        ];
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let metadata = ObjectMeta {
            name: Some(name(id)),
            namespace: Some(NAMESPACE.into()),
            labels: Some(labels_of(&self.settings.namespace, uid)),
            uid: found.and_then(ResourceExt::uid),
            resource_version: found.and_then(ResourceExt::resource_version),
            ..ObjectMeta::default()
        };
        let data = data
            .into_iter()
            .map(|(key, text)| (key.to_owned(), bytes(text)))
            .collect();
        Secret {
            metadata,
            type_: Some(TYPE.into()),
            data: Some(data),
            ..Secret::default()
        }
    }
}

fn name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

fn what(id: &str) -> String {
    format!("Secret {NAMESPACE}/{}", name(id))
}

fn whole(id: &str, half: &str) -> Zeroizing<String> {
    Zeroizing::new(format!("{id}.{half}"))
}

/// Labels of a machine's token, which distinguish it from others of its name.
pub(super) fn labels_of(home: &str, uid: &str) -> BTreeMap<String, String> {
    let all = [keys::OURS, (keys::INSTANCE, home), (keys::MACHINE_UID, uid)];
    all.into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Secret half of a valid token, and its expiry; `None` if it has expired, or was edited so that it differs from what
/// dormer writes.
fn lasting(secret: &Secret, id: &str, now: Timestamp) -> Option<(Zeroizing<String>, Timestamp)> {
    let data = secret.data.as_ref()?;
    let field = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let until: Timestamp = field("expiration")?.parse().ok()?;
    let half = Zeroizing::new(field("token-secret")?);
    let sound = field("token-id")? == id
        && half.len() == SECRET_LENGTH
        && half.bytes().all(|byte| ALPHABET.contains(&byte))
        && field("usage-bootstrap-authentication")? == "true"
        && field("auth-extra-groups")? == GROUP
        && secret.type_.as_deref() == Some(TYPE);
    (sound && until > now).then_some((half, until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_follows_from_machine_and_dormer_and_from_nothing_else() {
        let first = id("dormer", "uid-1", 0);
        assert_eq!(first, id("dormer", "uid-1", 0));
        assert_eq!(first, "nvk9bj", "what a release made, the next one finds");
        for other in [
            id("dormer", "uid-1", 1),
            id("dormer", "uid-2", 0),
            id("other", "uid-1", 0),
        ] {
            assert_ne!(first, other);
            assert_eq!(other.len(), ID_LENGTH);
            assert!(
                other.bytes().all(|byte| ALPHABET.contains(&byte)),
                "{other}"
            );
        }
    }

    #[test]
    fn a_secret_half_is_never_the_same() {
        let one = random_secret().expect("chance");
        let other = random_secret().expect("chance");
        assert_ne!(one, other);
        for half in [one, other] {
            assert!(half.len() == SECRET_LENGTH && half.bytes().all(|b| ALPHABET.contains(&b)));
        }
    }
}
