//! Terminal: its width, its colours, and the only function that writes foreign text to it. Names, messages and output
//! come from hosts, clusters and users. `clean` removes terminal control sequences from them at the very end, so that
//! no command can forget it.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
};

/// Writes lines to standard output.
///
/// # Errors
/// The reader has gone.
pub(super) fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", clean(text, coloured()))?;
    out.flush()
}

/// Overwrites the `drawn` last lines of a terminal.
///
/// # Errors
///
/// The reader has gone.
pub(super) fn redraw(drawn: usize, text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if drawn > 0 {
        write!(out, "\x1b[{drawn}A")?;
    }
    for line in clean(text, coloured()).lines() {
        writeln!(out, "{line}\x1b[K")?;
    }
    write!(out, "\x1b[J")?;
    out.flush()
}

/// Writes lines on a cleared terminal; other outputs get them appended.
///
/// # Errors
///
/// The reader has gone.
pub(super) fn say_anew(text: &str) -> io::Result<()> {
    if columns().is_some() {
        write!(io::stdout().lock(), "\x1b[H\x1b[2J")?;
    }
    say(text)
}

/// Standard output for JSON that is written in pieces.
pub(super) struct JsonOutput;

impl Write for JsonOutput {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(piece);
        io::stdout().write_all(clean(&text, false).as_bytes())?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// Writes a line of dormer's to standard error.
pub fn warn(text: impl Display) {
    let text = clean(&format!("dormer: {text}"), false);
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a remark to standard error, in the words of kubectl and without dormer's name.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", clean(text, false));
}

/// Writes a question to standard error, on which the answer follows.
pub(super) fn ask(question: &str) {
    let mut out = io::stderr();
    let _ = write!(out, "{}", clean(question, false));
    let _ = out.flush();
}

/// Codes of [`Style::paint`], the only sequences of ours in a text.
const PAINTED: [&str; 4] = ["31", "33", "1", "0"];

/// Text without terminal control sequences: control characters except line ends and tabs, and characters that change
/// the writing direction, are written as in JSON, `\u001b`, so that JSON stays equivalent. With `coloured` the codes of
/// [`Style::paint`] stay.
pub(super) fn clean(text: &str, coloured: bool) -> String {
    clean_but(text, if coloured { &PAINTED } else { &[] })
}

/// The same, with the codes of colours that stay.
pub fn clean_but(text: &str, codes: &[&str]) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(steers) {
        cleaned.push_str(&rest[..at]);
        rest = &rest[at..];
        let ours = codes.iter().find_map(|code| {
            let sequence = rest.strip_prefix("\x1b[")?.strip_prefix(code)?;
            sequence.strip_prefix('m').map(|after| (code, after))
        });
        if let Some((code, after)) = ours {
            cleaned.push_str("\x1b[");
            cleaned.push_str(code);
            cleaned.push('m');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\r\n") {
            cleaned.push('\n');
            rest = after;
        } else {
            let mut chars = rest.chars();
            let odd = chars.next().map_or(0, u32::from);
            cleaned.push_str(&format!("\\u{odd:04x}"));
            rest = chars.as_str();
        }
    }
    cleaned.push_str(rest);
    cleaned
}

/// Whether a character acts on a terminal instead of being shown.
fn steers(it: char) -> bool {
    let turns = matches!(it, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (it.is_control() && it != '\n' && it != '\t')
}

/// Style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Something is wrong.
    Bad,
    /// A person has to decide, or something is slow.
    Attention,
    /// Nothing special.
    Plain,
    Heading,
}

impl Style {
    /// `text` in this style, with the escape sequences of ANSI X3.64.
    pub(super) fn paint(self, text: &str, coloured: bool) -> String {
        let code = match self {
            Self::Bad => "31",
            Self::Attention => "33",
            Self::Heading => "1",
            Self::Plain => return text.to_owned(),
        };
        if coloured {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Whether standard output shows colours: it is a terminal, NO_COLOR is unset and TERM is not dumb.
pub(super) fn coloured() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|it| it == "dumb");
    std::io::stdout().is_terminal() && !refused && !dumb
}

/// Columns of the terminal. `None`: standard output is no terminal, and lines may have any length.
pub(super) fn columns() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// Line of at most `columns` characters; a longer one ends in `…`.
pub(super) fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let kept = line.chars().take(columns.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Text broken for the terminal. Other outputs get it as it is.
pub fn fitted(text: &str) -> String {
    columns().map_or_else(|| text.to_owned(), |columns| wrap(text, columns, ""))
}

/// Text in lines of at most `columns` characters, broken at blanks. Later lines begin with `indent`.
pub(super) fn wrap(line: &str, columns: usize, indent: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut current: String = line.chars().take_while(|c| *c == ' ').collect();
    let mut blank = true;
    for word in line.trim_start().split_inclusive(' ') {
        let length = current.chars().count() + word.trim_end().chars().count();
        if length > columns && !blank {
            lines.push(current.trim_end().to_owned());
            indent.clone_into(&mut current);
        }
        current.push_str(word);
        blank = false;
    }
    lines.push(current.trim_end().to_owned());
    lines.join("\n")
}

/// Lines broken for a terminal of so many `columns`, each at its own indent. Lines that begin with `whole` are not broken.
pub(super) fn hung(text: &str, columns: Option<usize>, whole: &[&str]) -> String {
    let Some(columns) = columns else {
        return text.to_owned();
    };
    let lines = text.lines().map(|line| {
        let begin = line.trim_start();
        if whole.iter().any(|it| begin.starts_with(it)) {
            return line.to_owned();
        }
        let indent = line.len() - begin.len();
        // What follows is deeper than what begins there.
        wrap(line, columns, &" ".repeat(indent + 2))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether the locale has more characters than ASCII: not the one that is called C or POSIX.
pub(super) fn more_than_ascii() -> bool {
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"];
    is_more_than_ascii(variables.map(|name| std::env::var(name).ok()))
}

/// The first variable that is set counts.
fn is_more_than_ascii(variables: [Option<String>; 3]) -> bool {
    let mut set = variables.into_iter().flatten().filter(|it| !it.is_empty());
    set.next().is_none_or(|it| it != "C" && it != "POSIX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_at_blanks_and_cut_with_a_mark() {
        assert_eq!(
            wrap("Cause:  one two three", 14, "        "),
            "Cause:  one\n        two\n        three"
        );
        assert_eq!(wrap("  short", 20, ""), "  short");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abc", 4), "abc");
    }

    #[test]
    fn a_long_line_keeps_its_indent_and_a_command_is_whole() {
        let text = "    12  one two\n        three four five\n      $ a command that is long";
        assert_eq!(
            hung(text, Some(18), &["$ "]),
            "    12  one two\n        three four\n          five\n      $ a command that is long"
        );
        assert_eq!(hung(text, None, &[]), text);
    }

    #[test]
    fn the_locale_c_has_ascii_alone() {
        let locale = |all: &str, ctype: &str, lang: &str| {
            is_more_than_ascii([all, ctype, lang].map(|it| Some(it.to_owned())))
        };
        assert!(!locale("C", "", "en_US.UTF-8"));
        assert!(!locale("", "", "POSIX"));
        assert!(locale("", "C.UTF-8", "C"));
        assert!(is_more_than_ascii([None, None, None]), "not said");
    }

    #[test]
    fn what_steers_a_terminal_is_shown_and_our_colours_stay() {
        // A window's title, a screen cleared, a line written over, C1's CSI, a name written backwards, a bell.
        let planted = "a\x1b]0;t\x07b\x1b[2Jc\rd\u{9b}31me\u{202e}f\u{7f}";
        let shown = r"a\u001b]0;t\u0007b\u001b[2Jc\u000dd\u009b31me\u202ef\u007f";
        for coloured in [true, false] {
            assert_eq!(clean(planted, coloured), shown);
        }
        assert_eq!(clean("one\r\ntwo\tthree – ü", true), "one\ntwo\tthree – ü");
        for style in [Style::Bad, Style::Attention, Style::Heading, Style::Plain] {
            let painted = style.paint("x", true);
            assert_eq!(clean(&painted, true), painted);
        }
        assert_eq!(clean("\x1b[31mx", false), r"\u001b[31mx");
        assert_eq!(clean("\x1b[5m", true), r"\u001b[5m", "none of ours");
        let json = serde_json::to_string(planted).expect("JSON");
        let read: String = serde_json::from_str(&clean(&json, false)).expect("still JSON");
        assert_eq!(read, planted, "programs read what was there");
    }

    #[test]
    fn every_command_writes_through_here() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut seen = 0;
        for file in std::fs::read_dir(folder).expect("a folder") {
            let path = file.expect("a file").path();
            let is_code = path.extension().is_some_and(|it| it == "rs");
            if !is_code || path.ends_with("terminal.rs") {
                continue;
            }
            seen += 1;
            let text = std::fs::read_to_string(&path).expect("text");
            for word in [
                "println!",
                "print!",
                "stdout().lock",
                "stdout(), ",
                "stderr()",
            ] {
                assert!(!text.contains(word), "{}: {word}", path.display());
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn colours_are_escape_sequences_on_a_terminal_only() {
        assert_eq!(Style::Bad.paint("x", true), "\x1b[31mx\x1b[0m");
        assert_eq!(Style::Bad.paint("x", false), "x");
        assert_eq!(Style::Plain.paint("x", true), "x");
    }
}
