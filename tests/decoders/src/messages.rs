//! Messages on NATS, and records of the store.

use dormer_engine_core::{InboxMessageOf, Record};
use dormer_proto::{
    envelope::{self, Message},
    id::hash64,
    message::{Heartbeat, NodeSettings, RemoteCommand, ReportReceipt},
    subject::Names,
    work::{Order, SCHEMA},
};
use dormer_workflows::Dormer;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

pub(crate) fn envelope(bytes: &[u8]) {
    let _ = envelope::decode::<Order>(bytes, SCHEMA);
    if envelope::parts(bytes).is_ok() {
        let with = envelope::with_mac(bytes, "1.key.mac").expect("it is an envelope");
        let parts = envelope::parts(&with).expect("so is this");
        assert_eq!(parts.mac, Some("1.key.mac"));
    }
}

#[derive(Serialize)]
struct Sealed<'a> {
    v: u16,
    schema: u16,
    kind: &'a str,
    sum: u64,
    #[serde(with = "raw")]
    body: &'a [u8],
}

mod raw {
    //! Bytes as MessagePack's binary type.

    pub(super) fn serialize<S: serde::Serializer>(
        bytes: &&[u8],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }
}

/// Decodes a body in an envelope with its true checksum, which would keep a fuzzer out.
fn body<M: Message + Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let sealed = rmp_serde::to_vec_named(&Sealed {
        v: envelope::VERSION,
        schema: SCHEMA,
        kind: M::KIND,
        sum: hash64(bytes),
        body: bytes,
    })
    .expect("bytes and numbers");
    let Ok((message, _)) = envelope::decode::<M>(&sealed, SCHEMA) else {
        return;
    };
    let Ok((written, _)) = envelope::encode(&message, SCHEMA) else {
        return;
    };
    let (again, _) = envelope::decode::<M>(&written, SCHEMA).expect("our own bytes");
    assert_eq!(again, message);
}

pub(crate) fn record(bytes: &[u8]) {
    body::<Record<Dormer>>(bytes);
}

pub(crate) fn inbox(bytes: &[u8]) {
    body::<InboxMessageOf<Dormer>>(bytes);
}

pub(crate) fn order(bytes: &[u8]) {
    body::<Order>(bytes);
    body::<Heartbeat>(bytes);
    body::<RemoteCommand>(bytes);
    body::<NodeSettings>(bytes);
    body::<ReportReceipt>(bytes);
}

pub(crate) fn subject(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let names = Names::with_prefix("dormer");
    if let Some((origin, address)) = names.address_of(text) {
        let written = names.message(origin, &address);
        assert!(
            names.address_of(&written) == Some((origin, address)),
            "{text}"
        );
    }
    let _ = Names::run_of(text);
}
