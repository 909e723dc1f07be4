//! Readable text of PowerShell's stderr: CLIXML is decoded, progress records are dropped.
//!
//! With stderr on a pipe Windows PowerShell writes `#< CLIXML` and an XML document of its streams (docs/field-notes.md,
//! Output of PowerShell), mixed with plain text of other programs. The result is for people: no decision depends on it.

/// Start of a CLIXML document.
const MARK: &str = "#< CLIXML";
/// Most characters of readable text. Longer text is cut at the end.
pub const READABLE_CHARS_MAX: usize = 4_096;

/// The text of an stderr, in lines joined by `\n`. Bytes that are no UTF-8 (a code page of the host) become `\u{fffd}`.
#[must_use]
pub fn readable(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let mut found = String::new();
    let mut rest: &str = &text;
    while let Some(at) = rest.find(MARK) {
        found.push_str(&rest[..at]);
        found.push('\n');
        let (document, after) = document(&rest[at + MARK.len()..]);
        streams(document, &mut found);
        rest = after;
    }
    found.push_str(rest);
    tidy(&found)
}

/// The XML after a mark, and what follows it. A document that was cut reaches to the end.
fn document(text: &str) -> (&str, &str) {
    const END: &str = "</Objs>";
    let empty = text.trim_start().starts_with("<Objs") && !text.contains(END);
    match text.find(END) {
        Some(at) => text.split_at(at + END.len()),
        None if empty => (text, ""),
        None => ("", text),
    }
}

/// The strings of its error, warning and other streams: `<S S="Error">…</S>`. Progress records are objects, not strings
/// of a stream, and so are left out.
fn streams(document: &str, found: &mut String) {
    const OPEN: &str = "<S S=\"";
    let mut rest = document;
    while let Some(at) = rest.find(OPEN) {
        let inside = &rest[at + OPEN.len()..];
        let Some((stream, body)) = inside.split_once("\">") else {
            return;
        };
        let end = body.find("</S>").unwrap_or(body.len());
        if !stream.eq_ignore_ascii_case("progress") {
            found.push_str(&unescaped(&body[..end]));
        }
        rest = &body[end..];
    }
}

/// XML's entities, then PowerShell's `_xHHHH_`, UTF-16 unit by unit.
fn unescaped(text: &str) -> String {
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&");
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest: &str = &text;
    while let Some(at) = rest.find("_x") {
        units.extend(rest[..at].encode_utf16());
        let hex = rest
            .get(at + 2..at + 6)
            .filter(|_| rest.as_bytes().get(at + 6) == Some(&b'_'));
        match hex.and_then(|hex| u16::from_str_radix(hex, 16).ok()) {
            Some(unit) => {
                units.push(unit);
                rest = &rest[at + 7..];
            }
            None => {
                units.extend("_x".encode_utf16());
                rest = &rest[at + 2..];
            }
        }
    }
    units.extend(rest.encode_utf16());
    String::from_utf16_lossy(&units)
}

/// The text without trailing spaces and empty lines, cut to [`READABLE_CHARS_MAX`] characters.
fn tidy(text: &str) -> String {
    let lines = text
        .split(['\n', '\r'])
        .map(str::trim_end)
        .filter(|line| !line.is_empty());
    let whole = lines.collect::<Vec<_>>().join("\n");
    match whole.char_indices().nth(READABLE_CHARS_MAX) {
        Some((at, _)) => whole[..at].to_owned(),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJS: &str =
        r#"<Objs Version="1.1.0.1" xmlns="http://schemas.microsoft.com/powershell/2004/04">"#;
    const PROGRESS: &str = r#"<Obj S="progress" RefId="0"><TN RefId="0"><T>System.Management.Automation.PSCustomObject</T></TN><MS><I64 N="SourceId">1</I64><PR N="Record"><AV>Preparing modules for first use.</AV><AI>0</AI><S N="x">y</S></PR></MS></Obj>"#;

    #[test]
    fn errors_are_readable_and_progress_is_not_there() {
        let error = r#"<S S="Error">Access to &lt;C:\k&gt; is denied._x000D__x000A_</S><S S="Error">At line:1_x000D__x000A_</S>"#;
        let table = [
            (String::new(), ""),
            ("plain text\r\n".into(), "plain text"),
            (format!("{MARK}\r\n{OBJS}{PROGRESS}</Objs>"), ""),
            (
                format!("{MARK}\r\n{OBJS}{PROGRESS}{error}</Objs>"),
                "Access to <C:\\k> is denied.\nAt line:1",
            ),
            (
                format!("before\r\n{MARK}\r\n{OBJS}</Objs>after"),
                "before\nafter",
            ),
            (
                format!("{MARK}\r\n{OBJS}<S S=\"Error\">cut in the mid"),
                "cut in the mid",
            ),
            (format!("{MARK}\r\nno XML at all"), "no XML at all"),
            (
                format!(
                    "{MARK}\r\n{OBJS}<S S=\"Error\">one_x000A_</S></Objs>{MARK}\r\n{OBJS}<S S=\"Warning\">two</S></Objs>"
                ),
                "one\ntwo",
            ),
        ];
        for (stderr, wanted) in table {
            assert_eq!(readable(stderr.as_bytes()), wanted, "{stderr}");
        }
    }

    #[test]
    fn escapes_of_both_kinds_are_undone_once() {
        let table = [
            ("a &amp;lt; b", "a &lt; b"),
            ("Gr_x00F6__x00DF_e", "Größe"),
            ("_xD83D__xDE42_", "🙂"),
            ("_xZZZZ_ _x00_ _x", "_xZZZZ_ _x00_ _x"),
            ("x_xäöü_", "x_xäöü_"),
        ];
        for (text, wanted) in table {
            assert_eq!(unescaped(text), wanted, "{text}");
        }
    }

    #[test]
    fn bytes_of_a_code_page_and_long_texts_do_no_harm() {
        assert_eq!(readable(b"Gr\x94\xE1e"), "Gr\u{fffd}\u{fffd}e");
        let long = "x".repeat(3 * READABLE_CHARS_MAX);
        assert_eq!(readable(long.as_bytes()).len(), READABLE_CHARS_MAX);
    }
}
