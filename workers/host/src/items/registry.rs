//! A value in the registry.

use dormer_profile::{
    answer::FailureCode,
    item::{Registry, RegistryValue},
};

use super::{ItemVerdict, Kind, Step, environment};
use crate::{
    ops::{Host, RegistryList, SystemRead, Value},
    problem::{Doing as _, Result},
    progress::Run,
    state::Made,
};

/// Where Windows keeps the settings of each network card, by its GUID.
const INTERFACES: &str = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces";

/// Present value.
pub(crate) struct CurrentState {
    value: Option<Value>,
    /// Whether the item is about this host at all.
    meant: bool,
}

impl From<&RegistryValue> for Value {
    fn from(value: &RegistryValue) -> Self {
        match value {
            RegistryValue::Dword(number) => Self::Number(*number),
            RegistryValue::Qword(number) => Self::Long(*number),
            RegistryValue::Text(text) => Self::Text(text.clone()),
            RegistryValue::Expand(text) => Self::Expand(text.clone()),
            RegistryValue::Texts(all) => Self::Texts(all.clone()),
        }
    }
}

impl Kind for Registry {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        let meant = is_meant(self, run).await?;
        let value = run.host.registry(&self.key, &self.name).await?;
        Ok(CurrentState { value, meant })
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        if !found.meant {
            return ItemVerdict::Right("for other hosts".into());
        }
        match &found.value {
            Some(value) if *value == Value::from(&self.value) => ItemVerdict::right(),
            Some(_) => ItemVerdict::wrong("another value"),
            None => ItemVerdict::wrong("is not there"),
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, found: CurrentState) -> Result<Step> {
        let noted = Made::Registry {
            key: self.key.clone(),
            name: self.name.clone(),
            before: found.value.filter(|it| !matches!(it, Value::Bytes(_))),
        };
        // The first value that was found is the one to restore, even if it was changed since.
        let noted = run.inventory.noted(&noted).cloned().unwrap_or(noted);
        run.note(noted).await?;
        let value = Value::from(&self.value);
        environment::write(&mut run.host, &self.key, &self.name, value).await?;
        Ok(Step::Changed("set".into()))
    }

    /// Only who knows the value before can restore it: `make` notes that. An equal value that others have set stays theirs.
    fn made(&self, _: bool) -> Option<Made> {
        None
    }
}

/// Takes a value away, or restores the one before; the key stays, because others may use it.
pub(crate) async fn remove<H: Host>(
    run: &mut Run<H>,
    key: &str,
    name: &str,
    before: Option<&Value>,
) -> Result<bool> {
    if !is_held(run, key, name, before).await? {
        return Ok(false);
    }
    match before {
        Some(value) => environment::write(&mut run.host, key, name, value.clone()).await?,
        None => environment::delete(&mut run.host, key, name).await?,
    }
    Ok(true)
}

/// Whether another value is there than before.
pub(crate) async fn is_held<H: Host>(
    run: &mut Run<H>,
    key: &str,
    name: &str,
    before: Option<&Value>,
) -> Result<bool> {
    let found = run.host.registry(key, name).await?;
    Ok(found.as_ref() != before)
}

/// Whether the item is about a host of this build, with this kind of address.
async fn is_meant<H: Host>(item: &Registry, run: &mut Run<H>) -> Result<bool> {
    if !item.windows_builds.is_empty() {
        let system = run.host.ask(SystemRead {}).await;
        let system = system.doing(FailureCode::Other, || "read the Windows build".into())?;
        let [major, minor, build] = system.version;
        let build = format!("{major}.{minor}.{build}");
        if !item.windows_builds.contains(&build) {
            return Ok(false);
        }
    }
    Ok(!item.static_address || has_static_address(run).await?)
}

/// Whether a card has a gateway and no DHCP. Windows moves these settings with the address when HNS takes the card over.
async fn has_static_address<H: Host>(run: &mut Run<H>) -> Result<bool> {
    let list = RegistryList {
        key: INTERFACES.into(),
    };
    let cards = match run.host.ask(list).await {
        Err(error) if error.number() == 2 => return Ok(false),
        listed => listed.doing(FailureCode::Other, || format!("list {INTERFACES}"))?,
    };
    for card in cards.keys {
        let key = format!(r"{INTERFACES}\{card}");
        let gateway = run.host.registry(&key, "DefaultGateway").await?;
        let has_gateway = match gateway {
            Some(Value::Texts(all)) => all.iter().any(|one| !one.is_empty()),
            Some(Value::Text(one)) => !one.is_empty(),
            _ => false,
        };
        if has_gateway && run.host.registry_number(&key, "EnableDHCP").await? == Some(0) {
            return Ok(true);
        }
    }
    Ok(false)
}
