//! Facts about a host, read at the end of every call.

use dormer_profile::answer::{Address, Facts, FailureCode, FeatureState};

use crate::{
    items::{feature, network::live_interfaces},
    ops::{Host, ServiceStatusRead, SystemRead, VolumeSpace},
    pending::{TCPIP, names, servicing_waits},
    problem::{Doing as _, Result},
    session::Session,
};

const CURRENT: &str = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion";

/// All facts about the host in an answer.
pub(crate) async fn read<H: Host>(
    host: &mut Session<H>,
    boot_id: &str,
    booted_ms: i64,
) -> Result<Facts> {
    let system = host.ask(SystemRead {}).await;
    let system = system.doing(FailureCode::Other, || "read the system's facts".into())?;
    let [major, minor, build] = system.version;
    let (hostname, hostname_pending) = names(host).await?;
    let addresses = addresses(host).await?;
    let default = addresses.iter().find(|address| address.default_route);
    let node_ip = default.map(|address| address.ipv4.clone());
    let space = host
        .ask(VolumeSpace {
            path: r"C:\".into(),
        })
        .await;
    let space = space.doing(FailureCode::Other, || r"look for room on C:\".into())?;
    let product = host.registry_text(CURRENT, "ProductName").await?;
    let default_shell = host
        .registry_text(r"SOFTWARE\OpenSSH", "DefaultShell")
        .await?;
    let reboot_pending = servicing_waits(host).await? || hostname_pending.is_some();
    // One place that waits is smaller in the program than three.
    let mut pids = [None; 3];
    for (pid, name) in pids.iter_mut().zip(["WinDefend", "docker", "hns"]) {
        *pid = service_pid(host, name).await?;
    }
    let [defender, docker, hns] = pids;
    Ok(Facts {
        os_build: format!("{major}.{minor}.{build}"),
        // Today's fact is WMI's caption, which begins so.
        product: if product.is_empty() {
            product
        } else {
            format!("Microsoft {product}")
        },
        fqdn: fqdn(host, &hostname).await?,
        hostname,
        hostname_pending,
        boot_id: boot_id.to_owned(),
        booted_ms,
        now_ms: host.clock().await?.now_ms,
        default_shell: (!default_shell.is_empty()).then_some(default_shell),
        installed: host.installed().await?,
        fence: host.fence().await?,
        containers: containers(host).await,
        reboot_pending,
        addresses,
        node_ip,
        free_bytes: space.free,
        defender: defender.unwrap_or(0) != 0,
        docker: docker.is_some(),
        last: host.last().await?,
        hns_pid: hns.unwrap_or(0),
    })
}

async fn fqdn<H: Host>(host: &mut Session<H>, name: &str) -> Result<Option<String>> {
    for value in ["Domain", "DhcpDomain"] {
        let domain = host.registry_text(TCPIP, value).await?;
        if !domain.is_empty() {
            return Ok(Some(format!("{name}.{domain}").to_ascii_lowercase()));
        }
    }
    Ok(None)
}

async fn addresses<H: Host>(host: &mut Session<H>) -> Result<Vec<Address>> {
    let mut found = Vec::new();
    for card in live_interfaces(host).await? {
        for address in &card.addresses {
            found.push(Address {
                interface: card.index,
                ipv4: address.ipv4.clone(),
                default_route: !card.gateways.is_empty(),
            });
        }
    }
    Ok(found)
}

async fn containers<H: Host>(host: &mut Session<H>) -> FeatureState {
    match feature::state(host, "Containers").await {
        Ok(state) => state,
        Err(_) => FeatureState::Unknown,
    }
}

/// The process of a service; 0 where there is none.
/// Process id of a service, 0 if it does not run. `None`: there is none.
async fn service_pid<H: Host>(host: &mut Session<H>, name: &str) -> Result<Option<u32>> {
    match host.ask(ServiceStatusRead { name: name.into() }).await {
        Ok(status) => Ok(Some(status.pid)),
        Err(error) if error.number() == 1060 => Ok(None),
        Err(error) => {
            Err(error).doing(FailureCode::Other, || format!("look at the service {name}"))
        }
    }
}
