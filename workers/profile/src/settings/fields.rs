//! Fields of the configurations of the kubelet and of kube-proxy, and the check that a file has no others.
//!
//! The programs themselves take a file with other fields: they warn, and ignore them (kubernetes v1.33.13 and v1.37.2
//! `pkg/kubelet/kubeletconfig/util/codec/codec.go`, `cmd/kube-proxy/app/options.go`).

use serde_json::Value;

use super::{
    Reader,
    known::{KUBE_PROXY_FIELDS, KUBELET_FIELDS, Known, NEWEST, Table},
    range,
    types::wrong_value,
};
use crate::{release::Release, suggestion::question};

/// What that release of the program does not know in its configuration, or does not read there, a sentence each.
pub(super) fn wrong(reader: Reader, config: &Value, release: Release) -> Vec<String> {
    let (fields, kind, program) = match reader {
        Reader::Kubelet => (&*KUBELET_FIELDS, "KubeletConfiguration", "the kubelet"),
        Reader::KubeProxy => (&*KUBE_PROXY_FIELDS, "KubeProxyConfiguration", "kube-proxy"),
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
    fields: &'static Table,
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
                for (n, one) in all.iter().enumerate() {
                    self.known(one, &at, &format!("{at}[{n}]").replace("[][", "["));
                }
            }
            // Any key of a map is right.
            Value::Object(all) if self.fields.has(&format!("{at}{{}}")) => {
                let below = format!("{at}{{}}");
                for (key, one) in all {
                    self.known(one, &below, &format!("{at}.{key}"));
                }
            }
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
        match self.fields.of(&path, release) {
            Known::As(_) => self.known(value, &path, &path),
            Known::Elsewhere(first, last) => {
                let range = range(first, last);
                self.found.push(format!(
                    "`{path}` is a field {range}, and the payload has {release}: {program} would ignore it"
                ));
                self.walk(value, &path);
            }
            Known::Never if release > NEWEST => {}
            Known::Never => {
                let near = question(key, self.below(at));
                let kind = self.kind;
                self.found.push(format!(
                    "`{path}` is no field of a {kind}, and {program} would ignore it{near}"
                ));
            }
        }
    }

    /// A value at a path of the table, which people know as `shown`.
    fn known(&mut self, value: &Value, path: &str, shown: &str) {
        let kind = match self.fields.of(path, self.release) {
            Known::As(kind) => kind,
            Known::Elsewhere(..) | Known::Never => "",
        };
        match wrong_value(kind, value) {
            Some(wanted) => self.found.push(format!(
                "`{shown}` is {value}, and {} wants {wanted} there: it would end",
                self.program
            )),
            None => self.walk(value, path),
        }
    }

    /// Names of the fields below a path.
    fn below(&self, at: &str) -> impl Iterator<Item = &'static str> {
        let before = match at {
            "" => String::new(),
            at => format!("{at}."),
        };
        let own = |path: &'static str| {
            let name = path.strip_prefix(before.as_str())?;
            (!name.contains(['.', '[', '{'])).then_some(name)
        };
        self.fields
            .names()
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
                Reader::Kubelet,
                "1.33",
                json!({"maxPods": "x"}),
                "`maxPods` is \"x\", and the kubelet wants a whole number of 32 bits there: it would end".to_owned(),
            ),
            (
                Reader::Kubelet,
                "1.37",
                json!({"registerWithTaints": [{"key": 5}]}),
                "`registerWithTaints[].key` is 5, and the kubelet wants a text there: it would end".to_owned(),
            ),
            (
                Reader::Kubelet,
                "1.37",
                json!({"clusterDNS": ["10.0.0.10", 5]}),
                "`clusterDNS[1]` is 5, and the kubelet wants a text there: it would end".to_owned(),
            ),
            (
                Reader::Kubelet,
                "1.37",
                json!({"evictionHard": {"memory.available": 5}}),
                "`evictionHard.memory.available` is 5, and the kubelet wants a text there: it would end".to_owned(),
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
            assert_eq!(wrong(reader, &config, release), [wanted]);
        }
    }

    #[test]
    fn what_a_release_knows_is_not_named() {
        let config = json!({"evictionHard": {"nodefs.available": "10%"}, "featureGates": {"Any": true},
            "registerWithTaints": [{"key": "os", "timeAdded": null}], "clusterDNS": ["10.0.0.10"],
            "logging": {"options": {"json": {"splitStream": true}}, "vmodule": [{"filePattern": "a", "verbosity": 1}]},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}], "tlsCurvePreferences": [29]});
        let of = |release: &str| {
            wrong(
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
            wrong(Reader::Kubelet, &config, release),
            Vec::<String>::new()
        );
    }
}
