//! Items of a section by kind, with the location of each problem.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Inputs, Staged, text::Values};
use crate::{
    document::ChangeClass,
    item::{
        Certificate, DefenderExclusion, Directory, DisabledService, DynamicPorts, Environment,
        Feature, File, FileSource, Firewall, Hostname, Item, ItemKind, Lingering, NewestFiles,
        OnlyCertificates, Route, Sweep,
    },
    payload::Manifest,
    problem::Problem,
    profile::SectionSpec,
};

/// Least first port that `netsh` sets, and the least number of ports (docs/field-notes.md, Ports of VXLAN and of
/// clients).
const DYNAMIC_START_MIN: u16 = 1_025;
const DYNAMIC_COUNT_MIN: u16 = 255;
/// First and last NodePort where the API server has no other `--service-node-port-range` (kubernetes v1.37.2
/// `pkg/kubeapiserver/options/options.go`, `DefaultServiceNodePortRange`).
const NODE_PORTS: (u16, u16) = (30_000, 32_767);

/// Collects items and problems.
pub(super) struct Items<'a> {
    pub(super) values: Values<'a>,
    pub(super) manifest: &'a Manifest,
    items: Vec<Item>,
    pub(super) payload: Vec<Staged>,
    problems: Vec<Problem>,
    ids: BTreeSet<String>,
    /// Files that stay as they are on the host.
    pub(super) kept: Vec<String>,
}

/// Removes content that may be secret before a digest; its SHA-256 stays.
pub(super) fn blank(item: &mut Item) {
    if let ItemKind::File(File {
        source: FileSource::Inline { base64 },
        ..
    }) = &mut item.what
    {
        base64.clear();
    }
}

impl<'a> Items<'a> {
    pub(super) fn new(values: Values<'a>, manifest: &'a Manifest) -> Self {
        Self {
            values,
            manifest,
            items: Vec::new(),
            payload: Vec::new(),
            problems: Vec::new(),
            ids: BTreeSet::new(),
            kept: Vec::new(),
        }
    }

    pub(super) fn done(self) -> (Vec<Item>, Vec<Staged>, Vec<Problem>) {
        (self.items, self.payload, self.problems)
    }

    pub(super) fn push(&mut self, id: String, change: ChangeClass, what: ItemKind) {
        if self.ids.insert(id.to_lowercase()) {
            self.items.push(Item { id, change, what });
        } else {
            self.wrong(id, "is there twice".into());
        }
    }

    pub(super) fn wrong(&mut self, location: impl Into<String>, reason: String) {
        self.problems.push(Problem::new(location, reason));
    }

    /// Text with variables filled in. After a problem, which is collected, it is empty.
    pub(super) fn fill(&mut self, location: &str, text: &str) -> String {
        self.values.fill(text).unwrap_or_else(|reason| {
            self.wrong(location, reason);
            String::new()
        })
    }

    pub(super) fn path(&mut self, location: &str, text: &str) -> String {
        let path = self.fill(location, text);
        let absolute = path.as_bytes().get(1..3) == Some(b":\\");
        if !absolute && !path.is_empty() {
            self.wrong(
                location,
                format!("`{path}` is not an absolute path with a drive"),
            );
        }
        path
    }

    pub(super) fn directories(&mut self, spec: &SectionSpec) {
        for (path, directory) in &spec.directories {
            if !self.values.holds(&directory.when) {
                continue;
            }
            let path = self.path(&format!("directories.{path}"), path);
            let what = ItemKind::Directory(Directory {
                path: path.clone(),
                keep: directory.keep,
            });
            self.push(format!("directory:{path}"), ChangeClass::Live, what);
        }
    }

    pub(super) fn features(&mut self, spec: &SectionSpec) {
        for (name, feature) in &spec.features {
            if self.values.holds(&feature.when) {
                let what = ItemKind::Feature(Feature { name: name.clone() });
                self.push(format!("feature:{name}"), feature.change, what);
            }
        }
    }

    pub(super) fn hostname(&mut self, spec: &SectionSpec) {
        let name = self.fill("hostname", &spec.hostname);
        if !name.is_empty() {
            self.push(
                "hostname".into(),
                ChangeClass::Replace,
                ItemKind::Hostname(Hostname { name }),
            );
        }
    }

    pub(super) fn environment(&mut self, spec: &SectionSpec) {
        for (name, variable) in &spec.environment {
            if !self.values.holds(&variable.when) {
                continue;
            }
            let value = self.fill(&format!("environment.{name}"), &variable.value);
            let value = (!value.is_empty()).then_some(value);
            let change = if variable.reboot {
                ChangeClass::Drain
            } else {
                ChangeClass::Live
            };
            let reboot = variable.reboot;
            let what = ItemKind::Environment(Environment {
                name: name.clone(),
                value,
                reboot,
            });
            self.push(format!("environment:{name}"), change, what);
        }
    }

    pub(super) fn dynamic_ports(&mut self, spec: &SectionSpec) {
        let Some(ports) = &spec.dynamic_ports else {
            return;
        };
        if !self.values.holds(&ports.when) {
            return;
        }
        let start = ports.start;
        let count = ports.count;
        let end = u32::from(start) + u32::from(count);
        if start < DYNAMIC_START_MIN || count < DYNAMIC_COUNT_MIN || end > 65_536 {
            let reason = format!(
                "{count} ports from {start} on: Windows takes at least {DYNAMIC_COUNT_MIN}, from \
                 {DYNAMIC_START_MIN} on, and up to 65535"
            );
            self.wrong("dynamic_ports", reason);
        }
        let (first, last) = NODE_PORTS;
        if start <= last && end > u32::from(first) {
            let reason = format!(
                "{count} ports from {start} on: NodePorts are {first} to {last}, and a port cannot be both"
            );
            self.wrong("dynamic_ports", reason);
        }
        let what = ItemKind::DynamicPorts(DynamicPorts { start, count });
        self.push("dynamic-ports:tcp".into(), ports.change, what);
    }

    pub(super) fn certificates(&mut self, spec: &SectionSpec) {
        let mut keep = Vec::new();
        for (name, certificate) in &spec.certificates {
            let location = format!("certificates.{name}");
            if !self.values.holds(&certificate.when) {
                continue;
            }
            let pem = self.fill(&location, &certificate.pem);
            match der(&pem) {
                Err(reason) => self.wrong(location, reason),
                Ok(all) => {
                    for (n, der) in all.iter().enumerate() {
                        let sha256 = crate::sha256_hex(der);
                        let base64 = STANDARD.encode(der);
                        keep.push(sha256.clone());
                        let what = ItemKind::Certificate(Certificate { sha256, base64 });
                        self.push(format!("certificate:{name}.{n}"), ChangeClass::Live, what);
                    }
                }
            }
        }
        // Also without a bundle, so that its former certificates are removed.
        if !spec.certificates.is_empty() {
            let what = ItemKind::OnlyCertificates(OnlyCertificates { keep });
            self.push("only:certificates".into(), ChangeClass::Live, what);
        }
    }

    pub(super) fn firewall(&mut self, spec: &SectionSpec) {
        for (name, rule) in &spec.firewall {
            if !self.values.holds(&rule.when) {
                continue;
            }
            if rule.port == 0 {
                self.wrong(format!("firewall.{name}"), "names no port".into());
            }
            let name = name.clone();
            let protocol = rule.protocol;
            let port = rule.port;
            let id = format!("firewall:{name}");
            let what = ItemKind::Firewall(Firewall {
                name,
                protocol,
                port,
            });
            self.push(id, ChangeClass::Live, what);
        }
    }

    pub(super) fn defender(&mut self, spec: &SectionSpec) {
        for (process, condition) in &spec.defender {
            if self.values.holds(&condition.when) {
                let process = self.path(&format!("defender.{process}"), process);
                let id = format!("defender:{process}");
                let what = ItemKind::DefenderExclusion(DefenderExclusion { process });
                self.push(id, ChangeClass::Live, what);
            }
        }
    }
    pub(super) fn routes(&mut self, spec: &SectionSpec) {
        for (prefix, condition) in &spec.routes {
            if self.values.holds(&condition.when) {
                let what = ItemKind::Route(Route {
                    prefix: prefix.clone(),
                });
                self.push(format!("route:{prefix}"), ChangeClass::Live, what);
            }
        }
    }

    pub(super) fn disabled_services(&mut self, spec: &SectionSpec) {
        for (name, condition) in &spec.disabled_services {
            if self.values.holds(&condition.when) {
                let what = ItemKind::DisabledService(DisabledService { name: name.clone() });
                self.push(format!("disabled:{name}"), ChangeClass::Live, what);
            }
        }
    }

    pub(super) fn newest_files(&mut self, spec: &SectionSpec) {
        for (name, files) in &spec.newest_files {
            if !self.values.holds(&files.when) {
                continue;
            }
            let location = format!("newest_files.{name}");
            // Without them all files of a folder would be meant.
            if files.prefix.is_empty() || files.suffix.is_empty() || files.keep == 0 {
                let reason = "needs a prefix, a suffix, and at least one file to keep";
                self.wrong(location, reason.into());
                continue;
            }
            let what = ItemKind::NewestFiles(NewestFiles {
                under: self.path(&location, &files.under),
                prefix: files.prefix.clone(),
                suffix: files.suffix.clone(),
                keep: files.keep,
                current: (!files.current.is_empty()).then(|| files.current.clone()),
            });
            self.push(format!("newest:{name}"), ChangeClass::Live, what);
        }
    }

    pub(super) fn lingering(&mut self, spec: &SectionSpec) {
        for (process, condition) in &spec.lingering {
            if self.values.holds(&condition.when) {
                let what = ItemKind::Lingering(Lingering {
                    process: process.clone(),
                });
                self.push(format!("lingering:{process}"), ChangeClass::Live, what);
            }
        }
    }

    /// Adds the removal of older payloads' folders, once this one serves.
    pub(super) fn sweep(&mut self, inputs: &Inputs<'_>) {
        let folder = self.fill("payload_folder", &inputs.profile.payload_folder);
        let Some((under, this)) = folder.rsplit_once('\\') else {
            return;
        };
        let mut keep = vec![this.to_owned()];
        keep.extend(inputs.keep.iter().filter(|kept| *kept != this).cloned());
        let what = ItemKind::Sweep(Sweep {
            under: under.to_owned(),
            keep,
        });
        self.push("sweep".into(), ChangeClass::Live, what);
    }
}

/// Certificates of a PEM text.
fn der(pem: &str) -> Result<Vec<Vec<u8>>, String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut found = Vec::new();
    let mut rest = pem;
    while let Some(at) = rest.find(BEGIN) {
        let body = &rest[at + BEGIN.len()..];
        let end = body.find(END).ok_or("a certificate without its end")?;
        let text: String = body[..end].split_whitespace().collect();
        found.push(
            STANDARD
                .decode(text)
                .map_err(|e| format!("not base64: {e}"))?,
        );
        rest = &body[end + END.len()..];
    }
    if found.is_empty() {
        Err("no certificate in it".into())
    } else {
        Ok(found)
    }
}
