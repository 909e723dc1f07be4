//! `dormer verify`: the checks of a Node that serves, made at will. They are those that a node passes before it counts
//! as joined.

use crate::cluster_access::{ClusterAccess, failed};
use clap::{Args, ValueEnum};
use dormer_client::{
    EXIT_CODES, Failure, finish, one_that_ends_in,
    output::{Column, table},
};
use dormer_profile::suggestion::question;
use dormer_proto::checks::{NodeCheck, NodeExpectation};
use dormer_workers::{
    kubernetes::{
        KUBELET_PORT, KubernetesExecutor, Settings,
        keys::{CLUSTER_LINK, NODE_LINK},
    },
    ssh::TcpDial,
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a canary may take: a node pulls an image of 200 MB for Windows.
const CANARY_MAX: Duration = Duration::from_secs(300);
/// How often its pods are looked at.
const CANARY_EVERY: Duration = Duration::from_secs(2);

/// Text below the flags in `--help`.
const AFTER_HELP: &str = "\
Examples:
  dormer verify win-a
  dormer verify machine/demo-windows-9dg4j
  dormer verify 10.0.0.7 -o json

The command reads the Node, its Machine and its pods, and a line of the log of one; it asks the kubelet for its certificate. \
It needs no running dormer, and writes nothing but the pods of --canary: \
one on the Node and one on a Linux node, which it deletes once all checks pass. What cannot be found out from here is \"not checked\", with the reason: a kubelet that this \
computer does not reach, the payload, the host. A check that fails is a problem (exit code 1); \"not checked\" is none.";

/// Arguments of `dormer verify`.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// The Node: its name or the end of it, the name of its Machine or the end of that, or its address
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    access: ClusterAccess,
    /// Seconds for which it must have been Ready
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    soak: u32,
    /// Run a canary pod with this image of agnhost on the node, such as registry.k8s.io/e2e-test-images/agnhost:2.63.0
    #[arg(long, value_name = "IMAGE", requires = "canary_namespace")]
    canary: Option<String>,
    /// Namespace of the canary's pods
    #[arg(long, value_name = "NAME", requires = "canary")]
    canary_namespace: Option<String>,
    /// Address outside of the cluster to which the canary has to connect
    #[arg(long, value_name = "HOST:PORT", requires = "canary")]
    canary_outbound: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Form,
}

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Makes the checks, prints them, and returns the exit code.
pub(crate) async fn run(options: Options) -> ExitCode {
    finish(options.run().await)
}

impl Options {
    async fn run(&self) -> Result<(String, bool), Failure> {
        let client = self.access.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        let kinds = ["node/", "machine/"];
        let bare = kinds.iter().find_map(|kind| self.node.strip_prefix(kind));
        let called = bare.unwrap_or(&self.node);
        let node = match nodes.get_opt(called).await.map_err(failed)? {
            Some(_) => called.to_owned(),
            None => {
                let windows = ListParams::default().labels(WINDOWS);
                let listed = nodes.list(&windows).await.map_err(failed)?;
                chosen(called, &listed.items)?
            }
        };
        let kubelets = Arc::new(TcpDial { port: KUBELET_PORT });
        let settings = Settings {
            canaries: self.canary_namespace.clone(),
            outbound: self.canary_outbound.clone(),
            ..Settings::default()
        };
        let executor = KubernetesExecutor::new(client, settings).reaching(kubelets);
        let checks = self.checks(&executor, &node).await?;
        let good = !checks.iter().any(NodeCheck::failed);
        Ok((self.text(&node, &checks), good))
    }

    /// The checks of one pass; with a canary, of the first pass in which it fails none, or of the last.
    async fn checks(
        &self,
        executor: &KubernetesExecutor,
        node: &str,
    ) -> Result<Vec<NodeCheck>, Failure> {
        let expect = NodeExpectation {
            soak_ms: u64::from(self.soak) * 1_000,
            canary: self.canary.clone(),
            ..NodeExpectation::default()
        };
        let until = Instant::now() + CANARY_MAX;
        let mut again = tokio::time::interval(CANARY_EVERY);
        loop {
            again.tick().await;
            let checked = executor.verify_node(node, &expect).await;
            let checks = checked.map_err(|failure| Failure::refused(failure.message, ""))?;
            let good = !checks.iter().any(NodeCheck::failed);
            if good || self.canary.is_none() || Instant::now() >= until {
                return Ok(checks);
            }
        }
    }

    fn text(&self, node: &str, checks: &[NodeCheck]) -> String {
        match self.output {
            Form::Text => shown(checks),
            Form::Json => {
                let one = |it: &NodeCheck| {
                    json!({"check": it.check, "result": it.result.text(), "said": it.said,
                        "code": it.failed().then(|| it.code())})
                };
                let all: Vec<_> = checks.iter().map(one).collect();
                format!("{:#}", json!({"node": node, "checks": all}))
            }
        }
    }
}

/// Label of Windows' Nodes.
const WINDOWS: &str = "kubernetes.io/os=windows";

/// The one Windows Node of `nodes` that is called so: by the end of its name, by its Machine's name or the end of that, or
/// by its address.
///
/// # Errors
/// None is, or several are: with the names that there are.
fn chosen(called: &str, nodes: &[Node]) -> Result<String, Failure> {
    let names: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
    let machines: Vec<&str> = nodes.iter().map(machine_of).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let of_machine = one_that_ends_in(called, &machines).unwrap_or(called);
    let is_it = |(name, node): &(&&str, &Node)| {
        let short = one_that_ends_in(called, &known) == Some(**name);
        short || machine_of(node) == of_machine || has_address(node, called)
    };
    let found = known.iter().zip(nodes).filter(is_it);
    let found: Vec<&str> = found.map(|(name, _)| *name).collect();
    if let [only] = found.as_slice() {
        return Ok((*only).to_owned());
    }
    if found.len() > 1 {
        let message = format!(
            "{called} are several Nodes: give one of {}",
            found.join(", ")
        );
        return Err(Failure::Usage(message));
    }
    let all = known
        .iter()
        .copied()
        .chain(machines)
        .filter(|it| !it.is_empty());
    let near = question(called, all);
    Err(Failure::Absent {
        error: format!("there is no Node {called}, and no Machine of a Node is called so{near}"),
        what_to_do: format!("kubectl get nodes -l {WINDOWS}"),
    })
}

/// Name of the Node's Machine, as the controller of Machines has written it on the Node; empty if it has not.
fn machine_of(node: &Node) -> &str {
    let link = |key| node.annotations().get(key);
    let name = link(NODE_LINK)
        .or_else(|| link(CLUSTER_LINK))
        .map_or("", String::as_str);
    name.rsplit_once('/').map_or(name, |(_, name)| name)
}

fn has_address(node: &Node, called: &str) -> bool {
    let status = node.status.as_ref();
    let mut addresses = status
        .and_then(|it| it.addresses.as_ref())
        .into_iter()
        .flatten();
    addresses.any(|it| it.address.eq_ignore_ascii_case(called))
}

fn shown(checks: &[NodeCheck]) -> String {
    let columns = [
        Column::new("CHECK", |it: &NodeCheck| it.check.clone()),
        Column::new("RESULT", |it| it.result.text().to_owned()),
        Column::new("FOUND", |it| it.said.clone()),
    ];
    table(checks, &columns, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::checks::{CheckName, CheckResult};

    #[test]
    fn a_node_goes_by_the_end_of_its_name_by_its_machine_and_by_its_address() {
        let node = |name: &str, machine: &str, address: &str| -> Node {
            let node = json!({"metadata": {"name": name, "annotations": {NODE_LINK: machine}},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]}});
            serde_json::from_value(node).expect("a Node")
        };
        let nodes = [
            node("win-a-9nhgg", "ns/demo-worker-vn94g", "10.0.0.7"),
            node("win-b-9nhgg", "ns/demo-worker-2k4kt", "10.0.0.8"),
            node("ip-10-0-0-9", "ns/demo-worker-zzzzz", "10.0.0.9"),
        ];
        for (called, name) in [
            ("demo-worker-2k4kt", "win-b-9nhgg"),
            ("vn94g", "win-a-9nhgg"),
            ("10.0.0.9", "ip-10-0-0-9"),
            ("zzzzz", "ip-10-0-0-9"),
        ] {
            assert_eq!(chosen(called, &nodes).as_deref(), Ok(name), "{called}");
        }
        let ends = [node("win-zzzzz", "", "10.0.0.1")];
        assert_eq!(chosen("zzzzz", &ends).as_deref(), Ok("win-zzzzz"));
        let refused = chosen("9nhgg", &nodes).unwrap_err().to_string();
        assert!(refused.contains("there is no Node 9nhgg"), "{refused}");
        let near = chosen("demo-worker-zzzzy", &nodes).unwrap_err().to_string();
        assert!(near.contains("did you mean demo-worker-zzzzz?"), "{near}");
        let twice = [node("a", "", "10.0.0.1"), node("b", "", "10.0.0.1")];
        let several = chosen("10.0.0.1", &twice).unwrap_err().to_string();
        assert!(several.contains("give one of a, b"), "{several}");
    }

    #[test]
    fn each_check_is_a_row_with_its_own_result() {
        let check = |name: CheckName, result, said: &str| NodeCheck {
            check: name.to_string(),
            result,
            said: said.to_owned(),
        };
        let checks = [
            check(CheckName::Os, CheckResult::Ok, "windows"),
            check(CheckName::Certificate, CheckResult::NotChecked, "refused"),
            check(CheckName::Labels, CheckResult::Failed, "it lacks a=b"),
        ];
        let text = shown(&checks);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[2].contains("not checked") && lines[2].contains("refused"));
        assert!(lines[3].contains("failed") && lines[3].contains("it lacks a=b"));
    }
}
