//! Writing on a pool's settings which payload is wanted: a step back that a person asked for.

use super::{
    KubernetesExecutor,
    api::{call, call_if_there, patch},
    keys,
};
use crate::pool::{BACK_FROM, config_map};
use dormer_proto::{machine::Outcome, message::Failure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use serde_json::json;

impl KubernetesExecutor {
    /// Writes the payload, and from which one a person goes back; nothing if they stand there. Whoever reads the
    /// settings finds who asked.
    pub(super) async fn set_payload(
        &self,
        pool: &str,
        payload: &str,
        back_from: &str,
        by: &str,
    ) -> Result<Outcome, Failure> {
        let namespace = &self.settings.namespace;
        let name = config_map(pool);
        let what = format!("ConfigMap {namespace}/{name}");
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let data = [("payload", payload), (BACK_FROM, back_from)];
        let Some(found) = call_if_there("get", &what, api.get(&name)).await? else {
            let data = data
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
            let marks = [(keys::ROLLBACK_BY.to_owned(), by.to_owned())].into();
            let name = Some(name);
            let annotations = Some(marks);
            let metadata = ObjectMeta {
                name,
                annotations,
                ..ObjectMeta::default()
            };
            let map = ConfigMap {
                metadata,
                data: Some(data),
                ..ConfigMap::default()
            };
            call("create", &what, api.create(&PostParams::default(), &map)).await?;
            return Ok(Outcome::PayloadSet);
        };
        let stands = |(key, value): &(&str, &str)| {
            found
                .data
                .as_ref()
                .and_then(|data| data.get(*key))
                .is_some_and(|it| it == value)
        };
        if !data.iter().all(stands) {
            let change = json!({
                "metadata": {"annotations": {keys::ROLLBACK_BY: by}},
                "data": {"payload": payload, BACK_FROM: back_from},
            });
            patch(&api, &found, &what, change).await?;
        }
        Ok(Outcome::PayloadSet)
    }
}
