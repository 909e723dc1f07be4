//! Built-in profiles; users add layers on top.

use crate::{
    layers::{Layer, stack},
    problem::Problems,
    profile::Profile,
};

/// Names of the built-in profiles.
pub const NAMES: [&str; 2] = ["openshift", "upstream"];

/// WMCO's paths, service names and hybrid overlay (docs/field-notes.md, What WMCO has, and dormer keeps).
pub const OPENSHIFT: &str = include_str!("builtin/openshift.yaml");
/// Plain Kubernetes: containerd and kubelet; the network is the cluster's own matter.
pub const UPSTREAM: &str = include_str!("builtin/upstream.yaml");

/// The built-in profile `name` as a layer.
///
/// # Errors
/// No built-in profile has that name.
pub fn layer(name: &str) -> Result<Layer, Problems> {
    match name {
        "openshift" => Layer::parse("openshift (built in)", OPENSHIFT),
        "upstream" => Layer::parse("upstream (built in)", UPSTREAM),
        other => {
            let reason = format!(
                "no profile is named {other}; there are {}",
                NAMES.join(", ")
            );
            Err(Problems::one("profile", reason))
        }
    }
}

/// The built-in profile for OpenShift.
#[must_use]
pub fn openshift() -> Profile {
    // The tests render it, so the built-in profile is readable.
    layer("openshift")
        .and_then(|layer| stack(&[layer]))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_can_be_read() {
        for name in NAMES {
            let profile = stack(&[layer(name).expect("a layer")]).expect("a profile");
            assert_eq!(profile.name, name);
            assert!(!profile.host.services.is_empty());
        }
        assert!(layer("gentoo").is_err());
    }
}
