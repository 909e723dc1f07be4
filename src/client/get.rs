//! `dormer get`: machines, runs, rollouts, tasks, pools and quarantined runs, one per line.

use super::{
    Failure, ServerArgs, absent,
    answer::Answer,
    filter::Filter,
    items::{Kind, ListItem, Progress, Target, TargetParser},
    listing::{NONE_FOUND, TableForm, fitted},
    machines,
    output::OutputFormat,
    server::{Server, ServerAddress},
    terminal, watch,
};
use clap::{Args, ValueEnum};
use dormer_profile::suggestion::question;
use dormer_views::{
    machine::{Machine, Machines},
    prerequisites::MissingPrerequisite,
    rollout::Pool,
    run::{List, QuarantinedRun, Run, Task},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::cmp::Ordering;

/// Text below the help: columns that do not explain themselves.
pub(super) const COLUMNS_HELP: &str = "\
Columns of machines: VERSION is what the node carries, DESIRED what it should carry; SINCE is the age of the state, AGE \
that of the Machine. Of rollouts: SERVING counts machines whose Node is in service, held ones too; UPDATED \
counts machines that carry the version that they should carry; MACHINES counts one that goes and the one in its place \
once; HOLDER \
names those that hold the lease, several where maxUnavailable is above 1; TIME LEFT counts a usual turn for each machine \
in the queue (until one has ended: what its steps took last), and is empty while nothing is granted, a holder waits for a person, or a turn takes more than three times as long as usual. \
Rollouts are Idle, Running, Waiting, Stopped, Stuck, Enrolling, Paused or Halted. \
A terminal that is too narrow gets shorter names and fewer columns; a pipe gets all of them.";

/// Output format of `dormer get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum GetOutput {
    /// A table for people
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// JSON, as the API answers it; the state of a rollout is that of the tables
    Json,
    /// The same as YAML
    Yaml,
    /// KIND/NAME, one per line
    Name,
}

impl GetOutput {
    /// The same format of other commands. [`Self::Name`] is one of this command only.
    fn common(self) -> OutputFormat {
        match self {
            Self::Table | Self::Name => OutputFormat::Table,
            Self::Wide => OutputFormat::Wide,
            Self::Json => OutputFormat::Json,
            Self::Yaml => OutputFormat::Yaml,
        }
    }
}

/// Arguments of `dormer get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Kind of objects, or KIND/NAME of one
    #[arg(value_name = "KIND", value_parser = TargetParser::<Kind>::new())]
    target: Target<Kind>,
    /// Only these: names, UIDs, or WORKFLOW/KEY of runs; for tasks, the machine
    names: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Also machines that are gone
    #[arg(long)]
    all: bool,
    /// Show the namespace, too; machines of all namespaces are listed in any case
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Sort by this field of the JSON, such as since, name or failure.code, or by a heading, such as AGE [default: what
    /// needs attention first]
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,
    /// Leave out the headings
    #[arg(long)]
    no_headers: bool,
    /// Keep watching, until you press Ctrl-C; machines and rollouts only
    #[arg(short, long)]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: GetOutput,
    #[command(flatten)]
    address: ServerAddress,
}

/// List in the server's answer.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Listing<T> {
    items: Vec<Answer<T>>,
    /// Prerequisites that dormer itself lacks. Only the list of machines has them.
    #[serde(default)]
    lacks: Vec<MissingPrerequisite>,
}

impl Get {
    pub(crate) async fn run(mut self) -> Result<String, Failure> {
        let kind = self.target.kind;
        let names = self.target.name.take().into_iter().chain(self.names);
        self.names = names.map(|name| kind.bare(&name).to_owned()).collect();
        if self.watch {
            return self.watched()?.run().await;
        }
        let server = self.address.server();
        match self.target.kind {
            Kind::Machines => self.found::<Machine>(&server).await,
            Kind::Runs => self.found::<Run>(&server).await,
            Kind::Rollouts => self.found::<Progress>(&server).await,
            Kind::Pools => self.found::<Pool>(&server).await,
            Kind::Quarantine => self.quarantined(&server).await,
            Kind::Tasks => match self.names.as_slice() {
                [] => self.found::<Task>(&server).await,
                [machine] => self.tasks_of(&server, machine).await,
                _ => Err(Failure::Usage("give one machine, or none".into())),
            },
        }
    }

    /// The same as `dormer watch`.
    fn watched(self) -> Result<watch::Watch, Failure> {
        let kind = match self.target.kind {
            Kind::Machines => watch::Watched::Machines,
            Kind::Rollouts => watch::Watched::Rollouts,
            Kind::Runs | Kind::Tasks | Kind::Pools | Kind::Quarantine => {
                let message = "--watch: only machines and rollouts can be watched";
                return Err(Failure::Usage(message.into()));
            }
        };
        let formats = self.output == GetOutput::Name || self.no_headers || self.sort_by.is_some();
        if self.names.len() > 1 || formats {
            let message =
                "--watch takes one name, and neither -o name nor --sort-by nor --no-headers";
            return Err(Failure::Usage(message.into()));
        }
        let to = ServerArgs {
            address: self.address,
            output: self.output.common(),
        };
        let name = self.names.into_iter().next();
        Ok(watch::Watch::new(kind, name, self.filter, self.all, to))
    }

    fn path(&self) -> String {
        let all = self.all || self.filter.wants_gone();
        let ended = if all && self.target.kind == Kind::Machines {
            "?all=true"
        } else {
            ""
        };
        format!("{}{ended}", self.target.kind.path())
    }

    /// Reads the named objects, or all that match the filters.
    async fn found<T: ListItem>(&self, server: &Server) -> Result<String, Failure> {
        self.filter
            .check::<T>(self.target.kind.path().trim_start_matches('/'))?;
        if self.names.is_empty() {
            let mut listing: Listing<T> = server.get(&self.path()).await?;
            self.add_progress(server, &mut listing.items).await;
            let views: Vec<&T> = listing.items.iter().map(|it| &it.view).collect();
            let filter = self.filter.for_items(&views)?;
            if !views.iter().any(|it| filter.takes(*it)) {
                filter.check_pool(server).await?;
                // As kubectl: a selector may match nothing. Why stands beside the answer.
                let what = self.target.kind.singular();
                filter
                    .unmatched(what, &views)
                    .iter()
                    .for_each(terminal::warn);
            }
            listing.items.retain(|item| filter.takes(&item.view));
            return self.listed(listing);
        }
        if !self.filter.is_empty() {
            let message = "names choose by themselves: give names, or --pool, --state and -l";
            return Err(Failure::Usage(message.into()));
        }
        let mut items = Vec::new();
        for name in &self.names {
            items.push(self.one::<T>(server, name).await?);
        }
        self.add_progress(server, &mut items).await;
        if let [one] = items.as_slice()
            && let Some(text) = self.programs(one)?
        {
            return Ok(text);
        }
        let lacks = Vec::new();
        self.listed(Listing { items, lacks })
    }

    async fn one<T: ListItem>(&self, server: &Server, name: &str) -> Result<Answer<T>, Failure> {
        if self.target.kind == Kind::Machines {
            let found = machines::answer(server, name).await?;
            let found = serde_json::to_value(&found).map_err(Failure::unreadable)?;
            return serde_json::from_value(found).map_err(Failure::unreadable);
        }
        if self.target.kind == Kind::Runs && !name.contains('/') {
            return self.run_called(server, name).await;
        }
        let answered = server.get(&self.target.kind.one(name)).await;
        absent::explained(server, self.target.kind, name, answered).await
    }

    /// Run of the machine or pool that is called so, by its name or by the key in its id.
    async fn run_called<T: ListItem>(
        &self,
        server: &Server,
        name: &str,
    ) -> Result<Answer<T>, Failure> {
        let List { items } = server
            .get::<List<Answer<T>>>(self.target.kind.path())
            .await?;
        let ids: Vec<String> = items.iter().map(|it| it.view.name()).collect();
        let means = |it: &Answer<T>| it.view.is_called(name);
        let mut found = items.into_iter().filter(means);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (Some(_), Some(_)) => Err(Failure::Usage(format!(
                "several runs are called {name}: give WORKFLOW/KEY, as dormer get runs lists them"
            ))),
            (None, _) => Err(absent::failure(self.target.kind, name, &ids)),
        }
    }

    /// Reads the quarantined runs; names select them by their ids or by their machines' names.
    async fn quarantined(&self, server: &Server) -> Result<String, Failure> {
        self.filter.check::<QuarantinedRun>("quarantined runs")?;
        let mut listing: Listing<QuarantinedRun> = server.get(&self.path()).await?;
        let called = |item: &Answer<QuarantinedRun>, wanted: &String| {
            let QuarantinedRun { run, name, .. } = &item.view;
            wanted == run || Some(wanted) == name.as_ref()
        };
        for name in &self.names {
            if !listing.items.iter().any(|item| called(item, name)) {
                let there = listing.items.iter();
                let there: Vec<String> = there
                    .map(|it| it.view.name.clone().unwrap_or_else(|| it.view.run.clone()))
                    .collect();
                return Err(absent::unquarantined(name, &there));
            }
        }
        listing.items.retain(|item| {
            self.names.is_empty() || self.names.iter().any(|name| called(item, name))
        });
        listing.items.retain(|item| self.filter.takes(&item.view));
        self.listed(listing)
    }

    /// Reads the open tasks of one machine.
    async fn tasks_of(&self, server: &Server, machine: &str) -> Result<String, Failure> {
        self.filter.check::<Task>("tasks")?;
        let machine = machines::machine(server, machine).await?;
        let List { mut items } = server
            .get::<List<Answer<Task>>>(self.target.kind.path())
            .await?;
        items.retain(|it| it.view.run == machine.status.run && self.filter.takes(&it.view));
        let lacks = Vec::new();
        self.listed(Listing { items, lacks })
    }

    /// Adds to rollouts and pools what their machines say of them. Without a right to list machines those columns of a
    /// rollout stay empty, and its state is the one that it has without them.
    async fn add_progress<T: ListItem>(&self, server: &Server, items: &mut [Answer<T>]) {
        if !matches!(self.target.kind, Kind::Rollouts | Kind::Pools) {
            return;
        }
        let listed = server.get("/machines?all=true").await;
        let machines = listed.map(|Machines { items, .. }| items).ok();
        add_what_machines_say(items, machines.as_deref());
    }

    fn programs(&self, value: &impl Serialize) -> Result<Option<String>, Failure> {
        self.output.common().for_programs(value)
    }

    fn listed<T: ListItem>(&self, listing: Listing<T>) -> Result<String, Failure> {
        let Listing { mut items, lacks } = listing;
        match &self.sort_by {
            Some(field) => sort_by(&mut items, field)?,
            None => items.sort_by(|one, other| by_urgency(&one.view, &other.view)),
        }
        if let Some(text) = self.programs(&items)? {
            return Ok(text);
        }
        if self.output == GetOutput::Name {
            let kind = self.target.kind.singular();
            let lines = items.iter().map(|it| format!("{kind}/{}", it.view.name()));
            return Ok(lines.collect::<Vec<_>>().join("\n"));
        }
        let shown: Vec<T> = items.into_iter().map(|item| item.view).collect();
        let mut parts: Vec<String> = lacks.iter().map(MissingPrerequisite::sentence).collect();
        match shown.is_empty() {
            // As kubectl: a script that counts lines counts none.
            true => terminal::note(NONE_FOUND),
            false => parts.push(self.table(shown)),
        }
        Ok(parts.join("\n\n"))
    }

    fn table<T: ListItem>(&self, shown: Vec<T>) -> String {
        let wide = self.output == GetOutput::Wide;
        let form = TableForm {
            wide,
            namespaces: self.all_namespaces && self.target.kind == Kind::Machines,
            columns: terminal::columns().filter(|_| !wide),
        };
        let skipped = usize::from(self.no_headers);
        let lines = fitted(shown, form).into_iter().skip(skipped);
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Gives the items what their machines say of them, if those are known: filter, table and JSON then have one state.
fn add_what_machines_say<T: ListItem>(items: &mut [Answer<T>], machines: Option<&[Machine]>) {
    for item in items {
        if let Some(machines) = machines {
            item.view = item.view.clone().with(machines);
        }
        if let Some(state) = item.view.derived_state().map(str::to_owned) {
            item.derive("state", &state);
        }
    }
}

/// Order of a table: the most urgent first, then by namespace and name.
fn by_urgency<T: ListItem>(one: &T, other: &T) -> Ordering {
    let urgency = |item: &T| item.urgency().map_or(usize::MAX, |it| it as usize);
    urgency(one)
        .cmp(&urgency(other))
        .then_with(|| one.sort_key().cmp(&other.sort_key()))
}

/// Field with an item's name. Rollouts and pools have none: theirs is that of the pool.
const NAME: &str = "name";

/// Fields of the JSON behind headings of tables, and kubectl's word for the age.
const SORTED_BY: [(&str, &str); 7] = [
    ("age", "created"),
    (".metadata.creationTimestamp", "created"),
    (".metadata.name", NAME),
    ("metadata.name", NAME),
    ("name", NAME),
    ("waiting for", "waitingFor"),
    ("reason", "failure.code"),
];

/// Sorts by a field of the JSON, such as `since` or `failure.code`, or by a heading. Items without it come last.
fn sort_by<T>(items: &mut [Answer<T>], field: &str) -> Result<(), Failure> {
    let small = field.to_lowercase();
    let heading = field == field.to_uppercase();
    let known = SORTED_BY
        .iter()
        .find(|(word, _)| *word == field || heading && *word == small);
    let field = match known {
        Some((_, field)) => field,
        None if heading => small.as_str(),
        None => field,
    };
    let is_there = |name: &str| items.iter().any(|it| it.raw().get(name).is_some());
    let field = match field {
        NAME if !is_there(NAME) && is_there("pool") => "pool",
        field => field,
    };
    let pointer: String = field
        .trim_start_matches('.')
        .split('.')
        .map(|part| format!("/{part}"))
        .collect();
    let found = |item: &Answer<T>| {
        item.raw()
            .pointer(&pointer)
            .filter(|it| !it.is_null())
            .cloned()
    };
    let known = |item: &Answer<T>| item.raw().pointer(&pointer).is_some();
    if !items.is_empty() && !items.iter().any(known) {
        let fields = items.first().and_then(|it| it.raw().as_object());
        let fields: Vec<&str> = fields
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect();
        let near = question(field.trim_start_matches('.'), fields.iter().copied());
        return Err(Failure::Usage(format!(
            "--sort-by {field}: there is no such field{near}\nthe fields are: {}",
            fields.join(", ")
        )));
    }
    items.sort_by(|one, other| compared(found(one).as_ref(), found(other).as_ref()));
    Ok(())
}

fn compared(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => {
                let text = |value: &Value| {
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                };
                text(one).cmp(&text(other))
            }
        },
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        output::table,
        samples::{machine_json, machine_with, rollout_json},
    };
    use dormer_views::problem::ROLLOUT_WORDS;
    use serde_json::json;

    #[test]
    fn a_machines_row_has_its_phase_in_words_and_counts_by_the_clock_of_the_server() {
        let machine =
            machine_with(json!({"version": "v1", "sinceSeconds": 312, "waitingFor": "SSH"}));
        let text = table([&machine], Machine::COLUMNS, false);
        let row = text.lines().nth(1).unwrap_or_default();
        for part in [
            "win-1",
            "Reachable",
            "converging the host",
            "v1",
            "5m12s",
            "1h5m",
            "waits for SSH",
        ] {
            assert!(row.contains(part), "{part}: {text}");
        }
    }

    /// Fields of a rollout whose state for people is `word`.
    fn rollout_that_is(word: &str) -> Value {
        let slot = |more: Value| {
            let mut slot = json!({"token": 4, "holder": "u", "name": "win-1", "marked": false, "seq": 2,
                "since": "2026-11-21T07:00:00.000Z"});
            for (key, value) in more.as_object().expect("fields") {
                slot[key] = value.clone();
            }
            json!([slot])
        };
        let queue = json!([{"uid": "w", "name": "win-2", "position": 1, "away": false}]);
        match word {
            "Running" => json!({"slots": slot(json!({}))}),
            "Waiting" => json!({"queue": queue}),
            "Stopped" => {
                json!({"slots": slot(json!({"stopped": "drained by ann"})), "maxUnavailable": 1})
            }
            "Paused" => json!({"state": word, "paused": "ann"}),
            "Halted" => json!({"state": word, "halted": "win-1 failed"}),
            "Enrolling" => json!({"state": word}),
            _ => json!({}),
        }
    }

    #[test]
    fn the_filter_the_table_and_json_have_one_state_of_a_rollout() {
        for word in ROLLOUT_WORDS {
            let failed = json!({"state": "Failed", "phase": "failed", "failure":
                {"code": "DiskFull", "message": "", "phase": "probing", "phaseText": "probing"}});
            let machine = machine_with(if word == "Stuck" { failed } else { json!({}) });
            let raw = json!({"items": [rollout_json(rollout_that_is(word))]});
            let mut listing: Listing<Progress> = serde_json::from_value(raw).expect("a list");
            add_what_machines_say(&mut listing.items, Some(&[machine]));
            let item = &listing.items[0];
            assert_eq!(item.raw()["state"], word);
            let text = table([&item.view], Progress::COLUMNS, false);
            assert!(text.contains(word), "{word}: {text}");
            let by_state = |state: &str| Filter {
                state: Some(state.into()),
                ..Filter::default()
            };
            let by_selector = |state: &str| Filter {
                selector: Some(format!("state={state}").parse().expect("a selector")),
                ..Filter::default()
            };
            for other in ROLLOUT_WORDS {
                // The urgency of a halted rollout is stuck as well.
                let both = word == "Halted" && other == "Stuck";
                let wanted = other == word || both;
                assert_eq!(by_state(other).takes(&item.view), wanted, "{word}: {other}");
                assert_eq!(
                    by_selector(other).takes(&item.view),
                    wanted,
                    "{word}: {other}"
                );
            }
        }
        let raw = json!({"items": [rollout_json(rollout_that_is("Running"))]});
        let mut listing: Listing<Progress> = serde_json::from_value(raw).expect("a list");
        add_what_machines_say(&mut listing.items, None);
        assert_eq!(
            listing.items[0].raw()["state"],
            "Running",
            "without the right to list machines"
        );
    }

    #[test]
    fn what_is_stuck_comes_first_and_then_the_names() {
        let named = |name: &str, state: &str, phase: &str, seconds: u64| {
            machine_with(
                json!({"name": name, "state": state, "phase": phase, "sinceSeconds": seconds}),
            )
        };
        let mut all = [
            named("a", "Joined", "serving", 9),
            named("c", "Provisioned", "probing", 7_200),
            named("b", "Joined", "serving", 9),
            named("d", "Provisioned", "probing", 1_000),
        ];
        all.sort_by(by_urgency);
        assert_eq!(all.map(|it| it.name), ["c", "d", "a", "b"]);
    }

    #[test]
    fn a_field_sorts_by_number_and_by_text_and_an_unknown_one_is_refused() {
        let answer = |value: Value| serde_json::from_value::<Answer<Value>>(value).unwrap();
        let mut items = [
            json!({"n": 10, "t": "b"}),
            json!({"n": 9, "t": "a", "in": {"x": 1}}),
            json!({"n": null}),
        ]
        .map(answer);
        let order = |items: &[Answer<Value>]| {
            let numbers = items.iter().map(|it| it.raw()["n"].as_u64());
            numbers.collect::<Vec<_>>()
        };
        sort_by(&mut items, ".n").unwrap();
        assert_eq!(order(&items), [Some(9), Some(10), None]);
        sort_by(&mut items, "t").unwrap();
        assert_eq!(order(&items), [Some(9), Some(10), None]);
        sort_by(&mut items, "N").unwrap();
        assert_eq!(order(&items), [Some(9), Some(10), None], "a heading");
        let mut ages = [json!({"created": "2026-02"}), json!({"created": "2026-01"})].map(answer);
        sort_by(&mut ages, "AGE").unwrap();
        assert_eq!(ages[0].raw()["created"], "2026-01");
        sort_by(&mut items, "in.x").unwrap();
        for by in [".metadata.name", "metadata.name", "NAME", "name"] {
            let mut pools = ["b", "a"].map(|pool| answer(rollout_json(json!({"pool": pool}))));
            sort_by(&mut pools, by).unwrap();
            assert_eq!(pools[0].raw()["pool"], "a", "{by}");
            let mut machines =
                ["b", "a"].map(|name| answer(machine_json(json!({"name": name, "pool": "p"}))));
            sort_by(&mut machines, by).unwrap();
            assert_eq!(machines[0].raw()["name"], "a", "{by}");
        }
        let refused = sort_by(&mut items, "colour").unwrap_err().to_string();
        assert!(refused.contains("n, t"), "{refused}");
    }
}
