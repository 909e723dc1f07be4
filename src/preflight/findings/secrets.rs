//! Findings about Secrets: the key that opens the hosts, the user data of new machines, and what OpenShift gives nodes.

use super::{Findings, platform_of};
use crate::preflight::survey::{MACHINE_API, ReadObject, Survey};
use base64::{Engine, prelude::BASE64_STANDARD};
use dormer_profile::userdata::user_data;
use dormer_workers::ssh::{Key, SshError};
use serde_json::Value;

fn secret_text(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret["data"][key].as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

pub(super) fn openshift_secrets(survey: &Survey, found: &mut Findings) {
    let token = "Secret openshift-machine-config-operator/node-bootstrapper-token";
    let todo = "the machine config operator makes it: oc get clusteroperator machine-config";
    match &survey.bootstrap {
        ReadObject::Absent => found.error(
            "BootstrapTokenAbsent",
            token,
            "new nodes have no token to join with",
            todo,
        ),
        ReadObject::There(secret) => {
            for key in ["ca.crt", "token"] {
                if secret_text(secret, key).is_none_or(|it| it.trim().is_empty()) {
                    let message = format!("it has no {key}, so new nodes cannot join");
                    found.error("BootstrapTokenAbsent", token, message, todo);
                }
            }
        }
        ReadObject::Unread(_) => {}
    }
    if survey.pull_secret == ReadObject::Absent {
        let todo = "without it nodes pull from public registries only: restore it";
        found.warning(
            "PullSecretAbsent",
            "Secret openshift-config/pull-secret",
            "there is none",
            todo,
        );
    }
}

/// What is said of a key that opens more than Windows hosts.
const IS_THE_CLUSTERS: &str =
    "it is the key that the cluster was installed with, which opens the control plane, too";
/// What to do about such a key in an ssh-agent.
const AGENT_NEEDS_ITS_OWN: &str =
    "give dormer a key of its own: add it with ssh-add, and name it with --ssh-agent-key";

/// Judges dormer's private key. Returns its public half.
pub(super) fn key(survey: &Survey, found: &mut Findings) -> Option<String> {
    let namespace = &survey.namespace;
    let object = format!("Secret {namespace}/cloud-private-key");
    let make = format!(
        "make a key for dormer alone: ssh-keygen -t ed25519 -N '' -f windows && kubectl -n {namespace} create secret \
         generic cloud-private-key --from-file=private-key.pem=windows"
    );
    if let Some(public) = &survey.agent_key {
        let of_cluster = installed_with(survey).iter().any(|it| same_key(it, public));
        if of_cluster {
            found.error(
                "KeyIsTheClusters",
                "SSH agent",
                IS_THE_CLUSTERS,
                AGENT_NEEDS_ITS_OWN,
            );
        }
        return Some(public.clone());
    }
    let secret = match &survey.key {
        ReadObject::Absent => {
            found.error(
                "KeyAbsent",
                &object,
                "dormer has no SSH key for the hosts",
                &make,
            );
            return None;
        }
        ReadObject::Unread(_) => return None,
        ReadObject::There(secret) => secret,
    };
    let Some(text) = secret_text(secret, "private-key.pem") else {
        found.error("KeyAbsent", &object, "it has no private-key.pem", &make);
        return None;
    };
    let key = match Key::read(&text) {
        Ok(key) => key,
        Err(error) => {
            let code = match error {
                SshError::KeyEncrypted => "KeyEncrypted",
                SshError::KeyWeak(_) => "KeyWeak",
                _ => "KeyUnusable",
            };
            found.error(code, &object, error.to_string(), &make);
            return None;
        }
    };
    let public = key.public_line().ok()?;
    if installed_with(survey)
        .iter()
        .any(|known| same_key(known, &public))
    {
        found.error("KeyIsTheClusters", &object, IS_THE_CLUSTERS, &make);
    }
    Some(public)
}

/// Public keys that the cluster was installed with.
fn installed_with(survey: &Survey) -> Vec<String> {
    let Some(config) = survey.install_keys.value() else {
        return Vec::new();
    };
    let users = config["spec"]["config"]["passwd"]["users"]
        .as_array()
        .into_iter()
        .flatten();
    let keys = users.flat_map(|it| it["sshAuthorizedKeys"].as_array().into_iter().flatten());
    keys.filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect()
}

/// Whether two lines of `authorized_keys` have one key; comments do not count.
fn same_key(one: &str, other: &str) -> bool {
    let key = |line: &str| {
        line.split_whitespace()
            .take(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    key(one).len() == 2 && key(one) == key(other)
}

pub(super) fn userdata(survey: &Survey, public: Option<&str>, found: &mut Findings) {
    let object = format!("Secret {MACHINE_API}/windows-user-data");
    let todo = format!(
        "dormer writes it at its start; if another wrote this one: kubectl -n {MACHINE_API} delete secret windows-user-data"
    );
    let any_set = survey.machine_sets.iter().any(|set| {
        set["spec"]["template"]["metadata"]["labels"]["machine.openshift.io/os-id"] == "Windows"
    });
    let secret = match &survey.user_data {
        ReadObject::Absent => {
            if any_set {
                let message = "there is none, and a Windows MachineSet needs it: without it dormer cannot log in to its hosts";
                found.warning("UserDataAbsent", &object, message, &todo);
            }
            return;
        }
        ReadObject::Unread(_) => return,
        ReadObject::There(secret) => secret,
    };
    let Some(text) = secret_text(secret, "userData").filter(|it| !it.trim().is_empty()) else {
        found.error("UserDataEmpty", &object, "it has no userData", &todo);
        return;
    };
    let Some(public) = public else { return };
    let words: Vec<&str> = public.split_whitespace().take(2).collect();
    if !text.contains(&words.join(" ")) {
        let message = "it permits another key than dormer's: new hosts would refuse dormer's login";
        found.error("UserDataOtherKey", &object, message, &todo);
        return;
    }
    if !text.contains("sshd") {
        found.error(
            "UserDataWithoutSshd",
            &object,
            "it does not start sshd",
            &todo,
        );
    }
    let ours = secret["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "dormer";
    let right = user_data(public, &platform_of(survey)).ok();
    if ours && right.is_some_and(|right| right != text) {
        let message =
            "it is not what dormer would write: a person changed it, or an earlier dormer wrote it";
        found.warning("UserDataChanged", &object, message, &todo);
    }
}
