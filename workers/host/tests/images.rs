//! Images that come out of the payload.

use dormer_host_sim::{SimulatedHost, image_archive};
use dormer_profile::{
    answer::{FailureCode, ItemState},
    document::Document,
    item::{Image, Item, ItemKind},
};

use crate::harness::*;

const PAUSE: &str = "registry.example/pause:3.10.2";
const ARCHIVE: &str = r"C:\k\v1\pause.tar";

fn digest(byte: &str) -> String {
    byte.repeat(32)
}

fn image(archive: &str) -> Item {
    let what = Image {
        name: PAUSE.into(),
        archive: archive.into(),
        pipe: r"\\.\pipe\containerd-containerd".into(),
        wait_ms: 10_000,
    };
    item(&format!("image:{PAUSE}"), ItemKind::Image(what))
}

/// A node whose kubelet comes after the image.
fn with_image(byte: &str) -> (Document, Vec<u8>) {
    let bytes = image_archive(&digest(byte));
    let mut document = node("v1");
    let kubelet = document.items.pop().expect("the kubelet's service");
    document.items.push(image(ARCHIVE));
    document.items.push(kubelet);
    document.items.insert(0, staged(ARCHIVE, &bytes));
    (document, bytes)
}

fn upload(host: &mut SimulatedHost, bytes: &[u8]) {
    let name = dormer_profile::sha256_hex(bytes);
    host.put(&format!(r"C:\Windows\dormer\staging\{name}"), bytes);
}

/// A host with the document's files, and without the image.
fn fresh(byte: &str) -> (SimulatedHost, Document) {
    let (document, bytes) = with_image(byte);
    let mut host = SimulatedHost::with_containers();
    // The folder and its rights come with the first call.
    ask(
        &mut host,
        call(dormer_profile::invocation::Mode::Plan, 1),
        Some(&document),
    );
    upload(&mut host, &bytes);
    (host, document)
}

#[test]
fn an_image_of_the_payload_is_there_before_the_kubelet_runs() {
    let (mut host, document) = fresh("5e");
    let planned = plan(&mut host, &document);
    assert_eq!(
        state(&planned, &format!("image:{PAUSE}")),
        ItemState::Differs
    );
    assert_eq!(host.image(PAUSE), None, "a plan imports nothing");
    // containerd says RUNNING a while before it answers.
    host.pipe_comes_in(4_000);
    let answer = apply(&mut host, &document);
    assert_converged(&answer);
    assert_eq!(
        state(&answer, &format!("image:{PAUSE}")),
        ItemState::Changed
    );
    let wanted = format!("sha256:{}", digest("5e"));
    assert_eq!(host.image(PAUSE), Some(wanted.as_str()));
    assert_as_asked(&mut host, &document);
    // Another program's image of that name is replaced.
    host.set_image(PAUSE, "sha256:other");
    let planned = plan(&mut host, &document);
    let id = format!("image:{PAUSE}");
    assert_eq!(detail(&planned, &id), "another image of that name");
    assert_converged(&apply(&mut host, &document));
    assert_eq!(host.image(PAUSE), Some(wanted.as_str()));
}

#[test]
fn without_the_image_the_kubelet_does_not_start() {
    let (mut host, document) = fresh("5e");
    host.pipe_comes_in(3_600_000);
    let answer = apply(&mut host, &document);
    assert_eq!(code(&answer), Some(FailureCode::NotHealthy));
    assert_eq!(state(&answer, &format!("image:{PAUSE}")), ItemState::Failed);
    assert_eq!(state(&answer, "service:kubelet"), ItemState::Skipped);
    assert_eq!(host.service_state("kubelet"), None);
}

#[test]
fn an_archive_that_was_not_uploaded_is_missing() {
    let (document, _) = with_image("5e");
    let mut host = SimulatedHost::with_containers();
    let planned = plan(&mut host, &document);
    assert_eq!(planned.missing_files, [ARCHIVE], "asked for once");
    assert_eq!(
        detail(&planned, &format!("image:{PAUSE}")),
        "its archive is not there"
    );
    // It is not sent: an apply ends there.
    let mut host = SimulatedHost::with_containers();
    let mut document = node("v1");
    document.items.push(image(ARCHIVE));
    assert_eq!(
        code(&apply(&mut host, &document)),
        Some(FailureCode::FileMissing)
    );
    // One that is there and is none is refused in words.
    let mut host = SimulatedHost::with_containers();
    let mut document = node("v1");
    document.items.push(image(r"C:\k\kubelet.conf"));
    let answer = apply(&mut host, &document);
    assert_eq!(code(&answer), Some(FailureCode::Other));
    let message = answer
        .failure
        .map(|failure| failure.message)
        .unwrap_or_default();
    assert!(
        message.contains("reading the image") && message.contains("tar"),
        "{message}"
    );
}

#[test]
fn an_image_stays_where_containerds_store_stays() {
    let (mut host, document) = fresh("5e");
    assert_converged(&apply(&mut host, &document));
    assert_converged(&remove(&mut host));
    assert!(host.image(PAUSE).is_some(), "pods of others may use it");
    assert!(host.file(ARCHIVE).is_none(), "the payload goes");
}
