//! The pool's settings as the watcher follows them: its ConfigMap, what is installed, and the answer to a bad edit.

use crate::pool::{ApiServers, Installed, PoolError, PoolSpec};
use dormer_proto::{message::cut, pool::PoolSettings};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    api::{DynamicObject, ObjectMeta},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};

/// How long an Event may take to be written; a slow one is given up.
const EVENT_LIMIT: Duration = Duration::from_secs(10);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    data: Option<BTreeMap<String, String>>,
}

/// The pool's ConfigMap, what was accepted of it, and what was refused.
pub(super) struct Settings {
    pool: String,
    namespace: String,
    client: Client,
    map: Option<ConfigMap>,
    /// Something changed since it was settled.
    stale: bool,
    pub(super) accepted: Option<PoolSettings>,
    pub(super) refused: Option<PoolError>,
    /// UID and resourceVersion of the edit that was answered by an Event, and with what.
    answered: Option<(String, u64, PoolError)>,
}

struct ConfigMap {
    meta: ObjectMeta,
    resource: u64,
    spec: Result<PoolSpec, PoolError>,
}

impl Settings {
    pub(super) fn new(client: Client, pool: &str, namespace: &str) -> Self {
        let pool = pool.to_owned();
        let namespace = namespace.to_owned();
        let accepted = None;
        let refused = None;
        let answered = None;
        Self {
            pool,
            namespace,
            client,
            map: None,
            stale: true,
            accepted,
            refused,
            answered,
        }
    }

    /// Before a list: what it lacks is not there.
    pub(super) fn forget(&mut self) {
        self.map = None;
        self.stale = true;
    }

    /// What is installed changed.
    pub(super) fn stale(&mut self) {
        self.stale = true;
    }

    /// The ConfigMap stands so.
    pub(super) fn observe(&mut self, object: DynamicObject, resource: u64) {
        let DynamicObject {
            metadata: meta,
            data,
            ..
        } = object;
        let same = |map: &ConfigMap| map.meta.uid == meta.uid;
        if self
            .map
            .as_ref()
            .is_some_and(|map| same(map) && map.resource > resource)
        {
            return;
        }
        let read = serde_json::from_value::<Data>(data);
        let unreadable = |_| PoolError {
            key: "data".to_owned(),
            problem: "must be texts by key".to_owned(),
        };
        let spec = read
            .map_err(unreadable)
            .and_then(|read| PoolSpec::parse(&self.pool, &read.data.unwrap_or_default()));
        self.map = Some(ConfigMap {
            meta,
            resource,
            spec,
        });
        self.stale = true;
    }

    /// The ConfigMap is gone: the defaults hold.
    pub(super) fn lose(&mut self, uid: &str) {
        let lost = self.map.take_if(|map| map.meta.uid.as_deref() == Some(uid));
        self.stale |= lost.is_some();
    }

    /// Settles what is asked with what is installed; `false` if neither changed. A refusal leaves what was accepted
    /// as it is.
    pub(super) fn resolve(
        &mut self,
        installed: &impl Installed,
        servers: Option<ApiServers>,
    ) -> bool {
        if !std::mem::take(&mut self.stale) {
            return false;
        }
        let spec = match &self.map {
            Some(map) => map.spec.clone(),
            None => PoolSpec::parse(&self.pool, &BTreeMap::new()),
        };
        match spec.and_then(|spec| spec.resolve(installed, servers)) {
            Ok(settings) => {
                self.accepted = Some(settings);
                self.refused = None;
            }
            Err(error) => self.refused = Some(error),
        }
        true
    }

    /// Answers a bad edit by an Event on the ConfigMap that names the field, once; and so where there is no ConfigMap
    /// and the defaults cannot hold, because no payload is there.
    pub(super) async fn answer(&mut self) {
        let Some(error) = &self.refused else { return };
        let absent = || ObjectMeta {
            name: Some(crate::pool::config_map(&self.pool)),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        let (meta, resource) = match &self.map {
            Some(map) => (map.meta.clone(), map.resource),
            None => (absent(), 0),
        };
        let this = (
            meta.uid.clone().unwrap_or_default(),
            resource,
            error.clone(),
        );
        if self.answered.as_ref() == Some(&this) {
            return;
        }
        tracing::warn!(
            pool = self.pool,
            "the pool's settings are refused, the ones before hold: {error}"
        );
        let note = format!("{error}. Nothing changes: the settings before this edit hold.");
        let field = Some(format!("data.{}", error.key));
        write_event(&self.client, &meta, field, "BadPoolSetting", note).await;
        self.answered = Some(this);
    }
}

/// Writes a warning about the pool's ConfigMap; what goes wrong is logged.
pub(super) async fn write_event(
    client: &Client,
    meta: &ObjectMeta,
    field: Option<String>,
    reason: &str,
    note: String,
) {
    let write = publish(client, meta, field, reason, note);
    match tokio::time::timeout(EVENT_LIMIT, write).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("no Event on the pool's ConfigMap: {error}"),
        Err(_) => tracing::warn!("no Event on the pool's ConfigMap: it takes too long"),
    }
}

async fn publish(
    client: &Client,
    meta: &ObjectMeta,
    field: Option<String>,
    reason: &str,
    note: String,
) -> Result<(), kube::Error> {
    let reference = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ConfigMap".to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: field,
    };
    let mut note = cut(note);
    // The API's limit for a note is 1 KiB.
    while note.len() > 1_000 {
        note.pop();
    }
    let event = Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        note: Some(note),
        action: "ReadSettings".to_owned(),
        secondary: None,
    };
    let reporter = Reporter {
        controller: "dormer-watcher".to_owned(),
        instance: None,
    };
    Recorder::new(client.clone(), reporter)
        .publish(&event, &reference)
        .await
}
