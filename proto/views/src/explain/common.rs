//! What several texts have in common, and what each has alone: one cause of several machines.

/// Stands for a word that differs.
const DIFFERS: &str = "…";

/// The words that all texts share, with `…` where they differ, and of each text the words that stand there. A word that is
/// the text's own name in `own`, such as an address, becomes `instead`. Of equal texts no word differs.
pub(super) fn common(texts: &[&str], own: &[&str], instead: &str) -> (String, Vec<String>) {
    let Some((first, others)) = texts.split_first() else {
        return (String::new(), Vec::new());
    };
    if others.iter().all(|it| it == first) {
        return ((*first).to_owned(), vec![String::new(); texts.len()]);
    }
    let split: Vec<Vec<&str>> = texts.iter().map(|it| it.split(' ').collect()).collect();
    let same_at = |at: &dyn Fn(&Vec<&str>) -> usize| {
        let word = |words: &Vec<&str>| words.get(at(words)).map(|it| (*it).to_owned());
        let first = word(&split[0]);
        first.is_some() && split.iter().all(|it| word(it) == first)
    };
    let shortest = split.iter().map(Vec::len).min().unwrap_or_default();
    let as_long = split.iter().all(|it| it.len() == shortest);
    if as_long {
        return word_by_word(&split, own, instead);
    }
    let begin = (0..shortest)
        .take_while(|at| same_at(&|_: &Vec<&str>| *at))
        .count();
    let end = (0..shortest - begin)
        .take_while(|at| same_at(&|words: &Vec<&str>| words.len() - 1 - at))
        .count();
    let middle = |words: &Vec<&str>| words[begin..words.len() - end].join(" ");
    let first = &split[0];
    let text = [&first[..begin], &[DIFFERS][..], &first[first.len() - end..]];
    (text.concat().join(" "), split.iter().map(middle).collect())
}

fn word_by_word(split: &[Vec<&str>], own: &[&str], instead: &str) -> (String, Vec<String>) {
    let mut text: Vec<String> = Vec::new();
    let mut alone: Vec<Vec<String>> = vec![Vec::new(); split.len()];
    for (at, word) in split[0].iter().enumerate() {
        let words: Vec<&str> = split.iter().map(|it| it[at]).collect();
        if words.iter().all(|it| it == word) {
            text.push((*word).to_owned());
            continue;
        }
        for (words, word) in alone.iter_mut().zip(&words) {
            let word = bare(word).to_owned();
            if !words.contains(&word) {
                words.push(word);
            }
        }
        let is_own = words.iter().zip(own).all(|(word, own)| bare(word) == *own);
        let stands = if is_own { instead } else { DIFFERS };
        // The punctuation behind it.
        let behind = &word[bare(word).len()..];
        text.push(format!("{stands}{behind}"));
    }
    let alone = alone.iter().map(|it| it.join(" ")).collect();
    (text.join(" "), alone)
}

/// Whether the character is punctuation behind a word.
fn is_behind(it: char) -> bool {
    [',', ';', ':', ')', '.'].contains(&it)
}

/// The word without the punctuation behind it.
fn bare(word: &str) -> &str {
    word.trim_end_matches(is_behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_address_is_the_hosts_and_other_words_that_differ_are_left_out() {
        let texts = [
            "10.0.0.7 shows another key: SHA256:a, not SHA256:x; nothing was sent (HostKeyChanged)",
            "10.0.0.8 shows another key: SHA256:b, not SHA256:y; nothing was sent (HostKeyChanged)",
        ];
        let (text, alone) = common(&texts, &["10.0.0.7", "10.0.0.8"], "the host");
        assert_eq!(
            text,
            "the host shows another key: …, not …; nothing was sent (HostKeyChanged)"
        );
        assert_eq!(
            alone,
            ["10.0.0.7 SHA256:a SHA256:x", "10.0.0.8 SHA256:b SHA256:y"]
        );
    }

    #[test]
    fn texts_of_other_lengths_share_their_begin_and_their_end() {
        let texts = ["no room for a b (Full)", "no room for c (Full)"];
        let (text, alone) = common(&texts, &["", ""], "the host");
        assert_eq!(text, "no room for … (Full)");
        assert_eq!(alone, ["a b", "c"]);
        let (text, alone) = common(&["a a", "a a a"], &["", ""], "the host");
        assert_eq!(
            (text.as_str(), alone),
            ("a a …", vec![String::new(), "a".into()])
        );
    }

    #[test]
    fn of_equal_texts_nothing_is_left_out() {
        let (text, alone) = common(&["same: all (X)"; 2], &["", ""], "the host");
        assert_eq!(text, "same: all (X)");
        assert!(alone.iter().all(String::is_empty), "{alone:?}");
        assert_eq!(common(&[], &[], ""), (String::new(), Vec::new()));
    }
}
