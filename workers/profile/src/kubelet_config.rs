//! OpenShift's KubeletConfigs: which of their settings reach the kubelets of Windows nodes.

use serde_json::{Map, Value};

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
    (reaching, ignored)
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
}
