//! Mistakes in what Windows itself is given: folders, registry, ports, files, services. Rows 10 to 13, 18 and 21.

use super::{
    super::node::{NODE, Node, SERVER_2019},
    refused, with_layer,
};

#[test]
fn folders_and_files_that_a_host_cannot_have_are_refused() {
    refused(&[
        (
            0,
            with_layer("host: {directories: {'C:\\a': {when: {platform: [awss]}}}}"),
            "there is no platform `awss`; did you mean aws?",
        ),
        (
            10,
            Node {
                profile: "upstream",
                ..with_layer(r"host: {directories: {'C:etc\kubernetes\pki': {}}}")
            },
            "is not an absolute path with a drive",
        ),
        (
            12,
            with_layer("host: {payload: {ctr.exe: {}}}"),
            "payload.ctr.exe: the payload has no such file",
        ),
    ]);
}

#[test]
fn values_of_the_registry_that_windows_would_misread_are_refused() {
    refused(&[
        (
            11,
            with_layer(
                r"host: {registry: {a: {key: SOFTWARE\a, name: a, dword: 1, windows_builds: ['20348']}}}",
            ),
            "`20348` is no Windows build, such as 10.0.20348",
        ),
        (
            11,
            with_layer("host: {registry: {no-auto-update: {dword: '1'}}}"),
            "host.registry.no-auto-update.dword",
        ),
        (
            11,
            with_layer("host: {registry: {no-auto-update: {text: '1'}}}"),
            "has to have one of `dword`",
        ),
        (
            21,
            with_layer(
                r"host: {registry: {static-address: {key: 'HKLM\SYSTEM\CurrentControlSet\Services\hns\State'}}}",
            ),
            "the key is written without its root",
        ),
    ]);
}

#[test]
fn ports_that_windows_or_kubernetes_does_not_give_are_refused() {
    refused(&[
        (
            11,
            with_layer("host: {dynamic_ports: {start: 34000, count: 31537}}"),
            "31537 ports from 34000 on: Windows takes",
        ),
        (
            11,
            with_layer("host: {dynamic_ports: {start: 32767, count: 255}}"),
            "255 ports from 32767 on: NodePorts are 30000 to 32767",
        ),
        (
            11,
            with_layer("host: {dynamic_ports: {start: 29000, count: 1001}}"),
            "1001 ports from 29000 on: NodePorts are 30000 to 32767",
        ),
        (
            13,
            with_layer("variables: {VXLAN_PORT: '70000'}"),
            "`70000` is no port",
        ),
        (
            13,
            with_layer("variables: {VXLAN_PORT: abc}"),
            "`abc` is no port",
        ),
        (
            13,
            Node {
                build: SERVER_2019,
                vxlan_port: "9898",
                ..NODE
            },
            "cannot change the port of VXLAN",
        ),
    ]);
}

#[test]
fn services_that_depend_on_a_later_section_or_in_a_circle_are_refused() {
    refused(&[
        (
            18,
            with_layer("host: {services: {csi-proxy: {depends: [kube-proxy]}}}"),
            "`kube-proxy` is a service of the node section",
        ),
        (
            18,
            with_layer("host: {services: {csi-proxy: {depends: [Kube-Proxy]}}}"),
            "`Kube-Proxy` is a service of the node section",
        ),
        (
            18,
            with_layer("host: {services: {containerd: {depends: [Kubelet]}}}"),
            "is a circle",
        ),
    ]);
}
