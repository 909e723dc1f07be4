//! Credentials files against a real server in operator mode. The workspace is built with the feature `nats-creds`.

use crate::nats_common;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use dormer_engine::{
    nats::{Login, NatsStore, OpenError, Options},
    port::{Ack, Expected, History, Inbox, Ports},
};
use dormer_testkit::{Login as ServerLogin, NatsOptions, NatsServer, started};
use nats_common::{append, options, run, taken};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A key of one kind, with its text forms (base32 of prefix, key and CRC16).
struct Key {
    pair: Ed25519KeyPair,
    seed: [u8; 32],
    kind: u8,
}

const OPERATOR: u8 = 14 << 3;
const ACCOUNT: u8 = 0;
const USER: u8 = 20 << 3;
const SEED: u8 = 18 << 3;

impl Key {
    fn new(kind: u8, seed: u8) -> Self {
        let seed = [seed; 32];
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a key");
        Self { pair, seed, kind }
    }

    fn public(&self) -> String {
        text(&[&[self.kind], self.pair.public_key().as_ref()].concat())
    }

    fn secret(&self) -> String {
        let prefix = [SEED | (self.kind >> 5), (self.kind & 31) << 3];
        text(&[&prefix[..], &self.seed].concat())
    }

    /// What this key says about `of`.
    fn signs(&self, name: &str, of: &Key, claims: Value) -> String {
        let mut body =
            json!({ "jti": name, "iat": 1_700_000_000, "iss": self.public(), "name": name });
        body["sub"] = of.public().into();
        body["nats"] = claims;
        let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
        let [header, body] = [header, body].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let said = format!("{header}.{body}");
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(said.as_bytes()));
        format!("{said}.{signature}")
    }
}

/// Base32 without padding, of `raw` and its CRC16 (XMODEM).
fn text(raw: &[u8]) -> String {
    let mut crc = 0u16;
    for byte in raw {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    let bytes = [raw, &crc.to_le_bytes()[..]].concat();
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1))
        .collect();
    let message = |five: &[u8]| {
        let value = five.iter().fold(0, |value, bit| value << 1 | bit) << (5 - five.len());
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[usize::from(value)])
    };
    bits.chunks(5).map(message).collect()
}

/// An operator, its system account, and an account with JetStream.
struct Realm {
    operator: Key,
    system: Key,
    account: Key,
}

impl Realm {
    fn new() -> Self {
        let operator = Key::new(OPERATOR, 1);
        Self {
            operator,
            system: Key::new(ACCOUNT, 2),
            account: Key::new(ACCOUNT, 3),
        }
    }

    /// The server's configuration.
    fn lines(&self) -> String {
        let operator = json!({ "type": "operator", "version": 2 });
        let mut limits = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1,
            "exports": -1, "wildcards": true, "conn": -1, "leaf": -1 });
        let plain = json!({ "type": "account", "version": 2, "limits": limits });
        for limit in ["mem_storage", "disk_storage", "streams", "consumer"] {
            limits[limit] = (-1).into();
        }
        let with_streams = json!({ "type": "account", "version": 2, "limits": limits });
        format!(
            "operator: {}\nsystem_account: {system}\nresolver: MEMORY\nresolver_preload {{\n{system}: {}\n{}: {}\n}}\n",
            self.operator.signs("op", &self.operator, operator),
            self.operator.signs("sys", &self.system, plain),
            self.account.public(),
            self.operator.signs("acc", &self.account, with_streams),
            system = self.system.public(),
        )
    }

    /// A credentials file for a user, signed by `by`.
    fn credentials(&self, folder: &Path, by: &Key, key: &Key) -> PathBuf {
        let claims = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
            "pub": {}, "sub": {} });
        let path = folder.join(format!("{}.creds", by.public()));
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            by.signs("user", key, claims),
            key.secret(),
        );
        std::fs::write(&path, text).expect("written");
        path
    }
}

#[tokio::test]
async fn a_credentials_file_opens_a_store_and_a_wrong_one_does_not() {
    let realm = Realm::new();
    let login = ServerLogin::Lines(realm.lines());
    let server = started!(NatsServer::start(NatsOptions {
        login,
        ..NatsOptions::default()
    }));
    let folder = tempfile::tempdir().expect("a folder");
    let user = Key::new(USER, 4);
    let with = |login| Options {
        login,
        ..options(&server)
    };

    let good = realm.credentials(folder.path(), &realm.account, &user);
    let store = NatsStore::open(&with(Login::CredentialsFile(good)))
        .await
        .expect("a store");
    let one = run("one");
    let stored = store
        .history()
        .append(vec![append(&one, Expected::Nothing, 1, None)])
        .await;
    assert!(stored[0].is_ok(), "{stored:?}");
    store
        .inbox()
        .put(vec![(one, b"letter".to_vec())])
        .await
        .expect("put");
    let message = taken(&store).await;
    assert_eq!(message.bytes, b"letter");
    store
        .inbox()
        .acknowledge(vec![(message.token, Ack::Done)])
        .await;

    let stranger = realm.credentials(folder.path(), &Key::new(ACCOUNT, 9), &user);
    for login in [Login::CredentialsFile(stranger), Login::Open] {
        let refused = NatsStore::open(&with(login)).await.err().expect("refused");
        assert!(
            matches!(refused, OpenError::Connect { lasting: true, .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains("uthoriz"), "{refused}");
    }
    let nowhere = Login::CredentialsFile(folder.path().join("nowhere.creds"));
    let refused = NatsStore::open(&with(nowhere))
        .await
        .err()
        .expect("refused");
    assert!(
        matches!(refused, OpenError::Connect { lasting: true, .. }),
        "{refused}"
    );
}
