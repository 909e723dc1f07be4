//! Tables of `docs/configuration.md`, generated from the definitions of the flags.

use crate::Options;
use clap::{Arg, Args, Command};
use std::{fmt::Write as _, fs, path::Path};

/// Line before the tables.
const BEGIN: &str =
    "<!-- A test writes these tables: UPDATE_EXPECT=1 cargo test -p dormer-run page -->\n";
/// Line after the tables.
const END: &str = "<!-- End of the tables -->\n";

/// Flag with its value, as typed on a command line.
fn flag(arg: &Arg) -> String {
    let name = arg.get_long().unwrap_or_default();
    let values = arg.get_value_names().unwrap_or_default();
    let value = values.first().map_or("", |value| value.as_str());
    match (arg.get_action().takes_values(), arg.is_require_equals_set()) {
        (false, _) => format!("`--{name}`"),
        (true, true) => format!("`--{name}[={value}]`"),
        (true, false) => format!("`--{name} {value}`"),
    }
}

/// Default in a help text's brackets, and the text without it.
fn default_and_meaning(help: &str) -> (String, String) {
    let Some((before, rest)) = help.split_once(" [default: ") else {
        return ("-".to_owned(), help.to_owned());
    };
    let (default, after) = rest.split_once(']').expect("the bracket is closed");
    (default.to_owned(), format!("{before}{after}"))
}

/// Values of a flag, each with its meaning.
fn choices(arg: &Arg) -> String {
    let mut text = String::new();
    for value in arg.get_possible_values() {
        if let Some(help) = value.get_help() {
            let _ = write!(text, "<br>`{}`: {help}", value.get_name());
        }
    }
    text
}

fn row(arg: &Arg) -> String {
    let variable = arg.get_env().map_or_else(
        || "-".to_owned(),
        |variable| format!("`{}`", variable.to_string_lossy()),
    );
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (default, meaning) = default_and_meaning(&help);
    let cells = [flag(arg), variable, default, meaning + &choices(arg)];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

/// One table for each group of flags in `--help`.
fn tables() -> String {
    let command = Options::augment_args(Command::new("run"));
    let mut text = String::new();
    let mut heading = None;
    for arg in command.get_arguments() {
        if text.is_empty() || heading != arg.get_help_heading() {
            heading = arg.get_help_heading();
            let title = heading.unwrap_or("Flags and variables");
            let _ = write!(
                text,
                "\n## {title}\n\n| flag | variable | default | meaning |\n|---|---|---|---|\n"
            );
        }
        text.push_str(&row(arg));
    }
    text
}

#[test]
fn the_page_has_every_flag_as_it_is_defined() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let committed = fs::read_to_string(&path).expect("the page");
    let (head, rest) = committed.split_once(BEGIN).expect("the tables' beginning");
    let (_, tail) = rest.split_once(END).expect("the tables' end");
    let made = format!("{head}{BEGIN}{}\n{END}{tail}", tables());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &made).expect("written");
        return;
    }
    assert_eq!(committed, made, "run this test with UPDATE_EXPECT=1");
}

#[test]
fn a_default_is_taken_out_of_its_sentence() {
    let (default, meaning) = default_and_meaning("A folder [default: dormer-store], or a server");
    assert_eq!(
        (&*default, &*meaning),
        ("dormer-store", "A folder, or a server")
    );
    assert_eq!(default_and_meaning("A file").0, "-");
}
