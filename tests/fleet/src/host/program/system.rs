//! The registry, Windows as a whole and the trusted roots, as the program asks for them.

use std::sync::Arc;
use std::time::Duration;

use dormer_host::ops::{
    Answer, Boot, Clock, DismState, Domain, Operation, Outcome, RegistryNames, Root, System, Value,
};
use dormer_profile::answer::FeatureState;

use super::{Answered, ProgramProcess, refused};
use crate::host::computer::Host;
use crate::host::state::HostState;

/// How long Windows takes to install a feature, in milliseconds (docs/field-notes.md, Services and features).
const FEATURE_INSTALL_MS: (u64, u64) = (60_000, 300_000);
/// `PROCESSOR_ARCHITECTURE_AMD64`.
const AMD64: u16 = 9;

const TCPIP: &str = r"system\currentcontrolset\services\tcpip\parameters";
const CURRENT: &str = r"software\microsoft\windows nt\currentversion";
const OPENSSH: &str = r"software\openssh";
const ENVIRONMENT: &str = r"system\currentcontrolset\control\session manager\environment";
const SERVICING: &str =
    r"software\microsoft\windows\currentversion\component based servicing\rebootpending";

pub(super) async fn answer(process: &mut ProgramProcess, operation: Operation) -> Answered {
    use Operation as O;
    let host = Arc::clone(&process.host);
    Ok(match operation {
        O::RegistryRead(ask) => match read(&host, &ask.key.to_lowercase(), &ask.name) {
            Some(value) => Ok(Answer::RegistryRead(value)),
            None => refused(2),
        },
        O::RegistryList(ask) => list(&host.state(), &ask.key.to_lowercase()),
        O::RegistryWrite(ask) => {
            write(&host, &ask.key.to_lowercase(), &ask.name, Some(ask.value));
            Ok(Answer::RegistryWrite(()))
        }
        O::RegistryDelete(ask) => {
            if write(&host, &ask.key.to_lowercase(), &ask.name, None) {
                Ok(Answer::RegistryDelete(()))
            } else {
                refused(2)
            }
        }
        O::EnvironmentTell(_) => Ok(Answer::EnvironmentTell(())),
        O::SystemRead(_) => Ok(Answer::SystemRead(system(&host))),
        O::ClockRead(_) => Ok(Answer::ClockRead(Clock {
            now_ms: host.now_ms(),
            tick_ms: host.tick_ms(),
        })),
        O::BootRead(_) => {
            let state = host.state();
            Ok(Answer::BootRead(Boot {
                kuser_boot_id: u32::try_from(state.boot_id).unwrap_or(0),
                steady_ms: state.booted_ms,
                booted_ms: state.booted_ms,
            }))
        }
        O::DomainRead(_) => Ok(Answer::DomainRead(Domain {
            status: 2,
            name: "WORKGROUP".into(),
        })),
        O::HostNameSet(ask) => {
            // sdk-api, SetComputerNameExW: 87 for these, and nothing before the next boot.
            if ask.name.is_empty() || ask.name.contains(|c| "\"/\\[]:|<>+=;,?".contains(c)) {
                return Ok(refused(87));
            }
            host.state().hostname_pending = Some(ask.name);
            Ok(Answer::HostNameSet(()))
        }
        O::RebootAsk(ask) => {
            let first = host.reboot_in(Duration::from_secs(u64::from(ask.grace_seconds)));
            host.at("reboot asked").await;
            if first {
                Ok(Answer::RebootAsk(()))
            } else {
                refused(1190)
            }
        }
        O::FeatureRead(ask) => feature(&host, &ask.name).map_or_else(
            || refused(0x800f_080c),
            |state| Ok(Answer::FeatureRead(state)),
        ),
        O::FeatureEnable(ask) => enable(&host, &ask.name).await,
        O::DynamicPortsRead(_) => Ok(Answer::DynamicPortsRead(host.state().dynamic_ports())),
        O::ProgramRun(ask) if ask.path.ends_with(r"\netsh.exe") => {
            let number = |name: &str| {
                let given = ask.arguments.iter().find_map(|it| it.strip_prefix(name))?;
                given.parse().ok()
            };
            let range = number("startport=").zip(number("numberofports="));
            let mut state = host.state();
            state.set_dynamic_ports = range.or(state.set_dynamic_ports);
            Ok(Answer::ProgramRun(u32::from(range.is_none())))
        }
        O::ProgramRun(_) => refused(2),
        O::Pause(ask) => {
            host.sleep(Duration::from_millis(ask.ms)).await;
            Ok(Answer::Pause(()))
        }
        O::RootList(_) => Ok(Answer::RootList(roots(&host))),
        O::RootAdd(ask) => {
            let sha256 = dormer_profile::sha256_hex(&ask.der.0);
            // CERT_STORE_ADD_NEW.
            if host.state().certificates.insert(sha256) {
                Ok(Answer::RootAdd(()))
            } else {
                refused(0x8009_2005)
            }
        }
        O::RootRemove(ask) => {
            if host.state().certificates.remove(&ask.sha256) {
                Ok(Answer::RootRemove(()))
            } else {
                refused(0x8009_2004)
            }
        }
        other => return Err(Box::new(other)),
    })
}

/// Trusted certificates: every one of the simulated store is dormer's.
fn roots(host: &Host) -> Vec<Root> {
    let state = host.state();
    let all = state.certificates.iter().map(|sha256| Root {
        sha256: sha256.clone(),
        name: "dormer".into(),
        own: true,
    });
    all.collect()
}

impl Host {
    /// [`Host::tick`] in milliseconds.
    pub(super) fn tick_ms(&self) -> u64 {
        u64::try_from(self.tick().as_millis()).unwrap_or(u64::MAX)
    }

    fn internal_dns(&self) -> Option<String> {
        let addresses = self.instance().addresses;
        addresses
            .into_iter()
            .find(|(kind, _)| kind == "InternalDNS")
            .map(|(_, name)| name)
    }
}

fn system(host: &Host) -> System {
    let mut numbers = host.image.release.build().split('.');
    let mut number = || numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    System {
        version: [number(), number(), number()],
        product_type: 3,
        architecture: AMD64,
        dns_host_name: host.state().hostname.clone(),
        administrator: true,
    }
}

fn read(host: &Host, key: &str, name: &str) -> Option<Value> {
    let lower = name.to_lowercase();
    let state = host.state();
    match (key, lower.as_str()) {
        (TCPIP, "hostname") => Some(Value::Text(state.hostname.clone())),
        (TCPIP, "nv hostname") => {
            let next = state.hostname_pending.as_ref().unwrap_or(&state.hostname);
            Some(Value::Text(next.clone()))
        }
        (TCPIP, "dhcpdomain") => {
            let name = host.internal_dns()?;
            let (_, domain) = name.split_once('.')?;
            Some(Value::Text(domain.to_owned()))
        }
        (CURRENT, "productname") => Some(Value::Text(host.image.release.product().into())),
        (OPENSSH, "defaultshell") => {
            let shell = host.image.shell.registry_value()?;
            Some(Value::Text(shell.to_owned()))
        }
        (ENVIRONMENT, _) => state.environment.get(name).cloned().map(Value::Text),
        _ => state.registry.get(key)?.get(&lower).cloned(),
    }
}

/// Writes a value, or deletes it; whether there was one.
fn write(host: &Host, key: &str, name: &str, value: Option<Value>) -> bool {
    let mut state = host.state();
    if key == ENVIRONMENT {
        return match value {
            Some(Value::Text(text) | Value::Expand(text)) => {
                state.environment.insert(name.to_owned(), text).is_some()
            }
            _ => state.environment.remove(name).is_some(),
        };
    }
    let values = state.registry.entry(key.to_owned()).or_default();
    match value {
        Some(value) => values.insert(name.to_lowercase(), value).is_some(),
        None => values.remove(&name.to_lowercase()).is_some(),
    }
}

fn list(state: &HostState, key: &str) -> Outcome {
    let pending = state
        .features
        .values()
        .any(|feature| *feature == FeatureState::Pending);
    if key == SERVICING && pending {
        return Ok(Answer::RegistryList(RegistryNames::default()));
    }
    let below = |other: &String| {
        let rest = other.strip_prefix(key)?.strip_prefix('\\')?;
        Some(rest.split('\\').next()?.to_owned())
    };
    let mut keys: Vec<String> = state.registry.keys().filter_map(below).collect();
    keys.dedup();
    match state.registry.get(key) {
        None if keys.is_empty() => refused(2),
        values => Ok(Answer::RegistryList(RegistryNames {
            keys,
            values: values
                .into_iter()
                .flat_map(|it| it.keys().cloned())
                .collect(),
        })),
    }
}

fn feature(host: &Host, name: &str) -> Option<DismState> {
    let state = host.state();
    let (_, found) = state
        .features
        .iter()
        .find(|(there, _)| there.eq_ignore_ascii_case(name))?;
    Some(match found {
        FeatureState::Enabled => DismState::Installed,
        FeatureState::Pending => DismState::InstallPending,
        FeatureState::Disabled | FeatureState::Unknown => DismState::Staged,
    })
}

/// Containers asks for a reboot: 3010 (WSL, OptionalFeature.cpp).
async fn enable(host: &Host, name: &str) -> Outcome {
    match feature(host, name) {
        None => return refused(0x800f_080c),
        Some(DismState::Installed) => return Ok(Answer::FeatureEnable(0)),
        Some(_) => {}
    }
    host.midway("half installed").await;
    host.pause(FEATURE_INSTALL_MS.0, FEATURE_INSTALL_MS.1).await;
    let mut state = host.state();
    let known = state
        .features
        .keys()
        .find(|there| there.eq_ignore_ascii_case(name))
        .cloned();
    let name = known.unwrap_or_else(|| name.to_owned());
    state.features.insert(name, FeatureState::Pending);
    Ok(Answer::FeatureEnable(3_010))
}
