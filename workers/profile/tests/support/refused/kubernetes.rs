//! Mistakes in the configuration of the kubelet, kube-proxy and kube-log-runner: rows 6 to 9, 14 and 17.

use super::{
    super::node::{NODE, Node},
    kubelet_flag, refused, with_kubelet, with_layer,
};

/// A layer with these fields of a KubeletConfiguration.
fn kubelet_json(fields: &str) -> String {
    format!(r"host: {{files: {{'C:\k\kubelet.conf': {{json: {fields}}}}}}}")
}

/// A layer with these fields of a KubeProxyConfiguration.
fn proxy_json(fields: &str) -> String {
    format!(r"node: {{network: {{files: {{'C:\k\kube-proxy.conf': {{json: {fields}}}}}}}}}")
}

#[test]
fn a_kubelet_that_needs_another_containerd_is_refused() {
    refused(&[
        (
            6,
            with_kubelet("1.38", ""),
            "kubelet 1.38 needs containerd 2, and the payload has 1.7",
        ),
        (
            6,
            Node {
                containerd: "",
                ..with_kubelet("1.38", "")
            },
            "and the manifest has no `containerd`, which counts as 1.7",
        ),
    ]);
}

#[test]
fn a_feature_gate_that_ends_the_program_is_refused() {
    let unknown = kubelet_json("{featureGates: {NodeSwapp: true}}");
    let locked = kubelet_json("{featureGates: {ImageVolume: false}}");
    let no_boolean = kubelet_json("{featureGates: {KubeletPSI: 'yes'}}");
    let log_query = kubelet_json("{featureGates: {NodeLogQuery: true}}");
    let of_proxy = proxy_json("{featureGates: {WinDSR: true}}");
    let flag = kubelet_flag("--feature-gates=NodeSwapp=true");
    refused(&[
        (
            6,
            with_kubelet("1.36", &log_query),
            "`featureGates/NodeLogQuery`",
        ),
        (
            7,
            with_layer(&unknown),
            "`featureGates/NodeSwapp` is no feature gate, and the kubelet ends with one that is not known; did you mean \
             NodeSwap?",
        ),
        (
            7,
            Node {
                containerd: "2.3",
                ..with_kubelet("1.37", &locked)
            },
            "`featureGates/ImageVolume` is locked to true",
        ),
        (
            7,
            with_layer(&no_boolean),
            "`featureGates.KubeletPSI` is \"yes\", and the kubelet wants true or false",
        ),
        (
            7,
            with_layer(&flag),
            "`featureGates/NodeSwapp` is no feature gate",
        ),
        (
            7,
            with_kubelet("1.37", &of_proxy),
            "`featureGates/WinDSR` is a setting of 1.14 to 1.33",
        ),
    ]);
}

#[test]
fn a_field_of_another_name_or_type_is_refused() {
    let text_for_number = kubelet_json("{maxPods: x}");
    let bare_seconds = kubelet_json("{nodeStatusUpdateFrequency: '10'}");
    let misspelt = kubelet_json("{maxPodss: 9}");
    let curves = kubelet_json("{tlsCurvePreferences: [29]}");
    let one_period = kubelet_json("{shutdownGracePeriod: {when: {platform: [aws]}, value: 30s}}");
    let of_proxy = proxy_json("{winkernel: {enableDsr: true}}");
    refused(&[
        (
            6,
            with_kubelet("1.34", &one_period),
            "`shutdownGracePeriodCriticalPods` (20s) is longer than `shutdownGracePeriod` (0s)",
        ),
        (
            7,
            with_kubelet("1.37", &of_proxy),
            "`winkernel.enableDsr` is no field of a KubeProxyConfiguration",
        ),
        (
            14,
            with_layer(&text_for_number),
            "`maxPods` is \"x\", and the kubelet wants a whole number",
        ),
        (
            14,
            with_layer(&bare_seconds),
            "`nodeStatusUpdateFrequency` is \"10\", and the kubelet wants a length of time",
        ),
        (
            14,
            with_layer(&misspelt),
            "`maxPodss` is no field of a KubeletConfiguration, and the kubelet would ignore it; did you mean maxPods?",
        ),
        (
            14,
            with_kubelet("1.35", &curves),
            "`tlsCurvePreferences` is a field of 1.36 and later, and the payload has 1.35",
        ),
    ]);
}

#[test]
fn a_flag_that_the_release_does_not_have_is_refused() {
    let cloud_config = kubelet_flag(r"--cloud-config=C:\k\cloud.conf");
    let pause_image = kubelet_flag("--pod-infra-container-image=pause");
    let misspelt = kubelet_flag("--max-podss=9");
    let letters = kubelet_flag("--max-pods=many");
    let of_proxy =
        r"node: {services: {kube-proxy: {command: ['C:\k\kube-proxy.exe', '--node-ip=10.0.0.9']}}}";
    refused(&[
        (
            9,
            with_kubelet("1.34", &cloud_config),
            "`--cloud-config` is a setting of 1.33 and earlier",
        ),
        (
            9,
            with_kubelet("1.35", &pause_image),
            "`--pod-infra-container-image`",
        ),
        (
            9,
            with_layer(&misspelt),
            "`--max-podss` is no flag of the kubelet",
        ),
        (
            9,
            with_layer(&letters),
            "`--max-pods=many`: the kubelet wants a whole number",
        ),
        (
            9,
            with_layer(of_proxy),
            "`--node-ip` is no flag of kube-proxy",
        ),
        (
            9,
            // A cluster on a cloud has a provider of its own, which goes before the layer's.
            Node {
                platform: "none",
                ..with_layer("variables: {CLOUD_PROVIDER: aws}")
            },
            "`--cloud-provider=aws`: the kubelet has no cloud provider of its own any more",
        ),
    ]);
}

#[test]
fn settings_of_logs_that_the_log_runner_does_not_take_are_refused() {
    let early = r"host: {services: {kubelet: {command: ['C:\k\kube-log-runner.exe', '-log-file-size=1Gi', 'C:\k\kubelet.exe']}}}";
    let indirect = "variables: {X: notaduration, LOG_FLUSH_INTERVAL: '${X}'}";
    let literal = r"host: {services: {kubelet: {command: ['C:\k\kube-log-runner.exe', '-flush-interval=nope', 'C:\k\kubelet.exe']}}}";
    refused(&[
        (
            8,
            Node {
                layer: early,
                ..NODE
            },
            "`-log-file-size` is a setting of 1.34 and later",
        ),
        (
            17,
            with_layer("variables: {LOG_FILE_AGE: notaduration}"),
            "`notaduration` is no duration",
        ),
        (
            17,
            with_kubelet("1.34", indirect),
            "`notaduration` is no duration",
        ),
        (
            17,
            with_kubelet("1.34", literal),
            "`-flush-interval`: `nope` is no duration",
        ),
    ]);
}
