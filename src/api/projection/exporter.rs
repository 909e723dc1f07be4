//! EndpointSlices of the nodes' windows_exporter, for a Service without a selector. They are maintained while that
//! Service exists (`deploy/monitoring/windows-exporter.yaml`).

use super::cluster::{ApiFailure, Cluster, Failed, MANAGER, api_failure, is, object, within};
use crate::SharedRun;
use dormer_proto::phase::MachineState;
use dormer_workers::kubernetes::EXPORTER as SERVICE;
use dormer_workers::kubernetes::keys::OURS;
use dormer_workflows::State;
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    },
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// TCP port of the exporter.
const PORT: u16 = 9182;
/// Most endpoints in one slice, as in Kubernetes' own controller.
const SLICE_MAX: usize = 100;

/// Endpoints of each slice, by the slice's name. There is always at least one slice.
pub(super) fn slices(runs: &[SharedRun]) -> BTreeMap<String, Value> {
    let serving = runs
        .iter()
        .filter(|run| run.closed.is_none())
        .filter_map(|run| {
            let State::Machine(state) = &run.state else {
                return None;
            };
            let view = state.view();
            let node = view
                .node
                .filter(|_| view.phase.state() == MachineState::Joined)?;
            let address = view.address?;
            let ipv4 = address.parse::<std::net::Ipv4Addr>().is_ok();
            ipv4.then(
                || json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true}}),
            )
        });
    let mut all: Vec<Value> = serving.collect();
    all.sort_by(|a, b| a["nodeName"].as_str().cmp(&b["nodeName"].as_str()));
    let mut slices: BTreeMap<String, Value> = BTreeMap::new();
    for (number, some) in all.chunks(SLICE_MAX).enumerate() {
        slices.insert(format!("{SERVICE}-{number}"), json!(some));
    }
    slices.entry(format!("{SERVICE}-0")).or_insert(json!([]));
    slices
}

impl Cluster {
    fn slice_api(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("discovery.k8s.io", "v1", "EndpointSlice");
        Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &ApiResource::from_gvk(&gvk),
        )
    }

    /// Endpoints of dormer's slices in the cluster, by name. `None`: the Service does not exist, so nothing scrapes
    /// the nodes.
    pub(super) async fn slices(&self) -> Result<Option<BTreeMap<String, Value>>, ApiFailure> {
        let services: Api<k8s_openapi::api::core::v1::Service> =
            Api::namespaced(self.client.clone(), &self.namespace);
        match within(services.get_opt(SERVICE)).await {
            Ok(None) => return Ok(None),
            Ok(Some(_)) => {}
            Err(error) => {
                return Err(api_failure(
                    "get",
                    "the Service of the nodes' metrics",
                    &error,
                ));
            }
        }
        let label = format!("kubernetes.io/service-name={SERVICE},{}={}", OURS.0, OURS.1);
        let found = within(self.slice_api().list(&ListParams::default().labels(&label))).await;
        let found = found.map_err(|error| api_failure("list", "EndpointSlices", &error))?;
        let slices = found.items.into_iter().map(|slice| {
            let endpoints = slice.data["endpoints"].clone();
            let endpoints = if endpoints.is_null() {
                json!([])
            } else {
                endpoints
            };
            (slice.metadata.name.unwrap_or_default(), endpoints)
        });
        Ok(Some(slices.collect()))
    }

    /// Writes a slice.
    pub(super) async fn put_slice(&self, name: &str, endpoints: &Value) -> Result<(), ApiFailure> {
        let slice = object(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {
                "kubernetes.io/service-name": SERVICE,
                "endpointslice.kubernetes.io/managed-by": "dormer.io",
                OURS.0: OURS.1,
            }},
            "addressType": "IPv4",
            "ports": [{"name": "metrics", "port": PORT, "protocol": "TCP"}],
            "endpoints": endpoints,
        }));
        let params = PatchParams::apply(MANAGER).force();
        let put = within(self.slice_api().patch(name, &params, &Patch::Apply(&slice))).await;
        put.map(drop)
            .map_err(|error| api_failure("patch", "EndpointSlices", &error))
    }

    /// Deletes a slice without nodes.
    pub(super) async fn remove_slice(&self, name: &str) -> Result<(), ApiFailure> {
        match within(self.slice_api().delete(name, &DeleteParams::default())).await {
            Ok(_) => Ok(()),
            Err(Failed::Kube(error)) if is(&error, 404) => Ok(()),
            Err(error) => Err(api_failure("delete", "EndpointSlices", &error)),
        }
    }
}
