//! Which fields of a pod the Node implements. Every other one fails the pod by its name.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

/// Fields that are done, or that are the scheduler's and the API server's, by where they stand. What stands deeper than
/// this table goes is taken as it is.
const FIELDS: &[(&str, &str)] = &[
    (
        "spec",
        "affinity automountServiceAccountToken containers dnsPolicy enableServiceLinks hostname \
        imagePullSecrets initContainers nodeName nodeSelector os preemptionPolicy priority \
        priorityClassName restartPolicy schedulerName securityContext serviceAccount \
        serviceAccountName subdomain terminationGracePeriodSeconds tolerations \
        topologySpreadConstraints volumes",
    ),
    (
        "spec.securityContext",
        "fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser seccompProfile supplementalGroups \
        windowsOptions",
    ),
    (
        "spec.containers",
        "args command env image imagePullPolicy livenessProbe name ports readinessProbe resources \
        securityContext startupProbe terminationMessagePath terminationMessagePolicy volumeMounts workingDir",
    ),
    (
        "spec.containers.securityContext",
        "allowPrivilegeEscalation capabilities readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser \
        seccompProfile",
    ),
    ("spec.containers.env", "name value valueFrom"),
    (
        "spec.containers.env.valueFrom",
        "configMapKeyRef fieldRef secretKeyRef",
    ),
    (
        "spec.containers.volumeMounts",
        "mountPath name readOnly subPath",
    ),
    ("spec.containers.resources", "limits requests"),
    ("spec.containers.resources.limits", "memory"),
    (
        "probe",
        "exec failureThreshold httpGet initialDelaySeconds periodSeconds successThreshold timeoutSeconds",
    ),
    ("probe.httpGet", "path port scheme"),
    (
        "volume",
        "configMap downwardAPI emptyDir name persistentVolumeClaim projected secret serviceAccountToken",
    ),
    ("volume.configMap", "defaultMode items name optional"),
    ("volume.downwardAPI", "defaultMode items"),
    ("volume.emptyDir", "sizeLimit"),
    ("volume.persistentVolumeClaim", "claimName readOnly"),
    ("volume.projected", "defaultMode sources"),
    (
        "volume.secret",
        "defaultMode items name optional secretName",
    ),
    (
        "volume.serviceAccountToken",
        "audience expirationSeconds path",
    ),
];
/// Parts of a pod that stand at several places, and what they are called in the table.
const SAME: &[(&str, &str)] = &[
    ("spec.initContainers", "spec.containers"),
    ("spec.containers.startupProbe", "probe"),
    ("spec.containers.livenessProbe", "probe"),
    ("spec.containers.readinessProbe", "probe"),
    ("spec.volumes", "volume"),
    ("volume.projected.sources", "volume"),
];

/// Whether all of a pod's fields are implemented.
///
/// # Errors
/// The first that is not.
pub(super) fn understood(spec: &Value) -> Result<()> {
    walk("spec", "spec", spec)
}

fn walk(at: &str, kind: &str, value: &Value) -> Result<()> {
    if let Some(members) = value.as_array() {
        return members.iter().try_for_each(|it| walk(at, kind, it));
    }
    if kind.ends_with(".seccompProfile") {
        let profile = text(&value["type"]);
        let known = ["RuntimeDefault", "Unconfined"].contains(&profile);
        ensure!(known, "{at} {profile} is not implemented");
    }
    if kind == "spec.containers.env.value" && refers(text(value)) {
        bail!("{at}: $(VARIABLE) is not implemented: {value}");
    }
    let Some((_, fields)) = FIELDS.iter().find(|(it, _)| *it == kind) else {
        return Ok(());
    };
    for (field, value) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{field}");
        let known = fields.split_whitespace().any(|it| it == field);
        ensure!(known, "{at} is not implemented");
        let deeper = format!("{kind}.{field}");
        let same = SAME.iter().find(|(it, _)| *it == deeper);
        walk(&at, same.map_or(&*deeper, |(_, kind)| kind), value)?;
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
