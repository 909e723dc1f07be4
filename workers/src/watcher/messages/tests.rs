//! Routing of facts to runs, from a view made by hand.

use super::{
    super::{
        csr::{ObservedCsr, UnknownRequester},
        objects::{ObservedNode, ObservedSet, SpecFields},
        view::{Kind, OWN_ASTRAY_MAX, ObservedObject},
    },
    *,
};
use crate::kubernetes::{csr::FirstAsker, token};
use dormer_proto::{
    id::{Epoch, Incarnation},
    machine::{
        ConditionFact, CsrFact, MachineApi, MachineFact, MachineRef, NodeFact, OTHER_NAME,
        OTHER_NAME_POSSIBLE, Owner,
    },
};
use serde_json::json;

fn machine(
    uid: &str,
    resource: u64,
    expected: Option<&str>,
    node: Option<&str>,
) -> ObservedMachine {
    let machine = MachineRef {
        uid: uid.into(),
        name: format!("m-{uid}"),
        ..Default::default()
    };
    let owner = Owner {
        kind: "MachineSet".into(),
        name: "s".into(),
        uid: "set".into(),
    };
    let fact = MachineFact {
        machine,
        node: node.map(str::to_owned),
        owner: Some(owner),
        ..Default::default()
    };
    let expected = expected.map(str::to_owned);
    ObservedMachine {
        fact,
        windows: true,
        labels: BTreeMap::from([("of".to_owned(), "set".to_owned())]),
        fields: SpecFields::default(),
        synced: false,
        twin: false,
        expected,
        node_uid: None,
        elsewhere: None,
        resource,
    }
}

fn node(uid: &str, name: &str, resource: u64) -> ObservedObject {
    let fact = NodeFact {
        name: name.into(),
        uid: uid.into(),
        ..Default::default()
    };
    ObservedObject::Node(ObservedNode {
        fact,
        build: None,
        windows_worker: true,
        addresses: Vec::new(),
        resource,
    })
}

fn csr(uid: &str, node: &str, pending: bool, resource: u64) -> ObservedObject {
    let fact = CsrFact {
        name: uid.into(),
        signer: "s".into(),
        pending,
        issued: None,
    };
    let node = pending.then(|| node.to_owned());
    ObservedObject::Csr(ObservedCsr {
        uid: uid.into(),
        fact,
        node,
        unknown_requester: None,
        first: None,
        resource,
    })
}

/// A request in this node's name from a user without the right; `pending`: it is undecided.
fn strange(uid: &str, node: &str, pending: bool, resource: u64) -> ObservedObject {
    let ObservedObject::Csr(asked) = csr(uid, node, pending, resource) else {
        panic!("a request")
    };
    let user = "mallory".to_owned();
    ObservedObject::Csr(ObservedCsr {
        unknown_requester: asked.node.map(|node| UnknownRequester { node, user }),
        node: None,
        ..asked
    })
}

fn set(uid: &str, windows: bool, resource: u64) -> ObservedObject {
    ObservedObject::Set(ObservedSet {
        api: MachineApi::OpenShift,
        speaks: None,
        uid: uid.into(),
        name: "s".into(),
        replicas: 2,
        ready: 1,
        available: 1,
        selector: None,
        fields: SpecFields::default(),
        autoscaled: false,
        windows,
        resource,
    })
}

struct Harness {
    view: View,
    writer: MessageWriter,
    published: PublishedFacts,
}

impl Harness {
    fn new(live: &[&str]) -> Self {
        let writer = Self::writer(1, live);
        Self {
            view: View::default(),
            writer,
            published: PublishedFacts::default(),
        }
    }

    fn writer(epoch: u64, live: &[&str]) -> MessageWriter {
        let live = live.iter().map(|uid| (*uid).to_owned()).collect();
        let beginning = EpochStart {
            incarnation: Incarnation(7),
            epoch: Epoch(epoch),
            live,
        };
        MessageWriter::new(
            beginning,
            "windows",
            "dormer",
            rollout_of("windows").expect("a run"),
        )
    }

    fn observe(&mut self, observed: ObservedObject) {
        assert!(self.view.observe(observed));
    }

    /// The next epoch, with an empty view.
    fn relist(&mut self, epoch: u64, live: &[&str]) {
        self.published.begin_epoch();
        self.writer = Self::writer(epoch, live);
        self.view = View::default();
    }

    fn everything(&mut self) -> Vec<String> {
        let messages = self.writer.everything(&mut self.view, &mut self.published);
        messages.iter().map(line).collect()
    }

    fn pool_due(&mut self) -> Vec<String> {
        let messages = self.writer.pool_due(&self.view, &mut self.published);
        messages.iter().map(line).collect()
    }

    fn changes(&mut self) -> Vec<String> {
        self.writer
            .changes(&mut self.view, &mut self.published)
            .iter()
            .map(line)
            .collect()
    }
}

/// `a: Node n1 @9` is a fact, with `!` one that may begin a run, with `gone` the end of one.
fn line(message: &FactMessage) -> String {
    let Inbound::Observed(observed) = &message.body else {
        panic!("the watcher only observes")
    };
    let to = message.run.key();
    let gone = if observed.fact.is_none() { " gone" } else { "" };
    let start = if observed.may_start { "!" } else { "" };
    let kind = observed
        .object
        .kind
        .replace("CertificateSigningRequest", "Csr");
    format!(
        "{to}: {kind} {} @{}{gone}{start}",
        observed.object.uid, observed.version.resource
    )
}

#[test]
fn a_node_goes_to_the_machine_that_expects_it_and_then_to_the_one_that_has_it() {
    let mut harness = Harness::new(&[]);
    harness.observe(ObservedObject::of(machine("a", 1, Some("win-1"), None)));
    assert_eq!(harness.everything()[..1], ["a: Machine a @1!"]);
    harness.observe(node("n1", "win-1", 2));
    harness.observe(node("n2", "win-10", 3));
    harness.observe(node("n3", "win-", 4));
    assert_eq!(harness.changes(), ["a: Node n1 @2"]);
    harness.view.lose(Kind::Node, "n2", 4);
    assert_eq!(harness.changes(), [""; 0], "nobody's");
    harness.observe(ObservedObject::of(machine("b", 5, None, Some("win-1"))));
    assert_eq!(
        harness.changes(),
        ["a: Node n1 @5 gone", "b: Machine b @5!", "b: Node n1 @2"]
    );
    harness.observe(ObservedObject::of(machine("b", 6, None, None)));
    let back = ["a: Node n1 @6", "b: Node n1 @6 gone", "b: Machine b @6!"];
    assert_eq!(
        harness.changes(),
        back,
        "it comes back above its own absence"
    );
    harness.view.lose(Kind::Node, "n1", 9);
    assert_eq!(harness.changes(), ["a: Node n1 @9 gone"]);
    assert_eq!(harness.changes(), [""; 0]);
}

#[test]
fn a_list_shrinks_with_the_machines_that_go() {
    let mut harness = Harness::new(&[]);
    for uid in ["a", "b"] {
        harness.observe(ObservedObject::of(machine(uid, 1, None, Some(uid))));
    }
    harness.everything();
    let listed = |harness: &mut Harness| -> Vec<_> {
        let messages = harness
            .writer
            .write_rollout(&harness.view, &mut harness.published, false);
        messages.into_iter().map(|message| message.body).collect()
    };
    assert_eq!(listed(&mut harness), []);
    harness
        .view
        .lose(Kind::Machine(MachineApi::OpenShift), "a", 5);
    let [Inbound::Observed(observed)] = &listed(&mut harness)[..] else {
        panic!("one fact")
    };
    let rest = rollout::Fact::Listed {
        with_node: vec!["b".into()],
        sets: Some(Vec::new()),
    };
    assert_eq!(
        (observed.fact.clone(), observed.version.resource),
        (Some(Fact::Rollout(rest)), 5)
    );
}

#[test]
fn a_request_goes_to_the_one_machine_that_is_named_exactly() {
    let mut harness = Harness::new(&[]);
    for (uid, name) in [("a", "win-1"), ("b", "win-2"), ("c", "win-2")] {
        harness.observe(ObservedObject::of(machine(uid, 1, Some(name), None)));
    }
    harness.observe(ObservedObject::of(machine("d", 1, None, Some("win-4"))));
    harness.everything();
    for (uid, name) in [
        ("r1", "win-10"),
        ("r2", "win-"),
        ("r3", "win-2"),
        ("r4", "WIN-1"),
    ] {
        harness.observe(csr(uid, name, true, 2));
    }
    assert_eq!(
        harness.changes(),
        [""; 0],
        "no prefix, no case, no choice between two"
    );
    assert_eq!(harness.view.foreign_csrs(), 4);
    harness.observe(csr("r5", "win-1", true, 3));
    harness.observe(csr("r6", "win-4", true, 3));
    assert_eq!(harness.changes(), ["a: Csr r5 @3", "d: Csr r6 @3"]);
    harness.observe(csr("r5", "", false, 4));
    assert_eq!(harness.changes(), ["a: Csr r5 @4"]);
    harness.view.lose(Kind::Csr, "r5", 5);
    assert_eq!(harness.changes(), ["a: Csr r5 @5 gone"]);
    harness
        .view
        .lose(Kind::Machine(MachineApi::OpenShift), "c", 6);
    assert_eq!(
        harness.changes(),
        ["b: Machine b @2!", "b: Csr r3 @2", "c: Machine c @6 gone"],
        "now there is only one"
    );
}

#[test]
fn what_the_list_lacks_is_gone_and_what_cannot_be_read_is_not() {
    let mut harness = Harness::new(&[]);
    harness.observe(ObservedObject::of(machine("a", 1, Some("win-1"), None)));
    harness.observe(ObservedObject::of(machine("b", 1, None, None)));
    harness.observe(node("n1", "win-1", 2));
    harness.everything();
    harness.relist(2, &["a", "b", "x", "y"]);
    harness.observe(ObservedObject::of(machine("a", 1, Some("win-1"), None)));
    harness.view.veil("y");
    harness.view.latest = 9;
    let said = harness.everything();
    let expected = [
        "a: Machine a @1!",
        "a: Node n1 @9 gone",
        "b: Machine b @9 gone",
        "x: Machine x @9 gone",
    ];
    let mut said: Vec<_> = said
        .iter()
        .filter(|line| !line.starts_with("windows"))
        .collect();
    said.sort();
    assert_eq!(said, expected);
}

#[test]
fn a_node_that_node_ref_still_names_is_gone_when_the_list_lacks_it() {
    let mut harness = Harness::new(&["a"]);
    let mut observed = machine("a", 1, None, Some("win-1"));
    observed.node_uid = Some("n1".into());
    harness.observe(ObservedObject::of(observed));
    assert!(
        harness
            .everything()
            .contains(&"a: Node n1 @1 gone".to_owned())
    );
}

/// A Machine's `nodeRef` may name a Node of another system, one of the control plane, or a new Node of the same name.
#[test]
fn a_node_that_cannot_be_the_machines_is_none_of_its_facts() {
    let mut harness = Harness::new(&["a"]);
    let mut observed = machine("a", 1, None, Some("win-1"));
    observed.node_uid = Some("n1".into());
    harness.observe(ObservedObject::of(observed));
    harness.everything();
    let mut foreign = match node("n1", "win-1", 2) {
        ObservedObject::Node(node) => node,
        _ => unreachable!("a Node"),
    };
    foreign.windows_worker = false;
    harness.observe(ObservedObject::Node(foreign));
    assert_eq!(
        harness.changes(),
        [""; 0],
        "another system, or the control plane"
    );
    harness.observe(node("n1", "win-1", 3));
    assert_eq!(harness.changes(), ["a: Node n1 @3"]);
    harness.observe(node("n2", "win-1", 4));
    let changes = harness.changes();
    assert!(
        changes.iter().all(|line| !line.contains("n2")),
        "another UID under its name: {changes:?}"
    );
}

#[test]
fn an_ignored_machine_starts_no_run_but_an_open_run_learns_of_it() {
    let mut harness = Harness::new(&["b"]);
    for uid in ["a", "b"] {
        let mut observed = machine(uid, 1, None, None);
        observed.fact.ignored = true;
        harness.observe(ObservedObject::of(observed));
    }
    assert_eq!(harness.everything()[..1], ["b: Machine b @1"]);
    assert!(
        harness
            .writer
            .repeats_for(&harness.view, &harness.published, "b")
            .iter()
            .map(line)
            .eq(["b: Machine b @1"])
    );
    harness.observe(ObservedObject::of(machine("a", 2, None, None)));
    assert_eq!(harness.changes(), ["a: Machine a @2!"]);
    assert_eq!(harness.writer.started, ["a"]);
}

#[test]
fn late_and_repeated_events_change_nothing() {
    let mut harness = Harness::new(&[]);
    harness.observe(ObservedObject::of(machine("a", 5, None, None)));
    harness.everything();
    harness.observe(ObservedObject::of(machine("a", 4, Some("old"), None)));
    harness.observe(ObservedObject::of(machine("a", 5, None, None)));
    assert_eq!(harness.changes(), [""; 0]);
    harness
        .view
        .lose(Kind::Machine(MachineApi::OpenShift), "a", 6);
    assert_eq!(harness.changes(), ["a: Machine a @6 gone"]);
    harness.observe(ObservedObject::of(machine("a", 5, None, None)));
    assert_eq!(harness.changes(), [""; 0], "the deleted stay deleted");
}

#[test]
fn owners_grow_with_their_machines_and_linux_has_none() {
    let mut harness = Harness::new(&[]);
    harness.observe(set("set", true, 1));
    harness.observe(set("linux", false, 2));
    let said = harness.everything();
    assert_eq!(
        said,
        ["windows: List windows @2!", "windows: MachineSet set @2!"]
    );
    let next = |harness: &mut Harness| -> Vec<_> {
        let messages = harness
            .writer
            .write_rollout(&harness.view, &mut harness.published, false);
        messages.iter().map(line).collect()
    };
    harness.observe(node("n", "other", 7));
    assert_eq!(next(&mut harness), [""; 0]);
    harness.observe(ObservedObject::of(machine("a", 5, None, None)));
    assert_eq!(next(&mut harness), ["windows: MachineSet set @8!"]);
    harness.observe(ObservedObject::of(machine("b", 6, None, None)));
    let grown = next(&mut harness);
    assert_eq!(
        grown,
        ["windows: MachineSet set @9!"],
        "though no resourceVersion is larger"
    );
    harness
        .view
        .lose(Kind::Set(MachineApi::OpenShift), "set", 9);
    assert_eq!(
        next(&mut harness),
        [
            "windows: MachineSet set @10 gone",
            "windows: List windows @9!"
        ],
        "the list says which sets stand"
    );
}

/// Set `set` with a selector for machines whose label `of` has this value.
fn selecting(of: &str, resource: u64) -> ObservedObject {
    let ObservedObject::Set(set) = set("set", true, resource) else {
        unreachable!("a set")
    };
    let labels = [("of".to_owned(), of.to_owned())];
    ObservedObject::Set(ObservedSet {
        selector: Some(labels.into_iter().collect()),
        ..set
    })
}

/// Fields that differ from the template of the set, in the facts of machines.
fn differences_in(messages: &[FactMessage]) -> Vec<String> {
    let said = messages.iter().filter_map(|message| {
        let Inbound::Observed(observed) = &message.body else {
            panic!("the watcher only observes")
        };
        let Some(Fact::Machine(machine::Fact::Machine(fact))) = observed.fact.as_ref() else {
            return None;
        };
        let fields: Vec<_> = fact.template.iter().map(|it| it.field.as_str()).collect();
        Some(format!("{}: {}", fact.machine.uid, fields.join(", ")))
    });
    said.collect()
}

#[test]
fn a_changed_template_reaches_the_runs_of_its_machines_and_no_other() {
    let with_image = |image: &str, resource: u64| {
        let spec = json!({"providerSpec": {"value": {"ami": {"id": image}}}});
        (SpecFields::of(MachineApi::OpenShift, &spec), resource)
    };
    let made = |uid: &str, (fields, resource): (SpecFields, u64)| {
        ObservedObject::of(ObservedMachine {
            fields,
            ..machine(uid, resource, None, None)
        })
    };
    let template = |(fields, resource): (SpecFields, u64)| {
        let ObservedObject::Set(set) = set("set", true, resource) else {
            unreachable!("a set")
        };
        ObservedObject::Set(ObservedSet { fields, ..set })
    };
    let mut harness = Harness::new(&[]);
    harness.observe(template(with_image("ami-1", 1)));
    harness.observe(made("old", with_image("ami-1", 2)));
    let mut other = machine("other", 3, None, None);
    other.fact.owner = None;
    harness.observe(ObservedObject::of(other));
    let all = harness
        .writer
        .everything(&mut harness.view, &mut harness.published);
    assert_eq!(differences_in(&all), ["old: ", "other: "]);
    let mut next = |observed: Option<ObservedObject>| {
        observed.into_iter().for_each(|it| harness.observe(it));
        let changes = harness
            .writer
            .changes(&mut harness.view, &mut harness.published);
        differences_in(&changes)
    };
    let image = "spec.providerSpec.value.ami.id";
    assert_eq!(
        next(Some(template(with_image("ami-2", 4)))),
        [format!("old: {image}")]
    );
    assert_eq!(next(Some(made("new", with_image("ami-2", 5)))), ["new: "]);
    assert_eq!(
        next(Some(template(with_image("ami-2", 6)))),
        [""; 0],
        "nothing else"
    );
    assert_eq!(
        next(Some(template(with_image("ami-1", 7)))),
        [format!("new: {image}"), "old: ".into()]
    );
    let mut words = machine("old", 8, None, None);
    words.fact.template = vec![TemplateDifference {
        field: "Version v1.33.1, v1.34.0 required".into(),
        machine: None,
        template: None,
    }];
    let (fields, _) = with_image("ami-2", 8);
    let words = ObservedObject::of(ObservedMachine { fields, ..words });
    assert_eq!(
        next(Some(words)),
        ["old: Version v1.33.1, v1.34.0 required"],
        "what Cluster API says stands alone"
    );
    let mut going = machine("new", 8, None, None);
    going.fact.deleting = true;
    let (fields, _) = with_image("ami-2", 8);
    let going = ObservedMachine { fields, ..going };
    assert_eq!(
        next(Some(ObservedObject::of(going))),
        ["new: "],
        "it goes anyway"
    );
}

/// The owners of machines, and the machines of owners, that these messages tell of.
fn owners_in(messages: &[FactMessage]) -> Vec<String> {
    let told = messages.iter().filter_map(|message| {
        let Inbound::Observed(observed) = &message.body else {
            panic!("the watcher only observes")
        };
        match observed.fact.as_ref()? {
            Fact::Machine(machine::Fact::Machine(fact)) => {
                let owner = fact.owner.as_ref().map_or("nobody", |owner| &owner.uid);
                let why = fact.conditions.iter().map(|it| it.reason.as_str());
                let why: String = why.map(|it| format!(", {it}")).collect();
                Some(format!("{} of {owner}{why}", fact.machine.uid))
            }
            Fact::Rollout(rollout::Fact::Owner(owner)) => {
                let uids: Vec<_> = owner.machines.iter().map(|it| it.uid.as_str()).collect();
                Some(format!("{} has {}", owner.uid, uids.join(" ")))
            }
            _ => None,
        }
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    told
}

/// A person takes a Machine out of its set by its labels: the set makes another one, and leaves the reference.
#[test]
fn a_machine_that_its_set_does_not_select_has_no_owner() {
    let mut harness = Harness::new(&[]);
    harness.observe(selecting("set", 1));
    for uid in ["a", "q"] {
        harness.observe(ObservedObject::of(machine(uid, 1, None, None)));
    }
    let told = |harness: &mut Harness| {
        let mut messages = harness
            .writer
            .changes(&mut harness.view, &mut harness.published);
        messages.extend(
            harness
                .writer
                .write_rollout(&harness.view, &mut harness.published, false),
        );
        owners_in(&messages)
    };
    let messages = harness
        .writer
        .everything(&mut harness.view, &mut harness.published);
    assert_eq!(
        owners_in(&messages),
        ["a of set", "q of set", "set has a q"]
    );
    let mut apart = machine("q", 2, None, None);
    apart.labels = BTreeMap::from([("of".to_owned(), "quarantine".to_owned())]);
    harness.observe(ObservedObject::of(apart));
    let released = ["q of nobody, LabelsDiffer", "set has a"];
    assert_eq!(told(&mut harness), released);
    harness.observe(ObservedObject::of(machine("q", 3, None, None)));
    assert_eq!(told(&mut harness), ["q of set", "set has a q"]);
    harness.observe(selecting("others", 4));
    let all = [
        "a of nobody, LabelsDiffer",
        "q of nobody, LabelsDiffer",
        "set has ",
    ];
    assert_eq!(told(&mut harness), all, "another selector concerns all");
    harness.observe(set("set", true, 5));
    let back = ["a of set", "q of set", "set has a q"];
    assert_eq!(told(&mut harness), back, "without a selector");
}

#[test]
fn settings_go_to_runs_and_rollout_once() {
    let mut harness = Harness::new(&["a"]);
    harness.observe(ObservedObject::of(machine("a", 3, None, None)));
    assert!(harness.writer.set_pool(PoolSettings::default(), 3));
    assert_eq!(
        harness.everything(),
        [
            "a: Machine a @3!",
            "a: Pool windows @3",
            "windows: List windows @3!"
        ]
    );
    assert_eq!(harness.pool_due(), ["windows: Pool windows @3!"]);
    assert_eq!(harness.pool_due(), [""; 0]);
    assert!(!harness.writer.set_pool(PoolSettings::default(), 9));
    let paused = PoolSettings {
        paused: true,
        ..PoolSettings::default()
    };
    assert!(harness.writer.set_pool(paused, 3));
    let changes: Vec<_> = harness
        .writer
        .pool_changes(&harness.view, &mut harness.published)
        .iter()
        .map(line)
        .collect();
    assert_eq!(changes, ["windows: Pool windows @4!", "a: Pool windows @4"]);
}

/// dormer was off: a Node has gone, and the pool is not paused any more. The rollout grants nothing before the machine's
/// run knows that, and receives no message meanwhile that the pool is gone.
#[test]
fn settings_that_allow_grants_come_after_what_machines_learn_of_a_full_list() {
    let mut harness = Harness::new(&["a"]);
    harness.observe(ObservedObject::of(machine("a", 1, Some("win-1"), None)));
    harness.observe(node("n1", "win-1", 2));
    let paused = || PoolSettings {
        paused: true,
        ..PoolSettings::default()
    };
    harness.writer.set_pool(paused(), 3);
    let first = harness.everything();
    let pool = "windows: Pool windows @3!".to_owned();
    assert!(first.contains(&pool), "a pause is told at once: {first:?}");
    assert_eq!(harness.pool_due(), [""; 0]);

    harness.relist(2, &["a"]);
    harness.observe(ObservedObject::of(machine("a", 1, Some("win-1"), None)));
    harness.view.latest = 9;
    harness.writer.set_pool(PoolSettings::default(), 4);
    assert_eq!(
        harness.everything(),
        [
            "a: Node n1 @9 gone",
            "a: Machine a @1!",
            "a: Pool windows @4",
            "windows: List windows @9!"
        ]
    );
    assert_eq!(harness.pool_due(), ["windows: Pool windows @4!"]);
    // A pause that comes before that is published at once.
    harness.relist(3, &["a"]);
    harness.observe(ObservedObject::of(machine("a", 1, Some("win-1"), None)));
    harness.writer.set_pool(PoolSettings::default(), 4);
    harness.everything();
    harness.writer.set_pool(paused(), 10);
    let changes = harness
        .writer
        .pool_changes(&harness.view, &mut harness.published);
    let changes: Vec<_> = changes.iter().map(line).collect();
    assert!(
        changes.contains(&"windows: Pool windows @10!".to_owned()),
        "{changes:?}"
    );
}

#[test]
fn two_machines_of_one_node_name_are_both_reported() {
    let mut harness = Harness::new(&[]);
    harness.observe(ObservedObject::of(machine("a", 1, Some("win-1"), None)));
    harness.everything();
    harness.observe(ObservedObject::of(machine("b", 2, Some("win-1"), None)));
    let told = |harness: &mut Harness| {
        let messages = harness
            .writer
            .changes(&mut harness.view, &mut harness.published);
        let mut told = Vec::new();
        for message in messages {
            if let Inbound::Observed(Observation {
                fact: Some(Fact::Machine(machine::Fact::Machine(fact))),
                ..
            }) = message.body
            {
                let reasons = fact.conditions.into_iter().map(|it| it.reason);
                told.push((message.run.key().to_owned(), reasons.collect::<String>()));
            }
        }
        told
    };
    let both = [("a", "TwoMachines"), ("b", "TwoMachines")];
    let owned = |(run, reason): (&str, &str)| (run.to_owned(), reason.to_owned());
    assert_eq!(told(&mut harness), both.map(owned));
    harness
        .view
        .lose(Kind::Machine(MachineApi::OpenShift), "b", 3);
    assert_eq!(told(&mut harness), [("a", "")].map(owned));
}

/// Messages of the conditions of the Machine `uid` in these facts; `None` without a fact about it.
fn conditions_of(harness: &mut Harness, uid: &str) -> Option<Vec<String>> {
    let messages = harness
        .writer
        .changes(&mut harness.view, &mut harness.published);
    messages.into_iter().find_map(|message| match message.body {
        Inbound::Observed(Observation {
            fact: Some(Fact::Machine(machine::Fact::Machine(fact))),
            ..
        }) if message.run.key() == uid => {
            Some(fact.conditions.into_iter().map(|it| it.message).collect())
        }
        _ => None,
    })
}

#[test]
fn a_request_by_somebody_who_may_not_ask_is_a_condition_until_the_node_is_there() {
    let mut harness = Harness::new(&[]);
    harness.observe(ObservedObject::of(machine("a", 1, Some("win-1"), None)));
    harness.observe(ObservedObject::of(machine("b", 1, Some("win-2"), None)));
    harness.everything();
    let said = |csr: &str| {
        let said = "asks in the name of the Node win-1 as the user \"mallory\", who may not have its certificate: it is \
                    not approved";
        Some(vec![format!("{csr} {said}")])
    };
    harness.observe(strange("r2", "win-1", true, 2));
    assert_eq!(conditions_of(&mut harness, "a"), said("r2"));
    // Many of them change nothing more, and no other machine gets a fact about them.
    for uid in ["r3", "r4", "r5"] {
        harness.observe(strange(uid, "win-1", true, 3));
    }
    harness.observe(strange("r6", "win-9", true, 3));
    assert_eq!(harness.changes(), [""; 0]);
    // After a denial or deletion the next one is reported, and then none.
    harness.observe(strange("r2", "", false, 4));
    assert_eq!(conditions_of(&mut harness, "a"), said("r3"));
    for uid in ["r3", "r4", "r5"] {
        harness.view.lose(Kind::Csr, uid, 5);
    }
    assert_eq!(conditions_of(&mut harness, "a"), Some(Vec::new()));
    harness.observe(strange("r7", "win-1", true, 6));
    assert_eq!(conditions_of(&mut harness, "a"), said("r7"));
    harness.observe(node("n1", "win-1", 7));
    assert_eq!(conditions_of(&mut harness, "a"), Some(Vec::new()));
}

/// A pending request for a first certificate in this node's name.
fn first(uid: &str, node: &str, asker: FirstAsker, resource: u64) -> ObservedObject {
    let ObservedObject::Csr(asked) = csr(uid, node, true, resource) else {
        panic!("a request")
    };
    let first = Some(asker);
    ObservedObject::Csr(ObservedCsr { first, ..asked })
}

/// Conditions of the machines that get a new fact.
fn published_conditions(harness: &mut Harness) -> Vec<(String, Vec<ConditionFact>)> {
    let messages = harness
        .writer
        .changes(&mut harness.view, &mut harness.published);
    let facts = messages.into_iter().filter_map(|message| {
        let Inbound::Observed(observed) = message.body else {
            return None;
        };
        match observed.fact? {
            Fact::Machine(machine::Fact::Machine(fact)) => {
                Some((message.run.key().to_owned(), fact.conditions))
            }
            _ => None,
        }
    });
    facts.collect()
}

/// A host that says it is a Node of another host: its request is approved for no machine, and its own machine waits in vain.
#[test]
fn a_host_that_asks_in_the_name_of_another_node_is_named_to_the_machine_that_waits() {
    let mut harness = Harness::new(&[]);
    for (uid, name) in [("a", "win-1"), ("b", "win-2")] {
        harness.observe(ObservedObject::of(machine(uid, 1, Some(name), None)));
    }
    harness.observe(node("n2", "win-2", 1));
    harness.everything();
    // With what all hosts share, a name that is not taken shows nothing: another machine may be about to join.
    harness.observe(first("r1", "master-0", FirstAsker::Shared, 2));
    assert_eq!(published_conditions(&mut harness), []);
    harness.observe(node("n0", "master-0", 3));
    let facts = published_conditions(&mut harness);
    let [(uid, conditions)] = facts.as_slice() else {
        panic!("only the one that waits: {facts:?}")
    };
    assert_eq!((uid.as_str(), conditions.len()), ("a", 1));
    let ConditionFact {
        reason, message, ..
    } = &conditions[0];
    assert_eq!(reason, OTHER_NAME_POSSIBLE);
    let begins = "r1 asks for the certificate of master-0 with a token that hosts join with";
    assert!(message.starts_with(begins), "{message}");
    let ends = "it says that it is master-0, not win-1";
    assert!(message.ends_with(ends), "{message}");
    // A request in its own name ends that.
    harness.observe(first("r2", "win-1", FirstAsker::Shared, 4));
    assert_eq!(
        published_conditions(&mut harness),
        [("a".to_owned(), Vec::new())]
    );
}

#[test]
fn a_machines_own_token_shows_whose_host_asks_in_another_name() {
    let mut harness = Harness::new(&[]);
    for (uid, name) in [("a", "win-1"), ("b", "win-3")] {
        harness.observe(ObservedObject::of(machine(uid, 1, Some(name), None)));
    }
    harness.everything();
    let user = token::user(&token::id("dormer", "b", 0));
    harness.observe(first("r1", "other", FirstAsker::Own(user), 2));
    let facts = published_conditions(&mut harness);
    let [(uid, conditions)] = facts.as_slice() else {
        panic!("only its own machine: {facts:?}")
    };
    assert_eq!((uid.as_str(), conditions.len()), ("b", 1));
    assert_eq!(conditions[0].reason, OTHER_NAME);
    let says = "its host says that it is other, not win-3";
    assert!(conditions[0].message.contains(says), "{conditions:?}");
    harness.view.lose(Kind::Csr, "r1", 5);
    assert_eq!(
        published_conditions(&mut harness),
        [("b".to_owned(), Vec::new())]
    );
}

#[test]
fn a_host_that_asks_in_the_name_of_another_machines_node_to_be_is_named_to_its_own_machine() {
    let mut harness = Harness::new(&[]);
    for (uid, name) in [("a", "win-1"), ("b", "win-3")] {
        harness.observe(ObservedObject::of(machine(uid, 1, Some(name), None)));
    }
    harness.everything();
    let own = |uid: &str| FirstAsker::Own(token::user(&token::id("dormer", uid, 0)));
    // Its own name is as it should be, whichever machine waits.
    harness.observe(first("r1", "win-1", own("a"), 2));
    assert_eq!(published_conditions(&mut harness), []);
    harness.observe(first("r2", "win-1", own("b"), 3));
    let facts = published_conditions(&mut harness);
    let [(uid, conditions)] = facts.as_slice() else {
        panic!("only the one whose host asks: {facts:?}")
    };
    assert_eq!((uid.as_str(), conditions.len()), ("b", 1));
    assert_eq!(conditions[0].reason, OTHER_NAME);
    let says = "another machine's Node is to have that name";
    assert!(conditions[0].message.ends_with(says), "{conditions:?}");
    // The other machine joins: the text says what is true then.
    harness.observe(node("n1", "win-1", 4));
    let facts = published_conditions(&mut harness);
    let of_b = facts.iter().find(|(uid, _)| uid == "b");
    let (_, conditions) = of_b.expect("a new fact");
    assert!(conditions[0].message.contains("is there"), "{conditions:?}");
}

/// Whatever all hosts may ask for keeps no other request from being compared.
#[test]
fn a_hundred_requests_that_show_nothing_hide_none_that_shows_something() {
    let mut harness = Harness::new(&[]);
    harness.observe(ObservedObject::of(machine("b", 1, Some("win-3"), None)));
    harness.everything();
    for nth in 0..150 {
        let uid = format!("r{nth:03}");
        let name = format!("linux-{nth}");
        harness.observe(first(&uid, &name, FirstAsker::Shared, 2));
    }
    let user = token::user(&token::id("dormer", "b", 0));
    harness.observe(first("z", "other", FirstAsker::Own(user), 3));
    let facts = published_conditions(&mut harness);
    let [(uid, conditions)] = facts.as_slice() else {
        panic!("only its own machine: {facts:?}")
    };
    assert_eq!((uid.as_str(), conditions.len()), ("b", 1));
}

/// Any host may ask in the names of Nodes that are there.
#[test]
fn a_hundred_requests_that_any_host_may_have_made_do_not_hide_a_machines_own() {
    let mut harness = Harness::new(&[]);
    harness.observe(ObservedObject::of(machine("b", 1, Some("win-3"), None)));
    for nth in 0..150 {
        let uid = format!("n{nth:03}");
        let name = format!("linux-{nth}");
        harness.observe(node(&uid, &name, 1));
    }
    harness.everything();
    for nth in 0..150 {
        let uid = format!("r{nth:03}");
        let name = format!("linux-{nth}");
        harness.observe(first(&uid, &name, FirstAsker::Shared, 2));
    }
    let user = token::user(&token::id("dormer", "b", 0));
    harness.observe(first("z", "other", FirstAsker::Own(user), 3));
    let facts = published_conditions(&mut harness);
    let of_b = facts.iter().rev().find(|(uid, _)| uid == "b");
    let (_, conditions) = of_b.expect("a new fact");
    assert_eq!(conditions[0].reason, OTHER_NAME, "{conditions:?}");
}

/// A host has its token, and may ask as often as it likes.
#[test]
fn a_thousand_requests_with_one_machines_own_token_are_compared_as_a_few() {
    let mut harness = Harness::new(&[]);
    for (uid, name) in [("a", "win-1"), ("b", "win-3")] {
        harness.observe(ObservedObject::of(machine(uid, 1, Some(name), None)));
    }
    harness.everything();
    let own = |uid: &str| FirstAsker::Own(token::user(&token::id("dormer", uid, 0)));
    // The oldest comes last by its UID.
    for nth in 0..1_000 {
        let uid = format!("r{:04}", 999 - nth);
        let name = format!("linux-{nth}");
        harness.observe(first(&uid, &name, own("b"), 2 + nth));
    }
    harness.observe(first("z", "other", own("a"), 2_000));
    let facts = published_conditions(&mut harness);
    let said = |uid: &str| -> Vec<String> {
        let facts = facts.iter().rev().find(|(of, _)| of == uid);
        let (_, conditions) = facts.expect("a new fact");
        conditions.iter().map(|it| it.message.clone()).collect()
    };
    assert!(said("b")[0].starts_with("r0999 asks for the certificate of linux-0 "));
    assert!(said("a")[0].starts_with("z asks for the certificate of other "));
    assert_eq!(harness.view.astray.len(), OWN_ASTRAY_MAX + 1);
}

#[test]
fn a_link_without_a_uid_to_an_absent_node_is_published() {
    let absent = |nodes: Vec<ObservedObject>, uid: Option<&str>| {
        let mut view = View::default();
        let mut observed = machine("a", 1, Some("win-a"), Some("win-a"));
        observed.node_uid = uid.map(str::to_owned);
        view.observe(ObservedObject::of(observed));
        for node in nodes {
            view.observe(node);
        }
        let beginning = EpochStart {
            live: vec!["a".into()],
            epoch: Epoch(1),
            incarnation: Incarnation(1),
        };
        let rollout = rollout_of("windows").expect("an id");
        let mut writer = MessageWriter::new(beginning, "windows", "dormer", rollout);
        let messages = writer.everything(&mut view, &mut PublishedFacts::default());
        let mut facts = messages
            .into_iter()
            .filter_map(|message| match message.body {
                Inbound::Observed(seen) => match seen.fact {
                    Some(Fact::Machine(machine::Fact::Machine(fact))) => Some(fact),
                    _ => None,
                },
                _ => None,
            });
        facts.next().expect("its Machine is told").node_absent
    };
    assert!(absent(vec![], None));
    assert!(!absent(vec![], Some("n1")), "that one is named by its UID");
    assert!(!absent(vec![node("n1", "win-a", 2)], None));
}
