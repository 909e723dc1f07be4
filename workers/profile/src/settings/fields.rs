//! Fields of the configurations of the kubelet and of kube-proxy, and the check that a file has no others.
//!
//! The programs themselves take a file with other fields: they warn, and ignore them (kubernetes v1.33.13 and v1.37.2
//! `pkg/kubelet/kubeletconfig/util/codec/codec.go`, `cmd/kube-proxy/app/options.go`).

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use super::{Reader, range};
use crate::{release::Release, suggestion::question};

/// Newest release in the tables. What a later one knows is not known here.
const NEWEST: Release = Release::new(1, 37);

/// First and last release of each field.
type Fields = BTreeMap<&'static str, [Option<Release>; 2]>;

static KUBELET: LazyLock<Fields> = LazyLock::new(|| parse(include_str!("kubelet_fields.txt")));
static KUBE_PROXY: LazyLock<Fields> =
    LazyLock::new(|| parse(include_str!("kube_proxy_fields.txt")));

fn parse(text: &'static str) -> Fields {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let field = |line: &'static str| {
        let mut words = line.split(' ');
        let name = words.next()?;
        let mut release = || words.next().and_then(|word| word.parse().ok());
        Some((name, [release(), release()]))
    };
    lines.filter_map(field).collect()
}

/// What that release of the program does not know in its configuration, a sentence each.
pub(super) fn unknown(reader: Reader, config: &Value, release: Release) -> Vec<String> {
    let (fields, kind, program) = match reader {
        Reader::Kubelet => (&KUBELET, "KubeletConfiguration", "the kubelet"),
        Reader::KubeProxy => (&KUBE_PROXY, "KubeProxyConfiguration", "kube-proxy"),
        Reader::KubeletFlag | Reader::LogRunnerFlag | Reader::Containerd => return Vec::new(),
    };
    let mut check = Check {
        fields,
        kind,
        program,
        release,
        found: Vec::new(),
    };
    check.walk(config, "");
    check.found
}

struct Check {
    fields: &'static Fields,
    kind: &'static str,
    program: &'static str,
    release: Release,
    found: Vec<String>,
}

impl Check {
    fn walk(&mut self, value: &Value, at: &str) {
        match value {
            Value::Array(all) => {
                let at = format!("{at}[]");
                all.iter().for_each(|one| self.walk(one, &at));
            }
            // Any key of a map is right.
            Value::Object(_) if self.fields.contains_key(format!("{at}{{}}").as_str()) => {}
            Value::Object(all) => {
                for (key, one) in all {
                    self.field(one, at, key);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn field(&mut self, value: &Value, at: &str, key: &str) {
        let path = match at {
            "" => key.to_owned(),
            at => format!("{at}.{key}"),
        };
        let release = self.release;
        let program = self.program;
        match self.fields.get(path.as_str()) {
            Some([first, last]) => {
                let early = first.is_some_and(|first| release < first);
                let late = last.is_some_and(|last| release > last);
                if early || late {
                    let range = range(*first, *last);
                    self.found.push(format!(
                        "`{path}` is a field {range}, and the payload has {release}: {program} would ignore it"
                    ));
                }
                self.walk(value, &path);
            }
            None if release > NEWEST => {}
            None => {
                let near = question(key, self.below(at));
                let kind = self.kind;
                self.found.push(format!(
                    "`{path}` is no field of a {kind}, and {program} would ignore it{near}"
                ));
            }
        }
    }

    /// Names of the fields below a path.
    fn below(&self, at: &str) -> impl Iterator<Item = &'static str> {
        let before = match at {
            "" => String::new(),
            at => format!("{at}."),
        };
        let own = |path: &&'static str| {
            let name = path.strip_prefix(before.as_str())?;
            (!name.contains(['.', '[', '{'])).then_some(name)
        };
        self.fields
            .keys()
            .filter_map(own)
            .collect::<Vec<_>>()
            .into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_that_a_release_does_not_know_is_named_with_the_one_that_was_meant() {
        let ignored = "is no field of a KubeletConfiguration, and the kubelet would ignore it";
        let proxy = "is no field of a KubeProxyConfiguration, and kube-proxy would ignore it";
        let table = [
            (
                Reader::Kubelet,
                "1.33",
                json!({"maxPodss": 1}),
                format!("`maxPodss` {ignored}; did you mean maxPods?"),
            ),
            (
                Reader::Kubelet,
                "1.37",
                json!({"authentication": {"x509": {"clientCaFile": ""}}}),
                format!("`authentication.x509.clientCaFile` {ignored}; did you mean clientCAFile?"),
            ),
            (
                Reader::Kubelet,
                "1.35",
                json!({"registerWithTaints": [{"key": "os", "valeu": "x"}]}),
                format!("`registerWithTaints[].valeu` {ignored}; did you mean value?"),
            ),
            (
                Reader::Kubelet,
                "1.35",
                json!({"tlsCurvePreferences": [29]}),
                "`tlsCurvePreferences` is a field of 1.36 and later, and the payload has 1.35: the kubelet would ignore it"
                    .to_owned(),
            ),
            (
                Reader::KubeProxy,
                "1.34",
                json!({"winkernel": {"enableDsr": true}}),
                format!("`winkernel.enableDsr` {proxy}; did you mean enableDSR?"),
            ),
            (
                Reader::KubeProxy,
                "1.36",
                json!({"zzz": true}),
                format!("`zzz` {proxy}"),
            ),
        ];
        for (reader, release, config, wanted) in table {
            let release = release.parse().expect("a release");
            assert_eq!(unknown(reader, &config, release), [wanted]);
        }
    }

    #[test]
    fn what_a_release_knows_is_not_named() {
        let config = json!({"evictionHard": {"nodefs.available": "10%"}, "featureGates": {"Any": true},
            "registerWithTaints": [{"key": "os", "timeAdded": null}], "clusterDNS": ["10.0.0.10"],
            "logging": {"options": {"json": {"splitStream": true}}, "vmodule": [{"filePattern": "a", "verbosity": 1}]},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}], "tlsCurvePreferences": [29]});
        let of = |release: &str| {
            unknown(
                Reader::Kubelet,
                &config,
                release.parse().expect("a release"),
            )
        };
        assert_eq!(of("1.36"), Vec::<String>::new());
        // A release after those of the table may have more.
        let config = json!({"newInThis": 1});
        let release = Release::new(1, 38);
        assert_eq!(
            unknown(Reader::Kubelet, &config, release),
            Vec::<String>::new()
        );
    }
}
