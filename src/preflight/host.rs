//! Steps on the host: host key, Windows facts, the program's plan, and removal of everything written.

use super::{
    contract::{self, Comparison, Contract, NO_ROW},
    report::{PreflightPlan, PreflightReport, Windows, WrittenFile},
};
use bytes::Bytes;
use dormer_host::{
    arguments::{Announced, Call, Mode, command_line},
    paths::{BIN, ROOT, STAGING, STATE, program_path},
};
use dormer_profile::{
    answer::{Answer, Facts},
    document::{Fence, Section},
    frame, invocation,
    payload::Manifest,
    profile::Profile,
    render::{Inputs, render},
    sha256_hex,
    shown::named_secrets,
    values::{JOIN_SECRETS, Values},
    version::version,
};
use dormer_proto::{code, message::Failure};
use dormer_support::version::openssh;
use dormer_workers::{
    host::{HostProgram, obstacle},
    ssh::{
        Dialer, Key, Limits, Output, Session, SshCommand, SshError, TcpDial, Upload, fingerprint,
    },
};
use std::{ops::ControlFlow, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// Time limit of one step. A plan reads and checksums hundreds of megabytes.
const STEP_MAX: Duration = Duration::from_secs(600);
/// Placeholder for a pinned host key, so that no login is tried before the host's key is known.
const NO_PIN: &str = "none";
/// Task id for the program.
const TASK: &str = "preflight/self-test";
/// Longest excerpt of the host's output in the report, in characters.
const SAID_CHARS_MAX: usize = 300;
/// Longest silence of the program, which writes a heartbeat every 10 s.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// What a call in mode plan writes below [`STATE`].
const STATE_FILES: [&str; 3] = ["lock", "holder.json", "last.json"];
/// Query of the installation language. It only reads, and needs no quotes in any shell.
const ASK_LANGUAGE: &str =
    r"reg.exe query HKLM\SYSTEM\CurrentControlSet\Control\Nls\Language /v InstallLanguage";
/// Query of the shell that sshd starts.
const ASK_SHELL: &str = r"reg.exe query HKLM\SOFTWARE\OpenSSH /v DefaultShell";

/// Host, and how to reach it.
pub(crate) struct HostTarget {
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) key: Key,
}

/// Configuration that the host is compared with.
pub(super) struct Baseline<'a> {
    pub(super) profile: &'a Profile,
    pub(super) payload: &'a Manifest,
    pub(super) program: &'a HostProgram,
    /// The program that performs single operations, for the contract's rows.
    pub(super) performing: Option<&'a HostProgram>,
}

/// Inspects a host whose key `known` confirms. The first failure ends the inspection. Written files are removed in
/// any case. With the report comes the recording of the contract's rows, or why there is none.
pub(super) async fn check(
    target: &HostTarget,
    wanted: &Baseline<'_>,
    known: impl Fn(&str) -> Result<(), String>,
) -> (PreflightReport, Result<String, String>) {
    let mut check = HostCheck {
        report: PreflightReport {
            dormer: env!("CARGO_PKG_VERSION"),
            program: wanted.program.sha256().to_owned(),
            profile: wanted.profile.name.clone(),
            private: vec![target.address.clone()],
            ..PreflightReport::default()
        },
        recording: Err(NO_ROW.into()),
        // `CORP\joe`, `joe@corp.example`.
        login: target.user.split(['\\', '@']).map(str::to_owned).collect(),
    };
    // The failed step is in the report.
    let _ = check.steps(target, wanted, known).await;
    (check.report, check.recording)
}

struct HostCheck {
    report: PreflightReport,
    /// Lines of the contract's rows, without private texts, or why there are none.
    recording: Result<String, String>,
    /// Name of the login's user, and its domain.
    login: Vec<String>,
}

/// A failed step is in the report already.
struct StepFailed;

impl HostCheck {
    /// Runs one step, and reports its result and duration.
    async fn step<T>(
        &mut self,
        name: &'static str,
        doing: impl Future<Output = Result<(T, String), Failure>>,
    ) -> Result<T, StepFailed> {
        let began = Instant::now();
        let late = || {
            let said = format!("it did not end within {} s", STEP_MAX.as_secs());
            Err(Failure::transient("TimeLimit", said))
        };
        let done = timeout(STEP_MAX, doing).await.unwrap_or_else(|_| late());
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (found, said) = match done {
            Ok((found, said)) => (Ok(found), Ok(said)),
            Err(failure) => (Err(StepFailed), Err(failure)),
        };
        self.report.step(name, ms, said);
        found
    }

    async fn steps(
        &mut self,
        target: &HostTarget,
        wanted: &Baseline<'_>,
        known: impl Fn(&str) -> Result<(), String>,
    ) -> Result<(), StepFailed> {
        let pin = self.step("read the host's key", host_key(target)).await?;
        self.step("check the host's key", async { confirmed(&pin, &known) })
            .await?;
        let session = self.step("log in", log_in(target, &pin)).await?;
        let language = self.step("detect Windows", language(&session)).await?;
        let shell = self
            .step("read the default shell", default_shell(&session))
            .await?;
        let there = self
            .step("look for dormer's folder", folder(&session))
            .await?;
        let planned = match self.probed(&session, wanted.program).await {
            Ok(answer) => {
                self.report.private.extend(private(&answer.facts));
                let found = Windows {
                    language,
                    default_shell: shell,
                    ..Windows::of(&answer.facts)
                };
                self.report.windows = Some(found);
                let planned = self.planned(&session, wanted, &answer).await;
                let compared = match wanted.performing {
                    Some(performing) => self.compared(&session, performing, &answer).await,
                    None => Ok(()),
                };
                planned.and(compared)
            }
            Err(failed) => Err(failed),
        };
        let removed = self.clean_up(&session, there).await;
        planned.and(removed)
    }

    /// Sends the program, and reads facts by it.
    async fn probed(
        &mut self,
        session: &Session,
        program: &HostProgram,
    ) -> Result<Answer, StepFailed> {
        let path = program_path(program.sha256());
        self.send("send the program", session, path, program.bytes())
            .await?;
        let probing = async {
            let answer = called(session, program, probe_call(program), Bytes::new()).await?;
            let text = format!("Windows {}", answer.facts.os_build);
            Ok((answer, text))
        };
        self.step("run the program, mode probe", probing).await
    }

    /// Runs the program in mode plan, with the document on its standard input.
    async fn planned(
        &mut self,
        session: &Session,
        wanted: &Baseline<'_>,
        probed: &Answer,
    ) -> Result<(), StepFailed> {
        let document = self
            .step("render the profile", async { desired(wanted, probed) })
            .await?;
        let planning = plan(session, wanted.program, probed, document);
        let answer = self.step("run the program, mode plan", planning).await?;
        self.report.plan = Some(PreflightPlan::of(&answer));
        Ok(())
    }

    /// Runs the contract's harmless rows by a program that performs single operations.
    async fn compared(
        &mut self,
        session: &Session,
        performing: &HostProgram,
        probed: &Answer,
    ) -> Result<(), StepFailed> {
        let path = program_path(performing.sha256());
        let bytes = performing.bytes();
        self.send("send the second program", session, path.clone(), bytes)
            .await?;
        let before = "remove an earlier run's scratch";
        self.report.scratch_removed = Some(false);
        self.step(before, contract::cleared(session, &path)).await?;
        let about = format!("Windows {}, by dormer preflight", probed.facts.os_build);
        let line = command_line(&probe_call(performing)).unwrap_or_default();
        let probe = line.split(' ').skip(1).map(str::to_owned).collect();
        let mut comparison = Comparison::new(about);
        let comparing = comparison.run(session, &path, probe);
        let ran = self.step("run the contract's rows", comparing).await;
        // A program that still runs has locks in the scratch.
        let compared = comparison.ended().await;
        let cleared = self
            .step("remove the scratch", contract::cleared(session, &path))
            .await;
        self.report.scratch_removed = Some(cleared.is_ok());
        let private = [&self.report.private[..], &self.login].concat();
        let (results, recording) = compared.without(&private);
        self.recording = recording;
        if results.rows() > 0 {
            self.differences(results);
        }
        ran.and(cleared)
    }

    /// Reports the rows' results; one that differs is a failure.
    fn differences(&mut self, contract: Contract) {
        let count = contract.differs.len();
        let said = match count {
            0 => Ok("no row that ran differs".to_owned()),
            _ => Err(Failure::lasting(
                "ContractDiffers",
                format!("{count} rows differ; they are listed below"),
            )),
        };
        self.report.step("compare with dormer's model", 0, said);
        self.report.contract = Some(contract);
    }

    async fn send(
        &mut self,
        name: &'static str,
        session: &Session,
        path: String,
        bytes: &[u8],
    ) -> Result<(), StepFailed> {
        let sending = async {
            let sftp = session.sftp().await?;
            for folder in [ROOT, BIN] {
                sftp.make_folder(folder).await?;
            }
            // What existed before is not removed.
            let before = sftp.size(&path).await?.is_some();
            let size = bytes.len() as u64;
            let sha256 = sha256_hex(bytes);
            let part = format!("{path}.1-0-1.part");
            let what = Upload {
                path: &path,
                part: &part,
                size,
                sha256: &sha256,
            };
            sftp.upload(what, bytes, |_| {}).await?;
            Ok((before, format!("{size} bytes")))
        };
        let before = self.step(name, sending).await?;
        if !before {
            self.report.written.push(WrittenFile {
                path,
                removed: false,
            });
        }
        Ok(())
    }

    /// Removes the written files, and the folders created for them.
    async fn clean_up(&mut self, session: &Session, there: bool) -> Result<(), StepFailed> {
        let mut written = std::mem::take(&mut self.report.written);
        let removing = async {
            let sftp = session.sftp().await?;
            // The program's own lock and notes.
            for name in STATE_FILES {
                let path = format!(r"{STATE}\{name}");
                if !there && sftp.size(&path).await?.is_some() {
                    written.push(WrittenFile {
                        path,
                        removed: false,
                    });
                }
            }
            for file in &mut written {
                if sftp.size(&file.path).await?.is_some() {
                    sftp.remove(&file.path).await?;
                }
                file.removed = true;
            }
            if !there {
                for folder in [BIN, STAGING, STATE, ROOT] {
                    if sftp.size(folder).await?.is_some() {
                        sftp.remove_folder(folder).await?;
                    }
                }
            }
            let folder = if there {
                "the folder was there before"
            } else {
                "its folder as well"
            };
            Ok(((), format!("{} files; {folder}", written.len())))
        };
        let done = self.step("remove the written files", removing).await;
        self.report.written = written;
        done
    }
}

/// Texts that name a host: its names, its domain, its addresses.
fn private(facts: &Facts) -> Vec<String> {
    let pending = facts.hostname_pending.as_ref();
    let names = [Some(&facts.hostname), facts.fqdn.as_ref(), pending];
    let domain = facts.fqdn.as_deref().and_then(|it| it.split_once('.'));
    let names = names.into_iter().flatten().cloned();
    let domain = domain.map(|(_, domain)| domain.to_owned());
    let addresses = facts.addresses.iter().map(|it| it.ipv4.clone());
    names.chain(domain).chain(addresses).collect()
}

fn dialer(target: &HostTarget) -> Dialer {
    Arc::new(TcpDial { port: target.port })
}

/// Reads the host's key before any login.
async fn host_key(target: &HostTarget) -> Result<(String, String), Failure> {
    let HostTarget {
        address, user, key, ..
    } = target;
    let limits = Limits::default();
    match Session::open(&dialer(target), address, user, Some(NO_PIN), key, limits).await {
        Err(SshError::HostKey { shown, .. }) => {
            let print = fingerprint(&shown);
            Ok((shown, print))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err(Failure::lasting("HostKeyUnknown", "the host shows no key")),
    }
}

fn confirmed(
    shown: &str,
    known: &impl Fn(&str) -> Result<(), String>,
) -> Result<((), String), Failure> {
    let said = known(shown).map_err(|why| Failure::lasting("HostKeyUnknown", why));
    said.map(|()| ((), "it is the expected key".into()))
}

pub(super) async fn log_in(target: &HostTarget, pin: &str) -> Result<(Session, String), Failure> {
    let HostTarget {
        address, user, key, ..
    } = target;
    let limits = Limits::default();
    let session = Session::open(&dialer(target), address, user, Some(pin), key, limits).await?;
    let said = accepted(&session.server());
    Ok((session, said))
}

/// What the support table says of the sshd that accepted the key.
fn accepted(server: &str) -> String {
    match openssh(server) {
        Some((version, known)) => {
            format!("the key is accepted; OpenSSH {version}: {}", known.remark)
        }
        None => "the key is accepted; docs/support.md does not know this sshd".into(),
    }
}

/// Language number of Windows. A host without a registry is not Windows.
async fn language(session: &Session) -> Result<(Option<String>, String), Failure> {
    let output = session.exec(ASK_LANGUAGE, |_| {}).await?;
    let found = registry_text(&output, "InstallLanguage").ok_or_else(|| {
        let message = format!("the host has no registry of Windows{}", said(&output));
        Failure::lasting("NotWindows", message)
    })?;
    let text = format!("installation language {found}");
    Ok((Some(found), text))
}

async fn default_shell(session: &Session) -> Result<(Option<String>, String), Failure> {
    let output = session.exec(ASK_SHELL, |_| {}).await?;
    let found = registry_text(&output, "DefaultShell");
    let text = found
        .clone()
        .unwrap_or_else(|| "cmd.exe, which is sshd's own default".into());
    Ok((found, text))
}

/// Value in the output of `reg.exe query`: `    NAME    REG_SZ    text`, the same in every language.
fn registry_text(output: &Output, name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix(name)?.trim_start();
        let text = rest.strip_prefix("REG_SZ")?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    })
}

/// Checks whether dormer's folder exists.
async fn folder(session: &Session) -> Result<(bool, String), Failure> {
    let there = session.sftp().await?.size(ROOT).await?.is_some();
    let text = if there {
        "it exists: dormer was on this host before"
    } else {
        "it does not exist"
    };
    Ok((there, text.into()))
}

pub(super) fn probe_call(program: &HostProgram) -> Call {
    Call {
        mode: Mode::Asked(invocation::Mode::Probe),
        task: TASK.into(),
        attempt: 1,
        fence: Fence::default(),
        boot: None,
        document: None,
        program: program.sha256().to_owned(),
    }
}

/// Document of the example's machine for this host's Windows, with names instead of secrets.
fn desired(wanted: &Baseline<'_>, probed: &Answer) -> Result<(Vec<u8>, String), Failure> {
    let Baseline {
        profile, payload, ..
    } = wanted;
    let values = Values {
        windows_build: probed.facts.os_build.clone(),
        ..Values::example("none")
    };
    let secrets = named_secrets(profile, |name| JOIN_SECRETS.contains(&name));
    let variables = values.variables();
    let inputs = Inputs {
        profile,
        payload,
        variables: &variables,
        secrets: &secrets,
        keep: &[],
    };
    let made = version(profile, payload);
    let rendered = render(&inputs, Section::Host, &made)
        .map_err(|problems| Failure::lasting("ProfileUnusable", problems.to_string()))?;
    let document = rendered.document.to_bytes().map_err(unusable)?;
    let text = format!(
        "{} items, {} bytes",
        rendered.document.items.len(),
        document.len()
    );
    Ok((document, text))
}

/// Runs the program in mode plan. It holds the host's fence, although mode plan does not need it.
async fn plan(
    session: &Session,
    program: &HostProgram,
    probed: &Answer,
    document: Vec<u8>,
) -> Result<(Answer, String), Failure> {
    let call = Call {
        mode: Mode::Asked(invocation::Mode::Plan),
        attempt: 2,
        fence: probed.facts.fence.unwrap_or_default(),
        boot: Some(probed.facts.boot_id.clone()),
        document: Some(Announced {
            bytes: document.len(),
            sha256: sha256_hex(&document),
        }),
        ..probe_call(program)
    };
    let answer = called(session, program, call, document.into()).await?;
    let text = format!("{} items in {} ms", answer.items.len(), answer.took_ms);
    Ok((answer, text))
}

/// One call of the program, with its answer.
pub(super) async fn called(
    session: &Session,
    program: &HostProgram,
    call: Call,
    input: Bytes,
) -> Result<Answer, Failure> {
    let line = command_line(&call).map_err(unusable)?;
    let command = SshCommand {
        line: &line,
        input,
        silent_max: Some(SILENT_MAX),
    };
    let output = session
        .exec_with(command, |_| ControlFlow::Continue(()))
        .await?;
    let answer = frame::extract(&output.stdout, TASK, call.attempt).map_err(|error| {
        let said = said(&output);
        obstacle(&output, &said)
            .unwrap_or_else(|| Failure::lasting("NoFrame", format!("{error}{said}")))
    })?;
    if answer.program != program.sha256() {
        let message = "another program answered than the one that was sent";
        return Err(Failure::lasting("NoFrame", message));
    }
    match &answer.failure {
        None => Ok(answer),
        Some(failure) => {
            let item = failure
                .item
                .as_ref()
                .map(|item| format!("{item}: "))
                .unwrap_or_default();
            Err(Failure::lasting(
                code::shown(&failure.code.as_str()),
                format!("{item}{}", failure.message),
            ))
        }
    }
}

fn said(output: &Output) -> String {
    let printed = if output.stderr.is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    let readable = dormer_profile::clixml::readable(printed);
    let text: String = readable.trim().chars().take(SAID_CHARS_MAX).collect();
    let status = output
        .status
        .map(|status| format!(" (exit {status})"))
        .unwrap_or_default();
    if text.is_empty() {
        status
    } else {
        format!("{status}; output: {text}")
    }
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::lasting("CommandUnusable", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_of_a_host_is_private_too() {
        let facts = Facts {
            hostname: "WIN-7".into(),
            fqdn: Some("win-7.corp.example".into()),
            hostname_pending: Some("web-1".into()),
            ..Facts::default()
        };
        assert_eq!(
            private(&facts),
            ["WIN-7", "win-7.corp.example", "web-1", "corp.example"]
        );
    }
}
