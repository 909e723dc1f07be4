//! Why something could not be done: one of the failure codes of an answer, from the number that Windows gave.

use dormer_profile::answer::FailureCode;

use crate::{error_text, ops::WinError};

/// Result of a function of the core.
pub(crate) type Result<T> = std::result::Result<T, Problem>;

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// What kind of failure.
    pub(crate) code: FailureCode,
    /// Action and Windows' error, for people.
    pub(crate) message: String,
    /// Windows has to reboot before it will do it; what waits for that.
    pub(crate) reboot: Option<String>,
    /// Whether Windows is shutting down.
    pub(crate) going_down: bool,
    /// Whether it fails again until a person has done something.
    pub(crate) lasting: bool,
}

impl Problem {
    pub(crate) fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            reboot: None,
            going_down: false,
            lasting: false,
        }
    }

    /// Windows' error as a failure: with the general code for its number, if it has one, else `code`.
    pub(crate) fn windows(code: FailureCode, doing: &str, error: &WinError) -> Self {
        let mut problem = Self::new(
            general(error.number()).unwrap_or(code),
            error_text::sentence(doing, error),
        );
        problem.going_down = error.number() == SHUTTING_DOWN;
        problem
    }
}

/// 1115, which the service control manager answers to nearly everything once a shutdown has begun (MS-SCMR).
pub(crate) const SHUTTING_DOWN: u32 = 1115;

/// General meaning of a number, whichever call returns it (docs/field-notes.md, Files of Windows; docs/field-notes.md,
/// Registry, roots, computer names).
fn general(number: u32) -> Option<FailureCode> {
    Some(match number {
        5 => FailureCode::AccessDenied,
        39 | 112 => FailureCode::DiskFull,
        32 | 33 | 1224 => FailureCode::FileLocked,
        225 | 226 => FailureCode::QuarantineSuspected,
        SHUTTING_DOWN => FailureCode::RebootPending,
        _ => return None,
    })
}

/// Adds the failed action to Windows' error.
pub(crate) trait Doing<T> {
    /// As [`Problem::windows`].
    fn doing(self, code: FailureCode, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, WinError> {
    fn doing(self, code: FailureCode, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Problem::windows(code, &what(), &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_windows_means_everywhere_it_means_here() {
        let code =
            |number| Problem::windows(FailureCode::Other, "look", &WinError::new(number)).code;
        assert_eq!(code(112), FailureCode::DiskFull);
        assert_eq!(code(0x8007_0005), FailureCode::AccessDenied);
        assert_eq!(code(1115), FailureCode::RebootPending);
        assert_eq!(code(87), FailureCode::Other);
        let down = Problem::windows(FailureCode::Other, "look", &WinError::new(1115));
        assert!(down.going_down);
        assert_eq!(
            down.message,
            "Windows is shutting down (1115) while looking"
        );
    }
}
