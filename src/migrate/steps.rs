//! The steps of a move, in their order: a table that reads from the cluster which of them are done, and how to do the next.

use super::{
    findings::{filled, judge},
    survey::{KeySecret, Survey},
};
use dormer_lint::{Severity, counted};
use serde::Serialize;

/// Something that dormer can do for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// Copy WMCO's SSH key into dormer's namespace.
    CopyKey,
    /// Delete WMCO's Subscriptions, ClusterServiceVersions and Deployment.
    RemoveOperator,
    /// Let the pool work.
    Resume,
    /// Let the pool upgrade without approvals.
    Automatic,
}

/// Row of the table.
pub(super) struct StepRow {
    /// Name on the command line.
    pub(super) name: &'static str,
    what: &'static str,
    /// Why it is done, or what is open.
    judge: fn(&Survey) -> Result<String, String>,
    /// How a person does it. `WMCO` and `DORMER` stand for the namespaces.
    how: &'static str,
    /// What a person does afterwards; empty if nothing.
    after: &'static str,
    pub(super) write: Option<Write>,
}

/// Findings of a WMCO that is in the middle of something.
const AT_WORK: [&str; 7] = [
    "NodeUnfinished",
    "NodeUpgrading",
    "VersionsDiffer",
    "RebootRequired",
    "NodeNotReady",
    "HashDiffers",
    "NodeWithoutMachine",
];

pub(super) const STEPS: &[StepRow] = &[
    StepRow {
        name: "wmco-at-rest",
        what: "WMCO has finished its own work on every node",
        judge: |survey| {
            if survey.operator_left().is_empty() {
                return Ok("WMCO is gone".to_owned());
            }
            let found = judge(survey);
            match found.iter().find(|it| AT_WORK.contains(&it.code)) {
                Some(open) => Err(format!("{}: {}", open.object, open.message)),
                None => Ok(format!(
                    "WMCO has nothing to do on {}",
                    counted(survey.wmco_nodes().count(), "node")
                )),
            }
        },
        how: "dormer migrate check -n DORMER",
        after: "",
        write: None,
    },
    StepRow {
        name: "copy-key",
        what: "dormer's namespace has a copy of the SSH key of the hosts",
        judge: |survey| match (&survey.key, &survey.key_copy) {
            (KeySecret::There(a), KeySecret::There(b)) if a != b => {
                Err("the copy is another key than WMCO's".to_owned())
            }
            (_, KeySecret::There(_)) => Ok("the copy is there".to_owned()),
            (_, KeySecret::Unusable(why)) => Err(format!("the copy cannot be used: {why}")),
            (_, KeySecret::Absent) => Err("there is no copy".to_owned()),
        },
        how: "kubectl create namespace DORMER; dormer migrate next --do copy-key -n DORMER",
        after: "",
        write: Some(Write::CopyKey),
    },
    StepRow {
        name: "install",
        what: "dormer runs, and its pool is paused and asks for approvals",
        judge: |survey| {
            let Some(pool) = &survey.pool else {
                return Err("there is no WindowsPool windows".to_owned());
            };
            if survey.watcher.is_none() {
                return Err("no dormer holds the Lease dormer-watcher".to_owned());
            }
            if survey.operator_left().is_empty() {
                return Ok("dormer runs".to_owned());
            }
            let hosts = judge(survey)
                .into_iter()
                .find(|it| it.code == "InstancesNotCopied");
            match (pool.paused, pool.manual, hosts) {
                (_, _, Some(hosts)) => Err(format!("{}: {}", hosts.object, hosts.message)),
                (true, true, None) => {
                    Ok("dormer runs; the pool is paused, approval is Manual".to_owned())
                }
                (false, _, None) => Err("the pool is not paused".to_owned()),
                (true, false, None) => Err("the pool's approval is Automatic".to_owned()),
            }
        },
        how: "helm install dormer deploy/chart -n DORMER -f values.yaml --set pool.spec.paused=true \
              --set pool.spec.approval=Manual --set pool.spec.strategy.type=InPlace",
        after: "",
        write: None,
    },
    StepRow {
        name: "remove-wmco",
        what: "WMCO's Subscription, ClusterServiceVersion and Deployment are gone; its ConfigMaps, annotations and WICD's \
               account stay",
        judge: |survey| match survey.operator_left() {
            left if left.is_empty() => Ok("nothing is left that could start WMCO".to_owned()),
            left => Err(format!("there is still {}", left.join(", "))),
        },
        how: "dormer migrate next --do remove-wmco -n DORMER",
        after: "",
        write: Some(Write::RemoveOperator),
    },
    StepRow {
        name: "adopt",
        what: "dormer has taken every node over: WICD is stopped and disabled there, and no pod has moved",
        judge: |survey| {
            let open: Vec<&str> = survey
                .still_wmco()
                .filter(|node| !node.ignored && node.state.as_deref() != Some("Joined"))
                .map(|node| node.name.as_str())
                .collect();
            match open.as_slice() {
                [] => Ok(format!(
                    "dormer shows {} as Joined",
                    counted(survey.wmco_nodes().count(), "node")
                )),
                [first, ..] => Err(format!(
                    "{} not Joined yet, such as {first}",
                    counted(open.len(), "node")
                )),
            }
        },
        how: "wait, and see: dormer get machines; what is stuck: dormer status",
        after: "",
        write: None,
    },
    StepRow {
        name: "resume",
        what: "the pool works, and each upgrade asks for an approval",
        judge: |survey| match &survey.pool {
            Some(pool) if pool.paused && survey.still_wmco().next().is_some() => {
                Err("the pool is paused".to_owned())
            }
            _ => Ok("the pool is not paused".to_owned()),
        },
        how: "dormer migrate next --do resume -n DORMER",
        after: "take pool.spec.paused out of the chart's values, or add --set pool.spec.paused=null to the next helm \
                upgrade. Otherwise Helm 4 refuses the upgrade; Helm 3 leaves the field until its value in the chart changes",
        write: Some(Write::Resume),
    },
    StepRow {
        name: "first-upgrade",
        what: "one node was upgraded by approval, with a drain, and serves",
        judge: |survey| {
            let first = survey
                .nodes
                .iter()
                .find(|node| node.dormer.is_some() && node.ready);
            match first {
                Some(node) => Ok(format!(
                    "{} carries {}",
                    node.name,
                    node.dormer.clone().unwrap_or_default()
                )),
                None => Err("no node carries a version of dormer's".to_owned()),
            }
        },
        how: "look at what changes, then approve one machine; its pods move once: dormer plan MACHINE; dormer approve \
              MACHINE --why 'first of the move'",
        after: "",
        write: None,
    },
    StepRow {
        name: "automatic",
        what: "the pool upgrades the others without approvals, one after the other",
        judge: |survey| match &survey.pool {
            Some(pool) if pool.manual && survey.still_wmco().any(|node| !node.ignored) => {
                Err("the pool's approval is Manual".to_owned())
            }
            _ => Ok("upgrades need no approval any more".to_owned()),
        },
        how: "dormer migrate next --do automatic -n DORMER",
        after: "take pool.spec.approval out of the chart's values, or add --set pool.spec.approval=null to the next helm \
                upgrade. Otherwise Helm 4 refuses the upgrade; Helm 3 leaves the field until its value in the chart changes",
        write: Some(Write::Automatic),
    },
    StepRow {
        name: "upgrade-all",
        what: "every node carries dormer's version",
        judge: |survey| {
            let open = survey.still_wmco().filter(|node| !node.ignored).count();
            match open {
                0 => Ok("every node that dormer does not ignore carries its version".to_owned()),
                _ => Err(format!("{} to upgrade", counted(open, "node"))),
            }
        },
        how: "wait, and see: dormer status --watch",
        after: "",
        write: None,
    },
    StepRow {
        name: "clean-up",
        what: "WMCO's ConfigMaps, key, accounts and annotations are gone; there is no way back from here",
        judge: |survey| {
            let kept = survey.still_wmco().count();
            if kept > 0 {
                return Err(format!("{} still WMCO's", counted(kept, "node")));
            }
            let home_gone = survey.services.is_empty()
                && !survey.daemon_account
                && survey.key == KeySecret::Absent;
            let nodes = survey.nodes.iter();
            let marked = nodes.filter(|node| node.version.is_some() || node.key_hash.is_some());
            match (home_gone, marked.count()) {
                (true, 0) => Ok("nothing of WMCO is left".to_owned()),
                (true, left) => Err(format!("{} with WMCO's annotations", counted(left, "node"))),
                (false, _) => Err(format!("its namespace {} is there", survey.wmco_namespace)),
            }
        },
        how: "when you are sure: kubectl delete namespace of WMCO; kubectl delete clusterrolebinding,clusterrole \
              windows-instance-config-daemon system-wicd-nodes --ignore-not-found; kubectl annotate nodes \
              -l kubernetes.io/os=windows windowsmachineconfig.openshift.io/version- windowsmachineconfig.openshift.io/desired-version- \
              windowsmachineconfig.openshift.io/pub-key-hash- windowsmachineconfig.openshift.io/username- \
              windowsmachineconfig.openshift.io/reboot-required- windowsmachineconfig.openshift.io/ssh-host-key- \
              windowsmachineconfig.openshift.io/ssh-host-key-type-",
        after: "",
        write: None,
    },
];

/// A step, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MigrationStep {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Done, and all before it, too.
    pub(super) done: bool,
    /// Why it counts as done, or what is open.
    pub(super) why: String,
    /// How to do it.
    pub(super) how: String,
    /// What to do afterwards; empty if nothing.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) after: &'static str,
}

/// All steps. One behind an open step is not done, whatever the cluster shows.
pub(super) fn steps(survey: &Survey) -> Vec<MigrationStep> {
    let mut open = false;
    let one = |row: &StepRow| {
        let (done, why) = match (row.judge)(survey) {
            Ok(why) if !open => (true, why),
            Ok(_) => (false, "it comes later".to_owned()),
            Err(why) => (false, why),
        };
        open |= !done;
        let how = row.how.replace(
            "namespace of WMCO",
            &format!("namespace {}", survey.wmco_namespace),
        );
        MigrationStep {
            name: row.name,
            what: row.what,
            done,
            why,
            how: filled(survey, &how, ""),
            after: row.after,
        }
    };
    STEPS.iter().map(one).collect()
}

/// What a person does after a step, if anything.
pub(super) fn after(name: &str) -> Option<&'static str> {
    let row = STEPS.iter().find(|row| row.name == name)?;
    (!row.after.is_empty()).then_some(row.after)
}

/// What keeps dormer from doing a step, in one sentence with its remedy.
pub(super) fn refusal(survey: &Survey, name: &str) -> Result<Write, (String, String)> {
    let all = steps(survey);
    let Some(row) = STEPS.iter().find(|row| row.name == name) else {
        let names: Vec<&str> = STEPS.iter().map(|row| row.name).collect();
        return Err((
            format!("there is no step {name}"),
            format!("the steps are: {}", names.join(", ")),
        ));
    };
    match all.iter().find(|step| !step.done) {
        None => return Err((format!("{name} is done, as all steps are"), String::new())),
        Some(next) if next.name != name => {
            let done = all.iter().any(|step| step.name == name && step.done);
            let says = if done {
                "is done"
            } else {
                "is not the next step"
            };
            return Err((
                format!("{name} {says}; the next is {}: {}", next.name, next.why),
                next.how.clone(),
            ));
        }
        Some(_) => {}
    }
    let found = judge(survey);
    let stands = found.iter().find(|it| {
        // What this very step mends is no obstacle to it.
        it.severity == Severity::Error && !(name == "copy-key" && it.code.starts_with("Key"))
    });
    if let Some(stands) = stands {
        return Err((
            format!(
                "{} stands in the way: {}: {}",
                stands.code, stands.object, stands.message
            ),
            stands.what_to_do.clone(),
        ));
    }
    row.write.ok_or_else(|| {
        let step = all.iter().find(|step| step.name == name);
        let how = step.map(|step| step.how.clone()).unwrap_or_default();
        (format!("{name} is for a person to do"), how)
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{findings::tests::healthy, survey::SurveyedPool},
        *,
    };

    fn next(survey: &Survey) -> Option<&'static str> {
        steps(survey)
            .into_iter()
            .find(|step| !step.done)
            .map(|step| step.name)
    }

    /// A change in the cluster that ends a step.
    type End = fn(&mut Survey);

    /// A whole move: each step is the next until the cluster shows that it is done.
    const MOVE: &[(&str, End)] = &[
        ("wmco-at-rest", |it| it.nodes[0].upgrading = false),
        ("copy-key", |it| it.key_copy = it.key.clone()),
        ("install", |it| {
            it.watcher = Some("dormer-0".into());
            it.pool = Some(SurveyedPool {
                paused: true,
                manual: true,
                in_place: true,
            });
        }),
        ("remove-wmco", |it| {
            it.runs = None;
            it.deployment = None;
            it.subscriptions.clear();
            it.cluster_service_versions.clear();
        }),
        ("adopt", |it| {
            it.nodes
                .iter_mut()
                .for_each(|node| node.state = Some("Joined".into()));
        }),
        ("resume", |it| {
            it.pool.iter_mut().for_each(|pool| pool.paused = false);
        }),
        ("first-upgrade", |it| {
            it.nodes[0].dormer = Some("11.1.0-x".into())
        }),
        ("automatic", |it| {
            it.pool.iter_mut().for_each(|pool| pool.manual = false);
        }),
        ("upgrade-all", |it| {
            it.nodes[1].dormer = Some("11.1.0-x".into())
        }),
        ("clean-up", |survey| {
            survey.services.clear();
            survey.daemon_account = false;
            survey.key = KeySecret::Absent;
            for node in &mut survey.nodes {
                node.version = None;
                node.key_hash = None;
            }
        }),
    ];

    #[test]
    fn each_step_is_the_next_until_the_cluster_shows_its_end() {
        let mut survey = healthy();
        survey.nodes[0].upgrading = true;
        for (name, end) in MOVE {
            assert_eq!(next(&survey), Some(*name), "{survey:#?}");
            end(&mut survey);
        }
        assert_eq!(next(&survey), None);
        let names: Vec<&str> = MOVE.iter().map(|(name, _)| *name).collect();
        let all: Vec<&str> = STEPS.iter().map(|row| row.name).collect();
        assert_eq!(names, all);
    }

    #[test]
    fn nothing_is_done_out_of_order() {
        let mut survey = healthy();
        survey.nodes[0].upgrading = true;
        for (at, (_, end)) in MOVE.iter().enumerate() {
            for (other, row) in STEPS.iter().enumerate() {
                let done = refusal(&survey, row.name);
                if other != at {
                    let (why, _) = done.expect_err(row.name);
                    assert!(why.contains(MOVE[at].0), "{why}");
                } else if row.write.is_some() {
                    assert_eq!(done, Ok(row.write.expect("a write")), "{}", row.name);
                }
            }
            end(&mut survey);
        }
        assert!(refusal(&survey, "fly").is_err_and(|(why, _)| why.contains("no step fly")));
    }

    /// WMCO is not removed while the way back, or a node, would be lost.
    #[test]
    fn a_finding_of_check_stops_the_next_step() {
        let mut survey = healthy();
        for (_, end) in &MOVE[..3] {
            end(&mut survey);
        }
        assert_eq!(refusal(&survey, "remove-wmco"), Ok(Write::RemoveOperator));
        survey.services.clear();
        let (why, cure) = refusal(&survey, "remove-wmco").expect_err("refused");
        assert!(why.starts_with("ServicesAbsent stands in the way"), "{why}");
        assert!(cure.contains("kubectl -n wmco get configmaps"), "{cure}");
    }

    /// A field in the chart's values is the chart's. The command stands alone, so that it can be copied.
    #[test]
    fn what_a_step_changes_in_the_pool_leaves_the_charts_values() {
        let all = steps(&healthy());
        let named = |name: &str| all.iter().find(|step| step.name == name).expect("a step");
        for (name, field) in [("resume", "paused"), ("automatic", "approval")] {
            assert!(
                named("install")
                    .how
                    .contains(&format!("--set pool.spec.{field}="))
            );
            let step = named(name);
            assert!(
                step.how.starts_with("dormer migrate next --do "),
                "{}",
                step.how
            );
            assert!(!step.how.contains([';', ':']), "{}", step.how);
            assert!(
                step.after
                    .contains(&format!("--set pool.spec.{field}=null")),
                "{}",
                step.after
            );
        }
    }

    /// dormer keeps such annotations true, also for a WMCO that never comes back: each rotation of the key writes the hash.
    #[test]
    fn a_move_is_not_finished_while_a_node_has_wmcos_annotations() {
        let mut survey = healthy();
        for (_, end) in MOVE {
            end(&mut survey);
        }
        assert_eq!(next(&survey), None);
        survey.nodes[0].version = Some("11.0.0-a".into());
        survey.nodes[1].key_hash = Some("k".into());
        let all = steps(&survey);
        let open = all.iter().find(|step| !step.done).expect("a step");
        assert_eq!(open.name, "clean-up");
        assert_eq!(open.why, "2 nodes with WMCO's annotations");
        // OLM leaves both roles, and the group of certificates for WICD keeps its rights by the second.
        for role in ["windows-instance-config-daemon", "system-wicd-nodes"] {
            assert!(open.how.contains(role), "{}", open.how);
        }
    }

    #[test]
    fn a_node_that_dormer_ignores_holds_nothing_up() {
        let mut survey = healthy();
        for (_, end) in &MOVE[..4] {
            end(&mut survey);
        }
        survey.nodes[0].state = Some("Joined".into());
        assert_eq!(next(&survey), Some("adopt"));
        survey.nodes[1].ignored = true;
        assert_eq!(next(&survey), Some("resume"));
    }
}
