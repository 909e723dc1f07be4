//! Payload folders: read into the catalog at startup, then polled, because people add payloads while dormer runs.

use crate::usage_error::checked;
use anyhow::Context;
use dormer_profile::payload::{MANIFEST_FILE, Manifest};
use dormer_workers::{catalog::Catalog, payload::Payload, payload_keys::PayloadKeys};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use tokio::time::sleep;

/// Poll interval of the folders.
const POLL_EVERY: Duration = Duration::from_secs(10);

/// Configured folders, and the payloads found in them.
#[derive(Debug)]
pub(crate) struct Payloads {
    folders: Vec<PathBuf>,
    keys: PayloadKeys,
    /// Modification time of each folder's manifest, and the version in it. A changed manifest is read again.
    known: BTreeMap<PathBuf, (SystemTime, String)>,
    /// Folder and content of each version.
    versions: BTreeMap<String, (PathBuf, String)>,
    /// Last error of each folder. It is logged once: the folder may be half copied, and is read again.
    wrong: BTreeMap<PathBuf, String>,
}

impl Payloads {
    /// Reads every payload in `folders` into the catalog. A folder with a manifest is a payload; in another, each
    /// folder in it that has one. An invalid payload does not keep the others out. It is logged, the catalog has a
    /// sentence about it, and it is read again.
    ///
    /// # Errors
    /// A folder cannot be read, or has no payload.
    pub(crate) fn load(
        folders: &[PathBuf],
        keys: &PayloadKeys,
        catalog: &Catalog,
    ) -> anyhow::Result<Self> {
        let mut payloads = Self {
            folders: folders.to_vec(),
            keys: keys.clone(),
            known: BTreeMap::new(),
            versions: BTreeMap::new(),
            wrong: BTreeMap::new(),
        };
        for folder in folders {
            let found =
                manifests(folder).with_context(|| format!("--payload {}", folder.display()));
            let found = checked(found)?;
            anyhow::ensure!(
                !found.is_empty(),
                "--payload {}: neither this folder nor a folder in it has a {MANIFEST_FILE}",
                folder.display()
            );
            for (folder, written) in found {
                payloads.try_take(folder, written, catalog);
            }
        }
        expire(catalog);
        Ok(payloads)
    }

    /// Polls for new payloads until cancelled. An invalid one is logged once and read again: it may be half copied. Files
    /// are read beside the threads that answer.
    pub(crate) async fn follow(mut self, catalog: Catalog) {
        loop {
            sleep(POLL_EVERY).await;
            let catalog = catalog.clone();
            let polled = tokio::task::spawn_blocking(move || {
                self.poll(&catalog);
                self
            });
            match polled.await {
                Ok(payloads) => self = payloads,
                Err(error) => {
                    tracing::error!(
                        "the search for new payloads ended: restart dormer to install one: {error}"
                    );
                    return;
                }
            }
        }
    }

    fn poll(&mut self, catalog: &Catalog) {
        expire(catalog);
        for folder in self.folders.clone() {
            // A read error does not remove the folder's payloads.
            for (folder, written) in manifests(&folder).unwrap_or_default() {
                self.try_take(folder, written, catalog);
            }
        }
        self.find_missing(catalog);
        // A broken payload that was removed is no finding any more. One that was taken is: hosts ask for its files.
        self.wrong.retain(|folder, _| {
            let stays = folder.exists() || self.known.contains_key(folder);
            if !stays {
                catalog.note_unusable(&folder.display().to_string(), None);
            }
            stays
        });
    }

    /// Finds payloads that were taken and whose manifest is gone since.
    fn find_missing(&mut self, catalog: &Catalog) {
        let present = |folder: &Path| folder.join(MANIFEST_FILE).exists();
        let (there, missing): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.known)
            .into_iter()
            .partition(|(folder, _)| present(folder));
        self.known = there;
        for (folder, known) in missing {
            // The same version lies in another folder: it was moved.
            if self.known.values().any(|(_, version)| *version == known.1) {
                continue;
            }
            self.known.insert(folder.clone(), known);
            let why = format!(
                "its {MANIFEST_FILE} is gone, and a host that needs its files gets none: put the folder back, or restart \
                 dormer without it"
            );
            self.warn(folder, why, catalog);
        }
    }

    fn try_take(&mut self, folder: PathBuf, written: SystemTime, catalog: &Catalog) {
        let place = folder.display().to_string();
        match self.take(folder.clone(), written, catalog) {
            Ok(()) => {
                if self.wrong.remove(&folder).is_some() {
                    catalog.note_unusable(&place, None);
                }
            }
            Err(error) => self.warn(folder, format!("{error:#}"), catalog),
        }
    }

    fn warn(&mut self, folder: PathBuf, error: String, catalog: &Catalog) {
        if self.wrong.get(&folder) != Some(&error) {
            let place = folder.display().to_string();
            tracing::warn!(folder = place, "a payload cannot be used: {error}");
            let why = format!("the payload in {place} cannot be used: {error}");
            catalog.note_unusable(&place, Some(why));
            self.wrong.insert(folder, error);
        }
    }

    fn take(
        &mut self,
        folder: PathBuf,
        written: SystemTime,
        catalog: &Catalog,
    ) -> anyhow::Result<()> {
        if self
            .known
            .get(&folder)
            .is_some_and(|(at, _)| *at == written)
        {
            return Ok(());
        }
        let payload = Payload::in_folder(&folder, &self.keys)?;
        self.same_content(&folder, &payload.manifest)?;
        tracing::info!(
            version = payload.manifest.version,
            folder = %folder.display(),
            "a payload is available"
        );
        let version = payload.manifest.version.clone();
        catalog.add(payload);
        self.known.insert(folder, (written, version));
        Ok(())
    }

    /// Refuses another build of a version that is known: the nodes would go back and forth between the two, without any
    /// rollback. Without keys a folder's own payload may be built again.
    fn same_content(&mut self, folder: &Path, manifest: &Manifest) -> anyhow::Result<()> {
        let version = &manifest.version;
        let content = manifest.hash();
        let again = matches!(self.keys, PayloadKeys::Unsigned);
        match self.versions.get(version) {
            // The first folder stays the version's own.
            Some((_, known)) if *known == content => return Ok(()),
            Some((place, _)) if !(again && place == folder) => anyhow::bail!(
                "{version} is known with other content, from {}: give each build of a payload a version of its own",
                place.display()
            ),
            _ => {}
        }
        self.versions
            .insert(version.clone(), (folder.to_owned(), content));
        Ok(())
    }
}

/// Tells the catalog which day it is, UTC, and logs what has expired.
fn expire(catalog: &Catalog) {
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    for why in catalog.set_today(&today) {
        tracing::warn!("{why}");
    }
}

/// Payload folders at `folder`, each with its manifest's modification time.
pub fn manifests(folder: &Path) -> std::io::Result<Vec<(PathBuf, SystemTime)>> {
    let written = |folder: &Path| std::fs::metadata(folder.join(MANIFEST_FILE))?.modified();
    if let Ok(at) = written(folder) {
        return Ok(vec![(folder.to_owned(), at)]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let below = entry?.path();
        if let Ok(at) = written(&below) {
            found.push((below, at));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_profile::{
        payload::{PayloadFile, SIGNATURE_FILE},
        render::EXAMPLE_PAYLOAD,
        sha256_hex,
    };
    use dormer_workers::pool::Installed;

    fn write(folder: &Path, version: &str) {
        let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).expect("a manifest");
        manifest.version = version.into();
        for file in &mut manifest.files {
            let path = folder.join(&file.name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, "MZ").expect("written");
            *file = PayloadFile {
                sha256: sha256_hex(b"MZ"),
                size: 2,
                ..file.clone()
            };
        }
        let text = serde_json::to_string(&manifest).expect("json");
        std::fs::write(folder.join(MANIFEST_FILE), text).expect("written");
    }

    #[test]
    fn a_payload_that_disappears_is_a_finding_until_it_is_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let payload = folder.path().join("11.0.0");
        write(&payload, "11.0.0");
        let catalog = Catalog::new(&[]).expect("a catalog");
        let all = [folder.path().to_owned()];
        let mut payloads = Payloads::load(&all, &PayloadKeys::Unsigned, &catalog).expect("one");
        let away = tempfile::tempdir().expect("a folder");
        std::fs::rename(&payload, away.path().join("11.0.0")).expect("moved");
        for _ in 0..2 {
            payloads.poll(&catalog);
            let found = catalog.unusable();
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("payload.yaml is gone"), "{found:?}");
        }
        assert!(catalog.edges("11.0.0").is_some(), "nodes have it");
        std::fs::rename(away.path().join("11.0.0"), &payload).expect("moved back");
        payloads.poll(&catalog);
        assert_eq!(catalog.unusable(), Vec::<String>::new());
        std::fs::rename(&payload, folder.path().join("renamed")).expect("moved");
        payloads.poll(&catalog);
        assert_eq!(
            catalog.unusable(),
            Vec::<String>::new(),
            "it lies in another folder"
        );
    }

    #[test]
    fn a_payload_whose_day_has_come_is_taken_and_has_no_upgrade() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "11.0.0");
        let text = std::fs::read_to_string(folder.path().join(MANIFEST_FILE)).expect("read");
        let mut manifest = Manifest::parse(&text).expect("a manifest");
        manifest.expires = "2020-02-29".into();
        let text = serde_json::to_string(&manifest).expect("json");
        std::fs::write(folder.path().join(MANIFEST_FILE), text).expect("written");
        let catalog = Catalog::new(&[]).expect("a catalog");
        let all = [folder.path().to_owned()];
        let mut payloads = Payloads::load(&all, &PayloadKeys::Unsigned, &catalog).expect("one");
        let why = || catalog.edges("11.0.0").expect("installed").expired;
        assert!(why().is_some_and(|it| it.contains("expired on 2020-02-29")));
        payloads.poll(&catalog);
        assert!(why().is_some(), "each poll asks which day it is");
    }

    /// A payload without files whose signature minisign made, and the key.
    const SIGNED: [&str; 2] = [
        include_str!("../../workers/tests/signed/payload.yaml"),
        include_str!("../../workers/tests/signed/payload.yaml.minisig"),
    ];
    const SIGNER: &str = "RWSTP/jCGkh8TMB1thTmpyb28qo9J9hCqDMi9M3TR6D73oOg18MtgdUI";

    #[test]
    fn a_payload_that_no_key_signed_is_left_until_its_signature_comes() {
        let folder = tempfile::tempdir().expect("a folder");
        let [signed, unsigned] = ["signed", "unsigned"].map(|name| folder.path().join(name));
        write(&unsigned, "11.1.0");
        std::fs::create_dir(&signed).expect("made");
        let [manifest, signature] = SIGNED;
        std::fs::write(signed.join(MANIFEST_FILE), manifest).expect("written");
        let keys = PayloadKeys::parse(&[SIGNER.to_owned()]).expect("a key");
        let catalog = Catalog::new(&[]).expect("a catalog");
        let all = [folder.path().to_owned()];
        let mut payloads = Payloads::load(&all, &keys, &catalog).expect("two payloads");
        let unusable = catalog.unusable();
        assert_eq!(unusable.len(), 2, "{unusable:?}");
        for why in &unusable {
            assert!(why.contains("minisign -S -m payload.yaml"), "{why}");
        }
        std::fs::write(signed.join(SIGNATURE_FILE), signature).expect("written");
        payloads.poll(&catalog);
        let unusable = catalog.unusable();
        assert!(
            unusable.len() == 1 && unusable[0].contains("unsigned"),
            "{unusable:?}"
        );
        // A manifest that is changed afterwards is refused; the payload that was taken stays.
        let changed = manifest.replace("11.0.0", "11.0.1");
        std::fs::write(signed.join(MANIFEST_FILE), changed).expect("written");
        later(&signed.join(MANIFEST_FILE));
        payloads.poll(&catalog);
        let unusable = catalog.unusable().join("\n");
        assert!(
            unusable.contains("is not the file that was signed"),
            "{unusable}"
        );
    }

    /// The rollout remembers it, so that a dormer that restarts knows another build of the version, too.
    #[test]
    fn a_signed_payload_names_its_build_and_an_unsigned_one_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let [manifest, signature] = SIGNED;
        std::fs::write(folder.path().join(MANIFEST_FILE), manifest).expect("written");
        std::fs::write(folder.path().join(SIGNATURE_FILE), signature).expect("written");
        let signed = PayloadKeys::parse(&[SIGNER.to_owned()]).expect("a key");
        let hash = Manifest::parse(manifest).expect("a manifest").hash();
        for (keys, wanted) in [(signed, Some(hash)), (PayloadKeys::Unsigned, None)] {
            let catalog = Catalog::new(&[]).expect("a catalog");
            let all = [folder.path().to_owned()];
            Payloads::load(&all, &keys, &catalog).expect("one");
            let edges = catalog.edges("11.0.0").expect("installed");
            assert_eq!(edges.build, wanted);
        }
    }

    fn later(path: &Path) {
        let file = std::fs::File::options().write(true).open(path);
        let later = SystemTime::now() + Duration::from_secs(5);
        file.and_then(|file| file.set_modified(later))
            .expect("a later time");
    }

    #[test]
    fn another_build_of_a_version_is_refused_beside_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        write(&one, "11.0.0");
        let catalog = Catalog::new(&[]).expect("a catalog");
        let all = [folder.path().to_owned()];
        let mut payloads = Payloads::load(&all, &PayloadKeys::Unsigned, &catalog).expect("one");
        let desired = || catalog.desired("openshift", None).expect("a version");
        let first = desired();
        write(&two, "11.0.0");
        payloads.poll(&catalog);
        assert!(catalog.unusable().is_empty(), "a copy is the same payload");
        let manifest = two.join(MANIFEST_FILE);
        let text = std::fs::read_to_string(&manifest).expect("text");
        let mut changed: Manifest = serde_json::from_str(&text).expect("a manifest");
        changed.may_follow = vec!["9.0.0".into()];
        std::fs::write(&manifest, serde_json::to_string(&changed).expect("json")).expect("written");
        later(&manifest);
        payloads.poll(&catalog);
        let unusable = catalog.unusable().join("\n");
        assert!(
            unusable.contains("11.0.0 is known with other content, from"),
            "{unusable}"
        );
        assert_eq!(desired(), first);
    }

    fn newest(catalog: &Catalog) -> String {
        let desired = catalog.desired("openshift", None).expect("a version");
        desired.values().next().expect("a build").payload.clone()
    }

    #[test]
    fn a_payload_that_comes_later_is_taken_and_a_broken_one_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let all = folder.path();
        let catalog = Catalog::new(&[]).expect("a catalog");
        let nothing = Payloads::load(&[all.to_owned()], &PayloadKeys::Unsigned, &catalog)
            .expect_err("there is none");
        assert!(nothing.to_string().contains(MANIFEST_FILE), "{nothing}");
        write(&all.join("one"), "11.0.0");
        let mut payloads =
            Payloads::load(&[all.to_owned()], &PayloadKeys::Unsigned, &catalog).expect("payloads");
        let changed = catalog.changed();
        payloads.poll(&catalog);
        assert!(
            !changed.has_changed().expect("a catalog"),
            "what is known is not taken again"
        );
        write(&all.join("two"), "11.1.0");
        write(&all.join("three"), "11.2.0");
        let late = all.join("three").join("kubelet.exe");
        std::fs::rename(&late, all.join("late")).expect("moved");
        payloads.poll(&catalog);
        assert_eq!(newest(&catalog), "11.1.0", "11.2.0 is half copied");
        let found = catalog.unusable();
        assert!(found.len() == 1 && found[0].contains("three"), "{found:?}");
        let restarted = Catalog::new(&[]).expect("a catalog");
        Payloads::load(&[all.to_owned()], &PayloadKeys::Unsigned, &restarted)
            .expect("the good ones are taken");
        assert_eq!(newest(&restarted), "11.1.0");
        assert_eq!(restarted.unusable(), found, "a restart finds the same");
        std::fs::rename(all.join("late"), &late).expect("moved");
        payloads.poll(&catalog);
        assert_eq!(newest(&catalog), "11.2.0");
        assert_eq!(catalog.unusable(), Vec::<String>::new());
    }
}
