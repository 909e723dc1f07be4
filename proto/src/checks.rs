//! Checks of a Node before it counts as joined, each with its own result.

use crate::{listed, message::cut, phase::Listed};
use serde::{Deserialize, Serialize};

listed! {
    /// A check. Its id never changes.
    pub enum CheckName {
        /// The kubelet is the payload's.
        Version = "version",
        /// containerd is the payload's.
        Runtime = "runtime",
        /// `kubernetes.io/os` is `windows`.
        Os = "os",
        /// Label `kubernetes.io/arch`, which equals the architecture that the kubelet reports.
        Architecture = "arch",
        /// Label `node.kubernetes.io/windows-build`, which equals the build that a login to the host found.
        Build = "windows-build",
        /// The labels of the machine's template have reached the Node.
        Labels = "labels",
        /// The Node has the taints of the machine's template, and no startup taint that keeps every pod away.
        Taints = "taints",
        /// The kubelet presents a serving certificate that was issued for this node: logs and exec answer.
        Certificate = "certificate",
        /// The pods of DaemonSets on it are ready.
        DaemonSets = "daemonsets",
        /// It has been Ready for the pool's soak time without a break.
        Settled = "settled",
        /// The API server gets a line of a pod's log from the kubelet. `dormer verify` checks it with any pod, a node that
        /// joins with its canary.
        Logs = "logs",
        /// The API server has the kubelet run a command in the canary.
        Exec = "exec",
        /// The scheduler binds a canary pod to the node.
        Canary = "canary",
        /// The node gets the canary's image from its registry, and starts it.
        ImagePull = "image-pull",
        /// The node's kubelet reaches the canary by its address.
        NodeToPod = "node-to-pod",
        /// The canary connects to the address of the Service `kubernetes`.
        ServiceIp = "service-ip",
        /// The canary connects to that Service by its name.
        ServiceDns = "service-dns",
        /// A pod on a Linux node connects to the canary.
        PodToPod = "pod-to-pod",
        /// A pod on a Linux node connects to the canary by a NodePort of the new node.
        NodePort = "node-port",
        /// The canary connects to an address outside of the cluster.
        Outbound = "outbound",
    }
}

impl CheckName {
    /// Whether a node may join although this check could not be made. docs/install.md has the reasons: what the payload does
    /// not name, what no person asked for, a place that the worker or a Linux node does not reach.
    #[must_use]
    pub const fn may_be_unchecked(self) -> bool {
        match self {
            Self::Version
            | Self::Runtime
            | Self::Build
            | Self::Certificate
            | Self::Exec
            | Self::Canary
            | Self::PodToPod
            | Self::NodePort
            | Self::Outbound => true,
            Self::Os
            | Self::Architecture
            | Self::Labels
            | Self::Taints
            | Self::DaemonSets
            | Self::Settled
            | Self::Logs
            | Self::ImagePull
            | Self::NodeToPod
            | Self::ServiceIp
            | Self::ServiceDns => false,
        }
    }

    /// Code of the failure of a machine that never passes it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Version => "WrongKubelet",
            Self::Runtime => "WrongContainerd",
            Self::Os => "WrongOs",
            Self::Architecture => "WrongArchitecture",
            Self::Build => "WrongBuild",
            Self::Labels => "LabelMissing",
            Self::Taints => "TaintsAmiss",
            Self::Certificate => "NoServingCertificate",
            Self::DaemonSets => "DaemonSetPodNotReady",
            Self::Settled => "NotSettled",
            Self::Logs => "NoLogs",
            Self::Exec => "NoExec",
            Self::Canary => "CanaryNotScheduled",
            Self::ImagePull => "CanaryNotStarted",
            Self::NodeToPod => "NoNodeToPod",
            Self::ServiceIp => "NoServiceIp",
            Self::ServiceDns => "NoServiceDns",
            Self::PodToPod => "NoPodToPod",
            Self::NodePort => "NoNodePort",
            Self::Outbound => "NoOutbound",
        }
    }
}

/// What a check before a rollout found on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckResult {
    /// The check passed.
    Ok,
    Failed,
    /// The check could not be executed, which proves nothing about the node.
    NotChecked,
}

impl CheckResult {
    /// Its text for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::NotChecked => "not checked",
        }
    }
}

/// A check of a Node, with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCheck {
    /// Id of a [`CheckName`]; a newer worker may know more of them.
    pub check: String,
    pub result: CheckResult,
    /// Finding, or the reason for its absence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
}

impl NodeCheck {
    /// The check as it counts for a node that joins: one that was not made fails, unless it
    /// [may be unchecked](CheckName::may_be_unchecked).
    #[must_use]
    pub fn for_a_join(self) -> Self {
        let name = CheckName::of_id(&self.check);
        if self.result != CheckResult::NotChecked || name.is_some_and(CheckName::may_be_unchecked) {
            return self;
        }
        Self {
            result: CheckResult::Failed,
            said: cut(format!("it could not be checked: {}", self.said)),
            ..self
        }
    }

    /// Whether it keeps the node from counting as joined.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.result == CheckResult::Failed
    }

    /// Code of the failure of a machine that never passes it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        CheckName::of_id(&self.check).map_or("NodeCheckFailed", CheckName::code)
    }
}

/// How long the checks of a Node may fail before its machine has failed, in milliseconds. They begin after the soak.
pub const NODE_CHECKS_MAX_MS: u64 = 30 * 60_000;

/// Known properties of a node besides the cluster's own objects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeExpectation {
    /// Minor version of its payload's kubelet; `None`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_minor: Option<u32>,
    /// Release of its payload's containerd (`2.1`); `None`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containerd: Option<String>,
    /// Windows build that a login to its host found (`10.0.20348`); `None`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_build: Option<String>,
    /// Image of its payload's canary; `None`: no canary is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<String>,
    /// How long it has to have been Ready, in milliseconds.
    pub soak_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The page for people has the same list, by the words of its tables.
    #[test]
    fn only_the_listed_checks_may_be_left_out_of_a_join() {
        let page = include_str!("../../docs/install.md");
        for name in CheckName::ALL {
            let row = page.lines().find(|line| {
                let names = line.split('|').nth(1).unwrap_or_default();
                names.split(',').any(|it| it.trim() == format!("`{name}`"))
            });
            let row = row.unwrap_or_else(|| panic!("docs/install.md has no row of {name}"));
            assert_eq!(
                row.contains("*not checked*"),
                name.may_be_unchecked(),
                "{row}"
            );
            let unmade = NodeCheck {
                check: name.to_string(),
                result: CheckResult::NotChecked,
                said: "no answer".into(),
            };
            let counted = unmade.clone().for_a_join();
            if name.may_be_unchecked() {
                assert_eq!(counted, unmade);
            } else {
                assert!(counted.failed(), "{name}");
                assert_eq!(counted.said, "it could not be checked: no answer");
                assert_eq!(counted.code(), name.code());
            }
            let made = NodeCheck {
                result: CheckResult::Ok,
                ..unmade
            };
            assert_eq!(made.clone().for_a_join(), made);
        }
    }

    #[test]
    fn every_check_fails_a_machine_with_a_code_of_its_own() {
        let codes: BTreeSet<_> = CheckName::ALL.iter().map(|check| check.code()).collect();
        assert_eq!(codes.len(), CheckName::ALL.len());
        let unknown = NodeCheck {
            check: "of a newer build".into(),
            result: CheckResult::Failed,
            said: String::new(),
        };
        assert_eq!(unknown.code(), "NodeCheckFailed");
    }
}
