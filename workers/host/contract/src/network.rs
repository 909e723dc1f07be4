//! Rows about network cards, routes and local HTTP, and about firewall, Defender and HNS where the host has them.

use dormer_host::ops::{
    Answer, Ask, DefenderRead, Exclusions, FirewallPolicyRead, FirewallRead, FirewallRemove,
    HnsCall, HttpGet, Interface, InterfaceList, Operation, Route, RouteAdd, RouteList, RouteRemove,
};

use crate::{
    Needs, Row, Scope,
    Wanted::{self, Refused},
};

const NO_RULES: &str = "rules cannot be read: Item is E_NOTIMPL";
const NO_ROUTES: &str = "has no CreateIpForwardEntry2";

fn get(url: &str) -> Operation {
    HttpGet {
        url: url.into(),
        timeout_ms: 1000,
    }
    .operation()
}

fn route() -> Route {
    Route {
        prefix: "198.51.100.7/32".into(),
        next_hop: "0.0.0.0".into(),
        interface: 1,
        metric: 5,
    }
}

fn rule() -> String {
    "dormer contract: no such rule".into()
}

pub(crate) fn rows(_: &Scope) -> Vec<Row> {
    let mut rows = of_cards();
    rows.extend(of_policy());
    rows
}

fn of_cards() -> Vec<Row> {
    vec![
        Row::new(
            "the loopback card has its address",
            vec![],
            InterfaceList {}.operation(),
            Wanted::Answer(
                "a loopback card with 127.0.0.1",
                Box::new(|answer| {
                    let Answer::InterfaceList(cards) = answer else {
                        return false;
                    };
                    let is = |card: &Interface| {
                        let has = card
                            .addresses
                            .iter()
                            .any(|it| it.ipv4 == "127.0.0.1" && it.prefix_length == 8);
                        card.loopback && card.up && card.index != 0 && has
                    };
                    cards.iter().any(is)
                }),
            ),
            "sdk-api nf-iphlpapi-getadaptersaddresses",
        )
        .liar(Ok(Answer::InterfaceList(vec![]))),
        Row::new(
            "a route has a prefix, a next hop and a card",
            vec![],
            RouteList {}.operation(),
            Wanted::Answer(
                "routes",
                Box::new(|answer| {
                    let Answer::RouteList(routes) = answer else {
                        return false;
                    };
                    let whole = |route: &Route| {
                        let length = route.prefix.split_once('/').map(|(_, length)| length);
                        let length: Option<u8> = length.and_then(|length| length.parse().ok());
                        length.is_some_and(|length| length <= 32) && route.interface != 0
                    };
                    !routes.is_empty() && routes.iter().all(whole)
                }),
            ),
            "sdk-api nf-netioapi-getipforwardtable2",
        )
        .liar(Ok(Answer::RouteList(vec![Route {
            prefix: "0.0.0.0".into(),
            ..route()
        }]))),
        Row::new(
            "a route that is not there is not removed",
            vec![],
            RouteRemove { route: route() }.operation(),
            Refused(&[1168]),
            "sdk-api nf-netioapi-deleteipforwardentry2",
        )
        .not_on_wine(NO_ROUTES),
        Row::new(
            "a route on a card that is not there",
            vec![],
            RouteAdd {
                route: Route {
                    interface: 0x7fff_fff0,
                    ..route()
                },
            }
            .operation(),
            Refused(&[87, 1168]),
            "sdk-api nf-netioapi-createipforwardentry2",
        )
        .not_on_wine(NO_ROUTES),
        Row::new(
            "nobody listens on a port",
            vec![],
            // No present system listens on port 1.
            get("http://127.0.0.1:1/healthz"),
            Refused(&[10_061]),
            "winsock2.h, WSAECONNREFUSED",
        )
        .liar(Ok(Answer::HttpGet(200))),
        Row::new(
            "another host is not asked",
            vec![],
            get("http://192.0.2.1/healthz"),
            Refused(&[87]),
            "the interface's own promise",
        )
        .liar(Ok(Answer::HttpGet(200))),
        Row::new(
            "TLS is not spoken",
            vec![],
            get("https://127.0.0.1/healthz"),
            Refused(&[87]),
            "the interface's own promise",
        )
        .liar(Ok(Answer::HttpGet(200))),
    ]
}

fn of_policy() -> Vec<Row> {
    vec![
        Row::new(
            "a rule that is not there",
            vec![],
            FirewallRead { name: rule() }.operation(),
            Refused(&[0x8007_0002]),
            "sdk-api nf-netfw-inetfwrules-item; PowerShell/DSC firewall.rs",
        )
        .not_on_wine(NO_RULES),
        Row::new(
            "a rule that is not there is removed without complaint",
            vec![],
            FirewallRemove { name: rule() }.operation(),
            Wanted::Done,
            "sdk-api nf-netfw-inetfwrules-remove",
        )
        .liar(Err(dormer_host::ops::WinError::new(0x8007_0002))),
        Row::new(
            "the firewall says whether local rules count",
            vec![],
            FirewallPolicyRead {}.operation(),
            Wanted::Done,
            "sdk-api nf-netfw-inetfwpolicy2-get_localpolicymodifystate",
        )
        .not_on_wine("LocalPolicyModifyState is E_NOTIMPL"),
        Row::new(
            "a host without Defender says so",
            vec![],
            DefenderRead {}.operation(),
            Refused(&[0x8004_100e]),
            "win32 desktop-src WmiSdk/wmi-error-constants, WBEM_E_INVALID_NAMESPACE",
        )
        .needs(Needs::NoDefender)
        .liar(Ok(Answer::DefenderRead(Exclusions::default()))),
        Row::new(
            "a host without Containers has no HNS to call",
            vec![],
            HnsCall {
                method: "GET".into(),
                path: "/networks/".into(),
                body: String::new(),
            }
            .operation(),
            Refused(&[126]),
            "moby/moby#28327",
        )
        .needs(Needs::NoContainers)
        .liar(Ok(Answer::HnsCall(
            r#"{"Success":true,"Output":[]}"#.into(),
        ))),
    ]
}
