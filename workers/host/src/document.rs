//! The document as the program reads it: with names alone that Windows keeps as they are written.

use dormer_profile::{document::Document, item::ItemKind};

use crate::paths::refused;

/// Reads a document, and refuses names that Windows would change.
pub(crate) fn read(bytes: &[u8]) -> Result<Document, String> {
    let document = Document::from_bytes(bytes).map_err(|error| error.to_string())?;
    check(&document)?;
    Ok(document)
}

fn check(document: &Document) -> Result<(), String> {
    let mut paths: Vec<(&str, &str)> = Vec::new();
    let mut names: Vec<(&str, &str)> = Vec::new();
    for item in &document.items {
        let id = item.id.as_str();
        match &item.what {
            ItemKind::Directory(what) => paths.push((id, &what.path)),
            ItemKind::File(what) => paths.push((id, &what.path)),
            ItemKind::NetworkFile(what) => paths.push((id, &what.path)),
            ItemKind::Sweep(what) => paths.push((id, &what.under)),
            ItemKind::OnlyFolders(what) => paths.push((id, &what.under)),
            ItemKind::NewestFiles(what) => paths.push((id, &what.under)),
            ItemKind::Image(what) => paths.push((id, &what.archive)),
            ItemKind::DefenderExclusion(what) => paths.push((id, &what.process)),
            ItemKind::Service(what) => names.push((id, &what.name)),
            ItemKind::DisabledService(what) => names.push((id, &what.name)),
            _ => {}
        }
    }
    for (id, path) in paths {
        if let Some(why) = refused(path) {
            return Err(format!("{id}: `{path}` {why}"));
        }
    }
    match names.iter().find(|(_, name)| !is_service_name(name)) {
        Some((id, name)) => Err(format!("{id}: `{name}` is no name for a service")),
        None => Ok(()),
    }
}

/// At most 256 characters, none of `/`, `\`, comma and space (MS-SCMR; the last two only there).
fn is_service_name(name: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= 256 && name.chars().all(safe)
}
