//! The keys of a host's administrators: the file that user data writes at boots, and that sshd reads (docs/field-notes.md,
//! Logins and host keys). What the platform's agent takes for the script is found as the agent finds it; the script is not
//! run. dormer's own is known by its text, and does here what `workers/profile/src/userdata.ps1` does; any other writes the
//! whole file anew, as WMCO's does.

use dormer_profile::userdata::STAYS_OUT;
use russh::keys::PublicKey;

use super::body::Body;
use super::computer::Host;
use super::path::WinPath;
use crate::world::Platform;

pub const KEY_FILE: &str = r"C:\ProgramData\ssh\administrators_authorized_keys";
/// How user data says to EC2Launch that it runs at each boot, and not at the first one only.
const AT_EACH_BOOT: &str = "<persist>true</persist>";
/// What dormer's script has and no other: it replaces its own lines only.
const OWN_LINES_ONLY: &str = "EndsWith(' dormer')";

impl Host {
    /// Does to the file what user data does at a boot.
    pub(super) fn write_admin_keys(&self, first: bool) {
        let given = String::from_utf8_lossy(&self.order.user_data);
        let Some((script, each_boot)) = taken_apart(self.order.platform, &given) else {
            return;
        };
        let keys = public_keys(script);
        if keys.is_empty() || !(first || each_boot) {
            return;
        }
        let Some(lines) = after_boot(script, &keys, &self.admin_lines()) else {
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

/// The script that a platform's agent finds in user data, and whether it runs it at each boot. `None`: it finds none.
fn taken_apart(platform: Platform, given: &str) -> Option<(&str, bool)> {
    match platform {
        // EC2Launch v2 (Amazon EC2 User Guide, "How Amazon EC2 handles user data for Windows instances").
        Platform::Aws => Some((tagged(given)?, given.contains(AT_EACH_BOOT))),
        // The first logon copies CustomData.bin whole, and runs the copy once (machine-api-provider-azure,
        // `winFirstLogonCommandsString` in virtualmachines.go).
        Platform::Azure => Some((given, false)),
        // cloudbase-init, once for each instance (cloudbase-init 8e5fff70, `userdatautils.py`). It knows no `<persist>`.
        Platform::VSphere | Platform::Own | Platform::Other => {
            let whole = given.starts_with("#ps1").then_some(given);
            Some((whole.or_else(|| tagged(given))?, false))
        }
    }
}

/// Text between the tags that EC2's format has.
fn tagged(given: &str) -> Option<&str> {
    let (_, rest) = given.split_once("<powershell>")?;
    Some(rest.split_once("</powershell>")?.0)
}

/// Lines that the script leaves; `None`: it leaves the file alone.
fn after_boot(script: &str, keys: &[String], before: &[String]) -> Option<Vec<String>> {
    if !script.contains(OWN_LINES_ONLY) {
        return Some(keys.to_vec());
    }
    let key = keys.first()?;
    let marks = script.contains(STAYS_OUT);
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

    #[test]
    fn each_platforms_agent_finds_the_script_by_its_own_rules() {
        use Platform::{Aws, Azure, Other, Own, VSphere};
        let tags = "<powershell>\nx\n</powershell>\n";
        let persists = format!("{tags}{AT_EACH_BOOT}\n");
        let open = "<powershell>\nx\n";
        let own = "#ps1_sysnative\nx";
        // Whether it runs at all, and at each boot.
        type Row<'a> = (Platform, &'a str, Option<(&'a str, bool)>);
        let table: [Row<'_>; 14] = [
            (Aws, &persists, Some(("\nx\n", true))),
            (Aws, tags, Some(("\nx\n", false))),
            (Aws, open, None),
            (Aws, "x", None),
            (Aws, own, None),
            (Azure, &persists, Some((&persists, false))),
            (Azure, "x", Some(("x", false))),
            (VSphere, &persists, Some(("\nx\n", false))),
            (VSphere, own, Some((own, false))),
            (VSphere, open, None),
            (VSphere, "x", None),
            (Own, tags, Some(("\nx\n", false))),
            (Other, own, Some((own, false))),
            (Other, "", None),
        ];
        for (platform, given, wanted) in table {
            assert_eq!(
                taken_apart(platform, given),
                wanted,
                "{platform:?} {given:?}"
            );
        }
        // dormer's own is found everywhere but where the platform takes it without tags.
        for (platform, name) in [
            (Aws, "aws"),
            (Azure, "azure"),
            (VSphere, "vsphere"),
            (Other, "none"),
        ] {
            let ours = user_data(OLD, name).expect("user data");
            let (script, each_boot) = taken_apart(platform, &ours).expect("a script");
            assert_eq!(public_keys(script), [OLD], "{name}");
            assert_eq!(each_boot, platform == Aws, "{name}");
        }
    }

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
