//! `dormer trace`: an episode as a tree with bars to scale, from the history alone.

use super::{Failure, ServerArgs, action_commands::run_of, answer::Answer, terminal};
use clap::Args;
use dormer_proto::id::Timestamp;
use dormer_views::{
    moment::{Moment, lasted},
    open_enum::OpenEnum,
    timeline::{Attempt, AttemptResult, BETWEEN, Episode, Phase, Task, Timeline, not_stored},
};

/// Default width of a bar, in cells.
const BAR: u16 = 40;
/// Longest label, in characters. Longer ones are cut.
const LABEL_MAX: usize = 56;
/// Longest note behind a bar, in characters.
const NOTE_MAX: usize = 100;
/// Least width for a note behind its bar, in columns. A longer note gets lines of its own.
const NOTE_MIN: usize = 30;
/// Indent of such lines.
const NOTE_INDENT: &str = "      ";
/// Note behind a bar that ends with [`Pen::cut`].
const NOT_TO_SCALE: &str = "longer than its bar";
/// Most tasks of one name within a phase with rows of their own. Of more, the middle ones share one row.
const ALIKE_MAX: usize = 6;

/// Arguments of `dormer trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// The machine: its name, NAMESPACE/NAME, or its UID
    #[arg(value_name = "MACHINE|rollout/POOL")]
    machine: String,
    /// First record of the episode [default: the latest episode]
    #[arg(long, value_name = "RECORD", conflicts_with = "all")]
    episode: Option<u64>,
    /// Every episode
    #[arg(long)]
    all: bool,
    /// Width of the bars, in cells [default: 40, and less where the terminal is narrow]
    #[arg(long, value_parser = clap::value_parser!(u16).range(10..=400))]
    width: Option<u16>,
    /// Draw with ASCII characters only, as in the locales C and POSIX
    #[arg(long)]
    ascii: bool,
    #[command(flatten)]
    to: ServerArgs,
}

impl Trace {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let run = run_of(&server, &self.machine).await?;
        let answer: Answer<Timeline> = server.get(&format!("{run}/timeline")).await?;
        if let Some(text) = self.to.programs(&answer)? {
            return Ok(text);
        }
        let Timeline {
            now,
            episodes,
            first_record,
            ..
        } = answer.view;
        let chosen = self.chosen(&episodes)?;
        let columns = terminal::columns();
        let width = self.width.unwrap_or_else(|| bars_in(columns));
        let pen = Pen::new(
            usize::from(width),
            self.ascii || !terminal::more_than_ascii(),
        );
        let drawn: Vec<String> = chosen
            .iter()
            .map(|it| draw(it, now, &pen, columns))
            .collect();
        let not_stored = not_stored(first_record).map(|text| format!("\n\n{text}"));
        let text = drawn.join("\n\n") + &not_stored.unwrap_or_default();
        Ok(match columns {
            Some(most) => {
                let lines = text.lines().map(|line| terminal::cut(line, most));
                lines.collect::<Vec<_>>().join("\n")
            }
            None => text,
        })
    }

    /// Episodes to draw. The default is the latest one with a name: episodes without a name hold little.
    fn chosen<'a>(&self, episodes: &'a [Episode]) -> Result<Vec<&'a Episode>, Failure> {
        if self.all {
            return Ok(episodes.iter().collect());
        }
        let found = match self.episode {
            Some(seq) => episodes.iter().find(|episode| episode.seq == seq),
            None => episodes
                .iter()
                .rev()
                .find(|it| it.kind != BETWEEN)
                .or(episodes.last()),
        };
        found.map(|episode| vec![episode]).ok_or_else(|| {
            let begun: Vec<String> = episodes
                .iter()
                .map(|it| format!("{} ({})", it.seq, it.purpose()))
                .collect();
            let begun = if begun.is_empty() {
                "none".into()
            } else {
                begun.join(", ")
            };
            Failure::Usage(format!(
                "no episode begins at that record; choose one of: {begun}"
            ))
        })
    }
}

/// Width of the bars in a terminal with so many columns: a quarter of it, which leaves room for labels and notes.
fn bars_in(columns: Option<usize>) -> u16 {
    let quarter = columns.and_then(|columns| u16::try_from(columns / 4).ok());
    quarter.map_or(BAR, |quarter| quarter.clamp(10, BAR))
}

/// Characters of the drawing.
struct Pen {
    width: usize,
    phase: char,
    good: char,
    bad: char,
    wait: char,
    ongoing: char,
    /// End of a bar that is shorter than its time.
    cut: char,
    fork: &'static str,
    last: &'static str,
    down: &'static str,
    more: &'static str,
}

impl Pen {
    fn new(width: usize, ascii: bool) -> Self {
        if ascii {
            let fork = "|- ";
            let last = "`- ";
            let down = "|  ";
            let phase = '-';
            let good = '#';
            let bad = 'x';
            let wait = '.';
            let ongoing = '>';
            let cut = '/';
            Self {
                width,
                phase,
                good,
                bad,
                wait,
                ongoing,
                cut,
                fork,
                last,
                down,
                more: "...",
            }
        } else {
            let fork = "├─ ";
            let last = "└─ ";
            let down = "│  ";
            let phase = '─';
            let good = '█';
            let bad = '▓';
            let wait = '░';
            let ongoing = '▒';
            let cut = '╱';
            Self {
                width,
                phase,
                good,
                bad,
                wait,
                ongoing,
                cut,
                fork,
                last,
                down,
                more: "…",
            }
        }
    }

    fn of(&self, result: Option<&OpenEnum<AttemptResult>>) -> char {
        match result {
            None => self.ongoing,
            Some(result) if *result == AttemptResult::Succeeded => self.good,
            Some(_) => self.bad,
        }
    }
}

/// Row of the tree before it is drawn.
struct TimelineRow {
    label: String,
    from: u64,
    to: u64,
    cell: char,
    note: String,
    below: Vec<TimelineRow>,
}

/// Tree of an episode, in a terminal with so many columns.
fn draw(episode: &Episode, now: u64, pen: &Pen, columns: Option<usize>) -> String {
    // What was never closed ended with its episode.
    let now = episode.to.unwrap_or(now);
    let to = now.max(episode.from);
    let scale_end = episode.scale_end(now);
    let long = lasted(episode.from, to);
    let moment = |at: u64| Moment(Timestamp(at)).clock_seconds(Timestamp(now));
    let head = format!(
        "{} (record {}), {} to {}, {long}: {}",
        episode.purpose(),
        episode.seq,
        moment(episode.from),
        episode.to.map_or_else(|| "now".to_owned(), moment),
        episode.ending(),
    );
    let rows: Vec<TimelineRow> = episode
        .phases
        .iter()
        .map(|it| phase(it, now, pen))
        .collect();
    let mut lines = Vec::new();
    list(&rows, "", pen, &mut lines);
    let width = lines
        .iter()
        .map(|(label, _)| label.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = head;
    for (label, row) in lines {
        let bar = bar(row, (episode.from, scale_end), pen);
        let note = match (row.to > scale_end, row.note.as_str()) {
            (false, note) => note.to_owned(),
            (true, "") => NOT_TO_SCALE.to_owned(),
            (true, note) => format!("{note}; {NOT_TO_SCALE}"),
        };
        let long = lasted(row.from, row.to);
        let line = format!("{label:width$}  {bar}  {long:>6}  ");
        text.push('\n');
        let room = columns.map(|most| most.saturating_sub(line.chars().count()));
        let narrow = room.filter(|room| *room < NOTE_MIN.min(note.chars().count()));
        match columns.filter(|_| narrow.is_some()) {
            Some(most) => {
                text.push_str(line.trim_end());
                let note = format!("{NOTE_INDENT}{note}");
                text.push('\n');
                text.push_str(&terminal::wrap(&note, most, NOTE_INDENT));
            }
            None => text.push_str((line + &note).trim_end()),
        }
    }
    text
}

/// Collects every row with its label and the tree's lines before it.
fn list<'a>(
    rows: &'a [TimelineRow],
    before: &str,
    pen: &Pen,
    lines: &mut Vec<(String, &'a TimelineRow)>,
) {
    for (at, row) in rows.iter().enumerate() {
        let last = at + 1 == rows.len();
        let label = format!(
            "{before}{}{}",
            if last { pen.last } else { pen.fork },
            row.label
        );
        lines.push((cut(&label, LABEL_MAX, pen), row));
        let below = format!("{before}{}", if last { "   " } else { pen.down });
        list(&row.below, &below, pen, lines);
    }
}

fn phase(phase: &Phase, now: u64, pen: &Pen) -> TimelineRow {
    let to = phase.to.unwrap_or(now);
    let below = tasks(&phase.tasks, now, pen);
    TimelineRow {
        label: phase.label(),
        from: phase.from,
        to,
        cell: pen.phase,
        note: String::new(),
        below,
    }
}

/// One row per task. Of many consecutive tasks of one name, the middle ones share one row.
fn tasks(tasks: &[Task], now: u64, pen: &Pen) -> Vec<TimelineRow> {
    let mut rows = Vec::new();
    for alike in tasks.chunk_by(|one, other| one.name == other.name) {
        if alike.len() <= ALIKE_MAX {
            rows.extend(alike.iter().map(|it| task(it, now, pen)));
            continue;
        }
        let (first, rest) = alike.split_at(2);
        let (middle, last) = rest.split_at(rest.len() - 2);
        rows.extend(first.iter().map(|it| task(it, now, pen)));
        let to = middle.last().and_then(|it| it.to).unwrap_or(now);
        rows.push(TimelineRow {
            label: format!("{} {} more {}", pen.more, middle.len(), alike[0].name),
            from: middle.first().map_or(now, |it| it.from),
            to,
            cell: pen.wait,
            note: String::new(),
            below: Vec::new(),
        });
        rows.extend(last.iter().map(|it| task(it, now, pen)));
    }
    rows
}

/// One row for a task with one attempt; otherwise one row per attempt and per wait.
fn task(task: &Task, now: u64, pen: &Pen) -> TimelineRow {
    let label = format!("{} {}", task.name, task.id);
    let to = task.to.unwrap_or(now);
    match task.attempts.as_slice() {
        [only] if only.wait.is_none() => {
            let mut row = attempt(only, now, pen);
            row.label = label;
            row
        }
        attempts => {
            let result = attempts.last().map_or("under way", Attempt::result_text);
            let rows = |some: &[Attempt]| {
                let rows = some
                    .iter()
                    .flat_map(|it| with_wait(it, attempts, to, now, pen));
                rows.collect::<Vec<TimelineRow>>()
            };
            let below = match attempts {
                [first, middle @ .., one_but_last, last] if attempts.len() > ALIKE_MAX => {
                    let mut below = rows(std::slice::from_ref(first));
                    below.push(folded(middle, one_but_last.from, pen));
                    below.extend(rows(&[one_but_last.clone(), last.clone()]));
                    below
                }
                all => rows(all),
            };
            TimelineRow {
                label,
                from: task.from,
                to,
                cell: pen.phase,
                note: format!("{}, {result}", task.attempts_text()),
                below,
            }
        }
    }
}

/// One row for many attempts and the waits between them.
fn folded(attempts: &[Attempt], to: u64, pen: &Pen) -> TimelineRow {
    let last = attempts.last();
    TimelineRow {
        label: format!("{} {} more attempts", pen.more, attempts.len()),
        from: attempts.first().map_or(to, |it| it.from),
        to,
        cell: pen.wait,
        note: last.map_or_else(String::new, |attempt| {
            let detail = attempt.detail.as_deref().unwrap_or_default();
            cut(
                &format!("the last one {}: {detail}", attempt.result_text()),
                NOTE_MAX,
                pen,
            )
        }),
        below: Vec::new(),
    }
}

fn with_wait(it: &Attempt, all: &[Attempt], ends: u64, now: u64, pen: &Pen) -> Vec<TimelineRow> {
    let mut rows = vec![attempt(it, now, pen)];
    if let (Some(from), Some(due)) = (it.to, it.wait) {
        let next = all
            .iter()
            .find(|other| other.attempt > it.attempt)
            .map(|other| other.from);
        let to = next.unwrap_or_else(|| due.min(ends)).max(from);
        let waits = if next.is_none() && to == now {
            "until the next attempt is due"
        } else {
            ""
        };
        rows.push(TimelineRow {
            label: "wait".into(),
            from,
            to,
            cell: pen.wait,
            note: waits.to_owned(),
            below: Vec::new(),
        });
    }
    rows
}

fn attempt(it: &Attempt, now: u64, pen: &Pen) -> TimelineRow {
    let mut note = it.result_text().to_owned();
    if let Some(worker) = &it.worker {
        note += &format!(" by worker {worker}");
    }
    if let Some(detail) = &it.detail {
        note += &format!(": {detail}");
    }
    TimelineRow {
        label: format!("attempt {}", it.attempt),
        from: it.from,
        to: it.to.unwrap_or(now),
        cell: pen.of(it.result.as_ref()),
        note: cut(&note, NOTE_MAX, pen),
        below: Vec::new(),
    }
}

/// Bar of the row within the episode, to scale, at least one cell wide. A bar that does not reach its row's end shows that
/// in its last cell.
fn bar(row: &TimelineRow, (from, to): (u64, u64), pen: &Pen) -> String {
    let whole = to.saturating_sub(from).max(1) as f64;
    let column = |at: u64| (at.clamp(from, to) - from) as f64 / whole * pen.width as f64;
    let begin = (column(row.from).floor() as usize).min(pen.width - 1);
    let end = (column(row.to).round() as usize).clamp(begin + 1, pen.width);
    let cells = (0..pen.width).map(|at| {
        if row.to > to && at + 1 == end {
            pen.cut
        } else if (begin..end).contains(&at) {
            row.cell
        } else {
            ' '
        }
    });
    cells.collect()
}

fn cut(text: &str, chars: usize, pen: &Pen) -> String {
    let text = text
        .split_inclusive(char::is_whitespace)
        .collect::<String>()
        .replace('\n', " ");
    if text.chars().count() <= chars {
        return text;
    }
    let more = pen.more.chars().count();
    text.chars()
        .take(chars - more)
        .chain(pen.more.chars())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bring_up() -> Episode {
        let attempts = json!([
            {"attempt": 1, "from": 10_000, "to": 20_000, "result": "failed", "worker": "w1",
             "detail": "nobody (NoAnswer)", "wait": 30_000},
            {"attempt": 2, "from": 30_000, "to": 40_000, "result": "succeeded", "worker": "w2",
             "detail": null, "wait": null},
        ]);
        let once = json!([{"attempt": 1, "from": 40_000, "to": null, "result": null, "worker": null,
            "detail": null, "wait": null}]);
        serde_json::from_value(json!({
            "kind": "bring-up", "seq": 1, "from": 0, "to": null, "result": "", "phases": [
                {"state": "Provisioned", "phase": "probing", "text": "probing", "from": 10_000, "to": 40_000, "tasks": [
                    {"id": "2.0", "name": "probe", "from": 10_000, "to": 40_000, "attempts": attempts}]},
                {"state": "Reachable", "phase": "converging-host", "text": "configuring the host",
                    "from": 40_000, "to": null, "tasks": [
                    {"id": "5.0", "name": "converge-host", "from": 40_000, "to": null, "attempts": once}]},
            ],
        }))
        .unwrap()
    }

    #[test]
    fn an_episode_is_a_tree_with_bars_to_scale() {
        let text = draw(&bring_up(), 80_000, &Pen::new(16, true), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "bring-up (record 1), 00:00:00 UTC to now, 80s: under way",
                "|- Provisioned: probing               ------           30.0s",
                "|  `- probe 2.0                       ------           30.0s  2 attempts, succeeded",
                "|     |- attempt 1                    xx               10.0s  failed by worker w1: nobody (NoAnswer)",
                "|     |- wait                           ..             10.0s",
                "|     `- attempt 2                        ##           10.0s  succeeded by worker w2",
                "`- Reachable: configuring the host          --------   40.0s",
                "   `- converge-host 5.0                     >>>>>>>>   40.0s  under way",
            ]
        );
        let text = draw(&bring_up(), 80_000, &Pen::new(16, false), None);
        assert!(
            text.contains("└─ converge-host 5.0") && text.contains("▒▒▒▒▒▒▒▒"),
            "{text}"
        );
    }

    #[test]
    fn a_bar_that_is_cut_says_so_and_what_was_left_open_ends_with_its_episode() {
        let phase = |name: &str, from: u64, to: Option<u64>| json!({"state": "Failed", "phase": name, "text": name, "from": from, "to": to, "tasks": []});
        let episode = |to: Option<u64>, last: &str| -> Episode {
            let phases = [phase("probing", 0, Some(70_000)), phase(last, 70_000, None)];
            let left = json!({"kind": "bring-up", "seq": 1, "from": 0, "to": to, "result": "", "phases": phases});
            serde_json::from_value(left).unwrap()
        };
        let day = 86_400_000;
        let drawn = |episode: &Episode| draw(episode, day, &Pen::new(16, true), None);
        let text = drawn(&episode(None, "failed"));
        let expected = [
            "|- Failed: probing  --------------       70s",
            "`- Failed                         -/     23h  longer than its bar",
        ];
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, expected);
        let text = drawn(&episode(Some(80_000), "probing"));
        assert!(text.ends_with("--   10.0s"), "{text}");
    }

    #[test]
    fn in_a_narrow_terminal_a_note_stands_below_its_bar() {
        let text = draw(&bring_up(), 80_000, &Pen::new(10, true), Some(60));
        let failed = "failed by worker w1: nobody (NoAnswer)";
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let at = lines.iter().position(|line| line.trim() == failed);
        let at = at.unwrap_or_else(|| panic!("{text}"));
        assert!(lines[at - 1].contains("attempt 1"), "{text}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 60),
            "{text}"
        );
        let wide = draw(&bring_up(), 80_000, &Pen::new(16, true), Some(100));
        assert_eq!(wide, draw(&bring_up(), 80_000, &Pen::new(16, true), None));
    }

    #[test]
    fn many_attempts_are_drawn_as_a_few_and_bars_leave_room_for_notes() {
        let one = |at: u64| {
            json!({"attempt": at, "from": at * 10, "to": at * 10 + 5, "result": "failed", "worker": null,
                "detail": "nobody (NoAnswer)", "wait": at * 10 + 10})
        };
        let attempts: Vec<_> = (1..=20).map(one).collect();
        let task_of =
            json!({"id": "1.0", "name": "probe", "from": 10, "to": null, "attempts": attempts});
        let row = task(
            &serde_json::from_value(task_of).unwrap(),
            300,
            &Pen::new(10, true),
        );
        let labels: Vec<&str> = row.below.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "attempt 1",
                "wait",
                "... 17 more attempts",
                "attempt 19",
                "wait",
                "attempt 20",
                "wait"
            ]
        );
        assert_eq!(
            [bars_in(None), bars_in(Some(80)), bars_in(Some(20))],
            [40, 20, 10]
        );
    }

    #[test]
    fn many_tasks_alike_are_drawn_as_a_few() {
        let one = |at: u64| {
            serde_json::from_value::<Task>(json!({"id": format!("{at}.0"), "name": "evict",
                "from": at, "to": at + 1, "attempts": []}))
            .unwrap()
        };
        let many: Vec<Task> = (0..20).map(one).collect();
        let labels: Vec<String> = tasks(&many, 99, &Pen::new(10, false))
            .into_iter()
            .map(|row| row.label)
            .collect();
        assert_eq!(
            labels,
            [
                "evict 0.0",
                "evict 1.0",
                "… 16 more evict",
                "evict 18.0",
                "evict 19.0"
            ]
        );
    }
}
