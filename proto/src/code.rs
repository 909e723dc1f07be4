//! Codes of failures and causes, as people and scripts read them.
//!
//! Histories keep a code as its sender wrote it: dormer's own `DiskFull`, those of the program on hosts `access_denied`.
//! Everything that shows one shows it in one style, that of the reasons in Kubernetes' conditions and Events.

/// Code as it is shown: `AccessDenied` for `access_denied`, `HolderStopped` for `holder-stopped`.
#[must_use]
pub fn shown(code: &str) -> String {
    let words = code.split(['_', '-']);
    words
        .map(|word| {
            let mut letters = word.chars();
            let first = letters.next().map(|it| it.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        })
        .collect()
}

/// Whether two codes are one, in whichever style each is written. Scripts and bookmarks of earlier builds have
/// `access_denied`.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    fn characters(code: &str) -> impl Iterator<Item = char> {
        let characters = code.chars().filter(|it| !['_', '-'].contains(it));
        characters.map(|it| it.to_ascii_lowercase())
    }
    characters(one).eq(characters(other))
}

/// Words of a code in lower case: `access denied` for `access_denied` and for `AccessDenied`.
#[must_use]
pub fn words(code: &str) -> String {
    let mut words = String::new();
    for letter in shown(code).chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{same, shown, words};

    #[test]
    fn a_code_is_shown_in_one_style_and_read_in_each() {
        for (stored, expected, said) in [
            ("access_denied", "AccessDenied", "access denied"),
            ("DiskFull", "DiskFull", "disk full"),
            ("holder-stopped", "HolderStopped", "holder stopped"),
            ("held", "Held", "held"),
            ("hns_missing", "HnsMissing", "hns missing"),
            ("", "", ""),
        ] {
            assert_eq!(shown(stored), expected);
            assert_eq!(words(stored), said);
            assert_eq!(words(expected), said);
            assert!(same(stored, expected));
            assert!(same(&expected.to_lowercase(), stored));
        }
        assert!(!same("DiskFull", "disk_fuller"));
    }
}
