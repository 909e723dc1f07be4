//! Rows about services.

use dormer_host::ops::{
    Answer, Ask, Operation, Restarts, ServiceChange, ServiceConfig, ServiceCreate, ServiceDelete,
    ServiceDescribe, ServiceEntry, ServiceFailure, ServiceList, ServiceRead, ServiceSettings,
    ServiceStart, ServiceState, ServiceStatus, ServiceStatusRead, ServiceStop, Start,
};

use crate::{
    Row, Scope,
    Wanted::{self, Done, Refused},
};

const CREATE: &str =
    "sdk-api nf-winsvc-createservicew; wine dlls/advapi32/tests/service.c, which holds on Windows";
const OPEN: &str = "sdk-api nf-winsvc-openservicew; MS-SCMR ROpenServiceW";
const CHANGE: &str = "sdk-api nf-winsvc-changeserviceconfigw; MS-SCMR RChangeServiceConfigW";
const START: &str = "sdk-api nf-winsvc-startservicew; MS-SCMR RStartServiceW";
const STOP: &str = "sdk-api nf-winsvc-controlservice; MS-SCMR RControlService";
const DELETE: &str = "sdk-api nf-winsvc-deleteservice; MS-SCMR RDeleteService";
const FAILURE: &str = "sdk-api ns-winsvc-service_failure_actionsw";
const NO_DEPENDENCIES: &str = "has no dependencies: none are kept, checked or started";
const NO_FAILURE: &str = "throws failure actions away (level 2 is 124)";

fn create(name: &str, settings: ServiceSettings) -> Operation {
    ServiceCreate {
        name: name.into(),
        settings,
    }
    .operation()
}

fn command(command: &str) -> ServiceSettings {
    ServiceSettings {
        command: Some(command.into()),
        ..ServiceSettings::default()
    }
}

fn change(name: &str, settings: ServiceSettings) -> Operation {
    ServiceChange {
        name: name.into(),
        settings,
    }
    .operation()
}

fn describe(name: &str, description: &str) -> Operation {
    ServiceDescribe {
        name: name.into(),
        description: description.into(),
    }
    .operation()
}

fn failure(name: &str, reset_seconds: u32, delays_ms: &[u32]) -> Operation {
    ServiceFailure {
        name: name.into(),
        actions: Restarts {
            reset_seconds,
            delays_ms: delays_ms.into(),
            other: false,
        },
    }
    .operation()
}

fn read(name: &str) -> Operation {
    ServiceRead { name: name.into() }.operation()
}

fn status(name: &str) -> Operation {
    ServiceStatusRead { name: name.into() }.operation()
}

fn start(name: &str) -> Operation {
    ServiceStart { name: name.into() }.operation()
}

fn stop(name: &str) -> Operation {
    ServiceStop { name: name.into() }.operation()
}

fn delete(name: &str) -> Operation {
    ServiceDelete { name: name.into() }.operation()
}

fn config(what: &'static str, so: impl Fn(&ServiceConfig) -> bool + Send + 'static) -> Wanted {
    Wanted::Answer(
        what,
        Box::new(move |answer| matches!(answer, Answer::ServiceRead(config) if so(config))),
    )
}

fn in_state(what: &'static str, so: impl Fn(&ServiceStatus) -> bool + Send + 'static) -> Wanted {
    Wanted::Answer(
        what,
        Box::new(move |answer| matches!(answer, Answer::ServiceStatusRead(status) if so(status))),
    )
}

fn runs() -> Wanted {
    in_state("RUNNING, with a process", |status| {
        status.state == ServiceState::Running && status.pid != 0
    })
}

fn stopped() -> Wanted {
    in_state("STOPPED", |status| status.state == ServiceState::Stopped)
}

fn plain_status(state: ServiceState, exit: u32) -> Answer {
    Answer::ServiceStatusRead(ServiceStatus {
        state,
        accepts: 0,
        exit,
        service_exit: 0,
        checkpoint: 0,
        wait_hint_ms: 0,
        pid: 0,
    })
}

/// A name of a service for each row.
struct ServiceNames<'a> {
    prefix: &'a str,
    programs: &'a str,
}

impl ServiceNames<'_> {
    fn name(&self, row: &str) -> String {
        format!("{}-{row}", self.prefix)
    }

    fn command(&self, manner: &str) -> ServiceSettings {
        let name = manner.split(' ').next().unwrap_or_default();
        command(&format!(r"{}\{name}.exe {manner}", self.programs))
    }
}

pub(crate) fn rows(scope: &Scope) -> Vec<Row> {
    let names = ServiceNames {
        prefix: &scope.prefix,
        programs: &scope.programs,
    };
    let mut rows = of_records(&names);
    rows.extend(of_changes(&names));
    rows.extend(of_runs(&names));
    rows.extend(of_stops(&names));
    rows.extend(of_dependencies(&names));
    rows
}

fn of_records(names: &ServiceNames<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let name = names.name("defaults");
    rows.push(
        Row::new(
            "a service is made with Windows' defaults",
            vec![],
            create(&name, command(r"C:\windows\k\a.exe --x")),
            Done,
            CREATE,
        )
        .then(
            read(&name),
            config("demand, normal, LocalSystem", |config| {
                config.kind == 0x10
                    && config.start == Start::Demand
                    && config.error_control == 1
                    && config.command == r"C:\windows\k\a.exe --x"
                    && config.account == "LocalSystem"
                    && config.depends.is_empty()
            }),
        ),
    );
    let name = names.name("display");
    let other = name.clone();
    rows.push(
        Row::new(
            "a service without a display name is shown by its name",
            vec![create(&name, command(r"C:\windows\k\a.exe"))],
            read(&name),
            config("its name", move |config| config.display == other),
            CREATE,
        )
        .not_on_wine("answers an empty display name"),
    );
    let name = names.name("settings");
    let settings = ServiceSettings {
        command: Some(r"C:\windows\k\a.exe".into()),
        display: Some(format!("{name} shown")),
        start: Some(Start::Auto),
        depends: None,
        error_control: Some(0),
    };
    let shown = format!("{name} shown");
    rows.push(
        Row::new(
            "a service is made as it is wanted",
            vec![],
            create(&name, settings),
            Done,
            CREATE,
        )
        .then(
            read(&name),
            config("automatic, ignore, its display name", move |config| {
                config.start == Start::Auto && config.error_control == 0 && config.display == shown
            }),
        ),
    );
    let name = names.name("twice");
    rows.push(Row::new(
        "a service is not made twice, whatever the case of its name",
        vec![create(&name, command(r"C:\windows\k\a.exe"))],
        create(&name.to_uppercase(), command(r"C:\windows\k\a.exe")),
        Refused(&[1073]),
        CREATE,
    ));
    let name = names.name("shown");
    let first = names.name("shown1");
    let shown = |text: &str| ServiceSettings {
        display: Some(text.into()),
        ..command(r"C:\windows\k\a.exe")
    };
    rows.push(
        Row::new(
            "two services are not shown under one name",
            vec![create(&first, shown(&format!("{first} display")))],
            create(&name, shown(&format!("{first} DISPLAY"))),
            Refused(&[1078]),
            CREATE,
        )
        .then(read(&name), Refused(&[1060])),
    );
    rows.push(Row::new(
        "a name with a slash is no service's",
        vec![],
        create(&names.name("a/b"), command(r"C:\windows\k\a.exe")),
        Refused(&[123]),
        CREATE,
    ));
    rows.push(Row::new(
        "a service without a name",
        vec![],
        create("", command(r"C:\windows\k\a.exe")),
        Refused(&[123]),
        CREATE,
    ));
    rows.push(Row::new(
        "a service without a command",
        vec![],
        create(&names.name("nothing"), ServiceSettings::default()),
        Refused(&[87]),
        CREATE,
    ));
    let absent = names.name("absent");
    for operation in [
        read(&absent),
        status(&absent),
        start(&absent),
        stop(&absent),
        delete(&absent),
        describe(&absent, "x"),
        change(&absent, ServiceSettings::default()),
    ] {
        rows.push(Row::new(
            "a service that is not there",
            vec![],
            operation,
            Refused(&[1060]),
            OPEN,
        ));
    }
    let name = names.name("new");
    rows.push(
        Row::new(
            "a service that was never started says so by its exit code",
            vec![create(&name, command(r"C:\windows\k\a.exe"))],
            status(&name),
            in_state("STOPPED, 1077", |status| {
                status.state == ServiceState::Stopped && status.exit == 1077
            }),
            "sdk-api ns-winsvc-service_status; winerror.h, ERROR_SERVICE_NEVER_STARTED",
        )
        .liar(Ok(plain_status(ServiceState::Stopped, 0))),
    );
    let name = names.name("listed");
    let other = name.clone();
    rows.push(
        Row::new(
            "a service is listed",
            vec![create(&name, command(r"C:\windows\k\a.exe"))],
            ServiceList {}.operation(),
            Wanted::Answer(
                "the service, stopped",
                Box::new(move |answer| {
                    let Answer::ServiceList(all) = answer else {
                        return false;
                    };
                    let is = |one: &ServiceEntry| {
                        one.name == other && one.state == ServiceState::Stopped && one.pid == 0
                    };
                    all.iter().any(is)
                }),
            ),
            "sdk-api nf-winsvc-enumservicesstatusexw",
        )
        .liar(Ok(Answer::ServiceList(vec![]))),
    );
    rows
}

fn of_changes(names: &ServiceNames<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let name = names.name("change");
    let settings = ServiceSettings {
        start: Some(Start::Disabled),
        ..ServiceSettings::default()
    };
    rows.push(
        Row::new(
            "what is not given stays",
            vec![create(&name, command(r"C:\windows\k\a.exe --x"))],
            change(&name, settings),
            Done,
            CHANGE,
        )
        .then(
            read(&name),
            config("disabled, the same command", |config| {
                config.start == Start::Disabled && config.command == r"C:\windows\k\a.exe --x"
            }),
        ),
    );
    let name = names.name("command");
    rows.push(
        Row::new(
            "a command is changed",
            vec![create(&name, command(r"C:\windows\k\a.exe"))],
            change(&name, command(r"C:\windows\k\b.exe --y")),
            Done,
            CHANGE,
        )
        .then(
            read(&name),
            config("the new command", |config| {
                config.command == r"C:\windows\k\b.exe --y"
            }),
        ),
    );
    let name = names.name("describe");
    rows.push(
        Row::new(
            "a service is described",
            vec![create(&name, command(r"C:\windows\k\a.exe"))],
            describe(&name, "OpenShift managed ü"),
            Done,
            "sdk-api ns-winsvc-service_descriptionw",
        )
        .then(
            read(&name),
            config("the description", |config| {
                config.description.as_deref() == Some("OpenShift managed ü")
            }),
        ),
    );
    let name = names.name("undescribe");
    rows.push(
        Row::new(
            "an empty description takes it away",
            vec![
                create(&name, command(r"C:\windows\k\a.exe")),
                describe(&name, "x"),
            ],
            describe(&name, ""),
            Done,
            "sdk-api ns-winsvc-service_descriptionw",
        )
        .then(
            read(&name),
            config("no description", |config| {
                config.description.as_deref() == Some("")
            }),
        ),
    );
    let name = names.name("failure");
    rows.push(
        Row::new(
            "restarts are kept, in milliseconds, with the reset in seconds",
            vec![create(&name, command(r"C:\windows\k\a.exe"))],
            failure(&name, 86_400, &[15_000, 15_000]),
            Done,
            FAILURE,
        )
        .then(
            read(&name),
            config("two restarts, a day", |config| {
                let wanted = Restarts {
                    reset_seconds: 86_400,
                    delays_ms: vec![15_000, 15_000],
                    other: false,
                };
                config.failure.as_ref() == Some(&wanted)
            }),
        )
        .not_on_wine(NO_FAILURE),
    );
    let name = names.name("nofailure");
    rows.push(
        Row::new(
            "no delays take actions and reset away",
            vec![
                create(&name, command(r"C:\windows\k\a.exe")),
                failure(&name, 86_400, &[15_000]),
            ],
            failure(&name, 0, &[]),
            Done,
            FAILURE,
        )
        .then(
            read(&name),
            config("none", |config| config.failure == Some(Restarts::default())),
        )
        .not_on_wine(NO_FAILURE),
    );
    let name = names.name("delete");
    rows.push(
        Row::new(
            "a stopped service is gone with its last handle",
            vec![create(&name, command(r"C:\windows\k\a.exe"))],
            delete(&name),
            Done,
            DELETE,
        )
        .eventually(read(&name), Refused(&[1060])),
    );
    let name = names.name("anew");
    rows.push(
        Row::new(
            "a service is made anew once it is gone",
            vec![create(&name, command(r"C:\windows\k\a.exe")), delete(&name)],
            create(&name, command(r"C:\windows\k\b.exe")),
            Done,
            DELETE,
        )
        .then(
            read(&name),
            config("the new one", |config| {
                config.command == r"C:\windows\k\b.exe"
            }),
        ),
    );
    rows
}

fn of_runs(names: &ServiceNames<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let name = names.name("start");
    rows.push(
        Row::new(
            "a service is started, and runs a moment later",
            vec![create(&name, names.command("plain"))],
            start(&name),
            Done,
            START,
        )
        .eventually(status(&name), runs())
        .then(stop(&name), Done)
        .eventually(status(&name), stopped()),
    );
    let name = names.name("running");
    rows.push(
        Row::new(
            "a service that runs is not started again",
            vec![create(&name, names.command("plain"))],
            start(&name),
            Refused(&[1056]),
            START,
        )
        .once(start(&name), Refused(&[1056]))
        .once(status(&name), runs())
        .then(stop(&name), Done)
        .eventually(status(&name), stopped()),
    );
    let name = names.name("disabled");
    let disabled = ServiceSettings {
        start: Some(Start::Disabled),
        ..names.command("plain")
    };
    rows.push(
        Row::new(
            "a disabled service is not started",
            vec![create(&name, disabled)],
            start(&name),
            Refused(&[1058]),
            START,
        )
        .then(status(&name), stopped()),
    );
    let name = names.name("nofile");
    rows.push(Row::new(
        "a service whose program is not there",
        vec![create(&name, command(r"C:\windows\no-such-program.exe"))],
        start(&name),
        Refused(&[2]),
        START,
    ));
    let name = names.name("nofolder");
    rows.push(
        Row::new(
            "a service whose folder is not there",
            vec![create(&name, command(r"C:\windows\no-such-folder\a.exe"))],
            start(&name),
            Refused(&[3]),
            START,
        )
        .not_on_wine("2: the folder is not told from the file"),
    );
    let name = names.name("early");
    rows.push(Row::new(
        "a program that ends before it speaks",
        vec![create(&name, names.command("early"))],
        start(&name),
        Refused(&[1053]),
        START,
    ));
    let name = names.name("marked");
    rows.push(
        Row::new(
            "a running service that is deleted is marked",
            vec![create(&name, names.command("plain"))],
            delete(&name),
            Done,
            DELETE,
        )
        .once(start(&name), Refused(&[1056]))
        .once(status(&name), runs())
        .then(delete(&name), Refused(&[1072]))
        .then(
            create(&name, names.command("plain")),
            Refused(&[1072, 1073]),
        )
        .then(stop(&name), Done)
        .eventually(read(&name), Refused(&[1060])),
    );
    let name = names.name("marked-start");
    rows.push(
        Row::new(
            "a marked service is not started: it is disabled",
            vec![
                create(&name, names.command("linger")),
                start(&name),
                delete(&name),
            ],
            start(&name),
            Refused(&[1058, 1056]),
            "MS-SCMR RDeleteService; safing/portmaster#200",
        )
        .not_on_wine("starts it"),
    );
    rows
}

fn of_stops(names: &ServiceNames<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let name = names.name("stop");
    rows.push(
        Row::new(
            "a service is told to stop, and stops a moment later",
            vec![create(&name, names.command("plain"))],
            stop(&name),
            Done,
            STOP,
        )
        .once(start(&name), Refused(&[1056]))
        .once(status(&name), runs())
        .eventually(
            status(&name),
            in_state("STOPPED, no process, 0", |status| {
                status.state == ServiceState::Stopped && status.pid == 0 && status.exit == 0
            }),
        ),
    );
    let name = names.name("stopped");
    rows.push(Row::new(
        "a service that does not run is not stopped",
        vec![create(&name, names.command("plain"))],
        stop(&name),
        Refused(&[1062]),
        STOP,
    ));
    let name = names.name("slow");
    let gate = r"C:\windows\temp\dormer-contract-gate";
    let gate = format!("{gate}-{name}");
    let manner = format!("slow {gate}");
    rows.push(
        Row::new(
            "a service that is stopping takes no second order",
            vec![create(&name, names.command(&manner))],
            stop(&name),
            Refused(&[1061]),
            STOP,
        )
        .once(start(&name), Refused(&[1056]))
        .once(status(&name), runs())
        .first(stop(&name))
        .once(
            status(&name),
            in_state("STOP_PENDING, going on", |status| {
                status.state == ServiceState::StopPending && status.checkpoint > 2
            }),
        )
        .then(start(&name), Refused(&[1056]))
        .then(crate::files::write(&gate, "open"), Done)
        .eventually(status(&name), stopped()),
    );
    let name = names.name("linger");
    rows.push(
        Row::new(
            "a stopped service's process may go on",
            vec![create(&name, names.command("linger"))],
            stop(&name),
            Done,
            "sdk-api nf-winsvc-setservicestatus",
        )
        .once(start(&name), Refused(&[1056]))
        .once(status(&name), runs())
        .eventually(status(&name), stopped())
        .then(start(&name), Done)
        .eventually(status(&name), runs()),
    );
    rows
}

fn of_dependencies(names: &ServiceNames<'_>) -> Vec<Row> {
    let first = names.name("dep-a");
    let second = names.name("dep-b");
    let depends = |on: &[&String]| ServiceSettings {
        depends: Some(on.iter().map(|it| (*it).clone()).collect()),
        ..names.command("plain")
    };
    let other = first.clone();
    let kept = Row::new(
        "what a service depends on is kept",
        vec![create(&first, names.command("plain"))],
        create(&second, depends(&[&first])),
        Done,
        CREATE,
    )
    .then(
        read(&second),
        config("depends on the first", move |config| {
            config.depends == [other.clone()]
        }),
    )
    .not_on_wine(NO_DEPENDENCIES);
    let first = names.name("dep-c");
    let second = names.name("dep-d");
    let started = Row::new(
        "what a service depends on is started before it",
        vec![
            create(&first, names.command("plain")),
            create(&second, depends(&[&first])),
        ],
        start(&second),
        Done,
        "win32 desktop-src Services/automatically-starting-services; MS-SCMR RStartServiceW",
    )
    .eventually(status(&second), runs())
    .then(status(&first), runs())
    .not_on_wine(NO_DEPENDENCIES);
    let first = names.name("dep-e");
    let second = names.name("dep-f");
    let held = Row::new(
        "a service is not stopped while one that depends on it runs",
        vec![
            create(&first, names.command("plain")),
            create(&second, depends(&[&first])),
            start(&second),
        ],
        stop(&first),
        Refused(&[1051]),
        STOP,
    )
    .once(status(&second), runs())
    .then(status(&first), runs())
    .not_on_wine(NO_DEPENDENCIES);
    let name = names.name("dep-g");
    let missing = names.name("dep-none");
    let unknown = Row::new(
        "a missing dependency shows at the start, not before",
        vec![create(&name, depends(&[&missing]))],
        start(&name),
        Refused(&[1075]),
        START,
    )
    .not_on_wine(NO_DEPENDENCIES);
    let first = names.name("dep-h");
    let second = names.name("dep-i");
    let none = ServiceSettings {
        depends: Some(vec![]),
        ..ServiceSettings::default()
    };
    let cleared = Row::new(
        "an empty list takes dependencies away",
        vec![
            create(&first, names.command("plain")),
            create(&second, depends(&[&first])),
        ],
        change(&second, none),
        Done,
        CHANGE,
    )
    .then(
        read(&second),
        config("no dependencies", |config| config.depends.is_empty()),
    )
    .not_on_wine(NO_DEPENDENCIES);
    vec![kept, started, held, unknown, cleared]
}
