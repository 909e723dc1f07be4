//! Parser of server-sent events.

/// Longest event, in bytes. The parser skips longer ones.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SseEvent {
    pub(super) kind: String,
    pub(super) data: String,
}

/// Incremental parser: takes bytes in any pieces, and returns whole events.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    kind: String,
    data: String,
}

impl Parser {
    /// Adds bytes, and returns the events that they complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                if self.line.len() < EVENT_BYTES_MAX {
                    self.line.push(*byte);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            events.extend(self.line(String::from_utf8_lossy(&line).trim_end_matches('\r')));
        }
        events
    }

    fn line(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            let data = std::mem::take(&mut self.data);
            return (!kind.is_empty() || !data.is_empty()).then_some(SseEvent { kind, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.kind),
            "data" if self.data.len() + value.len() < EVENT_BYTES_MAX => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // A comment, or a field that dormer does not use.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_out_of_any_pieces() {
        let stream =
            b"event: reset\ndata: {}\n\n: still here\n\nevent: run\r\ndata: {\"a\":\ndata: 1}\n\n";
        for size in [1, 2, 7, stream.len()] {
            let mut parser = Parser::default();
            let events: Vec<SseEvent> = stream
                .chunks(size)
                .flat_map(|piece| parser.take(piece))
                .collect();
            let event = |kind: &str, data: &str| SseEvent {
                kind: kind.into(),
                data: data.into(),
            };
            assert_eq!(
                events,
                [event("reset", "{}"), event("run", "{\"a\":\n1}")],
                "{size}"
            );
        }
    }
}
