//! Alerts, dashboard and list of metrics under `deploy/monitoring/`, generated from the tables here and compared with
//! them: `UPDATE_EXPECT=1 cargo test -p dormer-telemetry generated` rewrites them.

use super::{Metrics, page::Kind, registry::RegisteredMetric};
use dormer_profile::yaml;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::PathBuf};

/// File with the runbook's sections.
const RUNBOOK: &str = "docs/runbook.md";
/// URL of the repository: `repository` in Cargo.toml. Empty if Cargo.toml has none.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
/// Placeholder URL of the runbook if Cargo.toml has no repository. The person who installs the alerts replaces it.
const RUNBOOK_ELSEWHERE: &str = "https://dormer.example/runbook";

/// URL of the runbook, without the section.
fn runbook_url() -> String {
    match REPOSITORY.trim_end_matches('/') {
        "" => RUNBOOK_ELSEWHERE.to_owned(),
        repository => format!("{repository}/blob/main/{RUNBOOK}"),
    }
}

/// Comment above the alerts.
fn alerts_head() -> String {
    let url = runbook_url();
    format!(
        "# Written by a test from src/telemetry/metrics/generated.rs.\n#\n# Each alert's runbook_url is a section of \
         {RUNBOOK} at {url}.\n# If you keep it elsewhere, set the URL before you apply this file:\n\
         #   sed 's|{url}|https://YOUR.PLACE/runbook.md|' alerts.yaml | kubectl apply -n dormer -f -\n"
    )
}

/// Comment above the objects with which Prometheus scrapes dormer.
const DORMER_HEAD: &str = "\
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
const EXPORTER_HEAD: &str = "\
# Written by a test from src/telemetry/metrics/generated.rs.
#
# For OpenShift: scrapes the windows_exporter of every node that serves, and gives the cluster's pages about nodes what
# they ask for. OpenShift makes the certificate for the Service; dormer brings it to the hosts when it next configures
# them, and keeps the Service's EndpointSlices. The namespace wants the label openshift.io/cluster-monitoring=true.
";

/// Alert to a person.
struct Alert {
    name: &'static str,
    severity: &'static str,
    /// Time for which the expression must hold.
    lasts: &'static str,
    expr: &'static str,
    summary: &'static str,
}

const ALERTS: &[Alert] = &[
    Alert {
        name: "DormerMachineFailed",
        severity: "warning",
        lasts: "5m",
        expr: r#"max by (reason) (dormer_machines{state="Failed"}) > 0"#,
        summary: "{{ $value }} Windows machines have failed ({{ $labels.reason }}) and wait for a person",
    },
    Alert {
        name: "DormerMachineStuck",
        severity: "warning",
        lasts: "5m",
        expr: r#"max by (state) (dormer_state_oldest_seconds{state=~"Provisioned|Reachable|Configured|Draining|Recreated"}) > 3600"#,
        summary: "A Windows machine has been {{ $labels.state }} for {{ $value | humanizeDuration }}",
    },
    Alert {
        name: "DormerRolloutHalted",
        severity: "warning",
        lasts: "5m",
        expr: "max by (pool) (dormer_rollout_halted) > 0",
        summary: "A failure stops the rollout of the pool {{ $labels.pool }}",
    },
    Alert {
        name: "DormerLeaseHeldLong",
        severity: "warning",
        lasts: "5m",
        expr: "max by (pool) (dormer_rollout_lease_held_seconds) > 7200",
        summary: "A machine of the pool {{ $labels.pool }} has held the lease for {{ $value | humanizeDuration }}",
    },
    Alert {
        name: "DormerLeaseWaitLong",
        severity: "info",
        lasts: "5m",
        expr: "max by (pool) (dormer_rollout_wait_oldest_seconds) > 86400 unless max by (pool) (dormer_rollout_paused) > 0",
        summary: "A machine of the pool {{ $labels.pool }} has waited for the lease for {{ $value | humanizeDuration }}",
    },
    Alert {
        name: "DormerDeadLetters",
        severity: "warning",
        lasts: "5m",
        expr: "max(dormer_dead_letters) > 0",
        summary: "{{ $value }} messages could not be read and became dead letters",
    },
    Alert {
        name: "DormerBacklogGrowing",
        severity: "warning",
        lasts: "10m",
        expr: "max by (class) (dormer_task_queue_oldest_seconds) > 600",
        summary: "An order of the class {{ $labels.class }} has waited for a worker for {{ $value | humanizeDuration }}",
    },
    Alert {
        name: "DormerStoreUnreachable",
        severity: "critical",
        lasts: "2m",
        expr: "min by (pod) (dormer_store_up) < 1",
        summary: "The store does not answer the engine in {{ $labels.pod }}",
    },
    Alert {
        name: "DormerRunQuarantined",
        severity: "critical",
        lasts: "1m",
        expr: "max by (code) (dormer_quarantined_runs) > 0",
        summary: "{{ $value }} runs are quarantined ({{ $labels.code }}) and wait for a person",
    },
    Alert {
        name: "DormerMessagesUnknown",
        severity: "warning",
        lasts: "5m",
        expr: r#"sum(increase(dormer_messages_dropped_total{reason="unknown"}[15m])) > 0"#,
        summary: "Messages come from another incarnation, or from a lost tail, of the store",
    },
    Alert {
        name: "DormerMessagesRefused",
        severity: "critical",
        lasts: "1m",
        expr: "sum by (reason) (increase(dormer_messages_refused_total[10m])) > 0",
        summary: "Messages over NATS have no right signature ({{ $labels.reason }}), and were refused",
    },
    Alert {
        name: "DormerOrdersElsewhere",
        severity: "critical",
        lasts: "1m",
        expr: r#"sum(increase(dormer_task_failures_total{code="NotItsAddress"}[15m])) > 5"#,
        summary: "Orders name hosts that their Machines do not have, and were refused",
    },
    Alert {
        name: "DormerWatcherSilent",
        severity: "critical",
        lasts: "5m",
        expr: "time() - max(dormer_watcher_last_list_timestamp_seconds) > 1800 or max(dormer_watcher_elected) < 1",
        summary: "No watcher has listed the cluster for half an hour, or none is elected",
    },
    Alert {
        name: "DormerPoolRefused",
        severity: "warning",
        lasts: "5m",
        expr: "max(dormer_watcher_pool_refused) > 0",
        summary: "The WindowsPool has invalid settings; dormer keeps the previous ones",
    },
    Alert {
        name: "DormerRoleDown",
        severity: "warning",
        lasts: "10m",
        expr: "min by (pod, role) (dormer_role_up) < 1",
        summary: "The {{ $labels.role }} in {{ $labels.pod }} does not work",
    },
    Alert {
        name: "DormerCertificateLapses",
        severity: "warning",
        lasts: "1h",
        expr: "min by (certificate) (dormer_certificate_expiry_timestamp_seconds) - time() < 604800",
        summary: "The certificate {{ $labels.certificate }} of a dormer process expires in {{ \
        $value | humanizeDuration }}",
    },
    Alert {
        name: "DormerNodeCertificateLapses",
        severity: "warning",
        lasts: "5m",
        expr: "max by (certificate) (dormer_node_certificates_late) > 0",
        summary: "{{ $value }} kubelets have not renewed their {{ $labels.certificate }} certificate; the first lapses at \
        {{ with printf `min(dormer_node_certificate_expiry_timestamp_seconds{certificate=\"%s\"})` \
        $labels.certificate | query }}{{ . | first | value | humanizeTimestamp }}{{ end }}",
    },
    Alert {
        name: "DormerAbsent",
        severity: "critical",
        lasts: "10m",
        expr: "absent(dormer_build_info)",
        summary: "Prometheus scrapes no dormer process",
    },
];

/// Panel of the dashboard.
struct Panel {
    title: &'static str,
    /// Unit in Grafana's naming.
    unit: &'static str,
    /// Expressions with their legends.
    lines: &'static [(&'static str, &'static str)],
}

const PANELS: &[Panel] = &[
    Panel {
        title: "Machines by state",
        unit: "short",
        lines: &[(
            "sum by (state) (max by (state, reason) (dormer_machines))",
            "{{state}}",
        )],
    },
    Panel {
        title: "Failed machines by reason",
        unit: "short",
        lines: &[(
            r#"max by (reason) (dormer_machines{state="Failed"})"#,
            "{{reason}}",
        )],
    },
    Panel {
        title: "Longest in a state now",
        unit: "s",
        lines: &[(
            r#"max by (state) (dormer_state_oldest_seconds{state!~"Joined|Gone"})"#,
            "{{state}}",
        )],
    },
    Panel {
        title: "Time in a state (p90)",
        unit: "s",
        lines: &[(
            r#"histogram_quantile(0.9, sum by (state, le) (rate(dormer_state_duration_seconds_bucket{workflow="machine"}[1h])))"#,
            "{{state}}",
        )],
    },
    Panel {
        title: "Episodes (p50)",
        unit: "s",
        lines: &[(
            "histogram_quantile(0.5, sum by (kind, le) (rate(dormer_episode_duration_seconds_bucket[6h])))",
            "{{kind}}",
        )],
    },
    Panel {
        title: "Transitions",
        unit: "ops",
        lines: &[(
            "sum by (state) (rate(dormer_transitions_total[5m]))",
            "{{state}}",
        )],
    },
    Panel {
        title: "Attempts by outcome",
        unit: "ops",
        lines: &[(
            "sum by (outcome) (rate(dormer_task_attempts_total[5m]))",
            "{{outcome}}",
        )],
    },
    Panel {
        title: "Failures by code",
        unit: "ops",
        lines: &[(
            "topk(10, sum by (task, code) (rate(dormer_task_failures_total[5m])))",
            "{{task}} {{code}}",
        )],
    },
    Panel {
        title: "Tasks from order to end (p90)",
        unit: "s",
        lines: &[(
            "histogram_quantile(0.9, sum by (task, le) (rate(dormer_task_duration_seconds_bucket[1h])))",
            "{{task}}",
        )],
    },
    Panel {
        title: "Duration of attempts (p90)",
        unit: "s",
        lines: &[(
            "histogram_quantile(0.9, sum by (task, le) (rate(dormer_attempt_duration_seconds_bucket[1h])))",
            "{{task}}",
        )],
    },
    Panel {
        title: "Orders without a worker",
        unit: "short",
        lines: &[
            ("max by (class) (dormer_task_queue_length)", "{{class}}"),
            ("sum(dormer_worker_attempts_running)", "being executed"),
        ],
    },
    Panel {
        title: "Wait for a worker",
        unit: "s",
        lines: &[
            (
                "max by (class) (dormer_task_queue_oldest_seconds)",
                "oldest {{class}}",
            ),
            (
                "histogram_quantile(0.9, sum by (le) (rate(dormer_task_queue_wait_seconds_bucket[15m])))",
                "p90",
            ),
        ],
    },
    Panel {
        title: "Tasks under way",
        unit: "short",
        lines: &[(
            "sum by (phase) (max by (task, phase) (dormer_tasks))",
            "{{phase}}",
        )],
    },
    Panel {
        title: "Rollouts",
        unit: "short",
        lines: &[
            (
                "max by (pool) (dormer_rollout_members)",
                "{{pool}}: members",
            ),
            (
                "max by (pool) (dormer_rollout_unavailable)",
                "{{pool}}: unavailable",
            ),
            (
                "max by (pool) (dormer_rollout_max_unavailable)",
                "{{pool}}: at most",
            ),
            (
                "max by (pool) (dormer_rollout_slots)",
                "{{pool}}: leases held",
            ),
            (
                "max by (pool) (dormer_rollout_waiting)",
                "{{pool}}: waiting",
            ),
        ],
    },
    Panel {
        title: "The lease",
        unit: "s",
        lines: &[
            (
                "max by (pool) (dormer_rollout_lease_held_seconds)",
                "{{pool}}: held for",
            ),
            (
                "max by (pool) (dormer_rollout_wait_oldest_seconds)",
                "{{pool}}: waited for",
            ),
            (
                "histogram_quantile(0.9, sum by (le) (rate(dormer_lease_hold_duration_seconds_bucket[6h])))",
                "total hold time, p90",
            ),
        ],
    },
    Panel {
        title: "SSH",
        unit: "short",
        lines: &[
            ("sum(dormer_ssh_connections)", "connections"),
            (
                "sum by (result) (rate(dormer_ssh_logins_total[5m]))",
                "logins {{result}}/s",
            ),
            (
                "sum by (result) (rate(dormer_remote_commands_total[5m]))",
                "commands {{result}}/s",
            ),
        ],
    },
    Panel {
        title: "Remote commands and logins (p90)",
        unit: "s",
        lines: &[
            (
                "histogram_quantile(0.9, sum by (le) (rate(dormer_remote_command_duration_seconds_bucket[15m])))",
                "command",
            ),
            (
                "histogram_quantile(0.9, sum by (le) (rate(dormer_ssh_login_duration_seconds_bucket[15m])))",
                "login",
            ),
            (
                "histogram_quantile(0.9, sum by (le) (rate(dormer_upload_duration_seconds_bucket[15m])))",
                "upload",
            ),
        ],
    },
    Panel {
        title: "Uploads",
        unit: "Bps",
        lines: &[("sum(rate(dormer_uploaded_bytes_total[5m]))", "bytes")],
    },
    Panel {
        title: "Upload results",
        unit: "ops",
        lines: &[(
            "sum by (result) (rate(dormer_uploads_total[5m]))",
            "{{result}}",
        )],
    },
    Panel {
        title: "Store: appends",
        unit: "ops",
        lines: &[
            (
                "sum by (result) (rate(dormer_store_appends_total[5m]))",
                "{{result}}",
            ),
            (
                "max by (code) (dormer_quarantined_runs)",
                "quarantined runs: {{code}}",
            ),
            (
                "sum by (workflow, code) (increase(dormer_runs_quarantined_total[5m]))",
                "{{workflow}} quarantined in 5 m: {{code}}",
            ),
            (
                "sum by (work) (increase(dormer_background_panics_total[5m]))",
                "panics in 5 m: {{work}}",
            ),
        ],
    },
    Panel {
        title: "Store: time of an append",
        unit: "s",
        lines: &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(dormer_store_append_duration_seconds_bucket[5m])))",
                "p50",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(dormer_store_append_duration_seconds_bucket[5m])))",
                "p99",
            ),
        ],
    },
    Panel {
        title: "Messages",
        unit: "short",
        lines: &[
            ("max(dormer_dead_letters)", "dead"),
            (
                "sum(rate(dormer_messages_dead_lettered_total[5m]))",
                "dead letters/s",
            ),
            (
                "sum by (reason) (rate(dormer_messages_dropped_total[5m]))",
                "{{reason}}/s",
            ),
            (
                "sum by (reason) (rate(dormer_messages_refused_total[5m]))",
                "refused/s: {{reason}}",
            ),
            (
                "sum(rate(dormer_messages_unsigned_total[5m]))",
                "without a signature/s",
            ),
        ],
    },
    Panel {
        title: "Watcher",
        unit: "short",
        lines: &[
            ("sum(dormer_watcher_elected)", "elected"),
            ("max(dormer_watcher_machines)", "Machines"),
            ("max(dormer_watcher_foreign_csrs)", "foreign CSRs"),
            ("max(dormer_watcher_unreadable_objects)", "unreadable"),
        ],
    },
    Panel {
        title: "Certificates of kubelets: time left",
        unit: "s",
        lines: &[(
            "min by (certificate) (dormer_node_certificate_expiry_timestamp_seconds) - time()",
            "{{certificate}}",
        )],
    },
    Panel {
        title: "Processes",
        unit: "short",
        lines: &[
            ("count by (version) (dormer_build_info)", "{{version}}"),
            ("min by (role) (dormer_role_up)", "{{role}} up"),
            ("min(dormer_store_up)", "store up"),
            (
                "sum by (result) (rate(dormer_spans_total[5m]))",
                "spans {{result}}/s",
            ),
        ],
    },
];

fn rules() -> Value {
    let rule = |alert: &Alert| {
        let anchor = alert.name.to_lowercase();
        json!({
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.lasts,
            "labels": {"severity": alert.severity},
            "annotations": {
                "summary": alert.summary,
                "runbook_url": format!("{}#{anchor}", runbook_url()),
            },
        })
    };
    let rules: Vec<Value> = ALERTS.iter().map(rule).collect();
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "dormer", "labels": {"app.kubernetes.io/name": "dormer"}},
        "spec": {"groups": [{"name": "dormer", "rules": rules}]},
    })
}

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
fn own_pods() -> Vec<Value> {
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
fn exporter() -> Vec<Value> {
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
pub(super) fn node_rules() -> Value {
    exporter().swap_remove(2)
}

fn dashboard() -> Value {
    let panel = |(index, panel): (usize, &Panel)| {
        let lines = panel.lines.iter().zip('A'..);
        let targets: Vec<Value> = lines
            .map(|((expr, legend), id)| {
                json!({"refId": id.to_string(), "expr": expr, "legendFormat": legend,
                    "datasource": {"type": "prometheus", "uid": "${datasource}"}})
            })
            .collect();
        json!({
            "id": index + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"x": (index % 2) * 12, "y": (index / 2) * 8, "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "targets": targets,
        })
    };
    let panels: Vec<Value> = PANELS.iter().enumerate().map(panel).collect();
    json!({
        "uid": "dormer",
        "title": "dormer",
        "tags": ["dormer", "windows"],
        "schemaVersion": 39,
        "editable": true,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{
            "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source",
        }]},
        "panels": panels,
    })
}

/// List of metrics for people.
fn list(listed: &[RegisteredMetric]) -> String {
    let mut text = String::from(
        "# Metrics\n\nGenerated by a test from `src/telemetry/metrics/`. `GET /metrics` shows the \
         metrics of a process's roles.\nEngine and worker show what that process did: across \
         processes, take the sum.\nConsole metrics are read from the store: every process with \
         that role shows the same values, so take the maximum.\n\n| metric | type | labels | role \
         | meaning |\n|---|---|---|---|---|\n",
    );
    for one in listed {
        let kind = match one.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let name = &one.name;
        let labels = one.labels.join(", ");
        let role = one.role;
        let help = one.help;
        text.push_str(&format!(
            "| `{name}` | {kind} | {labels} | {role} | {help} |\n"
        ));
    }
    text
}

fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Compares the committed file with the generated one.
fn held(path: &str, made: &str) {
    let path = in_repository(path);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, made).expect("written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        committed,
        made,
        "{}: run this test with UPDATE_EXPECT=1",
        path.display()
    );
}

/// Metric names in an expression.
fn named(expr: &str) -> BTreeSet<String> {
    let words = expr.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with("dormer_"))
        .map(str::to_owned)
        .collect()
}

/// Every name in a scrape of `listed`.
fn scraped(listed: &[RegisteredMetric]) -> BTreeSet<String> {
    let names = listed.iter().flat_map(|one| match one.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"]
            .map(|end| format!("{}{end}", one.name))
            .to_vec(),
        _ => vec![one.name.clone()],
    });
    names.collect()
}

#[test]
fn the_committed_files_are_what_the_tables_make() {
    let metrics = Metrics::default();
    let rules = yaml::to_string(&rules()).expect("YAML");
    held(
        "deploy/monitoring/alerts.yaml",
        &format!("{}{rules}", alerts_head()),
    );
    let documents = |objects: Vec<Value>| {
        let all = objects
            .iter()
            .map(|one| yaml::to_string(one).expect("YAML"));
        all.collect::<Vec<_>>().join("---\n")
    };
    held(
        "deploy/monitoring/windows-exporter.yaml",
        &format!("{EXPORTER_HEAD}{}", documents(exporter())),
    );
    held(
        "deploy/monitoring/dormer.yaml",
        &format!("{DORMER_HEAD}{}", documents(own_pods())),
    );
    let dashboard = serde_json::to_string_pretty(&dashboard()).expect("JSON");
    held(
        "deploy/monitoring/dashboard.json",
        &format!("{dashboard}\n"),
    );
    held(
        "deploy/monitoring/metrics.md",
        &list(metrics.registry().listed()),
    );
}

/// Prometheus's own tool checks the rules, if it is installed (Debian's package `prometheus`).
#[test]
fn promtool_takes_the_rules() {
    let folder = dormer_testkit::test_dir("promtool");
    let rules = [rules(), node_rules()];
    for (number, rules) in rules.iter().enumerate() {
        let file = folder.path().join(format!("{number}.yaml"));
        fs::write(&file, rules["spec"].to_string()).expect("written");
        let checked = std::process::Command::new("promtool")
            .args(["check", "rules"])
            .arg(&file)
            .output();
        let checked = match checked {
            Ok(checked) => checked,
            Err(error) => {
                let server = "promtool".into();
                let reason = error.to_string();
                dormer_testkit::skip!(dormer_testkit::Skipped { server, reason });
            }
        };
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{said}");
        assert!(
            String::from_utf8_lossy(&checked.stdout).contains("SUCCESS"),
            "{said}"
        );
    }
}

#[test]
fn alerts_and_dashboard_name_only_metrics_that_exist_and_the_dashboard_names_all() {
    let metrics = Metrics::default();
    let exist = scraped(metrics.registry().listed());
    let shown = PANELS
        .iter()
        .flat_map(|panel| panel.lines.iter().map(|(expr, _)| *expr));
    let shown: Vec<&str> = shown.collect();
    for expr in ALERTS
        .iter()
        .map(|alert| alert.expr)
        .chain(shown.iter().copied())
    {
        assert!(!named(expr).is_empty(), "{expr}");
        for name in named(expr) {
            assert!(exist.contains(&name), "{name} of {expr} does not exist");
        }
        for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
            assert_eq!(
                expr.matches(open).count(),
                expr.matches(close).count(),
                "{expr}"
            );
        }
    }
    let all: BTreeSet<String> = shown.iter().flat_map(|expr| named(expr)).collect();
    let alerted: BTreeSet<String> = ALERTS.iter().flat_map(|alert| named(alert.expr)).collect();
    for one in metrics
        .registry()
        .listed()
        .iter()
        .filter(|one| one.name != "dormer_start_time_seconds")
    {
        let shown = all
            .iter()
            .chain(&alerted)
            .any(|name| name.starts_with(&one.name));
        assert!(shown, "nobody looks at {}", one.name);
    }
}

#[test]
fn every_alert_has_a_section_in_the_runbook_and_every_section_an_alert() {
    let runbook = fs::read_to_string(in_repository(RUNBOOK)).expect("a runbook");
    let sections: Vec<&str> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let alerts: Vec<&str> = ALERTS.iter().map(|alert| alert.name).collect();
    assert_eq!(sections, alerts);
    for rule in rules()["spec"]["groups"][0]["rules"]
        .as_array()
        .expect("rules")
    {
        let url = rule["annotations"]["runbook_url"]
            .as_str()
            .expect("an address");
        let (page, section) = url.rsplit_once('#').expect("a section");
        assert!(
            page.starts_with("https://") && page == runbook_url(),
            "{url}"
        );
        assert!(
            alerts.iter().any(|alert| alert.to_lowercase() == section),
            "{url}"
        );
    }
    for part in ["**Means.**", "**Look.**", "**Do.**"] {
        assert_eq!(runbook.matches(part).count(), ALERTS.len(), "{part}");
    }
}

#[test]
fn names_units_and_labels_follow_the_conventions_and_name_no_machine() {
    let metrics = Metrics::default();
    let unbounded = [
        "machine", "node", "run", "uid", "host", "address", "worker", "token", "pod", "attempt",
    ];
    for one in metrics.registry().listed() {
        let name = &one.name;
        assert!(
            name.starts_with("dormer_") && !name.contains("__"),
            "{name}"
        );
        assert_eq!(
            name.ends_with("_total"),
            one.kind == Kind::Counter,
            "{name}"
        );
        assert!(
            one.kind != Kind::Histogram || name.ends_with("_seconds"),
            "{name}"
        );
        for wrong in [
            "_ms", "_millis", "_minutes", "_count", "_sum", "_bucket", "_kb",
        ] {
            assert!(!name.ends_with(wrong), "{name}");
        }
        assert!(
            one.labels.iter().all(|label| !unbounded.contains(label)),
            "{name}: {:?}",
            one.labels
        );
        assert!(
            one.labels.len() <= 2 && !one.help.is_empty() && !one.help.ends_with('.'),
            "{name}"
        );
    }
}
