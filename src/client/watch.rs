//! `dormer watch`: machines or rollouts as they change, over the server's stream of changes.

use super::{
    Failure, To,
    get::{Kind, fits},
    output::{Output, plain, table},
    sse::{Event, Parser},
};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior};

/// How often a table is drawn anew, at most; spans of time go on meanwhile.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// How long nobody is asked after a stream has broken, at first and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);
/// The server says within 15 s that it is still there; silence for this long is a broken connection.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Lines of a table where the terminal does not say how high it is.
const LINES: u16 = 40;

/// What can be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Watched {
    /// Machines
    #[value(aliases = ["machine", "m"])]
    Machines,
    /// Rollouts, one for each pool
    #[value(aliases = ["rollout"])]
    Rollouts,
}

/// What is watched.
#[derive(Debug, Args)]
pub struct Watch {
    /// Of what
    #[arg(default_value = "machines")]
    kind: Watched,
    /// Only this one: a machine's name or UID, or a pool
    name: Option<String>,
    /// Machines of this pool only
    #[arg(long)]
    pool: Option<String>,
    /// Those in this state only, such as Failed
    #[arg(long)]
    state: Option<String>,
    /// Machines that are gone, too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    to: To,
}

impl Watch {
    /// Watches until somebody ends it.
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.to.server()?;
        let mut view = View::new(&self);
        let mut again = AGAIN_AFTER;
        let mut body = server.listen("/changes").await?;
        loop {
            let end = view.follow(&mut body).await;
            if let StreamEnd::Enough = end {
                return Ok(String::new());
            }
            // The server ended, or the way to it: what is shown is old until it is heard again.
            view.lost();
            body = loop {
                tokio::time::sleep(again).await;
                match server.listen("/changes").await {
                    Ok(body) => break body,
                    Err(Failure::Unreachable { .. }) => again = (again * 2).min(AGAIN_AFTER_MAX),
                    Err(other) => return Err(other),
                }
            };
            again = AGAIN_AFTER;
        }
    }

    fn shows(&self, thing: &Value) -> bool {
        let prefix = match self.kind {
            Watched::Machines => "machine/",
            Watched::Rollouts => "rollout/",
        };
        let named = self.name.as_ref().is_none_or(|name| {
            ["name", "uid", "pool"]
                .iter()
                .any(|key| thing[*key].as_str() == Some(name))
        });
        thing["run"]
            .as_str()
            .is_some_and(|run| run.starts_with(prefix))
            && named
            && (self.all || thing["closed"].is_null())
            && fits(&self.pool, &thing["pool"])
            && fits(&self.state, &thing["state"])
    }
}

/// Why a stream is followed no more.
enum StreamEnd {
    /// It broke.
    Broken,
    /// Whoever reads our output has seen enough.
    Enough,
}

/// What is shown, and how.
struct View<'a> {
    watch: &'a Watch,
    known: BTreeMap<String, (Instant, Value)>,
    /// The whole is being told anew.
    filling: bool,
    redraws: bool,
    drawn: usize,
    stale: bool,
}

impl<'a> View<'a> {
    fn new(watch: &'a Watch) -> Self {
        let people = matches!(watch.to.output, Output::Table | Output::Wide);
        let redraws = people && std::io::stdout().is_terminal();
        Self {
            watch,
            known: BTreeMap::new(),
            filling: true,
            redraws,
            drawn: 0,
            stale: false,
        }
    }

    /// Follows a stream to its end.
    async fn follow(&mut self, body: &mut Incoming) -> StreamEnd {
        let mut parser = Parser::default();
        let mut ticks = tokio::time::interval(DRAW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            tokio::select! {
                frame = body.frame() => {
                    let Some(Ok(frame)) = frame else { return StreamEnd::Broken };
                    last = Instant::now();
                    let bytes: Bytes = frame.into_data().unwrap_or_default();
                    for event in parser.take(&bytes) {
                        if self.take(&event).is_err() {
                            return StreamEnd::Enough;
                        }
                    }
                }
                _ = ticks.tick() => {
                    if last.elapsed() > SILENCE_MAX {
                        return StreamEnd::Broken;
                    }
                    if self.redraws && !self.filling && self.draw().is_err() {
                        return StreamEnd::Enough;
                    }
                }
            }
        }
    }

    fn lost(&mut self) {
        self.stale = true;
        eprintln!("dormer: the stream of changes broke; it is asked for again");
    }

    fn take(&mut self, event: &Event) -> std::io::Result<()> {
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            return Ok(());
        };
        let run = data["run"].as_str().unwrap_or_default().to_owned();
        match event.kind.as_str() {
            "reset" => {
                self.filling = true;
                // What was told before is known: after a break only what has changed is told again.
                if self.redraws {
                    self.known.clear();
                }
            }
            "complete" => {
                self.filling = false;
                self.stale = false;
            }
            "forgotten" => {
                self.known.remove(&run);
            }
            "run" => return self.changed(run, data),
            _ => {}
        }
        Ok(())
    }

    fn changed(&mut self, run: String, data: Value) -> std::io::Result<()> {
        let fresh = self
            .known
            .get(&run)
            .is_none_or(|(_, known)| known["seq"] != data["seq"]);
        if self.watch.shows(&data) && fresh && !self.redraws {
            self.tell(&data)?;
        }
        self.known.insert(run, (Instant::now(), data));
        Ok(())
    }

    /// One line for a change.
    fn tell(&self, thing: &Value) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        match self.watch.to.output {
            Output::Json => writeln!(out, "{thing}")?,
            Output::Yaml => {
                let text = dormer_profile::yaml::to_string(thing).unwrap_or_default();
                write!(out, "---\n{text}")?;
            }
            Output::Table | Output::Wide => writeln!(out, "{}", line(thing))?,
        }
        out.flush()
    }

    /// The whole table, over the one before.
    fn draw(&mut self) -> std::io::Result<()> {
        let text = self.text();
        let mut out = std::io::stdout().lock();
        if self.drawn > 0 {
            write!(out, "\x1b[{}A", self.drawn)?;
        }
        for line in text.lines() {
            writeln!(out, "{line}\x1b[K")?;
        }
        write!(out, "\x1b[J")?;
        self.drawn = text.lines().count();
        out.flush()
    }

    fn text(&self) -> String {
        let shown = self
            .known
            .values()
            .filter(|(_, thing)| self.watch.shows(thing));
        let mut items: Vec<Value> = shown.map(|(at, thing)| aged(thing, *at)).collect();
        items.sort_by_cached_key(|thing| {
            let stuck = thing["state"] != "Failed";
            (
                stuck,
                plain(&thing["namespace"]),
                plain(&thing["name"]),
                plain(&thing["pool"]),
            )
        });
        let (columns, lines) = terminal_size::terminal_size()
            .map_or((u16::MAX, LINES), |(width, height)| (width.0, height.0));
        let room = usize::from(lines).saturating_sub(3).max(1);
        let hidden = items.len().saturating_sub(room);
        items.truncate(room);
        let kind = match self.watch.kind {
            Watched::Machines => Kind::Machines,
            Watched::Rollouts => Kind::Rollouts,
        };
        let mut text = if items.is_empty() {
            "There are none.".to_owned()
        } else {
            table(&items, kind.columns(), self.watch.to.wide())
        };
        if hidden > 0 {
            text += &format!("\n… and {hidden} more");
        }
        if self.stale {
            text += "\n(the server does not answer: this is old)";
        }
        let cut = |line: &str| line.chars().take(usize::from(columns)).collect::<String>();
        text.lines().map(cut).collect::<Vec<_>>().join("\n")
    }
}

/// A thing heard of at `at`, as it stands now.
fn aged(thing: &Value, at: Instant) -> Value {
    let mut thing = thing.clone();
    if let Some(seconds) = thing["sinceSeconds"].as_u64() {
        thing["sinceSeconds"] = (seconds + at.elapsed().as_secs()).into();
    }
    thing
}

/// A change in a line.
fn line(thing: &Value) -> String {
    let name = ["name", "pool", "run"]
        .iter()
        .find_map(|key| thing[*key].as_str())
        .unwrap_or("?");
    let mut line = format!("{name} {}", plain(&thing["state"]));
    if let Some(phase) = thing["phase"].as_str() {
        line += &format!(" ({phase})");
    }
    if let Some(version) = thing["version"].as_str() {
        line += &format!(" {version}");
    }
    if let Some(waits) = thing["waitingFor"].as_str() {
        line += &format!(", waits for {waits}");
    }
    if let Some(why) = thing["reason"].as_str() {
        line += &format!("; {}", plain(&why.into()));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_is_a_line() {
        let thing = json!({"run": "machine/u", "name": "win-1", "state": "Reachable", "phase": "probing",
            "version": null, "waitingFor": "SSH at 10.0.0.9", "reason": null});
        assert_eq!(
            line(&thing),
            "win-1 Reachable (probing), waits for SSH at 10.0.0.9"
        );
    }
}
