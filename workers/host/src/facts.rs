//! Facts about a host, read at the end of every call.

use dormer_profile::answer::{Address, Facts, FailureCode, FeatureState};

use crate::{
    items::{feature, network::live_interfaces},
    ops::{Host, ServiceStatusRead, SystemRead, VolumeSpace},
    problem::{Doing as _, Result},
    session::Session,
};

const CURRENT: &str = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion";
const TCPIP: &str = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters";
const SERVICING: &str =
    r"SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending";

/// The host's name now, and the one after the next reboot where that is another.
///
/// The DNS host name, which is what the kubelet registers under (Go's `os.Hostname`), not the NetBIOS name of at most 15
/// characters: two names that are equal in those are still two (win32/services.md §9).
pub(crate) async fn names<H: Host>(host: &mut Session<H>) -> Result<(String, Option<String>)> {
    let system = host.ask(SystemRead {}).await;
    let system = system.doing(FailureCode::Other, || "read the system's facts".into())?;
    let mut now = host.registry_text(TCPIP, "Hostname").await?;
    if now.is_empty() {
        now = system.dns_host_name;
    }
    let next = host.registry_text(TCPIP, "NV Hostname").await?;
    let next = (!next.is_empty() && !next.eq_ignore_ascii_case(&now)).then_some(next);
    Ok((now, next))
}

/// Whether servicing waits for a reboot: the one sign of Windows that holds anything up, and that DISM alone.
pub(crate) async fn servicing_waits<H: Host>(host: &mut Session<H>) -> Result<bool> {
    let key = crate::ops::RegistryList {
        key: SERVICING.into(),
    };
    match host.ask(key).await {
        Ok(_) => Ok(true),
        Err(error) if error.number() == 2 => Ok(false),
        Err(error) => Err(error).doing(FailureCode::Other, || format!("read {SERVICING}")),
    }
}

/// Everything that an answer says about the host.
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
        defender: service_pid(host, "WinDefend").await? != 0,
        last: host.last().await?,
        hns_pid: service_pid(host, "hns").await?,
    })
}

async fn fqdn<H: Host>(host: &mut Session<H>, name: &str) -> Result<Option<String>> {
    for value in ["Domain", "DhcpDomain"] {
        let domain = host.registry_text(TCPIP, value).await?;
        if !domain.is_empty() {
            return Ok(Some(format!("{name}.{domain}").to_lowercase()));
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
async fn service_pid<H: Host>(host: &mut Session<H>, name: &str) -> Result<u32> {
    match host.ask(ServiceStatusRead { name: name.into() }).await {
        Ok(status) => Ok(status.pid),
        Err(error) if error.number() == 1060 => Ok(0),
        Err(error) => {
            Err(error).doing(FailureCode::Other, || format!("look at the service {name}"))
        }
    }
}
