//! Alerts: when a person is called, and the section of the runbook that says what to do.

use serde_json::{Value, json};

/// File with the runbook's sections.
pub(super) const RUNBOOK: &str = "docs/runbook.md";
/// URL of the repository: `repository` in Cargo.toml. Empty if Cargo.toml has none.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
/// Placeholder URL of the runbook if Cargo.toml has no repository. The person who installs the alerts replaces it.
const RUNBOOK_ELSEWHERE: &str = "https://dormer.example/runbook";

/// URL of the runbook, without the section.
pub(super) fn runbook_url() -> String {
    match REPOSITORY.trim_end_matches('/') {
        "" => RUNBOOK_ELSEWHERE.to_owned(),
        repository => format!("{repository}/blob/main/{RUNBOOK}"),
    }
}

/// Comment above the alerts.
pub(super) fn alerts_head() -> String {
    let url = runbook_url();
    format!(
        "# Written by a test from src/telemetry/metrics/generated.rs.\n#\n# Each alert's runbook_url is a section of \
         {RUNBOOK} at {url}.\n# If you keep it elsewhere, set the URL before you apply this file:\n\
         #   sed 's|{url}|https://YOUR.PLACE/runbook.md|' alerts.yaml | kubectl apply -n dormer -f -\n"
    )
}

/// Alert to a person.
pub(super) struct Alert {
    pub(super) name: &'static str,
    severity: &'static str,
    /// Time for which the expression must hold.
    lasts: &'static str,
    pub(super) expr: &'static str,
    summary: &'static str,
}

pub(super) const ALERTS: &[Alert] = &[
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
        expr: r#"sum(increase(dormer_task_failures_total{code=~"NotItsAddress|MachineNotWindows"}[15m])) > 5"#,
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

pub(super) fn rules() -> Value {
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
