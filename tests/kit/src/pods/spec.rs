//! Which fields of a pod the Node implements. Every other one fails the pod by its name.

use anyhow::{Result, ensure};
use serde_json::Value;

/// Fields of a pod's spec that are done, or that are the scheduler's and the API server's.
const POD: &[&str] = &[
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsPolicy",
    "enableServiceLinks",
    "imagePullSecrets",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "restartPolicy",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "hostname",
    "subdomain",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];
const POD_SECURITY: &[&str] = &[
    "fsGroup",
    "fsGroupChangePolicy",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seccompProfile",
    "supplementalGroups",
];
const CONTAINER: &[&str] = &[
    "args",
    "command",
    "env",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "securityContext",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
    "workingDir",
];
const SECURITY: &[&str] = &[
    "allowPrivilegeEscalation",
    "capabilities",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seccompProfile",
];
const PROBE: &[&str] = &[
    "exec",
    "failureThreshold",
    "httpGet",
    "initialDelaySeconds",
    "periodSeconds",
    "successThreshold",
    "timeoutSeconds",
];
/// Kinds of volumes, and of what is projected into one, with their fields.
const VOLUMES: &[(&str, &[&str])] = &[
    ("configMap", &["name", "items", "defaultMode", "optional"]),
    ("downwardAPI", &["items", "defaultMode"]),
    ("emptyDir", &["sizeLimit"]),
    ("persistentVolumeClaim", &["claimName", "readOnly"]),
    ("projected", &["sources", "defaultMode"]),
    (
        "secret",
        &["secretName", "name", "items", "defaultMode", "optional"],
    ),
    (
        "serviceAccountToken",
        &["audience", "expirationSeconds", "path"],
    ),
];

/// Whether all of a pod's fields are implemented.
///
/// # Errors
/// The first that is not.
pub(super) fn understood(spec: &Value) -> Result<()> {
    only("spec", spec, POD)?;
    only(
        "spec.securityContext",
        &spec["securityContext"],
        POD_SECURITY,
    )?;
    seccomp("spec", spec)?;
    for field in ["initContainers", "containers"] {
        for container in list(&spec[field]) {
            let at = format!("spec.{field}[{}]", text(&container["name"]));
            understood_container(&at, container)?;
        }
    }
    for volume in list(&spec["volumes"]) {
        let at = format!("spec.volumes[{}]", text(&volume["name"]));
        understood_volume(&at, volume)?;
    }
    Ok(())
}

fn understood_container(at: &str, container: &Value) -> Result<()> {
    only(at, container, CONTAINER)?;
    only(
        &format!("{at}.securityContext"),
        &container["securityContext"],
        SECURITY,
    )?;
    seccomp(at, container)?;
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let (at, probe) = (format!("{at}.{probe}"), &container[probe]);
        only(&at, probe, PROBE)?;
        only(
            &format!("{at}.httpGet"),
            &probe["httpGet"],
            &["path", "port", "scheme"],
        )?;
    }
    for mount in list(&container["volumeMounts"]) {
        let fields = &["mountPath", "name", "readOnly", "subPath"];
        only(&format!("{at}.volumeMounts"), mount, fields)?;
    }
    for variable in list(&container["env"]) {
        let at = format!("{at}.env[{}]", text(&variable["name"]));
        only(&at, variable, &["name", "value", "valueFrom"])?;
        let from = &["fieldRef", "secretKeyRef", "configMapKeyRef"];
        only(&format!("{at}.valueFrom"), &variable["valueFrom"], from)?;
    }
    let texts = [&container["args"], &container["command"]]
        .into_iter()
        .flat_map(list);
    let values = list(&container["env"])
        .iter()
        .map(|variable| &variable["value"]);
    for value in texts.chain(values) {
        ensure!(
            !refers(text(value)),
            "{at}: $(VARIABLE) is not implemented: {value}"
        );
    }
    Ok(())
}

fn understood_volume(at: &str, volume: &Value) -> Result<()> {
    let kinds: Vec<&str> = VOLUMES.iter().map(|(kind, _)| *kind).collect();
    only(at, volume, &[&["name"], kinds.as_slice()].concat())?;
    for (kind, fields) in VOLUMES {
        only(&format!("{at}.{kind}"), &volume[kind], fields)?;
    }
    for source in list(&volume["projected"]["sources"]) {
        understood_volume(&format!("{at}.projected"), source)?;
    }
    Ok(())
}

fn seccomp(at: &str, of: &Value) -> Result<()> {
    let kind = &of["securityContext"]["seccompProfile"]["type"];
    let known = kind.is_null() || kind == "RuntimeDefault" || kind == "Unconfined";
    ensure!(
        known,
        "{at}.securityContext.seccompProfile {kind} is not implemented"
    );
    Ok(())
}

fn only(at: &str, of: &Value, fields: &[&str]) -> Result<()> {
    for field in of.as_object().into_iter().flat_map(|it| it.keys()) {
        ensure!(
            fields.contains(&field.as_str()),
            "{at}.{field} is not implemented"
        );
    }
    Ok(())
}

/// Whether a text holds `$(VARIABLE)`. What a shell knows by such brackets stays as it is.
fn refers(text: &str) -> bool {
    text.split("$(").skip(1).any(|rest| {
        let name = rest.split(')').next().unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        rest.len() > name.len() && !name.is_empty() && name.chars().all(plain)
    })
}

/// The members of a list; none of what is no list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text; empty of what is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
