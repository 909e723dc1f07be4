//! Platform-specific rules of a node, by the platform's lower-case name as in profiles.

/// Known platforms; any other is treated as `none`.
pub const PLATFORMS: [&str; 9] = [
    "aws",
    "azure",
    "gcp",
    "ibmcloud",
    "none",
    "nutanix",
    "openstack",
    "powervs",
    "vsphere",
];

/// Whether the computer must have its Machine's name (docs/field-notes.md, Names and builds).
#[must_use]
pub fn names_the_host(platform: &str) -> bool {
    matches!(platform, "vsphere" | "nutanix")
}

/// Whether the kubelet needs `--hostname-override`, because the cloud's name of the Node is not the computer's.
#[must_use]
pub fn overrides(platform: &str) -> bool {
    matches!(platform, "aws" | "gcp")
}

/// Whether images may be in ECR, for which a credential provider gives the kubelet credentials.
#[must_use]
pub fn has_ecr(platform: &str) -> bool {
    platform == "aws"
}

/// The kubelet's `--cloud-provider`: `external` if a cloud controller manager sets addresses and provider id.
#[must_use]
pub fn cloud_provider(platform: &str) -> &'static str {
    match platform {
        "aws" | "azure" | "gcp" | "vsphere" | "nutanix" | "openstack" | "ibmcloud" | "powervs" => {
            "external"
        }
        _ => "",
    }
}
