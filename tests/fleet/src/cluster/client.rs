//! How controllers see the cluster: reads from what is known, writes as requests.
//!
//! A seam: against the simulated server both go to its store; against a real API server the reads
//! come from a cache that watches keep, the writes over HTTP.

use std::sync::Arc;

use serde_json::Value;

use crate::api::{
    ApiServer, DeleteOptions, Key, ListQuery, Object, Part, Refusal, User, WriteOptions,
    kinds::Kind,
    patch::PatchKind,
    store::{Interest, Watch, WatchFrom},
};

/// One controller's view of the cluster.
#[derive(Clone)]
pub struct Client {
    server: ApiServer,
    user: User,
}

impl Client {
    /// A view of the simulated server for one user.
    pub fn new(server: &ApiServer, user: User) -> Self {
        Self { server: server.clone(), user }
    }

    /// An object, as far as it is known.
    pub fn get(&self, kind: &Kind, key: &Key) -> Option<Arc<Object>> {
        self.server.get(kind, key).ok()
    }

    /// Objects, as far as they are known.
    pub fn list(&self, kind: &Kind, query: &ListQuery) -> Vec<Arc<Object>> {
        self.server.list(kind, query).items
    }

    /// All objects of a kind.
    pub fn all(&self, kind: &Kind) -> Vec<Arc<Object>> {
        self.list(kind, &ListQuery::default())
    }

    /// The objects of one namespace.
    pub fn within(&self, kind: &Kind, namespace: &str) -> Vec<Arc<Object>> {
        let query = ListQuery { namespace: Some(namespace.to_owned()), ..ListQuery::default() };
        self.list(kind, &query)
    }

    /// The pods on one node.
    pub fn pods_on(&self, node: &str) -> Vec<Arc<Object>> {
        let fields = format!("spec.nodeName={node}");
        let fields = crate::api::selector::Fields::parse(&fields).unwrap_or_default();
        self.list(&crate::api::kinds::POD, &ListQuery { fields, ..ListQuery::default() })
    }

    /// How many pods are on one node.
    pub fn count_on(&self, node: &str) -> usize {
        self.server.store().count_on(crate::api::kinds::POD.store, node)
    }

    /// All present objects of a kind, then every change. `None`: the watch must be begun anew.
    pub fn watch(&self, kind: &Kind) -> Option<Watch> {
        self.server.store().watch(kind.store, Interest::All, WatchFrom::All).ok()
    }

    /// Makes an object.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn create(
        &self,
        kind: &Kind,
        ns: &str,
        value: Value,
    ) -> Result<Arc<Object>, Refusal> {
        self.server.create(&self.user, kind, ns, value, false)
    }

    /// Patches an object by a merge.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn merge(
        &self,
        kind: &Kind,
        key: &Key,
        patch: &Value,
    ) -> Result<Arc<Object>, Refusal> {
        self.patch(kind, key, Part::Main, PatchKind::Merge, patch).await
    }

    /// Patches an object's status; conditions are merged by their type.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn status(
        &self,
        kind: &Kind,
        key: &Key,
        status: Value,
    ) -> Result<Arc<Object>, Refusal> {
        let patch = serde_json::json!({ "status": status });
        self.patch(kind, key, Part::Status, PatchKind::Strategic, &patch).await
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
        self.server.patch(&self.user, kind, key, part, (how, patch), &options)
    }

    /// Writes a certificate request's conditions.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn approve(&self, key: &Key, value: Value) -> Result<Arc<Object>, Refusal> {
        let kind = &crate::api::kinds::CSR;
        self.server.update(&self.user, kind, key, Part::Approval, value, false)
    }

    /// Deletes an object; that it is gone already is as good.
    ///
    /// # Errors
    /// As the server refuses it.
    pub async fn delete(
        &self,
        kind: &Kind,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<(), Refusal> {
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
        self.server.evict(&self.user, key, &Value::Null).map(drop)
    }

    /// The time, for conditions.
    pub fn stamp(&self) -> String {
        self.server.clock().stamp()
    }

    /// The server itself, for what only the simulated cluster does (signing, faults).
    pub fn server(&self) -> &ApiServer {
        &self.server
    }
}
