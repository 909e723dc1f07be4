//! Deletion of a Machine under an open token.

use super::{
    ANSWER_MAX, KubernetesExecutor,
    api::{mark_of, what},
    error::{failure, is_gone, silent},
    guard::pods_may_have_come,
};
use dormer_proto::{
    id::LeaseToken,
    machine::{Guard, MachineRef, Outcome, TokenMark},
    message::Failure,
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Preconditions},
};
use tokio::time::timeout;

impl KubernetesExecutor {
    /// DELETE with the UID and resourceVersion of a read that showed this token open: closing it in between changes
    /// that version.
    pub(super) async fn delete(
        &self,
        machine: &MachineRef,
        token: LeaseToken,
        guard: &Guard,
    ) -> Result<Outcome, Failure> {
        let Some(object) = self.machine(machine).await? else {
            return Ok(Outcome::MachineDeleted);
        };
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::MachineDeleted);
        }
        let open = TokenMark { token, open: true };
        if mark_of(&object) != Some(open) {
            return Ok(Outcome::FenceClosedMeanwhile);
        }
        let live = self.node_of(&object).await?;
        if let Some(refused) = self.refusal(machine, &object, live.as_ref(), guard).await? {
            return Ok(refused.outcome());
        }
        if let Some(refused) = self.nobody_replaces(machine, &object).await? {
            return Ok(refused.outcome());
        }
        // A Node that dormer did not mark is drained by the Machine's controller.
        let drained = live.filter(|live| mark_of(&live.node) == Some(open));
        if let Some(refused) = drained.and_then(|live| pods_may_have_come(&live, guard)) {
            return Ok(refused.outcome());
        }
        let preconditions = Preconditions {
            uid: object.uid(),
            resource_version: object.resource_version(),
        };
        let params = DeleteParams::background().preconditions(preconditions);
        let what = what(machine);
        let api = self.machine_api(machine);
        match timeout(ANSWER_MAX, api.delete(&machine.name, &params)).await {
            Err(_) => Err(silent("delete", &what)),
            Ok(Ok(_)) => Ok(Outcome::MachineDeleted),
            Ok(Err(error)) if is_gone(&error) => Ok(Outcome::MachineDeleted),
            // A conflict: another client wrote it after the read, perhaps the token. The task reads again.
            Ok(Err(error)) => Err(failure("delete", &what, &error)),
        }
    }
}
