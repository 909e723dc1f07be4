//! The host's name in DNS, which is the one that the kubelet registers under.

use dormer_profile::{answer::FailureCode, item::Hostname};

use super::{ItemVerdict, Kind, Step};
use crate::{
    ops::{DomainRead, Host, HostNameSet},
    pending::names,
    problem::{Doing as _, Problem, Result},
    progress::Run,
    state::Made,
};

/// NetBIOS' limit, which names were cut to once.
const NETBIOS_CHARS: usize = 15;
/// NETSETUP_JOIN_STATUS: the host belongs to a domain.
const JOINED: u32 = 3;

/// The names, and whether the host's account in a domain hangs on them.
pub(crate) struct CurrentState {
    now: String,
    next: Option<String>,
    domain: Option<String>,
    /// A node of ours bears the name already.
    serves: bool,
}

impl Kind for Hostname {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        let (now, next) = names(&mut run.host).await?;
        let domain = run.host.ask(DomainRead {}).await;
        let domain = domain.doing(FailureCode::Other, || "ask for the host's domain".into())?;
        let serves = !run.host.installed().await?.is_empty();
        Ok(CurrentState {
            now,
            next,
            domain: (domain.status == JOINED).then_some(domain.name),
            serves,
        })
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        match &found.next {
            None if found.now.eq_ignore_ascii_case(&self.name) => ItemVerdict::right(),
            Some(next) if next.eq_ignore_ascii_case(&self.name) => {
                ItemVerdict::AfterReboot("waits for a reboot".into())
            }
            None if found.serves && is_cut(&found.now, &self.name) => ItemVerdict::Right(format!(
                "the node bears the name {}, which was cut to {NETBIOS_CHARS} characters, and keeps it",
                found.now
            )),
            _ => ItemVerdict::wrong(format!("is {}", found.now)),
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, id: &str, found: CurrentState) -> Result<Step> {
        let failed = |said: String| Problem {
            lasting: true,
            ..Problem::new(FailureCode::HostnameFailed, said)
        };
        if !is_label(&self.name) {
            return Err(failed(format!(
                "`{}` is no name for a host: 1 to 63 letters, digits and `-`",
                self.name
            )));
        }
        // SetComputerNameEx alone leaves the account in the domain behind under the old name (sdk-api, lmjoin).
        if let Some(domain) = &found.domain {
            return Err(failed(format!(
                "the host belongs to the domain {domain}: who runs that domain has to rename it to {}",
                self.name
            )));
        }
        run.wait_for_reboot(id).await?;
        let set = run
            .host
            .ask(HostNameSet {
                name: self.name.clone(),
            })
            .await;
        set.map_err(|error| {
            Problem::windows(FailureCode::HostnameFailed, "rename the host", &error)
        })?;
        Ok(Step::Reboot("renamed".into()))
    }

    fn made(&self, _: bool) -> Option<Made> {
        None
    }
}

/// Whether `now` is what NetBIOS leaves of `name`.
fn is_cut(now: &str, name: &str) -> bool {
    let cut: String = name.chars().take(NETBIOS_CHARS).collect();
    cut.len() < name.len() && now.eq_ignore_ascii_case(cut.trim_end_matches('-'))
}

/// RFC 1123: Windows' own rules let pass what no node may be named (`_`).
fn is_label(name: &str) -> bool {
    let inner = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    (1..=63).contains(&name.len()) && inner && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_label_of_dns() {
        let longest = "x".repeat(63);
        for name in ["a", "win-1", "0a", longest.as_str()] {
            assert!(is_label(name), "{name}");
        }
        let too_long = "x".repeat(64);
        for name in ["", "-a", "a-", "a_b", "a.b", "ä", too_long.as_str()] {
            assert!(!is_label(name), "{name}");
        }
        assert!(is_cut("winworker-aaaaa", "winworker-aaaaab"));
        assert!(!is_cut("winworker-b", "winworker-a"));
        assert!(!is_cut("winworker", "winworker"));
    }
}
