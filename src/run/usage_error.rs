//! Mistakes on a command line or in settings: they end a command with exit code 2.

/// Problem, with the flag.
#[derive(Debug)]
pub struct UsageError(anyhow::Error);

impl std::fmt::Display for UsageError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:#}", self.0)
    }
}

impl std::error::Error for UsageError {}

/// The result, whose error counts as a [`UsageError`].
///
/// # Errors
/// As `result`.
pub fn checked<T>(result: Result<T, impl Into<anyhow::Error>>) -> anyhow::Result<T> {
    result.map_err(|error| UsageError(error.into()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_mistake_is_known_below_what_was_being_done() {
        let wrong: anyhow::Result<()> = Err(anyhow::anyhow!("no such file")).context("--config /x");
        let error = checked(wrong).context("dormer").expect_err("a mistake");
        assert!(error.downcast_ref::<UsageError>().is_some());
        assert_eq!(format!("{error:#}"), "dormer: --config /x: no such file");
        assert!(
            anyhow::anyhow!("other")
                .downcast_ref::<UsageError>()
                .is_none()
        );
    }
}
