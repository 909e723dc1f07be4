//! `cargo tier`: runs a tier of the tests, or builds their servers.

use std::process::{Command, ExitCode};

use dormer_testkit::tier::{self, PARTS};
use dormer_testkit::{Etcd, Kubernetes, NatsServer, NatsVersion, OtlpReceiver, cache};

const USAGE: &str = "usage: cargo tier fast | full | long PART,… | list | servers
  fast      pure tests only: no server, no process of dormer
  full      what `cargo test --workspace` runs
  long      the named parts of the long tier (`all`: each of them); a part that passed at this commit is not run again
  list      the parts of the long tier
  servers   builds the servers of the full tier, and prints where they are kept";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["fast"] => test(&["--workspace"], &[(tier::TIER, "fast")]),
        ["full"] => test(&["--workspace"], &[]),
        ["long", ref names @ ..] if !names.is_empty() => long(names),
        ["list"] => list(),
        ["servers"] => servers(),
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

fn test(select: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .arg("test")
        .args(select)
        .envs(env.iter().copied())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!(
            "`cargo test {}` failed: {status}",
            select.join(" ")
        )),
        Err(error) => Err(format!("cargo cannot be started: {error}")),
    }
}

fn long(names: &[&str]) -> Result<(), String> {
    let names: Vec<&str> = names
        .iter()
        .flat_map(|word| word.split(','))
        .filter(|word| !word.is_empty())
        .collect();
    let unknown = names
        .iter()
        .find(|name| **name != "all" && PARTS.iter().all(|part| part.name != **name));
    if let Some(name) = unknown {
        return Err(format!(
            "there is no part {name:?}; `cargo tier list` prints them"
        ));
    }
    for part in PARTS
        .iter()
        .filter(|part| names.contains(&"all") || names.contains(&part.name))
    {
        print(&format!(
            "== {}: {} (about {} min)",
            part.name, part.what, part.minutes
        ));
        let mut env = vec![(tier::LONG, part.name)];
        env.extend(part.env);
        test(part.select, &env)?;
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

fn servers() -> Result<(), String> {
    let programs = [
        NatsServer::program(NatsVersion::Current),
        NatsServer::program(NatsVersion::Oldest),
        OtlpReceiver::program(),
        Etcd::program(),
        Kubernetes::api_server(),
    ];
    for program in programs {
        print(
            &program
                .map_err(|why| format!("{}: {}", why.server, why.reason))?
                .display()
                .to_string(),
        );
    }
    print(&format!(
        "All of them are kept in {}",
        cache::servers_dir().display()
    ));
    Ok(())
}
