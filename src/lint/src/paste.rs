//! What the paste of a guide leaves in a manifest: call-out numbers, `<placeholders>`, a line that is off by a column.

use crate::{
    finding::{Edit, Finding},
    parts::{DocumentPart, walk},
};
use dormer_profile::{
    yaml::YamlError,
    yaml_tree::{Node, Position},
};

/// Keys whose values have no space in them.
const ONE_WORD: [&str; 30] = [
    "apiVersion",
    "availabilityZone",
    "channel",
    "diskSizeGB",
    "handler",
    "id",
    "image",
    "installPlanApproval",
    "instanceType",
    "kind",
    "location",
    "managedIdentity",
    "name",
    "namespace",
    "networkResourceGroup",
    "offer",
    "osType",
    "publisher",
    "region",
    "resourceGroup",
    "runtimeClassName",
    "sku",
    "source",
    "sourceNamespace",
    "subnet",
    "template",
    "version",
    "vmSize",
    "vnet",
    "zone",
];
/// Keys below which a text may be anything.
pub(crate) const FREE: [&str; 8] = [
    "annotations",
    "args",
    "command",
    "data",
    "description",
    "env",
    "stringData",
    "userData",
];

/// Call-out number.
pub(crate) struct Callout {
    /// Bytes of the part that hold it, with the space before it.
    at: (usize, usize),
    pub(crate) finding: Finding,
}

/// Text up to a line end, with its indentation.
struct PartLine<'a> {
    number: usize,
    /// Offset in the part, in bytes.
    start: usize,
    /// Without its line end.
    text: &'a str,
}

impl PartLine<'_> {
    fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start_matches(' ').len()
    }

    fn is_empty(&self) -> bool {
        let text = self.text.trim();
        text.is_empty() || text.starts_with('#')
    }
}

/// Lines that are not in a block of text (`|`, `>`), with the empty ones left out.
fn lines(text: &str) -> Vec<PartLine<'_>> {
    let mut all = Vec::new();
    let mut start = 0;
    let mut block = None;
    for (number, whole) in text.split_inclusive('\n').enumerate() {
        let line = PartLine {
            number,
            start,
            text: whole.trim_end_matches(['\n', '\r']),
        };
        start += whole.len();
        if line.is_empty() {
            continue;
        }
        match block {
            Some(above) if line.indent() > above => continue,
            _ => block = None,
        }
        let end = line.text.rsplit(' ').next().unwrap_or_default();
        if matches!(end, "|" | ">" | "|-" | ">-" | "|+" | ">+") {
            block = Some(line.indent());
        }
        all.push(line);
    }
    all
}

/// Key and value of `- key: value`, and the column of the key.
fn key_of(text: &str) -> Option<(&str, &str, usize)> {
    let mut bare = text.trim_start_matches(' ');
    while let Some(rest) = bare.strip_prefix("- ") {
        bare = rest.trim_start_matches(' ');
    }
    let column = text.len() - bare.len();
    if let Some(key) = bare.strip_suffix(':') {
        return Some((key, "", column));
    }
    let (key, value) = bare.split_once(": ")?;
    (!key.contains(' ')).then_some((key, value.trim(), column))
}

/// Call-out numbers of a part.
pub(crate) fn callouts(part: &DocumentPart<'_>) -> Vec<Callout> {
    let lines = lines(part.text);
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.text.trim_end();
        let Some((head, number)) = trimmed.rsplit_once(' ') else {
            continue;
        };
        let is_number =
            !number.is_empty() && number.len() <= 2 && number.bytes().all(|b| b.is_ascii_digit());
        if !is_number || number.starts_with('0') || !is_callout(head.trim_end(), at, &lines) {
            continue;
        }
        let begin = head.trim_end().len();
        let place = Position {
            line: line.number + 1,
            column: head.chars().count() + 2,
            start: line.start + begin,
            len: trimmed.len() - begin,
        };
        let place = place.after(part.lines, part.bytes);
        let finding = Finding::new(
            "callout",
            place,
            format!("the number {number} is a call-out of a guide"),
        );
        found.push(Callout {
            at: (line.start + begin, line.start + trimmed.len()),
            finding: finding.replace(place, ""),
        });
    }
    found
}

fn is_callout(head: &str, at: usize, lines: &[PartLine<'_>]) -> bool {
    let last = head.rsplit(' ').next().unwrap_or_default();
    if has_placeholder(last) && !is_free(at, lines) {
        return true;
    }
    let Some((key, value, column)) = key_of(head) else {
        return false;
    };
    if value.is_empty() {
        // A number cannot be followed by what belongs to the key, unless the key takes a number, and the next line is
        // indented too far.
        return !is_numeric(key)
            && lines.get(at + 1).is_some_and(|next| {
                let deeper = next.indent() > column + 1;
                deeper || (next.indent() == column && next.text.trim_start().starts_with("- "))
            });
    }
    let quoted = |mark: char| value.len() > 1 && value.starts_with(mark) && value.ends_with(mark);
    if quoted('"') || quoted('\'') {
        return true;
    }
    let one_word = !value.contains(' ');
    one_word && (ONE_WORD.contains(&key) || (key.contains('/') && !is_free(at, lines)))
}

/// Whether a field of this name takes a number.
fn is_numeric(key: &str) -> bool {
    let numeric = [
        "replicas",
        "port",
        "number",
        "weight",
        "priority",
        "seconds",
        "size",
        "gb",
        "limit",
        "threshold",
        "value",
        "count",
        "index",
        "minimum",
        "maximum",
        "cpu",
        "memory",
        "version",
        "unhealthy",
        "surge",
        "unavailable",
    ];
    let key = key.to_ascii_lowercase();
    key != "value" && numeric.iter().any(|end| key.ends_with(end))
}

/// Whether a line belongs to a key below which a text may be anything.
fn is_free(at: usize, lines: &[PartLine<'_>]) -> bool {
    let indent = lines[at].indent();
    let above = lines[..at].iter().rev().find(|line| line.indent() < indent);
    above
        .and_then(|line| key_of(line.text))
        .is_some_and(|(key, _, _)| FREE.contains(&key))
}

/// Text with spaces in the place of call-outs, so that all other places stay.
pub(crate) fn blanked(text: &str, callouts: &[Callout]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for Callout {
        at: (start, end), ..
    } in callouts
    {
        bytes[*start..*end].fill(b' ');
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Line that is indented by a column too many or too few.
pub(crate) struct Indent {
    /// Text with that line straightened.
    pub(crate) straightened: String,
    /// How places of that text become places of the original.
    pub(crate) shift: Shift,
    pub(crate) finding: Finding,
}

/// Difference between a straightened text and its original.
pub(crate) struct Shift {
    line: usize,
    start: usize,
    had: usize,
    wanted: usize,
}

impl Shift {
    /// Moves the places of a tree back to the original text.
    pub(crate) fn apply(&self, root: &mut Node) {
        walk(root, &mut |place| {
            let back = |it: usize| (it + self.had).saturating_sub(self.wanted);
            if place.start > self.start {
                place.start = back(place.start);
            }
            if place.line == self.line {
                place.column = back(place.column);
            }
        });
    }
}

/// The first line whose indentation fits no level above it, if straightening it makes the text YAML.
pub(crate) fn indent(part: &DocumentPart<'_>, text: &str) -> Option<Indent> {
    let mut levels: Vec<usize> = Vec::new();
    let mut opens = true;
    for line in lines(text) {
        let had = line.indent();
        let mut above = None;
        while levels.last().is_some_and(|top| *top > had) {
            above = levels.pop();
        }
        let top = levels.last().copied();
        let key = key_of(line.text);
        let wanted = match (top, above) {
            (Some(top), None) if had > top && !opens && key.is_some() => Some(top),
            (Some(top), Some(above)) if had != top => {
                Some(if above - had <= had - top { above } else { top })
            }
            _ => None,
        };
        if let Some(wanted) = wanted {
            return straighten(part, text, &line, wanted);
        }
        if top != Some(had) {
            levels.push(had);
        }
        if let Some((_, value, column)) = key {
            if column != had {
                levels.push(column);
            }
            opens = value.is_empty();
        } else {
            opens = false;
        }
    }
    None
}

fn straighten(
    part: &DocumentPart<'_>,
    text: &str,
    line: &PartLine<'_>,
    wanted: usize,
) -> Option<Indent> {
    let had = line.indent();
    let rest = &text[line.start + had..];
    let straightened = format!("{}{}{rest}", &text[..line.start], " ".repeat(wanted));
    dormer_profile::yaml_tree::parse(&straightened).ok()?;
    let place = Position {
        line: line.number + 1,
        column: had + 1,
        start: line.start,
        len: had,
    };
    let place = place.after(part.lines, part.bytes);
    let key = key_of(line.text).map_or(line.text.trim(), |(key, _, _)| key);
    let message =
        format!("`{key}` is indented by {had}, and the lines that it belongs to by {wanted}");
    let edit = Edit {
        start: place.start,
        end: place.start + had,
        text: " ".repeat(wanted),
    };
    Some(Indent {
        straightened,
        shift: Shift {
            line: line.number + 1,
            start: line.start,
            had,
            wanted,
        },
        finding: Finding::new("indentation", place, message)
            .mend(format!("indent `{key}` by {wanted}"))
            .edit(Some(edit)),
    })
}

/// Finding of a part that cannot be read.
pub(crate) fn unreadable(part: &DocumentPart<'_>, error: &YamlError) -> Finding {
    let (line, column) = error.location.unwrap_or((1, 1));
    let number = |it: u64| usize::try_from(it).unwrap_or(1);
    let place = Position {
        line: number(line),
        column: number(column),
        start: 0,
        len: 0,
    };
    let text = part
        .text
        .lines()
        .nth(place.line.saturating_sub(1))
        .unwrap_or_default();
    // The path is one in our tree of values, and says nothing to people.
    let reason = match error.reason.split_once(": ") {
        Some((path, rest)) if path.split('.').any(|it| it == "?" || it == "value") => rest,
        _ => error.reason.as_str(),
    };
    let finding = Finding::new("yaml", place.after(part.lines, part.bytes), reason);
    if part.text.contains("{{") {
        finding
            .mend("this is a template: lint what it renders, as in helm template … | dormer lint -")
    } else if text.trim_end().contains('\t') {
        finding.mend("indent with spaces: YAML allows no tabs there")
    } else {
        finding
    }
}

/// Placeholder in a text: `<zone>` of `<infrastructure_id>-worker-<zone>`.
pub(crate) fn placeholder(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let inner = &rest[start + 1..];
        let end = inner.find('>')?;
        let name = &inner[..end];
        let letters = |c: char| c.is_ascii_alphanumeric() || "_-. ".contains(c);
        if name.len() > 1
            && name.chars().all(letters)
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
        {
            return Some(&rest[start..start + end + 2]);
        }
        rest = &inner[end..];
    }
    None
}

/// Whether a text has a placeholder.
pub(crate) fn has_placeholder(text: &str) -> bool {
    placeholder(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::split;

    fn numbers(text: &str) -> Vec<usize> {
        let parts = split(text);
        parts
            .iter()
            .flat_map(callouts)
            .map(|it| it.finding.line)
            .collect()
    }

    #[test]
    fn call_outs_differ_from_numbers() {
        let text = "kind: A 1\nname: <id>-win-<zone> 2\nx:\n  image: 9\n    offer: W\n  y.io/z: \"\" 8\n  t: 3\n  - a: 1\n";
        assert_eq!(numbers(text), [1, 2, 4, 6, 7]);
        let plain = "replicas: 1\nmaxUnhealthy: 40\nargs:\n- sleep 1\ncommand: sleep 10\nannotations:\n  a.io/os: Windows 7\n\
                     text: |\n  name: x 1\ndescription: see figure 2\nvalue: a 1\n";
        assert_eq!(numbers(plain), Vec::<usize>::new());
    }

    #[test]
    fn placeholders_differ_from_markup() {
        assert_eq!(placeholder("a-<zone>-b"), Some("<zone>"));
        assert_eq!(
            placeholder("<infrastructure_id>"),
            Some("<infrastructure_id>")
        );
        for text in ["a < b > c", "<>", "</html>", "1<2", "<#code", "x->y"] {
            assert_eq!(placeholder(text), None, "{text}");
        }
    }
}
