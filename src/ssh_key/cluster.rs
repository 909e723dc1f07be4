//! What the cluster has of a rotation: the Secret with the keys, the user data of new machines, and the machines.

use crate::cluster_access::{failed, silent};
use dormer_client::Failure;
use dormer_run::{PREVIOUS_KEY, SECRET_KEY};
use dormer_workers::{
    ssh::{Dialer, Key, Limits, fingerprint},
    watcher::logins::{self, HostLogin},
};
use k8s_openapi::{
    ByteString,
    api::{
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
        },
        core::v1::Secret,
    },
};
use kube::{Api, Client, api::PostParams};
use std::{iter, time::Duration};
use tokio::time::timeout;

/// Time limit of one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Why there is no answer after that.
const SILENT: &str = "no answer within 30 s";
/// Status of an API server: the object was changed since it was read.
const CONFLICT: u16 = 409;
/// Namespace where machines of the Cluster API read their user data.
const CLUSTER_API: &str = "openshift-cluster-api";
/// Secret with the user data, and its key.
const USER_DATA: (&str, &str) = ("windows-user-data", "userData");

/// Cluster, and how to reach its hosts.
pub(super) struct KeyedCluster {
    pub(super) client: Client,
    /// dormer's namespace.
    pub(super) namespace: String,
    pub(super) secret: String,
    /// Namespace where Machines read their user data.
    pub(super) machine_namespace: String,
    pub(super) dialer: Dialer,
    pub(super) limits: Limits,
}

/// A private key with its text and its public half.
#[derive(Clone)]
pub(super) struct KeyText {
    text: String,
    pub(super) key: Key,
    pub(super) public: String,
}

impl KeyText {
    /// Reads a key; `from` says where it is.
    ///
    /// # Errors
    /// It is no key that dormer uses.
    pub(super) fn of(from: &str, text: String) -> Result<Self, Failure> {
        let failed = |error| Failure::refused(format!("{from}: {error}; nothing was changed"), "");
        let key = Key::read(&text).map_err(failed)?;
        let public = key.public_line().map_err(failed)?;
        Ok(Self { text, key, public })
    }

    /// The private key's own text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Its kind and fingerprint.
    pub(super) fn fingerprint(&self) -> String {
        fingerprint(&self.public)
    }

    fn base64(&self) -> &str {
        self.public.split(' ').nth(1).unwrap_or_default()
    }
}

/// The keys in the Secret.
pub(super) struct Keys {
    secret: Secret,
    pub(super) present: KeyText,
    pub(super) previous: Option<KeyText>,
}

/// The answer, within the time limit.
pub(super) async fn within<T>(
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match timeout(ANSWER_MAX, asked).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(silent(SILENT)),
    }
}

impl Keys {
    /// Whether dormer has this key.
    pub(super) fn have(&self, key: &KeyText) -> bool {
        let mut all = iter::once(&self.present).chain(&self.previous);
        all.any(|one| one.public == key.public)
    }

    /// Whether `other` are the same keys.
    pub(super) fn are(&self, other: &Self) -> bool {
        let previous = |keys: &Self| keys.previous.as_ref().map(|key| key.public.clone());
        self.present.public == other.present.public && previous(self) == previous(other)
    }

    /// The key of a login: the present one, or else the previous one.
    pub(super) fn login(&self) -> Key {
        let present = self.present.key.clone();
        match &self.previous {
            Some(previous) => present.with_previous(previous.key.clone()),
            None => present,
        }
    }
}

impl KeyedCluster {
    /// Name of the Secret, with its namespace.
    pub(super) fn whole(&self) -> String {
        format!("{}/{}", self.namespace, self.secret)
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Reads the keys.
    ///
    /// # Errors
    /// There is no usable one.
    pub(super) async fn keys(&self) -> Result<Keys, Failure> {
        let whole = self.whole();
        let found = within(self.secrets(&self.namespace).get_opt(&self.secret)).await?;
        let secret = found.ok_or_else(|| Failure::Absent {
            error: format!("there is no Secret {whole}"),
            what_to_do: "name dormer's namespace with -n, and its Secret with --secret".into(),
        })?;
        let read = |entry: &str| -> Result<Option<KeyText>, Failure> {
            let bytes = secret.data.as_ref().and_then(|data| data.get(entry));
            let from = format!("{entry} in the Secret {whole}");
            let text = bytes.map(|bytes| String::from_utf8(bytes.0.clone()));
            match text {
                None => Ok(None),
                Some(Ok(text)) => KeyText::of(&from, text).map(Some),
                Some(Err(_)) => Err(Failure::refused(format!("{from}: it is not text"), "")),
            }
        };
        let present = read(SECRET_KEY)?.ok_or_else(|| {
            Failure::refused(format!("the Secret {whole} has no {SECRET_KEY}"), "")
        })?;
        // Another program that writes the present key alone may have put the previous one back: there is one key then, and
        // a command that took it off the hosts would lock dormer out.
        let previous = read(PREVIOUS_KEY)?.filter(|it| it.public != present.public);
        if secret.immutable == Some(true) {
            return Err(Failure::refused(
                format!("the Secret {whole} is immutable; nothing was changed"),
                "make a Secret of the same content that is not",
            ));
        }
        Ok(Keys {
            secret,
            present,
            previous,
        })
    }

    /// Checks before any host is changed that the account may write the Secret afterwards.
    ///
    /// # Errors
    /// The account may not write it, or the review failed.
    pub(super) async fn may_write(&self) -> Result<(), Failure> {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    resource: Some("secrets".into()),
                    name: Some(self.secret.clone()),
                    namespace: Some(self.namespace.clone()),
                    verb: Some("update".into()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = within(api.create(&PostParams::default(), &review)).await?;
        if answer.status.is_some_and(|it| it.allowed) {
            return Ok(());
        }
        Err(Failure::refused(
            format!(
                "this account may not update the Secret {}; nothing was changed",
                self.whole()
            ),
            "use an account of yours that may: dormer's own accounts only read it",
        ))
    }

    /// The Windows machines.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(super) async fn hosts(&self) -> Result<Vec<HostLogin>, Failure> {
        let read = timeout(ANSWER_MAX, logins::read(&self.client, &self.namespace)).await;
        let read = read.map_err(|_| silent(SILENT))?;
        read.map_err(|why| {
            Failure::refused(
                format!("the Windows machines cannot be listed: {why}"),
                "kubectl auth can-i list machines.machine.openshift.io -A shows what the account may read",
            )
        })
    }

    /// Checks that machines which are made from now on get the new key, and not the old one. `false`: there is no user data
    /// of dormer's that could be checked.
    ///
    /// # Errors
    /// They would not get the new key, or would get the old one.
    pub(super) async fn user_data_follows(
        &self,
        old: &KeyText,
        new: &KeyText,
    ) -> Result<bool, Failure> {
        let (name, entry) = USER_DATA;
        let mut checked = false;
        for namespace in [self.machine_namespace.as_str(), CLUSTER_API] {
            let Some(found) = within(self.secrets(namespace).get_opt(name)).await? else {
                continue;
            };
            let data = found.data.unwrap_or_default();
            let text = data.get(entry).map(|bytes| &bytes.0[..]);
            let text = String::from_utf8_lossy(text.unwrap_or_default());
            if text.contains(new.base64()) && !text.contains(old.base64()) {
                checked = true;
                continue;
            }
            return Err(Failure::refused(
                format!(
                    "user data of new machines (Secret {namespace}/{name}) does not have the new key alone yet; nothing was \
                     changed"
                ),
                "dormer writes it within seconds, at the latest after five minutes, while its worker runs: try again, and look at the worker's log if it stays",
            ));
        }
        Ok(checked)
    }

    /// Writes both keys. `false`: another client changed the Secret meanwhile, and nothing was written.
    ///
    /// # Errors
    /// The API server refuses, or does not answer.
    pub(super) async fn replace(
        &self,
        keys: &Keys,
        present: &KeyText,
        previous: Option<&KeyText>,
    ) -> Result<bool, Failure> {
        let mut secret = keys.secret.clone();
        secret.metadata.managed_fields = None;
        let data = secret.data.get_or_insert_default();
        let bytes = |key: &KeyText| ByteString(key.text.clone().into_bytes());
        data.insert(SECRET_KEY.into(), bytes(present));
        match previous {
            Some(previous) => data.insert(PREVIOUS_KEY.into(), bytes(previous)),
            None => data.remove(PREVIOUS_KEY),
        };
        // The resource version that was read goes with it.
        let params = PostParams::default();
        let secrets = self.secrets(&self.namespace);
        let replaced = timeout(ANSWER_MAX, secrets.replace(&self.secret, &params, &secret)).await;
        let failure = match replaced {
            Ok(Ok(_)) => return Ok(true),
            Ok(Err(kube::Error::Api(status))) if status.code == CONFLICT => return Ok(false),
            Ok(Err(error)) => failed(error),
            Err(_) => silent(SILENT),
        };
        Err(Failure::refused(
            format!(
                "the hosts were changed, and writing the Secret {} failed: {failure}",
                self.whole()
            ),
            "run the same command again to continue",
        ))
    }
}
