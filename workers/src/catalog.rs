//! Catalog of profiles and payloads that this worker can install, with their versions.

use crate::{
    payload::Payload,
    pool::{Edges, Installed},
};
use dormer_profile::{
    builds, builtin,
    cluster_config::{ClusterConfig, ClusterSnapshot},
    layers::Layer,
    payload::Manifest,
    problem::Problems,
    profile::Profile,
    version::version_in,
};
use dormer_proto::{lock::ReadWriteLocked as _, message::Failure, pool::Desired};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, RwLock},
};
use tokio::sync::watch;

/// Number of outdated versions that are still found.
const RETIRED_MAX: usize = 64;

/// Profile and payload of one version: the content of a [`Desired`].
#[derive(Debug, Clone)]
pub struct InstalledVersion {
    /// The layered profile.
    pub profile: Arc<Profile>,
    pub payload: Arc<Payload>,
    /// The cluster around its nodes.
    pub cluster_config: Arc<ClusterConfig>,
}

#[derive(Default)]
struct CatalogState {
    /// The users' layers.
    layers: Vec<Layer>,
    cluster_config: Arc<ClusterConfig>,
    /// Whether the cluster was read yet.
    cluster_read: bool,
    profiles: BTreeMap<String, Arc<Profile>>,
    /// Sentences about settings of the cluster that the layers contradict.
    contradicted: Vec<String>,
    payloads: Vec<Arc<Payload>>,
    /// The latest day that was set, UTC (`2027-03-01`); empty before the first.
    today: String,
    /// Sentences about payloads that cannot be used, by their places.
    unusable: BTreeMap<String, String>,
    versions: BTreeMap<String, InstalledVersion>,
    /// Outdated versions of earlier layers and cluster settings; the newest first.
    retired: VecDeque<(String, InstalledVersion)>,
}

/// Profiles and payloads. Clones share one catalog.
#[derive(Clone)]
pub struct Catalog {
    /// Lock held for a lookup or a swap, never across an await.
    inner: Arc<RwLock<CatalogState>>,
    changed: watch::Sender<u64>,
}

impl Catalog {
    /// The built-in profiles with the users' layers on top of each (of one, where a layer names it), and no payload
    /// yet.
    ///
    /// # Errors
    /// A layer has mistakes.
    pub fn new(layers: &[Layer]) -> Result<Self, Problems> {
        let (profiles, _) = profiles(layers, &ClusterConfig::default())?;
        let inner = CatalogState {
            profiles,
            layers: layers.to_vec(),
            ..CatalogState::default()
        };
        Ok(Self {
            inner: Arc::new(RwLock::new(inner)),
            changed: watch::Sender::new(0),
        })
    }

    /// Replaces the layers. Versions of the old layers are still found, so that they can be compared and removed.
    ///
    /// # Errors
    /// A layer has mistakes: nothing changes.
    pub fn set_layers(&self, layers: &[Layer]) -> Result<(), Problems> {
        {
            let mut inner = self.inner.write_locked();
            (inner.profiles, inner.contradicted) = profiles(layers, &inner.cluster_config)?;
            inner.layers = layers.to_vec();
            inner.renew();
        }
        self.changed.send_modify(|n| *n += 1);
        Ok(())
    }

    /// Applies the settings that were read from the cluster. Returns a sentence for each setting that is not understood
    /// or not possible on Windows; for those the previous value stays.
    #[must_use]
    pub fn read_cluster(&self, look: ClusterSnapshot) -> Vec<String> {
        let (renewed, warnings) = {
            let mut inner = self.inner.write_locked();
            let first = !inner.cluster_read;
            let (cluster_config, mut warnings) = inner.cluster_config.with(look, first);
            inner.cluster_read = true;
            let renewed = inner.follow(cluster_config, first, &mut warnings);
            warnings.extend(inner.contradicted.iter().cloned());
            (renewed, warnings)
        };
        if renewed {
            self.changed.send_modify(|n| *n += 1);
        }
        warnings
    }

    /// Settings of the cluster as they are in force here.
    #[must_use]
    pub fn cluster_config(&self) -> Arc<ClusterConfig> {
        let inner = self.inner.read_locked();
        Arc::clone(&inner.cluster_config)
    }

    /// Applies the settings that another process read from the cluster.
    ///
    /// # Errors
    /// The layers do not fit them: nothing changes.
    pub fn set_cluster(&self, cluster_config: ClusterConfig) -> Result<(), Problems> {
        let renewed = {
            let mut inner = self.inner.write_locked();
            inner.cluster_read = true;
            let renewed = cluster_config != *inner.cluster_config;
            if renewed {
                (inner.profiles, inner.contradicted) = profiles(&inner.layers, &cluster_config)?;
                inner.cluster_config = Arc::new(cluster_config);
                inner.renew();
            }
            renewed
        };
        if renewed {
            self.changed.send_modify(|n| *n += 1);
        }
        Ok(())
    }

    /// Adds a payload, or replaces one with the same version.
    pub fn add(&self, payload: Payload) {
        {
            let mut inner = self.inner.write_locked();
            inner
                .payloads
                .retain(|known| known.manifest.version != payload.manifest.version);
            inner.payloads.push(Arc::new(payload));
            inner
                .payloads
                .sort_by(|a, b| order(&a.manifest.version, &b.manifest.version));
            inner.index();
        }
        self.changed.send_modify(|n| *n += 1);
    }

    /// Sets the present day, UTC (`2027-03-01`): payloads expire when a day begins. A clock that is set back changes
    /// nothing. Returns a sentence for each payload that has expired since the last call.
    #[must_use]
    pub fn set_today(&self, today: &str) -> Vec<String> {
        let fresh: Vec<String> = {
            let mut inner = self.inner.write_locked();
            if today <= inner.today.as_str() {
                return Vec::new();
            }
            let before = std::mem::replace(&mut inner.today, today.to_owned());
            let payloads = inner.payloads.iter();
            payloads
                .filter(|it| !it.manifest.expired(&before))
                .filter_map(|it| inner.expired(&it.manifest))
                .collect()
        };
        if !fresh.is_empty() {
            self.changed.send_modify(|n| *n += 1);
        }
        fresh
    }

    /// The profile and payload of a version.
    ///
    /// # Errors
    /// `VersionNotHere`: this worker does not have it; another or a newer one may.
    pub fn find(&self, desired: &Desired) -> Result<InstalledVersion, Failure> {
        let inner = self.inner.read_locked();
        let found = inner.versions.get(&desired.version);
        found.or_else(|| inner.retired(&desired.version)).cloned().ok_or_else(|| {
            let known = inner.versions.keys().cloned().collect::<Vec<_>>().join(", ");
            let message = format!(
                "this worker cannot make version {} (payload {}); it has {}: give it the same payload folder, \
                 layers and build of dormer as the watcher, and the same rights to read the cluster's settings",
                desired.version,
                desired.payload,
                if known.is_empty() { "none".to_owned() } else { known }
            );
            Failure::transient(VERSION_NOT_HERE, message)
        })
    }

    /// Manifests of every payload here, the oldest first.
    #[must_use]
    pub fn manifests(&self) -> Vec<Manifest> {
        let inner = self.inner.read_locked();
        let payloads = inner.payloads.iter();
        payloads.map(|payload| payload.manifest.clone()).collect()
    }

    /// Records why the payload at `place` cannot be used, or with `None` that it can.
    pub fn note_unusable(&self, place: &str, why: Option<String>) {
        let mut inner = self.inner.write_locked();
        match why {
            Some(why) => drop(inner.unusable.insert(place.to_owned(), why)),
            None => drop(inner.unusable.remove(place)),
        }
    }

    /// Sentences about the payloads that cannot be used.
    #[must_use]
    pub fn unusable(&self) -> Vec<String> {
        let inner = self.inner.read_locked();
        inner.unusable.values().cloned().collect()
    }

    /// Folder names of every payload here: the cleanup on a host keeps them.
    #[must_use]
    pub fn folders(&self) -> Vec<String> {
        let inner = self.inner.read_locked();
        inner
            .payloads
            .iter()
            .map(|payload| payload.manifest.folder())
            .collect()
    }
}

impl CatalogState {
    /// Applies settings that were read from the cluster. If a layer of the pool cannot be stacked, the layers before stay,
    /// and everything else is applied. Returns whether anything is other than before.
    fn follow(&mut self, mut next: ClusterConfig, first: bool, warnings: &mut Vec<String>) -> bool {
        if next == *self.cluster_config {
            return false;
        }
        let mut stacked = profiles(&self.layers, &next);
        if stacked.is_err()
            && let Some(why) = self.refused_layer(&next)
        {
            let (kept, sentence) = next.with_layers_of(&self.cluster_config, first, why);
            warnings.push(sentence);
            if kept == *self.cluster_config {
                return false;
            }
            stacked = profiles(&self.layers, &kept);
            next = kept;
        }
        match stacked {
            Ok((profiles, contradicted)) => {
                self.profiles = profiles;
                self.contradicted = contradicted;
                self.cluster_config = Arc::new(next);
                self.renew();
                true
            }
            Err(problems) => {
                warnings.push(format!("the cluster and the layers: {problems}"));
                false
            }
        }
    }

    /// The first of the pool's layers that cannot be stacked, with the mistake. `None`: it is none of them.
    fn refused_layer(&self, of: &ClusterConfig) -> Option<String> {
        let mut counts = 0..=of.layers().len();
        let (count, problems) = counts.find_map(|count| {
            let stacked = profiles(&self.layers, &of.with_lowest_layers(count));
            Some((count, stacked.err()?))
        })?;
        let layer = of.layers().get(count.checked_sub(1)?)?;
        let said = problems.below(&layer.name).to_string();
        Some(said.replace('\n', "; "))
    }

    fn version(&self, profile: &Profile, payload: &Payload) -> String {
        version_in(&self.cluster_config, profile, &payload.manifest)
    }

    /// Why no upgrade to a payload begins any more, if it has expired.
    fn expired(&self, manifest: &Manifest) -> Option<String> {
        let Manifest {
            version, expires, ..
        } = manifest;
        manifest.expired(&self.today).then(|| {
            format!(
                "payload {version} expired on {expires}, and no upgrade to it begins: install a newer payload, or one of this \
                 content with a later `expires` and a version of its own"
            )
        })
    }

    fn retired(&self, version: &str) -> Option<&InstalledVersion> {
        self.retired
            .iter()
            .find(|(known, _)| known == version)
            .map(|(_, found)| found)
    }

    /// Other versions, after other layers or surroundings; those there were are still found.
    fn renew(&mut self) {
        for before in std::mem::take(&mut self.versions) {
            self.retired.push_front(before);
        }
        self.index();
        let versions = &self.versions;
        self.retired
            .retain(|(version, _)| !versions.contains_key(version));
        self.retired.truncate(RETIRED_MAX);
    }

    fn index(&mut self) {
        self.versions.clear();
        let mut versions = BTreeMap::new();
        for profile in self.profiles.values() {
            for payload in &self.payloads {
                let profile = profile.clone();
                let payload = payload.clone();
                let version = self.version(&profile, &payload);
                let cluster_config = Arc::clone(&self.cluster_config);
                versions.insert(
                    version,
                    InstalledVersion {
                        profile,
                        payload,
                        cluster_config,
                    },
                );
            }
        }
        self.versions = versions;
    }
}

impl Installed for Catalog {
    fn desired(
        &self,
        profile: &str,
        payload: Option<&str>,
    ) -> Result<BTreeMap<String, Desired>, String> {
        let inner = self.inner.read_locked();
        if !inner.cluster_config.unknown.is_empty() {
            let unknown = inner.cluster_config.unknown.join("; ");
            return Err(format!(
                "what nodes should be is unknown: the cluster's {unknown} cannot be read"
            ));
        }
        let names = || {
            inner
                .profiles
                .keys()
                .cloned()
                .collect::<Vec<_>>()
                .join(", ")
        };
        let layered = inner.profiles.get(profile);
        let layered = layered
            .ok_or_else(|| format!("there is no profile {profile:?}; there are {}", names()))?;
        let chosen = match payload {
            None => inner.payloads.last(),
            Some(wanted) => inner.payloads.iter().find(|p| p.manifest.version == wanted),
        };
        let chosen = chosen.ok_or_else(|| match payload {
            None => "no payload is installed; start dormer with --payload FOLDER".to_owned(),
            Some(wanted) => {
                let all: Vec<_> = inner
                    .payloads
                    .iter()
                    .map(|p| p.manifest.version.as_str())
                    .collect();
                format!(
                    "payload {wanted} is not installed; there are {}",
                    all.join(", ")
                )
            }
        })?;
        let desired = Desired {
            version: inner.version(layered, chosen),
            payload: chosen.manifest.version.clone(),
        };
        let builds = chosen.manifest.windows_builds.iter();
        Ok(builds
            .map(|build| (build.clone(), desired.clone()))
            .collect())
    }

    fn edges(&self, payload: &str) -> Option<Edges> {
        let inner = self.inner.read_locked();
        let found = inner
            .payloads
            .iter()
            .find(|known| known.manifest.version == payload)?;
        let kubelet = found.manifest.kubelet_minor();
        let containerd = found.manifest.containerd.clone();
        Some(Edges {
            may_follow: found.manifest.may_follow.clone(),
            kubelet,
            containerd: Some(containerd).filter(|it| !it.is_empty()),
            platforms: found.manifest.platforms.clone(),
            expired: inner.expired(&found.manifest),
            canary: Some(found.manifest.canary.clone()).filter(|it| !it.is_empty()),
            build: found.build.clone(),
        })
    }

    fn refused_builds(&self, profile: &str, payload: &str) -> BTreeMap<String, String> {
        let inner = self.inner.read_locked();
        let mut payloads = inner.payloads.iter();
        let payload = payloads.find(|known| known.manifest.version == payload);
        let Some((profile, payload)) = inner.profiles.get(profile).zip(payload) else {
            return BTreeMap::new();
        };
        builds::refused_builds(profile, &payload.manifest, &inner.cluster_config)
    }

    fn read_cluster(&self, look: ClusterSnapshot) -> Vec<String> {
        Self::read_cluster(self, look)
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// Profiles by name, and sentences about settings of the cluster that the layers contradict.
type Profiles = (BTreeMap<String, Arc<Profile>>, Vec<String>);

/// The built-in profiles, each completed with the cluster's values, if it has fields for them, and the layers that fit
/// it: those of the start below those of the pool.
fn profiles(layers: &[Layer], cluster_config: &ClusterConfig) -> Result<Profiles, Problems> {
    let mut profiles = BTreeMap::new();
    let mut contradicted = Vec::new();
    for name in builtin::NAMES {
        let below = builtin::layer(name)?;
        let above = layers.iter().chain(cluster_config.layers());
        let above: Vec<Layer> = above.filter(|it| it.fits(name)).cloned().collect();
        // Objects of OpenShift are no settings of the other profile's nodes.
        let none = ClusterConfig::default();
        let followed = name == "openshift";
        let cluster_config = if followed { cluster_config } else { &none };
        let layered = cluster_config.layered(&below, &above);
        let (profile, said) = layered.map_err(|problems| problems.below(name))?;
        profiles.insert(name.to_owned(), Arc::new(profile));
        contradicted.extend(said);
    }
    Ok((profiles, contradicted))
}

/// The code of a failure: this process does not have that version.
pub const VERSION_NOT_HERE: &str = "VersionNotHere";

/// Order of versions by their numbers, `10.9.0` before `10.10.0`; other parts compare as text. What follows a `-` is a
/// release candidate or the like, and comes before the release, as in Semantic Versioning.
pub fn order(a: &str, b: &str) -> std::cmp::Ordering {
    let parts = |text: &str| -> Vec<(Option<u64>, String)> {
        text.split(['.', '-', '+'])
            .map(|part| (part.parse().ok(), part.to_owned()))
            .collect()
    };
    let split = |version: &str| {
        let (release, candidate) = match version.split_once('-') {
            Some((release, candidate)) => (release.to_owned(), Some(candidate.to_owned())),
            None => (version.to_owned(), None),
        };
        let candidate = candidate.map(|candidate| parts(&candidate));
        (parts(&release), candidate.is_none(), candidate)
    };
    split(a).cmp(&split(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_profile::render::EXAMPLE_PAYLOAD;

    fn payload(version: &str) -> Payload {
        let manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
        let manifest = Manifest {
            version: version.into(),
            ..manifest
        };
        Payload::in_memory(manifest, BTreeMap::new())
    }

    #[test]
    fn versions_are_ordered_by_their_numbers_and_a_candidate_comes_before_its_release() {
        let all = [
            "9.9.9",
            "10.9.0",
            "10.10.0",
            "11.0.0-rc.1",
            "11.0.0-rc.2",
            "11.0.0",
            "11.0.0+1",
        ];
        for (n, one) in all.iter().enumerate() {
            for (m, other) in all.iter().enumerate() {
                assert_eq!(order(one, other), n.cmp(&m), "{one} {other}");
            }
        }
    }

    #[test]
    fn the_newest_payload_is_the_installed_one() {
        let catalog = Catalog::new(&[]).expect("a catalog");
        assert!(catalog.desired("openshift", None).is_err());
        for version in ["10.9.0", "10.10.0", "9.99.9"] {
            catalog.add(payload(version));
        }
        let desired = catalog.desired("openshift", None).expect("a version");
        assert_eq!(desired["10.0.20348"].payload, "10.10.0");
        let older = catalog
            .desired("openshift", Some("9.99.9"))
            .expect("a version");
        let older = &older["10.0.20348"];
        assert_eq!(
            catalog.find(older).expect("found").payload.manifest.version,
            "9.99.9"
        );
        let unknown = Desired {
            version: "x".into(),
            payload: "x".into(),
        };
        assert_eq!(
            catalog.find(&unknown).expect_err("unknown").code,
            "VersionNotHere"
        );
        assert!(
            catalog
                .desired("gentoo", None)
                .expect_err("none")
                .contains("openshift")
        );
    }

    /// What a pool learns of a payload that ends on 1 March, day by day.
    #[test]
    fn an_expired_payload_stays_installed_and_takes_no_upgrade() {
        let catalog = Catalog::new(&[]).expect("a catalog");
        let mut ends = payload("11.0.0");
        ends.manifest.expires = "2027-03-01".into();
        catalog.add(ends);
        catalog.add(payload("10.9.0"));
        let why = |version| catalog.edges(version).expect("installed").expired;
        assert!(catalog.set_today("2027-02-28").is_empty());
        assert_eq!(why("11.0.0"), None);
        let mut changed = catalog.changed();
        changed.mark_unchanged();
        let said = catalog.set_today("2027-03-01");
        assert!(
            changed.has_changed().expect("a catalog"),
            "pools are read again"
        );
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("payload 11.0.0 expired on 2027-03-01"));
        assert_eq!(
            (why("11.0.0"), why("10.9.0")),
            (Some(said[0].clone()), None)
        );
        let desired = catalog.desired("openshift", None).expect("a version");
        assert_eq!(desired["10.0.20348"].payload, "11.0.0", "new nodes get it");
        for later in ["2027-02-01", "2027-03-02"] {
            assert!(catalog.set_today(later).is_empty(), "{later}: it was said");
            assert!(why("11.0.0").is_some(), "{later}");
        }
    }

    #[test]
    fn other_layers_make_other_versions_and_the_old_ones_are_still_found() {
        let catalog = Catalog::new(&[]).expect("a catalog");
        catalog.add(payload("11.0.0"));
        let before = catalog.desired("openshift", None).expect("a version")["10.0.20348"].clone();
        let wrong = Layer::parse("user", "host: {hostname: '${NOPE}'}").expect("a layer");
        assert!(catalog.set_layers(&[wrong]).is_err());
        let flag = "host: {services: {kubelet: {environment: {TEAM: blue}}}}";
        catalog
            .set_layers(&[Layer::parse("user", flag).expect("a layer")])
            .expect("taken");
        let after = catalog.desired("openshift", None).expect("a version")["10.0.20348"].clone();
        assert_ne!(before.version, after.version);
        let old = catalog.find(&before).expect("old");
        let new = catalog.find(&after).expect("new");
        assert_ne!(old.profile, new.profile);
    }

    #[test]
    fn a_pools_layers_lie_on_top_and_a_wrong_one_keeps_the_last_reading() {
        let team = |name: &str, value: &str| {
            let text =
                format!("host: {{services: {{kubelet: {{environment: {{TEAM: {value}}}}}}}}}");
            Layer::parse(&format!("ConfigMap dormer/{name}"), &text).expect("a layer")
        };
        let of = |layers| ClusterSnapshot {
            layers,
            ..ClusterSnapshot::default()
        };
        for profile in builtin::NAMES {
            let catalog = Catalog::new(&[team("start", "none")]).expect("a catalog");
            catalog.add(payload("11.0.0"));
            let version = || {
                catalog
                    .desired(profile, None)
                    .map(|all| all["10.0.20348"].clone())
            };
            let value = || {
                let found = catalog.find(&version().expect("a version")).expect("found");
                found.profile.host.services["kubelet"].environment["TEAM"].clone()
            };
            assert!(catalog.read_cluster(of(Ok(Vec::new()))).is_empty());
            let before = version().expect("a version");
            let both = vec![team("a", "red"), team("b", "blue")];
            assert!(catalog.read_cluster(of(Ok(both))).is_empty());
            let layered = version().expect("a version");
            assert_ne!(layered.version, before.version, "{profile}");
            assert!(
                format!("{:?}", value()).contains("blue"),
                "the last one is on top"
            );
            assert!(catalog.find(&before).is_ok(), "the old one is still found");
            let mistake = Layer::parse("ConfigMap dormer/c", "host: {hostname: '${NOPE}'}");
            let mistake = mistake.expect("a layer");
            let absent = "there is no ConfigMap dormer/d".to_owned();
            let mut changed = catalog.changed();
            for (layers, named) in [
                (
                    Ok(vec![team("a", "green"), mistake]),
                    "ConfigMap dormer/c: ",
                ),
                (Err(absent), "ConfigMap dormer/d"),
            ] {
                let said = catalog.read_cluster(of(layers.clone()));
                assert!(said.len() == 1 && said[0].contains(named), "{said:?}");
                assert_eq!(version().expect("the layers before"), layered);
                let refused = catalog.cluster_config().layers_refused.clone();
                assert!(refused.is_some_and(|why| why.contains(named)));
                changed.mark_unchanged();
                assert_eq!(
                    catalog.read_cluster(of(layers)),
                    said,
                    "as long as it is so"
                );
                assert!(!changed.has_changed().expect("a catalog"), "nothing is new");
            }
            // Everything else of the same reading counts.
            let mirrored = ClusterSnapshot {
                vxlan_port: Ok(Some(9898)),
                ..of(Err("unread".into()))
            };
            assert_eq!(catalog.read_cluster(mirrored).len(), 1);
            assert_ne!(version().expect("a version"), layered);
            assert!(catalog.read_cluster(of(Ok(Vec::new()))).is_empty());
            assert_eq!(version().expect("a version"), before);
            assert_eq!(catalog.cluster_config().layers_refused, None);
        }
    }

    #[test]
    fn after_a_start_with_a_wrong_layer_no_machine_gets_a_version() {
        let catalog = Catalog::new(&[]).expect("a catalog");
        catalog.add(payload("11.0.0"));
        let layer = |text: &str| Layer::parse("ConfigMap dormer/a", text).expect("a layer");
        let of = |text: &str| ClusterSnapshot {
            layers: Ok(vec![layer(text)]),
            ..ClusterSnapshot::default()
        };
        let wrong = of("host: {hostname: '${NOPE}'}");
        for _ in 0..2 {
            assert_eq!(catalog.read_cluster(wrong.clone()).len(), 1);
            let why = catalog.desired("openshift", None).expect_err("unknown");
            assert!(why.contains("ConfigMap dormer/a"), "{why}");
        }
        let right = of("host: {services: {kubelet: {environment: {TEAM: blue}}}}");
        assert!(catalog.read_cluster(right).is_empty());
        assert!(catalog.desired("openshift", None).is_ok());
    }

    #[test]
    fn another_cluster_around_makes_another_version_and_the_old_one_is_still_found() {
        use dormer_profile::proxy::Proxy;
        let catalog = Catalog::new(&[]).expect("a catalog");
        catalog.add(payload("11.0.0"));
        let version = || {
            catalog
                .desired("openshift", None)
                .map(|all| all["10.0.20348"].clone())
        };
        let before = version().expect("a version");
        let unread = ClusterSnapshot {
            proxy: Err("dormer may not get it".into()),
            ..ClusterSnapshot::default()
        };
        assert_eq!(catalog.read_cluster(unread.clone()).len(), 1);
        let why = version().expect_err("nobody knows the proxy");
        assert!(why.contains("proxy: dormer may not get it"), "{why}");
        assert!(catalog.read_cluster(ClusterSnapshot::default()).is_empty());
        assert_eq!(version().expect("nothing is said"), before);
        let proxy = Proxy::new("http://proxy.example", "", "", "7");
        let proxied = ClusterSnapshot {
            proxy: Ok(proxy),
            ..ClusterSnapshot::default()
        };
        let mut changed = catalog.changed();
        changed.mark_unchanged();
        assert!(catalog.read_cluster(proxied.clone()).is_empty());
        assert!(changed.has_changed().expect("a catalog"));
        let after = version().expect("a version");
        assert_ne!(after.version, before.version);
        assert_ne!(
            catalog.find(&before).expect("old").cluster_config,
            catalog.find(&after).expect("new").cluster_config
        );
        changed.mark_unchanged();
        assert_eq!(catalog.read_cluster(unread).len(), 1);
        assert_eq!(version().expect("the old proxy holds"), after);
        assert!(
            catalog.read_cluster(proxied).is_empty() && !changed.has_changed().expect("a catalog")
        );
    }

    #[test]
    fn a_setting_of_the_cluster_that_a_layer_contradicts_is_named_and_stops_no_other() {
        use dormer_profile::kubelet_config::KubeletConfig;
        let low = r"host: {files: {'C:\k\kubelet.conf': {json: {imageGCLowThresholdPercent: 75}}}}";
        let layer = |text: &str| Layer::parse("user", text).expect("a layer");
        let catalog = Catalog::new(&[layer(low)]).expect("a catalog");
        let of = |settings| ClusterSnapshot {
            kubelet_configs: Ok(vec![KubeletConfig {
                name: "a".into(),
                settings,
                ..KubeletConfig::default()
            }]),
            ..ClusterSnapshot::default()
        };
        let both = of(
            serde_json::json!({"maxPods": 99, "imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 60}),
        );
        // The sentence stays as long as it holds.
        for _ in 0..2 {
            let said = catalog.read_cluster(both.clone());
            assert!(
                said.len() == 1 && said[0].contains("The layers count"),
                "{said:?}"
            );
        }
        catalog.add(payload("11.0.0"));
        let desired = catalog.desired("openshift", None).expect("a version");
        let found = catalog.find(&desired["10.0.20348"]).expect("found");
        let json = found.profile.host.files[r"C:\k\kubelet.conf"].json.clone();
        let json = json.expect("JSON");
        assert_eq!(
            (&json["maxPods"], &json["imageGCLowThresholdPercent"]),
            (&99.into(), &75.into())
        );
        catalog.set_layers(&[]).expect("taken");
        assert!(catalog.read_cluster(both).is_empty());
    }

    /// A payload for Server 2019 and 2022 in a cluster whose port of VXLAN is not the usual one.
    #[test]
    fn a_port_of_vxlan_refuses_the_hosts_of_server_2019_only() {
        let catalog = Catalog::new(&[]).expect("a catalog");
        catalog.add(payload("11.0.0"));
        let refused = |profile: &str| catalog.refused_builds(profile, "11.0.0");
        let port = |port: Option<u16>| ClusterSnapshot {
            vxlan_port: Ok(port),
            ..ClusterSnapshot::default()
        };
        for usual in [None, Some(4789)] {
            assert!(catalog.read_cluster(port(usual)).is_empty());
            assert!(refused("openshift").is_empty(), "{usual:?}");
        }
        assert!(catalog.read_cluster(port(Some(9898))).is_empty());
        let all = refused("openshift");
        assert_eq!(all.keys().collect::<Vec<_>>(), ["10.0.17763"]);
        let why = &all["10.0.17763"];
        assert!(
            why.contains("cannot change the port of VXLAN to 9898"),
            "{why}"
        );
        let nobody_reads_it = refused("upstream");
        assert!(nobody_reads_it.is_empty(), "{nobody_reads_it:?}");
        // A layer may name a port, too.
        assert!(catalog.read_cluster(port(None)).is_empty());
        let flag = "node: {services: {hybrid-overlay-node: {command: [a, --hybrid-overlay-vxlan-port=9900]}}}";
        let layer = Layer::parse("user", flag).expect("a layer");
        catalog.set_layers(&[layer]).expect("taken");
        assert!(refused("openshift")["10.0.17763"].contains("to 9900"));
        assert!(catalog.refused_builds("openshift", "9.9.9").is_empty());
    }
}
