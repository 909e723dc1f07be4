//! `cargo tier`: runs a tier of the tests, or builds their servers.

mod sbom;

use std::{
    path::Path,
    process::{Command, ExitCode},
};

use dormer_testkit::tier::{self, PARTS, Part, Running};
use dormer_testkit::{
    Etcd, Helm, Kubernetes, NatsServer, NatsVersion, OtlpReceiver, Start, Wine, agnhost, cache,
    host_program,
};

const USAGE: &str = "usage: cargo tier fast | full | long PART,… | list | servers | windows | sbom FOLDER
  fast      pure tests only: no server, no process of dormer
  full      what `cargo test --workspace` runs
  long      the named parts of the long tier (`all`: each of them); a test that passed on this tree is not run again
  list      the parts of the long tier
  servers   builds the servers of the full tier, and prints where they are kept
  windows   builds dormer-host.exe, and makes the prefix of Wine that its tests copy
  sbom      writes the bills of material of dormer and dormer-host.exe (CycloneDX) into a folder";

/// The variables that choose what runs. Those of the caller are not passed on.
const CHOOSING: [&str; 3] = [tier::TIER, tier::LONG, "DORMER_KUBERNETES"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["fast"] => test(&["--workspace"], &[(tier::TIER, "fast")]),
        ["full"] => test(&["--workspace"], &[]),
        ["long", ref names @ ..] => long(names),
        ["list"] => list(),
        ["servers"] => servers(),
        ["windows"] => windows(),
        ["sbom", folder] => sbom::write(Path::new(folder)).map(|paths| {
            paths.iter().for_each(|path| print(path));
        }),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print(&why);
            ExitCode::from(2)
        }
    }
}

fn print(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `cargo test` with these arguments and variables.
fn test(select: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(program);
    cargo.arg("test").args(select);
    // What our own cargo set would have build scripts run again, and ring compiled anew.
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ours(&name) || CHOOSING.contains(&name.as_ref()) {
            cargo.env_remove(name.as_ref());
        }
    }
    match cargo.envs(env.iter().copied()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!(
            "`cargo test {}` failed: {status}",
            select.join(" ")
        )),
        Err(error) => Err(format!("cargo cannot be started: {error}")),
    }
}

/// Runs the named parts, all of them even if some fail.
fn long(names: &[&str]) -> Result<(), String> {
    let names = names.iter().flat_map(|word| word.split(','));
    let names: Vec<&str> = names
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    if names.is_empty() {
        return Err("no part is named; `cargo tier list` prints them".to_owned());
    }
    let known = |name: &str| name == "all" || PARTS.iter().any(|part| part.name == name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        return Err(format!(
            "there is no part {name:?}; `cargo tier list` prints them"
        ));
    }
    let wanted = |part: &&Part| names.contains(&"all") || names.contains(&part.name);
    let mut failed = Vec::new();
    for part in PARTS.iter().filter(wanted) {
        print(&format!(
            "== {}: {} (about {} min)",
            part.name, part.what, part.minutes
        ));
        if let Err(why) = run(part) {
            print(&format!("{}: {why}", part.name));
            failed.push(part.name);
        }
    }
    match failed[..] {
        [] => Ok(()),
        _ => Err(format!("failed: {}", failed.join(", "))),
    }
}

/// Runs one part. A part of which no test ran has failed.
fn run(part: &Part) -> Result<(), String> {
    if let Some(name) = part.needs.filter(|name| std::env::var_os(name).is_none()) {
        return Err(format!("it needs the variable {name}"));
    }
    let folder = dormer_testkit::test_dir("tier");
    let passed = folder.path().join("passed");
    std::fs::write(&passed, "").map_err(|error| error.to_string())?;
    let file = passed.display().to_string();
    // What is missing fails, as in CI: a part that skips itself has shown nothing.
    let mut env = vec![
        (tier::LONG, part.name),
        (tier::TALLY, &file),
        ("CI", "true"),
    ];
    env.extend(part.env);
    let running = part.whole.then(|| Running::new(*part, "all"));
    if running.as_ref().is_some_and(Running::has_passed) {
        print("it passed on this tree");
        return Ok(());
    }
    test(part.select, &env)?;
    if let Some(running) = running {
        running.passed(&[]);
        return Ok(());
    }
    let lines = std::fs::read_to_string(&passed).map_err(|error| error.to_string())?;
    if lines.is_empty() {
        return Err("none of its tests ran".to_owned());
    }
    Ok(())
}

fn list() -> Result<(), String> {
    for part in PARTS {
        print(&format!(
            "{:<18} {:>3} min  {}",
            part.name, part.minutes, part.what
        ));
    }
    Ok(())
}

fn windows() -> Result<(), String> {
    let told = |why: dormer_testkit::Skipped| format!("{}: {}", why.server, why.reason);
    let program = host_program().map_err(told)?;
    print(&program.program.display().to_string());
    match Wine::start() {
        Start::Started(wine) => print(&format!("{} can be copied", wine.drive().display())),
        Start::Skipped(why) => return Err(told(why)),
    }
    Ok(())
}

fn servers() -> Result<(), String> {
    let programs = [
        NatsServer::program(NatsVersion::Current),
        NatsServer::program(NatsVersion::Oldest),
        OtlpReceiver::program(),
        Etcd::program(),
        Kubernetes::api_server(),
        Helm::program(),
        agnhost::program(),
    ];
    for program in programs {
        let program = program.map_err(|why| format!("{}: {}", why.server, why.reason))?;
        print(&program.display().to_string());
    }
    let folder = cache::servers_dir().map_err(|error| format!("{error:#}"))?;
    print(&format!("What was built is kept in {}", folder.display()));
    Ok(())
}
