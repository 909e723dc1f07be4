//! The few parts of protobuf that containerd's messages need (protobuf.dev, Encoding): numbers, bytes, maps of texts.

/// Wire types.
const NUMBER: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or(0));
    }

    /// A number; 0 is the default, and not written.
    pub(super) fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3 | NUMBER);
            self.varint(value);
        }
    }

    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    pub(super) fn text(&mut self, field: u64, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// An entry of a map of texts.
    pub(super) fn entry(&mut self, field: u64, key: &str, value: &str) {
        let mut entry = Self::default();
        entry.text(1, key);
        entry.text(2, value);
        self.bytes(field, &entry.0);
    }

    /// Its bytes so far.
    pub(super) fn done(&self) -> Vec<u8> {
        self.0.clone()
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The fields of a message that are bytes, in order. It ends where the message is broken.
pub(super) fn fields(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let tag = varint(bytes, &mut at)?;
            let size = match tag & 7 {
                NUMBER => {
                    varint(bytes, &mut at)?;
                    continue;
                }
                FIXED_64 => 8,
                FIXED_32 => 4,
                BYTES => usize::try_from(varint(bytes, &mut at)?).ok()?,
                _ => return None,
            };
            let value = bytes.get(at..at.checked_add(size)?)?;
            at += size;
            if tag & 7 == BYTES {
                return Some((tag >> 3, value));
            }
        }
        None
    })
}

/// The last field of that number that is bytes.
pub(super) fn field(bytes: &[u8], number: u64) -> Option<&[u8]> {
    fields(bytes)
        .filter(|(found, _)| *found == number)
        .map(|(_, value)| value)
        .last()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// protobuf.dev, Encoding: 150 in field 1, "testing" in field 2, and a message in field 3.
    #[test]
    fn messages_are_written_as_the_page_about_the_encoding_shows() {
        let mut message = ProtobufMessage::default();
        message.number(1, 150);
        message.text(2, "testing");
        assert_eq!(
            message.done(),
            [
                0x08, 0x96, 0x01, 0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67
            ]
        );
        let mut inner = ProtobufMessage::default();
        inner.number(1, 150);
        let mut outer = ProtobufMessage::default();
        outer.bytes(3, &inner.done());
        outer.number(4, 0);
        assert_eq!(outer.done(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }

    #[test]
    fn fields_are_found_between_others_and_broken_bytes_end_the_search() {
        let mut message = ProtobufMessage::default();
        message.number(9, u64::MAX);
        message.text(1, "old");
        message.entry(2, "k", "v");
        message.text(1, "new");
        let mut bytes = message.done();
        // A double and a float between them.
        bytes.splice(0..0, [0x29, 1, 2, 3, 4, 5, 6, 7, 8, 0x35, 1, 2, 3, 4]);
        assert_eq!(field(&bytes, 1), Some(&b"new"[..]));
        assert_eq!(
            field(&bytes, 2).and_then(|entry| field(entry, 2)),
            Some(&b"v"[..])
        );
        assert_eq!(field(&bytes, 3), None);
        assert_eq!(fields(&bytes[..bytes.len() - 1]).count(), 2);
        assert_eq!(
            fields(&[
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff
            ])
            .count(),
            0
        );
    }
}
