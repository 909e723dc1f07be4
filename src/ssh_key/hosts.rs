//! A rotation on the hosts: the first one alone, then all others at once.

use super::{
    cluster::KeyedCluster,
    report::{HostRow, KeyOutcome},
};
use dormer_client::Failure;
use dormer_workers::{
    ssh::{
        Key, SshError,
        key_file::KEY_FILE,
        rotation::{KeyStep, RotationError, RotationLogin},
    },
    watcher::logins::HostLogin,
};
use futures::{StreamExt, future::BoxFuture, stream};
use std::time::Duration;
use tokio::time::timeout;

/// Hosts that are changed at once.
const AT_ONCE: usize = 16;
/// How long one host may take.
const HOST_MAX: Duration = Duration::from_secs(180);

/// Row of a host that is no part of it, or cannot be yet.
fn obstacle(host: &HostLogin) -> Option<HostRow> {
    let row = |outcome, why: &str, what_to_do: &str| {
        Some(HostRow::of(host, outcome).because(why, what_to_do.to_owned()))
    };
    if let Some(why) = &host.left_alone {
        return row(KeyOutcome::LeftAlone, why, "");
    }
    let again = "run the command again once dormer shows it as serving; or take the machine away";
    if host.address.is_none() {
        return row(KeyOutcome::Failed, "it has no address yet", again);
    }
    if host.pin.is_none() {
        return row(
            KeyOutcome::Failed,
            "dormer has not pinned its host key yet",
            again,
        );
    }
    None
}

/// As [`obstacle`], before the previous key goes: a machine of this dormer's that was left alone has no other key.
fn unproven(host: &HostLogin) -> Option<HostRow> {
    let row = obstacle(host)?;
    if host.of_another || row.outcome != KeyOutcome::LeftAlone {
        return Some(row);
    }
    let why = format!("{}, so it has the previous key alone", row.why);
    let cure = format!(
        "take the label away and run dormer ssh-key rotate again; or give it up with --leave-out {}",
        host.name
    );
    Some(HostRow::of(host, KeyOutcome::Failed).because(&why, cure))
}

/// Rows of hosts that would be changed.
pub(super) fn planned(hosts: &[HostLogin], names: &[String]) -> Vec<HostRow> {
    let row = |host| {
        let left = left_out(host, names).or_else(|| obstacle(host));
        left.unwrap_or_else(|| HostRow::of(host, KeyOutcome::Planned))
    };
    hosts.iter().map(row).collect()
}

/// Row of a host that a person gave up.
fn left_out(host: &HostLogin, names: &[String]) -> Option<HostRow> {
    names
        .contains(&host.name)
        .then(|| HostRow::of(host, KeyOutcome::LeftOut))
}

fn login<'a>(site: &'a KeyedCluster, host: &'a HostLogin) -> RotationLogin<'a> {
    RotationLogin {
        dialer: &site.dialer,
        limits: site.limits,
        address: host.address.as_deref().unwrap_or_default(),
        user: &host.user,
        // One that no host has, so that no key is offered to a host that is not known.
        pin: host.pin.as_deref().unwrap_or("none"),
        file: KEY_FILE,
    }
}

fn row(host: &HostLogin, done: Result<KeyStep, RotationError>) -> HostRow {
    match done {
        Ok(KeyStep::Done) => HostRow::of(host, KeyOutcome::Done),
        Ok(KeyStep::Already) => HostRow::of(host, KeyOutcome::Already),
        Err(error) => {
            let what_to_do = cure(host, &error);
            let row = HostRow::of(host, KeyOutcome::Failed).because(&error.to_string(), what_to_do);
            HostRow {
                refused: refuses(&error),
                ..row
            }
        }
    }
}

/// Whether the host refused the new key itself.
fn refuses(error: &RotationError) -> bool {
    matches!(
        error,
        RotationError::NotAccepted { .. } | RotationError::NotUndone { .. }
    )
}

/// One step on a host, within [`HOST_MAX`]: one that logs in and then says nothing holds up no other.
async fn in_time(
    host: &HostLogin,
    step: impl Future<Output = Result<KeyStep, RotationError>>,
) -> Result<KeyStep, RotationError> {
    match timeout(HOST_MAX, step).await {
        Ok(done) => done,
        Err(_) => {
            let address = host.address.clone().unwrap_or_default();
            Err(SshError::NoAnswer(address).into())
        }
    }
}

fn cure(host: &HostLogin, error: &RotationError) -> String {
    let name = &host.name;
    match error {
        RotationError::Ssh(SshError::HostKey { .. } | SshError::HostKeyWeak(..)) => {
            format!("dormer why {name}; then run the command again")
        }
        RotationError::Ssh(SshError::Auth(..)) => format!(
            "none of the two keys opens it: dormer recreate {name}, or write the new public key into {KEY_FILE} on its \
             console"
        ),
        RotationError::Ssh(SshError::File { .. } | SshError::Full(..)) => {
            format!("mend it on its console, then run the command again; or dormer recreate {name}")
        }
        RotationError::Ssh(_) => format!(
            "start it or mend its network, then run the command again; or dormer recreate {name}"
        ),
        RotationError::NotAccepted { .. } | RotationError::NotUndone { .. } => {
            "look at PubkeyAcceptedAlgorithms and AuthorizedKeysFile in C:\\ProgramData\\ssh\\sshd_config".to_owned()
        }
        RotationError::ComesBack(_) => format!(
            "dormer recreate {name} gives it the present user data; or --user-data-runs-once, if this platform runs user data \
             at the first boot only"
        ),
        RotationError::StillAccepted(..) => {
            "take the key out of the other files of AuthorizedKeysFile in C:\\ProgramData\\ssh\\sshd_config".to_owned()
        }
    }
}

/// Runs `step` on all `hosts`, several at once; rows in the order of names.
async fn each<'a>(
    hosts: impl Iterator<Item = &'a HostLogin>,
    step: impl Fn(&'a HostLogin) -> BoxFuture<'a, HostRow>,
) -> Vec<HostRow> {
    let steps = stream::iter(hosts.map(step)).buffer_unordered(AT_ONCE);
    let mut rows: Vec<HostRow> = steps.collect().await;
    rows.sort_by(|a, b| a.machine.cmp(&b.machine));
    rows
}

/// Adds `new` to all hosts but `names`, to one of them first. A host that takes the key already proves nothing: it may take
/// any.
///
/// # Errors
/// The first host that was changed does not take the new key: it is as it was, and no other was changed.
pub(super) async fn add_to_all(
    site: &KeyedCluster,
    hosts: &[HostLogin],
    names: &[String],
    (old, new): (&Key, &Key),
) -> Result<Vec<HostRow>, Failure> {
    let mut rows = Vec::new();
    let mut waiting = Vec::new();
    for host in hosts {
        match left_out(host, names).or_else(|| obstacle(host)) {
            Some(row) => rows.push(row),
            None => waiting.push(host),
        }
    }
    let mut waiting = waiting.into_iter();
    for host in waiting.by_ref() {
        let done = in_time(host, login(site, host).add_key(old, new)).await;
        match &done {
            Err(error) if refuses(error) => {
                return Err(Failure::refused(
                    format!(
                        "{}, the first host: {error}; nothing else was changed",
                        host.name
                    ),
                    format!(
                        "{}; or give the host up with --leave-out {}",
                        cure(host, error),
                        host.name
                    ),
                ));
            }
            _ => {}
        }
        let proven = done == Ok(KeyStep::Done);
        rows.push(row(host, done));
        if proven {
            break;
        }
    }
    let adding = each(waiting, |host| {
        Box::pin(async move {
            let login = login(site, host);
            row(host, in_time(host, login.add_key(old, new)).await)
        })
    });
    rows.extend(adding.await);
    rows.sort_by(|a, b| a.machine.cmp(&b.machine));
    Ok(rows)
}

/// Opens all hosts but `names` with the new key.
pub(super) async fn open_all(
    site: &KeyedCluster,
    hosts: &[HostLogin],
    names: &[String],
    new: &Key,
) -> Vec<HostRow> {
    let opening = |host| -> BoxFuture<'_, HostRow> {
        Box::pin(async move {
            if let Some(row) = left_out(host, names).or_else(|| unproven(host)) {
                return row;
            }
            let login = login(site, host);
            let opened = async { Ok(login.try_key(new).await.map(|()| KeyStep::Already)?) };
            match in_time(host, opened).await {
                Ok(_) => HostRow::of(host, KeyOutcome::Planned),
                Err(RotationError::Ssh(error @ SshError::Auth(..))) => {
                    let cure = "give it the new key: dormer ssh-key rotate with the same --new";
                    let why = error.to_string();
                    HostRow::of(host, KeyOutcome::Failed).because(&why, cure.to_owned())
                }
                Err(error) => row(host, Err(error)),
            }
        })
    };
    each(hosts.iter(), opening).await
}

/// Takes `old` off all hosts but `names`.
pub(super) async fn remove_from_all(
    site: &KeyedCluster,
    hosts: &[HostLogin],
    names: &[String],
    (old, new): (&Key, &Key),
    once: bool,
) -> Vec<HostRow> {
    let removing = |host| -> BoxFuture<'_, HostRow> {
        Box::pin(async move {
            match left_out(host, names).or_else(|| obstacle(host)) {
                Some(row) => row,
                None => {
                    let login = login(site, host);
                    row(host, in_time(host, login.remove_key(old, new, once)).await)
                }
            }
        })
    };
    each(hosts.iter(), removing).await
}
