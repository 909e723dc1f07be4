//! The page about the rules, written from their table.

use crate::{
    Severity,
    rules::{About, RULES},
};

/// `docs/lint.md`.
#[must_use]
pub fn text() -> String {
    let mut page = INTRODUCTION.to_owned();
    for about in About::ALL {
        page += &format!("\n### {}\n\n", about.heading());
        page += "| rule | example | why | mend | `--fix` |\n|---|---|---|---|---|\n";
        for rule in RULES.iter().filter(|rule| rule.about == about) {
            let warning = match rule.severity {
                Severity::Error => "",
                Severity::Warning => " (warning)",
            };
            let fix = if rule.fix { "yes" } else { "-" };
            let [name, example, why, mend] = [rule.name, rule.example, rule.why, rule.mend];
            page += &format!("| {name}{warning} | `{example}` | {why} | {mend} | {fix} |\n");
        }
    }
    page
}

const INTRODUCTION: &str = "\
# Lint: look at manifests before you apply them

```sh
dormer lint windows-machineset.yaml deploy/*.yaml
helm template chart | dormer lint -
dormer lint --fix windows-machineset.yaml
```

`dormer lint` reads manifests of Windows machines and their workloads, several documents in a file, and needs no cluster.
Each finding has its line and column, why it matters, and the mend. `--fix` writes the mechanical ones into the file, and
prints what is left. `-o json` is for programs. `--profile upstream` is for clusters whose Windows nodes have the taint
`os=windows`; with the profile `openshift` it is `os=Windows`.

| exit code | meaning |
|---|---|
| 0 | nothing was found |
| 1 | something was found |
| 2 | a file could not be read, or the command line is wrong |

Linux manifests are checked only for general mistakes: a selector that does not match, a field at a level where it is
not read, an API version that is gone.

The fields that `provider-field` knows are those of openshift/api at commit 2a3d73913 (August 2026): the types
`AWSMachineProviderConfig`, `AzureMachineProviderSpec`, `GCPMachineProviderSpec` and `VSphereMachineProviderSpec` in
`machine/v1beta1`, and `NutanixMachineProviderConfig` in `machine/v1`. They are listed in `workers/profile/src/provider_fields.rs`.

## The rules

A test writes this table from the package `src/lint`: `UPDATE_EXPECT=1 cargo test -p dormer-lint page`.
";
