//! HNS network. Its creation and deletion rebind the network card: the SSH connection is lost, and this program
//! continues.

use dormer_profile::{
    answer::FailureCode,
    item::{HnsCreate, HnsNetwork},
};
use serde_json::json;

use super::{ItemVerdict, Kind, Step, hns};
use crate::{
    ops::{Host, Interface, InterfaceList},
    problem::{Doing as _, Problem, Result},
    progress::Run,
    session::Session,
    state::Made,
};

/// Longest wait until a card has its address back.
const ADDRESS_MS: u64 = 120_000;
/// After a deletion HNS refuses a creation for a while (hcsshim#95).
const AGAIN_MS: u64 = 15_000;

/// Cards that are up, without loopback and self-assigned addresses (169.254.*). Those with a gateway come first, the
/// lowest metric before the others.
pub(crate) async fn live_interfaces<H: Host>(host: &mut Session<H>) -> Result<Vec<Interface>> {
    let listed = host.ask(InterfaceList {}).await;
    let listed = listed.doing(FailureCode::Other, || "list the network cards".into())?;
    let mut live: Vec<Interface> = listed
        .into_iter()
        .filter(|card| card.up && !card.loopback)
        .collect();
    for card in &mut live {
        card.addresses
            .retain(|address| address.preferred && !is_nobodys(&address.ipv4));
    }
    live.sort_by_key(|card| (card.gateways.is_empty(), card.metric));
    Ok(live)
}

/// Whether it is an address that Windows assigns itself without a DHCP server.
pub(crate) fn is_nobodys(ipv4: &str) -> bool {
    ipv4.starts_with("169.254.")
}

/// State that HNS reports.
pub(crate) enum CurrentState {
    /// There is no such service, or it does not run and is not to be started.
    NoService,
    /// The network, or none.
    Asked(Option<hns::Network>),
}

impl Kind for HnsNetwork {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        if !hns::ready(run).await? {
            return Ok(CurrentState::NoService);
        }
        Ok(CurrentState::Asked(hns::network(run, &self.name).await?))
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        match found {
            CurrentState::NoService | CurrentState::Asked(None) => {
                ItemVerdict::wrong("is not there")
            }
            CurrentState::Asked(Some(network)) if is_nobodys(&network.management_ip) => {
                ItemVerdict::wrong(format!(
                    "has the management address {}",
                    network.management_ip
                ))
            }
            CurrentState::Asked(Some(network)) => match &self.create {
                Some(create) if !fits(network, create) => ItemVerdict::wrong(format!(
                    "is {} {}, not {} {}",
                    network.kind,
                    network.subnet(),
                    create.network_type,
                    create.subnet
                )),
                _ => ItemVerdict::right(),
            },
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, id: &str, found: CurrentState) -> Result<Step> {
        let missing = |said: String| Problem::new(FailureCode::HnsMissing, said);
        let CurrentState::Asked(there) = found else {
            return Err(missing("the service hns is not there".into()));
        };
        let task = run.call.task.clone();
        run.host.hold(&task, id).await?;
        let Some(wanted) = &self.create else {
            return wait_for(run, self, there).await;
        };
        if let Some(there) = there {
            hns::delete(run, &format!("/networks/{}", there.id)).await?;
        }
        address(&mut run.host).await?;
        create(run, self, wanted).await?;
        let made = hns::network(run, &self.name).await?;
        let made = made.ok_or_else(|| missing(format!("HNS made no network {}", self.name)))?;
        usable(&made)?;
        Ok(Step::Changed("made".into()))
    }

    fn made(&self, _: bool) -> Option<Made> {
        Some(Made::Network {
            name: self.name.clone(),
        })
    }
}

fn fits(network: &hns::Network, create: &HnsCreate) -> bool {
    network.kind.eq_ignore_ascii_case(&create.network_type) && network.subnet() == create.subnet
}

/// Refuses a self-assigned management address, which would stay for ever: HNS keeps the card's address at the creation
/// of the network (AKS, WaitForNetworkAdapterToBeReady; SDN, IncorrectManagementIpTest).
fn usable(network: &hns::Network) -> Result<()> {
    if is_nobodys(&network.management_ip) {
        let said = format!(
            "{} has the management address {}",
            network.name, network.management_ip
        );
        return Err(Problem::new(FailureCode::HnsFailed, said));
    }
    Ok(())
}

/// Waits until a card has an address that HNS may take.
async fn address<H: Host>(host: &mut Session<H>) -> Result<()> {
    let wait = host.wait("card_has_an_address", ADDRESS_MS).await?;
    loop {
        let cards = live_interfaces(host).await?;
        if cards
            .iter()
            .any(|card| !card.gateways.is_empty() && !card.addresses.is_empty())
        {
            return Ok(());
        }
        if !host.again(&wait, 1_000).await? {
            let said = "no card with a default gateway has an address";
            return Err(Problem::new(FailureCode::NoDefaultRoute, said));
        }
    }
}

/// Waits for a network that a service makes.
async fn wait_for<H: Host>(
    run: &mut Run<H>,
    item: &HnsNetwork,
    there: Option<hns::Network>,
) -> Result<Step> {
    let wait = run.host.wait("network_is_made", item.wait_ms).await?;
    let mut there = there;
    loop {
        match &there {
            Some(network) if !is_nobodys(&network.management_ip) => {
                return Ok(Step::Ok(String::new()));
            }
            _ => {}
        }
        if !run.host.again(&wait, 1_000).await? {
            break;
        }
        there = hns::network(run, &item.name).await?;
    }
    match there {
        Some(network) => usable(&network).map(|()| Step::Ok(String::new())),
        None => {
            let said = format!("no HNS network {}", item.name);
            Err(Problem::new(FailureCode::HnsMissing, said))
        }
    }
}

async fn create<H: Host>(run: &mut Run<H>, item: &HnsNetwork, create: &HnsCreate) -> Result<()> {
    let mut subnet = json!({ "AddressPrefix": create.subnet, "GatewayAddress": create.gateway });
    if let Some(vsid) = create.vsid {
        subnet["Policies"] = json!([{ "Type": "VSID", "VSID": vsid }]);
    }
    let body =
        json!({ "Name": item.name, "Type": create.network_type, "Subnets": [subnet] }).to_string();
    let wait = run.host.wait("network_can_be_made", AGAIN_MS).await?;
    loop {
        let error = match hns::call(run, "POST", "/networks", &body).await? {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        // An interrupted call or another process created it: it is read again.
        if error.code == hns::NETWORK_EXISTS && hns::network(run, &item.name).await?.is_some() {
            return Ok(());
        }
        if !run.host.again(&wait, 1_000).await? {
            return Err(hns::failed("POST", "/networks", &error));
        }
    }
}

/// Takes a network away.
pub(crate) async fn remove<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    if !hns::ready(run).await? {
        return Ok(false);
    }
    let Some(network) = hns::network(run, name).await? else {
        return Ok(false);
    };
    hns::delete(run, &format!("/networks/{}", network.id)).await?;
    Ok(true)
}

/// Whether there is a network of this name.
pub(crate) async fn is_there<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    Ok(hns::ready(run).await? && hns::network(run, name).await?.is_some())
}
