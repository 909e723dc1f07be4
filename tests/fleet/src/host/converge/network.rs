//! Items of a document that are about the host's network.

use std::time::Duration;

use dormer_profile::answer::FailureCode;
use dormer_profile::item::{HnsEndpoint, HnsNetwork, NetworkFile};

use super::Step;
use crate::host::body::Body;
use crate::host::computer::Host;
use crate::host::path::WinPath;

impl Host {
    pub(super) async fn ensure_network(&self, what: &HnsNetwork, apply: bool) -> Step {
        let there = || self.state().hns.networks.contains_key(&what.name);
        if there() {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("is not there".into());
        }
        if let Some(create) = &what.create {
            self.make_hns_networks(&[&what.name], &create.subnet).await;
            return Step::Changed("made".into());
        }
        let mut waited = Duration::ZERO;
        self.midway("waited for").await;
        while waited < Duration::from_millis(what.wait_ms) {
            self.sleep(Duration::from_secs(1)).await;
            waited += Duration::from_secs(1);
            if there() {
                return Step::Ok;
            }
        }
        Step::Failed(
            FailureCode::HnsMissing,
            format!("no HNS network {}", what.name),
        )
    }

    pub(super) async fn ensure_endpoint(&self, what: &HnsEndpoint, apply: bool) -> Step {
        if self.state().hns.endpoints.contains_key(&what.name) {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("is not there".into());
        }
        for user in &what.users {
            let _ = self.stop_service(user).await;
        }
        self.pause(500, 1_500).await;
        let mut state = self.state();
        let Some(network) = state.hns.networks.get(&what.network) else {
            return Step::Failed(
                FailureCode::HnsMissing,
                format!("no HNS network {}", what.network),
            );
        };
        let address = network.subnet.split('/').next().unwrap_or_default();
        let address = match address.rsplit_once('.') {
            Some((front, _)) => format!("{front}.2"),
            None => address.to_owned(),
        };
        state.hns.endpoints.insert(what.name.clone(), address);
        Step::Changed("made".into())
    }

    pub(super) async fn ensure_network_file(&self, what: &NetworkFile, apply: bool) -> Step {
        let Ok(path) = WinPath::absolute(&what.path) else {
            return Step::Failed(FailureCode::DocumentRejected, what.path.clone());
        };
        let content = match self.network_content(what) {
            Some(content) => content,
            None if apply => {
                return Step::Failed(
                    FailureCode::HnsMissing,
                    format!("no HNS network {}", what.network),
                );
            }
            None => return Step::Differs("its network is not there".into()),
        };
        let body = Body::of(content.as_bytes());
        if self
            .state()
            .disk
            .read(&path)
            .is_ok_and(|there| there.sha256 == body.sha256)
        {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("differs".into());
        }
        for user in &what.users {
            let _ = self.stop_service(user).await;
        }
        self.midway("half written").await;
        let mut state = self.state();
        if let Some(parent) = path.parent() {
            state.disk.make_folders(parent.shown());
        }
        match state.disk.write(&path, body, false) {
            Ok(()) => Step::Changed("written".into()),
            Err(error) => Step::Failed(FailureCode::Other, format!("{path}: {error}")),
        }
    }

    fn network_content(&self, what: &NetworkFile) -> Option<String> {
        let state = self.state();
        let network = state.hns.networks.get(&what.network)?;
        let endpoint = match &what.endpoint {
            Some(name) => state.hns.endpoints.get(name)?.clone(),
            None => String::new(),
        };
        let text = what.template.replace("@{HNS_SUBNET}", &network.subnet);
        let text = text.replace("@{HNS_MANAGEMENT_IP}", &network.management_ip);
        Some(text.replace("@{HNS_ENDPOINT_IP}", &endpoint))
    }

    pub(super) fn ensure_route(&self, prefix: &str, apply: bool) -> Step {
        let mut state = self.state();
        if state.routes.contains(prefix) {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs("is not there".into());
        }
        state.routes.insert(prefix.to_owned());
        Step::Changed("added".into())
    }
}
