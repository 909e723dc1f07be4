//! A client of containerd for one purpose: to bring an image out of an archive into its store, without a tool that could
//! start containers.
//!
//! It speaks gRPC over any stream of bytes; on Windows that is containerd's pipe. It sends what containerd's own client
//! sends for `ctr images import` (containerd v2.4.2, `client/import.go` and `core/images/handlers.go`): a lease, the
//! blobs with the labels that the garbage collector follows, then the image's name. The CRI plugin learns of a new
//! image by containerd itself (`internal/cri/server/events/events.go`), and unpacks it before its first use
//! (`internal/cri/opts/container.go`, `WithNewSnapshot`).

mod archive;
mod grpc;
mod hpack;
mod protobuf;

use std::{
    io::{Read, Seek, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use archive::{Archive, Blob};
use grpc::Connection;
use protobuf::{ProtobufMessage, field};

use crate::ops::WinError;

/// Namespace of the CRI plugin's images.
const NAMESPACE: &str = "k8s.io";
/// Until when a lease holds (containerd, the page about garbage collection).
const LEASE_LABEL: &str = "containerd.io/gc.expire";
/// How long what an import wrote is kept if the import does not end: a day, as containerd's own client has it
/// (`client/lease.go`).
const LEASE_SECONDS: u64 = 86_400;
/// Bytes of content in one message. containerd takes messages of up to 16 MiB (`defaults/defaults.go`).
const PIECE_BYTES: usize = 1 << 20;
/// `codes.NotFound` and `codes.AlreadyExists` of gRPC.
const NOT_FOUND: u32 = 5;
const ALREADY_EXISTS: u32 = 6;
/// What containerd refused is a number of the customer's range (MS-ERREF, 2.1): this, and gRPC's status.
pub const REFUSED: u32 = 0x2000_0100;
/// `ERROR_INVALID_DATA`: no archive of an image, or no gRPC.
pub const NO_DATA: u32 = 13;

/// Something that is not as it should be, in words.
fn wrong(text: impl Into<String>) -> WinError {
    WinError {
        code: NO_DATA,
        text: text.into(),
    }
}

/// Digest of the image of that name in containerd's store, if there is one.
///
/// # Errors
///
/// A refusal by containerd, or an error of the stream.
pub fn find(stream: impl Read + Write, name: &str) -> Result<Option<String>, WinError> {
    let mut connection = Connection::open(stream)?;
    stored(&mut connection, name)
}

/// Digest of what an archive has under that name.
///
/// # Errors
/// The archive cannot be read, is no OCI layout, or has no such image.
pub fn describe(archive: impl Read + Seek, name: &str) -> Result<String, WinError> {
    Ok(Archive::read(archive)?.target(name)?.digest)
}

/// Imports the image of that name from an archive into containerd's store. Blobs that exist are not sent again.
///
/// # Errors
///
/// A blob that the archive lacks, a refusal by containerd, or an error of the stream.
pub fn import(
    stream: impl Read + Write,
    archive: impl Read + Seek,
    name: &str,
) -> Result<(), WinError> {
    let mut archive = Archive::read(archive)?;
    let target = archive.target(name)?;
    let blobs = archive.blobs(&target)?;
    let mut connection = Connection::open(stream)?;
    let lease = format!("dormer-{}", target.digest.trim_start_matches("sha256:"));
    let lease = lease.get(..32).unwrap_or(&lease).to_owned();
    take_lease(&mut connection, &lease)?;
    let sent = send(&mut connection, &lease, &mut archive, &blobs)
        .and_then(|()| point(&mut connection, &lease, name, &target));
    // A lease that stays expires by itself, and the image's result matters more.
    let mut delete = ProtobufMessage::default();
    delete.text(1, &lease);
    let left = unary(
        &mut connection,
        "leases.v1.Leases/Delete",
        None,
        &delete.done(),
    );
    sent.and(left.map(drop).or_else(unless(NOT_FOUND)))
}

/// One question with one answer.
fn unary<S: Read + Write>(
    connection: &mut Connection<S>,
    method: &str,
    lease: Option<&str>,
    message: &[u8],
) -> Result<Vec<u8>, WinError> {
    let mut call = connection.begin(method, &metadata(lease))?;
    connection.send(&mut call, message, true)?;
    let answers = connection.finish(call)?;
    Ok(answers.into_iter().next().unwrap_or_default())
}

fn metadata(lease: Option<&str>) -> Vec<(&'static str, &str)> {
    let lease = lease.map(|lease| ("containerd-lease", lease));
    std::iter::once(("containerd-namespace", NAMESPACE))
        .chain(lease)
        .collect()
}

/// Takes one of gRPC's refusals for a yes.
fn unless(status: u32) -> impl Fn(WinError) -> Result<(), WinError> {
    move |error| {
        if error.code == REFUSED + status {
            Ok(())
        } else {
            Err(error)
        }
    }
}

fn stored<S: Read + Write>(
    connection: &mut Connection<S>,
    name: &str,
) -> Result<Option<String>, WinError> {
    let mut message = ProtobufMessage::default();
    message.text(1, name);
    let answer = unary(connection, "images.v1.Images/Get", None, &message.done());
    match answer {
        Ok(answer) => {
            // GetImageResponse.image, Image.target, Descriptor.digest.
            let digest = field(&answer, 1)
                .and_then(|image| field(image, 3))
                .and_then(|target| field(target, 2));
            let digest = digest.and_then(|digest| String::from_utf8(digest.to_vec()).ok());
            digest
                .map(Some)
                .ok_or_else(|| wrong("containerd answered an image without a digest"))
        }
        Err(error) if error.code == REFUSED + NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// Takes a lease: blobs written under it stay before an image references them.
fn take_lease<S: Read + Write>(
    connection: &mut Connection<S>,
    lease: &str,
) -> Result<(), WinError> {
    let mut message = ProtobufMessage::default();
    message.text(1, lease);
    message.entry(3, LEASE_LABEL, &rfc_3339(now_seconds() + LEASE_SECONDS));
    let message = message.done();
    let taken = unary(connection, "leases.v1.Leases/Create", None, &message);
    taken.map(drop).or_else(unless(ALREADY_EXISTS))
}

/// Seconds since 1970 UTC.
fn now_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A time as containerd reads it (Howard Hinnant, *chrono-compatible low-level date algorithms*, `civil_from_days`).
fn rfc_3339(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let rest = seconds % 86_400;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Counted from March.
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let hour = rest / 3_600;
    let minute = rest / 60 % 60;
    let second = rest % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Sends the blobs, each after those that it references.
fn send<S: Read + Write, A: Read + Seek>(
    connection: &mut Connection<S>,
    lease: &str,
    archive: &mut Archive<A>,
    blobs: &[Blob],
) -> Result<(), WinError> {
    for blob in blobs {
        match write(connection, lease, archive, blob) {
            Err(error) if error.code == REFUSED + ALREADY_EXISTS => {
                label(connection, lease, blob)?;
            }
            written => written?,
        }
    }
    Ok(())
}

/// Writes one blob; containerd compares its digest.
fn write<S: Read + Write, A: Read + Seek>(
    connection: &mut Connection<S>,
    lease: &str,
    archive: &mut Archive<A>,
    blob: &Blob,
) -> Result<(), WinError> {
    const WRITE: u64 = 1;
    const COMMIT: u64 = 2;
    let method = "content.v1.Content/Write";
    let mut call = connection.begin(method, &metadata(Some(lease)))?;
    let reference = format!("dormer-{}", blob.digest);
    let mut offset = 0;
    while offset < blob.size && !call.has_ended() {
        let piece = archive.piece(blob, offset, PIECE_BYTES)?;
        let mut message = ProtobufMessage::default();
        message.number(1, WRITE);
        message.text(2, &reference);
        message.number(3, blob.size);
        message.text(4, &blob.digest);
        message.number(5, offset);
        message.bytes(6, &piece);
        connection.send(&mut call, &message.done(), false)?;
        offset += piece.len() as u64;
    }
    if !call.has_ended() {
        let mut message = ProtobufMessage::default();
        message.number(1, COMMIT);
        message.text(2, &reference);
        message.number(3, blob.size);
        message.text(4, &blob.digest);
        message.number(5, offset);
        for (key, value) in &blob.labels {
            message.entry(7, key, value);
        }
        connection.send(&mut call, &message.done(), true)?;
    }
    connection.finish(call).map(drop)
}

/// Adds labels to a blob that exists: it may have been imported for another image.
fn label<S: Read + Write>(
    connection: &mut Connection<S>,
    lease: &str,
    blob: &Blob,
) -> Result<(), WinError> {
    if blob.labels.is_empty() {
        return Ok(());
    }
    let mut info = ProtobufMessage::default();
    let mut mask = ProtobufMessage::default();
    info.text(1, &blob.digest);
    for (key, value) in &blob.labels {
        info.entry(5, key, value);
        mask.text(1, &format!("labels.{key}"));
    }
    let mut message = ProtobufMessage::default();
    message.bytes(1, &info.done());
    message.bytes(2, &mask.done());
    let method = "content.v1.Content/Update";
    unary(connection, method, Some(lease), &message.done()).map(drop)
}

/// Lets the name point to the image.
fn point<S: Read + Write>(
    connection: &mut Connection<S>,
    lease: &str,
    name: &str,
    target: &Blob,
) -> Result<(), WinError> {
    let mut descriptor = ProtobufMessage::default();
    descriptor.text(1, &target.media_type);
    descriptor.text(2, &target.digest);
    descriptor.number(3, target.size);
    let mut image = ProtobufMessage::default();
    image.text(1, name);
    image.bytes(3, &descriptor.done());
    let mut message = ProtobufMessage::default();
    message.bytes(1, &image.done());
    let create = message.done();
    let lease = Some(lease);
    match unary(connection, "images.v1.Images/Create", lease, &create) {
        Err(error) if error.code == REFUSED + ALREADY_EXISTS => {
            let mut mask = ProtobufMessage::default();
            mask.text(1, "target");
            let mut message = ProtobufMessage::default();
            message.bytes(1, &image.done());
            message.bytes(2, &mask.done());
            let update = message.done();
            unary(connection, "images.v1.Images/Update", lease, &update).map(drop)
        }
        created => created.map(drop),
    }
}

#[cfg(test)]
mod tests;
