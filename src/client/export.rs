//! `dormer history --export`: a run's history as JSON lines, for `dormer replay` and for archives.
//!
//! The first line describes the file. Each further line is a record: its view for people, and its stored envelope in
//! base64 (the format is in `src/replay/lines.rs`).

use super::{Failure, server::Server, terminal::JsonOutput};
use dormer_views::export::FORMAT;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Records in one request.
const PAGE: usize = 100;

/// Page of a history with records of type `T`.
#[derive(Debug, Deserialize)]
pub(super) struct Page<T> {
    run: String,
    pub(super) items: Vec<T>,
    next: Option<u64>,
    schema: Option<u64>,
    incarnation: Option<String>,
    build: Option<String>,
}

impl<T> Page<T> {
    /// First record of the next page. A page whose successor does not advance ends the list, so that no page is
    /// requested twice.
    pub(super) fn next_after(&self, from: u64) -> Option<u64> {
        self.next.filter(|next| *next > from)
    }
}

/// Line of the file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum ExportLine<'a> {
    /// First line.
    History(Head<'a>),
    /// Each further line.
    Record(RecordLine<'a>),
}

/// Description of the file.
#[derive(Debug, Serialize)]
struct Head<'a> {
    format: u64,
    schema: u64,
    incarnation: &'a str,
    run: &'a str,
    build: Option<&'a str>,
}

/// Record as received, including fields that only a newer build knows.
#[derive(Debug, Serialize)]
struct RecordLine<'a> {
    run: &'a str,
    #[serde(flatten)]
    record: &'a Map<String, Value>,
}

/// Writes the history of the run at the path `run` into `file` (`-`: standard output). Returns the number of
/// records.
///
/// # Errors
/// The server does not answer, or the file cannot be written. An existing file stays unchanged then.
pub(super) async fn export(server: &Server, run: &str, file: &Path) -> Result<usize, Failure> {
    if file.as_os_str() == "-" {
        return lines(server, run, &mut JsonOutput).await;
    }
    // A truncated file would read as a shorter history.
    let unfinished = PathBuf::from(format!("{}.part", file.display()));
    let failed = |why: io::Error| cannot_write(file, &why);
    let mut out = BufWriter::new(File::create(&unfinished).map_err(failed)?);
    let written = lines(server, run, &mut out).await;
    match written {
        Ok(records) => {
            out.flush()
                .and_then(|()| fs::rename(&unfinished, file))
                .map_err(failed)?;
            Ok(records)
        }
        Err(why) => {
            let _ = fs::remove_file(&unfinished);
            Err(why)
        }
    }
}

async fn lines(server: &Server, run: &str, out: &mut dyn Write) -> Result<usize, Failure> {
    let mut next = Some(1);
    let mut records = 0;
    while let Some(from) = next {
        let path = format!("{run}/history?from={from}&limit={PAGE}&envelopes=true");
        let page: Page<Map<String, Value>> = server.get(&path).await?;
        if from == 1 {
            put(out, &ExportLine::History(head(&page)?))?;
        }
        next = page.next_after(from);
        for record in &page.items {
            let run = &page.run;
            put(out, &ExportLine::Record(RecordLine { run, record }))?;
        }
        records += page.items.len();
    }
    Ok(records)
}

fn head<T>(page: &Page<T>) -> Result<Head<'_>, Failure> {
    let (Some(schema), Some(incarnation)) = (page.schema, &page.incarnation) else {
        return Err(Failure::refused(
            "the server is older than this command and cannot export histories",
            "use the dormer command of the server's version",
        ));
    };
    Ok(Head {
        format: FORMAT,
        schema,
        incarnation,
        run: &page.run,
        build: page.build.as_deref(),
    })
}

fn put(out: &mut dyn Write, line: &ExportLine<'_>) -> Result<(), Failure> {
    let written = serde_json::to_string(line).map_err(io::Error::from);
    written
        .and_then(|line| writeln!(out, "{line}"))
        .map_err(|why| cannot_write(Path::new("the history"), &why))
}

fn cannot_write(file: &Path, why: &io::Error) -> Failure {
    Failure::refused(
        format!("{} cannot be written: {why}", file.display()),
        "name another file",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_say_what_the_file_is_and_hold_whole_records() {
        let page: Page<Map<String, Value>> = serde_json::from_value(json!({
            "run": "machine/u", "items": [{"seq": 1, "envelope": "AA==", "colour": "blue"}], "next": 1,
            "schema": 1, "incarnation": "i", "build": "0.1.0",
        }))
        .unwrap();
        assert_eq!(page.next_after(1), None, "it would not lead on");
        let mut out = Vec::new();
        put(&mut out, &ExportLine::History(head(&page).unwrap())).unwrap();
        let run = page.run.as_str();
        let record = &page.items[0];
        put(&mut out, &ExportLine::Record(RecordLine { run, record })).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            lines,
            [
                json!({"history": {"format": FORMAT, "schema": 1, "incarnation": "i", "run": "machine/u",
                    "build": "0.1.0"}}),
                json!({"record": {"run": "machine/u", "seq": 1, "envelope": "AA==", "colour": "blue"}}),
            ]
        );
    }
}
