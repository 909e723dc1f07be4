//! Files of a section: from the payload, from the profile, and for registries' mirrors.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Staged, items::Items};
use crate::{
    document::ChangeClass,
    item::{File, FileSource, ItemKind, OnlyFolders, VERSION_MARK},
    profile::{Content, FileSpec, Mirror, MirrorSpec, SectionSpec},
};

/// Server of a registry that is never to be contacted and has no mirror.
const NOBODY: &str = "https://never-contact-source.invalid";

impl Items<'_> {
    pub(super) fn payload_files(&mut self, spec: &SectionSpec) {
        for (name, wanted) in &spec.payload {
            if !self.values.holds(&wanted.when) {
                continue;
            }
            let Some(file) = self.manifest.file(name) else {
                self.wrong(
                    format!("payload.{name}"),
                    "the payload has no such file".into(),
                );
                continue;
            };
            let path = format!("${{PAYLOAD_DIR}}\\{}", file.destination);
            let path = self.path(&format!("payload.{name}"), &path);
            let source = FileSource::Staged {
                name: file.sha256.clone(),
            };
            self.payload.push(Staged {
                name: name.clone(),
                destination: path.clone(),
                sha256: file.sha256.clone(),
                size: file.size,
            });
            let what = File {
                path: path.clone(),
                sha256: file.sha256.clone(),
                size: file.size,
                source,
                users: Vec::new(),
                private: false,
            };
            self.push(format!("file:{path}"), wanted.change, ItemKind::File(what));
        }
        if !spec.payload.is_empty() {
            self.version_mark();
        }
    }

    /// Adds the mark file by which a later sweep recognizes the payload's folder as dormer's.
    fn version_mark(&mut self) {
        let path = self.fill("payload_folder", "${PAYLOAD_DIR}") + "\\" + VERSION_MARK;
        let content = self.manifest.folder() + "\n";
        self.text_file(path, content, ChangeClass::Live, Vec::new(), false);
    }

    pub(super) fn files(&mut self, spec: &SectionSpec) {
        for (path, file) in &spec.files {
            if !self.values.holds(&file.when) {
                continue;
            }
            let location = format!("files.{path}");
            let path = self.path(&location, path);
            if self.values.withheld(file) {
                self.kept.push(path);
                continue;
            }
            let content = self.content(&location, file);
            self.text_file(path, content, file.change, file.users.clone(), file.private);
        }
    }

    pub(super) fn content(&mut self, location: &str, file: &FileSpec) -> String {
        match (&file.content, &file.json) {
            (Some(content), None) => {
                let text = self.values.parts(content).concat();
                if text.is_empty() && matches!(content, Content::Parts(_)) {
                    self.wrong(location, "no part of its content applies here".into());
                }
                self.fill(location, &text)
            }
            (None, Some(json)) => match self.values.fill_json(json) {
                Ok(json) => serde_json::to_string_pretty(&json).unwrap_or_default() + "\n",
                Err(reason) => {
                    self.wrong(location, reason);
                    String::new()
                }
            },
            _ => {
                self.wrong(location, "has to have either `content` or `json`".into());
                String::new()
            }
        }
    }

    fn text_file(
        &mut self,
        path: String,
        content: String,
        change: ChangeClass,
        users: Vec<String>,
        private: bool,
    ) {
        let what = File {
            path: path.clone(),
            sha256: crate::sha256_hex(content.as_bytes()),
            size: content.len() as u64,
            source: FileSource::Inline {
                base64: STANDARD.encode(content),
            },
            users,
            private,
        };
        self.push(format!("file:{path}"), change, ItemKind::File(what));
    }

    pub(super) fn mirrors(&mut self, spec: &SectionSpec) {
        if spec.mirrors_folder.is_empty() && spec.mirrors.is_empty() {
            return;
        }
        let folder = self.path("mirrors_folder", &spec.mirrors_folder);
        let there = spec.mirrors.iter();
        let there: Vec<_> = there
            .filter(|(_, mirror)| self.values.holds(&mirror.when))
            .collect();
        for (host, mirror) in &there {
            let location = format!("mirrors.{host}");
            let content = self.hosts_toml(&location, mirror);
            // containerd reads these files again with every pull.
            let path = format!("{folder}\\{}\\hosts.toml", mirror_folder(host));
            self.text_file(path, content, ChangeClass::Live, Vec::new(), true);
        }
        // Removes registries that are no longer mirrored.
        let keep = there.iter().map(|(host, _)| mirror_folder(host)).collect();
        let what = ItemKind::OnlyFolders(OnlyFolders {
            under: folder.clone(),
            keep,
        });
        self.push(format!("only:{folder}"), ChangeClass::Live, what);
    }

    fn hosts_toml(&mut self, location: &str, spec: &MirrorSpec) -> String {
        let mut text = String::new();
        match spec.mirrors.first().filter(|_| spec.blocked) {
            // Settings before any `[host]` apply to the server that is contacted last.
            Some(first) => {
                let url = toml_string(&self.fill(location, &first.url));
                let _ = writeln!(text, "server = {url}");
                self.mirror(location, first, ("", "header"), &mut text);
            }
            // A name that never resolves (RFC 6761): without a server containerd would contact the registry itself.
            None if spec.blocked => {
                let _ = writeln!(text, "server = {}", toml_string(NOBODY));
            }
            None if !spec.server.is_empty() => {
                let server = self.fill(location, &spec.server);
                let _ = writeln!(text, "server = {}", toml_string(&server));
            }
            None => {}
        }
        for mirror in &spec.mirrors {
            let url = toml_string(&self.fill(location, &mirror.url));
            let _ = writeln!(text, "\n[host.{url}]");
            self.mirror(
                location,
                mirror,
                ("  ", &format!("host.{url}.header")),
                &mut text,
            );
        }
        text
    }

    /// Adds a mirror's capabilities and credentials.
    fn mirror(
        &mut self,
        location: &str,
        mirror: &Mirror,
        (indent, header): (&str, &str),
        text: &mut String,
    ) {
        let can = if mirror.resolve_tags {
            r#""pull", "resolve""#
        } else {
            r#""pull""#
        };
        let _ = writeln!(text, "{indent}capabilities = [{can}]");
        if self.fill(location, &mirror.url).contains("/v2/") {
            // Otherwise containerd appends `/v2` to the path.
            let _ = writeln!(text, "{indent}override_path = true");
        }
        if mirror.insecure {
            let _ = writeln!(text, "{indent}skip_verify = true");
        }
        let authorization = self.fill(location, &mirror.authorization);
        if !authorization.is_empty() {
            let value = toml_string(&authorization);
            let _ = writeln!(
                text,
                "{indent}[{header}]\n{indent}  Authorization = {value}"
            );
        }
    }
}

/// Folder name of a registry in containerd: `host:port` is `host_port_`, and `*` means every registry.
fn mirror_folder(host: &str) -> String {
    match host.rsplit_once(':') {
        _ if host == "*" => "_default".to_owned(),
        Some((name, port)) => format!("{name}_{port}_"),
        None => host.to_owned(),
    }
}

/// A basic string of TOML.
fn toml_string(text: &str) -> String {
    // JSON's escapes are a subset of TOML's.
    serde_json::to_string(text).unwrap_or_default()
}
