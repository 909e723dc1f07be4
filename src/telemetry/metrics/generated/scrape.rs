//! Objects with which a Prometheus of the Prometheus Operator scrapes dormer and the nodes, and the rules that give
//! OpenShift's pages what they ask of nodes.

use serde_json::{Value, json};

/// Comment above the objects with which Prometheus scrapes dormer.
pub(super) const DORMER_HEAD: &str = "\
# Written by a test from src/telemetry/metrics/generated.rs.
#
# Has dormer's own pods scraped by a Prometheus of the Prometheus Operator: those with the label
# app.kubernetes.io/name=dormer, at the port that is named http or https (that of --listen). Over TLS the certificate of
# --tls-certificate has to name dormer.dormer.svc, as one does that OpenShift makes for a Service; without OpenShift
# `ca` names your own authority. On OpenShift the namespace wants the label openshift.io/cluster-monitoring=true.
";

/// Name of the Service and its ServiceMonitor.
const EXPORTER: &str = dormer_workers::kubernetes::EXPORTER;
/// Secret that OpenShift's service CA creates for it. Workers copy it to the hosts.
const EXPORTER_TLS: &str = dormer_workers::kubernetes::EXPORTER_TLS;
/// Comment above the objects for the nodes' own metrics.
pub(super) const EXPORTER_HEAD: &str = "\
# Written by a test from src/telemetry/metrics/generated.rs.
#
# For OpenShift: scrapes the windows_exporter of every node that serves, and gives the cluster's pages about nodes what
# they ask for. OpenShift makes the certificate for the Service; dormer brings it to the hosts when it next configures
# them, and keeps the Service's EndpointSlices. The namespace wants the label openshift.io/cluster-monitoring=true.
";

/// Recording rules that OpenShift's node pages query, computed from windows_exporter's metrics. `instance` is the
/// node's name.
const NODE_RULES: &[(&str, &str)] = &[
    (
        "instance:node_cpu:rate:sum",
        r#"sum by (instance) (rate(windows_cpu_time_total{mode!="idle"}[3m]))"#,
    ),
    (
        "instance:node_cpu_utilisation:rate1m",
        r#"1 - avg by (instance) (rate(windows_cpu_time_total{mode="idle"}[1m]))"#,
    ),
    (
        "instance:node_num_cpu:sum",
        r#"count by (instance) (windows_cpu_time_total{mode="idle"})"#,
    ),
    (
        "node_memory_MemTotal_bytes",
        "windows_memory_physical_total_bytes",
    ),
    (
        "node_memory_MemAvailable_bytes",
        "windows_memory_available_bytes",
    ),
    (
        "node_filesystem_size_bytes",
        "windows_logical_disk_size_bytes",
    ),
    (
        "node_filesystem_avail_bytes",
        "windows_logical_disk_free_bytes",
    ),
    (
        "node_filesystem_free_bytes",
        "windows_logical_disk_free_bytes",
    ),
    (
        "node_network_receive_bytes_total",
        "windows_net_bytes_received_total",
    ),
    (
        "node_network_transmit_bytes_total",
        "windows_net_bytes_sent_total",
    ),
    (
        "pod:container_cpu_usage:sum",
        r#"sum by (pod, namespace) (rate(windows_container_cpu_usage_seconds_total[5m]) * on (container_id) group_left (namespace, pod) kube_pod_container_info{container_id!=""})"#,
    ),
    (
        "container_memory_working_set_bytes",
        r#"sum by (pod, namespace) (windows_container_memory_usage_private_working_set_bytes * on (container_id) group_left (namespace, pod) kube_pod_container_info{container_id!=""})"#,
    ),
];

/// CA file of Services' certificates in OpenShift's Prometheus.
const SERVICE_CA: &str = "/etc/prometheus/configmaps/serving-certs-ca-bundle/service-ca.crt";

/// Objects that scrape dormer's own pods, on either of their two ports.
pub(super) fn own_pods() -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": "dormer"});
    // A PodMonitor may name no file (only a ServiceMonitor may). OpenShift puts this ConfigMap into every namespace.
    let authority =
        json!({"configMap": {"name": "openshift-service-ca.crt", "key": "service-ca.crt"}});
    let tls = json!({"ca": authority, "serverName": "dormer.dormer.svc"});
    let monitor = json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor",
    "metadata": {"name": "dormer", "namespace": "dormer", "labels": labels},
    "spec": {
        "selector": {"matchLabels": labels},
        "podMetricsEndpoints": [
            {"port": "http", "path": "/metrics", "interval": "30s"},
            {"port": "https", "path": "/metrics", "interval": "30s", "scheme": "https", "tlsConfig": tls},
        ],
    }});
    std::iter::once(monitor)
        .chain(may_scrape(&labels))
        .collect()
}

/// RBAC objects with which OpenShift's Prometheus discovers its targets in dormer's namespace.
fn may_scrape(labels: &Value) -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "dormer-prometheus", "namespace": "dormer", "labels": labels});
    let reads = json!([{"apiGroups": [""], "resources": ["services", "endpoints", "pods"],
        "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}]);
    [
        json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": reads}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "dormer-prometheus"},
            "subjects": [{"kind": "ServiceAccount", "name": "prometheus-k8s",
                "namespace": "openshift-monitoring"}]}),
    ]
}

/// Service whose EndpointSlices the console maintains (`src/api/projection/exporter.rs`), and the objects that scrape
/// it.
pub(super) fn exporter() -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": EXPORTER});
    let metadata = |name: &str| json!({"name": name, "namespace": "dormer", "labels": labels});
    let mut service = metadata(EXPORTER);
    service["annotations"] =
        json!({"service.beta.openshift.io/serving-cert-secret-name": EXPORTER_TLS});
    let rules: Vec<Value> = NODE_RULES
        .iter()
        .map(|(record, expr)| json!({"record": record, "expr": expr}))
        .collect();
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Service", "metadata": service,
            "spec": {"clusterIP": "None", "ports": [{"name": "metrics", "port": 9182}]}}),
        json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
        "metadata": metadata(EXPORTER),
        "spec": {
            "selector": {"matchLabels": labels},
            "serviceDiscoveryRole": "EndpointSlice",
            "endpoints": [{
                "port": "metrics", "interval": "30s", "scheme": "https",
                "tlsConfig": {
                    "caFile": SERVICE_CA,
                    "serverName": format!("{EXPORTER}.dormer.svc"),
                },
                "relabelings": [{
                    "sourceLabels": ["__meta_kubernetes_endpointslice_endpoint_node_name"],
                    "regex": "(.+)", "targetLabel": "instance",
                }],
            }],
        }}),
        json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
            "metadata": metadata("dormer-windows-nodes"),
            "spec": {"groups": [{"name": "dormer-windows-nodes", "rules": rules}]}}),
    ];
    objects.extend(may_scrape(&labels));
    objects
}

/// The recording rules among them.
pub(in super::super) fn node_rules() -> Value {
    exporter().swap_remove(2)
}
