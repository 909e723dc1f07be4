//! `dormer-host.exe` on a simulated host: the program's own core, over this host's state.
//!
//! The program that workers send is a stand-in: a PE header and some bytes. A host that finds exactly that one at the path
//! of the command line runs the core in its place; any other it cannot run.

mod files;
mod network;
mod perform;
mod services;
mod system;

use std::sync::{Arc, LazyLock, Mutex};

use dormer_host::arguments::{self, Call, Mode};
use dormer_host::heartbeat::HostHeartbeat;
use dormer_host::ops::{self, Operation, OperationRequest, Outcome, ProcessKey, WinError};
use dormer_host::paths::{BIN, STATE, program_path};
use dormer_host::wire::read_document;
use dormer_profile::answer::{Answer, FailureCode, ItemState};
use dormer_profile::document::Document;
use dormer_profile::invocation::Mode as Asked;
use dormer_profile::item::ItemKind;
use dormer_profile::{frame, sha256_hex};
use russh::server::Msg;
use russh::{Channel, ChannelMsg};
use tokio::time::Instant;

use super::body::{MODELLED_MARK, STAND_IN_BODY_AT, modelled_body};
use super::computer::{Host, lock};
use super::counts::Execution;
use super::ended::Ended;
use super::link::Link;
use crate::faults::Fault;
use crate::world::Happened;

/// Bytes of the stand-in, and what it counts for: as many as ours has.
const STAND_IN_BYTES: (usize, u64) = (16 << 10, 1_100 << 10);

/// The program that simulated hosts take for `dormer-host.exe`.
#[must_use]
pub fn stand_in() -> &'static [u8] {
    static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| stand_in_of("dormer-host.exe"));
    &PROGRAM
}

/// The one of a later dormer: other bytes, which they take, too.
#[must_use]
pub fn later_stand_in() -> &'static [u8] {
    static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| stand_in_of("a later dormer-host.exe"));
    &PROGRAM
}

/// The program that simulated hosts take for `dormer-host-perform.exe`.
#[must_use]
pub fn performing_stand_in() -> &'static [u8] {
    static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| stand_in_of("dormer-host-perform.exe"));
    &PROGRAM
}

fn stand_in_of(title: &str) -> Vec<u8> {
    let mut bytes = b"MZ".to_vec();
    bytes.resize(0x3c, 0);
    bytes.extend(0x80_u32.to_le_bytes());
    bytes.resize(0x80, 0);
    bytes.extend(b"PE\0\0\x64\x86");
    bytes.resize(STAND_IN_BODY_AT, 0);
    let (actual, modelled) = STAND_IN_BYTES;
    bytes.extend(modelled_body(title, actual, modelled));
    debug_assert!(bytes[STAND_IN_BODY_AT..].starts_with(MODELLED_MARK.as_bytes()));
    bytes
}

/// Whether a program with this hash runs here.
fn is_stand_in(sha256: &str) -> bool {
    static SHA256: LazyLock<[String; 2]> =
        LazyLock::new(|| [stand_in(), later_stand_in()].map(sha256_hex));
    SHA256.iter().any(|known| known == sha256)
}

/// The call of a command line; none if it is no line of the program.
pub(super) fn parse(line: &str) -> Option<Call> {
    let mut words = line.split_ascii_whitespace();
    let path = words.next()?;
    let name = path.strip_prefix(BIN)?.strip_prefix(r"\dormer-host-")?;
    let words: Vec<String> = words.map(str::to_owned).collect();
    let call = arguments::parse(&words).ok()?;
    let own = call.mode == Mode::Boot || path == program_path(&call.program);
    (own && name.ends_with(".exe")).then_some(call)
}

/// Present activity of the program, for heartbeats.
pub(super) type PresentStep = Arc<Mutex<Option<(ops::Step, Instant)>>>;

/// One process of the program: this host behind the program's host interface.
struct ProgramProcess {
    host: Arc<Host>,
    pid: u32,
    mode: Mode,
    /// `host ` or `node `, as steps of a bring-up begin.
    section: String,
    watch: PresentStep,
    held: Vec<ProcessKey>,
    /// The connection of this call is cut; the call runs on for this time.
    long: bool,
}

/// Windows' refusal to run a program: a number with its message.
struct Obstacle(u32, &'static str);

impl Host {
    /// This host behind the program's interface, as a call that compares sees it: no fault strikes.
    pub fn interface(self: &Arc<Self>) -> impl ops::Host + use<> {
        ProgramProcess {
            pid: self.state().new_pid(),
            host: Arc::clone(self),
            mode: Mode::Asked(Asked::Plan),
            section: String::new(),
            watch: PresentStep::default(),
            held: Vec::new(),
            long: false,
        }
    }

    /// Runs one call of the program, with what comes on its standard input.
    pub(super) async fn run_program(
        self: &Arc<Self>,
        call: Call,
        input: Option<Channel<Msg>>,
        link: &Link,
        (pid, watch): (u32, PresentStep),
    ) -> Ended {
        if let Some(obstacle) = self.obstacle(&call) {
            return self.refuse(&call, obstacle);
        }
        self.pause(20, 60).await;
        let applies = call.mode == Mode::Asked(Asked::Apply);
        if applies && self.strike(Fault::NoFrame) {
            return Ended::nothing();
        }
        if applies && self.strike(Fault::HalfOpen) {
            link.silence();
        }
        let long = applies && self.strike(Fault::DropDuringScript);
        if long {
            self.cut_soon(link);
        }
        let document = match (&call.document, input) {
            (None, _) => Ok(None),
            (Some(announced), input) => {
                let bytes = read_input(input, announced.bytes).await;
                lock(&self.counts).bytes_of_documents += bytes.len() as u64;
                read_document(announced, &bytes[..]).map(Some)
            }
        };
        let wanted = document.as_ref().ok().and_then(Option::as_ref);
        let wanted = wanted.and_then(|bytes| Document::from_bytes(bytes).ok());
        if applies && let Some(wanted) = &wanted {
            self.note_asked_for(wanted);
        }
        let section = wanted.map(|wanted| format!("{} ", wanted.section.as_str()));
        let process = ProgramProcess {
            host: Arc::clone(self),
            pid,
            mode: call.mode,
            section: section.unwrap_or_default(),
            watch,
            held: Vec::new(),
            long,
        };
        let answer = dormer_host::run(call.clone(), document, process).await;
        if call.mode == Mode::Asked(Asked::Probe) {
            self.at("probe").await;
        }
        self.note_answer(&call, &answer);
        let mut stdout = self.noise();
        stdout.extend(frame::write(&answer));
        lock(&self.counts).bytes_of_answers += stdout.len() as u64;
        Ended::of(stdout, u32::from(answer.failure.is_some()))
    }

    /// The service that restores what a boot deletes.
    pub(super) async fn run_boot_service(self: Arc<Self>, command: &str) {
        let Some(call) = parse(command) else {
            return;
        };
        let pid = self.state().new_pid();
        let process = ProgramProcess {
            host: Arc::clone(&self),
            pid,
            mode: call.mode,
            section: String::new(),
            watch: PresentStep::default(),
            held: Vec::new(),
            long: false,
        };
        let answer = dormer_host::run(call, Ok(None), process).await;
        if let Some(failure) = answer.failure {
            tracing::debug!(
                machine = self.name(),
                why = failure.message,
                "the boot run failed"
            );
        }
        let mut state = self.state();
        if state.mutex == Some(pid) {
            state.mutex = None;
        }
    }

    /// Windows' refusal to run the program. Numbers and messages: Microsoft Learn, "System error codes".
    fn obstacle(&self, call: &Call) -> Option<Obstacle> {
        let path = program_path(&call.program);
        if self.strike(Fault::ProgramVanishes) {
            self.state().disk.remove_like(&path);
        }
        let body = self.state().disk.read_text_path(&path).ok();
        let Some(body) = body else {
            return Some(Obstacle(
                9_009,
                "is not recognized as an internal or external command,\r\noperable program or batch file.",
            ));
        };
        if self.strike(Fault::AppLocker) {
            return Some(Obstacle(
                1_260,
                "This program is blocked by group policy. For more information, contact your system administrator.",
            ));
        }
        if self.strike(Fault::Wdac) {
            return Some(Obstacle(
                4_551,
                "An Application Control policy has blocked this file.",
            ));
        }
        if self.strike(Fault::ScannerBlocks) {
            return Some(Obstacle(
                225,
                "Operation did not complete successfully because the file contains a virus or potentially unwanted software.",
            ));
        }
        if self.strike(Fault::OtherProcessor) || !is_stand_in(&body.sha256) {
            return Some(Obstacle(
                216,
                "This version of the program is not compatible with the version of Windows you're running. Check your computer's system information and then contact the software publisher.",
            ));
        }
        None
    }

    fn refuse(&self, call: &Call, Obstacle(number, words): Obstacle) -> Ended {
        let path = program_path(&call.program);
        let said = if self.image.shell.is_powershell() {
            format!("Program '{path}' failed to run: {words}\r\n")
        } else {
            format!("'{path}' {words}\r\n")
        };
        Ended {
            stdout: Vec::new(),
            stderr: said.into_bytes(),
            code: number,
        }
    }

    fn note_asked_for(&self, document: &Document) {
        let mut state = self.state();
        for item in &document.items {
            if let ItemKind::File(what) = &item.what {
                state
                    .asked_for
                    .insert(what.path.clone(), what.sha256.clone());
            }
        }
    }

    /// Records the operations in the counts and in the world's record.
    fn note_answer(&self, call: &Call, answer: &Answer) {
        let changed: Vec<String> = answer
            .items
            .iter()
            .filter(|item| item.state == ItemState::Changed)
            .map(|item| item.id.clone())
            .collect();
        let machine = self.uid().to_owned();
        let any = !changed.is_empty();
        let failure = answer.failure.as_ref();
        lock(&self.counts).executed(Execution {
            task: call.task.clone(),
            attempt: call.attempt,
            mode: answer.mode.as_str(),
            changed,
            failure: failure.map(|failure| failure.code.as_str()),
        });
        let busy = failure.is_some_and(|failure| failure.code == FailureCode::HostBusy);
        match answer.mode {
            Asked::Apply => self.context.record.push(Happened::Converged {
                machine,
                task: format!("{}/{}", call.task, call.attempt),
                changed: any,
            }),
            Asked::Remove if !busy => self.context.record.push(Happened::TornDown { machine }),
            _ => {}
        }
    }
}

/// Reads what a command is given, no more than `most` bytes, up to its end or the connection's.
async fn read_input(channel: Option<Channel<Msg>>, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Some(mut channel) = channel else {
        return bytes;
    };
    while bytes.len() < most {
        match channel.wait().await {
            Some(ChannelMsg::Data { data }) => bytes.extend_from_slice(&data),
            Some(ChannelMsg::Eof | ChannelMsg::Close) | None => break,
            Some(_) => {}
        }
    }
    bytes
}

/// Heartbeat of a working program.
pub(super) fn sign(host: &Host, watch: &PresentStep) -> Option<HostHeartbeat> {
    let (step, began) = lock(watch).clone()?;
    let elapsed_ms = match step.since_ms {
        0 => {
            let elapsed = host.context.pace.simulated(began.elapsed());
            u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
        }
        since => host.tick_ms().saturating_sub(since),
    };
    Some(HostHeartbeat::of(&step, elapsed_ms))
}

/// A number of Windows.
pub(super) fn refused<T>(code: u32) -> Result<T, WinError> {
    Err(WinError::new(code))
}

impl ops::Host for ProgramProcess {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        let OperationRequest { step, operation } = request;
        *lock(&self.watch) = Some((step.clone(), Instant::now()));
        let name = operation.name();
        let changes = operation.changes();
        let effect = lasting(&operation);
        // The item of work in which the power may fail: a note of the program's own, or an item.
        let doing = match note(&operation) {
            Some(note) => format!("note {note}"),
            None if step.item.is_empty() => format!("{}call", self.section),
            None => format!("{}{}", self.section, step.item),
        };
        self.host.state().doing = self.applies().then(|| doing.clone());
        let answer = self.answer(operation).await;
        self.host.state().doing = None;
        if changes && self.applies() && answer.is_ok() {
            if let Some(effect) = effect {
                self.host.effect(&effect);
            }
            // A file's own middle is such a step, and what is left then has to be written anew, too.
            if name != "file_write_new" {
                self.host.at(&format!("{doing} {name}")).await;
            }
        }
        answer
    }
}

impl ProgramProcess {
    fn applies(&self) -> bool {
        matches!(
            self.mode,
            Mode::Asked(Asked::Apply | Asked::Renew) | Mode::Boot
        )
    }

    async fn answer(&mut self, operation: Operation) -> Outcome {
        match files::answer(self, operation).await {
            Ok(outcome) => outcome,
            Err(operation) => match services::answer(self, *operation).await {
                Ok(outcome) => outcome,
                Err(operation) => match system::answer(self, *operation).await {
                    Ok(outcome) => outcome,
                    Err(operation) => network::answer(&self.host, *operation).await,
                },
            },
        }
    }
}

/// Name of the program's own file that an operation writes, if it does.
fn note(operation: &Operation) -> Option<String> {
    let path = match operation {
        Operation::FileWriteNew(ask) => &ask.path,
        Operation::FileRename(ask) => &ask.to,
        Operation::FileDelete(ask) => &ask.path,
        _ => return None,
    };
    let name = path.strip_prefix(STATE)?.strip_prefix('\\')?;
    let (name, _) = name.split_once(".dormer-").unwrap_or((name, ""));
    Some(name.to_owned())
}

/// What an operation leaves that outlives the power and is never to be made twice; none for notes and temporary files.
fn lasting(operation: &Operation) -> Option<String> {
    use Operation as O;
    let ours = |path: &str| path.starts_with(dormer_host::paths::ROOT);
    match operation {
        O::FileRename(ask) if !ours(&ask.to) => Some(format!("file {}", ask.to)),
        O::DirectoryCreate(ask) if !ours(&ask.path) => Some(format!("folder {}", ask.path)),
        O::ServiceCreate(ask) => Some(format!("service {}", ask.name)),
        O::FeatureEnable(ask) => Some(format!("feature {}", ask.name)),
        O::FirewallAdd(ask) => Some(format!("firewall {}", ask.rule.name)),
        O::RegistryWrite(ask) => Some(format!(r"registry {}\{}", ask.key, ask.name)),
        O::RootAdd(ask) => Some(format!("root {}", sha256_hex(&ask.der.0))),
        O::RouteAdd(ask) => Some(format!("route:{}", ask.route.prefix)),
        O::HnsCall(ask) if ask.method == "POST" && ask.path.ends_with("/endpoints") => {
            let body: serde_json::Value = serde_json::from_str(&ask.body).ok()?;
            Some(format!("endpoint:{}", body["Name"].as_str()?))
        }
        _ => None,
    }
}

/// An operation's outcome, or the operation itself where another file answers it.
type Answered = Result<Outcome, Box<Operation>>;
