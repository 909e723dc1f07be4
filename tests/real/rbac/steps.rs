//! Steps of dormer in the cluster, and the rights that each step needs.

use super::rights::Right;

/// Something that dormer does. Each needs some rights, and all of them together need every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    SeesEverything,
    FindsOperators,
    FindsChanges,
    ReadsLayers,
    FollowsSettings,
    AnswersABadSetting,
    IsElected,
    MakesARuntimeClass,
    FencesANode,
    FindsANode,
    DrainsANode,
    DrainsByForce,
    NamesTwoBudgets,
    DeletesAMachine,
    ApprovesAClient,
    ApprovesAServer,
    ReportsARefusal,
    RollsAPoolBack,
    LearnsHowToJoin,
    IssuesAToken,
    KeepsATokenForAMachine,
    JoinsByTheAccount,
    ForgetsAQuestion,
    ReadsCluster,
    ReadsTheKey,
    KeepsUserData,
    GivesACloudToken,
    RunsACanary,
    ShowsAMachine,
    ShowsThePool,
    ReportsANode,
    ListsExporters,
    SurveysTheCluster,
}

use Step::{
    AnswersABadSetting, ApprovesAClient, ApprovesAServer, DeletesAMachine, DrainsANode,
    DrainsByForce, FencesANode, FindsANode, FindsChanges, FindsOperators, FollowsSettings,
    ForgetsAQuestion, GivesACloudToken, IsElected, IssuesAToken, JoinsByTheAccount,
    KeepsATokenForAMachine, KeepsUserData, LearnsHowToJoin, ListsExporters, MakesARuntimeClass,
    NamesTwoBudgets, ReadsCluster, ReadsLayers, ReadsTheKey, ReportsANode, ReportsARefusal,
    RollsAPoolBack, RunsACanary, SeesEverything, ShowsAMachine, ShowsThePool, SurveysTheCluster,
};

pub(super) const STEPS: [Step; 33] = [
    SeesEverything,
    FindsOperators,
    FindsChanges,
    ReadsLayers,
    FollowsSettings,
    AnswersABadSetting,
    IsElected,
    MakesARuntimeClass,
    FencesANode,
    FindsANode,
    DrainsANode,
    DrainsByForce,
    NamesTwoBudgets,
    DeletesAMachine,
    ApprovesAClient,
    ApprovesAServer,
    ReportsARefusal,
    RollsAPoolBack,
    LearnsHowToJoin,
    IssuesAToken,
    KeepsATokenForAMachine,
    JoinsByTheAccount,
    ForgetsAQuestion,
    ReadsCluster,
    ReadsTheKey,
    KeepsUserData,
    GivesACloudToken,
    RunsACanary,
    ShowsAMachine,
    ShowsThePool,
    ReportsANode,
    ListsExporters,
    SurveysTheCluster,
];

/// Which step fails without a right, and what it says then.
pub(super) fn needed_by(right: &Right) -> (Step, String) {
    let may_not = |what: &str| format!("may not {} {what}", right.verb);
    let role = right.role.trim_start_matches("dormer-");
    let name = right.name.as_deref().unwrap_or_default();
    match (role, right.resource.as_str(), right.verb.as_str()) {
        ("watcher" | "watcher-machines" | "watcher-home", _, _)
        | ("watcher-settings" | "watcher-config", _, _) => of_the_watcher(role, right),
        ("worker", "nodes", "list") => (FindsANode, may_not("Nodes")),
        ("worker", "nodes", _) => (FencesANode, may_not("Node")),
        ("worker", "pods", _) => (DrainsANode, may_not("pods of Node")),
        ("worker", "pods/eviction", _) => (DrainsANode, "cannot create resource".into()),
        ("worker", "poddisruptionbudgets", _) => (NamesTwoBudgets, may_not("disruption budgets")),
        ("worker-force", "pods", _) => (DrainsByForce, "cannot delete resource".into()),
        ("worker-machines", "machines", "delete") => (DeletesAMachine, may_not("Machine")),
        ("worker-machines", "machinesets", _) => (DeletesAMachine, may_not("MachineSet")),
        ("worker-machines", "machines", _) => (FencesANode, may_not("Machine")),
        ("approver-machines", "machines", "list") => (ApprovesAClient, may_not("machines")),
        ("approver-machines", "machines", _) => (ApprovesAClient, may_not("Machine")),
        ("approver", "nodes", _) => (ApprovesAClient, may_not("Node")),
        ("approver", "certificatesigningrequests", _) => {
            (ApprovesAClient, may_not("certificate request"))
        }
        ("approver", "certificatesigningrequests/approval", _) => (
            ApprovesAClient,
            "may not approve certificate request".into(),
        ),
        ("approver", "signers", _) if name.ends_with("client-kubelet") => {
            (ApprovesAClient, "user not permitted to approve".into())
        }
        ("approver", "signers", _) => (ApprovesAServer, "user not permitted to approve".into()),
        ("worker", "infrastructures" | "networks", _) => {
            (LearnsHowToJoin, may_not(&right.resource))
        }
        ("worker-pool", "windowspools", _) => (RollsAPoolBack, may_not("WindowsPool")),
        ("worker-pool", "windowspools/status", _) => (
            RollsAPoolBack,
            "may not patch the status of WindowsPool".into(),
        ),
        ("approver-bootstrap", "secrets", _) => (IssuesAToken, may_not("Secret")),
        ("worker-join", "secrets", "delete") => {
            (IssuesAToken, "its question is still there".into())
        }
        ("worker-join", "secrets", _) => (IssuesAToken, may_not("Secret")),
        ("approver-join", "secrets", "delete") => (ForgetsAQuestion, may_not("Secret")),
        ("approver-join", "secrets", "patch") => (IssuesAToken, may_not("Secret")),
        ("approver-join", "secrets", _) => (IssuesAToken, may_not("Secrets in")),
        ("worker-authorities", "configmaps", _) => (
            LearnsHowToJoin,
            may_not(&format!("ConfigMap kube-system/{name}")),
        ),
        ("approver-tokens", "secrets", _) => {
            (KeepsATokenForAMachine, may_not("Secret kube-system"))
        }
        ("approver-account", "serviceaccounts/token", _) => {
            (JoinsByTheAccount, may_not("a token of ServiceAccount"))
        }
        ("approver-account", "secrets", _) => (JoinsByTheAccount, may_not("Secret")),
        ("worker-cloud-nodes", "serviceaccounts/token", _) => {
            (GivesACloudToken, may_not("a token of ServiceAccount"))
        }
        ("worker-canary", "pods", verb) => (RunsACanary, format!("may not {verb} Pod")),
        ("worker-canary", "services", verb) => (RunsACanary, format!("may not {verb} Service")),
        ("worker-canary", "pods/exec", _) => (RunsACanary, "may not exec a command".into()),
        ("worker-canary", "pods/log", _) => (RunsACanary, "may not read the log".into()),
        ("worker-user-data", "secrets", verb) => (KeepsUserData, format!("cannot {verb} resource")),
        ("around", what, _) => (
            ReadsCluster,
            format!(r#"cannot {} resource "{what}""#, right.verb),
        ),
        ("around-config", what, _) => (ReadsCluster, format!(r#"cannot get resource "{what}""#)),
        ("around-home", "configmaps", _) => (ReadsCluster, may_not("ConfigMap")),
        ("around-home", "secrets", _) => (LearnsHowToJoin, may_not("Secret")),
        ("worker-key", "secrets", verb) => (ReadsTheKey, format!("cannot {verb} resource")),
        ("approver-events", "events", "create") => (ReportsARefusal, "there is no Event".into()),
        ("approver-events", "events", _) => (ReportsARefusal, "it is not counted".into()),
        (console, what, verb) if console.starts_with("console") => {
            let step = match (console, what) {
                (_, "windowsmachines" | "windowsmachines/status") => ShowsAMachine,
                ("console", "nodes/status") => ReportsANode,
                ("console", _)
                | (_, "machinesets" | "machinehealthchecks" | "machineautoscalers") => {
                    SurveysTheCluster
                }
                ("console-machines", _) => ShowsAMachine,
                ("console-home", "services" | "endpointslices") => ListsExporters,
                ("console-home", _) => ShowsThePool,
                _ => ReportsANode,
            };
            (step, format!(r#"cannot {verb} resource "{what}""#))
        }
        other => panic!("no step needs {other:?}: it should not be granted"),
    }
}

/// The same of the watcher's rights.
fn of_the_watcher(role: &str, right: &Right) -> (Step, String) {
    let may_not = |what: &str| format!("may not {} {what}", right.verb);
    match (role, right.resource.as_str(), right.verb.as_str()) {
        ("watcher", "runtimeclasses", _) => (MakesARuntimeClass, "there is no RuntimeClass".into()),
        ("watcher", "deployments" | "configmaps" | "leases" | "pods", _) => {
            (FindsOperators, may_not(&right.resource))
        }
        ("watcher", "clusterversions", "watch")
        | ("watcher-machines", "machinehealthchecks", "watch")
        | ("watcher-settings" | "watcher-config", _, _)
        | ("watcher-home", "secrets", _) => (FollowsSettings, may_not(&right.resource)),
        ("watcher", "clusterversions", _) | ("watcher-machines", "machinehealthchecks", _) => {
            (FindsChanges, may_not(&right.resource))
        }
        ("watcher" | "watcher-machines", what, _) => (SeesEverything, may_not(what)),
        ("watcher-home", "configmaps", _) => (SeesEverything, may_not("configmaps")),
        ("watcher-home", "windowshosts", _) => (SeesEverything, may_not("windowshosts")),
        ("watcher-home", "windowspools", "get") => (ReadsLayers, may_not("windowspools")),
        ("watcher-home", "windowspools", _) => (SeesEverything, may_not("windowspools")),
        ("watcher-home", "events", _) => (AnswersABadSetting, "there is no Event".into()),
        ("watcher-home", "leases", _) => (IsElected, may_not("the Lease")),
        other => panic!("no step needs {other:?}: it should not be granted"),
    }
}
