//! What runc is given for a container: the root of its files, and its configuration.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::spec::{list, text};
use super::{PodImage, Shared, volume};

/// What containerd gives a container that asks for nothing.
const CAPABILITIES: &str = "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP \
    NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE";
/// Where programs are looked for if the image does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What containerd hides, and what it shows for reading only.
const MASKED: &str = "/proc/asound /proc/acpi /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list \
    /proc/sched_debug /sys/firmware";
const READ_ONLY: &str = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger";

/// What a container's bundle is made of.
#[derive(Debug)]
pub(super) struct Bundle<'a> {
    pub(super) node: &'a Shared,
    pub(super) pod: &'a Value,
    pub(super) container: &'a Value,
    pub(super) image: &'a PodImage,
    /// Folders of the pod's volumes by their names.
    pub(super) volumes: &'a BTreeMap<String, PathBuf>,
    pub(super) namespace: &'a str,
    /// The pod's folder.
    pub(super) folder: &'a Path,
}

impl Bundle<'_> {
    /// Writes it into a new folder of this name.
    ///
    /// # Errors
    /// The container may not be started so, or a volume is missing.
    pub(super) fn write(&self, name: &str) -> Result<PathBuf> {
        let user = self.user()?;
        let at = self.folder.join(name);
        fs::create_dir_all(&at)?;
        let root = self.folder.join(format!("root-{name}"));
        self.layer(&root, &at)?;
        let config = json!({"ociVersion": "1.0.2", "hostname": self.pod["metadata"]["name"],
            "root": {"path": root, "readonly": self.security("readOnlyRootFilesystem") == true},
            "process": self.process(user)?, "mounts": self.mounts()?,
            "linux": {"namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
                    {"type": "network", "path": format!("/run/netns/{}", self.namespace)}],
                "resources": self.resources()?, "maskedPaths": words(MASKED), "readonlyPaths": words(READ_ONLY)}});
        fs::write(at.join("config.json"), config.to_string())?;
        Ok(at)
    }

    /// The image with a layer of the container's own above.
    fn layer(&self, root: &Path, at: &Path) -> Result<()> {
        let upper = at.join("upper");
        let work = at.join("work");
        for folder in [root, &upper, &work] {
            fs::create_dir_all(folder)?;
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            self.image.root.display(),
            upper.display(),
            work.display()
        );
        let done = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(root)
            .output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "mount {options}: {said}");
        Ok(())
    }

    /// A field of the container's security context, or else of the pod's.
    fn security(&self, field: &str) -> &Value {
        let own = &self.container["securityContext"][field];
        if own.is_null() {
            &self.pod["spec"]["securityContext"][field]
        } else {
            own
        }
    }

    fn user(&self) -> Result<(u64, u64)> {
        let asked = self.security("runAsUser").as_u64();
        let user = asked.unwrap_or(self.image.user.0.into());
        let of_image = asked.map_or(u64::from(self.image.user.1), |_| 0);
        let group = self.security("runAsGroup").as_u64().unwrap_or(of_image);
        let root = self.security("runAsNonRoot") == true && user == 0;
        ensure!(
            !root,
            "container has runAsNonRoot and image will run as root"
        );
        Ok((user, group))
    }

    fn process(&self, (user, group): (u64, u64)) -> Result<Value> {
        let pod = &self.pod["spec"]["securityContext"];
        let more = list(&pod["supplementalGroups"])
            .iter()
            .chain(Some(&pod["fsGroup"]));
        let more: Vec<&Value> = more.filter(|group| group.is_u64()).collect();
        let capabilities = self.capabilities();
        let command = list(&self.container["command"]);
        let mut args: Vec<&str> = match command.is_empty() {
            true => self.image.entrypoint.iter().map(String::as_str).collect(),
            false => command.iter().map(text).collect(),
        };
        args.extend(list(&self.container["args"]).iter().map(text));
        let variables = self.variables()?;
        let args: Vec<String> = args
            .into_iter()
            .map(|it| resolved(it, &variables))
            .collect();
        let escalation = self.container["securityContext"]["allowPrivilegeEscalation"] != false;
        Ok(json!({"terminal": false, "args": args, "env": variables,
            "cwd": self.container["workingDir"].as_str().unwrap_or("/"),
            "user": {"uid": user, "gid": group, "additionalGids": more},
            "noNewPrivileges": !escalation,
            "capabilities": {"bounding": capabilities, "effective": capabilities,
                "permitted": capabilities}}))
    }

    fn capabilities(&self) -> Vec<String> {
        let asked = &self.container["securityContext"]["capabilities"];
        let has = |field: &str, name: &str| {
            list(&asked[field])
                .iter()
                .any(|it| it == name || it == "ALL")
        };
        let all = words(CAPABILITIES).into_iter();
        let kept = all.filter(|name| !has("drop", name));
        let added = list(&asked["add"]).iter().map(text);
        kept.chain(added)
            .map(|name| format!("CAP_{name}"))
            .collect()
    }

    fn variables(&self) -> Result<Vec<String>> {
        let mut all = vec![format!("PATH={PATH}")];
        all.extend(self.image.env.iter().cloned());
        let namespace = text(&self.pod["metadata"]["namespace"]);
        all.push(format!("HOSTNAME={}", text(&self.pod["metadata"]["name"])));
        all.push(format!(
            "KUBERNETES_SERVICE_HOST={}",
            crate::kubernetes::SERVICE
        ));
        all.push(format!("KUBERNETES_SERVICE_PORT={}", self.node.api_port));
        for variable in list(&self.container["env"]) {
            let name = text(&variable["name"]);
            let from = &variable["valueFrom"];
            let value = if let Some(path) = from["fieldRef"]["fieldPath"].as_str() {
                Some(volume::field(self.pod, path)?)
            } else if from.is_object() {
                let (source, plural) = match from["secretKeyRef"].is_object() {
                    true => (&from["secretKeyRef"], "secrets"),
                    false => (&from["configMapKeyRef"], "configmaps"),
                };
                let optional = source["optional"] == true;
                let data = volume::data(
                    self.node,
                    namespace,
                    plural,
                    text(&source["name"]),
                    optional,
                )?;
                let key = text(&source["key"]);
                let found = data.and_then(|mut data| data.remove(key));
                ensure!(
                    found.is_some() || optional,
                    "couldn't find key {key} in {plural}"
                );
                found.map(String::from_utf8).transpose()?
            } else {
                Some(text(&variable["value"]).to_owned())
            };
            all.extend(value.map(|value| format!("{name}={value}")));
        }
        Ok(all)
    }

    fn mounts(&self) -> Result<Vec<Value>> {
        let quiet = ["nosuid", "noexec", "nodev"];
        let mut all = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc", "options": quiet}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
            json!({"destination": "/dev/pts", "type": "devpts", "source": "devpts",
                "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]}),
            json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
                "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]}),
            json!({"destination": "/sys", "type": "sysfs", "source": "sysfs",
                "options": ["nosuid", "noexec", "nodev", "ro"]}),
        ];
        let bind = |source: &Path, at: &str, how: &str| {
            json!({"destination": at, "type": "bind", "source": source,
                "options": ["rbind", "rprivate", how]})
        };
        for (file, at) in [("hosts", "/etc/hosts"), ("resolv.conf", "/etc/resolv.conf")] {
            all.push(bind(&self.folder.join(file), at, "rw"));
        }
        let log = self.container["terminationMessagePath"].as_str();
        all.push(bind(
            &self.folder.join("message"),
            log.unwrap_or("/dev/termination-log"),
            "rw",
        ));
        for mount in list(&self.container["volumeMounts"]) {
            let name = text(&mount["name"]);
            let volume = self
                .volumes
                .get(name)
                .with_context(|| format!("no volume {name}"))?;
            let source = volume.join(text(&mount["subPath"]));
            if !source.exists() {
                fs::create_dir_all(&source)?;
                fs::set_permissions(&source, fs::metadata(volume)?.permissions())?;
            }
            let volumes = list(&self.pod["spec"]["volumes"]);
            let spec = volumes
                .iter()
                .find(|it| it["name"] == name)
                .unwrap_or(&Value::Null);
            // Whatever comes from the API server cannot be written.
            let fixed = !spec["emptyDir"].is_object() && !spec["persistentVolumeClaim"].is_object();
            let read_only = fixed
                || mount["readOnly"] == true
                || spec["persistentVolumeClaim"]["readOnly"] == true;
            all.push(bind(
                &source,
                text(&mount["mountPath"]),
                if read_only { "ro" } else { "rw" },
            ));
        }
        Ok(all)
    }

    /// The limit of memory; requests are the scheduler's.
    fn resources(&self) -> Result<Value> {
        let devices = json!([{"allow": false, "access": "rwm"}]);
        let Some(limit) = self.container["resources"]["limits"]["memory"].as_str() else {
            return Ok(json!({"devices": devices}));
        };
        let units = [("Gi", 30), ("Mi", 20), ("Ki", 10)];
        let found = units
            .iter()
            .find_map(|(unit, bits)| Some((limit.strip_suffix(unit)?, *bits)));
        let (number, bits) = found.unwrap_or((limit, 0));
        let bytes = number
            .parse::<u64>()
            .with_context(|| format!("limits.memory {limit}"))?
            << bits;
        Ok(json!({"devices": devices, "memory": {"limit": bytes}}))
    }
}

/// A text with the values of the variables that it names as `$(NAME)`. An unknown one stays as it is.
fn resolved(text: &str, variables: &[String]) -> String {
    variables
        .iter()
        .filter_map(|it| it.split_once('='))
        .fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("$({name})"), value)
        })
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}
