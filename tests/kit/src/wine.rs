//! A Windows for one test: a prefix of Wine, copied from a template that is made once for each user and Wine.
//!
//! A copy takes seconds, because `drive_c/windows` is hard links into the template. A program in the prefix could so
//! change the template's files; sizes and times of these are compared before each copy, and a template that changed is
//! made anew.
//!
//! Nothing in a prefix leads out of it: there is no drive `Z:`, and the folders of the user are folders. Wine follows
//! Unix links where Windows would remove them, so a removal in a test would empty what they lead to.
//!
//! A power cut ([`Wine::cut_power`]) kills all its processes; the next program is its next boot. They are known by the
//! variable `WINEPREFIX`: a killed wineserver alone would leave its clients. When the value is dropped, or this process
//! dies, its processes are killed and its folder is removed.

use std::fs;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use xxhash_rust::xxh3::Xxh3;

use crate::host_program::compiled;
use crate::skip::{self, Skipped, Start};
use crate::{block_until, cache};

/// Its name in `tests/servers/required.txt`.
const SERVER: &str = "wine";
/// Names a program to be taken as it is.
const VARIABLE: &str = "DORMER_WINE";
/// Where Debian has it, beside `PATH`: `wine64` alone brings no program of that name.
const FOLDERS: [&str; 2] = ["/usr/lib/wine", "/usr/bin"];
/// The beginning of the names of folders that are in use, or left behind.
const UNFINISHED: &str = "unfinished-";
/// Time for Wine's own processes to end.
const END_MAX: Duration = Duration::from_secs(30);

/// What makes a prefix a Windows Server 2022: Wine's version comes from these values (Wine 8,
/// `dlls/ntdll/version.c`), and Debian's default is Windows 7.
const VERSION: &str = r#"Windows Registry Editor Version 5.00

[HKEY_LOCAL_MACHINE\Software\Microsoft\Windows NT\CurrentVersion]
"CurrentVersion"="10.0"
"CurrentBuild"="20348"
"CurrentBuildNumber"="20348"
"CSDVersion"=""
"ProductName"="Windows Server 2022 Datacenter"

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control\ProductOptions]
"ProductType"="ServerNT"

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control\Windows]
"CSDVersion"=dword:00000000
"#;

/// Kills the prefix' processes and removes its folder when we are gone, even by SIGKILL. `$1` is the variable by which
/// the processes are known, `$2` the folder. A line on standard input stands it down.
const WATCHDOG: &str = r#"trap '' INT HUP TERM
read -r _ && exit 0
empty=0
while [ $empty -lt 2 ]; do
    empty=$((empty + 1))
    for process in /proc/[0-9]*; do
        grep -qzxF -e "$1" "$process/environ" && empty=0 && kill -9 "${process#/proc/}"
    done
    sleep 0.1
done
rm -rf "$2""#;

/// Wine's programs.
#[derive(Debug, Clone)]
struct Programs {
    wine: PathBuf,
    server: PathBuf,
    version: String,
}

/// A prefix of a test's own.
#[derive(Debug)]
pub struct Wine {
    programs: Programs,
    prefix: PathBuf,
    watchdog: Child,
    folder: Option<TempDir>,
}

impl Wine {
    /// A fresh Windows. The first one on a machine takes a minute.
    pub fn start() -> Start<Self> {
        let skipped = |error: anyhow::Error| Skipped {
            server: SERVER.to_owned(),
            reason: format!("{error:#}"),
        };
        if let Err(skipped) = skip::may_start(SERVER) {
            return Start::Skipped(skipped);
        }
        match Self::copied() {
            Ok(wine) => Start::Started(wine),
            Err(error) => Start::Skipped(skipped(error)),
        }
    }

    fn copied() -> Result<Self> {
        let programs = Programs::find()?;
        let base = cache::cache_dir()?.join("wine");
        fs::create_dir_all(&base)?;
        let template = template(&base, &programs)?;
        // In the same folder as the template: hard links do not leave a file system.
        let folder = tempfile::Builder::new().prefix("case-").tempdir_in(&base)?;
        let prefix = folder.path().join("prefix");
        copy(&template, &prefix, Path::new(""))?;
        let watchdog = watch(&prefix, folder.path())?;
        Ok(Self {
            programs,
            prefix,
            watchdog,
            folder: Some(folder),
        })
    }

    /// The folder that is `C:\`.
    pub fn drive(&self) -> PathBuf {
        self.prefix.join("drive_c")
    }

    /// The file of a path such as `C:\k\kubelet.exe`, which must be written as it is on the disk.
    ///
    /// # Panics
    /// When the path does not lie on `C:`.
    pub fn file(&self, path: &str) -> PathBuf {
        let below = path.strip_prefix(r"C:\").expect("a path on C:");
        self.drive().join(below.replace('\\', "/"))
    }

    /// Puts copies of the service program of `tests/wine` into a folder, each named after how it behaves.
    ///
    /// # Errors
    /// It cannot be compiled.
    pub fn install_service_programs(&self, folder: &str, manners: &[&str]) -> Result<()> {
        let program = compiled("service.exe")?;
        fs::create_dir_all(self.file(folder))?;
        for manner in manners {
            self.install(&program, &format!(r"{folder}\{manner}.exe"))?;
        }
        Ok(())
    }

    /// Puts a stand-in of `tests/wine` where Windows has a library that Wine lacks.
    ///
    /// # Errors
    /// It cannot be compiled.
    pub fn install_stand_in(&self, library: &str) -> Result<()> {
        let path = format!(r"C:\windows\system32\{library}");
        ensure!(!self.file(&path).exists(), "Wine has {library} of its own");
        self.install(&compiled(library)?, &path)
    }

    /// Copies a program of ours to a path.
    ///
    /// # Errors
    /// The folder is not there.
    pub fn install(&self, program: &Path, path: &str) -> Result<()> {
        fs::copy(program, self.file(path)).with_context(|| path.to_owned())?;
        Ok(())
    }

    /// A command that runs a program of the prefix by its Windows path.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.programs.command(&self.prefix);
        command.arg(program);
        command
    }

    /// Runs a command of this prefix to its end. What it writes on standard error goes through a file: the services that it
    /// starts inherit that, and a pipe would stay open as long as they run.
    ///
    /// # Errors
    /// Wine cannot be started.
    pub fn output(&self, command: &mut Command) -> std::io::Result<Output> {
        output_of(command)
    }

    /// Kills every process of the prefix at once. What the registry was told in the last seconds is lost, as with a
    /// power cut; the next program boots the prefix.
    pub fn cut_power(&self) {
        kill_all(&self.prefix);
    }

    /// Ends every process of the prefix; the registry is written.
    pub fn shut_down(&self) {
        self.programs.end(&self.prefix);
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        self.cut_power();
        if let Some(mut pipe) = self.watchdog.stdin.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.watchdog.wait();
        if let Some(folder) = self.folder.take()
            && let Err(error) = folder.close()
        {
            let _ = writeln!(std::io::stderr(), "a prefix of Wine is left: {error}");
        }
    }
}

/// Output of a command whose children may keep its standard error.
fn output_of(command: &mut Command) -> std::io::Result<Output> {
    let mut errors = tempfile::tempfile()?;
    let mut output = command.stderr(errors.try_clone()?).output()?;
    errors.rewind()?;
    errors.read_to_end(&mut output.stderr)?;
    Ok(output)
}

impl Programs {
    fn find() -> Result<Self> {
        let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        let wine = match named {
            Some(path) => PathBuf::from(path),
            None => find(&["wine64", "wine"]).context("no wine64 in PATH (Debian: wine64)")?,
        };
        let server = find(&["wineserver64", "wineserver"])
            .context("no wineserver in PATH (Debian: wine64)")?;
        let output = Command::new(&wine).arg("--version").output();
        let output = output.with_context(|| wine.display().to_string())?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(version.starts_with("wine-"), "{}: no Wine", wine.display());
        Ok(Self {
            wine,
            server,
            version,
        })
    }

    /// Wine in this prefix, with nothing of the user's surroundings.
    fn command(&self, prefix: &Path) -> Command {
        let mut command = Command::new(&self.wine);
        self.surround(&mut command, prefix);
        command
    }

    fn surround(&self, command: &mut Command, prefix: &Path) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", prefix.parent().unwrap_or(prefix))
            .env("WINEPREFIX", prefix)
            .env("WINEARCH", "win64")
            .env("WINESERVER", &self.server)
            .env("WINEDEBUG", "-all")
            // Neither Mono nor Gecko is asked for, and no menus are written.
            .env("WINEDLLOVERRIDES", "mscoree,mshtml,winemenubuilder.exe=")
            .env("LC_ALL", "C.UTF-8")
            .current_dir(prefix.join("drive_c"));
    }

    /// Runs a program and wants it to succeed.
    fn run(&self, prefix: &Path, arguments: &[&str]) -> Result<()> {
        let mut command = self.command(prefix);
        let output = output_of(command.args(arguments).stdin(Stdio::null()))?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "wine {}: {} {error}",
            arguments.join(" "),
            output.status
        );
        Ok(())
    }

    /// Ends the prefix' processes, so that the registry is written, and waits until they are gone.
    fn end(&self, prefix: &Path) {
        for argument in ["-k", "-w"] {
            let mut command = Command::new(&self.server);
            self.surround(&mut command, prefix);
            let child = command
                .arg(argument)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            if let Ok(mut child) = child {
                block_until(END_MAX, || !matches!(child.try_wait(), Ok(None)));
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        kill_all(prefix);
    }
}

/// The variable by which the processes of a prefix are known.
fn mark(prefix: &Path) -> Vec<u8> {
    let mut mark = b"WINEPREFIX=".to_vec();
    mark.extend(prefix.as_os_str().as_encoded_bytes());
    mark
}

/// The processes with this variable.
fn marked(mark: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let variables = fs::read(entry.path().join("environ")).unwrap_or_default();
        if variables.split(|byte| *byte == 0).any(|one| one == mark) {
            found.push(name);
        }
    }
    found
}

/// Kills the processes of a prefix, and those that they started meanwhile. It ends after two empty scans: in mid-exec a
/// process shows no variables yet (Linux, `fs/exec.c`: the new image is mapped before its environment is known).
fn kill_all(prefix: &Path) {
    let mark = mark(prefix);
    let mut empty_scans = 0;
    block_until(END_MAX, || {
        let found = marked(&mark);
        if found.is_empty() {
            empty_scans += 1;
        } else {
            empty_scans = 0;
            // The shell's own: a small machine has no program of that name.
            let _ = Command::new("sh")
                .args(["-c", r#"kill -9 "$@""#, "kill"])
                .args(&found)
                .stderr(Stdio::null())
                .status();
        }
        empty_scans == 2
    });
}

fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    let folders: Vec<PathBuf> = folders.collect();
    let places = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    places.into_iter().find(|place| place.is_file())
}

/// The template for this Wine, made now if it is missing or was changed.
fn template(base: &Path, programs: &Programs) -> Result<PathBuf> {
    let random = compiled("bcryptprimitives.dll")?;
    let mut hasher = Xxh3::new();
    hasher.update(programs.version.as_bytes());
    hasher.update(VERSION.as_bytes());
    hasher.update(&fs::read(&random)?);
    let folder = base.join(format!("template-{:016x}", hasher.digest()));
    let lock = fs::File::create(base.join("making.lock"))?;
    lock.lock()?;
    let stamp = folder.join("stamp");
    let prefix = folder.join("prefix");
    if folder.exists() {
        let kept = fs::read_to_string(&stamp).unwrap_or_default();
        if !kept.is_empty() && kept == stamp_of(&prefix)? {
            return Ok(prefix);
        }
        fs::remove_dir_all(&folder)?;
    }
    let _ = writeln!(
        std::io::stderr(),
        "making a prefix of {} for the tests, once on this machine ...",
        programs.version
    );
    for entry in fs::read_dir(base)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let unfinished = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .tempdir_in(base)?;
    make(&unfinished.path().join("prefix"), programs, &random)?;
    fs::rename(unfinished.keep(), &folder)?;
    fs::write(&stamp, stamp_of(&prefix)?)?;
    Ok(prefix)
}

fn make(prefix: &Path, programs: &Programs, random: &Path) -> Result<()> {
    fs::create_dir_all(prefix.join("drive_c"))?;
    let made = programs.run(prefix, &["wineboot", "--init"]);
    programs.end(prefix);
    made?;
    let system = prefix.join("drive_c/windows/system32");
    fs::copy(random, system.join("bcryptprimitives.dll"))?;
    fs::write(prefix.join("drive_c/version.reg"), VERSION)?;
    let told = programs.run(prefix, &["regedit", "/S", r"C:\version.reg"]);
    // Waits until the registry is written.
    programs.end(prefix);
    told?;
    fs::remove_file(prefix.join("drive_c/version.reg"))?;
    // A newer date of Wine's own list would set the prefix up again.
    fs::write(prefix.join(".update-timestamp"), "disable\n")?;
    seal(prefix)
}

/// Takes every link away that leads out of the prefix: drives become none, the user's folders become folders.
fn seal(prefix: &Path) -> Result<()> {
    let drives = prefix.join("dosdevices");
    for link in links(prefix)? {
        if link == drives.join("c:") {
            continue;
        }
        fs::remove_file(&link)?;
        if !link.starts_with(&drives) {
            fs::create_dir(&link)?;
        }
    }
    sealed(prefix)
}

/// Refuses a prefix in which a link leads elsewhere than to `C:`.
fn sealed(prefix: &Path) -> Result<()> {
    for link in links(prefix)? {
        let leads_to = fs::read_link(&link)?;
        ensure!(
            link == prefix.join("dosdevices/c:") && leads_to == Path::new("../drive_c"),
            "{} leads to {}",
            link.display(),
            leads_to.display()
        );
    }
    Ok(())
}

fn links(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            found.push(entry.path());
        } else if kind.is_dir() {
            found.extend(links(&entry.path())?);
        }
    }
    Ok(found)
}

/// Sizes and times of everything in a prefix, as one number.
fn stamp_of(prefix: &Path) -> Result<String> {
    let mut hasher = Xxh3::new();
    stamp(prefix, &mut hasher)?;
    Ok(format!("{:032x}", hasher.digest128()))
}

fn stamp(folder: &Path, hasher: &mut Xxh3) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let about = entry.metadata()?;
        hasher.update(entry.file_name().as_encoded_bytes());
        if about.is_dir() {
            stamp(&entry.path(), hasher)?;
        } else {
            for number in [
                about.size().cast_signed(),
                about.mtime(),
                about.mtime_nsec(),
            ] {
                hasher.update(&number.to_le_bytes());
            }
        }
    }
    Ok(())
}

/// Copies a prefix: hard links below `drive_c/windows`, copies of the rest. `below` is where in the prefix we are.
fn copy(from: &Path, to: &Path, below: &Path) -> Result<()> {
    fs::create_dir(to)?;
    let linked = below.starts_with("drive_c/windows");
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name();
        let source = entry.path();
        let target = to.join(&name);
        if kind.is_dir() {
            copy(&source, &target, &below.join(&name))?;
        } else if kind.is_symlink() {
            let leads_to = fs::read_link(&source)?;
            if below.join(&name) != Path::new("dosdevices/c:") {
                bail!("{} is a link", source.display());
            }
            std::os::unix::fs::symlink(leads_to, &target)?;
        } else if linked {
            fs::hard_link(&source, &target)?;
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

fn watch(prefix: &Path, folder: &Path) -> Result<Child> {
    use std::os::unix::ffi::OsStringExt;
    Command::new("sh")
        .args(["-c", WATCHDOG, "watchdog"])
        .arg(std::ffi::OsString::from_vec(mark(prefix)))
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start sh")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::test_dir;

    /// A folder that looks like a prefix as Wine makes it.
    fn prefix(folder: &Path) -> PathBuf {
        let prefix = folder.join("prefix");
        for path in ["dosdevices", "drive_c/windows/system32", "drive_c/users/u"] {
            fs::create_dir_all(prefix.join(path)).expect("made");
        }
        symlink("../drive_c", prefix.join("dosdevices/c:")).expect("made");
        symlink("/", prefix.join("dosdevices/z:")).expect("made");
        symlink("/root", prefix.join("drive_c/users/u/Documents")).expect("made");
        fs::write(prefix.join("system.reg"), "a").expect("written");
        fs::write(prefix.join("drive_c/windows/system32/a.dll"), "a").expect("written");
        prefix
    }

    /// With a pipe this test would end when the child does: never.
    #[test]
    fn a_child_that_keeps_standard_error_holds_up_no_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep infinity >/dev/null & echo $!; echo why >&2"]);
        let output = output_of(command.stdin(Stdio::null())).expect("sh");
        let child = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let killed = Command::new("kill").arg(&child).status().expect("kill");
        assert!(killed.success(), "no child {child}");
        assert_eq!(output.stderr, b"why\n");
    }

    #[test]
    fn nothing_leads_out_of_a_prefix() {
        let folder = test_dir("wine");
        let prefix = prefix(folder.path());
        assert!(sealed(&prefix).is_err());
        seal(&prefix).expect("sealed");
        assert!(prefix.join("drive_c/users/u/Documents").is_dir());
        assert!(!prefix.join("dosdevices/z:").exists());
        assert!(prefix.join("dosdevices/c:/windows").is_dir());
        symlink("/etc", prefix.join("drive_c/etc")).expect("made");
        let why = sealed(&prefix).expect_err("a link leads out");
        assert!(why.to_string().ends_with("drive_c/etc leads to /etc"));
        assert!(copy(&prefix, &folder.path().join("copy"), Path::new("")).is_err());
    }

    #[test]
    fn a_copy_shares_windows_and_nothing_else() {
        let folder = test_dir("wine");
        let prefix = prefix(folder.path());
        seal(&prefix).expect("sealed");
        let other = folder.path().join("copy");
        copy(&prefix, &other, Path::new("")).expect("copied");
        let inode = |path: PathBuf| fs::metadata(path).expect("there").ino();
        let same = |file: &str| inode(prefix.join(file)) == inode(other.join(file));
        assert!(same("drive_c/windows/system32/a.dll"));
        assert!(!same("system.reg"));
        sealed(&other).expect("the copy is sealed, too");
    }

    /// A process that bears the prefix' mark.
    fn process(prefix: &Path) -> Child {
        let mut command = Command::new("sleep");
        command.arg("600").env("WINEPREFIX", prefix);
        command.stdin(Stdio::null()).spawn().expect("sleep")
    }

    #[test]
    fn a_power_cut_ends_what_bears_the_mark_and_nothing_else() {
        let folder = test_dir("wine");
        let ours = folder.path().join("prefix");
        let other = folder.path().join("prefix2");
        let mut one = process(&ours);
        let mut two = process(&other);
        let dead = std::thread::scope(|scope| {
            // A process is reaped by the one that started it.
            let reaped = scope.spawn(|| one.wait());
            kill_all(&ours);
            reaped.join().expect("joined")
        });
        assert!(!dead.expect("it ended").success());
        assert!(matches!(two.try_wait(), Ok(None)));
        two.kill().expect("killed");
        two.wait().expect("it ended");
    }

    #[test]
    fn a_prefix_whose_test_was_killed_is_cleared_away() {
        let folder = test_dir("wine");
        let gone = folder.path().join("case");
        let prefix = gone.join("prefix");
        fs::create_dir_all(&prefix).expect("made");
        let mut one = process(&prefix);
        let mut watchdog = watch(&prefix, &gone).expect("started");
        // As when this process dies: the pipe is closed without a word.
        drop(watchdog.stdin.take());
        assert!(!one.wait().expect("it ended").success());
        watchdog.wait().expect("it ended");
        assert!(!gone.exists());
    }

    #[test]
    fn a_template_that_changed_has_another_stamp() {
        let folder = test_dir("wine");
        let prefix = prefix(folder.path());
        let before = stamp_of(&prefix).expect("read");
        assert_eq!(before, stamp_of(&prefix).expect("read"));
        fs::write(prefix.join("drive_c/windows/system32/a.dll"), "ab").expect("written");
        assert_ne!(before, stamp_of(&prefix).expect("read"));
    }
}
