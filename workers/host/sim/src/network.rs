//! HNS, cards, routes, the firewall and Windows Defender, with Windows' numbers.
//!
//! Sources: docs/field-notes.md, Features, HNS, firewall, Defender (hcsshim internal/hns,
//! Virtualization-Documentation "HCN Error Code", sdk-api `netfw`, `netioapi`, defender-docs).

use dormer_host::ops::{
    Exclusions, FirewallPolicy, FirewallRule, Interface, InterfaceAddress, Route, WinError,
};
use serde_json::{Value, json};

use crate::disk::{Result, refused};

/// An HNS network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SimulatedNetwork {
    id: String,
    name: String,
    kind: String,
    management_ip: String,
    subnet: String,
    /// It is there after a boot.
    persistent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HnsEndpoint {
    id: String,
    name: String,
    address: String,
    network: String,
    state: u32,
}

/// The card that every host has.
pub(crate) fn loopback() -> Interface {
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

/// Networks, cards, firewall and Defender of a host.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) networks: Vec<SimulatedNetwork>,
    pub(crate) endpoints: Vec<HnsEndpoint>,
    /// vmcompute.dll is there: the feature Containers is on.
    pub(crate) has_hns: bool,
    next: u32,
    pub(crate) cards: Vec<Interface>,
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: Vec<FirewallRule>,
    pub(crate) policy: FirewallPolicy,
    /// mpssvc is off.
    pub(crate) firewall_off: bool,
    /// None: this Windows has no Defender.
    pub(crate) exclusions: Option<Exclusions>,
    /// A policy hides the exclusions from administrators.
    pub(crate) hides_exclusions: bool,
}

const HIDDEN: &str = "N/A: Administrators are not allowed to view exclusions";

impl Network {
    pub(crate) fn new() -> Self {
        let ethernet = Interface {
            index: 4,
            luid: 4 << 32,
            name: "Ethernet".into(),
            up: true,
            loopback: false,
            mac: "00-15-5D-00-00-04".into(),
            metric: 15,
            addresses: vec![InterfaceAddress {
                ipv4: "10.0.0.11".into(),
                prefix_length: 24,
                preferred: true,
            }],
            gateways: vec!["10.0.0.1".into()],
        };
        let default = Route {
            prefix: "0.0.0.0/0".into(),
            next_hop: "10.0.0.1".into(),
            interface: 4,
            metric: 0,
        };
        Self {
            networks: Vec::new(),
            endpoints: Vec::new(),
            has_hns: false,
            next: 0,
            cards: vec![ethernet],
            routes: vec![default],
            rules: Vec::new(),
            policy: FirewallPolicy::Ok,
            firewall_off: false,
            exclusions: Some(Exclusions::default()),
            hides_exclusions: false,
        }
    }

    fn id(&mut self) -> String {
        self.next += 1;
        format!("{:08X}-0000-4000-8000-000000000000", self.next)
    }

    /// The address that HNS notes for a new network: the card's at that moment, for ever.
    fn management_ip(&self) -> String {
        let card = self
            .cards
            .iter()
            .find(|card| card.up && !card.gateways.is_empty());
        let address = card.and_then(|card| card.addresses.first());
        address.map_or_else(
            || "169.254.10.10".to_owned(),
            |address| address.ipv4.clone(),
        )
    }

    pub(crate) fn make_network(
        &mut self,
        name: &str,
        kind: &str,
        subnet: &str,
        persistent: bool,
    ) -> Result<Value> {
        if self
            .networks
            .iter()
            .any(|network| network.name.eq_ignore_ascii_case(name))
        {
            return refused(0x803b_0010);
        }
        let network = SimulatedNetwork {
            id: self.id(),
            name: name.to_owned(),
            kind: kind.to_owned(),
            management_ip: self.management_ip(),
            subnet: subnet.to_owned(),
            persistent,
        };
        let shown = shown_network(&network);
        self.networks.push(network);
        Ok(shown)
    }

    /// `HNSCall`: the HRESULT first, then JSON.
    pub(crate) fn hns(
        &mut self,
        running: bool,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<String> {
        if !self.has_hns {
            return refused(126);
        }
        // The service is stopped: RPC reports that, which says nothing about networks (docker/for-win#8226).
        if !running {
            return refused(0x8007_0426);
        }
        let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let output = match (method, parts.as_slice()) {
            ("GET", ["networks"]) => self.networks.iter().map(shown_network).collect(),
            ("GET", ["endpoints"]) => self.endpoints.iter().map(shown_endpoint).collect(),
            ("POST", ["networks"]) => {
                let subnet = body["Subnets"][0]["AddressPrefix"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                if subnet.is_empty() {
                    return refused(0x803b_000a);
                }
                self.make_network(&text("Name"), &text("Type"), &subnet, true)?
            }
            ("POST", ["endpoints"]) => self.make_endpoint(text("Name"), &text("VirtualNetwork"))?,
            ("POST", ["endpoints", id, "attach"]) => {
                let Some(endpoint) = self.endpoints.iter_mut().find(|one| one.id == *id) else {
                    return refused(0x803b_0002);
                };
                if matches!(endpoint.state, 2 | 3) {
                    return refused(0x803b_0014);
                }
                endpoint.state = 3;
                Value::Null
            }
            ("DELETE", ["networks", id]) => {
                let Some(at) = self.networks.iter().position(|one| one.id == *id) else {
                    return refused(0x803b_0001);
                };
                // Its endpoints go with it (WMCO, windows.go).
                self.networks.remove(at);
                self.endpoints.retain(|endpoint| endpoint.network != *id);
                Value::Null
            }
            ("DELETE", ["endpoints", id]) => {
                let Some(at) = self.endpoints.iter().position(|one| one.id == *id) else {
                    return refused(0x803b_0002);
                };
                self.endpoints.remove(at);
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

    fn make_endpoint(&mut self, name: String, network: &str) -> Result<Value> {
        let Some(of) = self
            .networks
            .iter()
            .find(|one| one.id.eq_ignore_ascii_case(network))
        else {
            return refused(0x803b_0001);
        };
        let front = of
            .subnet
            .split('/')
            .next()
            .and_then(|net| net.rsplit_once('.'))
            .map_or("10.0.0", |(front, _)| front);
        let address = format!("{front}.{}", 2 + self.endpoints.len());
        let endpoint = HnsEndpoint {
            network: of.id.clone(),
            id: self.id(),
            name,
            address,
            // Made, and not attached.
            state: 1,
        };
        let shown = shown_endpoint(&endpoint);
        self.endpoints.push(endpoint);
        Ok(shown)
    }

    /// 5010: it is there (sdk-api, CreateIpForwardEntry2).
    pub(crate) fn add_route(&mut self, route: &Route) -> Result<()> {
        let same = |one: &Route| {
            one.prefix == route.prefix
                && one.next_hop == route.next_hop
                && one.interface == route.interface
        };
        if self.routes.iter().any(same) {
            return refused(5010);
        }
        if !self.cards.iter().any(|card| card.index == route.interface) {
            return refused(1168);
        }
        self.routes.push(route.clone());
        Ok(())
    }

    pub(crate) fn remove_route(&mut self, route: &Route) -> Result<()> {
        let same = |one: &Route| {
            one.prefix == route.prefix
                && one.next_hop == route.next_hop
                && one.interface == route.interface
        };
        match self.routes.iter().position(same) {
            Some(at) => {
                self.routes.remove(at);
                Ok(())
            }
            None => refused(1168),
        }
    }

    /// Enumerations and additions alike answer 0x800706D9 without mpssvc (CSS-Exchange#61).
    fn firewall(&mut self) -> Result<&mut Vec<FirewallRule>> {
        if self.firewall_off {
            refused(0x8007_06d9)
        } else {
            Ok(&mut self.rules)
        }
    }

    pub(crate) fn read_rule(&mut self, name: &str) -> Result<FirewallRule> {
        let rules = self.firewall()?;
        let found = rules
            .iter()
            .find(|rule| rule.name.eq_ignore_ascii_case(name));
        found.cloned().ok_or(WinError::new(0x8007_0002))
    }

    /// Add makes a second rule of the same name (ansible#32478).
    pub(crate) fn add_rule(&mut self, rule: &FirewallRule) -> Result<()> {
        self.firewall()?.push(rule.clone());
        Ok(())
    }

    pub(crate) fn change_rule(&mut self, rule: &FirewallRule) -> Result<()> {
        let rules = self.firewall()?;
        let found = rules
            .iter_mut()
            .find(|one| one.name.eq_ignore_ascii_case(&rule.name));
        *found.ok_or(WinError::new(0x8007_0002))? = rule.clone();
        Ok(())
    }

    /// Takes one of several of a name.
    pub(crate) fn remove_rule(&mut self, name: &str) -> Result<()> {
        let rules = self.firewall()?;
        if let Some(at) = rules
            .iter()
            .position(|rule| rule.name.eq_ignore_ascii_case(name))
        {
            rules.remove(at);
        }
        Ok(())
    }

    pub(crate) fn read_policy(&mut self) -> Result<FirewallPolicy> {
        self.firewall()?;
        Ok(self.policy)
    }

    pub(crate) fn read_exclusions(&self) -> Result<Exclusions> {
        let Some(exclusions) = &self.exclusions else {
            return refused(0x8004_100e);
        };
        if self.hides_exclusions {
            return Ok(Exclusions {
                paths: vec![HIDDEN.into()],
                processes: vec![HIDDEN.into()],
            });
        }
        Ok(exclusions.clone())
    }

    pub(crate) fn add_exclusions(&mut self, added: &Exclusions) -> Result<()> {
        let Some(exclusions) = &mut self.exclusions else {
            return refused(0x8004_100e);
        };
        exclusions.paths.extend(added.paths.iter().cloned());
        exclusions.processes.extend(added.processes.iter().cloned());
        Ok(())
    }

    pub(crate) fn remove_exclusions(&mut self, removed: &Exclusions) -> Result<()> {
        let Some(exclusions) = &mut self.exclusions else {
            return refused(0x8004_100e);
        };
        exclusions
            .paths
            .retain(|path| !removed.paths.contains(path));
        exclusions
            .processes
            .retain(|process| !removed.processes.contains(process));
        Ok(())
    }

    /// A boot deletes endpoints and everything that is not persistent: such networks, and active routes except DHCP's.
    pub(crate) fn boot(&mut self) {
        self.endpoints.clear();
        self.networks.retain(|network| network.persistent);
        self.routes.retain(|route| route.prefix == "0.0.0.0/0");
    }
}

fn shown_network(network: &SimulatedNetwork) -> Value {
    json!({
        "ID": network.id, "Name": network.name, "Type": network.kind, "ManagementIP": network.management_ip,
        "Subnets": [{ "AddressPrefix": network.subnet }],
    })
}

fn shown_endpoint(endpoint: &HnsEndpoint) -> Value {
    json!({
        "ID": endpoint.id, "Name": endpoint.name, "IPAddress": endpoint.address,
        "VirtualNetwork": endpoint.network, "State": endpoint.state,
    })
}

impl Network {
    pub(crate) fn snapshot(&self) -> Vec<String> {
        let networks = self
            .networks
            .iter()
            .map(|one| format!("network {} {} {}", one.name, one.kind, one.subnet));
        let endpoints = self.endpoints.iter().map(|one| {
            let network = self
                .networks
                .iter()
                .find(|network| network.id == one.network);
            let network = network.map_or("nowhere", |network| network.name.as_str());
            format!(
                "endpoint {} {} {network} {}",
                one.name, one.address, one.state
            )
        });
        let routes = self.routes.iter().map(|route| format!("route {route:?}"));
        networks.chain(endpoints).chain(routes).collect()
    }
}
