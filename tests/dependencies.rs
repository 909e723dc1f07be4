//! Rules for dependencies: licences, banned crates, sources and duplicates of `tests/dependencies.toml`, and advisories.

use dormer_testkit::long;
use semver::{Version, VersionReq};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// `tests/dependencies.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    licences: Vec<String>,
    banned: BTreeMap<String, String>,
    duplicates: BTreeMap<String, String>,
    advisories: BTreeMap<String, String>,
}

/// A package as `cargo metadata` has it.
#[derive(Debug, Clone, Deserialize)]
struct Package {
    name: String,
    version: Version,
    license: Option<String>,
    source: Option<String>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rules() -> Rules {
    let text = fs::read_to_string(root().join("tests/dependencies.toml")).expect("the rules");
    toml::from_str(&text).expect("the rules are TOML")
}

/// The packages that this machine builds, so that nothing needs to be fetched for other platforms.
fn built() -> Vec<Package> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let about = Command::new(rustc).arg("-vV").output().expect("rustc runs");
    let about = String::from_utf8_lossy(&about.stdout).into_owned();
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", host.expect("a host")])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata --locked: {stderr}");
    let mut metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    serde_json::from_value(metadata["packages"].take()).expect("packages")
}

/// Name with version, and licence, of each package in `dormer-host.exe`, which ships beside dormer.
///
/// # Errors
/// What cargo says: a machine that never built the program has not fetched its packages.
fn in_the_host_program() -> Result<BTreeMap<String, String>, String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--package",
            "dormer-host-win32",
        ])
        .args([
            "--target",
            "x86_64-pc-windows-gnu",
            "--edges",
            "normal,build",
        ])
        .args(["--prefix", "none", "--no-dedupe", "--format", "{p}|{l}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8(output.stdout).expect("text");
    let named = text.lines().filter_map(|line| line.split_once('|'));
    Ok(named
        .map(|(name, licence)| (name.to_owned(), licence.to_owned()))
        .collect())
}

/// Every package of the lock file, of all platforms and features. It names no licences.
fn locked() -> Vec<Package> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Package>,
    }
    let text = fs::read_to_string(root().join("Cargo.lock")).expect("the lock file");
    let lock: Lock = toml::from_str(&text).expect("the lock file is TOML");
    lock.package
}

/// Why a licence expression cannot be satisfied with the allowed licences; `None`: it can.
fn refused(expression: &str, allowed: &[String]) -> Option<String> {
    let mode = spdx::ParseMode {
        allow_slash_as_or_operator: true,
        ..spdx::ParseMode::STRICT
    };
    match spdx::Expression::parse_mode(expression, mode) {
        Ok(parsed) => {
            let passes = parsed.evaluate(|wanted| allowed.contains(&wanted.to_string()));
            (!passes).then(|| format!("{expression:?} needs a licence that is not allowed"))
        }
        Err(error) => Some(format!("{expression:?} is no SPDX expression: {error}")),
    }
}

#[test]
fn licences_are_allowed() {
    let allowed = rules().licences;
    let foreign = built().into_iter().filter(|it| it.source.is_some());
    let mut all: BTreeMap<String, String> = foreign
        .map(|it| {
            (
                format!("{} v{}", it.name, it.version),
                it.license.unwrap_or_default(),
            )
        })
        .collect();
    match in_the_host_program() {
        Ok(more) => all.extend(more),
        Err(why) if std::env::var_os("CI").is_some() => panic!("{why}"),
        Err(_) => println!("not checked: the packages of dormer-host.exe were not fetched"),
    }
    let why = |(name, licence): (&String, &String)| {
        refused(licence, &allowed).map(|why| format!("{name}: {why}"))
    };
    let found: Vec<String> = all.iter().filter_map(why).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(all.len() > 100, "the packages are read");
}

#[test]
fn a_licence_that_is_not_allowed_is_found() {
    let allowed = rules().licences;
    assert_eq!(refused("MIT/Apache-2.0", &allowed), None);
    assert_eq!(refused("GPL-3.0-only OR MIT", &allowed), None);
    assert!(refused("GPL-3.0-only", &allowed).is_some());
    assert!(refused("MIT AND AGPL-3.0-only", &allowed).is_some());
    assert!(refused("see LICENSE", &allowed).is_some());
}

#[test]
fn banned_crates_are_not_in_the_lock_file() {
    let banned = rules().banned;
    let found: Vec<String> = locked()
        .iter()
        .filter_map(|package| Some((package, banned.get(&package.name)?)))
        .map(|(package, why)| format!("{} {}: {why}", package.name, package.version))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_crate_comes_from_crates_io() {
    let registry = "registry+https://github.com/rust-lang/crates.io-index";
    for package in locked() {
        let source = package.source.as_deref().unwrap_or(registry);
        assert_eq!(source, registry, "{}", package.name);
    }
}

#[test]
fn each_duplicate_has_a_reason_and_each_reason_a_duplicate() {
    let mut versions: BTreeMap<String, BTreeSet<Version>> = BTreeMap::new();
    for package in built() {
        versions
            .entry(package.name)
            .or_default()
            .insert(package.version);
    }
    let built: BTreeSet<String> = versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, _)| name)
        .collect();
    let listed: BTreeSet<String> = rules().duplicates.into_keys().collect();
    assert_eq!(built, listed, "left: built; right: tests/dependencies.toml");
}

/// An advisory of the RustSec database: TOML between fences, then text.
#[derive(Debug, Deserialize)]
struct Advisory {
    advisory: About,
    #[serde(default)]
    versions: Versions,
}

#[derive(Debug, Deserialize)]
struct About {
    id: String,
    package: String,
    withdrawn: Option<toml::Value>,
    informational: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<VersionReq>,
    #[serde(default)]
    unaffected: Vec<VersionReq>,
}

impl Advisory {
    fn read(text: &str) -> Self {
        let front = text.split("```").nth(1).expect("a front matter");
        let front = front.trim_start_matches("toml");
        toml::from_str(front).expect("the front matter is TOML")
    }

    /// Whether this version has the fault. Notices (a crate without an owner) count, too.
    fn concerns(&self, version: &Version) -> bool {
        let free = self
            .versions
            .patched
            .iter()
            .chain(&self.versions.unaffected);
        self.advisory.withdrawn.is_none() && !free.into_iter().any(|free| free.matches(version))
    }
}

#[test]
fn an_advisory_concerns_the_versions_that_it_names() {
    let text = "```toml\n[advisory]\nid = \"RUSTSEC-2020-0001\"\npackage = \"a\"\ndate = \"2020-01-01\"\n\
                [versions]\npatched = [\">= 1.2.3, < 2.0.0\", \">= 2.1.0\"]\nunaffected = [\"< 1.0.0\"]\n```\n# A\n";
    let advisory = Advisory::read(text);
    let concerned = |version: &str| advisory.concerns(&version.parse().expect("a version"));
    assert!(concerned("1.2.2") && concerned("2.0.0"));
    assert!(!concerned("0.9.0") && !concerned("1.2.3") && !concerned("2.1.0"));
}

/// The database is a folder that `DORMER_ADVISORY_DB` names: <https://github.com/rustsec/advisory-db>.
#[test]
fn advisories_are_mended_or_answered() {
    let part = long!("advisories");
    let folder = std::env::var_os("DORMER_ADVISORY_DB");
    let folder = folder.expect("DORMER_ADVISORY_DB names a copy of the RustSec database");
    let answers = rules().advisories;
    let mut checked = 0;
    let mut found = Vec::new();
    let mut answered = BTreeSet::new();
    for package in locked() {
        let Ok(files) = fs::read_dir(Path::new(&folder).join("crates").join(&package.name)) else {
            continue;
        };
        for file in files.flatten() {
            let advisory = Advisory::read(&fs::read_to_string(file.path()).expect("an advisory"));
            checked += 1;
            if !advisory.concerns(&package.version) {
                continue;
            }
            let about = advisory.advisory;
            if answers.contains_key(&about.id) {
                answered.insert(about.id);
            } else {
                let kind = about
                    .informational
                    .unwrap_or_else(|| "vulnerability".to_owned());
                found.push(format!(
                    "{} {}: {kind} {}",
                    about.package, package.version, about.id
                ));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    let listed: BTreeSet<String> = answers.into_keys().collect();
    assert_eq!(answered, listed, "an answer without its advisory goes");
    assert!(
        checked > 0,
        "the database names none of our crates: is the folder right?"
    );
    part.passed(&[
        ("advisories of our crates", checked.to_string()),
        ("answered", answered.len().to_string()),
    ]);
}
