//! Search for a machine's Node at the API server, if the watcher reports none.

use super::{KubernetesExecutor, api::call};
use dormer_proto::{
    machine::{MachineRef, Outcome, same_provider_id},
    message::Failure,
};
use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt, api::ListParams};

/// Nodes in one answer, where all of them are looked through.
const PAGE: u32 = 500;

impl KubernetesExecutor {
    /// The machine's Node: by its possible names and the present name on the Machine, else by its provider id. An error
    /// does not prove an absence: without the right to read Nodes nothing is known.
    pub(super) async fn find_node(
        &self,
        machine: &MachineRef,
        names: &[String],
        provider_id: Option<&str>,
    ) -> Result<Outcome, Failure> {
        let object = self.machine(machine).await?;
        let said = |at: &str| Some(object.as_ref()?.data.pointer(at)?.as_str()?.to_owned());
        let id = said("/spec/providerID").or_else(|| provider_id.map(str::to_owned));
        let named = said("/status/nodeRef/name");
        for name in names.iter().chain(&named) {
            let found = self.node(name).await?;
            if found.is_some_and(|node| !is_anothers(&node, id.as_deref())) {
                return Ok(Outcome::NodeFound { name: name.clone() });
            }
        }
        match id {
            Some(id) => self.node_with(&id).await,
            None => Ok(Outcome::NodeAbsent),
        }
    }

    async fn node_with(&self, id: &str) -> Result<Outcome, Failure> {
        let api = self.node_api();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = call("list", "Nodes", api.list(&params)).await?;
            if let Some(node) = page.items.iter().find(|node| has(node, id)) {
                let name = node.name_any();
                return Ok(Outcome::NodeFound { name });
            }
            match page.metadata.continue_.filter(|more| !more.is_empty()) {
                Some(more) => params = params.continue_token(&more),
                None => return Ok(Outcome::NodeAbsent),
            }
        }
    }
}

fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

fn has(node: &Node, id: &str) -> bool {
    provider_id(node).is_some_and(|theirs| same_provider_id(theirs, id))
}

/// Whether a Node of this name is another computer's.
fn is_anothers(node: &Node, id: Option<&str>) -> bool {
    let theirs = provider_id(node).zip(id);
    theirs.is_some_and(|(theirs, ours)| !same_provider_id(theirs, ours))
}
