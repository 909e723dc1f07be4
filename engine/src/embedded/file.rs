//! Files of the store: created atomically, opened by one process, and checked to belong together.

use super::{
    FILE, OpenError, WAL_FILE,
    apply::commit,
    builder, damaged, failed,
    overlay::Layer,
    room::{Room, WaitingBackend, is_of_disk},
    state::{LAYOUT, Log, State, state},
    wal::{RecoveryFault, recover, verify_spent},
};
use redb::{Database, DatabaseError, StorageBackend, backends::FileBackend};
use std::{
    fs::{File, OpenOptions},
    io,
    panic::AssertUnwindSafe,
    path::Path,
    sync::Arc,
};

/// Name of a file under construction. Only a complete file gets the real name, so an empty or short file under the
/// real name is damage and never a new store.
const UNFINISHED: &str = "dormer.redb.new";

/// Opens the store in `folder`, and creates both if they do not exist. Afterwards the redb file holds everything.
pub(super) fn open_or_create(
    folder: &Path,
    room: &Arc<Room>,
) -> Result<(Database, State), OpenError> {
    if !folder.join(FILE).exists() {
        if folder.join(WAL_FILE).exists() {
            let detail = format!("{FILE} is missing");
            return Err(OpenError::Unpaired {
                file: folder.join(WAL_FILE),
                detail,
            });
        }
        create(folder, |_| Ok(()))?;
    }
    open_on(folder, room)
}

/// Opens an existing store. Afterwards the redb file holds everything, and there is no log.
pub(super) fn open(folder: &Path) -> Result<(Database, State), OpenError> {
    open_on(folder, &Arc::default())
}

fn open_on(folder: &Path, room: &Arc<Room>) -> Result<(Database, State), OpenError> {
    let file = folder.join(FILE);
    let wal = folder.join(WAL_FILE);
    // redb panics on some damaged pages. The caller gets an error with a sentence instead.
    let opened = std::panic::catch_unwind(AssertUnwindSafe(|| database(&file, room)));
    let opened = opened.map_err(|_| damaged(&file, &"a page of it stopped redb"))?;
    let database = opened.map_err(|error| named(folder, &file, error))?;
    let log = wal.exists().then(|| wal_file(folder)).transpose()?;
    let state = reconcile(&database, log.as_deref(), &file, &wal)?;
    drop(log);
    forget_wal(folder);
    Ok((database, state))
}

fn database(file: &Path, room: &Arc<Room>) -> Result<Database, DatabaseError> {
    let opened = OpenOptions::new().read(true).write(true).open(file)?;
    if opened.metadata()?.len() == 0 {
        let error = io::Error::new(io::ErrorKind::InvalidData, "the file is empty");
        return Err(error.into());
    }
    let backend = WaitingBackend::new(Box::new(FileBackend::new(opened)?), room);
    builder().create_with_backend(backend)
}

/// Opens the log's file, or creates an empty one.
pub(super) fn wal_file(folder: &Path) -> Result<Box<dyn StorageBackend>, OpenError> {
    let file = folder.join(WAL_FILE);
    let trouble = in_folder(folder);
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&file);
    let backend = FileBackend::new(options.map_err(trouble)?);
    Ok(Box::new(backend.map_err(|error| failed(&file, error))?))
}

/// Removes a log that the redb file no longer needs. A leftover is recognized as spent.
pub(super) fn forget_wal(folder: &Path) {
    let _ = std::fs::remove_file(folder.join(WAL_FILE));
}

/// Copies the log's records that the redb file lacks into it.
pub(super) fn reconcile(
    database: &Database,
    wal: Option<&dyn StorageBackend>,
    file: &Path,
    wal_file: &Path,
) -> Result<State, OpenError> {
    let mut state = state(database).map_err(|error| failed(file, error))?;
    if state.layout > LAYOUT {
        return Err(OpenError::Newer {
            file: file.to_owned(),
            found: state.layout,
        });
    }
    let refused = |fault: RecoveryFault| match fault {
        RecoveryFault::Io(error) if is_of_disk(&error) => OpenError::Disk {
            file: wal_file.to_owned(),
            error,
        },
        RecoveryFault::Io(_) | RecoveryFault::Damaged { .. } => damaged(wal_file, &fault),
        RecoveryFault::Unpaired(what) => OpenError::Unpaired {
            file: wal_file.to_owned(),
            detail: what.to_owned(),
        },
    };
    let incarnation = state.incarnation.0;
    match (state.log, wal) {
        (Log::Spent(_), None) => {}
        (Log::Spent(generation), Some(wal)) => {
            verify_spent(wal, incarnation, generation).map_err(refused)?;
        }
        (Log::From(_), None) => return Err(refused(RecoveryFault::Unpaired("it is missing"))),
        (Log::From(mark), Some(wal)) => {
            let found = recover(wal, incarnation, mark).map_err(refused)?;
            let mut layer = Layer::new();
            for (run, entry) in found.records {
                state.revision = state.revision.max(entry.head.0);
                layer.entry(run).or_default().push(entry);
            }
            state.log = Log::Spent(found.generation);
            commit(database, &layer, Vec::new(), state.log).map_err(|e| failed(file, e))?;
        }
    }
    Ok(state)
}

/// Creates the file with its tables, has `fill` fill it, and then renames it to its real name.
pub(super) fn create(
    folder: &Path,
    fill: impl FnOnce(&Database) -> Result<(), redb::Error>,
) -> Result<(), OpenError> {
    let trouble = in_folder(folder);
    std::fs::create_dir_all(folder).map_err(&trouble)?;
    let file = folder.join(UNFINISHED);
    let database = match builder().create(&file) {
        Err(error) if !matches!(error, DatabaseError::DatabaseAlreadyOpen) => {
            // A leftover of an attempt that crashed. Nothing has used it.
            std::fs::remove_file(&file).map_err(&trouble)?;
            builder().create(&file)
        }
        other => other,
    };
    let database = database.map_err(|error| named(folder, &file, error))?;
    state(&database)
        .and_then(|_| fill(&database))
        .map_err(|error| failed(&file, error))?;
    drop(database);
    std::fs::rename(&file, folder.join(FILE)).map_err(&trouble)?;
    keep_names(folder)
}

/// Syncs `folder`, so that its file names survive a power loss.
pub(super) fn keep_names(folder: &Path) -> Result<(), OpenError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(in_folder(folder))
}

fn in_folder(folder: &Path) -> impl Fn(io::Error) -> OpenError {
    move |error| OpenError::Folder {
        folder: folder.to_owned(),
        error,
    }
}

fn named(folder: &Path, file: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse(folder.to_owned()),
        other => failed(file, other),
    }
}
