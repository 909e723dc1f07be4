//! An HNS endpoint in the host's own compartment: kube-proxy's source address.

use dormer_profile::{
    answer::FailureCode,
    document::Document,
    item::{HnsEndpoint, ItemKind},
};
use serde_json::json;

use super::{ItemVerdict, Kind, Step, hns};
use crate::{
    files::{delete, put, stat},
    ops::{Bytes, ContentSource, Host, Rights},
    paths::{same, within},
    problem::{Problem, Result},
    progress::Run,
    services,
    state::Made,
};

/// Where host-local keeps who has which address (containernetworking/plugins, host-local, backend/disk).
const RESERVED: &str = r"C:\var\lib\cni\networks";
/// Attached, and attached and shared. One that was made and not attached has an address and no card.
const ATTACHED: [u32; 2] = [2, 3];

/// HNS's answer; `None` without the service.
pub(crate) type CurrentState = Option<EndpointState>;

/// The network and the endpoint.
pub(crate) struct EndpointState {
    network: Option<hns::Network>,
    endpoint: Option<hns::Endpoint>,
    /// Whether its address is reserved, so that no pod gets it.
    reserved: bool,
}

impl Kind for HnsEndpoint {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        if !hns::ready(run).await? {
            return Ok(None);
        }
        let network = hns::network(run, &self.network).await?;
        let endpoint = hns::endpoint(run, &self.name).await?;
        let reserved = match &endpoint {
            Some(endpoint) => {
                let path = reservation(&self.network, &endpoint.ip_address);
                stat(&mut run.host, &path).await?.is_some()
            }
            None => false,
        };
        Ok(Some(EndpointState {
            network,
            endpoint,
            reserved,
        }))
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        let Some(EndpointState {
            network,
            endpoint,
            reserved,
        }) = found
        else {
            return ItemVerdict::wrong("is not there");
        };
        let (Some(network), Some(endpoint)) = (network, endpoint) else {
            return ItemVerdict::wrong("is not there");
        };
        if !serves(endpoint, network) {
            return ItemVerdict::wrong("is not attached to the host, or in another network");
        }
        if !reserved {
            return ItemVerdict::wrong(format!(
                "its address {} is not reserved",
                endpoint.ip_address
            ));
        }
        ItemVerdict::right()
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, found: CurrentState) -> Result<Step> {
        let missing = |said: String| Problem::new(FailureCode::HnsMissing, said);
        let Some(EndpointState {
            network, endpoint, ..
        }) = found
        else {
            return Err(missing("the service hns is not there".into()));
        };
        let network = network.ok_or_else(|| missing(format!("no HNS network {}", self.network)))?;
        let endpoint = match endpoint {
            Some(endpoint) if serves(&endpoint, &network) => endpoint,
            there => {
                // They hold what they made of the endpoint that was lost; this call starts them again.
                for user in &self.users {
                    services::stop(run, user).await?;
                }
                if let Some(there) = there {
                    hns::delete(run, &format!("/endpoints/{}", there.id)).await?;
                }
                attach(run, &self.name, &network).await?
            }
        };
        reserve(run, &self.network, &self.name, &endpoint.ip_address).await?;
        Ok(Step::Changed("made".into()))
    }

    fn made(&self, _: bool) -> Option<Made> {
        Some(Made::Endpoint {
            name: self.name.clone(),
        })
    }
}

/// Whether an endpoint is attached and in the network that is there now.
pub(crate) fn serves(endpoint: &hns::Endpoint, network: &hns::Network) -> bool {
    ATTACHED.contains(&endpoint.state) && endpoint.virtual_network.eq_ignore_ascii_case(&network.id)
}

/// Makes an endpoint and attaches it to the host's compartment, which is number 1.
async fn attach<H: Host>(
    run: &mut Run<H>,
    name: &str,
    network: &hns::Network,
) -> Result<hns::Endpoint> {
    let body = json!({ "Name": name, "VirtualNetwork": network.id }).to_string();
    let answer = hns::call(run, "POST", "/endpoints", &body).await?;
    answer.map_err(|error| hns::failed("POST", "/endpoints", &error))?;
    let found = hns::endpoint(run, name).await?;
    let made = found.ok_or_else(|| {
        Problem::new(
            FailureCode::HnsFailed,
            format!("HNS made no endpoint {name}"),
        )
    })?;
    let path = format!("/endpoints/{}/attach", made.id);
    let body = json!({ "SystemType": "Host", "CompartmentId": 1 }).to_string();
    match hns::call(run, "POST", &path, &body).await? {
        Ok(_) => Ok(made),
        Err(error) if error.code == hns::ATTACHED_ALREADY => Ok(made),
        Err(error) => {
            hns::delete(run, &format!("/endpoints/{}", made.id)).await?;
            Err(hns::failed("POST", &path, &error))
        }
    }
}

fn reservation(network: &str, ipv4: &str) -> String {
    format!(r"{RESERVED}\{network}\{ipv4}")
}

/// Folders with the reservations of a document's endpoints.
pub(crate) fn reservations(document: &Document) -> Vec<String> {
    let all = document.items.iter().filter_map(|item| match &item.what {
        ItemKind::HnsEndpoint(what) => Some(format!(r"{RESERVED}\{}", what.network)),
        _ => None,
    });
    all.collect()
}

/// Reserves an address in host-local: HNS chose it, and host-local does not know it (kubernetes#96996). The file has
/// host-local's own format: the container, then the interface, on separate lines.
async fn reserve<H: Host>(
    run: &mut Run<H>,
    network: &str,
    endpoint: &str,
    ipv4: &str,
) -> Result<()> {
    let path = reservation(network, ipv4);
    if ipv4.is_empty() {
        return Ok(());
    }
    // The address of before is a pod's again.
    let folder = format!(r"{RESERVED}\{network}");
    let old: Vec<Made> = run
        .inventory
        .entries
        .iter()
        .map(|entry| entry.made.clone())
        .collect();
    for made in old {
        match &made {
            Made::File { path: old, .. } if within(old, &folder) && !same(old, &path) => {
                delete(&mut run.host, old).await?;
                run.inventory.forget(&made);
            }
            _ => {}
        }
    }
    if stat(&mut run.host, &path).await?.is_some() {
        return Ok(());
    }
    super::directory::make_with_parents(run, &path).await?;
    let text = format!("dormer-{endpoint}\r\n{endpoint}");
    run.note(Made::File {
        path: path.clone(),
        sha256: dormer_profile::sha256_hex(text.as_bytes()),
    })
    .await?;
    let source = ContentSource::Inline {
        bytes: Bytes(text.into_bytes()),
    };
    put(&mut run.host, &path, source, Rights::Users, None).await
}

/// Whether there is an endpoint of this name.
pub(crate) async fn is_there<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    Ok(hns::ready(run).await? && hns::endpoint(run, name).await?.is_some())
}

/// Takes an endpoint away.
pub(crate) async fn remove<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    if !hns::ready(run).await? {
        return Ok(false);
    }
    let Some(endpoint) = hns::endpoint(run, name).await? else {
        return Ok(false);
    };
    hns::delete(run, &format!("/endpoints/{}", endpoint.id)).await?;
    Ok(true)
}
