//! What a Windows host sends, and what the program on it reads.

use bytes::Bytes;
use dormer_host::{arguments, containerd, heartbeat::HostHeartbeat};
use dormer_profile::{answer::Answer, clixml, document::Document, frame};
use dormer_workers::{
    host::{obstacle, scrubbed},
    ssh::{
        Output,
        key_file::{keys_stay_out, permits, with_key, without_edit, without_key},
    },
};
use russh_sftp::protocol::Packet;
use std::io::{self, Cursor, Read, Write};

pub(crate) fn frame(bytes: &[u8]) {
    if let Ok(answer) = frame::extract(bytes, "t", 1) {
        written_and_read(&answer);
    }
}

/// The content of a frame: its checksum would keep a fuzzer out.
pub(crate) fn answer(bytes: &[u8]) {
    let Ok(mut answer) = serde_json::from_slice::<Answer>(bytes) else {
        return;
    };
    // A frame is for one attempt, and of the schema that this build knows.
    "t".clone_into(&mut answer.task);
    answer.attempt = 1;
    answer.schema = dormer_profile::document::DOCUMENT_SCHEMA;
    if serde_json::to_vec(&answer).is_ok_and(|json| json.len() < frame::ANSWER_BYTES_MAX / 6) {
        written_and_read(&answer);
    }
}

fn written_and_read(answer: &Answer) {
    let again = frame::extract(&frame::write(answer), "t", 1);
    assert_eq!(again.as_ref(), Ok(answer));
}

pub(crate) fn sign(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for line in text.lines() {
        if let Ok(sign) = line.parse::<HostHeartbeat>() {
            assert_eq!(sign.to_string().parse(), Ok(sign));
        }
    }
}

pub(crate) fn stderr(bytes: &[u8]) {
    let _ = clixml::readable(bytes);
}

pub(crate) fn sftp(bytes: &[u8]) {
    let _ = Packet::try_from(&mut Bytes::copy_from_slice(bytes));
}

/// The file with the keys of a host's administrators, which a rotation changes in place.
pub(crate) fn keys(bytes: &[u8]) {
    const OLD: &str = "ssh-ed25519 AAAAold";
    const NEW: &str = "ssh-ed25519 AAAAnew";
    let _ = keys_stay_out(bytes);
    let mut after = bytes.to_vec();
    if let Some(edit) = with_key(bytes, NEW) {
        assert_eq!(edit.at, bytes.len() as u64, "after all that is there");
        after.extend(&edit.bytes);
        assert_eq!(without_edit(&after, &edit), Some(edit.at));
    }
    assert!(permits(&after, NEW) && with_key(&after, NEW).is_none());
    assert_eq!(permits(&after, OLD), permits(bytes, OLD));
    let mut without = after.clone();
    for edit in without_key(&after, OLD) {
        let at = usize::try_from(edit.at).expect("a place in the file");
        without[at..=at].copy_from_slice(&edit.bytes);
    }
    assert!(!permits(&without, OLD) && without_key(&without, OLD).is_empty());
    assert!(permits(&without, NEW), "the other key stays");
}

/// What a command says in place of an answer.
pub(crate) fn output(bytes: &[u8]) {
    let clean = scrubbed(&String::from_utf8_lossy(bytes));
    for status in [None, Some(1)] {
        let output = Output {
            stdout: bytes.to_vec(),
            stderr: bytes.to_vec(),
            status,
        };
        let _ = obstacle(&output, &clean);
    }
}

pub(crate) fn document(bytes: &[u8]) {
    let _ = Document::from_bytes(bytes);
}

pub(crate) fn arguments(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let _ = arguments::parse(&words);
}

/// containerd's side of a connection; what the program writes is dropped.
struct Peer<'a>(&'a [u8]);

impl Read for Peer<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn containerd(bytes: &[u8]) {
    let _ = containerd::find(Peer(bytes), "registry.k8s.io/pause:3.10.2");
}

pub(crate) fn image(bytes: &[u8]) {
    let _ = containerd::describe(Cursor::new(bytes), "registry.k8s.io/pause:3.10.2");
}
