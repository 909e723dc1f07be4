//! Modes and arguments of the program on a host.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mode of the program on a host.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Read facts. It needs no document and no lock.
    Probe,
    /// Compare with the document; changes nothing.
    Plan,
    /// Apply the document.
    Apply,
    /// Apply the few items of the document, certificates and written files, and leave everything else as it is.
    Renew,
    /// Remove everything that the program made there.
    Remove,
    /// Request a reboot from Windows in five seconds, if the boot identity is the expected one.
    Reboot,
    /// Write the fence, and disable the services of others that the document names: all that adoption changes
    /// (docs/decisions/0002-adoption.md).
    Adopt,
    /// Restore the services of others: disabled ones get their earlier start type.
    Release,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 8] = [
        Self::Probe,
        Self::Plan,
        Self::Apply,
        Self::Renew,
        Self::Remove,
        Self::Reboot,
        Self::Adopt,
        Self::Release,
    ];

    /// The word on the command line and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Renew => "renew",
            Self::Remove => "remove",
            Self::Reboot => "reboot",
            Self::Adopt => "adopt",
            Self::Release => "release",
        }
    }

    /// Whether the mode changes the host, and so needs a fence that is not too old.
    pub const fn changes(self) -> bool {
        matches!(
            self,
            Self::Apply | Self::Renew | Self::Remove | Self::Reboot | Self::Adopt | Self::Release
        )
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|m| m.as_str() == text)
            .ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

/// A word that is no mode.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no mode `{0}`")]
pub struct UnknownMode(String);
