//! Services of a section in order, the network between them, and the evidence that they work.

use std::collections::{BTreeMap, BTreeSet};

use super::{items::Items, text::quoted};
use crate::{
    document::ChangeClass,
    item::{HnsEndpoint, HnsNetwork, Http, Image, ItemKind, NetworkFile, Service, SteadyService},
    profile::{CommandWord, FileSpec, NetworkSpec, SectionSpec, ServiceSpec},
};

impl Items<'_> {
    pub(super) fn network(&mut self, spec: &SectionSpec) {
        let Some(network) = &spec.network else { return };
        for other in &network.also {
            let name = self.fill("network.also", other);
            let what = HnsNetwork {
                name: name.clone(),
                wait_ms: network.wait_ms,
                create: None,
            };
            self.push(
                format!("network:{name}"),
                ChangeClass::Drain,
                ItemKind::HnsNetwork(what),
            );
        }
        let name = self.fill("network.name", &network.name);
        let what = HnsNetwork {
            name: name.clone(),
            wait_ms: network.wait_ms,
            create: network.create.clone(),
        };
        self.push(
            format!("network:{name}"),
            ChangeClass::Drain,
            ItemKind::HnsNetwork(what),
        );
        let endpoint = (!network.endpoint.is_empty()).then(|| network.endpoint.clone());
        if let Some(endpoint) = &endpoint {
            let users = self.endpoint_users(network);
            let what = HnsEndpoint {
                network: name.clone(),
                name: endpoint.clone(),
                users,
            };
            self.push(
                format!("endpoint:{endpoint}"),
                ChangeClass::Restart,
                ItemKind::HnsEndpoint(what),
            );
        }
        for (path, file) in &network.files {
            if !self.values.holds(&file.when) {
                continue;
            }
            let location = format!("network.files.{path}");
            let path = self.path(&location, path);
            let template = self.content(&location, file);
            let what = NetworkFile {
                path: path.clone(),
                template,
                network: name.clone(),
                endpoint: endpoint.clone(),
                users: file.users.clone(),
            };
            self.push(
                format!("file:{path}"),
                file.change,
                ItemKind::NetworkFile(what),
            );
        }
    }

    /// Services that read the endpoint's address from a file of the network.
    fn endpoint_users(&self, network: &NetworkSpec) -> Vec<String> {
        let reads = |file: &&FileSpec| {
            let text = serde_json::to_string(file).unwrap_or_default();
            self.values.holds(&file.when) && text.contains("@{HNS_ENDPOINT_IP}")
        };
        let users = network
            .files
            .values()
            .filter(reads)
            .flat_map(|file| file.users.clone());
        users.collect::<BTreeSet<_>>().into_iter().collect()
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
                self.images(spec, &name);
            }
        }
    }

    /// The images that are imported through a service: right after it, so before what depends on it starts.
    fn images(&mut self, spec: &SectionSpec, service: &str) {
        for (name, image) in &spec.images {
            if image.service != service || !self.values.holds(&image.when) {
                continue;
            }
            let location = format!("images.{name}");
            let name = self.fill(&location, name);
            let Some(file) = self.manifest.file(&image.archive) else {
                let reason = format!("the payload has no `{}`", image.archive);
                self.wrong(location, reason);
                continue;
            };
            let archive = format!("${{PAYLOAD_DIR}}\\{}", file.destination);
            let what = Image {
                archive: self.path(&location, &archive),
                name: name.clone(),
                pipe: self.fill(&location, &image.pipe),
                wait_ms: image.wait_ms,
            };
            self.push(format!("image:{name}"), image.change, ItemKind::Image(what));
        }
    }

    fn service(&mut self, name: &str, spec: &ServiceSpec) {
        let location = format!("services.{name}");
        let mut words = Vec::new();
        for word in &spec.command {
            match word {
                CommandWord::Always(word) => words.push(self.fill(&location, word)),
                CommandWord::Maybe(maybe) if self.values.holds(&maybe.when) => {
                    words.extend(maybe.words.iter().map(|word| self.fill(&location, word)));
                }
                CommandWord::Maybe(_) => {}
            }
        }
        if words.is_empty() {
            self.wrong(location.clone(), "has no command".into());
        }
        let mut environment = BTreeMap::new();
        for (key, value) in &spec.environment {
            let value = self.fill(&location, value);
            if !value.is_empty() {
                environment.insert(key.clone(), value);
            }
        }
        let log = self.fill(&location, &spec.log);
        let what = Service {
            name: name.to_owned(),
            display: name.to_owned(),
            description: spec.description.clone(),
            command: words
                .iter()
                .map(|word| quoted(word))
                .collect::<Vec<_>>()
                .join(" "),
            depends: spec.depends.clone(),
            start: spec.start,
            failure: spec.failure.clone(),
            environment,
            priority: spec.priority.clone(),
            running: !spec.stopped,
            start_timeout_ms: spec.start_timeout_ms,
            log: (!log.is_empty()).then_some(log),
        };
        self.push(
            format!("service:{name}"),
            spec.change,
            ItemKind::Service(what),
        );
    }

    pub(super) fn evidence(&mut self, spec: &SectionSpec) {
        for (name, evidence) in &spec.evidence {
            if !self.values.holds(&evidence.when) {
                continue;
            }
            let location = format!("evidence.{name}");
            let log = self.fill(&location, &evidence.log);
            let log = (!log.is_empty()).then_some(log);
            let what = match (evidence.service.is_empty(), evidence.http.is_empty()) {
                (false, true) => ItemKind::SteadyService(SteadyService {
                    service: evidence.service.clone(),
                    steady_ms: evidence.steady_ms,
                    log,
                }),
                (true, false) => {
                    let url = self.fill(&location, &evidence.http);
                    ItemKind::Http(Http {
                        url,
                        wait_ms: evidence.wait_ms,
                        log,
                    })
                }
                _ => {
                    self.wrong(location, "has to have either `service` or `http`".into());
                    continue;
                }
            };
            self.push(format!("evidence:{name}"), ChangeClass::Live, what);
        }
    }
}

/// Services of a section, each after its dependencies.
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
        // A service of the other section, or of Windows itself, already exists.
        let Some(service) = spec.services.get(name) else {
            return Ok(());
        };
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
