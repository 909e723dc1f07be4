//! Platforms of Windows machines, and their requirements on a MachineSet.

/// Whether Windows machines are brought up on a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// WMCO does it too.
    Yes,
    /// The profiles have the platform; no user of it is known.
    Untried,
    /// There is no Windows for it.
    No,
}

/// Platform, with its known state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Platform {
    /// Name, lower case, as profiles and payloads write it.
    pub name: &'static str,
    /// `kind` of its providerSpec. Empty: it has no Machine API.
    pub provider_kind: &'static str,
    /// `apiVersion`s of its providerSpec.
    pub provider_versions: &'static [&'static str],
    /// Most characters of a MachineSet's name, where the host takes the Machine's name. `None`: no limit of its own.
    pub set_name_max: Option<usize>,
    /// Whether Windows machines are brought up there.
    pub windows: Windows,
    /// Where the facts are from.
    pub source: &'static str,
}

const WMCO: &str = "WMCO 10.22, supported platforms";

/// The table of platforms.
pub const PLATFORMS: [Platform; 9] = [
    Platform {
        name: "aws",
        provider_kind: "AWSMachineProviderConfig",
        provider_versions: &[
            "awsproviderconfig.openshift.io/v1beta1",
            "machine.openshift.io/v1beta1",
        ],
        set_name_max: None,
        windows: Windows::Yes,
        source: WMCO,
    },
    Platform {
        name: "azure",
        provider_kind: "AzureMachineProviderSpec",
        provider_versions: &[
            "azureproviderconfig.openshift.io/v1beta1",
            "machine.openshift.io/v1beta1",
        ],
        set_name_max: Some(9),
        windows: Windows::Yes,
        source: "WMCO 10.22, supported platforms; OpenShift 4.6, Creating a Windows MachineSet object on Azure",
    },
    Platform {
        name: "gcp",
        provider_kind: "GCPMachineProviderSpec",
        provider_versions: &[
            "gcpprovider.openshift.io/v1beta1",
            "machine.openshift.io/v1beta1",
        ],
        set_name_max: None,
        windows: Windows::Yes,
        source: WMCO,
    },
    Platform {
        name: "vsphere",
        provider_kind: "VSphereMachineProviderSpec",
        provider_versions: &[
            "vsphereprovider.openshift.io/v1beta1",
            "machine.openshift.io/v1beta1",
        ],
        set_name_max: Some(9),
        windows: Windows::Yes,
        source: "WMCO 10.22, supported platforms; OpenShift 4.7, Creating a Windows MachineSet object on vSphere",
    },
    Platform {
        name: "nutanix",
        provider_kind: "NutanixMachineProviderConfig",
        provider_versions: &["machine.openshift.io/v1"],
        set_name_max: Some(9),
        windows: Windows::Yes,
        source: "WMCO 9.0, which takes the Machine's name for the host as on vSphere",
    },
    Platform {
        name: "none",
        provider_kind: "",
        provider_versions: &[],
        set_name_max: None,
        windows: Windows::Yes,
        source: WMCO,
    },
    Platform {
        name: "openstack",
        provider_kind: "OpenstackProviderSpec",
        provider_versions: &[
            "machine.openshift.io/v1alpha1",
            "openstackproviderconfig.openshift.io/v1alpha1",
        ],
        set_name_max: None,
        windows: Windows::Untried,
        source: WMCO,
    },
    Platform {
        name: "ibmcloud",
        provider_kind: "IBMCloudMachineProviderSpec",
        provider_versions: &["ibmcloudproviderconfig.openshift.io/v1beta1"],
        set_name_max: None,
        windows: Windows::Untried,
        source: WMCO,
    },
    Platform {
        name: "powervs",
        provider_kind: "PowerVSMachineProviderConfig",
        provider_versions: &["machine.openshift.io/v1"],
        set_name_max: None,
        windows: Windows::No,
        source: "IBM Power has no Windows Server",
    },
];

/// Platform by its name, in any case.
#[must_use]
pub fn named(name: &str) -> Option<&'static Platform> {
    PLATFORMS
        .iter()
        .find(|it| it.name.eq_ignore_ascii_case(name))
}

/// Platform by the `kind` of a providerSpec.
#[must_use]
pub fn of_provider(kind: &str) -> Option<&'static Platform> {
    PLATFORMS
        .iter()
        .find(|it| !it.provider_kind.is_empty() && it.provider_kind == kind)
}

/// Network plugin, and whether Windows nodes work with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plugin {
    /// Name, as `networkType` of OpenShift's Network has it, or the project's.
    pub name: &'static str,
    /// Why Windows nodes do not work with it. `None`: they do.
    pub refused: Option<&'static str>,
    /// Requirements.
    pub needs: &'static str,
    /// Where the facts are from.
    pub source: &'static str,
}

/// The table of network plugins.
pub const PLUGINS: [Plugin; 5] = [
    Plugin {
        name: "OVNKubernetes",
        refused: None,
        needs: "hybridOverlayConfig, which is set when the cluster is installed; another VXLAN port than 4789 on vSphere, and then no Windows Server 2019",
        source: "OpenShift, Configuring hybrid networking; hcsshim hcnglobals.go",
    },
    Plugin {
        name: "OpenShiftSDN",
        refused: Some("it has no data plane for Windows"),
        needs: "",
        source: "OpenShift 4.6, Windows Container Support, prerequisites",
    },
    Plugin {
        name: "Calico",
        refused: None,
        needs: "its operator configures Windows nodes itself; no hybrid overlay",
        source: "projectcalico/calico, Windows requirements; calico#9019 for a fault after an update",
    },
    Plugin {
        name: "Flannel",
        refused: None,
        needs: "the profile upstream; VXLAN 4096 with port 4789",
        source: "flannel-io/flannel, the backend VXLAN on Windows",
    },
    Plugin {
        name: "Cilium",
        refused: Some("it has no agent for Windows nodes"),
        needs: "",
        source: "cilium/cilium, system requirements",
    },
];

/// Network plugin by its name, in any case.
#[must_use]
pub fn plugin(name: &str) -> Option<&'static Plugin> {
    PLUGINS.iter().find(|it| it.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_and_plugins_are_found_by_name() {
        assert_eq!(named("AWS").map(|it| it.name), Some("aws"));
        assert_eq!(named("VSphere").map(|it| it.set_name_max), Some(Some(9)));
        assert_eq!(
            of_provider("AzureMachineProviderSpec").map(|it| it.name),
            Some("azure")
        );
        assert_eq!(of_provider(""), None);
        assert!(plugin("openshiftsdn").expect("known").refused.is_some());
        assert_eq!(plugin("Weave"), None);
    }
}
