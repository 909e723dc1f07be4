//! Power, boots and reboots, as they are seen from outside (docs/field-notes.md, Boots, reboots and limits of sshd).

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::computer::{Host, HostPhase, lock};
use super::profile::ServerRelease;
use crate::faults::Fault;
use crate::world::Happened;

/// First boot of a fresh instance until sshd answers, in milliseconds.
const FIRST_BOOT_MS: (u64, u64) = (60_000, 120_000);
/// A reboot until sshd answers, in milliseconds.
const REBOOT_MS: (u64, u64) = (90_000, 180_000);
/// How long sshd resets connections after it began to listen.
const RESETTING: Duration = Duration::from_secs(2);
/// [`Fault::SshResetInKex`].
const RESETTING_LONG: Duration = Duration::from_secs(40);
/// [`Fault::AuthRefusedAWhile`].
const AUTH_FAILING: Duration = Duration::from_secs(240);
/// How long a host that lost its power leaves connections hanging before they are forgotten here.
const HANGING: Duration = Duration::from_secs(600);
/// Where [`Fault::OldBom`] leaves a containerd configuration: the places of the built-in profiles.
const OLD_CONFIGS: [&str; 2] = [
    r"C:\k\containerd\containerd_conf.toml",
    r"C:\Program Files\containerd\config.toml",
];

impl Host {
    /// Gives the host power; it boots. Nothing happens if it has power.
    pub fn power_on(&self) {
        {
            let mut power = lock(&self.power);
            if !power.is_cancelled() {
                return;
            }
            *power = CancellationToken::new();
        }
        let Some(host) = self.me.upgrade() else {
            return;
        };
        self.spawn_powered(async move { host.boot().await });
    }

    /// Takes the power away. Connections hang, processes are gone, the disk stays.
    pub fn power_off(&self) {
        lock(&self.power).cancel();
        self.phase.send_replace(HostPhase::Off);
        self.state().lose_volatile();
        let links: Vec<_> = lock(&self.sessions)
            .drain(..)
            .map(|(_, session)| session.link)
            .collect();
        for link in &links {
            link.silence();
        }
        let pace = self.context.pace;
        tokio::spawn(async move {
            pace.sleep(HANGING).await;
            links.iter().for_each(super::link::Link::cut);
        });
    }

    /// Shuts Windows down after `delay` and boots it again. False if that is under way already (1190).
    pub fn reboot_in(&self, delay: Duration) -> bool {
        if std::mem::replace(&mut self.state().shutting_down, true) {
            return false;
        }
        let Some(host) = self.me.upgrade() else {
            return false;
        };
        let token = self.power_token();
        tokio::spawn(async move {
            host.sleep(delay).await;
            if !token.is_cancelled() {
                host.shut_down();
                host.power_on();
            }
        });
        true
    }

    /// An orderly end: sshd resets its connections.
    fn shut_down(&self) {
        lock(&self.power).cancel();
        self.phase.send_replace(HostPhase::Dropping);
        for (_, session) in lock(&self.sessions).drain(..) {
            session.link.cut();
        }
        self.state().lose_volatile();
    }

    async fn boot(&self) {
        self.phase.send_replace(HostPhase::Dropping);
        let first = self.state().boots == 0;
        if first && (self.strike(Fault::Dead) || self.armed(Fault::Dead)) {
            return std::future::pending().await;
        }
        let total = self.boot_time(first);
        self.sleep(total.mul_f64(0.75)).await;
        self.at(if first { "first boot" } else { "reboot" }).await;
        self.come_up(first);
        self.phase.send_replace(HostPhase::Refusing);
        if (!first && self.strike(Fault::SshdDeadAfterReboot)) || !self.has_sshd() {
            return std::future::pending().await;
        }
        self.sleep(total.mul_f64(0.25)).await;
        self.phase.send_replace(HostPhase::Resetting);
        let long = self.strike(Fault::SshResetInKex);
        self.sleep(if long {
            RESETTING_LONG
        } else {
            RESETTING.min(total)
        })
        .await;
        if first && self.strike(Fault::AuthRefusedAWhile) {
            self.phase.send_replace(HostPhase::AuthFailing);
            self.sleep(AUTH_FAILING).await;
        }
        self.state().boots += 1;
        let refused = first && self.strike(Fault::AuthRefused);
        self.phase.send_replace(if refused {
            HostPhase::AuthFailing
        } else {
            HostPhase::Up
        });
        let boot = self.state().boots;
        self.context.record.push(Happened::Booted {
            machine: self.uid().to_owned(),
            boot,
        });
        self.at("sshd runs").await;
        self.troubles_after_boot();
        self.start_boot_services().await;
    }

    /// Whether sshd is there: in the image, or installed by user data (`workers/profile/src/userdata.ps1`).
    fn has_sshd(&self) -> bool {
        let in_image = self.image.openssh || self.image.release == ServerRelease::Server2025;
        in_image || !self.state().egress_closed
    }

    fn boot_time(&self, first: bool) -> Duration {
        if first {
            return self.between(FIRST_BOOT_MS.0, FIRST_BOOT_MS.1);
        }
        if self.strike(Fault::SlowReboot) {
            return Duration::from_secs(14 * 60);
        }
        if self.strike(Fault::FastReboot) {
            return Duration::from_secs(3);
        }
        self.between(REBOOT_MS.0, REBOOT_MS.1)
    }

    /// The moment at which Windows runs: the boot counter grows, pending changes become real.
    fn come_up(&self, first: bool) {
        if first && self.strike(Fault::ClockSkew) {
            self.state().clock_offset_ms = -600_000;
        }
        if first && self.strike(Fault::ClockForward) {
            self.state().clock_offset_ms = 600_000;
        }
        if first
            && self.armed(Fault::HostClaimsName)
            && let Some(name) = self.context.record.a_serving_node()
            && self.strike(Fault::HostClaimsName)
        {
            let mut state = self.state();
            state.hostname = name;
            state.claims_name = true;
        }
        if first && self.strike(Fault::OldBom) {
            for path in OLD_CONFIGS {
                let _ = self.state().disk.put(path, b"\xef\xbb\xbfversion = 2\r\n");
            }
        }
        let now = self.now_ms();
        self.state().boot(now);
        self.write_admin_keys(first);
    }

    /// Things that go wrong by themselves some time after a boot.
    fn troubles_after_boot(&self) {
        let Some(host) = self.me.upgrade() else {
            return;
        };
        if self.state().clock_offset_ms != 0 {
            let host = host.clone();
            self.spawn_powered(async move {
                host.sleep(Duration::from_secs(1_200)).await;
                host.state().clock_offset_ms = 0; // w32time has found its source again
            });
        }
        if self.armed(Fault::RebootsByItself) || self.armed(Fault::HnsRestarts) {
            self.spawn_powered(async move { host.trouble_while_serving().await });
        }
    }

    async fn trouble_while_serving(&self) {
        self.node_is_ready().await;
        self.pause(120_000, 300_000).await;
        if self.strike(Fault::HnsRestarts) {
            let mut state = self.state();
            state.hns.endpoints.clear();
            state.hns.pid = state.new_pid();
        }
        if self.strike(Fault::RebootsByItself) {
            self.reboot_in(Duration::from_secs(1));
        }
    }
}
