//! Networks, the firewall and Windows Defender, as the program asks for them.

use std::io::Cursor;
use std::sync::{Arc, MutexGuard};

use dormer_host::ops::{
    Answer, Exclusions, FirewallPolicy, FirewallRule, HnsCall, Interface, InterfaceAddress,
    Operation, Outcome, Route, WinError,
};
use dormer_profile::item::Protocol;
use serde_json::{Value, json};

use super::refused;
use super::services::has_containers;
use crate::host::computer::Host;
use crate::host::services::Role;
use crate::host::state::HostState;

/// Index of the host's one card.
const CARD: u32 = 6;
/// Reads of a kubelet that serves no pod before it gives up by itself.
const UNHEALTHY_READS_MAX: u32 = 20;

pub(super) async fn answer(host: &Arc<Host>, operation: Operation) -> Outcome {
    use Operation as O;
    match operation {
        O::HnsCall(ask) => hns(host, &ask).await.map(Answer::HnsCall),
        O::InterfaceList(_) => Ok(Answer::InterfaceList(vec![card(host), loopback()])),
        O::RouteList(_) => {
            let gateway = gateway(host);
            let state = host.state();
            let prefixes = state.routes.iter().map(String::as_str);
            let all = std::iter::once("0.0.0.0/0").chain(prefixes);
            let route = |prefix: &str| Route {
                prefix: prefix.to_owned(),
                next_hop: gateway.clone(),
                interface: CARD,
                metric: 0,
            };
            Ok(Answer::RouteList(all.map(route).collect()))
        }
        O::RouteAdd(ask) if ask.route.interface != CARD => refused(1168),
        O::RouteAdd(ask) => {
            if host.state().routes.insert(ask.route.prefix) {
                Ok(Answer::RouteAdd(()))
            } else {
                refused(5010)
            }
        }
        O::RouteRemove(ask) => {
            if host.state().routes.remove(&ask.route.prefix) {
                Ok(Answer::RouteRemove(()))
            } else {
                refused(1168)
            }
        }
        O::HttpGet(ask) => http(host, &ask.url).await,
        O::FirewallRead(ask) => match rule(&host.state(), &ask.name) {
            Some(rule) => Ok(Answer::FirewallRead(rule)),
            None => refused(0x8007_0002),
        },
        O::FirewallAdd(ask) => {
            host.pause(300, 900).await;
            set_rule(host, &ask.rule).map(Answer::FirewallAdd)
        }
        O::FirewallChange(ask) => set_rule(host, &ask.rule).map(Answer::FirewallChange),
        O::FirewallRemove(ask) => {
            host.state().firewall.remove(&ask.name);
            Ok(Answer::FirewallRemove(()))
        }
        O::FirewallPolicyRead(_) => Ok(Answer::FirewallPolicyRead(FirewallPolicy::Ok)),
        // WBEM_E_INVALID_CLASS: there is no Defender here.
        O::DefenderRead(_) | O::DefenderAdd(_) | O::DefenderRemove(_) if !host.image.defender => {
            refused(0x8004_100e)
        }
        O::DefenderRead(_) => {
            let state = host.state();
            Ok(Answer::DefenderRead(Exclusions {
                paths: state.excluded_paths.iter().cloned().collect(),
                processes: state.exclusions.iter().cloned().collect(),
            }))
        }
        O::DefenderAdd(ask) => {
            let mut state = host.state();
            state.excluded_paths.extend(ask.exclusions.paths);
            state.exclusions.extend(ask.exclusions.processes);
            Ok(Answer::DefenderAdd(()))
        }
        O::DefenderRemove(ask) => {
            let mut state = host.state();
            let Exclusions { paths, processes } = ask.exclusions;
            state.excluded_paths.retain(|path| !paths.contains(path));
            state.exclusions.retain(|one| !processes.contains(one));
            Ok(Answer::DefenderRemove(()))
        }
        // A new operation is answered here before anybody asks it.
        O::ImageRead(ask) => {
            let state = pipe(host)?;
            Ok(Answer::ImageRead(state.images.get(&ask.name).cloned()))
        }
        O::ImageArchiveRead(ask) => {
            archived(&host.state(), &ask.path, &ask.name).map(Answer::ImageArchiveRead)
        }
        // containerd v2.4.2, `client/import.go`: what the name pointed to before is replaced.
        O::ImageImport(ask) => {
            let mut state = pipe(host)?;
            let digest = archived(&state, &ask.path, &ask.name)?;
            state.images.insert(ask.name, digest);
            Ok(Answer::ImageImport(()))
        }
        other => Err(WinError {
            code: 50,
            text: format!("{} is not simulated", other.name()),
        }),
    }
}

/// The state behind containerd's pipe. Without a containerd there is no pipe of that name (sdk-api, `CreateFileW`: 2).
fn pipe(host: &Host) -> Result<MutexGuard<'_, HostState>, WinError> {
    let state = host.state();
    let serves = |entry: &crate::host::scm::Entry| {
        Role::of(&entry.config.command) == Role::Containerd && entry.pid.is_some()
    };
    if state.scm.iter().any(serves) {
        Ok(state)
    } else {
        Err(WinError::new(2))
    }
}

/// Digest of the image in an archive on the disk, read by the program's own code.
fn archived(state: &HostState, path: &str, name: &str) -> Result<String, WinError> {
    let body = state
        .disk
        .read_text_path(path)
        .map_err(|_| WinError::new(2))?;
    dormer_host::containerd::describe(Cursor::new(&body.head[..]), name)
}

fn gateway(host: &Host) -> String {
    let address = host.internal_ip();
    let front = address
        .rsplit_once('.')
        .map_or("10.0.0", |(front, _)| front);
    format!("{front}.1")
}

fn card(host: &Host) -> Interface {
    Interface {
        index: CARD,
        luid: u64::from(CARD) << 32,
        name: "Ethernet".into(),
        up: true,
        loopback: false,
        mac: "00-15-5D-00-00-06".into(),
        metric: 15,
        addresses: vec![InterfaceAddress {
            ipv4: host.internal_ip(),
            prefix_length: 24,
            preferred: true,
        }],
        gateways: vec![gateway(host)],
    }
}

fn loopback() -> Interface {
    Interface {
        index: 1,
        luid: 24 << 48,
        name: "Loopback Pseudo-Interface 1".into(),
        up: true,
        loopback: true,
        mac: String::new(),
        metric: 75,
        addresses: vec![InterfaceAddress {
            ipv4: "127.0.0.1".into(),
            prefix_length: 8,
            preferred: true,
        }],
        gateways: Vec::new(),
    }
}

/// What a health address answers. A kubelet that does not serve dies in the end, by the failure actions of its service, and
/// is stopped for the next attempt to start.
async fn http(host: &Arc<Host>, url: &str) -> Outcome {
    // The host itself is asked, and without TLS.
    if !url.starts_with("http://127.0.0.1") {
        return refused(87);
    }
    if host.healthy(url) {
        return Ok(Answer::HttpGet(200));
    }
    let sick = {
        let mut state = host.state();
        let kubelet = state
            .scm
            .iter()
            .find(|entry| Role::of(&entry.config.command) == Role::Kubelet && entry.pid.is_some())
            .filter(|entry| !entry.healthy)
            .map(|entry| entry.config.name.clone());
        state.unhealthy_reads = match kubelet {
            Some(_) => state.unhealthy_reads + 1,
            None => 0,
        };
        kubelet.filter(|_| state.unhealthy_reads > UNHEALTHY_READS_MAX)
    };
    if let Some(name) = sick {
        host.state().unhealthy_reads = 0;
        host.stop_one(&name).await;
    }
    refused(10_061)
}

fn rule(state: &HostState, name: &str) -> Option<FirewallRule> {
    let (name, (protocol, port)) = state
        .firewall
        .iter()
        .find(|(there, _)| there.eq_ignore_ascii_case(name))?;
    Some(FirewallRule {
        name: name.clone(),
        description: String::new(),
        protocol: match protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        },
        ports: port.to_string(),
        direction: 1,
        action: 1,
        profiles: 0x7fff_ffff,
        enabled: true,
        remote: "*".into(),
        program: String::new(),
    })
}

/// E_INVALIDARG: no rule that this host can keep.
fn set_rule(host: &Host, rule: &FirewallRule) -> Result<(), WinError> {
    let protocol = match rule.protocol {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        _ => return refused(0x8007_0057),
    };
    let Ok(port) = rule.ports.parse() else {
        return refused(0x8007_0057);
    };
    host.state()
        .firewall
        .insert(rule.name.clone(), (protocol, port));
    Ok(())
}

/// `HNSCall`: the HRESULT first, then JSON (docs/field-notes.md, Features, HNS, firewall, Defender).
async fn hns(host: &Arc<Host>, call: &HnsCall) -> Result<String, WinError> {
    // There is no vmcompute.dll.
    if !has_containers(&host.state().features) {
        return refused(126);
    }
    let body: Value = serde_json::from_str(&call.body).unwrap_or(Value::Null);
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let parts: Vec<&str> = call.path.trim_matches('/').split('/').collect();
    let output = match (call.method.as_str(), parts.as_slice()) {
        ("GET", ["networks"]) => {
            let state = host.state();
            let all = state.hns.networks.iter().map(|(name, network)| {
                let kind = state.hns.kinds.get(name).map_or("Overlay", String::as_str);
                json!({
                    "ID": network_id(name), "Name": name, "Type": kind, "ManagementIP": network.management_ip,
                    "Subnets": [{ "AddressPrefix": network.subnet }],
                })
            });
            all.collect()
        }
        ("GET", ["endpoints"]) => {
            let state = host.state();
            let first = state.hns.networks.keys().next();
            let all = state.hns.endpoints.iter().map(|(name, address)| {
                let home = state.hns.homes.get(name).or(first);
                json!({
                    "ID": endpoint_id(name), "Name": name, "IPAddress": address,
                    "VirtualNetwork": home.map(|home| network_id(home)).unwrap_or_default(),
                    "State": if state.hns.unattached.contains(name) { 1 } else { 3 },
                })
            });
            all.collect()
        }
        ("POST", ["networks"]) => {
            let subnet = body["Subnets"][0]["AddressPrefix"]
                .as_str()
                .unwrap_or_default();
            make_network(host, &text("Name"), &text("Type"), subnet).await?
        }
        ("POST", ["endpoints"]) => {
            host.pause(500, 1_500).await;
            make_endpoint(&mut host.state(), &text("Name"), &text("VirtualNetwork"))?
        }
        ("POST", ["endpoints", id, "attach"]) => {
            let mut state = host.state();
            let Some(name) = named(state.hns.endpoints.keys(), id, endpoint_id) else {
                return refused(0x803b_0002);
            };
            if !state.hns.unattached.remove(&name) {
                return refused(0x803b_0014);
            }
            Value::Null
        }
        ("DELETE", ["networks", id]) => {
            let Some(name) = named(host.state().hns.networks.keys(), id, network_id) else {
                return refused(0x803b_0001);
            };
            remove_network(host, &name).await;
            Value::Null
        }
        ("DELETE", ["endpoints", id]) => {
            let mut state = host.state();
            let Some(name) = named(state.hns.endpoints.keys(), id, endpoint_id) else {
                return refused(0x803b_0002);
            };
            state.hns.endpoints.remove(&name);
            Value::Null
        }
        _ => return refused(0x803b_001b),
    };
    let mut response = json!({ "Success": true });
    if !output.is_null() {
        response["Output"] = output;
    }
    Ok(response.to_string())
}

fn network_id(name: &str) -> String {
    format!("NETWORK-{name}")
}

fn endpoint_id(name: &str) -> String {
    format!("ENDPOINT-{name}")
}

fn named<'a>(
    mut names: impl Iterator<Item = &'a String>,
    id: &str,
    id_of: fn(&str) -> String,
) -> Option<String> {
    names
        .find(|name| id_of(name).eq_ignore_ascii_case(id))
        .cloned()
}

async fn make_network(
    host: &Arc<Host>,
    name: &str,
    kind: &str,
    subnet: &str,
) -> Result<Value, WinError> {
    if subnet.is_empty() {
        return refused(0x803b_000a);
    }
    let taken = |there: &String| there.eq_ignore_ascii_case(name);
    if host.state().hns.networks.keys().any(taken) {
        return refused(0x803b_0010);
    }
    host.state()
        .hns
        .kinds
        .insert(name.to_owned(), kind.to_owned());
    host.make_hns_networks(&[name], subnet).await;
    Ok(json!({ "ID": network_id(name), "Name": name }))
}

fn make_endpoint(state: &mut HostState, name: &str, network: &str) -> Result<Value, WinError> {
    let Some(home) = named(state.hns.networks.keys(), network, network_id) else {
        return refused(0x803b_0001);
    };
    let subnet = &state.hns.networks[&home].subnet;
    let address = subnet.split('/').next().unwrap_or_default();
    let address = match address.rsplit_once('.') {
        Some((front, _)) => format!("{front}.2"),
        None => address.to_owned(),
    };
    state.hns.homes.insert(name.to_owned(), home);
    state.hns.unattached.insert(name.to_owned());
    state.hns.endpoints.insert(name.to_owned(), address.clone());
    Ok(json!({ "ID": endpoint_id(name), "Name": name, "IPAddress": address }))
}

/// Its endpoints go with it (WMCO, windows.go), and the NIC is bound anew (docs/field-notes.md, Boots, reboots and limits
/// of sshd).
async fn remove_network(host: &Host, name: &str) {
    {
        let mut state = host.state();
        state.hns.networks.remove(name);
        let homes = state.hns.homes.clone();
        let elsewhere = |one: &String| homes.get(one).is_none_or(|home| home != name);
        state.hns.endpoints.retain(|one, _| elsewhere(one));
    }
    host.pause(1_000, 3_000).await;
    host.cut_connections();
}
