//! Action on several machines: what one of them refuses ends it for that machine alone.

use super::{
    already,
    request::{RequestArgs, answer_text, under_lease, user},
};
use crate::{Failure, absent::listed, answer::Answer, machines::path_of, server::Server, terminal};
use dormer_views::{actions::Action, any_run::AnyRun, machine::Machine};

/// Action on several machines.
pub(super) struct Bulk<'a> {
    request: &'a RequestArgs,
    server: &'a Server,
    action: &'a Action,
    /// Names of the machines for which it was refused.
    refused: Vec<String>,
}

impl<'a> Bulk<'a> {
    pub(super) fn new(request: &'a RequestArgs, server: &'a Server, action: &'a Action) -> Self {
        Self {
            request,
            server,
            action,
            refused: Vec::new(),
        }
    }

    fn path(&self, machine: &Machine) -> String {
        format!("{}/actions/{}", path_of(machine), self.action.name)
    }

    /// Notes a machine's failure, and names it on standard error.
    ///
    /// # Errors
    /// The server does not answer: the other machines would fail in the same way.
    fn note(&mut self, machine: &Machine, failure: Failure) -> Result<(), Failure> {
        let error = match failure {
            Failure::Refused { error, .. }
            | Failure::Absent { error, .. }
            | Failure::Usage(error) => error,
            Failure::Unreachable { .. } | Failure::Unready { .. } | Failure::NoCluster(_) => {
                return Err(failure);
            }
        };
        terminal::warn(format_args!("{}: {error}", machine.name));
        self.refused.push(machine.name.clone());
        Ok(())
    }

    /// Machines for which the server would take the action.
    ///
    /// # Errors
    /// The server does not answer. Nothing was done.
    pub(super) async fn possible(
        &mut self,
        machines: Vec<Machine>,
    ) -> Result<Vec<Machine>, Failure> {
        let mut possible = Vec::new();
        for machine in machines {
            let path = self.path(&machine);
            let body = self.request.body();
            match self.request.check(self.server, &path, &body).await {
                Ok(()) => possible.push(machine),
                Err(failure) => self.note(&machine, failure)?,
            }
        }
        Ok(possible)
    }

    /// Posts the action for each machine.
    ///
    /// # Errors
    /// It was refused for one at least, or the server no longer answers. What was done until then is printed.
    pub(super) async fn post(mut self, machines: &[Machine]) -> Result<String, Failure> {
        let all = machines.len() + self.refused.len();
        let mut answers = Vec::new();
        let mut lost = None;
        for machine in machines {
            if let Some(text) = already(self.action.name, machine, &user(), &self.request.why) {
                terminal::warn(text);
                continue;
            }
            let path = self.path(machine);
            let body = self.request.body();
            match self.server.post::<Answer<AnyRun>>(&path, &body).await {
                Ok(answer) => {
                    let address = &self.request.to.address;
                    if let Some(text) = under_lease(self.action, machine, address) {
                        terminal::warn(format_args!("{}: {text}", machine.name));
                    }
                    answers.push(answer);
                }
                Err(failure) => {
                    lost = self.note(machine, failure).err();
                    if lost.is_some() {
                        break;
                    }
                }
            }
        }
        let body = self.request.body();
        let address = &self.request.to.address;
        let line = |it: &Answer<AnyRun>| answer_text(self.action, &body, &it.view, &[], address);
        let lines: Vec<String> = answers.iter().map(line).collect();
        let text = self.request.to.programs(&answers)?;
        let text = text.unwrap_or_else(|| lines.join("\n"));
        let failure = match (lost, self.refused.as_slice()) {
            (None, []) => return Ok(text),
            (Some(lost), _) => lost,
            (None, refused) => Failure::refused(
                format!(
                    "{}: not done for {} of {all} machines: {}",
                    self.action.name,
                    refused.len(),
                    listed(refused)
                ),
                "dormer why says what they wait for",
            ),
        };
        // The finished actions are reported even though the command fails.
        if !text.is_empty() {
            let _ = terminal::say(&text);
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use crate::{action_commands::MachineArgs, samples::machine_json};
    use clap::Parser;
    use dormer_views::actions::{Action, DRAIN, RETRY};
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        machine: MachineArgs,
    }

    /// Requests that a server received: path, and whether it was a dry run.
    type Received = Arc<Mutex<Vec<(String, bool)>>>;

    /// Answers one request: machines by their name, and an action on all but `a` and `b`.
    async fn answer(mut stream: TcpStream, received: &Received) {
        let mut request = Vec::new();
        let whole = |request: &[u8]| {
            let text = String::from_utf8_lossy(request).into_owned();
            let (head, body) = text.split_once("\r\n\r\n")?;
            let length = head
                .lines()
                .find_map(|it| it.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |it| it.parse().expect("a number"));
            let path = head.split(' ').nth(1)?.to_owned();
            (body.len() >= length).then(|| (path, body.contains("dryRun")))
        };
        let (path, dry) = loop {
            if let Some(done) = whole(&request) {
                break done;
            }
            stream.read_buf(&mut request).await.expect("read");
        };
        received.lock().expect("a lock").push((path.clone(), dry));
        let name = path.split('/').nth(4).unwrap_or_default();
        let gone = json!({"error": format!("there is no machine {name:?}"), "whatToDo": ""});
        let early = json!({"error": "it has not failed", "whatToDo": ""});
        let machine = machine_json(json!({"name": name, "uid": name}));
        let (status, body): (_, Value) = match (name, path.contains("/actions/")) {
            ("a", true) => ("404 Not Found", gone),
            ("b", true) => ("409 Conflict", early),
            _ => ("200 OK", machine),
        };
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: ");
        let answer = format!("{head}{}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.expect("sent");
    }

    /// Failure of an action on the machines `a`, `b` and `c`, and the actions that the server received.
    async fn failure(action: &Action, yes: bool) -> (String, Vec<(String, bool)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let received = Received::default();
        let seen = Arc::clone(&received);
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                answer(stream, &seen).await;
            }
        });
        let mut line = vec!["x", "a", "b", "c", "--server", &url];
        line.extend(yes.then_some("--yes"));
        let line = Line::try_parse_from(line).expect("a command line");
        let failed = line.machine.run(action).await.expect_err("a failure");
        server.abort();
        let received = received.lock().expect("a lock").clone();
        let acts = received.into_iter().filter(|it| it.0.contains("/actions/"));
        let last = |path: String| path.replace("/api/v1/machines/", "");
        let acts = acts.map(|(path, dry)| (last(path), dry)).collect();
        (failed.to_string(), acts)
    }

    #[tokio::test]
    async fn what_one_machine_refuses_ends_no_action_on_the_others() {
        let (failed, acts) = failure(&RETRY, true).await;
        let expected = ["a/actions/retry", "b/actions/retry", "c/actions/retry"];
        assert_eq!(acts, expected.map(|path| (path.to_owned(), false)));
        let expected = "retry: not done for 2 of 3 machines: a, b\n";
        assert!(failed.starts_with(expected), "{failed}");
    }

    #[tokio::test]
    async fn a_check_that_fails_for_one_machine_ends_no_check_of_the_others() {
        let (failed, acts) = failure(&DRAIN, false).await;
        let expected = ["a/actions/drain", "b/actions/drain", "c/actions/drain"];
        assert_eq!(acts, expected.map(|path| (path.to_owned(), true)));
        // No terminal: the question about the one that is left is not answered.
        assert!(failed.starts_with("drain 1 machine (c)"), "{failed}");
    }
}
