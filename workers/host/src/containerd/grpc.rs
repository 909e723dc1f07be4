//! gRPC over HTTP/2 (RFC 9113), one call after another on a stream of its own. The caller limits the time: reading
//! waits for the server.

use std::io::{Read, Write};

use super::{REFUSED, hpack, wrong};
use crate::ops::WinError;

/// RFC 9113, 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// RFC 9113, 6.9.2: the window of the connection and, unless the server says otherwise, of each stream.
const WINDOW: i64 = 65_535;
/// RFC 9113, 4.2: the largest frame that is never too large.
const FRAME_BYTES: usize = 16_384;
/// Most bytes of headers and of answers of one call: containerd's answers to these calls have some hundreds.
const ANSWER_BYTES_MAX: usize = 1 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// END_STREAM of DATA and HEADERS, ACK of SETTINGS and PING.
const END_OR_ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// A connection with containerd.
pub(super) struct Connection<S> {
    stream: S,
    next: u32,
    window: i64,
    /// Initial window for new streams.
    window_of_streams: i64,
}

/// A call in progress.
pub(super) struct Call {
    id: u32,
    window: i64,
    ended: bool,
    /// Whether the headers in progress are the last ones.
    ending: bool,
    status: Option<u32>,
    message: String,
    headers: Vec<u8>,
    body: Vec<u8>,
}

impl Call {
    /// Whether the server has ended the stream.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }
}

impl<S: Read + Write> Connection<S> {
    /// Begins to speak HTTP/2: no table of headers, no pushes.
    pub(super) fn open(stream: S) -> Result<Self, WinError> {
        let mut connection = Self {
            stream,
            next: 1,
            window: WINDOW,
            window_of_streams: WINDOW,
        };
        connection.write(PREFACE)?;
        // SETTINGS_HEADER_TABLE_SIZE and SETTINGS_ENABLE_PUSH, both 0.
        connection.frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0])?;
        Ok(connection)
    }

    /// Begins a call of one of containerd's methods.
    pub(super) fn begin(
        &mut self,
        method: &str,
        metadata: &[(&str, &str)],
    ) -> Result<Call, WinError> {
        let id = self.next;
        self.next += 2;
        let path = format!("/containerd.services.{method}");
        let mut headers = vec![
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path.as_str()),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        headers.extend(metadata);
        self.frame(HEADERS, END_HEADERS, id, &hpack::encode(&headers))?;
        Ok(Call {
            id,
            window: self.window_of_streams,
            ended: false,
            ending: false,
            status: None,
            message: String::new(),
            headers: Vec::new(),
            body: Vec::new(),
        })
    }

    /// Sends one message of a call, unless the server has closed the stream.
    pub(super) fn send(
        &mut self,
        call: &mut Call,
        message: &[u8],
        last: bool,
    ) -> Result<(), WinError> {
        let size = u32::try_from(message.len()).map_err(|_| wrong("a message is too long"))?;
        let mut rest = Vec::with_capacity(message.len() + 5);
        rest.push(0);
        rest.extend(size.to_be_bytes());
        rest.extend(message);
        let mut rest = rest.as_slice();
        while !rest.is_empty() && !call.ended {
            let most = usize::try_from(self.window.min(call.window).max(0)).unwrap_or(0);
            let (piece, after) = rest.split_at(rest.len().min(FRAME_BYTES).min(most));
            if piece.is_empty() {
                self.take(call)?;
                continue;
            }
            let flags = if last && after.is_empty() {
                END_OR_ACK
            } else {
                0
            };
            self.frame(DATA, flags, call.id, piece)?;
            let sent = i64::try_from(piece.len()).unwrap_or(i64::MAX);
            self.window -= sent;
            call.window -= sent;
            rest = after;
        }
        Ok(())
    }

    /// Waits for the end of a call and answers its messages.
    pub(super) fn finish(&mut self, mut call: Call) -> Result<Vec<Vec<u8>>, WinError> {
        while !call.ended {
            self.take(&mut call)?;
        }
        match call.status {
            Some(0) => messages(&call.body).ok_or_else(|| wrong("containerd's answer is broken")),
            Some(status) => Err(WinError {
                code: REFUSED + status,
                text: call.message,
            }),
            None => Err(wrong("the answer is no gRPC, so it is not containerd's")),
        }
    }

    /// Takes one frame.
    fn take(&mut self, call: &mut Call) -> Result<(), WinError> {
        let mut head = [0; 9];
        self.read(&mut head)?;
        let size = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let kind = head[3];
        let flags = head[4];
        let id = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        if size > FRAME_BYTES {
            return Err(wrong("the answer is no HTTP/2, so it is not containerd's"));
        }
        let mut payload = vec![0; size];
        self.read(&mut payload)?;
        let own = id == call.id;
        match kind {
            DATA => {
                if own {
                    let data = plain(&payload, flags).ok_or_else(|| wrong("a frame is broken"))?;
                    add(&mut call.body, data)?;
                    call.ended |= flags & END_OR_ACK != 0;
                }
                self.give_back(size, own.then_some(&*call))?;
            }
            HEADERS | CONTINUATION if own => {
                let part = if kind == HEADERS {
                    call.ending = flags & END_OR_ACK != 0;
                    plain(&payload, flags).ok_or_else(|| wrong("a frame is broken"))?
                } else {
                    &payload
                };
                add(&mut call.headers, part)?;
                if flags & END_HEADERS != 0 {
                    call.read_headers()?;
                    call.ended |= call.ending;
                }
            }
            RST_STREAM if own => call.ended = true,
            SETTINGS if flags & END_OR_ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    if setting[..2] == [0, 4] {
                        let initial =
                            u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
                        call.window += i64::from(initial) - self.window_of_streams;
                        self.window_of_streams = i64::from(initial);
                    }
                }
                self.frame(SETTINGS, END_OR_ACK, 0, &[])?;
            }
            PING if flags & END_OR_ACK == 0 => self.frame(PING, END_OR_ACK, 0, &payload)?,
            WINDOW_UPDATE => {
                let more = payload
                    .first_chunk()
                    .map_or(0, |bytes| u32::from_be_bytes(*bytes));
                match id {
                    0 => self.window += i64::from(more),
                    _ if own => call.window += i64::from(more),
                    _ => {}
                }
            }
            GOAWAY => return Err(wrong("containerd ended the connection")),
            PUSH_PROMISE => return Err(wrong("the answer is no gRPC, so it is not containerd's")),
            _ => {}
        }
        Ok(())
    }

    /// Lets the server send as much again as it has sent.
    fn give_back(&mut self, size: usize, call: Option<&Call>) -> Result<(), WinError> {
        let Some(size) = u32::try_from(size).ok().filter(|size| *size > 0) else {
            return Ok(());
        };
        self.frame(WINDOW_UPDATE, 0, 0, &size.to_be_bytes())?;
        match call {
            Some(call) if !call.ended => self.frame(WINDOW_UPDATE, 0, call.id, &size.to_be_bytes()),
            _ => Ok(()),
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) -> Result<(), WinError> {
        let size = u32::try_from(payload.len())
            .unwrap_or(u32::MAX)
            .to_be_bytes();
        let mut frame = vec![size[1], size[2], size[3], kind, flags];
        frame.extend(id.to_be_bytes());
        frame.extend(payload);
        self.write(&frame)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WinError> {
        self.stream.write_all(bytes).map_err(|error| number(&error))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), WinError> {
        self.stream
            .read_exact(bytes)
            .map_err(|error| number(&error))
    }
}

impl Call {
    fn read_headers(&mut self) -> Result<(), WinError> {
        let block = std::mem::take(&mut self.headers);
        let headers = hpack::decode(&block).ok_or_else(|| wrong("headers are broken"))?;
        for (name, value) in headers {
            match name.as_str() {
                "grpc-status" => self.status = value.parse().ok(),
                "grpc-message" => self.message = value,
                _ => {}
            }
        }
        Ok(())
    }
}

/// A frame's payload without padding and priority.
fn plain(payload: &[u8], flags: u8) -> Option<&[u8]> {
    let mut from = 0;
    let mut to = payload.len();
    if flags & PADDED != 0 {
        to = to.checked_sub(usize::from(*payload.first()?))?;
        from += 1;
    }
    if flags & PRIORITY != 0 {
        from += 5;
    }
    payload.get(from..to)
}

fn add(to: &mut Vec<u8>, part: &[u8]) -> Result<(), WinError> {
    if to.len() + part.len() > ANSWER_BYTES_MAX {
        return Err(wrong("an answer is too long"));
    }
    to.extend(part);
    Ok(())
}

/// The messages in a body, each behind a byte about compression and its length.
fn messages(mut body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    while let Some((head, rest)) = body.split_first_chunk::<5>() {
        let size = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let size = usize::try_from(size).ok()?;
        if head[0] != 0 {
            return None;
        }
        found.push(rest.get(..size)?.to_vec());
        body = &rest[size..];
    }
    body.is_empty().then_some(found)
}

/// What an error of the stream is: the system's own number, or that the stream ended.
fn number(error: &std::io::Error) -> WinError {
    /// `ERROR_BROKEN_PIPE`.
    const ENDED: u32 = 109;
    let code = error
        .raw_os_error()
        .and_then(|code| u32::try_from(code).ok());
    WinError {
        code: code.unwrap_or(ENDED),
        text: error.to_string(),
    }
}
