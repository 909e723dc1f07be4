//! Live checks before dormer writes on a Node or disturbs it. The Node must be this Machine's own Windows node. It must
//! not be Ready if the lease is over the limit. The pool must not be stopped. Each worker reads the objects again just
//! before it writes, since the facts of a run may be minutes old.

use super::{
    ANSWER_MAX, KubernetesExecutor,
    api::{call_if_there, mark_of, patch, what},
    cordon::{cordoned, cordoned_by},
    error::NOT_FOUND,
    keys,
};
use crate::pool::v1beta1::WindowsPool;
pub(crate) use crate::source::OS;
use crate::source::{is_windows, windows_label};
use dormer_proto::{
    id::LeaseToken,
    machine::{FenceRefusal, Guard, MachineApi, MachineRef, Outcome, TokenMark, same_provider_id},
    message::Failure,
    pool::DEFAULT_POOL,
};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::{
    Api, Client, Error, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GetParams},
    client::Body,
    core::{Request, Status},
};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Labels of control-plane nodes: the present one, and the one that OpenShift keeps beside it.
pub(crate) const CONTROL_PLANE: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
/// Reason for which the live cluster forbids a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    why: FenceRefusal,
    said: String,
}

impl Refused {
    pub(super) fn new(why: FenceRefusal, said: impl Into<String>) -> Self {
        let said = said.into();
        Self { why, said }
    }

    /// Whether a stop or a pause is the reason, which a person ends, and not a property of the machine.
    pub(super) fn stops(&self) -> bool {
        matches!(self.why, FenceRefusal::Stopped | FenceRefusal::Paused)
    }

    /// Whether another client uncordoned the Node.
    pub(super) fn is_uncordoned(&self) -> bool {
        self.why == FenceRefusal::Uncordoned
    }

    /// Whether a person labelled the Machine to be ignored.
    pub(super) fn is_ignored(&self) -> bool {
        self.why == FenceRefusal::Ignored
    }

    /// The answer to a task under the lease.
    pub(super) fn outcome(self) -> Outcome {
        let Self { why, said } = self;
        Outcome::FenceRefused { why, said }
    }

    /// Failure of a task without such an answer. A missing `nodeRef` may still appear; the identity of a node does not
    /// change.
    pub(super) fn failure(self) -> Failure {
        let Self { why, said } = self;
        let code = why.code();
        match why {
            FenceRefusal::NotWindows | FenceRefusal::ControlPlane | FenceRefusal::OtherDormer => {
                Failure::lasting(code, said)
            }
            FenceRefusal::Stopped
            | FenceRefusal::Paused
            | FenceRefusal::Superseded
            | FenceRefusal::Ignored
            | FenceRefusal::NoOwner
            | FenceRefusal::Cordoned
            | FenceRefusal::Uncordoned
            | FenceRefusal::NodeServes
            | FenceRefusal::Gone
            | FenceRefusal::NotItsNode => Failure::transient(code, said),
        }
    }
}

/// A Node as read, and the API server's time of that read.
#[derive(Debug, Clone)]
pub(super) struct LiveNode {
    pub(super) node: Node,
    /// `Date` of the answer, in milliseconds since 1970: the clock that stamps the Node's conditions.
    pub(super) at_ms: Option<i64>,
}

impl LiveNode {
    pub(super) fn ready(&self) -> bool {
        self.condition().is_some_and(|ready| ready.status == "True")
    }

    /// Whether it is Ready and schedulable.
    fn serves(&self) -> bool {
        self.ready() && !cordoned(&self.node)
    }

    /// Whether its kubelet is silent, by the same condition as the Machine API (machine-api-operator 951196122,
    /// `pkg/controller/machine/drain_controller.go`, `nodeIsUnreachable`).
    pub(super) fn unreachable(&self) -> bool {
        self.condition()
            .is_some_and(|ready| ready.status == "Unknown")
    }

    fn condition(&self) -> Option<&NodeCondition> {
        let conditions = self.node.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|one| one.type_ == "Ready")
    }

    /// The API server's time of the read, for an annotation.
    pub(super) fn read_at(&self) -> Option<String> {
        let at = jiff::Timestamp::from_millisecond(self.at_ms?).ok()?;
        Some(at.to_string())
    }

    /// Age of the present value of the condition Ready, in milliseconds; both times are the API server's.
    pub(super) fn unchanged_ms(&self) -> Option<u64> {
        let since = self.condition()?.last_transition_time.as_ref()?;
        let lasted = self.at_ms?.saturating_sub(since.0.as_millisecond());
        Some(u64::try_from(lasted).unwrap_or_default())
    }
}

impl KubernetesExecutor {
    /// A Node by its name, with the time of the answer.
    pub(super) async fn live_node(&self, name: &str) -> Result<Option<LiveNode>, Failure> {
        call_if_there("get", &format!("Node {name}"), self.ask_node(name)).await
    }

    /// Reads a Node with the answer's `Date` header, which kube's own `get` does not return.
    async fn ask_node(&self, name: &str) -> Result<LiveNode, Error> {
        let request = Request::new(Node::url_path(&(), None));
        let request = request
            .get(name, &GetParams::default())
            .map_err(Error::BuildRequest)?;
        let answer = self.client.send(request.map(Body::from)).await?;
        let date = answer.headers().get("date").and_then(|it| it.to_str().ok());
        let at_ms = date.and_then(http_date);
        let code = answer.status();
        let body = answer.into_body().collect_bytes().await?;
        if code.is_success() {
            let node = serde_json::from_slice(&body).map_err(Error::SerdeError)?;
            return Ok(LiveNode { node, at_ms });
        }
        let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| {
            let said = String::from_utf8_lossy(&body);
            Status::failure(said.trim(), "NoStatus").with_code(code.as_u16())
        });
        Err(Error::Api(Box::new(status)))
    }

    /// The Node of a Machine: the one that its `nodeRef` names; before there is one, the noted one, if it is this
    /// Machine's.
    pub(super) async fn node_of(
        &self,
        machine: &DynamicObject,
    ) -> Result<Option<LiveNode>, Failure> {
        if let Some(name) = node_ref(machine, "name") {
            return self.live_node(name).await;
        }
        let Some(name) = machine.annotations().get(keys::NODE_NAME) else {
            return Ok(None);
        };
        let noted = self.live_node(name).await?;
        Ok(noted.filter(|it| is_of(machine, &it.node).is_ok()))
    }

    /// Reason for which this Machine's node must not be disturbed now; `None`: it may be. Call it just before each
    /// write.
    pub(super) async fn refusal(
        &self,
        machine: &MachineRef,
        object: &DynamicObject,
        live: Option<&LiveNode>,
        guard: &Guard,
    ) -> Result<Option<Refused>, Failure> {
        if let Some(live) = live {
            if let Err(refused) = is_of(object, &live.node) {
                return Ok(Some(refused));
            }
            if let Some(refused) = is_to_stay(live, guard) {
                return Ok(Some(refused));
            }
        }
        self.disruption_refused(machine, object, guard).await
    }

    /// Why a fence may not be opened for a lease over the limit: the Node is Ready, or has not been down for long
    /// enough, which is waited for.
    pub(super) fn not_down(
        &self,
        live: &LiveNode,
        guard: &Guard,
        begun: bool,
    ) -> Result<Option<Refused>, Failure> {
        if live.ready() {
            return Ok(Some(came_back(&live.node)));
        }
        let Some(down_ms) = guard.down_ms.filter(|_| !begun) else {
            return Ok(None);
        };
        let name = live.node.name_any();
        let Some(lasted) = live.unchanged_ms() else {
            let said =
                format!("the API server does not say since when the Node {name} is not Ready");
            return Err(Failure::transient("NodeDownTooShort", said));
        };
        if lasted >= down_ms {
            return Ok(None);
        }
        let said = format!(
            "the Node {name} has been as it is, not Ready, for {} s; its machine is repaired over the limit after {} s",
            lasted / 1_000,
            down_ms / 1_000
        );
        Err(Failure {
            after_ms: Some(down_ms - lasted),
            ..Failure::transient("NodeDownTooShort", said)
        })
    }

    /// Why the pool forbids all disruption: a person stopped it, or there is no pool. If it cannot be read, nothing
    /// is disturbed either: the task fails, and the engine retries it.
    pub(super) async fn stopped(&self, guard: &Guard) -> Result<Option<Refused>, Failure> {
        let pool = guard.pool.as_deref().unwrap_or(DEFAULT_POOL);
        let namespace = &self.settings.namespace;
        let what = format!("WindowsPool {namespace}/{pool}");
        let kind = ApiResource::erase::<WindowsPool>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let found = match call_if_there("get", &what, api.get(pool)).await {
            Ok(found) => found,
            // The cluster does not know the kind, so there is no pool.
            Err(failure) if failure.code == NOT_FOUND => None,
            Err(failure) => return Err(failure),
        };
        let spec = found.as_ref().map(|pool| &pool.data["spec"]);
        let said = match spec {
            None => format!("there is no {what}"),
            Some(Value::Object(spec)) => match spec.get("stop") {
                None | Some(Value::Bool(false)) => return Ok(None),
                Some(Value::Bool(true)) => format!("a person stopped it: {what} has spec.stop"),
                Some(odd) => format!("spec.stop of {what} is {odd}, and not true or false"),
            },
            Some(_) => format!("the {what} is an earlier build's and has no spec"),
        };
        Ok(Some(Refused::new(FenceRefusal::Stopped, said)))
    }

    /// Reason for which a host must not be rebooted now: the lease of the order has ended. A worker that was suspended
    /// could otherwise reboot a node that serves again.
    pub(super) async fn reboot_refused(
        &self,
        machine: &MachineRef,
        token: LeaseToken,
    ) -> Result<Option<Refused>, Failure> {
        let Some(object) = self.machine(machine).await? else {
            return Ok(Some(gone(machine)));
        };
        let live = self.node_of(&object).await?;
        Ok(lease_ended(token, &object, live.as_ref()))
    }

    /// What the cluster says before the host of this Machine is torn down; `None`: it may be, and its Machine says from then on
    /// that this may have begun. An order that comes again, with the same attempt, finds that.
    ///
    /// `begun`: an earlier attempt may have torn half of the host down. Where a person has stopped it since, or pods may have
    /// come, it waits instead of returning the lease.
    pub(super) async fn before_tear_down(
        &self,
        machine: &MachineRef,
        guard: &Guard,
        begun: bool,
    ) -> Result<Option<Outcome>, Failure> {
        let Some(object) = self.machine(machine).await? else {
            return Ok(Some(gone(machine).outcome()));
        };
        let noted = begins(&object, guard.token);
        let begun = begun || noted;
        let refused = self
            .tear_down_refused(machine, &object, guard, begun)
            .await?;
        if let Some(refused) = refused {
            let waits = begun && (refused.stops() || refused.is_uncordoned());
            return match waits {
                true => Err(refused.failure()),
                false => Ok(Some(refused.outcome())),
            };
        }
        let Some(token) = guard.token.filter(|_| !noted) else {
            return Ok(None);
        };
        let note = json!({"metadata": {"annotations": {keys::TEARING: token.0.to_string()}}});
        let api = self.machine_api(machine);
        let there = patch(&api, &object, &what(machine), note).await?;
        Ok(there.is_none().then(|| gone(machine).outcome()))
    }

    /// Why the host of this Machine may not be torn down now. One whose tear-down may have begun is finished even if a person
    /// has labelled its Machine since, but only while nothing else forbids it.
    async fn tear_down_refused(
        &self,
        machine: &MachineRef,
        object: &DynamicObject,
        guard: &Guard,
        begun: bool,
    ) -> Result<Option<Refused>, Failure> {
        if let Some(refused) = self.of_another_dormer(machine, object) {
            return Ok(Some(refused));
        }
        // A BYOH host that leaves is cleaned whatever Node it is linked to: that Node is not touched by it.
        let live = self.node_of(object).await?;
        let ended = |token| lease_ended(token, object, live.as_ref());
        if let Some(refused) = guard.token.and_then(ended) {
            return Ok(Some(refused));
        }
        if leaves_for_good(machine, object) {
            let ours = live.filter(|live| is_of(object, &live.node).is_ok());
            return match ours.and_then(|live| is_to_stay(&live, guard)) {
                Some(refused) => Ok(Some(refused)),
                None => self.stopped(guard).await,
            };
        }
        let refused = match self.refusal(machine, object, live.as_ref(), guard).await? {
            Some(label) if label.is_ignored() && begun => {
                self.pool_or_controllers_paused(machine, object, guard)
                    .await?
            }
            refused => refused,
        };
        // Under a lease the Node was drained, or there was none. One that serves now may have no mark: it was deleted and is
        // here anew, or an older etcd was restored. No controller drains it.
        let drained = guard.token.and(live.as_ref());
        Ok(refused.or_else(|| drained.and_then(|live| pods_may_have_come(live, guard))))
    }
}

/// Whether the Machine says that a tear-down under this lease may have begun.
fn begins(machine: &DynamicObject, token: Option<LeaseToken>) -> bool {
    let noted = machine.annotations().get(keys::TEARING);
    let noted = noted.and_then(|text| text.parse().ok()).map(LeaseToken);
    token.is_some() && noted == token
}

fn gone(machine: &MachineRef) -> Refused {
    let said = format!("the Machine {} with that UID is gone", machine.name);
    Refused::new(FenceRefusal::Gone, said)
}

/// A refusal if pods may have come to a Node that was drained under this lease: it is Ready, and it is schedulable or was
/// meanwhile.
pub(super) fn pods_may_have_come(live: &LiveNode, guard: &Guard) -> Option<Refused> {
    let came = live.serves() || (guard.anew && live.ready());
    came.then(|| {
        let name = live.node.name_any();
        let said = format!("somebody uncordoned the Node {name} or made it anew, and it is Ready");
        Refused::new(FenceRefusal::Uncordoned, said)
    })
}

/// A refusal if Machine or Node say that the lease has ended: an order that a worker carries out long after its attempt
/// (it was suspended) finds a node that serves again. No mark says nothing of a lease: an older etcd may have been restored.
fn lease_ended(
    token: LeaseToken,
    machine: &DynamicObject,
    live: Option<&LiveNode>,
) -> Option<Refused> {
    let marks = [mark_of(machine), live.and_then(|live| mark_of(&live.node))];
    let ended = |mark: &TokenMark| mark.token > token || (mark.token == token && !mark.open);
    let mark = marks.into_iter().flatten().find(ended)?;
    let said = format!(
        "lease {} has ended: the Machine or its Node has the mark of lease {}{}",
        token.0,
        mark.token.0,
        if mark.open { "" } else { ", closed" }
    );
    Some(Refused::new(FenceRefusal::Superseded, said))
}

/// Why a Machine is not dormer's to disturb: a person labelled it to be ignored, or took away the label that says Windows.
/// The facts of a run may be older.
pub(super) fn ignored(machine: &MachineRef, object: &DynamicObject) -> Option<Refused> {
    let name = object.name_any();
    let said = if keys::ignored(object) {
        format!(
            "the Machine {name} is labelled {}=true: dormer leaves it alone",
            keys::IGNORE
        )
    } else if !is_windows(machine.api, &object.metadata) {
        format!(
            "the Machine {name} has no label {} any more: dormer leaves it alone",
            windows_label(machine.api)
        )
    } else {
        return None;
    };
    Some(Refused::new(FenceRefusal::Ignored, said))
}

/// Why a fence may not be opened on a Node: another client cordoned it. `taken`: dormer itself took it out of service,
/// under this lease or an earlier one.
pub(super) fn kept_by_a_person(node: &Node, taken: bool) -> Option<Refused> {
    if !cordoned(node) || taken {
        return None;
    }
    let name = node.name_any();
    let by = cordoned_by(&node.metadata).map_or_else(String::new, |by| {
        let ms = by.at.and_then(|at| i64::try_from(at.0).ok());
        let time = ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let at = time.map_or_else(String::new, |time| format!(", {time}"));
        format!(" (by {}{at})", by.program)
    });
    let said = format!("another client cordoned the Node {name}{by}: dormer does not upgrade it");
    Some(Refused::new(FenceRefusal::Cordoned, said))
}

/// Whether this is a BYOH host whose object is being deleted: it is emptied without a fence, which is for
/// nodes that come back.
pub(super) fn leaves_for_good(machine: &MachineRef, object: &DynamicObject) -> bool {
    machine.api == MachineApi::Host && object.metadata.deletion_timestamp.is_some()
}

/// Whether a Node is this Machine's own Windows node: by the UID of the `nodeRef` if it has one (Cluster API's v1beta2
/// has only a name), else by name and providerID. A Node that was deleted and registered again has another UID, and the
/// `nodeRef` may keep the old one (see `watcher/routing.rs`).
pub(super) fn is_of(machine: &DynamicObject, node: &Node) -> Result<(), Refused> {
    let name = node.name_any();
    let os = node.labels().get(OS).map_or("nothing", String::as_str);
    if os != "windows" {
        let said = format!("the Node {name} is no Windows node: its label {OS} says {os}");
        return Err(Refused::new(FenceRefusal::NotWindows, said));
    }
    if let Some(role) = CONTROL_PLANE
        .into_iter()
        .find(|role| node.labels().contains_key(*role))
    {
        let said = format!("the Node {name} is one of the control plane: it has the label {role}");
        return Err(Refused::new(FenceRefusal::ControlPlane, said));
    }
    let foreign = |why: String| {
        let said = format!(
            "the Node {name} is not that of Machine {}: {why}",
            machine.name_any()
        );
        Err(Refused::new(FenceRefusal::NotItsNode, said))
    };
    let linked = node_ref(machine, "name");
    let noted = machine.annotations().get(keys::NODE_NAME);
    // A BYOH host is linked by its address, which a person may have mistyped. Only a login shows whose it is.
    let own = machine.types.as_ref();
    let own = own.is_some_and(|types| types.api_version.starts_with("dormer.io/"));
    if own && noted != Some(&name) {
        return foreign("no login to the host has given it this name".to_owned());
    }
    match linked.or(noted.map(String::as_str)) {
        Some(named) if named == name => {}
        Some(named) => return foreign(format!("that is {named}")),
        None => return foreign("it has no nodeRef yet".to_owned()),
    }
    let wanted = machine.data["spec"]["providerID"]
        .as_str()
        .filter(|id| !id.is_empty());
    let there = node.spec.as_ref().and_then(|it| it.provider_id.as_deref());
    if let Some(uid) = node_ref(machine, "uid") {
        let same_id =
            matches!((wanted, there), (Some(ours), Some(its)) if same_provider_id(ours, its));
        return match node.uid() {
            Some(found) if found == uid => Ok(()),
            // It registered again, and its nodeRef was not renewed.
            Some(_) if same_id => Ok(()),
            found => foreign(format!(
                "its nodeRef has the UID {uid}, and the Node {}",
                found.unwrap_or_default()
            )),
        };
    }
    match (wanted, there) {
        (Some(wanted), Some(there)) if same_provider_id(wanted, there) => Ok(()),
        (Some(wanted), there) => foreign(format!(
            "its providerID is {wanted}, and that of the Node {}",
            there.unwrap_or("is not there")
        )),
        // The controller that wrote the nodeRef compared addresses. A host's claim to a name proves nothing.
        (None, _) if linked.is_some() => Ok(()),
        (None, _) => foreign("it has neither a nodeRef nor a providerID".to_owned()),
    }
}

/// Why a Node that is as it is now may not be taken.
fn is_to_stay(live: &LiveNode, guard: &Guard) -> Option<Refused> {
    if guard.down_ms.is_some() && live.ready() {
        return Some(came_back(&live.node));
    }
    (guard.unless_serving && live.serves()).then(|| takes_its_turn(&live.node))
}

/// Why the Node of a host that leaves is not taken.
fn takes_its_turn(node: &Node) -> Refused {
    let name = node.name_any();
    let said = format!("the Node {name} is Ready and schedulable, and is taken in its turn alone");
    Refused::new(FenceRefusal::NodeServes, said)
}

fn came_back(node: &Node) -> Refused {
    let name = node.name_any();
    let said = format!("the lease is over the limit, and the Node {name} is Ready");
    Refused::new(FenceRefusal::NodeServes, said)
}

/// A field of the Machine's `nodeRef`.
fn node_ref<'a>(machine: &'a DynamicObject, field: &str) -> Option<&'a str> {
    let text = machine.data["status"]["nodeRef"][field].as_str();
    text.filter(|text| !text.is_empty())
}

/// Day of the API server by its own clock, as `2026-11-28`. `None`: it does not answer, or not with a date.
pub async fn server_day(client: &Client) -> Option<String> {
    let request = Request::new("").get("version", &GetParams::default());
    let request = client.send(request.ok()?.map(Body::from));
    let answer = timeout(ANSWER_MAX, request).await.ok()?.ok()?;
    let date = answer.headers().get("date")?.to_str().ok()?;
    let moment = jiff::Timestamp::from_millisecond(http_date(date)?).ok()?;
    Some(moment.to_string().get(..10)?.to_owned())
}

/// The time of a `Date` header (RFC 9110, section 5.6.7), in milliseconds since 1970.
fn http_date(text: &str) -> Option<i64> {
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(date.timestamp().as_millisecond())
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
