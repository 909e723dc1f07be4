//! Rows that leave a host as it was: they change nothing but the scope's folder, and services of its prefix that run no
//! program, nor one that a user without rights could put where their command says.

use dormer_host::ops::{
    Answer, Ask, DirectoryCreate, Host, Operation, Pause, Rights, ServiceDelete, ServiceList,
    ServiceSettings, ServiceState, ServiceStop, TreeRemove,
};

use crate::{Row, Scope, row::perform};

/// Numbers of a folder that is not there.
const ABSENT: [u32; 2] = [2, 3];
/// Most tries to be rid of services, and the pause between two.
const TRIES: u32 = 200;
const PAUSE_MS: u64 = 100;
/// Folders of Windows in which, or below which, any user may make files.
const WRITABLE: [&str; 4] = ["system32", "tasks", "temp", "tracing"];

/// Whether a row may run on a host that stays in use.
pub fn is_harmless(row: &Row, scope: &Scope) -> bool {
    let around = row.setup.iter().chain(&row.after);
    let mut all = around.map(|it| &it.operation).chain([&row.operation]);
    all.all(|operation| stays_within(operation, scope))
}

fn stays_within(operation: &Operation, scope: &Scope) -> bool {
    use Operation as O;
    let below =
        |path: &str| begins(path, &format!(r"{}\", scope.folder)) || is(path, &scope.folder);
    let ours = |name: &str| begins(name, &format!("{}-", scope.prefix));
    let idle = |settings: &ServiceSettings| {
        let command = settings.command.as_deref();
        command.is_none_or(|it| !begins(it, &scope.programs) && is_guarded(it))
    };
    match operation {
        O::FileRights(ask) => below(&ask.path),
        O::FileWriteNew(ask) => below(&ask.path),
        O::FileRename(ask) => below(&ask.from) && below(&ask.to),
        O::FileDelete(ask) => below(&ask.path),
        O::FileAttributes(ask) => below(&ask.path),
        O::DirectoryCreate(ask) => below(&ask.path),
        O::DirectoryRemove(ask) => below(&ask.path),
        O::TreeRemove(ask) => below(&ask.path),
        O::LockTake(ask) => below(&ask.path),
        O::LockRelease(ask) => below(&ask.path),
        O::ServiceCreate(ask) => ours(&ask.name) && idle(&ask.settings),
        O::ServiceChange(ask) => ours(&ask.name) && idle(&ask.settings),
        O::ServiceDescribe(ask) => ours(&ask.name),
        O::ServiceFailure(ask) => ours(&ask.name),
        O::ServiceStart(ask) => ours(&ask.name),
        O::ServiceStop(ask) => ours(&ask.name),
        O::ServiceDelete(ask) => ours(&ask.name),
        other => !other.changes(),
    }
}

/// Whether no user without rights can make the program of this command: in `C:\` any user may make folders.
fn is_guarded(command: &str) -> bool {
    const WINDOWS: &str = r"C:\Windows\";
    if !begins(command, WINDOWS) || command.contains("..") || command.contains('/') {
        return false;
    }
    let first = command[WINDOWS.len()..].split('\\').next();
    first.is_some_and(|first| !WRITABLE.iter().any(|it| is(first, it)))
}

/// Makes the scope's folder, in which administrators and SYSTEM alone may write.
///
/// # Errors
/// It cannot be made, or is there: it may be another's, or a link.
pub(crate) async fn make_folder(scope: &Scope, host: &mut impl Host) -> Result<(), String> {
    let create = DirectoryCreate {
        path: scope.folder.clone(),
        rights: Rights::Private,
    };
    let made = perform(host, &create.operation()).await;
    made.map(|_| ())
        .map_err(|error| format!("the folder {} cannot be made: {error}", scope.folder))
}

/// Removes what harmless rows leave: services of the prefix, and the folder. A process that held locks has ended.
///
/// # Errors
/// What is still there, with Windows' number.
pub async fn clear(scope: &Scope, host: &mut impl Host) -> Result<(), String> {
    let ours = format!("{}-", scope.prefix);
    for _ in 0..TRIES {
        let all = match perform(host, &ServiceList {}.operation()).await {
            Ok(Answer::ServiceList(all)) => all,
            Ok(_) => Vec::new(),
            Err(error) => return Err(format!("services cannot be listed: {error}")),
        };
        let ours = all.into_iter().filter(|it| begins(&it.name, &ours));
        let ours: Vec<_> = ours.collect();
        if ours.is_empty() {
            return remove_folder(scope, host).await;
        }
        for service in ours {
            let name = service.name;
            // A row that differs may have left it running. One that runs is only marked by its deletion.
            if service.state != ServiceState::Stopped {
                let stop = ServiceStop { name: name.clone() };
                let _ = perform(host, &stop.operation()).await;
            }
            let _ = perform(host, &ServiceDelete { name }.operation()).await;
        }
        let _ = perform(host, &Pause { ms: PAUSE_MS }.operation()).await;
    }
    Err(format!("services named {ours}* are not gone"))
}

async fn remove_folder(scope: &Scope, host: &mut impl Host) -> Result<(), String> {
    let path = scope.folder.clone();
    match perform(host, &TreeRemove { path }.operation()).await {
        Err(error) if !error.is_any(&ABSENT) => Err(format!(
            "the folder {} cannot be removed: {error}",
            scope.folder
        )),
        _ => Ok(()),
    }
}

fn is(text: &str, other: &str) -> bool {
    text.eq_ignore_ascii_case(other)
}

fn begins(text: &str, with: &str) -> bool {
    text.get(..with.len()).is_some_and(|text| is(text, with))
}
