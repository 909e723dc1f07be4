//! The eviction of a pod, granted or refused by its budgets (docs/field-notes.md, Evictions).

use serde_json::{Value, json};

use super::{
    auth::User,
    kinds,
    object::{Key, Meta},
    selector::Labels,
    server::{ApiServer, DeleteOptions},
    status::{self, Refusal},
    store::{Scope, Tx},
};
use crate::world::Happened;

/// Limit of `status.disruptedPods` entries per budget.
pub const DISRUPTED_PODS_MAX: usize = 2_000;

impl ApiServer {
    /// Evicts a pod: 201 when its deletion started.
    ///
    /// # Errors
    /// 404, 409, 429 with a `DisruptionBudget` cause, 403 (also in a namespace that ends); 500 when two budgets match.
    pub fn evict(&self, user: &User, key: &Key, body: &Value) -> Result<Value, Refusal> {
        let options = DeleteOptions::of(&body["deleteOptions"]);
        self.store().transact(&user.name, |tx| {
            // An eviction is something that is made.
            self.check_namespace(tx, &kinds::POD, key)?;
            let pod = tx.get("pods", key).cloned();
            let pod = pod.ok_or_else(|| Refusal::not_found(&kinds::POD, &key.name))?;
            if !free(&pod.value) {
                ask_budgets(tx, self, key, &pod.value, options.dry_run)?;
            }
            self.delete_in(tx, &kinds::POD, key, &options)?;
            Ok(())
        })?;
        self.note(Happened::PodEvicted {
            pod: key.to_string(),
            by: user.name.clone(),
        });
        Ok(status::success(Value::Null))
    }
}

/// Pods that no budget protects: finished, not started, or going already.
fn free(pod: &Value) -> bool {
    pod.deleting()
        || matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        )
}

fn ask_budgets(
    tx: &mut Tx<'_>,
    server: &ApiServer,
    key: &Key,
    pod: &Value,
    dry_run: bool,
) -> Result<(), Refusal> {
    let scope = Scope {
        namespace: Some(&key.namespace),
        ..Scope::default()
    };
    let budgets = tx.list(kinds::PDB.store, &scope);
    let matching = |b: &Value| {
        let selector = &b["spec"]["selector"];
        !selector.is_null() && Labels::of(selector).matches(pod)
    };
    let mut matching = budgets.iter().filter(|b| matching(&b.value));
    let Some(budget) = matching.next() else {
        return Ok(());
    };
    if matching.next().is_some() {
        let message = "This pod has more than one PodDisruptionBudget, which the eviction \
                       subresource does not support.";
        // The real server gives no reason for it.
        return Err(Refusal::new(500, "", message));
    }
    let name = budget.value.name();
    let status = &budget.value["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let always = budget.value["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    let desired = number("desiredHealthy");
    if !pod.is("Ready") && (always || (desired > 0 && number("currentHealthy") >= desired)) {
        return Ok(());
    }
    if status["observedGeneration"].as_i64().unwrap_or(0)
        < budget.value["metadata"]["generation"].as_i64().unwrap_or(0)
    {
        let message =
            format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(message, 10));
    }
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        let message = "pdb disruptions allowed is negative";
        return Err(Refusal::forbidden(&kinds::PDB, name, message));
    }
    if status["disruptedPods"]
        .as_object()
        .is_some_and(|p| p.len() > DISRUPTED_PODS_MAX)
    {
        let message =
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Refusal::forbidden(&kinds::PDB, name, message));
    }
    if allowed == 0 {
        let message = format!(
            "The disruption budget {name} needs {desired} healthy pods and has {} currently",
            number("currentHealthy")
        );
        return Err(too_many(message, 0));
    }
    if !dry_run {
        let mut budget = budget.value.clone();
        budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
        budget["status"]["disruptedPods"][&key.name] = json!(server.clock().stamp());
        tx.put(kinds::PDB.store, budget);
    }
    Ok(())
}

fn too_many(cause: String, retry_after: u64) -> Refusal {
    let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    if retry_after > 0 {
        details["retryAfterSeconds"] = json!(retry_after);
    }
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Refusal::new(429, "TooManyRequests", message).with_details(details)
}
