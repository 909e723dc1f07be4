//! File with values that only the host's network has.

use dormer_profile::{answer::FailureCode, item::NetworkFile, sha256_hex};

use super::{
    ItemVerdict, Kind, Step, directory::make_with_parents, endpoint::serves, file::digest, hns,
    network::is_nobodys,
};
use crate::{
    files::put,
    ops::{Bytes, ContentSource, Host, Rights},
    problem::{Problem, Result},
    progress::Run,
    rights::file_is_private,
    services,
    state::Made,
};

/// Present and desired content.
pub(crate) struct CurrentState {
    there: Option<String>,
    /// None while the network is not there.
    content: Option<String>,
}

impl Kind for NetworkFile {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        let there = digest(&mut run.host, &self.path).await?;
        let content = content(run, self).await?;
        Ok(CurrentState { there, content })
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        let Some(content) = &found.content else {
            return ItemVerdict::wrong("its network is not there");
        };
        if found.there.as_deref() == Some(&sha256_hex(content.as_bytes())) {
            ItemVerdict::right()
        } else {
            ItemVerdict::wrong("differs")
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, found: CurrentState) -> Result<Step> {
        let Some(content) = found.content else {
            let said = format!(
                "no HNS network {} that can be used, or not its endpoint",
                self.network
            );
            return Err(Problem::new(FailureCode::HnsMissing, said));
        };
        for user in &self.users {
            services::stop(run, user).await?;
        }
        make_with_parents(run, &self.path).await?;
        let rights = if file_is_private(&self.path, false) {
            Rights::Private
        } else {
            Rights::Users
        };
        let source = ContentSource::Inline {
            bytes: Bytes(content.into_bytes()),
        };
        put(&mut run.host, &self.path, source, rights, None).await?;
        Ok(Step::Changed("written".into()))
    }

    fn made(&self, _: bool) -> Option<Made> {
        Some(Made::File {
            path: self.path.clone(),
            sha256: String::new(),
        })
    }
}

/// Content with the present values of the network.
async fn content<H: Host>(run: &mut Run<H>, item: &NetworkFile) -> Result<Option<String>> {
    if !hns::ready(run).await? {
        return Ok(None);
    }
    let Some(network) = hns::network(run, &item.network).await? else {
        return Ok(None);
    };
    if item.template.contains("@{HNS_MANAGEMENT_IP}") && is_nobodys(&network.management_ip) {
        return Ok(None);
    }
    let address = match &item.endpoint {
        None => String::new(),
        Some(name) => match hns::endpoint(run, name).await? {
            Some(endpoint) if serves(&endpoint, &network) => endpoint.ip_address,
            _ => return Ok(None),
        },
    };
    let text = item.template.replace("@{HNS_SUBNET}", network.subnet());
    let text = text.replace("@{HNS_MANAGEMENT_IP}", &network.management_ip);
    Ok(Some(text.replace("@{HNS_ENDPOINT_IP}", &address)))
}
