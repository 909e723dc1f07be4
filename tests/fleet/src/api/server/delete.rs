//! Deletions: at once, or a mark on what a finalizer or its grace holds.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{ApiServer, ListQuery, Listed};
use crate::{
    api::{
        auth::User,
        kinds::Kind,
        object::{Key, Meta, Object},
        status::Refusal,
        store::Tx,
    },
    world::stamp,
};

/// Preconditions and options of a deletion.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// The UID that the object must have.
    pub uid: Option<String>,
    /// The resourceVersion that the object must have.
    pub revision: Option<String>,
    /// Seconds of grace; `None`: the object's own.
    pub grace: Option<u64>,
    /// Only pretend.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Reads a DeleteOptions object; absent fields demand nothing.
    pub fn of(body: &Value) -> Self {
        let text = |v: &Value| v.as_str().map(str::to_owned);
        Self {
            uid: text(&body["preconditions"]["uid"]),
            revision: text(&body["preconditions"]["resourceVersion"]),
            grace: body["gracePeriodSeconds"].as_u64(),
            dry_run: body["dryRun"].as_array().is_some_and(|d| !d.is_empty()),
        }
    }

    /// Without grace.
    pub fn now() -> Self {
        Self {
            grace: Some(0),
            ..Self::default()
        }
    }
}

impl ApiServer {
    /// Deletes an object: at once, or, when finalizers or grace hold it, marks it.
    ///
    /// # Errors
    /// 404; 409 when a precondition does not hold.
    pub fn delete(
        &self,
        user: &User,
        kind: &Kind,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refusal> {
        self.inner
            .store
            .transact(&user.name, |tx| self.delete_in(tx, kind, key, options))
    }

    pub(crate) fn delete_in(
        &self,
        tx: &mut Tx<'_>,
        kind: &Kind,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refusal> {
        let found = tx.get(kind.store, key).cloned();
        let object = found.ok_or_else(|| Refusal::not_found(kind, &key.name))?;
        check_preconditions(kind, key, &object.value, options)?;
        if options.dry_run {
            return Ok(Deleted::Marked(object));
        }
        let mut value = object.value.clone();
        let grace = grace(kind, &value, options);
        let held = value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|f| !f.is_empty());
        if !held && grace == 0 && kind.store != "namespaces" {
            tx.delete(kind.store, key);
            return Ok(Deleted::Gone(object));
        }
        let shorter = value["metadata"]["deletionGracePeriodSeconds"].as_u64();
        if value.deleting() && shorter.is_none_or(|was| grace >= was) {
            return Ok(Deleted::Marked(object));
        }
        // When the grace is over (kubernetes v1.33, staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go,
        // `BeforeDelete`).
        let seconds = SignedDuration::from_secs(i64::try_from(grace).unwrap_or(i64::MAX));
        let over = self.inner.clock.now().checked_add(seconds);
        let over = over.unwrap_or(Timestamp::MAX);
        value["metadata"]["deletionTimestamp"] = json!(stamp(over));
        value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        let generation = value["metadata"]["generation"].as_u64().unwrap_or(0);
        value["metadata"]["generation"] = json!(generation + 1);
        if kind.store == "namespaces" {
            value["status"]["phase"] = json!("Terminating");
        }
        Ok(Deleted::Marked(tx.put(kind.store, value)))
    }

    /// Deletes all objects of a query, and returns them.
    pub fn delete_collection(
        &self,
        user: &User,
        kind: &Kind,
        query: &ListQuery,
        options: &DeleteOptions,
    ) -> Listed {
        let listed = self.list(kind, query);
        for object in &listed.items {
            // Gone in the meantime is as good.
            let _ = self.delete(user, kind, &Key::of(&object.value), options);
        }
        listed
    }
}

/// Result of a deletion.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object is gone; as it was last.
    Gone(Arc<Object>),
    /// The object is marked, and held by a finalizer or its grace.
    Marked(Arc<Object>),
}

impl Deleted {
    pub fn object(&self) -> &Arc<Object> {
        match self {
            Self::Gone(object) | Self::Marked(object) => object,
        }
    }
}

fn check_preconditions(
    kind: &Kind,
    key: &Key,
    value: &Value,
    options: &DeleteOptions,
) -> Result<(), Refusal> {
    let failed = |what: &str, want: &str, is: &str| {
        let why = format!(
            "Precondition failed: {what} in precondition: {want}, {what} in object meta: {is}"
        );
        Err(Refusal::conflict(kind, &key.name, &why))
    };
    match &options.uid {
        Some(uid) if uid != value.uid() => return failed("UID", uid, value.uid()),
        _ => {}
    }
    let revision = value["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    match &options.revision {
        Some(want) if want != revision => failed("ResourceVersion", want, revision),
        _ => Ok(()),
    }
}

/// Only pods that run somewhere have grace; their kubelet ends it by a deletion with 0.
fn grace(kind: &Kind, value: &Value, options: &DeleteOptions) -> u64 {
    if kind.store != "pods"
        || value["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    {
        return 0;
    }
    if matches!(
        value["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    ) {
        return 0;
    }
    let own = value["spec"]["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap_or(30);
    options.grace.unwrap_or(own)
}
