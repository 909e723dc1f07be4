//! User data of new Windows machines: derived from the private key before any machine exists, and repaired when it is
//! edited.

use super::key::{KeySource, POLL_EVERY};
use dormer_profile::userdata::{user_data, with_other_key};
use dormer_workers::kubernetes::keys::OURS;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, PostParams},
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{sleep, timeout};

/// Name of the Secret, as MachineSets for Windows refer to it.
const NAME: &str = "windows-user-data";
/// Key of the user data in the Secret.
const DATA: &str = "userData";
/// Namespace where Cluster API's machines read it, on clusters that have them.
const CLUSTER_API: &str = "openshift-cluster-api";
/// Time limit of one call.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Task that maintains the Secrets.
pub(super) struct Keeper {
    client: Client,
    source: KeySource,
    /// Namespace of the Machines.
    machines: String,
    /// Last problem that was logged.
    trouble: Option<String>,
}

impl Keeper {
    /// Maintains them from the key at `source`: in the namespace `machines`, and in Cluster API's if that exists.
    pub(super) fn new(client: Client, source: KeySource, machines: Option<String>) -> Self {
        let machines = machines.unwrap_or_else(|| "openshift-machine-api".into());
        Self {
            client,
            source,
            machines,
            trouble: None,
        }
    }

    /// Checks the Secrets until cancelled. A problem is logged once, and the check is repeated.
    pub(super) async fn run(mut self) -> std::convert::Infallible {
        loop {
            let trouble = self.once().await.err();
            if let Some(trouble) = &trouble
                && self.trouble.as_ref() != Some(trouble)
            {
                tracing::warn!("user data for new machines: {trouble}");
            }
            self.trouble = trouble;
            sleep(POLL_EVERY).await;
        }
    }

    /// Writes both Secrets. Without a key it does nothing: the key's absence is reported elsewhere.
    async fn once(&self) -> Result<(), String> {
        let Some(platform) = self.platform().await? else {
            return Ok(());
        };
        let Ok(key) = self.source.key().await else {
            return Ok(());
        };
        let public = key.public_line().map_err(|error| error.to_string())?;
        let previous = key.previous().and_then(|key| key.public_line().ok());
        let text = user_data(&public, &platform).map_err(|error| error.to_string())?;
        let wanted = UserData {
            public: &public,
            previous: previous.as_deref(),
            text: &text,
        };
        self.keep(&self.machines, wanted).await?;
        // Most clusters have no such namespace, or dormer has no rights in it.
        if let Err(why) = self.keep(CLUSTER_API, wanted).await {
            tracing::debug!("user data in {CLUSTER_API}: {why}");
        }
        Ok(())
    }

    /// OpenShift's platform in lower case. `None`: this is not OpenShift; only its machines use such a Secret.
    async fn platform(&self) -> Result<Option<String>, String> {
        let gvk = GroupVersionKind::gvk("config.openshift.io", "v1", "Infrastructure");
        let api: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::from_gvk(&gvk));
        let found = within(api.get_opt("cluster")).await?;
        let platform = found
            .as_ref()
            .and_then(|one| one.data["status"]["platform"].as_str());
        Ok(platform.map(str::to_ascii_lowercase))
    }

    /// Writes one Secret. A Secret of another owner stays unchanged while it permits dormer's key. During a rotation it
    /// gets the new key in place of the previous one and stays that owner's: WMCO, if it comes back, deletes every Machine
    /// for user data that it would not write itself (docs/field-notes.md, WMCO beside dormer).
    async fn keep(&self, namespace: &str, wanted: UserData<'_>) -> Result<(), String> {
        let UserData { public, text, .. } = wanted;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let Some(mut found) = within(api.get_opt(NAME)).await? else {
            let metadata = ObjectMeta {
                name: Some(NAME.into()),
                ..ObjectMeta::default()
            };
            let fresh = with(
                Secret {
                    metadata,
                    ..Secret::default()
                },
                text,
            );
            let made = within(api.create(&PostParams::default(), &fresh)).await;
            return made.map(|_| tracing::info!(namespace, "made the Secret {NAME}"));
        };
        let there = found
            .data
            .as_ref()
            .and_then(|data| data.get(DATA))
            .map(|data| &data.0[..]);
        let there = String::from_utf8_lossy(there.unwrap_or_default());
        let ours = found.labels().get(OURS.0).is_some_and(|by| by == OURS.1);
        if there == text || (!ours && there.contains(public)) {
            return Ok(());
        }
        let followed = wanted
            .previous
            .filter(|_| !ours)
            .and_then(|previous| with_other_key(&there, previous, public));
        found.metadata.managed_fields = None;
        // Written under the resource version that was read. After a conflict the Secret is read again.
        let mended = match followed {
            Some(followed) => holding(found, &followed),
            None => with(found, text),
        };
        let mended = within(api.replace(NAME, &PostParams::default(), &mended)).await;
        mended.map(|_| {
            tracing::info!(
                namespace,
                "repaired the Secret {NAME}: it did not permit dormer's key, or was edited"
            );
        })
    }
}

/// What new machines should get.
#[derive(Clone, Copy)]
struct UserData<'a> {
    /// dormer's public key.
    public: &'a str,
    /// The public key of before a rotation.
    previous: Option<&'a str>,
    /// dormer's own user data.
    text: &'a str,
}

fn with(mut secret: Secret, text: &str) -> Secret {
    secret.labels_mut().insert(OURS.0.into(), OURS.1.into());
    holding(secret, text)
}

fn holding(mut secret: Secret, text: &str) -> Secret {
    secret.data = Some(BTreeMap::from([(
        DATA.into(),
        ByteString(text.as_bytes().to_vec()),
    )]));
    secret
}

async fn within<T>(doing: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(ANSWER_MAX, doing).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("the API server did not answer within 10 s".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::KeyLocation, key::tests::world};
    use dormer_fleet::{World, WorldConfig};
    use kube::api::{DeleteParams, Patch, PatchParams};
    use serde_json::json;

    const HOME: &str = "openshift-windows-machine-config-operator";
    const MACHINES: &str = "openshift-machine-api";

    async fn text(secrets: &Api<Secret>) -> String {
        let data = secrets
            .get(NAME)
            .await
            .expect("the Secret")
            .data
            .expect("data");
        String::from_utf8(data[DATA].0.clone()).expect("text")
    }

    fn keeper(client: &Client) -> Keeper {
        let source = KeySource {
            client: client.clone(),
            namespace: HOME.to_owned(),
            location: KeyLocation::Secret("cloud-private-key".into()),
            poll_every: POLL_EVERY,
        };
        Keeper::new(client.clone(), source, None)
    }

    /// User data of another owner stays theirs when the key is rotated: only the key in it is another.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn somebody_elses_user_data_follows_a_rotation_and_stays_theirs() {
        let (world, client) = world().await;
        let other = WorldConfig {
            seed: 2,
            ..WorldConfig::in_memory(0)
        };
        let other = World::start(other).await.expect("another world");
        let new = &other.ssh_key;
        let keys = json!({"stringData": {
            "private-key.pem": new.private_pem, "previous-private-key.pem": world.ssh_key.private_pem}});
        let secrets: Api<Secret> = Api::namespaced(client.clone(), HOME);
        let rotated = secrets
            .patch(
                "cloud-private-key",
                &PatchParams::default(),
                &Patch::Merge(keys),
            )
            .await;
        rotated.expect("rotated");
        let secrets: Api<Secret> = Api::namespaced(client.clone(), MACHINES);
        let theirs = text(&secrets).await;
        keeper(&client).once().await.expect("kept");
        let line = |public: &str| {
            let words: Vec<&str> = public.split_whitespace().take(2).collect();
            words.join(" ")
        };
        let wanted = theirs.replace(&line(&world.ssh_key.public_line), &line(&new.public_line));
        assert_ne!(wanted, theirs);
        assert_eq!(text(&secrets).await, wanted);
        let labels = secrets.get(NAME).await.expect("the Secret").metadata.labels;
        assert!(labels.unwrap_or_default().is_empty(), "not dormer's");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn user_data_is_made_mended_and_left_alone_where_somebody_elses_lets_us_in() {
        let (world, client) = world().await;
        let keeper = keeper(&client);
        let secrets: Api<Secret> = Api::namespaced(client, MACHINES);
        let theirs = text(&secrets).await;
        keeper.once().await.expect("looked");
        assert_eq!(text(&secrets).await, theirs, "it lets us in");

        secrets
            .delete(NAME, &DeleteParams::default())
            .await
            .expect("deleted");
        keeper.once().await.expect("made");
        let made = text(&secrets).await;
        let public = world
            .ssh_key
            .public_line
            .split_whitespace()
            .take(2)
            .collect::<Vec<_>>();
        assert!(
            made.contains(&public.join(" ")) && made.contains("EC2Launch"),
            "AWS: {made}"
        );

        for edited in ["a shorter text", &format!("{made}\n# and more")] {
            let edit = Patch::Merge(json!({"stringData": {DATA: edited}}));
            secrets
                .patch(NAME, &PatchParams::default(), &edit)
                .await
                .expect("edited");
            keeper.once().await.expect("mended");
            assert_eq!(text(&secrets).await, made);
        }
    }
}
