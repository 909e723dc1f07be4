//! A rollout on paper: inputs in, and a transcript of what it tells its machines and where it then stands.

#![allow(dead_code, reason = "each test file uses a part of it")]

use dormer_engine_core::{Command, Input, Now, Sender, Workflow};
use dormer_proto::phase::Unavailable;
use dormer_proto::{
    id::{LeaseToken, RunId, Seq, Timestamp},
    machine::{self, TokenMark},
    message::{Failure, ObjectRef, Refusal},
    pool::{Desired, MaxUnavailable, PoolSettings, Terms},
    rollout::{Fact, MemberReport, NotCompared, OwnedMachine, OwnerFact, Signal},
    work,
};
use dormer_workflows::rollout::{Enrolment, Rollout, State, Timer};
use std::fmt::Write as _;

/// The owner of every member, unless a test says otherwise.
pub(crate) const SET: &str = "set";

/// A rollout and its transcript.
pub(crate) struct Pool {
    pub(crate) state: State,
    pub(crate) text: String,
    /// Whether the cluster autoscaler scales its set.
    pub(crate) autoscaled: bool,
    seq: u64,
    at: u64,
}

impl Pool {
    /// A rollout that has received nothing.
    pub(crate) fn new() -> Self {
        Self {
            state: State::default(),
            text: String::new(),
            autoscaled: false,
            seq: 0,
            at: 0,
        }
    }

    /// A rollout whose `members` all serve, one at a time; its transcript begins after that.
    pub(crate) fn of(members: &[&str]) -> Self {
        let mut pool = Self::new();
        pool.settings(PoolSettings::default())
            .owner(members.len(), members, &[])
            .listed(members);
        for member in members {
            pool.member(member, serving());
        }
        assert_eq!(pool.state.enrolment, Enrolment::Complete);
        pool.text.clear();
        pool
    }

    pub(crate) fn decide(&mut self, input: Input<Rollout>) -> Vec<Command<Rollout>> {
        self.seq += 1;
        self.at += 1_000;
        let run = RunId::new(work::ROLLOUT, "windows").unwrap();
        let now = Now {
            run: &run,
            seq: Seq(self.seq),
            at: Timestamp(self.at),
        };
        let decision = Rollout::decide(now, std::mem::take(&mut self.state), input);
        self.state = decision.state;
        decision.commands
    }

    /// One input, with `what` as its line in the transcript.
    pub(crate) fn feed(&mut self, what: &str, input: Input<Rollout>) -> &mut Self {
        let commands = self.decide(input);
        let _ = writeln!(self.text, "{what}");
        for command in &commands {
            let _ = writeln!(self.text, "    → {}", spell(command));
        }
        let _ = writeln!(self.text, "    {}", state_line(&self.state));
        self
    }

    pub(crate) fn wait_ms(&mut self, ms: u64) -> &mut Self {
        self.at += ms;
        self
    }

    pub(crate) fn signal(&mut self, from: &str, what: &str, signal: Signal) -> &mut Self {
        let what = format!("{from}: {what}");
        self.feed(&what, signalled(from, signal))
    }

    pub(crate) fn member(&mut self, who: &str, report: MemberReport) -> &mut Self {
        let what = spell_report(&report);
        self.signal(who, &what, Signal::Member(report))
    }

    pub(crate) fn request(&mut self, who: &str) -> &mut Self {
        self.request_as(who, serving())
    }

    pub(crate) fn request_as(&mut self, who: &str, report: MemberReport) -> &mut Self {
        let what = format!("request ({})", spell_report(&report));
        self.signal(who, &what, Signal::Request { report })
    }

    /// The holder closed its token, and serves.
    pub(crate) fn release(&mut self, who: &str, token: u64) -> &mut Self {
        let token = LeaseToken(token);
        let signal = Signal::Release {
            token,
            replaced: false,
            deleted: None,
        };
        self.signal(who, &format!("release {token}"), signal)
    }

    /// The holder's Machine is gone.
    pub(crate) fn replace(&mut self, who: &str, token: u64, deleted: u64) -> &mut Self {
        let token = LeaseToken(token);
        let deleted = Some(Timestamp(deleted));
        let signal = Signal::Release {
            token,
            replaced: true,
            deleted,
        };
        self.signal(who, &format!("release {token}, replaced"), signal)
    }

    /// A member's Machine is gone; `gap`: it had a Node, and another client deleted it.
    pub(crate) fn left(&mut self, who: &str, gap: bool, deleted: u64) -> &mut Self {
        let owner = Some(SET.to_owned());
        let deleted = Some(Timestamp(deleted));
        let what = if gap { "left, a gap" } else { "left" };
        self.signal(
            who,
            what,
            Signal::Left {
                owner,
                gap,
                stays: false,
                never_served: false,
                token: None,
                deleted,
            },
        )
    }

    /// A person closed the run; the Machine stays.
    pub(crate) fn closed(&mut self, who: &str) -> &mut Self {
        let owner = Some(SET.to_owned());
        let left = Signal::Left {
            owner,
            gap: false,
            stays: true,
            never_served: false,
            token: None,
            deleted: None,
        };
        self.signal(who, "its run is closed", left)
    }

    /// The Machine of a member that never served is to be ignored; or it was, and serves by other hands.
    pub(crate) fn ignored(&mut self, who: &str, never_served: bool) -> &mut Self {
        let left = Signal::Left {
            owner: Some(SET.to_owned()),
            gap: false,
            stays: true,
            never_served,
            token: None,
            deleted: None,
        };
        let what = match never_served {
            true => "it is to be ignored, and never served",
            false => "it is to be ignored, and serves",
        };
        self.signal(who, what, left)
    }

    pub(crate) fn person(&mut self, signal: Signal) -> &mut Self {
        let who = || Sender::Person {
            who: "ann".into(),
            why: "the weekend".into(),
        };
        let what = format!("ann: {signal:?}");
        self.feed(
            &what,
            Input::Signalled {
                from: who(),
                signal: work::Signal::Rollout(signal),
            },
        )
    }

    pub(crate) fn settings(&mut self, settings: PoolSettings) -> &mut Self {
        let limit = settings.max_unavailable;
        let paused = settings.paused;
        let what = format!(
            "settings: {limit:?}{}",
            if paused { ", paused" } else { "" }
        );
        self.feed(&what, observed(Fact::Pool(settings)))
    }

    pub(crate) fn limit(&mut self, limit: MaxUnavailable) -> &mut Self {
        self.settings(PoolSettings {
            max_unavailable: limit,
            ..PoolSettings::default()
        })
    }

    pub(crate) fn owner(&mut self, replicas: usize, stay: &[&str], go: &[&str]) -> &mut Self {
        let listed = stay.iter().map(|uid| owned(uid, false));
        let machines: Vec<_> = listed
            .chain(go.iter().map(|uid| owned(uid, true)))
            .collect();
        let names: Vec<_> = machines.iter().map(spell_owned).collect();
        let what = format!("owner: {replicas} wanted, has {}", names.join(" "));
        let replicas = u32::try_from(replicas).unwrap();
        let fact = OwnerFact {
            autoscaled: self.autoscaled,
            uid: SET.into(),
            name: "winset".into(),
            replicas,
            machines,
            ready: None,
            available: None,
        };
        self.feed(&what, observed(Fact::Owner(fact)))
    }

    pub(crate) fn owner_gone(&mut self) -> &mut Self {
        let object = object(SET);
        self.feed("owner: gone", Input::Observed { object, fact: None })
    }

    pub(crate) fn listed(&mut self, with_node: &[&str]) -> &mut Self {
        let what = format!("a full list: {} have a Node", with_node.join(" "));
        let with_node = with_node.iter().map(|uid| (*uid).to_owned()).collect();
        let sets = None;
        self.feed(&what, observed(Fact::Listed { with_node, sets }))
    }

    /// A full list that also says which MachineSets stand.
    pub(crate) fn listed_sets(&mut self, with_node: &[&str], sets: &[&str]) -> &mut Self {
        let what = format!("a full list: MachineSets {}", sets.join(" "));
        let owned = |uids: &[&str]| uids.iter().map(|uid| (*uid).to_owned()).collect();
        let with_node = owned(with_node);
        let sets = Some(owned(sets));
        self.feed(&what, observed(Fact::Listed { with_node, sets }))
    }

    pub(crate) fn refused(
        &mut self,
        who: &str,
        signal: machine::Signal,
        why: Refusal,
    ) -> &mut Self {
        let what = format!("{who}: refuses {}, {why:?}", spell_signal(&signal));
        let to = work::machine_run(who).unwrap();
        self.feed(
            &what,
            Input::Refused {
                to,
                signal: work::Signal::Machine(signal),
                why,
            },
        )
    }

    /// The rollback was, or could not be, written.
    pub(crate) fn written(&mut self, payload: &str, failure: Option<&str>) -> &mut Self {
        let task = machine::Task::SetPayload {
            pool: "windows".into(),
            payload: payload.into(),
            back_from: "11.1.0".into(),
            instead: None,
            by: "ann: the weekend".into(),
        };
        let failure = failure.map(|why| Failure::lasting("Forbidden", why));
        self.set(task, failure)
    }

    /// An ended rollback was, or could not be, taken out of the pool's status.
    pub(crate) fn cleared(&mut self, written: &str, failure: Option<Failure>) -> &mut Self {
        let task = machine::Task::SetPayload {
            pool: "windows".into(),
            payload: written.into(),
            back_from: written.into(),
            instead: Some(written.into()),
            by: String::new(),
        };
        self.set(task, failure)
    }

    /// The rollback of the payload `written` was, or could not be, ended as ann requested.
    pub(crate) fn ended(&mut self, written: &str, failure: Option<Failure>) -> &mut Self {
        let task = machine::Task::SetPayload {
            pool: "windows".into(),
            payload: written.into(),
            back_from: written.into(),
            instead: Some(written.into()),
            by: "ann: the weekend".into(),
        };
        self.set(task, failure)
    }

    fn set(&mut self, task: machine::Task, failure: Option<Failure>) -> &mut Self {
        match failure {
            None => {
                let outcome = machine::Outcome::PayloadSet;
                self.feed("set-payload is done", Input::Finished { task, outcome })
            }
            Some(failure) => self.feed(
                "set-payload is given up",
                Input::Exhausted { task, failure },
            ),
        }
    }

    pub(crate) fn fired(&mut self, timer: Timer) -> &mut Self {
        self.feed(&format!("timer {timer:?}"), Input::Fired(timer))
    }
}

/// How a Machine's UID says when it was created: `r@20` at 20 s, all others at 1 s.
fn created(uid: &str) -> Timestamp {
    Timestamp(uid.split_once('@').map_or(1, |(_, at)| at.parse().unwrap()) * 1_000)
}

fn owned(uid: &str, deleting: bool) -> OwnedMachine {
    OwnedMachine {
        uid: uid.to_owned(),
        created: created(uid),
        deleting,
    }
}

fn spell_owned(machine: &OwnedMachine) -> String {
    format!(
        "{}{}",
        machine.uid,
        if machine.deleting { "(going)" } else { "" }
    )
}

pub(crate) fn serving() -> MemberReport {
    MemberReport {
        owner: Some(SET.into()),
        created: Timestamp(1_000),
        had_node: true,
        joined: true,
        ..MemberReport::default()
    }
}

/// One that had a Node, and does not serve now.
pub(crate) fn down() -> MemberReport {
    MemberReport {
        unavailable: true,
        ..serving()
    }
}

/// One that had a Node, and has not served for as long as the pool's `repairAfter`.
pub(crate) fn long_down() -> MemberReport {
    MemberReport {
        repair: true,
        ..down()
    }
}

/// One that serves, and whose host cannot be compared.
pub(crate) fn not_compared(code: &str) -> MemberReport {
    MemberReport {
        not_compared: Some(NotCompared {
            code: code.into(),
            message: "it did not work.".into(),
            shown_key: None,
        }),
        ..serving()
    }
}

/// One that had a Node, which another client cordoned.
pub(crate) fn cordoned() -> MemberReport {
    MemberReport {
        cordoned: true,
        ..down()
    }
}

/// One that had a Node, and has failed.
pub(crate) fn failed() -> MemberReport {
    MemberReport {
        failed: true,
        joined: false,
        ..down()
    }
}

/// One whose Machine is being deleted.
pub(crate) fn going() -> MemberReport {
    MemberReport {
        deleting: true,
        joined: false,
        ..down()
    }
}

/// One whose next payload may not follow the one that it carries.
pub(crate) fn barred() -> MemberReport {
    MemberReport {
        barred: true,
        ..serving()
    }
}

/// Settings that want the payload 11.1.0, which may follow 11.0.0.
pub(crate) fn wanting(terms: Terms) -> PoolSettings {
    let desired = Desired {
        version: "11.1.0-0123456789ab".into(),
        payload: "11.1.0".into(),
    };
    PoolSettings {
        desired: [("*".to_owned(), desired)].into(),
        terms: [("11.1.0".to_owned(), terms)].into(),
        ..PoolSettings::default()
    }
}

/// The terms of such a payload, with the one before it at hand.
pub(crate) fn terms() -> Terms {
    let before = vec!["11.0.0".to_owned()];
    Terms {
        may_follow: before.clone(),
        installed: before,
        ..Terms::default()
    }
}

/// A new Machine on its way to its first Node.
pub(crate) fn coming(at: u64) -> MemberReport {
    MemberReport {
        created: Timestamp(at * 1_000),
        had_node: false,
        joined: false,
        ..serving()
    }
}

/// One that carries an open token.
pub(crate) fn carrying(token: u64) -> MemberReport {
    MemberReport {
        token: Some(TokenMark {
            token: LeaseToken(token),
            open: true,
        }),
        ..down()
    }
}

pub(crate) fn granted(token: u64) -> machine::Signal {
    machine::Signal::Granted {
        token: LeaseToken(token),
        over_limit: false,
    }
}

pub(crate) fn signalled(from: &str, signal: Signal) -> Input<Rollout> {
    let from = Sender::Run(work::machine_run(from).unwrap());
    Input::Signalled {
        from,
        signal: work::Signal::Rollout(signal),
    }
}

pub(crate) fn object(uid: &str) -> ObjectRef {
    ObjectRef {
        cluster: String::new(),
        kind: "MachineSet".into(),
        uid: uid.into(),
    }
}

pub(crate) fn observed(fact: Fact) -> Input<Rollout> {
    Input::Observed {
        object: object("any"),
        fact: Some(work::Fact::Rollout(fact)),
    }
}

fn spell_report(report: &MemberReport) -> String {
    let words = [
        (report.owner.is_none(), "ownerless".to_owned()),
        (report.joined && !report.unavailable, "serving".to_owned()),
        (report.joined && report.unavailable, "down".to_owned()),
        (report.failed, "failed".to_owned()),
        (report.deleting, "being deleted".to_owned()),
        (
            !report.had_node,
            format!("never served, of {} s", report.created.0 / 1_000),
        ),
        (report.token.is_some(), format!("{:?}", report.token)),
        (report.barred, "barred".to_owned()),
        (report.cordoned, "cordoned".to_owned()),
        (report.repair, "for long".to_owned()),
        (report.by_request, "asked for by a person".to_owned()),
        (
            report.not_compared.is_some(),
            format!(
                "not compared ({})",
                report.not_compared.as_ref().map_or("", |it| &it.code)
            ),
        ),
    ];
    let words: Vec<_> = words
        .into_iter()
        .filter(|(so, _)| *so)
        .map(|(_, word)| word)
        .collect();
    words
        .join(", ")
        .replace("Some(TokenMark { token: LeaseToken(", "token ")
        .replace("), open: true })", " open")
        .replace("), open: false })", " closed")
}

fn spell_signal(signal: &machine::Signal) -> String {
    match signal {
        machine::Signal::Granted {
            token,
            over_limit: false,
        } => format!("granted {token}"),
        machine::Signal::Granted {
            token,
            over_limit: true,
        } => format!("granted {token}, marked"),
        machine::Signal::Replaced { by: Some(by) } => format!("replaced by {by}"),
        machine::Signal::Replaced { by: None } => "none will come".to_owned(),
        signal => format!("{signal:?}").to_lowercase(),
    }
}

pub(crate) fn spell(command: &Command<Rollout>) -> String {
    match command {
        Command::Signal(to, work::Signal::Machine(signal)) => {
            format!("{}: {}", to.key(), spell_signal(signal))
        }
        Command::Forget(run) => format!("forget {}", run.key()),
        Command::ForgetFact(object) => format!("not taken in: {} {}", object.kind, object.uid),
        Command::StartTimer(timer, ms) => format!("timer {timer:?} in {} s", ms / 1_000),
        Command::BeginEpisode(kind) => format!("episode {kind:?} begins"),
        Command::Run(task, _) => format!("{}: {task:?}", task.name()),
        Command::EndEpisode(_) => "episode ends".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Where a rollout stands, in one line.
pub(crate) fn state_line(state: &State) -> String {
    let view = state.view();
    let limit = view
        .max_unavailable
        .map_or("?".to_owned(), |limit| limit.to_string());
    let away = view
        .away
        .iter()
        .map(|away| format!(" {} {}", away.uid, spell_why(away.why)));
    let queue = view.queue.iter().map(|waiting| format!(" {}", waiting.uid));
    let mut line = format!("{} {}/{limit}", view.state, view.unavailable);
    line.extend(away);
    if !view.queue.is_empty() {
        line.push_str("; queue");
        line.extend(queue);
    }
    if let Some(halted) = view.halted {
        let _ = write!(line, "; halted: {halted}");
    }
    if let Some(rollback) = view.rollback {
        let _ = write!(line, "; {rollback}");
    }
    if let Some(waits) = view.waiting_for {
        let _ = write!(line, "; waits for {waits}");
    }
    line
}

fn spell_why(why: Unavailable) -> &'static str {
    match why {
        Unavailable::Holds => "holds",
        Unavailable::Replaced => "to be replaced",
        Unavailable::Gap => "missing",
        Unavailable::OpenToken => "has an open token",
        Unavailable::Deleting => "going",
        Unavailable::Failed => "failed",
        Unavailable::Cordoned => "cordoned",
        Unavailable::Down => "down",
    }
}
