//! Manifest and version of `dormer-host.exe`, as a resource that the linker takes.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rerun-if-changed=app.manifest");
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|value| value == wanted);
    // Elsewhere there is nothing to describe; Microsoft's linker would want other tools.
    if !is("CARGO_CFG_TARGET_OS", "windows") || !is("CARGO_CFG_TARGET_ENV", "gnu") {
        return;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for program in ["dormer-host", "dormer-host-perform"] {
        let object = compile(&folder, program);
        println!(
            "cargo::rustc-link-arg-bin={program}={}",
            object.to_str().expect("a path in UTF-8")
        );
    }
    // The linker's time of day would make every build another.
    println!("cargo::rustc-link-arg-bins=-Wl,--no-insert-timestamp");
}

/// Compiles the resources of a program and answers the object.
fn compile(folder: &Path, program: &str) -> PathBuf {
    let manifest = fs::read_to_string("app.manifest").expect("it lies beside this file");
    // Every host gets the program over SSH: the resources are without what only people need.
    let manifest: String = manifest.lines().map(str::trim_start).collect();
    fs::write(folder.join("app.manifest"), manifest).expect("OUT_DIR can be written");
    let script = folder.join(format!("{program}.rc"));
    let object = folder.join(format!("{program}.o"));
    fs::write(&script, resources(program)).expect("OUT_DIR can be written");
    let windres = if cfg!(windows) {
        "windres"
    } else {
        "x86_64-w64-mingw32-windres"
    };
    let status = Command::new(windres)
        .current_dir(folder)
        .args(["-O", "coff", "-i"])
        .arg(&script)
        .arg("-o")
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => object,
        Ok(status) => panic!("{windres} ended with {status}"),
        Err(error) => panic!("{windres}, of Debian's binutils-mingw-w64-x86-64: {error}"),
    }
}

/// The resource script: 24 is a manifest, 1 its place in a program.
fn resources(program: &str) -> String {
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let numbers: Vec<&str> = version.split(['.', '-', '+']).take(3).collect();
    let numbers = format!("{},0", numbers.join(","));
    format!(
        r#"1 24 "app.manifest"
1 VERSIONINFO
FILEVERSION {numbers}
PRODUCTVERSION {numbers}
FILEOS 0x40004
FILETYPE 1
{{
  BLOCK "StringFileInfo"
  {{
    BLOCK "040904B0"
    {{
      VALUE "CompanyName", "dormer"
      VALUE "FileDescription", "dormer: converges a Windows node"
      VALUE "FileVersion", "{version}"
      VALUE "InternalName", "{program}"
      VALUE "OriginalFilename", "{program}.exe"
      VALUE "ProductName", "dormer"
      VALUE "ProductVersion", "{version}"
    }}
  }}
  BLOCK "VarFileInfo"
  {{
    VALUE "Translation", 0x0409, 0x04B0
  }}
}}
"#
    )
}
