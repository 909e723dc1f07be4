//! Removal of what the program made, from its inventory: never from a rendering, which may belong to another version.

use std::collections::BTreeSet;

use dormer_profile::{
    answer::{FailureCode, ItemState},
    document::{ChangeClass, Document},
    item::ItemKind,
};

use crate::{
    files::{delete, remove_tree, stat},
    items::{
        Kind as _, certificate, defender, disabled, dynamic_ports, endpoint, environment, firewall,
        network, registry,
    },
    ops::{DirectoryRemove, Host, PortRange, ServiceChange, ServiceSettings, Start},
    paths::{CNI, same, state, within},
    problem::{Problem, Result},
    progress::Run,
    services,
    state::{InventoryEntry, Made, file},
};

/// Folders that a node fills, besides ours: deleted when the host leaves for good.
const LEFT_BY_A_NODE: [&str; 2] = [r"C:\var\lib\kubelet", CNI];

/// Rank of a network: this and what has a smaller one may be in use by pods.
const NETWORK: u32 = 3;

/// In this order things go: what uses a thing before the thing.
fn rank(made: &Made) -> u32 {
    match made {
        Made::Service { .. } => 0,
        Made::Lingering { .. } => 1,
        Made::Endpoint { .. } => 2,
        Made::Network { .. } => NETWORK,
        Made::Disabled { .. } => 4,
        Made::Firewall { .. }
        | Made::Exclusion { .. }
        | Made::Environment { .. }
        | Made::Registry { .. }
        | Made::DynamicPorts { .. }
        | Made::Root { .. } => 5,
        Made::File { .. } => 6,
        Made::Directory { tree: true, .. } => 7,
        Made::Directory { tree: false, .. } => 8,
    }
}

/// Inventory entries in the order of removal: by rank; services, the last created first; folders, the deepest first.
fn in_order(mut entries: Vec<Made>) -> Vec<Made> {
    entries.reverse();
    entries.sort_by_key(|made| {
        let depth = match made {
            Made::Directory { path, .. } => path.matches('\\').count(),
            _ => 0,
        };
        (rank(made), usize::MAX - depth)
    });
    entries
}

/// Removes everything of both sections, with the kubelet's folder and the CNI's state, and then checks the result.
pub(crate) async fn everything<H: Host>(run: &mut Run<H>) -> Result<()> {
    let entries = run.inventory.entries.iter();
    let had_node = entries
        .map(|entry| &entry.made)
        .any(|made| matches!(made, Made::Service { name } if same(name, "kubelet")));
    if had_node {
        // The kubelet leaves the inventory first. Where this call ends early, the next one finds them by their entries.
        for folder in LEFT_BY_A_NODE {
            let path = folder.into();
            run.inventory
                .note(run.section, Made::Directory { path, tree: true });
        }
        run.save_inventory().await?;
    }
    let entries: Vec<InventoryEntry> = run.inventory.entries.clone();
    // A boot in the middle of a removal puts nothing back.
    delete(&mut run.host, &state(file::BOOT)).await?;
    // Folders that are deleted only when empty come after what lay in them.
    let (shared, ours) = entries
        .iter()
        .map(|entry| entry.made.clone())
        .partition(|made| matches!(made, Made::Directory { tree: false, .. }));
    let mut stays = take(run, ours).await?;
    stays.extend(take(run, shared).await?);
    let gone: Vec<InventoryEntry> = entries
        .into_iter()
        .filter(|entry| !stays.contains(&entry.made.id()))
        .collect();
    prove(run, &gone).await?;
    run.note_installed(None).await?;
    delete(&mut run.host, &state(file::WAITING)).await?;
    run.waiting.clear();
    run.save_inventory().await
}

/// Removes, or restores, what the document does not have any more, once everything that is wanted is there. A plan only
/// reports it.
pub(crate) async fn no_longer_wanted<H: Host>(run: &mut Run<H>, document: &Document) -> Result<()> {
    let mut wanted: Vec<Made> = Vec::new();
    let kept = document.kept.iter().map(|path| Made::File {
        path: path.clone(),
        sha256: String::new(),
    });
    wanted.extend(kept);
    let mut swept: Vec<String> = Vec::new();
    for item in &document.items {
        wanted.extend(match &item.what {
            ItemKind::Directory(what) => what.made(false),
            ItemKind::File(what) => what.made(false),
            ItemKind::Environment(what) => what.made(false),
            ItemKind::Service(what) => what.made(false),
            ItemKind::Firewall(what) => what.made(false),
            ItemKind::DefenderExclusion(what) => what.made(false),
            ItemKind::Certificate(what) => what.made(false),
            ItemKind::HnsNetwork(what) => what.made(false),
            ItemKind::HnsEndpoint(what) => what.made(false),
            ItemKind::NetworkFile(what) => what.made(false),
            ItemKind::Lingering(what) => Some(Made::Lingering {
                process: what.process.clone(),
            }),
            // Whatever it was before.
            ItemKind::Registry(what) => Some(Made::Registry {
                key: what.key.clone(),
                name: what.name.clone(),
                before: None,
            }),
            ItemKind::DynamicPorts(what) => Some(Made::DynamicPorts {
                start: what.start,
                count: what.count,
            }),
            // Whatever its start type was before.
            ItemKind::DisabledService(what) => Some(Made::Disabled {
                name: what.name.clone(),
                start: Start::Disabled,
            }),
            ItemKind::Sweep(what) => {
                // The sweep deletes version folders: the ones that it keeps allow a rollback.
                swept.extend(
                    what.keep
                        .iter()
                        .map(|name| format!(r"{}\{name}", what.under)),
                );
                None
            }
            _ => None,
        });
    }
    let reserved = endpoint::reservations(document);
    let entries = run
        .inventory
        .entries
        .iter()
        .filter(|entry| entry.section == document.section);
    let old = entries.map(|entry| &entry.made).filter(|made| {
        let kept = wanted.iter().any(|wanted| wanted.is_about(made));
        let path = match made {
            Made::File { path, .. } | Made::Directory { path, .. } => path,
            Made::Service { name } => return !kept && !same(name, crate::boot_run::SERVICE),
            _ => return !kept,
        };
        let above = wanted.iter().any(|wanted| match wanted {
            Made::File { path: below, .. } | Made::Directory { path: below, .. } => {
                within(below, path)
            }
            _ => false,
        });
        let in_use = swept
            .iter()
            .chain(&reserved)
            .any(|folder| within(path, folder) || within(folder, path));
        // A removal that was given up noted them; the node uses them again.
        let of_the_node = LEFT_BY_A_NODE.iter().any(|folder| same(folder, path));
        !kept && !above && !in_use && !of_the_node
    });
    let old: Vec<Made> = old.cloned().collect();
    take(run, old).await?;
    Ok(())
}

/// Restores the services of others: each gets its earlier start type, and automatic ones are started at once. Nothing
/// else is removed.
pub(crate) async fn of_others<H: Host>(run: &mut Run<H>) -> Result<()> {
    let entries = run.inventory.entries.iter().map(|entry| &entry.made);
    let theirs: Vec<Made> = entries
        .filter(|made| matches!(made, Made::Disabled { .. }))
        .cloned()
        .collect();
    for made in &theirs {
        if let Made::Disabled { name, start } = made
            && *start == Start::Auto
        {
            run.stopped.push(name.clone());
        }
    }
    take(run, theirs).await?;
    Ok(())
}

/// Takes things away; the ids of those that stay because others use them. A plan reports them: what pods use takes a
/// drain, as a service is stopped with all that depend on it.
async fn take<H: Host>(run: &mut Run<H>, entries: Vec<Made>) -> Result<BTreeSet<String>> {
    let mut stays = BTreeSet::new();
    let entries = in_order(entries);
    let programs: Vec<String> = entries
        .iter()
        .filter_map(|made| match made {
            Made::File { path, .. } if path.to_ascii_lowercase().ends_with(".exe") => {
                Some(path.clone())
            }
            _ => None,
        })
        .collect();
    let lingering: Vec<String> = entries
        .iter()
        .filter_map(|made| match made {
            Made::Lingering { process } => Some(process.clone()),
            _ => None,
        })
        .collect();
    let mut orphans = !programs.is_empty();
    for made in entries {
        let id = made.id();
        if !run.apply {
            run.least_change_class = Some(if rank(&made) <= NETWORK {
                ChangeClass::Drain
            } else {
                ChangeClass::Live
            });
            run.report_item(&id, ItemState::Differs, "is no longer wanted");
            continue;
        }
        run.host.about(&id);
        // Containers are deleted while containerd still runs; then containerd is removed.
        if matches!(&made, Made::Service { name } if same(name, "containerd")) {
            for process in &lingering {
                services::end_named(run, process).await?;
            }
        }
        if orphans && rank(&made) > 0 {
            orphans = false;
            services::end_orphans(run, &programs).await?;
        }
        match one(run, &made).await {
            Ok(Some(gone)) => {
                run.report_item(&id, gone_or_not(gone), "");
                run.inventory.forget(&made);
            }
            // Another process put a file into it, so it is no longer ours.
            Ok(None) => {
                run.report_item(&id, ItemState::Ok, "is not empty, and stays");
                run.inventory.forget(&made);
                stays.insert(id);
            }
            Err(problem) => {
                run.report_item(&id, ItemState::Failed, &problem.message);
                run.save_inventory().await?;
                run.fail(Some(&id), problem.clone()).await;
                return Err(problem);
            }
        }
    }
    run.host.about("");
    run.save_inventory().await?;
    Ok(stays)
}

const fn gone_or_not(gone: bool) -> ItemState {
    if gone {
        ItemState::Changed
    } else {
        ItemState::Ok
    }
}

/// Takes one thing away; false if it was not there, none if it stays because others use it.
async fn one<H: Host>(run: &mut Run<H>, made: &Made) -> Result<Option<bool>> {
    Ok(Some(match made {
        Made::Service { name } => services::remove(run, name).await?,
        Made::Lingering { process } => services::end_named(run, process).await? > 0,
        Made::Endpoint { name } => endpoint::remove(run, name).await?,
        Made::Network { name } => network::remove(run, name).await?,
        Made::Disabled { name, start } => {
            let settings = ServiceSettings {
                start: Some(*start),
                ..ServiceSettings::default()
            };
            match run
                .host
                .ask(ServiceChange {
                    name: name.clone(),
                    settings,
                })
                .await
            {
                Ok(()) => true,
                Err(error) if error.number() == 1060 => false,
                Err(error) => {
                    let doing = format!("restore the service {name}");
                    return Err(Problem::windows(
                        FailureCode::ServiceConfigFailed,
                        &doing,
                        &error,
                    ));
                }
            }
        }
        Made::Firewall { name } => firewall::remove(run, name).await?,
        Made::Exclusion { process } => defender::remove(run, process).await?,
        Made::Environment { name } => environment::remove(run, name).await?,
        Made::Registry { key, name, before } => {
            registry::remove(run, key, name, before.as_ref()).await?
        }
        Made::DynamicPorts { start, count } => {
            let before = PortRange {
                start: *start,
                count: *count,
            };
            dynamic_ports::set(run, before).await?
        }
        Made::Root { sha256 } => certificate::remove(run, sha256).await?,
        Made::File { path, .. } => delete(&mut run.host, path).await?,
        Made::Directory { path, tree: true } => remove_tree(&mut run.host, path).await?,
        Made::Directory { path, tree: false } => {
            match run.host.ask(DirectoryRemove { path: path.clone() }).await {
                Ok(()) => true,
                Err(error) if error.is_any(&[2, 3]) => false,
                Err(error) if error.is_any(&[145, 32, 5]) => return Ok(None),
                Err(error) => {
                    let doing = format!("remove {path}");
                    return Err(Problem::windows(FailureCode::Other, &doing, &error));
                }
            }
        }
    }))
}

/// Reads that what went is gone. The error names what comes back; the inventory has it again, so
/// that the next removal tries again.
async fn prove<H: Host>(run: &mut Run<H>, entries: &[InventoryEntry]) -> Result<()> {
    // Read before they went.
    run.roots = None;
    let mut left = BTreeSet::new();
    for entry in entries {
        let id = entry.made.id();
        run.host.about(&id);
        if is_there(run, &entry.made).await? {
            run.inventory.note(entry.section, entry.made.clone());
            left.insert(id);
        }
    }
    run.host.about("");
    if left.is_empty() {
        return Ok(());
    }
    run.save_inventory().await?;
    let left: Vec<String> = left.into_iter().collect();
    let said = format!("was removed and is there again: {}", left.join(", "));
    Err(Problem::new(FailureCode::Other, said))
}

/// Whether a thing that went is there, by the same read as that of its item.
async fn is_there<H: Host>(run: &mut Run<H>, made: &Made) -> Result<bool> {
    Ok(match made {
        Made::Service { name } => services::status(&mut run.host, name).await?.is_some(),
        Made::Lingering { process } => services::runs_named(run, process).await?,
        Made::Endpoint { name } => endpoint::is_there(run, name).await?,
        Made::Network { name } => network::is_there(run, name).await?,
        Made::Disabled { name, start } => disabled::is_held(run, name, *start).await?,
        Made::Firewall { name } => firewall::is_there(run, name).await?,
        Made::Exclusion { process } => defender::is_there(run, process).await?,
        Made::Environment { name } => {
            let there = run.host.registry(environment::KEY, name).await?;
            there.is_some()
        }
        Made::Registry { key, name, before } => {
            registry::is_held(run, key, name, before.as_ref()).await?
        }
        Made::DynamicPorts { start, count } => {
            let before = PortRange {
                start: *start,
                count: *count,
            };
            dynamic_ports::is_held(run, before).await?
        }
        Made::Root { sha256 } => certificate::is_ours(run, sha256).await?,
        Made::File { path, .. } | Made::Directory { path, .. } => {
            stat(&mut run.host, path).await?.is_some()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_uses_a_thing_goes_before_it() {
        let service = |name: &str| Made::Service { name: name.into() };
        let folder = |path: &str, tree| Made::Directory {
            path: path.into(),
            tree,
        };
        let made = vec![
            folder(r"C:\k", true),
            folder(r"C:\k\cni\config", true),
            folder(r"C:\var", false),
            Made::File {
                path: r"C:\k\x".into(),
                sha256: String::new(),
            },
            service("containerd"),
            service("kubelet"),
            Made::Network {
                name: "overlay".into(),
            },
            Made::Endpoint { name: "vip".into() },
            service("kube-proxy"),
        ];
        let order: Vec<String> = in_order(made).iter().map(Made::id).collect();
        assert_eq!(
            order,
            [
                "service:kube-proxy",
                "service:kubelet",
                "service:containerd",
                "endpoint:vip",
                "network:overlay",
                r"file:C:\k\x",
                r"directory:C:\k\cni\config",
                r"directory:C:\k",
                r"directory:C:\var",
            ]
        );
    }
}
