//! Folders of a pod's volumes, with the contents, modes and owners that a kubelet gives them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Shared;
use super::spec::{list, text};

/// Makes a volume, and answers its folder.
pub(super) fn made(node: &Shared, pod: &Value, volume: &Value, at: &Path) -> Result<PathBuf> {
    let group = pod["spec"]["securityContext"]["fsGroup"].as_u64();
    let group = group.map(u32::try_from).transpose()?;
    if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
        let path = claimed(node, text(&pod["metadata"]["namespace"]), claim)?;
        let policy = &pod["spec"]["securityContext"]["fsGroupChangePolicy"];
        let fits = |group| fs::metadata(&path).is_ok_and(|it| it.gid() == group);
        match group {
            Some(group) if policy != "OnRootMismatch" || !fits(group) => own(&path, group, false)?,
            _ => {}
        }
        return Ok(path);
    }
    let path = at.join(text(&volume["name"]));
    fs::create_dir_all(&path)?;
    let writable = volume["emptyDir"].is_object();
    fs::set_permissions(
        &path,
        Permissions::from_mode(if writable { 0o777 } else { 0o755 }),
    )?;
    if volume["projected"].is_object() {
        for source in list(&volume["projected"]["sources"]) {
            fill(
                node,
                pod,
                source,
                &volume["projected"]["defaultMode"],
                &path,
            )?;
        }
    } else if !writable {
        fill(node, pod, volume, &Value::Null, &path)?;
    }
    if let Some(group) = group {
        own(&path, group, !writable)?;
    }
    Ok(path)
}

/// The folder of the volume that a claim is bound to.
fn claimed(node: &Shared, namespace: &str, claim: &str) -> Result<PathBuf> {
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}");
    let claim = node.get(&path)?;
    let volume = claim["spec"]["volumeName"]
        .as_str()
        .context("the claim is not bound")?;
    let volume = node.get(&format!("/api/v1/persistentvolumes/{volume}"))?;
    let path = volume["spec"]["local"]["path"].as_str();
    path.map(PathBuf::from)
        .context("a volume that is not `local` is not implemented")
}

fn fill(node: &Shared, pod: &Value, source: &Value, mode: &Value, into: &Path) -> Result<()> {
    let namespace = text(&pod["metadata"]["namespace"]);
    let token = &source["serviceAccountToken"];
    if token.is_object() {
        let identity = &pod["spec"]["securityContext"];
        let mode = match identity["fsGroup"].is_u64() || identity["runAsUser"].is_u64() {
            true => json!(0o600),
            false => mode.clone(),
        };
        let path = into.join(text(&token["path"]));
        put(
            &path,
            &Value::Null,
            &mode,
            granted(node, pod, token)?.as_bytes(),
        )?;
        let user = identity["runAsUser"].as_u64();
        return Ok(chown(path, user.map(u32::try_from).transpose()?, None)?);
    }
    if source["downwardAPI"].is_object() {
        for item in list(&source["downwardAPI"]["items"]) {
            let value = field(pod, text(&item["fieldRef"]["fieldPath"]))?;
            put(
                &into.join(text(&item["path"])),
                &item["mode"],
                mode,
                value.as_bytes(),
            )?;
        }
        return Ok(());
    }
    let (kind, plural) = match source["secret"].is_object() {
        true => ("secret", "secrets"),
        false => ("configMap", "configmaps"),
    };
    let source = &source[kind];
    let name = source["secretName"].as_str().or(source["name"].as_str());
    let name = name.context("a source without a name")?;
    let Some(data) = data(node, namespace, plural, name, source["optional"] == true)? else {
        return Ok(());
    };
    let mode = if source["defaultMode"].is_null() {
        mode
    } else {
        &source["defaultMode"]
    };
    let items = list(&source["items"]);
    for (key, bytes) in data {
        let item = items.iter().find(|item| item["key"] == key.as_str());
        match item {
            Some(item) => put(&into.join(text(&item["path"])), &item["mode"], mode, &bytes)?,
            None if items.is_empty() => put(&into.join(&key), &Value::Null, mode, &bytes)?,
            None => {}
        }
    }
    Ok(())
}

/// A token of the pod's account, bound to the pod.
fn granted(node: &Shared, pod: &Value, token: &Value) -> Result<String> {
    let metadata = &pod["metadata"];
    let audiences: Vec<&str> = token["audience"].as_str().into_iter().collect();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": audiences, "expirationSeconds": token["expirationSeconds"],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"],
                "uid": metadata["uid"]}}});
    let path = format!(
        "/api/v1/namespaces/{}/serviceaccounts/{}/token",
        text(&metadata["namespace"]),
        text(&pod["spec"]["serviceAccountName"])
    );
    let answer = node
        .api
        .object("POST", &path, Some(("application/json", &request)))?;
    Ok(text(&answer["status"]["token"]).to_owned())
}

/// Contents of a Secret or a ConfigMap; none of an optional one that is not there.
pub(super) fn data(
    node: &Shared,
    namespace: &str,
    plural: &str,
    name: &str,
    optional: bool,
) -> Result<Option<BTreeMap<String, Vec<u8>>>> {
    let object = match node.get(&format!("/api/v1/namespaces/{namespace}/{plural}/{name}")) {
        Ok(object) => object,
        Err(error) if optional && format!("{error:#}").contains(": 404: ") => return Ok(None),
        Err(error) => return Err(error),
    };
    let decode = |(key, value): (&String, &Value)| {
        let bytes = match plural {
            "secrets" => STANDARD.decode(text(value))?,
            _ => text(value).as_bytes().to_vec(),
        };
        Ok((key.clone(), bytes))
    };
    let data = object["data"].as_object().into_iter().flatten();
    data.map(decode).collect::<Result<_>>().map(Some)
}

pub(super) fn field(pod: &Value, path: &str) -> Result<String> {
    let known = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
    ];
    if !known.contains(&path) {
        bail!("fieldRef {path} is not implemented");
    }
    let value = path.split('.').fold(pod, |value, part| &value[part]);
    Ok(text(value).to_owned())
}

fn put(path: &Path, own: &Value, default: &Value, bytes: &[u8]) -> Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, bytes)?;
    let mode = own.as_u64().or(default.as_u64()).unwrap_or(0o644);
    Ok(fs::set_permissions(
        path,
        Permissions::from_mode(u32::try_from(mode)?),
    )?)
}

/// What `fsGroup` does: the group owns everything, may read it, and write it where the volume can be written.
fn own(path: &Path, group: u32, read_only: bool) -> Result<()> {
    chown(path, None, Some(group))?;
    let found = fs::metadata(path)?;
    let mut mask = if read_only { 0o440 } else { 0o660 };
    if found.is_dir() {
        mask |= 0o2110;
    }
    fs::set_permissions(path, Permissions::from_mode(found.mode() | mask))?;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            own(&entry?.path(), group, read_only)?;
        }
    }
    Ok(())
}
