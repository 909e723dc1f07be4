//! Dashboard for Grafana.

use serde_json::{Value, json};

/// Panel of the dashboard.
pub(super) struct Panel {
    title: &'static str,
    /// Unit in Grafana's naming.
    unit: &'static str,
    /// Expressions with their legends.
    pub(super) lines: &'static [(&'static str, &'static str)],
}

pub(super) const PANELS: &[Panel] = &[
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

pub(super) fn dashboard() -> Value {
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
