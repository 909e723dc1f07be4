//! MachineSets of the platforms as their documents have them: their machines come up, are upgraded, and each has
//! what its platform asks for.

use super::stage::{self, Scenario};
use dormer_fleet::{
    WorldConfig,
    api::{Key, Meta, kinds},
    host::Host,
    manifest::{AZURE_WINDOWS, VSPHERE_WINDOWS},
};
use dormer_testkit::test_dir;
use std::sync::Arc;

/// One machine of each MachineSet.
const MACHINES: usize = 2;

/// The host of the MachineSet's one machine.
fn host_of(scenario: &Scenario, set: &str) -> Arc<Host> {
    let hosts = scenario.world().hosts.as_ref().expect("hosts").all();
    let mut ours = hosts
        .into_iter()
        .filter(|host| host.name().starts_with(set));
    let host = ours.next().expect(set);
    assert!(ours.next().is_none(), "{set} has one machine");
    host
}

/// The services of a host that run.
fn runs(host: &Host, service: &str) -> bool {
    host.state().scm.running(service)
}

/// What the documents of the two platforms say of a node.
fn each_has_what_its_platform_asks_for(scenario: &Scenario) {
    // On vSphere the computer is renamed to its Machine's name, under which it joins.
    let vsphere = host_of(scenario, "winvm-");
    let named = |host: &Host| host.state().hostname.eq_ignore_ascii_case(host.name());
    assert!(named(&vsphere), "{}", vsphere.state().hostname);
    assert!(vsphere.state().boots > 1, "a new name takes a restart");
    assert!(!runs(&vsphere, "cloud-node-manager"));
    // On Azure sshd lets the account capi in and no other, and a manager of the cloud runs beside the kubelet.
    let azure = host_of(scenario, "winworker-");
    assert!(runs(&azure, "cloud-node-manager"));
    for (host, id) in [(&vsphere, "vsphere://"), (&azure, "azure:///")] {
        let key = Key::new("", host.name());
        let node = scenario.world().api.store().get(kinds::NODE.store, &key);
        let node = node.expect("a Node by the Machine's name").value.clone();
        let found = node["spec"]["providerID"].as_str().unwrap_or_default();
        assert!(found.starts_with(id), "{found}");
        assert_eq!(node.label("node-role.kubernetes.io/worker"), Some(""));
    }
}

#[test]
fn a_vsphere_machine_set_and_an_azure_one_come_up_and_their_machines_are_replaced_by_an_upgrade() {
    let folder = test_dir("platforms");
    let manifests = [("azure", AZURE_WINDOWS), ("vsphere", VSPHERE_WINDOWS)].map(|(name, text)| {
        let path = folder.path().join(format!("{name}.yaml"));
        std::fs::write(&path, text).expect("written");
        path
    });
    stage::on_a_virtual_clock(async {
        let config = WorldConfig {
            manifests: manifests.to_vec(),
            linux: false,
            ..WorldConfig::in_memory(u32::try_from(MACHINES).expect("few"))
        };
        let mut scenario = Scenario::start_in(config).await;
        scenario
            .until("both serve", |scenario, statuses| {
                scenario.all_serve(statuses, MACHINES)
            })
            .await;
        each_has_what_its_platform_asks_for(&scenario);
        scenario.upgrade().await;
        scenario
            .until("both serve the new version", |scenario, statuses| {
                scenario.all_serve(statuses, MACHINES)
            })
            .await;
        each_has_what_its_platform_asks_for(&scenario);
    });
}
