//! One short pass of evictions over a node's pods.

use super::{
    ANSWER_MAX, KubernetesExecutor,
    api::{call, mark_of, patch, what},
    cordon::cordoned,
    drain_hooks::{DrainBehavior, drain_behavior, pre_drain_hook},
    error::{failure, is_conflict, is_gone, silent},
    guard::{LiveNode, leaves_for_good},
    keys,
    newcomers::{self, came_later},
    powered_off::{OUT_OF_SERVICE, Off},
    refusal::{Refusal, matching, short},
};
use crate::progress::Progress;
use dormer_proto::{
    id::LeaseToken,
    machine::{Blocker, Guard, MachineRef, NAMED_ITEMS_MAX, Outcome, TokenMark},
    message::Failure,
};
use k8s_openapi::{
    api::{
        core::v1::Pod,
        policy::v1::{Eviction, PodDisruptionBudget},
    },
    apimachinery::pkg::apis::meta::v1::DeleteOptions,
};
use kube::{
    Api, Error, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, PostParams, Preconditions},
    core::Status,
};
use tokio::time::timeout;

/// The annotation of a pod that the kubelet made from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Grace period of a pod on an unreachable node whose Machine is deleted next, in seconds. The drain waits no longer for
/// a pod that is ending. It is the Machine API's rule (docs/field-notes.md, Drains of unreachable nodes).
const UNREACHABLE_S: u32 = 1;

/// A pass of evictions, as it was ordered.
pub(super) struct Pass<'a> {
    pub(super) machine: &'a MachineRef,
    pub(super) node: &'a str,
    pub(super) token: LeaseToken,
    pub(super) force: bool,
    pub(super) guard: &'a Guard,
}

/// Treatment of the pods, by the Node's conditions.
struct Rule {
    /// Whether the pass ignores disruption budgets.
    force: bool,
    /// Grace period that replaces the pods' own, in seconds.
    grace_s: Option<u32>,
    /// No kubelet answers: `Some`, with the time of the API server where it is known.
    unreachable: Option<Option<i64>>,
    /// The Machine is deleted next, and its instance with everything that still runs there.
    recreate: bool,
    /// Who says that the silent host is off.
    off: Option<Off>,
    /// Suffix of the text about a pod: why its budget counts although the pass should ignore budgets.
    kept_budgets: String,
}

/// Action of a pass on one pod.
enum Leaving {
    Move,
    Wait(String),
    /// As `Wait`, and ends only when the host is said to be off.
    UntilOff(String),
    Skip(String),
}

impl Rule {
    fn of(object: &DynamicObject, live: Option<&LiveNode>, pass: &Pass<'_>) -> Self {
        let unreachable = live.filter(|it| it.unreachable()).map(|it| it.at_ms);
        let recreate = pass.guard.recreate && unreachable.is_some();
        let off = live.and_then(LiveNode::off).filter(|_| !recreate);
        // A host that stays may still run pods that its silent kubelet was to end, and write to their volumes.
        let held = pass.force && unreachable.is_some() && !recreate && off.is_none();
        let early = live.and_then(|live| too_early(object, live, pass.guard));
        let early = early.filter(|_| pass.force);
        let force = pass.force && !held && early.is_none();
        // On a host that is off, no kubelet ends a grace period.
        let at_once = (force && off.is_some()).then_some(0);
        Self {
            force,
            grace_s: recreate.then_some(UNREACHABLE_S).or(at_once),
            unreachable,
            recreate,
            off,
            kept_budgets: match early {
                Some(early) => early,
                None if held => "; its node does not answer, so budgets are not ignored".to_owned(),
                None => String::new(),
            },
        }
    }

    fn of_leaving(&self, pod: &Pod) -> Leaving {
        let Some(until) = &pod.metadata.deletion_timestamp else {
            return Leaving::Move;
        };
        let Some(now_ms) = self.unreachable else {
            return Leaving::Wait(leaving(pod));
        };
        if let Some(off) = self.off {
            let grace = pod.metadata.deletion_grace_period_seconds;
            let says = match off {
                Off::Person => {
                    "a person says that its host is off: Kubernetes deletes it".to_owned()
                }
                Off::Cloud => format!(
                    "its cloud says that its host is off. Kubernetes deletes it once its Node has the taint \
                     {OUT_OF_SERVICE}"
                ),
            };
            return match grace {
                Some(1..) if self.force => Leaving::Move,
                Some(1..) => {
                    let why = format!("{}, and {says}", leaving(pod));
                    match off {
                        Off::Person => Leaving::Wait(why),
                        Off::Cloud => Leaving::UntilOff(why),
                    }
                }
                _ => Leaving::Wait(leaving(pod)),
            };
        }
        if !self.recreate {
            return Leaving::UntilOff(format!(
                "{}, but its node does not answer: its containers may still run, so it is not deleted by force",
                leaving(pod)
            ));
        }
        let over_ms = now_ms.map(|now| now - until.0.as_millisecond());
        if over_ms.is_some_and(|over| over > i64::from(UNREACHABLE_S) * 1_000) {
            return Leaving::Skip(format!("{}, and its node does not answer", leaving(pod)));
        }
        // Its grace is shortened, as that of every pod there.
        let grace = pod.metadata.deletion_grace_period_seconds;
        if grace.is_some_and(|grace| grace > i64::from(UNREACHABLE_S)) {
            Leaving::Move
        } else {
            Leaving::Wait(leaving(pod))
        }
    }
}

/// Why budgets count although the engine says that the drain takes too long: it does not, by two times of the API server.
/// The engine's clock may have been set forward. A drain that an earlier build began has no time.
fn too_early(object: &DynamicObject, live: &LiveNode, guard: &Guard) -> Option<String> {
    let limit_ms = guard.drain_ms?;
    let since = drained_since(object)?.as_millisecond();
    let lasted = u64::try_from(live.at_ms?.saturating_sub(since)).unwrap_or_default();
    // Both times are whole seconds.
    (lasted.saturating_add(1_000) < limit_ms).then(|| {
        format!(
            "; the API server says that the drain has lasted for {} s, and budgets are ignored after {} s",
            lasted / 1_000,
            limit_ms / 1_000
        )
    })
}

/// When the Node was cordoned for its drain. A host that leaves is drained without a fence, and the time of the deletion is
/// the earliest one. The time is on the Machine, since a kubelet may write annotations of its own Node.
fn drained_since(object: &DynamicObject) -> Option<jiff::Timestamp> {
    let noted = object.annotations().get(keys::DRAINED_SINCE);
    let noted = noted.and_then(|text| text.parse().ok());
    let deleted = object.metadata.deletion_timestamp.as_ref();
    noted.or_else(|| deleted.map(|at| at.0))
}

/// The body of an eviction. kube 5.0.0 writes `delete_options` for `deleteOptions`, so that its preconditions never
/// reach the API server (docs/field-notes.md, Evictions).
fn eviction(pod: &Pod, grace_s: Option<u32>) -> Eviction {
    let preconditions = k8s_openapi::apimachinery::pkg::apis::meta::v1::Preconditions {
        uid: pod.uid(),
        resource_version: None,
    };
    let options = DeleteOptions {
        grace_period_seconds: grace_s.map(i64::from),
        preconditions: Some(preconditions),
        ..DeleteOptions::default()
    };
    Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name_any()),
            namespace: pod.namespace(),
            ..ObjectMeta::default()
        },
        delete_options: Some(options),
    }
}

/// Result for one pod.
enum PodEviction {
    Evicted,
    Gone,
    Unclear,
    Blocked(Refusal),
}

/// Pods that remain after a pass.
#[derive(Default)]
struct Remaining {
    /// Count of the pods that must go.
    left: u32,
    /// What keeps them.
    blockers: Vec<Blocker>,
    /// Pods that are not waited for.
    skipped: Vec<Blocker>,
}

impl Remaining {
    /// Whether the pod is one of them: this pass does not evict it.
    fn has(&mut self, pod: &Pod, pass: &Pass<'_>, rule: &Rule, live: Option<&LiveNode>) -> bool {
        if live.is_some_and(|it| came_later(&it.node, pod)) {
            return self.skip(pod, newcomers::reason(pod));
        }
        match drain_behavior(pass.machine, pod) {
            Some(DrainBehavior::Skip) => {
                let why = "its label cluster.x-k8s.io/drain=skip asks for that";
                return self.skip(pod, why.to_owned());
            }
            Some(DrainBehavior::WaitCompleted) if !rule.force => {
                let why =
                    "it is waited for until it has ended: cluster.x-k8s.io/drain=wait-completed";
                return self.wait_for(pod, why.to_owned());
            }
            Some(DrainBehavior::WaitCompleted) | None => {}
        }
        match rule.of_leaving(pod) {
            Leaving::Skip(why) => self.skip(pod, why),
            Leaving::Wait(why) => self.wait_for(pod, why),
            Leaving::UntilOff(why) => {
                self.left += 1;
                push(
                    &mut self.blockers,
                    Blocker {
                        until_off: true,
                        ..blocker(pod, why)
                    },
                );
                true
            }
            Leaving::Move => false,
        }
    }

    fn skip(&mut self, pod: &Pod, why: String) -> bool {
        block(&mut self.skipped, pod, why, Vec::new());
        true
    }

    fn wait_for(&mut self, pod: &Pod, why: String) -> bool {
        self.left += 1;
        block(&mut self.blockers, pod, why, Vec::new());
        true
    }
}

/// Answer of a pass that leaves the drain to the Machine's controller, since a hook comes before it.
fn left_to_hook(node: &str, hook: &str) -> Outcome {
    let why = format!(
        "the hook {hook} comes before the drain: the Machine is deleted, and its controller drains when the hook is gone"
    );
    let all = Blocker {
        pod: format!("the pods of Node {node}"),
        why: short(why),
        budgets: Vec::new(),
        until_off: false,
        finalizers: Vec::new(),
    };
    Outcome::Evicted {
        evicted: 0,
        left: 0,
        blockers: Vec::new(),
        skipped: vec![all],
    }
}

impl KubernetesExecutor {
    /// Pods that a drain of `node` would move: no DaemonSet's, no mirror pod, none that has ended.
    pub(super) async fn movable(&self, node: &str) -> Result<Vec<Pod>, Failure> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = call("list", &format!("pods of Node {node}"), api.list(&params)).await?;
        Ok(pods.items.into_iter().filter(moves).collect())
    }

    pub(super) async fn evict(
        &self,
        pass: &Pass<'_>,
        progress: &Progress,
    ) -> Result<Outcome, Failure> {
        let Some((mut object, mut live)) = self.under_token(pass).await? else {
            return Ok(Outcome::FenceClosedMeanwhile);
        };
        if let Some(refused) = self
            .refusal(pass.machine, &object, live.as_ref(), pass.guard)
            .await?
        {
            return Ok(refused.outcome());
        }
        // A drain for a deletion that would be refused is in vain. No controller makes a BYOH host that leaves again.
        let leaves = leaves_for_good(pass.machine, &object);
        if pass.guard.deletes
            && !leaves
            && let Some(refused) = self.nobody_replaces(pass.machine, &object).await?
        {
            return Ok(refused.outcome());
        }
        if leaves {
            (object, live) = self.cordon(pass.machine, object, live).await?;
        }
        // The hook's owner waits for the Machine's deletion. A drain before that would bypass the hook.
        let deletes = pass.guard.deletes || pass.guard.recreate;
        let hook = pre_drain_hook(pass.machine, &object).filter(|_| deletes);
        if let Some(hook) = hook {
            return Ok(left_to_hook(pass.node, &hook));
        }
        let rule = Rule::of(&object, live.as_ref(), pass);
        let pods = self.movable(pass.node).await?;
        live = self.note_newest(live, &pods).await?;
        progress.step("evict", pods.len() as u64, "pods");
        let mut evicted = 0;
        let mut rest = Remaining::default();
        for pod in &pods {
            progress.advance(1);
            if rest.has(pod, pass, &rule, live.as_ref()) {
                continue;
            }
            rest.left += 1;
            // Without budgets nothing else protects the pods, so the fence's token and the word that the host is off are
            // read before each pod.
            if rule.force {
                let Some((_, live)) = self.under_token(pass).await? else {
                    return Ok(Outcome::FenceClosedMeanwhile);
                };
                if rule.off.is_some() && live.as_ref().and_then(LiveNode::off).is_none() {
                    let why =
                        "its node was reported off and no longer is: the next pass looks again";
                    block(&mut rest.blockers, pod, why.to_owned(), Vec::new());
                    continue;
                }
            }
            if let Some(refused) = self
                .disruption_refused(pass.machine, &object, pass.guard)
                .await?
            {
                return Ok(refused.outcome());
            }
            match self.move_off(pod, &rule).await? {
                PodEviction::Evicted => evicted += 1,
                PodEviction::Gone => rest.left -= 1,
                PodEviction::Unclear => {}
                PodEviction::Blocked(why) => {
                    block(
                        &mut rest.blockers,
                        pod,
                        format!("{why}{}", rule.kept_budgets),
                        why.budgets(),
                    );
                }
            }
        }
        Ok(Outcome::Evicted {
            evicted,
            left: rest.left,
            blockers: rest.blockers,
            skipped: rest.skipped,
        })
    }

    /// The Machine and its Node, if the token is open on both. An absent Node has no pods to protect.
    async fn under_token(
        &self,
        pass: &Pass<'_>,
    ) -> Result<Option<(DynamicObject, Option<LiveNode>)>, Failure> {
        let token = pass.token;
        let open = Some(TokenMark { token, open: true });
        let object = self.machine(pass.machine).await?;
        let live = self.live_node(pass.node).await?;
        if let Some(object) = object
            .clone()
            .filter(|it| leaves_for_good(pass.machine, it))
        {
            // A removal opens no fence. A pass of an upgrade that has ended still comes too late.
            let late = mark_of(&object).is_some_and(|mark| {
                let ended = (!mark.open && mark.token == token) || mark.token > token;
                token.0 > 0 && ended
            });
            return Ok((!late).then_some((object, live)));
        }
        let on_node = live.as_ref().is_none_or(|it| mark_of(&it.node) == open);
        let object = object.filter(|object| mark_of(object) == open && on_node);
        Ok(object.map(|object| (object, live)))
    }

    /// Cordons the Node of a host that leaves. No uncordon follows.
    async fn cordon(
        &self,
        machine: &MachineRef,
        object: DynamicObject,
        live: Option<LiveNode>,
    ) -> Result<(DynamicObject, Option<LiveNode>), Failure> {
        let Some(live) = live else {
            return Ok((object, None));
        };
        if cordoned(&live.node) {
            return Ok((object, Some(live)));
        }
        let since =
            serde_json::json!({"metadata": {"annotations": {keys::DRAINED_SINCE: live.read_at()}}});
        let api = self.machine_api(machine);
        let noted = patch(&api, &object, &what(machine), since).await?;
        let named = format!("Node {}", live.node.name_any());
        let change = serde_json::json!({"spec": {"unschedulable": true},
            "metadata": {"annotations": {keys::NEWEST_POD: null}}});
        let cordoned = patch(&self.node_api(), &live.node, &named, change).await?;
        let live = cordoned.map(|node| LiveNode { node, ..live });
        Ok((noted.unwrap_or(object), live))
    }

    async fn move_off(&self, pod: &Pod, rule: &Rule) -> Result<PodEviction, Failure> {
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let pod_name = pod.name_any();
        let verb = if rule.force { "delete" } else { "evict" };
        let what = format!("pod {}", name(pod));
        let done = if rule.force {
            let preconditions = Preconditions {
                uid: pod.uid(),
                resource_version: None,
            };
            let params = DeleteParams {
                grace_period_seconds: rule.grace_s,
                ..DeleteParams::default().preconditions(preconditions)
            };
            timeout(ANSWER_MAX, api.delete(&pod_name, &params))
                .await
                .map(|r| r.map(drop))
        } else {
            let body = eviction(pod, rule.grace_s);
            let post = PostParams::default();
            let asked = api.create_subresource::<_, Status>("eviction", &pod_name, &post, &body);
            timeout(ANSWER_MAX, asked).await.map(|r| r.map(drop))
        };
        match done {
            Err(_) => Err(silent(verb, &what)),
            Ok(Ok(())) => Ok(PodEviction::Evicted),
            Ok(Err(error)) if is_gone(&error) => Ok(PodEviction::Gone),
            // Another pod has the name by now, perhaps on this node: the next pass reads it.
            Ok(Err(error)) if is_conflict(&error) => Ok(PodEviction::Unclear),
            Ok(Err(error)) => match refused(&error) {
                Some(refusal) => Ok(PodEviction::Blocked(self.named(refusal, pod).await)),
                None => Err(failure(verb, &what, &error)),
            },
        }
    }

    /// Adds the names of the pod's budgets to the refusal, since the API server does not name them if there are
    /// several.
    async fn named(&self, refusal: Refusal, pod: &Pod) -> Refusal {
        let Refusal::Budgets { said, .. } = refusal else {
            return refusal;
        };
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &namespace);
        let what = format!("disruption budgets of {namespace}");
        let params = ListParams::default();
        match call("list", &what, api.list(&params)).await {
            Ok(budgets) => Refusal::Budgets {
                names: matching(budgets.items, pod),
                said,
            },
            Err(why) => {
                let said = format!("{said} ({}.)", why.message);
                Refusal::Budgets {
                    names: Vec::new(),
                    said,
                }
            }
        }
    }
}

fn moves(pod: &Pod) -> bool {
    let owners = pod.owner_references();
    let daemon = owners
        .iter()
        .any(|o| o.kind == "DaemonSet" && o.controller == Some(true));
    let mirror = pod.annotations().contains_key(MIRROR);
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    !daemon && !mirror && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn block(blockers: &mut Vec<Blocker>, pod: &Pod, why: String, budgets: Vec<String>) {
    let blocker = Blocker {
        budgets,
        ..blocker(pod, why)
    };
    push(blockers, blocker);
}

fn blocker(pod: &Pod, why: String) -> Blocker {
    let is_deleted = pod.metadata.deletion_timestamp.is_some();
    let finalizers = pod.finalizers().iter().take(NAMED_ITEMS_MAX);
    Blocker {
        pod: name(pod),
        why: short(why),
        budgets: Vec::new(),
        until_off: false,
        finalizers: finalizers.filter(|_| is_deleted).cloned().collect(),
    }
}

fn push(blockers: &mut Vec<Blocker>, blocker: Blocker) {
    if blockers.len() < NAMED_ITEMS_MAX {
        blockers.push(blocker);
    }
}

fn leaving(pod: &Pod) -> String {
    let finalizers = pod.finalizers();
    if finalizers.is_empty() {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
        format!("it is ending, with {grace} s of grace")
    } else {
        format!("it waits for its finalizers {}", finalizers.join(", "))
    }
}

fn refused(error: &Error) -> Option<Refusal> {
    let Error::Api(status) = error else {
        return None;
    };
    Refusal::of(status)
}
