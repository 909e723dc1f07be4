//! A cluster that a command of a person reaches by a kubeconfig.

use clap::Args;
use dormer_client::{Failure, file::unreadable};
use dormer_profile::suggestion::near;
use dormer_views::kubeconfig::no_kubeconfig;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{Namespace, ServiceAccount},
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use std::path::PathBuf;

/// Begin of a service account's user name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Flags that select the cluster, dormer's namespace in it, and the account.
#[derive(Debug, Args)]
pub(crate) struct ClusterAccess {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's account]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace of dormer and of its WindowsPool [default: dormer]
    #[arg(
        short,
        long,
        value_name = "NAME",
        default_value = "dormer",
        hide_default_value = true
    )]
    pub(crate) namespace: String,
    /// Account in whose name the API server is asked, such as system:serviceaccount:dormer:dormer-worker
    #[arg(long = "as", value_name = "ACCOUNT")]
    pub(crate) account: Option<String>,
}

impl ClusterAccess {
    /// A client of the cluster's API server, in the name of the account.
    ///
    /// # Errors
    /// A kubeconfig that cannot be read or used, or an account that the cluster does not know.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let mut config = self.config().await?;
        let Some(account) = &self.account else {
            return Client::try_from(config).map_err(|why| self.unusable(why));
        };
        let ours = Client::try_from(config.clone()).map_err(|why| self.unusable(why))?;
        is_there(&ours, account).await?;
        config.auth_info.impersonate = Some(account.clone());
        let client = Client::try_from(config).map_err(|why| self.unusable(why))?;
        is_taken(&client, account).await?;
        Ok(client)
    }

    /// A client of the cluster's API server, in the name of the kubeconfig's own account.
    ///
    /// # Errors
    /// A kubeconfig that cannot be read or used.
    pub(crate) async fn own_client(&self) -> Result<Client, Failure> {
        let config = self.config().await?;
        Client::try_from(config).map_err(|why| self.unusable(why))
    }

    async fn config(&self) -> Result<Config, Failure> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        match &self.kubeconfig {
            Some(path) => {
                // The library's own error does not name the flag.
                std::fs::metadata(path).map_err(|why| unreadable("--kubeconfig", path, why))?;
                let file = Kubeconfig::read_from(path).map_err(|why| self.unusable(why))?;
                let config = Config::from_custom_kubeconfig(file, &options).await;
                config.map_err(|why| self.unusable(why))
            }
            None if self.context.is_some() => {
                let config = Config::from_kubeconfig(&options).await;
                config.map_err(|why| self.unusable(why))
            }
            None => Config::infer().await.map_err(|why| self.unusable(why)),
        }
    }

    /// Failure of the kubeconfig, with the flag that gave it.
    fn unusable(&self, why: impl std::fmt::Display) -> Failure {
        match (&self.kubeconfig, &self.context) {
            (Some(path), _) => unreadable("--kubeconfig", path, why),
            (None, Some(context)) => Failure::Usage(format!("--context {context}: {why}")),
            (None, None) => {
                let named = std::env::var("KUBECONFIG").ok();
                Failure::Usage(no_kubeconfig(&why.to_string(), named.as_deref()))
            }
        }
    }
}

/// Refuses a service account that the cluster does not have. A user is in no list of Kubernetes', so any is taken.
async fn is_there(client: &Client, account: &str) -> Result<(), Failure> {
    let Some(rest) = account.strip_prefix(SERVICE_ACCOUNT) else {
        return Ok(());
    };
    let Some((namespace, name)) = rest.split_once(':') else {
        return Err(Failure::Usage(format!(
            "--as {account}: a service account is {SERVICE_ACCOUNT}NAMESPACE:NAME"
        )));
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    // Who may not read accounts may be allowed to use one.
    if !matches!(accounts.get_opt(name).await, Ok(None)) {
        return Ok(());
    }
    let there = accounts.list(&ListParams::default()).await;
    let there: Vec<String> = there
        .into_iter()
        .flatten()
        .map(|it| it.name_any())
        .collect();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if there.is_empty() && matches!(namespaces.get_opt(namespace).await, Ok(None)) {
        return Err(Failure::Absent {
            error: format!("--as {account}: there is no namespace {namespace}"),
            what_to_do: "kubectl get namespaces lists them".into(),
        });
    }
    let near = near(name, there.iter().map(String::as_str));
    let near = near.map_or_else(String::new, |it| format!("; did you mean {it}?"));
    Err(Failure::Absent {
        error: format!("--as {account}: the namespace {namespace} has no account {name}{near}"),
        what_to_do: format!("its accounts are: {}", there.join(", ")),
    })
}

/// Checks that the API server takes us for the account: another server would answer for another user.
async fn is_taken(client: &Client, account: &str) -> Result<(), Failure> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let asked = SelfSubjectReview::default();
    let review = match api.create(&PostParams::default(), &asked).await {
        Ok(review) => review,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            return Err(Failure::refused(
                format!("--as {account}: {}", status.message),
                "your account needs the right to impersonate it; kubectl auth can-i impersonate users shows it",
            ));
        }
        // The demonstration's simulated API server has no such kind, and impersonates no user.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Err(Failure::refused(
                format!(
                    "--as {account}: the API server does not name the user that it answers for"
                ),
                "use a kubeconfig of that account (kubectl create token)",
            ));
        }
        Err(error) => return Err(failed(error)),
    };
    let is = review.status.and_then(|status| status.user_info);
    let is = is.and_then(|user| user.username).unwrap_or_default();
    match is == account {
        true => Ok(()),
        false => Err(Failure::refused(
            format!("--as {account}: the API server answers as {is:?}, so it takes no --as"),
            "use a kubeconfig of that account (kubectl create token)",
        )),
    }
}

/// Failure of a request to the cluster: refused, or without an answer.
pub(crate) fn failed(error: kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => {
            let what_to_do = match status.code {
                401 | 403 => {
                    "kubectl auth whoami and kubectl auth can-i --list show what the account may do"
                }
                _ => "",
            };
            Failure::refused(
                format!("the API server refused: {}", status.message),
                what_to_do,
            )
        }
        error => silent(error),
    }
}

/// Failure of an API server that does not answer.
pub(crate) fn silent(why: impl std::fmt::Display) -> Failure {
    Failure::NoCluster(why.to_string())
}
