//! Headers of HTTP/2 (RFC 7541), the part that a client of one server needs. It writes plain literals, and has
//! announced a table of size 0, so no header of gRPC arrives as a reference into that table.

/// Length of each byte's code in RFC 7541, Appendix B. The codes of one length follow each other in the order of the
/// bytes, so the lengths say everything.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// Longest code.
const LENGTH_MAX: u8 = 30;

/// Number after a prefix of so many bits (RFC 7541, 5.1).
fn number(bytes: &[u8], at: &mut usize, prefix: u8) -> Option<usize> {
    let mask = (1_usize << prefix) - 1;
    let mut value = usize::from(*bytes.get(*at)?) & mask;
    *at += 1;
    if value < mask {
        return Some(value);
    }
    for shift in (0..28).step_by(7) {
        let byte = usize::from(*bytes.get(*at)?);
        *at += 1;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_number(out: &mut Vec<u8>, first: u8, prefix: u8, mut value: usize) {
    let mask = (1_usize << prefix) - 1;
    let byte = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    if value < mask {
        out.push(first | byte(value));
        return;
    }
    out.push(first | byte(mask));
    value -= mask;
    while value > 0x7f {
        out.push(byte(value & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(byte(value));
}

/// Writes headers as literals without indexing.
pub(super) fn encode(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in headers {
        out.push(0);
        for text in [name, value] {
            put_number(&mut out, 0, 7, text.len());
            out.extend(text.as_bytes());
        }
    }
    out
}

/// Reads headers: those with a name of their own. None where the block is broken.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = bytes.get(at) {
        let prefix = match first {
            0x80.. => {
                number(bytes, &mut at, 7)?;
                continue;
            }
            0x40.. => 6,
            // The table's size.
            0x20.. => {
                number(bytes, &mut at, 5)?;
                continue;
            }
            _ => 4,
        };
        let index = number(bytes, &mut at, prefix)?;
        let name = if index == 0 {
            Some(text(bytes, &mut at)?)
        } else {
            None
        };
        let value = text(bytes, &mut at)?;
        found.extend(name.map(|name| (name, value)));
    }
    Some(found)
}

fn text(bytes: &[u8], at: &mut usize) -> Option<String> {
    let packed = bytes.get(*at)? & 0x80 != 0;
    let size = number(bytes, at, 7)?;
    let raw = bytes.get(*at..at.checked_add(size)?)?;
    *at += size;
    let plain = if packed { unpack(raw)? } else { raw.to_vec() };
    Some(String::from_utf8_lossy(&plain).into_owned())
}

/// Undoes the Huffman code. What remains at the end are the first bits of the longest code, at most seven ones.
fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    let of =
        |length: u8| (0..=u8::MAX).filter(move |symbol| LENGTHS[usize::from(*symbol)] == length);
    let symbols: Vec<u8> = (0..=LENGTH_MAX).flat_map(of).collect();
    let mut out = Vec::new();
    // The first code of the present length, and which symbol it means.
    let mut code = 0_u32;
    let mut length = 0_u8;
    let mut first = 0_u32;
    let mut from = 0_usize;
    for byte in bytes {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            length += 1;
            first <<= 1;
            if length > LENGTH_MAX {
                return None;
            }
            let of_length = |symbol: &&u8| LENGTHS[usize::from(**symbol)] == length;
            let count = symbols[from..].iter().take_while(of_length).count();
            let past = usize::try_from(code.checked_sub(first)?).ok()?;
            if past < count {
                out.push(symbols[from + past]);
                (code, length, first, from) = (0, 0, 0, 0);
            } else {
                first += u32::try_from(count).ok()?;
                from += count;
            }
        }
    }
    let ones = code.count_ones() == u32::from(length) && length < 8;
    ones.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7541, C.1: 10 and 1337 with a prefix of five bits, 42 with one of eight.
    #[test]
    fn numbers_are_those_of_the_rfc() {
        for (value, prefix, wanted) in [
            (10, 5, &[0x0a][..]),
            (1337, 5, &[0x1f, 0x9a, 0x0a]),
            (42, 8, &[0x2a]),
        ] {
            let mut out = Vec::new();
            put_number(&mut out, 0, prefix, value);
            assert_eq!(out, wanted);
            assert_eq!(number(wanted, &mut 0, prefix), Some(value));
        }
        assert_eq!(
            number(&[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff], &mut 0, 5),
            None
        );
        assert_eq!(number(&[0x1f], &mut 0, 5), None);
    }

    /// RFC 7541, C.4.1, C.4.3 and C.6.1.
    #[test]
    fn packed_texts_are_those_of_the_rfc() {
        let bytes = |hex: &str| -> Vec<u8> {
            let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
            let pairs = digits.chunks(2).map(|pair| pair.iter().collect::<String>());
            pairs
                .map(|pair| u8::from_str_radix(&pair, 16).expect("hex"))
                .collect()
        };
        for (packed, plain) in [
            ("f1e3 c2e5 f23a 6ba0 ab90 f4ff", "www.example.com"),
            ("25a8 49e9 5ba9 7d7f", "custom-key"),
            ("25a8 49e9 5bb8 e8b4 bf", "custom-value"),
            (
                "d07a be94 1054 d444 a820 0595 040b 8166 e082 a62d 1bff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (
                "9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3",
                "https://www.example.com",
            ),
        ] {
            assert_eq!(
                unpack(&bytes(packed)),
                Some(plain.as_bytes().to_vec()),
                "{plain}"
            );
        }
        // A zero in the rest, and a rest of eight bits.
        assert_eq!(unpack(&bytes("f1e3 c2e5 f23a 6ba0 ab90 f4fe")), None);
        assert_eq!(unpack(&[0xff]), None);
    }

    #[test]
    fn what_is_written_is_read_and_what_is_indexed_is_passed_over() {
        let headers = [("grpc-status", "0"), ("containerd-namespace", "k8s.io")];
        let mut block = vec![0x20, 0x88, 0x5f, 0x01, b'x'];
        block.extend(encode(&headers));
        let read = decode(&block).expect("headers");
        let read: Vec<_> = read
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(read, headers);
        for cut in 6..block.len() {
            let less = decode(&block[..cut]);
            assert!(less.is_none_or(|less| less.len() < 2), "{cut}");
        }
    }
}
