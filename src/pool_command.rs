//! `dormer pool`: converts an earlier build's ConfigMap into an equivalent `WindowsPool`.

use crate::cluster_access::{ClusterAccess, failed, silent};
use clap::{Args, Subcommand};
use dormer_client::{EXIT_CODES, Failure, file, finish};
use dormer_profile::yaml;
use dormer_proto::pool::DEFAULT_POOL;
use dormer_workers::pool::{config_map, import};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

/// Largest file with a ConfigMap, in bytes: Kubernetes' own limit of an object is 1.5 MiB.
const CONFIG_MAP_BYTES_MAX: u64 = 4 << 20;
/// Time limit of the API server's answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Subcommands for pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Print a WindowsPool with the settings of an earlier build's ConfigMap: dormer pool import | kubectl apply -f -
    #[command(after_help = EXIT_CODES)]
    Import(Import),
}

/// Arguments that select the ConfigMap.
#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(flatten)]
    cluster: ClusterAccess,
    /// Read the ConfigMap from this file instead of the cluster
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    filename: Option<PathBuf>,
}

/// Runs the subcommand, and returns the exit code.
pub(crate) async fn run(asked: PoolCommand) -> ExitCode {
    let PoolCommand::Import(import) = asked;
    finish(import.run().await.map(|text| (text, true)))
}

impl Import {
    async fn run(&self) -> Result<String, Failure> {
        let name = config_map(DEFAULT_POOL);
        let map = match &self.filename {
            Some(path) => read(path)?,
            None => self.fetch(&name).await?,
        };
        let data = map.data.unwrap_or_default();
        let spec = import::spec_of(&data).map_err(|error| {
            let what = format!("the ConfigMap {}/{name}: {error}", self.cluster.namespace);
            Failure::refused(what, "correct the ConfigMap, and import again")
        })?;
        let object = import::object(&self.cluster.namespace, DEFAULT_POOL, &spec);
        let text = yaml::to_string(&object);
        let text = text.map_err(|why| Failure::refused(why.to_string(), ""))?;
        let namespace = &self.cluster.namespace;
        Ok(format!(
            "# From the ConfigMap {namespace}/{name}. No lease is granted while it exists; apply \
             this, then delete it:\n\
             # kubectl -n {namespace} delete configmap {name}\n{text}"
        ))
    }

    async fn fetch(&self, name: &str) -> Result<ConfigMap, Failure> {
        let client = self.cluster.client().await?;
        let api: Api<ConfigMap> = Api::namespaced(client, &self.cluster.namespace);
        let asked = tokio::time::timeout(ANSWER_MAX, api.get_opt(name)).await;
        let found = asked
            .map_err(|_| silent("nothing within 30 s"))?
            .map_err(failed)?;
        found.ok_or_else(|| {
            let namespace = &self.cluster.namespace;
            Failure::Absent {
                error: format!("there is no ConfigMap {namespace}/{name}"),
                what_to_do: format!(
                    "for a new pool: kubectl -n {namespace} apply -f deploy/pool.yaml"
                ),
            }
        })
    }
}

/// Reads the ConfigMap from a file.
fn read(path: &Path) -> Result<ConfigMap, Failure> {
    let failed =
        |why: String| Failure::refused(format!("--filename {}: {why}", path.display()), "");
    let text = file::read("--filename", path, CONFIG_MAP_BYTES_MAX)?;
    let mut documents = yaml::documents(&text).map_err(|error| failed(error.to_string()))?;
    documents.retain(|one| one["kind"] == "ConfigMap");
    let [map] = &documents[..] else {
        return Err(failed(format!(
            "the file has {} documents, but must have one ConfigMap",
            documents.len()
        )));
    };
    serde_json::from_value(map.clone()).map_err(|error| failed(error.to_string()))
}
