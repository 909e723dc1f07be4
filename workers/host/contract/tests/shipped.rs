//! `dormer-host.exe` as it is shipped, with documents on its standard input, on Wine: the whole process that a worker
//! calls over SSH.
//!
//! Wine 8 answers the rights of a file by Unix mode bits, so that every file belongs to the prefix' user. The items of
//! these documents are such that rights count in files alone, and what the program says of those is expected.

use std::{fs, io::Write, process::Stdio};

use dormer_host::{
    arguments::{Announced, Call, Mode, command_line},
    block_on,
    ops::{
        Answer as Answered, Ask, Host as _, LockTake, Operation, OperationRequest, Outcome,
        ServiceState, ServiceStatusRead, Step,
    },
    paths::program_path,
};
use dormer_profile::{
    answer::{Answer, FailureCode, ItemState},
    document::{ChangeClass, Document, Fence},
    frame,
    invocation::Mode as Asked,
    item::{File, FileSource, Item, ItemKind},
    sha256_hex,
};
use dormer_testkit::{HostProgram, Wine, host_program, started};

use crate::{PROGRAMS, performer::Performer};

const PERFORM: &str = r"C:\windows\dormer-host-perform.exe";
/// Below the kubelet's folder rights are inherited, and not compared.
const FOLDER: &str = r"C:\var\lib\kubelet\shipped";
const UPLOADED: &str = r"C:\var\lib\kubelet\shipped\uploaded.bin";
const UPLOAD: &[u8] = b"what a worker uploads";

/// A prefix with the program where a worker puts it.
struct Shipped {
    wine: Wine,
    hash: String,
}

/// A call's answer, and its exit code.
struct Ended {
    answer: Answer,
    code: Option<i32>,
}

impl Shipped {
    fn on(wine: Wine, program: &HostProgram) -> Self {
        let bytes = fs::read(&program.program).expect("it was built");
        let shipped = Self {
            wine,
            hash: sha256_hex(&bytes),
        };
        for folder in ["bin", "staging"] {
            let folder = shipped.file(&format!(r"C:\Windows\dormer\{folder}"));
            fs::create_dir_all(folder).expect("made");
        }
        let path = in_prefix(&program_path(&shipped.hash));
        shipped.wine.install(&program.program, &path).expect("sent");
        let services = shipped.wine.install_service_programs(PROGRAMS, &["plain"]);
        services.expect("compiled");
        shipped
    }

    fn file(&self, path: &str) -> std::path::PathBuf {
        self.wine.file(&in_prefix(path))
    }

    /// Puts a file where a worker uploads it.
    fn upload(&self, name: &str, bytes: &[u8]) {
        let path = self.file(&format!(r"C:\Windows\dormer\staging\{name}"));
        fs::write(path, bytes).expect("uploaded");
    }

    fn call(&self, mode: Asked, seq: u64) -> Call {
        Call {
            mode: Mode::Asked(mode),
            task: format!("machine/1@{seq}.0"),
            attempt: 1,
            fence: Fence { generation: 1, seq },
            boot: None,
            document: None,
            program: self.hash.clone(),
        }
    }

    /// One call, by the line that a worker sends, which Windows' default shell starts.
    fn run(&self, mode: Asked, seq: u64, document: Option<&Document>) -> Ended {
        let bytes = document.map(|document| document.to_bytes().expect("a document"));
        self.send(mode, seq, bytes.as_deref(), usize::MAX)
    }

    /// As [`Shipped::run`], and the input ends after `sent` bytes.
    fn send(&self, mode: Asked, seq: u64, document: Option<&[u8]>, sent: usize) -> Ended {
        let mut call = self.call(mode, seq);
        call.document = document.map(|bytes| Announced {
            bytes: bytes.len(),
            sha256: sha256_hex(bytes),
        });
        let line = command_line(&call).expect("a line");
        let mut shell = self.wine.command(r"C:\windows\system32\cmd.exe");
        shell.args(["/c", &line]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("Wine can be started");
        let mut input = shell.stdin.take().expect("a pipe");
        let bytes = document.unwrap_or_default();
        // A call that is refused may have ended by then.
        let _ = input.write_all(&bytes[..sent.min(bytes.len())]);
        drop(input);
        let output = shell.wait_with_output().expect("it ends");
        let answer = frame::extract(&output.stdout, &call.task, 1);
        let said = String::from_utf8_lossy(&output.stdout);
        Ended {
            answer: answer.unwrap_or_else(|error| panic!("{line}: {error:?} {said}")),
            code: output.status.code(),
        }
    }

    fn ask(&self, operation: Operation) -> Outcome {
        let step = Step::default();
        let mut performer = Performer::start(&self.wine, PERFORM);
        block_on(performer.perform(OperationRequest { step, operation }))
    }

    fn state(&self, service: &str) -> Option<ServiceState> {
        let name = service.into();
        match self.ask(ServiceStatusRead { name }.operation()) {
            Ok(Answered::ServiceStatusRead(status)) => Some(status.state),
            _ => None,
        }
    }
}

/// A path by the name that the prefix has for Windows' folder.
fn in_prefix(path: &str) -> String {
    path.replacen(r"C:\Windows", r"C:\windows", 1)
}

fn uploaded() -> Item {
    let sha256 = sha256_hex(UPLOAD);
    let what = File {
        path: UPLOADED.into(),
        sha256: sha256.clone(),
        size: UPLOAD.len() as u64,
        source: FileSource::Staged { name: sha256 },
        users: Vec::new(),
        private: false,
    };
    Item {
        id: "uploaded".into(),
        change: ChangeClass::Live,
        what: ItemKind::File(what),
    }
}

/// A node of the kinds of items that Wine can hold. `.github/workflows/windows.yml` gives it to a Windows.
const NODE: &str = include_str!("../story.json");

fn node() -> Document {
    let mut node = Document::from_bytes(NODE.as_bytes()).expect("a document");
    node.items.push(uploaded());
    node
}

#[test]
fn the_shipped_program_applies_compares_and_removes_what_it_is_given() {
    let program = match host_program() {
        Ok(program) => program,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let wine = started!(Wine::start());
    wine.install(&program.perform, PERFORM).expect("installed");
    let host = Shipped::on(wine, &program);
    let states = |ended: &Ended| -> Vec<(String, ItemState)> {
        let items = ended.answer.items.iter();
        items.map(|item| (item.id.clone(), item.state)).collect()
    };

    // Nothing is there, and a plan changes nothing. What has to be uploaded is named.
    let plan = host.run(Asked::Plan, 1, Some(&node()));
    assert_eq!((&plan.answer.failure, plan.code), (&None, Some(0)));
    assert_eq!(plan.answer.missing_files, [UPLOADED]);
    assert!(!host.file(r"C:\var").exists());

    host.upload(&sha256_hex(UPLOAD), UPLOAD);
    let applied = host.run(Asked::Apply, 1, Some(&node()));
    assert!(applied.answer.converged(), "{:#?}", applied.answer);
    assert_eq!(
        (applied.code, &applied.answer.program),
        (Some(0), &host.hash)
    );
    let changed = ItemState::Changed;
    assert!(states(&applied).iter().all(|(_, state)| *state == changed));
    assert_eq!(fs::read(host.file(UPLOADED)).expect("written"), UPLOAD);
    assert_eq!(host.state("agent"), Some(ServiceState::Running));

    // Everything is right, but for what Wine says of rights.
    let plan = host.run(Asked::Plan, 2, Some(&node()));
    assert_eq!(plan.answer.failure, None);
    for outcome in &plan.answer.items {
        match outcome.id.as_str() {
            "written" => {
                assert_eq!(outcome.state, ItemState::Differs);
                assert!(outcome.detail.starts_with("belongs to S-1-5-21-"));
            }
            "uploaded" => {
                assert_eq!(outcome.state, ItemState::Differs);
                assert_eq!(plan.answer.missing_files, [UPLOADED]);
            }
            _ => assert_eq!(outcome.state, ItemState::Ok, "{outcome:?}"),
        }
    }

    let removed = host.run(Asked::Remove, 3, None);
    assert_eq!((&removed.answer.failure, removed.code), (&None, Some(0)));
    assert_eq!(host.state("agent"), None);
    assert!(!host.file(FOLDER).exists());
}

#[test]
fn the_shipped_program_refuses_what_is_old_cut_or_damaged_and_a_second_call() {
    let program = match host_program() {
        Ok(program) => program,
        Err(skipped) => dormer_testkit::skip!(skipped),
    };
    let wine = started!(Wine::start());
    wine.install(&program.perform, PERFORM).expect("installed");
    let host = Shipped::on(wine, &program);
    let only_upload = Document {
        items: vec![uploaded()],
        ..node()
    };
    let refused = |ended: Ended, code: FailureCode| {
        let failure = ended.answer.failure.expect("a failure");
        assert_eq!((failure.code, ended.code), (code, Some(1)), "{failure:?}");
    };

    // A connection that is lost in mid-document: nothing was written, not even the program's own folders.
    let bytes = only_upload.to_bytes().expect("a document");
    let cut = host.send(Asked::Apply, 5, Some(&bytes), bytes.len() / 2);
    refused(cut, FailureCode::DocumentRejected);
    assert!(!host.file(r"C:\Windows\dormer\state").exists());

    // An upload that arrived damaged is not taken for its content.
    host.upload(&format!("{}.gz", sha256_hex(UPLOAD)), b"no gzip");
    let damaged = host.run(Asked::Apply, 5, Some(&only_upload));
    refused(damaged, FailureCode::HashMismatch);
    assert!(!host.file(UPLOADED).exists());

    let older = host.run(Asked::Apply, 4, Some(&only_upload));
    refused(older, FailureCode::FenceTooOld);

    let path = r"C:\Windows\dormer\state\lock".to_owned();
    let operation = LockTake { path }.operation();
    let step = Step::default();
    let mut holder = Performer::start(&host.wine, PERFORM);
    let held = block_on(holder.perform(OperationRequest { step, operation }));
    assert!(held.is_ok(), "{held:?}");
    let second = host.run(Asked::Apply, 6, Some(&only_upload));
    refused(second, FailureCode::HostBusy);
    drop(holder);
    host.upload(&sha256_hex(UPLOAD), UPLOAD);
    let third = host.run(Asked::Apply, 6, Some(&only_upload));
    assert!(third.answer.converged(), "{:#?}", third.answer);
}
