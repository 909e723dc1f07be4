//! Operations on networks, the firewall and Windows Defender. Numbers:
//! docs/field-notes.md, Features, HNS, firewall, Defender.

use serde::{Deserialize, Serialize};

use super::{QUICK_MS, ask};

ask! {
    /// One request to the Host Networking Service: `HNSCall` of vmcompute.dll, loaded late and from System32. Answers
    /// the response text, also where it says `"Success":false`; freed in every case.
    ///
    /// Refuses with 126 (no vmcompute.dll), 127 (no such export), every failing HRESULT (`text` is then the response, if
    /// there was one): 0x803B0001 no such network, 0002 endpoint, 0006 adapter, 0010 the network exists, 0014 attached
    /// already, 0020 stopping; 0x800706BA, 0x800706BF, 0x800706BE RPC, 0x80070426 not started.
    HnsCall, "hns_call", changes, |_| 120_000, {
        /// `GET`, `POST` or `DELETE`.
        method: String,
        /// Path: `/networks`, `/endpoints/{id}/attach`.
        path: String,
        /// Body, JSON, or empty.
        body: String,
    } -> String;

    /// The network cards with their IPv4 addresses: `GetAdaptersAddresses(AF_INET, INCLUDE_GATEWAYS)`.
    InterfaceList, "interface_list", reads, |_| QUICK_MS, {} -> Vec<Interface>;

    /// The active IPv4 routes: `GetIpForwardTable2`.
    RouteList, "route_list", reads, |_| QUICK_MS, {} -> Vec<Route>;

    /// `CreateIpForwardEntry2` after `InitializeIpForwardEntry`: active store alone, protocol NETMGMT, no end.
    ///
    /// Refuses with 5010 (it is there), 5, 87, 1168, 127 (not in this Windows).
    RouteAdd, "route_add", changes, |_| QUICK_MS, {
        route: Route,
    } -> ();

    /// `DeleteIpForwardEntry2`, by prefix, next hop and card.
    ///
    /// Refuses with 1168 (not there), 5, 127.
    RouteRemove, "route_remove", changes, |_| QUICK_MS, {
        route: Route,
    } -> ();

    /// Asks an address of this host for a page, plain HTTP, no proxy, no redirect; answers the status.
    ///
    /// Refuses with 10061 (no listener), 10060 (`timeout_ms` is over), 10054 (cut), 13 (no HTTP), 87 (not
    /// `http://` to `127.0.0.1`, `localhost` or `[::1]`).
    HttpGet, "http_get", reads, |ask| ask.timeout_ms + QUICK_MS, {
        /// The address.
        url: String,
        /// The longest time.
        timeout_ms: u64,
    } -> u16;

    /// The firewall rule of a name: `INetFwRules::Item`. Of several with one name it is any.
    ///
    /// Refuses with 0x80070002 (none), 0x800706D9 (the firewall's service is off), 0x80004001 (Wine).
    FirewallRead, "firewall_read", reads, |_| QUICK_MS, {
        /// Name of the rule.
        name: String,
    } -> FirewallRule;

    /// `INetFwRules::Add`. Windows makes a second rule of the same name if there is one.
    ///
    /// Refuses with 0x80070005, 0x80070057, 0x800706D9.
    FirewallAdd, "firewall_add", changes, |_| QUICK_MS, {
        rule: FirewallRule,
    } -> ();

    /// Sets the properties of an existing rule, as found by [`FirewallRead`]: the protocol before the ports.
    ///
    /// Refuses as [`FirewallRead`] and [`FirewallAdd`].
    FirewallChange, "firewall_change", changes, |_| QUICK_MS, {
        /// Desired rule; it is found by its name.
        rule: FirewallRule,
    } -> ();

    /// Removes a rule (`INetFwRules::Remove`). Answers `()` also if no rule has the name.
    ///
    /// Refuses with 0x80070005, 0x800706D9.
    FirewallRemove, "firewall_remove", changes, |_| QUICK_MS, {
        /// Name of the rule.
        name: String,
    } -> ();

    /// `INetFwPolicy2::LocalPolicyModifyState`.
    ///
    /// Refuses with 0x800706D9.
    FirewallPolicyRead, "firewall_policy_read", reads, |_| QUICK_MS, {} -> FirewallPolicy;

    /// The exclusions of Windows Defender: WMI, `MSFT_MpPreference`. What a policy hides is answered as Windows words
    /// it; whether it does is read from the registry.
    ///
    /// Refuses with 0x8004100E (no Defender), 0x800106BA (does not run, or another product guards the host).
    DefenderRead, "defender_read", reads, |_| 60_000, {} -> Exclusions;

    /// `MSFT_MpPreference::Add`.
    ///
    /// Refuses as [`DefenderRead`], and with 0x80070005.
    DefenderAdd, "defender_add", changes, |_| 60_000, {
        exclusions: Exclusions,
    } -> ();

    /// `MSFT_MpPreference::Remove`.
    ///
    /// Refuses as [`DefenderAdd`], and with 0x80041002 (not there).
    DefenderRemove, "defender_remove", changes, |_| 60_000, {
        exclusions: Exclusions,
    } -> ();
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// `IfIndex`.
    pub index: u32,
    pub luid: u64,
    /// `FriendlyName`: `Ethernet`, `vEthernet (Ethernet)`.
    pub name: String,
    /// `OperStatus` is 1, up.
    pub up: bool,
    /// `IfType` is 24.
    pub loopback: bool,
    /// Six bytes as `00-15-5D-01-02-03`; empty without.
    pub mac: String,
    /// `Ipv4Metric`.
    pub metric: u32,
    /// IPv4 addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// IPv4 gateways.
    pub gateways: Vec<String>,
}

/// An address of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceAddress {
    pub ipv4: String,
    /// `OnLinkPrefixLength`.
    pub prefix_length: u8,
    /// `DadState` is 4, preferred.
    pub preferred: bool,
}

/// An IPv4 route, as `GetIpForwardTable2` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to: `169.254.169.254/32`.
    pub prefix: String,
    /// Next hop; `0.0.0.0`: on the link.
    pub next_hop: String,
    /// Index of the card.
    pub interface: u32,
    /// The route's own metric; the card's is added to it.
    pub metric: u32,
}

/// A firewall rule, as the COM interface returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirewallRule {
    pub name: String,
    pub description: String,
    /// 6 TCP, 17 UDP.
    pub protocol: i32,
    /// Local ports: `10250`, `*`.
    pub ports: String,
    /// 1 in, 2 out.
    pub direction: i32,
    /// 0 block, 1 allow.
    pub action: i32,
    /// Bits: 1 domain, 2 private, 4 public; 0x7FFFFFFF all.
    pub profiles: i32,
    /// Whether it is on.
    pub enabled: bool,
    /// Remote addresses; `*` is all.
    pub remote: String,
    /// The program it is for; empty is all.
    pub program: String,
}

/// `NET_FW_MODIFY_STATE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirewallPolicy {
    /// 0: a rule takes effect.
    Ok,
    /// 1: a group policy overrides local rules.
    Overridden,
    /// 2: everything that comes in is blocked.
    InboundBlocked,
}

/// Exclusions of Windows Defender.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusions {
    /// `ExclusionPath`: files and folders that are not scanned.
    pub paths: Vec<String>,
    /// `ExclusionProcess`: what these open is not scanned; they themselves are.
    pub processes: Vec<String>,
}
