//! The items of a section, one kind after another, with what is wrong told by its place.

use super::{
    Inputs, Staged,
    text::{Values, quoted},
};
use crate::{
    document::ChangeClass,
    item::{
        Certificate, DefenderExclusion, Directory, Environment, Feature, File, FileSource,
        Firewall, HnsEndpoint, HnsNetwork, Hostname, Http, Item, Lingering, NetworkFile, Route,
        Service, SteadyService, Sweep, VERSION_MARK, What,
    },
    payload::Manifest,
    problem::Problem,
    profile::{FileSpec, MirrorSpec, SectionSpec, ServiceSpec, Word},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{collections::BTreeSet, fmt::Write as _};

/// Collects items and problems.
pub(super) struct Items<'a> {
    values: Values<'a>,
    manifest: &'a Manifest,
    items: Vec<Item>,
    payload: Vec<Staged>,
    problems: Vec<Problem>,
    ids: BTreeSet<String>,
}

/// Content that may be a secret is left out of a digest; its SHA-256 stays.
pub(super) fn blank(item: &mut Item) {
    if let What::File(File { source: FileSource::Inline { base64 }, .. }) = &mut item.what {
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
        }
    }

    pub(super) fn done(self) -> (Vec<Item>, Vec<Staged>, Vec<Problem>) {
        (self.items, self.payload, self.problems)
    }

    fn push(&mut self, id: String, change: ChangeClass, what: What) {
        if self.ids.insert(id.to_lowercase()) {
            self.items.push(Item { id, change, what });
        } else {
            self.wrong(id, "is there twice".into());
        }
    }

    fn wrong(&mut self, place: impl Into<String>, reason: String) {
        self.problems.push(Problem::new(place, reason));
    }

    /// The filled-in text; a problem is told, and the text is then empty.
    fn fill(&mut self, place: &str, text: &str) -> String {
        self.values.fill(text).unwrap_or_else(|reason| {
            self.wrong(place, reason);
            String::new()
        })
    }

    fn path(&mut self, place: &str, text: &str) -> String {
        let path = self.fill(place, text);
        let absolute = path.as_bytes().get(1..3) == Some(b":\\");
        if !absolute && !path.is_empty() {
            self.wrong(place, format!("`{path}` is not an absolute path with a drive"));
        }
        path
    }

    pub(super) fn directories(&mut self, spec: &SectionSpec) {
        for (path, directory) in &spec.directories {
            let path = self.path(&format!("directories.{path}"), path);
            let what = What::Directory(Directory { path: path.clone(), keep: directory.keep });
            self.push(format!("directory:{path}"), ChangeClass::Live, what);
        }
    }

    pub(super) fn features(&mut self, spec: &SectionSpec) {
        for (name, feature) in &spec.features {
            if self.values.holds(&feature.when) {
                let what = What::Feature(Feature { name: name.clone() });
                self.push(format!("feature:{name}"), feature.change, what);
            }
        }
    }

    pub(super) fn hostname(&mut self, spec: &SectionSpec) {
        let name = self.fill("hostname", &spec.hostname);
        if !name.is_empty() {
            self.push("hostname".into(), ChangeClass::Replace, What::Hostname(Hostname { name }));
        }
    }

    pub(super) fn environment(&mut self, spec: &SectionSpec) {
        for (name, variable) in &spec.environment {
            let value = self.fill(&format!("environment.{name}"), &variable.value);
            let value = (!value.is_empty()).then_some(value);
            let change = if variable.reboot { ChangeClass::Drain } else { ChangeClass::Live };
            let reboot = variable.reboot;
            let what = What::Environment(Environment { name: name.clone(), value, reboot });
            self.push(format!("environment:{name}"), change, what);
        }
    }

    pub(super) fn certificates(&mut self, spec: &SectionSpec) {
        for (name, certificate) in &spec.certificates {
            let place = format!("certificates.{name}");
            if !self.values.holds(&certificate.when) {
                continue;
            }
            let pem = self.fill(&place, &certificate.pem);
            match der(&pem) {
                Err(reason) => self.wrong(place, reason),
                Ok(all) => {
                    for (n, der) in all.iter().enumerate() {
                        let sha256 = crate::sha256_hex(der);
                        let base64 = STANDARD.encode(der);
                        let what = What::Certificate(Certificate { sha256, base64 });
                        self.push(format!("certificate:{name}.{n}"), ChangeClass::Live, what);
                    }
                }
            }
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
            let (name, protocol, port) = (name.clone(), rule.protocol, rule.port);
            let id = format!("firewall:{name}");
            let what = What::Firewall(Firewall { name, protocol, port });
            self.push(id, ChangeClass::Live, what);
        }
    }

    pub(super) fn defender(&mut self, spec: &SectionSpec) {
        for (process, condition) in &spec.defender {
            if self.values.holds(&condition.when) {
                let process = self.path(&format!("defender.{process}"), process);
                let id = format!("defender:{process}");
                let what = What::DefenderExclusion(DefenderExclusion { process });
                self.push(id, ChangeClass::Live, what);
            }
        }
    }

    pub(super) fn payload_files(&mut self, spec: &SectionSpec) {
        for (name, wanted) in &spec.payload {
            if !self.values.holds(&wanted.when) {
                continue;
            }
            let Some(file) = self.manifest.file(name) else {
                self.wrong(format!("payload.{name}"), "the payload has no such file".into());
                continue;
            };
            let path = format!("${{PAYLOAD_DIR}}\\{}", file.destination);
            let path = self.path(&format!("payload.{name}"), &path);
            let source = FileSource::Staged { name: file.sha256.clone() };
            self.payload.push(Staged {
                name: name.clone(),
                destination: path.clone(),
                sha256: file.sha256.clone(),
                size: file.size,
            });
            let what = File {
                path: path.clone(),
                sha256: file.sha256.clone(),
                size: file.size,
                source,
                users: Vec::new(),
                private: false,
            };
            self.push(format!("file:{path}"), wanted.change, What::File(what));
        }
        if !spec.payload.is_empty() {
            self.version_mark();
        }
    }

    /// The mark by which a later sweep knows the payload's folder as one of ours.
    fn version_mark(&mut self) {
        let path = self.fill("payload_folder", "${PAYLOAD_DIR}") + "\\" + VERSION_MARK;
        let content = self.manifest.folder() + "\n";
        self.text_file(path, content, ChangeClass::Live, Vec::new(), false);
    }

    pub(super) fn files(&mut self, spec: &SectionSpec) {
        for (path, file) in &spec.files {
            if !self.values.holds(&file.when) {
                continue;
            }
            let place = format!("files.{path}");
            let (path, content) = (self.path(&place, path), self.content(&place, file));
            self.text_file(path, content, file.change, file.users.clone(), file.private);
        }
    }

    fn content(&mut self, place: &str, file: &FileSpec) -> String {
        match (&file.content, &file.json) {
            (Some(text), None) => self.fill(place, text),
            (None, Some(json)) => match self.values.fill_json(json) {
                Ok(json) => serde_json::to_string_pretty(&json).unwrap_or_default() + "\n",
                Err(reason) => {
                    self.wrong(place, reason);
                    String::new()
                }
            },
            _ => {
                self.wrong(place, "has to have either `content` or `json`".into());
                String::new()
            }
        }
    }

    fn text_file(
        &mut self,
        path: String,
        content: String,
        change: ChangeClass,
        users: Vec<String>,
        private: bool,
    ) {
        let what = File {
            path: path.clone(),
            sha256: crate::sha256_hex(content.as_bytes()),
            size: content.len() as u64,
            source: FileSource::Inline { base64: STANDARD.encode(content) },
            users,
            private,
        };
        self.push(format!("file:{path}"), change, What::File(what));
    }

    pub(super) fn mirrors(&mut self, spec: &SectionSpec) {
        for (host, mirror) in &spec.mirrors {
            let place = format!("mirrors.{host}");
            let folder = self.path("mirrors_folder", &spec.mirrors_folder);
            let content = self.hosts_toml(&place, mirror);
            // containerd reads these files anew with every pull.
            let path = format!("{folder}\\{}\\hosts.toml", mirror_folder(host));
            self.text_file(path, content, ChangeClass::Live, Vec::new(), true);
        }
    }

    fn hosts_toml(&mut self, place: &str, spec: &MirrorSpec) -> String {
        let mut text = String::new();
        if !spec.server.is_empty() {
            let server = self.fill(place, &spec.server);
            let _ = writeln!(text, "server = {}", toml_string(&server));
        }
        for mirror in &spec.mirrors {
            let url = self.fill(place, &mirror.url);
            let can = if mirror.resolve_tags { r#""pull", "resolve""# } else { r#""pull""# };
            let _ = writeln!(text, "\n[host.{}]\n  capabilities = [{can}]", toml_string(&url));
            let authorization = self.fill(place, &mirror.authorization);
            if !authorization.is_empty() {
                let value = toml_string(&authorization);
                let _ = writeln!(
                    text,
                    "  [host.{}.header]\n    Authorization = {value}",
                    toml_string(&url)
                );
            }
        }
        text
    }

    pub(super) fn routes(&mut self, spec: &SectionSpec) {
        for (prefix, condition) in &spec.routes {
            if self.values.holds(&condition.when) {
                let what = What::Route(Route { prefix: prefix.clone() });
                self.push(format!("route:{prefix}"), ChangeClass::Live, what);
            }
        }
    }

    pub(super) fn network(&mut self, spec: &SectionSpec) {
        let Some(network) = &spec.network else { return };
        for other in &network.also {
            let name = self.fill("network.also", other);
            let what = HnsNetwork { name: name.clone(), wait_ms: network.wait_ms, create: None };
            self.push(format!("network:{name}"), ChangeClass::Drain, What::HnsNetwork(what));
        }
        let name = self.fill("network.name", &network.name);
        let what = HnsNetwork {
            name: name.clone(),
            wait_ms: network.wait_ms,
            create: network.create.clone(),
        };
        self.push(format!("network:{name}"), ChangeClass::Drain, What::HnsNetwork(what));
        let endpoint = (!network.endpoint.is_empty()).then(|| network.endpoint.clone());
        if let Some(endpoint) = &endpoint {
            let what = HnsEndpoint { network: name.clone(), name: endpoint.clone() };
            self.push(
                format!("endpoint:{endpoint}"),
                ChangeClass::Restart,
                What::HnsEndpoint(what),
            );
        }
        for (path, file) in &network.files {
            if !self.values.holds(&file.when) {
                continue;
            }
            let place = format!("network.files.{path}");
            let (path, template) = (self.path(&place, path), self.content(&place, file));
            let what = NetworkFile {
                path: path.clone(),
                template,
                network: name.clone(),
                endpoint: endpoint.clone(),
                users: file.users.clone(),
            };
            self.push(format!("file:{path}"), file.change, What::NetworkFile(what));
        }
    }

    pub(super) fn services(&mut self, spec: &SectionSpec, needs_network: bool) {
        let order = match in_order(spec) {
            Ok(order) => order,
            Err(reason) if !needs_network => return self.wrong("services", reason),
            Err(_) => return,
        };
        for name in order {
            let service = &spec.services[&name];
            if service.needs_network == needs_network && self.values.holds(&service.when) {
                self.service(&name, service);
            }
        }
    }

    fn service(&mut self, name: &str, spec: &ServiceSpec) {
        let place = format!("services.{name}");
        let mut words = Vec::new();
        for word in &spec.command {
            match word {
                Word::Always(word) => words.push(self.fill(&place, word)),
                Word::Maybe(maybe) if self.values.holds(&maybe.when) => {
                    words.extend(maybe.words.iter().map(|word| self.fill(&place, word)));
                }
                Word::Maybe(_) => {}
            }
        }
        if words.is_empty() {
            self.wrong(place.clone(), "has no command".into());
        }
        let mut environment = std::collections::BTreeMap::new();
        for (key, value) in &spec.environment {
            let value = self.fill(&place, value);
            if !value.is_empty() {
                environment.insert(key.clone(), value);
            }
        }
        let log = self.fill(&place, &spec.log);
        let what = Service {
            name: name.to_owned(),
            display: name.to_owned(),
            description: spec.description.clone(),
            command: words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            depends: spec.depends.clone(),
            start: spec.start,
            failure: spec.failure.clone(),
            environment,
            priority: spec.priority.clone(),
            running: !spec.stopped,
            start_timeout_ms: spec.start_timeout_ms,
            log: (!log.is_empty()).then_some(log),
        };
        self.push(format!("service:{name}"), spec.change, What::Service(what));
    }

    pub(super) fn evidence(&mut self, spec: &SectionSpec) {
        for (name, evidence) in &spec.evidence {
            if !self.values.holds(&evidence.when) {
                continue;
            }
            let place = format!("evidence.{name}");
            let log = self.fill(&place, &evidence.log);
            let log = (!log.is_empty()).then_some(log);
            let what = match (evidence.service.is_empty(), evidence.http.is_empty()) {
                (false, true) => What::SteadyService(SteadyService {
                    service: evidence.service.clone(),
                    steady_ms: evidence.steady_ms,
                    log,
                }),
                (true, false) => {
                    let url = self.fill(&place, &evidence.http);
                    What::Http(Http { url, wait_ms: evidence.wait_ms, log })
                }
                _ => {
                    self.wrong(place, "has to have either `service` or `http`".into());
                    continue;
                }
            };
            self.push(format!("evidence:{name}"), ChangeClass::Live, what);
        }
    }

    pub(super) fn lingering(&mut self, spec: &SectionSpec) {
        for (process, condition) in &spec.lingering {
            if self.values.holds(&condition.when) {
                let what = What::Lingering(Lingering { process: process.clone() });
                self.push(format!("lingering:{process}"), ChangeClass::Live, what);
            }
        }
    }

    /// Folders of older payloads go, once this one serves.
    pub(super) fn sweep(&mut self, inputs: &Inputs<'_>) {
        let folder = self.fill("payload_folder", &inputs.profile.payload_folder);
        let Some((under, this)) = folder.rsplit_once('\\') else { return };
        let mut keep = vec![this.to_owned()];
        keep.extend(inputs.keep.iter().filter(|kept| *kept != this).cloned());
        let what = What::Sweep(Sweep { under: under.to_owned(), keep });
        self.push("sweep".into(), ChangeClass::Live, what);
    }
}

/// The services of a section, each after those that it depends on.
fn in_order(spec: &SectionSpec) -> Result<Vec<String>, String> {
    fn visit(
        name: &str,
        spec: &SectionSpec,
        path: &mut Vec<String>,
        order: &mut Vec<String>,
    ) -> Result<(), String> {
        if order.iter().any(|done| done == name) {
            return Ok(());
        }
        if path.iter().any(|above| above == name) {
            return Err(format!("{} → {name} is a circle", path.join(" → ")));
        }
        // A service of the other section, or of Windows itself, is there already.
        let Some(service) = spec.services.get(name) else { return Ok(()) };
        path.push(name.to_owned());
        for needed in &service.depends {
            visit(needed, spec, path, order)?;
        }
        path.pop();
        order.push(name.to_owned());
        Ok(())
    }
    let mut order = Vec::new();
    for name in spec.services.keys() {
        visit(name, spec, &mut Vec::new(), &mut order)?;
    }
    Ok(order)
}

/// The certificates of a PEM text.
fn der(pem: &str) -> Result<Vec<Vec<u8>>, String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut found = Vec::new();
    let mut rest = pem;
    while let Some(at) = rest.find(BEGIN) {
        let body = &rest[at + BEGIN.len()..];
        let end = body.find(END).ok_or("a certificate without its end")?;
        let text: String = body[..end].split_whitespace().collect();
        found.push(STANDARD.decode(text).map_err(|e| format!("not base64: {e}"))?);
        rest = &body[end + END.len()..];
    }
    if found.is_empty() { Err("no certificate in it".into()) } else { Ok(found) }
}

/// containerd's name for a registry's folder: `host:port` is `host_port_`, and `*` stands for every registry.
fn mirror_folder(host: &str) -> String {
    match host.rsplit_once(':') {
        _ if host == "*" => "_default".to_owned(),
        Some((name, port)) => format!("{name}_{port}_"),
        None => host.to_owned(),
    }
}

/// A basic string of TOML.
fn toml_string(text: &str) -> String {
    // JSON's escapes are a subset of TOML's.
    serde_json::to_string(text).unwrap_or_default()
}
