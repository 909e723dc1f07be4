//! `dormer migrate`: moves the Windows nodes of the Windows Machine Config Operator (WMCO) to dormer, and back.

mod back;
mod findings;
mod pause;
mod report;
mod steps;
mod survey;
mod writes;

use crate::{cluster_access::ClusterAccess, preflight::read_key};
use clap::{Args, Subcommand, ValueEnum};
use dormer_client::{EXIT_CODES, Failure, finish};
use dormer_lint::Severity;
use dormer_workers::host::HostProgram;
use serde_json::json;
use std::{path::PathBuf, process::ExitCode};
use survey::Survey;
pub(crate) use survey::{WICD, key_hash};

/// Text below the flags of `check` in `--help`.
const CHECK_HELP: &str = "\
Examples:
  dormer migrate check
  dormer migrate check -n dormer -o json

The command reads WMCO's Deployment, lock, Subscription, ClusterServiceVersion, ConfigMaps, account and key, the \
Windows nodes with their annotations and lists of images, the tag mirror sets and the blocked registries. It writes nothing, and needs no running dormer. It says what stands in the way of a move, and \
what to do about each. Warnings alone leave the exit code at 0.";

/// Text below the flags of `next` in `--help`.
const NEXT_HELP: &str = "\
Examples:
  dormer migrate next
  dormer migrate next --do copy-key

The cluster shows which steps are done; dormer keeps no list of its own. --do does a step that dormer can do: copy-key, \
remove-wmco, resume, automatic. It refuses one that is not the next, and any while check finds an error.";

/// Text below the flags of `back` in `--help`.
const BACK_HELP: &str = "\
Examples:
  dormer migrate back win-a
  dormer migrate back win-a --yes --key ~/.ssh/windows --host-program dormer-host.exe
  dormer migrate back --all --yes

A node goes back while its host is as WMCO left it: dormer has taken it over, and not upgraded it. dormer has to let it go \
first, by the label windowsmachineconfig.openshift.io/ignore=true on its Machine. WMCO's version and the hash of its key go \
onto the Node in one patch, then WICD starts on the host as it did before: by the program there if --key and --host-program \
are given, else the command prints how. Without --yes it lists what would be done. docs/migrate-from-wmco.md has all of it.";

/// Commands of `dormer migrate`.
#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Check which parts of WMCO run, and what blocks a move; changes nothing
    #[command(after_help = format!("{CHECK_HELP}\n\n{EXIT_CODES}"))]
    Check(MigrateArgs),
    /// Show all steps of the move: which are done, and why; changes nothing
    #[command(after_help = EXIT_CODES)]
    Status(MigrateArgs),
    /// Name the next step, or do it
    #[command(after_help = format!("{NEXT_HELP}\n\n{EXIT_CODES}"))]
    Next(NextStep),
    /// Give nodes back to WMCO
    #[command(after_help = format!("{BACK_HELP}\n\n{EXIT_CODES}"))]
    Back(Box<Back>),
}

/// Flags of the commands that only read.
#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    access: ClusterAccess,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Form,
}

/// Flags of `dormer migrate next`.
#[derive(Debug, Args)]
pub(crate) struct NextStep {
    #[command(flatten)]
    asked: MigrateArgs,
    /// Do this step
    #[arg(long = "do", value_name = "STEP")]
    step: Option<String>,
}

/// Flags of `dormer migrate back`.
#[derive(Debug, Args)]
pub(crate) struct Back {
    /// Nodes that go back
    #[arg(
        value_name = "NODE",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    nodes: Vec<String>,
    /// All nodes that dormer has not upgraded
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    access: ClusterAccess,
    /// Version of the WMCO that will run [default: the only one with a ConfigMap windows-services-…]
    #[arg(long, value_name = "VERSION")]
    wmco_version: Option<String>,
    /// File with the hosts' private key: dormer starts WICD itself
    #[arg(long, value_name = "FILE", requires = "host_program")]
    key: Option<PathBuf>,
    /// File with dormer-host.exe of this release
    #[arg(long, env = "DORMER_HOST_PROGRAM", value_name = "FILE")]
    host_program: Option<PathBuf>,
    /// User of the login: an administrator
    #[arg(long, default_value = "Administrator", value_name = "NAME")]
    user: String,
    /// SSH port
    #[arg(long, default_value_t = 22)]
    port: u16,
    /// Do it; otherwise only list it
    #[arg(long)]
    yes: bool,
}

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Runs the command, and returns the exit code.
pub(crate) async fn run(asked: Migrate) -> ExitCode {
    finish(match asked {
        Migrate::Check(asked) => asked.check().await,
        Migrate::Status(asked) => asked.status().await,
        Migrate::Next(asked) => asked.run().await,
        Migrate::Back(asked) => asked.run().await,
    })
}

impl MigrateArgs {
    async fn survey(&self) -> Result<Survey, Failure> {
        let client = self.access.client().await?;
        survey::read(&client, &self.access.namespace).await
    }

    async fn check(&self) -> Result<(String, bool), Failure> {
        let survey = self.survey().await?;
        let found = findings::judge(&survey);
        let text = match self.output {
            Form::Text => report::text(&survey, &found),
            Form::Json => format!("{:#}", report::json(&survey, &found)),
        };
        let good = found.iter().all(|it| it.severity == Severity::Warning);
        Ok((text, good))
    }

    async fn status(&self) -> Result<(String, bool), Failure> {
        let survey = self.survey().await?;
        unread(&survey)?;
        let all = steps::steps(&survey);
        let text = match self.output {
            Form::Text => report::steps(&all),
            Form::Json => format!("{:#}", json!({"steps": all})),
        };
        Ok((text, true))
    }
}

/// Refuses a survey with gaps: a caller with partial rights would mistake hidden objects for deleted ones.
fn unread(survey: &Survey) -> Result<(), Failure> {
    match survey.unread.first() {
        None => Ok(()),
        Some(why) => Err(Failure::refused(
            format!("the cluster cannot be read whole: {why}"),
            "use an account that may read it: dormer migrate check says what is missing",
        )),
    }
}

impl NextStep {
    async fn run(&self) -> Result<(String, bool), Failure> {
        let client = self.asked.access.client().await?;
        let survey = survey::read(&client, &self.asked.access.namespace).await?;
        unread(&survey)?;
        if let Some(step) = &self.step {
            let write =
                steps::refusal(&survey, step).map_err(|(why, cure)| Failure::refused(why, cure))?;
            let done = writes::carry_out(&client, &survey, write).await?;
            let mut lines = vec!["Done:".to_owned()];
            lines.extend(done.iter().map(|line| format!("  {line}")));
            lines.extend(steps::after(step).map(|after| format!("then: {after}")));
            return Ok((lines.join("\n"), true));
        }
        let all = steps::steps(&survey);
        let next = all.iter().find(|step| !step.done);
        let text = match self.asked.output {
            Form::Text => report::next(&all),
            Form::Json => format!("{:#}", json!({"next": next})),
        };
        Ok((text, true))
    }
}

impl Back {
    async fn run(&self) -> Result<(String, bool), Failure> {
        let login = self.login()?;
        let client = self.access.client().await?;
        let survey = survey::read(&client, &self.access.namespace).await?;
        unread(&survey)?;
        let nodes = back::chosen(&survey, &self.nodes)?;
        let marks = back::marks(&survey, self.wmco_version.as_deref())?;
        let mut lines = Vec::new();
        let mut good = true;
        for node in nodes {
            let name = &node.name;
            let annotated = format!(
                "  Node {name}: version {}, pub-key-hash {}",
                marks.version, marks.key_hash
            );
            if !self.yes {
                lines.push(annotated);
                lines.push(format!("  Node {name}: WICD starts on its host"));
                continue;
            }
            if let Err(why) = back::mark(&client, node, &marks).await {
                good = false;
                lines.push(format!("{annotated}: FAILED: {why}"));
                continue;
            }
            lines.push(annotated);
            lines.push(match &login {
                None => format!(
                    "  Node {name}: now start WICD on its host: {}",
                    back::manually(node)
                ),
                Some(login) => match back::start(node, login).await {
                    Ok(done) => format!("  Node {name}: given back on its host: {done}"),
                    Err(why) => {
                        good = false;
                        let cure = back::manually(node);
                        format!("  Node {name}: WICD FAILED to start: {why}\n    do: {cure}")
                    }
                },
            });
        }
        let (head, tail) = match (self.yes, lines.is_empty()) {
            (_, true) => ("No node can go back: dormer has upgraded all of them.", ""),
            (true, _) => (
                "Done:",
                "Once WMCO runs, and all nodes that it should have are marked, remove the label ignore=true from their Machines.",
            ),
            (false, _) => (
                "This would be done:",
                "Nothing was changed. Run the same command with --yes to do it.",
            ),
        };
        Ok((
            format!("{head}\n{}\n{tail}", lines.join("\n"))
                .trim_end()
                .to_owned(),
            good,
        ))
    }

    fn login(&self) -> Result<Option<back::SshLogin>, Failure> {
        let (Some(key), Some(program)) = (&self.key, &self.host_program) else {
            return Ok(None);
        };
        let key = read_key(key)?;
        let program = HostProgram::read(program)
            .map_err(|error| Failure::Usage(format!("--host-program: {error}")))?;
        Ok(Some(back::SshLogin {
            user: self.user.clone(),
            port: self.port,
            key,
            program,
        }))
    }
}
