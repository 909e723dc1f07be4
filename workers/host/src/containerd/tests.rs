//! Tests of the client against a server that keeps HTTP/2's rules like Go's, and counts its requests.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Cursor, Read, Write},
};

use dormer_profile::sha256_hex;

use super::protobuf::{ProtobufMessage, field, fields};
use super::{ALREADY_EXISTS, NO_DATA, NOT_FOUND, REFUSED, describe, find, hpack, import, rfc_3339};

const PAUSE: &str = "registry.example/pause:3.10.2";

/// A containerd of the tests.
#[derive(Debug, Default)]
struct Containerd {
    images: BTreeMap<String, String>,
    blobs: BTreeMap<String, (Vec<u8>, BTreeMap<String, String>)>,
    /// Digests that were written, in order; those of blobs that were there are not among them.
    written: Vec<String>,
    leases: Vec<String>,
    /// Method and metadata of each call.
    calls: Vec<(String, String)>,
    /// Bytes that the client may send: on the connection, on the call.
    windows: (i64, i64),
    input: Vec<u8>,
    begun: bool,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    ingest: Vec<u8>,
    output: VecDeque<u8>,
    refuses: Option<(&'static str, u32)>,
    speaks: Option<&'static [u8]>,
}

impl Containerd {
    fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let size = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
        self.output.extend([size[1], size[2], size[3], kind, flags]);
        self.output.extend(id.to_be_bytes());
        self.output.extend(payload);
    }

    /// Ends a call: an answer and the trailers, the status packed in two frames.
    fn end(&mut self, id: u32, answer: Option<&[u8]>, status: u32) {
        self.frame(1, 4, id, &[0x88, 0x5f, 0x01, b'x']);
        if let Some(answer) = answer {
            let mut body = vec![0];
            body.extend(u32::try_from(answer.len()).expect("short").to_be_bytes());
            body.extend(answer);
            // With two bytes of padding.
            let mut padded = vec![2];
            padded.extend(body);
            padded.extend([0, 0]);
            self.frame(0, 8, id, &padded);
        }
        let status = status.to_string();
        let trailers = hpack::encode(&[("grpc-status", &status), ("grpc-message", "so it is")]);
        let (first, second) = trailers.split_at(5);
        self.frame(1, 1, id, first);
        self.frame(9, 4, id, second);
    }

    fn header(&self, name: &str) -> String {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    fn take_frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        match kind {
            1 => {
                self.headers = hpack::decode(payload).expect("headers");
                let method = self.header(":path").replace("/containerd.services.", "");
                let namespace = self.header("containerd-namespace");
                let lease = self.header("containerd-lease");
                let lease = if lease.is_empty() { "-" } else { "leased" };
                self.calls.push((method, format!("{namespace} {lease}")));
                self.body.clear();
                self.ingest.clear();
                self.windows.1 = 65_535;
                // A question in between.
                self.frame(6, 0, 0, b"are you?");
            }
            0 => {
                let size = i64::try_from(payload.len()).expect("a frame");
                self.windows.0 -= size;
                self.windows.1 -= size;
                assert!(
                    self.windows.0 >= 0 && self.windows.1 >= 0,
                    "sent past its window"
                );
                self.body.extend(payload);
                self.messages(id, flags & 1 != 0);
                // Room again only when there is none, as a server does that lags behind.
                if self.windows.0 == 0 {
                    self.windows.0 += 65_535;
                    self.frame(8, 0, 0, &65_535_u32.to_be_bytes());
                }
                if self.windows.1 == 0 {
                    self.windows.1 += 65_535;
                    self.frame(8, 0, id, &65_535_u32.to_be_bytes());
                }
            }
            6 => assert_eq!((flags, payload), (1, &b"are you?"[..])),
            4 | 8 => {}
            other => panic!("a frame of kind {other}"),
        }
    }

    fn messages(&mut self, id: u32, last: bool) {
        while let Some((head, rest)) = self.body.split_first_chunk::<5>() {
            let size = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let Some(message) = rest.get(..size as usize) else {
                return;
            };
            let message = message.to_vec();
            self.body.drain(..5 + size as usize);
            let last = last && self.body.is_empty();
            self.message(id, &message, last);
        }
    }

    fn message(&mut self, id: u32, message: &[u8], last: bool) {
        let text =
            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let labels = |bytes: &[u8], number: u64| -> BTreeMap<String, String> {
            let entries = fields(bytes).filter(|(found, _)| *found == number);
            entries
                .map(|(_, entry)| (text(field(entry, 1)), text(field(entry, 2))))
                .collect()
        };
        let method = self.calls.last().expect("a call").0.clone();
        if let Some((refused, status)) = self.refuses
            && method == refused
        {
            return self.end(id, None, status);
        }
        match method.as_str() {
            "images.v1.Images/Get" => match self.images.get(&text(field(message, 1))) {
                None => self.end(id, None, NOT_FOUND),
                Some(digest) => {
                    let (mut target, mut image, mut answer) =
                        <(ProtobufMessage, ProtobufMessage, ProtobufMessage)>::default();
                    target.text(2, digest);
                    image.bytes(3, &target.done());
                    answer.bytes(1, &image.done());
                    self.end(id, Some(&answer.done()), 0);
                }
            },
            "images.v1.Images/Create" | "images.v1.Images/Update" => {
                let image = field(message, 1).expect("an image");
                let name = text(field(image, 1));
                let digest = text(field(image, 3).and_then(|target| field(target, 2)));
                assert!(self.blobs.contains_key(&digest), "the name before its blob");
                if method.ends_with("Create") && self.images.contains_key(&name) {
                    return self.end(id, None, ALREADY_EXISTS);
                }
                self.images.insert(name, digest);
                self.end(id, Some(&[]), 0);
            }
            "leases.v1.Leases/Create" => {
                self.leases.push(text(field(message, 1)));
                assert!(labels(message, 3).contains_key("containerd.io/gc.expire"));
                self.end(id, Some(&[]), 0);
            }
            "leases.v1.Leases/Delete" => {
                let lease = text(field(message, 1));
                self.leases.retain(|one| *one != lease);
                self.end(id, Some(&[]), 0);
            }
            "content.v1.Content/Update" => {
                let info = field(message, 1).expect("an info");
                let blob = self.blobs.get_mut(&text(field(info, 1))).expect("a blob");
                blob.1.extend(labels(info, 5));
                self.end(id, Some(&[]), 0);
            }
            "content.v1.Content/Write" => {
                let expected = text(field(message, 4));
                if self.blobs.contains_key(&expected) {
                    return self.end(id, None, ALREADY_EXISTS);
                }
                self.ingest.extend(field(message, 6).unwrap_or_default());
                if last {
                    assert_eq!(expected, format!("sha256:{}", sha256_hex(&self.ingest)));
                    let bytes = std::mem::take(&mut self.ingest);
                    self.written.push(expected.clone());
                    self.blobs.insert(expected, (bytes, labels(message, 7)));
                    self.end(id, Some(&[]), 0);
                }
            }
            other => panic!("a call of {other}"),
        }
    }
}

impl Write for &mut Containerd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.input.extend(bytes);
        if let Some(other) = self.speaks.take() {
            self.output.extend(other);
        }
        if !self.begun {
            let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
            if self.input.len() < preface.len() {
                return Ok(bytes.len());
            }
            assert!(self.input.starts_with(preface));
            self.input.drain(..preface.len());
            self.begun = true;
            self.windows = (65_535, 65_535);
            self.frame(4, 0, 0, &[0, 5, 0, 0, 64, 0]);
        }
        while let Some(head) = self.input.get(..9) {
            let size = usize::from(head[1]) << 8 | usize::from(head[2]);
            let (kind, flags, id) = (
                head[3],
                head[4],
                u32::from(head[8]) | u32::from(head[7]) << 8,
            );
            let Some(payload) = self.input.get(9..9 + size) else {
                break;
            };
            let payload = payload.to_vec();
            self.input.drain(..9 + size);
            self.take_frame(kind, flags, id, &payload);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for &mut Containerd {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // An empty answer is the end of the connection: a client that waits for what never comes fails.
        let count = into.len().min(self.output.len()).min(7);
        for byte in &mut into[..count] {
            *byte = self.output.pop_front().unwrap_or_default();
        }
        Ok(count)
    }
}

fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in files {
        let mut head = [0_u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
        head[156] = b'0';
        head[257..263].copy_from_slice(b"ustar\0");
        head[148..156].fill(b' ');
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.extend(head);
        out.extend(bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn descriptor(kind: &str, bytes: &[u8]) -> serde_json::Value {
    serde_json::json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{}", sha256_hex(bytes)),
        "size": bytes.len(),
    })
}

/// An image for two systems, of which the archive has one, with a layer of so many bytes: its files and its digest.
fn files(layer_bytes: usize) -> (Vec<(String, Vec<u8>)>, String) {
    let layer: Vec<u8> = (0..layer_bytes)
        .map(|n| u8::try_from(n % 251).unwrap_or(0))
        .collect();
    let config = br#"{"os":"windows"}"#.to_vec();
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "config": descriptor("config.v1+json", &config),
        "layers": [descriptor("layer.v1.tar+gzip", &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let index = serde_json::json!({
        "schemaVersion": 2,
        "manifests": [descriptor("manifest.v1+json", b"of another system"), descriptor("manifest.v1+json", &manifest)],
    });
    let index = index.to_string().into_bytes();
    let digest = format!("sha256:{}", sha256_hex(&index));
    let top =
        serde_json::json!({"schemaVersion": 2, "manifests": [descriptor("index.v1+json", &index)]});
    let mut files = vec![
        (
            "oci-layout".to_owned(),
            br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
        ),
        ("index.json".to_owned(), top.to_string().into_bytes()),
    ];
    for blob in [layer, config, manifest, index] {
        files.push((format!("blobs/sha256/{}", sha256_hex(&blob)), blob));
    }
    (files, digest)
}

fn archive(layer_bytes: usize) -> (Cursor<Vec<u8>>, String) {
    let (files, digest) = files(layer_bytes);
    (Cursor::new(tar(&files)), digest)
}

/// Past both windows and past one message.
const LAYER_BYTES: usize = (1 << 20) + 300_000;

#[test]
fn an_image_is_brought_under_a_lease_and_each_blob_after_those_that_it_names() {
    let (archive, digest) = archive(LAYER_BYTES);
    let mut containerd = Containerd::default();
    assert_eq!(find(&mut containerd, PAUSE), Ok(None));
    let mut containerd = Containerd::default();
    import(&mut containerd, archive, PAUSE).expect("imported");
    assert_eq!(containerd.images[PAUSE], digest);
    assert_eq!(containerd.leases, Vec::<String>::new(), "the lease ended");
    assert_eq!(containerd.written.len(), 4);
    // References exist before the blob that names them, and labels lead the garbage collector from the image to every
    // blob.
    let mut reached = vec![digest];
    let mut at = 0;
    while let Some(blob) = reached.get(at) {
        let labels = &containerd.blobs[blob].1;
        let children: Vec<String> = labels.values().cloned().collect();
        let position = |wanted: &String| containerd.written.iter().position(|one| one == wanted);
        for child in &children {
            assert!(position(child) < position(&reached[at]), "{child}");
        }
        assert!(
            labels
                .keys()
                .all(|label| label.starts_with("containerd.io/gc.ref.content."))
        );
        reached.extend(children);
        at += 1;
    }
    assert_eq!(reached.len(), 4);
    let metadata: Vec<&str> = containerd
        .calls
        .iter()
        .map(|(_, metadata)| &**metadata)
        .collect();
    assert_eq!(metadata[0], "k8s.io -", "the lease itself");
    assert!(
        metadata[1..6].iter().all(|told| *told == "k8s.io leased"),
        "{metadata:?}"
    );
}

#[test]
fn what_is_there_is_not_sent_again_and_gets_its_labels() {
    let (archive, digest) = archive(100);
    let mut containerd = Containerd::default();
    import(&mut containerd, archive.clone(), PAUSE).expect("imported");
    for blob in containerd.blobs.values_mut() {
        blob.1.clear();
    }
    containerd.begun = false;
    containerd.written.clear();
    containerd
        .images
        .insert(PAUSE.into(), "sha256:other".into());
    import(&mut containerd, archive, PAUSE).expect("imported again");
    assert_eq!(containerd.written, Vec::<String>::new());
    assert_eq!(
        containerd.images[PAUSE], digest,
        "the name points to it again"
    );
    let labelled = containerd.blobs.values().filter(|blob| !blob.1.is_empty());
    assert_eq!(labelled.count(), 2, "the index and the manifest");
    containerd.begun = false;
    assert_eq!(find(&mut containerd, PAUSE), Ok(Some(digest)));
}

#[test]
fn what_containerd_refuses_ends_the_import_and_the_lease() {
    for (method, status) in [
        ("leases.v1.Leases/Create", 13),
        ("content.v1.Content/Write", 14),
        ("images.v1.Images/Create", 7),
    ] {
        let (archive, _) = archive(LAYER_BYTES);
        let mut containerd = Containerd {
            refuses: Some((method, status)),
            ..Containerd::default()
        };
        let error = import(&mut containerd, archive, PAUSE).expect_err(method);
        assert_eq!((error.code, &*error.text), (REFUSED + status, "so it is"));
        assert!(containerd.images.is_empty());
        assert_eq!(containerd.leases, Vec::<String>::new(), "{method}");
    }
}

#[test]
fn another_protocol_is_not_containerd() {
    for other in [
        &b"SSH-2.0-OpenSSH_for_Windows_9.5\r\n"[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ] {
        let mut containerd = Containerd {
            speaks: Some(other),
            ..Containerd::default()
        };
        let error = find(&mut containerd, PAUSE).expect_err("no gRPC");
        assert_eq!(error.code, NO_DATA, "{error}");
    }
}

#[test]
fn an_archive_that_is_no_image_is_refused_with_the_reason() {
    let (whole, digest) = files(100);
    let told = |files: &[(String, Vec<u8>)]| {
        let archive = Cursor::new(tar(files));
        describe(archive.clone(), PAUSE)
            .and_then(|_| import(&mut Containerd::default(), archive, PAUSE))
    };
    let without = |name: &str| -> Vec<(String, Vec<u8>)> {
        whole
            .iter()
            .filter(|(found, _)| !found.starts_with(name))
            .cloned()
            .collect()
    };
    let blob = |n: usize| whole[n].0.clone();
    let mut damaged = whole.clone();
    damaged[1].1 = b"{".to_vec();
    let mut two = whole.clone();
    let top = String::from_utf8(two[1].1.clone()).expect("JSON");
    let one: serde_json::Value = serde_json::from_str(&top).expect("JSON");
    let only = one["manifests"][0].clone();
    two[1].1 = serde_json::json!({"manifests": [only, only]})
        .to_string()
        .into_bytes();
    for (files, wanted) in [
        (without("oci-layout"), "no OCI layout"),
        (without(&blob(2)), "is missing"),
        (without(&blob(4)), "no manifest of an image"),
        (without(&blob(5)), "is missing"),
        (damaged, "index.json"),
        (
            two.clone(),
            "2 images, and none is registry.example/pause:3.10.2",
        ),
    ] {
        let error = told(&files).expect_err(wanted);
        assert!(
            error.code == NO_DATA && error.text.contains(wanted),
            "{wanted}: {error}"
        );
    }
    // The one that carries the name.
    let mut named = only.clone();
    named["annotations"] = serde_json::json!({"io.containerd.image.name": PAUSE});
    two[1].1 = serde_json::json!({"manifests": [only, named]})
        .to_string()
        .into_bytes();
    assert_eq!(describe(Cursor::new(tar(&two)), PAUSE), Ok(digest));
    let cut = tar(&whole);
    for bytes in [
        &cut[..700],
        &cut[..cut.len() - 2_000],
        b"MZ",
        &[b'x'; 600][..],
    ] {
        let error = describe(Cursor::new(bytes.to_vec()), PAUSE).expect_err("cut");
        assert_eq!(error.code, NO_DATA);
    }
}

#[test]
fn a_time_is_written_as_containerd_reads_it() {
    for (seconds, wanted) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_798_761_599, "2026-12-31T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ] {
        assert_eq!(rfc_3339(seconds), wanted);
    }
}
