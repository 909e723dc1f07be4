//! Command lines of the kubelet and of kube-proxy: each flag is one that the release has, with a value of its type.

use super::{
    flag_name, gates, is_program,
    known::{KUBE_PROXY_FLAGS, KUBELET_FLAGS, Known, NEWEST, Table},
    range,
    types::wrong_text,
};
use crate::{release::Release, suggestion::question};

/// Program with its flags.
struct Flags<'t> {
    program: &'static str,
    shown: &'static str,
    table: &'t Table,
}

/// Flags with a short form (k8s.io/component-base v0.37.2 `logs/logs.go`, pflag's own help).
const SHORT: [&str; 2] = ["v", "h"];

/// What is wrong on a command line, a sentence each. `of_row`: whether a row of the settings tells the releases of a flag,
/// or of a gate.
pub(super) fn wrong(
    words: &[String],
    release: Release,
    of_row: impl Fn(&str) -> bool,
) -> Vec<String> {
    let programs = [
        Flags {
            program: "kubelet.exe",
            shown: "the kubelet",
            table: &KUBELET_FLAGS,
        },
        Flags {
            program: "kube-proxy.exe",
            shown: "kube-proxy",
            table: &KUBE_PROXY_FLAGS,
        },
    ];
    let mut found = Vec::new();
    for flags in programs {
        // What is before the program is its runner's.
        let at = words
            .iter()
            .position(|word| is_program(word, flags.program));
        if let Some(own) = at.and_then(|at| words.get(at + 1..)) {
            flags.check(own, release, &of_row, &mut found);
        }
    }
    found
}

impl Flags<'_> {
    fn check(
        &self,
        words: &[String],
        release: Release,
        of_row: &impl Fn(&str) -> bool,
        found: &mut Vec<String>,
    ) {
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            // A host fills in the rest.
            if word.starts_with("@{") {
                continue;
            }
            let Some(name) = flag_name(word).filter(|name| !name.is_empty()) else {
                found.push(format!(
                    "`{word}` is no flag, and {} takes nothing else",
                    self.shown
                ));
                continue;
            };
            let value = word.split_once('=').map(|(_, value)| value);
            let name = match self.long(word, name) {
                Ok(name) => name,
                Err(why) => {
                    found.push(why);
                    continue;
                }
            };
            let known = self.table.of(&name, release);
            // Whatever the flag is: what follows is its value.
            if !matches!(known, Known::As(_)) && value.is_none() {
                let _ = words.next_if(|word| !word.starts_with('-'));
            }
            match known {
                Known::As(kind) => {
                    // pflag takes the next word for the value of a flag without one, except that of a switch.
                    let value = match value {
                        None if ["bool", "version"].contains(&kind) => continue,
                        None => words.next().map(String::as_str),
                        some => some,
                    };
                    found.extend(self.value(&name, kind, value, release, of_row));
                }
                _ if of_row(&format!("--{name}")) => {}
                Known::Elsewhere(first, last) => found.push(format!(
                    "`--{name}` is a flag {}, and the payload has {release}: a flag that is not known ends {}",
                    range(first, last),
                    self.shown
                )),
                Known::Never if release > NEWEST => {}
                Known::Never => found.push(format!(
                    "`--{name}` is no flag of {}, which ends with one that is not known{}",
                    self.shown,
                    question(&name, self.table.names())
                )),
            }
        }
    }

    /// Name of a flag, whose short form has one dash.
    fn long(&self, word: &str, name: String) -> Result<String, String> {
        if word.starts_with("--") {
            return Ok(name);
        }
        let short = name.chars().next().map(String::from).unwrap_or_default();
        let rest = name.get(1..).unwrap_or_default();
        if SHORT.contains(&short.as_str()) && rest.chars().all(|c| c.is_ascii_digit()) {
            return Ok(short);
        }
        let meant = self.table.has(&name).then(|| format!(": it is `--{name}`"));
        Err(format!(
            "`{word}` has one dash, and {} takes that for short flags, which it does not have{}",
            self.shown,
            meant.unwrap_or_default()
        ))
    }

    /// What is wrong with a flag's value.
    fn value(
        &self,
        name: &str,
        kind: &str,
        value: Option<&str>,
        release: Release,
        of_row: &impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let Some(value) = value else {
            return vec![format!("`--{name}` has no value")];
        };
        if name == "feature-gates" {
            let gates = gates::of_flag(value);
            let wrong = gates.iter().filter_map(|gate| {
                gates::wrong(gate, self.shown, release, of_row(gate.0.as_str()))
            });
            return wrong.collect();
        }
        let wrong = wrong_text(kind, value);
        wrong
            .map(|wanted| format!("`--{name}={value}`: {} wants {wanted} there", self.shown))
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str, minor: u32) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        wrong(&words, Release::new(1, minor), |name| {
            name == "--cloud-config"
        })
    }

    #[test]
    fn what_a_program_would_end_with_is_named() {
        let table = [
            (
                r"C:\k\kubelet.exe --configg=x",
                36,
                "`--configg` is no flag of the kubelet, which ends with one that is not known; did you mean config?",
            ),
            (
                "kube-log-runner.exe -log-file=x kubelet.exe --max-podss 5",
                36,
                "`--max-podss` is no flag of the kubelet, which ends with one that is not known; did you mean max-pods?",
            ),
            (
                "kubelet.exe --max-pods=x",
                36,
                "`--max-pods=x`: the kubelet wants a whole number of 32 bits there",
            ),
            ("kubelet.exe --max-pods", 36, "`--max-pods` has no value"),
            (
                "kubelet.exe -config=x",
                36,
                "`-config=x` has one dash, and the kubelet takes that for short flags, which it does not have: it is \
                 `--config`",
            ),
            (
                "kubelet.exe serve",
                36,
                "`serve` is no flag, and the kubelet takes nothing else",
            ),
            (
                "kube-proxy.exe --node-ip=1.2.3.4",
                36,
                "`--node-ip` is no flag of kube-proxy, which ends with one that is not known",
            ),
            (
                "kube-proxy.exe --feature-gates=WinDSR=false",
                34,
                "`featureGates/WinDSR` is locked to true from 1.34, and the payload has 1.34: another value ends kube-proxy",
            ),
            (
                "kubelet.exe --feature-gates=NodeSwapp=true",
                36,
                "`featureGates/NodeSwapp` is no feature gate, and the kubelet ends with one that is not known; did you \
                 mean NodeSwap?",
            ),
            (
                "kubelet.exe --feature-gates=NodeSwap",
                33,
                "`featureGates/NodeSwap` is neither true nor false",
            ),
        ];
        for (line, minor, wanted) in table {
            assert_eq!(said(line, minor), [wanted], "{line}");
        }
    }

    #[test]
    fn what_a_program_takes_is_not_named() {
        for (line, minor) in [
            (
                "kube-log-runner.exe -log-file=x kubelet.exe --config=x --v=2 --v 2 -v=2 -v2 --node_ip=@{IP} @{MORE}",
                36,
            ),
            ("kubelet.exe --windows-service --cert-dir C:\\x", 36),
            ("kubelet.exe --node-labels=a=b,c=-d --node-labels -x", 36),
            (
                "kubelet.exe --feature-gates=AllAlpha=true,ContextualLogging=false",
                37,
            ),
            // A row of the settings says it.
            ("kubelet.exe --cloud-config=x", 36),
            // A release after the table may have more.
            ("kubelet.exe --new=x --feature-gates=New=true", 38),
            (
                "kube-proxy.exe --windows-service --config=x --log-json-split-stream",
                33,
            ),
            ("other.exe --configg=x serve", 36),
        ] {
            assert_eq!(said(line, minor), Vec::<String>::new(), "{line}");
        }
    }
}
