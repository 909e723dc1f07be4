//! Suggestion for a mistyped word: the known one that comes near it.

/// Word of `known` that is near `word`, if there is one: equal but for its case, or few letters apart, or the only one
/// that it is a part of.
pub fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let small = word.to_lowercase();
    // A short word is near to everything: half of its letters are not enough.
    let letters = small.chars().count();
    let most = match letters {
        ..=4 => 1,
        _ => letters.div_ceil(3).min(3),
    };
    let mut best: Option<(usize, &str)> = None;
    let mut within = Vec::new();
    for one in known {
        let other = one.to_lowercase();
        let apart = strsim::osa_distance(&small, &other);
        if apart <= most && best.is_none_or(|(least, _)| apart < least) {
            best = Some((apart, one));
        }
        if letters >= PART_MIN && other.contains(&small) {
            within.push(one);
        }
    }
    let only = match within[..] {
        [only] => Some(only),
        _ => None,
    };
    best.map(|(_, one)| one).or(only)
}

/// Fewest letters of a part of a word.
const PART_MIN: usize = 3;

/// Question after a refusal: `; did you mean windows?`. Empty if nothing is near.
pub fn question<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    near(word, known).map_or_else(String::new, |it| format!("; did you mean {it}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_gets_the_near_one_and_a_strange_one_none() {
        let words = [
            "machines",
            "runs",
            "rollouts",
            "windows",
            "win-b-9nhgg",
            "pool",
        ];
        for (word, expected) in [
            ("machinse", Some("machines")),
            ("Rollouts", Some("rollouts")),
            ("windwos", Some("windows")),
            ("9nhgg", Some("win-b-9nhgg")),
            ("rnus", Some("runs")),
            ("nope", None),
            ("fooo", None),
            ("posl", Some("pool")),
            ("", None),
        ] {
            assert_eq!(near(word, words), expected, "{word}");
        }
        assert_eq!(question("windwos", words), "; did you mean windows?");
        assert_eq!(question("nope", words), "");
        assert_eq!(near("win", words), None, "it is a part of two");
    }
}
