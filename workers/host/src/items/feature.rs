//! A Windows feature, by DISM.

use dormer_profile::{
    answer::{FailureCode, FeatureState},
    item::Feature,
};

use super::{ItemVerdict, Kind, Step};
use crate::{
    ops::{DismState, FeatureEnable, FeatureRead, Host, WinError},
    pending::servicing_waits,
    problem::{Problem, Result},
    progress::Run,
    session::Session,
    state::Made,
};

/// Longest wait for DISM while another process uses it.
const BUSY_MS: u64 = 600_000;
/// DISMAPI_E_BUSY.
const BUSY: u32 = 0x800f_0902;
/// CBS_E_PENDING and ERROR_FAIL_REBOOT_REQUIRED (3017): Windows reboots first.
const REBOOT_FIRST: [u32; 2] = [0x800f_0806, 3017];
/// HRESULT_FROM_WIN32(ERROR_SUCCESS_REBOOT_REQUIRED), which WSL takes for success as 3010 and 1 (OptionalFeature.cpp).
const DONE_AFTER_REBOOT: u32 = 3010;
/// Source missing, download failed, policy, WSUS, store corrupt: nothing that trying again mends.
const FOR_A_PERSON: [u32; 6] = [
    0x800f_081f,
    DOWNLOAD_FAILED,
    0x800f_0907,
    0x800f_0954,
    0x800f_0831,
    0x8007_3712,
];
/// The source could not be downloaded (CBS_E_DOWNLOAD_FAILURE).
const DOWNLOAD_FAILED: u32 = 0x800f_0906;
/// Unknown feature.
const UNKNOWN: u32 = 0x800f_080c;

/// DISM's name of a feature, which differs from Server Manager's (sig-windows-tools Install-Containerd.ps1).
fn dism_name(name: &str) -> &str {
    match name.to_ascii_lowercase().as_str() {
        "hyper-v" => "Microsoft-Hyper-V",
        "hyper-v-powershell" => "Microsoft-Hyper-V-Management-PowerShell",
        _ => name,
    }
}

/// Reads the feature's state, and waits while DISM is busy.
async fn read<H: Host>(
    host: &mut Session<H>,
    name: &str,
) -> Result<std::result::Result<DismState, WinError>> {
    let wait = host.wait("dism_is_busy", BUSY_MS).await?;
    loop {
        let asked = host
            .ask(FeatureRead {
                name: dism_name(name).into(),
            })
            .await;
        let busy = asked.as_ref().is_err_and(|error| error.code == BUSY);
        if !busy || !host.again(&wait, 5_000).await? {
            return Ok(asked);
        }
    }
}

/// State of a feature in the words of an answer.
pub(crate) async fn state<H: Host>(host: &mut Session<H>, name: &str) -> Result<FeatureState> {
    let asked = host
        .ask(FeatureRead {
            name: dism_name(name).into(),
        })
        .await;
    let state = asked.map_err(|error| failed(name, &error))?;
    Ok(match state {
        DismState::Installed => FeatureState::Enabled,
        DismState::InstallPending | DismState::UninstallPending => FeatureState::Pending,
        DismState::NotPresent | DismState::Staged | DismState::Removed => FeatureState::Disabled,
        DismState::Superseded | DismState::PartiallyInstalled => FeatureState::Unknown,
    })
}

fn failed(name: &str, error: &WinError) -> Problem {
    let doing = format!("feature {name}");
    if error.is_any(&REBOOT_FIRST) {
        let mut problem = Problem::windows(FailureCode::RebootPending, &doing, error);
        problem.reboot = Some(format!("feature:{name}"));
        return problem;
    }
    let mut problem = Problem::windows(FailureCode::FeatureInstallFailed, &doing, error);
    if FOR_A_PERSON.contains(&error.code) {
        problem
            .message
            .push_str("; a person has to give Windows the source of its features");
        // A download may succeed after an outage.
        problem.lasting = error.code != DOWNLOAD_FAILED;
    }
    if error.code == UNKNOWN {
        problem.lasting = true;
        problem
            .message
            .push_str("; this Windows knows no such feature");
    }
    problem
}

impl Kind for Feature {
    type CurrentState = DismState;

    async fn read<H: Host>(&self, run: &mut Run<H>) -> Result<DismState> {
        read(&mut run.host, &self.name)
            .await?
            .map_err(|error| failed(&self.name, &error))
    }

    fn differs(&self, found: &DismState) -> ItemVerdict {
        match found {
            DismState::Installed => ItemVerdict::right(),
            DismState::InstallPending => ItemVerdict::AfterReboot("waits for a reboot".into()),
            DismState::UninstallPending => {
                ItemVerdict::AfterReboot("goes with the next boot, then comes back".into())
            }
            _ => ItemVerdict::wrong("is not enabled"),
        }
    }

    async fn make<H: Host>(&self, run: &mut Run<H>, id: &str, _: DismState) -> Result<Step> {
        let task = run.call.task.clone();
        run.host.hold(&task, id).await?;
        let wait = run.host.wait("dism_is_busy", BUSY_MS).await?;
        let needs_reboot = loop {
            let enable = FeatureEnable {
                name: dism_name(&self.name).into(),
            };
            match run.host.ask(enable).await {
                // 0: done; 1: done, and the session has to be opened again (Server 2019 and Containers: glazier#459).
                Ok(code) => break code == DONE_AFTER_REBOOT,
                Err(error) if error.number() == DONE_AFTER_REBOOT => break true,
                Err(error) if error.code == BUSY => {
                    if !run.host.again(&wait, 5_000).await? {
                        return Err(failed(&self.name, &error));
                    }
                }
                Err(error) => {
                    // A reboot that servicing waits for precedes everything else.
                    let mut problem = failed(&self.name, &error);
                    if problem.reboot.is_none() && servicing_waits(&mut run.host).await? {
                        problem.reboot = Some(format!("feature:{}", self.name));
                        problem.lasting = false;
                    }
                    return Err(problem);
                }
            }
        };
        let now = read(&mut run.host, &self.name)
            .await?
            .map_err(|error| failed(&self.name, &error))?;
        match now {
            DismState::Installed if !needs_reboot => Ok(Step::Changed("enabled".into())),
            DismState::Installed | DismState::InstallPending => {
                Ok(Step::Reboot("installed, waits for a reboot".into()))
            }
            now => {
                let said = format!(
                    "feature {}: DISM said it was done, and it is {now:?}",
                    self.name
                );
                Err(Problem::new(FailureCode::FeatureInstallFailed, said))
            }
        }
    }

    fn made(&self, _: bool) -> Option<Made> {
        None
    }
}
