//! WMCO's daemon on a host (WICD): it keeps the services' command lines as a ConfigMap of the operator has them.

use std::{sync::Arc, time::Duration};

use dormer_profile::item::{FailureActions, Service, StartType};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::VERSION;
use crate::{
    host::{Host, kubelet::Api},
    world::Pace,
};

/// The daemon's service.
pub(super) const SERVICE: &str = "windows-instance-config-daemon";
/// How often it looks, changed or not.
const TICK: Duration = Duration::from_secs(120);
/// The services that WMCO keeps, those first that others need.
const KEPT: [&str; 6] = [
    "containerd",
    "kubelet",
    "windows_exporter",
    "hybrid-overlay-node",
    "csi-proxy",
    "kube-proxy",
];

/// The name of the ConfigMap that daemons of this build follow.
pub(super) fn map() -> String {
    format!("windows-services-{VERSION}")
}

/// What a host runs of them, as the ConfigMap's key `services` has it: what is the host's own stands as a variable.
pub(super) fn services(host: &Host) -> Value {
    let variables = variables(host);
    let state = host.state();
    let known = KEPT.iter().filter_map(|name| state.scm.get(name));
    let services = known.map(|entry| {
        let mut path = entry.config.command.clone();
        for (variable, value) in &variables {
            path = path.replace(value, variable);
        }
        json!({"name": entry.config.name, "path": path})
    });
    services.collect()
}

/// What differs from host to host in a command line, as WMCO's own variables do.
fn variables(host: &Host) -> [(&'static str, String); 2] {
    let address = host.internal_ip();
    let name = address.replace('.', "-");
    [("NODE_IP", address), ("HOSTNAME_OVERRIDE", name)]
}

/// Makes the daemon's service, and starts it.
pub(super) async fn install(host: &Host) {
    let daemon = Service {
        name: SERVICE.into(),
        display: SERVICE.into(),
        description: "OpenShift managed".into(),
        command: format!(r"C:\Windows\{SERVICE}.exe controller --windows-service"),
        depends: Vec::new(),
        start: StartType::Auto,
        failure: FailureActions {
            reset_seconds: 300,
            restart_delays_ms: vec![10, 30, 60, 120],
        },
        environment: Default::default(),
        priority: None,
        running: true,
        start_timeout_ms: 30_000,
        log: None,
    };
    // It is there after a first try.
    let _ = host.state().scm.create(daemon, Instant::now());
    let _ = host.start_service(SERVICE).await;
}

/// Makes the daemon's service, and restarts what the host runs, as a cleanup and a bootstrap do.
pub(super) async fn restart_all(host: &Host) {
    let runs = |name: &&&str| host.state().scm.running(name);
    let running: Vec<&str> = KEPT.iter().filter(runs).copied().collect();
    for name in running.iter().rev() {
        let _ = host.stop_service(name).await;
    }
    for name in running {
        let _ = host.start_service(name).await;
    }
    install(host).await;
}

/// Looks every two minutes, whenever the daemon's service runs.
pub(super) async fn run(host: Arc<Host>, api: Arc<Api>, map: String, pace: Pace) {
    loop {
        let runs = host.state().scm.running(SERVICE);
        if runs && let Ok((200, found)) = api.get(&map).await {
            let text = found["data"]["services"].as_str().unwrap_or_default();
            let wanted: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
            for service in wanted {
                let name = service["name"].as_str().unwrap_or_default();
                let mut command = service["path"].as_str().unwrap_or_default().to_owned();
                for (variable, value) in variables(&host) {
                    command = command.replace(variable, &value);
                }
                keep(&host, name, &command).await;
            }
        }
        pace.sleep(TICK).await;
    }
}

/// Stops, changes and starts a service that has another command line; one that does not run is started.
async fn keep(host: &Host, name: &str, command: &str) {
    let other = match host.state().scm.get(name) {
        Some(entry) => entry.config.command != command,
        None => return,
    };
    if other {
        let _ = host.stop_service(name).await;
        if let Some(entry) = host.state().scm.get_mut(name) {
            command.clone_into(&mut entry.config.command);
        }
    }
    let _ = host.start_service(name).await;
}
