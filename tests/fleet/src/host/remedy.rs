//! Actions of a person on the host itself, or in the cloud's console.

use std::time::Duration;

use super::computer::{Host, HostPhase};

impl Host {
    /// The file with the keys is as it has to be.
    pub(crate) fn accept_key(&self) {
        if self.phase() == HostPhase::AuthFailing {
            self.phase.send_replace(HostPhase::Up);
        }
    }

    /// Resets the host in the cloud's console, whether it has power or not.
    pub(crate) fn reset(&self) {
        self.power_off();
        self.power_on();
    }

    /// Lets the shell's profile write nothing.
    pub(crate) fn quiet_profile(&self) {
        self.state().profile_quiet = true;
    }

    /// `w32tm /resync`.
    pub(crate) fn set_clock(&self) {
        self.state().clock_offset_ms = 0;
    }

    /// Restores the host's name and its connection to the API server, and restarts it.
    pub(crate) fn mend_kubelet(&self) {
        let name = self.own_name();
        {
            let mut state = self.state();
            if state.claims_name {
                state.claims_name = false;
                state.hostname = name;
            }
        }
        self.cut.send_replace(false);
        self.reboot_in(Duration::from_secs(1));
    }
}
