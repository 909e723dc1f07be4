//! Stories of certificate requests.

use super::holds;
use super::serving::adopted_fact;
use crate::common;
use crate::common::{
    Story, converged, csr_is, evicted, first_csr, in_place, machine, machine_is, node, node_gone,
    node_is, planned, pool_is, probed, ready, wanting,
};
use dormer_engine_core::Input;
use dormer_proto::id::{LeaseToken, Timestamp};
use dormer_proto::machine::{
    self, CLIENT_SIGNER, ChangeClass, CsrExpectation, CsrFact, ForeignNode, MachineFact, NodeFact,
    Outcome, SERVING_SIGNER, Section, Signal, Task, Validity,
};
use dormer_proto::work::Fact;
use dormer_workflows::machine::{CSRS_MAX, KubeletCertificates, Phase, Timer};
use expect_test::expect_file;

#[test]
fn a_certificate_that_does_not_fit_yet() {
    let mut story = Story::joined(wanting("v1"));
    let why = "the address 10.0.0.9 is not the Machine's".to_owned();
    let more = vec!["10.0.0.1".into(), "10.0.0.9".into()];
    story
        .feed("the kubelet asks for a certificate", csr_is(true))
        .done(
            "approve-csr",
            Outcome::CsrRefused {
                csr: "csr-1".into(),
                why,
                foreign: None,
            },
        )
        .feed(
            "the Machine has one more address",
            machine_is(MachineFact {
                addresses: more,
                ..adopted_fact()
            }),
        )
        .feed("somebody else approves", csr_is(false));
    holds(&story, expect_file!["../stories/certificate.txt"]);
}

/// Why a request was refused may end without a fact for this run: another machine claimed the name, and is gone.
#[test]
fn a_refused_request_is_checked_again_when_a_node_is_awaited() {
    let refused = || Outcome::CsrRefused {
        csr: "csr-0".into(),
        why: "another Machine has this name".into(),
        foreign: None,
    };
    let mut story = nameless();
    story
        .feed("the kubelet asks", first_csr())
        .done("approve-csr", refused());
    assert_eq!(story.names(), [""; 0], "{}", story.text);
    story.feed("no Node came", Input::Fired(Timer::Deadline));
    assert!(matches!(story.state.phase, Phase::Failed { .. }));
    story.person(Signal::Retry);
    assert!(story.names().contains(&"approve-csr"), "{}", story.text);
    story
        .done("approve-csr", refused())
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false));
    assert_eq!(story.state.phase, Phase::NodeWait, "{}", story.text);
    assert_eq!(story.names(), ["approve-csr"], "{}", story.text);
}

fn expected(story: &Story) -> CsrExpectation {
    match story.task("approve-csr") {
        Task::ApproveCsr { expect, .. } => expect,
        other => panic!("{other:?}"),
    }
}

/// A Machine whose platform tells no provider id, as its host is configured.
fn nameless() -> Story {
    let bare = MachineFact {
        provider_id: None,
        ..machine()
    };
    let mut story = Story::begin(bare);
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false));
    story
}

#[test]
fn a_first_certificate_is_due_for_two_hours_after_its_host_was_configured() {
    const HOUR: u64 = 3_600_000;
    let mut story = nameless();
    story
        .later_ms(2 * HOUR)
        .feed("the kubelet asks", first_csr());
    let expect = expected(&story);
    assert!(expect.configured && !expect.served);
    assert_eq!(expect.machine, Some(machine().machine));
    let mut story = nameless();
    story
        .later_ms(2 * HOUR + 1)
        .feed("the kubelet asks", first_csr());
    assert!(!expected(&story).configured, "too late");
    let mut story = Story::joined(wanting("v1"));
    story.feed("somebody asks", first_csr());
    let expect = expected(&story);
    assert!(!expect.configured && expect.served, "it serves");
    assert_eq!(expect.node_uid.as_deref(), Some("uid-node"));
    assert_eq!(expect.provider_id.as_deref(), Some("aws:///a"));
    assert_eq!(expect.torn_down, None);
}

#[test]
fn a_host_that_is_torn_down_under_the_lease_may_ask_anew() {
    let mut story = Story::joined(in_place("v1"));
    story
        .feed("the pool wants v2", pool_is(in_place("v2")))
        .done("plan", planned(Some(ChangeClass::Drain)))
        .granted(7, false)
        .done(
            "open-fence",
            Outcome::FenceOpened {
                was_cordoned: false,
            },
        )
        .done("evict", evicted(4, 0))
        .done("tear-down", Outcome::TornDown)
        .done("probe", probed())
        .feed("the kubelet asks", first_csr());
    let expect = expected(&story);
    assert!(expect.configured && expect.served);
    assert_eq!(expect.torn_down, Some(LeaseToken(7)));
    story.done("converge-host", converged(Section::Host, false));
}

/// Scenario 40: the Node `win-a` was there before, and nothing says whose it is.
#[test]
fn a_node_that_was_there_before_its_first_certificate_is_not_taken() {
    let foreign = || NodeFact {
        provider_id: None,
        ..ready()
    };
    let mut story = nameless();
    story.feed("a Node of its name is seen", node_is(foreign()));
    assert_eq!(story.state.node, None, "it is never fenced or drained");
    story.feed("the kubelet asks", first_csr());
    assert_eq!(expected(&story).node_uid, None);
    story.done(
        "approve-csr",
        Outcome::CsrRefused {
            csr: "csr-0".into(),
            why: "nothing says that it is this Machine's".into(),
            foreign: None,
        },
    );
    assert!(story.open.is_empty(), "not again and again");
    story.feed("that Node is gone", node_gone());
    story.done(
        "approve-csr",
        Outcome::CsrApproved {
            csr: "csr-0".into(),
        },
    );
    story.feed("its own Node is seen", node_is(foreign()));
    assert!(story.state.node.is_some(), "born of that certificate");
}

/// The machine has a providerID and the Node has none, so nothing says that they are one: a person reads which one is missing.
#[test]
fn a_node_without_a_provider_id_is_named_as_such() {
    let unnamed = || NodeFact {
        provider_id: None,
        ..ready()
    };
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .feed("a Node of its name is seen", node_is(unnamed()));
    assert_eq!(story.state.node, None);
    let said = story.state.view().reason.unwrap_or_default();
    assert!(
        said.contains("has no providerID: this machine's is aws:///a"),
        "{said}"
    );
}

/// A host without a providerID. Its first certificate is asked for.
fn asks_first() -> Story {
    let mut story = nameless();
    story.feed("the kubelet asks", first_csr());
    assert_eq!(story.names(), ["approve-csr"], "{}", story.text);
    story
}

fn approved() -> Outcome {
    Outcome::CsrApproved {
        csr: "csr-0".into(),
    }
}

fn registers() -> common::In {
    node_is(NodeFact {
        provider_id: None,
        ..node()
    })
}

/// Of its `nodeRef`, the Node and the answer about the first certificate each may be the last to come. A
/// Node that does not change is shown once.
#[test]
fn a_node_is_taken_whatever_comes_last_of_what_shows_whose_it_is() {
    let issued = || match first_csr() {
        Input::Observed {
            object,
            fact: Some(Fact::Machine(machine::Fact::Csr(csr))),
        } => Input::Observed {
            object,
            fact: Some(Fact::Machine(machine::Fact::Csr(CsrFact {
                pending: false,
                ..csr
            }))),
        },
        other => other,
    };
    let linked = || {
        machine_is(MachineFact {
            provider_id: None,
            node: Some(node().name),
            ..machine()
        })
    };
    let mut the_node = asks_first();
    the_node
        .feed("the watch shows that it is approved", issued())
        .done("approve-csr", approved())
        .feed("the Node registers", registers());
    let mut the_answer = asks_first();
    the_answer
        .feed("the watch shows that it is approved", issued())
        .feed("the Node registers", registers())
        .done("approve-csr", approved());
    let mut its_link = asks_first();
    its_link
        .feed("the Node registers", registers())
        .feed("its object names the Node", linked());
    for story in [the_node, the_answer, its_link] {
        let phase = &story.state.phase;
        assert_eq!(*phase, Phase::ConvergingNode, "{}", story.text);
        assert_eq!(story.state.unclaimed_node, None);
    }
}

#[test]
fn a_foreign_node_is_the_cause_of_a_node_that_did_not_appear() {
    let foreign = ForeignNode {
        node: "win-a".into(),
        theirs: "aws:///a/i-0".into(),
        ours: "aws:///a/i-1".into(),
    };
    let mut story = asks_first();
    story
        .done(
            "approve-csr",
            Outcome::CsrRefused {
                csr: "csr-0".into(),
                why: foreign.to_string(),
                foreign: Some(foreign.clone()),
            },
        )
        .feed("no Node came", Input::Fired(Timer::Deadline));
    let Phase::Failed { failure, .. } = &story.state.phase else {
        panic!("{}", story.text)
    };
    assert_eq!(failure.message, foreign.name_taken());
    assert_eq!(story.state.view().foreign_node, Some(foreign));
}

#[test]
fn a_node_that_nothing_shows_to_be_its_own_is_never_taken() {
    let mut refused = asks_first();
    refused.feed("the Node registers", registers()).done(
        "approve-csr",
        Outcome::CsrRefused {
            csr: "csr-0".into(),
            why: "the Node win-a is there".into(),
            foreign: None,
        },
    );
    assert_eq!(refused.state.phase, Phase::NodeWait, "{}", refused.text);
    let mut gone = asks_first();
    gone.feed("the Node registers", registers())
        .feed("and is deleted", node_gone())
        .done("approve-csr", approved());
    assert_eq!(gone.state.phase, Phase::NodeWait, "{}", gone.text);
}

fn issued(signer: &str, from: u64, until: u64) -> common::In {
    let validity = Validity {
        from: Timestamp(from),
        until: Timestamp(until),
    };
    let csr = CsrFact {
        name: "csr-9".into(),
        signer: signer.into(),
        pending: false,
        issued: Some(validity),
    };
    Input::Observed {
        object: common::object("CertificateSigningRequest", "uid-9"),
        fact: Some(Fact::Machine(machine::Fact::Csr(csr))),
    }
}

/// A kubelet renews both by itself, and dormer learns of each that is issued: also of one whose request it never saw.
#[test]
fn the_newest_certificates_of_a_kubelet_are_known_with_their_ends() {
    let mut story = Story::joined(wanting("v1"));
    assert_eq!(
        story.state.view().certificates,
        KubeletCertificates::default()
    );
    story
        .feed("its first certificate", issued(CLIENT_SIGNER, 100, 500))
        .feed(
            "the one by which it serves",
            issued(SERVING_SIGNER, 150, 600),
        )
        .feed("its first one is renewed", issued(CLIENT_SIGNER, 400, 900))
        .feed(
            "an older one is told again",
            issued(CLIENT_SIGNER, 100, 500),
        )
        .feed(
            "one of another signer",
            issued("example.com/other", 700, 9_000),
        );
    let ends = |certificate: Option<Validity>| certificate.map(|it| it.until.0);
    let KubeletCertificates { client, serving } = story.state.view().certificates;
    assert_eq!((ends(client), ends(serving)), (Some(900), Some(600)));
    assert!(story.open.is_empty(), "nothing is to be done for it");
}

fn csr_numbered(n: usize) -> common::In {
    let csr = CsrFact {
        name: format!("csr-{n}"),
        signer: "kubernetes.io/kube-apiserver-client-kubelet".into(),
        pending: true,
        issued: None,
    };
    Input::Observed {
        object: common::object("CertificateSigningRequest", &format!("uid-{n:02}")),
        fact: Some(Fact::Machine(machine::Fact::Csr(csr))),
    }
}

#[test]
fn junk_requests_make_room_for_the_true_one() {
    let mut story = nameless();
    for n in 0..20 {
        story.feed("a request comes", csr_numbered(n));
    }
    assert_eq!(story.open.len(), CSRS_MAX);
    let dropped = story.text.matches("not taken in").count();
    assert_eq!(dropped, 20 - CSRS_MAX, "each is news again: {}", story.text);
    for n in 0..CSRS_MAX {
        let refused = Outcome::CsrRefused {
            csr: format!("csr-{n}"),
            why: "its usages are any".into(),
            foreign: None,
        };
        story.done("approve-csr", refused);
    }
    story.feed("the true one comes", csr_numbered(99));
    let Task::ApproveCsr { csr, .. } = story.task("approve-csr") else {
        panic!("{:?}", story.open)
    };
    assert_eq!((csr.as_str(), story.open.len()), ("csr-99", 1));
    assert_eq!(story.state.csrs.len(), CSRS_MAX);
}

pub(super) fn person(signal: Signal) -> common::In {
    Input::Signalled {
        from: dormer_engine_core::Sender::Person {
            who: "ada".into(),
            why: String::new(),
        },
        signal: dormer_proto::work::Signal::Machine(signal),
    }
}

/// A node that serves renews its certificates while its machine is paused; a host that joins gets none.
#[test]
fn renewals_are_approved_while_paused() {
    let mut story = Story::joined(wanting("v1"));
    story
        .person(Signal::Pause)
        .feed("its kubelet renews", csr_is(true));
    assert_eq!(story.names(), ["approve-csr"]);
    let mut story = Story::begin(machine());
    story
        .feed("the pool's settings are seen", pool_is(wanting("v1")))
        .done("probe", probed())
        .done("converge-host", converged(Section::Host, false))
        .person(Signal::Pause)
        .feed("its kubelet asks for the first time", csr_is(true));
    assert_eq!(story.names(), Vec::<&str>::new());
    story.person(Signal::Resume);
    assert_eq!(story.names(), ["approve-csr"]);
}
