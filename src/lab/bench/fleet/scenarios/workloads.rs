//! Workloads on a fleet that dormer brings up: two guides' manifests as printed and as corrected, the RuntimeClass of
//! each Windows build, and pods that must not run on a Windows node.

use super::stage::{self, Scenario};
use dormer_fleet::{WorldConfig, api::kinds, manifest::Sets};
use dormer_profile::yaml;
use serde_json::{Value, json};

/// Linux pods without a selector: none may run on a Windows node.
const LINUX_PODS: usize = 500;

macro_rules! manifests {
    ($folder:literal) => {
        [
            manifests!($folder, "runtime-class.yaml"),
            manifests!($folder, "runtime-class-2019.yaml"),
            manifests!($folder, "win-webserver-openshift.yaml"),
            manifests!($folder, "win-webserver-kubernetes.yaml"),
            manifests!($folder, "iis-2019.yaml"),
        ]
    };
    ($folder:literal, $name:literal) => {
        (
            $name,
            include_str!(concat!(
                "../../../../../tests/fleet/manifests/workloads/",
                $folder,
                "/",
                $name
            )),
        )
    };
}

/// Manifests as printed in two guides for Windows containers.
const PRINTED: [(&str, &str); 5] = manifests!("printed");
/// The same with corrections; the first line of each names them.
const MENDED: [(&str, &str); 5] = manifests!("mended");

fn objects(text: &str) -> Result<Vec<Value>, String> {
    yaml::documents(text).map_err(|error| error.to_string())
}

/// Starts two machines with Windows Server 2019, which the manifests need.
async fn fleet() -> Scenario {
    let sets = Sets::from([(
        "windows_container_ami".to_owned(),
        "windows-server-2019".to_owned(),
    )]);
    let config = WorldConfig {
        linux: false,
        workload: false,
        sets,
        ..WorldConfig::in_memory(2)
    };
    Scenario::start_in(config).await
}

/// Whether each pod with this name prefix runs on a Windows node.
fn pods(scenario: &Scenario, named: &str) -> Vec<bool> {
    let mut pods = scenario.all(&kinds::POD);
    pods.retain(|pod| {
        pod["metadata"]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with(named))
    });
    pods.iter()
        .map(|pod| pod["status"]["phase"] == "Running")
        .collect()
}

#[test]
fn each_mended_manifest_lands_on_a_joined_node_and_no_linux_pod_does() {
    stage::on_a_virtual_clock(async {
        let mut scenario = fleet().await;
        // They wait before the first node exists, so they would use any moment without the taint.
        for n in 0..LINUX_PODS {
            let pod = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("linux-{n}"), "namespace": "default"},
                "spec": {"containers": [{"name": "c", "image": "registry.example/linux"}]}});
            scenario.create(pod).expect("a pod");
        }
        for (name, text) in MENDED {
            for object in objects(text).expect(name) {
                scenario.create(object).expect(name);
            }
        }
        let deployed = ["win-webserver-two-", "iis-2019-"];
        scenario
            .until("the workloads run", |scenario, statuses| {
                let run = |named: &&str| {
                    let pods = pods(scenario, named);
                    !pods.is_empty() && pods.iter().all(|runs| *runs)
                };
                scenario.all_serve(statuses, 2) && deployed.iter().all(run)
            })
            .await;
        let linux = pods(&scenario, "linux-");
        assert_eq!(
            (linux.len(), linux.iter().filter(|runs| **runs).count()),
            (LINUX_PODS, 0)
        );
        let bound = scenario.all(&kinds::POD).into_iter().filter(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with("linux-") && !pod["spec"]["nodeName"].is_null()
        });
        assert_eq!(bound.count(), 0);
    });
}

#[test]
fn a_runtime_class_is_there_for_each_windows_build_and_others_own_is_left_alone() {
    stage::on_a_virtual_clock(async {
        let mut scenario = fleet().await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "by-class", "namespace": "default"},
            "spec": {"runtimeClassName": "windows-10.0.17763",
                "containers": [{"name": "c", "image": "mcr.microsoft.com/windows/nanoserver:1809"}]}});
        scenario.create(pod).expect("a pod");
        let theirs = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": "windows-10.0.20348"}, "handler": "theirs"});
        scenario.create(theirs).expect("a class");
        scenario
            .until("the pod runs", |scenario, statuses| {
                scenario.all_serve(statuses, 2) && pods(scenario, "by-class") == [true]
            })
            .await;
        let classes = scenario.all(&kinds::RUNTIME_CLASS);
        let of = |name: &str| {
            classes
                .iter()
                .find(|class| class["metadata"]["name"] == name)
        };
        let ours = of("windows-10.0.17763").expect("made by the watcher");
        assert_eq!(ours["handler"], "runhcs-wcow-process");
        let values = ours["scheduling"]["tolerations"]
            .as_array()
            .expect("tolerations");
        let values: Vec<_> = values.iter().map(|one| one["value"].as_str()).collect();
        assert_eq!(values, [Some("Windows"), Some("windows")]);
        assert_eq!(
            of("windows-10.0.20348").expect("theirs")["handler"],
            "theirs"
        );
    });
}

#[test]
fn what_is_wrong_with_the_manifests_as_printed_is_refused_or_waits() {
    stage::on_a_virtual_clock(async {
        let mut scenario = fleet().await;
        scenario
            .until("both serve", |scenario, statuses| {
                scenario.all_serve(statuses, 2)
            })
            .await;
        let mut refused = Vec::new();
        for (name, text) in PRINTED {
            match objects(text) {
                Err(why) => refused.push((name, why)),
                Ok(objects) => {
                    let made = objects.into_iter().map(|mut object| {
                        // Both guides call it win-webserver.
                        if name == "win-webserver-kubernetes.yaml" {
                            object["metadata"]["namespace"] = json!("dormer");
                        }
                        scenario.create(object)
                    });
                    refused.extend(made.filter_map(Result::err).map(|why| (name, why)));
                }
            }
        }
        let names: Vec<_> = refused.iter().map(|(name, _)| *name).collect();
        for named in [
            "runtime-class.yaml",
            "runtime-class-2019.yaml",
            "iis-2019.yaml",
        ] {
            assert!(names.contains(&named), "{named} was taken: {refused:?}");
        }
        assert_eq!(names.len(), 3, "{refused:?}");
        scenario
            .until("nothing more happens", |scenario, _| {
                scenario.unchanged_for(6)
            })
            .await;
        let of = |namespace: &str| {
            let pods = scenario.all(&kinds::POD).into_iter();
            let own = pods.filter(|pod| pod["metadata"]["namespace"] == namespace);
            own.map(|pod| pod["status"]["phase"] == "Running")
                .collect::<Vec<_>>()
        };
        // `Effect` is no field, and a toleration without an effect tolerates all of them; without any toleration the
        // pod waits.
        assert_eq!(
            (of("default"), of("dormer")),
            (vec![true], vec![false, false])
        );
    });
}
