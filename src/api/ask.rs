//! Requests to runs: each is put into the inbox as a message, and confirmed once the run's history holds it.

use super::{
    ApiError,
    access::{
        Caller,
        origin::{self, WithoutOrigin},
    },
    run_cache::{RunCache, SharedRun},
    store::Store,
};
use axum::{
    body::Bytes,
    extract::{FromRequest, Request as HttpRequest},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use dormer_engine_core::{Decision, Input, Now, Sender, Workflow};
use dormer_proto::{
    envelope,
    id::{Seq, Timestamp},
    machine,
    message::{Ask, Inbound, InboxMessage, Request, cut},
    phase::MachinePhase,
    rollout,
    work::{self, RequestMessage, SCHEMA, Signal},
};
use dormer_views::actions::TRUST_HOST_KEY;
use dormer_workers::ssh::fingerprint;
use dormer_workflows::{Dormer, State};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Header in which the command line names the requester.
const USER_HEADER: &str = "x-dormer-user";
/// How long a request waits for an engine to record it.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);
/// Interval at which the history is polled meanwhile.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Longest id of a request, and longest name of a requester, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Body of a request. All fields are optional.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Body {
    /// Id chosen by the requester. A repeat with the same id is confirmed, not executed again.
    id: Option<String>,
    /// Name of the requester.
    who: Option<String>,
    /// Reason in the requester's words.
    why: Option<String>,
    /// Precondition: the seq at which the run entered the state that the requester saw (`enteredSeq`).
    against: Option<u64>,
    /// Record that a reset goes back to.
    to: Option<u64>,
    /// Payload that a rollback goes back to. In a plan: the manifest of a candidate payload.
    payload: Option<String>,
    /// In a plan: a candidate layer.
    layer: Option<String>,
    /// The host key that is trusted from now on.
    fingerprint: Option<String>,
    /// Only check the request: it is refused as it would be, and otherwise nothing is sent.
    dry_run: bool,
}

impl Body {
    /// Reads the body of a request from a permitted origin. An authenticated caller's name replaces the name in the
    /// body.
    ///
    /// # Errors
    /// 403, 415 or 400 with the remedy.
    pub(crate) fn read(
        headers: &HeaderMap,
        bytes: &[u8],
        caller: Option<&Caller>,
    ) -> Result<Self, ApiError> {
        guard(headers)?;
        // serde also reads a struct from a list. The API accepts an object only.
        let object = serde_json::from_slice(bytes).map(Value::Object);
        let body: Self = object.and_then(serde_json::from_value).map_err(|error| {
            ApiError::bad(
                format!("the body cannot be read: {error}"),
                "send an object with any of the fields id, who, why and against; {} is enough",
            )
        })?;
        for (field, text) in [("id", &body.id), ("who", &body.who)] {
            let fits = text
                .as_ref()
                .is_none_or(|it| (1..=NAME_BYTES_MAX).contains(&it.len()));
            if !fits {
                let error = format!("{field} is empty, or longer than {NAME_BYTES_MAX} bytes");
                return Err(ApiError::bad(error, "shorten it, or leave the field out"));
            }
        }
        if let Some(Caller(name)) = caller {
            return Ok(Self {
                who: Some(shortened(name)),
                ..body
            });
        }
        let user = headers
            .get(USER_HEADER)
            .and_then(|value| value.to_str().ok());
        let user = user.filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()));
        Ok(Self {
            who: body.who.or_else(|| user.map(str::to_owned)),
            ..body
        })
    }

    /// Candidate of a plan: a payload's manifest and a layer, as texts.
    pub(crate) fn tried(self) -> (Option<String>, Option<String>) {
        (self.payload, self.layer)
    }

    /// Whether the request is only checked.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Record that a reset goes back to.
    pub(crate) fn reset(&self) -> Option<Seq> {
        self.to.map(Seq)
    }

    /// Payload that a rollback goes back to.
    ///
    /// # Errors
    /// 400: the field is missing.
    pub(crate) fn payload(&self) -> Result<String, ApiError> {
        let named = self
            .payload
            .clone()
            .filter(|it| (1..=NAME_BYTES_MAX).contains(&it.len()));
        named.ok_or_else(|| {
            ApiError::bad(
                "`payload` is missing",
                "name the version to go back to: --to VERSION",
            )
        })
    }

    /// Fingerprint of the host key to trust.
    ///
    /// # Errors
    ///
    /// 400: it is no fingerprint, or the reason is missing.
    fn trusted(&self) -> Result<String, ApiError> {
        let named = self.fingerprint.clone().filter(|it| is_fingerprint(it));
        let named = named.ok_or_else(|| {
            ApiError::bad(
                "`fingerprint` is not the fingerprint of a host key",
                "give --fingerprint SHA256:… as ssh-keygen -lf prints it on the host",
            )
        })?;
        let why = self.why.as_deref().unwrap_or_default();
        if why.trim().is_empty() {
            let to_do = "say with --why how you know that the host was reinstalled on purpose";
            return Err(ApiError::bad("`why` is missing", to_do));
        }
        Ok(named)
    }

    fn request(self, ask: Ask<Signal>) -> Request<Signal> {
        Request {
            id: self
                .id
                .unwrap_or_else(|| format!("api-{:016x}", rand::random::<u64>())),
            who: self.who.unwrap_or_else(|| "somebody".into()),
            why: cut(self.why.unwrap_or_default()),
            against: Seq(self.against.unwrap_or(0)),
            ask,
        }
    }
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Response;

    async fn from_request(request: HttpRequest, state: &S) -> Result<Self, Response> {
        let headers = request.headers().clone();
        let caller = request.extensions().get::<Caller>().cloned();
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(IntoResponse::into_response)?;
        Self::read(&headers, &bytes, caller.as_ref()).map_err(IntoResponse::into_response)
    }
}

/// User name, cut at [`NAME_BYTES_MAX`].
fn shortened(name: &str) -> String {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

/// Rejects cross-site requests. The browser of a foreign page sends JSON only after a CORS preflight.
fn guard(headers: &HeaderMap) -> Result<(), ApiError> {
    origin::check(headers, WithoutOrigin::Allowed)?;
    let content = headers.get(header::CONTENT_TYPE);
    let content = content.and_then(|value| value.to_str().ok());
    let content = content.unwrap_or_default();
    let essence = content.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(ApiError::not_json())
    }
}

/// Whether the text is the SHA-256 of a public key as OpenSSH writes it: 43 characters of base64.
fn is_fingerprint(text: &str) -> bool {
    let letters = text.strip_prefix("SHA256:").unwrap_or_default();
    let base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    letters.len() == 43 && letters.chars().all(base64)
}

/// Signal to a machine for the action in the path and the body.
///
/// # Errors
///
/// 404: there is no such action. 400: the body lacks a field that the action needs.
pub(crate) fn asked_of_machine(word: &str, body: &Body) -> Result<Signal, ApiError> {
    if word == TRUST_HOST_KEY.name {
        let fingerprint = body.trusted()?;
        return Ok(Signal::Machine(machine::Signal::TrustHostKey {
            fingerprint,
        }));
    }
    of_machine(word).ok_or_else(|| ApiError::absent("action on machines", word, "dormer help"))
}

/// Signal to a machine for the action in the path, if that needs no body.
pub(crate) fn of_machine(word: &str) -> Option<work::Signal> {
    use dormer_proto::machine::Signal;
    Some(work::Signal::Machine(match word {
        "retry" => Signal::Retry,
        "pause" => Signal::Pause,
        "resume" => Signal::Resume,
        "hold" => Signal::Hold,
        "drain" => Signal::Drain,
        "recreate" => Signal::Recreate,
        "approve" => Signal::Approve,
        "abort" => Signal::Abort,
        "remove" => Signal::Remove,
        _ => return None,
    }))
}

/// Signal to a rollout for the action in the path.
pub(crate) fn of_rollout(word: &str) -> Option<Signal> {
    Some(Signal::Rollout(match word {
        "pause" => rollout::Signal::Pause,
        "resume" => rollout::Signal::Resume,
        _ => return None,
    }))
}

/// Sends `signal` to `run`, waits until the history holds it, and answers the run. A dry run ends after the checks.
///
/// # Errors
/// 409: the run is quarantined, has ended, has left the state of the precondition, or the signal would change nothing. 504: no engine recorded
/// the request in time.
pub(crate) async fn ask(
    ports: &dyn Store,
    run_cache: &RunCache,
    run: SharedRun,
    signal: Ask<Signal>,
    body: Body,
) -> Result<SharedRun, ApiError> {
    let dry_run = body.dry_run;
    let request = body.request(signal);
    let against = request.against;
    let reset = matches!(request.ask, Ask::Reset { .. });
    if let Some(run) = taken(&run, &request.id, against, reset)? {
        return Ok(run);
    }
    if let Ask::Signal(signal) = &request.ask
        && let Some(error) = changes_nothing(&run, ports.now(), signal)
    {
        return Err(ApiError::conflict(
            error,
            "dormer why shows what it waits for",
        ));
    }
    if let Some(found) = run_cache.quarantine(&run.id).await? {
        return Err(ApiError::quarantined(&run.id, &found.code, &found.why));
    }
    if dry_run {
        return Ok(run);
    }
    let id = request.id.clone();
    let to = run.id.clone();
    let message: RequestMessage = InboxMessage {
        run: to.clone(),
        incarnation: None,
        body: Inbound::Requested(request),
    };
    let (bytes, _) = envelope::encode(&message, SCHEMA)?;
    ports.put(to.clone(), bytes).await?;
    let deadline = Instant::now() + CONFIRMED_WITHIN;
    while Instant::now() < deadline {
        tokio::time::sleep(POLL_EVERY).await;
        if let Some(now) = run_cache.one(&to).await?
            && let Some(run) = taken(&now, &id, against, reset)?
        {
            return Ok(run);
        }
    }
    match run_cache.quarantine(&to).await? {
        Some(found) => Err(ApiError::quarantined(&to, &found.code, &found.why)),
        None => Err(ApiError::not_confirmed(&id)),
    }
}

/// The run, if its history holds the request.
fn taken(
    run: &SharedRun,
    id: &str,
    against: Seq,
    reset: bool,
) -> Result<Option<SharedRun>, ApiError> {
    if run.requests.iter().any(|known| known == id) {
        return Ok(Some(SharedRun::clone(run)));
    }
    let by_a_person = Dormer::resets_ended(&run.state);
    if run.closed.is_some() && !(reset && by_a_person) {
        return Err(if by_a_person {
            ApiError::conflict(
                format!("{} was removed by a person", run.id),
                "dormer reset --to RECORD takes it back; dormer history lists the records",
            )
        } else {
            ApiError::conflict(
                format!("{} has ended: its Machine is gone", run.id),
                "no action is needed: should the Machine be there again, the run begins anew",
            )
        });
    }
    if against.0 != 0 && against != run.entered.seq {
        return Err(ApiError::conflict(
            format!(
                "it has left the state that it entered at record {against}; now it is {}",
                run.entered.seq
            ),
            "check its present state with dormer why, and repeat the request if you still want it",
        ));
    }
    Ok(None)
}

/// Why the signal would change nothing in the present state, as the workflow itself decides it. `None`: it changes
/// something, or repeats a request that holds already.
fn changes_nothing(run: &SharedRun, now: Timestamp, signal: &Signal) -> Option<String> {
    if let (State::Machine(state), Signal::Machine(asked)) = (&run.state, signal)
        && let Some(why) = out_of_order(state, asked)
    {
        return Some(why);
    }
    let from = Sender::Person {
        who: "somebody".into(),
        why: String::new(),
    };
    let seq = run.seq.next();
    let now = Now {
        run: &run.id,
        seq,
        at: now,
    };
    let signalled = Input::Signalled {
        from,
        signal: signal.clone(),
    };
    let Decision {
        state: after,
        commands,
    } = Dormer::decide(now, run.state.clone(), signalled);
    if !commands.is_empty() {
        return None;
    }
    match (&run.state, after, signal) {
        (State::Machine(before), State::Machine(mut after), Signal::Machine(signal)) => {
            let note = after
                .note
                .take()
                .filter(|it| Some(it) != before.note.as_ref());
            after.note.clone_from(&before.note);
            (*before == after).then(|| note.or_else(|| idle(before, signal)))?
        }
        (State::Rollout(before), State::Rollout(after), Signal::Rollout(signal)) => {
            let resumes = *signal == rollout::Signal::Resume;
            (resumes && *before == after).then(|| "nobody has paused it with dormer pause".into())
        }
        _ => None,
    }
}

/// Reason for which a request is too early or already recorded, although the workflow would record it again.
fn out_of_order(
    state: &dormer_workflows::machine::State,
    signal: &machine::Signal,
) -> Option<String> {
    use machine::Signal;
    match signal {
        Signal::Approve if !state.in_service => {
            Some("it has not served yet, and what is new needs no approval".into())
        }
        Signal::Approve => {
            let by = state.held.as_ref()?;
            Some(format!(
                "it is held by {by}, and nothing is changed on it: dormer resume it first, then approve"
            ))
        }
        Signal::TrustHostKey { fingerprint: key } => {
            let same = state.host.pin.as_deref().map(fingerprint);
            let same = same.is_some_and(|pin| pin.ends_with(key.as_str()));
            // After a failure the step continues nevertheless.
            if same && state.phase.id() != MachinePhase::Failed {
                return Some(format!("the host key {key} is already trusted"));
            }
            not_shown(state, key)
        }
        // The resume would only restart the phase, with the same result.
        Signal::Resume
            if state.phase.id() == MachinePhase::Serving
                && state.halts().is_empty()
                && state.wish.is_none() =>
        {
            idle(state, signal)
        }
        Signal::Retry
        | Signal::Pause
        | Signal::Resume
        | Signal::Hold
        | Signal::Drain
        | Signal::Recreate
        | Signal::Abort
        | Signal::Remove
        | Signal::Granted { .. }
        | Signal::Enrol
        | Signal::Replaced { .. } => None,
    }
}

/// Why a host key is not the one that the host presents. A wrong key locks dormer out: it sends nothing to a
/// host with another key. `None`: the host presents this key, or dormer does not know which key it presents.
fn not_shown(state: &dormer_workflows::machine::State, key: &str) -> Option<String> {
    let view = state.view();
    let failed = view
        .failure
        .as_ref()
        .map(|(_, it)| (&it.code, &it.shown_key));
    let compared = state
        .not_compared
        .as_ref()
        .map(|it| (&it.code, &it.shown_key));
    let changed = [failed, compared]
        .into_iter()
        .flatten()
        .find(|(code, _)| *code == "HostKeyChanged");
    match changed {
        Some((_, shown)) => {
            let shown = shown.as_deref().filter(|shown| *shown != key)?;
            Some(format!(
                "the host shows {shown}, and not {key}. Compare the key on the host itself: ssh-keygen -lf \
                 C:\\ProgramData\\ssh\\ssh_host_ed25519_key.pub"
            ))
        }
        None => (state.phase.id() == MachinePhase::Serving && state.host.pin.is_some()).then(|| {
            "the host shows the key that dormer knows. If it is reinstalled, the next comparison notices, and dormer \
             why names its new key"
                .to_owned()
        }),
    }
}

/// Text about a signal that changes nothing. `None`: it repeats a request that is already in force.
fn idle(state: &dormer_workflows::machine::State, signal: &machine::Signal) -> Option<String> {
    use machine::Signal;
    let text = match signal {
        Signal::Retry => "it has not failed, so there is nothing to retry",
        Signal::Resume => {
            "it is neither paused nor held nor drained, so there is nothing to resume"
        }
        Signal::Approve => "nothing waits for approval",
        // Kubernetes takes no deletionTimestamp back.
        Signal::Abort
            if state.own_host()
                && (state.phase.id() == MachinePhase::Leaving || state.phase.removal_failed()) =>
        {
            "too late: its WindowsHost is already deleted, and cannot be kept; label it \
             windowsmachineconfig.openshift.io/ignore=true to let it go as it is"
        }
        Signal::Abort => match state.phase.id() {
            MachinePhase::Vanishing
            | MachinePhase::Leaving
            | MachinePhase::ClosingGone
            | MachinePhase::ReplacementWait => "too late: its Machine is already deleted",
            MachinePhase::TearingDown | MachinePhase::Reprobing => {
                "too late: its host is already torn down"
            }
            MachinePhase::Undoing => "its upgrade is already being given up",
            MachinePhase::AddressWait
            | MachinePhase::Probing
            | MachinePhase::KeyWait
            | MachinePhase::Adopting
            | MachinePhase::PoolWait
            | MachinePhase::ConvergingHost
            | MachinePhase::Rebooting
            | MachinePhase::NodeWait
            | MachinePhase::ConvergingNode
            | MachinePhase::ReadyWait
            | MachinePhase::Soaking
            | MachinePhase::Marking
            | MachinePhase::Serving
            | MachinePhase::Checking
            | MachinePhase::Applying
            | MachinePhase::ApprovalWait
            | MachinePhase::OwnerWait
            | MachinePhase::LeaseWait
            | MachinePhase::Closing
            | MachinePhase::Opening
            | MachinePhase::Evicting
            | MachinePhase::Drained
            | MachinePhase::Deleting
            | MachinePhase::Failed
            | MachinePhase::Gone => "no upgrade is running, so there is nothing to abort",
        },
        Signal::Remove => "it cannot be removed now",
        Signal::Pause
        | Signal::Hold
        | Signal::Drain
        | Signal::Recreate
        | Signal::TrustHostKey { .. }
        | Signal::Granted { .. }
        | Signal::Enrol
        | Signal::Replaced { .. } => return None,
    };
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        of.iter()
            .map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_request_is_json_from_nowhere_or_from_our_own_pages() {
        let json = ("content-type", "application/json; charset=utf-8");
        let host = ("host", "h:1");
        let own = ("origin", "http://h:1");
        assert!(Body::read(&headers(&[json]), b"{}", None).is_ok());
        assert!(Body::read(&headers(&[json, host, own]), b"{\"why\":\"x\"}", None).is_ok());
        for refused in [
            &headers(&[]),
            &headers(&[("content-type", "text/plain")]),
            &headers(&[json, host, ("origin", "http://evil:1")]),
            &headers(&[json, host, ("origin", "null")]),
        ] {
            assert!(Body::read(refused, b"{}", None).is_err(), "{refused:?}");
        }
        let said = Body::read(
            &headers(&[json]),
            b"{\"who\":\"root\"}",
            Some(&Caller("ann".into())),
        );
        assert_eq!(
            said.expect("a body").who.as_deref(),
            Some("ann"),
            "a claim counts for nothing"
        );
        for nonsense in ["", "[]", "{\"other\":1}", "{\"id\":\"\"}"] {
            assert!(
                Body::read(&headers(&[json]), nonsense.as_bytes(), None).is_err(),
                "{nonsense}"
            );
        }
    }

    #[test]
    fn a_wish_that_changes_nothing_is_refused_with_its_reason() {
        use dormer_engine_core::{Entered, Run};
        use dormer_proto::{id::Sum, message::Failure};
        use dormer_workflows::machine::{Phase, State as Machine};
        use std::{collections::VecDeque, sync::Arc};
        let refused_of = |state: Machine, signal: machine::Signal| {
            let run: SharedRun = Arc::new(Run {
                id: "machine/u1".parse().expect("an id"),
                seq: Seq(1),
                began: Timestamp(0),
                state: state.into(),
                entered: Entered {
                    seq: Seq(1),
                    at: Timestamp(0),
                },
                tasks: Vec::new(),
                timers: Default::default(),
                outbox: Vec::new(),
                taken: Default::default(),
                numbered: Seq(0),
                requests: VecDeque::new(),
                facts: Default::default(),
                episodes: VecDeque::new(),
                closed: None,
                sum: Sum(0),
            });
            changes_nothing(&run, Timestamp(1), &work::Signal::Machine(signal))
        };
        let refused = |phase: Phase, signal: machine::Signal| {
            let state = Machine {
                phase,
                ..Machine::default()
            };
            refused_of(state, signal)
        };
        use machine::Signal;
        for (phase, signal, part) in [
            (Phase::Probing, Signal::Abort, "nothing to abort"),
            (Phase::Probing, Signal::Approve, "has not served"),
            (Phase::Probing, Signal::Resume, "nothing to resume"),
            (Phase::Probing, Signal::Retry, "nothing to retry"),
            (Phase::Vanishing, Signal::Abort, "already deleted"),
        ] {
            let why = refused(phase, signal).unwrap_or_default();
            assert!(why.contains(part), "{part}: {why}");
        }
        let failed = Phase::Failed {
            from: Box::new(Phase::Probing),
            failure: Failure::lasting("Broken", "it broke"),
        };
        assert_eq!(refused(failed, Signal::Retry), None);
        assert_eq!(refused(Phase::Probing, Signal::Pause), None);
        let held = Machine {
            held: Some("ann".into()),
            in_service: true,
            ..Machine::default()
        };
        let why = refused_of(held, Signal::Approve).unwrap_or_default();
        assert!(why.starts_with("it is held by ann"), "{why}");
        let trusts_of_a_changed_key = |at: usize| {
            let shown = format!("SHA256:{}", "a".repeat(43));
            let asked = [shown.clone(), format!("SHA256:{}", "b".repeat(43))][at].clone();
            let failed = Phase::Failed {
                from: Box::new(Phase::Probing),
                failure: Failure {
                    shown_key: Some(shown),
                    ..Failure::lasting("HostKeyChanged", "another key")
                },
            };
            refused(failed, Signal::TrustHostKey { fingerprint: asked })
        };
        let trusts = |pin: &str| {
            let mut state = Machine::default();
            state.host.pin = Some(pin.to_owned());
            let fingerprint = "SHA256:abc".to_owned();
            refused_of(state, Signal::TrustHostKey { fingerprint })
        };
        assert_eq!(
            trusts("SHA256:abc").as_deref(),
            Some("the host key SHA256:abc is already trusted")
        );
        assert_eq!(trusts("SHA256:def"), None);
        assert_eq!(trusts_of_a_changed_key(0), None, "the shown one");
        let other = trusts_of_a_changed_key(1).unwrap_or_default();
        assert!(other.starts_with("the host shows SHA256:aaa"), "{other}");
        let mut serving = Machine {
            phase: Phase::Serving,
            in_service: true,
            ..Machine::default()
        };
        let why = refused_of(serving.clone(), Signal::Resume).unwrap_or_default();
        assert!(why.contains("nothing to resume"), "{why}");
        serving.host.pin = Some("SHA256:abc".into());
        let fingerprint = "SHA256:def".to_owned();
        let why = refused_of(serving, Signal::TrustHostKey { fingerprint }).unwrap_or_default();
        assert!(why.contains("the key that dormer knows"), "{why}");
    }

    #[test]
    fn a_host_key_is_trusted_by_its_fingerprint_and_for_a_reason() {
        let asked = |fingerprint: &str, why: &str| {
            let body = Body {
                fingerprint: Some(fingerprint.to_owned()),
                why: Some(why.to_owned()),
                ..Body::default()
            };
            asked_of_machine("trust-host-key", &body).ok()
        };
        let good = format!("SHA256:{}", "aB+/".repeat(11).split_at(43).0);
        let signal = machine::Signal::TrustHostKey {
            fingerprint: good.clone(),
        };
        assert_eq!(
            asked(&good, "the disk was replaced"),
            Some(Signal::Machine(signal))
        );
        assert_eq!(asked(&good, " "), None, "nobody says why");
        for odd in ["", "SHA256:", &good[7..], &format!("{good}a"), "MD5:aa:bb"] {
            assert_eq!(asked(odd, "why"), None, "{odd}");
        }
        assert!(asked_of_machine("trust-host-key", &Body::default()).is_err());
        assert!(asked_of_machine("trust", &Body::default()).is_err());
        assert_eq!(of_machine("trust-host-key"), None, "not without a key");
    }
}
