//! A small payload in a folder, for tests of dormer's processes: the example's files, a few bytes each.

use dormer_profile::{
    payload::{MANIFEST_FILE, Manifest, PayloadFile},
    render::EXAMPLE_PAYLOAD,
    sha256_hex,
};
use std::{fs, io, path::Path};

/// The versions between which a host may go to and fro.
const VERSIONS: [&str; 2] = ["11.0.0", "11.1.0"];

/// Writes a payload of `version` into `folder`, which it makes. Its content is that version's alone, and it may follow
/// the other one of 11.0.0 and 11.1.0.
///
/// # Errors
/// The folder cannot be written.
pub fn write_example(folder: &Path, version: &str) -> io::Result<()> {
    let mut manifest = Manifest::parse(EXAMPLE_PAYLOAD).map_err(io::Error::other)?;
    manifest.version = version.into();
    let others = VERSIONS.iter().filter(|other| **other != version);
    manifest.may_follow = others.map(|other| (*other).to_owned()).collect();
    for file in &mut manifest.files {
        let bytes = format!("MZ {} {version}", file.name).into_bytes();
        let path = folder.join(&file.name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, &bytes)?;
        let sha256 = sha256_hex(&bytes);
        let size = bytes.len() as u64;
        *file = PayloadFile {
            sha256,
            size,
            ..file.clone()
        };
    }
    // The manifest comes last: a folder without one is no payload yet.
    fs::write(
        folder.join(MANIFEST_FILE),
        serde_json::to_string(&manifest)?,
    )
}

/// Name of the file with the pause image.
pub const PAUSE_ARCHIVE: &str = "pause.tar";

/// An archive with one image: an OCI layout in a tar (image-spec v1.1, chapter Image Layout).
pub fn pause_archive() -> String {
    let digest = sha256_hex(b"{}");
    let index = format!(
        r#"{{"manifests": [{{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:{digest}", "size": 2}}]}}"#
    );
    let blob = format!("blobs/sha256/{digest}");
    let mut text = String::new();
    for (name, content) in [("oci-layout", "{}"), ("index.json", &index), (&blob, "{}")] {
        // POSIX.1-1988, `ustar`: the sum counts its own field as spaces.
        let head = |sum: &str| {
            let size = format!("{:011o}", content.len());
            format!(
                "{name:\0<100}{:\0<24}{size}\0{:\0<12}{sum:\0<8}0{:\0<100}ustar\000{:\0<247}",
                "", "", "", ""
            )
        };
        let sum: u32 = head("        ").bytes().map(u32::from).sum();
        text += &head(&format!("{sum:06o}\0 "));
        text += content;
        text += &"\0".repeat(text.len().next_multiple_of(512) - text.len());
    }
    text + &"\0".repeat(1024)
}
