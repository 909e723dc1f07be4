//! `dormer migrate back`: gives nodes whose hosts dormer has taken over, and not upgraded, back to WMCO.
//!
//! WMCO configures a node without a version again, undrained, and deletes the Machine of a node with another key
//! (docs/field-notes.md, WMCO beside dormer). So version and key go onto the Node in one patch, before WICD starts.

use super::survey::{MACHINE_API, PREFIX, Survey, WindowsNode};
use crate::{cluster_access::failed, preflight::release};
use dormer_client::Failure;
use dormer_proto::code;
use dormer_workers::{host::HostProgram, kubernetes::keys, ssh::Key};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// What a node gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marks {
    /// WMCO's version, whose ConfigMap is there.
    pub(super) version: String,
    /// WMCO's hash of its key.
    pub(super) key_hash: String,
}

/// Login on the hosts.
pub(super) struct SshLogin {
    pub(super) user: String,
    pub(super) port: u16,
    pub(super) key: Key,
    pub(super) program: HostProgram,
}

/// Version and key that WMCO wants on its nodes.
///
/// # Errors
/// Which one is unknown.
pub(super) fn marks(survey: &Survey, version: Option<&str>) -> Result<Marks, Failure> {
    let home = &survey.wmco_namespace;
    let version = match (version, survey.services.as_slice()) {
        (Some(named), all) if all.iter().any(|one| one == named) => named.to_owned(),
        (None, [only]) => only.clone(),
        (Some(named), _) => {
            return Err(Failure::refused(
                format!(
                    "there is no ConfigMap {home}/windows-services-{named}: WICD would have nothing to follow"
                ),
                format!("kubectl -n {home} get configmaps"),
            ));
        }
        (None, []) => {
            return Err(Failure::refused(
                format!(
                    "there is no ConfigMap windows-services-… in {home}: WICD would have nothing to follow"
                ),
                "bring it back from a backup",
            ));
        }
        (None, all) => {
            return Err(Failure::Usage(format!(
                "name the version of the WMCO that will run with --wmco-version; there are: {}",
                all.join(", ")
            )));
        }
    };
    let key_hash = survey.key.hash().ok_or_else(|| {
        Failure::refused(
            format!("{home} has no usable Secret cloud-private-key: WMCO would have another key than these nodes"),
            format!(
                "copy dormer's there: kubectl -n {} get secret cloud-private-key -o yaml | sed 's/namespace: .*/namespace: \
                 {home}/' | kubectl apply -f -",
                survey.namespace
            ),
        )
    })?;
    if survey.key_copy.hash().is_some_and(|copy| copy != key_hash) {
        return Err(Failure::refused(
            "dormer's SSH key is another one than WMCO's: WMCO could not log in to these hosts",
            format!(
                "put one key into both Secrets: kubectl -n {home} get secret cloud-private-key -o yaml"
            ),
        ));
    }
    Ok(Marks {
        version,
        key_hash: key_hash.to_owned(),
    })
}

/// The nodes that are named, or all that can go back.
///
/// # Errors
/// A name that is no Windows node, or a node that cannot go back: why, and what to do.
pub(super) fn chosen<'a>(
    survey: &'a Survey,
    names: &[String],
) -> Result<Vec<&'a WindowsNode>, Failure> {
    let mut nodes: Vec<&WindowsNode> = Vec::new();
    if names.is_empty() {
        nodes.extend(survey.still_wmco());
    }
    for name in names {
        let node = survey.nodes.iter().find(|node| node.name == *name);
        nodes.push(node.ok_or_else(|| Failure::Absent {
            error: format!("there is no Windows node {name}"),
            what_to_do: "kubectl get nodes -l kubernetes.io/os=windows".into(),
        })?);
    }
    for node in &nodes {
        if let Some((why, cure)) = obstacle(node) {
            return Err(Failure::refused(format!("Node {}: {why}", node.name), cure));
        }
    }
    Ok(nodes)
}

/// Why a node cannot go back, and what to do.
fn obstacle(node: &WindowsNode) -> Option<(&'static str, String)> {
    let Some(machine) = &node.machine else {
        let cure = "its entry of windows-instances decides whose it is: docs/migrate-from-wmco.md";
        return Some(("it is a BYOH host", cure.to_owned()));
    };
    if node.dormer.is_some() || node.version.is_none() {
        let cure = format!(
            "while WMCO runs: kubectl -n {MACHINE_API} delete machine.machine.openshift.io {machine}; its MachineSet makes \
             another one, which WMCO configures"
        );
        return Some((
            "dormer has configured its host, so WMCO's layout is gone",
            cure,
        ));
    }
    if !node.ignored {
        let cure = format!(
            "let dormer let it go first: kubectl -n {MACHINE_API} label machine.machine.openshift.io {machine} {}=true",
            keys::IGNORE
        );
        return Some(("dormer still owns it", cure));
    }
    if node.fenced {
        let cure = format!("wait until it has ended what it does there: dormer describe {machine}");
        return Some(("dormer's fence on it is open", cure));
    }
    None
}

/// One patch with all that WMCO compares.
pub(super) fn patch(node: &WindowsNode, marks: &Marks) -> Value {
    let annotations = json!({
        format!("{PREFIX}version"): marks.version,
        format!("{PREFIX}desired-version"): marks.version,
        format!("{PREFIX}pub-key-hash"): marks.key_hash,
    });
    json!({"metadata": {"resourceVersion": node.resource_version, "annotations": annotations}})
}

/// Marks a node. A write by another client in between refuses the patch.
pub(super) async fn mark(
    client: &Client,
    node: &WindowsNode,
    marks: &Marks,
) -> Result<(), Failure> {
    let nodes: Api<Node> = Api::all(client.clone());
    let whole = Patch::Merge(patch(node, marks));
    let done = nodes
        .patch(&node.name, &PatchParams::default(), &whole)
        .await;
    done.map(drop).map_err(failed)
}

/// Starts WICD on a node's host as it was started before, by the program there.
pub(super) async fn start(node: &WindowsNode, login: &SshLogin) -> Result<String, String> {
    let address = node.address.as_ref().ok_or("the Node has no address")?;
    let pin = node
        .host_key
        .as_ref()
        .ok_or("dormer pinned no host key for it")?;
    let target = release::target(address, login.port, &login.user, &login.key);
    let done = release::release(&target, pin, &login.program).await;
    done.map_err(|failure| format!("{}: {}", code::shown(&failure.code), failure.message))
}

/// How a person starts WICD on a host.
pub(super) fn manually(node: &WindowsNode) -> String {
    let service = super::survey::WICD;
    let address = node.address.as_deref().unwrap_or(&node.name);
    format!(
        "ssh Administrator@{address} \"sc.exe config {service} start= auto && sc.exe start {service}\""
    )
}

#[cfg(test)]
mod tests {
    use super::{
        super::{findings::tests::healthy, survey::KeySecret},
        *,
    };

    /// A cluster in which dormer has adopted both nodes, and lets both go.
    fn adopted() -> Survey {
        let mut survey = healthy();
        survey.key_copy = survey.key.clone();
        survey.runs = None;
        for node in &mut survey.nodes {
            node.state = Some("Joined".into());
            node.ignored = true;
        }
        survey
    }

    #[test]
    fn version_and_key_stand_in_one_patch() {
        let survey = adopted();
        let marks = marks(&survey, None).expect("marks");
        let patch = patch(&survey.nodes[0], &marks);
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(
            annotations["windowsmachineconfig.openshift.io/version"],
            "11.0.0-a"
        );
        assert_eq!(
            annotations["windowsmachineconfig.openshift.io/desired-version"],
            "11.0.0-a"
        );
        assert_eq!(
            annotations["windowsmachineconfig.openshift.io/pub-key-hash"],
            "k"
        );
    }

    #[test]
    fn without_a_version_and_a_key_nobody_is_marked() {
        let refused = |plant: fn(&mut Survey), version: Option<&str>, part: &str| {
            let mut survey = adopted();
            plant(&mut survey);
            let text = marks(&survey, version).expect_err(part).to_string();
            assert!(text.contains(part), "{text}");
        };
        refused(|it| it.services.clear(), None, "nothing to follow");
        refused(|_| {}, Some("10"), "windows-services-10");
        refused(
            |it| it.services.push("12".into()),
            None,
            "there are: 11.0.0-a, 12",
        );
        refused(|it| it.key = KeySecret::Absent, None, "no usable Secret");
        refused(
            |it| it.key_copy = KeySecret::There("x".into()),
            None,
            "another one",
        );
    }

    #[test]
    fn only_a_node_that_dormer_let_go_and_never_upgraded_goes_back() {
        let refused = |plant: fn(&mut WindowsNode), part: &str| {
            let mut survey = adopted();
            plant(&mut survey.nodes[0]);
            let text = chosen(&survey, &["win-a".into()])
                .expect_err(part)
                .to_string();
            assert!(text.contains(part), "{text}");
            assert!(chosen(&survey, &["win-b".into()]).is_ok());
        };
        refused(
            |it| it.ignored = false,
            "label machine.machine.openshift.io m-win-a",
        );
        refused(|it| it.fenced = true, "fence on it is open");
        refused(
            |it| it.dormer = Some("11.1.0-x".into()),
            "delete machine.machine.openshift.io m-win-a",
        );
        refused(|it| it.version = None, "layout is gone");
        refused(|it| it.machine = None, "a BYOH host");
        let absent = chosen(&adopted(), &["win-c".into()]).expect_err("absent");
        assert!(absent.to_string().contains("no Windows node win-c"));
        assert_eq!(chosen(&adopted(), &[]).map(|all| all.len()), Ok(2));
    }
}
