//! What the platform decides about a node, by the platform's name as profiles write it: lower case.

/// Platforms that are known by name; any other is treated as `none`.
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

/// Whether the computer has to bear its Machine's name (docs/field-notes.md, Names and builds).
#[must_use]
pub fn names_the_host(platform: &str) -> bool {
    matches!(platform, "vsphere" | "nutanix")
}

/// Whether the kubelet is told its Node's name, since the cloud's name for it is not the computer's.
#[must_use]
pub fn overrides(platform: &str) -> bool {
    matches!(platform, "aws" | "gcp")
}

/// Whether its images may lie in ECR, for which the kubelet gets credentials from a program beside it.
#[must_use]
pub fn has_ecr(platform: &str) -> bool {
    platform == "aws"
}

/// The kubelet's `--cloud-provider`: where a cloud controller manager tells addresses and provider id, `external`.
#[must_use]
pub fn cloud_provider(platform: &str) -> &'static str {
    match platform {
        "aws" | "azure" | "gcp" | "vsphere" | "nutanix" | "openstack" | "ibmcloud" | "powervs" => {
            "external"
        }
        _ => "",
    }
}
