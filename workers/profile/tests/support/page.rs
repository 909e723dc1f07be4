//! `docs/settings.md`: every row of the table, with the tests and the programs that hold it.

use dormer_profile::{document::Section, settings, values::Values, variables::KNOWN};
use expect_test::expect_file;

/// Rows of nodes' configuration: the tests that fail without them, a mistake that is planted, and the program that refuses
/// it, or why none can.
struct Row {
    number: u32,
    setting: &'static str,
    /// File of each test, and its name.
    tests: &'static [(&'static str, &'static str)],
    mistake: &'static str,
    program: &'static str,
}

const OF_ROWS: &str = "workers/profile/tests/support/rows.rs";
const OF_HOSTS: &str = "workers/profile/tests/support/refused/host.rs";
const PAIRS: (&str, &str) = (
    OF_ROWS,
    "every_pair_of_the_support_table_renders_for_every_platform",
);
const FLAGS: (&str, &str) = (
    OF_ROWS,
    "a_flag_of_old_kubelets_and_the_settings_of_logs_reach_them",
);
const WINDOWS: (&str, &str) = (OF_ROWS, "windows_itself_is_set_by_its_build");
const OF_THE_CLUSTER: &str = "workers/tests/kubernetes/cluster_config.rs";
const NO_PROGRAM: &str = "none: Windows takes any value; a simulated and a Wine host read it back";
const OF_DORMER: &str = "none: dormer alone reads it";

const ROWS: &[Row] = &[
    Row {
        number: 1,
        setting: "containerd's CNI folders",
        tests: &[PAIRS],
        mistake: "the wrong one for 1.7, 2.0, 2.1 and 2.4; both for 2.2 and 2.3",
        program: "containerd 1.7 and 2.4",
    },
    Row {
        number: 2,
        setting: "containerd's version of its file",
        tests: &[PAIRS],
        mistake: "3 for 1.7, 4 for 2.2, no TOML; a file that the profile does not have",
        program: "containerd 1.7",
    },
    Row {
        number: 3,
        setting: "NRI is off",
        tests: &[PAIRS],
        mistake: "on in 2.3",
        program: "containerd 2.4, a misspelt key",
    },
    Row {
        number: 4,
        setting: "the shim's path, and what it keeps out of its log",
        tests: &[PAIRS],
        mistake: "none in 1.7 and 2.3",
        program: "containerd 2.4, a misspelt key",
    },
    Row {
        number: 5,
        setting: "the pause image",
        tests: &[
            PAIRS,
            (
                OF_ROWS,
                "the_pause_image_comes_with_the_payload_where_that_has_it",
            ),
            (
                "tests/fleet/tests/host/profile.rs",
                "a_host_without_egress_starts_pods_where_the_payload_or_a_mirror_has_the_pause_image",
            ),
            (
                "src/payload_command/pause.rs",
                "every_windows_build_needs_an_image",
            ),
        ],
        mistake: "3.9 for Server 2025; a tar without the build, of Docker's form, or compressed",
        program: "containerd 1.7 and 2.4, a misspelt table",
    },
    Row {
        number: 6,
        setting: "Kubernetes 1.33 to 1.37, grace periods",
        tests: &[PAIRS],
        mistake: "1.38 with containerd 1.7; a period for one of two platforms; NodeLogQuery in 1.36",
        program: "the kubelet of 1.37",
    },
    Row {
        number: 7,
        setting: "kube-proxy's gates",
        tests: &[PAIRS],
        mistake: "WinDSR in 1.37; a misspelt field; a gate that no release has, a locked one, and one on the command line",
        program: "kube-proxy of 1.34 and 1.37; a misspelt field its strict reader only",
    },
    Row {
        number: 8,
        setting: "log rotation",
        tests: &[FLAGS],
        mistake: "a flag in 1.33",
        program: "kube-log-runner of 1.33",
    },
    Row {
        number: 9,
        setting: "`--cloud-config`, `--cloud-provider`",
        tests: &[PAIRS, FLAGS],
        mistake: "the flag in 1.34, another in 1.35; a provider of the kubelet's own; a misspelt flag; letters for a number",
        program: "the kubelet of 1.34 and 1.35",
    },
    Row {
        number: 10,
        setting: "paths of an upstream node, what is kept for Windows",
        tests: &[(
            OF_ROWS,
            "an_upstream_node_has_the_folders_that_its_daemon_sets_expect",
        )],
        mistake: "a path without a root",
        program: "none: a path is any text to them",
    },
    Row {
        number: 11,
        setting: "the registry, by build; dynamic ports",
        tests: &[
            WINDOWS,
            (
                "workers/host/tests/system.rs",
                "each_windows_gets_the_values_that_are_for_it",
            ),
            (
                "workers/host/tests/system.rs",
                "a_value_of_the_registry_is_made_mended_and_removed_and_one_of_somebody_else_stays",
            ),
        ],
        mistake: "too many ports; NodePorts; a number as a text",
        program: NO_PROGRAM,
    },
    Row {
        number: 12,
        setting: "no `ctr.exe`",
        tests: &[(OF_ROWS, "ctr_is_not_installed")],
        mistake: "a layer wants it, and the payload has none",
        program: "none: a program that is not there",
    },
    Row {
        number: 13,
        setting: "port of VXLAN",
        tests: &[
            (OF_ROWS, "another_port_of_vxlan_reaches_the_overlay"),
            (
                OF_HOSTS,
                "ports_that_windows_or_kubernetes_does_not_give_are_refused",
            ),
            (OF_THE_CLUSTER, "what_openshift_says_of_its_nodes_is_read"),
        ],
        mistake: "another on Server 2019; 70000",
        program: "none: hybrid-overlay-node has no strict reader",
    },
    Row {
        number: 14,
        setting: "KubeletConfigs",
        tests: &[
            (
                "workers/profile/src/kubelet_config.rs",
                "what_means_the_same_reaches_windows_and_the_rest_is_named",
            ),
            (
                "workers/profile/src/kubelet_config.rs",
                "a_duration_that_is_not_rendered_yet_is_not_taken_for_zero",
            ),
            (OF_THE_CLUSTER, "of_a_pool_counts_what_all_its_nodes_have"),
        ],
        mistake: "cpuManagerPolicy; a pair that a layer contradicts; a misspelt field; one of a later release; a text for a number",
        program: "the kubelet of 1.33, a wrong type; of 1.33 and 1.37, a misspelt field by the strict reader only",
    },
    Row {
        number: 15,
        setting: "ImageContentSourcePolicy",
        tests: &[(OF_THE_CLUSTER, "what_openshift_says_of_its_nodes_is_read")],
        mistake: "a mirror that is a URL",
        program: OF_DORMER,
    },
    Row {
        number: 16,
        setting: "cluster DNS",
        tests: &[(
            "workers/src/kubernetes/cluster.rs",
            "the_dns_is_the_tenth_of_the_network_that_an_address_lies_in",
        )],
        mistake: "/32, no mask, IPv6",
        program: "none: any address is valid",
    },
    Row {
        number: 17,
        setting: "settings of logs are trimmed and checked",
        tests: &[
            FLAGS,
            (
                "workers/profile/src/variables.rs",
                "log_settings_are_trimmed_and_read_as_go_reads_them",
            ),
        ],
        mistake: "`notaduration`",
        program: "kube-log-runner of 1.34",
    },
    Row {
        number: 18,
        setting: "services of the two sections",
        tests: &[(
            OF_HOSTS,
            "services_that_depend_on_a_later_section_or_in_a_circle_are_refused",
        )],
        mistake: "csi-proxy depends on kube-proxy",
        program: OF_DORMER,
    },
    Row {
        number: 19,
        setting: "NeverContactSource without a mirror",
        tests: &[
            (
                "workers/profile/src/mirrors.rs",
                "a_ban_outlives_its_mirrors",
            ),
            (OF_ROWS, "mirrors_of_a_layer_are_read_by_every_containerd"),
        ],
        mistake: "every mirror is left out; a ban of a path; a file of containerd without the mirrors' folder",
        program: "containerd 1.7, 2.3 and 2.4 read the folder's path; what is in it dormer alone reads",
    },
    Row {
        number: 20,
        setting: "pull secrets",
        tests: &[
            (
                "workers/profile/src/mirrors.rs",
                "credentials_for_a_repository_are_found_by_its_mirror",
            ),
            (
                "workers/profile/src/mirrors.rs",
                "of_docker_hubs_names_the_one_of_images_comes_first",
            ),
            (
                "workers/profile/src/mirrors.rs",
                "an_entry_with_a_pattern_is_for_the_hosts_that_fit",
            ),
        ],
        mistake: "two repositories of one mirror; no base64; a pattern of hosts that does not fit",
        program: OF_DORMER,
    },
    Row {
        number: 21,
        setting: "a static address",
        tests: &[
            WINDOWS,
            (
                "workers/host/tests/system.rs",
                "a_value_for_static_addresses_is_set_on_hosts_that_have_one",
            ),
        ],
        mistake: "a key with its root",
        program: NO_PROGRAM,
    },
];

/// The rows for people. Each test that they name is there.
fn rows() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = String::from(
        "| row | what | test that fails without it | planted mistakes that are refused | real program that refuses one |\n\
         |---|---|---|---|---|\n",
    );
    for row in ROWS {
        let names = row.tests.iter().map(|(path, name)| {
            let source = std::fs::read_to_string(root.join(path)).expect(path);
            assert!(
                source.contains(&format!("fn {name}(")),
                "row {}: {path} has no {name}",
                row.number
            );
            format!("`{name}`")
        });
        let names: Vec<String> = names.collect();
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            row.number,
            row.setting,
            names.join(", "),
            row.mistake,
            row.program
        );
    }
    text
}

/// The variables for people: what each is, and who sets it.
fn variables() -> String {
    let mut text = String::from(
        "\
### Variables

A text of a profile names a variable as `${NAME}`. A layer sets one as `variables: { LOG_FILE_SIZE: 100Mi }`. What dormer itself
knows of a machine comes first. A profile has variables of its own, too, which a layer can change: the built-in ones have
`PAUSE_IMAGE`, `CNI_BIN` and `CNI_CONF`, and `openshift` has `OVERLAY_NETWORK`.

| variable | meaning | who sets it |
|---|---|---|
",
    );
    let values = Values::default().variables();
    for known in KNOWN {
        let of_dormer =
            known.name.starts_with("PAYLOAD") || values.iter().any(|(name, _)| name == known.name);
        let who = match (of_dormer, known.optional) {
            (true, false) => "dormer",
            (true, true) => "dormer, where it knows one; else a layer",
            (false, _) => "a layer",
        };
        let section = match known.from {
            Section::Host => "",
            Section::Node => "; in the node section only",
        };
        text += &format!(
            "| `{}` | {}{section} | {who} |\n",
            known.name, known.meaning
        );
    }
    text
}

#[test]
fn the_page_of_settings_has_every_row() {
    let introduction = "\
# Settings and the releases that understand them

A profile writes a setting only for the programs that understand it. The payload's manifest says which those are:
`kubelet:` (kube-proxy is of the same release) and `containerd:`. A manifest without `containerd:` is read as
containerd 1.7. Later ones translate that file when they start (containerd v2.4.2 `plugins/cri/runtime/plugin.go`), and NRI is on
there. From 2.4 on dormer asks for the name.

`dormer payload make` reads the release of containerd out of the program: the version of its Go module, the version that its
Makefile sets (`-X …/version.Version`), its version resource, or the module's name, which tells 1 from 2 (containerd v2.4.2
`Makefile.windows` writes no resource; a vendor's may have the vendor's own numbers). dormer refuses a payload whose manifest
says another release than containerd, the kubelet or kube-proxy, also within 2.0 to 2.2. After the join the check `runtime`
compares the manifest with `containerRuntimeVersion` of the Node.

A layer that has one of these settings for another release is refused when it is rendered, with the reason.

containerd 1.7 knows of a runtime only what its file says, and has no other one; from 2.0 on its own defaults stay. So a file for
1.7 has `container_annotations`. `ScrubLogs` is there for all releases: containerd's default has it only since 1.7.35, 2.2.7, 2.3.4
and 2.4.0, and the shim's since hcsshim 0.15.0-rc.2. From 2.0 on `runhcs-wcow-hypervisor` has its `runtime_path`, too.

The built-in profiles have `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods` for kubelets from 1.34 on. In 1.33 the gate
`WindowsGracefulNodeShutdown` is off by default, and without it the periods do nothing on Windows. For 1.33 a layer sets all three.

";
    let after = "
Also refused:

- `bin_dir` and `bin_dirs` together (containerd#11311). containerd refuses that when its plugin starts, which `containerd
  config dump` does not do;
- a service of containerd whose file (`--config`) is not among the `files` of its section;
- `mirrors` where that file does not name their folder as the registries' `config_path`: a blocked registry would be open;
- a runtime of containerd without `runtime_path`: a shim of its name on the PATH is taken before the one beside containerd
  (containerd `core/runtime/v2/shim_manager.go`);
- from containerd 2.0 on NRI that is not disabled: 1.7 has it off (`pkg/nri/config.go`), later ones have it on
  (`internal/nri/config.go`);
- a field that the kubelet or kube-proxy of that release does not have, such as `maxPodss`. The programs themselves warn, and
  ignore it (kubernetes v1.33.13 and v1.37.2 `pkg/kubelet/kubeletconfig/util/codec/codec.go`, `cmd/kube-proxy/app/options.go`).
  `workers/profile/src/settings/kubelet_fields.txt` and `kube_proxy_fields.txt` have the fields of 1.33 to 1.37;
- a value of another type, such as `maxPods: \"x\"`, or a length of time without its unit: it ends them;
- a feature gate that the release does not have, or that it has locked to another value, in `featureGates` and in
  `--feature-gates` (`gates.txt` there);
- a flag that the kubelet or kube-proxy of that release does not have, or whose value is of another type
  (`kubelet_flags.txt` and `kube_proxy_flags.txt` there). Flags of several letters have two dashes;
- a pause image below 3.10.2 in a payload for Windows Server 2025 (containerd#13156, windows-testing#557);
- another port of VXLAN than 4789 in a payload for Windows Server 2019 only (hcsshim `hcnglobals.go`: HNS 10.3 and
  later). Where a payload is for other builds, too, the machines of Server 2019 wait with that reason, and the others go
  on;
- dynamic ports that Windows does not take: fewer than 255, or below 1025. And those that NodePorts need:
  30000 to 32767 (kubernetes v1.37.2 `pkg/kubeapiserver/options/options.go`). dormer does not read the API server's
  `--service-node-port-range`;
- containerd 1.7 for a kubelet from 1.38 on: it does not answer the CRI's `RuntimeConfig`, and that kubelet no longer falls back
  to a setting of its own (KEP-4033, kubernetes/enhancements#6087);
- `singleProcessOOMKill`, `userNamespaces` and `defaultPodSysctls`, which end a kubelet on Windows (`validation_windows.go`
  there);
- an age of logs without a size: kube-log-runner rotates, and removes, only files that have a size limit (kubernetes v1.34.4
  component-base `logs/kube-log-runner/logrotation.go`);
- settings of a kubelet that contradict each other, and would end it (kubernetes v1.33.13 and v1.37.2
  `pkg/kubelet/apis/config/validation/validation.go`): a `shutdownGracePeriodCriticalPods` longer than
  `shutdownGracePeriod`, or a period below 1s; an `imageGCLowThresholdPercent` that is not below
  `imageGCHighThresholdPercent`; an `imageMaximumGCAge` that is not longer than `imageMinimumGCAge`;
  `maxParallelImagePulls` above 1 with `serializeImagePulls: true`; `shutdownGracePeriodByPodPriority` beside one of the two
  periods above 0. A setting that is missing counts with the kubelet's
  default. To switch the graceful shutdown off, set both periods to `0s`. Where the cluster's KubeletConfig has one of a pair
  and a layer the other, the layer counts, the cluster's is left out, and an Event says so.

## How a profile says so

```yaml
host:
  directories: { 'C:\\logs': { when: { platform: [aws] } } }      # an entry of a map
  files:
    C:\\k\\kubelet.conf:
      json:
        featureGates:
          NodeLogQuery: { when: { kubelet: \"<1.36\" }, value: true }   # a key of JSON, or an element of a list
    C:\\k\\containerd\\containerd_conf.toml:
      content:                                                   # parts of a text
        - { when: { containerd: \"<2.0\" }, text: \"version = 2\\n\" }
        - { when: { containerd: \">=2.0\" }, text: \"version = 3\\n\" }
```

A range is `>=2.1`, `<1.34`, `>=2.0 <2.1`, or one release. `platform`, `set` and `secret` are conditions, too. All given
conditions must hold. A value of the registry can be for some Windows builds only (`windows_builds`); the host compares.

### A layer over a value with a condition

| the layer has | what comes out |
|---|---|
| `KEY: {when: …, value: …}` | this replaces what is below, on every machine: where its condition does not hold, nothing is there |
| `KEY: {A: 1}` over `KEY: {when: …, value: {B: 2}}` | `A` is always there, and `B` under the condition that it has |
| `KEY: {value: …}` or `KEY: {when: …}` | the value alone, or the condition alone, is changed |
| `KEY: {when: null}` | the value is there without a condition |
| `KEY: 1`, `KEY: null` | as everywhere: it replaces, it removes |

So a gate more for kube-proxy is `featureGates: { ContextualLogging: true }`, for every release (1.33 to 1.37 know it). An object with `when`,
`value` and another key is refused, and so is one with a `when` and no `value`.

";
    let of_rows = "
## What holds each row

Each row of a node's configuration has a test that fails when the row is taken away
(`a_row_that_is_taken_away_is_missed` takes them out of the profiles), and mistakes that are planted and refused. The real
programs read every document, and refuse the mistakes that they can see ([Tests](testing.md)). Their releases,
platforms and Windows builds are those of [Support](support.md) (`what_is_rendered_is_the_whole_support_table`).

";
    let table = settings::page();
    let variables = variables();
    let rows = rows();
    let page = format!("{introduction}{table}{after}{variables}{of_rows}{rows}");
    expect_file!["../../../../docs/settings.md"].assert_eq(&page);
}
