//! Everything that can be found on a host, one line each: to be compared with a written inventory.

use std::collections::BTreeSet;

use dormer_profile::answer::FeatureState;

use super::computer::Host;

impl Host {
    /// All files, folders, services, registry values and whatever else a program can leave, as `kind:name`.
    pub fn inventory(&self) -> BTreeSet<String> {
        let state = self.state();
        let mut all = BTreeSet::new();
        let mut add = |kind: &str, names: Vec<String>| {
            all.extend(names.into_iter().map(|name| format!("{kind}:{name}")));
        };
        let texts = |names: &BTreeSet<String>| names.iter().cloned().collect();
        add("file", state.disk.files().map(str::to_owned).collect());
        add("folder", state.disk.folders().map(str::to_owned).collect());
        let services = state.scm.iter();
        add(
            "service",
            services.map(|it| it.config.name.clone()).collect(),
        );
        let enabled = |(_, is): &(_, &FeatureState)| **is != FeatureState::Disabled;
        let features = state.features.iter().filter(enabled);
        add("feature", features.map(|(name, _)| name.clone()).collect());
        for (key, values) in &state.registry {
            add(
                "registry",
                values.keys().map(|name| format!(r"{key}\{name}")).collect(),
            );
        }
        add("environment", state.environment.keys().cloned().collect());
        add("firewall", state.firewall.keys().cloned().collect());
        add("defender", texts(&state.exclusions));
        add("defender", texts(&state.excluded_paths));
        add("network", state.hns.networks.keys().cloned().collect());
        add("endpoint", state.hns.endpoints.keys().cloned().collect());
        add("certificate", texts(&state.certificates));
        add("image", state.images.keys().cloned().collect());
        // Windows' own range is none that a program has left.
        let ports = state.dynamic_ports();
        let set = (ports.start, ports.count) != (49_152, 16_384);
        let ports = set.then(|| format!("{}+{}", ports.start, ports.count));
        add("ports", ports.into_iter().collect());
        add("process", texts(&state.lingering));
        all
    }
}
