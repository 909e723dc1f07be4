//! What the simulated WMCO does, each rule with WMCO's own source, and what its accounts may do.

use super::wicd;
use crate::api::Grant;

/// The commit of openshift/windows-machine-config-operator in which the rules were read (WMCO 11.0.0).
pub const COMMIT: &str = "0be4b9cc";
pub const DEPLOYMENT: &str = "windows-machine-config-operator";
/// Its leader's lock.
pub const LOCK: &str = "windows-machine-config-operator-lock";
pub(super) const ACCOUNT: &str = "windows-machine-config-operator";
/// The account of its daemons on hosts.
pub(super) const WICD: &str = wicd::SERVICE;

/// Something that it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WmcoRule {
    /// One leads for life.
    LeadsForLife,
    /// A Machine with another key is deleted.
    DeletesOtherKeys,
    /// A Node without a version is configured again.
    ConfiguresWithoutVersion,
    /// Certificate requests are approved.
    ApprovesRequests,
    /// The daemon restores command lines.
    RestoresCommandLines,
    /// Other user data than its own costs every Machine's Node its key.
    ClearsKeysForOtherUserData,
    /// A Node that owes a reboot gets it.
    RebootsWhatOwesIt,
}

/// A rule, where it was read, and the test that fails without it.
#[derive(Debug, Clone, Copy)]
pub struct RuleRow {
    pub rule: WmcoRule,
    /// What it does, for people.
    pub what: &'static str,
    /// The file of WMCO, at [`COMMIT`].
    pub source: &'static str,
    /// The test in `tests/fleet/tests/wmco.rs`.
    pub test: &'static str,
}

/// All of them.
pub const RULES: [RuleRow; 7] = [
    RuleRow {
        rule: WmcoRule::LeadsForLife,
        what: "the Pod that leads owns the ConfigMap windows-machine-config-operator-lock in its own namespace, for life",
        source: "cmd/operator/main.go",
        test: "it_leads_for_life_in_its_own_namespace",
    },
    RuleRow {
        rule: WmcoRule::DeletesOtherKeys,
        what: "a Machine that runs, and whose Node was configured with another key (annotation pub-key-hash), is deleted",
        source: "controllers/windowsmachine_controller.go",
        test: "it_deletes_machines_of_another_key",
    },
    RuleRow {
        rule: WmcoRule::ConfiguresWithoutVersion,
        what: "a Machine that runs, and whose Node has no annotation version, is configured again without a drain",
        source: "controllers/windowsmachine_controller.go",
        test: "it_configures_nodes_without_a_version_undrained",
    },
    RuleRow {
        rule: WmcoRule::ApprovesRequests,
        what: "a certificate request is approved if its node's name is a part of a name in windows-instances",
        source: "pkg/csr/csr.go",
        test: "it_approves_requests_by_a_part_of_a_name",
    },
    RuleRow {
        rule: WmcoRule::RestoresCommandLines,
        what: "its daemon on a host restores the services' command lines every two minutes",
        source: "pkg/daemon/controller/controller.go",
        test: "its_daemon_restores_command_lines_every_two_minutes",
    },
    RuleRow {
        rule: WmcoRule::ClearsKeysForOtherUserData,
        what: "if the Secret windows-user-data is not what it would write by its own key, every Machine's Node loses its \
               pub-key-hash, and the Secret is written again; one that is absent is made, and no Node changes",
        source: "controllers/secret_controller.go",
        test: "it_clears_keys_for_other_user_data_and_so_deletes_machines",
    },
    RuleRow {
        rule: WmcoRule::RebootsWhatOwesIt,
        what: "a Node with the annotation reboot-required is cordoned and drained, and its host is restarted",
        source: "controllers/node_controller.go",
        test: "it_reboots_a_node_that_owes_it",
    },
];

/// The ClusterRole `windows-machine-config-operator`, as far as the rules need resources of it
/// (`bundle/manifests`, read at [`COMMIT`]); in other namespaces its Secrets are only read.
pub(super) fn operator(namespace: &str) -> Vec<Grant> {
    let all = [
        ("configmaps", "get list watch create update patch delete"),
        ("events", "get list watch create update patch delete"),
        ("namespaces", "get list watch"),
        ("nodes", "get list watch patch update delete"),
        ("nodes/status", "patch update"),
        ("pods", "get list watch"),
        ("pods/eviction", "create"),
        ("secrets", "get list watch create update"),
        ("services", "create get delete"),
        ("daemonsets", "get"),
        ("certificatesigningrequests", "create get list watch"),
        ("certificatesigningrequests/approval", "update"),
        ("certificatesigningrequests/status", "get patch update"),
        ("infrastructures", "get list watch"),
        ("networks", "get"),
        ("machines", "get list watch delete"),
        ("machinesets", "get list watch"),
        ("controllerconfigs", "list watch"),
        ("machineconfigs", "list watch"),
    ];
    let mut grants = grants(&all);
    for verb in ["create", "get"] {
        grants.push(Grant {
            namespace: Some(namespace.to_owned()),
            ..Grant::of(verb, "leases")
        });
    }
    grants
}

/// The ClusterRole of the account `windows-instance-config-daemon`.
pub(super) fn daemon() -> Vec<Grant> {
    grants(&[
        ("configmaps", "get list watch"),
        ("nodes", "get list patch update"),
        ("certificatesigningrequests", "create get list watch"),
    ])
}

fn grants(rules: &[(&str, &str)]) -> Vec<Grant> {
    let mut all = Vec::new();
    for (resource, verbs) in rules {
        all.extend(verbs.split(' ').map(|verb| Grant::of(verb, resource)));
    }
    all
}
