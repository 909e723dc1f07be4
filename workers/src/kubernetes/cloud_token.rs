//! Token of a Node's cloud-node-manager, on platforms where each node runs one (Azure). NodeRestriction refuses a kubelet
//! what that program does: it takes the taint `uninitialized` away. So it has an account of its own, and its token is
//! bound to the Node: the API server tells the policy `dormer-guard-cloud-nodes` whose token it is, and lets none outlive
//! its Node.

use super::{KubernetesExecutor, api::patch, keys};
use crate::host::cluster::CloudToken;
use dormer_proto::{id, message::Failure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;
use zeroize::Zeroizing;

/// The account, in dormer's namespace (`deploy/chart/templates/cloud-nodes.yaml`).
pub const ACCOUNT: &str = "dormer-cloud-node-manager";
/// Requested lifetime of a token; an API server may grant less. A comparison of the host renews it after half of that.
/// None is made while a person pauses the machine, which may take days.
const LIFE_S: i64 = 30 * 24 * 3_600;

impl KubernetesExecutor {
    pub(super) async fn cloud_token_of(
        &self,
        node: &str,
        renew: bool,
    ) -> Result<CloudToken, Failure> {
        let found = self.node(node).await?;
        if renew {
            let Some(found) = found else {
                let message =
                    format!("Node {node} is not there: its cloud-node-manager gets no token");
                return Err(Failure::transient("NodeGone", message));
            };
            return self.new_cloud_token(&found).await;
        }
        // A token ends with its Node.
        let due = found.as_ref().and_then(due);
        Ok(match due {
            Some(due) if due > Timestamp::now() => CloudToken::Lasts,
            _ => CloudToken::Due,
        })
    }

    pub(super) async fn note_cloud_token_of(
        &self,
        node: &str,
        node_uid: &str,
        due: id::Timestamp,
    ) -> Result<(), Failure> {
        // A token ends with its Node. The patch carries the version of this read.
        let found = self.node(node).await?;
        let Some(found) = found.filter(|it| it.uid().as_deref() == Some(node_uid)) else {
            return Ok(());
        };
        let id::Timestamp(due) = due;
        let due = i64::try_from(due / 1_000).map(Timestamp::from_second);
        let due = due.map(Result::ok).ok().flatten().unwrap_or(Timestamp::MAX);
        let change = json!({"metadata": {"annotations": {keys::CLOUD_TOKEN_DUE: due.to_string()}}});
        let what = format!("Node {node}");
        patch(&self.node_api(), &found, &what, change).await?;
        Ok(())
    }

    async fn new_cloud_token(&self, node: &Node) -> Result<CloudToken, Failure> {
        let home = &self.settings.namespace;
        let node_uid = node.uid().unwrap_or_default();
        let account = (home.as_str(), ACCOUNT);
        let given = self
            .bound_token(account, node, LIFE_S, "CloudTokenUnusable")
            .await?;
        let token = Zeroizing::new(given.token);
        let now = Timestamp::now();
        let half = given.expiration_timestamp.0.duration_since(now) / 2;
        let due = (now + half).as_millisecond();
        let due = id::Timestamp(u64::try_from(due).unwrap_or_default());
        Ok(CloudToken::New {
            token,
            node_uid,
            due,
        })
    }
}

fn due(node: &Node) -> Option<Timestamp> {
    node.annotations().get(keys::CLOUD_TOKEN_DUE)?.parse().ok()
}
