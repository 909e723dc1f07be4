//! `dormer replay`: replays recorded histories with this build, offline. It changes nothing.

mod lines;
mod report;

use clap::Args;
use dormer_api::replay::Fold;
use dormer_client::output::OutputFormat;
use dormer_engine::embedded;
use lines::ExportedLine;
use report::ReplayReport;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Text about exit codes in `--help`.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 this build decides everything as recorded, \
     1 it decides something differently or cannot judge it, 2 wrong usage, or a file or folder of the command line \
     cannot be read";

/// Arguments of `dormer replay`.
#[derive(Debug, Args)]
#[command(override_usage = "dormer replay [OPTIONS] <FILES>... | --store DIR")]
pub(crate) struct Options {
    /// Files with histories (dormer history MACHINE --export FILE) or dumps of stores; - is standard input
    #[arg(required_unless_present = "store", conflicts_with = "store")]
    files: Vec<PathBuf>,
    /// Replay all runs of the store in this folder, which no other process may have open
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Replays, prints the report, and returns the exit code.
pub(crate) fn run(options: Options) -> ExitCode {
    let mut report = ReplayReport::default();
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
    // A reader that closes the pipe early is no failure.
    let _ = writeln!(io::stdout(), "{text}");
    if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn of_file(path: &Path, report: &mut ReplayReport) -> Result<(), String> {
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

/// Streams the store's dump line by line. It opens nothing for writing, and keeps nothing in memory.
fn of_store(folder: &Path, report: &mut ReplayReport) -> Result<(), String> {
    let mut lines = Lines {
        reading: Reading::new(folder.display().to_string(), report),
        part: Vec::new(),
    };
    let dumped = embedded::dump(folder, &mut lines);
    lines.reading.end();
    match dumped {
        Ok(_) => Ok(()),
        Err(why) => Err(format!("--store {}: {why}", folder.display())),
    }
}

/// Source that is being read.
struct Reading<'a> {
    source: String,
    at: usize,
    fold: Fold,
    report: &'a mut ReplayReport,
}

impl<'a> Reading<'a> {
    fn new(source: String, report: &'a mut ReplayReport) -> Self {
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
            Ok(ExportedLine::Head | ExportedLine::Beside) => {}
            Ok(ExportedLine::Record { run, seq, envelope }) => {
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

/// Writer that splits a dump into lines.
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
