//! Controllers' access to the cluster: reads from a cache, and writes as requests. With the simulated server both go to
//! its store; with a real API server reads come from a cache that watches update, and writes go over HTTP.

use std::sync::Arc;

use serde_json::Value;

use super::mirror::Mirror;
use crate::api::{
    ApiServer, DeleteOptions, Key, ListQuery, Object, Part, Refusal, User, WriteOptions,
    kinds::Kind,
    patch::PatchKind,
    store::{Interest, StartedWatch, WatchFrom},
};

/// One controller's view of the cluster.
#[derive(Clone)]
pub struct Client {
    server: ApiServer,
    user: User,
    /// Target of writes, if `server` is only the cache of a real one.
    real: Option<Arc<Mirror>>,
}

impl Client {
    /// A view of the simulated server for one user.
    pub fn new(server: &ApiServer, user: User) -> Self {
        Self {
            server: server.clone(),
            user,
            real: None,
        }
    }

    /// A view of a real server, of which `cache` holds what is known.
    pub fn of_real(cache: &ApiServer, real: &Arc<Mirror>, user: User) -> Self {
        Self {
            server: cache.clone(),
            user,
            real: Some(real.clone()),
        }
    }

    /// An object in the cache.
    pub fn get(&self, kind: &Kind, key: &Key) -> Option<Arc<Object>> {
        self.server.get(kind, key).ok()
    }

    /// Objects in the cache.
    pub fn list(&self, kind: &Kind, query: &ListQuery) -> Vec<Arc<Object>> {
        self.server.list(kind, query).items
    }

    pub fn all(&self, kind: &Kind) -> Vec<Arc<Object>> {
        self.list(kind, &ListQuery::default())
    }

    /// The objects of one namespace.
    pub fn within(&self, kind: &Kind, namespace: &str) -> Vec<Arc<Object>> {
        let query = ListQuery {
            namespace: Some(namespace.to_owned()),
            ..ListQuery::default()
        };
        self.list(kind, &query)
    }

    /// The pods on one node.
    pub fn pods_on(&self, node: &str) -> Vec<Arc<Object>> {
        let fields = format!("spec.nodeName={node}");
        let fields = crate::api::selector::Fields::parse(&fields).unwrap_or_default();
        self.list(
            &crate::api::kinds::POD,
            &ListQuery {
                fields,
                ..ListQuery::default()
            },
        )
    }

    /// How many pods are on one node.
    pub fn count_on(&self, node: &str) -> usize {
        self.server
            .store()
            .count_on(crate::api::kinds::POD.store, node)
    }

    /// All present objects of a kind, then every change. `None`: the watch has to be started again.
    pub fn watch(&self, kind: &Kind) -> Option<StartedWatch> {
        self.server
            .store()
            .watch(kind.store, Interest::All, WatchFrom::All)
            .ok()
    }

    /// Makes an object.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn create(
        &self,
        kind: &'static Kind,
        ns: &str,
        value: Value,
    ) -> Result<Arc<Object>, Refusal> {
        if let Some(real) = &self.real {
            return real.create(&self.user.name, kind, ns, value).await;
        }
        self.server.create(&self.user, kind, ns, value, false)
    }

    /// Patches an object by a merge.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn merge(
        &self,
        kind: &'static Kind,
        key: &Key,
        patch: &Value,
    ) -> Result<Arc<Object>, Refusal> {
        if let Some(real) = &self.real {
            return real.merge(&self.user.name, kind, key, patch).await;
        }
        self.patch(kind, key, Part::Main, PatchKind::Merge, patch)
            .await
    }

    /// Patches an object's status; conditions are merged by their type.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn status(
        &self,
        kind: &'static Kind,
        key: &Key,
        status: Value,
    ) -> Result<Arc<Object>, Refusal> {
        if let Some(real) = &self.real {
            return real.status(&self.user.name, kind, key, &status).await;
        }
        let patch = serde_json::json!({ "status": status });
        self.patch(kind, key, Part::Status, PatchKind::Strategic, &patch)
            .await
    }

    async fn patch(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        how: PatchKind,
        patch: &Value,
    ) -> Result<Arc<Object>, Refusal> {
        let options = WriteOptions::default();
        self.server
            .patch(&self.user, kind, key, part, (how, patch), &options)
    }

    /// Writes a certificate request's conditions, on the simulated server alone.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn approve(&self, key: &Key, value: Value) -> Result<Arc<Object>, Refusal> {
        let kind = &crate::api::kinds::CSR;
        self.server
            .update(&self.user, kind, key, Part::Approval, value, false)
    }

    /// Deletes an object; that it is gone already is as good.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn delete(
        &self,
        kind: &'static Kind,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<(), Refusal> {
        if let Some(real) = &self.real {
            return real.delete(&self.user.name, kind, key, options).await;
        }
        match self.server.delete(&self.user, kind, key, options) {
            Err(refusal) if refusal.code != 404 => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Evicts a pod, with its budgets' leave.
    ///
    /// # Errors
    /// 429 when a budget refuses, 500 when two match.
    pub async fn evict(&self, key: &Key) -> Result<(), Refusal> {
        if let Some(real) = &self.real {
            return real.evict(key).await;
        }
        self.server.evict(&self.user, key, &Value::Null).map(drop)
    }

    /// The time, for conditions.
    pub fn stamp(&self) -> String {
        self.server.clock().stamp()
    }

    /// The server itself, for functions that only the simulated cluster has (signing, faults); for a real one, its
    /// cache.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }
}
