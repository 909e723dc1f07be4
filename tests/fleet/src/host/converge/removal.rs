//! Mode `remove`: what a document names goes, in reverse order.

use dormer_profile::answer::{FailureCode, ItemState};
use dormer_profile::item::{Item, What};
use tokio::time::Instant;

use super::{FILE_WAIT, Run, Step};
use crate::host::computer::Host;
use crate::host::disk::DiskError;
use crate::host::path::WinPath;

impl Run<'_> {
    pub(super) async fn remove(&mut self) -> Result<(), (FailureCode, String)> {
        let document = self.document()?;
        for item in document.items.iter().rev() {
            if self.failure.is_some() {
                self.outcome(item, ItemState::Skipped, String::new());
                continue;
            }
            let step = self.host.take_away(item).await;
            self.take(item, step);
        }
        self.outcomes.reverse();
        if self.failure.is_none() {
            self.host.forget_installed(document.section);
        }
        Ok(())
    }
}

impl Host {
    async fn take_away(&self, item: &Item) -> Step {
        match &item.what {
            What::Service(what) => self.take_service(&what.name).await,
            What::File(what) => self.take_file(&what.path).await,
            What::NetworkFile(what) => self.take_file(&what.path).await,
            What::Directory(what) if !what.keep => self.take_folder(&what.path),
            What::Environment(what) => gone(self.state().environment.remove(&what.name).is_some()),
            What::Registry(what) => {
                let mut state = self.state();
                let values = state.registry.get_mut(&what.key.to_lowercase());
                gone(values.is_some_and(|it| it.remove(&what.name.to_lowercase()).is_some()))
            }
            What::Firewall(what) => gone(self.state().firewall.remove(&what.name).is_some()),
            What::DefenderExclusion(what) => gone(self.state().exclusions.remove(&what.process)),
            What::Certificate(what) => gone(self.state().certificates.remove(&what.sha256)),
            What::HnsEndpoint(what) => {
                gone(self.state().hns.endpoints.remove(&what.name).is_some())
            }
            What::HnsNetwork(what) => self.take_network(&what.name).await,
            What::Lingering(what) => gone(self.state().lingering.remove(&what.process)),
            What::Directory(_)
            | What::Feature(_)
            | What::Hostname(_)
            | What::Route(_)
            | What::SteadyService(_)
            | What::Http(_)
            | What::OnlyFolders(_)
            | What::OnlyCertificates(_)
            | What::Sweep(_) => Step::Ok,
        }
    }

    async fn take_service(&self, name: &str) -> Step {
        let _ = self.stop_service(name).await;
        gone(self.state().scm.delete(name).is_ok())
    }

    async fn take_file(&self, path: &str) -> Step {
        let Ok(path) = WinPath::absolute(path) else {
            return Step::Ok;
        };
        if !self.file_released(&path, FILE_WAIT).await {
            return Step::Failed(FailureCode::FileLocked, format!("{path} is in use"));
        }
        gone(self.state().disk.remove(&path).is_ok())
    }

    fn take_folder(&self, path: &str) -> Step {
        let Ok(path) = WinPath::absolute(path) else {
            return Step::Ok;
        };
        let mut state = self.state();
        state.refresh_running(Instant::now());
        match state.disk.remove_tree(&path) {
            Ok(()) => gone(true),
            Err(DiskError::NotFound) => gone(false),
            Err(error) => Step::Failed(FailureCode::FileLocked, format!("{path}: {error}")),
        }
    }

    async fn take_network(&self, name: &str) -> Step {
        let removed = self.state().hns.networks.remove(name).is_some();
        if removed {
            self.pause(1_000, 3_000).await;
            self.cut_connections(); // the NIC is bound anew (docs/field-notes.md, Boots, reboots and limits of sshd)
        }
        gone(removed)
    }
}

fn gone(was_there: bool) -> Step {
    if was_there {
        Step::Changed("gone".into())
    } else {
        Step::Ok
    }
}
