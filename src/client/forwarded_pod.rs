//! Pod that a port is forwarded to: one of a Service's, and another one when it is gone.

use super::Failure;
use k8s_openapi::{
    api::core::v1::{Pod, Service as Svc, ServicePort},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Portforwarder},
};
use std::{fmt, io};
use tokio::sync::Mutex;

/// Ready pod behind a Service. A command that keeps asking outlives it: a Deployment's new pod has another name.
pub(super) struct ForwardedPod {
    pods: Api<Pod>,
    service: Svc,
    port: ServicePort,
    /// Name and port of the one that was found last.
    found: Mutex<(String, u16)>,
    /// Text in error messages.
    called: String,
}

impl ForwardedPod {
    /// # Errors
    ///
    /// No pod behind the Service is ready, or it lacks the port.
    pub(super) async fn find(
        pods: Api<Pod>,
        service: Svc,
        port: ServicePort,
    ) -> Result<Self, Failure> {
        let (name, number) = named(&pods, &service, &port).await?;
        let namespace = service.namespace().unwrap_or_default();
        Ok(Self {
            called: format!("pod {namespace}/{name}, port {number}"),
            found: Mutex::new((name, number)),
            pods,
            service,
            port,
        })
    }

    /// Forwards the port once, and its number.
    ///
    /// # Errors
    ///
    /// The API server forwards to none of the Service's pods.
    pub(super) async fn forward(&self) -> io::Result<(Portforwarder, u16)> {
        let (name, number) = self.found.lock().await.clone();
        let failure = match self.pods.portforward(&name, &[number]).await {
            Ok(forwarded) => return Ok((forwarded, number)),
            Err(failure) => failure,
        };
        let found = named(&self.pods, &self.service, &self.port).await;
        let (next, number) = found.map_err(|why| io::Error::other(why.to_string()))?;
        if next == name {
            return Err(io::Error::other(failure));
        }
        *self.found.lock().await = (next.clone(), number);
        let forwarded = self.pods.portforward(&next, &[number]).await;
        Ok((forwarded.map_err(io::Error::other)?, number))
    }
}

impl fmt::Display for ForwardedPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.called)
    }
}

pub(super) fn failed(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::refused(
        format!("{what}: {why}"),
        "check that kubectl reaches the cluster; --server URL uses a dormer elsewhere",
    )
}

/// Name of a ready pod behind the Service, and its port behind the Service's port.
async fn named(
    pods: &Api<Pod>,
    service: &Svc,
    port: &ServicePort,
) -> Result<(String, u16), Failure> {
    let pod = ready_pod(pods, service).await?;
    Ok((pod.name_any(), number(&pod, port)?))
}

/// Ready pod behind the Service.
async fn ready_pod(pods: &Api<Pod>, service: &Svc) -> Result<Pod, Failure> {
    let selector = service
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.clone())
        .unwrap_or_default();
    let labels: Vec<String> = selector
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let listed = pods
        .list(&ListParams::default().labels(&labels.join(",")))
        .await;
    let listed = listed.map_err(|why| failed("cannot list dormer's pods", why))?;
    let ready = |pod: &Pod| {
        let conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        pod.metadata.deletion_timestamp.is_none()
            && conditions
                .into_iter()
                .flatten()
                .any(|it| it.type_ == "Ready" && it.status == "True")
    };
    let found = listed
        .items
        .into_iter()
        .find(|pod| ready(pod) && !selector.is_empty());
    found.ok_or_else(|| {
        let name = service.name_any();
        failed(
            "dormer does not run",
            format!("no pod behind the Service {name} is ready"),
        )
    })
}

/// Pod port behind the Service's port.
fn number(pod: &Pod, port: &ServicePort) -> Result<u16, Failure> {
    let name = match &port.target_port {
        None => return fits(port.port),
        Some(IntOrString::Int(number)) => return fits(*number),
        Some(IntOrString::String(name)) => name,
    };
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let ports = containers.iter().flat_map(|it| it.ports.iter().flatten());
    let mut named = ports
        .filter(|it| it.name.as_ref() == Some(name))
        .map(|it| it.container_port);
    fits(named.next().ok_or_else(|| {
        failed(
            "dormer's port is not found",
            format!("the pod has no port {name}"),
        )
    })?)
}

fn fits(port: i32) -> Result<u16, Failure> {
    u16::try_from(port).map_err(|_| failed("dormer's Service has an invalid port", port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use hyper::{Request, Response, body::Bytes};
    use kube::client::Body;
    use serde_json::json;
    use std::sync::{Arc, Mutex as Shared};

    /// API server with one ready pod at a time, which forwards no port.
    fn pods(ready: &Arc<Shared<&'static str>>, asked: &Arc<Shared<Vec<String>>>) -> Api<Pod> {
        let ready = Arc::clone(ready);
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let listed = path.ends_with("/pods");
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": *ready.lock().unwrap()},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            let body = match listed {
                true => {
                    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod]})
                }
                false => {
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                    "reason": "NotFound", "message": "pods not found"})
                }
            };
            asked.lock().unwrap().push(path);
            let answer = Response::builder().status(if listed { 200 } else { 404 });
            let answer = answer
                .body(Full::new(Bytes::from(body.to_string())))
                .unwrap();
            std::future::ready(Ok::<_, tower::BoxError>(answer))
        });
        Api::namespaced(kube::Client::new(service, "dormer"), "dormer")
    }

    #[tokio::test]
    async fn another_pod_is_found_when_the_first_one_is_gone() {
        let ready = Arc::new(Shared::new("dormer-a"));
        let asked = Arc::new(Shared::new(Vec::new()));
        let service: Svc = serde_json::from_value(json!({
            "metadata": {"name": "dormer", "namespace": "dormer"},
            "spec": {"selector": {"app": "dormer"}, "ports": [{"name": "http", "port": 7080}]},
        }))
        .unwrap();
        let port = service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].clone();
        let forwarded = ForwardedPod::find(pods(&ready, &asked), service, port)
            .await
            .unwrap();
        assert_eq!(forwarded.to_string(), "pod dormer/dormer-a, port 7080");
        *ready.lock().unwrap() = "dormer-b";
        for _ in 0..2 {
            assert!(forwarded.forward().await.is_err(), "it forwards no port");
        }
        let asked = asked.lock().unwrap();
        let tried: Vec<&str> = asked
            .iter()
            .filter_map(|path| path.strip_suffix("/portforward"))
            .filter_map(|path| path.rsplit('/').next())
            .collect();
        assert_eq!(tried, ["dormer-a", "dormer-b", "dormer-b"]);
    }
}
