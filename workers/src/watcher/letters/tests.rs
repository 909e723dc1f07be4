//! Who is told what, in a view made by hand.

use super::{
    super::{
        csr::CsrSeen,
        objects::{NodeSeen, SetSeen},
        view::{Kind, Seen},
    },
    *,
};
use dormer_proto::{
    id::{Epoch, Incarnation},
    machine::{CsrFact, MachineFact, MachineRef, NodeFact, Owner},
};

fn machine(uid: &str, resource: u64, expected: Option<&str>, node: Option<&str>) -> MachineSeen {
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
    MachineSeen {
        fact,
        windows: true,
        expected,
        node_uid: None,
        elsewhere: None,
        resource,
    }
}

fn node(uid: &str, name: &str, resource: u64) -> Seen {
    let fact = NodeFact {
        name: name.into(),
        uid: uid.into(),
        ..Default::default()
    };
    Seen::Node(NodeSeen {
        fact,
        build: None,
        resource,
    })
}

fn csr(uid: &str, node: &str, pending: bool, resource: u64) -> Seen {
    let fact = CsrFact {
        name: uid.into(),
        signer: "s".into(),
        pending,
    };
    let node = pending.then(|| node.to_owned());
    Seen::Csr(CsrSeen {
        uid: uid.into(),
        fact,
        node,
        resource,
    })
}

fn set(uid: &str, windows: bool, resource: u64) -> Seen {
    Seen::Set(SetSeen {
        uid: uid.into(),
        name: "s".into(),
        replicas: 2,
        ready: 1,
        available: 1,
        windows,
        resource,
    })
}

struct Desk {
    view: View,
    writer: Writer,
    told: Told,
}

impl Desk {
    fn new(live: &[&str]) -> Self {
        let writer = Self::writer(1, live);
        Self {
            view: View::default(),
            writer,
            told: Told::default(),
        }
    }

    fn writer(epoch: u64, live: &[&str]) -> Writer {
        let live = live.iter().map(|uid| (*uid).to_owned()).collect();
        let beginning = Beginning {
            incarnation: Incarnation(7),
            epoch: Epoch(epoch),
            live,
        };
        Writer::new(beginning, "windows", rollout_of("windows").expect("a run"))
    }

    fn see(&mut self, seen: Seen) {
        assert!(self.view.see(seen));
    }

    /// The next epoch, with an empty view.
    fn relist(&mut self, epoch: u64, live: &[&str]) {
        self.told.age();
        self.writer = Self::writer(epoch, live);
        self.view = View::default();
    }

    fn everything(&mut self) -> Vec<String> {
        let letters = self.writer.everything(&mut self.view, &mut self.told);
        letters.iter().map(line).collect()
    }

    fn news(&mut self) -> Vec<String> {
        self.writer
            .news(&mut self.view, &mut self.told)
            .iter()
            .map(line)
            .collect()
    }
}

/// `a: Node n1 @9` is a fact, with `!` one that may begin a run, with `gone` the end of one.
fn line(letter: &FactLetter) -> String {
    let Inbound::Observed(seen) = &letter.body else {
        panic!("the watcher only observes")
    };
    let to = letter.run.key();
    let gone = if seen.fact.is_none() { " gone" } else { "" };
    let start = if seen.may_start { "!" } else { "" };
    let kind = seen.object.kind.replace("CertificateSigningRequest", "Csr");
    format!(
        "{to}: {kind} {} @{}{gone}{start}",
        seen.object.uid, seen.version.resource
    )
}

#[test]
fn a_node_goes_to_the_machine_that_expects_it_and_then_to_the_one_that_has_it() {
    let mut desk = Desk::new(&[]);
    desk.see(Seen::of(machine("a", 1, Some("win-1"), None)));
    assert_eq!(desk.everything()[1..], ["a: Machine a @1!"]);
    desk.see(node("n1", "win-1", 2));
    desk.see(node("n2", "win-10", 3));
    desk.see(node("n3", "win-", 4));
    assert_eq!(desk.news(), ["a: Node n1 @2"]);
    desk.view.lose(Kind::Node, "n2", 4);
    assert_eq!(desk.news(), [""; 0], "nobody's");
    desk.see(Seen::of(machine("b", 5, None, Some("win-1"))));
    assert_eq!(
        desk.news(),
        ["a: Node n1 @5 gone", "b: Machine b @5!", "b: Node n1 @2"]
    );
    desk.see(Seen::of(machine("b", 6, None, None)));
    let back = ["a: Node n1 @6", "b: Node n1 @6 gone", "b: Machine b @6!"];
    assert_eq!(desk.news(), back, "it comes back above its own absence");
    desk.view.lose(Kind::Node, "n1", 9);
    assert_eq!(desk.news(), ["a: Node n1 @9 gone"]);
    assert_eq!(desk.news(), [""; 0]);
}

#[test]
fn a_list_shrinks_with_the_machines_that_go() {
    let mut desk = Desk::new(&[]);
    for uid in ["a", "b"] {
        desk.see(Seen::of(machine(uid, 1, None, Some(uid))));
    }
    desk.everything();
    let listed = |desk: &mut Desk| -> Vec<_> {
        let letters = desk.writer.write_rollout(&desk.view, &mut desk.told, false);
        letters.into_iter().map(|letter| letter.body).collect()
    };
    assert_eq!(listed(&mut desk), []);
    desk.view.lose(Kind::Machine, "a", 5);
    let [Inbound::Observed(seen)] = &listed(&mut desk)[..] else {
        panic!("one fact")
    };
    let rest = rollout::Fact::Listed {
        with_node: vec!["b".into()],
    };
    assert_eq!(
        (seen.fact.clone(), seen.version.resource),
        (Some(Fact::Rollout(rest)), 5)
    );
}

#[test]
fn a_request_goes_to_the_one_machine_that_is_named_exactly() {
    let mut desk = Desk::new(&[]);
    for (uid, name) in [("a", "win-1"), ("b", "win-2"), ("c", "win-2")] {
        desk.see(Seen::of(machine(uid, 1, Some(name), None)));
    }
    desk.see(Seen::of(machine("d", 1, None, Some("win-4"))));
    desk.everything();
    for (uid, name) in [
        ("r1", "win-10"),
        ("r2", "win-"),
        ("r3", "win-2"),
        ("r4", "WIN-1"),
    ] {
        desk.see(csr(uid, name, true, 2));
    }
    assert_eq!(
        desk.news(),
        [""; 0],
        "no prefix, no case, no choice between two"
    );
    assert_eq!(desk.view.foreign_csrs(), 4);
    desk.see(csr("r5", "win-1", true, 3));
    desk.see(csr("r6", "win-4", true, 3));
    assert_eq!(desk.news(), ["a: Csr r5 @3", "d: Csr r6 @3"]);
    desk.see(csr("r5", "", false, 4));
    assert_eq!(desk.news(), ["a: Csr r5 @4"]);
    desk.view.lose(Kind::Csr, "r5", 5);
    assert_eq!(desk.news(), ["a: Csr r5 @5 gone"]);
    desk.view.lose(Kind::Machine, "c", 6);
    assert_eq!(
        desk.news(),
        ["b: Csr r3 @2", "c: Machine c @6 gone"],
        "now there is only one"
    );
}

#[test]
fn what_the_list_lacks_is_gone_and_what_cannot_be_read_is_not() {
    let mut desk = Desk::new(&[]);
    desk.see(Seen::of(machine("a", 1, Some("win-1"), None)));
    desk.see(Seen::of(machine("b", 1, None, None)));
    desk.see(node("n1", "win-1", 2));
    desk.everything();
    desk.relist(2, &["a", "b", "x", "y"]);
    desk.see(Seen::of(machine("a", 1, Some("win-1"), None)));
    desk.view.veil("y");
    desk.view.latest = 9;
    let said = desk.everything();
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
    let mut desk = Desk::new(&["a"]);
    let mut seen = machine("a", 1, None, Some("win-1"));
    seen.node_uid = Some("n1".into());
    desk.see(Seen::of(seen));
    assert!(desk.everything().contains(&"a: Node n1 @1 gone".to_owned()));
}

#[test]
fn hands_off_starts_nothing_but_an_open_run_hears_of_it() {
    let mut desk = Desk::new(&["b"]);
    for uid in ["a", "b"] {
        let mut seen = machine(uid, 1, None, None);
        seen.fact.ignored = true;
        desk.see(Seen::of(seen));
    }
    assert_eq!(desk.everything()[1..], ["b: Machine b @1"]);
    assert!(
        desk.writer
            .again(&desk.view, &desk.told, "b")
            .iter()
            .map(line)
            .eq(["b: Machine b @1"])
    );
    desk.see(Seen::of(machine("a", 2, None, None)));
    assert_eq!(desk.news(), ["a: Machine a @2!"]);
    assert_eq!(desk.writer.started, ["a"]);
}

#[test]
fn late_and_repeated_events_are_no_news() {
    let mut desk = Desk::new(&[]);
    desk.see(Seen::of(machine("a", 5, None, None)));
    desk.everything();
    desk.see(Seen::of(machine("a", 4, Some("old"), None)));
    desk.see(Seen::of(machine("a", 5, None, None)));
    assert_eq!(desk.news(), [""; 0]);
    desk.view.lose(Kind::Machine, "a", 6);
    assert_eq!(desk.news(), ["a: Machine a @6 gone"]);
    desk.see(Seen::of(machine("a", 5, None, None)));
    assert_eq!(desk.news(), [""; 0], "the deleted stay deleted");
}

#[test]
fn owners_grow_with_their_machines_and_linux_has_none() {
    let mut desk = Desk::new(&[]);
    desk.see(set("set", true, 1));
    desk.see(set("linux", false, 2));
    let said = desk.everything();
    assert_eq!(
        said,
        ["windows: List windows @2!", "windows: MachineSet set @2!"]
    );
    let next = |desk: &mut Desk| -> Vec<_> {
        let letters = desk.writer.write_rollout(&desk.view, &mut desk.told, false);
        letters.iter().map(line).collect()
    };
    desk.see(node("n", "other", 7));
    assert_eq!(next(&mut desk), [""; 0]);
    desk.see(Seen::of(machine("a", 5, None, None)));
    assert_eq!(next(&mut desk), ["windows: MachineSet set @8!"]);
    desk.see(Seen::of(machine("b", 6, None, None)));
    let grown = next(&mut desk);
    assert_eq!(
        grown,
        ["windows: MachineSet set @9!"],
        "though no resourceVersion is larger"
    );
    desk.view.lose(Kind::Set, "set", 9);
    assert_eq!(next(&mut desk), ["windows: MachineSet set @10 gone"]);
}

#[test]
fn settings_go_to_runs_and_rollout_once() {
    let mut desk = Desk::new(&["a"]);
    desk.see(Seen::of(machine("a", 3, None, None)));
    assert!(desk.writer.set_pool(PoolSettings::default(), 3));
    assert_eq!(
        desk.everything()[1..],
        [
            "windows: Pool windows @3!",
            "a: Machine a @3!",
            "a: Pool windows @3"
        ]
    );
    assert!(!desk.writer.set_pool(PoolSettings::default(), 9));
    let paused = PoolSettings {
        paused: true,
        ..PoolSettings::default()
    };
    assert!(desk.writer.set_pool(paused, 3));
    let news: Vec<_> = desk
        .writer
        .pool_news(&desk.view, &mut desk.told)
        .iter()
        .map(line)
        .collect();
    assert_eq!(news, ["windows: Pool windows @4!", "a: Pool windows @4"]);
}
