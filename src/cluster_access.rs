//! A cluster that a command of a person reaches by a kubeconfig.

use clap::Args;
use dormer_client::Failure;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::path::PathBuf;

/// Flags that select the cluster and dormer's namespace in it.
#[derive(Debug, Args)]
pub(crate) struct ClusterAccess {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of dormer and of its WindowsPool [default: dormer]
    #[arg(
        short,
        long,
        value_name = "NAME",
        default_value = "dormer",
        hide_default_value = true
    )]
    pub(crate) namespace: String,
}

impl ClusterAccess {
    /// A client of the cluster's API server.
    ///
    /// # Errors
    /// A kubeconfig that cannot be read or used.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(unreached)?;
                Config::from_custom_kubeconfig(file, &options)
                    .await
                    .map_err(unreached)?
            }
            None if self.context.is_some() => {
                Config::from_kubeconfig(&options).await.map_err(unreached)?
            }
            None => Config::infer().await.map_err(unreached)?,
        };
        Client::try_from(config).map_err(unreached)
    }
}

/// Failure of a request to the cluster.
pub(crate) fn unreached(why: impl std::fmt::Display) -> Failure {
    Failure::refused(why.to_string(), "check that kubectl reaches the cluster")
}
