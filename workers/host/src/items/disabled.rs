//! Service of others that must not run on this host together with ours: it is stopped and disabled. Its start type is
//! recorded, so that a removal restores it.

use dormer_profile::{answer::FailureCode, item::DisabledService};

use super::{ItemVerdict, Kind, Step};
use crate::{
    ops::{
        Host, ServiceChange, ServiceConfig, ServiceRead, ServiceSettings, ServiceState,
        ServiceStatus, Start,
    },
    paths::same,
    problem::{Doing as _, Problem, Result},
    progress::Run,
    services,
    state::Made,
};

impl Kind for DisabledService {
    type CurrentState = Option<(ServiceConfig, ServiceStatus)>;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<Self::CurrentState> {
        let read = ServiceRead {
            name: self.name.clone(),
        };
        let config = match run.host.ask(read).await {
            Ok(config) => config,
            Err(error) if error.number() == 1060 => return Ok(None),
            Err(error) => {
                return Err(error).doing(FailureCode::Other, || {
                    format!("look at the service {}", self.name)
                });
            }
        };
        let status = services::status(&mut run.host, &self.name).await?;
        Ok(status.map(|status| (config, status)))
    }

    fn differs(&self, found: &Self::CurrentState) -> ItemVerdict {
        match found {
            None => ItemVerdict::right(),
            Some((config, _)) if config.start != Start::Disabled => {
                ItemVerdict::wrong("is not disabled")
            }
            Some((_, status)) if status.state != ServiceState::Stopped => {
                ItemVerdict::wrong("still runs")
            }
            Some(_) => ItemVerdict::right(),
        }
    }

    async fn make<H: Host>(
        &self,
        run: &mut Run<H>,
        _: &str,
        found: Self::CurrentState,
    ) -> Result<Step> {
        let Some((config, _)) = found else {
            return Ok(Step::Ok(String::new()));
        };
        if config.start != Start::Disabled {
            run.note(Made::Disabled {
                name: self.name.clone(),
                start: config.start,
            })
            .await?;
            let settings = ServiceSettings {
                start: Some(Start::Disabled),
                ..ServiceSettings::default()
            };
            let change = ServiceChange {
                name: self.name.clone(),
                settings,
            };
            run.host.ask(change).await.map_err(|error| {
                let doing = format!("disable the service {}", self.name);
                Problem::windows(FailureCode::ServiceConfigFailed, &doing, &error)
            })?;
        }
        services::stop(run, &self.name).await?;
        // The service was stopped for good, not as part of another change.
        run.stopped.retain(|stopped| !same(stopped, &self.name));
        Ok(Step::Changed("disabled".into()))
    }

    /// `make` records the start type, without which the service could not be restored.
    fn made(&self, _: bool) -> Option<Made> {
        None
    }
}

/// Whether a service that started otherwise before is disabled.
pub(crate) async fn is_held<H: Host>(run: &mut Run<H>, name: &str, before: Start) -> Result<bool> {
    if before == Start::Disabled {
        return Ok(false);
    }
    match run.host.ask(ServiceRead { name: name.into() }).await {
        Ok(config) => Ok(config.start == Start::Disabled),
        Err(error) if error.number() == 1060 => Ok(false),
        Err(error) => {
            let doing = || format!("look at the service {name}");
            Err(error).doing(FailureCode::Other, doing)
        }
    }
}
