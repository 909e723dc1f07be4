//! Actions of a person: commands of dormer through its real client, commands of kubectl on the simulated API server,
//! and the generic actions on the simulated world.

use axum::Router;
use clap::Parser;
use dormer_api::{
    Api,
    access::{self, Gate},
};
use dormer_client::ApiCommand;
use dormer_fleet::{
    World,
    api::{DeleteOptions, Key, User, kinds},
    cluster::client::Client,
    world::Remedy,
};
use dormer_proto::phase::Listed;
use dormer_views::{
    actions::{ACTIONS, Action},
    explain::{Explanation, Outside},
};
use dormer_workers::ssh::fingerprint;
use serde_json::{Map, Value, json};
use std::{net::SocketAddr, sync::Arc};
use tokio::net::TcpListener;

/// Words of commands that only read.
pub(super) const READS: &[&str] = &[
    "get", "describe", "why", "status", "plan", "logs", "history",
];
/// Words of commands that change something.
pub(super) const VERBS: &[&str] = &[
    "delete",
    "label",
    "uncordon",
    "retry",
    "recreate",
    "resume",
    "approve",
    "abort",
    "unquarantine",
];

/// Commands of `dormer` that call a running dormer.
#[derive(Debug, Parser)]
#[command(name = "dormer")]
struct CommandLine {
    #[command(subcommand)]
    ask: ApiCommand,
}

/// Person over one dormer.
pub(super) struct Person {
    server: String,
}

impl Person {
    /// Serves the API on the loopback address.
    pub(super) async fn over(api: Arc<Api>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let pages: Router = dormer_console::with_api(Arc::clone(&api));
        let router = access::around(pages, api, Gate::loopback());
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self {
            server: format!("http://{address}"),
        }
    }

    /// Output of `dormer why MACHINE -o json`.
    pub(super) async fn why(&self, machine: &str) -> Result<Explanation, String> {
        let text = self
            .dormer(&["dormer", "why", machine, "-o", "json"])
            .await?;
        serde_json::from_str(&text).map_err(|why| format!("{why}: {text}"))
    }

    /// Runs a command unchanged, and says yes where it asks. The clock continues meanwhile, since the client uses real
    /// sockets.
    async fn dormer(&self, argv: &[&str]) -> Result<String, String> {
        // A step names the server by itself.
        let named = argv.contains(&"--server");
        let server = ["--server", &self.server];
        let server = server.iter().filter(|_| !named);
        let asks = |action: &&Action| action.danger.is_some() && argv.get(1) == Some(&action.name);
        let yes = ACTIONS.iter().find(asks).map(|_| &"--yes");
        let line = CommandLine::try_parse_from(argv.iter().chain(server).chain(yes));
        let line = line.map_err(|why| format!("{argv:?}: {why}"))?;
        tokio::time::resume();
        let answer = dormer_client::answer(line.ask).await;
        tokio::time::pause();
        answer.map_err(|why| format!("{argv:?}: {why}"))
    }

    /// Runs a step's command unchanged.
    pub(super) async fn command(&self, world: &World, argv: &[String]) -> Result<(), String> {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        match words.first() {
            Some(&"dormer") => self.dormer(&words).await.map(drop),
            Some(&"kubectl") => kubectl(world, &words[1..])
                .await
                .map_err(|why| format!("{words:?}: {why}")),
            _ => Err(format!("{words:?} is no command")),
        }
    }

    /// Does a step that is outside of dormer.
    pub(super) async fn outside(
        &self,
        world: &World,
        outside: Outside,
        machine: &str,
    ) -> Result<(), String> {
        let remedy = Remedy::ALL.iter().find(|it| it.name() == outside.id());
        let remedy = remedy.ok_or_else(|| format!("nobody can do {outside}"))?;
        let done = world.remedy(*remedy, machine).await;
        done.map_err(|refusal| format!("{outside}: {refusal}"))?;
        match outside {
            Outside::TrustHostKey => self.trust(world, machine).await,
            _ => Ok(()),
        }
    }

    /// Trusts the key that was read on the host itself, as the step says: no command for it is ready to be copied.
    async fn trust(&self, world: &World, machine: &str) -> Result<(), String> {
        let hosts = world.hosts.as_ref().map(|hosts| hosts.all());
        let mut hosts = hosts.unwrap_or_default().into_iter();
        let host = hosts.find(|host| host.name() == machine);
        let keys = host.map(|host| host.host_keys()).unwrap_or_default();
        let key = keys.iter().find(|key| key.starts_with("ssh-ed25519 "));
        let shown = key.map(|key| fingerprint(key)).unwrap_or_default();
        let print = shown.split(' ').next_back().unwrap_or_default();
        let trust = ["dormer", "trust-host-key", machine, "--fingerprint", print];
        let reason = ["--why", "the host was reinstalled"];
        let words: Vec<&str> = trust.into_iter().chain(reason).collect();
        self.dormer(&words).await.map(drop)
    }
}

/// The commands of kubectl that steps have.
async fn kubectl(world: &World, words: &[&str]) -> Result<(), String> {
    let client = Client::new(&world.api, User::admin());
    let mut namespace = "";
    let mut rest = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-n" => namespace = words.next().ok_or("-n what?")?,
            "-o" => drop(words.next()),
            "-A" | "--show-managed-fields" => {}
            "--field-selector" => drop(words.next()),
            word => rest.push(word),
        }
    }
    let refused = |refusal: dormer_fleet::api::Refusal| refusal.to_string();
    let kind = |word: &str| {
        let called = |it: &&kinds::Kind| {
            let kind = it.kind.to_lowercase();
            word == it.plural
                || word == kind
                || it.short.contains(&word)
                || word == format!("{kind}.{}", it.group)
        };
        // As with kubectl, a name without a group is that of the first group in the alphabet.
        let found = kinds::ALL.iter().filter(called).min_by_key(|it| it.group);
        found.ok_or_else(|| format!("no kind {word}"))
    };
    match rest.as_slice() {
        ["get" | "describe", one] => kind(one).map(drop),
        ["get" | "describe", one, name] => {
            let there = client.get(kind(one)?, &Key::new(namespace, *name));
            there
                .map(drop)
                .ok_or_else(|| format!("{one} {name} is not there"))
        }
        ["delete", one, name] => {
            let key = Key::new(namespace, *name);
            let options = DeleteOptions::default();
            let deleted = client.delete(kind(one)?, &key, &options).await;
            deleted.map_err(refused)
        }
        ["uncordon", name] => {
            let uncordon = json!({"spec": {"unschedulable": null}});
            let key = Key::new("", *name);
            let done = client.merge(&kinds::NODE, &key, &uncordon).await;
            done.map(drop).map_err(refused)
        }
        ["taint", "nodes", name, taint] => {
            let parts = taint.split_once(':').zip(taint.split_once('='));
            let ((_, effect), (key, value)) = parts.ok_or("KEY=VALUE:EFFECT")?;
            let value = value.trim_end_matches(effect).trim_end_matches(':');
            let taints = json!([{"key": key, "value": value, "effect": effect}]);
            let key = Key::new("", *name);
            let taints = json!({"spec": {"taints": taints}});
            let done = client.merge(&kinds::NODE, &key, &taints).await;
            done.map(drop).map_err(refused)
        }
        ["label", one, name, label] => {
            let (key, value) = match label.split_once('=') {
                Some((key, value)) => (key, json!(value)),
                None => (label.trim_end_matches('-'), Value::Null),
            };
            let labels = Map::from_iter([(key.to_owned(), value)]);
            let labels = json!({"metadata": {"labels": labels}});
            let key = Key::new(namespace, *name);
            let done = client.merge(kind(one)?, &key, &labels).await;
            done.map(drop).map_err(refused)
        }
        other => Err(format!("no command {other:?}")),
    }
}
