//! Operations on containerd's images, through its pipe ([`crate::containerd`]).

use super::{CONTENT_MS, QUICK_MS, ask};

ask! {
    /// Digest of an image in containerd's namespace `k8s.io`; none without one.
    ///
    /// Refuses with 2 (no server of the pipe), 231 (all of its instances are in use), 109 (the other side ended it),
    /// 13 (no gRPC), and 0x20000100 with gRPC's status (bit 29: no number of Windows).
    ImageRead, "image_read", reads, |_| QUICK_MS, {
        /// The pipe, with its whole name.
        pipe: String,
        name: String,
    } -> Option<String>;

    /// Digest of the image of a name in an archive on the disk, an OCI layout in a tar.
    ///
    /// Refuses with 2, 3, 32, 13 (no such archive, or no such image in it).
    ImageArchiveRead, "image_archive_read", reads, |_| CONTENT_MS, {
        path: String,
        name: String,
    } -> String;

    /// Brings an image out of an archive into containerd's store: a lease, the blobs, the name. An image that has the name
    /// already is replaced. Done again it sends nothing that is there.
    ///
    /// Refuses as [`ImageRead`] and [`ImageArchiveRead`].
    ImageImport, "image_import", changes, |_| 900_000, {
        pipe: String,
        name: String,
        /// Path of the archive.
        path: String,
    } -> ();
}
