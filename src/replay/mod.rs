//! `dormer replay`: recorded histories, folded with this build, offline. It changes nothing.

mod lines;
mod report;

use clap::Args;
use dormer_api::replay::Fold;
use dormer_client::output::Output;
use dormer_engine::embedded;
use lines::Line;
use report::Report;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// What `--help` says about exit codes.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 this build decides everything as recorded, \
     1 something otherwise, or something cannot be judged, 2 used wrongly";

/// What is replayed.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Histories (dormer history MACHINE --export FILE), or dumps of stores; - is standard input
    #[arg(required_unless_present = "store", conflicts_with = "store")]
    files: Vec<PathBuf>,
    /// All runs of the store in this folder, which no other process may have open
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Replays, prints, and says by the exit code whether this build decides as was recorded.
pub(crate) fn run(options: Options) -> ExitCode {
    let mut report = Report::default();
    let read = match &options.store {
        Some(folder) => of_store(folder, &mut report),
        None => options
            .files
            .iter()
            .try_for_each(|file| of_file(file, &mut report)),
    };
    if let Err(why) = read {
        eprintln!("dormer: {why}");
        return ExitCode::from(2);
    }
    let value = serde_json::to_value(&report).unwrap_or_default();
    let text = match options.output.for_programs(&value) {
        Ok(text) => text.unwrap_or_else(|| report.to_string()),
        Err(why) => why.to_string(),
    };
    // A reader that has seen enough closes the pipe: no failure of ours.
    let _ = writeln!(io::stdout(), "{text}");
    if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn of_file(path: &Path, report: &mut Report) -> Result<(), String> {
    let failed = |why: io::Error| format!("{}: {why}", path.display());
    let reader: Box<dyn BufRead> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(BufReader::new(File::open(path).map_err(failed)?)),
    };
    let mut reading = Reading::new(path.display().to_string(), report);
    for line in reader.split(b'\n') {
        reading.line(&line.map_err(failed)?);
    }
    reading.end();
    Ok(())
}

/// Reads the store as its dump has it, line by line: nothing is opened for writing, and nothing kept.
fn of_store(folder: &Path, report: &mut Report) -> Result<(), String> {
    let mut lines = Lines {
        reading: Reading::new(folder.display().to_string(), report),
        part: Vec::new(),
    };
    let dumped = embedded::dump(folder, &mut lines);
    lines.reading.end();
    match dumped {
        Ok(_) => Ok(()),
        Err(why) => Err(why.to_string()),
    }
}

/// One source being read.
struct Reading<'a> {
    source: String,
    at: usize,
    fold: Fold,
    report: &'a mut Report,
}

impl<'a> Reading<'a> {
    fn new(source: String, report: &'a mut Report) -> Self {
        report.next_source();
        Self {
            source,
            at: 0,
            fold: Fold::default(),
            report,
        }
    }

    fn line(&mut self, bytes: &[u8]) {
        self.at += 1;
        let text = String::from_utf8_lossy(bytes);
        if text.trim().is_empty() {
            return;
        }
        match lines::read(&text, self.at == 1) {
            Ok(Line::Head | Line::Beside) => {}
            Ok(Line::Record { run, seq, envelope }) => {
                let judgement = self.fold.next(&run, seq, &envelope);
                self.report.take(&run, seq, judgement);
            }
            Err(why) => self.report.strange(&self.source, self.at, &why.to_string()),
        }
    }

    fn end(&mut self) {
        if self.at == 0 {
            self.report.strange(&self.source, 0, "is empty");
        }
    }
}

/// Takes a dump in as it is written.
struct Lines<'a> {
    reading: Reading<'a>,
    part: Vec<u8>,
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.part.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.part);
                self.reading.line(&line[..line.len() - 1]);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
