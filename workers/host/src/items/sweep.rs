//! Sweeps: items that keep some existing objects and delete the rest.

use dormer_profile::{
    answer::FailureCode,
    item::{NewestFiles, OnlyCertificates, OnlyFolders, Sweep, VERSION_MARK},
};

use super::{
    Step,
    certificate::{self, MARK, roots},
    file::digest,
};
use crate::{
    files::{delete, passes, remove_tree, stat},
    ops::{DirectoryEntry, DirectoryList, FileRename, Host},
    paths::{same, within},
    problem::{Doing as _, Result},
    progress::Run,
    state::Made,
};

/// Name of a folder that is being deleted. A folder of that name is ours, whatever its contents.
const GOING: &str = ".dormer-old";

/// The folders in a folder; none if it is not there.
async fn folders_in<H: Host>(run: &mut Run<H>, under: &str) -> Result<Vec<DirectoryEntry>> {
    match run.host.ask(DirectoryList { path: under.into() }).await {
        Ok(mut entries) => {
            entries.retain(|entry| entry.stat.folder && !entry.stat.is_link());
            Ok(entries)
        }
        Err(error) if error.is_any(&[2, 3]) => Ok(Vec::new()),
        Err(error) => Err(error).doing(FailureCode::Other, || format!("list {under}")),
    }
}

fn kept(keep: &[String], name: &str) -> bool {
    keep.iter().any(|one| same(one, name))
}

/// Deletes version folders that are neither in use nor kept for a rollback. Only folders with our mark are deleted. A
/// folder that a process holds cannot be renamed, so it stays complete until the next time.
pub(crate) async fn versions<H: Host>(run: &mut Run<H>, item: &Sweep) -> Result<Step> {
    let mut old = Vec::new();
    for entry in folders_in(run, &item.under).await? {
        let folder = format!(r"{}\{}", item.under, entry.name);
        let going = entry.name.ends_with(GOING);
        let marked = going
            || stat(&mut run.host, &format!(r"{folder}\{VERSION_MARK}"))
                .await?
                .is_some();
        if marked && !kept(&item.keep, &entry.name) {
            old.push((folder, going));
        }
    }
    if old.is_empty() {
        return Ok(Step::Ok(String::new()));
    }
    let names: Vec<&str> = old.iter().map(|(folder, _)| folder.as_str()).collect();
    if !run.apply {
        return Ok(Step::Differs(names.join(", ")));
    }
    let mut gone = Vec::new();
    for (folder, going) in &old {
        let aside = if *going {
            folder.clone()
        } else {
            format!("{folder}{GOING}")
        };
        if !going {
            let rename = FileRename {
                from: folder.clone(),
                to: aside.clone(),
                replace: false,
            };
            match run.host.ask(rename).await {
                Ok(()) => {}
                Err(error) if passes(&error) || error.number() == 183 => continue,
                Err(error) => {
                    return Err(error).doing(FailureCode::Other, || format!("put {folder} aside"));
                }
            }
        }
        if remove_tree(&mut run.host, &aside).await.is_ok() {
            gone.push(folder.clone());
            forget_below(run, folder).await?;
        }
    }
    Ok(if gone.is_empty() {
        Step::Ok("old folders are still in use".into())
    } else {
        Step::Changed(gone.join(", "))
    })
}

async fn forget_below<H: Host>(run: &mut Run<H>, folder: &str) -> Result<()> {
    run.inventory.entries.retain(|entry| match &entry.made {
        Made::File { path, .. } | Made::Directory { path, .. } => !within(path, folder),
        _ => true,
    });
    run.save_inventory().await
}

/// Folders in a folder of ours, and none beside them.
pub(crate) async fn folders<H: Host>(run: &mut Run<H>, item: &OnlyFolders) -> Result<Step> {
    let all = folders_in(run, &item.under).await?;
    let old: Vec<String> = all
        .iter()
        .filter(|entry| !kept(&item.keep, &entry.name))
        .map(|entry| format!(r"{}\{}", item.under, entry.name))
        .collect();
    if old.is_empty() {
        return Ok(Step::Ok(String::new()));
    }
    if !run.apply {
        return Ok(Step::Differs(old.join(", ")));
    }
    for folder in &old {
        remove_tree(&mut run.host, folder).await?;
        forget_below(run, folder).await?;
    }
    Ok(Step::Changed(old.join(", ")))
}

/// Deletes roots with our mark that are no longer desired. The remaining ones are in the inventory from now on: the
/// script of earlier releases marked them without an inventory.
pub(crate) async fn certificates<H: Host>(
    run: &mut Run<H>,
    item: &OnlyCertificates,
) -> Result<Step> {
    let ours = roots(run)
        .await?
        .iter()
        .filter(|root| root.own && root.name == MARK);
    let ours: Vec<String> = ours.map(|root| root.sha256.clone()).collect();
    let old: Vec<&String> = ours
        .iter()
        .filter(|sha256| !item.keep.contains(sha256))
        .collect();
    if run.apply {
        for sha256 in ours.iter().filter(|sha256| item.keep.contains(sha256)) {
            run.note(Made::Root {
                sha256: sha256.clone(),
            })
            .await?;
        }
    }
    if old.is_empty() {
        return Ok(Step::Ok(String::new()));
    }
    if !run.apply {
        return Ok(Step::Differs(format!("{} too many", old.len())));
    }
    let mut gone = 0;
    for sha256 in old {
        gone += u32::from(certificate::remove(run, sha256).await?);
        run.inventory.forget(&Made::Root {
            sha256: sha256.clone(),
        });
    }
    run.save_inventory().await?;
    Ok(Step::Changed(format!("{gone} removed")))
}

/// Deletes numbered files of one name, except the newest ones and the one in use.
pub(crate) async fn newest<H: Host>(run: &mut Run<H>, item: &NewestFiles) -> Result<Step> {
    let listed = match run
        .host
        .ask(DirectoryList {
            path: item.under.clone(),
        })
        .await
    {
        Ok(listed) => listed,
        Err(error) if error.is_any(&[2, 3]) => return Ok(Step::Ok(String::new())),
        Err(error) => {
            return Err(error).doing(FailureCode::Other, || format!("list {}", item.under));
        }
    };
    let path = |name: &str| format!(r"{}\{name}", item.under);
    let mut files: Vec<DirectoryEntry> = listed
        .into_iter()
        .filter(|entry| {
            let name = entry.name.to_ascii_lowercase();
            let current = item
                .current
                .as_ref()
                .is_some_and(|current| same(current, &entry.name));
            !entry.stat.folder
                && !current
                && name.starts_with(&item.prefix.to_ascii_lowercase())
                && name.ends_with(&item.suffix.to_ascii_lowercase())
        })
        .collect();
    // The newest first; of one moment the greater name, which carries a time.
    files.sort_by(|one, other| {
        let key =
            |entry: &DirectoryEntry| (entry.stat.modified_ms, entry.name.to_ascii_lowercase());
        key(other).cmp(&key(one))
    });
    let current = match &item.current {
        Some(name) => digest(&mut run.host, &path(name)).await?,
        None => None,
    };
    let mut old = Vec::new();
    for entry in files.into_iter().skip(item.keep) {
        let path = path(&entry.name);
        let in_use = current.is_some() && digest(&mut run.host, &path).await? == current;
        if !in_use {
            old.push(path);
        }
    }
    if old.is_empty() {
        return Ok(Step::Ok(String::new()));
    }
    if !run.apply {
        return Ok(Step::Differs(old.join(", ")));
    }
    for path in &old {
        delete(&mut run.host, path).await?;
    }
    Ok(Step::Changed(old.join(", ")))
}
