//! Executor of this process's worker, built from its settings.

use super::key::{KeySource, Keyed, MissingPrerequisite, NO_PROGRAM, POLL_EVERY};
use crate::config::{Config, Role};
use dormer_workers::{
    catalog::Catalog,
    execute::Executors,
    host::{HostExecutor, HostProgram},
    kubernetes::{KUBELET_PORT, KubernetesExecutor, Settings},
    ssh::{Dialer, Limits, TcpDial},
};
use std::sync::Arc;

/// Executor for hosts and the Kubernetes API.
pub(crate) type HostAndKubernetes =
    Executors<Keyed<HostExecutor<KubernetesExecutor>>, KubernetesExecutor>;

/// Builds the executor for the Kubernetes API. Where this process is no approver, another one is.
pub(crate) fn kubernetes(config: &Config, client: &kube::Client) -> KubernetesExecutor {
    let executor = any_role(config, client);
    match config.is(Role::Approver) {
        true => executor,
        false => executor.of_worker(),
    }
}

/// Builds the executor of an approver.
pub(crate) fn approver(config: &Config, client: &kube::Client) -> KubernetesExecutor {
    any_role(config, client).of_approver()
}

fn any_role(config: &Config, client: &kube::Client) -> KubernetesExecutor {
    let settings = Settings {
        namespace: config.namespace.clone(),
        machines: config.machine_namespace.clone(),
        cluster_machines: config.cluster_api_namespace.clone(),
        canaries: config.canary_namespace.clone(),
        outbound: config.canary_outbound.clone(),
        ..config.join.clone()
    };
    KubernetesExecutor::new(client.clone(), settings)
}

/// Source of the private key for hosts.
pub(crate) fn source(config: &Config, client: &kube::Client) -> KeySource {
    KeySource {
        client: client.clone(),
        namespace: config.namespace.clone(),
        location: config.key.clone(),
        poll_every: POLL_EVERY,
    }
}

/// Report of a worker without a host program.
const NO_PROGRAM_SAID: &str = "there is no host program: dormer was started without --host-program; start it with \
                               --host-program FILE (DORMER_HOST_PROGRAM), where FILE is the dormer-host.exe of this \
                               release; the chart's value is hostProgram";

/// Compares the program with the expected hash.
///
/// # Errors
///
/// The hash differs.
fn same_sum(program: &HostProgram, sum: &str) -> anyhow::Result<()> {
    let found = program.sha256();
    anyhow::ensure!(
        found == sum,
        "--host-program has the SHA-256 {found}, and --host-program-sha256 names {sum}: it is another program, and is \
         given to no host"
    );
    Ok(())
}

/// Builds both executors for the cluster of `client`. Tasks on hosts wait until the private key and the host program
/// exist.
///
/// # Errors
///
/// The given host program cannot be read, differs from its hash, or cannot run on any Windows node.
pub(crate) async fn both(
    config: &Config,
    client: &kube::Client,
    catalog: &Catalog,
) -> anyhow::Result<HostAndKubernetes> {
    let program = config.host_program.as_deref().map(HostProgram::read);
    let program = program.transpose()?.map(Arc::new);
    if let (Some(program), Some(sum)) = (&program, &config.host_program_sha256) {
        same_sum(program, sum)?;
    }
    let source = source(config, client);
    let kubelets = Arc::new(TcpDial { port: KUBELET_PORT });
    let kubernetes = kubernetes(config, client).reaching(kubelets);
    let cluster = Arc::new(kubernetes.clone());
    let catalog = catalog.clone();
    let dialer: Dialer = Arc::new(TcpDial {
        port: config.ssh_port,
    });
    let host = Keyed::follow(source, config.slots, move |key| {
        let dialer = Arc::clone(&dialer);
        let cluster = Arc::clone(&cluster);
        let program = program.clone().ok_or_else(|| MissingPrerequisite {
            code: NO_PROGRAM,
            why: NO_PROGRAM_SAID.into(),
        })?;
        let limits = Limits::default();
        let catalog = catalog.clone();
        Ok(HostExecutor::new(
            dialer, key, limits, catalog, program, cluster,
        ))
    });
    Ok(Executors {
        host: host.await,
        kubernetes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_program_with_another_sum_is_refused() {
        // The smallest file with a PE header of an x86-64 program.
        let mut bytes = b"MZ".to_vec();
        bytes.resize(0x3c, 0);
        bytes.extend(0x40_u32.to_le_bytes());
        bytes.extend(b"PE\0\0\x64\x86");
        let program = HostProgram::of(bytes.clone()).expect("a program");
        same_sum(&program, program.sha256()).expect("the same");
        bytes.push(0);
        let other = HostProgram::of(bytes).expect("a program");
        let error = same_sum(&other, program.sha256()).expect_err("another one");
        assert!(error.to_string().contains(other.sha256()), "{error}");
    }
}
