//! A machine's run as a story: inputs go in, and what the run is and asks for comes out as text.
#![allow(dead_code, reason = "each test uses its own part of the common words")]

use dormer_engine_core::{Command, Decision, Input, Now, Sender, Workflow};
use dormer_proto::{
    id::{LeaseToken, RunId, Seq, Timestamp},
    machine::{
        self, ChangeClass, CsrFact, HostFacts, HostFence, MachineFact, MachineRef, NodeFact,
        Outcome, Owner, Section, Signal, Task,
    },
    message::{Failure, ObjectRef},
    pool::{Desired, PoolSettings, Strategy, Terms},
    rollout,
    work::{self, Fact},
};
use dormer_workflows::machine::{Machine, State};

pub(crate) type In = Input<Machine>;

/// A run, and what was said so far.
pub(crate) struct Story {
    pub(crate) state: State,
    pub(crate) at: u64,
    seq: u64,
    pub(crate) text: String,
    /// Tasks asked for and not answered.
    pub(crate) open: Vec<Task>,
}

impl Story {
    /// A run that was just begun by seeing its Machine.
    pub(crate) fn begin(machine: MachineFact) -> Self {
        let mut story = Self {
            state: State::default(),
            at: 0,
            seq: 0,
            text: String::new(),
            open: Vec::new(),
        };
        story.quietly(Input::Started);
        story.feed("the Machine is seen", machine_is(machine));
        story
    }

    pub(crate) fn quietly(&mut self, input: In) -> Vec<Command<Machine>> {
        self.seq += 1;
        let run = work::machine_run("uid-a").unwrap();
        let now = Now {
            run: &run,
            seq: Seq(self.seq),
            at: Timestamp(self.at),
        };
        let Decision { state, commands } =
            Machine::decide(now, std::mem::take(&mut self.state), input);
        self.state = state;
        for command in &commands {
            match command {
                Command::CancelTasks | Command::Complete => self.open.clear(),
                Command::Run(task, _) => self.open.push(task.clone()),
                _ => {}
            }
        }
        commands
    }

    /// Time passes.
    pub(crate) fn later_ms(&mut self, ms: u64) -> &mut Self {
        self.at += ms;
        self
    }

    /// Tells what happens, and writes down what follows.
    pub(crate) fn feed(&mut self, what: &str, input: In) -> &mut Self {
        if let Input::Finished { task, .. } | Input::Exhausted { task, .. } = &input
            && let Some(at) = self.open.iter().position(|open| open == task)
        {
            self.open.remove(at);
        }
        let commands = self.quietly(input);
        self.text += &format!(
            "> {what}\n  {}: {}\n",
            Machine::label(&self.state),
            self.state.phase.name()
        );
        for command in commands {
            self.text += &format!("    {}\n", show(&command));
        }
        self
    }

    /// The oldest open task whose name is `name` is answered.
    pub(crate) fn done(&mut self, name: &str, outcome: Outcome) -> &mut Self {
        let task = self.task(name);
        self.feed(
            &format!("{name} is done"),
            Input::Finished { task, outcome },
        )
    }

    /// The oldest open task whose name is `name` is given up.
    pub(crate) fn given_up(&mut self, name: &str, code: &str) -> &mut Self {
        let task = self.task(name);
        let failure = Failure::lasting(code, format!("{name} did not work"));
        self.feed(
            &format!("{name} is given up: {code}"),
            Input::Exhausted { task, failure },
        )
    }

    pub(crate) fn task(&self, name: &str) -> Task {
        let found = self.open.iter().find(|task| task.name() == name);
        found
            .unwrap_or_else(|| panic!("no {name} is open, but {:?}\n{}", self.names(), self.text))
            .clone()
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.open.iter().map(Task::name).collect()
    }

    pub(crate) fn person(&mut self, signal: Signal) -> &mut Self {
        let from = Sender::Person {
            who: "ada".into(),
            why: "on call".into(),
        };
        let what = format!("ada: {signal:?}");
        self.feed(
            &what,
            Input::Signalled {
                from,
                signal: work::Signal::Machine(signal),
            },
        )
    }

    /// A person asks for something, with a reason.
    pub(crate) fn says(&mut self, who: &str, why: &str, signal: Signal) -> &mut Self {
        let from = Sender::Person {
            who: who.into(),
            why: why.into(),
        };
        let what = format!("{who}: {signal:?}");
        let signal = work::Signal::Machine(signal);
        self.feed(&what, Input::Signalled { from, signal })
    }

    pub(crate) fn granted(&mut self, token: u64, over_limit: bool) -> &mut Self {
        let from = Sender::Run(work::rollout_run("windows").unwrap());
        let signal = Signal::Granted {
            token: LeaseToken(token),
            over_limit,
        };
        let what = format!(
            "the lease is granted: token {token}{}",
            if over_limit { ", over the limit" } else { "" }
        );
        self.feed(
            &what,
            Input::Signalled {
                from,
                signal: work::Signal::Machine(signal),
            },
        )
    }

    /// From the first fact to Joined at `v1`, quietly.
    pub(crate) fn joined(pool: PoolSettings) -> Self {
        let mut story = Self::begin(machine());
        story.up(pool);
        story.text.clear();
        story
    }

    /// Brings the machine up to Joined.
    pub(crate) fn up(&mut self, pool: PoolSettings) {
        self.feed("the pool's settings are seen", pool_is(pool))
            .done("probe", probed())
            .done("converge-host", converged(Section::Host, false))
            .feed(
                "the Machine has a Node",
                machine_is(MachineFact {
                    node: Some("win-a".into()),
                    ..machine()
                }),
            )
            .feed("the Node is seen", node_is(node()))
            .done("converge-node", converged(Section::Node, false))
            .feed("the Node is Ready", node_is(ready()))
            .feed(
                "the soak is over",
                Input::Fired(dormer_workflows::machine::Timer::Soak),
            )
            .done("mark-node", Outcome::NodeMarked)
            .feed("the Node carries the version", node_is(carrying("v1")));
    }

    /// From Joined at `v1` to the lease for `v2`.
    pub(crate) fn wants_v2(&mut self, class: ChangeClass) -> &mut Self {
        self.feed("the pool wants v2", pool_is(wanting("v2")))
            .done("plan", planned(Some(class)))
    }
}

pub(crate) fn show(command: &Command<Machine>) -> String {
    match command {
        Command::Run(task, _) => format!("run {}{}", task.name(), detail(task)),
        Command::CancelTasks => "cancel every task".into(),
        Command::AttemptNow => "next attempts now".into(),
        Command::FireNow(timer) => format!("wait no longer ({timer:?})"),
        Command::StartTimer(timer, ms) => {
            format!("wait {}.{:03} s ({timer:?})", ms / 1_000, ms % 1_000)
        }
        Command::CancelTimer(timer) => format!("wait no more ({timer:?})"),
        Command::Signal(to, work::Signal::Rollout(signal)) => {
            format!("tell {to}: {}", signal_text(signal))
        }
        Command::Signal(to, signal) => format!("tell {to}: {signal:?}"),
        Command::Forget(run) => format!("forget {run}"),
        Command::ForgetFact(object) => format!("not taken in: {} {}", object.kind, object.uid),
        Command::BeginEpisode(kind) => format!("episode begins: {kind}"),
        Command::EndEpisode(result) => format!("episode ends: {result}"),
        Command::Complete => "over".into(),
    }
}

fn detail(task: &Task) -> String {
    match task {
        Task::Probe { host } => format!(" of {}{}", host.address, pinned(host.pin.as_deref())),
        Task::Converge {
            host,
            desired,
            generation,
            ..
        } => {
            format!(
                " of {} to {}, generation {generation}",
                host.address, desired.version
            )
        }
        Task::Plan { desired, adopt, .. } => {
            format!(
                " against {}{}",
                desired.version,
                if *adopt { ", adopting" } else { "" }
            )
        }
        Task::Reboot { boot_id, .. } => format!(" unless {boot_id} has ended"),
        Task::ApproveCsr { csr, .. } => format!(" {csr}"),
        Task::MarkNode { node, version, .. } => format!(" {node} with {version}"),
        Task::OpenFence {
            token,
            over_limit,
            cordon,
            ..
        } => format!(
            " {token}{}{}",
            if *over_limit { ", over the limit" } else { "" },
            if *cordon { ", cordon" } else { "" }
        ),
        Task::CloseFence { token, .. } | Task::DeleteMachine { token, .. } => format!(" {token}"),
        Task::Evict { force, .. } => if *force { ", without budgets" } else { "" }.to_owned(),
        Task::TearDown { .. } => String::new(),
        Task::ForgetHost { debt, .. } => debt
            .as_ref()
            .map(|it| format!(", {it}"))
            .unwrap_or_default(),
        Task::SetPayload { payload, .. } => format!(" {payload}"),
        Task::FindNode { names, .. } => format!(" {}", names.join(" or ")),
    }
}

fn pinned(pin: Option<&str>) -> String {
    pin.map(|key| format!(", pinned to {key}"))
        .unwrap_or_default()
}

fn signal_text(signal: &rollout::Signal) -> String {
    match signal {
        rollout::Signal::Member(report) => format!("member {}", flags(report)),
        rollout::Signal::Request { report } => format!("request {}", flags(report)),
        rollout::Signal::Release {
            token, replaced, ..
        } => {
            format!(
                "release {token}{}",
                if *replaced {
                    ", the Machine is gone"
                } else {
                    ""
                }
            )
        }
        rollout::Signal::Left {
            gap,
            token,
            never_served,
            ..
        } => {
            format!(
                "left{}{}{}",
                if *gap { ", a gap is left" } else { "" },
                if *never_served { ", never served" } else { "" },
                token
                    .map(|t| format!(", with token {t}"))
                    .unwrap_or_default()
            )
        }
        other => format!("{other:?}"),
    }
}

fn flags(report: &rollout::MemberReport) -> String {
    let flags = [
        (report.had_node, "served"),
        (report.unavailable, "unavailable"),
        (report.joined, "joined"),
        (report.failed, "failed"),
        (report.deleting, "deleting"),
        (report.token.is_some(), "stray token"),
        (report.barred, "barred"),
        (report.cordoned, "cordoned by others"),
        (report.repair, "to be repaired"),
        (report.by_request, "wished"),
        (report.not_compared.is_some(), "not compared"),
    ];
    let set: Vec<_> = flags
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, name)| *name)
        .collect();
    format!("[{}]", set.join(" "))
}

pub(crate) fn object(kind: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        cluster: String::new(),
        kind: kind.into(),
        uid: uid.into(),
    }
}

pub(crate) fn machine() -> MachineFact {
    MachineFact {
        machine: MachineRef {
            namespace: "ns".into(),
            name: "a".into(),
            uid: "uid-a".into(),
            ..MachineRef::default()
        },
        created: Timestamp(1),
        phase: Some("Provisioned".into()),
        provider_id: Some("aws:///a".into()),
        addresses: vec!["10.0.0.1".into()],
        platform: "AWS".into(),
        owner: Some(Owner {
            kind: "MachineSet".into(),
            name: "set".into(),
            uid: "uid-set".into(),
        }),
        ..MachineFact::default()
    }
}

pub(crate) fn machine_is(machine: MachineFact) -> In {
    let fact = Some(Fact::Machine(machine::Fact::Machine(machine)));
    Input::Observed {
        object: object("Machine", "uid-a"),
        fact,
    }
}

pub(crate) fn machine_gone() -> In {
    Input::Observed {
        object: object("Machine", "uid-a"),
        fact: None,
    }
}

pub(crate) fn node() -> NodeFact {
    NodeFact {
        name: "win-a".into(),
        uid: "uid-node".into(),
        provider_id: Some("aws:///a".into()),
        boot_id: "boot-1".into(),
        ..NodeFact::default()
    }
}

pub(crate) fn ready() -> NodeFact {
    NodeFact {
        ready: true,
        ..node()
    }
}

pub(crate) fn carrying(version: &str) -> NodeFact {
    NodeFact {
        version: Some(version.into()),
        ..ready()
    }
}

pub(crate) fn node_is(node: NodeFact) -> In {
    let fact = Some(Fact::Machine(machine::Fact::Node(node)));
    Input::Observed {
        object: object("Node", "uid-node"),
        fact,
    }
}

pub(crate) fn node_gone() -> In {
    Input::Observed {
        object: object("Node", "uid-node"),
        fact: None,
    }
}

/// A kubelet asks for its first certificate.
pub(crate) fn first_csr() -> In {
    let csr = CsrFact {
        name: "csr-0".into(),
        signer: "kubernetes.io/kube-apiserver-client-kubelet".into(),
        pending: true,
        issued: None,
    };
    let fact = Some(Fact::Machine(machine::Fact::Csr(csr)));
    Input::Observed {
        object: object("CertificateSigningRequest", "uid-csr-0"),
        fact,
    }
}

pub(crate) fn csr_is(pending: bool) -> In {
    let csr = CsrFact {
        name: "csr-1".into(),
        signer: "kubernetes.io/kubelet-serving".into(),
        pending,
        issued: None,
    };
    let fact = Some(Fact::Machine(machine::Fact::Csr(csr)));
    Input::Observed {
        object: object("CertificateSigningRequest", "uid-csr"),
        fact,
    }
}

pub(crate) fn wanting(version: &str) -> PoolSettings {
    let desired = Desired {
        version: version.into(),
        payload: "p".into(),
    };
    PoolSettings {
        desired: [("*".to_owned(), desired)].into(),
        ..PoolSettings::default()
    }
}

/// Settings that want a payload's version `PAYLOAD-0123456789ab` under these terms.
pub(crate) fn payload(payload: &str, terms: Terms) -> PoolSettings {
    let desired = Desired {
        version: format!("{payload}-0123456789ab"),
        payload: payload.to_owned(),
    };
    PoolSettings {
        desired: [("*".to_owned(), desired)].into(),
        terms: [(payload.to_owned(), terms)].into(),
        ..PoolSettings::default()
    }
}

pub(crate) fn after(versions: &[&str]) -> Terms {
    let may_follow = versions
        .iter()
        .map(|version| (*version).to_owned())
        .collect();
    Terms {
        may_follow,
        ..Terms::default()
    }
}

pub(crate) fn in_place(version: &str) -> PoolSettings {
    PoolSettings {
        strategy: Strategy::InPlace,
        ..wanting(version)
    }
}

pub(crate) fn pool_is(pool: PoolSettings) -> In {
    let fact = Some(Fact::Machine(machine::Fact::Pool(pool)));
    Input::Observed {
        object: object("ConfigMap", "uid-pool"),
        fact,
    }
}

pub(crate) fn facts(boot: &str) -> HostFacts {
    HostFacts {
        os_build: "10.0.20348".into(),
        hostname: "win-a".into(),
        boot_id: boot.into(),
        fence: HostFence::default(),
        ..HostFacts::default()
    }
}

pub(crate) fn probed_at(boot: &str) -> Outcome {
    Outcome::Probed {
        facts: facts(boot),
        host_key: "key-a".into(),
        node_name: "win-a".into(),
    }
}

pub(crate) fn probed() -> Outcome {
    probed_at("boot-1")
}

pub(crate) fn converged(section: Section, reboot: bool) -> Outcome {
    Outcome::Converged {
        section,
        changed: 3,
        reboot,
        boot_id: "boot-1".into(),
        owed: Vec::new(),
    }
}

/// A host that asks for a reboot in `boot`, for these items.
pub(crate) fn owes(boot: &str, owed: &[&str]) -> Outcome {
    Outcome::Converged {
        section: Section::Host,
        changed: 1,
        reboot: true,
        boot_id: boot.into(),
        owed: owed.iter().map(|&it| it.to_owned()).collect(),
    }
}

pub(crate) fn planned(class: Option<ChangeClass>) -> Outcome {
    Outcome::Planned {
        class,
        differs: class
            .map(|_| "service kubelet".to_owned())
            .into_iter()
            .collect(),
        facts: facts("boot-1"),
        host_key: "key-a".into(),
        generation: 1,
        token: LeaseToken(0),
        pods: 4,
        certificates: false,
        renews: false,
    }
}

pub(crate) fn evicted(evicted: u32, left: u32) -> Outcome {
    let blocker = machine::Blocker {
        pod: "shop/web-1".into(),
        why: "budget web allows 0".into(),
        budgets: Vec::new(),
        until_off: false,
        finalizers: Vec::new(),
    };
    let blockers = if left > 0 { vec![blocker] } else { Vec::new() };
    Outcome::Evicted {
        evicted,
        left,
        blockers,
        skipped: Vec::new(),
    }
}

pub(crate) fn run_id() -> RunId {
    work::machine_run("uid-a").unwrap()
}
