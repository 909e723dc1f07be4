//! Mistakes in the cluster's own objects: each is named, and reaches no node.

use dormer_profile::{
    builtin,
    cluster_config::{ClusterConfig, ClusterSnapshot, Revision},
    kubelet_config::KubeletConfig,
    layers::stack,
    mirrors::{Credentials, Mirrored},
};
use serde_json::json;

/// The same for rows that come out of the cluster's objects: what is wrong there is named, and reaches no node.
#[test]
fn one_planted_mistake_for_each_row_of_the_cluster_is_named() {
    let of = |source: &str, mirror: &str, never_source| Mirrored {
        source: source.into(),
        mirrors: vec![mirror.into()],
        never_source,
        ..Mirrored::default()
    };
    let kubelet = json!({"maxPods": 99, "cpuManagerPolicy": "static"});
    let pull_secret = |auths: &str| {
        let text = format!(r#"{{"auths": {{{auths}}}}}"#);
        let credentials = Credentials::parse(&text).expect("a pull secret");
        Ok((Revision("1".into()), credentials))
    };
    let plain = ClusterSnapshot::default;
    let table = [
        (
            13,
            ClusterSnapshot {
                vxlan_port: Err("hybridOverlayVXLANPort is 70000, no port".into()),
                ..plain()
            },
            "hybrid overlay: hybridOverlayVXLANPort is 70000, no port",
        ),
        (
            14,
            ClusterSnapshot {
                kubelet_configs: Ok(vec![KubeletConfig {
                    name: "pods".into(),
                    settings: kubelet,
                    ..KubeletConfig::default()
                }]),
                ..plain()
            },
            "KubeletConfig pods: cpuManagerPolicy do not reach Windows nodes",
        ),
        // The API server compares the two newer sets with a pattern, an ImageContentSourcePolicy with none.
        (
            15,
            ClusterSnapshot {
                mirrors: Ok(vec![of(
                    "quay.io/team/one",
                    "https://mirror.example/team/one",
                    false,
                )]),
                ..plain()
            },
            "the mirror https://mirror.example/team/one of quay.io/team/one is left out: it is a URL",
        ),
        (
            19,
            ClusterSnapshot {
                mirrors: Ok(vec![of("quay.io/team", "mirror.example:x/team", true)]),
                ..plain()
            },
            "NeverContactSource of quay.io/team: containerd knows whole registries only",
        ),
        // Two repositories of one mirror, each with a robot's account of its own.
        (
            20,
            ClusterSnapshot {
                mirrors: Ok(vec![
                    of("quay.io/team/one", "mirror.example/team/one", false),
                    of("quay.io/team/two", "mirror.example/team/two", false),
                ]),
                pull_secret: pull_secret(
                    r#""mirror.example/team/one": {"auth": "b25lOnA="}, "mirror.example/team/two": {"auth": "dHdvOnA="}"#,
                ),
                ..plain()
            },
            "the credentials for mirror.example/team/two are left out",
        ),
        // Written by hand, and not in base64.
        (
            20,
            ClusterSnapshot {
                mirrors: Ok(vec![of(
                    "quay.io/team/one",
                    "mirror.example/team/one",
                    false,
                )]),
                pull_secret: pull_secret(
                    r#""mirror.example/team/one": {"auth": "robot:passw0rd"}"#,
                ),
                ..plain()
            },
            "the credentials for mirror.example/team/one are left out: its `auth` is no base64",
        ),
    ];
    for (row, snapshot, wanted) in table {
        let (cluster, warnings) = ClusterConfig::default().with(snapshot, true);
        let said = warnings.join("\n");
        assert!(
            said.contains(wanted),
            "row {row}\nwanted {wanted}\ntold {said}"
        );
        let layers = [
            builtin::layer("openshift").expect("a layer"),
            cluster.layer(),
        ];
        let profile = stack(&layers).expect("a profile");
        let told = serde_json::to_string(&profile).expect("JSON");
        assert!(
            !told.contains("cpuManagerPolicy")
                && !told.contains("https://https")
                && !said.contains("passw0rd"),
            "row {row}: {told}"
        );
        // Without any mirror that can be used the registry stays banned.
        let banned = profile.host.mirrors.values().any(|it| it.blocked);
        assert_eq!(banned, row == 19, "row {row}");
    }
}
