//! Exit codes of the commands that need no running dormer, and of commands that find none: one table for all of them.

use dormer_testkit::{free_port, test_dir};
use std::process::{Command, Stdio};

/// Exit code, command line, and a part of what is printed. `@` is a folder that is there and empty, `@/no` a file that
/// is not there, `PORT` a port on which no process listens.
const TABLE: &[(i32, &str, &str)] = &[
    // Done.
    (0, "version", "commit"),
    (0, "completions bash", "complete"),
    (0, "man @/pages", ""),
    (0, "profile schema", "properties"),
    (0, "profile render", "kubernetes"),
    (0, "run --print-config", "slots"),
    // Failed, or a problem was found.
    (
        1,
        "lint @/broken.yaml",
        "1 error, 0 warnings; --fix mends it",
    ),
    (1, "lint @/two.yaml", "1 error, 0 warnings\n"),
    (1, "profile render --layer @/layer.yaml", "unknown field"),
    (1, "payload list @/payloads", "1 of 1 is not readable"),
    (1, "payload verify @/payloads/a", "missing field"),
    (1, "keys make -o @/no/keys", "No such file"),
    (1, "pool import -f @/layer.yaml", "--filename @/layer.yaml"),
    // Wrong usage, or a file or folder of the command line cannot be read.
    (2, "lint @/no", "@/no: No such file"),
    (
        2,
        "profile render --layer @/no",
        "--layer @/no: No such file",
    ),
    (
        2,
        "profile render --layer @/no/x",
        "--layer @/no/x: No such file",
    ),
    (
        2,
        "profile render --payload @",
        "--payload @/payload.yaml: No such file",
    ),
    (
        2,
        "profile render --payload @/no",
        "--payload @/no/payload.yaml: No such file",
    ),
    (
        2,
        "profile render --facts @/no/x",
        "--facts @/no/x: No such file",
    ),
    (
        2,
        "profile render --secret a=@/no/x",
        "--secret @/no/x: No such file",
    ),
    (
        2,
        "profile render --profile opnshift",
        "did you mean openshift?",
    ),
    (
        2,
        "payload verify @",
        "DIR @: the folder has no payload.yaml",
    ),
    (2, "payload verify @/no", "DIR @/no: No such file"),
    (2, "payload list @/no", "DIR @/no: No such file"),
    (2, "payload list @/pages", "has a payload.yaml"),
    (2, "payload copy @/no @/to", "DIR @/no: No such file"),
    (
        2,
        "payload make @/new --version 1.0.0 --kubelet 1.33 --from @/no",
        "--from @/no: No such file",
    ),
    (
        2,
        "payload make @/new --version 1.0.0 --kubelet 1.33 --from-wmco @/no",
        "--from-wmco @/no: No such file",
    ),
    (
        2,
        "payload make @/new --version 1.0.0 --kubelet 1.33 --profile upsteam",
        "did you mean upstream?",
    ),
    (
        2,
        "pool import -f @/no/x",
        "--filename @/no/x: No such file",
    ),
    (
        2,
        "pool import --kubeconfig @/no",
        "--kubeconfig @/no: No such file",
    ),
    (
        2,
        "uninstall --kubeconfig @/no",
        "--kubeconfig @/no: No such file",
    ),
    (
        2,
        "uninstall --kubeconfig @/kubeconfig --context nope",
        "nope",
    ),
    (
        2,
        "migrate check --kubeconfig @/no",
        "--kubeconfig @/no: No such file",
    ),
    (2, "install", "helm install dormer deploy/chart"),
    (2, "migrate", "check"),
    (2, "migrate back", "<NODE>"),
    (
        2,
        "migrate back win-a --key @/no --host-program @/no",
        "--key @/no: No such file",
    ),
    (2, "ssh-key", "rotate"),
    (2, "ssh-key rotate", "--new <FILE>"),
    (2, "ssh-key rotate --new @/no", "--new @/no: No such file"),
    (
        1,
        "ssh-key rotate --new @/layer.yaml",
        "--new: the SSH private key cannot be read",
    ),
    (
        2,
        "ssh-key finish --kubeconfig @/no",
        "--kubeconfig @/no: No such file",
    ),
    (2, "verify", "<NODE>"),
    (
        2,
        "verify win-a --kubeconfig @/no",
        "--kubeconfig @/no: No such file",
    ),
    (2, "preflight", "dormer preflight --cluster"),
    (
        2,
        "preflight --self-test h --key @/layer.yaml",
        "--self-test also needs --host-program FILE",
    ),
    (
        2,
        "preflight --self-test h --key @/no --host-program @/layer.yaml",
        "--key @/no: No such file",
    ),
    (
        2,
        "preflight --cluster --kubeconfig @/no",
        "--kubeconfig @/no: No such file",
    ),
    (
        2,
        "preflight --cluster --kubeconfig @/kubeconfig --as system:serviceaccount:x",
        "NAMESPACE:NAME",
    ),
    (
        2,
        "preflight --self-test h --key @/layer.yaml --host-program @/layer.yaml --record @/made",
        "--perform-program <FILE>",
    ),
    (2, "preflight --as nonsense", "dormer preflight --cluster"),
    (2, "replay @/no", "@/no: No such file"),
    (2, "replay --store @/no", "--store @/no"),
    (
        2,
        "store check --store @/no",
        "--store @/no: there is no such folder",
    ),
    (
        2,
        "store check --config @/no",
        "--config @/no: No such file",
    ),
    (2, "store key --store @/store", "--history-keys"),
    (2, "run --history-keys @/no", "--history-keys: @/no"),
    (
        2,
        "store dump --store @/no --to -",
        "--store @/no: there is no such folder",
    ),
    (
        2,
        "store restore --from @/no --store @/new-store",
        "--from @/no: No such file",
    ),
    (2, "run --config @/no", "--config @/no: No such file"),
    (2, "run --config @/layer.yaml", "--config @/layer.yaml"),
    (2, "run --slots 0", "--slots 0"),
    (
        2,
        "bench engine --store sqlite",
        "memory, embedded or nats://",
    ),
    (2, "bench engine --engines 2", "give --store nats://"),
    (2, "bench failover", "--store"),
    (
        2,
        "bench burst --store nats://127.0.0.1:1 --idle 5",
        "--monitor",
    ),
    (
        2,
        "bench overload --store nats://127.0.0.1:1 --times 0",
        "--times 0",
    ),
    (
        2,
        "status --server http://127.0.0.1:PORT --token-file @/no",
        "--token-file @/no: No such file",
    ),
    (
        2,
        "status --kubeconfig @/no",
        "--kubeconfig @/no: No such file",
    ),
    (
        2,
        "plan --payload @",
        "--payload @/payload.yaml: No such file",
    ),
    (2, "plan --profile @/no/x", "--profile @/no/x: No such file"),
    (2, "get machinse", "a similar value exists: 'machines'"),
    (2, "get machines --state failled", "did you mean Failed?"),
    (2, "get rollouts --state idel", "did you mean Idle?"),
    (2, "rollback windows -to 11.0.0", "'--to'"),
    (2, "get machines -l colour=red", "the keys are: name"),
    (2, "get machines -l nmae=x", "did you mean name?"),
    (2, "get machines -l state=Joind", "did you mean Joined?"),
    (
        2,
        "get machines -l phase=nope",
        "its values are: address-wait",
    ),
    (2, "get machines --colour", "dormer: unexpected argument"),
    (
        2,
        "get --straegy x machines",
        "the flags of dormer get are: ",
    ),
    (4, "why rollout/windows", "Check that dormer runs there"),
    (2, "dead-letters show x", "give the number under ID"),
    (2, "lint @", "@: is a folder"),
    (
        2,
        "verify win-a",
        "KUBECONFIG is @/no, which cannot be read",
    ),
    (2, "run", "KUBECONFIG is @/no, which cannot be read"),
    (
        2,
        "status --context nope",
        "KUBECONFIG is @/no, which cannot be read",
    ),
    (
        2,
        "describe machine",
        "give one name: KIND NAME, or KIND/NAME",
    ),
    (2, "wait m --for phase=bogus", "the phases are: "),
    (2, "wait m --for=phase=probign", "did you mean probing?"),
    (2, "wait m --for=state=Joind", "did you mean Joined?"),
    // No answer.
    (4, "status --server http://127.0.0.1:PORT", "no answer from"),
    (
        4,
        "get machine/win-1 --server http://127.0.0.1:PORT",
        "no answer from",
    ),
    (
        4,
        "describe machine/win-1 --server http://127.0.0.1:PORT",
        "no answer from",
    ),
    (
        4,
        "rollback windows --to 1.0.0 --server http://127.0.0.1:PORT",
        "no answer from",
    ),
    (
        4,
        "drain win-1 --server http://127.0.0.1:PORT",
        "no answer from",
    ),
    (
        4,
        "wait m --for=state=Joined --server http://127.0.0.1:PORT",
        "no answer from",
    ),
    (
        4,
        "wait m --for=delete --server http://127.0.0.1:PORT",
        "no answer from",
    ),
    (
        4,
        "uninstall --kubeconfig @/kubeconfig",
        "no answer from the cluster's API server",
    ),
    (
        4,
        "pool import --kubeconfig @/kubeconfig",
        "no answer from the cluster's API server",
    ),
    (
        4,
        "migrate check --kubeconfig @/kubeconfig",
        "no answer from the cluster's API server",
    ),
    (
        4,
        "verify win-a --kubeconfig @/kubeconfig",
        "no answer from the cluster's API server",
    ),
    (
        4,
        "preflight --cluster --kubeconfig @/kubeconfig",
        "no answer from the cluster's API server",
    ),
];

/// Rows of builds with the demonstration.
#[cfg(feature = "demo")]
const SIMULATED: &[(i32, &str, &str)] = &[
    (0, "demo --list-faults", "flapping"),
    (
        2,
        "demo --faults flaping",
        "did you mean flapping?\nthe form is NAME[=MACHINES]",
    ),
    (2, "demo --manifest @/no", "--manifest @/no: No such file"),
    (
        2,
        "demo --manifest @/layer.yaml",
        "no MachineSet in it has a Windows machine",
    ),
    (2, "demo --machines 0", "--machines 0"),
    (2, "demo --set x", "--set"),
    (
        2,
        "fleet --faults flaping --kubeconfig @/fleet",
        "did you mean flapping?",
    ),
    (
        2,
        "fleet --manifest @/layer.yaml --kubeconfig @/fleet",
        "no MachineSet in it has a Windows machine",
    ),
    (2, "fleet --speed 0", "above 0"),
];
#[cfg(not(feature = "demo"))]
const SIMULATED: &[(i32, &str, &str)] = &[];

const BROKEN: &str = "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: w}\nhandler: \
                      runhcs-wcow-process\n";
const TWO: &str = "a: b: c\n";
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: \
                          'http://127.0.0.1:PORT'}}]\nusers: [{name: a, user: {token: t}}]\ncontexts: [{name: a, \
                          context: {cluster: a, user: a}}]\n";

#[test]
fn every_command_ends_with_the_code_of_one_table_and_names_the_flag() {
    let folder = test_dir("exit-codes");
    let here = folder.path().display().to_string();
    let port = free_port().to_string();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text.replace("PORT", &port)).expect("written");
    };
    write("broken.yaml", BROKEN);
    write("two.yaml", TWO);
    write("layer.yaml", "host: {filez: {}}\n");
    write("kubeconfig", KUBECONFIG);
    write("payloads/a/payload.yaml", "version: 1.0.0\n");
    let mut wrong = String::new();
    for (code, line, part) in TABLE.iter().chain(SIMULATED) {
        let fill = |text: &str| text.replace('@', &here).replace("PORT", &port);
        let line = fill(line);
        let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(line.split(' '))
            .env_remove("DORMER_SERVER")
            .env_remove("DORMER_HOST_PROGRAM")
            .env("KUBECONFIG", folder.path().join("no"))
            .stdin(Stdio::null())
            .output()
            .expect("dormer runs");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        if output.status.code() != Some(*code) || !text.contains(&fill(part)) {
            let ended = output.status.code();
            wrong += &format!(
                "dormer {line}\n  ended with {ended:?}, not {code}; wanted: {part}\n{text}\n"
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A script that saves an answer would take an empty file for it.
#[cfg(target_os = "linux")]
#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    for line in ["version -o json", "profile schema", "completions bash"] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("a full disk");
        let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(line.split(' '))
            .stdin(Stdio::null())
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .expect("dormer runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("No space left on device"), "{line}: {said}");
    }
}

#[test]
fn the_page_has_the_table_of_the_help() {
    let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .args(["why", "--help"])
        .output()
        .expect("dormer runs");
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = include_str!("../docs/tour.md");
    let table = page.split("## Exit codes").nth(1).expect("a section");
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| ")?
                .strip_suffix(" |")?
                .split_once(" | ")
        })
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .collect();
    assert_eq!(rows.len(), 5, "{rows:?}");
    for (code, meaning) in rows {
        assert!(
            help.contains(&format!("{code} {meaning}")),
            "{code} {meaning}: {help}"
        );
    }
}

#[test]
fn the_help_of_every_command_has_its_exit_codes() {
    let help = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_dormer"))
            .args(words)
            .arg("--help")
            .output()
            .expect("dormer runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // A command is a line that is indented by two columns, below a heading.
    let commands = |text: &str, from: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with(from));
        let before_options = lines.take_while(|line| *line != "Options:");
        let names = before_options.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        names
            .filter(|name| !name.is_empty() && *name != "help")
            .map(str::to_owned)
            .collect()
    };
    let all = commands(&help(&[]), "See what happens:");
    assert!(all.len() > 30, "{all:?}");
    let mut without = Vec::new();
    for name in &all {
        let text = help(&[name]);
        let below = commands(&text, "Commands:");
        if below.is_empty() && !text.contains("Exit codes: 0") {
            without.push(name.clone());
        }
        for inner in below {
            if !help(&[name, &inner]).contains("Exit codes: 0") {
                without.push(format!("{name} {inner}"));
            }
        }
    }
    assert!(
        without.is_empty(),
        "no exit codes in the help of {without:?}"
    );
}
