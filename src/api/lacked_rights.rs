//! Rights that roles lack, out of the API server's refusals of what they attempt for machines.

use super::{run_cache::SharedRun, views::called};
use dormer_engine_core::{Run, TaskPhase};
use dormer_proto::message::listed;
use dormer_views::finding::{Finding, FindingSeverity};
use dormer_workers::kubernetes::lacked_right::{LackedRight, RefusedAccount};
use dormer_workflows::{Dormer, State, machine::Phase};
use std::collections::{BTreeMap, BTreeSet};

/// Most machines that a finding names.
const MACHINES_MAX: usize = 5;
/// Namespace of the release where a refusal names none.
const HOME: &str = "dormer";

/// Finding about a right, with the runs that need it.
fn finding(lacked: &LackedRight, needed_by: &BTreeSet<String>) -> Finding {
    let (object, home) = match &lacked.account {
        Some(RefusedAccount::ServiceAccount { namespace, name }) => {
            let object = format!("ServiceAccount {namespace}/{name}");
            (object, namespace.as_str())
        }
        Some(RefusedAccount::User(user)) => (format!("User {user}"), HOME),
        None => ("approver".to_owned(), HOME),
    };
    let names: Vec<&String> = needed_by.iter().collect();
    let need = if names.len() == 1 { "needs" } else { "need" };
    let names = listed(&names, MACHINES_MAX);
    Finding {
        code: "RightsAbsent".into(),
        severity: FindingSeverity::Error.into(),
        object,
        message: format!("it may not {}, and {names} {need} that", lacked.right),
        what_to_do: granted_by(lacked, home),
    }
}

/// What grants the right to an account of the installation in namespace `home`.
fn granted_by(lacked: &LackedRight, home: &str) -> String {
    let upgrade = format!("helm upgrade dormer deploy/chart -n {home} --reset-then-reuse-values");
    match lacked.settings.as_slice() {
        [] if matches!(lacked.account, Some(RefusedAccount::User(_))) => {
            "bind the account to a role of deploy/rbac.yaml that has the right: its own bindings name dormer's \
             ServiceAccounts alone"
                .to_owned()
        }
        // The subjects in the file are of that namespace.
        [] if home != HOME => format!("{upgrade} grants it, with the chart of dormer's version"),
        [] => "kubectl apply -f deploy/rbac.yaml grants it, or upgrade the chart together with dormer"
            .to_owned(),
        [setting] => format!("{upgrade} --set {setting} grants it"),
        [setting, others @ ..] => {
            let others = others.join(" or --set ");
            format!("{upgrade} --set {setting} grants it, or, for canary pods, --set {others}")
        }
    }
}

/// Rights in what the API server refused lately, as far as the run is not past it.
fn refused_rights(run: &Run<Dormer>) -> Vec<LackedRight> {
    let failures = run.tasks.iter().filter_map(|task| match &task.phase {
        TaskPhase::Waiting { failure, .. } => Some(failure),
        TaskPhase::InFlight { .. } => task.last.as_ref(),
    });
    let mut rights: Vec<LackedRight> = failures.filter_map(LackedRight::of_failure).collect();
    if let State::Machine(state) = &run.state
        && let Phase::Evicting(_, drain) = &state.phase
    {
        let blockers = drain.blockers.iter();
        rights.extend(blockers.filter_map(|it| LackedRight::of(&it.why)));
    }
    rights
}

/// Rights without which open runs do not continue; one finding each.
pub(super) fn lacked(runs: &[SharedRun]) -> Vec<Finding> {
    let mut lacked: BTreeMap<LackedRight, BTreeSet<String>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.closed.is_none()) {
        for right in refused_rights(run) {
            lacked.entry(right).or_default().insert(called(run));
        }
    }
    let found = lacked.iter();
    found
        .map(|(right, needed_by)| finding(right, needed_by))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_engine_core::{Entered, OpenTask, RetryPolicy, TaskKey};
    use dormer_proto::{
        id::{Attempt, Seq, Sum, Timestamp},
        machine::{Blocker, HostRef, MachineFact, MachineRef, Task},
        message::Failure,
    };
    use dormer_workflows::machine::{Change, ChangeStrategy, Drain, State as Machine};
    use std::{collections::VecDeque, sync::Arc};

    const WORKER: &str = "system:serviceaccount:dormer:dormer-worker";

    /// Machine with a task that the API server refused with this message.
    fn run(name: &str, message: &str, waits: bool) -> Run<Dormer> {
        failed(name, Failure::transient("Forbidden", message), waits)
    }

    /// Machine with a task that failed.
    fn failed(name: &str, failure: Failure, waits: bool) -> Run<Dormer> {
        let (phase, last) = if waits {
            let until = Timestamp(10_000);
            (TaskPhase::Waiting { until, failure }, None)
        } else {
            let at = Timestamp(0);
            (TaskPhase::InFlight { at, issued: None }, Some(failure))
        };
        let state = Machine {
            machine: Some(MachineFact {
                machine: MachineRef {
                    name: name.to_owned(),
                    ..MachineRef::default()
                },
                ..MachineFact::default()
            }),
            ..Machine::default()
        };
        let task = OpenTask {
            key: TaskKey {
                seq: Seq(1),
                ordinal: 0,
            },
            body: Task::Probe {
                host: HostRef::default(),
            },
            policy: RetryPolicy::PROMPT,
            first_at: Timestamp(0),
            attempt: Attempt(2),
            episode: Seq(1),
            phase,
            last,
        };
        Run {
            id: format!("machine/{name}").parse().expect("an id"),
            seq: Seq(1),
            began: Timestamp(0),
            state: state.into(),
            entered: Entered {
                seq: Seq(1),
                at: Timestamp(0),
            },
            tasks: vec![task],
            timers: BTreeMap::new(),
            outbox: Vec::new(),
            taken: BTreeMap::new(),
            numbered: Seq(0),
            requests: VecDeque::new(),
            facts: BTreeMap::new(),
            episodes: VecDeque::new(),
            closed: None,
            sum: Sum(0),
        }
    }

    fn refused(verb: &str, resource: &str, group: &str, within: &str) -> String {
        format!(
            "dormer may not do it: x \"win\" is forbidden: User \"{WORKER}\" cannot {verb} resource \"{resource}\" in API \
             group \"{group}\" {within}"
        )
    }

    #[test]
    fn machines_that_need_one_right_are_one_finding_with_its_account() {
        let message = refused("patch", "nodes", "", "at the cluster scope");
        let runs = [
            Arc::new(run("win-b", &message, true)),
            Arc::new(run("win-a", &message, false)),
            Arc::new(run("win-c", "dormer may not patch Node win-c", true)),
        ];
        let found = lacked(&runs);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].code, "RightsAbsent");
        assert_eq!(found[0].object, "ServiceAccount dormer/dormer-worker");
        assert_eq!(
            found[0].message,
            "it may not patch nodes, and win-a, win-b need that"
        );
        assert!(
            found[0]
                .what_to_do
                .starts_with("kubectl apply -f deploy/rbac.yaml"),
            "{found:?}"
        );
    }

    #[test]
    fn a_right_on_machines_names_their_api_and_the_setting_that_grants_it() {
        let capi = "in the namespace \"capi\"";
        for (message, right, cure) in [
            (
                refused(
                    "delete",
                    "machines",
                    "machine.openshift.io",
                    "in the namespace \"openshift-machine-api\"",
                ),
                "delete machines.machine.openshift.io in openshift-machine-api",
                "deploy/rbac.yaml",
            ),
            (
                refused("patch", "machines", "cluster.x-k8s.io", capi),
                "patch machines.cluster.x-k8s.io in capi",
                "--set clusterApiNamespace=capi",
            ),
            (
                refused(
                    "get",
                    "windowshosts",
                    "dormer.io",
                    "in the namespace \"dormer\"",
                ),
                "get windowshosts.dormer.io in dormer",
                "-n dormer --reset-then-reuse-values --set ownHosts=true",
            ),
            (
                refused("delete", "pods", "", "in the namespace \"shop\""),
                "delete pods in shop",
                "--set forcedDrains=true grants it, or, for canary pods, --set canaryNamespace=shop",
            ),
            (
                refused("create", "services", "", "in the namespace \"canary\""),
                "create services in canary",
                "--set canaryNamespace=canary grants it",
            ),
        ] {
            let found = lacked(&[Arc::new(run("win-a", &message, true))]);
            let [finding] = &found[..] else {
                panic!("{message}: {found:?}");
            };
            let text = format!("it may not {right}, and win-a needs that");
            assert_eq!(finding.message, text);
            assert!(finding.what_to_do.contains(cure), "{finding:?}");
        }
    }

    /// The subjects of `deploy/rbac.yaml` are the ServiceAccounts of one namespace.
    #[test]
    fn an_account_that_the_file_does_not_bind_gets_another_cure() {
        let message = refused("patch", "nodes", "", "at the cluster scope");
        for (account, object, cure) in [
            (
                "system:serviceaccount:win:dormer-worker",
                "ServiceAccount win/dormer-worker",
                "helm upgrade dormer deploy/chart -n win --reset-then-reuse-values grants it",
            ),
            ("ann", "User ann", "bind the account to a role"),
        ] {
            let message = message.replace(WORKER, account);
            let found = lacked(&[Arc::new(run("win-a", &message, true))]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].object, object);
            assert!(found[0].what_to_do.starts_with(cure), "{found:?}");
        }
    }

    /// A host writes the message of its own failures, and a stolen one would write a command for people to copy.
    #[test]
    fn what_a_host_says_is_no_refusal_by_the_api_server() {
        let message = refused("patch", "nodes", "", "at the cluster scope");
        let failure = Failure::transient("other", &*message);
        assert_eq!(lacked(&[Arc::new(failed("win-a", failure, true))]), []);
    }

    #[test]
    fn a_pod_that_may_not_be_evicted_names_the_right() {
        let mut run = run("win-a", "dormer may not list pods", true);
        run.tasks.clear();
        let change = Change {
            how: ChangeStrategy::Drain,
            differs: Vec::new(),
            repair: false,
            anew: false,
            asked: true,
        };
        let blocker = Blocker {
            pod: "shop/cart".to_owned(),
            why: refused("create", "pods/eviction", "", "in the namespace \"shop\""),
            budgets: Vec::new(),
            until_off: false,
            finalizers: Vec::new(),
        };
        let drain = Drain {
            blockers: vec![blocker],
            ..Drain::default()
        };
        if let State::Machine(state) = &mut run.state {
            state.phase = Phase::Evicting(change, drain);
        }
        let found = lacked(&[Arc::new(run)]);
        assert_eq!(found.len(), 1, "{found:?}");
        let text = "it may not create pods/eviction in shop, and win-a needs that";
        assert_eq!(found[0].message, text);
    }

    #[test]
    fn an_approver_without_its_signer_is_a_finding() {
        let message = "dormer may not approve CertificateSigningRequest csr-1: certificatesigningrequests.certificates.k8s.io \
                       \"csr-1\" is forbidden: user not permitted to approve requests with signerName \
                       \"kubernetes.io/kubelet-serving\"";
        let found = lacked(&[Arc::new(run("win-a", message, true))]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].object, "approver");
        assert_eq!(
            found[0].message,
            "it may not approve signers.certificates.k8s.io/kubernetes.io/kubelet-serving, and win-a needs that"
        );
    }

    #[test]
    fn a_refusal_that_names_no_whole_right_is_no_finding() {
        let whole = refused("get", "pods", "", "in the namespace \"shop\"");
        for message in [
            "dormer may not patch CertificateSigningRequest csr-1: x \"csr-1\" is forbidden: ValidatingAdmissionPolicy \
             'dormer' with binding 'dormer' denied request: no",
            whole.trim_end_matches('"'),
            "cannot get Node win-a: it is not there",
        ] {
            let found = lacked(&[Arc::new(run("win-a", message, true))]);
            assert_eq!(found, [], "{message}");
        }
    }

    #[test]
    fn a_run_that_has_ended_needs_no_right() {
        let message = refused("patch", "nodes", "", "at the cluster scope");
        let mut run = run("win-a", &message, true);
        assert_eq!(lacked(&[Arc::new(run.clone())]).len(), 1);
        run.closed = Some(Timestamp(1));
        assert_eq!(lacked(&[Arc::new(run)]), []);
    }
}
