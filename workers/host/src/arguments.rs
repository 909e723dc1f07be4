//! The command line of the program: one that every shell passes on alike, with the document on stdin.

use dormer_profile::{document::Fence, is_sha256};

use crate::paths::program_path;

/// Mode of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// A mode that a worker requests.
    Asked(dormer_profile::invocation::Mode),
    /// Restores what a boot removes, and starts our services. Windows requests it.
    Boot,
}

/// Arguments of a call, besides the document with the desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What to do.
    pub mode: Mode,
    /// The task, echoed in the answer.
    pub task: String,
    /// Its attempt, echoed in the answer.
    pub attempt: u32,
    /// The host fence of this task.
    pub fence: Fence,
    /// Boot for which the call is meant.
    pub boot: Option<String>,
    /// What comes on stdin.
    pub document: Option<Announced>,
    /// SHA-256 of the program that should run, echoed in the answer.
    pub program: String,
}

/// A document that comes on stdin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Exactly so many bytes.
    pub bytes: usize,
    /// Their SHA-256.
    pub sha256: String,
}

/// Longest task id.
const TASK_CHARS_MAX: usize = 300;
/// Longest boot identity.
const BOOT_CHARS_MAX: usize = 64;

/// The line that starts the program, for any shell: no space within a word, no quote, nothing that cmd, PowerShell 5.1
/// or pwsh treat specially, `--key value` alone (docs/field-notes.md, The program's line over SSH).
pub fn command_line(call: &Call) -> Result<String, String> {
    let words = words(call);
    for word in &words {
        if !word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "@._/:-".contains(c))
        {
            return Err(format!(
                "`{word}` holds characters that no command line of ours may hold"
            ));
        }
        if word.starts_with('@') || (word.starts_with('-') && !word.starts_with("--")) {
            return Err(format!("`{word}` begins as no word of ours may"));
        }
    }
    parse(&words)?;
    Ok(format!(
        "{} {}",
        program_path(&call.program),
        words.join(" ")
    ))
}

fn words(call: &Call) -> Vec<String> {
    let mode = match call.mode {
        Mode::Boot => return vec!["boot".into()],
        Mode::Asked(mode) => mode.as_str(),
    };
    let mut words: Vec<String> = vec![mode.into()];
    let mut word = |key: &str, value: String| words.extend([format!("--{key}"), value]);
    word("task", call.task.clone());
    word("attempt", call.attempt.to_string());
    word("generation", call.fence.generation.to_string());
    word("seq", call.fence.seq.to_string());
    word("program", call.program.clone());
    if let Some(boot) = &call.boot {
        word("boot", boot.clone());
    }
    if let Some(document) = &call.document {
        word("bytes", document.bytes.to_string());
        word("sha256", document.sha256.clone());
    }
    words
}

/// Reads the words after the program's own name.
pub fn parse(words: &[String]) -> Result<Call, String> {
    let (mode, rest) = words
        .split_first()
        .ok_or("no mode: probe, plan, apply, renew, remove, reboot, adopt, release or boot")?;
    if mode == "boot" {
        return if rest.is_empty() {
            Ok(boot())
        } else {
            Err("boot takes no arguments".into())
        };
    }
    let mode: dormer_profile::invocation::Mode = mode
        .parse()
        .map_err(|_| format!("there is no mode `{mode}`"))?;
    if !rest.len().is_multiple_of(2) {
        return Err("a key without a value".into());
    }
    let keys = [
        "--task",
        "--attempt",
        "--generation",
        "--seq",
        "--program",
        "--boot",
        "--bytes",
        "--sha256",
    ];
    for (n, pair) in rest.chunks_exact(2).enumerate() {
        let twice = rest
            .chunks_exact(2)
            .take(n)
            .any(|before| before[0] == pair[0]);
        if twice || !keys.contains(&pair[0].as_str()) {
            return Err(format!("`{}` is unknown here, or there twice", pair[0]));
        }
    }
    let value = |key: &str| {
        let found = rest.chunks_exact(2).find(|pair| pair[0] == key);
        found.map(|pair| pair[1].as_str())
    };
    let needed = |key: &str| value(key).ok_or_else(|| format!("`{key}` is missing"));
    fn number<T: std::str::FromStr>(key: &str, text: &str) -> Result<T, String> {
        text.parse()
            .map_err(|_| format!("`{key} {text}` is no number"))
    }
    let call = Call {
        mode: Mode::Asked(mode),
        task: needed("--task")?.to_owned(),
        attempt: number("--attempt", needed("--attempt")?)?,
        fence: Fence {
            generation: number("--generation", needed("--generation")?)?,
            seq: number("--seq", needed("--seq")?)?,
        },
        boot: value("--boot").map(str::to_owned),
        document: match (value("--bytes"), value("--sha256")) {
            (Some(bytes), Some(sha256)) => Some(Announced {
                bytes: number("--bytes", bytes)?,
                sha256: sha256.to_owned(),
            }),
            (None, None) => None,
            _ => return Err("`--bytes` and `--sha256` belong together".into()),
        },
        program: needed("--program")?.to_owned(),
    };
    check(&call, mode)?;
    Ok(call)
}

fn check(call: &Call, mode: dormer_profile::invocation::Mode) -> Result<(), String> {
    if call.task.is_empty() || call.task.len() > TASK_CHARS_MAX {
        return Err("the task is empty or too long".into());
    }
    if call
        .boot
        .as_ref()
        .is_some_and(|boot| boot.is_empty() || boot.len() > BOOT_CHARS_MAX)
    {
        return Err("the boot identity is empty or too long".into());
    }
    if !is_sha256(&call.program) {
        return Err("`--program` is no SHA-256".into());
    }
    let needs = matches!(
        mode,
        dormer_profile::invocation::Mode::Plan
            | dormer_profile::invocation::Mode::Apply
            | dormer_profile::invocation::Mode::Renew
    );
    let may = needs || mode == dormer_profile::invocation::Mode::Adopt;
    match &call.document {
        None if needs => Err(format!("{mode} needs a document")),
        Some(_) if !may => Err(format!("{mode} takes no document")),
        Some(document) if !is_sha256(&document.sha256) => Err("`--sha256` is no SHA-256".into()),
        _ => Ok(()),
    }
}

fn boot() -> Call {
    Call {
        mode: Mode::Boot,
        task: "boot".into(),
        attempt: 1,
        fence: Fence::default(),
        boot: None,
        document: None,
        program: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            mode: Mode::Asked(dormer_profile::invocation::Mode::Apply),
            task: "machine/8f1c2a9e-0b1d@17.0".into(),
            attempt: 2,
            fence: Fence {
                generation: 3,
                seq: 17,
            },
            boot: Some("42".into()),
            document: Some(Announced {
                bytes: 12_345,
                sha256: "ab".repeat(32),
            }),
            program: "cd".repeat(32),
        }
    }

    fn read(line: &str) -> Result<Call, String> {
        let words: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn a_line_says_what_was_meant() {
        let line = command_line(&call()).expect("a line");
        assert!(
            line.starts_with(
                r"C:\Windows\dormer\bin\dormer-host-cdcdcdcdcdcdcdcd.exe apply --task "
            ),
            "{line}"
        );
        assert_eq!(read(&line), Ok(call()));
        let probe = Call {
            mode: Mode::Asked(dormer_profile::invocation::Mode::Probe),
            boot: None,
            document: None,
            ..call()
        };
        assert_eq!(read(&command_line(&probe).expect("a line")), Ok(probe));
        assert_eq!(
            parse(&["boot".into()]).map(|call| call.mode),
            Ok(Mode::Boot)
        );
    }

    #[test]
    fn what_a_shell_would_treat_specially_is_refused() {
        for task in [
            "a b", "a;b", "a\"b", "$x", "a`b", "-Mode", "", "@a", "%OS%", "a(b", "a,b",
        ] {
            assert!(
                command_line(&Call {
                    task: task.into(),
                    ..call()
                })
                .is_err(),
                "{task}"
            );
        }
    }

    #[test]
    fn a_line_that_says_too_little_or_too_much_is_refused() {
        let words =
            |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let program = "cd".repeat(32);
        for (text, why) in [
            (String::new(), "no mode"),
            ("fly".into(), "no mode `fly`"),
            (
                format!("probe --task t --attempt 1 --generation 1 --program {program}"),
                "--seq",
            ),
            (
                format!("probe --task t --attempt x --generation 1 --seq 1 --program {program}"),
                "no number",
            ),
            (
                format!("apply --task t --attempt 1 --generation 1 --seq 1 --program {program}"),
                "needs a document",
            ),
            (
                format!(
                    "probe --task t --task u --attempt 1 --generation 1 --seq 1 --program {program}"
                ),
                "twice",
            ),
            (
                format!(
                    "apply --task t --attempt 1 --generation 1 --seq 1 --program {program} --bytes 3"
                ),
                "belong together",
            ),
            ("boot --task t".into(), "no arguments"),
        ] {
            let said = parse(&words(&text)).expect_err(&text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
