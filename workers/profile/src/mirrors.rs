//! Mirror sets of the cluster in containerd's terms: mirrors per registry, in order.
//!
//! A mirror set names a source (`registry.example/team/image`) and its mirrors. containerd knows mirrors of whole
//! registries only: it appends the path of an image to a mirror's address. So the path that source and mirror share
//! is removed from the mirror. Mirrors that cannot be expressed this way are left out, with a warning.

use crate::profile::{Mirror, MirrorSpec, Named};
use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, fmt};
use zeroize::Zeroizing;

/// Docker Hub, as images name it.
const DOCKER_HUB: &str = "docker.io";
/// Most entries of mirror sets that are used.
pub const MIRRORED_MAX: usize = 1_000;

/// Entry of an ImageDigestMirrorSet or ImageTagMirrorSet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirrored {
    /// Source: a registry, or a path in one.
    pub source: String,
    /// Mirrors, in the order in which they are tried.
    pub mirrors: Vec<String>,
    /// `NeverContactSource`: the source itself is not contacted.
    pub never_source: bool,
    /// Whether mirrors may resolve tags (ImageTagMirrorSet), not only digests.
    pub tags: bool,
}

/// Credentials of a pull secret. They are never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    known: BTreeMap<String, Zeroizing<String>>,
    /// Entries that no registry takes, with the reason.
    unusable: BTreeMap<String, &'static str>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.known.keys()).finish()
    }
}

impl Credentials {
    /// Reads a `.dockerconfigjson`. An entry without credentials is left out, and so is one with an `auth` that is no
    /// base64 of user and password.
    ///
    /// # Errors
    /// The text is not such JSON. The sentence reveals nothing of its content.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text)
            .map_err(|e| format!("is no JSON (line {}, column {})", e.line(), e.column()))?;
        let auths = value
            .get("auths")
            .and_then(Value::as_object)
            .ok_or("has no `auths`")?;
        let mut read = Self::default();
        let mut entries: Vec<_> = auths
            .iter()
            .map(|(location, entry)| (spelling(location), registry_path(location), entry))
            .collect();
        // Of several entries for one registry the first that can be used counts.
        entries.sort_by_key(|(spelling, ..)| *spelling);
        for (_, location, entry) in entries {
            match basic(entry) {
                Some(Ok(auth)) => {
                    read.known.entry(location).or_insert(auth);
                }
                Some(Err(why)) => {
                    read.unusable.entry(location).or_insert(why);
                }
                None => {}
            }
        }
        Ok(read)
    }

    /// Registries, and paths in them, that have an entry.
    pub(crate) fn locations(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// Entries for these locations, with nothing in place of each secret.
    pub(crate) fn without_secrets(locations: Vec<String>) -> Self {
        let known = locations.into_iter();
        let known = known.map(|location| (location, Zeroizing::new(String::new())));
        Self {
            known: known.collect(),
            ..Self::default()
        }
    }

    /// Entry for a location (`registry:port/path`): the longest one that equals or contains it.
    fn entry(&self, location: &str) -> Option<&str> {
        nearest(self.known.keys(), location)
    }

    /// The same of the entries that no registry takes, with the reason.
    fn unusable(&self, location: &str) -> Option<(&str, &'static str)> {
        let entry = nearest(self.unusable.keys(), location)?;
        Some((entry, self.unusable[entry]))
    }

    /// Each with the name of its secret, as `authorization` texts use it.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &str)> {
        self.known
            .iter()
            .map(|(location, auth)| (secret_name(location), auth.as_str()))
    }
}

/// Docker Hub's own name in what Docker's tools write, `https://index.docker.io/v1/`.
const DOCKER_INDEX: &str = "index.docker.io";
/// Host of Docker Hub's API.
const DOCKER_API: &str = "registry-1.docker.io";

/// An entry's location without scheme, and without the API's version at the begin of its path: `/v1/` and `/v2/` mean the
/// whole registry (kubernetes v1.37.2 `pkg/credentialprovider/keyring.go`, `Add`).
fn plain_location(location: &str) -> (&str, &str) {
    let plain = location
        .strip_prefix("https://")
        .or_else(|| location.strip_prefix("http://"));
    let plain = plain.unwrap_or(location).trim_end_matches('/');
    let (host, path) = plain.split_once('/').unwrap_or((plain, ""));
    let version = path.split('/').next().unwrap_or_default();
    match version {
        "v1" | "v2" => (host, path[version.len()..].trim_start_matches('/')),
        _ => (host, path),
    }
}

/// A registry, or a path in one, as images name it. Docker's own tools write a URL, and one of another name for Docker Hub.
/// That name with a path is no path of Docker Hub's: no image is named so.
fn registry_path(location: &str) -> String {
    match plain_location(location) {
        (DOCKER_INDEX | DOCKER_API, "") => DOCKER_HUB.to_owned(),
        (host, "") => host.to_owned(),
        (host, path) => format!("{host}/{path}"),
    }
}

/// Order of entries for one registry: the name that images have comes first, as in the kubelet's keyring (`Lookup`: what
/// matches an image's name, and behind it `index.docker.io`). The rest is only to be the same each time: the keyring's own
/// order is that of a Go map.
fn spelling(location: &str) -> u8 {
    let hub = match plain_location(location).0 {
        DOCKER_INDEX => 10,
        DOCKER_API => 20,
        _ => 0,
    };
    // Of Docker Hub's index the URL is what Docker's tools write.
    let url = location.starts_with("https://") == (hub == 0);
    hub + u8::from(url) + 2 * u8::from(location.starts_with("http://"))
}

/// URL at which a registry's API is. Images of Docker Hub name a host that answers with pages for people
/// (containerd#7400).
pub(crate) fn server(registry: &str) -> String {
    let host = match registry {
        DOCKER_HUB => DOCKER_API,
        other => other,
    };
    format!("https://{host}")
}

/// The kubelet reads `auth` with and without the padding at its end.
const PADDED_OR_NOT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The longest of these locations that equals this one or contains it; an entry with a pattern after all others, as in the
/// kubelet's keyring, whose order is that of the letters (kubernetes v1.37.2 `pkg/credentialprovider/keyring.go`).
fn nearest<'a>(entries: impl Iterator<Item = &'a String>, location: &str) -> Option<&'a str> {
    entries
        .filter(|entry| contains(entry, location))
        .max_by_key(|entry| (!is_pattern(entry), entry.len()))
        .map(String::as_str)
}

fn is_pattern(entry: &str) -> bool {
    entry.contains(['*', '?'])
}

/// Whether an entry is for a location: its path begins with that of the entry, the ports are the same, and each part of the
/// host's name fits (`URLsMatch` there: `*.example.com` is for `m.example.com`, and not for `a.m.example.com`).
fn contains(entry: &str, location: &str) -> bool {
    let [(entry_host, entry_path), (host, path)] =
        [entry, location].map(|text| text.split_once('/').unwrap_or((text, "")));
    let below = path
        .strip_prefix(entry_path)
        .is_some_and(|rest| entry_path.is_empty() || rest.is_empty() || rest.starts_with('/'));
    let [(pattern, entry_port), (name, port)] =
        [entry_host, host].map(|text| text.split_once(':').unwrap_or((text, "")));
    let [patterns, parts] = [pattern, name].map(|text| text.split('.').collect::<Vec<_>>());
    let fits = |(pattern, part): (&&str, &&str)| fits(pattern.as_bytes(), part.as_bytes());
    below
        && entry_port == port
        && patterns.len() == parts.len()
        && patterns.iter().zip(&parts).all(fits)
}

/// Whether a text fits a pattern: `*` is any number of letters, `?` one.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|at| fits(rest, &text[at..])),
        [b'?', rest @ ..] => !text.is_empty() && fits(rest, &text[1..]),
        [one, rest @ ..] => text.first() == Some(one) && fits(rest, &text[1..]),
    }
}

/// User and password in the form of the header `Authorization: Basic`, or why no registry takes them.
fn basic(entry: &Value) -> Option<Result<Zeroizing<String>, &'static str>> {
    let text = |key: &str| {
        entry
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    if let Some(auth) = text("auth") {
        let both = PADDED_OR_NOT.decode(auth.trim()).map(Zeroizing::new);
        return Some(match both {
            Ok(both) if both.contains(&b':') => Ok(Zeroizing::new(STANDARD.encode(&**both))),
            _ => Err("its `auth` is no base64 of user:password"),
        });
    }
    let both = Zeroizing::new(format!("{}:{}", text("username")?, text("password")?));
    Some(Ok(Zeroizing::new(STANDARD.encode(both.as_bytes()))))
}

/// Name of a location's secret. No host name contains `_` and no path `..`, and a port is a number, so different
/// locations have different names.
fn secret_name(location: &str) -> String {
    let (host, path) = location.split_once('/').unwrap_or((location, ""));
    let host = host.replace(':', "_");
    let host = host.replace('*', "_any").replace('?', "_one");
    match path {
        "" => format!("registry.{host}"),
        path => format!("registry.{host}..{}", path.replace('/', "..")),
    }
}

/// Registries with their mirrors, and a warning sentence for each mirror that cannot be used.
#[must_use]
pub fn registries(
    entries: &[Mirrored],
    credentials: &Credentials,
) -> (Named<MirrorSpec>, Vec<String>) {
    let mut found = Named::<MirrorSpec>::new();
    let mut warnings = Vec::new();
    for entry in entries.iter().take(MIRRORED_MAX) {
        let source = entry.source.trim_end_matches('/');
        let (registry, path) = source.split_once('/').unwrap_or((source, ""));
        if let Some(why) = unfit(registry, path) {
            let ban = match entry.never_source {
                true => "; its NeverContactSource cannot be kept",
                false => "",
            };
            warnings.push(format!("the mirrors of {source} are left out: {why}{ban}"));
            continue;
        }
        let spec = found.entry(registry.to_owned()).or_default();
        spec.server = server(registry);
        for mirror in &entry.mirrors {
            let mirror = mirror.trim_end_matches('/');
            match prefix(mirror, path) {
                Ok(location) => {
                    // The nearest entry, as in the kubelet's keyring.
                    let known = credentials.entry(mirror);
                    let unusable = credentials.unusable(mirror).filter(|_| known.is_none());
                    if let Some((entry, why)) = unusable {
                        warnings.push(format!(
                            "the credentials for {entry} are left out: {why}; {mirror} is asked without"
                        ));
                    }
                    // Where two repositories differ, an entry for the whole mirror is right for both.
                    let whole = credentials.entry(&location);
                    if let Some(used) = add(spec, &location, entry.tags, known, whole) {
                        warnings.push(format!(
                            "the credentials for {mirror} are left out: containerd has one for all of {location}, and \
                             {used}"
                        ));
                    }
                }
                Err(why) => warnings.push(format!(
                    "the mirror {mirror} of {source} is left out: {why}"
                )),
            }
        }
        if entry.tags && !path.is_empty() && !spec.mirrors.is_empty() {
            warnings.push(format!(
                "the mirrors for tags of {source}: containerd knows whole registries only, so they are asked first for the \
                 tags of everything of {registry}"
            ));
        }
        if entry.never_source && !path.is_empty() {
            warnings.push(format!(
                "NeverContactSource of {source}: containerd knows whole registries only, so nothing of {registry} is \
                 contacted"
            ));
        }
        spec.blocked |= entry.never_source;
    }
    if entries.len() > MIRRORED_MAX {
        warnings.push(format!(
            "{} entries of mirror sets, {MIRRORED_MAX} are taken",
            entries.len()
        ));
    }
    // A registry that is never to be contacted stays so without a mirror.
    found.retain(|_, spec| spec.blocked || !spec.mirrors.is_empty());
    (found, warnings)
}

/// Appends a mirror with the credentials of the pull secret's entry `known`. An existing one may resolve tags if either entry
/// permits it. If it has other credentials, those of the entry `whole` are used for both; without one it keeps its own. The
/// answer says then why `known` is left out.
fn add(
    spec: &mut MirrorSpec,
    location: &str,
    tags: bool,
    known: Option<&str>,
    whole: Option<&str>,
) -> Option<&'static str> {
    let of = |entry: Option<&str>| {
        let text = entry.map(|entry| format!("Basic ${{secret:{}}}", secret_name(entry)));
        text.unwrap_or_default()
    };
    let authorization = of(known);
    // After a registry's address comes the API version, then the path.
    let url = match location.split_once('/') {
        None => server(location),
        Some((registry, path)) => format!("{}/v2/{path}", server(registry)),
    };
    if let Some(there) = spec.mirrors.iter_mut().find(|there| there.url == url) {
        there.resolve_tags |= tags;
        if there.authorization.is_empty() {
            there.authorization = authorization;
        } else if !authorization.is_empty() && there.authorization != authorization {
            if whole.is_none() {
                return Some("another entry of the pull secret came first");
            }
            there.authorization = of(whole);
            return (there.authorization != authorization)
                .then_some("the entry of the pull secret for all of it is used");
        }
        return None;
    }
    spec.mirrors.push(Mirror {
        url,
        resolve_tags: tags,
        authorization,
        insecure: false,
    });
    None
}

/// Reason for which containerd on Windows cannot have a folder for a source.
pub(crate) fn unfit(registry: &str, path: &str) -> Option<&'static str> {
    if path.starts_with('/') && registry.ends_with(':') {
        return Some("it is a URL, and a mirror set has names without https://");
    }
    if registry.starts_with("*.") {
        return Some("containerd knows registries by their whole names only");
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    let (host, port) = registry.split_once(':').unwrap_or((registry, "443"));
    if host.is_empty() || !registry.chars().all(fits) || port.parse::<u16>().is_err() {
        return Some("it does not begin with a registry's name");
    }
    (!path.chars().all(|c| fits(c) || c == '/')).then_some("it is no path of images")
}

/// Location of the mirror without the path that it shares with the source.
fn prefix(mirror: &str, path: &str) -> Result<String, &'static str> {
    let (registry, below) = mirror.split_once('/').unwrap_or((mirror, ""));
    if let Some(why) = unfit(registry, below) {
        return Err(why);
    }
    let rest = below
        .strip_suffix(path)
        .ok_or("it has the images under another path, which containerd cannot follow")?;
    match rest.strip_suffix('/') {
        _ if rest.is_empty() => Ok(registry.to_owned()),
        Some(rest) => Ok(format!("{registry}/{rest}")),
        None if path.is_empty() => Ok(format!("{registry}/{rest}")),
        None => Err("it has the images under another path, which containerd cannot follow"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str, mirrors: &[&str]) -> Mirrored {
        let mirrors = mirrors.iter().map(|one| (*one).to_owned()).collect();
        Mirrored {
            source: source.into(),
            mirrors,
            ..Mirrored::default()
        }
    }

    fn urls(entries: &[Mirrored]) -> Vec<String> {
        let (found, _) = registries(entries, &Credentials::default());
        found
            .into_values()
            .flat_map(|spec| spec.mirrors)
            .map(|mirror| mirror.url)
            .collect()
    }

    #[test]
    fn what_source_and_mirror_share_is_cut_off() {
        let table = [
            (
                "quay.io",
                "mirror.example:5000",
                Some("https://mirror.example:5000"),
            ),
            (
                "quay.io",
                "mirror.example/quay",
                Some("https://mirror.example/v2/quay"),
            ),
            (
                "mcr.example/oss/pause",
                "quay.io/me/oss/pause",
                Some("https://quay.io/v2/me"),
            ),
            ("mcr.example/oss", "quay.io/oss", Some("https://quay.io")),
            (
                "mcr.example/oss",
                "mcr.example/oss",
                Some("https://mcr.example"),
            ),
            ("mcr.example/oss/pause", "quay.io/pause", None),
            ("mcr.example/oss", "quay.io/moss", None),
            ("*.example.com", "quay.io", None),
            ("a b", "quay.io", None),
            ("quay.io", "quay.io:x/y", None),
            ("quay.io", "https://quay.io", None),
        ];
        for (source, mirror, wanted) in table {
            let entries = [of(source, &[mirror])];
            assert_eq!(
                urls(&entries).first().map(String::as_str),
                wanted,
                "{source} {mirror}"
            );
            let (_, warnings) = registries(&entries, &Credentials::default());
            assert_eq!(
                warnings.len(),
                usize::from(wanted.is_none()),
                "{warnings:?}"
            );
        }
    }

    #[test]
    fn docker_hub_is_asked_where_its_api_is() {
        let text = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "YTpw"}, "http://m.example:5000/": {"auth": "YTpw"}}}"#;
        let credentials = Credentials::parse(text).expect("a pull secret");
        let (found, said) = registries(
            &[
                of("docker.io/team", &["m.example:5000/team"]),
                of("quay.io", &["docker.io/quay"]),
            ],
            &credentials,
        );
        assert_eq!(said, Vec::<String>::new());
        assert_eq!(found["docker.io"].server, "https://registry-1.docker.io");
        let mirrors = ["docker.io", "quay.io"].map(|source| &found[source].mirrors[0]);
        let told = mirrors.map(|it| (it.url.as_str(), it.authorization.as_str()));
        let wanted = [
            (
                "https://m.example:5000",
                "Basic ${secret:registry.m.example_5000}",
            ),
            (
                "https://registry-1.docker.io/v2/quay",
                "Basic ${secret:registry.docker.io}",
            ),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_mirror_for_the_tags_of_one_path_is_named() {
        let tags = |source: &str, mirror: &str| Mirrored {
            tags: true,
            ..of(source, &[mirror])
        };
        let said = |entry| registries(&[entry], &Credentials::default()).1;
        let path = said(tags("quay.io/team/app", "m.example/team/app"));
        assert!(
            path.len() == 1 && path[0].ends_with("the tags of everything of quay.io"),
            "{path:?}"
        );
        assert!(said(tags("quay.io", "m.example")).is_empty());
        assert!(said(of("quay.io/team", &["m.example/team"])).is_empty());
    }

    #[test]
    fn sets_about_one_registry_are_one_file_and_mirrors_keep_their_order() {
        let never = Mirrored {
            never_source: true,
            ..of("quay.io/b", &["z.example/b", "a.example/b"])
        };
        let tags = Mirrored {
            tags: true,
            ..of("quay.io/a", &["a.example/a", "m.example/a"])
        };
        let (found, warnings) = registries(&[never, tags], &Credentials::default());
        assert_eq!(found.len(), 1);
        let said = "NeverContactSource of quay.io/b: containerd knows whole registries only, so nothing of quay.io is \
            contacted";
        let tags_too = "the mirrors for tags of quay.io/a: containerd knows whole registries only, so they are asked first \
            for the tags of everything of quay.io";
        assert_eq!(warnings, [said, tags_too]);
        let quay = &found["quay.io"];
        assert!(quay.blocked, "one of them says so");
        let warnings: Vec<_> = quay
            .mirrors
            .iter()
            .map(|m| (m.url.as_str(), m.resolve_tags))
            .collect();
        let wanted = [
            ("https://z.example", false),
            ("https://a.example", true),
            ("https://m.example", true),
        ];
        assert_eq!(warnings, wanted);
    }

    #[test]
    fn a_ban_outlives_its_mirrors() {
        let ban = |source: &str, mirrors: &[&str]| Mirrored {
            never_source: true,
            ..of(source, mirrors)
        };
        let left_out = ban("quay.io", &["m.example:x/a"]);
        for entry in [left_out, ban("quay.io", &[])] {
            let (found, _) = registries(&[entry], &Credentials::default());
            assert!(found["quay.io"].blocked && found["quay.io"].mirrors.is_empty());
        }
        // Mirrors of another set for the same registry stay in use.
        let (found, _) = registries(
            &[ban("quay.io", &[]), of("quay.io", &["m.example"])],
            &Credentials::default(),
        );
        assert!(found["quay.io"].blocked && found["quay.io"].mirrors.len() == 1);
        let (found, said) = registries(&[ban("*.example", &[])], &Credentials::default());
        assert!(found.is_empty() && said[0].ends_with("its NeverContactSource cannot be kept"));
    }

    #[test]
    fn credentials_for_a_repository_are_found_by_its_mirror() {
        let text = r#"{"auths": {"m.example/team/app": {"auth": "YTpw"}, "m.example/team/web": {"auth": "dzpw"},
            "n.example": {"auth": "YWxsOnA="}, "n.example/team/app": {"auth": "YTpw"}}}"#;
        let credentials = Credentials::parse(text).expect("a pull secret");
        let told = |entries: &[Mirrored]| {
            let (found, said) = registries(entries, &credentials);
            (found["quay.io"].mirrors[0].authorization.clone(), said)
        };
        let app = of("quay.io/team/app", &["m.example/team/app"]);
        let web = of("quay.io/team/web", &["m.example/team/web"]);
        let none = of("quay.io/team/none", &["m.example/team/none"]);
        let wanted = "Basic ${secret:registry.m.example..team..app}".to_owned();
        assert_eq!(told(std::slice::from_ref(&app)), (wanted.clone(), vec![]));
        assert_eq!(told(&[none.clone(), app.clone()]), (wanted.clone(), vec![]));
        assert_eq!(told(&[app.clone(), none]), (wanted.clone(), vec![]));
        let (first, said) = told(&[app, web]);
        assert_eq!(first, wanted);
        assert!(said[0].starts_with("the credentials for m.example/team/web are left out"));
        // The nearest entry, and where two repositories differ the one for the whole mirror, in every order.
        let near = of("quay.io/team/app", &["n.example/team/app"]);
        let far = of("quay.io/team/web", &["n.example/team/web"]);
        let nearest = "Basic ${secret:registry.n.example..team..app}".to_owned();
        let whole = "Basic ${secret:registry.n.example}".to_owned();
        assert_eq!(told(std::slice::from_ref(&near)), (nearest, vec![]));
        assert_eq!(told(&[near.clone(), far.clone()]), (whole.clone(), vec![]));
        let (used, said) = told(&[far, near]);
        assert_eq!(used, whole);
        let wanted = "the credentials for n.example/team/app are left out: containerd has one for all of n.example, and the \
            entry of the pull secret for all of it is used";
        assert_eq!(said, [wanted]);
    }

    /// One registry under several names: those that images have come first, as in the kubelet's keyring.
    #[test]
    fn of_docker_hubs_names_the_one_of_images_comes_first() {
        let used = |auths: &str, mirror: &str| {
            let text = format!(r#"{{"auths": {{{auths}}}}}"#);
            let credentials = Credentials::parse(&text).expect("a pull secret");
            let (found, _) = registries(&[of("quay.io", &[mirror])], &credentials);
            let authorization = &found["quay.io"].mirrors[0].authorization;
            let name = authorization
                .strip_prefix("Basic ${secret:")?
                .strip_suffix('}')?;
            let secrets: BTreeMap<_, _> = credentials.secrets().collect();
            let decoded = STANDARD.decode(secrets[name]).expect("base64");
            Some(String::from_utf8(decoded).expect("text"))
        };
        let auth = |location: &str, user: &str| {
            let auth = STANDARD.encode(format!("{user}:p"));
            format!(r#""{location}": {{"auth": "{auth}"}}"#)
        };
        let url = auth("https://index.docker.io/v1/", "url");
        let index = auth("index.docker.io", "index");
        let hub = auth("docker.io", "hub");
        let api = auth("registry-1.docker.io", "api");
        let team = auth("docker.io/team", "team");
        let all = [&url, &index, &hub, &api, &team]
            .map(String::as_str)
            .join(",");
        let table = [
            (all.as_str(), "docker.io/team/app", Some("team:p")),
            (&all, "docker.io/other", Some("hub:p")),
            (&all, "docker.io", Some("hub:p")),
            (
                &format!("{api},{index},{url}"),
                "docker.io/team/app",
                Some("url:p"),
            ),
            (&format!("{api},{index}"), "docker.io/team", Some("index:p")),
            (&api, "docker.io", Some("api:p")),
            (&team, "docker.io/other", None),
            // No image is named index.docker.io/team.
            (&auth("index.docker.io/team", "x"), "docker.io/team", None),
            (
                &auth("https://index.docker.io/v2/", "v2"),
                "docker.io",
                Some("v2:p"),
            ),
            // Any registry, as Docker's tools write it, and its plain name.
            (
                &auth("https://m.example/v1/", "m"),
                "m.example/a",
                Some("m:p"),
            ),
            (
                &auth("http://m.example:5000/v2/team/", "t"),
                "m.example:5000/team/a",
                Some("t:p"),
            ),
            (
                &format!(
                    "{},{}",
                    auth("https://m.example", "url"),
                    auth("m.example", "plain")
                ),
                "m.example",
                Some("plain:p"),
            ),
            // A login that cannot be used does not exclude one that can.
            (
                &format!(r#""docker.io": {{"auth": "x"}},{url}"#),
                "docker.io/team",
                Some("url:p"),
            ),
        ];
        for (auths, mirror, wanted) in table {
            assert_eq!(used(auths, mirror).as_deref(), wanted, "{mirror}: {auths}");
        }
    }

    #[test]
    fn an_entry_that_no_registry_takes_is_named_where_a_mirror_needs_it() {
        let text = r#"{"auths": {"m.example/a": {"auth": "user:password"}, "m.example/b": {"auth": "dXNlcg=="},
            "elsewhere.example": {"auth": "?"}}}"#;
        let credentials = Credentials::parse(text).expect("a pull secret");
        for image in ["a", "b", "c"] {
            let source = format!("quay.io/{image}");
            let mirror = format!("m.example/{image}");
            let (found, said) = registries(&[of(&source, &[&mirror])], &credentials);
            assert_eq!(found["quay.io"].mirrors[0].authorization, "");
            let wanted = format!(
                "the credentials for {mirror} are left out: its `auth` is no base64 of user:password; {mirror} is \
                 asked without"
            );
            let wanted = if image == "c" { vec![] } else { vec![wanted] };
            assert_eq!(said, wanted, "{image}");
        }
        assert_eq!(credentials.secrets().count(), 0);
    }

    #[test]
    fn an_entry_with_a_pattern_is_for_the_hosts_that_fit() {
        let text = r#"{"auths": {"*.example.com": {"auth": "YTpi"}, "r?.example.net:5000/team": {"auth": "YTpi"},
            "m.example.com": {"auth": "YTpi"}}}"#;
        let credentials = Credentials::parse(text).expect("a pull secret");
        let any = Some("registry._any.example.com");
        let one = Some("registry.r_one.example.net_5000..team");
        let table = [
            ("q.example.com/a", any),
            ("q.example.com", any),
            // One that names the host goes before.
            ("m.example.com/a", Some("registry.m.example.com")),
            ("a.q.example.com", None),
            ("example.com", None),
            ("q.example.com:5000", None),
            ("q.example.org", None),
            ("r1.example.net:5000/team/a", one),
            ("r1.example.net:5000/teams", None),
            ("r12.example.net:5000/team", None),
        ];
        for (mirror, wanted) in table {
            let (found, _) = registries(&[of("quay.io", &[mirror])], &credentials);
            let authorization = found["quay.io"].mirrors[0].authorization.as_str();
            let wanted = wanted.map(|name| format!("Basic ${{secret:{name}}}"));
            assert_eq!(authorization, wanted.unwrap_or_default(), "{mirror}");
        }
        let secrets: Vec<String> = credentials.secrets().map(|(name, _)| name).collect();
        assert!(
            secrets.iter().any(|name| Some(name.as_str()) == any),
            "{secrets:?}"
        );
    }

    #[test]
    fn credentials_are_those_of_the_nearest_entry() {
        let text = r#"{"auths": {"m.example:5000": {"auth": "aDpw"}, "m.example:5000/team": {"auth": "dDpwdw"},
            "https://other.example/": {"username": "u", "password": "p"}, "empty.example": {}}}"#;
        let credentials = Credentials::parse(text).expect("a pull secret");
        let authorization = |mirror: &str| {
            let (found, _) = registries(&[of("quay.io", &[mirror])], &credentials);
            found["quay.io"].mirrors[0].authorization.clone()
        };
        assert_eq!(
            authorization("m.example:5000"),
            "Basic ${secret:registry.m.example_5000}"
        );
        assert_eq!(
            authorization("m.example:5000/team/x"),
            "Basic ${secret:registry.m.example_5000..team}"
        );
        assert_eq!(
            authorization("m.example:5000/teams"),
            "Basic ${secret:registry.m.example_5000}"
        );
        assert_eq!(authorization("empty.example"), "");
        let secrets: BTreeMap<_, _> = credentials.secrets().collect();
        assert_eq!(secrets["registry.other.example"], "dTpw");
        assert_eq!(secrets["registry.m.example_5000..team"], "dDpwdw==");
        assert!(!format!("{credentials:?}").contains("dTpw"));
        assert_eq!(
            Credentials::parse("{").expect_err("no JSON"),
            "is no JSON (line 1, column 1)"
        );
        assert!(Credentials::parse("{}").is_err());
    }
}
