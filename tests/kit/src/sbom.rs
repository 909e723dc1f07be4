//! Bills of material of the two programs, in CycloneDX 1.6, from what cargo itself resolves. No tool is needed, and
//! nothing in a bill depends on the time or the computer.

use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

/// A program: its file's name, its package, and the platform for which it is released.
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("dormer", "dormer", "x86_64-unknown-linux-musl"),
    (
        "dormer-host.exe",
        "dormer-host-win32",
        "x86_64-pc-windows-gnu",
    ),
];

/// Writes `dormer.cdx.json` and `dormer-host.exe.cdx.json` into `folder`, and returns their paths.
pub(crate) fn write(folder: &Path) -> Result<Vec<String>, String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(told)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).map_err(told)?;
    let sums = sums(&lock);
    let mut paths = Vec::new();
    for (program, package, platform) in PROGRAMS {
        let metadata = metadata(&root, platform, &[])?;
        let bill = bill(&metadata, program, package, &sums)?;
        let path = folder.join(format!("{program}.cdx.json"));
        std::fs::write(&path, format!("{bill:#}\n")).map_err(told)?;
        paths.push(path.display().to_string());
    }
    Ok(paths)
}

/// What cargo resolves for a platform, by the lock file. Programs are released without the demonstration.
fn metadata(root: &Path, platform: &str, more: &[&str]) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--no-default-features",
            "--features",
            "nats-creds",
        ])
        .args(["--filter-platform", platform])
        .args(more)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !asked.status.success() {
        let said = String::from_utf8_lossy(&asked.stderr).into_owned();
        return Err(format!("cargo metadata: {said}"));
    }
    serde_json::from_slice(&asked.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// SHA-256 of each crate of a registry, by `name version`.
fn sums(lock: &str) -> BTreeMap<String, String> {
    let value = |line: &str, key: &str| {
        let rest = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        Some(rest.strip_suffix('"')?.to_owned())
    };
    let one = |package: &str| {
        let find = |key| package.lines().find_map(|line| value(line, key));
        Some((
            format!("{} {}", find("name")?, find("version")?),
            find("checksum")?,
        ))
    };
    lock.split("[[package]]").filter_map(one).collect()
}

/// Bill of a program: the packages that its own package needs, directly or not. Those that only build scripts and macros
/// need are marked `excluded`, because the program does not hold them. Optional parts that another package of the
/// workspace turns on are listed too: a bill may name a crate too many, and never one too few.
fn bill(
    metadata: &Value,
    program: &str,
    package: &str,
    sums: &BTreeMap<String, String>,
) -> Result<Value, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|it| (text(&it["id"]), it))
        .collect();
    let needs: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|it| (text(&it["id"]), it["deps"].clone()))
        .collect();
    let own = packages.iter().find(|(_, it)| text(&it["name"]) == package);
    let (own, about) = own.ok_or_else(|| format!("there is no package {package}"))?;

    let edges = |id: &str, kinds: &[&str]| -> Vec<String> {
        let deps = needs.get(id).map(list).unwrap_or_default();
        let counts = |dep: &Value| {
            let of_kind = |it: &Value| kinds.contains(&it["kind"].as_str().unwrap_or("normal"));
            list(&dep["dep_kinds"]).iter().any(of_kind)
        };
        let deps = deps.iter().filter(|dep| counts(dep));
        deps.map(|dep| text(&dep["pkg"])).collect()
    };
    let is_macro = |id: &str| {
        let kinds = packages.get(id).map(|it| list(&it["targets"]));
        let is = |it: &Value| list(&it["kind"]).iter().any(|kind| kind == "proc-macro");
        kinds.unwrap_or_default().iter().any(is)
    };
    let reach = |kinds: &[&str], macros: bool| {
        let mut found = BTreeSet::from([own.clone()]);
        let mut open = vec![own.clone()];
        while let Some(id) = open.pop() {
            for next in edges(&id, kinds) {
                if (macros || !is_macro(&next)) && found.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        found
    };
    let inside = reach(&["normal"], false);
    let all = reach(&["normal", "build"], true);

    let reference = |id: &str| {
        let about = packages.get(id).cloned().unwrap_or_default();
        format!(
            "pkg:cargo/{}@{}",
            text(&about["name"]),
            text(&about["version"])
        )
    };
    let component = |id: &String| {
        let about = &packages[id];
        let name = text(&about["name"]);
        let version = text(&about["version"]);
        let mut component = json!({
            "type": "library", "bom-ref": reference(id), "name": name, "version": version,
            "purl": reference(id),
            "scope": if inside.contains(id) { "required" } else { "excluded" },
        });
        if let Some(licence) = about["license"].as_str() {
            component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
        }
        if let Some(sum) = sums.get(&format!("{name} {version}")) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        component
    };
    let components: Vec<Value> = all.iter().filter(|id| *id != own).map(component).collect();
    let dependencies = all.iter().map(|id| {
        let on: BTreeSet<String> = edges(id, &["normal", "build"])
            .iter()
            .map(|it| reference(it))
            .collect();
        json!({"ref": reference(id), "dependsOn": on})
    });
    let program = json!({
        "type": "application", "bom-ref": reference(own), "name": program,
        "version": about["version"], "licenses": [{"expression": about["license"]}],
    });
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": program},
        "components": components,
        "dependencies": dependencies.collect::<Vec<Value>>(),
    }))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_has_what_a_program_holds_and_marks_what_only_builds_it() {
        let package = |name: &str, kind: &str| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                "targets": [{"kind": [kind]}]})
        };
        let dep =
            |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("app", "bin"), package("lib", "lib"), package("tests", "lib"),
                package("build", "lib"), package("derive", "proc-macro"), package("syn", "lib")],
            "resolve": {"nodes": [
                {"id": "app", "deps": [dep("lib", None), dep("tests", Some("dev")),
                    dep("build", Some("build"))]},
                {"id": "lib", "deps": [dep("derive", None)]},
                {"id": "derive", "deps": [dep("syn", None)]},
            ]},
        });
        let lock =
            "version = 4\n[[package]]\nname = \"lib\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n";
        let bill = bill(&metadata, "app", "app", &sums(lock)).expect("a bill");
        let components = bill["components"].as_array().expect("components");
        let told: Vec<String> = components
            .iter()
            .map(|it| format!("{} {}", text(&it["name"]), text(&it["scope"])))
            .collect();
        assert_eq!(
            told,
            [
                "build excluded",
                "derive excluded",
                "lib required",
                "syn excluded"
            ]
        );
        assert_eq!(components[2]["hashes"][0]["content"], "ab");
        assert_eq!(
            components[2]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        let of_app = &bill["dependencies"][0];
        assert_eq!(of_app["ref"], "pkg:cargo/app@1.0.0");
        assert_eq!(
            of_app["dependsOn"],
            json!(["pkg:cargo/build@1.0.0", "pkg:cargo/lib@1.0.0"])
        );
    }

    #[test]
    fn dormers_own_bill_has_its_crates_with_their_sums_and_no_tools_of_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let lock = std::fs::read_to_string(root.join("Cargo.lock")).expect("the lock file");
        // This computer's own platform, so that nothing needs to be fetched.
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let about = Command::new(rustc).arg("-vV").output().expect("rustc runs");
        let about = String::from_utf8_lossy(&about.stdout).into_owned();
        let host = about.lines().find_map(|line| line.strip_prefix("host: "));
        let metadata = metadata(&root, host.expect("a host"), &["--offline"]).expect("metadata");
        let bill = bill(&metadata, "dormer", "dormer", &sums(&lock)).expect("a bill");
        let components = bill["components"].as_array().expect("components");
        let called = |name: &str| components.iter().find(|it| it["name"] == name);
        for name in ["rustls", "russh", "redb", "kube-client"] {
            let found = called(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(found["scope"], "required", "{name}");
            let sum = text(&found["hashes"][0]["content"]);
            assert_eq!(sum.len(), 64, "{name}: {sum}");
        }
        assert_eq!(
            called("serde_derive").expect("built with")["scope"],
            "excluded"
        );
        for name in ["dormer-testkit", "stateright", "tree-sitter", "expect-test"] {
            assert_eq!(called(name), None, "a tool of tests");
        }
    }
}
