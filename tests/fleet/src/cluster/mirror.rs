//! A real API server as the controllers see it: a cache that watches keep, and writes over HTTP.

use dormer_proto::lock::Locked as _;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{
    api::{ApiServer, DeleteOptions, Key, Meta, Object, Refusal, kinds, kinds::Kind, patch},
    host::kubelet::{Api, KubeletIdentity},
    net::Dialer,
    world::{Happened, Record},
};

/// Longest line of a watch, in bytes.
const LINE_BYTES_MAX: usize = 4 << 20;
/// Most retries of a status write after conflicts.
const CONFLICTS_MAX: usize = 10;
/// Pause before a failed list is repeated.
const AGAIN: Duration = Duration::from_millis(200);
/// User of a change that a watch reported: the API server does not name it.
const SOMEBODY: &str = "somebody";
/// Who takes pods away whose node is no more.
const COLLECTOR: &str = "system:serviceaccount:kube-system:pod-garbage-collector";

/// Kinds that the Machine API's controllers read in the namespace of its Machines.
const MACHINE_API: [&Kind; 3] = [&kinds::MACHINE_SET, &kinds::MACHINE, &kinds::SECRET];
/// Kinds that Cluster API's controllers read in the namespace of its Machines.
const CLUSTER_API: [&Kind; 4] = [
    &kinds::CLUSTER_API_CLUSTER,
    &kinds::CLUSTER_MACHINE_SET,
    &kinds::CLUSTER_MACHINE,
    &kinds::SECRET,
];
/// Kinds that the controllers of both read everywhere.
const OF_BOTH: [&Kind; 2] = [&kinds::NODE, &kinds::POD];

/// How the real API server is reached, and which part of it is this world's.
#[derive(Clone)]
pub struct Outside {
    /// `https://host:port`.
    pub url: String,
    /// Its authority, PEM.
    pub ca_pem: String,
    /// A client certificate that may do everything, PEM.
    pub cert_pem: String,
    pub key_pem: String,
    /// Namespace of this world's Machines of the Machine API; `None`: the server has none of its kinds.
    pub machines: Option<String>,
    /// Namespace of this world's Machines of Cluster API; `None`: there are none. The Secrets of both have one name, so it is
    /// another one.
    pub cluster_machines: Option<String>,
}

impl Outside {
    /// Collections that the controllers read: each a kind, and a namespace if it is not read everywhere.
    fn collections(&self) -> Vec<(&'static Kind, Option<String>)> {
        let mut all = Vec::new();
        if let Some(namespace) = &self.machines {
            all.extend(MACHINE_API.map(|kind| (kind, Some(namespace.clone()))));
        }
        if let Some(namespace) = &self.cluster_machines {
            all.extend(CLUSTER_API.map(|kind| (kind, Some(namespace.clone()))));
        }
        all.extend(OF_BOTH.map(|kind| (kind, None)));
        all
    }
}

/// Says of a Node whether it is one of this world's hosts.
pub type Ours = Box<dyn Fn(&Value) -> bool + Send + Sync>;

/// A real API server and its cache.
pub struct Mirror {
    collections: Vec<(&'static Kind, Option<String>)>,
    api: Api,
    cache: ApiServer,
    record: Record,
    ours: Ours,
    /// The newest revision seen of each object, deletions included.
    newest: Mutex<HashMap<(&'static str, Key), u64>>,
}

impl Mirror {
    /// A view of the machine APIs of the server at `outside`, kept in the store of `cache`.
    ///
    /// # Errors
    /// What does not fit together, in words.
    pub fn new(
        outside: &Outside,
        dialer: Dialer,
        cache: ApiServer,
        record: Record,
        ours: Ours,
    ) -> Result<Self, String> {
        let cert_pem = outside.cert_pem.clone();
        let key_pem = outside.key_pem.clone();
        let identity = KubeletIdentity::Certificate { cert_pem, key_pem };
        let api = Api::new(dialer, &outside.url, &outside.ca_pem, &identity)?;
        Ok(Self {
            collections: outside.collections(),
            api,
            cache,
            record,
            ours,
            newest: Mutex::default(),
        })
    }

    /// Keeps the cache, for ever.
    pub async fn keep(self: Arc<Self>) {
        let keep = |(kind, namespace): (&'static Kind, Option<String>)| {
            let this = self.clone();
            async move {
                loop {
                    if let Err(why) = this.follow(kind, namespace.as_deref()).await {
                        tracing::debug!(kind = kind.plural, why, "listed anew");
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        };
        futures::future::join_all(self.collections.iter().cloned().map(keep)).await;
    }

    /// One list, and what changes after it, until the watch ends.
    async fn follow(&self, kind: &'static Kind, namespace: Option<&str>) -> Result<(), String> {
        let path = kind.path(namespace);
        let (code, mut list) = self.api.get(&path).await?;
        if code != 200 {
            return Err(format!("{path}: {code} {}", list["message"]));
        }
        let from = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or("0")
            .to_owned();
        let items = list["items"]
            .as_array_mut()
            .map(std::mem::take)
            .unwrap_or_default();
        let there: Vec<Key> = items.iter().map(Key::of).collect();
        for item in items {
            self.apply(kind, item, false);
        }
        let listed_before = crate::api::ListQuery {
            namespace: namespace.map(str::to_owned),
            ..crate::api::ListQuery::default()
        };
        for known in self.cache.list(kind, &listed_before).items {
            if !there.contains(&Key::of(&known.value)) {
                let mut gone = known.value.clone();
                gone["metadata"]["resourceVersion"] = json!(from);
                self.apply(kind, gone, true);
            }
        }
        self.watch(kind, &format!("{path}?watch=1&resourceVersion={from}"))
            .await
    }

    async fn watch(&self, kind: &'static Kind, path: &str) -> Result<(), String> {
        let mut body = self.api.stream(path).await?.into_body();
        let mut line = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| e.to_string())?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            for byte in data {
                if *byte != b'\n' {
                    line.push(*byte);
                    continue;
                }
                let mut event: Value = serde_json::from_slice(&line).map_err(|e| e.to_string())?;
                line.clear();
                let object = event["object"].take();
                match event["type"].as_str() {
                    Some("ADDED" | "MODIFIED") => self.apply(kind, object, false),
                    Some("DELETED") => self.apply(kind, object, true),
                    _ => return Err(object["message"].to_string()),
                }
            }
            if line.len() > LINE_BYTES_MAX {
                return Err("a watch line is too long".into());
            }
        }
        Ok(())
    }

    /// What a list or a watch tells, as far as it is about this world.
    fn apply(&self, kind: &'static Kind, value: Value, deleted: bool) {
        let known = self.cache.get(kind, &Key::of(&value)).ok();
        let ours = known.is_some()
            || match kind.plural {
                "nodes" => (self.ours)(&value),
                "pods" => self.on_our_node(&value),
                _ => true,
            };
        if !ours {
            return;
        }
        if kind == &kinds::POD && !known.is_some_and(|pod| evicted(&pod.value)) && evicted(&value) {
            let pod = Key::of(&value).to_string();
            let by = SOMEBODY.to_owned();
            self.record.push(Happened::PodEvicted { pod, by });
        }
        let orphan = kind == &kinds::POD && !self.on_our_node(&value);
        self.take(
            kind,
            value,
            deleted,
            if orphan { COLLECTOR } else { SOMEBODY },
        );
    }

    fn on_our_node(&self, pod: &Value) -> bool {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        self.cache.get(&kinds::NODE, &Key::new("", node)).is_ok()
    }

    /// Takes an object into the cache, unless something newer of it is known.
    fn take(&self, kind: &'static Kind, mut value: Value, deleted: bool, by: &str) -> Arc<Object> {
        value["apiVersion"] = json!(kind.api_version());
        value["kind"] = json!(kind.kind);
        let key = Key::of(&value);
        let revision = value.revision();
        let mut newest = self.newest.locked();
        let last = newest.entry((kind.store, key.clone())).or_default();
        if revision <= *last {
            return Arc::new(Object::new(value, revision));
        }
        *last = revision;
        self.cache.store().transact(by, |tx| {
            if !deleted {
                return tx.put(kind.store, value);
            }
            tx.delete(kind.store, &key)
                .unwrap_or_else(|| Arc::new(Object::new(value, revision)))
        })
    }

    /// Makes an object.
    ///
    /// # Errors
    /// As the server refuses it; 503 when it does not answer.
    pub async fn create(
        &self,
        by: &str,
        kind: &'static Kind,
        ns: &str,
        mut value: Value,
    ) -> Result<Arc<Object>, Refusal> {
        value["apiVersion"] = json!(kind.api_version());
        value["kind"] = json!(kind.kind);
        let path = kind.path(kind.namespaced.then_some(ns));
        let made = answered(self.api.post(&path, &value).await)?;
        Ok(self.take(kind, made, false, by))
    }

    /// Patches an object by a merge.
    ///
    /// # Errors
    /// As [`Mirror::create`].
    pub async fn merge(
        &self,
        by: &str,
        kind: &'static Kind,
        key: &Key,
        patch: &Value,
    ) -> Result<Arc<Object>, Refusal> {
        let now = answered(self.api.merge(&path_of(kind, key), patch).await)?;
        Ok(self.take(kind, now, false, by))
    }

    /// Writes a status of which lists with keys are merged by them. (The server knows such patches
    /// only for its own kinds.)
    ///
    /// # Errors
    /// As [`Mirror::create`].
    pub async fn status(
        &self,
        by: &str,
        kind: &'static Kind,
        key: &Key,
        status: &Value,
    ) -> Result<Arc<Object>, Refusal> {
        let path = path_of(kind, key);
        let mut last = Refusal::new(409, "Conflict", "others are faster");
        for _ in 0..CONFLICTS_MAX {
            let mut now = answered(self.api.get(&path).await)?;
            let before = now["status"].clone();
            patch::strategic(&mut now, &json!({ "status": status }));
            if now["status"] == before {
                return Ok(self.take(kind, now, false, by));
            }
            match answered(self.api.put(&format!("{path}/status"), &now).await) {
                Ok(now) => return Ok(self.take(kind, now, false, by)),
                Err(refusal) if refusal.code == 409 => last = refusal,
                Err(refusal) => return Err(refusal),
            }
        }
        Err(last)
    }

    /// Deletes an object; that it is gone already is as good.
    ///
    /// # Errors
    /// As [`Mirror::create`].
    pub async fn delete(
        &self,
        by: &str,
        kind: &'static Kind,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<(), Refusal> {
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(uid) = &options.uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(grace) = options.grace {
            body["gracePeriodSeconds"] = json!(grace);
        }
        match answered(self.api.delete(&path_of(kind, key), &body).await) {
            Err(refusal) if refusal.code == 404 => Ok(()),
            Err(refusal) => Err(refusal),
            Ok(object) => {
                // What a finalizer holds is answered as it stands; of the rest the watch tells.
                let held = object["metadata"]["finalizers"].is_array() && object.deleting();
                if held {
                    self.take(kind, object, false, by);
                }
                Ok(())
            }
        }
    }

    /// Evicts a pod, with its budgets' leave.
    ///
    /// # Errors
    /// 429 when a budget refuses, 500 when two match.
    pub async fn evict(&self, key: &Key) -> Result<(), Refusal> {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": key.name, "namespace": key.namespace}});
        let path = format!("{}/eviction", path_of(&kinds::POD, key));
        answered(self.api.post(&path, &eviction).await).map(drop)
    }
}

fn path_of(kind: &Kind, key: &Key) -> String {
    format!("{}/{}", kind.path(key.ns()), key.name)
}

/// Whether a pod's eviction was granted.
fn evicted(pod: &Value) -> bool {
    pod.condition("DisruptionTarget")
        .is_some_and(|c| c["reason"] == "EvictionByEvictionAPI")
}

fn answered(answer: Result<(u16, Value), String>) -> Result<Value, Refusal> {
    match answer {
        Ok((200..=202, object)) => Ok(object),
        Ok((code, status)) => {
            let message = status["message"].as_str().unwrap_or_default();
            Err(Refusal::new(code, "Refused", message))
        }
        Err(why) => Err(Refusal::new(503, "ServiceUnavailable", why)),
    }
}
