//! Power loss of a host at each step of its bring-up: the run continues from there.

use super::stage::{self, Scenario};
use dormer_testkit::tier::sized;
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
    note_boot_json_file_rename "note boot.json file_rename",
    note_boot_json_half_written "note boot.json half written",
    note_fence_json_file_rename "note fence.json file_rename",
    note_fence_json_half_written "note fence.json half written",
    note_holder_json_file_rename "note holder.json file_rename",
    note_holder_json_half_written "note holder.json half written",
    note_installed_json_file_rename "note installed.json file_rename",
    note_installed_json_half_written "note installed.json half written",
    note_inventory_json_file_rename "note inventory.json file_rename",
    note_inventory_json_half_written "note inventory.json half written",
    note_last_json_file_rename "note last.json file_rename",
    note_last_json_half_written "note last.json half written",
    note_programs_json_file_rename "note programs.json file_rename",
    note_programs_json_half_written "note programs.json half written",
    note_reboot_json_file_rename "note reboot.json file_rename",
    note_reboot_json_half_written "note reboot.json half written",
    host_call_directory_create "host call directory_create",
    host_call_lock_release "host call lock_release",
    host_call_lock_take "host call lock_take",
    host_call_service_create "host call service_create",
    host_call_service_describe "host call service_describe",
    host_directory_k_directory_create r"host directory:C:\k directory_create",
    host_directory_k_cni_config_directory_create r"host directory:C:\k\cni\config directory_create",
    host_directory_k_containerd_registries_directory_create r"host directory:C:\k\containerd\registries directory_create",
    host_directory_var_lib_cni_directory_create r"host directory:C:\var\lib\cni directory_create",
    host_directory_var_lib_kubelet_pki_directory_create r"host directory:C:\var\lib\kubelet\pki directory_create",
    host_directory_var_log_containerd_directory_create r"host directory:C:\var\log\containerd directory_create",
    host_directory_var_log_csi_proxy_directory_create r"host directory:C:\var\log\csi-proxy directory_create",
    host_directory_var_log_hybrid_overlay_directory_create r"host directory:C:\var\log\hybrid-overlay directory_create",
    host_directory_var_log_kube_proxy_directory_create r"host directory:C:\var\log\kube-proxy directory_create",
    host_directory_var_log_kubelet_directory_create r"host directory:C:\var\log\kubelet directory_create",
    host_directory_var_log_windows_exporter_directory_create r"host directory:C:\var\log\windows_exporter directory_create",
    host_dynamic_ports_program_run "host dynamic-ports:tcp program_run",
    host_feature_containers_feature_enable "host feature:Containers feature_enable",
    host_feature_containers_half_installed "host feature:Containers half installed",
    host_registry_compartment_names_registry_write "host registry:compartment-names registry_write",
    host_registry_feature_override_2022_registry_write "host registry:feature-override-2022 registry_write",
    host_registry_no_auto_update_registry_write "host registry:no-auto-update registry_write",
    host_firewall_dormer_kubelet_firewall_add "host firewall:dormer-kubelet firewall_add",
    host_defender_k_containerd_containerd_defender_add r"host defender:C:\k\VERSION\containerd\containerd.exe defender_add",
    host_file_k_dormer_version_file_rename r"host file:C:\k\VERSION\.dormer-version file_rename",
    host_file_k_dormer_version_half_written r"host file:C:\k\VERSION\.dormer-version half written",
    host_file_k_cni_host_local_directory_create r"host file:C:\k\VERSION\cni\host-local.exe directory_create",
    host_file_k_cni_host_local_file_delete r"host file:C:\k\VERSION\cni\host-local.exe file_delete",
    host_file_k_cni_host_local_file_rename r"host file:C:\k\VERSION\cni\host-local.exe file_rename",
    host_file_k_cni_host_local_half_written r"host file:C:\k\VERSION\cni\host-local.exe half written",
    host_file_k_cni_win_overlay_file_delete r"host file:C:\k\VERSION\cni\win-overlay.exe file_delete",
    host_file_k_cni_win_overlay_file_rename r"host file:C:\k\VERSION\cni\win-overlay.exe file_rename",
    host_file_k_cni_win_overlay_half_written r"host file:C:\k\VERSION\cni\win-overlay.exe half written",
    host_file_k_containerd_containerd_shim_runhcs_v1_directory_create r"host file:C:\k\VERSION\containerd\containerd-shim-runhcs-v1.exe directory_create",
    host_file_k_containerd_containerd_shim_runhcs_v1_file_delete r"host file:C:\k\VERSION\containerd\containerd-shim-runhcs-v1.exe file_delete",
    host_file_k_containerd_containerd_shim_runhcs_v1_file_rename r"host file:C:\k\VERSION\containerd\containerd-shim-runhcs-v1.exe file_rename",
    host_file_k_containerd_containerd_shim_runhcs_v1_half_written r"host file:C:\k\VERSION\containerd\containerd-shim-runhcs-v1.exe half written",
    host_file_k_containerd_containerd_file_delete r"host file:C:\k\VERSION\containerd\containerd.exe file_delete",
    host_file_k_containerd_containerd_file_rename r"host file:C:\k\VERSION\containerd\containerd.exe file_rename",
    host_file_k_containerd_containerd_half_written r"host file:C:\k\VERSION\containerd\containerd.exe half written",
    host_file_k_csi_proxy_file_delete r"host file:C:\k\VERSION\csi-proxy.exe file_delete",
    host_file_k_csi_proxy_file_rename r"host file:C:\k\VERSION\csi-proxy.exe file_rename",
    host_file_k_csi_proxy_half_written r"host file:C:\k\VERSION\csi-proxy.exe half written",
    host_file_k_hybrid_overlay_node_file_delete r"host file:C:\k\VERSION\hybrid-overlay-node.exe file_delete",
    host_file_k_hybrid_overlay_node_file_rename r"host file:C:\k\VERSION\hybrid-overlay-node.exe file_rename",
    host_file_k_hybrid_overlay_node_half_written r"host file:C:\k\VERSION\hybrid-overlay-node.exe half written",
    host_file_k_kube_log_runner_file_delete r"host file:C:\k\VERSION\kube-log-runner.exe file_delete",
    host_file_k_kube_log_runner_file_rename r"host file:C:\k\VERSION\kube-log-runner.exe file_rename",
    host_file_k_kube_log_runner_half_written r"host file:C:\k\VERSION\kube-log-runner.exe half written",
    host_file_k_kube_proxy_file_delete r"host file:C:\k\VERSION\kube-proxy.exe file_delete",
    host_file_k_kube_proxy_file_rename r"host file:C:\k\VERSION\kube-proxy.exe file_rename",
    host_file_k_kube_proxy_half_written r"host file:C:\k\VERSION\kube-proxy.exe half written",
    host_file_k_kubelet_file_delete r"host file:C:\k\VERSION\kubelet.exe file_delete",
    host_file_k_kubelet_file_rename r"host file:C:\k\VERSION\kubelet.exe file_rename",
    host_file_k_kubelet_half_written r"host file:C:\k\VERSION\kubelet.exe half written",
    host_file_k_bootstrap_ca_crt_file_rename r"host file:C:\k\bootstrap-ca.crt file_rename",
    host_file_k_bootstrap_ca_crt_half_written r"host file:C:\k\bootstrap-ca.crt half written",
    host_file_k_bootstrap_kubeconfig_file_rename r"host file:C:\k\bootstrap-kubeconfig file_rename",
    host_file_k_bootstrap_kubeconfig_half_written r"host file:C:\k\bootstrap-kubeconfig half written",
    host_file_k_containerd_containerd_conf_toml_file_rename r"host file:C:\k\containerd\containerd_conf.toml file_rename",
    host_file_k_containerd_containerd_conf_toml_half_written r"host file:C:\k\containerd\containerd_conf.toml half written",
    host_file_k_kubelet_ca_crt_file_rename r"host file:C:\k\kubelet-ca.crt file_rename",
    host_file_k_kubelet_ca_crt_half_written r"host file:C:\k\kubelet-ca.crt half written",
    host_file_k_kubelet_conf_file_rename r"host file:C:\k\kubelet.conf file_rename",
    host_file_k_kubelet_conf_half_written r"host file:C:\k\kubelet.conf half written",
    host_service_containerd_service_create "host service:containerd service_create",
    host_service_containerd_service_describe "host service:containerd service_describe",
    host_service_containerd_service_failure "host service:containerd service_failure",
    host_service_containerd_service_start "host service:containerd service_start",
    host_service_csi_proxy_service_create "host service:csi-proxy service_create",
    host_service_csi_proxy_service_describe "host service:csi-proxy service_describe",
    host_service_csi_proxy_service_failure "host service:csi-proxy service_failure",
    host_service_csi_proxy_service_start "host service:csi-proxy service_start",
    host_service_kubelet_service_create "host service:kubelet service_create",
    host_service_kubelet_service_describe "host service:kubelet service_describe",
    host_service_kubelet_service_failure "host service:kubelet service_failure",
    host_service_kubelet_service_start "host service:kubelet service_start",
    kubelet_client_auth_asked_for "kubelet client auth asked for",
    kubelet_client_certificate_kept "kubelet client certificate kept",
    kubelet_client_certificate_signed "kubelet client certificate signed",
    kubelet_registered "kubelet registered",
    kubelet_server_auth_asked_for "kubelet server auth asked for",
    kubelet_serving_certificate_signed "kubelet serving certificate signed",
    kubelet_started "kubelet started",
    reboot_asked "reboot asked",
    reboot "reboot",
    node_call_lock_release "node call lock_release",
    node_call_lock_take "node call lock_take",
    node_service_hybrid_overlay_node_service_create "node service:hybrid-overlay-node service_create",
    node_service_hybrid_overlay_node_service_describe "node service:hybrid-overlay-node service_describe",
    node_service_hybrid_overlay_node_service_failure "node service:hybrid-overlay-node service_failure",
    node_service_hybrid_overlay_node_service_start "node service:hybrid-overlay-node service_start",
    network_base_ovnkubernetes_hybrid_overlay_network_made "network BaseOVNKubernetesHybridOverlayNetwork made",
    network_ovnkubernetes_hybrid_overlay_network_made "network OVNKubernetesHybridOverlayNetwork made",
    node_network_base_ovnkubernetes_hybrid_overlay_network_hns_call "node network:BaseOVNKubernetesHybridOverlayNetwork hns_call",
    node_network_ovnkubernetes_hybrid_overlay_network_hns_call "node network:OVNKubernetesHybridOverlayNetwork hns_call",
    node_endpoint_vipendpoint_directory_create "node endpoint:VIPEndpoint directory_create",
    node_endpoint_vipendpoint_file_rename "node endpoint:VIPEndpoint file_rename",
    node_endpoint_vipendpoint_half_written "node endpoint:VIPEndpoint half written",
    node_endpoint_vipendpoint_hns_call "node endpoint:VIPEndpoint hns_call",
    node_file_k_cni_config_cni_conf_file_rename r"node file:C:\k\cni\config\cni.conf file_rename",
    node_file_k_cni_config_cni_conf_half_written r"node file:C:\k\cni\config\cni.conf half written",
    node_file_k_cni_config_cni_conf_hns_call r"node file:C:\k\cni\config\cni.conf hns_call",
    node_file_k_kube_proxy_conf_file_rename r"node file:C:\k\kube-proxy.conf file_rename",
    node_file_k_kube_proxy_conf_half_written r"node file:C:\k\kube-proxy.conf half written",
    node_file_k_kube_proxy_conf_hns_call r"node file:C:\k\kube-proxy.conf hns_call",
    node_service_kube_proxy_service_create "node service:kube-proxy service_create",
    node_service_kube_proxy_service_describe "node service:kube-proxy service_describe",
    node_service_kube_proxy_service_failure "node service:kube-proxy service_failure",
    node_service_kube_proxy_service_start "node service:kube-proxy service_start",
    node_ready "node ready",
}

/// Whether this run leaves the step out: the tier `fast` plays every fifth one.
fn is_left_out(step: &str) -> bool {
    let at = STEPS.iter().position(|one| *one == step);
    !at.expect("it is listed").is_multiple_of(sized(5, 1))
}

/// Brings up one machine whose host loses power at this step, and checks the host's own record.
fn goes_on_after(step: &'static str) {
    if is_left_out(step) {
        return;
    }
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
        // A partial note of the program's own is removed when it writes another one.
        let notes = r"C:\Windows\dormer\state\";
        for file in state.disk.files().filter(|file| !file.starts_with(notes)) {
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
