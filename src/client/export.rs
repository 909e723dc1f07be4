//! `dormer history --export`: a run's history as JSON lines, for `dormer replay` and for people who keep it.
//!
//! The first line says what the file is; each further one is a record: what people read of it, and its envelope as
//! the store has it, in base64 (`src/replay/lines.rs` has the form).

use super::{Failure, get::list, server::Server};
use dormer_views::export::FORMAT;
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Records asked for at once.
const PAGE: usize = 100;

/// Writes the history of the run at `run` into `file` (`-`: standard output); answers how many records it has.
///
/// # Errors
/// Nobody answers, or the file cannot be written; then there is no file of that name, or the one that was.
pub(super) async fn export(server: &Server, run: &str, file: &Path) -> Result<usize, Failure> {
    if file.as_os_str() == "-" {
        return lines(server, run, &mut io::stdout().lock()).await;
    }
    // A file that is cut off would be taken for a shorter history.
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
        let page = server.get(&path).await?;
        if from == 1 {
            put(out, &head(&page)?)?;
        }
        // A page that does not lead on would be asked for over and over.
        next = page["next"].as_u64().filter(|next| *next > from);
        let name = page["run"].clone();
        for mut record in list(page) {
            record["run"] = name.clone();
            put(out, &json!({ "record": record }))?;
            records += 1;
        }
    }
    Ok(records)
}

fn head(page: &Value) -> Result<Value, Failure> {
    let schema = &page["schema"];
    let incarnation = &page["incarnation"];
    if schema.is_null() || incarnation.is_null() {
        return Err(Failure::Refused {
            error: "the server is older than this command, and exports no histories".into(),
            what_to_do: "ask with the dormer command of the server's version".into(),
        });
    }
    Ok(json!({"history": {
        "format": FORMAT, "schema": schema, "incarnation": incarnation,
        "run": page["run"], "build": page["build"],
    }}))
}

fn put(out: &mut dyn Write, line: &Value) -> Result<(), Failure> {
    writeln!(out, "{line}").map_err(|why| cannot_write(Path::new("the history"), &why))
}

fn cannot_write(file: &Path, why: &io::Error) -> Failure {
    Failure::Refused {
        error: format!("{} cannot be written: {why}", file.display()),
        what_to_do: "name another file".into(),
    }
}
