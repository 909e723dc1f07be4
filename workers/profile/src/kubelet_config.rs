//! OpenShift's KubeletConfigs: which of their settings reach the kubelets of Windows nodes.

use serde_json::{Map, Value};

use crate::kubelet_pairs::{PERIODS, contradictions};

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
    "tlsMinVersion",
];

/// Settings of KubeletConfigs (name and `spec.kubeletConfig`, the later over the earlier) that reach Windows nodes, and a
/// sentence for each KubeletConfig with others.
#[must_use]
pub fn reaching(configs: &[(String, Value)]) -> (Map<String, Value>, Vec<String>) {
    let mut reaching = Map::new();
    let mut ignored = Vec::new();
    for (name, config) in configs {
        let settings = config.as_object().into_iter().flatten();
        let (known, other): (Vec<_>, Vec<_>) = settings
            .filter(|(_, value)| !value.is_null())
            .partition(|(setting, _)| REACHING.contains(&setting.as_str()));
        for (setting, value) in known {
            reaching.insert(setting.clone(), literal(value));
        }
        // Fields that every KubeletConfig may have are no settings.
        let other = other.iter().map(|(setting, _)| setting.as_str());
        let other: Vec<_> = other
            .filter(|it| !["apiVersion", "kind"].contains(it))
            .collect();
        if !other.is_empty() {
            ignored.push(format!(
                "KubeletConfig {name}: {} do not reach Windows nodes",
                other.join(", ")
            ));
        }
    }
    ignored.extend(without_contradictions(&mut reaching));
    (reaching, ignored)
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

    #[test]
    fn what_means_the_same_reaches_windows_and_the_rest_is_named() {
        let configs = [
            (
                "a".to_owned(),
                json!({"maxPods": 100, "cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}}),
            ),
            (
                "b".to_owned(),
                json!({"maxPods": 200, "tlsCipherSuites": ["${X}"], "kubeAPIQPS": null, "kind": "K"}),
            ),
        ];
        let (reaching, ignored) = reaching(&configs);
        assert_eq!(
            Value::Object(reaching),
            json!({"maxPods": 200, "tlsCipherSuites": ["$${X}"]})
        );
        assert_eq!(
            ignored,
            ["KubeletConfig a: cpuManagerPolicy, kubeReserved do not reach Windows nodes"]
        );
    }

    #[test]
    fn what_would_end_a_kubelet_reaches_none() {
        let of = |settings| reaching(&[("a".to_owned(), settings)]);
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
