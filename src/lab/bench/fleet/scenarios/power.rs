//! Power loss of a host at each step of its bring-up: the run continues from there.

use super::stage::{self, Scenario};
use std::collections::BTreeMap;

/// Boots of a bring-up whose feature needs one reboot.
const BOOTS: u32 = 2;

/// Defines a test for each step, and the list of all steps.
macro_rules! steps {
    ($($test:ident $step:literal,)*) => {
        const STEPS: &[&str] = &[$($step,)*];
        $(#[test]
        fn $test() {
            goes_on_after($step);
        })*
    };
}

steps! {
    first_boot "first boot",
    sshd_runs "sshd runs",
    probe "probe",
    upload_1_half_sent "upload 1 half sent",
    upload_2_half_sent "upload 2 half sent",
    upload_3_half_sent "upload 3 half sent",
    upload_4_half_sent "upload 4 half sent",
    upload_5_half_sent "upload 5 half sent",
    upload_6_half_sent "upload 6 half sent",
    upload_7_half_sent "upload 7 half sent",
    upload_8_half_sent "upload 8 half sent",
    upload_9_half_sent "upload 9 half sent",
    upload_10_half_sent "upload 10 half sent",
    upload_11_half_sent "upload 11 half sent",
    apply_fence "apply fence",
    host_directory_program_data_containerd_root_done r"host directory:C:\ProgramData\containerd\root done",
    host_directory_program_data_containerd_state_done r"host directory:C:\ProgramData\containerd\state done",
    host_directory_k_done r"host directory:C:\k done",
    host_directory_k_cni_config_done r"host directory:C:\k\cni\config done",
    host_directory_k_containerd_registries_done r"host directory:C:\k\containerd\registries done",
    host_directory_var_lib_cni_done r"host directory:C:\var\lib\cni done",
    host_directory_var_lib_kubelet_pki_done r"host directory:C:\var\lib\kubelet\pki done",
    host_directory_var_log_containerd_done r"host directory:C:\var\log\containerd done",
    host_directory_var_log_csi_proxy_done r"host directory:C:\var\log\csi-proxy done",
    host_directory_var_log_hybrid_overlay_done r"host directory:C:\var\log\hybrid-overlay done",
    host_directory_var_log_kube_proxy_done r"host directory:C:\var\log\kube-proxy done",
    host_directory_var_log_kubelet_done r"host directory:C:\var\log\kubelet done",
    host_directory_var_log_windows_exporter_done r"host directory:C:\var\log\windows_exporter done",
    host_feature_containers_half_installed "host feature:Containers half installed",
    host_feature_containers_done "host feature:Containers done",
    host_registry_compartment_names_done "host registry:compartment-names done",
    host_registry_feature_override_2022_done "host registry:feature-override-2022 done",
    host_registry_no_auto_update_done "host registry:no-auto-update done",
    host_firewall_dormer_kubelet_done "host firewall:dormer-kubelet done",
    host_defender_k_containerd_containerd_done r"host defender:C:\k\VERSION\containerd\containerd.exe done",
    host_file_k_containerd_containerd_shim_runhcs_v1_half_written r"host file:C:\k\VERSION\containerd\containerd-shim-runhcs-v1.exe half written",
    host_file_k_containerd_containerd_shim_runhcs_v1_done r"host file:C:\k\VERSION\containerd\containerd-shim-runhcs-v1.exe done",
    host_file_k_containerd_containerd_half_written r"host file:C:\k\VERSION\containerd\containerd.exe half written",
    host_file_k_containerd_containerd_done r"host file:C:\k\VERSION\containerd\containerd.exe done",
    host_file_k_csi_proxy_half_written r"host file:C:\k\VERSION\csi-proxy.exe half written",
    host_file_k_csi_proxy_done r"host file:C:\k\VERSION\csi-proxy.exe done",
    host_file_k_cni_host_local_half_written r"host file:C:\k\VERSION\cni\host-local.exe half written",
    host_file_k_cni_host_local_done r"host file:C:\k\VERSION\cni\host-local.exe done",
    host_file_k_hybrid_overlay_node_half_written r"host file:C:\k\VERSION\hybrid-overlay-node.exe half written",
    host_file_k_hybrid_overlay_node_done r"host file:C:\k\VERSION\hybrid-overlay-node.exe done",
    host_file_k_kube_log_runner_half_written r"host file:C:\k\VERSION\kube-log-runner.exe half written",
    host_file_k_kube_log_runner_done r"host file:C:\k\VERSION\kube-log-runner.exe done",
    host_file_k_kube_proxy_half_written r"host file:C:\k\VERSION\kube-proxy.exe half written",
    host_file_k_kube_proxy_done r"host file:C:\k\VERSION\kube-proxy.exe done",
    host_file_k_kubelet_half_written r"host file:C:\k\VERSION\kubelet.exe half written",
    host_file_k_kubelet_done r"host file:C:\k\VERSION\kubelet.exe done",
    host_file_k_cni_win_overlay_half_written r"host file:C:\k\VERSION\cni\win-overlay.exe half written",
    host_file_k_cni_win_overlay_done r"host file:C:\k\VERSION\cni\win-overlay.exe done",
    host_file_k_dormer_version_half_written r"host file:C:\k\VERSION\.dormer-version half written",
    host_file_k_dormer_version_done r"host file:C:\k\VERSION\.dormer-version done",
    host_file_k_bootstrap_ca_crt_half_written r"host file:C:\k\bootstrap-ca.crt half written",
    host_file_k_bootstrap_ca_crt_done r"host file:C:\k\bootstrap-ca.crt done",
    host_file_k_bootstrap_kubeconfig_half_written r"host file:C:\k\bootstrap-kubeconfig half written",
    host_file_k_bootstrap_kubeconfig_done r"host file:C:\k\bootstrap-kubeconfig done",
    host_file_k_containerd_containerd_conf_toml_half_written r"host file:C:\k\containerd\containerd_conf.toml half written",
    host_file_k_containerd_containerd_conf_toml_done r"host file:C:\k\containerd\containerd_conf.toml done",
    host_file_k_kubelet_ca_crt_half_written r"host file:C:\k\kubelet-ca.crt half written",
    host_file_k_kubelet_ca_crt_done r"host file:C:\k\kubelet-ca.crt done",
    host_file_k_kubelet_conf_half_written r"host file:C:\k\kubelet.conf half written",
    host_file_k_kubelet_conf_done r"host file:C:\k\kubelet.conf done",
    host_service_containerd_made "host service:containerd made",
    host_service_containerd_done "host service:containerd done",
    host_service_csi_proxy_made "host service:csi-proxy made",
    host_service_csi_proxy_done "host service:csi-proxy done",
    host_service_kubelet_made "host service:kubelet made",
    host_service_kubelet_done "host service:kubelet done",
    host_evidence_10_containerd_waited_for "host evidence:10-containerd waited for",
    kubelet_started "kubelet started",
    kubelet_client_auth_asked_for "kubelet client auth asked for",
    kubelet_client_certificate_signed "kubelet client certificate signed",
    kubelet_client_certificate_kept "kubelet client certificate kept",
    kubelet_registered "kubelet registered",
    kubelet_server_auth_asked_for "kubelet server auth asked for",
    kubelet_serving_certificate_signed "kubelet serving certificate signed",
    host_evidence_20_kubelet_waited_for "host evidence:20-kubelet waited for",
    reboot_fence "reboot fence",
    reboot_asked "reboot asked",
    reboot "reboot",
    host_answer "host answer",
    node_service_hybrid_overlay_node_made "node service:hybrid-overlay-node made",
    node_service_hybrid_overlay_node_done "node service:hybrid-overlay-node done",
    node_network_baseovnkuberneteshybridoverlaynetwork_waited_for "node network:BaseOVNKubernetesHybridOverlayNetwork waited for",
    network_baseovnkuberneteshybridoverlaynetwork_made "network BaseOVNKubernetesHybridOverlayNetwork made",
    network_ovnkuberneteshybridoverlaynetwork_made "network OVNKubernetesHybridOverlayNetwork made",
    node_endpoint_vipendpoint_done "node endpoint:VIPEndpoint done",
    node_file_k_cni_config_cni_conf_half_written r"node file:C:\k\cni\config\cni.conf half written",
    node_file_k_cni_config_cni_conf_done r"node file:C:\k\cni\config\cni.conf done",
    node_file_k_kube_proxy_conf_half_written r"node file:C:\k\kube-proxy.conf half written",
    node_file_k_kube_proxy_conf_done r"node file:C:\k\kube-proxy.conf done",
    node_service_kube_proxy_made "node service:kube-proxy made",
    node_ready "node ready",
    node_service_kube_proxy_done "node service:kube-proxy done",
    node_evidence_10_kube_proxy_waited_for "node evidence:10-kube-proxy waited for",
    node_answer "node answer",
}

/// Brings up one machine whose host loses power at this step, and checks the host's own record.
fn goes_on_after(step: &'static str) {
    stage::on_a_virtual_clock(async move {
        let order = format!("power-off/{step}@1");
        let scenario = brought_up(&["feature-needs-reboot@*", &order]).await;
        assert!(scenario.struck(), "{step} was never reached");
        let host = scenario.only_host();
        let counts = host.counts();
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        for effect in &counts.effects {
            *times.entry(effect).or_default() += 1;
        }
        // A power loss removes the network's endpoints, so they are made again.
        times.retain(|effect, times| *times > 1 && !effect.contains("endpoint:"));
        assert!(times.is_empty(), "{step}: done twice: {times:?}");
        let state = host.state();
        assert!(state.boots <= BOOTS + 1, "{step}: {} boots", state.boots);
        for file in state.disk.files() {
            let left =
                file.ends_with(".part") || file.contains(".dormer-") && !file.ends_with("version");
            assert!(!left, "{step}: {file} is left half written");
        }
        for (path, sha256) in &state.asked_for {
            let there = state
                .disk
                .read_text_path(path)
                .map(|body| body.sha256.clone());
            assert_eq!(there.as_ref().ok(), Some(sha256), "{step}: {path}");
        }
    });
}

/// Brings up one machine that never counts as failed.
async fn brought_up(faults: &[&str]) -> Scenario {
    let mut scenario = Scenario::start(1, faults).await;
    scenario
        .until("it serves", |scenario, statuses| {
            assert!(
                statuses.iter().all(|one| !one.words.contains("failed")),
                "it waits for a person"
            );
            scenario.all_serve(statuses, 1)
        })
        .await;
    scenario
}

#[test]
fn every_step_of_a_bring_up_has_its_test() {
    stage::on_a_virtual_clock(async {
        let scenario = brought_up(&["feature-needs-reboot@*"]).await;
        let counts = scenario.only_host().counts();
        assert_eq!(scenario.only_host().state().boots, BOOTS);
        let mut reached = counts.steps.clone();
        let mut listed = STEPS.to_vec();
        reached.sort();
        listed.sort_unstable();
        assert_eq!(reached, listed);
    });
}
