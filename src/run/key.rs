//! The private key for Windows hosts: read from its file or Secret, and looked at again while dormer runs.

use crate::config::Key as Place;
use dormer_proto::{machine::Outcome, message::Failure, work::Order};
use dormer_workers::{execute::Execute, progress::Progress, ssh::Key};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

/// The key's name in its Secret, as WMCO has it (wmco.md §2.3).
const SECRET_KEY: &str = "private-key.pem";
/// Longest key that is read, in bytes.
const KEY_BYTES_MAX: usize = 64 << 10;
/// How often a key that is there is looked at again, and one that is not.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(10));

/// Where the key is, with what is needed to read it.
#[derive(Clone)]
pub(crate) struct Source {
    /// The cluster, where the key is in a Secret.
    pub(crate) client: Client,
    /// The Secret's namespace.
    pub(crate) namespace: String,
    /// Which file or Secret.
    pub(crate) place: Place,
}

impl Source {
    /// The key's text, or one sentence about what is missing. The text is never part of that sentence.
    async fn read(&self) -> Result<String, String> {
        let (place, bytes) = match &self.place {
            Place::File(path) => {
                let place = format!("the file {}", path.display());
                let read = tokio::fs::read(path).await;
                let bytes = read.map_err(|error| format!("cannot read {place}: {error}"))?;
                (place, bytes)
            }
            Place::Secret(name) => {
                let place = format!("the Secret {}/{name}", self.namespace);
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
                let found = secrets.get_opt(name).await;
                let found = found.map_err(|error| format!("cannot read {place}: {error}"))?;
                let data = found.ok_or(format!("there is no {place}"))?.data.unwrap_or_default();
                let bytes = data.into_iter().find(|(key, _)| key == SECRET_KEY);
                (place.clone(), bytes.ok_or(format!("{place} has no {SECRET_KEY}"))?.1.0)
            }
        };
        if bytes.len() > KEY_BYTES_MAX {
            return Err(format!("{place} has {} bytes; at most {KEY_BYTES_MAX}", bytes.len()));
        }
        String::from_utf8(bytes).map_err(|_| format!("{place} is no text"))
    }
}

/// Hands that are made from the key, and made anew when it changes. Without a key their tasks fail, and say why.
pub(crate) struct Keyed<H> {
    hands: watch::Receiver<Result<Arc<H>, String>>,
    following: JoinHandle<()>,
}

impl<H> Drop for Keyed<H> {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl<H: Execute> Keyed<H> {
    /// Hands made by `make` from the key at `source`. A key that is not there yet is waited for.
    pub(crate) async fn follow(
        source: Source,
        make: impl Fn(Key) -> H + Send + Sync + 'static,
    ) -> Self {
        let mut known = source.read().await;
        let (tell, hands) = watch::channel(made(&known, &make));
        let following = tokio::spawn(async move {
            loop {
                sleep(if known.is_ok() { LOOK_EVERY.0 } else { LOOK_EVERY.1 }).await;
                let now = source.read().await;
                // A key that cannot be read for a while is still the key.
                if now == known || (now.is_err() && known.is_ok()) {
                    continue;
                }
                known = now;
                tracing::info!("the private key has changed");
                tell.send_replace(made(&known, &make));
            }
        });
        Self { hands, following }
    }
}

fn made<H>(text: &Result<String, String>, make: &impl Fn(Key) -> H) -> Result<Arc<H>, String> {
    let key = text.clone().and_then(|text| Key::read(&text).map_err(|error| error.to_string()));
    if let Err(why) = &key {
        tracing::warn!(why, "no private key for Windows hosts");
    }
    key.map(|key| Arc::new(make(key)))
}

impl<H: Execute> Execute for Keyed<H> {
    async fn execute(&self, order: &Order, progress: &Progress) -> Result<Outcome, Failure> {
        let hands = self.hands.borrow().clone();
        match hands {
            Ok(hands) => hands.execute(order, progress).await,
            Err(why) => Err(Failure::transient("NoPrivateKey", why)),
        }
    }
}
