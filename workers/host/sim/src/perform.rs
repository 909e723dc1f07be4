//! Each operation on the simulated host.

use dormer_host::ops::{
    Answer, Boot, Bytes, Clock, ContentSource, DismState, Domain, Host, Operation,
    OperationRequest, Outcome, RegistryNames, Rights, Root, Space, System, Value, WinError,
};

use crate::{
    COMPUTER, SimulatedHost,
    disk::{Result, refused},
    network::loopback,
};

impl Host for SimulatedHost {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        self.pass(1);
        self.log.push(request.operation.name());
        let name = request.operation.name();
        if let Some(at) = self
            .refusals
            .iter()
            .position(|(of, times, _)| *of == name && *times > 0)
        {
            self.refusals[at].1 -= 1;
            return Err(self.refusals[at].2.clone());
        }
        if self.ignores(&request.operation) {
            return self.clone().answer(request.operation);
        }
        let answer = self.answer(request.operation);
        self.disk.running = self.scm.mapped_files();
        answer
    }
}

impl SimulatedHost {
    fn ignores(&self, operation: &Operation) -> bool {
        self.ignored.iter().any(|(name, about)| {
            // `{:?}` writes each `\` twice.
            let asked = || format!("{operation:?}").replace(r"\\", r"\").to_lowercase();
            *name == operation.name() && asked().contains(about)
        })
    }

    fn answer(&mut self, operation: Operation) -> Outcome {
        use Operation as O;
        Ok(match operation {
            O::FileInformation(ask) => Answer::FileInformation(self.disk.stat(&ask.path)?),
            O::FileSecurity(ask) => Answer::FileSecurity(self.disk.security(&ask.path)?),
            O::FileRights(ask) => Answer::FileRights(self.disk.set_rights(&ask.path, ask.rights)?),
            O::FileDigest(ask) => Answer::FileDigest(self.disk.digest(&ask.path)?),
            O::FileRead(ask) => Answer::FileRead(self.disk.read(&ask.path, ask.most, ask.end)?),
            O::FileWriteNew(ask) => {
                Answer::FileWriteNew(self.disk.write_new(&ask.path, &ask.source, ask.rights)?)
            }
            O::FileRename(ask) => {
                self.disk.rename(&ask.from, &ask.to, ask.replace)?;
                self.scm.renamed(&ask.from, &ask.to);
                Answer::FileRename(())
            }
            O::FileDelete(ask) => Answer::FileDelete(self.disk.delete(&ask.path)?),
            O::FileProbe(ask) => Answer::FileProbe(self.disk.probe(&ask.path)?),
            O::FileAttributes(ask) => {
                Answer::FileAttributes(self.disk.set_attributes(&ask.path, ask.attributes)?)
            }
            O::FileVersion(ask) => Answer::FileVersion(self.version(&ask.path)?),
            O::DirectoryCreate(ask) => {
                Answer::DirectoryCreate(self.disk.create_folder(&ask.path, ask.rights)?)
            }
            O::DirectoryList(ask) => match self.disk.list(&ask.path) {
                // The pattern's folder is missing (sdk-api, FindFirstFileExW).
                Err(error) if error.code == 2 => return refused(3),
                listed => Answer::DirectoryList(listed?),
            },
            O::DirectoryRemove(ask) => Answer::DirectoryRemove(self.disk.remove_folder(&ask.path)?),
            O::TreeRemove(ask) => Answer::TreeRemove(self.disk.remove_tree(&ask.path)?),
            O::VolumeSpace(_) => Answer::VolumeSpace(Space {
                free: self.disk.free,
                total: self.disk.total,
            }),
            O::LockTake(ask) => Answer::LockTake(self.take_lock(&ask.path)?),
            O::LockRelease(ask) => {
                self.locks.retain(|lock| *lock != ask.path.to_lowercase());
                Answer::LockRelease(())
            }
            other => return self.answer_services(other),
        })
    }

    fn answer_services(&mut self, operation: Operation) -> Outcome {
        use Operation as O;
        Ok(match operation {
            O::ServiceList(_) => Answer::ServiceList(self.scm.list()?),
            O::ServiceRead(ask) => Answer::ServiceRead(self.scm.read(&ask.name)?),
            O::ServiceStatusRead(ask) => Answer::ServiceStatusRead(self.scm.status(&ask.name)?),
            O::ServiceCreate(ask) if ask.settings.command.is_none() => return refused(87),
            O::ServiceCreate(ask) => {
                Answer::ServiceCreate(self.scm.create(&ask.name, &ask.settings)?)
            }
            O::ServiceChange(ask) => {
                Answer::ServiceChange(self.scm.change(&ask.name, &ask.settings)?)
            }
            O::ServiceDescribe(ask) => {
                Answer::ServiceDescribe(self.scm.describe(&ask.name, &ask.description)?)
            }
            O::ServiceFailure(ask) => {
                Answer::ServiceFailure(self.scm.set_failure(&ask.name, &ask.actions)?)
            }
            O::ServiceStart(ask) => Answer::ServiceStart(self.start_service(&ask.name)?),
            O::ServiceStop(ask) => Answer::ServiceStop(self.scm.stop(&ask.name)?),
            O::ServiceDelete(ask) => {
                self.scm.delete(&ask.name)?;
                let gone = self.service_state(&ask.name).is_none();
                let key = format!(r"SYSTEM\CurrentControlSet\Services\{}", ask.name);
                if gone {
                    self.registry.remove(&key.to_lowercase());
                } else {
                    self.set_registry(&key, "DeleteFlag", Value::Number(1));
                }
                Answer::ServiceDelete(())
            }
            O::ProcessList(_) => Answer::ProcessList(self.scm.list_processes()),
            // Windows' own.
            O::ProcessHold(ask) if ask.pid == 4 => return refused(5),
            O::ProcessHold(ask) => Answer::ProcessHold(self.scm.hold_process(ask.pid)?),
            O::ProcessEnded(ask) => Answer::ProcessEnded(self.scm.has_ended(ask.process)?),
            O::ProcessEnd(ask) => Answer::ProcessEnd(self.scm.end_process(ask.process)?),
            O::ProcessRelease(ask) => {
                self.scm.release(ask.process);
                Answer::ProcessRelease(())
            }
            other => return self.answer_system(other),
        })
    }

    fn answer_system(&mut self, operation: Operation) -> Outcome {
        use Operation as O;
        Ok(match operation {
            O::RegistryRead(ask) => match self.registry(&ask.key, &ask.name) {
                Some(value) => Answer::RegistryRead(value),
                None => return refused(2),
            },
            O::RegistryList(ask) => Answer::RegistryList(self.names_in(&ask.key)?),
            O::RegistryWrite(ask) => {
                self.set_registry(&ask.key, &ask.name, ask.value);
                Answer::RegistryWrite(())
            }
            O::RegistryDelete(ask) => {
                let key = self.registry.get_mut(&ask.key.to_lowercase());
                match key.and_then(|key| key.remove(&ask.name.to_lowercase())) {
                    Some(_) => Answer::RegistryDelete(()),
                    None => return refused(2),
                }
            }
            O::EnvironmentTell(_) => Answer::EnvironmentTell(()),
            O::SystemRead(_) => Answer::SystemRead(System {
                version: [10, 0, self.build],
                product_type: 3,
                architecture: 9,
                dns_host_name: self.host_name("Hostname"),
                administrator: true,
            }),
            O::ClockRead(_) => Answer::ClockRead(Clock {
                now_ms: self.now_ms,
                tick_ms: self.tick_ms,
            }),
            O::BootRead(_) => Answer::BootRead(Boot {
                kuser_boot_id: self.boot_id,
                steady_ms: self.booted_ms,
                booted_ms: self.booted_ms,
            }),
            O::DomainRead(_) => Answer::DomainRead(self.membership()),
            O::HostNameSet(ask) => {
                // sdk-api, SetComputerNameExW: 87 for these, and nothing before the next boot.
                if ask.name.is_empty() || ask.name.contains(|c| "\"/\\[]:|<>+=;,?".contains(c)) {
                    return refused(87);
                }
                self.set_registry(COMPUTER, "NV Hostname", Value::Text(ask.name));
                Answer::HostNameSet(())
            }
            O::RebootAsk(_) => {
                // The second request finds the first.
                if std::mem::replace(&mut self.reboot_asked, true) {
                    return refused(1190);
                }
                Answer::RebootAsk(())
            }
            O::FeatureRead(ask) => match self.feature(&ask.name) {
                Some(state) => Answer::FeatureRead(state),
                None => return refused(0x800f_080c),
            },
            O::FeatureEnable(ask) => Answer::FeatureEnable(self.enable(&ask.name)?),
            O::DynamicPortsRead(_) => match self.dynamic_ports {
                Some(range) => Answer::DynamicPortsRead(range),
                None => return refused(0x8004_100e),
            },
            O::ProgramRun(ask) if ask.path.to_ascii_lowercase().ends_with(r"\netsh.exe") => {
                Answer::ProgramRun(self.netsh(&ask.arguments))
            }
            O::ProgramRun(ask) => {
                self.disk.stat(&ask.path)?;
                self.ran
                    .push(format!("{} {}", ask.path, ask.arguments.join(" ")));
                Answer::ProgramRun(0)
            }
            O::Pause(ask) => {
                self.pass(ask.ms);
                Answer::Pause(())
            }
            O::RootList(_) => Answer::RootList(self.roots.clone()),
            O::RootAdd(ask) => {
                self.add_root(&ask.der.0, ask.name)?;
                Answer::RootAdd(())
            }
            O::RootRemove(ask) => {
                let Some(at) = self.own_root(&ask.sha256) else {
                    return refused(0x8009_2004);
                };
                self.roots.remove(at);
                Answer::RootRemove(())
            }
            other => return self.answer_network(other),
        })
    }

    /// CERT_STORE_ADD_NEW: an existing certificate is refused.
    fn add_root(&mut self, der: &[u8], name: String) -> Result<()> {
        let sha256 = dormer_profile::sha256_hex(der);
        if self.own_root(&sha256).is_some() {
            return refused(0x8009_2005);
        }
        self.roots.push(Root {
            sha256,
            name,
            own: true,
        });
        Ok(())
    }

    /// The host's domain, or the work group of a host without one.
    fn membership(&self) -> Domain {
        let (status, name) = match &self.domain {
            Some(name) => (3, name.as_str()),
            None => (2, "WORKGROUP"),
        };
        Domain {
            status,
            name: name.to_owned(),
        }
    }

    /// Position of a trusted certificate that dormer added.
    fn own_root(&self, sha256: &str) -> Option<usize> {
        let mut roots = self.roots.iter();
        roots.position(|root| root.own && root.sha256 == sha256)
    }

    fn answer_network(&mut self, operation: Operation) -> Outcome {
        use Operation as O;
        let network = &mut self.network;
        Ok(match operation {
            O::HnsCall(ask) => Answer::HnsCall(self.call_hns(&ask)?),
            O::InterfaceList(_) => {
                let cards = network.cards.iter().cloned();
                Answer::InterfaceList(cards.chain([loopback()]).collect())
            }
            O::RouteList(_) => Answer::RouteList(network.routes.clone()),
            O::RouteAdd(ask) => Answer::RouteAdd(network.add_route(&ask.route)?),
            O::RouteRemove(ask) => Answer::RouteRemove(network.remove_route(&ask.route)?),
            // The host itself is asked, and without TLS.
            O::HttpGet(ask) if !ask.url.starts_with("http://127.0.0.1") => return refused(87),
            O::HttpGet(ask) => match self.pages.get(&ask.url) {
                Some(status) => Answer::HttpGet(*status),
                None => return refused(10_061),
            },
            O::FirewallRead(ask) => Answer::FirewallRead(network.read_rule(&ask.name)?),
            O::FirewallAdd(ask) => Answer::FirewallAdd(network.add_rule(&ask.rule)?),
            O::FirewallChange(ask) => Answer::FirewallChange(network.change_rule(&ask.rule)?),
            O::FirewallRemove(ask) => Answer::FirewallRemove(network.remove_rule(&ask.name)?),
            O::FirewallPolicyRead(_) => Answer::FirewallPolicyRead(network.read_policy()?),
            O::DefenderRead(_) => Answer::DefenderRead(network.read_exclusions()?),
            O::DefenderAdd(ask) => Answer::DefenderAdd(network.add_exclusions(&ask.exclusions)?),
            O::DefenderRemove(ask) => {
                Answer::DefenderRemove(network.remove_exclusions(&ask.exclusions)?)
            }
            O::ImageRead(ask) => {
                self.pipe(&ask.pipe)?;
                Answer::ImageRead(self.images.get(&ask.name).cloned())
            }
            O::ImageArchiveRead(ask) => {
                Answer::ImageArchiveRead(self.archived(&ask.path, &ask.name)?)
            }
            // containerd v2.4.2, `client/import.go`: an existing name is replaced.
            O::ImageImport(ask) => {
                self.pipe(&ask.pipe)?;
                let digest = self.archived(&ask.path, &ask.name)?;
                self.images.insert(ask.name, digest);
                Answer::ImageImport(())
            }
            // A new operation needs an answer here before it is used.
            other => {
                return Err(WinError {
                    code: 50,
                    text: format!("{} is not simulated", other.name()),
                });
            }
        })
    }

    fn version(&self, path: &str) -> Result<[u16; 4]> {
        self.disk.stat(path)?;
        self.versions
            .get(&path.to_lowercase())
            .copied()
            .ok_or(WinError::new(1812))
    }

    fn take_lock(&mut self, path: &str) -> Result<()> {
        let key = path.to_lowercase();
        let now = self.tick_ms;
        let held = |(lock, until): &(String, Option<u64>)| {
            *lock == key && until.is_none_or(|until| now < until)
        };
        if self.foreign_locks.iter().any(held) {
            return refused(32);
        }
        if self.disk.stat(path).is_err() {
            let bytes = Bytes::default();
            self.disk
                .write_new(path, &ContentSource::Inline { bytes }, Rights::Inherited)?;
        }
        let path = key;
        if !self.locks.contains(&path) {
            self.locks.push(path);
        }
        Ok(())
    }

    fn names_in(&self, key: &str) -> Result<RegistryNames> {
        let key = key.to_lowercase();
        let below = format!("{key}\\");
        let keys: Vec<String> = self
            .registry
            .keys()
            .filter_map(|one| one.strip_prefix(&below))
            .map(str::to_owned)
            .collect();
        match self.registry.get(&key) {
            Some(values) => Ok(RegistryNames {
                keys,
                values: values.values().map(|(name, _)| name.clone()).collect(),
            }),
            None if keys.is_empty() => refused(2),
            None => Ok(RegistryNames {
                keys,
                values: Vec::new(),
            }),
        }
    }

    fn host_name(&self, value: &str) -> String {
        match self.registry(COMPUTER, value) {
            Some(Value::Text(name)) => name,
            _ => String::new(),
        }
    }

    /// Containers requires a reboot: 3010 (WSL, OptionalFeature.cpp).
    fn enable(&mut self, name: &str) -> Result<u32> {
        if self.feature(name).is_none() {
            return refused(0x800f_080c);
        }
        let answer = self.feature_answers.pop_front().unwrap_or(Ok(3_010));
        let effect = match &answer {
            Ok(3_010) => Some(DismState::InstallPending),
            Ok(_) => Some(DismState::Installed),
            Err(error) if error.code == 0x8007_0bc2 => Some(DismState::InstallPending),
            Err(_) => None,
        };
        if let Some(state) = effect {
            self.set_feature(name, state);
            if state == DismState::Installed && name.eq_ignore_ascii_case("Containers") {
                self.enable_containers();
            }
        }
        answer
    }
}
