//! Settings of the pool as the watcher follows them: its object, the ConfigMap of an earlier build, the installed
//! versions, and the Event about an invalid spec.

use crate::{
    kubernetes::{OLDEST_MINOR, changing},
    pool::{ApiServers, Installed, PoolError, PoolSpec, config_map, edit::edited},
};
use dormer_proto::{
    message::cut,
    other_operator::OtherOperator,
    pool::{PoolSettings, Strategy, with_remedy},
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    api::{DynamicObject, ObjectMeta},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use std::time::Duration;

/// Time limit of writing an Event, after which it is dropped.
const EVENT_LIMIT: Duration = Duration::from_secs(10);

/// The pool's object, the settings accepted from it, and the reason for a refusal.
pub(super) struct Settings {
    pool: String,
    namespace: String,
    client: Client,
    object: Option<PoolObject>,
    /// ConfigMap with the settings of an earlier build. While it exists, no lease is granted.
    map: Option<ObjectMeta>,
    /// Whether the cluster lacks the kind WindowsPool.
    kind_absent: bool,
    /// Another operator that configures hosts. While it runs, no lease is granted.
    neighbour: OtherOperator,
    /// Other operations that change the cluster. Upgrades wait for their end.
    changing: changing::ClusterChanges,
    /// The minor of the oldest API server, if it is older than dormer promises to work with.
    too_old: Option<u32>,
    /// Whether something changed since the last [`Settings::resolve`].
    stale: bool,
    accepted: Option<PoolSettings>,
    pub(super) refused: Option<PoolError>,
    /// UID, generation and text of the last Event.
    answered: Option<(String, u64, String)>,
}

/// Reason for which no lease is granted, and its remedy as an imperative sentence.
struct HeldPages {
    why: String,
    /// `None`: the reason itself names the remedy.
    cure: Option<String>,
}

impl HeldPages {
    fn new(why: impl Into<String>, cure: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            cure: Some(cure.into()),
        }
    }
}

struct PoolObject {
    meta: ObjectMeta,
    resource: u64,
    /// `None`: the object has no spec, as builds before v1beta1 wrote it.
    spec: Option<Result<PoolSpec, PoolError>>,
}

impl PoolObject {
    fn generation(&self) -> u64 {
        let generation = self.meta.generation.unwrap_or_default();
        u64::try_from(generation).unwrap_or_default()
    }

    fn parsed(&self) -> Option<&PoolSpec> {
        self.spec.as_ref()?.as_ref().ok()
    }
}

impl Settings {
    pub(super) fn new(client: Client, pool: &str, namespace: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
            client,
            object: None,
            map: None,
            kind_absent: false,
            neighbour: OtherOperator::default(),
            changing: changing::ClusterChanges::default(),
            too_old: None,
            stale: true,
            accepted: None,
            refused: None,
            answered: None,
        }
    }

    /// Forgets all objects before a list: an object that the list lacks no longer exists.
    pub(super) fn forget(&mut self) {
        self.object = None;
        self.map = None;
        self.kind_absent = false;
        self.stale = true;
    }

    /// Records which other operator runs. Returns whether that changed.
    pub(super) fn found(&mut self, neighbour: &OtherOperator) -> bool {
        let changed = self.neighbour != *neighbour;
        self.neighbour.clone_from(neighbour);
        self.stale |= changed;
        changed
    }

    /// Records which other operations change the cluster. Returns whether that changed.
    pub(super) fn found_changing(&mut self, seen: &changing::ClusterChanges) -> bool {
        let changed = self.changing != *seen;
        self.changing.clone_from(seen);
        self.stale |= changed;
        changed
    }

    /// Generation of the pool's object; 0 without one.
    pub(super) fn generation(&self) -> u64 {
        self.object.as_ref().map_or(0, PoolObject::generation)
    }

    /// Operations that changed the cluster at the last read.
    pub(super) fn changing(&self) -> &changing::ClusterChanges {
        &self.changing
    }

    /// Notes that the installed versions changed, so that the settings are resolved again.
    pub(super) fn stale(&mut self) {
        self.stale = true;
    }

    /// Notes that the cluster does not know the kind WindowsPool.
    pub(super) fn kind_absent(&mut self) {
        self.kind_absent = true;
        self.stale = true;
    }

    /// Records the pool's object as read or watched. An older version of the same object is ignored.
    pub(super) fn observe(&mut self, object: DynamicObject, resource: u64) {
        let DynamicObject { metadata, data, .. } = object;
        let newer = |old: &PoolObject| old.meta.uid == metadata.uid && old.resource > resource;
        if self.object.as_ref().is_some_and(newer) {
            return;
        }
        let spec = data.get("spec").filter(|spec| !spec.is_null());
        let spec = spec.map(|spec| PoolSpec::read(&self.pool, spec, &data["status"]));
        // The console writes the status again and again: only what the watcher reads of it counts.
        let same = |old: &PoolObject| {
            old.spec == spec
                && old.meta.uid == metadata.uid
                && old.meta.generation == metadata.generation
        };
        self.stale |= !self.object.as_ref().is_some_and(same);
        self.object = Some(PoolObject {
            meta: metadata,
            resource,
            spec,
        });
    }

    /// Forgets the deleted pool. Machines that come up then get the defaults, and no lease is granted.
    pub(super) fn lose(&mut self, uid: &str) {
        let lost = self
            .object
            .take_if(|object| object.meta.uid.as_deref() == Some(uid));
        self.stale |= lost.is_some();
    }

    /// Records the ConfigMap of an earlier build.
    pub(super) fn find_map(&mut self, meta: ObjectMeta) {
        self.stale |= self.map.is_none();
        self.map = Some(meta);
    }

    /// Forgets the deleted ConfigMap.
    pub(super) fn lose_map(&mut self, uid: &str) {
        let lost = self.map.take_if(|map| map.uid.as_deref() == Some(uid));
        self.stale |= lost.is_some();
    }

    /// Resolves the spec against the installed versions; `false` if neither changed. A refused spec leaves the accepted
    /// settings in force.
    pub(super) fn resolve(
        &mut self,
        installed: &impl Installed,
        servers: Option<ApiServers>,
    ) -> bool {
        if !std::mem::take(&mut self.stale) {
            return false;
        }
        let oldest = servers.map(|servers| servers.oldest);
        self.too_old = oldest.filter(|minor| *minor < OLDEST_MINOR);
        let spec = match self.object.as_ref().and_then(|object| object.spec.clone()) {
            Some(spec) => spec,
            None => Ok(PoolSpec::absent(&self.pool)),
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

    /// The settings as published to runs: the accepted ones, why grants are held, and why an edit was refused.
    pub(super) fn published(&self) -> PoolSettings {
        let bare = || PoolSettings {
            pool: self.pool.clone(),
            absent: true,
            verify: true,
            holds_live: true,
            ..PoolSettings::default()
        };
        let mut settings = self.accepted.clone().unwrap_or_else(bare);
        settings.refused = self.refused.as_ref().map(ToString::to_string);
        if let Some(HeldPages { why, cure }) = self.held(settings.absent) {
            settings.held = Some(cut(why));
            settings.held_cure = cure.map(cut);
        }
        settings.neighbour.clone_from(&self.neighbour);
        let changes = self.waits(settings.strategy);
        let joined = |part: fn(&changing::OtherChange) -> &str, between: &str| {
            let parts: Vec<&str> = changes.iter().map(|it| part(it)).collect();
            (!parts.is_empty()).then(|| cut(parts.join(between)))
        };
        settings.waits = joined(|it| &it.why, "; ");
        settings.waits_cure = joined(|it| &it.cure, ". ");
        settings.generation = self.object.as_ref().map_or(0, PoolObject::generation);
        settings.uid = self.object.as_ref().and_then(|it| it.meta.uid.clone());
        settings.edited = self.object.as_ref().and_then(|it| edited(&it.meta));
        // A pause or stop counts even if another field of the same spec is refused.
        let spec = self.object.as_ref().and_then(PoolObject::parsed);
        settings.paused |= spec.is_some_and(PoolSpec::paused) || settings.held.is_some();
        settings
    }

    /// What upgrades wait for.
    fn waits(&self, strategy: Strategy) -> Vec<&changing::OtherChange> {
        let spec = self.object.as_ref().and_then(PoolObject::parsed);
        let for_version = spec.is_none_or(|spec| spec.waits_for_cluster);
        let version = self.changing.version.as_ref().filter(|_| for_version);
        let check = self.changing.health_check.as_ref();
        let check = check.filter(|_| strategy == Strategy::InPlace);
        let all = [version, self.changing.worker_pool.as_ref(), check];
        all.into_iter().flatten().collect()
    }

    /// Why no lease is granted, and the remedy.
    fn held(&self, absent: bool) -> Option<HeldPages> {
        let Self {
            pool, namespace, ..
        } = self;
        if let Some(runs) = self.neighbour.runs() {
            return Some(HeldPages {
                why: runs.to_owned(),
                cure: None,
            });
        }
        if let Some(minor) = self.too_old {
            return Some(HeldPages::new(
                format!(
                    "an API server is at 1.{minor}, and dormer works with 1.{OLDEST_MINOR} and newer"
                ),
                "Upgrade the control plane",
            ));
        }
        if self.map.is_some() {
            let map = config_map(pool);
            let first = match self.kind_absent {
                true => "kubectl apply -f deploy/crd.yaml ; then ",
                false => "",
            };
            return Some(HeldPages::new(
                format!(
                    "the ConfigMap {namespace}/{map} holds settings of an earlier build, which dormer no longer reads"
                ),
                format!(
                    "Import the settings, and delete the ConfigMap: {first}dormer pool import -n {namespace} | kubectl \
                     apply -f - ; then kubectl -n {namespace} delete configmap {map}"
                ),
            ));
        }
        let create = format!("kubectl -n {namespace} apply -f deploy/pool.yaml");
        let stop = |object: &PoolObject| object.parsed().is_some_and(|spec| spec.stop);
        match &self.object {
            _ if self.kind_absent => Some(HeldPages::new(
                "the cluster has no CustomResourceDefinition WindowsPool",
                format!(
                    "Apply the definition and create the pool: kubectl apply -f deploy/crd.yaml ; then {create}"
                ),
            )),
            None => Some(HeldPages::new(
                format!("there is no WindowsPool {namespace}/{pool}"),
                format!("Create the pool: {create}"),
            )),
            Some(object) if object.spec.is_none() => Some(HeldPages::new(
                format!(
                    "an earlier build wrote the WindowsPool {namespace}/{pool}, and it has no spec"
                ),
                format!("Give the pool a spec: {create}"),
            )),
            Some(object) if stop(object) => Some(HeldPages::new(
                format!("spec.stop of the WindowsPool {namespace}/{pool} is true"),
                format!("Set spec.stop to false: kubectl -n {namespace} edit windowspool {pool}"),
            )),
            Some(_) if absent => Some(HeldPages::new(
                format!(
                    "dormer has not accepted any settings of the WindowsPool {namespace}/{pool} yet"
                ),
                format!(
                    "Correct the fields that its Events name: kubectl -n {namespace} describe windowspool {pool}"
                ),
            )),
            Some(_) => None,
        }
    }

    /// What the pool's Event is about now: the field of a refused spec, the reason, and the note.
    fn event(&self) -> Option<(Option<String>, &'static str, String)> {
        let published = self.published();
        if let Some(error) = &self.refused {
            let holds = match self.accepted {
                Some(_) => "Nothing changes: the settings before this edit hold.",
                None => {
                    "dormer has not accepted any settings since its start: new machines wait, and no upgrade begins."
                }
            };
            let note = format!("{error}. {holds}");
            return Some((Some(error.key.clone()), "BadPoolSetting", note));
        }
        if let Some(held) = published.held_in_full() {
            return Some((None, "GrantsHeld", format!("No lease is granted: {held}")));
        }
        let waits = published.waits.filter(|_| self.changing.long)?;
        let waits = with_remedy(&waits, published.waits_cure.as_deref());
        Some((None, "UpgradesWait", format!("No upgrade begins: {waits}")))
    }

    /// Writes an Event on the pool about a refused spec, held grants or waiting upgrades, once for each edit.
    pub(super) async fn answer(&mut self) {
        let Some((field, reason, note)) = self.event() else {
            self.answered = None;
            return;
        };
        let absent = || ObjectMeta {
            name: Some(self.pool.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        let (meta, generation) = match &self.object {
            Some(object) => (object.meta.clone(), object.generation()),
            None => (absent(), 0),
        };
        let this = (
            meta.uid.clone().unwrap_or_default(),
            generation,
            note.clone(),
        );
        if self.answered.as_ref() == Some(&this) {
            return;
        }
        tracing::warn!(pool = self.pool, "{reason}: {note}");
        write_event(&self.client, &meta, field, reason, note).await;
        self.answered = Some(this);
    }
}

/// Writes a warning Event about the pool. Errors are only logged.
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
        Ok(Err(error)) => tracing::warn!("no Event on the pool: {error}"),
        Err(_) => tracing::warn!("no Event on the pool: it takes too long"),
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
        api_version: Some("dormer.io/v1beta1".to_owned()),
        kind: Some("WindowsPool".to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::pool::Desired;
    use std::collections::BTreeMap;
    use tokio::sync::watch;

    struct Nothing(watch::Sender<u64>);

    impl Installed for Nothing {
        fn desired(&self, _: &str, _: Option<&str>) -> Result<BTreeMap<String, Desired>, String> {
            Ok(BTreeMap::from([("*".to_owned(), Desired::default())]))
        }

        fn changed(&self) -> watch::Receiver<u64> {
            self.0.subscribe()
        }
    }

    #[tokio::test]
    async fn a_control_plane_that_is_too_old_gets_no_lease_and_says_why() {
        let nowhere = "http://127.0.0.1:1".parse().expect("a URL");
        let client = Client::try_from(kube::Config::new(nowhere)).expect("a client");
        let mut settings = Settings::new(client, "windows", "dormer");
        let nothing = Nothing(watch::Sender::new(0));
        let servers = |oldest| {
            Some(ApiServers {
                oldest,
                newest: OLDEST_MINOR,
            })
        };
        for (oldest, old) in [(OLDEST_MINOR - 1, true), (OLDEST_MINOR, false)] {
            settings.stale();
            assert!(settings.resolve(&nothing, servers(oldest)));
            let published = settings.published();
            assert!(published.paused, "there is no pool in any case");
            let cure = published.held_cure.unwrap_or_default();
            assert_eq!(cure == "Upgrade the control plane", old, "{cure}");
        }
    }

    #[tokio::test]
    async fn the_rollout_and_no_machine_is_given_who_edited_the_pool() {
        let nowhere = "http://127.0.0.1:1".parse().expect("a URL");
        let client = Client::try_from(kube::Config::new(nowhere)).expect("a client");
        let mut settings = Settings::new(client, "windows", "dormer");
        let pool = serde_json::json!({
            "metadata": {"name": "windows", "namespace": "dormer", "uid": "u", "generation": 2, "managedFields": [
                {"manager": "kubectl-edit", "operation": "Update", "time": "2026-11-25T08:00:00Z",
                 "fieldsV1": {"f:spec": {"f:paused": {}}}},
            ]},
            "spec": {"paused": true},
        });
        settings.observe(serde_json::from_value(pool).expect("a pool"), 1);
        settings.resolve(&Nothing(watch::Sender::new(0)), None);
        let published = settings.published();
        let by = published.edited.clone().expect("an edit");
        assert_eq!(
            (by.program.as_str(), by.fields),
            ("kubectl-edit", vec!["paused".into()])
        );
        let machine = published.for_machine().expect("settings");
        assert_eq!(machine.edited, None);
    }

    /// Both may happen while no watcher runs. A worker may have refused a machine's change in between.
    #[tokio::test]
    async fn a_pool_that_was_deleted_and_made_again_is_another_one_to_its_machines() {
        let nowhere = "http://127.0.0.1:1".parse().expect("a URL");
        let client = Client::try_from(kube::Config::new(nowhere)).expect("a client");
        let mut settings = Settings::new(client, "windows", "dormer");
        let mut published = |uid: &str| {
            let meta = serde_json::json!({"name": "windows", "namespace": "dormer", "uid": uid, "generation": 1});
            let pool = serde_json::json!({"metadata": meta, "spec": {}});
            settings.observe(serde_json::from_value(pool).expect("a pool"), 1);
            settings.resolve(&Nothing(watch::Sender::new(0)), None);
            settings.published().for_machine().expect("settings")
        };
        let first = published("u1");
        assert_eq!(first, published("u1"));
        assert_ne!(first, published("u2"));
    }

    #[tokio::test]
    async fn a_refused_spec_has_settings_before_it_only_if_some_were_accepted() {
        let nowhere = "http://127.0.0.1:1".parse().expect("a URL");
        let client = Client::try_from(kube::Config::new(nowhere)).expect("a client");
        for accepted in [false, true] {
            let mut settings = Settings::new(client.clone(), "windows", "dormer");
            let good = (1, serde_json::json!({}));
            let bad = (2, serde_json::json!({"soak": "never"}));
            for (generation, spec) in [good, bad].into_iter().skip(usize::from(!accepted)) {
                let meta = serde_json::json!({
                    "name": "windows", "namespace": "dormer", "uid": "u", "generation": generation,
                });
                let pool = serde_json::json!({"metadata": meta, "spec": spec});
                settings.observe(serde_json::from_value(pool).expect("a pool"), 1);
                settings.resolve(&Nothing(watch::Sender::new(0)), None);
            }
            let (_, reason, note) = settings.event().expect("an Event");
            assert_eq!(reason, "BadPoolSetting");
            assert_eq!(
                note.contains("the settings before this edit hold"),
                accepted,
                "{note}"
            );
            assert_eq!(note.contains("new machines wait"), !accepted, "{note}");
        }
    }

    #[tokio::test]
    async fn a_wait_for_the_cluster_is_an_event_only_when_it_is_long() {
        let nowhere = "http://127.0.0.1:1".parse().expect("a URL");
        let client = Client::try_from(kube::Config::new(nowhere)).expect("a client");
        let mut settings = Settings::new(client, "windows", "dormer");
        let pool = serde_json::json!({
            "metadata": {"name": "windows", "namespace": "dormer", "uid": "u", "generation": 1},
            "spec": {},
        });
        settings.observe(serde_json::from_value(pool).expect("a pool"), 1);
        let servers = ApiServers {
            oldest: OLDEST_MINOR,
            newest: OLDEST_MINOR,
        };
        settings.resolve(&Nothing(watch::Sender::new(0)), Some(servers));
        assert_eq!(settings.event(), None);
        for long in [false, true] {
            settings.found_changing(&changing::ClusterChanges {
                version: Some(changing::OtherChange {
                    why: "ClusterVersion is at 4.19".into(),
                    cure: "Wait for it".into(),
                }),
                long,
                ..changing::ClusterChanges::default()
            });
            settings.resolve(&Nothing(watch::Sender::new(0)), Some(servers));
            let event = settings.event();
            assert_eq!(event.is_some(), long, "{event:?}");
            if let Some((_, reason, note)) = event {
                assert_eq!(reason, "UpgradesWait");
                assert!(
                    note.contains("ClusterVersion is at 4.19. Wait for it"),
                    "{note}"
                );
            }
        }
    }
}
