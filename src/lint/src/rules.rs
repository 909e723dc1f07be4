//! The table of rules: what each finds, why it matters, an example, and the mend.

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It does not work, or harms.
    Error,
    /// It works, and not as people expect, or not for long.
    Warning,
}

/// A rule of `dormer lint`, with the example that breaks it and the remedy, as `docs/lint.md` prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LintRule {
    /// Name, as findings carry it.
    pub name: &'static str,
    /// What it is about.
    pub about: About,
    /// How bad it is.
    pub severity: Severity,
    /// Line that breaks it.
    pub example: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub mend: &'static str,
    /// Whether `--fix` mends it, in whole or in its usual case.
    pub fix: bool,
}

/// Kind of manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Any text.
    Text,
    MachineSet,
    /// MachineHealthChecks.
    HealthCheck,
    /// MachineAutoscalers and the ClusterAutoscaler.
    Autoscaler,
    /// The ConfigMap `windows-instances`.
    Instances,
    /// WindowsPools.
    Pool,
    /// Profiles and their layers.
    Profile,
    /// Workloads and RuntimeClasses.
    Workload,
}

impl About {
    /// All, in the order of the page.
    pub const ALL: [Self; 8] = [
        Self::Text,
        Self::MachineSet,
        Self::HealthCheck,
        Self::Autoscaler,
        Self::Instances,
        Self::Pool,
        Self::Profile,
        Self::Workload,
    ];

    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::Text => "Any text",
            Self::MachineSet => "MachineSets of Windows machines",
            Self::HealthCheck => "MachineHealthChecks",
            Self::Autoscaler => "Autoscalers",
            Self::Instances => "The ConfigMap `windows-instances`",
            Self::Pool => "WindowsPools",
            Self::Profile => "Profiles and their layers",
            Self::Workload => "Workloads and RuntimeClasses",
        }
    }
}

macro_rules! rules {
    ($($about:ident $severity:ident $name:literal $fix:literal $example:literal $why:literal $mend:literal;)*) => {
        /// The table.
        pub const RULES: &[LintRule] = &[$(LintRule {
            name: $name,
            about: About::$about,
            severity: Severity::$severity,
            example: $example,
            why: $why,
            mend: $mend,
            fix: $fix,
        }),*];
    };
}

rules! {
    Text Error "yaml" false "a: b: c"
        "a text that cannot be read is not applied, and nothing else in it was checked"
        "correct the YAML here";
    Text Error "callout" true "os-id: Windows 7"
        "the number is a mark of the guide, and becomes a part of the value or breaks the YAML"
        "remove the number";
    Text Error "placeholder" false "name: <infrastructure_id>-win"
        "the guide's placeholder is taken as it is, and no cloud and no cluster knows it"
        "fill it; the infrastructure's name: oc get -o jsonpath='{.status.infrastructureName}' infrastructure cluster";
    Text Error "indentation" true " selector:"
        "a line that is off by a column belongs to something else, or to nothing"
        "indent it as the lines beside it";
    Text Error "misplaced-field" true "tolerations: below a container"
        "Kubernetes drops or refuses a field at the wrong level, so it has no effect"
        "move it where it belongs";
    Text Error "field-type" true "replicas: \"2\""
        "the API server refuses a text where a number belongs, a unit behind a number, and a label that is no text"
        "write the value as the field's type has it";
    Text Warning "no-kind" false "name: x"
        "without both a text is no object and no profile, and nothing in it was checked"
        "give it its apiVersion and kind";

    MachineSet Error "os-id-label" true "machine.openshift.io/os-id: windows"
        "only Machines with the label machine.openshift.io/os-id=Windows, on the template, are taken for Windows ones"
        "label the template: spec.template.metadata.labels gets machine.openshift.io/os-id: Windows";
    MachineSet Error "selector-labels" false "matchLabels: {app: Api} of a template {app: api}"
        "a selector that does not match its template is refused, or creates machines without end"
        "give selector and template the same labels";
    MachineSet Error "set-label" false "cluster-api-machineset: another-set"
        "two sets with one label take each other's Machines and delete them"
        "write the MachineSet's own name, in the selector and on the template";
    MachineSet Error "cluster-id" false "cluster-api-cluster: shop-9xk2e of shop-9xk2d"
        "machines with another cluster's name are cleaned up with that cluster, or never join"
        "write one infrastructure name everywhere";
    MachineSet Error "user-data" true "userDataSecret: {name: worker-user-data}"
        "the secret windows-user-data starts sshd and lets dormer in; any other is for Linux, and the host never answers"
        "write userDataSecret: {name: windows-user-data}";
    MachineSet Error "namespace" true "namespace: default"
        "the Machine API reads its own namespace only"
        "write namespace: openshift-machine-api";
    MachineSet Error "provider" true "kind: AWSMachineProviderSpec"
        "no controller of the Machine API reads that providerSpec, and no machine is created"
        "write kind and apiVersion as an existing MachineSet of the cluster has them";
    MachineSet Warning "provider-field" true "instanceTyp: m5a.large"
        "the Machine API ignores a field that it does not know, and takes a default or nothing in its place"
        "remove it, or look it up in the types of openshift/api: a newer OpenShift may have it";
    MachineSet Error "image" false "ami: {}"
        "without an image of a supported Windows Server there is nothing to start"
        "name an image of Windows Server 2019, 2022 or 2025";
    MachineSet Error "os-type" true "osType: Linux"
        "Azure prepares the disk and the machine's agent by it, and a Windows image fails as Linux"
        "write osType: Windows";
    MachineSet Error "sku" false "sku: datacenter-core-1903-with-containers-smalldisk"
        "the host cannot become a node, or has no room for images"
        "take the SKU of a supported Windows Server, such as 2022-datacenter";
    MachineSet Warning "image-latest" false "version: latest"
        "two machines of one set come up with two builds, and a bad update reaches new machines unasked"
        "write the version that you have tried; az vm image list --all shows them";
    MachineSet Error "disk-size" true "volumeSize: 50"
        "Windows, two payloads and the layers of one image need it; a full disk evicts every pod"
        "write 120 or more (128 on Azure)";
    MachineSet Error "set-name-length" false "name: winworker-eastus1"
        "a Windows host's name has at most 15 characters, of which the Machine API adds 6"
        "shorten the name to 9 characters";
    MachineSet Error "set-name" false "name: Win_A"
        "Kubernetes refuses the name, or that of its Machines"
        "write lower-case letters, digits and -, with a letter or digit at both ends";
    MachineSet Error "architecture" false "instanceType: m6g.large"
        "Windows nodes are amd64: neither Windows Server containers nor the payload exist for ARM"
        "take an instance type of Intel or AMD";
    MachineSet Error "zone" false "availabilityZone: us-east-1a in region us-west-2"
        "the cloud refuses to create the machine"
        "write a zone of that region, and its subnet";

    HealthCheck Error "startup-timeout" true "nodeStartupTimeout: 10m"
        "a Windows host needs a reboot and 300 MB before its Node: the check deletes each Machine shortly before that, without end"
        "write nodeStartupTimeout: 40m";
    HealthCheck Warning "unhealthy-timeout" true "timeout: 5m"
        "a reboot with updates lasts up to 20 minutes, in which the Node is not Ready: the check deletes the Machine meanwhile"
        "write 30m or more";
    HealthCheck Warning "max-unhealthy" false "maxUnhealthy: 100%"
        "a network fault makes every machine unhealthy, so the check deletes all of them"
        "write maxUnhealthy: 1, or a share below the half";
    HealthCheck Error "health-check-selector" false "selector: {}"
        "an empty selector takes every Machine, those of the control plane too"
        "select by machine.openshift.io/os-id: Windows, or by the MachineSet's label";

    Autoscaler Error "scale-from-zero" false "minReplicas: 0"
        "with no machine to look at, the autoscaler takes a new one for Linux of unknown size, and pods for Windows never start one"
        "annotate the MachineSet with machine.openshift.io/vCPU, machine.openshift.io/memoryMb and capacity.cluster-autoscaler.kubernetes.io/labels: kubernetes.io/os=windows, or write minReplicas: 1";
    Autoscaler Error "autoscaler-target" true "kind: MachineDeployment"
        "the autoscaler scales MachineSets of machine.openshift.io/v1beta1 only"
        "name the MachineSet by apiVersion, kind and name";
    Autoscaler Error "autoscaler-range" false "maxReplicas: 1 with minReplicas: 2"
        "the API server or the autoscaler refuses it"
        "write a maximum of at least the minimum";
    Autoscaler Error "provision-time" true "maxNodeProvisionTime: 15m"
        "a Windows host needs a reboot and 300 MB before its Node: the autoscaler deletes each Machine shortly before that, and lowers the number of its set"
        "write maxNodeProvisionTime: 40m in the ClusterAutoscaler";

    Instances Error "instance-entry" false "10.1.42.1: user=Administrator"
        "an entry is exactly username=NAME; one that is not stops the Windows Machine Config Operator for all hosts, and a password would be readable to many"
        "write username= and the administrator's name, nothing else";
    Instances Error "instance-address" false "10.1.42.3:22: username=Administrator"
        "the key is what SSH connects to and the Node is found by: an IPv4 address, or a name that DNS knows"
        "write the IPv4 address or the DNS name alone";
    Instances Error "instance-twice" false "WIN-4.corp and win-4.corp."
        "one host with two entries is configured twice at once"
        "remove one of the two";

    Pool Error "pool-field" true "strategie: {}"
        "the API server drops or refuses a field that it does not know, and the setting has no effect"
        "write the field as kubectl explain windowspool.spec shows it";
    Pool Error "pool-value" true "type: Replace"
        "the API server refuses the pool, and the earlier settings stay in force"
        "write a value as kubectl explain windowspool.spec shows it";
    Pool Error "pool-name" true "name: win-pool"
        "dormer reads the pool named windows, in its own namespace, and no other"
        "write name: windows";
    Pool Error "pool-api" true "apiVersion: apps/v1"
        "the cluster has no such kind, and the pool is not created"
        "write apiVersion: dormer.io/v1beta1";
    Pool Warning "pool-version" true "apiVersion: dormer.io/v1alpha1"
        "the earlier version is served for old objects only"
        "write apiVersion: dormer.io/v1beta1";

    Profile Error "profile" false "host: {filez: {}}"
        "dormer refuses the layer, and nodes keep their present configuration"
        "correct what is named; dormer profile render --layer FILE shows the result";

    Workload Error "api-version" true "apiVersion: node.k8s.io/v1beta1"
        "the API server does not serve that version any more, and the object is refused"
        "write the version that is served";
    Workload Error "runtime-handler" true "handler: 'docker'"
        "nodes run containerd, which has no such handler: pods of the class stay in ContainerCreating"
        "write handler: runhcs-wcow-process";
    Workload Error "field-case" true "Effect: NoSchedule"
        "fields are read in their exact case: the API server drops or refuses this one"
        "write it as Kubernetes does";
    Workload Warning "os-label" true "beta.kubernetes.io/os: windows"
        "the label is deprecated since Kubernetes 1.14, and goes"
        "write kubernetes.io/os";
    Workload Error "os-key" true "kubernetes.io/so: windows"
        "no node has a label of that name: the pod stays Pending"
        "write kubernetes.io/os";
    Workload Error "os-value" true "kubernetes.io/os: Windows"
        "the label's values are windows and linux, in lower case: the pod stays Pending"
        "write windows or linux";
    Workload Error "taint-effect" true "effect: NoShedule"
        "the API server refuses any effect but NoSchedule, PreferNoSchedule and NoExecute"
        "write one of the three";
    Workload Error "taint-value" true "value: windows"
        "a toleration has to have the taint's value, in its case: the pod stays Pending"
        "write the value of the taint: Windows with the profile openshift, windows with upstream";
    Workload Error "windows-toleration" false "image: mcr.microsoft.com/windows/servercore:ltsc2022"
        "Windows nodes have a taint, so that no Linux pod lands there: without a toleration the pod stays Pending"
        "add tolerations: [{key: os, value: Windows, effect: NoSchedule}], or the runtimeClassName of a class that has it";
    Workload Error "windows-selector" false "no nodeSelector beside a Windows image"
        "without a selector the pod lands on a Linux node, which cannot pull the image"
        "add nodeSelector: {kubernetes.io/os: windows}, or the runtimeClassName of a class that has it";
    Workload Error "windows-build" false "node.kubernetes.io/windows-build: 10.0.18362"
        "no node has that label: the pods stay Pending"
        "write the build of the nodes: 10.0.17763, 10.0.20348 or 10.0.26100";
    Workload Error "image-release" false "image: mcr.microsoft.com/windows/servercore:1903"
        "with process isolation a container runs on the Windows that it was built for only"
        "take the tag of a supported Windows: ltsc2019, ltsc2022 or ltsc2025";
    Workload Error "image-build" false "servercore:ltsc2022 with windows-build 10.0.17763"
        "the container does not start on a host of another Windows"
        "take the image and the build of one Windows";
    Workload Error "two-builds" false "windows-build In [10.0.17763, 10.0.20348]"
        "a container starts on the Windows only that its image was built for: on a node of the other build the pod fails, or no node fits at all"
        "write one build, and one workload for each build";
    Workload Warning "linux-only-field" false "runAsUser: 1000"
        "the kubelet or the container fails on it, or the protection that it promises is not there"
        "remove it; users are named by securityContext.windowsOptions.runAsUserName";
    Workload Error "shell" true "command: [powershell.exe] in mcr.microsoft.com/powershell"
        "images of PowerShell 7 have pwsh.exe only"
        "write pwsh.exe";
    Workload Warning "other-operator" false "Subscription windows-machine-config-operator"
        "two operators would configure the same hosts: while this one runs, dormer leaves every host alone"
        "leave it out, or leave dormer out";
}
