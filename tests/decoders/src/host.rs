//! What a Windows host sends, and what the program on it reads.

use bytes::Bytes;
use dormer_host::{arguments, containerd, heartbeat::HostHeartbeat};
use dormer_profile::{answer::Answer, clixml, document::Document, frame};
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
