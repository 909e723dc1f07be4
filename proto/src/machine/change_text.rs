//! The text that records have of a change of a machine.

use crate::message::listed;

/// Most differences in a sentence. The rest is a count.
pub const DIFFERENCES_MAX: usize = 3;

/// Begin of the text; the differences follow.
pub const TO_CHANGE: &str = "to change: ";

/// Separator of two differences.
const BETWEEN: &str = ", ";

/// The text of a change: all of its differences.
#[must_use]
pub fn to_change(differs: &[String]) -> String {
    format!("{TO_CHANGE}{}", differs.join(BETWEEN))
}

/// Such a text with its first differences and a count. Another text stays as it is.
#[must_use]
pub fn in_brief(text: &str) -> String {
    let Some(all) = text.strip_prefix(TO_CHANGE) else {
        return text.to_owned();
    };
    let all: Vec<&str> = all.split(BETWEEN).collect();
    format!("{TO_CHANGE}{}", listed(&all, DIFFERENCES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_lists_its_first_differences() {
        let brief = |differs: &[&str]| {
            let differs: Vec<String> = differs.iter().map(|it| (*it).to_owned()).collect();
            in_brief(&to_change(&differs))
        };
        assert_eq!(brief(&["a", "b"]), "to change: a, b");
        let many = brief(&["a", "b", "c (x)", "d", "e"]);
        assert_eq!(many, "to change: a, b, c (x) and 2 more");
        assert_eq!(in_brief("asked for by ann"), "asked for by ann");
    }
}
