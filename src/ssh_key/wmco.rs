//! A rotation while a move from the Windows Machine Config Operator (WMCO) lasts. WMCO deletes the Machine of a node whose
//! `pub-key-hash` is not that of its own key (docs/field-notes.md, WMCO beside dormer). So the hash on each Node and the
//! key in WMCO's namespace follow together, and no rotation begins while WMCO runs.

use super::cluster::{KeyText, KeyedCluster, within};
use crate::migrate::{self, key_hash};
use dormer_client::Failure;
use dormer_run::SECRET_KEY;
use dormer_workers::{kubernetes::operators, ssh::Key};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Node, Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// By which key WMCO configured a Node.
const HASH: &str = "windowsmachineconfig.openshift.io/pub-key-hash";
/// The user of a host, encrypted by the private key.
const USERNAME: &str = "windowsmachineconfig.openshift.io/username";
/// Label of a Node that WMCO has from `windows-instances`. It renews both annotations of such a Node itself.
const OWN_HOST: &str = "windowsmachineconfig.openshift.io/byoh";
/// Name of the key's Secret in WMCO's namespace.
const KEY: &str = "cloud-private-key";

/// Nodes that WMCO configured, as far as it compares their key.
#[derive(Debug, Default)]
pub(super) struct WmcoNodes {
    nodes: Vec<Node>,
    /// Why they could not be looked for.
    unread: Option<String>,
}

impl WmcoNodes {
    /// Reads them.
    ///
    /// # Errors
    /// There are some, and WMCO runs or may run: nothing was changed.
    pub(super) async fn find(site: &KeyedCluster) -> Result<Self, Failure> {
        let api: Api<Node> = Api::all(site.client.clone());
        let windows = ListParams::default().labels("kubernetes.io/os=windows");
        let listed = match within(api.list(&windows)).await {
            Ok(listed) => listed,
            Err(why) => {
                let search = operators::check(&site.client).await;
                if let Some(runs) = search.neighbour.runs() {
                    return Err(Failure::refused(
                        format!(
                            "{runs}, and whether it configured some of the nodes cannot be read ({why}); for another key it \
                             would delete their Machines; nothing was changed"
                        ),
                        "run the same command with an account that may list nodes",
                    ));
                }
                return Ok(Self {
                    nodes: Vec::new(),
                    unread: Some(why.to_string()),
                });
            }
        };
        let marked = |node: &Node| {
            node.annotations().contains_key(HASH) && !node.labels().contains_key(OWN_HOST)
        };
        let nodes: Vec<Node> = listed.items.into_iter().filter(marked).collect();
        if !nodes.is_empty() {
            let search = operators::check(&site.client).await;
            let runs = search.neighbour.runs().map(str::to_owned);
            let open = runs.or_else(|| {
                Some(format!(
                    "it is unknown whether WMCO runs: {}",
                    search.unread?
                ))
            });
            if let Some(open) = open {
                return Err(Failure::refused(
                    format!(
                        "{open}; for another key it deletes the Machines of its {} nodes; nothing was changed",
                        nodes.len()
                    ),
                    "rotate the key before the move begins, by WMCO's own way, or once WMCO is gone: dormer migrate status",
                ));
            }
        }
        Ok(Self {
            nodes,
            unread: None,
        })
    }

    /// Lets WMCO's Secret and the annotations follow a key that dormer and its hosts have. What was done, in a sentence.
    ///
    /// # Errors
    /// A write fails. The same command continues.
    pub(super) async fn follow(
        &self,
        site: &KeyedCluster,
        (old, new): (&KeyText, &KeyText),
    ) -> Result<Option<String>, Failure> {
        if let Some(why) = &self.unread {
            return Ok(Some(format!(
                "Whether WMCO configured some of the nodes could not be read ({why}). If it did, its annotations are those of \
                 the old key: run the same command with an account that may list nodes."
            )));
        }
        if self.nodes.is_empty() {
            return Ok(None);
        }
        let secrets = self.secrets(site, (old, new)).await?;
        let from = key_hash(&old.public);
        let to = key_hash(&new.public);
        let api: Api<Node> = Api::all(site.client.clone());
        let mut changed = 0_usize;
        for node in &self.nodes {
            let name = node.name_any();
            // Read again: the hosts took minutes, in which kubelets wrote their status.
            let now = within(api.get_opt(&name)).await;
            let now = now.map_err(|why| again(&format!("Node {name}"), &why))?;
            let Some(node) = now.filter(|it| it.annotations().get(HASH) == Some(&from)) else {
                continue;
            };
            let marks = json!({HASH: to, USERNAME: Value::Null});
            let change = json!({"metadata": {
                "resourceVersion": node.metadata.resource_version, "annotations": marks}});
            let done =
                within(api.patch(&name, &PatchParams::default(), &Patch::Merge(change))).await;
            done.map_err(|why| again(&format!("Node {name}"), &why))?;
            changed += 1;
        }
        let kept = match secrets.as_slice() {
            [] => "there is no key of WMCO's any more".to_owned(),
            all => format!("{} has the new key", all.join(", ")),
        };
        Ok(Some(format!(
            "For the way back to WMCO: {kept}, and {changed} of {} Nodes got its hash.",
            self.nodes.len()
        )))
    }

    /// Writes the new key where WMCO has the old one, and names the Secrets that have the new one.
    async fn secrets(
        &self,
        site: &KeyedCluster,
        (old, new): (&KeyText, &KeyText),
    ) -> Result<Vec<String>, Failure> {
        let accounts: Api<ServiceAccount> = Api::all(site.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={}", migrate::WICD));
        let listed = within(accounts.list(&named)).await;
        let listed = listed.map_err(|why| again("ServiceAccounts", &why))?;
        let mut followed = Vec::new();
        for namespace in listed.iter().filter_map(ResourceExt::namespace) {
            let whole = format!("Secret {namespace}/{KEY}");
            let api: Api<Secret> = Api::namespaced(site.client.clone(), &namespace);
            let found = within(api.get_opt(KEY)).await;
            let Some(mut secret) = found.map_err(|why| again(&whole, &why))? else {
                continue;
            };
            let data = secret.data.get_or_insert_default();
            let public = data.get(SECRET_KEY).and_then(public);
            if public.as_deref() == Some(old.public.as_str()) {
                data.insert(SECRET_KEY.into(), ByteString(new.text().into()));
                secret.metadata.managed_fields = None;
                let done = within(api.replace(KEY, &PostParams::default(), &secret)).await;
                done.map_err(|why| again(&whole, &why))?;
            } else if public.as_deref() != Some(new.public.as_str()) {
                continue;
            }
            followed.push(whole);
        }
        Ok(followed)
    }
}

fn public(text: &ByteString) -> Option<String> {
    let text = std::str::from_utf8(&text.0).ok()?;
    Key::read(text).ok()?.public_line().ok()
}

fn again(what: &str, why: &Failure) -> Failure {
    Failure::refused(
        format!("the new key is dormer's, and WMCO's annotations do not follow yet: {what}: {why}"),
        "run the same command again with an account that may: docs/ssh-key.md",
    )
}
