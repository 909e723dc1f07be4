//! The keys of a host's administrators: the file that sshd reads, and which of its bytes a rotation changes. Pure.
//!
//! The file is changed in place. A new file that is renamed over it would have the rights of its folder, and sshd
//! silently ignores a file that others may read (docs/field-notes.md, Logins and host keys). A new line is appended, and
//! a key is taken away by one byte, so that a power cut at any byte leaves every other line as it was.

/// The file on a host.
pub const KEY_FILE: &str = r"C:\ProgramData\ssh\administrators_authorized_keys";
/// Longest file that is changed, in bytes.
pub const KEY_FILE_BYTES_MAX: usize = 1 << 20;
/// Comment of an added line. User data of every build takes lines that end in ` dormer` for its own and replaces them at
/// boot; neither this comment nor a part of it ends so.
const COMMENT: &str = "rotated-by-dormer";
/// Line of the file by which user data says that it leaves out a key with `#` before it.
pub use dormer_profile::userdata::STAYS_OUT;
/// How Notepad and PowerShell begin a file in UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Bytes of the file that are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Position in the file.
    pub at: u64,
    /// Bytes from there on.
    pub bytes: Vec<u8>,
}

/// Whether sshd lets the public key `key` (`ssh-ed25519 AAAA…`) in by this file.
#[must_use]
pub fn permits(file: &[u8], key: &str) -> bool {
    lines(file).any(|(_, line)| is_live(line) && names(line, key))
}

/// Whether user data of this host leaves a key out that has `#` before it. User data of other programs, and of earlier
/// builds, writes its key again at each boot.
#[must_use]
pub fn keys_stay_out(file: &[u8]) -> bool {
    lines(file).any(|(_, line)| line.trim_ascii() == STAYS_OUT.as_bytes())
}

/// Line for `key` at the end of the file; `None`: the file permits it already.
#[must_use]
pub fn with_key(file: &[u8], key: &str) -> Option<Edit> {
    if permits(file, key) {
        return None;
    }
    let unix = file.contains(&b'\n') && !file.windows(2).any(|two| two == b"\r\n");
    let end = if unix { "\n" } else { "\r\n" };
    // The last line may lack its end: an editor left it so, or a power cut.
    let begin = match file.last() {
        None | Some(b'\n') => "",
        Some(_) => end,
    };
    Some(Edit {
        at: file.len() as u64,
        bytes: format!("{begin}{key} {COMMENT}{end}").into_bytes(),
    })
}

/// Length of the file without the line that `edit` appended; `None`: the file does not end so, because another program
/// changed it.
#[must_use]
pub fn without_edit(file: &[u8], edit: &Edit) -> Option<u64> {
    let at = usize::try_from(edit.at).ok()?;
    (file.get(at..)? == edit.bytes).then_some(edit.at)
}

/// Writes of one byte that put `#` before each line with `key`.
#[must_use]
pub fn without_key(file: &[u8], key: &str) -> Vec<Edit> {
    let live = lines(file).filter(|(_, line)| is_live(line) && names(line, key));
    live.map(|(at, _)| Edit {
        at: at as u64,
        bytes: b"#".to_vec(),
    })
    .collect()
}

/// Lines with their positions.
fn lines(file: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    file.split_inclusive(|byte| *byte == b'\n')
        .map(move |line| {
            let begin = at;
            at += line.len();
            (begin, line)
        })
}

/// Whether sshd reads the line: it is no comment.
fn is_live(line: &[u8]) -> bool {
    let line = line.strip_prefix(BOM).unwrap_or(line);
    !line.trim_ascii_start().starts_with(b"#")
}

/// Whether the line has the key: its kind and its base64 follow each other, whatever options stand before them. A comment
/// may quote another key, without being a login for it.
fn names(line: &[u8], key: &str) -> bool {
    let mut wanted = key.split_whitespace().map(str::as_bytes);
    let (Some(kind), Some(base64)) = (wanted.next(), wanted.next()) else {
        return false;
    };
    let line = line.strip_prefix(BOM).unwrap_or(line);
    let mut words = line.split(u8::is_ascii_whitespace);
    words.any(|word| word == kind) && words.find(|word| !word.is_empty()) == Some(base64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "ssh-ed25519 AAAAold";
    const NEW: &str = "ssh-ed25519 AAAAnew";

    fn applied(file: &[u8], edits: impl IntoIterator<Item = Edit>) -> Vec<u8> {
        let mut file = file.to_vec();
        for Edit { at, bytes } in edits {
            let at = usize::try_from(at).expect("small");
            file.resize(file.len().max(at + bytes.len()), 0);
            file[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        file
    }

    fn shown(file: &[u8]) -> String {
        String::from_utf8_lossy(file).escape_debug().to_string()
    }

    #[test]
    fn a_key_is_added_after_all_lines_in_the_files_own_line_ends() {
        let table: &[(&[u8], &str)] = &[
            (
                b"ssh-ed25519 AAAAold dormer\r\n",
                "ssh-ed25519 AAAAold dormer\\r\\nssh-ed25519 AAAAnew rotated-by-dormer\\r\\n",
            ),
            (
                b"# mine\nssh-ed25519 AAAAold\n",
                "# mine\\nssh-ed25519 AAAAold\\nssh-ed25519 AAAAnew rotated-by-dormer\\n",
            ),
            (
                b"ssh-ed25519 AAAAold",
                "ssh-ed25519 AAAAold\\r\\nssh-ed25519 AAAAnew rotated-by-dormer\\r\\n",
            ),
            (b"", "ssh-ed25519 AAAAnew rotated-by-dormer\\r\\n"),
            // In a comment it is no key.
            (
                b"#sh-ed25519 AAAAnew dormer\n",
                "#sh-ed25519 AAAAnew dormer\\nssh-ed25519 AAAAnew rotated-by-dormer\\n",
            ),
        ];
        for (file, wanted) in table {
            let edit = with_key(file, NEW).expect("a line");
            let after = applied(file, [edit.clone()]);
            assert_eq!(shown(&after), *wanted);
            assert_eq!(with_key(&after, NEW), None, "once");
            assert_eq!(without_edit(&after, &edit), Some(file.len() as u64));
            assert_eq!(without_edit(&[&after[..], b"x"].concat(), &edit), None);
        }
        for there in [
            "from=\"10.0.0.9\" ssh-ed25519 AAAAnew me",
            "  ssh-ed25519 AAAAnew",
        ] {
            assert_eq!(with_key(there.as_bytes(), NEW), None, "{there}");
        }
    }

    /// A file that grew may end in zeros after a power cut: its length was written, and its bytes were not.
    #[test]
    fn a_power_cut_at_any_byte_of_an_added_line_leaves_the_old_key_and_the_next_run_adds_the_new_one()
     {
        let before: &[u8] = b"ssh-rsa AAAAother me\r\nssh-ed25519 AAAAold dormer\r\n";
        let edit = with_key(before, NEW).expect("a line");
        for cut in 0..=edit.bytes.len() {
            let zeros = vec![0; edit.bytes.len() - cut];
            for tail in [&[][..], &zeros] {
                let torn = [before, &edit.bytes[..cut], tail].concat();
                assert!(permits(&torn, OLD) && torn.starts_with(before), "{cut}");
                let ended = torn.split(|byte| *byte == b'\n');
                let ours = |line: &[u8]| line.trim_ascii_end().ends_with(b" dormer");
                assert_eq!(ended.filter(|line| ours(line)).count(), 1, "{cut}");
                let after = applied(&torn, with_key(&torn, NEW));
                assert!(permits(&after, NEW) && permits(&after, OLD), "{cut}");
                assert!(after.starts_with(before), "{cut}");
            }
        }
    }

    #[test]
    fn a_key_is_taken_away_by_one_byte_of_each_of_its_lines() {
        let file: &[u8] = b"\xef\xbb\xbfssh-ed25519 AAAAold dormer\r\n\
            ssh-ed25519 AAAAnew rotated-by-dormer\r\n\
            # ssh-ed25519 AAAAold of before\r\n\
            ssh-ed25519 AAAAolder me\r\n\
            \x20from=\"10.0.0.9\" ssh-ed25519 AAAAold me\r\n";
        let edits = without_key(file, OLD);
        assert_eq!(edits.len(), 2);
        // Every subset: a power cut lies between two writes.
        for some in [vec![], vec![0], vec![1], vec![0, 1]] {
            let written = some.iter().map(|at: &usize| edits[*at].clone());
            let after = applied(file, written);
            assert_eq!(after.len(), file.len());
            assert!(permits(&after, NEW), "{}", shown(&after));
            assert!(
                permits(&after, "ssh-ed25519 AAAAolder"),
                "{}",
                shown(&after)
            );
            assert_eq!(permits(&after, OLD), some.len() < 2, "{}", shown(&after));
            let whole = applied(&after, without_key(&after, OLD));
            assert!(!permits(&whole, OLD) && permits(&whole, NEW));
            assert_eq!(without_key(&whole, OLD), []);
        }
    }

    #[test]
    fn user_data_that_leaves_keys_out_says_so_in_the_file() {
        let marked = format!("ssh-ed25519 AAAAold dormer\r\n{STAYS_OUT}\r\n");
        assert!(keys_stay_out(marked.as_bytes()));
        assert!(!keys_stay_out(b"ssh-ed25519 AAAAold dormer\r\n"));
    }
}
