//! The steps on the host: whose key it shows, what runs there, what the script would change, and nothing left behind.

use super::report::{Plan, Report, Windows, Written};
use dormer_profile::{
    answer::Answer,
    document::{BIN, DOCUMENTS, HOST_ROOT, STAGING, Section},
    frame,
    invocation::{Call, DocumentRef, Mode, command_line, document_path, document_ref, script_path},
    payload::Manifest,
    profile::Profile,
    render::{Inputs, render},
    script, sha256_hex,
    shown::named_secrets,
    values::{JOIN_SECRETS, Values},
    version::version,
};
use dormer_proto::message::Failure;
use dormer_workers::ssh::{
    Dialer, Key, Limits, Output, Session, SshError, TcpDial, Upload, fingerprint,
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// The longest that one step may take: a plan reads and sums hundreds of megabytes.
const STEP_MAX: Duration = Duration::from_secs(600);
/// Stands in the place of a pin, so that no login is tried before the host's key is known.
const NO_PIN: &str = "none";
/// The task that the script is told.
const TASK: &str = "preflight/self-test";
/// Longest piece of a host's words in the report.
const SAID_CHARS_MAX: usize = 300;
/// The exit status of a command that is not there: of cmd.exe, and of shells elsewhere.
const NO_COMMAND: [u32; 2] = [9_009, 127];
/// Reads alone, and needs no quotes in any shell.
const ASK_LANGUAGE: &str =
    r"reg.exe query HKLM\SYSTEM\CurrentControlSet\Control\Nls\Language /v InstallLanguage";
/// The same for the shell that sshd starts.
const ASK_SHELL: &str = r"reg.exe query HKLM\SOFTWARE\OpenSSH /v DefaultShell";

/// Which host, and how to get there.
pub(super) struct HostTarget {
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) key: Key,
}

/// What the host is compared with.
pub(super) struct Baseline<'a> {
    pub(super) profile: &'a Profile,
    pub(super) payload: &'a Manifest,
}

/// A document and the version that it makes.
struct Desired {
    document: Vec<u8>,
}

/// Looks at a host whose key `known` confirms. What fails ends the look; what was written is removed in any case.
pub(super) async fn check(
    target: &HostTarget,
    wanted: &Baseline<'_>,
    known: impl Fn(&str) -> Result<(), String>,
) -> Report {
    let mut check = HostCheck {
        report: Report {
            dormer: env!("CARGO_PKG_VERSION"),
            script: script::hash().to_owned(),
            profile: wanted.profile.name.clone(),
            private: vec![target.address.clone()],
            ..Report::default()
        },
    };
    // The failed step stands in the report.
    let _ = check.steps(target, wanted, known).await;
    check.report
}

struct HostCheck {
    report: Report,
}

/// A failed step is in the report already.
struct Failed;

impl HostCheck {
    /// Does one step, and writes down how it went and how long it took.
    async fn step<T>(
        &mut self,
        name: &'static str,
        doing: impl Future<Output = Result<(T, String), Failure>>,
    ) -> Result<T, Failed> {
        let began = Instant::now();
        let late = || {
            let said = format!("no end within {} s", STEP_MAX.as_secs());
            Err(Failure::transient("TimeLimit", said))
        };
        let done = timeout(STEP_MAX, doing).await.unwrap_or_else(|_| late());
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (found, said) = match done {
            Ok((found, said)) => (Ok(found), Ok(said)),
            Err(failure) => (Err(Failed), Err(failure)),
        };
        self.report.step(name, ms, said);
        found
    }

    async fn steps(
        &mut self,
        target: &HostTarget,
        wanted: &Baseline<'_>,
        known: impl Fn(&str) -> Result<(), String>,
    ) -> Result<(), Failed> {
        let pin = self.step("see the host's key", host_key(target)).await?;
        self.step("know the host's key", async { confirmed(&pin, &known) })
            .await?;
        let session = self.step("log in", log_in(target, &pin)).await?;
        let language = self.step("ask for Windows", language(&session)).await?;
        let shell = self
            .step("ask for the default shell", default_shell(&session))
            .await?;
        let there = self
            .step("look for dormer's folder", folder(&session))
            .await?;
        let facts = self.step("run the probe", probe(&session)).await;
        let planned = match facts {
            Ok(answer) => {
                let names = [Some(&answer.facts.hostname), answer.facts.fqdn.as_ref()];
                self.report
                    .private
                    .extend(names.into_iter().flatten().cloned());
                let addresses = answer.facts.addresses.iter().map(|it| it.ipv4.clone());
                self.report.private.extend(addresses);
                let found = Windows {
                    language,
                    default_shell: shell,
                    ..Windows::of(&answer.facts)
                };
                self.report.windows = Some(found);
                self.planned(&session, wanted, &answer).await
            }
            Err(failed) => Err(failed),
        };
        let removed = self.clean_up(&session, there).await;
        planned.and(removed)
    }

    /// Sends the script and its document, and has it compare.
    async fn planned(
        &mut self,
        session: &Session,
        wanted: &Baseline<'_>,
        probed: &Answer,
    ) -> Result<(), Failed> {
        let desired = self
            .step("render the profile", async { desired(wanted, probed) })
            .await?;
        let path = script_path(script::hash());
        self.send(
            "send the script",
            session,
            path,
            script::CONVERGE.as_bytes(),
        )
        .await?;
        let how = document_ref(Section::Host, &desired.document);
        if let DocumentRef::Uploaded { section, sha256 } = &how {
            let path = document_path(*section, sha256);
            self.send("send the document", session, path, &desired.document)
                .await?;
        }
        let answer = self
            .step("run the script, mode plan", plan(session, probed, how))
            .await?;
        self.report.plan = Some(Plan::of(&answer));
        Ok(())
    }

    async fn send(
        &mut self,
        name: &'static str,
        session: &Session,
        path: String,
        bytes: &[u8],
    ) -> Result<(), Failed> {
        let sending = async {
            let sftp = session.sftp().await?;
            // What was there before is not ours to remove.
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
            self.report.written.push(Written {
                path,
                removed: false,
            });
        }
        Ok(())
    }

    /// Removes what was written, and the folders that were made for it.
    async fn clean_up(&mut self, session: &Session, there: bool) -> Result<(), Failed> {
        let mut written = std::mem::take(&mut self.report.written);
        let removing = async {
            let sftp = session.sftp().await?;
            // The script's own note of its last call.
            let path = format!(r"{HOST_ROOT}\last.json");
            if !there && sftp.size(&path).await?.is_some() {
                written.push(Written {
                    path,
                    removed: false,
                });
            }
            for file in &mut written {
                if sftp.size(&file.path).await?.is_some() {
                    sftp.remove(&file.path).await?;
                }
                file.removed = true;
            }
            if !there {
                for folder in [BIN, DOCUMENTS, STAGING, HOST_ROOT] {
                    if sftp.size(folder).await?.is_some() {
                        sftp.remove_folder(folder).await?;
                    }
                }
            }
            let folder = if there {
                "the folder was there before"
            } else {
                "its folder, too"
            };
            Ok(((), format!("{} files; {folder}", written.len())))
        };
        let done = self.step("remove what was written", removing).await;
        self.report.written = written;
        done
    }
}

fn dialer(target: &HostTarget) -> Dialer {
    Arc::new(TcpDial { port: target.port })
}

/// The key that the host shows, before any login.
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
    said.map(|()| ((), "it is the one that was named".into()))
}

async fn log_in(target: &HostTarget, pin: &str) -> Result<(Session, String), Failure> {
    let HostTarget {
        address, user, key, ..
    } = target;
    let limits = Limits::default();
    let session = Session::open(&dialer(target), address, user, Some(pin), key, limits).await?;
    Ok((session, "the key is accepted".into()))
}

/// The language's number. Whoever has no registry is no Windows.
async fn language(session: &Session) -> Result<(Option<String>, String), Failure> {
    let output = session.exec(ASK_LANGUAGE, |_| {}).await?;
    let found = registry_text(&output, "InstallLanguage").ok_or_else(|| {
        let message = format!("the host has no registry of Windows{}", said(&output));
        Failure::lasting("NotWindows", message)
    })?;
    let text = format!("it was installed in language {found}");
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

/// A text that `reg.exe query` prints: `    NAME    REG_SZ    text`, alike in every language.
fn registry_text(output: &Output, name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix(name)?.trim_start();
        let text = rest.strip_prefix("REG_SZ")?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    })
}

/// Whether dormer's folder is there already.
async fn folder(session: &Session) -> Result<(bool, String), Failure> {
    let there = session.sftp().await?.size(HOST_ROOT).await?.is_some();
    let text = if there {
        "it is there: dormer was here before"
    } else {
        "it is not there"
    };
    Ok((there, text.into()))
}

async fn probe(session: &Session) -> Result<(Answer, String), Failure> {
    let line = script::bootstrap_line(TASK, 1).map_err(unusable)?;
    let output = session.exec(&line, |_| {}).await?;
    let answer = answered(&output, 1)?;
    let text = format!(
        "Windows {}, PowerShell {}",
        answer.facts.os_build, answer.facts.shell
    );
    Ok((answer, text))
}

/// The example's machine on this host's Windows, with names in the place of secrets.
fn desired(wanted: &Baseline<'_>, probed: &Answer) -> Result<(Desired, String), Failure> {
    let Baseline { profile, payload } = wanted;
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
    let made = version(profile, payload, script::hash());
    let rendered = render(&inputs, Section::Host, &made)
        .map_err(|problems| Failure::lasting("ProfileUnusable", problems.to_string()))?;
    let document = rendered.document.to_bytes().map_err(unusable)?;
    let text = format!(
        "{} items, {} bytes",
        rendered.document.items.len(),
        document.len()
    );
    Ok((Desired { document }, text))
}

/// Has the script compare; under the host's own fence, though mode plan asks for none.
async fn plan(
    session: &Session,
    probed: &Answer,
    document: DocumentRef,
) -> Result<(Answer, String), Failure> {
    let call = Call {
        mode: Mode::Plan,
        task: TASK.into(),
        attempt: 2,
        fence: probed.facts.fence.unwrap_or_default(),
        expected_boot_id: Some(probed.facts.boot_id.clone()),
        document: Some(document),
        script: script::hash().to_owned(),
    };
    let line = command_line(&call).map_err(unusable)?;
    let output = session.exec(&line, |_| {}).await?;
    let answer = answered(&output, 2)?;
    let text = format!("{} items in {} ms", answer.items.len(), answer.took_ms);
    Ok((answer, text))
}

fn answered(output: &Output, attempt: u32) -> Result<Answer, Failure> {
    let absent = output
        .status
        .is_some_and(|status| NO_COMMAND.contains(&status));
    let answer = frame::extract(&output.stdout, TASK, attempt).map_err(|error| {
        let message = format!("{error}{}", said(output));
        let code = if absent { "NoPowerShell" } else { "NoFrame" };
        Failure::lasting(code, message)
    })?;
    match &answer.failure {
        None => Ok(answer),
        Some(failure) => {
            let item = failure
                .item
                .as_ref()
                .map(|item| format!("{item}: "))
                .unwrap_or_default();
            Err(Failure::lasting(
                failure.code.as_str(),
                format!("{item}{}", failure.message),
            ))
        }
    }
}

fn said(output: &Output) -> String {
    let text = if output.stderr.is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    let text = dormer_profile::clixml::readable(text);
    let text: String = text.trim().chars().take(SAID_CHARS_MAX).collect();
    let status = output
        .status
        .map(|status| format!(" (exit {status})"))
        .unwrap_or_default();
    if text.is_empty() {
        status
    } else {
        format!("{status}; it said: {text}")
    }
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::lasting("CommandUnusable", error.to_string())
}
