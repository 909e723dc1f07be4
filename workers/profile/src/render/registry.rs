//! Values in the registry.

use super::items::Items;
use crate::{
    item::{ItemKind, Registry, RegistryValue},
    profile::{RegistrySpec, SectionSpec},
};

impl RegistrySpec {
    /// Its value.
    ///
    /// # Errors
    /// The first thing that is wrong with the entry.
    pub(crate) fn checked(&self) -> Result<RegistryValue, &'static str> {
        let mut given = [
            self.dword.map(RegistryValue::Dword),
            self.qword.map(RegistryValue::Qword),
            self.text.clone().map(RegistryValue::Text),
            self.expand.clone().map(RegistryValue::Expand),
            self.texts.clone().map(RegistryValue::Texts),
        ]
        .into_iter()
        .flatten();
        let root = self.key.split('\\').next().unwrap_or_default();
        let root = root.trim_end_matches(':').to_uppercase();
        let value = given.next();
        let whole =
            !self.key.is_empty() && !self.key.starts_with('\\') && !self.key.ends_with('\\');
        if !whole || root == "HKLM" || root.starts_with("HKEY_") {
            Err(
                "the key is written without its root and without `\\` at its ends, as in `SYSTEM\\Setup`",
            )
        } else if self.name.is_empty() {
            Err("has no name")
        } else {
            value
                .filter(|_| given.next().is_none())
                .ok_or("has to have one of `dword`, `qword`, `text`, `expand` and `texts`")
        }
    }
}

impl Items<'_> {
    pub(super) fn registry(&mut self, spec: &SectionSpec) {
        for (id, entry) in &spec.registry {
            if !self.values.holds(&entry.when) {
                continue;
            }
            let location = format!("registry.{id}");
            let value = match entry.checked() {
                Ok(value) => value,
                Err(reason) => {
                    self.wrong(location, reason.into());
                    continue;
                }
            };
            let value = match value {
                RegistryValue::Text(text) => RegistryValue::Text(self.fill(&location, &text)),
                RegistryValue::Expand(text) => RegistryValue::Expand(self.fill(&location, &text)),
                RegistryValue::Texts(all) => RegistryValue::Texts(
                    all.iter().map(|text| self.fill(&location, text)).collect(),
                ),
                number => number,
            };
            let what = Registry {
                key: self.fill(&location, &entry.key),
                name: self.fill(&location, &entry.name),
                value,
                static_address: entry.static_address,
                windows_builds: entry.windows_builds.clone(),
            };
            self.push(
                format!("registry:{id}"),
                entry.change,
                ItemKind::Registry(what),
            );
        }
    }
}
