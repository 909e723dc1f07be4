//! Tiers of the tests: `fast` (pure, no server), `full` (what `cargo test --workspace` runs) and `long` (parts by name).
//!
//! - `DORMER_TIER=fast` starts no server and no process of dormer: such tests leave at once.
//! - `DORMER_LONG=<part>,…` (or `all`) also runs the named parts of [`PARTS`]. Without it they leave at once.
//!
//! `cargo tier` sets these variables (`cargo tier list` prints the parts). A part that passed writes its figures into
//! `docs/long.md`. A test that passed on the same committed tree is not run again, so an interrupted run continues where it
//! stopped; `DORMER_LONG_AGAIN=1` runs it anyway.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use xxhash_rust::xxh3::xxh3_128;

use crate::cache::cache_dir;

/// The variable that chooses the tier.
pub const TIER: &str = "DORMER_TIER";
/// The variable that names parts of the long tier.
pub const LONG: &str = "DORMER_LONG";
/// Variable that runs tests again although they passed on the same files.
pub const AGAIN: &str = "DORMER_LONG_AGAIN";

/// The variable that names a file with a line for each long test that passed.
pub const TALLY: &str = "DORMER_LONG_TALLY";

/// A part of the long tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its name in `DORMER_LONG`.
    pub name: &'static str,
    /// What it tests, and why that is not in the full tier.
    pub what: &'static str,
    /// The arguments of `cargo test` that select its tests.
    pub select: &'static [&'static str],
    /// Variables that it needs beside `DORMER_LONG`.
    pub env: &'static [(&'static str, &'static str)],
    /// The variable without which it cannot run.
    pub needs: Option<&'static str>,
    /// Whether its tests are those of the full tier under other variables: `cargo tier` writes its row.
    pub whole: bool,
    /// How long it takes on two cores, in minutes, once built.
    pub minutes: u32,
}

/// Every part of the long tier. Each takes at most 30 minutes.
pub const PARTS: &[Part] = &[
    Part {
        name: "nats-cluster",
        what: "three NATS servers: leader killed and moved, minority cut off, all killed, disk full, upgrade in place: each waits for elections in real time",
        select: &[
            "-p",
            "dormer-engine",
            "--test",
            "integration",
            "nats_cluster::",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 5,
    },
    Part {
        name: "engines",
        what: "one of four engines killed under load, and a flood of twice what an engine takes, for a minute: each needs the whole machine",
        select: &[
            "-p",
            "dormer",
            "-p",
            "dormer-engine",
            "--test",
            "integration",
            "--",
            "bench_engines::",
            "nats_credit::",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 8,
    },
    Part {
        name: "console",
        what: "the console with 5,000 machines in Chromium, in an optimised build: first paint and filter in milliseconds",
        // Its figures are those of the whole machine.
        select: &[
            "--release",
            "-p",
            "dormer",
            "--test",
            "integration",
            "--",
            "--test-threads=1",
            "browser::size::",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 2,
    },
    Part {
        name: "sim",
        what: "half a million seeds of the engine in a simulated world, in an optimised build, instead of ten thousand",
        // Each test uses all processors by itself.
        select: &[
            "--release",
            "-p",
            "dormer-sim",
            "--test",
            "simulation",
            "--",
            "--test-threads=1",
            "first_half::",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 25,
    },
    Part {
        name: "sim-second-half",
        what: "another half a million",
        // Each test uses all processors by itself.
        select: &[
            "--release",
            "-p",
            "dormer-sim",
            "--test",
            "simulation",
            "--",
            "--test-threads=1",
            "second_half::",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 25,
    },
    Part {
        name: "rollout-model",
        what: "the model check of the lease with larger bounds than the full tier's: minutes of both processors",
        select: &[
            "-p",
            "dormer-workflows",
            "--test",
            "integration",
            "rollout_model::",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 10,
    },
    Part {
        name: "host-cuts",
        what: "500 generated documents for a Windows host, killed before and after each operation, in an optimised build, instead of 50",
        // Each test uses all processors by itself.
        select: &[
            "--release",
            "-p",
            "dormer-host",
            "--test",
            "integration",
            "--",
            "--test-threads=1",
            "generated::many",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 15,
    },
    Part {
        name: "demo-fleets",
        what: "scaling, adoption and health checks with 20 and 50 machines instead of 3 to 12",
        select: &["-p", "dormer-lab", "--lib", "demo::scenarios"],
        env: &[],
        needs: None,
        whole: false,
        minutes: 2,
    },
    Part {
        name: "migration",
        what: "20 nodes of WMCO move over and 5 go back, and 3 and 1; no test of the full tier has hosts in WMCO's layout",
        select: &["-p", "dormer", "--test", "integration", "migrate::"],
        env: &[],
        needs: None,
        whole: false,
        minutes: 5,
    },
    Part {
        name: "trouble",
        what: "other people's trouble: 1,000 seeds of 20 machines for two days, 10 of 200 for a week, instead of 60 of 8",
        // The plays use all processors by themselves.
        select: &[
            "-p",
            "dormer-lab",
            "--lib",
            "bench::fleet::chaos",
            "--",
            "--test-threads=1",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 15,
    },
    Part {
        name: "verdicts",
        what: "every fault of the simulated world ends by what dormer why says, instead of twelve",
        select: &["-p", "dormer-lab", "--lib", "scenarios::verdicts::every"],
        env: &[],
        needs: None,
        whole: false,
        minutes: 15,
    },
    Part {
        name: "api-absence",
        what: "an API server that is away for five minutes instead of six seconds",
        select: &["-p", "dormer", "--test", "integration", "real::bookmarks"],
        env: &[],
        needs: None,
        whole: false,
        minutes: 7,
    },
    Part {
        name: "ssh-volume",
        what: "uploads of 512 MiB and outputs of 1 GiB over real sshd instead of 24 and 64 MiB",
        // One after the other: they measure the memory of their process.
        select: &[
            "-p",
            "dormer-workers",
            "--test",
            "sshd",
            "--",
            "--test-threads=1",
            "huge_output",
            "new_keys_every",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 3,
    },
    Part {
        name: "advisories",
        what: "known faults of dependencies, by the RustSec database in the folder that DORMER_ADVISORY_DB names: a new advisory must not fail an old commit",
        select: &[
            "-p",
            "dormer",
            "--test",
            "integration",
            "dependencies::advisories",
        ],
        env: &[],
        needs: Some("DORMER_ADVISORY_DB"),
        whole: false,
        minutes: 1,
    },
    Part {
        name: "fuzz",
        what: "every decoder of bytes from outside, a minute each (DORMER_FUZZ_SECONDS=600: ten), by cargo-fuzz and the nightly compiler, which a newcomer lacks",
        select: &["-p", "dormer-decoders", "--test", "integration", "fuzz_"],
        env: &[],
        needs: None,
        whole: false,
        minutes: 30,
    },
    Part {
        name: "image",
        what: "the image, built twice: one digest, nothing in it but two programs and authorities, and a release in pods from it; needs buildah and musl",
        select: &["-p", "dormer", "--test", "integration", "image::"],
        env: &[],
        needs: None,
        whole: false,
        minutes: 25,
    },
    Part {
        name: "pods",
        what: "dormer's pod killed five times during an upgrade of four machines: the pauses before a restart double",
        select: &["-p", "dormer", "--test", "integration", "real::pods::"],
        env: &[],
        needs: None,
        whole: false,
        minutes: 10,
    },
    Part {
        name: "host-program",
        what: "dormer-host.exe, built in two folders: the same bytes; two release builds",
        select: &[
            "-p",
            "dormer-contract",
            "--test",
            "integration",
            "program::two_builds",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 10,
    },
    Part {
        name: "host-life",
        what: "a node's life in three prefixes of Wine, each upgrade cut at another operation, instead of in one",
        select: &[
            "-p",
            "dormer-contract",
            "--test",
            "integration",
            "life::three_prefixes",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 5,
    },
    Part {
        name: "configurations",
        what: "the profiles' documents, read by the kubelet's, kube-proxy's and containerd's own code; an image, imported by containerd; builds their Go modules",
        select: &[
            "-p",
            "dormer-profile",
            "-p",
            "dormer-host",
            "--test",
            "integration",
            "real_",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 25,
    },
    Part {
        name: "olm",
        what: "the OLM bundle and its catalog, and eleven mistakes in them, read by the libraries of the operator framework; builds their Go module",
        select: &[
            "-p",
            "dormer",
            "--test",
            "integration",
            "olm::the_operator_framework",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 10,
    },
    Part {
        name: "kinds",
        what: "two MachineSets, BYOH hosts and a set of Cluster API in one queue, on a real API server, for two minutes",
        select: &[
            "-p",
            "dormer",
            "--test",
            "integration",
            "real::whole::kinds::",
        ],
        env: &[],
        needs: None,
        whole: false,
        minutes: 5,
    },
    Part {
        name: "kubernetes-oldest",
        what: "the tests on real servers against the oldest Kubernetes that dormer promises: builds it, and runs them once more",
        select: &["-p", "dormer", "--test", "integration", "real::"],
        env: &[("DORMER_KUBERNETES", "oldest")],
        needs: None,
        whole: true,
        minutes: 15,
    },
    Part {
        name: "kubernetes-newest",
        what: "the same against the newest Kubernetes that dormer promises",
        select: &["-p", "dormer", "--test", "integration", "real::"],
        env: &[("DORMER_KUBERNETES", "newest")],
        needs: None,
        whole: true,
        minutes: 15,
    },
];

/// Whether this run has no servers.
///
/// # Panics
/// When `DORMER_TIER` is neither `fast` nor `full`.
pub fn is_fast() -> bool {
    match std::env::var(TIER).as_deref() {
        Ok("fast") => true,
        Err(_) | Ok("" | "full") => false,
        Ok(other) => panic!("{TIER} is fast or full, not {other:?}; {LONG}=<part> runs long parts"),
    }
}

/// A number of seeds, or another size of a test, that is smaller in the tier `fast`.
pub fn sized<T>(fast: T, full: T) -> T {
    if is_fast() { fast } else { full }
}

/// The part of this name, if this run includes it and the test has not passed on this tree.
///
/// # Panics
/// When there is no such part, or `DORMER_LONG` names one that does not exist.
pub fn long(name: &str) -> Option<Running> {
    let part = PARTS.iter().find(|part| part.name == name);
    let part = *part.unwrap_or_else(|| panic!("no part {name:?} in tests/kit/src/tier.rs"));
    let wanted = std::env::var(LONG).unwrap_or_default();
    if !chosen(&wanted, part.name).unwrap_or_else(|why| panic!("{why}")) {
        return None;
    }
    let thread = std::thread::current();
    let running = Running::new(part, thread.name().unwrap_or("main"));
    if running.has_passed() {
        announce(&format!(
            "{} passed on this tree; {AGAIN}=1 runs it again",
            running.test
        ));
        tally();
        return None;
    }
    Some(running)
}

/// Tells `cargo tier`, by the file that it named, that a test of the part it runs has passed.
fn tally() {
    if let Some(file) = std::env::var_os(TALLY) {
        let opened = std::fs::OpenOptions::new().append(true).open(file);
        let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, b"passed\n"));
        written.expect("cargo tier made the file");
    }
}

/// Whether `wanted` (the value of `DORMER_LONG`) includes `name`.
fn chosen(wanted: &str, name: &str) -> Result<bool, String> {
    let mut found = false;
    for word in wanted
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        if word != "all" && !PARTS.iter().any(|part| part.name == word) {
            let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
            return Err(format!(
                "{LONG} names no part {word:?}; the parts are all, {}",
                names.join(", ")
            ));
        }
        found |= word == "all" || word == name;
    }
    Ok(found)
}

/// Prints a line past the test harness' capture.
pub(crate) fn announce(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints that a long test is left out, and how to run it.
pub fn leave(name: &str, test: &str) {
    announce(&format!(
        "SKIPPED {test}: long; `cargo tier long {name}` runs it"
    ));
}

/// A test of the long tier that runs.
#[derive(Debug)]
pub struct Running {
    part: Part,
    test: String,
    start: Instant,
    /// What is tested, when it began.
    tree: Option<Tree>,
}

impl Running {
    /// The test `test` of a part, which begins now.
    ///
    /// # Panics
    /// When the cache cannot be written, which a test of half an hour should not find at its end.
    pub fn new(part: Part, test: &str) -> Self {
        cache_lock().expect("the cache can be written");
        Self {
            part,
            test: test.to_owned(),
            start: Instant::now(),
            tree: Tree::now(),
        }
    }

    /// Whether it passed on this very tree. What depends on more than the tree (a variable) is run each time.
    pub fn has_passed(&self) -> bool {
        let again = std::env::var_os(AGAIN).is_some_and(|value| value == "1");
        !again && self.note().is_some_and(|note| note.is_file())
    }

    /// Writes the test's figures (name and value with its unit) and its seconds into `docs/long.md` and notes that it
    /// passed. It is the test's last call. Figures of a tree that no commit names are printed alone.
    ///
    /// # Panics
    /// When `docs/long.md` cannot be written.
    pub fn passed(&self, figures: &[(&str, String)]) {
        let seconds = format!("{} s", self.start.elapsed().as_secs());
        let figures = figures
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        let figures: Vec<String> = figures.chain([seconds]).collect();
        match tested_commit(self.tree.as_ref(), Tree::now().as_ref()) {
            Ok(commit) => {
                let cells = [
                    self.part.name,
                    &self.test,
                    &figures.join("; "),
                    commit,
                    &today(),
                ];
                write_row(&root().join("docs/long.md"), &cells)
                    .expect("docs/long.md can be written");
            }
            Err(why) => announce(&format!(
                "{} passed ({}); not noted in docs/long.md: {why}",
                self.test,
                figures.join("; ")
            )),
        }
        if let Some(note) = self.note() {
            let folder = note.parent().expect("it is in a folder");
            let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&note, ""));
            written.expect("the cache can be written");
        }
        tally();
    }

    /// The file that notes that the test passed on this tree; none while there are changes that are not committed.
    fn note(&self) -> Option<PathBuf> {
        let tree = self
            .tree
            .as_ref()
            .filter(|tree| tree.clean && self.part.needs.is_none())?;
        if Tree::now().as_ref() != Some(tree) {
            return None;
        }
        let folder = cache_dir()
            .ok()?
            .join("long")
            .join(&tree.content)
            .join(self.part.name);
        Some(folder.join(self.test.replace("::", ".")))
    }
}

/// The checkout that is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree {
    /// The commit, with a `+` where there are changes that are not committed (`docs/long.md` aside).
    commit: String,
    /// A checksum of the committed files but `docs/long.md`, so that committing figures changes nothing.
    content: String,
    clean: bool,
}

/// The commit that was tested from begin to end.
fn tested_commit<'a>(begin: Option<&Tree>, end: Option<&'a Tree>) -> Result<&'a str, &'static str> {
    match end {
        None => Err("git names no commit"),
        Some(tree) if begin != Some(tree) => Err("the files changed during the test"),
        Some(tree) if !tree.clean => Err("there are changes that are not committed"),
        Some(tree) => Ok(&tree.commit),
    }
}

impl Tree {
    fn now() -> Option<Self> {
        let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
        let files = output("git", &["ls-tree", "-r", "HEAD"])?;
        let files = files
            .lines()
            .filter(|line| !line.ends_with("\tdocs/long.md"));
        let content = files.collect::<Vec<_>>().join("\n");
        let changes = output(
            "git",
            &["status", "--porcelain", "--", ".", ":!docs/long.md"],
        )?;
        let clean = changes.is_empty();
        Some(Self {
            commit: if clean { commit } else { format!("{commit}+") },
            content: format!("{:032x}", xxh3_128(content.as_bytes())),
            clean,
        })
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// Today's date (UTC), such as `2026-11-22`.
fn today() -> String {
    output("date", &["-u", "+%F"]).unwrap_or_default()
}

/// Puts a row into the page's table in the place of the row of the same part and test.
fn write_row(page: &Path, row: &[&str; 5]) -> Result<()> {
    let lock = cache_lock()?;
    lock.lock()?;
    let text = std::fs::read_to_string(page).context("docs/long.md is missing")?;
    // Renamed into place, so that a full disk leaves the page as it was.
    let folder = page.parent().context("it is in a folder")?;
    let mut whole = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut whole, with_row(&text, row).as_bytes())?;
    whole
        .as_file()
        .set_permissions(page.metadata()?.permissions())?;
    whole.persist(page)?;
    Ok(())
}

fn cache_lock() -> Result<std::fs::File> {
    let folder = cache_dir()?;
    std::fs::create_dir_all(&folder)?;
    Ok(std::fs::File::create(folder.join("long.lock"))?)
}

/// The page's text with the row; rows are sorted by part and test.
fn with_row(text: &str, row: &[&str; 5]) -> String {
    let line = format!("| {} |", row.map(|cell| cell.replace('|', "/")).join(" | "));
    let key = format!("| {} | {} |", row[0], row[1]);
    let (head, rows): (Vec<&str>, Vec<&str>) = text
        .lines()
        .partition(|line| !line.starts_with("| ") || line.starts_with("| part "));
    let mut rows: Vec<&str> = rows
        .into_iter()
        .filter(|line| !line.starts_with(&key))
        .collect();
    rows.push(&line);
    rows.sort_unstable();
    let mut page = head.join("\n");
    page.push('\n');
    page.push_str(&rows.join("\n"));
    page.push('\n');
    page
}

/// Leaves the test unless the run includes this part of the long tier; otherwise the value with which the test tells
/// its figures.
#[macro_export]
macro_rules! long {
    ($part:expr) => {
        match $crate::tier::long($part) {
            Some(running) => running,
            None => {
                $crate::tier::leave($part, concat!(module_path!(), ":", line!()));
                return;
            }
        }
    };
}

/// Leaves the test in the tier `fast`.
#[macro_export]
macro_rules! full {
    () => {
        if $crate::tier::is_fast() {
            return;
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clean_tree_that_stayed_as_it_was_is_noted() {
        let tree = |commit: &str, content: &str, clean| Tree {
            commit: commit.to_owned(),
            content: content.to_owned(),
            clean,
        };
        let clean = tree("c1", "f1", true);
        let other = tree("c2", "f2", true);
        assert_eq!(tested_commit(Some(&clean), Some(&clean)), Ok("c1"));
        for (begin, end) in [
            (Some(&clean), Some(&other)),
            (Some(&clean), None),
            (None, Some(&clean)),
            (
                Some(&tree("c1+", "f1", false)),
                Some(&tree("c1+", "f1", false)),
            ),
        ] {
            tested_commit(begin, end).expect_err("no commit names that tree");
        }
    }

    #[test]
    fn parts_are_chosen_by_name() {
        assert_eq!(chosen("", "rollout-model"), Ok(false));
        assert_eq!(
            chosen("nats-cluster, rollout-model", "rollout-model"),
            Ok(true)
        );
        assert_eq!(chosen("all", "rollout-model"), Ok(true));
        assert_eq!(chosen("nats-cluster", "rollout-model"), Ok(false));
        let error = chosen("1", "rollout-model").expect_err("no such part");
        assert!(
            error.contains("\"1\"") && error.contains("nats-cluster"),
            "{error}"
        );
    }

    #[test]
    fn each_part_has_one_name_and_at_most_thirty_minutes() {
        for (at, part) in PARTS.iter().enumerate() {
            assert!(part.minutes <= 30, "{}", part.name);
            assert!(
                PARTS[..at].iter().all(|other| other.name != part.name),
                "{}",
                part.name
            );
        }
    }

    /// Package, and path of the module within its target, of a source file. `target`: name of the test target, whose folder
    /// is no module.
    fn module_of(file: &str, target: Option<&str>) -> (String, String) {
        let path = Path::new(file);
        let mut folders = path.ancestors().skip(1);
        let is_package = |folder: &&Path| root().join(folder).join("Cargo.toml").is_file();
        let folder = folders.find(is_package).expect("it is in a package");
        let manifest = std::fs::read_to_string(root().join(folder).join("Cargo.toml"));
        let manifest = manifest.expect("a manifest");
        let name = manifest.lines().find_map(|it| it.strip_prefix("name = "));
        let name = name.expect("it has a name").trim_matches('"').to_owned();
        let within = path.strip_prefix(folder).expect("it is in there");
        let within = within.with_extension("");
        let names = within.iter().filter_map(|it| it.to_str());
        let modules = names.enumerate().filter(|(at, name)| match *name {
            "src" | "tests" => *at > 0,
            "main" | "lib" | "mod" => false,
            name => *at > 1 || Some(name) != target,
        });
        let modules: Vec<&str> = modules.map(|(_, name)| name).collect();
        (name, modules.join("::"))
    }

    /// What follows each occurrence of the flag, which may be given more than once.
    fn values<'a>(select: &[&'a str], flag: &str) -> Vec<&'a str> {
        let pairs = select.windows(2).filter(|pair| pair[0] == flag);
        pairs.map(|pair| pair[1]).collect()
    }

    /// Whether a file of this folder has a function with such a name. The call of `long` may stand in a helper of the test.
    fn names_a_function_beside(file: &str, filter: &str) -> bool {
        let folder = root().join(file).parent().expect("a folder").to_owned();
        let files = std::fs::read_dir(folder).expect("a folder").flatten();
        let mut texts = files.filter_map(|it| std::fs::read_to_string(it.path()).ok());
        let begin = format!("fn {filter}");
        !filter.contains("::") && texts.any(|text| text.contains(&begin))
    }

    /// Whether the arguments of `cargo test` select a test in this file.
    fn selects(select: &[&str], file: &str) -> bool {
        let packages = values(select, "-p");
        let targets = values(select, "--test");
        let (package, module) = module_of(file, targets.first().copied());
        let is_filter =
            |it: &&&str| !it.starts_with('-') && !packages.contains(*it) && !targets.contains(*it);
        let module = format!("{module}::");
        let mut filters = select.iter().filter(is_filter);
        // A filter is any part of a test's path.
        let fits = |filter: &&str| {
            let of_module = filter.rsplit_once("::").map_or("", |(of, _)| of);
            module == "::"
                || module.contains(*filter)
                || filter.starts_with(&module)
                || !of_module.is_empty() && module.ends_with(&format!("::{of_module}::"))
                || names_a_function_beside(file, filter)
        };
        packages.contains(&package.as_str()) && filters.any(fits)
    }

    /// Nothing ever runs a test of the long tier that its part does not select.
    #[test]
    fn each_long_test_is_selected_by_its_part() {
        let pattern = r#"long!?\("[a-z-]+""#;
        let found = output(
            "git",
            &["grep", "-oE", pattern, "--", "*.rs", ":!tests/kit/src"],
        );
        let found = found.expect("a checkout");
        let mut parts = std::collections::BTreeSet::new();
        for line in found.lines() {
            let (file, call) = line.split_once(':').expect("a file and a call");
            let name = call.split('"').nth(1).expect("a name");
            let part = PARTS.iter().find(|part| part.name == name);
            let part = part.unwrap_or_else(|| panic!("{file}: no part {name}"));
            assert!(selects(part.select, file), "{name} does not select {file}");
            parts.insert(name);
        }
        // The simulations name their part by a macro; a whole part has no tests of its own.
        let named = |part: &&Part| !part.whole && !part.name.starts_with("sim");
        let all = PARTS.iter().filter(named).map(|part| part.name);
        assert_eq!(parts, all.collect());
    }

    #[test]
    fn a_row_replaces_the_last_one_of_its_test() {
        let page =
            "# Long\n\n| part | test | figures | commit | date (UTC) |\n|---|---|---|---|---|\n";
        let page = with_row(page, &["b", "t", "runs: 1", "abc", "2026-11-22"]);
        let page = with_row(&page, &["a", "t", "runs: 2", "abc", "2026-11-22"]);
        let page = with_row(&page, &["b", "t", "runs: 3", "def", "2026-11-23"]);
        let rows: Vec<&str> = page.lines().skip(4).collect();
        let expected = [
            "| a | t | runs: 2 | abc | 2026-11-22 |",
            "| b | t | runs: 3 | def | 2026-11-23 |",
        ];
        assert_eq!(rows, expected);
    }
}
