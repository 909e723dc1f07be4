//! W3C trace context: `traceparent` as it rides in message headers.

use std::{fmt, str::FromStr};

/// The header's name, in NATS and HTTP alike.
pub const TRACEPARENT: &str = "traceparent";

/// A W3C `traceparent`, version 00.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// 128 bits; never 0.
    pub trace: u128,
    /// 64 bits; never 0.
    pub span: u64,
    /// Whether the trace is recorded.
    pub sampled: bool,
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// The header was not a `traceparent` that we can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a W3C traceparent")]
pub struct NotATraceParent;

impl FromStr for TraceParent {
    type Err = NotATraceParent;

    fn from_str(text: &str) -> Result<Self, NotATraceParent> {
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, span, flags, ..] = parts[..] else { return Err(NotATraceParent) };
        let hex = |text: &str, len: usize| {
            let fits = text.len() == len
                && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            if fits {
                u128::from_str_radix(text, 16).map_err(|_| NotATraceParent)
            } else {
                Err(NotATraceParent)
            }
        };
        let known = hex(version, 2)?;
        // Version ff is invalid; version 00 has exactly four parts, a later one may have more.
        if known == 0xff || (known == 0 && parts.len() != 4) {
            return Err(NotATraceParent);
        }
        let (trace, span) =
            (hex(trace, 32)?, u64::try_from(hex(span, 16)?).map_err(|_| NotATraceParent)?);
        if trace == 0 || span == 0 {
            return Err(NotATraceParent);
        }
        Ok(Self { trace, span, sampled: hex(flags, 2)? & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_nothing_else() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(text.parse::<TraceParent>().unwrap().to_string(), text);
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-0-0-0",
            &text[1..],
            &text.to_uppercase(),
        ] {
            assert!(bad.parse::<TraceParent>().is_err(), "{bad}");
        }
    }
}
