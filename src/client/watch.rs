//! `dormer watch`: live table of machines or rollouts, from the server's stream of changes.

use super::{
    Failure, ServerArgs, absent,
    answer::Answer,
    change_line::Said,
    filter::Filter,
    items::{Kind, ListItem, Progress, Target, TargetParser},
    listing::{Layout, NONE_FOUND, TableForm, fitted_as_before},
    machines,
    outage::Outage,
    output::OutputFormat,
    server::Server,
    server_clock,
    sse::{Parser, SseEvent},
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
use std::{cell::RefCell, collections::BTreeMap, io::IsTerminal, time::Duration};
use tokio::time::{Instant, MissedTickBehavior};

/// Redraw interval of the table. Durations grow meanwhile.
const DRAW_EVERY: Duration = Duration::from_millis(250);
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
        let mut body = server.listen("/changes").await?;
        loop {
            match view.follow(&mut body).await {
                StreamEnd::Broken => {}
                StreamEnd::Enough => return Ok(String::new()),
                StreamEnd::Failed(why) => return Err(why),
            }
            // The server or the connection ended. The table is outdated until the stream is back.
            view.lost();
            let mut outage = Outage::new();
            body = loop {
                outage.pause().await;
                match server.listen("/changes").await {
                    Ok(body) => break body,
                    Err(failure) => outage.endure(failure)?,
                }
            };
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
        let all = self.all || self.filter.wants_gone();
        fits && (all || run.status().closed.is_none())
    }

    /// Whether an item with these names matches the arguments.
    fn fits(&self, item: &impl ListItem, names: &[&String]) -> bool {
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
fn read<T: DeserializeOwned>(event: &SseEvent) -> Result<Option<T>, StreamEnd> {
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
    /// Runs that came meanwhile. They are printed once all are known: machines say how their rollout is, and the longest
    /// name where the states begin.
    waiting: Vec<Answer<AnyRun>>,
    /// Word of each rollout in its last line.
    words: BTreeMap<String, String>,
    /// What the last line of each run could say, for people: a change that they cannot see is none.
    lines: BTreeMap<String, Said>,
    /// Characters of the longest name that was shown.
    widest: usize,
    redraws: bool,
    drawn: usize,
    /// The table as it was drawn last.
    layout: RefCell<Layout>,
    stale: bool,
}

impl<'a> WatchView<'a> {
    fn new(watch: &'a Watch) -> Self {
        let people = matches!(watch.to.output, OutputFormat::Table | OutputFormat::Wide);
        let redraws = people && std::io::stdout().is_terminal();
        Self {
            watch,
            known: BTreeMap::new(),
            filling: true,
            waiting: Vec::new(),
            words: BTreeMap::new(),
            lines: BTreeMap::new(),
            widest: 0,
            redraws,
            drawn: 0,
            layout: RefCell::default(),
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

    fn take(&mut self, event: &SseEvent) -> Result<(), StreamEnd> {
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
                if !self.redraws {
                    self.widest = self.widest_shown();
                }
                let waiting = std::mem::take(&mut self.waiting).into_iter();
                let is_rollout = |it: &Answer<AnyRun>| it.view.as_rollout().is_some();
                let (rollouts, others): (Vec<_>, Vec<_>) = waiting.partition(is_rollout);
                for change in others.iter().chain(&rollouts) {
                    self.print_if_shown(change)?;
                }
            }
            "forgotten" => {
                if let Some(Forgotten { run }) = read(event)? {
                    self.known.remove(&run);
                    self.left_view(&run);
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
        if self.filling {
            self.waiting.push(change);
            return Ok(());
        }
        self.print_if_shown(&change)?;
        let machine = change.view.as_machine();
        match machine.and_then(|it| self.rollout_line(it)) {
            Some(text) => terminal::say(&text),
            None => Ok(()),
        }
    }

    fn print_if_shown(&mut self, change: &Answer<AnyRun>) -> std::io::Result<()> {
        match self.text_if_shown(change)? {
            Some(text) => terminal::say(&text),
            None => Ok(()),
        }
    }

    /// What is printed for a change. `None`: nothing.
    fn text_if_shown(&mut self, change: &Answer<AnyRun>) -> std::io::Result<Option<String>> {
        let view = &change.view;
        if !self.shows(view) {
            self.left_view(&view.status().run);
            return Ok(None);
        }
        self.widest = self.widest.max(view.name().chars().count());
        if view.as_rollout().is_some() {
            let word = view.word(self.machines()).to_owned();
            self.words.insert(view.status().run.clone(), word);
        }
        self.text_of(change)
    }

    /// Forgets the last line of a run that is not shown: when it is shown again, that is a change, also with the same words.
    fn left_view(&mut self, run: &str) {
        self.lines.remove(run);
        self.words.remove(run);
    }

    /// What is printed of the rollout of a machine that changed: it is in another state because of that. `None`: nothing.
    fn rollout_line(&mut self, machine: &Machine) -> Option<String> {
        if !matches!(
            self.watch.to.output,
            OutputFormat::Table | OutputFormat::Wide
        ) {
            return None;
        }
        let is_its = |run: &AnyRun| run.as_rollout().is_some_and(|it| it.pool == machine.pool);
        let mut all = self.known.values().map(|(_, run)| run);
        let rollout = all.find(|it| is_its(it))?;
        let run = rollout.status().run.clone();
        let word = rollout.word(self.machines()).to_owned();
        if self.words.get(&run) == Some(&word) {
            return None;
        }
        if !self.shows(rollout) {
            self.left_view(&run);
            return None;
        }
        let at = server_clock::time_of(&machine.status);
        let name = rollout.name().chars().count();
        let said = Said::of(rollout, self.machines());
        self.widest = self.widest.max(name);
        self.words.insert(run.clone(), word);
        let line = self.line(run, said)?;
        Some(format!("{} {line}", time_of_day(at)))
    }

    fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.known.values().filter_map(|(_, run)| run.as_machine())
    }

    fn shows(&self, run: &AnyRun) -> bool {
        self.watch.shows(run, self.machines())
    }

    /// Characters of the longest name of all runs that are shown.
    fn widest_shown(&self) -> usize {
        let shown = self.known.values().map(|(_, run)| run);
        let shown = shown.filter(|run| self.shows(run));
        let widest = shown.map(|run| run.name().chars().count()).max();
        widest.unwrap_or(0)
    }

    /// Line of a change, whose state begins where that of the others does. `None`: it says nothing new.
    fn new_line(&mut self, run: &AnyRun) -> Option<String> {
        let said = Said::of(run, self.machines());
        self.line(run.status().run.clone(), said)
    }

    fn line(&mut self, run: String, said: Said) -> Option<String> {
        let line = said.line(self.lines.get(&run), self.widest);
        self.lines.insert(run, said);
        line
    }

    /// Text of a change that is shown. `None`: people would read the line before again.
    fn text_of(&mut self, change: &Answer<AnyRun>) -> std::io::Result<Option<String>> {
        let for_programs = || {
            let mut change = change.clone();
            if change.view.as_rollout().is_some() {
                let word = change.view.word(self.machines()).to_owned();
                change.derive("state", &word);
            }
            change
        };
        Ok(match self.watch.to.output {
            OutputFormat::Json => Some(serde_json::to_string(&for_programs())?),
            OutputFormat::Yaml => {
                let text = dormer_profile::yaml::to_string(&for_programs()).unwrap_or_default();
                Some(format!("---\n{}", text.trim_end()))
            }
            OutputFormat::Table | OutputFormat::Wide => self.new_line(&change.view).map(|line| {
                let at = server_clock::time_of(change.view.status());
                format!("{} {line}", time_of_day(at))
            }),
        })
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
            NONE_FOUND.to_owned()
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
        let layout = &mut *self.layout.borrow_mut();
        let lines = match self.watch.target.kind {
            Watched::Machines => {
                let machines = shown.filter_map(|(at, run)| aged_machine(run, *at));
                fitted_as_before(machines.collect(), form, layout)
            }
            Watched::Rollouts => {
                let machines: Vec<Machine> = self.machines().cloned().collect();
                let rollouts = shown.filter_map(|(at, run)| aged_rollout(run, *at, &machines));
                fitted_as_before(rollouts.collect(), form, layout)
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
    fn a_change_that_reads_as_the_line_before_is_not_printed_again() {
        let watch = watch(&[]);
        let mut view = WatchView::new(&watch);
        let probing = |seq: u64, phase: &str| {
            machine(json!({"phase": phase, "phaseText": phase, "seq": seq}))
        };
        assert!(view.new_line(&probing(3, "probing")).is_some());
        assert_eq!(view.new_line(&probing(4, "probing")), None);
        assert!(view.new_line(&probing(5, "rebooting")).is_some());
        assert!(view.new_line(&probing(6, "probing")).is_some());
    }

    fn event(kind: &str, data: &Value) -> SseEvent {
        SseEvent {
            kind: kind.into(),
            data: data.to_string(),
        }
    }

    /// A watch in a pipe, once the server has sent these runs.
    fn filled<'a>(watch: &'a Watch, runs: &[Value]) -> WatchView<'a> {
        let mut view = WatchView::new(watch);
        view.redraws = false;
        let runs = runs.iter().map(|run| event("run", run));
        let end = event("complete", &json!({}));
        for event in runs.chain([end]) {
            assert!(view.take(&event).is_ok());
        }
        view
    }

    fn of_machine(fields: Value) -> Value {
        serde_json::to_value(machine_with(fields)).expect("JSON")
    }

    /// The machine leaves the list of the failed ones, and comes back with the words of before.
    #[test]
    fn a_second_failure_of_one_cause_is_printed_again() {
        let watch = watch(&["--state", "failed"]);
        let mut view = filled(&watch, &[]);
        let mut printed = |seq: u64, state: &str| {
            let fields =
                json!({"seq": seq, "state": state, "phase": "failed", "reason": "no room"});
            let change = serde_json::from_value(of_machine(fields)).expect("a change");
            view.text_if_shown(&change).expect("a text").is_some()
        };
        assert!(printed(3, "Failed"));
        assert!(!printed(4, "Failed"), "it reads the same");
        assert!(!printed(5, "Reachable"), "it is not asked for");
        assert!(printed(6, "Failed"));
        let forgotten = json!({"run": "machine/u", "forgotten": true});
        assert!(view.take(&event("forgotten", &forgotten)).is_ok());
        assert!(view.lines.is_empty() && view.words.is_empty());
    }

    /// The same of a rollout, which its machines bring into another state.
    #[test]
    fn a_rollout_that_is_stuck_again_is_printed_again() {
        let watch = watch(&["rollouts", "--state", "stuck"]);
        let rollout = serde_json::to_value(rollout_with(json!({}))).expect("JSON");
        let failed = json!({"state": "Failed", "phase": "failed", "phaseText": "failed", "desiredVersion": "v2", "failure":
            {"code": "DiskFull", "message": "full", "phase": "probing", "phaseText": "probing"}});
        let mut view = filled(&watch, &[rollout]);
        let mut printed = |fields: Value| {
            let machine = machine_with(fields);
            let run = machine.status.run.clone();
            let known = AnyRun::Machine(Box::new(machine.clone()));
            view.known.insert(run, (Instant::now(), known));
            view.rollout_line(&machine).is_some()
        };
        assert!(printed(failed.clone()));
        assert!(!printed(failed.clone()), "it is so still");
        assert!(!printed(json!({"phase": "probing"})), "it is not asked for");
        assert!(printed(failed));
    }

    #[test]
    fn the_longest_name_that_is_shown_says_where_states_begin() {
        let named = |uid: &str, name: &str, state: &str| {
            of_machine(
                json!({"run": format!("machine/{uid}"), "uid": uid, "name": name, "state": state}),
            )
        };
        let watch = watch(&["--state", "failed"]);
        let all = [
            named("a", "win-1", "Failed"),
            named("b", "win-22", "Failed"),
            named("c", "a-long-name", "Reachable"),
        ];
        let mut view = filled(&watch, &all);
        assert_eq!(view.widest, "win-22".len());
        let later = named("d", "win-4444", "Failed");
        assert!(view.take(&event("run", &later)).is_ok());
        assert_eq!(view.widest, "win-4444".len());
        let change = serde_json::from_value(named("e", "win-5", "Failed")).expect("a change");
        let line = view
            .text_if_shown(&change)
            .expect("a text")
            .expect("a line");
        assert!(line.contains(" win-5    Failed"), "{line}");
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
            let event = SseEvent {
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
        let event = |kind: &str, data: Value| SseEvent {
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
    }

    /// A rollout that only its machines bring into the view has a name as well.
    #[test]
    fn a_rollout_that_enters_the_view_moves_the_states_of_all_lines() {
        let watch = watch(&["rollouts", "--state", "stuck"]);
        let rollouts = ["windows", "a-longer-pool"].map(|pool| {
            let run = format!("rollout/{pool}");
            serde_json::to_value(rollout_with(json!({"pool": pool, "run": run}))).expect("JSON")
        });
        let mut view = filled(&watch, &rollouts);
        let mut line = |pool: &str| {
            let machine = machine_with(
                json!({"run": format!("machine/{pool}"), "pool": pool, "state": "Failed",
                "phase": "failed", "phaseText": "failed", "desiredVersion": "v2", "failure": {"code": "DiskFull",
                "message": "full", "phase": "probing", "phaseText": "probing"}}),
            );
            let run = machine.status.run.clone();
            let known = AnyRun::Machine(Box::new(machine.clone()));
            view.known.insert(run, (Instant::now(), known));
            view.rollout_line(&machine).expect("it is stuck")
        };
        assert!(line("a-longer-pool").ends_with(" a-longer-pool Stuck"));
        let shorter = line("windows");
        assert!(shorter.ends_with(" windows       Stuck"), "{shorter}");
    }

    #[test]
    fn programs_read_the_state_of_a_rollout_that_people_read() {
        let watch = watch(&["rollouts", "-o", "json"]);
        let failed = json!({"state": "Failed", "phase": "failed", "phaseText": "failed", "desiredVersion": "v2", "failure":
            {"code": "DiskFull", "message": "full", "phase": "probing", "phaseText": "probing"}});
        let mut view = filled(&watch, &[of_machine(failed)]);
        let rollout = serde_json::to_value(rollout_with(json!({"seq": 11}))).expect("JSON");
        let change = serde_json::from_value(rollout).expect("a change");
        let text = view
            .text_if_shown(&change)
            .expect("a text")
            .expect("a line");
        let read: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read["state"], "Stuck");
    }

    #[test]
    fn a_change_that_this_build_cannot_read_ends_the_watch() {
        let watch = watch(&[]);
        let mut view = WatchView::new(&watch);
        let event = |kind: &str, data: Value| SseEvent {
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
        let cut_off = SseEvent {
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
