//! The store's one file: made whole or not at all, opened by one process.

use super::{FILE, OpenError, builder, damaged, identity};
use redb::{Database, DatabaseError};
use std::path::Path;

/// Name of a file that is still being made: only a finished one gets the real name, so that an empty or short file
/// under the real name is damage and never a new store.
const UNFINISHED: &str = "dormer.redb.new";

/// Opens the file in `folder`, making both if they are not there.
pub(super) fn open_or_create(folder: &Path) -> Result<Database, OpenError> {
    if !folder.join(FILE).exists() {
        create(folder, |_| Ok(()))?;
    }
    open(folder)
}

/// Opens a file that must be there.
pub(super) fn open(folder: &Path) -> Result<Database, OpenError> {
    let file = folder.join(FILE);
    builder().open(&file).map_err(|error| named(folder, &file, error))
}

/// Makes the file with its tables, lets `fill` fill it, and then gives it its name.
pub(super) fn create(
    folder: &Path,
    fill: impl FnOnce(&Database) -> Result<(), redb::Error>,
) -> Result<(), OpenError> {
    let trouble = |error| OpenError::Folder { folder: folder.to_owned(), error };
    std::fs::create_dir_all(folder).map_err(trouble)?;
    let file = folder.join(UNFINISHED);
    let database = match builder().create(&file) {
        Err(error) if !matches!(error, DatabaseError::DatabaseAlreadyOpen) => {
            // What a crash left of an earlier attempt; nobody has seen it.
            std::fs::remove_file(&file).map_err(trouble)?;
            builder().create(&file)
        }
        other => other,
    };
    let database = database.map_err(|error| named(folder, &file, error))?;
    identity(&database).and_then(|_| fill(&database)).map_err(|error| damaged(&file, &error))?;
    drop(database);
    std::fs::rename(&file, folder.join(FILE)).map_err(trouble)?;
    // The name itself must survive a power loss.
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(trouble)
}

fn named(folder: &Path, file: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse(folder.to_owned()),
        other => damaged(file, &other),
    }
}
