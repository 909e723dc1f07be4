//! Access to dormer in a cluster: its Service is looked up, a port is forwarded through the API server, and requests
//! carry the caller's own token.

use super::{
    Failure,
    connector::{Connector, DialTarget, tls},
    file::unreadable,
    forwarded_pod::{ForwardedPod, failed},
};
use bytes::Bytes;
use clap::Args;
use dormer_views::{
    AUDIENCE,
    kubeconfig::{is_missing, no_kubeconfig},
};
use http_body_util::Full;
use hyper::{Request, Response, header::AUTHORIZATION};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Pod, Service as Svc, ServiceAccount, ServicePort},
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams},
    client::ConfigExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{path::PathBuf, sync::Arc};
use tower::{BoxError, Layer, ServiceExt, service_fn};

/// Label of dormer's Service.
const LABEL: &str = "app.kubernetes.io/name=dormer";
/// Names of the Service's port. The first one that exists is used; `https` speaks TLS.
const PORTS: [&str; 2] = ["https", "http"];
/// Lifetime in seconds of a token that is requested for a service account: the shortest that API servers issue.
const TOKEN_SECONDS: i64 = 600;

/// Arguments that select a dormer in a cluster, named as in kubectl.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "A dormer in a cluster")]
pub(crate) struct ClusterTarget {
    /// Kubeconfig file: finds dormer in its cluster, and forwards a port to it
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace that dormer itself runs in, not that of machines, which are found in all namespaces [default: the
    /// namespace of its Service]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Send requests as this service account, with a token of ten minutes; for kubeconfigs with a client certificate
    #[arg(long, hide_short_help = true, value_name = "NAMESPACE/NAME")]
    pub(crate) as_account: Option<String>,
    /// With --as-account: the audience of that token, as dormer's own --audience [default: dormer]
    #[arg(
        long,
        hide_short_help = true,
        requires = "as_account",
        value_name = "NAME"
    )]
    pub(crate) audience: Option<String>,
}

impl ClusterTarget {
    /// Whether any of the arguments is given.
    pub(crate) fn named(&self) -> bool {
        self.kubeconfig.is_some()
            || self.context.is_some()
            || self.namespace.is_some()
            || self.as_account.is_some()
    }
}

/// Service of dormer that was found.
pub(super) struct FoundService {
    pub(super) connector: Connector,
    /// Name in error messages.
    pub(super) called: String,
    /// Host of the cluster's API server.
    pub(super) cluster: String,
    pub(super) tls: bool,
    /// Bearer token of the caller, if the kubeconfig has one.
    pub(super) token: Option<String>,
}

/// Finds dormer in the cluster of `target`. `asks`: whether a token is needed as well.
///
/// # Errors
///
/// The kubeconfig cannot be used, or the cluster has no dormer, or several.
pub(super) async fn find(
    target: &ClusterTarget,
    authorities: Option<&std::path::Path>,
    asks: bool,
) -> Result<FoundService, Failure> {
    let config = config(target).await?;
    let client = Client::try_from(config.clone()).map_err(|why| failed("the kubeconfig", why))?;
    let (service, port) = service(&client, target.namespace.as_deref()).await?;
    let namespace = service.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let forward = ForwardedPod::find(pods, service.clone(), port.clone()).await?;
    let tls = match port.name.as_deref() == Some(PORTS[0]) {
        true => Some(tls(
            &format!("{}.{namespace}.svc", service.name_any()),
            authorities,
        )?),
        false => None,
    };
    let token = match &target.as_account {
        Some(account) if asks => {
            let audience = target.audience.as_deref().unwrap_or(AUDIENCE);
            Some(short_token(&client, account, &namespace, audience).await?)
        }
        _ if asks => own_token(&config).await?,
        _ => None,
    };
    let called = forward.to_string();
    let has_tls = tls.is_some();
    Ok(FoundService {
        connector: Connector {
            dial: DialTarget::Forward(Arc::new(forward)),
            tls,
        },
        called,
        cluster: config.cluster_url.host().unwrap_or_default().to_owned(),
        tls: has_tls,
        token,
    })
}

async fn config(target: &ClusterTarget) -> Result<Config, Failure> {
    let options = KubeConfigOptions {
        context: target.context.clone(),
        ..Default::default()
    };
    let found = match &target.kubeconfig {
        Some(path) => {
            let unusable = |why: &dyn std::fmt::Display| unreadable("--kubeconfig", path, why);
            std::fs::metadata(path).map_err(|why| unusable(&why))?;
            let file = Kubeconfig::read_from(path).map_err(|why| unusable(&why))?;
            Config::from_custom_kubeconfig(file, &options).await
        }
        None => {
            let found = Config::from_kubeconfig(&options).await;
            return found.map_err(|why| unusable_kubeconfig(target.context.as_deref(), why));
        }
    };
    found.map_err(|why| failed("the kubeconfig", why))
}

/// Failure of the kubeconfig that no flag names.
fn unusable_kubeconfig(context: Option<&str>, why: impl std::fmt::Display) -> Failure {
    let why = why.to_string();
    Failure::Usage(match context.filter(|_| !is_missing(&why)) {
        Some(context) => format!("--context {context}: {why}"),
        None => {
            let named = std::env::var("KUBECONFIG").ok();
            no_kubeconfig(&why, named.as_deref())
        }
    })
}

/// The only Service of dormer, and its port.
async fn service(client: &Client, namespace: Option<&str>) -> Result<(Svc, ServicePort), Failure> {
    let labelled = ListParams::default().labels(LABEL);
    let all: Api<Svc> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let listed = match all.list(&labelled).await {
        // The kubeconfig's own namespace is not tried: another user may have a Service with this label there, which
        // would get the caller's token.
        Err(kube::Error::Api(status)) if status.code == 403 && namespace.is_none() => {
            return Err(Failure::refused(
                "you may not list the cluster's Services, so dormer's namespace must be named",
                "give -n NAMESPACE, the namespace in which dormer is installed",
            ));
        }
        listed => listed,
    };
    let listed = listed.map_err(|why| failed("cannot list Services", why))?;
    let mut found: Vec<(Svc, ServicePort)> = listed
        .items
        .into_iter()
        .filter_map(|it| port(&it).map(|port| (it, port)))
        .collect();
    let target = namespace.map_or_else(String::new, |it| format!(" in the namespace {it}"));
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(failed(
            "dormer is not found",
            format!("no Service has the label {LABEL} and a port named https or http{target}"),
        )),
        _ => {
            let names: Vec<String> = found
                .iter()
                .map(|(it, _)| format!("{}/{}", it.namespace().unwrap_or_default(), it.name_any()))
                .collect();
            Err(Failure::Usage(format!(
                "there are several dormers ({}): choose one with -n NAMESPACE",
                names.join(", ")
            )))
        }
    }
}

fn port(service: &Svc) -> Option<ServicePort> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    let named = |name: &str| ports.iter().find(|port| port.name.as_deref() == Some(name));
    PORTS.iter().find_map(|name| named(name)).cloned()
}

/// Bearer token of the caller, from the kubeconfig, its token file, or its credential plugin. `None`: the kubeconfig
/// has a client certificate, or nothing.
async fn own_token(config: &Config) -> Result<Option<String>, Failure> {
    let layer = config
        .auth_layer()
        .map_err(|why| failed("the kubeconfig's user", why))?;
    let Some(layer) = layer else { return Ok(None) };
    // The auth layer adds the header to each request. The inner service returns the request unsent, with the header.
    let echo = service_fn(|request: Request<Full<Bytes>>| async move {
        let mut response = Response::new(());
        *response.headers_mut() = request.headers().clone();
        Ok::<_, BoxError>(response)
    });
    let request = Request::new(Full::new(Bytes::new()));
    let answer = layer.layer(echo).oneshot(request).await;
    let answer = answer.map_err(|why| failed("the kubeconfig's user", why))?;
    let shown = answer.headers().get(AUTHORIZATION);
    let shown = shown.and_then(|value| value.to_str().ok());
    Ok(shown
        .and_then(|text| text.strip_prefix("Bearer "))
        .map(str::to_owned))
}

/// Short-lived token of a service account, for dormer alone: if it is stolen from dormer, the API server refuses it.
/// The caller needs the right to create it.
async fn short_token(
    client: &Client,
    account: &str,
    home: &str,
    audience: &str,
) -> Result<String, Failure> {
    let (namespace, name) = account.split_once('/').unwrap_or((home, account));
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let spec = TokenRequestSpec {
        audiences: vec![audience.to_owned()],
        expiration_seconds: Some(TOKEN_SECONDS),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest {
        spec,
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await;
    let made = made.map_err(|why| {
        failed(
            &format!("cannot create a token for the account {account}"),
            why,
        )
    })?;
    Ok(made.status.map(|status| status.token).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::{
        sync::{Arc, Mutex},
        time::{Duration, Instant},
    };

    #[tokio::test]
    async fn an_alias_bomb_as_a_kubeconfig_is_refused_at_once() {
        let folder = dormer_testkit::test_dir("kubeconfig");
        let file = folder.path().join("config");
        let aliases = vec!["*a"; 170_000].join(",");
        let bomb = format!(
            "current-context: &a {}\npreferences: [{aliases}]",
            "x".repeat(12_000)
        );
        std::fs::write(&file, bomb).expect("written");
        let target = ClusterTarget {
            kubeconfig: Some(file),
            context: None,
            namespace: None,
            as_account: None,
            audience: None,
        };
        let started = Instant::now();
        let error = config(&target).await.expect_err("refused");
        let took = started.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        let Failure::Usage(error) = error else {
            panic!("{error:?}");
        };
        assert!(
            error.starts_with("--kubeconfig ")
                && error.contains(": failed to parse kubeconfig YAML"),
            "{error}"
        );
    }

    /// Services of a cluster whose caller may not list all of them. One in the caller's own namespace, `tenant`, has
    /// dormer's label. The answers count the requests.
    fn tenants(asked: Arc<Mutex<Vec<String>>>) -> Client {
        let server = service_fn(move |request: hyper::Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            asked.lock().expect("a lock").push(path.clone());
            let (status, body) = if path == "/api/v1/services" {
                let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403});
                (403, body)
            } else {
                let ports = json!([{"name": "http", "port": 80}]);
                let service = json!({"metadata": {"name": "dormer", "namespace": "tenant"},
                    "spec": {"selector": {"a": "b"}, "ports": ports}});
                let body = json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {},
                    "items": [service]});
                (200, body)
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let answer = hyper::Response::builder().status(status).body(body);
            std::future::ready(Ok::<_, BoxError>(answer.expect("an answer")))
        });
        Client::new(server, "tenant")
    }

    #[tokio::test]
    async fn the_kubeconfigs_own_namespace_is_not_searched_unasked() {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let client = tenants(Arc::clone(&asked));
        let error = service(&client, None).await.expect_err("refused");
        assert!(error.to_string().contains("-n NAMESPACE"), "{error}");
        let paths = std::mem::take(&mut *asked.lock().expect("a lock"));
        assert_eq!(paths, ["/api/v1/services"], "and nowhere else");
        let (found, _) = service(&client, Some("tenant")).await.expect("named");
        assert_eq!(found.namespace().as_deref(), Some("tenant"));
        let paths = std::mem::take(&mut *asked.lock().expect("a lock"));
        assert_eq!(paths, ["/api/v1/namespaces/tenant/services"]);
    }
}
