//! Timeline picture of an episode, to scale: phases, their tasks, and each task's attempts and waits. It shows the
//! same tree as `dormer trace`.

use super::page::percent;
use dormer_views::{
    moment::{lasted, span},
    open_enum::OpenEnum,
    timeline::{Attempt, AttemptResult, Episode, Phase, Task},
};
use maud::{Markup, html};

/// Height of a row and of the axis, in pixels.
const ROW: usize = 24;
pub(super) const AXIS: usize = 22;
/// Most consecutive tasks of one name with rows of their own. More share one row.
const ALIKE_MAX: usize = 3;
/// Most rows. The history shows the rest.
const ROWS_MAX: usize = 120;
/// Most bars in a row.
const BARS_MAX: usize = 400;
/// Approximate number of marks on the axis.
const MARKS: u64 = 6;
/// Round distances between marks, in milliseconds.
const DISTANCES: [u64; 20] = [
    10,
    50,
    100,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    7_200_000,
    21_600_000,
    86_400_000,
    604_800_000,
    2_592_000_000,
];

/// What a bar shows, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BarKind {
    Phase,
    Good,
    Bad,
    Wait,
    Running,
}

impl BarKind {
    fn of(result: Option<&OpenEnum<AttemptResult>>) -> Self {
        match result {
            None => Self::Running,
            Some(result) if *result == AttemptResult::Succeeded => Self::Good,
            Some(_) => Self::Bad,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Phase => "phase",
            Self::Good => "good",
            Self::Bad => "failed",
            Self::Wait => "wait",
            Self::Running => "busy",
        }
    }
}

struct Bar {
    kind: BarKind,
    from: u64,
    to: u64,
    title: String,
}

struct AttemptRow {
    label: String,
    below: bool,
    from: u64,
    to: u64,
    bars: Vec<Bar>,
}

/// Legend of the bars.
pub(super) fn legend() -> Markup {
    let kinds = [
        (BarKind::Phase, "phase"),
        (BarKind::Good, "succeeded"),
        (BarKind::Bad, "failed"),
        (BarKind::Wait, "waits for the next attempt"),
        (BarKind::Running, "under way"),
    ];
    html! {
        ul.legend aria-hidden="true" {
            @for (kind, title) in kinds {
                li { svg width="18" height="10" { rect data-kind=(kind.name()) width="18" height="10" rx="2" {} } " " (title) }
            }
        }
    }
}

/// Picture of an episode. Unfinished parts end at `now`.
pub(super) fn picture(episode: &Episode, now: u64) -> Markup {
    let to = episode.to.unwrap_or(now).max(episode.from + 1);
    let scale = (episode.from, episode.scale_end(now));
    let mut rows: Vec<AttemptRow> = episode.phases.iter().flat_map(|it| phase(it, to)).collect();
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let height = AXIS + rows.len() * ROW;
    let title = format!(
        "{}, {}, to scale",
        episode.purpose(),
        lasted(episode.from, to)
    );
    html! {
        div.wide tabindex="0" role="region" aria-label="Timeline" {
            // Layers, which the style sheet lays side by side or, on a narrow screen, over one another.
            div.timeline.life role="img" aria-label=(title) {
                svg width="100%" height=(height) {
                    @for (at, _) in rows.iter().enumerate().filter(|(_, row)| !row.below) {
                        rect.band x="0" y=(AXIS + at * ROW) width="100%" height=(ROW) {}
                    }
                    @for (at, row) in rows.iter().enumerate() {
                        text.long x="99.5%" y=(AXIS + at * ROW + 16) text-anchor="end" { (lasted(row.from, row.to)) }
                    }
                }
                svg.bars height=(height) {
                    (axis(scale.0, scale.1, height))
                    @for (at, row) in rows.iter().enumerate() { (bars(row, AXIS + at * ROW, scale)) }
                }
                svg.labels height=(height) {
                    @for (at, row) in rows.iter().enumerate() {
                        text.label.task[row.below] x=(if row.below { 18 } else { 4 }) y=(AXIS + at * ROW + 16) {
                            (row.label) title { (row.label) }
                        }
                    }
                }
            }
        }
        @if to > scale.1 { p.quiet { "The last bar is cut: its time is beside it." } }
        @if left_out > 0 { p.quiet { (left_out) " more rows: see the table below." } }
    }
}

fn fraction(at: u64, (from, to): (u64, u64)) -> f64 {
    let whole = to.saturating_sub(from).max(1) as f64;
    at.clamp(from, to).saturating_sub(from) as f64 * 100.0 / whole
}

/// Marks at round distances from `from`.
pub(super) fn axis(from: u64, to: u64, height: usize) -> Markup {
    let whole = to.saturating_sub(from).max(1);
    let apart = DISTANCES
        .into_iter()
        .find(|it| whole / it <= MARKS)
        .unwrap_or(whole);
    html! {
        @for mark in (0..=whole / apart).map(|mark| mark * apart) {
            @let x = percent(fraction(from + mark, (from, to)));
            line.mark x1=(x) x2=(x) y1=(AXIS - 4) y2=(height) {}
            text.mark x=(x) y="13" { (if mark == 0 { "0".to_owned() } else { short(mark) }) }
        }
    }
}

/// Text of a round duration.
fn short(ms: u64) -> String {
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    span(ms / 1_000)
}

fn bars(row: &AttemptRow, y: usize, within: (u64, u64)) -> Markup {
    html! {
        @for bar in row.bars.iter().take(BARS_MAX) {
            @let (begin, end) = (fraction(bar.from, within), fraction(bar.to, within));
            @let (top, high) = if bar.kind == BarKind::Phase { (y + 9, 6) } else { (y + 5, 14) };
            // Very short bars get a visible width.
            rect data-kind=(bar.kind.name()) x=(percent(begin)) y=(top) width=(percent((end - begin).max(0.25)))
                height=(high) rx="2" { title { (bar.title) } }
        }
    }
}

fn phase(phase: &Phase, end: u64) -> Vec<AttemptRow> {
    let label = phase.label();
    let to = phase.to.unwrap_or(end);
    let title = format!("{label}, {}", lasted(phase.from, to));
    let bar = Bar {
        kind: BarKind::Phase,
        from: phase.from,
        to,
        title,
    };
    let mut rows = vec![AttemptRow {
        label,
        below: false,
        from: phase.from,
        to,
        bars: vec![bar],
    }];
    for alike in phase.tasks.chunk_by(|one, other| one.name == other.name) {
        if alike.len() <= ALIKE_MAX {
            rows.extend(alike.iter().map(|it| tasks(std::slice::from_ref(it), end)));
        } else {
            rows.push(tasks(alike, end));
        }
    }
    rows
}

/// Consecutive tasks of one name as one row.
fn tasks(alike: &[Task], end: u64) -> AttemptRow {
    let name = alike.first().map_or("", |task| task.name.as_str());
    let label = match alike {
        [one] if one.attempts_made() < 2 => name.to_owned(),
        [one] => format!("{name}, {}", one.attempts_text()),
        alike => format!("{name}, {} times", alike.len()),
    };
    let from = alike.first().map_or(end, |task| task.from);
    let to = alike.last().and_then(|task| task.to).unwrap_or(end);
    let bars = alike.iter().flat_map(|task| tried(task, end)).collect();
    AttemptRow {
        label,
        below: true,
        from,
        to,
        bars,
    }
}

/// Bars of a task's attempts and of the waits between them.
fn tried(task: &Task, end: u64) -> Vec<Bar> {
    let ends = task.to.unwrap_or(end);
    let mut bars = Vec::new();
    for (at, it) in task.attempts.iter().enumerate() {
        let to = it.to.unwrap_or(end);
        bars.push(Bar {
            kind: BarKind::of(it.result.as_ref()),
            from: it.from,
            to,
            title: attempt_title(task, it, to),
        });
        if let (Some(from), Some(due)) = (it.to, it.wait) {
            let next = task.attempts.get(at + 1).map(|next| next.from);
            let to = next.unwrap_or_else(|| due.min(ends)).max(from);
            let title = format!("waits {}", lasted(from, to));
            bars.push(Bar {
                kind: BarKind::Wait,
                from,
                to,
                title,
            });
        }
    }
    bars
}

fn attempt_title(task: &Task, it: &Attempt, to: u64) -> String {
    let result = it.result_text();
    let at = it
        .worker
        .as_ref()
        .map_or_else(String::new, |worker| format!(" at {worker}"));
    let why = it
        .detail
        .as_ref()
        .map_or_else(String::new, |why| format!(": {why}"));
    format!(
        "{} {}, attempt {}, {}: {result}{at}{why}",
        task.name,
        task.id,
        it.attempt,
        lasted(it.from, to)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::phase::MachinePhase;

    fn attempt(
        attempt: u64,
        from: u64,
        to: Option<u64>,
        result: Option<AttemptResult>,
        wait: Option<u64>,
    ) -> Attempt {
        let worker = Some("w1".into());
        let detail = (result == Some(AttemptResult::Failed)).then(|| "nobody".to_owned());
        Attempt {
            attempt,
            from,
            to,
            result: result.map(OpenEnum::from),
            worker,
            detail,
            wait,
        }
    }

    fn task(name: &str, from: u64, to: Option<u64>, attempts: Vec<Attempt>) -> Task {
        Task {
            id: format!("{from}.0"),
            name: name.into(),
            from,
            to,
            attempts,
        }
    }

    fn phase_of(phase: MachinePhase, from: u64, to: Option<u64>, tasks: Vec<Task>) -> Phase {
        Phase {
            state: phase.state().into(),
            phase: phase.into(),
            text: phase.text().into(),
            from,
            to,
            tasks,
        }
    }

    fn episode() -> Episode {
        let tries = vec![
            attempt(
                1,
                0,
                Some(10_000),
                Some(AttemptResult::Failed),
                Some(20_000),
            ),
            attempt(
                2,
                20_000,
                Some(40_000),
                Some(AttemptResult::Succeeded),
                None,
            ),
        ];
        let probe = task("probe", 0, Some(40_000), tries);
        let under_way = vec![attempt(1, 40_000, None, None, None)];
        let converge = task("converge-host", 40_000, None, under_way);
        let phases = vec![
            phase_of(MachinePhase::Probing, 0, Some(40_000), vec![probe]),
            phase_of(MachinePhase::ConvergingHost, 40_000, None, vec![converge]),
        ];
        Episode {
            kind: "bring-up".into(),
            seq: 1,
            from: 0,
            to: None,
            result: String::new(),
            phases,
        }
    }

    #[test]
    fn attempts_and_waits_are_drawn_to_scale() {
        let drawn = picture(&episode(), 80_000).into_string();
        for bar in [
            r#"<rect data-kind="failed" x="0.000%" y="51" width="12.500%""#,
            r#"<rect data-kind="wait" x="12.500%" y="51" width="12.500%""#,
            r#"<rect data-kind="good" x="25.000%" y="51" width="25.000%""#,
            r#"<rect data-kind="busy" x="50.000%" y="99" width="50.000%""#,
            "attempt 1, 10.0s: failed at w1: nobody",
            "probe, 2 attempts",
            "Reachable: converging the host",
        ] {
            assert!(drawn.contains(bar), "{bar} in {drawn}");
        }
        assert_eq!(
            drawn.matches("class=\"mark\"").count(),
            2 * 3,
            "0, 30s and 60s: {drawn}"
        );
    }

    #[test]
    fn a_wait_that_is_longer_than_its_bar_says_so() {
        let cut = |now: u64| {
            let mut left = episode();
            left.phases[1] = phase_of(MachinePhase::Failed, 40_000, None, Vec::new());
            picture(&left, now)
                .into_string()
                .contains("The last bar is cut")
        };
        assert!(cut(86_400_000));
        assert!(!cut(41_000), "it has just failed");
    }

    #[test]
    fn marks_between_full_hours_say_the_minutes() {
        let half_hours = [1, 2, 3, 4].map(|it| short(it * 1_800_000));
        assert_eq!(half_hours, ["30m", "1h", "1h30m", "2h"]);
    }

    #[test]
    fn attempts_that_are_no_longer_stored_are_counted() {
        let mut episode = episode();
        let last = attempt(300, 40_000, None, None, None);
        episode.phases[1].tasks[0].attempts = vec![last];
        let drawn = picture(&episode, 80_000).into_string();
        let label = "converge-host, 300 attempts (the first 299 are not shown)";
        assert!(drawn.contains(label), "{drawn}");
    }

    #[test]
    fn many_tasks_alike_share_a_row() {
        let mut episode = episode();
        episode.phases[1].tasks = (0..300)
            .map(|at| task("evict", 40_000 + at, Some(40_001 + at), vec![]))
            .collect();
        let drawn = picture(&episode, 80_000).into_string();
        assert!(
            drawn.contains("evict, 300 times") && drawn.len() < 10_000,
            "{}",
            drawn.len()
        );
    }
}
