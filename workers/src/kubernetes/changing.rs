//! Other changes of the cluster: its upgrade, the MachineConfigPool of its Linux workers, and health checks that would
//! delete a Machine during an upgrade in place. Grants within the limit wait until they end.

pub(crate) use super::cluster_config::WORKER_POOL;
use super::{
    cluster_config::MACHINE_CONFIG_GROUP,
    keys,
    operators::{CALL_MAX, refused, slow},
    watched::Watched,
};
use crate::source::OS;
use dormer_proto::machine::MachineApi;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    core::{Expression, Selector},
};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// For how long a Node may not be Ready while its host is configured again: its kubelet is stopped before, a reboot with
/// updates alone lasts up to 20 minutes (docs/field-notes.md, Boots, reboots and limits of sshd), and the kubelet's start
/// follows. The lint's rule `unhealthy-timeout` asks for the same.
const IN_PLACE: Duration = Duration::from_secs(30 * 60);
/// The timeout of a MachineHealthCheck's condition that names none (docs/field-notes.md, Machines of OpenShift).
const TIMEOUT: Duration = Duration::from_secs(300);
/// Most health checks that are read.
const CHECKS_MAX: u32 = 100;
/// Longest upgrade of the cluster without an Event.
const LONG: Duration = Duration::from_secs(24 * 3_600);

/// Something else that changes the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherChange {
    /// What changes it, for people.
    pub why: String,
    /// Remedy, as an imperative sentence with its command.
    pub cure: String,
}

/// Result of one read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterChanges {
    /// The ClusterVersion is progressing.
    pub version: Option<OtherChange>,
    /// The upgrade has lasted longer than a day.
    pub long: bool,
    /// The pool of Linux workers is paused, or being changed.
    pub worker_pool: Option<OtherChange>,
    /// A health check would delete a Machine whose host is configured again.
    pub health_check: Option<OtherChange>,
    /// What could not be read; the last result holds for it.
    pub unread: Option<String>,
}

/// Reads what changes the cluster. `machines`: namespace of the Machine API's Machines; `None`: all namespaces.
/// `cluster`: version of Cluster API whose Machines are watched, if any, with their namespace. `before`: result of the
/// previous read.
pub async fn check(
    client: &Client,
    machines: Option<&str>,
    cluster: Option<(MachineApi, Option<&str>)>,
    before: &ClusterChanges,
) -> ClusterChanges {
    let (version, pool, checks) = tokio::join!(
        cluster_version(client),
        worker_pool(client),
        health_checks(client, machines, cluster),
    );
    let mut unread = None;
    let mut note = |why: String| {
        unread.get_or_insert(why);
    };
    let (version, long) = version.unwrap_or_else(|why| {
        note(why);
        (before.version.clone(), before.long)
    });
    let worker_pool = pool.unwrap_or_else(|why| {
        note(why);
        before.worker_pool.clone()
    });
    let health_check = checks.unwrap_or_else(|why| {
        note(why);
        before.health_check.clone()
    });
    ClusterChanges {
        version,
        long,
        worker_pool,
        health_check,
        unread,
    }
}

/// What such a read is made of, to be watched. The MachineConfigPool is one of the cluster's settings, too.
pub(crate) fn watched(
    client: &Client,
    machines: Option<&str>,
    cluster: Option<(MachineApi, Option<&str>)>,
) -> Vec<Watched> {
    let kind = |group: &str, version: &str, kind: &str| {
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    };
    let check = |api: MachineApi, namespace: Option<&str>| {
        let check = kind(api.group(), api.version(), "MachineHealthCheck");
        Watched::new(client, &check, namespace)
    };
    let version = kind("config.openshift.io", "v1", "ClusterVersion");
    let mut all = vec![
        Watched::new(client, &version, None).named("version"),
        check(MachineApi::OpenShift, machines),
    ];
    all.extend(cluster.map(|(api, namespace)| check(api, namespace)));
    all
}

/// The condition of this type, if it is True.
fn holds<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    let all = object.data["status"]["conditions"].as_array()?;
    all.iter()
        .find(|one| one["type"] == kind && one["status"] == "True")
}

async fn cluster_version(client: &Client) -> Result<(Option<OtherChange>, bool), String> {
    let kind = ("config.openshift.io", "v1", "ClusterVersion");
    let Some(found) = one(client, kind, "version").await? else {
        return Ok((None, false));
    };
    let Some(progressing) = holds(&found, "Progressing") else {
        return Ok((None, false));
    };
    let since = progressing["lastTransitionTime"].as_str().unwrap_or("?");
    let began = since.parse::<Timestamp>().ok();
    let lasts =
        began.and_then(|began| Duration::try_from(Timestamp::now().duration_since(began)).ok());
    let message = progressing["message"].as_str().unwrap_or_default();
    let what = OtherChange {
        why: format!(
            "the cluster is being upgraded since {since} ({})",
            message.trim_end_matches('.')
        ),
        cure: "See how far the cluster's upgrade is: kubectl get clusterversion. With spec.waitForClusterVersion: false \
               the WindowsPool does not wait for it"
            .to_owned(),
    };
    Ok((Some(what), lasts.is_some_and(|lasts| lasts >= LONG)))
}

async fn worker_pool(client: &Client) -> Result<Option<OtherChange>, String> {
    let kind = (MACHINE_CONFIG_GROUP, "v1", "MachineConfigPool");
    let Some(found) = one(client, kind, WORKER_POOL).await? else {
        return Ok(None);
    };
    if found.data["spec"]["paused"] == true {
        return Ok(Some(OtherChange {
            why: format!(
                "the MachineConfigPool {WORKER_POOL} is paused, so no worker is to be changed"
            ),
            cure: format!(
                "End the pause once workers may be changed: kubectl patch machineconfigpool {WORKER_POOL} --type=merge -p \
                 '{{\"spec\":{{\"paused\":false}}}}'"
            ),
        }));
    }
    Ok(holds(&found, "Updating").map(|_| OtherChange {
        why: format!(
            "the MachineConfigPool {WORKER_POOL} is being updated, so Linux nodes are drained now"
        ),
        cure: format!("See how far it is: kubectl get machineconfigpool {WORKER_POOL}"),
    }))
}

/// Common part of all versions of health checks: the Machine API's and Cluster API's v1beta1 write
/// `unhealthyConditions` and `maxUnhealthy`, Cluster API's v1beta2 the fields below `checks` and `remediation`
/// (cluster-api v1.11.0, `api/core/v1beta2/machinehealthcheck_types.go`).
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CheckSpec {
    selector: LabelSelector,
    unhealthy_conditions: Vec<Unhealthy>,
    max_unhealthy: Value,
    checks: Checks,
    remediation: Remediation,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Checks {
    unhealthy_node_conditions: Vec<Unhealthy>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Remediation {
    trigger_if: TriggerIf,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TriggerIf {
    unhealthy_less_than_or_equal_to: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Unhealthy {
    r#type: String,
    status: String,
    timeout: Option<String>,
    timeout_seconds: Option<u64>,
}

impl Unhealthy {
    fn patience(&self) -> Duration {
        let seconds = self.timeout_seconds.map(Duration::from_secs);
        seconds.unwrap_or_else(|| self.timeout.as_deref().map_or(TIMEOUT, go_duration))
    }
}

/// First health check of any API that selects Windows Machines and whose timeout is shorter than an upgrade in place. Those of
/// one API that cannot be read hide none of the other's.
async fn health_checks(
    client: &Client,
    machines: Option<&str>,
    cluster: Option<(MachineApi, Option<&str>)>,
) -> Result<Option<OtherChange>, String> {
    let found = health_check(client, MachineApi::OpenShift, machines).await;
    let Some((api, namespace)) = cluster.filter(|_| !matches!(found, Ok(Some(_)))) else {
        return found;
    };
    match health_check(client, api, namespace).await {
        Ok(None) => found,
        other => other,
    }
}

/// The same of one API.
async fn health_check(
    client: &Client,
    source: MachineApi,
    namespace: Option<&str>,
) -> Result<Option<OtherChange>, String> {
    let params = ListParams::default().limit(CHECKS_MAX);
    let what = "machinehealthchecks";
    let checks = match timeout(
        CALL_MAX,
        api(client, source, "MachineHealthCheck", namespace).list(&params),
    )
    .await
    {
        Err(_) => return Err(slow(what)),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Ok(None),
        Ok(listed) => listed.map_err(|error| refused("list", what, &error))?,
    };
    for check in checks.items {
        // The controllers' annotation to leave it alone.
        let paused = check.annotations().contains_key("cluster.x-k8s.io/paused");
        let spec = CheckSpec::deserialize(&check.data["spec"]).unwrap_or_default();
        let Some(patience) = patience(&spec).filter(|it| *it < IN_PLACE && !paused) else {
            continue;
        };
        let namespace = check.namespace().unwrap_or_default();
        if takes_windows(client, source, &namespace, spec.selector).await? {
            let name = check.name_any();
            let kind = format!("machinehealthcheck.{}", source.group());
            return Ok(Some(OtherChange {
                why: format!(
                    "the MachineHealthCheck {namespace}/{name} deletes a Machine whose Node is not Ready for {} minutes, \
                     and an upgrade in place takes up to {}",
                    patience.as_secs() / 60,
                    IN_PLACE.as_secs() / 60
                ),
                cure: format!(
                    "Give the conditions of the MachineHealthCheck {name} a longer timeout, or pause it: kubectl -n \
                     {namespace} annotate {kind} {name} cluster.x-k8s.io/paused="
                ),
            }));
        }
    }
    Ok(None)
}

/// Its timeout for a Node that is not Ready; `None`: it deletes none for that reason.
fn patience(spec: &CheckSpec) -> Option<Duration> {
    let most = [
        &spec.max_unhealthy,
        &spec.remediation.trigger_if.unhealthy_less_than_or_equal_to,
    ];
    let none = most
        .iter()
        .any(|it| **it == 0 || **it == "0" || **it == "0%");
    let not_ready = |one: &&Unhealthy| {
        one.r#type == "Ready" && matches!(one.status.as_str(), "False" | "Unknown")
    };
    let all = spec.unhealthy_conditions.iter();
    let all = all.chain(&spec.checks.unhealthy_node_conditions);
    let timeouts = all.filter(not_ready).map(Unhealthy::patience);
    timeouts.min().filter(|_| !none)
}

/// A duration in Go's notation: `300s`, `1h30m`, `7.5m`, `500ms`. Text that cannot be read counts as zero, so that the
/// rollout waits for it.
fn go_duration(text: &str) -> Duration {
    let read = text.parse::<SignedDuration>().ok();
    let read = read.and_then(|it| Duration::try_from(it).ok());
    read.unwrap_or_default()
}

async fn takes_windows(
    client: &Client,
    source: MachineApi,
    namespace: &str,
    selector: LabelSelector,
) -> Result<bool, String> {
    let labels: &[(&str, &str)] = match source {
        MachineApi::OpenShift | MachineApi::Host => &[(keys::OS_ID, "Windows")],
        MachineApi::ClusterV1Beta1 | MachineApi::ClusterV1Beta2 => {
            &[(keys::OS_ID, "Windows"), (OS, "windows")]
        }
    };
    for (label, value) in labels {
        // One that cannot be understood takes everything, as an empty one does.
        let mut selector = Selector::try_from(selector.clone()).unwrap_or_default();
        selector.extend([Expression::Equal((*label).into(), (*value).into())]);
        let params = ListParams::default().labels_from(&selector).limit(1);
        let in_time = timeout(
            CALL_MAX,
            api(client, source, "Machine", Some(namespace)).list(&params),
        )
        .await;
        let answer = in_time.map_err(|_| slow("machines"))?;
        let listed = answer.map_err(|error| refused("list", "machines", &error))?;
        if !listed.items.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A cluster-wide singleton object; `None`: it does not exist, or the cluster does not serve its kind.
async fn one(
    client: &Client,
    (group, version, kind): (&str, &str, &str),
    name: &str,
) -> Result<Option<DynamicObject>, String> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = timeout(CALL_MAX, api.get(name)).await;
    match found.map_err(|_| slow(&resource.plural))? {
        Ok(found) => Ok(Some(found)),
        // A kind that is not served, as on plain Kubernetes, is answered without a reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(refused("get", &resource.plural, &error)),
    }
}

fn api(
    client: &Client,
    source: MachineApi,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(source.group(), source.version(), kind);
    let resource = ApiResource::from_gvk(&kind);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patience_is_the_shortest_timeout_of_a_node_that_is_not_ready() {
        let of = |spec: Value| {
            let spec = CheckSpec::deserialize(spec).expect("a spec");
            patience(&spec).map(|it| it.as_secs())
        };
        let ready = |status: &str, timeout: &str| json!({"type": "Ready", "status": status, "timeout": timeout});
        let both = json!([ready("Unknown", "10m"), ready("False", "300s")]);
        assert_eq!(of(json!({"unhealthyConditions": both})), Some(300));
        assert_eq!(
            of(json!({"unhealthyConditions": [{"type": "Ready", "status": "False"}]})),
            Some(300),
            "the default"
        );
        let pressure = json!([{"type": "DiskPressure", "status": "True", "timeout": "60s"}]);
        assert_eq!(of(json!({"unhealthyConditions": pressure})), None);
        assert_eq!(
            of(json!({"unhealthyConditions": both, "maxUnhealthy": "0%"})),
            None
        );
        assert_eq!(
            of(json!({"unhealthyConditions": both, "maxUnhealthy": 0})),
            None
        );
        assert_eq!(
            of(json!({"unhealthyConditions": both, "maxUnhealthy": "40%"})),
            Some(300)
        );
        let seconds = json!([{"type": "Ready", "status": "Unknown", "timeoutSeconds": 240}]);
        let newer = |most: Value| {
            json!({"checks": {"unhealthyNodeConditions": seconds},
                "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": most}}})
        };
        assert_eq!(of(newer(json!("100%"))), Some(240), "Cluster API's v1beta2");
        assert_eq!(of(newer(json!(0))), None);
    }

    /// The API takes `^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$` (openshift/api, `types_machinehealthcheck.go`).
    #[test]
    fn a_timeout_is_read_in_every_form_that_the_api_takes() {
        for (text, seconds) in [
            ("300s", 300.0),
            ("5m0s", 300.0),
            ("1h2m3s", 3_723.0),
            ("7.5m", 450.0),
            ("1.5h", 5_400.0),
            ("90.5s", 90.5),
            ("600000ms", 600.0),
            ("5m500ms", 300.5),
            ("1us", 0.000_001),
            ("1µs", 0.000_001),
            ("1ns", 0.000_000_001),
            ("", 0.0),
            ("-5m", 0.0),
            ("soon", 0.0),
            ("99999999999999999999h", 0.0),
        ] {
            assert_eq!(
                go_duration(text),
                Duration::from_secs_f64(seconds),
                "{text}"
            );
        }
    }
}
