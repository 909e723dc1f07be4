//! Fields of a `providerSpec` in which a Machine differs from its template without anybody's doing.
//!
//! The Machine API's webhooks write the same defaults into Machines and into templates (openshift/machine-api-operator at
//! commit 951196122, August 2026: `pkg/webhooks/machine_webhook.go`, `defaultAWS` to `defaultNutanix`, and
//! `machineset_webhook.go`, `defaultMachineSet`). A template that was stored before a webhook ran, or by an earlier
//! release, has none. Azure's controller fills in three more (openshift/machine-api-provider-azure,
//! `pkg/cloud/azure/actuators/machine_scope.go`, `updateFromSecret` and `setMachineSpec`).

/// A Machine's providerSpec.
pub(super) const PROVIDER: &str = "spec.providerSpec.value";
/// Fields that are filled in where they are absent, or those below them.
const DEFAULTS: [&str; 12] = [
    "credentialsSecret",
    "image",
    "instanceType",
    "location",
    "machineType",
    "managedIdentity",
    "networkInterfaces",
    "networkResourceGroup",
    "placement.region",
    "resourceGroup",
    "userDataSecret",
    "vmSize",
];
/// A default in each of their disks, where it is absent.
const OF_DISKS: [&str; 2] = ["image", "type"];
/// Azure's, which are filled in together.
const NETWORK: [&str; 2] = ["vnet", "subnet"];
/// References to Secrets of the Machine's own namespace. The guides write the namespace, too.
const SECRETS: [&str; 2] = ["credentialsSecret", "userDataSecret"];

/// Whether a webhook or the cloud's controller fills this field in. `has`: whether the template has a field, or one below
/// it.
pub(super) fn in_by_others(path: &str, has: impl Fn(&str) -> bool) -> bool {
    let Some(field) = of_provider(path) else {
        return false;
    };
    let absent = |field: &str| !has(&format!("{PROVIDER}.{field}"));
    if NETWORK.contains(&field) {
        return NETWORK.into_iter().all(absent);
    }
    if let Some(name) = field.strip_prefix("gpus[0].") {
        return name == "count";
    }
    // GCP's are texts. Other platforms' have names, and no default.
    if field.starts_with("tags[") && !field.contains('.') {
        return absent("tags");
    }
    if is_or_is_below(field, "disks") {
        let of_disk = field.split_once("].").map(|(_, name)| name);
        return absent("disks") || of_disk.is_some_and(|name| OF_DISKS.contains(&name));
    }
    // Its name and its namespace are filled in each.
    if SECRETS
        .into_iter()
        .any(|secret| is_or_is_below(field, secret))
    {
        return true;
    }
    let mut defaults = DEFAULTS.into_iter();
    defaults.any(|default| is_or_is_below(field, default) && absent(default))
}

/// Whether a webhook drops this field of a template: a namespace that the type of the reference has not.
pub(super) fn dropped(path: &str) -> bool {
    let field = of_provider(path).and_then(|field| field.strip_suffix(".namespace"));
    field.is_some_and(|secret| SECRETS.contains(&secret))
}

fn of_provider(path: &str) -> Option<&str> {
    path.strip_prefix(PROVIDER)?.strip_prefix('.')
}

fn is_or_is_below(field: &str, above: &str) -> bool {
    let rest = field.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
