//! Version of a node: a short text that changes whenever its configuration changes.

use crate::{cluster_config::ClusterConfig, payload::Manifest, profile::Profile};

/// Hex digits of the hash in a version.
const HASH_DIGITS: usize = 12;

/// Version of a layered profile (before a machine's variables) and a payload: `<payload version>-<12 hex digits>`.
/// Machines of one pool and Windows build share it. What configures hosts is not in it: another build of dormer that
/// renders the same leaves every node alone.
#[must_use]
pub fn version(profile: &Profile, payload: &Manifest) -> String {
    version_in(&ClusterConfig::default(), profile, payload)
}

/// The same for a cluster with settings for its nodes. A cluster without settings does not change the version.
#[must_use]
pub fn version_in(cluster_config: &ClusterConfig, profile: &Profile, payload: &Manifest) -> String {
    // A profile's maps have a fixed order, so equal profiles have equal bytes.
    let profile = serde_json::to_vec(profile).unwrap_or_default();
    let mut parts = format!("{}\n{}\n", crate::sha256_hex(&profile), payload.hash());
    if let Some(digest) = cluster_config.digest() {
        parts = format!("{parts}{digest}\n");
    }
    format!(
        "{}-{}",
        payload.version,
        &crate::sha256_hex(parts.as_bytes())[..HASH_DIGITS]
    )
}
