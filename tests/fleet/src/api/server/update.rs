//! Updates and patches: what is written over an object, and what the server keeps of the one before.

use dormer_proto::lock::Locked as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{ApiServer, Part, WriteOptions};
use crate::api::{
    admission,
    auth::User,
    events,
    kinds::{self, Kind},
    object::{Key, Meta, Object},
    patch::{self, PatchKind},
    status::Refusal,
    store::Tx,
};

/// What is written over an object.
struct ObjectWrite {
    part: Part,
    value: Value,
    /// Only pretend.
    dry_run: bool,
}

impl ApiServer {
    /// Replaces an object, or its status.
    ///
    /// # Errors
    /// 404, 409 when the resourceVersion or uid is not the present one, 422.
    pub fn update(
        &self,
        user: &User,
        kind: &Kind,
        key: &Key,
        part: Part,
        value: Value,
        dry_run: bool,
    ) -> Result<Arc<Object>, Refusal> {
        self.check_body(kind, &key.namespace, Some(&key.name), &value)?;
        self.inner.store.transact(&user.name, |tx| {
            let before = tx.get(kind.store, key).cloned();
            let before = before.ok_or_else(|| Refusal::not_found(kind, &key.name))?;
            let write = ObjectWrite {
                part,
                value,
                dry_run,
            };
            Self::write(tx, kind, key, &before, write)
        })
    }

    /// Patches an object, or its status. Server-side apply makes what is not there.
    ///
    /// # Errors
    /// 404, 409, 422; 400 for a patch that cannot be read.
    pub fn patch(
        &self,
        user: &User,
        kind: &Kind,
        key: &Key,
        part: Part,
        (how, patch): (PatchKind, &Value),
        options: &WriteOptions,
    ) -> Result<Arc<Object>, Refusal> {
        if how == PatchKind::Apply && self.inner.store.get(kind.store, key).is_none() {
            let mut value = patch.clone();
            value["metadata"]["name"] = json!(key.name);
            let made = self.create(user, kind, &key.namespace, value, options.dry_run)?;
            self.remember_applied(kind, key, options, patch);
            return Ok(made);
        }
        self.inner.store.transact(&user.name, |tx| {
            let before = tx.get(kind.store, key).cloned();
            let before = before.ok_or_else(|| Refusal::not_found(kind, &key.name))?;
            let mut value = before.value.clone();
            // What is compared is the patch's own resourceVersion, if it brings one.
            if let Some(meta) = value["metadata"].as_object_mut()
                && how != PatchKind::Json
            {
                meta.remove("resourceVersion");
            }
            match how {
                PatchKind::Merge => patch::merge(&mut value, patch),
                PatchKind::Strategic => patch::strategic(&mut value, patch),
                PatchKind::Json => patch::json(&mut value, patch)
                    .map_err(|why| Refusal::invalid(kind, &key.name, "patch", &why))?,
                PatchKind::Apply => {
                    let was = self.applied_before(kind, key, options);
                    patch::apply(&mut value, &was, patch);
                }
            }
            let after = {
                let dry_run = options.dry_run;
                let write = ObjectWrite {
                    part,
                    value,
                    dry_run,
                };
                Self::write(tx, kind, key, &before, write)?
            };
            if how == PatchKind::Apply {
                self.remember_applied(kind, key, options, patch);
            }
            Ok(after)
        })
    }

    fn applied_before(&self, kind: &Kind, key: &Key, options: &WriteOptions) -> Value {
        let applied = self.inner.applied.locked();
        let at = (kind.store, key.clone(), options.manager.clone());
        applied.get(&at).cloned().unwrap_or(Value::Null)
    }

    fn remember_applied(&self, kind: &Kind, key: &Key, options: &WriteOptions, patch: &Value) {
        if !options.dry_run {
            let mut applied = self.inner.applied.locked();
            applied.insert(
                (kind.store, key.clone(), options.manager.clone()),
                patch.clone(),
            );
        }
    }

    /// Writes `value` over `before`: checks the preconditions it carries, keeps what only the
    /// server sets, and ends a deletion whose last finalizer is gone.
    fn write(
        tx: &mut Tx<'_>,
        kind: &Kind,
        key: &Key,
        before: &Arc<Object>,
        write: ObjectWrite,
    ) -> Result<Arc<Object>, Refusal> {
        let ObjectWrite {
            part,
            mut value,
            dry_run,
        } = write;
        let was = &before.value;
        match value["metadata"]["resourceVersion"].as_str() {
            Some(rv) if !rv.is_empty() && was["metadata"]["resourceVersion"] != rv => {
                let why = "the object has been modified; please apply your changes to the latest \
                           version and try again";
                return Err(Refusal::conflict(kind, &key.name, why));
            }
            _ => {}
        }
        match value["metadata"]["uid"].as_str() {
            Some(uid) if !uid.is_empty() && uid != was.uid() => {
                let why = format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    was.uid()
                );
                return Err(Refusal::conflict(kind, &key.name, &why));
            }
            _ => {}
        }
        if kind.store == "events" {
            events::to_core(&mut value);
        }
        if kind.store == "secrets" {
            admission::string_data(&mut value);
        }
        let mut after = combine(kind, part, was, value);
        keep_server_fields(was, &mut after);
        admission::check(kind, &after, Some(was))?;
        if after == *was || dry_run {
            return Ok(if dry_run {
                Arc::new(Object::new(after, 0))
            } else {
                before.clone()
            });
        }
        if ended(kind, &after) {
            // The last state, with the finalizers already gone, is what watchers see.
            tx.put(kind.store, after);
            let last = tx.delete(kind.store, key);
            return last.ok_or_else(|| Refusal::not_found(kind, &key.name));
        }
        Ok(tx.put(kind.store, after))
    }
}

/// Whether an object that is being deleted has nothing left that holds it.
fn ended(kind: &Kind, value: &Value) -> bool {
    let held = value["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|f| !f.is_empty());
    let grace = value["metadata"]["deletionGracePeriodSeconds"]
        .as_u64()
        .unwrap_or(0);
    value.deleting() && !held && (kind.store != "pods" || grace == 0) && kind.store != "namespaces"
}

/// The part that is written from `value`, the rest from `was`.
fn combine(kind: &Kind, part: Part, was: &Value, value: Value) -> Value {
    match part {
        Part::Main => {
            let mut after = value;
            if kind.has("status") {
                match was.get("status") {
                    Some(status) => after["status"] = status.clone(),
                    None => drop(after.as_object_mut().and_then(|o| o.remove("status"))),
                }
            }
            if kind.store == kinds::CSR.store {
                after["spec"] = was["spec"].clone();
            }
            after
        }
        Part::Status => {
            let mut after = was.clone();
            after["status"] = value.get("status").cloned().unwrap_or(json!({}));
            // Kubelets may write labels and annotations with the status.
            if matches!(kind.store, "nodes" | "pods") {
                for field in ["labels", "annotations"] {
                    after["metadata"][field] = value["metadata"][field].clone();
                    if after["metadata"][field].is_null()
                        && let Some(meta) = after["metadata"].as_object_mut()
                    {
                        meta.remove(field);
                    }
                }
            }
            after
        }
        Part::Approval => {
            let mut after = was.clone();
            after["status"]["conditions"] = value["status"]["conditions"].clone();
            after
        }
    }
}

fn keep_server_fields(was: &Value, after: &mut Value) {
    after["apiVersion"] = was["apiVersion"].clone();
    after["kind"] = was["kind"].clone();
    let Some(meta) = after["metadata"].as_object_mut() else {
        after["metadata"] = was["metadata"].clone();
        return;
    };
    let kept = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generateName",
    ];
    for field in kept {
        match was["metadata"].get(field) {
            Some(value) => drop(meta.insert(field.to_owned(), value.clone())),
            None => drop(meta.remove(field)),
        }
    }
    meta.remove("managedFields");
    drop_nulls(meta);
    let changed = |name: &&String| !matches!(name.as_str(), "metadata" | "status");
    let object = |v: &Value| -> Map<String, Value> {
        let fields = v
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(n, _)| changed(n));
        fields.map(|(n, v)| (n.clone(), v.clone())).collect()
    };
    if object(was) != object(after) {
        let generation = was["metadata"]["generation"].as_u64().unwrap_or(0);
        after["metadata"]["generation"] = json!(generation + 1);
    }
}

fn drop_nulls(meta: &mut Map<String, Value>) {
    meta.retain(|_, value| !value.is_null());
}
