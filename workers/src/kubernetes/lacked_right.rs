//! Right that a role lacks, out of the API server's refusal: its `Status` has no field for account, verb and resource.

/// What the API server calls a ServiceAccount, before its namespace and name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Right that a refusal names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LackedRight {
    /// Whose requests were refused. `None`: the refusal names only the right.
    pub account: Option<RefusedAccount>,
    /// Verb, resource and namespace, as `dormer preflight --cluster` writes them.
    pub right: String,
    /// Setting of the chart that grants it. `None`: every installation has the right.
    pub setting: Option<String>,
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
    fn of(account: &str) -> Self {
        let of_pod = account.strip_prefix(SERVICE_ACCOUNT);
        match of_pod.and_then(|it| it.split_once(':')) {
            Some((namespace, name)) => Self::ServiceAccount {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            None => Self::User(account.to_owned()),
        }
    }
}

impl LackedRight {
    /// The right in a failure's message. `None`: it is no refusal for want of a right, or it was cut. A refusal by an
    /// admission policy names no right.
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
        let dot = if group.is_empty() { "" } else { "." };
        let within = namespace.map_or_else(String::new, |it| format!(" in {it}"));
        Some(Self {
            account: Some(RefusedAccount::of(account)),
            right: format!("{verb} {resource}{dot}{group}{within}"),
            setting: setting(verb, resource, group, namespace),
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
            setting: None,
        })
    }
}

/// Setting of the chart without which it does not grant the right (`deploy/chart/templates/rbac.yaml`).
fn setting(verb: &str, resource: &str, group: &str, namespace: Option<&str>) -> Option<String> {
    match (group, resource, verb) {
        ("cluster.x-k8s.io", _, _) => {
            let namespace = namespace.unwrap_or("'*'");
            Some(format!("clusterApiNamespace={namespace}"))
        }
        ("dormer.io", "windowshosts" | "windowshosts/status", _) | ("", "nodes", "delete") => {
            Some("ownHosts=true".to_owned())
        }
        ("", "pods", "delete") => Some("forcedDrains=true".to_owned()),
        _ => None,
    }
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
        assert_eq!(found.setting, None);
        let of_person = REFUSAL.replace("system:serviceaccount:home:dormer-worker", "ann");
        let found = LackedRight::of(&of_person).expect("a right");
        assert_eq!(found.account, Some(RefusedAccount::User("ann".to_owned())));
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
