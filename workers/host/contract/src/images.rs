//! Rows about containerd's images, where no containerd runs: the pipe, and archives on the disk.

use dormer_host::ops::{
    Answer, Ask, Bytes, ContentSource, FileWriteNew, ImageArchiveRead, ImageImport, ImageRead,
    Operation, Rights,
};

use crate::{
    Row, Scope,
    Wanted::{self, Refused},
};

const PIPE: &str = "sdk-api nf-fileapi-createfilew";
const LAYOUT: &str = "image-spec v1.1, chapter Image Layout";
const NAME: &str = "registry.example/pause:3.10.2";

/// A tar of files (POSIX.1-1988, `ustar`).
fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        // A tar in memory takes everything.
        let _ = tar.append_data(&mut header, name, text.as_bytes());
    }
    tar.into_inner().unwrap_or_default()
}

/// An OCI layout with one image. Its digest is not compared here: containerd does that at the import.
fn layout(digest: &str) -> Vec<u8> {
    let index = format!(
        r#"{{"manifests": [{{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:{digest}", "size": 2}}]}}"#
    );
    let blob = format!("blobs/sha256/{digest}");
    let files = [
        ("oci-layout", r#"{"imageLayoutVersion": "1.0.0"}"#),
        ("index.json", &index),
        (&blob, "{}"),
    ];
    tar(&files)
}

pub(crate) fn rows(scope: &Scope) -> Vec<Row> {
    let path = |name: &str| format!(r"{}\images-{name}.tar", scope.folder);
    let write = |name: &str, bytes: Vec<u8>| {
        FileWriteNew {
            path: path(name),
            source: ContentSource::Inline {
                bytes: Bytes(bytes),
            },
            rights: Rights::Inherited,
        }
        .operation()
    };
    let describe = |name: &str| {
        ImageArchiveRead {
            path: path(name),
            name: NAME.into(),
        }
        .operation()
    };
    let pipe = || format!(r"\\.\pipe\{}-nobody", scope.prefix);
    let digest = "5e".repeat(32);
    let told = format!("sha256:{digest}");
    let told = Wanted::Answer(
        "the digest in its index",
        Box::new(move |answer| matches!(answer, Answer::ImageArchiveRead(found) if *found == told)),
    );
    let read = |pipe: String| {
        ImageRead {
            pipe,
            name: NAME.into(),
        }
        .operation()
    };
    let import: Operation = ImageImport {
        pipe: pipe(),
        name: NAME.into(),
        path: path("imported"),
    }
    .operation();
    vec![
        Row::new(
            "where nobody serves the pipe there is no image",
            vec![],
            read(pipe()),
            Refused(&[2]),
            PIPE,
        )
        .liar(Ok(Answer::ImageRead(None))),
        Row::new(
            "an archive that is not there has no image",
            vec![],
            describe("absent"),
            Refused(&[2, 3]),
            PIPE,
        )
        .liar(Ok(Answer::ImageArchiveRead(String::new()))),
        Row::new(
            "the image of an archive is the one in its index",
            vec![write("whole", layout(&digest))],
            describe("whole"),
            told,
            LAYOUT,
        )
        .liar(Ok(Answer::ImageArchiveRead(format!(
            "sha256:{}",
            "e5".repeat(32)
        )))),
        Row::new(
            "a tar without a layout has no image",
            vec![write("other", tar(&[("manifest.json", "[]")]))],
            describe("other"),
            Refused(&[13]),
            LAYOUT,
        )
        .liar(Ok(Answer::ImageArchiveRead(String::new()))),
        Row::new(
            "what is no tar has no image",
            vec![write("program", b"MZ".repeat(400))],
            describe("program"),
            Refused(&[13]),
            LAYOUT,
        )
        .liar(Ok(Answer::ImageArchiveRead(String::new()))),
        Row::new(
            "nothing is imported where nobody serves the pipe",
            vec![write("imported", layout(&digest))],
            import,
            Refused(&[2]),
            PIPE,
        ),
    ]
}
