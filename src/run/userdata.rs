//! User data of new Windows machines: derived from the private key before any machine exists, and repaired when it is
//! edited.

use super::key::{KeySource, POLL_EVERY, WATCHED_EVERY};
use dormer_profile::userdata::{user_data, with_other_key};
use dormer_workers::{kubernetes::keys::OURS, watcher::SecretChanges};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, PostParams},
};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Name of the Secret, as MachineSets for Windows refer to it.
const NAME: &str = "windows-user-data";
/// Key of the user data in the Secret, as the Machine API's controllers read it.
const DATA: &str = "userData";
/// Key as Cluster API's providers read it, and no other (docs/field-notes.md, Machines of OpenShift).
const VALUE: &str = "value";
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
    /// Shortest time between a write and the next reading: another program may write back what it was before.
    rest_after_write: Duration,
}

/// What one round did.
#[derive(Debug, Default)]
struct Kept {
    /// Namespaces in which the Secret is as it should be.
    namespaces: Vec<String>,
    /// Whether one of them was written.
    wrote: bool,
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
            rest_after_write: POLL_EVERY,
        }
    }

    /// Checks the Secrets until cancelled. A problem is logged once, and the check is repeated.
    pub(super) async fn run(mut self) -> std::convert::Infallible {
        let mut changes: Option<SecretChanges> = None;
        let mut watched = 0;
        loop {
            let kept = self.once().await;
            let trouble = kept.as_ref().err();
            if let Some(trouble) = trouble
                && self.trouble.as_ref() != Some(trouble)
            {
                tracing::warn!("user data for new machines: {trouble}");
            }
            self.trouble = trouble.cloned();
            let Kept { namespaces, wrote } = kept.unwrap_or_default();
            // A namespace, or the rights in it, may come later.
            if namespaces.len() > watched {
                changes = Some(self.changes(&namespaces));
                watched = namespaces.len();
            }
            let often = self.source.poll_every;
            let all = !namespaces.is_empty() && namespaces.len() == watched;
            match &mut changes {
                _ if wrote => sleep(self.rest_after_write).await,
                Some(changes) if all && self.source.secret().is_some() => {
                    changes.wait(often, WATCHED_EVERY).await;
                }
                Some(changes) => changes.wait(often, often).await,
                None => sleep(often).await,
            }
        }
    }

    /// Changes of the key, and of the user data in the namespaces where it is kept. In others dormer may not watch it.
    fn changes(&self, kept: &[String]) -> SecretChanges {
        let kept = kept.iter().map(|namespace| (namespace.as_str(), NAME));
        let secrets: Vec<(&str, &str)> = kept.chain(self.source.secret()).collect();
        SecretChanges::of(&self.client, &secrets)
    }

    /// Writes both Secrets where that is needed. Without a key it does nothing: the key's absence is reported elsewhere.
    async fn once(&self) -> Result<Kept, String> {
        let Some(platform) = self.platform().await? else {
            return Ok(Kept::default());
        };
        let Ok(key) = self.source.key().await else {
            return Ok(Kept::default());
        };
        let public = key.public_line().map_err(|error| error.to_string())?;
        let previous = key.previous().and_then(|key| key.public_line().ok());
        let text = user_data(&public, &platform).map_err(|error| error.to_string())?;
        let wanted = UserData {
            public: &public,
            previous: previous.as_deref(),
            text: &text,
        };
        let mut kept = Kept {
            wrote: self.keep(&self.machines, wanted).await?,
            namespaces: vec![self.machines.clone()],
        };
        // Most clusters have no such namespace, or dormer has no rights in it.
        match self.keep(CLUSTER_API, wanted).await {
            Ok(wrote) => {
                kept.wrote |= wrote;
                kept.namespaces.push(CLUSTER_API.to_owned());
            }
            Err(why) => tracing::debug!("user data in {CLUSTER_API}: {why}"),
        }
        Ok(kept)
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
    /// for user data that it would not write itself (docs/field-notes.md, WMCO beside dormer). `true`: it was written.
    async fn keep(&self, namespace: &str, wanted: UserData<'_>) -> Result<bool, String> {
        let UserData { public, text, .. } = wanted;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let Some(mut found) = within(api.get_opt(NAME)).await? else {
            let metadata = ObjectMeta {
                name: Some(NAME.into()),
                ..ObjectMeta::default()
            };
            let empty = Secret {
                metadata,
                ..Secret::default()
            };
            let fresh = with(empty, namespace, text);
            let made = within(api.create(&PostParams::default(), &fresh)).await;
            made?;
            tracing::info!(namespace, "made the Secret {NAME}");
            return Ok(true);
        };
        let ours = found.labels().get(OURS.0).is_some_and(|by| by == OURS.1);
        let good = |it: &str| it == text || (!ours && it.contains(public));
        // Each key has to be good by itself: WMCO compares `userData` alone, and a person may have written only `value`, as
        // Cluster API documents it.
        let all = keys_in(namespace);
        let holds = |key: &&str| text_under(&found, key).is_some_and(|it| good(&it));
        if all.iter().all(holds) {
            return Ok(false);
        }
        let followed = |key: &&str| {
            let there = text_under(&found, key)?;
            if good(&there) {
                return Some(there);
            }
            let previous = wanted.previous.filter(|_| !ours)?;
            with_other_key(&there, previous, public)
        };
        let followed: Vec<Option<String>> = all.iter().map(followed).collect();
        let another = followed.iter().flatten().next().cloned();
        found.metadata.managed_fields = None;
        // Written under the resource version that was read. After a conflict the Secret is read again.
        let mended = match another {
            Some(another) => {
                let texts = followed.iter().map(|it| it.as_deref().unwrap_or(&another));
                holding(found, all.iter().zip(texts))
            }
            None => with(found, namespace, text),
        };
        within(api.replace(NAME, &PostParams::default(), &mended)).await?;
        tracing::info!(
            namespace,
            "repaired the Secret {NAME}: user data in it was missing, was edited, or did not permit dormer's key"
        );
        Ok(true)
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

fn with(mut secret: Secret, namespace: &str, text: &str) -> Secret {
    secret.labels_mut().insert(OURS.0.into(), OURS.1.into());
    holding(secret, keys_in(namespace).iter().map(|key| (key, text)))
}

/// Keys of the user data that this namespace's controllers read.
fn keys_in(namespace: &str) -> &'static [&'static str] {
    match namespace == CLUSTER_API {
        true => &[DATA, VALUE],
        false => &[DATA],
    }
}

/// The Secret with this user data under these keys. Other keys of it stay: providers read some (`format`,
/// `disableTemplating`).
fn holding<'a>(
    mut secret: Secret,
    texts: impl Iterator<Item = (&'a &'static str, &'a str)>,
) -> Secret {
    let entry = |(key, text): (&&str, &str)| ((*key).to_owned(), ByteString(text.into()));
    let data = secret.data.get_or_insert_default();
    data.extend(texts.map(entry));
    secret
}

fn text_under(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    Some(String::from_utf8_lossy(&bytes.0).into_owned())
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
    use axum::http;
    use dormer_fleet::{World, WorldConfig};
    use futures::TryStreamExt;
    use kube::{
        api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams},
        client::{Body, ClientBuilder},
    };
    use serde_json::json;
    use std::pin::pin;
    use tokio::sync::watch;
    use tower::util::MapRequestLayer;

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

    /// Public key without its comment.
    fn public_words(line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        words.join(" ")
    }

    /// Puts another key in the place of the world's, as a person does who rotates it. The new public key.
    async fn rotated(world: &World, client: &Client) -> String {
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
        public_words(&new.public_line)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_change_of_the_user_data_is_noticed_and_not_polled_for() {
        let (world, client) = world().await;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), MACHINES);
        let deleted = async || {
            let deleted = secrets.delete(NAME, &DeleteParams::default()).await;
            deleted.expect("deleted");
        };
        deleted().await;
        let (to, mut reads) = watch::channel(0);
        let mut keeper = keeper(&counting(&world, to).await);
        keeper.source.poll_every = Duration::from_secs(3_600);
        keeper.rest_after_write = Duration::ZERO;
        let keeping = tokio::spawn(keeper.run());
        // The first writes, the second follows the write, and the third the begin of the watches. After it only a change is a
        // reason to read.
        let third = reads.wait_for(|count| *count >= 3);
        drop(
            timeout(Duration::from_secs(60), third)
                .await
                .expect("three"),
        );
        let version = secrets.get_metadata(NAME).await.expect("made");
        let version = version.metadata.resource_version.expect("a version");
        let named = WatchParams::default().fields(&format!("metadata.name={NAME}"));
        let events = secrets.watch(&named, &version).await.expect("a watch");
        let mut events = pin!(events);
        deleted().await;
        let again = async {
            while let Some(event) = events.try_next().await.expect("an event") {
                if matches!(event, WatchEvent::Added(_)) {
                    return;
                }
            }
            panic!("the watch has ended");
        };
        let again = timeout(Duration::from_secs(60), again).await;
        again.expect("made again");
        keeping.abort();
    }

    /// A client of the world that counts the readings of the user data of Machines.
    async fn counting(world: &World, to: watch::Sender<u32>) -> Client {
        let file = serde_json::from_value(world.kubeconfig()).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await;
        let read = format!("/api/v1/namespaces/{MACHINES}/secrets/{NAME}");
        let count = move |request: http::Request<Body>| {
            if request.method() == http::Method::GET && request.uri().path() == read {
                to.send_modify(|count| *count += 1);
            }
            request
        };
        let builder = ClientBuilder::try_from(config.expect("a configuration"));
        let builder = builder.expect("a client");
        builder.with_layer(&MapRequestLayer::new(count)).build()
    }

    /// User data of another owner stays theirs when the key is rotated: only the key in it is another.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn somebody_elses_user_data_follows_a_rotation_and_stays_theirs() {
        let (world, client) = world().await;
        let new = rotated(&world, &client).await;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), MACHINES);
        let theirs = text(&secrets).await;
        keeper(&client).once().await.expect("kept");
        let wanted = theirs.replace(&public_words(&world.ssh_key.public_line), &new);
        assert_ne!(wanted, theirs);
        assert_eq!(text(&secrets).await, wanted);
        let labels = secrets.get(NAME).await.expect("the Secret").metadata.labels;
        assert!(labels.unwrap_or_default().is_empty(), "not dormer's");
    }

    /// Cluster API's providers read `value`; WMCO writes `userData` there and compares no other key.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn cluster_api_finds_the_user_data_under_its_own_key_also_in_a_secret_of_wmco() {
        let (_world, client) = world().await;
        let keeper = keeper(&client);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), CLUSTER_API);
        keeper.once().await.expect("made");
        let both = async || {
            let secret = secrets.get(NAME).await.expect("the Secret");
            (text_under(&secret, DATA), text_under(&secret, VALUE))
        };
        let made = both().await;
        assert!(made.0.is_some() && made.0 == made.1, "{made:?}");
        // As WMCO has it: its own text, under one key.
        let theirs = text(&Api::namespaced(client, MACHINES)).await;
        let change = json!({"metadata": {"labels": null}, "data": null,
            "stringData": {DATA: theirs}});
        let params = PatchParams::default();
        let as_wmco = Patch::Merge(change);
        let patched = secrets.patch(NAME, &params, &as_wmco).await;
        assert_eq!(text_under(&patched.expect("patched"), VALUE), None);
        keeper.once().await.expect("mended");
        assert_eq!(both().await, (Some(theirs.clone()), Some(theirs)));
        let secret = secrets.get(NAME).await.expect("the Secret");
        assert_eq!(secret.labels().get(OURS.0), None, "it stays theirs");
    }

    /// A person's Secret may hold the user data under `value` alone, as Cluster API documents it, and `format` beside it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_persons_user_data_under_value_alone_is_kept_and_its_other_keys_with_it() {
        let (world, client) = world().await;
        let keeper = keeper(&client);
        let permits = format!("a person's own script for {}", world.ssh_key.public_line);
        for (case, namespace, data, kept) in [
            (
                "it permits the key",
                CLUSTER_API,
                json!({VALUE: permits, "format": "cloud-config"}),
                Some(permits.as_str()),
            ),
            (
                "it does not",
                CLUSTER_API,
                json!({VALUE: "a script", "format": "cloud-config"}),
                None,
            ),
            (
                "the Machine API's",
                MACHINES,
                json!({DATA: "a script", "disableTemplating": "true"}),
                None,
            ),
        ] {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
            let _ = secrets.delete(NAME, &DeleteParams::default()).await;
            let theirs = json!({"metadata": {"name": NAME}, "stringData": data});
            let theirs = serde_json::from_value(theirs).expect("a Secret");
            let made = secrets.create(&PostParams::default(), &theirs).await;
            made.expect("created");
            keeper.once().await.expect("kept");
            let secret = secrets.get(NAME).await.expect("the Secret");
            let text = text_under(&secret, DATA).expect("user data");
            match kept {
                Some(kept) => assert_eq!(text, kept, "{case}"),
                None => assert!(text.contains("EC2Launch"), "{case}: dormer's own"),
            }
            let ours = secret.labels().contains_key(OURS.0);
            assert_eq!(ours, kept.is_none(), "{case}: whose it is");
            let other = data.as_object().expect("data").keys();
            for key in other.filter(|key| *key != DATA && *key != VALUE) {
                let before = data[key].as_str().map(str::to_owned);
                assert_eq!(text_under(&secret, key), before, "{case}: {key}");
            }
            if namespace == CLUSTER_API {
                assert_eq!(text_under(&secret, VALUE), Some(text), "{case}");
            }
            // They edit what they wrote, and not what dormer wrote beside it.
            if let Some(kept) = kept {
                let edited = format!("{kept}, in a second version");
                let edit = Patch::Merge(json!({"stringData": {VALUE: edited}}));
                let patched = secrets.patch(NAME, &PatchParams::default(), &edit).await;
                let version = patched.expect("edited").resource_version();
                keeper.once().await.expect("kept");
                let secret = secrets.get(NAME).await.expect("the Secret");
                assert_eq!(text_under(&secret, VALUE), Some(edited), "{case}");
                assert_eq!(secret.resource_version(), version, "{case}: not written");
            }
        }
    }

    /// Two texts of a person follow a rotation, each by itself.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_texts_of_a_persons_secret_follow_a_rotation_each_by_itself() {
        let (world, client) = world().await;
        let old = public_words(&world.ssh_key.public_line);
        let api: Api<Secret> = Api::namespaced(client.clone(), CLUSTER_API);
        let _ = api.delete(NAME, &DeleteParams::default()).await;
        let theirs = json!({"metadata": {"name": NAME},
            "stringData": {DATA: format!("one for {old}"), VALUE: format!("two for {old}")}});
        let theirs = serde_json::from_value(theirs).expect("a Secret");
        api.create(&PostParams::default(), &theirs)
            .await
            .expect("created");
        let new = rotated(&world, &client).await;
        keeper(&client).once().await.expect("kept");
        let secret = api.get(NAME).await.expect("the Secret");
        for (key, word) in [(DATA, "one"), (VALUE, "two")] {
            let text = text_under(&secret, key);
            assert_eq!(text, Some(format!("{word} for {new}")), "{key}");
        }
        assert_eq!(secret.labels().get(OURS.0), None, "it stays theirs");
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
