//! `dormer lint`: checks manifests without a cluster.

use clap::{Args, ValueEnum};
use dormer_lint::{Finding, Flavour, Severity, TEXT_BYTES_MAX, counted, fix, lint};
use serde_json::json;
use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Text below the flags in `--help`.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  dormer lint windows-machineset.yaml deploy/*.yaml
  helm template chart | dormer lint -
  dormer lint --fix windows-machineset.yaml
  dormer lint -o json *.yaml | jq '.findings[].rule'

Exit codes: 0 nothing was found, 1 something was found, 2 a file could not be read, or wrong usage";

/// Exit code of a file that cannot be read. The command line's own mistakes have the same.
const UNREAD: u8 = 2;

/// Arguments of `dormer lint`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Files with manifests, several documents in each; - is the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Profile of the nodes, which says what taint they have
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    profile: ProfileName,
    /// Write the mechanical mends into the files (of the standard input: to the standard output)
    #[arg(long)]
    fix: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Form,
}

/// Built-in profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ProfileName {
    /// The taint is os=Windows
    #[default]
    Openshift,
    /// The taint is os=windows
    Upstream,
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

/// What came of one file.
struct Linted {
    name: String,
    found: Vec<Finding>,
    mended: usize,
}

/// Lints the files, prints the findings, and returns the exit code.
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut all = Vec::new();
    let mut unread = false;
    for path in &options.files {
        match options.file(path) {
            Ok(linted) => all.push(linted),
            Err(why) => {
                unread = true;
                eprintln!("dormer: {}: {why}", path.display());
            }
        }
    }
    // With the mended text on the standard output, findings go to the other one.
    let to_stderr = options.fix && options.files.iter().any(|path| is_stdin(path));
    let text = match options.output {
        Form::Text => text(&all, options.fix),
        Form::Json => json_of(&all),
    };
    if to_stderr {
        eprint!("{text}");
    } else {
        // A reader that closes the pipe early is no failure.
        let _ = write!(std::io::stdout(), "{text}");
    }
    if unread {
        ExitCode::from(UNREAD)
    } else if all.iter().any(|it| !it.found.is_empty()) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Options {
    fn file(&self, path: &Path) -> Result<Linted, String> {
        let text = read(path)?;
        if text.trim().is_empty() {
            return Err("is empty: there is no manifest in it".to_owned());
        }
        let flavour = match self.profile {
            ProfileName::Openshift => Flavour::OpenShift,
            ProfileName::Upstream => Flavour::Upstream,
        };
        let (text, mended) = match self.fix {
            true => self.mended(path, text, flavour)?,
            false => (text, 0),
        };
        let name = if is_stdin(path) {
            "-".to_owned()
        } else {
            path.display().to_string()
        };
        Ok(Linted {
            name,
            found: lint(&text, flavour),
            mended,
        })
    }

    fn mended(
        &self,
        path: &Path,
        text: String,
        flavour: Flavour,
    ) -> Result<(String, usize), String> {
        let (mended, count) = fix(&text, flavour);
        if is_stdin(path) {
            let _ = write!(std::io::stdout(), "{mended}");
        } else if count > 0 {
            std::fs::write(path, &mended).map_err(|error| format!("cannot be written: {error}"))?;
        }
        Ok((mended, count))
    }
}

/// Text of a file, or of the standard input.
fn read(path: &Path) -> Result<String, String> {
    if path.is_dir() {
        return Err("is a folder: give the files in it, such as FOLDER/*.yaml".to_owned());
    }
    let mut bytes = Vec::new();
    let limit = TEXT_BYTES_MAX + 1;
    let done = if is_stdin(path) {
        std::io::stdin().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    done.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(format!("larger than {} MiB", TEXT_BYTES_MAX >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "is no UTF-8 text".to_owned())
}

fn text(all: &[Linted], fixes: bool) -> String {
    let mut lines = String::new();
    let mut errors = 0_usize;
    let mut warnings = 0_usize;
    let mut fixable = 0_usize;
    for Linted {
        name,
        found,
        mended,
    } in all
    {
        for it in found {
            let severity = match it.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            let object = match it.object.as_str() {
                "" => String::new(),
                object => format!("{object}: "),
            };
            let Finding {
                line,
                column,
                message,
                why,
                mend,
                rule,
                ..
            } = it;
            lines += &format!("{name}:{line}:{column}: {severity}: {object}{message} [{rule}]\n");
            lines += &format!("    why:  {why}\n    mend: {mend}\n");
            fixable += usize::from(it.fix.is_some());
            match it.severity {
                Severity::Error => errors += 1,
                Severity::Warning => warnings += 1,
            }
        }
        if *mended > 0 {
            lines += &format!("{name}: {mended} mended\n");
        }
    }
    if errors + warnings > 0 {
        lines += &format!(
            "{}, {}",
            counted(errors, "error"),
            counted(warnings, "warning")
        );
        if fixable > 0 && !fixes {
            lines += &match errors + warnings {
                1 => "; --fix mends it".to_owned(),
                _ => format!("; --fix mends {fixable} of them"),
            };
        }
        lines += "\n";
    }
    lines
}

fn json_of(all: &[Linted]) -> String {
    let findings: Vec<_> = all
        .iter()
        .flat_map(|linted| {
            linted.found.iter().map(|finding| {
                let mut shown = json!(finding);
                shown["file"] = json!(linted.name);
                shown
            })
        })
        .collect();
    let mended: usize = all.iter().map(|it| it.mended).sum();
    let whole = json!({"findings": findings, "mended": mended});
    serde_json::to_string_pretty(&whole).unwrap_or_default() + "\n"
}
