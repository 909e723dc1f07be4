//! What dormer itself lacks, told to people.

/// What is told of one thing that is lacking.
pub fn sentence(waiting: usize, machines: usize, what: &str) -> String {
    let who = match (waiting, machines) {
        (1, 1) => "The one machine waits".to_owned(),
        (waiting, machines) if waiting == machines => format!("All {machines} machines wait"),
        (1, machines) => format!("1 of {machines} machines waits"),
        (waiting, machines) => format!("{waiting} of {machines} machines wait"),
    };
    format!("{who} for one thing: {what}. dormer goes on by itself when that is mended.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_machines_are_counted() {
        for (waiting, machines, begins) in [
            (1, 1, "The one machine waits for"),
            (9, 9, "All 9 machines wait for"),
            (1, 9, "1 of 9 machines waits for"),
            (2, 9, "2 of 9 machines wait for"),
        ] {
            let text = sentence(waiting, machines, "the key is encrypted");
            assert!(text.starts_with(begins), "{text}");
            assert!(
                text.contains("one thing: the key is encrypted. dormer"),
                "{text}"
            );
        }
    }
}
