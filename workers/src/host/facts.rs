//! A host's facts in the words of the machine workflow.

use dormer_profile::{answer::Facts, document};
use dormer_proto::{
    id::Seq,
    machine::{ChangeClass, HostFacts, HostFence, Section},
};
use std::time::{SystemTime, UNIX_EPOCH};

/// Facts of a host for its run. The host's clock is compared with `now_ms`.
pub(super) fn of(facts: &Facts, now_ms: i64) -> HostFacts {
    HostFacts {
        os_build: facts.os_build.clone(),
        os_name: facts.product.clone(),
        hostname: facts.hostname.to_lowercase(),
        boot_id: facts.boot_id.clone(),
        shell: shell(facts.default_shell.as_deref()),
        clock_skew_ms: facts.now_ms.saturating_sub(now_ms),
        installed: facts
            .installed
            .last()
            .map(|installed| installed.version.clone()),
        fence: fence(facts),
        kubelet: !facts.installed.is_empty(),
        docker: facts.docker,
    }
}

/// The fence on the host; zero where nothing of ours was ever changed.
pub(super) fn fence(facts: &Facts) -> HostFence {
    let fence = facts.fence.unwrap_or_default();
    HostFence {
        generation: fence.generation,
        seq: Seq(fence.seq),
    }
}

/// The name that a kubelet without `--hostname-override` registers under: the host's own, in lower case.
pub(super) fn node_name(facts: &Facts) -> String {
    let name = facts.hostname_pending.as_ref().unwrap_or(&facts.hostname);
    name.to_lowercase()
}

/// The workflow's word for a section, in the profile's.
pub(super) fn section(section: Section) -> document::Section {
    match section {
        Section::Host => document::Section::Host,
        Section::Node => document::Section::Node,
    }
}

/// The profile's word for how deep a change cuts, in the workflow's.
pub(super) fn class(class: document::ChangeClass) -> ChangeClass {
    match class {
        document::ChangeClass::Live => ChangeClass::Live,
        document::ChangeClass::Restart => ChangeClass::Restart,
        document::ChangeClass::Drain => ChangeClass::Drain,
        document::ChangeClass::Replace => ChangeClass::Replace,
    }
}

fn shell(path: Option<&str>) -> String {
    let Some(path) = path else {
        return "cmd".into();
    };
    let name = path.rsplit('\\').next().unwrap_or(path).to_lowercase();
    name.strip_suffix(".exe").unwrap_or(&name).to_owned()
}

/// The system's clock, in milliseconds since 1970.
pub(super) fn system_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_as_the_host_will_be() {
        let facts = Facts {
            hostname: "EC2AMAZ-1".into(),
            ..Facts::default()
        };
        assert_eq!(node_name(&facts), "ec2amaz-1");
        let facts = Facts {
            hostname_pending: Some("WINWORKER-A".into()),
            ..facts
        };
        assert_eq!(node_name(&facts), "winworker-a");
        assert_eq!(
            shell(Some(
                r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
            )),
            "powershell"
        );
    }
}
