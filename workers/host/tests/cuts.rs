//! The program killed before and after each of its operations, then called again: the same end, whatever was cut.

use dormer_host::run;
use dormer_host_sim::{Cut, SimulatedHost, When, until_cut};
use dormer_profile::{document::Document, invocation::Mode as Asked};

use crate::harness::{
    ask, assert_as_asked, assert_converged, call, foreign_service, host_with_overlay,
    network_section, node,
};

/// State of a host without times, tasks and ids.
fn end(host: &SimulatedHost) -> Vec<String> {
    let mut host = host.clone();
    host.pass(10_000);
    let telling =
        |line: &String| line.contains(r"\state\holder.json") || line.contains(r"\state\last.json");
    let mut all: Vec<String> = host
        .snapshot()
        .into_iter()
        .filter(|line| !telling(line))
        .collect();
    all.sort();
    all
}

/// Runs `mode` on clones of `host`, cut at every operation that changes something, then again. Answers how many cuts
/// there were.
fn every_cut(host: &SimulatedHost, mode: Asked, document: Option<&Document>) -> usize {
    let bytes = || Ok(document.map(|document| document.to_bytes().expect("a document")));
    let mut whole = host.clone();
    let answer = ask(&mut whole, call(mode, 3), document);
    assert_eq!(answer.failure, None, "{:#?}", answer.items);
    let wanted = end(&whole);
    for at in 0.. {
        let mut cut_at_all = false;
        for when in [When::Before, When::After] {
            let mut host = host.clone();
            let cut = until_cut(run(call(mode, 3), bytes(), Cut::new(&mut host, at, when)));
            if cut.is_some() {
                continue;
            }
            cut_at_all = true;
            host.process_ended();
            let log = host.take_log();
            let answer = ask(&mut host, call(mode, 3), document);
            let last = log.last().copied().unwrap_or_default();
            assert_eq!(
                answer.failure, None,
                "cut {when:?} operation {at}, after {last}: {:#?}",
                answer.items
            );
            let said = serde_json::to_string(&answer).expect("an answer");
            assert!(!said.contains("s3cret"));
            let left = end(&host);
            let only = |one: &[String], other: &[String]| -> Vec<String> {
                one.iter()
                    .filter(|line| !other.contains(line))
                    .cloned()
                    .collect()
            };
            assert_eq!(
                (only(&left, &wanted), only(&wanted, &left)),
                (Vec::new(), Vec::new()),
                "cut {when:?} operation {at}, after {last}"
            );
            if let Some(document) = document {
                assert_as_asked(&mut host, document);
            }
        }
        if !cut_at_all {
            return at;
        }
    }
    0
}

#[test]
fn a_bring_up_that_is_cut_anywhere_ends_as_one_that_is_not() {
    let host = host_with_overlay();
    let cuts = every_cut(&host, Asked::Apply, Some(&node("v1")));
    assert!(cuts > 60, "{cuts} operations");
}

#[test]
fn a_network_section_that_is_cut_anywhere_ends_as_one_that_is_not() {
    let mut host = host_with_overlay();
    assert_converged(&ask(&mut host, call(Asked::Apply, 1), Some(&node("v1"))));
    let cuts = every_cut(&host, Asked::Apply, Some(&network_section("v1")));
    assert!(cuts > 40, "{cuts} operations");
}

#[test]
fn an_upgrade_that_is_cut_anywhere_ends_as_one_that_is_not() {
    let mut host = host_with_overlay();
    assert_converged(&ask(&mut host, call(Asked::Apply, 1), Some(&node("v1"))));
    let cuts = every_cut(&host, Asked::Apply, Some(&node("v2")));
    assert!(cuts > 40, "{cuts} operations");
}

#[test]
fn a_removal_that_is_cut_anywhere_ends_as_one_that_is_not() {
    let mut host = host_with_overlay();
    assert_converged(&ask(&mut host, call(Asked::Apply, 1), Some(&node("v1"))));
    assert_converged(&ask(
        &mut host,
        call(Asked::Apply, 1),
        Some(&network_section("v1")),
    ));
    // What the node's own programs wrote.
    host.put(r"C:\var\lib\kubelet\pods\a\etc-hosts", b"x");
    host.put(r"C:\var\lib\cni\networks\overlay\10.132.1.9", b"a pod's");
    let cuts = every_cut(&host, Asked::Remove, None);
    assert!(cuts > 40, "{cuts} operations");
}

#[test]
fn a_boot_run_that_is_cut_anywhere_is_done_by_the_next() {
    let mut host = host_with_overlay();
    assert_converged(&ask(&mut host, call(Asked::Apply, 1), Some(&node("v1"))));
    assert_converged(&ask(
        &mut host,
        call(Asked::Apply, 1),
        Some(&network_section("v1")),
    ));
    host.reboot();
    for at in 0.. {
        let mut host = host.clone();
        let boot = dormer_host::arguments::parse(&["boot".into()]).expect("a call");
        let cut = until_cut(run(boot, Ok(None), Cut::new(&mut host, at, When::After)));
        if cut.is_some() {
            return;
        }
        // The power failed in the middle: the next boot has a boot run of its own.
        host.reboot();
        assert_eq!(
            crate::harness::boot(&mut host).failure,
            None,
            "operation {at}"
        );
        assert_as_asked(&mut host, &node("v1"));
        assert_as_asked(&mut host, &network_section("v1"));
    }
}

#[test]
fn somebody_elses_service_that_was_stopped_runs_again_whatever_is_cut() {
    let mut host = host_with_overlay();
    assert_converged(&ask(&mut host, call(Asked::Apply, 1), Some(&node("v1"))));
    foreign_service(&mut host, "audit", &["kubelet"]);
    let cuts = every_cut(&host, Asked::Apply, Some(&node("v2")));
    assert!(cuts > 40, "{cuts} operations");
}
