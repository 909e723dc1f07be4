//! The document as the program reads it: the profile's items, and those of the program alone.

use dormer_profile::{
    document::{DOCUMENT_BYTES_MAX, DOCUMENT_ITEMS_MAX, Document},
    item::What,
};
use serde::Deserialize;
use serde_json::Value;

use crate::paths::refused;

/// Files in a folder with such names, of which the newest stay, and the one that `current` is a copy of.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NewestFiles {
    /// The folder.
    pub under: String,
    /// How the names begin: `ovnkube-client-`.
    pub prefix: String,
    /// How they end: `.pem`.
    pub suffix: String,
    /// So many stay.
    pub keep: usize,
    /// A file that is a copy of one of them under another name: the original stays as well.
    #[serde(default)]
    pub current: Option<String>,
}

/// An item of the program alone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum OwnWhat {
    /// See [`NewestFiles`].
    NewestFiles(NewestFiles),
}

/// One item with its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Own {
    /// Before the profile's item of this number.
    pub(crate) before: usize,
    /// Its id.
    pub(crate) id: String,
    /// The thing.
    pub(crate) what: OwnWhat,
}

/// A document, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The profile's items.
    pub(crate) document: Document,
    /// The program's own.
    pub(crate) own: Vec<Own>,
}

/// The kinds of [`OwnWhat`].
const OWN: [&str; 1] = ["newest_files"];

/// Reads a document, and refuses names that Windows would change.
pub(crate) fn read(bytes: &[u8]) -> Result<Wanted, String> {
    if bytes.len() > DOCUMENT_BYTES_MAX {
        return Err(format!("the document has {} bytes", bytes.len()));
    }
    let mut value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut own = Vec::new();
    if let Some(items) = value["items"].as_array_mut() {
        if items.len() > DOCUMENT_ITEMS_MAX {
            return Err(format!("the document has {} items", items.len()));
        }
        let mut theirs = Vec::new();
        for item in items.drain(..) {
            if !item["kind"]
                .as_str()
                .is_some_and(|kind| OWN.contains(&kind))
            {
                theirs.push(item);
                continue;
            }
            let id = item["id"].as_str().unwrap_or_default().to_owned();
            let what = serde_json::from_value(item).map_err(|error| format!("{id}: {error}"))?;
            own.push(Own {
                before: theirs.len(),
                id,
                what,
            });
        }
        *items = theirs;
    }
    let rest = serde_json::to_vec(&value).map_err(|error| error.to_string())?;
    let document = Document::from_bytes(&rest).map_err(|error| error.to_string())?;
    check(&document, &own)?;
    Ok(Wanted { document, own })
}

fn check(document: &Document, own: &[Own]) -> Result<(), String> {
    let mut paths: Vec<(&str, &str)> = Vec::new();
    let mut names: Vec<(&str, &str)> = Vec::new();
    for item in &document.items {
        let id = item.id.as_str();
        match &item.what {
            What::Directory(what) => paths.push((id, &what.path)),
            What::File(what) => paths.push((id, &what.path)),
            What::NetworkFile(what) => paths.push((id, &what.path)),
            What::Sweep(what) => paths.push((id, &what.under)),
            What::OnlyFolders(what) => paths.push((id, &what.under)),
            What::Image(what) => paths.push((id, &what.archive)),
            What::DefenderExclusion(what) => paths.push((id, &what.process)),
            What::Service(what) => names.push((id, &what.name)),
            What::DisabledService(what) => names.push((id, &what.name)),
            _ => {}
        }
    }
    for one in own {
        match &one.what {
            OwnWhat::NewestFiles(what) => paths.push((&one.id, &what.under)),
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
