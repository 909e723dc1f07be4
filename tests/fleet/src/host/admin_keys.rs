//! The keys of a host's administrators: the file that user data writes at boots, and that sshd reads (docs/field-notes.md,
//! Logins and host keys). The script is not run. dormer's own is known by its text, and does here what
//! `workers/profile/src/userdata.ps1` does; any other writes the whole file anew, as WMCO's does.

use dormer_profile::userdata::STAYS_OUT;
use russh::keys::PublicKey;

use super::body::Body;
use super::computer::Host;
use super::path::WinPath;

pub const KEY_FILE: &str = r"C:\ProgramData\ssh\administrators_authorized_keys";
/// How user data says that it runs at each boot, and not at the first one only.
const AT_EACH_BOOT: &str = "<persist>true</persist>";
/// What dormer's script has and no other: it replaces its own lines only.
const OWN_LINES_ONLY: &str = "EndsWith(' dormer')";

impl Host {
    /// Does to the file what user data does at a boot.
    pub(super) fn write_admin_keys(&self, first: bool) {
        let script = String::from_utf8_lossy(&self.order.user_data);
        let keys = public_keys(&script);
        if keys.is_empty() || !(first || script.contains(AT_EACH_BOOT)) {
            return;
        }
        let Some(lines) = after_boot(&script, &keys, &self.admin_lines()) else {
            return;
        };
        let text: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        if let Ok(path) = WinPath::absolute(KEY_FILE) {
            let _ = self
                .state()
                .disk
                .write(&path, Body::of(text.as_bytes()), true);
        }
    }

    /// Lines of the file; none if it is not there, or open for writing.
    fn admin_lines(&self) -> Vec<String> {
        let read = self.state().disk.read_text_path(KEY_FILE);
        let text = read.map(|body| String::from_utf8_lossy(&body.head).into_owned());
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Whether sshd lets the key in. It takes no file that others than administrators may read.
    pub(super) fn lets_in(&self, key: &PublicKey) -> bool {
        let Ok(line) = key.to_openssh() else {
            return false;
        };
        let mut words = line.split(' ');
        let (Some(kind), Some(base64)) = (words.next(), words.next()) else {
            return false;
        };
        let refused = self.state().refused_keys == Some(kind);
        let private =
            WinPath::absolute(KEY_FILE).is_ok_and(|path| self.state().disk.is_private(&path));
        let live = |line: &String| {
            let line = line.trim_start_matches(['\u{feff}', ' ', '\t']);
            !line.starts_with('#') && line.split_whitespace().any(|word| word == base64)
        };
        !refused && private && self.admin_lines().iter().any(live)
    }
}

/// Lines that the script leaves; `None`: it leaves the file alone.
fn after_boot(script: &str, keys: &[String], before: &[String]) -> Option<Vec<String>> {
    if !script.contains(OWN_LINES_ONLY) {
        return Some(keys.to_vec());
    }
    let (key, marks) = (keys.first()?, script.contains(STAYS_OUT));
    let base64 = key.split(' ').nth(1)?;
    if marks
        && before
            .iter()
            .any(|line| line.starts_with('#') && line.contains(base64))
    {
        return None;
    }
    let mut lines = vec![format!("{key} dormer")];
    lines.extend(marks.then(|| STAYS_OUT.to_owned()));
    let others = before
        .iter()
        .filter(|line| !line.trim_end().ends_with(" dormer") && !line.contains(key.as_str()));
    lines.extend(others.cloned());
    Some(lines)
}

/// Public keys anywhere in the script, without their comments.
fn public_keys(script: &str) -> Vec<String> {
    let words: Vec<&str> = script
        .split(|c: char| c.is_whitespace() || "\"'`,;".contains(c))
        .collect();
    let is_kind = |word: &str| word.starts_with("ssh-") || word.starts_with("ecdsa-sha2-");
    let pairs = words.windows(2).filter(|pair| is_kind(pair[0]));
    let lines = pairs.map(|pair| format!("{} {}", pair[0], pair[1]));
    lines
        .filter(|line| PublicKey::from_openssh(line).is_ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_profile::userdata::user_data;

    const OLD: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const NEW: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G1sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X";

    fn booted(script: &str, before: &[String]) -> Vec<String> {
        let lines = after_boot(script, &public_keys(script), before);
        lines.unwrap_or_else(|| before.to_vec())
    }

    #[test]
    fn user_data_of_each_maker_does_to_the_keys_what_its_script_says() {
        let ours = user_data(OLD, "aws").expect("user data");
        let before = ours.replace(STAYS_OUT, "");
        let wmco = format!("Set-Content -Value '{OLD}'\n<persist>true</persist>");
        let rotated = format!("{NEW} rotated-by-dormer");
        let first = booted(&ours, &[]);
        assert_eq!(first, [format!("{OLD} dormer"), STAYS_OUT.to_owned()]);
        // Before the old key is taken away, all but another program's keep the new one.
        let overlap = [first.clone(), vec![rotated.clone()]].concat();
        assert_eq!(booted(&ours, &overlap), overlap);
        assert!(booted(&before, &overlap).contains(&rotated));
        assert_eq!(booted(&wmco, &overlap), [OLD]);
        // Once it has # before it, it comes back by earlier builds' and another program's.
        let gone = vec![
            format!("#{} dormer", &OLD[1..]),
            STAYS_OUT.to_owned(),
            rotated,
        ];
        assert_eq!(booted(&ours, &gone), gone);
        assert!(booted(&before, &gone).contains(&format!("{OLD} dormer")));
        assert_eq!(booted(&wmco, &gone), [OLD]);
    }
}
