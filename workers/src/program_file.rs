//! Header and version resource of a Windows program, and what it says of its release.

use crate::go_build::GoBuild;
use dormer_profile::release::Release;
use object::{
    LittleEndian as LE,
    pe::{IMAGE_FILE_DLL, IMAGE_FILE_MACHINE_AMD64, RT_VERSION},
    read::pe::{
        ImageNtHeaders, PeFile64, ResourceDirectory, ResourceDirectoryTable, ResourceNameOrId,
    },
};
use std::fmt;

/// First number of the fixed part of a version resource (VS_FIXEDFILEINFO in `verrsrc.h`).
const FIXED_FILE_INFO: [u8; 4] = 0xFEEF_04BD_u32.to_le_bytes();
/// Where the product's version stands after it: after the structure's own version and the file's.
const PRODUCT_VERSION: usize = 16;

/// Module of containerd, in front of the number of its major version.
const CONTAINERD_MODULE: &str = "github.com/containerd/containerd";
/// Module of the kubelet and kube-proxy.
const KUBERNETES_MODULE: &str = "k8s.io/kubernetes";

/// A program for 64-bit Windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Product version in its resource; most programs written in Go have none.
    pub version: Option<ProductVersion>,
    /// What Go's linker wrote into it.
    pub go: Option<GoBuild>,
}

/// What a program says of its own release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRelease {
    /// Its major version.
    pub major: u32,
    /// Its minor version; `None`: it tells the major one only.
    pub minor: Option<u32>,
    /// How it says so, for people.
    pub said: String,
}

impl OwnRelease {
    /// `major.minor`, if it says both.
    #[must_use]
    pub fn release(&self) -> Option<Release> {
        Some(Release::new(self.major, self.minor?))
    }

    /// Whether it can be a program of that release.
    #[must_use]
    pub fn fits(&self, release: Release) -> bool {
        self.major == release.major && self.minor.is_none_or(|minor| minor == release.minor)
    }

    fn of(release: Release, said: String) -> Self {
        Self {
            major: release.major,
            minor: Some(release.minor),
            said,
        }
    }
}

/// Product version in a version resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductVersion([u16; 4]);

impl ProductVersion {
    /// `major.minor`.
    #[must_use]
    pub fn release(self) -> Release {
        Release::new(self.0[0].into(), self.0[1].into())
    }
}

impl fmt::Display for ProductVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch, build] = self.0;
        write!(f, "{major}.{minor}.{patch}.{build}")
    }
}

impl Program {
    /// Reads the headers and the version resource.
    ///
    /// # Errors
    /// It is no whole program for 64-bit Windows on AMD64, in a sentence.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let file = PeFile64::parse(bytes)
            .map_err(|error| format!("it is no 64-bit program for Windows: {error}"))?;
        let header = file.nt_headers().file_header();
        let machine = header.machine.get(LE);
        if machine != IMAGE_FILE_MACHINE_AMD64 {
            return Err(format!(
                "it is for processors of type {machine:#06x}, and hosts are AMD64"
            ));
        }
        if header.characteristics.get(LE) & IMAGE_FILE_DLL != 0 {
            return Err("it is a library, not a program".to_owned());
        }
        let sections = file.section_table();
        let ends = sections.iter().map(|section| {
            let (from, size) = section.pe_file_range();
            // What is zero from the start has no content in the file.
            let is_empty = size == 0 || from == 0;
            if is_empty {
                0
            } else {
                u64::from(from) + u64::from(size)
            }
        });
        let needed = ends.max().unwrap_or_default();
        let has = bytes.len();
        if needed > has as u64 {
            return Err(format!(
                "it is cut: its sections end at byte {needed}, and it has {has}"
            ));
        }
        let resources = file
            .data_directories()
            .resource_directory(bytes, &sections)
            .map_err(|error| format!("its resources cannot be read: {error}"))?;
        let version = resources.and_then(|directory| version(&file, bytes, directory));
        let go = GoBuild::find(bytes);
        Ok(Self { version, go })
    }

    /// What containerd says of its release: by the version of its Go module, by the variable that its Makefile sets, in
    /// its version resource, or at least by the module's name. A vendor's resource may have the vendor's own numbers.
    #[must_use]
    pub fn containerd(&self) -> Option<OwnRelease> {
        let major = |module: &str| match module.strip_prefix(CONTAINERD_MODULE)? {
            "" => Some(1),
            rest => rest.strip_prefix("/v")?.parse().ok(),
        };
        let of_go = self.go.as_ref().and_then(|go| {
            let (module, version) = go.module()?;
            Some((go, module, version, major(module)?))
        });
        let Some((go, module, version, major)) = of_go else {
            return self.by_resource();
        };
        let found = published(go, major, "/version.Version", version);
        let named = || OwnRelease {
            major,
            minor: None,
            said: format!("its Go module is {module}"),
        };
        Some(
            found
                .or_else(|| self.by_resource().filter(|own| own.major == major))
                .unwrap_or_else(named),
        )
    }

    /// What a program of Kubernetes says of its release.
    #[must_use]
    pub fn kubernetes(&self) -> Option<OwnRelease> {
        let of_go = || {
            let go = self.go.as_ref()?;
            let (module, version) = go.module()?;
            (module == KUBERNETES_MODULE).then_some(())?;
            published(go, 1, "component-base/version.gitVersion", version)
        };
        let of_kubernetes = |own: &OwnRelease| own.major == 1;
        of_go().or_else(|| self.by_resource().filter(of_kubernetes))
    }

    fn by_resource(&self) -> Option<OwnRelease> {
        let version = self.version?;
        let said = format!("its version resource says {version}");
        Some(OwnRelease::of(version.release(), said))
    }
}

/// Release in Go's build information, of a program with that major version: the version of the module, else what the
/// linker set.
fn published(go: &GoBuild, major: u32, variable: &str, module: &str) -> Option<OwnRelease> {
    let of = |text| Some((text, plain(text).filter(|release| release.major == major)?));
    // A version that Go made up for a commit says which tag came before, in whichever repository it was.
    let of_module = Some(module).filter(|text| !is_made_up(text));
    let found = of_module.and_then(of);
    let (text, release) = found.or_else(|| go.linked(variable).and_then(of))?;
    let said = format!("its Go build information says {text}");
    Some(OwnRelease::of(release, said))
}

/// `major.minor` of a version such as `v2.4.2-rc.1`.
fn plain(version: &str) -> Option<Release> {
    let mut parts = version.strip_prefix('v')?.splitn(3, '.');
    let mut number = || parts.next()?.parse().ok();
    let release = Release::new(number()?, number()?);
    (release.major > 0 && parts.next().is_some()).then_some(release)
}

/// Whether it is a pseudo-version of Go's: it ends with a time and a commit.
fn is_made_up(version: &str) -> bool {
    let version = version.split('+').next().unwrap_or_default();
    let mut parts = version.rsplit(['-', '.']);
    let commit = parts.next().unwrap_or_default();
    let time = parts.next().unwrap_or_default();
    commit.len() == 12 && time.len() == 14 && time.bytes().all(|b| b.is_ascii_digit())
}

/// Product version of the first version resource.
fn version(
    file: &PeFile64<'_>,
    bytes: &[u8],
    directory: ResourceDirectory<'_>,
) -> Option<ProductVersion> {
    let root = directory.root().ok()?;
    let of_type = root
        .entries
        .iter()
        .find(|entry| matches!(entry.name_or_id(), ResourceNameOrId::Id(id) if id == RT_VERSION))?;
    // Below the type there is a table of names, and below it one of languages.
    let first = |table: ResourceDirectoryTable<'_>| table.entries.first().copied();
    let names = of_type.data(directory).ok()?.table()?;
    let languages = first(names)?.data(directory).ok()?.table()?;
    let entry = first(languages)?.data(directory).ok()?.data()?;
    let address = entry.offset_to_data.get(LE);
    let data = file.section_table().pe_data_at(bytes, address)?;
    let data = data.get(..entry.size.get(LE) as usize)?;
    let at = data
        .windows(FIXED_FILE_INFO.len())
        .position(|four| four == FIXED_FILE_INFO)?;
    let numbers = data.get(at + PRODUCT_VERSION..at + PRODUCT_VERSION + 8)?;
    let word = |n: usize| u16::from_le_bytes([numbers[n], numbers[n + 1]]);
    // Two numbers of 32 bits, each with its upper half first in meaning.
    Some(ProductVersion([word(2), word(0), word(6), word(4)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_testkit::{AMD64, go_build_information, go_program, windows_program};

    fn program(bytes: &[u8]) -> Program {
        Program::parse(bytes).expect("a program")
    }

    #[test]
    fn a_program_that_was_not_copied_to_its_end_is_refused_wherever_it_is_cut() {
        let whole = windows_program(AMD64, Some([2, 3, 1, 0]));
        let headers = 0x170;
        for end in 0..whole.len() {
            let why = Program::parse(&whole[..end]).expect_err("a part of it");
            let says = if end < headers {
                "it is no 64-bit program"
            } else {
                "it is cut"
            };
            assert!(why.starts_with(says), "{end}: {why}");
        }
    }

    #[test]
    fn odd_headers_are_refused_with_a_sentence_or_read_and_nothing_panics() {
        let version = Some(ProductVersion([2, 3, 1, 0]));
        let whole = windows_program(AMD64, Some([2, 3, 1, 0]));
        let row = whole[0x148..0x170].to_vec();
        let most = [0xff; 4];
        let none = [0; 4];
        let no_program = Err("it is no 64-bit program");
        // Of the whole program: the COFF header begins at 0x44, the optional one at 0x58, its directory of resources at 0xd8,
        // the section table at 0x148, and the resources at 0x200.
        for (name, changes, wanted) in [
            ("nothing odd", vec![], Ok(version)),
            ("a header far behind", vec![(0x3c, &most[..])], no_program),
            ("a 32-bit program", vec![(0x58, &[0x0b, 1][..])], no_program),
            ("most sections", vec![(0x46, &most[..2])], no_program),
            (
                "a long optional header",
                vec![(0x54, &most[..2])],
                no_program,
            ),
            ("most directories", vec![(0xc4, &most[..])], no_program),
            (
                "a section far behind",
                vec![(0x15c, &most[..])],
                Err("it is cut"),
            ),
            (
                "a section that is too long",
                vec![(0x150, &most[..]), (0x158, &most[..])],
                Err("it is cut"),
            ),
            (
                "two sections over each other",
                vec![(0x46, &[2, 0][..]), (0x170, &row[..])],
                Ok(version),
            ),
            (
                "resources nowhere",
                vec![(0xd8, &most[..])],
                Err("its resources"),
            ),
            (
                "resources that are too long",
                vec![(0xdc, &most[..])],
                Err("its resources"),
            ),
            ("no resources", vec![(0xd8, &none[..])], Ok(None)),
            ("most resources", vec![(0x20c, &most[..])], Ok(None)),
            // The table of types is its own table of names, and of languages.
            (
                "resources in a circle",
                vec![(0x214, &[0, 0, 0, 0x80][..])],
                Ok(None),
            ),
        ] {
            let mut bytes = whole.clone();
            for (at, value) in changes {
                bytes[at..at + value.len()].copy_from_slice(value);
            }
            match (Program::parse(&bytes), wanted) {
                (Ok(program), Ok(version)) => assert_eq!(program.version, version, "{name}"),
                (Err(why), Err(says)) => assert!(why.starts_with(says), "{name}: {why}"),
                (parsed, _) => panic!("{name}: {parsed:?}"),
            }
        }
    }

    #[test]
    fn containerd_tells_its_release_as_its_builds_write_it() {
        let of = |module: &str, version: &str, flags: &str| {
            let flags = match flags {
                "" => String::new(),
                flags => format!("build\t-ldflags=\"-X {flags} -s -w\"\n"),
            };
            let lines =
                format!("path\t{module}/cmd/containerd\nmod\t{module}\t{version}\t\n{flags}");
            let told = program(&go_program(&lines)).containerd();
            told.map(|it| (it.major, it.minor))
        };
        let one = CONTAINERD_MODULE;
        let two = "github.com/containerd/containerd/v2";
        let linked = "github.com/containerd/containerd/v2/version.Version=";
        let table = [
            (of(one, "v1.7.35", ""), Some((1, Some(7)))),
            (of(two, "v2.4.2", ""), Some((2, Some(4)))),
            (of(two, "v2.4.0-rc.1+dirty", ""), Some((2, Some(4)))),
            (
                of(two, "(devel)", &format!("{linked}v2.1.4")),
                Some((2, Some(1))),
            ),
            (
                of(two, "(devel)", &format!("{linked}v2.1.4-12-g0a1b2c3.m")),
                Some((2, Some(1))),
            ),
            (
                of(two, "(devel)", &format!("{linked}0a1b2c3d")),
                Some((2, None)),
            ),
            (of(two, "(devel)", ""), Some((2, None))),
            (of(one, "(devel)", ""), Some((1, None))),
            // The tag before a commit of a fork says nothing.
            (
                of(two, "v2.0.1-0.20260822101112-301026e58aaa", ""),
                Some((2, None)),
            ),
            (of("example.com/other", "v2.4.2", ""), None),
        ];
        for (n, (told, wanted)) in table.into_iter().enumerate() {
            assert_eq!(told, wanted, "row {n}");
        }
        let resource = program(&windows_program(AMD64, Some([2, 3, 1, 0]))).containerd();
        assert_eq!(
            resource.and_then(|it| it.release()),
            Some(Release::new(2, 3))
        );
        assert_eq!(program(&windows_program(AMD64, None)).containerd(), None);
    }

    /// A vendor's build has a resource of the vendor's, and Go's information besides.
    #[test]
    fn go_knows_a_release_better_than_a_vendors_resource() {
        let of = |resource, version: &str, linked: &str| {
            let module = "github.com/containerd/containerd/v2";
            let lines = format!(
                "mod\t{module}\t{version}\t\nbuild\t-ldflags=\"-X {module}/version.Version={linked}\"\n"
            );
            let mut bytes = windows_program(AMD64, Some(resource));
            bytes.resize(bytes.len().next_multiple_of(16), 0);
            bytes.extend(go_build_information(&lines));
            let told = program(&bytes).containerd().expect("a release");
            (told.major, told.minor)
        };
        let table = [
            (of([4, 22, 0, 0], "v2.1.4", ""), (2, Some(1))),
            (of([2, 4, 0, 0], "v2.1.4", "v2.2.0"), (2, Some(1))),
            (of([4, 22, 0, 0], "(devel)", "v2.2.1"), (2, Some(2))),
            // The linker's version has another numbering than the module's.
            (of([2, 2, 5, 0], "(devel)", "v4.22.0"), (2, Some(2))),
            (of([4, 22, 0, 0], "(devel)", "v4.22.0"), (2, None)),
            (of([2, 0, 7, 0], "(devel)", ""), (2, Some(0))),
            (
                of(
                    [2, 0, 7, 0],
                    "v2.0.8-0.20260822101112-301026e58aaa",
                    "301026e58aaa",
                ),
                (2, Some(0)),
            ),
        ];
        for (n, (told, wanted)) in table.into_iter().enumerate() {
            assert_eq!(told, wanted, "row {n}");
        }
        let lines = "mod\tk8s.io/kubernetes\tv1.36.2\t\n";
        let mut bytes = windows_program(AMD64, Some([4, 22, 0, 0]));
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        bytes.extend(go_build_information(lines));
        let told = program(&bytes).kubernetes().expect("a release");
        assert_eq!(told.release(), Some(Release::new(1, 36)));
    }

    #[test]
    fn kubernetes_tells_its_release_by_what_the_linker_set() {
        let lines = "mod\tk8s.io/kubernetes\t(devel)\t\n\
                     build\t-ldflags=\"-X 'k8s.io/component-base/version.gitVersion=v1.33.13' -s\"\n";
        let told = program(&go_program(lines)).kubernetes().expect("a release");
        assert_eq!(told.release(), Some(Release::new(1, 33)));
        let quiet = "mod\tk8s.io/kubernetes\t(devel)\t\n";
        assert_eq!(program(&go_program(quiet)).kubernetes(), None);
    }
}
