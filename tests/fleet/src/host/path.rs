//! Paths of a Windows host in the forms that OpenSSH's SFTP server accepts (docs/field-notes.md, SFTP on Windows).

use std::fmt;

/// Longest path that the host accepts, in characters (`PATH_MAX` of OpenSSH for Windows).
pub const PATH_CHARS_MAX: usize = 32_768;

/// An absolute path with a drive, in the form `C:\k\x`: compared without regard to case, shown as given.
#[derive(Debug, Clone)]
pub struct WinPath {
    shown: String,
    key: String,
}

/// Why a path cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// Longer than [`PATH_CHARS_MAX`].
    TooLong,
    /// Contains a character that NTFS refuses, or nothing at all.
    Invalid,
    /// `/`, the virtual root that lists the drives.
    VirtualRoot,
}

impl WinPath {
    /// Reads `raw` as `C:\k\x`, `C:/k/x`, `/C:/k/x`, `/k/x` (current drive), `__PROGRAMDATA__/…` or relative to
    /// `home`, the profile folder of the user.
    pub fn parse(raw: &str, home: &str) -> Result<Self, PathError> {
        if raw.chars().count() > PATH_CHARS_MAX {
            return Err(PathError::TooLong);
        }
        let text = raw.replace('/', "\\");
        let absolute = make_absolute(&text, home)?;
        Self::normalise(&absolute)
    }

    /// A path known to be absolute, as in a document or a service's command line.
    pub fn absolute(raw: &str) -> Result<Self, PathError> {
        let text = raw.trim_matches('"').replace('/', "\\");
        if drive_of(&text).is_none() {
            return Err(PathError::Invalid);
        }
        Self::normalise(&text)
    }

    fn normalise(text: &str) -> Result<Self, PathError> {
        let drive = drive_of(text).ok_or(PathError::Invalid)?;
        let mut parts: Vec<&str> = Vec::new();
        for part in text[2..].split('\\') {
            match part {
                "" | "." => {}
                ".." if parts.pop().is_none() => return Err(PathError::VirtualRoot),
                ".." => {}
                part => parts.push(part),
            }
        }
        let refused = |c: char| matches!(c, '<' | '>' | ':' | '"' | '|' | '?' | '*') || c < ' ';
        if parts.iter().any(|part| part.chars().any(refused)) {
            return Err(PathError::Invalid);
        }
        let shown = format!("{drive}:\\{}", parts.join("\\"));
        let key = shown.to_lowercase();
        Ok(Self { shown, key })
    }

    /// The form `C:\k\x`, in the case in which it was given.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The form that equals that of every other spelling of the same path.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The form that SFTP's REALPATH answers: `/C:/k/x`.
    pub fn sftp(&self) -> String {
        format!("/{}", self.shown.replace('\\', "/"))
    }

    /// The last part, empty for the root of a drive.
    pub fn name(&self) -> &str {
        self.shown.rsplit('\\').next().unwrap_or_default()
    }

    /// The folder that holds it; none for the root of a drive.
    pub fn parent(&self) -> Option<Self> {
        if self.is_drive() {
            return None;
        }
        let end = self.shown.rfind('\\')?;
        let shown = if end == 2 {
            self.shown[..=2].to_owned()
        } else {
            self.shown[..end].to_owned()
        };
        let key = shown.to_lowercase();
        Some(Self { shown, key })
    }

    /// Whether it is the root of a drive, `C:\`.
    pub fn is_drive(&self) -> bool {
        self.shown.len() == 3
    }
}

impl PartialEq for WinPath {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for WinPath {}

impl fmt::Display for WinPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn drive_of(text: &str) -> Option<char> {
    let mut chars = text.chars();
    let message = chars.next().filter(char::is_ascii_alphabetic)?;
    (chars.next() == Some(':') && matches!(chars.next(), None | Some('\\'))).then_some(message)
}

fn make_absolute(text: &str, home: &str) -> Result<String, PathError> {
    if text == "\\" {
        return Err(PathError::VirtualRoot);
    }
    if let Some(rest) = text.strip_prefix("__PROGRAMDATA__") {
        return Ok(format!("C:\\ProgramData{rest}"));
    }
    if drive_of(text).is_some() {
        return Ok(text.to_owned());
    }
    if let Some(rest) = text.strip_prefix('\\') {
        let with_drive = drive_of(rest).is_some();
        return Ok(if with_drive {
            rest.to_owned()
        } else {
            format!("C:{text}")
        });
    }
    Ok(format!("{home}\\{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = r"C:\Users\Administrator";

    fn shown(raw: &str) -> Result<String, PathError> {
        WinPath::parse(raw, HOME).map(|path| path.shown().to_owned())
    }

    #[test]
    fn every_form_of_one_path_is_the_same_path() {
        for raw in [r"C:\k\x", "C:/k/x", "/C:/k/x", "/k/x", "/C:/k/./y/../x"] {
            assert_eq!(shown(raw).as_deref(), Ok(r"C:\k\x"), "{raw}");
        }
        assert_eq!(
            shown("x.txt").as_deref(),
            Ok(r"C:\Users\Administrator\x.txt")
        );
        assert_eq!(
            shown("__PROGRAMDATA__/ssh").as_deref(),
            Ok(r"C:\ProgramData\ssh")
        );
    }

    #[test]
    fn case_is_kept_and_not_compared() {
        let one = WinPath::absolute(r"C:\K\Kubelet.EXE");
        let other = WinPath::absolute("c:/k/kubelet.exe");
        assert_eq!(one, other);
        assert_eq!(
            one.map(|path| path.sftp()).as_deref(),
            Ok("/C:/K/Kubelet.EXE")
        );
    }

    #[test]
    fn what_is_above_a_drive_is_the_virtual_root() {
        assert_eq!(shown("/"), Err(PathError::VirtualRoot));
        assert_eq!(shown("/C:/.."), Err(PathError::VirtualRoot));
        assert_eq!(shown("C:/a?b"), Err(PathError::Invalid));
    }
}
