//! Trouble by name and by seed: which fault strikes which machine, and how often.
//!
//! A fault is ordered as `name[/STEP][=MACHINES][xTIMES][@MACHINE]`. Without `@MACHINE` the seed chooses
//! which of the world's machines are struck, in the order of their making; `@3` is the third
//! machine made, `@*` every one, anything else a machine's name or the beginning of it. `STEP` is where in a bring-up
//! it strikes; for a fault that ends by itself it is after how many seconds of the world. The list
//! is that of `tests/SCENARIOS.md`; each fault is applied by the owner of its effect (see [`FaultOwner`]).

use dormer_profile::suggestion::question;
use dormer_proto::lock::Locked as _;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// Machines that one order may strike.
pub const MACHINES_MAX: u32 = 100_000;

/// Who brings a fault about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultOwner {
    /// The simulated Windows host.
    Host,
    /// The simulated API server.
    Api,
    /// The machine controller and its cloud, or another controller.
    Cluster,
    /// The runner of the scenario, a test (a kill, a second delivery).
    Scenario,
}

macro_rules! faults {
    ($($variant:ident $name:literal $number:literal $owner:ident $times:literal $about:literal,)*) => {
        /// A fault that the fleet can bring about; the number is that of its scenario in `tests/SCENARIOS.md`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault { $(#[doc = $about] $variant,)* }

        impl Fault {
            /// Every fault there is.
            pub const ALL: &'static [Fault] = &[$(Fault::$variant,)*];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Fault::$variant => $name,)* }
            }

            /// The number of its scenario; 0 for a fault without one.
            pub fn number(self) -> u8 {
                match self { $(Fault::$variant => $number,)* }
            }

            /// Who brings it about.
            pub fn owner(self) -> FaultOwner {
                match self { $(Fault::$variant => FaultOwner::$owner,)* }
            }

            /// What happens, in one line.
            pub fn about(self) -> &'static str {
                match self { $(Fault::$variant => $about,)* }
            }

            /// How often it strikes one machine, unless a count is given.
            pub fn times(self) -> u32 {
                match self { $(Fault::$variant => $times,)* }
            }
        }
    };
}

faults! {
    SshResetInKex "ssh-reset-in-kex" 1 Host 1 "port 22 accepts and resets during key exchange for 40 s after a boot",
    AuthRefusedAWhile "auth-refused-a-while" 3 Host 1 "the key is refused for 4 min after the first boot, then accepted",
    ShellVaries "shell-varies" 7 Host 1 "the host's default shell is powershell or pwsh in place of cmd",
    DropDuringScript "drop-during-script" 10 Host 1 "the connection drops 2 s into a call of the host program, which keeps running for 90 s",
    HalfOpen "half-open" 13 Host 1 "the host stops answering during an exec, without a reset",
    UploadCut "upload-cut" 16 Host 1 "an upload is cut at 70 % of its bytes",
    ExeLocked "exe-locked" 17 Host 1 "a target file is held by a running process",
    FeatureNeedsReboot "feature-needs-reboot" 22 Host 1 "the Containers feature is not there and takes one reboot",
    RebootInInstall "reboot-in-install" 23 Host 1 "the host reboots in the middle of containerd's installation",
    KubeletStart1053 "kubelet-start-1053" 27 Host 1 "the first start of kubelet fails with 1053",
    RunningNotHealthy "running-not-healthy" 28 Host 1 "kubelet's service says RUNNING, its healthz refuses",
    HnsKillsSsh "hns-kills-ssh" 30 Host 1 "creating an HNS network kills SSH for 45 s, the command finishes",
    CsrWrongUser "csr-wrong-user" 34 Host 1 "a kubelet asks for a certificate in another node's name",
    CsrExtraSan "csr-extra-san" 35 Host 1 "a serving CSR carries an address that the Machine does not have",
    ClockSkew "clock-skew" 38 Host 1 "the host's clock is 10 min behind",
    MachineEventsRepeat "machine-events-repeat" 42 Api 1 "Machine events come twice, and old ones after new ones",
    MachineDeletedWhileConfiguring "deleted-while-configuring" 43 Cluster 1 "somebody deletes the Machine while its host is being configured",
    SameNameNewUid "same-name-new-uid" 44 Cluster 1 "the Machine is deleted and made again under its name",
    AddressLate "address-late" 45 Cluster 1 "the cloud gives no address for 5 min, then changes it once",
    WatchGone "watch-gone" 46 Api 1 "a watch dies with 410 Gone, and a Machine is deleted in the gap",
    BudgetNever "budget-never" 49 Cluster 1 "a budget allows no eviction, ever",
    NotReadyInDrain "not-ready-in-drain" 51 Host 1 "the node goes silent in the middle of its drain, for good, or for the seconds that not-ready-in-drain/SECONDS names",
    Uncordoned "uncordoned" 54 Cluster 1 "a person uncordons the node 3 s after its cordon, or after the seconds that uncordoned/SECONDS names",
    HolderDies "holder-dies" 56 Scenario 1 "the worker dies between drain and delete",
    LateRenewal "late-renewal" 57 Scenario 1 "a claim runs out while an irreversible call is under way",
    ReplacementNever "replacement-never" 58 Cluster 1 "the cloud has no room for the replacement",
    Dead "dead" 2 Host 1 "port 22 drops silently, for ever",
    AuthRefused "auth-refused" 4 Host 1 "the key is refused for ever",
    HostKeyChanged "host-key-changed" 6 Host 1 "the host key changes under the same Machine and boot",
    NoFrame "no-frame" 8 Host 1 "an exec ends with 0, no output, and CLIXML progress on stderr",
    CodePage850 "code-page-850" 9 Host 1 "output comes in code page 850, service texts are localised",
    ChildrenDie "children-die" 11 Host 1000 "whatever a command started and left behind dies at the command's end",
    MaxStartups "max-startups" 12 Host 1 "sshd drops connections beyond ten that are not yet authenticated",
    ProfileNoise "profile-noise" 14 Host 1 "the shell's profile prints text into SFTP's stream",
    SshdDeadAfterReboot "sshd-dead-after-reboot" 15 Host 1 "sshd does not start after the next reboot",
    DiskFull "disk-full" 18 Host 1 "the disk is full at 95 % of the upload",
    ScannerDeletes "scanner-deletes" 19 Host 1 "Defender takes an uploaded file away 3 s later",
    SlowUpload "slow-upload" 21 Host 1 "uploads run at 200 KB/s",
    RebootsByItself "reboots-by-itself" 24 Host 1 "the host reboots by itself while it serves",
    SlowReboot "slow-reboot" 25 Host 1 "a reboot takes 14 min",
    FastReboot "fast-reboot" 26 Host 1 "a reboot takes 3 s",
    MarkedForDeletion "marked-for-deletion" 29 Host 1 "creating a service says 1072 for 60 s",
    HnsRestarts "hns-restarts" 31 Host 1 "the HNS service restarts and endpoints are gone",
    RouteLost "route-lost" 33 Host 1 "making an HNS network makes Windows forget the route to 169.254.169.254",
    OldBom "old-bom" 32 Host 1 "an old containerd configuration with a byte-order mark is there",
    CsrTwice "csr-twice" 36 Host 1 "a kubelet asks for its certificate twice",
    CsrApprovedBefore "csr-approved-before" 37 Cluster 1 "another approver is faster",
    NameMismatch "name-mismatch" 39 Host 1 "the Node's name is not the expected one",
    OldNode "old-node" 40 Cluster 1 "a Node of the same name with another providerID exists",
    Flapping "flapping" 41 Host 1 "the Node goes Ready and NotReady three times in 2 min",
    TwoBudgets "two-budgets" 50 Cluster 1 "two budgets match one pod, evictions answer 500",
    FinalizerHolds "finalizer-holds" 52 Cluster 1 "a pod's finalizer is never removed",
    StubbornPod "stubborn-pod" 53 Cluster 1 "a pod that ignores the cordon is made again on the node as often as it is evicted",
    VolumeAttached "volume-attached" 55 Cluster 1 "a volume stays attached for 6 min after the drain",
    CordonedByAdmin "cordoned-by-admin" 61 Cluster 1 "a person cordons a node that serves, and uncordons it after 30 min",
    Partition "partition" 62 Host 1 "once an upgrade begins, the kubelet does not reach the API server for 90 s",
    ProviderIdCase "provider-id-case" 63 Host 1 "on Azure the Node's providerID is written in another case than the Machine's",
    NodeUnreadable "node-unreadable" 64 Api 1 "nobody but kubelets may read Nodes for 20 min while the node serves",
    HostClaimsName "host-claims-name" 65 Host 1 "a host that has not joined says that its name is that of a Node which serves",
    PruneSettings "prune-settings" 66 Cluster 1 "once an upgrade of the node begins, the pool is pruned, and comes back after 10 min",
    DeadForGood "dead-for-good" 67 Host 1 "once an upgrade begins, the host is without power and the kubelet silent, for good",
    Relabelled "relabelled" 68 Cluster 1 "other people write labels and annotations on the Node and the Machine while it serves",
    WmcoBeside "wmco-beside" 70 Cluster 1 "the Windows Machine Config Operator runs beside dormer for 30 min",
    ClockForward "clock-forward" 0 Host 1 "the host's clock is 10 min ahead",
    EtcdRestored "etcd-restored" 0 Api 1 "while the node serves, etcd is restored from a backup of 2 min before, or of the seconds that etcd-restored/SECONDS names",
    ForgedMark "forged-mark" 0 Cluster 1 "another client writes the greatest of all tokens on a Node that serves",
    ServingNever "serving-never" 0 Host 1 "the kubelet asks for no serving certificate, so that neither logs nor exec answer",
    WrongBuild "wrong-build" 0 Host 1 "the Node is labelled with another Windows build than its host has",
    ConfigureFails "configure-fails" 0 Host 1 "the host program ends with an error that only a retry by a person mends",
    AppLocker "applocker" 0 Host 1 "AppLocker keeps the host program from running (1260)",
    Wdac "wdac" 0 Host 1 "Windows Defender Application Control keeps the host program from running (4551)",
    ScannerBlocks "scanner-blocks" 0 Host 1 "the virus scanner keeps the host program from running (225)",
    ProgramVanishes "program-vanishes" 0 Host 1 "the host program is gone right after it was uploaded",
    SftpMissing "sftp-missing" 0 Host 1 "sshd of the host knows no SFTP",
    OtherProcessor "other-processor" 0 Host 1 "the host's processor is none that the host program is for (216)",
    InstanceVanishes "instance-vanishes" 0 Cluster 1 "the instance is deleted behind the Machine's back",
    PowerOff "power-off" 0 Host 1 "the host loses its power for 1 min: at its first step, or at the one that power-off/STEP names",
}

/// What ends a fault that is ordered without a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Time, or dormer's next attempt.
    Itself,
    /// Its count: dormer's next attempt succeeds, unless `xTIMES` orders more strikes.
    Count,
    Person,
}

impl End {
    /// Heading of its faults in the list.
    fn heading(self) -> &'static str {
        match self {
            Self::Itself => "Heals: dormer recovers without help",
            Self::Count => {
                "Heals at the next attempt: NAME=1x9999 repeats it until a person mends it (in the demonstration, dormer retry does)"
            }
            Self::Person => {
                "Stays until a person mends it: dormer why says how. In the demonstration dormer retry also does on the \
                 simulated world what that says, but not for a fault with a command behind it: that command ends it"
            }
        }
    }
}

/// Faults that a person ends.
const BY_A_PERSON: [Fault; 14] = [
    Fault::BudgetNever,
    Fault::ReplacementNever,
    Fault::Dead,
    Fault::AuthRefused,
    Fault::HostKeyChanged,
    Fault::ProfileNoise,
    Fault::SshdDeadAfterReboot,
    Fault::ScannerDeletes,
    Fault::OldNode,
    Fault::TwoBudgets,
    Fault::FinalizerHolds,
    Fault::HostClaimsName,
    Fault::ConfigureFails,
    Fault::InstanceVanishes,
];
/// Faults that strike as often as they are counted, and once without a count.
const BY_COUNT: [Fault; 11] = [
    Fault::ClockSkew,
    Fault::ClockForward,
    Fault::DiskFull,
    Fault::NameMismatch,
    Fault::ServingNever,
    Fault::WrongBuild,
    Fault::AppLocker,
    Fault::Wdac,
    Fault::ScannerBlocks,
    Fault::SftpMissing,
    Fault::OtherProcessor,
];

impl Fault {
    /// Whether the simulated world brings it about by itself. What only a test does strikes nothing when it is ordered.
    pub fn can_be_ordered(self) -> bool {
        self.owner() != FaultOwner::Scenario
    }

    /// Command that ends it in the demonstration, where `dormer retry` does not. The table of verdicts has the same.
    pub fn command(self) -> Option<&'static str> {
        match self {
            Self::HostKeyChanged => Some("dormer trust-host-key"),
            Self::InstanceVanishes => Some("kubectl delete machine"),
            Self::OldNode => Some("kubectl delete node"),
            _ => None,
        }
    }

    /// What ends it. The table of verdicts has the same.
    pub fn end(self) -> End {
        if BY_COUNT.contains(&self) {
            End::Count
        } else if BY_A_PERSON.contains(&self) {
            End::Person
        } else {
            End::Itself
        }
    }
}

impl FaultOrder {
    /// What ends this one: a count of its own makes a fault stay.
    pub fn end(&self) -> End {
        match self.fault.end() {
            End::Count if self.times > self.fault.times() => End::Person,
            end => end,
        }
    }
}

/// Form of an order, with an example, for refusals and help.
pub const FORM: &str = "\
NAME[=MACHINES][xTIMES][@MACHINE], such as disk-full, disk-full=2x3 (two machines, three times each) or disk-full@4 (the \
fourth machine made)";

/// The faults by what ends them and by name, for people.
#[must_use]
pub fn listed() -> String {
    let mut text = String::new();
    for end in [End::Itself, End::Count, End::Person] {
        let ours = Fault::ALL
            .iter()
            .filter(|it| it.end() == end && it.can_be_ordered());
        let mut ours: Vec<&Fault> = ours.collect();
        ours.sort_by_key(|it| it.name());
        text += end.heading();
        text += "\n";
        for fault in ours {
            let by = fault
                .command()
                .map_or_else(String::new, |it| format!(" [{it}]"));
            text += &format!("  {:26} {}{by}\n", fault.name(), fault.about());
        }
        text += "\n";
    }
    text + "--faults " + FORM
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// An order that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// No fault has this name.
    #[error("--faults {order}: there is no fault {name:?}{near}\nthe form is {FORM}\n--list-faults has the names", near = near(name))]
    Unknown {
        /// The order as given.
        order: String,
        /// Its part before the counts.
        name: String,
    },
    /// A number of machines stands beside one of them.
    #[error(
        "--faults {order}: ={machines} and @{machine} exclude each other: a number of machines, or one of them\nthe form is {FORM}"
    )]
    Both {
        /// The order as given.
        order: String,
        /// How many machines.
        machines: u32,
        /// The one that is named.
        machine: String,
    },
    /// A number cannot be read, or is out of its bounds.
    #[error(
        "--faults {order}: {count:?} is no count between 1 and {MACHINES_MAX}\nthe form is {FORM}"
    )]
    Count {
        /// The order as given.
        order: String,
        /// Its part that is no count.
        count: String,
    },
}

/// The near name of a fault, as a question: of the text before the first sign that no name has.
fn near(name: &str) -> String {
    let end = name.find(|sign: char| !sign.is_ascii_alphanumeric() && !"-_".contains(sign));
    let name = name[..end.unwrap_or(name.len())].replace('_', "-");
    question(&name, Fault::ALL.iter().map(|it| it.name()))
}

/// One ordered fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultOrder {
    pub fault: Fault,
    /// At which step of a bring-up; none: at the first that there is.
    pub step: Option<String>,
    /// Its target.
    pub aim: Aim,
    /// How often it strikes each of them.
    pub times: u32,
}

/// Target of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aim {
    /// So many machines, chosen by the seed.
    Seed(u32),
    /// The machine made as the n-th, from 1.
    Nth(u32),
    /// A machine whose name is, or begins with, this.
    Named(String),
    /// Every machine.
    All,
}

impl std::str::FromStr for FaultOrder {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let (rest, machine) = match text.trim().split_once('@') {
            Some((rest, machine)) => (rest, Some(machine)),
            None => (text.trim(), None),
        };
        let (rest, machines) = match rest.split_once('=').filter(|_| !rest.contains('/')) {
            Some((name, counts)) => (name, Some(counts)),
            None => (rest, None),
        };
        let (rest, step) = match rest.split_once('/') {
            Some((name, step)) => (name, Some(step.to_owned())),
            None => (rest, None),
        };
        let known = |name: &str| Fault::ALL.iter().copied().find(|f| f.name() == name);
        let (name, machines, times) = match machines {
            Some(counts) => match counts.split_once('x') {
                Some(("", _) | (_, "")) => (rest, Some(counts), None),
                Some((machines, times)) => (rest, Some(machines), Some(times)),
                None => (rest, Some(counts), None),
            },
            None => match rest.rsplit_once('x').filter(|_| known(rest).is_none()) {
                Some((name, times)) => (name, None, Some(times)),
                None => (rest, None, None),
            },
        };
        let fault = known(name).ok_or_else(|| FaultError::Unknown {
            order: text.to_owned(),
            name: name.to_owned(),
        })?;
        let counted = |count| counted(text, count);
        let times = times.map_or(Ok(fault.times()), counted)?;
        let machines = machines.map_or(Ok(1), counted)?;
        if let Some(machine) = machine.filter(|it| machines > 1 && *it != "*") {
            return Err(FaultError::Both {
                order: text.to_owned(),
                machines,
                machine: machine.to_owned(),
            });
        }
        let aim = match machine {
            None => Aim::Seed(machines),
            Some("*") => Aim::All,
            Some(name) => name.parse().map_or(Aim::Named(name.to_owned()), Aim::Nth),
        };
        Ok(Self {
            fault,
            step,
            aim,
            times,
        })
    }
}

fn counted(order: &str, count: &str) -> Result<u32, FaultError> {
    let bad = || FaultError::Count {
        order: order.to_owned(),
        count: count.to_owned(),
    };
    let number: u32 = count.parse().map_err(|_| bad())?;
    if (1..=MACHINES_MAX).contains(&number) {
        Ok(number)
    } else {
        Err(bad())
    }
}

/// What trouble is ordered, and what of it is still to come. Clones share it.
#[derive(Clone, Default)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    seed: u64,
    machines: u32,
    orders: Vec<FaultOrder>,
    /// Machines in the order of their making, from 1.
    ordinals: BTreeMap<String, u32>,
    struck: BTreeMap<(Fault, String), u32>,
}

impl Faults {
    /// The orders of a world with `machines` Windows machines at its start; the seed chooses
    /// among them.
    pub fn new(orders: Vec<FaultOrder>, seed: u64, machines: u32) -> Self {
        let inner = Inner {
            seed,
            machines: machines.max(1),
            orders,
            ..Inner::default()
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// No trouble at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads orders such as `auth-refused-a-while=2`.
    ///
    /// # Errors
    /// The first order that names no fault or has a bad count.
    pub fn parse(orders: &[String], seed: u64, machines: u32) -> Result<Self, FaultError> {
        let parsed: Result<Vec<_>, _> = orders.iter().map(|o| o.parse()).collect();
        Ok(Self::new(parsed?, seed, machines))
    }

    /// Adds an order while the world runs.
    pub fn order(&self, order: FaultOrder) {
        self.lock().orders.push(order);
    }

    /// Takes every order of this fault back.
    pub fn lift(&self, fault: Fault) {
        self.lock().orders.retain(|o| o.fault != fault);
    }

    /// Tells that a machine was made; the order of the calls is what `@3` and the seed refer to.
    /// Answers its number, from 1. Repeats change nothing.
    pub fn enroll(&self, machine: &str) -> u32 {
        let mut inner = self.lock();
        let next = u32::try_from(inner.ordinals.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        *inner.ordinals.entry(machine.to_owned()).or_insert(next)
    }

    /// Whether this fault is still to strike this machine.
    pub fn armed(&self, fault: Fault, machine: &str) -> bool {
        self.lock().left(fault, machine) > 0
    }

    /// Lets the fault strike this machine once, if it is still to: true at most `times` times.
    pub fn strike(&self, fault: Fault, machine: &str) -> bool {
        let mut inner = self.lock();
        if inner.left(fault, machine) == 0 {
            return false;
        }
        *inner.struck.entry((fault, machine.to_owned())).or_insert(0) += 1;
        true
    }

    /// [`Faults::strike`] for a fault that waits for a step of the bring-up.
    pub fn strike_at(&self, fault: Fault, step: &str, machine: &str) -> bool {
        let mut inner = self.lock();
        let waits = inner.orders.iter().any(|order| {
            let here = order.step.as_deref().is_none_or(|wanted| wanted == step);
            order.fault == fault && here && inner.strikes(order, machine)
        });
        if !waits || inner.left(fault, machine) == 0 {
            return false;
        }
        *inner.struck.entry((fault, machine.to_owned())).or_insert(0) += 1;
        true
    }

    /// For how long this fault lasts on this machine, if its order says so: the seconds after the slash.
    pub fn lasts(&self, fault: Fault, machine: &str) -> Option<Duration> {
        let inner = self.lock();
        let orders = inner.orders.iter();
        let mut ours = orders.filter(|o| o.fault == fault && inner.strikes(o, machine));
        let seconds = ours.find_map(|order| order.step.as_deref()?.parse().ok());
        seconds.map(Duration::from_secs)
    }

    /// Whether this fault is ordered at all, for whomever.
    pub fn ordered(&self, fault: Fault) -> bool {
        self.lock().orders.iter().any(|o| o.fault == fault)
    }

    /// How often which fault has struck which machine.
    pub fn struck(&self) -> Vec<(Fault, String, u32)> {
        let inner = self.lock();
        inner
            .struck
            .iter()
            .map(|((fault, machine), n)| (*fault, machine.clone(), *n))
            .collect()
    }

    /// How many machines an order has struck. `None`: its fault withholds something, or is about no machine, and is not
    /// counted.
    pub fn struck_by(&self, order: &FaultOrder) -> Option<usize> {
        if [Fault::ReplacementNever, Fault::WmcoBeside].contains(&order.fault) {
            return None;
        }
        let inner = self.lock();
        let ours = inner.struck.keys();
        let ours =
            ours.filter(|(fault, machine)| *fault == order.fault && inner.strikes(order, machine));
        Some(ours.count())
    }

    /// How many machines were made.
    pub fn made(&self) -> usize {
        self.lock().ordinals.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.locked()
    }
}

impl Inner {
    fn left(&self, fault: Fault, machine: &str) -> u32 {
        let aimed = self
            .orders
            .iter()
            .filter(|o| o.fault == fault && self.strikes(o, machine));
        let times: u32 = aimed.map(|o| o.times).sum();
        let struck = self
            .struck
            .iter()
            .find(|((f, m), _)| *f == fault && m == machine);
        times.saturating_sub(struck.map_or(0, |(_, n)| *n))
    }

    fn strikes(&self, order: &FaultOrder, machine: &str) -> bool {
        match &order.aim {
            Aim::All => true,
            Aim::Named(name) => machine.starts_with(name.as_str()),
            Aim::Nth(n) => self.ordinals.get(machine) == Some(n),
            Aim::Seed(count) => {
                let Some(ordinal) = self.ordinals.get(machine) else {
                    return false;
                };
                chosen(self.seed, order.fault, self.machines, *count).contains(ordinal)
            }
        }
    }
}

/// Which `count` of `machines` the seed chooses: a walk around the ring with a stride that has no
/// divisor in common with its length, so no element is chosen twice.
fn chosen(seed: u64, fault: Fault, machines: u32, count: u32) -> Vec<u32> {
    let draw = splitmix(seed ^ (fault as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let ring = u64::from(machines);
    let first = draw % ring;
    let coprime = |stride: &u64| gcd(*stride, ring) == 1;
    let stride = (1 + (draw >> 32) % ring..=2 * ring)
        .find(coprime)
        .unwrap_or(1);
    let nth = |i: u64| u32::try_from((first + i * stride) % ring + 1).unwrap_or(1);
    (0..u64::from(count.min(machines))).map(nth).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// One step of SplitMix64: chance that depends on nothing but its argument.
pub fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_cannot_be_meant_is_refused() {
        let refused = |order: &str| {
            order
                .parse::<FaultOrder>()
                .expect_err("refused")
                .to_string()
        };
        let count = refused("disk-full=x");
        assert!(count.contains("\"x\" is no count"), "{count}");
        let both = refused("disk-full=9@3");
        assert!(both.contains("=9 and @3 exclude each other"), "{both}");
        for order in [
            "disk-full=1@3",
            "disk-full=2x3",
            "disk-fullx3@3",
            "disk-full@*",
        ] {
            assert!(order.parse::<FaultOrder>().is_ok(), "{order}");
        }
    }

    #[test]
    fn a_fault_that_a_retry_does_not_end_is_listed_with_its_command() {
        let listed = listed();
        for fault in Fault::ALL.iter().filter(|it| it.command().is_some()) {
            let mut lines = listed.lines();
            let line = lines.find(|it| it.trim_start().starts_with(fault.name()));
            let command = fault.command().unwrap_or_default();
            let line = line.unwrap_or_default();
            assert!(line.ends_with(&format!("[{command}]")), "{line}");
        }
    }

    #[test]
    fn orders_are_read() {
        let read = |text: &str| text.parse::<FaultOrder>();
        let order = |fault, aim, times| {
            Ok(FaultOrder {
                fault,
                step: None,
                aim,
                times,
            })
        };
        assert_eq!(read("dead"), order(Fault::Dead, Aim::Seed(1), 1));
        assert_eq!(read("dead=3"), order(Fault::Dead, Aim::Seed(3), 1));
        assert_eq!(
            read("upload-cut=2x4"),
            order(Fault::UploadCut, Aim::Seed(2), 4)
        );
        assert_eq!(
            read("upload-cutx4@7"),
            order(Fault::UploadCut, Aim::Nth(7), 4)
        );
        assert_eq!(
            read("exe-locked@win-a"),
            order(Fault::ExeLocked, Aim::Named("win-a".into()), 1)
        );
        assert_eq!(read("dead@*"), order(Fault::Dead, Aim::All, 1));
        let at = |step: &str| Some(step.to_owned());
        let cut = |step| {
            Ok(FaultOrder {
                fault: Fault::PowerOff,
                step,
                aim: Aim::Nth(2),
                times: 1,
            })
        };
        assert_eq!(read("power-off@2"), cut(None));
        assert_eq!(
            read("power-off/host file:C:\\k\\x@2"),
            cut(at("host file:C:\\k\\x"))
        );
    }

    #[test]
    fn a_refused_order_has_the_near_name_and_the_form() {
        let said = |order: &str| {
            let refused = order.parse::<FaultOrder>().expect_err(order);
            refused.to_string()
        };
        let example = "disk-full=2x3";
        for (order, parts) in [
            ("no-such", &["there is no fault \"no-such\"\n"][..]),
            (
                "dead=0",
                &["--faults dead=0: \"0\" is no count between 1 and 100000"],
            ),
            ("dead=two", &["\"two\" is no count"]),
            ("disk_full=2", &["did you mean disk-full?"]),
            ("DISK-FULL", &["did you mean disk-full?"]),
            ("diskfull", &["did you mean disk-full?"]),
            (
                "disk-full:2",
                &["--faults disk-full:2: ", "did you mean disk-full?"],
            ),
            ("disk", &["did you mean disk-full?"]),
            ("scanner-delete=1", &["did you mean scanner-deletes?"]),
        ] {
            let said = said(order);
            assert!(said.contains(example), "{said}");
            assert!(parts.iter().all(|it| said.contains(it)), "{order}: {said}");
        }
        assert!(example.parse::<FaultOrder>().is_ok());
    }

    #[test]
    fn the_list_groups_faults_by_what_ends_them_and_sorts_them() {
        let text = listed();
        let groups: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(groups.len(), 4, "{text}");
        let mut all = 0;
        for group in &groups[..3] {
            let lines = group.lines().skip(1);
            let names: Vec<&str> = lines
                .filter_map(|it| it.split_whitespace().next())
                .collect();
            assert!(names.is_sorted(), "{group}");
            all += names.len();
        }
        let orderable = Fault::ALL.iter().filter(|it| it.can_be_ordered());
        assert_eq!(all, orderable.count());
        assert!(!text.contains("holder-dies"), "{text}");
        let stays = groups[2];
        assert!(
            stays.starts_with("Stays") && stays.contains("\n  scanner-deletes "),
            "{stays}"
        );
        // A run can be quarantined, too.
        assert!(Fault::ALL.iter().all(|it| it.name() != "quarantine"));
    }

    #[test]
    fn an_order_says_how_long_a_fault_lasts() {
        let orders = [
            "partition/120@win-a".to_owned(),
            "partition@win-b".to_owned(),
        ];
        let faults = Faults::parse(&orders, 1, 2).expect("orders");
        let lasts = |machine| faults.lasts(Fault::Partition, machine);
        assert_eq!(lasts("win-a"), Some(Duration::from_secs(120)));
        assert_eq!((lasts("win-b"), lasts("win-c")), (None, None));
        let faults = Faults::parse(&["uncordoned/60".to_owned()], 1, 1).expect("an order");
        faults.enroll("win-a");
        let lasts = faults.lasts(Fault::Uncordoned, "win-a");
        assert_eq!(lasts, Some(Duration::from_secs(60)));
        let faults = Faults::parse(&orders, 1, 2).expect("orders");
        assert!(
            faults.strike(Fault::Partition, "win-a"),
            "it strikes all the same"
        );
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = Fault::ALL.iter().map(|f| f.name()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        for fault in Fault::ALL {
            assert_eq!(
                fault.name().parse::<FaultOrder>().map(|o| o.fault),
                Ok(*fault)
            );
        }
    }

    #[test]
    fn the_seed_chooses_as_many_as_ordered() {
        for seed in 0..50 {
            for machines in [1, 2, 7, 20, 100] {
                let faults = Faults::parse(&["dead=5".into()], seed, machines).expect("an order");
                let hit = (0..machines).filter(|n| {
                    let name = format!("win-{n}");
                    faults.enroll(&name);
                    faults.strike(Fault::Dead, &name) && !faults.strike(Fault::Dead, &name)
                });
                assert_eq!(
                    hit.count(),
                    5.min(machines as usize),
                    "seed {seed} of {machines}"
                );
            }
        }
    }
}
