//! The watcher's lists and watches at the Kubernetes API, with errors as sentences.

use super::{Options, view::Kind};
use crate::{pool::host::INSTANCES, source};
use dormer_proto::{machine::MachineApi, message::cut};
use futures::TryStreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams},
};
use std::{pin::pin, time::Duration};
use tokio::sync::mpsc::Sender;

/// Objects of one page of a list.
const PAGE: u32 = 500;
/// How long a watch lasts before the server ends it and it is renewed, in seconds; Kubernetes wants less than 295.
pub(super) const WATCH_SECONDS: u32 = 240;
/// How much longer than that a watch may be silent before it counts as dead.
pub(super) const SILENCE_GRACE: Duration = Duration::from_secs(30);
/// How often a watch that ends is begun at most.
pub(super) const WATCH_AGAIN: Duration = Duration::from_millis(500);
/// Interval at which a kind that the cluster does not know is requested again.
const KIND_AGAIN: Duration = Duration::from_secs(30);
/// How long one page of a list may take.
const PAGE_LIMIT: Duration = Duration::from_secs(60);

/// Failed request to the API server, as one sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ApiFailure(pub(super) String);

/// Describes an API error in a sentence: the verb, the object, and the error.
pub(super) fn sentence(verb: &str, what: &str, error: &kube::Error) -> ApiFailure {
    ApiFailure(cut(match error {
        kube::Error::Api(status) => match status.code {
            403 => format!("dormer may not {verb} {what}: {}", status.message),
            401 => format!("the API server does not know dormer's credentials ({verb} {what})"),
            404 => format!(
                "cannot {verb} {what}: the cluster has none such ({})",
                status.message
            ),
            410 => format!("the watch of {what} fell behind what the API server keeps"),
            code => format!("cannot {verb} {what}: {} ({code})", status.message),
        },
        other => format!("cannot {verb} {what}: {}", chain(other)),
    }))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// Event of a watch.
#[derive(Debug)]
pub(super) enum ObjectChange {
    Updated(Kind, Box<DynamicObject>),
    Lost(Kind, Box<DynamicObject>),
    /// A source of machines may be listed, and not watched: the next lists show what changes.
    Denied(Kind, String, ApiFailure),
    /// The watch cannot continue: what happened meanwhile is found by a full list.
    Gap(ApiFailure),
}

/// Result of a list.
#[derive(Debug)]
pub(super) enum Listing {
    /// It was read, at this resourceVersion.
    From(String),
    /// The cluster does not know the kind.
    Absent,
    /// dormer may not list it.
    Forbidden(ApiFailure),
}

/// One kind of object, with what selects ours.
#[derive(Clone)]
pub(super) struct Resource {
    pub(super) kind: Kind,
    api: Api<DynamicObject>,
    pub(super) what: String,
    fields: Option<String>,
}

impl Kind {
    /// Whether the watcher works without it: machines of one API, their sets, or entries for BYOH hosts.
    pub(super) fn is_source(self) -> bool {
        matches!(self, Self::Machine(_) | Self::Set(_) | Self::Instances)
    }
}

impl Resource {
    /// All that is watched, with the machines of these APIs. Machines are not selected by their label: one that loses
    /// it was not deleted. They come first, so that the later lists show at least what theirs refers to.
    pub(super) fn all(client: &Client, options: &Options, served: &[MachineApi]) -> Vec<Self> {
        let of =
            |kind, resource: &ApiResource, namespace| Self::of(client, kind, resource, namespace);
        let gvk = |group, version, kind| {
            ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
        };
        let mut all = Vec::new();
        for api in served {
            let namespace = match api {
                MachineApi::OpenShift => options.machines.as_deref(),
                MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => {
                    options.cluster_machines.as_deref()
                }
                MachineApi::Host => Some(options.namespace.as_str()),
            };
            let machines = source::machines(*api);
            all.push(of(Kind::Machine(*api), &machines, namespace));
            if let Some(sets) = source::machine_sets(*api) {
                all.push(of(Kind::Set(*api), &sets, namespace));
            }
        }
        let home = Some(options.namespace.as_str());
        let csr = gvk("certificates.k8s.io", "v1", "CertificateSigningRequest");
        let pool = of(
            Kind::Pool,
            &gvk("dormer.io", "v1beta1", "WindowsPool"),
            home,
        );
        let map = of(Kind::PoolMap, &gvk("", "v1", "ConfigMap"), home);
        all.extend([
            of(Kind::Node, &gvk("", "v1", "Node"), None),
            of(Kind::Csr, &csr, None),
            of(Kind::Instances, &gvk("", "v1", "ConfigMap"), home).named(INSTANCES),
            pool.named(&options.pool),
            map.named(&crate::pool::config_map(&options.pool)),
        ]);
        all
    }

    /// Only the object of this name.
    fn named(mut self, name: &str) -> Self {
        self.fields = Some(format!("metadata.name={name}"));
        self
    }

    fn of(client: &Client, kind: Kind, resource: &ApiResource, namespace: Option<&str>) -> Self {
        let group = if resource.group.is_empty() {
            String::new()
        } else {
            format!(".{}", resource.group)
        };
        let mut what = format!("{}{group}", resource.plural);
        let api = match namespace {
            Some(namespace) => {
                what = format!("{what} in namespace {namespace}");
                Api::namespaced_with(client.clone(), namespace, resource)
            }
            None => Api::all_with(client.clone(), resource),
        };
        Self {
            kind,
            api,
            what,
            fields: None,
        }
    }

    /// Lists everything by a consistent read, and passes each object to `each`. Machines of one API may be absent or
    /// forbidden, and the kind of the pool may be absent: dormer brings machines up in these cases as well.
    pub(super) async fn list(
        &self,
        mut each: impl FnMut(Kind, DynamicObject),
    ) -> Result<Listing, ApiFailure> {
        let mut params = ListParams {
            limit: Some(PAGE),
            ..ListParams::default()
        };
        params.field_selector.clone_from(&self.fields);
        loop {
            let page = tokio::time::timeout(PAGE_LIMIT, self.api.list(&params)).await;
            let slow = |_| ApiFailure(format!("a list of {} takes over a minute", self.what));
            let page = match page.map_err(slow)? {
                Err(kube::Error::Api(status)) if self.may_lack() && status.code == 404 => {
                    return Ok(Listing::Absent);
                }
                Err(error) if self.kind.is_source() && is_forbidden(&error) => {
                    return Ok(Listing::Forbidden(sentence("list", &self.what, &error)));
                }
                page => page.map_err(|error| sentence("list", &self.what, &error))?,
            };
            for object in page.items {
                each(self.kind, object);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => {
                    let from = page.metadata.resource_version.unwrap_or_default();
                    return Ok(Listing::From(from));
                }
            }
        }
    }

    fn may_lack(&self) -> bool {
        self.kind == Kind::Pool || self.kind.is_source()
    }

    /// Watches from a list's resourceVersion until there is a gap, or the receiver is gone. `None`: waits until the
    /// kind can be listed, or its list fails otherwise, and reports a gap.
    pub(super) async fn follow(self, from: Option<String>, to: Sender<ObjectChange>) {
        let Some(mut from) = from else {
            let gap = loop {
                match self.list(|_, _| {}).await {
                    Ok(Listing::Absent | Listing::Forbidden(_)) => {
                        tokio::time::sleep(KIND_AGAIN).await;
                    }
                    Ok(Listing::From(_)) => {
                        break ApiFailure(format!("{} can be listed now", self.what));
                    }
                    Err(failed) => break failed,
                }
            };
            return drop(to.send(ObjectChange::Gap(gap)).await);
        };
        let gap = loop {
            let began = tokio::time::Instant::now();
            match self.watch(&mut from, &to).await {
                Ok(true) => tokio::time::sleep_until(began + WATCH_AGAIN).await,
                Ok(false) => return,
                Err(gap) => break gap,
            }
        };
        // Without a listener, the gap needs no report.
        drop(to.send(ObjectChange::Gap(gap)).await);
    }

    /// One watch until the server ends it. `false`: there is no listener.
    async fn watch(
        &self,
        from: &mut String,
        to: &Sender<ObjectChange>,
    ) -> Result<bool, ApiFailure> {
        let mut params = WatchParams::default().timeout(WATCH_SECONDS);
        params.field_selector.clone_from(&self.fields);
        let failed = |error: kube::Error| sentence("watch", &self.what, &error);
        let silence = Duration::from_secs(WATCH_SECONDS.into()) + SILENCE_GRACE;
        let silent = |_| ApiFailure(format!("the watch of {} has gone silent", self.what));
        let started = tokio::time::timeout(silence, self.api.watch(&params, from)).await;
        let started = match started.map_err(silent)? {
            Err(error) if self.kind.is_source() && is_forbidden(&error) => {
                let denied = ObjectChange::Denied(self.kind, self.what.clone(), failed(error));
                drop(to.send(denied).await);
                to.closed().await;
                return Ok(false);
            }
            started => started.map_err(failed)?,
        };
        let mut stream = pin!(started);
        loop {
            let next = tokio::time::timeout(silence, stream.try_next()).await;
            let change = match next.map_err(silent)?.map_err(failed)? {
                None => return Ok(true),
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    advance(from, object.metadata.resource_version.as_deref());
                    ObjectChange::Updated(self.kind, Box::new(object))
                }
                Some(WatchEvent::Deleted(object)) => {
                    advance(from, object.metadata.resource_version.as_deref());
                    ObjectChange::Lost(self.kind, Box::new(object))
                }
                Some(WatchEvent::Bookmark(mark)) => {
                    advance(from, Some(&mark.metadata.resource_version));
                    continue;
                }
                Some(WatchEvent::Error(status)) => return Err(failed(kube::Error::Api(status))),
            };
            if to.send(change).await.is_err() {
                return Ok(false);
            }
        }
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Advances the resourceVersion to continue from; a late event does not move it back.
pub(super) fn advance(from: &mut String, to: Option<&str>) {
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    if let Some(to) = to.filter(|to| number(to) > number(from)) {
        to.clone_into(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, message: &str) -> String {
        let status = kube::core::Status::failure(message, "Reason").with_code(code);
        sentence("list", "nodes", &kube::Error::Api(Box::new(status))).0
    }

    #[test]
    fn errors_name_what_was_tried() {
        assert_eq!(of(403, "no RBAC"), "dormer may not list nodes: no RBAC");
        assert!(of(404, "x").starts_with("cannot list nodes: the cluster has none such"));
        assert_eq!(of(500, "boom"), "cannot list nodes: boom (500)");
        assert!(of(500, &"x".repeat(9_000)).len() < 3_000);
    }

    /// What is reported when a kind that was absent is listed again, by an API server that answers with this status.
    async fn after_absence(status: u16, body: &'static str) -> String {
        let answer = move |_: http::Request<kube::client::Body>| async move {
            let answer = http::Response::builder().status(status);
            Ok::<_, std::io::Error>(
                answer
                    .body(kube::client::Body::from(body.as_bytes().to_vec()))
                    .expect("an answer"),
            )
        };
        let client = Client::new(tower::service_fn(answer), "dormer");
        let nodes = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
        let (to, mut from) = tokio::sync::mpsc::channel(1);
        Resource::of(&client, Kind::Node, &nodes, None)
            .follow(None, to)
            .await;
        match from.recv().await {
            Some(ObjectChange::Gap(why)) => why.0,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_list_that_fails_is_not_reported_as_allowed() {
        let empty = r#"{"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": []}"#;
        assert_eq!(after_absence(200, empty).await, "nodes can be listed now");
        let broken = r#"{"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": "no etcd", "code": 500}"#;
        let why = after_absence(500, broken).await;
        assert_eq!(why, "cannot list nodes: no etcd (500)");
    }

    #[test]
    fn a_late_event_does_not_take_the_watch_back() {
        let mut from = "41".to_owned();
        for (to, then) in [
            (Some("40"), "41"),
            (None, "41"),
            (Some("x"), "41"),
            (Some("100"), "100"),
        ] {
            advance(&mut from, to);
            assert_eq!(from, then);
        }
    }
}
