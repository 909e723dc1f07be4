//! Items of a document that are files, folders and settings of Windows itself.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormer_host::ops::Value;
use dormer_profile::answer::{FailureCode, FeatureState};
use dormer_profile::document::{HOST_ROOT, STAGING};
use dormer_profile::item::{
    Directory, Environment, File, FileSource, Firewall, OnlyFolders, Registry, Sweep, VERSION_MARK,
};
use tokio::time::Instant;

use super::{FILE_WAIT, HASH_BYTES_PER_S, Step};
use crate::faults::Fault;
use crate::host::body::{Body, unpack};
use crate::host::computer::Host;
use crate::host::disk::DiskError;
use crate::host::path::WinPath;

/// How long Windows takes to install a feature, in milliseconds (docs/field-notes.md, Services and features).
const FEATURE_INSTALL_MS: (u64, u64) = (60_000, 300_000);

/// Content for a file, and where it was uploaded to.
type Source = (Arc<Body>, Option<WinPath>);

impl Host {
    pub(super) fn ensure_directory(&self, what: &Directory, apply: bool) -> Step {
        let Ok(path) = WinPath::absolute(&what.path) else {
            return bad_path(&what.path);
        };
        let mut state = self.state();
        if state.disk.exists(&path) {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("is not there".into());
        }
        state.disk.make_folders(&what.path);
        Step::Changed("made".into())
    }

    pub(super) async fn ensure_file(&self, what: &File, apply: bool) -> Step {
        let Ok(path) = WinPath::absolute(&what.path) else {
            return bad_path(&what.path);
        };
        let present = self.state().disk.read(&path).ok();
        if let Some(body) = &present {
            self.hashing(body.modelled).await;
        }
        let private = self.state().disk.is_private(&path);
        if present.as_ref().is_some_and(|b| b.sha256 == what.sha256) && private == what.private {
            return Step::Ok;
        }
        let source = match self.source_of(what, apply) {
            Ok(source) => source,
            Err(step) => return step,
        };
        if !apply {
            return match source {
                Some(_) => Step::Differs("differs".into()),
                None => Step::Missing(what.path.clone()),
            };
        }
        let Some((body, staged)) = source else {
            return Step::Missing(what.path.clone());
        };
        self.put_file(what, &path, body, staged).await
    }

    /// The content that a file should get, and where it lies; none if it was not uploaded.
    fn source_of(&self, what: &File, apply: bool) -> Result<Option<Source>, Step> {
        let mismatch = |why: String| Step::Failed(FailureCode::HashMismatch, why);
        match &what.source {
            FileSource::Inline { base64 } => {
                let bytes = STANDARD
                    .decode(base64)
                    .map_err(|e| mismatch(e.to_string()))?;
                let body = Body::of(&bytes);
                if body.sha256 != what.sha256 {
                    return Err(mismatch(format!("{} in the document", what.path)));
                }
                Ok(Some((body, None)))
            }
            FileSource::Staged { name } => self.staged(name, &what.sha256, apply),
        }
    }

    fn staged(&self, name: &str, sha256: &str, apply: bool) -> Result<Option<Source>, Step> {
        let mut state = self.state();
        for file in [
            format!("{STAGING}\\{name}"),
            format!("{STAGING}\\{name}.gz"),
        ] {
            let Ok(path) = WinPath::absolute(&file) else {
                continue;
            };
            let Ok(body) = state.disk.read(&path) else {
                continue;
            };
            let packed = file.ends_with(".gz");
            let hash = match &body.unpacked {
                Some((hash, _)) if packed => hash.clone(),
                Some(_) | None => body.sha256.clone(),
            };
            if hash != sha256 {
                let said = format!("{file} has the hash {hash}");
                // A damaged upload is no use to the next attempt.
                if apply {
                    let _ = state.disk.remove(&path);
                }
                return Err(Step::Failed(FailureCode::HashMismatch, said));
            }
            let body = if packed { unpack(&body, sha256) } else { body };
            return Ok(Some((body, Some(path))));
        }
        Ok(None)
    }

    async fn put_file(
        &self,
        what: &File,
        path: &WinPath,
        body: Arc<Body>,
        staged: Option<WinPath>,
    ) -> Step {
        self.hashing(body.modelled).await;
        for user in &what.users {
            let _ = self.stop_service(user).await;
        }
        if staged.is_some() && self.strike(Fault::ExeLocked) {
            let said = format!("{path} is in use by another process");
            return Step::Failed(FailureCode::FileLocked, said);
        }
        if !self.file_released(path, FILE_WAIT).await {
            let said = format!("{path} is in use by another process");
            return Step::Failed(FailureCode::FileLocked, said);
        }
        self.half_written(path, &body).await;
        let written = {
            let mut state = self.state();
            if let Some(parent) = path.parent() {
                state.disk.make_folders(parent.shown());
            }
            state.disk.remove_like(&format!("{}.dormer-", path.shown()));
            if let Some(staged) = &staged {
                let _ = state.disk.remove(staged);
            }
            state.disk.write(path, body, what.private)
        };
        match written {
            Ok(()) => {
                self.maybe_quarantine(path);
                Step::Changed("written".into())
            }
            Err(DiskError::Full) => Step::Failed(
                FailureCode::DiskFull,
                format!("{path}: there is not enough space"),
            ),
            Err(error) => Step::Failed(FailureCode::Other, format!("{path}: {error}")),
        }
    }

    /// The script writes beside the file first: what a power loss leaves there is no whole file.
    async fn half_written(&self, path: &WinPath, body: &Body) {
        let half = &body.head[..body.head.len() / 2];
        let temporary = format!("{}.dormer-{:032x}", path.shown(), self.draw());
        let _ = self.state().disk.put(&temporary, half);
        self.midway("half written").await;
        self.state().disk.remove_like(&temporary);
    }

    /// Uploads that this task, up to this attempt, or an older one left unfinished.
    pub(super) fn clear_parts(&self, seq: u64, attempt: u32) {
        let left = |path: &str| part_of(path).is_some_and(|(of, at)| (of, at) <= (seq, attempt));
        let mut state = self.state();
        let ours = |path: &&str| path.starts_with(HOST_ROOT) && left(path);
        let parts: Vec<WinPath> = state
            .disk
            .files()
            .filter(ours)
            .filter_map(|path| WinPath::absolute(path).ok())
            .collect();
        for path in parts {
            let _ = state.disk.remove(&path);
        }
    }

    /// [`Fault::Quarantine`]: Defender takes the file away 3 s later.
    pub(in crate::host) fn maybe_quarantine(&self, path: &WinPath) {
        let Some(host) = self.me.upgrade() else {
            return;
        };
        if path.name().ends_with(".exe") && self.strike(Fault::Quarantine) {
            let path = path.clone();
            self.spawn_powered(async move {
                host.sleep(Duration::from_secs(3)).await;
                let mut state = host.state();
                state.refresh_running(Instant::now());
                let _ = state.disk.remove(&path);
            });
        }
    }

    /// Takes the time that hashing so many bytes takes.
    pub(in crate::host) async fn hashing(&self, bytes: u64) {
        let time = Duration::from_secs_f64(bytes as f64 / HASH_BYTES_PER_S);
        if time > Duration::from_millis(2) {
            self.sleep(time).await;
        }
    }

    pub(super) async fn ensure_feature(&self, name: &str, apply: bool) -> Step {
        let now = self
            .state()
            .features
            .get(name)
            .copied()
            .unwrap_or(FeatureState::Disabled);
        match now {
            FeatureState::Enabled => Step::Ok,
            FeatureState::Pending => Step::Reboot("waits for a reboot".into()),
            FeatureState::Disabled | FeatureState::Unknown if !apply => {
                Step::Differs("is not enabled".into())
            }
            FeatureState::Disabled | FeatureState::Unknown => {
                self.midway("half installed").await;
                self.pause(FEATURE_INSTALL_MS.0, FEATURE_INSTALL_MS.1).await;
                self.state()
                    .features
                    .insert(name.to_owned(), FeatureState::Pending);
                Step::Reboot("SuccessRestartRequired".into())
            }
        }
    }

    pub(super) fn ensure_hostname(&self, name: &str, apply: bool) -> Step {
        let mut state = self.state();
        if state.hostname.eq_ignore_ascii_case(name) {
            return Step::Ok;
        }
        if state
            .hostname_pending
            .as_ref()
            .is_some_and(|p| p.eq_ignore_ascii_case(name))
        {
            return Step::Reboot("waits for a reboot".into());
        }
        if name.chars().count() > 15 {
            return Step::Failed(FailureCode::HostnameFailed, format!("{name} is too long"));
        }
        if !apply {
            return Step::Differs(format!("is {}", state.hostname));
        }
        state.hostname_pending = Some(name.to_owned());
        Step::Reboot("renamed".into())
    }

    pub(super) fn ensure_environment(&self, what: &Environment, apply: bool) -> Step {
        let mut state = self.state();
        if state.environment.get(&what.name) == what.value.as_ref() {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("differs".into());
        }
        match &what.value {
            Some(value) => state.environment.insert(what.name.clone(), value.clone()),
            None => state.environment.remove(&what.name),
        };
        if what.reboot {
            Step::Reboot("set".into())
        } else {
            Step::Changed("set".into())
        }
    }

    /// Simulated hosts have their addresses from DHCP.
    pub(super) fn ensure_registry(&self, what: &Registry, apply: bool) -> Step {
        let build = self.image.release.build();
        let meant =
            what.windows_builds.is_empty() || what.windows_builds.iter().any(|it| it == build);
        if !meant || what.static_address {
            return Step::Ok;
        }
        let wanted = Value::from(&what.value);
        let mut state = self.state();
        let values = state.registry.entry(what.key.to_lowercase()).or_default();
        let name = what.name.to_lowercase();
        if values.get(&name) == Some(&wanted) {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("another value".into());
        }
        values.insert(name, wanted);
        Step::Changed("set".into())
    }

    pub(super) async fn ensure_firewall(&self, what: &Firewall, apply: bool) -> Step {
        let wanted = (what.protocol, what.port);
        if self.state().firewall.get(&what.name) == Some(&wanted) {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("is not there".into());
        }
        self.pause(300, 900).await;
        self.state().firewall.insert(what.name.clone(), wanted);
        Step::Changed("set".into())
    }

    pub(super) fn ensure_exclusion(&self, process: &str, apply: bool) -> Step {
        if !self.image.defender || self.state().exclusions.contains(process) {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("is not excluded".into());
        }
        self.state().exclusions.insert(process.to_owned());
        Step::Changed("excluded".into())
    }

    pub(super) fn ensure_certificate(&self, sha256: &str, apply: bool) -> Step {
        if self.state().certificates.contains(sha256) {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("is not there".into());
        }
        self.state().certificates.insert(sha256.to_owned());
        Step::Changed("imported".into())
    }

    /// Every certificate of the simulated store that a document ever named is one of ours.
    pub(super) fn only_certificates(&self, keep: &[String], apply: bool) -> Step {
        let mut state = self.state();
        let old = state
            .certificates
            .iter()
            .filter(|sha256| !keep.contains(sha256))
            .count();
        if old == 0 {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs(format!("{old} too many"));
        }
        state.certificates.retain(|sha256| keep.contains(sha256));
        Step::Changed(format!("{old} removed"))
    }

    pub(super) fn only_folders(&self, what: &OnlyFolders, apply: bool) -> Step {
        let Ok(under) = WinPath::absolute(&what.under) else {
            return bad_path(&what.under);
        };
        let mut state = self.state();
        let listed = state.disk.list(&under).into_iter();
        let kept = |name: &str| what.keep.iter().any(|keep| keep.eq_ignore_ascii_case(name));
        let old: Vec<String> = listed
            .filter(|(name, stat)| stat.directory && !kept(name))
            .map(|(name, _)| format!("{}\\{name}", what.under))
            .collect();
        if old.is_empty() {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs(old.join(", "));
        }
        for folder in &old {
            if let Ok(path) = WinPath::absolute(folder) {
                let _ = state.disk.remove_tree(&path);
            }
        }
        Step::Changed(old.join(", "))
    }

    pub(super) fn sweep(&self, what: &Sweep, apply: bool) -> Step {
        let Ok(under) = WinPath::absolute(&what.under) else {
            return bad_path(&what.under);
        };
        let mut state = self.state();
        state.refresh_running(Instant::now());
        let mut gone = Vec::new();
        for (name, stat) in state.disk.list(&under) {
            let folder = format!("{}\\{name}", what.under);
            let kept = what
                .keep
                .iter()
                .any(|keep| keep.eq_ignore_ascii_case(&name));
            let marked = WinPath::absolute(&format!("{folder}\\{VERSION_MARK}"));
            let ours = marked.is_ok_and(|mark| state.disk.exists(&mark));
            if stat.directory && !kept && ours {
                gone.push(folder);
            }
        }
        if gone.is_empty() {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs(gone.join(", "));
        }
        for folder in &gone {
            if let Ok(path) = WinPath::absolute(folder) {
                let _ = state.disk.remove_tree(&path);
            }
        }
        Step::Changed(gone.join(", "))
    }
}

/// Task and attempt of an unfinished upload, by its name `HASH.SEQ-ORDINAL-ATTEMPT.part`.
fn part_of(name: &str) -> Option<(u64, u32)> {
    let (_, who) = name.strip_suffix(".part")?.rsplit_once('.')?;
    let mut numbers = who.split('-');
    let seq = numbers.next()?;
    let _ = numbers.next()?;
    let attempt = numbers.next()?;
    Some((seq.parse().ok()?, attempt.parse().ok()?))
}

fn bad_path(path: &str) -> Step {
    Step::Failed(
        FailureCode::DocumentRejected,
        format!("{path} is no absolute path"),
    )
}
