//! Cases: one mistake in a healthy manifest, and the one finding that it gives.

use dormer_lint::{Flavour, RULES, fix, lint};
use std::collections::BTreeSet;

const AWS: &str = include_str!("healthy/01-aws.yaml");
const AZURE: &str = include_str!("healthy/02-azure.yaml");
const VSPHERE: &str = include_str!("healthy/04-vsphere.yaml");
const GCP: &str = include_str!("healthy/05-gcp-from-zero.yaml");
const INSTANCES: &str = include_str!("healthy/06-instances.yaml");
const POOL: &str = include_str!("healthy/07-pool.yaml");
const PROFILE: &str = include_str!("healthy/08-profile.yaml");
const WORKLOADS: &str = include_str!("healthy/09-workloads.yaml");

/// A mistake: what is replaced in a healthy manifest, and the rules that it breaks with a text of their lines.
struct Case {
    healthy: &'static str,
    from: &'static str,
    to: &'static str,
    found: &'static [(&'static str, &'static str)],
    /// Whether `--fix` leaves nothing.
    fixed: bool,
}

const fn case(
    healthy: &'static str,
    from: &'static str,
    to: &'static str,
    found: &'static [(&'static str, &'static str)],
    fixed: bool,
) -> Case {
    Case {
        healthy,
        from,
        to,
        found,
        fixed,
    }
}

const CASES: &[Case] = &[
    case(
        AWS,
        "volumeSize: 120",
        "volumeSize: \"150Gi\"",
        &[("field-type", "volumeSize: \"150Gi\"")],
        true,
    ),
    case(
        AWS,
        "replicas: 1",
        "replicas: \"2\"",
        &[("field-type", "replicas: \"2\"")],
        true,
    ),
    case(
        AWS,
        "replicas: 1",
        "replicas: two",
        &[("field-type", "replicas: two")],
        false,
    ),
    case(
        WORKLOADS,
        "      hostPID: true",
        "      hostPID: 'true'",
        &[("field-type", "hostPID: 'true'")],
        true,
    ),
    case(
        WORKLOADS,
        "          args: [",
        "          env: [{name: RELEASE, value: 1.10}]\n          args: [",
        &[("field-type", "value: 1.10")],
        true,
    ),
    case(
        WORKLOADS,
        "{app: web, tier: front}",
        "{app: web, tier: 2}",
        &[("field-type", "tier: 2")],
        true,
    ),
    case(
        WORKLOADS,
        "          tolerations: [{key: os, operator: Exists}]",
        "          affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node.kubernetes.io/windows-build, operator: In, values: [10.0.20348, 10.0.17763]}]}]}}}\n          tolerations: [{key: os, operator: Exists}]",
        &[("two-builds", "10.0.17763")],
        false,
    ),
    case(
        WORKLOADS,
        "              command: [pwsh.exe, -Command, Get-Date]",
        "            - {name: log, image: \"mcr.microsoft.com/windows/nanoserver:ltsc2022\"}\n            - {name: old, image: \"registry.example/log:2-nanoserver-ltsc2019\"}",
        &[
            ("image-build", "nanoserver-ltsc2019"),
            ("two-builds", "nanoserver-ltsc2019"),
        ],
        false,
    ),
    case(
        AWS,
        "os-id: Windows",
        "os-id: windows",
        &[("os-id-label", "os-id: windows")],
        true,
    ),
    case(
        AWS,
        "        machine.openshift.io/os-id: Windows\n",
        "",
        &[("os-id-label", "      labels:")],
        true,
    ),
    case(
        AZURE,
        "os-id: Windows",
        "os-id: Windows 7",
        &[("callout", "Windows 7")],
        true,
    ),
    // A disk beside that of Windows may be small, and the disk of Windows may be named.
    case(
        AWS,
        "            - ebs:\n",
        "            - {deviceName: xvdf, ebs: {volumeSize: 20, volumeType: gp3}}\n            - ebs:\n",
        &[],
        false,
    ),
    case(
        AWS,
        "            - ebs:\n                iops: 0\n                volumeSize: 120\n",
        "            - deviceName: xvdf\n              ebs:\n                volumeSize: 500\n",
        &[("disk-size", "blockDevices:")],
        false,
    ),
    case(
        AWS,
        "            - ebs:\n                iops: 0\n                volumeSize: 120\n",
        "            - deviceName: /dev/sda1\n              ebs:\n                volumeSize: 60\n",
        &[("disk-size", "volumeSize: 60")],
        true,
    ),
    case(
        AWS,
        "volumeSize: 120",
        "volumeSize: 60",
        &[("disk-size", "volumeSize: 60")],
        true,
    ),
    case(
        AZURE,
        "diskSizeGB: 128",
        "diskSizeGB: 64",
        &[("disk-size", "diskSizeGB: 64")],
        true,
    ),
    case(
        VSPHERE,
        "diskGiB: 128",
        "diskGiB: 100",
        &[("disk-size", "diskGiB: 100")],
        true,
    ),
    case(
        GCP,
        "sizeGb: 128",
        "sizeGb: 50",
        &[("disk-size", "sizeGb: 50")],
        true,
    ),
    case(
        AWS,
        "name: windows-user-data",
        "name: worker-user-data",
        &[("user-data", "worker-user-data")],
        true,
    ),
    case(
        AZURE,
        "name: windows-user-data\n            namespace: openshift-machine-api",
        "name: windows-user-data\n            namespace: dormer",
        &[("user-data", "namespace: dormer")],
        true,
    ),
    case(
        AWS,
        "  namespace: openshift-machine-api\nspec",
        "  namespace: default\nspec",
        &[("namespace", "namespace: default")],
        true,
    ),
    case(
        AWS,
        "  namespace: openshift-machine-api\nspec",
        "spec",
        &[("namespace", "metadata:")],
        false,
    ),
    case(
        AWS,
        "id: ami-0f3ac2b7d4e5a6f01",
        "id: windows-2022",
        &[("image", "id: windows-2022")],
        false,
    ),
    case(
        AWS,
        "          ami:\n            id: ami-0f3ac2b7d4e5a6f01\n",
        "",
        &[("image", "          apiVersion: aws")],
        false,
    ),
    case(
        VSPHERE,
        "windows-server-2022",
        "windows-server-2016",
        &[("image", "windows-server-2016")],
        false,
    ),
    case(
        GCP,
        "windows-server-2022-dc-core",
        "windows-server-1809-dc-core",
        &[("image", "windows-server-1809")],
        false,
    ),
    case(
        AZURE,
        "            publisher: MicrosoftWindowsServer\n",
        "",
        &[("image", "          image:")],
        false,
    ),
    case(
        AZURE,
        "osType: Windows",
        "osType: Linux",
        &[("os-type", "osType: Linux")],
        true,
    ),
    case(
        AZURE,
        "            osType: Windows\n",
        "",
        &[("os-type", "          osDisk:")],
        false,
    ),
    case(
        AZURE,
        "sku: 2019-Datacenter-with-Containers",
        "sku: datacenter-core-1903-with-containers",
        &[("sku", "1903")],
        false,
    ),
    case(
        AZURE,
        "sku: 2019-Datacenter-with-Containers",
        "sku: 2022-datacenter-smalldisk",
        &[("sku", "smalldisk")],
        false,
    ),
    case(
        AZURE,
        "version: 17763.7009.250303",
        "version: latest",
        &[("image-latest", "latest")],
        false,
    ),
    case(
        AZURE,
        "winworker",
        "winworker-a",
        &[("set-name-length", "  name: winworker-a")],
        false,
    ),
    case(
        VSPHERE,
        "winworker",
        "windowsworker",
        &[("set-name-length", "  name: windowsworker")],
        false,
    ),
    case(
        AZURE,
        "winworker",
        "Win_A",
        &[("set-name", "  name: Win_A")],
        false,
    ),
    case(
        AWS,
        "instanceType: m5a.large",
        "instanceType: m6g.large",
        &[("architecture", "m6g")],
        false,
    ),
    case(
        AZURE,
        "vmSize: Standard_D2s_v3",
        "vmSize: Standard_D2ps_v5",
        &[("architecture", "D2ps")],
        false,
    ),
    case(
        AWS,
        "region: us-east-1\n",
        "region: us-west-2\n",
        &[("zone", "availabilityZone")],
        false,
    ),
    case(
        AWS,
        "kind: AWSMachineProviderConfig",
        "kind: AWSMachineProviderSpec",
        &[("provider", "AWSMachineProviderSpec")],
        false,
    ),
    case(
        AZURE,
        "apiVersion: azureproviderconfig.openshift.io/v1beta1",
        "apiVersion: azureproviderconfig.openshift.io/v1",
        &[("provider", "azureproviderconfig.openshift.io/v1")],
        true,
    ),
    case(
        AWS,
        "      machine.openshift.io/cluster-api-machineset: shop-9xk2d-windows-worker-us-east-1a\n  template",
        "      machine.openshift.io/cluster-api-machineset: shop-9xk2d-windows-worker\n  template",
        &[
            ("selector-labels", "windows-worker"),
            ("set-label", "windows-worker"),
        ],
        false,
    ),
    case(
        AWS,
        "  labels:\n    machine.openshift.io/cluster-api-cluster: shop-9xk2d",
        "  labels:\n    machine.openshift.io/cluster-api-cluster: shop-9xk2e",
        &[
            (
                "cluster-id",
                "      machine.openshift.io/cluster-api-cluster: shop-9xk2d",
            ),
            (
                "cluster-id",
                "        machine.openshift.io/cluster-api-cluster: shop-9xk2d",
            ),
            ("cluster-id", "kubernetes.io/cluster/shop-9xk2d"),
        ],
        false,
    ),
    case(
        AWS,
        "      providerSpec:\n",
        "      lables: {}\n      providerSpec:\n",
        &[("misplaced-field", "lables")],
        false,
    ),
    case(
        AWS,
        "  replicas: 1",
        "  replcas: 2",
        &[("misplaced-field", "replcas")],
        true,
    ),
    case(
        AWS,
        "instanceType:",
        "instanceTyp:",
        &[("provider-field", "instanceTyp:")],
        true,
    ),
    case(
        AWS,
        "            id: ami-0f3ac2b7d4e5a6f01",
        "            id: ami-0f3ac2b7d4e5a6f01\n            idd: 1",
        &[("provider-field", "idd: 1")],
        false,
    ),
    case(
        AWS,
        "volumeSize: 120",
        "volumeSiz: 120",
        &[
            ("provider-field", "volumeSiz"),
            ("disk-size", "blockDevices"),
        ],
        true,
    ),
    // The Machine API reads the field in any case.
    case(
        AWS,
        "deviceIndex: 0",
        "deviceIndex: 0\n          publicIP: false",
        &[],
        false,
    ),
    case(
        AZURE,
        "          location: centralus",
        "          locations: centralus",
        &[("provider-field", "locations")],
        true,
    ),
    case(
        AZURE,
        "storageAccountType: Premium_LRS",
        "storageAcountType: Premium_LRS",
        &[("provider-field", "storageAcountType")],
        true,
    ),
    case(
        AZURE,
        "          publicIP: false",
        "          publicIP: false\n          managedDisk: {}",
        &[("provider-field", "managedDisk: {}")],
        false,
    ),
    case(
        VSPHERE,
        "networkName: VM Network",
        "netwrkName: VM Network",
        &[("provider-field", "netwrkName")],
        true,
    ),
    case(
        VSPHERE,
        "            datastore: ds1",
        "            datastore: ds1\n            wholly: unknown",
        &[("provider-field", "wholly")],
        false,
    ),
    case(
        GCP,
        "              sizeGb: 128",
        "              sizeGb: 128\n              autoDelte: true",
        &[("provider-field", "autoDelte")],
        true,
    ),
    case(
        AWS,
        "id: shop-9xk2d-worker-profile",
        "id: <infrastructure_id>-worker-profile",
        &[("placeholder", "<infrastructure_id>")],
        false,
    ),
    case(
        VSPHERE,
        "  nodeStartupTimeout: 40m\n",
        "",
        &[("startup-timeout", "spec:")],
        false,
    ),
    case(
        VSPHERE,
        "nodeStartupTimeout: 40m",
        "nodeStartupTimeout: 600s",
        &[("startup-timeout", "600s")],
        true,
    ),
    case(
        VSPHERE,
        "nodeStartupTimeout: 40m\n  selector:\n    matchLabels:\n      machine.openshift.io/os-id: Windows\n",
        "nodeStartupTimeout: 10m\n  selector:\n    matchExpressions:\n      - {key: machine.openshift.io/os-id, operator: In, values: [Windows]}\n",
        &[("startup-timeout", "10m")],
        true,
    ),
    case(
        VSPHERE,
        "timeout: 30m",
        "timeout: 300s",
        &[("unhealthy-timeout", "300s")],
        true,
    ),
    case(
        VSPHERE,
        "timeout: 30m",
        "timeout: 29m",
        &[("unhealthy-timeout", "29m")],
        true,
    ),
    case(
        VSPHERE,
        "  maxUnhealthy: 1\n",
        "",
        &[("max-unhealthy", "spec:")],
        false,
    ),
    case(
        VSPHERE,
        "maxUnhealthy: 1",
        "maxUnhealthy: 100%",
        &[("max-unhealthy", "100%")],
        false,
    ),
    case(
        VSPHERE,
        "    matchLabels:\n      machine.openshift.io/os-id: Windows\n  unhealthy",
        "    matchLabels: {}\n  unhealthy",
        &[("health-check-selector", "  selector:")],
        false,
    ),
    case(
        VSPHERE,
        "nodeStartupTimeout: 40m\n  selector:\n    matchLabels:\n      machine.openshift.io/os-id: Windows",
        "nodeStartupTimeout: 10m\n  selector:\n    matchLabels:\n      machine.openshift.io/cluster-api-machine-role: worker",
        &[("startup-timeout", "10m")],
        true,
    ),
    case(
        GCP,
        "    machine.openshift.io/vCPU: \"4\"\n",
        "",
        &[("scale-from-zero", "minReplicas: 0")],
        false,
    ),
    case(
        GCP,
        "kubernetes.io/os=windows,",
        "",
        &[("scale-from-zero", "minReplicas: 0")],
        false,
    ),
    case(
        GCP,
        "    kind: MachineSet\n    name",
        "    kind: MachineDeployment\n    name",
        &[("autoscaler-target", "MachineDeployment")],
        true,
    ),
    case(
        GCP,
        "minReplicas: 0\n  maxReplicas: 6",
        "minReplicas: 3\n  maxReplicas: 2",
        &[("autoscaler-range", "maxReplicas: 2")],
        false,
    ),
    case(
        GCP,
        "maxNodeProvisionTime: 40m",
        "maxNodeProvisionTime: 15m",
        &[("provision-time", "15m")],
        true,
    ),
    case(
        GCP,
        "  maxNodeProvisionTime: 40m\n",
        "",
        &[("provision-time", "spec:")],
        false,
    ),
    case(
        INSTANCES,
        "username=Administrator",
        "Administrator",
        &[("instance-entry", "10.1.42.1")],
        false,
    ),
    case(
        INSTANCES,
        "username=Administrator",
        "username=Administrator,password=x",
        &[("instance-entry", "10.1.42.1")],
        false,
    ),
    case(
        INSTANCES,
        "10.1.42.1:",
        "10.1.42.0/24:",
        &[("instance-address", "/24")],
        false,
    ),
    case(
        INSTANCES,
        "10.1.42.1:",
        "10.1.42.300:",
        &[("instance-address", "300")],
        false,
    ),
    case(
        INSTANCES,
        "10.1.42.1:",
        "WIN-2.corp.example.:",
        &[("instance-twice", "  win-2.corp.example")],
        false,
    ),
    case(
        POOL,
        "maxUnavailable: 1",
        "maxUnavailabel: 1",
        &[("pool-field", "maxUnavailabel")],
        true,
    ),
    case(
        POOL,
        "type: Recreate",
        "type: inplace",
        &[("pool-value", "inplace")],
        true,
    ),
    case(
        POOL,
        "maxUnavailable: 1",
        "maxUnavailable: 0",
        &[("pool-value", "maxUnavailable: 0")],
        false,
    ),
    case(
        POOL,
        "soak: 30s",
        "soak: 30 seconds",
        &[("pool-value", "30 seconds")],
        false,
    ),
    case(
        POOL,
        "paused: false",
        "paused: \"no\"",
        &[("pool-value", "paused")],
        false,
    ),
    case(
        POOL,
        "paused: false",
        "layers: blue\n  paused: false",
        &[("pool-value", "layers: blue")],
        false,
    ),
    case(
        POOL,
        "paused: false",
        "layers: [red, Blue]\n  paused: false",
        &[("pool-value", "Blue")],
        false,
    ),
    case(
        POOL,
        "timeout: 1h\n    afterTimeout: Wait",
        "timeout: 0s\n    afterTimeout: Force",
        &[("pool-value", "Force")],
        false,
    ),
    case(
        POOL,
        "  name: windows",
        "  name: winpool",
        &[("pool-name", "winpool")],
        true,
    ),
    case(
        POOL,
        "dormer.io/v1beta1",
        "dormer.io/v1alpha1",
        &[("pool-version", "v1alpha1")],
        true,
    ),
    case(
        POOL,
        "dormer.io/v1beta1",
        "apps/v1",
        &[("pool-api", "apps/v1")],
        true,
    ),
    case(
        POOL,
        "dormer.io/v1beta1",
        "dormer.io/v2",
        &[("pool-api", "dormer.io/v2")],
        true,
    ),
    case(
        POOL,
        "spec:\n  payload: installed",
        "payload: installed\nspec:",
        &[("pool-field", "payload: installed")],
        false,
    ),
    case(
        POOL,
        "  approval: Automatic\n",
        "  timeout: 1h\n",
        &[("pool-field", "timeout")],
        false,
    ),
    case(
        PROFILE,
        "firewall:",
        "firewalls:",
        &[("profile", "firewalls")],
        false,
    ),
    case(
        PROFILE,
        "3.10.2",
        "3.10.2-${NO_SUCH}",
        &[("profile", "PAUSE_IMAGE")],
        false,
    ),
    case(
        PROFILE,
        "name: openshift\nvariables:\n  PAUSE_IMAGE: registry.corp.example/pause:3.10.2\nhost:\n  firewall:\n    exporter: { port: 9183 }",
        "metadata:\n  name: x",
        &[("no-kind", "metadata")],
        false,
    ),
    case(
        WORKLOADS,
        "apiVersion: node.k8s.io/v1\n",
        "apiVersion: node.k8s.io/v1beta1\n",
        &[("api-version", "v1beta1")],
        true,
    ),
    case(
        WORKLOADS,
        "apiVersion: batch/v1\n",
        "apiVersion: batch/v1beta1\n",
        &[("api-version", "batch/v1beta1")],
        true,
    ),
    case(
        WORKLOADS,
        "handler: runhcs-wcow-process",
        "handler: docker",
        &[("runtime-handler", "docker")],
        true,
    ),
    case(
        WORKLOADS,
        "{effect: NoSchedule",
        "{Effect: NoSchedule",
        &[("field-case", "Effect")],
        true,
    ),
    case(
        WORKLOADS,
        "    kubernetes.io/os: windows\n",
        "    beta.kubernetes.io/os: windows\n",
        &[("os-label", "beta.")],
        true,
    ),
    case(
        WORKLOADS,
        "    kubernetes.io/os: windows\n",
        "    kubernetes.io/os: Windows\n",
        &[("os-value", "os: Windows")],
        true,
    ),
    case(
        AWS,
        "      providerSpec:\n",
        "      taints: [{key: os, value: Windows, effect: NoShedule}]\n      providerSpec:\n",
        &[("taint-effect", "NoShedule")],
        true,
    ),
    case(
        AWS,
        "      providerSpec:\n",
        "      taints: [{key: os, value: Windows, efect: NoSchedule}]\n      providerSpec:\n",
        &[("misplaced-field", "efect")],
        true,
    ),
    case(
        WORKLOADS,
        "    kubernetes.io/os: windows\n",
        "    kubernetes.io/os: windos\n",
        &[("os-value", "os: windos")],
        true,
    ),
    case(
        WORKLOADS,
        "    kubernetes.io/os: windows\n",
        "    kubernetes.io/os: macos\n",
        &[("os-value", "os: macos")],
        false,
    ),
    case(
        WORKLOADS,
        "    kubernetes.io/os: windows\n",
        "    kubernetes.io/so: windows\n",
        &[("os-key", "kubernetes.io/so")],
        true,
    ),
    case(
        WORKLOADS,
        "{kubernetes.io/os: windows, node",
        "{kubernets.io/os: windows, node",
        &[("os-key", "kubernets.io/os")],
        true,
    ),
    case(
        WORKLOADS,
        "effect: NoSchedule, key: os",
        "effect: NoShedule, key: os",
        &[("taint-effect", "NoShedule")],
        true,
    ),
    case(
        WORKLOADS,
        "effect: NoSchedule, key: os",
        "effect: Never, key: os",
        &[("taint-effect", "Never")],
        false,
    ),
    case(
        WORKLOADS,
        "value: Windows",
        "value: Widnows",
        &[("taint-value", "value: Widnows")],
        true,
    ),
    case(
        WORKLOADS,
        "value: Windows",
        "value: windows",
        &[("taint-value", "value: windows")],
        true,
    ),
    case(
        WORKLOADS,
        "      runtimeClassName: windows-2022\n",
        "      nodeSelector: {kubernetes.io/os: windows}\n",
        &[("windows-toleration", "iis:")],
        false,
    ),
    case(
        WORKLOADS,
        "      runtimeClassName: windows-2022\n",
        "      tolerations: [{key: os, value: Windows}]\n",
        &[("windows-selector", "iis:")],
        false,
    ),
    case(
        WORKLOADS,
        "          nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}\n",
        "",
        &[("windows-selector", "powershell")],
        false,
    ),
    case(
        WORKLOADS,
        "    node.kubernetes.io/windows-build: 10.0.20348\n",
        "    node.kubernetes.io/windows-build: 10.0.20348.3207\n",
        &[("windows-build", "3207")],
        false,
    ),
    case(
        WORKLOADS,
        "    node.kubernetes.io/windows-build: 10.0.20348\n",
        "    node.kubernetes.io/windows-build: 10.0.18362\n",
        &[("windows-build", "18362")],
        false,
    ),
    case(
        WORKLOADS,
        "iis:windowsservercore-ltsc2022",
        "iis:windowsservercore-1903",
        &[("image-release", "1903")],
        false,
    ),
    case(
        WORKLOADS,
        "servercore/iis:windowsservercore-ltsc2022",
        "servercore",
        &[("image-release", "servercore")],
        false,
    ),
    case(
        WORKLOADS,
        "lts-nanoserver-ltsc2022",
        "lts-nanoserver-1809",
        &[("image-build", "1809")],
        false,
    ),
    case(
        WORKLOADS,
        "{windowsOptions: {runAsUserName: ContainerUser}}",
        "{runAsUser: 1000}",
        &[("linux-only-field", "runAsUser")],
        false,
    ),
    case(
        WORKLOADS,
        "[pwsh.exe,",
        "[powershell.exe,",
        &[("shell", "powershell.exe")],
        true,
    ),
    case(
        WORKLOADS,
        "matchLabels: {app: web}",
        "matchLabels: {app: Web}",
        &[("selector-labels", "Web")],
        false,
    ),
    case(
        WORKLOADS,
        "          tolerations: [{key: os, operator: Exists}]\n",
        "",
        &[("windows-toleration", "powershell")],
        false,
    ),
    case(
        WORKLOADS,
        "{key: os, operator: Exists}",
        "{key: os, operator: Exists, effect: NoExecute}",
        &[("windows-toleration", "powershell")],
        false,
    ),
    case(
        WORKLOADS,
        "{effect: NoSchedule, key: os",
        "{effect: PreferNoSchedule, key: os",
        &[("windows-toleration", "  tolerations:")],
        false,
    ),
    // Linux pods that keep away from Windows nodes, and pods of both.
    case(
        WORKLOADS,
        "      hostPID: true",
        "      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: NotIn, values: [windows]}]}]}}}\n      hostPID: true",
        &[],
        false,
    ),
    case(
        WORKLOADS,
        "      hostPID: true",
        "      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux, windows]}]}]}}}\n      hostPID: true",
        &[],
        false,
    ),
    // The build is a label of Windows nodes alone.
    case(
        WORKLOADS,
        "          nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}\n",
        "          affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node.kubernetes.io/windows-build, operator: In, values: [10.0.20348]}]}]}}}\n",
        &[],
        false,
    ),
    case(
        WORKLOADS,
        "          nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}\n",
        "          affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node.kubernetes.io/windows-build, operator: Exists}]}]}}}\n",
        &[],
        false,
    ),
    case(
        WORKLOADS,
        "\n          os: {name: windows}",
        "\n         os: {name: windows}",
        &[("indentation", "         os:")],
        true,
    ),
    case(
        WORKLOADS,
        "apiVersion: apps/v1\nkind: DaemonSet",
        "apiVersion: apps/v1beta2\nkind: DaemonSet",
        &[("api-version", "apps/v1beta2")],
        true,
    ),
    case(
        WORKLOADS,
        "apiVersion: batch/v1\nkind: CronJob",
        "apiVersion: batch/v1\nkind: CronJob: 1",
        &[("yaml", "CronJob: 1")],
        false,
    ),
];

#[test]
fn each_mistake_gives_its_finding_and_no_other() {
    let mut seen = BTreeSet::new();
    let mut wrong = String::new();
    for Case {
        healthy,
        from,
        to,
        found,
        fixed,
    } in CASES
    {
        // One that replaces nothing changes nothing.
        let text = healthy.replace(from, to);
        assert!(
            text != *healthy || found.is_empty(),
            "{from:?} is not there"
        );
        let all = lint(&text, Flavour::OpenShift);
        let line = |number: usize| text.lines().nth(number - 1).unwrap_or_default();
        let fits = all.len() == found.len()
            && found.iter().all(|(rule, part)| {
                all.iter()
                    .any(|it| it.rule == *rule && line(it.line).contains(part))
            });
        if !fits {
            let all: Vec<_> = all
                .iter()
                .map(|it| (it.rule, line(it.line), &it.message))
                .collect();
            wrong += &format!("{to:?}: {all:#?}\n");
            continue;
        }
        seen.extend(found.iter().map(|(rule, _)| *rule));
        let (mended, count) = fix(&text, Flavour::OpenShift);
        let left = lint(&mended, Flavour::OpenShift);
        let told: Vec<_> = left.iter().map(|it| (it.rule, &it.message)).collect();
        if *fixed && (count == 0 || !left.is_empty()) {
            wrong += &format!("{to:?} after {count} mends: {told:?}\n");
        }
        if !*fixed && !found.is_empty() && left.is_empty() {
            wrong += &format!("{to:?} is mended, and the case says that it is not\n");
        }
        for it in &all {
            let rule = RULES
                .iter()
                .find(|rule| rule.name == it.rule)
                .expect("a rule");
            if it.fix.is_some() && !rule.fix {
                wrong += &format!(
                    "{} has a mend, and the table says that it has none\n",
                    it.rule
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // The guides' manifests give it.
    seen.insert("other-operator");
    let untried: Vec<&str> = RULES
        .iter()
        .map(|it| it.name)
        .filter(|name| !seen.contains(name))
        .collect();
    assert!(untried.is_empty(), "no case for {untried:?}");
    assert!(CASES.len() + 10 >= 60, "{}", CASES.len());
}

#[test]
fn the_taint_is_that_of_the_profile() {
    let upstream = lint(WORKLOADS, Flavour::Upstream);
    assert_eq!(
        upstream.iter().map(|it| it.rule).collect::<Vec<_>>(),
        ["taint-value"]
    );
    assert_eq!(lint(WORKLOADS, Flavour::OpenShift), []);
}

#[test]
fn no_text_ends_the_lint() {
    for text in [
        "",
        "---",
        "...\n---\n",
        "a",
        "- 1\n- 2\n",
        "\u{feff}a: 1\n",
        "%YAML 1.2\n---\na: b\n",
        "a:\n\t- b\n",
        "é: <ü> 1\n é: 2\n",
        "{{ .x }}: 1\n",
    ] {
        let _ = lint(text, Flavour::OpenShift);
        let _ = fix(text, Flavour::OpenShift);
    }
    // Every prefix of a manifest: half-written files.
    for text in [AZURE, WORKLOADS] {
        for (at, _) in text.char_indices().step_by(7) {
            let _ = lint(&text[..at], Flavour::OpenShift);
        }
    }
}

#[test]
fn a_mend_never_breaks_a_file() {
    let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j"},"spec":{"nodeSelector":{"kubernetes.io/os":"Windows"},"tolerations":[{"key":"os","value":"windows"}],"containers":[{"name":"a","image":"mcr.microsoft.com/windows/nanoserver:ltsc2022"}]}}"#;
    let (mended, count) = fix(json, Flavour::OpenShift);
    assert!(count > 0);
    assert!(
        mended.contains(r#""kubernetes.io/os":"windows""#),
        "{mended}"
    );
    assert!(mended.contains(r#""value":"Windows""#), "{mended}");

    let shifted = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 3\n   \
                   minReadySeconds: 10\n";
    assert_eq!(
        fix(shifted, Flavour::OpenShift).0,
        shifted.replace("   min", "  min")
    );
}

#[test]
fn both_spellings_of_the_taint_may_be_tolerated() {
    let class = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata:\n  name: windows-10.0.20348\nhandler: \
                 runhcs-wcow-process\nscheduling:\n  nodeSelector:\n    kubernetes.io/os: windows\n    \
                 node.kubernetes.io/windows-build: 10.0.20348\n  tolerations:\n  - {key: os, value: Windows, effect: \
                 NoSchedule}\n  - {key: os, value: windows, effect: NoSchedule}\n";
    let found = lint(class, Flavour::OpenShift);
    assert!(
        found.iter().all(|it| it.rule != "taint-value"),
        "{found:#?}"
    );
}
