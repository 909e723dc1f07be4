//! Transfer of bootstrap tokens from the approver to the worker, by a Secret for each machine in a namespace of its
//! own. The worker creates the Secret without content, with a question (`ASKED`). The approver reads the live Machine,
//! creates the token, writes it into the Secret and repeats the question (`ANSWERED`). The worker deletes the Secret
//! when the Node is marked, and the approver then deletes the token. So the worker needs no right to Secrets in
//! kube-system, and gets tokens only for machines that join. A token of an account is bound to its Secret, so one process
//! that is worker and approver makes that Secret, too.

use super::{
    KubernetesExecutor, Tokens,
    api::{MANAGER, call, call_if_there, mark_of},
    error::{CONFLICT, failure},
    fence::is_ready,
    keys, token,
};
use crate::source;
use dormer_proto::{
    machine::{MachineApi, MachineRef},
    message::{Failure, cut},
};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{
        DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
        Preconditions, WatchEvent, WatchParams,
    },
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep};
use zeroize::Zeroizing;

/// Type of these Secrets. It is no type of Kubernetes' own, so that no controller fills one.
pub const TYPE: &str = "dormer.io/join";
/// The Machine that the token is for, as JSON.
pub const MACHINE: &str = "dormer.io/join-machine";
/// The worker's question: its time.
pub const ASKED: &str = "dormer.io/join-asked";
/// The question that the approver answered last.
pub const ANSWERED: &str = "dormer.io/join-answered";
/// Reason for which the approver gave no token.
pub const REFUSED: &str = "dormer.io/join-refused";
/// Time after which the approver deletes the Secret, if the worker did not.
pub const UNTIL: &str = "dormer.io/join-until";
/// Key of the token in such a Secret.
const TOKEN: &str = "token";
/// Key of the ids of a machine's tokens (`account_token.rs`). Under `data`, which admission lets no worker write.
pub const CREDENTIALS: &str = "credentials";

/// Code of a failure: no approver answered.
pub const TOKEN_AWAITED: &str = "TokenAwaited";
/// Failure code: the approver refuses this machine a token.
pub const TOKEN_REFUSED: &str = "TokenRefused";

/// Time that an attempt waits for the approver. The next attempt asks again.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// First and longest pause between two reads of the answer.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Most restarts of a write that another writer crossed.
const ROUNDS_MAX: u32 = 4;
/// Age at which an unused Secret is deleted: the lifetime of a token.
const LIFE: SignedDuration = SignedDuration::from_hours(2);
/// Questions that are answered at once.
const AT_ONCE: usize = 16;
/// Length of one watch, in seconds. Then all Secrets are listed again, and expired ones are deleted.
const WATCH_S: u32 = 240;
/// Pause after a list or a watch that failed.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// What a Secret hands over.
pub(super) struct TokenSecret {
    pub(super) token: Zeroizing<String>,
    /// The ids that count for the machine, as its Secret keeps them; `None`: the token is no account's.
    pub(super) credentials: Option<String>,
}

/// Namespace of these Secrets, of the dormer in namespace `home`.
#[must_use]
pub fn namespace(home: &str) -> String {
    format!("{home}-join")
}

/// Name of a machine's Secret.
#[must_use]
pub fn name(uid: &str) -> String {
    format!("join-{uid}")
}

impl KubernetesExecutor {
    fn joining(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &namespace(&self.settings.namespace))
    }

    fn what_joins(&self, uid: &str) -> String {
        format!(
            "Secret {}/{}",
            namespace(&self.settings.namespace),
            name(uid)
        )
    }

    /// Requests a machine's token from the approver, and waits for the answer.
    pub(super) async fn ask_for_token(
        &self,
        machine: &MachineRef,
    ) -> Result<Zeroizing<String>, Failure> {
        let asked = Timestamp::now().to_string();
        self.ask(machine, &asked).await?;
        let until = Instant::now() + ANSWER_WITHIN;
        let mut pause = PAUSE;
        let what = self.what_joins(&machine.uid);
        loop {
            let found = self.join_secret(&machine.uid).await?;
            if let Some(found) = found.filter(|it| annotation(it, ANSWERED) == Some(&asked)) {
                return taken(&found, &what);
            }
            if Instant::now() >= until {
                let why = format!(
                    "no approver answered in {what} within {} s: is a dormer with the role approver running?",
                    ANSWER_WITHIN.as_secs()
                );
                // The host did nothing wrong, so that its attempts do not count.
                return Err(Failure {
                    uncounted: true,
                    ..Failure::transient(TOKEN_AWAITED, why)
                });
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks and answers in one process.
    pub(super) async fn ask_itself(
        &self,
        machine: &MachineRef,
    ) -> Result<Zeroizing<String>, Failure> {
        let asked = Timestamp::now().to_string();
        self.ask(machine, &asked).await?;
        if let Some(secret) = self.join_secret(&machine.uid).await? {
            self.answer(&secret).await?;
        }
        let what = self.what_joins(&machine.uid);
        let found = self.join_secret(&machine.uid).await?;
        let found = found.filter(|it| annotation(it, ANSWERED).is_some());
        found.map_or_else(
            || {
                let why = format!("{what} was deleted or changed meanwhile");
                Err(Failure::transient(TOKEN_AWAITED, why))
            },
            |found| taken(&found, &what),
        )
    }

    /// The Secret of the machine with this UID, if it is there.
    pub(super) async fn join_secret(&self, uid: &str) -> Result<Option<Secret>, Failure> {
        let what = self.what_joins(uid);
        call_if_there("get", &what, self.joining().get(&name(uid))).await
    }

    async fn ask(&self, machine: &MachineRef, asked: &str) -> Result<(), Failure> {
        for _ in 1..ROUNDS_MAX {
            match self.ask_once(machine, asked).await {
                Err(failure) if failure.code == CONFLICT => {}
                done => return done,
            }
        }
        self.ask_once(machine, asked).await
    }

    async fn ask_once(&self, machine: &MachineRef, asked: &str) -> Result<(), Failure> {
        let api = self.joining();
        let what = self.what_joins(&machine.uid);
        let name = name(&machine.uid);
        if call_if_there("get", &what, api.get(&name)).await?.is_some() {
            let change = json!({"metadata": {"annotations": {ASKED: asked}}});
            let params = by_us();
            let change = Patch::Merge(&change);
            let changed = api.patch(&name, &params, &change);
            if call_if_there("patch", &what, changed).await?.is_some() {
                return Ok(());
            }
        }
        let text = serde_json::to_string(machine)
            .map_err(|error| Failure::lasting("MachineUnreadable", error.to_string()))?;
        let annotations = [(MACHINE, text), (ASKED, asked.to_owned())];
        let made = Secret {
            metadata: ObjectMeta {
                name: Some(name),
                labels: Some(token::labels_of(&self.settings.namespace, &machine.uid)),
                annotations: Some(annotations.map(|(key, text)| (key.to_owned(), text)).into()),
                ..ObjectMeta::default()
            },
            type_: Some(TYPE.into()),
            ..Secret::default()
        };
        let params = PostParams::default();
        call("create", &what, api.create(&params, &made))
            .await
            .map(drop)
    }

    /// Ends the hand-over for a machine: the approver takes its token away then.
    pub(super) async fn end_join(&self, machine: &MachineRef) {
        let api = self.joining();
        let what = self.what_joins(&machine.uid);
        let params = DeleteParams::default();
        let name = name(&machine.uid);
        let gone = api.delete(&name, &params);
        if let Err(failure) = call_if_there("delete", &what, gone).await {
            let machine = &machine.name;
            let why = failure.message;
            tracing::warn!(machine, why, "its token stays until it ends by itself");
        }
    }

    /// Answers the workers' requests for tokens, as an approver. `tell` receives each problem, and `None` when there is
    /// none left.
    pub async fn run_token_grants(
        self,
        tell: impl Fn(Option<String>) + Send + Sync,
    ) -> std::convert::Infallible {
        loop {
            if let Err(failure) = self.give_tokens(&tell).await {
                let why = failure.message;
                tracing::warn!(
                    why,
                    "some requests for bootstrap tokens were not answered; trying again"
                );
                tell(Some(why));
                sleep(TRY_AGAIN).await;
            }
        }
    }

    /// Answers all present requests, then the new ones of one watch.
    async fn give_tokens(&self, tell: &(impl Fn(Option<String>) + Sync)) -> Result<(), Failure> {
        let api = self.joining();
        let what = format!("Secrets in {}", namespace(&self.settings.namespace));
        let ours = format!(
            "{}={},{}={}",
            keys::OURS.0,
            keys::OURS.1,
            keys::INSTANCE,
            self.settings.namespace
        );
        let params = ListParams::default().labels(&ours);
        let found = call("list", &what, api.list(&params)).await?;
        let since = found.metadata.resource_version.unwrap_or_default();
        let all = found.items.into_iter().map(|secret| (secret, true));
        self.answer_all(all).await?;
        tell(None);
        let params = WatchParams::default().labels(&ours).timeout(WATCH_S);
        let events = call("watch", &what, api.watch(&params, &since)).await?;
        let mut events = std::pin::pin!(events.ready_chunks(AT_ONCE));
        while let Some(events) = events.next().await {
            // Only the last event of each Secret counts: an older event must not delete the token of a new question.
            let mut last = BTreeMap::new();
            for event in events {
                match event {
                    Ok(WatchEvent::Added(secret) | WatchEvent::Modified(secret)) => {
                        last.insert(secret.name_any(), (secret, true));
                    }
                    Ok(WatchEvent::Deleted(secret)) => {
                        last.insert(secret.name_any(), (secret, false));
                    }
                    // After an error they are listed again.
                    Ok(WatchEvent::Bookmark(_) | WatchEvent::Error(_)) => {}
                    Err(error) => return Err(failure("watch", &what, &error)),
                }
            }
            self.answer_all(last.into_values()).await?;
        }
        Ok(())
    }

    /// Answers the existing Secrets, and deletes the tokens of machines without one. Returns the first error; the rest
    /// was done.
    async fn answer_all(&self, all: impl Iterator<Item = (Secret, bool)>) -> Result<(), Failure> {
        let answers = all.map(|(secret, there)| async move {
            match there {
                true => self.answer(&secret).await,
                false => self.joined(&secret).await,
            }
        });
        let done = futures::stream::iter(answers).buffer_unordered(AT_ONCE);
        done.fold(Ok(()), |first, done| async { first.and(done) })
            .await
    }

    /// Answers the question in a Secret, if it has one that is not answered. One that ended is deleted.
    async fn answer(&self, secret: &Secret) -> Result<(), Failure> {
        let asked = annotation(secret, ASKED);
        if asked.is_none() || asked == annotation(secret, ANSWERED) {
            return self.delete_if_ended(secret).await;
        }
        let now = Timestamp::now();
        let content = match self.token_for(secret).await {
            Ok(handed) => {
                let token = ByteString(handed.token.as_bytes().to_vec());
                let ids = handed.credentials.map(|it| ByteString(it.into_bytes()));
                json!({"data": {TOKEN: token, CREDENTIALS: ids},
                    "metadata": {"annotations": {REFUSED: Value::Null}}})
            }
            Err(failure) => {
                let why = cut(failure.message);
                json!({"data": {TOKEN: Value::Null}, "metadata": {"annotations": {REFUSED: why}}})
            }
        };
        let mut change = content;
        change["metadata"]["annotations"][ANSWERED] = json!(asked);
        change["metadata"]["annotations"][UNTIL] = (now + LIFE).to_string().into();
        // With the resourceVersion that was read, so that only one of two approvers answers.
        change["metadata"]["resourceVersion"] = secret.resource_version().into();
        let api = self.joining();
        let name = secret.name_any();
        let what = format!("Secret {}/{name}", namespace(&self.settings.namespace));
        let params = by_us();
        let change = Patch::Merge(&change);
        let written = api.patch(&name, &params, &change);
        match call_if_there("patch", &what, written).await {
            Err(failure) if failure.code != CONFLICT => Err(failure),
            _ => Ok(()),
        }
    }

    /// The token for the machine of a Secret, if that machine is one that joins.
    async fn token_for(&self, secret: &Secret) -> Result<TokenSecret, Failure> {
        let machine = machine_of(secret)
            .ok_or_else(|| Failure::lasting(TOKEN_REFUSED, "the Secret names no machine"))?;
        let refused = |why: String| Failure::transient(TOKEN_REFUSED, why);
        let object = self.machine(&machine).await?;
        let object = object.ok_or_else(|| refused("its Machine is gone".into()))?;
        may_join(&object, machine.api).map_err(refused)?;
        let linked = object.data["status"]["nodeRef"]["name"].as_str();
        let noted = object.annotations().get(keys::NODE_NAME);
        if let Some(name) = linked.or(noted.map(String::as_str))
            && let Some(node) = self.node(name).await?
        {
            let marks = [mark_of(&object), mark_of(&node)];
            let open = marks.into_iter().flatten().any(|mark| mark.open);
            if is_ready(&node) && !open {
                return Err(refused(format!("its Node {name} is Ready: it has joined")));
            }
        }
        let token = match self.settings.tokens {
            Tokens::Account => return self.account_token(secret).await,
            Tokens::Bootstrap => self.token_of(&machine).await?,
            Tokens::Shared => self.shared_token().await?,
        };
        Ok(TokenSecret {
            token,
            credentials: None,
        })
    }

    /// Takes the token of a machine away whose Secret is gone.
    async fn joined(&self, secret: &Secret) -> Result<(), Failure> {
        match machine_of(secret).filter(|_| self.settings.tokens == Tokens::Bootstrap) {
            Some(machine) => self.forget_once(&machine).await,
            None => Ok(()),
        }
    }

    async fn delete_if_ended(&self, secret: &Secret) -> Result<(), Failure> {
        let until = annotation(secret, UNTIL).and_then(|text| text.parse::<Timestamp>().ok());
        if until.is_none_or(|until| until > Timestamp::now()) {
            return Ok(());
        }
        let name = secret.name_any();
        let what = format!("Secret {}/{name}", namespace(&self.settings.namespace));
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: secret.uid(),
            resource_version: secret.resource_version(),
        });
        let api = self.joining();
        match call_if_there("delete", &what, api.delete(&name, &params)).await {
            Err(failure) if failure.code != CONFLICT => Err(failure),
            _ => Ok(()),
        }
    }
}

/// Whether a machine may have a token at all: a Windows machine with a host that is neither being deleted nor left to
/// another operator.
fn may_join(machine: &DynamicObject, api: MachineApi) -> Result<(), String> {
    if machine.metadata.deletion_timestamp.is_some() {
        return Err("its Machine is being deleted".into());
    }
    if !source::is_windows(api, &machine.metadata) {
        let label = source::windows_label(api);
        return Err(format!("its Machine has no label {label}"));
    }
    if keys::ignored(machine) {
        return Err(format!("its Machine is labelled {}=true", keys::IGNORE));
    }
    match machine.data["status"]["phase"].as_str() {
        Some("Provisioned" | "Running") => Ok(()),
        phase => Err(format!(
            "its Machine is in phase {}",
            phase.unwrap_or("unknown")
        )),
    }
}

/// Machine of a Secret, if the Secret is the one of that machine.
fn machine_of(secret: &Secret) -> Option<MachineRef> {
    let machine: MachineRef = serde_json::from_str(annotation(secret, MACHINE)?).ok()?;
    let labelled = secret.labels().get(keys::MACHINE_UID) == Some(&machine.uid);
    (labelled && secret.name_any() == name(&machine.uid)).then_some(machine)
}

/// The token in an answered Secret.
fn taken(secret: &Secret, what: &str) -> Result<Zeroizing<String>, Failure> {
    if let Some(why) = annotation(secret, REFUSED) {
        let why = format!("the approver gives no bootstrap token: {why}");
        return Err(Failure::transient(TOKEN_REFUSED, why));
    }
    token_in(secret).ok_or_else(|| {
        Failure::transient(
            "BootstrapUnusable",
            format!("{what} has no text under {TOKEN}"),
        )
    })
}

/// What the approver handed over for the machine last, if it is text.
pub(super) fn token_in(secret: &Secret) -> Option<Zeroizing<String>> {
    let ByteString(bytes) = secret.data.as_ref()?.get(TOKEN)?;
    String::from_utf8(bytes.clone()).ok().map(Zeroizing::new)
}

fn annotation<'a, K: Resource>(object: &'a K, key: &str) -> Option<&'a String> {
    object.meta().annotations.as_ref()?.get(key)
}

fn by_us() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(machine: &MachineRef, uid: &str) -> Secret {
        let text = serde_json::to_string(machine).expect("a text");
        let metadata = ObjectMeta {
            name: Some(name(uid)),
            labels: Some(token::labels_of("dormer", uid)),
            annotations: Some([(MACHINE.to_owned(), text)].into()),
            ..ObjectMeta::default()
        };
        Secret {
            metadata,
            ..Secret::default()
        }
    }

    #[test]
    fn a_secret_is_for_the_machine_of_its_name_only() {
        let machine = MachineRef {
            uid: "u-1".into(),
            ..MachineRef::default()
        };
        assert_eq!(machine_of(&secret(&machine, "u-1")), Some(machine.clone()));
        assert_eq!(machine_of(&secret(&machine, "u-2")), None);
        assert_eq!(machine_of(&Secret::default()), None);
    }

    #[test]
    fn an_answer_is_a_token_or_a_reason() {
        let mut answer = secret(&MachineRef::default(), "u");
        let code = |answer: &Secret| taken(answer, "it").map_err(|failure| failure.code);
        assert_eq!(code(&answer), Err("BootstrapUnusable".into()));
        answer.data = Some([(TOKEN.to_owned(), ByteString(b"a.b".to_vec()))].into());
        assert_eq!(code(&answer).as_ref().map(|it| it.as_str()), Ok("a.b"));
        answer.annotations_mut().insert(REFUSED.into(), "no".into());
        assert_eq!(code(&answer), Err(TOKEN_REFUSED.into()));
    }
}
