//! Obstacles of a move from WMCO: a table of data, each row with what to do.

use super::pause;
use super::survey::{INSTANCES, KEY, KeySecret, POOL, Survey, WindowsNode};
use dormer_lint::Severity;
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MigrationFinding {
    /// Stable code.
    pub(super) code: &'static str,
    pub(super) severity: Severity,
    /// Object: `Node win-a`.
    pub(super) object: String,
    pub(super) message: String,
    /// What to do, with a command.
    pub(super) what_to_do: String,
}

/// An object, and what is wrong with it.
type ObjectProblem = (String, String);

/// Row of the table.
struct CheckRow {
    code: &'static str,
    severity: Severity,
    judge: fn(&Survey) -> Vec<ObjectProblem>,
    /// What to do. `WMCO` and `DORMER` stand for the namespaces, `OBJECT` for the object's name.
    todo: &'static str,
}

/// The way in which `OBJECT` is written in a command.
const TABLE: &[CheckRow] = &[
    CheckRow {
        code: "Unread",
        severity: Severity::Error,
        judge: |survey| {
            let said = |why: &String| (String::new(), why.clone());
            survey.unread.iter().map(said).collect()
        },
        todo: "give the kubeconfig's account the right to read it, and run the command again",
    },
    CheckRow {
        code: "NoWmcoNode",
        severity: Severity::Warning,
        judge: |survey| {
            match survey.nodes.iter().all(|node| node.version.is_none()) {
            true => vec![(
                String::new(),
                "no node was configured by the Windows Machine Config Operator: there is nothing to move".into(),
            )],
            false => Vec::new(),
        }
        },
        todo: "install dormer: docs/install.md; to see the nodes: kubectl get nodes -l kubernetes.io/os=windows",
    },
    CheckRow {
        code: "NodeUnfinished",
        severity: Severity::Error,
        judge: |survey| {
            let runs = !survey.operator_left().is_empty();
            nodes(survey, |node| {
                let theirs = runs && node.version.is_none() && node.dormer.is_none();
                theirs.then(|| {
                    "WMCO has not finished its configuration: it has no version".to_owned()
                })
            })
        },
        todo: "let WMCO finish it, or delete its Machine; to see why it does not: kubectl -n WMCO logs \
               deployment/windows-machine-config-operator",
    },
    CheckRow {
        code: "NodeUpgrading",
        severity: Severity::Error,
        judge: |survey| {
            nodes(survey, |node| {
                node.upgrading.then(|| "WMCO upgrades it".to_owned())
            })
        },
        todo: "wait until WMCO has finished: kubectl get nodes -l windowsmachineconfig.openshift.io/upgrading=true",
    },
    CheckRow {
        code: "VersionsDiffer",
        severity: Severity::Error,
        judge: |survey| {
            let mut found = nodes(survey, |node| {
                let is = node.version.as_ref()?;
                let wanted = node.desired_version.as_ref()?;
                let open = is != wanted && node.dormer.is_none();
                open.then(|| format!("it has WMCO's version {is}, and should have {wanted}"))
            });
            let versions: BTreeSet<_> = survey.still_wmco().map(|node| &node.version).collect();
            if versions.len() > 1 {
                let message = format!("WMCO's nodes have {} different versions", versions.len());
                found.push((String::new(), message));
            }
            found
        },
        todo: "let WMCO bring all nodes to one version: kubectl get nodes -l kubernetes.io/os=windows -o \
               custom-columns='NODE:.metadata.name,VERSION:.metadata.annotations.windowsmachineconfig\\.openshift\\.io/version'",
    },
    CheckRow {
        code: "RebootRequired",
        severity: Severity::Error,
        judge: |survey| {
            nodes(survey, |node| {
                node.reboot_required
                    .then(|| "WMCO owes it a reboot".to_owned())
            })
        },
        todo: "let WMCO reboot it, while WMCO still runs; it is done when the annotation is gone: kubectl get node OBJECT -o \
               yaml",
    },
    CheckRow {
        code: "NodeNotReady",
        severity: Severity::Error,
        judge: |survey| {
            nodes(survey, |node| {
                (!node.ready && !node.fenced).then(|| "it is not Ready".to_owned())
            })
        },
        todo: "mend it first, so that a fault from before is not taken for one of the move: kubectl describe node OBJECT",
    },
    CheckRow {
        code: "NodeCordoned",
        severity: Severity::Warning,
        judge: |survey| {
            nodes(survey, |node| {
                let others = node.cordoned && !node.fenced && !node.ignored;
                others.then(|| "somebody cordoned it: dormer does not upgrade it".to_owned())
            })
        },
        todo: "kubectl uncordon OBJECT",
    },
    CheckRow {
        code: "KeyAbsent",
        severity: Severity::Error,
        judge: |survey| {
            let absent = survey.key == KeySecret::Absent && survey.key_copy == KeySecret::Absent;
            secret(
                absent.then(|| {
                    "neither WMCO's namespace nor dormer's has the hosts' SSH key".to_owned()
                }),
            )
        },
        todo: "kubectl -n DORMER create secret generic cloud-private-key --from-file=private-key.pem=KEYFILE",
    },
    CheckRow {
        code: "KeyUnusable",
        severity: Severity::Error,
        judge: |survey| {
            let why = |key: &KeySecret, home: &str| match key {
                KeySecret::Unusable(why) => Some(format!("in {home}: {why}")),
                KeySecret::Absent | KeySecret::There(_) => None,
            };
            let theirs = why(&survey.key, &survey.wmco_namespace);
            secret(why(&survey.key_copy, &survey.namespace).or(theirs))
        },
        todo: "give the hosts a key that dormer can use (ed25519, ECDSA, or RSA of at least 2048 bits, without a passphrase) \
               while WMCO runs: kubectl -n WMCO create secret generic cloud-private-key \
               --from-file=private-key.pem=KEYFILE --dry-run=client -o yaml | kubectl apply -f -",
    },
    CheckRow {
        code: "KeyCopiesDiffer",
        severity: Severity::Error,
        judge: |survey| {
            let differ = survey
                .key
                .hash()
                .zip(survey.key_copy.hash())
                .is_some_and(|(a, b)| a != b);
            secret(
                differ
                    .then(|| "dormer's copy of the SSH key is another key than WMCO's".to_owned()),
            )
        },
        todo: "kubectl -n DORMER delete secret cloud-private-key, and copy it again: dormer migrate next -n DORMER",
    },
    CheckRow {
        code: "HashDiffers",
        severity: Severity::Error,
        judge: |survey| {
            let key = survey.key.hash().or(survey.key_copy.hash());
            nodes(survey, |node| {
                let hash = node.key_hash.as_deref()?;
                let key = key?;
                let open = hash != key && node.dormer.is_none();
                open.then(|| {
                    "it was configured with another SSH key than the Secret's: WMCO replaces its Machine, or waits for \
                     the key if it is a BYOH host"
                        .to_owned()
                })
            })
        },
        todo: "let WMCO finish the change of the key: kubectl -n openshift-machine-api get \
               machines.machine.openshift.io -w",
    },
    CheckRow {
        code: "NodeWithoutMachine",
        severity: Severity::Error,
        judge: |survey| {
            nodes(survey, |node| {
                let stray = node.machine.is_none() && !node.own_host && node.dormer.is_none();
                stray.then(|| "it has no Machine, and no label of a BYOH host".to_owned())
            })
        },
        todo: "find out whose it is before you continue; dormer takes over nodes with a Machine, and entries of \
               windows-instances: kubectl get node OBJECT --show-labels",
    },
    CheckRow {
        code: "InstancesNotCopied",
        severity: Severity::Error,
        judge: |survey| {
            let owned = survey.wmco_nodes().any(|node| node.own_host);
            match (owned && survey.own_instances.is_none(), survey.instances) {
                (true, Some(entries)) => vec![(
                    format!("ConfigMap {}/{INSTANCES}", survey.wmco_namespace),
                    format!("its {entries} BYOH hosts are not in dormer's namespace"),
                )],
                (true, None) => vec![(
                    format!("ConfigMap {INSTANCES}"),
                    "nodes have the label of a BYOH host, and no ConfigMap names them".to_owned(),
                )],
                (false, _) => Vec::new(),
            }
        },
        todo: "install with ownHosts=true, and copy the ConfigMap; it stays in WMCO's namespace, too: kubectl -n WMCO get \
               configmap windows-instances -o yaml | sed 's/namespace: .*/namespace: DORMER/' | kubectl apply -f -",
    },
    CheckRow {
        code: "ServicesAbsent",
        severity: Severity::Error,
        judge: |survey| {
            let there: BTreeSet<&String> = survey.services.iter().collect();
            let needed: BTreeSet<&String> = survey
                .still_wmco()
                .filter_map(|node| node.version.as_ref())
                .collect();
            let home = &survey.wmco_namespace;
            let missing = needed.difference(&there);
            missing
                .map(|version| {
                    let name = format!("ConfigMap {home}/windows-services-{version}");
                    (
                        name,
                        "nodes follow it, and it is gone: there is no way back for them".to_owned(),
                    )
                })
                .collect()
        },
        todo: "bring it back from a backup, or let WMCO write it again (it does when it starts): kubectl -n WMCO get \
               configmaps",
    },
    CheckRow {
        code: "DaemonAccountAbsent",
        severity: Severity::Warning,
        judge: |survey| match survey.still_wmco().next().is_some() && !survey.daemon_account {
            true => vec![(
                format!(
                    "ServiceAccount {}/windows-instance-config-daemon",
                    survey.wmco_namespace
                ),
                "it is gone, and nodes still use it (on Azure cloud-node-manager, too)".to_owned(),
            )],
            false => Vec::new(),
        },
        todo: "upgrade the nodes with dormer soon, or let WMCO write it again: kubectl -n WMCO get serviceaccounts",
    },
    CheckRow {
        code: "PoolNotPaused",
        severity: Severity::Error,
        judge: |survey| {
            match &survey.pool {
            Some(pool) if !survey.operator_left().is_empty() && !pool.waits() => vec![(
                format!("WindowsPool {}/{POOL}", survey.namespace),
                "it upgrades nodes as soon as WMCO is gone: it is not paused, or its approval is Automatic".to_owned(),
            )],
            Some(_) | None => Vec::new(),
        }
        },
        todo: "kubectl -n DORMER patch windowspool windows --type merge -p \
               '{\"spec\":{\"paused\":true,\"approval\":\"Manual\"}}'",
    },
    CheckRow {
        code: "PoolRecreates",
        severity: Severity::Warning,
        judge: |survey| {
            match &survey.pool {
            Some(pool) if !pool.in_place && survey.still_wmco().next().is_some() => vec![(
                format!("WindowsPool {}/{POOL}", survey.namespace),
                "the first upgrade replaces each Machine: its host, and the way back with it, are gone".to_owned(),
            )],
            Some(_) | None => Vec::new(),
        }
        },
        todo: "to keep the hosts: kubectl -n DORMER patch windowspool windows --type merge -p \
               '{\"spec\":{\"strategy\":{\"type\":\"InPlace\"}}}'",
    },
    CheckRow {
        code: "PauseImage",
        severity: Severity::Warning,
        judge: |survey| {
            let found = pause::judge(survey).into_iter();
            found.map(|message| (String::new(), message)).collect()
        },
        todo: "see which mirrors there are, and choose a way in docs/migrate-from-wmco.md, The pause image: kubectl get \
               imagetagmirrorsets -o yaml",
    },
];

fn nodes(survey: &Survey, judge: impl Fn(&WindowsNode) -> Option<String>) -> Vec<ObjectProblem> {
    let all = survey.nodes.iter();
    all.filter_map(|node| Some((format!("Node {}", node.name), judge(node)?)))
        .collect()
}

fn secret(message: Option<String>) -> Vec<ObjectProblem> {
    message
        .map(|message| (format!("Secret {KEY}"), message))
        .into_iter()
        .collect()
}

/// Fills a command in.
pub(super) fn filled(survey: &Survey, text: &str, object: &str) -> String {
    let name = object.rsplit([' ', '/']).next().unwrap_or_default();
    // WMCO's own words hold no placeholder but as a namespace.
    text.replace("-n WMCO", &format!("-n {}", survey.wmco_namespace))
        .replace("DORMER", &survey.namespace)
        .replace("OBJECT", name)
}

/// Findings of a survey, in the order in which one mends them.
pub(super) fn judge(survey: &Survey) -> Vec<MigrationFinding> {
    let mut found = Vec::new();
    for row in TABLE {
        for (object, message) in (row.judge)(survey) {
            found.push(MigrationFinding {
                code: row.code,
                severity: row.severity,
                what_to_do: filled(survey, row.todo, &object),
                object,
                message,
            });
        }
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::survey::SurveyedPool, *};

    /// A node that WMCO has finished.
    pub(in super::super) fn node(name: &str) -> WindowsNode {
        WindowsNode {
            name: name.into(),
            machine: Some(format!("m-{name}")),
            version: Some("11.0.0-a".into()),
            desired_version: Some("11.0.0-a".into()),
            key_hash: Some("k".into()),
            ready: true,
            ..WindowsNode::default()
        }
    }

    /// A cluster of WMCO's in which a move may begin.
    pub(in super::super) fn healthy() -> Survey {
        Survey {
            namespace: "dormer".into(),
            kubernetes: "v1.33.4".into(),
            wmco_namespace: "wmco".into(),
            runs: Some("the Windows Machine Config Operator runs (Pod wmco/w-1)".into()),
            deployment: Some(1),
            lock_holder: Some("w-1".into()),
            subscriptions: vec!["wmco/windows".into()],
            cluster_service_versions: vec!["wmco/windows-machine-config-operator.v11.0.0".into()],
            services: vec!["11.0.0-a".into()],
            daemon_account: true,
            key: KeySecret::There("k".into()),
            nodes: vec![node("win-a"), node("win-b")],
            ..Survey::default()
        }
    }

    fn codes(survey: &Survey) -> Vec<&'static str> {
        judge(survey).iter().map(|it| it.code).collect()
    }

    fn pool(paused: bool, manual: bool, in_place: bool) -> Option<SurveyedPool> {
        Some(SurveyedPool {
            paused,
            manual,
            in_place,
        })
    }

    type Plant = fn(&mut Survey);

    /// What is wrong, and the one finding that it gives.
    const PLANTS: &[(&str, Plant)] = &[
        ("Unread", |it| it.unread.push("Secrets: forbidden".into())),
        ("NoWmcoNode", |it| it.nodes.clear()),
        ("NodeUnfinished", |it| it.nodes[0].version = None),
        ("NodeUpgrading", |it| it.nodes[0].upgrading = true),
        ("VersionsDiffer", |it| {
            it.nodes[0].desired_version = Some("11.0.1-b".into());
        }),
        ("VersionsDiffer", |it| {
            it.nodes[0].version = Some("11.0.1-b".into());
            it.nodes[0].desired_version = Some("11.0.1-b".into());
            it.services.push("11.0.1-b".into());
        }),
        ("RebootRequired", |it| it.nodes[0].reboot_required = true),
        ("NodeNotReady", |it| it.nodes[0].ready = false),
        ("NodeCordoned", |it| it.nodes[0].cordoned = true),
        ("KeyAbsent", |it| it.key = KeySecret::Absent),
        ("KeyUnusable", |it| {
            it.key = KeySecret::Unusable("it has a passphrase".into());
        }),
        ("KeyCopiesDiffer", |it| {
            it.key_copy = KeySecret::There("other".into());
        }),
        ("HashDiffers", |it| {
            it.nodes[0].key_hash = Some("older".into());
        }),
        ("NodeWithoutMachine", |it| it.nodes[0].machine = None),
        ("InstancesNotCopied", |it| {
            it.nodes[0].machine = None;
            it.nodes[0].own_host = true;
            it.instances = Some(1);
        }),
        ("ServicesAbsent", |it| it.services.clear()),
        ("DaemonAccountAbsent", |it| it.daemon_account = false),
        ("PoolNotPaused", |it| it.pool = pool(false, true, true)),
        ("PoolNotPaused", |it| it.pool = pool(true, false, true)),
        ("PoolRecreates", |it| it.pool = pool(true, true, false)),
        ("PauseImage", |it| {
            it.tag_mirrors = vec!["mcr.microsoft.com/oss".into()];
        }),
        ("PauseImage", |it| {
            it.blocked_registries = vec!["registry.k8s.io".into()];
        }),
    ];

    #[test]
    fn each_planted_fault_is_found_alone() {
        assert_eq!(codes(&healthy()), [""; 0]);
        for (code, plant) in PLANTS {
            let mut survey = healthy();
            plant(&mut survey);
            assert_eq!(codes(&survey), [*code], "{survey:#?}");
        }
        for row in TABLE {
            let planted = PLANTS.iter().any(|(code, _)| *code == row.code);
            assert!(planted, "{} is never planted", row.code);
        }
    }

    #[test]
    fn advice_names_the_namespaces_and_the_object() {
        let mut survey = healthy();
        survey.nodes[1].ready = false;
        survey.nodes[0].version = None;
        let found = judge(&survey);
        let todo: Vec<&str> = found.iter().map(|it| it.what_to_do.as_str()).collect();
        assert!(todo[0].contains("kubectl -n wmco logs"), "{todo:?}");
        assert!(todo[1].ends_with("kubectl describe node win-b"), "{todo:?}");
    }

    /// What dormer has upgraded is no longer WMCO's: its marks of WMCO may be as they are.
    #[test]
    fn a_node_of_dormers_is_judged_by_nothing_of_wmcos() {
        let mut survey = healthy();
        for node in &mut survey.nodes {
            node.dormer = Some("11.1.0-x".into());
            node.key_hash = Some("older".into());
            node.desired_version = Some("10".into());
        }
        survey.services.clear();
        assert_eq!(codes(&survey), [""; 0]);
    }
}
