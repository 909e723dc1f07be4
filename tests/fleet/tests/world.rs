//! The whole world: cluster and Windows hosts together, without a socket.

use std::time::Duration;

use dormer_fleet::{World, WorldConfig, api::kinds};
use tokio::io::AsyncReadExt;

#[tokio::test(start_paused = true)]
async fn machines_become_hosts_that_speak_ssh() {
    let config = WorldConfig {
        two_sets: true,
        ..WorldConfig::in_memory(4)
    };
    let world = World::start(config).await.expect("a world");
    let address = || {
        let machines = world.all(&kinds::MACHINE);
        let windows = machines.iter().filter(|m| {
            m.value["metadata"]["labels"]["machine.openshift.io/os-id"] == "Windows"
                && m.value["status"]["phase"] == "Provisioned"
        });
        let addresses = windows.filter_map(|m| {
            let addresses = m.value["status"]["addresses"].as_array()?;
            let internal = addresses.iter().find(|a| a["type"] == "InternalIP")?;
            internal["address"].as_str().map(str::to_owned)
        });
        addresses.collect::<Vec<_>>()
    };
    let mut poll = tokio::time::interval(Duration::from_secs(1));
    while address().len() < 4 {
        poll.tick().await;
        assert!(world.clock.elapsed() < Duration::from_secs(60));
    }
    let dialer = world.host_dialer();
    for address in address() {
        let banner = loop {
            poll.tick().await;
            assert!(world.clock.elapsed() < Duration::from_secs(900));
            let limit = Duration::from_secs(5);
            let dialled = tokio::time::timeout(limit, dialer.dial(&format!("{address}:22"))).await;
            let Ok(Ok(mut stream)) = dialled else {
                continue;
            };
            let mut banner = [0; 29];
            if stream.read_exact(&mut banner).await.is_ok() {
                break String::from_utf8_lossy(&banner).into_owned();
            }
        };
        assert!(
            banner.starts_with("SSH-2.0-OpenSSH_for_Windows"),
            "{banner}"
        );
    }
}
