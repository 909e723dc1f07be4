//! Executor of this process's worker, built from its settings.

use super::key::{KeySource, Keyed, Lack, NO_PROGRAM, POLL_EVERY};
use crate::config::Config;
use dormer_workers::{
    catalog::Catalog,
    execute::Executors,
    host::{HostExecutor, HostProgram},
    kubernetes::{KubernetesExecutor, Settings},
    ssh::{Dialer, Limits, TcpDial},
};
use std::sync::Arc;

/// Executor for hosts and the Kubernetes API.
pub(crate) type HostAndKubernetes =
    Executors<Keyed<HostExecutor<KubernetesExecutor>>, KubernetesExecutor>;

/// Builds the executor for the Kubernetes API.
pub(crate) fn kubernetes(config: &Config, client: &kube::Client) -> KubernetesExecutor {
    let settings = Settings {
        namespace: config.namespace.clone(),
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

/// What a worker without a host program says.
const NO_PROGRAM_SAID: &str = "there is no host program: dormer was started without --host-program; start it with \
                               --host-program FILE (DORMER_HOST_PROGRAM), where FILE is the dormer-host.exe of this \
                               release; the chart's value is hostProgram";

/// Builds both executors for the cluster of `client`. Tasks on hosts wait until the private key exists, and as long as
/// there is no host program.
///
/// # Errors
/// The host program is given and cannot be read, or no Windows node could run it.
pub(crate) async fn both(
    config: &Config,
    client: &kube::Client,
    catalog: &Catalog,
) -> anyhow::Result<HostAndKubernetes> {
    let program = config.host_program.as_deref().map(HostProgram::read);
    let program = program.transpose()?.map(Arc::new);
    let source = source(config, client);
    let kubernetes = kubernetes(config, client);
    let cluster = Arc::new(kubernetes.clone());
    let catalog = catalog.clone();
    let dialer: Dialer = Arc::new(TcpDial {
        port: config.ssh_port,
    });
    let host = Keyed::follow(source, config.slots, move |key| {
        let dialer = Arc::clone(&dialer);
        let cluster = Arc::clone(&cluster);
        let program = program.clone().ok_or_else(|| Lack {
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
