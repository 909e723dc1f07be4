//! Giving the services of others on a host back to them, by the program there: WICD, where a node goes back to WMCO.

use super::host::{HostTarget, called, log_in, probe_call};
use bytes::Bytes;
use dormer_host::{
    arguments::{Call, Mode},
    paths::{BIN, ROOT, program_path},
};
use dormer_profile::{document::Fence, invocation, sha256_hex};
use dormer_proto::message::Failure;
use dormer_workers::{
    host::HostProgram,
    ssh::{Key, Session, Upload},
};

/// Host, and how to reach it.
pub(crate) fn target(address: &str, port: u16, user: &str, key: &Key) -> HostTarget {
    HostTarget {
        address: address.to_owned(),
        port,
        user: user.to_owned(),
        key: key.clone(),
    }
}

/// Restores how the services of others start, and starts them. It takes the host's next fence, so that no worker of dormer
/// that is late changes the host any more. It reports what was given back.
///
/// # Errors
/// The host cannot be reached, shows another key than `pin`, or refuses.
pub(crate) async fn release(
    target: &HostTarget,
    pin: &str,
    program: &HostProgram,
) -> Result<String, Failure> {
    let (session, _) = log_in(target, pin).await?;
    send(&session, program).await?;
    let probed = called(&session, program, probe_call(program), Bytes::new()).await?;
    let generation = probed.facts.fence.unwrap_or_default().generation + 1;
    let call = Call {
        mode: Mode::Asked(invocation::Mode::Release),
        attempt: 2,
        fence: Fence { generation, seq: 0 },
        boot: Some(probed.facts.boot_id),
        ..probe_call(program)
    };
    let answer = called(&session, program, call, Bytes::new()).await?;
    let given: Vec<String> = answer.items.into_iter().map(|item| item.id).collect();
    Ok(match given.as_slice() {
        [] => "nothing was disabled there".to_owned(),
        given => given.join(", "),
    })
}

async fn send(session: &Session, program: &HostProgram) -> Result<(), Failure> {
    let path = program_path(program.sha256());
    let bytes: &[u8] = program.bytes();
    let size = bytes.len() as u64;
    let sftp = session.sftp().await?;
    if sftp.size(&path).await? == Some(size) {
        return Ok(());
    }
    for folder in [ROOT, BIN] {
        sftp.make_folder(folder).await?;
    }
    let part = format!("{path}.1-0-1.part");
    let sha256 = sha256_hex(bytes);
    let what = Upload {
        path: &path,
        part: &part,
        size,
        sha256: &sha256,
    };
    Ok(sftp.upload(what, bytes, |_| {}).await?)
}
