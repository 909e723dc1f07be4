//! The bytes of a registry value: UTF-16 texts, numbers, raw bytes.

use dormer_host::ops::{Bytes, Value};

/// `REG_SZ`.
pub const TEXT: u32 = 1;
/// `REG_EXPAND_SZ`.
pub const EXPAND: u32 = 2;
/// `REG_BINARY`.
pub const BINARY: u32 = 3;
/// `REG_DWORD`.
pub const NUMBER: u32 = 4;
/// `REG_MULTI_SZ`.
pub const TEXTS: u32 = 7;
/// `REG_QWORD`.
pub const LONG: u32 = 11;

/// A value out of its type and bytes. Bytes that do not fit the type (a number of three bytes) stay bytes.
///
/// The final NUL of a text may be missing: "the string may not have been stored with the proper terminating null
/// characters" (sdk-api, `nf-winreg-regqueryvalueexw`).
pub fn decode(kind: u32, bytes: &[u8]) -> Value {
    match kind {
        TEXT => Value::Text(text(bytes)),
        EXPAND => Value::Expand(text(bytes)),
        TEXTS => Value::Texts(texts(bytes)),
        NUMBER => match bytes.try_into() {
            Ok(bytes) => Value::Number(u32::from_le_bytes(bytes)),
            Err(_) => Value::Bytes(Bytes(bytes.to_vec())),
        },
        LONG => match bytes.try_into() {
            Ok(bytes) => Value::Long(u64::from_le_bytes(bytes)),
            Err(_) => Value::Bytes(Bytes(bytes.to_vec())),
        },
        _ => Value::Bytes(Bytes(bytes.to_vec())),
    }
}

/// Type and bytes of a value.
pub fn encode(value: &Value) -> (u32, Vec<u8>) {
    match value {
        Value::Text(text) => (TEXT, wide(text, 1)),
        Value::Expand(text) => (EXPAND, wide(text, 1)),
        Value::Texts(texts) => {
            // An empty text would end the list.
            let texts = texts.iter().filter(|text| !text.is_empty());
            let mut bytes: Vec<u8> = texts.flat_map(|text| wide(text, 1)).collect();
            bytes.extend([0, 0]);
            (TEXTS, bytes)
        }
        Value::Number(number) => (NUMBER, number.to_le_bytes().to_vec()),
        Value::Long(number) => (LONG, number.to_le_bytes().to_vec()),
        Value::Bytes(Bytes(bytes)) => (BINARY, bytes.clone()),
    }
}

fn wide(text: &str, nuls: usize) -> Vec<u8> {
    let units = text.encode_utf16().chain(std::iter::repeat_n(0, nuls));
    units.flat_map(u16::to_le_bytes).collect()
}

fn units(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect()
}

/// The text before the first NUL.
fn text(bytes: &[u8]) -> String {
    let units = units(bytes);
    let text = units.split(|unit| *unit == 0).next().unwrap_or_default();
    String::from_utf16_lossy(text)
}

/// The texts before the first empty one.
fn texts(bytes: &[u8]) -> Vec<String> {
    let units = units(bytes);
    let texts = units.split(|unit| *unit == 0);
    texts
        .take_while(|text| !text.is_empty())
        .map(String::from_utf16_lossy)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let values = [
            Value::Text(String::new()),
            Value::Text("C:\\k – ü".into()),
            Value::Expand("%SystemRoot%\\x".into()),
            Value::Texts(vec![]),
            Value::Texts(vec!["a=1".into(), "b=2".into()]),
            Value::Number(7),
            Value::Long(1 << 40),
            Value::Bytes(Bytes(vec![1, 2, 3])),
        ];
        for value in values {
            let (kind, bytes) = encode(&value);
            assert_eq!(decode(kind, &bytes), value);
        }
    }

    #[test]
    fn what_others_wrote_badly_is_read_all_the_same() {
        assert_eq!(decode(TEXT, b"a\0b\0"), Value::Text("ab".into()));
        assert_eq!(decode(TEXT, b"a\0\0\0b\0"), Value::Text("a".into()));
        assert_eq!(decode(TEXTS, b"a\0"), Value::Texts(vec!["a".into()]));
        assert_eq!(decode(TEXTS, b""), Value::Texts(vec![]));
        assert_eq!(
            decode(NUMBER, &[1, 2, 3]),
            Value::Bytes(Bytes(vec![1, 2, 3]))
        );
        assert_eq!(decode(0, &[9]), Value::Bytes(Bytes(vec![9])));
    }

    #[test]
    fn an_empty_text_does_not_end_a_list() {
        let value = Value::Texts(vec!["a".into(), String::new(), "b".into()]);
        let (kind, bytes) = encode(&value);
        assert_eq!(
            decode(kind, &bytes),
            Value::Texts(vec!["a".into(), "b".into()])
        );
    }
}
