//! User data of a new Windows machine, which permits dormer's login.

/// Script with a placeholder for the key.
const SCRIPT: &str = include_str!("userdata.ps1");
/// Addition for AWS.
const ON_AWS: &str = include_str!("userdata_aws.ps1");
/// Placeholder for the key.
const KEY: &str = "@KEY@";
/// Placeholder for [`STAYS_OUT`].
const MARK: &str = "@STAYS_OUT@";
/// Line that this user data writes into the file of keys. Earlier user data does not have it, and brings a key back
/// that has `#` before it. It ends as our own lines do, so that it is there once.
pub const STAYS_OUT: &str = "# a key with # before it stays out at boot: dormer";

/// Error of a key that cannot be used in user data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the public key is not one line of type and base64")]
pub struct KeyError;

/// User data for machines of `platform` (as profiles write it: `aws`, `gcp`, …, `none`). It permits the login with
/// the private key of `public_key` (`ssh-ed25519 AAAA…`; a comment after it is dropped), and none with a password.
/// The same key and platform give the same text.
///
/// # Errors
/// The key is not one line, or has characters that no key has.
pub fn user_data(public_key: &str, platform: &str) -> Result<String, KeyError> {
    let mut words = public_key.split_whitespace();
    let (Some(kind), Some(key)) = (words.next(), words.next()) else {
        return Err(KeyError);
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "+/=-@.".contains(c);
    if public_key.trim().contains('\n') || !kind.chars().chain(key.chars()).all(plain) {
        return Err(KeyError);
    }
    let mut script = SCRIPT
        .replacen(KEY, &format!("{kind} {key}"), 1)
        .replacen(MARK, STAYS_OUT, 1);
    if platform == "aws" {
        script.push('\n');
        script.push_str(ON_AWS);
    }
    Ok(match platform {
        // Google's agent expects the plain script, in the metadata key windows-startup-script-ps1.
        "gcp" => script,
        _ => format!("<powershell>\n{script}</powershell>\n<persist>true</persist>\n"),
    })
}

/// User data of another program with one public key in place of another, and nothing else changed. `None`: it does not
/// have `old`.
///
/// WMCO compares user data with what it would write itself, in which only the key differs
/// (WMCO `pkg/secrets/secrets.go`, GenerateUserData, read at 0be4b9cc).
#[must_use]
pub fn with_other_key(text: &str, old: &str, new: &str) -> Option<String> {
    let old = old.trim_end();
    let new = new.trim_end();
    text.contains(old).then(|| text.replace(old, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB+a/b=";

    #[test]
    fn each_platform_gets_the_key_in_its_own_wrapping() {
        let of = |platform: &str| user_data(PUBLIC, platform).expect("user data");
        for platform in crate::platform::PLATFORMS {
            let text = of(platform);
            assert_eq!(
                text.matches(&format!("'{PUBLIC}'")).count(),
                1,
                "{platform}"
            );
            assert!(!text.contains(KEY) && text.is_ascii(), "{platform}");
            assert_eq!(
                text.starts_with("<powershell>\n"),
                platform != "gcp",
                "{platform}"
            );
            assert_eq!(
                text.contains("<persist>true</persist>"),
                platform != "gcp",
                "{platform}"
            );
            assert_eq!(text.contains("EC2Launch"), platform == "aws", "{platform}");
        }
        assert_eq!(of("vsphere"), of("none"));
    }

    /// As WMCO asks it (WMCO `pkg/secrets/secrets.go`, appendAwsUserDataConfig), and the host program for its item of a route.
    #[test]
    fn amazons_agent_is_asked_for_its_routes_by_its_own_words() {
        let text = user_data(PUBLIC, "aws").expect("user data");
        let words = "-FilePath $agent -ArgumentList @('run-task', 'add-routes', '--persistent') ";
        assert_eq!(text.matches(words).count(), 1, "{text}");
        assert_eq!(text.matches("add-routes").count(), 1, "{text}");
    }

    /// This test reads the script's text without PowerShell. The script must read the file before it writes it, and
    /// write our line and all foreign lines.
    #[test]
    fn the_keys_of_other_administrators_stay() {
        let text = user_data(PUBLIC, "none").expect("user data");
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("no {words}"));
        let read = at("[IO.File]::ReadAllLines($keys)");
        let kept_out = at("$_.StartsWith('#') -and $_.Contains($base64)");
        let untouched = at("if ($gone.Count -eq 0) {");
        let filtered = at("-not ($_.TrimEnd().EndsWith(' dormer') -or $_.Contains($Key))");
        let written = format!(
            r#"::WriteAllLines($keys, [string[]](@("$Key dormer", '{STAYS_OUT}') + $others))"#
        );
        let written = at(&written);
        let order = [read, kept_out, untouched, filtered, written];
        assert!(order.is_sorted(), "{order:?}");
        assert!(STAYS_OUT.starts_with('#') && STAYS_OUT.ends_with(" dormer"));
        assert_eq!(text.matches("($keys, ").count(), 1, "it is written once");
    }

    #[test]
    fn what_is_no_key_gets_no_user_data() {
        for wrong in [
            "",
            "ssh-ed25519",
            "ssh-rsa AAA'; Remove-Item",
            "ssh-rsa A\nssh-rsa B",
        ] {
            assert_eq!(user_data(wrong, "none"), Err(KeyError), "{wrong:?}");
        }
        let commented = user_data(&format!("{PUBLIC} me@home's"), "none").expect("user data");
        assert!(!commented.contains("me@home"));
    }
}
