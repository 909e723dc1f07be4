//! A rotation on the hosts: the first one alone, then all others at once.

use super::{
    cluster::KeyedCluster,
    report::{Outcome, Row},
};
use dormer_client::Failure;
use dormer_workers::{
    ssh::{
        Key, SshError,
        key_file::KEY_FILE,
        rotation::{Login, RotationError, Step},
    },
    watcher::logins::HostLogin,
};
use futures::{StreamExt, future::BoxFuture, stream};

/// Hosts that are changed at once.
const AT_ONCE: usize = 16;

/// Row of a host that is no part of it, or cannot be yet.
fn obstacle(host: &HostLogin) -> Option<Row> {
    let row = |outcome, why: &str, what_to_do: &str| {
        Some(Row::of(host, outcome).because(why, what_to_do.to_owned()))
    };
    if let Some(why) = &host.left_alone {
        return row(Outcome::LeftAlone, why, "");
    }
    let again = "run the command again once dormer shows it as serving; or take the machine away";
    if host.address.is_none() {
        return row(Outcome::Failed, "it has no address yet", again);
    }
    if host.pin.is_none() {
        return row(
            Outcome::Failed,
            "dormer has not pinned its host key yet",
            again,
        );
    }
    None
}

/// Row of a host that would be changed.
pub(super) fn planned(host: &HostLogin) -> Row {
    obstacle(host).unwrap_or_else(|| Row::of(host, Outcome::Planned))
}

/// Row of a host that a person gave up.
pub(super) fn left_out(host: &HostLogin, names: &[String]) -> Option<Row> {
    names
        .contains(&host.name)
        .then(|| Row::of(host, Outcome::LeftOut))
}

fn login<'a>(site: &'a KeyedCluster, host: &'a HostLogin) -> Login<'a> {
    Login {
        dialer: &site.dialer,
        limits: site.limits,
        address: host.address.as_deref().unwrap_or_default(),
        user: &host.user,
        // One that no host has, so that no key is offered to a host that is not known.
        pin: host.pin.as_deref().unwrap_or("none"),
        file: KEY_FILE,
    }
}

fn row(host: &HostLogin, done: Result<Step, RotationError>) -> Row {
    match done {
        Ok(Step::Done) => Row::of(host, Outcome::Done),
        Ok(Step::Already) => Row::of(host, Outcome::Already),
        Err(error) => {
            let what_to_do = cure(host, &error);
            Row::of(host, Outcome::Failed).because(&error.to_string(), what_to_do)
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
    step: impl Fn(&'a HostLogin) -> BoxFuture<'a, Row>,
) -> Vec<Row> {
    let steps = stream::iter(hosts.map(step)).buffer_unordered(AT_ONCE);
    let mut rows: Vec<Row> = steps.collect().await;
    rows.sort_by(|a, b| a.machine.cmp(&b.machine));
    rows
}

/// Adds `new` to all hosts, to one of them first.
///
/// # Errors
/// The first host that is reached does not take the new key: it is as it was, and no other was changed.
pub(super) async fn add_to_all(
    site: &KeyedCluster,
    hosts: &[HostLogin],
    old: &Key,
    new: &Key,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let mut waiting = Vec::new();
    for host in hosts {
        match obstacle(host) {
            Some(row) => rows.push(row),
            None => waiting.push(host),
        }
    }
    let mut waiting = waiting.into_iter();
    for host in waiting.by_ref() {
        let done = login(site, host).add_key(old, new).await;
        if let Err(error @ (RotationError::NotAccepted { .. } | RotationError::NotUndone { .. })) =
            &done
        {
            return Err(Failure::refused(
                format!(
                    "{}, the first host: {error}; nothing else was changed",
                    host.name
                ),
                cure(host, error),
            ));
        }
        let reached = done.is_ok();
        rows.push(row(host, done));
        if reached {
            break;
        }
    }
    let adding = each(waiting, |host| {
        Box::pin(async move { row(host, login(site, host).add_key(old, new).await) })
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
) -> Vec<Row> {
    let opening = |host| -> BoxFuture<'_, Row> {
        Box::pin(async move {
            if let Some(row) = left_out(host, names).or_else(|| obstacle(host)) {
                return row;
            }
            match login(site, host).try_key(new).await {
                Ok(()) => Row::of(host, Outcome::Planned),
                Err(error @ SshError::Auth(..)) => {
                    let cure = "give it the new key: dormer ssh-key rotate with the same --new";
                    let why = error.to_string();
                    Row::of(host, Outcome::Failed).because(&why, cure.to_owned())
                }
                Err(error) => row(host, Err(error.into())),
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
) -> Vec<Row> {
    let removing = |host| -> BoxFuture<'_, Row> {
        Box::pin(async move {
            match left_out(host, names).or_else(|| obstacle(host)) {
                Some(row) => row,
                None => row(host, login(site, host).remove_key(old, new, once).await),
            }
        })
    };
    each(hosts.iter(), removing).await
}
