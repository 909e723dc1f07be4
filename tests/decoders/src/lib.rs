//! Decoders of bytes from outside, by name. `fuzz/` searches for inputs that break them, and the tests of this package
//! repeat the inputs in `fuzz/corpus`.
//!
//! A decoder may refuse any input. It may not panic, take unbounded time, or read something other than what it would
//! write itself: each function here checks the second reading where there is a writer.

mod cluster;
mod host;
mod messages;

/// A decoder, and who sends it bytes.
#[derive(Clone, Copy)]
pub struct Decoder {
    /// Name of its corpus' folder, and of its program in `fuzz/`.
    pub name: &'static str,
    /// Sender of the bytes.
    pub from: &'static str,
    /// Decodes them.
    ///
    /// # Panics
    /// A fault was found.
    pub decode: fn(&[u8]),
}

const fn decoder(name: &'static str, from: &'static str, decode: fn(&[u8])) -> Decoder {
    Decoder { name, from, decode }
}

/// Every decoder.
pub const ALL: [Decoder; 26] = [
    decoder("frame", "a Windows host", host::frame),
    decoder("answer", "a Windows host", host::answer),
    decoder("sign", "a Windows host", host::sign),
    decoder("stderr", "a Windows host", host::stderr),
    decoder("sftp", "a Windows host", host::sftp),
    decoder("keys", "a Windows host", host::keys),
    decoder("output", "a Windows host", host::output),
    decoder("document", "a worker, read on the host", host::document),
    decoder("arguments", "a worker, read on the host", host::arguments),
    decoder(
        "containerd",
        "containerd, read on the host",
        host::containerd,
    ),
    decoder("image", "a payload, read on the host", host::image),
    decoder("envelope", "NATS", messages::envelope),
    decoder("record", "the store", messages::record),
    decoder("inbox", "NATS", messages::inbox),
    decoder("order", "NATS", messages::order),
    decoder("subject", "NATS", messages::subject),
    decoder(
        "csr",
        "a kubelet, or who holds a bootstrap token",
        cluster::csr,
    ),
    decoder("pool", "the cluster", cluster::pool),
    decoder("mark", "the cluster", cluster::mark),
    decoder("instances", "the cluster", cluster::instances),
    decoder("cluster-config", "the cluster", cluster::cluster_config),
    decoder("pull-secret", "the cluster", cluster::pull_secret),
    decoder("payload", "who makes payloads", cluster::payload),
    decoder("program", "who makes payloads", cluster::program),
    decoder("yaml", "people: profiles, facts, manifests", cluster::yaml),
    decoder("cookie", "a browser", cluster::cookie),
];

/// The decoder of this name.
///
/// # Panics
/// There is none.
#[must_use]
pub fn named(name: &str) -> Decoder {
    let found = ALL.iter().find(|one| one.name == name);
    *found.unwrap_or_else(|| panic!("tests/decoders has no decoder {name:?}"))
}
