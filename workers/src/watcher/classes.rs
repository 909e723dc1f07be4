//! A RuntimeClass for each Windows build among the nodes, so that a workload can request its build by one name. The
//! class is created with the first Node of a build and kept. It costs nothing, and pods that name it must not be
//! refused while the last Node of the build is replaced. A RuntimeClass of another owner is left unchanged.

use super::cluster::sentence;
use crate::kubernetes::keys;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Field manager of the watcher's server-side applies.
const MANAGER: &str = "dormer-watcher";
/// What containerd calls Windows containers that share the host's kernel.
const HANDLER: &str = "runhcs-wcow-process";
/// How long the API server may take for all of it.
const LIMIT: Duration = Duration::from_secs(10);
/// Most builds that get a class; a cluster has a handful.
const BUILDS_MAX: usize = 32;

/// State of the classes.
#[derive(Debug, Default)]
pub(super) struct Classes {
    /// Builds whose class is correct, or belongs to another owner.
    ensured: BTreeSet<String>,
    /// Last reported problem by build, so that each is reported once.
    said: BTreeMap<String, String>,
}

impl Classes {
    /// Before a list: existing classes are read again.
    pub(super) fn forget(&mut self) {
        self.ensured.clear();
    }

    /// Creates the missing classes of these builds. A problem is reported once, and tried again later.
    pub(super) async fn keep(&mut self, client: &Client, builds: BTreeSet<String>) {
        let new = builds
            .into_iter()
            .filter(|build| is_build(build))
            .take(BUILDS_MAX);
        let new: Vec<_> = new.filter(|build| !self.ensured.contains(build)).collect();
        let all = async {
            for build in &new {
                match class(client, build).await {
                    Ok(()) => drop(self.ensured.insert(build.clone())),
                    Err(why) => self.say(build, why),
                }
            }
        };
        if tokio::time::timeout(LIMIT, all).await.is_err() {
            tracing::warn!("the RuntimeClasses wait: the API server does not answer in time");
        }
    }

    fn say(&mut self, build: &str, why: String) {
        if self.said.get(build) != Some(&why) {
            tracing::warn!(build, "no RuntimeClass for this Windows build: {why}");
            self.said.insert(build.to_owned(), why);
        }
    }
}

async fn class(client: &Client, build: &str) -> Result<(), String> {
    let name = name(build);
    let api = Api::<RuntimeClass>::all(client.clone());
    let failed = |verb, error| sentence(verb, "runtimeclasses.node.k8s.io", &error).0;
    let found = api
        .get_opt(&name)
        .await
        .map_err(|error| failed("get", error))?;
    if found.is_some_and(|found| {
        found
            .labels()
            .get(keys::OURS.0)
            .is_none_or(|by| by != keys::OURS.1)
    }) {
        tracing::info!(
            name,
            "the RuntimeClass is somebody else's and stays as it is"
        );
        return Ok(());
    }
    let params = PatchParams::apply(MANAGER).force();
    let applied = api
        .patch(&name, &params, &Patch::Apply(wanted(build)))
        .await;
    applied.map(drop).map_err(|error| failed("apply", error))
}

/// The name of a build's class: `windows-10.0.20348`.
fn name(build: &str) -> String {
    format!("windows-{build}")
}

/// Windows nodes have their taint in two spellings: pods of the class tolerate both.
fn wanted(build: &str) -> Value {
    let tolerates = |value: &str| json!({"key": "os", "operator": "Equal", "value": value, "effect": "NoSchedule"});
    json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": name(build), "labels": {keys::OURS.0: keys::OURS.1}},
        "handler": HANDLER,
        "scheduling": {
            "nodeSelector": {
                "kubernetes.io/os": "windows",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/windows-build": build,
            },
            "tolerations": [tolerates("Windows"), tolerates("windows")],
        },
    })
}

/// A build such as `10.0.20348`, as a kubelet writes it into its label. Other text cannot be part of a name.
fn is_build(text: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= 32 && text.split('.').count() == 3 && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_three_numbers() {
        for build in ["10.0.17763", "10.0.20348", "10.0.26100"] {
            assert!(is_build(build), "{build}");
            assert_eq!(
                wanted(build)["metadata"]["name"],
                format!("windows-{build}")
            );
        }
        for odd in ["", "10.0", "10.0.x", "10..1", "10.0.1.2", "../../x"] {
            assert!(!is_build(odd), "{odd}");
        }
    }
}
