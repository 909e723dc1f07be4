//! `dormer logs`: what is on record of a machine's tasks, attempt by attempt, with the remote commands of the latest,
//! and what is going on now.
//!
//! Honest about what it is: attempts are in the history; commands and what hosts said to them are not, since they
//! may hold secrets. The process that answers has the latest in memory, scrubbed.

use super::{
    Failure, To,
    action_commands::run_of,
    get::list,
    server::{Server, segment},
    trace::{Attempt, Episode, Task, moment, read},
};
use clap::Args;
use dormer_views::moment::{lasted, span};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::{self, Write},
    time::Duration,
};

/// What is kept and what is not, for whoever looks for more.
const KEPT: &str = "Kept of each attempt: when it was ordered and when reported, by which worker, and its outcome \
     or its error. Remote commands and the beginning and end of what the host said (2 KiB of each, secrets taken out) \
     are in the memory of the process that answers, the latest 64 of a task and 8 MiB of all: they are gone when it \
     ends. A worker logs each step with DORMER_LOG=dormer_workers=debug.";
/// How often what is going on is looked at.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Attempts that are printed unless somebody wants more.
const ATTEMPTS: usize = 200;

/// Of which machine, and which task.
#[derive(Debug, Args)]
pub struct Logs {
    /// The machine: its name, NAMESPACE/NAME, or its UID
    machine: String,
    /// Of this task only: its id (12.0, as dormer trace shows it), or all of a name (converge-host)
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// At most so many attempts, the latest
    #[arg(long, default_value_t = ATTEMPTS)]
    limit: usize,
    /// Goes on as things happen, until you end it
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    to: To,
}

/// A line: what it tells, and for programs the same as JSON.
struct Line {
    text: String,
    value: Value,
    over: bool,
    /// Its remote commands, each in some lines.
    commands: Vec<String>,
}

impl Line {
    /// With the attempt's remote commands among `all` of the machine.
    fn with_commands(mut self, id: &str, attempt: u64, all: &[Value]) -> Self {
        let ours: Vec<&Value> = all.iter().filter(|it| is_of(it, id, attempt)).collect();
        self.commands = ours.iter().map(|command| command_text(command)).collect();
        self.value["commands"] = json!(ours);
        self
    }
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
        let values: Vec<&Value> = lines.iter().map(|line| &line.value).collect();
        if let Some(text) = self.to.output.for_programs(&json!(values))? {
            return Ok(text);
        }
        let text_of = |line: &Line| [vec![line.text.clone()], line.commands.clone()].concat();
        let texts: Vec<String> = lines.iter().flat_map(text_of).collect();
        let mut text: Vec<&str> = texts.iter().map(String::as_str).collect();
        if text.is_empty() {
            text.push("No attempts are on record.");
        }
        let more = format!("{left_out} earlier attempts are left out: --limit");
        if left_out > 0 {
            text.insert(0, &more);
        }
        text.extend(["", KEPT]);
        Ok(text.join("\n"))
    }

    /// Every attempt of the tasks that are asked for, oldest first, and what is going on.
    async fn lines(&self, server: &Server, run: &str) -> Result<Vec<Line>, Failure> {
        let answer = server.get(&format!("{run}/timeline")).await?;
        let now = answer["now"].as_u64().unwrap_or_default();
        let episodes = read(answer)?;
        let beats = beats(server, &self.machine).await?;
        let commands = commands(server, &self.machine).await;
        let tasks = episodes
            .iter()
            .flat_map(Episode::tasks)
            .filter(|task| self.wants(task));
        let attempts = tasks.flat_map(|task| task.attempts.iter().map(move |it| (task, it)));
        let mut lines: Vec<(u64, Line)> = attempts
            .map(|(task, it)| {
                let line = line(task, it, now, &beats);
                (it.from, line.with_commands(&task.id, it.attempt, &commands))
            })
            .collect();
        lines.sort_by_key(|(from, _)| *from);
        Ok(lines.into_iter().map(|(_, line)| line).collect())
    }

    fn wants(&self, task: &Task) -> bool {
        self.task.as_ref().is_none_or(|wanted| {
            let id = wanted
                .rsplit_once('@')
                .map_or(wanted.as_str(), |(_, id)| id);
            id == task.id || wanted == &task.name
        })
    }

    /// Prints each attempt once it is over, and what is going on whenever it has moved.
    async fn follow(&self, server: &Server, run: &str) -> Result<String, Failure> {
        let mut printed: BTreeSet<String> = BTreeSet::new();
        loop {
            for line in self.lines(server, run).await? {
                // How long it goes on changes all the time; what it is at does not.
                let mark = if line.over {
                    line.text.clone()
                } else {
                    line.value.to_string()
                };
                let programs = self.to.output.for_programs(&line.value)?;
                let mut texts = Vec::new();
                if printed.insert(mark) {
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
                    if writeln!(io::stdout(), "{text}").is_err() {
                        return Ok(String::new());
                    }
                }
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

/// What is heard of the machine's tasks now.
async fn beats(server: &Server, machine: &str) -> Result<Vec<Value>, Failure> {
    let Some(path) = path(machine) else {
        return Ok(Vec::new());
    };
    let shown = server.get(&path).await?;
    Ok(list(shown["tasks"].clone()))
}

/// The remote commands of the machine that the process that answers has in memory.
async fn commands(server: &Server, machine: &str) -> Vec<Value> {
    let Some(path) = path(machine) else {
        return Vec::new();
    };
    // A server before this endpoint has none; whatever else is wrong, the other questions tell.
    let shown = server.get(&format!("{path}/commands")).await;
    shown.map_or_else(|_| Vec::new(), |shown| list(shown["items"].clone()))
}

/// A machine's path; a rollout has neither hosts nor heartbeats.
fn path(machine: &str) -> Option<String> {
    let called = machine.strip_prefix("machine/").unwrap_or(machine);
    (!machine.starts_with("rollout/")).then(|| format!("/machines/{}", segment(called)))
}

fn is_of(command: &Value, id: &str, attempt: u64) -> bool {
    let task = command["task"]
        .as_str()
        .and_then(|task| task.rsplit_once('@'));
    task.is_some_and(|(_, task)| task == id) && command["attempt"].as_u64() == Some(attempt)
}

/// A command for people: what, how long, how it ended, its line, and what was said to it.
fn command_text(command: &Value) -> String {
    let text = |field: &str| printable(command[field].as_str().unwrap_or_default());
    let at = text("at");
    let name = text("name");
    let ended = text("ended");
    let took = lasted(0, command["tookMs"].as_u64().unwrap_or_default());
    let ended = if ended.is_empty() {
        "is running".into()
    } else {
        format!("{ended} after {took}")
    };
    let mut lines = vec![
        format!("    {at}  command {name}: {ended}"),
        format!("      $ {}", text("line")),
    ];
    let head = text("head");
    let tail = text("tail");
    lines.extend(head.lines().map(|line| format!("      | {line}")));
    if let Some(left_out) = command["leftOutBytes"].as_u64().filter(|bytes| *bytes > 0) {
        lines.push(format!("      | … {left_out} bytes are left out …"));
    }
    lines.extend(tail.lines().map(|line| format!("      | {line}")));
    lines.join("\n")
}

/// A host's words without what would steer a terminal.
fn printable(text: &str) -> String {
    let steers = |c: char| c.is_control() && c != '\n';
    text.replace("\r\n", "\n").replace(steers, " ")
}

fn line(task: &Task, it: &Attempt, now: u64, beats: &[Value]) -> Line {
    let over = it.to.is_some();
    let suffix = format!("@{}", task.id);
    let beat = beats.iter().find(|beat| {
        !over
            && beat["task"]
                .as_str()
                .is_some_and(|id| id.ends_with(&suffix))
            && beat["attempt"].as_u64() == Some(it.attempt)
    });
    let beat = beat
        .map(|beat| &beat["heartbeat"])
        .filter(|beat| beat.is_object());
    let long = lasted(it.from, it.to.unwrap_or(now));
    let how = if over {
        format!("{} after {long}", it.result)
    } else {
        format!("under way for {long}")
    };
    let worker = it
        .worker
        .as_deref()
        .or_else(|| beat.and_then(|beat| beat["worker"].as_str()));
    let at = worker.map_or_else(String::new, |worker| format!(" at {worker}"));
    let detail = match (&it.detail, beat) {
        (Some(detail), _) => format!(": {detail}"),
        (None, Some(beat)) => format!(": {}", progress(beat)),
        (None, None) => String::new(),
    };
    let next = it.wait.filter(|due| *due > now && task.to.is_none());
    let next = next.map_or_else(String::new, |due| {
        format!("; the next is due in {}", span((due - now) / 1_000 + 1))
    });
    let at_time = moment(it.from);
    let name = &task.name;
    let id = &task.id;
    let attempt = it.attempt;
    Line {
        text: format!("{at_time}  {name} {id} attempt {attempt} {how}{at}{detail}{next}"),
        value: json!({
            "task": id, "name": name, "attempt": attempt, "from": at_time,
            "to": it.to.map(moment), "result": it.result, "worker": worker, "detail": it.detail,
            "progress": beat,
        }),
        over,
        commands: Vec::new(),
    }
}

fn progress(beat: &Value) -> String {
    let step = beat["step"].as_str().unwrap_or("at it");
    let done = beat["done"].as_u64().unwrap_or(0);
    let of = beat["of"].as_u64().unwrap_or(0);
    let unit = beat["unit"].as_str().unwrap_or_default();
    if of > 0 {
        format!("{step}, {done} of {of} {unit}")
    } else {
        step.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(attempt: Value) -> Task {
        serde_json::from_value(
            json!({"id": "12.0", "name": "converge-host", "from": 0, "to": null,
            "attempts": [attempt]}),
        )
        .unwrap()
    }

    #[test]
    fn an_attempt_is_logged_with_its_outcome_or_its_progress() {
        let over = task(
            json!({"attempt": 1, "from": 0, "to": 2_500, "result": "failed", "worker": "w1",
            "detail": "DiskFull: C: is full", "wait": 12_500}),
        );
        let shown = line(&over, &over.attempts[0], 3_000, &[]);
        assert_eq!(
            shown.text,
            "1970-01-01T00:00:00.000Z  converge-host 12.0 attempt 1 failed after 2.5s at w1: \
             DiskFull: C: is full; the next is due in 10s"
        );
        let going = task(
            json!({"attempt": 2, "from": 12_500, "to": null, "result": "", "worker": null,
            "detail": null, "wait": null}),
        );
        let beats = [json!({"task": "machine/u@12.0", "attempt": 2, "heartbeat":
            {"worker": "w2", "step": "upload", "done": 3, "of": 9, "unit": "bytes"}})];
        let shown = line(&going, &going.attempts[0], 13_000, &beats);
        assert!(
            shown
                .text
                .ends_with("under way for 500ms at w2: upload, 3 of 9 bytes"),
            "{}",
            shown.text
        );
        assert!(!shown.over && shown.value["progress"]["step"] == "upload");
    }

    #[test]
    fn a_remote_command_is_listed_below_its_attempt_with_head_and_tail_of_its_output() {
        let of = |attempt: u64| {
            json!({"task": "machine/u@12.0", "attempt": attempt, "name": "apply host",
                "at": "1970-01-01T00:00:01.000Z", "tookMs": 1_500, "ended": "exit 0",
                "line": "powershell.exe -Mode apply", "head": "one\u{1b}[2J\ntwo", "leftOutBytes": 9,
                "tail": "end"})
        };
        let over = task(
            json!({"attempt": 1, "from": 0, "to": 2_500, "result": "finished",
            "worker": "w1", "detail": null, "wait": null}),
        );
        let shown = line(&over, &over.attempts[0], 3_000, &[]);
        let shown = shown.with_commands("12.0", 1, &[of(1), of(2)]);
        let expected = "    1970-01-01T00:00:01.000Z  command apply host: exit 0 after 1.5s\n      \
             $ powershell.exe -Mode apply\n      | one [2J\n      | two\n      \
             | … 9 bytes are left out …\n      | end";
        assert_eq!(shown.commands, [expected]);
        assert_eq!(shown.value["commands"].as_array().map(Vec::len), Some(1));
    }
}
