//! Page about supported versions, generated from the table.

use crate::{
    platform::{PLATFORMS, PLUGINS, Windows},
    version::{
        CONTAINERD, DOCKER, KUBERNETES, KUBERNETES_SOURCE, OPENSHIFT, OPENSHIFT_SOURCE, OPENSSH,
        Program,
    },
    windows::{BAD_BUILDS, BOOT_CERTIFICATES, BOOT_SOURCE, RELEASES},
};

/// `docs/support.md`.
#[must_use]
pub fn text() -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "\n## Windows\n\n| build | release | supported | updates end | remark | source |\n|---|---|---|---|---|---|\n";
    for it in &RELEASES {
        let supported = it
            .refused
            .map_or("yes".to_owned(), |why| format!("no: {why}"));
        page += &row(&[it.build, it.name, &supported, it.ends, it.remark, it.source]);
    }
    page += "\n### Updates that are known to break nodes\n\n| last good update | what happens | what to do | source |\n|---|---|---|---|\n";
    for it in &BAD_BUILDS {
        page += &row(&[it.good_until, it.what, it.mend, it.source]);
    }
    page += &format!(
        "\n### Certificates of Secure Boot\n\nA server gets the new ones by a manual action only. Without them it boots, and \
         gets no more protection of its boot ({BOOT_SOURCE}).\n\n| certificate | ends | replaced by | signs |\n|---|---|---|---|\n"
    );
    for it in &BOOT_CERTIFICATES {
        page += &row(&[it.name, it.ends, it.next, it.signs]);
    }
    page += "\n## Platforms\n\n| platform | Windows machines | providerSpec | longest name of a MachineSet | source |\n|---|---|---|---|---|\n";
    for it in &PLATFORMS {
        let most = it
            .set_name_max
            .map_or("-".to_owned(), |most| format!("{most} characters"));
        let kind = if it.provider_kind.is_empty() {
            "-"
        } else {
            it.provider_kind
        };
        let windows = match it.windows {
            Windows::Yes => "yes",
            Windows::Untried => "not tried",
            Windows::No => "no",
        };
        page += &row(&[it.name, windows, kind, &most, it.source]);
    }
    page +=
        "\n## Network plugins\n\n| plugin | Windows nodes | needs | source |\n|---|---|---|---|\n";
    for it in &PLUGINS {
        let supported = it
            .refused
            .map_or("yes".to_owned(), |why| format!("no: {why}"));
        page += &row(&[it.name, &supported, it.needs, it.source]);
    }
    page +=
        "\n## OpenShift and Kubernetes\n\n| OpenShift | Kubernetes | supported |\n|---|---|---|\n";
    for it in &OPENSHIFT {
        let supported = it
            .refused
            .map_or("yes".to_owned(), |why| format!("no: {why}"));
        page += &row(&[
            &it.version.to_string(),
            &it.kubernetes.to_string(),
            &supported,
        ]);
    }
    let (oldest, newest) = KUBERNETES;
    page += &format!(
        "\nSource: {OPENSHIFT_SOURCE}.\n\nPlain Kubernetes: {oldest} to {newest} ({KUBERNETES_SOURCE}).\n"
    );
    page += &programs("containerd", &CONTAINERD);
    page += &programs("OpenSSH on Windows", &OPENSSH);
    page += &format!("\n## Docker\n\n{DOCKER}.\n");
    page
}

const INTRODUCTION: &str = "\
# What is supported

A test writes this page from the package `proto/support`:
`UPDATE_EXPECT=1 cargo test -p dormer-support page`. `dormer lint`, `dormer preflight` and dormer itself read the same
table. A machine with a Windows, a platform or a payload that does not fit waits, and its reason names what does not fit
(`UnsupportedBuild`, `UnsupportedEdition`, `UnsupportedPlatform`, `PayloadForOtherBuild`, `PayloadForOtherPlatform`).
";

fn yes(it: bool) -> &'static str {
    if it { "yes" } else { "no" }
}

fn row(cells: &[&str]) -> String {
    let cells = cells.iter().map(|it| if it.is_empty() { "-" } else { it });
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn programs(title: &str, all: &[Program]) -> String {
    let mut page =
        format!("\n## {title}\n\n| version | supported | remark | source |\n|---|---|---|---|\n");
    for it in all {
        page += &row(&[it.version, yes(it.supported), it.remark, it.source]);
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_what_the_table_gives() {
        expect_test::expect_file!["../../../docs/support.md"].assert_eq(&super::text());
    }
}
