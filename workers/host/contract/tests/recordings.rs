//! Recordings of hosts, and what the rows and the core make of them today.

use std::{fs, ops::ControlFlow, path::PathBuf};

use dormer_contract::{
    Needs, OnWine, Row, Scope, Shown, StandIns, Wanted, clear, is_harmless,
    recording::{self, RecordedLine, Recorder, Replayed, RowResult},
};
use dormer_host::{
    arguments::{Announced, Call, Mode, command_line},
    block_on,
    ops::{
        Ask, DirectoryList, DomainRead, FileInformation, FileRename, Host as _, HostNameSet,
        InterfaceList, Operation, OperationRequest, Outcome, ProcessList, RegistryWrite,
        ServiceCreate, ServiceList, ServiceSettings, Step, Value, WinError,
    },
};
use dormer_host_sim::SimulatedHost;
use dormer_profile::{document::Fence, invocation::Mode as Asked, sha256_hex};

/// A small node.
const STORY: &str = include_str!("../story.json");
/// What was recorded on the simulated host.
const SIMULATED: &str = "simulated.jsonl";

fn folder() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    PathBuf::from(package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into())).join("recordings")
}

/// Words of a call, as a worker writes them behind the program's path.
fn words(mode: Asked, document: Option<&str>) -> Vec<String> {
    let call = Call {
        mode: Mode::Asked(mode),
        task: "recording".into(),
        attempt: 1,
        fence: Fence {
            generation: 1,
            seq: 1,
        },
        boot: None,
        document: document.map(|text| Announced {
            bytes: text.len(),
            sha256: sha256_hex(text.as_bytes()),
        }),
        program: "ab".repeat(32),
    };
    let line = command_line(&call).expect("a line");
    line.split(' ').skip(1).map(str::to_owned).collect()
}

/// The harmless rows, a probe and a plan on the simulated host.
fn of_the_simulated_host() -> Vec<RecordedLine> {
    let about = "the simulated host, workers/host/sim";
    let mut recorder = Recorder::new(SimulatedHost::new(), about, &Scope::scratch());
    block_on(async {
        let all = |_| ControlFlow::Continue(());
        recorder.harmless_rows(all).await.expect("a folder");
        for (mode, document) in [(Asked::Probe, None), (Asked::Plan, Some(STORY))] {
            let called = recorder.call(words(mode, document), document.map(str::to_owned));
            called.await.expect("a call");
        }
    });
    recorder.into_parts().1
}

fn replayed(lines: &[RecordedLine]) -> Replayed {
    block_on(recording::replay(lines)).expect("a recording")
}

#[test]
fn the_recording_of_the_simulated_host_is_what_it_answers_now() {
    let path = folder().join(SIMULATED);
    let now = recording::text(&of_the_simulated_host());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::create_dir_all(folder()).expect("a folder");
        fs::write(&path, now).expect("written");
        return;
    }
    let then = fs::read_to_string(&path).expect("it is committed");
    let differs = then
        .lines()
        .zip(now.lines())
        .find(|(then, now)| then != now);
    assert_eq!(differs, None, "UPDATE_EXPECT=1 records it again");
    assert_eq!(then.len(), now.len(), "UPDATE_EXPECT=1 records it again");
}

#[test]
fn rows_and_core_come_to_the_recorded_results_over_every_recording() {
    let files = fs::read_dir(folder()).expect("recordings");
    let mut names = Vec::new();
    for file in files {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("text");
        let lines = recording::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let came = replayed(&lines);
        let none: [String; 0] = [];
        assert_eq!(came.wrong, none, "{}", path.display());
        assert!(came.same > 0, "{}: nothing is replayed", path.display());
        names.extend(path.file_name().map(|it| it.to_string_lossy().into_owned()));
    }
    assert!(names.iter().any(|it| it == SIMULATED), "{names:?}");
}

#[test]
fn a_recording_with_another_answer_has_another_result() {
    let lines = of_the_simulated_host();
    let whole = replayed(&lines);
    assert_eq!(
        (whole.outdated.len(), whole.wrong.len()),
        (0, 0),
        "{whole:?}"
    );
    assert!(whole.same > 100, "{} rows and calls", whole.same);
    let with = |is: &dyn Fn(&Operation) -> bool, other: Outcome| {
        let mut lines = lines.clone();
        let found = lines.iter_mut().rev().find_map(|line| match line {
            RecordedLine::Performed { operation, outcome } if is(operation) => Some(outcome),
            _ => None,
        });
        **found.expect("such an operation") = other;
        replayed(&lines).wrong
    };
    // One row in the contract, one answer in the core's facts.
    let refused = || Err(WinError::new(5));
    let row = with(
        &|it| matches!(it, Operation::VolumeSpace(ask) if ask.path != r"C:\"),
        refused(),
    );
    let core = with(&|it| matches!(it, Operation::SystemRead(_)), refused());
    let changed: Vec<_> = [row, core].into_iter().filter(|it| it.len() == 1).collect();
    assert_eq!(changed.len(), 2, "{changed:?}");
}

#[test]
fn harmless_rows_are_cleared_away() {
    let scope = Scope::scratch();
    let mut recorder = Recorder::new(SimulatedHost::new(), "", &scope);
    let ask = |host: &mut SimulatedHost, operation: Operation| {
        let step = Step::default();
        block_on(host.perform(OperationRequest { step, operation }))
    };
    let seen = |host: &mut SimulatedHost| {
        let path = r"C:".to_owned() + r"\";
        [
            ask(host, ServiceList {}.operation()),
            ask(host, DirectoryList { path }.operation()),
        ]
    };
    let before = seen(&mut SimulatedHost::new());
    let mut results = Vec::new();
    let ran = block_on(recorder.harmless_rows(|shown| {
        results.push(shown);
        ControlFlow::Continue(())
    }));
    ran.expect("a folder");
    assert!(results.len() > 100, "{} rows", results.len());
    let (mut host, _) = recorder.into_parts();
    let path = scope.folder.clone();
    let there = ask(&mut host, FileInformation { path }.operation());
    assert!(there.is_ok(), "the rows leave their folder: {there:?}");
    assert_ne!(seen(&mut host), before, "and services");
    block_on(clear(&scope, &mut host)).expect("cleared");
    assert_eq!(seen(&mut host), before);
}

fn row(operation: Operation) -> Row {
    Row {
        name: "a row",
        setup: Vec::new(),
        operation,
        wanted: Wanted::Done,
        after: Vec::new(),
        liar: Err(WinError::new(1)),
        source: "",
        wine: OnWine::Runs,
        needs: Needs::Nothing,
    }
}

#[test]
fn only_what_lies_in_the_scope_is_harmless() {
    let scope = Scope::scratch();
    let service = |name: &str, command: &str| {
        let settings = ServiceSettings {
            command: Some(command.into()),
            ..ServiceSettings::default()
        };
        let name = name.into();
        ServiceCreate { name, settings }.operation()
    };
    let moved = |from: &str, to: &str| {
        let from = from.into();
        let to = to.into();
        let replace = false;
        FileRename { from, to, replace }.operation()
    };
    let below = |name: &str| format!(r"{}\{name}", scope.folder);
    let ours = format!("{}-a", scope.prefix);
    let program = format!(r"{}\plain.exe plain", scope.programs);
    let key = RegistryWrite {
        key: format!(r"SOFTWARE\{}", scope.prefix),
        name: String::new(),
        value: Value::Number(7),
    };
    let name = HostNameSet { name: "x".into() };
    let table = [
        (moved(&below("a"), &below("b")), true),
        (moved(&below("a"), r"C:\k\b"), false),
        (moved(&format!("{}2", scope.folder), &below("b")), false),
        (service(&ours, r"C:\windows\k\a.exe"), true),
        (service(&ours.to_uppercase(), r"C:\Windows\a.exe"), true),
        (service("kubelet", r"C:\windows\k\a.exe"), false),
        // A user without rights could put a program there.
        (service(&ours, r"C:\no-such-folder\a.exe"), false),
        (service(&ours, r"C:\k\a.exe"), false),
        (service(&ours, r"C:\windows\temp\a.exe"), false),
        (service(&ours, r"C:\windows\..\k\a.exe"), false),
        (service(&ours, r"C:\windows2\a.exe"), false),
        (service(&ours, &program), false),
        (key.operation(), false),
        (name.operation(), false),
        (ServiceList {}.operation(), true),
    ];
    for (operation, harmless) in table {
        let row = row(operation);
        assert_eq!(is_harmless(&row, &scope), harmless, "{row:?}");
    }
}

#[test]
fn a_scratch_folder_that_is_there_is_refused_and_ours_takes_files_of_administrators_alone() {
    let scope = Scope::scratch();
    let harmless = |host: SimulatedHost| {
        let mut recorder = Recorder::new(host, "", &scope);
        let mut rows = 0;
        let ran = block_on(recorder.harmless_rows(|_| {
            rows += 1;
            ControlFlow::Continue(())
        }));
        (ran, rows, recorder.into_parts().0)
    };
    let mut taken = SimulatedHost::new();
    taken.link(&scope.folder, true, 0xa000_0003);
    let (ran, rows, _) = harmless(taken);
    let why = ran.expect_err("it is another's");
    assert!(why.contains(&scope.folder) && rows == 0, "{why} {rows}");
    let (ran, rows, host) = harmless(SimulatedHost::new());
    assert_eq!((ran, rows > 100), (Ok(()), true));
    let security = host.security(&scope.folder).expect("it is there");
    assert!(security.protected, "{security:?}");
    let entries = security.entries.expect("entries");
    let all: Vec<&str> = entries.iter().map(|it| &*it.sid).collect();
    assert_eq!(all, ["S-1-5-18", "S-1-5-32-544"]);
}

#[test]
fn rows_that_are_cut_leave_a_recording_of_those_before() {
    let mut recorder = Recorder::new(SimulatedHost::new(), "", &Scope::scratch());
    let mut left = 5;
    let ran = block_on(recorder.harmless_rows(|_| {
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }));
    ran.expect("a folder");
    let (_, lines) = recorder.into_parts();
    assert_eq!(replayed(&lines).same, 4);
}

#[test]
fn a_host_in_a_domain_skips_the_row_about_hosts_in_none() {
    let mut host = SimulatedHost::new();
    host.join_domain("BIGCORP");
    let mut recorder = Recorder::new(host, "", &Scope::scratch());
    let mut shown = Vec::new();
    let ran = block_on(recorder.harmless_rows(|it| {
        shown.push(it);
        ControlFlow::Continue(())
    }));
    ran.expect("a folder");
    let name = "a host that is in no domain says so";
    let why = "needs a host that is in no domain".to_owned();
    assert!(shown.contains(&Shown::Skipped(name, why)), "{shown:#?}");
}

/// A call in mode probe, and lists that rows ask for.
fn probe_of(host: SimulatedHost) -> Vec<RecordedLine> {
    let mut recorder = Recorder::new(host, "", &Scope::scratch());
    for operation in [
        DomainRead {}.operation(),
        InterfaceList {}.operation(),
        ProcessList {}.operation(),
    ] {
        let step = Step::default();
        let asked = block_on(recorder.perform(OperationRequest { step, operation }));
        assert!(asked.is_ok(), "{asked:?}");
    }
    let called = recorder.call(words(Asked::Probe, None), None);
    block_on(called).expect("a call");
    recorder.into_parts().1
}

#[test]
fn a_recording_for_others_has_stand_ins_for_what_names_its_host() {
    let why = |why: &str| {
        let result = RowResult::Differs;
        let why = why.to_owned();
        vec![RecordedLine::Shown { result, why }]
    };
    let private = [
        "win-7".into(),
        "10.1.2.3".into(),
        "127.0.0.1".into(),
        String::new(),
    ];
    let table = [
        (
            "WIN-7 and win-7.example at 10.1.2.3",
            "host-2 and host-2.example at 192.0.2.1",
        ),
        ("win-70 and 10.1.2.30", "win-70 and 10.1.2.30"),
        ("127.0.0.1", "127.0.0.1"),
        ("größer als WIN-7", "größer als host-2"),
    ];
    let stand_ins = StandIns::of(&[], &private);
    for (text, wanted) in table {
        assert_eq!(stand_ins.lines(&why(text)), Ok(why(wanted)));
    }
    // A domain is gone whole, whatever its host and its short name are called.
    let names = ["corp", "corp.big.example", "corp.corp.big.example"].map(str::to_owned);
    let stand_ins = StandIns::of(&[], &names);
    let text = stand_ins.text("CORP, corp.corp.big.example");
    assert_eq!(text, "host-2, host-2.host-1");
}

#[test]
fn what_a_recording_says_itself_of_its_host_is_not_in_it() {
    let mut host = SimulatedHost::new();
    let tcpip = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters";
    let text = |text: &str| Value::Text(text.into());
    host.set_registry(tcpip, "NV Hostname", text("WEB-SHOP-1"));
    host.set_registry(tcpip, "Domain", text("intern.bigcorp.example"));
    host.join_domain("BIGCORP");
    host.spawn(r"C:\Users\Erika Muster\agent.exe");
    let lines = probe_of(host);
    let private = ["win-fresh.intern.bigcorp.example".to_owned()];
    let stand_ins = StandIns::of(&lines, &private);
    let clean = stand_ins.lines(&lines).expect("clean");
    let whole = recording::text(&lines).to_lowercase();
    let text = recording::text(&clean).to_lowercase();
    for name in [
        "win-fresh",
        "web-shop-1",
        "bigcorp",
        "erika",
        "10.0.0.11",
        "10.0.0.1\"",
        "00-15-5d-00-00-04",
    ] {
        assert!(whole.contains(name), "{name} was not recorded: {whole}");
        assert!(!text.contains(name), "{name}: {text}");
    }
}

#[test]
fn a_recording_with_stand_ins_replays_also_if_the_host_is_named_as_a_part_of_its_lines() {
    let lines = of_the_simulated_host();
    for name in ["WIN-FRESH", "host", "row", "performed", "service_list"] {
        let stand_ins = StandIns::of(&lines, &[name.to_owned()]);
        let clean = stand_ins.lines(&lines).expect("lines");
        assert_eq!(clean.len(), lines.len(), "{name}");
        let text = recording::text(&clean);
        assert_eq!(recording::parse(&text).as_ref(), Ok(&clean), "{name}");
        assert_eq!(replayed(&clean), replayed(&lines), "{name}");
    }
    // A host that is named as a kind of rights has no recording, and no shorter one.
    let stand_ins = StandIns::of(&lines, &["inherited".to_owned()]);
    let refused = stand_ins.lines(&lines).expect_err("no such rights");
    assert!(refused.contains("stand-ins"), "{refused}");
}
