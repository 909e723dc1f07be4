//! `dormer payload make`: writes the manifest of a payload, and fills its folder from files or from WMCO's image.

use super::{
    collect::{PayloadLocation, collect},
    pause::{self, PAUSE},
    size,
};
use crate::profile_command::offline::built_in;
use clap::Args;
use dormer_client::Failure;
use dormer_profile::{
    payload::{MANIFEST_FILE, Manifest, PayloadFile, PayloadReader, SIGNATURE_FILE},
    render::EXAMPLE_PAYLOAD,
    yaml,
};
use dormer_workers::{
    payload::{CONTAINERD, Folder, KUBE_PROXY, KUBELET, LOG_RUNNER},
    program_file::{OwnRelease, Program},
};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

/// Destinations of files that conditions keep out of the example of a manifest.
const FURTHER: [(&str, &str); 3] = [
    ("windows_exporter.exe", "windows_exporter.exe"),
    ("ecr-credential-provider.exe", "ecr-credential-provider.exe"),
    ("win-bridge.exe", r"cni\win-bridge.exe"),
];

/// Arguments of `dormer payload make`.
#[derive(Debug, Args)]
pub(crate) struct Make {
    /// Folder of the payload; without --from and --from-wmco the files are in it
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Version of the payload, such as 11.1.0
    #[arg(long, value_name = "VERSION")]
    version: String,
    /// Version of its kubelet, MAJOR.MINOR
    #[arg(long, value_name = "VERSION")]
    kubelet: String,
    /// Version of its containerd, MAJOR.MINOR [default: what the program itself says; needed if it says nothing]
    #[arg(long, value_name = "VERSION")]
    containerd: Option<String>,
    /// Windows builds that it runs on, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "BUILD",
        default_value = "10.0.17763,10.0.20348,10.0.26100"
    )]
    windows_build: Vec<String>,
    /// Platforms that it is for, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    platform: Vec<String>,
    /// Versions that it may follow in a rollout, separated by commas [default: none, so only new nodes get it]
    #[arg(long, value_delimiter = ',', value_name = "VERSION")]
    may_follow: Vec<String>,
    /// First day, UTC, on which no upgrade to it begins any more, such as 2027-03-01; new nodes still get it [default: never]
    #[arg(long, value_name = "DAY")]
    expires: Option<String>,
    /// Image of agnhost that a new node has to run before it counts as joined, such as
    /// registry.k8s.io/e2e-test-images/agnhost:2.63.0 [default: none]
    #[arg(long, value_name = "IMAGE")]
    canary: Option<String>,
    /// Built-in profile whose files it must have: openshift or upstream
    #[arg(long, value_name = "NAME", default_value = "openshift")]
    profile: String,
    /// Destination of a file below the payload's folder on hosts, for files that no profile knows: NAME=PATH
    #[arg(long, value_name = "NAME=PATH", value_parser = destination)]
    destination: Vec<(String, String)>,
    /// Take these files, or all in these folders (may be given several times)
    #[arg(long, value_name = "PATH", conflicts_with = "from_wmco")]
    from: Vec<PathBuf>,
    /// Take the profile's files out of the folder /payload of WMCO's image
    #[arg(long, value_name = "DIR")]
    from_wmco: Option<PathBuf>,
}

fn destination(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let (name, path) = parts.ok_or_else(|| format!("`{text}` is not NAME=PATH"))?;
    Ok((name.to_owned(), path.to_owned()))
}

impl Make {
    /// Writes the payload, and says what is in it.
    pub(super) fn run(&self) -> Result<String, Failure> {
        let needed = Needed::of(&self.profile)?;
        let destinations = self.destinations()?;
        let found = self.found(&needed.all)?;
        let lacking: Vec<&str> = needed
            .on(&self.platform)
            .filter(|name| !found.contains_key(*name))
            .collect();
        if !lacking.is_empty() {
            return Err(Failure::refused(
                format!(
                    "the profile `{}` needs files that are not there: {}",
                    self.profile,
                    lacking.join(", ")
                ),
                "add them with --from, or choose the profile with --profile",
            ));
        }
        let mut wrong = Vec::new();
        let mut containerd = self.containerd.clone();
        for (name, found) in &found {
            match self.check(name, found) {
                Ok(Some(own)) if name == CONTAINERD && own.release().is_some() => {
                    containerd = own.release().map(|release| release.to_string())
                }
                Ok(_) => {}
                Err(why) => wrong.push(format!("{name}: {why}")),
            }
        }
        if !wrong.is_empty() {
            let what_to_do = "give programs for 64-bit Windows, of this version, and an image for each of its builds";
            return Err(Failure::refused(wrong.join("\n"), what_to_do));
        }
        if containerd.is_none() && found.contains_key(CONTAINERD) {
            return Err(Failure::refused(
                format!(
                    "{CONTAINERD}: it does not say which release it is, and its settings depend on that"
                ),
                "name it with --containerd MAJOR.MINOR; `containerd.exe --version` on a Windows machine shows it",
            ));
        }
        self.fill(&found)?;
        let manifest = self.manifest(found.keys(), &destinations, containerd)?;
        self.write(&manifest)?;
        let total = manifest.files.iter().map(|file| file.size).sum();
        Ok(format!(
            "payload {}, kubelet {}: {} files, {}, in {}\nSign it: minisign -S -m {}",
            manifest.version,
            manifest.kubelet,
            manifest.files.len(),
            size(total),
            self.folder.display(),
            self.folder.join(MANIFEST_FILE).display()
        ))
    }

    /// Destination of each known file.
    fn destinations(&self) -> Result<BTreeMap<String, String>, Failure> {
        let example = Manifest::parse(EXAMPLE_PAYLOAD)
            .map_err(|error| Failure::refused(error.to_string(), ""))?;
        let known = example
            .files
            .into_iter()
            .map(|file| (file.name, file.destination));
        let further = FURTHER.map(|(name, path)| (name.to_owned(), path.to_owned()));
        Ok(known
            .chain(further)
            .chain(self.destination.iter().cloned())
            .collect())
    }

    /// Files to take, by name.
    fn found(
        &self,
        of_the_profile: &[String],
    ) -> Result<BTreeMap<String, PayloadLocation>, Failure> {
        let own = std::slice::from_ref(&self.folder);
        let (flag, places, wanted) = match (&self.from_wmco, self.from.is_empty()) {
            // WMCO's image holds more than a node of ours gets: its own daemon, scripts, its containerd's settings.
            (Some(image), _) => (
                "--from-wmco",
                std::slice::from_ref(image),
                Some(of_the_profile),
            ),
            (None, true) => ("DIR", own, None),
            (None, false) => ("--from", self.from.as_slice(), None),
        };
        let mut found = collect(flag, places, wanted)?;
        found.retain(|name, _| {
            ![MANIFEST_FILE, SIGNATURE_FILE].contains(&name.as_str())
                && !name.ends_with(super::UNFINISHED)
        });
        if found.is_empty() {
            let shown: Vec<String> = places
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let why = format!("{}: no file for a payload is there", shown.join(", "));
            return Err(Failure::refused(why, "give files or a folder with --from"));
        }
        Ok(found)
    }

    /// Checks that a program is one for these hosts, and of the version that the manifest will say.
    /// Returns what it says of its own release.
    fn check(&self, name: &str, found: &PayloadLocation) -> Result<Option<OwnRelease>, String> {
        if name == PAUSE {
            pause::check(&found.bytes()?, &self.windows_build)?;
        }
        if !name.to_ascii_lowercase().ends_with(".exe") {
            return Ok(None);
        }
        let program = Program::parse(&found.bytes()?)?;
        let (own, option, said) = match name {
            KUBELET | KUBE_PROXY | LOG_RUNNER => {
                (program.kubernetes(), "--kubelet", Some(&self.kubelet))
            }
            CONTAINERD => (
                program.containerd(),
                "--containerd",
                self.containerd.as_ref(),
            ),
            _ => return Ok(None),
        };
        let other = |own: &&OwnRelease| {
            let release = said.and_then(|said| said.parse().ok());
            release.is_some_and(|release| !own.fits(release))
        };
        match (own.as_ref().filter(other), said) {
            (Some(own), Some(said)) => Err(format!("{}, but {option} says {said}", own.said)),
            _ => Ok(own),
        }
    }

    /// Brings the files into the folder. Those that are there already stay.
    fn fill(&self, found: &BTreeMap<String, PayloadLocation>) -> Result<(), Failure> {
        let failed = |what: &Path, error: String| {
            Failure::refused(format!("{}: {error}", what.display()), "")
        };
        std::fs::create_dir_all(&self.folder).map_err(|e| failed(&self.folder, e.to_string()))?;
        if self.from.is_empty() && self.from_wmco.is_none() {
            return Ok(());
        }
        let present = std::fs::read_dir(&self.folder)
            .map_err(|e| failed(&self.folder, e.to_string()))?
            .next()
            .is_some();
        if present {
            let why = "it is not empty, and a payload in use must not change";
            return Err(failed(&self.folder, why.to_owned()));
        }
        for (name, found) in found {
            let to = self.folder.join(name);
            let bytes = found.bytes().map_err(|why| failed(&to, why))?;
            std::fs::write(&to, bytes).map_err(|e| failed(&to, e.to_string()))?;
        }
        Ok(())
    }

    fn manifest<'a>(
        &self,
        names: impl Iterator<Item = &'a String>,
        destinations: &BTreeMap<String, String>,
        containerd: Option<String>,
    ) -> Result<Manifest, Failure> {
        let folder = Folder(self.folder.clone());
        let mut files = Vec::new();
        for name in names {
            let (sha256, size) = folder
                .digest(name)
                .map_err(|why| Failure::refused(format!("{name}: {why}"), ""))?;
            files.push(PayloadFile {
                name: name.clone(),
                sha256,
                size,
                destination: destinations.get(name).unwrap_or(name).clone(),
            });
        }
        let manifest = Manifest {
            version: self.version.clone(),
            kubelet: self.kubelet.clone(),
            containerd: containerd.unwrap_or_default(),
            windows_builds: self.windows_build.clone(),
            platforms: self.platform.clone(),
            may_follow: self.may_follow.clone(),
            expires: self.expires.clone().unwrap_or_default(),
            canary: self.canary.clone().unwrap_or_default(),
            files,
        };
        manifest
            .check()
            .map_err(|problems| Failure::refused(problems.to_string(), ""))?;
        Ok(manifest)
    }

    /// Writes the manifest at the end and at once: a running dormer takes a folder when it has one.
    fn write(&self, manifest: &Manifest) -> Result<(), Failure> {
        let text = yaml::to_string(manifest).map_err(|e| Failure::refused(e.to_string(), ""))?;
        let path = self.folder.join(MANIFEST_FILE);
        // The signature of another manifest would say that someone changed this one.
        if std::fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
            let gone = std::fs::remove_file(self.folder.join(SIGNATURE_FILE));
            let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            gone.or_else(|error| if absent(&error) { Ok(()) } else { Err(error) })
                .map_err(|e| Failure::refused(format!("{SIGNATURE_FILE}: {e}"), ""))?;
        }
        super::whole(&path, text.as_bytes())
            .map_err(|e| Failure::refused(format!("{MANIFEST_FILE}: {e}"), ""))
    }
}

/// Files that a profile names.
struct Needed {
    /// All of them, whatever their conditions are.
    all: Vec<String>,
    /// Those without a condition, and those for platforms.
    always: Vec<(String, Vec<String>)>,
}

impl Needed {
    /// Files that hosts on these platforms get for certain.
    fn on(&self, platforms: &[String]) -> impl Iterator<Item = &str> {
        self.always
            .iter()
            .filter(|(_, only)| only.is_empty() || only.iter().any(|it| platforms.contains(it)))
            .map(|(name, _)| name.as_str())
    }

    /// Files of a built-in profile.
    ///
    /// # Errors
    /// There is no profile of this name.
    fn of(profile: &str) -> Result<Self, Failure> {
        let layer = built_in(profile)?;
        let profile = dormer_profile::layers::stack(&[layer])
            .map_err(|e| Failure::refused(e.to_string(), ""))?;
        let both = || profile.host.payload.iter().chain(&profile.node.payload);
        let certain = both().filter(|(_, spec)| {
            let when = &spec.when;
            when.set.is_empty() && when.secret.is_empty() && when.payload.is_empty()
        });
        Ok(Self {
            all: both().map(|(name, _)| name.clone()).collect(),
            always: certain
                .map(|(name, spec)| (name.clone(), spec.when.platform.clone()))
                .collect(),
        })
    }
}
