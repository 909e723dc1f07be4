//! What Go's linker writes into a program about its build (`debug/buildinfo`, since Go 1.18).

/// Mark in front of it.
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Go's linker begins it at a multiple of this (`buildInfoAlign`).
const ALIGNMENT: usize = 16;
/// Where its two texts begin, counted from the mark.
const TEXTS: usize = 32;
/// Bit that says that they stand here, and are not pointers as before Go 1.18.
const INLINE: u8 = 2;
/// Longest text.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Bytes in front of and behind the second text.
const SENTINEL: usize = 16;

/// Build information of a program written in Go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoBuild {
    /// Lines such as `mod<TAB>example.com/a<TAB>v1.2.3`.
    text: String,
}

impl GoBuild {
    /// Finds it in a program's bytes. `None`: the program has none that can be read.
    #[must_use]
    pub fn find(bytes: &[u8]) -> Option<Self> {
        // A program that reads build information has the mark among its texts, too.
        (0..bytes.len())
            .step_by(ALIGNMENT)
            .map(|at| &bytes[at..])
            .filter(|rest| rest.starts_with(MAGIC))
            .find_map(Self::read)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.get(MAGIC.len() + 1)? & INLINE == 0 {
            return None;
        }
        let (go, rest) = text(bytes.get(TEXTS..)?)?;
        let (modules, _) = text(rest)?;
        if !go.starts_with(b"go") && !go.starts_with(b"devel") {
            return None;
        }
        let inner = modules.len().checked_sub(SENTINEL)?;
        let modules = modules.get(SENTINEL..inner)?;
        let text = String::from_utf8(modules.to_vec()).ok()?;
        Some(Self { text })
    }

    /// The main module and its version.
    #[must_use]
    pub fn module(&self) -> Option<(&str, &str)> {
        let line = self.text.lines().find_map(|it| it.strip_prefix("mod\t"))?;
        let mut words = line.split('\t');
        Some((words.next()?, words.next().unwrap_or_default()))
    }

    /// Value of a variable that the linker set (`-X NAME=VALUE`), by the end of its name. A build with `-trimpath` does not
    /// tell them.
    #[must_use]
    pub fn linked(&self, name: &str) -> Option<&str> {
        let flags = self
            .text
            .lines()
            .find_map(|it| it.strip_prefix("build\t-ldflags="))?;
        let (_, value) = flags.split_once(&format!("{name}="))?;
        let end = value.find(|c: char| c.is_whitespace() || "\"'\\".contains(c));
        Some(&value[..end.unwrap_or(value.len())])
    }
}

/// A text with its length in front, and what follows it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_usize;
    for (n, byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            let rest = &bytes[n + 1..];
            return (length <= TEXT_BYTES_MAX && length <= rest.len())
                .then(|| rest.split_at(length));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_testkit::go_build_information;

    #[test]
    fn build_information_is_found_behind_a_text_with_its_mark() {
        let lines = "path\tgithub.com/containerd/containerd/v2/cmd/containerd\n\
                     mod\tgithub.com/containerd/containerd/v2\tv2.4.2\th1:x=\n\
                     build\t-ldflags=\"-X github.com/containerd/containerd/v2/version.Version=v2.4.2 -s\"\n";
        let bytes = [MAGIC, b"no", &go_build_information(lines)].concat();
        let found = GoBuild::find(&bytes).expect("build information");
        let module = ("github.com/containerd/containerd/v2", "v2.4.2");
        assert_eq!(found.module(), Some(module));
        assert_eq!(found.linked("/version.Version"), Some("v2.4.2"));
        assert_eq!(found.linked("/version.Revision"), None);
        // Cut off anywhere, it is none, and nothing panics.
        for end in 0..bytes.len() {
            assert_eq!(GoBuild::find(&bytes[..end]), None, "{end}");
        }
    }
}
