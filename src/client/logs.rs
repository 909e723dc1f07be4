//! `dormer logs`: a machine's tasks, attempt by attempt, with the latest remote commands and the progress of open
//! attempts.
//!
//! The history stores attempts. It does not store commands or host output, which may hold secrets. The answering
//! process has the latest of those in memory, with secrets removed.

use super::{
    Failure, ServerArgs, action_commands::run_of, answer::Answer, outage::Outage, server::Server,
    terminal,
};
use clap::Args;
use dormer_profile::suggestion::question;
use dormer_proto::id::Timestamp;
use dormer_views::{
    machine::Machine,
    moment::{Moment, lasted, span},
    open_enum::OpenEnum,
    run::{self, Heartbeat, List, RemoteCommand},
    timeline::{Attempt, AttemptResult, Episode, Task, Timeline},
};
use serde::Serialize;
use std::{collections::BTreeSet, time::Duration};

/// Note below attempts without any remote command.
const NO_COMMANDS: &str = "No remote commands are kept, and no connection or upload that failed: dormer has the latest of \
them in memory, and received none since it started. The lines above say how each attempt ended.";
/// Begins of lines that are not broken: a remote command and its output, which one copies.
const WHOLE: [&str; 2] = ["$ ", "| "];
/// Poll interval of open attempts.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Default number of printed attempts.
const ATTEMPTS: usize = 200;

/// Arguments of `dormer logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// The machine: its name, NAMESPACE/NAME, or its UID
    machine: String,
    /// Only this task: its id (12.0, as in dormer trace), or all tasks of a name (converge-host)
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Most attempts; the latest are printed
    #[arg(long, visible_alias = "tail", value_name = "N", default_value_t = ATTEMPTS)]
    limit: usize,
    /// Keep printing new attempts, until you press Ctrl-C
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    to: ServerArgs,
}

/// Output line: text for people, and the same as JSON for programs.
#[derive(Debug)]
struct LogLine {
    text: String,
    entry: LogEntry,
    /// Remote commands, each in several lines.
    commands: Vec<String>,
}

/// Attempt in the form for programs.
#[derive(Debug, Serialize)]
struct LogEntry {
    /// `SEQ.ORDINAL`: the task within its run.
    task: String,
    name: String,
    attempt: u64,
    from: Moment,
    /// End; null while the attempt is open.
    to: Option<Moment>,
    result: Option<OpenEnum<AttemptResult>>,
    worker: Option<String>,
    detail: Option<String>,
    /// Latest heartbeat while the attempt is open.
    progress: Option<Heartbeat>,
    commands: Vec<Answer<RemoteCommand>>,
}

impl LogLine {
    /// Adds the attempt's remote commands, chosen from `all` of the machine.
    fn with_commands(mut self, all: &[Answer<RemoteCommand>], now: Timestamp) -> Self {
        let LogEntry { task, attempt, .. } = &self.entry;
        let ours = |it: &&Answer<RemoteCommand>| {
            id_in_run(&it.view.task) == task && it.view.attempt == *attempt
        };
        let ours: Vec<Answer<RemoteCommand>> = all.iter().filter(ours).cloned().collect();
        self.commands = ours.iter().map(|it| command_text(&it.view, now)).collect();
        self.entry.commands = ours;
        self
    }

    /// Identity for comparison with printed lines. It leaves out what changes all the time: the attempt's age, and the
    /// time until the next one.
    fn mark(&self) -> String {
        match self.entry.to {
            Some(to) => format!("{} {} {to}", self.entry.task, self.entry.attempt),
            None => serde_json::to_string(&self.entry).unwrap_or_default(),
        }
    }
}

/// Part `SEQ.ORDINAL` of a task's id.
fn id_in_run(task: &str) -> &str {
    task.rsplit_once('@').map_or(task, |(_, id)| id)
}

impl Logs {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let run = run_of(&server, &self.machine).await?;
        let mut lines = self.lines(&server, &run).await?;
        if self.follow {
            return self.follow(&server, &run).await;
        }
        let left_out = lines.len().saturating_sub(self.limit);
        lines.drain(..left_out);
        let entries: Vec<&LogEntry> = lines.iter().map(|line| &line.entry).collect();
        if let Some(text) = self.to.programs(&entries)? {
            return Ok(text);
        }
        let text_of = |line: &LogLine| [vec![line.text.clone()], line.commands.clone()].concat();
        let texts: Vec<String> = lines.iter().flat_map(text_of).collect();
        let mut text: Vec<&str> = texts.iter().map(String::as_str).collect();
        if text.is_empty() {
            text.push("No attempts are on record.");
        }
        let more = format!("{left_out} earlier attempts are not shown; --limit N shows more");
        if left_out > 0 {
            text.insert(0, &more);
        }
        if !lines.is_empty() && lines.iter().all(|it| it.commands.is_empty()) {
            text.extend(["", NO_COMMANDS]);
        }
        Ok(terminal::hung(
            &text.join("\n"),
            terminal::columns(),
            &WHOLE,
        ))
    }

    /// Attempts of the selected tasks, oldest first.
    async fn lines(&self, server: &Server, run: &str) -> Result<Vec<LogLine>, Failure> {
        let Timeline { now, episodes, .. } = server.get(&format!("{run}/timeline")).await?;
        let open = open_tasks(server, run).await?;
        let commands = commands(server, run).await;
        let tasks: Vec<&Task> = episodes.iter().flat_map(Episode::tasks).collect();
        if let Some(absent) = self.absent(&tasks) {
            return Err(absent);
        }
        let wanted = tasks.into_iter().filter(|task| self.wants(task));
        let attempts = wanted.flat_map(|task| task.attempts.iter().map(move |it| (task, it)));
        let mut lines: Vec<LogLine> = attempts
            .map(|(task, attempt)| {
                let line = line(task, attempt, now, &open);
                line.with_commands(&commands, Timestamp(now))
            })
            .collect();
        lines.sort_by_key(|line| line.entry.from);
        Ok(lines)
    }

    /// Refusal of a task that the machine does not have. It may still come to one that is followed.
    fn absent(&self, tasks: &[&Task]) -> Option<Failure> {
        let wanted = self.task.as_ref().filter(|_| !self.follow)?;
        if tasks.is_empty() || tasks.iter().any(|task| self.wants(task)) {
            return None;
        }
        let names: BTreeSet<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        let near = question(wanted, names.iter().copied());
        let names: Vec<&str> = names.into_iter().collect();
        Some(Failure::Absent {
            error: format!("{} has had no task {wanted:?}{near}", self.machine),
            what_to_do: format!("its tasks are: {}", names.join(", ")),
        })
    }

    fn wants(&self, task: &Task) -> bool {
        self.task
            .as_ref()
            .is_none_or(|wanted| id_in_run(wanted) == task.id || wanted == &task.name)
    }

    /// As [`Logs::lines`], from a server that may be starting again meanwhile.
    async fn answered(&self, server: &Server, run: &str) -> Result<Vec<LogLine>, Failure> {
        let mut outage: Option<Outage> = None;
        loop {
            let failure = match self.lines(server, run).await {
                Ok(lines) => return Ok(lines),
                Err(failure) => failure,
            };
            let begins = outage.is_none();
            let outage = outage.get_or_insert_with(Outage::new);
            outage.endure(failure)?;
            if begins {
                terminal::warn("the server does not answer; asking again");
            }
            outage.pause().await;
        }
    }

    /// Prints each attempt when it ends, and an open one whenever it has progressed.
    async fn follow(&self, server: &Server, run: &str) -> Result<String, Failure> {
        let mut printed: BTreeSet<String> = BTreeSet::new();
        // What is older than the latest attempts counts as printed.
        let before = self.lines(server, run).await?;
        let left_out = before.len().saturating_sub(self.limit);
        for line in before.into_iter().take(left_out) {
            printed.insert(line.mark());
            printed.extend(line.commands);
        }
        loop {
            for line in self.answered(server, run).await? {
                let programs = self.to.programs(&line.entry)?;
                let mut texts = Vec::new();
                if printed.insert(line.mark()) {
                    texts.push(programs.clone().unwrap_or(line.text));
                }
                if programs.is_none() {
                    texts.extend(
                        line.commands
                            .into_iter()
                            .filter(|it| printed.insert(it.clone())),
                    );
                }
                for text in texts {
                    let columns = terminal::columns().filter(|_| self.to.is_for_people());
                    if terminal::say(&terminal::hung(&text, columns, &WHOLE)).is_err() {
                        return Ok(String::new());
                    }
                }
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

/// Open tasks of the machine with their latest heartbeats.
async fn open_tasks(server: &Server, run: &str) -> Result<Vec<run::Task>, Failure> {
    let Some(path) = path(run) else {
        return Ok(Vec::new());
    };
    let shown: Machine = server.get(&path).await?;
    Ok(shown.tasks)
}

/// Remote commands of the machine in the answering process's memory.
async fn commands(server: &Server, run: &str) -> Vec<Answer<RemoteCommand>> {
    let Some(path) = path(run) else {
        return Vec::new();
    };
    // An older server lacks this endpoint. The other requests report any other failure.
    let shown: Result<List<_>, _> = server.get(&format!("{path}/commands")).await;
    shown.map_or_else(|_| Vec::new(), |shown| shown.items)
}

/// Path of the machine whose run has this path. `None` for a rollout, which has neither hosts nor heartbeats.
fn path(run: &str) -> Option<String> {
    let uid = run.strip_prefix("/runs/machine/")?;
    Some(format!("/machines/{uid}"))
}

/// Text of a command: its name, duration, result, command line and output.
fn command_text(command: &RemoteCommand, now: Timestamp) -> String {
    let name = printable(&command.name);
    let ended = if command.ended.is_empty() {
        "is running".into()
    } else {
        let took = lasted(0, command.took_ms);
        format!("{} after {took}", printable(&command.ended))
    };
    let mut lines = vec![
        format!(
            "    {}  command {name}: {ended}",
            command.at.clock_seconds(now)
        ),
        format!("      $ {}", printable(&command.line)),
    ];
    let quoted = |text: &str| -> Vec<String> {
        let text = printable(text);
        text.lines().map(|line| format!("      | {line}")).collect()
    };
    lines.extend(quoted(&command.head));
    if command.left_out_bytes > 0 {
        let left_out = command.left_out_bytes;
        lines.push(format!("      | … {left_out} bytes are left out …"));
    }
    lines.extend(quoted(&command.tail));
    lines.join("\n")
}

/// Host output without control characters, which would steer a terminal.
fn printable(text: &str) -> String {
    let steers = |c: char| c.is_control() && c != '\n';
    text.replace("\r\n", "\n").replace(steers, " ")
}

fn line(task: &Task, it: &Attempt, now: u64, open: &[run::Task]) -> LogLine {
    let over = it.to.is_some();
    let ours =
        |open: &&run::Task| !over && open.id_in_run() == task.id && open.attempt == it.attempt;
    let beat = open.iter().find(ours);
    let beat = beat.and_then(|open| open.heartbeat.as_ref());
    let worker = it.worker.as_ref().or(beat.map(|beat| &beat.worker));
    let long = lasted(it.from, it.to.unwrap_or(now));
    let how = match &it.result {
        Some(_) => format!("{} after {long}", it.result_text()),
        None => format!("running for {long}"),
    };
    let at = worker.map_or_else(String::new, |worker| format!(" on {worker}"));
    let detail = it.detail.clone().or(beat.and_then(progress));
    let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
    let next = it.wait.filter(|due| *due > now && task.to.is_none());
    let next = next.map_or_else(String::new, |due| {
        format!(
            "; the next attempt is due in {}",
            span((due - now) / 1_000 + 1)
        )
    });
    let from = Moment(Timestamp(it.from));
    let clock = from.clock_seconds(Timestamp(now));
    let Task { id, name, .. } = task;
    let attempt = it.attempt;
    LogLine {
        text: format!("{clock}  {name} {id} attempt {attempt} {how}{at}{detail}{next}"),
        entry: LogEntry {
            task: id.clone(),
            name: name.clone(),
            attempt,
            from,
            to: it.to.map(|to| Moment(Timestamp(to))),
            result: it.result.clone(),
            worker: worker.cloned(),
            detail: it.detail.clone(),
            progress: beat.cloned(),
            commands: Vec::new(),
        },
        commands: Vec::new(),
    }
}

/// Step of the worker, with its progress. `None`: the worker reported no step.
fn progress(beat: &Heartbeat) -> Option<String> {
    let step = Some(&beat.step).filter(|step| !step.is_empty())?;
    Some(match beat.amount() {
        Some(amount) => format!("{step}, {amount}"),
        None => step.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_views::run::TaskPhase;
    use serde_json::{Value, json};

    fn task(attempt: Attempt) -> Task {
        Task {
            id: "12.0".into(),
            name: "converge-host".into(),
            from: 0,
            to: None,
            attempts: vec![attempt],
        }
    }

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        logs: Logs,
    }

    fn logs(arguments: &[&str]) -> Logs {
        use clap::Parser as _;
        let arguments = ["logs", "win-1"].iter().chain(arguments);
        Command::try_parse_from(arguments).expect("a command").logs
    }

    #[tokio::test]
    async fn a_server_that_starts_again_is_asked_again() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = listener.await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let body = json!({"run": "rollout/windows", "now": 1, "firstRecord": 1, "episodes": []})
            .to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let serving = tokio::spawn(async move {
            // The old process ends without an answer.
            for answer in ["", answer.as_str()] {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut request = [0; 4_096];
                let _ = stream.read(&mut request).await.expect("a request");
                stream.write_all(answer.as_bytes()).await.expect("sent");
            }
        });
        let server = Server::at(&url).expect("a server");
        let lines = logs(&["-f"])
            .answered(&server, "/runs/rollout/windows")
            .await;
        assert!(lines.is_ok_and(|it| it.is_empty()));
        serving.await.expect("it has answered");
    }

    #[test]
    fn a_task_that_the_machine_never_had_is_refused_with_those_that_it_had() {
        let absent = |arguments: &[&str]| {
            let known = task(failed());
            let refused = logs(arguments).absent(&[&known]);
            refused.map(|it| it.to_string())
        };
        assert_eq!(
            absent(&["--task", "converge-hots"]).as_deref(),
            Some(
                "win-1 has had no task \"converge-hots\"; did you mean converge-host?\n\
                 its tasks are: converge-host"
            )
        );
        for there in [&["--task", "converge-host"][..], &["--task", "12.0"], &[]] {
            assert_eq!(absent(there), None, "{there:?}");
        }
        assert_eq!(absent(&["-f", "--task", "evict"]), None, "it may come");
    }

    fn failed() -> Attempt {
        Attempt {
            attempt: 1,
            from: 0,
            to: Some(2_500),
            result: Some(AttemptResult::Failed.into()),
            worker: Some("w1".into()),
            detail: Some("C: is full (DiskFull)".into()),
            wait: Some(12_500),
        }
    }

    /// Open task with progress reported by `w2`.
    fn reported(attempt: u64) -> run::Task {
        run::Task {
            last_failure: None,
            task: "machine/u@12.0".into(),
            run: "machine/u".into(),
            name: "converge-host".into(),
            machine: None,
            attempt,
            attempts_max: 5,
            ends: None,
            phase: TaskPhase::InFlight.into(),
            since: None,
            since_seconds: None,
            until: Moment(Timestamp(99_000)),
            failure: None,
            heartbeat: Some(Heartbeat {
                worker: "w2".into(),
                step: "upload".into(),
                done: 3,
                of: 9,
                unit: "bytes".into(),
            }),
        }
    }

    #[test]
    fn hosts_are_a_machines_by_its_uid_whatever_it_was_called() {
        assert_eq!(path("/runs/machine/u-1").as_deref(), Some("/machines/u-1"));
        assert_eq!(path("/runs/rollout/windows"), None);
    }

    #[test]
    fn an_attempt_is_logged_with_its_outcome_or_its_progress() {
        let over = task(failed());
        let shown = line(&over, &over.attempts[0], 3_000, &[]);
        assert_eq!(
            shown.text,
            "00:00:00 UTC  converge-host 12.0 attempt 1 failed after 2.5s on w1: \
             C: is full (DiskFull); the next attempt is due in 10s"
        );
        let later = line(&over, &over.attempts[0], 5_000, &[]);
        assert_ne!(later.text, shown.text, "the next attempt is nearer");
        assert_eq!(later.mark(), shown.mark());
        let under_way = task(Attempt {
            attempt: 2,
            from: 12_500,
            to: None,
            result: None,
            worker: None,
            detail: None,
            wait: None,
        });
        let open = [reported(1), reported(2)];
        let shown = line(&under_way, &under_way.attempts[0], 13_000, &open);
        assert!(
            shown
                .text
                .ends_with("running for 500ms on w2: upload, 3 of 9 bytes"),
            "{}",
            shown.text
        );
        let later = line(&under_way, &under_way.attempts[0], 14_000, &open);
        assert_eq!(shown.mark(), later.mark(), "it has not moved");
        let entry = serde_json::to_value(&shown.entry).unwrap();
        let expected = json!({
            "task": "12.0", "name": "converge-host", "attempt": 2, "from": "1970-01-01T00:00:12.500Z",
            "to": null, "result": null, "worker": "w2", "detail": null, "commands": [],
            "progress": {"worker": "w2", "step": "upload", "done": 3, "of": 9, "unit": "bytes"},
        });
        assert_eq!(entry, expected);
    }

    #[test]
    fn a_remote_command_is_listed_below_its_attempt_with_head_and_tail_of_its_output() {
        let of = |attempt: u64| -> Value {
            json!({"task": "machine/u@12.0", "attempt": attempt, "worker": "w1", "number": 1, "name": "apply host",
                "at": "1970-01-01T00:00:01.000Z", "tookMs": 1_500, "ended": "exit 0",
                "line": "powershell.exe -Mode apply", "head": "one\u{1b}[2J\ntwo", "leftOutBytes": 9,
                "tail": "end"})
        };
        let all: Vec<Answer<RemoteCommand>> =
            serde_json::from_value(json!([of(1), of(2)])).unwrap();
        let over = task(failed());
        let shown =
            line(&over, &over.attempts[0], 3_000, &[]).with_commands(&all, Timestamp(3_000));
        let expected = "    00:00:01 UTC  command apply host: exit 0 after 1.5s\n      \
             $ powershell.exe -Mode apply\n      | one [2J\n      | two\n      \
             | … 9 bytes are left out …\n      | end";
        assert_eq!(shown.commands, [expected]);
        assert_eq!(shown.entry.commands.len(), 1);
    }
}
