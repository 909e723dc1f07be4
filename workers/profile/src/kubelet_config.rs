//! OpenShift's KubeletConfigs: which of their settings reach the kubelets of Windows nodes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    kubelet_pairs::{PERIODS, contradictions},
    variables::seconds,
};

/// Settings that mean the same on Windows. Every other one is for Linux (cgroups, CPUs, swap, sysctls), is the
/// profile's own (certificates, taints, addresses), or counts resources that Windows counts otherwise.
pub const REACHING: &[&str] = &[
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "eventBurst",
    "eventRecordQPS",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "kubeAPIBurst",
    "kubeAPIQPS",
    "maxParallelImagePulls",
    "maxPods",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
    "registryBurst",
    "registryPullQPS",
    "runtimeRequestTimeout",
    "serializeImagePulls",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "streamingConnectionIdleTimeout",
    "tlsCipherSuites",
    "tlsCurvePreferences",
    "tlsMinVersion",
];

/// Releases of the kubelet for which such a setting is written, where that is not all.
pub(crate) const RELEASES: [(&str, &str); 3] = [
    // Before, they do nothing on Windows (docs/settings.md).
    (PERIODS[0], ">=1.34"),
    (PERIODS[1], ">=1.34"),
    // Before, there is no such field.
    ("tlsCurvePreferences", ">=1.36"),
];

/// An object `KubeletConfig` of the machine config pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletConfig {
    pub name: String,
    /// Its `spec.kubeletConfig`.
    pub settings: Value,
    /// Names of further fields of its spec that change a kubelet.
    pub further: Vec<String>,
    /// Why OpenShift takes nothing of it, if it says so.
    pub refused: Option<String>,
}

/// Fields that every configuration may have, and that are no settings.
const NO_SETTINGS: [&str; 2] = ["apiVersion", "kind"];
/// Field of a KubeletConfig's spec that reaches `kubelet.conf`, in other words.
const TLS_PROFILE: &str = "tlsSecurityProfile";

/// Settings that reach Windows nodes, and a sentence for each that does not.
///
/// `rendered` is the `kubelet.conf` of the pool's machine config, with everything that OpenShift puts into it: the one
/// KubeletConfig that counts, the cluster's TLS profile, the latency profile. Without it, the last of `configs` that is not
/// refused counts alone, as on Linux nodes, whose `kubelet.conf` is one file (machine-config-operator
/// `pkg/controller/kubelet-config/helpers.go`).
#[must_use]
pub fn reaching(
    configs: &[KubeletConfig],
    rendered: Option<&Map<String, Value>>,
) -> (Map<String, Value>, Vec<String>) {
    let chosen = configs.iter().rfind(|config| config.refused.is_none());
    let settings = chosen.and_then(|config| config.settings.as_object());
    let mut said = Vec::new();
    for config in configs {
        said.extend(ignored(config, chosen, rendered.is_some()));
    }
    let own = settings.into_iter().flatten();
    let mut reaching: Map<String, Value> = match rendered {
        None => own
            .filter(|(_, value)| !value.is_null())
            .map(literally)
            .collect(),
        Some(file) => {
            // The file has a length of 0 for each that is not set, and for one that OpenShift has not rendered yet. A
            // KubeletConfig that says 0 itself means it.
            let set = |(name, value): &(&String, &Value)| {
                let own = || settings.and_then(|own| own.get(*name));
                !value.is_null() && (!is_zero(value) || own().is_some_and(is_zero))
            };
            file.iter().filter(set).map(literally).collect()
        }
    };
    reaching.retain(|name, _| REACHING.contains(&name.as_str()));
    said.extend(without_contradictions(&mut reaching));
    (reaching, said)
}

/// Whether a setting is a length of time of 0, however it is written (Go's `time.ParseDuration`).
fn is_zero(value: &Value) -> bool {
    value.as_str().and_then(seconds) == Some(0.0)
}

fn literally((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), literal(value))
}

/// What of a KubeletConfig reaches no Windows node, in a sentence.
fn ignored(
    config: &KubeletConfig,
    chosen: Option<&KubeletConfig>,
    rendered: bool,
) -> Option<String> {
    let name = &config.name;
    if let Some(why) = &config.refused {
        return Some(format!(
            "KubeletConfig {name}: OpenShift refused it ({why}), so nothing of it reaches Windows nodes either"
        ));
    }
    if let Some(chosen) = chosen.filter(|chosen| chosen.name != *name) {
        return Some(format!(
            "KubeletConfig {name}: OpenShift gives the nodes of a pool one KubeletConfig, and {} comes later; nothing of \
             {name} reaches Windows nodes",
            chosen.name
        ));
    }
    let settings = config.settings.as_object().into_iter().flatten();
    let settings = settings
        .filter(|(_, value)| !value.is_null())
        .map(|(setting, _)| setting.as_str())
        .filter(|it| !REACHING.contains(it) && !NO_SETTINGS.contains(it));
    let further = config.further.iter().map(String::as_str);
    let further = further.filter(|it| !(rendered && *it == TLS_PROFILE));
    let names: Vec<&str> = settings.chain(further).collect();
    (!names.is_empty()).then(|| {
        format!(
            "KubeletConfig {name}: {} do not reach Windows nodes",
            names.join(", ")
        )
    })
}

/// Takes out pairs that would end a kubelet, and says so. A shutdown's periods come both from here, or none: the cluster's
/// default of the one that is missing is 0.
fn without_contradictions(settings: &mut Map<String, Value>) -> Vec<String> {
    if PERIODS.iter().any(|name| settings.contains_key(*name)) {
        for name in PERIODS {
            settings.entry(name).or_insert_with(|| "0s".into());
        }
    }
    let found = contradictions(|name| settings.get(name));
    let mut said = Vec::new();
    for (names, reason) in found {
        for name in names {
            settings.remove(name);
        }
        let [first, second] = names;
        said.push(format!(
            "KubeletConfigs: {reason}. Until then {first} and {second} do not reach Windows nodes"
        ));
    }
    said
}

/// A value whose texts mean themselves in a profile.
fn literal(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace("${", "$${")),
        Value::Array(all) => Value::Array(all.iter().map(literal).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(name: &str, settings: Value) -> KubeletConfig {
        KubeletConfig {
            name: name.to_owned(),
            settings,
            ..KubeletConfig::default()
        }
    }

    #[test]
    fn what_means_the_same_reaches_windows_and_the_rest_is_named() {
        let config = KubeletConfig {
            further: vec!["tlsSecurityProfile".into(), "logLevel".into()],
            ..named(
                "b",
                json!({"maxPods": 200, "tlsCipherSuites": ["${X}"], "kubeAPIQPS": null, "kind": "K",
                    "cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}}),
            )
        };
        let (settings, said) = reaching(std::slice::from_ref(&config), None);
        let wanted = json!({"maxPods": 200, "tlsCipherSuites": ["$${X}"]});
        assert_eq!(Value::Object(settings), wanted);
        let all = "cpuManagerPolicy, kubeReserved, tlsSecurityProfile, logLevel";
        assert_eq!(
            said,
            [format!("KubeletConfig b: {all} do not reach Windows nodes")]
        );
        let file = Map::new();
        let (_, said) = reaching(&[config], Some(&file));
        assert!(!said[0].contains("tlsSecurityProfile"), "{said:?}");
    }

    #[test]
    fn the_page_names_what_reaches_windows() {
        let page = include_str!("../../../docs/openshift.md");
        let list = page.split("These settings reach Windows nodes:").nth(1);
        let list = list.and_then(|rest| rest.split("The Event").next());
        let named: Vec<&str> = list
            .expect("a list")
            .split('`')
            .skip(1)
            .step_by(2)
            .collect();
        assert_eq!(named, REACHING);
    }

    #[test]
    fn one_kubelet_config_counts_as_on_linux() {
        let first = named(
            "a",
            json!({"maxPods": 100, "imageGCHighThresholdPercent": 70}),
        );
        let second = named("b", json!({"imageGCLowThresholdPercent": 75}));
        let refused = KubeletConfig {
            refused: Some("featureGates is not allowed to be set".into()),
            ..named("c", json!({"maxPods": 9}))
        };
        let (settings, said) = reaching(&[first, second, refused], None);
        let wanted = json!({"imageGCLowThresholdPercent": 75});
        assert_eq!(Value::Object(settings), wanted);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("KubeletConfig a:") && said[0].contains("b comes later"),
            "{said:?}"
        );
        assert!(
            said[1].contains("KubeletConfig c: OpenShift refused it (featureGates"),
            "{said:?}"
        );
    }

    #[test]
    fn what_openshift_renders_for_linux_nodes_counts() {
        let file = json!({"kind": "KubeletConfiguration", "maxPods": 100, "tlsMinVersion": "VersionTLS13",
            "runtimeRequestTimeout": "0s", "shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s",
            "cgroupDriver": "systemd", "nodeStatusUpdateFrequency": "20s"});
        let file = file.as_object().expect("an object");
        let (settings, said) = reaching(&[named("a", json!({"maxPods": 300}))], Some(file));
        let wanted = json!({"maxPods": 100, "tlsMinVersion": "VersionTLS13", "nodeStatusUpdateFrequency": "20s"});
        assert_eq!((Value::Object(settings), said.len()), (wanted, 0));
        // A user who disables the graceful shutdown does so in a KubeletConfig.
        let off = named("a", json!({"shutdownGracePeriod": "0s"}));
        let (settings, _) = reaching(&[off], Some(file));
        assert_eq!(settings["shutdownGracePeriodCriticalPods"], "0s");
        assert_eq!(settings["shutdownGracePeriod"], "0s");
    }

    /// Between a KubeletConfig and the file that OpenShift renders of it lie minutes, and of a paused pool weeks.
    #[test]
    fn a_duration_that_is_not_rendered_yet_is_not_taken_for_zero() {
        let asked = json!({"shutdownGracePeriod": "60s", "shutdownGracePeriodCriticalPods": "1m",
            "streamingConnectionIdleTimeout": "1h30m"});
        let of = |own: &Value, file: &Value| {
            let own = named("a", own.clone());
            Value::Object(reaching(&[own], file.as_object()).0)
        };
        let before = json!({"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s",
            "streamingConnectionIdleTimeout": "0s", "maxPods": 250});
        assert_eq!(of(&asked, &before), json!({"maxPods": 250}));
        let after = json!({"shutdownGracePeriod": "1m0s", "shutdownGracePeriodCriticalPods": "1m0s",
            "streamingConnectionIdleTimeout": "1h30m0s"});
        assert_eq!(of(&asked, &after), after);
        // Off, however a person writes it.
        for off in ["0", "0s", "0m0s"] {
            let asked = json!({"shutdownGracePeriod": off});
            let both = json!({"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s", "maxPods": 250});
            let file = json!({"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s", "maxPods": 250});
            assert_eq!(of(&asked, &file), both, "{off}");
        }
    }

    #[test]
    fn what_would_end_a_kubelet_reaches_none() {
        let of = |settings| reaching(&[named("a", settings)], None);
        // The profile's own period for critical pods would be longer.
        let (settings, said) = of(json!({"shutdownGracePeriod": "10s"}));
        let both = json!({"shutdownGracePeriod": "10s", "shutdownGracePeriodCriticalPods": "0s"});
        assert_eq!((Value::Object(settings), said.len()), (both, 0));
        let (settings, said) = of(json!({"maxPods": 9, "imageGCHighThresholdPercent": 70}));
        assert_eq!(Value::Object(settings), json!({"maxPods": 9}));
        let wanted =
            "`imageGCLowThresholdPercent` (80) is not below `imageGCHighThresholdPercent` (70)";
        assert!(said.len() == 1 && said[0].contains(wanted), "{said:?}");
    }
}
