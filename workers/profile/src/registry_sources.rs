//! Registries that a cluster blocks, or whose certificates it does not check
//! (`images.config.openshift.io/cluster`, `spec.registrySources`), in containerd's terms.

use crate::{
    mirrors::{server, unfit},
    profile::{Mirror, MirrorSpec, Named},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The object that has them, for people.
const OBJECT: &str = "images.config.openshift.io/cluster";

/// OpenShift's lists of registries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrySources {
    /// Registries without TLS, or with a certificate that is not checked.
    pub insecure: Vec<String>,
    /// Registries that no node may contact.
    pub blocked: Vec<String>,
    /// The only registries that a node may contact; empty: all.
    pub allowed: Vec<String>,
    /// Registries by which a short name of an image is completed.
    pub search: Vec<String>,
}

impl RegistrySources {
    /// Reads `spec.registrySources`.
    #[must_use]
    pub fn parse(sources: &Value) -> Self {
        let list = |name: &str| {
            let all = sources[name].as_array().into_iter().flatten();
            all.filter_map(|one| Some(one.as_str()?.trim_end_matches('/').to_owned()))
                .collect()
        };
        Self {
            insecure: list("insecureRegistries"),
            blocked: list("blockedRegistries"),
            allowed: list("allowedRegistries"),
            search: list("containerRuntimeSearchRegistries"),
        }
    }

    /// The lists of which something reaches Windows nodes.
    #[must_use]
    pub(crate) fn reaching(&self) -> Self {
        Self {
            allowed: Vec::new(),
            search: Vec::new(),
            ..self.clone()
        }
    }

    /// Adds them to the registries with mirrors, and says in a sentence each what does not reach Windows nodes.
    pub(crate) fn add_to(&self, found: &mut Named<MirrorSpec>) -> Vec<String> {
        let mut said = Vec::new();
        let (blocked, other) = whole(&self.blocked);
        said.extend(left_out("blockedRegistries", &other));
        for registry in blocked {
            let spec = found.entry(registry.to_owned()).or_default();
            spec.server = server(registry);
            spec.blocked = true;
        }
        let (insecure, other) = whole(&self.insecure);
        said.extend(left_out("insecureRegistries", &other));
        for registry in insecure {
            let secure = server(registry);
            for spec in found.values_mut() {
                without_trust(spec, &secure);
            }
            let spec = found.entry(registry.to_owned()).or_default();
            if !spec.blocked {
                own_server(spec, &secure);
            }
        }
        if !self.allowed.is_empty() {
            said.push(format!(
                "allowedRegistries of {OBJECT} do not reach Windows nodes, which pull from every registry that is not \
                 blocked; a layer can bar the others, see docs/openshift.md"
            ));
        }
        if !self.search.is_empty() {
            said.push(format!(
                "containerRuntimeSearchRegistries of {OBJECT} do not reach Windows nodes: containerd takes every short name \
                 for one of docker.io"
            ));
        }
        said
    }
}

/// The entries that are a whole registry, and the others.
fn whole(entries: &[String]) -> (Vec<&str>, Vec<&str>) {
    let is_whole = |entry: &&str| !entry.contains('/') && unfit(entry, "").is_none();
    entries.iter().map(String::as_str).partition(is_whole)
}

fn left_out(list: &str, entries: &[&str]) -> Option<String> {
    (!entries.is_empty()).then(|| {
        format!(
            "{} in {list} of {OBJECT} do not reach Windows nodes: containerd knows whole registries only, by their names",
            entries.join(", ")
        )
    })
}

/// The same address without TLS.
fn plain(url: &str) -> String {
    url.replacen("https://", "http://", 1)
}

/// Asks the mirrors at that address without a check of their certificate, and behind each of them without TLS, as the Linux
/// nodes do (containers/image, the manual of containers-registries.conf, `insecure`).
fn without_trust(spec: &mut MirrorSpec, address: &str) {
    let at = |url: &str| {
        let rest = url.strip_prefix(address);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let all = std::mem::take(&mut spec.mirrors);
    for mirror in all {
        if !at(&mirror.url) {
            spec.mirrors.push(mirror);
            continue;
        }
        let without = Mirror {
            url: plain(&mirror.url),
            ..mirror.clone()
        };
        spec.mirrors.push(Mirror {
            insecure: true,
            ..mirror
        });
        spec.mirrors.push(without);
    }
}

/// Asks the registry itself, behind its mirrors, in the same way.
fn own_server(spec: &mut MirrorSpec, secure: &str) {
    spec.server = plain(secure);
    match spec.mirrors.iter_mut().find(|it| it.url == secure) {
        Some(there) => there.resolve_tags = true,
        None => spec.mirrors.push(Mirror {
            url: secure.to_owned(),
            resolve_tags: true,
            insecure: true,
            ..Mirror::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::{Credentials, Mirrored, registries};
    use serde_json::json;

    fn rendered(sources: &Value, mirrors: &[Mirrored]) -> (Value, Vec<String>) {
        let (mut found, _) = registries(mirrors, &Credentials::default());
        let said = RegistrySources::parse(sources).add_to(&mut found);
        let short = found.iter().map(|(name, spec)| {
            let mirrors = spec.mirrors.iter().map(|it| {
                let trust = if it.insecure { " unchecked" } else { "" };
                let tags = if it.resolve_tags { " tags" } else { "" };
                format!("{}{tags}{trust}", it.url)
            });
            let all: Vec<String> = mirrors.collect();
            let blocked = if spec.blocked {
                "blocked"
            } else {
                &spec.server
            };
            (name.clone(), json!([blocked, all]))
        });
        (Value::Object(short.collect()), said)
    }

    fn of(source: &str, mirror: &str) -> Mirrored {
        Mirrored {
            source: source.into(),
            mirrors: vec![mirror.into()],
            ..Mirrored::default()
        }
    }

    #[test]
    fn what_a_cluster_blocks_and_does_not_check_is_so_on_windows() {
        let table = [
            (json!(null), vec![], json!({}), 0),
            (
                json!({"blockedRegistries": ["bad.example", "docker.io"]}),
                vec![of("docker.io/team", "m.example/team")],
                // With a mirror it is asked alone, as on Linux nodes.
                json!({"bad.example": ["blocked", []], "docker.io": ["blocked", ["https://m.example"]]}),
                0,
            ),
            (
                json!({"insecureRegistries": ["own.example:5000"]}),
                vec![],
                json!({"own.example:5000": ["http://own.example:5000", ["https://own.example:5000 tags unchecked"]]}),
                0,
            ),
            (
                json!({"insecureRegistries": ["m.example"]}),
                vec![
                    of("quay.io/a", "m.example/b/a"),
                    of("quay.io/a", "n.example/a"),
                ],
                json!({
                    "m.example": ["http://m.example", ["https://m.example tags unchecked"]],
                    "quay.io": ["https://quay.io",
                        ["https://m.example/v2/b unchecked", "http://m.example/v2/b", "https://n.example"]],
                }),
                0,
            ),
            (
                json!({"insecureRegistries": ["x.example"], "blockedRegistries": ["x.example"]}),
                vec![],
                json!({"x.example": ["blocked", []]}),
                0,
            ),
            // m.example:5000 is another registry than m.example.
            (
                json!({"insecureRegistries": ["m.example"]}),
                vec![of("quay.io", "m.example:5000")],
                json!({
                    "m.example": ["http://m.example", ["https://m.example tags unchecked"]],
                    "quay.io": ["https://quay.io", ["https://m.example:5000"]],
                }),
                0,
            ),
            (
                json!({"blockedRegistries": ["quay.io/team", "*.bad.example"], "insecureRegistries": ["m.example/a"],
                    "allowedRegistries": ["quay.io"], "containerRuntimeSearchRegistries": ["quay.io"]}),
                vec![],
                json!({}),
                4,
            ),
        ];
        for (sources, mirrors, wanted, sentences) in table {
            let (found, said) = rendered(&sources, &mirrors);
            assert_eq!(
                (found, said.len()),
                (wanted, sentences),
                "{sources}: {said:?}"
            );
        }
    }

    #[test]
    fn what_does_not_reach_windows_is_named_with_its_list() {
        let sources = json!({"blockedRegistries": ["quay.io/team", "*.bad.example", "ok.example"],
            "allowedRegistries": ["quay.io"]});
        let (_, said) = rendered(&sources, &[]);
        let wanted = "quay.io/team, *.bad.example in blockedRegistries of images.config.openshift.io/cluster do not reach \
            Windows nodes: containerd knows whole registries only, by their names";
        assert_eq!(said[0], wanted);
        assert!(
            said[1].starts_with("allowedRegistries of images.config"),
            "{said:?}"
        );
    }
}
