//! Remains in our own folders, of calls: unfinished uploads, and unused programs; and in the CNI's, of an earlier node.

use dormer_profile::{
    document::Document,
    item::{File, FileSource, Item, ItemKind},
};
use serde::{Deserialize, Serialize};

use crate::{
    boot_run, files,
    ops::{DirectoryEntry, DirectoryList, FileDelete, Host, ServiceRead},
    paths::{BIN, CNI, STAGING, name, program_path, same, state},
    problem::Result,
    progress::Run,
    services,
};

/// So many of the programs that were used last stay, whatever their age: an older dormer may come back.
const USED_MAX: usize = 3;
/// A program that was just uploaded belongs to a call that is about to begin.
const AGE_MIN_MS: i64 = 24 * 3_600 * 1_000;
const USED: &str = "programs.json";

/// The programs that were used here, the last first, by file name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    programs: Vec<String>,
}

/// Notes this program and takes away old ones. Only a call that holds the lock does; what cannot be deleted (it runs)
/// stays for the next.
pub(crate) async fn programs<H: Host>(run: &mut Run<H>) -> Result<()> {
    let path = state(USED);
    let mut used: Used = run.host.read_json(&path).await?.unwrap_or_default();
    let before = used.clone();
    let own = name(&program_path(&run.call.program)).to_owned();
    used.programs.retain(|program| !same(program, &own));
    used.programs.insert(0, own);
    used.programs.truncate(USED_MAX);
    if used != before {
        run.host.write_json(&path, &used).await?;
    }
    let service = ServiceRead {
        name: boot_run::SERVICE.into(),
    };
    let boot = run.host.ask(service).await;
    let boot = boot
        .map(|config| config.command.to_ascii_lowercase())
        .unwrap_or_default();
    let now = run.host.clock().await?.now_ms;
    for entry in list(run, BIN).await {
        let ours = entry.name.starts_with("dormer-host-") && entry.name.ends_with(".exe");
        let in_use = used
            .programs
            .iter()
            .any(|program| same(program, &entry.name))
            || boot.contains(&entry.name.to_ascii_lowercase());
        if ours && !in_use && now - entry.stat.modified_ms > AGE_MIN_MS {
            delete(run, BIN, &entry.name).await;
        }
    }
    Ok(())
}

/// Deletes unfinished uploads of this task up to this attempt, and of older tasks. Those of a newer attempt are in
/// progress and stay. All files of the document are in place by now, so an upload that still exists was kept by a call
/// that was killed between placing and deleting it.
pub(crate) async fn uploads<H: Host>(run: &mut Run<H>, document: &Document) {
    let seq = run.call.fence.seq;
    let attempt = run.call.attempt;
    let placed: Vec<&str> = document.items.iter().filter_map(staged_as).collect();
    for folder in [BIN, STAGING] {
        for entry in list(run, folder).await {
            let old =
                part(&entry.name).is_some_and(|(of, at)| of < seq || (of == seq && at <= attempt));
            let name = entry.name.strip_suffix(".gz").unwrap_or(&entry.name);
            if old || (folder == STAGING && placed.contains(&name)) {
                delete(run, folder, &entry.name).await;
            }
        }
    }
}

/// Removes the CNI's state before a node is made: the addresses of an earlier node's pods would never be given again.
/// Where Windows has a kubelet, or a container runs, it is in use, and stays.
pub(crate) async fn cni_state<H: Host>(run: &mut Run<H>) -> Result<()> {
    // What an inventory has is this node's own.
    if run.inventory.entries.is_empty()
        && services::status(&mut run.host, "kubelet").await?.is_none()
        && !services::runs_named(run, services::SHIM_NAME).await?
    {
        files::remove_tree(&mut run.host, CNI).await?;
    }
    Ok(())
}

/// The name of a file's upload.
fn staged_as(item: &Item) -> Option<&str> {
    match &item.what {
        ItemKind::File(File {
            source: FileSource::Staged { name },
            ..
        }) => Some(name),
        _ => None,
    }
}

async fn list<H: Host>(run: &mut Run<H>, folder: &str) -> Vec<DirectoryEntry> {
    let listed = run
        .host
        .ask(DirectoryList {
            path: folder.into(),
        })
        .await;
    listed.unwrap_or_default()
}

async fn delete<H: Host>(run: &mut Run<H>, folder: &str, name: &str) {
    let path = format!(r"{folder}\{name}");
    let _ = run.host.ask(FileDelete { path }).await;
}

/// Task and attempt of an unfinished upload, by its name `HASH.SEQ-ORDINAL-ATTEMPT.part`.
fn part(name: &str) -> Option<(u64, u32)> {
    let (_, who) = name.strip_suffix(".part")?.rsplit_once('.')?;
    let mut numbers = who.split('-');
    let seq = numbers.next()?;
    // The ordinal.
    numbers.next()?;
    let attempt = numbers.next()?;
    Some((seq.parse().ok()?, attempt.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn an_unfinished_upload_says_whose_it_is() {
        assert_eq!(part("abcd.17-0-2.part"), Some((17, 2)));
        assert_eq!(part("abcd.17-0.part"), None);
        assert_eq!(part("abcd.part"), None);
        assert_eq!(part("abcd.x-0-2.part"), None);
    }
}
