//! View of a Windows machine, for API, console and commands.

use crate::{
    moment::{Moment, age},
    older_texts,
    open_enum::OpenEnum,
    prerequisites::MissingPrerequisite,
    run::{RunStatus, Task, TaskFailure, TaskPhase},
};
use dormer_proto::{
    held_by::HeldBy,
    id::Timestamp,
    listed,
    machine::{MachineApi, Validity},
    phase::{MachinePhase, MachineState},
    requester::Requester,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

listed! {
    /// Kind of a machine's object, with its API group, as kubectl takes it.
    pub enum MachineKind {
        /// OpenShift's Machine API.
        OpenShift = "Machine.machine.openshift.io",
        ClusterApi = "Machine.cluster.x-k8s.io",
        /// A BYOH host.
        WindowsHost = "WindowsHost.dormer.io",
    }
}

impl From<MachineApi> for MachineKind {
    fn from(api: MachineApi) -> Self {
        match api {
            MachineApi::OpenShift => Self::OpenShift,
            MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => Self::ClusterApi,
            MachineApi::Host => Self::WindowsHost,
        }
    }
}

/// A machine as the API shows it: its state, what it waits for, and what a person can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Kind of its object.
    #[serde(default)]
    pub kind: Option<OpenEnum<MachineKind>>,
    /// The Machine's name.
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub state: OpenEnum<MachineState>,
    /// Phase within the state.
    pub phase: OpenEnum<MachinePhase>,
    /// The phase in words.
    pub phase_text: String,
    /// Time at which it entered its phase; absent if an older build wrote that record, and the dormer process that answers did
    /// not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_since: Option<Moment>,
    /// Seconds that this step usually takes on the pool's machines: the median of the last successes of at least three of them.
    /// Absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_seconds: Option<u64>,
    /// Cause of its state, in words.
    pub reason: Option<String>,
    /// Failure of a machine that is Failed.
    pub failure: Option<PhaseFailure>,
    /// What it waits for, in words.
    pub waiting_for: Option<String>,
    /// Planned changes, while they wait for approval, an owner or the lease.
    pub differs: Vec<String>,
    /// Progress of the drain, while pods are evicted.
    pub drain: Option<Drain>,
    /// Version that its Node carries.
    pub version: Option<String>,
    /// Version that it should carry.
    pub desired_version: Option<String>,
    /// Name of its Node.
    pub node: Option<String>,
    /// Name that its Node is to have, until there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_node: Option<String>,
    /// Address that SSH uses.
    pub address: Option<String>,
    pub pool: String,
    /// Zone of its cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Labels of the Machine, and of its Node's template, by which people choose machines. At most eight.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Fields in which it differs from the template of its MachineSet: the machine was made from an earlier one. At most eight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub template_differs: Vec<TemplateDifference>,
    /// Whether its host is torn down under the lease that it holds: no abort ends its change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub torn_down: bool,
    /// The lease's token, while it holds the lease.
    pub token: Option<u64>,
    /// Whether its Machine is being deleted.
    pub deleting: bool,
    /// `status.phase` of the Machine.
    pub machine_phase: Option<String>,
    /// Error of the Machine, such as a cloud's quota.
    pub machine_error: Option<String>,
    /// Unhealthy conditions of the Machine and of its provider.
    pub machine_conditions: Vec<Condition>,
    /// Controller of the Machine: `MachineSet/NAME`.
    pub owner: Option<String>,
    /// Halt of the machine, if a person stopped it.
    pub halt: Option<Halt>,
    /// Further halts. A resume ends all of them; of several people's holds, first the caller's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_halted: Vec<Halt>,
    /// Code of the cause for which dormer itself holds it; one of the codes of failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_code: Option<String>,
    /// Holds that a person's drain or replacement has set aside. They are in force again when that has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<Halt>,
    /// What a person asked for that needs the lease, until that is done or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<PendingRequest>,
    /// Failure of the step that is tried again, until that step has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried: Option<Retried>,
    /// How often a person has retried the step that failed or is tried again.
    #[serde(default, skip_serializing_if = "is_none")]
    pub retries: u32,
    /// When that step failed first, if it was retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Moment>,
    /// Name of the machine that serves in its place, of one that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
    /// Whether a person removed it from dormer: its Machine may be there still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// In the answer to a resume or a hold: what that ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
    /// In the answer to a checked resume: what it would end that other people began; to a checked hold: the request that it
    /// would end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_end: Vec<String>,
    /// Why its host could not be compared with what is desired, the last time.
    #[serde(default)]
    pub not_compared: Option<TaskFailure>,
    /// First check that its Node fails, while it is checked before it counts as joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unserved: Option<TaskFailure>,
    /// Another operator that configures hosts, too: which one and where. While it runs, this machine is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<String>,
    /// The commands that stop that operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour_stop: Option<String>,
    /// Why it cannot become a node: its Windows, its platform, or a payload that is for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// Why a certificate request of its kubelet was not approved.
    pub certificate_refused: Option<String>,
    /// The Node of another instance that has the machine's name, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_node: Option<ForeignNode>,
    /// What was found on its host that a node does not need, and what to do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_remarks: Vec<String>,
    /// Certificates of its kubelet, each the one that was issued last, as far as dormer saw them issued.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<KubeletCertificate>,
    /// Who cordoned its Node, while another client keeps it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned_by: Option<CordonedBy>,
    /// Time since which its Node, which served, has not been Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since: Option<Moment>,
    /// Time at which the Machine was created, by the API server's clock.
    pub created: Option<Moment>,
    /// deletionTimestamp of the Machine, if it was seen: the machine in its place is not older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Moment>,
    /// Whether it is in service: its Node has served, or was adopted. While this is true, disturbing it needs the lease.
    pub served: bool,
    /// Highest number among the attempts of its open tasks.
    pub attempt: Option<u64>,
    /// Open tasks.
    pub tasks: Vec<Task>,
    /// Prerequisite of dormer's own that this machine waits for, such as a usable SSH key.
    pub lacks: Option<String>,
    /// Common status of the run.
    #[serde(flatten)]
    pub status: RunStatus,
}

impl Machine {
    /// That its step failed again: `failed again after 2 retries since 08:02 UTC`. `None`: it failed once.
    pub fn failed_again(&self, now: Timestamp) -> Option<String> {
        let since = self.failing_since.filter(|_| self.retries > 0)?;
        let times = match self.retries {
            1 => "a retry".to_owned(),
            count => format!("{count} retries"),
        };
        Some(format!(
            "failed again after {times} since {}",
            since.clock(now)
        ))
    }

    /// Whether it was made from an earlier template of its MachineSet, such as one with another image.
    #[must_use]
    pub fn outdated(&self) -> bool {
        !self.template_differs.is_empty()
    }
}

/// A Node that has the machine's name, and belongs to another instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForeignNode {
    /// Name of the Node.
    pub node: String,
    /// providerID of the Node.
    pub theirs: String,
    /// providerID of the Machine.
    pub ours: String,
}

/// A field in which a Machine differs from the template of its MachineSet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateDifference {
    /// Path of the field, such as `spec.providerSpec.value.ami.id`; or a difference as Cluster API words it.
    pub field: String,
    /// Value of the Machine, as JSON, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Value of the template, as JSON, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

impl fmt::Display for TemplateDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            machine,
            template,
        } = self;
        match (machine.as_deref(), template.as_deref()) {
            (None, None) => f.write_str(field),
            (Some(has), Some(wanted)) => write!(f, "{field}: {has}, the template has {wanted}"),
            (None, Some(wanted)) => write!(f, "{field}: absent, the template has {wanted}"),
            (Some(has), None) => write!(f, "{field}: {has}, the template has none"),
        }
    }
}

/// Who cordoned a Node: a program, as the API server notes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CordonedBy {
    /// Its name, such as `kubectl-cordon`.
    pub program: String,
    /// When, by the API server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
}

impl Machine {
    /// Whether a step of it failed and is tried again later: a retry tries it at once.
    pub fn waits_for_attempt(&self) -> bool {
        let later = |task: &Task| task.phase == TaskPhase::Waiting;
        let again = match self.phase.known() {
            // They have no open task meanwhile.
            Some(MachinePhase::KeyWait) => self.tasks.is_empty(),
            Some(MachinePhase::Marking) => self.tasks.is_empty() && self.unserved.is_some(),
            Some(MachinePhase::Serving) => self.not_compared.is_some(),
            _ => false,
        };
        again || self.tasks.iter().any(later)
    }

    /// Seconds since its Machine was created or, if that is unknown, since dormer's first record.
    #[must_use]
    pub fn age_seconds(&self) -> u64 {
        let Moment(Timestamp(state)) = self.status.since;
        let Moment(Timestamp(from)) = self.created.unwrap_or(self.status.began);
        self.status.since_seconds + state.saturating_sub(from) / 1_000
    }

    /// Seconds in its phase: since the phase was entered or, while that is unknown, since the state was.
    pub fn phase_seconds(&self) -> u64 {
        let Moment(Timestamp(state)) = self.status.since;
        self.phase_since.map_or(self.status.since_seconds, |it| {
            let Moment(Timestamp(phase)) = it;
            (state + self.status.since_seconds * 1_000).saturating_sub(phase) / 1_000
        })
    }

    /// Whether pods hold up its drain. For a while that is so in every drain.
    pub fn is_held_up(&self) -> bool {
        let drain = self.drain.as_ref();
        drain.is_some_and(|drain| !drain.blockers.is_empty())
    }

    /// Phase in words, if it says more than the state (not for `Failed` and `failed`).
    pub fn phase_beside_state(&self) -> Option<&str> {
        let more =
            !self.phase_text.is_empty() && !self.phase_text.eq_ignore_ascii_case(self.state.id());
        more.then_some(self.phase_text.as_str())
    }

    /// What kubectl calls its object. With Cluster API beside it, `machine` alone is never OpenShift's: kubectl takes the
    /// API group that is first in the alphabet. A server of an earlier build does not name the API.
    pub fn resource(&self) -> &'static str {
        match self.kind.as_ref().and_then(OpenEnum::known) {
            Some(MachineKind::OpenShift) => "machine.machine.openshift.io",
            Some(MachineKind::ClusterApi) => "machine.cluster.x-k8s.io",
            Some(MachineKind::WindowsHost) => "windowshost",
            None => "machine",
        }
    }

    /// Name of its MachineSet.
    pub fn machine_set(&self) -> Option<&str> {
        self.owner.as_deref()?.strip_prefix("MachineSet/")
    }

    /// Its halts, the strongest first.
    pub fn halts(&self) -> impl Iterator<Item = &Halt> {
        self.halt.iter().chain(&self.also_halted)
    }

    /// Whether what it waits for is the end of its pause.
    pub fn waits_for_resume(&self) -> bool {
        let outside = self.status.quarantine.is_some() || self.lacks.is_some();
        let paused = self.halts().any(|it| it.kind == HaltKind::Paused);
        paused && !outside && self.neighbour.is_none()
    }

    /// Condition that a request waits for. `None`: nothing was asked for, or it is being done.
    pub fn asked_waits_for(&self) -> Option<String> {
        self.asked.as_ref().filter(|asked| !asked.begun)?;
        let halted = self.halt.is_some();
        Some(match self.phase.known() {
            Some(MachinePhase::LeaseWait) => "the rollout's lease".to_owned(),
            Some(MachinePhase::Failed) => "a retry of the step that failed".to_owned(),
            Some(MachinePhase::OwnerWait) => "a MachineSet that replaces the machine".to_owned(),
            Some(MachinePhase::Serving) if halted => "the end of its halt".to_owned(),
            _ => format!("the present step ({})", self.phase_text),
        })
    }

    /// Whether it is in service: its Node has joined, and is not known to be down.
    pub fn serves(&self) -> bool {
        let here = self.state == MachineState::Joined && self.status.closed.is_none();
        here && self.down_since.is_none()
    }

    /// Whether its Node has served and carries the version that it should carry.
    pub fn is_updated(&self) -> bool {
        let same = self.version.is_some() && self.version == self.desired_version;
        self.served && same && self.status.closed.is_none()
    }

    /// Whether the Machine API has marked the Machine as Failed, which is final.
    pub fn given_up(&self) -> bool {
        self.machine_phase.as_deref() == Some("Failed")
    }
}

/// Step that failed for good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseFailure {
    /// Stable code, such as `AuthRejected`.
    pub code: String,
    /// What went wrong, in a sentence.
    pub message: String,
    /// End of the log of the service at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Phase that failed.
    pub phase: OpenEnum<MachinePhase>,
    /// The phase in words.
    pub phase_text: String,
}

/// Machine that is not supported, or not by its pool's payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// Stable code, such as `UnsupportedBuild`.
    pub code: String,
    /// What is not supported, in a sentence.
    pub message: String,
    pub what_to_do: String,
}

listed! {
    /// What a kubelet uses a certificate for.
    pub enum CertificateUse {
        /// The API server knows it by that.
        Client = "client",
        /// It serves logs and exec by that.
        Serving = "serving",
    }
}

/// Certificate of a machine's kubelet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeletCertificate {
    /// What it is for.
    #[serde(rename = "use")]
    pub used_as: OpenEnum<CertificateUse>,
    /// When it becomes valid.
    pub from: Moment,
    /// When it lapses.
    pub until: Moment,
}

impl KubeletCertificate {
    /// Time from which on its kubelet should have renewed it.
    #[must_use]
    pub fn late_from(&self) -> Moment {
        let validity = Validity {
            from: self.from.0,
            until: self.until.0,
        };
        Moment(validity.late_from())
    }
}

/// Drain in progress.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// Pods evicted so far.
    pub evicted: u64,
    /// Pods that remain.
    pub left: u64,
    /// Pods that block the drain, with reasons.
    pub blockers: Vec<Blocker>,
    /// Whether PodDisruptionBudgets are ignored.
    pub force: bool,
    /// When dormer itself ends what holds it up, by the pool's `drain.afterTimeout`. Absent: only a change of its pods or of
    /// their budgets does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Moment>,
}

/// Pod that a drain cannot remove.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Blocker {
    /// NAMESPACE/NAME of the pod.
    pub pod: String,
    /// Why it stays.
    pub why: String,
    /// Names of the disruption budgets that keep it, if they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<String>,
    /// Whether it leaves only once its host is said to be off: its Node does not answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_off: bool,
    /// Finalizers of a deleted pod, which keep it. Absent: something else keeps it, or an older dormer answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// Condition of a Kubernetes object.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Condition {
    /// Type of the condition.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason, in a word.
    pub reason: String,
    /// Message for people.
    pub message: String,
}

listed! {
    /// Request of a person that needs the lease.
    pub enum AskedFor {
        /// The node is cordoned and drained until the machine is resumed.
        Drain = "drain",
        /// A new machine replaces it.
        Recreate = "recreate",
    }
}

/// Request of a person that needs the lease. It may wait for that, or for the present step to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PendingRequest {
    /// What was asked for.
    pub what: OpenEnum<AskedFor>,
    /// Person and reason in one text; absent if an older build took the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Name of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Reason of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// Whether it is being done, or done and not ended yet, as a drain. Otherwise it waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
}

impl PendingRequest {
    /// The request and its person: `drain asked for by ann (a new kernel)`.
    pub fn text(&self) -> String {
        let what = match self.what.known() {
            Some(AskedFor::Drain) => "drain",
            Some(AskedFor::Recreate) => "replacement",
            None => self.what.id(),
        };
        format!("{what} asked for by {}", self.person())
    }

    /// The person, and the reason in parentheses: `ann (a new kernel)`.
    pub fn person(&self) -> String {
        let requester = requester(self.who.as_deref(), self.why.as_deref(), self.by.as_deref());
        requester.map_or_else(|| A_PERSON.to_owned(), |it| it.to_string())
    }
}

/// Who asked for something, if an older build did not record it.
pub const A_PERSON: &str = "a person";

/// Who asked for something, and why. An older dormer says both only in the one text `by`.
fn requester<'a>(
    who: Option<&'a str>,
    why: Option<&'a str>,
    by: Option<&'a str>,
) -> Option<Requester<'a>> {
    match who {
        Some(who) => Some(Requester { who, why }),
        None => by.map(older_texts::requester),
    }
}

/// Failure after which a machine continues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retried {
    /// When it continued.
    pub at: Moment,
    /// Person who asked for that, and reason, in one text; absent: the cause of the failure had changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Name of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Reason of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Why it had failed.
    #[serde(flatten)]
    pub failure: PhaseFailure,
}

impl Retried {
    /// Who asked for that, and why. `None`: the cause of the failure had changed.
    #[must_use]
    pub fn requester(&self) -> Option<Requester<'_>> {
        requester(self.who.as_deref(), self.why.as_deref(), self.by.as_deref())
    }
}

listed! {
    /// Who or what stops dormer from starting anything new on a machine.
    pub enum HaltKind {
        /// A person paused it.
        Paused = "paused",
        /// A person, or the drain policy `abort`, keeps it out of the rollout.
        Held = "held",
        /// The Machine has the label `windowsmachineconfig.openshift.io/ignore=true`.
        Ignored = "ignored",
    }
}

/// Halt: dormer starts nothing new on the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Halt {
    pub kind: OpenEnum<HaltKind>,
    /// Person and reason in one text; null for the label.
    pub by: Option<String>,
    /// Name of the person; `dormer` if it holds the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Reason of the person, or the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether dormer itself holds the machine, until the cause has ended. Absent: an older dormer answered, and `by` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<bool>,
    /// All of it in words.
    pub text: String,
    /// Time at which it began; absent if an older build wrote that record, and the dormer process that answers did not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_none(count: &u32) -> bool {
    *count == 0
}

impl Halt {
    /// Whether dormer itself holds the machine.
    pub fn is_own(&self) -> bool {
        let by_its_text = || {
            let by = self.by.as_deref();
            by.is_some_and(|by| HeldBy::from_stored_text(by) == HeldBy::Dormer)
        };
        self.own.unwrap_or_else(by_its_text)
    }

    /// Who, since when and why: `held by ann for 3 hours: a new disk`.
    pub fn text_at(&self, now: Timestamp) -> String {
        let known = self.requester().filter(|_| self.kind.known().is_some());
        let (Some(Requester { who, why }), Some(Moment(since))) = (known, &self.since) else {
            return self.text.clone();
        };
        let aged = age(now.0.saturating_sub(since.0) / 1_000);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        format!("{} by {who} for {aged}{why}", self.kind.id())
    }

    /// Who keeps the machine as it is, and why. `None`: its label.
    #[must_use]
    pub fn requester(&self) -> Option<Requester<'_>> {
        requester(self.who.as_deref(), self.why.as_deref(), self.by.as_deref())
    }
}

/// List of machines, with prerequisites that dormer lacks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machines {
    pub items: Vec<Machine>,
    /// Prerequisites that dormer lacks, the one with the most waiting machines first.
    #[serde(default)]
    pub lacks: Vec<MissingPrerequisite>,
}
