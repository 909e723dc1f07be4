//! The terminal: its width, and colours where people see them.

use std::io::IsTerminal;

/// Style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Something is wrong.
    Bad,
    /// A person has to decide, or something is slow.
    Attention,
    /// Nothing special.
    Plain,
    /// A heading.
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

/// Whether standard output shows colours: it is a terminal, and neither NO_COLOR nor TERM=dumb says otherwise.
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
    fn colours_are_escape_sequences_on_a_terminal_only() {
        assert_eq!(Style::Bad.paint("x", true), "\x1b[31mx\x1b[0m");
        assert_eq!(Style::Bad.paint("x", false), "x");
        assert_eq!(Style::Plain.paint("x", true), "x");
    }
}
