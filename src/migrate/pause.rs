//! The pause image of a move: which one WMCO's nodes have, which one dormer's first upgrade configures, and whether hosts
//! that reach no registry would get it.

use super::survey::Survey;
use dormer_profile::builtin;
use std::collections::BTreeSet;

/// Pause image in WMCO's `pkg/internal/containerd_conf.toml` (WMCO 11.0.0, read at 0be4b9cc).
const OF_WMCO: &str = "mcr.microsoft.com/oss/kubernetes/pause:3.9";

/// Pause image of the built-in profile for OpenShift.
fn of_dormer() -> String {
    let profile = builtin::openshift();
    profile
        .variables
        .get("PAUSE_IMAGE")
        .cloned()
        .unwrap_or_default()
}

/// Registry and path of an image, without its tag.
fn repository(image: &str) -> &str {
    let tagged = image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
    tagged.map_or(image, |(repository, _)| repository)
}

/// Whether a source of mirrors, or an entry of a list of registries, covers an image.
fn covers(source: &str, image: &str) -> bool {
    let repository = repository(image);
    let registry = repository.split('/').next().unwrap_or_default();
    if let Some(domain) = source.strip_prefix('*') {
        return registry.ends_with(domain);
    }
    let rest = repository.strip_prefix(source.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Pause images of WMCO's nodes; the one of WMCO's payload if no list has one.
fn of_wmco(survey: &Survey) -> BTreeSet<&str> {
    let nodes = survey.still_wmco().flat_map(|node| &node.pause_images);
    let found: BTreeSet<&str> = nodes.map(String::as_str).collect();
    if found.is_empty() {
        BTreeSet::from([OF_WMCO])
    } else {
        found
    }
}

/// Both images, for people.
pub(super) fn shown(survey: &Survey) -> String {
    let listed = survey
        .still_wmco()
        .any(|node| !node.pause_images.is_empty());
    let from = if listed {
        "in the nodes' lists"
    } else {
        "WMCO's own; no node lists one"
    };
    let all: Vec<&str> = of_wmco(survey).into_iter().collect();
    format!(
        "{} ({from}); dormer's first upgrade: {}",
        all.join(", "),
        of_dormer()
    )
}

/// Reasons against dormer's pause image on hosts of WMCO's nodes, one sentence each.
pub(super) fn judge(survey: &Survey) -> Vec<String> {
    let wanted = of_dormer();
    let nodes: Vec<_> = survey.still_wmco().collect();
    let all_have = nodes.iter().all(|node| node.pause_images.contains(&wanted));
    if nodes.is_empty() || all_have {
        return Vec::new();
    }
    let unless = "unless the payload has pause.tar or a layer sets PAUSE_IMAGE, no pod starts on a node after its first \
                  upgrade";
    let mirrored = |image: &str| {
        survey
            .tag_mirrors
            .iter()
            .any(|source| covers(source, image))
    };
    let mut found = Vec::new();
    if let Some(theirs) = of_wmco(survey).into_iter().find(|image| mirrored(image))
        && !mirrored(&wanted)
    {
        found.push(format!(
            "an ImageTagMirrorSet has a mirror for WMCO's {theirs}, and none for dormer's {wanted}: where hosts reach \
             mirrors only, {unless}"
        ));
    }
    let blocked = survey
        .blocked_registries
        .iter()
        .find(|entry| covers(entry, &wanted));
    if let Some(entry) = blocked.filter(|_| !mirrored(&wanted)) {
        found.push(format!(
            "blockedRegistries of images.config.openshift.io/cluster has {entry}, from where dormer's {wanted} comes. \
             WMCO does not read that list, dormer does: {unless}"
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::findings::tests::healthy, *};

    #[test]
    fn a_host_behind_mirrors_needs_one_for_dormers_pause_image() {
        let told = |mirrors: &[&str], blocked: &[&str], images: &[&str]| {
            let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
            let mut survey = healthy();
            survey.tag_mirrors = owned(mirrors);
            survey.blocked_registries = owned(blocked);
            for node in &mut survey.nodes {
                node.pause_images = owned(images);
            }
            judge(&survey).len()
        };
        let own = of_dormer();
        let table = [
            (&[][..], &[][..], &[][..], 0),
            (&["mcr.microsoft.com"], &[], &[], 1),
            (&["mcr.microsoft.com/oss/kubernetes/pause"], &[], &[], 1),
            (&["*.microsoft.com"], &[], &[], 1),
            (&["mcr.microsoft.com", "registry.k8s.io"], &[], &[], 0),
            (&["mcr.microsoft.com/oss/kube"], &[], &[], 0),
            // The nodes' lists count, where one has a pause image.
            (&["mcr.microsoft.com"], &[], &["m.example/pause:3.9"], 0),
            (&["m.example"], &[], &["m.example/pause:3.9"], 1),
            (&["mcr.microsoft.com"], &[], &[own.as_str()], 0),
            (&[], &["registry.k8s.io"], &[], 1),
            (&["registry.k8s.io/pause"], &["registry.k8s.io"], &[], 0),
            (&["mcr.microsoft.com"], &["registry.k8s.io"], &[], 2),
        ];
        for (mirrors, blocked, images, wanted) in table {
            assert_eq!(
                told(mirrors, blocked, images),
                wanted,
                "{mirrors:?} {blocked:?} {images:?}"
            );
        }
    }

    #[test]
    fn both_images_are_shown() {
        let mut survey = healthy();
        assert_eq!(
            shown(&survey),
            "mcr.microsoft.com/oss/kubernetes/pause:3.9 (WMCO's own; no node lists one); dormer's first upgrade: \
             registry.k8s.io/pause:3.10.2"
        );
        survey.nodes[0].pause_images = vec!["m.example/pause:3.9".into()];
        assert!(shown(&survey).starts_with("m.example/pause:3.9 (in the nodes' lists); "));
    }
}
