//! Table of verdicts: each fault of the simulated world, when it strikes, and what ends it.

use dormer_fleet::WorldConfig;
use dormer_views::explain::Outside;
use std::time::Duration;

/// What ends a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Time: `dormer why` names the limit.
    Heals,
    /// A command of `dormer` or kubectl, by its verb.
    Command(&'static str),
    /// Something that people do outside of dormer, and the commands that follow.
    Outside(Outside),
}

/// When a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum During {
    BringUp,
    /// All machines serve, and nothing else happens.
    Serving,
    /// An upgrade that begins once all serve.
    Upgrade,
    /// An upgrade that begins once they have served for a while, after what people do to one that serves.
    LaterUpgrade,
    /// Such an upgrade, during which all of dormer is killed and restarted.
    Killed,
}

/// A fault with its verdict.
#[derive(Debug)]
pub(super) struct FaultRow {
    /// Orders of faults: the row's own first, and others that it needs.
    pub(super) faults: &'static str,
    pub(super) during: During,
    pub(super) verdict: Verdict,
    /// Machines of the world.
    pub(super) machines: u32,
    /// Whether it is played on each commit.
    pub(super) often: bool,
}

impl FaultRow {
    /// Time without any action of a person: twice the time in which a cure must end the fault.
    pub(super) fn held(&self) -> Duration {
        match self.often {
            true => Duration::from_secs(1_200),
            false => Duration::from_secs(3_600),
        }
    }

    /// Name of its own fault.
    pub(super) fn fault(&self) -> &'static str {
        let first = self.faults.split(' ').next().unwrap_or_default();
        // Of the names, only `kubelet-start-1053` and the like end with digits; a count comes after an `x`.
        let name = first.split(['@', '/', '=']).next().unwrap_or_default();
        let known = |name: &str| dormer_fleet::Fault::ALL.iter().any(|it| it.name() == name);
        match name.rsplit_once('x') {
            Some((counted, _)) if !known(name) => counted,
            _ => name,
        }
    }

    /// World in which the fault occurs.
    pub(super) fn world(&self) -> WorldConfig {
        let orders = self.faults.split(' ').map(str::to_owned);
        let clouds = ["provider-id-case", "host-claims-name"].contains(&self.fault());
        WorldConfig {
            faults: match self.during {
                During::Killed => Vec::new(),
                _ => orders.collect(),
            },
            linux: clouds,
            two_sets: clouds,
            ..WorldConfig::in_memory(self.machines)
        }
    }
}

const fn row(faults: &'static str, during: During, verdict: Verdict) -> FaultRow {
    FaultRow {
        faults,
        during,
        verdict,
        machines: 2,
        often: false,
    }
}

/// A row of the tier that runs on each commit.
const fn often(faults: &'static str, during: During, verdict: Verdict) -> FaultRow {
    FaultRow {
        often: true,
        ..row(faults, during, verdict)
    }
}

use During::{BringUp, Killed, LaterUpgrade, Serving, Upgrade};
use Outside::*;
use Verdict::{Command, Heals, Outside as Out};

/// All faults. `x9999`: the fault occurs until a person ends it.
#[rustfmt::skip]
pub(super) const ROWS: &[FaultRow] = &[
    row("ssh-reset-in-kex@1", BringUp, Heals),
    row("auth-refused-a-while@1", BringUp, Heals),
    row("shell-varies@1", BringUp, Heals),
    row("drop-during-script@1", BringUp, Heals),
    row("half-open@1", BringUp, Heals),
    often("upload-cut@1", BringUp, Heals),
    row("exe-locked@1", BringUp, Heals),
    row("feature-needs-reboot@1", BringUp, Heals),
    row("reboot-in-install@1", BringUp, Heals),
    row("kubelet-start-1053@1", BringUp, Heals),
    row("running-not-healthy@1", BringUp, Heals),
    row("hns-kills-ssh@1", BringUp, Heals),
    row("csr-wrong-user@1", BringUp, Heals),
    row("csr-extra-san@1", BringUp, Heals),
    often("clock-skewx9999@1", BringUp, Out(SetClock)),
    row("machine-events-repeat@1", BringUp, Heals),
    row("deleted-while-configuring@1", BringUp, Heals),
    row("same-name-new-uid@1", BringUp, Heals),
    often("address-late@1", BringUp, Heals),
    row("watch-gone@1", BringUp, Heals),
    often("budget-never@1", Upgrade, Out(LetGo)),
    row("not-ready-in-drain@1", Upgrade, Heals),
    row("uncordoned@1", Upgrade, Heals),
    row("holder-dies", Killed, Heals),
    row("late-renewal", Killed, Heals),
    often("replacement-never", Upgrade, Out(MakeRoom)),
    often("dead@1", BringUp, Out(OpenSsh)),
    often("auth-refused@1", BringUp, Out(AcceptKey)),
    often("host-key-changed@1", BringUp, Out(CompareHostKey)),
    row("no-frame@1", BringUp, Heals),
    row("code-page-850@1", BringUp, Heals),
    row("children-die@1", BringUp, Heals),
    row("max-startups@1", BringUp, Heals),
    row("profile-noise@1", BringUp, Out(MendHost)),
    row("sshd-dead-after-reboot@1 feature-needs-reboot@1", BringUp, Out(OpenSsh)),
    row("disk-fullx9999@1", BringUp, Out(FreeDisk)),
    row("scanner-deletes@1", BringUp, Out(RestoreFile)),
    row("slow-upload@1", BringUp, Heals),
    row("reboots-by-itself@1", Serving, Heals),
    row("slow-reboot@1 feature-needs-reboot@1", BringUp, Heals),
    row("fast-reboot@1 feature-needs-reboot@1", BringUp, Heals),
    row("marked-for-deletion@1", BringUp, Heals),
    row("hns-restarts@1", Serving, Heals),
    row("route-lost@1", BringUp, Heals),
    row("old-bom@1", BringUp, Heals),
    row("csr-twice@1", BringUp, Heals),
    row("csr-approved-before@*", BringUp, Heals),
    often("name-mismatchx9999@1", BringUp, Out(MendNode)),
    row("old-node@1", BringUp, Command("delete")),
    row("flapping@1", BringUp, Heals),
    row("two-budgets@1", Upgrade, Out(LetGo)),
    row("finalizer-holds@1", Upgrade, Out(LetGo)),
    row("stubborn-pod@1", Upgrade, Heals),
    row("volume-attached@1", Upgrade, Heals),
    often(
        "cordoned-by-admin/86400@1",
        LaterUpgrade,
        Command("uncordon"),
    ),
    row("partition@1", Upgrade, Heals),
    row("provider-id-case@*", Upgrade, Heals),
    row("node-unreadable@1", Serving, Heals),
    row("host-claims-name@2", BringUp, Out(MendNode)),
    row("prune-settings/86400@1", Upgrade, Out(CorrectPool)),
    row("dead-for-good@1", Upgrade, Heals),
    row("relabelled@1", Serving, Heals),
    row("clock-forwardx9999@1", BringUp, Out(SetClock)),
    row("etcd-restored@1", Serving, Heals),
    row("forged-mark@1", LaterUpgrade, Heals),
    row("serving-neverx9999@1", BringUp, Out(MendNode)),
    row("wrong-buildx9999@1", BringUp, Out(MendNode)),
    row("wmco-beside/86400@*", BringUp, Out(EndOperator)),
    often("configure-failsx9999@1", BringUp, Out(MendHost)),
    row("applockerx9999@1", BringUp, Out(MendHost)),
    row("wdacx9999@1", BringUp, Out(MendHost)),
    row("scanner-blocksx9999@1", BringUp, Out(RestoreFile)),
    row("program-vanishes@1", BringUp, Heals),
    row("sftp-missingx9999@1", BringUp, Out(MendHost)),
    row("other-processorx9999@1", BringUp, Out(MakeRoom)),
    often("instance-vanishes@1", BringUp, Command("delete")),
    row("power-off@1", BringUp, Heals),
];
