//! One pass of a drain as the machine controller does it: cordon, evict, see what is left.

use serde_json::{Value, json};

use super::client::Client;
use crate::api::{DeleteOptions, Key, Meta, Refusal, kinds};

/// Whose drain it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    MachineApi,
    /// Pods may say by a label how they are drained (cluster-api ae7ff047d, `core/reconcilers/machine/drain/filters.go`,
    /// `drainLabelFilter`).
    ClusterApi,
}

/// Label of a pod for drains of Cluster API.
const BY_LABEL: &str = "cluster.x-k8s.io/drain";

/// Cordons the node and asks for the eviction of every pod that a drain moves. True when none is
/// left. DaemonSet's and mirror pods stay; on a node that does not report, pods that are being
/// deleted are not waited for.
///
/// # Errors
/// When the cordon is refused; refused evictions only mean that pods are left.
pub async fn pass(client: &Client, node: &Value, rules: Rules) -> Result<bool, Refusal> {
    if node["spec"]["unschedulable"] != true {
        let cordon = json!({"spec": {"unschedulable": true}});
        client.merge(&kinds::NODE, &Key::of(node), &cordon).await?;
    }
    let silent = node
        .condition("Ready")
        .is_some_and(|c| c["status"] == "Unknown");
    let mut left = 0;
    for pod in client.pods_on(node.name()) {
        let pod = &pod.value;
        let label = pod.label(BY_LABEL).filter(|_| rules == Rules::ClusterApi);
        let label = label.map(|it| it.to_ascii_lowercase().replacen('-', "", 1));
        let skipped = label.as_deref() == Some("skip");
        if stays(pod) || skipped || (silent && pod.deleting()) {
            continue;
        }
        left += 1;
        if pod.deleting() || label.as_deref() == Some("waitcompleted") {
            continue;
        }
        let key = Key::of(pod);
        if matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        ) {
            client
                .delete(&kinds::POD, &key, &DeleteOptions::default())
                .await?;
        } else {
            // A refusal leaves the pod where it is; the next pass asks again.
            let _ = client.evict(&key).await;
        }
    }
    Ok(left == 0)
}

fn stays(pod: &Value) -> bool {
    let daemon = pod
        .controller()
        .is_some_and(|(kind, _)| kind == "DaemonSet");
    daemon || pod.annotation("kubernetes.io/config.mirror").is_some()
}
