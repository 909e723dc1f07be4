//! Program that Windows Defender excludes from scans, where Defender runs. Two exclusions are needed: the path, because
//! "the process itself is scanned unless it's added to the file exclusion list", and the process, for the files that it
//! opens (MicrosoftDocs/defender-docs, configure-process-opened-file-exclusions).

use dormer_profile::{answer::FailureCode, item::DefenderExclusion};

use super::{ItemVerdict, Kind, Step};
use crate::{
    ops::{DefenderAdd, DefenderRead, DefenderRemove, Exclusions, Host, WinError},
    paths::same,
    problem::{Problem, Result},
    progress::Run,
    state::Made,
};

/// WBEM_E_INVALID_NAMESPACE: this Windows has no Defender.
const NO_DEFENDER: u32 = 0x8004_100e;
/// The service is stopped, or another product guards the host (0x800106BA, facility 1: ExplorerPatcher#4213).
const NOT_RUNNING: u32 = 0x8001_06ba;
/// WBEM_E_NOT_FOUND.
const NOT_THERE: u32 = 0x8004_1002;
const POLICY: &str = r"SOFTWARE\Policies\Microsoft\Windows Defender";
const FEATURES: &str = r"SOFTWARE\Microsoft\Windows Defender\Features";

/// State that Defender reports.
pub(crate) enum CurrentState {
    /// It does not guard this host.
    Off,
    /// A policy hides the list: added before by us, or not.
    Hidden(bool),
    /// Tamper protection keeps what we added before out of the list.
    Protected,
    /// The list, and whether a policy keeps local lists from counting.
    Listed(Exclusions, bool),
}

fn wanted(process: &str) -> Exclusions {
    Exclusions {
        paths: vec![process.to_owned()],
        processes: vec![process.to_owned()],
    }
}

fn off(error: &WinError) -> bool {
    matches!(error.code, NO_DEFENDER | NOT_RUNNING)
}

fn failed(error: &WinError) -> Problem {
    Problem::windows(
        FailureCode::DefenderFailed,
        "Windows Defender's exclusions",
        error,
    )
}

fn has(list: &[String], process: &str) -> bool {
    list.iter().any(|one| same(one, process))
}

fn holds(listed: &Exclusions, process: &str) -> bool {
    has(&listed.paths, process) && has(&listed.processes, process)
}

/// Whether tamper protection guards the list: Defender then accepts a local exclusion and leaves it out
/// (MicrosoftDocs/defender-docs, manage-tamper-protection-intune). A value that may not be read says nothing.
async fn is_protected<H: Host>(run: &mut Run<H>) -> bool {
    let set = run.host.registry_number(FEATURES, "TPExclusions").await;
    matches!(set, Ok(Some(1)))
}

impl Kind for DefenderExclusion {
    type CurrentState = CurrentState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<CurrentState> {
        let listed = match run.host.ask(DefenderRead {}).await {
            Ok(listed) => listed,
            Err(error) if off(&error) => return Ok(CurrentState::Off),
            Err(error) => return Err(failed(&error)),
        };
        // By the policy's number: the list itself then holds a sentence.
        let hidden = run
            .host
            .registry_number(POLICY, "HideExclusionsFromLocalAdmins")
            .await?;
        let noted = self
            .made(false)
            .is_some_and(|made| run.inventory.has(&made));
        if hidden == Some(1) {
            return Ok(CurrentState::Hidden(noted));
        }
        if noted && !holds(&listed, &self.process) && is_protected(run).await {
            return Ok(CurrentState::Protected);
        }
        let ignored = run
            .host
            .registry_number(POLICY, "DisableLocalAdminMerge")
            .await?
            == Some(1);
        Ok(CurrentState::Listed(listed, ignored))
    }

    fn differs(&self, found: &CurrentState) -> ItemVerdict {
        match found {
            CurrentState::Off | CurrentState::Hidden(true) => ItemVerdict::right(),
            CurrentState::Protected => {
                ItemVerdict::Right("tamper protection takes no local exclusion".into())
            }
            CurrentState::Hidden(false) => {
                ItemVerdict::wrong("is perhaps not excluded: a policy hides the list")
            }
            CurrentState::Listed(listed, ignored) => {
                match (holds(listed, &self.process), ignored) {
                    (false, _) => ItemVerdict::wrong("is not excluded"),
                    (true, true) => {
                        ItemVerdict::Right("a policy lets no local exclusion count".into())
                    }
                    (true, false) => ItemVerdict::right(),
                }
            }
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, _: &str, found: CurrentState) -> Result<Step> {
        let mut exclusions = wanted(&self.process);
        if let CurrentState::Listed(listed, _) = &found {
            exclusions.paths.retain(|path| !has(&listed.paths, path));
            exclusions
                .processes
                .retain(|process| !has(&listed.processes, process));
        }
        match run.host.ask(DefenderAdd { exclusions }).await {
            Ok(()) => {}
            Err(error) if off(&error) => return Ok(Step::Ok(String::new())),
            Err(error) => return Err(failed(&error)),
        }
        let protected = is_protected(run).await;
        Ok(Step::Changed(match found {
            CurrentState::Hidden(_) => {
                "excluded, as far as can be seen: a policy hides the list".into()
            }
            _ if protected => "added, unless tamper protection keeps it out".into(),
            _ => "excluded".into(),
        }))
    }

    fn made(&self, found: bool) -> Option<Made> {
        (!found).then(|| Made::Exclusion {
            process: self.process.clone(),
        })
    }
}

/// Takes an exclusion of ours away.
pub(crate) async fn remove<H: Host>(run: &mut Run<H>, process: &str) -> Result<bool> {
    match run
        .host
        .ask(DefenderRemove {
            exclusions: wanted(process),
        })
        .await
    {
        Ok(()) => Ok(true),
        Err(error) if off(&error) || error.code == NOT_THERE => Ok(false),
        Err(error) => Err(failed(&error)),
    }
}

/// Whether an exclusion is there, as far as can be seen: a policy may hide the list.
pub(crate) async fn is_there<H: Host>(run: &mut Run<H>, process: &str) -> Result<bool> {
    match run.host.ask(DefenderRead {}).await {
        Ok(listed) => Ok(has(&listed.paths, process) || has(&listed.processes, process)),
        Err(error) if off(&error) => Ok(false),
        Err(error) => Err(failed(&error)),
    }
}
