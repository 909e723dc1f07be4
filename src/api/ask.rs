//! Requests to runs: each is put into the inbox as a message, and confirmed once the run's history holds it.

mod ended_rollback;
mod no_effect;

use super::{
    ApiError,
    access::{
        ActionNotes, Caller,
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
use dormer_engine_core::Workflow;
use dormer_proto::{
    envelope,
    id::Seq,
    machine,
    message::{Ask, Inbound, InboxMessage, Request, cut},
    rollout,
    work::{self, RequestMessage, SCHEMA, Signal},
};
use dormer_views::{actions::TRUST_HOST_KEY, rollout::Overridden};
use dormer_workflows::{Dormer, State};
pub(crate) use no_effect::ends_of_others;
use no_effect::{NoEffect, changes_nothing, refused_after_all};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Header in which the command line names the requester.
const USER_HEADER: &str = "x-dormer-user";
/// How long a request waits for an engine to record it.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);
/// Longest wait for the record that the audit names.
const LAST_RECORD_MAX: Duration = Duration::from_secs(1);
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
    /// Payload that a rollback goes back to, or went back to that is ended. In a plan: the manifest of a candidate payload.
    payload: Option<String>,
    /// Precondition of the end of a rollback: the one in force, as the requester saw it.
    overridden: Option<Overridden>,
    /// In a plan: a candidate layer.
    layer: Option<String>,
    /// The host key that is trusted from now on.
    fingerprint: Option<String>,
    /// Only check the request: it is refused as it would be, and otherwise nothing is sent.
    dry_run: bool,
    /// Notes for the audit; not part of the request.
    #[serde(skip)]
    notes: ActionNotes,
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

    /// Name of the requester.
    pub(super) fn requester(&self) -> &str {
        self.who.as_deref().unwrap_or_default()
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
            let given = self.fingerprint.as_deref().unwrap_or_default();
            ApiError::bad(
                format!("{given:?} is not the fingerprint of a host key"),
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
        let notes = request.extensions().get::<ActionNotes>().cloned();
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(IntoResponse::into_response)?;
        let body = Self::read(&headers, &bytes, caller.as_ref());
        let body = body.map_err(IntoResponse::into_response)?;
        let notes = notes.unwrap_or_default();
        if body.dry_run {
            notes.dry_run();
        }
        Ok(Self { notes, ..body })
    }
}

/// User name, cut at [`NAME_BYTES_MAX`].
fn shortened(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_BYTES_MAX)].to_owned()
}

/// Rejects cross-site requests. The browser of a foreign page sends JSON only after a CORS preflight.
fn guard(headers: &HeaderMap) -> Result<(), ApiError> {
    origin::check(headers, WithoutOrigin::Allowed)?;
    let value = headers.get(header::CONTENT_TYPE);
    let content_type = value.and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
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
        "end-rollback" => rollout::Signal::EndRollback,
        _ => return None,
    }))
}

/// Sends `signal` to `run`, waits until the history holds it, and answers the run. A dry run ends after the checks.
/// Otherwise the audit gets the run's last record, whatever the answer is.
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
    let to = run.id.clone();
    let dry_run = body.dry_run;
    let notes = body.notes.clone();
    let answer = confirmed(ports, run_cache, run, signal, body).await;
    if !dry_run {
        match timeout(LAST_RECORD_MAX, run_cache.last_record(&to)).await {
            Ok(Ok(Some(last))) => notes.record(last),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => {
                tracing::warn!(run = %to, %error, "the audit does not name the last record");
            }
            Err(_) => {
                tracing::warn!(run = %to, "the audit does not name the last record: the store does not answer");
            }
        }
    }
    answer
}

/// As [`ask`], without the audit.
async fn confirmed(
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
    let signal = match &request.ask {
        Ask::Signal(signal) => Some(signal.clone()),
        Ask::Reset { .. } => None,
    };
    if let Some(run) = taken(&run, &request.id, against, reset)? {
        return done(run, signal.as_ref());
    }
    if let Some(signal) = &signal
        && let Some(found) = changes_nothing(&run, ports.now(), signal)
    {
        return Err(refusal(&run, found));
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
            return done(run, signal.as_ref());
        }
    }
    match run_cache.quarantine(&to).await? {
        Some(found) => Err(ApiError::quarantined(&to, &found.code, &found.why)),
        None => Err(ApiError::not_confirmed(&id)),
    }
}

/// The run, unless the workflow refused the request that its history holds.
fn done(run: SharedRun, signal: Option<&Signal>) -> Result<SharedRun, ApiError> {
    match signal.and_then(|signal| refused_after_all(&run, signal)) {
        Some(found) => Err(refusal(&run, found)),
        None => Ok(run),
    }
}

/// Refusal of a request without effect.
fn refusal(run: &SharedRun, found: NoEffect) -> ApiError {
    let NoEffect { why, remedy } = found;
    let remedy = remedy.unwrap_or_else(|| {
        let see = match run.state {
            // `why` explains machines.
            State::Rollout(_) => format!("dormer describe rollout {}", run.id.key()),
            _ => "dormer why".to_owned(),
        };
        format!("{see} shows what it waits for")
    });
    ApiError::conflict(why, &remedy)
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

    #[tokio::test]
    async fn the_audit_tells_a_check_from_the_action() {
        use crate::access::{
            Gate, LoginMode, RightNamespaces, around,
            audit::{Audit, AuditTarget},
        };
        use axum::{Router, routing::post};
        use dormer_engine::{local::Local, memory::MemoryStore, port::SystemClock};
        use std::sync::Arc;
        use tower::ServiceExt;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("audit.log");
        let audit = Audit::open(&AuditTarget::File(file.clone()), true, None).expect("open");
        let homes = RightNamespaces::default();
        let gate = Gate::new(LoginMode::Nobody, homes, false, &[], None, Some(audit));
        let store = Arc::new(MemoryStore::new(dormer_proto::id::Incarnation(1)));
        let ports = Arc::new(Local::new(store, SystemClock));
        let api = crate::Api::over(ports, Arc::default(), None);
        let act = post(|_: Body| async { "done" });
        let actions = "/api/v1/machines/{machine}/actions/{action}";
        let router = around(Router::new().route(actions, act), api, gate);
        for body in ["{\"dryRun\": true}", "{\"dryRun\": false}", "{}"] {
            let request = HttpRequest::post("/api/v1/machines/win-1/actions/drain")
                .header(header::CONTENT_TYPE, "application/json")
                .body(axum::body::Body::from(body))
                .expect("a request");
            let answered = router.clone().oneshot(request).await.expect("an answer");
            assert_eq!(answered.status(), 200);
        }
        let text = std::fs::read_to_string(&file).expect("a file");
        let lines = text.lines().map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            format!(
                "{} {}",
                line["outcome"].as_str().unwrap_or_default(),
                line["dryRun"]
            )
        });
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                "allowed null",
                "answered true",
                "allowed null",
                "answered null",
                "allowed null",
                "answered null",
            ]
        );
    }

    /// Someone who cuts the end of a history off cannot take its last record out of the audit as well.
    #[tokio::test]
    async fn the_audit_names_the_last_record_of_the_run_and_its_mac() {
        use crate::access::{
            Gate, LoginMode, RightNamespaces, around,
            audit::{Audit, AuditTarget},
        };
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        use dormer_engine::{
            local::Local,
            memory::MemoryStore,
            port::{Append, Expected, History, SystemClock},
        };
        use dormer_engine_core::Record;
        use std::sync::Arc;
        use tower::ServiceExt;
        // Last record of a bring-up, which already has the request that is repeated.
        let text = include_str!("../../tests/histories/0.1/bring-up.jsonl");
        let last = text.lines().rev().find_map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let bytes = STANDARD.decode(line["record"]["envelope"].as_str()?);
            Some(bytes.expect("base64"))
        });
        let last = last.expect("a record");
        let (mut record, _) = envelope::decode::<Record<Dormer>>(&last, SCHEMA).expect("a record");
        record.run.requests.push_back("sent".into());
        let run = record.run.id.clone();
        let seq = record.run.seq;
        let (bytes, _) = envelope::encode(&record, SCHEMA).expect("a record");
        let append = Append {
            run: run.clone(),
            expected: Expected::Nothing,
            bytes: envelope::with_mac(&bytes, "1.key.bWFj").expect("an envelope"),
            seq,
            deadline: None,
            closed: None,
            quiet: true,
        };
        let store = Arc::new(MemoryStore::new(dormer_proto::id::Incarnation(1)));
        for appended in store.append(vec![append]).await {
            appended.expect("a record");
        }

        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("audit.log");
        let audit = Audit::open(&AuditTarget::File(file.clone()), true, None).expect("open");
        let homes = RightNamespaces::default();
        let gate = Gate::new(LoginMode::Nobody, homes, false, &[], None, Some(audit));
        let ports = Arc::new(Local::new(store, SystemClock));
        let api = crate::Api::over(ports, Arc::default(), None);
        let router = around(crate::router(Arc::clone(&api)), api, gate);
        for dry_run in [true, false] {
            let body = serde_json::json!({"id": "sent", "to": seq, "dryRun": dry_run});
            let request = HttpRequest::post(format!("/api/v1/runs/{run}/reset"))
                .header(header::CONTENT_TYPE, "application/json")
                .body(axum::body::Body::from(body.to_string()))
                .expect("a request");
            let answered = router.clone().oneshot(request).await.expect("an answer");
            assert_eq!(answered.status(), 200);
        }
        let text = std::fs::read_to_string(&file).expect("a file");
        let named = text.lines().map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            line["record"].clone()
        });
        let record = serde_json::json!({"run": run, "seq": seq, "mac": "1.key.bWFj"});
        assert_eq!(
            named.collect::<Vec<_>>(),
            [Value::Null, Value::Null, Value::Null, record]
        );
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
