//! One short pass of evictions over a node's pods.

use super::{
    ANSWER_MAX, KubernetesExecutor,
    api::{call, mark_of},
    error::{failure, is_conflict, is_gone, silent},
    refusal::{Refusal, matching, short},
};
use crate::progress::Progress;
use dormer_proto::{
    id::LeaseToken,
    machine::{Blocker, MachineRef, NAMED_ITEMS_MAX, Outcome, TokenMark},
    message::Failure,
};
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Error, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Preconditions},
};
use tokio::time::timeout;

/// The annotation of a pod that the kubelet made from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What became of one pod.
enum PodEviction {
    Evicted,
    Gone,
    Unclear,
    Blocked(Refusal),
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
        machine: &MachineRef,
        node: &str,
        token: LeaseToken,
        force: bool,
        progress: &Progress,
    ) -> Result<Outcome, Failure> {
        if !self.is_open(machine, node, token).await? {
            return Ok(Outcome::FenceClosedMeanwhile);
        }
        let pods = self.movable(node).await?;
        progress.step("evict", pods.len() as u64, "pods");
        let mut evicted = 0;
        let mut left = 0;
        let mut blockers = Vec::new();
        for pod in &pods {
            progress.advance(1);
            left += 1;
            if pod.metadata.deletion_timestamp.is_some() {
                block(&mut blockers, pod, leaving(pod));
                continue;
            }
            // Without budgets nothing else protects the pods: the token is read before each.
            if force && !self.is_open(machine, node, token).await? {
                return Ok(Outcome::FenceClosedMeanwhile);
            }
            match self.move_off(pod, force).await? {
                PodEviction::Evicted => evicted += 1,
                PodEviction::Gone => left -= 1,
                PodEviction::Unclear => {}
                PodEviction::Blocked(why) => block(&mut blockers, pod, why.to_string()),
            }
        }
        Ok(Outcome::Evicted {
            evicted,
            left,
            blockers,
        })
    }

    async fn is_open(
        &self,
        machine: &MachineRef,
        node: &str,
        token: LeaseToken,
    ) -> Result<bool, Failure> {
        let open = Some(TokenMark { token, open: true });
        let on_machine = self
            .machine(machine)
            .await?
            .is_some_and(|object| mark_of(&object) == open);
        // A Node that is gone has no pods to protect.
        let on_node = self
            .node(node)
            .await?
            .is_none_or(|object| mark_of(&object) == open);
        Ok(on_machine && on_node)
    }

    async fn move_off(&self, pod: &Pod, force: bool) -> Result<PodEviction, Failure> {
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let preconditions = Preconditions {
            uid: pod.uid(),
            resource_version: None,
        };
        let params = DeleteParams::default().preconditions(preconditions);
        let verb = if force { "delete" } else { "evict" };
        let what = format!("pod {}", name(pod));
        let done = if force {
            timeout(ANSWER_MAX, api.delete(&pod.name_any(), &params))
                .await
                .map(|r| r.map(drop))
        } else {
            let params = EvictParams {
                delete_options: Some(params),
                ..EvictParams::default()
            };
            timeout(ANSWER_MAX, api.evict(&pod.name_any(), &params))
                .await
                .map(|r| r.map(drop))
        };
        match done {
            Err(_) => Err(silent(verb, &what)),
            Ok(Ok(())) => Ok(PodEviction::Evicted),
            Ok(Err(error)) if is_gone(&error) => Ok(PodEviction::Gone),
            // Another pod has its name by now, perhaps on this node: the next pass will tell.
            Ok(Err(error)) if is_conflict(&error) => Ok(PodEviction::Unclear),
            Ok(Err(error)) => match refused(&error) {
                Some(refusal) => Ok(PodEviction::Blocked(self.named(refusal, pod).await)),
                None => Err(failure(verb, &what, &error)),
            },
        }
    }

    /// The refusal with the names of the pod's budgets, which the API server does not tell where there are several.
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

fn block(blockers: &mut Vec<Blocker>, pod: &Pod, why: String) {
    if blockers.len() < NAMED_ITEMS_MAX {
        blockers.push(Blocker {
            pod: name(pod),
            why: short(why),
        });
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
