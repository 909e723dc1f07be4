//! Kubernetes client of the projection: one method per call, one time limit, and one sentence per failure.

use super::{
    Settings,
    conditions::StatusCondition,
    events::EventText,
    objects::{Kind, ObjectKey, ProjectedObject},
    v1alpha1::WindowsMachine,
};
use dormer_proto::id::Timestamp;
use dormer_views::moment::time;
use dormer_workers::{
    kubernetes::keys::{INSTANCE, OURS},
    pool::v1beta1::WindowsPool,
};
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt, future::Future, time::Duration};

/// Time limit of one call.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Objects in one page of a list.
const PAGE: u32 = 500;
/// Field manager of the writes.
pub(super) const MANAGER: &str = "dormer-console";
/// Longest note of an Event, in bytes; the API server refuses more than 1,024.
const NOTE_BYTES_MAX: usize = 1_000;

/// Failure and remedy in one sentence for all objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ApiFailure(String);

impl fmt::Display for ApiFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Client with dormer's namespace and identity.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) namespace: String,
    name: String,
}

impl Cluster {
    pub(super) fn new(client: Client, settings: &Settings) -> Self {
        Self {
            client,
            namespace: settings.namespace.clone(),
            name: settings.name.clone(),
        }
    }

    /// Minor version of the API server.
    pub(super) async fn minor(&self) -> Option<u32> {
        let info = within(self.client.apiserver_version()).await.ok()?;
        info.minor
            .trim_end_matches(|c: char| !c.is_ascii_digit())
            .parse()
            .ok()
    }

    /// WindowsMachines of this dormer in the cluster, with their status.
    pub(super) async fn list_machines(&self) -> Result<BTreeMap<ObjectKey, Value>, ApiFailure> {
        let api = Api::all_with(self.client.clone(), &resource(Kind::Machine));
        let label = format!("{}={},{INSTANCE}={}", OURS.0, OURS.1, self.namespace);
        let params = ListParams::default().labels(&label).limit(PAGE);
        self.list(Kind::Machine, api, params).await
    }

    /// WindowsPools that people created, with their status. A pool without a spec is an earlier build's: the API
    /// server accepts no status for it.
    pub(super) async fn list_pools(&self) -> Result<BTreeMap<ObjectKey, Value>, ApiFailure> {
        let resource = resource(Kind::Pool);
        let api = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let params = ListParams::default().limit(PAGE);
        self.list(Kind::Pool, api, params).await
    }

    async fn list(
        &self,
        kind: Kind,
        api: Api<DynamicObject>,
        mut params: ListParams,
    ) -> Result<BTreeMap<ObjectKey, Value>, ApiFailure> {
        let mut all = BTreeMap::new();
        loop {
            let page = within(api.list(&params))
                .await
                .map_err(|e| sentence("list", kind, &e))?;
            for object in page.items {
                if kind == Kind::Pool && object.data["spec"].is_null() {
                    continue;
                }
                let namespace = object.metadata.namespace;
                let name = object.metadata.name;
                let object_key = ObjectKey {
                    kind,
                    namespace: namespace.unwrap_or_default(),
                    name: name.unwrap_or_default(),
                };
                let mut status = object.data["status"].clone();
                if let Some(fields) = status.as_object_mut() {
                    // The worker writes these.
                    fields.remove("override");
                    fields.remove("overrideOrder");
                }
                all.insert(object_key, status);
            }
            match page.metadata.continue_.filter(|more| !more.is_empty()) {
                Some(more) => params.continue_token = Some(more),
                None => return Ok(all),
            }
        }
    }

    /// Writes the object. Of a pool, which people own, only the status is written, and only if the pool exists.
    pub(super) async fn put(&self, object: &ProjectedObject) -> Result<(), ApiFailure> {
        let kind = object.object_key.kind;
        let api = self.objects(&object.object_key);
        let patch = self.patch_status(&api, object).await;
        match patch {
            Err(Failed::Kube(error)) if is(&error, 404) && kind == Kind::Pool => return Ok(()),
            Err(Failed::Kube(error)) if is(&error, 404) => {}
            done => return done.map_err(|error| sentence("patch the status of", kind, &error)),
        }
        let made = within(api.create(&PostParams::default(), &self.bare(object))).await;
        match made {
            Ok(_) => {}
            Err(Failed::Kube(error)) if is(&error, 409) => {}
            Err(error) => return Err(sentence("create", kind, &error)),
        }
        let patched = self.patch_status(&api, object).await;
        patched.map_err(|error| sentence("patch the status of", kind, &error))
    }

    async fn patch_status(
        &self,
        api: &Api<DynamicObject>,
        object: &ProjectedObject,
    ) -> Result<(), Failed> {
        let patch = json!({"status": object.status});
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..Default::default()
        };
        let name = &object.object_key.name;
        within(api.patch_status(name, &params, &Patch::Merge(patch)))
            .await
            .map(drop)
    }

    /// Deletes the object of a machine that is gone.
    pub(super) async fn remove(&self, object_key: &ObjectKey) -> Result<(), ApiFailure> {
        let api = self.objects(object_key);
        match within(api.delete(&object_key.name, &DeleteParams::default())).await {
            Ok(_) => Ok(()),
            Err(Failed::Kube(error)) if is(&error, 404) => Ok(()),
            Err(error) => Err(sentence("delete", object_key.kind, &error)),
        }
    }

    /// Writes dormer's condition on a Node, and no other.
    pub(super) async fn on_node(
        &self,
        node: &str,
        condition: &StatusCondition,
    ) -> Result<(), ApiFailure> {
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        let patch = json!({"status": {"conditions": [condition.json(None)]}});
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..Default::default()
        };
        match within(api.patch_status(node, &params, &Patch::Strategic(patch))).await {
            Ok(_) => Ok(()),
            Err(Failed::Kube(error)) if is(&error, 404) => Ok(()),
            Err(error) => Err(api_failure("patch the status of", "Nodes", &error)),
        }
    }

    /// Writes the OperatorCondition: whether the Operator Lifecycle Manager may update dormer now.
    pub(super) async fn on_operator(
        &self,
        name: &str,
        condition: &StatusCondition,
        now: Timestamp,
    ) -> Result<(), ApiFailure> {
        let gvk = GroupVersionKind::gvk("operators.coreos.com", "v2", "OperatorCondition");
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let patch = json!({"spec": {"conditions": [condition.json(Some(now))]}});
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..Default::default()
        };
        let done = within(api.patch(name, &params, &Patch::Merge(patch))).await;
        let what = format!("the OperatorCondition {name}");
        done.map(drop)
            .map_err(|error| api_failure("patch", &what, &error))
    }

    /// Writes an Event. An existing one of this name has the same content.
    pub(super) async fn write_event(&self, tale: &EventText) -> Result<(), ApiFailure> {
        let gvk = GroupVersionKind::gvk("events.k8s.io", "v1", "Event");
        let api: Api<DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            tale.namespace(),
            &ApiResource::from_gvk(&gvk),
        );
        match within(api.create(&PostParams::default(), &self.event(tale))).await {
            Ok(_) => Ok(()),
            Err(Failed::Kube(error)) if is(&error, 409) => Ok(()),
            Err(error) => Err(api_failure("create", "Events", &error)),
        }
    }

    fn event(&self, tale: &EventText) -> DynamicObject {
        let about = &tale.about;
        let note = &tale.note[..tale.note.floor_char_boundary(NOTE_BYTES_MAX)];
        let mut regarding =
            json!({"apiVersion": about.api_version, "kind": about.kind, "name": about.name});
        for (key, value) in [("namespace", &about.namespace), ("uid", &about.uid)] {
            if let Some(value) = value {
                regarding[key] = value.as_str().into();
            }
        }
        object(json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": tale.name, "namespace": tale.namespace()},
            "eventTime": micro(tale.at),
            "type": if tale.warning { "Warning" } else { "Normal" },
            "reason": tale.reason, "action": tale.reason, "note": note,
            "regarding": regarding,
            "reportingController": "dormer.io/console",
            "reportingInstance": &self.name[..self.name.floor_char_boundary(128)],
        }))
    }

    /// Object without a status.
    fn bare(&self, of: &ProjectedObject) -> DynamicObject {
        let mut metadata = json!({
            "name": of.object_key.name, "namespace": of.object_key.namespace,
            "labels": {OURS.0: OURS.1, INSTANCE: self.namespace},
        });
        if let Some(owner) = &of.owner {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
                "name": owner.name, "uid": owner.uid,
            }]);
        }
        let kind = resource(of.object_key.kind);
        object(json!({
            "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata,
        }))
    }

    fn objects(&self, object_key: &ObjectKey) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.client.clone(),
            &object_key.namespace,
            &resource(object_key.kind),
        )
    }
}

pub(super) fn object(mut value: Value) -> DynamicObject {
    let metadata = serde_json::from_value(value["metadata"].take()).unwrap_or_default();
    let types = serde_json::from_value(value.clone()).ok();
    if let Some(fields) = value.as_object_mut() {
        for known in ["metadata", "apiVersion", "kind"] {
            fields.remove(known);
        }
    }
    DynamicObject {
        types,
        metadata,
        data: value,
    }
}

fn resource(kind: Kind) -> ApiResource {
    match kind {
        Kind::Machine => ApiResource::erase::<WindowsMachine>(&()),
        Kind::Pool => ApiResource::erase::<WindowsPool>(&()),
    }
}

/// A MicroTime has six fractional digits.
fn micro(at: Timestamp) -> String {
    time(at).replace('Z', "000Z")
}

/// Failure of a call.
pub(super) enum Failed {
    Silent,
    Kube(kube::Error),
}

pub(super) async fn within<T>(
    doing: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failed> {
    match tokio::time::timeout(ANSWER_MAX, doing).await {
        Ok(done) => done.map_err(Failed::Kube),
        Err(_) => Err(Failed::Silent),
    }
}

pub(super) fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

fn sentence(verb: &str, kind: Kind, failed: &Failed) -> ApiFailure {
    match failed {
        Failed::Kube(error) if is(error, 404) => ApiFailure(format!(
            "the cluster has no CRD for {}s, so `kubectl get` does not show them: kubectl apply \
             -f deploy/crd.yaml",
            kind.name()
        )),
        _ => api_failure(verb, &format!("{}s", kind.name()), failed),
    }
}

pub(super) fn api_failure(verb: &str, what: &str, failed: &Failed) -> ApiFailure {
    let why = match failed {
        Failed::Silent => "the API server did not answer within 10 s".to_owned(),
        Failed::Kube(error) if is(error, 403) => {
            "the console's account lacks the right (deploy/rbac.yaml has the rule)".to_owned()
        }
        Failed::Kube(error) => error.to_string(),
    };
    ApiFailure(format!("cannot {verb} {what}: {why}"))
}
