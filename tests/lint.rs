//! `dormer lint` as a person calls it: files, the standard input, mends, JSON and exit codes.

use serde_json::Value;
use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

const CLASS: &str = "\
apiVersion: node.k8s.io/v1beta1
kind: RuntimeClass
metadata:
  name: windows-2019
handler: 'docker'
scheduling:
  nodeSelector: {kubernetes.io/os: windows}
  tolerations: [{key: os, value: Windows, effect: NoSchedule}]
";

fn dormer(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dormer"))
        .arg("lint")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dormer runs");
    let mut stdin = child.stdin.take().expect("an input");
    stdin.write_all(input.as_bytes()).expect("written");
    drop(stdin);
    child.wait_with_output().expect("an output")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[test]
fn a_finding_has_file_line_why_and_mend_and_the_exit_code_is_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), "class.yaml", CLASS);
    let output = dormer(&[&file], "");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains(&format!(
            "{file}:5:10: error: RuntimeClass windows-2019: the handler is `docker` [runtime-handler]"
        )),
        "{said}"
    );
    assert!(said.contains("    why:  nodes run containerd"), "{said}");
    assert!(
        said.contains("    mend: write `handler: runhcs-wcow-process`"),
        "{said}"
    );
    assert!(
        said.ends_with("2 errors, 0 warnings; --fix mends 2 of them\n"),
        "{said}"
    );
}

#[test]
fn fix_writes_the_file_and_leaves_a_healthy_one_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), "class.yaml", CLASS);
    let output = dormer(&["--fix", &file], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert_eq!(text(&output.stdout), format!("{file}: 2 mended\n"));
    let mended = std::fs::read_to_string(&file).expect("a text");
    let wanted = CLASS
        .replace("v1beta1", "v1")
        .replace("'docker'", "'runhcs-wcow-process'");
    assert_eq!(mended, wanted);
    let again = dormer(&[&file], "");
    assert_eq!(
        (again.status.code(), text(&again.stdout)),
        (Some(0), String::new())
    );
}

#[test]
fn the_standard_input_is_read_mended_and_shown_in_json() {
    let output = dormer(&["-o", "json", "-"], CLASS);
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let first = &said["findings"][0];
    assert_eq!(first["rule"], "api-version");
    assert_eq!(
        (&first["file"], &first["line"], &first["fixable"]),
        (&"-".into(), &1.into(), &true.into())
    );
    for key in ["severity", "column", "object", "message", "why", "mend"] {
        assert!(!first[key].is_null(), "{first}");
    }
    let mended = dormer(&["--fix", "-"], CLASS);
    assert_eq!(mended.status.code(), Some(0));
    assert!(text(&mended.stdout).contains("handler: 'runhcs-wcow-process'"));
    assert!(text(&mended.stderr).contains("2 mended"));
    let upstream = dormer(
        &["--profile", "upstream", "-"],
        &CLASS.replace("Windows,", "windows,"),
    );
    assert!(!text(&upstream.stdout).contains("taint-value"));
}

#[test]
fn what_cannot_be_read_is_exit_code_2_and_the_rest_is_linted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), "class.yaml", CLASS);
    let absent = folder.path().join("absent.yaml").display().to_string();
    let output = dormer(&[&absent, &file], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("absent.yaml: No such file"));
    assert!(text(&output.stdout).contains("runtime-handler"));
    assert_eq!(dormer(&[], "").status.code(), Some(2));
}
