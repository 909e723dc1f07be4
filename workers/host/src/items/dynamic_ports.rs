//! The range of dynamic ports of TCP.
//!
//! It is read as numbers through WMI and set by `netsh`, whose arguments are the same in every language: nothing that
//! Windows translates is read (docs/field-notes.md, Ports of VXLAN and of clients).

use dormer_profile::{answer::FailureCode, item::DynamicPorts};

use super::{ItemVerdict, Kind, Step};
use crate::{
    ops::{DynamicPortsRead, Host, PortRange, ProgramRun},
    problem::{Doing as _, Problem, Result},
    progress::Run,
    session::Session,
    state::Made,
};

/// WBEM_E_INVALID_NAMESPACE: this Windows does not tell its range.
const NAMESPACE_UNKNOWN: u32 = 0x8004_100e;
const NETSH: &str = r"C:\Windows\System32\netsh.exe";
const NETSH_MS: u64 = 60_000;

async fn read<H: Host>(host: &mut Session<H>) -> Result<Option<PortRange>> {
    match host.ask(DynamicPortsRead {}).await {
        Ok(range) => Ok(Some(range)),
        Err(error) if error.code == NAMESPACE_UNKNOWN => Ok(None),
        Err(error) => Err(error).doing(FailureCode::Other, || "read the dynamic ports".into()),
    }
}

fn shown(it: PortRange) -> String {
    format!("{} ports from {} on", it.count, it.start)
}

impl Kind for DynamicPorts {
    type CurrentState = Option<PortRange>;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<Self::CurrentState> {
        read(&mut run.host).await
    }

    fn differs(&self, found: &Self::CurrentState) -> ItemVerdict {
        match *found {
            None => ItemVerdict::Right("this Windows does not tell its range".into()),
            Some(it) if it == range(self) => ItemVerdict::right(),
            Some(it) => ItemVerdict::wrong(format!("are {}", shown(it))),
        }
    }

    async fn make<H: Host>(
        &self,
        run: &mut Run<H>,
        _: &str,
        found: Self::CurrentState,
    ) -> Result<Step> {
        let Some(before) = found else {
            return Ok(Step::Ok(String::new()));
        };
        let noted = Made::DynamicPorts {
            start: before.start,
            count: before.count,
        };
        // The first range that was found is the one to restore, even if it was changed since.
        if !run.inventory.has(&noted) {
            run.note(noted).await?;
        }
        set(run, range(self)).await?;
        Ok(Step::Changed(match read(&mut run.host).await? {
            Some(now) if now != range(self) => {
                format!("set, and Windows still says {}", shown(now))
            }
            _ => "set".into(),
        }))
    }

    /// Only who knows the range before can restore it: `make` notes that.
    fn made(&self, _: bool) -> Option<Made> {
        None
    }
}

/// Whether Windows still has another range than the one from before, which a removal restores.
pub(crate) async fn is_held<H: Host>(run: &mut Run<H>, before: PortRange) -> Result<bool> {
    let found = read(&mut run.host).await?;
    Ok(found.is_some_and(|it| it != before))
}

const fn range(ports: &DynamicPorts) -> PortRange {
    PortRange {
        start: ports.start,
        count: ports.count,
    }
}

/// Sets the range, for this boot and later ones; false if it was so before.
pub(crate) async fn set<H: Host>(run: &mut Run<H>, wanted: PortRange) -> Result<bool> {
    if read(&mut run.host).await? == Some(wanted) {
        return Ok(false);
    }
    let program = ProgramRun {
        path: NETSH.into(),
        arguments: vec![
            "interface".into(),
            "ipv4".into(),
            "set".into(),
            "dynamicportrange".into(),
            "protocol=tcp".into(),
            format!("startport={}", wanted.start),
            format!("numberofports={}", wanted.count),
            "store=persistent".into(),
        ],
        limit_ms: NETSH_MS,
    };
    let doing = || format!("set {} as dynamic ports", shown(wanted));
    match run
        .host
        .ask(program)
        .await
        .doing(FailureCode::Other, doing)?
    {
        0 => Ok(true),
        code => {
            let said = format!("{}: netsh ended with {code}", doing());
            Err(Problem::new(FailureCode::Other, said))
        }
    }
}
