//! Rows about files and folders.

use dormer_host::ops::{
    ATTRIBUTE_NORMAL, ATTRIBUTE_READ_ONLY, Answer, Ask, Bytes, Content, ContentSource, Digest,
    DirectoryCreate, DirectoryList, DirectoryRemove, FileAttributes, FileDelete, FileDigest,
    FileInformation, FileProbe, FileRead, FileRename, FileRights, FileSecurity, FileVersion,
    FileWriteNew, LockRelease, LockTake, Look, Operation, Rights, Space, TreeRemove, VolumeSpace,
};

use crate::{
    Row, Scope,
    Wanted::{self, Done, Refused},
    row::Expected,
};

/// `kubelet`, packed by `printf kubelet | gzip -n`.
const PACKED: &[u8] = &[
    0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0, 0x03, 0xcb, 0x2e, 0x4d, 0x4a, 0xcd, 0x49, 0x2d, 0x01, 0,
    0x8c, 0x60, 0x17, 0xae, 0x07, 0, 0, 0,
];
/// `printf kubelet | sha256sum`.
const KUBELET: &str = "1ca4bc7eb9b3d6f1e205da9cfab437c89d3760d0765a29a6bcbccf4ad51a2cb1";

const MOVE: &str =
    "sdk-api nf-winbase-movefileexw; windows-driver-docs ntifs ns-ntifs-_file_rename_information";
const CREATE: &str = "sdk-api nf-fileapi-createfilew";
const DELETE: &str = "sdk-api nf-fileapi-deletefilew";
const CODES: &str = "win32 desktop-src Debug/system-error-codes; measured on Wine 8, the same";
const NAMES: &str = "win32 desktop-src FileIO/naming-a-file";
const RIGHTS: &str = "win32 desktop-src FileIO/file-security-and-access-rights";

fn create(path: &str) -> Operation {
    create_for(path, Rights::Inherited)
}

fn create_for(path: &str, rights: Rights) -> Operation {
    let path = path.into();
    DirectoryCreate { path, rights }.operation()
}

pub(crate) fn write(path: &str, text: &str) -> Operation {
    let source = ContentSource::Inline {
        bytes: Bytes(text.into()),
    };
    write_from(path, source, Rights::Inherited)
}

fn write_from(path: &str, source: ContentSource, rights: Rights) -> Operation {
    FileWriteNew {
        path: path.into(),
        source,
        rights,
    }
    .operation()
}

fn rename(from: &str, to: &str, replace: bool) -> Operation {
    FileRename {
        from: from.into(),
        to: to.into(),
        replace,
    }
    .operation()
}

fn read(path: &str) -> Operation {
    FileRead {
        path: path.into(),
        most: 1000,
        end: false,
    }
    .operation()
}

fn part(path: &str, most: u64, end: bool) -> Operation {
    let path = path.into();
    FileRead { path, most, end }.operation()
}

fn stat(path: &str) -> Operation {
    FileInformation { path: path.into() }.operation()
}

fn delete(path: &str) -> Operation {
    FileDelete { path: path.into() }.operation()
}

fn probe(path: &str) -> Operation {
    FileProbe { path: path.into() }.operation()
}

fn lock(path: &str) -> Operation {
    LockTake { path: path.into() }.operation()
}

fn unlock(path: &str) -> Operation {
    LockRelease { path: path.into() }.operation()
}

fn list(path: &str) -> Operation {
    DirectoryList { path: path.into() }.operation()
}

fn attributes(path: &str, attributes: u32) -> Operation {
    let path = path.into();
    FileAttributes { path, attributes }.operation()
}

fn remove(path: &str) -> Operation {
    DirectoryRemove { path: path.into() }.operation()
}

fn remove_tree(path: &str) -> Operation {
    TreeRemove { path: path.into() }.operation()
}

fn security(path: &str) -> Operation {
    FileSecurity { path: path.into() }.operation()
}

/// The content is this text.
fn is(text: &'static str) -> Wanted {
    Wanted::Answer(
        text,
        Box::new(
            move |answer| matches!(answer, Answer::FileRead(content) if content.bytes.0 == text.as_bytes()),
        ),
    )
}

fn content(text: &str, size: u64) -> Answer {
    Answer::FileRead(Content {
        bytes: Bytes(text.into()),
        size,
    })
}

fn stat_is(what: &'static str, so: fn(&Look) -> bool) -> Wanted {
    Wanted::Answer(
        what,
        Box::new(move |answer| matches!(answer, Answer::FileInformation(look) if so(look))),
    )
}

/// The names in a folder.
fn names(names: &'static [&'static str]) -> Wanted {
    Wanted::Answer(
        "these names",
        Box::new(move |answer| {
            let Answer::DirectoryList(entries) = answer else {
                return false;
            };
            entries
                .iter()
                .map(|entry| &*entry.name)
                .eq(names.iter().copied())
        }),
    )
}

/// Digest of `kubelet`.
fn digest() -> Digest {
    Digest {
        sha256: KUBELET.into(),
        size: 7,
    }
}

fn is_digest() -> Wanted {
    Wanted::Answer(
        "the digest of `kubelet`",
        Box::new(
            |answer| matches!(answer, Answer::FileWriteNew(found) | Answer::FileDigest(found) if *found == digest()),
        ),
    )
}

fn other_digest() -> Digest {
    Digest {
        sha256: "00".repeat(32),
        size: 7,
    }
}

fn stat_of(size: u64, attributes: u32) -> Look {
    Look {
        folder: false,
        size,
        attributes,
        tag: 0,
        modified_ms: 0,
    }
}

/// Owner, protection and entries of rights as they read back.
fn secured(what: &'static str, entries: &'static [(&'static str, u32)]) -> Wanted {
    Wanted::Answer(
        what,
        Box::new(move |answer| {
            let Answer::FileSecurity(security) = answer else {
                return false;
            };
            let found = security.entries.as_deref().unwrap_or_default();
            let found = found.iter().map(|entry| (&*entry.sid, entry.mask));
            security.owner == "S-1-5-32-544"
                && security.protected
                && found.eq(entries.iter().copied())
        }),
    )
}

const ALL: u32 = 0x001f_01ff;
const READ_AND_EXECUTE: u32 = 0x0012_00a9;
const FOR_USERS: &[(&str, u32)] = &[
    ("S-1-5-18", ALL),
    ("S-1-5-32-544", ALL),
    ("S-1-5-32-545", READ_AND_EXECUTE),
];
const FOR_NOBODY: &[(&str, u32)] = &[("S-1-5-18", ALL), ("S-1-5-32-544", ALL)];
/// Why rights cannot be shown.
const MODE_BITS: &str = "rights are Unix mode bits: no protection, no owner but the user";

#[expect(
    clippy::type_complexity,
    reason = "each row is given the function that names its files"
)]
pub(crate) fn rows(scope: &Scope) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut number = 0;
    // Each row in a folder of its own.
    let mut add = |make: &dyn Fn(&dyn Fn(&str) -> String) -> Row| {
        number += 1;
        let folder = format!(r"{}\{number}", scope.folder);
        let at = |name: &str| match name {
            "" => folder.clone(),
            name => format!(r"{folder}\{name}"),
        };
        let mut row = make(&at);
        let made = |operation, wanted| Expected {
            operation,
            wanted,
            again: false,
        };
        row.setup.insert(0, made(create(&folder), Done));
        // The first row makes the folder of all, so that no user can put a link in it.
        let all = create_for(&scope.folder, Rights::Private);
        row.setup.insert(0, made(all, Wanted::Whatever));
        rows.push(row);
    };
    content_rows(&mut add);
    rename_rows(&mut add);
    delete_rows(&mut add);
    folder_rows(&mut add);
    lock_rows(&mut add);
    rights_rows(&mut add);
    stat_rows(&mut add);
    rows
}

/// Gives a row its folder.
type Add<'a> = &'a mut dyn FnMut(&dyn Fn(&dyn Fn(&str) -> String) -> Row);

fn content_rows(add: Add<'_>) {
    add(&|at| {
        Row::new(
            "a new file has its content, and its digest is answered",
            vec![],
            write(&at("a"), "kubelet"),
            is_digest(),
            CREATE,
        )
        .then(read(&at("a")), is("kubelet"))
        .liar(Ok(Answer::FileWriteNew(digest())))
    });
    add(&|at| {
        Row::new(
            "a new file does not replace one",
            vec![write(&at("a"), "old")],
            write(&at("a"), "kubelet"),
            Refused(&[80]),
            CREATE,
        )
        .then(read(&at("a")), is("old"))
        .liar(Ok(Answer::FileWriteNew(digest())))
    });
    add(&|at| {
        Row::new(
            "names differ by more than case",
            vec![write(&at("Kubelet.EXE"), "old")],
            write(&at("kubelet.exe"), "kubelet"),
            Refused(&[80]),
            NAMES,
        )
        .liar(Ok(Answer::FileWriteNew(digest())))
    });
    add(&|at| {
        Row::new(
            "a new file needs its folder",
            vec![],
            write(&at(r"b\a"), "kubelet"),
            Refused(&[3]),
            CODES,
        )
        .liar(Ok(Answer::FileWriteNew(digest())))
    });
    for name in ["a?b", "a*b", "a<b", "a|b", "a\"b"] {
        add(&|at| {
            Row::new(
                "some characters are in no name",
                vec![],
                write(&at(name), "kubelet"),
                Refused(&[123]),
                NAMES,
            )
            .liar(Ok(Answer::FileWriteNew(digest())))
        });
    }
    add(&|at| {
        let source = ContentSource::Staged {
            path: at("part"),
            gzip: false,
        };
        Row::new(
            "a staged file is copied, and stays",
            vec![write(&at("part"), "kubelet")],
            write_from(&at("a"), source, Rights::Inherited),
            is_digest(),
            CREATE,
        )
        .then(read(&at("a")), is("kubelet"))
        .then(read(&at("part")), is("kubelet"))
        .liar(Ok(Answer::FileWriteNew(digest())))
    });
    add(&|at| {
        let packed = ContentSource::Inline {
            bytes: Bytes(PACKED.into()),
        };
        let source = ContentSource::Staged {
            path: at("part.gz"),
            gzip: true,
        };
        Row::new(
            "a packed file is unpacked, and the digest is of what it holds",
            vec![write_from(&at("part.gz"), packed, Rights::Inherited)],
            write_from(&at("a"), source, Rights::Inherited),
            is_digest(),
            "RFC 1952",
        )
        .then(read(&at("a")), is("kubelet"))
        .liar(Ok(Answer::FileWriteNew(digest())))
    });
    add(&|at| {
        let source = ContentSource::Staged {
            path: at("part.gz"),
            gzip: true,
        };
        Row::new(
            "what is no whole gzip file is told from a full disk",
            vec![write(&at("part.gz"), "no gzip")],
            write_from(&at("a"), source, Rights::Inherited),
            Refused(&[13]),
            "sdk-api winerror.h, ERROR_INVALID_DATA",
        )
        .liar(Ok(Answer::FileWriteNew(digest())))
    });
    add(&|at| {
        let source = ContentSource::Staged {
            path: at("part"),
            gzip: false,
        };
        Row::new(
            "a staged file that is gone begins no file",
            vec![],
            write_from(&at("a"), source, Rights::Inherited),
            Refused(&[2]),
            CODES,
        )
        .then(stat(&at("a")), Refused(&[2]))
        .liar(Ok(Answer::FileWriteNew(digest())))
    });
    add(&|at| {
        Row::new(
            "a digest is of the content",
            vec![write(&at("a"), "kubelet")],
            FileDigest { path: at("a") }.operation(),
            is_digest(),
            "FIPS 180-4",
        )
        .liar(Ok(Answer::FileDigest(other_digest())))
    });
    add(&|at| {
        Row::new(
            "a folder has no content",
            vec![],
            FileDigest { path: at("") }.operation(),
            Refused(&[5]),
            CREATE,
        )
        .liar(Ok(Answer::FileDigest(other_digest())))
    });
    add(&|at| {
        Row::new(
            "a file that is not there has no content",
            vec![],
            FileDigest { path: at("a") }.operation(),
            Refused(&[2]),
            CODES,
        )
        .liar(Ok(Answer::FileDigest(other_digest())))
    });
    add(&|at| {
        Row::new(
            "the first bytes are read",
            vec![write(&at("a"), "0123456789")],
            part(&at("a"), 3, false),
            is("012"),
            "sdk-api nf-fileapi-readfile",
        )
        .liar(Ok(content("789", 10)))
    });
    add(&|at| {
        Row::new(
            "the last bytes are read",
            vec![write(&at("a"), "0123456789")],
            part(&at("a"), 3, true),
            is("789"),
            "sdk-api nf-fileapi-setfilepointerex",
        )
        .liar(Ok(content("012", 10)))
    });
    add(&|at| {
        Row::new(
            "a file in a folder that is not there",
            vec![],
            read(&at(r"b\a")),
            Refused(&[3]),
            CODES,
        )
        .liar(Ok(content("", 0)))
    });
}

fn rename_rows(add: Add<'_>) {
    add(&|at| {
        Row::new(
            "a file is renamed",
            vec![write(&at("a"), "new")],
            rename(&at("a"), &at("b"), false),
            Done,
            MOVE,
        )
        .then(read(&at("b")), is("new"))
        .then(stat(&at("a")), Refused(&[2]))
    });
    add(&|at| {
        Row::new(
            "a rename replaces nothing that it was not asked to replace",
            vec![write(&at("a"), "new"), write(&at("b"), "old")],
            rename(&at("a"), &at("b"), false),
            Refused(&[183]),
            MOVE,
        )
        .then(read(&at("b")), is("old"))
    });
    add(&|at| {
        Row::new(
            "a rename replaces a file",
            vec![write(&at("a"), "new"), write(&at("b"), "old")],
            rename(&at("a"), &at("b"), true),
            Done,
            MOVE,
        )
        .then(read(&at("b")), is("new"))
        .then(stat(&at("a")), Refused(&[2]))
    });
    add(&|at| {
        Row::new(
            "a file that somebody has open is not replaced, and the number looks like missing rights",
            vec![
                write(&at("a"), "new"),
                write(&at("b"), "old"),
                lock(&at("b")),
            ],
            rename(&at("a"), &at("b"), true),
            Refused(&[5]),
            MOVE,
        )
        .then(unlock(&at("b")), Done)
        .then(read(&at("b")), is("old"))
        .then(read(&at("a")), is("new"))
    });
    add(&|at| {
        Row::new(
            "a file that somebody has open is not moved",
            vec![write(&at("a"), "new"), lock(&at("a"))],
            rename(&at("a"), &at("b"), true),
            Refused(&[32]),
            MOVE,
        )
        .then(stat(&at("b")), Refused(&[2]))
        .then(unlock(&at("a")), Done)
    });
    add(&|at| {
        Row::new(
            "a read-only file is not replaced",
            vec![
                write(&at("a"), "new"),
                write(&at("b"), "old"),
                attributes(&at("b"), ATTRIBUTE_READ_ONLY),
            ],
            rename(&at("a"), &at("b"), true),
            Refused(&[5]),
            MOVE,
        )
        .not_on_wine("replaces it")
    });
    add(&|at| {
        Row::new(
            "what is not there is not moved",
            vec![],
            rename(&at("a"), &at("b"), true),
            Refused(&[2]),
            CODES,
        )
    });
    add(&|at| {
        Row::new(
            "nothing moves into a folder that is not there",
            vec![write(&at("a"), "new")],
            rename(&at("a"), &at(r"c\b"), true),
            Refused(&[3]),
            CODES,
        )
        .then(read(&at("a")), is("new"))
    });
    add(&|at| {
        Row::new(
            "a folder is renamed with what is in it",
            vec![create(&at("d")), write(&at(r"d\a"), "in it")],
            rename(&at("d"), &at("e"), false),
            Done,
            MOVE,
        )
        .then(read(&at(r"e\a")), is("in it"))
        .then(stat(&at("d")), Refused(&[2]))
    });
    add(&|at| {
        Row::new(
            "a folder is not renamed while somebody has a file in it open",
            vec![
                create(&at("d")),
                write(&at(r"d\a"), "in it"),
                lock(&at(r"d\a")),
            ],
            rename(&at("d"), &at("e"), false),
            Refused(&[5]),
            MOVE,
        )
        .then(stat(&at("e")), Refused(&[2]))
        .then(unlock(&at(r"d\a")), Done)
        .not_on_wine("renames it")
    });
    add(&|at| {
        Row::new(
            "a folder is not replaced",
            vec![create(&at("d")), create(&at("e"))],
            rename(&at("d"), &at("e"), true),
            Refused(&[5]),
            MOVE,
        )
        .then(stat(&at("d")), stat_is("a folder", |look| look.folder))
    });
}

fn delete_rows(add: Add<'_>) {
    add(&|at| {
        Row::new(
            "a file is deleted",
            vec![write(&at("a"), "x")],
            delete(&at("a")),
            Done,
            DELETE,
        )
        .then(stat(&at("a")), Refused(&[2]))
    });
    add(&|at| {
        Row::new(
            "what is not there is not deleted",
            vec![],
            delete(&at("a")),
            Refused(&[2]),
            DELETE,
        )
    });
    add(&|at| {
        Row::new(
            "nothing is deleted in a folder that is not there",
            vec![],
            delete(&at(r"d\a")),
            Refused(&[3]),
            CODES,
        )
    });
    add(&|at| {
        Row::new(
            "a folder is not deleted as a file",
            vec![create(&at("d"))],
            delete(&at("d")),
            Refused(&[5]),
            DELETE,
        )
    });
    add(&|at| {
        Row::new(
            "a read-only file is not deleted",
            vec![
                write(&at("a"), "x"),
                attributes(&at("a"), ATTRIBUTE_READ_ONLY),
            ],
            delete(&at("a")),
            Refused(&[5]),
            DELETE,
        )
        .then(attributes(&at("a"), ATTRIBUTE_NORMAL), Done)
        .then(delete(&at("a")), Done)
    });
    add(&|at| {
        Row::new(
            "a file that somebody has open is not deleted",
            vec![write(&at("a"), "x"), lock(&at("a"))],
            delete(&at("a")),
            Refused(&[32]),
            DELETE,
        )
        .then(unlock(&at("a")), Done)
        .then(read(&at("a")), is("x"))
    });
}

fn folder_rows(add: Add<'_>) {
    add(&|at| {
        Row::new(
            "a folder is made where there was none",
            vec![],
            create(&at("d")),
            Done,
            CODES,
        )
        .then(stat(&at("d")), stat_is("a folder", |it| it.folder))
    });
    add(&|at| {
        Row::new(
            "a folder is not made twice",
            vec![create(&at("d"))],
            create(&at("d")),
            Refused(&[183]),
            "sdk-api nf-fileapi-createdirectoryw",
        )
    });
    add(&|at| {
        Row::new(
            "a folder is not made where a file is, with the same number",
            vec![write(&at("d"), "x")],
            create(&at("d")),
            Refused(&[183]),
            CODES,
        )
        .then(stat(&at("d")), stat_is("a file", |look| !look.folder))
    });
    add(&|at| {
        Row::new(
            "a folder needs the one above it",
            vec![],
            create(&at(r"d\e")),
            Refused(&[3]),
            "sdk-api nf-fileapi-createdirectoryw",
        )
    });
    add(&|at| {
        Row::new(
            "names are listed in order, without those of the folder itself",
            vec![create(&at("b")), write(&at("c"), "x"), write(&at("a"), "x")],
            list(&at("")),
            names(&["a", "b", "c"]),
            "sdk-api nf-fileapi-findfirstfileexw",
        )
        .liar(Ok(Answer::DirectoryList(vec![])))
    });
    add(&|at| {
        Row::new(
            "an empty folder has no names",
            vec![],
            list(&at("")),
            names(&[]),
            "sdk-api nf-fileapi-findfirstfileexw",
        )
    });
    add(&|at| {
        Row::new(
            "what is not there is not listed",
            vec![],
            list(&at("d")),
            Refused(&[3]),
            "sdk-api nf-fileapi-findfirstfileexw; the pattern's folder is missing",
        )
        .liar(Ok(Answer::DirectoryList(vec![])))
    });
    add(&|at| {
        Row::new(
            "an empty folder is removed",
            vec![create(&at("d"))],
            remove(&at("d")),
            Done,
            "sdk-api nf-fileapi-removedirectoryw",
        )
        .then(stat(&at("d")), Refused(&[2]))
    });
    add(&|at| {
        Row::new(
            "a folder with something in it is not removed",
            vec![create(&at("d")), write(&at(r"d\a"), "x")],
            remove(&at("d")),
            Refused(&[145]),
            "sdk-api nf-fileapi-removedirectoryw",
        )
        .then(read(&at(r"d\a")), is("x"))
    });
    add(&|at| {
        Row::new(
            "a file is not removed as a folder",
            vec![write(&at("a"), "x")],
            remove(&at("a")),
            Refused(&[267]),
            CODES,
        )
    });
    add(&|at| {
        Row::new(
            "a tree is removed with all in it",
            vec![
                create(&at("d")),
                create(&at(r"d\e")),
                write(&at(r"d\e\a"), "x"),
                write(&at(r"d\a"), "x"),
            ],
            remove_tree(&at("d")),
            Done,
            "rust library/std/src/sys/fs/windows/remove_dir_all.rs",
        )
        .then(stat(&at("d")), Refused(&[2]))
    });
    add(&|at| {
        Row::new(
            "a tree is removed with read-only files in it",
            vec![
                create(&at("d")),
                write(&at(r"d\a"), "x"),
                attributes(&at(r"d\a"), ATTRIBUTE_READ_ONLY),
            ],
            remove_tree(&at("d")),
            Done,
            "rust library/std/src/sys/fs/windows/remove_dir_all.rs, FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE",
        )
        .then(stat(&at("d")), Refused(&[2]))
        .not_on_wine("has no FileDispositionInfoEx (Wine MR 3122 came later)")
    });
    add(&|at| {
        Row::new(
            "a tree that is not there is not removed",
            vec![],
            remove_tree(&at("d")),
            Refused(&[2]),
            CODES,
        )
    });
    add(&|at| {
        Row::new(
            "a file that somebody has open holds its tree",
            vec![create(&at("d")), write(&at(r"d\a"), "x"), lock(&at(r"d\a"))],
            remove_tree(&at("d")),
            Refused(&[32]),
            CODES,
        )
        .then(unlock(&at(r"d\a")), Done)
        .then(read(&at(r"d\a")), is("x"))
    });
    add(&|at| {
        Row::new(
            "a volume has room, and not more than it is large",
            vec![],
            VolumeSpace { path: at("") }.operation(),
            Wanted::Answer(
                "free bytes below the total",
                Box::new(|answer| {
                    matches!(answer, Answer::VolumeSpace(space) if space.free > 0 && space.free <= space.total)
                }),
            ),
            "sdk-api nf-fileapi-getdiskfreespaceexw",
        )
        .liar(Ok(Answer::VolumeSpace(Space { free: 2, total: 1 })))
    });
}

fn lock_rows(add: Add<'_>) {
    add(&|at| {
        Row::new(
            "a lock makes its file",
            vec![],
            lock(&at("lock")),
            Done,
            CREATE,
        )
        .then(unlock(&at("lock")), Done)
        .then(stat(&at("lock")), stat_is("a file", |look| !look.folder))
    });
    add(&|at| {
        Row::new(
            "a lock that is held is taken again by its holder",
            vec![lock(&at("lock"))],
            lock(&at("LOCK")),
            Done,
            NAMES,
        )
        .then(read(&at("lock")), Refused(&[32]))
        .then(unlock(&at("lock")), Done)
        .liar(Err(dormer_host::ops::WinError::new(32)))
    });
    add(&|at| {
        Row::new(
            "what is locked is read by nobody",
            vec![write(&at("lock"), "x"), lock(&at("lock"))],
            read(&at("lock")),
            Refused(&[32]),
            CREATE,
        )
        .then(unlock(&at("lock")), Done)
        .then(read(&at("lock")), is("x"))
        .liar(Ok(content("x", 1)))
    });
    add(&|at| {
        Row::new(
            "a lock that is not held is released all the same",
            vec![write(&at("lock"), "x")],
            unlock(&at("lock")),
            Done,
            "the interface's own promise",
        )
        .liar(Err(dormer_host::ops::WinError::new(6)))
    });
    add(&|at| {
        Row::new(
            "a file that nobody has open can be replaced",
            vec![write(&at("a"), "x")],
            probe(&at("a")),
            Done,
            CREATE,
        )
        .liar(Err(dormer_host::ops::WinError::new(32)))
    });
    add(&|at| {
        Row::new(
            "a file that somebody has open cannot be replaced, and asking does not disturb",
            vec![write(&at("a"), "x"), lock(&at("a"))],
            probe(&at("a")),
            Refused(&[32]),
            CREATE,
        )
        .then(unlock(&at("a")), Done)
    });
    add(&|at| {
        Row::new(
            "what is not there cannot be asked about",
            vec![],
            probe(&at("a")),
            Refused(&[2]),
            CODES,
        )
    });
}

fn rights_rows(add: Add<'_>) {
    add(&|at| {
        Row::new(
            "a folder has its rights from the start",
            vec![create_for(&at("d"), Rights::Users)],
            security(&at("d")),
            secured("users read and execute", FOR_USERS),
            RIGHTS,
        )
        .not_on_wine(MODE_BITS)
    });
    add(&|at| {
        let source = ContentSource::Inline {
            bytes: Bytes(b"secret".into()),
        };
        Row::new(
            "a private file is nobody's but the administrators'",
            vec![write_from(&at("a"), source, Rights::Private)],
            security(&at("a")),
            secured("administrators and SYSTEM", FOR_NOBODY),
            RIGHTS,
        )
        .not_on_wine(MODE_BITS)
    });
    add(&|at| {
        let source = ContentSource::Inline {
            bytes: Bytes(b"secret".into()),
        };
        Row::new(
            "a private file is not readable for everybody",
            vec![write_from(&at("a"), source, Rights::Private)],
            security(&at("a")),
            Wanted::Answer(
                "no entry for everybody",
                Box::new(|answer| {
                    let Answer::FileSecurity(security) = answer else {
                        return false;
                    };
                    let entries = security.entries.as_deref();
                    entries.is_some_and(|all| all.iter().all(|entry| entry.sid != "S-1-1-0"))
                }),
            ),
            RIGHTS,
        )
    });
    add(&|at| {
        Row::new(
            "a moved file keeps its own rights",
            vec![
                create_for(&at("d"), Rights::Users),
                write_from(
                    &at("a"),
                    ContentSource::Inline {
                        bytes: Bytes(b"secret".into()),
                    },
                    Rights::Private,
                ),
                rename(&at("a"), &at(r"d\a"), false),
            ],
            security(&at(r"d\a")),
            secured("administrators and SYSTEM", FOR_NOBODY),
            RIGHTS,
        )
        .not_on_wine(MODE_BITS)
    });
    add(&|at| {
        Row::new(
            "rights are given to what is there",
            vec![write(&at("a"), "x")],
            FileRights {
                path: at("a"),
                rights: Rights::Private,
            }
            .operation(),
            Done,
            "sdk-api nf-securitybaseapi-setkernelobjectsecurity",
        )
        .then(
            security(&at("a")),
            secured("administrators and SYSTEM", FOR_NOBODY),
        )
        .not_on_wine(MODE_BITS)
    });
    add(&|at| {
        Row::new(
            "inherited rights are not given",
            vec![write(&at("a"), "x")],
            FileRights {
                path: at("a"),
                rights: Rights::Inherited,
            }
            .operation(),
            Refused(&[87]),
            "the interface's own promise",
        )
    });
    add(&|at| {
        Row::new(
            "what is not there has no rights",
            vec![],
            security(&at("a")),
            Refused(&[2]),
            CODES,
        )
    });
}

fn stat_rows(add: Add<'_>) {
    add(&|at| {
        Row::new(
            "a file has its size",
            vec![write(&at("a"), "kubelet")],
            stat(&at("a")),
            stat_is("seven bytes", |look| {
                !look.folder && look.size == 7 && !look.is_link()
            }),
            "sdk-api ns-fileapi-by_handle_file_information",
        )
        .liar(Ok(Answer::FileInformation(stat_of(8, 0x20))))
    });
    add(&|at| {
        Row::new(
            "a path is found by its name in other capitals",
            vec![write(&at("Kubelet"), "x")],
            stat(&at("kUBELET")),
            stat_is("a file", |look| !look.folder),
            NAMES,
        )
    });
    add(&|at| {
        Row::new(
            "an attribute is set",
            vec![write(&at("a"), "x")],
            attributes(&at("a"), ATTRIBUTE_READ_ONLY),
            Done,
            "sdk-api nf-fileapi-setfileattributesw",
        )
        .then(
            stat(&at("a")),
            stat_is("read-only", |look| {
                look.attributes & ATTRIBUTE_READ_ONLY != 0
            }),
        )
        .then(attributes(&at("a"), ATTRIBUTE_NORMAL), Done)
        .then(
            stat(&at("a")),
            stat_is("not read-only", |look| {
                look.attributes & ATTRIBUTE_READ_ONLY == 0
            }),
        )
    });
    add(&|at| {
        Row::new(
            "what is not there has no attributes",
            vec![],
            attributes(&at("a"), ATTRIBUTE_NORMAL),
            Refused(&[2]),
            CODES,
        )
    });
    add(&|at| {
        Row::new(
            "what is not there is not looked at",
            vec![],
            stat(&at("a")),
            Refused(&[2]),
            CODES,
        )
        .liar(Ok(Answer::FileInformation(stat_of(0, 0x20))))
    });
    add(&|at| {
        Row::new(
            "what lies in a folder that is not there is not looked at",
            vec![],
            stat(&at(r"d\a")),
            Refused(&[3]),
            CODES,
        )
        .liar(Ok(Answer::FileInformation(stat_of(0, 0x20))))
    });
    add(&|at| {
        Row::new(
            "a file that is no program has no version",
            vec![write(&at("a.exe"), "no program")],
            FileVersion { path: at("a.exe") }.operation(),
            Refused(&[1812, 193, 11]),
            "sdk-api nf-winver-getfileversioninfosizew; winerror.h",
        )
        .liar(Ok(Answer::FileVersion([1, 0, 0, 0])))
    });
    add(&|at| {
        // Deeper than MAX_PATH.
        let name = "n".repeat(120);
        let one = at(&name);
        let two = at(&format!(r"{name}\{name}"));
        let file = format!(r"{two}\a");
        Row::new(
            "paths may be longer than 260 characters",
            vec![create(&one), create(&two)],
            write(&file, "kubelet"),
            is_digest(),
            "win32 desktop-src FileIO/maximum-file-path-limitation",
        )
        .then(read(&file), is("kubelet"))
        .then(rename(&file, &format!("{file}b"), false), Done)
        .then(delete(&format!("{file}b")), Done)
        .then(remove(&two), Done)
        .liar(Ok(Answer::FileWriteNew(digest())))
    });
}
