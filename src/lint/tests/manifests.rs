//! Whole manifests: healthy ones, those of the guides, and ten that were written before the rules.

use dormer_lint::{Finding, Flavour, RULES, fix, lint};
use std::{fs, path::PathBuf};

/// Files of a folder beside this one, by name.
fn files(folder: &str) -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let mut all: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder")
        .map(|it| it.expect("a file").path())
        .collect();
    all.sort();
    let name = |path: &PathBuf| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    all.iter()
        .map(|path| (name(path), fs::read_to_string(path).expect("a text")))
        .collect()
}

fn shown(found: &[Finding]) -> String {
    let lines: Vec<String> = found
        .iter()
        .map(|it| {
            format!(
                "{}:{} {} {}: {}\n",
                it.line, it.column, it.rule, it.object, it.message
            )
        })
        .collect();
    lines.concat()
}

#[test]
fn what_is_healthy_has_no_finding() {
    let all = files("healthy");
    assert!(all.len() >= 10, "{}", all.len());
    for (name, text) in all {
        let flavour = if text.starts_with("# upstream") {
            Flavour::Upstream
        } else {
            Flavour::OpenShift
        };
        let found = lint(&text, flavour);
        assert!(found.is_empty(), "{name}:\n{}", shown(&found));
        assert_eq!(fix(&text, flavour), (text.clone(), 0), "{name}");
    }
}

/// These were written before the rules, each with the lines (`#! 12`) in which a person sees the mistake.
#[test]
fn mistakes_that_were_written_before_the_rules_are_found() {
    let all = files("blind");
    assert_eq!(all.len(), 10);
    for (name, text) in all {
        let marks = text.lines().filter_map(|line| line.strip_prefix("#! "));
        let wanted: Vec<usize> = marks.map(|it| it.parse().expect("a line")).collect();
        let found = lint(&text, Flavour::OpenShift);
        let mut lines: Vec<usize> = found.iter().map(|it| it.line).collect();
        lines.dedup();
        let hard: Vec<usize> = wanted
            .iter()
            .copied()
            .filter(|line| !lines.contains(line))
            .collect();
        assert!(
            hard.is_empty(),
            "{name} misses {hard:?}:\n{}",
            shown(&found)
        );
        let invented: Vec<usize> = lines
            .into_iter()
            .filter(|line| !wanted.contains(line))
            .collect();
        assert!(
            invented.is_empty(),
            "{name} invents {invented:?}:\n{}",
            shown(&found)
        );
    }
}

/// Each guide's manifests as they are pasted, and all that is said of them.
#[test]
fn the_guides_manifests_are_refused_for_true_reasons() {
    let mut said = String::new();
    for (name, text) in files("guides") {
        let found = lint(&text, Flavour::OpenShift);
        said += &format!("== {name}\n{}", shown(&found));
        let (mended, count) = fix(&text, Flavour::OpenShift);
        let left = lint(&mended, Flavour::OpenShift);
        said += &format!("-- {count} mended, left:\n{}", shown(&left));
    }
    expect_test::expect_file!["guides.txt"].assert_eq(&said);
}

#[test]
fn the_page_is_what_the_table_gives() {
    expect_test::expect_file!["../../../docs/lint.md"].assert_eq(&dormer_lint::page::text());
}

#[test]
fn each_rule_is_there_once() {
    for rule in RULES {
        assert_eq!(
            RULES.iter().filter(|it| it.name == rule.name).count(),
            1,
            "{}",
            rule.name
        );
        assert!(
            !rule.example.contains('|') && !rule.mend.contains('|'),
            "{}",
            rule.name
        );
    }
}

#[test]
fn a_text_that_is_no_yaml_is_refused_without_our_own_terms_and_a_misplaced_field_with_its_path() {
    let broken = lint("a: [b\n", Flavour::OpenShift);
    let said: Vec<&str> = broken.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(said, ["unclosed bracket '['"]);
    let pool = "apiVersion: dormer.io/v1beta1\nkind: WindowsPool\nmetadata: {name: windows, namespace: dormer}\n\
                spec: {maxUnavailable: 1}\n";
    let found = lint(pool, Flavour::OpenShift);
    let mends: Vec<&str> = found.iter().map(|it| it.mend.as_str()).collect();
    assert_eq!(mends, ["write it as `spec.strategy.maxUnavailable`"]);
    // Beside the spec, and not in it.
    let pool = "apiVersion: dormer.io/v1beta1\nkind: WindowsPool\nmetadata: {name: windows, namespace: dormer}\n\
                maxUnavailable: 1\nspec: {}\n";
    let found = lint(pool, Flavour::OpenShift);
    assert_eq!(found[0].message, "the pool has no field `maxUnavailable`");
    assert_eq!(found[0].mend, "write it as `spec.strategy.maxUnavailable`");
}

#[test]
fn a_mistyped_field_or_value_of_a_pool_gets_the_near_one_whatever_the_version() {
    let pool = |version: &str| {
        format!(
            "apiVersion: {version}\nkind: WindowsPool\nmetadata: {{name: windows, namespace: dormer}}\n\
             spec: {{maxUnavailble: 2, approval: Manuel}}\n"
        )
    };
    let mends = |version: &str| -> Vec<String> {
        let found = lint(&pool(version), Flavour::OpenShift);
        found.into_iter().map(|it| it.mend).collect()
    };
    let near = [
        "did you mean `spec.strategy.maxUnavailable`?",
        "take one of Automatic, Manual; did you mean Manual?",
    ];
    assert_eq!(mends("dormer.io/v1beta1"), near);
    assert_eq!(mends("apps/v1")[1..], near, "all at once");
}

#[test]
fn a_mistyped_field_gets_the_near_one_and_a_misplaced_one_its_path() {
    let aws = include_str!("healthy/01-aws.yaml");
    let azure = include_str!("healthy/02-azure.yaml");
    for (text, from, to, message, mend) in [
        (
            aws,
            "  replicas: 1",
            "  replcas: 1",
            "`replcas` is no field of a MachineSet's `spec`",
            "did you mean `replicas`?",
        ),
        (
            aws,
            "instanceType:",
            "instanceTyp:",
            "`instanceTyp` is no field of `AWSMachineProviderConfig`",
            "did you mean `instanceType`?",
        ),
        (
            aws,
            "            id: ami-0f3",
            "            idd: 1\n            id: ami-0f3",
            "`idd` is no field of `ami`",
            "did you mean `id`?",
        ),
        (
            aws,
            "iops: 0",
            "iopss: 0",
            "`iopss` is no field of `blockDevices.ebs`",
            "did you mean `iops`?",
        ),
        (
            azure,
            "          publicIP: false",
            "          publicIP: false\n          storageAccountType: Premium_LRS",
            "`storageAccountType` is no field of `AzureMachineProviderSpec`",
            "remove it, or look it up in the types of openshift/api: a newer OpenShift may have it",
        ),
        (
            azure,
            "          publicIP: false",
            "          publicIP: false\n          offer: WindowsServer",
            "`offer` is no field of `AzureMachineProviderSpec`",
            "write it as `image.offer`",
        ),
    ] {
        let found = lint(&text.replacen(from, to, 1), Flavour::OpenShift);
        let said: Vec<_> = found
            .iter()
            .map(|it| (it.message.as_str(), it.mend.as_str()))
            .collect();
        assert_eq!(said, [(message, mend)], "{to}");
    }
}
