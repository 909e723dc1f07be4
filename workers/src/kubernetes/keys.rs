//! Every annotation, label and condition of foreign objects that dormer reads or writes, and the text of a fence's
//! mark.

pub use crate::{host::cluster::HOST_KEY, source::OS_ID};
use dormer_proto::{id::LeaseToken, machine::TokenMark};
use kube::ResourceExt;

/// Annotation of a Machine: the name that its Node will have, which routes certificate requests to it.
pub const NODE_NAME: &str = "dormer.io/node-name";
/// On a Machine and its Node: the lease token under which destructive steps are made, `<token> open` or `<token>
/// closed`.
pub const FENCE: &str = "dormer.io/fence";
/// On a Machine and its Node: the namespace of the dormer that brings it up and upgrades it. A dormer of another
/// namespace leaves it alone.
pub const INSTALLATION: &str = "dormer.io/installation";
/// On a Node: the version that we configured.
pub const VERSION: &str = "dormer.io/version";
/// Annotation of a Node with an open fence: whether another client had cordoned it before, `true` or `false`.
pub const WAS_CORDONED: &str = "dormer.io/was-cordoned";
/// On a Node, while it is drained: when the newest pod was created that the first pass found there, by the API server's
/// clock.
pub const NEWEST_POD: &str = "dormer.io/newest-pod";
/// On a Machine with an open fence, and on a WindowsHost that leaves: when the present drain began, by the API server's
/// clock.
pub const DRAINED_SINCE: &str = "dormer.io/drained-since";
/// On a Machine: the lease token under which a tear-down of its host may have begun. A worker that gets the order again
/// finishes it.
pub const TEARING: &str = "dormer.io/tearing-down";
/// On a Node: the cluster autoscaler does not take it when it is `true`.
pub const NO_SCALE_DOWN: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// Annotation of a Node with an open fence: dormer has set [`NO_SCALE_DOWN`] and removes it when the fence is closed.
pub const HELD_FROM_SCALE_DOWN: &str = "dormer.io/scale-down-disabled";
/// Label or annotation of a Machine: dormer ignores the Machine when it is `true`.
pub const IGNORE: &str = "windowsmachineconfig.openshift.io/ignore";
/// On a Node: the version that WMCO wrote; read, never trusted as ours.
pub const WMCO_VERSION: &str = "windowsmachineconfig.openshift.io/version";
/// Annotation and label of a Node: the host owes WMCO a restart, and WMCO upgrades the node. Both are void once dormer has
/// configured the host (docs/field-notes.md, WMCO beside dormer).
pub const WMCO_REBOOT: &str = "windowsmachineconfig.openshift.io/reboot-required";
pub const WMCO_UPGRADING: &str = "windowsmachineconfig.openshift.io/upgrading";
/// Annotations of a Node: the host key that WMCO pinned, in base64, and its type. It refuses a host with another key
/// (docs/field-notes.md, WMCO beside dormer).
pub const WMCO_HOST_KEY: &str = "windowsmachineconfig.openshift.io/ssh-host-key";
pub const WMCO_HOST_KEY_TYPE: &str = "windowsmachineconfig.openshift.io/ssh-host-key-type";
/// On a WindowsHost: the ConfigMap that it was made from.
pub const HOST_FROM: &str = "dormer.io/from";
/// Finalizer of a WindowsHost: it stays until its host is torn down and its Node deleted.
pub const HOST_FINALIZER: &str = "dormer.io/host";
/// On a WindowsHost: the pool of the dormer that holds it by its finalizer, and alone writes its status.
pub const HOST_POOL: &str = "dormer.io/host-pool";
/// On a Node: its Machine, `namespace/name`, as the Machine API's nodelink controller writes it.
pub const NODE_LINK: &str = "machine.openshift.io/machine";
/// On a Node: its Machine's name, as Cluster API's controller writes it (cluster-api v1.10,
/// `api/v1beta1/common_types.go`).
pub const CLUSTER_LINK: &str = "cluster.x-k8s.io/machine";
/// Annotation of a Node: the subnet that hybrid-overlay assigned to it.
pub const SUBNET: &str = "k8s.ovn.org/hybrid-overlay-node-subnet";
/// On an object that dormer creates in addition to the machines' own: `dormer`. Objects of others are not changed.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// [`MANAGED_BY`] with the value of dormer's own objects.
pub const OURS: (&str, &str) = (MANAGED_BY, "dormer");
/// On such an object: the namespace of the dormer that made it, where several could be in one cluster.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// On a machine's bootstrap token: the Machine's UID.
pub const MACHINE_UID: &str = "dormer.io/machine-uid";
/// Annotation of a Node: its cloud-node-manager needs another token from this time on.
pub const CLOUD_TOKEN_DUE: &str = "dormer.io/cloud-token-due";
/// Condition of a Node that dormer configured, with the result.
pub const CONDITION: &str = "DormerConfigured";
/// Every annotation that dormer writes on Machines and Nodes under a name of its own.
pub const OWN: [&str; 11] = [
    INSTALLATION,
    NODE_NAME,
    FENCE,
    VERSION,
    HOST_KEY,
    WAS_CORDONED,
    NEWEST_POD,
    DRAINED_SINCE,
    TEARING,
    HELD_FROM_SCALE_DOWN,
    CLOUD_TOKEN_DUE,
];

/// Whether a person labelled or annotated an object to be ignored.
#[must_use]
pub fn ignored(object: &impl ResourceExt) -> bool {
    [object.labels(), object.annotations()]
        .into_iter()
        .any(|all| all.get(IGNORE).is_some_and(|value| value == "true"))
}

/// Namespace of another dormer that has this Machine or Node; `None`: `home` has it, or none yet.
#[must_use]
pub fn other_installation<'a>(object: &'a impl ResourceExt, home: &str) -> Option<&'a str> {
    let noted = object.annotations().get(INSTALLATION)?.as_str();
    (!noted.is_empty() && noted != home).then_some(noted)
}

#[must_use]
pub fn fence_text(mark: TokenMark) -> String {
    format!(
        "{} {}",
        mark.token.0,
        if mark.open { "open" } else { "closed" }
    )
}

/// Reads [`FENCE`]; `None` for a value that dormer did not write. Every token that can be written is read: who reads
/// it decides whether it is plausible.
#[must_use]
pub fn fence(text: &str) -> Option<TokenMark> {
    let (token, word) = text.trim().split_once(' ')?;
    let open = match word {
        "open" => true,
        "closed" => false,
        _ => return None,
    };
    let token = token.parse().ok()?;
    Some(TokenMark {
        token: LeaseToken(token),
        open,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        for (token, open) in [(0, false), (7, true), (u64::MAX, false)] {
            let mark = TokenMark {
                token: LeaseToken(token),
                open,
            };
            assert_eq!(fence(&fence_text(mark)), Some(mark));
        }
        let past = format!("{}0 closed", u64::MAX);
        for odd in ["", "7", "7 ajar", "open", "-1 open", "7 open now", &past] {
            assert_eq!(fence(odd), None, "{odd}");
        }
    }
}
