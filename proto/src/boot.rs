//! Identity of one boot of a host. The program on the host and the workflow compare identities with this function.

/// Most seconds by which two readers' times of the same boot differ: clocks are adjusted, and times are rounded.
const SLACK_SECONDS: u64 = 60;

/// An identity of a boot, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot<'a> {
    /// The second of the boot since 1970, where Windows has no number of its own: written `t1700000000`.
    Second(u64),
    /// Windows' own number of the boot, or what another reader calls it.
    Named(&'a str),
}

impl<'a> From<&'a str> for Boot<'a> {
    fn from(text: &'a str) -> Self {
        match text.strip_prefix('t').map(str::parse) {
            Some(Ok(second)) => Self::Second(second),
            _ => Self::Named(text),
        }
    }
}

impl Boot<'_> {
    /// Whether both identify the same boot: times in seconds with tolerance, all else exactly. A counter and a time
    /// cannot be compared, so they count as different.
    pub fn is(self, other: Boot<'_>) -> bool {
        match (self, other) {
            (Self::Second(one), Boot::Second(other)) => one.abs_diff(other) <= SLACK_SECONDS,
            (Self::Named(one), Boot::Named(other)) => one == other,
            _ => false,
        }
    }
}

/// Whether two boot identities, as they are written, are of one boot.
pub fn same_boot(one: &str, other: &str) -> bool {
    Boot::from(one).is(other.into())
}

#[cfg(test)]
mod tests {
    use super::same_boot;

    #[test]
    fn a_moved_second_is_no_reboot_and_another_number_is() {
        assert!(same_boot("42", "42"));
        assert!(!same_boot("42", "43"));
        assert!(same_boot("t1700000000", "t1700000060"));
        assert!(same_boot("t1700000060", "t1700000000"));
        assert!(!same_boot("t1700000000", "t1700000061"));
        assert!(!same_boot("42", "t42"));
        assert!(!same_boot("t42", "42"));
        assert!(same_boot("tx", "tx"));
        assert!(!same_boot("", "t42"));
    }
}
