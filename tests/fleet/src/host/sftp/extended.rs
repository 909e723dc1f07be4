//! OpenSSH's extensions of SFTP: posix-rename, fsync, statvfs, limits (docs/field-notes.md, SFTP on Windows).

use russh_sftp::protocol::{ExtendedReply, Packet, StatusCode};

use super::answers::{name, ok};
use super::{PACKET_BYTES_MAX, Server};

/// Bytes of a cluster of the volume.
const CLUSTER: u64 = 4_096;

impl Server {
    pub(super) fn extended(
        &mut self,
        id: u32,
        request: &str,
        data: &[u8],
    ) -> Result<Packet, StatusCode> {
        let mut fields = Fields(data);
        match request {
            "posix-rename@openssh.com" => {
                let from = fields.text()?;
                let to = fields.text()?;
                self.rename(id, &from, &to, true)
            }
            "fsync@openssh.com" => {
                let handle = fields.text()?;
                self.file(&handle)?;
                Ok(ok(id))
            }
            "statvfs@openssh.com" => {
                let path = fields.text()?;
                self.path(&path)?;
                Ok(self.volume(id))
            }
            "fstatvfs@openssh.com" => {
                let handle = fields.text()?;
                self.file(&handle)?;
                Ok(self.volume(id))
            }
            "limits@openssh.com" if self.host.image.release.sftp_limits() => Ok(limits(id)),
            "expand-path@openssh.com" if self.host.image.release.sftp_limits() => {
                let path = self.path(&fields.text()?)?;
                Ok(name(id, path.sftp()))
            }
            _ => Err(StatusCode::OpUnsupported),
        }
    }

    fn volume(&self, id: u32) -> Packet {
        let state = self.host.state();
        let all = state.disk.capacity() / CLUSTER;
        let free = state.disk.free() / CLUSTER;
        let words = [
            CLUSTER, CLUSTER, all, free, free, all, free, free, 0, 0, 255,
        ];
        reply(id, &words)
    }
}

fn limits(id: u32) -> Packet {
    let longest = PACKET_BYTES_MAX as u64;
    reply(id, &[longest, longest - 1_024, longest - 1_024, 0])
}

fn reply(id: u32, words: &[u64]) -> Packet {
    let data = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    Packet::ExtendedReply(ExtendedReply { id, data })
}

/// SSH strings, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn text(&mut self) -> Result<String, StatusCode> {
        let (length, rest) = self.0.split_at_checked(4).ok_or(StatusCode::BadMessage)?;
        let length = length
            .iter()
            .fold(0, |n, byte| (n << 8) | usize::from(*byte));
        let (text, rest) = rest
            .split_at_checked(length)
            .ok_or(StatusCode::BadMessage)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| StatusCode::BadMessage)
    }
}
