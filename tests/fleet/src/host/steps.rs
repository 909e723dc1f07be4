//! The steps of a bring-up as a host lives through them: each can be the one at which its power fails.

use std::time::Duration;

use super::computer::{Host, lock};
use crate::faults::Fault;
use crate::world::Happened;

/// How long a host stays dark ([`Fault::PowerOff`]).
const DARK: Duration = Duration::from_secs(60);

impl Host {
    /// The step is reached: here the power fails if that was ordered, and then the calling task never continues.
    pub(super) async fn at(&self, step: &str) {
        if self.power_fails_at(step) {
            std::future::pending().await
        }
    }

    /// In the middle of the item that a call has under way.
    pub(super) async fn midway(&self, how: &str) {
        let item = self.state().doing.clone();
        if let Some(item) = item {
            self.at(&format!("{item} {how}")).await;
        }
    }

    /// Writes down an effect that outlives the power.
    pub(super) fn effect(&self, what: &str) {
        lock(&self.counts).effects.push(shown(what));
    }

    fn power_fails_at(&self, step: &str) -> bool {
        let step = shown(step);
        {
            let mut counts = lock(&self.counts);
            if !counts.steps.contains(&step) {
                counts.steps.push(step.clone());
            }
        }
        if !self
            .context
            .faults
            .strike_at(Fault::PowerOff, &step, &self.order.name)
        {
            return false;
        }
        let machine = self.order.name.clone();
        self.context.record.push(Happened::FaultStruck {
            fault: Fault::PowerOff.name(),
            machine,
        });
        self.power_off();
        let me = self.me.clone();
        let pace = self.context.pace;
        tokio::spawn(async move {
            pace.sleep(DARK).await;
            if let Some(host) = me.upgrade() {
                host.power_on();
            }
        });
        true
    }
}

/// A step without what differs from payload to payload: the folder of its version.
fn shown(step: &str) -> String {
    let part = |part: &str| {
        let version = part.starts_with(|c: char| c.is_ascii_digit()) && part.contains('-');
        if version {
            "VERSION".to_owned()
        } else {
            part.to_owned()
        }
    };
    step.split('\\').map(part).collect::<Vec<_>>().join("\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_named_without_its_version() {
        assert_eq!(
            shown(r"host file:C:\k\11.0.0-c78fb0d7\kubelet.exe"),
            r"host file:C:\k\VERSION\kubelet.exe"
        );
        assert_eq!(shown("host feature:Containers"), "host feature:Containers");
    }
}
