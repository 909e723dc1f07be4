//! A host in a prefix of Wine: `dormer-host-perform.exe`, which is handed one request after the other.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use dormer_host::ops::{Host, OperationRequest, Outcome, WinError};
use dormer_testkit::Wine;

/// The program, running.
pub(crate) struct Performer {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// The operations that were performed.
    pub(crate) performed: BTreeSet<&'static str>,
}

impl Performer {
    /// Starts it in a prefix where it is installed.
    pub(crate) fn start(wine: &Wine, program: &str) -> Self {
        let mut child = wine
            .command(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Wine can be started");
        let requests = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self {
            child,
            requests,
            answers,
            performed: BTreeSet::new(),
        }
    }

    fn ask(&mut self, request: &OperationRequest) -> Outcome {
        self.performed.insert(request.operation.name());
        let mut line = serde_json::to_vec(request).expect("a request is JSON");
        line.push(b'\n');
        let sent = self.requests.write_all(&line);
        let answer = sent.ok().and_then(|()| self.answers.next()?.ok());
        match answer {
            Some(answer) => serde_json::from_str(&answer).expect("an outcome"),
            // Windows' answer for a process that has died.
            None => Err(WinError {
                code: 109,
                text: format!("it died: {:?}", self.child.wait()),
            }),
        }
    }
}

impl Host for Performer {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        self.ask(&request)
    }
}

impl Drop for Performer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
