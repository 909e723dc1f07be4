//! `dormer support-bundle`: what a person needs who helps, in one file, without secrets.

mod redact;

use clap::Args;
use dormer_client::{
    EXIT_CODES, Failure, finish,
    server::{Server, ServerAddress, segment},
};
use dormer_lint::counted;
use dormer_proto::id::Timestamp;
use dormer_views::{
    machine::Machine,
    moment::time,
    problem::{Urgency, problem},
};
use flate2::{Compression, write::GzEncoder};
use redact::redacted;
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

/// Most machines whose histories and remote commands are taken.
const MACHINES_MAX: usize = 20;
/// Most records of a history, the latest ones.
const RECORDS_MAX: u64 = 300;
/// States of machines that need no help, unless something else is wrong with them.
const FINE: [&str; 2] = ["Joined", "Gone"];

/// What a bundle holds: the file, and what is in it. `docs/support-bundle.md` has the same table.
pub(crate) const CONTENTS: &[(&str, &str)] = &[
    (
        "README.txt",
        "this table, the build, and what could not be read",
    ),
    (
        "version.json",
        "the build of this command, and that of the server",
    ),
    (
        "machines.json",
        "all machines with state, phase, cause, versions, Node, tasks",
    ),
    (
        "rollouts.json",
        "the rollouts with queue, holders, the obstacles to the next lease",
    ),
    (
        "pools.json",
        "the pools' settings, as their rollouts know them",
    ),
    ("tasks.json", "open tasks with their progress"),
    ("quarantine.json", "quarantined runs with the cause"),
    (
        "dead-letters.json",
        "dead letters with the reason, without their content",
    ),
    (
        "histories/rollout-POOL.json",
        "the latest 300 records of each rollout",
    ),
    (
        "histories/machine-NAME.json",
        "the same of up to 20 machines that need attention or do not serve",
    ),
    (
        "commands/machine-NAME.json",
        "the latest remote commands of these machines, with the ends of their output",
    ),
];

/// Lists that are taken whole: the file, and its path in the API.
const LISTS: [(&str, &str); 6] = [
    ("machines.json", "/machines?all=true"),
    ("rollouts.json", "/rollouts"),
    ("pools.json", "/pools"),
    ("tasks.json", "/tasks"),
    ("quarantine.json", "/quarantine"),
    ("dead-letters.json", "/dead-letters"),
];

/// Text below the flags in `--help`.
const AFTER_HELP: &str = "\
Secrets, tokens, keys, passwords and user data are replaced by [secret], by the names of fields and by their form, also in \
reasons that people typed. Names and addresses of machines stay: read the file before you send it (tar -xzf FILE).";

/// Arguments of `dormer support-bundle`.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// File to write, an archive (tar.gz), which must not be there yet; - is standard output [default:
    /// dormer-support-HOST-TIME.tar.gz, with the host of the cluster's API server or of --server]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    address: ServerAddress,
}

/// Writes the bundle, and returns the exit code.
pub(crate) async fn run(options: Options) -> ExitCode {
    finish(options.run().await.map(|text| (text, true)))
}

impl Options {
    async fn run(&self) -> Result<String, Failure> {
        let server = self.address.server();
        let bundle = Bundle::collected(&server).await?;
        let to = match &self.to {
            Some(to) => to.clone(),
            None => named(server.host().await?, SystemTime::now()),
        };
        let to_stdout = to == Path::new("-");
        let bytes = bundle.archive();
        let written = bytes.and_then(|bytes| match to_stdout {
            true => io::stdout().write_all(&bytes),
            false => write(&to, &bytes),
        });
        written.map_err(|why| not_written(&to, &why))?;
        if to_stdout {
            return Ok(String::new());
        }
        let unread = match bundle.unread.len() {
            0 => String::new(),
            count => format!(
                "; {} could not be read (README.txt)",
                counted(count, "part")
            ),
        };
        let left_out = match bundle.left_out {
            0 => String::new(),
            count => format!(
                "\nThe bundle has the histories of {MACHINES_MAX} machines that need attention or do not serve, and not of \
                 {count} more: dormer history MACHINE -o json prints one"
            ),
        };
        Ok(format!(
            "wrote {} to {}{unread}{left_out}\nSecrets were taken out. Read it before you send it: tar -xzf {1}",
            counted(bundle.count(), "file"),
            to.display()
        ))
    }
}

/// Build of the server: it stands beside the records of a run that are read as they are stored. Null: the server refuses that.
///
/// # Errors
/// No server answers.
async fn server_build(server: &Server, of: &Value) -> Result<Value, Failure> {
    let path = format!("{}/history?limit=1&envelopes=true", run_path(of));
    match server.get::<Value>(&path).await {
        Ok(history) => Ok(json!({"version": history["build"], "workflows": history["schema"]})),
        Err(silent @ (Failure::Unreachable { .. } | Failure::NoCluster(_))) => Err(silent),
        Err(_) => Ok(Value::Null),
    }
}

/// How soon a helper asks for a machine's history: first what is stuck, then what else needs attention, then what does not
/// serve. `None`: it serves, and nothing is wrong with it.
fn order_of_need(machine: &Value) -> Option<u8> {
    let state = machine["state"].as_str().unwrap_or_default();
    let shown = serde_json::from_value::<Machine>(machine.clone()).ok();
    let found = shown.and_then(|it| problem(&it));
    let order = match found.map(|it| it.urgency) {
        Some(Urgency::Stuck) => 0,
        Some(Urgency::Person | Urgency::Slow) => 1,
        Some(Urgency::OnPurpose) | None => 2,
    };
    (order < 2 || !FINE.contains(&state)).then_some(order)
}

/// Path of a run in the API.
fn run_path(of: &Value) -> String {
    let run = of["run"].as_str().unwrap_or_default();
    let (workflow, key) = run.split_once('/').unwrap_or((run, ""));
    format!("/runs/{}/{}", segment(workflow), segment(key))
}

/// Name of a file for a bundle of the dormer at `host`, taken at `now`.
fn named(host: &str, now: SystemTime) -> PathBuf {
    let since = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let at = time(Timestamp(
        u64::try_from(since.as_millis()).unwrap_or_default(),
    ));
    // 2026-11-26T11:30:00.000Z without what a file's name may not have on Windows.
    let at: String = at
        .split('.')
        .next()
        .unwrap_or_default()
        .replace(['-', ':'], "");
    format!("dormer-support-{}-{at}Z.tar.gz", plain(host)).into()
}

/// The text as a file's name: dashes replace all other characters.
fn plain(text: &str) -> String {
    let kept = text.chars().map(|c| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' => c,
        _ => '-',
    });
    kept.collect()
}

/// Failure to write the bundle. A folder that is not there is a mistake on the command line.
fn not_written(to: &Path, why: &io::Error) -> Failure {
    let shown = to.display();
    match (why.kind(), to.parent()) {
        (io::ErrorKind::NotFound, Some(folder)) => Failure::Usage(format!(
            "--to {shown}: there is no folder {}\nmake it, or name a file elsewhere",
            folder.display()
        )),
        _ => Failure::refused(format!("--to {shown}: {why}"), ""),
    }
}

/// Writes a new file that only its owner may read. A file or a link that is there already is left alone: it may be
/// another user's, and open to others.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let opened = options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(
            error.kind(),
            "something of this name is there already; remove it, or name another file",
        ),
        _ => error,
    });
    io::Write::write_all(&mut opened?, bytes)
}

/// Files of a bundle.
#[derive(Debug, Default)]
struct Bundle {
    files: Vec<(String, Value)>,
    /// What could not be read, with the reason.
    unread: Vec<String>,
    /// How many machines that need attention or do not serve are without their history.
    left_out: usize,
}

impl Bundle {
    /// Asks the server for everything.
    ///
    /// # Errors
    /// No server answers. What it refuses is noted.
    async fn collected(server: &Server) -> Result<Self, Failure> {
        let mut bundle = Self::default();
        for (file, path) in LISTS {
            bundle.take(server, file, path).await?;
        }
        let items = |file: &str| -> Vec<Value> {
            let found = bundle.files.iter().find(|(name, _)| name == file);
            let items = found.and_then(|(_, value)| value["items"].as_array());
            items.cloned().unwrap_or_default()
        };
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let rollouts = items("rollouts.json");
        let mut any = rollouts.iter().cloned().chain(items("machines.json"));
        let mut version = crate::version::json();
        version["server"] = match any.next() {
            Some(run) => server_build(server, &run).await?,
            None => Value::Null,
        };
        let all = items("machines.json").into_iter();
        let needed = all.filter_map(|it| Some((order_of_need(&it)?, it)));
        let mut machines: Vec<(u8, Value)> = needed.collect();
        machines.sort_by_key(|(order, _)| *order);
        bundle.files.insert(0, ("version.json".into(), version));
        bundle.left_out = machines.len().saturating_sub(MACHINES_MAX);
        machines.truncate(MACHINES_MAX);
        for rollout in rollouts {
            let file = format!("rollout-{}", text(&rollout, "pool"));
            bundle.history(server, &file, &rollout).await?;
        }
        for (_, machine) in machines {
            let file = format!("machine-{}", text(&machine, "name"));
            bundle.history(server, &file, &machine).await?;
            let path = format!("/machines/{}/commands", segment(&text(&machine, "uid")));
            bundle
                .take(server, &format!("commands/{file}.json"), &path)
                .await?;
        }
        Ok(bundle)
    }

    /// Takes the latest records of a run.
    async fn history(&mut self, server: &Server, file: &str, of: &Value) -> Result<(), Failure> {
        let last = of["seq"].as_u64().unwrap_or_default();
        let from = last.saturating_sub(RECORDS_MAX).max(1);
        let path = format!("{}/history?from={from}&limit={RECORDS_MAX}", run_path(of));
        self.take(server, &format!("histories/{file}.json"), &path)
            .await
    }

    async fn take(&mut self, server: &Server, file: &str, path: &str) -> Result<(), Failure> {
        match server.get::<Value>(path).await {
            Ok(value) => {
                let name = self.free_name(file);
                self.files.push((name, value));
            }
            Err(silent @ (Failure::Unreachable { .. } | Failure::NoCluster(_))) => {
                return Err(silent);
            }
            Err(why) => self.unread.push(format!("{file}: {why}")),
        }
        Ok(())
    }

    /// A name of an entry: inside the bundle's folder, whatever a machine is called, and different from the others.
    fn free_name(&self, file: &str) -> String {
        let (folder, name) = file.split_once('/').unwrap_or(("", file));
        let name = plain(name);
        let stem = name.strip_suffix(".json").unwrap_or(&name);
        let mut candidate = Path::new(folder).join(&name);
        let mut count = 1;
        while (self.files.iter()).any(|(taken, _)| Path::new(taken) == candidate) {
            count += 1;
            candidate = Path::new(folder).join(format!("{stem}-{count}.json"));
        }
        candidate.display().to_string()
    }

    /// How many files the archive has: README.txt is one more.
    fn count(&self) -> usize {
        self.files.len() + 1
    }

    /// The archive, with everything redacted.
    fn archive(&self) -> io::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        add(&mut archive, "README.txt", &self.readme())?;
        for (name, value) in &self.files {
            let text = serde_json::to_string_pretty(&redacted(value))?;
            add(&mut archive, name, &text)?;
        }
        archive.into_inner()?.finish()
    }

    fn readme(&self) -> String {
        let mut text = "What dormer support-bundle collected. Secrets, tokens, keys, passwords and user data are \
                        replaced by [secret].\n\n"
            .to_owned();
        for (file, what) in CONTENTS {
            text += &format!("{file:28} {what}\n");
        }
        if !self.unread.is_empty() {
            text += "\nNot read:\n";
            for one in &self.unread {
                text += &format!("{}\n", redact::text(one));
            }
        }
        text
    }
}

fn add<W: io::Write>(archive: &mut tar::Builder<W>, name: &str, text: &str) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o600);
    header.set_cksum();
    archive.append_data(
        &mut header,
        format!("dormer-support/{name}"),
        text.as_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Read;

    #[test]
    fn a_folder_that_is_not_there_is_a_mistake_of_the_command_line() {
        let said = |to: &str, kind: io::ErrorKind| not_written(Path::new(to), &kind.into());
        let missing = said("/no/x.tgz", io::ErrorKind::NotFound);
        assert_eq!(
            missing,
            Failure::Usage(
                "--to /no/x.tgz: there is no folder /no\nmake it, or name a file elsewhere".into()
            )
        );
        let full = said("/x.tgz", io::ErrorKind::StorageFull);
        assert!(matches!(full, Failure::Refused { .. }), "{full}");
    }

    #[test]
    fn a_bundles_name_has_the_cluster_and_the_time() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_795_421_400);
        let name = |host| named(host, now).display().to_string();
        assert_eq!(
            name("api.prod.example.com"),
            "dormer-support-api.prod.example.com-20261123T081000Z.tar.gz"
        );
        assert_eq!(
            name("[::1]"),
            "dormer-support----1--20261123T081000Z.tar.gz"
        );
    }

    /// Texts that no bundle may hold.
    const PLANTED: [&str; 17] = [
        "hunter2-of-ann",
        "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJlLW9mLWl0",
        "abcdef.0123456789abcdef",
        "sha256~Zk3vJ8xq0bWc1dYeT5uR7pLm9nQs2aHf4gKj6iOt",
        "AKIAIOSFODNN7EXAMPLE",
        "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz",
        "<powershell>Add-LocalGroupMember of-the-user-data</powershell>",
        "c2VjcmV0LWluLWEtZmllbGQ",
        "s3cr3t-in-a-url",
        "basic-dXNlcjpwYXNz",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "the-session-cookie",
        "pw-in-compact-json",
        "pw-of-an-environment",
        "pw-in-a-connection",
        "pw-before-a-host",
        "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyMTIz",
    ];

    /// A value with every planted text in each of the places where one could stand.
    fn planted() -> Value {
        let [
            password,
            jwt,
            bootstrap,
            openshift,
            aws,
            key,
            data,
            field,
            url,
            basic,
            github,
            cookie,
            compact,
            environment,
            connection,
            before_host,
            base64,
        ] = PLANTED;
        json!({
            "reason": format!("asked by ann: retry (password is {password})"),
            "failure": {"code": "Other", "message": format!("HTTP 401: Authorization: Bearer {jwt}")},
            "message": format!("kubelet: bootstrap token {bootstrap} was refused"),
            "waitingFor": format!("oc login --token={openshift}"),
            "commands": [format!("set AWS_ACCESS_KEY_ID={aws}"), format!("git clone https://{github}@github.com/x")],
            "output": format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{key}\n-----END OPENSSH PRIVATE KEY-----"),
            "userData": data, "user_data": {"inner": data}, "clientSecret": field, "apiKey": field,
            "lines": [format!("mirror https://robot:{url}@registry.corp/v2"), format!("Authorization: Basic {basic}")],
            "headers": {"Cookie": cookie, "Set-Cookie": [cookie]},
            "password": {"value": password}, "passwords": [password],
            "compact": format!("{{\"user\":\"ann\",\"password\":\"{compact}\"}}"),
            "env": [{"name": "DB_PASSWORD", "value": environment}, {"name": "MODE", "value": "fast"}],
            "database": format!("Server=db;User=sa;Password={connection};Timeout=5 robot:{before_host}@registry.corp"),
            "found": format!("content {base64} of a file"),
            "name": "win-a", "token": 7, "phase": "serving",
        })
    }

    fn unpacked(bundle: &Bundle) -> Vec<(String, String)> {
        entries(&bundle.archive().expect("an archive"))
    }

    /// Names and texts of an archive's files.
    fn entries(bytes: &[u8]) -> Vec<(String, String)> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes));
        let entries = archive.entries().expect("entries").map(|entry| {
            let mut entry = entry.expect("an entry");
            let name = entry.path().expect("a path").display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            (name, text)
        });
        entries.collect()
    }

    #[test]
    fn no_planted_secret_is_in_any_file_and_what_helps_stays() {
        let mut bundle = Bundle::default();
        for (file, _) in LISTS {
            bundle
                .files
                .push((file.to_owned(), json!({"items": [planted()]})));
        }
        let history = json!({"run": "machine/u", "items": [{"events": [planted()]}]});
        bundle
            .files
            .push(("histories/machine-win-a.json".into(), history));
        bundle
            .unread
            .push(format!("x: the token={} is refused", PLANTED[3]));
        let files = unpacked(&bundle);
        assert_eq!(files.len(), LISTS.len() + 2);
        assert_eq!(files.len(), bundle.count());
        for (name, text) in &files {
            for secret in PLANTED {
                assert!(!text.contains(secret), "{name}: {secret}\n{text}");
            }
        }
        let (_, machines) = &files[1];
        for stays in [
            "win-a",
            "\"token\": 7",
            "serving",
            "asked by ann: retry",
            "HTTP 401",
            "Server=db;User=sa;",
            "Timeout=5",
            "\"fast\"",
        ] {
            assert!(machines.contains(stays), "{stays}: {machines}");
        }
    }

    /// A server with so many failed machines.
    async fn server_with(failed: usize) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let machine = |at: usize| {
            json!({"run": format!("machine/u{at}"), "uid": format!("u{at}"), "name": format!("win-{at}"),
                "state": "Failed", "seq": 9})
        };
        let machines: Vec<Value> = (0..failed).map(machine).collect();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut request = [0; 4_096];
                let length = stream.read(&mut request).await.expect("a request");
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let body = match request.split_whitespace().nth(1).unwrap_or_default() {
                    "/api/v1/machines?all=true" => json!({"items": machines}),
                    path if path.contains("/history?limit=1&envelopes=true") => {
                        json!({"build": "9.9.9", "schema": 17, "items": []})
                    }
                    _ => json!({"items": []}),
                };
                let body = body.to_string();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).await.expect("sent");
            }
        });
        format!("http://{address}")
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[tokio::test]
    async fn a_bundle_says_which_build_answered_and_how_many_histories_it_lacks() {
        use clap::Parser as _;
        let folder = tempfile::tempdir().expect("a folder");
        for (failed, lacks) in [(MACHINES_MAX, false), (MACHINES_MAX + 1, true)] {
            let to = folder.path().join(failed.to_string());
            let url = server_with(failed).await;
            let line = ["x", "--server", &url, "--to", to.to_str().expect("a path")];
            let Line { options } = Line::try_parse_from(line).expect("options");
            let text = options.run().await.expect("a bundle");
            let said = "The bundle has the histories of 20 machines that need attention or do not serve, and not of 1 more: \
                        dormer history MACHINE -o json prints one";
            assert_eq!(text.contains(said), lacks, "{text}");
            let files = entries(&std::fs::read(&to).expect("the bundle"));
            let histories = files
                .iter()
                .filter(|(name, _)| name.contains("/histories/"));
            assert_eq!(histories.count(), MACHINES_MAX);
            let version = files
                .iter()
                .find(|(name, _)| name.ends_with("version.json"));
            let (_, version) = version.expect("version.json");
            let version: Value = serde_json::from_str(version).expect("JSON");
            assert_eq!(
                version["server"],
                json!({"version": "9.9.9", "workflows": 17})
            );
        }
    }

    #[test]
    fn a_machine_that_serves_and_is_stuck_is_the_first_one_that_a_helper_needs() {
        let machine = |state: &str, phase: &str| {
            json!({"name": "m", "namespace": "", "uid": "u", "state": state, "phase": phase, "phaseText": phase,
                "differs": [], "pool": "windows", "deleting": false, "machineConditions": [], "served": false,
                "tasks": [], "run": "machine/u", "seq": 9, "enteredSeq": 7, "began": "2026-11-21T06:00:00.000Z",
                "since": "2026-11-21T07:00:00.000Z", "sinceSeconds": 9})
        };
        let serving = machine("Joined", "serving");
        assert_eq!(order_of_need(&serving), None);
        assert_eq!(order_of_need(&machine("Provisioned", "probing")), Some(2));
        let mut quarantined = serving;
        quarantined["quarantine"] = json!({"code": "RecordRefused", "why": "it is too large",
            "since": "2026-11-21T07:00:00.000Z", "builds": []});
        assert_eq!(order_of_need(&quarantined), Some(0));
        // A server of another build may send what this one cannot read.
        assert_eq!(order_of_need(&json!({"state": "Failed"})), Some(2));
        assert_eq!(order_of_need(&json!({"state": "Gone"})), None);
    }

    #[test]
    fn no_name_of_a_machine_leaves_the_folder_or_hides_another() {
        let mut bundle = Bundle::default();
        for name in ["../../etc/x", "a b", "a-b", "a/b", "a-b"] {
            let name = bundle.free_name(&format!("histories/machine-{name}.json"));
            bundle.files.push((name, json!({})));
        }
        let mut names: Vec<String> = unpacked(&bundle).into_iter().map(|file| file.0).collect();
        assert!(names.iter().all(|name| {
            let mut parts = name.split('/');
            parts.next() == Some("dormer-support") && !parts.any(|part| part == "..")
        }));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "{names:?}");
    }

    #[test]
    fn a_file_that_is_there_already_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bundle");
        std::fs::write(&path, "of another").expect("a file");
        let why = write(&path, b"new").expect_err("it is there");
        assert!(why.to_string().contains("another file"), "{why}");
        assert_eq!(std::fs::read(&path).expect("a file"), b"of another");
        std::fs::remove_file(&path).expect("removed");
        write(&path, b"new").expect("a new file");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&path).expect("a file").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_page_has_the_table_of_what_is_in_it() {
        let page = include_str!("../../docs/support-bundle.md");
        for (file, what) in CONTENTS {
            let row = format!("| `{file}` | {what} |");
            assert!(page.contains(&row), "{row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, CONTENTS.len());
        for (file, _) in LISTS {
            assert!(CONTENTS.iter().any(|(known, _)| *known == file), "{file}");
        }
    }
}
