//! A variable of the machine's environment.

use dormer_profile::{answer::FailureCode, item::Environment};

use super::{ItemVerdict, Kind, Step};
use crate::{
    ops::{EnvironmentTell, Host, RegistryDelete, RegistryWrite, Value},
    problem::{Doing as _, Result},
    progress::Run,
    session::Session,
    state::Made,
};

/// Where Windows keeps it.
pub(crate) const KEY: &str = r"SYSTEM\CurrentControlSet\Control\Session Manager\Environment";

/// Present value, and whether services need a reboot to see it.
pub(crate) struct CurrentState {
    value: Option<Value>,
    waits: bool,
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) | Value::Expand(text) => Some(text),
        _ => None,
    }
}

impl Kind for Environment {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        let value = run.host.registry(KEY, &self.name).await?;
        let id = format!("environment:{}", self.name);
        let waits = self.reboot && run.waiting.contains(&id);
        Ok(CurrentState { value, waits })
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        let there = found
            .value
            .as_ref()
            .map(|value| text(value).unwrap_or_default());
        if there.unwrap_or_default() != self.value.as_deref().unwrap_or_default() {
            return ItemVerdict::wrong("differs");
        }
        if found.waits {
            return ItemVerdict::AfterReboot("waits for a reboot".into());
        }
        ItemVerdict::right()
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, id: &str, found: CurrentState) -> Result<Step> {
        if self.reboot {
            run.wait_for_reboot(id).await?;
        }
        match &self.value {
            // `PATH` and the like are expanded; they stay so.
            Some(value) => {
                let value = match found.value {
                    Some(Value::Expand(_)) => Value::Expand(value.clone()),
                    _ => Value::Text(value.clone()),
                };
                write(&mut run.host, KEY, &self.name, value).await?;
            }
            None => delete(&mut run.host, KEY, &self.name).await?,
        }
        let _ = run.host.ask(EnvironmentTell {}).await;
        Ok(if self.reboot {
            Step::Reboot("set".into())
        } else {
            Step::Changed("set".into())
        })
    }

    fn made(&self, found: bool) -> Option<Made> {
        // An equal value that others have set stays theirs.
        let ours = !found && self.value.is_some();
        ours.then(|| Made::Environment {
            name: self.name.clone(),
        })
    }
}

/// Takes a variable away.
pub(crate) async fn remove<H: Host>(run: &mut Run<H>, name: &str) -> Result<bool> {
    let there = run.host.registry(KEY, name).await?.is_some();
    delete(&mut run.host, KEY, name).await?;
    if there {
        let _ = run.host.ask(EnvironmentTell {}).await;
    }
    Ok(there)
}

/// Writes a value of the registry.
pub(crate) async fn write<H: Host>(
    host: &mut Session<H>,
    key: &str,
    name: &str,
    value: Value,
) -> Result<()> {
    let write = RegistryWrite {
        key: key.into(),
        name: name.into(),
        value,
    };
    let written = host.ask(write).await;
    written.doing(FailureCode::Other, || format!(r"write {key}\{name}"))
}

/// Deletes a value of the registry; none there is well.
pub(crate) async fn delete<H: Host>(host: &mut Session<H>, key: &str, name: &str) -> Result<()> {
    let delete = RegistryDelete {
        key: key.into(),
        name: name.into(),
    };
    match host.ask(delete).await {
        Err(error) if error.number() == 2 => Ok(()),
        deleted => deleted.doing(FailureCode::Other, || format!(r"delete {key}\{name}")),
    }
}
