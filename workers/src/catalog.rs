//! Catalog of profiles and payloads that this worker can install, with their versions.

use crate::{
    payload_keys::PayloadKeys,
    pool::{Edges, Installed},
    program_file::Program,
    sum::sum,
};
use bytes::Bytes;
use dormer_profile::{
    builds, builtin,
    cluster_config::{ClusterConfig, ClusterSnapshot},
    layers::{Layer, stack},
    payload::{CONTAINERD_UNNAMED, MANIFEST_FILE, Manifest, PayloadReader, SIGNATURE_FILE},
    problem::Problems,
    profile::Profile,
    release::Release,
    version::version_in,
};
use dormer_proto::{message::Failure, pool::Desired};
use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Read, Seek},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};
use tokio::{io::AsyncRead, sync::watch};

/// Largest manifest that is read, in bytes.
const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Largest signature that is read, in bytes. minisign writes less than 1 KiB.
const SIGNATURE_BYTES_MAX: u64 = 8 << 10;
/// The container runtime, by its name in a payload.
pub const CONTAINERD: &str = "containerd.exe";
/// The kubelet, by its name in a payload.
pub const KUBELET: &str = "kubelet.exe";
/// kube-proxy, by its name in a payload.
pub const KUBE_PROXY: &str = "kube-proxy.exe";
/// kube-log-runner, by its name in a payload. Its flags are those of the kubelet's release.
pub const LOG_RUNNER: &str = "kube-log-runner.exe";
/// Programs whose release decides how their configuration is written.
pub const RELEASED: [&str; 4] = [CONTAINERD, KUBELET, KUBE_PROXY, LOG_RUNNER];
/// First containerd that a manifest has to name (docs/settings.md).
const CONTAINERD_NAMED_FROM: Release = Release::new(2, 4);
/// Number of outdated versions that are still found.
const RETIRED_MAX: usize = 64;

/// Why a payload or a profile is refused.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The manifest or a layer has mistakes.
    #[error("{location}: {problems}")]
    Problems {
        /// Which file or folder.
        location: String,
        /// Mistakes, each with its location.
        problems: Problems,
    },
    /// No key that counts has signed the manifest.
    #[error("{location}: {why}")]
    Signature {
        /// Which folder.
        location: String,
        /// Why the signature does not count, and what to do.
        why: String,
    },
    /// A file cannot be read.
    #[error("{location}: {error}")]
    Io {
        /// Which.
        location: String,
        /// Why not.
        error: io::Error,
    },
    /// A program is of another release than the manifest says, and its configuration would be for the wrong one.
    #[error("{location}: {is}, but the manifest {said}")]
    Release {
        /// The program.
        location: String,
        /// What the program says of its release.
        is: String,
        /// What the manifest says.
        said: String,
    },
}

/// Source of a payload's bytes.
#[derive(Debug, Clone)]
enum PayloadSource {
    Folder(PathBuf),
    Memory(Arc<BTreeMap<String, Bytes>>),
}

/// A payload: its manifest, and its files' bytes.
#[derive(Debug, Clone)]
pub struct Payload {
    /// Its manifest.
    pub manifest: Manifest,
    source: PayloadSource,
}

impl Payload {
    /// The payload in a folder with a `payload.yaml`. Sizes are compared; sums are when a host takes the files.
    ///
    /// # Errors
    /// None of `keys` has signed the manifest. It is missing, has mistakes, names a file that is not there or has another
    /// size, or another release of the kubelet, kube-proxy or containerd than the program's own.
    pub fn in_folder(folder: &Path, keys: &PayloadKeys) -> Result<Self, CatalogError> {
        let manifest = Folder(folder.to_owned()).signed_manifest(keys)?;
        for file in &manifest.files {
            let location = folder.join(&file.name).display().to_string();
            let meta =
                std::fs::metadata(folder.join(&file.name)).map_err(|error| CatalogError::Io {
                    location: location.clone(),
                    error,
                })?;
            if meta.len() != file.size {
                let said = format!("{} bytes; the manifest says {}", meta.len(), file.size);
                let error = io::Error::new(io::ErrorKind::InvalidData, said);
                return Err(CatalogError::Io { location, error });
            }
        }
        for name in RELEASED {
            Folder(folder.to_owned()).check_release(&manifest, name)?;
        }
        Ok(Self {
            manifest,
            source: PayloadSource::Folder(folder.to_owned()),
        })
    }

    /// A payload whose files lie in memory.
    #[must_use]
    pub fn in_memory(manifest: Manifest, files: BTreeMap<String, Bytes>) -> Self {
        Self {
            manifest,
            source: PayloadSource::Memory(Arc::new(files)),
        }
    }

    /// The bytes of one of its files.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub async fn open(&self, name: &str) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
        match &self.source {
            PayloadSource::Folder(folder) => {
                Ok(Box::new(tokio::fs::File::open(folder.join(name)).await?))
            }
            PayloadSource::Memory(files) => {
                let bytes = files.get(name).cloned();
                let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                Ok(Box::new(io::Cursor::new(bytes)))
            }
        }
    }

    /// The same, blocking.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub fn read(&self, name: &str) -> io::Result<Box<dyn ReadSeek>> {
        match &self.source {
            PayloadSource::Folder(folder) => Ok(Box::new(std::fs::File::open(folder.join(name))?)),
            PayloadSource::Memory(files) => {
                let bytes = files.get(name).cloned();
                let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                Ok(Box::new(io::Cursor::new(bytes)))
            }
        }
    }
}

/// Bytes that can be read from any position.
pub trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

/// A payload's folder, whose files are read to their ends.
#[derive(Debug, Clone)]
pub struct Folder(pub PathBuf);

impl PayloadReader for Folder {
    fn digest(&self, name: &str) -> Result<(String, u64), String> {
        let file = std::fs::File::open(self.0.join(name)).map_err(|error| {
            let absent = error.kind() == io::ErrorKind::NotFound;
            if absent {
                "is not there".to_owned()
            } else {
                error.to_string()
            }
        })?;
        sum(file).map_err(|error| error.to_string())
    }
}

impl Folder {
    /// Its manifest, with a signature or without.
    ///
    /// # Errors
    /// It is not there, too large, or has mistakes.
    pub fn manifest(&self) -> Result<Manifest, CatalogError> {
        self.signed_manifest(&PayloadKeys::Unsigned)
    }

    /// Its manifest, if one of `keys` has signed these bytes.
    ///
    /// # Errors
    /// It is not there, too large, not signed, or has mistakes.
    pub fn signed_manifest(&self, keys: &PayloadKeys) -> Result<Manifest, CatalogError> {
        let location = self.0.display().to_string();
        let failed = |error| CatalogError::Io {
            location: location.clone(),
            error,
        };
        let text = self
            .text(MANIFEST_FILE, MANIFEST_BYTES_MAX)
            .map_err(failed)?;
        let signature = match self.text(SIGNATURE_FILE, SIGNATURE_BYTES_MAX) {
            Ok(signature) => Some(signature),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        // The bytes that are checked are those that are parsed.
        keys.check(text.as_bytes(), signature.as_deref())
            .map_err(|why| CatalogError::Signature {
                location: location.clone(),
                why,
            })?;
        Manifest::parse(&text).map_err(|problems| CatalogError::Problems {
            location: location.clone(),
            problems,
        })
    }

    /// Text of a file of at most `max` bytes.
    fn text(&self, name: &str, max: u64) -> io::Result<String> {
        let path = self.0.join(name);
        let size = std::fs::metadata(&path)?.len();
        if size > max {
            let said = format!("{name} has {size} bytes, at most {max}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        std::fs::read_to_string(path)
    }

    /// Compares the manifest's `kubelet` or `containerd` with what the program of that name says of its release. One that
    /// says nothing is what the manifest says.
    ///
    /// # Errors
    /// The program cannot be read, or is of another release.
    pub fn check_release(&self, manifest: &Manifest, name: &str) -> Result<(), CatalogError> {
        if manifest.file(name).is_none() {
            return Ok(());
        }
        let path = self.0.join(name);
        let location = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| CatalogError::Io {
            location: location.clone(),
            error,
        })?;
        // What is no program at all is refused by `payload make`, which sees all of them.
        let Some(program) = Program::parse(&bytes).ok() else {
            return Ok(());
        };
        let own = match name {
            CONTAINERD => program.containerd(),
            _ => program.kubernetes(),
        };
        let Some(own) = own else { return Ok(()) };
        let said = match manifest.containerd.is_empty() {
            _ if name != CONTAINERD && own.fits(manifest.kubelet()) => return Ok(()),
            _ if name != CONTAINERD => format!("says `kubelet: {}`", manifest.kubelet),
            true if own.release().is_none_or(|it| it < CONTAINERD_NAMED_FROM) => return Ok(()),
            true => format!("has no `containerd`, which counts as {CONTAINERD_UNNAMED}"),
            false if own.fits(manifest.containerd()) => return Ok(()),
            false => format!("says `containerd: {}`", manifest.containerd),
        };
        Err(CatalogError::Release {
            location,
            is: own.said,
            said,
        })
    }

    /// Files that are in the folder and not in the manifest, sorted by name.
    ///
    /// # Errors
    /// It cannot be listed.
    pub fn extra(&self, manifest: &Manifest) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let ours = [MANIFEST_FILE, SIGNATURE_FILE].contains(&name.as_str());
            if !ours && manifest.file(&name).is_none() {
                found.push(name);
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Profile and payload of one version: the content of a [`Desired`].
#[derive(Debug, Clone)]
pub struct InstalledVersion {
    /// The layered profile.
    pub profile: Arc<Profile>,
    /// The payload.
    pub payload: Arc<Payload>,
    /// The cluster around its nodes.
    pub cluster_config: Arc<ClusterConfig>,
}

#[derive(Default)]
struct Inner {
    /// The users' layers.
    layers: Vec<Layer>,
    cluster_config: Arc<ClusterConfig>,
    /// Whether the cluster was read yet.
    cluster_read: bool,
    profiles: BTreeMap<String, Arc<Profile>>,
    /// Sentences about settings of the cluster that the layers contradict.
    contradicted: Vec<String>,
    payloads: Vec<Arc<Payload>>,
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
    inner: Arc<RwLock<Inner>>,
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
        let inner = Inner {
            profiles,
            layers: layers.to_vec(),
            ..Inner::default()
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
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
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
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let (cluster_config, mut warnings) =
                inner.cluster_config.with(look, !inner.cluster_read);
            inner.cluster_read = true;
            let renewed = cluster_config != *inner.cluster_config;
            if renewed {
                match profiles(&inner.layers, &cluster_config) {
                    Ok((profiles, contradicted)) => {
                        inner.profiles = profiles;
                        inner.contradicted = contradicted;
                        inner.cluster_config = Arc::new(cluster_config);
                        inner.renew();
                    }
                    Err(problems) => {
                        warnings.push(format!("the cluster and the layers: {problems}"))
                    }
                }
            }
            warnings.extend(inner.contradicted.iter().cloned());
            (renewed, warnings)
        };
        if renewed {
            self.changed.send_modify(|n| *n += 1);
        }
        warnings
    }

    /// Adds a payload, or replaces one with the same version.
    pub fn add(&self, payload: Payload) {
        {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
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

    /// The profile and payload of a version.
    ///
    /// # Errors
    /// `VersionNotHere`: this worker does not have it; another or a newer one may.
    pub fn find(&self, desired: &Desired) -> Result<InstalledVersion, Failure> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
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
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let payloads = inner.payloads.iter();
        payloads.map(|payload| payload.manifest.clone()).collect()
    }

    /// Records why the payload at `place` cannot be used, or with `None` that it can.
    pub fn note_unusable(&self, place: &str, why: Option<String>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => drop(inner.unusable.insert(place.to_owned(), why)),
            None => drop(inner.unusable.remove(place)),
        }
    }

    /// Sentences about the payloads that cannot be used.
    #[must_use]
    pub fn unusable(&self) -> Vec<String> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.unusable.values().cloned().collect()
    }

    /// Folder names of every payload here: the cleanup on a host keeps them.
    #[must_use]
    pub fn folders(&self) -> Vec<String> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner
            .payloads
            .iter()
            .map(|payload| payload.manifest.folder())
            .collect()
    }
}

impl Inner {
    fn version(&self, profile: &Profile, payload: &Payload) -> String {
        version_in(&self.cluster_config, profile, &payload.manifest)
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
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
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
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
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
        })
    }

    fn refused_builds(&self, profile: &str, payload: &str) -> BTreeMap<String, String> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
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
/// it.
fn profiles(layers: &[Layer], cluster_config: &ClusterConfig) -> Result<Profiles, Problems> {
    let mut profiles = BTreeMap::new();
    let mut contradicted = Vec::new();
    for name in builtin::NAMES {
        let below = builtin::layer(name)?;
        let above: Vec<Layer> = layers.iter().filter(|it| it.fits(name)).cloned().collect();
        let followed = !stack(std::slice::from_ref(&below))?
            .host
            .mirrors_folder
            .is_empty();
        let none = ClusterConfig::default();
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

/// Order of versions by their numbers, `10.9.0` before `10.10.0`; other parts compare as text.
pub fn order(a: &str, b: &str) -> std::cmp::Ordering {
    let parts = |v: &str| -> Vec<(Option<u64>, String)> {
        v.split(['.', '-', '+'])
            .map(|part| (part.parse().ok(), part.to_owned()))
            .collect()
    };
    parts(a).cmp(&parts(b))
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

    #[test]
    fn a_kubernetes_of_another_minor_than_the_manifest_says_is_not_installed() {
        let built = |version: &str| {
            let flag = format!("-X k8s.io/component-base/version.gitVersion={version}");
            let lines = format!("mod\tk8s.io/kubernetes\t(devel)\t\nbuild\t-ldflags=\"{flag}\"\n");
            dormer_testkit::go_program(&lines)
        };
        for name in [KUBELET, KUBE_PROXY] {
            let with = |version| {
                let of_manifest = |manifest: &mut Manifest| manifest.kubelet = "1.36".into();
                with_named(name, &built(version), of_manifest)
            };
            for right in ["v1.36.2", "v1.36.0-rc.1+abc", "0a1b2c3d"] {
                assert!(with(right).is_ok(), "{name} {right}");
            }
            let why = with("v1.37.0").expect_err("refused").to_string();
            let wanted =
                "its Go build information says v1.37.0, but the manifest says `kubelet: 1.36`";
            assert!(why.contains(name) && why.contains(wanted), "{why}");
        }
    }

    /// Within 2.0 to 2.2 the folders of CNI's programs are written in two ways, so that a release in between is another one.
    #[test]
    fn a_containerd_of_2_0_to_2_2_is_installed_as_what_it_is() {
        let module = "github.com/containerd/containerd/v2";
        let built = |version| dormer_testkit::go_program(&format!("mod\t{module}\t{version}\t\n"));
        let programs = [
            ("v2.0.7", "2.0"),
            ("v2.1.5", "2.1"),
            ("v2.2.1", "2.2"),
            ("v2.3.7", "2.3"),
        ];
        for (version, own) in programs {
            for (_, said) in programs {
                let taken = with_program(&built(version), said);
                assert_eq!(taken.is_ok(), said == own, "{version} {said}");
                if let Err(why) = taken {
                    let wanted = format!(
                        "its Go build information says {version}, but the manifest says `containerd: {said}`"
                    );
                    assert!(why.to_string().contains(&wanted), "{why}");
                }
            }
            // A patch is no release.
            let patch = version.trim_start_matches('v');
            let why = with_program(&built(version), patch)
                .expect_err("refused")
                .to_string();
            assert!(
                why.contains(&format!("containerd: `{patch}` is not major.minor")),
                "{why}"
            );
        }
    }

    /// A folder whose containerd has that version resource, and whose manifest says that release.
    fn with_containerd(version: Option<[u16; 4]>, said: &str) -> Result<Payload, CatalogError> {
        let bytes = dormer_testkit::windows_program(dormer_testkit::AMD64, version);
        with_program(&bytes, said)
    }

    fn with_program(bytes: &[u8], said: &str) -> Result<Payload, CatalogError> {
        with_named(CONTAINERD, bytes, |manifest| {
            said.clone_into(&mut manifest.containerd);
        })
    }

    fn with_named(
        name: &str,
        bytes: &[u8],
        change: impl FnOnce(&mut Manifest),
    ) -> Result<Payload, CatalogError> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(name), bytes).expect("written");
        let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
        change(&mut manifest);
        manifest.files.retain(|file| file.name == name);
        manifest.files[0].size = bytes.len() as u64;
        let text = dormer_profile::yaml::to_string(&manifest).expect("YAML");
        std::fs::write(folder.path().join(MANIFEST_FILE), text).expect("written");
        Payload::in_folder(folder.path(), &PayloadKeys::Unsigned)
    }

    #[test]
    fn a_containerd_of_another_release_than_the_manifest_says_is_not_installed() {
        let taken = [
            (None, "1.7"),
            (None, ""),
            (Some([2, 4, 1, 0]), "2.4"),
            (Some([1, 7, 27, 0]), ""),
            // What 1.7 is told, 2.0 to 2.3 translate.
            (Some([2, 3, 2, 0]), ""),
        ];
        for (version, said) in taken {
            let payload = with_containerd(version, said);
            assert!(payload.is_ok(), "{version:?} {said}: {payload:?}");
        }
        let refused = [
            (
                [2, 4, 0, 0],
                "1.7",
                "says 2.4.0.0, but the manifest says `containerd: 1.7`",
            ),
            ([1, 7, 27, 0], "2.1", "says `containerd: 2.1`"),
            (
                [2, 4, 0, 0],
                "",
                "the manifest has no `containerd`, which counts as 1.7",
            ),
        ];
        for (version, said, wanted) in refused {
            let why = with_containerd(Some(version), said).expect_err(wanted);
            assert!(matches!(why, CatalogError::Release { .. }), "{why:?}");
            assert!(why.to_string().contains(wanted), "{why}");
        }
        // As containerd is built: without a resource, by Go.
        let module = "github.com/containerd/containerd/v2";
        let built = |version| dormer_testkit::go_program(&format!("mod\t{module}\t{version}\t\n"));
        assert!(with_program(&built("v2.4.2"), "2.4").is_ok());
        assert!(with_program(&built("v2.3.7"), "").is_ok());
        assert!(with_program(&built("(devel)"), "2.1").is_ok());
        for (version, said, wanted) in [
            (
                "v2.4.2",
                "2.1",
                "its Go build information says v2.4.2, but the manifest says",
            ),
            ("v2.4.2", "", "but the manifest has no `containerd`"),
            (
                "(devel)",
                "1.7",
                "its Go module is github.com/containerd/containerd/v2",
            ),
        ] {
            let why = with_program(&built(version), said).expect_err(wanted);
            assert!(why.to_string().contains(wanted), "{why}");
        }
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

    #[test]
    fn a_folder_without_its_files_is_refused_by_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing =
            Payload::in_folder(folder.path(), &PayloadKeys::Unsigned).expect_err("no manifest");
        assert!(
            missing
                .to_string()
                .contains(&*folder.path().to_string_lossy())
        );
        std::fs::write(folder.path().join(MANIFEST_FILE), EXAMPLE_PAYLOAD).expect("written");
        let missing =
            Payload::in_folder(folder.path(), &PayloadKeys::Unsigned).expect_err("no files");
        assert!(missing.to_string().contains("containerd"), "{missing}");
    }
}
