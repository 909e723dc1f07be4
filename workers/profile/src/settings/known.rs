//! What the kubelet and kube-proxy of each release know: their feature gates, flags and fields, by tables that the programs
//! themselves printed (`tests/servers/shared/read`). The flags of kube-proxy are out of its source.
//!
//! A line of a table is a name and a value, such as `maxPods int32`. What changed after the oldest release follows as
//! `minor:value`, such as `WinDSR free 34:true`; `-` means that the release does not have it.

use std::{collections::BTreeMap, sync::LazyLock};

use crate::release::Release;

/// Oldest and newest release in the tables.
pub(super) const OLDEST: Release = Release::new(1, 33);
/// What a later one knows is not known here.
pub(super) const NEWEST: Release = Release::new(1, 37);

/// Fields of a `KubeletConfiguration`, each with its type.
pub(super) static KUBELET_FIELDS: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("kubelet_fields.txt")));
/// Fields of a `KubeProxyConfiguration`, each with its type.
pub(super) static KUBE_PROXY_FIELDS: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("kube_proxy_fields.txt")));
/// Flags of the kubelet, each with its type.
pub(super) static KUBELET_FLAGS: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("kubelet_flags.txt")));
/// Flags of kube-proxy, each with its type.
pub(super) static KUBE_PROXY_FLAGS: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("kube_proxy_flags.txt")));
/// Feature gates of both programs: `free`, or the value to which one is locked.
pub(super) static GATES: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("gates.txt")));

/// Names with their values by release.
#[derive(Debug)]
pub(super) struct Table(BTreeMap<&'static str, Vec<Since>>);

/// Value from a release on. `None`: the release does not have the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since {
    first: Release,
    value: Option<&'static str>,
}

/// What a release knows of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It has it, with this value.
    As(&'static str),
    /// Only others have it: the first and the last of them, where they are within the table.
    Elsewhere(Option<Release>, Option<Release>),
    /// None has it.
    Never,
}

impl Table {
    fn parse(text: &'static str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entry = |line: &'static str| {
            let mut words = line.split(' ');
            let name = words.next()?;
            let since = |word: &'static str| {
                let (minor, value) = match word.split_once(':') {
                    Some((minor, value)) => (minor.parse().ok()?, value),
                    None => (OLDEST.minor, word),
                };
                let value = (value != "-").then_some(value);
                let first = Release::new(1, minor);
                Some(Since { first, value })
            };
            Some((name, words.filter_map(since).collect()))
        };
        Self(lines.filter_map(entry).collect())
    }

    /// What a release knows of a name. Before the oldest and after the newest of the table it is as in those.
    pub(super) fn of(&self, name: &str, release: Release) -> Known {
        let Some(all) = self.0.get(name) else {
            return Known::Never;
        };
        let now = all.iter().rev().find(|since| since.first <= release);
        let now = now.or_else(|| all.first().filter(|since| since.first == OLDEST));
        if let Some(Since {
            value: Some(value), ..
        }) = now
        {
            return Known::As(value);
        }
        let first = all.iter().find(|since| since.value.is_some());
        let first = first.map(|since| since.first).filter(|it| *it > OLDEST);
        let last = all.last().filter(|since| since.value.is_none());
        let last = last.map(|gone| Release::new(gone.first.major, gone.first.minor - 1));
        Known::Elsewhere(first, last)
    }

    /// First release from which a name has the value of `release`.
    pub(super) fn since(&self, name: &str, release: Release) -> Option<Release> {
        let all = self.0.get(name)?;
        let now = all.iter().rev().find(|since| since.first <= release)?;
        (now.first > OLDEST).then_some(now.first)
    }

    /// Whether any release has the name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.0.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_in_its_releases_only() {
        let table = Table::parse("# A comment.\nold free 35:true 37:-\nnew 36:free\nall int32\n");
        let release = |minor| Release::new(1, minor);
        let rows = [
            ("old", 32, Known::As("free")),
            ("old", 33, Known::As("free")),
            ("old", 36, Known::As("true")),
            ("old", 37, Known::Elsewhere(None, Some(release(36)))),
            ("old", 38, Known::Elsewhere(None, Some(release(36)))),
            ("new", 33, Known::Elsewhere(Some(release(36)), None)),
            ("new", 38, Known::As("free")),
            ("all", 34, Known::As("int32")),
            ("other", 34, Known::Never),
        ];
        for (name, minor, wanted) in rows {
            assert_eq!(table.of(name, release(minor)), wanted, "{name} {minor}");
        }
        assert_eq!(table.since("old", release(36)), Some(release(35)));
        assert_eq!(table.since("old", release(34)), None);
    }
}
