//! A target that cargo tests with nothing in it costs a compilation or a run of rustdoc each time, so its manifest says
//! `test = false` or `doctest = false`. Here is what notices a test or an example that would never run because of that.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Sources below a folder, without those of packages inside it.
fn collect(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(under).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            let other = path.ends_with("tests") || path.join("Cargo.toml").exists();
            if !other {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Number of the first line with an example in a doc comment that rustdoc would compile.
fn example(source: &str) -> Option<usize> {
    let mut open = false;
    for (at, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(kind) = doc.and_then(|doc| doc.trim_start().strip_prefix("```")) else {
            continue;
        };
        open = !open;
        let compiled = kind.is_empty() || kind.contains("rust") || kind.contains("no_run");
        if open && (compiled || kind.contains("should_panic") || kind.contains("compile_fail")) {
            return Some(at + 1);
        }
    }
    None
}

/// Number of the first line that makes a function a test.
fn test(source: &str) -> Option<usize> {
    let mut lines = source.lines().map(str::trim_start);
    let found = lines.position(|line| {
        let attribute = line.strip_prefix("#[").unwrap_or_default();
        attribute.starts_with("test]") || attribute.starts_with("tokio::test")
    });
    found.map(|at| at + 1)
}

#[test]
fn no_test_and_no_example_is_in_a_target_that_is_not_tested() {
    let metadata = crate::tidy::metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let mut untested = 0;
    for target in packages
        .iter()
        .flat_map(|package| package["targets"].as_array().expect("targets"))
    {
        let is_lib = target["kind"][0] == "lib";
        let lacks_tests = target["test"] == false;
        let lacks_examples = is_lib && target["doctest"] == false;
        if !lacks_tests && !lacks_examples {
            continue;
        }
        untested += 1;
        let path = Path::new(target["src_path"].as_str().expect("a path"));
        // A program shares its folder with the library that it calls, and has only one file of its own.
        let mut sources = vec![path.to_path_buf()];
        if is_lib {
            collect(path.parent().expect("a folder"), &mut sources);
        }
        for path in sources {
            let source = fs::read_to_string(&path).expect("a source");
            let path = path.display();
            if lacks_tests && let Some(line) = test(&source) {
                panic!("{path}:{line} would not run: its target has `test = false`");
            }
            if lacks_examples && let Some(line) = example(&source) {
                panic!("{path}:{line} would not run: its target has `doctest = false`");
            }
        }
    }
    assert!(untested > 0, "the manifests were read");
}

#[test]
fn tests_and_examples_are_found() {
    assert_eq!(test("fn a() {}\n    #[test]\nfn b() {}"), Some(2));
    assert_eq!(test("#[tokio::test(start_paused = true)]"), Some(1));
    assert_eq!(test("// #[test]\n#[cfg(test)]"), None);
    assert_eq!(example("/// Text.\n/// ```\n/// one();\n/// ```"), Some(2));
    assert_eq!(example("//! ```no_run\n//! one();\n//! ```"), Some(1));
    assert_eq!(
        example("//! ```text\n//! a ─▶ b\n//! ```\n//! ```sh\n//! ls\n//! ```"),
        None
    );
}
