//! Remote commands of a machine's last task: command line, result, and the host's output.

use super::page::time;
use dormer_proto::{id::TaskId, message::RemoteCommand};
use dormer_views::{moment::lasted, timeline::Episode};
use maud::{Markup, html};

/// Section of the page. `commands` are those of this machine in this process's memory, task by task.
pub(super) fn section(machine: &str, commands: &[RemoteCommand], episodes: &[Episode]) -> Markup {
    let last = commands
        .iter()
        .max_by_key(|it| (it.at, &it.task))
        .map(|it| &it.task);
    html! {
        section.card aria-labelledby="commands" {
        h2 #commands { "Remote commands" }
        @if let Some(task) = last {
            @let ours: Vec<_> = commands.iter().filter(|it| it.task == *task).collect();
            p.quiet {
                "From " (called(task, episodes)) ", the last task with remote commands. This \
                 process keeps the beginning and the end of the output in memory, with secrets removed. All tasks: "
                code { "dormer logs " (machine) }
            }
            @for alike in attempts(&ours) { (attempts_alike(&alike)) }
        } @else {
            p.quiet {
                "This process has received none since it started; they are kept in memory only. "
                code { "dormer logs " (machine) } " shows what is on record."
            }
        }
        }
    }
}

/// Attempts in a row that ended alike: the newest with its commands, and how many others.
struct Alike<'a> {
    /// Its commands, the newest first.
    commands: Vec<&'a RemoteCommand>,
    /// Number of the oldest of them.
    oldest: u64,
}

impl Alike<'_> {
    /// Key of their element. The newest attempt is another one as soon as the next one begins; the oldest stays.
    fn key(&self) -> Option<String> {
        let task = &self.commands.first()?.task;
        Some(format!(
            "commands-{}.{}-{}",
            task.seq, task.ordinal, self.oldest
        ))
    }
}

/// The attempts, the newest first. Those in a row with equal commands and equal ends are one: a step that is tried again for
/// an hour fails in the same way each time.
fn attempts<'a>(ours: &[&'a RemoteCommand]) -> Vec<Alike<'a>> {
    let mut all: Vec<Vec<&RemoteCommand>> = Vec::new();
    for command in ours {
        let same = |it: &Vec<&RemoteCommand>| {
            it[0].attempt == command.attempt && it[0].worker == command.worker
        };
        match all.iter_mut().find(|it| same(it)) {
            Some(attempt) => attempt.push(command),
            None => all.push(vec![command]),
        }
    }
    all.sort_by_key(|it| std::cmp::Reverse(it[0].attempt));
    let ends = |it: &[&RemoteCommand]| -> Vec<(String, String)> {
        let one = |it: &&RemoteCommand| (it.name.clone(), it.ended.clone());
        it.iter().map(one).collect()
    };
    let mut found: Vec<Alike<'_>> = Vec::new();
    for mut commands in all {
        commands.sort_by_key(|it| std::cmp::Reverse((it.at, it.number)));
        let oldest = commands[0].attempt.0;
        match found.last_mut() {
            Some(newer) if ends(&newer.commands) == ends(&commands) => newer.oldest = oldest,
            _ => found.push(Alike { commands, oldest }),
        }
    }
    found
}

fn attempts_alike(alike: &Alike<'_>) -> Markup {
    let newest = alike.commands.first().map_or(0, |it| it.attempt.0);
    html! {
        @if alike.oldest < newest {
            p.quiet { "Attempts " (alike.oldest) " to " (newest) " ended alike; this is the last of them:" }
        }
        div.commands data-key=[alike.key()] { @for command in &alike.commands { (one(command)) } }
    }
}

/// Label of a task, as in `dormer trace` and `dormer logs`: `converge-host (12.0)`.
fn called(task: &TaskId, episodes: &[Episode]) -> String {
    let id = format!("{}.{}", task.seq, task.ordinal);
    let mut tasks = episodes.iter().flat_map(Episode::tasks);
    let name = tasks
        .find(|task| task.id == id)
        .map_or("task", |task| task.name.as_str());
    format!("{name} ({id})")
}

fn one(command: &RemoteCommand) -> Markup {
    let RemoteCommand {
        attempt,
        worker,
        number,
        head,
        tail,
        left_out,
        ..
    } = command;
    let runs = command.ended.is_empty();
    let bad = command.ended != "exit 0";
    html! {
        details data-key=(format!("command-{}.{}-{attempt}-{worker}-{number}", command.task.seq, command.task.ordinal)) {
            summary {
                b { (command.name) } " "
                @if runs { span.runs { "is running" } " since " }
                @else { span.bad[bad] { (printable(&command.ended)) } " after " (lasted(0, command.took_ms)) ", " }
                (time(command.at)) " "
                span.quiet { "attempt " (attempt) " at " (worker) }
                @if let Some(line) = line_that_matters(command) { span.first.bad[bad && !runs] { (line) } }
            }
            pre tabindex="0" aria-label="command line and output" {
                "$ " (printable(&command.line)) "\n"
                (printable(head))
                @if *left_out > 0 { "\n… " (left_out) " bytes are left out …\n" }
                (printable(tail))
            }
        }
    }
}

/// Words of a line that names an error.
const ERROR_WORDS: [&str; 8] = [
    "error",
    "denied",
    "failed",
    "cannot",
    "refused",
    "not found",
    "exception",
    "invalid",
];
/// Most characters of the line that matters.
const LINE_MAX: usize = 200;

/// Line of the output that matters most: for a failure the last one that names an error, else the last one with text.
fn line_that_matters(command: &RemoteCommand) -> Option<String> {
    let text = printable(&format!("{}\n{}", command.head, command.tail));
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let names_error = |line: &&&str| {
        let line = line.to_lowercase();
        ERROR_WORDS.iter().any(|word| line.contains(word))
    };
    let failed = command.ended != "exit 0" && !command.ended.is_empty();
    let error = failed.then(|| lines.iter().rev().find(names_error));
    let line = error.flatten().or(lines.last())?;
    Some(if line.chars().count() > LINE_MAX {
        line.chars().take(LINE_MAX).chain(['…']).collect()
    } else {
        (*line).to_owned()
    })
}

/// Output of a host without control characters.
fn printable(text: &str) -> String {
    text.replace("\r\n", "\n")
        .replace(|c: char| c.is_control() && c != '\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::id::{Attempt, RunId, Seq, Timestamp};

    fn command(seq: u64, at: u64, ended: &str, head: &str) -> RemoteCommand {
        RemoteCommand {
            task: TaskId {
                run: RunId::new("machine", "u").unwrap(),
                seq: Seq(seq),
                ordinal: 0,
            },
            attempt: Attempt(1),
            worker: "w1".into(),
            number: 1,
            name: "apply host".into(),
            line: "powershell.exe -Mode apply".into(),
            at: Timestamp(at),
            took_ms: 1_500,
            ended: ended.into(),
            head: head.into(),
            left_out: 7,
            tail: "end".into(),
        }
    }

    #[test]
    fn the_last_tasks_commands_are_shown_and_what_a_host_says_is_text() {
        let commands = [
            command(3, 1_000, "exit 0", "before"),
            command(9, 2_000, "exit 1", "<b>\u{1b}[2J</b>"),
        ];
        let shown = section("win-a", &commands, &[]).into_string();
        assert!(
            shown.contains("From task (9.0)") && !shown.contains("before"),
            "{shown}"
        );
        assert!(
            shown.contains("<span class=\"bad\">exit 1</span> after 1.5s"),
            "{shown}"
        );
        assert!(
            shown.contains("&lt;b&gt; [2J&lt;/b&gt;\n… 7 bytes are left out …\nend"),
            "{shown}"
        );
        let running = section("win-a", &[command(9, 2_000, "", "")], &[]).into_string();
        assert!(
            running.contains("is running</span> since <time datetime"),
            "{running}"
        );
        let mut failed = command(
            9,
            2_000,
            "exit 5",
            "copying\nAccess is denied.\nat line 3\n",
        );
        assert_eq!(
            line_that_matters(&failed).as_deref(),
            Some("Access is denied.")
        );
        failed.ended = "exit 0".into();
        assert_eq!(line_that_matters(&failed).as_deref(), Some("end"));
        let tries: Vec<RemoteCommand> = (1..=60)
            .map(|attempt| RemoteCommand {
                attempt: Attempt(attempt),
                ..command(9, 2_000 + attempt, "exit 5", "no room")
            })
            .collect();
        let many = section("win-a", &tries, &[]).into_string();
        assert_eq!(many.matches("<details").count(), 1, "{many}");
        assert!(many.contains("Attempts 1 to 60 ended alike"), "{many}");
        assert!(many.contains("attempt 60 at w1"), "{many}");
        let key = "<div class=\"commands\" data-key=\"commands-9.0-1\">";
        assert!(many.contains(key), "{many}");
        let other = RemoteCommand {
            attempt: Attempt(61),
            ..command(9, 9_000, "exit 0", "room")
        };
        let both = [tries, vec![other]].concat();
        let both = section("win-a", &both, &[]).into_string();
        let at = |text: &str| both.find(text).expect(text);
        assert!(
            both.contains(key) && both.contains("commands-9.0-61"),
            "{both}"
        );
        assert!(
            at("attempt 61 at w1") < at("attempt 60 at w1"),
            "the newest first"
        );
        let none = section("win-a", &[], &[]).into_string();
        assert!(
            none.contains("received none since it started") && none.contains("dormer logs win-a"),
            "{none}"
        );
    }
}
