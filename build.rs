//! Tells the program which commit it is built from: by the build's environment, else by the repository beside it.

use std::{
    fs::read_to_string,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DORMER_COMMIT");
    let given = std::env::var("DORMER_COMMIT").ok();
    let commit = given.filter(|it| !it.is_empty()).or_else(checked_out);
    if let Some(commit) = commit {
        println!("cargo:rustc-env=DORMER_COMMIT={commit}");
    }
}

/// Commit that is checked out. `None`: this folder is no repository, as in an archive.
fn checked_out() -> Option<String> {
    let own = repository(Path::new(env!("CARGO_MANIFEST_DIR")))?;
    // A worktree keeps its HEAD, and shares the branches.
    let shared = match read_to_string(own.join("commondir")) {
        Ok(path) => own.join(path.trim()),
        Err(_) => own.clone(),
    };
    // Each commit writes this file, also one that moves a branch out of packed-refs.
    watched(&own.join("logs/HEAD"));
    let head = watched(&own.join("HEAD"))?;
    let Some(branch) = head.strip_prefix("ref: ") else {
        return hash(&head);
    };
    let loose = watched(&shared.join(branch));
    let packed = || {
        let all = watched(&shared.join("packed-refs"))?;
        let lines = all.lines().filter_map(|line| line.split_once(' '));
        let mut found = lines.filter(|(_, name)| *name == branch);
        found.next().map(|(commit, _)| commit.to_owned())
    };
    loose.or_else(packed).as_deref().and_then(hash)
}

/// Folder of the repository's own files: `.git`, or the folder that the file `.git` of a worktree names.
fn repository(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = watched(&git)?;
    Some(root.join(text.strip_prefix("gitdir: ")?))
}

/// Trimmed text of a file. Cargo runs this program again when the file changes.
fn watched(path: &Path) -> Option<String> {
    let text = read_to_string(path).ok()?;
    println!("cargo:rerun-if-changed={}", path.display());
    Some(text.trim().to_owned())
}

fn hash(text: &str) -> Option<String> {
    let hex = text.len() >= 40 && text.bytes().all(|it| it.is_ascii_hexdigit());
    hex.then(|| text.to_owned())
}
