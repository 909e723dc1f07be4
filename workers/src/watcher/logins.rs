//! Hosts that dormer logs in to, read from the cluster once, for commands that change something on all of them.

use super::objects::{ObservedMachine, machine};
use crate::{kubernetes::keys, source};
use dormer_proto::machine::MachineApi;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};

/// Objects of one page of a list.
const PAGE: u32 = 500;

/// A Windows machine, and how dormer logs in to its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLogin {
    /// Name of its Machine, or of its WindowsHost.
    pub name: String,
    pub node: Option<String>,
    /// Its address; none while it is being made.
    pub address: Option<String>,
    pub user: String,
    /// Pinned host key; none until dormer reached it.
    pub pin: Option<String>,
    /// Why dormer leaves it alone.
    pub left_alone: Option<String>,
    /// Whether it belongs to another dormer, which has keys of its own.
    pub of_another: bool,
}

/// Lists the Windows machines of every machine API that the cluster serves, by name. Machines that are being deleted are
/// left out. `home` is dormer's namespace.
///
/// # Errors
/// A list that the API server refuses, or a machine that cannot be read.
pub async fn read(client: &Client, home: &str) -> Result<Vec<HostLogin>, String> {
    let failed = |error: kube::Error| error.to_string();
    let mut all: Vec<(ObservedMachine, HostLogin)> = Vec::new();
    for api in source::served(client).await.map_err(failed)? {
        for object in listed(client, api).await.map_err(failed)? {
            if !source::is_windows(api, &object.metadata)
                || object.metadata.deletion_timestamp.is_some()
            {
                continue;
            }
            let name = object.name_any();
            let pin = object.annotations().get(keys::HOST_KEY).cloned();
            let other = keys::other_installation(&object, home).map(str::to_owned);
            let observed =
                machine(api, object).map_err(|why| format!("{} {name}: {why}", api.kind()))?;
            let login = login(&observed, name, pin, other);
            all.push((observed, login));
        }
    }
    // A machine that two APIs show is one host.
    let twins: Vec<bool> = all
        .iter()
        .map(|(one, _)| all.iter().any(|(other, _)| other.stands_for(one)))
        .collect();
    let all = all.into_iter().zip(twins);
    let mut logins: Vec<HostLogin> = all
        .filter(|((observed, _), twin)| !twin && observed.counts())
        .map(|((_, login), _)| login)
        .collect();
    logins.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(logins)
}

fn login(
    observed: &ObservedMachine,
    name: String,
    pin: Option<String>,
    other: Option<String>,
) -> HostLogin {
    let fact = &observed.fact;
    // As a machine's run chooses it (`workflows/src/machine/tasks.rs`).
    let by_platform = match fact.platform.as_str() {
        "Azure" => "capi",
        _ => "Administrator",
    };
    let ignored = fact
        .ignored
        .then(|| format!("its Machine says {}=true", keys::IGNORE));
    let other = other.map(|home| format!("it belongs to the dormer in {home}"));
    HostLogin {
        name,
        node: fact.node.clone(),
        address: fact.addresses.first().cloned(),
        user: fact.user.clone().unwrap_or_else(|| by_platform.to_owned()),
        pin: pin.filter(|pin| !pin.is_empty()),
        of_another: other.is_some(),
        left_alone: other.or(ignored),
    }
}

async fn listed(client: &Client, api: MachineApi) -> Result<Vec<DynamicObject>, kube::Error> {
    let resource = source::machines(api);
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let list = match objects.list(&params).await {
            // The group is there without this kind.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(all),
            list => list?,
        };
        all.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}
