//! Channel between the program and its caller: a document in, heartbeats and one framed answer out.

use dormer_proto::lock::Locked as _;
use std::{
    io::{Read, Write},
    sync::{Arc, Mutex, MutexGuard},
};

use dormer_profile::{
    answer::{Answer, Facts, Failure, FailureCode, Reboot},
    document::{DOCUMENT_BYTES_MAX, DOCUMENT_SCHEMA},
    frame,
    invocation::Mode as Asked,
    sha256_hex,
};

use crate::{
    arguments::{Announced, Call, Mode},
    block_on,
    heartbeat::HostHeartbeat,
    ops::{Host, OperationRequest, Outcome, Step},
    run::run,
};

/// Reads exactly the announced bytes and checks their hash. A connection that is lost in the middle reads as the end of
/// input, so both come before the first change.
pub fn read_document(announced: &Announced, mut input: impl Read) -> Result<Vec<u8>, String> {
    if announced.bytes > DOCUMENT_BYTES_MAX {
        return Err(format!(
            "{} bytes are announced, at most {DOCUMENT_BYTES_MAX} are allowed",
            announced.bytes
        ));
    }
    let mut bytes = vec![0; announced.bytes];
    let mut at = 0;
    while at < bytes.len() {
        match input.read(&mut bytes[at..]) {
            Ok(0) => {
                return Err(format!(
                    "the document ends after {at} of {} bytes",
                    announced.bytes
                ));
            }
            Ok(count) => at += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("the document cannot be read: {error}")),
        }
    }
    let sha256 = sha256_hex(&bytes);
    if sha256 != announced.sha256 {
        return Err(format!(
            "the document has the SHA-256 {sha256}, announced was {}",
            announced.sha256
        ));
    }
    Ok(bytes)
}

/// Shared line writer. Clones write to the same stream, whole lines at a time. Write errors are ignored: the reader may
/// have closed the connection.
pub struct Output<W> {
    to: Arc<Mutex<W>>,
}

impl<W> Clone for Output<W> {
    fn clone(&self) -> Self {
        Self {
            to: Arc::clone(&self.to),
        }
    }
}

impl<W: Write> Output<W> {
    /// A writer over `to`.
    pub fn new(to: W) -> Self {
        Self {
            to: Arc::new(Mutex::new(to)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, W> {
        self.to.locked()
    }

    /// Writes bytes as one piece. The reader may be gone: the work continues.
    fn write(&self, bytes: &[u8]) {
        let mut to = self.lock();
        let _ = to.write_all(bytes).and_then(|()| to.flush());
    }

    pub fn heartbeat(&self, sign: &HostHeartbeat) {
        self.write(format!("{sign}\r\n").as_bytes());
    }

    pub fn answer(&self, answer: &Answer) {
        self.write(&frame::write(answer));
    }
}

/// Present activity of the program: written by [`ObservedHost`], read by the heartbeat thread.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    now: Arc<Mutex<(u64, Step)>>,
}

impl Watch {
    /// The present step and its number, which grows with each operation: equal numbers at two reads mean no progress.
    pub fn now(&self) -> (u64, Step) {
        self.now.locked().clone()
    }

    fn begin(&self, step: &Step) {
        let mut now = self.now.locked();
        now.0 += 1;
        now.1 = step.clone();
    }
}

/// A host whose operations can be watched from another thread.
#[derive(Debug)]
pub struct ObservedHost<H> {
    host: H,
    watch: Watch,
}

impl<H> ObservedHost<H> {
    pub const fn new(host: H, watch: Watch) -> Self {
        Self { host, watch }
    }
}

impl<H: Host> Host for ObservedHost<H> {
    fn perform(&mut self, request: OperationRequest) -> impl Future<Output = Outcome> + Send {
        self.watch.begin(&request.step);
        self.host.perform(request)
    }
}

/// A whole call: reads the document, does the work in this thread, writes the answer. False when it failed.
pub fn serve<H: Host, W: Write>(call: Call, input: impl Read, output: &Output<W>, host: H) -> bool {
    let document = match &call.document {
        None => Ok(None),
        Some(announced) => read_document(announced, input).map(Some),
    };
    let answer = block_on(run(call, document, host));
    let well = answer.failure.is_none();
    output.answer(&answer);
    well
}

/// Answer of a call that cannot end normally: it panicked, or an operation exceeded its limit. It is written in place
/// of the real one, before the process ends itself.
pub fn broken(call: &Call, code: FailureCode, message: &str) -> Answer {
    Answer {
        schema: DOCUMENT_SCHEMA,
        task: call.task.clone(),
        attempt: call.attempt,
        mode: match call.mode {
            Mode::Asked(mode) => mode,
            Mode::Boot => Asked::Apply,
        },
        program: call.program.clone(),
        facts: Facts::default(),
        items: Vec::new(),
        missing_files: Vec::new(),
        reboot: Reboot::None,
        failure: Some(Failure {
            code,
            item: None,
            message: message.to_owned(),
            log_tail: String::new(),
            retry: code.retry(),
        }),
        took_ms: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Answer as Said, ClockRead, Operation, WinError};

    fn announced(bytes: &[u8]) -> Announced {
        Announced {
            bytes: bytes.len(),
            sha256: sha256_hex(bytes),
        }
    }

    #[test]
    fn a_document_is_taken_whole_or_not_at_all() {
        let document = br#"{"schema":1}"#;
        let whole = announced(document);
        // What comes after it is not read.
        let longer = [&document[..], b"rest"].concat();
        assert_eq!(read_document(&whole, &longer[..]), Ok(document.to_vec()));
        let cut = read_document(&whole, &document[..5]).expect_err("cut");
        assert_eq!(cut, "the document ends after 5 of 12 bytes");
        let other = read_document(&whole, &br#"{"schema":2}"#[..]).expect_err("another");
        assert!(other.contains("announced was"), "{other}");
        let large = Announced {
            bytes: DOCUMENT_BYTES_MAX + 1,
            ..whole
        };
        assert!(read_document(&large, &b""[..]).is_err());
    }

    struct Nobody;
    impl Write for Nobody {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn nobody_has_to_read_what_is_written() {
        let output = Output::new(Nobody);
        output.heartbeat(&HostHeartbeat::of(&Step::default(), 1));
        output.answer(&broken(&call(), FailureCode::Other, "panicked"));
    }

    fn call() -> Call {
        Call {
            mode: Mode::Asked(Asked::Probe),
            task: "machine/1@2.0".into(),
            attempt: 3,
            fence: dormer_profile::document::Fence::default(),
            boot: None,
            document: None,
            program: "ab".repeat(32),
        }
    }

    /// A host on which nothing works.
    struct Broken;
    impl Host for Broken {
        async fn perform(&mut self, request: OperationRequest) -> Outcome {
            match request.operation {
                Operation::ClockRead(ClockRead {}) => Ok(Said::FileProbe(())),
                _ => Err(WinError::new(50)),
            }
        }
    }

    #[test]
    fn even_a_host_on_which_nothing_works_gets_a_framed_answer() {
        let written = Output::new(Vec::new());
        assert!(!serve(call(), std::io::empty(), &written, Broken));
        written.heartbeat(&HostHeartbeat::of(&Step::default(), 1));
        let bytes = written.lock().clone();
        let answer = frame::extract(&bytes, "machine/1@2.0", 3).expect("an answer");
        assert_eq!(answer.program, "ab".repeat(32));
        assert_eq!(
            answer.failure.map(|failure| failure.code),
            Some(FailureCode::Other)
        );
        assert!(bytes.ends_with(b"dormer: - - 1 of 0 ms\r\n"));
    }

    #[test]
    fn who_watches_sees_each_operation() {
        let watch = Watch::default();
        let mut host = ObservedHost::new(Broken, watch.clone());
        let step = Step {
            item: "hostname".into(),
            doing: "clock_read".into(),
            since_ms: 0,
            limit_ms: 30_000,
        };
        let request = OperationRequest {
            step: step.clone(),
            operation: Operation::ClockRead(ClockRead {}),
        };
        assert!(block_on(host.perform(request)).is_ok());
        assert_eq!(watch.now(), (1, step));
    }
}
