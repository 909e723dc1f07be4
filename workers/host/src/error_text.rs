//! Windows' errors in words, with the failed action, as one sentence. Numbers: MicrosoftDocs/win32,
//! Debug/system-error-codes--0-499- and the pages that follow it.

use crate::ops::WinError;

/// Meaning of the most frequent numbers.
const WORDS: &[(u32, &str)] = &[
    (2, "the file does not exist"),
    (3, "the folder does not exist"),
    (5, "access denied"),
    (19, "the disk is write-protected"),
    (21, "the disk is not ready"),
    (32, "another process has the file open"),
    (33, "another process has locked a part of the file"),
    (39, "the disk is full"),
    (50, "Windows does not support it"),
    (53, "the network path was not found"),
    (80, "the file exists"),
    (87, "a parameter is wrong"),
    (112, "the disk is full"),
    (123, "the name is not valid"),
    (145, "the folder is not empty"),
    (183, "it exists already"),
    (206, "the name is too long"),
    (216, "the program is for another processor"),
    (225, "the virus scanner blocks it"),
    (226, "the virus scanner removed it"),
    (267, "the name of the folder is not valid"),
    (303, "the file is being deleted"),
    (740, "it needs an elevated administrator"),
    (995, "the operation was aborted"),
    (1053, "the service did not answer in time"),
    (1056, "the service runs already"),
    (1058, "the service is disabled"),
    (1060, "there is no such service"),
    (1062, "the service does not run"),
    (1067, "the service's process ended unexpectedly"),
    (1068, "a service that it depends on did not start"),
    (1069, "the service's account cannot log in"),
    (1072, "the service is marked for deletion"),
    (1073, "the service exists already"),
    (1115, "Windows is shutting down"),
    (1168, "the element was not found"),
    (1224, "a program has the file mapped"),
    (1260, "a group policy blocks the program"),
    (1314, "the account lacks a privilege"),
    (1359, "Windows reports an internal error"),
    (1392, "the file or folder is damaged"),
    (1450, "Windows lacks resources"),
    (1460, "the time was up"),
    (1722, "the RPC server is not available"),
    (1726, "the remote call failed"),
    (3010, "a reboot is needed"),
    (4551, "an application control policy blocks the program"),
];

/// Verbs as nouns: `write` as `writing`.
const DOING: &[(&str, &str)] = &[
    ("add", "adding"),
    ("ask", "asking"),
    ("close", "closing"),
    ("configure", "configuring"),
    ("create", "creating"),
    ("delete", "deleting"),
    ("list", "listing"),
    ("look", "looking"),
    ("make", "making"),
    ("move", "moving"),
    ("open", "opening"),
    ("put", "putting"),
    ("read", "reading"),
    ("remove", "removing"),
    ("rename", "renaming"),
    ("replace", "replacing"),
    ("set", "setting"),
    ("start", "starting"),
    ("stop", "stopping"),
    ("turn", "turning"),
    ("wait", "waiting"),
    ("write", "writing"),
];

/// An error in words, with its number: `access denied (5)`. A number that is not known has Windows' own text.
pub(crate) fn words(error: &WinError) -> String {
    let known = WORDS.iter().find(|(number, _)| *number == error.number());
    let number = match error.code {
        code @ 0x8000_0000.. => format!("0x{code:08x}"),
        code => code.to_string(),
    };
    let text = error.text.trim().trim_end_matches('.');
    match (known, text) {
        (Some((_, words)), _) => format!("{words} ({number})"),
        (None, "") => format!("Windows error {number}"),
        (None, text) => format!("{text} ({number})"),
    }
}

/// An error with the failed action: `access denied (5) while opening C:\k`.
pub(crate) fn sentence(doing: &str, error: &WinError) -> String {
    let (verb, rest) = doing.split_once(' ').unwrap_or((doing, ""));
    let named = DOING.iter().find(|(known, _)| *known == verb);
    match named {
        Some((_, name)) => format!("{} while {name} {rest}", words(error))
            .trim_end()
            .to_owned(),
        // Not a verb: an object, such as a rule of the firewall.
        None => format!("{} at {doing}", words(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_operation_the_object_and_what_windows_said_in_words() {
        for (doing, error, expected) in [
            (
                r"open C:\Windows\dormer\state\lock",
                WinError::new(5),
                r"access denied (5) while opening C:\Windows\dormer\state\lock",
            ),
            (
                r"write C:\k",
                WinError::new(0x8007_0070),
                r"the disk is full (0x80070070) while writing C:\k",
            ),
            (
                "firewall rule a",
                WinError::new(5),
                "access denied (5) at firewall rule a",
            ),
            (
                "list the routes",
                WinError {
                    code: 9_999,
                    text: "Etwas ist schiefgegangen.".into(),
                },
                "Etwas ist schiefgegangen (9999) while listing the routes",
            ),
            (
                "look",
                WinError::new(77_777),
                "Windows error 77777 while looking",
            ),
        ] {
            assert_eq!(sentence(doing, &error), expected);
        }
    }

    #[test]
    fn numbers_and_verbs_stand_once_and_in_order() {
        assert!(WORDS.is_sorted_by(|one, other| one.0 < other.0));
        assert!(DOING.is_sorted_by(|one, other| one.0 < other.0));
    }
}
