//! A row that is taken out of a built-in profile is missed by a test.

use dormer_profile::{
    builtin,
    layers::{Layer, stack},
};

use super::{
    node::Change,
    rows::{
        every_pair_renders, flags_reach_what_knows_them, mirrors_are_read, no_ctr,
        pause_comes_with_the_payload, upstream_has_its_folders, vxlan_port_reaches_the_overlay,
        windows_is_set,
    },
};

/// Of the rows 14 to 20, only 19 is part of a profile.
#[test]
fn a_row_that_is_taken_away_is_missed() {
    type Check = fn(Change);
    const SHIM: &str = r"runtime_path = '${PAYLOAD_DIR}\containerd\containerd-shim-runhcs-v1.exe'";
    let table: [(u32, Check, Change); 35] = [
        (1, every_pair_renders, ("bin_dirs = [", "dirs = [")),
        (
            1,
            every_pair_renders,
            ("containerd: \">=2.0 <2.1\"", "containerd: \">=2.0\""),
        ),
        (
            1,
            every_pair_renders,
            ("containerd: \">=2.0 <2.1\"", "containerd: \">=2.0 <2.2\""),
        ),
        (
            1,
            every_pair_renders,
            (
                "- when: { containerd: \">=2.1\" }",
                "- when: { containerd: \">=2.2\" }",
            ),
        ),
        (2, every_pair_renders, ("version = 3", "version = 2")),
        (2, every_pair_renders, ("version = 2", "version = 3")),
        (3, every_pair_renders, ("disable = true", "disable = false")),
        (4, every_pair_renders, (SHIM, "")),
        (
            4,
            every_pair_renders,
            ("ScrubLogs = true", "ScrubLogs = false"),
        ),
        (
            4,
            every_pair_renders,
            ("container_annotations = [\"io.microsoft.container.*\"]", ""),
        ),
        (5, every_pair_renders, ("pause:3.10.2", "pause:3.10.1")),
        (
            5,
            pause_comes_with_the_payload,
            (
                "archive: pause.tar, when: { payload: pause.tar }",
                "archive: pause.tar, when: { payload: p.tar }",
            ),
        ),
        (
            5,
            pause_comes_with_the_payload,
            (
                "sandbox_image = \"${PAUSE_IMAGE}\"",
                "sandbox_image = \"a/pause:3.10.2\"",
            ),
        ),
        (
            6,
            every_pair_renders,
            (
                "shutdownGracePeriod: { when: { kubelet: \">=1.34\" }",
                "shutdownGracePeriod: { when: { kubelet: \">=1.35\" }",
            ),
        ),
        (
            6,
            every_pair_renders,
            (
                "NodeLogQuery: { when: { kubelet: \"<1.36\" }",
                "NodeLogQuery: { when: { kubelet: \"<1.37\" }",
            ),
        ),
        (
            7,
            every_pair_renders,
            (
                "featureGates: { when: { kubelet: \"<1.34\" }",
                "featureGates: { when: { kubelet: \"<1.35\" }",
            ),
        ),
        (
            7,
            every_pair_renders,
            (
                "featureGates: { when: { kubelet: \"<1.34\" }",
                "featureGates: { when: { kubelet: \"<1.33\" }",
            ),
        ),
        (
            8,
            flags_reach_what_knows_them,
            ("words: [\"-log-file-age=${LOG_FILE_AGE}\"]", "words: []"),
        ),
        (
            8,
            flags_reach_what_knows_them,
            (
                "set: LOG_FILE_SIZE, kubelet: \">=1.34\"",
                "set: LOG_FILE_SIZE",
            ),
        ),
        (
            9,
            flags_reach_what_knows_them,
            (r"words: ['--cloud-config=C:\k\cloud.conf']", "words: []"),
        ),
        (
            9,
            every_pair_renders,
            (
                "secret: cloud-config, kubelet: \"<1.34\"",
                "secret: cloud-config",
            ),
        ),
        (
            10,
            upstream_has_its_folders,
            (r"    C:\etc\kubernetes\manifests: {}", ""),
        ),
        (
            10,
            upstream_has_its_folders,
            ("systemReserved:", "kubeReserved:"),
        ),
        (
            11,
            windows_is_set,
            ("name: NoAutoUpdate", "name: AutoUpdate"),
        ),
        (
            11,
            windows_is_set,
            (
                "windows_builds: [10.0.20348]",
                "windows_builds: [10.0.26100]",
            ),
        ),
        (11, windows_is_set, ("count: 31536", "count: 16384")),
        (11, windows_is_set, ("dword: 80", "dword: 8")),
        (11, windows_is_set, ("dword: 80", "text: '80'")),
        (
            11,
            windows_is_set,
            (r"Services\wcifs", r"Services\hns\State"),
        ),
        (
            11,
            windows_is_set,
            (
                r"Policies\Microsoft\FeatureManagement\Overrides",
                r"Control\FeatureManagement\Overrides",
            ),
        ),
        (
            12,
            no_ctr,
            (
                "containerd.exe: { change: drain }",
                "containerd.exe: { change: drain }\n    ctr.exe: {}",
            ),
        ),
        (
            13,
            vxlan_port_reaches_the_overlay,
            ("set: VXLAN_PORT", "set: NO_PROXY"),
        ),
        (
            19,
            mirrors_are_read,
            (r"config_path = 'C:\k\containerd\registries'", ""),
        ),
        (
            19,
            mirrors_are_read,
            (
                "[plugins.\"io.containerd.cri.v1.images\".registry]",
                "[plugins.\"io.containerd.cri.v1.images\".registries]",
            ),
        ),
        (
            21,
            windows_is_set,
            ("static_address: true", "static_address: false"),
        ),
    ];
    for (row, check, change) in table {
        let texts = [builtin::OPENSHIFT, builtin::UPSTREAM];
        let mut changed = texts
            .iter()
            .filter(|text| text.contains(change.0))
            .peekable();
        assert!(changed.peek().is_some(), "row {row}: {change:?}");
        // It is a profile still: another one than it should be.
        for text in changed {
            let layer = Layer::parse("changed", &text.replace(change.0, change.1));
            let profile = layer.and_then(|layer| stack(&[layer]));
            assert!(profile.is_ok(), "row {row}: {change:?}: {profile:?}");
        }
        let missed = std::panic::catch_unwind(|| check(change)).is_err();
        assert!(missed, "row {row} can go, and no test sees it: {change:?}");
    }
}
