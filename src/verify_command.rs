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
    kubernetes::{KUBELET_PORT, KubernetesExecutor, Settings},
    ssh::TcpDial,
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;
use std::{process::ExitCode, sync::Arc};

/// Text below the flags in `--help`.
const AFTER_HELP: &str = "\
Examples:
  dormer verify win-a
  dormer verify win-a -o json

The command reads the Node, its Machine and its pods, and a line of the log of one; it asks the kubelet for its certificate. \
It writes nothing, and needs no running dormer. What cannot be found out from here is \"not checked\", with the reason: a kubelet that this \
computer does not reach, the payload, the host. A check that fails is a problem (exit code 1); \"not checked\" is none.";

/// Arguments of `dormer verify`.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// Name of the Node, or the end of it
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    access: ClusterAccess,
    /// Seconds for which it must have been Ready
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    soak: u32,
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
        let called = self.node.strip_prefix("node/").unwrap_or(&self.node);
        let node = match nodes.get_opt(called).await.map_err(failed)? {
            Some(_) => called.to_owned(),
            None => {
                let windows = ListParams::default().labels(WINDOWS);
                let listed = nodes.list(&windows).await.map_err(failed)?;
                let names = listed.items.iter().map(ResourceExt::name_any);
                chosen(called, &names.collect::<Vec<_>>())?
            }
        };
        let kubelets = Arc::new(TcpDial { port: KUBELET_PORT });
        let executor = KubernetesExecutor::new(client, Settings::default()).reaching(kubelets);
        let expect = NodeExpectation {
            soak_ms: u64::from(self.soak) * 1_000,
            ..NodeExpectation::default()
        };
        let checked = executor.verify_node(&node, &expect).await;
        let checks = checked.map_err(|failure| Failure::refused(failure.message, ""))?;
        let good = !checks.iter().any(NodeCheck::failed);
        Ok((self.text(&node, &checks), good))
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

/// The one Windows Node among `names` that ends in `called`.
///
/// # Errors
/// None does, or several: with the names that there are.
fn chosen(called: &str, names: &[String]) -> Result<String, Failure> {
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Some(only) = one_that_ends_in(called, &known) {
        return Ok(only.to_owned());
    }
    let near = question(called, known.iter().copied());
    Err(Failure::Absent {
        error: format!("there is no Node {called}{near}"),
        what_to_do: format!("kubectl get nodes -l {WINDOWS}"),
    })
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
    fn a_node_goes_by_the_end_of_its_name_if_only_one_ends_so() {
        let names = ["win-a-9nhgg", "win-b-9nhgg", "win-zzzzz"].map(str::to_owned);
        assert_eq!(chosen("zzzzz", &names).as_deref(), Ok("win-zzzzz"));
        let refused = chosen("9nhgg", &names).unwrap_err().to_string();
        assert!(refused.contains("there is no Node 9nhgg"), "{refused}");
        let near = chosen("win-zzzzy", &names).unwrap_err().to_string();
        assert!(near.contains("did you mean win-zzzzz?"), "{near}");
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
