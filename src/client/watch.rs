//! `dormer watch`: live table of machines or rollouts, from the server's stream of changes.

use super::{
    Failure, ServerArgs, absent,
    answer::Answer,
    filter::Filter,
    items::{Item, Kind, Progress, Target, TargetParser},
    listing::{TableForm, fitted},
    machines,
    output::{Output, one_line},
    server::Server,
    server_clock,
    sse::{Event, Parser},
    terminal,
};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use dormer_proto::id::Timestamp;
use dormer_views::{any_run::AnyRun, machine::Machine, problem::Urgency};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{collections::BTreeMap, io::IsTerminal, time::Duration};
use tokio::time::{Instant, MissedTickBehavior};

/// Redraw interval of the table. Durations grow meanwhile.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// First and longest pause before a broken stream is reconnected.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);
/// How long a server that starts again may refuse.
pub(crate) const STARTS_WITHIN: Duration = Duration::from_secs(120);
/// Silence after which a connection counts as broken. The server sends a keep-alive every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Lines of a table if the terminal's height is unknown.
const LINES: u16 = 40;

/// Kinds that can be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Watched {
    /// Machines
    #[value(aliases = ["machine", "m"])]
    Machines,
    /// Rollouts, one for each pool
    #[value(aliases = ["rollout", "pools", "pool"])]
    Rollouts,
}

/// Arguments of `dormer watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// Kind of objects, or KIND/NAME
    #[arg(
        default_value = "machines",
        value_name = "KIND",
        value_parser = TargetParser::<Watched>::new()
    )]
    target: Target<Watched>,
    /// Only this one: a machine's name or UID, or a pool
    name: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Also machines that are gone
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    to: ServerArgs,
}

impl Watch {
    pub(super) fn new(
        kind: Watched,
        name: Option<String>,
        filter: Filter,
        all: bool,
        to: ServerArgs,
    ) -> Self {
        Self {
            target: Target { kind, name: None },
            name,
            filter,
            all,
            to,
        }
    }

    /// Watches until the user stops it.
    pub(crate) async fn run(mut self) -> Result<String, Failure> {
        if let Some(name) = self.target.name.take() {
            self.name = Some(name);
        }
        match self.target.kind {
            Watched::Machines => self.filter.check::<Machine>("machines")?,
            Watched::Rollouts => self.filter.check::<Progress>("rollouts")?,
        }
        let server = self.to.server()?;
        self.filter.check_pool(&server).await?;
        self.find_name(&server).await?;
        let mut view = WatchView::new(&self);
        let mut again = AGAIN_AFTER;
        let mut body = server.listen("/changes").await?;
        loop {
            match view.follow(&mut body).await {
                StreamEnd::Broken => {}
                StreamEnd::Enough => return Ok(String::new()),
                StreamEnd::Failed(why) => return Err(why),
            }
            // The server or the connection ended. The table is outdated until the stream is back.
            view.lost();
            let lost = Instant::now();
            body = loop {
                tokio::time::sleep(again).await;
                match server.listen("/changes").await {
                    Ok(body) => break body,
                    Err(Failure::Unreachable { .. }) => again = (again * 2).min(AGAIN_AFTER_MAX),
                    Err(Failure::Unready { .. }) if lost.elapsed() < STARTS_WITHIN => {
                        again = (again * 2).min(AGAIN_AFTER_MAX);
                    }
                    Err(other) => return Err(other),
                }
            };
            again = AGAIN_AFTER;
        }
    }

    /// Replaces what a machine is called by its UID, and refuses a name that nothing has: the watch would stay empty.
    async fn find_name(&mut self, server: &Server) -> Result<(), Failure> {
        let Some(name) = self.name.as_deref() else {
            return Ok(());
        };
        let kind = match self.target.kind {
            Watched::Machines => Kind::Machines,
            Watched::Rollouts => Kind::Rollouts,
        };
        let of_pool = kind == Kind::Machines && absent::check_pool(server, name).await.is_ok();
        if of_pool {
            return Ok(());
        }
        if kind == Kind::Machines {
            self.name = Some(machines::machine(server, name).await?.uid);
            return Ok(());
        }
        let answered = server.get::<Value>(&kind.one(name)).await.map(drop);
        absent::explained(server, kind, name, answered).await
    }

    fn shows<'a>(&self, run: &AnyRun, machines: impl Iterator<Item = &'a Machine>) -> bool {
        let fits = match (self.target.kind, run) {
            (Watched::Machines, AnyRun::Machine(machine)) => {
                let names = [&machine.name, &machine.uid, &machine.pool];
                self.fits(machine.as_ref(), &names)
            }
            (Watched::Rollouts, AnyRun::Rollout(rollout)) => {
                let ours = machines.filter(|it| it.pool == rollout.pool);
                let ours: Vec<Machine> = ours.cloned().collect();
                let progress = Progress::of(rollout.as_ref().clone(), &ours);
                self.fits(&progress, &[&rollout.pool])
            }
            _ => false,
        };
        fits && (self.all || run.status().closed.is_none())
    }

    /// Whether an item with these names matches the arguments.
    fn fits(&self, item: &impl Item, names: &[&String]) -> bool {
        self.name.as_ref().is_none_or(|name| names.contains(&name)) && self.filter.takes(item)
    }
}

/// Reason for which following a stream ended.
enum StreamEnd {
    /// The stream broke.
    Broken,
    /// The reader closed the output.
    Enough,
    /// The stream cannot be parsed.
    Failed(Failure),
}

impl From<std::io::Error> for StreamEnd {
    fn from(_: std::io::Error) -> Self {
        Self::Enough
    }
}

/// Id of a run that the server no longer has.
#[derive(Debug, Deserialize)]
struct Forgotten {
    run: String,
}

/// Parses an event's data. `None`: the event was longer than the limit.
fn read<T: DeserializeOwned>(event: &Event) -> Result<Option<T>, StreamEnd> {
    match serde_json::from_str(&event.data) {
        Ok(read) => Ok(Some(read)),
        Err(why) if why.is_data() => Err(StreamEnd::Failed(Failure::unreadable(why))),
        Err(_) => Ok(None),
    }
}

/// State of the table.
struct WatchView<'a> {
    watch: &'a Watch,
    /// Runs by id, with the time of arrival.
    known: BTreeMap<String, (Instant, AnyRun)>,
    /// Whether the server is sending the full state again, and has not finished.
    filling: bool,
    /// Rollouts that came meanwhile. Each is printed once all machines are known, which say how it is.
    waiting: Vec<Answer<AnyRun>>,
    /// Word of each rollout in its last line.
    words: BTreeMap<String, String>,
    redraws: bool,
    drawn: usize,
    stale: bool,
}

impl<'a> WatchView<'a> {
    fn new(watch: &'a Watch) -> Self {
        let people = matches!(watch.to.output, Output::Table | Output::Wide);
        let redraws = people && std::io::stdout().is_terminal();
        Self {
            watch,
            known: BTreeMap::new(),
            filling: true,
            waiting: Vec::new(),
            words: BTreeMap::new(),
            redraws,
            drawn: 0,
            stale: false,
        }
    }

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
                        if let Err(end) = self.take(&event) {
                            return end;
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
        terminal::warn("the stream of changes broke; reconnecting");
    }

    fn take(&mut self, event: &Event) -> Result<(), StreamEnd> {
        match event.kind.as_str() {
            "reset" => {
                self.filling = true;
                // After a reconnect only changed runs are printed again.
                if self.redraws {
                    self.known.clear();
                }
            }
            "complete" => {
                self.filling = false;
                self.stale = false;
                for rollout in std::mem::take(&mut self.waiting) {
                    self.print_if_shown(&rollout)?;
                }
            }
            "forgotten" => {
                if let Some(Forgotten { run }) = read(event)? {
                    self.known.remove(&run);
                }
            }
            "run" => {
                if let Some(change) = read(event)? {
                    self.changed(change)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn changed(&mut self, change: Answer<AnyRun>) -> std::io::Result<()> {
        let status = change.view.status();
        let run = status.run.clone();
        let known = self.known.get(&run);
        let fresh = known.is_none_or(|(_, known)| known.status().seq != status.seq);
        let view = change.view.clone();
        self.known.insert(run, (Instant::now(), view));
        if !fresh || self.redraws {
            return Ok(());
        }
        if self.filling && change.view.as_rollout().is_some() {
            self.waiting.push(change);
            return Ok(());
        }
        self.print_if_shown(&change)?;
        match change.view.as_machine() {
            Some(machine) if !self.filling => self.rollout_of(machine),
            _ => Ok(()),
        }
    }

    fn print_if_shown(&mut self, change: &Answer<AnyRun>) -> std::io::Result<()> {
        if !self.shows(&change.view) {
            return Ok(());
        }
        if change.view.as_rollout().is_some() {
            let word = change.view.word(self.machines()).to_owned();
            self.words.insert(change.view.status().run.clone(), word);
        }
        self.print(change)
    }

    /// Prints the rollout of a machine that changed, if it is in another state because of that.
    fn rollout_of(&mut self, machine: &Machine) -> std::io::Result<()> {
        let is_its = |run: &AnyRun| run.as_rollout().is_some_and(|it| it.pool == machine.pool);
        let mut all = self.known.values().map(|(_, run)| run);
        let Some(rollout) = all.find(|it| is_its(it)) else {
            return Ok(());
        };
        let programs = !matches!(self.watch.to.output, Output::Table | Output::Wide);
        let run = rollout.status().run.clone();
        let word = rollout.word(self.machines()).to_owned();
        if programs || self.words.get(&run) == Some(&word) || !self.shows(rollout) {
            return Ok(());
        }
        let at = server_clock::time_of(&machine.status);
        let text = format!("{} {}", time_of_day(at), line(rollout, self.machines()));
        self.words.insert(run, word);
        terminal::say(&text)
    }

    fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.known.values().filter_map(|(_, run)| run.as_machine())
    }

    fn shows(&self, run: &AnyRun) -> bool {
        self.watch.shows(run, self.machines())
    }

    /// Prints one line for a change.
    fn print(&self, change: &Answer<AnyRun>) -> std::io::Result<()> {
        let text = match self.watch.to.output {
            Output::Json => serde_json::to_string(change)?,
            Output::Yaml => {
                let text = dormer_profile::yaml::to_string(change).unwrap_or_default();
                format!("---\n{}", text.trim_end())
            }
            Output::Table | Output::Wide => {
                let at = server_clock::time_of(change.view.status());
                let line = line(&change.view, self.machines());
                format!("{} {line}", time_of_day(at))
            }
        };
        terminal::say(&text)
    }

    /// Draws the whole table over the previous one.
    fn draw(&mut self) -> std::io::Result<()> {
        let text = self.text();
        terminal::redraw(self.drawn, &text)?;
        self.drawn = text.lines().count();
        Ok(())
    }

    fn text(&self) -> String {
        let shown = self.known.values();
        let mut shown: Vec<&(Instant, AnyRun)> = shown.filter(|(_, run)| self.shows(run)).collect();
        shown.sort_by_cached_key(|(_, run)| self.sort_key(run));
        let lines = terminal_size::terminal_size().map_or(LINES, |(_, height)| height.0);
        let room = usize::from(lines).saturating_sub(3).max(1);
        let hidden = shown.len().saturating_sub(room);
        shown.truncate(room);
        let mut text = if shown.is_empty() {
            "No resources found.".to_owned()
        } else {
            self.table(&shown)
        };
        if hidden > 0 {
            text += &format!("\n… and {hidden} more");
        }
        if self.stale {
            text += "\n(the server does not answer: this table is outdated)";
        }
        text
    }

    /// The table of `dormer get`.
    fn table(&self, shown: &[&(Instant, AnyRun)]) -> String {
        let form = TableForm {
            wide: self.watch.to.wide(),
            namespaces: false,
            columns: terminal::columns(),
        };
        let shown = shown.iter();
        let lines = match self.watch.target.kind {
            Watched::Machines => {
                let machines = shown.filter_map(|(at, run)| aged_machine(run, *at));
                fitted(machines.collect(), form)
            }
            Watched::Rollouts => {
                let machines: Vec<Machine> = self.machines().cloned().collect();
                let rollouts = shown.filter_map(|(at, run)| aged_rollout(run, *at, &machines));
                fitted(rollouts.collect(), form)
            }
        };
        lines.join("\n")
    }

    /// Sort key of the table: the most urgent come first.
    fn sort_key(&self, run: &AnyRun) -> (usize, String, String) {
        let place = |urgency: Option<Urgency>| urgency.map_or(usize::MAX, |it| it as usize);
        let (urgency, namespace) = match run {
            AnyRun::Machine(machine) => (machine.urgency(), machine.namespace.clone()),
            AnyRun::Rollout(rollout) => {
                let machines: Vec<Machine> = self.machines().cloned().collect();
                let progress = Progress::of(rollout.as_ref().clone(), &machines);
                (progress.urgency(), String::new())
            }
            AnyRun::Run(_) => (None, String::new()),
        };
        (place(urgency), namespace, run.name().to_owned())
    }
}

/// Machine that the server sent at `at`, with its durations extended to now.
fn aged_machine(run: &AnyRun, at: Instant) -> Option<Machine> {
    let mut machine = run.as_machine()?.clone();
    machine.status.since_seconds += at.elapsed().as_secs();
    Some(machine)
}

/// Rollout that the server sent at `at`, with its durations extended to now, and what these machines say of it.
fn aged_rollout(run: &AnyRun, at: Instant, machines: &[Machine]) -> Option<Progress> {
    let mut rollout = run.as_rollout()?.clone();
    rollout.status.since_seconds += at.elapsed().as_secs();
    Some(Progress::of(rollout, machines))
}

/// Time of day in UTC: `07:05:12`.
fn time_of_day(at: Timestamp) -> String {
    let at = dormer_views::moment::time(at);
    at.get(11..19).unwrap_or(&at).to_owned()
}

/// Change in one line. The state of a rollout depends on its machines, which are among `machines`.
fn line<'a>(run: &AnyRun, machines: impl IntoIterator<Item = &'a Machine>) -> String {
    let mut line = format!("{} {}", run.name(), run.word(machines));
    if let Some(phase) = run.phase() {
        line += &format!(" ({phase})");
    }
    let machine = run.as_machine();
    if let Some(version) = machine.and_then(|machine| machine.version.as_ref()) {
        line += &format!(" {version}");
    }
    if let Some(what) = run.waiting_for() {
        line += &format!(", waits for {what}");
    }
    if let Some(reason) = machine.and_then(|machine| machine.reason.as_ref()) {
        line += &format!("; {}", one_line(reason));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, rollout_with};
    use clap::Parser as _;
    use serde_json::{Value, json};

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        watch: Watch,
    }

    fn watch(arguments: &[&str]) -> Watch {
        let arguments = ["watch"].iter().chain(arguments);
        Command::try_parse_from(arguments).expect("a command").watch
    }

    #[tokio::test]
    async fn a_server_that_refuses_while_it_starts_is_asked_again() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let watching = watch(&["--server", &url]).run();
        let server = async {
            for status in ["200 OK", "503 Service Unavailable", "200 OK"] {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = [0; 1024];
                let length = stream.read(&mut request).await.expect("a request");
                assert!(request[..length].starts_with(b"GET /api/v1/changes "));
                let answer =
                    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("sent");
            }
        };
        tokio::select! {
            ended = watching => panic!("it goes on: {ended:?}"),
            () = server => {}
        }
    }

    fn machine(fields: Value) -> AnyRun {
        AnyRun::Machine(Box::new(machine_with(fields)))
    }

    #[test]
    fn a_change_is_a_line() {
        let probing = machine(json!({"phase": "probing", "phaseText": "probing",
            "waitingFor": "SSH at 10.0.0.9"}));
        assert_eq!(
            line(&probing, []),
            "win-1 Reachable (probing), waits for SSH at 10.0.0.9"
        );
        let failed = machine(
            json!({"state": "Failed", "phase": "failed", "phaseText": "failed",
            "version": "v1", "reason": "no\nroom"}),
        );
        assert_eq!(line(&failed, []), "win-1 Failed v1; no room");
        let rollout = AnyRun::Rollout(Box::new(rollout_with(json!({"waitingFor": "win-b"}))));
        assert_eq!(line(&rollout, []), "windows Idle, waits for win-b");
    }

    #[test]
    fn only_what_is_asked_for_is_shown() {
        let open = machine(json!({"state": "Failed"}));
        let closed = machine(json!({"closed": "2026-11-21T08:00:00.000Z"}));
        let rollout = AnyRun::Rollout(Box::new(rollout_with(json!({}))));
        let shown = |arguments: &[&str]| {
            let watch = watch(arguments);
            [&open, &closed, &rollout].map(|run| watch.shows(run, std::iter::empty()))
        };
        assert_eq!(shown(&[]), [true, false, false]);
        assert_eq!(shown(&["machines", "--all"]), [true, true, false]);
        assert_eq!(shown(&["machines", "win-2"]), [false, false, false]);
        let failed = [
            "machines", "win-1", "--state", "failed", "--pool", "windows",
        ];
        assert_eq!(shown(&failed), [true, false, false]);
        assert_eq!(shown(&["rollouts"]), [false, false, true]);
    }

    #[test]
    fn the_table_of_rollouts_has_the_columns_of_get_with_the_numbers_of_their_machines() {
        let watch = watch(&["rollouts"]);
        let mut view = WatchView::new(&watch);
        view.redraws = true;
        let serves = json!({"state": "Joined", "phase": "serving", "served": true, "version": "v1",
            "desiredVersion": "v1"});
        let machine = serde_json::to_value(machine_with(serves)).unwrap();
        let rollout = serde_json::to_value(rollout_with(json!({"maxUnavailable": 1}))).unwrap();
        for run in [machine, rollout] {
            let event = Event {
                kind: "run".into(),
                data: run.to_string(),
            };
            assert!(view.take(&event).is_ok());
        }
        let text = view.text();
        let headings: Vec<&str> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split("  ")
            .collect();
        let headings: Vec<&str> = headings
            .iter()
            .map(|it| it.trim())
            .filter(|it| !it.is_empty())
            .collect();
        let columns = Progress::COLUMNS.iter().filter(|it| !it.wide);
        assert_eq!(headings, columns.map(|it| it.heading).collect::<Vec<_>>());
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(row[..6], ["windows", "Idle", "1", "1", "1", "0"], "{text}");
    }

    #[test]
    fn a_rollout_in_a_pipe_is_stuck_when_its_machines_say_so() {
        let watch = watch(&["rollouts"]);
        let mut view = WatchView::new(&watch);
        view.redraws = false;
        let event = |kind: &str, data: Value| Event {
            kind: kind.into(),
            data: data.to_string(),
        };
        let rollout = serde_json::to_value(rollout_with(json!({}))).unwrap();
        let failed = json!({"state": "Failed", "phase": "failed", "phaseText": "failed", "desiredVersion": "v2", "failure":
            {"code": "DiskFull", "message": "full", "phase": "probing", "phaseText": "probing"}});
        let machine = serde_json::to_value(machine_with(failed)).unwrap();
        let said = |view: &WatchView<'_>| view.words.values().cloned().collect::<Vec<_>>();
        assert!(view.take(&event("run", rollout)).is_ok());
        assert_eq!(
            said(&view),
            Vec::<String>::new(),
            "its machines are not known yet"
        );
        assert!(view.take(&event("complete", json!({}))).is_ok());
        assert_eq!(said(&view), ["Idle"]);
        assert!(view.take(&event("run", machine)).is_ok());
        assert_eq!(said(&view), ["Stuck"]);
        let lines = view
            .known
            .values()
            .map(|(_, run)| line(run, view.machines()));
        let lines: Vec<String> = lines.collect();
        assert!(
            lines.iter().any(|it| it.starts_with("windows Stuck")),
            "{lines:?}"
        );
    }

    #[test]
    fn a_change_that_this_build_cannot_read_ends_the_watch() {
        let watch = watch(&[]);
        let mut view = WatchView::new(&watch);
        let event = |kind: &str, data: Value| Event {
            kind: kind.into(),
            data: data.to_string(),
        };
        assert!(view.take(&event("reset", json!({}))).is_ok());
        let known = serde_json::to_value(machine_with(json!({}))).unwrap();
        view.redraws = true;
        assert!(view.take(&event("run", known)).is_ok());
        assert_eq!(view.text().lines().count(), 2, "{}", view.text());
        let forgotten = event("forgotten", json!({"run": "machine/u", "forgotten": true}));
        assert!(view.take(&forgotten).is_ok());
        assert_eq!(view.text(), "No resources found.");
        let cut_off = Event {
            kind: "run".into(),
            data: r#"{"run": "machi"#.into(),
        };
        assert!(view.take(&cut_off).is_ok(), "it is passed over");
        let end = view.take(&event("run", json!({"run": "machine/u"})));
        assert!(matches!(
            end,
            Err(StreamEnd::Failed(Failure::Refused { .. }))
        ));
    }
}
