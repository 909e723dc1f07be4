//! Rollback in a pool's status: the payload that overrides the spec's at a person's request.

use super::{
    KubernetesExecutor,
    api::{MANAGER, call, call_if_there},
};
use crate::pool::v1beta1::{Override, WindowsPool};
use dormer_proto::{
    id::{Incarnation, Seq},
    machine::Outcome,
    message::Failure,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

impl KubernetesExecutor {
    /// Writes the override with the resourceVersion of a read, unless it is there. The status names the person; the
    /// spec belongs to people and is not written. A `payload` that the spec names itself takes an override of another
    /// spec's payload away, and with a person in `by` the one of this payload too. An order of an earlier record than the last one that wrote or ended an override comes late, or
    /// is a repeated message, and changes nothing.
    pub(super) async fn set_payload(
        &self,
        pool: &str,
        payload: &str,
        (back_from, instead): (&str, Option<&str>),
        by: &str,
        (incarnation, record): (Incarnation, Seq),
    ) -> Result<Outcome, Failure> {
        let namespace = &self.settings.namespace;
        let what = format!("WindowsPool {namespace}/{pool}");
        let api: Api<WindowsPool> = Api::namespaced(self.client.clone(), namespace);
        let found = call_if_there("get", &what, api.get(pool)).await?;
        let absent = || Failure::lasting("NoPool", format!("there is no {what}"));
        let found = found.ok_or_else(absent)?;
        let written = &found.spec.payload;
        if let Some(asked) = instead.filter(|asked| asked != written) {
            let why = format!("spec.payload of {what} is {written} now, and was {asked}");
            return Err(Failure::lasting("PoolChanged", why));
        }
        let status = found.status.as_ref();
        let present = status.and_then(|it| it.override_.as_ref());
        let holds = present.map_or(written, |it| &it.payload);
        // An earlier build writes the order beside the override alone.
        let beside = present.and_then(|it| it.order.as_ref());
        let mut orders = beside
            .into_iter()
            .chain(status.and_then(|it| it.override_order.as_ref()));
        if orders.any(|it| Override::is_later(it, incarnation, record)) {
            if holds == payload {
                return Ok(Outcome::PayloadSet);
            }
            let why = format!(
                "a later order than the one to {payload} wrote or ended a rollback in the status of {what}"
            );
            return Err(Failure::lasting("RollbackSuperseded", why));
        }
        let order = Override::order_of(incarnation, record);
        let wanted = (payload != written).then(|| Override {
            payload: payload.to_owned(),
            from: back_from.to_owned(),
            instead_of: written.clone(),
            by: by.to_owned(),
            order: Some(order.clone()),
        });
        let last = status.and_then(|it| it.override_order.as_ref());
        let kept = match &wanted {
            Some(wanted) => present == Some(wanted),
            // A person ends the rollback. Without the order in the status, an earlier one could bring it back.
            None if !by.is_empty() => present.is_none() && last == Some(&order),
            // An override that a person requested since stays.
            None => present.is_none_or(|it| it.instead_of == *written && it.payload != *written),
        };
        if !kept {
            let change = json!({
                "metadata": {"resourceVersion": found.metadata.resource_version},
                "status": {"override": wanted, "overrideOrder": order},
            });
            let params = PatchParams {
                field_manager: Some(MANAGER.into()),
                ..PatchParams::default()
            };
            let change = Patch::Merge(&change);
            let patched = api.patch_status(pool, &params, &change);
            call("patch the status of", &what, patched).await?;
        }
        Ok(Outcome::PayloadSet)
    }
}
